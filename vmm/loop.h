/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VMM's event loop: one io_uring through which all socket, eventfd and timer I/O goes.
 * The ring accepts only the operations named in loop.c (io_uring is not seen by seccomp, so
 * it is restricted by itself).
 *
 * A forked VM's loop has ppoll(2) and a system call for each request instead. To make a ring of
 * its own is nothing that the jail could allow: who is in it could make one without
 * restrictions, and would be out. (The ring of its parent, memory and descriptor, is not
 * inherited.)
 *
 * A request is a struct loop_op inside a longer-lived object. While op->busy the kernel may
 * write to its buffer: neither may go away. loop_done() cancels all requests and waits for
 * them, so whatever is freed after it is not in use any more.
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

enum loop_kind { LOOP_READ, LOOP_POLL, LOOP_RECVMSG, LOOP_SEND, LOOP_TIMEOUT };

struct loop_op {
	/* result: as the system call's, negative errno on failure. May start the op again. */
	void (*done)(struct loop_op *op, int result);
	void *owner;
	bool busy;
	struct loop_op *next, *prev;	/* of those that are busy */
	union {
		struct __kernel_timespec due;	/* of CLOCK_MONOTONIC */
		uint64_t count;		/* what an eventfd read */
	};
	/* Without a ring: what is to be done. */
	enum loop_kind kind;
	bool cancelled;
	int fd;
	void *data;
	size_t len;
	unsigned int events;
};

struct loop {
	bool has_ring;
	struct io_uring ring;
	pthread_mutex_t lock;
	struct loop_op *busy;
	bool stop;
	void (*idle)(void *arg);	/* after each batch of callbacks, lock held */
	void *idle_arg;
};

int loop_init(struct loop *loop, struct err *err);
/* Without a ring: inside the jail. */
void loop_init_jailed(struct loop *loop);
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
