/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving data between files: sendfile, splice, tee, copy_file_range. All go through a bounce
 * buffer with the files' ordinary read and write; what a short write leaves over is put back
 * by position where the source has one, and waited for where it has none. vmsplice is an
 * ordinary read or write of a pipe.
 */
#include <linux/fcntl.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/ipc/pipe.h"
#include "guest-kernel/mm/page.h"

#define BOUNCE		(64u << 10)

#define SPLICE_F_MOVE	1u
#define SPLICE_F_NONBLOCK 2u
#define SPLICE_F_MORE	4u
#define SPLICE_F_GIFT	8u
#define SPLICE_F_ALL	15u

static bool is_pipe(const struct file *f)
{
	return pipe_of(f) != NULL;
}

static bool is_stream(const struct file *f)
{
	return f->ops->lseek == NULL;
}

static long kernel_rw(struct file *f, void *buf, size_t n, uint64_t *pos, bool write)
{
	struct uiovec one;
	struct uio u;

	uio_init_kernel(&u, &one, buf, n);
	return write ? file_write(f, &u, pos) : file_read(f, &u, pos);
}

/* All of it, waiting; for data that came out of a pipe and cannot go back. */
static long write_all(struct file *out, uint8_t *buf, size_t n, uint64_t *pos)
{
	uint32_t nonblock = out->flags & KO_NONBLOCK;
	size_t done = 0;
	long r = 0;

	while (done < n) {
		r = kernel_rw(out, buf + done, n - done, pos, true);
		if (r == -EAGAIN && nonblock != 0) {
			/* Promised by poll, taken by another: wait this once. */
			out->flags &= ~KO_NONBLOCK;
			continue;
		}
		if (r <= 0)
			break;
		done += (size_t)r;
	}
	out->flags |= nonblock;
	return done > 0 ? (long)done : r;
}

/*
 * Up to n bytes from in (at *ipos; NULL: a stream) to out (at *opos; NULL: a stream). Stops at
 * the end of in, at the first short write, or when a stream has given something.
 */
static long transfer(struct file *in, uint64_t *ipos, struct file *out, uint64_t *opos,
		     size_t n)
{
	size_t size = MIN(n, BOUNCE);
	uint8_t *buf;
	size_t done = 0;
	long r = 0;

	if (n == 0)
		return 0;
	buf = kmalloc(size);
	if (buf == NULL)
		return -ENOMEM;
	while (done < n) {
		size_t want = MIN(n - done, size);
		long got;

		if (current != NULL && signal_pending(current) && done > 0)
			break;
		r = kernel_rw(in, buf, want, ipos, false);
		if (r <= 0)
			break;
		got = r;
		if (ipos == NULL) {
			r = write_all(out, buf, (size_t)got, opos);
		} else {
			r = kernel_rw(out, buf, (size_t)got, opos, true);
			/* What did not go out was not read. */
			*ipos -= (uint64_t)(got - MAX(r, 0L));
		}
		if (r <= 0)
			break;
		done += (size_t)r;
		if (r < got)
			break;
		if (ipos == NULL)
			break;
	}
	kfree(buf);
	return done > 0 ? (long)done : r;
}

/*
 * How much may be moved: a pipe gives what it holds and takes what it has room for, after one
 * wait. Going on until n would wait for a reader who may be the caller. 0 at the end of in.
 */
static long pipe_limits(struct file *in, struct file *out, size_t n, bool nonblock)
{
	int r = 0;

	if (is_pipe(in)) {
		r = pipe_wait_readable(in, nonblock || (in->flags & KO_NONBLOCK) != 0);
		n = r == 0 ? MIN(n, pipe_readable_bytes(pipe_of(in))) : 0;
	}
	if (r == 0 && n != 0 && is_pipe(out)) {
		r = pipe_wait_writable(out, nonblock || (out->flags & KO_NONBLOCK) != 0);
		/* No reader: the write will say so. */
		if (r == 0 && pipe_has_readers(pipe_of(out)))
			n = MIN(n, pipe_writable_bytes(pipe_of(out)));
	}
	return r != 0 ? r : (long)n;
}

/* ---- sendfile ---- */

static long do_sendfile(struct file *out, struct file *in, uint64_t *ipos, size_t n)
{
	uint64_t opos = out->pos;
	bool ostream = is_stream(out);
	long r;

	if (!in->can_read || !out->can_write)
		return -EBADF;
	if (is_stream(in) || in->ops->read == NULL || out->ops->write == NULL)
		return -EINVAL;
	if ((out->flags & KO_APPEND) != 0 && !is_pipe(out))
		return -EINVAL;
	if ((int64_t)*ipos < 0)
		return -EINVAL;
	r = pipe_limits(in, out, MIN(n, MAX_RW_COUNT), false);
	if (r > 0)
		r = transfer(in, ipos, out, ostream ? NULL : &opos, (size_t)r);
	if (r > 0 && !ostream)
		out->pos = opos;
	return r;
}

