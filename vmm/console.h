/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtio-console device that carries the channel: queue 0 gives bytes to the guest, queue 1
 * takes bytes from it. Both are streams of frames; buffers need not fall together with them.
 *
 * Nothing here grows: frames for the guest wait in one fixed queue (console_room() says when
 * another fits), and bytes from the guest are taken only while the other side has room for a
 * whole frame. A transmit buffer may so be held half taken; the guest then waits.
 *
 * Guarded by the loop's lock; served by the loop thread in console_pump().
 */
#ifndef CASEMATE_VMM_CONSOLE_H
#define CASEMATE_VMM_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/frame.h"
#include "vmm/virtio_mmio.h"

enum { CONSOLE_RX, CONSOLE_TX, CONSOLE_QUEUES };

struct console {
	struct virtio_mmio dev;
	struct buf to_guest;
	struct frame_decoder decoder;	/* of what the guest sends */

	struct virtqueue_chain tx;	/* being taken while tx_held */
	bool tx_held;
	unsigned int tx_index;		/* iovec and offset in it where to go on */
	size_t tx_offset;

	bool (*room)(void *arg);	/* may a frame be handed on now? */
	/* A frame of the guest's. Returns 0, or -EBADMSG with *ret_why set. */
	int (*frame)(void *arg, const struct frame *frame, const char **ret_why);
	void *arg;

	const char *why;		/* after an error of console_pump() */
};

/* interrupt(interrupt_arg) raises the device's vector. room, frame and arg are the caller's
 * to set. Returns 0 or -ENOMEM. */
int console_init(struct console *console, const struct memory *memory,
		 void (*interrupt)(void *arg), void *interrupt_arg);
void console_done(struct console *console);

/* The state while the vCPU is stopped. Returns 0 or -ENOMEM. */
int console_save(const struct console *console, struct saved_console *saved);
/* Into a console just initialised. Returns 0, or -errno with err set. */
int console_load(struct console *console, const struct saved_console *saved, struct err *err);

/* Whether console_send() takes a frame of any size. */
bool console_room(const struct console *console);

/* Queues a frame for the guest. Returns 0 or -ENOBUFS. */
int console_send(struct console *console, const struct cm_frame *head, const void *payload);

/*
 * Serves both queues as far as they go, a bounded amount of work. Returns 0 when there is
 * nothing more to do until a doorbell or more room, 1 when there may be, -EPROTO for nonsense
 * in a ring, -EBADMSG for a bad frame.
 */
int console_pump(struct console *console);

#endif
