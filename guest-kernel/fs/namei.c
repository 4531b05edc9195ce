/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path walk: from a string to a dentry.
 *
 * nd_walk() goes up to the last component and leaves it unread, since what is to be done with
 * it differs from call to call; nd_last() looks it up. A symlink in the middle puts the rest of
 * the string on a stack and goes on with its text, so there is no recursion; forty links in all
 * are followed. The walk holds one reference on where it is and one on its root.
 *
 * Mounts are crossed downwards after each lookup and upwards at "..".
 */
#include <linux/capability.h>
#include <linux/openat2.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

#define LINKS_MAX 40

struct dentry *fs_get_root(void)
{
	struct dentry *d = fs_root;

	if (current != NULL && current->proc != NULL && current->proc->fs != NULL &&
	    current->proc->fs->root != NULL)
		d = current->proc->fs->root;
	dentry_get(d);
	return d;
}

struct dentry *fs_get_cwd(void)
{
	struct dentry *d = fs_root;

	if (current != NULL && current->proc != NULL && current->proc->fs != NULL &&
	    current->proc->fs->cwd != NULL)
		d = current->proc->fs->cwd;
	dentry_get(d);
	return d;
}

uint64_t fs_rlimit(int which)
{
	return current != NULL && current->proc != NULL ? rlimit_cur(which) : KRLIM_INFINITY;
}

struct dentry *dentry_cross_mounts(struct dentry *d)
{
	while (d->mounted != NULL) {
		struct dentry *top = d->mounted;

		dentry_get(top);
		dentry_put(d);
		d = top;
	}
	return d;
}

static void nd_set_cur(struct nameidata *nd, struct dentry *d)
{
	dentry_put(nd->cur);
	nd->cur = d;
}

static int start_at_fd(int dirfd, struct dentry **ret)
{
	struct file *f = fd_get_path(dirfd);

	if (f == NULL)
		return -EBADF;
	dentry_get(f->dentry);
	*ret = f->dentry;
	file_put(f);
	return 0;
}

int nd_start(struct nameidata *nd, int dirfd, const char *path, unsigned flags)
{
	bool absolute = path[0] == '/';
	int r = 0;

	memset(nd, 0, sizeof(*nd));
	nd->flags = flags;
	nd->p = path;
	if (path[0] == 0 && (flags & LOOKUP_EMPTY) == 0)
		return -ENOENT;
	if (absolute && (flags & LOOKUP_BENEATH) != 0)
		return -EXDEV;
	if (absolute && (flags & LOOKUP_IN_ROOT) == 0)
		nd->cur = fs_get_root();
	else if (dirfd == KAT_FDCWD)
		nd->cur = fs_get_cwd();
	else
		r = start_at_fd(dirfd, &nd->cur);
	if (r != 0)
		return r;
	if ((flags & (LOOKUP_BENEATH | LOOKUP_IN_ROOT)) != 0) {
		nd->root = nd->cur;
		dentry_get(nd->root);
	} else {
		nd->root = fs_get_root();
	}
	return 0;
}

static void nd_pop(struct nameidata *nd)
{
	struct link_frame *lf = &nd->stack[--nd->depth];

	kfree(nd->buf);
	nd->buf = lf->buf;
	nd->p = lf->rest;
}

void nd_done(struct nameidata *nd)
{
	while (nd->depth > 0)
		nd_pop(nd);
	kfree(nd->buf);
	kfree(nd->stack);
	dentry_put(nd->cur);
	dentry_put(nd->root);
	nd->buf = NULL;
	nd->stack = NULL;
	nd->cur = nd->root = NULL;
}

/* The text of a link, zero-ended, or ERR_PTR. */
static char *link_text(struct dentry *link)
{
	const struct inode *i = link->inode;
	size_t size = i->size > 0 && i->size < PATH_MAX_LEN ? i->size : PATH_MAX_LEN - 1;
	char *buf;
	long n;

	if (i->ops->readlink == NULL)
		return ERR_PTR(-EINVAL);
	buf = kmalloc(size + 1);
	if (buf == NULL)
		return ERR_PTR(-ENOMEM);
	n = i->ops->readlink(link, buf, size);
	if (n <= 0) {
		kfree(buf);
		return ERR_PTR(n == 0 ? -ENOENT : (int)n);
	}
	buf[n] = 0;
	return buf;
}

