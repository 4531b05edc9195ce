/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VMM's confinement, in two steps.
 *
 * jail_begin(), first thing in main(): no_new_privs, no descriptors but those named, small
 * limits, death with the parent.
 * jail_enter(), when everything is open and all threads exist, before the first guest
 * instruction: a seccomp allow-list for all threads; anything else kills the process.
 */
#ifndef CASEMATE_VMM_JAIL_H
#define CASEMATE_VMM_JAIL_H

#include <stddef.h>

#include "base/err.h"

/* keep: descriptors above 2 to be left open; negative ones are skipped. */
int jail_begin(const int *keep, size_t count, struct err *err);
int jail_enter(struct err *err);

#endif
