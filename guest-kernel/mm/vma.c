/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of VMAs of an address space, ordered by address, never overlapping.
 *
 * A VMA holds a reference to its file and to its inode and is on the inode's list of mappings
 * while it is in the tree. Neighbours that agree in everything are merged after each change.
 *
 * Free areas are searched from the top down. search_top and search_hole remember the last
 * answer: below search_top nothing was looked at yet, and every hole above it is at most
 * search_hole bytes, so that a run of equal requests does not walk the tree again and again.
 */
#include <linux/mman.h>

#include "abi/layout.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm_internal.h"
#include "guest-kernel/mm/patch.h"

static int vma_cmp(struct vma *a, struct vma *b)
{
	return a->start < b->start ? -1 : a->start > b->start;
}

RB_GENERATE(vma_tree, vma, node, vma_cmp)

struct vma *mm_find(struct mm *mm, uintptr_t addr)
{
	struct vma *v = RB_ROOT(&mm->vmas), *best = NULL;

	while (v != NULL) {
		if (addr < v->end) {
			best = v;
			if (addr >= v->start)
				break;
			v = RB_LEFT(v, node);
		} else {
			v = RB_RIGHT(v, node);
		}
	}
	return best;
}

struct vma *vma_new(struct mm *mm, uintptr_t start, uintptr_t end, uint32_t prot,
		    uint32_t flags)
{
	struct vma *v = kzalloc(sizeof(*v));

	if (v == NULL)
		return NULL;
	v->mm = mm;
	v->start = start;
	v->end = end;
	v->prot = prot;
	v->flags = flags;
	v->max_prot = PROT_READ | PROT_WRITE | PROT_EXEC;
	return v;
}

struct vma *vma_dup(const struct vma *v, struct mm *mm)
{
	struct vma *n = kmemdup(v, sizeof(*v));

	if (n == NULL)
		return NULL;
	n->mm = mm;
	if (n->file != NULL)
		file_get(n->file);
	if (n->inode != NULL)
		inode_get(n->inode);
	return n;
}

void vma_free(struct vma *v)
{
	if (v->inode != NULL && (v->prot & PROT_EXEC))
		patch_invalidate(v->mm);
	if (v->inode != NULL)
		inode_put(v->inode);
	if (v->file != NULL)
		file_put(v->file);
	kfree(v);
}

void vma_account(struct vma *v, long sign)
{
	struct mm *mm = v->mm;
	uint64_t n = ((v->end - v->start) >> PAGE_SHIFT) * (uint64_t)sign;

	mm->total_pages += n;
	if (mm->total_pages > mm->total_peak)
		mm->total_peak = mm->total_pages;
	if (v->advice & VMA_LOCKED)
		mm->locked_pages += n;
	if (v->flags & MAP_GROWSDOWN)
		mm->stack_pages += n;
	else if ((v->flags & MAP_PRIVATE) && (v->prot & PROT_WRITE))
		mm->data_pages += n;
	else if ((v->flags & MAP_PRIVATE) && (v->prot & PROT_EXEC))
		mm->exec_pages += n;
}

void vma_insert(struct vma *v)
{
	struct vma *old = RB_INSERT(vma_tree, &v->mm->vmas, v);

	ASSERT(old == NULL);
	v->mm->nvmas++;
	if (v->inode != NULL)
		TAILQ_INSERT_TAIL(&v->inode->mappings, v, file_link);
	vma_account(v, 1);
}

struct vma *vma_remove(struct vma *v)
{
	struct vma *next = vma_next(v);

	RB_REMOVE(vma_tree, &v->mm->vmas, v);
	v->mm->nvmas--;
	if (v->inode != NULL)
		TAILQ_REMOVE(&v->inode->mappings, v, file_link);
	vma_account(v, -1);
	return next;
}

static bool vma_can_merge(const struct vma *a, const struct vma *b)
{
	return a->end == b->start && a->prot == b->prot && a->flags == b->flags &&
	       a->advice == b->advice && a->max_prot == b->max_prot && a->file == b->file &&
	       a->inode == b->inode && a->name == b->name &&
	       ((a->inode == NULL && !(a->advice & VMA_FRAMES)) ||
		a->pgoff + ((a->end - a->start) >> PAGE_SHIFT) == b->pgoff);
}

