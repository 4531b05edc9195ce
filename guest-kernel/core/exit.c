/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of threads and processes.
 *
 * task_exit() ends the calling thread. The last thread of a process takes the process down:
 * files, timers, terminal, children handed to the next reaper, a last look at process groups
 * that lose their only tie to a parent; then the process is a zombie, the parent is told, and
 * what is left is a struct with a wait status. Sleeping may happen until the files are closed,
 * not after. The address space goes with the task struct, when another task runs.
 *
 * A process's status is that of its leader, or of exit_group() or the fatal signal if that
 * came first.
 */
#include "abi/platform.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/tty.h"
#include "guest-kernel/mm/mm.h"

#define NS_PER_TICK	(NSEC_PER_SEC / 100)
#define SA_NOCLDWAIT_	2u

void vfork_release(struct task *t)
{
	struct task *w = t->vfork_waiter;

	if (w == NULL)
		return;
	t->vfork_waiter = NULL;
	w->vfork_child = NULL;
	sched_wake(w);
}

void task_leave_mm(struct task *t)
{
	if (t->mm != NULL)
		futex_exit(t);
	t->robust_list = NULL;
	t->clear_child_tid = NULL;
	vfork_release(t);
}

void process_account_mm(struct process *p)
{
	if (p->mm != NULL)
		p->maxrss = MAX(p->maxrss, p->mm->rss_peak);
}

/* ---- parents and children ---- */

/* The nearest living ancestor that asked for orphans, else PID 1. */
static struct process *find_reaper(struct process *p)
{
	struct process *q;

	for (q = p->parent; q != NULL; q = q->parent)
		if (q->subreaper && process_alive(q) && !q->exiting)
			return q;
	return process_find(1);
}

static void send_pdeath(struct process *child)
{
	struct task *t;

	TAILQ_FOREACH(t, &child->threads, thread_link)
		if (t->pdeath_signal != 0) {
			struct ksiginfo info = {
				.signo = (int)t->pdeath_signal, .code = KSI_USER,
				.pid = current->proc->pid, .uid = current->proc->cred->uid,
			};

			signal_send_process(child, (int)t->pdeath_signal, &info);
		}
}

static bool has_stopped_jobs(int pgid)
{
	struct process *p;

	TAILQ_FOREACH(p, &all_processes, all_link)
		if (p->pgid == pgid && p->stopped && !p->zombie)
			return true;
	return false;
}

/*
 * `p` loses its tie to `parent`: if that was the last tie of p's group to its session, and
 * the group has stopped members, nobody could continue them: SIGHUP, SIGCONT.
 */
static void check_orphaned_pgrp(struct process *p, struct process *parent,
				struct process *ignoring)
{
	if (parent == NULL || parent->pgid == p->pgid || parent->sid != p->sid)
		return;
	if (!has_stopped_jobs(p->pgid) || !signal_pgrp_orphaned(p->pgid, p->sid, ignoring))
		return;
	signal_send_pgrp(p->pgid, KSIGHUP, NULL);
	signal_send_pgrp(p->pgid, KSIGCONT, NULL);
}

/* Tells the parent of a zombie; true if nobody will wait for it. */
static bool notify_parent(struct process *p)
{
	struct process *parent = p->parent;
	int sig = p->exit_signal;
	struct ksiginfo info = {
		.signo = sig, .pid = p->pid, .uid = p->cred->uid,
	};
	const struct ksigaction *sa;
	bool autoreap = false;
	uint64_t u, s;

	if (parent == NULL)
		return false;
	process_times(p, &u, &s);
	info.utime = u / NS_PER_TICK;
	info.stime = s / NS_PER_TICK;
	if ((p->exit_code & 0x7f) == 0) {
		info.code = KCLD_EXITED;
		info.status = p->exit_code >> 8;
	} else {
		info.code = (p->exit_code & 0x80) != 0 ? KCLD_DUMPED : KCLD_KILLED;
		info.status = p->exit_code & 0x7f;
	}
	sa = &parent->sighand->action[KSIGCHLD - 1];
	if (sig == KSIGCHLD && (sa->handler == 1 || (sa->flags & SA_NOCLDWAIT_) != 0)) {
		autoreap = true;
		if (sa->handler == 1)
			sig = 0;
	}
	if (sig > 0 && sig <= KSIGMAX)
		signal_send_process(parent, sig, &info);
	waitq_wake_all(&parent->wait_child, 0);
	return autoreap;
}

