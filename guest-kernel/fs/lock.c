/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File locks: POSIX record locks (owned by a descriptor table), OFD locks and flock locks
 * (owned by an open file). All lie in one list per inode; POSIX and OFD locks exclude each
 * other, flock locks only their own kind.
 *
 * One owner's record locks never overlap and equal neighbours are merged. A blocked request
 * waits on the inode and asks again at each change. For POSIX locks the chain "waits for a
 * lock held by" is followed before sleeping: a ring is EDEADLK.
 */
#include <linux/fcntl.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

enum lock_kind { LOCK_POSIX, LOCK_OFD, LOCK_FLOCK };

struct file_lock {
	TAILQ_ENTRY(file_lock) link;		/* of the inode */
	TAILQ_ENTRY(file_lock) all;		/* for /proc/locks */
	struct inode *inode;			/* borrowed: the lock goes before it */
	const void *owner;			/* struct files or struct file */
	enum lock_kind kind;
	int type;				/* F_RDLCK, F_WRLCK */
	int pid;
	int64_t start, end;			/* inclusive; INT64_MAX: to the end */
};
static TAILQ_HEAD(, file_lock) all_locks = TAILQ_HEAD_INITIALIZER(all_locks);

/* Requests that sleep, for the search for rings. */
struct blocked {
	TAILQ_ENTRY(blocked) link;
	struct inode *inode;
	const struct file_lock *want;
};
static TAILQ_HEAD(, blocked) blocked_list = TAILQ_HEAD_INITIALIZER(blocked_list);

static void lock_remove(struct file_lock *l)
{
	TAILQ_REMOVE(&l->inode->locks, l, link);
	TAILQ_REMOVE(&all_locks, l, all);
	kfree(l);
}

static void lock_insert(struct inode *i, struct file_lock *l)
{
	l->inode = i;
	TAILQ_INSERT_TAIL(&i->locks, l, link);
	TAILQ_INSERT_TAIL(&all_locks, l, all);
}

static struct file_lock *lock_conflict(struct inode *i, const struct file_lock *want)
{
	struct file_lock *l;

	TAILQ_FOREACH(l, &i->locks, link) {
		if ((l->kind == LOCK_FLOCK) != (want->kind == LOCK_FLOCK))
			continue;
		if (l->owner == want->owner && l->kind == want->kind)
			continue;
		if (l->start > want->end || l->end < want->start)
			continue;
		if (l->type == F_WRLCK || want->type == F_WRLCK)
			return l;
	}
	return NULL;
}

/*
 * Gives the owner `want` (F_UNLCK: nothing) in its range, instead of what it had there. spare:
 * two locks that may be needed; what is used is set to NULL.
 */
static void lock_apply(struct inode *i, struct file_lock want, struct file_lock *spare[2])
{
	struct file_lock *l, *next;

	for (l = TAILQ_FIRST(&i->locks); l != NULL; l = next) {
		next = TAILQ_NEXT(l, link);
		if (l->kind != want.kind || l->owner != want.owner)
			continue;
		if (l->type == want.type) {
			/* Overlapping or touching: one lock from both. */
			if ((l->end != INT64_MAX && l->end + 1 < want.start) ||
			    (want.end != INT64_MAX && want.end + 1 < l->start))
				continue;
			want.start = MIN(want.start, l->start);
			want.end = MAX(want.end, l->end);
			lock_remove(l);
			continue;
		}
		if (l->start > want.end || l->end < want.start)
			continue;
		if (l->start < want.start && l->end > want.end) {
			struct file_lock *right = spare[1];

			spare[1] = NULL;
			*right = *l;
			right->start = want.end + 1;
			l->end = want.start - 1;
			lock_insert(i, right);
		} else if (l->start < want.start) {
			l->end = want.start - 1;
		} else if (l->end > want.end) {
			l->start = want.end + 1;
		} else {
			lock_remove(l);
		}
	}
	if (want.type != F_UNLCK) {
		l = spare[0];
		spare[0] = NULL;
		*l = want;
		lock_insert(i, l);
	}
	waitq_wake_all(&i->lock_wait, 0);
}

