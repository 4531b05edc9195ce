/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The KVM objects of one VM: the device, the VM with a split irqchip (LAPIC in the kernel, no
 * PIC, PIT or IOAPIC anywhere), its memory slots and its one vCPU. Made by the main thread;
 * afterwards only kvm_signal_msi() is called from the loop thread and KVM_RUN from the vCPU's.
 */
#ifndef CASEMATE_VMM_KVM_H
#define CASEMATE_VMM_KVM_H

#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "vmm/memory.h"

struct kvm {
	int dev;
	int vm;
	int vcpu;
	struct map run_map;
	struct kvm_run *run;	/* the vCPU's shared page, in run_map */
	uint64_t tsc_khz;
	uint64_t apic_timer_hz;
	bool tsc_deadline;
};

#define KVM_INIT { .dev = -1, .vm = -1, .vcpu = -1, .run_map = MAP_INIT }

/* Opens /dev/kvm, or takes it as it was passed (else -1), and checks what it can do; err says
 * what to do where it cannot. */
int kvm_open(struct kvm *kvm, int device, struct err *err);

/* VM, irqchip, memory slots, vCPU. memory must outlive it. */
int kvm_create(struct kvm *kvm, const struct memory *memory, struct err *err);
void kvm_done(struct kvm *kvm);

/* In a child of fork(2): all but the device is the parent's, and its descriptors are closed
 * already. kvm_create() may follow. */
void kvm_forget(struct kvm *kvm);

/* A 32-bit guest write of `value` to gpa signals the eventfd, without an exit to us. */
int kvm_add_doorbell(struct kvm *kvm, gpa_t gpa, uint32_t value, int eventfd,
		     struct err *err);

/* From now on KVM notes which pages of RAM the guest writes. Returns 0 or -errno with err. */
int kvm_track_dirty(const struct kvm *kvm, const struct memory *memory, struct err *err);
/* Adds what it noted to memory->dirty, and begins anew. The vCPU is stopped. */
int kvm_collect_dirty(const struct kvm *kvm, const struct memory *memory, struct err *err);

/* An edge-triggered interrupt to the vCPU's LAPIC. Returns 0 or -errno. */
int kvm_signal_vector(const struct kvm *kvm, uint8_t vector);

#define KVM_MSR_TSC	0x10u	/* IA32_TIME_STAMP_COUNTER */

/* One MSR. Return 0, or -errno; -EIO where KVM does not know it. */
int kvm_get_msr(const struct kvm *kvm, uint32_t index, uint64_t *ret_value);
int kvm_set_msr(const struct kvm *kvm, uint32_t index, uint64_t value);

/* The guest's TSC now. */
int kvm_read_tsc(const struct kvm *kvm, uint64_t *ret_tsc, struct err *err);

const char *kvm_exit_name(uint32_t reason);

#endif
