/* SPDX-License-Identifier: Apache-2.0 */
/* casemate: finds the verb and hands over to it. */
#include "tools/casemate/casemate.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Those about files need no daemon; any other word, with -o, names a VM. */
static int snapshot(int argc, char **argv)
{
	static const char *const of_files[] = { "inspect", "verify", "compact", "--help", "-h" };
	bool of_vm = false;

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
	{ "ls", cmd_ls, "list the VMs that were kept" },
	{ "kill", cmd_kill, "end VMs" },
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

int casemate_fail(const char *format, ...)
{
	char line[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	/* One write: lines of several processes do not mix. */
	fprintf(stderr, "casemate: %s\n", line);
	return EXIT_CASEMATE;
}

static void help(FILE *to)
{
	fprintf(to, "usage: casemate VERB [options]; casemate VERB --help says more\n");
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		fprintf(to, "  %-9s %s\n", verbs[i].name, verbs[i].help);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		help(stderr);
		return EXIT_CASEMATE;
	}
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (!strcmp(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
		help(stdout);
		return 0;
	}
	return casemate_fail("there is no verb %s; see casemate --help", argv[1]);
}
