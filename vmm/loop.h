/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VMM's event loop: one io_uring through which all socket, eventfd and timer I/O goes.
 * The ring accepts only the operations named in loop.c (io_uring is not seen by seccomp, so
 * it is restricted by itself).
 *
 * A request is a struct loop_op inside a longer-lived object. While op->busy the kernel may
 * write to its buffer: neither may go away. loop_done() cancels all requests and waits for
 * them, so whatever is freed after it is not in use any more.
 *
 * The ring's memory is not inherited by fork(2): a child makes a loop of its own.
 *
 * Callbacks run on the loop's thread with loop->lock held; it guards all devices and the VM's
 * state. The vCPU thread takes the same lock to dispatch an exit.
 */
#ifndef CASEMATE_VMM_LOOP_H
#define CASEMATE_VMM_LOOP_H

#include <liburing.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

struct loop_op {
	/* result: as the system call's, negative errno on failure. May start the op again. */
	void (*done)(struct loop_op *op, int result);
	void *owner;
	bool busy;
	struct loop_op *next, *prev;	/* of those that are busy */
	union {
		struct __kernel_timespec timeout;
		uint64_t count;		/* what an eventfd read */
	};
};

struct loop {
	struct io_uring ring;
	pthread_mutex_t lock;
	struct loop_op *busy;
	bool stop;
	void (*idle)(void *arg);	/* after each batch of callbacks, lock held */
	void *idle_arg;
};

int loop_init(struct loop *loop, struct err *err);
/* Cancels what is in flight without calling back, and waits for it. */
void loop_done(struct loop *loop);

/* Serves requests until loop->stop. Returns 0 or -errno. */
int loop_run(struct loop *loop);

/* Each starts op, which must not be busy. Returns 0 or -errno. */
int loop_read_event(struct loop *loop, struct loop_op *op, int eventfd);
int loop_poll(struct loop *loop, struct loop_op *op, int fd, unsigned int events);
int loop_read(struct loop *loop, struct loop_op *op, int fd, void *data, unsigned int len);
/* message and what it points to stay until the op ends; descriptors come close-on-exec. */
int loop_recvmsg(struct loop *loop, struct loop_op *op, int fd, struct msghdr *message);
int loop_send(struct loop *loop, struct loop_op *op, int fd, const void *data, size_t len);
int loop_timeout(struct loop *loop, struct loop_op *op, uint64_t ns);

/* Asks for op's end; it calls back with -ECANCELED if that was in time. */
void loop_cancel(struct loop *loop, struct loop_op *op);

#endif
