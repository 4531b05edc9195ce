/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Into and out of the kernel, all in ring 3. Three ways in (system call, exception,
 * interrupt), one way out.
 *
 * The trapframe of current lies at cpu_kframe, the top of its kernel stack. "In the kernel" is
 * a matter of address: RIP at or above CM_USER_TOP. An interrupt there is only noted.
 *
 * The way out: return_to_user_work() until irq_pending is clear, then registers are reloaded
 * from the frame, which is only read. From the last look at irq_pending to the jump into the
 * program lies exit_critical: an interrupt there restarts the way out.
 */
#include "abi/layout.h"
#include "guest-kernel/arch/nucleus.h"
#include "guest-kernel/arch/trapframe.h"

/*
 * SYSCALL of a program that was not patched. In ring 0 on processors with virtualisation, still
 * in ring 3 on shadow-paging hosts; no stack may be used yet. RCX: return address, R11: flags.
 */
	.section .text.lstar, "ax", @progbits
	.globl	lstar
	.balign	64
lstar:
	movq	%rcx, sc_rip(%rip)
	movq	%r11, sc_rflags(%rip)
	movl	%cs, %ecx
	testb	$3, %cl
	jnz	entry_syscall
	leaq	entry_syscall(%rip), %rcx
	movl	$0x202, %r11d
	sysretq

	.text
/* All but RAX, RCX and R11, which each way in has in a place of its own. */
.macro save_registers
	movq	%r15, TF_R15(%rsp)
	movq	%r14, TF_R14(%rsp)
	movq	%r13, TF_R13(%rsp)
	movq	%r12, TF_R12(%rsp)
	movq	%rbp, TF_RBP(%rsp)
	movq	%rbx, TF_RBX(%rsp)
	movq	%r10, TF_R10(%rsp)
	movq	%r9, TF_R9(%rsp)
	movq	%r8, TF_R8(%rsp)
	movq	%rdx, TF_RDX(%rsp)
	movq	%rsi, TF_RSI(%rsp)
	movq	%rdi, TF_RDI(%rsp)
.endm

/* The trapframe of a system call; sc_rip, sc_rflags and RSP are the program's. */
.macro save_call
	movq	%rsp, sc_rsp(%rip)
	movq	cpu_kframe(%rip), %rsp
	save_registers
	movq	%rax, TF_ORIG_RAX(%rsp)
	movq	$-38, TF_RAX(%rsp)
	movq	sc_rip(%rip), %rcx
	movq	%rcx, TF_RCX(%rsp)
	movq	%rcx, TF_RIP(%rsp)
	movq	sc_rflags(%rip), %rcx
	movq	%rcx, TF_R11(%rsp)
	movq	%rcx, TF_RFLAGS(%rsp)
	movq	sc_rsp(%rip), %rcx
	movq	%rcx, TF_RSP(%rsp)
	movq	$CM_SEL_UCS, TF_CS(%rsp)
	movq	$CM_SEL_USS, TF_SS(%rsp)
	xorl	%ebp, %ebp			/* ends backtraces */
	movq	%rsp, %rdi
.endm

	.globl	entry_syscall
	.balign	64
entry_syscall:
	save_call
	call	syscall_trapped
	jmp	exit_to_user

/*
 * A patched site (mm/patch.c), by way of its trampoline: EAX is the call, RCX the site's
 * number. The return address is looked up by the number, or found out if it is not known yet.
 */
	.globl	entry_patched
	.balign	64
entry_patched:
	cld
	movq	$0x202, sc_rflags(%rip)
	cmpq	patch_returns_count(%rip), %rcx
	jae	1f
	movq	patch_returns(%rip), %r11
	movq	(%r11, %rcx, 8), %r11
	testq	%r11, %r11
	jz	1f
	movq	%r11, sc_rip(%rip)
	save_call
	call	syscall_patched
	jmp	exit_to_user
1:	movq	%rcx, sc_site(%rip)
	movq	$0, sc_rip(%rip)
	save_call
	movq	sc_site(%rip), %rsi
	call	patch_resolve
	movq	%rsp, %rdi
	call	syscall_patched
	jmp	exit_to_user

/* Way out; RSP is cpu_kframe. */
exit_to_user:
	movq	%rsp, %rdi
	call	return_to_user_work
	.globl	exit_critical_start, exit_critical_end, exit_restart
exit_critical_start:
	cmpl	$0, irq_pending(%rip)
	jne	exit_to_user
	movq	TF_RIP(%rsp), %rcx
	cmpq	%rcx, TF_RCX(%rsp)
	jne	1f
	movq	TF_RFLAGS(%rsp), %r11
	cmpq	%r11, TF_R11(%rsp)
	jne	1f
	testl	$0x100, %r11d			/* single step: only IRET is exact */
	jnz	1f

	/* A system call's return: RCX and R11 are lost to the program anyway. */
	movq	TF_R15(%rsp), %r15
	movq	TF_R14(%rsp), %r14
	movq	TF_R13(%rsp), %r13
	movq	TF_R12(%rsp), %r12
	movq	TF_RBP(%rsp), %rbp
	movq	TF_RBX(%rsp), %rbx
	movq	TF_R10(%rsp), %r10
	movq	TF_R9(%rsp), %r9
	movq	TF_R8(%rsp), %r8
	movq	TF_RAX(%rsp), %rax
	movq	TF_RDX(%rsp), %rdx
	movq	TF_RSI(%rsp), %rsi
	movq	TF_RDI(%rsp), %rdi
	pushq	%r11
	popfq
	movq	TF_RSP(%rsp), %rsp
	jmp	*%rcx

