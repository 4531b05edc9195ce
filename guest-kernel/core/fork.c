/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork, vfork, clone, clone3: one function, clone_task(), behind a check of the flags that
 * depends on nothing but them (clone_check, unit-tested as a table).
 *
 * vfork is exact: the child runs on the parent's memory and the parent's thread sleeps until
 * the child execs or exits (vfork_release) or the parent is killed. The child starts in
 * fork_child(), which leaves for the program with a copy of the parent's registers.
 *
 * The threads of a process always share its descriptors and directories: these belong to
 * struct process. clone and unshare report programs that want it otherwise.
 */
#include <linux/capability.h>

#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/tty.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

/* <linux/sched.h> */
#define CLONE_VM		0x00000100ULL
#define CLONE_FS		0x00000200ULL
#define CLONE_FILES		0x00000400ULL
#define CLONE_SIGHAND		0x00000800ULL
#define CLONE_PIDFD		0x00001000ULL
#define CLONE_PTRACE		0x00002000ULL
#define CLONE_VFORK		0x00004000ULL
#define CLONE_PARENT		0x00008000ULL
#define CLONE_THREAD		0x00010000ULL
#define CLONE_NEWNS		0x00020000ULL
#define CLONE_SYSVSEM		0x00040000ULL
#define CLONE_SETTLS		0x00080000ULL
#define CLONE_PARENT_SETTID	0x00100000ULL
#define CLONE_CHILD_CLEARTID	0x00200000ULL
#define CLONE_DETACHED		0x00400000ULL
#define CLONE_UNTRACED		0x00800000ULL
#define CLONE_CHILD_SETTID	0x01000000ULL
#define CLONE_NEWCGROUP		0x02000000ULL
#define CLONE_NEWUTS		0x04000000ULL
#define CLONE_NEWIPC		0x08000000ULL
#define CLONE_NEWUSER		0x10000000ULL
#define CLONE_NEWPID		0x20000000ULL
#define CLONE_NEWNET		0x40000000ULL
#define CLONE_IO		0x80000000ULL
#define CLONE_CLEAR_SIGHAND	0x100000000ULL
#define CLONE_INTO_CGROUP	0x200000000ULL
#define CLONE_NEWTIME		0x80ULL
#define CSIGNAL			0xffULL
#define CLONE_NEW_OTHER		(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | \
				 CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWTIME)

struct clone_args_user {	/* struct clone_args of <linux/sched.h> */
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	uint64_t set_tid, set_tid_size, cgroup;
};
#define CLONE_ARGS_SIZE_VER0 64u
#define CLONE_ARGS_SIZE_VER2 88u
_Static_assert(sizeof(struct clone_args_user) == CLONE_ARGS_SIZE_VER2, "struct clone_args");

static bool has(uint64_t flags, uint64_t all)
{
	return (flags & all) == all;
}

/* What Linux refuses whoever asks. */
int clone_check(const struct clone_args_k *a)
{
	uint64_t f = a->flags;

	if (a->clone3) {
		if ((f & ~(0xffffffffULL | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP)) != 0 ||
		    (f & (CLONE_DETACHED | (CSIGNAL & ~CLONE_NEWTIME))) != 0 ||
		    has(f, CLONE_SIGHAND | CLONE_CLEAR_SIGHAND))
			return -EINVAL;
		if ((f & (CLONE_THREAD | CLONE_PARENT)) != 0 && a->exit_signal != 0)
			return -EINVAL;
	} else if (has(f, CLONE_PIDFD | CLONE_PARENT_SETTID)) {
		return -EINVAL;
	}
	if (has(f, CLONE_NEWNS | CLONE_FS) || has(f, CLONE_NEWUSER | CLONE_FS))
		return -EINVAL;
	if ((f & CLONE_THREAD) != 0 && (f & CLONE_SIGHAND) == 0)
		return -EINVAL;
	if ((f & CLONE_SIGHAND) != 0 && (f & CLONE_VM) == 0)
		return -EINVAL;
	if ((f & CLONE_THREAD) != 0 && (f & (CLONE_NEWUSER | CLONE_NEWPID)) != 0)
		return -EINVAL;
	if ((f & CLONE_PIDFD) != 0 && (f & (CLONE_DETACHED | CLONE_THREAD)) != 0)
		return -EINVAL;
	return 0;
}

