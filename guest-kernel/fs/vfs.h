/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtual filesystem: inodes, dentries, open files.
 *
 * The root is one in-memory tree that starts as the image: an image directory's entries are
 * read into memory when it is first looked at, and from then on it is an ordinary tmpfs
 * directory, so renames, links, whiteouts and stable numbers need no overlay rules. A regular
 * image file shares the image's frames page by page until a page is written (rootfs.c).
 *
 * A dentry is a name in a directory (or the root of a mount, or the invented name of a pipe or
 * socket). Directories have one dentry. Dentries of memory filesystems live as long as the
 * name; procfs makes them on lookup and drops them with the last reference. A path is just a
 * dentry: there are no bind mounts. dentry->mounted is the root of what is mounted on it,
 * root->covers the way back.
 *
 * Reference rules: functions named *_get and those that return a pointer give the caller a
 * reference unless the comment says "borrowed".
 */
#ifndef FS_VFS_H
#define FS_VFS_H

#include <bsd/sys/tree.h>
#include <sys/queue.h>
#include "guest-kernel/core/wait.h"
#include "guest-kernel/lib/kernel.h"
#include "guest-kernel/mm/uaccess.h"

struct vma;
struct file;
struct inode;
struct dentry;
struct superblock;
struct file_lock;

/* ---- constants Linux gives programs, under names that do not collide with libc's ---- */
#define KS_IFMT 0170000u
#define KS_IFSOCK 0140000u
#define KS_IFLNK 0120000u
#define KS_IFREG 0100000u
#define KS_IFBLK 0060000u
#define KS_IFDIR 0040000u
#define KS_IFCHR 0020000u
#define KS_IFIFO 0010000u
#define KS_ISUID 04000u
#define KS_ISGID 02000u
#define KS_ISVTX 01000u
#define KS_ISDIR(m) (((m) & KS_IFMT) == KS_IFDIR)
#define KS_ISREG(m) (((m) & KS_IFMT) == KS_IFREG)
#define KS_ISLNK(m) (((m) & KS_IFMT) == KS_IFLNK)
#define KS_ISCHR(m) (((m) & KS_IFMT) == KS_IFCHR)
#define KS_ISFIFO(m) (((m) & KS_IFMT) == KS_IFIFO)
#define KS_ISSOCK(m) (((m) & KS_IFMT) == KS_IFSOCK)

#define KO_ACCMODE 03u
#define KO_RDONLY 00u
#define KO_WRONLY 01u
#define KO_RDWR 02u
#define KO_CREAT 0100u
#define KO_EXCL 0200u
#define KO_NOCTTY 0400u
#define KO_TRUNC 01000u
#define KO_APPEND 02000u
#define KO_NONBLOCK 04000u
#define KO_DSYNC 010000u
#define KO_ASYNC 020000u
#define KO_DIRECT 040000u
#define KO_LARGEFILE 0100000u
#define KO_DIRECTORY 0200000u
#define KO_NOFOLLOW 0400000u
#define KO_NOATIME 01000000u
#define KO_CLOEXEC 02000000u
#define KO_SYNC 04010000u
#define KO_PATH 010000000u
#define KO_TMPFILE 020200000u

#define KAT_FDCWD (-100)
#define KAT_SYMLINK_NOFOLLOW 0x100u
#define KAT_EACCESS 0x200u
#define KAT_REMOVEDIR 0x200u
#define KAT_SYMLINK_FOLLOW 0x400u
#define KAT_NO_AUTOMOUNT 0x800u
#define KAT_EMPTY_PATH 0x1000u

#define KPOLLIN 0x001u
#define KPOLLPRI 0x002u
#define KPOLLOUT 0x004u
#define KPOLLERR 0x008u
#define KPOLLHUP 0x010u
#define KPOLLNVAL 0x020u
#define KPOLLRDNORM 0x040u
#define KPOLLRDBAND 0x080u
#define KPOLLWRNORM 0x100u
#define KPOLLRDHUP 0x2000u

