/* SPDX-License-Identifier: Apache-2.0 */
/* The pages that a held VM's children write at once; see warm.h. */
#include "vmm/warm.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"
#include "vmm/jail.h"
#include "vmm/vm.h"

#define PROBE_EXEC_ID	0xfffffffeu
#define PROBE_LIMIT_NS	(10 * NS_PER_SEC)
#define PAGES_MAX	8192u	/* more is no start, and not worth a copy for each child */

/* In headers newer than some hosts' kernels, which then refuse it. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct warm_log {
	atomic_uint done;	/* the bitmap is whole */
	uint64_t pages[];	/* one bit a page of RAM */
};

int warm_init(struct warm *warm, uint64_t memory_size, struct err *err)
{
	size_t size = sizeof(struct warm_log) + (size_t)(memory_size / MEMORY_PAGE / 8 + 8);
	int pair[2], r;

	*warm = (struct warm)WARM_INIT;
	r = map_fd(&warm->shared, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		   0);
	if (r == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		r = -errno;
	if (r < 0)
		return err_set_errno(err, r, "cannot prepare to look at what children write");
	warm->probe_fd = pair[0];
	warm->held_fd = pair[1];
	return 0;
}

void warm_done(struct warm *warm)
{
	map_done(&warm->shared);
	warm->probe_fd = fd_close(warm->probe_fd);
	warm->held_fd = fd_close(warm->held_fd);
}

/* ---- In the probe ---- */

static void probe_exec(struct vm *vm)
{
	struct {
		struct cm_exec exec;
		char strings[sizeof("/bin/true") + 1];
	} payload = { .exec = { .argc = 1 }, .strings = "/bin/true" };
	struct cm_frame head = frame_head(CM_F_EXEC, 0, PROBE_EXEC_ID, sizeof(payload.exec) +
					  sizeof(payload.strings));

	console_send(&vm->console, &head, &payload);
}

static _Noreturn void probe_collect(struct vm *vm)
{
	const struct warm *warm = &vm->warm;
	struct warm_log *log = (struct warm_log *)(void *)warm->shared.addr;
	size_t words = memory_bitmap_words(&vm->memory);
	struct err err = ERR_INIT;
	uint64_t count = 0;

	if (kvm_collect_dirty(&vm->kvm, &vm->memory, &err) < 0)
		_exit(125);
	for (size_t i = 0; i < words; i++) {
		/* Untouched 2 MiB come as one page when the child wants them, if it does. */
		if (vm->memory.fresh[i * 64 * MEMORY_PAGE / SNAPSHOT_CHUNK])
			vm->memory.dirty[i] = 0;
		count += (uint64_t)__builtin_popcountll(vm->memory.dirty[i]);
	}
	if (count <= PAGES_MAX) {
		memcpy(log->pages, vm->memory.dirty, words * sizeof(uint64_t));
		atomic_store(&log->done, 1);
	}
	_exit(0);
}

static int probe_frame(void *arg, const struct frame *frame, const char **ret_why)
{
	struct vm *vm = arg;
	bool before = vm->relay.state == RELAY_RUNNING;
	int r;

	if (frame->head.id == PROBE_EXEC_ID &&
	    (frame->head.type == CM_F_EXIT || frame->head.type == CM_F_FAILED))
		probe_collect(vm);
	r = relay_guest_frame(&vm->relay, frame, ret_why);
	if (!before && vm->relay.state == RELAY_RUNNING)
		probe_exec(vm);
	return r;
}

static void on_limit(struct loop_op *op, int result)
{
	_exit(125);
}

static bool probe_room(void *arg)
{
	return relay_room(&((struct vm *)arg)->relay);
}

static _Noreturn void probe_run(struct vm *held)
{
	struct vm *vm = malloc(sizeof(*vm));
	struct vm_options options = vm_child_options(held, held->warm.probe_fd);
	struct loop_op limit = { .done = on_limit };
	struct err err = ERR_INIT;
	const int keep[] = { held->warm.probe_fd, held->kvm.dev };

	jail_close_others(keep, sizeof(keep) / sizeof(keep[0]));
	options.kernel_fd = -1;
	options.snapshots = options.verbose = false;
	if (!vm || vm_init_child(vm, &options, held, &held->held, &err) < 0 ||
	    vm_track(vm, &err) < 0)
		_exit(125);
	vm->warm = held->warm;
	vm->console.frame = probe_frame;
	vm->console.room = probe_room;
	vm->console.arg = vm;
	if (loop_timeout(&vm->loop, &limit, PROBE_LIMIT_NS) < 0 ||
	    vm_start(vm, true, &err) < 0)
		_exit(125);
	vm_serve(vm, &err);
	_exit(125);
}

/* ---- In the held VM and its other children ---- */

void warm_probe(struct vm *held)
{
	if (fork() == 0)
		probe_run(held);
	held->warm.probe_fd = fd_close(held->warm.probe_fd);
}

void warm_populate(const struct vm *held)
{
	const struct warm_log *log = (const struct warm_log *)(void *)held->warm.shared.addr;
	size_t pages = (size_t)(memory_ram_size(&held->memory) / MEMORY_PAGE);
	uint8_t *ram = held->memory.ram.addr;

	if (!log || !atomic_load(&log->done))
		return;
	for (size_t page = 0; page < pages;) {
		size_t first;

		if (page % 64 == 0 && log->pages[page / 64] == 0) {
			page += 64;
			continue;
		}
		for (first = page; page < pages && log->pages[page / 64] >> page % 64 & 1; page++)
			;
		/* A help: where it cannot be had, the guest's own faults do it. */
		if (page > first)
			madvise(ram + first * MEMORY_PAGE, (page - first) * MEMORY_PAGE,
				MADV_POPULATE_WRITE);
		else
			page++;
	}
}
