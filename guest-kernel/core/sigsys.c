/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of signals: argument checks in Linux's order, permission, and the two
 * waiting calls. The state machine is signal.c.
 */
#include <linux/capability.h>

#include "guest-kernel/core/signal_internal.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/mm/uaccess.h"

#define SIGSET_SIZE sizeof(uint64_t)

/* ---- actions and masks ---- */

SYSCALL(rt_sigaction, int sig, const struct ksigaction __user *act,
	struct ksigaction __user *old, size_t size)
{
	struct ksigaction new, was, *sa;

	if (size != SIGSET_SIZE)
		return -EINVAL;
	if (act != NULL && GET_USER(new, act) != 0)
		return -EFAULT;
	if (sig < 1 || sig > KSIGMAX || (act != NULL && (SIG_BIT(sig) & SIG_KERNEL_ONLY) != 0))
		return -EINVAL;
	sa = &current->proc->sighand->action[sig - 1];
	was = *sa;
	if (act != NULL) {
		new.flags &= KSA_KNOWN;
		new.mask &= ~SIG_KERNEL_ONLY;
		*sa = new;
		/* What is now ignored is no longer pending, blocked or not (POSIX 3.3.1.3). */
		if (new.handler == KSIG_IGN ||
		    (new.handler == KSIG_DFL && (SIG_BIT(sig) & SIG_IGNORE_MASK) != 0))
			signal_discard(current->proc, SIG_BIT(sig));
	}
	if (old != NULL && PUT_USER(was, old) != 0)
		return -EFAULT;
	return 0;
}

SYSCALL(rt_sigprocmask, int how, const uint64_t __user *set, uint64_t __user *old, size_t size)
{
	uint64_t was = current->sig_mask, mask;

	if (size != SIGSET_SIZE)
		return -EINVAL;
	if (set != NULL) {
		if (GET_USER(mask, set) != 0)
			return -EFAULT;
		switch (how) {
		case 0:			/* SIG_BLOCK */
			mask = was | mask;
			break;
		case 1:			/* SIG_UNBLOCK */
			mask = was & ~mask;
			break;
		case 2:			/* SIG_SETMASK */
			break;
		default:
			return -EINVAL;
		}
		signal_set_mask(mask);
	}
	if (old != NULL && PUT_USER(was, old) != 0)
		return -EFAULT;
	return 0;
}

SYSCALL(rt_sigpending, uint64_t __user *set, size_t size)
{
	uint64_t pending;

	if (size > SIGSET_SIZE)
		return -EINVAL;
	pending = (current->pending.set | current->proc->pending.set) & current->sig_mask;
	return copy_to_user(set, &pending, size);
}

SYSCALL(rt_sigreturn, void)
{
	return sigframe_restore(task_frame(current));
}

/* ---- alternative stack ---- */

struct kstack {				/* struct stack_t */
	uint64_t sp;
	uint32_t flags, pad;
	uint64_t size;
};

bool signal_on_altstack(const struct task *t, uint64_t user_sp)
{
	if ((t->altstack_flags & KSS_AUTODISARM) != 0)
		return false;
	return user_sp > t->altstack_sp && user_sp - t->altstack_sp <= t->altstack_size;
}

int signal_set_altstack(uint64_t ss_sp, uint32_t ss_flags, uint64_t ss_size, uint64_t user_sp)
{
	uint32_t mode = ss_flags & ~KSS_AUTODISARM;

	if (signal_on_altstack(current, user_sp))
		return -EPERM;
	if (mode != KSS_DISABLE && mode != KSS_ONSTACK && mode != 0)
		return -EINVAL;
	if (mode == KSS_DISABLE) {
		ss_size = 0;
		ss_sp = 0;
	} else if (ss_size < KMINSIGSTKSZ) {
		return -ENOMEM;
	}
	current->altstack_sp = ss_sp;
	current->altstack_size = ss_size;
	current->altstack_flags = ss_flags;
	return 0;
}

