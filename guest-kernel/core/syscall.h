/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls are ordinary functions of up to six register arguments that return a result or
 * a negative errno. A call that needs the caller's registers uses task_frame(current).
 */
#ifndef CORE_SYSCALL_H
#define CORE_SYSCALL_H

#include "guest-kernel/lib/kernel.h"

#define SYSCALL(name, ...) \
	long sys_##name(__VA_ARGS__); \
	long sys_##name(__VA_ARGS__)

/* Something a call does not do yet was asked for (a flag, a command): counted by name and
 * shown in the report of `casemate run --verbose`. Returns err. */
long syscall_partial(const char *call, const char *what, int err);
extern bool syscall_trace;	/* print each call: boot argument "trace" */
void syscall_report(struct strbuf *sb);

#endif
