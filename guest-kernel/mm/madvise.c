/* SPDX-License-Identifier: Apache-2.0 */
/*
 * madvise, msync, mincore and the mlock family. There is no swap and no write-back: locking
 * means populating, syncing means nothing, and advice about paging is accepted and ignored.
 */
#include <linux/capability.h>
#include <linux/falloc.h>
#include <linux/mman.h>

#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm_internal.h"
#include "guest-kernel/mm/uaccess.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static bool range_wraps(uintptr_t start, size_t len)
{
	return start + len < start || start + len > CM_USER_TOP;
}

/* ---- madvise ---- */

static int advise_dontneed(struct vma *v, uintptr_t start, uintptr_t end)
{
	struct tlb t;
	int r;

	r = pt_split_at(v->mm, start);
	if (r == 0)
		r = pt_split_at(v->mm, end);
	if (r != 0)
		return r;
	tlb_init(&t, v->mm);
	pt_zap(v->mm, start, end, &t, true);
	tlb_finish(&t);
	return 0;
}

static int advise_remove(struct vma *v, uintptr_t start, uintptr_t end)
{
	if (v->advice & VMA_LOCKED)
		return -EINVAL;
	if (v->inode == NULL)
		return -EINVAL;
	if (!(v->flags & MAP_SHARED) || !(v->max_prot & PROT_WRITE))
		return -EACCES;
	if (v->file == NULL)
		return (int)syscall_partial("madvise", "MADV_REMOVE on anonymous memory",
					    -EOPNOTSUPP);
	if (v->file->ops->fallocate == NULL)
		return -EOPNOTSUPP;
	return v->file->ops->fallocate(v->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				       vma_index(v, start) << PAGE_SHIFT, end - start);
}

/* Changes v->advice for a part of a VMA. */
static int advise_bits(struct vma **pv, uintptr_t start, uintptr_t end, uint32_t set,
		       uint32_t clear)
{
	struct vma *v = *pv;
	struct mm *mm = v->mm;
	int r;

	if (((v->advice & ~clear) | set) == v->advice)
		return 0;
	r = vma_isolate(mm, start, end);
	if (r != 0)
		return r == -ENOMEM ? -EAGAIN : r;
	v = mm_find(mm, start);
	vma_account(v, -1);
	v->advice = (v->advice & ~clear) | set;
	vma_account(v, 1);
	*pv = vma_merge(v);
	return 0;
}

/* One VMA's part [start, end) of the range. *pv may change. */
static int advise_vma(struct vma **pv, uintptr_t start, uintptr_t end, int advice)
{
	struct vma *v = *pv;
	bool anon = v->inode == NULL && !(v->advice & VMA_FRAMES);

	switch (advice) {
	case MADV_FREE:
		if (!anon || (v->advice & VMA_LOCKED))
			return -EINVAL;
		return advise_dontneed(v, start, end);
	case MADV_DONTNEED:
		if (v->advice & (VMA_LOCKED | VMA_FRAMES))
			return -EINVAL;
		return advise_dontneed(v, start, end);
	case MADV_DONTNEED_LOCKED:
		if (v->advice & VMA_FRAMES)
			return -EINVAL;
		return advise_dontneed(v, start, end);
	case MADV_REMOVE:
		return advise_remove(v, start, end);
	case MADV_DONTFORK:
		return advise_bits(pv, start, end, VMA_DONTFORK, 0);
	case MADV_DOFORK:
		return advise_bits(pv, start, end, 0, VMA_DONTFORK);
	case MADV_WIPEONFORK:
		if (!anon)
			return -EINVAL;
		return advise_bits(pv, start, end, VMA_WIPEONFORK, 0);
	case MADV_KEEPONFORK:
		return advise_bits(pv, start, end, 0, VMA_WIPEONFORK);
	case MADV_DONTDUMP:
		return advise_bits(pv, start, end, VMA_DONTDUMP, 0);
	case MADV_DODUMP:
		return advise_bits(pv, start, end, 0, VMA_DONTDUMP);
	case MADV_HUGEPAGE:
		return advise_bits(pv, start, end, VMA_HUGE, VMA_NOHUGE);
	case MADV_NOHUGEPAGE:
		return advise_bits(pv, start, end, VMA_NOHUGE, VMA_HUGE);
	case MADV_COLD:
	case MADV_PAGEOUT:
		return v->advice & (VMA_LOCKED | VMA_FRAMES) ? -EINVAL : 0;
	case MADV_WILLNEED:
		if (v->inode != NULL && v->start >= start && v->end <= end)
			fault_map_ahead(v);
		return 0;
	default:
		return 0;
	}
}