static int follow_magic(struct nameidata *nd, struct dentry *link)
{
	struct dentry *target;

	if ((nd->flags & LOOKUP_NO_MAGICLINKS) != 0)
		return -ELOOP;
	if ((nd->flags & (LOOKUP_BENEATH | LOOKUP_IN_ROOT)) != 0)
		return -EXDEV;
	target = link->inode->ops->follow(link);
	if (IS_ERR(target))
		return PTR_ERR(target);
	if ((nd->flags & LOOKUP_NO_XDEV) != 0 && target->inode->sb != nd->cur->inode->sb) {
		dentry_put(target);
		return -EXDEV;
	}
	nd_set_cur(nd, target);
	return 1;
}

/*
 * Goes on with a link (borrowed) that was found in nd->cur; `rest` is what of the present
 * string follows it. 0: its text is now walked; 1: a magic link, nd->cur is its target.
 */
int nd_follow(struct nameidata *nd, struct dentry *link, const char *rest)
{
	struct dentry *root;
	char *text;

	if ((nd->flags & LOOKUP_NO_SYMLINKS) != 0 || ++nd->links > LINKS_MAX)
		return -ELOOP;
	if (link->inode->ops->follow != NULL) {
		nd->p = rest;
		return follow_magic(nd, link);
	}
	text = link_text(link);
	if (IS_ERR(text))
		return PTR_ERR(text);
	if (*rest != 0) {
		if (nd->stack == NULL)
			nd->stack = kcalloc(LINKS_MAX, sizeof(*nd->stack));
		if (nd->stack == NULL) {
			kfree(text);
			return -ENOMEM;
		}
		nd->stack[nd->depth].rest = rest;
		nd->stack[nd->depth++].buf = nd->buf;
	} else {
		kfree(nd->buf);
	}
	nd->buf = text;
	nd->p = text;
	if (text[0] != '/')
		return 0;
	if ((nd->flags & LOOKUP_BENEATH) != 0)
		return -EXDEV;
	root = nd->root;
	if ((nd->flags & LOOKUP_NO_XDEV) != 0 && root->inode->sb != nd->cur->inode->sb)
		return -EXDEV;
	dentry_get(root);
	nd_set_cur(nd, root);
	return 0;
}

/* Where ".." leads, with a reference. */
static struct dentry *nd_up(struct nameidata *nd)
{
	struct dentry *d = nd->cur;

	for (;;) {
		if (d == nd->root) {
			if ((nd->flags & LOOKUP_BENEATH) != 0)
				return ERR_PTR(-EXDEV);
			break;
		}
		if (d->parent != d) {
			d = d->parent;
			break;
		}
		if (d->covers == NULL)
			break;
		if ((nd->flags & LOOKUP_NO_XDEV) != 0)
			return ERR_PTR(-EXDEV);
		d = d->covers;
	}
	dentry_get(d);
	return dentry_cross_mounts(d);
}

/* The last component, by its kind, no link followed. */
struct dentry *nd_lookup(struct nameidata *nd)
{
	struct dentry *dir = nd->cur, *d;

	switch (nd->type) {
	case LAST_ROOT:
	case LAST_DOT:
		dentry_get(dir);
		return dir;
	case LAST_DOTDOT:
		return nd_up(nd);
	case LAST_NORM:
		break;
	}
	if (nd->len > NAME_MAX_LEN)
		return ERR_PTR(-ENAMETOOLONG);
	if (dir->inode->ops->lookup == NULL)
		return ERR_PTR(-ENOTDIR);
	d = dir->inode->ops->lookup(dir, nd->name, nd->len);
	if (IS_ERR(d) || likely(d->mounted == NULL))
		return d;
	if ((nd->flags & LOOKUP_NO_XDEV) != 0) {
		dentry_put(d);
		return ERR_PTR(-EXDEV);
	}
	return dentry_cross_mounts(d);
}

/* Takes one component off the string into nd->name, len, type; nd->p: behind it and its
 * slashes. */
