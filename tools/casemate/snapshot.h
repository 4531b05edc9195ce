/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the command `casemate snapshot`: opened by name, complained about by it. */
#ifndef CASEMATE_TOOLS_SNAPSHOT_H
#define CASEMATE_TOOLS_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>

#include "snapshot/file.h"

struct snapshot_file {
	const char *path;
	int fd;
	struct snapshot snapshot;
	bool open;
	struct snapshot_progress progress;
	const char *doing;
};

/* Files in the order of the command line. */
struct snapshot_files {
	struct snapshot_file *file;
	const struct snapshot **chain;	/* the same, for snapshot/file.h */
	size_t count;
};

/* Returns 0, or EXIT_CASEMATE with one line said; give to snapshot_files_close() both ways. */
int snapshot_files_open(struct snapshot_files *files, char **paths, size_t count);
void snapshot_files_close(struct snapshot_files *files);

/* Says of which file the chain's links are wrong. Returns 0 or EXIT_CASEMATE. */
int snapshot_files_check(const struct snapshot_files *files);

/* From here on a terminal is told how far `doing` the file is. */
void snapshot_progress_say(struct snapshot_file *file, const char *doing);

/* `casemate snapshot compact`, options read. Returns the exit status. */
int snapshot_compact_files(const struct snapshot_files *files, const char *output, bool sync,
			   bool quiet);

#endif
