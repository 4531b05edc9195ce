/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files and the read/write family.
 *
 * file_read() and file_write() hold what is common to every kind of file: access mode, append,
 * RLIMIT_FSIZE, set-id bits, notification. A file without lseek is a stream: its operations
 * get no position, and the calls that name one answer ESPIPE.
 */
#include <asm-generic/resource.h>
#include <linux/capability.h>
#include <linux/fs.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

struct file *file_new(struct dentry *d, const struct file_ops *ops, uint32_t flags)
{
	struct file *f = kzalloc(sizeof(*f));

	if (f == NULL) {
		dentry_put(d);
		return NULL;
	}
	f->refs = 1;
	f->flags = flags & ~(KO_CREAT | KO_EXCL | KO_TRUNC | KO_CLOEXEC);
	f->ops = ops;
	f->dentry = d;
	f->inode = d->inode;
	TAILQ_INIT(&f->epitems);
	if ((flags & KO_PATH) == 0) {
		f->can_read = (flags & KO_ACCMODE) == KO_RDONLY ||
			      (flags & KO_ACCMODE) == KO_RDWR;
		f->can_write = (flags & KO_ACCMODE) == KO_WRONLY ||
			       (flags & KO_ACCMODE) == KO_RDWR;
	}
	return f;
}

void file_get(struct file *f)
{
	f->refs++;
}

void file_put(struct file *f)
{
	if (f == NULL)
		return;
	ASSERT(f->refs > 0);
	if (f->refs > 1) {
		f->refs--;
		return;
	}
	/* The count stays one through the release: hooks may get and put the file. */
	if (!TAILQ_EMPTY(&f->epitems))
		epoll_file_release(f);
	if ((f->flags & KO_PATH) == 0) {
		locks_release_file(f);
		fsnotify_fast(f->dentry, f->can_write ? KIN_CLOSE_WRITE : KIN_CLOSE_NOWRITE);
		if (f->ops->release != NULL)
			f->ops->release(f);
	}
	if (f->counted_writer)
		f->inode->writers--;
	dentry_put(f->dentry);
	kfree(f);
}

/*
 * On x86-64 open(2) adds O_LARGEFILE, whatever it opens. Descriptors that come from elsewhere
 * (pipes, sockets, eventfds) do not have it; those of memfd_create do.
 */
uint32_t file_flags_shown(const struct file *f)
{
	bool opened = (f->dentry->flags & DENTRY_ANON) == 0 || KS_ISREG(f->inode->mode);

	return f->flags | (opened && (f->flags & KO_PATH) == 0 ? KO_LARGEFILE : 0);
}

unsigned file_poll(struct file *f, struct poll_table *pt)
{
	if (f->ops->poll == NULL)
		return KPOLLIN | KPOLLOUT | KPOLLRDNORM | KPOLLWRNORM;
	return f->ops->poll(f, pt);
}

long file_read(struct file *f, struct uio *u, uint64_t *pos)
{
	long n;

	if (!f->can_read)
		return -EBADF;
	if (f->ops->read == NULL)
		return KS_ISDIR(f->inode->mode) ? -EISDIR : -EINVAL;
	if (pos != NULL && u->resid > 0 && *pos + u->resid > (uint64_t)FS_MAX_SIZE) {
		if (*pos > (uint64_t)FS_MAX_SIZE)
			return -EINVAL;
	}
	n = f->ops->read(f, u, pos);
	if (n > 0)
		fsnotify_fast(f->dentry, KIN_ACCESS);
	return n;
}

int file_remove_privs(struct file *f)
{
	struct inode *i = f->inode;
	uint32_t kill = i->mode & KS_ISUID;

	if ((i->mode & (KS_ISGID | 010)) == (KS_ISGID | 010))
		kill |= KS_ISGID;
	if (kill == 0 || !KS_ISREG(i->mode) || fs_capable(CAP_FSETID))
		return 0;
	i->mode &= ~kill;
	return 0;
}

