/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest kernel's ELF file, read as hostile input: headers are copied and checked whole
 * (elf_check), and only then are its segments read into guest RAM (elf_load). What a file
 * that changes meanwhile can achieve is to put other bytes into its own guest's memory.
 */
#ifndef CASEMATE_VMM_ELF_H
#define CASEMATE_VMM_ELF_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/layout.h"
#include "base/err.h"
#include "vmm/memory.h"

#define ELF_SEGMENTS_MAX	16

/* A PT_LOAD; pages of different segments are different. */
struct elf_segment {
	uint64_t va;
	uint64_t offset;	/* in the file */
	uint64_t file_size;
	uint64_t mem_size;
	bool write, execute, supervisor;
};

struct elf_kernel {
	struct cm_kernel_note note;
	unsigned int count;
	struct elf_segment segments[ELF_SEGMENTS_MAX];	/* ascending, not overlapping */
	uint64_t end_va;	/* page aligned end of the last segment */
};

/* Returns 0 or -errno with err set. size: of the file. */
int elf_check(int fd, uint64_t size, struct elf_kernel *ret_kernel, struct err *err);

int elf_load(int fd, const struct elf_kernel *kernel, const struct memory *memory,
	     struct err *err);

static inline gpa_t elf_va_to_gpa(uint64_t va)
{
	return GPA(va - CM_KERNEL_VA + CM_KERNEL_GPA);
}

#endif
