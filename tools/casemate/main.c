/* SPDX-License-Identifier: Apache-2.0 */
/* casemate: finds the verb and hands over to it. */
#include "tools/casemate/casemate.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tools/casemate/progress.h"

#define WORD_MAX	32	/* of a verb that is to be guessed */

/* Those about files need no daemon; any other word, with -o, names a VM. */
static int snapshot(int argc, char **argv)
{
	static const char *const of_files[] = { "inspect", "verify", "compact" };
	bool of_vm = false;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		cmd_vm_snapshot(argc, argv);
		return cmd_snapshot(argc, argv);
	}
	for (int i = 2; i < argc; i++)
		of_vm |= !strncmp(argv[i], "-o", 2);
	for (size_t i = 0; i < sizeof(of_files) / sizeof(of_files[0]) && of_vm; i++)
		of_vm = strcmp(argv[1], of_files[i]) != 0;
	return of_vm ? cmd_vm_snapshot(argc, argv) : cmd_snapshot(argc, argv);
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} verbs[] = {
	{ "run", cmd_run, "run a command in a VM of its own" },
	{ "image", cmd_image, "build a root image" },
	{ "exec", cmd_exec, "run a command in a VM that was kept" },
	{ "connect", cmd_connect, "a connection into a VM, as stdin and stdout" },
	{ "forward", cmd_forward, "let a socket of the host lead into a VM" },
	{ "forwards", cmd_forwards, "list the forwards" },
	{ "unforward", cmd_unforward, "end a forward" },
	{ "ls", cmd_ls, "list the VMs that were kept, or a directory in one" },
	{ "info", cmd_info, "all about one of them" },
	{ "top", cmd_top, "watch them" },
	{ "cp", cmd_cp, "copy files between the host and a VM" },
	{ "cat", cmd_cat, "what is in files of a VM" },
	{ "stat", cmd_stat, "about a file of a VM" },
	{ "mkdir", cmd_mkdir, "make directories in a VM" },
	{ "mv", cmd_mv, "rename a file in a VM" },
	{ "rm", cmd_rm, "remove files in a VM" },
	{ "chmod", cmd_chmod, "change permissions of files in a VM" },
	{ "watch", cmd_watch, "see files in a VM change" },
	{ "kill", cmd_kill, "end VMs" },
	{ "pause", cmd_pause, "make VMs stand still" },
	{ "resume", cmd_resume, "let VMs go on that are paused or suspended" },
	{ "suspend", cmd_suspend, "put VMs on the disk; their next command brings them back" },
	{ "fork", cmd_fork, "make copies of a running VM" },
	{ "snapshot", snapshot, "save a running VM; look at, check and fold snapshot files" },
	{ "restore", cmd_restore, "make a VM of a snapshot" },
	{ "template", cmd_template, "snapshots to make VMs from, by name" },
	{ "pool", cmd_pool, "how many ready VMs are kept of a template" },
	{ "events", cmd_events, "what happens in the daemon" },
	{ "metrics", cmd_metrics, "the daemon's figures, for Prometheus" },
	{ "stop", cmd_stop, "end the daemon and its VMs" },
	{ "doctor", cmd_doctor, "look for what keeps Casemate from working" },
};

const char *casemate_verb = "VERB";

int casemate_fail(const char *format, ...)
{
	char line[1024], *text = NULL;
	size_t size;
	va_list args;
	FILE *to;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	progress_show(NULL);
	/* Names in it may be anybody's. One write: lines of several processes do not mix. */
	to = open_memstream(&text, &size);
	if (to) {
		fputs("casemate: ", to);
		utf8_print_clean(to, line, strlen(line));
		fputc('\n', to);
		fclose(to);
		fputs(text, stderr);
	}
	free(text);
	return EXIT_CASEMATE;
}

static void help(FILE *to)
{
	fprintf(to, "usage: casemate VERB [options]; casemate help VERB says more\n");
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		fprintf(to, "  %-9s %s\n", verbs[i].name, verbs[i].help);
}

/* How many letters must be put in, left out, changed or swapped with their neighbour. */
static int distance(const char *from, const char *to)
{
	int d[WORD_MAX + 1][WORD_MAX + 1];
	int n = (int)strnlen(from, WORD_MAX), m = (int)strnlen(to, WORD_MAX);

	for (int i = 0; i <= n; i++) {
		for (int j = 0; j <= m; j++) {
			int best = i ? d[i - 1][j] + 1 : j;

			if (i && j) {
				int same = from[i - 1] == to[j - 1];

				best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
				if (d[i - 1][j - 1] + !same < best)
					best = d[i - 1][j - 1] + !same;
			} else if (i) {
				best = i;
			}
			if (i > 1 && j > 1 && from[i - 1] == to[j - 2] &&
			    from[i - 2] == to[j - 1] && d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[n][m];
}

/* The verb that was meant, as far as one can tell; or NULL. */
static const char *verb_guess(const char *word)
{
	static const struct {
		const char *word, *verb;
	} others[] = { { "ps", "ls" }, { "list", "ls" }, { "start", "run" }, { "create", "run" },
		       { "inspect", "info" } };
	const char *best = NULL;
	int least = (int)strlen(word) > 3 ? 3 : 2;	/* that many are too many */

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (!strcmp(word, others[i].word))
			return others[i].verb;
	}
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		int d = distance(word, verbs[i].name);

		if (d < least) {
			least = d;
			best = verbs[i].name;
		}
	}
	return best;
}

static int verb_run(int argc, char **argv)
{
	const char *guess;

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (!strcmp(argv[0], verbs[i].name)) {
			casemate_verb = verbs[i].name;
			return verbs[i].run(argc, argv);
		}
	}
	guess = verb_guess(argv[0]);
	if (guess)
		return casemate_fail("there is no verb %s: did you mean %s? See casemate --help",
				     argv[0], guess);
	return casemate_fail("there is no verb %s; see casemate --help", argv[0]);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		help(stderr);
		return EXIT_CASEMATE;
	}
	if (argc == 3 && !strcmp(argv[1], "help")) {
		char option[] = "--help", *words[] = { argv[2], option, NULL };

		return verb_run(2, words);
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		help(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version")) {
		puts("casemate " CASEMATE_VERSION);
		return 0;
	}
	return verb_run(argc - 1, argv + 1);
}
