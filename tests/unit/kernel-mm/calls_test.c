/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls of mm/ and the faults around them: errors, edges, limits, texts. */
#include <linux/mman.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/layout.h"
#include "guest-kernel/mm/uaccess.h"
#include "support.h"
#include "tests/unit/cunit_run.h"

#define PG	PAGE_SIZE
#define RW	(PROT_READ | PROT_WRITE)
#define AP	(MAP_ANONYMOUS | MAP_PRIVATE)

long sys_mmap(uintptr_t addr, size_t len, unsigned long prot, unsigned long flags, int fd,
	      uint64_t off);
long sys_munmap(uintptr_t addr, size_t len);
long sys_mprotect(uintptr_t addr, size_t len, unsigned long prot);
long sys_brk(uintptr_t brk);
long sys_mremap(uintptr_t addr, size_t old_len, size_t new_len, unsigned long flags,
		uintptr_t new);
long sys_madvise(uintptr_t start, size_t len, int advice);
long sys_msync(uintptr_t start, size_t len, int flags);
long sys_mincore(uintptr_t start, size_t len, uint8_t *vec);
long sys_mlock(uintptr_t start, size_t len);
long sys_mlock2(uintptr_t start, size_t len, int flags);
long sys_munlock(uintptr_t start, size_t len);
long sys_mlockall(int flags);
long sys_munlockall(void);
long sys_process_vm_readv(int pid, const struct uiovec *local, unsigned long nlocal,
			  const struct uiovec *remote, unsigned long nremote,
			  unsigned long flags);

static struct mm *mm;

static void begin(void)
{
	support_init();
	mm = mm_new();
	support_set_mm(mm);
}

static void finish(void)
{
	support_set_mm(NULL);
	mm_put(mm);
	table_pool_shrink();
	CU_ASSERT(mem_stats.anon_pages == 0);
	CU_ASSERT(page_check() == mem_stats.free_pages);
}

static unsigned count_vmas(void)
{
	return mm->nvmas;
}

static void test_mmap_errors(void)
{
	struct obj *o;
	long a;

	begin();
	CU_ASSERT(sys_mmap(0, 0, RW, AP, -1, 0) == -EINVAL);
	CU_ASSERT(sys_mmap(0, PG, RW, MAP_ANONYMOUS, -1, 0) == -EINVAL);
	CU_ASSERT(sys_mmap(0, PG, RW, MAP_ANONYMOUS | MAP_SHARED_VALIDATE, -1, 0) == -EINVAL);
	CU_ASSERT(sys_mmap(0, PG, RW, AP, -1, 1) == -EINVAL);
	CU_ASSERT(sys_mmap(0, ~0UL, RW, AP, -1, 0) == -ENOMEM);
	CU_ASSERT(sys_mmap(0, CM_USER_TOP, RW, AP | MAP_NORESERVE, -1, 0) == -ENOMEM);
	CU_ASSERT(sys_mmap(0x10001, PG, RW, AP | MAP_FIXED, -1, 0) == -EINVAL);
	CU_ASSERT(sys_mmap(CM_USER_TOP, PG, RW, AP | MAP_FIXED, -1, 0) == -ENOMEM);
	CU_ASSERT(sys_mmap(CM_USER_TOP - PG, PG, RW, AP | MAP_FIXED, -1, 0) > 0);
	CU_ASSERT(sys_mmap(0, PG, RW, MAP_PRIVATE, 5, 0) == -EBADF);
	CU_ASSERT(sys_mmap(0, PG, RW, AP, -1, ~0UL << 12) == -EOVERFLOW ||
		  sys_mmap(0, PG, RW, AP, -1, ~0UL << 12) > 0);
	test_capable = false;
	CU_ASSERT(sys_mmap(0, PG, RW, AP | MAP_FIXED, -1, 0) == -EPERM);
	test_capable = true;
	CU_ASSERT(sys_mmap(0, PG, RW, AP | MAP_FIXED, -1, 0) == 0);
	a = sys_mmap(0x20000000, PG, RW, AP | MAP_FIXED_NOREPLACE, -1, 0);
	CU_ASSERT(a == 0x20000000);
	CU_ASSERT(sys_mmap(0x20000000, PG, RW, AP | MAP_FIXED_NOREPLACE, -1, 0) == -EEXIST);
	/* A taken hint is not used, a free one is. */
	CU_ASSERT(sys_mmap(0x20000000, PG, RW, AP, -1, 0) != 0x20000000);
	CU_ASSERT(sys_mmap(0x30000123, PG, RW, AP, -1, 0) == 0x30001000);
	a = sys_mmap(0, PG, RW, AP | 0x40, -1, 0);
	CU_ASSERT(a > 0 && a < 0x80000000L);

	/* An inode without pages, as an eventfd's: it was called all the same, once. */
	o = open_result = obj_new(OBJ_CACHE, 1);
	o->inode.ops = &(const struct inode_ops){ .get_page = NULL };
	CU_ASSERT(sys_mmap(0, PG, PROT_READ, MAP_SHARED, 3, 0) == -ENODEV);
	CU_ASSERT(sys_mmap(0, PG, PROT_READ, MAP_PRIVATE, 3, 0) == -ENODEV);
	obj_put(o);
	o = open_result = obj_new(OBJ_CACHE, 2);
	o->file.can_write = false;
	CU_ASSERT(sys_mmap(0, PG, RW, MAP_SHARED, 3, 0) == -EACCES);
	a = sys_mmap(0, PG, PROT_READ, MAP_SHARED, 3, 0);
	CU_ASSERT(a > 0);
	CU_ASSERT(sys_mprotect((uintptr_t)a, PG, RW) == -EACCES);
	CU_ASSERT(sys_mmap(0, PG, RW, MAP_PRIVATE, 3, 0) > 0);
	o->file.can_read = false;
	CU_ASSERT(sys_mmap(0, PG, PROT_READ, MAP_PRIVATE, 3, 0) == -EACCES);
	o->file.can_read = o->file.can_write = true;
	CU_ASSERT(sys_mmap(0, PG, RW, MAP_SHARED_VALIDATE | 0x80000, 3, 0) == -EOPNOTSUPP);
	o->inode.seals = 8;
	CU_ASSERT(sys_mmap(0, PG, RW, MAP_SHARED, 3, 0) == -EPERM);
	a = sys_mmap(0, PG, PROT_READ, MAP_SHARED, 3, 0);
	CU_ASSERT(sys_mprotect((uintptr_t)a, PG, RW) == -EACCES);
	open_result = NULL;
	obj_put(o);
	finish();
	CU_ASSERT(objs_alive == 0);
}