1:	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rax
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	addq	$8, %rsp
	iretq
exit_critical_end:

/* Also entered by arch_return_to_user(). */
exit_restart:
	movq	cpu_kframe(%rip), %rsp
	pushq	$0x202				/* the program's DF, AC, NT may be live */
	popfq
	jmp	exit_to_user

/*
 * Exception. RSP is an IST stack: RCX, vector, error code, then the processor's frame.
 */
	.globl	entry_exception
	.balign	16
entry_exception:
	movl	28(%rsp), %ecx			/* upper half of RIP: the kernel's own code? */
	cmpl	$(CM_KERNEL_VA >> 32), %ecx
	jae	kernel_exception
	movq	cpu_kframe(%rip), %rcx
	movq	%r11, TF_R11(%rcx)
	popq	TF_RCX(%rcx)
	popq	trap_vector(%rip)
	popq	trap_error(%rip)
	popq	TF_RIP(%rcx)
	popq	TF_CS(%rcx)
	popq	TF_RFLAGS(%rcx)
	popq	TF_RSP(%rcx)
	popq	TF_SS(%rcx)
	movq	%rcx, %rsp
	save_registers
	movq	%rax, TF_RAX(%rsp)
	movq	$-1, TF_ORIG_RAX(%rsp)
	xorl	%ebp, %ebp
	movq	%rsp, %rdi
	movq	trap_vector(%rip), %rsi
	movq	trap_error(%rip), %rdx
	movq	trap_cr2(%rip), %rcx
	call	trap_user
	jmp	exit_to_user

/* The kernel itself faulted: only a single step is survived (a program's TF flag). */
kernel_exception:
	cmpq	$1, 8(%rsp)
	jne	1f
	andq	$~0x100, 40(%rsp)
	popq	%rcx
	addq	$16, %rsp
	iretq
1:	movq	%rsp, %rdi
	movq	trap_cr2(%rip), %rsi
	movq	%rbp, %rdx
	andq	$-16, %rsp
	call	trap_kernel
	ud2

/* Interrupt of a program; its frame is in irq_frame. */
	.globl	entry_irq
	.balign	16
entry_irq:
	movq	cpu_kframe(%rip), %rsp
	save_registers
	movq	%rax, TF_RAX(%rsp)
	movq	%rcx, TF_RCX(%rsp)
	movq	%r11, TF_R11(%rsp)
	movq	$-1, TF_ORIG_RAX(%rsp)
	movq	irq_frame(%rip), %rax
	movq	%rax, TF_RIP(%rsp)
	movq	irq_frame + 8(%rip), %rax
	movq	%rax, TF_RFLAGS(%rsp)
	movq	irq_frame + 16(%rip), %rax
	movq	%rax, TF_RSP(%rsp)
	movq	$CM_SEL_UCS, TF_CS(%rsp)
	movq	$CM_SEL_USS, TF_SS(%rsp)
	xorl	%ebp, %ebp
	jmp	exit_to_user

/* nucleus_call(arg, op): ring 0 finds us by the address after the int3. */
	.globl	nucleus_call, nucleus_call_site
nucleus_call:
	movl	%esi, %eax
	int3
nucleus_call_site:
	ret

/* First instruction of the kernel, RDI = gpa of the device tree. */
	.globl	kernel_start
kernel_start:
	xorl	%ebp, %ebp
	call	kernel_main
	ud2

/* context_switch(&from->ksp, to->ksp) */
	.globl	context_switch
context_switch:
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	movq	%rsp, (%rdi)
	movq	%rsi, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	ret

/* First switch to a task: rbx = function, r12 = argument. */
	.globl	context_first
context_first:
	xorl	%ebp, %ebp
	movq	%r12, %rdi
	call	*%rbx
	ud2

/* Written by mm/patch.c, 16 bytes a site; in a segment that is writable and executable. */
	.section .trampolines, "awx", @nobits
	.balign	4096
patch_trampolines:
	.skip	4096 * 16

	.bss
	.balign	16
	.globl	patch_returns, patch_returns_count, patch_trampolines
	.globl	irq_pending, irq_frame, cpu_kframe, trap_cr2
	.globl	ist1_top, ist2_top, ist3_top, ist4_top, boot_stack_top
irq_pending:	.quad	0
cpu_kframe:	.quad	0
sc_rip:		.quad	0
sc_rflags:	.quad	0
sc_rsp:		.quad	0
sc_site:	.quad	0
patch_returns:	.quad	0
patch_returns_count: .quad 0
trap_cr2:	.quad	0
trap_vector:	.quad	0
trap_error:	.quad	0
irq_frame:	.fill	3, 8, 0			/* RIP, RFLAGS, RSP */
	.balign	64
	.skip	IST_SIZE
ist1_top:
	.skip	IST_SIZE
ist2_top:
	.skip	IST_SIZE
ist3_top:
	.skip	IST_SIZE
ist4_top:
	.skip	16384
boot_stack_top:

	.section .note.GNU-stack, "", @progbits
