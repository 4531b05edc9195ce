/* SPDX-License-Identifier: Apache-2.0 */
/* The clock-and-generation page; see clock.h. */
#include "vmm/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "abi/clock.h"
#include "abi/layout.h"

void clock_scale(uint64_t tsc_khz, uint64_t *ret_mult, uint32_t *ret_shift)
{
	uint32_t shift = 32;

	/* ns per tick = 10^6 / khz. Keep 32 significant bits whatever the frequency. */
	while (shift > 0 && ((unsigned __int128)1000000 << shift) / tsc_khz > UINT32_MAX)
		shift--;
	*ret_mult = (uint64_t)(((unsigned __int128)1000000 << shift) / tsc_khz);
	*ret_shift = shift;
}

uint64_t clock_monotonic(const struct clock_params *params, uint64_t tsc)
{
	uint64_t mult, delta = tsc > params->tsc ? tsc - params->tsc : 0;
	uint32_t shift;

	clock_scale(params->tsc_khz, &mult, &shift);
	return params->monotonic_ns + (uint64_t)((unsigned __int128)delta * mult >> shift);
}

int clock_write(const struct memory *memory, const struct clock_params *params,
		struct err *err)
{
	struct cm_clock *page = memory_ram(memory, GPA(CM_CLOCK_GPA), sizeof(*page));
	uint8_t entropy[CM_CLOCK_ENTROPY];
	uint64_t mult;
	uint32_t shift, seq;

	if (getrandom(entropy, sizeof(entropy), 0) != sizeof(entropy))
		return err_set_errno(err, errno, "cannot get random bytes");
	clock_scale(params->tsc_khz, &mult, &shift);
	/* The guest may have left anything here: an odd number is made of it in any case. */
	seq = __atomic_load_n(&page->seq, __ATOMIC_RELAXED) | 1;
	__atomic_store_n(&page->seq, seq, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	page->shift = shift;
	page->mult = mult;
	page->tsc_base = params->tsc;
	page->monotonic_ns = params->monotonic_ns;
	page->realtime_ns = params->realtime_ns;
	page->generation = params->generation;
	memcpy(page->entropy, entropy, sizeof(entropy));
	__atomic_store_n(&page->seq, seq + 1, __ATOMIC_RELEASE);
	memory_mark(memory, page, sizeof(*page));
	explicit_bzero(entropy, sizeof(entropy));
	return 0;
}
