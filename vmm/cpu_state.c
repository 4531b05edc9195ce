/* SPDX-License-Identifier: Apache-2.0 */
/* The vCPU's state, saved and loaded; see cpu_state.h. */
#include "vmm/cpu_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* In headers newer than some hosts' kernels. */
#ifndef KVM_VCPU_TSC_CTRL
#define KVM_VCPU_TSC_CTRL 0
#define KVM_VCPU_TSC_OFFSET 0
#endif

/* Those that the guest's programs or nucleus can have set, or that KVM resets to something
 * else than cpu_setup() did. A host that does not know one does not have it saved. */
static const uint32_t saved_msrs[] = {
	0xc0000081, 0xc0000082, 0xc0000083, 0xc0000084,	/* STAR LSTAR CSTAR FMASK */
	0xc0000102, 0xc0000103,				/* KERNEL_GS_BASE TSC_AUX */
	0x174, 0x175, 0x176,				/* SYSENTER */
	0x277, 0x1a0,					/* PAT MISC_ENABLE */
};
_Static_assert(sizeof(saved_msrs) / sizeof(saved_msrs[0]) <= SNAPSHOT_MSRS_MAX, "MSRs");

/* ---- Features ---- */

/* Names as /proc/cpuinfo has them, bit 0 first; "" for a bit that is no promise (it varies
 * with the moment, or was taken out). */
struct feature_word {
	uint32_t function, index;
	unsigned int reg;	/* 0 eax, 1 ebx, 2 ecx, 3 edx */
	const char *names[32];
};

static const struct feature_word feature_words[] = {
	{ 0x1, 0, 2, { "pni", "pclmulqdq", "", "", "", "", "", "", "", "ssse3", "", "", "fma",
		       "cx16", "", "", "", "", "", "sse4_1", "sse4_2", "", "movbe", "popcnt",
		       "", "aes", "xsave", "", "avx", "f16c", "rdrand", "" } },
	{ 0x1, 0, 3, { "fpu", "", "", "", "tsc", "msr", "pae", "", "cx8", "apic", "", "sep",
		       "", "pge", "", "cmov", "pat", "", "", "clflush", "", "", "", "mmx",
		       "fxsr", "sse", "sse2", "", "", "", "", "" } },
	{ 0x7, 0, 1, { "fsgsbase", "", "", "bmi1", "hle", "avx2", "", "", "bmi2", "erms", "",
		       "rtm", "", "", "", "", "avx512f", "avx512dq", "rdseed", "adx", "",
		       "avx512ifma", "", "clflushopt", "clwb", "", "avx512pf", "avx512er",
		       "avx512cd", "sha_ni", "avx512bw", "avx512vl" } },
	{ 0x7, 0, 2, { "", "avx512vbmi", "", "", "", "", "avx512_vbmi2", "", "gfni", "vaes",
		       "vpclmulqdq", "avx512_vnni", "avx512_bitalg", "",
		       "avx512_vpopcntdq", "", "", "", "", "", "", "", "rdpid", "", "",
		       "cldemote", "", "movdiri", "movdir64b", "", "", "" } },
	{ 0x7, 0, 3, { "", "", "avx512_4vnniw", "avx512_4fmaps", "fsrm", "", "", "",
		       "avx512_vp2intersect", "", "", "", "", "", "serialize", "", "", "",
		       "", "", "", "", "", "avx512_fp16", "", "", "", "", "", "", "", "" } },
	{ 0x7, 1, 0, { "", "", "", "", "avx_vnni", "avx512_bf16", "", "", "", "", "fzrm",
		       "fsrs", "fsrc", "", "", "", "", "", "", "", "", "", "", "avx_ifma", "",
		       "", "", "", "", "", "", "" } },
	{ 0xd, 1, 0, { "xsaveopt", "xsavec", "xgetbv1", "", "", "", "", "", "", "", "", "", "",
		       "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "",
		       "" } },
	{ 0x80000001, 0, 2, { "lahf_lm", "", "", "", "", "abm", "sse4a", "misalignsse",
			      "3dnowprefetch", "", "", "xop", "", "", "", "", "fma4", "", "",
			      "", "", "tbm", "", "", "", "", "", "", "", "", "", "" } },
	{ 0x80000001, 0, 3, { "", "", "", "", "", "", "", "", "", "", "", "syscall", "", "",
			      "", "", "", "", "", "", "nx", "", "mmxext", "", "",
			      "fxsr_opt", "pdpe1gb", "rdtscp", "", "lm", "", "" } },
};

