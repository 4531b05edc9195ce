/* SPDX-License-Identifier: Apache-2.0 */
/* Guest memory; see memory.h. */
#include "vmm/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include "abi/layout.h"
#include "base/fd.h"

#define HUGE	(2ull << 20)
#define COPY_SHARE	8	/* an image's copy takes at most one part in so many of RAM */

/* In headers newer than the C library's; older kernels refuse it. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

int memory_check_size(uint64_t size, struct err *err)
{
	struct sysinfo info;

	if (size < MEMORY_RAM_MIN)
		return err_set(err, EINVAL, "memory size too small: at least %" PRIu64
			       " MiB are needed", (uint64_t)(MEMORY_RAM_MIN >> 20));
	if (size % MEMORY_RAM_UNIT)
		return err_set(err, EINVAL, "memory size must be a multiple of 2 MiB");
	if (size > CM_RAM_MAX)
		return err_set(err, EINVAL, "memory size too large: at most %lu GiB",
			       CM_RAM_MAX >> 30);
	if (sysinfo(&info) == 0 && size > (uint64_t)info.totalram * info.mem_unit)
		return err_set(err, EINVAL, "memory size beyond this host's memory (%" PRIu64
			       " MiB)", (uint64_t)info.totalram * info.mem_unit >> 20);
	return 0;
}

int memory_init(struct memory *memory, uint64_t size, struct err *err)
{
	uint64_t low = size < CM_RAM_LOW_MAX ? size : CM_RAM_LOW_MAX;
	int r;

	*memory = (struct memory){ .image_size = 0 };
	r = memory_check_size(size, err);
	if (r < 0)
		return r;
	r = map_anonymous(&memory->ram, size, HUGE);
	if (r < 0)
		return err_set_errno(err, r, "cannot map %" PRIu64 " MiB for the guest",
				     size >> 20);
	/* Asked for, never required. */
	madvise(memory->ram.addr, size, MADV_HUGEPAGE);
	madvise(memory->ram.addr, size, MADV_DONTDUMP);
	memory->regions[MEMORY_LOW] = (struct memory_region){
		.gpa = GPA(0), .size = low, .host = memory->ram.addr };
	memory->regions[MEMORY_HIGH] = (struct memory_region){
		.gpa = GPA(CM_RAM_HIGH_GPA), .size = size - low,
		.host = memory->ram.addr + low };
	return 0;
}

static void image_protect(const struct map *image)
{
	mprotect(image->addr, image->size, PROT_READ);
	madvise(image->addr, image->size, MADV_DONTDUMP);
}

