/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filesystem types, mounts, statfs, and the text of /proc/mounts and its relatives.
 *
 * Mounting is PID 1's work: a task has no mount namespace to play in, so mount(2) and
 * umount2(2) answer EPERM to everybody else, root or not.
 */
#include <linux/mount.h>
#include <asm/statfs.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

struct superblock_list superblocks = TAILQ_HEAD_INITIALIZER(superblocks);

/* Owned by proc/ and ipc/. */
extern const struct fs_type proc_type;
extern const struct fs_type sysfs_type;
extern const struct fs_type devtmpfs_type;
extern const struct fs_type devpts_type;

const struct fs_type *const fs_types[] = {
	&tmpfs_type, &proc_type, &sysfs_type, &devtmpfs_type, &devpts_type, NULL,
};

static const struct fs_type *type_find(const char *name)
{
	for (unsigned k = 0; k < ARRAY_SIZE(fs_types); k++) {
		if (fs_types[k] != NULL && strcmp(fs_types[k]->name, name) == 0)
			return fs_types[k];
	}
	return NULL;
}

uint32_t sb_new_dev(void)
{
	static uint32_t last;

	return (uint32_t)KMKDEV(0, ++last);
}

struct superblock *sb_new(const struct fs_type *type, uint32_t flags)
{
	struct superblock *sb = kzalloc(sizeof(*sb));

	if (sb == NULL)
		return NULL;
	sb->type = type->name;
	sb->magic = type->magic;
	sb->flags = flags;
	sb->dev = sb_new_dev();
	return sb;
}

#define MOUNT_KEPT \
	(MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME | \
	 MS_RELATIME | MS_STRICTATIME)

int mount_at(const char *path, const char *type, uint32_t flags, const char *data)
{
	const struct fs_type *t = type_find(type);
	struct dentry *d;
	struct superblock *sb;
	int r;

	if (t == NULL || t->mount == NULL)
		return -ENODEV;
	d = path_lookup(KAT_FDCWD, path, LOOKUP_FOLLOW | LOOKUP_DIRECTORY);
	if (IS_ERR(d))
		return PTR_ERR(d);
	sb = sb_new(t, flags & MOUNT_KEPT);
	if (sb == NULL) {
		dentry_put(d);
		return -ENOMEM;
	}
	r = t->mount(sb, data);
	if (r != 0) {
		kfree(sb);
		dentry_put(d);
		return r;
	}
	sb->root->covers = d;		/* the reference goes with it */
	d->mounted = sb->root;
	TAILQ_INSERT_TAIL(&superblocks, sb, link);
	return 0;
}

static bool may_mount(void)
{
	return current == NULL || current->proc == NULL || current->proc->pid <= 1;
}

static int remount(const char *path, uint32_t flags)
{
	struct dentry *d = path_lookup(KAT_FDCWD, path, LOOKUP_FOLLOW);
	int r = 0;

	if (IS_ERR(d))
		return PTR_ERR(d);
	if (d->parent != d)
		r = -EINVAL;
	else
		d->inode->sb->flags = flags & MOUNT_KEPT;
	dentry_put(d);
	return r;
}

/* An optional user string; NULL stays NULL. */
static char *optional_string(const void __user *u)
{
	return u == NULL ? NULL : path_get_user(u);
}

