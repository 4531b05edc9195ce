/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epoll(7).
 *
 * An epitem is the interest of one epoll instance in one (file, descriptor) pair. It hangs in
 * its instance's tree and in its file's list, and has a waiter on each queue that the file
 * named when it was added. A wake-up puts the item on the instance's ready list; epoll_wait
 * asks the file again before it reports, and puts level-triggered items back at the tail, so
 * that the items take turns.
 *
 * An item holds no reference to its file: the last file_put() calls epoll_file_release(), so a
 * closed file leaves by itself, while a dup keeps it. An epoll file may be watched by another:
 * chains are at most EP_MAX_NEST long, have no loops, and the number of ways on which one
 * event can travel upwards is bounded.
 */
#include <bsd/sys/tree.h>

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define EPOLLEXCLUSIVE_BIT	(1u << 28)
#define EPOLLWAKEUP_BIT		(1u << 29)
#define EPOLLONESHOT_BIT	(1u << 30)
#define EPOLLET_BIT		(1u << 31)
#define PRIVATE_BITS	(EPOLLEXCLUSIVE_BIT | EPOLLWAKEUP_BIT | EPOLLONESHOT_BIT | EPOLLET_BIT)
#define EXCLUSIVE_OK	(KPOLLIN | KPOLLOUT | KPOLLERR | KPOLLHUP | EPOLLWAKEUP_BIT | \
			 EPOLLET_BIT | EPOLLEXCLUSIVE_BIT)

#define EPOLL_CTL_ADD_OP 1
#define EPOLL_CTL_DEL_OP 2
#define EPOLL_CTL_MOD_OP 3

#define EP_MAX_NEST	5u
#define EP_MAX_PATHS	1000u

struct kepoll_event {
	uint32_t events;
	uint64_t data;
} __attribute__((packed));
#define EP_MAX_EVENTS	(INT32_MAX / (int)sizeof(struct kepoll_event))

struct ep_waiter {
	struct waiter w;
	struct epitem *item;
	struct ep_waiter *next;
};

struct epitem {
	RB_ENTRY(epitem) node;
	TAILQ_ENTRY(epitem) file_link;
	TAILQ_ENTRY(epitem) ready_link;
	bool ready;
	struct eventpoll *ep;
	struct file *file;
	int fd;
	struct kepoll_event event;
	struct ep_waiter first;		/* almost all files have one queue */
	struct ep_waiter *more;
	bool first_used;
};
RB_HEAD(epitem_tree, epitem);
TAILQ_HEAD(epitem_list, epitem);

struct eventpoll {
	struct file *file;		/* its own */
	struct epitem_tree items;
	struct epitem_list ready;
	struct waitq wq;		/* epoll_wait */
	struct waitq poll_wq;		/* poll, or a watching epoll */
};

/* Memory bound: items of all instances together, about 4 % of memory at 200 bytes each. */
static uint64_t items_total;

static uint64_t items_max(void)
{
	return mem_stats.total_pages != 0 ? MAX(mem_stats.total_pages, 4096UL) : 65536;
}

static int epitem_cmp(const struct epitem *a, const struct epitem *b)
{
	if (a->file != b->file)
		return (uintptr_t)a->file < (uintptr_t)b->file ? -1 : 1;
	return a->fd < b->fd ? -1 : a->fd > b->fd;
}
RB_GENERATE_INTERNAL(epitem_tree, epitem, node, epitem_cmp, __attribute__((unused)) static)

static const struct file_ops epoll_ops;

static bool is_epoll(const struct file *f)
{
	return f->ops == &epoll_ops;
}

/* ---- ready list and wake-ups ---- */

static void make_ready(struct epitem *item)
{
	if (item->ready)
		return;
	item->ready = true;
	TAILQ_INSERT_TAIL(&item->ep->ready, item, ready_link);
}

static void make_unready(struct epitem *item)
{
	if (!item->ready)
		return;
	item->ready = false;
	TAILQ_REMOVE(&item->ep->ready, item, ready_link);
}

