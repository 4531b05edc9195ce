/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots and forks of a VM: VM_SAVE and VM_FORK, one at a time, in order.
 *
 * They travel with descriptors, so they go out by themselves when everything before them is
 * sent; bulk frames wait meanwhile. The children's sockets are ours from the start: a child
 * is a VM (STARTING) before its process exists, and gets its process by the answer.
 */
#include "pool/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

static struct vm_request *request_first(const struct vm *vm)
{
	return list_empty(&vm->requests) ? NULL :
		list_entry(vm->requests.next, struct vm_request, link);
}

static void request_free(struct vm_request *q)
{
	for (unsigned int i = 0; i < q->count; i++)
		fd_close(q->fds[i]);
	list_remove(&q->link);
	free(q);
}

static struct vm_request *request_new(struct vm *vm, struct err *err)
{
	struct vm_request *q;
	unsigned int count = 0;

	if (vm->state != VM_READY) {
		err_set(err, ESTALE, "the VM %s is not running", vm->name);
		return NULL;
	}
	for (const struct list *l = vm->requests.next; l != &vm->requests; l = l->next)
		count++;
	if (count >= POOL_VM_REQUESTS) {
		err_set(err, EBUSY, "%u snapshots and forks of this VM wait already", count);
		return NULL;
	}
	q = calloc(1, sizeof(*q));
	if (!q)
		err_set(err, ENOMEM, "no memory for a request");
	else
		list_init(&q->link);
	return q;
}

int vm_save(struct vm *vm, int fd, struct waiter *waiter, struct err *err)
{
	struct vm_request *q = request_new(vm, err);

	if (!q) {
		fd_close(fd);
		return err->code;
	}
	q->fds[q->count++] = fd;
	q->waiter = waiter;
	list_add_tail(&vm->requests, &q->link);
	vm_pump_later(vm);
	return 0;
}

/* One child and its socket pair. */
static int child_add(struct vm *vm, struct vm_request *q, const struct vm_options *o,
		     struct err *err)
{
	struct vm *child;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set_errno(err, errno, "cannot make a socket");
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	child = vm_child_new(vm, o, pair[0], err);
	if (!child) {
		close(pair[1]);
		return err->code;
	}
	child->birth = q;
	q->children[q->count] = child;
	q->fds[q->count++] = pair[1];
	return 0;
}

static void children_drop(struct vm_request *q, const char *reason)
{
	for (unsigned int i = 0; q->fork && i < q->count; i++) {
		struct vm *child = q->children[i];

		child->birth = NULL;
		vm_end(child, "fork", reason);
		vm_reap_later(child);
	}
}

/* Forks that wait one behind the other become one: the VM stands still once for all. */
static void fork_queue(struct vm *vm, struct vm_request *q)
{
	struct vm_request *last = list_empty(&vm->requests) ? NULL :
		list_entry(vm->requests.prev, struct vm_request, link);

	if (!last || !last->fork || last->sent || last->count + q->count > CM_VM_FORK_MAX) {
		list_add_tail(&vm->requests, &q->link);
		return;
	}
	for (unsigned int i = 0; i < q->count; i++) {
		q->children[i]->birth = last;
		last->children[last->count] = q->children[i];
		last->fds[last->count++] = q->fds[i];
	}
	q->count = 0;
	request_free(q);
}

int vm_fork(struct vm *vm, const struct vm_options *o, unsigned int count,
	    struct vm **ret_children, struct err *err)
{
	struct vm_request *q;
	int r;

	if (count < 1 || count > CM_VM_FORK_MAX)
		return err_set(err, EINVAL, "1 to %u children at a time", CM_VM_FORK_MAX);
	r = pool_vm_admit(vm->pool, o, vm->memory, count, true, err);
	if (r < 0)
		return r;
	q = request_new(vm, err);
	if (!q)
		return err->code;
	q->fork = true;
	while (q->count < count && r == 0)
		r = child_add(vm, q, o, err);
	if (r < 0) {
		children_drop(q, err->text);
		request_free(q);
		return r;
	}
	memcpy(ret_children, q->children, count * sizeof(q->children[0]));
	fork_queue(vm, q);
	vm->pool->stats.forks += count;
	vm_pump_later(vm);
	return 0;
}

