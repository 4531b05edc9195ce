/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a snapshot to start a VM from, and those it builds on, which lie beside it
 * under any name, and checks them as far as they were not checked before.
 *
 * chain_find() checks all but the memory's content, which is chain_verify()'s. Both may be
 * called in any thread; they keep nothing of their own.
 */
#ifndef CASEMATE_POOL_CHAIN_H
#define CASEMATE_POOL_CHAIN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "snapshot/file.h"

/* A file's content, as far as the host's kernel and its header tell it from others. */
struct chain_identity {
	uint64_t device, inode, size;
	struct timespec modified, changed;
	struct snapshot_id id;
};

struct chain {
	int fds[SNAPSHOT_CHAIN_MAX];	/* the full snapshot first */
	struct chain_file {
		char *path;		/* for messages */
		bool verified;		/* as a mark on it says (snapshot/mark.h) */
		struct chain_identity is;
	} files[SNAPSHOT_CHAIN_MAX];
	unsigned int count;	/* 0: no snapshot */
	char image[PATH_MAX];	/* where the root image was, "": there was none */
	uint64_t image_size;
	uint64_t memory;	/* bytes */
};

/* Opens and verifies. Returns 0, or -errno with err set and nothing left open. */
int chain_open(struct chain *chain, const char *path, struct err *err);
void chain_close(struct chain *chain);

/* progress (or NULL) is told of each file that is looked at, and may end it. Likewise. */
int chain_find(struct chain *chain, const char *path, const struct snapshot_progress *progress,
	       struct err *err);

/* Verifies a file that was found, and marks it. It must be what it was, and stay so. Returns 0
 * with what it is now (the mark is a change), or -errno with err set. settled: from here on a
 * file that is equal to what this one was or is, its times included, is this one. */
int chain_verify(int fd, const struct chain_file *file,
		 const struct snapshot_progress *progress, struct chain_identity *ret_is,
		 bool *ret_settled, struct err *err);

bool chain_identity_equal(const struct chain_identity *a, const struct chain_identity *b);

#endif
