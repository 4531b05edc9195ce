/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmap, munmap, mprotect and brk.
 *
 * Each checks everything first, then splits VMAs and 2 MiB entries at the range's borders (the
 * only steps that can run out of memory), then changes page tables and VMAs together and
 * flushes once at the end.
 */
#include <linux/capability.h>
#include <linux/mman.h>

#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm_internal.h"
#include "guest-kernel/mm/patch.h"

#define PROT_ALL	(PROT_READ | PROT_WRITE | PROT_EXEC)
#define SEAL_WRITE	(0x8u | 0x10u)	/* F_SEAL_WRITE, F_SEAL_FUTURE_WRITE */
#define KMAP_32BIT	0x40u		/* x86: below 2 GiB */
#define MAP_32BIT_LOW	0x40000000UL
#define MAP_32BIT_HIGH	0x80000000UL
#define FLAGS_KEPT	(MAP_GROWSDOWN | MAP_NORESERVE)
#define FLAGS_KNOWN \
	(MAP_TYPE | MAP_FIXED | MAP_ANONYMOUS | KMAP_32BIT | MAP_GROWSDOWN | MAP_DENYWRITE | \
	 MAP_EXECUTABLE | MAP_LOCKED | MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK | MAP_STACK | \
	 MAP_HUGETLB | MAP_FIXED_NOREPLACE)
#define MAP_DENYWRITE	0x0800
#define MAP_EXECUTABLE	0x1000

uint64_t mm_rlimit(int which)
{
	if (current == NULL || current->proc == NULL)
		return KRLIM_INFINITY;
	return current->proc->rlim[which].cur;
}

bool mm_may_expand(struct mm *mm, uint64_t pages, bool data)
{
	if (mm->total_pages + pages > mm_rlimit(KRLIMIT_AS) >> PAGE_SHIFT)
		return false;
	return !data || mm->data_pages + pages <= mm_rlimit(KRLIMIT_DATA) >> PAGE_SHIFT;
}

/* As Linux by default: only what can never be had is refused. */
bool mm_overcommit_ok(uint64_t pages, uint32_t prot, uint32_t flags)
{
	if ((flags & MAP_NORESERVE) || !(prot & PROT_WRITE) || !(flags & MAP_PRIVATE))
		return true;
	return pages <= mem_stats.total_pages;
}

bool mm_range_pinned(const struct mm *mm, uintptr_t start, uintptr_t end)
{
	return mm->patchable && start < PATCH_TABLE_VA + PATCH_TABLE_SIZE &&
	       end > PATCH_TABLE_VA;
}

/* The pages of [start, end) go, and the tables that only they used. */
static void unmap_pages(struct mm *mm, uintptr_t start, uintptr_t end, struct tlb *t)
{
	struct vma *next = mm_find(mm, end), *prev;
	uintptr_t floor, ceiling;

	prev = next != NULL ? vma_prev(next) : RB_MAX(vma_tree, &mm->vmas);
	floor = prev != NULL ? prev->end : 0;
	ceiling = next != NULL ? next->start : CM_USER_TOP;
	pt_free_tables(mm, start, end, floor, ceiling, t);
}

int mm_unmap(struct mm *mm, uintptr_t addr, size_t len)
{
	struct tlb t;
	struct vma *v;
	uintptr_t end;
	int r;

	if ((addr & (PAGE_SIZE - 1)) != 0 || addr > CM_USER_TOP || len > CM_USER_TOP - addr)
		return -EINVAL;
	len = ALIGN_UP(len, PAGE_SIZE);
	if (len == 0)
		return -EINVAL;
	end = addr + len;
	v = mm_find(mm, addr);
	if (v == NULL || v->start >= end)
		return 0;
	if (mm_range_pinned(mm, addr, end))
		return -EINVAL;
	r = vma_isolate(mm, addr, end);
	if (r != 0)
		return r;
	tlb_init(&t, mm);
	for (v = mm_find(mm, addr); v != NULL && v->start < end;) {
		struct vma *next;

		pt_zap(mm, v->start, v->end, &t, true);
		next = vma_remove(v);
		vma_free(v);
		v = next;
	}
	unmap_pages(mm, addr, end, &t);
	vma_search_reset(mm, end);
	tlb_finish(&t);
	return 0;
}

/* ---- mmap ---- */

