/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of fs/ share and nobody else needs: the path walker, credentials of the
 * caller, checks, the memory filesystem's entry points and the EROFS reader's.
 */
#ifndef FS_INTERNAL_H
#define FS_INTERNAL_H

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/lib/kernel.h"

/* ---- the caller (root before there are tasks, and in unit tests) ---- */
static inline const struct cred *fs_cred(void)
{
	return current != NULL && current->proc != NULL ? current->proc->cred : NULL;
}
static inline uint32_t fs_uid(void)
{
	const struct cred *c = fs_cred();

	return c != NULL ? c->fsuid : 0;
}
static inline uint32_t fs_gid(void)
{
	const struct cred *c = fs_cred();

	return c != NULL ? c->fsgid : 0;
}
bool fs_capable(int cap);
bool fs_in_group(uint32_t gid);
struct dentry *fs_get_root(void);		/* of the caller, with a reference */
struct dentry *fs_get_cwd(void);
uint64_t fs_rlimit(int which);

#define MAX_RW_COUNT	0x7ffff000UL
#define FS_MAX_SIZE	INT64_MAX

/* ---- path walk: namei.c ---- */
enum last_type { LAST_NORM, LAST_DOT, LAST_DOTDOT, LAST_ROOT };

struct nameidata {
	struct dentry *root;		/* ".." stops here, "/" starts here */
	struct dentry *cur;		/* where the walk is; the parent of the last name */
	unsigned flags;			/* LOOKUP_* */
	unsigned links;			/* symlinks followed so far */
	unsigned depth;			/* strings waiting in stack */
	struct link_frame {
		const char *rest;
		char *buf;
	} *stack;
	char *buf;			/* the string being walked, if it is a link's text */
	const char *p;			/* the rest of it */
	const char *name;		/* the last component, not looked up yet */
	size_t len;
	enum last_type type;
	bool slash;			/* it must be a directory: slashes follow it */
};
int nd_start(struct nameidata *nd, int dirfd, const char *path, unsigned flags);
int nd_walk(struct nameidata *nd);		/* up to the last component */
struct dentry *nd_lookup(struct nameidata *nd);	/* the last one itself, no link followed */
struct dentry *nd_last(struct nameidata *nd, bool follow);
int nd_follow(struct nameidata *nd, struct dentry *link, const char *rest);
void nd_done(struct nameidata *nd);
/* nd_start and nd_walk: on success the caller owes nd_done. */
int path_parent(struct nameidata *nd, int dirfd, const char *path, unsigned flags);
struct dentry *dentry_cross_mounts(struct dentry *d);	/* takes over and gives a reference */
/* path_lookup of a user string; LOOKUP_EMPTY as the flags say. */
struct dentry *user_path_lookup(int dirfd, const char __user *upath, unsigned flags);

bool dentry_is_below(const struct dentry *d, const struct dentry *ancestor);
int may_create_in(struct inode *dir);		/* write and search, not removed, not read-only */
int may_delete(struct dentry *dir, struct dentry *victim, bool isdir);
uint32_t mode_for_create(struct inode *dir, uint32_t mode);	/* umask */
/* Owner, group and set-group-id inheritance of a new inode in dir. */
void inode_init_owner(struct inode *i, struct inode *dir);
struct file *open_dentry_checked(struct dentry *d, uint32_t flags, bool created);

/* ---- attributes ---- */
int inode_owner_or_capable(const struct inode *i);	/* 0 or -EPERM */
int inode_truncate(struct inode *i, uint64_t size);	/* checks RLIMIT_FSIZE, then setattr */
int inode_size_allowed(uint64_t size);			/* 0, or -EFBIG with SIGXFSZ */
int file_remove_privs(struct file *f);			/* a write clears set-id bits */
void inode_touch_atime(struct file *f);
void inode_touch_mtime(struct inode *i);
static inline bool sb_readonly(const struct superblock *sb)
{
	return sb != NULL && (sb->flags & 1u /* MS_RDONLY */) != 0;
}

/* ---- descriptors: files.c ---- */
long fd_dup_min(int fd, unsigned long min, bool cloexec);	/* F_DUPFD */
void fd_set_cloexec(int fd, bool on);
int fd_available(void);					/* 0 or -EMFILE */

/* ---- locks: lock.c ---- */
void locks_release_posix(struct file *f, struct files *owner);	/* at each close */
void locks_release_file(struct file *f);			/* flock and OFD, last close */
long locks_fcntl(struct file *f, unsigned cmd, void __user *arg);
void locks_show(struct strbuf *sb);				/* /proc/locks */

/* ---- the memory filesystem: rootfs.c, rfile.c ---- */
extern const struct fs_type tmpfs_type;
int tmpfs_mount(struct superblock *sb, const char *data);
bool rootfs_owns(const struct superblock *sb);		/* made by this code */
struct dentry *rootfs_tmpfile(struct dentry *dir, uint32_t mode, bool linkable);
void rootfs_statfs(struct superblock *sb, uint64_t *blocks, uint64_t *free, uint64_t *files,
		   uint64_t *ffree);
bool rootfs_busy(struct superblock *sb);
void rootfs_teardown(struct superblock *sb);

/* ---- super.c ---- */
struct superblock *sb_new(const struct fs_type *type, uint32_t flags);
uint32_t sb_new_dev(void);
void mounts_show(struct strbuf *sb);			/* /proc/mounts */
void mountinfo_show(struct strbuf *sb);			/* /proc/PID/mountinfo */
void filesystems_show(struct strbuf *sb);		/* /proc/filesystems */

/* ---- inotify.c ---- */
extern unsigned inotify_watch_count;
void inotify_inode_gone(struct inode *i);
void inotify_unmounted(struct inode *i);		/* its watches are told, and go */
uint32_t fsnotify_cookie(void);
/* On the inode alone, without its parent. */
void fsnotify_inode(struct inode *i, uint32_t mask);
/* As fsnotify(), of what is done to the inode rather than through the name: attributes, size.
 * It is told of when the name is gone, too (IN_EXCL_UNLINK). */
void fsnotify_change(struct dentry *d, uint32_t mask);
static inline void fsnotify_fast(struct dentry *d, uint32_t mask)
{
	if (inotify_watch_count != 0)
		fsnotify(d, mask);
}
#define KIN_ACCESS	0x1u
#define KIN_MODIFY	0x2u
#define KIN_ATTRIB	0x4u
#define KIN_CLOSE_WRITE	0x8u
#define KIN_CLOSE_NOWRITE 0x10u
#define KIN_OPEN	0x20u
#define KIN_MOVED_FROM	0x40u
#define KIN_MOVED_TO	0x80u
#define KIN_CREATE	0x100u
#define KIN_DELETE	0x200u
#define KIN_DELETE_SELF	0x400u
#define KIN_MOVE_SELF	0x800u
#define KIN_ISDIR	0x40000000u

/* Offered by others; absent in unit tests. */
long pipe_fcntl(struct file *f, unsigned cmd, unsigned long arg);
long pipe_tee(struct file *in, struct file *out, size_t len, unsigned flags);
#endif
