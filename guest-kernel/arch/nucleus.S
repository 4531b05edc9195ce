/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nucleus: everything that runs in ring 0. Descriptor tables, one stub for each vector, the
 * handful of privileged instructions, and the LSTAR stub. On shadow-paging hosts each ring-0
 * instruction costs about a microsecond, so each path is as short as it can be.
 *
 * Exceptions: the stub leaves the processor's frame where it is, on an IST stack that ring 3
 * can read, adds the vector and a scratch register, and leaves to entry_exception (entry.S),
 * which runs on that stack until it has copied the frame.
 *
 * Interrupts: noted in irq_pending and acknowledged. When a program was interrupted, the frame
 * is moved to irq_frame (ring 3 can be interrupted again at once) and ring 3 goes on at
 * entry_irq. When the kernel was, it goes on undisturbed and looks at irq_pending before it
 * returns to a program; the last instructions of that return cannot look any more, so there
 * the interrupted address is replaced by exit_restart.
 *
 * int3 at nucleus_call_site is a call from the kernel. Any other int3 is an exception.
 *
 * Stubs leave by an IRET from a frame in memory that never changes but for the stack pointer:
 * two instructions, no register lost, and IRET is emulated where SYSRET may not be.
 *
 * All gates use IST stacks: 1 exceptions, 2 interrupts, 3 double fault, 4 int3.
 */
#include "abi/layout.h"
#include "abi/platform.h"
#include "guest-kernel/arch/nucleus.h"

	.section .nucleus.text, "ax", @progbits
	.globl nucleus_text
nucleus_text:

/* To entry_exception, on the stack that the stub is on. */
.macro leave_exception
	movq	%rsp, exception_exit + 24(%rip)
	leaq	exception_exit(%rip), %rsp
	iretq
.endm

.macro exception vec, has_error
	.org	nucleus_text + \vec * NUCLEUS_STUB_SIZE
	.if	\has_error == 0
	pushq	$0
	.endif
	pushq	$\vec
	pushq	%rcx
	.if	\vec == 14
	movq	%cr2, %rcx
	movq	%rcx, trap_cr2(%rip)
	.endif
	leave_exception
.endm

	exception 0, 0
	exception 1, 0
	exception 2, 0
	.org	nucleus_text + 3 * NUCLEUS_STUB_SIZE
	jmp	breakpoint
	exception 4, 0
	exception 5, 0
	exception 6, 0
	exception 7, 0
	.org	nucleus_text + 8 * NUCLEUS_STUB_SIZE
	movl	$CM_END_DOUBLE_FAULT, %eax
	movabsl	%eax, PLATFORM_VA + CM_PLAT_END
1:	hlt
	jmp	1b
	exception 9, 0
	exception 10, 1
	exception 11, 1
	exception 12, 1
	exception 13, 1
	exception 14, 1
	exception 15, 0
	exception 16, 0
	exception 17, 1
	exception 18, 0
	exception 19, 0
	exception 20, 0
	exception 21, 1

/* Interrupts: stub 32 is the timer, 33 + n virtio device n, 41 spurious. */
	.org	nucleus_text + 32 * NUCLEUS_STUB_SIZE
	orl	$0x1, irq_pending(%rip)
	jmp	interrupt
.macro virtio_interrupt n
	.org	nucleus_text + (33 + \n) * NUCLEUS_STUB_SIZE
	orl	$(0x100 << \n), irq_pending(%rip)
	jmp	interrupt
.endm
	virtio_interrupt 0
	virtio_interrupt 1
	virtio_interrupt 2
	virtio_interrupt 3
	virtio_interrupt 4
	virtio_interrupt 5
	virtio_interrupt 6
	virtio_interrupt 7
	.org	nucleus_text + 41 * NUCLEUS_STUB_SIZE
	iretq

interrupt:
	pushq	%rax
	xorl	%eax, %eax
	movabsl	%eax, LAPIC_VA + LAPIC_EOI
	movl	12(%rsp), %eax			/* upper half of the interrupted RIP */
	cmpl	$(CM_USER_TOP >> 32), %eax
	jae	1f
	popq	%rax
	popq	irq_frame(%rip)			/* RIP */
	addq	$8, %rsp
	popq	irq_frame + 8(%rip)		/* RFLAGS */
	popq	irq_frame + 16(%rip)		/* RSP */
	leaq	irq_exit(%rip), %rsp
	iretq
1:	leaq	exit_critical_start(%rip), %rax
	cmpq	%rax, 8(%rsp)
	jb	2f
	leaq	exit_critical_end(%rip), %rax
	cmpq	%rax, 8(%rsp)
	jae	2f
	leaq	exit_restart(%rip), %rax
	movq	%rax, 8(%rsp)
