/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that make, remove and move names. Checks are made here, in Linux's order, so
 * that a filesystem's operations only ever see requests that may succeed.
 */
#include <linux/capability.h>
#include <linux/fs.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

/* ---- creation ---- */

/* Walks to the parent of a name that is to be made, and sees that it is free. */
static int create_start(struct nameidata *nd, int dirfd, const char *path, bool isdir)
{
	struct dentry *d;
	int r = path_parent(nd, dirfd, path, 0);

	if (r != 0)
		return r;
	if (nd->type != LAST_NORM) {
		r = -EEXIST;
		goto fail;
	}
	d = nd_lookup(nd);
	if (!IS_ERR(d)) {
		dentry_put(d);
		r = -EEXIST;
		goto fail;
	}
	r = PTR_ERR(d);
	if (r != -ENOENT)
		goto fail;
	if (nd->slash && !isdir)
		goto fail;
	r = may_create_in(nd->cur->inode);
	if (r == 0)
		return 0;
fail:
	nd_done(nd);
	return r;
}

/* Tells the watchers and lets go. d: what an operation returned. */
static long create_finish(struct nameidata *nd, struct dentry *d)
{
	long r = 0;

	if (IS_ERR(d)) {
		r = PTR_ERR(d);
	} else {
		if (inotify_watch_count != 0)
			fsnotify_dir(nd->cur->inode, d->name, d->len,
				     KIN_CREATE | (KS_ISDIR(d->inode->mode) ? KIN_ISDIR : 0),
				     0);
		dentry_put(d);
	}
	nd_done(nd);
	return r;
}

static long do_mkdir(int dirfd, const char __user *upath, uint32_t mode)
{
	char *path = path_get_user(upath);
	struct nameidata nd;
	struct inode *dir;
	long r;

	if (IS_ERR(path))
		return PTR_ERR(path);
	r = create_start(&nd, dirfd, path, true);
	if (r == 0) {
		dir = nd.cur->inode;
		r = create_finish(&nd, dir->ops->mkdir == NULL ? ERR_PTR(-EPERM) :
				  dir->ops->mkdir(nd.cur, nd.name, nd.len,
						  mode_for_create(dir, mode & 01777)));
	}
	kfree(path);
	return r;
}

SYSCALL(mkdir, const char __user *path, unsigned mode)
{
	return do_mkdir(KAT_FDCWD, path, mode);
}

SYSCALL(mkdirat, int dirfd, const char __user *path, unsigned mode)
{
	return do_mkdir(dirfd, path, mode);
}

static long do_mknod(int dirfd, const char __user *upath, uint32_t mode, unsigned dev)
{
	struct nameidata nd;
	struct inode *dir;
	char *path;
	long r;

	switch (mode & KS_IFMT) {
	case 0:
		mode |= KS_IFREG;
		break;
	case KS_IFREG:
	case KS_IFCHR:
	case KS_IFBLK:
	case KS_IFIFO:
	case KS_IFSOCK:
		break;
	case KS_IFDIR:
		return -EPERM;
	default:
		return -EINVAL;
	}
	path = path_get_user(upath);
	if (IS_ERR(path))
		return PTR_ERR(path);
	r = create_start(&nd, dirfd, path, false);
	if (r == 0) {
		bool isdev = KS_ISCHR(mode) || (mode & KS_IFMT) == KS_IFBLK;
		struct dentry *d;

		dir = nd.cur->inode;
		if (isdev && !fs_capable(CAP_MKNOD))
			d = ERR_PTR(-EPERM);
		else if (dir->ops->create == NULL)
			d = ERR_PTR(-EPERM);
		else
			d = dir->ops->create(nd.cur, nd.name, nd.len,
					     (mode & KS_IFMT) |
						     mode_for_create(dir, mode & 07777),
					     isdev ? dev : 0);
		r = create_finish(&nd, d);
	}
	kfree(path);
	return r;
}

SYSCALL(mknod, const char __user *path, unsigned mode, unsigned dev)
{
	return do_mknod(KAT_FDCWD, path, mode, dev);
}

SYSCALL(mknodat, int dirfd, const char __user *path, unsigned mode, unsigned dev)
{
	return do_mknod(dirfd, path, mode, dev);
}

