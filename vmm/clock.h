/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of the clock-and-generation page (abi/clock.h). */
#ifndef CASEMATE_VMM_CLOCK_H
#define CASEMATE_VMM_CLOCK_H

#include <stdint.h>

#include "base/err.h"
#include "vmm/memory.h"

struct clock_params {
	uint64_t tsc;		/* guest TSC ... */
	uint64_t monotonic_ns;	/* ... and the guest's CLOCK_MONOTONIC at that moment */
	uint64_t realtime_ns;
	uint64_t tsc_khz;
	uint64_t generation;
};

/* Fills the page, with fresh entropy, under its sequence lock. The vCPU must be stopped. */
int clock_write(const struct memory *memory, const struct clock_params *params,
		struct err *err);

/* The guest's CLOCK_MONOTONIC at a later TSC of the same run. */
uint64_t clock_monotonic(const struct clock_params *params, uint64_t tsc);

/* The largest multiplier that fits 32 bits: ns = tsc * mult >> shift. */
void clock_scale(uint64_t tsc_khz, uint64_t *ret_mult, uint32_t *ret_shift);

#endif
