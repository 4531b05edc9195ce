/* SPDX-License-Identifier: Apache-2.0 */
/* Counted mappings; see map.h. */
#include "base/map.h"

#include <errno.h>
#include <sys/mman.h>

static unsigned int live;

int map_anonymous(struct map *map, size_t size, size_t align)
{
	size_t whole, lead;
	uint8_t *addr;

	if (__builtin_add_overflow(size, align, &whole) || size == 0)
		return -EINVAL;
	addr = mmap(NULL, whole, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (addr == MAP_FAILED)
		return -errno;
	/* Cut the ends off so that what is left is aligned. */
	lead = (align - (uintptr_t)addr % align) % align;
	if (lead)
		munmap(addr, lead);
	if (align - lead)
		munmap(addr + lead + size, align - lead);
	map->addr = addr + lead;
	map->size = size;
	__atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
	return 0;
}

int map_fd(struct map *map, size_t size, int prot, int flags, int fd, uint64_t offset)
{
	void *addr = mmap(NULL, size, prot, flags, fd, (off_t)offset);

	if (addr == MAP_FAILED)
		return -errno;
	map->addr = addr;
	map->size = size;
	__atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
	return 0;
}

void map_done(struct map *map)
{
	if (!map->addr)
		return;
	munmap(map->addr, map->size);
	map->addr = NULL;
	map->size = 0;
	__atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
}

unsigned int map_live(void)
{
	return __atomic_load_n(&live, __ATOMIC_RELAXED);
}
