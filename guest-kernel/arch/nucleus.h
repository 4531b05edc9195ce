/* SPDX-License-Identifier: Apache-2.0 */
/* Between the nucleus (ring 0) and the kernel's entry code (ring 3). */
#ifndef ARCH_NUCLEUS_H
#define ARCH_NUCLEUS_H

/* nucleus_call operations, in eax; argument in rdi */
#define NUCLEUS_LOAD_CR3 0
#define NUCLEUS_INVLPG	1
#define NUCLEUS_HALT	2

#define NUCLEUS_STUB_SIZE 32
#define IST_SIZE	8192

/* Fixed addresses of MMIO registers through the physmap. */
#define LAPIC_VA	(CM_PHYSMAP_VA + CM_LAPIC_GPA)
#define LAPIC_EOI	0xb0
#define PLATFORM_VA	(CM_PHYSMAP_VA + CM_PLATFORM_GPA)

#endif