SYSCALL(sendfile, int out_fd, int in_fd, int64_t __user *uoff, size_t n)
{
	struct file *in = fd_get(in_fd), *out = fd_get(out_fd);
	int64_t off;
	uint64_t pos;
	long r = -EBADF;

	if (in == NULL || out == NULL)
		goto out;
	r = -EINVAL;
	if ((int64_t)n < 0)
		goto out;
	if (uoff != NULL) {
		r = is_stream(in) ? -ESPIPE : GET_USER(off, uoff);
		if (r != 0)
			goto out;
		pos = (uint64_t)off;
		r = do_sendfile(out, in, &pos, n);
		off = (int64_t)pos;
		if (r >= 0 && PUT_USER(off, uoff) != 0)
			r = -EFAULT;
	} else {
		pos = in->pos;
		r = do_sendfile(out, in, &pos, n);
		if (r > 0)
			in->pos = pos;
	}
out:
	file_put(in);
	file_put(out);
	return r;
}

/* ---- splice, tee ---- */

/* Position to use: the caller's, the file's own, or NULL for a stream. -errno. */
static int splice_pos(struct file *f, int64_t __user *uoff, uint64_t *pos, uint64_t **ret)
{
	int64_t off;

	*ret = NULL;
	if (uoff != NULL) {
		if (is_stream(f))
			return is_pipe(f) ? -ESPIPE : -EINVAL;
		if (GET_USER(off, uoff) != 0)
			return -EFAULT;
		if (off < 0)
			return -EINVAL;
		*pos = (uint64_t)off;
		*ret = pos;
	} else if (!is_stream(f)) {
		*pos = f->pos;
		*ret = pos;
	}
	return 0;
}

static int splice_store(struct file *f, int64_t __user *uoff, const uint64_t *pos)
{
	int64_t off;

	if (pos == NULL)
		return 0;
	if (uoff == NULL) {
		f->pos = *pos;
		return 0;
	}
	off = (int64_t)*pos;
	return PUT_USER(off, uoff);
}

static long do_splice(struct file *in, int64_t __user *uin, struct file *out,
		      int64_t __user *uout, size_t n, unsigned flags)
{
	bool nonblock = (flags & SPLICE_F_NONBLOCK) != 0;
	uint64_t ipos, opos, *ip, *op;
	long r;

	if (!in->can_read || !out->can_write)
		return -EBADF;
	if (!is_pipe(in) && !is_pipe(out))
		return -EINVAL;
	if (is_pipe(in) && is_pipe(out) && in->inode == out->inode)
		return -EINVAL;
	if (in->ops->read == NULL || out->ops->write == NULL)
		return -EINVAL;
	if ((out->flags & KO_APPEND) != 0 && !is_pipe(out))
		return -EINVAL;
	r = splice_pos(in, uin, &ipos, &ip);
	if (r == 0)
		r = splice_pos(out, uout, &opos, &op);
	if (r != 0)
		return r;
	if (is_pipe(in) && is_pipe(out))
		return pipe_move(in, out, MIN(n, MAX_RW_COUNT), flags);
	r = pipe_limits(in, out, MIN(n, MAX_RW_COUNT), nonblock);
	if (r > 0 && ip == NULL && (out->flags & KO_NONBLOCK) != 0 &&
	    (file_poll(out, NULL) & (KPOLLOUT | KPOLLERR | KPOLLHUP)) == 0)
		return -EAGAIN;	/* before anything is taken out of the pipe */
	if (r > 0)
		r = transfer(in, ip, out, op, (size_t)r);
	if (r > 0 && (splice_store(in, uin, ip) != 0 || splice_store(out, uout, op) != 0))
		r = -EFAULT;
	return r;
}

SYSCALL(splice, int in_fd, int64_t __user *uin, int out_fd, int64_t __user *uout, size_t n,
	unsigned flags)
{
	struct file *in, *out;
	long r = -EBADF;

	if (n == 0)
		return 0;
	if ((flags & ~SPLICE_F_ALL) != 0)
		return -EINVAL;
	in = fd_get(in_fd);
	out = fd_get(out_fd);
	if (in != NULL && out != NULL)
		r = do_splice(in, uin, out, uout, n, flags);
	file_put(in);
	file_put(out);
	return r;
}

