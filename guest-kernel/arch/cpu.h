/* SPDX-License-Identifier: Apache-2.0 */
/* Set-up and counters of arch/, for boot and reports. */
#ifndef ARCH_CPU_H
#define ARCH_CPU_H

#include "guest-kernel/arch/arch.h"

struct cpu_stats {
	uint64_t nucleus_calls;		/* ring-0 entries asked for by the kernel */
	uint64_t exceptions;		/* taken from programs */
	uint64_t interrupts;		/* of programs and the kernel, as seen by irq_process */
	uint64_t trapped_syscalls;	/* through LSTAR */
	uint64_t switches;
};
extern struct cpu_stats cpu_stats;

void cpu_fpu_init(void);
void cpu_apic_init(uint64_t hz);

#endif