/* How much of u may be written at *pos: shortens u; 0, -EFBIG (with SIGXFSZ). */
static int write_limit(struct uio *u, uint64_t pos)
{
	uint64_t limit = fs_rlimit(RLIMIT_FSIZE);
	uint64_t room;

	if (limit != KRLIM_INFINITY && pos >= limit) {
		if (current != NULL)
			signal_send_task(current, KSIGXFSZ, NULL);
		return -EFBIG;
	}
	if (pos >= (uint64_t)FS_MAX_SIZE)
		return -EFBIG;
	room = MIN(limit, (uint64_t)FS_MAX_SIZE) - pos;
	if (u->resid > room)
		u->resid = room;
	return 0;
}

static long file_write_flags(struct file *f, struct uio *u, uint64_t *pos, bool append)
{
	long n;

	if (!f->can_write)
		return -EBADF;
	if (f->ops->write == NULL)
		return -EINVAL;
	if (pos != NULL && KS_ISREG(f->inode->mode)) {
		int r;

		if (u->resid == 0)
			return 0;
		if (append)
			*pos = f->inode->size;
		r = write_limit(u, *pos);
		if (r == 0)
			r = file_remove_privs(f);
		if (r != 0)
			return r;
	}
	n = f->ops->write(f, u, pos);
	if (n > 0)
		fsnotify_fast(f->dentry, KIN_MODIFY);
	return n;
}

long file_write(struct file *f, struct uio *u, uint64_t *pos)
{
	return file_write_flags(f, u, pos, (f->flags & KO_APPEND) != 0);
}

long file_read_kernel(struct file *f, void *buf, size_t n, uint64_t pos)
{
	struct uiovec one;
	struct uio u;
	size_t done = 0;

	/* Short reads are ordinary for generated files: until the end or an error. */
	while (done < n) {
		long r;

		uio_init_kernel(&u, &one, (char *)buf + done, n - done);
		r = file_read(f, &u, &pos);
		if (r < 0)
			return done > 0 ? (long)done : r;
		if (r == 0)
			break;
		done += (size_t)r;
	}
	return (long)done;
}

static bool is_stream(const struct file *f)
{
	return f->ops->lseek == NULL;
}

/* ---- system calls ---- */

/* Position of f itself: used, and moved by what was transferred. */
static long rw_at_file(struct file *f, struct uio *u, bool write)
{
	uint64_t pos;
	long n;

	if (is_stream(f))
		return write ? file_write(f, u, NULL) : file_read(f, u, NULL);
	pos = f->pos;
	n = write ? file_write(f, u, &pos) : file_read(f, u, &pos);
	if (n > 0 || (n == 0 && write))
		f->pos = pos;
	return n;
}

static long rw_buffer(unsigned fd, void __user *buf, size_t n, bool write)
{
	struct file *f = fd_get((int)fd);
	struct uiovec one;
	struct uio u;
	long r;

	if (f == NULL)
		return -EBADF;
	if ((int64_t)n < 0) {
		file_put(f);
		return -EINVAL;
	}
	uio_init_user(&u, &one, buf, MIN(n, MAX_RW_COUNT));
	r = rw_at_file(f, &u, write);
	file_put(f);
	return r;
}

SYSCALL(read, unsigned fd, void __user *buf, size_t n)
{
	return rw_buffer(fd, buf, n, false);
}

SYSCALL(write, unsigned fd, void __user *buf, size_t n)
{
	return rw_buffer(fd, buf, n, true);
}

static long rw_at(unsigned fd, struct uio *u, int64_t pos, bool write, bool append)
{
	struct file *f;
	uint64_t at = (uint64_t)pos;
	long r;

	if (pos < 0)
		return -EINVAL;
	f = fd_get((int)fd);
	if (f == NULL)
		return -EBADF;
	if (is_stream(f))
		r = -ESPIPE;
	else if (write)
		r = file_write_flags(f, u, &at, append || (f->flags & KO_APPEND) != 0);
	else
		r = file_read(f, u, &at);
	file_put(f);
	return r;
}

