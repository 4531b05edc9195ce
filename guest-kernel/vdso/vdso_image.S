/* SPDX-License-Identifier: Apache-2.0 */
/* The vDSO's file, page aligned, to be mapped into programs. */
	.section .rodata.vdso, "a", @progbits
	.balign	4096
	.globl	vdso_start, vdso_end
vdso_start:
	.incbin	"vdso.so"
	.balign	4096
vdso_end:
	.section .note.GNU-stack, "", @progbits
