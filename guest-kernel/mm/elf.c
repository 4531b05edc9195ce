/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading a program: ELF segments, interpreter, stack, auxiliary vector.
 *
 * The file is hostile: its header and program headers are read and checked whole (elf_read)
 * before anything is mapped. A program is mapped where it says (ET_EXEC) or at PIE_BASE, an
 * interpreter where the top-down search finds room; the heap follows the program. Then come
 * the vDSO and the stack: strings on top, below them argc, argv, envp, auxv, as the psABI has it.
 * The mm is not the current one, so its memory is written through mm_poke().
 */
#include <cpuid.h>
#include <linux/auxvec.h>
#include <linux/elf.h>
#include <linux/mman.h>

#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm_internal.h"
#include "guest-kernel/mm/patch.h"

#define PIE_BASE	0x555555554000UL
#define PHNUM_MAX	512u
#define STACK_INITIAL	(132UL << 10)	/* mapped at once below the strings */
#define STACK_GAP_MIN	(128UL << 20)
#define STACK_GAP_MAX	(16UL << 30)
#define HWCAP2_FSGSBASE	0x2u
#define CLOCK_TICKS	100u
#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ	51
#endif

/* Linked in with the vDSO, page aligned; host/shim.c has an empty one. */
extern const uint8_t vdso_start[], vdso_end[];

struct elf {
	Elf64_Ehdr eh;
	Elf64_Phdr *ph;		/* kfree it */
	uintptr_t low, high;	/* span of PT_LOAD, page aligned, without bias */
	uintptr_t align;	/* largest p_align of PT_LOAD, a power of two */
	const Elf64_Phdr *interp, *stack;
	uintptr_t bias;
};

/* ---- reading and checking ---- */

static int read_exact(struct file *file, void *buf, size_t n, uint64_t pos)
{
	long r = file_read_kernel(file, buf, n, pos);

	if (r < 0)
		return (int)r;
	return (size_t)r == n ? 0 : -ENOEXEC;
}

static bool header_ok(const Elf64_Ehdr *eh)
{
	return memcmp(eh->e_ident, ELFMAG, SELFMAG) == 0 &&
	       eh->e_ident[EI_CLASS] == ELFCLASS64 && eh->e_ident[EI_DATA] == ELFDATA2LSB &&
	       eh->e_machine == EM_X86_64 && (eh->e_type == ET_EXEC || eh->e_type == ET_DYN) &&
	       eh->e_phentsize == sizeof(Elf64_Phdr) && eh->e_phnum != 0 &&
	       eh->e_phnum <= PHNUM_MAX && (int64_t)eh->e_phoff >= 0;
}

static bool load_ok(const Elf64_Phdr *ph)
{
	uint64_t end;

	if (ph->p_filesz > ph->p_memsz ||
	    __builtin_add_overflow(ph->p_vaddr, ph->p_memsz, &end) || end > CM_USER_TOP)
		return false;
	if (__builtin_add_overflow(ph->p_offset, ph->p_filesz, &end) || (int64_t)end < 0)
		return false;
	return ph->p_filesz == 0 ||
	       ((ph->p_offset ^ ph->p_vaddr) & (PAGE_SIZE - 1)) == 0;
}

static int check_segments(struct elf *e)
{
	bool any = false;

	e->low = ~0UL;
	e->high = 0;
	e->align = PAGE_SIZE;
	for (unsigned i = 0; i < e->eh.e_phnum; i++) {
		const Elf64_Phdr *ph = &e->ph[i];

		if (ph->p_type == PT_GNU_STACK)
			e->stack = ph;
		if (ph->p_type == PT_INTERP && e->interp == NULL)
			e->interp = ph;
		if (ph->p_type != PT_LOAD)
			continue;
		if (!load_ok(ph))
			return -ENOEXEC;
		if (ph->p_memsz == 0)
			continue;
		any = true;
		e->low = MIN(e->low, ALIGN_DOWN(ph->p_vaddr, PAGE_SIZE));
		e->high = MAX(e->high, ALIGN_UP(ph->p_vaddr + ph->p_memsz, PAGE_SIZE));
		if (ph->p_align > e->align && ph->p_align <= (1UL << 30) &&
		    (ph->p_align & (ph->p_align - 1)) == 0)
			e->align = ph->p_align;
	}
	return any ? 0 : -ENOEXEC;
}

