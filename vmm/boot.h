/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in guest memory before the first guest instruction, besides the kernel: the first
 * page tables and the device tree. abi/layout.h and abi/devicetree.h say what they hold.
 */
#ifndef CASEMATE_VMM_BOOT_H
#define CASEMATE_VMM_BOOT_H

#include <stdint.h>

#include "base/err.h"
#include "vmm/elf.h"
#include "vmm/memory.h"

struct boot_info {
	const char *bootargs;
	gpa_t initd;		/* in RAM; size 0: none */
	uint64_t initd_size;
	uint64_t apic_timer_hz;
	uint64_t tsc_hz;
	unsigned int virtio_count;	/* devices at CM_VIRTIO_GPA(0) on */
};

/* Builds the tables at CM_BOOT_PT_GPA. Returns 0 or -errno with err set. */
int boot_page_tables(const struct memory *memory, const struct elf_kernel *kernel,
		     struct err *err);

/* Builds the device tree at CM_FDT_GPA. */
int boot_device_tree(const struct memory *memory, const struct boot_info *info,
		     struct err *err);

/* Reads initd's file behind the kernel, page aligned. */
int boot_load_initd(const struct memory *memory, const struct elf_kernel *kernel, int fd,
		    uint64_t size, struct boot_info *info, struct err *err);

#endif