static long choose_address(struct mm *mm, uintptr_t addr, size_t len, uint32_t flags)
{
	uintptr_t found;

	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
		if ((addr & (PAGE_SIZE - 1)) != 0)
			return -EINVAL;
		if (addr > CM_USER_TOP - len)
			return -ENOMEM;
		if (addr < MMAP_MIN_ADDR && !capable(CAP_SYS_RAWIO))
			return -EPERM;
		if (flags & MAP_FIXED_NOREPLACE) {
			struct vma *v = mm_find(mm, addr);

			if (v != NULL && v->start < addr + len)
				return -EEXIST;
		}
		return (long)addr;
	}
	if (addr != 0) {
		addr = MAX(ALIGN_UP(addr, PAGE_SIZE), MMAP_MIN_ADDR);
		if (addr <= CM_USER_TOP - len && vma_range_free(mm, addr, addr + len) &&
		    (!(flags & KMAP_32BIT) || addr + len <= MAP_32BIT_HIGH))
			return (long)addr;
	}
	if (flags & KMAP_32BIT)
		found = vma_search(mm, len, MAP_32BIT_LOW, MAP_32BIT_HIGH);
	else
		found = vma_search(mm, len, MMAP_MIN_ADDR, mm->mmap_top);
	return found != 0 ? (long)found : -ENOMEM;
}

/* May the file be mapped so? Fills in max_prot. */
static int check_file(struct file *file, uint32_t prot, uint32_t flags, uint32_t *max_prot)
{
	*max_prot = PROT_ALL;
	if ((flags & MAP_TYPE) == MAP_SHARED) {
		if ((prot & PROT_WRITE) && !file->can_write)
			return -EACCES;
		if (!file->can_write)
			*max_prot &= ~(uint32_t)PROT_WRITE;
		if (file->inode->seals & SEAL_WRITE) {
			if (prot & PROT_WRITE)
				return -EPERM;
			*max_prot &= ~(uint32_t)PROT_WRITE;
		}
	}
	if (!file->can_read)
		return -EACCES;
	if (file->ops->mmap == NULL &&
	    (file->inode->ops->get_page == NULL || KS_ISDIR(file->inode->mode)))
		return -ENODEV;
	return 0;
}

/* Gives the new VMA what it shows: the file's inode, or one of its own. */
static int vma_set_file(struct vma *v, struct file *file, uint64_t pgoff)
{
	if (file != NULL) {
		file_get(file);
		v->file = file;
		inode_get(file->inode);
		v->inode = file->inode;
		v->pgoff = pgoff;
		return file->ops->mmap != NULL ? file->ops->mmap(file, v) : 0;
	}
	if (v->flags & MAP_SHARED) {
		v->inode = shmem_inode(v->end - v->start);
		if (v->inode == NULL)
			return -ENOMEM;
		v->pgoff = 0;
	}
	return 0;
}

static int check_limits(struct mm *mm, uintptr_t addr, size_t len, uint32_t prot,
			uint32_t flags, uint32_t advice)
{
	uint64_t pages = len >> PAGE_SHIFT;
	bool data = (flags & MAP_PRIVATE) && (prot & PROT_WRITE) && !(flags & MAP_GROWSDOWN);

	/* What a fixed mapping replaces does not count twice. */
	if (flags & MAP_FIXED) {
		struct vma *v = mm_find(mm, addr);

		for (; v != NULL && v->start < addr + len && pages != 0; v = vma_next(v)) {
			uint64_t n = (MIN(v->end, addr + len) - MAX(v->start, addr)) >>
				     PAGE_SHIFT;

			pages -= MIN(n, pages);
		}
	}
	if (mm->nvmas >= MM_MAX_VMAS || !mm_may_expand(mm, pages, data))
		return -ENOMEM;
	if (!mm_overcommit_ok(len >> PAGE_SHIFT, prot, flags))
		return -ENOMEM;
	if ((advice & VMA_LOCKED) && !capable(CAP_IPC_LOCK) &&
	    mm->locked_pages + pages > mm_rlimit(KRLIMIT_MEMLOCK) >> PAGE_SHIFT)
		return -EAGAIN;
	return 0;
}

long mm_map(struct mm *mm, uintptr_t addr, size_t len, uint32_t prot, uint32_t flags,
	    struct file *file, uint64_t pgoff)
{
	uint32_t advice = (flags & MAP_LOCKED ? VMA_LOCKED : 0) | mm->lock_future;
	uint32_t max_prot = PROT_ALL, type = flags & MAP_TYPE;
	struct vma *v;
	long where;
	int r;

