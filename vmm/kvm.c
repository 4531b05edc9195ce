/* SPDX-License-Identifier: Apache-2.0 */
/* KVM objects; see kvm.h. */
#include "vmm/kvm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "abi/layout.h"
#include "base/fd.h"

/* In headers newer than Debian 12's. */
#ifndef KVM_CAP_X86_APIC_BUS_CYCLES_NS
#define KVM_CAP_X86_APIC_BUS_CYCLES_NS 237
#endif

/* What there is no running without. */
static const struct {
	int cap;
	const char *name;
} needed[] = {
	{ KVM_CAP_USER_MEMORY, "user memory" },
	{ KVM_CAP_SPLIT_IRQCHIP, "a split irqchip" },
	{ KVM_CAP_READONLY_MEM, "read-only memory slots" },
	{ KVM_CAP_IOEVENTFD, "ioeventfd" },
	{ KVM_CAP_SIGNAL_MSI, "MSI injection" },
	{ KVM_CAP_IMMEDIATE_EXIT, "immediate exits" },
	{ KVM_CAP_XCRS, "extended control registers" },
	{ KVM_CAP_GET_TSC_KHZ, "the TSC frequency" },
};

static int device_open(struct err *err)
{
	int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == ENOENT)
		return err_set(err, ENOENT, "/dev/kvm is missing: this machine offers no KVM; "
			       "tools/try.sh runs a task inside the rehearsal machine");
	if (errno == EACCES || errno == EPERM)
		return err_set(err, errno, "/dev/kvm may not be opened by this user: join the "
			       "group kvm, or run tools/try.sh");
	return err_set_errno(err, errno, "/dev/kvm cannot be used (run tools/try.sh)");
}

