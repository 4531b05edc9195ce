/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot file, from before it is written (so that a place that cannot be written is known
 * at once) until it has its name. While it is written it has no name, where the filesystem can
 * do that: whatever ends us leaves nothing behind, and what was there before stays until the
 * new one is whole.
 */
#ifndef CASEMATE_POOL_SAVE_H
#define CASEMATE_POOL_SAVE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/channel.h"
#include "base/err.h"

struct save {
	const char *path;		/* NULL: nothing is to be saved */
	bool sync;
	char temporary[PATH_MAX];	/* "": the file has no name yet */
	int fd;
};

#define SAVE_INIT { .path = NULL, .fd = -1 }

/* Makes the file. Returns 0 or -errno with err set. */
int save_begin(struct save *save, const char *path, bool sync, struct err *err);

/* Asks the VMM to write it; the channel has room. Returns 0 or -errno with err set. */
int save_request(const struct save *save, int channel, bool incremental, struct err *err);

/* The VMM's answer came: gives the file its name. Returns 0 or -errno with err set. */
int save_finish(struct save *save, const struct cm_vm_saved *saved, const char *text,
		size_t len, struct err *err);

/* Forgets a file that was not finished; harmless otherwise. */
void save_abandon(struct save *save);

#endif
