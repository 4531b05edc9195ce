/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attribute system calls: names, sizes, and who may touch which namespace. Storage is
 * the filesystem's.
 *
 * user.*: files and directories, by their permission bits. trusted.*: CAP_SYS_ADMIN, hidden
 * from others. security.*: readable by all, written with CAP_SYS_ADMIN (capability: with
 * CAP_SETFCAP). system.* (ACLs) and everything else: EOPNOTSUPP.
 */
#include <linux/capability.h>
#include <linux/limits.h>
#include <linux/xattr.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

static int may_user_xattr(struct inode *i, bool write)
{
	if (!KS_ISREG(i->mode) && !KS_ISDIR(i->mode))
		return write ? -EPERM : -ENODATA;
	if (write && KS_ISDIR(i->mode) && (i->mode & KS_ISVTX) != 0 &&
	    inode_owner_or_capable(i) != 0)
		return -EPERM;
	return inode_permission(i, write ? 2 : 4);
}

static int may_xattr(struct inode *i, const char *name, bool write)
{
	if (write && sb_readonly(i->sb))
		return -EROFS;
	if (has_prefix(name, "user."))
		return name[5] == 0 ? -EINVAL : may_user_xattr(i, write);
	if (has_prefix(name, "trusted.")) {
		if (name[8] == 0)
			return -EINVAL;
		if (fs_capable(CAP_SYS_ADMIN))
			return 0;
		return write ? -EPERM : -ENODATA;
	}
	if (has_prefix(name, "security.")) {
		if (name[9] == 0)
			return -EINVAL;
		if (!write)
			return 0;
		return fs_capable(strcmp(name, "security.capability") == 0 ? CAP_SETFCAP :
									     CAP_SYS_ADMIN) ?
			       0 : -EPERM;
	}
	return -EOPNOTSUPP;
}

/* The object of a call: by path (upath not NULL) or descriptor. */
static struct dentry *target(int fd, const char __user *upath, bool follow)
{
	struct dentry *d;
	struct file *f;

	if (upath != NULL)
		return user_path_lookup(KAT_FDCWD, upath, follow ? LOOKUP_FOLLOW : 0);
	f = fd_get(fd);
	if (f == NULL)
		return ERR_PTR(-EBADF);
	d = f->dentry;
	dentry_get(d);
	file_put(f);
	return d;
}

static int get_name(char name[XATTR_NAME_MAX + 1], const char __user *uname)
{
	long n = strncpy_from_user(name, uname, XATTR_NAME_MAX + 1);

	if (n == 0 || n == -ENAMETOOLONG)
		return -ERANGE;
	return n < 0 ? (int)n : 0;
}

static long set_on(struct dentry *d, const char __user *uname, const void __user *uvalue,
		   size_t size, int flags)
{
	char name[XATTR_NAME_MAX + 1];
	struct inode *i = d->inode;
	void *value = NULL;
	long r;

	if ((flags & ~(XATTR_CREATE | XATTR_REPLACE)) != 0)
		return -EINVAL;
	r = get_name(name, uname);
	if (r != 0)
		return r;
	if (size > XATTR_SIZE_MAX)
		return -E2BIG;
	if (size != 0) {
		value = kmalloc(size);
		if (value == NULL)
			return -ENOMEM;
		if (copy_from_user(value, uvalue, size) != 0) {
			kfree(value);
			return -EFAULT;
		}
	}
	r = may_xattr(i, name, true);
	if (r == 0)
		r = i->ops == NULL || i->ops->setxattr == NULL ?
			    -EOPNOTSUPP : i->ops->setxattr(i, name, value, size, flags);
	if (r == 0) {
		i->ctime_ns = clock_realtime_ns();
		fsnotify_change(d, KIN_ATTRIB);
	}
	kfree(value);
	return r;
}

static long get_from(struct dentry *d, const char __user *uname, void __user *uvalue,
		     size_t size)
{
	char name[XATTR_NAME_MAX + 1];
	struct inode *i = d->inode;
	void *value = NULL;
	long r;

	r = get_name(name, uname);
	if (r != 0)
		return r;
	size = MIN(size, (size_t)XATTR_SIZE_MAX);
	r = may_xattr(i, name, false);
	if (r == 0 && (i->ops == NULL || i->ops->getxattr == NULL))
		r = -EOPNOTSUPP;
	if (r != 0)
		return r;
	if (size != 0) {
		value = kmalloc(size);
		if (value == NULL)
			return -ENOMEM;
	}
	r = i->ops->getxattr(i, name, value, size);
	if (r > 0 && size != 0 && copy_to_user(uvalue, value, (size_t)r) != 0)
		r = -EFAULT;
	kfree(value);
	return r;
}

