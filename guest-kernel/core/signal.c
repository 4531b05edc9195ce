/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of signals: sending, choosing a thread, taking, default actions, stops.
 *
 * A pending signal is a bit in a task's or its process's set, usually with a queue entry that
 * carries the siginfo. Standard signals collapse into one; real-time signals queue. A signal
 * that is ignored and not blocked is dropped when it is sent.
 *
 * task->sig_check says "look at signals on the way out". It is set by senders and cleared only
 * by signal_recalc(); sleeping calls that return -ERESTART* rely on it staying set until
 * signal_deliver() has turned that value into -EINTR or a restart. So signal_pending() is that
 * flag, not a look at the sets: another thread may have taken the signal meanwhile, and then
 * the call is restarted.
 *
 * A fatal signal for which a thread is ready ends the whole process at once (group_exit): each
 * thread leaves when it is on its way to the program. A stop signal sets process->stopping;
 * each thread stops on its way out, and the last one makes it `stopped` and tells the parent.
 * New threads start with sig_check set and so join a stop.
 *
 * PID 1 does not get signals that it has no handler for, not even SIGKILL; only its own faults
 * end it.
 */
#include "guest-kernel/core/signal.h"

#include <linux/capability.h>

#include "guest-kernel/core/signal_internal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/uaccess.h"

#define SIG_DUMP_MASK	(SIG_SYNC_MASK | SIG_BIT(KSIGQUIT) | SIG_BIT(KSIGABRT) | \
			 SIG_BIT(KSIGXCPU) | SIG_BIT(KSIGXFSZ))
struct waitq signalfd_waitq = { TAILQ_HEAD_INITIALIZER(signalfd_waitq.list) };

/* ---- actions ---- */

bool signal_is_ignored(struct process *p, int sig)
{
	return p->sighand->action[sig - 1].handler == KSIG_IGN;
}

bool signal_is_blocked(const struct task *t, int sig)
{
	return (t->sig_mask & SIG_BIT(sig)) != 0;
}

static bool is_init(const struct process *p)
{
	return p->pid == 1;
}

/* Would the process do nothing with it? */
static bool action_ignores(struct process *p, int sig)
{
	uint64_t handler = p->sighand->action[sig - 1].handler;

	if (handler == KSIG_IGN)
		return true;
	if (handler != KSIG_DFL)
		return false;
	return is_init(p) || (SIG_BIT(sig) & SIG_IGNORE_MASK) != 0;
}

/* ---- waking ---- */

/* sched_wake() knows sleepers; a stopped thread is made one first. t may be current: asleep,
 * with the scheduler idling on its stack while a timer sends the signal. */
static void wake_any(struct task *t)
{
	if (t->state == TASK_STOPPED)
		t->state = TASK_UNINTERRUPTIBLE;
	if (t->state == TASK_SLEEPING || t->state == TASK_UNINTERRUPTIBLE)
		sched_wake(t);
}

static void wake_for_signal(struct task *t)
{
	t->sig_check = true;
	if (t->state == TASK_SLEEPING)
		sched_wake(t);
}

void signal_zap_task(struct task *t)
{
	t->must_exit = true;
	t->sig_check = true;
	wake_any(t);
}

void signal_zap_process(struct process *p, int status)
{
	struct task *t;

	if (p->zombie)
		return;
	if (!p->group_exit) {
		p->group_exit = true;
		p->exit_code = status;
	}
	p->stopping = p->stopped = false;
	TAILQ_FOREACH(t, &p->threads, thread_link) {
		if (t->state == TASK_DEAD)
			continue;
		t->sig_check = true;
		wake_any(t);
	}
}

bool signal_pending(const struct task *t)
{
	return t->sig_check;
}

bool signal_fatal_pending(const struct task *t)
{
	return t->must_exit || t->proc->group_exit;
}

void signal_recalc(struct task *t)
{
	struct process *p = t->proc;
	uint64_t ready = (t->pending.set | p->pending.set) & ~t->sig_mask;

	t->sig_check = ready != 0 || t->must_exit || p->group_exit || p->stopping ||
		       p->stopped;
}

