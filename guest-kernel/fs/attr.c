/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changing attributes: chmod, chown, utimensat and its ancestors, truncate.
 *
 * notify_change() is the one gate: who may change what, and what changes along with it
 * (set-id bits, ctime). Times given by the caller and times that mean "now" differ in whom
 * they are allowed to; ATTR_TIMES_GIVEN says which.
 */
#include <asm-generic/resource.h>
#include <linux/capability.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

#define ATTR_TIMES_GIVEN 0x100u		/* only the owner may; else write permission does */
#define ATTR_CHOWN	0x200u		/* set-id bits go, even when both ids stay */

static int check_ids(const struct inode *i, const struct attr *a)
{
	if (fs_capable(CAP_CHOWN))
		return 0;
	if ((a->mask & ATTR_UID) != 0 && (fs_uid() != i->uid || a->uid != i->uid))
		return -EPERM;
	if ((a->mask & ATTR_GID) != 0 &&
	    (fs_uid() != i->uid || (a->gid != i->gid && !fs_in_group(a->gid))))
		return -EPERM;
	return 0;
}

static int check_change(struct inode *i, const struct attr *a)
{
	int r = 0;

	if (sb_readonly(i->sb))
		return -EROFS;
	if ((a->mask & (ATTR_UID | ATTR_GID)) != 0)
		r = check_ids(i, a);
	if (r == 0 && (a->mask & (ATTR_MODE | ATTR_TIMES_GIVEN)) != 0)
		r = inode_owner_or_capable(i);
	else if (r == 0 && (a->mask & (ATTR_ATIME | ATTR_MTIME)) != 0 &&
		 (a->mask & ATTR_SIZE) == 0 && inode_owner_or_capable(i) != 0)
		r = inode_permission(i, 2) != 0 ? -EACCES : 0;
	return r;
}

/* Set-id bits do not survive a change of owner. */
static void strip_set_ids(struct inode *i, struct attr *a)
{
	if ((a->mask & (ATTR_UID | ATTR_GID | ATTR_CHOWN)) == 0 || KS_ISDIR(i->mode))
		return;
	if ((a->mask & ATTR_MODE) == 0) {
		a->mode = i->mode & 07777;
		a->mask |= ATTR_MODE;
	}
	a->mode &= ~KS_ISUID;
	if ((a->mode & 010) != 0 || (!fs_in_group(i->gid) && !fs_capable(CAP_FSETID)))
		a->mode &= ~KS_ISGID;
}

int notify_change(struct inode *i, const struct attr *given)
{
	struct attr a = *given;
	int r = check_change(i, &a);
	uint32_t gid = (a.mask & ATTR_GID) != 0 ? a.gid : i->gid;

	if (r != 0)
		return r;
	if (i->ops == NULL || i->ops->setattr == NULL)
		return -EPERM;
	if ((a.mask & ATTR_MODE) != 0 && (a.mode & KS_ISGID) != 0 && !fs_in_group(gid) &&
	    !fs_capable(CAP_FSETID))
		a.mode &= ~KS_ISGID;
	strip_set_ids(i, &a);
	a.mask &= ~(ATTR_TIMES_GIVEN | ATTR_CHOWN);
	r = i->ops->setattr(i, &a);
	if (r == 0)
		i->ctime_ns = clock_realtime_ns();
	return r;
}

/* ---- truncate ---- */

int inode_size_allowed(uint64_t size)
{
	uint64_t limit = fs_rlimit(RLIMIT_FSIZE);

	if (size > (uint64_t)FS_MAX_SIZE)
		return -EFBIG;
	if (limit != KRLIM_INFINITY && size > limit) {
		if (current != NULL)
			signal_send_task(current, KSIGXFSZ, NULL);
		return -EFBIG;
	}
	return 0;
}

int inode_truncate(struct inode *i, uint64_t size)
{
	struct attr a = {.mask = ATTR_SIZE | ATTR_MTIME, .size = size};
	int r = size > i->size ? inode_size_allowed(size) : 0;

	if (r != 0)
		return r;
	if ((i->mode & KS_ISUID) != 0 || (i->mode & (KS_ISGID | 010)) == (KS_ISGID | 010)) {
		if (!fs_capable(CAP_FSETID))
			i->mode &= ~(KS_ISUID | ((i->mode & 010) != 0 ? KS_ISGID : 0));
	}
	a.mtime_ns = clock_realtime_ns();
	return notify_change(i, &a);
}

static long truncate_path(struct dentry *d, int64_t size)
{
	struct inode *i = d->inode;
	long r;

	if (KS_ISDIR(i->mode))
		return -EISDIR;
	if (!KS_ISREG(i->mode))
		return -EINVAL;
	r = inode_permission(i, 2);
	if (r == 0 && i->exec_count > 0)
		r = -ETXTBSY;
	if (r == 0 && (i->flags & INODE_IMMUTABLE) != 0)
		r = -EPERM;
	if (r == 0)
		r = inode_truncate(i, (uint64_t)size);
	if (r == 0)
		fsnotify_change(d, KIN_MODIFY);
	return r;
}