static const char *const xcr0_names[] = {
	"x87 state", "SSE state", "AVX state", "", "", "AVX-512 masks", "AVX-512 upper halves",
	"AVX-512 registers",
};


/* KVM's table as it is saved. */
static void cpuid_from_kvm(const struct cpuid_table *table, struct saved_cpuid *ret)
{
	ret->count = table->head.nent;
	for (uint32_t i = 0; i < table->head.nent; i++) {
		const struct kvm_cpuid_entry2 *e = &table->entries[i];

		ret->entries[i] = (struct saved_cpuid_entry){
			e->function, e->index, e->flags, e->eax, e->ebx, e->ecx, e->edx };
	}
}

static uint32_t word_of(const struct saved_cpuid *table, uint32_t function, uint32_t index,
			unsigned int reg)
{
	for (uint32_t i = 0; i < table->count; i++) {
		const struct saved_cpuid_entry *e = &table->entries[i];

		if (e->function == function && e->index == index)
			return (const uint32_t[]){ e->eax, e->ebx, e->ecx, e->edx }[reg];
	}
	return 0;
}

static int refuse(struct err *err, const char *what)
{
	return err_set(err, EOPNOTSUPP, "this host's CPU or KVM lacks %s, which the snapshot's "
		       "guest uses; restore it on a host that has it", what);
}

int cpu_check_cpuid(const struct saved_cpuid *saved, const struct cpuid_table *host_table,
		    struct err *err)
{
	struct saved_cpuid host;
	uint32_t missing;

	cpuid_from_kvm(host_table, &host);
	for (size_t i = 0; i < sizeof(feature_words) / sizeof(feature_words[0]); i++) {
		const struct feature_word *w = &feature_words[i];

		missing = word_of(saved, w->function, w->index, w->reg) &
			  ~word_of(&host, w->function, w->index, w->reg);
		for (unsigned int bit = 0; bit < 32; bit++) {
			if ((missing & 1u << bit) && w->names[bit][0])
				return refuse(err, w->names[bit]);
		}
	}
	missing = word_of(saved, 0xd, 0, 0) & ~word_of(&host, 0xd, 0, 0);
	if (missing) {
		unsigned int bit = (unsigned int)__builtin_ctz(missing);

		return refuse(err, bit < 8 && xcr0_names[bit][0] ? xcr0_names[bit] :
			      "a part of the extended state");
	}
	/* State lies in the XSAVE area where CPUID says: a place that differs is another CPU. */
	for (uint32_t i = 2; i < 64; i++) {
		uint32_t at = word_of(saved, 0xd, i, 1);

		if (at && (at != word_of(&host, 0xd, i, 1) ||
			   word_of(saved, 0xd, i, 0) != word_of(&host, 0xd, i, 0)))
			return refuse(err, "the same layout of extended state");
	}
	return 0;
}

/* ---- No more than the host's ---- */

enum { EAX = 1, EBX = 2, ECX = 4, EDX = 8, WHOLE = 15 };
#define ANY_INDEX	UINT32_MAX

/* What is not a set of features: names and figures that KVM grants nothing by, kept as the guest
 * knows them, and numbers of which each byte is at most the host's. */
static const struct {
	uint32_t first, last, index;
	unsigned int kept, least;
} figures[] = {
	{ 0x0, 0x0, ANY_INDEX, WHOLE, 0 },		/* vendor */
	{ 0x1, 0x1, ANY_INDEX, EAX, 0 },		/* family and model */
	{ 0x2, 0x2, ANY_INDEX, WHOLE, 0 },		/* caches */
	{ 0x4, 0x4, ANY_INDEX, WHOLE, 0 },
	{ 0x7, 0x7, 0, 0, EAX },			/* subleaves */
	{ 0xd, 0xd, 0, EBX | ECX, 0 },			/* sizes */
	{ 0x15, 0x16, ANY_INDEX, WHOLE, 0 },		/* frequencies */
	{ 0x80000000, 0x80000000, ANY_INDEX, WHOLE, 0 },
	{ 0x80000001, 0x80000001, ANY_INDEX, EAX, 0 },	/* family and model */
	{ 0x80000002, 0x80000006, ANY_INDEX, WHOLE, 0 },	/* the processor's name, caches */
	{ 0x80000008, 0x80000008, ANY_INDEX, 0, EAX },	/* bits of addresses */
	{ 0x80000019, 0x80000019, ANY_INDEX, WHOLE, 0 },	/* TLBs */
	{ 0x8000001d, 0x8000001d, ANY_INDEX, WHOLE, 0 },	/* caches */
};

