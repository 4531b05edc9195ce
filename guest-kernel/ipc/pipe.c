/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipes and FIFOs.
 *
 * A pipe is a ring of slots, each a page with an offset and a length. A small write is merged
 * into the last page when it fits there whole, so that writes up to PIPE_BUF are atomic: they
 * either fit into one page or wait. Pages are allocated by the writer when it needs them; a
 * drained page is kept as a spare. In packet mode (O_DIRECT) a slot is never merged and a
 * read takes one slot.
 *
 * Wake-ups: a writer wakes readers when it made an empty pipe non-empty (or somebody polls, as
 * edge-triggered epoll wants to hear of each write), and a reader wakes writers when it took
 * the pipe out of being full. Readers and writers sleep exclusively: whoever leaves something
 * to do wakes the next one.
 *
 * inode->pipe is the pipe of an open FIFO, or of a pipe(2) inode. It is freed with the last
 * open file. f->priv is the pipe; f->readdir_pos (streams have no directory position) is the
 * writer count at open, which tells "no writer yet" from "the writers have gone".
 */
#include "guest-kernel/ipc/pipe.h"

#include <asm/ioctls.h>

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/ipc.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define SLOT_PACKET	0x1u

struct pipe_slot {
	struct page *page;
	uint16_t off;
	uint16_t len;
	uint32_t flags;
};

struct pipe {
	struct pipe_slot *slots;
	unsigned nslots;		/* a power of two */
	unsigned head, tail;		/* counters; head - tail slots are in use */
	struct page *spare;
	unsigned readers, writers, files;
	uint64_t r_count, w_count;	/* opens so far: partners wait for a change */
	bool polled;
	struct waitq rd, wr;
};

#define READ_EVENTS	(KPOLLIN | KPOLLRDNORM)
#define WRITE_EVENTS	(KPOLLOUT | KPOLLWRNORM)

static struct superblock pipe_sb = {
	.type = "pipefs", .dev = KMKDEV(0, 10), .magic = 0x50495045, .next_ino = 1,
};
static const struct inode_ops pipe_inode_ops = { .setattr = ipc_setattr };
static const struct file_ops pipe_ops;

static inline struct pipe_slot *slot_at(struct pipe *p, unsigned n)
{
	return &p->slots[n & (p->nslots - 1)];
}

static inline bool pipe_empty(const struct pipe *p)
{
	return p->head == p->tail;
}

static inline bool pipe_full(const struct pipe *p)
{
	return p->head - p->tail >= p->nslots;
}

static struct pipe *pipe_new(void)
{
	struct pipe *p = kzalloc(sizeof(*p));

	if (p == NULL)
		return NULL;
	p->nslots = PIPE_DEFAULT_SIZE / PAGE_SIZE;
	p->slots = kcalloc(p->nslots, sizeof(*p->slots));
	if (p->slots == NULL) {
		kfree(p);
		return NULL;
	}
	waitq_init(&p->rd);
	waitq_init(&p->wr);
	return p;
}

static void slot_drop(struct pipe *p, struct pipe_slot *s)
{
	if (p->spare == NULL && s->page->refs == 1)
		p->spare = s->page;
	else
		page_put(s->page);
	s->page = NULL;
}

static void pipe_free(struct pipe *p)
{
	while (!pipe_empty(p))
		page_put(slot_at(p, p->tail++)->page);
	if (p->spare != NULL)
		page_put(p->spare);
	kfree(p->slots);
	kfree(p);
}

static struct page *page_take(struct pipe *p)
{
	struct page *page = p->spare;

	p->spare = NULL;
	return page != NULL ? page : page_alloc(0, 0);
}

/* ---- reading ---- */

/* Takes what is there, up to the reader's size. Bytes, or -EFAULT. */
static long pipe_take(struct pipe *p, struct uio *u)
{
	long done = 0;

	while (!pipe_empty(p) && u->resid != 0) {
		struct pipe_slot *s = slot_at(p, p->tail);
		size_t n = MIN((size_t)s->len, u->resid);
		bool packet = (s->flags & SLOT_PACKET) != 0;

		if (uio_put(u, (char *)page_to_virt(s->page) + s->off, n) < n)
			return done != 0 ? done : -EFAULT;
		done += (long)n;
		s->off = (uint16_t)(s->off + n);
		s->len = (uint16_t)(s->len - n);
		if (s->len == 0 || packet) {
			slot_drop(p, s);
			p->tail++;
		}
		if (packet)
			break;
	}
	return done;
}

