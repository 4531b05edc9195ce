/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving and forking a VM: VM_SAVE and VM_FORK of abi/channel.h; VM_PAUSE and VM_CONTINUE come
 * this way, too (pause.c). Of a paused VM the vCPU stands already, and stays so.
 *
 * Both stop the vCPU, copy what is not memory into a struct snapshot_state, and fork(2); the
 * memory is the child's by copy-on-write, and the vCPU goes on at once. So the pause is the
 * fork. A saving child writes its memory and the state to the file and ends; a forked one
 * drops what belongs to its parent (rings, KVM's objects, sockets) and makes a VM of its own
 * over the memory, with the new client's socket. Each child tells its parent through a pipe
 * how that went; a child that dies without a word is the pipe's end of file.
 *
 * A tracked VM knows which pages changed since its last snapshot: an incremental one has
 * those. The bitmap of what is being written is set aside meanwhile, since the guest goes on
 * and changes more, and a snapshot that fails must not lose what it would have had.
 *
 * Bytes that had left the guest before the stop belong to the source: its client gets them,
 * the children's clients do not. What was on its way to the guest goes to all of them.
 *
 * Loop thread only, under its lock.
 */
#include "vmm/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"
#include "snapshot/file.h"
#include "vmm/cpu_state.h"
#include "vmm/jail.h"

static void fds_close(struct vm_request *request)
{
	for (unsigned int i = 0; i < request->count; i++)
		request->fds[i] = fd_close(request->fds[i]);
	request->count = 0;
}

/* ---- Answers ---- */

static void answer_save(struct vm *vm, const struct vm_request *q)
{
	struct {
		struct cm_vm_saved saved;
		char text[ERR_TEXT_MAX];
	} frame = { .saved = { .error = (uint32_t)-q->err.code, .pause_ns = q->pause_ns } };
	size_t len = strlen(q->err.text);

	memcpy(frame.saved.id, q->id, sizeof(q->id));
	memcpy(frame.text, q->err.text, len);
	relay_send(&vm->relay, CM_F_VM_SAVED, &frame, sizeof(frame.saved) + len);
}

static void answer_fork(struct vm *vm, const struct vm_request *q, unsigned int count)
{
	struct {
		struct cm_vm_forked forked;
		char text[ERR_TEXT_MAX];
	} frame = { .forked = { .error = (uint32_t)-q->err.code, .count = count,
				.pause_ns = q->pause_ns } };
	size_t len = strlen(q->err.text);

	memcpy(frame.forked.pid, q->pids, sizeof(q->pids));
	memcpy(frame.text, q->err.text, len);
	relay_send(&vm->relay, CM_F_VM_FORKED, &frame, sizeof(frame.forked) + len);
}

static void answer_pause(struct vm *vm, const struct vm_request *q)
{
	struct {
		struct cm_vm_paused paused;
		char text[ERR_TEXT_MAX];
	} frame = { .paused = { .error = (uint32_t)-q->err.code, .pause_ns = q->pause_ns } };
	size_t len = strlen(q->err.text);

	memcpy(frame.text, q->err.text, len);
	relay_send(&vm->relay, q->kind == REQUEST_PAUSE ? CM_F_VM_PAUSED : CM_F_VM_CONTINUED,
		   &frame, sizeof(frame.paused) + len);
}

/* The snapshot is whole: what comes next builds on it. Or it is not: the changes that it
 * would have had are still to be saved. */
static void changes_settle(struct vm *vm)
{
	struct vm_request *q = &vm->request;

	if (!q->changed)
		return;
	if (q->err.code == 0) {
		memcpy(vm->base.digest, q->id, sizeof(q->id));
		vm->based = true;
	} else {
		for (size_t i = 0; i < memory_bitmap_words(&vm->memory); i++)
			vm->memory.dirty[i] |= q->changed[i];
	}
	free(q->changed);
	q->changed = NULL;
}

/* An answer always has room: RELAY_OWN. */
static void answer_send(struct vm *vm, const struct vm_request *q, unsigned int count)
{
	if (q->kind == REQUEST_SAVE)
		answer_save(vm, q);
	else if (q->kind == REQUEST_FORK)
		answer_fork(vm, q, count);
	else
		answer_pause(vm, q);
}

static void request_answer(struct vm *vm, unsigned int count)
{
	struct vm_request *q = &vm->request;

	changes_settle(vm);
	answer_send(vm, q, count);
	fds_close(q);
	q->reports = fd_close(q->reports);
	q->kind = REQUEST_NONE;
}

/* ---- In the children ---- */

static void report(int fd, const struct child_report *r)
{
	/* At most PIPE_BUF bytes: whole or not at all. A parent that is gone needs none. */
	if (write(fd, r, sizeof(*r)) < 0)
		return;
}

static void report_err(struct child_report *r, const struct err *err)
{
	r->error = (uint32_t)-err->code;
	memcpy(r->text, err->text, sizeof(r->text));
}

static _Noreturn void child_save(struct vm *vm, struct snapshot_state *state, int fd,
				 int reports)
{
	bool incremental = vm->request.flags & CM_SAVE_INCREMENTAL;
	struct snapshot_source source = { .memory = vm->memory.ram.addr,
					  .size = memory_ram_size(&vm->memory),
					  .dirty = incremental ? vm->request.changed : NULL,
					  .unused = memory_free_map(&vm->memory,
								     vm->platform.free_map),
					  .parent = incremental ? &vm->base : NULL };
	struct child_report r = { .index = 0 };
	struct err err = ERR_INIT;
	struct snapshot_id id = { { 0 } };

	jail_close_others((const int[]){ fd, reports, vm->options->kernel_fd }, 3);
	/* Here and not at the start or in the pause: it takes milliseconds. */
	if (!vm->relay.restored && vm_kernel_digest(vm, state->machine.kernel_digest) < 0)
		err_set(&err, EIO, "cannot read the kernel's file");
	if (err.code || snapshot_write(fd, state, &source, &id, &err) < 0)
		report_err(&r, &err);
	memcpy(r.id, id.digest, sizeof(r.id));
	report(reports, &r);
	_exit(0);
}

static _Noreturn void child_run(struct vm *parent, const struct snapshot_state *state, int fd,
				int reports, uint32_t index)
{
	/* Not static: the parent may be a child itself. */
	struct vm *vm = malloc(sizeof(*vm));
	struct vm_options options = vm_child_options(parent, fd);
	struct child_report r = { .index = index };
	struct err err = ERR_INIT;
	const int keep[] = { fd, reports, parent->kvm.dev, parent->options->kernel_fd };

	jail_close_others(keep, sizeof(keep) / sizeof(keep[0]));
	warm_populate(parent);
	if (!vm)
		err_set(&err, ENOMEM, "no memory for a forked VM");
	if (!vm || vm_init_child(vm, &options, parent, state, &err) < 0 ||
	    vm_start(vm, true, &err) < 0) {
		report_err(&r, &err);
		report(reports, &r);
		_exit(125);
	}
	report(reports, &r);
	close(reports);
	/* The process ends with the VM, and the host takes everything back. */
	_exit(vm_serve(vm, &err) < 0 ? 125 : 0);
}

/* ---- In the parent ---- */

static void on_report(struct loop_op *op, int result)
{
	struct vm *vm = op->owner;
	struct vm_request *q = &vm->request;
	struct child_report *r = &q->report;

	if (result == (int)sizeof(*r)) {
		r->text[sizeof(r->text) - 1] = '\0';
		if (r->error)
			err_set(&q->err, (int)r->error, "%s", r->text);
		memcpy(q->id, r->id, sizeof(q->id));
		q->reported++;
	} else {
		err_set(&q->err, EIO, q->kind == REQUEST_SAVE ?
			"the process that wrote the snapshot died; dmesg may say why" :
			"a forked VM died before it ran; dmesg may say why");
		q->reported = q->count;
	}
	if (q->reported < q->count &&
	    loop_read(&vm->loop, op, q->reports, r, sizeof(*r)) == 0)
		return;
	request_answer(vm, q->count);
}

/* The machine's part of the state: its clocks at this moment, and what it was made of. */
static int machine_save(const struct vm *vm, struct saved_machine *m, struct err *err)
{
	const char *path = vm->options->image_path;
	int r = 0;

	if (vm->paused)
		m->tsc = vm->clock.tsc;
	else
		r = kvm_read_tsc(&vm->kvm, &m->tsc, err);
	if (r < 0)
		return r;
	m->memory_size = memory_ram_size(&vm->memory);
	m->image_size = vm->memory.image_size;
	memcpy(m->image_digest, vm->image_digest, sizeof(m->image_digest));
	memcpy(m->kernel_digest, vm->kernel_digest, sizeof(m->kernel_digest));
	m->tsc_khz = vm->kvm.tsc_khz;
	m->apic_timer_hz = vm->kvm.apic_timer_hz;
	m->monotonic_ns = clock_monotonic(&vm->clock, m->tsc);
	m->realtime_ns = time_ns(CLOCK_REALTIME);
	m->generation = vm->clock.generation;
	m->free_map = vm->platform.free_map;
	if (path && snapshot_bytes_set(&m->image_path, path, (uint32_t)strlen(path)) < 0)
		return err_set(err, ENOMEM, "no memory to save the VM's state");
	return 0;
}

static int state_take(const struct vm *vm, struct snapshot_state *state, struct err *err)
{
	int r = machine_save(vm, &state->machine, err);

	if (r == 0)
		r = cpu_save(&vm->kvm, &state->cpuid, &state->vcpu, err);
	if (r == 0 && console_save(&vm->console, &state->console) < 0)
		r = err_set(err, ENOMEM, "no memory to save the VM's state");
	return r;
}

/* Sets the changes so far aside for the child, or begins to note them. */
static int changes_take(struct vm *vm)
{
	struct vm_request *q = &vm->request;
	size_t bytes = memory_bitmap_words(&vm->memory) * sizeof(uint64_t);
	int r;

	if (q->kind != REQUEST_SAVE || !(q->flags & (CM_SAVE_TRACK | CM_SAVE_INCREMENTAL)))
		return 0;
	r = vm->tracked ? kvm_collect_dirty(&vm->kvm, &vm->memory, &q->err) :
			  vm_track(vm, &q->err);
	if (r < 0)
		return r;
	q->changed = malloc(bytes);
	if (!q->changed)
		return err_set(&q->err, ENOMEM, "no memory to note which pages change");
	memcpy(q->changed, vm->memory.dirty, bytes);
	memset(vm->memory.dirty, 0, bytes);
	return 0;
}

/* Returns the number of children made. */
static unsigned int children_make(struct vm *vm, struct snapshot_state *state, int reports)
{
	struct vm_request *q = &vm->request;
	unsigned int i;

	for (i = 0; i < q->count; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			err_set_errno(&q->err, errno, "cannot fork the VMM");
			break;
		}
		if (pid == 0 && q->kind == REQUEST_SAVE)
			child_save(vm, state, q->fds[i], reports);
		if (pid == 0)
			child_run(vm, state, q->fds[i], reports, i);
		q->pids[i] = (uint32_t)pid;
	}
	return i;
}