void signal_set_mask(uint64_t mask)
{
	struct process *p = current->proc;
	uint64_t newly;
	struct task *t;

	mask &= ~SIG_KERNEL_ONLY;
	/* Shared signals that this thread was to take and now blocks go to a sibling. */
	newly = mask & ~current->sig_mask & p->pending.set;
	current->sig_mask = mask;
	if (newly != 0 && p->nthreads > 1) {
		TAILQ_FOREACH(t, &p->threads, thread_link) {
			if (t == current || t->state == TASK_DEAD ||
			    (newly & ~t->sig_mask) == 0)
				continue;
			wake_for_signal(t);
			newly &= t->sig_mask;
			if (newly == 0)
				break;
		}
	}
	signal_recalc(current);
}

/* ---- stops ---- */

static void notify_parent_cldstop(struct process *p, int code)
{
	struct process *parent = p->parent;
	const struct ksigaction *sa;
	struct ksiginfo info = {
		.signo = KSIGCHLD,
		.code = code,
		.pid = p->pid,
		.uid = p->cred->uid,
		.status = code == KCLD_STOPPED ? p->stop_sig : KSIGCONT,
		.utime = p->utime_ns / 10000000,
		.stime = p->stime_ns / 10000000,
	};
	struct task *t;

	if (parent == NULL)
		return;
	TAILQ_FOREACH(t, &p->threads, thread_link) {
		info.utime += t->utime_ns / 10000000;
		info.stime += t->stime_ns / 10000000;
	}
	if (parent->sighand != NULL) {
		sa = &parent->sighand->action[KSIGCHLD - 1];
		if (sa->handler != KSIG_IGN && (sa->flags & KSA_NOCLDSTOP) == 0)
			signal_send_process(parent, KSIGCHLD, &info);
	}
	waitq_wake_all(&parent->wait_child, 0);
}

/* Is everybody but `leaving` stopped? Then the group is. */
static void group_stop_check(struct process *p, const struct task *leaving)
{
	bool any = false;
	struct task *t;

	if (!p->stopping)
		return;
	TAILQ_FOREACH(t, &p->threads, thread_link) {
		if (t == leaving || t->state == TASK_DEAD)
			continue;
		if (t->state != TASK_STOPPED)
			return;
		any = true;
	}
	if (!any)
		return;
	p->stopping = false;
	p->stopped = true;
	p->continued = false;
	p->stop_reported = false;
	notify_parent_cldstop(p, KCLD_STOPPED);
}

static void group_stop_begin(struct process *p, int sig)
{
	struct task *t;

	p->stopping = true;
	p->stop_sig = sig;
	TAILQ_FOREACH(t, &p->threads, thread_link) {
		if (t != current && t->state != TASK_DEAD)
			wake_for_signal(t);
	}
}

static void stop_current(void)
{
	current->state = TASK_STOPPED;
	group_stop_check(current->proc, NULL);
	/* The parent may have been us, with a handler that continues: state decides. */
	if (current->state == TASK_STOPPED)
		schedule();
}

static void group_continue(struct process *p)
{
	bool was_stopped = p->stopped, was_stopping = p->stopping;
	struct task *t;

	p->stopped = p->stopping = false;
	TAILQ_FOREACH(t, &p->threads, thread_link) {
		if (t->state == TASK_STOPPED) {
			t->sig_check = true;
			wake_any(t);
		}
	}
	if (!was_stopped && !was_stopping)
		return;
	p->continued = true;
	p->stop_reported = false;
	notify_parent_cldstop(p, was_stopped ? KCLD_CONTINUED : KCLD_STOPPED);
}

bool signal_pgrp_orphaned(int pgid, int sid, const struct process *ignoring)
{
	struct process *p;

	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (p == ignoring || p->pgid != pgid || p->parent == NULL ||
		    (p->zombie && p->nthreads == 0) || is_init(p->parent))
			continue;
		if (p->parent->pgid != pgid && p->parent->sid == sid)
			return false;
	}
	return true;
}

/* ---- sending ---- */

