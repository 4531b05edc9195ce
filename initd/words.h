/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of words on stdout, quoted as docs/PROTOCOL.md, "Lines", has it: what ls, stat and
 * watch say. Lines gather in a buffer and are written when it is full, and by words_flush().
 */
#ifndef CASEMATE_INITD_WORDS_H
#define CASEMATE_INITD_WORDS_H

#include <stddef.h>

#define WORDS_BYTES 65536u
/* A line's words must fit: two names of PATH_MAX, each byte as \xHH, and some numbers. */
#define WORDS_LINE 34000u

struct words {
	size_t used, line; /* line: where the one at hand begins */
	int error;         /* of the first write that failed; nothing is written after it */
	char bytes[WORDS_BYTES];
};

void words_add(struct words *w, const char *word);
/* NAME=VALUE */
void words_pair(struct words *w, const char *name, const char *value);
void words_pair_format(struct words *w, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Ends a line. */
void words_end(struct words *w);
/* 0 or the errno of a write. */
int words_flush(struct words *w);

#endif
