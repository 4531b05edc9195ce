/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs that ask casemated: exec, ls, kill, snapshot, restore, fork, template, pool,
 * events, metrics, stop. Each turns its words into one request (docs/PROTOCOL.md), which the
 * daemon checks, and shows the answer. Options NAME VALUE of theirs are the protocol's
 * NAME=VALUE; tables say which there are.
 */
#include "tools/casemate/session.h"

#include <stdlib.h>
#include <string.h>

#include "tools/casemate/casemate.h"
#include "tools/casemate/words.h"

static int end(struct casemate *c, int status)
{
	casemate_close(c);
	return status;
}

/* ---- exec ---- */

int cmd_exec(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--env", "env=", 'v' }, { "--workdir", "cwd=", 'v' },
		{ "--user", "user=", 'v' }, { "--timeout", "timeout=", 'v' },
		{ "--limit", "limit=", 'v' }, { "--tty", "", 'y' }, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 1, false, "exec [--env NAME=VALUE]... "
		   "[--workdir DIR] [--user UID[:GID]] [--timeout TIME] [--limit SIZE] [--tty] "
		   "NAME -- COMMAND [ARGUMENT]...", &c, &status))
		return status;
	if (!w.command || !w.command[0])
		return end(c, casemate_fail("no command behind --; see casemate exec --help"));
	return end(c, session_exec(c, w.rest[0], w.command, w.words, words_own(&w, "--tty") != NULL));
}

/* ---- ls ---- */

static void column(const struct casemate *c, size_t item, const char *name, int width)
{
	const char *value = casemate_item_value(c, item, name);

	printf("%-*s ", width, value ? value : "-");
}

int cmd_ls(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--label", "label=", 'v' }, OPTION_JSON, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 0, 0, false, "ls [--label TEXT] [--json]", &c,
		   &status))
		return status;
	status = words_ask(c, &w, "list", NULL, NULL);
	if (status)
		return end(c, status);
	if (words_own(&w, "--json")) {
		session_json(c, stdout);
		return end(c, 0);
	}
	printf("%-20s %-9s %6s %-8s %-5s %-10s %s\n", "NAME", "STATE", "MIB", "OWNER", "EXECS",
	       "AGE", "LABEL");
	for (size_t i = 0; i < casemate_items(c); i++) {
		const char *label = casemate_item_value(c, i, "label");
		const char *mem = casemate_item_value(c, i, "mem");

		column(c, i, "vm", 20);
		column(c, i, "state", 9);
		printf("%6llu ", mem ? strtoull(mem, NULL, 10) >> 20 : 0);
		column(c, i, "owner", 8);
		column(c, i, "execs", 5);
		column(c, i, "age", 10);
		printf("%s\n", label ? label : "");
	}
	return end(c, 0);
}

/* ---- kill, fork, snapshot, restore ---- */

int cmd_kill(int argc, char **argv)
{
	static const struct option_rule rules[] = { OPTION_SOCKET, OPTIONS_END };
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, WORDS_MAX, false, "kill NAME...", &c, &status))
		return status;
	for (unsigned int i = 0; i < w.rest_count; i++) {
		int one = words_ask(c, &w, "kill", w.rest[i], NULL);

		status = one ? one : status;
	}
	return end(c, status);
}

int cmd_fork(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--label", "label=", 'v' }, { "--ttl", "ttl=", 'v' },
		{ "--idle", "idle=", 'v' }, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 2, 2, false, "fork [--label TEXT] [--ttl TIME] "
		   "[--idle TIME] N NAME", &c, &status))
		return status;
	status = words_add(&w, "count=", w.rest[0]);
	if (status == 0)
		status = words_ask(c, &w, "fork", w.rest[1], NULL);
	for (size_t i = 0; status == 0 && i < casemate_items(c); i++)
		puts(casemate_item_value(c, i, "vm"));
	return end(c, status);
}

int cmd_vm_snapshot(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "-o", "file=", 'p' }, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 1, false, "snapshot NAME -o FILE (also: snapshot "
		   "inspect|verify|compact, see casemate snapshot --help)", &c, &status))
		return status;
	return end(c, words_ask(c, &w, "snapshot", w.rest[0], NULL));
}

int cmd_restore(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--keep", "name=", 'v' }, { "--image", "image=", 'p' },
		{ "--label", "label=", 'v' }, { "--ttl", "ttl=", 'v' },
		{ "--idle", "idle=", 'v' }, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	char path[PATH_MAX];
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 1, true, "restore [--keep NAME] [--image FILE] "
		   "[--label TEXT] [--ttl TIME] [--idle TIME] FILE (to run one command in it: "
		   "casemate run --from FILE)", &c, &status))
		return status;
	status = session_path(w.rest[0], path);
	if (status == 0)
		status = words_add(&w, "from=", path);
	if (status == 0)
		status = words_ask(c, &w, "create", NULL, NULL);
	if (status == 0)
		puts(casemate_value(c, "vm"));
	return end(c, status);
}

