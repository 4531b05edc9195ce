/* SPDX-License-Identifier: Apache-2.0 */
/* The guest kernel's ELF file; see elf.h. */
#include "vmm/elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "base/fd.h"

#define PAGE		4096ull
#define NOTE_MAX	4096u

static int bad(struct err *err, const char *what)
{
	return err_set(err, ENOEXEC, "not a kernel for this VMM: %s", what);
}

static uint64_t page_up(uint64_t v)
{
	return (v + PAGE - 1) & ~(PAGE - 1);
}

/* Whether [va, va + len) lies inside the loaded kernel. */
static bool va_inside(const struct elf_kernel *kernel, uint64_t va, uint64_t len)
{
	for (unsigned int i = 0; i < kernel->count; i++) {
		const struct elf_segment *s = &kernel->segments[i];

		if (va >= s->va && va - s->va < s->mem_size && len <= s->mem_size - (va - s->va))
			return true;
	}
	return false;
}

static int segment_add(struct elf_kernel *kernel, const Elf64_Phdr *ph, uint64_t file_size,
		       struct err *err)
{
	struct elf_segment *s;

	if (ph->p_memsz == 0)
		return 0;
	if (kernel->count == ELF_SEGMENTS_MAX)
		return bad(err, "too many segments");
	if (ph->p_filesz > ph->p_memsz || ph->p_filesz > file_size ||
	    ph->p_offset > file_size - ph->p_filesz)
		return bad(err, "segment beyond the end of the file");
	if (ph->p_vaddr < CM_KERNEL_VA || ph->p_vaddr - CM_KERNEL_VA > CM_KERNEL_MAX ||
	    ph->p_memsz > CM_KERNEL_MAX - (ph->p_vaddr - CM_KERNEL_VA))
		return bad(err, "segment outside the kernel's address range");
	if (kernel->count && (ph->p_vaddr & ~(PAGE - 1)) < kernel->end_va)
		return bad(err, "segments out of order or sharing a page");
	s = &kernel->segments[kernel->count++];
	*s = (struct elf_segment){
		.va = ph->p_vaddr,
		.offset = ph->p_offset,
		.file_size = ph->p_filesz,
		.mem_size = ph->p_memsz,
		.write = ph->p_flags & PF_W,
		.execute = ph->p_flags & PF_X,
		.supervisor = ph->p_flags & CM_PF_SUPERVISOR,
	};
	kernel->end_va = page_up(s->va + s->mem_size);
	return 0;
}

/* Looks for our note among those of one PT_NOTE. Returns 1 found, 0 not, -errno. */
static int note_find(int fd, const Elf64_Phdr *ph, uint64_t file_size,
		     struct cm_kernel_note *ret_note, struct err *err)
{
	uint8_t bytes[NOTE_MAX];
	size_t at = 0, len = ph->p_filesz;
	int r;

	if (len > sizeof(bytes) || len > file_size || ph->p_offset > file_size - len)
		return bad(err, "note segment too large or beyond the end of the file");
	r = fd_pread_exact(fd, bytes, len, ph->p_offset);
	if (r < 0)
		return err_set_errno(err, r, "cannot read the kernel");
	while (len - at >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr nh;
		size_t name, desc, end;

		memcpy(&nh, bytes + at, sizeof(nh));
		if (nh.n_namesz > NOTE_MAX || nh.n_descsz > NOTE_MAX)
			return bad(err, "malformed note");
		name = at + sizeof(nh);
		desc = name + ((nh.n_namesz + 3u) & ~3u);
		end = desc + ((nh.n_descsz + 3u) & ~3u);
		if (desc + nh.n_descsz > len)
			return bad(err, "malformed note");
		if (nh.n_namesz == sizeof(CM_NOTE_NAME) && nh.n_type == CM_NOTE_BOOT &&
		    !memcmp(bytes + name, CM_NOTE_NAME, sizeof(CM_NOTE_NAME))) {
			if (nh.n_descsz != sizeof(*ret_note))
				return bad(err, "boot note of a wrong size");
			memcpy(ret_note, bytes + desc, sizeof(*ret_note));
			return 1;
		}
		if (end >= len)
			break;
		at = end;
	}
	return 0;
}

