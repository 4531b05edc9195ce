/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buddy allocator.
 *
 * page_init() subtracts the reserved ranges from RAM, takes the array of struct page (one for
 * each frame below the end of RAM, indexed by frame number) and the map of free pages from the
 * first hole that is large enough, and touches nothing of them: zero means "never used".
 *
 * What was never handed out lies between the frontier (a region and a position in it) and the
 * last region's end. When the free lists cannot serve a request, one block of at most 2 MiB is
 * cut off at the frontier and put on a list. Blocks are aligned to their size; only the first
 * struct page of a block is written, so that a free or allocated 2 MiB block costs one line.
 * A free block that is still all zero carries PAGE_ZEROED and need not be cleared again. The
 * others' pages have their bits set in the map that the host reads when it saves the VM
 * (CM_PLAT_FREE_MAP), so that what was freed is no part of a snapshot.
 *
 * In a VM that was made from another one, what was free in smaller blocks lies scattered among
 * pages that all its siblings share, and each first touch of such a page costs the host a fault.
 * There page_scattered_last() sets those blocks aside until there is nothing else: what is taken
 * instead are 2 MiB that hold nothing, for which the host has one huge page.
 *
 * The last `reserve` pages are for the kernel alone. Whoever can wait for memory (a program's
 * page fault) asks with PA_NOWAIT and is refused there; the kernel's own requests go through,
 * and each starts the OOM killer, which by itself frees nothing: the victim does when it runs.
 */
#include "guest-kernel/mm/page.h"

#include "abi/layout.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/mm_internal.h"

#define REGIONS_MAX	64u
#define FRONTIER_ORDER	9u	/* 2 MiB: what the host backs with one huge page */

uintptr_t kernel_physmap = CM_PHYSMAP_VA;
struct mem_stats mem_stats;

static struct page *pages;
static uint64_t *free_map;
static uint32_t npages;			/* frames below the end of RAM */
static struct phys_range ram_ranges[REGIONS_MAX];
static unsigned nram_ranges;
static struct phys_range regions[REGIONS_MAX];	/* free at start */
static unsigned nregions, frontier_region;
static paddr_t frontier;
struct block_list {
	uint32_t head, tail;		/* frame numbers, 0: empty */
};
static struct block_list free_lists[PAGE_MAX_ORDER + 1];
static struct block_list last_lists[PAGE_MAX_ORDER + 1];	/* page_scattered_last() */
static uint64_t reserve;
static paddr_t zero_page;

void *phys_to_virt(paddr_t pa)
{
	return (void *)(kernel_physmap + pa);
}

paddr_t virt_to_phys(const void *va)
{
	return (uintptr_t)va - kernel_physmap;
}

struct page *phys_to_page(paddr_t pa)
{
	for (unsigned i = 0; i < nram_ranges; i++) {
		if (pa >= ram_ranges[i].start && pa < ram_ranges[i].end)
			return &pages[pa >> PAGE_SHIFT];
	}
	return NULL;
}

paddr_t page_to_phys(const struct page *p)
{
	return (paddr_t)(p - pages) << PAGE_SHIFT;
}

uint32_t page_to_pfn(const struct page *p)
{
	return p == NULL ? 0 : (uint32_t)(p - pages);
}

struct page *pfn_to_page(uint32_t pfn)
{
	return pfn == 0 ? NULL : &pages[pfn];
}

/* ---- start ---- */

static void regions_add(paddr_t start, paddr_t end)
{
	if (start < PAGE_SIZE)
		start = PAGE_SIZE;
	if (start >= end || nregions == REGIONS_MAX)
		return;
	regions[nregions].start = start;
	regions[nregions++].end = end;
}

/* Takes [start, end) out of every region. */
static void regions_subtract(paddr_t start, paddr_t end)
{
	unsigned n = nregions;

	for (unsigned i = 0; i < n; i++) {
		struct phys_range r = regions[i];

		if (end <= r.start || start >= r.end)
			continue;
		if (start <= r.start) {
			regions[i].start = MIN(end, r.end);
		} else {
			regions[i].end = start;
			if (end < r.end)
				regions_add(end, r.end);
		}
	}
}

