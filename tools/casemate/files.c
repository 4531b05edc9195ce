/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs about files in VMs but cp: ls of a directory, cat, stat, mkdir, mv, rm, chmod,
 * watch. A file is named VM:PATH. All that is shown is what the guest says.
 */
#include "tools/casemate/files.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/utf8.h"
#include "tools/casemate/casemate.h"

#define MORE_MAX	4u

bool place_is(const char *word)
{
	size_t n = strcspn(word, ":/");

	return n > 0 && word[n] == ':';
}

int place_read(const char *word, struct place *ret)
{
	size_t n = strcspn(word, ":");

	if (!place_is(word) || n >= sizeof(ret->vm))
		return casemate_fail("a file in a VM is named VM:PATH, not %s", word);
	if (word[n + 1] != '/')
		return casemate_fail("a path in a VM is absolute, as in %.*s:/%s", (int)n, word,
				     word + n + 1);
	memcpy(ret->vm, word, n);
	ret->vm[n] = '\0';
	ret->path = word + n + 1;
	return 0;
}

int files_call(struct casemate *c, const struct words *w, const char *verb, const char *vm,
	       const char *path, ...)
{
	const char *words[WORDS_MAX + 4 + MORE_MAX] = { verb, vm, path }, *more;
	size_t n = 3;
	va_list args;

	va_start(args, path);
	while ((more = va_arg(args, const char *)) && n < 3 + MORE_MAX)
		words[n++] = more;
	va_end(args);
	for (unsigned int i = 0; i < w->count; i++)
		words[n++] = w->words[i];
	words[n] = NULL;
	return casemate_file(c, words);
}

int files_fail(const struct casemate *c, const struct place *place)
{
	if (!casemate_error(c)) {
		session_fail(c);
		return EXIT_CASEMATE;
	}
	casemate_fail("%s: %s", place->vm, casemate_message(c));
	return EXIT_GUEST;
}

/* One call for each place named; the worst status. */
static int each(struct casemate *c, const struct words *w, unsigned int from, const char *verb)
{
	struct place place;
	int worst = 0;

	for (unsigned int i = from; i < w->rest_count; i++) {
		int status = place_read(w->rest[i], &place);

		if (status == 0 && files_call(c, w, verb, place.vm, place.path, NULL))
			status = files_fail(c, &place);
		worst = status > worst ? status : worst;
	}
	return worst;
}

/* ---- ls, stat ---- */

static const char *value(const struct casemate *c, size_t item, const char *name)
{
	const char *text = casemate_item_value(c, item, name);

	return text ? text : "";
}

static void print_clean(const char *text)
{
	utf8_print_clean(stdout, text, strlen(text));
}

static void mode_print(const char *type, unsigned long mode)
{
	static const char bits[] = "rwxrwxrwx";
	char text[11];

	text[0] = !strcmp(type, "file") ? '-' : !strcmp(type, "fifo") ? 'p' : type[0];
	for (int i = 0; i < 9; i++)
		text[i + 1] = '-';
	for (int i = 0; i < 9; i++) {
		if (mode >> (8 - i) & 1)
			text[i + 1] = bits[i];
	}
	if (mode & 04000)
		text[3] = text[3] == 'x' ? 's' : 'S';
	if (mode & 02000)
		text[6] = text[6] == 'x' ? 's' : 'S';
	if (mode & 01000)
		text[9] = text[9] == 'x' ? 't' : 'T';
	text[10] = '\0';
	print_clean(text);
}

static void entry_print(const struct casemate *c, size_t i)
{
	const char *target = casemate_item_value(c, i, "target");
	time_t seconds = (time_t)strtoll(value(c, i, "mtime"), NULL, 10);
	char when[32] = "-";
	struct tm tm;

	mode_print(value(c, i, "type"), strtoul(value(c, i, "mode"), NULL, 8));
	printf(" %5lu %5lu %12llu ", strtoul(value(c, i, "uid"), NULL, 10),
	       strtoul(value(c, i, "gid"), NULL, 10),
	       strtoull(value(c, i, "size"), NULL, 10));
	if (localtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm);
	printf("%s ", when);
	print_clean(value(c, i, "name"));
	if (target) {
		fputs(" -> ", stdout);
		print_clean(target);
	}
	putchar('\n');
}