int memory_add_image(struct memory *memory, int fd, struct err *err)
{
	const struct memory_region *high = &memory->regions[MEMORY_HIGH];
	uint64_t end = high->gpa.v + high->size;
	uint64_t slot, size;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_set_errno(err, errno, "cannot examine the root image");
	if (!S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "the root image is not a regular file");
	size = (uint64_t)st.st_size;
	if (size == 0 || size > CM_IMAGE_MAX)
		return err_set(err, EINVAL, "root image of %" PRIu64 " bytes: 1 to %lu "
			       "are possible", size, CM_IMAGE_MAX);
	slot = (size + HUGE - 1) / HUGE * HUGE;
	r = map_anonymous(&memory->image, slot, HUGE);
	if (r < 0)
		return err_set_errno(err, r, "cannot reserve room for the root image");
	if (mmap(memory->image.addr, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED)
		return err_set_errno(err, errno, "cannot map the root image");
	image_protect(&memory->image);
	memory->image_size = size;
	memory->regions[MEMORY_IMAGE] = (struct memory_region){
		.gpa = GPA((end + CM_IMAGE_ALIGN - 1) / CM_IMAGE_ALIGN * CM_IMAGE_ALIGN),
		.size = slot, .host = memory->image.addr, .read_only = true };
	return 0;
}

/* Shared memory is in huge pages at once where the host gives them (shmem_enabled); else they
 * are made of small ones. */
static int copy_fill(const struct map *copy, uint64_t size, int fd)
{
	int r = 0;

	if (mmap(copy->addr, copy->size, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
		return -errno;
	madvise(copy->addr, copy->size, MADV_HUGEPAGE);
	r = fd_pread_exact(fd, copy->addr, size, 0);
	for (uint64_t at = 0; r == 0 && at < copy->size; at += HUGE) {
		if (madvise(copy->addr + at, HUGE, MADV_COLLAPSE) < 0)
			r = -errno;
	}
	return r;
}

void memory_copy_image(struct memory *memory, int fd)
{
	struct memory_region *region = &memory->regions[MEMORY_IMAGE];
	struct map copy = MAP_INIT;
	struct sysinfo info;

	if (region->size == 0 || sysinfo(&info) < 0 ||
	    region->size > (uint64_t)info.totalram * info.mem_unit / COPY_SHARE ||
	    map_anonymous(&copy, region->size, HUGE) < 0)
		return;
	if (copy_fill(&copy, memory->image_size, fd) < 0) {
		map_done(&copy);
		return;
	}
	map_done(&memory->image);
	memory->image = copy;
	region->host = copy.addr;
	image_protect(&copy);
}

size_t memory_bitmap_words(const struct memory *memory)
{
	return (size_t)((memory->ram.size / MEMORY_PAGE + 63) / 64);
}

int memory_track(struct memory *memory)
{
	if (memory->dirty)
		memset(memory->dirty, 0, memory_bitmap_words(memory) * sizeof(uint64_t));
	else
		memory->dirty = calloc(memory_bitmap_words(memory), sizeof(uint64_t));
	return memory->dirty ? 0 : -ENOMEM;
}

void memory_mark(const struct memory *memory, const void *host, size_t len)
{
	size_t offset = (size_t)((const uint8_t *)host - memory->ram.addr);

	if (!memory->dirty || len == 0)
		return;
	for (size_t page = offset / MEMORY_PAGE; page <= (offset + len - 1) / MEMORY_PAGE; page++)
		memory->dirty[page / 64] |= 1ull << (page % 64);
}

uint64_t *memory_free_map(const struct memory *memory, uint32_t frame)
{
	const struct memory_region *low = &memory->regions[MEMORY_LOW];
	const struct memory_region *high = &memory->regions[MEMORY_HIGH];
	uint64_t end = high->size ? high->gpa.v + high->size : low->size;
	const uint8_t *map = memory_ram(memory, GPA((uint64_t)frame * MEMORY_PAGE),
					end / MEMORY_PAGE / 8);
	uint8_t *pages;

	if (frame == 0 || !map)
		return NULL;
	pages = malloc(memory_bitmap_words(memory) * sizeof(uint64_t));
	if (!pages)
		return NULL;
	/* Regions begin and end at multiples of 2 MiB: at whole words. */
	memcpy(pages, map, low->size / MEMORY_PAGE / 8);
	if (high->size)
		memcpy(pages + low->size / MEMORY_PAGE / 8,
		       map + high->gpa.v / MEMORY_PAGE / 8, high->size / MEMORY_PAGE / 8);
	return (uint64_t *)(void *)pages;
}

void memory_done(struct memory *memory)
{
	free(memory->dirty);
	free(memory->fresh);
	map_done(&memory->ram);
	map_done(&memory->image);
	*memory = (struct memory){ .image_size = 0 };
}

/* Whether [gpa, gpa + len) lies in the region; an empty range must lie in it too. */
static bool region_holds(const struct memory_region *region, gpa_t gpa, uint64_t len)
{
	uint64_t offset;

	if (gpa.v < region->gpa.v)
		return false;
	offset = gpa.v - region->gpa.v;
	return offset < region->size && len <= region->size - offset;
}

void *memory_ram(const struct memory *memory, gpa_t gpa, uint64_t len)
{
	for (int i = MEMORY_LOW; i <= MEMORY_HIGH; i++) {
		const struct memory_region *region = &memory->regions[i];

		if (region_holds(region, gpa, len))
			return region->host + (gpa.v - region->gpa.v);
	}
	return NULL;
}

bool memory_is_image(const struct memory *memory, gpa_t gpa)
{
	return region_holds(&memory->regions[MEMORY_IMAGE], gpa, 1);
}

uint64_t memory_ram_size(const struct memory *memory)
{
	return memory->ram.size;
}
