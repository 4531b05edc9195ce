/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fcntl(2) and ioctl(2): the commands that mean the same for every file; the rest goes to the
 * lock code, to pipes, or to the file's own operations.
 */
#include <asm/ioctls.h>
#include <linux/fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/mman.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/ipc/pipe.h"
#include "guest-kernel/mm/mm.h"

#define SETFL_MASK (KO_APPEND | KO_NONBLOCK | KO_ASYNC | KO_DIRECT | KO_NOATIME)

/* O_ASYNC is kept and shown. On regular files and directories it does nothing on Linux either. */
static long note_async(const struct file *f, uint32_t set)
{
	if ((set & KO_ASYNC) == 0 || KS_ISREG(f->inode->mode) || KS_ISDIR(f->inode->mode))
		return 0;
	return syscall_partial("fcntl", "O_ASYNC sends no SIGIO", 0);
}

static long set_flags(struct file *f, unsigned long arg)
{
	uint32_t want = (uint32_t)arg & SETFL_MASK;
	uint32_t changed = (f->flags ^ want) & SETFL_MASK;

	if ((changed & want & KO_NOATIME) != 0 && inode_owner_or_capable(f->inode) != 0)
		return -EPERM;
	if ((changed & want & KO_DIRECT) != 0 && KS_ISREG(f->inode->mode))
		return -EINVAL;
	f->flags = (f->flags & ~SETFL_MASK) | want;
	return note_async(f, changed & want);
}

struct f_owner {
	int type, pid;
};

static long owner_ex(struct file *f, unsigned cmd, void __user *arg)
{
	struct f_owner o;

	if (cmd == F_GETOWN_EX) {
		o.type = f->owner_pid < 0 ? F_OWNER_PGRP : F_OWNER_PID;
		o.pid = f->owner_pid < 0 ? -f->owner_pid : f->owner_pid;
		return PUT_USER(o, arg);
	}
	if (GET_USER(o, arg) != 0)
		return -EFAULT;
	if (o.type < F_OWNER_TID || o.type > F_OWNER_PGRP || o.pid < 0)
		return -EINVAL;
	f->owner_pid = o.type == F_OWNER_PGRP ? -o.pid : o.pid;
	return 0;
}

/* A shared mapping that can write, or could be made to. */
static bool seal_blocked_by_mapping(struct inode *i)
{
	struct vma *v;

	TAILQ_FOREACH(v, &i->mappings, file_link) {
		if ((v->flags & MAP_SHARED) != 0 && (v->max_prot & PROT_WRITE) != 0)
			return true;
	}
	return false;
}

static long add_seals(struct file *f, unsigned seals)
{
	struct inode *i = f->inode;

	if ((seals & ~(unsigned)(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE |
				 F_SEAL_FUTURE_WRITE)) != 0)
		return -EINVAL;
	if (!f->can_write)
		return -EPERM;
	if ((i->flags & INODE_MEMFD) == 0)
		return -EINVAL;
	if ((i->seals & F_SEAL_SEAL) != 0)
		return -EPERM;
	if ((seals & F_SEAL_WRITE) != 0 && (i->seals & F_SEAL_WRITE) == 0 &&
	    seal_blocked_by_mapping(i))
		return -EBUSY;
	i->seals |= seals;
	return 0;
}

/* Commands that work on O_PATH descriptors too. */
static long fcntl_path(int fd, struct file *f, unsigned cmd, unsigned long arg)
{
	switch (cmd) {
	case F_DUPFD:
		return fd_dup_min(fd, arg, false);
	case F_DUPFD_CLOEXEC:
		return fd_dup_min(fd, arg, true);
	case F_GETFD:
		return files_cloexec(current->proc->files, fd) ? FD_CLOEXEC : 0;
	case F_SETFD:
		fd_set_cloexec(fd, (arg & FD_CLOEXEC) != 0);
		return 0;
	case F_GETFL:
		return file_flags_shown(f);
	}
	return -EBADF;
}

