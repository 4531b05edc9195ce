/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inotify. An instance is a file with a bounded queue of events; a watch links an instance to
 * an inode. Watches hold no reference: an inode that dies tells its watches (IN_DELETE_SELF,
 * IN_IGNORED) and drops them. An event that finds no room, in the queue or in memory, is told
 * of by IN_Q_OVERFLOW, whose place each instance has from the start.
 *
 * While there is no watch at all, inotify_watch_count is zero and the callers' checks of it
 * are all that notification costs.
 */
#include <asm/ioctls.h>
#include <linux/inotify.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

#define QUEUE_MAX	16384u
#define WATCHES_MAX	65536u		/* all instances together */
#define INSTANCES_MAX	1024u
#define ALL_BITS	(IN_ALL_EVENTS | IN_UNMOUNT | IN_Q_OVERFLOW | IN_IGNORED | IN_ONLYDIR | \
			 IN_DONT_FOLLOW | IN_EXCL_UNLINK | IN_MASK_ADD | IN_MASK_CREATE | \
			 IN_ISDIR | IN_ONESHOT)

struct in_event {
	TAILQ_ENTRY(in_event) link;
	struct inotify_event head;	/* what the reader gets, name included */
	char name[];			/* head.len bytes, zero-padded */
};

struct watch {
	struct watch *next;		/* of the inode */
	TAILQ_ENTRY(watch) link;	/* of the instance */
	struct inotify *in;
	struct inode *inode;
	int wd;
	uint32_t mask;
};

struct inotify {
	TAILQ_HEAD(, in_event) events;
	struct in_event *last;
	TAILQ_HEAD(, watch) watches;
	struct waitq wq;
	unsigned nevents;
	size_t bytes;
	int next_wd;
	struct in_event *overflow;	/* one for all time, in the queue or not */
	bool overflowed;		/* it is */
};

unsigned inotify_watch_count;
static unsigned instances;

uint32_t fsnotify_cookie(void)
{
	static uint32_t last;

	if (++last == 0)
		last = 1;
	return last;
}

/* ---- queue ---- */

static size_t event_size(const struct in_event *e)
{
	return sizeof(e->head) + e->head.len;
}

static void append(struct inotify *in, struct in_event *e)
{
	TAILQ_INSERT_TAIL(&in->events, e, link);
	in->last = e;
	in->nevents++;
	in->bytes += event_size(e);
	waitq_wake(&in->wq, KPOLLIN | KPOLLRDNORM);
}

static void queue_overflow(struct inotify *in)
{
	if (in->overflowed)
		return;
	in->overflowed = true;
	append(in, in->overflow);
}

/* Linux does not look at cookies either. */
static bool same_event(const struct in_event *e, int wd, uint32_t mask, uint32_t room,
		       const char *name, size_t len)
{
	return e->head.wd == wd && e->head.mask == mask && e->head.len == room &&
	       (len == 0 || (memcmp(e->name, name, len) == 0 && e->name[len] == 0));
}

static void queue_event(struct inotify *in, int wd, uint32_t mask, uint32_t cookie,
			const char *name, size_t len)
{
	/* Names are padded as Linux pads them: to the size of the header. */
	uint32_t room = len != 0 ? (uint32_t)ALIGN_UP(len + 1, sizeof(struct inotify_event)) : 0;
	struct in_event *e = in->last;

	if (in->nevents >= QUEUE_MAX) {
		queue_overflow(in);
		return;
	}
	if (e != NULL && same_event(e, wd, mask, room, name, len))
		return;
	e = kzalloc(sizeof(*e) + room);
	if (e == NULL) {
		queue_overflow(in);
		return;
	}
	e->head.wd = wd;
	e->head.mask = mask;
	e->head.cookie = cookie;
	e->head.len = room;
	if (len != 0)
		memcpy(e->name, name, len);
	append(in, e);
}

static void drop_first(struct inotify *in)
{
	struct in_event *e = TAILQ_FIRST(&in->events);

	TAILQ_REMOVE(&in->events, e, link);
	if (in->last == e)
		in->last = NULL;
	in->nevents--;
	in->bytes -= event_size(e);
	if (e == in->overflow)
		in->overflowed = false;
	else
		kfree(e);
}

/* ---- watches ---- */

static void watch_remove(struct watch *w)
{
	struct watch **p = (struct watch **)&w->inode->watches.first;

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	TAILQ_REMOVE(&w->in->watches, w, link);
	inotify_watch_count--;
	kfree(w);
}

static void notify_watch(struct watch *w, uint32_t mask, uint32_t cookie, const char *name,
			 size_t len)
{
	struct inotify *in = w->in;

	if ((w->mask & mask & IN_ALL_EVENTS) == 0)
		return;
	queue_event(in, w->wd, mask, cookie, name, len);
	if ((w->mask & IN_ONESHOT) != 0) {
		queue_event(in, w->wd, IN_IGNORED, 0, NULL, 0);
		watch_remove(w);
	}
}

