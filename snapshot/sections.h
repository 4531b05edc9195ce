/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sections of a snapshot file, in the order of their numbers, which is their order in the
 * file. Those of the state come from one table; the two about memory are not made of fields.
 */
#ifndef CASEMATE_SNAPSHOT_SECTIONS_H
#define CASEMATE_SNAPSHOT_SECTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "snapshot/field.h"

enum snapshot_section_type {
	SNAPSHOT_MACHINE = 1,
	SNAPSHOT_CPUID = 2,
	SNAPSHOT_VCPU = 3,
	SNAPSHOT_CONSOLE = 4,
	SNAPSHOT_HELD = 64,	/* one bit a page: whether the file holds it */
	SNAPSHOT_DIGESTS = 65,	/* one SHA-256 a chunk */
};

#define SNAPSHOT_MEMORY_VERSION	1u	/* of the last two */

struct snapshot_part {
	enum snapshot_section_type type;
	size_t offset;			/* in struct snapshot_state */
	const struct field_table *table;
};

#define SNAPSHOT_PARTS	4u
extern const struct snapshot_part snapshot_parts[SNAPSHOT_PARTS];

/* "unknown" where it is not. Static text. */
const char *snapshot_section_name(uint32_t type);

#endif
