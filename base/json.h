/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON (RFC 8259), whatever the bytes are. Members have a name in objects and none
 * (NULL) in arrays and outermost; commas are put where they belong.
 *
 * Text is UTF-8. A byte that is no part of UTF-8, and each byte of U+FFFD itself, is written
 * as U+FFFD and two hexadecimal digits: readers that want the bytes get them all back, and
 * others see a sign that something was odd. Control characters (those of C1, too) are \uXXXX,
 * so that nothing can steer a terminal.
 *
 * Errors are the FILE's: ask ferror().
 */
#ifndef CASEMATE_BASE_JSON_H
#define CASEMATE_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH_MAX	16u

struct json {
	FILE *to;
	bool lines;		/* each member of the outermost is a line of its own */
	unsigned int depth;
	bool object[JSON_DEPTH_MAX], filled[JSON_DEPTH_MAX];
};

#define JSON_INIT(file)	{ .to = (file) }

void json_object(struct json *json, const char *name);
void json_array(struct json *json, const char *name);
/* Ends the innermost object or array; a newline follows the outermost. */
void json_end(struct json *json);

void json_text(struct json *json, const char *name, const void *text, size_t len);
void json_string(struct json *json, const char *name, const char *text);
/* A string made of the format; it is cut at 1023 bytes. */
void json_format(struct json *json, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* A string of two hexadecimal digits a byte. */
void json_hex(struct json *json, const char *name, const void *data, size_t len);
void json_number(struct json *json, const char *name, uint64_t value);
void json_bool(struct json *json, const char *name, bool value);
/* Text that is a number already (json_is_number), or else a string. */
void json_number_text(struct json *json, const char *name, const char *text);
bool json_is_number(const char *text);

#endif
