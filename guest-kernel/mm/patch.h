/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System-call sites turned into jumps. See patch.c.
 *
 * The table of pointers that patched sites jump through lies at PATCH_TABLE_VA in every address
 * space. Its place is chosen for the upper half of the address: the last two bytes of
 * `jmp *PATCH_TABLE_VA + x` are 0f 05, which is SYSCALL. A thread that stood on the old
 * SYSCALL instruction, or that a restarted call moves back to it, finds one there.
 */
#ifndef MM_PATCH_H
#define MM_PATCH_H

#include "guest-kernel/arch/trapframe.h"
#include "guest-kernel/lib/kernel.h"

struct inode;
struct mm;

#define PATCH_TABLE_VA	0x050f0000UL
#define PATCH_SITES	4096u		/* at most, in a VM's life; more stay trapped */
#define PATCH_TABLE_SIZE (PATCH_SITES * 8UL)

struct patch_stats {
	uint64_t sites, pages, refused;
};
extern struct patch_stats patch_stats;

/* Exec: maps the table into the new mm, if its place is free. */
void patch_map_table(struct mm *mm);
/* A system call came through the trap: patch its site if it can be. */
void patch_site(struct trapframe *tf);
/* The frame to map instead of `frame` for a private executable mapping of page index: the
 * patched copy if there is one. No reference is taken. */
paddr_t patch_frame(struct inode *inode, uint64_t index, paddr_t frame);
/* The file's pages changed: forget their patched copies. */
void patch_forget(struct inode *inode, uint64_t first, uint64_t last);
/* Executable mappings of the mm went away or moved: return addresses are looked up anew. */
void patch_invalidate(struct mm *mm);
void patch_release(struct mm *mm);	/* the mm dies */
void patch_activate(struct mm *mm);	/* its return addresses are the ones entry.S uses */

#endif
