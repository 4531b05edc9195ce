/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VMs that stand still: paused, or suspended to the disk.
 *
 * To suspend a VM is to pause it, save it whole to a file in the store and end its process;
 * where any of that fails it goes on as if nothing had been. Since it stands while it is
 * saved, the file has exactly what was not yet heard of it: a command that runs goes on when
 * the VM comes back, and no byte of its streams is lost or comes twice (exec_sleep()).
 *
 *   SAVING   VM_PAUSE, then VM_SAVE; the VM is READY
 *   LEAVING  SUSPENDED, its process was killed and is not gone
 *   ON_DISK  SUSPENDED
 *   WAKING   STARTING; if that comes to nothing, ON_DISK again, unless its commands were heard
 *   MAPPED   READY: the memory is read from the file, which is the VM's until it ends or is
 *            suspended again
 *
 * The file has no name (store_file()) and is open here until the VMM has it. What it takes of
 * the disk is its owner's to answer for; the memory is not, while the VM has none. Forks of a
 * VM that is MAPPED read from the same file, which is there as long as one of them: each answers
 * for its share.
 */
#include "pool/vm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"

#define STORE_NAME	"suspend-"
#define WAKE_NS	(60 * NS_PER_SEC)

enum phase { SAVING, LEAVING, ON_DISK, WAKING, MAPPED };

struct vm_suspend {
	struct vm *vm;
	enum phase phase;
	struct waiter step;		/* for what the VMM answers */
	int fd;				/* of the file; read-only once it is written */
	bool wanted;			/* while LEAVING: is to come back at once */
	struct list waiters;		/* of vm_suspend() */
};

/* ---- Pause ---- */

bool suspend_is_saving(const struct vm *vm)
{
	return vm->suspend && vm->suspend->phase == SAVING;
}

static int not_while_saving(const struct vm *vm, struct err *err)
{
	if (suspend_is_saving(vm))
		return err_set(err, EBUSY, "the VM %s is just being suspended", vm->name);
	return 0;
}

int vm_pause(struct vm *vm, struct waiter *waiter, struct err *err)
{
	int r = not_while_saving(vm, err);

	if (r == 0)
		r = request_pause(vm, true, waiter, err);
	if (r == 0)
		vm->paused = true;
	return r;
}

int vm_resume(struct vm *vm, struct waiter *waiter, struct err *err)
{
	int r = not_while_saving(vm, err);

	if (r == 0 && vm->state == VM_SUSPENDED)
		r = vm_wake(vm, err);
	if (r < 0)
		return r;
	if (vm->state != VM_READY) {
		vm_wait_ready(vm, waiter);
		return 0;
	}
	r = request_pause(vm, false, waiter, err);
	if (r == 0)
		vm->paused = false;
	return r;
}

/* ---- To the disk ---- */

struct stored_file {
	uint64_t bytes;
	unsigned int users;		/* VMs */
};

uint64_t vm_stored(const struct vm *vm)
{
	return vm->stored ? vm->stored->bytes / vm->stored->users : 0;
}

void stored_share(struct vm *child, const struct vm *source)
{
	child->stored = source->stored;
	if (child->stored)
		child->stored->users++;
}

void stored_put(struct vm *vm)
{
	if (vm->stored && --vm->stored->users == 0)
		free(vm->stored);
	vm->stored = NULL;
}

static void suspend_free(struct vm *vm)
{
	struct vm_suspend *s = vm->suspend;

	vm->suspend = NULL;
	fd_close(s->fd);
	free(s);
}

/* The VM goes on. */
static void suspend_undo(struct vm *vm, const struct err *why)
{
	struct vm_suspend *s = vm->suspend;
	struct err ignored = ERR_INIT;

	pool_event(vm->pool, "vm-not-suspended", vm, "%s", why->text);
	/* One that a client paused stays so; a queue that is full is a VM's that is ending. */
	if (!vm->paused && vm->still)
		request_pause(vm, false, NULL, &ignored);
	waiters_tell(&s->waiters, vm, why);
	s->fd = fd_close(s->fd);
	/* The file it was restored from may be its memory still. */
	if (vm->stored)
		s->phase = MAPPED;
	else
		suspend_free(vm);
	vm->idle_since_ns = time_monotonic_ns();
	vm_timer_update(vm);
}

/* For the next process, which is to read it only. */
static int file_reopen(int *fd, struct err *err)
{
	char path[64];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", *fd);
	again = open(path, O_RDONLY | O_CLOEXEC);
	if (again < 0)
		return err_set(err, EIO, "cannot open the suspended VM's file: %s",
			       strerror(errno));
	close(*fd);
	*fd = again;
	return 0;
}

