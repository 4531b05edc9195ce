/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing snapshot files, from memory or from a chain of other files.
 *
 * The state is encoded first, which says where memory begins in the file. Then memory is
 * written chunk by chunk (parallel.h): whoever has it gives a pointer to a chunk and the pages
 * to look at; each block of 64 pages is searched for zero pages, digested and written while it
 * is in the cache. What came of it, the bitmap of pages held and the chunks' digests, follows as
 * sections, and the header last of all.
 *
 * All of it may run inside the VMM's jail: memory from malloc, a thread, pwrite64, and nothing
 * else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/layout.h"
#include "base/fd.h"
#include "snapshot/digest.h"
#include "snapshot/file.h"
#include "snapshot/header.h"
#include "snapshot/pages.h"
#include "snapshot/parallel.h"
#include "snapshot/sections.h"

#define SECTIONS	(SNAPSHOT_PARTS + 2)

/* Gives one chunk of memory: where it is until the next call for this worker, and which of
 * its pages are to be written. Returns 0 or -errno with err set. */
typedef int chunk_source(void *arg, unsigned int worker, uint64_t chunk, const uint8_t **ret_data,
			 uint64_t ret_pages[CHUNK_BLOCKS], struct err *err);

struct output {
	int fd;
	bool full;			/* zero pages are left out */
	struct header header;
	uint8_t *data[SECTIONS];	/* of the sections, in the header's order */
	uint64_t *held;			/* those of the last two */
	uint8_t (*digests)[SNAPSHOT_DIGEST];
};

/* One of the threads that write memory. */
struct writer {
	struct output *out;
	chunk_source *source;
	void *arg;			/* the source's */
	unsigned int number;
	struct digest digest;
	uint64_t pages;			/* written */
};

/* ---- Bytes ---- */

static int write_fail(int code, struct err *err)
{
	if (code == ENOSPC || code == EDQUOT)
		return err_set(err, code, "the disk is full: the snapshot was not saved; make "
			       "room or save it elsewhere");
	if (code == EFBIG)
		return err_set(err, code, "the snapshot was not saved: files of its size are "
			       "not allowed here (see ulimit -f)");
	return err_set_errno(err, code, "cannot write the snapshot");
}