/* Would `want` wait for itself? */
static bool lock_deadlock(struct inode *i, const struct file_lock *want)
{
	const struct file_lock *l = lock_conflict(i, want);
	unsigned steps = 0;

	while (l != NULL && l->kind == LOCK_POSIX && steps++ < 1024) {
		struct blocked *b;

		if (l->owner == want->owner)
			return true;
		TAILQ_FOREACH(b, &blocked_list, link) {
			if (b->want->owner == l->owner)
				break;
		}
		l = b != NULL ? lock_conflict(b->inode, b->want) : NULL;
	}
	return false;
}

static int lock_wait(struct inode *i, const struct file_lock *want)
{
	struct blocked b = {.inode = i, .want = want};
	int r;

	if (want->kind == LOCK_POSIX) {
		if (lock_deadlock(i, want))
			return -EDEADLK;
		TAILQ_INSERT_TAIL(&blocked_list, &b, link);
	}
	r = WAIT_EVENT(&i->lock_wait, lock_conflict(i, want) == NULL);
	if (want->kind == LOCK_POSIX)
		TAILQ_REMOVE(&blocked_list, &b, link);
	return r;
}

static int lock_set(struct inode *i, const struct file_lock *want, bool wait)
{
	struct file_lock *spare[2] = {kmalloc(sizeof(*want)), kmalloc(sizeof(*want))};
	int r = 0;

	if (spare[0] == NULL || spare[1] == NULL) {
		r = -ENOLCK;
	} else if (want->type != F_UNLCK) {
		while (r == 0 && lock_conflict(i, want) != NULL)
			r = wait ? lock_wait(i, want) : -EAGAIN;
	}
	if (r == 0)
		lock_apply(i, *want, spare);
	kfree(spare[0]);
	kfree(spare[1]);
	return r;
}

/* From struct flock's whence, start and length. */
static int lock_range(struct file *f, const struct flock *fl, struct file_lock *ret)
{
	int64_t start, len = fl->l_len;

	switch (fl->l_whence) {
	case 0:
		start = 0;
		break;
	case 1:
		start = (int64_t)f->pos;
		break;
	case 2:
		start = (int64_t)f->inode->size;
		break;
	default:
		return -EINVAL;
	}
	if (__builtin_add_overflow(start, (int64_t)fl->l_start, &start))
		return -EOVERFLOW;
	if (start < 0)
		return -EINVAL;
	ret->start = start;
	ret->end = INT64_MAX;
	if (len > 0) {
		if (__builtin_add_overflow(start, len - 1, &ret->end))
			return -EOVERFLOW;
	} else if (len < 0) {
		if (len == INT64_MIN || start + len < 0)
			return -EINVAL;
		ret->start = start + len;
		ret->end = start - 1;
	}
	return 0;
}

static void lock_get(struct file *f, struct file_lock *want, struct flock *fl)
{
	struct file_lock *l = lock_conflict(f->inode, want);

	if (l == NULL) {
		fl->l_type = F_UNLCK;
		return;
	}
	fl->l_type = (short)l->type;
	fl->l_whence = 0;
	fl->l_start = l->start;
	fl->l_len = l->end == INT64_MAX ? 0 : l->end - l->start + 1;
	fl->l_pid = l->kind == LOCK_OFD ? -1 : l->pid;
}