static uint32_t bytes_least(uint32_t a, uint32_t b)
{
	uint32_t least = 0;

	for (unsigned int shift = 0; shift < 32; shift += 8) {
		uint32_t x = a >> shift & 0xff, y = b >> shift & 0xff;

		least |= (x < y ? x : y) << shift;
	}
	return least;
}

static const struct kvm_cpuid_entry2 *entry_of(const struct cpuid_table *table,
					       uint32_t function, uint32_t index)
{
	for (uint32_t i = 0; i < table->head.nent; i++) {
		if (table->entries[i].function == function && table->entries[i].index == index)
			return &table->entries[i];
	}
	return NULL;
}

static struct kvm_cpuid_entry2 entry_narrow(const struct saved_cpuid_entry *saved,
					    const struct kvm_cpuid_entry2 *host)
{
	uint32_t has[4] = { saved->eax, saved->ebx, saved->ecx, saved->edx };
	const uint32_t may[4] = { host->eax, host->ebx, host->ecx, host->edx };
	unsigned int kept = 0, least = 0;

	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		if (saved->function >= figures[i].first && saved->function <= figures[i].last &&
		    (figures[i].index == ANY_INDEX || figures[i].index == saved->index)) {
			kept = figures[i].kept;
			least = figures[i].least;
		}
	}
	for (unsigned int reg = 0; reg < 4; reg++) {
		if (least >> reg & 1)
			has[reg] = bytes_least(has[reg], may[reg]);
		else if (!(kept >> reg & 1))
			has[reg] &= may[reg];
	}
	return (struct kvm_cpuid_entry2){ .function = host->function, .index = host->index,
					  .flags = host->flags, .eax = has[0], .ebx = has[1],
					  .ecx = has[2], .edx = has[3] };
}

void cpu_narrow_cpuid(const struct saved_cpuid *saved, const struct cpuid_table *host,
		      struct cpuid_table *ret)
{
	*ret = (struct cpuid_table){ .head.nent = 0 };
	for (uint32_t i = 0; i < saved->count && i < CPUID_ENTRIES_MAX; i++) {
		const struct saved_cpuid_entry *e = &saved->entries[i];
		const struct kvm_cpuid_entry2 *h = entry_of(host, e->function, e->index);

		if (h)
			ret->entries[ret->head.nent++] = entry_narrow(e, h);
	}
}

/* ---- Saving ---- */

/* A kvm_segment and a saved_segment have the same fields. */
#define SEGMENT_COPY(to, from)							\
	do {									\
		(to)->base = (from)->base;					\
		(to)->limit = (from)->limit;					\
		(to)->selector = (from)->selector;				\
		(to)->type = (from)->type;					\
		(to)->present = (from)->present;				\
		(to)->dpl = (from)->dpl;					\
		(to)->db = (from)->db;						\
		(to)->s = (from)->s;						\
		(to)->l = (from)->l;						\
		(to)->g = (from)->g;						\
		(to)->avl = (from)->avl;					\
		(to)->unusable = (from)->unusable;				\
	} while (0)

#define SREGS_SEGMENTS(s)							\
	{ &(s)->cs, &(s)->ds, &(s)->es, &(s)->fs, &(s)->gs, &(s)->ss, &(s)->tr, &(s)->ldt }

_Static_assert(sizeof(struct kvm_regs) == sizeof(((struct saved_vcpu *)0)->regs), "registers");
_Static_assert(sizeof(struct kvm_lapic_state) == SNAPSHOT_LAPIC_SIZE, "LAPIC registers");
_Static_assert(sizeof(struct kvm_xsave) <= SNAPSHOT_XSAVE_MAX, "XSAVE area");

static int cannot(struct err *err, bool load, const char *what)
{
	return err_set_errno(err, errno ? errno : EIO, load ? "KVM does not take the saved %s" :
			     "KVM cannot read the guest's %s", what);
}

