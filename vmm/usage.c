/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the VMM costs beyond the guest's RAM, for --verbose: resident bytes of every mapping of
 * this process but the guest's RAM and image, from /proc/self/smaps. The VMM's buffers are
 * fixed and only ever get resident, so that the figure at the end is also the peak.
 */
#include "vmm/vm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMAPS_MAX	(512u << 10)

static bool inside(const struct map *map, uint64_t addr)
{
	uint64_t start = (uintptr_t)map->addr;

	return map->addr && addr >= start && addr - start < map->size;
}

static ssize_t smaps_read(int fd, char *text, size_t size)
{
	size_t used = 0;

	while (used + 1 < size) {
		ssize_t n = pread(fd, text + used, size - 1 - used, (off_t)used);

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	text[used] = '\0';
	return (ssize_t)used;
}

int64_t usage_beyond_guest(int smaps_fd, const struct memory *memory)
{
	char *text = malloc(SMAPS_MAX), *save = NULL;
	uint64_t start, end, kib, total = 0;
	bool guest = false;
	ssize_t n;

	if (!text)
		return -ENOMEM;
	n = smaps_read(smaps_fd, text, SMAPS_MAX);
	for (char *line = n > 0 ? strtok_r(text, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &start, &end) == 2)
			guest = inside(&memory->ram, start) || inside(&memory->image, start);
		else if (!guest && sscanf(line, "Rss: %" SCNu64, &kib) == 1)
			total += kib << 10;
	}
	free(text);
	return n < 0 ? n : (int64_t)total;
}