#define NAME_MAX_LEN 255
#define PATH_MAX_LEN 4096
#define KMKDEV(major, minor) (((uint64_t)(major) << 8) | (minor))

/* ---- inode ---- */
struct superblock {
	const char *type;		/* "rootfs", "proc", "tmpfs" ... as /proc/mounts shows */
	uint32_t dev;			/* st_dev */
	uint32_t magic;			/* statfs f_type */
	struct dentry *root;
	uint64_t next_ino;
	uint32_t flags;			/* MS_RDONLY ... */
	void *priv;
	TAILQ_ENTRY(superblock) link;
};
TAILQ_HEAD(superblock_list, superblock);
extern struct superblock_list superblocks;	/* in mount order */

struct attr {				/* setattr: what mask says */
	uint32_t mask;
	uint32_t mode, uid, gid;
	uint64_t size;
	uint64_t atime_ns, mtime_ns;
};
#define ATTR_MODE 0x1u
#define ATTR_UID 0x2u
#define ATTR_GID 0x4u
#define ATTR_SIZE 0x8u
#define ATTR_ATIME 0x10u
#define ATTR_MTIME 0x20u

/* One directory entry handed to a reader. Returns false to stop (buffer full). cookie is
 * what lseek/telldir see: where to go on after this entry; stable while the entry lives. */
struct readdir_ctx {
	uint64_t pos;
	bool (*emit)(struct readdir_ctx *ctx, const char *name, size_t len, uint64_t ino,
		     uint32_t mode, uint64_t next_pos);
};

/* NULL entries: -ENOTDIR for lookup on non-directories, else -EPERM (as Linux answers).
 * Permission checks, name checks and mount crossing are done by namei.c before the call. */
struct inode_ops {
	/* dentry of name in dir, or ERR_PTR(-ENOENT). */
	struct dentry *(*lookup)(struct dentry *dir, const char *name, size_t len);
	struct dentry *(*create)(struct dentry *dir, const char *name, size_t len,
				 uint32_t mode, uint64_t rdev);	/* any type but dir, link */
	struct dentry *(*mkdir)(struct dentry *dir, const char *name, size_t len, uint32_t mode);
	struct dentry *(*symlink)(struct dentry *dir, const char *name, size_t len,
				  const char *target);
	struct dentry *(*link)(struct dentry *dir, const char *name, size_t len,
			       struct inode *target);
	int (*unlink)(struct dentry *victim);
	int (*rmdir)(struct dentry *victim);
	/* new may exist (replaced; checked compatible by namei.c); flags: RENAME_EXCHANGE,
	 * RENAME_NOREPLACE already handled, RENAME_WHITEOUT refused. */
	int (*rename)(struct dentry *old, struct dentry *newdir, const char *name, size_t len,
		      struct dentry *existing, unsigned flags);
	/* symlink text into buf, length, no zero added */
	long (*readlink)(struct dentry *d, char *buf, size_t size);
	/* magic links (/proc/self/exe, fd/N): the target itself instead of text */
	struct dentry *(*follow)(struct dentry *d);
	int (*setattr)(struct inode *i, const struct attr *a);
	void (*getattr)(struct inode *i);	/* refresh fields before stat, may be NULL */
	int (*open)(struct inode *i, struct file *f);	/* sets f->ops, f->priv */
	long (*getxattr)(struct inode *i, const char *name, void *buf, size_t size);
	int (*setxattr)(struct inode *i, const char *name, const void *buf, size_t size,
			int flags);
	long (*listxattr)(struct inode *i, char *buf, size_t size);
	int (*removexattr)(struct inode *i, const char *name);
	/*
	 * The frame that holds page `index`, for mapping. write false: a frame to map read-only
	 * (image frame, cache page, or the zero page for a hole); write true: the inode's own
	 * page, allocated or copied up, other mappings of the old frame zapped. A reference is
	 * taken (phys_put gives it back). -EFAULT beyond end of file (SIGBUS), -ENOSPC, -ENOMEM.
	 */
	int (*get_page)(struct inode *i, uint64_t index, bool write, paddr_t *ret);
	/* Contiguous image frames from index on, at most n: how many can be mapped read-only in
	 * a row starting at *ret; 0 if none. For filling page tables ahead. May be NULL. */
	uint64_t (*get_run)(struct inode *i, uint64_t index, uint64_t n, paddr_t *ret);
	void (*free)(struct inode *i);		/* last reference, nlink 0 or not cached */
};

