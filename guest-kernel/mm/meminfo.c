/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of /proc/meminfo, /proc/PID/maps, smaps and smaps_rollup, in Linux's formats. */
#include <linux/mman.h>

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm_internal.h"

#define KIB(pages)	((uint64_t)(pages) * (PAGE_SIZE / 1024))
#define NAME_COLUMN	73u
#define KMINOR(dev)	((unsigned)((dev) & 0xff))
#define KMAJOR(dev)	((unsigned)((dev) >> 8))

static void meminfo_line(struct strbuf *sb, const char *label, uint64_t kib)
{
	strbuf_printf(sb, "%-16s%8lu kB\n", label, kib);
}

void meminfo_show(struct strbuf *sb)
{
	const struct mem_stats *s = &mem_stats;

	/* The image is not in this memory, so the files that are cached are those of tmpfs; and
	 * nothing would give them back. */
	meminfo_line(sb, "MemTotal:", KIB(s->total_pages));
	meminfo_line(sb, "MemFree:", KIB(mem_available()));
	meminfo_line(sb, "MemAvailable:", KIB(mem_available()));
	meminfo_line(sb, "Buffers:", 0);
	meminfo_line(sb, "Cached:", KIB(s->shmem_pages));
	meminfo_line(sb, "SwapCached:", 0);
	meminfo_line(sb, "Active:", KIB(s->anon_pages + s->shmem_pages));
	meminfo_line(sb, "Inactive:", 0);
	meminfo_line(sb, "Active(anon):", KIB(s->anon_pages + s->shmem_pages));
	meminfo_line(sb, "Inactive(anon):", 0);
	meminfo_line(sb, "Active(file):", 0);
	meminfo_line(sb, "Inactive(file):", 0);
	meminfo_line(sb, "Unevictable:", 0);
	meminfo_line(sb, "Mlocked:", 0);
	meminfo_line(sb, "SwapTotal:", 0);
	meminfo_line(sb, "SwapFree:", 0);
	meminfo_line(sb, "Dirty:", 0);
	meminfo_line(sb, "Writeback:", 0);
	meminfo_line(sb, "AnonPages:", KIB(s->anon_pages));
	meminfo_line(sb, "Mapped:", 0);
	meminfo_line(sb, "Shmem:", KIB(s->shmem_pages));
	meminfo_line(sb, "KReclaimable:", 0);
	meminfo_line(sb, "Slab:", KIB(s->slab_pages));
	meminfo_line(sb, "SReclaimable:", 0);
	meminfo_line(sb, "SUnreclaim:", KIB(s->slab_pages));
	meminfo_line(sb, "KernelStack:", 0);
	meminfo_line(sb, "PageTables:", KIB(s->table_pages));
	meminfo_line(sb, "NFS_Unstable:", 0);
	meminfo_line(sb, "Bounce:", 0);
	meminfo_line(sb, "WritebackTmp:", 0);
	meminfo_line(sb, "CommitLimit:", KIB(s->total_pages / 2));
	meminfo_line(sb, "Committed_AS:", KIB(s->anon_pages + s->shmem_pages));
	strbuf_printf(sb, "VmallocTotal:   34359738367 kB\n");
	meminfo_line(sb, "VmallocUsed:", 0);
	meminfo_line(sb, "VmallocChunk:", 0);
	meminfo_line(sb, "Percpu:", 0);
	strbuf_printf(sb, "HugePages_Total:       0\nHugePages_Free:        0\n"
		      "HugePages_Rsvd:        0\nHugePages_Surp:        0\n");
	meminfo_line(sb, "Hugepagesize:", HUGE_SIZE / 1024);
	meminfo_line(sb, "Hugetlb:", 0);
}

/* ---- maps ---- */

static void show_path(const struct vma *v, struct strbuf *sb)
{
	char *buf = kmalloc(PATH_MAX_LEN + 16), *path;

	if (buf == NULL) {
		sb->error = -ENOMEM;
		return;
	}
	path = dentry_path(v->file->dentry, NULL, buf, PATH_MAX_LEN + 16);
	if (!IS_ERR(path)) {
		/* A newline in a name would look like another mapping. */
		for (const char *p = path; *p != '\0'; p++) {
			if (*p == '\n')
				strbuf_printf(sb, "\\012");
			else
				strbuf_write(sb, p, 1);
		}
	}
	kfree(buf);
}

