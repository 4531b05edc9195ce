/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of system calls: the C library's header, and those it may be too old to know.
 * Between the table (syscall.c) and the counts (syscall_report.c).
 */
#ifndef CORE_SYSCALL_NR_H
#define CORE_SYSCALL_NR_H

#include <asm/unistd_64.h>

#include "guest-kernel/lib/kernel.h"

#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif

#define SYSCALL_MAX 461	/* one more than the last number with a name here */

extern uint64_t syscall_count;

/* Also of a call that does not exist here; NULL for a number without a meaning. */
const char *syscall_name(uint64_t nr);
/* Counts the call and returns -ENOSYS. */
long syscall_missing(uint64_t nr);

#endif