/* ---- template, pool ---- */

static int template_list(struct casemate *c, const struct words *w)
{
	int status = words_ask(c, w, "template", "list", NULL);

	if (status)
		return status;
	if (words_own(w, "--json")) {
		session_json(c, stdout);
		return 0;
	}
	printf("%-20s %-6s %-6s %-6s %-8s %-8s %-5s %s\n", "NAME", "TARGET", "MAX", "READY",
	       "LEASES", "HITS", "HELD", "TROUBLE");
	for (size_t i = 0; i < casemate_items(c); i++) {
		const char *trouble = casemate_item_value(c, i, "trouble");

		column(c, i, "template", 20);
		column(c, i, "target", 6);
		column(c, i, "max", 6);
		column(c, i, "ready", 6);
		column(c, i, "leases", 8);
		column(c, i, "hits", 8);
		column(c, i, "held", 5);
		printf("%s\n", trouble ? trouble : "");
	}
	return 0;
}

int cmd_template(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--image", "image=", 'p' }, { "--target", "target=", 'v' },
		{ "--max", "max=", 'v' }, { "--replace", "replace=", 'y' },
		{ "--no-hold", "hold=", 'n' }, OPTION_JSON, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	const char *what = argc > 1 ? argv[1] : "";
	bool add = !strcmp(what, "add"), remove = !strcmp(what, "remove");
	struct casemate *c;
	char path[PATH_MAX];
	int status;

	if (!words_begin(&w, rules, argc, argv, 1 + remove + 2 * add, 1 + remove + 2 * add, add,
		   "template list [--json] | template add NAME FILE [--image FILE] [--target N] "
		   "[--max N] [--replace] [--no-hold] | template remove NAME", &c, &status))
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
	return end(c, status);
}

static void answer_show(const struct casemate *c, const char *const *names)
{
	for (; *names; names++)
		printf("%-10s %s\n", *names, casemate_value(c, *names) ?
		       casemate_value(c, *names) : "-");
}

int cmd_pool(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--max", "max=", 'v' }, OPTION_SOCKET, OPTIONS_END,
	};
	static const char *const shown[] = { "vms", "leased", "mem", "templates", "clients",
					     "draining", NULL };
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 3, false, "pool status | pool set [--max N] "
		   "TEMPLATE TARGET", &c, &status))
		return status;
	if (w.rest_count == 1 && !strcmp(w.rest[0], "status")) {
		status = words_ask(c, &w, "pool", "status", NULL);
		if (status == 0)
			answer_show(c, shown);
	} else if (w.rest_count == 3 && !strcmp(w.rest[0], "set")) {
		status = words_add(&w, "target=", w.rest[2]);
		if (status == 0)
			status = words_ask(c, &w, "pool", "set", w.rest[1]);
	} else {
		status = casemate_fail("pool status, or set? See casemate pool --help");
	}
	return end(c, status);
}

/* ---- events, metrics, stop ---- */

int cmd_events(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--since", "since=", 'v' }, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate_event e;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 0, 0, false, "events [--since SEQ]", &c, &status))
		return status;
	status = words_ask(c, &w, "events", NULL, NULL);
	while (status == 0 && casemate_next(c, &e, -1) == 1) {
		const char *vm = casemate_event_value(c, "vm");
		const char *reason = casemate_event_value(c, "reason");

		if (e.kind != CASEMATE_EVENT)
			continue;
		printf("%s %s %s %s %s\n", casemate_event_value(c, "event"),
		       casemate_event_value(c, "time"), e.text, vm ? vm : "-",
		       reason ? reason : "");
		fflush(stdout);
	}
	return end(c, status ? status : session_fail(c));
}

int cmd_metrics(int argc, char **argv)
{
	static const struct option_rule rules[] = { OPTION_SOCKET, OPTIONS_END };
	static struct words w;
	struct casemate *c;
	const void *text;
	size_t len;
	int status;

	if (!words_begin(&w, rules, argc, argv, 0, 0, false, "metrics", &c, &status))
		return status;
	status = words_ask(c, &w, "metrics", NULL, NULL);
	text = casemate_chunk(c, &len);
	if (status == 0 && fwrite(text, 1, len, stdout) != len)
		status = EXIT_CASEMATE;
	return end(c, status);
}

int cmd_stop(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--drain", "drain=", 'v' }, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 0, 0, false, "stop [--drain TIME]", &c, &status))
		return status;
	return end(c, words_ask(c, &w, "stop", NULL, NULL));
}