static void test_limits(void)
{
	uintptr_t a;

	begin();
	/* More than there is: refused when it would have to be backed. */
	CU_ASSERT(sys_mmap(0, 2 * RAM_SIZE, RW, AP, -1, 0) == -ENOMEM);
	CU_ASSERT(sys_mmap(0, 2 * RAM_SIZE, RW, AP | MAP_NORESERVE, -1, 0) > 0);
	a = (uintptr_t)sys_mmap(0, 64UL << 30, PROT_NONE, AP, -1, 0);
	CU_ASSERT((long)a > 0);
	CU_ASSERT(mm->table_pages == 1);	/* reservations cost nothing */
	CU_ASSERT(sys_mprotect(a, 64UL << 30, RW) == -ENOMEM);
	CU_ASSERT(sys_mprotect(a + (1UL << 30), 1UL << 20, RW) == 0);
	CU_ASSERT(cpu_write(a + (1UL << 30), 1) == 0);
	CU_ASSERT(cpu_write(a, 1) == KSIGSEGV);
	test_process.rlim[KRLIMIT_AS].cur = (mm->total_pages + 1) * PG;
	CU_ASSERT(sys_mmap(0, 2 * PG, RW, AP, -1, 0) == -ENOMEM);
	CU_ASSERT(sys_mmap(0, PG, RW, AP, -1, 0) > 0);
	test_process.rlim[KRLIMIT_AS].cur = KRLIM_INFINITY;
	test_process.rlim[KRLIMIT_DATA].cur = (mm->data_pages + 1) * PG;
	CU_ASSERT(sys_mmap(0, 2 * PG, RW, AP, -1, 0) == -ENOMEM);
	CU_ASSERT(sys_mmap(0, 2 * PG, PROT_READ, AP, -1, 0) > 0);
	finish();
}

static void test_search(void)
{
	uintptr_t a, b, c;

	begin();
	a = (uintptr_t)sys_mmap(0, 4 * PG, RW, AP, -1, 0);
	CU_ASSERT(a == mm->mmap_top - 4 * PG);
	b = (uintptr_t)sys_mmap(0, 4 * PG, RW, AP, -1, 0);
	CU_ASSERT(b == a - 4 * PG);
	CU_ASSERT(count_vmas() == 1);		/* merged */
	c = (uintptr_t)sys_mmap(0, PG, PROT_READ, AP, -1, 0);
	CU_ASSERT(c == b - PG);
	sys_munmap(a, PG);
	CU_ASSERT(sys_mmap(0, 2 * PG, RW, AP, -1, 0) == (long)(c - 2 * PG));
	CU_ASSERT(sys_mmap(0, PG, RW, AP, -1, 0) == (long)a);	/* fills the hole */
	CU_ASSERT(count_vmas() == 3);
	for (unsigned i = 0; i < 3000; i++)
		CU_ASSERT(sys_mmap(0, PG, i % 2 ? RW : PROT_READ, AP, -1, 0) > 0);
	CU_ASSERT(count_vmas() >= 3000);
	finish();
}

