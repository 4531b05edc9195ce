/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM's life, seen from the daemon: its process, its socket, its end.
 *
 * vm_end() is the one way out: it says why, tells everybody who waits, and
 * has the process killed. The object stays until the parent says that the process is gone, so
 * that "killed" means killed; vm_reap() then frees it, at the end of a turn of the loop.
 *
 * What a VMM sends is bounded by credits or thrown away, so its socket is always read.
 */
#include "pool/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/time.h"
#include "pool/forward.h"

#define TO_VMM_CAP	(4 * FRAME_BYTES_MAX)
#define READ_SIZE	65536u
#define BOOT_NS		(60 * NS_PER_SEC)

static void on_channel(struct watch *watch, uint32_t events);
static void on_timer(struct timer *timer);
static void vm_pump(struct deferred *deferred);
static void vm_reap(struct deferred *deferred);

/* ---- Making ---- */

int pool_name_check(const char *name, const char *what, struct err *err)
{
	size_t n = strlen(name);

	if (n < 1 || n > POOL_NAME_MAX || name[0] == '.' || name[0] == '-' ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
			 "_.-") != n)
		return err_set(err, EINVAL, "the name of a %s is 1 to %u letters, digits and "
			       "_.-, and begins with none of .-", what, POOL_NAME_MAX);
	return 0;
}

static struct list *name_bucket(struct pool *pool, const char *name)
{
	uint32_t hash = 0;

	while (*name)
		hash = hash * 31 + (unsigned char)*name++;
	return &pool->names[hash % POOL_NAME_HASHES];
}

/* It can be found by its name now, or by its new one. */
static void name_enter(struct vm *vm)
{
	list_remove(&vm->named);
	list_add_tail(name_bucket(vm->pool, vm->name), &vm->named);
}

struct vm *pool_vm_find(struct pool *pool, const char *name)
{
	struct vm *vm;

	list_for_each(vm, name_bucket(pool, name), struct vm, named) {
		if (!strcmp(vm->name, name) && vm->state != VM_ENDING)
			return vm;
	}
	return NULL;
}

int pool_vm_name_admit(struct pool *pool, const char *name, struct err *err)
{
	int r = pool_name_check(name, "VM", err);

	if (r < 0)
		return r;
	if (!strncmp(name, "vm-", 3))
		return err_set(err, EINVAL, "names that begin with vm- are given by the daemon");
	if (pool_vm_find(pool, name))
		return err_set(err, EEXIST, "there is a VM %s already", name);
	return 0;
}

static int name_take(struct vm *vm, const char *name, struct err *err)
{
	int r = name ? pool_vm_name_admit(vm->pool, name, err) : 0;

	if (r < 0 || !name)
		return r;
	strcpy(vm->name, name);
	if (!list_empty(&vm->link))
		name_enter(vm);
	return 0;
}

/* Takes what a lease brings: owner, name, times. */
static int options_take(struct vm *vm, const struct vm_options *o, struct err *err)
{
	uint64_t now = time_monotonic_ns();
	int r = name_take(vm, o->name, err);

	if (r < 0)
		return r;
	snprintf(vm->label, sizeof(vm->label), "%s", o->label ? o->label : "");
	vm->owner = o->owner;
	vm->role = o->role;
	vm->idle_ns = o->idle_ns;
	vm->idle_suspends = o->idle_suspends;
	vm->ttl_at_ns = 0;
	if (o->ttl_ns && __builtin_add_overflow(now, o->ttl_ns, &vm->ttl_at_ns))
		return err_set(err, EINVAL, "the VM's time to live is too long");
	vm->idle_since_ns = now;
	return 0;
}

void vm_memory_count(struct vm *vm, bool counted)
{
	if (vm->counted == counted)
		return;
	vm->counted = counted;
	if (counted)
		vm->pool->vm_memory += vm->memory;
	else
		vm->pool->vm_memory -= vm->memory;
}

