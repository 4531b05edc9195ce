/* SPDX-License-Identifier: Apache-2.0 */
/* Buffered, non-blocking ends of the channel. See channel.c. */
#ifndef CASEMATE_INITD_CHANNEL_H
#define CASEMATE_INITD_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "abi/channel.h"

#define CHANNEL_HEAD sizeof(struct cm_frame)
#define CHANNEL_IN   (2 * (CM_FRAME_MAX + sizeof(struct cm_frame)))
#define CHANNEL_OUT  (4 * CM_FRAME_MAX)
/* Output bytes must leave this much of the queue to control frames: each of 64 execs may
 * have STARTED, two ends of file, a credit and EXIT to say (132 bytes). */
#define CHANNEL_RESERVE (16 * 1024)
/* Room that must be free before a frame from the host is looked at: its answer. The longest
 * is that to RESUME, 64 times RUNNING and RESUMED (1568 bytes). */
#define CHANNEL_ANSWER 2048
#define CHANNEL_TEXT   496 /* bytes of text in a LOG or ERROR frame at most */

struct channel {
	int fd; /* non-blocking */
	size_t in_size;
	size_t out_start, out_end;
	uint8_t in[CHANNEL_IN];
	uint8_t out[CHANNEL_OUT];
};

/* Bytes free in the output queue, frame headers included. */
size_t channel_room(const struct channel *c);
/* Whether `room` bytes of payload may be sent as task output: 0 when it must wait. */
size_t channel_data_room(const struct channel *c);
bool channel_pending(const struct channel *c);

/* A place for up to `length` payload bytes of the next frame, then the frame itself. The
 * caller has checked channel_room(). */
uint8_t *channel_reserve(struct channel *c, size_t length);
void channel_commit(struct channel *c, uint16_t type, uint16_t flags, uint32_t id,
		    size_t length);

/* Queues a frame. False, and nothing queued, when there is no room. */
bool channel_send(struct channel *c, uint16_t type, uint16_t flags, uint32_t id,
		  const void *payload, size_t length);
/* Queues text as LOG or ERROR. LOG may be dropped when there is no room. */
void channel_text(struct channel *c, uint16_t type, uint32_t id, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Writes what the host takes now. 0, or -errno when the channel is dead. */
int channel_flush(struct channel *c);
/* Reads what is there, if there is place. Bytes read, 0 for none, -errno when the channel
 * is dead (-EPIPE: the host has gone). */
int channel_fill(struct channel *c);
/* Drops the first `used` bytes of the input buffer. */
void channel_consume(struct channel *c, size_t used);

#endif
