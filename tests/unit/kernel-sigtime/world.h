/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small world for the tests of signals, time and polling: one or two processes, memory from
 * malloc with failures on request, program memory that is the test's own (addresses below 4096
 * fault), files without a filesystem, a clock that the test moves, and sleeping as a callback.
 * The parts under test are compiled in; nothing else of the kernel is.
 */
#ifndef TEST_SIGTIME_WORLD_H
#define TEST_SIGTIME_WORLD_H

#include <setjmp.h>

#include "abi/clock.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/signal_internal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/host/shim.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define WORLD_REAL0 1700000000000000000ULL	/* realtime after world_reset() */

extern struct cm_clock world_clock;
extern bool world_capable;
extern long world_fail_alloc;		/* fail the n-th allocation from now; 0: none */
extern long world_live_allocs;
extern unsigned world_wakes;
extern int world_exit_status;		/* of process_exit_group, task_exit */
extern jmp_buf world_exit;
/* Called instead of sleeping; returns what sleep_once() would. NULL: a signal, the deadline
 * (the clock is moved there), or -EDEADLK when neither could come. */
extern int (*world_sleep)(uint64_t deadline, bool interruptible);
extern void (*world_schedule)(void);	/* called by schedule(); NULL: makes current run again */

void world_reset(void);
/* The VM is stopped here and restored after `pause_ns` on a processor whose TSC stands at
 * `tsc`: writes the clock page as the VMM does. Raises no interrupt: see world_interrupt(). */
void world_restore(uint64_t pause_ns, uint64_t tsc);
void world_interrupt(void);		/* of the timer */
struct process *world_process(int pid, struct process *parent);
struct task *world_thread(struct process *p, int tid);
void world_advance(uint64_t ns);	/* moves the clock and runs timers */

/* A file with settable readiness. */
struct fake_file {
	struct waitq wq;
	unsigned ready;
	unsigned polls;
};
int world_fake_fd(struct fake_file **ret);	/* pollable */
int world_plain_fd(void);			/* not pollable, as a regular file */
int world_dup(int fd);
int world_close(int fd);
void fake_set(struct fake_file *f, unsigned ready);	/* and wakes with it as key */
long world_read(int fd, void *buf, size_t n);
long world_write(int fd, const void *buf, size_t n);

#endif
