/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File descriptors for processes: a reference to the struct process, readable (for poll) once
 * the process is a zombie. Such a reference outlives the pid: when the process has been waited
 * for, operations answer ESRCH.
 */
#include <linux/capability.h>
#include <linux/kcmp.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"
#include "guest-kernel/proc/proc.h"

static unsigned pidfd_poll(struct file *f, struct poll_table *pt)
{
	struct process *p = f->priv;

	poll_wait(pt, &p->wait_exit);
	return p->zombie ? KPOLLIN | KPOLLRDNORM : 0;
}

static void pidfd_release(struct file *f)
{
	process_put(f->priv);
}

static void pidfd_show_fdinfo(struct file *f, struct strbuf *sb)
{
	const struct process *p = f->priv;
	int pid = p->reaped ? -1 : p->pid;

	strbuf_printf(sb, "Pid:\t%d\nNSpid:\t%d\n", pid, pid);
}

static const struct file_ops pidfd_ops = {
	.lseek = anon_lseek,
	.poll = pidfd_poll,
	.release = pidfd_release,
	.show_fdinfo = pidfd_show_fdinfo,
};

struct file *pidfd_file_new(struct process *p, bool nonblock)
{
	struct file *f;

	process_get(p);
	f = anon_file_new("anon_inode:[pidfd]", &pidfd_ops, p,
			  KO_RDWR | (nonblock ? KO_NONBLOCK : 0));
	if (IS_ERR(f))
		process_put(p);
	return f;
}

struct process *pidfd_process(int fd, bool *ret_nonblock)
{
	struct file *f = fd_get(fd);
	struct process *p;

	if (f == NULL)
		return ERR_PTR(-EBADF);
	if (f->ops != &pidfd_ops) {
		file_put(f);
		return ERR_PTR(-EBADF);
	}
	p = f->priv;
	process_get(p);
	*ret_nonblock = (f->flags & KO_NONBLOCK) != 0;
	file_put(f);
	return p;
}

/* The process of an open /proc/PID directory, which pidfd_send_signal takes too. */
static struct process *open_proc_process(int fd)
{
	struct file *f = fd_get(fd);
	struct process *p = f != NULL ? proc_file_process(f) : NULL;

	if (f != NULL)
		file_put(f);
	return p != NULL ? p : ERR_PTR(-EBADF);
}

SYSCALL(pidfd_open, int pid, unsigned flags)
{
	struct process *p;
	struct file *f;

	if ((flags & ~KO_NONBLOCK) != 0 || pid <= 0)
		return -EINVAL;
	p = process_find(pid);
	if (p == NULL)
		return task_find(pid) != NULL ? -EINVAL : -ESRCH;
	f = pidfd_file_new(p, (flags & KO_NONBLOCK) != 0);
	if (IS_ERR(f))
		return PTR_ERR(f);
	return fd_install(f, 0, true);
}

/* siginfo_t as rt_sigqueueinfo takes it: the fields a signal sent by a program carries. */
static int siginfo_from_user(struct ksiginfo *ret, const uint8_t __user *uinfo)
{
	int32_t head[4], ids[2];
	uint64_t value;

	if (copy_from_user(head, uinfo, sizeof(head)) != 0 ||
	    copy_from_user(ids, uinfo + 16, sizeof(ids)) != 0 ||
	    copy_from_user(&value, uinfo + 24, sizeof(value)) != 0)
		return -EFAULT;
	*ret = (struct ksiginfo){
		.signo = head[0], .error = head[1], .code = head[2],
		.pid = ids[0], .uid = (uint32_t)ids[1], .value = value,
	};
	return 0;
}

static int pidfd_signal(struct process *p, int sig, const uint8_t __user *uinfo)
{
	struct ksiginfo info = {
		.signo = sig, .code = KSI_USER,
		.pid = current->proc->pid, .uid = current->proc->cred->uid,
	};
	int r;

	if (uinfo != NULL) {
		r = siginfo_from_user(&info, uinfo);
		if (r != 0)
			return r;
		if (info.signo != sig)
			return -EINVAL;
		/* Nobody may pretend to be the kernel or another sender, but to itself. */
		if (p != current->proc && (info.code >= 0 || info.code == KSI_TKILL))
			return -EPERM;
	}
	if (sig < 0 || sig > KSIGMAX)
		return -EINVAL;
	if (p->reaped)
		return -ESRCH;
	r = kill_allowed(p, sig);
	if (r != 0 || sig == 0)
		return r;
	return signal_send_process(p, sig, &info);
}

