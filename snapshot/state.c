/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of state.h's structures, one a section. A field that is added here goes to the
 * end of its table with the version that it came with, and the section's version goes up; the
 * limits are those that no valid value exceeds, whatever the host.
 */
#include "snapshot/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/layout.h"
#include "snapshot/field.h"
#include "snapshot/sections.h"

/* ---- machine ---- */

static const struct field machine_fields[] = {
	FIELD_NUMBER_MAX(struct saved_machine, memory_size, FIELD_DECIMAL, CM_RAM_MAX),
	FIELD_NUMBER_MAX(struct saved_machine, image_size, FIELD_DECIMAL, CM_IMAGE_MAX),
	FIELD_BYTES(struct saved_machine, image_digest),
	FIELD_BYTES(struct saved_machine, kernel_digest),
	FIELD_NUMBER(struct saved_machine, tsc_khz, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_machine, apic_timer_hz, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_machine, tsc, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_machine, monotonic_ns, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_machine, realtime_ns, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_machine, generation, FIELD_DECIMAL),
	FIELD_VARYING(struct saved_machine, image_path, FIELD_TEXT, SNAPSHOT_PATH_MAX),
	FIELD_NUMBER_SINCE(struct saved_machine, free_map, FIELD_HEX, 2, 0),
};
static const struct field_table machine_table =
	FIELD_TABLE("machine", 2, struct saved_machine, machine_fields);

/* ---- cpuid ---- */

static const struct field cpuid_entry_fields[] = {
	FIELD_NUMBER(struct saved_cpuid_entry, function, FIELD_HEX),
	FIELD_NUMBER(struct saved_cpuid_entry, index, FIELD_HEX),
	FIELD_NUMBER_MASK(struct saved_cpuid_entry, flags, 7),	/* KVM_CPUID_FLAG_* */
	FIELD_NUMBER(struct saved_cpuid_entry, eax, FIELD_HEX),
	FIELD_NUMBER(struct saved_cpuid_entry, ebx, FIELD_HEX),
	FIELD_NUMBER(struct saved_cpuid_entry, ecx, FIELD_HEX),
	FIELD_NUMBER(struct saved_cpuid_entry, edx, FIELD_HEX),
};
static const struct field_table cpuid_entry_table =
	FIELD_TABLE("entry", 1, struct saved_cpuid_entry, cpuid_entry_fields);

static const struct field cpuid_fields[] = {
	FIELD_NUMBER_MAX(struct saved_cpuid, count, FIELD_DECIMAL, SNAPSHOT_CPUID_MAX),
	FIELD_STRUCTS_COUNTED(struct saved_cpuid, entries, count, &cpuid_entry_table),
};
static const struct field_table cpuid_table =
	FIELD_TABLE("cpuid", 1, struct saved_cpuid, cpuid_fields);

/* ---- vcpu ---- */

static const char *const reg_names[18] = {
	"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rsp", "rbp", "r8", "r9", "r10", "r11",
	"r12", "r13", "r14", "r15", "rip", "rflags",
};
static const char *const segment_names[8] = {
	"cs", "ds", "es", "fs", "gs", "ss", "tr", "ldt",
};
static const char *const debug_names[6] = { "dr0", "dr1", "dr2", "dr3", "dr6", "dr7" };

static const struct field segment_fields[] = {
	FIELD_NUMBER(struct saved_segment, base, FIELD_HEX),
	FIELD_NUMBER(struct saved_segment, limit, FIELD_HEX),
	FIELD_NUMBER(struct saved_segment, selector, FIELD_HEX),
	FIELD_NUMBER_MAX(struct saved_segment, type, FIELD_HEX, 15),
	FIELD_BOOL(struct saved_segment, present),
	FIELD_NUMBER_MAX(struct saved_segment, dpl, FIELD_DECIMAL, 3),
	FIELD_BOOL(struct saved_segment, db),
	FIELD_BOOL(struct saved_segment, s),
	FIELD_BOOL(struct saved_segment, l),
	FIELD_BOOL(struct saved_segment, g),
	FIELD_BOOL(struct saved_segment, avl),
	FIELD_BOOL(struct saved_segment, unusable),
};
static const struct field_table segment_table =
	FIELD_TABLE("segment", 1, struct saved_segment, segment_fields);

