/* SPDX-License-Identifier: Apache-2.0 */
/* For unit tests of kernel code on the host. See shim.c. */
#ifndef HOST_SHIM_H
#define HOST_SHIM_H

#include "guest-kernel/lib/kernel.h"

extern uint64_t host_now_ns;
/* Called right after each reading of the TSC: there the VM may be stopped and restored. */
extern void (*host_tsc_hook)(void);
/* Zeroed memory to stand for guest RAM; never freed. */
void *host_memory_init(size_t size);

#endif
