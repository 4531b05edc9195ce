/* SPDX-License-Identifier: Apache-2.0 */
/* What `casemate top` says; see top.h. */
#include "tools/casemate/top.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/time.h"
#include "base/value.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/listing.h"
#include "tools/casemate/session.h"
#include "tools/casemate/words.h"

#define INTERVAL_NS	(2 * NS_PER_SEC)
#define INTERVAL_MIN_NS	(NS_PER_SEC / 10)
#define OWNERS		64u

struct top_row {
	char name[64], state[16], owner[24], label[128];
	uint64_t mem, rss, private, execs;
	double age, idle;	/* seconds; idle -1: something runs */
	double cpu, cpu_at;	/* seconds of CPU, at that age */
	double load;		/* CPUs, over the last interval */
};

/* ---- Asking ---- */

static void text_take(char *to, size_t size, const char *value)
{
	snprintf(to, size, "%s", value ? value : "");
	for (char *at = to; *at; at++) {
		if (*at == '\n' || *at == '\t')
			*at = '.';
	}
	frame_text_clean(to, strlen(to));
}

static uint64_t number(const char *value)
{
	return value ? strtoull(value, NULL, 10) : 0;
}

static double real(const char *value, double otherwise)
{
	return value ? strtod(value, NULL) : otherwise;
}

/* Users are few, and looking one up can be dear. */
static void owner_name(char *to, size_t size, uid_t uid)
{
	static struct {
		uid_t uid;
		char name[24];
	} known[OWNERS];
	static unsigned int count;
	const struct passwd *pw;

	for (unsigned int i = 0; i < count; i++) {
		if (known[i].uid == uid) {
			snprintf(to, size, "%s", known[i].name);
			return;
		}
	}
	pw = getpwuid(uid);
	if (pw)
		text_take(to, size, pw->pw_name);
	else
		snprintf(to, size, "%u", uid);
	if (count < OWNERS) {
		known[count].uid = uid;
		snprintf(known[count++].name, sizeof(known[0].name), "%s", to);
	}
}

static void row_read(struct top_row *row, const struct casemate *c, size_t item)
{
	const char *cpu = casemate_item_value(c, item, "cpu");

	*row = (struct top_row){
		.mem = number(casemate_item_value(c, item, "mem")),
		.rss = number(casemate_item_value(c, item, "rss")),
		.private = number(casemate_item_value(c, item, "private")),
		.execs = number(casemate_item_value(c, item, "execs")),
		.age = real(casemate_item_value(c, item, "age"), 0),
		.idle = real(casemate_item_value(c, item, "idle"), -1),
		.cpu = real(cpu, 0),
		.cpu_at = real(casemate_item_value(c, item, "cpu-at"), 0),
	};
	text_take(row->name, sizeof(row->name), casemate_item_value(c, item, "vm"));
	text_take(row->state, sizeof(row->state), casemate_item_value(c, item, "state"));
	text_take(row->label, sizeof(row->label), casemate_item_value(c, item, "label"));
	owner_name(row->owner, sizeof(row->owner),
		   (uid_t)number(casemate_item_value(c, item, "owner")));
}

/* before: of the last time, or NULL. A VM that is younger now is another of the same name. */
static void load_find(struct top_row *row, const struct top_row *before, size_t count)
{
	const struct top_row *old = NULL;

	for (size_t i = 0; i < count && !old; i++) {
		if (!strcmp(before[i].name, row->name) && before[i].age <= row->age)
			old = &before[i];
	}
	if (old && row->cpu_at <= old->cpu_at)
		row->load = old->load;
	else if (old && row->cpu >= old->cpu)
		row->load = (row->cpu - old->cpu) / (row->cpu_at - old->cpu_at);
	else if (row->cpu_at > 0)
		row->load = row->cpu / row->cpu_at;
}

