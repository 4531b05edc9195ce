/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the client's socket and the virtio port: frames are decoded, checked and passed on.
 *
 * The start is the VMM's own: guest HELLO, we answer RESUME(generation), guest RESUMED with
 * that generation. Then the client gets VM_BOOTED, and only from then on is its socket read:
 * what it sent before waits there. So nothing is executed in a guest that has not answered.
 *
 * After a restore or in a forked VM there is no HELLO: RESUME goes out behind what was on its
 * way to the guest, and frames of execs may come before RESUMED (abi/channel.h).
 *
 * Frames for the VMM itself (VM_SAVE, VM_FORK, VM_PAUSE, VM_CONTINUE) go to request(), with
 * the descriptors that came with them.
 *
 * Both directions are bounded: the client is read only while the port has room for a frame,
 * guest buffers are taken only while the client's queue has. A slow client stalls the guest.
 * RELAY_OWN bytes of that queue are for the VMM's own answers, so that no guest that fills the
 * rest can have one lost.
 *
 * Loop thread only, under its lock.
 */
#ifndef CASEMATE_VMM_RELAY_H
#define CASEMATE_VMM_RELAY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/frame.h"
#include "vmm/console.h"
#include "vmm/loop.h"

enum relay_state {
	RELAY_WAIT_HELLO,
	RELAY_WAIT_RESUMED,
	RELAY_RUNNING,
	RELAY_HELD,			/* no guest: only frames for the VMM */
};

struct relay {
	struct loop *loop;
	struct console *console;
	int fd;				/* the client's socket; not owned */
	enum relay_state state;
	uint64_t generation;
	bool restored;
	bool resume_due;		/* RESUME is to be sent, once there is room */
	void (*booted)(void *arg);	/* RESUMED was right; sends VM_BOOTED */
	/* A frame for the VMM. fds are then the callee's: as many as the frame wants. */
	void (*request)(void *arg, const struct frame *frame, const int *fds,
			unsigned int count);
	void *arg;

	struct buf to_client;
	struct frame_decoder decoder;	/* of what the client sends */
	uint8_t *received;
	size_t received_at, received_len;
	struct msghdr message;
	struct iovec iov;
	union {
		struct cmsghdr align;
		uint8_t bytes[CMSG_SPACE(sizeof(int) * CM_VM_FORK_MAX)];
	} control;
	int fds[CM_VM_FORK_MAX];	/* received, for requests to come */
	unsigned int fd_count;
	struct loop_op recv, send, hangup;
	bool client_gone;
	const char *why;		/* of client_gone, when it broke the protocol */
};

int relay_init(struct relay *relay, struct loop *loop, struct console *console, int fd,
	       uint64_t generation, struct err *err);
void relay_done(struct relay *relay);

/* Starts watching the client. Returns 0 or -errno. */
int relay_start(struct relay *relay);

/* For a guest that ran before: it is not waited for HELLO, but told to RESUME. Before
 * relay_start(). */
void relay_set_restored(struct relay *relay);

/* For a VM that is held and does not run: the client is read at once. */
void relay_set_held(struct relay *relay);

/* Passes on what can be passed on, and starts I/O that is due. */
void relay_step(struct relay *relay);

/* Only sends what is queued. Returns whether all of it is out. */
bool relay_flush(struct relay *relay);

/* An answer with its text, and VM_BOOTED besides. */
#define RELAY_OWN	4096u

/* Queues a frame of the VMM's own for the client, who is gone if he has left no room for it.
 * Returns 0 or -ENOBUFS. */
int relay_send(struct relay *relay, uint16_t type, const void *payload, size_t len);

/* Likewise one that can be left out, or said later. */
int relay_say(struct relay *relay, uint16_t type, const void *payload, size_t len);

/* For struct console. */
bool relay_room(void *arg);
int relay_guest_frame(void *arg, const struct frame *frame, const char **ret_why);

#endif