static void vm_free(struct vm *vm)
{
	struct pool *pool = vm->pool;

	timer_set(pool->loop, &vm->timer, 0);
	watch_remove(pool->loop, &vm->channel);
	deferred_cancel(&vm->pump);
	deferred_cancel(&vm->reap);
	list_remove(&vm->named);
	fd_close(vm->socket);
	fd_close(vm->image_fd);
	buf_done(&vm->to_vmm);
	frame_decoder_done(&vm->decoder);
	if (!list_empty(&vm->link)) {
		list_remove(&vm->link);
		pool->vm_count--;
	}
	vm_memory_count(vm, false);
	stored_put(vm);
	if (vm->template)
		template_put(vm->template);
	free(vm);
}

static struct vm *vm_alloc(struct pool *pool, const struct vm_options *o, uint64_t memory,
			   struct err *err)
{
	struct vm *vm = calloc(1, sizeof(*vm));
	int r;

	if (!vm) {
		err_set(err, ENOMEM, "no memory for a VM");
		return NULL;
	}
	vm->pool = pool;
	vm->socket = vm->image_fd = -1;
	vm->memory = memory;
	vm->number = ++pool->vm_numbers;
	vm->created_ns = time_monotonic_ns();
	snprintf(vm->name, sizeof(vm->name), "vm-%llu", (unsigned long long)vm->number);
	list_init(&vm->link);
	list_init(&vm->named);
	list_init(&vm->execs);
	list_init(&vm->savings);
	list_init(&vm->forwards);
	list_init(&vm->requests);
	list_init(&vm->waiters);
	list_init(&vm->end_waiters);
	watch_init(&vm->channel, on_channel);
	timer_init(&vm->timer, on_timer);
	deferred_init(&vm->pump, vm_pump);
	deferred_init(&vm->reap, vm_reap);
	r = options_take(vm, o, err);
	if (r == 0 && (buf_init(&vm->to_vmm, TO_VMM_CAP) < 0 ||
		       frame_decoder_init(&vm->decoder, FRAME_VMM_TO_CLIENT) < 0))
		r = err_set(err, ENOMEM, "no memory for a VM");
	if (r < 0) {
		vm_free(vm);
		return NULL;
	}
	vm->template = o->template;
	vm->restored = o->template != NULL;
	if (vm->template)
		vm->template->users++;
	return vm;
}

/* It is in the world now: counted, and told of. */
static void vm_begin(struct vm *vm, const struct vm_options *o)
{
	struct pool *pool = vm->pool;

	list_add_tail(&pool->vms, &vm->link);
	name_enter(vm);
	pool->vm_count++;
	vm_memory_count(vm, vm->role != VM_HELD);
	pool->stats.vms_created++;
	if (vm->role == VM_HELD)
		vm->state = VM_READY;
	else
		timer_set(pool->loop, &vm->timer,
			  vm->created_ns + (o->boot_ns ? o->boot_ns : BOOT_NS));
}

/* Its own descriptor of the image, also for a start out of the disk: what lies at its path may
 * be another one by then. */
static int image_keep(struct vm *vm, int fd)
{
	vm->image_fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return fd >= 0 && vm->image_fd < 0 ? -errno : 0;
}

int vm_process_begin(struct vm *vm, uint32_t flags, const int *snapshots, unsigned int count,
		     struct err *err)
{
	FD_CLEANUP int ours = -1, theirs = -1;
	int fds[FD_SEND_MAX], image = vm_image(vm), r;
	unsigned int n = 0;

	if (count > FD_SEND_MAX - 2)
		return err_set(err, E2BIG, "a chain of too many snapshots");
	r = spawn_channel_make(&ours, &theirs, err);
	if (r < 0)
		return r;
	fds[n++] = theirs;
	if (image >= 0) {
		fds[n++] = image;
		flags |= BOUNDARY_IMAGE;
	}
	for (unsigned int i = 0; i < count; i++)
		fds[n++] = snapshots[i];
	r = watch_add(vm->pool->loop, &vm->channel, ours, EPOLLIN);
	vm->socket = fd_take(&ours);
	if (r < 0)
		return err_set(err, EMFILE, "cannot watch a VM's channel");
	r = link_spawn(vm, flags, count, fds, n);
	return r < 0 ? err_set_errno(err, r, "cannot ask for a VM's process") : 0;
}

