/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a program in its own confinement: the one place where a process is made.
 *
 * The program is named by a descriptor, so that it can be started from inside an empty root.
 * Of our descriptors it gets standard error and those it is given, from LAUNCH_FDS on. Its
 * session is its own (a terminal's ^C is not for it), its signals are as a new process has
 * them, and it ends when we do.
 *
 * Order matters: namespaces and root while there is the right to, then groups and user, which
 * ends all capabilities, then no_new_privs, then the program.
 */
#ifndef CASEMATE_POOL_LAUNCH_H
#define CASEMATE_POOL_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LAUNCH_FDS	3
#define LAUNCH_GROUPS	64

struct launch_jail {
	int cgroup;			/* directory, version 2; -1: ours */
	int network;			/* a network namespace; -1: ours */
	int root;			/* directory; -1: ours */
	bool has_user;			/* and no capabilities with it */
	uid_t uid;
	gid_t gid;
	gid_t groups[LAUNCH_GROUPS];	/* additional ones */
	size_t group_count;
};

#define LAUNCH_JAIL_NONE	{ .cgroup = -1, .network = -1, .root = -1 }

struct launch {
	int program;
	const char *const *argv, *const *env;	/* argv NULL: the jail is only tried */
	const int *fds;			/* become LAUNCH_FDS and those after it; -1: none there */
	unsigned int fd_count;
	bool quiet;			/* stdin and stdout are /dev/null */
	struct launch_jail jail;
};

/* Returns when the program runs: 0 with its PID, a child of ours; or -errno, with the step that
 * failed in *ret_step (static), and no process left. */
int launch(const struct launch *launch, pid_t *ret_pid, const char **ret_step);

#endif