static long pipe_read(struct file *f, struct uio *u, uint64_t *pos)
{
	struct pipe *p = f->priv;
	long ret;

	if (u->resid == 0)
		return 0;
	for (;;) {
		bool was_full = pipe_full(p);

		if (!pipe_empty(p)) {
			ret = pipe_take(p, u);
			if (was_full && !pipe_full(p))
				waitq_wake(&p->wr, WRITE_EVENTS);
			break;
		}
		if (p->writers == 0)
			return 0;
		if (f->flags & KO_NONBLOCK)
			return -EAGAIN;
		ret = WAIT_EVENT_FULL(&p->rd, !pipe_empty(p) || p->writers == 0, NO_DEADLINE,
				      true, true);
		if (ret != 0)
			return ret;
	}
	if (!pipe_empty(p) && !waitq_empty(&p->rd))
		waitq_wake(&p->rd, READ_EVENTS);
	return ret;
}

/* ---- writing ---- */

static void pipe_signal(void)
{
	struct ksiginfo si = {
		.signo = KSIGPIPE, .code = KSI_USER,
		.pid = current->proc->pid, .uid = current->proc->cred->uid,
	};

	signal_send_task(current, KSIGPIPE, &si);
}

/* Puts a tail of up to PAGE_SIZE - 1 bytes into the last page if it fits whole. */
static long pipe_merge(struct pipe *p, struct uio *u)
{
	size_t chars = u->resid & (PAGE_SIZE - 1);
	struct pipe_slot *s;
	size_t got;

	if (chars == 0 || pipe_empty(p))
		return 0;
	s = slot_at(p, p->head - 1);
	if ((s->flags & SLOT_PACKET) || s->page->refs != 1 ||
	    (size_t)s->off + s->len + chars > PAGE_SIZE)
		return 0;
	got = uio_get(u, (char *)page_to_virt(s->page) + s->off + s->len, chars);
	if (got < chars)
		return -EFAULT;
	s->len = (uint16_t)(s->len + chars);
	return (long)chars;
}

/* One page more. Bytes, -ENOMEM, -EFAULT. */
static long pipe_append(struct pipe *p, struct uio *u, uint32_t flags)
{
	size_t n = MIN(u->resid, (size_t)PAGE_SIZE);
	struct page *page = page_take(p);
	struct pipe_slot *s;
	size_t got;

	if (page == NULL)
		return -ENOMEM;
	got = uio_get(u, page_to_virt(page), n);
	if (got < n) {	/* what could be read of it is not written either, as on Linux */
		if (p->spare == NULL)
			p->spare = page;
		else
			page_put(page);
		return -EFAULT;
	}
	s = slot_at(p, p->head);
	*s = (struct pipe_slot){ .page = page, .len = (uint16_t)got, .flags = flags };
	p->head++;
	return (long)got;
}

static long pipe_write(struct file *f, struct uio *u, uint64_t *pos)
{
	struct pipe *p = f->priv;
	uint32_t flags = f->flags & KO_DIRECT ? SLOT_PACKET : 0;
	bool was_empty = pipe_empty(p);
	long ret = 0, n;

	if (u->resid == 0)
		return 0;
	if (p->readers != 0 && flags == 0) {
		ret = pipe_merge(p, u);
		if (ret < 0)
			return ret;
	}
	while (u->resid != 0) {
		if (p->readers == 0) {
			pipe_signal();
			if (ret == 0)
				ret = -EPIPE;
			break;
		}
		if (!pipe_full(p)) {
			n = pipe_append(p, u, flags);
			if (n < 0) {
				if (ret == 0)
					ret = n;
				break;
			}
			ret += n;
			continue;
		}
		if (f->flags & KO_NONBLOCK) {
			if (ret == 0)
				ret = -EAGAIN;
			break;
		}
		if (was_empty || p->polled)
			waitq_wake(&p->rd, READ_EVENTS);
		n = WAIT_EVENT_FULL(&p->wr, !pipe_full(p) || p->readers == 0, NO_DEADLINE, true,
				    true);
		if (n != 0) {
			if (ret == 0)
				ret = n;
			was_empty = false;
			break;
		}
		was_empty = pipe_empty(p);
	}
	if (!pipe_empty(p) && (was_empty || p->polled))
		waitq_wake(&p->rd, READ_EVENTS);
	if (!pipe_full(p) && !waitq_empty(&p->wr))
		waitq_wake(&p->wr, WRITE_EVENTS);
	return ret;
}

