/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of snapshot files. The input is a byte of settings and the beginning of a file,
 * header and sections; the file is made as long as its header says. Settings: bit 0, the
 * digests of sections and header are made right again, so that what is behind them is
 * reached; bit 1, something is written to memory.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/utf8.h"
#include "snapshot/digest.h"
#include "snapshot/field.h"
#include "snapshot/file.h"
#include "snapshot/sections.h"

#define MEMORY_MAX	(16u << 20)	/* larger files are opened only */

/* docs/SNAPSHOT-FORMAT.md */
#define COUNT_AT	20u
#define FILE_SIZE_AT	24u
#define ID_AT		88u
#define SECTIONS_AT	120u
#define SECTION_SIZE	56u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t number_at(const uint8_t *at, unsigned int size)
{
	uint64_t value = 0;

	memcpy(&value, at, size);
	return value;
}

static void digests_set(uint8_t *file, size_t size)
{
	uint64_t count = number_at(file + COUNT_AT, 4);

	for (uint64_t i = 0; i < count && i < SNAPSHOT_SECTIONS_MAX; i++) {
		uint8_t *section = file + SECTIONS_AT + i * SECTION_SIZE;
		uint64_t offset = number_at(section + 8, 8);
		uint64_t length = number_at(section + 16, 8);

		if (offset <= size && length <= size - offset)
			snapshot_digest(file + offset, length, section + 24);
	}
	memset(file + ID_AT, 0, SNAPSHOT_DIGEST);
	snapshot_digest(file, SNAPSHOT_PAGE, file + ID_AT);
}

/* Whatever was loaded can be saved, and is then what it was. */
static void state_check(const struct snapshot *snapshot, const uint8_t *file)
{
	for (size_t i = 0; i < SNAPSHOT_PARTS; i++) {
		const struct snapshot_part *part = &snapshot_parts[i];
		const struct snapshot_section *section = &snapshot->sections[0];
		struct err err = ERR_INIT;
		uint8_t *data;
		size_t size;

		while (section->type != (uint32_t)part->type)
			section++;
		const uint8_t *object = (const uint8_t *)&snapshot->state + part->offset;

		if (field_encode(part->table, object, &data, &size, &err) < 0)
			abort();
		if (section->version == part->table->version &&
		    (size != section->length || memcmp(data, file + section->offset, size) != 0))
			abort();
		free(data);
	}
}

static void text_check(int r, const struct err *err)
{
	if (r < 0 && (!err->code || !err->text[0] || strchr(err->text, '\n')))
		abort();
}

static void memory_check(const struct snapshot *snapshot)
{
	const struct snapshot *chain[2] = { snapshot, snapshot };
	uint64_t size = snapshot->page_count * SNAPSHOT_PAGE;
	struct err err = ERR_INIT;
	struct snapshot_id id;
	uint8_t *memory;
	int fd;

	text_check(snapshot_verify(snapshot, &err), &err);
	err.code = 0;
	text_check(snapshot_follows(snapshot, snapshot, &err), &err);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		abort();
	err.code = 0;
	text_check(snapshot_map(chain, 1, memory, &err), &err);
	munmap(memory, size);
	fd = memfd_create("out", MFD_CLOEXEC);
	err.code = 0;
	text_check(snapshot_compact(chain, 1, fd, &id, &err), &err);
	close(fd);
}

/* Nothing that steers a terminal; text for people is ASCII, JSON may have other characters. */
static void text_is_safe(const char *text, size_t size, bool ascii)
{
	for (size_t i = 0; i < size;) {
		uint32_t c;
		size_t n = utf8_decode((const uint8_t *)text + i, size - i, &c);

		if (n == 0 || (c < ' ' && c != '\n') || (c > 126 && (ascii || c < 0xa0)))
			abort();
		i += n;
	}
}

static void print_check(const struct snapshot *snapshot)
{
	void (*const ways[])(const struct snapshot *, FILE *) = { snapshot_print,
								  snapshot_print_json };

	for (size_t i = 0; i < 2; i++) {
		char *text = NULL;
		size_t size = 0;
		FILE *to = open_memstream(&text, &size);

		if (!to)
			abort();
		ways[i](snapshot, to);
		fclose(to);
		text_is_safe(text, size, i == 0);
		free(text);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;
	struct snapshot snapshot;
	uint8_t *file;
	int fd, r;

	if (size < 1)
		return 0;
	fd = memfd_create("snapshot", MFD_CLOEXEC);
	file = malloc(size);
	if (fd < 0 || !file)
		abort();
	size--;
	memcpy(file, data + 1, size);
	if (size >= SNAPSHOT_PAGE && data[0] & 1)
		digests_set(file, size);
	if (write(fd, file, size) != (ssize_t)size)
		abort();
	if (size >= SNAPSHOT_PAGE) {
		uint64_t whole = number_at(file + FILE_SIZE_AT, 8);

		if (whole <= 1ull << 40 && whole >= size && ftruncate(fd, (off_t)whole) < 0)
			abort();
		if (data[0] & 2 && whole >= size + SNAPSHOT_CHUNK && whole <= MEMORY_MAX &&
		    pwrite(fd, "dirt", 4, (off_t)(whole - SNAPSHOT_CHUNK)) != 4)
			abort();
	}
	r = snapshot_open(&snapshot, fd, &err);
	text_check(r, &err);
	if (r == 0) {
		state_check(&snapshot, file);
		print_check(&snapshot);
		if (snapshot.page_count * SNAPSHOT_PAGE <= MEMORY_MAX)
			memory_check(&snapshot);
		snapshot_close(&snapshot);
	}
	close(fd);
	free(file);
	return 0;
}
