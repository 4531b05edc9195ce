/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs that ask casemated: exec, connect, forward, ls, kill, snapshot, restore, fork, template, pool,
 * events, metrics, stop. Each turns its words into one request (docs/PROTOCOL.md), which the
 * daemon checks, and shows the answer. Options NAME VALUE of theirs are the protocol's
 * NAME=VALUE; tables say which there are.
 */
#include "tools/casemate/session.h"

#include <stdlib.h>
#include <string.h>

#include "tools/casemate/casemate.h"

#define WORDS_MAX	1100u

struct option_rule {
	const char *option;	/* --NAME */
	const char *word;	/* the protocol's, with its '='; "" for ours */
	char kind;		/* 'v' has a value, 'p' that is a path, 'y' none: yes, 'n': no */
};

struct words {
	const char *socket;
	bool json, tty, detach;
	const char *output, *keep;
	const char *words[WORDS_MAX];	/* of the request, made here */
	unsigned int count;
	char *rest[WORDS_MAX];		/* those that are no options */
	unsigned int rest_count;
	char **command;			/* behind --, or NULL */
};

static const struct option_rule *rule_find(const struct option_rule *rules, const char *word)
{
	for (; rules->option; rules++) {
		if (!strcmp(rules->option, word))
			return rules;
	}
	return NULL;
}

static int word_add(struct words *w, const char *first, const char *second)
{
	size_t n = strlen(first) + strlen(second) + 1;
	char *text = malloc(n);

	if (!text || w->count == WORDS_MAX - 1)
		return casemate_fail("too many words");
	snprintf(text, n, "%s%s", first, second);
	w->words[w->count++] = text;
	w->words[w->count] = NULL;
	return 0;
}

/* Those without a protocol word are kept here. */
static void own_option(struct words *w, const char *option, const char *value)
{
	if (!strcmp(option, "--socket"))
		w->socket = value;
	else if (!strcmp(option, "--json"))
		w->json = true;
	else if (!strcmp(option, "--tty"))
		w->tty = true;
	else if (!strcmp(option, "--detach"))
		w->detach = true;
	else if (!strcmp(option, "--keep"))
		w->keep = value;
	else
		w->output = value;
}

static int option_take(struct words *w, const struct option_rule *rule, const char *value)
{
	char path[PATH_MAX];

	if (!rule->word[0]) {
		own_option(w, rule->option, value);
		return 0;
	}
	if (rule->kind == 'p' && session_path(value, path))
		return EXIT_CASEMATE;
	return word_add(w, rule->word, rule->kind == 'p' ? path : rule->kind == 'y' ? "yes" :
			rule->kind == 'n' ? "no" : value);
}

/* usage: printed for --help, when *ret_help is set. */
static int words_read(struct words *w, const struct option_rule *rules, int argc, char **argv,
		      const char *usage, bool *ret_help)
{
	*ret_help = false;
	for (int i = 1; i < argc; i++) {
		const struct option_rule *rule = rule_find(rules, argv[i]);
		bool wants = rule && (rule->kind == 'v' || rule->kind == 'p');

		if (!strcmp(argv[i], "--")) {
			w->command = argv + i + 1;
			return 0;
		}
		if (!strcmp(argv[i], "--help")) {
			printf("usage: casemate %s\n", usage);
			*ret_help = true;
			return 0;
		}
		if (!rule && argv[i][0] == '-')
			return casemate_fail("unknown option %s; see casemate %s --help",
					     argv[i], argv[0]);
		if (wants && i + 1 == argc)
			return casemate_fail("%s wants a value", argv[i]);
		if (rule && option_take(w, rule, wants ? argv[++i] : ""))
			return EXIT_CASEMATE;
		if (!rule && w->rest_count < WORDS_MAX)
			w->rest[w->rest_count++] = argv[i];
	}
	return 0;
}

/* Reads the words and connects. Returns 0 with *ret set, or the exit status in *ret_status. */
static bool begin(struct words *w, const struct option_rule *rules, int argc, char **argv,
		  unsigned int least, unsigned int most, bool start, const char *usage,
		  struct casemate **ret, int *ret_status)
{
	bool help;

	*ret_status = words_read(w, rules, argc, argv, usage, &help);
	if (*ret_status || help)
		return false;
	if (w->rest_count < least || w->rest_count > most) {
		*ret_status = casemate_fail("usage: casemate %s", usage);
		return false;
	}
	*ret_status = session_open(ret, w->socket, start);
	return *ret_status == 0;
}

/* The request's words: verb, name, then the options read. */
static int ask(struct casemate *c, const struct words *w, const char *verb, const char *second,
	       const char *third)
{
	const char *words[WORDS_MAX + 3] = { verb };
	size_t n = 1;

	if (second)
		words[n++] = second;
	if (third)
		words[n++] = third;
	for (unsigned int i = 0; i < w->count; i++)
		words[n++] = w->words[i];
	return casemate_call_words(c, words, n) ? session_fail(c) : 0;
}

static int end(struct casemate *c, int status)
{
	casemate_close(c);
	return status;
}

