/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot file's first page: what kind of file it is, and where its sections lie with the
 * digest of each. The page is under a digest of its own, which is the snapshot's id.
 */
#ifndef CASEMATE_SNAPSHOT_HEADER_H
#define CASEMATE_SNAPSHOT_HEADER_H

#include <stdint.h>

#include "snapshot/field.h"
#include "snapshot/file.h"

#define HEADER_VERSION		1u
#define HEADER_X86_64		62u	/* architecture: ELF's EM_X86_64 */
#define HEADER_INCREMENTAL	1u	/* flag */

struct header {
	uint8_t magic[8];
	uint32_t version;
	uint32_t architecture;
	uint32_t flags;
	uint32_t section_count;
	uint64_t file_size;
	uint64_t memory_size;
	uint64_t data_offset;
	uint64_t pages_held;
	uint8_t parent[SNAPSHOT_DIGEST];
	uint8_t id[SNAPSHOT_DIGEST];
	struct snapshot_section sections[SNAPSHOT_SECTIONS_MAX];
};

extern const struct field_table header_table;

/* Sets magic, version, architecture and id, and makes the page. Returns 0 or -errno. */
int header_encode(struct header *header, uint8_t page[SNAPSHOT_PAGE], struct err *err);

/* Checks the digest and each field by itself. Returns 0, or -errno with err set. */
int header_decode(const uint8_t page[SNAPSHOT_PAGE], struct header *ret, struct err *err);

/* Where memory begins when the sections end at `end`. */
static inline uint64_t header_data_offset(uint64_t end)
{
	return (end + SNAPSHOT_CHUNK - 1) / SNAPSHOT_CHUNK * SNAPSHOT_CHUNK;
}

#endif
