/* SPDX-License-Identifier: Apache-2.0 */
/* What the two kinds of watch share: builtin_watch.c and watch_tree.c. */
#ifndef CASEMATE_INITD_WATCH_H
#define CASEMATE_INITD_WATCH_H

#include <stdint.h>
#include <sys/inotify.h>

#define WATCH_MASK                                                                        \
	((uint32_t)(IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE |      \
		    IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF))
#define WATCH_LAST ((uint32_t)(IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT))
/* Whole events, and so many that a busy task does not fill the kernel's queue. */
#define WATCH_READ 32768u

struct words;

/* Says an event, about `name` unless that is NULL, with `cookie` unless that is 0. What has no
 * word of its own is left out. */
void watch_say(struct words *words, uint32_t mask, const char *name, uint32_t cookie);

/* Watches a directory and all below it. 0 or an errno, after telling. */
int watch_tree(const char *path, struct words *words);

#endif