static unsigned pipe_poll(struct file *f, struct poll_table *pt)
{
	struct pipe *p = f->priv;
	unsigned ev = 0;

	p->polled = true;
	if (f->can_read) {
		poll_wait(pt, &p->rd);
		if (!pipe_empty(p))
			ev |= READ_EVENTS;
		if (p->writers == 0 && f->readdir_pos != p->w_count)
			ev |= KPOLLHUP;
	}
	if (f->can_write) {
		poll_wait(pt, &p->wr);
		if (!pipe_full(p))
			ev |= WRITE_EVENTS;
		if (p->readers == 0)
			ev |= KPOLLERR;
	}
	return ev;
}

static long pipe_ioctl(struct file *f, unsigned cmd, unsigned long arg)
{
	int n;

	if (cmd != FIONREAD)
		return -ENOTTY;
	n = (int)pipe_readable_bytes(f->priv);
	return PUT_USER(n, (int __user *)arg);
}

static void pipe_wake_both(struct pipe *p)
{
	waitq_wake_all(&p->rd, READ_EVENTS | KPOLLHUP);
	waitq_wake_all(&p->wr, WRITE_EVENTS | KPOLLERR);
}

/* Takes one open file's part back; frees the pipe with the last. */
static void pipe_close(struct inode *i, struct pipe *p, bool can_read, bool can_write)
{
	p->readers -= can_read;
	p->writers -= can_write;
	if (--p->files == 0) {
		i->pipe = NULL;
		pipe_free(p);
		return;
	}
	if ((p->readers == 0) != (p->writers == 0))
		pipe_wake_both(p);
}

static void pipe_release(struct file *f)
{
	pipe_close(f->inode, f->priv, f->can_read, f->can_write);
}

static const struct file_ops pipe_ops = {
	.read = pipe_read,
	.write = pipe_write,
	.poll = pipe_poll,
	.ioctl = pipe_ioctl,
	.release = pipe_release,
};

/* ---- opening ---- */

int fifo_open(struct inode *i, struct file *f)
{
	struct pipe *p = i->pipe;
	bool fifo = i->sb != &pipe_sb;
	unsigned mode = f->flags & KO_ACCMODE;
	bool rd = mode != KO_WRONLY, wr = mode != KO_RDONLY;
	bool nonblock = (f->flags & KO_NONBLOCK) != 0;
	uint64_t seen;
	int ret = 0;

	if (mode == KO_ACCMODE)
		return -EINVAL;
	if (p == NULL) {
		p = pipe_new();
		if (p == NULL)
			return -ENOMEM;
		i->pipe = p;
	}
	if (mode == KO_WRONLY && fifo && nonblock && p->readers == 0) {
		if (p->files == 0) {
			i->pipe = NULL;
			pipe_free(p);
		}
		return -ENXIO;
	}
	p->files++;
	p->r_count += rd;
	p->w_count += wr;
	p->readers += rd;
	p->writers += wr;
	if ((rd && p->readers == 1) || (wr && p->writers == 1))
		pipe_wake_both(p);
	f->readdir_pos = 0;
	if (fifo && mode == KO_RDONLY && p->writers == 0) {
		seen = p->w_count;
		if (nonblock)
			f->readdir_pos = seen;	/* no HUP before the first writer */
		else
			ret = WAIT_EVENT(&p->rd, p->w_count != seen);
	} else if (fifo && mode == KO_WRONLY && p->readers == 0) {
		seen = p->r_count;
		ret = WAIT_EVENT(&p->wr, p->r_count != seen);
	}
	if (ret != 0) {
		pipe_close(i, p, rd, wr);
		return ret;
	}
	f->priv = p;
	f->ops = &pipe_ops;
	return 0;
}

