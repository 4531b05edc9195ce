/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unit tests of snapshot/field.c and of every table of state.c. They are driven by the tables
 * themselves: what is tested of one field is tested of all.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/field.h"
#include "snapshot/header.h"
#include "snapshot/sections.h"
#include "tests/snapshot/sample.h"
#include "tests/unit/cunit_run.h"

#define SEEDS	40u

/* Room for any of the structures, aligned. */
union object {
	struct snapshot_state state;
	struct header header;
};

/* The tables of all sections, and the header's. */
#define TABLES	(SNAPSHOT_PARTS + 1)

static const struct field_table *table_at(size_t i)
{
	return i < SNAPSHOT_PARTS ? snapshot_parts[i].table : &header_table;
}

/* ---- Tables ---- */

static void table_check(const struct field_table *table)
{
	uint32_t end = 0;

	for (uint32_t i = 0; i < table->count; i++) {
		const struct field *field = &table->fields[i];
		uint64_t after = field->offset + (uint64_t)field->stride * field->count;
		bool counted = field->counted == FIELD_NO_COUNT;

		CU_ASSERT(field->count > 0 && after <= table->size);
		CU_ASSERT(field->since >= 1 && field->since <= table->version);
		/* In the structure's order, so none is given twice, and what lies between is
		 * less than a member that was forgotten would be, but for small ones. */
		CU_ASSERT(field->offset >= end && field->offset - end < 8);
		end = (uint32_t)after;
		for (uint32_t j = 0; j < i; j++) {
			const struct field *count = &table->fields[j];

			CU_ASSERT(strcmp(count->name, field->name) != 0);
			if (count->offset != field->counted)
				continue;
			counted = true;
			CU_ASSERT_EQUAL(count->size, sizeof(uint32_t));
			CU_ASSERT_EQUAL(count->check, FIELD_MAX);
			CU_ASSERT_EQUAL(count->limit, field->count);
		}
		CU_ASSERT(counted);
		if (field->type == FIELD_TYPE_STRUCT) {
			CU_ASSERT_EQUAL(field->table->size, field->size);
			table_check(field->table);
		} else if (field->type == FIELD_TYPE_VARYING) {
			CU_ASSERT_EQUAL(field->stride, sizeof(struct snapshot_bytes));
		} else if (field->type == FIELD_TYPE_NUMBER) {
			CU_ASSERT(field->size == 1 || field->size == 2 || field->size == 4 ||
				  field->size == 8);
		}
		for (uint32_t j = 0; field->names && j < field->count; j++)
			CU_ASSERT_PTR_NOT_NULL(field->names[j]);
	}
	CU_ASSERT(table->size - end < 8);
}

static void test_tables(void)
{
	for (size_t i = 0; i < TABLES; i++) {
		table_check(table_at(i));
		CU_ASSERT(field_table_max(table_at(i)) < (1u << 20));
	}
	CU_ASSERT(field_table_max(&header_table) <= SNAPSHOT_PAGE);
	for (size_t i = 1; i < SNAPSHOT_PARTS; i++)
		CU_ASSERT(snapshot_parts[i - 1].type < snapshot_parts[i].type);
}

/* ---- Round trip ---- */

struct encoded {
	uint8_t *data;
	size_t size;
};

static struct encoded encode(const struct field_table *table, const void *object)
{
	struct encoded encoded = { NULL, 0 };
	struct err err = ERR_INIT;

	CU_ASSERT_EQUAL(field_encode(table, object, &encoded.data, &encoded.size, &err), 0);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	return encoded;
}

/* Compares leaf by leaf: the structures have padding. */
struct leaves {
	uint64_t sums[20000];
	size_t count;
};

static int leaf_note(void *arg, const struct field *field, const char *path, void *at)
{
	struct leaves *leaves = arg;
	const struct snapshot_bytes *bytes = at;
	const uint8_t *data = at;
	size_t size = field->size;
	uint64_t sum = 14695981039346656037u;

	if (field->type == FIELD_TYPE_VARYING) {
		data = bytes->data;
		size = bytes->size;
	}
	for (; *path; path++)
		sum = (sum ^ (uint8_t)*path) * 1099511628211u;
	for (size_t i = 0; i < size; i++)
		sum = (sum ^ data[i]) * 1099511628211u;
	leaves->sums[leaves->count++] = sum;
	return 0;
}

