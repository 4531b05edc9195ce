/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patched system calls. `mov $nr, %eax; syscall` is seven bytes, and so is `jmp *disp32`
 * through a pointer in low memory. When such a site traps for the first time its page is
 * copied (once for each page of a file, shared by all processes; the page cache keeps the
 * original bytes, so read(2) shows them), the copy is patched and mapped in place of the
 * original wherever the page is mapped privately and executable.
 *
 * Each site has a number. Pointer number n leads to trampoline n, which puts nr into EAX and n
 * into ECX and goes on at entry_patched (arch/entry.S). A jump leaves no return address, and
 * one file may lie at different addresses in different processes: so each mm has a table of
 * return addresses by site number, filled on first use from its VMAs.
 *
 * SYSCALL clobbers RCX and R11 and nothing else; neither does this path. The red zone is safe,
 * since nothing is pushed.
 */
#include "guest-kernel/mm/patch.h"

#include <linux/mman.h>

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define SITE_LEN 7
#define TRAMPOLINE_SIZE 16
#define PAGE_BUCKETS 256

struct patch_page {
	TAILQ_ENTRY(patch_page) link;
	struct inode *inode;		/* reference held */
	uint64_t index;
	paddr_t frame;			/* reference held */
};
static TAILQ_HEAD(patch_list, patch_page) pages[PAGE_BUCKETS];

static struct site {
	struct inode *inode;		/* kept by its patch_page; NULL once forgotten */
	uint64_t offset;		/* in the file, of the first of the seven bytes */
} sites[PATCH_SITES];
static unsigned nsites;
static struct inode *table;		/* shared memory behind PATCH_TABLE_VA */
static struct file *table_file;

/* entry.S: trampolines, and the return addresses of the address space in use. */
extern uint8_t patch_trampolines[PATCH_SITES * TRAMPOLINE_SIZE];
extern uint8_t entry_patched[];
extern uint64_t *patch_returns;
extern uint64_t patch_returns_count;
void patch_resolve(struct trapframe *tf, uint64_t n);

struct patch_stats patch_stats;

static struct patch_list *bucket(const struct inode *inode, uint64_t index)
{
	uint64_t h = ((uintptr_t)inode >> 6) + index * 0x9e3779b97f4a7c15ULL;

	return &pages[(h >> 20) % PAGE_BUCKETS];
}

static struct patch_page *page_find(const struct inode *inode, uint64_t index)
{
	struct patch_page *p;

	if (pages[0].tqh_last == NULL)
		return NULL;
	TAILQ_FOREACH(p, bucket(inode, index), link) {
		if (p->inode == inode && p->index == index)
			return p;
	}
	return NULL;
}

paddr_t patch_frame(struct inode *inode, uint64_t index, paddr_t frame)
{
	const struct patch_page *p = inode->patched ? page_find(inode, index) : NULL;

	return p != NULL ? p->frame : frame;
}

static const struct file_ops table_ops;

/* The kernel's own view of the pointer of site n; NULL when out of memory. */
static uint64_t *table_slot(unsigned n)
{
	paddr_t pa;

	if (table->ops->get_page(table, n * 8UL / PAGE_SIZE, true, &pa) != 0)
		return NULL;
	phys_put(pa);			/* the inode keeps it */
	return (uint64_t *)((uint8_t *)phys_to_virt(pa) + n * 8UL % PAGE_SIZE);
}

static bool patch_init(void)
{
	struct dentry *d;
	struct inode *i;

	if (table_file != NULL)
		return true;
	for (unsigned n = 0; n < PAGE_BUCKETS; n++)
		TAILQ_INIT(&pages[n]);
	i = shmem_inode(PATCH_TABLE_SIZE);
	if (i == NULL)
		return false;
	d = dentry_anon(i, "[syscalls]");
	if (d == NULL)
		return false;
	table_file = file_new(d, &table_ops, KO_RDONLY);
	if (table_file == NULL)
		return false;
	table = i;
	return true;
}

