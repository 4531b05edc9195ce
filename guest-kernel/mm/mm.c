/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of an address space: made empty, copied by fork, torn down with the last reference.
 *
 * fork shares private pages read-only (copy on write) and shared ones as they are. Entries of
 * file pages are copied too: 60 ns each, a refault costs hundreds of times as much. Pages
 * that a program wrote after an earlier fork (PTE_HOT: its stack, its allocator's heads) are
 * copied at once, which saves a fault on each side. The parent's cached translations are
 * flushed once, and only if some entry really lost its write right.
 */
#include <linux/mman.h>

#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm_internal.h"
#include "guest-kernel/mm/patch.h"

#define FORK_HOT_MAX	64u	/* pages copied ahead in one fork */
/* Below the stack's largest size and its gap; see mmap_top_for(). */
#define MMAP_GAP_MIN	(128UL << 20)

struct mm *mm_new(void)
{
	struct mm *mm = kzalloc(sizeof(*mm));

	if (mm == NULL)
		return NULL;
	mm->pml4 = pt_new_root();
	if (mm->pml4 == 0) {
		kfree(mm);
		return NULL;
	}
	mm->refs = 1;
	mm->table_pages = 1;
	mutex_init(&mm->lock);
	RB_INIT(&mm->vmas);
	mm->mmap_top = CM_USER_TOP - MMAP_GAP_MIN;
	mm->search_top = mm->mmap_top;
	return mm;
}

void mm_get(struct mm *mm)
{
	mm->refs++;
}

void mm_put(struct mm *mm)
{
	struct vma *v;
	struct tlb t;

	ASSERT(mm->refs != 0);
	if (--mm->refs != 0)
		return;
	patch_release(mm);
	tlb_init(&t, mm);
	pt_zap(mm, 0, CM_USER_TOP, &t, true);
	pt_free_tables(mm, 0, CM_USER_TOP, 0, CM_USER_TOP, &t);
	while ((v = RB_MIN(vma_tree, &mm->vmas)) != NULL) {
		vma_remove(v);
		vma_free(v);
	}
	ASSERT(mm->table_pages == 1 && mm->rss_anon == 0 && mm->rss_file == 0);
	/* No flush: no program runs in it before another root is loaded. */
	pt_free_root(mm->pml4);
	if (mm->exe != NULL) {
		mm->exe->inode->exec_count--;
		file_put(mm->exe);
	}
	kfree(mm);
}

/* ---- fork ---- */

struct fork {
	struct mm *from, *to;
	unsigned hot_left;
	bool flush;
};

static int fork_entry(struct fork *fk, const struct vma *v, pte_t *src, pte_t *dst)
{
	pte_t e = *src;
	struct page *p;

	if (!(e & PTE_ANON) || (v->flags & MAP_SHARED)) {
		phys_get(e & PTE_ADDR);
		pte_set(fk->to, dst, e);
		return 0;
	}
	if ((e & (PTE_HOT | PTE_W)) == (PTE_HOT | PTE_W) && fk->hot_left != 0) {
		p = page_alloc(0, PA_NOWAIT);
		if (p != NULL) {
			fk->hot_left--;
			memcpy(page_to_virt(p), phys_to_virt(e & PTE_ADDR), PAGE_SIZE);
			mem_stats.anon_pages++;
			pte_set(fk->to, dst, (e & ~PTE_ADDR) | page_to_phys(p));
			return 0;
		}
	}
	if (e & PTE_W) {
		e &= ~PTE_W;
		*(volatile pte_t *)src = e;
		fk->flush = true;
	}
	phys_get(e & PTE_ADDR);
	pte_set(fk->to, dst, e);
	return 0;
}

static int fork_tables(struct fork *fk, const struct vma *v)
{
	struct pt_iter it;
	pte_t *dst = NULL;
	uintptr_t region = ~0UL;

	pt_iter_init(&it, fk->from, v->start, v->end);
	while (pt_iter_next(&it)) {
		if (it.huge) {
			int r = pt_split(fk->from, it.entry);

			if (r != 0)
				return r;
			it.next = it.va;	/* again, entry by entry */
			continue;
		}
		if (ALIGN_DOWN(it.va, HUGE_SIZE) != region) {
			region = ALIGN_DOWN(it.va, HUGE_SIZE);
			dst = pt_alloc(fk->to, region, PA_NOWAIT);
			if (dst == NULL)
				return -ENOMEM;
		}
		fork_entry(fk, v, it.entry, &dst[(it.va - region) >> PAGE_SHIFT]);
	}
	return 0;
}

static void fork_fields(struct mm *to, const struct mm *from)
{
	to->mmap_top = from->mmap_top;
	to->search_top = from->search_top;
	to->search_hole = from->search_hole;
	to->brk_start = from->brk_start;
	to->brk = from->brk;
	to->stack_top = from->stack_top;
	to->code_start = from->code_start;
	to->code_end = from->code_end;
	to->data_start = from->data_start;
	to->data_end = from->data_end;
	to->arg_start = from->arg_start;
	to->arg_end = from->arg_end;
	to->env_start = from->env_start;
	to->env_end = from->env_end;
	to->vdso = from->vdso;
	to->patchable = from->patchable;
	memcpy(to->auxv, from->auxv, sizeof(to->auxv));
	to->exe = from->exe;
	if (to->exe != NULL) {
		file_get(to->exe);
		to->exe->inode->exec_count++;
	}
}

struct mm *mm_fork(struct mm *mm)
{
	struct mm *to = mm_new();
	struct fork fk = { .from = mm, .to = to, .hot_left = FORK_HOT_MAX };
	struct vma *v, *n;
	struct tlb t;
	int r = 0;

	if (to == NULL)
		return NULL;
	fork_fields(to, mm);
	RB_FOREACH(v, vma_tree, &mm->vmas) {
		if (v->advice & VMA_DONTFORK) {
			vma_search_reset(to, v->end);
			to->search_hole = 0;
			continue;
		}
		n = vma_dup(v, to);
		if (n == NULL) {
			r = -ENOMEM;
			break;
		}
		n->advice &= ~VMA_LOCKED;	/* locks are not inherited */
		vma_insert(n);
		if (!(v->advice & VMA_WIPEONFORK))
			r = fork_tables(&fk, v);
		if (r != 0)
			break;
	}
	if (fk.flush) {
		tlb_init(&t, mm);
		t.n = 2;
		tlb_finish(&t);
	}
	if (r != 0) {
		mm_put(to);
		return NULL;
	}
	return to;
}

/* ---- another process's memory ---- */

size_t mm_peek(struct mm *mm, uintptr_t addr, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		size_t n = MIN(len - done, PAGE_SIZE - ((addr + done) & (PAGE_SIZE - 1)));
		const void *p = mm_user_page(mm, addr + done, false);

		if (p == NULL)
			break;
		memcpy((char *)buf + done, p, n);
		done += n;
	}
	return done;
}

size_t mm_poke(struct mm *mm, uintptr_t addr, const void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		size_t n = MIN(len - done, PAGE_SIZE - ((addr + done) & (PAGE_SIZE - 1)));
		void *p = mm_user_page(mm, addr + done, true);

		if (p == NULL)
			break;
		memcpy(p, (const char *)buf + done, n);
		done += n;
	}
	return done;
}
