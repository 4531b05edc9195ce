/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VMM's confinement, in two steps.
 *
 * jail_begin(), first thing in main(): no_new_privs, no descriptors but those named, small
 * limits, death with the parent.
 * jail_enter(), when everything is open and all threads exist, before the first guest
 * instruction: a seccomp allow-list for all threads; anything else kills the process. A VM
 * that may be saved and forked is allowed what that takes besides; its children inherit it.
 * It is given the files that it writes, one after the other: none may grow beyond its snapshot.
 * The stderr that it was started with is the daemon's log, or somebody's terminal: from here on
 * it has none.
 */
#ifndef CASEMATE_VMM_JAIL_H
#define CASEMATE_VMM_JAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* keep: descriptors above 2 to be left open; negative ones are skipped. file_max: bytes that
 * a file written by this process may have. */
int jail_begin(const int *keep, size_t count, uint64_t file_max, struct err *err);
/* memory: bytes of RAM that a snapshot of it would have. */
int jail_enter(bool snapshots, uint64_t memory, struct err *err);

/* Closes all descriptors above 2 but those; also inside the jail of a VM with snapshots. */
void jail_close_others(const int *keep, size_t count);

#endif