static int elf_read(struct file *file, struct elf *e)
{
	size_t n;
	int r;

	memset(e, 0, sizeof(*e));
	r = read_exact(file, &e->eh, sizeof(e->eh), 0);
	if (r != 0)
		return r;
	if (!header_ok(&e->eh))
		return -ENOEXEC;
	n = e->eh.e_phnum * sizeof(Elf64_Phdr);
	e->ph = kmalloc(n);
	if (e->ph == NULL)
		return -ENOMEM;
	r = read_exact(file, e->ph, n, e->eh.e_phoff);
	if (r == 0)
		r = check_segments(e);
	return r;
}

/* ---- mapping ---- */

static uint32_t segment_prot(const Elf64_Phdr *ph)
{
	return (ph->p_flags & PF_R ? PROT_READ : 0) | (ph->p_flags & PF_W ? PROT_WRITE : 0) |
	       (ph->p_flags & PF_X ? PROT_EXEC : 0);
}

/* Zeros from addr to the end of its page: the part of .bss that shares a page with .data. */
static int zero_tail(struct mm *mm, uintptr_t addr)
{
	size_t n = ALIGN_UP(addr, PAGE_SIZE) - addr;
	void *p;

	if (n == 0)
		return 0;
	p = mm_user_page(mm, addr, true);
	if (p == NULL)
		return -ENOEXEC;
	memset(p, 0, n);
	return 0;
}

static int map_segment(struct mm *mm, struct file *file, const Elf64_Phdr *ph, uintptr_t bias,
		       uint32_t how)
{
	uintptr_t start = ALIGN_DOWN(ph->p_vaddr, PAGE_SIZE) + bias;
	uintptr_t file_end = ph->p_vaddr + ph->p_filesz + bias;
	uintptr_t file_page_end = ALIGN_UP(file_end, PAGE_SIZE);
	uintptr_t end = ALIGN_UP(ph->p_vaddr + ph->p_memsz + bias, PAGE_SIZE);
	uint32_t prot = segment_prot(ph);
	long r;
	int z;

	if (ph->p_filesz != 0) {
		r = mm_map(mm, start, file_page_end - start, prot, MAP_PRIVATE | how, file,
			   ALIGN_DOWN(ph->p_offset, PAGE_SIZE) >> PAGE_SHIFT);
		if (r < 0)
			return (int)r;
		if (ph->p_memsz > ph->p_filesz) {
			z = zero_tail(mm, file_end);
			if (z != 0 && (prot & PROT_WRITE))
				return z;
		}
		start = file_page_end;
		how = MAP_FIXED;
	}
	if (end <= start)
		return 0;
	r = mm_map(mm, start, end - start, prot, MAP_PRIVATE | MAP_ANONYMOUS | how, NULL, 0);
	return r < 0 ? (int)r : 0;
}

/* Decides the bias and maps every segment. */
static int elf_map(struct mm *mm, struct file *file, struct elf *e, bool program)
{
	uint32_t how = MAP_FIXED_NOREPLACE;
	uintptr_t at;

	if (e->eh.e_type == ET_DYN) {
		size_t span = e->high - e->low;

		if (program) {
			at = ALIGN_UP(PIE_BASE, e->align);
		} else {
			at = vma_search(mm, span + e->align - PAGE_SIZE, MMAP_MIN_ADDR,
					mm->mmap_top);
			if (at == 0)
				return -ENOMEM;
			at = ALIGN_UP(at, e->align);
		}
		if (at + span > mm->mmap_top || at + span < at)
			return -ENOMEM;
		e->bias = at - e->low;	/* may wrap: low + bias is what counts */
	}
	for (unsigned i = 0; i < e->eh.e_phnum; i++) {
		int r;

		if (e->ph[i].p_type != PT_LOAD || e->ph[i].p_memsz == 0)
			continue;
		r = map_segment(mm, file, &e->ph[i], e->bias, how);
		if (r != 0)
			return r == -EEXIST || r == -EINVAL ? -ENOEXEC : r;
		how = MAP_FIXED;
	}
	return 0;
}