SYSCALL(mount, const char __user *usource, const char __user *upath,
	const char __user *utype, unsigned long flags, const void __user *udata)
{
	char *path, *type = NULL, *data = NULL;
	long r;

	if (!may_mount())
		return -EPERM;
	if ((flags & 0xffff0000) == 0xc0ed0000)
		flags &= 0xffff;
	path = path_get_user(upath);
	if (IS_ERR(path))
		return PTR_ERR(path);
	type = optional_string(utype);
	data = optional_string(udata);
	if (IS_ERR(type) || IS_ERR(data)) {
		r = IS_ERR(type) ? PTR_ERR(type) : PTR_ERR(data);
		type = IS_ERR(type) ? NULL : type;
		data = IS_ERR(data) ? NULL : data;
	} else if ((flags & MS_REMOUNT) != 0) {
		r = remount(path, (uint32_t)flags);
	} else if ((flags & (MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE)) != 0) {
		r = 0;			/* there is only one namespace */
	} else if ((flags & (MS_BIND | MS_MOVE)) != 0) {
		r = syscall_partial("mount", "MS_BIND or MS_MOVE", -EINVAL);
	} else if (type == NULL) {
		r = -EINVAL;
	} else {
		r = mount_at(path, type, (uint32_t)flags, data);
	}
	kfree(data);
	kfree(type);
	kfree(path);
	return r;
}

#define UMOUNT_FORCE	1
#define UMOUNT_DETACH	2
#define UMOUNT_EXPIRE	4
#define UMOUNT_NOFOLLOW	8

static int unmount(struct dentry *root, bool detach)
{
	struct superblock *sb = root->inode->sb;
	struct dentry *covered = root->covers;
	bool mem = rootfs_owns(sb);

	if (root->parent != root || covered == NULL)
		return -EINVAL;
	if (!detach && (mem ? rootfs_busy(sb) : root->refs > 1))
		return -EBUSY;
	covered->mounted = NULL;
	root->covers = NULL;
	dentry_put(covered);
	TAILQ_REMOVE(&superblocks, sb, link);
	/* The superblock itself stays: inodes that are still held point to it. */
	if (mem && !detach)
		rootfs_teardown(sb);
	return 0;
}

SYSCALL(umount2, const char __user *upath, int flags)
{
	struct dentry *d;
	long r;

	if (!may_mount())
		return -EPERM;
	if ((flags & ~(UMOUNT_FORCE | UMOUNT_DETACH | UMOUNT_EXPIRE | UMOUNT_NOFOLLOW)) != 0)
		return -EINVAL;
	d = user_path_lookup(KAT_FDCWD, upath,
			     (flags & UMOUNT_NOFOLLOW) != 0 ? 0 : LOOKUP_FOLLOW);
	if (IS_ERR(d))
		return PTR_ERR(d);
	/* Our own reference must not count as a user. */
	d->refs--;
	r = unmount(d, (flags & UMOUNT_DETACH) != 0);
	d->refs++;
	dentry_put(d);
	return r;
}

/* ---- statfs ---- */

static long put_statfs(struct inode *i, struct statfs __user *ubuf)
{
	struct superblock *sb = i->sb;
	struct statfs st;
	uint64_t blocks = 0, free = 0, files = 0, ffree = 0;

	memset(&st, 0, sizeof(st));
	if (rootfs_owns(sb))
		rootfs_statfs(sb, &blocks, &free, &files, &ffree);
	st.f_type = sb != NULL ? sb->magic : 0;
	st.f_bsize = st.f_frsize = PAGE_SIZE;
	st.f_blocks = (long)blocks;
	st.f_bfree = st.f_bavail = (long)free;
	st.f_files = (long)files;
	st.f_ffree = (long)ffree;
	st.f_namelen = NAME_MAX_LEN;
	st.f_fsid.val[0] = sb != NULL ? (int)sb->dev : 0;
	st.f_flags = 0x20 /* ST_VALID */;
	if (sb != NULL) {
		static const struct {
			uint32_t ms, st;
		} map[] = {
			{MS_RDONLY, 1}, {MS_NOSUID, 2}, {MS_NODEV, 4}, {MS_NOEXEC, 8},
			{MS_NOATIME, 1024}, {MS_NODIRATIME, 2048}, {MS_RELATIME, 4096},
		};

		for (unsigned k = 0; k < ARRAY_SIZE(map); k++)
			st.f_flags |= (sb->flags & map[k].ms) != 0 ? map[k].st : 0;
	}
	return PUT_USER(st, ubuf);
}

