/* SPDX-License-Identifier: Apache-2.0 */
/* Resource limits, and what was used: getrusage, times. */
#include <linux/capability.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/uaccess.h"

#define NR_OPEN		1048576u	/* the most RLIMIT_NOFILE may say */
#define NS_PER_TICK	(NSEC_PER_SEC / 100)
#define RUSAGE_SELF_	0
#define RUSAGE_CHILDREN_ (-1)
#define RUSAGE_THREAD_	1

static int check_new_limit(const struct krlimit *old, unsigned which, struct krlimit *new)
{
	if (new->cur > new->max)
		return -EINVAL;
	if (which == RLIM_NOFILE && new->max > NR_OPEN)
		return -EPERM;
	if (new->max > old->max && !capable(CAP_SYS_RESOURCE))
		return -EPERM;
	if (which == RLIM_CPU && new->cur == 0)
		new->cur = 1;
	return 0;
}

static int prlimit(struct process *p, unsigned which, struct krlimit *new, struct krlimit *old)
{
	struct krlimit *r;
	int err;

	if (which >= KRLIM_NLIMITS)
		return -EINVAL;
	r = &p->rlim[which];
	if (old != NULL)
		*old = *r;
	if (new != NULL) {
		err = check_new_limit(r, which, new);
		if (err != 0)
			return err;
		*r = *new;
		if (which == RLIM_CPU)
			sched_arm_timer();
	}
	return 0;
}

SYSCALL(getrlimit, unsigned which, struct krlimit __user *ulim)
{
	struct krlimit old;
	int r = prlimit(current->proc, which, NULL, &old);

	return r != 0 ? r : PUT_USER(old, ulim);
}

SYSCALL(setrlimit, unsigned which, const struct krlimit __user *ulim)
{
	struct krlimit new;

	if (GET_USER(new, ulim) != 0)
		return -EFAULT;
	return prlimit(current->proc, which, &new, NULL);
}

static bool may_prlimit(const struct process *p)
{
	const struct cred *c = current->proc->cred, *o = p->cred;

	if (p == current->proc || capable(CAP_SYS_RESOURCE))
		return true;
	return c->uid == o->euid && c->uid == o->suid && c->uid == o->uid &&
	       c->gid == o->egid && c->gid == o->sgid && c->gid == o->gid;
}

SYSCALL(prlimit64, int pid, unsigned which, const struct krlimit __user *unew,
	struct krlimit __user *uold)
{
	struct krlimit new, old;
	struct task *t;
	struct process *p;
	int r;

	if (unew != NULL && GET_USER(new, unew) != 0)
		return -EFAULT;
	t = pid == 0 ? current : task_find(pid);
	p = t != NULL ? t->proc : process_find(pid);
	if (p == NULL)
		return -ESRCH;
	if (!may_prlimit(p))
		return -EPERM;
	r = prlimit(p, which, unew != NULL ? &new : NULL, &old);
	if (r == 0 && uold != NULL)
		r = PUT_USER(old, uold);
	return r;
}

/* ---- usage ---- */

static void put_times(struct krusage *ret, uint64_t utime, uint64_t stime)
{
	ret->utime_sec = (int64_t)(utime / NSEC_PER_SEC);
	ret->utime_usec = (int64_t)(utime % NSEC_PER_SEC / NSEC_PER_USEC);
	ret->stime_sec = (int64_t)(stime / NSEC_PER_SEC);
	ret->stime_usec = (int64_t)(stime % NSEC_PER_SEC / NSEC_PER_USEC);
}

static uint64_t process_maxrss(const struct process *p)
{
	return p->mm != NULL ? MAX(p->maxrss, p->mm->rss_peak) : p->maxrss;
}

static void usage_self(const struct process *p, struct krusage *ret)
{
	uint64_t u, s, minflt = p->minflt, majflt = p->majflt;
	uint64_t nv = p->nvcsw, niv = p->nivcsw;
	struct task *t;

	memset(ret, 0, sizeof(*ret));
	process_times(p, &u, &s);
	TAILQ_FOREACH(t, &p->threads, thread_link) {
		minflt += t->minflt;
		majflt += t->majflt;
		nv += t->nvcsw;
		niv += t->nivcsw;
	}
	put_times(ret, u, s);
	ret->minflt = (int64_t)minflt;
	ret->majflt = (int64_t)majflt;
	ret->nvcsw = (int64_t)nv;
	ret->nivcsw = (int64_t)niv;
	ret->maxrss = (int64_t)process_maxrss(p) * 4;
}

static void usage_children(const struct process *p, struct krusage *ret)
{
	memset(ret, 0, sizeof(*ret));
	put_times(ret, p->cutime_ns, p->cstime_ns);
	ret->minflt = (int64_t)p->cminflt;
	ret->majflt = (int64_t)p->cmajflt;
	ret->nvcsw = (int64_t)p->cnvcsw;
	ret->nivcsw = (int64_t)p->cnivcsw;
	ret->maxrss = (int64_t)p->cmaxrss * 4;
}

static void usage_thread(const struct task *t, struct krusage *ret)
{
	uint64_t u, s;

	memset(ret, 0, sizeof(*ret));
	task_times(t, &u, &s);
	put_times(ret, u, s);
	ret->minflt = (int64_t)t->minflt;
	ret->majflt = (int64_t)t->majflt;
	ret->nvcsw = (int64_t)t->nvcsw;
	ret->nivcsw = (int64_t)t->nivcsw;
	ret->maxrss = (int64_t)process_maxrss(t->proc) * 4;
}

void rusage_of_zombie(const struct process *p, struct krusage *ret)
{
	struct krusage c;
	uint64_t u, s;

	usage_self(p, ret);
	usage_children(p, &c);
	process_times(p, &u, &s);
	put_times(ret, u + p->cutime_ns, s + p->cstime_ns);
	ret->minflt += c.minflt;
	ret->majflt += c.majflt;
	ret->nvcsw += c.nvcsw;
	ret->nivcsw += c.nivcsw;
	ret->maxrss = MAX(ret->maxrss, c.maxrss);
}

SYSCALL(getrusage, int who, struct krusage __user *uusage)
{
	struct krusage u;

	switch (who) {
	case RUSAGE_SELF_:
		usage_self(current->proc, &u);
		break;
	case RUSAGE_CHILDREN_:
		usage_children(current->proc, &u);
		break;
	case RUSAGE_THREAD_:
		usage_thread(current, &u);
		break;
	default:
		return -EINVAL;
	}
	return PUT_USER(u, uusage);
}

SYSCALL(times, int64_t __user *utms)
{
	const struct process *p = current->proc;
	int64_t tms[4];
	uint64_t u, s;

	if (utms != NULL) {
		process_times(p, &u, &s);
		tms[0] = (int64_t)(u / NS_PER_TICK);
		tms[1] = (int64_t)(s / NS_PER_TICK);
		tms[2] = (int64_t)(p->cutime_ns / NS_PER_TICK);
		tms[3] = (int64_t)(p->cstime_ns / NS_PER_TICK);
		if (copy_to_user(utms, tms, sizeof(tms)) != 0)
			return -EFAULT;
	}
	return (long)(clock_monotonic_ns() / NS_PER_TICK);
}
