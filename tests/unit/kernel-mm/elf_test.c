/* SPDX-License-Identifier: Apache-2.0 */
/* The ELF loader: programs made here field by field, good ones and broken ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/auxvec.h>
#include <linux/elf.h>
#include <linux/mman.h>

#include "abi/layout.h"
#include "support.h"
#include "tests/unit/cunit_run.h"

#define PG PAGE_SIZE

/* A program of two segments: text at 0, data (with .bss) from the second page of the file. */
struct program {
	Elf64_Ehdr eh;
	Elf64_Phdr ph[4];
	char interp[16];
};
#define FILE_SIZE (2 * PG + 100)
static uint8_t bytes[FILE_SIZE];
static struct program *prog = (struct program *)bytes;
static struct mm *mm;

static const char strings[] = "prog\0-x\0A=1\0B=22";
static struct exec_args args;

static void make(uint16_t type, uint64_t base, bool interp)
{
	memset(bytes, 0, sizeof(bytes));
	memset(bytes + PG, 0xcc, FILE_SIZE - PG);
	memcpy(prog->eh.e_ident, ELFMAG, SELFMAG);
	prog->eh.e_ident[EI_CLASS] = ELFCLASS64;
	prog->eh.e_ident[EI_DATA] = ELFDATA2LSB;
	prog->eh.e_type = type;
	prog->eh.e_machine = EM_X86_64;
	prog->eh.e_entry = base + 0x200;
	prog->eh.e_phoff = sizeof(Elf64_Ehdr);
	prog->eh.e_phentsize = sizeof(Elf64_Phdr);
	prog->eh.e_phnum = interp ? 4 : 3;
	prog->ph[0] = (Elf64_Phdr){ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = base,
				    .p_filesz = PG, .p_memsz = PG, .p_align = PG };
	prog->ph[1] = (Elf64_Phdr){ .p_type = PT_LOAD, .p_flags = PF_R | PF_W,
				    .p_offset = PG + 16, .p_vaddr = base + 3 * PG + 16,
				    .p_filesz = PG, .p_memsz = 4 * PG, .p_align = PG };
	prog->ph[2] = (Elf64_Phdr){ .p_type = PT_GNU_STACK, .p_flags = PF_R | PF_W };
	strcpy(prog->interp, "/lib/ld");
	prog->ph[3] = (Elf64_Phdr){ .p_type = PT_INTERP,
				    .p_offset = offsetof(struct program, interp),
				    .p_filesz = sizeof("/lib/ld") };
}

static int load(struct exec_image *ret)
{
	struct obj *o = obj_from_bytes(bytes, sizeof(bytes));
	int r;

	args = (struct exec_args){
		.argc = 2, .envc = 2, .strings = (char *)strings, .bytes = sizeof(strings),
		.execfn = "/bin/prog", .uid = 1, .euid = 2, .gid = 3, .egid = 4, .secure = true,
	};
	mm = mm_new();
	support_set_mm(mm);
	r = elf_load(mm, &o->file, &args, ret);
	o->file.refs++;		/* the test's own */
	obj_put(o);
	return r;
}

static void done(void)
{
	support_set_mm(NULL);
	mm_put(mm);
	mm = NULL;
}

static uint64_t peek(uintptr_t va)
{
	uint64_t v = 0;

	CU_ASSERT(mm_peek(mm, va, &v, sizeof(v)) == sizeof(v));
	return v;
}

static bool text_at(uintptr_t va, const char *text)
{
	char buf[64];

	return mm_peek(mm, va, buf, strlen(text) + 1) == strlen(text) + 1 &&
	       strcmp(buf, text) == 0;
}

static uint64_t aux(uintptr_t sp, uint64_t type)
{
	uintptr_t at = sp + 8 * (1 + 3 + 3);

	for (unsigned i = 0; i < 24; i++, at += 16) {
		if (peek(at) == type)
			return peek(at + 8);
		if (peek(at) == AT_NULL)
			break;
	}
	return 0xdead;
}