SYSCALL(sigaltstack, const struct kstack __user *uss, struct kstack __user *uold)
{
	uint64_t sp = task_frame(current)->rsp;
	struct kstack old = {
		.sp = current->altstack_sp,
		.flags = current->altstack_flags & KSS_AUTODISARM,
		.size = current->altstack_size,
	}, ss;
	int r;

	if (current->altstack_size == 0)
		old.flags |= KSS_DISABLE;
	else if (signal_on_altstack(current, sp))
		old.flags |= KSS_ONSTACK;
	if (uss != NULL) {
		if (GET_USER(ss, uss) != 0)
			return -EFAULT;
		r = signal_set_altstack(ss.sp, ss.flags, ss.size, sp);
		if (r != 0)
			return r;
	}
	if (uold != NULL && PUT_USER(old, uold) != 0)
		return -EFAULT;
	return 0;
}

/* ---- sending ---- */

static void info_from_current(struct ksiginfo *info, int sig, int code)
{
	*info = (struct ksiginfo){
		.signo = sig,
		.code = code,
		.pid = current->proc->pid,
		.uid = current->proc->cred->uid,
	};
}

static int kill_one(struct process *p, int sig, const struct ksiginfo *info)
{
	int r;

	if (sig < 0 || sig > KSIGMAX)
		return -EINVAL;
	r = kill_allowed(p, sig);
	return r != 0 ? r : signal_send_process(p, sig, info);
}

/* Success if one member got it, else the last error. */
static int kill_group(int pgid, int sig, const struct ksiginfo *info)
{
	int ret = -ESRCH;
	struct process *p;
	bool sent = false;

	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (p->pgid != pgid)
			continue;
		ret = kill_one(p, sig, info);
		sent = sent || ret == 0;
	}
	return sent ? 0 : ret;
}

static int kill_everybody(int sig, const struct ksiginfo *info)
{
	unsigned found = 0;
	struct process *p;
	int ret = 0;

	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (p->pid <= 1 || p == current->proc)
			continue;
		int r = kill_one(p, sig, info);

		found++;
		if (r != -EPERM)
			ret = r;
	}
	return found == 0 ? -ESRCH : ret;
}

SYSCALL(kill, int pid, int sig)
{
	struct ksiginfo info;
	struct process *p;

	info_from_current(&info, sig, KSI_USER);
	if (pid > 0) {
		p = process_find(pid);
		return p == NULL ? -ESRCH : kill_one(p, sig, &info);
	}
	if (pid == (-0x7fffffff - 1))
		return -ESRCH;
	if (pid == -1)
		return kill_everybody(sig, &info);
	return kill_group(pid == 0 ? current->proc->pgid : -pid, sig, &info);
}

/* tgid <= 0: any. */
static long send_to_thread(int tgid, int tid, int sig, const struct ksiginfo *info)
{
	struct task *t = task_find(tid);
	int r;

	if (t == NULL || (tgid > 0 && t->proc->pid != tgid))
		return -ESRCH;
	if (sig < 0 || sig > KSIGMAX)
		return -EINVAL;
	r = kill_allowed(t->proc, sig);
	if (r != 0)
		return r;
	return signal_send_task(t, sig, info);
}

SYSCALL(tkill, int tid, int sig)
{
	struct ksiginfo info;

	if (tid <= 0)
		return -EINVAL;
	info_from_current(&info, sig, KSI_TKILL);
	return send_to_thread(0, tid, sig, &info);
}

SYSCALL(tgkill, int tgid, int tid, int sig)
{
	struct ksiginfo info;

	if (tid <= 0 || tgid <= 0)
		return -EINVAL;
	info_from_current(&info, sig, KSI_TKILL);
	return send_to_thread(tgid, tid, sig, &info);
}

/* A program's own siginfo: of the queueing kind, so pid, uid and value are what counts. */
static int info_from_user(struct ksiginfo *info, int sig, const void __user *uinfo)
{
	uint8_t raw[128];

	if (copy_from_user(raw, uinfo, sizeof(raw)) != 0)
		return -EFAULT;
	*info = (struct ksiginfo){ .signo = sig };
	memcpy(&info->error, raw + 4, 4);
	memcpy(&info->code, raw + 8, 4);
	memcpy(&info->pid, raw + 16, 4);
	memcpy(&info->uid, raw + 20, 4);
	memcpy(&info->value, raw + 24, 8);
	if (info->code == KSI_TIMER) {
		info->timer_id = info->pid;
		info->overrun = (int)info->uid;
	}
	return 0;
}