#define SOCKET	{ "--socket", "", 'v' }
#define END	{ NULL, NULL, 0 }

/* ---- exec ---- */

int cmd_exec(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--env", "env=", 'v' }, { "--workdir", "cwd=", 'v' },
		{ "--user", "user=", 'v' }, { "--timeout", "timeout=", 'v' },
		{ "--limit", "limit=", 'v' }, { "--tty", "", 'y' }, SOCKET, END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 1, 1, false, "exec [--env NAME=VALUE]... "
		   "[--workdir DIR] [--user UID[:GID]] [--timeout TIME] [--limit SIZE] [--tty] "
		   "NAME -- COMMAND [ARGUMENT]...", &c, &status))
		return status;
	if (!w.command || !w.command[0])
		return end(c, casemate_fail("no command behind --; see casemate exec --help"));
	return end(c, session_exec(c, w.rest[0], w.command, w.words, w.tty));
}

static void column(const struct casemate *c, size_t item, const char *name, int width)
{
	const char *value = casemate_item_value(c, item, name);

	printf("%-*s ", width, value ? value : "-");
}

/* ---- connect, forward ---- */

int cmd_connect(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--user", "user=", 'v' }, { "--timeout", "timeout=", 'v' }, SOCKET, END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 2, 2, false, "connect [--user UID[:GID]] "
		   "[--timeout TIME] NAME unix:PATH|tcp:PORT", &c, &status))
		return status;
	return end(c, session_connect(c, w.rest[0], w.rest[1], w.words));
}

/* A path of ours from here on, not from where the daemon is. */
static int listen_absolute(const char *listen, char *ret, size_t size)
{
	char path[PATH_MAX];

	if (strncmp(listen, "unix:", 5)) {
		snprintf(ret, size, "%s", listen);
		return 0;
	}
	if (session_path(listen + 5, path))
		return EXIT_CASEMATE;
	if (snprintf(ret, size, "unix:%s", path) >= (int)size)
		return casemate_fail("%s is too long a path", path);
	return 0;
}

int cmd_forward(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--user", "user=", 'v' }, { "--detach", "", 'y' }, SOCKET, END,
	};
	static struct words w;
	unsigned long long id;
	struct casemate *c;
	char listen[PATH_MAX];
	int status;

	if (!begin(&w, rules, argc, argv, 3, 3, false, "forward [--user UID[:GID]] [--detach] "
		   "NAME unix:PATH|tcp:[ADDRESS:]PORT unix:PATH|tcp:PORT (on the host, and in "
		   "the VM)", &c, &status))
		return status;
	status = listen_absolute(w.rest[1], listen, sizeof(listen));
	if (status == 0 && !w.detach)
		status = word_add(&w, "bound=", "yes");
	if (status == 0 &&
	    casemate_forward(c, w.rest[0], listen, w.rest[2], w.words, &id))
		status = session_fail(c);
	if (status)
		return end(c, status);
	if (!w.detach)
		return end(c, session_forward(c));
	printf("%llu %s\n", id, casemate_value(c, "listen"));
	return end(c, 0);
}

int cmd_forwards(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--json", "", 'y' }, SOCKET, END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 0, 1, false, "forwards [--json] [NAME]", &c, &status))
		return status;
	status = ask(c, &w, "forwards", w.rest_count ? w.rest[0] : NULL, NULL);
	if (status)
		return end(c, status);
	if (w.json) {
		session_json(c, stdout);
		return end(c, 0);
	}
	printf("%-7s %-20s %-28s %-28s %-5s %-8s %-6s %s\n", "FORWARD", "VM", "LISTEN",
	       "TARGET", "OPEN", "ACCEPTED", "FAILED", "TROUBLE");
	for (size_t i = 0; i < casemate_items(c); i++) {
		const char *trouble = casemate_item_value(c, i, "trouble");

		column(c, i, "forward", 7);
		column(c, i, "vm", 20);
		column(c, i, "listen", 28);
		column(c, i, "target", 28);
		column(c, i, "connections", 5);
		column(c, i, "accepted", 8);
		column(c, i, "failed", 6);
		printf("%s\n", trouble ? trouble : "");
	}
	return end(c, 0);
}

int cmd_unforward(int argc, char **argv)
{
	static const struct option_rule rules[] = { SOCKET, END };
	static struct words w;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 1, 1, false, "unforward FORWARD", &c, &status))
		return status;
	return end(c, ask(c, &w, "unforward", w.rest[0], NULL));
}

/* ---- ls ---- */

int cmd_ls(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--label", "label=", 'v' }, { "--json", "", 'y' }, SOCKET, END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 0, 0, false, "ls [--label TEXT] [--json]", &c,
		   &status))
		return status;
	status = ask(c, &w, "list", NULL, NULL);
	if (status)
		return end(c, status);
	if (w.json) {
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
	static const struct option_rule rules[] = { SOCKET, END };
	static struct words w;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 1, WORDS_MAX, false, "kill NAME...", &c, &status))
		return status;
	for (unsigned int i = 0; i < w.rest_count; i++) {
		int one = ask(c, &w, "kill", w.rest[i], NULL);

		status = one ? one : status;
	}
	return end(c, status);
}

