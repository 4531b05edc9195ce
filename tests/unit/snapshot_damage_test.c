/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unit tests of snapshot files: nothing that was damaged, cut, swapped or forged passes, and
 * the line about it says where.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapshot/digest.h"
#include "snapshot/header.h"
#include "snapshot/sections.h"
#include "tests/snapshot/made.h"
#include "tests/unit/cunit_run.h"

/* ---- Damage ---- */

static uint64_t sections_end(const struct snapshot *s)
{
	return s->sections[s->section_count - 1].offset +
	       s->sections[s->section_count - 1].length;
}

static void test_every_byte(void)
{
	struct snapshot whole;
	uint64_t end, at;
	struct made made;
	int fd;

	made_init(&made, 30);
	fd = made.fds[1];
	end = sections_end(&made.snapshots[1]);
	for (at = 0; at < end; at++) {
		uint8_t bits = (uint8_t)(1u << at % 8);

		made_byte_flip(fd, at, bits);
		made_refused(fd, "");
		made_byte_flip(fd, at, 0xff ^ bits);	/* now all bits are wrong */
		made_refused(fd, "");
		made_byte_flip(fd, at, 0xff);
	}
	CU_ASSERT_EQUAL_FATAL(made_open(fd, &whole), 0);
	snapshot_close(&whole);
	for (uint32_t i = 0; i < made.snapshots[1].section_count; i++) {
		const struct snapshot_section *section = &made.snapshots[1].sections[i];
		char text[64];

		made_byte_flip(fd, section->offset + section->length / 2, 4);
		snprintf(text, sizeof(text), "section %s",
			 snapshot_section_name(section->type));
		made_refused(fd, text);
		made_byte_flip(fd, section->offset + section->length / 2, 4);
	}
	made_done(&made);
}

static void test_memory_damage(void)
{
	struct err err = ERR_INIT;
	struct snapshot_id id;
	const struct snapshot *s;
	struct made made;
	int out = made_fd();

	made_init(&made, 31);
	for (unsigned int i = 0; i < 2; i++) {
		s = &made.snapshots[i];
		for (uint64_t page = 0; page < s->page_count; page += 7) {
			uint64_t at = s->data_offset + page * (SNAPSHOT_PAGE + 1);
			bool held = s->held[page / 64] >> page % 64 & 1;

			made_byte_flip(s->fd, at, 16);
			made_unverified(s->fd, held ? "damaged" : "where nothing is held");
			made_byte_flip(s->fd, at, 16);
		}
		/* Between sections and memory. */
		made_byte_flip(s->fd, sections_end(s), 1);
		made_unverified(s->fd, "where nothing is held");
		made_byte_flip(s->fd, sections_end(s), 1);
		made_byte_flip(s->fd, s->data_offset - 1, 1);
		made_unverified(s->fd, "where nothing is held");
		made_byte_flip(s->fd, s->data_offset - 1, 1);
		CU_ASSERT_EQUAL(snapshot_verify(s, &err), 0);
	}
	/* Folding does not give damage a new digest. */
	for (uint64_t page = 0; page < s->page_count; page++) {
		if (!(s->held[page / 64] >> page % 64 & 1))
			continue;
		made_byte_flip(s->fd, s->data_offset + page * SNAPSHOT_PAGE, 1);
		break;
	}
	CU_ASSERT(snapshot_compact(made.chain, MADE_CHAIN, out, &id, &err) < 0);
	made_text_has(err.text, "memory at 0x");
	made_refused(out, "");
	made_done(&made);
	close(out);
}

static void cut_refused(int fd, uint64_t whole, uint64_t size, const char *part)
{
	int copy = made_fd();
	uint8_t *data = malloc(whole + 1);

	if (!data || fd_pread_exact(fd, data, whole, 0) < 0)
		abort();
	data[whole] = 0;
	if (fd_write_all(copy, data, size) < 0)
		abort();
	made_refused(copy, part);
	free(data);
	close(copy);
}

