/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate run --from FILE`: opens a snapshot and those it builds on, which lie beside it
 * under any name, and checks them as far as they were not checked before.
 */
#ifndef CASEMATE_TOOLS_RUN_FROM_H
#define CASEMATE_TOOLS_RUN_FROM_H

#include <limits.h>
#include <stdint.h>

#include "base/err.h"

#define FROM_MAX	32u	/* files in a chain, as the VMM has it */

struct from {
	int fds[FROM_MAX];	/* the full snapshot first */
	unsigned int count;	/* 0: no snapshot */
	char image[PATH_MAX];	/* where the root image was, "": there was none */
	uint64_t image_size;
};

/* Returns 0, or -errno with err set and nothing left open. */
int from_open(struct from *from, const char *path, struct err *err);
void from_close(struct from *from);

#endif
