/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests' tiny guests share: they run in ring 3 and reach everything by the physmap. */
#ifndef CASEMATE_TESTS_GUEST_H
#define CASEMATE_TESTS_GUEST_H

#include <stdint.h>

#include "abi/layout.h"
#include "abi/platform.h"

void guest_main(const void *fdt);

static inline volatile uint32_t *guest_reg(uint64_t gpa)
{
	return (volatile uint32_t *)(CM_PHYSMAP_VA + gpa);
}

static inline void *guest_ram(uint64_t gpa)
{
	return (void *)(CM_PHYSMAP_VA + gpa);
}

static inline void guest_puts(const char *text)
{
	while (*text)
		*guest_reg(CM_PLATFORM_GPA + CM_PLAT_SERIAL) = (uint8_t)*text++;
}

static inline void guest_end(uint32_t code)
{
	*guest_reg(CM_PLATFORM_GPA + CM_PLAT_END) = code;
	for (;;)
		;
}

#endif
