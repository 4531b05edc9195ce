/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages by the block: 64 of them, one word of a bitmap, 256 KiB of memory. A block is what is
 * worked on at a time, so that what looks for zeros, digests and copies finds it in the cache.
 */
#ifndef CASEMATE_SNAPSHOT_PAGES_H
#define CASEMATE_SNAPSHOT_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/file.h"

#define BLOCK_PAGES	64u
#define BLOCK_SIZE	((size_t)BLOCK_PAGES * SNAPSHOT_PAGE)
#define CHUNK_BLOCKS	(SNAPSHOT_CHUNK / BLOCK_SIZE)

/* Plain loops over 512 bytes that the compiler turns into vectors. */
static inline bool page_is_zero(const uint8_t *page)
{
	for (size_t at = 0; at < SNAPSHOT_PAGE; at += 512) {
		uint64_t words[64], any = 0;

		__builtin_memcpy(words, page + at, sizeof(words));
		for (size_t i = 0; i < 64; i++)
			any |= words[i];
		if (any)
			return false;
	}
	return true;
}

/* Takes the first run of set bits out of *mask. Returns its length, 0 when none is left. */
static inline unsigned int pages_run(uint64_t *mask, unsigned int *ret_first)
{
	unsigned int first, count;
	uint64_t rest;

	if (!*mask)
		return 0;
	first = (unsigned int)__builtin_ctzll(*mask);
	rest = ~(*mask >> first);
	count = rest ? (unsigned int)__builtin_ctzll(rest) : 64;
	*mask &= count == 64 ? 0 : ~(((UINT64_C(1) << count) - 1) << first);
	*ret_first = first;
	return count;
}

#endif
