/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's list of system calls: files, sockets, its loop, memory, threads. It starts no
 * program, makes no process, and signals, traces and mounts nothing. A call that is not on the
 * list answers EPERM: an error for that request, and service for the rest. After the C library
 * has loaded what it loads by need (users, groups).
 */
#ifndef CASEMATE_TOOLS_CASEMATED_FILTER_H
#define CASEMATE_TOOLS_CASEMATED_FILTER_H

#include "base/err.h"

/* Returns 0 or -errno with err set. */
int filter_enter(struct err *err);

#endif
