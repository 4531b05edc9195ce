/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open(2) and its relatives.
 *
 * Two steps, as in Linux: find or create the dentry (open_lookup), then open what was found
 * (open_dentry_checked): type and access checks, truncation, the type's own open. A file just
 * created is opened without an access check, whatever its mode says.
 */
#include <linux/mount.h>
#include <linux/openat2.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

#define TMPFILE_BIT (KO_TMPFILE & ~KO_DIRECTORY)
#define VALID_FLAGS \
	(KO_ACCMODE | KO_CREAT | KO_EXCL | KO_NOCTTY | KO_TRUNC | KO_APPEND | KO_NONBLOCK | \
	 KO_SYNC | KO_ASYNC | KO_DIRECT | KO_LARGEFILE | KO_DIRECTORY | KO_NOFOLLOW | \
	 KO_NOATIME | KO_CLOEXEC | KO_PATH | TMPFILE_BIT)
#define PATH_FLAGS (KO_DIRECTORY | KO_NOFOLLOW | KO_PATH | KO_CLOEXEC)

static const struct file_ops path_fops;		/* O_PATH: nothing can be done with it */

static struct dentry *create_last(struct nameidata *nd, uint32_t mode)
{
	struct dentry *dir = nd->cur;
	struct dentry *d;
	int r = may_create_in(dir->inode);

	if (r != 0)
		return ERR_PTR(r);
	if (nd->len > NAME_MAX_LEN)
		return ERR_PTR(-ENAMETOOLONG);
	if (dir->inode->ops->create == NULL)
		return ERR_PTR(-EACCES);
	d = dir->inode->ops->create(dir, nd->name, nd->len,
				    KS_IFREG | mode_for_create(dir->inode, mode & 07777), 0);
	if (!IS_ERR(d) && inotify_watch_count != 0)
		fsnotify_dir(dir->inode, d->name, d->len, KIN_CREATE, 0);
	return d;
}

/* With O_CREAT: the dentry, made if need be. */
static struct dentry *lookup_or_create(struct nameidata *nd, uint32_t flags, uint32_t mode,
				       bool *ret_created)
{
	struct dentry *d;
	int r;

	for (;;) {
		if (nd->type != LAST_NORM) {
			/* a magic link may have led to a file; otherwise it is a directory */
			if (nd->type != LAST_ROOT || KS_ISDIR(nd->cur->inode->mode))
				return ERR_PTR((flags & KO_EXCL) != 0 ? -EEXIST : -EISDIR);
			return nd_lookup(nd);
		}
		if (nd->slash)
			return ERR_PTR(-EISDIR);
		d = nd_lookup(nd);
		if (IS_ERR(d)) {
			if (PTR_ERR(d) != -ENOENT)
				return d;
			d = create_last(nd, mode);
			*ret_created = !IS_ERR(d);
			return d;
		}
		if ((flags & KO_EXCL) != 0) {
			r = -EEXIST;
		} else if (KS_ISLNK(d->inode->mode) && (flags & KO_NOFOLLOW) == 0) {
			r = nd_follow(nd, d, "");
			dentry_put(d);
			if (r >= 0)
				r = nd_walk(nd);
			if (r < 0)
				return ERR_PTR(r);
			continue;
		} else if (KS_ISDIR(d->inode->mode)) {
			r = -EISDIR;
		} else {
			return d;
		}
		dentry_put(d);
		return ERR_PTR(r);
	}
}

static struct dentry *open_tmpfile(struct nameidata *nd, uint32_t flags, uint32_t mode)
{
	struct dentry *dir = nd_last(nd, (flags & KO_NOFOLLOW) == 0);
	struct dentry *d;
	int r;

	if (IS_ERR(dir))
		return dir;
	if (!KS_ISDIR(dir->inode->mode))
		r = -ENOTDIR;
	else if (!rootfs_owns(dir->inode->sb))
		r = -EOPNOTSUPP;
	else
		r = inode_permission(dir->inode, 2 | 1);
	if (r == 0)
		d = rootfs_tmpfile(dir, mode_for_create(dir->inode, mode & 07777),
				   (flags & KO_EXCL) == 0);
	else
		d = ERR_PTR(r);
	dentry_put(dir);
	return d;
}