SYSCALL(statfs, const char __user *path, struct statfs __user *buf)
{
	struct dentry *d = user_path_lookup(KAT_FDCWD, path, LOOKUP_FOLLOW);
	long r;

	if (IS_ERR(d))
		return PTR_ERR(d);
	r = put_statfs(d->inode, buf);
	dentry_put(d);
	return r;
}

SYSCALL(fstatfs, unsigned fd, struct statfs __user *buf)
{
	struct file *f = fd_get_path((int)fd);
	long r;

	if (f == NULL)
		return -EBADF;
	r = put_statfs(f->inode, buf);
	file_put(f);
	return r;
}

/* ---- text for /proc ---- */

static void options_show(struct strbuf *sb, uint32_t flags)
{
	static const struct {
		uint32_t flag;
		const char *text;
	} map[] = {
		{MS_NOSUID, ",nosuid"}, {MS_NODEV, ",nodev"}, {MS_NOEXEC, ",noexec"},
		{MS_NOATIME, ",noatime"}, {MS_NODIRATIME, ",nodiratime"},
		{MS_RELATIME, ",relatime"},
	};

	strbuf_printf(sb, "%s", (flags & MS_RDONLY) != 0 ? "ro" : "rw");
	for (unsigned k = 0; k < ARRAY_SIZE(map); k++) {
		if ((flags & map[k].flag) != 0)
			strbuf_printf(sb, "%s", map[k].text);
	}
}

/* Spaces and such as octal, as mount(8) reads them back. */
static void path_show(struct strbuf *sb, const char *p)
{
	for (; *p != 0; p++) {
		if (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\\')
			strbuf_printf(sb, "\\%03o", (unsigned char)*p);
		else
			strbuf_write(sb, p, 1);
	}
}

/* What is mounted: the type's name. Tools such as busybox's df pass over a "rootfs", since on
 * Linux another filesystem lies upon it. */
static const char *source(const struct superblock *sb)
{
	return strcmp(sb->type, "rootfs") == 0 ? "root" : sb->type;
}

static void mounts_each(struct strbuf *out, bool info)
{
	struct dentry *root = fs_get_root();
	char *buf = kmalloc(PATH_MAX_LEN);
	struct superblock *sb;

	TAILQ_FOREACH(sb, &superblocks, link) {
		char *path = buf != NULL ? dentry_path(sb->root, root, buf, PATH_MAX_LEN) :
					   ERR_PTR(-ENOMEM);
		uint32_t parent = 0;

		if (IS_ERR(path)) {
			out->error = PTR_ERR(path);
			break;
		}
		if (path[0] != '/')
			continue;
		if (sb->root->covers != NULL)
			parent = sb->root->covers->inode->sb->dev & 0xff;
		if (info) {
			strbuf_printf(out, "%u %u 0:%u / ", 20 + (sb->dev & 0xff),
				      parent != 0 ? 20 + parent : 1, sb->dev & 0xff);
			path_show(out, path);
			strbuf_write(out, " ", 1);
			options_show(out, sb->flags);
			strbuf_printf(out, " - %s %s %s\n", sb->type, source(sb),
				      sb_readonly(sb) ? "ro" : "rw");
		} else {
			strbuf_printf(out, "%s ", source(sb));
			path_show(out, path);
			strbuf_printf(out, " %s ", sb->type);
			options_show(out, sb->flags);
			strbuf_printf(out, " 0 0\n");
		}
	}
	kfree(buf);
	dentry_put(root);
}

void mounts_show(struct strbuf *sb)
{
	mounts_each(sb, false);
}

void mountinfo_show(struct strbuf *sb)
{
	mounts_each(sb, true);
}

void filesystems_show(struct strbuf *sb)
{
	for (unsigned k = 0; k < ARRAY_SIZE(fs_types); k++) {
		if (fs_types[k] != NULL)
			strbuf_printf(sb, "%s\t%s\n", fs_types[k]->nodev ? "nodev" : "",
				      fs_types[k]->name);
	}
}