/* Effects of the mere sending; false when the signal then goes no further. */
static bool send_prepare(struct process *p, struct task *t, int sig)
{
	if (p->group_exit)
		return false;
	if (is_init(p) && (SIG_BIT(sig) & SIG_KERNEL_ONLY) != 0)
		return false;
	if ((SIG_BIT(sig) & SIG_STOP_MASK) != 0) {
		signal_discard(p, SIG_BIT(KSIGCONT));
	} else if (sig == KSIGCONT) {
		signal_discard(p, SIG_STOP_MASK);
		group_continue(p);
	}
	if (((t->sig_mask | t->sig_real_blocked) & SIG_BIT(sig)) != 0)
		return true;
	return !action_ignores(p, sig);
}

static bool wants_signal(const struct task *t, int sig)
{
	return t->state != TASK_DEAD && t->state != TASK_STOPPED && !t->must_exit &&
	       !signal_is_blocked(t, sig);
}

static struct task *choose_thread(struct process *p, struct task *t, bool shared, int sig)
{
	struct task *u;

	if (wants_signal(t, sig))
		return t;
	if (!shared)
		return NULL;
	if (current->proc == p && wants_signal(current, sig))
		return current;
	TAILQ_FOREACH(u, &p->threads, thread_link) {
		if (wants_signal(u, sig))
			return u;
	}
	return NULL;
}

static bool action_is_fatal(struct process *p, int sig)
{
	return p->sighand->action[sig - 1].handler == KSIG_DFL && !is_init(p) &&
	       (SIG_BIT(sig) & (SIG_IGNORE_MASK | SIG_STOP_MASK)) == 0;
}

/* The bit is set: wake whom it concerns. */
static void send_complete(struct process *p, struct task *t, bool shared, int sig)
{
	struct task *target;

	if (!waitq_empty(&signalfd_waitq))
		waitq_wake_all(&signalfd_waitq, KPOLLIN);
	target = choose_thread(p, t, shared, sig);
	if (target == NULL)
		return;
	if (action_is_fatal(p, sig) && (SIG_BIT(sig) & SIG_DUMP_MASK) == 0 &&
	    (target->sig_real_blocked & SIG_BIT(sig)) == 0) {
		signal_zap_process(p, sig);
		return;
	}
	wake_for_signal(target);
}

static int send(struct process *p, struct task *t, bool shared, int sig,
		const struct ksiginfo *info)
{
	struct sigpending *pending;
	struct sigqueue *q;

	if (sig < 0 || sig > KSIGMAX)
		return -EINVAL;
	if (sig == 0 || p->zombie || t == NULL || t->state == TASK_DEAD ||
	    !send_prepare(p, t, sig))
		return 0;
	if (sig == KSIGKILL) {
		signal_zap_process(p, KSIGKILL);
		return 0;
	}
	pending = shared ? &p->pending : &t->pending;
	if (sig < KSIGRTMIN && (pending->set & SIG_BIT(sig)) != 0)
		return 0;
	q = sigqueue_new(p, sig, info);
	if (q != NULL) {
		if (info != NULL)
			q->info = *info;
		else
			q->info.code = KSI_KERNEL;
		q->info.signo = sig;
		sigqueue_add(pending, q);
	} else if (sig >= KSIGRTMIN && info != NULL && info->code != KSI_USER) {
		return -EAGAIN;
	}
	pending->set |= SIG_BIT(sig);
	send_complete(p, t, shared, sig);
	return 0;
}

/* The thread whose mask and state speak for the process: the leader while it lives. */
static struct task *main_thread(struct process *p)
{
	struct task *t;

	if (p->leader != NULL && p->leader->state != TASK_DEAD)
		return p->leader;
	TAILQ_FOREACH(t, &p->threads, thread_link) {
		if (t->state != TASK_DEAD)
			return t;
	}
	return NULL;
}

int signal_send_task(struct task *t, int sig, const struct ksiginfo *info)
{
	return send(t->proc, t, false, sig, info);
}

int signal_send_process(struct process *p, int sig, const struct ksiginfo *info)
{
	return send(p, main_thread(p), true, sig, info);
}

int signal_send_pgrp(int pgid, int sig, const struct ksiginfo *info)
{
	int ret = -ESRCH;
	struct process *p;

	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (p->pgid != pgid)
			continue;
		int r = signal_send_process(p, sig, info);

		if (ret != 0)
			ret = r;
	}
	return ret;
}