static struct file *pipe_file(struct dentry *d, struct pipe *p, uint32_t flags)
{
	struct file *f = file_new(d, &pipe_ops, flags);

	if (f == NULL)
		return NULL;
	f->priv = p;
	f->readdir_pos = 0;
	p->files++;
	p->readers += f->can_read;
	p->writers += f->can_write;
	p->r_count += f->can_read;
	p->w_count += f->can_write;
	return f;
}

static int pipe_make(uint32_t flags, struct file *ret_f[2])
{
	struct inode *i = inode_new(&pipe_sb, KS_IFIFO | 0600);
	struct dentry *d;
	struct pipe *p;
	char name[32];

	if (i == NULL)
		return -ENOMEM;
	i->ops = &pipe_inode_ops;
	ksnprintf(name, sizeof(name), "pipe:[%lu]", i->ino);
	d = dentry_anon(i, name);
	if (d == NULL)
		return -ENOMEM;
	p = pipe_new();
	if (p == NULL) {
		dentry_put(d);
		return -ENOMEM;
	}
	i->pipe = p;
	dentry_get(d);
	ret_f[0] = pipe_file(d, p, KO_RDONLY | (flags & KO_NONBLOCK));
	if (ret_f[0] == NULL) {
		i->pipe = NULL;
		pipe_free(p);
		dentry_put(d);
		return -ENOMEM;
	}
	ret_f[1] = pipe_file(d, p, KO_WRONLY | (flags & (KO_NONBLOCK | KO_DIRECT)));
	if (ret_f[1] == NULL) {
		file_put(ret_f[0]);
		return -ENOMEM;
	}
	return 0;
}

static long pipe_call(int __user *ufds, uint32_t flags)
{
	bool cloexec = (flags & KO_CLOEXEC) != 0;
	struct file *f[2];
	int fds[2], ret;

	if (flags & ~(KO_CLOEXEC | KO_NONBLOCK | KO_DIRECT))
		return -EINVAL;
	ret = pipe_make(flags, f);
	if (ret != 0)
		return ret;
	fds[0] = fd_install(f[0], 0, cloexec);
	if (fds[0] < 0) {
		file_put(f[1]);
		return fds[0];
	}
	fds[1] = fd_install(f[1], 0, cloexec);
	if (fds[1] < 0) {
		fd_close(fds[0]);
		return fds[1];
	}
	if (copy_to_user(ufds, fds, sizeof(fds)) != 0) {
		fd_close(fds[0]);
		fd_close(fds[1]);
		return -EFAULT;
	}
	return 0;
}

SYSCALL(pipe, int __user *fds)
{
	return pipe_call(fds, 0);
}

SYSCALL(pipe2, int __user *fds, unsigned flags)
{
	return pipe_call(fds, flags);
}

/* ---- for fcntl, splice and tee ---- */

struct pipe *pipe_of(const struct file *f)
{
	return f->ops == &pipe_ops ? f->priv : NULL;
}

static long pipe_set_size(struct pipe *p, unsigned long size)
{
	struct pipe_slot *slots;
	unsigned n = 1, used;

	if ((unsigned)size > 1u << 31)
		return -EINVAL;
	if ((unsigned)size > PIPE_MAX_SIZE)
		return -EPERM;
	while (n * PAGE_SIZE < (unsigned)size)
		n *= 2;
	used = p->head - p->tail;
	if (n < used)
		return -EBUSY;
	slots = kcalloc(n, sizeof(*slots));
	if (slots == NULL)
		return -ENOMEM;
	for (unsigned k = 0; k < used; k++)
		slots[k] = *slot_at(p, p->tail + k);
	kfree(p->slots);
	p->slots = slots;
	p->nslots = n;
	p->tail = 0;
	p->head = used;
	if (!pipe_full(p))
		waitq_wake(&p->wr, WRITE_EVENTS);
	return (long)(n * PAGE_SIZE);
}

long pipe_fcntl(struct file *f, unsigned cmd, unsigned long arg)
{
	struct pipe *p = pipe_of(f);

	if (p == NULL)
		return -EBADF;
	if (cmd == KF_SETPIPE_SZ)
		return pipe_set_size(p, arg);
	return cmd == KF_GETPIPE_SZ ? (long)(p->nslots * PAGE_SIZE) : -EINVAL;
}