SYSCALL(pidfd_send_signal, int fd, int sig, const uint8_t __user *uinfo, unsigned flags)
{
	struct process *p;
	bool nonblock;
	int r;

	if (flags != 0)
		return -EINVAL;
	p = pidfd_process(fd, &nonblock);
	if (IS_ERR(p))
		p = open_proc_process(fd);
	if (IS_ERR(p))
		return PTR_ERR(p);
	r = pidfd_signal(p, sig, uinfo);
	process_put(p);
	return r;
}

/* May current look into p? The rule of ptrace: same user in all ids, no more capabilities. */
static bool may_inspect(const struct process *p)
{
	const struct cred *c = current->proc->cred, *o = p->cred;

	if (p == current->proc || capable(CAP_SYS_PTRACE))
		return true;
	return c->fsuid == o->uid && c->fsuid == o->euid && c->fsuid == o->suid &&
	       c->fsgid == o->gid && c->fsgid == o->egid && c->fsgid == o->sgid &&
	       p->dumpable && (o->cap_perm & ~c->cap_perm) == 0;
}

static int pidfd_get(struct process *p, int fd)
{
	struct file *f;

	if (p->reaped || p->files == NULL)
		return -ESRCH;
	if (!may_inspect(p))
		return -EPERM;
	f = files_file(p->files, fd);
	if (f == NULL)
		return -EBADF;
	return fd_install(f, 0, true);
}

SYSCALL(pidfd_getfd, int pidfd, int fd, unsigned flags)
{
	struct process *p;
	bool nonblock;
	int r;

	if (flags != 0)
		return -EINVAL;
	p = pidfd_process(pidfd, &nonblock);
	if (IS_ERR(p))
		return PTR_ERR(p);
	r = pidfd_get(p, fd);
	process_put(p);
	return r;
}

/* ---- kcmp: do two processes share something? ---- */

/* 0 equal, 1 less, 2 greater: an order, but not that of the addresses. */
static long kcmp_order(const void *a, const void *b)
{
	static uint64_t secret[2];
	uint64_t x, y;

	if (secret[1] == 0) {
		random_bytes(secret, sizeof(secret));
		secret[1] |= 1;		/* odd, or different pointers could look equal */
	}
	x = ((uint64_t)(uintptr_t)a ^ secret[0]) * secret[1];
	y = ((uint64_t)(uintptr_t)b ^ secret[0]) * secret[1];
	return (x < y ? 1 : 0) | (x > y ? 2 : 0);
}

static long kcmp_files(struct process *p1, struct process *p2, unsigned long fd1,
		       unsigned long fd2)
{
	struct file *f1, *f2;
	long r = -EBADF;

	if (p1->files == NULL || p2->files == NULL || MAX(fd1, fd2) > INT32_MAX)
		return -EBADF;
	f1 = files_file(p1->files, (int)fd1);
	f2 = files_file(p2->files, (int)fd2);
	if (f1 != NULL && f2 != NULL)
		r = kcmp_order(f1, f2);
	file_put(f1);
	file_put(f2);
	return r;
}

SYSCALL(kcmp, int pid1, int pid2, int type, unsigned long fd1, unsigned long fd2)
{
	struct task *t1 = task_find(pid1), *t2 = task_find(pid2);
	struct process *p1, *p2;

	if (t1 == NULL || t2 == NULL)
		return -ESRCH;
	p1 = t1->proc;
	p2 = t2->proc;
	if (!may_inspect(p1) || !may_inspect(p2))
		return -EPERM;
	switch (type) {
	case KCMP_FILE:
		return kcmp_files(p1, p2, fd1, fd2);
	case KCMP_VM:
		return kcmp_order(t1->mm, t2->mm);
	case KCMP_FILES:
		return kcmp_order(p1->files, p2->files);
	case KCMP_FS:
		return kcmp_order(p1->fs, p2->fs);
	case KCMP_SIGHAND:
		return kcmp_order(p1->sighand, p2->sighand);
	case KCMP_IO:
		return 0;		/* nobody has an I/O context */
	case KCMP_SYSVSEM:
	case KCMP_EPOLL_TFD:
		return -EOPNOTSUPP;	/* as where they are not configured */
	default:
		return -EINVAL;
	}
}