static void round_trip(const struct field_table *table, uint64_t seed, uint32_t many)
{
	static union object a, b;
	static struct leaves x, y;
	struct err err = ERR_INIT;
	struct encoded first, second;

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	x.count = y.count = 0;
	sample_object(table, &a, &seed, many);
	first = encode(table, &a);
	CU_ASSERT(first.size <= field_table_max(table));
	CU_ASSERT_EQUAL(field_decode(table, table->version, first.data, first.size, &b, &err),
			0);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	field_visit(table, &a, leaf_note, &x);
	field_visit(table, &b, leaf_note, &y);
	CU_ASSERT(x.count > 0 && x.count == y.count);
	CU_ASSERT_EQUAL(memcmp(x.sums, y.sums, x.count * sizeof(x.sums[0])), 0);
	second = encode(table, &b);
	CU_ASSERT(first.size == second.size);
	CU_ASSERT_EQUAL(memcmp(first.data, second.data, first.size), 0);
	free(first.data);
	free(second.data);
	field_done(table, &a);
	field_done(table, &b);
	for (size_t i = 0; i < table->size; i++)
		CU_ASSERT_EQUAL(((const uint8_t *)&a)[i], 0);
}

static void test_round_trip(void)
{
	for (size_t i = 0; i < TABLES; i++) {
		for (uint64_t seed = 1; seed <= SEEDS; seed++)
			round_trip(table_at(i), seed, seed % 8 ? 300 : UINT32_MAX);
	}
}

/* ---- Refusals ---- */

/* The offsets of numbers with limits in the encoding. */
struct limits {
	size_t at;
	struct limit {
		const struct field *field;
		size_t at;
		char path[128];
	} limits[3000];
	size_t count;
};

static int limit_note(void *arg, const struct field *field, const char *path, void *at)
{
	const struct snapshot_bytes *bytes = at;
	struct limits *limits = arg;
	struct limit *limit = &limits->limits[limits->count];

	if (field->check != FIELD_ANY) {
		limit->field = field;
		limit->at = limits->at;
		snprintf(limit->path, sizeof(limit->path), "%s ", path);
		limits->count++;
	}
	limits->at += field->type == FIELD_TYPE_VARYING ? 4 + bytes->size : field->size;
	return 0;
}

/* Decoding must fail with a line about this place, and leave nothing that cannot be freed. */
static void refused(const struct field_table *table, const uint8_t *data, size_t size,
		    const char *text)
{
	static union object object;
	struct err err = ERR_INIT;
	int r;

	memset(&object, 0, sizeof(object));
	r = field_decode(table, table->version, data, size, &object, &err);
	CU_ASSERT(r == -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, text));
	field_done(table, &object);
}

static bool number_exceed(const struct field *field, uint8_t *at)
{
	uint64_t most = field->size == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * field->size)) - 1;
	uint64_t value = field->limit + 1;

	if (field->limit >= most)
		return false;
	if (field->check == FIELD_MASK)
		value = most ^ field->limit;
	for (uint32_t i = 0; i < field->size; i++)
		at[i] = (uint8_t)(value >> 8 * i);
	return true;
}

static void test_limits(void)
{
	static union object object;
	static struct limits limits;

	for (size_t i = 0; i < TABLES; i++) {
		const struct field_table *table = table_at(i);
		struct encoded encoded;
		uint64_t seed = 99;

		memset(&object, 0, sizeof(object));
		limits = (struct limits){ .at = 0 };
		sample_object(table, &object, &seed, 40);
		field_visit(table, &object, limit_note, &limits);
		encoded = encode(table, &object);
		CU_ASSERT_EQUAL(limits.at, encoded.size);
		CU_ASSERT(limits.count > 0);
		for (size_t j = 0; j < limits.count; j++) {
			const struct limit *limit = &limits.limits[j];
			uint8_t before[8];

			memcpy(before, encoded.data + limit->at, limit->field->size);
			if (number_exceed(limit->field, encoded.data + limit->at))
				refused(table, encoded.data, encoded.size, limit->path);
			memcpy(encoded.data + limit->at, before, limit->field->size);
		}
		free(encoded.data);
		field_done(table, &object);
	}
}

static void test_lengths(void)
{
	static union object object;

	for (size_t i = 0; i < TABLES; i++) {
		const struct field_table *table = table_at(i);
		struct encoded encoded;
		uint8_t *copy;
		uint64_t seed = 5;

		memset(&object, 0, sizeof(object));
		sample_object(table, &object, &seed, 20);
		encoded = encode(table, &object);
		for (size_t size = 0; size < encoded.size; size++) {
			/* Its own memory of that size, for the sanitizer. */
			copy = malloc(size ? size : 1);
			memcpy(copy, encoded.data, size);
			refused(table, copy, size, table->name);
			free(copy);
		}
		copy = calloc(1, encoded.size + 1);
		memcpy(copy, encoded.data, encoded.size);
		refused(table, copy, encoded.size + 1, "1 bytes too many");
		free(copy);
		free(encoded.data);
		field_done(table, &object);
	}
}

