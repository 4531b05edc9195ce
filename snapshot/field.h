/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of fields: one description of a structure drives its encoding, its decoding with all
 * checks, its printing, and what tests and fuzzers do to it.
 *
 * Encoded, a table is its fields one after the other in the table's order, with no padding:
 * numbers little-endian in the width of the structure's member, a truth value as one byte of
 * 0 or 1, bytes of fixed size as they are, bytes of varying size after a 32-bit count of them,
 * structures and arrays element by element. An array whose length varies is counted by a
 * 32-bit number that comes before it in the same table.
 *
 * A table has a version. A field carries the first version that has it; decoding what an older
 * version wrote gives later fields their initial value. Encoding is always in the newest
 * version. Both refuse values that the table does not allow, so that what was written can be
 * read. The structures are the caller's and belong to one thread.
 */
#ifndef CASEMATE_SNAPSHOT_FIELD_H
#define CASEMATE_SNAPSHOT_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum field_type {
	FIELD_TYPE_NUMBER,	/* unsigned, 1, 2, 4 or 8 bytes */
	FIELD_TYPE_BOOL,	/* a byte */
	FIELD_TYPE_BYTES,	/* a fixed number of bytes */
	FIELD_TYPE_VARYING,	/* struct snapshot_bytes */
	FIELD_TYPE_STRUCT,	/* of a table of its own */
};

enum field_check {
	FIELD_ANY,
	FIELD_MAX,	/* a number that is at most `limit` */
	FIELD_MASK,	/* a number with no bits but those of `limit` */
};

enum field_show {
	FIELD_DECIMAL,
	FIELD_HEX,
	FIELD_TEXT,	/* bytes without a NUL among them */
};

#define FIELD_NO_COUNT	UINT32_MAX

struct field_table;

struct field {
	const char *name;
	enum field_type type;
	enum field_show show;
	uint32_t offset;	/* in the structure */
	uint32_t size;		/* of an element there; VARYING: how many bytes it may hold */
	uint32_t stride;	/* from one element to the next */
	uint32_t count;		/* elements, at most */
	uint32_t counted;	/* offset of the number that says how many, FIELD_NO_COUNT: all */
	enum field_check check;
	uint64_t limit;
	uint64_t initial;	/* a number's, where the file's version lacks it */
	uint16_t since;		/* version */
	const char *const *names;	/* of the elements; NULL: by index */
	const struct field_table *table;	/* of a STRUCT */
};

struct field_table {
	const char *name;
	uint16_t version;
	uint32_t size;		/* of the structure */
	uint32_t count;
	const struct field *fields;
};

/* ---- For writing tables. `m` is the member, also the field's name. ---- */

#define FIELD_MEMBER(s, m)	(((s *)NULL)->m)
#define FIELD_SIZE(s, m)	((uint32_t)sizeof(FIELD_MEMBER(s, m)))
#define FIELD_OFFSET(s, m)	((uint32_t)offsetof(s, m))

#define FIELD_PLAIN(s, m, t, as, how, at_most, from, first) \
	{ .name = #m, .type = t, .show = as, .offset = FIELD_OFFSET(s, m), \
	  .size = FIELD_SIZE(s, m), .stride = FIELD_SIZE(s, m), .count = 1, \
	  .counted = FIELD_NO_COUNT, .check = how, .limit = at_most, .since = from, \
	  .initial = first }
#define FIELD_NUMBER(s, m, as) \
	FIELD_PLAIN(s, m, FIELD_TYPE_NUMBER, as, FIELD_ANY, 0, 1, 0)
#define FIELD_NUMBER_MAX(s, m, as, max) \
	FIELD_PLAIN(s, m, FIELD_TYPE_NUMBER, as, FIELD_MAX, max, 1, 0)
#define FIELD_NUMBER_MASK(s, m, mask) \
	FIELD_PLAIN(s, m, FIELD_TYPE_NUMBER, FIELD_HEX, FIELD_MASK, mask, 1, 0)
/* A number that versions before `from` lack. */
#define FIELD_NUMBER_SINCE(s, m, as, from, first) \
	FIELD_PLAIN(s, m, FIELD_TYPE_NUMBER, as, FIELD_ANY, 0, from, first)