/* Leaves out what the caller may not know of. Returns the new length. */
static size_t hide_trusted(char *list, size_t n)
{
	size_t out = 0;

	for (size_t k = 0; k < n;) {
		size_t len = strlen(list + k) + 1;

		if (!has_prefix(list + k, "trusted.")) {
			memmove(list + out, list + k, len);
			out += len;
		}
		k += len;
	}
	return out;
}

static long list_of(struct dentry *d, char __user *ulist, size_t size)
{
	struct inode *i = d->inode;
	char *list;
	long n;

	if (i->ops == NULL || i->ops->listxattr == NULL)
		return 0;
	n = i->ops->listxattr(i, NULL, 0);
	if (n <= 0)
		return n;
	list = kmalloc((size_t)n);
	if (list == NULL)
		return -ENOMEM;
	n = i->ops->listxattr(i, list, (size_t)n);
	if (n > 0 && !fs_capable(CAP_SYS_ADMIN))
		n = (long)hide_trusted(list, (size_t)n);
	if (n > 0 && size != 0) {
		if ((size_t)n > size)
			n = -ERANGE;
		else if (copy_to_user(ulist, list, (size_t)n) != 0)
			n = -EFAULT;
	}
	kfree(list);
	return n;
}

static long remove_from(struct dentry *d, const char __user *uname)
{
	char name[XATTR_NAME_MAX + 1];
	struct inode *i = d->inode;
	long r;

	r = get_name(name, uname);
	if (r == 0)
		r = may_xattr(i, name, true);
	if (r == 0)
		r = i->ops == NULL || i->ops->removexattr == NULL ?
			    -EOPNOTSUPP : i->ops->removexattr(i, name);
	if (r == 0) {
		i->ctime_ns = clock_realtime_ns();
		fsnotify_change(d, KIN_ATTRIB);
	}
	return r;
}

/* Runs `call` on the dentry d, which `expr` yields. */
#define ON(expr, call) \
	({ \
		struct dentry *d = (expr); \
		long _r = IS_ERR(d) ? PTR_ERR(d) : (call); \
		if (!IS_ERR(d)) \
			dentry_put(d); \
		_r; \
	})
/* A null path is a fault, not a descriptor. */
#define PATH(p) ((p) != NULL ? (p) : (const char __user *)1)

SYSCALL(setxattr, const char __user *p, const char __user *name, const void __user *v,
	size_t size, int flags)
{
	return ON(target(-1, PATH(p), true), set_on(d, name, v, size, flags));
}

SYSCALL(lsetxattr, const char __user *p, const char __user *name, const void __user *v,
	size_t size, int flags)
{
	return ON(target(-1, PATH(p), false), set_on(d, name, v, size, flags));
}

SYSCALL(fsetxattr, int fd, const char __user *name, const void __user *v, size_t size,
	int flags)
{
	return ON(target(fd, NULL, false), set_on(d, name, v, size, flags));
}

SYSCALL(getxattr, const char __user *p, const char __user *name, void __user *v, size_t size)
{
	return ON(target(-1, PATH(p), true), get_from(d, name, v, size));
}

SYSCALL(lgetxattr, const char __user *p, const char __user *name, void __user *v, size_t size)
{
	return ON(target(-1, PATH(p), false), get_from(d, name, v, size));
}

SYSCALL(fgetxattr, int fd, const char __user *name, void __user *v, size_t size)
{
	return ON(target(fd, NULL, false), get_from(d, name, v, size));
}

SYSCALL(listxattr, const char __user *p, char __user *list, size_t size)
{
	return ON(target(-1, PATH(p), true), list_of(d, list, size));
}

SYSCALL(llistxattr, const char __user *p, char __user *list, size_t size)
{
	return ON(target(-1, PATH(p), false), list_of(d, list, size));
}

SYSCALL(flistxattr, int fd, char __user *list, size_t size)
{
	return ON(target(fd, NULL, false), list_of(d, list, size));
}

SYSCALL(removexattr, const char __user *p, const char __user *name)
{
	return ON(target(-1, PATH(p), true), remove_from(d, name));
}

SYSCALL(lremovexattr, const char __user *p, const char __user *name)
{
	return ON(target(-1, PATH(p), false), remove_from(d, name));
}

SYSCALL(fremovexattr, int fd, const char __user *name)
{
	return ON(target(fd, NULL, false), remove_from(d, name));
}
