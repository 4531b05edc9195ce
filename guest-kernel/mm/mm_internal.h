/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of mm/ only. */
#ifndef MM_MM_INTERNAL_H
#define MM_MM_INTERNAL_H

#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"

/* ---- page.c, kmalloc.c ---- */
uint32_t page_to_pfn(const struct page *p);	/* 0 for NULL */
struct page *pfn_to_page(uint32_t pfn);		/* NULL for 0 */
uint64_t page_check(void);
void kmalloc_init(void);

/* ---- pagetable.c ---- */
typedef uint64_t pte_t;
#define PTE_P		0x001UL
#define PTE_W		0x002UL
#define PTE_U		0x004UL
#define PTE_A		0x020UL
#define PTE_D		0x040UL
#define PTE_HUGE	0x080UL
/* Software bits. An entry that is not zero owns a reference to its frame; without PTE_P it is
 * one whose VMA allows nothing (PROT_NONE). */
#define PTE_ANON	0x200UL		/* the mapping's own page, not the inode's */
#define PTE_HOT		0x400UL		/* was written after a fork: copied at the next one */
#define PTE_NX		(1UL << 63)
#define PTE_ADDR	0x000ffffffffff000UL
#define PT_ENTRIES	512u
#define PTE_TABLE	(PTE_P | PTE_W | PTE_U | PTE_A | PTE_D)

/* Pages whose entries lost rights or changed frames; flushed together. A flush costs the same
 * as one invalidation on shadow-paging hosts, so more than one page means a flush. */
struct tlb {
	struct mm *mm;
	uintptr_t va;
	unsigned n;
};
void tlb_init(struct tlb *t, struct mm *mm);
void tlb_page(struct tlb *t, uintptr_t va);
void tlb_finish(struct tlb *t);

void pt_init(void);
void table_pool_shrink(void);
paddr_t pt_new_root(void);			/* 0: out of memory */
void pt_free_root(paddr_t pml4);		/* its user half must be empty */
/* The leaf entry for va: in a page table, or (*huge set) a 2 MiB one; NULL without a table. */
pte_t *pt_leaf(struct mm *mm, uintptr_t va, bool *huge);
/* pa_flags are page_alloc's, for tables that are missing; PT_LOOKUP: make none. */
#define PT_LOOKUP	0x80u
pte_t *pt_pde(struct mm *mm, uintptr_t va, unsigned pa_flags);
/* NULL: out of memory. There must be no huge entry. */
pte_t *pt_alloc(struct mm *mm, uintptr_t va, unsigned pa_flags);
/* Replaces a 2 MiB entry by 512 small ones. -ENOMEM. */
int pt_split(struct mm *mm, pte_t *pde);
int pt_split_at(struct mm *mm, uintptr_t va);	/* if va lies inside a 2 MiB entry */
pte_t pte_make(paddr_t pa, uint32_t prot, bool write, pte_t soft);
void pte_account(struct mm *mm, pte_t e, long sign);
void pte_set(struct mm *mm, pte_t *pte, pte_t e);	/* counts; the old one must be 0 */
void pte_drop(struct mm *mm, pte_t *pte);	/* clears it, gives the frame back */
/* Clears all entries of a range (only the inode's if !anon_too); 2 MiB entries must lie inside
 * as a whole. */
void pt_zap(struct mm *mm, uintptr_t start, uintptr_t end, struct tlb *t, bool anon_too);
/* Frees the tables that cover only addresses in [floor, ceiling), around [start, end). */
void pt_free_tables(struct mm *mm, uintptr_t start, uintptr_t end, uintptr_t floor,
		    uintptr_t ceiling, struct tlb *t);

/* Walk over entries that are not zero, in address order. */
struct pt_iter {
	struct mm *mm;
	uintptr_t next, end;
	uintptr_t va;			/* of the entry found */
	pte_t *entry;
	bool huge;
	pte_t *table;
};
void pt_iter_init(struct pt_iter *it, struct mm *mm, uintptr_t start, uintptr_t end);
bool pt_iter_next(struct pt_iter *it);

/* ---- vma.c ---- */
#define MMAP_MIN_ADDR	0x10000UL
#define STACK_GUARD	(256 * PAGE_SIZE)
RB_PROTOTYPE(vma_tree, vma, node, vma_cmp)
struct vma *vma_new(struct mm *mm, uintptr_t start, uintptr_t end, uint32_t prot,
		    uint32_t flags);
struct vma *vma_dup(const struct vma *v, struct mm *mm);	/* not inserted */
void vma_free(struct vma *v);				/* not in the tree any more */
void vma_insert(struct vma *v);
struct vma *vma_remove(struct vma *v);			/* returns the next one */
struct vma *vma_merge(struct vma *v);			/* with its neighbours */
int vma_split(struct vma *v, uintptr_t addr);		/* v keeps the lower part */
/* Sees to it that VMAs begin and end at the range's borders. -ENOMEM. */
int vma_isolate(struct mm *mm, uintptr_t start, uintptr_t end);
void vma_account(struct vma *v, long sign);
uintptr_t vma_search(struct mm *mm, size_t len, uintptr_t low, uintptr_t high);	/* 0: none */
bool vma_range_free(struct mm *mm, uintptr_t start, uintptr_t end);
void vma_search_reset(struct mm *mm, uintptr_t end);
static inline struct vma *vma_next(struct vma *v)
{
	return RB_NEXT(vma_tree, NULL, v);
}
static inline struct vma *vma_prev(struct vma *v)
{
	return RB_PREV(vma_tree, NULL, v);
}
static inline uint64_t vma_index(const struct vma *v, uintptr_t va)
{
	return v->pgoff + ((va - v->start) >> PAGE_SHIFT);
}

/* ---- fault.c ---- */
#define FAULT_NOWAIT	0x2000u		/* fail rather than kill for memory */
/* The page at va in kernel memory, made present (and writable); NULL: -EFAULT. */
void *mm_user_page(struct mm *mm, uintptr_t va, bool write);
/* Touches every page of a range. 0, -ENOMEM (hole), -EFAULT, -EINTR. */
int mm_populate(struct mm *mm, uintptr_t start, uintptr_t end, bool write_all);
/* Maps what can be mapped ahead of a new file mapping without allocating. */
void fault_map_ahead(struct vma *v);

/* ---- mmap.c ---- */
uint64_t mm_rlimit(int which);
/* Does it touch the table that patched code jumps through? That cannot go or move. */
bool mm_range_pinned(const struct mm *mm, uintptr_t start, uintptr_t end);
bool mm_may_expand(struct mm *mm, uint64_t pages, bool data);
bool mm_overcommit_ok(uint64_t pages, uint32_t prot, uint32_t flags);

#define KRLIMIT_DATA	2
#define KRLIMIT_STACK	3
#define KRLIMIT_MEMLOCK	8
#define KRLIMIT_AS	9

#endif