static void wake_watchers(struct eventpoll *ep)
{
	waitq_wake(&ep->wq, KPOLLIN);
	if (!waitq_empty(&ep->poll_wq))
		waitq_wake_all(&ep->poll_wq, KPOLLIN);
}

/* Did the wake-up use up an exclusive one? Only if somebody waits here and it concerns the
 * direction waited for. */
static bool used_up(const struct epitem *item, unsigned key, bool waiting)
{
	uint32_t events = item->event.events;

	if ((events & EPOLLEXCLUSIVE_BIT) == 0)
		return true;
	if (!waiting)
		return false;
	switch (key & (KPOLLIN | KPOLLOUT)) {
	case KPOLLIN:
		return (events & KPOLLIN) != 0;
	case KPOLLOUT:
		return (events & KPOLLOUT) != 0;
	default:
		return true;
	}
}

/* IN and RDNORM, OUT and WRNORM name the same thing; files say either. */
static unsigned widen(unsigned key)
{
	if ((key & (KPOLLIN | KPOLLRDNORM)) != 0)
		key |= KPOLLIN | KPOLLRDNORM;
	if ((key & (KPOLLOUT | KPOLLWRNORM)) != 0)
		key |= KPOLLOUT | KPOLLWRNORM;
	return key;
}

static bool item_woken(struct waiter *w, unsigned key)
{
	struct epitem *item = CONTAINER_OF(w, struct ep_waiter, w)->item;
	bool waiting;

	if ((item->event.events & ~PRIVATE_BITS) == 0)
		return false;		/* one shot, spent */
	if (key != 0 && (widen(key) & item->event.events) == 0)
		return false;
	make_ready(item);
	waiting = !waitq_empty(&item->ep->wq);
	wake_watchers(item->ep);
	return used_up(item, key, waiting);
}

static unsigned item_poll(struct epitem *item, struct poll_table *pt)
{
	return widen(file_poll(item->file, pt)) & item->event.events;
}

/* ---- items ---- */

struct ep_table {
	struct poll_table pt;
	struct epitem *item;
	int error;
};

static void item_queue(struct poll_table *pt, struct waitq *wq)
{
	struct ep_table *table = CONTAINER_OF(pt, struct ep_table, pt);
	struct epitem *item = table->item;
	struct ep_waiter *ew = &item->first;

	if (item->first_used) {
		ew = kmalloc(sizeof(*ew));
		if (ew == NULL) {
			table->error = -ENOMEM;
			return;
		}
		ew->next = item->more;
		item->more = ew;
	}
	item->first_used = true;
	waiter_init(&ew->w);
	ew->w.func = item_woken;
	ew->w.exclusive = (item->event.events & EPOLLEXCLUSIVE_BIT) != 0;
	ew->item = item;
	waitq_add(wq, &ew->w);
}

static void item_free(struct epitem *item)
{
	struct ep_waiter *ew;

	if (item->first_used)
		waitq_del(&item->first.w);
	while ((ew = item->more) != NULL) {
		item->more = ew->next;
		waitq_del(&ew->w);
		kfree(ew);
	}
	make_unready(item);
	TAILQ_REMOVE(&item->file->epitems, item, file_link);
	RB_REMOVE(epitem_tree, &item->ep->items, item);
	items_total--;
	kfree(item);
}

void epoll_file_release(struct file *f)
{
	struct epitem *item;

	while ((item = TAILQ_FIRST(&f->epitems)) != NULL)
		item_free(item);
}

static struct epitem *item_find(struct eventpoll *ep, struct file *f, int fd)
{
	struct epitem key = { .file = f, .fd = fd };

	return RB_FIND(epitem_tree, &ep->items, &key);
}

/* ---- nesting ---- */

/* Epoll levels from f downwards, itself included; more than EP_MAX_NEST when `sought` is
 * found below or the chain is too long. *paths counts the instances met. */