static int may_sleep(const struct vm *vm, struct err *err)
{
	struct exec *exec;

	if (!list_empty(&vm->requests))
		return err_set(err, EBUSY, "another request to the VM came meanwhile");
	list_for_each(exec, &vm->execs, struct exec, link) {
		const char *why = exec_may_sleep(exec);

		if (exec->state == EXEC_QUEUED)
			return err_set(err, EBUSY, "a command came meanwhile");
		if (why)
			return err_set(err, EBUSY, "the command %" PRIu64 " cannot be suspended: "
				       "%s", exec->id, why);
	}
	return 0;
}

static int file_take(struct vm *vm, uint64_t *ret_bytes, struct err *err)
{
	struct vm_suspend *s = vm->suspend;
	int r = fd_disk_bytes(s->fd, ret_bytes);

	if (r < 0)
		return err_set(err, EIO, "cannot look at the suspended VM's file: %s",
			       strerror(-r));
	r = pool_store_admit(vm, *ret_bytes, err);
	return r == 0 ? file_reopen(&s->fd, err) : r;
}

static void on_saved(struct waiter *waiter, void *what, const struct err *failed)
{
	struct vm_suspend *s = list_entry(waiter, struct vm_suspend, step);
	struct vm *vm = s->vm;
	struct err err = failed ? *failed : (struct err)ERR_INIT;
	struct stored_file *file = NULL;
	uint64_t bytes = 0;
	struct exec *exec;

	/* Told of its end by vm_end(). */
	if (vm->state != VM_READY)
		return;
	if (!failed && may_sleep(vm, &err) == 0)
		file_take(vm, &bytes, &err);
	if (!err.code) {
		file = malloc(sizeof(*file));
		if (!file)
			err_set(&err, ENOMEM, "no memory to suspend a VM");
	}
	if (err.code) {
		suspend_undo(vm, &err);
		return;
	}
	*file = (struct stored_file){ .bytes = bytes, .users = 1 };
	stored_put(vm);
	vm->stored = file;
	s->phase = LEAVING;
	vm->state = VM_SUSPENDED;
	vm->paused = vm->still = false;
	vm->booted = false;
	vm_process_drop(vm);
	buf_consume(&vm->to_vmm, vm->to_vmm.len);
	list_for_each(exec, &vm->execs, struct exec, link)
		exec_sleep(exec);
	vm_memory_count(vm, false);
	vm->pool->stats.suspends++;
	vm_timer_update(vm);
	pool_event(vm->pool, "vm-suspended", vm, "%" PRIu64 " bytes", bytes);
}

static void on_paused(struct waiter *waiter, void *what, const struct err *failed)
{
	struct vm_suspend *s = list_entry(waiter, struct vm_suspend, step);
	struct err err = failed ? *failed : (struct err)ERR_INIT;
	int fd;

	if (s->vm->state != VM_READY)
		return;
	s->step.done = on_saved;
	fd = failed ? -1 : fcntl(s->fd, F_DUPFD_CLOEXEC, 3);
	if (!failed && fd < 0)
		err_set_errno(&err, errno, "cannot save the VM");
	if (fd < 0 || vm_save(s->vm, fd, 0, &s->step, &err) < 0) {
		fd_close(fd);
		suspend_undo(s->vm, &err);
	}
}

/* A new file without a name: it goes with its last descriptor, whatever happens. Where the
 * filesystem must give it a name it has one for an instant. */