static void next_component(struct nameidata *nd)
{
	const char *p = nd->p;

	nd->name = p;
	while (*p != 0 && *p != '/')
		p++;
	nd->len = (size_t)(p - nd->name);
	nd->type = LAST_NORM;
	if (nd->name[0] == '.') {
		if (nd->len == 1)
			nd->type = LAST_DOT;
		else if (nd->len == 2 && nd->name[1] == '.')
			nd->type = LAST_DOTDOT;
	}
	if (*p == '/') {
		while (*p == '/')
			p++;
		if (*p == 0 && nd->depth == 0)
			nd->slash = true;
	}
	nd->p = p;
}

/*
 * Walks until the last component is in nd->name and its directory, searchable, in nd->cur. A
 * string without one ("/", or a link to it) ends with LAST_ROOT and nd->cur the directory.
 */
int nd_walk(struct nameidata *nd)
{
	struct dentry *d;
	int r;

	for (;;) {
		while (*nd->p == '/')
			nd->p++;
		if (*nd->p == 0) {
			if (nd->depth > 0) {
				nd_pop(nd);
				continue;
			}
			nd->type = LAST_ROOT;
			nd->name = nd->p;
			nd->len = 0;
			return 0;
		}
		if (!KS_ISDIR(nd->cur->inode->mode))
			return -ENOTDIR;
		r = inode_permission(nd->cur->inode, 1);
		if (r != 0)
			return r;
		next_component(nd);
		if (*nd->p == 0 && nd->depth == 0)
			return 0;
		d = nd_lookup(nd);
		if (IS_ERR(d))
			return PTR_ERR(d);
		if (KS_ISLNK(d->inode->mode)) {
			r = nd_follow(nd, d, nd->p);
			dentry_put(d);
			if (r < 0)
				return r;
			continue;
		}
		nd_set_cur(nd, d);
	}
}

/* The object itself; a final link is followed when asked, or when slashes follow it. */
struct dentry *nd_last(struct nameidata *nd, bool follow)
{
	struct dentry *d;
	int r;

	for (;;) {
		d = nd_lookup(nd);
		if (IS_ERR(d))
			return d;
		if (KS_ISLNK(d->inode->mode) && nd->type == LAST_NORM &&
		    (follow || nd->slash)) {
			r = nd_follow(nd, d, "");
			dentry_put(d);
			if (r >= 0)
				r = nd_walk(nd);
			if (r < 0)
				return ERR_PTR(r);
			continue;
		}
		if ((nd->slash || (nd->flags & LOOKUP_DIRECTORY) != 0) &&
		    !KS_ISDIR(d->inode->mode)) {
			dentry_put(d);
			return ERR_PTR(-ENOTDIR);
		}
		return d;
	}
}

int path_parent(struct nameidata *nd, int dirfd, const char *path, unsigned flags)
{
	int r = nd_start(nd, dirfd, path, flags);

	if (r == 0) {
		r = nd_walk(nd);
		if (r != 0)
			nd_done(nd);
	}
	return r;
}

struct dentry *path_lookup(int dirfd, const char *path, unsigned flags)
{
	struct nameidata nd;
	struct dentry *d;
	int r;

	r = path_parent(&nd, dirfd, path, flags);
	if (r != 0)
		return ERR_PTR(r);
	d = nd_last(&nd, (flags & LOOKUP_FOLLOW) != 0);
	nd_done(&nd);
	return d;
}

char *path_get_user(const char __user *upath)
{
	char small[128];
	char *buf;
	long n = strncpy_from_user(small, upath, sizeof(small));

	if (n >= 0) {
		buf = kmalloc((size_t)n + 1);
		if (buf == NULL)
			return ERR_PTR(-ENOMEM);
		memcpy(buf, small, (size_t)n + 1);
		return buf;
	}
	if (n != -ENAMETOOLONG)
		return ERR_PTR((int)n);
	buf = kmalloc(PATH_MAX_LEN);
	if (buf == NULL)
		return ERR_PTR(-ENOMEM);
	n = strncpy_from_user(buf, upath, PATH_MAX_LEN);
	if (n < 0) {
		kfree(buf);
		return ERR_PTR((int)n);
	}
	return buf;
}

struct dentry *user_path_lookup(int dirfd, const char __user *upath, unsigned flags)
{
	char *path = path_get_user(upath);
	struct dentry *d;

