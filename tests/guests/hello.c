/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a line and ends: the smallest guest that ends well. */
#include "guest.h"

void guest_main(const void *fdt)
{
	*guest_reg(CM_PLATFORM_GPA + CM_PLAT_STAGE) = CM_STAGE_KERNEL;
	if (*guest_reg(CM_PLATFORM_GPA + CM_PLAT_MAGIC) != CM_PLAT_MAGIC_VALUE)
		guest_end(CM_END_UNSUPPORTED);
	if (*(const uint32_t *)guest_ram(CM_FDT_GPA) != 0xedfe0dd0 ||
	    fdt != (const void *)(uintptr_t)CM_FDT_GPA)
		guest_end(CM_END_UNSUPPORTED);
	guest_puts("hello from ring 3\n");
	guest_end(CM_END_POWEROFF);
}