/* Sorts by address and drops empty ones. */
static void regions_tidy(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < nregions; i++) {
		struct phys_range r = regions[i];
		unsigned j = n;

		if (r.start >= r.end)
			continue;
		for (; j > 0 && regions[j - 1].start > r.start; j--)
			regions[j] = regions[j - 1];
		regions[j] = r;
		n++;
	}
	nregions = n;
}

void page_init(const struct phys_range *ram, unsigned nram,
	       const struct phys_range *reserved, unsigned nreserved)
{
	size_t bytes, map_bytes;
	unsigned i;

	nregions = nram_ranges = 0;
	npages = 0;
	zero_page = 0;
	memset(free_lists, 0, sizeof(free_lists));
	memset(last_lists, 0, sizeof(last_lists));
	memset(&mem_stats, 0, sizeof(mem_stats));
	for (i = 0; i < nram && i < REGIONS_MAX / 2; i++) {
		paddr_t start = ALIGN_UP(ram[i].start, PAGE_SIZE);
		paddr_t end = ALIGN_DOWN(ram[i].end, PAGE_SIZE);

		if (start >= end)
			continue;
		ram_ranges[nram_ranges].start = start;
		ram_ranges[nram_ranges++].end = end;
		npages = MAX(npages, (uint32_t)(end >> PAGE_SHIFT));
		regions_add(start, end);
	}
	for (i = 0; i < nreserved; i++)
		regions_subtract(ALIGN_DOWN(reserved[i].start, PAGE_SIZE),
				 ALIGN_UP(reserved[i].end, PAGE_SIZE));
	regions_tidy();

	bytes = ALIGN_UP(npages * sizeof(struct page), PAGE_SIZE);
	map_bytes = ALIGN_UP(npages / 8 + 8, PAGE_SIZE);
	for (i = 0; i < nregions; i++) {
		if (regions[i].end - regions[i].start >= bytes + map_bytes)
			break;
	}
	if (i == nregions)
		panic("memory: no room for %u page descriptors", npages);
	pages = phys_to_virt(regions[i].start);
	free_map = phys_to_virt(regions[i].start + bytes);
	regions[i].start += bytes + map_bytes;
	regions_tidy();

	for (i = 0; i < nregions; i++)
		mem_stats.total_pages += (regions[i].end - regions[i].start) >> PAGE_SHIFT;
	mem_stats.free_pages = mem_stats.total_pages;
	reserve = MIN(mem_stats.total_pages / 64, 512UL);
	frontier_region = 0;
	frontier = nregions != 0 ? regions[0].start : 0;
	kmalloc_init();
	pt_init();
}

/* ---- map of free pages ---- */

paddr_t page_free_map(void)
{
	return virt_to_phys(free_map);
}

/* A block is aligned to its size: within a word, or whole words. */
static void map_set(const struct page *p, unsigned order, bool is_free)
{
	uint32_t pfn = page_to_pfn(p);
	uint64_t *word = &free_map[pfn / 64], mask;

	if (order >= 6) {
		memset(word, is_free ? 0xff : 0, sizeof(*word) << (order - 6));
		return;
	}
	mask = ((1UL << (1u << order)) - 1) << pfn % 64;
	*word = is_free ? *word | mask : *word & ~mask;
}

/* ---- free lists ---- */

static void list_push(struct page *p, unsigned order, unsigned zeroed)
{
	struct block_list *list = &free_lists[order];
	uint32_t pfn = page_to_pfn(p);

	p->refs = 0;
	p->order = (uint8_t)order;
	p->flags = (uint8_t)(PAGE_FREE | zeroed);
	p->prev = 0;
	p->next = list->head;
	if (list->head != 0)
		pages[list->head].prev = pfn;
	else
		list->tail = pfn;
	list->head = pfn;
}

