/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page faults. A fault costs tens of microseconds on a shadow-paging host, an entry written
 * ahead 60 ns, so each fault fills what is likely to be touched next:
 *
 * - Anonymous memory comes in aligned chunks of 16 pages, or 2 MiB at a time where the program
 *   asked for it or fills a VMA region after region. A read maps the page of zeros.
 * - File pages: everything that the image has in a row in the 2 MiB around the fault; of
 *   memory files 16 pages. A write to a private file mapping copies an aligned chunk of 32,
 *   and in a small writable mapping (a library's data, about to be relocated) so does a read.
 * - After a fork, a write to a shared page copies it and marks it hot: the next fork copies hot
 *   pages at once (fork.c). When the other side is gone, the page and its neighbours are just
 *   made writable again.
 *
 * Filling an empty entry or giving rights needs no flush. An entry that showed another frame
 * is flushed unless the hardware reported this very fault.
 */
#include <linux/mman.h>

#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm_internal.h"
#include "guest-kernel/mm/patch.h"

#define ANON_CHUNK_ORDER 4u
#define ANON_CHUNK	(PAGE_SIZE << ANON_CHUNK_ORDER)
#define FILE_CHUNK	(16 * PAGE_SIZE)
#define COPY_CHUNK	(32 * PAGE_SIZE)
#define SMALL_DATA	(128 * PAGE_SIZE)	/* private writable file mapping */
#define AHEAD_MAX	1024u			/* pages mapped by fault_map_ahead */

struct fault {
	struct mm *mm;
	struct vma *v;
	uintptr_t va;			/* page aligned */
	bool write, hw;
	unsigned pa_flags;		/* for page_alloc */
	struct tlb tlb;
};

static const struct fault_result fault_ok;

/* The part of the aligned chunk around va that lies in the VMA. */
static void chunk_bounds(const struct fault *f, size_t chunk, uintptr_t *start, uintptr_t *end)
{
	*start = MAX(f->v->start, ALIGN_DOWN(f->va, chunk));
	*end = MIN(f->v->end, ALIGN_DOWN(f->va, chunk) + chunk);
}

static void replace(struct fault *f, pte_t *pte, uintptr_t va, pte_t e)
{
	if ((*pte & PTE_P) && (*pte & PTE_ADDR) != (e & PTE_ADDR) && (va != f->va || !f->hw))
		tlb_page(&f->tlb, va);
	if (*pte != 0)
		pte_drop(f->mm, pte);
	pte_set(f->mm, pte, e);
}

/* ---- anonymous memory ---- */

/* Was the 2 MiB region at `base` filled (nearly) whole? */
static bool region_filled(struct fault *f, uintptr_t base)
{
	unsigned n = 0;
	bool huge;

	if (base < f->v->start || base + HUGE_SIZE > f->v->end)
		return false;
	for (unsigned i = 0; i < 8; i++) {
		pte_t *pte = pt_leaf(f->mm, base + i * (HUGE_SIZE / 8) + ANON_CHUNK, &huge);

		if (huge)
			return true;
		n += pte != NULL && (*pte & PTE_ANON);
	}
	return n >= 6;
}

static bool want_huge(struct fault *f)
{
	uintptr_t base = ALIGN_DOWN(f->va, HUGE_SIZE);

	if (base < f->v->start || base + HUGE_SIZE > f->v->end ||
	    (f->v->advice & VMA_NOHUGE))
		return false;
	if (mem_stats.free_pages < mem_stats.total_pages / 8)
		return false;
	return (f->v->advice & VMA_HUGE) || (base >= HUGE_SIZE &&
	       region_filled(f, base - HUGE_SIZE)) || region_filled(f, base + HUGE_SIZE);
}

static bool fault_huge(struct fault *f)
{
	pte_t *pde;
	struct page *p;

	if (!want_huge(f))
		return false;
	pde = pt_pde(f->mm, f->va, f->pa_flags);
	if (pde == NULL || *pde != 0)
		return false;
	p = page_alloc(HUGE_SHIFT - PAGE_SHIFT, PA_ZERO | PA_NOWAIT);
	if (p == NULL)
		return false;
	mem_stats.anon_pages += PT_ENTRIES;
	pte_set(f->mm, pde, pte_make(page_to_phys(p), f->v->prot, true, PTE_ANON | PTE_HUGE));
	return true;
}

static int map_new_anon(struct fault *f, pte_t *pte, uintptr_t va, struct page *p)
{
	mem_stats.anon_pages++;
	replace(f, pte, va, pte_make(page_to_phys(p), f->v->prot,
				     (f->v->prot & PROT_WRITE) != 0, PTE_ANON));
	return 0;
}

/* A write to memory that is not there yet or shows the page of zeros. */
static int fault_anon_write(struct fault *f)
{
	paddr_t zero = zero_page_pa();
	uintptr_t start, end;
	unsigned empty = 0, total;
	struct page *p = NULL;
	pte_t *pte;

	if (fault_huge(f))
		return 0;
	pte = pt_alloc(f->mm, f->va, f->pa_flags);
	if (pte == NULL)
		return -ENOMEM;
	chunk_bounds(f, ANON_CHUNK, &start, &end);
	pte -= (f->va - start) >> PAGE_SHIFT;	/* a chunk lies in one table */
	total = (unsigned)((end - start) >> PAGE_SHIFT);
	for (unsigned i = 0; i < total; i++)
		empty += pte[i] == 0 || (pte[i] & PTE_ADDR) == zero;
	/* Contiguous frames for a whole chunk, single ones for the rest of one. */
	if (empty == 1u << ANON_CHUNK_ORDER)
		p = page_alloc(ANON_CHUNK_ORDER, PA_ZERO | PA_NOWAIT);
	if (p != NULL) {
		page_split(p);
		for (unsigned i = 0; i < total; i++)
			map_new_anon(f, &pte[i], start + i * PAGE_SIZE, p + i);
		return 0;
	}
	p = page_alloc(0, PA_ZERO | f->pa_flags);
	if (p == NULL)
		return -ENOMEM;
	map_new_anon(f, &pte[(f->va - start) >> PAGE_SHIFT], f->va, p);
	for (unsigned i = 0; i < total; i++) {
		if (pte[i] != 0)
			continue;
		p = page_alloc(0, PA_ZERO | PA_NOWAIT);
		if (p == NULL)
			break;
		map_new_anon(f, &pte[i], start + i * PAGE_SIZE, p);
	}
	return 0;
}

static int fault_anon_read(struct fault *f)
{
	uintptr_t start, end;
	pte_t *pte = pt_alloc(f->mm, f->va, f->pa_flags);

	if (pte == NULL)
		return -ENOMEM;
	chunk_bounds(f, ANON_CHUNK, &start, &end);
	pte -= (f->va - start) >> PAGE_SHIFT;
	for (; start < end; start += PAGE_SIZE, pte++) {
		if (*pte == 0)
			pte_set(f->mm, pte, pte_make(zero_page_pa(), f->v->prot, false, 0));
	}
	return 0;
}

/* ---- copying ---- */

/* The entry's page is (or may be) seen by others too: put a copy of `from` there. */
static int fault_copy(struct fault *f, paddr_t from, pte_t soft)
{
	struct page *p = page_alloc(0, f->pa_flags);
	pte_t *pte;

	if (p == NULL)
		return -ENOMEM;
	pte = pt_alloc(f->mm, f->va, f->pa_flags);
	if (pte == NULL) {
		page_put(p);
		return -ENOMEM;
	}
	memcpy(page_to_virt(p), phys_to_virt(from), PAGE_SIZE);
	mem_stats.anon_pages++;
	replace(f, pte, f->va, pte_make(page_to_phys(p), f->v->prot,
					(f->v->prot & PROT_WRITE) != 0, PTE_ANON | soft));
	return 0;
}

static bool sole_owner(pte_t e)
{
	struct page *p = phys_to_page(e & PTE_ADDR);

	return (e & PTE_ANON) && p != NULL && p->refs == 1;
}

static uint64_t file_pages(const struct inode *i)
{
	return (i->size >> PAGE_SHIFT) + ((i->size & (PAGE_SIZE - 1)) != 0);
}

/* Cuts end so that it does not reach beyond the last page of the file. */
static uintptr_t file_end(const struct vma *v, uintptr_t start, uintptr_t end)
{
	uint64_t n = file_pages(v->inode), first = vma_index(v, start);

	if (n <= first)
		return start;
	return (end - start) >> PAGE_SHIFT > n - first ? start + ((n - first) << PAGE_SHIFT)
						       : end;
}

/* Private copies of the file's pages around the fault that are not copied yet: whoever writes
 * to a program's data goes on doing so. */
static void copy_around(struct fault *f)
{
	uintptr_t start, end;

	chunk_bounds(f, COPY_CHUNK, &start, &end);
	end = file_end(f->v, start, end);
	for (; start < end; start += PAGE_SIZE) {
		struct fault g = *f;
		pte_t *pte = pt_alloc(f->mm, start, PA_NOWAIT);
		paddr_t pa;
		int r;

		if (pte == NULL || (*pte & PTE_ANON))
			continue;
		g.va = start;
		g.hw = false;
		g.pa_flags = PA_NOWAIT;
		if (f->v->inode->ops->get_page(f->v->inode, vma_index(f->v, start), false,
					       &pa) != 0)
			return;
		r = fault_copy(&g, pa, 0);
		phys_put(pa);
		f->tlb = g.tlb;
		if (r != 0)
			return;
	}
}

/* A write to a present private page that is not writable. */
static int fault_cow(struct fault *f, pte_t *pte)
{
	uintptr_t start, end;

	if ((*pte & PTE_ADDR) == zero_page_pa() && f->v->inode == NULL)
		return fault_anon_write(f);
	if (!sole_owner(*pte)) {
		bool anon = (*pte & PTE_ANON) != 0;
		int r = fault_copy(f, *pte & PTE_ADDR, anon ? PTE_HOT : 0);

		if (r == 0 && !anon && f->v->inode != NULL)
			copy_around(f);
		return r;
	}
	if (*pte & PTE_HUGE) {
		*pte |= PTE_W | PTE_D;
		return 0;
	}
	*pte |= PTE_W | PTE_D | PTE_HOT;
	chunk_bounds(f, ANON_CHUNK, &start, &end);
	pte -= (f->va - start) >> PAGE_SHIFT;
	for (; start < end; start += PAGE_SIZE, pte++) {
		if (!(*pte & PTE_W) && sole_owner(*pte))
			*pte |= PTE_W | PTE_D;
	}
	return 0;
}

/* ---- files ---- */

/* The frame to show at va for the file's frame pa: programs run patched code (patch.c). */
static paddr_t patched_frame(const struct vma *v, uintptr_t va, paddr_t pa)
{
	if (!v->inode->patched || !v->mm->patchable || (v->flags & MAP_SHARED) ||
	    (v->prot & (PROT_EXEC | PROT_WRITE)) != PROT_EXEC)
		return pa;
	return patch_frame(v->inode, vma_index(v, va), pa);
}

/* The file's page at va for reading, with a reference. */
static int file_page(const struct vma *v, uintptr_t va, paddr_t *ret)
{
	paddr_t pa, frame;
	int r = v->inode->ops->get_page(v->inode, vma_index(v, va), false, &pa);

	if (r != 0)
		return r;
	frame = patched_frame(v, va, pa);
	if (frame != pa) {
		phys_get(frame);
		phys_put(pa);
	}
	*ret = frame;
	return 0;
}

/* Maps image frames read-only in the empty entries of [start, end): a part of one 2 MiB
 * region, already cut at the end of file. Never fails: what is missing faults later. */
static void fill_runs(struct mm *mm, struct vma *v, uintptr_t start, uintptr_t end)
{
	struct inode *inode = v->inode;
	pte_t *pte = pt_alloc(mm, start, PA_NOWAIT);

	if (pte == NULL)
		return;
	while (start < end) {
		paddr_t pa;
		uint64_t n = inode->ops->get_run(inode, vma_index(v, start),
						 (end - start) >> PAGE_SHIFT, &pa);

		if (n == 0) {
			start += PAGE_SIZE;
			pte++;
			continue;
		}
		n = MIN(n, (end - start) >> PAGE_SHIFT);
		for (uint64_t i = 0; i < n; i++, pte++, pa += PAGE_SIZE) {
			paddr_t frame = patched_frame(v, start + (i << PAGE_SHIFT), pa);

			if (*pte != 0)
				continue;
			phys_get(frame);
			pte_set(mm, pte, pte_make(frame, v->prot, false, 0));
		}
		start += n << PAGE_SHIFT;
	}
}

void fault_map_ahead(struct vma *v)
{
	uintptr_t start = v->start, end;

	if (v->inode == NULL || v->inode->ops->get_run == NULL || v->prot == 0)
		return;
	end = file_end(v, start, MIN(v->end, start + AHEAD_MAX * PAGE_SIZE));
	while (start < end) {
		uintptr_t next = MIN(end, ALIGN_DOWN(start, HUGE_SIZE) + HUGE_SIZE);

		fill_runs(v->mm, v, start, next);
		start = next;
	}
}

static void fault_around(struct fault *f)
{
	struct inode *inode = f->v->inode;
	uintptr_t start, end;
	pte_t *pte;
	paddr_t run;

	if (inode->ops->get_run != NULL &&
	    inode->ops->get_run(inode, vma_index(f->v, f->va), 1, &run) != 0) {
		chunk_bounds(f, HUGE_SIZE, &start, &end);
		fill_runs(f->mm, f->v, start, file_end(f->v, start, end));
	}
	chunk_bounds(f, FILE_CHUNK, &start, &end);
	end = file_end(f->v, start, end);
	for (; start < end; start += PAGE_SIZE) {
		paddr_t pa;

		/* Looked up each time: getting a page may zap entries. */
		pte = pt_alloc(f->mm, start, f->pa_flags);
		if (pte == NULL)
			return;
		if (*pte != 0)
			continue;
		if (file_page(f->v, start, &pa) != 0)
			return;
		pte = pt_alloc(f->mm, start, f->pa_flags);
		if (pte == NULL || *pte != 0) {
			phys_put(pa);
			return;
		}
		pte_set(f->mm, pte, pte_make(pa, f->v->prot, false, 0));
	}
}

static int fault_file(struct fault *f)
{
	struct inode *inode = f->v->inode;
	bool shared = (f->v->flags & MAP_SHARED) != 0;
	bool copy = !shared && (f->write || ((f->v->prot & PROT_WRITE) &&
					     f->v->end - f->v->start <= SMALL_DATA));
	paddr_t pa;
	pte_t *pte;
	bool huge;
	int r;

	if (inode->ops->get_page == NULL)
		return -EFAULT;
	if (shared && f->write)
		r = inode->ops->get_page(inode, vma_index(f->v, f->va), true, &pa);
	else
		r = file_page(f->v, f->va, &pa);
	if (r != 0)
		return r;
	if (copy) {
		r = fault_copy(f, pa, 0);
		phys_put(pa);
		if (r == 0)
			copy_around(f);
		return r;
	}
	pte = pt_alloc(f->mm, f->va, f->pa_flags);
	if (pte == NULL) {
		phys_put(pa);
		return -ENOMEM;
	}
	replace(f, pte, f->va, pte_make(pa, f->v->prot, shared && f->write, 0));
	if (!shared || !f->write) {
		fault_around(f);
		return 0;
	}
	/* Shared anonymous memory is about to be filled: the neighbours too. */
	if (f->v->file == NULL) {
		uintptr_t start, end;

		chunk_bounds(f, FILE_CHUNK, &start, &end);
		end = file_end(f->v, start, end);
		for (; start < end; start += PAGE_SIZE) {
			pte = pt_leaf(f->mm, start, &huge);
			if (pte == NULL || *pte != 0)
				continue;
			if (mem_stats.free_pages < 2048 ||
			    inode->ops->get_page(inode, vma_index(f->v, start), true, &pa) != 0)
				break;
			pte = pt_alloc(f->mm, start, f->pa_flags);
			if (pte == NULL || *pte != 0) {
				phys_put(pa);
				break;
			}
			pte_set(f->mm, pte, pte_make(pa, f->v->prot, true, 0));
		}
	}
	return 0;
}

/* ---- the fault ---- */

/* Lets a stack grow down to addr. */
static bool stack_grow(struct mm *mm, struct vma *v, uintptr_t addr)
{
	struct vma *prev = vma_prev(v);
	uint64_t pages = (v->start - addr) >> PAGE_SHIFT;

	if (!(v->flags & MAP_GROWSDOWN) || current == NULL || current->mm != mm)
		return false;
	if (addr < MMAP_MIN_ADDR || v->end - addr > mm_rlimit(KRLIMIT_STACK))
		return false;
	if (prev != NULL && !(prev->flags & MAP_GROWSDOWN) && prev->prot != 0 &&
	    (addr < STACK_GUARD || prev->end > addr - STACK_GUARD))
		return false;
	if (prev != NULL && prev->end > addr)
		return false;
	if (!mm_may_expand(mm, pages, false))
		return false;
	vma_account(v, -1);
	v->start = addr;
	vma_account(v, 1);
	return true;
}

static bool vma_allows(const struct vma *v, unsigned error)
{
	if (error & FAULT_WRITE)
		return (v->prot & PROT_WRITE) != 0;
	if (error & FAULT_EXEC)
		return (v->prot & PROT_EXEC) != 0;
	return v->prot != PROT_NONE;
}

static int fault_frames(struct fault *f)
{
	pte_t *pte = pt_alloc(f->mm, f->va, f->pa_flags);

	if (pte == NULL)
		return -ENOMEM;
	replace(f, pte, f->va, pte_make(vma_index(f->v, f->va) << PAGE_SHIFT, f->v->prot, false,
					0));
	return 0;
}

static int fault_handle(struct fault *f)
{
	bool huge;
	pte_t *pte = pt_leaf(f->mm, f->va, &huge);

	if (pte != NULL && *pte != 0) {
		if ((*pte & PTE_P) && (!f->write || (*pte & PTE_W)))
			return 0;	/* the processor's copy was stale */
		if (f->v->flags & MAP_SHARED)
			return fault_file(f);
		return fault_cow(f, pte);
	}
	if (f->v->advice & VMA_FRAMES)
		return fault_frames(f);
	if (f->v->inode != NULL)
		return fault_file(f);
	return f->write ? fault_anon_write(f) : fault_anon_read(f);
}

struct fault_result mm_fault(struct mm *mm, uintptr_t addr, unsigned error)
{
	struct fault f = {
		.mm = mm, .va = addr & PAGE_MASK, .write = (error & FAULT_WRITE) != 0,
		.hw = (error & FAULT_HW) != 0,
		.pa_flags = PA_NOWAIT,
	};
	struct vma *v = addr < CM_USER_TOP ? mm_find(mm, addr) : NULL;
	int r;

	if (v == NULL || (f.va < v->start && !stack_grow(mm, v, f.va)))
		return (struct fault_result){KSIGSEGV, KILL_CODE_SEGV_MAPERR};
	if (!vma_allows(v, error))
		return (struct fault_result){KSIGSEGV, KILL_CODE_SEGV_ACCERR};
	f.v = v;
	tlb_init(&f.tlb, mm);
	r = fault_handle(&f);
	if (r == -ENOMEM && !(error & (FAULT_HW | FAULT_NOWAIT))) {
		/* The kernel touches for a system call and cannot wait for a victim's end: it
		 * may use the reserve, unless it is the victim. */
		oom_kill();
		if (current == NULL || !signal_fatal_pending(current)) {
			f.pa_flags = 0;
			r = fault_handle(&f);
		}
	}
	tlb_finish(&f.tlb);
	if (r == 0)
		return fault_ok;
	if (r != -ENOMEM)
		return (struct fault_result){KSIGBUS, KILL_CODE_BUS_ADRERR};
	/* Out of memory: somebody dies. If that is not us, let it run and try again. */
	if (!(error & FAULT_HW) || !oom_kill() || signal_fatal_pending(current))
		return (struct fault_result){KSIGKILL, KSI_KERNEL};
	return fault_ok;
}

/* ---- the kernel's own touching ---- */

void *mm_user_page(struct mm *mm, uintptr_t va, bool write)
{
	if (mm == NULL)
		return NULL;
	for (unsigned i = 0; i < 2; i++) {
		bool huge;
		pte_t *pte = va < CM_USER_TOP ? pt_leaf(mm, va, &huge) : NULL;

		if (pte != NULL && (*pte & PTE_P) && (!write || (*pte & PTE_W))) {
			uintptr_t mask = huge ? HUGE_SIZE - 1 : PAGE_SIZE - 1;

			return phys_to_virt((*pte & PTE_ADDR) + (va & mask));
		}
		if (i != 0 || mm_fault(mm, va, FAULT_USER | (write ? FAULT_WRITE : 0)).sig != 0)
			break;
	}
	return NULL;
}

size_t mm_prepare(struct mm *mm, uintptr_t addr, size_t len, bool write)
{
	size_t done = 0;

	while (done < len && addr + done < CM_USER_TOP) {
		if (mm_user_page(mm, addr + done, write) == NULL)
			break;
		done += MIN(len - done, PAGE_SIZE - ((addr + done) & (PAGE_SIZE - 1)));
	}
	return done;
}

int mm_populate(struct mm *mm, uintptr_t start, uintptr_t end, bool write_all)
{
	struct vma *v = NULL;

	for (unsigned n = 1; start < end; start += PAGE_SIZE, n++) {
		bool write = write_all;
		struct fault_result r;
		pte_t *pte;
		bool huge;

		if (n % 512 == 0 && current != NULL && signal_fatal_pending(current))
			return -EINTR;
		if (v == NULL || start >= v->end)
			v = mm_find(mm, start);
		if (v == NULL || v->start > start)
			return -ENOMEM;
		if ((v->flags & MAP_PRIVATE) && (v->prot & PROT_WRITE))
			write = true;
		if (!vma_allows(v, write ? FAULT_WRITE : 0))
			return -EACCES;
		pte = pt_leaf(mm, start, &huge);
		if (pte != NULL && (*pte & PTE_P) && (!write || (*pte & PTE_W)))
			continue;
		r = mm_fault(mm, start, FAULT_USER | FAULT_NOWAIT | (write ? FAULT_WRITE : 0));
		if (r.sig != 0)
			return r.sig == KSIGKILL ? -ENOMEM : -EFAULT;
	}
	return 0;
}

void mm_remap_frame(struct mm *mm, uintptr_t va, paddr_t from, paddr_t to)
{
	bool huge;
	pte_t *pte = pt_leaf(mm, va, &huge);
	pte_t e;
	struct tlb t;

	if (pte == NULL || huge || !(*pte & PTE_P) || (*pte & PTE_ADDR) != from)
		return;
	e = (*pte & ~PTE_ADDR) | to;
	tlb_init(&t, mm);
	tlb_page(&t, va);
	phys_get(to);
	pte_drop(mm, pte);
	pte_set(mm, pte, e);
	tlb_finish(&t);
}

/* ---- pages that an inode takes back ---- */

void mm_zap_inode(struct inode *inode, uint64_t first, uint64_t last, bool even_private)
{
	struct vma *v;

	patch_forget(inode, first, last);
	TAILQ_FOREACH(v, &inode->mappings, file_link) {
		uint64_t n = (v->end - v->start) >> PAGE_SHIFT;
		uint64_t from = MAX(first, v->pgoff), to;
		struct tlb t;

		if (last <= v->pgoff || from - v->pgoff >= n)
			continue;
		to = MIN(last - v->pgoff, n);
		tlb_init(&t, v->mm);
		pt_zap(v->mm, v->start + ((from - v->pgoff) << PAGE_SHIFT),
		       v->start + (to << PAGE_SHIFT), &t, even_private);
		tlb_finish(&t);
	}
}
