/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the children of a held VM write at once. Each of those pages is a fault that copies it,
 * and on hosts with shadow paging the fault is most of what a lease costs. So the held VM
 * forks one child for itself, a probe, which resumes, runs /bin/true, and leaves KVM's log of
 * what was written in memory that both share; it is nobody's and ends there. Later children
 * have those pages copied in a few calls before they run, but for what lies where the snapshot
 * holds nothing: there a first touch brings a huge page, which an idle child can do without.
 *
 * A probe that fails, or is not done yet, costs children nothing but that help.
 */
#ifndef CASEMATE_VMM_WARM_H
#define CASEMATE_VMM_WARM_H

#include <stdint.h>

#include "base/err.h"
#include "base/frame.h"
#include "base/map.h"

struct vm;

struct warm {
	struct map shared;	/* struct warm_log */
	int probe_fd, held_fd;	/* a socket pair: the probe ends when we do */
};

#define WARM_INIT { .shared = MAP_INIT, .probe_fd = -1, .held_fd = -1 }

/* For a held VM, before its jail closes. Returns 0 or -errno with err set. */
int warm_init(struct warm *warm, uint64_t memory_size, struct err *err);
void warm_done(struct warm *warm);

/* Forks the probe. */
void warm_probe(struct vm *held);

/* In a child that is to run: copies the pages, if they are known. */
void warm_populate(const struct vm *held);

#endif