static int save_cpuid(const struct kvm *kvm, struct saved_cpuid *cpuid, struct err *err)
{
	struct cpuid_table table = { .head.nent = CPUID_ENTRIES_MAX };

	if (ioctl(kvm->vcpu, KVM_GET_CPUID2, &table) < 0)
		return cannot(err, false, "CPUID");
	cpuid_from_kvm(&table, cpuid);
	return 0;
}

static int save_sregs(const struct kvm *kvm, struct saved_vcpu *v, struct err *err)
{
	struct kvm_sregs s;
	const struct kvm_segment *from[8] = SREGS_SEGMENTS(&s);

	if (ioctl(kvm->vcpu, KVM_GET_SREGS, &s) < 0)
		return cannot(err, false, "registers");
	for (int i = 0; i < 8; i++)
		SEGMENT_COPY(&v->segments[i], from[i]);
	v->gdt_base = s.gdt.base;
	v->gdt_limit = s.gdt.limit;
	v->idt_base = s.idt.base;
	v->idt_limit = s.idt.limit;
	v->cr0 = s.cr0;
	v->cr2 = s.cr2;
	v->cr3 = s.cr3;
	v->cr4 = s.cr4;
	v->cr8 = s.cr8;
	v->efer = s.efer;
	v->apic_base = s.apic_base;
	memcpy(v->interrupt_bitmap, s.interrupt_bitmap, sizeof(v->interrupt_bitmap));
	return 0;
}

static int save_events(const struct kvm *kvm, struct saved_vcpu *v, struct err *err)
{
	struct kvm_vcpu_events e;

	if (ioctl(kvm->vcpu, KVM_GET_VCPU_EVENTS, &e) < 0)
		return cannot(err, false, "pending events");
	v->exception_injected = e.exception.injected;
	v->exception_nr = e.exception.nr;
	v->exception_has_error = e.exception.has_error_code;
	v->exception_pending = e.exception.pending;
	v->exception_error = e.exception.error_code;
	v->interrupt_injected = e.interrupt.injected;
	v->interrupt_nr = e.interrupt.nr;
	v->interrupt_soft = e.interrupt.soft;
	v->interrupt_shadow = e.interrupt.shadow;
	v->nmi_injected = e.nmi.injected;
	v->nmi_pending = e.nmi.pending;
	v->nmi_masked = e.nmi.masked;
	v->sipi_vector = e.sipi_vector;
	v->events_flags = e.flags & (KVM_VCPUEVENT_VALID_NMI_PENDING |
				     KVM_VCPUEVENT_VALID_SHADOW | KVM_VCPUEVENT_VALID_PAYLOAD);
	v->exception_has_payload = e.exception_has_payload;
	v->exception_payload = e.exception_payload;
	return 0;
}

static void save_msrs(const struct kvm *kvm, struct saved_vcpu *v)
{
	v->msr_count = 0;
	for (size_t i = 0; i < sizeof(saved_msrs) / sizeof(saved_msrs[0]); i++) {
		struct saved_msr *m = &v->msrs[v->msr_count];

		m->index = saved_msrs[i];
		if (kvm_get_msr(kvm, m->index, &m->value) == 0)
			v->msr_count++;
	}
}

static int save_rest(const struct kvm *kvm, struct saved_vcpu *v, struct err *err)
{
	struct kvm_xcrs xcrs;
	struct kvm_mp_state mp;
	struct kvm_debugregs debug;
	struct kvm_xsave xsave;
	struct kvm_lapic_state lapic;

	if (ioctl(kvm->vcpu, KVM_GET_XCRS, &xcrs) < 0 || xcrs.nr_xcrs < 1)
		return cannot(err, false, "XCR0");
	v->xcr0 = xcrs.xcrs[0].value;
	if (ioctl(kvm->vcpu, KVM_GET_MP_STATE, &mp) < 0)
		return cannot(err, false, "run state");
	v->mp_state = mp.mp_state;
	if (ioctl(kvm->vcpu, KVM_GET_DEBUGREGS, &debug) < 0)
		return cannot(err, false, "debug registers");
	memcpy(v->debug, debug.db, sizeof(debug.db));
	v->debug[4] = debug.dr6;
	v->debug[5] = debug.dr7;
	if (ioctl(kvm->vcpu, KVM_GET_LAPIC, &lapic) < 0)
		return cannot(err, false, "LAPIC");
	memcpy(v->lapic, lapic.regs, sizeof(lapic.regs));
	if (ioctl(kvm->vcpu, KVM_GET_XSAVE, &xsave) < 0)
		return cannot(err, false, "extended state");
	if (snapshot_bytes_set(&v->xsave, &xsave, sizeof(xsave)) < 0)
		return err_set(err, ENOMEM, "no memory for the guest's extended state");
	return 0;
}

