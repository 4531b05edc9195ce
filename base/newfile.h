/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that gets its name when it is whole. Until then it has none, where the file system can
 * do that, so that whatever ends us leaves nothing; elsewhere it has a temporary one beside.
 * What had the name before stays until it is replaced.
 */
#ifndef CASEMATE_BASE_NEWFILE_H
#define CASEMATE_BASE_NEWFILE_H

#include <limits.h>
#include <sys/types.h>

struct newfile {
	int dir;		/* the caller's, or AT_FDCWD */
	char temporary[PATH_MAX];	/* "": it has no name yet */
	int fd;
};

#define NEWFILE_INIT	{ .fd = -1 }

/* Makes it beside `name`, a path from dir on; for its owner only, until newfile_commit(). Returns
 * 0 or -errno. */
int newfile_begin(struct newfile *file, int dir, const char *name);
/* Gives it the mode and the name, which may be a regular file's or a link's. Returns 0 or
 * -errno. */
int newfile_commit(struct newfile *file, const char *name, mode_t mode);
/* Forgets one that was not finished; harmless otherwise. */
void newfile_abandon(struct newfile *file);

#endif