static ssize_t request_send(const struct vm *vm, const struct vm_request *q)
{
	struct {
		struct cm_frame head;
		struct cm_vm_fork fork;
	} frame = { .fork = { .count = q->count } };
	size_t payload = q->fork ? sizeof(frame.fork) : 0;

	_Static_assert(CM_VM_FORK_MAX <= FD_SEND_MAX, "descriptors in a message");
	frame.head = frame_head(q->fork ? CM_F_VM_FORK : CM_F_VM_SAVE, 0, 0,
				(uint32_t)payload);
	return fd_send(vm->socket, &frame, sizeof(frame.head) + payload, q->fds, q->count);
}

bool request_due(const struct vm *vm)
{
	const struct vm_request *q = request_first(vm);

	return q && !q->sent;
}

bool vm_saving(const struct vm *vm, uint64_t *ret_bytes)
{
	const struct vm_request *q = request_first(vm);
	struct stat st;

	if (!q || q->fork || fstat(q->fds[0], &st) < 0)
		return false;
	*ret_bytes = (uint64_t)st.st_blocks * 512;
	return true;
}

/* So few bytes go into a stream socket whole or not at all. */
void request_pump(struct vm *vm)
{
	struct vm_request *q = request_first(vm);
	ssize_t sent;

	if (!q || q->sent || vm->to_vmm.len > 0)
		return;
	sent = request_send(vm, q);
	if (sent == -EAGAIN || sent == -EINTR)
		return;
	/* Any other failure is a lost channel, which is about to be noticed. */
	q->sent = true;
	for (unsigned int i = 0; q->fork && i < q->count; i++)
		q->fds[i] = fd_close(q->fds[i]);
}

static void text_take(const struct frame *frame, size_t skip, char *text, size_t size)
{
	size_t n = frame->head.length - skip;

	if (n > size - 1)
		n = size - 1;
	memcpy(text, frame->payload + skip, n);
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	frame_text_clean(text, strlen(text));
}

const char *request_saved(struct vm *vm, const struct frame *frame)
{
	struct vm_request *q = request_first(vm);
	struct err err = ERR_INIT;
	char text[200];

	if (!q || q->fork || !q->sent)
		return "an answer to nothing";
	memcpy(&q->saved, frame->payload, sizeof(q->saved));
	text_take(frame, sizeof(q->saved), text, sizeof(text));
	if (q->saved.error)
		err_set(&err, (int)q->saved.error, "the snapshot was not saved: %s", text);
	else
		vm->pool->stats.snapshots++;
	list_remove(&q->link);
	if (q->waiter)
		q->waiter->done(q->waiter, q, err.code ? &err : NULL);
	request_free(q);
	vm_pump_later(vm);
	return NULL;
}

const char *request_forked(struct vm *vm, const struct frame *frame)
{
	struct vm_request *q = request_first(vm);
	struct cm_vm_forked forked;
	char text[200];

	if (!q || !q->fork || !q->sent)
		return "an answer to nothing";
	memcpy(&forked, frame->payload, sizeof(forked));
	text_take(frame, sizeof(forked), text, sizeof(text));
	if (forked.count > q->count)
		return "more children than were asked for";
	list_remove(&q->link);
	for (unsigned int i = 0; i < q->count; i++) {
		struct vm *child = q->children[i];

		if (forked.error)
			vm_end(child, "fork", text[0] ? text : "the fork failed");
		vm_child_known(child, vm->pid, i < forked.count ? (pid_t)forked.pid[i] : 0);
	}
	request_free(q);
	vm_pump_later(vm);
	return NULL;
}

void request_drop_all(struct vm *vm, const struct err *err)
{
	struct vm_request *q;

	while ((q = request_first(vm))) {
		list_remove(&q->link);
		children_drop(q, err->text);
		if (q->waiter)
			q->waiter->done(q->waiter, q, err);
		request_free(q);
	}
}
