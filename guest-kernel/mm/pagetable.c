/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four-level page tables, read and written through the physmap.
 *
 * Slots 0 to 254 of the root belong to the program; slot 255 is the kernel's and points to the
 * same lower tables in every address space. Only PTE_ANON memory is mapped by 2 MiB entries;
 * such an entry owns its block alone (reference count 1) and is split before anything happens
 * to a part of it.
 *
 * Table pages come from a pool and return to it: reused as data, they would make a
 * shadow-paging host drop its shadows, and a processor that still walks a freed table
 * speculatively may set Accessed bits, which is harmless in another table only. The pool gives
 * pages back when memory runs out. The root of a dead address space may still be loaded
 * (nothing switches it away before the next program runs), so roots wait in a short queue
 * before they are used again, and the loaded one is passed over.
 */
#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/mm/mm_internal.h"
#include "guest-kernel/mm/patch.h"

#define POOL_ORDER	3u
#define DEAD_ROOTS	4u

static uint32_t pool;			/* frame numbers, linked by next */
static paddr_t dead_roots[DEAD_ROOTS];
static unsigned dead_next;
static paddr_t loaded_root;

void pt_init(void)
{
	pool = 0;
	mem_stats.pool_pages = 0;
	memset(dead_roots, 0, sizeof(dead_roots));
	dead_next = 0;
	loaded_root = 0;
}

/* ---- translation caches ---- */

void tlb_init(struct tlb *t, struct mm *mm)
{
	t->mm = mm;
	t->n = 0;
	t->va = 0;
}

void tlb_page(struct tlb *t, uintptr_t va)
{
	t->va = va;
	t->n++;
}

void tlb_finish(struct tlb *t)
{
	/* Any other is flushed when it is loaded. A kernel thread keeps the last one's. */
	if (t->n == 0 || t->mm->pml4 != loaded_root)
		return;
	if (t->n == 1)
		arch_invlpg(t->va);
	else
		arch_flush_tlb();
	t->n = 0;
}

void mm_activate(struct mm *mm)
{
	if (loaded_root == mm->pml4)
		return;
	loaded_root = mm->pml4;
	patch_activate(mm);
	arch_load_cr3(mm->pml4);
}

/* ---- table pages ---- */

static paddr_t table_alloc(unsigned pa_flags)
{
	struct page *p = pfn_to_page(pool);

	if (p == NULL) {
		unsigned order = POOL_ORDER;

		p = page_alloc(order, PA_NOWAIT);
		if (p == NULL) {
			order = 0;
			p = page_alloc(order, pa_flags);
		}
		if (p == NULL)
			return 0;
		page_split(p);
		for (unsigned i = 0; i < 1u << order; i++) {
			p[i].flags |= PAGE_TABLE;
			p[i].next = i + 1 < 1u << order ? page_to_pfn(p + i + 1) : 0;
		}
		pool = page_to_pfn(p);
		mem_stats.pool_pages += 1u << order;
	}
	pool = p->next;
	mem_stats.pool_pages--;
	p->next = 0;
	mem_stats.table_pages++;
	memset(page_to_virt(p), 0, PAGE_SIZE);
	return page_to_phys(p);
}

static void table_free(paddr_t pa)
{
	struct page *p = phys_to_page(pa);

	ASSERT(p != NULL && (p->flags & PAGE_TABLE) && p->refs == 1);
	p->next = pool;
	pool = page_to_pfn(p);
	mem_stats.pool_pages++;
	mem_stats.table_pages--;
}

void table_pool_shrink(void)
{
	/* As data they must not be walked any more, not even speculatively. */
	if (pool != 0)
		arch_flush_tlb();
	while (pool != 0) {
		struct page *p = pfn_to_page(pool);

		pool = p->next;
		mem_stats.pool_pages--;
		p->next = 0;
		p->flags &= (uint8_t)~PAGE_TABLE;
		page_put(p);
	}
}

paddr_t pt_new_root(void)
{
	paddr_t pa = table_alloc(0);
	pte_t *root, *boot = phys_to_virt(CM_BOOT_PT_GPA);

	if (pa == 0)
		return 0;
	root = phys_to_virt(pa);
	root[CM_KERNEL_SLOT] = boot[CM_KERNEL_SLOT];
	return pa;
}

void pt_free_root(paddr_t pml4)
{
	for (unsigned i = 0; i <= DEAD_ROOTS; i++) {
		paddr_t old = dead_roots[dead_next];

		if (old != 0 && old == loaded_root) {
			dead_next = (dead_next + 1) % DEAD_ROOTS;
			continue;
		}
		dead_roots[dead_next] = pml4;
		dead_next = (dead_next + 1) % DEAD_ROOTS;
		if (old != 0)
			table_free(old);
		return;
	}
}

