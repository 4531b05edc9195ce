/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories of a tree that is watched: found by watch descriptor, or by name in the one
 * above. A path is put together from the names on the way up, so a directory that moves takes
 * along all that is below it. One without a parent is the root, or has no place at the moment.
 */
#ifndef CASEMATE_INITD_WATCH_DIRS_H
#define CASEMATE_INITD_WATCH_DIRS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A queue that a directory may be in. */
struct dir_queue {
	struct watch_dir *first;
};

struct watch_dir {
	struct watch_dir *parent;
	struct watch_dir *children, *next, **link; /* siblings */
	struct watch_dir *same_wd, *same_name;     /* of a bucket */
	struct watch_dir *queue_next, **queue_link;
	char *name;
	ino_t ino;
	int wd;
};

/* Without a place. NULL: no memory. */
struct watch_dir *dirs_add(int wd, ino_t ino);
/* Has no place and nothing below it; leaves its queue, too. */
void dirs_remove(struct watch_dir *dir);
/* Gives it a place; the name must be free. 0 or ENOMEM. */
int dirs_attach(struct watch_dir *dir, struct watch_dir *parent, const char *name);
void dirs_detach(struct watch_dir *dir);
size_t dirs_count(void);

struct watch_dir *dirs_find_wd(int wd);
struct watch_dir *dirs_find(const struct watch_dir *parent, const char *name);
bool dirs_is_below(const struct watch_dir *dir, const struct watch_dir *top); /* or the same */

/* The path below the root of `name` in it, or of itself for "". false: it is too long. */
bool dirs_path(const struct watch_dir *dir, const char *name, char path[PATH_MAX]);

/* Puts it there, whichever it was in. */
void dirs_enqueue(struct watch_dir *dir, struct dir_queue *queue);
/* Takes one out. NULL: there is none. */
struct watch_dir *dirs_dequeue(struct dir_queue *queue);

#endif