struct inode {
	uint32_t refs;
	uint32_t mode;			/* type and permissions */
	uint32_t uid, gid;
	uint32_t nlink;
	uint64_t ino, size, rdev;
	uint64_t blocks;		/* 512-byte units */
	uint64_t atime_ns, mtime_ns, ctime_ns, btime_ns;	/* since 1970 */
	struct superblock *sb;
	const struct inode_ops *ops;
	TAILQ_HEAD(, vma) mappings;	/* VMAs that map this inode */
	TAILQ_HEAD(, file_lock) locks;
	struct waitq lock_wait;
	uint32_t writers;		/* files open for writing: ETXTBSY */
	uint32_t exec_count;		/* running programs: ETXTBSY */
	bool patched;			/* some of its pages have patched copies: mm/patch.c */
	uint32_t seals;			/* memfd: F_SEAL_* */
	uint32_t flags;			/* INODE_* */
	void *pipe;			/* struct pipe of a FIFO */
	void *sock;			/* bound AF_UNIX socket */
	struct { void *first; } watches;	/* inotify */
	void *priv;			/* of the filesystem */
};

#define INODE_LINKABLE	0x1u		/* O_TMPFILE without O_EXCL: linkat may name it */
#define INODE_MEMFD	0x2u		/* seals mean something */
#define INODE_IMMUTABLE	0x4u		/* never open for writing (initd's own file) */

struct inode *inode_new(struct superblock *sb, uint32_t mode);	/* refs 1, times now */
/* The same with `extra` zeroed bytes behind it, which priv points to: freed with it. */
struct inode *inode_new_priv(struct superblock *sb, uint32_t mode, size_t extra);
void inode_get(struct inode *i);
void inode_put(struct inode *i);

/* ---- dentry ---- */
struct dentry {
	uint32_t refs;
	uint32_t flags;			/* DENTRY_* */
	struct inode *inode;		/* reference held */
	struct dentry *parent;		/* reference held; self at a root */
	struct dentry *mounted;		/* root of the mount on top, or NULL */
	struct dentry *covers;		/* of a mount root: what it covers, or NULL */
	uint64_t cookie;		/* position in its directory */
	void *priv;			/* of the filesystem */
	struct dentry *hash_next;	/* memory filesystems: in the directory's table, */
	RB_ENTRY(dentry) by_cookie;	/* and in its order */
	uint32_t hash;
	uint16_t len, room;		/* of name; what it may grow to, zero included */
	char *name;			/* zero-ended: store, or an allocation of its own */
	char store[];
};
#define DENTRY_DELETED	0x1u		/* unlinked: paths show " (deleted)" */
#define DENTRY_ANON	0x2u		/* pipe:[n], socket:[n], anon_inode:..., memfd:x */
extern struct dentry *fs_root;		/* the global root, set by rootfs_mount */
struct dentry *dentry_new(struct dentry *parent, const char *name, size_t len,
			  struct inode *inode);	/* takes over the inode reference */
