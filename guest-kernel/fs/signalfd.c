/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signalfd(2): pending signals of the reader, taken by read(2). What is readable depends on
 * who asks, so all signalfds share one wait queue, woken whenever a signal becomes pending.
 */
#include <linux/signalfd.h>

#include "guest-kernel/core/signal_internal.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define POLL_LAYOUT_MAX 6	/* NSIGPOLL */

struct ksignalfd {
	uint64_t mask;		/* signals wanted */
};

static uint64_t ready(const struct ksignalfd *s)
{
	return (current->pending.set | current->proc->pending.set) & s->mask;
}

static void fill(struct signalfd_siginfo *out, const struct ksiginfo *si)
{
	memset(out, 0, sizeof(*out));
	out->ssi_signo = (uint32_t)si->signo;
	out->ssi_errno = si->error;
	out->ssi_code = si->code;
	if (si->code == KSI_TIMER) {
		out->ssi_tid = (uint32_t)si->timer_id;
		out->ssi_overrun = (uint32_t)si->overrun;
		out->ssi_ptr = si->value;
		out->ssi_int = (int32_t)si->value;
		return;
	}
	if (si->code <= 0 || si->code >= KSI_KERNEL || si->signo == KSIGCHLD) {
		out->ssi_pid = (uint32_t)si->pid;
		out->ssi_uid = si->uid;
	}
	if (si->code < 0) {
		out->ssi_ptr = si->value;
		out->ssi_int = (int32_t)si->value;
		return;
	}
	if (si->code == 0 || si->code >= KSI_KERNEL)
		return;
	switch (si->signo) {
	case KSIGCHLD:
		out->ssi_status = si->status;
		out->ssi_utime = si->utime;
		out->ssi_stime = si->stime;
		break;
	case KSIGILL:
	case KSIGFPE:
	case KSIGSEGV:
	case KSIGBUS:
	case KSIGTRAP:
		out->ssi_addr = si->addr;
		break;
	case KSIGSYS:
		out->ssi_call_addr = si->addr;
		out->ssi_syscall = si->syscall;
		out->ssi_arch = 0xc000003e;
		break;
	default:
		if (si->code <= POLL_LAYOUT_MAX) {
			out->ssi_band = (uint32_t)si->band;
			out->ssi_fd = si->fd;
		}
		break;
	}
}

static int take(struct ksignalfd *s, bool nonblock, struct ksiginfo *info)
{
	int sig = signal_dequeue(~s->mask, info), r;

	while (sig == 0) {
		if (nonblock)
			return -EAGAIN;
		r = WAIT_EVENT(&signalfd_waitq, ready(s) != 0);
		if (r != 0)
			return r;
		sig = signal_dequeue(~s->mask, info);
	}
	return 0;
}

static long signalfd_read(struct file *f, struct uio *u, uint64_t *pos)
{
	struct ksignalfd *s = f->priv;
	struct signalfd_siginfo out;
	struct ksiginfo info;
	long total = 0;
	int r = 0;

	if (u->resid < sizeof(out))
		return -EINVAL;
	while (u->resid >= sizeof(out)) {
		r = take(s, total != 0 || (f->flags & KO_NONBLOCK) != 0, &info);
		if (r != 0)
			break;
		fill(&out, &info);
		if (uio_put(u, &out, sizeof(out)) != sizeof(out)) {
			r = -EFAULT;
			break;
		}
		total += (long)sizeof(out);
	}
	return total != 0 ? total : r;
}

static unsigned signalfd_poll(struct file *f, struct poll_table *pt)
{
	poll_wait(pt, &signalfd_waitq);
	return ready(f->priv) != 0 ? KPOLLIN : 0;
}

static void signalfd_release(struct file *f)
{
	kfree(f->priv);
}

static void signalfd_show(struct file *f, struct strbuf *sb)
{
	struct ksignalfd *s = f->priv;

	strbuf_printf(sb, "sigmask:\t%016lx\n", s->mask);
}

static const struct file_ops signalfd_ops = {
	.read = signalfd_read,
	.lseek = anon_lseek,
	.poll = signalfd_poll,
	.release = signalfd_release,
	.show_fdinfo = signalfd_show,
};

static long signalfd_new(uint64_t mask, uint32_t flags)
{
	struct ksignalfd *s = kzalloc(sizeof(*s));
	struct file *f;

	if (s == NULL)
		return -ENOMEM;
	s->mask = mask;
	f = anon_file_new("anon_inode:[signalfd]", &signalfd_ops, s, flags & KO_NONBLOCK);
	if (IS_ERR(f)) {
		kfree(s);
		return PTR_ERR(f);
	}
	return fd_install(f, 0, (flags & KO_CLOEXEC) != 0);
}

static long signalfd_do(int fd, const uint64_t __user *umask, size_t size, uint32_t flags)
{
	struct ksignalfd *s;
	struct file *f;
	uint64_t mask;

	if (size != sizeof(mask))
		return -EINVAL;
	if (GET_USER(mask, umask) != 0)
		return -EFAULT;
	if ((flags & ~(KO_CLOEXEC | KO_NONBLOCK)) != 0)
		return -EINVAL;
	mask &= ~SIG_KERNEL_ONLY;
	if (fd == -1)
		return signalfd_new(mask, flags);
	f = fd_get(fd);
	if (f == NULL)
		return -EBADF;
	if (f->ops != &signalfd_ops) {
		file_put(f);
		return -EINVAL;
	}
	s = f->priv;
	s->mask = mask;
	waitq_wake_all(&signalfd_waitq, KPOLLIN);
	file_put(f);
	return fd;
}

SYSCALL(signalfd, int fd, const uint64_t __user *umask, size_t size)
{
	return signalfd_do(fd, umask, size, 0);
}

SYSCALL(signalfd4, int fd, const uint64_t __user *umask, size_t size, uint32_t flags)
{
	return signalfd_do(fd, umask, size, flags);
}