/* ---- walks ---- */

static inline unsigned pt_index(uintptr_t va, unsigned level)
{
	return (unsigned)(va >> (PAGE_SHIFT + 9 * (level - 1))) & (PT_ENTRIES - 1);
}

static inline pte_t *pt_table(pte_t e)
{
	return phys_to_virt(e & PTE_ADDR);
}

/* The table below *e, made if it is missing and pa_flags allow. */
static pte_t *pt_down(struct mm *mm, pte_t *e, unsigned pa_flags)
{
	if (*e == 0) {
		paddr_t pa;

		if (pa_flags == PT_LOOKUP)
			return NULL;
		pa = table_alloc(pa_flags);
		if (pa == 0)
			return NULL;
		mm->table_pages++;
		*e = pa | PTE_TABLE;
	}
	return pt_table(*e);
}

pte_t *pt_pde(struct mm *mm, uintptr_t va, unsigned pa_flags)
{
	pte_t *t = phys_to_virt(mm->pml4);

	for (unsigned level = 4; level > 2; level--) {
		t = pt_down(mm, &t[pt_index(va, level)], pa_flags);
		if (t == NULL)
			return NULL;
	}
	return &t[pt_index(va, 2)];
}

pte_t *pt_leaf(struct mm *mm, uintptr_t va, bool *huge)
{
	pte_t *pde = pt_pde(mm, va, PT_LOOKUP);

	*huge = false;
	if (pde == NULL || *pde == 0)
		return NULL;
	if (*pde & PTE_HUGE) {
		*huge = true;
		return pde;
	}
	return &pt_table(*pde)[pt_index(va, 1)];
}

pte_t *pt_alloc(struct mm *mm, uintptr_t va, unsigned pa_flags)
{
	pte_t *pde = pt_pde(mm, va, pa_flags);
	pte_t *t;

	if (pde == NULL)
		return NULL;
	ASSERT(!(*pde & PTE_HUGE));
	t = pt_down(mm, pde, pa_flags);
	return t == NULL ? NULL : &t[pt_index(va, 1)];
}

void pt_iter_init(struct pt_iter *it, struct mm *mm, uintptr_t start, uintptr_t end)
{
	memset(it, 0, sizeof(*it));
	it->mm = mm;
	it->next = start;
	it->end = end;
}

/* Finds the page table for it->next, or skips what has none. Returns false if it skipped. */
static bool pt_iter_descend(struct pt_iter *it)
{
	pte_t *t = phys_to_virt(it->mm->pml4);

	it->table = NULL;
	for (unsigned level = 4; level > 1; level--) {
		pte_t e = t[pt_index(it->next, level)];
		uintptr_t span = 1UL << (PAGE_SHIFT + 9 * (level - 1));

		if (e == 0) {
			it->next = ALIGN_DOWN(it->next, span) + span;
			return false;
		}
		if (level == 2 && (e & PTE_HUGE)) {
			it->entry = &t[pt_index(it->next, level)];
			it->huge = true;
			return true;
		}
		t = pt_table(e);
	}
	it->table = t;
	return true;
}

bool pt_iter_next(struct pt_iter *it)
{
	it->huge = false;
	while (it->next < it->end) {
		if (it->table == NULL || (it->next & (HUGE_SIZE - 1)) == 0) {
			if (!pt_iter_descend(it))
				continue;
			if (it->huge) {
				it->va = ALIGN_DOWN(it->next, HUGE_SIZE);
				it->next = it->va + HUGE_SIZE;
				return true;
			}
		}
		do {
			it->entry = &it->table[pt_index(it->next, 1)];
			it->va = it->next;
			it->next += PAGE_SIZE;
			if (*it->entry != 0)
				return true;
		} while (it->next < it->end && (it->next & (HUGE_SIZE - 1)) != 0);
	}
	return false;
}

/* ---- entries ---- */

pte_t pte_make(paddr_t pa, uint32_t prot, bool write, pte_t soft)
{
	pte_t e = pa | PTE_U | PTE_A | soft;

	if (prot != 0)
		e |= PTE_P;
	if (write)
		e |= PTE_W | PTE_D;
	if (!(prot & 4 /* PROT_EXEC */))
		e |= PTE_NX;
	return e;
}