/* What /proc/PID/stat shows, and where the heap begins. */
static void note_layout(struct mm *mm, const struct elf *e)
{
	mm->code_start = mm->data_start = ~0UL;
	for (unsigned i = 0; i < e->eh.e_phnum; i++) {
		const Elf64_Phdr *ph = &e->ph[i];
		uintptr_t start = ph->p_vaddr + e->bias, end = start + ph->p_filesz;

		if (ph->p_type != PT_LOAD || ph->p_memsz == 0)
			continue;
		mm->code_start = MIN(mm->code_start, start);
		if (ph->p_flags & PF_X)
			mm->code_end = MAX(mm->code_end, end);
		if (mm->data_end <= end) {
			mm->data_start = start;
			mm->data_end = end;
		}
	}
	mm->brk_start = mm->brk = e->high + e->bias;
}

static int load_interp(struct mm *mm, struct file *file, const struct elf *e,
		       struct elf *ret_interp)
{
	size_t n = e->interp->p_filesz;
	struct file *f = NULL;
	char *path;
	int r;

	if (n < 2 || n > PATH_MAX_LEN || (int64_t)e->interp->p_offset < 0)
		return -ENOEXEC;
	path = kmalloc(n);
	if (path == NULL)
		return -ENOMEM;
	r = read_exact(file, path, n, e->interp->p_offset);
	if (r == 0 && path[n - 1] != '\0')
		r = -ENOEXEC;
	if (r != 0)
		goto out;
	f = file_open(KAT_FDCWD, path, KO_RDONLY, 0, LOOKUP_FOLLOW);
	if (IS_ERR(f)) {
		r = PTR_ERR(f);
		f = NULL;
		goto out;
	}
	r = KS_ISREG(f->inode->mode) ? inode_permission(f->inode, 1) : -EACCES;
	if (r != 0)
		goto out;
	r = elf_read(f, ret_interp);
	if (r == 0)
		r = elf_map(mm, f, ret_interp, false);
	if (r == -ENOEXEC)
		r = -ELIBBAD;
out:
	if (f != NULL)
		file_put(f);
	kfree(path);
	return r;
}

/* ---- vDSO ---- */

static int map_vdso(struct mm *mm)
{
	uintptr_t image = (uintptr_t)vdso_start, image_end = (uintptr_t)vdso_end;
	struct vma *v;
	size_t len;
	uintptr_t at;

	if (image == 0 || image_end <= image)
		return 0;
	len = ALIGN_UP(image_end - image, PAGE_SIZE);
	at = vma_search(mm, len, MMAP_MIN_ADDR, mm->mmap_top);
	if (at == 0)
		return -ENOMEM;
	v = vma_new(mm, at, at + len, PROT_READ | PROT_EXEC, MAP_PRIVATE);
	if (v == NULL)
		return -ENOMEM;
	v->advice = VMA_FRAMES;
	v->max_prot = PROT_READ | PROT_EXEC;
	v->name = "[vdso]";
	v->pgoff = (image - CM_KERNEL_VA + CM_KERNEL_GPA) >> PAGE_SHIFT;
	vma_insert(v);
	mm->vdso = at;
	return 0;
}

/* ---- stack ---- */

static uint32_t hwcap(void)
{
	static uint32_t known;
	unsigned a, b, c, d;

	if (known == 0 && __get_cpuid(1, &a, &b, &c, &d))
		known = d;
	return known;
}

static void auxv_add(struct mm *mm, unsigned *n, uint64_t type, uint64_t value)
{
	ASSERT(*n + 2 <= ARRAY_SIZE(mm->auxv));
	mm->auxv[(*n)++] = type;
	mm->auxv[(*n)++] = value;
}

