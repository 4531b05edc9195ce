/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest-physical and guest-virtual layout: what the VMM builds before the first guest
 * instruction and the kernel relies on. Addresses in bytes.
 *
 * Everything that varies from VM to VM (memory size, image, devices, clock page) is in the
 * flattened device tree; this file holds only what both sides must know to find it.
 */
#ifndef CASEMATE_ABI_LAYOUT_H
#define CASEMATE_ABI_LAYOUT_H

/* ---- Guest-physical ---- */

/* Low RAM starts at 0. Page 0 is never used: a zero guest address stays a mistake. */
#define CM_CLOCK_GPA		0x00001000	/* struct cm_clock, one page, RAM */
#define CM_FDT_GPA		0x00002000	/* flattened device tree */
#define CM_FDT_MAX		0x0000e000
#define CM_BOOT_PT_GPA		0x00010000	/* first page tables; the PML4 is the first page */
#define CM_BOOT_PT_MAX		0x00070000
#define CM_KERNEL_GPA		0x00200000	/* the kernel ELF's first byte, 2 MiB aligned */

/* Low RAM ends here at the latest; the rest of RAM starts at CM_RAM_HIGH_GPA. */
#define CM_RAM_LOW_MAX		0xc0000000UL
#define CM_RAM_HIGH_GPA		0x100000000UL
#define CM_RAM_MAX		(64UL << 30)	/* largest guest, bytes */

/* MMIO: one page each, so that the kernel can map what it uses. */
#define CM_PLATFORM_GPA		0xd0000000UL	/* see abi/platform.h */
#define CM_VIRTIO_GPA(n)	(0xd0001000UL + (n) * 0x1000UL)
#define CM_VIRTIO_MAX		8
#define CM_LAPIC_GPA		0xfee00000UL	/* xAPIC mode, the architectural default */

/* The root image's read-only slot starts at the first 1 GiB boundary at or above 4 GiB
 * that is beyond RAM; the device tree says where (pmem-region). */
#define CM_IMAGE_ALIGN		(1UL << 30)
#define CM_IMAGE_MAX		(64UL << 30)

/* ---- Guest-virtual ---- */

/*
 * Programs own [0, CM_USER_TOP). PML4 slot 255, the last of the lower half, is the kernel's
 * and the same in every address space. All of it but the nucleus is user-accessible: the
 * kernel runs in ring 3 (docs/GUEST-KERNEL.md).
 */
#define CM_USER_TOP		0x00007f8000000000UL
#define CM_KERNEL_SLOT		255		/* PML4 index */
/* All guest-physical addresses below CM_PHYSMAP_SIZE, in 2 MiB pages: RAM writable and
 * not executable, image read-only, MMIO uncached. Only what exists is mapped. */
#define CM_PHYSMAP_VA		0x00007f8000000000UL
#define CM_PHYSMAP_SIZE		(256UL << 30)
/* The kernel ELF is linked here and loaded at CM_KERNEL_GPA: va - CM_KERNEL_VA = gpa -
 * CM_KERNEL_GPA. Mapped in 4 KiB pages with the rights of its program headers. */
#define CM_KERNEL_VA		0x00007fffc0000000
#define CM_KERNEL_MAX		0x1000000	/* memory size of the kernel ELF, at most */

/* Program header flag (in PF_MASKOS): map without the user bit. The nucleus and the
 * descriptor tables carry it. */
#define CM_PF_SUPERVISOR	0x00100000

/* ---- Segment selectors (Linux's, see DESIGN section 1, trap 1) ---- */
#define CM_SEL_KCS		0x10
#define CM_SEL_KSS		0x18
#define CM_SEL_UCS		0x33
#define CM_SEL_USS		0x2b

/* ---- Interrupt vectors ---- */
#define CM_VEC_TIMER		0x40
#define CM_VEC_VIRTIO(n)	(0x50 + (n))
#define CM_VEC_SPURIOUS		0xff

/* ---- Kernel note ---- */

/*
 * The kernel ELF carries one PT_NOTE entry, name "Casemate", type CM_NOTE_BOOT, with this
 * descriptor. Addresses are guest-virtual, inside the kernel ELF. The VMM starts the vCPU in
 * ring 3 at `entry` with CS/SS = CM_SEL_UCS/CM_SEL_USS, RSP = stack, RDI = CM_FDT_GPA,
 * RFLAGS = 0x202, CR3 = CM_BOOT_PT_GPA, CR0 = PE|MP|ET|NE|WP|AM|PG,
 * CR4 = PAE|OSFXSR|OSXMMEXCPT|OSXSAVE|FSGSBASE, EFER = SCE|LME|LMA|NXE, the tables below in
 * GDTR, IDTR and TR (TSS base and limit; the GDT holds no TSS descriptor), LSTAR = lstar,
 * STAR = 0x23 << 48 | 0x10 << 32, FMASK = 0x44500 (AC, NT, DF, TF; never IF: a stub that
 * runs in ring 3 could not set it again). FS and GS base 0, LAPIC enabled in xAPIC mode.
 */
#define CM_NOTE_NAME		"Casemate"
#define CM_NOTE_BOOT		1
#define CM_NOTE_VERSION		1

#ifndef __ASSEMBLER__
#include <stdint.h>

struct cm_kernel_note {
	uint32_t version;	/* CM_NOTE_VERSION */
	uint32_t reserved;	/* 0 */
	uint64_t entry;
	uint64_t stack;		/* first RSP, 16-byte aligned */
	uint64_t gdt;
	uint64_t gdt_limit;
	uint64_t idt;
	uint64_t idt_limit;
	uint64_t tss;
	uint64_t tss_limit;
	uint64_t lstar;
};
_Static_assert(sizeof(struct cm_kernel_note) == 80, "note layout");
#endif

#endif