static unsigned levels_down(struct file *f, const struct eventpoll *sought, unsigned depth,
			    unsigned *paths)
{
	struct eventpoll *ep = f->priv;
	struct epitem *item;
	unsigned most = 0;

	if (ep == sought || depth > EP_MAX_NEST || ++*paths > EP_MAX_PATHS)
		return EP_MAX_NEST + 1;
	RB_FOREACH(item, epitem_tree, &ep->items) {
		unsigned n;

		if (!is_epoll(item->file))
			continue;
		n = levels_down(item->file, sought, depth + 1, paths);
		if (n > EP_MAX_NEST)
			return n;
		most = MAX(most, n);
	}
	return most + 1;
}

/* Likewise upwards, through those that watch ep. */
static unsigned levels_up(struct eventpoll *ep, unsigned depth, unsigned *paths)
{
	struct epitem *item;
	unsigned most = 0;

	if (depth > EP_MAX_NEST || ++*paths > EP_MAX_PATHS)
		return EP_MAX_NEST + 1;
	TAILQ_FOREACH(item, &ep->file->epitems, file_link) {
		unsigned n = levels_up(item->ep, depth + 1, paths);

		if (n > EP_MAX_NEST)
			return n;
		most = MAX(most, n);
	}
	return most + 1;
}

static int check_nesting(struct eventpoll *ep, struct file *target)
{
	unsigned paths_up = 0, paths_down = 0, up, down;

	if (!is_epoll(target))
		return 0;
	up = levels_up(ep, 1, &paths_up);
	down = levels_down(target, ep, 1, &paths_down);
	if (up + down > EP_MAX_NEST)
		return -ELOOP;
	return paths_up * paths_down > EP_MAX_PATHS ? -EINVAL : 0;
}

/* ---- epoll_ctl ---- */

static int ctl_add(struct eventpoll *ep, struct file *f, int fd, const struct kepoll_event *ev)
{
	struct ep_table table = { .pt.queue = item_queue };
	struct epitem *item;
	int r = check_nesting(ep, f);

	if (r != 0)
		return r;
	if (items_total >= items_max())
		return -ENOSPC;
	item = kzalloc(sizeof(*item));
	if (item == NULL)
		return -ENOMEM;
	item->ep = ep;
	item->file = f;
	item->fd = fd;
	item->event = *ev;
	items_total++;
	RB_INSERT(epitem_tree, &ep->items, item);
	TAILQ_INSERT_TAIL(&f->epitems, item, file_link);
	table.item = item;
	if (item_poll(item, &table.pt) != 0 && table.error == 0) {
		make_ready(item);
		wake_watchers(ep);
	}
	if (table.error != 0)
		item_free(item);
	return table.error;
}

static int ctl_mod(struct epitem *item, const struct kepoll_event *ev)
{
	if (((item->event.events | ev->events) & EPOLLEXCLUSIVE_BIT) != 0)
		return -EINVAL;
	item->event = *ev;
	if (item_poll(item, NULL) != 0) {
		make_ready(item);
		wake_watchers(item->ep);
	}
	return 0;
}

static int ctl_checked(struct file *epf, int op, struct file *f, int fd, struct kepoll_event *ev)
{
	struct eventpoll *ep;
	struct epitem *item;

	if (f->ops == NULL || f->ops->poll == NULL)
		return -EPERM;
	if (epf == f || !is_epoll(epf))
		return -EINVAL;
	if (op == EPOLL_CTL_ADD_OP && (ev->events & EPOLLEXCLUSIVE_BIT) != 0 &&
	    (is_epoll(f) || (ev->events & ~EXCLUSIVE_OK) != 0))
		return -EINVAL;
	ep = epf->priv;
	item = item_find(ep, f, fd);
	ev->events |= KPOLLERR | KPOLLHUP;
	switch (op) {
	case EPOLL_CTL_ADD_OP:
		return item != NULL ? -EEXIST : ctl_add(ep, f, fd, ev);
	case EPOLL_CTL_DEL_OP:
		if (item == NULL)
			return -ENOENT;
		item_free(item);
		return 0;
	case EPOLL_CTL_MOD_OP:
		return item == NULL ? -ENOENT : ctl_mod(item, ev);
	default:
		return -EINVAL;
	}
}

