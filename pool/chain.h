/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a snapshot to start a VM from, and those it builds on, which lie beside it
 * under any name, and checks them as far as they were not checked before.
 */
#ifndef CASEMATE_POOL_CHAIN_H
#define CASEMATE_POOL_CHAIN_H

#include <limits.h>
#include <stdint.h>

#include "base/err.h"
#include "snapshot/file.h"

struct chain {
	int fds[SNAPSHOT_CHAIN_MAX];	/* the full snapshot first */
	unsigned int count;	/* 0: no snapshot */
	char image[PATH_MAX];	/* where the root image was, "": there was none */
	uint64_t image_size;
	uint64_t memory;	/* bytes */
};

/* Returns 0, or -errno with err set and nothing left open. */
int chain_open(struct chain *chain, const char *path, struct err *err);
void chain_close(struct chain *chain);

#endif
