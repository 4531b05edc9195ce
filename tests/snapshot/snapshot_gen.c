/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes snapshot files for tests:
 *
 *   snapshot-gen chain PREFIX MIB SEED COUNT	PREFIX.0 (full), PREFIX.1... (incremental),
 *						and PREFIX.full: the last one's, but full
 *   snapshot-gen noise FILE MIB SEED		all of memory is held; there was no root image
 *   snapshot-gen small FILE SEED		2 MiB, nearly empty (the golden file)
 *   snapshot-gen seed FILE SEED		an input of tests/fuzz/snapshot_fuzz.c; without
 *						pages unless bit 2 of SEED is set
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/snapshot/sample.h"

static void die(const char *what)
{
	fprintf(stderr, "snapshot-gen: %s\n", what);
	exit(1);
}

static uint8_t *memory_make(uint64_t size)
{
	uint8_t *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory");
	return memory;
}

static void file_write(const char *path, const struct snapshot_state *state,
		       const struct snapshot_source *source, struct snapshot_id *ret_id)
{
	FD_CLEANUP int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct err err = ERR_INIT;

	if (fd < 0 || snapshot_write(fd, state, source, ret_id, &err) < 0)
		die(fd < 0 ? path : err.text);
}

static void chain_make(const char *prefix, uint64_t size, uint64_t seed, unsigned int count)
{
	uint8_t *memory = memory_make(size);
	uint64_t *dirty = calloc(size / SNAPSHOT_PAGE / 64, sizeof(*dirty));
	struct snapshot_source source = { .memory = memory, .size = size };
	struct snapshot_state state, machine;
	struct snapshot_id id, none;
	char path[4096];

	if (!dirty)
		die("no memory");
	sample_state(&machine, size, seed, 16);
	for (unsigned int i = 0; i < count; i++) {
		memset(dirty, 0, size / SNAPSHOT_PAGE / 8);
		sample_memory(memory, size, seed + i, i ? 50 : 300, dirty);
		sample_state(&state, size, seed + i, 3000);
		/* One machine all along. */
		state.machine.image_size = machine.machine.image_size;
		memcpy(state.machine.image_digest, machine.machine.image_digest,
		       SNAPSHOT_DIGEST);
		memcpy(state.machine.kernel_digest, machine.machine.kernel_digest,
		       SNAPSHOT_DIGEST);
		source.dirty = i ? dirty : NULL;
		source.parent = i ? &id : NULL;
		snprintf(path, sizeof(path), "%s.%u", prefix, i);
		file_write(path, &state, &source, &id);
		if (i + 1 == count) {
			source.dirty = NULL;
			snprintf(path, sizeof(path), "%s.full", prefix);
			file_write(path, &state, &source, &none);
		}
		snapshot_state_done(&state);
	}
	snapshot_state_done(&machine);
	free(dirty);
	munmap(memory, size);
}

static void noise_make(const char *path, uint64_t size, uint64_t seed)
{
	uint8_t *memory = memory_make(size);
	struct snapshot_source source = { .memory = memory, .size = size };
	struct snapshot_state state;
	struct snapshot_id id;

	sample_memory(memory, size, seed, 1000, NULL);
	sample_state(&state, size, seed, 16);
	state.machine.image_size = 0;
	state.machine.image_path.size = 0;
	file_write(path, &state, &source, &id);
	snapshot_state_done(&state);
	munmap(memory, size);
}

static void small_make(const char *path, uint64_t seed, bool pages, uint32_t many)
{
	uint8_t *memory = memory_make(SNAPSHOT_CHUNK);
	struct snapshot_source source = { .memory = memory, .size = SNAPSHOT_CHUNK };
	struct snapshot_state state;
	struct snapshot_id id;

	if (pages) {
		memcpy(memory + 5 * SNAPSHOT_PAGE, "a page", 6);
		memcpy(memory + SNAPSHOT_CHUNK - 8, "the end", 7);
	}
	sample_state(&state, SNAPSHOT_CHUNK, seed, many);
	file_write(path, &state, &source, &id);
	snapshot_state_done(&state);
	munmap(memory, SNAPSHOT_CHUNK);
}

/* Header and sections behind the fuzz target's byte of settings. */
static void seed_make(const char *path, uint64_t seed)
{
	const struct snapshot_section *last;
	struct err err = ERR_INIT;
	struct snapshot snapshot;
	uint8_t *data;
	size_t size;
	int fd;

	small_make(path, seed, seed & 4, 8);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || snapshot_open(&snapshot, fd, &err) < 0)
		die(err.text);
	last = &snapshot.sections[snapshot.section_count - 1];
	size = last->offset + last->length;
	data = malloc(size + 1);
	if (!data || fd_pread_exact(fd, data + 1, size, 0) < 0)
		die("cannot read");
	data[0] = (uint8_t)seed;
	if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
	    fd_write_all(fd, data, size + 1) < 0)
		die("cannot write");
	snapshot_close(&snapshot);
	free(data);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "chain"))
		chain_make(argv[2], strtoull(argv[3], NULL, 10) << 20,
			   strtoull(argv[4], NULL, 10), (unsigned int)atoi(argv[5]));
	else if (argc == 5 && !strcmp(argv[1], "noise"))
		noise_make(argv[2], strtoull(argv[3], NULL, 10) << 20,
			   strtoull(argv[4], NULL, 10));
	else if (argc == 4 && !strcmp(argv[1], "small"))
		small_make(argv[2], strtoull(argv[3], NULL, 10), true, 20);
	else if (argc == 4 && !strcmp(argv[1], "seed"))
		seed_make(argv[2], strtoull(argv[3], NULL, 10));
	else
		die("chain PREFIX MIB SEED COUNT | noise FILE MIB SEED | small FILE SEED | "
		    "seed FILE SEED");
	return 0;
}
