/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A passing line on stderr about work that takes long: only where stderr is a terminal, and
 * not under --quiet. Whoever says something else on stderr wipes it first.
 */
#ifndef CASEMATE_TOOLS_PROGRESS_H
#define CASEMATE_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* No progress from here on. */
void progress_quiet(void);
/* Whether somebody sees it. */
bool progress_wanted(void);

/* Replaces the line; NULL wipes it. */
void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "WHAT: N of M MiB", at most ten times a second. total 0: not known. */
void progress_bytes(const char *what, uint64_t done, uint64_t total);

#endif
