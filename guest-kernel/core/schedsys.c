/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls about scheduling. Nice values and SCHED_IDLE change a task's share; the
 * real-time policies are taken from those who may have them and reported back, but run as
 * ordinary tasks: with one vCPU and a host that schedules it, they could promise nothing.
 */
#include <linux/capability.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/mm/uaccess.h"

#define RESET_ON_FORK	0x40000000
#define RT_PRIO_MAX	99

static struct task *task_arg(int pid)
{
	return pid == 0 ? current : task_find(pid);
}

static bool same_owner(const struct process *p)
{
	uint32_t euid = current->proc->cred->euid;

	return euid == p->cred->euid || euid == p->cred->uid;
}

static bool is_rt(int policy)
{
	return policy == SCHED_FIFO_ || policy == SCHED_RR_;
}

static bool may_nice(const struct task *t, int nice)
{
	return capable(CAP_SYS_NICE) ||
	       (uint64_t)(20 - nice) <= t->proc->rlim[RLIM_NICE].cur;
}

SYSCALL(sched_yield, void)
{
	sched_yield_now();
	return 0;
}

/* ---- policies ---- */

struct sched_request {
	int policy;		/* -1: as it is */
	int prio, nice;
	bool reset_on_fork, keep_nice;
};

static int sched_check(const struct task *t, const struct sched_request *q, int policy)
{
	if (policy == SCHED_DEADLINE_)
		return -EPERM;
	if (policy != SCHED_OTHER_ && policy != SCHED_BATCH_ && policy != SCHED_IDLE_ &&
	    !is_rt(policy))
		return -EINVAL;
	if (q->prio < 0 || q->prio > RT_PRIO_MAX || (q->prio != 0) != is_rt(policy))
		return -EINVAL;
	if (capable(CAP_SYS_NICE))
		return 0;
	if (!is_rt(policy) && !q->keep_nice && q->nice < t->nice && !may_nice(t, q->nice))
		return -EPERM;
	if (is_rt(policy)) {
		uint64_t limit = t->proc->rlim[RLIM_RTPRIO].cur;

		if (policy != t->policy && limit == 0)
			return -EPERM;
		if (q->prio > t->rt_priority && (uint64_t)q->prio > limit)
			return -EPERM;
	}
	if (t->policy == SCHED_IDLE_ && policy != SCHED_IDLE_ && !may_nice(t, t->nice))
		return -EPERM;
	if (!same_owner(t->proc) || (t->reset_on_fork && !q->reset_on_fork))
		return -EPERM;
	return 0;
}

static long sched_set(struct task *t, const struct sched_request *q)
{
	int policy = q->policy < 0 ? t->policy : q->policy;
	int r = sched_check(t, q, policy);

	if (r != 0)
		return r;
	sched_set_nice(t, q->keep_nice || is_rt(policy) ? t->nice : q->nice, policy);
	t->rt_priority = q->prio;
	t->reset_on_fork = q->reset_on_fork;
	return 0;
}

SYSCALL(sched_setscheduler, int pid, int policy, const int __user *uprio)
{
	struct sched_request q = {.keep_nice = true};
	struct task *t;

	if (uprio == NULL || pid < 0 || policy < 0)
		return -EINVAL;
	if (GET_USER(q.prio, uprio) != 0)
		return -EFAULT;
	t = task_arg(pid);
	if (t == NULL)
		return -ESRCH;
	q.reset_on_fork = (policy & RESET_ON_FORK) != 0;
	q.policy = policy & ~RESET_ON_FORK;
	return sched_set(t, &q);
}

SYSCALL(sched_setparam, int pid, const int __user *uprio)
{
	struct sched_request q = {.policy = -1, .keep_nice = true};
	struct task *t;

	if (uprio == NULL || pid < 0)
		return -EINVAL;
	if (GET_USER(q.prio, uprio) != 0)
		return -EFAULT;
	t = task_arg(pid);
	if (t == NULL)
		return -ESRCH;
	q.reset_on_fork = t->reset_on_fork;
	return sched_set(t, &q);
}

