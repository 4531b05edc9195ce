/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory's chunks, worked on by two threads: digests take most of the time, and copying goes
 * on beside them. Where there is no second thread to be had, one does it all.
 */
#ifndef CASEMATE_SNAPSHOT_PARALLEL_H
#define CASEMATE_SNAPSHOT_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PARALLEL_WORKERS	2u

/* Deals with one chunk. Returns 0 or -errno with err set. */
typedef int parallel_work(void *worker, uint64_t chunk, struct err *err);

/*
 * Calls work() once for each chunk below `count`, the lower ones first, with one of the
 * PARALLEL_WORKERS objects of `size` bytes at `workers`: each belongs to one thread. After a
 * failure no further chunk is begun. Returns 0, or -errno and err as the lowest chunk that
 * failed has them.
 */
int parallel_chunks(uint64_t count, parallel_work *work, void *workers, size_t size,
		    struct err *err);

#endif