static const struct field msr_fields[] = {
	FIELD_NUMBER(struct saved_msr, index, FIELD_HEX),
	FIELD_NUMBER(struct saved_msr, value, FIELD_HEX),
};
static const struct field_table msr_table =
	FIELD_TABLE("msr", 1, struct saved_msr, msr_fields);

static const struct field vcpu_fields[] = {
	FIELD_NUMBERS(struct saved_vcpu, regs, FIELD_HEX, reg_names),
	FIELD_STRUCTS(struct saved_vcpu, segments, segment_names, &segment_table),
	FIELD_NUMBER(struct saved_vcpu, gdt_base, FIELD_HEX),
	FIELD_NUMBER(struct saved_vcpu, idt_base, FIELD_HEX),
	FIELD_NUMBER(struct saved_vcpu, gdt_limit, FIELD_HEX),
	FIELD_NUMBER(struct saved_vcpu, idt_limit, FIELD_HEX),
	FIELD_NUMBER(struct saved_vcpu, cr0, FIELD_HEX),
	FIELD_NUMBER(struct saved_vcpu, cr2, FIELD_HEX),
	FIELD_NUMBER(struct saved_vcpu, cr3, FIELD_HEX),
	FIELD_NUMBER(struct saved_vcpu, cr4, FIELD_HEX),
	FIELD_NUMBER_MAX(struct saved_vcpu, cr8, FIELD_HEX, 15),
	FIELD_NUMBER(struct saved_vcpu, efer, FIELD_HEX),
	FIELD_NUMBER(struct saved_vcpu, apic_base, FIELD_HEX),
	FIELD_NUMBERS(struct saved_vcpu, interrupt_bitmap, FIELD_HEX, NULL),
	FIELD_NUMBER(struct saved_vcpu, xcr0, FIELD_HEX),
	/* KVM_MP_STATE_* */
	FIELD_NUMBER_MAX(struct saved_vcpu, mp_state, FIELD_DECIMAL, 4),
	FIELD_NUMBERS(struct saved_vcpu, debug, FIELD_HEX, debug_names),
	FIELD_BOOL(struct saved_vcpu, exception_injected),
	FIELD_NUMBER_MAX(struct saved_vcpu, exception_nr, FIELD_DECIMAL, 31),
	FIELD_BOOL(struct saved_vcpu, exception_has_error),
	FIELD_BOOL(struct saved_vcpu, exception_pending),
	FIELD_NUMBER(struct saved_vcpu, exception_error, FIELD_HEX),
	FIELD_BOOL(struct saved_vcpu, interrupt_injected),
	FIELD_NUMBER(struct saved_vcpu, interrupt_nr, FIELD_DECIMAL),
	FIELD_BOOL(struct saved_vcpu, interrupt_soft),
	/* KVM_X86_SHADOW_* */
	FIELD_NUMBER_MASK(struct saved_vcpu, interrupt_shadow, 3),
	FIELD_BOOL(struct saved_vcpu, nmi_injected),
	FIELD_NUMBER_MAX(struct saved_vcpu, nmi_pending, FIELD_DECIMAL, 2),
	FIELD_BOOL(struct saved_vcpu, nmi_masked),
	FIELD_NUMBER_MAX(struct saved_vcpu, sipi_vector, FIELD_HEX, 255),
	/* KVM_VCPUEVENT_VALID_* */
	FIELD_NUMBER_MASK(struct saved_vcpu, events_flags, 0x3f),
	FIELD_BOOL(struct saved_vcpu, exception_has_payload),
	FIELD_NUMBER(struct saved_vcpu, exception_payload, FIELD_HEX),
	FIELD_NUMBER_MAX(struct saved_vcpu, msr_count, FIELD_DECIMAL, SNAPSHOT_MSRS_MAX),
	FIELD_STRUCTS_COUNTED(struct saved_vcpu, msrs, msr_count, &msr_table),
	FIELD_BYTES(struct saved_vcpu, lapic),
	FIELD_VARYING(struct saved_vcpu, xsave, FIELD_HEX, SNAPSHOT_XSAVE_MAX),
};
static const struct field_table vcpu_table =
	FIELD_TABLE("vcpu", 1, struct saved_vcpu, vcpu_fields);

