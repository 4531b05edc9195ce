/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same operations while memory runs out again and again: any of them may fail, none may
 * leave an address space that contradicts itself, and in the end nothing is lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/mman.h>

#include "guest-kernel/mm/uaccess.h"
#include "support.h"
#include "tests/unit/cunit_run.h"

#define BASE	0x10000000UL
#define WIN	2048u
#define PROCS	3u
#define HOGS	32768u

long sys_mremap(uintptr_t addr, size_t old_len, size_t new_len, unsigned long flags,
		uintptr_t new);
long sys_madvise(uintptr_t start, size_t len, int advice);
long sys_mlock(uintptr_t start, size_t len);
long sys_munlock(uintptr_t start, size_t len);

static struct mm *procs[PROCS];
static struct mm *now;
static struct obj *image;
static struct page *hogs[HOGS];
static unsigned nhogs;
static uint64_t rng_state;

static unsigned rnd(unsigned n)
{
	rng_state = rng_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(rng_state >> 33) % n;
}

/* Leaves about `left` free pages. */
static void hog(unsigned left)
{
	while (nhogs > 0 && mem_stats.free_pages < left)
		page_put(hogs[--nhogs]);
	while (nhogs < HOGS && mem_stats.free_pages > left) {
		hogs[nhogs] = page_alloc(0, 0);
		if (hogs[nhogs] == NULL)
			break;
		nhogs++;
	}
	test_process.group_exit = false;
}

static void check(struct mm *mm)
{
	uint64_t anon = 0, file = 0, total = 0, locked = 0;
	uintptr_t last = 0;
	struct pt_iter it;
	struct vma *v;
	unsigned n = 0;

	RB_FOREACH(v, vma_tree, &mm->vmas) {
		CU_ASSERT_FATAL(v->start >= last && v->end > v->start);
		last = v->end;
		n++;
		total += (v->end - v->start) / PAGE_SIZE;
		if (v->advice & VMA_LOCKED)
			locked += (v->end - v->start) / PAGE_SIZE;
	}
	CU_ASSERT_FATAL(n == mm->nvmas && total == mm->total_pages &&
			locked == mm->locked_pages);
	pt_iter_init(&it, mm, 0, 0x00007f8000000000UL);
	while (pt_iter_next(&it)) {
		unsigned pages = it.huge ? PT_ENTRIES : 1;
		pte_t e = *it.entry;

		v = mm_find(mm, it.va);
		CU_ASSERT_FATAL(v != NULL && v->start <= it.va &&
				it.va + pages * PAGE_SIZE <= v->end);
		CU_ASSERT_FATAL(((e & PTE_P) != 0) == (v->prot != 0));
		CU_ASSERT_FATAL(!(e & PTE_W) || (v->prot & PROT_WRITE));
		if (e & PTE_ANON)
			anon += pages;
		else if ((e & PTE_ADDR) != zero_page_pa())
			file += pages;
	}
	CU_ASSERT_FATAL(anon == mm->rss_anon && file == mm->rss_file);
}

static void step(void)
{
	static const uint32_t prots[] = { 0, 1, 3, 3, 3, 5, 7 };
	static const int advices[] = { MADV_DONTNEED, MADV_HUGEPAGE, MADV_WIPEONFORK,
				       MADV_POPULATE_WRITE, MADV_POPULATE_READ, MADV_DONTFORK };
	uintptr_t va = BASE + rnd(WIN) * PAGE_SIZE, to = BASE + rnd(WIN) * PAGE_SIZE;
	size_t len = (1 + rnd(rnd(4) ? 40 : 1200)) * PAGE_SIZE;
	uint32_t prot = prots[rnd(ARRAY_SIZE(prots))];
	unsigned slot = rnd(PROCS);
	char buf[64] = "x";
	struct mm *child;

	switch (rnd(16)) {
	case 0: case 1:
		mm_map(now, va, len, prot, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, NULL, 0);
		break;
	case 2:
		mm_map(now, va, MIN(len, 100 * PAGE_SIZE), prot,
		       MAP_FIXED | MAP_SHARED | MAP_ANONYMOUS, NULL, 0);
		break;
	case 3:
		mm_map(now, va, MIN(len, 300 * PAGE_SIZE), prot, MAP_FIXED | MAP_PRIVATE,
		       &image->file, 0);
		break;
	case 4:
		mm_unmap(now, va, len);
		break;
	case 5:
		mm_protect(now, va, len, prot);
		break;
	case 6:
		sys_mremap(va, len, rnd(2) ? len : len + 64 * PAGE_SIZE,
			   MREMAP_MAYMOVE | (rnd(2) ? MREMAP_FIXED : 0), to);
		break;
	case 7:
		sys_madvise(va, len, advices[rnd(ARRAY_SIZE(advices))]);
		break;
	case 8:
		if (procs[slot] == now)
			break;
		child = mm_fork(now);
		if (child == NULL)
			break;
		if (procs[slot] != NULL)
			mm_put(procs[slot]);
		procs[slot] = child;
		break;
	case 9:
		if (procs[slot] == NULL)
			break;
		now = procs[slot];
		support_set_mm(now);
		break;
	case 10:
		hog(rnd(3000));
		break;
	case 11:
		hog(rnd(30));
		break;
	case 12:
		sys_mlock(va, MIN(len, 30 * PAGE_SIZE));
		sys_munlock(BASE, WIN * PAGE_SIZE);
		break;
	default:
		for (unsigned i = 0; i < 40; i++, va += PAGE_SIZE) {
			(void)copy_to_user((void *)va, buf, sizeof(buf));
			(void)copy_from_user(buf, (void *)(va + 64), sizeof(buf));
		}
		break;
	}
	test_process.group_exit = false;
}

static void test_pressure(void)
{
	unsigned rounds = getenv("ROUNDS") != NULL ? (unsigned)atoi(getenv("ROUNDS")) : 10;

	support_init();
	image = obj_new(OBJ_IMAGE, 300);
	for (unsigned round = 0; round < rounds; round++) {
		rng_state = round + 77;
		now = procs[0] = mm_new();
		support_set_mm(now);
		for (unsigned i = 0; i < 1500; i++) {
			step();
			if (i % 8 == 0)
				check(now);
		}
		hog(1u << 30);
		for (unsigned i = 0; i < PROCS; i++) {
			if (procs[i] == NULL)
				continue;
			check(procs[i]);
			mm_put(procs[i]);
			procs[i] = NULL;
		}
		support_set_mm(NULL);
		table_pool_shrink();
		CU_ASSERT_FATAL(objs_alive == 1 && mem_stats.anon_pages == 0);
		CU_ASSERT_FATAL(page_check() == mem_stats.free_pages);
		CU_ASSERT_FATAL(mem_stats.free_pages + 32 >= mem_stats.total_pages);
	}
	obj_put(image);
}

int main(void)
{
	CU_pSuite s = cunit_suite("kernel-mm-pressure", NULL, NULL);

	CU_add_test(s, "operations without memory", test_pressure);
	return cunit_run();
}