/* The vCPU stands still. */
static void request_perform(struct vm *vm)
{
	struct vm_request *q = &vm->request;
	struct snapshot_state taken = { 0 };
	struct snapshot_state *state = vm->options->hold ? &vm->held : &taken;
	unsigned int made = 0, asked = q->count;
	int pipe_fds[2] = { -1, -1 };

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		err_set_errno(&q->err, errno, "cannot make a pipe");
	else if (state == &vm->held ||
		 (state_take(vm, &taken, &q->err) == 0 && changes_take(vm) == 0))
		made = children_make(vm, state, pipe_fds[1]);
	if (!vm->options->hold && !vm->paused)
		vcpu_resume(vm);
	q->pause_ns = time_monotonic_ns() - q->stop_ns;
	snapshot_state_done(&taken);
	fds_close(q);
	fd_close(pipe_fds[1]);
	q->count = made;
	q->reports = pipe_fds[0];
	q->reported = 0;
	q->op = (struct loop_op){ .done = on_report, .owner = vm };
	if (made < asked || loop_read(&vm->loop, &q->op, q->reports, &q->report,
				      sizeof(q->report)) < 0) {
		err_set(&q->err, EIO, "cannot wait for the VM's children");
		/* Those that there are end with their clients, who are told. */
		request_answer(vm, made);
	}
}

