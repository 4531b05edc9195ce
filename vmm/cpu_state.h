/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vCPU's state as saved (snapshot/state.h): taken from a stopped vCPU, and given to a
 * fresh one in place of cpu_setup(). The saved CPUID is what the guest goes on seeing; a host
 * that cannot offer all of it is refused by the name of what is missing. It comes from a file,
 * and KVM grants a guest what its CPUID says: nested virtualisation, say. So nothing is shown
 * that a guest which boots on this host would not be.
 */
#ifndef CASEMATE_VMM_CPU_STATE_H
#define CASEMATE_VMM_CPU_STATE_H

#include "base/err.h"
#include "snapshot/state.h"
#include "vmm/cpu.h"
#include "vmm/kvm.h"

/* The vCPU is out of KVM_RUN and owes no answer to an access. Returns 0 or -errno with err;
 * what was filled is the caller's to free in any case. */
int cpu_save(const struct kvm *kvm, struct saved_cpuid *cpuid, struct saved_vcpu *vcpu,
	     struct err *err);

/* Gives a fresh vCPU the saved state, its TSC included. Returns 0 or -errno with err set. */
int cpu_load(const struct kvm *kvm, const struct saved_cpuid *cpuid,
	     const struct saved_vcpu *vcpu, uint64_t tsc, struct err *err);

/* Whether a host that offers `host` can go on with `saved`. KVM-free, for tests. */
int cpu_check_cpuid(const struct saved_cpuid *saved, const struct cpuid_table *host,
		    struct err *err);

/* What KVM is told: of `saved`, leaves that the host offers, and of their features those that
 * it offers. KVM-free, for tests. */
void cpu_narrow_cpuid(const struct saved_cpuid *saved, const struct cpuid_table *host,
		      struct cpuid_table *ret);

#endif
