/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening snapshots (chain.h) and root images beside the loop, since a file may be large, and
 * its file system slow or dead.
 *
 *   FINDING   a job opens the files and checks all but the memory's content; short work, of
 *             which FINDERS run at once
 *   CHECKING  waits for the check of one file of the chain after the other. A check belongs
 *             to a file, not to an opening: all that want the same file wait for the same one.
 *             CHECKERS run at once, each with two threads
 *
 * A root image alone is opened likewise, and has no file to be checked. The default one, which
 * every plain VM boots from, has threads of its own: files that clients name, on file systems
 * that may be dead, do not stand in its way.
 *
 * What was verified before never waits behind what is being verified. Which files were is
 * known from the marks on them (snapshot/mark.h), and where those cannot be written, from a
 * table of what was verified here: device, inode, size, times of last modification and change,
 * and the snapshot's id. Neither is a proof against who may write the file, nor needs to be:
 * who may could as well have written a file that verifies. Content is the guest's, hostile all
 * the same; what the host relies on (header, sections) is checked at each start.
 */
#ifndef CASEMATE_POOL_OPENING_H
#define CASEMATE_POOL_OPENING_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "pool/chain.h"
#include "pool/worker.h"

#define OPENINGS_MAX		256u	/* at once; more are refused */
#define OPENINGS_DEFAULT_MAX	1024u	/* of the default image, besides */
#define OPENINGS_SEEN		128u

struct openings {
	struct workers finders, checkers, imagers;	/* imagers: of the default image */
	const char *image;		/* the default one's path, NULL: there is none */
	struct list checks;
	uint32_t count, default_count, check_count;
	uint64_t verified;		/* files, so far */
	struct chain_identity seen[OPENINGS_SEEN];	/* the latest; size 0: none */
	unsigned int seen_next;
};

struct check;

struct opening {
	struct openings *all;
	struct job job;
	char path[PATH_MAX], image[PATH_MAX];	/* path "": no snapshot */
	bool is_default;		/* the image, alone */
	bool dropped;
	struct check *check;		/* that it waits for */
	struct list check_link;
	unsigned int left;		/* files of the chain to look after */
	struct err err;
	/* Told once, unless it is cancelled; may take what was opened (see below). It is freed
	 * after that. */
	void (*done)(struct opening *opening, const struct err *err);
	void *owner;
	struct chain chain;
	int image_fd;			/* -1: none */
};

int openings_init(struct openings *all, struct evloop *loop, struct err *err);
/* When all were cancelled. */
void openings_done(struct openings *all);

/* path: of a snapshot, NULL: only an image is opened. image: NULL: where the snapshot says, or
 * the default one. Returns 0 with *ret, or -errno with err set (-EBUSY: too many wait) and
 * nothing told. */
int opening_new(struct openings *all, const char *path, const char *image,
		void (*done)(struct opening *opening, const struct err *err), void *owner,
		struct opening **ret, struct err *err);
/* Forgets it; done() is not told. */
void opening_cancel(struct opening *opening);
/* In done(): hands over the descriptors. fds has room for SNAPSHOT_CHAIN_MAX. */
void opening_take(struct opening *opening, int *fds, unsigned int *ret_count, int *ret_image);

#endif
