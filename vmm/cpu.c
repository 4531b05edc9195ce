/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPUID and first registers; see cpu.h.
 *
 * CPUID starts from what KVM supports. Taken out: AMX (it makes every signal frame and
 * context 8 KiB larger), protection keys and shadow stacks (the guest kernel offers neither,
 * and node aborts where pkey_alloc half works), supervisor XSAVE state (ring 3 cannot use
 * it), KVM's paravirtual features (the kernel needs none), nested virtualisation, and whatever
 * tells of the host's topology. XCR0 is masked to match, for CPUID leaf 0xd and KVM_SET_XCRS.
 */
#include "vmm/cpu.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#define BIT(n)		(1u << (n))

#define XCR0_X87	0x01ull
#define XCR0_SSE	0x02ull
#define XCR0_AVX	0x04ull
#define XCR0_AVX512	0xe0ull
#define XCR0_WANTED	(XCR0_X87 | XCR0_SSE | XCR0_AVX | XCR0_AVX512)

#define MSR_STAR	0xc0000081u
#define MSR_LSTAR	0xc0000082u
#define MSR_CSTAR	0xc0000083u
#define MSR_FMASK	0xc0000084u
#define MSR_KERNEL_GS	0xc0000102u

#define CR0_BOOT	0x80050033ull	/* PG AM WP NE ET MP PE */
#define CR4_BOOT	0x00050620ull	/* OSXSAVE FSGSBASE OSXMMEXCPT OSFXSR PAE */
#define CR4_FSGSBASE	0x00010000ull
#define EFER_BOOT	0x0d01ull	/* NXE LMA LME SCE */
#define RFLAGS_BOOT	0x202ull
#define FMASK_BOOT	0x44500ull

#define APIC_BASE	(CM_LAPIC_GPA | 1u << 11 | 1u << 8)	/* enabled, xAPIC, BSP */
#define APIC_SPIV	0xf0
#define APIC_LVT0	0x350
#define APIC_LVT1	0x360
#define APIC_MASKED	(1u << 16)

static void leaf_clear(struct kvm_cpuid_entry2 *e)
{
	e->eax = e->ebx = e->ecx = e->edx = 0;
}

static int leaf_1(struct kvm_cpuid_entry2 *e, bool tsc_deadline, struct err *err)
{
	if (!(e->ecx & BIT(26)))
		return err_set(err, EOPNOTSUPP, "this CPU or its KVM lacks XSAVE");
	e->ebx = (e->ebx & 0xffff) | BIT(16);		/* one logical CPU, LAPIC 0 */
	e->ecx &= ~(BIT(2) | BIT(3) | BIT(5) | BIT(15) | BIT(21)); /* DTES64 MONITOR VMX PDCM
								     * x2APIC */
	e->ecx &= ~BIT(24);
	if (tsc_deadline)
		e->ecx |= BIT(24);
	e->ecx |= BIT(31);				/* hypervisor */
	e->edx &= ~(BIT(28) | BIT(21));			/* HTT, DS */
	return 0;
}

static bool host_has_fsgsbase(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & BIT(0));
}

static int leaf_7(struct kvm_cpuid_entry2 *e, uint64_t xcr0, struct err *err)
{
	if (e->index == 1) {
		e->eax &= ~BIT(21);			/* AMX-FP16 */
		e->edx &= ~(BIT(8) | BIT(18));		/* AMX-COMPLEX, CET-SSS */
		return 0;
	}
	if (e->index != 0)
		return 0;
	/* Shadow-paging hosts do not list FSGSBASE, yet ring 3 has it: this process too. */
	if (!(e->ebx & BIT(0)) && !host_has_fsgsbase())
		return err_set(err, EOPNOTSUPP, "this CPU or its KVM lacks FSGSBASE");
	e->ebx |= BIT(0);
	e->ebx &= ~(BIT(2) | BIT(14) | BIT(25));	/* SGX, MPX, PT */
	if (!(xcr0 & XCR0_AVX512))
		e->ebx &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) |
			    BIT(30) | BIT(31));
	/* PKU, OSPKE, WAITPKG, shadow stacks, LA57, SGX_LC, PKS */
	e->ecx &= ~(BIT(3) | BIT(4) | BIT(5) | BIT(7) | BIT(16) | BIT(30) | BIT(31));
	/* IBT, AMX-BF16, AMX-TILE, AMX-INT8 */
	e->edx &= ~(BIT(20) | BIT(22) | BIT(24) | BIT(25));
	return 0;
}

/* Size of the XSAVE area for a set of components, standard format. */
static uint32_t xsave_size(const struct cpuid_table *table, uint64_t xcr0)
{
	uint32_t size = 576;

	for (uint32_t i = 0; i < table->head.nent; i++) {
		const struct kvm_cpuid_entry2 *e = &table->entries[i];

		if (e->function == 0xd && e->index >= 2 && e->index < 64 &&
		    (xcr0 & 1ull << e->index) && e->ebx + e->eax > size)
			size = e->ebx + e->eax;
	}
	return size;
}