SYSCALL(sched_getscheduler, int pid)
{
	struct task *t;

	if (pid < 0)
		return -EINVAL;
	t = task_arg(pid);
	if (t == NULL)
		return -ESRCH;
	return t->policy | (t->reset_on_fork ? RESET_ON_FORK : 0);
}

SYSCALL(sched_getparam, int pid, int __user *uprio)
{
	struct task *t;

	if (uprio == NULL || pid < 0)
		return -EINVAL;
	t = task_arg(pid);
	if (t == NULL)
		return -ESRCH;
	return PUT_USER(t->rt_priority, uprio);
}

/* -EINVAL for a policy that does not exist, else whether it has priorities. */
static int policy_has_prio(int policy)
{
	switch (policy) {
	case SCHED_FIFO_:
	case SCHED_RR_:
		return 1;
	case SCHED_OTHER_:
	case SCHED_BATCH_:
	case SCHED_IDLE_:
	case SCHED_DEADLINE_:
		return 0;
	default:
		return -EINVAL;
	}
}

SYSCALL(sched_get_priority_max, int policy)
{
	int r = policy_has_prio(policy);

	return r > 0 ? RT_PRIO_MAX : r;
}

SYSCALL(sched_get_priority_min, int policy)
{
	return policy_has_prio(policy);
}

SYSCALL(sched_rr_get_interval, int pid, struct ktimespec __user *uts)
{
	uint64_t ns = 4 * NSEC_PER_MSEC;
	struct task *t;

	if (pid < 0)
		return -EINVAL;
	t = task_arg(pid);
	if (t == NULL)
		return -ESRCH;
	if (t->policy == SCHED_RR_)
		ns = 100 * NSEC_PER_MSEC;
	else if (t->policy == SCHED_FIFO_)
		ns = 0;
	return timespec_put_user(uts, ns);
}

struct sched_attr_user {	/* struct sched_attr of <linux/sched/types.h> */
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
	uint32_t util_min, util_max;
};
#define ATTR_SIZE_VER0	48u
#define FLAG_RESET_ON_FORK 0x01u
#define FLAG_KEEP_POLICY 0x08u
#define FLAG_KEEP_PARAMS 0x10u
#define FLAG_UTIL_CLAMP	0x60u
#define FLAG_ALL	0x7fu

static int attr_get(struct sched_attr_user *a, void __user *uattr)
{
	static const uint32_t ours = sizeof(*a);
	uint32_t size;
	uint8_t byte;

	if (GET_USER(size, (uint32_t __user *)uattr) != 0)
		return -EFAULT;
	if (size == 0)
		size = ATTR_SIZE_VER0;
	if (size < ATTR_SIZE_VER0 || size > PAGE_SIZE)
		goto too_big;
	memset(a, 0, sizeof(*a));
	if (copy_from_user(a, uattr, MIN((size_t)size, sizeof(*a))) != 0)
		return -EFAULT;
	for (size_t i = sizeof(*a); i < size; i++) {
		if (GET_USER(byte, (uint8_t __user *)uattr + i) != 0)
			return -EFAULT;
		if (byte != 0)
			goto too_big;
	}
	if ((a->flags & FLAG_UTIL_CLAMP) != 0 && size < sizeof(*a))
		return -EINVAL;
	a->size = size;
	a->nice = MAX(-20, MIN(a->nice, 19));
	return 0;
too_big:
	(void)PUT_USER(ours, (uint32_t __user *)uattr);
	return -E2BIG;
}