static void test_stack(void)
{
	uintptr_t top = 0x40000000, bottom;
	struct fault_result r;

	begin();
	CU_ASSERT(sys_mmap(top - 4 * PG, 4 * PG, RW, AP | MAP_GROWSDOWN | MAP_FIXED, -1, 0) > 0);
	CU_ASSERT(cpu_write(top - 20 * PG, 7) == 0);	/* grows */
	CU_ASSERT(cpu_write(top - (9UL << 20), 7) == KSIGSEGV);	/* beyond the limit */
	test_process.rlim[KRLIMIT_STACK].cur = 64UL << 20;
	CU_ASSERT(cpu_write(top - (9UL << 20), 7) == 0);
	/* The guard gap: nothing is placed there, and no growth into it. */
	bottom = mm_find(mm, top - PG)->start;
	CU_ASSERT(sys_mmap(bottom - 16 * PG, PG, RW, AP, -1, 0) != (long)(bottom - 16 * PG));
	CU_ASSERT(sys_mmap(bottom - 260 * PG, PG, RW, AP | MAP_FIXED, -1, 0) > 0);
	CU_ASSERT(cpu_write(bottom - PG, 7) == 0);
	CU_ASSERT(cpu_write(bottom - 10 * PG, 7) == KSIGSEGV);
	r = mm_fault(mm, 0x1000, FAULT_HW);
	CU_ASSERT(r.sig == KSIGSEGV && r.code == KILL_CODE_SEGV_MAPERR);
	r = mm_fault(mm, ~0UL - 4095, FAULT_HW);
	CU_ASSERT(r.sig == KSIGSEGV && r.code == KILL_CODE_SEGV_MAPERR);
	finish();
}

static void test_codes(void)
{
	struct obj *o = NULL;
	struct fault_result r;
	uintptr_t a;
	uint64_t v;

	begin();
	o = open_result = obj_new(OBJ_CACHE, 2);
	a = (uintptr_t)sys_mmap(0, 4 * PG, PROT_READ, MAP_SHARED, 3, 0);
	r = mm_fault(mm, a, FAULT_HW | FAULT_WRITE);
	CU_ASSERT(r.sig == KSIGSEGV && r.code == KILL_CODE_SEGV_ACCERR);
	r = mm_fault(mm, a, FAULT_HW | FAULT_EXEC);
	CU_ASSERT(r.sig == KSIGSEGV && r.code == KILL_CODE_SEGV_ACCERR);
	CU_ASSERT(cpu_read(a + PG, &v) == 0);
	r = mm_fault(mm, a + 2 * PG, FAULT_HW);
	CU_ASSERT(r.sig == KSIGBUS && r.code == KILL_CODE_BUS_ADRERR);
	CU_ASSERT(copy_from_user(&v, (void *)(a + 2 * PG), 8) == -EFAULT);
	/* Truncation: a page that was there is not any more. */
	o->npages = 1;
	o->inode.size = PG;
	mm_zap_inode(&o->inode, 1, ~0UL, true);
	CU_ASSERT(cpu_read(a + PG, &v) == KSIGBUS);
	CU_ASSERT(cpu_read(a, &v) == 0);
	o->npages = 2;
	open_result = NULL;
	obj_put(o);
	finish();
}

static void test_brk(void)
{
	uintptr_t base = 0x600000;
	uint64_t v;

	begin();
	mm->brk_start = mm->brk = base;
	CU_ASSERT(sys_brk(0) == (long)base);
	CU_ASSERT(sys_brk(base + 5000) == (long)base + 5000);
	CU_ASSERT(cpu_write(base + PG, 9) == 0);
	CU_ASSERT(cpu_write(base + 2 * PG, 9) == KSIGSEGV);
	CU_ASSERT(sys_brk(base + 10 * PG) == (long)(base + 10 * PG));
	CU_ASSERT(count_vmas() == 1);
	CU_ASSERT(sys_brk(base + 100) == (long)base + 100);
	CU_ASSERT(cpu_read(base + PG, &v) == KSIGSEGV);
	CU_ASSERT(sys_brk(base + 2 * PG) == (long)(base + 2 * PG));
	CU_ASSERT(cpu_read(base + PG, &v) == 0 && v == 0);
	/* Refused: the old break is the answer. */
	CU_ASSERT(sys_brk(base - 1) == (long)(base + 2 * PG));
	sys_mmap(base + 4 * PG, PG, RW, AP | MAP_FIXED, -1, 0);
	CU_ASSERT(sys_brk(base + 4 * PG) == (long)(base + 2 * PG));
	CU_ASSERT(sys_brk(base + 3 * PG) == (long)(base + 3 * PG));
	CU_ASSERT(sys_brk(base + 8 * PG) == (long)(base + 3 * PG));
	test_process.rlim[KRLIMIT_DATA].cur = PG;
	CU_ASSERT(sys_brk(base + 3 * PG) == (long)(base + 3 * PG));
	CU_ASSERT(sys_brk(base) == (long)base);
	finish();
}

