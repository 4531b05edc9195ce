/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel's two buffers. Nothing here ever blocks: output waits in a queue of fixed
 * size and the rest of initd asks for room before it produces. Three thresholds keep a
 * stalled host from wedging it:
 *   - task output is read from pipes only while CHANNEL_RESERVE stays free behind it;
 *   - what must be said once (started, end of file, credit, exit) is remembered in its
 * exec and said when there is room;
 *   - frames from the host are looked at only while an answer fits (CHANNEL_ANSWER). A
 * host that keeps to the protocol never makes us wait there, since the reserve holds all
 * that its execs can have to say.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "initd/channel.h"

size_t channel_room(const struct channel *c)
{
	return sizeof(c->out) - (c->out_end - c->out_start);
}

size_t channel_data_room(const struct channel *c)
{
	size_t room = channel_room(c);

	/* Not worth a frame below a page. */
	if (room < CHANNEL_RESERVE + CHANNEL_HEAD + 4096)
		return 0;
	room -= CHANNEL_RESERVE + CHANNEL_HEAD;
	return room < CM_FRAME_MAX ? room : CM_FRAME_MAX;
}

bool channel_pending(const struct channel *c)
{
	return c->out_end != c->out_start;
}

uint8_t *channel_reserve(struct channel *c, size_t length)
{
	if (c->out_end + CHANNEL_HEAD + length > sizeof(c->out)) {
		memmove(c->out, c->out + c->out_start, c->out_end - c->out_start);
		c->out_end -= c->out_start;
		c->out_start = 0;
	}
	return c->out + c->out_end + CHANNEL_HEAD;
}

void channel_commit(struct channel *c, uint16_t type, uint16_t flags, uint32_t id,
		    size_t length)
{
	struct cm_frame head = {
		.length = (uint32_t)length, .type = type, .flags = flags, .id = id};

	memcpy(c->out + c->out_end, &head, sizeof(head));
	c->out_end += CHANNEL_HEAD + length;
}

bool channel_send(struct channel *c, uint16_t type, uint16_t flags, uint32_t id,
		  const void *payload, size_t length)
{
	uint8_t *place;

	if (channel_room(c) < CHANNEL_HEAD + length)
		return false;
	place = channel_reserve(c, length);
	if (length)
		memcpy(place, payload, length);
	channel_commit(c, type, flags, id, length);
	return true;
}

void channel_text(struct channel *c, uint16_t type, uint32_t id, const char *format, ...)
{
	char text[CHANNEL_TEXT];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n < 0)
		return;
	if ((size_t)n >= sizeof(text))
		n = sizeof(text) - 1;
	channel_send(c, type, 0, id, text, (size_t)n);
}

int channel_flush(struct channel *c)
{
	ssize_t n;

	while (c->out_start < c->out_end) {
		n = write(c->fd, c->out + c->out_start, c->out_end - c->out_start);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return -errno;
		c->out_start += (size_t)n;
	}
	c->out_start = c->out_end = 0;
	return 0;
}

int channel_fill(struct channel *c)
{
	ssize_t n;

	if (c->in_size == sizeof(c->in))
		return 0;
	do
		n = read(c->fd, c->in + c->in_size, sizeof(c->in) - c->in_size);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	c->in_size += (size_t)n;
	return (int)n;
}

void channel_consume(struct channel *c, size_t used)
{
	c->in_size -= used;
	memmove(c->in, c->in + used, c->in_size);
}
