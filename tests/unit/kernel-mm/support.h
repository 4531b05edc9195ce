/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of guest-kernel/mm/ stand on: an arena for RAM and an image beyond it, one
 * task, files made of frames, and a processor with a translation cache that is as stale as the
 * code under test lets it be.
 */
#ifndef KERNEL_MM_SUPPORT_H
#define KERNEL_MM_SUPPORT_H

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm_internal.h"

#define RAM_SIZE	(96UL << 20)
#define IMAGE_PA	(1UL << 30)
#define IMAGE_SIZE	(8UL << 20)

void support_init(void);		/* fresh memory, no process but the test's */
void support_set_mm(struct mm *mm);	/* as the processor's and current's */

/* One access of the program: 0 and *val, or the signal. */
int cpu_read(uintptr_t va, uint64_t *val);
int cpu_write(uintptr_t va, uint64_t val);
extern unsigned cpu_faults, cpu_flushes;

enum obj_kind {
	OBJ_IMAGE,	/* frames outside RAM, in a row */
	OBJ_CACHE,	/* frames of RAM, made at once */
	OBJ_SHMEM,	/* frames of RAM, made when written */
};
#define OBJ_PAGES 1024u
struct obj {
	struct inode inode;
	struct file file;
	struct dentry *dentry;
	enum obj_kind kind;
	unsigned npages;
	paddr_t frames[OBJ_PAGES];
	struct obj *next;
};
struct obj *obj_new(enum obj_kind kind, unsigned npages);
void obj_put(struct obj *o);
struct obj *inode_obj(struct inode *i);
extern unsigned objs_alive;
/* A file whose bytes are given, for elf_load: pages are copies. */
struct obj *obj_from_bytes(const void *data, size_t size);

extern int last_killed;			/* pid given to process_kill, 0 */
extern struct obj *open_result;		/* what file_open finds; NULL: ENOENT */
extern struct process test_process;
extern bool test_capable;

#endif