void vm_process_drop(struct vm *vm)
{
	watch_remove(vm->pool->loop, &vm->channel);
	/* A forked VM whose process is not known yet ends for this. Another is killed, and not
	 * to begin an orderly end before. */
	if (vm->process == VM_PROCESS_NONE)
		vm->socket = fd_close(vm->socket);
	link_kill(vm);
}

static int process_first(struct vm *vm, const struct vm_options *o, struct err *err)
{
	const struct template *t = o->template;
	uint32_t flags = o->role == VM_HELD ? BOUNDARY_HOLD : o->track ? BOUNDARY_TRACK : 0;

	return vm_process_begin(vm, flags, t ? t->fds : NULL, t ? t->fd_count : 0, err);
}

int vm_new(struct pool *pool, const struct vm_options *o, struct vm **ret_vm,
	   struct err *err)
{
	uint64_t memory = o->template ? o->template->memory : o->memory;
	struct vm *vm = NULL;
	int r = pool_vm_admit(pool, o, memory, 1, true, err);

	if (r == 0) {
		vm = vm_alloc(pool, o, memory, err);
		r = vm ? 0 : err->code;
	}
	if (r == 0 && !o->template && image_keep(vm, o->image_fd) < 0)
		r = err_set(err, EMFILE, "cannot have one more descriptor");
	if (r == 0) {
		vm_begin(vm, o);
		r = process_first(vm, o, err);
	}
	if (r < 0) {
		if (vm)
			vm_free(vm);
		return r;
	}
	*ret_vm = vm;
	return 0;
}

int vm_lease(struct vm *vm, const struct vm_options *o, struct err *err)
{
	int r = pool_vm_admit(vm->pool, o, vm->memory, 1, false, err);

	if (r == 0)
		r = options_take(vm, o, err);
	if (r == 0)
		vm_timer_update(vm);
	return r;
}

int vm_image(const struct vm *vm)
{
	return vm->template ? vm->template->image_fd : vm->image_fd;
}

/* ---- Time ---- */

/* Whether its idle time goes on. That of a paused one stands still with it. */
static bool may_idle(const struct vm *vm)
{
	return vm->idle_ns && vm->state == VM_READY && vm->exec_count == 0 && !vm->paused &&
	       !suspend_is_saving(vm);
}

void vm_timer_update(struct vm *vm)
{
	uint64_t at = vm->ttl_at_ns;

	if ((vm->state != VM_READY && vm->state != VM_SUSPENDED) || vm->role != VM_LEASED)
		return;
	if (vm->exec_count > 0)
		vm->idle_since_ns = time_monotonic_ns();
	else if (may_idle(vm) && (!at || vm->idle_since_ns + vm->idle_ns < at))
		at = vm->idle_since_ns + vm->idle_ns;
	timer_set(vm->pool->loop, &vm->timer, at);
}

static void idle_over(struct vm *vm)
{
	struct err err = ERR_INIT;

	if (!vm->idle_suspends) {
		vm_end(vm, "idle", "nothing ran in the VM for its idle time");
		return;
	}
	/* One that cannot be suspended goes on, for one idle time more. */
	vm->idle_since_ns = time_monotonic_ns();
	if (vm_suspend(vm, NULL, &err) < 0)
		pool_event(vm->pool, "vm-not-suspended", vm, "%s", err.text);
	vm_timer_update(vm);
}

/* It came to grief. One that was to come back from the disk stays there if it can. */
static void vm_fail(struct vm *vm, const char *cause, const char *reason)
{
	if (vm->state != VM_STARTING || !vm->woken || !suspend_wake_failed(vm, reason))
		vm_end(vm, cause, reason);
}

static void on_timer(struct timer *timer)
{
	struct vm *vm = list_entry(timer, struct vm, timer);
	uint64_t now = time_monotonic_ns();

	if (vm->state == VM_STARTING)
		vm_fail(vm, "timeout", "the VM did not start in time");
	else if (vm->ttl_at_ns && now >= vm->ttl_at_ns)
		vm_end(vm, "ttl", "the VM's time to live is over");
	else if (may_idle(vm) && now >= vm->idle_since_ns + vm->idle_ns)
		idle_over(vm);
	else
		vm_timer_update(vm);
}

