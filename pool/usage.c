/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a VM's process takes of the host, from /proc. Two small files that cost the same
 * whatever the VM's size (smaps would not), read at most ten times a second however many ask.
 * Memory that a fork shares with its source counts as private to both: only the kernel knows
 * better, at a price. A process that the parent has waited for a moment ago may have left its PID
 * to another, whose figures these are then, once.
 */
#include "pool/usage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/time.h"
#include "pool/pool.h"
#include "pool/state.h"

#define FRESH_NS	(NS_PER_SEC / 10)

static int read_now(const struct vm *vm, struct vm_usage *ret)
{
	uint64_t user, system, resident, shared;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), hz = (uint64_t)sysconf(_SC_CLK_TCK);
	const char *fields;
	char text[1024];
	int r = vm->process == VM_PROCESS_RUNS ?
		state_text(vm->pid, "stat", text, sizeof(text)) : -ESRCH;

	if (r < 0)
		return r;
	fields = state_fields(text);
	if (!fields || sscanf(fields, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64
			  " %" SCNu64, &user, &system) != 2)
		return -EPROTO;
	r = state_text(vm->pid, "statm", text, sizeof(text));
	if (r < 0)
		return r;
	if (sscanf(text, "%*u %" SCNu64 " %" SCNu64, &resident, &shared) != 2)
		return -EPROTO;
	*ret = (struct vm_usage){ .cpu_ns = (user + system) * (NS_PER_SEC / hz),
				  .rss = resident * page,
				  .private = resident > shared ? (resident - shared) * page : 0 };
	return 0;
}

int vm_usage_read(struct vm *vm, struct vm_usage *ret)
{
	uint64_t now = time_monotonic_ns();
	struct vm_usage usage;

	if (!vm->usage.at_ns || now - vm->usage.at_ns > FRESH_NS) {
		int r = read_now(vm, &usage);

		if (r < 0)
			return r;
		usage.at_ns = now;
		vm->usage = usage;
	}
	*ret = vm->usage;
	return 0;
}
