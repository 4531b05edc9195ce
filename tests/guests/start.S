/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start of a tiny guest: the boot note, tables just large enough, a stack, and a call of
 * guest_main(device tree). The IDT is empty: any exception is a triple fault.
 */
#include "abi/layout.h"

	.section .note.casemate, "a", @note
	.balign 4
	.long 9, 80, CM_NOTE_BOOT
	.asciz CM_NOTE_NAME
	.balign 4
	.long CM_NOTE_VERSION, 0
	.quad guest_start
	.quad stack_top
	.quad gdt, gdt_end - gdt - 1
	.quad idt, 15
	.quad tss, 0x67
	.quad guest_start

	.text
	.globl guest_start
	.type guest_start, @function
guest_start:
	xorl %ebp, %ebp
	call guest_main
	ud2
	.size guest_start, . - guest_start

	.data
	.balign 16
gdt:	.quad 0, 0
	.quad 0x00af9b000000ffff	/* 0x10: kernel code */
	.quad 0x00cf93000000ffff	/* 0x18: kernel data */
	.quad 0x00cffb000000ffff	/* 0x20: 32-bit user code */
	.quad 0x00cff3000000ffff	/* 0x28: user data */
	.quad 0x00affb000000ffff	/* 0x30: user code */
gdt_end:
	.balign 16
idt:	.quad 0, 0
	/* No I/O bitmap: its base is beyond the limit. */
tss:	.fill 102, 1, 0
	.word 0x68

	.bss
	.balign 16
	.skip 16384
stack_top:
	.skip 16

	.section .note.GNU-stack, "", @progbits