static void head_write(struct top *top, double *ret_load)
{
	struct casemate *c = top->c;
	char *line = top->line[0], mem[LISTING_SHORT], rss[LISTING_SHORT];
	uint64_t resident = 0;

	*ret_load = 0;
	for (size_t i = 0; i < top->row_count; i++) {
		resident += top->rows[i].rss;
		*ret_load += top->rows[i].load;
	}
	listing_bytes(mem, number(casemate_value(c, "mem")));
	listing_bytes(rss, resident);
	snprintf(line, TOP_COLUMNS, "%llu VMs, %llu of them leased, %s of guest memory; these %zu:"
		 " %s resident, %.1f%% CPU%s",
		 (unsigned long long)number(casemate_value(c, "vms")),
		 (unsigned long long)number(casemate_value(c, "leased")), mem, top->row_count,
		 rss, *ret_load * 100, casemate_value(c, "draining") &&
		 !strcmp(casemate_value(c, "draining"), "yes") ? "; the daemon is stopping" : "");
}

static void templates_write(struct top *top)
{
	struct casemate *c = top->c;
	char *line = top->line[1];
	size_t n = (size_t)snprintf(line, TOP_COLUMNS, "templates:%s",
				    casemate_items(c) ? "" : " none");

	for (size_t i = 0; i < casemate_items(c) && n < TOP_COLUMNS - 1; i++) {
		uint64_t ready = number(casemate_item_value(c, i, "ready"));
		uint64_t target = number(casemate_item_value(c, i, "target"));
		char name[64];

		text_take(name, sizeof(name), casemate_item_value(c, i, "template"));
		n += (size_t)snprintf(line + n, TOP_COLUMNS - n, "%s %s %" PRIu64 "/%" PRIu64
				      " ready%s", i ? "," : "", name, ready, target,
				      casemate_item_value(c, i, "trouble") ? " (in trouble)" : "");
	}
}

int top_ask(struct top *top)
{
	struct top_row *rows, *before = top->rows;
	char (*lines)[TOP_COLUMNS];
	size_t count, were = top->row_count;
	double load;

	if (casemate_call(top->c, "list", "usage=yes", NULL))
		return EXIT_CASEMATE;
	count = casemate_items(top->c);
	rows = calloc(count + 1, sizeof(*rows));
	lines = calloc(count + TOP_HEAD, sizeof(*lines));
	if (!rows || !lines) {
		free(rows);
		free(lines);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++) {
		row_read(&rows[i], top->c, i);
		load_find(&rows[i], before, were);
	}
	free(before);
	free(top->line);
	top->rows = rows;
	top->row_count = count;
	top->line = lines;
	if (casemate_call(top->c, "pool", "status", NULL))
		return EXIT_CASEMATE;
	head_write(top, &load);
	if (casemate_call(top->c, "template", "list", NULL))
		return EXIT_CASEMATE;
	templates_write(top);
	top_lines(top);
	return 0;
}

int top_fail(const struct top *top, int r)
{
	return r < 0 ? casemate_fail("out of memory") : session_fail(top->c);
}

void top_done(struct top *top)
{
	free(top->rows);
	free(top->line);
	top->rows = NULL;
	top->line = NULL;
}

/* ---- Sorting ---- */

const struct top_key top_keys[TOP_KEYS] = {
	{ 'c', "cpu" }, { 'm', "memory" }, { 'n', "name" }, { 'a', "age" }, { 'i', "idle" },
	{ 'e', "execs" }, { 'o', "owner" }, { 's', "state" },
};

/* The largest first; texts from A on. */
static int descending(double a, double b)
{
	return a < b ? 1 : a > b ? -1 : 0;
}

