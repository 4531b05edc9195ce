/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A byte queue of fixed capacity. It never grows and never moves its bytes, so a pointer from
 * buf_front() stays good until buf_consume(): an I/O request may be in flight on it while more
 * is appended. Owned by one thread.
 */
#ifndef CASEMATE_BASE_BUF_H
#define CASEMATE_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
	uint8_t *data;
	size_t cap;
	size_t head;	/* offset of the oldest byte */
	size_t len;	/* bytes held */
};

/* Returns 0 or -ENOMEM. */
int buf_init(struct buf *buf, size_t cap);
void buf_done(struct buf *buf);

static inline size_t buf_space(const struct buf *buf)
{
	return buf->cap - buf->len;
}

/* Appends all or nothing. Returns 0 or -ENOBUFS. */
int buf_append(struct buf *buf, const void *data, size_t len);

/* The oldest bytes that lie together; *ret_len is 0 when the queue is empty. */
const uint8_t *buf_front(const struct buf *buf, size_t *ret_len);

/* Drops the oldest len bytes; len <= buf->len. */
void buf_consume(struct buf *buf, size_t len);

/* Takes up to len bytes out. Returns how many. */
size_t buf_take(struct buf *buf, void *data, size_t len);

#endif
