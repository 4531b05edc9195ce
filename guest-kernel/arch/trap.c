/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exceptions: of programs (page faults are resolved, the rest become signals) and of the
 * kernel (panic). Also printk and panic.
 */
#include "abi/layout.h"
#include "abi/platform.h"
#include "guest-kernel/arch/cpu.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/mm/mm.h"

void trap_user(struct trapframe *tf, uint64_t vector, uint64_t error, uint64_t cr2);
void trap_kernel(const uint64_t *frame, uint64_t cr2, uint64_t rbp) NORETURN;

bool printk_enabled;

void printk(const char *fmt, ...)
{
	char buf[256];
	va_list ap;
	int n;

	if (!printk_enabled)
		return;
	va_start(ap, fmt);
	n = kvsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	arch_serial_write(buf, MIN((size_t)n, sizeof(buf) - 1));
}

static void backtrace(uint64_t rip, uint64_t rbp)
{
	printk("bt: 0x%lx\n", rip);
	for (unsigned i = 0; i < 32; i++) {
		const uint64_t *frame = (const uint64_t *)rbp;

		/* frame pointers lie on kernel stacks: in the physmap or the kernel image */
		if (rbp < CM_PHYSMAP_VA || (rbp & 7) != 0 || rbp >= 0x7fffffffff00UL)
			break;
		printk("bt: 0x%lx\n", frame[1]);
		if (frame[0] <= rbp)
			break;
		rbp = frame[0];
	}
}

static void panic_end(uint64_t rip, uint64_t rbp)
{
	if (current != NULL)
		printk("task %d %s, rip 0x%lx\n", current->tid, current->comm,
		       current->kstack != NULL ? task_frame(current)->rip : 0);
	backtrace(rip, rbp);
	arch_end(CM_END_PANIC);
}

void panic(const char *fmt, ...)
{
	static bool again;
	char buf[256];
	va_list ap;

	if (again)
		arch_end(CM_END_PANIC);
	again = true;
	printk_enabled = true;
	va_start(ap, fmt);
	kvsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	printk("panic: %s\n", buf);
	panic_end((uint64_t)__builtin_return_address(0), (uint64_t)__builtin_frame_address(0));
	__builtin_unreachable();
}

void trap_kernel(const uint64_t *f, uint64_t cr2, uint64_t rbp)
{
	printk_enabled = true;
	printk("panic: exception %lu in the kernel: error 0x%lx rip 0x%lx cs 0x%lx rsp 0x%lx "
	       "cr2 0x%lx\n", f[1], f[2], f[3], f[4], f[6], cr2);
	panic_end(f[3], rbp);
	__builtin_unreachable();
}

/* Signal and code of an exception other than a page fault (Linux's choices). */
static const struct {
	uint8_t sig, code;
} trap_signals[32] = {
	[0] = { KSIGFPE, 1 /* FPE_INTDIV */ },
	[1] = { KSIGTRAP, 2 /* TRAP_TRACE */ },
	[3] = { KSIGTRAP, KSI_KERNEL },
	[4] = { KSIGSEGV, KSI_KERNEL },
	[5] = { KSIGSEGV, KSI_KERNEL },
	[6] = { KSIGILL, 2 /* ILL_ILLOPN */ },
	[7] = { KSIGSEGV, KSI_KERNEL },
	[10] = { KSIGSEGV, KSI_KERNEL },
	[11] = { KSIGSEGV, KSI_KERNEL },
	[12] = { KSIGBUS, KSI_KERNEL },
	[13] = { KSIGSEGV, KSI_KERNEL },
	[16] = { KSIGFPE, 0 },
	[17] = { KSIGBUS, 1 /* BUS_ADRALN */ },
	[19] = { KSIGFPE, 0 },
};

/* si_code of a floating-point fault: the first unmasked exception that is pending. */
static int fpe_code(uint64_t vector)
{
	uint8_t *x = current->xstate;
	uint16_t fcw, fsw;
	uint32_t mxcsr, bits;

	fpu_save(x);
	memcpy(&fcw, x, 2);
	memcpy(&fsw, x + 2, 2);
	memcpy(&mxcsr, x + 24, 4);
	bits = vector == 16 ? (uint32_t)(fsw & ~fcw) : mxcsr & ~(mxcsr >> 7);
	if ((bits & 0x01) != 0)
		return 7;	/* FPE_FLTINV */
	if ((bits & 0x04) != 0)
		return 3;	/* FPE_FLTDIV */
	if ((bits & 0x08) != 0)
		return 4;	/* FPE_FLTOVF */
	if ((bits & 0x12) != 0)
		return 5;	/* FPE_FLTUND */
	if ((bits & 0x20) != 0)
		return 6;	/* FPE_FLTRES */
	return 0;
}

static void raise(int sig, int code, uint64_t addr, uint64_t vector, uint64_t error)
{
	current->trap_nr = vector;
	current->trap_err = error;
	signal_force(sig, code, addr, (int)vector);
}

void trap_user(struct trapframe *tf, uint64_t vector, uint64_t error, uint64_t cr2)
{
	struct fault_result r;

	cpu_stats.exceptions++;
	if (syscall_trace)
		printk("%d exception %lu error %lx rip %lx address %lx\n", current->tid,
		       vector, error, tf->rip, vector == 14 ? cr2 : 0);
	sched_account(false);
	if (vector == 14) {
		if (cr2 >= CM_USER_TOP) {
			r.sig = KSIGSEGV;
			r.code = KILL_CODE_SEGV_MAPERR;
		} else {
			r = mm_fault(current->mm, cr2,
				     (unsigned)(error & 0x1f) | FAULT_USER | FAULT_HW);
		}
		if (r.sig != 0) {
			current->trap_cr2 = cr2;
			raise(r.sig, r.code, cr2, vector, error);
		}
		sched_account(true);
		return;
	}
	if (vector >= ARRAY_SIZE(trap_signals) || trap_signals[vector].sig == 0)
		panic("exception %lu of a program at 0x%lx", vector, tf->rip);
	raise(trap_signals[vector].sig,
	      vector == 16 || vector == 19 ? fpe_code(vector) : trap_signals[vector].code,
	      trap_signals[vector].code == KSI_KERNEL ? 0 : tf->rip, vector, error);
	sched_account(true);
}