static void check_stack(const struct exec_image *im)
{
	uintptr_t sp = im->sp;

	CU_ASSERT((sp & 15) == 0);
	CU_ASSERT(peek(sp) == 2);
	CU_ASSERT(text_at(peek(sp + 8), "prog") && text_at(peek(sp + 16), "-x"));
	CU_ASSERT(peek(sp + 24) == 0);
	CU_ASSERT(text_at(peek(sp + 32), "A=1") && text_at(peek(sp + 40), "B=22"));
	CU_ASSERT(peek(sp + 48) == 0);
	CU_ASSERT(peek(sp + 8) == mm->arg_start && peek(sp + 32) == mm->env_start);
	CU_ASSERT(mm->arg_end == mm->env_start && mm->env_end == mm->env_start + 9);
	CU_ASSERT(text_at(aux(sp, AT_EXECFN), "/bin/prog"));
	CU_ASSERT(text_at(aux(sp, AT_PLATFORM), "x86_64"));
	CU_ASSERT(peek(aux(sp, AT_RANDOM)) == 0x5a5a5a5a5a5a5a5aUL);
	CU_ASSERT(aux(sp, AT_PAGESZ) == PG && aux(sp, AT_CLKTCK) == 100);
	CU_ASSERT(aux(sp, AT_UID) == 1 && aux(sp, AT_EUID) == 2 && aux(sp, AT_GID) == 3 &&
		  aux(sp, AT_EGID) == 4 && aux(sp, AT_SECURE) == 1);
	CU_ASSERT(aux(sp, AT_MINSIGSTKSZ) == 2048 && aux(sp, AT_HWCAP2) == 2);
	CU_ASSERT(aux(sp, AT_PHENT) == 56 && aux(sp, AT_FLAGS) == 0);
	CU_ASSERT(aux(sp, AT_SYSINFO_EHDR) == 0xdead);
}

static void test_static(void)
{
	struct exec_image im;
	uint64_t v;

	support_init();
	make(ET_EXEC, 0x400000, false);
	CU_ASSERT(load(&im) == 0);
	CU_ASSERT(im.entry == 0x400200);
	check_stack(&im);
	CU_ASSERT(aux(im.sp, AT_PHDR) == 0x400040 && aux(im.sp, AT_PHNUM) == 3);
	CU_ASSERT(aux(im.sp, AT_BASE) == 0 && aux(im.sp, AT_ENTRY) == 0x400200);
	CU_ASSERT(peek(0x403010) == 0xccccccccccccccccUL);
	CU_ASSERT(peek(0x404008) == 0xccccccccccccccccUL);
	CU_ASSERT(peek(0x404010) == 0);		/* .bss, rest of the file's page and beyond */
	CU_ASSERT(peek(0x405000) == 0 && peek(0x406ff8) == 0);
	CU_ASSERT(cpu_write(0x400000, 1) == KSIGSEGV && cpu_write(0x405000, 1) == 0);
	CU_ASSERT(mm->brk_start == 0x408000 && mm->code_start == 0x400000);
	CU_ASSERT(mm->code_end == 0x401000 && mm->data_end == 0x404010);
	CU_ASSERT(mm_find(mm, im.sp)->prot == (PROT_READ | PROT_WRITE));
	CU_ASSERT(mm->exe->inode->exec_count == 1);
	CU_ASSERT(cpu_write(im.sp - (1 << 20), 1) == 0);
	CU_ASSERT(cpu_read(CM_USER_TOP - PG, &v) == KSIGSEGV);
	done();
	prog->ph[2].p_flags |= PF_X;
	CU_ASSERT(load(&im) == 0);
	CU_ASSERT(mm_find(mm, im.sp)->prot == 7);
	done();
	CU_ASSERT(objs_alive == 0);
}

static void test_pie(void)
{
	struct exec_image im;
	uintptr_t base = 0x555555554000;

	support_init();
	make(ET_DYN, 0, false);
	CU_ASSERT(load(&im) == 0);
	CU_ASSERT(im.entry == base + 0x200 && mm->brk_start == base + 8 * PG);
	CU_ASSERT(aux(im.sp, AT_PHDR) == base + 64);
	done();
	prog->ph[0].p_align = 2UL << 20;
	CU_ASSERT(load(&im) == 0);
	CU_ASSERT(im.entry == ALIGN_UP(base, 2UL << 20) + 0x200);
	done();
	CU_ASSERT(objs_alive == 0);
}

static void test_interp(void)
{
	struct exec_image im;
	uintptr_t base = 0x555555554000, ld;

	support_init();
	make(ET_DYN, 0, false);
	open_result = obj_from_bytes(bytes, sizeof(bytes));
	make(ET_DYN, 0, true);
	CU_ASSERT(load(&im) == 0);
	ld = aux(im.sp, AT_BASE);
	CU_ASSERT(im.entry == ld + 0x200 && ld > base && ld + 8 * PG == mm->mmap_top);
	CU_ASSERT(aux(im.sp, AT_ENTRY) == base + 0x200);
	CU_ASSERT(mm->brk_start == base + 8 * PG);
	check_stack(&im);
	done();
	prog->interp[7] = 'x';		/* no zero at the end */
	CU_ASSERT(load(&im) == -ENOEXEC);
	done();
	prog->interp[7] = 0;
	prog->ph[3].p_filesz = 5000;
	CU_ASSERT(load(&im) == -ENOEXEC);
	done();
	prog->ph[3].p_filesz = 8;
	prog->ph[3].p_offset = ~0UL - 3;
	CU_ASSERT(load(&im) == -ENOEXEC);
	done();
	prog->ph[3].p_offset = offsetof(struct program, interp);
	memset(phys_to_virt(open_result->frames[0]), 0, 4);
	CU_ASSERT(load(&im) == -ELIBBAD);
	done();
	obj_put(open_result);
	open_result = NULL;
	CU_ASSERT(load(&im) == -ENOENT);
	done();
	CU_ASSERT(objs_alive == 0);
}

