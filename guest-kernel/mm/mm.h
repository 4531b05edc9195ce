/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address spaces. struct mm is shared by the threads of a process and by CLONE_VM children;
 * one sleeping lock (mm->lock) covers its tree of VMAs across sleeps (file faults do not
 * sleep today: image and tmpfs are always resident, so most of mm/ runs to completion).
 *
 * Page tables are written through the physmap. Accessed and Dirty are set when an entry is
 * written (DESIGN: KVM then fetches eight neighbours at a time). not-present -> present needs
 * no flush; every other change of a present entry does (arch_invlpg / arch_flush_tlb), unless
 * it is the one that the hardware fault being handled reported.
 */
#ifndef MM_MM_H
#define MM_MM_H

#include <bsd/sys/tree.h>
#include <sys/queue.h>
#include "guest-kernel/core/wait.h"
#include "guest-kernel/lib/kernel.h"

struct file;
struct inode;
struct uio;

struct vma {
	RB_ENTRY(vma) node;		/* by start */
	TAILQ_ENTRY(vma) file_link;	/* in inode->mappings, when inode is set */
	struct mm *mm;
	uintptr_t start, end;		/* page aligned, end exclusive */
	uint32_t prot;			/* PROT_* */
	uint32_t flags;			/* MAP_SHARED or MAP_PRIVATE, MAP_GROWSDOWN, ... */
	uint32_t advice;		/* VMA_DONTFORK, VMA_WIPEONFORK ... */
	uint32_t max_prot;		/* what mprotect may give: no PROT_WRITE for a shared
					 * mapping of a file opened for reading only */
	struct file *file;		/* reference held; NULL for anonymous */
	struct inode *inode;		/* file's, or of the anonymous shared memory object */
	uint64_t pgoff;			/* page index in the inode of `start` */
	const char *name;		/* "[stack]", "[vdso]" for /proc, or NULL */
};
#define VMA_DONTFORK	0x1u
#define VMA_WIPEONFORK	0x2u
#define VMA_LOCKED	0x4u
#define VMA_HUGE	0x8u		/* MADV_HUGEPAGE */
#define VMA_NOHUGE	0x10u		/* MADV_NOHUGEPAGE */
#define VMA_FRAMES	0x20u		/* pgoff is a frame number: vDSO */
#define VMA_DONTDUMP	0x40u
RB_HEAD(vma_tree, vma);

struct mm {
	uint32_t refs;
	paddr_t pml4;
	struct mutex lock;
	struct vma_tree vmas;
	unsigned nvmas;			/* at most MM_MAX_VMAS */
	uintptr_t mmap_top;		/* top-down search starts here */
	uintptr_t brk_start, brk;
	uintptr_t stack_top;
	uintptr_t code_start, code_end, data_start, data_end;
	uintptr_t arg_start, arg_end, env_start, env_end;
	uintptr_t vdso;			/* base, 0 if none */
	struct file *exe;		/* reference held */
	uint64_t auxv[48];		/* for /proc/PID/auxv */
	uint64_t rss_anon, rss_file, rss_peak, total_pages, locked_pages;
	uint64_t total_peak;		/* VmPeak */
	uint64_t data_pages;		/* private, writable, not stack: RLIMIT_DATA */
	uint64_t stack_pages, exec_pages, table_pages;	/* VmStk, VmExe+VmLib, VmPTE */
	uint32_t lock_future;		/* mlockall(MCL_FUTURE): VMA_LOCKED or 0 */
	uintptr_t search_top;		/* free areas above are at most search_hole bytes */
	size_t search_hole;
	/* patch.c: system-call sites */
	bool patchable;			/* the table of pointers is mapped */
	uint64_t *patch_returns;	/* return address by site number, 0 unknown */
	uint64_t patch_count;
};
#define MM_MAX_VMAS	65530u

