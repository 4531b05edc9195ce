/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stat(2) in all its shapes, access(2), readlink(2), getdents(2).
 */
#include <asm/stat.h>
#include <linux/stat.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

/* Times before 1970 are kept as negative numbers. */
static int64_t time_sec(uint64_t ns)
{
	int64_t t = (int64_t)ns;

	return t / (int64_t)NSEC_PER_SEC - (t % (int64_t)NSEC_PER_SEC < 0);
}

static uint32_t time_nsec(uint64_t ns)
{
	return (uint32_t)(int64_t)(ns - (uint64_t)time_sec(ns) * NSEC_PER_SEC);
}

static long put_stat(struct inode *i, struct stat __user *ubuf)
{
	struct stat st;

	if (i->ops != NULL && i->ops->getattr != NULL)
		i->ops->getattr(i);
	memset(&st, 0, sizeof(st));
	st.st_dev = i->sb != NULL ? i->sb->dev : 0;
	st.st_ino = i->ino;
	st.st_nlink = i->nlink;
	st.st_mode = i->mode;
	st.st_uid = i->uid;
	st.st_gid = i->gid;
	st.st_rdev = i->rdev;
	st.st_size = (long)i->size;
	st.st_blksize = (long)PAGE_SIZE;
	st.st_blocks = (long)i->blocks;
	st.st_atime = (unsigned long)time_sec(i->atime_ns);
	st.st_atime_nsec = time_nsec(i->atime_ns);
	st.st_mtime = (unsigned long)time_sec(i->mtime_ns);
	st.st_mtime_nsec = time_nsec(i->mtime_ns);
	st.st_ctime = (unsigned long)time_sec(i->ctime_ns);
	st.st_ctime_nsec = time_nsec(i->ctime_ns);
	return PUT_USER(st, ubuf);
}

static long stat_path(int dirfd, const char __user *path, struct stat __user *ubuf,
		      unsigned lookup)
{
	struct dentry *d = user_path_lookup(dirfd, path, lookup);
	long r;

	if (IS_ERR(d))
		return PTR_ERR(d);
	r = put_stat(d->inode, ubuf);
	dentry_put(d);
	return r;
}

SYSCALL(stat, const char __user *path, struct stat __user *ubuf)
{
	return stat_path(KAT_FDCWD, path, ubuf, LOOKUP_FOLLOW);
}

SYSCALL(lstat, const char __user *path, struct stat __user *ubuf)
{
	return stat_path(KAT_FDCWD, path, ubuf, 0);
}

static long stat_fd(int fd, struct stat __user *ubuf)
{
	struct file *f = fd_get_path(fd);
	long r;

	if (f == NULL)
		return -EBADF;
	r = put_stat(f->inode, ubuf);
	file_put(f);
	return r;
}

SYSCALL(fstat, unsigned fd, struct stat __user *ubuf)
{
	return stat_fd((int)fd, ubuf);
}

/* Is the path the empty string? Also true for what cannot be read: the walk will say so. */
static bool path_is_empty(const char __user *path)
{
	char c;

	return path != NULL && GET_USER(c, path) == 0 && c == 0;
}

static unsigned at_lookup(unsigned flags)
{
	return ((flags & KAT_SYMLINK_NOFOLLOW) == 0 ? LOOKUP_FOLLOW : 0) |
	       ((flags & KAT_EMPTY_PATH) != 0 ? LOOKUP_EMPTY : 0);
}

SYSCALL(newfstatat, int dirfd, const char __user *path, struct stat __user *ubuf,
	unsigned flags)
{
	if ((flags & ~(KAT_SYMLINK_NOFOLLOW | KAT_NO_AUTOMOUNT | KAT_EMPTY_PATH)) != 0)
		return -EINVAL;
	/* How libc does fstat: no walk. */
	if ((flags & KAT_EMPTY_PATH) != 0 && dirfd >= 0 && path_is_empty(path))
		return stat_fd(dirfd, ubuf);
	return stat_path(dirfd, path, ubuf, at_lookup(flags));
}

static struct statx_timestamp stx_time(uint64_t ns)
{
	struct statx_timestamp ts = {.tv_sec = time_sec(ns), .tv_nsec = time_nsec(ns)};

	return ts;
}

/* Linux's encoding of a device number in 32 bits. */
static uint32_t dev_major(uint64_t dev)
{
	return (uint32_t)(dev >> 8) & 0xfff;
}