SYSCALL(epoll_ctl, int epfd, int op, int fd, const struct kepoll_event __user *uev)
{
	struct kepoll_event ev = { 0, 0 };
	struct file *epf, *f;
	int r = -EBADF;

	if (op != EPOLL_CTL_DEL_OP && GET_USER(ev, uev) != 0)
		return -EFAULT;
	epf = fd_get(epfd);
	if (epf == NULL)
		return -EBADF;
	f = fd_get(fd);
	if (f != NULL) {
		r = ctl_checked(epf, op, f, fd, &ev);
		file_put(f);
	}
	file_put(epf);
	return r;
}

/* ---- waiting ---- */

/* Moves ready events to the program; how many, or -EFAULT if the first could not be. */
static int send_events(struct eventpoll *ep, struct kepoll_event __user *uevs, int max)
{
	struct epitem_list todo = TAILQ_HEAD_INITIALIZER(todo);
	struct epitem *item;
	int n = 0;

	/* What is put back goes to ep->ready; items not reached stay in front of it. */
	TAILQ_CONCAT(&todo, &ep->ready, ready_link);
	while (n < max && (item = TAILQ_FIRST(&todo)) != NULL) {
		struct kepoll_event out = { .data = item->event.data };

		TAILQ_REMOVE(&todo, item, ready_link);
		item->ready = false;
		out.events = item_poll(item, NULL);
		if (out.events == 0)
			continue;
		if (PUT_USER(out, &uevs[n]) != 0) {
			item->ready = true;
			TAILQ_INSERT_HEAD(&todo, item, ready_link);
			if (n == 0)
				n = -EFAULT;
			break;
		}
		n++;
		if ((item->event.events & EPOLLONESHOT_BIT) != 0)
			item->event.events &= PRIVATE_BITS;
		else if ((item->event.events & EPOLLET_BIT) == 0)
			make_ready(item);
	}
	TAILQ_CONCAT(&todo, &ep->ready, ready_link);
	TAILQ_CONCAT(&ep->ready, &todo, ready_link);
	return n;
}

static int wait_events(struct eventpoll *ep, struct kepoll_event __user *uevs, int max,
		       uint64_t deadline)
{
	int n, r;

	for (;;) {
		if (!TAILQ_EMPTY(&ep->ready)) {
			n = send_events(ep, uevs, max);
			/* More than we took, or level-triggered: let the next one look. */
			if (!TAILQ_EMPTY(&ep->ready) && !waitq_empty(&ep->wq))
				waitq_wake(&ep->wq, KPOLLIN);
			if (n != 0)
				return n;
		}
		if (deadline == 0)
			return 0;
		if (signal_pending(current))
			return -EINTR;
		r = WAIT_EVENT_FULL(&ep->wq, !TAILQ_EMPTY(&ep->ready), deadline, true, true);
		if (r == -ETIMEDOUT)
			return 0;
		if (r != 0)
			return -EINTR;
	}
}

static long epoll_wait_do(int epfd, struct kepoll_event __user *uevs, int max,
			  uint64_t deadline)
{
	struct file *f;
	long r;

	if (max <= 0 || max > EP_MAX_EVENTS)
		return -EINVAL;
	f = fd_get(epfd);
	if (f == NULL)
		return -EBADF;
	r = is_epoll(f) ? wait_events(f->priv, uevs, max, deadline) : -EINVAL;
	file_put(f);
	return r;
}

static uint64_t deadline_from_ms(int ms)
{
	if (ms < 0)
		return NO_DEADLINE;
	return ms == 0 ? 0 : deadline_after((uint64_t)ms * NSEC_PER_MSEC);
}