/* The address of the program headers in memory, 0 if no segment holds them. */
static uintptr_t phdr_address(const struct elf *e)
{
	uint64_t end = e->eh.e_phoff + e->eh.e_phnum * sizeof(Elf64_Phdr);

	for (unsigned i = 0; i < e->eh.e_phnum; i++) {
		const Elf64_Phdr *ph = &e->ph[i];

		if (ph->p_type == PT_LOAD && ph->p_offset <= e->eh.e_phoff &&
		    end <= ph->p_offset + ph->p_filesz)
			return e->eh.e_phoff - ph->p_offset + ph->p_vaddr + e->bias;
	}
	return 0;
}

struct stack_strings {
	uintptr_t execfn, random, platform, strings;
};

static unsigned build_auxv(struct mm *mm, const struct elf *e, const struct elf *interp,
			   const struct exec_args *args, const struct stack_strings *s)
{
	unsigned n = 0;

	memset(mm->auxv, 0, sizeof(mm->auxv));
	if (mm->vdso != 0)
		auxv_add(mm, &n, AT_SYSINFO_EHDR, mm->vdso);
	auxv_add(mm, &n, AT_MINSIGSTKSZ, sigframe_min_size());
	auxv_add(mm, &n, AT_HWCAP, hwcap());
	auxv_add(mm, &n, AT_PAGESZ, PAGE_SIZE);
	auxv_add(mm, &n, AT_CLKTCK, CLOCK_TICKS);
	auxv_add(mm, &n, AT_PHDR, phdr_address(e));
	auxv_add(mm, &n, AT_PHENT, sizeof(Elf64_Phdr));
	auxv_add(mm, &n, AT_PHNUM, e->eh.e_phnum);
	auxv_add(mm, &n, AT_BASE, interp != NULL ? interp->low + interp->bias : 0);
	auxv_add(mm, &n, AT_FLAGS, 0);
	auxv_add(mm, &n, AT_ENTRY, e->eh.e_entry + e->bias);
	auxv_add(mm, &n, AT_UID, args->uid);
	auxv_add(mm, &n, AT_EUID, args->euid);
	auxv_add(mm, &n, AT_GID, args->gid);
	auxv_add(mm, &n, AT_EGID, args->egid);
	auxv_add(mm, &n, AT_SECURE, args->secure);
	auxv_add(mm, &n, AT_RANDOM, s->random);
	auxv_add(mm, &n, AT_HWCAP2, HWCAP2_FSGSBASE);
	auxv_add(mm, &n, AT_EXECFN, s->execfn);
	auxv_add(mm, &n, AT_PLATFORM, s->platform);
	auxv_add(mm, &n, AT_NULL, 0);
	return n;
}

static int poke(struct mm *mm, uintptr_t at, const void *data, size_t n)
{
	return mm_poke(mm, at, data, n) == n ? 0 : -ENOMEM;
}

/* argv and envp pointers from the strings, each ended by 0. Returns the next free slot. */
static int put_pointers(struct mm *mm, const struct exec_args *args, uintptr_t strings,
			uintptr_t *at)
{
	size_t off = 0;

	for (unsigned i = 0; i < args->argc + args->envc + 2; i++) {
		uint64_t value = 0;
		int r;

		if (i == args->argc)
			mm->arg_end = mm->env_start = strings + off;
		if (i != args->argc && i != args->argc + args->envc + 1) {
			value = strings + off;
			off += strnlen(args->strings + off, args->bytes - off) + 1;
			if (off > args->bytes)
				return -EINVAL;
		}
		r = poke(mm, *at, &value, sizeof(value));
		if (r != 0)
			return r;
		*at += sizeof(value);
	}
	mm->arg_start = strings;
	mm->env_end = strings + off;
	return 0;
}

static int map_stack(struct mm *mm, const struct elf *e, size_t bytes)
{
	uint32_t prot = PROT_READ | PROT_WRITE;
	size_t size = ALIGN_UP(bytes + STACK_INITIAL, PAGE_SIZE);
	struct vma *v;

	if (e->stack != NULL && (e->stack->p_flags & PF_X))
		prot |= PROT_EXEC;
	mm->stack_top = CM_USER_TOP - PAGE_SIZE;
	if (!vma_range_free(mm, mm->stack_top - size, CM_USER_TOP))
		return -ENOMEM;
	v = vma_new(mm, mm->stack_top - size, mm->stack_top, prot, MAP_PRIVATE | MAP_GROWSDOWN);
	if (v == NULL)
		return -ENOMEM;
	v->name = "[stack]";
	vma_insert(v);
	return 0;
}