SYSCALL(tee, int in_fd, int out_fd, size_t n, unsigned flags)
{
	struct file *in, *out;
	long r = -EBADF;

	if ((flags & ~SPLICE_F_ALL) != 0)
		return -EINVAL;
	if (n == 0)
		return 0;
	in = fd_get(in_fd);
	out = fd_get(out_fd);
	if (in == NULL || out == NULL || !in->can_read || !out->can_write)
		r = -EBADF;
	else if (!is_pipe(in) || !is_pipe(out) || in->inode == out->inode)
		r = -EINVAL;
	else
		r = pipe_tee(in, out, n, flags);
	file_put(in);
	file_put(out);
	return r;
}

/*
 * What a program lends to a pipe is copied: it would be seen to change only by one that writes
 * to it before it was read, which programs must not do. As much as the pipe takes now.
 */
static long do_vmsplice(struct file *f, struct uio *u, bool nonblock)
{
	struct pipe *p = pipe_of(f);
	size_t room;
	long r;

	if (u->resid == 0)
		return 0;
	if (!f->can_write) {
		r = pipe_wait_readable(f, nonblock);
		return r != 0 ? r : file_read(f, u, NULL);
	}
	r = pipe_wait_writable(f, nonblock);
	if (r != 0)
		return r;
	room = pipe_writable_bytes(p);
	if (pipe_has_readers(p))
		u->resid = MIN(u->resid, room);
	return file_write(f, u, NULL);
}

SYSCALL(vmsplice, int fd, const struct uiovec __user *uiov, unsigned long niov, unsigned flags)
{
	struct uiovec *iov = NULL;
	struct file *f;
	struct uio u;
	long r;

	if ((flags & ~SPLICE_F_ALL) != 0)
		return -EINVAL;
	f = fd_get(fd);
	if (f == NULL)
		return -EBADF;
	r = is_pipe(f) ? uio_import(&u, uiov, niov, &iov) : -EBADF;
	if (r == 0) {
		r = do_vmsplice(f, &u, (flags & SPLICE_F_NONBLOCK) != 0);
		kfree(iov);
	}
	file_put(f);
	return r;
}

/* ---- copy_file_range ---- */

static int copy_check(struct file *in, uint64_t ipos, struct file *out, uint64_t opos,
		      size_t *n)
{
	uint64_t iend, oend;

	if (KS_ISDIR(in->inode->mode) || KS_ISDIR(out->inode->mode))
		return -EISDIR;
	if (!KS_ISREG(in->inode->mode) || !KS_ISREG(out->inode->mode))
		return -EINVAL;
	if (!in->can_read || !out->can_write || (out->flags & KO_APPEND) != 0)
		return -EBADF;
	if (in->inode->sb != out->inode->sb)
		return -EXDEV;
	if (__builtin_add_overflow(ipos, *n, &iend) || __builtin_add_overflow(opos, *n, &oend) ||
	    iend > (uint64_t)FS_MAX_SIZE || oend > (uint64_t)FS_MAX_SIZE)
		return -EOVERFLOW;
	*n = ipos >= in->inode->size ? 0 : MIN(*n, in->inode->size - ipos);
	if (in->inode == out->inode && ipos < opos + *n && opos < ipos + *n)
		return -EINVAL;
	return 0;
}

SYSCALL(copy_file_range, int in_fd, int64_t __user *uin, int out_fd, int64_t __user *uout,
	size_t n, unsigned flags)
{
	struct file *in = fd_get(in_fd), *out = fd_get(out_fd);
	uint64_t ipos, opos;
	int64_t off;
	long r = -EBADF;

	if (in == NULL || out == NULL)
		goto out;
	ipos = in->pos;
	opos = out->pos;
	r = -EFAULT;
	if (uin != NULL) {
		if (GET_USER(off, uin) != 0)
			goto out;
		ipos = (uint64_t)off;
	}
	if (uout != NULL) {
		if (GET_USER(off, uout) != 0)
			goto out;
		opos = (uint64_t)off;
	}
	r = -EINVAL;
	if (flags != 0 || (int64_t)ipos < 0 || (int64_t)opos < 0)
		goto out;
	n = MIN(n, MAX_RW_COUNT);
	r = copy_check(in, ipos, out, opos, &n);
	if (r == 0)
		r = transfer(in, &ipos, out, &opos, n);
	if (r > 0) {
		off = (int64_t)ipos;
		if (uin == NULL)
			in->pos = ipos;
		else if (PUT_USER(off, uin) != 0)
			r = -EFAULT;
		off = (int64_t)opos;
		if (uout == NULL)
			out->pos = opos;
		else if (PUT_USER(off, uout) != 0)
			r = -EFAULT;
	}
out:
	file_put(in);
	file_put(out);
	return r;
}