/* hidden: what IN_EXCL_UNLINK does not want to hear of. */
static void notify_list(struct inode *i, uint32_t mask, uint32_t cookie, const char *name,
			size_t len, bool hidden)
{
	struct watch *w = i->watches.first, *next;

	for (; w != NULL; w = next) {
		next = w->next;
		if (!hidden || (w->mask & IN_EXCL_UNLINK) == 0)
			notify_watch(w, mask, cookie, name, len);
	}
}

void fsnotify_inode(struct inode *i, uint32_t mask)
{
	if (KS_ISDIR(i->mode) && mask != IN_MOVE_SELF)
		mask |= IN_ISDIR;
	if (i->watches.first != NULL)
		notify_list(i, mask, 0, NULL, 0, false);
}

void fsnotify_dir(struct inode *dir, const char *name, size_t len, uint32_t mask,
		  uint32_t cookie)
{
	if (dir->watches.first != NULL)
		notify_list(dir, mask, cookie, name, len, false);
}

static void notify_dentry(struct dentry *d, uint32_t mask, bool hidden)
{
	if (KS_ISDIR(d->inode->mode))
		mask |= IN_ISDIR;
	if (d->parent != d && (d->flags & DENTRY_ANON) == 0 &&
	    d->parent->inode->watches.first != NULL)
		notify_list(d->parent->inode, mask, 0, d->name, d->len, hidden);
	if (d->inode->watches.first != NULL)
		notify_list(d->inode, mask, 0, NULL, 0, hidden);
}

void fsnotify(struct dentry *d, uint32_t mask)
{
	if (inotify_watch_count != 0)
		notify_dentry(d, mask, (d->flags & DENTRY_DELETED) != 0);
}

void fsnotify_change(struct dentry *d, uint32_t mask)
{
	if (inotify_watch_count != 0)
		notify_dentry(d, mask, false);
}

static void drop_watches(struct inode *i, uint32_t mask)
{
	struct watch *w;

	while ((w = i->watches.first) != NULL) {
		if (((w->mask | IN_UNMOUNT) & mask) != 0)
			queue_event(w->in, w->wd, mask, 0, NULL, 0);
		queue_event(w->in, w->wd, IN_IGNORED, 0, NULL, 0);
		watch_remove(w);
	}
}

void inotify_inode_gone(struct inode *i)
{
	drop_watches(i, i->nlink == 0 ? IN_DELETE_SELF : 0);
}

void inotify_unmounted(struct inode *i)
{
	drop_watches(i, IN_UNMOUNT | (KS_ISDIR(i->mode) ? IN_ISDIR : 0));
}

/* ---- the file ---- */

static long in_read(struct file *f, struct uio *u, uint64_t *pos)
{
	struct inotify *in = f->priv;
	long done = 0;
	int r;

	if (TAILQ_EMPTY(&in->events)) {
		if ((f->flags & KO_NONBLOCK) != 0)
			return -EAGAIN;
		r = WAIT_EVENT(&in->wq, !TAILQ_EMPTY(&in->events));
		if (r != 0)
			return r;
	}
	while (!TAILQ_EMPTY(&in->events)) {
		struct in_event *e = TAILQ_FIRST(&in->events);
		size_t n = event_size(e);

		if (u->resid < n)
			return done > 0 ? done : -EINVAL;
		if (uio_put(u, &e->head, sizeof(e->head)) != sizeof(e->head) ||
		    uio_put(u, e->name, e->head.len) != e->head.len)
			return done > 0 ? done : -EFAULT;
		done += (long)n;
		drop_first(in);
	}
	return done;
}

static unsigned in_poll(struct file *f, struct poll_table *pt)
{
	struct inotify *in = f->priv;

	poll_wait(pt, &in->wq);
	return TAILQ_EMPTY(&in->events) ? 0 : KPOLLIN | KPOLLRDNORM;
}

static long in_ioctl(struct file *f, unsigned cmd, unsigned long arg)
{
	struct inotify *in = f->priv;
	int n = (int)in->bytes;

	return cmd == FIONREAD ? PUT_USER(n, (int __user *)arg) : -ENOTTY;
}

static void in_release(struct file *f)
{
	struct inotify *in = f->priv;

	while (!TAILQ_EMPTY(&in->watches))
		watch_remove(TAILQ_FIRST(&in->watches));
	while (!TAILQ_EMPTY(&in->events))
		drop_first(in);
	instances--;
	kfree(in->overflow);
	kfree(in);
}

static void in_fdinfo(struct file *f, struct strbuf *sb)
{
	struct inotify *in = f->priv;
	struct watch *w;

	TAILQ_FOREACH(w, &in->watches, link)
		strbuf_printf(sb, "inotify wd:%x ino:%lx sdev:%x mask:%x ignored_mask:0\n",
			      (unsigned)w->wd, w->inode->ino,
			      w->inode->sb != NULL ? w->inode->sb->dev : 0, w->mask);
}