static void test_busy(void)
{
	struct exec_image im;
	struct obj *o;

	support_init();
	make(ET_EXEC, 0x400000, false);
	o = obj_from_bytes(bytes, sizeof(bytes));
	o->inode.writers = 1;
	mm = mm_new();
	CU_ASSERT(elf_load(mm, &o->file, &args, &im) == -ETXTBSY);
	done();
	obj_put(o);
}

/* One field broken at a time. */
static void test_broken(void)
{
	struct exec_image im;

	support_init();
#define BROKEN(change) \
	do { \
		make(ET_EXEC, 0x400000, false); \
		change; \
		CU_ASSERT(load(&im) == -ENOEXEC); \
		done(); \
		CU_ASSERT(objs_alive == 0); \
	} while (0)
	BROKEN(bytes[0] = 0);
	BROKEN(prog->eh.e_ident[EI_CLASS] = ELFCLASS32);
	BROKEN(prog->eh.e_ident[EI_DATA] = ELFDATA2MSB);
	BROKEN(prog->eh.e_machine = 3);
	BROKEN(prog->eh.e_type = 1);
	BROKEN(prog->eh.e_phentsize = 32);
	BROKEN(prog->eh.e_phnum = 0);
	BROKEN(prog->eh.e_phnum = 0xffff);
	BROKEN(prog->eh.e_phoff = ~0UL);
	BROKEN(prog->eh.e_phoff = FILE_SIZE - 8);
	BROKEN(prog->ph[0].p_type = prog->ph[1].p_type = PT_NULL);
	BROKEN(prog->ph[0].p_filesz = 2 * PG);			/* more than memsz */
	BROKEN(prog->ph[0].p_vaddr = ~0UL - 100);
	BROKEN(prog->ph[0].p_vaddr = CM_USER_TOP);
	BROKEN(prog->ph[1].p_memsz = ~0UL);
	BROKEN(prog->ph[1].p_memsz = CM_USER_TOP);
	BROKEN(prog->ph[1].p_offset = ~0UL - PG + 17);
	BROKEN(prog->ph[1].p_offset++);
	BROKEN(prog->ph[0].p_memsz = prog->ph[0].p_filesz = 0;
	       prog->ph[1].p_memsz = prog->ph[1].p_filesz = 0);
	BROKEN(prog->eh.e_entry = CM_USER_TOP);
	/* .bss would need a page of the file that does not exist. */
	BROKEN(prog->ph[1].p_offset = 0x100010);
}

/* Odd but allowed. */
static void test_odd(void)
{
	struct exec_image im;

	support_init();
	make(ET_EXEC, 0x400000, false);
	prog->ph[1].p_filesz = 0;		/* .bss alone */
	CU_ASSERT(load(&im) == 0);
	CU_ASSERT(peek(0x403000) == 0 && peek(0x406000) == 0);
	done();
	make(ET_EXEC, 0x400000, false);
	prog->ph[1].p_memsz = 1UL << 40;	/* more than there is of memory */
	CU_ASSERT(load(&im) == -ENOMEM);
	done();
	make(ET_EXEC, 0x400000, false);
	prog->ph[1].p_vaddr = 0x400010;		/* covers the text */
	CU_ASSERT(load(&im) == 0);
	done();
	make(ET_EXEC, CM_USER_TOP - 16 * PG, false);	/* where the stack belongs */
	CU_ASSERT(load(&im) == -ENOMEM);
	done();
	args.argc = 0;
	CU_ASSERT(objs_alive == 0);
}

int main(void)
{
	CU_pSuite s = cunit_suite("kernel-elf", NULL, NULL);

	CU_add_test(s, "static program", test_static);
	CU_add_test(s, "position-independent program", test_pie);
	CU_add_test(s, "interpreter", test_interp);
	CU_add_test(s, "text busy", test_busy);
	CU_add_test(s, "broken files", test_broken);
	CU_add_test(s, "odd files", test_odd);
	return cunit_run();
}