int cpu_save(const struct kvm *kvm, struct saved_cpuid *cpuid, struct saved_vcpu *vcpu,
	     struct err *err)
{
	struct kvm_regs regs;
	int r = save_cpuid(kvm, cpuid, err);

	if (r == 0 && ioctl(kvm->vcpu, KVM_GET_REGS, &regs) < 0)
		r = cannot(err, false, "registers");
	if (r == 0)
		r = save_sregs(kvm, vcpu, err);
	if (r == 0)
		r = save_events(kvm, vcpu, err);
	if (r == 0)
		r = save_rest(kvm, vcpu, err);
	if (r < 0)
		return r;
	save_msrs(kvm, vcpu);
	memcpy(vcpu->regs, &regs, sizeof(vcpu->regs));
	return 0;
}

/* ---- Loading ---- */

static int load_cpuid(const struct kvm *kvm, const struct saved_cpuid *cpuid, struct err *err)
{
	struct cpuid_table host = { .head.nent = CPUID_ENTRIES_MAX }, table;
	uint64_t xcr0;
	int r;

	if (ioctl(kvm->dev, KVM_GET_SUPPORTED_CPUID, &host) < 0)
		return err_set_errno(err, errno, "KVM cannot say what CPUID it supports");
	r = cpu_filter_cpuid(&host, kvm->tsc_deadline, &xcr0, err);
	if (r == 0)
		r = cpu_check_cpuid(cpuid, &host, err);
	if (r < 0)
		return r;
	cpu_narrow_cpuid(cpuid, &host, &table);
	if (ioctl(kvm->vcpu, KVM_SET_CPUID2, &table) < 0)
		return cannot(err, true, "CPUID");
	return 0;
}

static int load_sregs(const struct kvm *kvm, const struct saved_vcpu *v, struct err *err)
{
	struct kvm_sregs s = {
		.gdt = { .base = v->gdt_base, .limit = v->gdt_limit },
		.idt = { .base = v->idt_base, .limit = v->idt_limit },
		.cr0 = v->cr0, .cr2 = v->cr2, .cr3 = v->cr3, .cr4 = v->cr4, .cr8 = v->cr8,
		.efer = v->efer, .apic_base = v->apic_base,
	};
	struct kvm_segment *to[8] = SREGS_SEGMENTS(&s);

	for (int i = 0; i < 8; i++)
		SEGMENT_COPY(to[i], &v->segments[i]);
	memcpy(s.interrupt_bitmap, v->interrupt_bitmap, sizeof(s.interrupt_bitmap));
	return ioctl(kvm->vcpu, KVM_SET_SREGS, &s) < 0 ? cannot(err, true, "registers") : 0;
}

static int load_events(const struct kvm *kvm, const struct saved_vcpu *v, struct err *err)
{
	struct kvm_vcpu_events e = {
		.exception = { v->exception_injected, v->exception_nr, v->exception_has_error,
			       v->exception_pending, v->exception_error },
		.interrupt = { v->interrupt_injected, v->interrupt_nr, v->interrupt_soft,
			       v->interrupt_shadow },
		.nmi = { v->nmi_injected, v->nmi_pending, v->nmi_masked, 0 },
		.sipi_vector = v->sipi_vector,
		.flags = v->events_flags,
		.exception_has_payload = v->exception_has_payload,
		.exception_payload = v->exception_payload,
	};

	return ioctl(kvm->vcpu, KVM_SET_VCPU_EVENTS, &e) < 0 ?
	       cannot(err, true, "pending events") : 0;
}