static void entry_json(struct json *json, const struct casemate *c, size_t i)
{
	static const char *const numbers[] = { "uid", "gid", "size", "links", "mtime" };
	static const char *const texts[] = { "type", "mode", "target", "device" };

	json_object(json, NULL);
	json_string(json, "name", value(c, i, "name"));
	for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
		if (casemate_item_value(c, i, texts[k]))
			json_string(json, texts[k], value(c, i, texts[k]));
	}
	for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
		if (casemate_item_value(c, i, numbers[k]))
			json_number_text(json, numbers[k], value(c, i, numbers[k]));
	}
	json_end(json);
}

static const struct casemate *sorted;	/* qsort() has no argument of ours */

static int by_name(const void *a, const void *b)
{
	return strcmp(value(sorted, *(const size_t *)a, "name"),
		      value(sorted, *(const size_t *)b, "name"));
}

static int entries_show(const struct casemate *c, bool as_json)
{
	size_t count = casemate_items(c), *order = calloc(count + 1, sizeof(*order));
	struct json json = JSON_INIT(stdout);

	if (!order)
		return casemate_fail("out of memory");
	for (size_t i = 0; i < count; i++)
		order[i] = i;
	sorted = c;
	qsort(order, count, sizeof(*order), by_name);
	json.lines = true;
	if (as_json)
		json_array(&json, NULL);
	for (size_t i = 0; i < count; i++) {
		if (as_json)
			entry_json(&json, c, order[i]);
		else
			entry_print(c, order[i]);
	}
	if (as_json)
		json_end(&json);
	free(order);
	return 0;
}

int files_list(struct casemate *c, const struct words *w, const char *word)
{
	const char *recursive = words_own(w, "-r") ? "recursive=yes" : NULL;
	const char *user = words_own(w, "--user"), *more[2] = { NULL };
	struct place place;
	char as[64];
	int status = place_read(word, &place);

	if (status)
		return status;
	snprintf(as, sizeof(as), "user=%s", user ? user : "");
	more[recursive != NULL] = user ? as : NULL;
	more[0] = recursive ? recursive : more[0];
	if (files_call(c, w, "ls", place.vm, place.path, more[0], more[1], NULL)) {
		/* What could be read is listed all the same. */
		status = files_fail(c, &place);
		if (status == EXIT_GUEST)
			entries_show(c, words_own(w, "--json") != NULL);
		return status;
	}
	return entries_show(c, words_own(w, "--json") != NULL);
}

int cmd_stat(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--no-follow", "follow=", 'n', NULL, "of a link itself, not of what it names" },
		OPTION_USER, OPTION_JSON, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	struct place place;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 1, false, "stat [options] VM:PATH", &c,
			 &status))
		return status;
	status = place_read(w.rest[0], &place);
	if (status == 0 && files_call(c, &w, "stat", place.vm, place.path, NULL))
		status = files_fail(c, &place);
	else if (status == 0)
		status = entries_show(c, words_own(&w, "--json") != NULL);
	return session_close(c, status);
}

/* ---- cat ---- */

int cmd_cat(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--offset", "offset=", 'v', "BYTES", "from there on" },
		{ "--length", "length=", 'v', "BYTES", "no more than so many" },
		OPTION_USER, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	struct place place;
	int status, worst = 0;

	if (!words_begin(&w, rules, argc, argv, 1, WORDS_MAX, false,
			 "cat [options] VM:PATH...", &c, &status))
		return status;
	for (unsigned int i = 0; i < w.rest_count; i++) {
		status = place_read(w.rest[i], &place);
		if (status == 0 && casemate_get(c, place.vm, place.path, w.words, 1))
			status = files_fail(c, &place);
		worst = status > worst ? status : worst;
	}
	return session_close(c, worst);
}

