/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots for people: one line a field with its full name, so that it can be searched, or
 * one JSON object. Both come from one walk over the same tables; struct printer holds the few
 * places where they differ. Everything from the file that is text is escaped.
 */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "snapshot/field.h"
#include "snapshot/file.h"
#include "snapshot/sections.h"

#define BYTES_SHOWN	32u	/* of a varying field, in lines */

struct printer {
	FILE *to;
	struct json *json;	/* NULL: lines */
};

/* ---- Values ---- */

static void text_print(FILE *to, const uint8_t *data, size_t size)
{
	fputc('"', to);
	for (size_t i = 0; i < size; i++) {
		uint8_t c = data[i];

		if (c == '"' || c == '\\')
			fprintf(to, "\\%c", c);
		else if (c >= ' ' && c < 127)
			fputc(c, to);
		else
			fprintf(to, "\\x%02x", c);
	}
	fputc('"', to);
}

static void hex_print(FILE *to, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		fprintf(to, "%02x", data[i]);
}

static void varying_print(FILE *to, const struct field *field,
			  const struct snapshot_bytes *bytes)
{
	uint32_t size = bytes->size;

	if (field->show == FIELD_TEXT) {
		text_print(to, bytes->data, size);
		return;
	}
	fprintf(to, "%" PRIu32 " bytes%s", size, size ? ": " : "");
	hex_print(to, bytes->data, size < BYTES_SHOWN ? size : BYTES_SHOWN);
	if (size > BYTES_SHOWN)
		fputs("...", to);
}

static void value_print(FILE *to, const struct field *field, const void *at)
{
	switch (field->type) {
	case FIELD_TYPE_NUMBER:
		fprintf(to, field->show == FIELD_HEX ? "0x%" PRIx64 : "%" PRIu64,
			field_number_get(field, at));
		break;
	case FIELD_TYPE_BOOL:
		fputs(field_number_get(field, at) ? "yes" : "no", to);
		break;
	case FIELD_TYPE_BYTES:
		hex_print(to, at, field->size);
		break;
	case FIELD_TYPE_VARYING:
		varying_print(to, field, at);
		break;
	case FIELD_TYPE_STRUCT:
		break;
	}
}

static void value_json(struct json *json, const char *name, const struct field *field,
		       const void *at)
{
	const struct snapshot_bytes *bytes = at;

	switch (field->type) {
	case FIELD_TYPE_NUMBER:
		if (field->show == FIELD_HEX)
			json_format(json, name, "0x%" PRIx64, field_number_get(field, at));
		else
			json_number(json, name, field_number_get(field, at));
		break;
	case FIELD_TYPE_BOOL:
		json_bool(json, name, field_number_get(field, at) != 0);
		break;
	case FIELD_TYPE_BYTES:
		json_hex(json, name, at, field->size);
		break;
	case FIELD_TYPE_VARYING:
		if (field->show == FIELD_TEXT)
			json_text(json, name, bytes->data, bytes->size);
		else
			json_hex(json, name, bytes->data, bytes->size);
		break;
	case FIELD_TYPE_STRUCT:
		break;
	}
}

/* ---- Names ---- */

static void number_print(struct printer *p, const char *name, uint64_t value)
{
	if (p->json)
		json_number(p->json, name, value);
	else
		fprintf(p->to, "%s = %" PRIu64 "\n", name, value);
}

static void string_print(struct printer *p, const char *name, const char *value)
{
	if (p->json)
		json_string(p->json, name, value);
	else
		fprintf(p->to, "%s = %s\n", name, value);
}

static void digest_print(struct printer *p, const char *name, const struct snapshot_id *id)
{
	char text[2 * SNAPSHOT_DIGEST + 1];

	snapshot_id_text(id, text);
	string_print(p, name, text);
}

static int field_print(void *arg, const struct field *field, const char *path, void *at)
{
	struct printer *p = arg;

	/* In JSON the section has an object of its own. */
	if (p->json) {
		value_json(p->json, strchr(path, '.') + 1, field, at);
	} else {
		fprintf(p->to, "%s = ", path);
		value_print(p->to, field, at);
		fputc('\n', p->to);
	}
	return 0;
}