/* What depends on who asks. */
static int clone_check_caller(const struct clone_args_k *a)
{
	struct process *p = current->proc;

	if ((a->flags & CLONE_PARENT) != 0 && (p->pid == 1 || p->parent == NULL))
		return -EINVAL;
	if ((a->flags & CLONE_NEWUSER) != 0)
		return syscall_partial("clone", "user namespaces", -EINVAL);
	if ((a->flags & CLONE_NEW_OTHER) != 0) {
		if (!capable(CAP_SYS_ADMIN))
			return -EPERM;
		return syscall_partial("clone", "namespaces", -EINVAL);
	}
	if ((a->flags & CLONE_INTO_CGROUP) != 0)
		return syscall_partial("clone", "CLONE_INTO_CGROUP", -EBADF);
	if ((a->flags & CLONE_SETTLS) != 0 && a->tls >= CM_USER_TOP)
		return -EPERM;
	if ((a->flags & CLONE_THREAD) != 0 && !has(a->flags, CLONE_FS | CLONE_FILES))
		return syscall_partial("clone", "threads without CLONE_FS or CLONE_FILES",
				       -EINVAL);
	if (signal_fatal_pending(current))
		return -ERESTARTNOINTR;
	return 0;
}

static bool over_nproc_limit(void)
{
	const struct process *self = current->proc;
	uint64_t limit = rlimit_cur(RLIM_NPROC), n = 0;
	struct process *p;

	if (limit == KRLIM_INFINITY || self->cred->uid == 0 || capable(CAP_SYS_RESOURCE) ||
	    capable(CAP_SYS_ADMIN))
		return false;
	TAILQ_FOREACH(p, &all_processes, all_link)
		if (p->cred->uid == self->cred->uid)
			n += MAX(p->nthreads, 1u);
	return n >= limit;
}

static void fork_child(void *arg)
{
	struct task *t = arg;

	sched_finish_switch();
	if (t->set_child_tid != NULL) {
		uint32_t tid = (uint32_t)t->tid;

		(void)PUT_USER(tid, t->set_child_tid);
	}
	sched_account(true);
	arch_return_to_user();
}

/* Gives the new process its share or copy of everything; what was taken stays in p. */
static int process_inherit(struct process *p, struct task *t, const struct clone_args_k *a)
{
	struct process *from = current->proc;

	p->cred = cred_get(from->cred);
	if ((a->flags & CLONE_SIGHAND) != 0) {
		p->sighand = from->sighand;
		sighand_get(p->sighand);
	} else {
		p->sighand = sighand_copy(from->sighand);
		if (p->sighand == NULL)
			return -ENOMEM;
		if ((a->flags & CLONE_CLEAR_SIGHAND) != 0)
			sighand_reset_on_exec(p->sighand);
	}
	if ((a->flags & CLONE_FS) != 0) {
		p->fs = from->fs;
		fs_context_get(p->fs);
	} else {
		p->fs = fs_context_copy(from->fs);
		if (p->fs == NULL)
			return -ENOMEM;
	}
	if ((a->flags & CLONE_FILES) != 0) {
		p->files = from->files;
		files_get(p->files);
	} else {
		p->files = files_copy(from->files);
		if (p->files == NULL)
			return -ENOMEM;
	}
	if ((a->flags & CLONE_VM) != 0) {
		t->mm = from->mm;
		mm_get(t->mm);
	} else {
		t->mm = mm_fork(from->mm);
		if (t->mm == NULL)
			return -ENOMEM;
	}
	p->mm = t->mm;
	if (from->ctty != NULL) {
		tty_get(from->ctty);
		p->ctty = from->ctty;
	}
	p->pgid = from->pgid;
	p->sid = from->sid;
	p->job = from->pid == 1 ? p->pid : from->job;
	memcpy(p->rlim, from->rlim, sizeof(p->rlim));
	memcpy(p->comm, current->comm, sizeof(p->comm));
	p->no_new_privs = from->no_new_privs;
	p->dumpable = from->dumpable;
	p->personality = from->personality;
	p->oom_score_adj = from->oom_score_adj;
	p->thp_disable = from->thp_disable;
	p->membarrier = from->membarrier;
	p->exit_signal = a->exit_signal;
	p->creator_tid = current->tid;
	return 0;
}

/* Undoes process_inherit() of a process that never ran. */
static void process_abandon(struct process *p)
{
	if (p->files != NULL)
		files_put(p->files);
	if (p->fs != NULL)
		fs_context_put(p->fs);
	if (p->ctty != NULL)
		tty_put(p->ctty);
	process_put(p);
}