void request_step(struct vm *vm)
{
	struct vm_request *q = &vm->request;

	if (q->kind == REQUEST_NONE || !q->stopping)
		return;
	if (!vm->options->hold && !atomic_load(&vm->vcpu.paused))
		return;
	q->stopping = false;
	if (q->kind != REQUEST_PAUSE) {
		request_perform(vm);
		return;
	}
	vm_pause(vm, &q->err);
	q->pause_ns = time_monotonic_ns() - q->stop_ns;
	request_answer(vm, 0);
}

/* Why this request cannot be begun. Returns 0, or -errno with err set. */
static int refuse(const struct vm *vm, const struct vm_request *q, struct err *err)
{
	bool save = q->kind == REQUEST_SAVE;

	if (vm->request.kind != REQUEST_NONE)
		return err_set(err, EBUSY, "the VM is being saved or forked already; ask again "
			       "when that is over");
	if (!save && q->kind != REQUEST_FORK)
		return vm->options->hold ? err_set(err, ESTALE, "a held VM does not run") : 0;
	if (!vm->options->snapshots)
		return err_set(err, EBUSY, "this VM was started without --snapshots: it cannot "
			       "be saved or forked");
	if (q->flags & CM_SAVE_INCREMENTAL && !vm->based)
		return err_set(err, ENODATA, "there is no snapshot that this one could build on: "
			       "changes were not tracked");
	if (save && vm->options->hold)
		return err_set(err, EBUSY, "a held VM has nothing to save that its snapshot does "
			       "not have");
	return 0;
}