static bool advice_known(int advice)
{
	switch (advice) {
	case MADV_NORMAL:
	case MADV_RANDOM:
	case MADV_SEQUENTIAL:
	case MADV_WILLNEED:
	case MADV_DONTNEED:
	case MADV_FREE:
	case MADV_REMOVE:
	case MADV_DONTFORK:
	case MADV_DOFORK:
	case MADV_HUGEPAGE:
	case MADV_NOHUGEPAGE:
	case MADV_DONTDUMP:
	case MADV_DODUMP:
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
	case MADV_COLD:
	case MADV_PAGEOUT:
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
	case MADV_DONTNEED_LOCKED:
		return true;
	default:
		return false;	/* KSM, page poisoning, collapse: as if not configured */
	}
}

static int advise_populate(struct mm *mm, uintptr_t start, uintptr_t end, bool write)
{
	int r;

	/* A hole is found first: pages before it are populated all the same. */
	r = mm_populate(mm, start, end, write);
	return r == -EACCES ? -EINVAL : r;
}

SYSCALL(madvise, uintptr_t start, size_t len, int advice)
{
	struct mm *mm = current->mm;
	bool hole = false;
	uintptr_t end;
	struct vma *v;

	if (!advice_known(advice) || (start & (PAGE_SIZE - 1)) != 0)
		return -EINVAL;
	if (len > ALIGN_UP(len, PAGE_SIZE))
		return -EINVAL;
	len = ALIGN_UP(len, PAGE_SIZE);
	end = start + len;
	if (end < start)
		return -EINVAL;
	if (len == 0)
		return 0;
	if (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE)
		return advise_populate(mm, start, end, advice == MADV_POPULATE_WRITE);
	while (start < end) {
		uintptr_t part;
		int r;

		v = mm_find(mm, start);
		if (v == NULL || v->start >= end) {
			hole = true;
			break;
		}
		if (v->start > start) {
			hole = true;
			start = v->start;
		}
		part = MIN(v->end, end);
		r = advise_vma(&v, start, part, advice);
		if (r != 0)
			return r;
		start = part;
	}
	return hole ? -ENOMEM : 0;
}

/* ---- msync, mincore ---- */

SYSCALL(msync, uintptr_t start, size_t len, int flags)
{
	struct mm *mm = current->mm;
	bool hole = false;
	uintptr_t end;
	struct vma *v;

	if (flags & ~(MS_ASYNC | MS_INVALIDATE | MS_SYNC))
		return -EINVAL;
	if ((start & (PAGE_SIZE - 1)) != 0)
		return -EINVAL;
	if ((flags & MS_ASYNC) && (flags & MS_SYNC))
		return -EINVAL;
	end = start + ALIGN_UP(len, PAGE_SIZE);
	if (end < start || ALIGN_UP(len, PAGE_SIZE) < len)
		return -ENOMEM;
	while (start < end) {
		v = mm_find(mm, start);
		if (v == NULL || v->start >= end)
			return -ENOMEM;
		if (v->start > start)
			hole = true;
		if ((flags & MS_INVALIDATE) && (v->advice & VMA_LOCKED))
			return -EBUSY;
		if ((flags & MS_SYNC) && (v->flags & MAP_SHARED) && v->file != NULL &&
		    v->file->ops->fsync != NULL) {
			struct file *file = v->file;
			int r;

			start = v->end;
			file_get(file);		/* a disk's fsync may sleep */
			r = file->ops->fsync(file);
			file_put(file);
			if (r != 0)
				return r;
			continue;
		}
		start = v->end;
	}
	return hole ? -ENOMEM : 0;
}

SYSCALL(mincore, uintptr_t start, size_t len, uint8_t __user *vec)
{
	struct mm *mm = current->mm;
	uint8_t buf[256];

	if ((start & (PAGE_SIZE - 1)) != 0)
		return -EINVAL;
	if (range_wraps(start, len))
		return -ENOMEM;
	len = ALIGN_UP(len, PAGE_SIZE);
	while (len != 0) {
		unsigned n = 0;

		while (n < sizeof(buf) && len != 0) {
			struct vma *v = mm_find(mm, start);
			pte_t *pte;
			bool huge;

			if (v == NULL || v->start > start)
				return -ENOMEM;
			pte = pt_leaf(mm, start, &huge);
			buf[n++] = v->inode != NULL || (pte != NULL && *pte != 0);
			start += PAGE_SIZE;
			len -= PAGE_SIZE;
		}
		if (copy_to_user(vec, buf, n) != 0)
			return -EFAULT;
		vec += n;
		if (signal_fatal_pending(current))
			return -EINTR;
	}
	return 0;
}

