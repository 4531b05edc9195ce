/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations on address spaces against a model that keeps, for each page of a window,
 * what it should allow and show. The processor of support.c caches translations, so a missing
 * flush shows as a wrong value or a missing fault.
 */
#include <linux/mman.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-kernel/mm/uaccess.h"
#include "support.h"
#include "tests/unit/cunit_run.h"

#define BASE	0x10000000UL
#define WIN	1536u
#define OFF	16u		/* of the tag in each page */
#define PROCS	3u

long sys_mremap(uintptr_t addr, size_t old_len, size_t new_len, unsigned long flags,
		uintptr_t new);
long sys_madvise(uintptr_t start, size_t len, int advice);

enum kind {
	NONE, ANON, FILE_PRIVATE, FILE_SHARED,
};
/* Contents of a shared object, by page. */
struct contents {
	unsigned refs;
	uint64_t val[OBJ_PAGES];
};
struct mpage {
	enum kind kind;
	uint8_t prot;
	bool dontfork, wipe;
	struct contents *c;
	unsigned index;
	bool own;		/* private copy made */
	uint64_t val;		/* of anonymous memory or a private copy */
};
struct proc {
	struct mm *mm;
	struct mpage p[WIN];
};
static struct proc *procs[PROCS];
static struct proc *now;
static struct obj *image, *cache;
static struct contents *image_c, *cache_c;
static uint64_t next_val = 1000;

static uint64_t rng_state;

static unsigned rnd(unsigned n)
{
	rng_state = rng_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(rng_state >> 33) % n;
}

static uintptr_t va_of(unsigned i)
{
	return BASE + i * PAGE_SIZE;
}

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			abort(); \
		} \
	} while (0)

/* ---- model ---- */

static void page_clear(struct mpage *m)
{
	if (m->c != NULL && --m->c->refs == 0)
		free(m->c);
	memset(m, 0, sizeof(*m));
}

static void page_copy(struct mpage *dst, const struct mpage *src)
{
	if (src->c != NULL)
		src->c->refs++;
	page_clear(dst);
	*dst = *src;
}

static uint64_t page_value(const struct mpage *m)
{
	return m->own || m->c == NULL ? m->val : m->c->val[m->index];
}

static bool page_reads(const struct mpage *m)
{
	return m->kind != NONE && m->prot != 0;
}

static void page_write(struct mpage *m, uint64_t v)
{
	if (m->kind == FILE_SHARED) {
		m->c->val[m->index] = v;
		return;
	}
	m->own = true;
	m->val = v;
}

/* ---- operations ---- */

static void random_range(unsigned *start, unsigned *n)
{
	static const unsigned sizes[] = { 1, 2, 5, 16, 17, 64, 200, 512, 600, 1024 };

	*start = rnd(3) == 0 ? rnd(WIN / 512) * 512 : rnd(WIN);
	*n = MIN(sizes[rnd(ARRAY_SIZE(sizes))], WIN - *start);
}

static void op_map(void)
{
	static const uint8_t prots[] = { 0, 1, 3, 3, 3, 3, 5, 7, 2 };
	unsigned start, n, pg = 0;
	enum kind kind = ANON + rnd(3);
	uint8_t prot = prots[rnd(ARRAY_SIZE(prots))];
	uint32_t flags = MAP_FIXED;
	struct obj *o = NULL;
	struct contents *c = NULL;
	long r;

	random_range(&start, &n);
	if (kind == FILE_PRIVATE) {
		o = rnd(2) ? image : cache;
		c = o == image ? image_c : cache_c;
		n = MIN(n, o->npages);
		pg = rnd(o->npages - n + 1);
		flags |= MAP_PRIVATE;
	} else if (kind == FILE_SHARED) {
		c = calloc(1, sizeof(*c));
		flags |= MAP_SHARED | MAP_ANONYMOUS;
	} else {
		flags |= MAP_PRIVATE | MAP_ANONYMOUS;
	}
	r = mm_map(now->mm, va_of(start), n * PAGE_SIZE, prot, flags,
		   o != NULL ? &o->file : NULL, pg);
	CHECK(r == (long)va_of(start));
	for (unsigned i = start; i < start + n; i++) {
		page_clear(&now->p[i]);
		now->p[i].kind = kind;
		now->p[i].prot = prot;
		now->p[i].c = c;
		now->p[i].index = pg + i - start;
		if (c != NULL)
			c->refs++;
	}
}