/* For pipes and such: a file that has no place in the tree. Takes over the inode reference. */
struct dentry *dentry_anon(struct inode *inode, const char *name);
/* rename: -ENOMEM with nothing changed; cannot fail when room was reserved. */
int dentry_set_name(struct dentry *d, const char *name, size_t len);
int dentry_reserve_name(struct dentry *d, size_t len);
void dentry_get(struct dentry *d);
void dentry_put(struct dentry *d);
/* Absolute path as seen from `root` (NULL: the global root) into buf; returns its start inside
 * buf, or ERR_PTR(-ENAMETOOLONG). " (deleted)" and "(unreachable)" as Linux has them. */
char *dentry_path(struct dentry *d, struct dentry *root, char *buf, size_t size);

/* ---- open files ---- */
struct file_ops {
	/* pos: NULL for streams. Bytes, 0 at end of file, or negative errno. */
	long (*read)(struct file *f, struct uio *u, uint64_t *pos);
	long (*write)(struct file *f, struct uio *u, uint64_t *pos);
	long (*lseek)(struct file *f, int64_t off, int whence);	/* NULL: -ESPIPE */
	int (*readdir)(struct file *f, struct readdir_ctx *ctx);
	unsigned (*poll)(struct file *f, struct poll_table *pt);	/* NULL: always ready;
									 * epoll: -EPERM */
	long (*ioctl)(struct file *f, unsigned cmd, unsigned long arg);	/* NULL: -ENOTTY */
	int (*mmap)(struct file *f, struct vma *v);	/* NULL: by inode->ops->get_page */
	int (*flush)(struct file *f);			/* each close(2) */
	void (*release)(struct file *f);		/* last reference */
	int (*fsync)(struct file *f);
	int (*fallocate)(struct file *f, int mode, uint64_t off, uint64_t len);
	void (*show_fdinfo)(struct file *f, struct strbuf *sb);
};

struct file {
	uint32_t refs;
	uint32_t flags;			/* KO_* without creation flags */
	uint64_t pos;
	const struct file_ops *ops;
	struct inode *inode;		/* = dentry->inode, borrowed from it */
	struct dentry *dentry;		/* reference held */
	void *priv;
	TAILQ_HEAD(, epitem) epitems;	/* epoll interest in this file */
	int owner_pid, owner_sig;	/* F_SETOWN, F_SETSIG */
	bool can_read, can_write;
	bool counted_writer;		/* in inode->writers */
	uint64_t readdir_pos;
};

struct file *file_new(struct dentry *d /* reference taken over */, const struct file_ops *ops,
		      uint32_t flags);
void file_get(struct file *f);
void file_put(struct file *f);

uint32_t file_flags_shown(const struct file *f);	/* to programs: F_GETFL, fdinfo */

/* Kernel-side I/O: exec, #!, sendfile. */
long file_read_kernel(struct file *f, void *buf, size_t n, uint64_t pos);
long file_read(struct file *f, struct uio *u, uint64_t *pos);	/* checks can_read etc. */
long file_write(struct file *f, struct uio *u, uint64_t *pos);
unsigned file_poll(struct file *f, struct poll_table *pt);
/* fs/epoll.c: file_put() calls it at the last reference, before anything is torn down, when
 * f->epitems is not empty. */
void epoll_file_release(struct file *f);
/* fs/anon.c: a file without a place in the tree ("anon_inode:[eventfd]"), KO_RDWR unless
 * flags say otherwise. ERR_PTR(-ENOMEM) leaves priv with the caller. */
struct file *anon_file_new(const char *name, const struct file_ops *ops, void *priv,
			   uint32_t flags);
long anon_lseek(struct file *f, int64_t off, int whence);	/* as Linux's noop_llseek */

/* ---- descriptor tables: files.c ---- */
struct files *files_new(void);
struct files *files_copy(struct files *fs);	/* fork; NULL when out of memory */
void files_get(struct files *fs);
void files_put(struct files *fs);
bool files_is_shared(const struct files *fs);	/* with another process */
void files_close_on_exec(struct files *fs);
struct file *fd_get(int fd);			/* of current; NULL: EBADF (also for O_PATH) */
struct file *fd_get_path(int fd);		/* also O_PATH */
int fd_install(struct file *f, int min, bool cloexec);	/* lowest free >= min; takes over the
							 * reference, also on failure (-EMFILE) */