static long fcntl_file(struct file *f, unsigned cmd, unsigned long arg)
{
	switch (cmd) {
	case F_SETFL:
		return set_flags(f, arg);
	case F_GETLK:
	case F_SETLK:
	case F_SETLKW:
	case F_OFD_GETLK:
	case F_OFD_SETLK:
	case F_OFD_SETLKW:
		return locks_fcntl(f, cmd, (void __user *)arg);
	case F_GETOWN:
		return f->owner_pid;
	case F_SETOWN:
		if ((int)arg == INT32_MIN)
			return -EINVAL;
		f->owner_pid = (int)arg;
		return 0;
	case F_GETOWN_EX:
	case F_SETOWN_EX:
		return owner_ex(f, cmd, (void __user *)arg);
	case F_GETSIG:
		return f->owner_sig;
	case F_SETSIG:
		if (arg > KSIGMAX)
			return -EINVAL;
		f->owner_sig = (int)arg;
		return 0;
	case F_GETLEASE:
		return F_UNLCK;
	case F_SETLEASE:
		if (!KS_ISREG(f->inode->mode))
			return -EINVAL;
		return arg == F_UNLCK ? -EAGAIN :
					syscall_partial("fcntl", "F_SETLEASE", -EINVAL);
	case F_NOTIFY:
		if (!KS_ISDIR(f->inode->mode))
			return -ENOTDIR;
		if ((arg & ~(unsigned long)DN_MULTISHOT) == 0)
			return 0;	/* takes away what is not there */
		return syscall_partial("fcntl", "F_NOTIFY", -EINVAL);
	case F_SETPIPE_SZ:
	case F_GETPIPE_SZ:
		return pipe_fcntl(f, cmd, arg);
	case F_ADD_SEALS:
		return add_seals(f, (unsigned)arg);
	case F_GET_SEALS:
		return (f->inode->flags & INODE_MEMFD) != 0 ? (long)f->inode->seals : -EINVAL;
	}
	return -EINVAL;
}

SYSCALL(fcntl, unsigned fd, unsigned cmd, unsigned long arg)
{
	struct file *f = fd_get_path((int)fd);
	long r;

	if (f == NULL)
		return -EBADF;
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC || (cmd >= F_GETFD && cmd <= F_GETFL) ||
	    (f->flags & KO_PATH) != 0)
		r = fcntl_path((int)fd, f, cmd, arg);
	else
		r = fcntl_file(f, cmd, arg);
	file_put(f);
	return r;
}

static long set_flag_from_user(struct file *f, uint32_t flag, unsigned long arg)
{
	int on;

	if (GET_USER(on, (int __user *)arg) != 0)
		return -EFAULT;
	f->flags = on != 0 ? f->flags | flag : f->flags & ~flag;
	return note_async(f, on != 0 ? flag : 0);
}

static long ioctl_regular(struct file *f, unsigned cmd, unsigned long arg)
{
	int n;

	switch (cmd) {
	case FIONREAD: {
		int64_t left = (int64_t)(f->inode->size - f->pos);

		n = left > INT32_MAX ? INT32_MAX : (int)left;
		return PUT_USER(n, (int __user *)arg);
	}
	case FIGETBSZ:
		n = (int)PAGE_SIZE;
		return PUT_USER(n, (int __user *)arg);
	case FICLONE:
	case FICLONERANGE:
	case FIDEDUPERANGE:
	case FS_IOC_FIEMAP:
		return -EOPNOTSUPP;
	}
	return f->ops->ioctl != NULL ? f->ops->ioctl(f, cmd, arg) : -ENOTTY;
}

SYSCALL(ioctl, unsigned fd, unsigned cmd, unsigned long arg)
{
	struct file *f = fd_get((int)fd);
	long r;

	if (f == NULL)
		return -EBADF;
	switch (cmd) {
	case FIOCLEX:
	case FIONCLEX:
		fd_set_cloexec((int)fd, cmd == FIOCLEX);
		r = 0;
		break;
	case FIONBIO:
		r = set_flag_from_user(f, KO_NONBLOCK, arg);
		break;
	case FIOASYNC:
		r = set_flag_from_user(f, KO_ASYNC, arg);
		break;
	case FIOQSIZE: {
		int64_t size = (int64_t)f->inode->size;

		if (KS_ISDIR(f->inode->mode) || KS_ISREG(f->inode->mode) ||
		    KS_ISLNK(f->inode->mode))
			r = PUT_USER(size, (int64_t __user *)arg);
		else
			r = -ENOTTY;
		break;
	}
	default:
		if (KS_ISREG(f->inode->mode))
			r = ioctl_regular(f, cmd, arg);
		else
			r = f->ops->ioctl != NULL ? f->ops->ioctl(f, cmd, arg) : -ENOTTY;
	}
	file_put(f);
	return r;
}
