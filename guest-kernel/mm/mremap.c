/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mremap: shrink, grow in place, or move. A move takes the page-table entries along: the frames
 * keep their references. If a table for the new place cannot be had midway, the entries that
 * were moved go back.
 */
#include <linux/capability.h>
#include <linux/mman.h>

#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm_internal.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static bool move_huge(struct mm *mm, pte_t *pde, uintptr_t to)
{
	pte_t *dst;

	if ((to & (HUGE_SIZE - 1)) != 0)
		return false;
	dst = pt_pde(mm, to, PA_NOWAIT);
	if (dst == NULL || *dst != 0)
		return false;
	*(volatile pte_t *)dst = *pde;
	*(volatile pte_t *)pde = 0;
	return true;
}

/* Moves the entries of [from, from + len) to `to`. Returns how far it came. */
static uintptr_t move_entries(struct mm *mm, uintptr_t from, uintptr_t to, size_t len,
			      struct tlb *t)
{
	struct pt_iter it;

	pt_iter_init(&it, mm, from, from + len);
	while (pt_iter_next(&it)) {
		pte_t *dst;

		if (it.huge) {
			if (it.va >= from && it.va + HUGE_SIZE <= from + len &&
			    move_huge(mm, it.entry, to + (it.va - from))) {
				tlb_page(t, it.va);
				continue;
			}
			if (pt_split(mm, it.entry) != 0)
				return it.va;
			it.next = MAX(it.va, from);
			continue;
		}
		dst = pt_alloc(mm, to + (it.va - from), 0);
		if (dst == NULL)
			return it.va;
		if (*it.entry & PTE_P)
			tlb_page(t, it.va);
		*(volatile pte_t *)dst = *it.entry;
		*(volatile pte_t *)it.entry = 0;
	}
	return from + len;
}

static long mremap_move(struct mm *mm, struct vma *v, uintptr_t old, size_t old_len,
			uintptr_t new, size_t new_len, bool dontunmap)
{
	size_t len = MIN(old_len, new_len);
	struct vma *n;
	struct tlb t;
	uintptr_t reached;
	int r;

	if (mm->nvmas + 3 > MM_MAX_VMAS)
		return -ENOMEM;
	if (old_len != 0) {
		r = vma_isolate(mm, old, old + old_len);
		if (r != 0)
			return r;
		v = mm_find(mm, old);
	}
	n = vma_dup(v, mm);
	if (n == NULL)
		return -ENOMEM;
	if (v->inode != NULL || (v->advice & VMA_FRAMES))
		n->pgoff = vma_index(v, old);
	n->start = new;
	n->end = new + new_len;
	if (dontunmap)
		n->advice &= ~VMA_LOCKED;
	vma_insert(n);
	tlb_init(&t, mm);
	reached = move_entries(mm, old, new, len, &t);
	if (reached != old + len) {
		move_entries(mm, new, old, reached - old, &t);
		tlb_finish(&t);
		mm_unmap(mm, new, new_len);
		return -ENOMEM;
	}
	tlb_finish(&t);
	vma_merge(n);
	if (old_len != 0 && !dontunmap) {
		r = mm_unmap(mm, old, old_len);
		ASSERT(r == 0);
	}
	if (mm_find(mm, new)->advice & VMA_LOCKED)
		(void)mm_populate(mm, new, new + new_len, false);
	return (long)new;
}

/* The VMA to work on, or an error: what Linux's vma_to_resize checks. */
static int resize_check(struct mm *mm, uintptr_t addr, size_t old_len, size_t new_len,
			struct vma **ret)
{
	struct vma *v = mm_find(mm, addr);
	uint64_t grow = new_len > old_len ? (new_len - old_len) >> PAGE_SHIFT : 0;

	if (v == NULL || v->start > addr)
		return -EFAULT;
	if (old_len == 0 && !(v->flags & MAP_SHARED))
		return -EINVAL;
	if (old_len > v->end - addr || (v->advice & VMA_FRAMES) ||
	    mm_range_pinned(mm, v->start, v->end))
		return -EFAULT;
	*ret = v;
	if (grow == 0)
		return 0;
	if (vma_index(v, addr) + (new_len >> PAGE_SHIFT) < vma_index(v, addr))
		return -EINVAL;
	if ((v->advice & VMA_LOCKED) && !capable(CAP_IPC_LOCK) &&
	    mm->locked_pages + grow > mm_rlimit(KRLIMIT_MEMLOCK) >> PAGE_SHIFT)
		return -EAGAIN;
	if (!mm_may_expand(mm, grow, (v->flags & MAP_PRIVATE) && (v->prot & PROT_WRITE)) ||
	    !mm_overcommit_ok(grow, v->prot, v->flags))
		return -ENOMEM;
	return 0;
}

