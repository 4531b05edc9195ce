/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory mappings as a counted type: no leak tool sees a leaked mapping, so map_live() counts
 * those that exist and tests compare it before and after.
 */
#ifndef CASEMATE_BASE_MAP_H
#define CASEMATE_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map {
	uint8_t *addr;	/* NULL: nothing mapped */
	size_t size;
};

#define MAP_INIT	{ .addr = NULL, .size = 0 }

/* Anonymous private zero pages, not reserved. align: power of two, at least a page. 0/-errno. */
int map_anonymous(struct map *map, size_t size, size_t align);

/* A file's or device's bytes; prot and flags as for mmap(2). Returns 0 or -errno. */
int map_fd(struct map *map, size_t size, int prot, int flags, int fd, uint64_t offset);

/* Unmaps; harmless on an empty map. */
void map_done(struct map *map);

/* Mappings that exist in this process. */
unsigned int map_live(void);

#define MAP_CLEANUP __attribute__((cleanup(map_done)))

#endif