static void leaf_d(const struct cpuid_table *table, struct kvm_cpuid_entry2 *e, uint64_t xcr0)
{
	if (e->index == 0) {
		e->eax = (uint32_t)xcr0;
		e->edx = 0;
		e->ecx = xsave_size(table, xcr0);
		e->ebx = e->ecx;
	} else if (e->index == 1) {
		e->eax &= BIT(0) | BIT(1) | BIT(2);	/* XSAVEOPT, XSAVEC, XGETBV(1) */
		e->ebx = e->ecx = e->edx = 0;
	} else if (e->index >= 64 || !(xcr0 & 1ull << e->index)) {
		leaf_clear(e);
	}
}

static uint64_t xcr0_supported(const struct cpuid_table *table)
{
	uint64_t xcr0 = XCR0_X87 | XCR0_SSE;

	for (uint32_t i = 0; i < table->head.nent; i++) {
		const struct kvm_cpuid_entry2 *e = &table->entries[i];

		if (e->function == 0xd && e->index == 0)
			xcr0 |= e->eax & XCR0_WANTED;
	}
	if ((xcr0 & XCR0_AVX512) != XCR0_AVX512 || !(xcr0 & XCR0_AVX))
		xcr0 &= ~XCR0_AVX512;
	return xcr0;
}

static int leaf_filter(const struct cpuid_table *table, struct kvm_cpuid_entry2 *e,
		       bool tsc_deadline, uint64_t xcr0, struct err *err)
{
	switch (e->function) {
	case 0x1:
		return leaf_1(e, tsc_deadline, err);
	case 0x4:					/* one core, caches not shared */
		e->eax &= ~0xffffc000u;
		break;
	case 0x7:
		return leaf_7(e, xcr0, err);
	case 0xd:
		leaf_d(table, e, xcr0);
		break;
	case 0xa:					/* performance counters */
	case 0x12:					/* SGX */
	case 0x14:					/* processor trace */
	case 0x1d: case 0x1e:				/* AMX */
	case 0x1f:					/* topology */
	case 0x8000000a:				/* SVM */
	case 0x8000001e:				/* topology */
	case 0x8000001f:				/* memory encryption */
		leaf_clear(e);
		break;
	case 0xb:
		e->eax = 0;
		e->ebx = 0;
		e->edx = 0;				/* x2APIC id */
		break;
	case 0x40000001:				/* KVM's features */
		leaf_clear(e);
		break;
	case 0x80000001:
		if (!(e->edx & BIT(11)) || !(e->edx & BIT(20)) || !(e->edx & BIT(29)))
			return err_set(err, EOPNOTSUPP, "this CPU or its KVM lacks long mode, "
				       "NX or SYSCALL");
		e->ecx &= ~(BIT(2) | BIT(10) | BIT(12) | BIT(22)); /* SVM IBS SKINIT TOPOEXT */
		break;
	case 0x80000008:
		e->ecx = 0;				/* number of cores */
		break;
	default:
		break;
	}
	return 0;
}

int cpu_filter_cpuid(struct cpuid_table *table, bool tsc_deadline, uint64_t *ret_xcr0,
		     struct err *err)
{
	uint64_t xcr0 = xcr0_supported(table);
	bool seen_1 = false, seen_7 = false;

	for (uint32_t i = 0; i < table->head.nent; i++) {
		struct kvm_cpuid_entry2 *e = &table->entries[i];
		int r = leaf_filter(table, e, tsc_deadline, xcr0, err);

		if (r < 0)
			return r;
		seen_1 |= e->function == 1;
		seen_7 |= e->function == 7 && e->index == 0;
	}
	if (!seen_1 || !seen_7)
		return err_set(err, EOPNOTSUPP, "this CPU lacks XSAVE or FSGSBASE");
	*ret_xcr0 = xcr0;
	return 0;
}

static int setup_cpuid(struct kvm *kvm, uint64_t *ret_xcr0, struct err *err)
{
	struct cpuid_table table = { .head.nent = CPUID_ENTRIES_MAX };
	int r;

	if (ioctl(kvm->dev, KVM_GET_SUPPORTED_CPUID, &table) < 0)
		return err_set_errno(err, errno, "KVM cannot say what CPUID it supports");
	r = cpu_filter_cpuid(&table, kvm->tsc_deadline, ret_xcr0, err);
	if (r < 0)
		return r;
	if (ioctl(kvm->vcpu, KVM_SET_CPUID2, &table) < 0)
		return err_set_errno(err, errno, "KVM does not take the guest's CPUID");
	return 0;
}

