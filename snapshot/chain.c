/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of opened snapshots: checking it, and putting that of a chain together. Files
 * are read with pread, not through a mapping: one that shrinks meanwhile is an error here and
 * not a signal.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapshot/digest.h"
#include "snapshot/file.h"
#include "snapshot/pages.h"
#include "snapshot/parallel.h"

int snapshot_step(const struct snapshot *snapshot, uint64_t chunks, struct err *err)
{
	const struct snapshot_progress *p = snapshot->progress;

	if (p && !p->step(p->arg, chunks * SNAPSHOT_CHUNK, snapshot->page_count * SNAPSHOT_PAGE))
		return err_set(err, ECANCELED, "it is not wanted any more");
	return 0;
}

bool snapshot_holds(const struct snapshot *snapshot, uint64_t chunk)
{
	uint64_t any = 0;

	for (size_t i = 0; i < CHUNK_BLOCKS; i++)
		any |= snapshot->held[chunk * CHUNK_BLOCKS + i];
	return any;
}

/* ---- Verifying ---- */

/* What one of the threads has. */
struct verify {
	const struct snapshot *snapshot;
	bool tells;			/* how far it is: the calling thread */
	struct digest digest;
	uint8_t *buffer;		/* a block */
	uint64_t data_start, data_end;	/* the last run of data found in the file */
};

/* Whether the file has data in [at, at + size). What it has not is a hole, hence zero. */
static bool data_in(struct verify *v, uint64_t at, uint64_t size)
{
	if (at >= v->data_end) {
		off_t start = lseek(v->snapshot->fd, (off_t)at, SEEK_DATA);
		off_t end;

		if (start < 0 && errno == ENXIO) {
			v->data_start = v->data_end = UINT64_MAX;
			return false;
		}
		end = start < 0 ? -1 : lseek(v->snapshot->fd, start, SEEK_HOLE);
		/* A filesystem that does not know: all is data. */
		v->data_start = end < 0 ? at : (uint64_t)start;
		v->data_end = end < 0 ? UINT64_MAX : (uint64_t)end;
	}
	return v->data_start < at + size;
}

static int zero_check(const uint8_t *data, size_t size, uint64_t at, struct err *err)
{
	for (size_t i = 0; i < size; i++) {
		if (data[i])
			return err_set(err, EINVAL, "the file has a byte at %llu, where "
				       "nothing is held", (unsigned long long)(at + i));
	}
	return 0;
}

static int block_verify(struct verify *v, uint64_t block, struct err *err)
{
	uint64_t at = v->snapshot->data_offset + block * BLOCK_SIZE, held;
	int r;

	held = v->snapshot->held[block];
	if (!data_in(v, at, BLOCK_SIZE) && !held)
		return 0;
	r = fd_pread_exact(v->snapshot->fd, v->buffer, BLOCK_SIZE, at);
	if (r < 0)
		return err_set_errno(err, r, "cannot read memory at 0x%llx",
				     (unsigned long long)(block * BLOCK_SIZE));
	for (unsigned int page = 0; page < BLOCK_PAGES && r == 0; page++) {
		const uint8_t *data = v->buffer + (size_t)page * SNAPSHOT_PAGE;

		if (!(held >> page & 1) && !page_is_zero(data))
			r = zero_check(data, SNAPSHOT_PAGE, at + page * SNAPSHOT_PAGE, err);
	}
	while (r == 0 && held) {
		unsigned int first, count = pages_run(&held, &first);

		digest_add(&v->digest, v->buffer + (size_t)first * SNAPSHOT_PAGE,
			   (size_t)count * SNAPSHOT_PAGE);
	}
	return r;
}

static int chunk_verify(void *worker, uint64_t chunk, struct err *err)
{
	struct verify *v = worker;
	uint8_t digest[SNAPSHOT_DIGEST];
	bool any = snapshot_holds(v->snapshot, chunk);
	int r = 0;

	digest_begin(&v->digest);
	for (size_t i = 0; i < CHUNK_BLOCKS && r == 0; i++)
		r = block_verify(v, chunk * CHUNK_BLOCKS + i, err);
	if (r < 0)
		return r;
	if (any)
		digest_end(&v->digest, digest);
	if (any && memcmp(digest, v->snapshot->digests[chunk], SNAPSHOT_DIGEST) != 0)
		return err_set(err, EINVAL, "memory from 0x%llx to 0x%llx is damaged (its "
			       "digest does not fit)",
			       (unsigned long long)(chunk * SNAPSHOT_CHUNK),
			       (unsigned long long)((chunk + 1) * SNAPSHOT_CHUNK));
	return v->tells ? snapshot_step(v->snapshot, chunk + 1, err) : 0;
}

/* Between the last section and memory: less than a chunk of zeros. */
static int gap_verify(struct verify *v, struct err *err)
{
	const struct snapshot *snapshot = v->snapshot;
	const struct snapshot_section *last = &snapshot->sections[snapshot->section_count - 1];
	uint64_t at = last->offset + last->length;

	while (at < snapshot->data_offset) {
		uint64_t size = snapshot->data_offset - at;
		int r = 0;

		if (size > BLOCK_SIZE)
			size = BLOCK_SIZE;
		if (data_in(v, at, size)) {
			r = fd_pread_exact(snapshot->fd, v->buffer, size, at);
			if (r < 0)
				return err_set_errno(err, r, "cannot read the file at %llu",
						     (unsigned long long)at);
			r = zero_check(v->buffer, size, at, err);
		}
		if (r < 0)
			return r;
		at += size;
	}
	return 0;
}