static void test_cut(void)
{
	const struct snapshot *s;
	struct made made;

	made_init(&made, 32);
	s = &made.snapshots[0];
	cut_refused(s->fd, s->file_size, 0, "empty");
	cut_refused(s->fd, s->file_size, 1, "too few");
	cut_refused(s->fd, s->file_size, SNAPSHOT_PAGE - 1, "too few");
	cut_refused(s->fd, s->file_size, SNAPSHOT_PAGE, "cut short");
	for (uint32_t i = 0; i < s->section_count; i++) {
		uint64_t at = s->sections[i].offset;

		cut_refused(s->fd, s->file_size, at, "cut short");
		cut_refused(s->fd, s->file_size, at + 1, "cut short");
		cut_refused(s->fd, s->file_size, at + s->sections[i].length - 1, "cut short");
		cut_refused(s->fd, s->file_size, at + s->sections[i].length, "cut short");
	}
	cut_refused(s->fd, s->file_size, s->data_offset, "cut short");
	cut_refused(s->fd, s->file_size, s->file_size - 1, "cut short");
	cut_refused(s->fd, s->file_size, s->file_size + 1, "1 bytes after its end");
	made_done(&made);
}

/* The file shrinks after it was checked. */
static void test_cut_later(void)
{
	struct err err = ERR_INIT;
	struct made made;

	made_init(&made, 33);
	CU_ASSERT_EQUAL(ftruncate(made.fds[1], (off_t)made.snapshots[1].data_offset), 0);
	CU_ASSERT(snapshot_map(made.chain, MADE_CHAIN, made.memory, &err) < 0);
	made_text_has(err.text, "snapshot 2 of the chain");
	err = (struct err)ERR_INIT;
	CU_ASSERT(snapshot_verify(&made.snapshots[1], &err) < 0);
	made_text_has(err.text, "cannot read");
	made_done(&made);
}

static void test_no_snapshot(void)
{
	static const uint8_t noise[SNAPSHOT_PAGE] = { 0x7f, 'E', 'L', 'F' };
	int fd = made_fd(), pipes[2];

	CU_ASSERT_EQUAL(fd_write_all(fd, noise, sizeof(noise)), 0);
	made_refused(fd, "no snapshot file");
	close(fd);
	fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	made_refused(fd, "no regular file");
	close(fd);
	CU_ASSERT_EQUAL(pipe(pipes), 0);
	made_refused(pipes[0], "no regular file");
	close(pipes[0]);
	close(pipes[1]);
}

/* ---- Forgeries: digests that fit, around what does not ---- */

/* Writes the header again with its digests right. */
static void header_put(int fd, struct header *header)
{
	uint8_t page[SNAPSHOT_PAGE];
	struct err err = ERR_INIT;

	for (uint32_t i = 0; i < header->section_count; i++) {
		struct snapshot_section *section = &header->sections[i];
		uint8_t *data;

		if (section->length > SNAPSHOT_CHUNK)
			continue;
		data = malloc(section->length + 1);
		if (!data)
			abort();
		if (fd_pread_exact(fd, data, section->length, section->offset) == 0)
			snapshot_digest(data, section->length, section->digest);
		free(data);
	}
	if (header_encode(header, page, &err) < 0 || pwrite(fd, page, sizeof(page), 0) < 0)
		abort();
}

static void section_append(struct header *h, uint16_t flags)
{
	const struct snapshot_section *last = &h->sections[h->section_count - 1];

	h->sections[h->section_count++] = (struct snapshot_section){
		.type = 200, .version = 3, .flags = flags, .length = 100,
		.offset = last->offset + last->length,
	};
}

#define FORGERIES	22u