int fd_close(int fd);
/* For /proc/PID/fd: the file at fd in another table, or NULL; next used fd >= fd, or -1. */
struct file *files_file(struct files *fs, int fd);
int files_next(struct files *fs, int fd);
bool files_cloexec(struct files *fs, int fd);

/* ---- paths: namei.c ---- */
#define LOOKUP_FOLLOW	0x1u		/* a final symlink */
#define LOOKUP_DIRECTORY 0x2u
#define LOOKUP_EMPTY	0x4u		/* "" is the dirfd itself */
#define LOOKUP_PARENT	0x8u
/* openat2's */
#define LOOKUP_NO_SYMLINKS 0x100u
#define LOOKUP_BENEATH	0x200u
#define LOOKUP_IN_ROOT	0x400u
#define LOOKUP_NO_XDEV	0x800u
#define LOOKUP_NO_MAGICLINKS 0x1000u
struct dentry *path_lookup(int dirfd, const char *path, unsigned flags);	/* or ERR_PTR */
/* user path copied in: kfree it; ERR_PTR(-EFAULT, -ENAMETOOLONG). */
char *path_get_user(const char __user *upath);
struct file *file_open(int dirfd, const char *path, uint32_t flags, uint32_t mode,
		       unsigned lookup);	/* or ERR_PTR */
struct file *file_open_dentry(struct dentry *d, uint32_t flags);	/* or ERR_PTR */
int inode_permission(struct inode *i, unsigned mask /* 4 r, 2 w, 1 x */);
int inode_permission_real(struct inode *i, unsigned mask);	/* access(2): real ids */
int notify_change(struct inode *i, const struct attr *a);	/* checks, then ops->setattr */
int mount_at(const char *path, const char *type, uint32_t flags, const char *data);

/* ---- filesystems: each has `int x_mount(struct superblock **ret, const char *data)` ---- */
struct fs_type {
	const char *name;
	uint32_t magic;
	bool nodev;			/* for /proc/filesystems */
	int (*mount)(struct superblock *sb, const char *data);	/* fills sb->root */
};
extern const struct fs_type *const fs_types[];	/* NULL-ended, fs/super.c */
/* The root: image may be NULL (tests: empty tmpfs). image_pa: where it lies in memory. */
int rootfs_mount(paddr_t image_pa, const void *image, uint64_t image_size);
/* A new unnamed regular file in memory (memfd, initd, shared anonymous memory). */
struct inode *shmem_inode(uint64_t size);
/* A file whose pages are these frames of RAM (initd): read-only executable. */
struct file *memfile_open(const char *name, paddr_t pa, uint64_t size);

/* ---- device numbers: fs/devices.c holds the static table ---- */
struct chrdev {
	uint32_t major, minor;
	const char *name;		/* in devtmpfs; NULL: none */
	uint32_t mode;			/* permissions of the node */
	int (*open)(struct inode *i, struct file *f);
};
extern const struct chrdev chrdevs[];
extern const unsigned nchrdevs;
int chrdev_open(struct inode *i, struct file *f);	/* -ENXIO for unknown numbers */

/* inotify: fs/inotify.c; called by namei.c and file code; cheap when nobody watches. */
void fsnotify(struct dentry *d, uint32_t mask);		/* IN_* on the inode and, with its
							 * name, on its parent */
void fsnotify_dir(struct inode *dir, const char *name, size_t len, uint32_t mask,
		  uint32_t cookie);

/* ipc/pipe.c */
int fifo_open(struct inode *i, struct file *f);
/* net/unix.c */
int unix_bind_node(struct dentry *d, void *sock);

#endif