static int write_at(int fd, const void *data, size_t size, uint64_t offset, struct err *err)
{
	const uint8_t *at = data;

	while (size > 0) {
		ssize_t n = pwrite(fd, at, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return write_fail(n < 0 ? errno : ENOSPC, err);
		at += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

/* ---- Layout ---- */

static uint64_t sections_end(const struct header *header)
{
	const struct snapshot_section *last;

	if (header->section_count == 0)
		return SNAPSHOT_PAGE;
	last = &header->sections[header->section_count - 1];
	return last->offset + last->length;
}

static int section_add(struct output *out, uint32_t type, uint16_t version, uint8_t *data,
		       uint64_t size)
{
	struct header *header = &out->header;
	uint64_t end = sections_end(header);

	out->data[header->section_count] = data;
	header->sections[header->section_count++] = (struct snapshot_section){
		.type = type, .version = version, .offset = end, .length = size,
	};
	return data ? 0 : -ENOMEM;
}

/* All sections with their sizes, and so the whole file's layout. */
static int layout_make(struct output *out, const struct snapshot_state *state, struct err *err)
{
	uint64_t chunks = out->header.memory_size / SNAPSHOT_CHUNK;
	size_t held_size = chunks * CHUNK_BLOCKS * sizeof(uint64_t);
	int r;

	for (size_t i = 0; i < SNAPSHOT_PARTS; i++) {
		const struct snapshot_part *part = &snapshot_parts[i];
		uint8_t *data;
		size_t size;

		r = field_encode(part->table, (const uint8_t *)state + part->offset, &data,
				 &size, err);
		if (r < 0)
			return r;
		section_add(out, part->type, part->table->version, data, size);
	}
	out->held = calloc(1, held_size);
	r = section_add(out, SNAPSHOT_HELD, SNAPSHOT_MEMORY_VERSION, (uint8_t *)out->held,
			held_size);
	out->digests = r == 0 ? calloc(chunks, SNAPSHOT_DIGEST) : NULL;
	r = section_add(out, SNAPSHOT_DIGESTS, SNAPSHOT_MEMORY_VERSION,
			(uint8_t *)out->digests, chunks * SNAPSHOT_DIGEST);
	if (r < 0)
		return err_set(err, r, "out of memory");
	out->header.data_offset = header_data_offset(sections_end(&out->header));
	out->header.file_size = out->header.data_offset + out->header.memory_size;
	return 0;
}

/* ---- Memory ---- */

static uint64_t pages_not_zero(const uint8_t *block, uint64_t mask)
{
	uint64_t left = mask;

	while (left) {
		unsigned int page = (unsigned int)__builtin_ctzll(left);

		left &= left - 1;
		if (page_is_zero(block + (size_t)page * SNAPSHOT_PAGE))
			mask &= ~(UINT64_C(1) << page);
	}
	return mask;
}

static int block_write(struct writer *writer, uint64_t block, const uint8_t *data,
		       uint64_t mask, struct err *err)
{
	struct output *out = writer->out;
	uint64_t offset = out->header.data_offset + block * BLOCK_SIZE;
	unsigned int first, count;
	int r = 0;

	if (out->full)
		mask = pages_not_zero(data, mask);
	out->held[block] = mask;
	writer->pages += (uint64_t)__builtin_popcountll(mask);
	while (r == 0 && (count = pages_run(&mask, &first)) != 0) {
		size_t from = (size_t)first * SNAPSHOT_PAGE;
		size_t size = (size_t)count * SNAPSHOT_PAGE;

		digest_add(&writer->digest, data + from, size);
		r = write_at(out->fd, data + from, size, offset + from, err);
	}
	return r;
}

static int chunk_write(void *worker, uint64_t chunk, struct err *err)
{
	struct writer *writer = worker;
	uint64_t pages[CHUNK_BLOCKS], before = writer->pages;
	const uint8_t *data;
	int r = writer->source(writer->arg, writer->number, chunk, &data, pages, err);

	digest_begin(&writer->digest);
	for (size_t i = 0; i < CHUNK_BLOCKS && r == 0; i++)
		r = block_write(writer, chunk * CHUNK_BLOCKS + i, data + i * BLOCK_SIZE,
				pages[i], err);
	/* A chunk of which nothing is held has a digest of zeros. */
	if (r == 0 && writer->pages != before)
		digest_end(&writer->digest, writer->out->digests[chunk]);
	return r;
}

static int memory_write(struct output *out, chunk_source *source, void *arg, struct err *err)
{
	struct writer writers[PARALLEL_WORKERS];
	int r;

	for (unsigned int i = 0; i < PARALLEL_WORKERS; i++)
		writers[i] = (struct writer){ .out = out, .source = source, .arg = arg,
					      .number = i };
	r = parallel_chunks(out->header.memory_size / SNAPSHOT_CHUNK, chunk_write, writers,
			    sizeof(writers[0]), err);
	for (unsigned int i = 0; i < PARALLEL_WORKERS; i++)
		out->header.pages_held += writers[i].pages;
	return r;
}

/* ---- The whole file ---- */

static int sections_write(struct output *out, struct err *err)
{
	for (uint32_t i = 0; i < out->header.section_count; i++) {
		struct snapshot_section *section = &out->header.sections[i];
		int r;

		snapshot_digest(out->data[i], section->length, section->digest);
		r = write_at(out->fd, out->data[i], section->length, section->offset, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int header_write(struct output *out, struct err *err)
{
	uint64_t last = out->header.memory_size / SNAPSHOT_PAGE - 1;
	uint8_t page[SNAPSHOT_PAGE];
	int r = 0;

	/* Not ftruncate(), which the jail lacks: a byte where the last page is not held. */
	if (!(out->held[last / BLOCK_PAGES] >> last % BLOCK_PAGES & 1))
		r = write_at(out->fd, "", 1, out->header.file_size - 1, err);
	if (r == 0)
		r = header_encode(&out->header, page, err);
	if (r == 0)
		r = write_at(out->fd, page, sizeof(page), 0, err);
	return r;
}

static int output_write(struct output *out, const struct snapshot_state *state,
			chunk_source *source, void *arg, struct snapshot_id *ret_id,
			struct err *err)
{
	int r;

	out->full = !(out->header.flags & HEADER_INCREMENTAL);
	if (out->header.memory_size != state->machine.memory_size)
		return err_set(err, EINVAL, "machine.memory_size is not the memory's size");
	r = layout_make(out, state, err);
	if (r == 0)
		r = memory_write(out, source, arg, err);
	if (r == 0)
		r = sections_write(out, err);
	if (r == 0)
		r = header_write(out, err);
	if (r == 0)
		memcpy(ret_id->digest, out->header.id, SNAPSHOT_DIGEST);
	for (uint32_t i = 0; i < out->header.section_count; i++)
		free(out->data[i]);
	return r;
}

/* ---- From memory ---- */

static int source_chunk(void *arg, unsigned int worker, uint64_t chunk,
			const uint8_t **ret_data, uint64_t ret_pages[CHUNK_BLOCKS], struct err *err)
{
	const struct snapshot_source *source = arg;

	(void)worker;
	*ret_data = source->memory + chunk * SNAPSHOT_CHUNK;
	for (size_t i = 0; i < CHUNK_BLOCKS; i++) {
		size_t block = chunk * CHUNK_BLOCKS + i;

		ret_pages[i] = source->dirty ? source->dirty[block] : UINT64_MAX;
		if (source->unused)
			ret_pages[i] &= ~source->unused[block];
	}
	return 0;
}

int snapshot_write(int fd, const struct snapshot_state *state,
		   const struct snapshot_source *source, struct snapshot_id *ret_id,
		   struct err *err)
{
	struct snapshot_source from = *source;
	struct output out = { .fd = fd, .header.memory_size = source->size };

	if (source->size == 0 || source->size % SNAPSHOT_CHUNK || source->size > CM_RAM_MAX)
		return err_set(err, EINVAL, "memory of %llu bytes cannot be saved: it is no "
			       "multiple of 2 MiB", (unsigned long long)source->size);
	if (source->dirty) {
		if (!source->parent)
			return err_set(err, EINVAL, "an incremental snapshot needs a parent");
		out.header.flags = HEADER_INCREMENTAL;
		memcpy(out.header.parent, source->parent->digest, SNAPSHOT_DIGEST);
	}
	return output_write(&out, state, source_chunk, &from, ret_id, err);
}

/* ---- From a chain ---- */

struct fold {
	const struct snapshot *const *chain;
	size_t count;
	uint8_t *buffers;	/* a chunk each worker */
};

/* Reads what one file holds of a chunk, over what is there, and checks it. */
static int fold_read(uint8_t *buffer, const struct snapshot *snapshot, uint64_t chunk,
		     uint64_t pages[CHUNK_BLOCKS], struct err *err)
{
	struct digest context;
	uint8_t digest[SNAPSHOT_DIGEST];
	bool any = false;
	int r = 0;

	digest_begin(&context);
	for (size_t i = 0; i < CHUNK_BLOCKS && r == 0; i++) {
		uint64_t block = chunk * CHUNK_BLOCKS + i, mask = snapshot->held[block];
		unsigned int first, count;

		pages[i] |= mask;
		any = any || mask;
		while (r == 0 && (count = pages_run(&mask, &first)) != 0) {
			size_t from = (size_t)first * SNAPSHOT_PAGE;
			size_t size = (size_t)count * SNAPSHOT_PAGE;
			uint8_t *to = buffer + i * BLOCK_SIZE + from;

			r = fd_pread_exact(snapshot->fd, to, size,
					   snapshot->data_offset + block * BLOCK_SIZE + from);
			if (r == 0)
				digest_add(&context, to, size);
		}
	}
	if (any)
		digest_end(&context, digest);
	if (r < 0)
		return err_set_errno(err, r, "cannot read memory at 0x%llx of a snapshot",
				     (unsigned long long)(chunk * SNAPSHOT_CHUNK));
	if (any && memcmp(digest, snapshot->digests[chunk], SNAPSHOT_DIGEST) != 0)
		return err_set(err, EINVAL, "memory at 0x%llx of a snapshot is damaged (its "
			       "digest does not fit); `casemate snapshot verify` says which",
			       (unsigned long long)(chunk * SNAPSHOT_CHUNK));
	return 0;
}

static int fold_chunk(void *arg, unsigned int worker, uint64_t chunk,
		      const uint8_t **ret_data, uint64_t ret_pages[CHUNK_BLOCKS],
		      struct err *err)
{
	struct fold *fold = arg;
	uint8_t *buffer = fold->buffers + (size_t)worker * SNAPSHOT_CHUNK;

	memset(ret_pages, 0, CHUNK_BLOCKS * sizeof(uint64_t));
	for (size_t i = 0; i < fold->count; i++) {
		int r = fold_read(buffer, fold->chain[i], chunk, ret_pages, err);

		if (r < 0)
			return r;
	}
	*ret_data = buffer;
	return worker == 0 ? snapshot_step(fold->chain[fold->count - 1], chunk + 1, err) : 0;
}

int snapshot_compact(const struct snapshot *const *chain, size_t count, int fd,
		     struct snapshot_id *ret_id, struct err *err)
{
	struct fold fold = { .chain = chain, .count = count };
	struct output out = { .fd = fd };
	int r = snapshot_check_chain(chain, count, err);

	if (r < 0)
		return r;
	out.header.memory_size = chain[0]->page_count * SNAPSHOT_PAGE;
	fold.buffers = malloc(PARALLEL_WORKERS * (size_t)SNAPSHOT_CHUNK);
	if (!fold.buffers)
		r = err_set(err, ENOMEM, "out of memory");
	if (r == 0)
		r = output_write(&out, &chain[count - 1]->state, fold_chunk, &fold, ret_id,
				 err);
	free(fold.buffers);
	return r;
}