void patch_map_table(struct mm *mm)
{
	if (!patch_init())
		return;
	if (mm_map(mm, PATCH_TABLE_VA, PATCH_TABLE_SIZE, PROT_READ,
		   MAP_SHARED | MAP_FIXED_NOREPLACE, table_file, 0) != (long)PATCH_TABLE_VA)
		return;
	mm->patchable = true;
	mm_prepare(mm, PATCH_TABLE_VA, ALIGN_UP(nsites * 8UL, PAGE_SIZE), false);
}

/* ---- return addresses ---- */

static void returns_publish(struct mm *mm)
{
	patch_returns = mm->patch_returns;
	patch_returns_count = mm->patch_count;
}

void patch_activate(struct mm *mm)
{
	returns_publish(mm);
}

void patch_invalidate(struct mm *mm)
{
	if (mm->patch_count != 0)
		memset(mm->patch_returns, 0, mm->patch_count * 8);
}

void patch_release(struct mm *mm)
{
	if (patch_returns == mm->patch_returns) {
		patch_returns = NULL;
		patch_returns_count = 0;
	}
	kfree(mm->patch_returns);
	mm->patch_returns = NULL;
	mm->patch_count = 0;
}

/* Where site n is mapped executable in mm, as the address behind it; 0 if it is not. */
static uint64_t return_address(struct mm *mm, const struct site *s)
{
	uint64_t index = s->offset >> PAGE_SHIFT;
	struct vma *v;

	if (s->inode == NULL)
		return 0;
	TAILQ_FOREACH(v, &s->inode->mappings, file_link) {
		if (v->mm == mm && (v->prot & PROT_EXEC) && index >= v->pgoff &&
		    index - v->pgoff < (v->end - v->start) >> PAGE_SHIFT)
			return v->start + (s->offset - (v->pgoff << PAGE_SHIFT)) + SITE_LEN;
	}
	return 0;
}

/* A patched site whose return address is not in the table yet. */
void patch_resolve(struct trapframe *tf, uint64_t n)
{
	struct mm *mm = current->mm;
	uint64_t ret = n < nsites ? return_address(mm, &sites[n]) : 0;

	if (ret == 0) {			/* somebody jumped into the trampolines */
		signal_force(KSIGSEGV, KSI_KERNEL, 0, 13);
		return;
	}
	tf->rip = tf->rcx = ret;
	if (n >= mm->patch_count) {
		size_t count = MIN(ALIGN_UP(n + 1, 512), PATCH_SITES);
		uint64_t *grown = krealloc(mm->patch_returns, count * 8);

		if (grown == NULL)
			return;		/* looked up again next time */
		memset(grown + mm->patch_count, 0, (count - mm->patch_count) * 8);
		mm->patch_returns = grown;
		mm->patch_count = count;
		returns_publish(mm);
	}
	mm->patch_returns[n] = ret;
}

/* ---- patching ---- */

void patch_forget(struct inode *inode, uint64_t first, uint64_t last)
{
	if (!inode->patched)
		return;
	for (unsigned b = 0; b < PAGE_BUCKETS; b++) {
		struct patch_page *p, *next;

		for (p = TAILQ_FIRST(&pages[b]); p != NULL; p = next) {
			next = TAILQ_NEXT(p, link);
			if (p->inode != inode || p->index < first || p->index >= last)
				continue;
			/* The sites stay: programs that still map the old frame use them. */
			TAILQ_REMOVE(&pages[b], p, link);
			phys_put(p->frame);
			kfree(p);
		}
	}
}

static struct patch_page *page_make(struct inode *inode, uint64_t index, paddr_t original)
{
	struct patch_page *p = page_find(inode, index);
	struct page *copy;

