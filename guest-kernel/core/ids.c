/* SPDX-License-Identifier: Apache-2.0 */
/* Process ids, process groups and sessions. */
#include <linux/capability.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/ipc/tty.h"

SYSCALL(getpid, void)
{
	return current->proc->pid;
}

SYSCALL(gettid, void)
{
	return current->tid;
}

SYSCALL(getppid, void)
{
	const struct process *parent = current->proc->parent;

	return parent != NULL ? parent->pid : 0;
}

/* The process of a pid argument: 0 is the caller. */
static struct process *process_arg(int pid)
{
	struct task *t;

	if (pid == 0)
		return current->proc;
	t = task_find(pid);
	return t != NULL ? t->proc : process_find(pid);
}

SYSCALL(getpgid, int pid)
{
	const struct process *p = process_arg(pid);

	return p != NULL ? p->pgid : -ESRCH;
}

SYSCALL(getpgrp, void)
{
	return current->proc->pgid;
}

SYSCALL(getsid, int pid)
{
	const struct process *p = process_arg(pid);

	return p != NULL ? p->sid : -ESRCH;
}

static void set_pgid(struct process *p, int pgid)
{
	pid_hold(pgid);
	pid_drop(p->pgid);
	p->pgid = pgid;
}

static bool pgrp_in_session(int pgid, int sid)
{
	struct process *p;

	TAILQ_FOREACH(p, &all_processes, all_link)
		if (p->pgid == pgid && p->sid == sid)
			return true;
	return false;
}

SYSCALL(setpgid, int pid, int pgid)
{
	struct process *self = current->proc, *p;

	if (pid == 0)
		pid = self->pid;
	if (pgid == 0)
		pgid = pid;
	if (pgid < 0)
		return -EINVAL;
	p = process_find(pid);
	if (p == NULL)
		return task_find(pid) != NULL ? -EINVAL : -ESRCH;
	if (p->parent == self) {
		if (p->sid != self->sid)
			return -EPERM;
		if (p->did_exec)
			return -EACCES;
	} else if (p != self) {
		return -ESRCH;
	}
	if (p->sid == p->pid)
		return -EPERM;
	if (pgid != pid && !pgrp_in_session(pgid, self->sid))
		return -EPERM;
	if (p->pgid != pgid)
		set_pgid(p, pgid);
	return 0;
}

SYSCALL(setsid, void)
{
	struct process *self = current->proc, *p;

	/* A group of our number that we left has other members: it is not ours to take. */
	TAILQ_FOREACH(p, &all_processes, all_link)
		if (p->pgid == self->pid)
			return -EPERM;
	if (self->sid == self->pid)
		return -EPERM;
	pid_hold(self->pid);
	pid_drop(self->sid);
	self->sid = self->pid;
	set_pgid(self, self->pid);
	if (self->ctty != NULL)
		tty_forget(self);
	return self->pid;
}

/* Takes the terminal away from everybody, for login programs. */
SYSCALL(vhangup, void)
{
	struct tty *t = current->proc->ctty;

	if (!capable(CAP_SYS_TTY_CONFIG))
		return -EPERM;
	if (t != NULL) {
		tty_get(t);
		tty_hangup(t);
		tty_put(t);
	}
	return 0;
}