struct mm *mm_new(void);		/* empty, kernel slot linked; NULL when out of memory */
void mm_get(struct mm *mm);
void mm_put(struct mm *mm);		/* last one unmaps everything */
struct mm *mm_fork(struct mm *mm);	/* copy on write; NULL when out of memory */
/* Loads the address space into the processor if another one is. arch_switch() and exec use it
 * rather than arch_load_cr3(), so that mm/ knows which root table is in use: the root of a dead
 * mm is not used again while it is loaded. */
void mm_activate(struct mm *mm);

/* The mmap(2) family, on any mm. Return address or negative errno. */
long mm_map(struct mm *mm, uintptr_t addr, size_t len, uint32_t prot, uint32_t flags,
	    struct file *file, uint64_t pgoff);
int mm_unmap(struct mm *mm, uintptr_t addr, size_t len);
int mm_protect(struct mm *mm, uintptr_t addr, size_t len, uint32_t prot);
struct vma *mm_find(struct mm *mm, uintptr_t addr);	/* first vma with end > addr */

/* A fault of the running program (or of uaccess) at addr; error bits as the processor's. */
#define FAULT_PRESENT	0x1u
#define FAULT_WRITE	0x2u
#define FAULT_USER	0x4u
#define FAULT_EXEC	0x10u
#define FAULT_HW	0x1000u		/* really reported by hardware for this address */
struct fault_result {
	int sig;			/* 0: resolved, retry. SIGSEGV, SIGBUS, or SIGKILL (OOM) */
	int code;			/* SEGV_MAPERR, SEGV_ACCERR, BUS_ADRERR */
};
struct fault_result mm_fault(struct mm *mm, uintptr_t addr, unsigned error);

/* Makes [addr, addr+len) present (writable if write) as if the program had touched it.
 * Returns the number of bytes that are, from addr on; 0 for -EFAULT. */
size_t mm_prepare(struct mm *mm, uintptr_t addr, size_t len, bool write);

/* Called by the file layer: pages [first, last) of the inode changed frames or are gone.
 * even_private: private copies go too (truncate), else only entries that show the inode's. */
void mm_zap_inode(struct inode *inode, uint64_t first, uint64_t last, bool even_private);

/* The present entry at va, if it shows frame `from`, shows `to` from now on. */
void mm_remap_frame(struct mm *mm, uintptr_t va, paddr_t from, paddr_t to);

/* Reading another process's memory (/proc/PID/cmdline, environ, process_vm_readv): bytes read. */
size_t mm_peek(struct mm *mm, uintptr_t addr, void *buf, size_t len);
/* The same for writing: only where the program itself could write. */
size_t mm_poke(struct mm *mm, uintptr_t addr, const void *buf, size_t len);

/* ---- exec: mm/elf.c ---- */
struct exec_args {		/* strings copied into the kernel, page-bounded */
	unsigned argc, envc;
	char *strings;		/* argv then envp, each zero-ended */
	size_t bytes;
	const char *execfn;	/* AT_EXECFN */
	uint32_t uid, euid, gid, egid;
	bool secure;
};
struct exec_image {
	uintptr_t entry, sp;	/* of the program or its interpreter */
};
/* Loads the ELF file (and PT_INTERP, opened through the VFS as current) into the empty mm,
 * builds stack, auxv, vDSO. The file's bytes are hostile. */
int elf_load(struct mm *mm, struct file *file, const struct exec_args *args,
	     struct exec_image *ret);

void meminfo_show(struct strbuf *sb);	/* /proc/meminfo */
void smaps_rollup_show(struct mm *mm, struct strbuf *sb);
void mm_maps_show(struct mm *mm, struct strbuf *sb, bool smaps);

/* Kills the largest task process (never PID 1); false if there is none. */
bool oom_kill(void);
/* Memory is short, and this process, not the caller's, is on its way out; else NULL. */
struct process *oom_dying(void);
/* Pages that tmpfs may hold in all: a stated share (half) of memory. */
bool shmem_charge(long pages);	/* false: ENOSPC. Negative releases. */

#endif