static int rows_compare(const void *a, const void *b, void *arg)
{
	const struct top_row *x = a, *y = b;
	const struct top *top = arg;
	int r = 0;

	switch (top_keys[top->sort].key) {
	case 'c':
		r = descending(x->load, y->load);
		break;
	case 'm':
		r = descending((double)x->private, (double)y->private);
		break;
	case 'a':
		r = descending(x->age, y->age);
		break;
	case 'i':
		r = descending(x->idle, y->idle);
		break;
	case 'e':
		r = descending((double)x->execs, (double)y->execs);
		break;
	case 'o':
		r = strcmp(x->owner, y->owner);
		break;
	case 's':
		r = strcmp(x->state, y->state);
		break;
	default:
		break;
	}
	if (r == 0)
		r = strcmp(x->name, y->name);
	return top->reverse ? -r : r;
}

void top_lines(struct top *top)
{
	qsort_r(top->rows, top->row_count, sizeof(*top->rows), rows_compare, top);
	snprintf(top->line[TOP_HEAD - 1], TOP_COLUMNS, "%-20s %-9s %-8s %5s %5s %5s %5s %6s %5s "
		 "%5s %s", "NAME", "STATE", "OWNER", "AGE", "MEM", "RSS", "PRIV", "CPU%", "EXECS",
		 "IDLE", "LABEL");
	for (size_t i = 0; i < top->row_count; i++) {
		const struct top_row *row = &top->rows[i];
		char age[LISTING_SHORT], mem[LISTING_SHORT], rss[LISTING_SHORT],
			private[LISTING_SHORT], idle[LISTING_SHORT] = "-";

		if (row->idle >= 0)
			listing_seconds(idle, row->idle);
		snprintf(top->line[TOP_HEAD + i], TOP_COLUMNS,
			 "%-20s %-9s %-8s %5s %5s %5s %5s %6.1f %5llu %5s %s", row->name,
			 row->state, row->owner, listing_seconds(age, row->age),
			 listing_bytes(mem, row->mem), listing_bytes(rss, row->rss),
			 listing_bytes(private, row->private), row->load * 100,
			 (unsigned long long)row->execs, idle, row->label);
	}
}

/* ---- The verb ---- */

static int once(struct top *top)
{
	int r = top_ask(top);

	if (r)
		return top_fail(top, r);
	for (size_t i = 0; i < TOP_HEAD + top->row_count; i++)
		puts(top->line[i]);
	return fflush(stdout) ? casemate_fail("cannot write to standard output: %s",
					      strerror(errno)) : 0;
}

static int options_take(struct top *top, const struct words *w)
{
	const char *interval = words_own(w, "--interval"), *sort = words_own(w, "--sort");
	unsigned int key = 0;

	if (interval && (value_time(interval, VALUE_TIME_MAX, &top->interval_ns) < 0 ||
			 top->interval_ns < INTERVAL_MIN_NS))
		return casemate_fail("--interval wants a time such as 2s, at least 100ms, not %s",
				     interval);
	while (sort && key < TOP_KEYS && strcmp(sort, top_keys[key].name))
		key++;
	if (key == TOP_KEYS)
		return casemate_fail("--sort wants cpu, memory, name, age, idle, execs, owner or "
				     "state, not %s", sort);
	top->sort = key;
	return 0;
}

int cmd_top(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--once", "", 'y', NULL, "print one table; so it is without a terminal" },
		{ "--sort", "", 'v', "KEY", "cpu, memory, name, age, idle, execs, owner, state" },
		{ "--interval", "", 'v', "TIME", "between two looks; default 2s" },
		OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct top top = { .interval_ns = INTERVAL_NS };
	int status;

	if (!words_read(&w, rules, argc, argv, 0, 0, "top [options]", &status))
		return status;
	status = options_take(&top, &w);
	if (status == 0)
		status = session_open(&top.c, words_own(&w, "--socket"), false);
	if (status)
		return status;
	status = -1;
	if (!words_own(&w, "--once") && isatty(0) && isatty(1))
		status = top_screen(&top);
	if (status < 0)
		status = once(&top);
	top_done(&top);
	casemate_close(top.c);
	return status;
}
