/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of VMs to files that clients name. What touches the file's directory is done beside
 * the loop (worker.h), since its file system may be slow or dead:
 *
 *   PLACE   a job makes the file (save.h)
 *   VM      the VM writes it; the descriptor is the request's meanwhile (request.c)
 *   NAME    a job gives it its name
 *   UNDO    a job takes away what there is, where any of that failed
 *
 * Until the VM is asked it can be given up; it ends, too, when the VM does. After that it goes on
 * whoever is there, and the daemon ends after the last one's NAME or UNDO. Those of files that
 * have a place have threads of their own: dead file systems that are named do not keep them.
 */
#ifndef CASEMATE_POOL_SAVING_H
#define CASEMATE_POOL_SAVING_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "pool/save.h"
#include "pool/worker.h"

#define SAVINGS_MAX	256u	/* at once; more are refused */

struct vm;
struct waiter;

struct savings {
	struct workers placers, finishers;
	uint32_t count;
	uint32_t finishing;		/* in NAME or UNDO, and somebody is to be told */
};

struct saving;

/* What came of it. */
struct saving_result {
	const char *path;
	uint64_t bytes;			/* on the disk */
	uint64_t pause_ns;		/* for which the VM stood still */
};

int savings_init(struct savings *all, struct evloop *loop, struct err *err);
void savings_done(struct savings *all);

/* flags: CM_SAVE_...; an increment replaces no file. Returns 0 with *ret, and the waiter is told,
 * later (what: a struct saving_result, or NULL with an error), or -errno with err set (-EBUSY: too
 * many are under way). */
int vm_snapshot(struct vm *vm, const char *path, uint16_t flags, struct waiter *waiter,
		struct saving **ret, struct err *err);
/* By who waits for it. Returns whether it is given up, and nobody told; else it goes on. */
bool saving_cancel(struct saving *saving);
/* The VM is going: who waits for a place is told. */
void saving_drop_all(struct vm *vm, const struct err *err);

#endif
