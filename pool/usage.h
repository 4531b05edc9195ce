/* SPDX-License-Identifier: Apache-2.0 */
/* What a VM's process takes of the host. */
#ifndef CASEMATE_POOL_USAGE_H
#define CASEMATE_POOL_USAGE_H

#include <stdint.h>

struct vm;

struct vm_usage {
	uint64_t at_ns;		/* monotonic, when it was read; 0: never */
	uint64_t cpu_ns;	/* of the process since its start */
	uint64_t rss, private;	/* bytes resident, and of them not of files or shared memory */
};

/* Of now, or of a moment ago. Returns 0, or -errno when the process is not known or gone. */
int vm_usage_read(struct vm *vm, struct vm_usage *ret);

#endif