2:	popq	%rax
	iretq

breakpoint:
	pushq	%r11
	leaq	nucleus_call_site(%rip), %r11
	cmpq	%r11, 8(%rsp)
	jne	3f
	cmpl	$NUCLEUS_INVLPG, %eax
	je	1f
	ja	2f
	movq	%rdi, %cr3
	popq	%r11
	iretq
1:	invlpg	(%rdi)
	popq	%r11
	iretq
2:	cmpl	$0, irq_pending(%rip)		/* interrupts are off: no wake-up is lost */
	jne	4f
	sti
	hlt
4:	popq	%r11
	iretq
3:	popq	%r11
	pushq	$0
	pushq	$3
	pushq	%rcx
	leave_exception

/* ---- Descriptor tables ---- */

	.section .nucleus.tables, "a", @progbits
	.balign	4096

.macro gate stub, ist, dpl
	.set	gate_addr, CM_KERNEL_VA + (\stub) * NUCLEUS_STUB_SIZE
	.short	gate_addr & 0xffff
	.short	CM_SEL_KCS
	.byte	\ist
	.byte	0x8e | (\dpl << 5)
	.short	(gate_addr >> 16) & 0xffff
	.long	gate_addr >> 32
	.long	0
.endm
.macro no_gate count
	.fill	\count * 2, 8, 0
.endm

nucleus_idt:
	gate	0, 1, 0
	gate	1, 1, 0
	gate	2, 1, 0
	gate	3, 4, 3
	gate	4, 1, 0
	gate	5, 1, 0
	gate	6, 1, 0
	gate	7, 1, 0
	gate	8, 3, 0
	gate	9, 1, 0
	gate	10, 1, 0
	gate	11, 1, 0
	gate	12, 1, 0
	gate	13, 1, 0
	gate	14, 1, 0
	gate	15, 1, 0
	gate	16, 1, 0
	gate	17, 1, 0
	gate	18, 1, 0
	gate	19, 1, 0
	gate	20, 1, 0
	gate	21, 1, 0
	no_gate	(CM_VEC_TIMER - 22)
	gate	32, 2, 0
	no_gate	(CM_VEC_VIRTIO(0) - CM_VEC_TIMER - 1)
	gate	33, 2, 0
	gate	34, 2, 0
	gate	35, 2, 0
	gate	36, 2, 0
	gate	37, 2, 0
	gate	38, 2, 0
	gate	39, 2, 0
	gate	40, 2, 0
	no_gate	(CM_VEC_SPURIOUS - CM_VEC_VIRTIO(8))
	gate	41, 2, 0
nucleus_idt_end:
	.if	nucleus_idt_end - nucleus_idt != 4096
	.error	"IDT size"
	.endif

/* Accessed bits set: the processor never has to write here. */
nucleus_gdt:
	.quad	0
	.quad	0
	.quad	0x00af9b000000ffff		/* 0x10 kernel code */
	.quad	0x00cf93000000ffff		/* 0x18 kernel data */
	.quad	0x00cffb000000ffff		/* 0x20 user code, 32 bit */
	.quad	0x00cff3000000ffff		/* 0x28 user data */
	.quad	0x00affb000000ffff		/* 0x30 user code */
nucleus_gdt_end:

	.balign	8
	.long	0				/* so that the IST pointers are aligned */
nucleus_tss:
	.long	0
	.quad	ist2_top, 0, 0			/* RSP0: unused, every gate has an IST */
	.quad	0
	.quad	ist1_top, ist2_top, ist3_top, ist4_top, ist1_top, ist1_top, ist1_top
	.quad	0
	.short	0
	.short	0xffff				/* no I/O bitmap: ports are closed to ring 3 */
nucleus_tss_end:

/* ---- Ways out: RIP, CS, RFLAGS with nothing but IF set, RSP, SS ---- */

	.data
	.balign	64
exception_exit:
	.quad	entry_exception, CM_SEL_UCS, 0x202, 0, CM_SEL_USS
irq_exit:				/* entry_irq takes a stack of its own */
	.quad	entry_irq, CM_SEL_UCS, 0x202, 0, CM_SEL_USS

	.section .note.casemate, "a", @note
	.balign	4
	.long	9, 80, CM_NOTE_BOOT
	.asciz	CM_NOTE_NAME
	.balign	4
	.long	CM_NOTE_VERSION, 0
	.quad	kernel_start
	.quad	boot_stack_top
	.quad	nucleus_gdt, nucleus_gdt_end - nucleus_gdt - 1
	.quad	nucleus_idt, 4095
	.quad	nucleus_tss, 103
	.quad	lstar

	.section .note.GNU-stack, "", @progbits
