/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of the line protocol's reader. The first byte chooses the piece size. The pieces
 * must not matter, and a line's words, written again, must read the same.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT_MAX	(4 * LINE_BYTES_MAX + 8192)

static uint64_t mix(uint64_t hash, const void *data, size_t len)
{
	const uint8_t *at = data;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ at[i]) * 1099511628211u;
	return hash;
}

/* Written and read again, it is the same. */
static void check_again(const struct line *line)
{
	char *text = malloc(TEXT_MAX);
	struct line_reader reader;
	const struct line *again;
	size_t len = 0;

	if (!text)
		abort();
	for (size_t i = 0; i < line->count; i++) {
		if (line_word_add(text, TEXT_MAX - 1, &len, line->words[i]) < 0)
			abort();
	}
	text[len++] = '\n';
	line_reader_init(&reader);
	if (len < LINE_BYTES_MAX && line->count > 0) {
		if (line_reader_give(&reader, (uint8_t *)text, len) < 0 ||
		    line_reader_next(&reader, &again) != 1 || again->why ||
		    again->count != line->count)
			abort();
		for (size_t i = 0; i < line->count; i++) {
			if (strcmp(line->words[i], again->words[i]))
				abort();
		}
	}
	line_reader_done(&reader);
	free(text);
}

static uint64_t lines(const uint8_t *data, size_t size, size_t step, bool again)
{
	struct line_reader reader;
	uint64_t hash = 14695981039346656037u;

	line_reader_init(&reader);
	while (size > 0) {
		size_t n = size < step ? size : step;
		const struct line *line;
		int r;

		if (line_reader_give(&reader, data, n) < 0)
			abort();
		while ((r = line_reader_next(&reader, &line)) == 1) {
			hash = mix(hash, line->tag, strlen(line->tag));
			hash = mix(hash, line->why ? "bad" : "ok", 2);
			for (size_t i = 0; i < line->count; i++)
				hash = mix(hash, line->words[i], strlen(line->words[i]) + 1);
			hash = mix(hash, line->chunk, line->chunk_len);
			if (again && !line->why)
				check_again(line);
		}
		if (r < 0) {
			if (r != -EPROTO || !reader.broken)
				abort();
			hash = mix(hash, "broken", 6);
			break;
		}
		data += n;
		size -= n;
	}
	line_reader_done(&reader);
	return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t step;

	if (size < 1)
		return 0;
	step = data[0] + 1u;
	if (lines(data + 1, size - 1, step, true) != lines(data + 1, size - 1, 16384, false))
		abort();
	return 0;
}