/* ---- console ---- */

/* What the guest wrote into the device's registers may be anything. */
static const struct field queue_fields[] = {
	FIELD_NUMBER(struct saved_queue, size, FIELD_DECIMAL),
	FIELD_BOOL(struct saved_queue, ready),
	FIELD_NUMBER(struct saved_queue, desc_gpa, FIELD_HEX),
	FIELD_NUMBER(struct saved_queue, avail_gpa, FIELD_HEX),
	FIELD_NUMBER(struct saved_queue, used_gpa, FIELD_HEX),
	FIELD_NUMBER(struct saved_queue, next_avail, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_queue, next_used, FIELD_DECIMAL),
};
static const struct field_table queue_table =
	FIELD_TABLE("queue", 1, struct saved_queue, queue_fields);

static const struct field virtio_fields[] = {
	FIELD_NUMBER(struct saved_virtio, device_id, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_virtio, status, FIELD_HEX),
	FIELD_NUMBER(struct saved_virtio, features_select, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_virtio, driver_select, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_virtio, queue_select, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_virtio, driver_features, FIELD_HEX),
	FIELD_NUMBER(struct saved_virtio, interrupt_status, FIELD_HEX),
	FIELD_NUMBER_MAX(struct saved_virtio, queue_count, FIELD_DECIMAL, SNAPSHOT_QUEUES_MAX),
	FIELD_STRUCTS_COUNTED(struct saved_virtio, queues, queue_count, &queue_table),
};
static const struct field_table virtio_table =
	FIELD_TABLE("virtio", 1, struct saved_virtio, virtio_fields);

static const struct field console_fields[] = {
	FIELD_STRUCT(struct saved_console, virtio, &virtio_table),
	FIELD_BOOL(struct saved_console, tx_held),
	FIELD_NUMBER(struct saved_console, tx_head, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_console, tx_index, FIELD_DECIMAL),
	FIELD_NUMBER(struct saved_console, tx_offset, FIELD_DECIMAL),
	FIELD_VARYING(struct saved_console, to_guest, FIELD_HEX, SNAPSHOT_TO_GUEST_MAX),
	FIELD_VARYING(struct saved_console, partial, FIELD_HEX, SNAPSHOT_FRAME_MAX),
};
static const struct field_table console_table =
	FIELD_TABLE("console", 1, struct saved_console, console_fields);

/* ---- All of them ---- */

const struct snapshot_part snapshot_parts[SNAPSHOT_PARTS] = {
	{ SNAPSHOT_MACHINE, offsetof(struct snapshot_state, machine), &machine_table },
	{ SNAPSHOT_CPUID, offsetof(struct snapshot_state, cpuid), &cpuid_table },
	{ SNAPSHOT_VCPU, offsetof(struct snapshot_state, vcpu), &vcpu_table },
	{ SNAPSHOT_CONSOLE, offsetof(struct snapshot_state, console), &console_table },
};

void snapshot_state_done(struct snapshot_state *state)
{
	for (size_t i = 0; i < SNAPSHOT_PARTS; i++)
		field_done(snapshot_parts[i].table,
			   (uint8_t *)state + snapshot_parts[i].offset);
}

int snapshot_bytes_set(struct snapshot_bytes *bytes, const void *data, uint32_t size)
{
	uint8_t *copy = NULL;

	if (size) {
		copy = malloc(size);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, data, size);
	}
	free(bytes->data);
	bytes->data = copy;
	bytes->size = size;
	return 0;
}
