/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait4 and waitid. Both fill in a struct wait_query and share one scan over the children of
 * the calling process: the first child, in the order of birth, that has something to report
 * of the kinds asked for, is reported and (unless WNOWAIT) what it had is used up; a zombie is
 * gone then, its times added to the caller's.
 */
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/mm/uaccess.h"

#define WNOHANG		0x00000001
#define WUNTRACED	0x00000002
#define WSTOPPED	WUNTRACED
#define WEXITED		0x00000004
#define WCONTINUED	0x00000008
#define WNOWAIT		0x01000000
#define WNOTHREAD_	0x20000000
#define WALL_		0x40000000
#define WCLONE_		0x80000000u

enum { P_ALL_, P_PID_, P_PGID_, P_PIDFD_ };

struct wait_query {
	int which;			/* P_* */
	int id;				/* pid or pgid */
	struct process *proc;		/* P_PIDFD: reference held by the caller */
	unsigned options;
	/* the answer */
	int pid;
	uint32_t uid;
	int status;			/* as wait4 has it */
	int code, code_status;		/* as siginfo has it */
	struct krusage usage;
};

static bool query_matches(const struct wait_query *q, const struct process *c)
{
	switch (q->which) {
	case P_PID_:
		if (c->pid != q->id)
			return false;
		break;
	case P_PGID_:
		if (c->pgid != q->id)
			return false;
		break;
	case P_PIDFD_:
		if (c != q->proc)
			return false;
		break;
	default:
		break;
	}
	if ((q->options & WNOTHREAD_) != 0 && c->creator_tid != current->tid)
		return false;
	/* "Clone" children are those that do not send SIGCHLD. */
	if ((q->options & WALL_) == 0 &&
	    (c->exit_signal != KSIGCHLD) != ((q->options & WCLONE_) != 0))
		return false;
	return true;
}

static void answer(struct wait_query *q, const struct process *c, int status, int code,
		   int code_status)
{
	q->pid = c->pid;
	q->uid = c->cred->uid;
	q->status = status;
	q->code = code;
	q->code_status = code_status;
	rusage_of_zombie(c, &q->usage);
}

/* Adds a waited-for child's times to those of the caller's children. */
static void add_child_times(struct process *p, const struct process *c)
{
	p->cutime_ns += c->utime_ns + c->cutime_ns;
	p->cstime_ns += c->stime_ns + c->cstime_ns;
	p->cminflt += c->minflt + c->cminflt;
	p->cmajflt += c->majflt + c->cmajflt;
	p->cnvcsw += c->nvcsw + c->cnvcsw;
	p->cnivcsw += c->nivcsw + c->cnivcsw;
	p->cmaxrss = MAX(p->cmaxrss, MAX(c->maxrss, c->cmaxrss));
}

/* Takes what child c has to report; false if nothing. */
static bool take_from(struct wait_query *q, struct process *c)
{
	bool keep = (q->options & WNOWAIT) != 0;

	if (c->zombie) {
		int st = c->exit_code;

		if ((q->options & WEXITED) == 0)
			return false;
		if ((st & 0x7f) == 0)
			answer(q, c, st, KCLD_EXITED, (st >> 8) & 0xff);
		else
			answer(q, c, st, (st & 0x80) != 0 ? KCLD_DUMPED : KCLD_KILLED, st & 0x7f);
		if (!keep) {
			add_child_times(current->proc, c);
			process_unlink(c);
		}
		return true;
	}
	if (c->stopped && !c->stop_reported && (q->options & WSTOPPED) != 0) {
		answer(q, c, c->stop_sig << 8 | 0x7f, KCLD_STOPPED, c->stop_sig);
		c->stop_reported = !keep;
		return true;
	}
	if (c->continued && (q->options & WCONTINUED) != 0) {
		answer(q, c, 0xffff, KCLD_CONTINUED, KSIGCONT);
		c->continued = keep;
		return true;
	}
	return false;
}