static int store_file(int store, struct err *err)
{
	char name[32];
	uint64_t random;
	int fd = openat(store, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return err_set(err, EIO, "no random number is to be had");
	snprintf(name, sizeof(name), STORE_NAME "%016" PRIx64, random);
	fd = openat(store, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(err, EIO, "cannot make a file in the daemon's store: %s",
			       strerror(errno));
	unlinkat(store, name, 0);
	return fd;
}

void suspend_store_clean(int store)
{
	DIR *d = store < 0 ? NULL : fd_directory(store);
	const struct dirent *entry;

	if (!d)
		return;
	while ((entry = readdir(d))) {
		if (!strncmp(entry->d_name, STORE_NAME, strlen(STORE_NAME)))
			unlinkat(store, entry->d_name, 0);
	}
	closedir(d);
}

/* May find the VM's last file, which is MAPPED: it counts until this one is whole. */
static int suspend_begin(struct vm *vm, struct err *err)
{
	struct vm_suspend *s = vm->suspend;
	int fd = store_file(vm->pool->store, err);

	if (fd < 0)
		return fd;
	if (!s)
		s = calloc(1, sizeof(*s));
	if (!s) {
		close(fd);
		return err_set(err, ENOMEM, "no memory to suspend a VM");
	}
	vm->suspend = s;
	s->vm = vm;
	s->phase = SAVING;
	s->fd = fd;
	list_init(&s->waiters);
	list_init(&s->step.link);
	s->step.done = on_paused;
	return 0;
}

int vm_suspend(struct vm *vm, struct waiter *waiter, struct err *err)
{
	int r = not_while_saving(vm, err);

	if (r < 0)
		return r;
	if (vm->state == VM_SUSPENDED) {
		if (waiter)
			waiter->done(waiter, vm, NULL);
		return 0;
	}
	/* One on its way back has its file still. */
	if (vm->state != VM_READY)
		return err_set(err, ESTALE, "the VM %s is not running", vm->name);
	if (vm->pool->store < 0)
		return err_set(err, EIO, "the daemon has no store for suspended VMs");
	r = pool_store_admit(vm, 0, err);
	if (r == 0)
		r = suspend_begin(vm, err);
	if (r < 0)
		return r;
	r = request_pause(vm, true, &vm->suspend->step, err);
	if (r < 0) {
		suspend_undo(vm, err);
		return r;
	}
	if (waiter)
		list_add_tail(&vm->suspend->waiters, &waiter->link);
	return 0;
}

/* ---- And back ---- */

static int wake_start(struct vm *vm, struct err *err)
{
	struct vm_suspend *s = vm->suspend;

	s->wanted = false;
	frame_decoder_done(&vm->decoder);
	if (frame_decoder_init(&vm->decoder, FRAME_VMM_TO_CLIENT) < 0)
		return err_set(err, ENOMEM, "no memory for a VM");
	s->phase = WAKING;
	vm->state = VM_STARTING;
	vm->restored = vm->woken = true;
	vm->heard = false;
	timer_set(vm->pool->loop, &vm->timer, time_monotonic_ns() + WAKE_NS);
	return vm_process_begin(vm, 0, &s->fd, 1, err);
}

int vm_wake(struct vm *vm, struct err *err)
{
	struct vm_suspend *s = vm->suspend;
	int r;

	if (s->wanted)
		return 0;
	r = pool_wake_admit(vm, err);
	if (r < 0)
		return r;
	vm_memory_count(vm, true);
	s->wanted = true;
	if (s->phase == LEAVING)
		return 0;
	r = wake_start(vm, err);
	if (r < 0)
		suspend_wake_failed(vm, err->text);
	return r;
}

void suspend_woken(struct vm *vm)
{
	struct vm_suspend *s = vm->suspend;

	s->phase = MAPPED;
	s->fd = fd_close(s->fd);
	vm->pool->stats.wakes++;
	pool_event(vm->pool, "vm-resumed", vm, "from the disk");
}

bool suspend_wake_failed(struct vm *vm, const char *reason)
{
	struct vm_suspend *s = vm->suspend;
	struct err err = ERR_INIT;
	struct exec *exec;

	/* What was heard of its commands would come again. */
	if (vm->heard)
		return false;
	err_set(&err, ECONNRESET, "the VM did not come back from the disk: %s", reason);
	pool_event(vm->pool, "vm-not-resumed", vm, "%s", reason);
	vm->state = VM_SUSPENDED;
	s->phase = vm->process != VM_PROCESS_NONE ? LEAVING : ON_DISK;
	s->wanted = false;
	vm_process_drop(vm);
	buf_consume(&vm->to_vmm, vm->to_vmm.len);
	vm_memory_count(vm, false);
	list_for_each(exec, &vm->execs, struct exec, link) {
		if (exec->state == EXEC_QUEUED)
			exec_lost(exec, err.text);
	}
	waiters_tell(&vm->waiters, vm, &err);
	if (vm->state == VM_SUSPENDED)
		vm_timer_update(vm);
	return true;
}

void suspend_process_gone(struct vm *vm)
{
	struct vm_suspend *s = vm->suspend;
	struct err err = ERR_INIT;

	vm->pid = 0;
	s->phase = ON_DISK;
	waiters_tell(&s->waiters, vm, NULL);
	if (vm->state == VM_SUSPENDED && s->wanted && wake_start(vm, &err) < 0)
		suspend_wake_failed(vm, err.text);
}

void suspend_drop(struct vm *vm, const struct err *err)
{
	if (!vm->suspend)
		return;
	waiters_tell(&vm->suspend->waiters, vm, err);
	suspend_free(vm);
}
