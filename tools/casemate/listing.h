/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of casemated for people and for programs. */
#ifndef CASEMATE_TOOLS_LISTING_H
#define CASEMATE_TOOLS_LISTING_H

#include <stddef.h>
#include <stdint.h>

#include "api/casemate.h"
#include "base/json.h"

struct listing_column {
	const char *title, *name;	/* of the protocol's NAME=VALUE */
	int width;			/* negative: to the right */
	char kind;			/* 't' text, 'b' bytes, 's' seconds */
};

#define LISTING_END	{ NULL, NULL, 0, 0 }

/* The answer's items as a table with a line of titles, or as a JSON array of objects. */
void listing_table(const struct casemate *c, const struct listing_column *columns);
void listing_json(const struct casemate *c);

/* NAME=VALUE words as members of the JSON object that is open. Values that are numbers or yes
 * and no in the protocol are so in JSON; all else is a string. */
void listing_json_answer(struct json *json, const struct casemate *c);
void listing_json_item(struct json *json, const struct casemate *c, size_t item);
void listing_json_event(struct json *json, const struct casemate *c);

/* In a few letters: 12M, 1.5G; 12s, 3m, 2h, 4d. Returns text. */
#define LISTING_SHORT	16u
char *listing_bytes(char text[LISTING_SHORT], uint64_t bytes);
char *listing_seconds(char text[LISTING_SHORT], double seconds);

#endif