static const char *vma_name(const struct vma *v)
{
	const struct mm *mm = v->mm;

	if (v->name != NULL)
		return v->name;
	if (v->inode != NULL)
		return "/dev/zero (deleted)";
	if (v->start < mm->brk && v->end > mm->brk_start)
		return "[heap]";
	if (v->start <= mm->stack_top && v->end >= mm->stack_top)
		return "[stack]";
	return NULL;
}

static void show_line(const struct vma *v, struct strbuf *sb)
{
	const struct inode *i = v->inode;
	uint32_t dev = i != NULL && i->sb != NULL ? i->sb->dev : i != NULL ? 1 : 0;
	uint64_t off = i != NULL ? v->pgoff << PAGE_SHIFT : 0;
	size_t start = sb->len;
	const char *name = v->file == NULL ? vma_name(v) : NULL;

	strbuf_printf(sb, "%08lx-%08lx %c%c%c%c %08lx %02x:%02x %lu ", v->start, v->end,
		      v->prot & PROT_READ ? 'r' : '-', v->prot & PROT_WRITE ? 'w' : '-',
		      v->prot & PROT_EXEC ? 'x' : '-', v->flags & MAP_SHARED ? 's' : 'p', off,
		      KMAJOR(dev), KMINOR(dev), i != NULL ? i->ino : 0);
	if (v->file != NULL || name != NULL) {
		while (sb->error == 0 && sb->len - start < NAME_COLUMN)
			strbuf_write(sb, " ", 1);
		if (v->file != NULL)
			show_path(v, sb);
		else
			strbuf_printf(sb, "%s", name);
	}
	strbuf_write(sb, "\n", 1);
}

struct usage {
	uint64_t size, rss, shared_clean, shared_dirty, private_clean, private_dirty;
	uint64_t anon, huge, pss, pss_dirty, locked;	/* pages; pss in 1/4096 of them */
};

static void usage_add(struct vma *v, struct usage *u)
{
	uint64_t locked_pss = 0;
	struct pt_iter it;

	u->size += (v->end - v->start) >> PAGE_SHIFT;
	pt_iter_init(&it, v->mm, v->start, v->end);
	while (pt_iter_next(&it)) {
		pte_t e = *it.entry;
		struct page *p = phys_to_page(e & PTE_ADDR);
		uint64_t n = it.huge ? PT_ENTRIES : 1;
		/* A file's frame has a reference of its own beside each mapping's. */
		uint32_t users = p == NULL ? 2 : p->refs - (e & PTE_ANON ? 0 : p->refs > 1);
		bool dirty = (e & PTE_ANON) || ((e & PTE_W) && (v->flags & MAP_SHARED));

		if ((e & PTE_ADDR) == zero_page_pa())
			continue;
		users = MAX(users, 1u);
		u->rss += n;
		u->pss += n * PAGE_SIZE / users;
		if (dirty)
			u->pss_dirty += n * PAGE_SIZE / users;
		locked_pss += n * PAGE_SIZE / users;
		if (users > 1 && dirty)
			u->shared_dirty += n;
		else if (users > 1)
			u->shared_clean += n;
		else if (dirty)
			u->private_dirty += n;
		else
			u->private_clean += n;
		if (e & PTE_ANON)
			u->anon += n;
		if (it.huge)
			u->huge += n;
	}
	if (v->advice & VMA_LOCKED)
		u->locked += locked_pss;
}

