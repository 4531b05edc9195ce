/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that read clocks and sleep on them.
 *
 * A clock id is one of Linux's fixed clocks, or a CPU clock of a process or thread:
 * ~pid << 3 | per-thread << 2 | which (0 user + system, 1 user, 2 the scheduler's sum).
 * The realtime clock belongs to the host: setting it answers EPERM, as in a container without
 * CAP_SYS_TIME. There is no alarm hardware, so the *_ALARM clocks are invalid here as on any
 * Linux machine without one.
 */
#include <linux/capability.h>
#include <linux/time_types.h>
#include <linux/timex.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/core/time_internal.h"
#include "guest-kernel/mm/uaccess.h"

/* ---- CPU clocks ---- */

uint64_t process_cpu_ns(const struct process *p, int which)
{
	uint64_t user = p->utime_ns, sys = p->stime_ns;
	struct task *t;

	TAILQ_FOREACH(t, &p->threads, thread_link) {
		user += t->utime_ns;
		sys += t->stime_ns;
	}
	return which == CPUCLOCK_VIRT ? user : user + sys;
}

int cpu_clock_find(int id, struct process **ret_p, struct task **ret_t)
{
	int pid = ~(id >> 3);
	bool thread = (id & 4) != 0;
	struct task *t;

	*ret_p = NULL;
	*ret_t = NULL;
	if (id == KCLOCK_PROCESS_CPUTIME || id == KCLOCK_THREAD_CPUTIME) {
		pid = 0;
		thread = id == KCLOCK_THREAD_CPUTIME;
	} else if (id >= 0 || (id & 3) == 3) {
		return -EINVAL;
	}
	if (thread) {
		t = pid == 0 ? current : task_find(pid);
		if (t == NULL || t->proc != current->proc)
			return -EINVAL;
		*ret_t = t;
		*ret_p = t->proc;
		return 0;
	}
	*ret_p = pid == 0 ? current->proc : process_find(pid);
	return *ret_p != NULL ? 0 : -EINVAL;
}

int cpu_clock_which(int id)
{
	return id >= 0 ? CPUCLOCK_SCHED : id & 3;
}

uint64_t cpu_clock_read(struct process *p, struct task *t, int which)
{
	if (p == current->proc)
		sched_account_flush();	/* what it ran until now belongs to it */
	if (t == NULL)
		return process_cpu_ns(p, which);
	return which == CPUCLOCK_VIRT ? t->utime_ns : t->utime_ns + t->stime_ns;
}

/* ---- reading ---- */

int clock_read_id(int id, uint64_t *ret)
{
	struct process *p;
	struct task *t;
	int r;

	switch (id) {
	case KCLOCK_REALTIME:
	case KCLOCK_REALTIME_COARSE:
	case KCLOCK_TAI:
		*ret = clock_realtime_ns();
		return 0;
	case KCLOCK_MONOTONIC:
	case KCLOCK_MONOTONIC_RAW:
	case KCLOCK_MONOTONIC_COARSE:
	case KCLOCK_BOOTTIME:
		*ret = clock_monotonic_ns();
		return 0;
	default:
		break;
	}
	r = cpu_clock_find(id, &p, &t);
	if (r == 0)
		*ret = cpu_clock_read(p, t, cpu_clock_which(id));
	return r;
}

SYSCALL(clock_gettime, int id, struct ktimespec __user *uts)
{
	uint64_t ns;
	int r = clock_read_id(id, &ns);

	return r != 0 ? r : timespec_put_user(uts, ns);
}

SYSCALL(clock_getres, int id, struct ktimespec __user *uts)
{
	uint64_t ns;
	int r = clock_read_id(id, &ns);

	if (r != 0)
		return r;
	if (uts == NULL)
		return 0;
	ns = id == KCLOCK_REALTIME_COARSE || id == KCLOCK_MONOTONIC_COARSE ? 4000000 : 1;
	return timespec_put_user(uts, ns);
}

SYSCALL(time, int64_t __user *ut)
{
	int64_t now = (int64_t)(clock_realtime_ns() / NSEC_PER_SEC);

	if (ut != NULL && PUT_USER(now, ut) != 0)
		return -EFAULT;
	return now;
}

struct ktimezone {
	int32_t minuteswest, dsttime;
};

SYSCALL(gettimeofday, struct ktimeval __user *utv, struct ktimezone __user *utz)
{
	uint64_t ns = clock_realtime_ns();
	struct ktimeval tv = {
		.sec = (int64_t)(ns / NSEC_PER_SEC),
		.usec = (int64_t)(ns % NSEC_PER_SEC / NSEC_PER_USEC),
	};
	struct ktimezone tz = { 0, 0 };

	if (utv != NULL && PUT_USER(tv, utv) != 0)
		return -EFAULT;
	if (utz != NULL && PUT_USER(tz, utz) != 0)
		return -EFAULT;
	return 0;
}

/* ---- setting: checked, then refused ---- */

SYSCALL(settimeofday, const struct ktimeval __user *utv, const struct ktimezone __user *utz)
{
	struct ktimezone tz;
	struct ktimeval tv;

	if (utv != NULL) {
		if (GET_USER(tv, utv) != 0)
			return -EFAULT;
		if (tv.sec < 0 || tv.usec < 0 || tv.usec >= 1000000)
			return -EINVAL;
	}
	if (utz != NULL && GET_USER(tz, utz) != 0)
		return -EFAULT;
	return -EPERM;
}

SYSCALL(clock_settime, int id, const struct ktimespec __user *uts)
{
	uint64_t ns;
	int r;

	if (id != KCLOCK_REALTIME) {
		r = clock_read_id(id, &ns);
		/* CPU clocks exist but are not to be set; the others cannot be at all. */
		return r == 0 && (id < 0 || id == KCLOCK_PROCESS_CPUTIME ||
				  id == KCLOCK_THREAD_CPUTIME) ? -EPERM : -EINVAL;
	}
	r = timespec_get_user(uts, &ns);
	return r != 0 ? r : -EPERM;
}

static long adjust(struct __kernel_timex __user *utx)
{
	struct __kernel_timex tx;
	uint64_t ns = clock_realtime_ns();

	if (GET_USER(tx, utx) != 0)
		return -EFAULT;
	if (tx.modes != 0 && tx.modes != ADJ_OFFSET_SS_READ)
		return -EPERM;
	memset(&tx, 0, sizeof(tx));
	tx.status = STA_UNSYNC;
	tx.maxerror = tx.esterror = 16000000;
	tx.constant = 2;
	tx.precision = 1;
	tx.tolerance = 32768000;
	tx.tick = 10000;
	tx.time.tv_sec = (long long)(ns / NSEC_PER_SEC);
	tx.time.tv_usec = (long long)(ns % NSEC_PER_SEC / NSEC_PER_USEC);
	if (PUT_USER(tx, utx) != 0)
		return -EFAULT;
	return TIME_ERROR;	/* the clock is not synchronised by this kernel */
}

SYSCALL(adjtimex, struct __kernel_timex __user *utx)
{
	return adjust(utx);
}

SYSCALL(clock_adjtime, int id, struct __kernel_timex __user *utx)
{
	uint64_t ns;
	int r;

	if (id == KCLOCK_REALTIME)
		return adjust(utx);
	r = clock_read_id(id, &ns);
	return r != 0 ? r : -EOPNOTSUPP;
}

/* ---- sleeping ---- */

/* restart_arg: 0 monotonic deadline, 1 user pointer for the remaining time. */
static long sleep_until(uint64_t deadline, struct ktimespec __user *urem)
{
	int r = 0;

	while (r == 0 && clock_monotonic_ns() < deadline)
		r = sleep_once(deadline, true);
	if (r == 0 || r == -ETIMEDOUT)
		return 0;
	if (urem != NULL) {
		uint64_t now = clock_monotonic_ns();

		if (now >= deadline)
			return 0;
		if (timespec_put_user(urem, deadline - now) != 0)
			return -EFAULT;
	}
	return -ERESTART_RESTARTBLOCK;
}

static long sleep_restart(struct task *t)
{
	return sleep_until((uint64_t)t->restart_arg[0],
			   (struct ktimespec __user *)t->restart_arg[1]);
}

static long sleep_relative(uint64_t ns, struct ktimespec __user *urem)
{
	uint64_t deadline = deadline_after(ns);

	current->restart_arg[0] = (long)deadline;
	current->restart_arg[1] = (long)urem;
	current->restart_fn = sleep_restart;
	return sleep_until(deadline, urem);
}

/* Until the realtime clock shows `real`; the timer follows when that clock jumps. */
static long sleep_until_realtime(uint64_t real)
{
	int r = 0;

	while (r != -ERESTARTSYS && clock_realtime_ns() < real)
		r = sleep_once_realtime(real);
	return r == -ERESTARTSYS ? -ERESTARTNOHAND : 0;
}

static long sleep_until_monotonic(uint64_t deadline)
{
	int r = 0;

	while (r == 0 && clock_monotonic_ns() < deadline)
		r = sleep_once(deadline, true);
	return r == -ERESTARTSYS ? -ERESTARTNOHAND : 0;
}

/* A process's CPU clock runs at most as fast as the monotonic one (one vCPU), so sleeping for
 * what is missing never sleeps too long. */
static long sleep_cpu(int id, uint64_t ns, bool absolute, struct ktimespec __user *urem)
{
	struct process *p;
	struct task *t;
	uint64_t now, end;
	int r = cpu_clock_find(id, &p, &t);

	if (r != 0)
		return r;
	if (t == current)
		return -EINVAL;
	now = cpu_clock_read(p, t, cpu_clock_which(id));
	if (absolute)
		end = ns;
	else if (__builtin_add_overflow(now, ns, &end))
		end = INT64_MAX;
	while (now < end) {
		r = sleep_once(deadline_after(MAX(end - now, NSEC_PER_MSEC)), true);
		if (r == -ERESTARTSYS) {
			if (!absolute && urem != NULL &&
			    timespec_put_user(urem, end - now) != 0)
				return -EFAULT;
			return absolute ? -ERESTARTNOHAND : -EINTR;
		}
		if (cpu_clock_find(id, &p, &t) != 0)	/* it ended meanwhile */
			return 0;
		now = cpu_clock_read(p, t, cpu_clock_which(id));
	}
	return 0;
}

SYSCALL(nanosleep, const struct ktimespec __user *uts, struct ktimespec __user *urem)
{
	uint64_t ns;
	int r = timespec_get_user(uts, &ns);

	return r != 0 ? r : sleep_relative(ns, urem);
}

#define TIMER_ABSTIME_FLAG 1

SYSCALL(clock_nanosleep, int id, int flags, const struct ktimespec __user *uts,
	struct ktimespec __user *urem)
{
	bool absolute = (flags & TIMER_ABSTIME_FLAG) != 0;
	struct process *p;
	struct task *t;
	uint64_t ns;
	int r;

	switch (id) {
	case KCLOCK_REALTIME:
	case KCLOCK_MONOTONIC:
	case KCLOCK_BOOTTIME:
	case KCLOCK_TAI:
		break;
	case KCLOCK_MONOTONIC_RAW:
	case KCLOCK_REALTIME_COARSE:
	case KCLOCK_MONOTONIC_COARSE:
	case KCLOCK_REALTIME_ALARM:
	case KCLOCK_BOOTTIME_ALARM:
		return -EOPNOTSUPP;
	case KCLOCK_THREAD_CPUTIME:
		return -EOPNOTSUPP;
	default:
		if (cpu_clock_find(id, &p, &t) != 0)
			return -EINVAL;
		break;
	}
	r = timespec_get_user(uts, &ns);
	if (r != 0)
		return r;
	if (id < 0 || id == KCLOCK_PROCESS_CPUTIME)
		return sleep_cpu(id, ns, absolute, urem);
	if (!absolute)
		return sleep_relative(ns, urem);
	if (id == KCLOCK_REALTIME || id == KCLOCK_TAI)
		return sleep_until_realtime(ns);
	return sleep_until_monotonic(ns);
}
