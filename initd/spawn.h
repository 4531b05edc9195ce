/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the program of an EXEC frame. See spawn.c. */
#ifndef CASEMATE_INITD_SPAWN_H
#define CASEMATE_INITD_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct frame_exec;

/* Our ends; -1 where there is none. All non-blocking and close-on-exec but `slave`. */
struct spawn {
	pid_t pid; /* leader of its own session and process group */
	int in;    /* write end of stdin, or a second descriptor of the pty's master */
	int out;   /* read end of stdout, or the pty's master */
	int err;
	int slave; /* of the pty: held so that the master does not end early */
};

/* Returns 0 once the program runs (execve succeeded), or its errno with *ret_step an enum
 * cm_failed_step and nothing left behind. `null_fd` is /dev/null open for reading. */
int spawn_start(const struct frame_exec *exec, uint16_t flags, int null_fd,
		struct spawn *ret, uint32_t *ret_step);

#endif
