/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that speak to casemated: the connection to it, and commands over it. */
#ifndef CASEMATE_TOOLS_SESSION_H
#define CASEMATE_TOOLS_SESSION_H

#include <limits.h>
#include <stdbool.h>

#include "api/casemate.h"

/*
 * Connects to the daemon at `socket` (NULL: the default). start: where none answers, one is
 * started for the session (casemated --session), which ends when it has nothing left to do.
 * Returns 0, or EXIT_CASEMATE after saying why on stderr.
 */
int session_open(struct casemate **ret, const char *socket, bool start);

/* Closes it. Returns `status`, what the verb is to return. */
int session_close(struct casemate *c, int status);

/* Says on stderr what the daemon said, and what to do. Returns EXIT_CASEMATE. */
int session_fail(const struct casemate *c);

/* The absolute path of a file that need not exist, but whose directory does. Returns 0, or
 * EXIT_CASEMATE after saying why. */
int session_path(const char *path, char *ret);

/* A command in a VM with our streams and signals, like `casemate run`. options: of the
 * protocol's exec, up to a NULL; tty: stdin's terminal is the command's. Returns its exit
 * status. */
int session_exec(struct casemate *c, const char *vm, char **argv, const char *const *options,
		 bool tty);

/* A connection to what listens in a VM, as our stdin and stdout. */
int session_connect(struct casemate *c, const char *vm, const char *target,
		    const char *const *options);

/* The answer to a bound forward has come: says where it listens, and on stderr what fails, until
 * a signal or its end. Returns the exit status. */
int session_forward(struct casemate *c);

#endif