static int may_open(struct inode *i, uint32_t flags, bool created)
{
	unsigned acc = flags & KO_ACCMODE;
	unsigned mask = acc == KO_RDONLY ? 4 : acc == KO_WRONLY ? 2 : 6;
	int r;

	if ((flags & KO_TRUNC) != 0)
		mask |= 2;
	switch (i->mode & KS_IFMT) {
	case KS_IFLNK:
		return -ELOOP;
	case KS_IFDIR:
		if ((mask & 2) != 0 || (flags & KO_CREAT) != 0)
			return -EISDIR;
		break;
	case KS_IFCHR:
	case KS_IFBLK:
		if (i->sb != NULL && (i->sb->flags & MS_NODEV) != 0)
			return -EACCES;
		break;
	}
	if (!created) {
		r = inode_permission(i, mask);
		if (r != 0)
			return r;
	}
	if ((flags & KO_NOATIME) != 0)
		return inode_owner_or_capable(i);
	return 0;
}

static int open_by_type(struct inode *i, struct file *f)
{
	switch (i->mode & KS_IFMT) {
	case KS_IFCHR:
		return i->ops != NULL && i->ops->open != NULL && !rootfs_owns(i->sb) ?
			       i->ops->open(i, f) : chrdev_open(i, f);
	case KS_IFIFO:
		return fifo_open(i, f);
	case KS_IFSOCK:
	case KS_IFBLK:
		return -ENXIO;
	}
	return i->ops->open != NULL ? i->ops->open(i, f) : -ENXIO;
}

/* Takes over the reference to d. */
struct file *open_dentry_checked(struct dentry *d, uint32_t flags, bool created)
{
	struct inode *i = d->inode;
	struct file *f;
	bool trunc;
	int r;

	if ((flags & KO_PATH) != 0) {
		f = file_new(d, &path_fops, flags & PATH_FLAGS);
		return f != NULL ? f : ERR_PTR(-ENOMEM);
	}
	r = may_open(i, flags, created);
	if (r != 0) {
		dentry_put(d);
		return ERR_PTR(r);
	}
	f = file_new(d, &path_fops, flags);
	if (f == NULL)
		return ERR_PTR(-ENOMEM);
	trunc = (flags & KO_TRUNC) != 0 && KS_ISREG(i->mode) && !created;
	if (KS_ISREG(i->mode) && (f->can_write || trunc)) {
		r = (i->flags & INODE_IMMUTABLE) != 0 ? -EPERM :
		    i->exec_count > 0		      ? -ETXTBSY : 0;
		if (r == 0 && f->can_write) {
			i->writers++;
			f->counted_writer = true;
		}
	}
	if (r == 0 && (flags & KO_DIRECT) != 0 && KS_ISREG(i->mode) && rootfs_owns(i->sb))
		r = -EINVAL;
	if (r == 0)
		r = open_by_type(i, f);
	f->flags &= ~KO_NOCTTY;		/* only the terminal's open had to see it */
	if (r != 0) {
		f->ops = &path_fops;	/* nothing to release */
		f->flags |= KO_PATH;
		file_put(f);
		return ERR_PTR(r);
	}
	if (trunc)
		r = inode_truncate(i, 0);
	if (r != 0) {
		file_put(f);
		return ERR_PTR(r);
	}
	if (trunc)
		fsnotify_change(d, KIN_MODIFY);
	fsnotify_fast(d, KIN_OPEN);
	return f;
}

struct file *file_open_dentry(struct dentry *d, uint32_t flags)
{
	dentry_get(d);
	return open_dentry_checked(d, flags, false);
}

struct file *file_open(int dirfd, const char *path, uint32_t flags, uint32_t mode,
		       unsigned lookup)
{
	struct nameidata nd;
	struct dentry *d;
	bool created = false;
	int r;

	if ((flags & KO_PATH) != 0)
		flags &= PATH_FLAGS;
	if ((flags & TMPFILE_BIT) != 0 &&
	    ((flags & KO_TMPFILE) != KO_TMPFILE || (flags & KO_ACCMODE) == KO_RDONLY ||
	     (flags & KO_CREAT) != 0))
		return ERR_PTR(-EINVAL);
	if ((flags & (KO_CREAT | KO_DIRECTORY)) == (KO_CREAT | KO_DIRECTORY))
		return ERR_PTR(-EINVAL);
	if ((flags & KO_NOFOLLOW) == 0)
		lookup |= LOOKUP_FOLLOW;
	if ((flags & KO_DIRECTORY) != 0)
		lookup |= LOOKUP_DIRECTORY;
	r = path_parent(&nd, dirfd, path, lookup);
	if (r != 0)
		return ERR_PTR(r);
	if ((flags & TMPFILE_BIT) != 0) {
		d = open_tmpfile(&nd, flags, mode);
		created = true;
		flags &= ~KO_TRUNC;
	} else if ((flags & KO_CREAT) != 0) {
		d = lookup_or_create(&nd, flags, mode, &created);
	} else {
		d = nd_last(&nd, (flags & KO_NOFOLLOW) == 0);
	}
	nd_done(&nd);
	if (IS_ERR(d))
		return (struct file *)d;
	return open_dentry_checked(d, flags, created);
}