	if (len == 0)
		return -EINVAL;
	if (len > CM_USER_TOP)
		return -ENOMEM;
	len = ALIGN_UP(len, PAGE_SIZE);
	if (len > CM_USER_TOP)
		return -ENOMEM;
	if (pgoff + (len >> PAGE_SHIFT) < pgoff)
		return -EOVERFLOW;
	if (type == MAP_SHARED_VALIDATE && file != NULL) {
		if (flags & ~(uint32_t)FLAGS_KNOWN)
			return -EOPNOTSUPP;
		type = MAP_SHARED;
	}
	if (type != MAP_SHARED && type != MAP_PRIVATE)
		return -EINVAL;
	if (flags & MAP_HUGETLB)
		return -ENOMEM;		/* no page is set aside for it, as on a plain Linux */
	if (flags & MAP_FIXED_NOREPLACE)
		flags &= ~(uint32_t)MAP_FIXED;
	if ((flags & MAP_GROWSDOWN) && (file != NULL || type == MAP_SHARED))
		return -EINVAL;
	flags = (flags & ~(uint32_t)MAP_TYPE) | type;
	prot &= PROT_ALL;
	where = choose_address(mm, addr, len, flags);
	if (where < 0)
		return where;
	if (file != NULL) {
		r = check_file(file, prot, flags, &max_prot);
		if (r != 0)
			return r;
	}
	addr = (uintptr_t)where;
	r = check_limits(mm, addr, len, prot, flags, advice);
	if (r != 0)
		return r;

	v = vma_new(mm, addr, addr + len, prot, type | (flags & FLAGS_KEPT));
	if (v == NULL)
		return -ENOMEM;
	v->max_prot = max_prot;
	v->advice = advice;
	r = vma_set_file(v, file, pgoff);
	if (r == 0 && (flags & MAP_FIXED))
		r = mm_unmap(mm, addr, len);
	if (r != 0) {
		vma_free(v);
		return r;
	}
	vma_insert(v);
	/* Text is final when it is mapped; a library's first, read-only mapping is mostly
	 * covered by others at once, which would throw the entries away again. */
	if (prot & PROT_EXEC)
		fault_map_ahead(v);
	vma_merge(v);
	if ((flags & MAP_POPULATE) || (advice & VMA_LOCKED)) {
		if (prot != PROT_NONE && !(flags & MAP_NONBLOCK))
			(void)mm_populate(mm, addr, addr + len, false);
	}
	return where;
}

SYSCALL(mmap, uintptr_t addr, size_t len, unsigned long prot, unsigned long flags, int fd,
	uint64_t off)
{
	struct file *file = NULL;
	long r;

	if ((off & (PAGE_SIZE - 1)) != 0)
		return -EINVAL;
	if (!(flags & MAP_ANONYMOUS)) {
		file = fd_get(fd);
		if (file == NULL)
			return -EBADF;
	}
	r = mm_map(current->mm, addr, len, (uint32_t)prot, (uint32_t)flags, file,
		   off >> PAGE_SHIFT);
	if (file != NULL)
		file_put(file);
	return r;
}

SYSCALL(munmap, uintptr_t addr, size_t len)
{
	return mm_unmap(current->mm, addr, len);
}

/* ---- mprotect ---- */

static pte_t pte_reprotect(const struct vma *v, pte_t e)
{
	struct page *p = phys_to_page(e & PTE_ADDR);
	pte_t n = e & ~(PTE_P | PTE_NX);

	if (v->prot != PROT_NONE)
		n |= PTE_P;
	if (!(v->prot & PROT_EXEC))
		n |= PTE_NX;
	if (!(v->prot & PROT_WRITE))
		n &= ~PTE_W;
	else if ((e & PTE_ANON) && (v->flags & MAP_PRIVATE) && p != NULL && p->refs == 1)
		n |= PTE_W | PTE_D;
	return n;
}

static void protect_pages(struct vma *v, struct tlb *t)
{
	struct pt_iter it;

	pt_iter_init(&it, v->mm, v->start, v->end);
	while (pt_iter_next(&it)) {
		pte_t old = *it.entry, e = pte_reprotect(v, old);

		if (e == old)
			continue;
		*(volatile pte_t *)it.entry = e;
		if ((old & PTE_P) && (!(e & PTE_P) || (old & PTE_W & ~e) || (~old & e & PTE_NX)))
			tlb_page(t, it.va);
	}
}