/* ---- The end ---- */

void vm_end(struct vm *vm, const char *cause, const char *reason)
{
	struct pool *pool = vm->pool;
	struct err err = ERR_INIT;
	bool failed = vm->state == VM_STARTING && !vm->woken;
	struct exec *exec;

	if (vm->state == VM_ENDING)
		return;
	vm->state = VM_ENDING;
	vm->cause = cause;
	snprintf(vm->reason, sizeof(vm->reason), "%s", reason);
	err_set(&err, vm->error ? vm->error : ECONNRESET, "%s", vm->reason);
	timer_set(pool->loop, &vm->timer, 0);
	vm_process_drop(vm);
	pool->stats.vms_ended++;
	pool->stats.vms_failed += failed;
	pool_event(pool, "vm-ended", vm, "%s: %s", cause, vm->reason);
	request_drop_all(vm, &err);
	saving_drop_all(vm, &err);
	forward_end_all(vm, vm->reason);
	list_for_each(exec, &vm->execs, struct exec, link)
		exec_lost(exec, vm->reason);
	waiters_tell(&vm->waiters, vm, &err);
	suspend_drop(vm, &err);
	if (vm->template && vm->template->zygote == vm)
		vm->template->zygote = NULL;
	if (vm->template && (failed || vm->role == VM_HELD))
		template_vm_failed(vm->template, vm->reason);
	if (vm->template)
		template_vm_changed(vm->template);
	vm_reap_later(vm);
}

void vm_reap_later(struct vm *vm)
{
	/* Without a process, known or to come, there is nothing to wait for. */
	if (vm->state == VM_ENDING && vm->process == VM_PROCESS_NONE && !vm->birth)
		evloop_defer(vm->pool->loop, &vm->reap);
}

static void vm_reap(struct deferred *deferred)
{
	struct vm *vm = list_entry(deferred, struct vm, reap);
	struct list waiters;

	list_init(&waiters);
	while (!list_empty(&vm->end_waiters)) {
		struct list *w = vm->end_waiters.next;

		list_remove(w);
		list_add_tail(&waiters, w);
	}
	vm_free(vm);
	waiters_tell(&waiters, NULL, NULL);
}