SYSCALL(sched_setattr, int pid, void __user *uattr, unsigned flags)
{
	struct sched_request q;
	struct sched_attr_user a;
	struct task *t;
	int r;

	if (uattr == NULL || pid < 0 || flags != 0)
		return -EINVAL;
	r = attr_get(&a, uattr);
	if (r != 0)
		return r;
	if ((int32_t)a.policy < 0 || (a.flags & ~(uint64_t)FLAG_ALL) != 0)
		return -EINVAL;
	if ((a.flags & FLAG_UTIL_CLAMP) != 0)
		return syscall_partial("sched_setattr", "utilization clamping", -EOPNOTSUPP);
	t = task_arg(pid);
	if (t == NULL)
		return -ESRCH;
	q = (struct sched_request){
		.policy = (a.flags & FLAG_KEEP_POLICY) != 0 ? -1 : (int)a.policy,
		.prio = a.priority > RT_PRIO_MAX ? -1 : (int)a.priority,
		.nice = a.nice,
		.reset_on_fork = (a.flags & FLAG_RESET_ON_FORK) != 0,
	};
	if ((a.flags & FLAG_KEEP_PARAMS) != 0) {
		q.prio = t->rt_priority;
		q.keep_nice = true;
	}
	return sched_set(t, &q);
}

SYSCALL(sched_getattr, int pid, void __user *uattr, unsigned size, unsigned flags)
{
	struct sched_attr_user a = {.size = sizeof(a)};
	struct task *t;

	if (uattr == NULL || pid < 0 || size > PAGE_SIZE || size < ATTR_SIZE_VER0 || flags != 0)
		return -EINVAL;
	t = task_arg(pid);
	if (t == NULL)
		return -ESRCH;
	a.size = (uint32_t)MIN((size_t)size, sizeof(a));
	a.policy = (uint32_t)t->policy;
	a.flags = t->reset_on_fork ? FLAG_RESET_ON_FORK : 0;
	if (is_rt(t->policy))
		a.priority = (uint32_t)t->rt_priority;
	else
		a.nice = t->nice;
	a.util_max = 1024;
	return copy_to_user(uattr, &a, a.size);
}

/* ---- nice ---- */

enum { PRIO_PROCESS_, PRIO_PGRP_, PRIO_USER_ };

/* Calls fn for each task that (which, who) means; their number. */
static unsigned for_each_prio(int which, int who, void (*fn)(struct task *t, void *arg),
			      void *arg)
{
	uint32_t uid = who == 0 ? current->proc->cred->uid : (uint32_t)who;
	int pgid = who == 0 ? current->proc->pgid : who;
	struct process *p;
	struct task *t;
	unsigned n = 0;

	if (which == PRIO_PROCESS_) {
		t = task_arg(who);
		if (t == NULL)
			return 0;
		fn(t, arg);
		return 1;
	}
	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (which == PRIO_PGRP_ ? p->pgid != pgid : p->cred->uid != uid)
			continue;
		TAILQ_FOREACH(t, &p->threads, thread_link) {
			fn(t, arg);
			n++;
		}
	}
	return n;
}

struct set_prio {
	int nice, error;
};

static void set_one_prio(struct task *t, void *arg)
{
	const struct cred *c = current->proc->cred, *o = t->proc->cred;
	struct set_prio *s = arg;

	if (o->uid != c->euid && o->euid != c->euid && !capable(CAP_SYS_NICE)) {
		s->error = -EPERM;
		return;
	}
	if (s->nice < t->nice && !may_nice(t, s->nice)) {
		s->error = -EACCES;
		return;
	}
	sched_set_nice(t, s->nice, t->policy);
	if (s->error == -ESRCH)
		s->error = 0;
}

SYSCALL(setpriority, int which, int who, int nice)
{
	struct set_prio s = {.nice = MAX(-20, MIN(nice, 19)), .error = -ESRCH};

	if (which < PRIO_PROCESS_ || which > PRIO_USER_)
		return -EINVAL;
	for_each_prio(which, who, set_one_prio, &s);
	return s.error;
}

static void get_one_prio(struct task *t, void *arg)
{
	int *best = arg;

	*best = MAX(*best, 20 - t->nice);
}