/* Can all of [start, end) be given prot? Unmapped parts: the ones before are changed first. */
static int protect_check(struct mm *mm, struct vma *v, uintptr_t at, uintptr_t end,
			 uint32_t prot)
{
	uint64_t data = 0;

	for (; v != NULL && v->start <= at && at < end; v = vma_next(v)) {
		if (prot & ~v->max_prot)
			return -EACCES;
		if ((prot & PROT_WRITE) && !(v->prot & PROT_WRITE) && (v->flags & MAP_PRIVATE)) {
			uint64_t n = (MIN(v->end, end) - at) >> PAGE_SHIFT;

			if (!mm_overcommit_ok(n, prot, v->flags))
				return -ENOMEM;
			if (!(v->flags & MAP_GROWSDOWN))
				data += n;
		}
		at = v->end;
	}
	if (mm->data_pages + data > mm_rlimit(KRLIMIT_DATA) >> PAGE_SHIFT && data != 0)
		return -ENOMEM;
	return 0;
}

int mm_protect(struct mm *mm, uintptr_t addr, size_t len, uint32_t prot)
{
	uintptr_t end = addr + len, at = addr;
	struct vma *v = mm_find(mm, addr);
	struct tlb t;
	int r;

	if (len == 0)
		return 0;
	if (v == NULL || v->start > addr)
		return -ENOMEM;
	r = protect_check(mm, v, addr, end, prot);
	if (r != 0)
		return r;
	r = vma_isolate(mm, addr, end);
	if (r != 0)
		return r;
	tlb_init(&t, mm);
	for (v = mm_find(mm, addr); v != NULL && v->start == at && at < end; v = vma_next(v)) {
		at = v->end;
		if (v->prot == prot)
			continue;
		vma_account(v, -1);
		v->prot = prot;
		vma_account(v, 1);
		protect_pages(v, &t);
	}
	for (v = mm_find(mm, addr); v != NULL && v->start < end; v = vma_next(v))
		v = vma_merge(v);
	tlb_finish(&t);
	return at < end ? -ENOMEM : 0;
}

SYSCALL(mprotect, uintptr_t addr, size_t len, unsigned long prot)
{
	unsigned long grows = prot & (PROT_GROWSDOWN | PROT_GROWSUP);

	prot &= ~grows;
	if (grows == (PROT_GROWSDOWN | PROT_GROWSUP))
		return -EINVAL;
	if ((addr & (PAGE_SIZE - 1)) != 0)
		return -EINVAL;
	if (len == 0)
		return 0;
	len = ALIGN_UP(len, PAGE_SIZE);
	if (len == 0 || addr + len <= addr)
		return -ENOMEM;
	if (prot & ~(unsigned long)(PROT_ALL | PROT_SEM))
		return -EINVAL;
	if (grows & PROT_GROWSUP)
		return -EINVAL;
	if (grows & PROT_GROWSDOWN) {
		struct vma *v = mm_find(current->mm, addr);

		if (v == NULL)
			return -ENOMEM;
		if (!(v->flags & MAP_GROWSDOWN))
			return -EINVAL;
		if (v->start < addr) {
			len += addr - v->start;
			addr = v->start;
		}
	}
	if (addr >= CM_USER_TOP)
		return -ENOMEM;
	return mm_protect(current->mm, addr, len, (uint32_t)prot & PROT_ALL);
}

/* ---- brk ---- */

static bool brk_grow(struct mm *mm, uintptr_t old, uintptr_t new)
{
	struct vma *v = mm_find(mm, old);
	struct vma *heap;
	uint32_t flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (v != NULL && !vma_range_free(mm, old, new + PAGE_SIZE))
		return false;
	if (check_limits(mm, old, new - old, PROT_READ | PROT_WRITE, flags,
			 mm->lock_future) != 0)
		return false;
	heap = vma_new(mm, old, new, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	if (heap == NULL)
		return false;
	heap->advice = mm->lock_future;
	vma_insert(heap);
	vma_merge(heap);
	if (mm->lock_future)
		(void)mm_populate(mm, old, new, false);
	return true;
}

SYSCALL(brk, uintptr_t brk)
{
	struct mm *mm = current->mm;
	uintptr_t old = ALIGN_UP(mm->brk, PAGE_SIZE), new;

	if (brk < mm->brk_start || brk > CM_USER_TOP - 2 * PAGE_SIZE)
		return (long)mm->brk;
	if (brk - mm->brk_start + (mm->data_end - mm->data_start) > mm_rlimit(KRLIMIT_DATA))
		return (long)mm->brk;
	new = ALIGN_UP(brk, PAGE_SIZE);
	if (new > old ? !brk_grow(mm, old, new)
		      : new < old && mm_unmap(mm, new, old - new) != 0)
		return (long)mm->brk;
	mm->brk = brk;
	return (long)brk;
}
