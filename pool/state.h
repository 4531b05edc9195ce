/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state directory: a file PID for each VMM, holding the process's start time, from which
 * the next daemon knows what an earlier one left behind. VMMs end with their daemon (their
 * socket ends, and those it started itself have PDEATHSIG); this is for one that hangs.
 * A PID alone proves nothing: it is only signalled through a pidfd that was opened before its
 * start time was compared.
 */
#ifndef CASEMATE_POOL_STATE_H
#define CASEMATE_POOL_STATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Ends the processes that an earlier daemon left. Returns how many, or -errno. */
int state_clean(const char *dir, struct err *err);
/* dir NULL: nothing is recorded. Returns 0 or -errno. */
int state_record(const char *dir, pid_t pid, uint64_t start);
void state_forget(const char *dir, pid_t pid);

/* Text of a file of /proc/PID. Returns 0, or -errno: -ESRCH for an empty one. */
int state_text(pid_t pid, const char *name, char *text, size_t size);
/* What follows the program's name in /proc/PID/stat, which may hold anything: " %c" for the
 * state, and numbers. NULL: it is none. */
const char *state_fields(const char *stat);
/* Field 22 of /proc/PID/stat, and the parent. Returns 0 or -errno. */
int state_process(pid_t pid, uint64_t *ret_start, pid_t *ret_parent);
/* The real user of a process. Returns 0 or -errno. */
int state_user(pid_t pid, uid_t *ret_uid);
/* Calls `each` for all processes there are. */
void state_each(void (*each)(void *arg, pid_t pid), void *arg);

#endif
