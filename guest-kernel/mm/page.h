/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory: a buddy allocator over guest RAM, and one struct page per 4 KiB frame.
 *
 * Pages above a moving frontier were never touched and are known to be zero; the allocator
 * carves 2 MiB blocks from it only when its lists are empty, so that an idle VM touches little
 * of its memory. The array of struct page relies on the same: zero is "never used".
 *
 * Blocks of order > 0 are counted in their first page. page_split() turns a block into single
 * pages with a count each.
 */
#ifndef MM_PAGE_H
#define MM_PAGE_H

#include "guest-kernel/lib/kernel.h"

struct page {
	uint32_t refs;		/* slab: objects in use */
	uint8_t order;		/* slab: size class */
	uint8_t flags;		/* PAGE_*; 0: never handed out (fresh, reserved, not RAM) */
	uint16_t slab_free;	/* slab: first free object, in units of 16 bytes */
	uint32_t next, prev;	/* frame numbers, for free and slab lists; 0 ends a list */
};
#define PAGE_USED	0x01u	/* allocated: reference counts mean something */
#define PAGE_FREE	0x02u	/* first page of a block on a free list */
#define PAGE_ZEROED	0x04u	/* with PAGE_FREE: all of the block is zero */
#define PAGE_SLAB	0x08u	/* cut into kmalloc objects */
#define PAGE_KMALLOC	0x10u	/* first page of a large kmalloc */
#define PAGE_FIXED	0x20u	/* never freed, not counted: the zero page */
#define PAGE_TABLE	0x40u	/* page table, or in the pool of such */

#define PA_ZERO		0x1u	/* contents zero */
#define PA_NOWAIT	0x2u	/* fail rather than reclaim or kill */
#define PAGE_MAX_ORDER	10

struct phys_range {
	paddr_t start, end;
};
/* ram: usable ranges, sorted; reserved: ranges in use at start (kernel, initrd, tables). */
void page_init(const struct phys_range *ram, unsigned nram,
	       const struct phys_range *reserved, unsigned nreserved);

/* Where the map of free pages is (CM_PLAT_FREE_MAP); npages bits, in whole pages. */
paddr_t page_free_map(void);

/* This is a new VM with another's memory: blocks of less than 2 MiB that are free now are used
 * only when there are no others. */
void page_scattered_last(void);

struct page *page_alloc(unsigned order, unsigned flags);	/* NULL: out of memory */
bool page_short(void);		/* little more is left than the kernel's reserve */
void page_get(struct page *p);
void page_put(struct page *p);			/* frees at zero */
void page_split(struct page *p);

/* Where guest-physical 0 is mapped: CM_PHYSMAP_VA, or an arena in host tests. */
extern uintptr_t kernel_physmap;
/* One page of zeros, for read-only mappings of holes. Getting and putting it is harmless. */
paddr_t zero_page_pa(void);

void *phys_to_virt(paddr_t pa);			/* through the physmap: RAM, image, MMIO */
paddr_t virt_to_phys(const void *va);		/* of a physmap address */
struct page *phys_to_page(paddr_t pa);		/* NULL outside RAM (the image) */
paddr_t page_to_phys(const struct page *p);
static inline void *page_to_virt(const struct page *p)
{
	return phys_to_virt(page_to_phys(p));
}
/* Reference counting by address: no-ops outside RAM, where the image's frames live for ever. */
void phys_get(paddr_t pa);
void phys_put(paddr_t pa);

struct mem_stats {
	uint64_t total_pages, free_pages;
	uint64_t anon_pages, table_pages, slab_pages, shmem_pages;
	uint64_t oom_kills;
	uint64_t pool_pages;	/* kept for page tables; whoever wants memory gets them */
};
extern struct mem_stats mem_stats;
static inline uint64_t mem_available(void)
{
	return mem_stats.free_pages + mem_stats.pool_pages;
}

/* kmalloc: 16-byte aligned, sizes to 2 MiB (larger ones: page_alloc). NULL when out. */
void *kmalloc(size_t size);
void *kzalloc(size_t size);
void *kcalloc(size_t n, size_t size);		/* overflow-checked, zeroed */
void *krealloc(void *p, size_t size);
void *kmemdup(const void *p, size_t n);
char *kstrdup(const char *s);
void kfree(const void *p);			/* NULL-safe */

#endif
