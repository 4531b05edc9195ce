/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files of libcasemate; see casemate.h for what it is.
 *
 * Lines are read until the answer is there; others (signs ! of streams and events) are copied
 * to a list, from which casemate_next() takes them first. A copy is one block: the struct, the
 * pointers, the words, the chunk.
 */
#ifndef CASEMATE_API_CLIENT_H
#define CASEMATE_API_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/casemate.h"
#include "api/line.h"

#define API __attribute__((visibility("default")))

struct kept {
	struct kept *next;
	char tag[LINE_TAG_MAX + 1];	/* "": none */
	size_t size, count, chunk_len;
	const uint8_t *chunk;
	char *words[];
};

struct casemate {
	int fd;
	struct line_reader reader;
	char *text;			/* of the request */
	struct kept *answer, **items, *stream, **stream_end, *given;
	size_t item_count, item_cap, item_bytes, kept_bytes;
	char code[LINE_TAG_MAX];
	char message[512], hint[256];
	int error;			/* of the guest */
	uint64_t calls;
	char tag[LINE_TAG_MAX + 1];	/* of the call under way */
	bool broken;
	struct line_reader watch;	/* of the watch that is under way */
};

/* The connection is of no more use: says why. Returns -error. */
int client_broken(struct casemate *c, int error, const char *what);
/* Drops what the last call brought. */
void client_answer_drop(struct casemate *c);
/* A copy of a line, or NULL. sign: its first word instead of a tag; NULL: the line has them. */
struct kept *client_line_keep(const struct line *line, const char *sign);
/* Adds to the items, which own it. Returns 0, -ENOMEM, -E2BIG beyond CASEMATE_LIST_MAX. */
int client_item_add(struct casemate *c, struct kept *k);
/* As casemate_next(), but only of this command; the rest is kept for casemate_next(). */
int client_next_of(struct casemate *c, unsigned long long exec, struct casemate_event *ret,
		   int timeout_ms);
/* A request that is answered only when it fails, and then by the end of what it was for. */
int client_say(struct casemate *c, const char *const *words, size_t count, const void *chunk,
	       size_t chunk_len);
size_t client_words_count(const char *const *words);

#endif