/* What cannot be loaded is not saved. */
static void test_encode_refuses(void)
{
	static struct saved_vcpu vcpu;
	const struct field_table *table = snapshot_parts[2].table;
	struct err err = ERR_INIT;
	uint8_t *data = NULL;
	size_t size = 7;

	vcpu.segments[5].present = 2;
	CU_ASSERT_EQUAL(field_encode(table, &vcpu, &data, &size, &err), -EINVAL);
	CU_ASSERT_STRING_EQUAL(err.text, "vcpu.segments.ss.present is 2, more than 1");
	CU_ASSERT(data == NULL && size == 7);
	vcpu.segments[5].present = 1;
	vcpu.msr_count = SNAPSHOT_MSRS_MAX + 1;
	err.code = 0;
	CU_ASSERT_EQUAL(field_encode(table, &vcpu, &data, &size, &err), -EINVAL);
	CU_ASSERT_STRING_EQUAL(err.text, "vcpu.msr_count is 33, more than 32");
	vcpu.msr_count = 0;
	vcpu.xsave.size = SNAPSHOT_XSAVE_MAX + 1;
	err.code = 0;
	CU_ASSERT_EQUAL(field_encode(table, &vcpu, &data, &size, &err), -EINVAL);
	CU_ASSERT_STRING_EQUAL(err.text, "vcpu.xsave is too long to be saved");
}

/* ---- Versions ---- */

struct old_new {
	uint32_t first;
	uint16_t second;
	uint64_t third;
	uint8_t last;
};

static const struct field old_fields[] = {
	FIELD_NUMBER(struct old_new, first, FIELD_DECIMAL),
	FIELD_BOOL(struct old_new, last),
};
static const struct field new_fields[] = {
	FIELD_NUMBER(struct old_new, first, FIELD_DECIMAL),
	FIELD_NUMBER_SINCE(struct old_new, second, FIELD_DECIMAL, 2, 77),
	FIELD_NUMBER_SINCE(struct old_new, third, FIELD_HEX, 3, 0xabc),
	FIELD_BOOL(struct old_new, last),
};

static void test_versions(void)
{
	static const struct field_table v1 = FIELD_TABLE("t", 1, struct old_new, old_fields);
	static const struct field_table v3 = FIELD_TABLE("t", 3, struct old_new, new_fields);
	struct old_new in = { 5, 6, 7, 1 }, out = { 0 };
	struct encoded old = encode(&v1, &in), new = encode(&v3, &in);
	struct err err = ERR_INIT;

	CU_ASSERT_EQUAL(old.size, 5);
	CU_ASSERT_EQUAL(new.size, 15);
	CU_ASSERT_EQUAL(field_decode(&v3, 1, old.data, old.size, &out, &err), 0);
	CU_ASSERT(out.first == 5 && out.second == 77 && out.third == 0xabc && out.last == 1);
	CU_ASSERT_EQUAL(field_decode(&v3, 3, new.data, new.size, &out, &err), 0);
	CU_ASSERT(out.first == 5 && out.second == 6 && out.third == 7 && out.last == 1);
	CU_ASSERT(field_decode(&v3, 2, new.data, new.size, &out, &err) < 0);
	err.code = 0;
	CU_ASSERT_EQUAL(field_decode(&v3, 4, new.data, new.size, &out, &err), -ENOTSUP);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "version 4"));
	CU_ASSERT_EQUAL(field_decode(&v3, 0, new.data, new.size, &out, &err), -ENOTSUP);
	free(old.data);
	free(new.data);
}

static void test_little_endian(void)
{
	static const struct field_table v3 = FIELD_TABLE("t", 3, struct old_new, new_fields);
	static const uint8_t want[] = {
		4, 3, 2, 1, 6, 5, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 9, 8, 7, 1,
	};
	struct old_new in = { 0x01020304, 0x0506, 0x0708090a0b0c0d0e, 1 };
	struct encoded out = encode(&v3, &in);

	CU_ASSERT_EQUAL(out.size, sizeof(want));
	CU_ASSERT_EQUAL(memcmp(out.data, want, sizeof(want)), 0);
	free(out.data);
}

int main(void)
{
	CU_pSuite suite = cunit_suite("snapshot fields", NULL, NULL);

	CU_add_test(suite, "tables", test_tables);
	CU_add_test(suite, "round trip", test_round_trip);
	CU_add_test(suite, "limits", test_limits);
	CU_add_test(suite, "lengths", test_lengths);
	CU_add_test(suite, "encoding refuses", test_encode_refuses);
	CU_add_test(suite, "versions", test_versions);
	CU_add_test(suite, "little endian", test_little_endian);
	return cunit_run();
}