/* The one of the two lists that has it at an end; either, if it is at none. */
static struct block_list *list_of(const struct page *p)
{
	struct block_list *list = &free_lists[p->order];
	uint32_t pfn = page_to_pfn(p);

	return list->head == pfn || list->tail == pfn ? list : &last_lists[p->order];
}

static void list_remove(struct page *p)
{
	struct block_list *list = list_of(p);

	if (p->prev != 0)
		pages[p->prev].next = p->next;
	else
		list->head = p->next;
	if (p->next != 0)
		pages[p->next].prev = p->prev;
	else
		list->tail = p->prev;
	p->flags = 0;
	p->next = p->prev = 0;
}

/* Cuts one block off at the frontier: the largest that is aligned there, at most 1 << max
 * pages. False when nothing is left. */
static bool frontier_carve(unsigned max)
{
	unsigned order = max;

	while (frontier_region < nregions && frontier >= regions[frontier_region].end) {
		if (++frontier_region < nregions)
			frontier = regions[frontier_region].start;
	}
	if (frontier_region >= nregions)
		return false;
	while ((frontier & ((PAGE_SIZE << order) - 1)) != 0 ||
	       frontier + (PAGE_SIZE << order) > regions[frontier_region].end)
		order--;
	list_push(&pages[frontier >> PAGE_SHIFT], order, PAGE_ZEROED);
	frontier += PAGE_SIZE << order;
	return true;
}

void page_scattered_last(void)
{
	for (unsigned o = 0; o < FRONTIER_ORDER; o++) {
		struct block_list *list = &free_lists[o], *last = &last_lists[o];

		if (list->head == 0)
			continue;
		if (last->head != 0) {
			pages[last->tail].next = list->head;
			pages[list->head].prev = last->tail;
		} else {
			last->head = list->head;
		}
		last->tail = list->tail;
		list->head = list->tail = 0;
	}
}

/* The smallest free block that is large enough. */
static struct page *block_find(const struct block_list *lists, unsigned order)
{
	for (; order <= PAGE_MAX_ORDER; order++) {
		if (lists[order].head != 0)
			return &pages[lists[order].head];
	}
	return NULL;
}

static struct page *block_take(unsigned order)
{
	struct page *p = block_find(free_lists, order);
	unsigned zeroed, o;

	while (p == NULL && frontier_carve(MAX(order, FRONTIER_ORDER)))
		p = block_find(free_lists, order);
	if (p == NULL)
		p = block_find(last_lists, order);
	if (p == NULL)
		return NULL;
	o = p->order;
	zeroed = p->flags & PAGE_ZEROED;
	list_remove(p);
	while (o > order) {
		o--;
		list_push(p + (1u << o), o, zeroed);
	}
	p->flags = (uint8_t)(PAGE_USED | zeroed);
	p->order = (uint8_t)order;
	p->refs = 1;
	return p;
}

bool page_short(void)
{
	return mem_stats.free_pages < 2 * reserve + (1u << PAGE_MAX_ORDER);
}

struct page *page_alloc(unsigned order, unsigned flags)
{
	uint64_t n = 1UL << order;
	struct page *p;

	if (order > PAGE_MAX_ORDER)
		return NULL;
	if (unlikely(mem_stats.free_pages < reserve + n)) {
		table_pool_shrink();
		if (mem_stats.free_pages < reserve + n) {
			if (flags & PA_NOWAIT)
				return NULL;
			oom_kill();
		}
	}
	p = block_take(order);
	if (p == NULL)
		return NULL;
	mem_stats.free_pages -= n;
	/* What is still zero has no bits to clear either. */
	if (!(p->flags & PAGE_ZEROED)) {
		map_set(p, order, false);
		if (flags & PA_ZERO)
			memset(page_to_virt(p), 0, PAGE_SIZE << order);
	}
	p->flags = PAGE_USED;
	return p;
}