SYSCALL(pread64, unsigned fd, void __user *buf, size_t n, int64_t pos)
{
	struct uiovec one;
	struct uio u;

	if ((int64_t)n < 0)
		return -EINVAL;
	uio_init_user(&u, &one, buf, MIN(n, MAX_RW_COUNT));
	return rw_at(fd, &u, pos, false, false);
}

SYSCALL(pwrite64, unsigned fd, void __user *buf, size_t n, int64_t pos)
{
	struct uiovec one;
	struct uio u;

	if ((int64_t)n < 0)
		return -EINVAL;
	uio_init_user(&u, &one, buf, MIN(n, MAX_RW_COUNT));
	return rw_at(fd, &u, pos, true, false);
}

/* RWF_NOWAIT never blocks on memory files; on streams it is refused, as on most of Linux's. */
static int rwf_check(unsigned flags, bool write)
{
	unsigned known = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND;

	if ((flags & ~known) != 0)
		return syscall_partial("preadv2", "unknown RWF_ flag", -EOPNOTSUPP);
	if (!write && (flags & RWF_APPEND) != 0)
		return -EOPNOTSUPP;
	return 0;
}

/* pos -1 with use_pos_file: the file's own position. */
static long rw_vector(unsigned fd, const struct uiovec __user *uiov, unsigned long niov,
		      bool at_file, int64_t pos, unsigned flags, bool write)
{
	struct file *f = fd_get((int)fd);
	struct uiovec *iov;
	struct uio u;
	long r;

	if (f == NULL)
		return -EBADF;
	r = rwf_check(flags, write);
	if (r == 0 && (flags & RWF_NOWAIT) != 0 && is_stream(f))
		r = -EOPNOTSUPP;
	if (r == 0)
		r = write ? (f->can_write ? 0 : -EBADF) : (f->can_read ? 0 : -EBADF);
	if (r == 0)
		r = uio_import(&u, uiov, niov, &iov);
	if (r != 0) {
		file_put(f);
		return r;
	}
	u.resid = MIN(u.resid, MAX_RW_COUNT);
	if (!at_file) {
		r = rw_at(fd, &u, pos, write, (flags & RWF_APPEND) != 0);
	} else if (write && (flags & RWF_APPEND) != 0 && !is_stream(f)) {
		uint64_t end = f->inode->size;

		r = file_write_flags(f, &u, &end, true);
		if (r > 0)
			f->pos = end;
	} else {
		r = rw_at_file(f, &u, write);
	}
	kfree(iov);
	file_put(f);
	return r;
}

SYSCALL(readv, unsigned fd, const struct uiovec __user *iov, unsigned long n)
{
	return rw_vector(fd, iov, n, true, 0, 0, false);
}

SYSCALL(writev, unsigned fd, const struct uiovec __user *iov, unsigned long n)
{
	return rw_vector(fd, iov, n, true, 0, 0, true);
}

SYSCALL(preadv, unsigned fd, const struct uiovec __user *iov, unsigned long n, int64_t pos)
{
	return pos < 0 ? -EINVAL : rw_vector(fd, iov, n, false, pos, 0, false);
}

SYSCALL(pwritev, unsigned fd, const struct uiovec __user *iov, unsigned long n, int64_t pos)
{
	return pos < 0 ? -EINVAL : rw_vector(fd, iov, n, false, pos, 0, true);
}

SYSCALL(preadv2, unsigned fd, const struct uiovec __user *iov, unsigned long n, int64_t pos,
	unsigned long pos_high, unsigned flags)
{
	if (pos < -1)
		return -EINVAL;
	return rw_vector(fd, iov, n, pos == -1, pos, flags, false);
}

SYSCALL(pwritev2, unsigned fd, const struct uiovec __user *iov, unsigned long n, int64_t pos,
	unsigned long pos_high, unsigned flags)
{
	if (pos < -1)
		return -EINVAL;
	return rw_vector(fd, iov, n, pos == -1, pos, flags, true);
}