static long epoll_pwait_do(int epfd, struct kepoll_event __user *uevs, int max,
			   uint64_t deadline, const uint64_t __user *umask, size_t size)
{
	long r = signal_use_temp_mask(umask, size);

	if (r != 0)
		return r;
	r = epoll_wait_do(epfd, uevs, max, deadline);
	signal_restore_temp_mask(r == -EINTR);
	return r;
}

SYSCALL(epoll_wait, int epfd, struct kepoll_event __user *uevs, int max, int timeout_ms)
{
	return epoll_wait_do(epfd, uevs, max, deadline_from_ms(timeout_ms));
}

SYSCALL(epoll_pwait, int epfd, struct kepoll_event __user *uevs, int max, int timeout_ms,
	const uint64_t __user *umask, size_t size)
{
	return epoll_pwait_do(epfd, uevs, max, deadline_from_ms(timeout_ms), umask, size);
}

SYSCALL(epoll_pwait2, int epfd, struct kepoll_event __user *uevs, int max,
	const struct ktimespec __user *uts, const uint64_t __user *umask, size_t size)
{
	uint64_t deadline = NO_DEADLINE, ns;
	int r;

	if (uts != NULL) {
		r = timespec_get_user(uts, &ns);
		if (r != 0)
			return r;
		deadline = ns == 0 ? 0 : deadline_after(ns);
	}
	return epoll_pwait_do(epfd, uevs, max, deadline, umask, size);
}

/* ---- the file ---- */

/* Readable when an item really is; items that are not leave the ready list. */
static unsigned epoll_poll(struct file *f, struct poll_table *pt)
{
	struct eventpoll *ep = f->priv;
	struct epitem *item, *next;

	poll_wait(pt, &ep->poll_wq);
	for (item = TAILQ_FIRST(&ep->ready); item != NULL; item = next) {
		next = TAILQ_NEXT(item, ready_link);
		if (item_poll(item, NULL) != 0)
			return KPOLLIN | KPOLLRDNORM;
		make_unready(item);
	}
	return 0;
}

static void epoll_release(struct file *f)
{
	struct eventpoll *ep = f->priv;
	struct epitem *item;

	while ((item = RB_ROOT(&ep->items)) != NULL)
		item_free(item);
	kfree(ep);
}

static void epoll_show(struct file *f, struct strbuf *sb)
{
	struct eventpoll *ep = f->priv;
	struct epitem *item;

	RB_FOREACH(item, epitem_tree, &ep->items)
		strbuf_printf(sb, "tfd: %8d events: %8x data: %16lx  pos:%lu ino:%lx sdev:%x\n",
			      item->fd, item->event.events, (unsigned long)item->event.data,
			      (unsigned long)item->file->pos,
			      (unsigned long)item->file->inode->ino,
			      item->file->inode->sb != NULL ? item->file->inode->sb->dev : 0);
}

static const struct file_ops epoll_ops = {
	.lseek = anon_lseek,
	.poll = epoll_poll,
	.release = epoll_release,
	.show_fdinfo = epoll_show,
};

static long epoll_create_do(uint32_t flags)
{
	struct eventpoll *ep;
	struct file *f;

	if ((flags & ~KO_CLOEXEC) != 0)
		return -EINVAL;
	ep = kzalloc(sizeof(*ep));
	if (ep == NULL)
		return -ENOMEM;
	RB_INIT(&ep->items);
	TAILQ_INIT(&ep->ready);
	waitq_init(&ep->wq);
	waitq_init(&ep->poll_wq);
	f = anon_file_new("anon_inode:[eventpoll]", &epoll_ops, ep, 0);
	if (IS_ERR(f)) {
		kfree(ep);
		return PTR_ERR(f);
	}
	ep->file = f;
	return fd_install(f, 0, (flags & KO_CLOEXEC) != 0);
}

SYSCALL(epoll_create1, int flags)
{
	return epoll_create_do((uint32_t)flags);
}

SYSCALL(epoll_create, int size)
{
	return size <= 0 ? -EINVAL : epoll_create_do(0);
}