/* 1: answered. 0: nothing now. -ECHILD: nothing ever. */
static int scan(struct wait_query *q)
{
	struct process *c;
	bool any = false;

	TAILQ_FOREACH(c, &current->proc->children, sibling) {
		if (!query_matches(q, c))
			continue;
		any = true;
		if (take_from(q, c))
			return 1;
	}
	return any ? 0 : -ECHILD;
}

/* 1: answered. 0: nothing, and WNOHANG. */
static int do_wait(struct wait_query *q)
{
	int found = 0, r;

	r = WAIT_EVENT(&current->proc->wait_child,
		       (found = scan(q)) != 0 || (q->options & WNOHANG) != 0);
	return r != 0 ? r : found;
}

SYSCALL(wait4, int pid, int __user *ustatus, int options, struct krusage __user *uusage)
{
	struct wait_query q = {.options = (unsigned)options | WEXITED};
	int r;

	if (((unsigned)options & ~(WNOHANG | WUNTRACED | WCONTINUED | WNOTHREAD_ | WALL_ |
				   WCLONE_)) != 0)
		return -EINVAL;
	if (pid == INT32_MIN)
		return -ESRCH;
	if (pid > 0) {
		q.which = P_PID_;
		q.id = pid;
	} else if (pid < -1) {
		q.which = P_PGID_;
		q.id = -pid;
	} else if (pid == 0) {
		q.which = P_PGID_;
		q.id = current->proc->pgid;
	}
	r = do_wait(&q);
	if (r <= 0)
		return r;
	if (ustatus != NULL && PUT_USER(q.status, ustatus) != 0)
		return -EFAULT;
	if (uusage != NULL && PUT_USER(q.usage, uusage) != 0)
		return -EFAULT;
	return q.pid;
}

/* The fields of siginfo_t that waitid writes; the rest of it is left alone, as on Linux. */
static int put_siginfo(uint8_t __user *info, const struct wait_query *q, bool found)
{
	int32_t head[3] = {found ? KSIGCHLD : 0, 0, found ? q->code : 0};
	int32_t tail[3] = {q->pid, (int32_t)q->uid, q->code_status};

	if (copy_to_user(info, head, sizeof(head)) != 0 ||
	    copy_to_user(info + 16, tail, sizeof(tail)) != 0)
		return -EFAULT;
	return 0;
}

SYSCALL(waitid, int which, int id, uint8_t __user *info, int options,
	struct krusage __user *uusage)
{
	struct wait_query q = {.which = which, .id = id, .options = (unsigned)options};
	bool nonblock = false;
	int r;

	if (((unsigned)options & ~(WNOHANG | WNOWAIT | WEXITED | WSTOPPED | WCONTINUED |
				   WNOTHREAD_ | WALL_ | WCLONE_)) != 0 ||
	    (options & (WEXITED | WSTOPPED | WCONTINUED)) == 0)
		return -EINVAL;
	switch (which) {
	case P_ALL_:
		break;
	case P_PID_:
		if (id <= 0)
			return -EINVAL;
		break;
	case P_PGID_:
		if (id < 0)
			return -EINVAL;
		if (id == 0)
			q.id = current->proc->pgid;
		break;
	case P_PIDFD_:
		if (id < 0)
			return -EINVAL;
		q.proc = pidfd_process(id, &nonblock);
		if (IS_ERR(q.proc))
			return PTR_ERR(q.proc);
		if (nonblock && (q.options & WNOHANG) == 0)
			q.options |= WNOHANG;
		else
			nonblock = false;
		break;
	default:
		return -EINVAL;
	}
	r = do_wait(&q);
	if (q.proc != NULL)
		process_put(q.proc);
	if (r < 0)
		return r;
	if (r == 0 && nonblock)
		return -EAGAIN;
	if (r > 0 && uusage != NULL && PUT_USER(q.usage, uusage) != 0)
		return -EFAULT;
	if (info != NULL)
		return put_siginfo(info, &q, r > 0);
	return 0;
}