	if (IS_ERR(path))
		return (struct dentry *)path;
	d = path_lookup(dirfd, path, flags);
	kfree(path);
	return d;
}

/* ---- checks before names change ---- */

int may_create_in(struct inode *dir)
{
	if (dir->nlink == 0)
		return -ENOENT;
	return inode_permission(dir, 2 | 1);
}

int may_delete(struct dentry *dir, struct dentry *victim, bool isdir)
{
	struct inode *di = dir->inode, *vi = victim->inode;
	int r = inode_permission(di, 2 | 1);

	if (r != 0)
		return r;
	if ((di->mode & KS_ISVTX) != 0 && fs_uid() != vi->uid && fs_uid() != di->uid &&
	    !fs_capable(CAP_FOWNER))
		return -EPERM;
	if (isdir) {
		if (!KS_ISDIR(vi->mode))
			return -ENOTDIR;
		if (victim->parent == victim)
			return -EBUSY;
	} else if (KS_ISDIR(vi->mode)) {
		return -EISDIR;
	}
	if (di->nlink == 0)
		return -ENOENT;
	return 0;
}

uint32_t mode_for_create(struct inode *dir, uint32_t mode)
{
	uint32_t mask = 022;

	if (current != NULL && current->proc != NULL && current->proc->fs != NULL)
		mask = current->proc->fs->umask;
	return mode & ~(mask & 0777);
}

/* ---- current directory, root, umask ---- */

SYSCALL(getcwd, char __user *ubuf, unsigned long size)
{
	struct dentry *cwd = fs_get_cwd(), *root = fs_get_root();
	char *buf = kmalloc(PATH_MAX_LEN);
	char *p;
	size_t n;
	long r;

	if (buf == NULL) {
		r = -ENOMEM;
		goto out;
	}
	r = -ENOENT;
	if ((cwd->flags & DENTRY_DELETED) != 0)
		goto out;
	p = dentry_path(cwd, root, buf, PATH_MAX_LEN);
	if (IS_ERR(p)) {
		r = PTR_ERR(p);
		goto out;
	}
	n = strlen(p) + 1;
	r = n > size ? -ERANGE : copy_to_user(ubuf, p, n);
	if (r == 0)
		r = (long)n;
out:
	kfree(buf);
	dentry_put(cwd);
	dentry_put(root);
	return r;
}

/* Takes over the reference. */
static long set_cwd(struct dentry *d)
{
	struct dentry *old;
	int r;

	if (IS_ERR(d))
		return PTR_ERR(d);
	r = KS_ISDIR(d->inode->mode) ? inode_permission(d->inode, 1) : -ENOTDIR;
	if (r != 0) {
		dentry_put(d);
		return r;
	}
	old = current->proc->fs->cwd;
	current->proc->fs->cwd = d;
	dentry_put(old);
	return 0;
}

SYSCALL(chdir, const char __user *path)
{
	return set_cwd(user_path_lookup(KAT_FDCWD, path, LOOKUP_FOLLOW | LOOKUP_DIRECTORY));
}

SYSCALL(fchdir, unsigned fd)
{
	struct file *f = fd_get_path((int)fd);
	struct dentry *d;

	if (f == NULL)
		return -EBADF;
	d = f->dentry;
	dentry_get(d);
	file_put(f);
	return set_cwd(d);
}

SYSCALL(chroot, const char __user *path)
{
	struct dentry *d = user_path_lookup(KAT_FDCWD, path, LOOKUP_FOLLOW | LOOKUP_DIRECTORY);
	struct dentry *old;
	int r;

	if (IS_ERR(d))
		return PTR_ERR(d);
	r = inode_permission(d->inode, 1);
	if (r == 0 && !fs_capable(CAP_SYS_CHROOT))
		r = -EPERM;
	if (r != 0) {
		dentry_put(d);
		return r;
	}
	old = current->proc->fs->root;
	current->proc->fs->root = d;
	dentry_put(old);
	return 0;
}

SYSCALL(umask, int mask)
{
	uint32_t old = current->proc->fs->umask;

	current->proc->fs->umask = (uint32_t)mask & 0777;
	return (long)old;
}
