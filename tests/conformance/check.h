/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this program share: a check that fails is told of, the first one of each
 * test. */
#ifndef CASEMATE_TESTS_CONFORMANCE_CHECK_H
#define CASEMATE_TESTS_CONFORMANCE_CHECK_H

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

extern const char *failure;
extern char failure_text[200];

#define CHECK(x) \
	do { \
		if (!(x) && failure == NULL) { \
			snprintf(failure_text, sizeof(failure_text), "line %d: %s (errno %d)", \
				 __LINE__, #x, errno); \
			failure = failure_text; \
		} \
	} while (0)

/* inotify.c */
void test_inotify_removal(void);
void test_inotify_moves(void);
void test_inotify_paths(void);
void test_inotify_unlinked(void);
void test_inotify_queue(void);
void test_inotify_unmount(void);

#endif