static int setup_msrs(struct kvm *kvm, const struct cm_kernel_note *note, struct err *err)
{
	struct {
		struct kvm_msrs head;
		struct kvm_msr_entry entries[5];
	} msrs = {
		.head.nmsrs = 5,
		.entries = {
			{ .index = MSR_STAR,
			  .data = 0x23ull << 48 | (uint64_t)CM_SEL_KCS << 32 },
			{ .index = MSR_LSTAR, .data = note->lstar },
			{ .index = MSR_CSTAR, .data = note->lstar },
			{ .index = MSR_FMASK, .data = FMASK_BOOT },
			{ .index = MSR_KERNEL_GS, .data = 0 },
		},
	};

	if (ioctl(kvm->vcpu, KVM_SET_MSRS, &msrs) != 5)
		return err_set_errno(err, errno, "KVM does not take the guest's MSRs");
	return 0;
}

static void lapic_write(struct kvm_lapic_state *lapic, unsigned int reg, uint32_t value)
{
	memcpy(lapic->regs + reg, &value, sizeof(value));
}

static int setup_lapic(struct kvm *kvm, struct err *err)
{
	struct kvm_lapic_state lapic;

	if (ioctl(kvm->vcpu, KVM_GET_LAPIC, &lapic) < 0)
		return err_set_errno(err, errno, "KVM cannot read the guest's LAPIC");
	lapic_write(&lapic, APIC_SPIV, 0x100 | CM_VEC_SPURIOUS);
	lapic_write(&lapic, APIC_LVT0, APIC_MASKED);
	lapic_write(&lapic, APIC_LVT1, APIC_MASKED);
	if (ioctl(kvm->vcpu, KVM_SET_LAPIC, &lapic) < 0)
		return err_set_errno(err, errno, "KVM does not take the guest's LAPIC");
	return 0;
}

static int setup_xcr0(struct kvm *kvm, uint64_t xcr0, struct err *err)
{
	struct kvm_xcrs xcrs = { .nr_xcrs = 1, .xcrs = { { .xcr = 0, .value = xcr0 } } };

	if (ioctl(kvm->vcpu, KVM_SET_XCRS, &xcrs) < 0)
		return err_set_errno(err, errno, "KVM does not take the guest's XCR0");
	return 0;
}

static struct kvm_segment segment_user(uint16_t selector, bool code)
{
	return (struct kvm_segment){
		.limit = 0xffffffff,
		.selector = selector,
		.type = code ? 0xb : 0x3,
		.present = 1,
		.dpl = 3,
		.db = !code,
		.s = 1,
		.l = code,
		.g = 1,
	};
}

static int setup_sregs(struct kvm *kvm, const struct cm_kernel_note *note, struct err *err)
{
	struct kvm_sregs s;

	if (ioctl(kvm->vcpu, KVM_GET_SREGS, &s) < 0)
		return err_set_errno(err, errno, "KVM cannot read the guest's registers");
	s.cs = segment_user(CM_SEL_UCS, true);
	s.ss = segment_user(CM_SEL_USS, false);
	s.ds = s.es = s.fs = s.gs = s.ss;
	s.tr = (struct kvm_segment){ .base = note->tss, .limit = (uint32_t)note->tss_limit,
				     .selector = 0x38, .type = 0xb, .present = 1 };
	s.ldt = (struct kvm_segment){ .type = 2, .unusable = 1 };
	s.gdt.base = note->gdt;
	s.gdt.limit = (uint16_t)note->gdt_limit;
	s.idt.base = note->idt;
	s.idt.limit = (uint16_t)note->idt_limit;
	s.cr0 = CR0_BOOT;
	s.cr2 = 0;
	s.cr3 = CM_BOOT_PT_GPA;
	s.cr4 = CR4_BOOT;
	s.cr8 = 0;
	s.efer = EFER_BOOT;
	s.apic_base = APIC_BASE;
	if (ioctl(kvm->vcpu, KVM_SET_SREGS, &s) == 0)
		return 0;
	/* Where the guest's CR4 is not the processor's, KVM may not know the bit. */
	s.cr4 &= ~CR4_FSGSBASE;
	if (ioctl(kvm->vcpu, KVM_SET_SREGS, &s) < 0)
		return err_set_errno(err, errno, "KVM does not take the guest's registers");
	return 0;
}

int cpu_setup(struct kvm *kvm, const struct cm_kernel_note *note, struct err *err)
{
	struct kvm_regs regs = {
		.rip = note->entry,
		.rsp = note->stack,
		.rdi = CM_FDT_GPA,
		.rflags = RFLAGS_BOOT,
	};
	uint64_t xcr0;
	int r;

	/* CPUID first: KVM judges the rest by it. XCR0 comes before any XSAVE state, the
	 * LAPIC's base (in sregs) before its registers. */
	r = setup_cpuid(kvm, &xcr0, err);
	if (r == 0)
		r = setup_sregs(kvm, note, err);
	if (r == 0)
		r = setup_xcr0(kvm, xcr0, err);
	if (r == 0)
		r = setup_msrs(kvm, note, err);
	if (r == 0)
		r = setup_lapic(kvm, err);
	if (r < 0)
		return r;
	if (ioctl(kvm->vcpu, KVM_SET_REGS, &regs) < 0)
		return err_set_errno(err, errno, "KVM does not take the guest's registers");
	return 0;
}