static void op_unmap(void)
{
	unsigned start, n;

	random_range(&start, &n);
	CHECK(mm_unmap(now->mm, va_of(start), n * PAGE_SIZE) == 0);
	for (unsigned i = start; i < start + n; i++)
		page_clear(&now->p[i]);
}

static void op_protect(void)
{
	static const uint8_t prots[] = { 0, 1, 3, 3, 5, 7 };
	uint8_t prot = prots[rnd(ARRAY_SIZE(prots))];
	unsigned start, n, i;
	int r;

	random_range(&start, &n);
	r = mm_protect(now->mm, va_of(start), n * PAGE_SIZE, prot);
	for (i = start; i < start + n && now->p[i].kind != NONE; i++)
		now->p[i].prot = prot;
	CHECK(r == (i < start + n ? -ENOMEM : 0));
}

static void op_access(bool write, bool kernel, unsigned i)
{
	struct mpage *m = &now->p[i];
	bool ok = write ? m->kind != NONE && (m->prot & PROT_WRITE) : page_reads(m);
	uintptr_t va = va_of(i) + OFF;
	uint64_t v = next_val++, got = 0;
	int r;

	if (kernel && write)
		r = copy_to_user((void *)va, &v, sizeof(v));
	else if (kernel)
		r = copy_from_user(&got, (void *)va, sizeof(got));
	else if (write)
		r = cpu_write(va, v);
	else
		r = cpu_read(va, &got);
	CHECK((r == 0) == ok);
	if (!ok)
		return;
	if (write)
		page_write(m, v);
	else
		CHECK(got == page_value(m));
}

static void op_accesses(void)
{
	unsigned start, n, step = 1 + rnd(4);
	bool write = rnd(2), kernel = rnd(3) == 0;

	random_range(&start, &n);
	for (unsigned i = start; i < start + n; i += step)
		op_access(write, kernel, i);
}

static void op_dontneed(void)
{
	unsigned start, n;

	random_range(&start, &n);
	sys_madvise(va_of(start), n * PAGE_SIZE, MADV_DONTNEED);
	for (unsigned i = start; i < start + n; i++) {
		now->p[i].own = false;
		now->p[i].val = 0;
	}
}

static void op_advise(void)
{
	static const int advices[] = { MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_WIPEONFORK,
				       MADV_KEEPONFORK, MADV_DONTFORK, MADV_DOFORK };
	int advice = advices[rnd(ARRAY_SIZE(advices))];
	unsigned start, n;

	random_range(&start, &n);
	sys_madvise(va_of(start), n * PAGE_SIZE, advice);
	for (unsigned i = start; i < start + n; i++) {
		struct mpage *m = &now->p[i];

		if (m->kind == NONE)
			continue;
		if (advice == MADV_WIPEONFORK && m->kind != ANON)
			break;		/* fails there, what came before is done */
		if (advice == MADV_WIPEONFORK || advice == MADV_KEEPONFORK)
			m->wipe = advice == MADV_WIPEONFORK;
		if (advice == MADV_DONTFORK || advice == MADV_DOFORK)
			m->dontfork = advice == MADV_DONTFORK;
	}
}

/* Do the pages belong to one VMA, so that mremap takes them together? */
static bool one_vma(unsigned start, unsigned n)
{
	struct vma *v = mm_find(now->mm, va_of(start));

	return v != NULL && v->start <= va_of(start) && v->end >= va_of(start) + n * PAGE_SIZE;
}

