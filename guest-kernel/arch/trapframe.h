/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers of an interrupted program, at the top of its thread's kernel stack. The order is
 * that of Linux's struct pt_regs. entry.S builds it; the offsets are used there.
 */
#ifndef ARCH_TRAPFRAME_H
#define ARCH_TRAPFRAME_H

#ifndef __ASSEMBLER__
#include <stdint.h>

struct trapframe {
	uint64_t r15, r14, r13, r12, rbp, rbx;
	uint64_t r11, r10, r9, r8;
	uint64_t rax, rcx, rdx, rsi, rdi;
	uint64_t orig_rax;	/* system call number, or -1 when not in a system call */
	uint64_t rip, cs, rflags, rsp, ss;
};
_Static_assert(sizeof(struct trapframe) == 168, "entry.S relies on it");
#endif

#define TF_R15 0
#define TF_R14 8
#define TF_R13 16
#define TF_R12 24
#define TF_RBP 32
#define TF_RBX 40
#define TF_R11 48
#define TF_R10 56
#define TF_R9 64
#define TF_R8 72
#define TF_RAX 80
#define TF_RCX 88
#define TF_RDX 96
#define TF_RSI 104
#define TF_RDI 112
#define TF_ORIG_RAX 120
#define TF_RIP 128
#define TF_CS 136
#define TF_RFLAGS 144
#define TF_RSP 152
#define TF_SS 160
#define TF_SIZE 168

#endif
