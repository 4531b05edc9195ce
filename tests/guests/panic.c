/* SPDX-License-Identifier: Apache-2.0 */
/* Panics with a backtrace of one line. */
#include "guest.h"

static __attribute__((noinline)) void guest_panic_here(void)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t at = (uintptr_t)__builtin_return_address(0);
	char line[] = "bt: 0x0000000000000000\n";

	for (int i = 0; i < 16; i++)
		line[6 + i] = digits[at >> (60 - 4 * i) & 15];
	guest_puts("panic: for the test\n");
	guest_puts(line);
	guest_end(CM_END_PANIC);
}

void guest_main(const void *fdt)
{
	guest_panic_here();
	guest_end(CM_END_POWEROFF);
}
