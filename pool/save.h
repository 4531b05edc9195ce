/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot file, from before it is written (so that a place that cannot be written is known
 * at once) until it has its name (base/newfile.h).
 */
#ifndef CASEMATE_POOL_SAVE_H
#define CASEMATE_POOL_SAVE_H

#include <stdbool.h>

#include "base/err.h"
#include "base/newfile.h"
#include "snapshot/file.h"

struct save {
	const char *path;		/* NULL: nothing is to be saved */
	bool sync;		/* on the disk, name included, once committed */
	struct newfile file;
};

#define SAVE_INIT { .path = NULL, .file = NEWFILE_INIT }

/* Makes the file; path is the caller's and stays as long as the save. Returns 0 or -errno with
 * err set. */
int save_begin(struct save *save, const char *path, bool sync, struct err *err);

/* Asks the VMM to write it; the channel has room. Returns 0 or -errno with err set. */
int save_request(const struct save *save, int channel, bool incremental, struct err *err);

/* The file is whole, and its content right: gives it its name. Returns 0 or -errno with err
 * set; the file may then be there all the same, but perhaps not after a crash of the host. */
int save_commit(struct save *save, const struct snapshot_id *id, struct err *err);

/* Forgets a file that was not finished; harmless otherwise. */
void save_abandon(struct save *save);

#endif
