/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is a program, and its own interpreter. Whatever it is, it loads or is refused; the
 * address space can then be used, copied and torn down, and no memory is lost.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/kernel-mm/support.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void exercise(struct mm *mm, const struct exec_image *im)
{
	struct vma *v;
	struct mm *child;
	uint64_t word;

	(void)cpu_read(im->sp, &word);
	(void)cpu_read(im->entry & ~7UL, &word);
	RB_FOREACH(v, vma_tree, &mm->vmas) {
		(void)cpu_read(v->start, &word);
		(void)cpu_write(v->end - 8, 1);
	}
	child = mm_fork(mm);
	if (child != NULL)
		mm_put(child);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool ready;
	static char strings[] = "a\0b";
	struct exec_args args = { .argc = 1, .envc = 1, .strings = strings, .bytes = 4,
				  .execfn = "/p" };
	struct exec_image im;
	uint64_t before;
	struct obj *o;
	struct mm *mm;

	if (!ready) {
		support_init();
		ready = true;
		(void)zero_page_pa();
	}
	if (size > OBJ_PAGES * PAGE_SIZE / 2)
		return 0;
	table_pool_shrink();
	before = mem_stats.free_pages;
	o = obj_from_bytes(data, size);
	open_result = o;
	mm = mm_new();
	support_set_mm(mm);
	test_process.group_exit = false;
	if (elf_load(mm, &o->file, &args, &im) == 0)
		exercise(mm, &im);
	support_set_mm(NULL);
	mm_put(mm);
	open_result = NULL;
	obj_put(o);
	table_pool_shrink();
	/* Empty slabs and dead roots stay. */
	if (objs_alive != 0 || mem_stats.anon_pages != 0 ||
	    mem_stats.free_pages + 32 < before) {
		fprintf(stderr, "memory lost\n");
		abort();
	}
	return 0;
}