/* MREMAP_FIXED and MREMAP_DONTUNMAP. */
static long mremap_to(struct mm *mm, uintptr_t addr, size_t old_len, uintptr_t new,
		      size_t new_len, unsigned long flags)
{
	bool dontunmap = (flags & MREMAP_DONTUNMAP) != 0;
	struct vma *v;
	int r;

	if ((new & (PAGE_SIZE - 1)) != 0 || new_len > CM_USER_TOP || new > CM_USER_TOP - new_len)
		return -EINVAL;
	if (addr + old_len > new && new + new_len > addr)
		return -EINVAL;
	if (flags & MREMAP_FIXED) {
		if (new < MMAP_MIN_ADDR && !capable(CAP_SYS_RAWIO))
			return -EPERM;
		r = mm_unmap(mm, new, new_len);
		if (r != 0)
			return r;
	}
	if (old_len > new_len) {
		r = mm_unmap(mm, addr + new_len, old_len - new_len);
		if (r != 0)
			return r;
		old_len = new_len;
	}
	r = resize_check(mm, addr, old_len, new_len, &v);
	if (r != 0)
		return r;
	if (dontunmap && !mm_may_expand(mm, new_len >> PAGE_SHIFT, false))
		return -ENOMEM;
	if (!(flags & MREMAP_FIXED)) {
		if (new == 0 || new < MMAP_MIN_ADDR || !vma_range_free(mm, new, new + new_len))
			new = vma_search(mm, new_len, MMAP_MIN_ADDR, mm->mmap_top);
		if (new == 0)
			return -ENOMEM;
	}
	return mremap_move(mm, v, addr, old_len, new, new_len, dontunmap);
}

static bool grow_in_place(struct mm *mm, struct vma *v, uintptr_t end)
{
	uintptr_t old_end = v->end;

	if (end < old_end || end > CM_USER_TOP || !vma_range_free(mm, old_end, end))
		return false;
	vma_account(v, -1);
	v->end = end;
	vma_account(v, 1);
	v = vma_merge(v);
	if (v->advice & VMA_LOCKED)
		(void)mm_populate(mm, old_end, end, false);
	return true;
}

SYSCALL(mremap, uintptr_t addr, size_t old_len, size_t new_len, unsigned long flags,
	uintptr_t new)
{
	struct mm *mm = current->mm;
	struct vma *v;
	int r;

	if (flags & ~(unsigned long)(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP))
		return -EINVAL;
	if ((flags & MREMAP_FIXED) && !(flags & MREMAP_MAYMOVE))
		return -EINVAL;
	if ((flags & MREMAP_DONTUNMAP) && (!(flags & MREMAP_MAYMOVE) || old_len != new_len))
		return -EINVAL;
	if ((addr & (PAGE_SIZE - 1)) != 0)
		return -EINVAL;
	if (old_len > CM_USER_TOP || new_len > CM_USER_TOP)
		return old_len > CM_USER_TOP ? -EFAULT : -ENOMEM;
	old_len = ALIGN_UP(old_len, PAGE_SIZE);
	new_len = ALIGN_UP(new_len, PAGE_SIZE);
	if (new_len == 0)
		return -EINVAL;
	v = mm_find(mm, addr);
	if (v == NULL || v->start > addr)
		return -EFAULT;
	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
		return mremap_to(mm, addr, old_len, new, new_len, flags);
	if (old_len >= new_len) {
		if (addr + old_len > CM_USER_TOP)
			return -EINVAL;
		if (old_len > new_len) {
			r = mm_unmap(mm, addr + new_len, old_len - new_len);
			if (r != 0)
				return r;
		}
		return (long)addr;
	}
	r = resize_check(mm, addr, old_len, new_len, &v);
	if (r != 0)
		return r;
	if (old_len != 0 && addr + old_len == v->end && grow_in_place(mm, v, addr + new_len))
		return (long)addr;
	if (!(flags & MREMAP_MAYMOVE))
		return -ENOMEM;
	new = vma_search(mm, new_len, MMAP_MIN_ADDR, mm->mmap_top);
	if (new == 0)
		return -ENOMEM;
	return mremap_move(mm, v, addr, old_len, new, new_len, false);
}
