/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up snapshots; see sample.h. Counts are visited before the arrays that they count, so
 * one walk fills everything. */
#include "tests/snapshot/sample.h"

#include <stdlib.h>
#include <string.h>

#include "snapshot/field.h"
#include "snapshot/sections.h"

struct fill {
	uint64_t *random;
	uint32_t many;
};

uint64_t sample_next(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random * UINT64_C(0x2545f4914f6cdd1d);
}

static uint64_t number_sample(const struct field *field, const struct fill *fill)
{
	uint64_t value = sample_next(fill->random), how = sample_next(fill->random) % 8;
	uint64_t most = field->size == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * field->size)) - 1;

	if (field->check == FIELD_MASK)
		return how == 0 ? field->limit : value & field->limit;
	if (field->check == FIELD_MAX)
		most = field->limit;
	/* A table's only plain counts are those whose limit is an array's size. */
	if (strstr(field->name, "count") && most > fill->many)
		most = fill->many;
	if (how < 2)
		return how == 0 ? most : 0;
	return most == UINT64_MAX ? value : value % (most + 1);
}

static int field_sample(void *arg, const struct field *field, const char *path, void *at)
{
	const struct fill *fill = arg;
	struct snapshot_bytes *bytes = at;
	uint32_t size;

	(void)path;
	switch (field->type) {
	case FIELD_TYPE_NUMBER:
	case FIELD_TYPE_BOOL:
		field_number_set(field, at, number_sample(field, fill));
		break;
	case FIELD_TYPE_BYTES:
		for (uint32_t i = 0; i < field->size; i++)
			((uint8_t *)at)[i] = (uint8_t)sample_next(fill->random);
		break;
	case FIELD_TYPE_VARYING:
		size = field->size < fill->many ? field->size : fill->many;
		size = (uint32_t)(sample_next(fill->random) % (size + 1));
		free(bytes->data);
		bytes->data = size ? malloc(size) : NULL;
		bytes->size = size;
		if (size && !bytes->data)
			abort();
		for (uint32_t i = 0; i < size; i++)
			bytes->data[i] = (uint8_t)(sample_next(fill->random) | 1);
		break;
	case FIELD_TYPE_STRUCT:
		break;
	}
	return 0;
}

void sample_object(const struct field_table *table, void *object, uint64_t *random,
		   uint32_t many)
{
	struct fill fill = { random, many };

	field_visit(table, object, field_sample, &fill);
}

void sample_state(struct snapshot_state *state, uint64_t memory_size, uint64_t seed,
		  uint32_t many)
{
	memset(state, 0, sizeof(*state));
	for (size_t i = 0; i < SNAPSHOT_PARTS; i++)
		sample_object(snapshot_parts[i].table,
			      (uint8_t *)state + snapshot_parts[i].offset, &seed, many);
	state->machine.memory_size = memory_size;
}

void sample_memory(uint8_t *memory, uint64_t size, uint64_t seed, unsigned int per_mille,
		   uint64_t *dirty)
{
	for (uint64_t page = 0; page < size / SNAPSHOT_PAGE; page++) {
		uint8_t *at = memory + page * SNAPSHOT_PAGE;
		uint64_t dice = sample_next(&seed) % 1000;

		if (dice >= per_mille + 20)
			continue;
		if (dice >= per_mille)
			memset(at, 0, SNAPSHOT_PAGE);
		for (uint64_t i = 0; i < SNAPSHOT_PAGE && dice < per_mille; i += 8) {
			uint64_t value = sample_next(&seed);

			memcpy(at + i, &value, sizeof(value));
		}
		if (dirty)
			dirty[page / 64] |= UINT64_C(1) << page % 64;
	}
}
