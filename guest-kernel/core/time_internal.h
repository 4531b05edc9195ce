/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of time: clock ids and CPU clocks. */
#ifndef CORE_TIME_INTERNAL_H
#define CORE_TIME_INTERNAL_H

#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"

#define KCLOCK_REALTIME		0
#define KCLOCK_MONOTONIC	1
#define KCLOCK_PROCESS_CPUTIME	2
#define KCLOCK_THREAD_CPUTIME	3
#define KCLOCK_MONOTONIC_RAW	4
#define KCLOCK_REALTIME_COARSE	5
#define KCLOCK_MONOTONIC_COARSE	6
#define KCLOCK_BOOTTIME		7
#define KCLOCK_REALTIME_ALARM	8
#define KCLOCK_BOOTTIME_ALARM	9
#define KCLOCK_TAI		11

#define CPUCLOCK_PROF	0
#define CPUCLOCK_VIRT	1
#define CPUCLOCK_SCHED	2

struct ktimeval {
	int64_t sec, usec;
};
struct kitimerspec {
	struct ktimespec interval, value;
};

/* Whose CPU clock id is: a process, or also one of current's threads. -EINVAL: none. Borrowed. */
int cpu_clock_find(int id, struct process **ret_p, struct task **ret_t);
int cpu_clock_which(int id);
uint64_t cpu_clock_read(struct process *p, struct task *t, int which);
uint64_t process_cpu_ns(const struct process *p, int which);
int clock_read_id(int id, uint64_t *ret);	/* 0 or -EINVAL */

static inline struct ktimespec ns_to_timespec(uint64_t ns)
{
	return (struct ktimespec){
		.sec = (int64_t)(ns / NSEC_PER_SEC),
		.nsec = (int64_t)(ns % NSEC_PER_SEC),
	};
}
int timespec_to_ns(const struct ktimespec *ts, uint64_t *ret_ns);	/* 0 or -EINVAL */
/* struct itimerspec from the program, in ns; -EFAULT, -EINVAL. */
int itimerspec_get_user(const struct kitimerspec __user *u, uint64_t *ret_interval,
			uint64_t *ret_value);
int itimerspec_put_user(struct kitimerspec __user *u, uint64_t interval, uint64_t value);

/* How many whole intervals fit so that *deadline + n * interval > now; adds them. */
static inline uint64_t forward(uint64_t *deadline, uint64_t interval, uint64_t now)
{
	uint64_t n;

	if (*deadline > now || interval == 0)
		return 0;
	n = (now - *deadline) / interval + 1;
	*deadline += n * interval;
	return n;
}

#endif
