/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processor as the rest of the kernel sees it (arch.h): nucleus calls, context switches,
 * floating-point state, the LAPIC timer. The LAPIC is in xAPIC mode, so that ring 3 programs
 * its timer by a store; end of interrupt is the nucleus's business.
 */
#include "guest-kernel/arch/cpu.h"

#include <cpuid.h>

#include "abi/layout.h"
#include "abi/platform.h"
#include "guest-kernel/arch/nucleus.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/patch.h"

extern volatile uint32_t irq_pending;
extern uint64_t cpu_kframe;
void nucleus_call(uint64_t arg, unsigned op);
void context_switch(uint64_t *from_sp, uint64_t to_sp);
void context_first(void);
void exit_restart(void) NORETURN;

static paddr_t loaded_pml4 = CM_BOOT_PT_GPA;

static uint64_t xcr0;
static size_t xstate_size = 512 + 64;
static uint32_t mxcsr_mask = 0xffbf;
static uint64_t apic_hz;
static uint64_t timer_armed = ~0ULL;

struct cpu_stats cpu_stats;

static volatile uint32_t *mmio(paddr_t pa)
{
	return (volatile uint32_t *)(CM_PHYSMAP_VA + pa);
}

void cpu_report(struct strbuf *sb)
{
	uint64_t ring0 = cpu_stats.exceptions + cpu_stats.interrupts +
			 cpu_stats.trapped_syscalls + cpu_stats.nucleus_calls;

	strbuf_printf(sb, "ring-0 entries %lu\n  exceptions %lu\n  interrupts %lu\n"
		      "  trapped system calls %lu\n  nucleus calls %lu\n", ring0,
		      cpu_stats.exceptions, cpu_stats.interrupts, cpu_stats.trapped_syscalls,
		      cpu_stats.nucleus_calls);
	strbuf_printf(sb, "patched sites %lu in %lu pages, not patchable %lu times\n",
		      patch_stats.sites, patch_stats.pages, patch_stats.refused);
}

/* ---- nucleus ---- */

void arch_load_cr3(paddr_t pml4)
{
	cpu_stats.nucleus_calls++;
	loaded_pml4 = pml4;
	nucleus_call(pml4, NUCLEUS_LOAD_CR3);
}

void arch_flush_tlb(void)
{
	arch_load_cr3(loaded_pml4);
}

void arch_invlpg(uintptr_t va)
{
	cpu_stats.nucleus_calls++;
	nucleus_call(va, NUCLEUS_INVLPG);
}

void arch_wait_for_interrupt(void)
{
	cpu_stats.nucleus_calls++;
	nucleus_call(0, NUCLEUS_HALT);
}

/* ---- floating point ---- */

void cpu_fpu_init(void)
{
	static uint8_t area[512] __attribute__((aligned(64)));
	uint32_t r[4];

	/* On shadow-paging hosts the processor's XCR0 is the host's, with components that
	 * our buffers have no room for: CPUID says what is ours, and every XSAVE and XRSTOR
	 * names just that. */
	__cpuid_count(0xd, 0, r[0], r[1], r[2], r[3]);
	xcr0 = (uint64_t)r[3] << 32 | r[0];
	xstate_size = ALIGN_UP((size_t)(r[1] > r[2] ? r[1] : r[2]), 64);
	__asm__ volatile("fxsave64 %0" : "=m"(area));
	memcpy(&mxcsr_mask, area + 28, 4);
	if (mxcsr_mask == 0)
		mxcsr_mask = 0xffbf;
}

size_t fpu_size(void)
{
	return xstate_size;
}

uint64_t fpu_xcr0(void)
{
	return xcr0;
}

void fpu_save(void *buf)
{
	/* XSAVE leaves the header's reserved bytes and XCOMP_BV alone. */
	memset((uint8_t *)buf + 512, 0, 64);
	__asm__ volatile("xsave64 (%0)" : : "r"(buf), "a"((uint32_t)xcr0),
			 "d"((uint32_t)(xcr0 >> 32)) : "memory");
}

void fpu_restore(const void *buf)
{
	__asm__ volatile("xrstor64 (%0)" : : "r"(buf), "a"((uint32_t)xcr0),
			 "d"((uint32_t)(xcr0 >> 32)) : "memory");
}

bool fpu_valid(const void *buf)
{
	const uint8_t *b = buf;
	uint64_t bv, comp;
	uint32_t mxcsr;

	memcpy(&mxcsr, b + 24, 4);
	memcpy(&bv, b + 512, 8);
	memcpy(&comp, b + 520, 8);
	if ((mxcsr & ~mxcsr_mask) != 0 || (bv & ~xcr0) != 0 || comp != 0)
		return false;
	for (unsigned i = 528; i < 576; i++) {
		if (b[i] != 0)
			return false;
	}
	return true;
}