void pte_account(struct mm *mm, pte_t e, long sign)
{
	uint64_t n = (uint64_t)sign * (e & PTE_HUGE ? PT_ENTRIES : 1);

	if (e & PTE_ANON)
		mm->rss_anon += n;
	else if ((e & PTE_ADDR) != zero_page_pa())
		mm->rss_file += n;
	if (sign > 0 && mm->rss_anon + mm->rss_file > mm->rss_peak)
		mm->rss_peak = mm->rss_anon + mm->rss_file;
}

void pte_set(struct mm *mm, pte_t *pte, pte_t e)
{
	*(volatile pte_t *)pte = e;
	pte_account(mm, e, 1);
}

void pte_drop(struct mm *mm, pte_t *pte)
{
	pte_t e = *pte;
	struct page *p = phys_to_page(e & PTE_ADDR);

	*(volatile pte_t *)pte = 0;
	pte_account(mm, e, -1);
	if (p == NULL)
		return;
	if ((e & PTE_ANON) && p->refs == 1)
		mem_stats.anon_pages -= 1UL << p->order;
	page_put(p);
}

int pt_split(struct mm *mm, pte_t *pde)
{
	pte_t e = *pde;
	paddr_t pa = e & PTE_ADDR;
	paddr_t table = table_alloc(0);
	struct page *p = phys_to_page(pa);
	pte_t *t;

	if (table == 0)
		return -ENOMEM;
	ASSERT(p != NULL && p->order == HUGE_SHIFT - PAGE_SHIFT && p->refs == 1);
	mm->table_pages++;
	page_split(p);
	t = phys_to_virt(table);
	for (unsigned i = 0; i < PT_ENTRIES; i++)
		t[i] = (e & ~(PTE_ADDR | PTE_HUGE)) | (pa + i * PAGE_SIZE);
	*(volatile pte_t *)pde = table | PTE_TABLE;
	return 0;
}

int pt_split_at(struct mm *mm, uintptr_t va)
{
	pte_t *pde;

	if ((va & (HUGE_SIZE - 1)) == 0 || va >= CM_USER_TOP)
		return 0;
	pde = pt_pde(mm, va, PT_LOOKUP);
	if (pde == NULL || !(*pde & PTE_HUGE))
		return 0;
	return pt_split(mm, pde);
}

void pt_zap(struct mm *mm, uintptr_t start, uintptr_t end, struct tlb *t, bool anon_too)
{
	struct pt_iter it;

	pt_iter_init(&it, mm, start, end);
	while (pt_iter_next(&it)) {
		if (!anon_too && (*it.entry & PTE_ANON))
			continue;
		ASSERT(!it.huge || (it.va >= start && it.va + HUGE_SIZE <= end));
		if (*it.entry & PTE_P)
			tlb_page(t, it.va);
		pte_drop(mm, it.entry);
	}
}

/* Frees the tables below `table` (of `level`, covering from base on) that lie in [floor,
 * ceiling), as far as [start, end) reaches. */
static void free_below(struct mm *mm, pte_t *table, unsigned level, uintptr_t base,
		       const uintptr_t range[4], struct tlb *t)
{
	uintptr_t span = 1UL << (PAGE_SHIFT + 9 * (level - 1));
	uintptr_t from = MAX(range[0], base), to = MIN(range[1], base + span * PT_ENTRIES);

	if (level == 4)
		to = MIN(range[1], CM_USER_TOP);
	for (uintptr_t va = ALIGN_DOWN(from, span); va < to; va += span) {
		pte_t *e = &table[pt_index(va, level)];

		if (*e == 0 || (*e & PTE_HUGE))
			continue;
		if (level > 2)
			free_below(mm, pt_table(*e), level - 1, va, range, t);
		if (va < range[2] || va + span > range[3])
			continue;
		table_free(*e & PTE_ADDR);
		*(volatile pte_t *)e = 0;
		mm->table_pages--;
		t->n += 2;	/* cached table pointers: flush it all */
	}
}

void pt_free_tables(struct mm *mm, uintptr_t start, uintptr_t end, uintptr_t floor,
		    uintptr_t ceiling, struct tlb *t)
{
	const uintptr_t range[4] = {
		MAX(ALIGN_DOWN(start, HUGE_SIZE), floor), MIN(ALIGN_UP(end, HUGE_SIZE), ceiling),
		floor, ceiling,
	};

	/* No table fits: the common case of a small unmap. */
	if (ALIGN_DOWN(start, HUGE_SIZE) < floor && ALIGN_UP(end, HUGE_SIZE) > ceiling &&
	    end - start < HUGE_SIZE)
		return;
	free_below(mm, phys_to_virt(mm->pml4), 4, 0, range, t);
}
