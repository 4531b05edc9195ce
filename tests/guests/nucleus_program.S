/* SPDX-License-Identifier: Apache-2.0 */
/* The program of nucleus.c: copied to 0x400000, position-independent. */
#define DATA_VA 0x401000
#define LAZY_VA 0x402000

.macro arguments nr
	movl	$\nr, %eax
	movl	$1, %edi
	movl	$2, %esi
	movl	$3, %edx
	movl	$4, %r10d
	movl	$5, %r8d
	movl	$6, %r9d
.endm

	.section .rodata
	.globl	program_start, program_end
program_start:
	movabsq	$0x1515151515151515, %r15
	movabsq	$0x1414141414141414, %r14
	movabsq	$0x1313131313131313, %r13
	movabsq	$0xb9b9b9b9b9b9b9b9, %rbp
	movl	$LAZY_VA, %ebx
	movl	$77, (%rbx)			/* page fault */
start:
	movl	$300, %r12d
again:
	/* red zone: must survive everything */
	movq	%r12, -8(%rsp)
	movq	%r14, -128(%rsp)
	arguments 1
	syscall
	cmpq	$0x1234, %rax
	jne	wrong
	cmpq	$6, %r9
	jne	wrong

	/* the way a system call arrives where SYSCALL does not leave ring 3 */
	arguments 2
	leaq	1f(%rip), %rcx
	movl	$0x202, %r11d
	movl	$DATA_VA, %ebx
	jmp	*(%rbx)
1:	cmpq	$0x4321, %rax
	jne	wrong

	movl	$0xabcd, %ecx
	int3
	cmpl	$0xabcd, %ecx
	jne	wrong
	ud2

	/* flags survive exceptions and interrupts */
	movl	$2000, %ecx
	stc
2:	movl	$0x5555, %r11d
	movl	$0x6666, %eax
	leaq	(%rax), %rdx
	jnc	wrong
	cmpl	$0x5555, %r11d
	jne	wrong
	cmpl	$0x6666, %edx
	jne	wrong
	stc
	decl	%ecx
	jnz	2b

	cmpq	%r12, -8(%rsp)
	jne	wrong
	cmpq	%r14, -128(%rsp)
	jne	wrong
	decl	%r12d
	jnz	again

	arguments 4
	syscall
	arguments 3				/* returns 0 when there is more to do */
	syscall
	testl	%eax, %eax
	jz	start
wrong:
	arguments 5
	syscall
	ud2
program_end:
	.section .note.GNU-stack, "", @progbits