SYSCALL(truncate, const char __user *path, int64_t size)
{
	struct dentry *d;
	long r;

	if (size < 0)
		return -EINVAL;
	d = user_path_lookup(KAT_FDCWD, path, LOOKUP_FOLLOW);
	if (IS_ERR(d))
		return PTR_ERR(d);
	r = truncate_path(d, size);
	dentry_put(d);
	return r;
}

SYSCALL(ftruncate, unsigned fd, int64_t size)
{
	struct file *f;
	long r;

	if (size < 0)
		return -EINVAL;
	f = fd_get((int)fd);
	if (f == NULL)
		return -EBADF;
	if (!KS_ISREG(f->inode->mode) || !f->can_write)
		r = -EINVAL;
	else
		r = inode_truncate(f->inode, (uint64_t)size);
	if (r == 0)
		fsnotify_change(f->dentry, KIN_MODIFY);
	file_put(f);
	return r;
}

/* ---- common: change what a path or descriptor names ---- */

static long change_dentry(struct dentry *d, const struct attr *a)
{
	long r = notify_change(d->inode, a);

	if (r == 0)
		fsnotify_change(d, KIN_ATTRIB);
	return r;
}

static long change_path(int dirfd, const char __user *path, unsigned lookup,
			const struct attr *a)
{
	struct dentry *d = user_path_lookup(dirfd, path, lookup);
	long r;

	if (IS_ERR(d))
		return PTR_ERR(d);
	r = (a->mask & ATTR_MODE) != 0 && KS_ISLNK(d->inode->mode) ? -EOPNOTSUPP :
								     change_dentry(d, a);
	dentry_put(d);
	return r;
}

static long change_fd(unsigned fd, const struct attr *a)
{
	struct file *f = fd_get((int)fd);
	long r;

	if (f == NULL)
		return -EBADF;
	r = change_dentry(f->dentry, a);
	file_put(f);
	return r;
}

/* ---- chmod, chown ---- */

SYSCALL(chmod, const char __user *path, unsigned mode)
{
	struct attr a = {.mask = ATTR_MODE, .mode = mode & 07777};

	return change_path(KAT_FDCWD, path, LOOKUP_FOLLOW, &a);
}

SYSCALL(fchmod, unsigned fd, unsigned mode)
{
	struct attr a = {.mask = ATTR_MODE, .mode = mode & 07777};

	return change_fd(fd, &a);
}

SYSCALL(fchmodat, int dirfd, const char __user *path, unsigned mode)
{
	struct attr a = {.mask = ATTR_MODE, .mode = mode & 07777};

	return change_path(dirfd, path, LOOKUP_FOLLOW, &a);
}

SYSCALL(fchmodat2, int dirfd, const char __user *path, unsigned mode, unsigned flags)
{
	struct attr a = {.mask = ATTR_MODE, .mode = mode & 07777};

	if ((flags & ~(KAT_SYMLINK_NOFOLLOW | KAT_EMPTY_PATH)) != 0)
		return -EINVAL;
	return change_path(dirfd, path,
			   ((flags & KAT_SYMLINK_NOFOLLOW) == 0 ? LOOKUP_FOLLOW : 0) |
				   ((flags & KAT_EMPTY_PATH) != 0 ? LOOKUP_EMPTY : 0), &a);
}

static struct attr ids_attr(uint32_t uid, uint32_t gid)
{
	struct attr a = {.mask = ATTR_CHOWN, .uid = uid, .gid = gid};

	if (uid != UINT32_MAX)
		a.mask |= ATTR_UID;
	if (gid != UINT32_MAX)
		a.mask |= ATTR_GID;
	return a;
}

SYSCALL(chown, const char __user *path, uint32_t uid, uint32_t gid)
{
	struct attr a = ids_attr(uid, gid);

	return change_path(KAT_FDCWD, path, LOOKUP_FOLLOW, &a);
}

SYSCALL(lchown, const char __user *path, uint32_t uid, uint32_t gid)
{
	struct attr a = ids_attr(uid, gid);

	return change_path(KAT_FDCWD, path, 0, &a);
}

SYSCALL(fchown, unsigned fd, uint32_t uid, uint32_t gid)
{
	struct attr a = ids_attr(uid, gid);

	return change_fd(fd, &a);
}