/* Changes a header. Returns what must be said of the file, NULL where it opens. */
static const char *forge(struct header *h, unsigned int which)
{
	struct snapshot_section other;

	switch (which) {
	case 0:
		h->flags = 0;
		return NULL;
	case 1:
		other = h->sections[1];
		h->sections[1] = h->sections[2];
		h->sections[2] = other;
		return "section vcpu (type 3) is at";
	case 2:
		h->sections[1].type = h->sections[0].type;
		return "not in order";
	case 3:
		h->sections[0].type = 0;
		return "not in order";
	case 4:
		h->sections[5].offset++;
		return "section digests (type 65) is at";
	case 5:
		h->sections[0].offset = UINT64_MAX - 10;
		return "section machine (type 1) is at";
	case 6:
		h->sections[4].length++;
		return "section held (type 64) has";
	case 7:
		h->sections[3].length = UINT64_MAX;
		return "section console (type 4) has";
	case 8:
		h->section_count--;
		return "lacks a section";
	case 9:
		h->section_count = 0;
		return "lacks a section";
	case 10:
		section_append(h, 0);
		return "section of type 200";
	case 11:
		section_append(h, SNAPSHOT_SECTION_OPTIONAL);
		return NULL;
	case 12:
		h->sections[2].version = 2;
		return "section vcpu has version 2";
	case 13:
		h->sections[4].version = 2;
		return "section held has version 2";
	case 14:
		h->sections[4].length -= 8;
		h->sections[5].offset -= 8;
		return "section held has";
	case 15:
		h->memory_size += SNAPSHOT_PAGE;
		return "no multiple of 2 MiB";
	case 16:
		h->memory_size = 0;
		return "no multiple of 2 MiB";
	case 17:
		h->data_offset += SNAPSHOT_CHUNK;
		h->file_size += SNAPSHOT_CHUNK;
		return "memory at";
	case 18:
		h->file_size++;
		return "sizes do not fit";
	case 19:
		h->pages_held--;
		return "section held has";
	case 20:
		h->flags = HEADER_INCREMENTAL;
		return "lacks a parent";
	case 21:
		h->parent[31] = 1;
		return "has a parent";
	}
	return "";
}

static void test_forged(void)
{
	uint8_t page[SNAPSHOT_PAGE], extra[SNAPSHOT_PAGE] = "not in the digest";
	struct header before, header;
	struct err err = ERR_INIT;
	struct snapshot snapshot;
	struct made made;
	int fd;

	made_init(&made, 34);
	fd = made.fds[0];
	CU_ASSERT_EQUAL(fd_pread_exact(fd, page, sizeof(page), 0), 0);
	CU_ASSERT_EQUAL_FATAL(header_decode(page, &before, &err), 0);
	for (unsigned int i = 0; i < FORGERIES; i++) {
		const char *text;

		header = before;
		text = forge(&header, i);
		header_put(fd, &header);
		if (text) {
			made_refused(fd, text);
			continue;
		}
		CU_ASSERT_EQUAL_FATAL(made_open(fd, &snapshot), 0);
		CU_ASSERT_EQUAL(snapshot_verify(&snapshot, &err), 0);
		CU_ASSERT_EQUAL(snapshot.section_count, header.section_count);
		snapshot_close(&snapshot);
	}
	/* An optional section's digest counts, known or not. */
	header = before;
	section_append(&header, SNAPSHOT_SECTION_OPTIONAL);
	header_put(fd, &header);
	CU_ASSERT(pwrite(fd, extra, 17, (off_t)header.sections[6].offset) == 17);
	made_refused(fd, "section unknown (type 200) is damaged");
	/* Bits without pages, a digest without bits. */
	header = before;
	memset(extra, 0, sizeof(extra));
	header.pages_held = 0;
	CU_ASSERT(pwrite(fd, extra, header.sections[4].length,
			 (off_t)header.sections[4].offset) > 0);
	header_put(fd, &header);
	made_refused(fd, "where nothing is held");
	made_done(&made);
}

int main(void)
{
	CU_pSuite suite = cunit_suite("snapshot damage", NULL, NULL);

	CU_add_test(suite, "every byte", test_every_byte);
	CU_add_test(suite, "memory damaged", test_memory_damage);
	CU_add_test(suite, "cut short", test_cut);
	CU_add_test(suite, "cut later", test_cut_later);
	CU_add_test(suite, "no snapshot", test_no_snapshot);
	CU_add_test(suite, "forged", test_forged);
	return cunit_run();
}