void fpu_init_state(void *buf)
{
	uint16_t fcw = 0x37f;
	uint32_t mxcsr = 0x1f80;

	memset(buf, 0, xstate_size);
	memcpy(buf, &fcw, 2);
	memcpy((uint8_t *)buf + 24, &mxcsr, 4);
}

/* ---- bases ---- */

void arch_set_fsbase(uint64_t v)
{
	__asm__ volatile("wrfsbase %0" : : "r"(v));
}

uint64_t arch_get_fsbase(void)
{
	uint64_t v;

	__asm__ volatile("rdfsbase %0" : "=r"(v));
	return v;
}

void arch_set_gsbase(uint64_t v)
{
	__asm__ volatile("wrgsbase %0" : : "r"(v));
}

uint64_t arch_get_gsbase(void)
{
	uint64_t v;

	__asm__ volatile("rdgsbase %0" : "=r"(v));
	return v;
}

/* ---- threads ---- */

void arch_task_prepare(struct task *t, void (*fn)(void *), void *arg)
{
	uint64_t *sp = (uint64_t *)task_frame(t);

	*--sp = 0;
	*--sp = (uint64_t)context_first;
	*--sp = 0;			/* rbp */
	*--sp = (uint64_t)fn;		/* rbx */
	*--sp = (uint64_t)arg;		/* r12 */
	*--sp = 0;
	*--sp = 0;
	*--sp = 0;
	t->ksp = (uint64_t)sp;
}

void arch_switch(struct task *from, struct task *to)
{
	cpu_stats.switches++;
	if (from->state != TASK_DEAD && from->mm != NULL) {
		from->fsbase = arch_get_fsbase();
		from->gsbase = arch_get_gsbase();
		fpu_save(from->xstate);
	}
	if (to->mm != NULL) {
		mm_activate(to->mm);
		arch_set_fsbase(to->fsbase);
		arch_set_gsbase(to->gsbase);
		fpu_restore(to->xstate);
	}
	cpu_kframe = (uint64_t)task_frame(to);
	current = to;
	context_switch(&from->ksp, to->ksp);
}

void arch_return_to_user(void)
{
	cpu_kframe = (uint64_t)task_frame(current);
	exit_restart();
}

/* ---- time ---- */

uint64_t arch_tsc(void)
{
	uint32_t lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

#define APIC_SVR	0xf0
#define APIC_LVT_TIMER	0x320
#define APIC_TMICT	0x380
#define APIC_TDCR	0x3e0

void cpu_apic_init(uint64_t hz)
{
	apic_hz = hz;
	*mmio(CM_LAPIC_GPA + APIC_SVR) = 0x100 | CM_VEC_SPURIOUS;
	*mmio(CM_LAPIC_GPA + APIC_TDCR) = 0xb;		/* divide by 1 */
	*mmio(CM_LAPIC_GPA + APIC_LVT_TIMER) = CM_VEC_TIMER;	/* one-shot */
}

void arch_timer_set(uint64_t deadline_ns)
{
	uint64_t now, ticks;

	if (deadline_ns == timer_armed)
		return;
	timer_armed = deadline_ns;
	if (deadline_ns == ~0ULL) {
		*mmio(CM_LAPIC_GPA + APIC_TMICT) = 0;
		return;
	}
	now = clock_monotonic_ns();
	ticks = deadline_ns > now ? deadline_ns - now : 0;
	if (ticks > 4 * NSEC_PER_SEC)
		ticks = 4 * NSEC_PER_SEC;	/* an early interrupt does no harm */
	ticks = ticks * apic_hz / NSEC_PER_SEC;	/* apic_hz fits 32 bits: boot checks */
	*mmio(CM_LAPIC_GPA + APIC_TMICT) = ticks > 0xffffffff ? 0xffffffff :
					   ticks == 0 ? 1 : (uint32_t)ticks;
}

/* ---- interrupts ---- */

uint32_t arch_irq_take(void)
{
	uint32_t v = __atomic_exchange_n(&irq_pending, 0, __ATOMIC_SEQ_CST);

	if ((v & IRQ_TIMER) != 0)
		timer_armed = ~0ULL;
	return v;
}

bool arch_irq_pending(void)
{
	return irq_pending != 0;
}

/* ---- platform ---- */

void arch_end(unsigned code)
{
	*mmio(CM_PLATFORM_GPA + CM_PLAT_END) = code;
	for (;;)
		arch_wait_for_interrupt();
}

void arch_stage(unsigned stage)
{
	*mmio(CM_PLATFORM_GPA + CM_PLAT_STAGE) = stage;
}

void arch_free_map(paddr_t map)
{
	*mmio(CM_PLATFORM_GPA + CM_PLAT_FREE_MAP) = (uint32_t)(map >> PAGE_SHIFT);
}

void arch_serial_write(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		*mmio(CM_PLATFORM_GPA + CM_PLAT_SERIAL) = (uint8_t)s[i];
}
