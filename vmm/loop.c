/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop, by io_uring or without; see loop.h. */
#include "vmm/loop.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"

#define ENTRIES	32

static const uint8_t allowed[] = {
	IORING_OP_READ, IORING_OP_POLL_ADD, IORING_OP_RECVMSG, IORING_OP_SEND,
	IORING_OP_TIMEOUT, IORING_OP_ASYNC_CANCEL,
};

static int ring_restrict(struct io_uring *ring)
{
	struct io_uring_restriction res[sizeof(allowed)] = { 0 };
	int r;

	for (unsigned int i = 0; i < sizeof(allowed); i++) {
		res[i].opcode = IORING_RESTRICTION_SQE_OP;
		res[i].sqe_op = allowed[i];
	}
	/* Debian 12's shared liburing does not export its functions for these two. */
	r = (int)syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_RESTRICTIONS, res,
			 sizeof(allowed));
	if (r == 0)
		r = (int)syscall(SYS_io_uring_register, ring->ring_fd,
				 IORING_REGISTER_ENABLE_RINGS, NULL, 0);
	return r < 0 ? -errno : 0;
}

int loop_init(struct loop *loop, struct err *err)
{
	int r;

	*loop = (struct loop){ .stop = false };
	r = io_uring_queue_init(ENTRIES, &loop->ring, IORING_SETUP_R_DISABLED);
	if (r < 0)
		return err_set_errno(err, r, "this host offers no io_uring (see the sysctl "
				     "kernel.io_uring_disabled)");
	r = io_uring_ring_dontfork(&loop->ring);
	if (r == 0)
		r = ring_restrict(&loop->ring);
	if (r < 0) {
		io_uring_queue_exit(&loop->ring);
		return err_set_errno(err, r, "cannot restrict the io_uring");
	}
	pthread_mutex_init(&loop->lock, NULL);
	loop->has_ring = true;
	return 0;
}

void loop_init_jailed(struct loop *loop)
{
	*loop = (struct loop){ .stop = false };
	pthread_mutex_init(&loop->lock, NULL);
}

static struct io_uring_sqe *sqe_get(struct loop *loop)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&loop->ring);

	if (!sqe) {
		io_uring_submit(&loop->ring);
		sqe = io_uring_get_sqe(&loop->ring);
	}
	return sqe;
}

static void op_enter(struct loop *loop, struct loop_op *op)
{
	op->busy = true;
	op->cancelled = false;
	op->prev = NULL;
	op->next = loop->busy;
	if (op->next)
		op->next->prev = op;
	loop->busy = op;
}

static void op_end(struct loop *loop, struct loop_op *op)
{
	op->busy = false;
	if (op->prev)
		op->prev->next = op->next;
	else
		loop->busy = op->next;
	if (op->next)
		op->next->prev = op->prev;
}

/* What op->kind says, with its arguments. */
static void sqe_fill(struct io_uring_sqe *sqe, struct loop_op *op)
{
	switch (op->kind) {
	case LOOP_READ:
		io_uring_prep_read(sqe, op->fd, op->data, (unsigned int)op->len, 0);
		break;
	case LOOP_POLL:
		io_uring_prep_poll_add(sqe, op->fd, op->events);
		break;
	case LOOP_RECVMSG:
		io_uring_prep_recvmsg(sqe, op->fd, op->data, MSG_CMSG_CLOEXEC);
		break;
	case LOOP_SEND:
		io_uring_prep_send(sqe, op->fd, op->data, op->len, MSG_NOSIGNAL);
		break;
	case LOOP_TIMEOUT:
		io_uring_prep_timeout(sqe, &op->due, 0, IORING_TIMEOUT_ABS);
		break;
	}
	io_uring_sqe_set_data(sqe, op);
}

static int op_start(struct loop *loop, struct loop_op *op)
{
	if (loop->has_ring) {
		struct io_uring_sqe *sqe = sqe_get(loop);

		if (!sqe)
			return -EBUSY;
		sqe_fill(sqe, op);
	}
	op_enter(loop, op);
	return 0;
}

int loop_read_event(struct loop *loop, struct loop_op *op, int eventfd)
{
	return loop_read(loop, op, eventfd, &op->count, sizeof(op->count));
}

int loop_poll(struct loop *loop, struct loop_op *op, int fd, unsigned int events)
{
	op->kind = LOOP_POLL;
	op->fd = fd;
	op->events = events;
	return op_start(loop, op);
}

int loop_read(struct loop *loop, struct loop_op *op, int fd, void *data, unsigned int len)
{
	op->kind = LOOP_READ;
	op->fd = fd;
	op->data = data;
	op->len = len;
	op->events = POLLIN;
	return op_start(loop, op);
}

int loop_recvmsg(struct loop *loop, struct loop_op *op, int fd, struct msghdr *message)
{
	op->kind = LOOP_RECVMSG;
	op->fd = fd;
	op->data = message;
	op->events = POLLIN;
	return op_start(loop, op);
}

int loop_send(struct loop *loop, struct loop_op *op, int fd, const void *data, size_t len)
{
	op->kind = LOOP_SEND;
	op->fd = fd;
	op->data = (void *)(uintptr_t)data;
	op->len = len;
	op->events = POLLOUT;
	return op_start(loop, op);
}

int loop_timeout(struct loop *loop, struct loop_op *op, uint64_t ns)
{
	op->kind = LOOP_TIMEOUT;
	op->fd = -1;
	ns += time_monotonic_ns();
	op->due.tv_sec = (long long)(ns / NS_PER_SEC);
	op->due.tv_nsec = (long long)(ns % NS_PER_SEC);
	return op_start(loop, op);
}

