/* SPDX-License-Identifier: Apache-2.0 */
/* The line protocol's words; see line.h. */
#include "api/line.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CAP_FIRST	2048u
/* A line, its chunk, and what was read together with their last bytes. */
#define CAP_MAX		(LINE_BYTES_MAX + 2 * LINE_CHUNK_MAX)

void line_reader_init(struct line_reader *reader)
{
	memset(reader, 0, sizeof(*reader));
}

void line_reader_done(struct line_reader *reader)
{
	free(reader->bytes);
	free(reader->text);
	line_reader_init(reader);
}

int line_reader_give(struct line_reader *reader, const uint8_t *data, size_t len)
{
	size_t want, cap = reader->cap ? reader->cap : CAP_FIRST;

	if (len == 0)
		return 0;
	if (len > CAP_MAX - reader->have)
		return -E2BIG;
	want = reader->have + len;
	while (cap < want)
		cap *= 2;
	if (cap != reader->cap) {
		uint8_t *grown = realloc(reader->bytes, cap);

		if (!grown)
			return -ENOMEM;
		reader->bytes = grown;
		reader->cap = cap;
	}
	memcpy(reader->bytes + reader->have, data, len);
	reader->have = want;
	return 0;
}

bool line_reader_partial(const struct line_reader *reader)
{
	return reader->have > reader->taken;
}

/* ---- Words ---- */

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

struct scan {
	const uint8_t *at, *end;
	char *to;
	const char *why;
};

static void put(struct scan *s, uint8_t c)
{
	if (c == 0)
		s->why = "a zero byte in a word";
	*s->to++ = (char)c;
}

/* Behind a backslash. */
static void scan_escape(struct scan *s)
{
	static const char from[] = "ntr\\\"", to[] = "\n\t\r\\\"";
	const char *known;

	if (s->at == s->end) {
		s->why = "a quote is not closed";
		return;
	}
	if (*s->at == 'x') {
		int high = s->end - s->at > 2 ? hex_digit(s->at[1]) : -1;
		int low = high >= 0 ? hex_digit(s->at[2]) : -1;

		if (low < 0) {
			s->why = "\\x wants two hexadecimal digits";
			return;
		}
		put(s, (uint8_t)(high << 4 | low));
		s->at += 3;
		return;
	}
	known = *s->at ? strchr(from, *s->at) : NULL;
	if (!known) {
		s->why = "an unknown escape; \\n \\t \\r \\\\ \\\" \\xHH are known";
		return;
	}
	put(s, (uint8_t)to[known - from]);
	s->at++;
}

static void scan_quoted(struct scan *s, uint8_t quote)
{
	while (!s->why) {
		uint8_t c;

		if (s->at == s->end) {
			s->why = "a quote is not closed";
			return;
		}
		c = *s->at++;
		if (c == quote)
			return;
		if (c == '\\' && quote == '"')
			scan_escape(s);
		else
			put(s, c);
	}
}

/* One word, zero-ended. Returns whether any of it was quoted. */
static bool scan_word(struct scan *s)
{
	bool quoted = false;

	while (!s->why && s->at < s->end && *s->at != ' ' && *s->at != '\t') {
		uint8_t c = *s->at++;

		if (c == '"' || c == '\'') {
			quoted = true;
			scan_quoted(s, c);
		} else {
			put(s, c);
		}
	}
	*s->to++ = '\0';
	return quoted;
}

static bool tag_is_good(const char *tag)
{
	size_t n = strlen(tag);

	return n >= 1 && n <= LINE_TAG_MAX &&
	       strspn(tag, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
			   "_.-") == n;
}

/* The length in an unquoted last word "#N" of the raw line. 0: there is none; -EPROTO. Looked
 * for before the words, so that a bad line does not make its chunk be read as lines. */
static int chunk_length(const uint8_t *text, size_t len, size_t *ret_word, size_t *ret_len)
{
	size_t end = len, at, value = 0;

	while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\t'))
		end--;
	for (at = end; at > 0 && text[at - 1] >= '0' && text[at - 1] <= '9';)
		at--;
	if (at == end || at == 0 || text[at - 1] != '#')
		return 0;
	if (at > 1 && text[at - 2] != ' ' && text[at - 2] != '\t')
		return 0;
	for (size_t i = at; i < end; i++) {
		value = value * 10 + (size_t)(text[i] - '0');
		if (value > LINE_CHUNK_MAX)
			return -EPROTO;
	}
	*ret_word = at - 1;
	*ret_len = value;
	return 1;
}

static void words_parse(struct line_reader *reader, const uint8_t *text, size_t len)
{
	struct line *line = &reader->line;
	struct scan s = { .at = text, .end = text + len, .to = reader->text };

	line->words = reader->words;
	line->count = 0;
	while (!s.why) {
		char *word = s.to;
		bool quoted;

		while (s.at < s.end && (*s.at == ' ' || *s.at == '\t'))
			s.at++;
		if (s.at == s.end)
			break;
		if (line->count == LINE_WORDS_MAX) {
			s.why = "too many words";
			break;
		}
		quoted = scan_word(&s);
		if (s.why)
			break;
		if (!quoted && line->count == 0 && !line->tag[0] && word[0] == '@') {
			if (!tag_is_good(word + 1))
				s.why = "a tag is up to 32 letters, digits and _.-";
			else
				strcpy(line->tag, word + 1);
			continue;
		}
		line->words[line->count++] = word;
	}
	if (s.why) {
		line->why = s.why;
		line->count = 0;
	}
	line->words[line->count] = NULL;
}