/* ---- Names ---- */

int cmd_mkdir(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "-p", "parents=", 'y', NULL, "those above, too; it may be there already" },
		{ "--mode", "mode=", 'v', "OCTAL", "its permissions" },
		OPTION_USER, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, WORDS_MAX, false,
			 "mkdir [options] VM:PATH...", &c, &status))
		return status;
	return session_close(c, each(c, &w, 0, "mkdir"));
}

int cmd_rm(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "-r", "recursive=", 'y', NULL, "directories with what is in them" },
		OPTION_USER, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, WORDS_MAX, false, "rm [options] VM:PATH...",
			 &c, &status))
		return status;
	return session_close(c, each(c, &w, 0, "rm"));
}

int cmd_chmod(int argc, char **argv)
{
	static const struct option_rule rules[] = { OPTION_USER, OPTION_SOCKET, OPTIONS_END };
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 2, WORDS_MAX, false,
			 "chmod [options] OCTAL VM:PATH...", &c, &status))
		return status;
	status = words_add(&w, "mode=", w.rest[0]);
	return session_close(c, status ? status : each(c, &w, 1, "chmod"));
}

int cmd_mv(int argc, char **argv)
{
	static const struct option_rule rules[] = { OPTION_USER, OPTION_SOCKET, OPTIONS_END };
	static struct words w;
	struct place from, to;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 2, 2, false, "mv [options] VM:FROM VM:TO", &c,
			 &status))
		return status;
	status = place_read(w.rest[0], &from);
	if (status == 0)
		status = place_read(w.rest[1], &to);
	if (status == 0 && strcmp(from.vm, to.vm))
		status = casemate_fail("mv stays in one VM; cp goes from and to the host");
	if (status == 0 && files_call(c, &w, "mv", from.vm, from.path, to.path, NULL))
		status = files_fail(c, &from);
	return session_close(c, status);
}

/* ---- watch ---- */

static void event_print(const struct casemate *c, bool as_json)
{
	static const char *const names[] = { "name", "dir", "cookie" };
	struct json json = JSON_INIT(stdout);
	const char *what = casemate_item_word(c, 0, 0), *error;

	error = casemate_item_value(c, 0, "errno");

	if (as_json) {
		json_object(&json, NULL);
		json_string(&json, "event", what);
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			if (casemate_item_value(c, 0, names[i]))
				json_string(&json, names[i], value(c, 0, names[i]));
		}
		if (error)
			json_number_text(&json, "errno", error);
		json_end(&json);
	} else {
		print_clean(what);
		putchar(' ');
		print_clean(value(c, 0, "name"));
		if (error)
			printf(": %s", strerror((int)strtoul(error, NULL, 10)));
		putchar('\n');
	}
	fflush(stdout);
}

int cmd_watch(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "-r", "tree=", 'y', NULL, "all that is below a directory, too" },
		OPTION_USER, { "--timeout", "timeout=", 'v', "TIME", "end after TIME" },
		{ "--json", "", 'y', NULL, "an object a line" }, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	unsigned long long exec;
	struct casemate *c;
	struct place place;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 1, false, "watch [options] VM:PATH", &c,
			 &status))
		return status;
	status = place_read(w.rest[0], &place);
	if (status)
		return session_close(c, status);
	if (casemate_watch(c, place.vm, place.path, w.words, &exec))
		return session_close(c, files_fail(c, &place));
	while ((status = casemate_watch_next(c, exec, -1)) >= 0 && casemate_items(c) > 0)
		event_print(c, words_own(&w, "--json") != NULL);
	if (status < 0 || casemate_code(c)[0]) {
		status = !strcmp(casemate_code(c), "TIMEOUT") ? EXIT_TIMEOUT :
			 files_fail(c, &place);
		return session_close(c, status);
	}
	return session_close(c, 0);
}
