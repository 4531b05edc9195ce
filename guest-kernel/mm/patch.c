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

static bool patch_init(void)
{
	struct dentry *d;

	if (table_file != NULL)
		return true;
	for (unsigned i = 0; i < PAGE_BUCKETS; i++)
		TAILQ_INIT(&pages[i]);
	table_file = memfd_kernel("syscalls", PATCH_TABLE_SIZE);
	if (table_file == NULL)
		return false;
	table = table_file->inode;
	(void)d;
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
