/* SPDX-License-Identifier: Apache-2.0 */
/* The page allocator and kmalloc under random load, with their invariants. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/cunit_run.h"

static uint64_t rng_state = 42;

static unsigned rnd(unsigned n)
{
	rng_state = rng_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(rng_state >> 33) % n;
}

/* ---- pages ---- */

#define SLOTS 400u
static struct {
	struct page *p;
	unsigned order;
} slot[SLOTS];

/* Each frame of a block in use carries the slot's number. */
static void mark(unsigned i)
{
	for (unsigned k = 0; k < 1u << slot[i].order; k++)
		*(uint32_t *)page_to_virt(slot[i].p + k) = i + 1;
}

static bool marked(unsigned i)
{
	for (unsigned k = 0; k < 1u << slot[i].order; k++) {
		if (*(uint32_t *)page_to_virt(slot[i].p + k) != i + 1)
			return false;
	}
	return true;
}

static bool is_zero(struct page *p, unsigned order)
{
	const uint64_t *w = page_to_virt(p);

	for (size_t i = 0; i < (PAGE_SIZE << order) / 8; i++) {
		if (w[i] != 0)
			return false;
	}
	return true;
}

static bool told_free(const struct page *p)
{
	const uint8_t *map = phys_to_virt(page_free_map());

	return map[page_to_pfn(p) / 8] >> page_to_pfn(p) % 8 & 1;
}

/* Whether the host is told so of all of a block. */
static bool block_told(const struct page *p, unsigned order, bool is_free)
{
	for (unsigned k = 0; k < 1u << order; k++) {
		if (told_free(p + k) != is_free)
			return false;
	}
	return true;
}

static void slot_free(unsigned i)
{
	unsigned n = 1;

	if (rnd(4) == 0) {	/* page by page */
		n = 1u << slot[i].order;
		page_split(slot[i].p);
	}
	CU_ASSERT(block_told(slot[i].p, slot[i].order, false));
	for (unsigned k = 0; k < n; k++)
		page_put(slot[i].p + k);
	CU_ASSERT(block_told(slot[i].p, slot[i].order, true));
	slot[i].p = NULL;
}

static void test_pages(void)
{
	uint64_t used = 0;

	support_init();
	CU_ASSERT(page_check() == mem_stats.free_pages);
	for (unsigned n = 0; n < 20000; n++) {
		unsigned i = rnd(SLOTS);

		if (slot[i].p != NULL) {
			CU_ASSERT(marked(i));
			used -= 1UL << slot[i].order;
			slot_free(i);
		} else {
			unsigned zero = rnd(2) ? PA_ZERO : 0;

			slot[i].order = rnd(3) ? rnd(3) : rnd(PAGE_MAX_ORDER + 1);
			slot[i].p = page_alloc(slot[i].order, zero | PA_NOWAIT);
			if (slot[i].p == NULL)
				continue;
			used += 1UL << slot[i].order;
			CU_ASSERT(!zero || slot[i].order > 6 ||
				  is_zero(slot[i].p, slot[i].order));
			CU_ASSERT((page_to_phys(slot[i].p) & ((PAGE_SIZE << slot[i].order) - 1)) ==
				  0);
			mark(i);
		}
		if (n % 700 == 0)
			page_scattered_last();
		if (n % 500 == 0)
			CU_ASSERT(page_check() == mem_stats.free_pages);
		CU_ASSERT(mem_stats.free_pages + used == mem_stats.total_pages);
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		if (slot[i].p != NULL)
			slot_free(i);
	}
	CU_ASSERT(page_check() == mem_stats.total_pages);
	/* Everything has merged: the largest blocks can be had again. */
	CU_ASSERT_PTR_NOT_NULL(page_alloc(PAGE_MAX_ORDER, PA_NOWAIT));
	CU_ASSERT_PTR_NULL(page_alloc(PAGE_MAX_ORDER + 1, 0));
}

