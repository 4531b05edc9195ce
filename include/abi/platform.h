/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The platform page: Casemate's own MMIO device at CM_PLATFORM_GPA. 32-bit little-endian
 * registers, write-only unless said otherwise; other offsets and sizes end the guest.
 * It exists because ring 3 has no port I/O.
 */
#ifndef CASEMATE_ABI_PLATFORM_H
#define CASEMATE_ABI_PLATFORM_H

#define CM_PLAT_MAGIC		0x00	/* read: CM_PLAT_MAGIC_VALUE */
#define CM_PLAT_MAGIC_VALUE	0x74736163u	/* "cast" */
#define CM_PLAT_SERIAL		0x04	/* low byte goes to the guest's console log */
#define CM_PLAT_STAGE		0x08	/* enum cm_stage: the VMM notes the time */
#define CM_PLAT_END		0x0c	/* enum cm_end: the guest is finished, never returns */
/* The page frame at which the guest keeps its map of free pages; 0, as at the start: nowhere.
 * Bit n of the map, counted from bit 0 of its first byte, is set while the content of page
 * frame n is of no use to the guest, who clears it before it gives the page content that is.
 * A snapshot leaves such pages out: a VM made from it finds zeros there, or what it found in
 * the snapshot that this one continues. */
#define CM_PLAT_FREE_MAP	0x10

#ifdef __ASSEMBLER__
#define CM_END_DOUBLE_FAULT	4
#else
/* Text written to CM_PLAT_SERIAL before CM_END_PANIC is the panic message; lines of the
 * form "bt: 0x<address>" in it are symbolised by the host. */
enum cm_end {
	CM_END_POWEROFF = 0,	/* initd asked for it */
	CM_END_PANIC = 1,	/* the kernel found a contradiction */
	CM_END_OOM = 2,		/* no memory and no task process left to kill */
	CM_END_INIT_DIED = 3,	/* PID 1 exited */
	CM_END_DOUBLE_FAULT = 4,
	CM_END_UNSUPPORTED = 5,	/* the kernel cannot run on this device tree */
};

enum cm_stage {
	CM_STAGE_KERNEL = 1,	/* first C code of the kernel */
	CM_STAGE_DEVICES = 2,	/* devices found and set up */
	CM_STAGE_ROOT = 3,	/* root mounted */
	CM_STAGE_INIT = 4,	/* first instruction of PID 1 is next */
};
#endif

#endif
