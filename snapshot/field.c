/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine behind tables of fields; see field.h.
 *
 * Each of encode, decode and visit walks table and structure together, one call a table. A
 * chain of struct place on the stack says where the walk is; it becomes text only when
 * somebody is to be told.
 */
#include "snapshot/field.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/state.h"

#define PATH_TEXT_MAX	128u

struct place {
	const struct place *up;
	const struct field *field;	/* NULL: the table itself */
	const char *name;
	uint32_t index;			/* of the element */
};

struct writer {
	uint8_t *at;		/* NULL: only counts */
	size_t size;
};

struct reader {
	const uint8_t *at;
	size_t left;
	uint16_t version;
};

/* ---- Places ---- */

static size_t place_text(const struct place *place, char *text, size_t size)
{
	size_t used = place->up ? place_text(place->up, text, size) : 0;
	const char *dot = place->up ? "." : "";
	const struct field *field = place->field;
	int n;

	if (!field || field->count == 1)
		n = snprintf(text + used, size - used, "%s%s", dot, place->name);
	else if (field->names)
		n = snprintf(text + used, size - used, "%s%s.%s", dot, place->name,
			     field->names[place->index]);
	else
		n = snprintf(text + used, size - used, "%s%s[%u]", dot, place->name,
			     (unsigned int)place->index);
	used += n > 0 ? (size_t)n : 0;
	return used < size ? used : size - 1;
}

static int place_fail(const struct place *place, struct err *err, int code, const char *what)
{
	char text[PATH_TEXT_MAX];

	place_text(place, text, sizeof(text));
	return err_set(err, code, "%s %s", text, what);
}

/* ---- Numbers ---- */

uint64_t field_number_get(const struct field *field, const void *at)
{
	uint16_t u16;
	uint32_t u32;
	uint64_t u64;

	switch (field->size) {
	case 1:
		return *(const uint8_t *)at;
	case 2:
		memcpy(&u16, at, sizeof(u16));
		return u16;
	case 4:
		memcpy(&u32, at, sizeof(u32));
		return u32;
	default:
		memcpy(&u64, at, sizeof(u64));
		return u64;
	}
}

void field_number_set(const struct field *field, void *at, uint64_t value)
{
	uint16_t u16 = (uint16_t)value;
	uint32_t u32 = (uint32_t)value;

	switch (field->size) {
	case 1:
		*(uint8_t *)at = (uint8_t)value;
		break;
	case 2:
		memcpy(at, &u16, sizeof(u16));
		break;
	case 4:
		memcpy(at, &u32, sizeof(u32));
		break;
	default:
		memcpy(at, &value, sizeof(value));
		break;
	}
}

static int number_check(const struct field *field, uint64_t value, const struct place *place,
			struct err *err)
{
	char what[96];

	if (field->check == FIELD_MAX && value > field->limit)
		snprintf(what, sizeof(what), "is %llu, more than %llu",
			 (unsigned long long)value, (unsigned long long)field->limit);
	else if (field->check == FIELD_MASK && (value & ~field->limit))
		snprintf(what, sizeof(what), "is 0x%llx; only bits of 0x%llx are known",
			 (unsigned long long)value, (unsigned long long)field->limit);
	else
		return 0;
	return place_fail(place, err, EINVAL, what);
}

static int text_check(const struct field *field, const void *data, size_t size,
		      const struct place *place, struct err *err)
{
	if (field->show == FIELD_TEXT && size && memchr(data, 0, size))
		return place_fail(place, err, EINVAL, "has a NUL in its text");
	return 0;
}

/* How many elements the structure says there are; more than fit are never believed. */
static uint32_t elements_used(const struct field *field, const uint8_t *object)
{
	uint32_t count = field->count;

	if (field->counted != FIELD_NO_COUNT)
		memcpy(&count, object + field->counted, sizeof(count));
	return count < field->count ? count : field->count;
}

/* ---- Encoding ---- */

static void put(struct writer *out, const void *data, size_t size)
{
	if (out->at && size)
		memcpy(out->at + out->size, data, size);
	out->size += size;
}