int cmd_fork(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--label", "label=", 'v' }, { "--ttl", "ttl=", 'v' },
		{ "--idle", "idle=", 'v' }, SOCKET, END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 2, 2, false, "fork [--label TEXT] [--ttl TIME] "
		   "[--idle TIME] N NAME", &c, &status))
		return status;
	status = word_add(&w, "count=", w.rest[0]);
	if (status == 0)
		status = ask(c, &w, "fork", w.rest[1], NULL);
	for (size_t i = 0; status == 0 && i < casemate_items(c); i++)
		puts(casemate_item_value(c, i, "vm"));
	return end(c, status);
}

int cmd_vm_snapshot(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "-o", "file=", 'p' }, SOCKET, END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 1, 1, false, "snapshot NAME -o FILE (also: snapshot "
		   "inspect|verify|compact, see casemate snapshot --help)", &c, &status))
		return status;
	return end(c, ask(c, &w, "snapshot", w.rest[0], NULL));
}

int cmd_restore(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--keep", "name=", 'v' }, { "--image", "image=", 'p' },
		{ "--label", "label=", 'v' }, { "--ttl", "ttl=", 'v' },
		{ "--idle", "idle=", 'v' }, SOCKET, END,
	};
	static struct words w;
	struct casemate *c;
	char path[PATH_MAX];
	int status;

	if (!begin(&w, rules, argc, argv, 1, 1, true, "restore [--keep NAME] [--image FILE] "
		   "[--label TEXT] [--ttl TIME] [--idle TIME] FILE (to run one command in it: "
		   "casemate run --from FILE)", &c, &status))
		return status;
	status = session_path(w.rest[0], path);
	if (status == 0)
		status = word_add(&w, "from=", path);
	if (status == 0)
		status = ask(c, &w, "create", NULL, NULL);
	if (status == 0)
		puts(casemate_value(c, "vm"));
	return end(c, status);
}

/* ---- template, pool ---- */

static int template_list(struct casemate *c, const struct words *w)
{
	int status = ask(c, w, "template", "list", NULL);

	if (status)
		return status;
	if (w->json) {
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
		{ "--no-hold", "hold=", 'n' }, { "--json", "", 'y' }, SOCKET, END,
	};
	static struct words w;
	const char *what = argc > 1 ? argv[1] : "";
	bool add = !strcmp(what, "add"), remove = !strcmp(what, "remove");
	struct casemate *c;
	char path[PATH_MAX];
	int status;

	if (!begin(&w, rules, argc, argv, 1 + remove + 2 * add, 1 + remove + 2 * add, add,
		   "template list [--json] | template add NAME FILE [--image FILE] [--target N] "
		   "[--max N] [--replace] [--no-hold] | template remove NAME", &c, &status))
		return status;
	if (add) {
		status = session_path(w.rest[2], path);
		if (status == 0)
			status = word_add(&w, "file=", path);
		if (status == 0)
			status = ask(c, &w, "template", "add", w.rest[1]);
	} else if (remove) {
		status = ask(c, &w, "template", "remove", w.rest[1]);
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
		{ "--max", "max=", 'v' }, SOCKET, END,
	};
	static const char *const shown[] = { "vms", "leased", "mem", "templates", "clients",
					     "draining", NULL };
	static struct words w;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 1, 3, false, "pool status | pool set [--max N] "
		   "TEMPLATE TARGET", &c, &status))
		return status;
	if (w.rest_count == 1 && !strcmp(w.rest[0], "status")) {
		status = ask(c, &w, "pool", "status", NULL);
		if (status == 0)
			answer_show(c, shown);
	} else if (w.rest_count == 3 && !strcmp(w.rest[0], "set")) {
		status = word_add(&w, "target=", w.rest[2]);
		if (status == 0)
			status = ask(c, &w, "pool", "set", w.rest[1]);
	} else {
		status = casemate_fail("pool status, or set? See casemate pool --help");
	}
	return end(c, status);
}

/* ---- events, metrics, stop ---- */

int cmd_events(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--since", "since=", 'v' }, SOCKET, END,
	};
	static struct words w;
	struct casemate_event e;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 0, 0, false, "events [--since SEQ]", &c, &status))
		return status;
	status = ask(c, &w, "events", NULL, NULL);
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
	static const struct option_rule rules[] = { SOCKET, END };
	static struct words w;
	struct casemate *c;
	const void *text;
	size_t len;
	int status;

	if (!begin(&w, rules, argc, argv, 0, 0, false, "metrics", &c, &status))
		return status;
	status = ask(c, &w, "metrics", NULL, NULL);
	text = casemate_chunk(c, &len);
	if (status == 0 && fwrite(text, 1, len, stdout) != len)
		status = EXIT_CASEMATE;
	return end(c, status);
}

int cmd_stop(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--drain", "drain=", 'v' }, SOCKET, END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!begin(&w, rules, argc, argv, 0, 0, false, "stop [--drain TIME]", &c, &status))
		return status;
	return end(c, ask(c, &w, "stop", NULL, NULL));
}
