/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vCPU's state before its first instruction: what CPUID shows the guest, and the registers
 * of abi/layout.h, with which it starts in 64-bit mode in ring 3.
 */
#ifndef CASEMATE_VMM_CPU_H
#define CASEMATE_VMM_CPU_H

#include <linux/kvm.h>
#include <stdint.h>

#include "abi/layout.h"
#include "base/err.h"
#include "vmm/kvm.h"

#define CPUID_ENTRIES_MAX	256

struct cpuid_table {
	struct kvm_cpuid2 head;
	struct kvm_cpuid_entry2 entries[CPUID_ENTRIES_MAX];
};

/* Removes what the guest must not see; KVM-free, for tests. *ret_xcr0: what the guest may
 * enable. Returns 0, or -EOPNOTSUPP with err set where the CPU lacks something needed. */
int cpu_filter_cpuid(struct cpuid_table *table, bool tsc_deadline, uint64_t *ret_xcr0,
		     struct err *err);

/* Sets CPUID, XCR0, MSRs, LAPIC and registers of a fresh vCPU. */
int cpu_setup(struct kvm *kvm, const struct cm_kernel_note *note, struct err *err);

#endif
