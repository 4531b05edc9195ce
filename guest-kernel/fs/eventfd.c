/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eventfd(2): a 64-bit counter behind a descriptor. Reading takes it all (or one, as a
 * semaphore) and waits while it is zero; writing adds and waits while that would overflow.
 */
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/wait.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/page.h"

#define EVENTFD_SEMAPHORE 1u

struct eventfd {
	uint64_t count;
	bool semaphore;
	struct waitq wq;
};

static long eventfd_read(struct file *f, struct uio *u, uint64_t *pos)
{
	struct eventfd *e = f->priv;
	uint64_t got;
	int r;

	if (u->resid < sizeof(got))
		return -EINVAL;
	if (e->count == 0) {
		if ((f->flags & KO_NONBLOCK) != 0)
			return -EAGAIN;
		r = WAIT_EVENT(&e->wq, e->count != 0);
		if (r != 0)
			return r;
	}
	got = e->semaphore ? 1 : e->count;
	e->count -= got;
	waitq_wake_all(&e->wq, KPOLLOUT);
	return uio_put(u, &got, sizeof(got)) == sizeof(got) ? (long)sizeof(got) : -EFAULT;
}

static long eventfd_write(struct file *f, struct uio *u, uint64_t *pos)
{
	struct eventfd *e = f->priv;
	uint64_t add;
	int r;

	if (u->resid < sizeof(add))
		return -EINVAL;
	if (uio_get(u, &add, sizeof(add)) != sizeof(add))
		return -EFAULT;
	if (add == UINT64_MAX)
		return -EINVAL;
	if (UINT64_MAX - e->count <= add) {
		if ((f->flags & KO_NONBLOCK) != 0)
			return -EAGAIN;
		r = WAIT_EVENT(&e->wq, UINT64_MAX - e->count > add);
		if (r != 0)
			return r;
	}
	e->count += add;
	waitq_wake_all(&e->wq, KPOLLIN);
	return sizeof(add);
}

static unsigned eventfd_poll(struct file *f, struct poll_table *pt)
{
	struct eventfd *e = f->priv;
	unsigned events = 0;

	poll_wait(pt, &e->wq);
	if (e->count > 0)
		events |= KPOLLIN;
	if (e->count == UINT64_MAX)
		events |= KPOLLERR;
	if (e->count < UINT64_MAX - 1)
		events |= KPOLLOUT;
	return events;
}

static void eventfd_release(struct file *f)
{
	kfree(f->priv);
}

static void eventfd_show(struct file *f, struct strbuf *sb)
{
	struct eventfd *e = f->priv;

	strbuf_printf(sb, "eventfd-count: %16lx\n", e->count);
}

static const struct file_ops eventfd_ops = {
	.read = eventfd_read,
	.write = eventfd_write,
	.lseek = anon_lseek,
	.poll = eventfd_poll,
	.release = eventfd_release,
	.show_fdinfo = eventfd_show,
};

static long eventfd_create(unsigned count, unsigned flags)
{
	struct eventfd *e;
	struct file *f;

	if ((flags & ~(EVENTFD_SEMAPHORE | KO_CLOEXEC | KO_NONBLOCK)) != 0)
		return -EINVAL;
	e = kzalloc(sizeof(*e));
	if (e == NULL)
		return -ENOMEM;
	e->count = count;
	e->semaphore = (flags & EVENTFD_SEMAPHORE) != 0;
	waitq_init(&e->wq);
	f = anon_file_new("anon_inode:[eventfd]", &eventfd_ops, e, flags & KO_NONBLOCK);
	if (IS_ERR(f)) {
		kfree(e);
		return PTR_ERR(f);
	}
	return fd_install(f, 0, (flags & KO_CLOEXEC) != 0);
}

SYSCALL(eventfd, unsigned count)
{
	return eventfd_create(count, 0);
}

SYSCALL(eventfd2, unsigned count, unsigned flags)
{
	return eventfd_create(count, flags);
}