static long do_symlink(const char __user *utarget, int dirfd, const char __user *upath)
{
	char *target = path_get_user(utarget);
	struct nameidata nd;
	struct inode *dir;
	char *path;
	long r;

	if (IS_ERR(target))
		return PTR_ERR(target);
	path = path_get_user(upath);
	if (IS_ERR(path)) {
		kfree(target);
		return PTR_ERR(path);
	}
	r = target[0] == 0 ? -ENOENT : create_start(&nd, dirfd, path, false);
	if (r == 0) {
		dir = nd.cur->inode;
		r = create_finish(&nd, dir->ops->symlink == NULL ? ERR_PTR(-EPERM) :
				  dir->ops->symlink(nd.cur, nd.name, nd.len, target));
	}
	kfree(path);
	kfree(target);
	return r;
}

SYSCALL(symlink, const char __user *target, const char __user *path)
{
	return do_symlink(target, KAT_FDCWD, path);
}

SYSCALL(symlinkat, const char __user *target, int dirfd, const char __user *path)
{
	return do_symlink(target, dirfd, path);
}

static int may_link(struct inode *old, struct inode *dir)
{
	if (old->sb != dir->sb)
		return -EXDEV;
	if (KS_ISDIR(old->mode) || dir->ops->link == NULL)
		return -EPERM;
	if (old->nlink == 0 && (old->flags & INODE_LINKABLE) == 0)
		return -ENOENT;
	return old->nlink >= 65000 ? -EMLINK : 0;
}

static long do_link(int olddirfd, const char __user *uold, int newdirfd,
		    const char __user *unew, unsigned flags)
{
	struct dentry *old, *d;
	struct nameidata nd;
	unsigned lookup = 0;
	char *path;
	long r;

	if ((flags & ~(KAT_SYMLINK_FOLLOW | KAT_EMPTY_PATH)) != 0)
		return -EINVAL;
	if ((flags & KAT_EMPTY_PATH) != 0) {
		if (!fs_capable(CAP_DAC_READ_SEARCH))
			return -ENOENT;
		lookup |= LOOKUP_EMPTY;
	}
	if ((flags & KAT_SYMLINK_FOLLOW) != 0)
		lookup |= LOOKUP_FOLLOW;
	old = user_path_lookup(olddirfd, uold, lookup);
	if (IS_ERR(old))
		return PTR_ERR(old);
	path = path_get_user(unew);
	if (IS_ERR(path)) {
		dentry_put(old);
		return PTR_ERR(path);
	}
	r = create_start(&nd, newdirfd, path, false);
	if (r == 0) {
		struct inode *dir = nd.cur->inode;

		r = may_link(old->inode, dir);
		d = r != 0 ? ERR_PTR((int)r) :
			     dir->ops->link(nd.cur, nd.name, nd.len, old->inode);
		if (!IS_ERR(d)) {
			old->inode->flags &= ~INODE_LINKABLE;
			fsnotify_inode(old->inode, KIN_ATTRIB);
		}
		r = create_finish(&nd, d);
	}
	kfree(path);
	dentry_put(old);
	return r;
}

SYSCALL(link, const char __user *old, const char __user *new)
{
	return do_link(KAT_FDCWD, old, KAT_FDCWD, new, 0);
}

SYSCALL(linkat, int olddirfd, const char __user *old, int newdirfd, const char __user *new,
	unsigned flags)
{
	return do_link(olddirfd, old, newdirfd, new, flags);
}

/* ---- removal ---- */

/* The last name found was removed. Takes d: as on Linux, a file that nobody else holds says
 * that it is gone before its directory does. */
static void removed_finish(struct nameidata *nd, struct dentry *d, bool isdir)
{
	if (inotify_watch_count != 0 && !isdir)
		fsnotify_inode(d->inode, KIN_ATTRIB);
	dentry_put(d);
	if (inotify_watch_count != 0)
		fsnotify_dir(nd->cur->inode, nd->name, nd->len,
			     KIN_DELETE | (isdir ? KIN_ISDIR : 0), 0);
}

static long unlink_last(struct nameidata *nd)
{
	struct dentry *d, *dir = nd->cur;
	long r;

	if (nd->type != LAST_NORM)
		return -EISDIR;
	d = nd_lookup(nd);
	if (IS_ERR(d))
		return PTR_ERR(d);
	if (nd->slash)
		r = KS_ISDIR(d->inode->mode) ? -EISDIR : -ENOTDIR;
	else
		r = may_delete(dir, d, false);
	if (r == 0)
		r = d->parent != dir ? -EBUSY :
		    dir->inode->ops->unlink == NULL ? -EPERM : dir->inode->ops->unlink(d);
	if (r == 0)
		removed_finish(nd, d, false);
	else
		dentry_put(d);
	return r;
}

