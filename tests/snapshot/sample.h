/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Made-up snapshots for tests, the fuzzer's corpus and benchmarks: any values that the tables
 * allow, the same ones for the same seed.
 */
#ifndef CASEMATE_TESTS_SNAPSHOT_SAMPLE_H
#define CASEMATE_TESTS_SNAPSHOT_SAMPLE_H

#include <stdint.h>

#include "snapshot/file.h"

/* A stream of numbers; seed it with any but 0. */
uint64_t sample_next(uint64_t *random);

/* Fills the part of a state that a table describes. many: the most elements of arrays and
 * bytes of varying fields. */
struct field_table;
void sample_object(const struct field_table *table, void *object, uint64_t *random,
		   uint32_t many);

/* A whole state for memory of this size. The caller frees it. */
void sample_state(struct snapshot_state *state, uint64_t memory_size, uint64_t seed,
		  uint32_t many);

/* Writes noise to about per_mille of the pages of memory and zeros to a few of the others;
 * sets their bits in dirty unless it is NULL. */
void sample_memory(uint8_t *memory, uint64_t size, uint64_t seed, unsigned int per_mille,
		   uint64_t *dirty);

#endif
