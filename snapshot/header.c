/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first page; see header.h. It is a table of fields like every section, with zeros up to
 * the page's end; only what tells its version apart is looked at before.
 */
#include "snapshot/header.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/layout.h"
#include "snapshot/digest.h"
#include "snapshot/pages.h"

/* Bytes in the page, the same in all versions. */
#define MAGIC_AT	0u
#define VERSION_AT	8u
#define ID_AT		88u

/* A text-mode transfer or a NUL-terminated copy does not survive it. */
static const uint8_t magic[8] = { 0x8c, 'C', 'M', 'S', 'N', '\r', '\n', 0 };

static const struct field section_fields[] = {
	FIELD_NUMBER(struct snapshot_section, type, FIELD_DECIMAL),
	FIELD_NUMBER(struct snapshot_section, version, FIELD_DECIMAL),
	FIELD_NUMBER_MASK(struct snapshot_section, flags, SNAPSHOT_SECTION_OPTIONAL),
	FIELD_NUMBER(struct snapshot_section, offset, FIELD_DECIMAL),
	FIELD_NUMBER(struct snapshot_section, length, FIELD_DECIMAL),
	FIELD_BYTES(struct snapshot_section, digest),
};
static const struct field_table section_table =
	FIELD_TABLE("section", 1, struct snapshot_section, section_fields);

static const struct field header_fields[] = {
	FIELD_BYTES(struct header, magic),
	FIELD_NUMBER(struct header, version, FIELD_DECIMAL),
	FIELD_NUMBER(struct header, architecture, FIELD_DECIMAL),
	FIELD_NUMBER_MASK(struct header, flags, HEADER_INCREMENTAL),
	FIELD_NUMBER_MAX(struct header, section_count, FIELD_DECIMAL, SNAPSHOT_SECTIONS_MAX),
	FIELD_NUMBER_MAX(struct header, file_size, FIELD_DECIMAL, INT64_MAX),
	FIELD_NUMBER_MAX(struct header, memory_size, FIELD_DECIMAL, CM_RAM_MAX),
	FIELD_NUMBER_MAX(struct header, data_offset, FIELD_DECIMAL, 1ull << 40),
	FIELD_NUMBER(struct header, pages_held, FIELD_DECIMAL),
	FIELD_BYTES(struct header, parent),
	FIELD_BYTES(struct header, id),
	FIELD_STRUCTS_COUNTED(struct header, sections, section_count, &section_table),
};
const struct field_table header_table =
	FIELD_TABLE("header", 1, struct header, header_fields);

static void page_digest(const uint8_t page[SNAPSHOT_PAGE], uint8_t ret[SNAPSHOT_DIGEST])
{
	uint8_t copy[SNAPSHOT_PAGE];

	memcpy(copy, page, SNAPSHOT_PAGE);
	memset(copy + ID_AT, 0, SNAPSHOT_DIGEST);
	snapshot_digest(copy, sizeof(copy), ret);
}

int header_encode(struct header *header, uint8_t page[SNAPSHOT_PAGE], struct err *err)
{
	uint8_t *data;
	size_t size;
	int r;

	memcpy(header->magic, magic, sizeof(magic));
	header->version = HEADER_VERSION;
	header->architecture = HEADER_X86_64;
	memset(header->id, 0, SNAPSHOT_DIGEST);
	r = field_encode(&header_table, header, &data, &size, err);
	if (r < 0)
		return r;
	assert(size <= SNAPSHOT_PAGE);
	memset(page, 0, SNAPSHOT_PAGE);
	memcpy(page, data, size);
	free(data);
	snapshot_digest(page, SNAPSHOT_PAGE, header->id);
	memcpy(page + ID_AT, header->id, SNAPSHOT_DIGEST);
	return 0;
}

/* How many bytes of the page the table takes: all but the sections is of fixed size. */
static size_t header_size(uint32_t sections)
{
	size_t section = field_table_max(&section_table);

	return field_table_max(&header_table) - (SNAPSHOT_SECTIONS_MAX - sections) * section;
}

static uint32_t u32_at(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	       (uint32_t)at[3] << 24;
}

int header_decode(const uint8_t page[SNAPSHOT_PAGE], struct header *ret, struct err *err)
{
	uint8_t digest[SNAPSHOT_DIGEST];
	struct header header = { 0 };
	uint32_t count;
	size_t size;
	int r;

	if (page_is_zero(page))
		return err_set(err, EINVAL, "the snapshot was not finished: whatever wrote it "
			       "ended too early; save it again");
	if (memcmp(page + MAGIC_AT, magic, sizeof(magic)) != 0)
		return err_set(err, EINVAL, "this is no snapshot file");
	if (u32_at(page + VERSION_AT) != HEADER_VERSION)
		return err_set(err, ENOTSUP, "the file's format has version %u; this Casemate "
			       "reads version %u", (unsigned int)u32_at(page + VERSION_AT),
			       HEADER_VERSION);
	page_digest(page, digest);
	if (memcmp(digest, page + ID_AT, SNAPSHOT_DIGEST) != 0)
		return err_set(err, EINVAL, "the header is damaged (its digest does not fit)");
	count = u32_at(page + 20);
	size = header_size(count <= SNAPSHOT_SECTIONS_MAX ? count : SNAPSHOT_SECTIONS_MAX);
	r = field_decode(&header_table, header_table.version, page, size, &header, err);
	if (r < 0)
		return r;
	if (header.architecture != HEADER_X86_64)
		return err_set(err, ENOTSUP, "the snapshot is of machine architecture %u; "
			       "only %u (x86-64) can be restored", header.architecture,
			       HEADER_X86_64);
	for (size_t i = size; i < SNAPSHOT_PAGE; i++) {
		if (page[i])
			return err_set(err, EINVAL, "the header has bytes after its end, "
				       "at %zu", i);
	}
	*ret = header;
	return 0;
}
