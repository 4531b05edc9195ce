/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a snapshot file's header and sections. The file is hostile: the header page is
 * checked by itself, then the layout that it gives (which leaves no choice: the sections
 * follow each other without gaps in the order of their numbers, memory comes at the next
 * multiple of 2 MiB, and the file ends with it), then each section against its digest and
 * its table, then what they say about each other. Only a file that passed everything is
 * given out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "snapshot/digest.h"
#include "snapshot/file.h"
#include "snapshot/header.h"
#include "snapshot/pages.h"
#include "snapshot/sections.h"

#define UNKNOWN_MAX	(16u << 20)	/* bytes of an optional section that we do not know */

/* ---- What is known of sections ---- */

static const struct snapshot_part *part_find(uint32_t type)
{
	for (size_t i = 0; i < SNAPSHOT_PARTS; i++) {
		if (snapshot_parts[i].type == type)
			return &snapshot_parts[i];
	}
	return NULL;
}

const char *snapshot_section_name(uint32_t type)
{
	const struct snapshot_part *part = part_find(type);

	if (part)
		return part->table->name;
	if (type == SNAPSHOT_HELD)
		return "held";
	return type == SNAPSHOT_DIGESTS ? "digests" : "unknown";
}

static uint64_t section_max(uint32_t type, uint64_t memory_size)
{
	const struct snapshot_part *part = part_find(type);

	if (part)
		return field_table_max(part->table);
	if (type == SNAPSHOT_HELD)
		return memory_size / SNAPSHOT_PAGE / 8;
	if (type == SNAPSHOT_DIGESTS)
		return memory_size / SNAPSHOT_CHUNK * SNAPSHOT_DIGEST;
	return UNKNOWN_MAX;
}

static bool section_known(uint32_t type)
{
	return part_find(type) || type == SNAPSHOT_HELD || type == SNAPSHOT_DIGESTS;
}

/* ---- Header and layout ---- */

static int header_read(int fd, uint64_t *ret_file_size, struct header *ret, struct err *err)
{
	uint8_t page[SNAPSHOT_PAGE];
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_set_errno(err, errno, "cannot look at the file");
	if (!S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "this is no regular file");
	if (st.st_size == 0)
		return err_set(err, EINVAL, "the file is empty: the snapshot was not "
			       "finished; save it again");
	if (st.st_size < (off_t)SNAPSHOT_PAGE)
		return err_set(err, EINVAL, "the file has %lld bytes, too few for a snapshot's "
			       "header", (long long)st.st_size);
	r = fd_pread_exact(fd, page, sizeof(page), 0);
	if (r < 0)
		return err_set_errno(err, r, "cannot read the header");
	*ret_file_size = (uint64_t)st.st_size;
	return header_decode(page, ret, err);
}

static int sections_check(const struct header *header, uint64_t *ret_end, struct err *err)
{
	uint64_t end = SNAPSHOT_PAGE;
	uint32_t known = 0;

	for (uint32_t i = 0; i < header->section_count; i++) {
		const struct snapshot_section *section = &header->sections[i];
		const char *name = snapshot_section_name(section->type);

		if (section->type == 0 || (i && section->type <= section[-1].type))
			return err_set(err, EINVAL, "section %s (type %u) is not in order",
				       name, section->type);
		if (section->offset != end)
			return err_set(err, EINVAL, "section %s (type %u) is at %llu, not at "
				       "%llu where the one before ends", name, section->type,
				       (unsigned long long)section->offset,
				       (unsigned long long)end);
		if (section->length > section_max(section->type, header->memory_size))
			return err_set(err, EINVAL, "section %s (type %u) has %llu bytes, "
				       "more than it may", name, section->type,
				       (unsigned long long)section->length);
		if (section_known(section->type))
			known++;
		else if (!(section->flags & SNAPSHOT_SECTION_OPTIONAL))
			return err_set(err, ENOTSUP, "the snapshot has a section of type %u, "
				       "which this Casemate does not know: use a newer one",
				       section->type);
		/* At most 64 times at most 16 MiB: no overflow. */
		end += section->length;
	}
	/* Types rise, so none was counted twice. */
	if (known != SNAPSHOT_PARTS + 2)
		return err_set(err, EINVAL, "the snapshot lacks a section that every one has");
	*ret_end = end;
	return 0;
}

static int layout_check(const struct header *header, uint64_t file_size, struct err *err)
{
	static const uint8_t none[SNAPSHOT_DIGEST];
	bool orphan = !memcmp(header->parent, none, sizeof(none));
	uint64_t end = 0, size;
	int r;

	if (header->memory_size == 0 || header->memory_size % SNAPSHOT_CHUNK)
		return err_set(err, EINVAL, "the header gives memory of %llu bytes, no "
			       "multiple of 2 MiB", (unsigned long long)header->memory_size);
	if (orphan != !(header->flags & HEADER_INCREMENTAL))
		return err_set(err, EINVAL, "the header %s a parent",
			       orphan ? "of an incremental snapshot lacks"
				      : "of a full snapshot has");
	r = sections_check(header, &end, err);
	if (r < 0)
		return r;
	if (header->data_offset != header_data_offset(end))
		return err_set(err, EINVAL, "the header has memory at %llu, not at %llu",
			       (unsigned long long)header->data_offset,
			       (unsigned long long)header_data_offset(end));
	if (__builtin_add_overflow(header->data_offset, header->memory_size, &size) ||
	    size != header->file_size)
		return err_set(err, EINVAL, "the header's sizes do not fit each other");
	if (file_size < size)
		return err_set(err, EINVAL, "the file is cut short: it has %llu bytes of %llu",
			       (unsigned long long)file_size, (unsigned long long)size);
	if (file_size > size)
		return err_set(err, EINVAL, "the file has %llu bytes after its end",
			       (unsigned long long)(file_size - size));
	return 0;
}