static void put_number(struct writer *out, uint64_t value, uint32_t size)
{
	uint8_t bytes[8];

	for (uint32_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	put(out, bytes, size);
}

static int table_encode(const struct field_table *table, const uint8_t *object,
			struct writer *out, const struct place *up, struct err *err);

static int element_encode(const struct field *field, const uint8_t *at, struct writer *out,
			  const struct place *place, struct err *err)
{
	const struct snapshot_bytes *bytes = (const void *)at;
	uint64_t value;
	int r;

	switch (field->type) {
	case FIELD_TYPE_NUMBER:
	case FIELD_TYPE_BOOL:
		value = field_number_get(field, at);
		r = number_check(field, value, place, err);
		if (r == 0)
			put_number(out, value, field->size);
		return r;
	case FIELD_TYPE_BYTES:
		put(out, at, field->size);
		return 0;
	case FIELD_TYPE_VARYING:
		if (bytes->size > field->size)
			return place_fail(place, err, EINVAL, "is too long to be saved");
		r = text_check(field, bytes->data, bytes->size, place, err);
		put_number(out, bytes->size, sizeof(bytes->size));
		put(out, bytes->data, bytes->size);
		return r;
	case FIELD_TYPE_STRUCT:
		return table_encode(field->table, at, out, place, err);
	}
	return -EINVAL;
}

static int table_encode(const struct field_table *table, const uint8_t *object,
			struct writer *out, const struct place *up, struct err *err)
{
	for (uint32_t i = 0; i < table->count; i++) {
		const struct field *field = &table->fields[i];
		uint32_t count = elements_used(field, object);

		for (uint32_t j = 0; j < count; j++) {
			struct place place = { up, field, field->name, j };
			const uint8_t *at = object + field->offset + j * field->stride;
			int r = element_encode(field, at, out, &place, err);

			if (r < 0)
				return r;
		}
	}
	return 0;
}

int field_encode(const struct field_table *table, const void *object, uint8_t **ret_data,
		 size_t *ret_size, struct err *err)
{
	struct place place = { NULL, NULL, table->name, 0 };
	struct writer out = { NULL, 0 };
	int r = table_encode(table, object, &out, &place, err);

	if (r < 0)
		return r;
	out.at = malloc(out.size ? out.size : 1);
	if (!out.at)
		return err_set(err, ENOMEM, "out of memory");
	out.size = 0;
	r = table_encode(table, object, &out, &place, err);
	if (r < 0) {
		free(out.at);
		return r;
	}
	*ret_data = out.at;
	*ret_size = out.size;
	return 0;
}

uint64_t field_table_max(const struct field_table *table)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < table->count; i++) {
		const struct field *field = &table->fields[i];
		uint64_t one = field->size;

		if (field->type == FIELD_TYPE_VARYING)
			one += sizeof(uint32_t);
		else if (field->type == FIELD_TYPE_STRUCT)
			one = field_table_max(field->table);
		sum += one * field->count;
	}
	return sum;
}

/* ---- Decoding ---- */

static const uint8_t *take(struct reader *in, size_t size)
{
	const uint8_t *at = in->at;

	if (size > in->left)
		return NULL;
	in->at += size;
	in->left -= size;
	return at;
}

static bool take_number(struct reader *in, uint32_t size, uint64_t *ret_value)
{
	const uint8_t *at = take(in, size);
	uint64_t value = 0;

	if (!at)
		return false;
	for (uint32_t i = 0; i < size; i++)
		value |= (uint64_t)at[i] << (8 * i);
	*ret_value = value;
	return true;
}

static int table_decode(const struct field_table *table, struct reader *in, uint8_t *object,
			const struct place *up, struct err *err);

static int varying_decode(const struct field *field, struct reader *in,
			  struct snapshot_bytes *bytes, const struct place *place,
			  struct err *err)
{
	const uint8_t *from;
	uint64_t size;
	int r;

	if (!take_number(in, sizeof(bytes->size), &size))
		return place_fail(place, err, EINVAL, "is beyond the section's end");
	if (size > field->size)
		return place_fail(place, err, EINVAL, "is longer than it may be");
	from = take(in, size);
	if (!from)
		return place_fail(place, err, EINVAL, "goes beyond the section's end");
	r = text_check(field, from, size, place, err);
	if (r == 0 && snapshot_bytes_set(bytes, from, (uint32_t)size) < 0)
		r = place_fail(place, err, ENOMEM, "does not fit into memory");
	return r;
}