int snapshot_verify(const struct snapshot *snapshot, struct err *err)
{
	struct verify v[PARALLEL_WORKERS];
	int r = 0;

	for (size_t i = 0; i < PARALLEL_WORKERS; i++) {
		v[i] = (struct verify){ .snapshot = snapshot, .tells = i == 0,
					.buffer = malloc(BLOCK_SIZE) };
		if (!v[i].buffer)
			r = err_set(err, ENOMEM, "out of memory");
	}
	if (r == 0)
		r = gap_verify(&v[0], err);
	if (r == 0)
		r = parallel_chunks(snapshot->page_count * SNAPSHOT_PAGE / SNAPSHOT_CHUNK,
				    chunk_verify, v, sizeof(v[0]), err);
	for (size_t i = 0; i < PARALLEL_WORKERS; i++)
		free(v[i].buffer);
	return r;
}

/* ---- Chains ---- */

void snapshot_id_text(const struct snapshot_id *id, char ret_text[2 * SNAPSHOT_DIGEST + 1])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < SNAPSHOT_DIGEST; i++) {
		ret_text[2 * i] = digits[id->digest[i] >> 4];
		ret_text[2 * i + 1] = digits[id->digest[i] & 15];
	}
	ret_text[2 * SNAPSHOT_DIGEST] = '\0';
}

int snapshot_follows(const struct snapshot *child, const struct snapshot *parent,
		     struct err *err)
{
	const struct saved_machine *a = &child->state.machine, *b = &parent->state.machine;
	char want[2 * SNAPSHOT_DIGEST + 1], have[2 * SNAPSHOT_DIGEST + 1];

	if (!child->incremental)
		return err_set(err, EINVAL, "a full snapshot continues no other");
	if (memcmp(child->parent.digest, parent->id.digest, SNAPSHOT_DIGEST) != 0) {
		snapshot_id_text(&child->parent, want);
		snapshot_id_text(&parent->id, have);
		return err_set(err, EINVAL, "the incremental snapshot continues %.16s..., not "
			       "%.16s...: give the files of a chain parent first", want, have);
	}
	if (child->page_count != parent->page_count || a->image_size != b->image_size ||
	    memcmp(a->image_digest, b->image_digest, SNAPSHOT_DIGEST) != 0 ||
	    memcmp(a->kernel_digest, b->kernel_digest, SNAPSHOT_DIGEST) != 0)
		return err_set(err, EINVAL, "the incremental snapshot and its parent are of "
			       "different machines");
	return 0;
}

int snapshot_check_chain(const struct snapshot *const *chain, size_t count, struct err *err)
{
	if (count == 0)
		return err_set(err, EINVAL, "there is no snapshot");
	if (chain[0]->incremental) {
		char parent[2 * SNAPSHOT_DIGEST + 1];

		snapshot_id_text(&chain[0]->parent, parent);
		return err_set(err, EINVAL, "the first snapshot is incremental: give its "
			       "parent %.16s... before it", parent);
	}
	for (size_t i = 1; i < count; i++) {
		int r = snapshot_follows(chain[i], chain[i - 1], err);

		if (r < 0)
			return r;
	}
	return 0;
}

/* The newest file's pages first, so that each is read once. */
static int block_map(const struct snapshot *const *chain, size_t count, uint64_t block,
		     uint8_t *to, struct err *err)
{
	uint64_t missing = UINT64_MAX;

	for (size_t i = count - 1; i > 0 && missing; i--) {
		uint64_t mask = chain[i]->held[block] & missing;
		unsigned int first, pages;

		missing &= ~mask;
		while ((pages = pages_run(&mask, &first)) != 0) {
			uint64_t at = block * BLOCK_SIZE + (uint64_t)first * SNAPSHOT_PAGE;
			int r = fd_pread_exact(chain[i]->fd,
					       to + (size_t)first * SNAPSHOT_PAGE,
					       (size_t)pages * SNAPSHOT_PAGE,
					       chain[i]->data_offset + at);

			if (r < 0)
				return err_set_errno(err, r, "cannot read memory at 0x%llx of "
						     "snapshot %zu of the chain",
						     (unsigned long long)at, i + 1);
		}
	}
	return 0;
}

/* The full file's chunks that hold anything; the others stay anonymous, in huge pages if those
 * were asked for. */
static int full_map(const struct snapshot *full, uint8_t *addr, struct err *err)
{
	uint64_t chunks = full->page_count * SNAPSHOT_PAGE / SNAPSHOT_CHUNK, chunk = 0, first;

	if (madvise(addr, chunks * SNAPSHOT_CHUNK, MADV_DONTNEED) < 0)
		return err_set_errno(err, errno, "cannot clear memory for the snapshot");
	while (chunk < chunks) {
		if (!snapshot_holds(full, chunk)) {
			chunk++;
			continue;
		}
		for (first = chunk; chunk < chunks && snapshot_holds(full, chunk); chunk++)
			;
		if (mmap(addr + first * SNAPSHOT_CHUNK, (chunk - first) * SNAPSHOT_CHUNK,
			 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
			 full->fd, (off_t)(full->data_offset + first * SNAPSHOT_CHUNK)) ==
		    MAP_FAILED)
			return err_set_errno(err, errno, "cannot map the snapshot's memory");
	}
	return 0;
}

int snapshot_map(const struct snapshot *const *chain, size_t count, void *addr,
		 struct err *err)
{
	int r = snapshot_check_chain(chain, count, err);

	if (r == 0)
		r = full_map(chain[0], addr, err);
	for (uint64_t i = 0; i < chain[0]->page_count / BLOCK_PAGES && r == 0; i++)
		r = block_map(chain, count, i, (uint8_t *)addr + i * BLOCK_SIZE, err);
	return r;
}
