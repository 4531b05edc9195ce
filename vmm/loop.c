/* SPDX-License-Identifier: Apache-2.0 */
/* The io_uring event loop; see loop.h. */
#include "vmm/loop.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

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
	return 0;
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

static struct io_uring_sqe *op_begin(struct loop *loop, struct loop_op *op)
{
	struct io_uring_sqe *sqe = sqe_get(loop);

	if (!sqe)
		return NULL;
	op->busy = true;
	op->prev = NULL;
	op->next = loop->busy;
	if (op->next)
		op->next->prev = op;
	loop->busy = op;
	return sqe;
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

int loop_read_event(struct loop *loop, struct loop_op *op, int eventfd)
{
	return loop_read(loop, op, eventfd, &op->count, sizeof(op->count));
}

int loop_poll(struct loop *loop, struct loop_op *op, int fd, unsigned int events)
{
	struct io_uring_sqe *sqe = op_begin(loop, op);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_poll_add(sqe, fd, events);
	io_uring_sqe_set_data(sqe, op);
	return 0;
}

int loop_read(struct loop *loop, struct loop_op *op, int fd, void *data, unsigned int len)
{
	struct io_uring_sqe *sqe = op_begin(loop, op);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_read(sqe, fd, data, len, 0);
	io_uring_sqe_set_data(sqe, op);
	return 0;
}

int loop_recvmsg(struct loop *loop, struct loop_op *op, int fd, struct msghdr *message)
{
	struct io_uring_sqe *sqe = op_begin(loop, op);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_recvmsg(sqe, fd, message, MSG_CMSG_CLOEXEC);
	io_uring_sqe_set_data(sqe, op);
	return 0;
}

int loop_send(struct loop *loop, struct loop_op *op, int fd, const void *data, size_t len)
{
	struct io_uring_sqe *sqe = op_begin(loop, op);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_send(sqe, fd, data, len, MSG_NOSIGNAL);
	io_uring_sqe_set_data(sqe, op);
	return 0;
}

int loop_timeout(struct loop *loop, struct loop_op *op, uint64_t ns)
{
	struct io_uring_sqe *sqe = op_begin(loop, op);

	if (!sqe)
		return -EBUSY;
	op->timeout.tv_sec = (long long)(ns / 1000000000u);
	op->timeout.tv_nsec = (long long)(ns % 1000000000u);
	io_uring_prep_timeout(sqe, &op->timeout, 0, 0);
	io_uring_sqe_set_data(sqe, op);
	return 0;
}

void loop_cancel(struct loop *loop, struct loop_op *op)
{
	struct io_uring_sqe *sqe;

	if (!op->busy)
		return;
	sqe = sqe_get(loop);
	if (!sqe)
		return;
	io_uring_prep_cancel(sqe, op, 0);
	io_uring_sqe_set_data(sqe, NULL);
}

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
		/* Only this thread touches the submission queue: no lock is needed for it. */
		r = io_uring_submit_and_wait(&loop->ring, 1);
		if (r < 0 && r != -EINTR && r != -EBUSY)
			return r;
		pthread_mutex_lock(&loop->lock);
		completions_take(loop, false);
		pthread_mutex_unlock(&loop->lock);
	}
	return 0;
}

void loop_done(struct loop *loop)
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
	pthread_mutex_destroy(&loop->lock);
}