static void show_usage(const struct usage *u, bool rollup, struct strbuf *sb)
{
	meminfo_line(sb, "Rss:", KIB(u->rss));
	meminfo_line(sb, "Pss:", u->pss / 1024);
	meminfo_line(sb, "Pss_Dirty:", u->pss_dirty / 1024);
	if (rollup) {
		meminfo_line(sb, "Pss_Anon:", KIB(u->anon));
		meminfo_line(sb, "Pss_File:", u->pss / 1024 - MIN(u->pss / 1024, KIB(u->anon)));
		meminfo_line(sb, "Pss_Shmem:", 0);
	}
	meminfo_line(sb, "Shared_Clean:", KIB(u->shared_clean));
	meminfo_line(sb, "Shared_Dirty:", KIB(u->shared_dirty));
	meminfo_line(sb, "Private_Clean:", KIB(u->private_clean));
	meminfo_line(sb, "Private_Dirty:", KIB(u->private_dirty));
	meminfo_line(sb, "Referenced:", KIB(u->rss));
	meminfo_line(sb, "Anonymous:", KIB(u->anon));
	meminfo_line(sb, "LazyFree:", 0);
	meminfo_line(sb, "AnonHugePages:", KIB(u->huge));
	meminfo_line(sb, "ShmemPmdMapped:", 0);
	meminfo_line(sb, "FilePmdMapped:", 0);
	meminfo_line(sb, "Shared_Hugetlb:", 0);
	meminfo_line(sb, "Private_Hugetlb:", 0);
	meminfo_line(sb, "Swap:", 0);
	meminfo_line(sb, "SwapPss:", 0);
	meminfo_line(sb, "Locked:", u->locked / 1024);
}

static void show_flags(const struct vma *v, struct strbuf *sb)
{
	const struct {
		bool on;
		const char *text;
	} flags[] = {
		{(v->prot & PROT_READ) != 0, "rd"}, {(v->prot & PROT_WRITE) != 0, "wr"},
		{(v->prot & PROT_EXEC) != 0, "ex"}, {(v->flags & MAP_SHARED) != 0, "sh"},
		{(v->max_prot & PROT_READ) != 0, "mr"}, {(v->max_prot & PROT_WRITE) != 0, "mw"},
		{(v->max_prot & PROT_EXEC) != 0, "me"},
		{(v->flags & MAP_SHARED) && (v->max_prot & PROT_WRITE), "ms"},
		{(v->flags & MAP_GROWSDOWN) != 0, "gd"}, {(v->advice & VMA_LOCKED) != 0, "lo"},
		{(v->advice & VMA_DONTFORK) != 0, "dc"},
		{(v->advice & VMA_FRAMES) != 0, "de"},
		{(v->flags & MAP_PRIVATE) && (v->prot & PROT_WRITE), "ac"},
		{(v->flags & MAP_NORESERVE) != 0, "nr"}, {(v->advice & VMA_DONTDUMP) != 0, "dd"},
		{(v->advice & VMA_WIPEONFORK) != 0, "wf"}, {(v->advice & VMA_HUGE) != 0, "hg"},
		{(v->advice & VMA_NOHUGE) != 0, "nh"},
	};

	strbuf_printf(sb, "VmFlags: ");
	for (unsigned i = 0; i < ARRAY_SIZE(flags); i++) {
		if (flags[i].on)
			strbuf_printf(sb, "%s ", flags[i].text);
	}
	strbuf_write(sb, "\n", 1);
}

void mm_maps_show(struct mm *mm, struct strbuf *sb, bool smaps)
{
	struct vma *v;

	RB_FOREACH(v, vma_tree, &mm->vmas) {
		struct usage u = {0};

		if (sb->error != 0)
			return;
		show_line(v, sb);
		if (!smaps)
			continue;
		usage_add(v, &u);
		meminfo_line(sb, "Size:", KIB(u.size));
		meminfo_line(sb, "KernelPageSize:", PAGE_SIZE / 1024);
		meminfo_line(sb, "MMUPageSize:", PAGE_SIZE / 1024);
		show_usage(&u, false, sb);
		strbuf_printf(sb, "THPeligible:    %u\n", u.huge != 0);
		show_flags(v, sb);
	}
}

void smaps_rollup_show(struct mm *mm, struct strbuf *sb)
{
	struct vma *v, *last = RB_MAX(vma_tree, &mm->vmas);
	struct usage u = {0};
	size_t start = sb->len;

	if (last == NULL)
		return;
	RB_FOREACH(v, vma_tree, &mm->vmas)
		usage_add(v, &u);
	v = RB_MIN(vma_tree, &mm->vmas);
	strbuf_printf(sb, "%08lx-%08lx ---p 00000000 00:00 0 ", v->start, last->end);
	while (sb->error == 0 && sb->len - start < NAME_COLUMN)
		strbuf_write(sb, " ", 1);
	strbuf_printf(sb, "[rollup]\n");
	show_usage(&u, true, sb);
}
