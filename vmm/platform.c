/* SPDX-License-Identifier: Apache-2.0 */
/* The platform page; see platform.h. */
#include "vmm/platform.h"

#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "base/time.h"

#define CONSOLE_CAP	16384u
#define CONSOLE_EAGER	1024u	/* send when this much has come, or a line */

int platform_init(struct platform *platform, bool verbose, uint64_t start_ns)
{
	int r;

	*platform = (struct platform){ .verbose = verbose, .start_ns = start_ns };
	r = buf_init(&platform->tail, PLATFORM_TAIL);
	if (r == 0)
		r = buf_init(&platform->console, CONSOLE_CAP);
	return r;
}

void platform_done(struct platform *platform)
{
	buf_done(&platform->tail);
	buf_done(&platform->console);
}

static void serial_write(struct platform *platform, uint8_t byte)
{
	if (buf_space(&platform->tail) == 0)
		buf_consume(&platform->tail, 1);
	buf_append(&platform->tail, &byte, 1);
	if (!platform->verbose)
		return;
	if (buf_append(&platform->console, &byte, 1) < 0)
		platform->dropped++;
	if (byte == '\n' || platform->console.len >= CONSOLE_EAGER)
		platform->flush = true;
}

int platform_access(struct platform *platform, uint64_t offset, unsigned int len, bool write,
		    uint32_t *value)
{
	if (len != 4)
		return -EPROTO;
	if (!write) {
		if (offset != CM_PLAT_MAGIC)
			return -EPROTO;
		*value = CM_PLAT_MAGIC_VALUE;
		return 0;
	}
	switch (offset) {
	case CM_PLAT_SERIAL:
		serial_write(platform, (uint8_t)*value);
		return 0;
	case CM_PLAT_STAGE:
		if (*value == 0 || *value >= PLATFORM_STAGES)
			return -EPROTO;
		if (platform->stage_ns[*value] == 0)
			platform->stage_ns[*value] = time_monotonic_ns() - platform->start_ns;
		return 0;
	case CM_PLAT_END:
		platform->ended = true;
		platform->end = *value;
		return 0;
	case CM_PLAT_FREE_MAP:
		platform->free_map = *value;
		return 0;
	default:
		return -EPROTO;
	}
}

void platform_tail(const struct platform *platform, char *text, size_t size)
{
	const struct buf *tail = &platform->tail;
	size_t skip = tail->len < size ? 0 : tail->len - (size - 1);
	size_t n = 0;

	for (size_t i = skip; i < tail->len; i++)
		text[n++] = (char)tail->data[(tail->head + i) % tail->cap];
	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	frame_text_clean(text, n);
	text[n] = '\0';
}

const char *platform_end_name(uint32_t end)
{
	static const char *const names[] = {
		[CM_END_POWEROFF] = "powered off",
		[CM_END_PANIC] = "the guest kernel panicked",
		[CM_END_OOM] = "the guest ran out of memory",
		[CM_END_INIT_DIED] = "initd ended in the guest",
		[CM_END_DOUBLE_FAULT] = "the guest kernel faulted twice",
		[CM_END_UNSUPPORTED] = "the guest kernel does not know this device tree",
	};

	return end < sizeof(names) / sizeof(names[0]) ? names[end] : NULL;
}
