/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's nucleus and entry code (guest-kernel/arch/{nucleus,entry}.S) without the kernel:
 * this file plays its part. A small program in ring 3 makes system calls, faults, breaks and
 * loops while the timer fires as fast as it can, and the registers that a program may rely on
 * are compared after each way in and out. Ends with "nucleus: ok".
 */
#include "guest.h"

#include "guest-kernel/arch/nucleus.h"
#include "guest-kernel/arch/trapframe.h"

#pragma GCC visibility push(hidden)

void kernel_main(uint64_t fdt);
void syscall_trapped(struct trapframe *tf);
void syscall_patched(struct trapframe *tf);
void patch_resolve(struct trapframe *tf, uint64_t n);
void return_to_user_work(struct trapframe *tf);
void trap_user(struct trapframe *tf, uint64_t vector, uint64_t error, uint64_t cr2);
void trap_kernel(const uint64_t *frame, uint64_t cr2, uint64_t rbp);
void nucleus_call(uint64_t arg, unsigned op);
void exit_restart(void);
void lstar(void);

extern volatile uint32_t irq_pending;
extern uint64_t cpu_kframe;
extern uint8_t program_start[], program_end[];

#define PROGRAM_VA	0x400000UL
#define DATA_VA		0x401000UL
#define LAZY_VA		0x402000UL	/* mapped by the fault handler */
#define ROUNDS		300
#define INTERRUPTS	100

static uint8_t pages[8][4096] __attribute__((aligned(4096)));
static uint8_t kstack[16384] __attribute__((aligned(16)));
static unsigned calls, traps, faults, irqs, ring3_calls, runs;

static uint64_t gpa(const void *p)
{
	return (uint64_t)p - CM_KERNEL_VA + CM_KERNEL_GPA;
}

static void fail(const char *what)
{
	guest_puts("nucleus: FAILED: ");
	guest_puts(what);
	guest_puts("\n");
	guest_end(CM_END_PANIC);
}

static void timer_arm(uint32_t ticks)
{
	*guest_reg(CM_LAPIC_GPA + 0x380) = ticks;
}

static void check_registers(const struct trapframe *tf)
{
	/* what the program keeps in its registers at every moment, see program.S */
	if (tf->r15 != 0x1515151515151515 || tf->r14 != 0x1414141414141414 ||
	    tf->r13 != 0x1313131313131313 || tf->rbp != 0xb9b9b9b9b9b9b9b9)
		fail("registers");
	if (tf->rsp != DATA_VA + 4096 - 256)
		fail("stack pointer");
	if (tf->cs != CM_SEL_UCS || tf->ss != CM_SEL_USS)
		fail("selectors");
}

void syscall_patched(struct trapframe *tf)
{
	fail("a patched call, and nothing is patched");
}

void patch_resolve(struct trapframe *tf, uint64_t n)
{
	fail("a patched site, and nothing is patched");
}

void syscall_trapped(struct trapframe *tf)
{
	check_registers(tf);
	if (tf->rdi != 1 || tf->rsi != 2 || tf->rdx != 3 || tf->r10 != 4 || tf->r8 != 5 ||
	    tf->r9 != 6)
		fail("arguments");
	calls++;
	switch (tf->orig_rax) {
	case 1:
		tf->rax = 0x1234;
		break;
	case 2:			/* through lstar by a jump, as on shadow-paging hosts */
		ring3_calls++;
		tf->rax = 0x4321;
		break;
	case 3:			/* done */
		runs++;
		if (calls != runs * (2 * ROUNDS + 2) || ring3_calls != runs * ROUNDS)
			fail("calls lost");
		if (traps != runs * 2 * ROUNDS)
			fail("traps lost");
		if (faults != 1)
			fail("page faults");
		/* Each interrupt arms the next one. How many fit into a run is a matter of
		 * speed; after a lost one there would never be enough. */
		if (irqs < INTERRUPTS) {
			tf->rax = 0;
			break;
		}
		guest_puts("nucleus: ok\n");
		guest_end(CM_END_POWEROFF);
		break;
	case 4: {		/* sleep until the timer fires */
		unsigned before = irqs;

		timer_arm(2000000);
		while (irqs == before) {
			nucleus_call(0, NUCLEUS_HALT);
			return_to_user_work(tf);
		}
		tf->rax = 0;
		break;
	}
	case 5:
		fail("the program saw a wrong register");
	}
}

void return_to_user_work(struct trapframe *tf)
{
	if (__atomic_exchange_n(&irq_pending, 0, __ATOMIC_SEQ_CST) != 0) {
		irqs++;
		timer_arm(2000 + irqs * 37 % 20000);
	}
}

void trap_user(struct trapframe *tf, uint64_t vector, uint64_t error, uint64_t cr2)
{
	check_registers(tf);
	if (vector == 14) {
		if (cr2 != LAZY_VA || error != 6)
			fail("page fault's error or address");
		faults++;
		((uint64_t *)pages[3])[2] = gpa(pages[6]) | 0x67;
		return;
	}
	if (vector == 6) {
		tf->rip += 2;	/* ud2 */
		traps++;
		return;
	}
	if (vector != 3)
		fail("unexpected exception");
	traps++;
}

void trap_kernel(const uint64_t *frame, uint64_t cr2, uint64_t rbp)
{
	fail("exception in the kernel");
	__builtin_unreachable();
}

void kernel_main(uint64_t fdt)
{
	uint64_t *pml4 = guest_ram(CM_BOOT_PT_GPA);
	struct trapframe *tf = (struct trapframe *)(kstack + sizeof(kstack) - sizeof(*tf));

	/* pages: 0 PDPT, 1 PD, 3 PT, 4 program, 5 data, 6 lazy */
	for (uint64_t i = 0; i < (uint64_t)(program_end - program_start); i++)
		((volatile uint8_t *)pages[4])[i] = program_start[i];
	pml4[0] = gpa(pages[0]) | 0x67;
	((uint64_t *)pages[0])[0] = gpa(pages[1]) | 0x67;
	((uint64_t *)pages[1])[2] = gpa(pages[3]) | 0x67;
	((uint64_t *)pages[3])[0] = gpa(pages[4]) | 0x65;
	((uint64_t *)pages[3])[1] = gpa(pages[5]) | 0x67;
	((uint64_t *)pages[5])[0] = (uint64_t)lstar;
	nucleus_call(CM_BOOT_PT_GPA, NUCLEUS_LOAD_CR3);
	nucleus_call(LAZY_VA, NUCLEUS_INVLPG);

	*guest_reg(CM_LAPIC_GPA + 0xf0) = 0x100 | CM_VEC_SPURIOUS;
	*guest_reg(CM_LAPIC_GPA + 0x3e0) = 0xb;
	*guest_reg(CM_LAPIC_GPA + 0x320) = CM_VEC_TIMER;
	timer_arm(100000);

	cpu_kframe = (uint64_t)tf;
	tf->rip = PROGRAM_VA;
	tf->cs = CM_SEL_UCS;
	tf->ss = CM_SEL_USS;
	tf->rflags = 0x202;
	tf->rsp = DATA_VA + 4096 - 256;
	exit_restart();
}
