/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is saved of a VM besides its memory, as plain structures: the VMM copies from its
 * devices and KVM into them and back. Needs no KVM.
 *
 * Each structure is one section of a snapshot file. Its table of fields (state.c) drives
 * saving, loading, checking, printing and fuzzing; a section's version goes up when its table
 * changes, and fields that a file of an older version lacks get the table's default. Loading
 * checks each field's own range; whether the parts fit each other and this host is judged by
 * who applies them (vmm/restore.c) before anything is applied.
 */
#ifndef CASEMATE_SNAPSHOT_STATE_H
#define CASEMATE_SNAPSHOT_STATE_H

#include <stdbool.h>
#include <stdint.h>

#define SNAPSHOT_DIGEST		32u	/* bytes: SHA-256 */
#define SNAPSHOT_CPUID_MAX	256u
#define SNAPSHOT_MSRS_MAX	32u
#define SNAPSHOT_XSAVE_MAX	16384u
#define SNAPSHOT_LAPIC_SIZE	1024u	/* KVM_GET_LAPIC's registers */
#define SNAPSHOT_QUEUES_MAX	4u
#define SNAPSHOT_TO_GUEST_MAX	524288u	/* at least vmm/console.c's queue */
#define SNAPSHOT_FRAME_MAX	65552u	/* a frame of abi/channel.h with its header */
#define SNAPSHOT_PATH_MAX	4096u

/* Bytes of a length that varies; the memory is the structure's: snapshot_state_done(). */
struct snapshot_bytes {
	uint32_t size;
	uint8_t *data;
};

struct saved_machine {
	uint64_t memory_size;		/* bytes of RAM */
	uint64_t image_size;		/* bytes of the root image, 0: none */
	uint8_t image_digest[SNAPSHOT_DIGEST];	/* of its first 4 KiB: the superblock */
	uint8_t kernel_digest[SNAPSHOT_DIGEST];	/* of the kernel's file, for symbols */
	uint64_t tsc_khz;
	uint64_t apic_timer_hz;
	uint64_t tsc;			/* the guest's, when it was stopped */
	uint64_t monotonic_ns;		/* the guest's CLOCK_MONOTONIC then */
	uint64_t realtime_ns;		/* the host's clock then, since 1970 */
	uint64_t generation;		/* the clock page's */
	struct snapshot_bytes image_path;	/* where the image was, for a person's ease */
	uint32_t free_map;		/* abi/platform.h: CM_PLAT_FREE_MAP */
};

struct saved_cpuid_entry {
	uint32_t function, index, flags, eax, ebx, ecx, edx;
};

struct saved_cpuid {
	uint32_t count;
	struct saved_cpuid_entry entries[SNAPSHOT_CPUID_MAX];
};

struct saved_segment {
	uint64_t base;
	uint32_t limit;
	uint16_t selector;
	uint8_t type, present, dpl, db, s, l, g, avl, unusable;
};

struct saved_msr {
	uint32_t index;
	uint64_t value;
};

struct saved_vcpu {
	/* rax rbx rcx rdx rsi rdi rsp rbp r8-r15 rip rflags, as struct kvm_regs */
	uint64_t regs[18];
	/* cs ds es fs gs ss tr ldt, as struct kvm_sregs */
	struct saved_segment segments[8];
	uint64_t gdt_base, idt_base;
	uint16_t gdt_limit, idt_limit;
	uint64_t cr0, cr2, cr3, cr4, cr8, efer, apic_base;
	uint64_t interrupt_bitmap[4];
	uint64_t xcr0;
	uint32_t mp_state;
	uint64_t debug[6];		/* dr0-dr3, dr6, dr7 */
	/* struct kvm_vcpu_events, field by field */
	uint8_t exception_injected, exception_nr, exception_has_error, exception_pending;
	uint32_t exception_error;
	uint8_t interrupt_injected, interrupt_nr, interrupt_soft, interrupt_shadow;
	uint8_t nmi_injected, nmi_pending, nmi_masked;
	uint32_t sipi_vector, events_flags;
	uint8_t exception_has_payload;
	uint64_t exception_payload;
	uint32_t msr_count;
	struct saved_msr msrs[SNAPSHOT_MSRS_MAX];
	uint8_t lapic[SNAPSHOT_LAPIC_SIZE];
	struct snapshot_bytes xsave;
};

struct saved_queue {
	uint32_t size;
	uint8_t ready;
	uint64_t desc_gpa, avail_gpa, used_gpa;
	uint16_t next_avail, next_used;
};

struct saved_virtio {
	uint32_t device_id;
	uint32_t status, features_select, driver_select, queue_select;
	uint64_t driver_features;
	uint32_t interrupt_status;
	uint32_t queue_count;
	struct saved_queue queues[SNAPSHOT_QUEUES_MAX];
};

struct saved_console {
	struct saved_virtio virtio;
	uint8_t tx_held;		/* a transmit chain is half taken: */
	uint16_t tx_head;		/* its first descriptor */
	uint32_t tx_index, tx_offset;	/* the buffer and the byte in it that come next */
	struct snapshot_bytes to_guest;	/* whole frames, but that the first may lack a front */
	struct snapshot_bytes partial;	/* the front of a frame that the guest is sending */
};

struct snapshot_state {
	struct saved_machine machine;
	struct saved_cpuid cpuid;
	struct saved_vcpu vcpu;
	struct saved_console console;
};

/* Frees what the state's bytes hold and zeroes it; harmless on a zeroed one. */
void snapshot_state_done(struct snapshot_state *state);

/* Copies into a field of varying length. Returns 0 or -ENOMEM. */
int snapshot_bytes_set(struct snapshot_bytes *bytes, const void *data, uint32_t size);

#endif