static void task_inherit(struct task *t, const struct clone_args_k *a)
{
	struct trapframe *tf = task_frame(t);

	*tf = *task_frame(current);
	tf->rax = 0;
	if (a->stack != 0)
		tf->rsp = a->stack;
	t->fsbase = (a->flags & CLONE_SETTLS) != 0 ? a->tls : arch_get_fsbase();
	t->gsbase = arch_get_gsbase();
	fpu_save(t->xstate);
	memcpy(t->comm, current->comm, sizeof(t->comm));
	sched_task_init(t, current);
	t->sig_mask = current->restore_mask ? current->saved_mask : current->sig_mask;
	if ((a->flags & (CLONE_VM | CLONE_VFORK)) != CLONE_VM) {
		t->altstack_sp = current->altstack_sp;
		t->altstack_size = current->altstack_size;
		t->altstack_flags = current->altstack_flags;
	}
	if ((a->flags & CLONE_VM) == 0) {
		t->rseq = current->rseq;
		t->rseq_len = current->rseq_len;
		t->rseq_sig = current->rseq_sig;
	}
	t->timer_slack_ns = t->default_timer_slack_ns = current->timer_slack_ns;
	t->is_syscall = current->is_syscall;
	if ((a->flags & CLONE_CHILD_SETTID) != 0)
		t->set_child_tid = (uint32_t __user *)a->child_tid;
	if ((a->flags & CLONE_CHILD_CLEARTID) != 0)
		t->clear_child_tid = (uint32_t __user *)a->child_tid;
}

/* CLONE_PIDFD: the descriptor is in the caller's table before the child exists. */
static int make_pidfd(struct process *p, int __user *where)
{
	struct file *f = pidfd_file_new(p, false);
	int fd;

	if (IS_ERR(f))
		return PTR_ERR(f);
	fd = fd_install(f, 0, true);
	if (fd < 0)
		return fd;
	if (PUT_USER(fd, where) != 0) {
		fd_close(fd);
		return -EFAULT;
	}
	return fd;
}

static void wait_for_vfork_child(void)
{
	while (current->vfork_child != NULL) {
		if (sleep_killable() == 0)
			continue;
		current->vfork_child->vfork_waiter = NULL;
		current->vfork_child = NULL;
	}
}

static long clone_task(const struct clone_args_k *a)
{
	bool thread = (a->flags & CLONE_THREAD) != 0;
	struct process *from = current->proc, *p = from, *parent = from;
	struct task *t = NULL;
	int r, tid;

	r = clone_check(a);
	if (r == 0)
		r = clone_check_caller(a);
	if (r != 0)
		return r;
	if (over_nproc_limit())
		return -EAGAIN;
	/* One task in sixty-four is kept for root. */
	if (task_counts.tasks >= TASK_MAX - (from->cred->euid != 0 ? TASK_MAX / 64 : 0))
		return -EAGAIN;
	tid = pid_alloc();
	if (tid < 0)
		return tid;
	if (!thread) {
		p = process_new(tid);
		if (p == NULL) {
			pid_drop(tid);
			return -ENOMEM;
		}
	}
	t = task_new(p, tid);
	if (t == NULL) {
		pid_drop(tid);
		r = -ENOMEM;
		goto out_process;
	}
	if (thread) {
		t->mm = from->mm;
		mm_get(t->mm);
	} else {
		r = process_inherit(p, t, a);
	}
	if (r == 0 && (a->flags & CLONE_PIDFD) != 0) {
		r = make_pidfd(p, a->pidfd);
		r = MIN(r, 0);
	}
	if (r < 0)
		goto out_task;
	task_inherit(t, a);
	if (!thread) {
		if ((a->flags & CLONE_PARENT) != 0) {
			parent = from->parent;
			p->exit_signal = from->exit_signal;
			p->creator_tid = from->creator_tid;
		}
		process_link(p, parent);
		p->leader = t;
		task_counts.forks++;
		task_counts.vforks += (a->flags & CLONE_VFORK) != 0;
	} else {
		task_counts.threads++;
	}
	task_link(t);
	if ((a->flags & CLONE_PARENT_SETTID) != 0)
		(void)PUT_USER(tid, a->parent_tid);
	arch_task_prepare(t, fork_child, t);
	if ((a->flags & CLONE_VFORK) != 0) {
		current->vfork_child = t;
		t->vfork_waiter = current;
	}
	sched_add(t);
	if ((a->flags & CLONE_VFORK) != 0)
		wait_for_vfork_child();
	return tid;

out_task:
	task_free(t);
out_process:
	if (!thread) {
		p->mm = NULL;
		process_abandon(p);
	}
	return r;
}

SYSCALL(fork, void)
{
	struct clone_args_k a = {.exit_signal = KSIGCHLD};

	return clone_task(&a);
}

SYSCALL(vfork, void)
{
	struct clone_args_k a = {.flags = CLONE_VFORK | CLONE_VM, .exit_signal = KSIGCHLD};

	return clone_task(&a);
}

SYSCALL(clone, uint64_t flags, uint64_t stack, int __user *parent_tid, int __user *child_tid,
	uint64_t tls)
{
	struct clone_args_k a = {
		.flags = (uint32_t)flags & ~CSIGNAL,
		.exit_signal = (int)(flags & CSIGNAL),
		.stack = stack, .tls = tls,
		.pidfd = parent_tid, .parent_tid = parent_tid, .child_tid = child_tid,
	};

	return clone_task(&a);
}