static void block_free(struct page *p, unsigned order)
{
	uint32_t pfn = page_to_pfn(p);

	mem_stats.free_pages += 1UL << order;
	map_set(p, order, true);
	p->flags = 0;
	while (order < PAGE_MAX_ORDER) {
		uint32_t buddy = pfn ^ (1u << order);

		if (buddy >= npages || !(pages[buddy].flags & PAGE_FREE) ||
		    pages[buddy].order != order)
			break;
		list_remove(&pages[buddy]);
		pfn &= ~(1u << order);
		order++;
	}
	list_push(&pages[pfn], order, 0);
}

/* ---- references ---- */

void page_get(struct page *p)
{
	if (unlikely(!(p->flags & PAGE_USED) || (p->flags & PAGE_FIXED))) {
		ASSERT(!(p->flags & PAGE_FREE));
		return;
	}
	ASSERT(p->refs != 0 && p->refs != UINT32_MAX);
	p->refs++;
}

void page_put(struct page *p)
{
	if (unlikely(!(p->flags & PAGE_USED) || (p->flags & PAGE_FIXED))) {
		ASSERT(!(p->flags & PAGE_FREE));
		return;
	}
	ASSERT(p->refs != 0);
	if (--p->refs == 0)
		block_free(p, p->order);
}

void page_split(struct page *p)
{
	unsigned n = 1u << p->order;

	for (unsigned i = 0; i < n; i++) {
		p[i].refs = p->refs;
		p[i].order = 0;
		p[i].flags = p->flags;
		p[i].next = p[i].prev = 0;
	}
}

void phys_get(paddr_t pa)
{
	struct page *p = phys_to_page(pa);

	if (p != NULL)
		page_get(p);
}

void phys_put(paddr_t pa)
{
	struct page *p = phys_to_page(pa);

	if (p != NULL)
		page_put(p);
}

paddr_t zero_page_pa(void)
{
	if (unlikely(zero_page == 0)) {
		struct page *p = page_alloc(0, PA_ZERO);

		if (p == NULL)
			panic("memory: no page of zeros");
		p->flags |= PAGE_FIXED;
		zero_page = page_to_phys(p);
	}
	return zero_page;
}

/* ---- tmpfs's share ---- */

bool shmem_charge(long n)
{
	if (n > 0 && mem_stats.shmem_pages + (uint64_t)n > mem_stats.total_pages / 2)
		return false;
	mem_stats.shmem_pages += (uint64_t)n;
	return true;
}

/* Whether the map says the right thing of a free block. */
static bool map_holds(const struct page *p)
{
	for (uint32_t pfn = page_to_pfn(p), n = 1u << p->order; n > 0; n--, pfn++) {
		bool bit = free_map[pfn / 64] >> pfn % 64 & 1;

		if ((p->flags & PAGE_ZEROED) && bit)
			return false;
	}
	return true;
}

/* The number of pages in lists of one kind, or ~0. */
static uint64_t lists_check(const struct block_list *lists)
{
	uint64_t n = 0;

	for (unsigned order = 0; order <= PAGE_MAX_ORDER; order++) {
		uint32_t prev = 0;

		for (uint32_t pfn = lists[order].head; pfn != 0; pfn = pages[pfn].next) {
			struct page *p = &pages[pfn];

			if (!(p->flags & PAGE_FREE) || p->order != order || p->prev != prev ||
			    (pfn & ((1u << order) - 1)) != 0 || p->refs != 0 || !map_holds(p))
				return ~0UL;
			n += 1UL << order;
			prev = pfn;
		}
		if (lists[order].tail != prev)
			return ~0UL;
	}
	return n;
}

/* For tests: walks the free lists and returns the number of pages found there and beyond the
 * frontier, or ~0 when an invariant does not hold. */
uint64_t page_check(void)
{
	uint64_t n = lists_check(free_lists), last = lists_check(last_lists);

	if (n == ~0UL || last == ~0UL)
		return ~0UL;
	n += last;
	for (unsigned i = frontier_region; i < nregions; i++) {
		paddr_t start = i == frontier_region ? frontier : regions[i].start;

		n += (regions[i].end - start) >> PAGE_SHIFT;
	}
	return n;
}