void vm_kill(struct vm *vm, const char *cause, struct waiter *waiter, const char *format, ...)
{
	char reason[POOL_REASON_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	if (waiter)
		list_add_tail(&vm->end_waiters, &waiter->link);
	vm_end(vm, cause, reason);
}

/* ---- Frames ---- */

int vm_send(struct vm *vm, uint16_t type, uint16_t flags, uint32_t id, const void *payload,
	    size_t len)
{
	struct cm_frame head = frame_head(type, flags, id, (uint32_t)len);

	if (buf_space(&vm->to_vmm) < sizeof(head) + len)
		return -ENOBUFS;
	buf_append(&vm->to_vmm, &head, sizeof(head));
	buf_append(&vm->to_vmm, payload, len);
	vm_pump_later(vm);
	return 0;
}

static void on_booted(struct vm *vm)
{
	struct exec *exec;

	if (vm->state != VM_STARTING)
		return;
	/* It may be given away only once its process is known. */
	vm->booted = true;
	if (vm->process != VM_PROCESS_RUNS)
		return;
	vm->state = VM_READY;
	vm->idle_since_ns = time_monotonic_ns();
	/* Early frames of commands that ended before RUNNING: nothing more will come. */
	list_for_each(exec, &vm->execs, struct exec, link) {
		if (exec->early)
			exec_lost(exec, "it is not among those that the guest resumed");
	}
	timer_set(vm->pool->loop, &vm->timer, 0);
	vm_timer_update(vm);
	if (vm->woken) {
		suspend_woken(vm);
	} else {
		pool_histogram_add(&vm->pool->stats.create,
				   time_monotonic_ns() - vm->created_ns);
		if (vm->role == VM_WARM)
			template_vm_started(vm->template, time_monotonic_ns() - vm->created_ns);
		pool_event(vm->pool, "vm-ready", vm, "%s", vm->role == VM_WARM ? "warm" :
			   "leased");
	}
	waiters_tell(&vm->waiters, vm, NULL);
	if (vm->state == VM_READY && vm->template) {
		vm->template->failures = 0;
		template_vm_changed(vm->template);
	}
	vm_pump_later(vm);
}

static void on_vm_end_frame(struct vm *vm, const struct frame *frame)
{
	static const char *const causes[] = {
		[CM_VM_POWEROFF] = "poweroff", [CM_VM_GUEST_PANIC] = "panic",
		[CM_VM_GUEST_CRASH] = "crash", [CM_VM_GUEST_PROTOCOL] = "protocol",
		[CM_VM_TIMEOUT] = "timeout", [CM_VM_HOST_ERROR] = "host",
		[CM_VM_CLIENT_GONE] = "host",
	};
	char text[POOL_REASON_MAX];
	struct cm_vm_end end;

	memcpy(&end, frame->payload, sizeof(end));
	vm_text_take(frame, sizeof(end), text, sizeof(text));
	vm_fail(vm, end.reason < sizeof(causes) / sizeof(causes[0]) ? causes[end.reason] :
	       "host", text[0] ? text : "the guest powered off");
}

static void frame_dispatch(struct vm *vm, const struct frame *frame)
{
	const char *why = NULL;
	char text[POOL_REASON_MAX];

	if (frame->head.id != 0) {
		vm->heard = true;
		why = exec_frame(vm, frame);
	} else {
		switch (frame->head.type) {
		case CM_F_VM_BOOTED:
			on_booted(vm);
			break;
		case CM_F_VM_END:
			on_vm_end_frame(vm, frame);
			break;
		case CM_F_VM_SAVED:
			why = request_saved(vm, frame);
			break;
		case CM_F_VM_FORKED:
			why = request_forked(vm, frame);
			break;
		case CM_F_VM_PAUSED:
		case CM_F_VM_CONTINUED:
			why = request_paused(vm, frame);
			break;
		default:		/* LOG, REPORT, console: not kept */
			break;
		}
	}
	if (why) {
		snprintf(text, sizeof(text), "the guest broke the channel's protocol: %s", why);
		vm_end(vm, "protocol", text);
	}
}

/* If there is a process, its end says why. */
static void channel_lost(struct vm *vm)
{
	watch_remove(vm->pool->loop, &vm->channel);
	if (vm->process == VM_PROCESS_NONE)
		vm_fail(vm, "vmm", "the VMM died without a word; dmesg may say why");
	else
		link_kill(vm);
}

/* What an ending or suspended one says is not heard. */
static bool is_heard(const struct vm *vm)
{
	return vm->socket >= 0 && (vm->state == VM_STARTING || vm->state == VM_READY);
}

/* Returns whether there may be more. */
static bool channel_read(struct vm *vm)
{
	static uint8_t bytes[READ_SIZE];
	ssize_t n = recv(vm->socket, bytes, sizeof(bytes), MSG_DONTWAIT);
	size_t at = 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		channel_lost(vm);
		return false;
	}
	while (at < (size_t)n && is_heard(vm)) {
		struct frame frame;
		size_t used;
		int r = frame_decoder_feed(&vm->decoder, bytes + at, (size_t)n - at, &used,
					   &frame);

		at += used;
		if (r < 0)
			vm_end(vm, "protocol", vm->decoder.why);
		else if (r > 0)
			frame_dispatch(vm, &frame);
	}
	return vm->socket >= 0;
}