/* ---- Sections ---- */

static int held_load(struct snapshot *snapshot, const uint8_t *data, struct err *err)
{
	uint64_t words = snapshot->page_count / 64;

	snapshot->held = calloc(words, sizeof(uint64_t));
	if (!snapshot->held)
		return err_set(err, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < words; i++) {
		for (unsigned int j = 0; j < 8; j++)
			snapshot->held[i] |= (uint64_t)data[8 * i + j] << (8 * j);
	}
	return 0;
}

static int section_load(struct snapshot *snapshot, const struct snapshot_section *section,
			const uint8_t *data, struct err *err)
{
	const struct snapshot_part *part = part_find(section->type);
	uint64_t size = section_max(section->type, snapshot->page_count * SNAPSHOT_PAGE);
	const char *name = snapshot_section_name(section->type);

	if (part)
		return field_decode(part->table, section->version, data, section->length,
				    (uint8_t *)&snapshot->state + part->offset, err);
	if (!section_known(section->type))
		return 0;
	if (section->version != SNAPSHOT_MEMORY_VERSION)
		return err_set(err, ENOTSUP, "section %s has version %u; this Casemate reads "
			       "version %u", name, section->version, SNAPSHOT_MEMORY_VERSION);
	if (section->length != size)
		return err_set(err, EINVAL, "section %s has %llu bytes, not %llu", name,
			       (unsigned long long)section->length, (unsigned long long)size);
	if (section->type == SNAPSHOT_HELD)
		return held_load(snapshot, data, err);
	snapshot->digests = malloc(section->length);
	if (!snapshot->digests)
		return err_set(err, ENOMEM, "out of memory");
	memcpy(snapshot->digests, data, section->length);
	return 0;
}

static int section_read(struct snapshot *snapshot, const struct snapshot_section *section,
			struct err *err)
{
	const char *name = snapshot_section_name(section->type);
	uint8_t *data = malloc(section->length ? section->length : 1);
	uint8_t digest[SNAPSHOT_DIGEST];
	int r;

	if (!data)
		return err_set(err, ENOMEM, "out of memory");
	r = fd_pread_exact(snapshot->fd, data, section->length, section->offset);
	if (r == 0)
		snapshot_digest(data, section->length, digest);
	if (r < 0)
		err_set_errno(err, r, "cannot read section %s", name);
	else if (memcmp(digest, section->digest, SNAPSHOT_DIGEST) != 0)
		r = err_set(err, EINVAL, "section %s (type %u) is damaged (its digest does not "
			    "fit)", name, section->type);
	else
		r = section_load(snapshot, section, data, err);
	free(data);
	return r;
}

/* What sections and header say about each other. */
static int parts_check(struct snapshot *snapshot, const struct header *header, struct err *err)
{
	static const uint8_t none[SNAPSHOT_DIGEST];
	uint64_t pages = 0;

	if (snapshot->state.machine.memory_size != header->memory_size)
		return err_set(err, EINVAL, "machine.memory_size is not the header's");
	for (uint64_t i = 0; i < snapshot->page_count / 64; i++)
		pages += (uint64_t)__builtin_popcountll(snapshot->held[i]);
	if (pages != header->pages_held)
		return err_set(err, EINVAL, "section held has %llu pages, the header %llu",
			       (unsigned long long)pages,
			       (unsigned long long)header->pages_held);
	for (uint64_t i = 0; i < header->memory_size / SNAPSHOT_CHUNK; i++) {
		if (!snapshot_holds(snapshot, i) &&
		    memcmp(snapshot->digests[i], none, sizeof(none)) != 0)
			return err_set(err, EINVAL, "section digests has one for memory at "
				       "0x%llx, where nothing is held",
				       (unsigned long long)(i * SNAPSHOT_CHUNK));
	}
	return 0;
}

/* ---- All of it ---- */

int snapshot_open(struct snapshot *ret, int fd, struct err *err)
{
	struct snapshot snapshot = { .fd = fd };
	struct header header;
	int r = header_read(fd, &snapshot.file_size, &header, err);

	if (r == 0)
		r = layout_check(&header, snapshot.file_size, err);
	if (r < 0)
		return r;
	memcpy(snapshot.id.digest, header.id, SNAPSHOT_DIGEST);
	memcpy(snapshot.parent.digest, header.parent, SNAPSHOT_DIGEST);
	memcpy(snapshot.sections, header.sections, sizeof(snapshot.sections));
	snapshot.section_count = header.section_count;
	snapshot.incremental = header.flags & HEADER_INCREMENTAL;
	snapshot.data_offset = header.data_offset;
	snapshot.page_count = header.memory_size / SNAPSHOT_PAGE;
	snapshot.pages_held = header.pages_held;
	for (uint32_t i = 0; i < header.section_count && r == 0; i++)
		r = section_read(&snapshot, &header.sections[i], err);
	if (r == 0)
		r = parts_check(&snapshot, &header, err);
	if (r < 0) {
		snapshot_close(&snapshot);
		return r;
	}
	*ret = snapshot;
	return 0;
}

int snapshot_peek(int fd, struct snapshot_id *ret_id, struct err *err)
{
	struct header header;
	uint64_t size;
	int r = header_read(fd, &size, &header, err);

	if (r == 0)
		memcpy(ret_id->digest, header.id, SNAPSHOT_DIGEST);
	return r;
}

void snapshot_close(struct snapshot *snapshot)
{
	snapshot_state_done(&snapshot->state);
	free(snapshot->held);
	free(snapshot->digests);
	*snapshot = (struct snapshot){ .fd = -1 };
}