/* ---- mlock ---- */

static bool lock_limit_ok(struct mm *mm, uint64_t pages)
{
	return capable(CAP_IPC_LOCK) ||
	       mm->locked_pages + pages <= mm_rlimit(KRLIMIT_MEMLOCK) >> PAGE_SHIFT;
}

static int lock_bits(struct mm *mm, uintptr_t start, uintptr_t end, bool lock)
{
	while (start < end) {
		struct vma *v = mm_find(mm, start);
		uintptr_t part;
		int r;

		if (v == NULL || v->start > start)
			return -ENOMEM;
		part = MIN(v->end, end);
		r = v->advice & VMA_FRAMES ? 0 :
		    advise_bits(&v, start, part, lock ? VMA_LOCKED : 0, lock ? 0 : VMA_LOCKED);
		if (r != 0)
			return -ENOMEM;
		start = part;
	}
	return 0;
}

static int range_round(uintptr_t *start, size_t *len)
{
	size_t off = *start & (PAGE_SIZE - 1);

	if (*len + off < *len || *len + off > ALIGN_UP(*len + off, PAGE_SIZE))
		return -EINVAL;
	*len = ALIGN_UP(*len + off, PAGE_SIZE);
	*start -= off;
	if (*start + *len < *start)
		return -EINVAL;
	return 0;
}

static long do_mlock(uintptr_t start, size_t len, bool populate)
{
	struct mm *mm = current->mm;
	int r;

	if (!capable(CAP_IPC_LOCK) && mm_rlimit(KRLIMIT_MEMLOCK) == 0)
		return -EPERM;
	r = range_round(&start, &len);
	if (r != 0)
		return r;
	if (!lock_limit_ok(mm, len >> PAGE_SHIFT))
		return -ENOMEM;
	r = lock_bits(mm, start, start + len, true);
	if (r == 0 && populate)
		r = mm_populate(mm, start, start + len, false);
	return r == -EFAULT || r == -EACCES ? -ENOMEM : r;
}

SYSCALL(mlock, uintptr_t start, size_t len)
{
	return do_mlock(start, len, true);
}

SYSCALL(mlock2, uintptr_t start, size_t len, int flags)
{
	if (flags & ~1 /* MLOCK_ONFAULT */)
		return -EINVAL;
	return do_mlock(start, len, flags == 0);
}

SYSCALL(munlock, uintptr_t start, size_t len)
{
	int r = range_round(&start, &len);

	return r != 0 ? r : lock_bits(current->mm, start, start + len, false);
}

/* All VMAs. Populating may fail and does not count, as in Linux. */
static void lock_all(struct mm *mm, bool lock, bool populate)
{
	struct vma *v;

	for (v = RB_MIN(vma_tree, &mm->vmas); v != NULL; v = vma_next(v)) {
		if (v->advice & VMA_FRAMES)
			continue;
		vma_account(v, -1);
		v->advice = lock ? v->advice | VMA_LOCKED : v->advice & ~VMA_LOCKED;
		vma_account(v, 1);
		v = vma_merge(v);
		if (populate && v->prot != PROT_NONE)
			(void)mm_populate(mm, v->start, v->end, false);
	}
}

SYSCALL(mlockall, int flags)
{
	struct mm *mm = current->mm;

	if (flags == 0 || (flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) ||
	    flags == MCL_ONFAULT)
		return -EINVAL;
	if (!capable(CAP_IPC_LOCK) && mm_rlimit(KRLIMIT_MEMLOCK) == 0)
		return -EPERM;
	if ((flags & MCL_CURRENT) && !capable(CAP_IPC_LOCK) &&
	    mm->total_pages > mm_rlimit(KRLIMIT_MEMLOCK) >> PAGE_SHIFT)
		return -ENOMEM;
	mm->lock_future = flags & MCL_FUTURE ? VMA_LOCKED : 0;
	if (flags & MCL_CURRENT)
		lock_all(mm, true, !(flags & MCL_ONFAULT));
	return 0;
}

SYSCALL(munlockall, void)
{
	current->mm->lock_future = 0;
	lock_all(current->mm, false, false);
	return 0;
}
