/* SPDX-License-Identifier: Apache-2.0 */
/* Pipes: what fcntl, splice and tee (fs/) need of them. See pipe.c. */
#ifndef IPC_PIPE_H
#define IPC_PIPE_H

#include "guest-kernel/lib/kernel.h"

struct file;
struct pipe;

#define PIPE_DEFAULT_SIZE	65536u
#define PIPE_MAX_SIZE		1048576u
#define PIPE_BUF_SIZE		4096u

struct pipe *pipe_of(const struct file *f);	/* NULL: f is no pipe or FIFO; borrowed */
#define KF_SETPIPE_SZ	1031
#define KF_GETPIPE_SZ	1032
#define KSPLICE_F_NONBLOCK 0x2u
/* F_GETPIPE_SZ, F_SETPIPE_SZ: -EBADF when f is no pipe. */
long pipe_fcntl(struct file *f, unsigned cmd, unsigned long arg);

/* For splice(2): bytes that a read would give now, bytes that a write would take at least. */
size_t pipe_readable_bytes(const struct pipe *p);
size_t pipe_writable_bytes(const struct pipe *p);
bool pipe_has_readers(const struct pipe *p);
bool pipe_has_writers(const struct pipe *p);
/* Sleep until f can be read (data or no writer) or written (room or no reader). 0, -EAGAIN
 * when nonblock, -ERESTARTSYS. */
int pipe_wait_readable(struct file *f, bool nonblock);
int pipe_wait_writable(struct file *f, bool nonblock);
/* tee(2): shares pages, consumes nothing. flags: SPLICE_F_*. Bytes or negative errno. */
long pipe_tee(struct file *in, struct file *out, size_t len, unsigned flags);
/* Moves the next pages of one pipe to another (splice between pipes). */
long pipe_move(struct file *in, struct file *out, size_t len, unsigned flags);

#endif
