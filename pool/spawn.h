/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts casemate-vmm: finds the programs, checks the image's beginning, and gives the new
 * process a session of its own (a terminal's ^C is not for it), no environment, stdin and
 * stdout on /dev/null, and of our descriptors only the channel, the image and snapshots.
 *
 * Everything is opened before the process exists, so that a bad file is the caller's error
 * and not a VM that dies. The channel is spoken as abi/channel.h says.
 */
#ifndef CASEMATE_POOL_SPAWN_H
#define CASEMATE_POOL_SPAWN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct spawn_programs {
	char vmm[PATH_MAX], kernel[PATH_MAX], initd[PATH_MAX];
	char image[PATH_MAX];		/* the default one, "": there is none */
};

struct spawn_options {
	const struct spawn_programs *programs;
	int image_fd;			/* -1: none. Not owned */
	const char *image_path;		/* to be noted in snapshots; NULL */
	uint64_t memory;		/* bytes; 0 with snapshots */
	const int *snapshot_fds;	/* a chain, the full one first. Not owned */
	unsigned int snapshot_count;
	const char *bootargs;
	bool hold, snapshots, verbose;
	bool track;			/* with snapshots: incremental ones are possible */
};

/*
 * Beside this very program, then where an installation puts them. Names given by the caller
 * (NULL: none) come first. An image that is not there is no error. Returns 0 or -errno.
 */
int spawn_programs_find(struct spawn_programs *ret, const char *vmm, const char *kernel,
			const char *initd, const char *image, const char *libexec,
			struct err *err);

/* Opens a root image and checks that it is one. Returns 0 with *ret_fd, or -errno. */
int spawn_image_open(const char *path, int *ret_fd, struct err *err);

/* *ret_channel: our end of the socket, non-blocking, close-on-exec. Returns 0, or -errno with
 * err set and nothing left behind. */
int spawn_vmm(const struct spawn_options *options, pid_t *ret_pid, int *ret_channel,
	      struct err *err);

#endif
