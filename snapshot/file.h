/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshot files: docs/SNAPSHOT-FORMAT.md describes the bytes.
 *
 * A file is full (all of memory; pages that it does not hold are zero) or incremental (the
 * pages that changed since its parent). Memory lies in it page by page at the offset that the
 * page has in RAM, from a data offset that is a multiple of 2 MiB on, with holes where nothing
 * is held: a full file is mapped MAP_PRIVATE as it is.
 *
 * A file is hostile input. snapshot_open() reads and checks everything but the memory's
 * content; snapshot_verify() checks that too. Nothing here needs KVM, opens paths or keeps
 * global state; writing uses no system call but pwrite64, malloc's and those of a thread's
 * start, so that it works in the VMM's jail.
 */
#ifndef CASEMATE_SNAPSHOT_FILE_H
#define CASEMATE_SNAPSHOT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "snapshot/state.h"

#define SNAPSHOT_PAGE	4096u
#define SNAPSHOT_CHAIN_MAX	32u	/* files that a VM is restored from, one on the other */
#define SNAPSHOT_CHUNK	(2u << 20)	/* bytes of memory under one digest */
#define SNAPSHOT_SECTIONS_MAX	64u

#define SNAPSHOT_SECTION_OPTIONAL	1u	/* who does not know it may go on without it */

struct snapshot_id {
	uint8_t digest[SNAPSHOT_DIGEST];	/* of all but the memory's content, which is
						 * under it by the chunks' digests */
};

/* Where writing takes memory from. */
struct snapshot_source {
	const uint8_t *memory;		/* RAM, linear, a multiple of SNAPSHOT_CHUNK */
	uint64_t size;
	const uint64_t *dirty;		/* one bit a page, NULL: a full snapshot */
	const uint64_t *unused;	/* one bit a page: of no use to the guest, left
					 * out; NULL: none is known */
	const struct snapshot_id *parent;	/* with dirty */
};

/*
 * Writes a whole snapshot to an empty file, header last: a file that was not finished is
 * refused as such. Zero pages are left out of a full one. The file's offset does not matter.
 * Returns 0 with *ret_id set, or -errno with err set (-ENOSPC: the disk is full; -EFBIG: there
 * is a limit on file sizes, and SIGXFSZ was ignored); the file is then the caller's to remove.
 */
int snapshot_write(int fd, const struct snapshot_state *state,
		   const struct snapshot_source *source, struct snapshot_id *ret_id,
		   struct err *err);

struct snapshot_section {
	uint32_t type;			/* sections.h */
	uint16_t version, flags;
	uint64_t offset, length;	/* in the file, bytes */
	uint8_t digest[SNAPSHOT_DIGEST];
};

/* Told how much of memory was gone through, in bytes, by the thread that asked for it. False:
 * what is being done is to end, with -ECANCELED. */
struct snapshot_progress {
	bool (*step)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

struct snapshot {
	int fd;				/* not owned */
	const struct snapshot_progress *progress;	/* set after opening, for verifying it
							 * and folding a chain that it ends */
	uint64_t file_size;
	struct snapshot_id id, parent;
	bool incremental;
	uint32_t section_count;
	struct snapshot_section sections[SNAPSHOT_SECTIONS_MAX];
	struct snapshot_state state;
	uint64_t data_offset;
	uint64_t page_count;		/* of memory */
	uint64_t pages_held;
	uint64_t *held;			/* one bit a page */
	uint8_t (*digests)[SNAPSHOT_DIGEST];	/* one a chunk */
};

/* Tells snapshot->progress, if it is set, that so many chunks are done. Returns 0, or
 * -ECANCELED with err set. */
int snapshot_step(const struct snapshot *snapshot, uint64_t chunks, struct err *err);

/* Reads and checks. Returns 0, or -errno with err saying what is wrong and where. */
int snapshot_open(struct snapshot *ret, int fd, struct err *err);
void snapshot_close(struct snapshot *snapshot);

/* Reads and checks the first page only, which says which snapshot the file is if the rest is
 * whole. Returns 0 or -errno. */
int snapshot_peek(int fd, struct snapshot_id *ret_id, struct err *err);

/* Checks every held page against the digests, and that all else up to the file's end is zero.
 * Moves the file's offset. */
int snapshot_verify(const struct snapshot *snapshot, struct err *err);

/* Whether `child` says that it continues `parent`, and both are of one shape. */
int snapshot_follows(const struct snapshot *child, const struct snapshot *parent,
		     struct err *err);

/* Whether a chain is one: the first full, each of the others following the one before. */
int snapshot_check_chain(const struct snapshot *const *chain, size_t count, struct err *err);

/* Whether the file holds any page of the chunk. */
bool snapshot_holds(const struct snapshot *snapshot, uint64_t chunk);

/*
 * Puts the memory of a chain (chain[0] full, each of the others following the one before) at
 * addr, which is a private anonymous mapping of memory_size bytes: each 2 MiB of which the full
 * file holds anything are mapped over it copy-on-write, the others' pages are read into it.
 * Returns 0 or -errno with err set.
 */
int snapshot_map(const struct snapshot *const *chain, size_t count, void *addr,
		 struct err *err);

/*
 * Folds a chain into one full snapshot with the last one's state: the same file that a full
 * snapshot at that moment would have been, but for pages that the guest had freed by then. What
 * is read is checked against its digests on the way. As snapshot_write(); holds 4 MiB of memory
 * at a time.
 */
int snapshot_compact(const struct snapshot *const *chain, size_t count, int fd,
		     struct snapshot_id *ret_id, struct err *err);

/* ---- For people (print.c) ---- */

/* Everything but the content of memory: one `name = value` line a field, or one JSON object.
 * Text from the file is made safe for a terminal. */
void snapshot_print(const struct snapshot *snapshot, FILE *to);
void snapshot_print_json(const struct snapshot *snapshot, FILE *to);

void snapshot_id_text(const struct snapshot_id *id, char ret_text[2 * SNAPSHOT_DIGEST + 1]);

#endif