static uint32_t dev_minor(uint64_t dev)
{
	return (uint32_t)((dev & 0xff) | ((dev >> 12) & 0xfff00));
}

static long put_statx(struct dentry *d, struct statx __user *ubuf)
{
	struct inode *i = d->inode;
	struct statx st;

	if (i->ops != NULL && i->ops->getattr != NULL)
		i->ops->getattr(i);
	memset(&st, 0, sizeof(st));
	st.stx_mask = STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID;
	st.stx_blksize = (uint32_t)PAGE_SIZE;
	st.stx_nlink = i->nlink;
	st.stx_uid = i->uid;
	st.stx_gid = i->gid;
	st.stx_mode = (uint16_t)i->mode;
	st.stx_ino = i->ino;
	st.stx_size = i->size;
	st.stx_blocks = i->blocks;
	st.stx_attributes_mask = STATX_ATTR_MOUNT_ROOT;
	if (d->parent == d && (d->flags & DENTRY_ANON) == 0)
		st.stx_attributes = STATX_ATTR_MOUNT_ROOT;
	st.stx_atime = stx_time(i->atime_ns);
	st.stx_btime = stx_time(i->btime_ns);
	st.stx_ctime = stx_time(i->ctime_ns);
	st.stx_mtime = stx_time(i->mtime_ns);
	st.stx_rdev_major = dev_major(i->rdev);
	st.stx_rdev_minor = dev_minor(i->rdev);
	if (i->sb != NULL) {
		st.stx_dev_major = dev_major(i->sb->dev);
		st.stx_dev_minor = dev_minor(i->sb->dev);
		st.stx_mnt_id = 20 + (i->sb->dev & 0xff);
	}
	return PUT_USER(st, ubuf);
}

SYSCALL(statx, int dirfd, const char __user *path, unsigned flags, unsigned mask,
	struct statx __user *ubuf)
{
	struct dentry *d;
	long r;

	if ((mask & STATX__RESERVED) != 0)
		return -EINVAL;
	if ((flags & ~(KAT_SYMLINK_NOFOLLOW | KAT_NO_AUTOMOUNT | KAT_EMPTY_PATH |
		       0x6000u /* AT_STATX_SYNC_TYPE */)) != 0 || (flags & 0x6000u) == 0x6000u)
		return -EINVAL;
	d = user_path_lookup(dirfd, path, at_lookup(flags));
	if (IS_ERR(d))
		return PTR_ERR(d);
	r = put_statx(d, ubuf);
	dentry_put(d);
	return r;
}

/* ---- access ---- */

static long do_access(int dirfd, const char __user *path, unsigned mode, unsigned flags)
{
	struct dentry *d;
	struct inode *i;
	long r = 0;

	if ((mode & ~7u) != 0 ||
	    (flags & ~(KAT_EACCESS | KAT_SYMLINK_NOFOLLOW | KAT_EMPTY_PATH)) != 0)
		return -EINVAL;
	d = user_path_lookup(dirfd, path, at_lookup(flags));
	if (IS_ERR(d))
		return PTR_ERR(d);
	i = d->inode;
	if ((mode & 1) != 0 && KS_ISREG(i->mode) && i->sb != NULL &&
	    (i->sb->flags & 8 /* MS_NOEXEC */) != 0)
		r = -EACCES;
	else if (mode != 0)
		r = (flags & KAT_EACCESS) != 0 ? inode_permission(i, mode) :
						 inode_permission_real(i, mode);
	dentry_put(d);
	return r;
}

SYSCALL(access, const char __user *path, unsigned mode)
{
	return do_access(KAT_FDCWD, path, mode, 0);
}

SYSCALL(faccessat, int dirfd, const char __user *path, unsigned mode)
{
	return do_access(dirfd, path, mode, 0);
}

SYSCALL(faccessat2, int dirfd, const char __user *path, unsigned mode, unsigned flags)
{
	return do_access(dirfd, path, mode, flags);
}

/* ---- readlink ---- */

