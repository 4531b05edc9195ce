/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs that ask casemated: exec, ls, info, kill, pause, resume, suspend, fork, restore,
 * template, pool, events, metrics, stop. Each turns its words into one request
 * (docs/PROTOCOL.md), which the daemon checks, and shows the answer. Options NAME VALUE of
 * theirs are the protocol's NAME=VALUE; tables say which there are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/files.h"
#include "tools/casemate/listing.h"
#include "tools/casemate/words.h"

#define OPTION_LABEL	{ "--label", "label=", 'v', "TEXT", "a label, shown by ls" }
#define OPTION_TTL	{ "--ttl", "ttl=", 'v', "TIME", "it ends after TIME (ms, s, m, h)" }
#define OPTION_IDLE	{ "--idle", "idle=", 'v', "TIME", "it ends when nothing ran for TIME" }
#define OPTION_IDLE_ACTION	{ "--idle-action", "idle-action=", 'v', "ACTION", \
				  "what then: end or suspend" }
#define OPTION_IMAGE	{ "--image", "image=", 'p', "FILE", "its root image, if it has moved" }

/* ---- exec ---- */

int cmd_exec(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--env", "env=", 'v', "NAME=VALUE", "a variable; may be given again" },
		{ "--workdir", "cwd=", 'v', "DIR", "start in DIR of the guest" },
		{ "--user", "user=", 'v', "UID[:GID]", "as this user of the guest" },
		{ "--timeout", "timeout=", 'v', "TIME", "SIGKILL after TIME, status 124" },
		{ "--limit", "limit=", 'v', "SIZE", "keep so much output, drop the rest" },
		{ "--tty", "", 'y', NULL, "give it a terminal; stdin must be one" },
		OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 1, false, "exec [options] NAME -- COMMAND "
			 "[ARGUMENT]...", &c, &status))
		return status;
	if (!w.command || !w.command[0])
		return session_close(c, casemate_fail("no command behind --; see casemate exec "
						    "--help"));
	return session_close(c, session_exec(c, w.rest[0], w.command, w.words,
					     words_own(&w, "--tty") != NULL));
}

/* ---- ls, info ---- */

int cmd_ls(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--label", "label=", 'v', "TEXT", "only VMs with this label" },
		{ "-r", "", 'y', NULL, "a directory with all that is below" },
		{ "--user", "", 'v', "UID[:GID]", "a directory, as this user of the guest" },
		OPTION_JSON, OPTION_SOCKET, OPTIONS_END,
	};
	static const struct listing_column columns[] = {
		{ "NAME", "vm", 20, 't' }, { "STATE", "state", 9, 't' }, { "MEM", "mem", -5, 'b' },
		{ "RSS", "rss", -5, 'b' }, { "OWNER", "owner", 8, 't' },
		{ "EXECS", "execs", 5, 't' }, { "AGE", "age", -5, 's' },
		{ "IDLE", "idle", -5, 's' }, { "LABEL", "label", 0, 't' }, LISTING_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 0, 1, false, "ls [options] [VM:DIR]", &c,
			 &status))
		return status;
	if (w.rest_count)
		return session_close(c, files_list(c, &w, w.rest[0]));
	status = words_ask(c, &w, "list", "usage=yes", NULL);
	if (status == 0 && words_own(&w, "--json"))
		listing_json(c);
	else if (status == 0)
		listing_table(c, columns);
	return session_close(c, status);
}

static void info_json(const struct casemate *c)
{
	struct json json = JSON_INIT(stdout);

	json.lines = true;
	json_object(&json, NULL);
	listing_json_answer(&json, c);
	json_array(&json, "commands");
	for (size_t i = 0; i < casemate_items(c); i++) {
		json_object(&json, NULL);
		listing_json_item(&json, c, i);
		json_end(&json);
	}
	json_end(&json);
	json_end(&json);
}

/* The answer's words, one a line. */
static void answer_show(const struct casemate *c)
{
	const char *word;

	for (size_t n = 0; (word = casemate_word(c, n)); n++) {
		size_t name = strcspn(word, "=");

		printf("%-13.*s ", (int)name, word);
		if (word[name])
			utf8_print_clean(stdout, word + name + 1, strlen(word + name + 1));
		putchar('\n');
	}
}

