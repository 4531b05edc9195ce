/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of words; see words.h. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "initd/builtin.h"
#include "initd/words.h"

static bool is_plain(const char *word)
{
	if (!*word || *word == '@' || *word == '#')
		return false;
	for (; *word; word++)
		if (*word <= ' ' || *word == 127 || strchr("\"'\\", *word))
			return false;
	return true;
}

static void put(struct words *w, const char *bytes, size_t size)
{
	/* What WORDS_LINE does not allow for is cut, not overrun. */
	if (size > sizeof(w->bytes) - 1 - w->used)
		size = sizeof(w->bytes) - 1 - w->used;
	memcpy(w->bytes + w->used, bytes, size);
	w->used += size;
}

static void put_quoted(struct words *w, const char *word)
{
	static const char from[] = "\n\t\r\\\"", name[] = "ntr\\\"";
	const char *known;
	char text[5];

	put(w, "\"", 1);
	for (; *word; word++) {
		known = strchr(from, *word);
		if (known)
			snprintf(text, sizeof(text), "\\%c", name[known - from]);
		else if ((unsigned char)*word < 32 || *word == 127)
			snprintf(text, sizeof(text), "\\x%02x", (unsigned char)*word);
		else
			snprintf(text, sizeof(text), "%c", *word);
		put(w, text, strlen(text));
	}
	put(w, "\"", 1);
}

static void put_word(struct words *w, const char *word)
{
	if (is_plain(word))
		put(w, word, strlen(word));
	else
		put_quoted(w, word);
}

static void put_blank(struct words *w)
{
	if (w->used > w->line)
		put(w, " ", 1);
}

void words_add(struct words *w, const char *word)
{
	put_blank(w);
	put_word(w, word);
}

void words_pair(struct words *w, const char *name, const char *value)
{
	put_blank(w);
	put(w, name, strlen(name));
	put(w, "=", 1);
	put_word(w, value);
}

void words_pair_format(struct words *w, const char *name, const char *format, ...)
{
	char value[64];
	va_list args;

	va_start(args, format);
	vsnprintf(value, sizeof(value), format, args);
	va_end(args);
	words_pair(w, name, value);
}

int words_flush(struct words *w)
{
	if (!w->error && w->used)
		w->error = builtin_write(1, w->bytes, w->used);
	w->used = w->line = 0;
	return w->error;
}

void words_end(struct words *w)
{
	w->bytes[w->used++] = '\n';
	w->line = w->used;
	if (w->used > sizeof(w->bytes) - WORDS_LINE)
		words_flush(w);
}