static bool may_forge(const struct ksiginfo *info, int tid)
{
	return (info->code < 0 && info->code != KSI_TKILL) || tid == current->tid;
}

SYSCALL(rt_sigqueueinfo, int pid, int sig, const void __user *uinfo)
{
	struct ksiginfo info;
	struct process *p;
	int r;

	r = info_from_user(&info, sig, uinfo);
	if (r != 0)
		return r;
	if (!may_forge(&info, pid))
		return -EPERM;
	p = process_find(pid);
	if (p == NULL) {
		struct task *t = task_find(pid);

		if (t == NULL)
			return -ESRCH;
		p = t->proc;
	}
	return kill_one(p, sig, &info);
}

SYSCALL(rt_tgsigqueueinfo, int tgid, int tid, int sig, const void __user *uinfo)
{
	struct ksiginfo info;
	int r;

	r = info_from_user(&info, sig, uinfo);
	if (r != 0)
		return r;
	if (tid <= 0 || tgid <= 0)
		return -EINVAL;
	if (!may_forge(&info, tid))
		return -EPERM;
	return send_to_thread(tgid, tid, sig, &info);
}

/* ---- waiting ---- */

SYSCALL(pause, void)
{
	while (sleep_once(NO_DEADLINE, true) == 0)
		;
	return -ERESTARTNOHAND;
}

SYSCALL(rt_sigsuspend, const uint64_t __user *umask, size_t size)
{
	uint64_t mask;

	if (size != SIGSET_SIZE)
		return -EINVAL;
	if (GET_USER(mask, umask) != 0)
		return -EFAULT;
	current->saved_mask = current->sig_mask;
	signal_set_mask(mask);
	while (!signal_pending(current)) {
		if (sleep_once(NO_DEADLINE, true) != 0)
			break;
	}
	current->restore_mask = true;
	current->sig_check = true;
	return -ERESTARTNOHAND;
}

/* The signals waited for are unblocked while waiting, so that senders choose this thread;
 * sig_real_blocked keeps them from being fatal. */
static int wait_for_signal(uint64_t these, uint64_t deadline, struct ksiginfo *info)
{
	uint64_t mask = current->sig_mask;
	int sig = 0, r = 0;

	current->sig_real_blocked = mask;
	signal_set_mask(mask & ~these);
	while (r == 0) {
		sig = signal_dequeue(~these, info);
		if (sig != 0)
			break;
		r = sleep_once(deadline, true);
	}
	current->sig_real_blocked = 0;
	if (sig == 0)
		sig = signal_dequeue(~these, info);
	signal_set_mask(mask);
	if (sig != 0)
		return sig;
	return r == -ETIMEDOUT ? -EAGAIN : -EINTR;
}

SYSCALL(rt_sigtimedwait, const uint64_t __user *uthese, void __user *uinfo,
	const struct ktimespec __user *uts, size_t size)
{
	uint64_t these, ns, deadline = NO_DEADLINE;
	struct ksiginfo info;
	uint8_t raw[128];
	int sig, r;

	if (size != SIGSET_SIZE)
		return -EINVAL;
	if (GET_USER(these, uthese) != 0)
		return -EFAULT;
	these &= ~SIG_KERNEL_ONLY;
	if (uts != NULL) {
		r = timespec_get_user(uts, &ns);
		if (r != 0)
			return r;
		deadline = deadline_after(ns);
	}
	sig = signal_dequeue(~these, &info);
	if (sig == 0) {
		if (uts != NULL && ns == 0)
			return -EAGAIN;
		sig = wait_for_signal(these, deadline, &info);
	}
	if (sig > 0 && uinfo != NULL) {
		siginfo_to_user(&info, raw);
		if (copy_to_user(uinfo, raw, sizeof(raw)) != 0)
			return -EFAULT;
	}
	return sig;
}

SYSCALL(restart_syscall, void)
{
	if (current->restart_fn == NULL)
		return -EINTR;
	return current->restart_fn(current);
}