/* A magic link shows the path of what it leads to, if its filesystem has no text for it. */
static long link_to_text(struct dentry *d, char *buf)
{
	const struct inode_ops *ops = d->inode->ops;
	struct dentry *target, *root;
	char *p;
	long n;

	if (ops->readlink != NULL)
		return ops->readlink(d, buf, PATH_MAX_LEN);
	if (ops->follow == NULL)
		return -EINVAL;
	target = ops->follow(d);
	if (IS_ERR(target))
		return PTR_ERR(target);
	root = fs_get_root();
	p = dentry_path(target, root, buf, PATH_MAX_LEN);
	n = IS_ERR(p) ? PTR_ERR(p) : (long)strlen(p);
	if (n >= 0)
		memmove(buf, p, (size_t)n);
	dentry_put(root);
	dentry_put(target);
	return n;
}

static long do_readlink(int dirfd, const char __user *path, char __user *ubuf, int size)
{
	struct dentry *d;
	char *buf;
	long r;

	if (size <= 0)
		return -EINVAL;
	d = user_path_lookup(dirfd, path, LOOKUP_EMPTY);
	if (IS_ERR(d))
		return PTR_ERR(d);
	if (!KS_ISLNK(d->inode->mode)) {
		r = path_is_empty(path) ? -ENOENT : -EINVAL;
		dentry_put(d);
		return r;
	}
	buf = kmalloc(PATH_MAX_LEN);
	r = buf != NULL ? link_to_text(d, buf) : -ENOMEM;
	if (r > size)
		r = size;
	if (r > 0 && copy_to_user(ubuf, buf, (size_t)r) != 0)
		r = -EFAULT;
	kfree(buf);
	dentry_put(d);
	return r;
}

SYSCALL(readlink, const char __user *path, char __user *buf, int size)
{
	return do_readlink(KAT_FDCWD, path, buf, size);
}

SYSCALL(readlinkat, int dirfd, const char __user *path, char __user *buf, int size)
{
	return do_readlink(dirfd, path, buf, size);
}

/* ---- getdents ---- */

#define DENTS_MAX 32768u	/* gathered in the kernel, then copied out at once */

struct getdents {
	struct readdir_ctx ctx;
	uint8_t *buf;
	size_t used, size;
	bool old;			/* the layout of getdents(2) */
	bool overflow;
};

static bool dents_emit(struct readdir_ctx *ctx, const char *name, size_t len, uint64_t ino,
		       uint32_t mode, uint64_t next_pos)
{
	struct getdents *g = CONTAINER_OF(ctx, struct getdents, ctx);
	size_t head = g->old ? 18 : 19;
	size_t n = ALIGN_UP(head + len + 1 + (g->old ? 1 : 0), 8);
	uint8_t type = (mode >> 12) & 15;
	uint16_t reclen = (uint16_t)n;
	uint8_t *p = g->buf + g->used;

	if (n > g->size - g->used) {
		g->overflow = true;
		return false;
	}
	memset(p + n - 8, 0, 8);
	memcpy(p, &ino, 8);
	memcpy(p + 8, &next_pos, 8);
	memcpy(p + 16, &reclen, 2);
	memcpy(p + head, name, len);
	p[head + len] = 0;
	if (g->old)
		p[n - 1] = type;
	else
		p[18] = type;
	g->used += n;
	ctx->pos = next_pos;
	return true;
}

static long do_getdents(unsigned fd, void __user *ubuf, unsigned size, bool old)
{
	struct getdents g = {.ctx.emit = dents_emit, .old = old};
	struct file *f = fd_get((int)fd);
	long r;

	if (f == NULL)
		return -EBADF;
	r = -ENOTDIR;
	if (f->ops->readdir == NULL)
		goto out;
	g.size = MIN(size, DENTS_MAX);
	r = -EINVAL;
	if (g.size == 0)
		goto out;
	g.buf = kmalloc(g.size);
	r = -ENOMEM;
	if (g.buf == NULL)
		goto out;
	g.ctx.pos = f->pos;
	r = f->ops->readdir(f, &g.ctx);
	if (g.used == 0) {
		if (r >= 0)
			r = g.overflow ? -EINVAL : 0;
	} else if (copy_to_user(ubuf, g.buf, g.used) != 0) {
		r = -EFAULT;
	} else {
		f->pos = g.ctx.pos;
		r = (long)g.used;
		fsnotify_fast(f->dentry, KIN_ACCESS);
	}
	kfree(g.buf);
out:
	file_put(f);
	return r;
}

SYSCALL(getdents, unsigned fd, void __user *buf, unsigned size)
{
	return do_getdents(fd, buf, size, true);
}

SYSCALL(getdents64, unsigned fd, void __user *buf, unsigned size)
{
	return do_getdents(fd, buf, size, false);
}