	if (p != NULL)
		return p;
	p = kzalloc(sizeof(*p));
	copy = page_alloc(0, PA_NOWAIT);
	if (p == NULL || copy == NULL) {
		kfree(p);
		if (copy != NULL)
			page_put(copy);
		return NULL;
	}
	memcpy(page_to_virt(copy), phys_to_virt(original), PAGE_SIZE);
	p->inode = inode;
	p->index = index;
	p->frame = page_to_phys(copy);
	if (!inode->patched) {
		inode->patched = true;
		inode_get(inode);	/* for good: sites name it */
	}
	TAILQ_INSERT_HEAD(bucket(inode, index), p, link);
	patch_stats.pages++;
	return p;
}

static void write_trampoline(unsigned n, uint32_t nr)
{
	uint8_t *t = patch_trampolines + n * TRAMPOLINE_SIZE;
	int32_t rel = (int32_t)(entry_patched - (t + 15));

	t[0] = 0xb8;			/* mov $nr, %eax */
	memcpy(t + 1, &nr, 4);
	t[5] = 0xb9;			/* mov $n, %ecx */
	memcpy(t + 6, &n, 4);
	t[10] = 0xe9;			/* jmp entry_patched */
	memcpy(t + 11, &rel, 4);
}

/* The VMA, if the bytes before rip are a site that may be patched. */
static struct vma *site_vma(struct mm *mm, uint64_t start, uint32_t nr)
{
	struct vma *v = mm_find(mm, start);
	uint8_t code[SITE_LEN + 1];
	uint32_t imm;

	if (v == NULL || v->start >= start || v->inode == NULL || (v->flags & MAP_SHARED) ||
	    (v->prot & (PROT_EXEC | PROT_WRITE)) != PROT_EXEC)
		return NULL;
	/* within one page, with a byte before it to look at */
	if (((start - 1) ^ (start + SITE_LEN - 1)) & PAGE_MASK)
		return NULL;
	if (copy_from_user(code, (const void __user *)(start - 1), sizeof(code)) != 0)
		return NULL;
	memcpy(&imm, code + 2, 4);
	/* 40..4f before it may be a prefix that makes it another register */
	if ((code[0] & 0xf0) == 0x40 || code[1] != 0xb8 || imm != nr || code[6] != 0x0f ||
	    code[7] != 0x05)
		return NULL;
	return v;
}

void patch_site(struct trapframe *tf)
{
	struct mm *mm = current->mm;
	uint64_t start = tf->rip - SITE_LEN, off;
	uint32_t nr = (uint32_t)tf->orig_rax, disp;
	struct patch_page *p;
	paddr_t original;
	uint64_t *slot;
	struct vma *v;
	uint8_t *code;

	if (!mm->patchable || nsites == PATCH_SITES || nr != tf->orig_rax ||
	    tf->rip < PAGE_SIZE)
		return;
	v = site_vma(mm, start, nr);
	if (v == NULL) {
		patch_stats.refused++;
		return;
	}
	off = (v->pgoff << PAGE_SHIFT) + (start - v->start);
	if (v->inode->ops->get_page(v->inode, off >> PAGE_SHIFT, false, &original) != 0)
		return;
	p = page_make(v->inode, off >> PAGE_SHIFT, original);
	phys_put(original);
	slot = p != NULL ? table_slot(nsites) : NULL;
	if (slot == NULL)
		return;
	code = (uint8_t *)phys_to_virt(p->frame) + off % PAGE_SIZE;
	if (code[0] == 0xb8) {		/* else patched already; this mm maps the original */
		write_trampoline(nsites, nr);
		*slot = (uint64_t)(patch_trampolines + nsites * TRAMPOLINE_SIZE);
		sites[nsites].inode = v->inode;
		sites[nsites].offset = off;
		disp = (uint32_t)(PATCH_TABLE_VA + nsites * 8);
		nsites++;
		patch_stats.sites++;
		code[0] = 0xff;		/* jmp *disp */
		code[1] = 0x24;
		code[2] = 0x25;
		memcpy(code + 3, &disp, 4);
	}
	mm_remap_frame(mm, start & PAGE_MASK, original, p->frame);
}