static int build_stack(struct mm *mm, const struct elf *e, const struct elf *interp,
		       const struct exec_args *args, uintptr_t *ret_sp)
{
	static const char platform[] = "x86_64";
	size_t fn = strlen(args->execfn) + 1;
	size_t pointers = (args->argc + args->envc + 3UL) * 8;
	struct stack_strings s;
	uint8_t random[16];
	uint64_t argc = args->argc;
	uintptr_t p;
	unsigned n;
	int r;

	r = map_stack(mm, e, args->bytes + fn + pointers + PAGE_SIZE);
	if (r != 0)
		return r;
	p = mm->stack_top - 8;
	s.execfn = p -= fn;
	s.strings = p -= args->bytes;
	p = ALIGN_DOWN(p, 16);
	s.platform = p -= sizeof(platform);
	s.random = p -= sizeof(random);
	n = build_auxv(mm, e, interp, args, &s);
	p = ALIGN_DOWN(p - n * 8 - pointers, 16);
	*ret_sp = p;

	random_bytes(random, sizeof(random));
	r = poke(mm, s.execfn, args->execfn, fn);
	if (r == 0)
		r = poke(mm, s.strings, args->strings, args->bytes);
	if (r == 0)
		r = poke(mm, s.platform, platform, sizeof(platform));
	if (r == 0)
		r = poke(mm, s.random, random, sizeof(random));
	if (r == 0)
		r = poke(mm, p, &argc, sizeof(argc));
	p += 8;
	if (r == 0)
		r = put_pointers(mm, args, s.strings, &p);
	if (r == 0)
		r = poke(mm, p, mm->auxv, n * 8);
	return r;
}

/* ---- exec ---- */

/* The mapping area begins below the largest stack that may grow, and its guard gap. */
static void set_mmap_top(struct mm *mm)
{
	uint64_t gap = MIN(MAX(mm_rlimit(KRLIMIT_STACK), STACK_GAP_MIN), STACK_GAP_MAX);

	mm->mmap_top = CM_USER_TOP - ALIGN_UP(gap, PAGE_SIZE) - 2 * STACK_GUARD;
	mm->search_top = mm->mmap_top;
	mm->search_hole = 0;
}

int elf_load(struct mm *mm, struct file *file, const struct exec_args *args,
	     struct exec_image *ret)
{
	struct elf e, interp;
	bool has_interp;
	int r;

	memset(&interp, 0, sizeof(interp));
	r = elf_read(file, &e);
	if (r != 0)
		goto out;
	has_interp = e.interp != NULL;
	if (file->inode->writers != 0) {
		r = -ETXTBSY;
		goto out;
	}
	set_mmap_top(mm);
	file_get(file);
	file->inode->exec_count++;
	mm->exe = file;
	/* Before anything is mapped: a program is shown its patched pages from the start. */
	if (e.eh.e_type == ET_DYN || e.high <= PATCH_TABLE_VA ||
	    e.low >= PATCH_TABLE_VA + PATCH_TABLE_SIZE)
		patch_map_table(mm);
	r = elf_map(mm, file, &e, true);
	if (r != 0)
		goto out;
	note_layout(mm, &e);
	if (has_interp) {
		r = load_interp(mm, file, &e, &interp);
		if (r != 0)
			goto out;
	}
	r = map_vdso(mm);
	if (r == 0)
		r = build_stack(mm, &e, has_interp ? &interp : NULL, args, &ret->sp);
	if (r != 0)
		goto out;
	ret->entry = has_interp ? interp.eh.e_entry + interp.bias : e.eh.e_entry + e.bias;
	if (ret->entry >= CM_USER_TOP)
		r = -ENOEXEC;
out:
	kfree(interp.ph);
	kfree(e.ph);
	return r;
}
