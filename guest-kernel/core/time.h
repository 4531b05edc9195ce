/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks (from the clock-and-generation page, abi/clock.h) and timers. Tickless: the hardware
 * timer is armed for the earliest of the timers and, when several tasks are runnable, the end
 * of the time slice.
 */
#ifndef CORE_TIME_H
#define CORE_TIME_H

#include <bsd/sys/tree.h>
#include "guest-kernel/lib/kernel.h"

uint64_t clock_monotonic_ns(void);
uint64_t clock_realtime_ns(void);
uint64_t clock_boot_ns(void);		/* since the VM's first start; = monotonic - boot offset */
int64_t clock_realtime_offset(void);	/* realtime - monotonic */
uint64_t clock_generation(void);

struct ktimer {
	RB_ENTRY(ktimer) node;
	uint64_t deadline;		/* monotonic ns */
	void (*fn)(struct ktimer *t);	/* runs from timers_run(), may not sleep, may re-arm */
	bool armed;
	bool realtime;			/* armed by ktimer_set_realtime */
	uint64_t real_deadline;
	uint64_t seq;			/* equal deadlines run in the order of arming */
};
void ktimer_init(struct ktimer *t, void (*fn)(struct ktimer *t));
void ktimer_set(struct ktimer *t, uint64_t deadline_ns);	/* re-arms if armed */
/* The deadline is a realtime clock's; it follows when the clock jumps (restored VM). */
void ktimer_set_realtime(struct ktimer *t, uint64_t real_ns);
void ktimer_cancel(struct ktimer *t);
void timers_run(void);			/* all that are due */
uint64_t timers_next(void);		/* earliest deadline, ~0 if none */

/* The clock page: boot code sets it before the first reading. */
struct cm_clock;
extern struct cm_clock *clock_page;
/* Woken when the generation changed, that is when the realtime clock may have jumped. */
struct waitq;
extern struct waitq clock_jump_wait;
/* now + ns, never NO_DEADLINE */
uint64_t deadline_after(uint64_t ns);

/* Interval timers and posix timers (core/timers.c): what task code calls.
 * A process starts without any (zeroed struct process, then timers_process_init). */
struct process;
void timers_process_init(struct process *p);
void timers_process_exec(struct process *p);	/* posix timers go, interval timers stay */
void timers_process_exit(struct process *p);	/* all go: when it becomes a zombie */
/* CPU time that threads of p just spent, already added to the threads' sums. Sends SIGVTALRM,
 * SIGPROF, SIGXCPU and CPU-clock timers' signals. Called by sched_account(). */
void itimer_account(struct process *p, uint64_t user_ns, uint64_t sys_ns);

/* ns between a kernel value and user's struct timespec/timeval; -EINVAL, -EFAULT. */
struct ktimespec {
	int64_t sec, nsec;
};
int timespec_get_user(const struct ktimespec *uts, uint64_t *ret_ns);
int timespec_put_user(struct ktimespec *uts, uint64_t ns);

/* core/random.c: ChaCha20, keyed from the clock page's entropy and rng-seed, rekeyed when the
 * generation changes. Never fails. */
void random_init(const void *seed, size_t n);
void random_bytes(void *buf, size_t n);
void random_mix(const void *data, size_t n);

#endif
