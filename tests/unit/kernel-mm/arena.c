/* SPDX-License-Identifier: Apache-2.0 */
/* Apart from support.c, because libc's <sys/mman.h> and the UAPI headers collide. */
#include <stdlib.h>
#include <sys/mman.h>

void *arena_new(size_t size);

void *arena_new(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}
