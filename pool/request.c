/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of a VM's VMM: VM_SAVE, VM_FORK, VM_PAUSE and VM_CONTINUE, one at a time, in
 * order. While a VM is paused, nothing is sent that is for the guest (vm->still): the VMM could
 * not take all of it, and VM_CONTINUE would stand behind it.
 *
 * Snapshots and forks travel with descriptors, so they go out by themselves when everything
 * before them is sent; bulk frames wait meanwhile. The children's sockets are ours from the
 * start: a child is a VM (STARTING) before its process exists, and gets its process by the
 * answer.
 */
#include "pool/vm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/time.h"

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

static bool is_fork(const struct vm_request *q)
{
	return q->type == CM_F_VM_FORK;
}

static struct vm_request *request_new(struct vm *vm, uint16_t type, struct err *err)
{
	struct vm_request *q;
	unsigned int count = 0;

	if (vm->state == VM_SUSPENDED) {
		err_set(err, EHOSTDOWN, "the VM %s is suspended", vm->name);
		return NULL;
	}
	if (vm->state != VM_READY) {
		err_set(err, ESTALE, "the VM %s is not running", vm->name);
		return NULL;
	}
	for (const struct list *l = vm->requests.next; l != &vm->requests; l = l->next)
		count++;
	if (count >= POOL_VM_REQUESTS) {
		err_set(err, EBUSY, "%u requests to this VM wait already", count);
		return NULL;
	}
	q = calloc(1, sizeof(*q));
	if (!q) {
		err_set(err, ENOMEM, "no memory for a request");
		return NULL;
	}
	list_init(&q->link);
	q->type = type;
	return q;
}

static void request_queue(struct vm *vm, struct vm_request *q, struct waiter *waiter)
{
	q->waiter = waiter;
	list_add_tail(&vm->requests, &q->link);
	vm_pump_later(vm);
}

int vm_save(struct vm *vm, int fd, uint16_t flags, struct waiter *waiter, struct err *err)
{
	struct vm_request *q = request_new(vm, CM_F_VM_SAVE, err);

	if (!q)
		return err->code;
	q->flags = flags;
	q->fds[q->count++] = fd;
	request_queue(vm, q, waiter);
	return 0;
}

int request_pause(struct vm *vm, bool pause, struct waiter *waiter, struct err *err)
{
	struct vm_request *q = request_new(vm, pause ? CM_F_VM_PAUSE : CM_F_VM_CONTINUE, err);

	if (!q)
		return err->code;
	request_queue(vm, q, waiter);
	return 0;
}

/* One child and its socket pair. */
static int child_add(struct vm *vm, struct vm_request *q, const struct vm_options *o,
		     struct err *err)
{
	FD_CLEANUP int theirs = -1;
	struct vm *child;
	int ours, r = spawn_channel_make(&ours, &theirs, err);

	if (r < 0)
		return r;
	child = vm_child_new(vm, o, ours, err);
	if (!child)
		return err->code;
	child->birth = q;
	q->children[q->count] = child;
	q->fds[q->count++] = fd_take(&theirs);
	return 0;
}

static void children_drop(struct vm_request *q, const char *reason)
{
	for (unsigned int i = 0; is_fork(q) && i < q->count; i++) {
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

	if (!last || !is_fork(last) || last->sent || last->count + q->count > CM_VM_FORK_MAX) {
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
	q = request_new(vm, CM_F_VM_FORK, err);
	if (!q)
		return err->code;
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
	size_t payload = is_fork(q) ? sizeof(frame.fork) : 0;

	_Static_assert(CM_VM_FORK_MAX <= FD_SEND_MAX, "descriptors in a message");
	frame.head = frame_head(q->type, q->flags, 0, (uint32_t)payload);
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

	return q && q->type == CM_F_VM_SAVE && fd_disk_bytes_known(q->fds[0], ret_bytes) == 0;
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
	if (q->type == CM_F_VM_PAUSE)
		vm->still = true;
	if (q->type == CM_F_VM_CONTINUE)
		vm->still = false;
	for (unsigned int i = 0; is_fork(q) && i < q->count; i++)
		q->fds[i] = fd_close(q->fds[i]);
}

/* It was the first, and is answered. */
static void request_finish(struct vm *vm, struct vm_request *q, const struct err *err)
{
	list_remove(&q->link);
	if (q->waiter)
		q->waiter->done(q->waiter, q, err->code ? err : NULL);
	request_free(q);
	vm_pump_later(vm);
}

void vm_text_take(const struct frame *frame, size_t skip, char *text, size_t size)
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

	if (!q || q->type != CM_F_VM_SAVE || !q->sent)
		return "an answer to nothing";
	memcpy(&q->saved, frame->payload, sizeof(q->saved));
	vm_text_take(frame, sizeof(q->saved), text, sizeof(text));
	if (q->saved.error)
		err_set(&err, (int)q->saved.error, "the snapshot was not saved: %s", text);
	else
		vm->pool->stats.snapshots++;
	request_finish(vm, q, &err);
	return NULL;
}

const char *request_paused(struct vm *vm, const struct frame *frame)
{
	struct vm_request *q = request_first(vm);
	bool pause = frame->head.type == CM_F_VM_PAUSED;
	struct cm_vm_paused paused;
	struct err err = ERR_INIT;
	char text[200];

	if (!q || q->type != (pause ? CM_F_VM_PAUSE : CM_F_VM_CONTINUE) || !q->sent)
		return "an answer to nothing";
	memcpy(&paused, frame->payload, sizeof(paused));
	vm_text_take(frame, sizeof(paused), text, sizeof(text));
	if (paused.error)
		err_set(&err, (int)paused.error, "the VM does not %s: %s", pause ? "pause" :
			"go on", text);
	if (paused.error && pause)
		vm->paused = vm->still = false;
	if (!vm->paused)
		vm->idle_since_ns = time_monotonic_ns();
	vm_timer_update(vm);
	request_finish(vm, q, &err);
	return NULL;
}

const char *request_forked(struct vm *vm, const struct frame *frame)
{
	struct vm_request *q = request_first(vm);
	struct cm_vm_forked forked;
	char text[200];

	if (!q || !is_fork(q) || !q->sent)
		return "an answer to nothing";
	memcpy(&forked, frame->payload, sizeof(forked));
	vm_text_take(frame, sizeof(forked), text, sizeof(text));
	if (forked.count > q->count)
		return "more children than were asked for";
	list_remove(&q->link);
	for (unsigned int i = 0; i < q->count; i++) {
		struct vm *child = q->children[i];

		if (forked.error)
			vm_end(child, "fork", text[0] ? text : "the fork failed");
		vm_child_named(child, vm, i < forked.count ? (pid_t)forked.pid[i] : 0);
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
