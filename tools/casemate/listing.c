/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of casemated, shown; see listing.h. */
#include "tools/casemate/listing.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* ---- Short forms ---- */

char *listing_bytes(char text[LISTING_SHORT], uint64_t bytes)
{
	static const char units[] = "BKMGTPE";
	unsigned int unit = 0;
	double value = (double)bytes;

	while (value >= 1000 && unit < 6) {
		value /= 1024;
		unit++;
	}
	snprintf(text, LISTING_SHORT, unit > 2 && value < 10 ? "%.1f%c" : "%.0f%c", value,
		 units[unit]);
	return text;
}

char *listing_seconds(char text[LISTING_SHORT], double seconds)
{
	if (seconds < 100)
		snprintf(text, LISTING_SHORT, "%.0fs", seconds);
	else if (seconds < 100 * 60)
		snprintf(text, LISTING_SHORT, "%.0fm", seconds / 60);
	else if (seconds < 48 * 3600)
		snprintf(text, LISTING_SHORT, "%.0fh", seconds / 3600);
	else
		snprintf(text, LISTING_SHORT, "%.0fd", seconds / (24 * 3600));
	return text;
}

/* ---- Tables ---- */

static void cell(const struct listing_column *column, const char *value)
{
	char text[LISTING_SHORT];
	int width = abs(column->width), n;

	if (!value)
		value = column[1].title ? "-" : "";
	else if (column->kind == 'b')
		value = listing_bytes(text, strtoull(value, NULL, 10));
	else if (column->kind == 's')
		value = listing_seconds(text, strtod(value, NULL));
	n = (int)strlen(value);
	if (column->width < 0)
		printf("%*s", n < width ? width - n : 0, "");
	utf8_print_clean(stdout, value, (size_t)n);
	if (column[1].title)
		printf("%*s", column->width > 0 && n < width ? width - n + 1 : 1, "");
}

void listing_table(const struct casemate *c, const struct listing_column *columns)
{
	for (const struct listing_column *k = columns; k->title; k++) {
		struct listing_column title = *k, both[2] = { title, k[1] };

		both[0].kind = 't';
		cell(both, k->title);
	}
	putchar('\n');
	for (size_t i = 0; i < casemate_items(c); i++) {
		for (const struct listing_column *k = columns; k->title; k++)
			cell(k, casemate_item_value(c, i, k->name));
		putchar('\n');
	}
}

/* ---- JSON ---- */

static bool is_in(const char *const *names, const char *name, size_t len)
{
	for (; *names; names++) {
		if (strlen(*names) == len && !strncmp(*names, name, len))
			return true;
	}
	return false;
}

/* Everything else is somebody's text, even where it looks like a number. */
static const char *const numbers[] = {
	"accepted", "age", "bytes", "clients", "connections", "count", "cpu", "cpu-at", "event",
	"exec", "execs", "failed", "forward", "hits", "idle", "leased", "leases", "max", "mem",
	"missed", "owner", "pid", "private", "ready", "ready-mem", "ready-mem-max", "rss",
	"saving", "starting", "stderr", "stdout", "stored", "target", "templates", "time",
	"ttl-left", "vms", NULL,
};
static const char *const bools[] = { "attached", "draining", "held", NULL };

static void member(struct json *json, const char *word)
{
	size_t n = strcspn(word, "=");
	const char *value = word + n + 1;
	char name[64];

	/* Words without a value are no names (the type of an event, for one). */
	if (!word[n] || n >= sizeof(name))
		return;
	snprintf(name, sizeof(name), "%.*s", (int)n, word);
	if (is_in(bools, word, n))
		json_bool(json, name, !strcmp(value, "yes"));
	else if (is_in(numbers, word, n))
		json_number_text(json, name, value);
	else
		json_string(json, name, value);
}

void listing_json_answer(struct json *json, const struct casemate *c)
{
	const char *word;

	for (size_t n = 0; (word = casemate_word(c, n)); n++)
		member(json, word);
}

void listing_json_item(struct json *json, const struct casemate *c, size_t item)
{
	const char *word;

	for (size_t n = 0; (word = casemate_item_word(c, item, n)); n++)
		member(json, word);
}

void listing_json_event(struct json *json, const struct casemate *c)
{
	const char *word;

	for (size_t n = 0; (word = casemate_event_word(c, n)); n++)
		member(json, word);
}

void listing_json(const struct casemate *c)
{
	struct json json = JSON_INIT(stdout);

	json.lines = true;
	json_array(&json, NULL);
	for (size_t i = 0; i < casemate_items(c); i++) {
		json_object(&json, NULL);
		listing_json_item(&json, c, i);
		json_end(&json);
	}
	json_end(&json);
}
