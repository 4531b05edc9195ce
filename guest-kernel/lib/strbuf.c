/* SPDX-License-Identifier: Apache-2.0 */
/* Growing text buffer, doubled when full. After a failed allocation all writes are ignored. */
#include "guest-kernel/lib/kernel.h"
#include "guest-kernel/mm/page.h"

#define STRBUF_MAX (4UL << 20)

static bool strbuf_room(struct strbuf *sb, size_t need)
{
	size_t cap = sb->cap != 0 ? sb->cap : 256;
	char *data;

	if (sb->error != 0)
		return false;
	if (need <= sb->cap)
		return true;
	while (cap < need && cap <= STRBUF_MAX / 2)
		cap *= 2;
	data = cap >= need ? krealloc(sb->data, cap) : NULL;
	if (data == NULL) {
		sb->error = -ENOMEM;
		return false;
	}
	sb->data = data;
	sb->cap = cap;
	return true;
}

void strbuf_printf(struct strbuf *sb, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = kvsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (!strbuf_room(sb, sb->len + (size_t)n + 1))
		return;
	va_start(ap, fmt);
	kvsnprintf(sb->data + sb->len, sb->cap - sb->len, fmt, ap);
	va_end(ap);
	sb->len += (size_t)n;
}

void strbuf_write(struct strbuf *sb, const void *data, size_t len)
{
	if (!strbuf_room(sb, sb->len + len))
		return;
	memcpy(sb->data + sb->len, data, len);
	sb->len += len;
}

void strbuf_done(struct strbuf *sb)
{
	kfree(sb->data);
	memset(sb, 0, sizeof(*sb));
}