void process_notify_parent(struct process *p)
{
	if (notify_parent(p))
		process_unlink(p);
}

static void reparent_children(struct process *p)
{
	struct process *reaper = find_reaper(p), *c;

	while ((c = TAILQ_FIRST(&p->children)) != NULL) {
		TAILQ_REMOVE(&p->children, c, sibling);
		TAILQ_INSERT_TAIL(&reaper->children, c, sibling);
		c->parent = reaper;
		c->creator_tid = reaper->pid;
		c->exit_signal = KSIGCHLD;
		if (c->zombie) {
			process_notify_parent(c);
			continue;
		}
		send_pdeath(c);
		check_orphaned_pgrp(c, p, NULL);
	}
}

/* A thread goes, others stay: its children are theirs. */
static void hand_children_to_siblings(struct process *p, struct task *leaving)
{
	struct task *heir = TAILQ_FIRST(&p->threads);
	struct process *c;

	TAILQ_FOREACH(c, &p->children, sibling) {
		if (c->creator_tid != leaving->tid)
			continue;
		c->creator_tid = heir->tid;
		if (!c->zombie)
			send_pdeath(c);
	}
}

/* ---- the process ---- */

/* What may sleep, while its last thread still counts as one. */
static void process_release(struct process *p)
{
	struct files *files = p->files;
	struct fs_context *fs = p->fs;

	p->exiting = true;
	timers_process_exit(p);
	p->files = NULL;
	if (files != NULL)
		files_put(files);
	p->fs = NULL;
	if (fs != NULL)
		fs_context_put(fs);
	if (p->ctty != NULL)
		tty_session_exit(p);
}

static void process_become_zombie(struct process *p)
{
	p->mm = NULL;
	p->stopped = p->stopping = p->continued = false;
	reparent_children(p);
	check_orphaned_pgrp(p, p->parent, p);
	sigpending_flush(&p->pending);
	p->zombie = true;
	task_counts.exits++;
	waitq_wake_all(&p->wait_exit, KPOLLIN);
	process_notify_parent(p);
}

void task_exit(int status)
{
	struct task *t = current;
	struct process *p = t->proc;
	bool last;

	t->exit_code = status;
	if (t == p->leader && !p->group_exit)
		p->exit_code = status;
	task_leave_mm(t);
	if (p->nthreads == 1) {
		if (p->pid == 1) {
			printk("PID 1 ended with status %#x\n", p->exit_code);
			arch_end(CM_END_INIT_DIED);
		}
		process_account_mm(p);
		process_release(p);
	}
	signal_task_exiting(t);
	/* process_release() may have slept, but nobody can have made a thread meanwhile. */
	last = p->nthreads == 1;
	sched_account_flush();
	p->utime_ns += t->utime_ns;
	p->stime_ns += t->stime_ns;
	p->minflt += t->minflt;
	p->majflt += t->majflt;
	p->nvcsw += t->nvcsw;
	p->nivcsw += t->nivcsw;
	task_unlink(t);
	if (last) {
		process_become_zombie(p);
	} else {
		hand_children_to_siblings(p, t);
		if (p->exec_task != NULL)
			sched_wake(p->exec_task);
	}
	t->state = TASK_DEAD;
	schedule();
	panic("dead task %d runs", t->tid);
}

void process_exit_group(int status)
{
	struct process *p = current->proc;

	/* exec in a sibling wants this thread alone to go; a second exit_group changes nothing. */
	if (!p->group_exit && p->exec_task != NULL && p->exec_task != current)
		task_exit(status);
	if (!p->group_exit)
		signal_zap_process(p, status);
	task_exit(p->exit_code);
}

void process_kill(struct process *p, int status)
{
	signal_zap_process(p, status);
}

SYSCALL(exit, int code)
{
	task_exit((code & 0xff) << 8);
}

SYSCALL(exit_group, int code)
{
	process_exit_group((code & 0xff) << 8);
}