static int load_extended(const struct kvm *kvm, const struct saved_vcpu *v, struct err *err)
{
	struct kvm_xcrs xcrs = { .nr_xcrs = 1, .xcrs = { { .xcr = 0, .value = v->xcr0 } } };
	struct kvm_xsave xsave;

	if (v->xsave.size != sizeof(xsave))
		return err_set(err, EINVAL, "the saved extended state has %u bytes, %zu are "
			       "needed", v->xsave.size, sizeof(xsave));
	memcpy(&xsave, v->xsave.data, sizeof(xsave));
	if (ioctl(kvm->vcpu, KVM_SET_XCRS, &xcrs) < 0)
		return cannot(err, true, "XCR0");
	return ioctl(kvm->vcpu, KVM_SET_XSAVE, &xsave) < 0 ?
	       cannot(err, true, "extended state") : 0;
}

/* The TSC goes on from the saved value. By its offset, since KVM takes a write of a value
 * near the present one for an attempt to synchronise and drops it; by the write where the
 * offset cannot be had. That it be exact is not needed: the clock page names the value. */
static int load_tsc(const struct kvm *kvm, uint64_t tsc, struct err *err)
{
	uint64_t offset, now;
	struct kvm_device_attr attr = { .group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET,
					.addr = (uintptr_t)&offset };
	int r = kvm_read_tsc(kvm, &now, err);

	if (r < 0)
		return r;
	if (ioctl(kvm->vcpu, KVM_GET_DEVICE_ATTR, &attr) == 0) {
		offset += tsc - now;
		if (ioctl(kvm->vcpu, KVM_SET_DEVICE_ATTR, &attr) == 0)
			return 0;
	}
	if (kvm_set_msr(kvm, KVM_MSR_TSC, tsc) < 0)
		return cannot(err, true, "TSC");
	return 0;
}

static bool msr_is_saved(uint32_t index)
{
	for (size_t i = 0; i < sizeof(saved_msrs) / sizeof(saved_msrs[0]); i++) {
		if (saved_msrs[i] == index)
			return true;
	}
	return false;
}

static int load_msrs(const struct kvm *kvm, const struct saved_vcpu *v, struct err *err)
{
	for (uint32_t i = 0; i < v->msr_count; i++) {
		if (!msr_is_saved(v->msrs[i].index))
			return err_set(err, EINVAL, "the snapshot sets MSR 0x%x, which is none "
				       "that is saved", v->msrs[i].index);
		if (kvm_set_msr(kvm, v->msrs[i].index, v->msrs[i].value) < 0)
			return err_set(err, EIO, "KVM does not take the saved MSR 0x%x",
				       v->msrs[i].index);
	}
	return 0;
}

static int load_rest(const struct kvm *kvm, const struct saved_vcpu *v, struct err *err)
{
	struct kvm_mp_state mp = { .mp_state = v->mp_state };
	struct kvm_debugregs debug = { .dr6 = v->debug[4], .dr7 = v->debug[5] };
	struct kvm_lapic_state lapic;
	struct kvm_regs regs;
	int r;

	memcpy(lapic.regs, v->lapic, sizeof(lapic.regs));
	memcpy(debug.db, v->debug, sizeof(debug.db));
	memcpy(&regs, v->regs, sizeof(regs));
	if (ioctl(kvm->vcpu, KVM_SET_LAPIC, &lapic) < 0)
		return cannot(err, true, "LAPIC");
	if (ioctl(kvm->vcpu, KVM_SET_DEBUGREGS, &debug) < 0)
		return cannot(err, true, "debug registers");
	r = load_events(kvm, v, err);
	if (r < 0)
		return r;
	if (ioctl(kvm->vcpu, KVM_SET_MP_STATE, &mp) < 0)
		return cannot(err, true, "run state");
	return ioctl(kvm->vcpu, KVM_SET_REGS, &regs) < 0 ? cannot(err, true, "registers") : 0;
}

int cpu_load(const struct kvm *kvm, const struct saved_cpuid *cpuid,
	     const struct saved_vcpu *vcpu, uint64_t tsc, struct err *err)
{
	/* CPUID first: KVM judges the rest by it. XCR0 comes before any XSAVE state, the
	 * LAPIC's base (in sregs) before its registers. */
	int r = load_cpuid(kvm, cpuid, err);

	if (r == 0)
		r = load_sregs(kvm, vcpu, err);
	if (r == 0)
		r = load_extended(kvm, vcpu, err);
	if (r == 0)
		r = load_msrs(kvm, vcpu, err);
	if (r == 0)
		r = load_tsc(kvm, tsc, err);
	return r == 0 ? load_rest(kvm, vcpu, err) : r;
}