int cmd_info(int argc, char **argv)
{
	static const struct option_rule rules[] = { OPTION_JSON, OPTION_SOCKET, OPTIONS_END };
	static const struct listing_column columns[] = {
		{ "EXEC", "exec", 6, 't' }, { "STATE", "state", 9, 't' }, { "PID", "pid", 6, 't' },
		{ "AGE", "age", -5, 's' }, { "STDOUT", "stdout", -6, 'b' },
		{ "STDERR", "stderr", -6, 'b' }, { "ATTACHED", "attached", 8, 't' },
		{ "COMMAND", "command", 0, 't' }, LISTING_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 1, false, "info [options] NAME", &c, &status))
		return status;
	status = words_ask(c, &w, "info", w.rest[0], NULL);
	if (status == 0 && words_own(&w, "--json")) {
		info_json(c);
	} else if (status == 0) {
		answer_show(c);
		if (casemate_items(c) > 0)
			listing_table(c, columns);
	}
	return session_close(c, status);
}

/* ---- kill, pause, resume, suspend ---- */

/* The same for each of the names. */
static int for_each_name(int argc, char **argv, const char *verb, const char *usage)
{
	static const struct option_rule rules[] = { OPTION_SOCKET, OPTIONS_END };
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, WORDS_MAX, false, usage, &c, &status))
		return status;
	for (unsigned int i = 0; i < w.rest_count; i++) {
		int one = words_ask(c, &w, verb, w.rest[i], NULL);

		status = one ? one : status;
	}
	return session_close(c, status);
}

int cmd_kill(int argc, char **argv)
{
	return for_each_name(argc, argv, "kill", "kill [options] NAME...");
}

int cmd_pause(int argc, char **argv)
{
	return for_each_name(argc, argv, "pause", "pause [options] NAME...");
}

int cmd_resume(int argc, char **argv)
{
	return for_each_name(argc, argv, "resume", "resume [options] NAME...");
}

int cmd_suspend(int argc, char **argv)
{
	return for_each_name(argc, argv, "suspend", "suspend [options] NAME...");
}

/* ---- fork, restore ---- */

int cmd_fork(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		OPTION_LABEL, OPTION_TTL, OPTION_IDLE, OPTION_IDLE_ACTION, OPTION_SOCKET,
		OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 2, 2, false, "fork [options] N NAME", &c,
			 &status))
		return status;
	status = words_add(&w, "count=", w.rest[0]);
	if (status == 0)
		status = words_ask(c, &w, "fork", w.rest[1], NULL);
	for (size_t i = 0; status == 0 && i < casemate_items(c); i++)
		puts(casemate_item_value(c, i, "vm"));
	return session_close(c, status);
}

int cmd_restore(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--keep", "name=", 'v', "NAME", "its name; without, a number" }, OPTION_IMAGE,
		OPTION_LABEL, OPTION_TTL, OPTION_IDLE, OPTION_IDLE_ACTION,
		{ "--track", "track=", 'y', NULL, "increments may build on FILE" },
		OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	char path[PATH_MAX];
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 1, true, "restore [options] FILE (to run one "
			 "command in it: casemate run --from FILE)", &c, &status))
		return status;
	status = session_path(w.rest[0], path);
	if (status == 0)
		status = words_add(&w, "from=", path);
	if (status == 0)
		status = words_ask(c, &w, "create", NULL, NULL);
	if (status == 0)
		puts(casemate_value(c, "vm"));
	return session_close(c, status);
}

/* ---- template, pool ---- */

static int template_list(struct casemate *c, const struct words *w)
{
	static const struct listing_column columns[] = {
		{ "NAME", "template", 20, 't' }, { "TARGET", "target", 6, 't' },
		{ "MAX", "max", 6, 't' }, { "READY", "ready", 6, 't' },
		{ "LEASES", "leases", 8, 't' }, { "HITS", "hits", 8, 't' },
		{ "HELD", "held", 5, 't' }, { "TROUBLE", "trouble", 0, 't' }, LISTING_END,
	};
	int status = words_ask(c, w, "template", "list", NULL);

	if (status == 0 && words_own(w, "--json"))
		listing_json(c);
	else if (status == 0)
		listing_table(c, columns);
	return status;
}