static void test_mremap(void)
{
	uintptr_t a, b;
	uint64_t v;

	begin();
	a = (uintptr_t)sys_mmap(0x20000000, 4 * PG, RW, AP | MAP_FIXED, -1, 0);
	for (unsigned i = 0; i < 4; i++)
		cpu_write(a + i * PG, i + 1);
	CU_ASSERT(sys_mremap(a, 4 * PG, 0, 0, 0) == -EINVAL);
	CU_ASSERT(sys_mremap(a + 1, 4 * PG, PG, 0, 0) == -EINVAL);
	CU_ASSERT(sys_mremap(a, 4 * PG, PG, 8, 0) == -EINVAL);
	CU_ASSERT(sys_mremap(a, 4 * PG, PG, MREMAP_FIXED, 0) == -EINVAL);
	CU_ASSERT(sys_mremap(a, 4 * PG, PG, MREMAP_MAYMOVE | 4, 0) == -EINVAL);
	CU_ASSERT(sys_mremap(0x50000000, PG, 2 * PG, 0, 0) == -EFAULT);
	CU_ASSERT(sys_mremap(a, 5 * PG, 9 * PG, MREMAP_MAYMOVE, 0) == -EFAULT);
	CU_ASSERT(sys_mremap(a, 0, PG, MREMAP_MAYMOVE, 0) == -EINVAL);
	CU_ASSERT(sys_mremap(a, 4 * PG, 6 * PG, 0, 0) == (long)a);	/* in place */
	sys_mmap(a + 7 * PG, PG, PROT_READ, AP | MAP_FIXED, -1, 0);
	CU_ASSERT(sys_mremap(a, 6 * PG, 8 * PG, 0, 0) == -ENOMEM);
	CU_ASSERT(sys_mremap(a, 6 * PG, 2 * PG, 0, 0) == (long)a);	/* shrink */
	CU_ASSERT(cpu_read(a + 2 * PG, &v) == KSIGSEGV);
	b = (uintptr_t)sys_mremap(a, 2 * PG, 20 * PG, MREMAP_MAYMOVE, 0);
	CU_ASSERT((long)b > 0 && b != a);
	CU_ASSERT(cpu_read(b + PG, &v) == 0 && v == 2);
	CU_ASSERT(cpu_read(b + 19 * PG, &v) == 0 && v == 0);
	CU_ASSERT(cpu_read(a, &v) == KSIGSEGV);
	CU_ASSERT(sys_mremap(b, 20 * PG, 20 * PG, MREMAP_MAYMOVE | 4, 0) > 0);
	CU_ASSERT(cpu_read(b + PG, &v) == 0 && v == 0);	/* stays, empty */
	/* old_len 0 of a shared mapping: a second view */
	a = (uintptr_t)sys_mmap(0, 2 * PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	b = (uintptr_t)sys_mremap(a, 0, 2 * PG, MREMAP_MAYMOVE, 0);
	CU_ASSERT((long)b > 0);
	cpu_write(a, 77);
	CU_ASSERT(cpu_read(b, &v) == 0 && v == 77);
	finish();
	CU_ASSERT(objs_alive == 0);
}

static void test_madvise(void)
{
	uintptr_t a;
	uint64_t v;

	begin();
	a = (uintptr_t)sys_mmap(0, 8 * PG, RW, AP, -1, 0);
	CU_ASSERT(sys_madvise(a + 1, PG, MADV_NORMAL) == -EINVAL);
	CU_ASSERT(sys_madvise(a, PG, 99) == -EINVAL);
	CU_ASSERT(sys_madvise(a, PG, MADV_MERGEABLE) == -EINVAL);
	CU_ASSERT(sys_madvise(a, 0, MADV_DONTNEED) == 0);
	CU_ASSERT(sys_madvise(a, ~0UL, MADV_DONTNEED) == -EINVAL);
	cpu_write(a + PG, 5);
	CU_ASSERT(sys_madvise(a, 8 * PG, MADV_DONTNEED) == 0);
	CU_ASSERT(cpu_read(a + PG, &v) == 0 && v == 0);
	CU_ASSERT(sys_madvise(a, 9 * PG, MADV_DONTNEED) == -ENOMEM ||
		  sys_madvise(a - PG, 9 * PG, MADV_DONTNEED) == -ENOMEM);
	CU_ASSERT(sys_madvise(a, 8 * PG, MADV_POPULATE_WRITE) == 0);
	CU_ASSERT(mm->rss_anon >= 8);
	CU_ASSERT(sys_madvise(a, 8 * PG, MADV_REMOVE) == -EINVAL);
	sys_mprotect(a, PG, PROT_READ);
	CU_ASSERT(sys_madvise(a, 8 * PG, MADV_POPULATE_WRITE) == -EINVAL);
	CU_ASSERT(sys_madvise(a, 8 * PG, MADV_DONTFORK) == 0);
	CU_ASSERT(sys_madvise(a, 8 * PG, MADV_DOFORK) == 0);
	CU_ASSERT(sys_mlock(a, PG) == 0);
	CU_ASSERT(sys_madvise(a, PG, MADV_DONTNEED) == -EINVAL);
	CU_ASSERT(sys_madvise(a, PG, 24) == 0);
	CU_ASSERT(sys_msync(a, PG, MS_INVALIDATE) == -EBUSY);
	CU_ASSERT(sys_munlock(a, PG) == 0);
	CU_ASSERT(sys_msync(a, PG, MS_SYNC) == 0);
	CU_ASSERT(sys_msync(a, PG, MS_SYNC | MS_ASYNC) == -EINVAL);
	CU_ASSERT(sys_msync(a + 1, PG, MS_SYNC) == -EINVAL);
	CU_ASSERT(sys_msync(a, PG, 8) == -EINVAL);
	CU_ASSERT(sys_msync(0x1000, PG, MS_SYNC) == -ENOMEM);
	finish();
}

static void test_huge(void)
{
	uintptr_t a, base;
	unsigned before;
	bool huge;
	uint64_t v;

	begin();
	a = (uintptr_t)sys_mmap(0x40000000, 16UL << 20, RW, AP | MAP_FIXED, -1, 0);
	before = cpu_faults;
	for (uintptr_t va = a; va < a + (16UL << 20); va += PG)
		CU_ASSERT(cpu_write(va, va) == 0);
	/* 32 chunks for the first 2 MiB, then one fault each, and the TLB model's own. */
	CU_ASSERT(cpu_faults - before < 32 + 7 + 10);
	CU_ASSERT(mm->rss_anon == 4096);
	base = a + (4UL << 20);
	CU_ASSERT(pt_leaf(mm, base, &huge) != NULL && huge);
	CU_ASSERT(sys_munmap(base + 3 * PG, PG) == 0);
	CU_ASSERT(pt_leaf(mm, base, &huge) != NULL && !huge);
	CU_ASSERT(cpu_read(base + 2 * PG, &v) == 0 && v == base + 2 * PG);
	CU_ASSERT(cpu_read(base + 3 * PG, &v) == KSIGSEGV);
	CU_ASSERT(cpu_read(base + 4 * PG, &v) == 0 && v == base + 4 * PG);
	/* Whole regions move as they are. */
	CU_ASSERT(sys_mremap(a + (8UL << 20), 4UL << 20, 4UL << 20,
			     MREMAP_MAYMOVE | MREMAP_FIXED, 0x60000000) == 0x60000000);
	CU_ASSERT(pt_leaf(mm, 0x60000000, &huge) != NULL && huge);
	CU_ASSERT(cpu_read(0x60000000, &v) == 0 && v == a + (8UL << 20));
	a = (uintptr_t)sys_mmap(0x80000000, 4UL << 20, RW, AP | MAP_FIXED, -1, 0);
	CU_ASSERT(sys_madvise(a, 4UL << 20, MADV_HUGEPAGE) == 0);
	cpu_write(a, 1);
	CU_ASSERT(mm->rss_anon >= 512);
	CU_ASSERT(pt_leaf(mm, a, &huge) != NULL && huge);
	finish();
}

static void test_fork_faults(void)
{
	struct mm *child;
	uintptr_t a;
	unsigned before;

	begin();
	a = (uintptr_t)sys_mmap(0, 8 * PG, RW, AP, -1, 0);
	cpu_write(a, 1);
	child = mm_fork(mm);
	before = cpu_faults;
	cpu_write(a, 2);
	CU_ASSERT(cpu_faults == before + 1);
	mm_put(child);
	/* The page is hot now: the next fork copies it and nobody faults. */
	cpu_write(a + PG, 3);
	child = mm_fork(mm);
	before = cpu_faults;
	cpu_write(a, 4);
	CU_ASSERT(cpu_faults == before);
	support_set_mm(child);
	before = cpu_faults;
	cpu_write(a, 5);
	CU_ASSERT(cpu_faults == before);
	support_set_mm(mm);
	mm_put(child);
	finish();
}

static void test_locks(void)
{
	uintptr_t a;
	uint8_t vec[4];

	begin();
	a = (uintptr_t)sys_mmap(0x20000000, 40 * PG, RW, AP | MAP_FIXED, -1, 0);
	sys_mmap(0x70000000, PG, RW, AP | MAP_FIXED, -1, 0);
	CU_ASSERT(sys_mlock(a + 100, PG) == 0);		/* two pages */
	CU_ASSERT(mm->locked_pages == 2);
	CU_ASSERT(copy_to_user((void *)0x70000000, "x", 1) == 0);
	CU_ASSERT(sys_mincore(a, 2 * PG, (uint8_t *)0x70000000) == 0);
	CU_ASSERT(copy_from_user(vec, (void *)0x70000000, 2) == 0 && vec[0] && vec[1]);
	CU_ASSERT(sys_mincore(a, PG, (uint8_t *)0x10) == -EFAULT);
	CU_ASSERT(sys_mincore(a + 1, PG, (uint8_t *)0x70000000) == -EINVAL);
	CU_ASSERT(sys_mincore(a + 40 * PG, PG, (uint8_t *)0x70000000) == -ENOMEM);
	CU_ASSERT(sys_mlock(a + 39 * PG, 2 * PG) == -ENOMEM);
	CU_ASSERT(sys_munlock(a, 40 * PG) == 0);
	CU_ASSERT(mm->locked_pages == 0 && count_vmas() == 2);
	CU_ASSERT(sys_mlock2(a, PG, 2) == -EINVAL);
	CU_ASSERT(sys_mlockall(0) == -EINVAL);
	CU_ASSERT(sys_mlockall(4) == -EINVAL);
	CU_ASSERT(sys_mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
	CU_ASSERT(mm->rss_anon == 41);
	CU_ASSERT(sys_mmap(0x78000000, 4 * PG, RW, AP | MAP_FIXED, -1, 0) > 0);
	CU_ASSERT(mm->rss_anon == 45 && mm->locked_pages == 45);
	test_capable = false;
	test_process.rlim[KRLIMIT_MEMLOCK].cur = 45 * PG;
	CU_ASSERT(sys_mmap(0x7a000000, 4 * PG, RW, AP | MAP_FIXED, -1, 0) == -EAGAIN);
	CU_ASSERT(sys_munlockall() == 0);
	CU_ASSERT(mm->locked_pages == 0);
	CU_ASSERT(sys_mlock(a, 40 * PG) == 0);
	CU_ASSERT(sys_mlock(0x78000000, 6 * PG) == -ENOMEM);
	test_process.rlim[KRLIMIT_MEMLOCK].cur = 0;
	CU_ASSERT(sys_mlock(a, PG) == -EPERM);
	finish();
}

static void test_mprotect(void)
{
	uintptr_t a;
	uint64_t v;

	begin();
	a = (uintptr_t)sys_mmap(0x20000000, 4 * PG, RW, AP | MAP_FIXED, -1, 0);
	CU_ASSERT(sys_mprotect(a + 1, PG, PROT_READ) == -EINVAL);
	CU_ASSERT(sys_mprotect(a, PG, 0x100) == -EINVAL);
	CU_ASSERT(sys_mprotect(a, 0, 0) == 0);
	CU_ASSERT(sys_mprotect(a, ~0UL - PG, PROT_READ) == -ENOMEM);
	CU_ASSERT(sys_mprotect(a, 5 * PG, PROT_READ) == -ENOMEM);	/* the first four did */
	CU_ASSERT(cpu_write(a, 1) == KSIGSEGV);
	CU_ASSERT(sys_mprotect(a, PG, PROT_READ | PROT_GROWSDOWN) == -EINVAL);
	CU_ASSERT(sys_mprotect(a, 4 * PG, RW) == 0);
	CU_ASSERT(cpu_write(a, 1) == 0);
	CU_ASSERT(sys_mprotect(a + PG, PG, PROT_NONE) == 0);
	CU_ASSERT(count_vmas() == 3);
	CU_ASSERT(cpu_read(a + PG, &v) == KSIGSEGV);
	CU_ASSERT(sys_mprotect(a + PG, PG, RW) == 0);
	CU_ASSERT(count_vmas() == 1);
	CU_ASSERT(cpu_read(a, &v) == 0 && v == 1);
	CU_ASSERT(sys_munmap(a, 0) == -EINVAL);
	CU_ASSERT(sys_munmap(a + 1, PG) == -EINVAL);
	CU_ASSERT(sys_munmap(CM_USER_TOP, PG) == -EINVAL);
	CU_ASSERT(sys_munmap(0x50000000, PG) == 0);
	finish();
}

static void test_uaccess(void)
{
	uintptr_t a;
	char buf[3 * PAGE_SIZE], *p = buf;
	struct uiovec one, *iov = NULL, vec[3];
	struct uio u;
	uint32_t seen;

	begin();
	a = (uintptr_t)sys_mmap(0x20000000, 2 * PG, RW, AP | MAP_FIXED, -1, 0);
	memset(buf, 'x', sizeof(buf));
	CU_ASSERT(copy_to_user((void *)(a + 100), buf, PG) == 0);
	CU_ASSERT(copy_to_user_partial((void *)(a + PG), buf, 3 * PG) == PG);
	CU_ASSERT(copy_to_user((void *)(a + PG), buf, 2 * PG) == -EFAULT);
	CU_ASSERT(copy_from_user(p, (void *)(CM_USER_TOP - 8), 16) == -EFAULT);
	CU_ASSERT(copy_from_user(p, (void *)CM_PHYSMAP_VA, 1) == -EFAULT);
	CU_ASSERT(copy_from_user(p, (void *)-8L, 16) == -EFAULT);
	CU_ASSERT(copy_from_user(p, NULL, 0) == 0);
	CU_ASSERT(clear_user((void *)(a + 2 * PG - 10), 10) == 0);
	CU_ASSERT(strncpy_from_user(p, (void *)(a + 2 * PG - 12), 100) == 2);
	CU_ASSERT(strncpy_from_user(p, (void *)(a + 100), 5) == -ENAMETOOLONG);
	copy_to_user((void *)(a + 2 * PG - 4), "abcd", 4);
	CU_ASSERT(strncpy_from_user(p, (void *)(a + 2 * PG - 4), 100) == -EFAULT);
	CU_ASSERT(user_cmpxchg32((uint32_t *)a, 0, 5, &seen) == 0 && seen == 0);
	CU_ASSERT(user_cmpxchg32((uint32_t *)a, 0, 6, &seen) == 0 && seen == 5);
	CU_ASSERT(user_cmpxchg32((uint32_t *)0x10, 0, 6, &seen) == -EFAULT);

	uio_init_user(&u, &one, (void *)(a + PG), 2 * PG);
	CU_ASSERT(uio_put(&u, buf, 100) == 100 && u.resid == 2 * PG - 100);
	CU_ASSERT(uio_zero(&u, 2 * PG) == PG - 100 && u.resid == PG);
	uio_init_kernel(&u, &one, buf, 10);
	CU_ASSERT(uio_get(&u, buf + 100, 20) == 10 && u.resid == 0);
	vec[0] = (struct uiovec){ (void *)a, 3 };
	vec[1] = (struct uiovec){ (void *)0x10, 0 };
	vec[2] = (struct uiovec){ (void *)(a + 8), 4 };
	copy_to_user((void *)(a + 512), vec, sizeof(vec));
	CU_ASSERT(uio_import(&u, (void *)(a + 512), 3, &iov) == 0 && u.resid == 7);
	CU_ASSERT(uio_put(&u, "abcdefgh", 8) == 7);
	CU_ASSERT(copy_from_user(p, (void *)a, 12) == 0 && memcmp(p, "abc", 3) == 0 &&
		  memcmp(p + 8, "defg", 4) == 0);
	kfree(iov);
	CU_ASSERT(uio_import(&u, (void *)(a + 512), 1025, &iov) == -EINVAL);
	CU_ASSERT(uio_import(&u, NULL, 1, &iov) == -EFAULT);
	CU_ASSERT(uio_import(&u, NULL, 0, &iov) == 0 && u.resid == 0);
	vec[0].len = ~0UL;
	copy_to_user((void *)(a + 512), vec, sizeof(vec));
	CU_ASSERT(uio_import(&u, (void *)(a + 512), 3, &iov) == -EINVAL);
	vec[0].len = 0x7fffffff;
	copy_to_user((void *)(a + 512), vec, sizeof(vec));
	CU_ASSERT(uio_import(&u, (void *)(a + 512), 3, &iov) == 0 && u.resid == 0x7ffff000);
	kfree(iov);

	vec[0] = (struct uiovec){ (void *)a, 8 };
	vec[1] = (struct uiovec){ (void *)(a + PG), 8 };
	copy_to_user((void *)(a + 512), vec, sizeof(vec));
	CU_ASSERT(sys_process_vm_readv(2, (void *)(a + 512), 1, (void *)(a + 528), 1, 0) == 8);
	CU_ASSERT(sys_process_vm_readv(3, (void *)(a + 512), 1, (void *)(a + 528), 1, 0) ==
		  -ESRCH);
	CU_ASSERT(sys_process_vm_readv(2, (void *)(a + 512), 1, (void *)(a + 528), 1, 1) ==
		  -EINVAL);
	finish();
}

static void test_oom(void)
{
	struct process big = { .pid = 7 }, init = { .pid = 1 };
	uintptr_t a;
	uint64_t n = 0;

	begin();
	init.mm = mm;
	TAILQ_INSERT_TAIL(&all_processes, &init, all_link);
	a = (uintptr_t)sys_mmap(0, RAM_SIZE, RW, AP | MAP_NORESERVE, -1, 0);
	/* We are the only task: killed, and told so by SIGKILL. */
	while (cpu_write(a + n * PG, n) == 0 && n < RAM_SIZE / PG)
		n++;
	CU_ASSERT(last_killed == 2);
	CU_ASSERT(mem_stats.free_pages > 100);		/* the kernel's reserve */
	CU_ASSERT_PTR_NOT_NULL(page_alloc(0, 0));
	/* Another that is larger goes first; populating kills nobody. */
	big.mm = mm_new();
	big.mm->rss_anon = RAM_SIZE;
	test_process.group_exit = false;
	last_killed = 0;
	TAILQ_INSERT_TAIL(&all_processes, &big, all_link);
	CU_ASSERT(sys_mlock(a, RAM_SIZE) == -ENOMEM);
	CU_ASSERT(last_killed == 0);
	CU_ASSERT(oom_kill());
	CU_ASSERT(last_killed == 7);
	last_killed = 0;
	CU_ASSERT(oom_kill());				/* it is on its way */
	CU_ASSERT(last_killed == 0);
	big.mm->rss_anon = 0;
	mm_put(big.mm);
	finish();
}

static void test_texts(void)
{
	struct strbuf sb = {0};
	struct obj *o;
	uintptr_t a;

	begin();
	o = open_result = obj_new(OBJ_CACHE, 2);
	o->inode.ino = 1234;
	a = (uintptr_t)sys_mmap(0x20000000, 4 * PG, RW, AP | MAP_FIXED, -1, 0);
	cpu_write(a, 1);
	sys_mmap(0x555555554000, PG, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, 3, PG);
	mm_maps_show(mm, &sb, false);
	strbuf_write(&sb, "", 1);
	CU_ASSERT_STRING_EQUAL(sb.data,
		"20000000-20004000 rw-p 00000000 00:00 0 \n"
		"555555554000-555555555000 r-xp 00001000 00:01 1234"
		"                       /some/file\n");
	strbuf_done(&sb);
	mm_maps_show(mm, &sb, true);
	strbuf_write(&sb, "", 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(sb.data, "Size:                 16 kB\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(sb.data, "VmFlags: rd wr mr mw me ac \n"));
	strbuf_done(&sb);
	smaps_rollup_show(mm, &sb);
	CU_ASSERT(sb.error == 0 && sb.len > 100);
	strbuf_done(&sb);
	meminfo_show(&sb);
	strbuf_write(&sb, "", 1);
	CU_ASSERT(memcmp(sb.data, "MemTotal:          ", 19) == 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(sb.data, "\nMemAvailable:   "));
	strbuf_done(&sb);
	open_result = NULL;
	obj_put(o);
	finish();
}

int main(void)
{
	CU_pSuite s = cunit_suite("kernel-mm-calls", NULL, NULL);

	CU_add_test(s, "mmap's errors", test_mmap_errors);
	CU_add_test(s, "limits", test_limits);
	CU_add_test(s, "free areas", test_search);
	CU_add_test(s, "stack growth", test_stack);
	CU_add_test(s, "signal codes, truncation", test_codes);
	CU_add_test(s, "brk", test_brk);
	CU_add_test(s, "mprotect, munmap", test_mprotect);
	CU_add_test(s, "mremap", test_mremap);
	CU_add_test(s, "madvise, msync", test_madvise);
	CU_add_test(s, "2 MiB pages", test_huge);
	CU_add_test(s, "fork and hot pages", test_fork_faults);
	CU_add_test(s, "mlock, mincore", test_locks);
	CU_add_test(s, "user access", test_uaccess);
	CU_add_test(s, "out of memory", test_oom);
	CU_add_test(s, "texts", test_texts);
	return cunit_run();
}
