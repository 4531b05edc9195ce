/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the kernel's pieces lie. Each segment starts on a page of its own, so that the VMM can
 * map it with the rights of its program header; CM_PF_SUPERVISOR takes the user bit away.
 */
#include "abi/layout.h"

OUTPUT_FORMAT(elf64-x86-64)
OUTPUT_ARCH(i386:x86-64)
ENTRY(kernel_start)

PHDRS
{
	nucleus PT_LOAD FLAGS(0x00100005);	/* R X, supervisor */
	tables PT_LOAD FLAGS(0x00100004);	/* R, supervisor */
	text PT_LOAD FLAGS(5);
	rodata PT_LOAD FLAGS(4);
	data PT_LOAD FLAGS(6);
	trampolines PT_LOAD FLAGS(7);
	note PT_NOTE FLAGS(4);
	stack PT_GNU_STACK FLAGS(6);
}

SECTIONS
{
	. = CM_KERNEL_VA;
	kernel_image_start = .;
	.nucleus.text : AT(CM_KERNEL_GPA) { *(.nucleus.text) } :nucleus
	. = ALIGN(4096);
	.nucleus.tables : { *(.nucleus.tables) } :tables
	. = ALIGN(4096);
	.text : {
		*(.text.lstar)
		*(.text .text.*)
	} :text
	. = ALIGN(4096);
	.note.casemate : { KEEP(*(.note.casemate)) } :rodata :note
	.rodata : { *(.rodata .rodata.*) } :rodata
	. = ALIGN(4096);
	.data : { *(.data .data.*) *(.got) *(.got.plt) } :data
	.bss : { *(.bss .bss.*) *(COMMON) } :data
	. = ALIGN(4096);
	.trampolines (NOLOAD) : { *(.trampolines) } :trampolines
	. = ALIGN(4096);
	kernel_image_end = .;

	ASSERT(nucleus_text == CM_KERNEL_VA, "the IDT's constants rely on it")
	ASSERT(kernel_image_end - kernel_image_start <= CM_KERNEL_MAX, "kernel too large")

	/DISCARD/ : { *(.comment) *(.note.GNU-stack) *(.note.gnu.*) *(.eh_frame*) *(.interp)
		*(.dynamic) *(.dynsym) *(.dynstr) *(.gnu.hash) *(.hash) }
}