size_t pipe_readable_bytes(const struct pipe *p)
{
	size_t n = 0;

	for (unsigned k = p->tail; k != p->head; k++)
		n += p->slots[k & (p->nslots - 1)].len;
	return n;
}

size_t pipe_writable_bytes(const struct pipe *p)
{
	return (p->nslots - (p->head - p->tail)) * PAGE_SIZE;
}

bool pipe_has_readers(const struct pipe *p)
{
	return p->readers != 0;
}

bool pipe_has_writers(const struct pipe *p)
{
	return p->writers != 0;
}

int pipe_wait_readable(struct file *f, bool nonblock)
{
	struct pipe *p = f->priv;

	if (!pipe_empty(p) || p->writers == 0)
		return 0;
	if (nonblock)
		return -EAGAIN;
	return WAIT_EVENT(&p->rd, !pipe_empty(p) || p->writers == 0);
}

int pipe_wait_writable(struct file *f, bool nonblock)
{
	struct pipe *p = f->priv;

	if (!pipe_full(p) || p->readers == 0)
		return 0;
	if (nonblock)
		return -EAGAIN;
	return WAIT_EVENT(&p->wr, !pipe_full(p) || p->readers == 0);
}

/* Shares slots of `in` from its tail on with `out`. */
static long pipe_share(struct pipe *in, struct pipe *out, size_t len)
{
	bool was_empty = pipe_empty(out);
	size_t done = 0;

	for (unsigned k = in->tail; k != in->head && done < len && !pipe_full(out); k++) {
		struct pipe_slot *s = slot_at(in, k), *d = slot_at(out, out->head);

		*d = *s;
		d->len = (uint16_t)MIN((size_t)s->len, len - done);
		page_get(d->page);
		out->head++;
		done += d->len;
	}
	if (done != 0 && (was_empty || out->polled))
		waitq_wake(&out->rd, READ_EVENTS);
	return (long)done;
}

/* Both sides ready: 0; 1: end of input; negative errno. */
static int pipe_pair_wait(struct file *in, struct file *out, bool nonblock)
{
	struct pipe *a = in->priv, *b = out->priv;
	int ret;

	if (pipe_of(in) == NULL || pipe_of(out) == NULL || a == b)
		return -EINVAL;
	do {
		ret = pipe_wait_readable(in, nonblock || (in->flags & KO_NONBLOCK));
		if (ret != 0)
			return ret;
		if (b->readers == 0) {
			pipe_signal();
			return -EPIPE;
		}
		if (pipe_empty(a))
			return 1;
		ret = pipe_wait_writable(out, nonblock || (out->flags & KO_NONBLOCK));
		if (ret != 0)
			return ret;
	} while (pipe_empty(a) || (pipe_full(b) && b->readers != 0));
	if (b->readers == 0) {
		pipe_signal();
		return -EPIPE;
	}
	return 0;
}

long pipe_tee(struct file *in, struct file *out, size_t len, unsigned flags)
{
	int ret = pipe_pair_wait(in, out, (flags & KSPLICE_F_NONBLOCK) != 0);

	if (ret != 0)
		return ret > 0 ? 0 : ret;
	return pipe_share(in->priv, out->priv, len);
}

long pipe_move(struct file *in, struct file *out, size_t len, unsigned flags)
{
	int ret = pipe_pair_wait(in, out, (flags & KSPLICE_F_NONBLOCK) != 0);
	struct pipe *a = in->priv;
	bool was_full;
	long n;

	if (ret != 0)
		return ret > 0 ? 0 : ret;
	was_full = pipe_full(a);
	n = pipe_share(a, out->priv, len);
	for (size_t left = (size_t)n; left != 0;) {
		struct pipe_slot *s = slot_at(a, a->tail);
		size_t k = MIN(left, (size_t)s->len);

		s->off = (uint16_t)(s->off + k);
		s->len = (uint16_t)(s->len - k);
		left -= k;
		if (s->len == 0) {
			slot_drop(a, s);
			a->tail++;
		}
	}
	if (was_full && !pipe_full(a))
		waitq_wake(&a->wr, WRITE_EVENTS);
	return n;
}
