/* SPDX-License-Identifier: Apache-2.0 */
/* casemate: finds the verb and hands over to it. */
#include "tools/casemate/casemate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} verbs[] = {
	{ "run", cmd_run, "run a command in a VM of its own" },
	{ "image", cmd_image, "build a root image" },
	{ "snapshot", cmd_snapshot, "look at, check and fold snapshot files" },
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
		fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].help);
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