/* A line ends at `newline`: reads its words and where its chunk goes. */
static int line_begin(struct line_reader *reader, size_t newline)
{
	struct line *line = &reader->line;
	size_t len = newline, word = 0, chunk = 0;
	char *text = realloc(reader->text, newline + 2);
	int r;

	if (!text)
		return -ENOMEM;
	reader->text = text;
	*line = (struct line){ .why = NULL };
	if (len > 0 && reader->bytes[len - 1] == '\r')
		len--;
	r = chunk_length(reader->bytes, len, &word, &chunk);
	if (r < 0) {
		reader->broken = "a chunk of more than 65536 bytes";
		return -EPROTO;
	}
	line->has_chunk = r > 0;
	line->chunk_len = chunk;
	words_parse(reader, reader->bytes, r > 0 ? word : len);
	reader->chunk_at = newline + 1;
	return 0;
}

static void given_drop(struct line_reader *reader)
{
	reader->have -= reader->taken;
	memmove(reader->bytes, reader->bytes + reader->taken, reader->have);
	reader->taken = 0;
	reader->scanned = 0;
	reader->chunk_at = 0;
}

int line_reader_next(struct line_reader *reader, const struct line **ret_line)
{
	const uint8_t *newline;
	int r;

	if (reader->broken)
		return -EPROTO;
	if (reader->taken > 0)
		given_drop(reader);
	if (reader->chunk_at == 0) {
		if (reader->have == reader->scanned)
			return 0;
		newline = memchr(reader->bytes + reader->scanned, '\n',
				 reader->have - reader->scanned);
		reader->scanned = reader->have;
		if (newline ? newline - reader->bytes >= LINE_BYTES_MAX :
			      reader->have >= LINE_BYTES_MAX) {
			reader->broken = "a line of more than 131072 bytes";
			return -EPROTO;
		}
		if (!newline)
			return 0;
		r = line_begin(reader, (size_t)(newline - reader->bytes));
		if (r < 0)
			return r;
	}
	if (reader->have - reader->chunk_at < reader->line.chunk_len)
		return 0;
	reader->line.chunk = reader->bytes + reader->chunk_at;
	reader->taken = reader->chunk_at + reader->line.chunk_len;
	*ret_line = &reader->line;
	return 1;
}

const char *line_value(const struct line *line, size_t from, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = from; i < line->count; i++) {
		if (!strncmp(line->words[i], name, n) && line->words[i][n] == '=')
			return line->words[i] + n + 1;
	}
	return NULL;
}

/* ---- Writing ---- */

static bool is_plain(const char *word)
{
	if (!*word || *word == '@' || *word == '#')
		return false;
	for (; *word; word++) {
		unsigned char c = (unsigned char)*word;

		if (c <= 32 || c >= 127 || c == '"' || c == '\'' || c == '\\')
			return false;
	}
	return true;
}

static size_t quoted_put(char *to, unsigned char c)
{
	static const char digits[] = "0123456789abcdef";
	static const char from[] = "\n\t\r\\\"", name[] = "ntr\\\"";
	const char *known = c ? strchr(from, c) : NULL;

	if (known) {
		to[0] = '\\';
		to[1] = name[known - from];
		return 2;
	}
	if (c >= 32 && c != 127) {
		to[0] = (char)c;
		return 1;
	}
	to[0] = '\\';
	to[1] = 'x';
	to[2] = digits[c >> 4];
	to[3] = digits[c & 15];
	return 4;
}

static int word_add(char *text, size_t cap, size_t *len, const char *name, const char *word)
{
	size_t at = *len, prefix = name ? strlen(name) + 1 : 0;
	/* Blank, quotes, name, and four bytes for each of the word's. */
	size_t n = strlen(word), worst;

	if (__builtin_mul_overflow(n, (size_t)4, &worst) ||
	    __builtin_add_overflow(worst, prefix + 3, &worst))
		return -ENOBUFS;
	if (is_plain(word))
		worst = n + prefix + 1;
	if (worst > cap - at)
		return -ENOBUFS;
	if (at > 0)
		text[at++] = ' ';
	if (name) {
		memcpy(text + at, name, prefix - 1);
		at += prefix;
		text[at - 1] = '=';
	}
	if (is_plain(word)) {
		memcpy(text + at, word, n);
		at += n;
	} else {
		text[at++] = '"';
		while (*word)
			at += quoted_put(text + at, (unsigned char)*word++);
		text[at++] = '"';
	}
	*len = at;
	return 0;
}

int line_word_add(char *text, size_t cap, size_t *len, const char *word)
{
	return word_add(text, cap, len, NULL, word);
}

int line_pair_add(char *text, size_t cap, size_t *len, const char *name, const char *value)
{
	return word_add(text, cap, len, name, value);
}
