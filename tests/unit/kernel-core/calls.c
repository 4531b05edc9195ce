/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of system calls names every call; those of the folders that this program is not
 * linked with answer ENOSYS here.
 */
#include "guest-kernel/lib/kernel.h"

#define X(name) \
	__attribute__((weak)) long sys_##name(void) \
	{ \
		return -ENOSYS; \
	}
#include "guest-kernel/core/syscalls.def"
#undef X