/* ---- Parts ---- */

static void header_print(struct printer *p, const struct snapshot *snapshot)
{
	digest_print(p, "id", &snapshot->id);
	string_print(p, "kind", snapshot->incremental ? "incremental" : "full");
	if (snapshot->incremental)
		digest_print(p, "parent", &snapshot->parent);
	number_print(p, "file_size", snapshot->file_size);
	number_print(p, "data_offset", snapshot->data_offset);
	number_print(p, "page_size", SNAPSHOT_PAGE);
	number_print(p, "page_count", snapshot->page_count);
	number_print(p, "pages_held", snapshot->pages_held);
}

static void section_json(struct json *json, const struct snapshot_section *section)
{
	json_object(json, NULL);
	json_string(json, "name", snapshot_section_name(section->type));
	json_number(json, "type", section->type);
	json_number(json, "version", section->version);
	json_number(json, "offset", section->offset);
	json_number(json, "length", section->length);
	json_hex(json, "sha256", section->digest, SNAPSHOT_DIGEST);
	json_end(json);
}

static void sections_print(struct printer *p, const struct snapshot *snapshot)
{
	if (p->json)
		json_array(p->json, "sections");
	for (uint32_t i = 0; i < snapshot->section_count; i++) {
		const struct snapshot_section *section = &snapshot->sections[i];

		if (p->json) {
			section_json(p->json, section);
			continue;
		}
		fprintf(p->to, "section.%s = type %" PRIu32 ", version %u, offset %" PRIu64
			", %" PRIu64 " bytes, sha256 ", snapshot_section_name(section->type),
			section->type, (unsigned int)section->version, section->offset,
			section->length);
		hex_print(p->to, section->digest, SNAPSHOT_DIGEST);
		fputc('\n', p->to);
	}
	if (p->json)
		json_end(p->json);
}

static bool page_held(const struct snapshot *snapshot, uint64_t page)
{
	return snapshot->held[page / 64] >> page % 64 & 1;
}

static void run_print(struct printer *p, uint64_t from, uint64_t to)
{
	if (!p->json) {
		fprintf(p->to, "memory.0x%" PRIx64 "-0x%" PRIx64 " = %" PRIu64 " pages\n",
			from * SNAPSHOT_PAGE, to * SNAPSHOT_PAGE, to - from);
		return;
	}
	json_object(p->json, NULL);
	json_format(p->json, "offset", "0x%" PRIx64, from * SNAPSHOT_PAGE);
	json_number(p->json, "pages", to - from);
	json_end(p->json);
}

static void memory_print(struct printer *p, const struct snapshot *snapshot)
{
	uint64_t page = 0;

	if (p->json)
		json_array(p->json, "memory");
	while (page < snapshot->page_count) {
		uint64_t from = page;
		bool held = page_held(snapshot, page);

		while (page < snapshot->page_count && page_held(snapshot, page) == held)
			page++;
		if (held)
			run_print(p, from, page);
	}
	if (p->json)
		json_end(p->json);
}

static void print(struct printer *p, const struct snapshot *snapshot)
{
	header_print(p, snapshot);
	sections_print(p, snapshot);
	for (size_t i = 0; i < SNAPSHOT_PARTS; i++) {
		const struct snapshot_part *part = &snapshot_parts[i];
		/* The walk's visitors may write; ours does not. */
		uint8_t *object = (uint8_t *)(uintptr_t)&snapshot->state + part->offset;

		if (p->json)
			json_object(p->json, part->table->name);
		field_visit(part->table, object, field_print, p);
		if (p->json)
			json_end(p->json);
	}
	memory_print(p, snapshot);
}

void snapshot_print(const struct snapshot *snapshot, FILE *to)
{
	struct printer p = { .to = to };

	print(&p, snapshot);
}

void snapshot_print_json(const struct snapshot *snapshot, FILE *to)
{
	struct json json = JSON_INIT(to);
	struct printer p = { .to = to, .json = &json };

	json_object(&json, NULL);
	print(&p, snapshot);
	json_end(&json);
}