int kvm_open(struct kvm *kvm, int device, struct err *err)
{
	*kvm = (struct kvm)KVM_INIT;
	kvm->dev = device >= 0 ? device : device_open(err);
	if (kvm->dev < 0)
		return err->code;
	if (ioctl(kvm->dev, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
		return err_set(err, EPROTO, "/dev/kvm speaks another version of its API");
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (ioctl(kvm->dev, KVM_CHECK_EXTENSION, needed[i].cap) <= 0)
			return err_set(err, EOPNOTSUPP, "this host's KVM lacks %s; a kernel "
				       "of Debian 12 or later has it", needed[i].name);
	}
	kvm->tsc_deadline =
		ioctl(kvm->dev, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) > 0;
	return 0;
}

static int vm_create(struct kvm *kvm, struct err *err)
{
	struct kvm_enable_cap split = { .cap = KVM_CAP_SPLIT_IRQCHIP };
	int ns;

	do
		kvm->vm = ioctl(kvm->dev, KVM_CREATE_VM, 0);
	while (kvm->vm < 0 && errno == EINTR);
	if (kvm->vm < 0)
		return err_set_errno(err, errno, "KVM cannot create a VM");
	if (ioctl(kvm->vm, KVM_ENABLE_CAP, &split) < 0)
		return err_set_errno(err, errno, "KVM cannot make a split irqchip");
	/* The LAPIC timer's input clock: 1 ns unless KVM says otherwise. */
	ns = ioctl(kvm->vm, KVM_CHECK_EXTENSION, KVM_CAP_X86_APIC_BUS_CYCLES_NS);
	kvm->apic_timer_hz = 1000000000ull / (ns > 0 ? (unsigned int)ns : 1);
	return 0;
}

static int slot_set(const struct kvm *kvm, const struct memory *memory, unsigned int i,
		    uint32_t flags, struct err *err)
{
	const struct memory_region *region = &memory->regions[i];
	struct kvm_userspace_memory_region slot = {
		.slot = i,
		.flags = flags,
		.guest_phys_addr = region->gpa.v,
		.memory_size = region->size,
		.userspace_addr = (uintptr_t)region->host,
	};

	if (region->size > 0 && ioctl(kvm->vm, KVM_SET_USER_MEMORY_REGION, &slot) < 0)
		return err_set_errno(err, errno, "KVM cannot take the guest's memory");
	return 0;
}

static int slots_create(struct kvm *kvm, const struct memory *memory, struct err *err)
{
	int r = 0;

	for (unsigned int i = 0; i < MEMORY_REGIONS && r == 0; i++)
		r = slot_set(kvm, memory, i,
			     memory->regions[i].read_only ? KVM_MEM_READONLY : 0, err);
	return r;
}

int kvm_track_dirty(const struct kvm *kvm, const struct memory *memory, struct err *err)
{
	int r = 0;

	for (unsigned int i = MEMORY_LOW; i <= MEMORY_HIGH && r == 0; i++)
		r = slot_set(kvm, memory, i, KVM_MEM_LOG_DIRTY_PAGES, err);
	return r;
}

int kvm_collect_dirty(const struct kvm *kvm, const struct memory *memory, struct err *err)
{
	uint64_t *noted = malloc(memory_bitmap_words(memory) * sizeof(*noted));
	int r = noted ? 0 : err_set(err, ENOMEM, "no memory for the log of changed pages");

	for (unsigned int i = MEMORY_LOW; i <= MEMORY_HIGH && r == 0; i++) {
		const struct memory_region *region = &memory->regions[i];
		struct kvm_dirty_log log = { .slot = i, .dirty_bitmap = noted };
		/* Regions begin at a multiple of 64 pages of RAM. */
		size_t at = (size_t)(region->host - memory->ram.addr) / MEMORY_PAGE / 64;

		if (region->size == 0)
			continue;
		if (ioctl(kvm->vm, KVM_GET_DIRTY_LOG, &log) < 0)
			r = err_set_errno(err, errno, "KVM cannot say which pages changed");
		for (size_t w = 0; r == 0 && w < (region->size / MEMORY_PAGE + 63) / 64; w++)
			memory->dirty[at + w] |= noted[w];
	}
	free(noted);
	return r;
}

static int vcpu_create(struct kvm *kvm, struct err *err)
{
	int size = ioctl(kvm->dev, KVM_GET_VCPU_MMAP_SIZE, 0);
	int khz, r;

	if (size < (int)sizeof(struct kvm_run))
		return err_set(err, EPROTO, "KVM answers nonsense for the vCPU's size");
	kvm->vcpu = ioctl(kvm->vm, KVM_CREATE_VCPU, 0);
	if (kvm->vcpu < 0)
		return err_set_errno(err, errno, "KVM cannot create a vCPU");
	r = map_fd(&kvm->run_map, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, kvm->vcpu,
		   0);
	if (r < 0)
		return err_set_errno(err, r, "cannot map the vCPU");
	/* A child of fork(2) makes a vCPU of its own; this mapping would keep ours alive. */
	madvise(kvm->run_map.addr, kvm->run_map.size, MADV_DONTFORK);
	kvm->run = (struct kvm_run *)kvm->run_map.addr;
	khz = ioctl(kvm->vcpu, KVM_GET_TSC_KHZ, 0);
	if (khz <= 0)
		return err_set(err, EOPNOTSUPP, "KVM does not know the TSC's frequency; the "
			       "host needs a stable TSC");
	kvm->tsc_khz = (uint64_t)khz;
	return 0;
}

void kvm_forget(struct kvm *kvm)
{
	*kvm = (struct kvm){ .dev = kvm->dev, .vm = -1, .vcpu = -1, .run_map = MAP_INIT,
			     .tsc_deadline = kvm->tsc_deadline };
}

int kvm_create(struct kvm *kvm, const struct memory *memory, struct err *err)
{
	int r = vm_create(kvm, err);

	if (r == 0)
		r = slots_create(kvm, memory, err);
	if (r == 0)
		r = vcpu_create(kvm, err);
	return r;
}

void kvm_done(struct kvm *kvm)
{
	map_done(&kvm->run_map);
	kvm->vcpu = fd_close(kvm->vcpu);
	kvm->vm = fd_close(kvm->vm);
	kvm->dev = fd_close(kvm->dev);
}

int kvm_add_doorbell(struct kvm *kvm, gpa_t gpa, uint32_t value, int eventfd,
		     struct err *err)
{
	struct kvm_ioeventfd bell = {
		.datamatch = value,
		.addr = gpa.v,
		.len = sizeof(value),
		.fd = eventfd,
		.flags = KVM_IOEVENTFD_FLAG_DATAMATCH,
	};

	if (ioctl(kvm->vm, KVM_IOEVENTFD, &bell) < 0)
		return err_set_errno(err, errno, "KVM cannot make a doorbell");
	return 0;
}

int kvm_signal_vector(const struct kvm *kvm, uint8_t vector)
{
	/* Physical destination mode, LAPIC 0, fixed delivery. */
	struct kvm_msi msi = { .address_lo = CM_LAPIC_GPA, .data = vector };

	return ioctl(kvm->vm, KVM_SIGNAL_MSI, &msi) < 0 ? -errno : 0;
}

static int msr_access(const struct kvm *kvm, unsigned long request, uint32_t index,
		      uint64_t *value)
{
	struct {
		struct kvm_msrs head;
		struct kvm_msr_entry entry;
	} msrs = { .head.nmsrs = 1, .entry = { .index = index, .data = *value } };

	errno = 0;
	if (ioctl(kvm->vcpu, request, &msrs) != 1)
		return errno ? -errno : -EIO;
	*value = msrs.entry.data;
	return 0;
}

int kvm_get_msr(const struct kvm *kvm, uint32_t index, uint64_t *ret_value)
{
	uint64_t value = 0;
	int r = msr_access(kvm, KVM_GET_MSRS, index, &value);

	if (r == 0)
		*ret_value = value;
	return r;
}

int kvm_set_msr(const struct kvm *kvm, uint32_t index, uint64_t value)
{
	return msr_access(kvm, KVM_SET_MSRS, index, &value);
}

int kvm_read_tsc(const struct kvm *kvm, uint64_t *ret_tsc, struct err *err)
{
	int r = kvm_get_msr(kvm, KVM_MSR_TSC, ret_tsc);

	return r < 0 ? err_set_errno(err, r, "KVM cannot read the guest's TSC") : 0;
}

const char *kvm_exit_name(uint32_t reason)
{
	static const char *const names[] = {
		[KVM_EXIT_UNKNOWN] = "unknown",
		[KVM_EXIT_EXCEPTION] = "exception",
		[KVM_EXIT_IO] = "port I/O",
		[KVM_EXIT_HYPERCALL] = "hypercall",
		[KVM_EXIT_DEBUG] = "debug",
		[KVM_EXIT_HLT] = "hlt",
		[KVM_EXIT_MMIO] = "MMIO",
		[KVM_EXIT_IRQ_WINDOW_OPEN] = "interrupt window",
		[KVM_EXIT_SHUTDOWN] = "shutdown",
		[KVM_EXIT_FAIL_ENTRY] = "failed entry",
		[KVM_EXIT_INTR] = "signal",
		[KVM_EXIT_SET_TPR] = "TPR write",
		[KVM_EXIT_TPR_ACCESS] = "TPR access",
		[KVM_EXIT_NMI] = "NMI",
		[KVM_EXIT_INTERNAL_ERROR] = "internal error",
		[KVM_EXIT_SYSTEM_EVENT] = "system event",
		[KVM_EXIT_IOAPIC_EOI] = "IOAPIC EOI",
		[KVM_EXIT_HYPERV] = "Hyper-V",
		[KVM_EXIT_X86_RDMSR] = "MSR read",
		[KVM_EXIT_X86_WRMSR] = "MSR write",
		[KVM_EXIT_DIRTY_RING_FULL] = "dirty ring full",
		[KVM_EXIT_AP_RESET_HOLD] = "AP reset hold",
		[KVM_EXIT_X86_BUS_LOCK] = "bus lock",
		[KVM_EXIT_XEN] = "Xen",
		[KVM_EXIT_NOTIFY] = "no progress",
	};

	if (reason < sizeof(names) / sizeof(names[0]) && names[reason])
		return names[reason];
	return "unnamed";
}