int cmd_template(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		OPTION_IMAGE,
		{ "--target", "target=", 'v', "N", "ready VMs wanted" },
		{ "--max", "max=", 'v', "N", "ready and starting ones at most" },
		{ "--replace", "replace=", 'y', NULL, "take the place of one of this name" },
		{ "--no-hold", "hold=", 'n', NULL, "hold no VM to be forked: restore each" },
		OPTION_JSON, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	const char *what = argc > 1 ? argv[1] : "";
	bool add = !strcmp(what, "add"), remove = !strcmp(what, "remove");
	struct casemate *c;
	char path[PATH_MAX];
	int status;

	if (!words_begin(&w, rules, argc, argv, 1 + remove + 2 * add, 1 + remove + 2 * add, add,
			 "template list [--json] | template add [options] NAME FILE | "
			 "template remove NAME", &c, &status))
		return status;
	if (add) {
		status = session_path(w.rest[2], path);
		if (status == 0)
			status = words_add(&w, "file=", path);
		if (status == 0)
			status = words_ask(c, &w, "template", "add", w.rest[1]);
	} else if (remove) {
		status = words_ask(c, &w, "template", "remove", w.rest[1]);
	} else if (!strcmp(w.rest[0], "list")) {
		status = template_list(c, &w);
	} else {
		status = casemate_fail("template list, add or remove? See casemate template "
				       "--help");
	}
	return session_close(c, status);
}

static void answer_json(const struct casemate *c)
{
	struct json json = JSON_INIT(stdout);

	json_object(&json, NULL);
	listing_json_answer(&json, c);
	json_end(&json);
}

int cmd_pool(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--max", "max=", 'v', "N", "ready and starting ones at most" },
		OPTION_JSON, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 3, false, "pool status [--json] | pool set "
			 "[--max N] TEMPLATE TARGET | pool memory SIZE", &c, &status))
		return status;
	if (w.rest_count == 1 && !strcmp(w.rest[0], "status")) {
		status = words_ask(c, &w, "pool", "status", NULL);
		if (status == 0 && words_own(&w, "--json"))
			answer_json(c);
		else if (status == 0)
			answer_show(c);
	} else if (w.rest_count == 3 && !strcmp(w.rest[0], "set")) {
		status = words_add(&w, "target=", w.rest[2]);
		if (status == 0)
			status = words_ask(c, &w, "pool", "set", w.rest[1]);
	} else if (w.rest_count == 2 && !strcmp(w.rest[0], "memory")) {
		status = words_add(&w, "memory=", w.rest[1]);
		if (status == 0)
			status = words_ask(c, &w, "pool", "set", NULL);
	} else {
		status = casemate_fail("pool status, set or memory? See casemate pool --help");
	}
	return session_close(c, status);
}

/* ---- events, metrics, stop ---- */

static void event_show(const struct casemate *c, const struct casemate_event *e)
{
	static const char *const values[] = { "event", "time", NULL, "vm", "reason" };

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		const char *text = values[i] ? casemate_event_value(c, values[i]) : e->text;

		if (i > 0)
			putchar(' ');
		text = text ? text : "-";
		utf8_print_clean(stdout, text, strlen(text));
	}
	putchar('\n');
}

static void event_json(const struct casemate *c, const struct casemate_event *e)
{
	struct json json = JSON_INIT(stdout);

	json_object(&json, NULL);
	json_string(&json, "type", e->text);
	listing_json_event(&json, c);
	json_end(&json);
}

int cmd_events(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--since", "since=", 'v', "SEQ", "from this one of the last 512 on" },
		{ "--json", "", 'y', NULL, "each event as a line of JSON" },
		OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate_event e;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 0, 0, false, "events [options]", &c, &status))
		return status;
	status = words_ask(c, &w, "events", NULL, NULL);
	while (status == 0 && casemate_next(c, &e, -1) == 1) {
		if (e.kind != CASEMATE_EVENT)
			continue;
		if (words_own(&w, "--json"))
			event_json(c, &e);
		else
			event_show(c, &e);
		if (fflush(stdout))
			return session_close(c, EXIT_CASEMATE);
	}
	return session_close(c, status ? status : session_fail(c));
}

int cmd_metrics(int argc, char **argv)
{
	static const struct option_rule rules[] = { OPTION_SOCKET, OPTIONS_END };
	static struct words w;
	struct casemate *c;
	const void *text;
	size_t len;
	int status;

	if (!words_begin(&w, rules, argc, argv, 0, 0, false, "metrics [options]", &c, &status))
		return status;
	status = words_ask(c, &w, "metrics", NULL, NULL);
	text = casemate_chunk(c, &len);
	if (status == 0 && fwrite(text, 1, len, stdout) != len)
		status = EXIT_CASEMATE;
	return session_close(c, status);
}

int cmd_stop(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--drain", "drain=", 'v', "TIME", "let commands go on so long" },
		OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 0, 0, false, "stop [options]", &c, &status))
		return status;
	return session_close(c, words_ask(c, &w, "stop", NULL, NULL));
}