static long rmdir_last(struct nameidata *nd)
{
	struct dentry *d, *dir = nd->cur;
	long r;

	switch (nd->type) {
	case LAST_DOTDOT:
		return -ENOTEMPTY;
	case LAST_DOT:
		return -EINVAL;
	case LAST_ROOT:
		return -EBUSY;
	case LAST_NORM:
		break;
	}
	d = nd_lookup(nd);
	if (IS_ERR(d))
		return PTR_ERR(d);
	r = may_delete(dir, d, true);
	if (r == 0)
		r = d->parent != dir ? -EBUSY :
		    dir->inode->ops->rmdir == NULL ? -EPERM : dir->inode->ops->rmdir(d);
	if (r == 0)
		removed_finish(nd, d, true);
	else
		dentry_put(d);
	return r;
}

static long do_remove(int dirfd, const char __user *upath, bool isdir)
{
	char *path = path_get_user(upath);
	struct nameidata nd;
	long r;

	if (IS_ERR(path))
		return PTR_ERR(path);
	r = path_parent(&nd, dirfd, path, 0);
	if (r == 0) {
		r = isdir ? rmdir_last(&nd) : unlink_last(&nd);
		nd_done(&nd);
	}
	kfree(path);
	return r;
}

SYSCALL(unlink, const char __user *path)
{
	return do_remove(KAT_FDCWD, path, false);
}

SYSCALL(rmdir, const char __user *path)
{
	return do_remove(KAT_FDCWD, path, true);
}

SYSCALL(unlinkat, int dirfd, const char __user *path, unsigned flags)
{
	if ((flags & ~KAT_REMOVEDIR) != 0)
		return -EINVAL;
	return do_remove(dirfd, path, (flags & KAT_REMOVEDIR) != 0);
}

/* ---- rename ---- */

struct rename_args {
	struct nameidata from, to;
	struct dentry *old, *new;	/* new: NULL when the name is free */
	unsigned flags;
};

static int rename_find(struct rename_args *ra)
{
	struct dentry *d = nd_lookup(&ra->from);

	if (IS_ERR(d))
		return PTR_ERR(d);
	ra->old = d;
	d = nd_lookup(&ra->to);
	if (!IS_ERR(d)) {
		ra->new = d;
		if ((ra->flags & RENAME_NOREPLACE) != 0)
			return -EEXIST;
	} else if (PTR_ERR(d) != -ENOENT) {
		return PTR_ERR(d);
	} else if ((ra->flags & RENAME_EXCHANGE) != 0) {
		return -ENOENT;
	}
	if ((ra->flags & RENAME_EXCHANGE) != 0 && !KS_ISDIR(ra->new->inode->mode) &&
	    ra->to.slash)
		return -ENOTDIR;
	if (!KS_ISDIR(ra->old->inode->mode) &&
	    (ra->from.slash || ((ra->flags & RENAME_EXCHANGE) == 0 && ra->to.slash)))
		return -ENOTDIR;
	/* A directory cannot move into itself, nor onto its ancestor. */
	if (KS_ISDIR(ra->old->inode->mode) && dentry_is_below(ra->to.cur, ra->old))
		return -EINVAL;
	if (ra->new != NULL && KS_ISDIR(ra->new->inode->mode) &&
	    dentry_is_below(ra->from.cur, ra->new))
		return (ra->flags & RENAME_EXCHANGE) != 0 ? -EINVAL : -ENOTEMPTY;
	return 0;
}

static int rename_check(struct rename_args *ra)
{
	struct dentry *from = ra->from.cur, *to = ra->to.cur;
	bool isdir = KS_ISDIR(ra->old->inode->mode);
	int r = may_delete(from, ra->old, isdir);

	if (r != 0)
		return r;
	if (ra->new == NULL)
		r = may_create_in(to->inode);
	else if ((ra->flags & RENAME_EXCHANGE) != 0)
		r = may_delete(to, ra->new, KS_ISDIR(ra->new->inode->mode));
	else
		r = may_delete(to, ra->new, isdir);
	if (r != 0)
		return r;
	/* Moving a directory elsewhere rewrites its "..". */
	if (from != to) {
		if (isdir)
			r = inode_permission(ra->old->inode, 2);
		if (r == 0 && (ra->flags & RENAME_EXCHANGE) != 0 &&
		    KS_ISDIR(ra->new->inode->mode))
			r = inode_permission(ra->new->inode, 2);
		if (r != 0)
			return r;
	}
	if (ra->old->parent != from || (ra->new != NULL && ra->new->parent != to))
		return -EBUSY;	/* a mount lies on it */
	return from->inode->ops->rename == NULL ? -EPERM : 0;
}

