/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock-and-generation page at CM_CLOCK_GPA. The VMM writes it before every start and
 * restart of the guest; the kernel's clock, getrandom and the vDSO read it on each use.
 *
 * seq is odd while the page is being written. A reader loads seq, the fields, seq again, and
 * repeats until both are the same even number.
 *
 *   ns(clock) = clock_base_ns + ((rdtsc() - tsc_base) * mult >> shift)   (128-bit product)
 *
 * generation starts at 1 and differs in every VM restored or forked from another. A reader
 * that sees a new generation must mix entropy[] into its random state before the next use.
 */
#ifndef CASEMATE_ABI_CLOCK_H
#define CASEMATE_ABI_CLOCK_H

#include <stdint.h>

#define CM_CLOCK_ENTROPY	64	/* bytes, fresh from the host's getrandom(2) */

struct cm_clock {
	uint32_t seq;
	uint32_t shift;
	uint64_t mult;
	uint64_t tsc_base;	/* guest TSC at the moment of the two readings below */
	uint64_t monotonic_ns;	/* CLOCK_MONOTONIC of the guest at tsc_base */
	uint64_t realtime_ns;	/* CLOCK_REALTIME of the host at tsc_base, since 1970 */
	uint64_t generation;
	uint8_t entropy[CM_CLOCK_ENTROPY];
};
_Static_assert(sizeof(struct cm_clock) == 48 + CM_CLOCK_ENTROPY, "clock layout");

#endif
