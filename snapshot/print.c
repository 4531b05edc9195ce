/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots for people: one line a field with its full name, so that it can be searched, or
 * one JSON object. Both come from one walk over the same tables; struct printer holds the few
 * places where they differ. Everything from the file that is text is escaped.
 */
#include <inttypes.h>
#include <string.h>

#include "snapshot/field.h"
#include "snapshot/file.h"
#include "snapshot/sections.h"

#define BYTES_SHOWN	32u	/* of a varying field, in lines */

struct printer {
	FILE *to;
	bool json;
	bool first;		/* nothing has been printed in this JSON object */
};

/* ---- Values ---- */

static void text_print(FILE *to, const uint8_t *data, size_t size, bool json)
{
	fputc('"', to);
	for (size_t i = 0; i < size; i++) {
		uint8_t c = data[i];

		if (c == '"' || c == '\\')
			fprintf(to, "\\%c", c);
		else if (c >= ' ' && c < 127)
			fputc(c, to);
		else
			fprintf(to, json ? "\\u%04x" : "\\x%02x", c);
	}
	fputc('"', to);
}

static void hex_print(FILE *to, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		fprintf(to, "%02x", data[i]);
}

static void varying_print(const struct printer *p, const struct field *field,
			  const struct snapshot_bytes *bytes)
{
	uint32_t size = bytes->size;

	if (field->show == FIELD_TEXT) {
		text_print(p->to, bytes->data, size, p->json);
	} else if (p->json) {
		fputc('"', p->to);
		hex_print(p->to, bytes->data, size);
		fputc('"', p->to);
	} else {
		fprintf(p->to, "%" PRIu32 " bytes%s", size, size ? ": " : "");
		hex_print(p->to, bytes->data, size < BYTES_SHOWN ? size : BYTES_SHOWN);
		if (size > BYTES_SHOWN)
			fputs("...", p->to);
	}
}

static void value_print(const struct printer *p, const struct field *field, const void *at)
{
	const char *quote = p->json ? "\"" : "";

	switch (field->type) {
	case FIELD_TYPE_NUMBER:
		if (field->show == FIELD_HEX)
			fprintf(p->to, "%s0x%" PRIx64 "%s", quote, field_number_get(field, at),
				quote);
		else
			fprintf(p->to, "%" PRIu64, field_number_get(field, at));
		break;
	case FIELD_TYPE_BOOL:
		if (p->json)
			fputs(field_number_get(field, at) ? "true" : "false", p->to);
		else
			fputs(field_number_get(field, at) ? "yes" : "no", p->to);
		break;
	case FIELD_TYPE_BYTES:
		fputs(quote, p->to);
		hex_print(p->to, at, field->size);
		fputs(quote, p->to);
		break;
	case FIELD_TYPE_VARYING:
		varying_print(p, field, at);
		break;
	case FIELD_TYPE_STRUCT:
		break;
	}
}

/* ---- Names ---- */

static void name_print(struct printer *p, const char *name)
{
	if (p->json)
		fprintf(p->to, "%s\"%s\": ", p->first ? "" : ", ", name);
	else
		fprintf(p->to, "%s = ", name);
	p->first = false;
}

static void number_print(struct printer *p, const char *name, uint64_t value)
{
	name_print(p, name);
	fprintf(p->to, "%" PRIu64 "%s", value, p->json ? "" : "\n");
}

static void digest_print(struct printer *p, const char *name, const struct snapshot_id *id)
{
	char text[2 * SNAPSHOT_DIGEST + 1];

	name_print(p, name);
	snapshot_id_text(id, text);
	fprintf(p->to, p->json ? "\"%s\"" : "%s\n", text);
}

static int field_print(void *arg, const struct field *field, const char *path, void *at)
{
	struct printer *p = arg;

	/* In JSON the section has an object of its own. */
	name_print(p, p->json ? strchr(path, '.') + 1 : path);
	value_print(p, field, at);
	if (!p->json)
		fputc('\n', p->to);
	return 0;
}

