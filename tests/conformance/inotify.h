/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of inotify.c. */
#ifndef CASEMATE_TESTS_CONFORMANCE_INOTIFY_H
#define CASEMATE_TESTS_CONFORMANCE_INOTIFY_H

void test_inotify_removal(void);
void test_inotify_moves(void);
void test_inotify_paths(void);
void test_inotify_unlinked(void);
void test_inotify_queue(void);
void test_inotify_unmount(void);

#endif