SYSCALL(getpriority, int which, int who)
{
	int best = 0;

	if (which < PRIO_PROCESS_ || which > PRIO_USER_)
		return -EINVAL;
	return for_each_prio(which, who, get_one_prio, &best) != 0 ? best : -ESRCH;
}

/* ---- I/O priority: kept and shown; there is no disk whose queue it could order ---- */

#define IOPRIO_LEVELS	8u

static int ioprio_check(unsigned ioprio)
{
	unsigned class = ioprio >> 13, level = ioprio & 0x1fff;

	switch (class) {
	case 0:			/* none */
		return level == 0 ? 0 : -EINVAL;
	case 1:			/* real-time */
		if (!capable(CAP_SYS_ADMIN) && !capable(CAP_SYS_NICE))
			return -EPERM;
		return level < IOPRIO_LEVELS ? 0 : -EINVAL;
	case 2:			/* best effort */
		return level < IOPRIO_LEVELS ? 0 : -EINVAL;
	case 3:			/* idle */
		return 0;
	default:
		return -EINVAL;
	}
}

struct ioprio_request {
	unsigned ioprio;
	int error;
};

static void set_one_ioprio(struct task *t, void *arg)
{
	const struct cred *c = current->proc->cred, *o = t->proc->cred;
	struct ioprio_request *q = arg;

	if (o->uid != c->euid && o->uid != c->uid && !capable(CAP_SYS_NICE)) {
		q->error = -EPERM;
		return;
	}
	t->ioprio = (uint16_t)q->ioprio;
	if (q->error == -ESRCH)
		q->error = 0;
}

/* which is 1, 2, 3 here where setpriority(2) has 0, 1, 2. */
SYSCALL(ioprio_set, int which, int who, int ioprio)
{
	struct ioprio_request q = {.ioprio = (unsigned)ioprio, .error = -ESRCH};
	int r = ioprio < 0 || ioprio > UINT16_MAX ? -EINVAL : ioprio_check(q.ioprio);

	if (r != 0)
		return r;
	if (which < 1 || which > 3)
		return -EINVAL;
	for_each_prio(which - 1, who, set_one_ioprio, &q);
	return q.error;
}

static void get_one_ioprio(struct task *t, void *arg)
{
	unsigned *best = arg;

	*best = MIN(*best, (unsigned)t->ioprio);
}

SYSCALL(ioprio_get, int which, int who)
{
	unsigned best = UINT32_MAX;

	if (which < 1 || which > 3)
		return -EINVAL;
	return for_each_prio(which - 1, who, get_one_ioprio, &best) != 0 ? (long)best : -ESRCH;
}

/* ---- the one CPU ---- */

SYSCALL(sched_setaffinity, int pid, unsigned len, const uint8_t __user *umask)
{
	uint8_t first = 0;
	struct task *t;

	if (len > 0 && GET_USER(first, umask) != 0)
		return -EFAULT;
	t = task_arg(pid);
	if (t == NULL)
		return -ESRCH;
	if (!same_owner(t->proc) && !capable(CAP_SYS_NICE))
		return -EPERM;
	return (first & 1) != 0 ? 0 : -EINVAL;
}

SYSCALL(sched_getaffinity, int pid, unsigned len, void __user *umask)
{
	static const uint64_t mask = 1;

	if (len == 0 || len % sizeof(mask) != 0)
		return -EINVAL;
	if (task_arg(pid) == NULL)
		return -ESRCH;
	if (PUT_USER(mask, umask) != 0)
		return -EFAULT;
	return sizeof(mask);
}

SYSCALL(getcpu, uint32_t __user *ucpu, uint32_t __user *unode)
{
	static const uint32_t zero;

	if (ucpu != NULL && PUT_USER(zero, ucpu) != 0)
		return -EFAULT;
	if (unode != NULL && PUT_USER(zero, unode) != 0)
		return -EFAULT;
	return 0;
}