static void op_mremap(void)
{
	struct mpage *save;
	unsigned start, n, to, grown;
	long r;

	random_range(&start, &n);
	to = rnd(WIN);
	grown = MIN(WIN - to, rnd(2) ? n : 1 + rnd(n + 100));
	if (start + n > to && to + grown > start)
		return;
	r = sys_mremap(va_of(start), n * PAGE_SIZE, grown * PAGE_SIZE,
		       MREMAP_MAYMOVE | MREMAP_FIXED, va_of(to));
	/* Linux unmaps the target, then a tail of the source, before it looks at the rest. */
	if (now->p[start].kind == NONE) {
		CHECK(r == -EFAULT);
		return;
	}
	for (unsigned i = to; i < to + grown; i++)
		page_clear(&now->p[i]);
	for (unsigned i = grown; i < n; i++)
		page_clear(&now->p[start + i]);
	n = MIN(n, grown);
	if (r < 0) {
		CHECK(r == -EFAULT && !one_vma(start, n));
		return;
	}
	CHECK(r == (long)va_of(to));
	save = calloc(n, sizeof(*save));
	for (unsigned i = 0; i < n; i++) {
		page_copy(&save[i], &now->p[start + i]);
		page_clear(&now->p[start + i]);
	}
	for (unsigned i = 0; i < grown; i++) {
		struct mpage *m = &now->p[to + i];

		page_copy(m, &save[MIN(i, n - 1)]);
		if (i < n)
			continue;
		m->own = false;
		m->val = 0;
		m->index += i - (n - 1);
	}
	/* Beyond the object's end is SIGBUS: keep that out of the window. */
	for (unsigned i = n; i < grown; i++) {
		if (save[0].kind == ANON)
			break;
		CHECK(mm_unmap(now->mm, va_of(to + n), (grown - n) * PAGE_SIZE) == 0);
		for (; i < grown; i++)
			page_clear(&now->p[to + i]);
	}
	for (unsigned i = 0; i < n; i++)
		page_clear(&save[i]);
	free(save);
}

static void proc_free(struct proc *p)
{
	for (unsigned i = 0; i < WIN; i++)
		page_clear(&p->p[i]);
	mm_put(p->mm);
	free(p);
}

static void op_fork(void)
{
	unsigned slot = rnd(PROCS);
	struct proc *child;

	if (procs[slot] == now)
		return;
	if (procs[slot] != NULL)
		proc_free(procs[slot]);
	child = calloc(1, sizeof(*child));
	child->mm = mm_fork(now->mm);
	CHECK(child->mm != NULL);
	for (unsigned i = 0; i < WIN; i++) {
		if (now->p[i].dontfork)
			continue;
		page_copy(&child->p[i], &now->p[i]);
		if (child->p[i].wipe && child->p[i].kind == ANON) {
			child->p[i].own = false;
			child->p[i].val = 0;
		}
	}
	procs[slot] = child;
}

static void op_switch(void)
{
	unsigned slot = rnd(PROCS);

	if (procs[slot] == NULL)
		return;
	now = procs[slot];
	support_set_mm(now->mm);
}

/* ---- invariants ---- */

static void check_vmas(struct mm *mm)
{
	uint64_t total = 0, locked = 0;
	uintptr_t last = 0;
	unsigned n = 0;
	struct vma *v;

	RB_FOREACH(v, vma_tree, &mm->vmas) {
		CHECK(v->mm == mm && v->start >= last && v->start < v->end);
		last = v->end;
		total += (v->end - v->start) / PAGE_SIZE;
		n++;
		locked += v->advice & VMA_LOCKED ? 1 : 0;
	}
	CHECK(n == mm->nvmas && total == mm->total_pages && locked == 0);
}

