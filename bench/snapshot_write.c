/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot-write DIR MIB: writes, checks and maps snapshots of made-up memory in DIR, once
 * each, and prints a line "NAME BYTES NANOSECONDS CPU-NANOSECONDS" a measurement: BYTES of
 * memory were dealt with. bench/snapshot_write.py makes rates of them.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/time.h"
#include "tests/snapshot/sample.h"

static struct err err = ERR_INIT;

static void check(int r)
{
	if (r < 0) {
		fprintf(stderr, "snapshot-write: %s\n", err.text);
		exit(1);
	}
}

struct began {
	uint64_t wall, cpu;
};

static struct began begin(void)
{
	return (struct began){ time_monotonic_ns(), time_ns(CLOCK_PROCESS_CPUTIME_ID) };
}

static void report(const char *name, uint64_t bytes, struct began began)
{
	struct began now = begin();

	printf("%s %llu %llu %llu\n", name, (unsigned long long)bytes,
	       (unsigned long long)(now.wall - began.wall),
	       (unsigned long long)(now.cpu - began.cpu));
}

static uint8_t *memory_make(uint64_t size)
{
	uint8_t *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		exit(1);
	madvise(memory, size, MADV_HUGEPAGE);
	return memory;
}

static int file_make(const char *dir)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/snapshot.XXXXXX", dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0) {
		perror(path);
		exit(1);
	}
	unlink(path);
	return fd;
}

/* Full snapshots of memory with per_mille of its pages in use, in other places each time. */
static void full_measure(const char *dir, uint64_t size, unsigned int per_mille,
			 const char *name)
{
	struct snapshot_source source = { .memory = memory_make(size), .size = size };
	uint8_t *target = memory_make(size);
	const struct snapshot *chain[1];
	struct snapshot_state state;
	struct snapshot snapshot;
	struct snapshot_id id;
	char label[64];
	struct began began;
	int fd = file_make(dir);

	sample_memory((uint8_t *)(uintptr_t)source.memory, size, 1, per_mille, NULL);
	sample_state(&state, size, 1, 4096);
	began = begin();
	check(snapshot_write(fd, &state, &source, &id, &err));
	snprintf(label, sizeof(label), "snapshot_write_%s", name);
	report(label, size, began);
	began = begin();
	check(snapshot_open(&snapshot, fd, &err));
	report("snapshot_open", size, began);
	chain[0] = &snapshot;
	began = begin();
	check(snapshot_map(chain, 1, target, &err));
	report("snapshot_map", size, began);
	began = begin();
	check(snapshot_verify(&snapshot, &err));
	snprintf(label, sizeof(label), "snapshot_verify_%s", name);
	report(label, size, began);
	snapshot_close(&snapshot);
	snapshot_state_done(&state);
	munmap(target, size);
	munmap((void *)(uintptr_t)source.memory, size);
	close(fd);
}

/* A few percent of the pages changed, here and there: the rate is of those. */
static void incremental_measure(const char *dir, uint64_t size)
{
	uint64_t *dirty = calloc(size / SNAPSHOT_PAGE / 64, sizeof(*dirty));
	struct began began;
	uint64_t bytes = 0;
	struct snapshot_id id = { { 1 } };
	uint8_t *memory = memory_make(size);
	struct snapshot_source source = {
		.memory = memory, .size = size, .dirty = dirty, .parent = &id,
	};
	struct snapshot_state state;
	int fd = file_make(dir);

	if (!dirty)
		exit(1);
	sample_memory(memory, size, 1, 500, NULL);
	sample_memory(memory, size, 2, 10, dirty);
	sample_state(&state, size, 1, 4096);
	began = begin();
	check(snapshot_write(fd, &state, &source, &id, &err));
	for (uint64_t i = 0; i < size / SNAPSHOT_PAGE / 64; i++)
		bytes += (uint64_t)__builtin_popcountll(dirty[i]) * SNAPSHOT_PAGE;
	report("snapshot_write_incremental", bytes, began);
	snapshot_state_done(&state);
	munmap(memory, size);
	free(dirty);
	close(fd);
}

int main(int argc, char **argv)
{
	uint64_t size;

	if (argc != 3) {
		fprintf(stderr, "usage: snapshot-write DIR MIB\n");
		return 2;
	}
	size = strtoull(argv[2], NULL, 10) << 20;
	full_measure(argv[1], size, 1000, "all_used");
	full_measure(argv[1], size, 300, "third_used");
	incremental_measure(argv[1], size);
	return 0;
}
