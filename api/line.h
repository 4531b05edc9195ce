/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line protocol's words, for both sides (docs/PROTOCOL.md has the grammar).
 *
 * A line is words between blanks, ended by \n (a \r before it is dropped). In a word, '...' is
 * literal and "..." knows \n \t \r \\ \" \xHH; both may stand anywhere in it (env="A=b c").
 * No byte of a word is zero. A first word @TAG, unquoted, names the request. A last word #N,
 * unquoted, says that N bytes follow the line: they are as they are, and nothing follows them.
 *
 * A reader is fed bytes in pieces of any size and gives out a line together with its chunk.
 * It holds one line and one chunk at most; the buffer grows up to their caps as they need it.
 * An error in a line does not lose the place: the next line is read as if nothing had been.
 * Only a line longer than its cap, or a chunk of an impossible length, ends the connection,
 * since then nobody knows where the next line begins.
 */
#ifndef CASEMATE_API_LINE_H
#define CASEMATE_API_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_BYTES_MAX	131072u		/* with its newline */
#define LINE_WORDS_MAX	2048u
#define LINE_TAG_MAX	32u
#define LINE_CHUNK_MAX	65536u

struct line {
	char tag[LINE_TAG_MAX + 1];	/* "" without one */
	char **words;			/* count of them, the tag and #N left out; then NULL */
	size_t count;
	bool has_chunk;
	const uint8_t *chunk;
	size_t chunk_len;
	const char *why;		/* not NULL: the line is no good; static text */
};

struct line_reader {
	uint8_t *bytes;
	size_t cap, have;
	size_t scanned;			/* no newline before this */
	size_t chunk_at;		/* where the chunk begins, 0: no line parsed yet */
	size_t taken;			/* bytes of what was last given out */
	char *text;			/* the words' bytes */
	char *words[LINE_WORDS_MAX + 1];
	struct line line;
	const char *broken;		/* not NULL: nothing more can be read */
};

void line_reader_init(struct line_reader *reader);
void line_reader_done(struct line_reader *reader);

/* Takes all of the bytes. Returns 0, -ENOMEM, or -E2BIG: line_reader_next() is to be called
 * until it has nothing more before more is given. */
int line_reader_give(struct line_reader *reader, const uint8_t *data, size_t len);

/* Returns 1 with *ret_line set (good until the next call; look at `why`), 0 when no whole line
 * is there, -EPROTO when the connection cannot go on (reader->broken says why), -ENOMEM. */
int line_reader_next(struct line_reader *reader, const struct line **ret_line);

/* Whether something that is not whole is held. */
bool line_reader_partial(const struct line_reader *reader);

/* The value of the first word NAME=VALUE from index `from` on, or NULL. */
const char *line_value(const struct line *line, size_t from, const char *name);

/* Appends a word, quoted where it must be, to text of capacity cap; a blank before it unless
 * text is empty. Returns 0 or -ENOBUFS with nothing appended. */
int line_word_add(char *text, size_t cap, size_t *len, const char *word);
/* The same with NAME= before it. */
int line_pair_add(char *text, size_t cap, size_t *len, const char *name, const char *value);

#endif