/* Small blocks that were set aside come when there is nothing else, and not before. */
static void test_scattered(void)
{
	static bool aside[RAM_SIZE >> PAGE_SHIFT];
	struct page *p[2048], *q;
	unsigned again = 0;

	support_init();
	for (unsigned i = 0; i < 2048; i++)
		p[i] = page_alloc(0, 0);
	for (unsigned i = 0; i < 2048; i += 2) {
		aside[page_to_pfn(p[i])] = true;
		page_put(p[i]);
	}
	page_scattered_last();
	page_scattered_last();		/* nothing more */
	CU_ASSERT(page_check() == mem_stats.free_pages);
	while ((q = page_alloc(0, PA_NOWAIT)) != NULL) {
		if (aside[page_to_pfn(q)] && again++ == 0)
			CU_ASSERT_PTR_NULL(page_alloc(9, PA_NOWAIT));
	}
	CU_ASSERT(again > 0);
	CU_ASSERT(page_check() == mem_stats.free_pages);
	/* A block that was set aside merges with one that was not. */
	support_init();
	for (unsigned i = 0; i < 2048; i++)
		p[i] = page_alloc(0, 0);
	for (unsigned i = 0; i < 2048; i += 2)
		page_put(p[i]);
	page_scattered_last();
	for (unsigned i = 1; i < 2048; i += 2)
		page_put(p[i]);
	CU_ASSERT(page_check() == mem_stats.total_pages);
	CU_ASSERT_PTR_NOT_NULL(page_alloc(PAGE_MAX_ORDER, PA_NOWAIT));
}

static void test_frontier(void)
{
	struct page *p;

	support_init();
	/* An idle kernel touches little: one small request carves one block. */
	p = page_alloc(0, 0);
	CU_ASSERT(page_to_phys(p) >= PAGE_SIZE && page_to_phys(p) < 8UL << 20);
	CU_ASSERT(is_zero(p, 0));
	/* Nothing reserved is ever handed out. */
	for (;;) {
		paddr_t pa;

		p = page_alloc(0, 0);
		if (p == NULL)
			break;
		pa = page_to_phys(p);
		CU_ASSERT(pa >= 0x80000 && !(pa >= 0x200000 && pa < 0x346000));
		CU_ASSERT(pa < RAM_SIZE);
	}
	CU_ASSERT(mem_stats.free_pages == 0);
	CU_ASSERT(last_killed == 0);	/* nobody has memory of his own */
}

static void test_references(void)
{
	struct page *p;
	paddr_t zero;

	support_init();
	p = page_alloc(2, 0);
	page_get(p);
	page_split(p);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT(p[i].refs == 2);
		page_put(p + i);
		page_put(p + i);
	}
	zero = zero_page_pa();
	for (unsigned i = 0; i < 10; i++)
		phys_put(zero);
	CU_ASSERT(*(uint64_t *)phys_to_virt(zero) == 0);
	phys_get(IMAGE_PA);		/* outside RAM */
	phys_put(IMAGE_PA);
	phys_get(0x200000);		/* reserved */
	phys_put(0x200000);
	phys_put(0x200000);
	CU_ASSERT_PTR_NULL(phys_to_page(RAM_SIZE));
	CU_ASSERT(page_check() == mem_stats.free_pages);
	CU_ASSERT(mem_stats.free_pages == mem_stats.total_pages - 1);
}

/* Two ranges with a hole, odd borders, reservations that overlap and touch ends. */
static void test_ranges(void)
{
	const struct phys_range ram[] = { { 0, 0x801234 }, { 0x1000000, 0x3000000 } };
	const struct phys_range reserved[] = {
		{ 0, 0x80000 }, { 0x200000, 0x300001 }, { 0x2ff000, 0x400000 },
		{ 0x2fff000, 0x3000000 }, { 0x5000000, 0x6000000 },
	};
	uint64_t n = 0;
	struct page *p;

	support_init();
	page_init(ram, 2, reserved, 5);
	CU_ASSERT(page_check() == mem_stats.total_pages);
	while ((p = page_alloc(0, 0)) != NULL) {
		paddr_t pa = page_to_phys(p);

		CU_ASSERT((pa >= 0x80000 && pa < 0x200000) || (pa >= 0x400000 && pa < 0x801000) ||
			  (pa >= 0x1000000 && pa < 0x2fff000));
		n++;
	}
	CU_ASSERT(n == mem_stats.total_pages);
	/* 0x180000 + 0x401000 + 0x1fff000 bytes, less 12288 descriptors of 16 bytes and as many
	 * bits */
	CU_ASSERT(n == 0x180 + 0x401 + 0x1fff - 48 - 1);
}