static int element_decode(const struct field *field, struct reader *in, uint8_t *at,
			  const struct place *place, struct err *err)
{
	const uint8_t *from;
	uint64_t value = field->initial;
	bool held = field->since <= in->version;
	int r;

	switch (field->type) {
	case FIELD_TYPE_NUMBER:
	case FIELD_TYPE_BOOL:
		if (held && !take_number(in, field->size, &value))
			return place_fail(place, err, EINVAL, "is beyond the section's end");
		r = number_check(field, value, place, err);
		if (r == 0)
			field_number_set(field, at, value);
		return r;
	case FIELD_TYPE_BYTES:
		if (!held)
			return 0;
		from = take(in, field->size);
		if (!from)
			return place_fail(place, err, EINVAL, "is beyond the section's end");
		memcpy(at, from, field->size);
		return 0;
	case FIELD_TYPE_VARYING:
		return held ? varying_decode(field, in, (void *)at, place, err) : 0;
	case FIELD_TYPE_STRUCT:
		return table_decode(field->table, in, at, place, err);
	}
	return -EINVAL;
}

static int table_decode(const struct field_table *table, struct reader *in, uint8_t *object,
			const struct place *up, struct err *err)
{
	for (uint32_t i = 0; i < table->count; i++) {
		const struct field *field = &table->fields[i];
		uint32_t count = elements_used(field, object);

		/* A structure that the version lacks: as if each of its fields was. */
		for (uint32_t j = 0; j < count; j++) {
			struct place place = { up, field, field->name, j };
			struct reader none = { NULL, 0, 0 };
			bool lacks = field->since > in->version;
			int r = element_decode(field, lacks ? &none : in,
					       object + field->offset + j * field->stride,
					       &place, err);

			if (r < 0)
				return r;
		}
	}
	return 0;
}

int field_decode(const struct field_table *table, uint16_t version, const uint8_t *data,
		 size_t size, void *object, struct err *err)
{
	struct place place = { NULL, NULL, table->name, 0 };
	struct reader in = { data, size, version };
	int r;

	if (version == 0 || version > table->version)
		return err_set(err, ENOTSUP, "section %s has version %u; this Casemate reads "
			       "up to %u: use a newer one", table->name,
			       (unsigned int)version, (unsigned int)table->version);
	r = table_decode(table, &in, object, &place, err);
	if (r == 0 && in.left)
		r = err_set(err, EINVAL, "section %s has %zu bytes too many", table->name,
			    in.left);
	return r;
}

/* ---- Walking ---- */

static int table_visit(const struct field_table *table, uint8_t *object,
		       const struct place *up, field_visitor *visit, void *arg)
{
	for (uint32_t i = 0; i < table->count; i++) {
		const struct field *field = &table->fields[i];
		uint32_t count = elements_used(field, object);

		for (uint32_t j = 0; j < count; j++) {
			struct place place = { up, field, field->name, j };
			uint8_t *at = object + field->offset + j * field->stride;
			char path[PATH_TEXT_MAX];
			int r;

			if (field->type == FIELD_TYPE_STRUCT) {
				r = table_visit(field->table, at, &place, visit, arg);
			} else {
				place_text(&place, path, sizeof(path));
				r = visit(arg, field, path, at);
			}
			if (r)
				return r;
		}
	}
	return 0;
}

int field_visit(const struct field_table *table, void *object, field_visitor *visit, void *arg)
{
	struct place place = { NULL, NULL, table->name, 0 };

	return table_visit(table, object, &place, visit, arg);
}

/* All elements, not only those counted: a failed decode may have left any of them. */
static void table_free(const struct field_table *table, uint8_t *object)
{
	for (uint32_t i = 0; i < table->count; i++) {
		const struct field *field = &table->fields[i];

		for (uint32_t j = 0; j < field->count; j++) {
			uint8_t *at = object + field->offset + j * field->stride;

			if (field->type == FIELD_TYPE_VARYING)
				free(((struct snapshot_bytes *)(void *)at)->data);
			else if (field->type == FIELD_TYPE_STRUCT)
				table_free(field->table, at);
		}
	}
}

void field_done(const struct field_table *table, void *object)
{
	table_free(table, object);
	memset(object, 0, table->size);
}
