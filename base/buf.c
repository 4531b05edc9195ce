/* SPDX-License-Identifier: Apache-2.0 */
/* A byte queue of fixed capacity; see buf.h. */
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int buf_init(struct buf *buf, size_t cap)
{
	*buf = (struct buf){ .data = malloc(cap), .cap = cap };
	return buf->data ? 0 : -ENOMEM;
}

void buf_done(struct buf *buf)
{
	free(buf->data);
	*buf = (struct buf){ .data = NULL };
}

int buf_append(struct buf *buf, const void *data, size_t len)
{
	size_t tail, first;

	if (len > buf_space(buf))
		return -ENOBUFS;
	if (len == 0)
		return 0;
	tail = buf->head + buf->len;
	if (tail >= buf->cap)
		tail -= buf->cap;
	first = buf->cap - tail;
	if (first > len)
		first = len;
	memcpy(buf->data + tail, data, first);
	memcpy(buf->data, (const uint8_t *)data + first, len - first);
	buf->len += len;
	return 0;
}

const uint8_t *buf_front(const struct buf *buf, size_t *ret_len)
{
	size_t run = buf->cap - buf->head;

	*ret_len = buf->len < run ? buf->len : run;
	return buf->data + buf->head;
}

void buf_consume(struct buf *buf, size_t len)
{
	assert(len <= buf->len);
	buf->len -= len;
	buf->head += len;
	if (buf->head >= buf->cap)
		buf->head -= buf->cap;
	/* Start over when empty: an idle queue touches few pages. */
	if (buf->len == 0)
		buf->head = 0;
}

size_t buf_take(struct buf *buf, void *data, size_t len)
{
	size_t taken = 0;

	while (taken < len && buf->len > 0) {
		size_t run;
		const uint8_t *from = buf_front(buf, &run);

		if (run > len - taken)
			run = len - taken;
		memcpy((uint8_t *)data + taken, from, run);
		buf_consume(buf, run);
		taken += run;
	}
	return taken;
}