#define FIELD_BOOL(s, m) \
	FIELD_PLAIN(s, m, FIELD_TYPE_BOOL, FIELD_DECIMAL, FIELD_MAX, 1, 1, 0)
#define FIELD_BYTES(s, m) \
	FIELD_PLAIN(s, m, FIELD_TYPE_BYTES, FIELD_HEX, FIELD_ANY, 0, 1, 0)
#define FIELD_VARYING(s, m, as, cap) \
	{ .name = #m, .type = FIELD_TYPE_VARYING, .show = as, .offset = FIELD_OFFSET(s, m), \
	  .size = cap, .stride = FIELD_SIZE(s, m), .count = 1, \
	  .counted = FIELD_NO_COUNT, .check = FIELD_ANY, .since = 1 }
#define FIELD_ELEMENTS(s, m, t, as, by, labels, inner) \
	{ .name = #m, .type = t, .show = as, .offset = FIELD_OFFSET(s, m), \
	  .size = FIELD_SIZE(s, m[0]), .stride = FIELD_SIZE(s, m[0]), \
	  .count = FIELD_SIZE(s, m) / FIELD_SIZE(s, m[0]), .counted = by, \
	  .check = FIELD_ANY, .since = 1, .names = labels, .table = inner }
#define FIELD_NUMBERS(s, m, as, labels) \
	FIELD_ELEMENTS(s, m, FIELD_TYPE_NUMBER, as, FIELD_NO_COUNT, labels, NULL)
#define FIELD_STRUCTS(s, m, labels, inner) \
	FIELD_ELEMENTS(s, m, FIELD_TYPE_STRUCT, FIELD_DECIMAL, FIELD_NO_COUNT, labels, inner)
#define FIELD_STRUCTS_COUNTED(s, m, by, inner) \
	FIELD_ELEMENTS(s, m, FIELD_TYPE_STRUCT, FIELD_DECIMAL, FIELD_OFFSET(s, by), NULL, inner)
#define FIELD_STRUCT(s, m, inner) \
	{ .name = #m, .type = FIELD_TYPE_STRUCT, .offset = FIELD_OFFSET(s, m), \
	  .size = FIELD_SIZE(s, m), .stride = FIELD_SIZE(s, m), .count = 1, \
	  .counted = FIELD_NO_COUNT, .check = FIELD_ANY, .since = 1, .table = inner }

#define FIELD_TABLE(label, newest, s, list) \
	{ .name = label, .version = newest, .size = (uint32_t)sizeof(s), \
	  .count = (uint32_t)(sizeof(list) / sizeof((list)[0])), .fields = list }

/* ---- Use ---- */

/* The most bytes that the table can be when encoded. */
uint64_t field_table_max(const struct field_table *table);

/*
 * Encodes into memory of its own, which the caller frees. Returns 0, -ENOMEM, or -EINVAL with
 * the field in err when a value is one that decoding would refuse.
 */
int field_encode(const struct field_table *table, const void *object, uint8_t **ret_data,
		 size_t *ret_size, struct err *err);

/*
 * Decodes all of data, as `version` of the table has it, into a structure that the caller
 * zeroed. Returns 0 or -errno with the field in err; the structure is then to be given to
 * field_done() all the same.
 */
int field_decode(const struct field_table *table, uint16_t version, const uint8_t *data,
		 size_t size, void *object, struct err *err);

/* Frees what varying fields hold and zeroes the structure. */
void field_done(const struct field_table *table, void *object);

/*
 * Calls `visit` for each number, truth value and run of bytes there is in the structure, in
 * the order of encoding. path: "table.field[2].field". A visitor may change what it is
 * shown: an array is walked as far as its count says when it is reached. Stops at the first
 * value that is not 0 and returns it.
 */
typedef int field_visitor(void *arg, const struct field *field, const char *path, void *at);
int field_visit(const struct field_table *table, void *object, field_visitor *visit,
		void *arg);

uint64_t field_number_get(const struct field *field, const void *at);
void field_number_set(const struct field *field, void *at, uint64_t value);

#endif
