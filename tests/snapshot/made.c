/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of snapshots for unit tests; see made.h. */
#include "tests/snapshot/made.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/snapshot/sample.h"

int made_fd(void)
{
	int fd = memfd_create("snapshot", MFD_CLOEXEC);

	if (fd < 0)
		abort();
	return fd;
}

uint8_t *made_memory(void)
{
	uint8_t *memory = mmap(NULL, MADE_SIZE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		abort();
	return memory;
}

/* One machine all along, other state each time. */
void made_state(struct snapshot_state *state, uint64_t seed)
{
	sample_state(state, MADE_SIZE, seed, 100);
	state->machine.image_size = 4096;
	memset(state->machine.image_digest, 1, SNAPSHOT_DIGEST);
	memset(state->machine.kernel_digest, 2, SNAPSHOT_DIGEST);
}

int made_open(int fd, struct snapshot *ret)
{
	struct err err = ERR_INIT;
	int r = snapshot_open(ret, fd, &err);

	CU_ASSERT_STRING_EQUAL(err.text, "");
	return r;
}

void made_init(struct made *made, uint64_t seed)
{
	struct snapshot_source source = { .size = MADE_SIZE };
	struct snapshot_id id;
	uint64_t dirty[MADE_WORDS];

	made->memory = made_memory();
	source.memory = made->memory;
	for (unsigned int i = 0; i < MADE_CHAIN; i++) {
		struct err err = ERR_INIT;
		struct snapshot_id parent = id;

		memset(dirty, 0, sizeof(dirty));
		sample_memory(made->memory, MADE_SIZE, seed * 10 + i, i ? 60 : 200, dirty);
		made_state(&made->last, seed * 10 + i);
		source.dirty = i ? dirty : NULL;
		source.parent = i ? &parent : NULL;
		made->fds[i] = made_fd();
		CU_ASSERT_EQUAL(snapshot_write(made->fds[i], &made->last, &source, &id, &err),
				0);
		CU_ASSERT_STRING_EQUAL(err.text, "");
		CU_ASSERT_EQUAL_FATAL(made_open(made->fds[i], &made->snapshots[i]), 0);
		CU_ASSERT_EQUAL(memcmp(&id, &made->snapshots[i].id, sizeof(id)), 0);
		made->chain[i] = &made->snapshots[i];
		if (i + 1 < MADE_CHAIN)
			snapshot_state_done(&made->last);
	}
}

void made_done(struct made *made)
{
	for (unsigned int i = 0; i < MADE_CHAIN; i++) {
		snapshot_close(&made->snapshots[i]);
		close(made->fds[i]);
	}
	snapshot_state_done(&made->last);
	munmap(made->memory, MADE_SIZE);
}

void made_text_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fprintf(stderr, "\"%s\" lacks \"%s\"\n", text, part);
	CU_ASSERT_PTR_NOT_NULL(strstr(text, part));
	CU_ASSERT_PTR_NULL(strchr(text, '\n'));
}

/* The file is refused when it is opened, with this in the line. */
void made_refused(int fd, const char *part)
{
	struct snapshot snapshot;
	struct err err = ERR_INIT;
	int r;

	memset(&snapshot, 0x55, sizeof(snapshot));
	r = snapshot_open(&snapshot, fd, &err);
	CU_ASSERT(r < 0 && r == err.code);
	CU_ASSERT_EQUAL(snapshot.fd, 0x55555555);	/* untouched */
	made_text_has(err.text, part);
	if (r == 0)
		snapshot_close(&snapshot);
}

/* It opens, but its memory is not right. */
void made_unverified(int fd, const char *part)
{
	struct err err = ERR_INIT;
	struct snapshot snapshot;

	CU_ASSERT_EQUAL_FATAL(made_open(fd, &snapshot), 0);
	CU_ASSERT(snapshot_verify(&snapshot, &err) < 0);
	made_text_has(err.text, part);
	snapshot_close(&snapshot);
}

uint8_t made_byte_flip(int fd, uint64_t at, uint8_t bits)
{
	uint8_t byte;

	if (fd_pread_exact(fd, &byte, 1, at) < 0)
		abort();
	byte ^= bits;
	if (pwrite(fd, &byte, 1, (off_t)at) != 1)
		abort();
	return byte;
}