static int note_check(const struct elf_kernel *kernel, struct err *err)
{
	const struct cm_kernel_note *note = &kernel->note;

	if (note->version != CM_NOTE_VERSION || note->reserved)
		return bad(err, "boot note of another version");
	if (!va_inside(kernel, note->entry, 1) || !va_inside(kernel, note->lstar, 1))
		return bad(err, "entry outside the kernel");
	/* The stack grows down from its first RSP, which may be one past a segment. */
	if (note->stack % 16 || !va_inside(kernel, note->stack - 8, 8))
		return bad(err, "stack outside the kernel");
	if (note->gdt_limit > 0xffff || note->idt_limit > 0xffff ||
	    note->tss_limit > 0xffff || note->tss_limit < 0x67)
		return bad(err, "descriptor table limit out of range");
	if (!va_inside(kernel, note->gdt, note->gdt_limit + 1) ||
	    !va_inside(kernel, note->idt, note->idt_limit + 1) ||
	    !va_inside(kernel, note->tss, note->tss_limit + 1))
		return bad(err, "descriptor table outside the kernel");
	return 0;
}

static int header_check(int fd, uint64_t size, Elf64_Ehdr *eh, struct err *err)
{
	int r;

	if (size < sizeof(*eh))
		return bad(err, "too short for an ELF header");
	r = fd_pread_exact(fd, eh, sizeof(*eh), 0);
	if (r < 0)
		return err_set_errno(err, r, "cannot read the kernel");
	if (memcmp(eh->e_ident, ELFMAG, SELFMAG))
		return bad(err, "no ELF file");
	if (eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_ident[EI_DATA] != ELFDATA2LSB ||
	    eh->e_machine != EM_X86_64)
		return bad(err, "no x86-64 ELF file");
	if (eh->e_type != ET_EXEC)
		return bad(err, "not a fixed-address executable");
	if (eh->e_phentsize != sizeof(Elf64_Phdr) || eh->e_phnum == 0 || eh->e_phnum > 64)
		return bad(err, "malformed program headers");
	if (eh->e_phoff > size ||
	    eh->e_phnum * sizeof(Elf64_Phdr) > size - eh->e_phoff)
		return bad(err, "program headers beyond the end of the file");
	return 0;
}

int elf_check(int fd, uint64_t size, struct elf_kernel *ret_kernel, struct err *err)
{
	struct elf_kernel kernel = { .count = 0 };
	Elf64_Phdr ph[64];
	Elf64_Ehdr eh;
	bool found = false;
	int r;

	r = header_check(fd, size, &eh, err);
	if (r < 0)
		return r;
	r = fd_pread_exact(fd, ph, eh.e_phnum * sizeof(ph[0]), eh.e_phoff);
	if (r < 0)
		return err_set_errno(err, r, "cannot read the kernel");
	for (unsigned int i = 0; i < eh.e_phnum; i++) {
		if (ph[i].p_type == PT_INTERP || ph[i].p_type == PT_DYNAMIC)
			return bad(err, "dynamically linked");
		if (ph[i].p_type == PT_LOAD) {
			r = segment_add(&kernel, &ph[i], size, err);
			if (r < 0)
				return r;
		}
		if (ph[i].p_type == PT_NOTE && !found) {
			r = note_find(fd, &ph[i], size, &kernel.note, err);
			if (r < 0)
				return r;
			found = r;
		}
	}
	if (!found)
		return bad(err, "it has no Casemate boot note");
	r = note_check(&kernel, err);
	if (r < 0)
		return r;
	*ret_kernel = kernel;
	return 0;
}

int elf_load(int fd, const struct elf_kernel *kernel, const struct memory *memory,
	     struct err *err)
{
	for (unsigned int i = 0; i < kernel->count; i++) {
		const struct elf_segment *s = &kernel->segments[i];
		uint8_t *to = memory_ram(memory, elf_va_to_gpa(s->va), s->mem_size);
		int r;

		if (!to)
			return err_set(err, ENOMEM, "the kernel does not fit into the "
				       "guest's memory; give it more with --mem");
		/* RAM is zero already: the rest of mem_size needs nothing. */
		r = fd_pread_exact(fd, to, s->file_size, s->offset);
		if (r < 0)
			return err_set_errno(err, r, "cannot read the kernel");
	}
	return 0;
}