SYSCALL(lseek, unsigned fd, int64_t off, int whence)
{
	struct file *f = fd_get((int)fd);
	long r;

	if (f == NULL)
		return -EBADF;
	if (whence < 0 || whence > SEEK_HOLE)
		r = -EINVAL;
	else
		r = f->ops->lseek != NULL ? f->ops->lseek(f, off, whence) : -ESPIPE;
	file_put(f);
	return r;
}

/* ---- synchronisation: memory is always in sync; the answers are checked all the same ---- */

static long do_fsync(unsigned fd)
{
	struct file *f = fd_get((int)fd);
	long r;

	if (f == NULL)
		return -EBADF;
	if (f->ops->fsync != NULL)
		r = f->ops->fsync(f);
	else
		r = KS_ISREG(f->inode->mode) || KS_ISDIR(f->inode->mode) ? 0 : -EINVAL;
	file_put(f);
	return r;
}

SYSCALL(fsync, unsigned fd)
{
	return do_fsync(fd);
}

SYSCALL(fdatasync, unsigned fd)
{
	return do_fsync(fd);
}

SYSCALL(sync, void)
{
	return 0;
}

SYSCALL(syncfs, unsigned fd)
{
	struct file *f = fd_get((int)fd);

	if (f == NULL)
		return -EBADF;
	file_put(f);
	return 0;
}

SYSCALL(sync_file_range, unsigned fd, int64_t off, int64_t n, unsigned flags)
{
	struct file *f = fd_get((int)fd);
	int64_t end;
	long r = 0;

	if (f == NULL)
		return -EBADF;
	if ((flags & ~7u) != 0 || off < 0 || n < 0 || __builtin_add_overflow(off, n, &end))
		r = -EINVAL;
	else if (!KS_ISREG(f->inode->mode) && !KS_ISDIR(f->inode->mode) &&
		 !KS_ISLNK(f->inode->mode))
		r = -ESPIPE;
	file_put(f);
	return r;
}

SYSCALL(fadvise64, unsigned fd, int64_t off, size_t n, int advice)
{
	struct file *f = fd_get((int)fd);
	long r = 0;

	if (f == NULL)
		return -EBADF;
	if (KS_ISFIFO(f->inode->mode))
		r = -ESPIPE;
	else if ((int64_t)n < 0 || advice < 0 || advice > 5)
		r = -EINVAL;
	file_put(f);
	return r;
}

SYSCALL(readahead, unsigned fd, int64_t off, size_t n)
{
	struct file *f = fd_get((int)fd);
	long r = 0;

	if (f == NULL)
		return -EBADF;
	if (!f->can_read)
		r = -EBADF;
	else if (!KS_ISREG(f->inode->mode))
		r = -EINVAL;
	file_put(f);
	return r;
}

SYSCALL(fallocate, unsigned fd, int mode, int64_t off, int64_t len)
{
	struct file *f;
	int64_t end;
	long r;

	if (off < 0 || len <= 0)
		return -EINVAL;
	if ((mode & ~(0x01 | 0x02 | 0x08 | 0x10 | 0x20 | 0x40)) != 0)
		return -EOPNOTSUPP;
	f = fd_get((int)fd);
	if (f == NULL)
		return -EBADF;
	if (!f->can_write)
		r = -EBADF;
	else if (KS_ISFIFO(f->inode->mode))
		r = -ESPIPE;
	else if (KS_ISDIR(f->inode->mode))
		r = -EISDIR;
	else if (!KS_ISREG(f->inode->mode))
		r = -ENODEV;
	else if (__builtin_add_overflow(off, len, &end))
		r = -EFBIG;
	else if (f->ops->fallocate == NULL)
		r = -EOPNOTSUPP;
	else
		r = file_remove_privs(f);
	if (r == 0)
		r = f->ops->fallocate(f, mode, (uint64_t)off, (uint64_t)len);
	if (r == 0)
		fsnotify_fast(f->dentry, KIN_MODIFY);
	file_put(f);
	return r;
}