/* ---- kmalloc ---- */

static struct {
	uint8_t *p;
	size_t n;
} obj[2000];

static bool intact(unsigned i)
{
	for (size_t k = 0; k < obj[i].n; k++) {
		if (obj[i].p[k] != (uint8_t)(i * 7 + k))
			return false;
	}
	return true;
}

static void fill(unsigned i)
{
	for (size_t k = 0; k < obj[i].n; k++)
		obj[i].p[k] = (uint8_t)(i * 7 + k);
}

static void test_kmalloc(void)
{
	support_init();
	for (unsigned n = 0; n < 100000; n++) {
		unsigned i = rnd(ARRAY_SIZE(obj));
		size_t size = rnd(20) == 0 ? rnd(20000) : rnd(8) == 0 ? rnd(2100) : rnd(200);

		if (obj[i].p == NULL) {
			obj[i].p = rnd(2) ? kmalloc(size) : kzalloc(size);
			obj[i].n = size;
			CU_ASSERT_FATAL(obj[i].p != NULL);
			CU_ASSERT(((uintptr_t)obj[i].p & 15) == 0);
			fill(i);
		} else if (rnd(4) == 0) {
			size_t keep = MIN(size, obj[i].n);
			uint8_t *p = krealloc(obj[i].p, size);

			CU_ASSERT_FATAL(p != NULL);
			obj[i].p = p;
			obj[i].n = keep;
			CU_ASSERT(intact(i));
			obj[i].n = size;
			fill(i);
		} else {
			CU_ASSERT(intact(i));
			kfree(obj[i].p);
			obj[i].p = NULL;
		}
	}
	for (unsigned i = 0; i < ARRAY_SIZE(obj); i++) {
		kfree(obj[i].p);
		obj[i].p = NULL;
	}
	CU_ASSERT(page_check() == mem_stats.free_pages);
	/* One empty slab a class stays. */
	CU_ASSERT(mem_stats.slab_pages <= 18);
	CU_ASSERT(mem_stats.free_pages + mem_stats.slab_pages == mem_stats.total_pages);
}

static void test_kmalloc_edges(void)
{
	char *s;

	support_init();
	kfree(NULL);
	CU_ASSERT_PTR_NOT_NULL(kmalloc(0));
	CU_ASSERT_PTR_NULL(kmalloc((2UL << 20) + 1));
	CU_ASSERT_PTR_NULL(kmalloc(~0UL));
	CU_ASSERT_PTR_NULL(kcalloc(~0UL / 2, 3));
	CU_ASSERT_PTR_NOT_NULL(kmalloc(2UL << 20));
	s = kstrdup("text");
	CU_ASSERT_STRING_EQUAL(s, "text");
	kfree(s);
	while (kmalloc(2048) != NULL)
		;
	CU_ASSERT_PTR_NULL(kmalloc(2048));
	CU_ASSERT_PTR_NULL(kmalloc(4096));
	CU_ASSERT(page_check() == mem_stats.free_pages);
}

static void test_shmem_charge(void)
{
	support_init();
	CU_ASSERT(shmem_charge((long)mem_stats.total_pages / 2));
	CU_ASSERT(!shmem_charge(1));
	CU_ASSERT(shmem_charge(-10));
	CU_ASSERT(shmem_charge(10));
	CU_ASSERT(!shmem_charge(1));
}

int main(void)
{
	CU_pSuite s = cunit_suite("kernel-mm-page", NULL, NULL);

	CU_add_test(s, "random blocks", test_pages);
	CU_add_test(s, "scattered", test_scattered);
	CU_add_test(s, "frontier", test_frontier);
	CU_add_test(s, "references", test_references);
	CU_add_test(s, "odd ranges", test_ranges);
	CU_add_test(s, "kmalloc", test_kmalloc);
	CU_add_test(s, "kmalloc edges", test_kmalloc_edges);
	CU_add_test(s, "tmpfs's share", test_shmem_charge);
	return cunit_run();
}
