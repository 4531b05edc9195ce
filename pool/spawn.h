/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts casemate-vmm: finds the programs, checks the image's beginning, and makes the VMM's
 * command line. The new process has no environment, and of our descriptors only the channel
 * and the files of its VM: it needs no path after its start.
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
#include "pool/launch.h"

struct spawn_programs {
	char vmm[PATH_MAX], kernel[PATH_MAX], initd[PATH_MAX];
	char image[PATH_MAX];		/* the default one, "": there is none */
};

struct spawn_files {
	const char *name;		/* of the VMM, for its command line */
	int vmm, kernel, initd;
	int kvm;			/* -1: it cannot be opened; the VMM says why */
};

#define SPAWN_FILES_INIT	{ .vmm = -1, .kernel = -1, .initd = -1, .kvm = -1 }

struct spawn_options {
	const struct spawn_files *files;
	int image_fd;			/* -1: none. Not owned. Its path is noted in snapshots */
	uint64_t memory;		/* bytes; not looked at with snapshots */
	const int *snapshot_fds;	/* a chain, the full one first. Not owned */
	unsigned int snapshot_count;
	const char *bootargs;
	bool hold, snapshots, verbose;
	bool track;			/* with snapshots: incremental ones are possible */
	const struct launch_jail *jail;	/* NULL: none but the VMM's own */
};

/* Where this very program lies. Returns 0 or -errno. */
int spawn_own_directory(char *path, size_t size, struct err *err);

/*
 * Beside this very program, then where an installation puts them. Names given by the caller
 * (NULL: none) come first. An image that is not there is no error. Returns 0 or -errno.
 */
int spawn_programs_find(struct spawn_programs *ret, const char *vmm, const char *kernel,
			const char *initd, const char *image, const char *libexec,
			struct err *err);

/* Opens a root image and checks that it is one. Returns 0 with *ret_fd, or -errno. */
int spawn_image_open(const char *path, int *ret_fd, struct err *err);

/* programs must outlive it. Returns 0, or -errno with nothing left open. */
int spawn_files_open(struct spawn_files *ret, const struct spawn_programs *programs,
		     struct err *err);
void spawn_files_close(struct spawn_files *files);

/* The client's and the VMM's end of a channel: close-on-exec, the client's non-blocking. */
int spawn_channel_make(int *ret_ours, int *ret_theirs, struct err *err);

/* channel: the VMM's end, not owned. Returns 0, or -errno with err set and nothing left
 * behind. */
int spawn_vmm(const struct spawn_options *options, int channel, pid_t *ret_pid,
	      struct err *err);

#endif