int signal_kill_job(int job)
{
	struct process *p;
	int ret = -ESRCH;

	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (p->job != job || p->zombie)
			continue;
		signal_send_process(p, KSIGKILL, NULL);
		ret = 0;
	}
	return ret;
}

int signal_send_timer(struct process *p, struct task *t, struct sigqueue *q)
{
	struct task *main = t != NULL ? t : main_thread(p);
	struct sigpending *pending = t != NULL ? &t->pending : &p->pending;
	int sig = q->info.signo;

	if (p->zombie || main == NULL || main->state == TASK_DEAD ||
	    !send_prepare(p, main, sig))
		return 1;
	if (sig == KSIGKILL) {
		signal_zap_process(p, KSIGKILL);
		return 0;
	}
	sigqueue_add(pending, q);
	pending->set |= SIG_BIT(sig);
	send_complete(p, main, t == NULL, sig);
	return 0;
}

void signal_cancel_timer(struct process *p, struct task *t, struct sigqueue *q)
{
	struct sigpending *pending = t != NULL ? &t->pending : &p->pending;
	struct sigqueue *other;

	if (!q->queued)
		return;
	sigqueue_unlink(pending, q);
	TAILQ_FOREACH(other, &pending->queue, link) {
		if (other->info.signo == q->info.signo)
			return;
	}
	pending->set &= ~SIG_BIT(q->info.signo);
}

void signal_force(int sig, int code, uint64_t addr, int trapno)
{
	struct ksiginfo info = { .code = code, .addr = addr, .trapno = trapno };
	struct process *p = current->proc;
	struct ksigaction *sa = &p->sighand->action[sig - 1];

	current->trap_nr = (uint64_t)trapno;
	if (trapno == 14)
		current->trap_cr2 = addr;
	if (signal_is_blocked(current, sig) || sa->handler == KSIG_IGN) {
		sa->handler = KSIG_DFL;
		current->sig_mask &= ~SIG_BIT(sig);
	}
	/* Even PID 1 dies of its own faults. */
	if (sa->handler == KSIG_DFL) {
		signal_zap_process(p, sig);
		return;
	}
	send(p, current, false, sig, &info);
	signal_recalc(current);
}

int kill_allowed(struct process *target, int sig)
{
	const struct cred *c = current->proc->cred, *t = target->cred;

	if (target == current->proc || capable(CAP_KILL))
		return 0;
	if (c->euid == t->suid || c->euid == t->uid || c->uid == t->suid || c->uid == t->uid)
		return 0;
	if (sig == KSIGCONT && target->sid == current->proc->sid)
		return 0;
	return -EPERM;
}

void signal_task_exiting(struct task *t)
{
	struct process *p = t->proc;
	uint64_t left = p->pending.set & ~t->sig_mask;
	struct task *u;

	sigpending_flush(&t->pending);
	TAILQ_FOREACH(u, &p->threads, thread_link) {
		if (left == 0)
			break;
		if (u == t || u->state == TASK_DEAD || (left & ~u->sig_mask) == 0)
			continue;
		wake_for_signal(u);
		left &= u->sig_mask;
	}
	group_stop_check(p, t);
}

/* ---- temporary masks ---- */

int signal_use_temp_mask(const uint64_t __user *umask, size_t size)
{
	uint64_t mask;

	if (umask == NULL)
		return 0;
	if (size != sizeof(mask))
		return -EINVAL;
	if (GET_USER(mask, umask) != 0)
		return -EFAULT;
	current->saved_mask = current->sig_mask;
	current->restore_mask = true;
	signal_set_mask(mask);
	return 0;
}

void signal_restore_temp_mask(bool interrupted)
{
	if (!current->restore_mask)
		return;
	if (interrupted) {
		current->sig_check = true;
		return;
	}
	current->restore_mask = false;
	signal_set_mask(current->saved_mask);
}

/* ---- delivery ---- */

static bool in_syscall(const struct trapframe *tf)
{
	return (int64_t)tf->orig_rax >= 0;
}

/* Makes the program call again: SYSCALL, two bytes long, stands before the return address even
 * at a patched site (mm/patch.h). */