SYSCALL(fchownat, int dirfd, const char __user *path, uint32_t uid, uint32_t gid,
	unsigned flags)
{
	struct attr a = ids_attr(uid, gid);

	if ((flags & ~(KAT_SYMLINK_NOFOLLOW | KAT_EMPTY_PATH)) != 0)
		return -EINVAL;
	return change_path(dirfd, path,
			   ((flags & KAT_SYMLINK_NOFOLLOW) == 0 ? LOOKUP_FOLLOW : 0) |
				   ((flags & KAT_EMPTY_PATH) != 0 ? LOOKUP_EMPTY : 0), &a);
}

/* ---- times ---- */

#define UTIME_NOW	((1l << 30) - 1l)
#define UTIME_OMIT	((1l << 30) - 2l)
#define TIME_SEC_MAX	((int64_t)(INT64_MAX / NSEC_PER_SEC) - 1)

/* ts NULL: both now. -EINVAL for nonsense. */
static int times_attr(const struct ktimespec *ts, struct attr *a)
{
	uint64_t now = clock_realtime_ns(), v[2];
	bool both_now = ts == NULL;

	memset(a, 0, sizeof(*a));
	for (unsigned k = 0; k < 2; k++) {
		uint32_t bit = k == 0 ? ATTR_ATIME : ATTR_MTIME;

		v[k] = now;
		if (ts == NULL || ts[k].nsec == UTIME_NOW) {
			a->mask |= bit;
		} else if (ts[k].nsec != UTIME_OMIT) {
			if (ts[k].nsec < 0 || ts[k].nsec >= (int64_t)NSEC_PER_SEC)
				return -EINVAL;
			/* Clamped to what 64 bits of ns hold, as Linux does to what a
			 * filesystem can hold. */
			v[k] = (uint64_t)MAX(MIN(ts[k].sec, TIME_SEC_MAX), -TIME_SEC_MAX) *
				       NSEC_PER_SEC + (uint64_t)ts[k].nsec;
			a->mask |= bit | ATTR_TIMES_GIVEN;
		}
	}
	if (ts != NULL)
		both_now = ts[0].nsec == UTIME_NOW && ts[1].nsec == UTIME_NOW;
	if (!both_now)
		a->mask |= ATTR_TIMES_GIVEN;
	a->atime_ns = v[0];
	a->mtime_ns = v[1];
	return 0;
}

static long do_utimes(int dirfd, const char __user *path, const struct ktimespec *ts,
		      unsigned flags)
{
	struct attr a;
	long r;

	if ((flags & ~(KAT_SYMLINK_NOFOLLOW | KAT_EMPTY_PATH)) != 0)
		return -EINVAL;
	if (ts != NULL && ts[0].nsec == UTIME_OMIT && ts[1].nsec == UTIME_OMIT)
		return 0;
	r = times_attr(ts, &a);
	if (r != 0)
		return r;
	if (path == NULL && dirfd != KAT_FDCWD)
		return flags != 0 ? -EINVAL : change_fd((unsigned)dirfd, &a);
	return change_path(dirfd, path,
			   ((flags & KAT_SYMLINK_NOFOLLOW) == 0 ? LOOKUP_FOLLOW : 0) |
				   ((flags & KAT_EMPTY_PATH) != 0 ? LOOKUP_EMPTY : 0), &a);
}

SYSCALL(utimensat, int dirfd, const char __user *path, const void __user *uts, unsigned flags)
{
	struct ktimespec ts[2];

	if (uts != NULL && copy_from_user(ts, uts, sizeof(ts)) != 0)
		return -EFAULT;
	return do_utimes(dirfd, path, uts != NULL ? ts : NULL, flags);
}

/* struct timeval twice. */
static long utimes_timeval(int dirfd, const char __user *path, const void __user *utv)
{
	struct ktimespec ts[2];

	if (utv == NULL)
		return do_utimes(dirfd, path, NULL, 0);
	if (copy_from_user(ts, utv, sizeof(ts)) != 0)
		return -EFAULT;
	for (unsigned k = 0; k < 2; k++) {
		if (ts[k].nsec < 0 || ts[k].nsec >= 1000000)
			return -EINVAL;
		ts[k].nsec *= 1000;
	}
	return do_utimes(dirfd, path, ts, 0);
}

SYSCALL(utimes, const char __user *path, const void __user *utv)
{
	return utimes_timeval(KAT_FDCWD, path, utv);
}

SYSCALL(futimesat, int dirfd, const char __user *path, const void __user *utv)
{
	return utimes_timeval(dirfd, path, utv);
}

SYSCALL(utime, const char __user *path, const void __user *ubuf)
{
	struct ktimespec ts[2];
	int64_t t[2];

	if (ubuf == NULL)
		return do_utimes(KAT_FDCWD, path, NULL, 0);
	if (copy_from_user(t, ubuf, sizeof(t)) != 0)
		return -EFAULT;
	ts[0] = (struct ktimespec){.sec = t[0]};
	ts[1] = (struct ktimespec){.sec = t[1]};
	return do_utimes(KAT_FDCWD, path, ts, 0);
}