static void rename_notify(struct rename_args *ra, struct inode *gone, const char *oldname,
			  size_t oldlen)
{
	struct inode *from = ra->from.cur->inode, *to = ra->to.cur->inode;
	struct inode *i = ra->old->inode;
	uint32_t isdir = KS_ISDIR(i->mode) ? KIN_ISDIR : 0;
	uint32_t cookie = fsnotify_cookie();

	fsnotify_dir(from, oldname, oldlen, KIN_MOVED_FROM | isdir, cookie);
	fsnotify_dir(to, ra->to.name, ra->to.len, KIN_MOVED_TO | isdir, cookie);
	if (gone != NULL)
		fsnotify_inode(gone, KIN_ATTRIB);
	fsnotify_inode(i, KIN_MOVE_SELF);
	if ((ra->flags & RENAME_EXCHANGE) != 0) {
		i = ra->new->inode;
		isdir = KS_ISDIR(i->mode) ? KIN_ISDIR : 0;
		cookie = fsnotify_cookie();
		fsnotify_dir(to, ra->to.name, ra->to.len, KIN_MOVED_FROM | isdir, cookie);
		fsnotify_dir(from, oldname, oldlen, KIN_MOVED_TO | isdir, cookie);
		fsnotify_inode(i, KIN_MOVE_SELF);
	}
}

static int rename_act(struct rename_args *ra)
{
	struct inode *gone = NULL;
	int r;

	r = ra->from.cur->inode->ops->rename(ra->old, ra->to.cur, ra->to.name, ra->to.len,
					     ra->new, ra->flags);
	if (r != 0 || inotify_watch_count == 0)
		return r;
	if (ra->new != NULL && (ra->flags & RENAME_EXCHANGE) == 0)
		gone = ra->new->inode;
	rename_notify(ra, gone, ra->from.name, ra->from.len);
	return 0;
}

static int rename_paths(int olddirfd, const char *old, int newdirfd, const char *new,
			unsigned flags)
{
	struct rename_args ra = {.flags = flags};
	int r = path_parent(&ra.from, olddirfd, old, 0);

	if (r != 0)
		return r;
	r = path_parent(&ra.to, newdirfd, new, 0);
	if (r != 0) {
		nd_done(&ra.from);
		return r;
	}
	if (ra.from.cur->inode->sb != ra.to.cur->inode->sb)
		r = -EXDEV;
	else if (ra.from.type != LAST_NORM)
		r = -EBUSY;
	else if (ra.to.type != LAST_NORM)
		r = (flags & RENAME_NOREPLACE) != 0 ? -EEXIST : -EBUSY;
	else
		r = rename_find(&ra);
	if (r == 0)
		r = rename_check(&ra);
	/* Two names of one file: nothing happens. */
	if (r == 0 && (ra.new == NULL || ra.new->inode != ra.old->inode))
		r = rename_act(&ra);
	dentry_put(ra.old);
	dentry_put(ra.new);
	nd_done(&ra.to);
	nd_done(&ra.from);
	return r;
}

static long do_rename(int olddirfd, const char __user *uold, int newdirfd,
		      const char __user *unew, unsigned flags)
{
	char *old, *new;
	long r;

	if ((flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) != 0)
		return -EINVAL;
	if ((flags & RENAME_EXCHANGE) != 0 &&
	    (flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)) != 0)
		return -EINVAL;
	if ((flags & RENAME_WHITEOUT) != 0)
		return syscall_partial("renameat2", "RENAME_WHITEOUT", -EINVAL);
	old = path_get_user(uold);
	if (IS_ERR(old))
		return PTR_ERR(old);
	new = path_get_user(unew);
	if (IS_ERR(new)) {
		kfree(old);
		return PTR_ERR(new);
	}
	r = rename_paths(olddirfd, old, newdirfd, new, flags);
	kfree(new);
	kfree(old);
	return r;
}

SYSCALL(rename, const char __user *old, const char __user *new)
{
	return do_rename(KAT_FDCWD, old, KAT_FDCWD, new, 0);
}

SYSCALL(renameat, int olddirfd, const char __user *old, int newdirfd, const char __user *new)
{
	return do_rename(olddirfd, old, newdirfd, new, 0);
}

SYSCALL(renameat2, int olddirfd, const char __user *old, int newdirfd, const char __user *new,
	unsigned flags)
{
	return do_rename(olddirfd, old, newdirfd, new, flags);
}