void loop_cancel(struct loop *loop, struct loop_op *op)
{
	struct io_uring_sqe *sqe;

	if (!op->busy)
		return;
	op->cancelled = true;
	sqe = loop->has_ring ? sqe_get(loop) : NULL;
	if (!sqe)
		return;
	io_uring_prep_cancel(sqe, op, 0);
	io_uring_sqe_set_data(sqe, NULL);
}

/* ---- With the ring ---- */

/* Takes every completion there is. quiet: end the ops without calling back. */
static void completions_take(struct loop *loop, bool quiet)
{
	struct io_uring_cqe *cqe;

	while (io_uring_peek_cqe(&loop->ring, &cqe) == 0) {
		struct loop_op *op = io_uring_cqe_get_data(cqe);
		int result = cqe->res;

		io_uring_cqe_seen(&loop->ring, cqe);
		if (!op)
			continue;
		op_end(loop, op);
		if (!quiet && op->done)
			op->done(op, result);
	}
}

static int ring_turn(struct loop *loop)
{
	/* Only this thread touches the submission queue: no lock is needed for it. */
	int r = io_uring_submit_and_wait(&loop->ring, 1);

	if (r < 0 && r != -EINTR && r != -EBUSY)
		return r;
	pthread_mutex_lock(&loop->lock);
	completions_take(loop, false);
	pthread_mutex_unlock(&loop->lock);
	return 0;
}

static void ring_done(struct loop *loop)
{
	for (struct loop_op *op = loop->busy; op; op = op->next)
		loop_cancel(loop, op);
	while (loop->busy) {
		int r = io_uring_submit_and_wait(&loop->ring, 1);

		if (r < 0 && r != -EINTR && r != -EBUSY)
			break;
		completions_take(loop, true);
	}
	io_uring_queue_exit(&loop->ring);
}

/* ---- Without one ---- */

struct waiting {
	struct loop_op *ops[ENTRIES];
	struct pollfd fds[ENTRIES];
	nfds_t count;
	uint64_t due_ns;	/* UINT64_MAX: none is */
};

/* When it is to be looked at without being ready. */
static uint64_t op_due(const struct loop_op *op)
{
	if (op->cancelled)
		return 0;
	if (op->kind != LOOP_TIMEOUT)
		return UINT64_MAX;
	return (uint64_t)op->due.tv_sec * NS_PER_SEC + (uint64_t)op->due.tv_nsec;
}

static int busy_collect(const struct loop *loop, struct waiting *w)
{
	w->count = 0;
	w->due_ns = UINT64_MAX;
	for (struct loop_op *op = loop->busy; op; op = op->next) {
		uint64_t due = op_due(op);

		if (w->count == ENTRIES)
			return -EBUSY;
		w->ops[w->count] = op;
		w->fds[w->count++] = (struct pollfd){ .fd = op->fd,
						      .events = (short)op->events };
		if (due < w->due_ns)
			w->due_ns = due;
	}
	return 0;
}

/* Does what is ready. Returns its result, -EAGAIN when it is not yet. */
static int op_try(const struct loop_op *op, unsigned int events, uint64_t now)
{
	ssize_t n = -1;

	if (op->cancelled)
		return -ECANCELED;
	if (op->kind == LOOP_TIMEOUT)
		return now >= op_due(op) ? -ETIME : -EAGAIN;
	if (!events)
		return -EAGAIN;
	errno = EINVAL;
	if (op->kind == LOOP_POLL)
		return (int)events;
	if (op->kind == LOOP_READ)
		n = read(op->fd, op->data, op->len);
	else if (op->kind == LOOP_RECVMSG)
		n = recvmsg(op->fd, op->data, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	else if (op->kind == LOOP_SEND)
		n = send(op->fd, op->data, op->len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	return (int)n;
}

static int poll_turn(struct loop *loop)
{
	uint64_t now = time_monotonic_ns();
	struct timespec left = { 0 };
	struct waiting w;
	int r = busy_collect(loop, &w);

	if (r < 0)
		return r;
	if (w.due_ns != UINT64_MAX && w.due_ns > now) {
		left.tv_sec = (time_t)((w.due_ns - now) / NS_PER_SEC);
		left.tv_nsec = (long)((w.due_ns - now) % NS_PER_SEC);
	}
	if (ppoll(w.fds, w.count, w.due_ns == UINT64_MAX ? NULL : &left, NULL) < 0)
		return errno == EINTR ? 0 : -errno;
	pthread_mutex_lock(&loop->lock);
	now = time_monotonic_ns();
	/* None but its own callback ends an op or starts it again, so all of these are busy. */
	for (nfds_t i = 0; i < w.count; i++) {
		struct loop_op *op = w.ops[i];
		int result = op_try(op, (unsigned short)w.fds[i].revents, now);

		if (result == -EAGAIN)
			continue;
		op_end(loop, op);
		if (op->done)
			op->done(op, result);
	}
	pthread_mutex_unlock(&loop->lock);
	return 0;
}

/* ---- Both ---- */

int loop_run(struct loop *loop)
{
	while (!loop->stop) {
		int r;

		pthread_mutex_lock(&loop->lock);
		if (loop->idle)
			loop->idle(loop->idle_arg);
		pthread_mutex_unlock(&loop->lock);
		if (loop->stop)
			break;
		r = loop->has_ring ? ring_turn(loop) : poll_turn(loop);
		if (r < 0)
			return r;
	}
	return 0;
}

void loop_done(struct loop *loop)
{
	if (loop->has_ring)
		ring_done(loop);
	while (loop->busy && !loop->has_ring)
		op_end(loop, loop->busy);
	pthread_mutex_destroy(&loop->lock);
}