static long open_user(int dirfd, const char __user *upath, uint32_t flags, uint32_t mode,
		      unsigned lookup)
{
	char *path = path_get_user(upath);
	struct file *f;
	int r;

	if (IS_ERR(path))
		return PTR_ERR(path);
	r = fd_available();
	f = r == 0 ? file_open(dirfd, path, flags, mode, lookup) : ERR_PTR(r);
	kfree(path);
	if (IS_ERR(f))
		return PTR_ERR(f);
	return fd_install(f, 0, (flags & KO_CLOEXEC) != 0);
}

SYSCALL(open, const char __user *path, unsigned flags, unsigned mode)
{
	return open_user(KAT_FDCWD, path, flags & VALID_FLAGS, mode, 0);
}

SYSCALL(openat, int dirfd, const char __user *path, unsigned flags, unsigned mode)
{
	return open_user(dirfd, path, flags & VALID_FLAGS, mode, 0);
}

SYSCALL(creat, const char __user *path, unsigned mode)
{
	return open_user(KAT_FDCWD, path, KO_CREAT | KO_WRONLY | KO_TRUNC, mode, 0);
}

static const struct {
	uint64_t resolve;
	unsigned lookup;
} resolve_map[] = {
	{RESOLVE_NO_XDEV, LOOKUP_NO_XDEV},
	{RESOLVE_NO_MAGICLINKS, LOOKUP_NO_MAGICLINKS},
	{RESOLVE_NO_SYMLINKS, LOOKUP_NO_SYMLINKS | LOOKUP_NO_MAGICLINKS},
	{RESOLVE_BENEATH, LOOKUP_BENEATH},
	{RESOLVE_IN_ROOT, LOOKUP_IN_ROOT},
	{RESOLVE_CACHED, 0},		/* everything is cached */
};

/* struct open_how may grow: what lies beyond ours must be zero. */
static int open_how_get(struct open_how *how, const void __user *uhow, size_t size)
{
	uint8_t extra[64];
	size_t done = sizeof(*how);

	if (size < sizeof(*how))
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	if (copy_from_user(how, uhow, sizeof(*how)) != 0)
		return -EFAULT;
	while (done < size) {
		size_t n = MIN(size - done, sizeof(extra));

		if (copy_from_user(extra, (const char __user *)uhow + done, n) != 0)
			return -EFAULT;
		for (size_t k = 0; k < n; k++) {
			if (extra[k] != 0)
				return -E2BIG;
		}
		done += n;
	}
	return 0;
}

SYSCALL(openat2, int dirfd, const char __user *path, const void __user *uhow, size_t size)
{
	struct open_how how;
	uint64_t left;
	unsigned lookup = 0;
	int r = open_how_get(&how, uhow, size);

	if (r != 0)
		return r;
	if ((how.flags & ~(uint64_t)VALID_FLAGS) != 0 || (how.mode & ~07777ULL) != 0)
		return -EINVAL;
	if (how.mode != 0 && (how.flags & (KO_CREAT | TMPFILE_BIT)) == 0)
		return -EINVAL;
	if ((how.flags & KO_PATH) != 0 && (how.flags & ~(uint64_t)PATH_FLAGS) != 0)
		return -EINVAL;
	left = how.resolve;
	for (unsigned k = 0; k < ARRAY_SIZE(resolve_map); k++) {
		if ((how.resolve & resolve_map[k].resolve) != 0)
			lookup |= resolve_map[k].lookup;
		left &= ~resolve_map[k].resolve;
	}
	if (left != 0 || (lookup & (LOOKUP_BENEATH | LOOKUP_IN_ROOT)) ==
				 (LOOKUP_BENEATH | LOOKUP_IN_ROOT))
		return -EINVAL;
	if ((how.resolve & RESOLVE_CACHED) != 0 &&
	    (how.flags & (KO_TRUNC | KO_CREAT | TMPFILE_BIT)) != 0)
		return -EAGAIN;
	return open_user(dirfd, path, (uint32_t)how.flags, (uint32_t)how.mode, lookup);
}
