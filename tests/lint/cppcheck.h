/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins for <sys/queue.h>, for cppcheck: without it, it takes a list head for a function. */
#define TAILQ_HEAD(name, type)	struct name { struct type *first; }
#define LIST_HEAD(name, type)	struct name { struct type *first; }
#define STAILQ_HEAD(name, type)	struct name { struct type *first; }
#define SLIST_HEAD(name, type)	struct name { struct type *first; }
#define TAILQ_FOREACH(var, head, field)	for (var = (head)->first; var; var = queue_next(var))
#define LIST_FOREACH(var, head, field)	for (var = (head)->first; var; var = queue_next(var))