static const struct file_ops inotify_fops = {
	.read = in_read,
	.poll = in_poll,
	.ioctl = in_ioctl,
	.release = in_release,
	.show_fdinfo = in_fdinfo,
};

/* ---- system calls ---- */

static long do_init(unsigned flags)
{
	struct inotify *in;
	struct file *f;

	if ((flags & ~(KO_NONBLOCK | KO_CLOEXEC)) != 0)
		return -EINVAL;
	if (instances >= INSTANCES_MAX)
		return -EMFILE;
	in = kzalloc(sizeof(*in));
	if (in == NULL)
		return -ENOMEM;
	in->overflow = kzalloc(sizeof(*in->overflow));
	if (in->overflow == NULL) {
		kfree(in);
		return -ENOMEM;
	}
	in->overflow->head.wd = -1;
	in->overflow->head.mask = IN_Q_OVERFLOW;
	TAILQ_INIT(&in->events);
	TAILQ_INIT(&in->watches);
	waitq_init(&in->wq);
	in->next_wd = 1;
	f = anon_file_new("anon_inode:inotify", &inotify_fops, in,
			  KO_RDONLY | (flags & KO_NONBLOCK));
	if (IS_ERR(f)) {
		kfree(in->overflow);
		kfree(in);
		return PTR_ERR(f);
	}
	f->can_read = true;
	f->can_write = false;
	instances++;
	return fd_install(f, 0, (flags & KO_CLOEXEC) != 0);
}

SYSCALL(inotify_init, void)
{
	return do_init(0);
}

SYSCALL(inotify_init1, unsigned flags)
{
	return do_init(flags);
}

static struct file *inotify_file(int fd, int *ret)
{
	struct file *f = fd_get(fd);

	*ret = -EBADF;
	if (f != NULL && f->ops != &inotify_fops) {
		file_put(f);
		f = NULL;
		*ret = -EINVAL;
	}
	return f;
}

static long watch_add(struct inotify *in, struct inode *i, uint32_t mask)
{
	uint32_t kept = mask & (IN_ALL_EVENTS | IN_ONESHOT | IN_EXCL_UNLINK);
	struct watch *w;

	for (w = i->watches.first; w != NULL; w = w->next) {
		if (w->in != in)
			continue;
		if ((mask & IN_MASK_CREATE) != 0)
			return -EEXIST;
		w->mask = (mask & IN_MASK_ADD) != 0 ? w->mask | kept : kept;
		return w->wd;
	}
	if (inotify_watch_count >= WATCHES_MAX || in->next_wd == INT32_MAX)
		return -ENOSPC;
	w = kzalloc(sizeof(*w));
	if (w == NULL)
		return -ENOMEM;
	w->in = in;
	w->inode = i;
	w->wd = in->next_wd++;
	w->mask = kept;
	w->next = i->watches.first;
	i->watches.first = w;
	TAILQ_INSERT_TAIL(&in->watches, w, link);
	inotify_watch_count++;
	return w->wd;
}

SYSCALL(inotify_add_watch, int fd, const char __user *path, uint32_t mask)
{
	unsigned lookup = ((mask & IN_DONT_FOLLOW) == 0 ? LOOKUP_FOLLOW : 0) |
			  ((mask & IN_ONLYDIR) != 0 ? LOOKUP_DIRECTORY : 0);
	struct dentry *d;
	struct file *f;
	int err;
	long r;

	if (mask == 0 || (mask & ~ALL_BITS) != 0)
		return -EINVAL;
	f = fd_get(fd);
	if (f == NULL)
		return -EBADF;
	file_put(f);
	if ((mask & IN_MASK_ADD) != 0 && (mask & IN_MASK_CREATE) != 0)
		return -EINVAL;
	f = inotify_file(fd, &err);
	if (f == NULL)
		return err;
	d = user_path_lookup(KAT_FDCWD, path, lookup);
	if (IS_ERR(d)) {
		r = PTR_ERR(d);
	} else {
		r = inode_permission(d->inode, 4);
		if (r == 0)
			r = watch_add(f->priv, d->inode, mask);
		dentry_put(d);
	}
	file_put(f);
	return r;
}

SYSCALL(inotify_rm_watch, int fd, int wd)
{
	struct watch *w;
	struct file *f;
	struct inotify *in;
	int err;

	f = inotify_file(fd, &err);
	if (f == NULL)
		return err;
	in = f->priv;
	TAILQ_FOREACH(w, &in->watches, link) {
		if (w->wd == wd)
			break;
	}
	if (w != NULL) {
		queue_event(in, wd, IN_IGNORED, 0, NULL, 0);
		watch_remove(w);
	}
	file_put(f);
	return w != NULL ? 0 : -EINVAL;
}