static void restart(struct trapframe *tf)
{
	tf->rax = tf->orig_rax;
	tf->rip -= 2;
}

static void fix_result_for_handler(struct trapframe *tf, const struct ksigaction *act)
{
	if (!in_syscall(tf))
		return;
	switch ((int64_t)tf->rax) {
	case -ERESTART_RESTARTBLOCK:
	case -ERESTARTNOHAND:
		tf->rax = (uint64_t)-EINTR;
		break;
	case -ERESTARTSYS:
		if ((act->flags & KSA_RESTART) == 0) {
			tf->rax = (uint64_t)-EINTR;
			break;
		}
		/* fall through */
	case -ERESTARTNOINTR:
		restart(tf);
		break;
	default:
		break;
	}
}

static void fix_result_without_handler(struct trapframe *tf)
{
	if (!in_syscall(tf))
		return;
	switch ((int64_t)tf->rax) {
	case -ERESTARTSYS:
	case -ERESTARTNOINTR:
	case -ERESTARTNOHAND:
		restart(tf);
		break;
	default:
		break;
	}
}

static void run_handler(struct trapframe *tf, const struct ksigaction *act,
			const struct ksiginfo *info)
{
	uint64_t old = current->restore_mask ? current->saved_mask : current->sig_mask;
	uint64_t mask = current->sig_mask | act->mask;

	fix_result_for_handler(tf, act);
	if (sigframe_build(tf, act, info, old) != 0) {
		if (info->signo == KSIGSEGV)
			current->proc->sighand->action[KSIGSEGV - 1].handler = KSIG_DFL;
		signal_force(KSIGSEGV, KSI_KERNEL, 0, (int)current->trap_nr);
		return;
	}
	current->restore_mask = false;
	if ((act->flags & KSA_NODEFER) == 0)
		mask |= SIG_BIT(info->signo);
	signal_set_mask(mask);
	if ((current->altstack_flags & KSS_AUTODISARM) != 0) {
		current->altstack_sp = current->altstack_size = 0;
		current->altstack_flags = KSS_DISABLE;
	}
}

/* Default action of a signal that was taken. Returns when there is nothing to do. */
static void default_action(struct process *p, int sig)
{
	if ((SIG_BIT(sig) & SIG_IGNORE_MASK) != 0 || is_init(p))
		return;
	if ((SIG_BIT(sig) & SIG_STOP_MASK) != 0) {
		if (sig == KSIGSTOP || !signal_pgrp_orphaned(p->pgid, p->sid, NULL))
			group_stop_begin(p, sig);
		return;
	}
	process_exit_group(sig);
}

static void leave_if_dying(struct process *p)
{
	if (p->group_exit)
		task_exit(p->exit_code);
	if (current->must_exit)
		task_exit(0);
}

void signal_deliver(struct trapframe *tf)
{
	struct process *p = current->proc;
	struct ksiginfo info;
	struct ksigaction *sa, act;
	int sig;

	for (;;) {
		leave_if_dying(p);
		if (p->stopping || p->stopped) {
			stop_current();
			continue;
		}
		sig = signal_dequeue(current->sig_mask, &info);
		if (sig == 0)
			break;
		sa = &p->sighand->action[sig - 1];
		if (sa->handler == KSIG_IGN)
			continue;
		if (sa->handler == KSIG_DFL) {
			default_action(p, sig);
			continue;
		}
		act = *sa;
		if ((act.flags & KSA_RESETHAND) != 0)
			sa->handler = KSIG_DFL;
		run_handler(tf, &act, &info);
		signal_recalc(current);
		return;
	}
	fix_result_without_handler(tf);
	if (current->restore_mask) {
		current->restore_mask = false;
		signal_set_mask(current->saved_mask);
	}
	signal_recalc(current);
	/*
	 * Linux has the program call restart_syscall() here. The rest of the wait is done on
	 * the way out instead; when another signal ends it, sig_check is set and our caller
	 * comes back here.
	 */
	if (in_syscall(tf) && (int64_t)tf->rax == -ERESTART_RESTARTBLOCK)
		tf->rax = (uint64_t)sys_restart_syscall();
}
