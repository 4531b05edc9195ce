/* SPDX-License-Identifier: Apache-2.0 */
/* Writing JSON; see json.h. */
#include "base/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT	0xfffdu

static void text_put(FILE *to, const uint8_t *text, size_t len)
{
	fputc('"', to);
	for (size_t at = 0, n; at < len; at += n) {
		uint32_t c;

		n = utf8_decode(text + at, len - at, &c);
		if (n == 0 || c == REPLACEMENT) {
			n = n ? n : 1;
			for (size_t i = 0; i < n; i++)
				fprintf(to, "\xef\xbf\xbd%02x", text[at + i]);
		} else if (c == '"' || c == '\\') {
			fprintf(to, "\\%c", (int)c);
		} else if (c < 32 || (c >= 127 && c < 160)) {
			fprintf(to, "\\u%04" PRIx32, c);
		} else {
			fwrite(text + at, 1, n, to);
		}
	}
	fputc('"', to);
}

/* What stands before a value: a comma, a new line, its name. */
static void begin(struct json *j, const char *name)
{
	unsigned int in = j->depth ? j->depth - 1 : 0;

	if (j->depth && j->filled[in])
		fputs(j->depth == 1 && j->lines ? "," : ", ", j->to);
	if (j->depth == 1 && j->lines)
		fputs("\n ", j->to);
	if (j->depth && j->object[in]) {
		text_put(j->to, (const uint8_t *)name, strlen(name));
		fputs(": ", j->to);
	}
	if (j->depth)
		j->filled[in] = true;
}

static void nest(struct json *j, const char *name, bool object)
{
	begin(j, name);
	fputc(object ? '{' : '[', j->to);
	j->object[j->depth] = object;
	j->filled[j->depth++] = false;
}

void json_object(struct json *j, const char *name)
{
	nest(j, name, true);
}

void json_array(struct json *j, const char *name)
{
	nest(j, name, false);
}

void json_end(struct json *j)
{
	j->depth--;
	if (j->depth == 0 && j->lines && j->filled[0])
		fputc('\n', j->to);
	fputc(j->object[j->depth] ? '}' : ']', j->to);
	if (j->depth == 0)
		fputc('\n', j->to);
}

void json_text(struct json *j, const char *name, const void *text, size_t len)
{
	begin(j, name);
	text_put(j->to, text, len);
}

void json_string(struct json *j, const char *name, const char *text)
{
	json_text(j, name, text, strlen(text));
}

void json_format(struct json *j, const char *name, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_string(j, name, text);
}

void json_hex(struct json *j, const char *name, const void *data, size_t len)
{
	const uint8_t *bytes = data;

	begin(j, name);
	fputc('"', j->to);
	for (size_t i = 0; i < len; i++)
		fprintf(j->to, "%02x", bytes[i]);
	fputc('"', j->to);
}

void json_number(struct json *j, const char *name, uint64_t value)
{
	begin(j, name);
	fprintf(j->to, "%" PRIu64, value);
}

void json_bool(struct json *j, const char *name, bool value)
{
	begin(j, name);
	fputs(value ? "true" : "false", j->to);
}

static const char *digits(const char *at)
{
	return at + strspn(at, "0123456789");
}

bool json_is_number(const char *text)
{
	const char *at = text + (*text == '-'), *end = digits(at);

	if (end == at || (*at == '0' && end > at + 1))
		return false;
	if (*end == '.') {
		at = end + 1;
		end = digits(at);
		if (end == at)
			return false;
	}
	if (*end == 'e' || *end == 'E') {
		at = end + 1;
		at += *at == '-' || *at == '+';
		end = digits(at);
		if (end == at)
			return false;
	}
	return *end == '\0';
}

void json_number_text(struct json *j, const char *name, const char *text)
{
	if (!json_is_number(text)) {
		json_string(j, name, text);
		return;
	}
	begin(j, name);
	fputs(text, j->to);
}