/* b's range becomes part of a, which lies below. */
static void vma_join(struct vma *a, struct vma *b)
{
	uintptr_t end = b->end;

	vma_remove(b);
	vma_free(b);
	vma_account(a, -1);
	a->end = end;
	vma_account(a, 1);
}

struct vma *vma_merge(struct vma *v)
{
	struct vma *n = vma_next(v);

	if (n != NULL && vma_can_merge(v, n))
		vma_join(v, n);
	n = vma_prev(v);
	if (n != NULL && vma_can_merge(n, v)) {
		vma_join(n, v);
		v = n;
	}
	return v;
}

int vma_split(struct vma *v, uintptr_t addr)
{
	struct vma *n;

	if (v->mm->nvmas >= MM_MAX_VMAS)
		return -ENOMEM;
	n = vma_dup(v, v->mm);
	if (n == NULL)
		return -ENOMEM;
	vma_account(v, -1);
	v->end = addr;
	vma_account(v, 1);
	n->start = addr;
	if (n->inode != NULL || (n->advice & VMA_FRAMES))
		n->pgoff += (addr - v->start) >> PAGE_SHIFT;
	vma_insert(n);
	return 0;
}

int vma_isolate(struct mm *mm, uintptr_t start, uintptr_t end)
{
	struct vma *v;
	int r;

	r = pt_split_at(mm, start);
	if (r == 0)
		r = pt_split_at(mm, end);
	v = mm_find(mm, start);
	if (r == 0 && v != NULL && v->start < start)
		r = vma_split(v, start);
	v = mm_find(mm, end);
	if (r == 0 && v != NULL && v->start < end)
		r = vma_split(v, end);
	return r;
}

/* ---- free areas ---- */

/* Where nothing may be placed any more: a stack keeps a gap below it. */
static uintptr_t vma_gap_start(const struct vma *v)
{
	if (!(v->flags & MAP_GROWSDOWN))
		return v->start;
	return v->start > STACK_GUARD ? v->start - STACK_GUARD : 0;
}

bool vma_range_free(struct mm *mm, uintptr_t start, uintptr_t end)
{
	struct vma *v = mm_find(mm, start);

	return v == NULL || vma_gap_start(v) >= end;
}

void vma_search_reset(struct mm *mm, uintptr_t end)
{
	if (end > mm->search_top)
		mm->search_top = MIN(end, mm->mmap_top);
}

/* The highest hole of len bytes that ends at or below `high`; *ret_hole: the largest one that
 * was too small. */
static uintptr_t search_down(struct mm *mm, size_t len, uintptr_t low, uintptr_t high,
			     size_t *ret_hole)
{
	struct vma *v = high == 0 ? NULL : mm_find(mm, high - 1);
	uintptr_t top = high;

	/* Everything above `top` is done with. v: the next one above, then the one below. */
	if (v == NULL) {
		v = RB_MAX(vma_tree, &mm->vmas);
	} else {
		if (vma_gap_start(v) < top)
			top = vma_gap_start(v);
		v = vma_prev(v);
	}
	for (;;) {
		uintptr_t bottom = v == NULL ? low : MAX(v->end, low);

		if (top >= bottom && top - bottom >= len)
			return top - len;
		if (top > bottom && top - bottom > *ret_hole)
			*ret_hole = top - bottom;
		if (v == NULL || v->start <= low)
			return 0;
		top = MIN(top, vma_gap_start(v));
		v = vma_prev(v);
	}
}

uintptr_t vma_search(struct mm *mm, size_t len, uintptr_t low, uintptr_t high)
{
	uintptr_t addr;
	size_t hole = 0;

	if (high != mm->mmap_top)
		return search_down(mm, len, low, high, &hole);
	if (len > mm->search_hole && mm->search_top < high) {
		hole = mm->search_hole;
		high = mm->search_top;
	}
	addr = search_down(mm, len, low, high, &hole);
	if (addr == 0 && high != mm->mmap_top) {
		hole = 0;
		addr = search_down(mm, len, low, mm->mmap_top, &hole);
	}
	if (addr != 0) {
		mm->search_top = addr;
		mm->search_hole = hole;
	}
	return addr;
}
