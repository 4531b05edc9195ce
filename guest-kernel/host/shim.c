/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for arch/ when kernel code is compiled for the host's unit tests: messages go to
 * stderr, panic aborts, time is the host's (or a test's), the processor does nothing. Physical
 * memory is an arena that a test makes with host_memory_init(); physmap addresses are arena
 * addresses, so phys_to_virt() works as in the guest through kernel_physmap (mm/page.c).
 *
 * A test links the host library with unresolved symbols allowed, so that it needs only the
 * parts that it calls.
 */
#include "guest-kernel/host/shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "guest-kernel/arch/arch.h"

/* No vDSO: an empty range. */
extern const uint8_t vdso_start[], vdso_end[];
const uint8_t vdso_start[1];
__asm__(".globl vdso_end\nvdso_end = vdso_start");

uint64_t host_now_ns;	/* a test may set it; 0: the host's clock */
void (*host_tsc_hook)(void);

void printk(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
}

void panic(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "panic: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	abort();
}

void *host_memory_init(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

uint64_t arch_tsc(void)
{
	uint64_t now = host_now_ns;
	struct timespec ts;

	if (host_tsc_hook != NULL)
		host_tsc_hook();
	if (now != 0)
		return now;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

void arch_load_cr3(paddr_t pml4)
{
}

void arch_flush_tlb(void)
{
}

void arch_invlpg(uintptr_t va)
{
}

void arch_timer_set(uint64_t deadline_ns)
{
}

void arch_end(unsigned code)
{
	fprintf(stderr, "end %u\n", code);
	abort();
}