long locks_fcntl(struct file *f, unsigned cmd, void __user *arg)
{
	bool ofd = cmd == F_OFD_GETLK || cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW;
	bool get = cmd == F_GETLK || cmd == F_OFD_GETLK;
	struct file_lock want;
	struct flock fl;
	int r;

	if (GET_USER(fl, (struct flock __user *)arg) != 0)
		return -EFAULT;
	if (ofd && fl.l_pid != 0)
		return -EINVAL;
	if (fl.l_type != F_RDLCK && fl.l_type != F_WRLCK && (get || fl.l_type != F_UNLCK))
		return -EINVAL;
	memset(&want, 0, sizeof(want));
	r = lock_range(f, &fl, &want);
	if (r != 0)
		return r;
	want.kind = ofd ? LOCK_OFD : LOCK_POSIX;
	want.owner = ofd ? (const void *)f : (const void *)current->proc->files;
	want.pid = current->proc->pid;
	want.type = fl.l_type;
	if (get) {
		lock_get(f, &want, &fl);
		return PUT_USER(fl, (struct flock __user *)arg);
	}
	if ((fl.l_type == F_RDLCK && !f->can_read) || (fl.l_type == F_WRLCK && !f->can_write))
		return -EBADF;
	return lock_set(f->inode, &want, cmd == F_SETLKW || cmd == F_OFD_SETLKW);
}

SYSCALL(flock, unsigned fd, unsigned op)
{
	struct file_lock want = {.kind = LOCK_FLOCK, .start = 0, .end = INT64_MAX};
	struct file_lock *l;
	struct file *f;
	long r;

	switch (op & ~4u /* LOCK_NB */) {
	case 1:
		want.type = F_RDLCK;
		break;
	case 2:
		want.type = F_WRLCK;
		break;
	case 8:
		want.type = F_UNLCK;
		break;
	default:
		return -EINVAL;
	}
	f = fd_get((int)fd);
	if (f == NULL)
		return -EBADF;
	want.owner = f;
	want.pid = current->proc->pid;
	/* A conversion gives up the old lock first, as Linux does. */
	TAILQ_FOREACH(l, &f->inode->locks, link) {
		if (l->kind == LOCK_FLOCK && l->owner == f)
			break;
	}
	if (l != NULL && l->type != want.type) {
		lock_remove(l);
		waitq_wake_all(&f->inode->lock_wait, 0);
	}
	r = lock_set(f->inode, &want, (op & 4) == 0);
	file_put(f);
	return r;
}

static void release_owner(struct inode *i, const void *owner, bool posix)
{
	struct file_lock *l, *next;
	bool any = false;

	for (l = TAILQ_FIRST(&i->locks); l != NULL; l = next) {
		next = TAILQ_NEXT(l, link);
		if (l->owner == owner && (l->kind == LOCK_POSIX) == posix) {
			lock_remove(l);
			any = true;
		}
	}
	if (any)
		waitq_wake_all(&i->lock_wait, 0);
}

void locks_release_posix(struct file *f, struct files *owner)
{
	if (unlikely(!TAILQ_EMPTY(&f->inode->locks)))
		release_owner(f->inode, owner, true);
}

void locks_release_file(struct file *f)
{
	if (unlikely(!TAILQ_EMPTY(&f->inode->locks)))
		release_owner(f->inode, f, false);
}

void locks_show(struct strbuf *sb)
{
	static const char *const kinds[] = {"POSIX ", "OFDLCK", "FLOCK "};
	const struct file_lock *l;
	unsigned n = 0;

	TAILQ_FOREACH(l, &all_locks, all) {
		uint32_t dev = l->inode->sb != NULL ? l->inode->sb->dev : 0;

		strbuf_printf(sb, "%u: %s ADVISORY  %s %d %02x:%02x:%lu %ld ", ++n,
			      kinds[l->kind], l->type == F_WRLCK ? "WRITE" : "READ ",
			      l->kind == LOCK_OFD ? -1 : l->pid, dev >> 8, dev & 0xff,
			      l->inode->ino, (long)l->start);
		if (l->end == INT64_MAX)
			strbuf_printf(sb, "EOF\n");
		else
			strbuf_printf(sb, "%ld\n", (long)l->end);
	}
}