static enum vm_request_kind request_kind(uint16_t type)
{
	switch (type) {
	case CM_F_VM_SAVE:
		return REQUEST_SAVE;
	case CM_F_VM_FORK:
		return REQUEST_FORK;
	case CM_F_VM_PAUSE:
		return REQUEST_PAUSE;
	default:
		return REQUEST_CONTINUE;
	}
}

/* What needs the vCPU to stand is done in request_step(), once it does. */
static void request_start(struct vm *vm)
{
	struct vm_request *q = &vm->request;
	bool stands = vm->options->hold || vm->paused;

	if (q->kind != REQUEST_CONTINUE) {
		if (!stands)
			vcpu_pause(vm);
		return;
	}
	q->stopping = false;
	if (vm->paused)
		q->pause_ns = time_monotonic_ns() - vm->paused_ns;
	vm_continue(vm, &q->err);
	request_answer(vm, 0);
}

void request_begin(void *arg, const struct frame *frame, const int *fds, unsigned int count)
{
	struct vm *vm = arg;
	struct vm_request q = { .kind = request_kind(frame->head.type), .count = count,
				.flags = frame->head.flags,
				.reports = -1, .err = ERR_INIT,
				.stop_ns = time_monotonic_ns(), .stopping = true };

	memcpy(q.fds, fds, count * sizeof(fds[0]));
	if (refuse(vm, &q, &q.err) < 0) {
		answer_send(vm, &q, 0);
		fds_close(&q);
		return;
	}
	vm->request = q;
	request_start(vm);
}

void request_done(struct vm *vm)
{
	fds_close(&vm->request);
	free(vm->request.changed);
	vm->request.reports = fd_close(vm->request.reports);
}
