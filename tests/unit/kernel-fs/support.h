/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of guest-kernel/fs/ stand on: an arena for RAM, one process, memory that the
 * host's sanitizers watch (kmalloc is malloc), and "user" memory that is the test's own.
 */
#ifndef KERNEL_FS_SUPPORT_H
#define KERNEL_FS_SUPPORT_H

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

#define RAM_SIZE	(256UL << 20)

/* Fresh memory and process, an empty root (image NULL) or one over an image. 0 or -errno. */
int support_init(const void *image, uint64_t size);
void support_user(uint32_t uid, uint32_t gid);	/* loses all capabilities unless uid is 0 */
/* User addresses in [start, start + n) fault. */
void support_bad(const void *start, size_t n);
extern long fail_after;		/* the Nth allocation from now fails; -1: none */
extern long allocations;	/* live ones */
extern unsigned zaps;		/* calls of mm_zap_inode */
extern int last_signal;
extern struct process process;
uint64_t support_free_pages(void);

/* Deterministic random numbers. */
uint32_t rnd(void);
void rnd_seed(uint64_t seed);
static inline uint32_t rnd_below(uint32_t n)
{
	return rnd() % n;
}

#define SYS0(name) long sys_##name(void);
#define SYS(name, ...) long sys_##name(__VA_ARGS__);
SYS(open, const char *path, unsigned flags, unsigned mode)
SYS(openat, int dirfd, const char *path, unsigned flags, unsigned mode)
SYS(openat2, int dirfd, const char *path, const void *how, size_t size)
SYS(close, unsigned fd)
SYS(read, unsigned fd, void *buf, size_t n)
SYS(write, unsigned fd, const void *buf, size_t n)
SYS(pread64, unsigned fd, void *buf, size_t n, int64_t pos)
SYS(pwrite64, unsigned fd, const void *buf, size_t n, int64_t pos)
SYS(lseek, unsigned fd, int64_t off, int whence)
SYS(ftruncate, unsigned fd, int64_t size)
SYS(truncate, const char *path, int64_t size)
SYS(fallocate, unsigned fd, int mode, int64_t off, int64_t len)
SYS(copy_file_range, int in, int64_t *ioff, int out, int64_t *ooff, size_t n, unsigned flags)
SYS(sendfile, int out, int in, int64_t *off, size_t n)
SYS(mkdir, const char *path, unsigned mode)
SYS(mkdirat, int dirfd, const char *path, unsigned mode)
SYS(rmdir, const char *path)
SYS(unlink, const char *path)
SYS(unlinkat, int dirfd, const char *path, unsigned flags)
SYS(rename, const char *from, const char *to)
SYS(renameat2, int fd1, const char *from, int fd2, const char *to, unsigned flags)
SYS(link, const char *from, const char *to)
SYS(linkat, int fd1, const char *from, int fd2, const char *to, unsigned flags)
SYS(symlink, const char *target, const char *path)
SYS(readlink, const char *path, char *buf, int size)
SYS(mknod, const char *path, unsigned mode, unsigned dev)
SYS(chdir, const char *path)
SYS(fchdir, unsigned fd)
SYS(chroot, const char *path)
SYS(getcwd, char *buf, unsigned long size)
SYS(umask, int mask)
SYS(chmod, const char *path, unsigned mode)
SYS(fchmodat2, int dirfd, const char *path, unsigned mode, unsigned flags)
SYS(chown, const char *path, uint32_t uid, uint32_t gid)
SYS(utimensat, int dirfd, const char *path, const void *ts, unsigned flags)
SYS(access, const char *path, unsigned mode)
SYS(faccessat2, int dirfd, const char *path, unsigned mode, unsigned flags)
SYS(dup, unsigned fd)
SYS(dup2, unsigned from, unsigned to)
SYS(dup3, unsigned from, unsigned to, unsigned flags)
SYS(close_range, unsigned first, unsigned last, unsigned flags)
SYS(fcntl, unsigned fd, unsigned cmd, unsigned long arg)
SYS(flock, unsigned fd, unsigned op)
SYS(ioctl, unsigned fd, unsigned cmd, unsigned long arg)
SYS(getdents64, unsigned fd, void *buf, unsigned size)
SYS(memfd_create, const char *name, unsigned flags)
SYS(setxattr, const char *p, const char *name, const void *v, size_t size, int flags)
SYS(getxattr, const char *p, const char *name, void *v, size_t size)
SYS(lgetxattr, const char *p, const char *name, void *v, size_t size)
SYS(listxattr, const char *p, char *list, size_t size)
SYS(removexattr, const char *p, const char *name)
SYS(inotify_init1, unsigned flags)
SYS(inotify_add_watch, int fd, const char *path, uint32_t mask)
SYS(inotify_rm_watch, int fd, int wd)
SYS(splice, int in, int64_t *ioff, int out, int64_t *ooff, size_t n, unsigned flags)
SYS(pipe2, int *fds, unsigned flags)
SYS(mount, const char *src, const char *path, const char *type, unsigned long flags,
    const void *data)
SYS(umount2, const char *path, int flags)

/* The parts of struct stat that tests look at, by their place in the x86-64 layout. */
struct kstat {
	uint64_t dev, ino, nlink;
	uint32_t mode, uid, gid, pad;
	uint64_t rdev;
	int64_t size, blksize, blocks;
	uint64_t times[6];
	int64_t unused[3];
};
_Static_assert(sizeof(struct kstat) == 144, "struct stat of x86-64");
SYS(newfstatat, int dirfd, const char *path, struct kstat *st, unsigned flags)
SYS(fstat, unsigned fd, struct kstat *st)

#endif
