/* SPDX-License-Identifier: Apache-2.0 */
/*
 * casemated is two processes of one program: the parent (keeper.c), which is started, and the
 * engine (engine.c), which the parent starts with the same options behind ENGINE_WORD. The
 * engine finds the boundary (pool/boundary.h), the socket that clients connect to and a directory
 * of its own at fixed numbers.
 */
#ifndef CASEMATE_TOOLS_CASEMATED_CASEMATED_H
#define CASEMATE_TOOLS_CASEMATED_CASEMATED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "pool/launch.h"
#include "pool/pool.h"

#define ENGINE_WORD		"--engine"
#define ENGINE_BOUNDARY_FD	LAUNCH_FDS
#define ENGINE_LISTENER_FD	(LAUNCH_FDS + 1)
#define ENGINE_STORE_FD		(LAUNCH_FDS + 2)

struct options {
	const char *socket, *state, *store, *group, *user;
	const char *vmm, *kernel, *initd, *image;
	struct pool_limits limits;
	uint32_t uid_base, uid_count;	/* of VMs */
	bool session, verbose, help, forward_any;
	uint64_t session_idle_ns;
	int ready_fd;
};

/* Return what the process ends with. */
int keeper_main(const struct options *options, int argc, char **argv);
int engine_main(const struct options *options);
/* Instead of keeper_main(), where the options are wrong: tells who waits at systemd's socket. */
void keeper_refuse(void);

/* Of --group; *ret_has is false without it. Returns 0 or -errno with err set. */
int group_find(const struct options *options, bool *ret_has, gid_t *ret_group,
	       struct err *err);
/* A session's daemon does not keep the pipes of whoever started it. */
void streams_drop(const struct options *options);

#endif