/* struct clone_args of the caller's size; bytes beyond what we know must be zero. */
static int clone_args_get(struct clone_args_user *u, const void __user *uargs, size_t size)
{
	uint8_t more[64];

	if (size > PAGE_SIZE)
		return -E2BIG;
	if (size < CLONE_ARGS_SIZE_VER0)
		return -EINVAL;
	memset(u, 0, sizeof(*u));
	if (copy_from_user(u, uargs, MIN(size, sizeof(*u))) != 0)
		return -EFAULT;
	for (size_t at = sizeof(*u); at < size; at += sizeof(more)) {
		size_t n = MIN(size - at, sizeof(more));

		if (copy_from_user(more, (const uint8_t __user *)uargs + at, n) != 0)
			return -EFAULT;
		for (size_t i = 0; i < n; i++)
			if (more[i] != 0)
				return -E2BIG;
	}
	return 0;
}

SYSCALL(clone3, const void __user *uargs, size_t size)
{
	struct clone_args_user u;
	struct clone_args_k a;
	int r;

	r = clone_args_get(&u, uargs, size);
	if (r != 0)
		return r;
	if (u.set_tid_size > 32 || (u.set_tid == 0) != (u.set_tid_size == 0))
		return -EINVAL;
	if (u.exit_signal > KSIGMAX)
		return -EINVAL;
	if ((u.flags & CLONE_INTO_CGROUP) != 0 &&
	    (u.cgroup > 0x7fffffff || size < CLONE_ARGS_SIZE_VER2))
		return -EINVAL;
	if (u.stack == 0 ? u.stack_size != 0 : u.stack_size == 0)
		return -EINVAL;
	if (u.stack != 0 && (u.stack >= CM_USER_TOP || u.stack_size > CM_USER_TOP - u.stack))
		return -EINVAL;
	a = (struct clone_args_k){
		.flags = u.flags, .exit_signal = (int)u.exit_signal,
		.stack = u.stack + u.stack_size, .tls = u.tls, .clone3 = true,
		.pidfd = (int __user *)u.pidfd, .child_tid = (int __user *)u.child_tid,
		.parent_tid = (int __user *)u.parent_tid,
	};
	r = clone_check(&a);
	if (r != 0)
		return r;
	if (u.set_tid != 0)
		return syscall_partial("clone3", "set_tid", -EPERM);
	return clone_task(&a);
}

SYSCALL(set_tid_address, uint32_t __user *tidptr)
{
	current->clear_child_tid = tidptr;
	return current->tid;
}

/* ---- unshare ---- */

#define CLONE_UNSHARE	(CLONE_THREAD | CLONE_FS | CLONE_SIGHAND | CLONE_VM | CLONE_FILES | \
			 CLONE_SYSVSEM | CLONE_NEWUSER | CLONE_NEW_OTHER)

static int unshare_fs(struct process *p)
{
	struct fs_context *copy;

	if (p->fs->refs == 1)
		return 0;
	copy = fs_context_copy(p->fs);
	if (copy == NULL)
		return -ENOMEM;
	fs_context_put(p->fs);
	p->fs = copy;
	return 0;
}

static int unshare_files(struct process *p)
{
	struct files *old = p->files, *copy;

	if (!files_is_shared(old))
		return 0;
	copy = files_copy(old);
	if (copy == NULL)
		return -ENOMEM;
	p->files = copy;
	files_put(old);
	return 0;
}

SYSCALL(unshare, unsigned long flags)
{
	struct process *p = current->proc;
	int r = 0;

	if ((flags & ~CLONE_UNSHARE) != 0)
		return -EINVAL;
	/* What it takes along: a user namespace wants one thread, memory its signal handlers. */
	if ((flags & (CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWUSER)) != 0 &&
	    p->nthreads > 1)
		return -EINVAL;
	if ((flags & (CLONE_SIGHAND | CLONE_VM)) != 0 && p->sighand->refs > 1)
		return -EINVAL;
	if ((flags & CLONE_VM) != 0 && current->mm->refs > 1)
		return -EINVAL;
	if ((flags & CLONE_NEWUSER) != 0)
		return syscall_partial("unshare", "user namespaces", -EINVAL);
	if ((flags & CLONE_NEW_OTHER) != 0) {
		if (!capable(CAP_SYS_ADMIN))
			return -EPERM;
		return syscall_partial("unshare", "namespaces", -EINVAL);
	}
	if ((flags & (CLONE_FS | CLONE_FILES)) != 0 && p->nthreads > 1)
		return syscall_partial("unshare", "CLONE_FS or CLONE_FILES between threads",
				       -EINVAL);
	if ((flags & CLONE_FS) != 0)
		r = unshare_fs(p);
	if (r == 0 && (flags & CLONE_FILES) != 0)
		r = unshare_files(p);
	return r;
}