/* ---- Parts ---- */

static void header_print(struct printer *p, const struct snapshot *snapshot)
{
	digest_print(p, "id", &snapshot->id);
	name_print(p, "kind");
	if (p->json)
		fprintf(p->to, "\"%s\"", snapshot->incremental ? "incremental" : "full");
	else
		fprintf(p->to, "%s\n", snapshot->incremental ? "incremental" : "full");
	if (snapshot->incremental)
		digest_print(p, "parent", &snapshot->parent);
	number_print(p, "file_size", snapshot->file_size);
	number_print(p, "data_offset", snapshot->data_offset);
	number_print(p, "page_size", SNAPSHOT_PAGE);
	number_print(p, "page_count", snapshot->page_count);
	number_print(p, "pages_held", snapshot->pages_held);
}

static void sections_print(struct printer *p, const struct snapshot *snapshot)
{
	if (p->json) {
		name_print(p, "sections");
		fputc('[', p->to);
	}
	for (uint32_t i = 0; i < snapshot->section_count; i++) {
		const struct snapshot_section *section = &snapshot->sections[i];

		fprintf(p->to, p->json ? "%s{\"name\": \"%s\", \"type\": %" PRIu32
				", \"version\": %u, \"offset\": %" PRIu64
				", \"length\": %" PRIu64 ", \"sha256\": \""
			       : "%ssection.%s = type %" PRIu32 ", version %u, offset %" PRIu64
				 ", %" PRIu64 " bytes, sha256 ",
			p->json && i ? ", " : "", snapshot_section_name(section->type),
			section->type, (unsigned int)section->version, section->offset,
			section->length);
		hex_print(p->to, section->digest, SNAPSHOT_DIGEST);
		fputs(p->json ? "\"}" : "\n", p->to);
	}
	if (p->json)
		fputc(']', p->to);
}

static bool page_held(const struct snapshot *snapshot, uint64_t page)
{
	return snapshot->held[page / 64] >> page % 64 & 1;
}

static void memory_print(struct printer *p, const struct snapshot *snapshot)
{
	uint64_t page = 0;
	bool first = true;

	if (p->json) {
		name_print(p, "memory");
		fputc('[', p->to);
	}
	while (page < snapshot->page_count) {
		uint64_t from = page;
		bool held = page_held(snapshot, page);

		while (page < snapshot->page_count && page_held(snapshot, page) == held)
			page++;
		if (!held)
			continue;
		if (p->json)
			fprintf(p->to, "%s{\"offset\": \"0x%" PRIx64 "\", \"pages\": %" PRIu64
				"}", first ? "" : ", ", from * SNAPSHOT_PAGE, page - from);
		else
			fprintf(p->to, "memory.0x%" PRIx64 "-0x%" PRIx64 " = %" PRIu64
				" pages\n", from * SNAPSHOT_PAGE, page * SNAPSHOT_PAGE,
				page - from);
		first = false;
	}
	if (p->json)
		fputc(']', p->to);
}

static void print(struct printer *p, const struct snapshot *snapshot)
{
	header_print(p, snapshot);
	sections_print(p, snapshot);
	for (size_t i = 0; i < SNAPSHOT_PARTS; i++) {
		const struct snapshot_part *part = &snapshot_parts[i];
		/* The walk's visitors may write; ours does not. */
		uint8_t *object = (uint8_t *)(uintptr_t)&snapshot->state + part->offset;

		if (p->json) {
			name_print(p, part->table->name);
			fputc('{', p->to);
			p->first = true;
		}
		field_visit(part->table, object, field_print, p);
		if (p->json) {
			fputc('}', p->to);
			p->first = false;
		}
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
	struct printer p = { .to = to, .json = true, .first = true };

	fputc('{', to);
	print(&p, snapshot);
	fputs("}\n", to);
}