/* Returns whether anything went out. */
static bool channel_write(struct vm *vm)
{
	bool wrote = false;

	while (vm->to_vmm.len > 0) {
		size_t len;
		const uint8_t *from = buf_front(&vm->to_vmm, &len);
		ssize_t n = send(vm->socket, from, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		/* The reason of a lost channel is still to be read. */
		if (n < 0 && errno != EAGAIN)
			buf_consume(&vm->to_vmm, vm->to_vmm.len);
		if (n < 0)
			break;
		buf_consume(&vm->to_vmm, (size_t)n);
		wrote = true;
	}
	return wrote;
}

void vm_pump_later(struct vm *vm)
{
	if (vm->state != VM_ENDING && vm->state != VM_SUSPENDED)
		evloop_defer(vm->pool->loop, &vm->pump);
}

static void vm_pump(struct deferred *deferred)
{
	struct vm *vm = list_entry(deferred, struct vm, pump);
	struct exec *exec;

	if (vm->socket < 0)
		return;
	list_for_each(exec, &vm->execs, struct exec, link)
		exec_pump(exec);
	/* That made room for bulk frames that had found none. */
	if (channel_write(vm))
		vm_pump_later(vm);
	request_pump(vm);
	watch_set(vm->pool->loop, &vm->channel, EPOLLIN |
		  (vm->to_vmm.len > 0 || request_due(vm) ? EPOLLOUT : 0));
}

static void on_channel(struct watch *watch, uint32_t events)
{
	struct vm *vm = list_entry(watch, struct vm, channel);

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		channel_read(vm);
	if (events & EPOLLOUT)
		vm_pump_later(vm);
}

/* ---- The process ---- */

/* That of a suspended one, or of one that did not come back, is what was waited for. */
static void process_ended(struct vm *vm, const char *reason)
{
	if (vm->state != VM_SUSPENDED)
		vm_fail(vm, "vmm", reason);
	if (vm->state == VM_SUSPENDED) {
		vm->socket = fd_close(vm->socket);
		suspend_process_gone(vm);
	}
}

void vm_process_known(struct vm *vm, pid_t pid, int error, const char *reason)
{
	if (pid == 0) {
		vm->process = VM_PROCESS_NONE;
		/* The host's trouble, unless it was there and is gone. */
		if (error != ESRCH)
			vm->error = EIO;
		process_ended(vm, reason);
	} else {
		vm->process = VM_PROCESS_RUNS;
		vm->pid = pid;
		if (vm->booted)
			on_booted(vm);
	}
	vm_reap_later(vm);
}

/* Its last frames are in the socket still. */
void vm_process_gone(struct vm *vm, int status)
{
	char text[POOL_REASON_MAX] = "the VMM died without a word; dmesg may say why";

	while (is_heard(vm) && channel_read(vm))
		;
	vm->process = VM_PROCESS_NONE;
	if (status >= 0 && WIFSIGNALED(status))
		snprintf(text, sizeof(text), "the VMM died by signal %d (%s); dmesg may say why",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
	process_ended(vm, text);
	vm_reap_later(vm);
}

void vm_wait_ready(struct vm *vm, struct waiter *waiter)
{
	struct err err = ERR_INIT;

	if (vm->state == VM_STARTING || vm->state == VM_SUSPENDED) {
		list_add_tail(&vm->waiters, &waiter->link);
		return;
	}
	if (vm->state == VM_ENDING)
		err_set(&err, ECONNRESET, "%s", vm->reason);
	waiter->done(waiter, vm, err.code ? &err : NULL);
}

/* ---- For request.c ---- */

struct vm *vm_child_new(struct vm *parent, const struct vm_options *o, int socket,
			struct err *err)
{
	struct vm *vm = vm_alloc(parent->pool, o, parent->memory, err);

	if (!vm) {
		fd_close(socket);
		return NULL;
	}
	vm->restored = true;
	vm->socket = socket;
	stored_share(vm, parent);
	/* Of a template's zygote it is the template that has the image. */
	if ((!vm->template && image_keep(vm, vm_image(parent)) < 0) ||
	    watch_add(vm->pool->loop, &vm->channel, socket, EPOLLIN) < 0) {
		err_set(err, EMFILE, "cannot watch a VM");
		vm_free(vm);
		return NULL;
	}
	vm_begin(vm, o);
	return vm;
}

void vm_child_named(struct vm *vm, const struct vm *source, pid_t pid)
{
	vm->birth = NULL;
	if (pid <= 1 || link_child(vm, source, pid) < 0)
		vm_end(vm, "vmm", "a forked VM died before it ran");
	else if (vm->state == VM_ENDING)
		link_kill(vm);
	vm_reap_later(vm);
}
