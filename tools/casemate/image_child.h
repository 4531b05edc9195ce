/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes of image building. See image_child.c. */
#ifndef CASEMATE_TOOLS_IMAGE_CHILD_H
#define CASEMATE_TOOLS_IMAGE_CHILD_H

#include <stdbool.h>
#include <stddef.h>

struct child_result {
	int status;     /* as wait(2) gives it */
	char last[512]; /* last line of its stderr that says something */
};

struct child_options {
	const char *input;  /* its stdin, NULL: empty */
	const char *env[4]; /* NAME=value to add, ended by NULL */
	bool cleanup;       /* must end even when we are told to stop */
	bool output_lines;  /* pass lines of its stdout to `line` */
	/* Called for each line of stdout; false stops the child. */
	bool (*line)(void *arg, const char *line);
	/* Called about five times a second with the last line of stderr, on terminals. */
	void (*progress)(void *arg, const char *last);
	void *arg;
};

/* Runs argv[0] from PATH to its end. 0: it ended, see *ret. -ENOENT: no such program.
 * -EINTR: a signal told us to stop, and the child is gone. Other -errno. */
int child_run(const char *const *argv, const struct child_options *options,
	      struct child_result *ret);
bool child_succeeded(const struct child_result *r);

/* From here on SIGINT, SIGTERM and SIGHUP stop child_run() instead of the process. */
void child_signals_catch(void);
/* The signal that came, 0 for none. */
int child_signal_caught(void);

#endif