static void check_proc(struct proc *p)
{
	uint64_t anon = 0, file = 0;
	struct pt_iter it;

	check_vmas(p->mm);
	for (unsigned i = 0; i < WIN; i++) {
		struct vma *v = mm_find(p->mm, va_of(i));
		bool mapped = v != NULL && v->start <= va_of(i);

		CHECK(mapped == (p->p[i].kind != NONE));
		CHECK(!mapped || v->prot == p->p[i].prot);
	}
	pt_iter_init(&it, p->mm, 0, 0x00007f8000000000UL);
	while (pt_iter_next(&it)) {
		unsigned pages = it.huge ? PT_ENTRIES : 1;
		unsigned i = (unsigned)((it.va - BASE) / PAGE_SIZE);
		pte_t e = *it.entry;

		CHECK(it.va >= BASE && i + pages <= WIN);
		for (unsigned k = i; k < i + pages; k++) {
			struct mpage *m = &p->p[k];

			CHECK(m->kind != NONE);
			CHECK(((e & PTE_P) != 0) == (m->prot != 0));
			CHECK(!(e & PTE_W) || (m->prot & PROT_WRITE));
			CHECK(((e & PTE_NX) != 0) == !(m->prot & PROT_EXEC));
		}
		if (e & PTE_ANON)
			anon += pages;
		else if ((e & PTE_ADDR) != zero_page_pa())
			file += pages;
		if ((e & PTE_ANON) && (e & PTE_W))
			CHECK(phys_to_page(e & PTE_ADDR)->refs == 1);
	}
	CHECK(anon == p->mm->rss_anon && file == p->mm->rss_file);
}

static void check_contents(struct proc *p)
{
	now = p;
	support_set_mm(p->mm);
	for (unsigned i = 0; i < WIN; i++)
		op_access(false, rnd(2), i);
}

static void op_pressure(void)
{
	/* Table pages become data and come back. */
	table_pool_shrink();
}

static void run(uint64_t seed, unsigned steps)
{
	static void (*const ops[])(void) = {
		op_map, op_map, op_unmap, op_protect, op_protect, op_accesses, op_accesses,
		op_accesses, op_accesses, op_accesses, op_accesses, op_dontneed, op_advise,
		op_mremap, op_mremap, op_fork, op_switch, op_pressure,
	};

	rng_state = seed;
	now = calloc(1, sizeof(*now));
	procs[0] = now;
	now->mm = mm_new();
	support_set_mm(now->mm);
	for (unsigned i = 0; i < steps; i++) {
		ops[rnd(ARRAY_SIZE(ops))]();
		if (i % 16 == 0)
			check_proc(now);
	}
	for (unsigned i = 0; i < PROCS; i++) {
		if (procs[i] != NULL) {
			check_contents(procs[i]);
			check_proc(procs[i]);
		}
	}
	for (unsigned i = 0; i < PROCS; i++) {
		if (procs[i] != NULL)
			proc_free(procs[i]);
		procs[i] = NULL;
	}
	support_set_mm(NULL);
	CHECK(mem_stats.anon_pages == 0);
	CHECK(objs_alive == 2);
}

static void test_model(void)
{
	uint64_t free_before = 0;
	unsigned rounds = getenv("ROUNDS") != NULL ? (unsigned)atoi(getenv("ROUNDS")) : 12;

	support_init();
	image = obj_new(OBJ_IMAGE, 700);
	cache = obj_new(OBJ_CACHE, 100);
	image_c = calloc(1, sizeof(*image_c));
	cache_c = calloc(1, sizeof(*cache_c));
	image_c->refs = cache_c->refs = 1;
	for (unsigned i = 0; i < 700; i++) {
		image_c->val[i] = 0x100000 + i;
		memcpy((char *)phys_to_virt(image->frames[i]) + OFF, &image_c->val[i], 8);
	}
	for (unsigned i = 0; i < 100; i++) {
		cache_c->val[i] = 0x200000 + i;
		memcpy((char *)phys_to_virt(cache->frames[i]) + OFF, &cache_c->val[i], 8);
	}
	for (unsigned i = 0; i < rounds; i++) {
		run(i + 1, 600);
		table_pool_shrink();
		CHECK(page_check() == mem_stats.free_pages);
		/* A few slabs and the dead roots stay. */
		if (i == 0)
			free_before = mem_stats.free_pages;
		CHECK(mem_stats.free_pages + 24 >= free_before);
	}
	obj_put(image);
	obj_put(cache);
	free(image_c);
	free(cache_c);
	CU_PASS("model");
}

int main(void)
{
	CU_pSuite s = cunit_suite("kernel-mm-model", NULL, NULL);

	CU_add_test(s, "random operations agree with the model", test_model);
	return cunit_run();
}
