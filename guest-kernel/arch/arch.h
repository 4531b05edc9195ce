/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rest of the kernel asks of the processor. Implemented in arch/ for the guest and,
 * as far as tests need it, in host/shim.c for the host build.
 *
 * Privileged work goes through the nucleus: on shadow-paging hosts 12-20 us a call.
 */
#ifndef ARCH_ARCH_H
#define ARCH_ARCH_H

#include "guest-kernel/arch/trapframe.h"
#include "guest-kernel/lib/kernel.h"

struct mm;
struct task;

/* ---- nucleus ---- */
void arch_load_cr3(paddr_t pml4);	/* switches and flushes the address space */
void arch_flush_tlb(void);		/* reload CR3: after taking rights from many pages */
void arch_invlpg(uintptr_t va);		/* one page, after taking rights or changing a frame */
void arch_wait_for_interrupt(void);	/* HLT; returns after an interrupt was noted */

/* ---- thread context ---- */
/* Kernel stacks: ARCH_KSTACK_SIZE bytes, the trapframe at the very top. */
#define ARCH_KSTACK_SIZE	16384UL
#define ARCH_KSTACK_ORDER	2
/* Switches kernel stacks, FS/GS bases, floating-point state and (if it differs) the address
 * space. Returns when somebody switches back. */
void arch_switch(struct task *from, struct task *to);
/* Makes `t` (kstack allocated) start in `fn(arg)` on its kernel stack at its first switch; fn
 * must not return. */
void arch_task_prepare(struct task *t, void (*fn)(void *), void *arg);
/* Leaves the kernel for the program as current's trapframe says: also checks signals and
 * rescheduling (return_to_user_work). Never returns. */
void arch_return_to_user(void) NORETURN;
/* Called by entry.S on every way out to a program, interrupts noted are processed first:
 * loops over rescheduling and signals until neither is pending. Defined in core/entry.c. */
void return_to_user_work(struct trapframe *tf);

/* ---- floating point (XSAVE, standard format); the kernel never touches these registers, so
 * current's are live in the processor whenever it runs ---- */
size_t fpu_size(void);			/* bytes of one state, a multiple of 64 */
uint64_t fpu_xcr0(void);
void fpu_save(void *buf);		/* live registers to buf (64-byte aligned) */
void fpu_restore(const void *buf);	/* buf must be valid: see fpu_valid */
bool fpu_valid(const void *buf);	/* would XRSTOR accept it? header, reserved bits, MXCSR */
void fpu_init_state(void *buf);		/* the state of a fresh program */

/* ---- bases ---- */
void arch_set_fsbase(uint64_t v);
uint64_t arch_get_fsbase(void);
void arch_set_gsbase(uint64_t v);
uint64_t arch_get_gsbase(void);

/* ---- time ---- */
uint64_t arch_tsc(void);
uint64_t arch_tsc_khz(void);
/* One-shot interrupt at the monotonic time given (ns); ~0 for none. */
void arch_timer_set(uint64_t deadline_ns);

/* ---- interrupts: set by the nucleus, taken by irq_process() (core/entry.c) ---- */
#define IRQ_TIMER	0x1u
#define IRQ_VIRTIO(n)	(0x100u << (n))
uint32_t arch_irq_take(void);		/* returns and clears the pending word */
bool arch_irq_pending(void);

/* Ring-0 entries by kind and patched sites, for /proc/casemate/report. */
void cpu_report(struct strbuf *sb);

/* ---- the end ---- */
void arch_end(unsigned code) NORETURN;	/* enum cm_end */
void arch_stage(unsigned stage);	/* enum cm_stage */
void arch_free_map(paddr_t map);	/* page_free_map() */
void arch_serial_write(const char *s, size_t n);

#endif
