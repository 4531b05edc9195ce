/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for the addresses of a kernel's backtrace. Lines "bt: 0x<address>" of a text get the
 * symbol's name and offset behind them, from the kernel ELF's symbol table, which is read only
 * now (with pread, in small pieces) and as hostile input: what does not parse gives no names.
 */
#ifndef CASEMATE_VMM_SYMBOLS_H
#define CASEMATE_VMM_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

/* Copies text to out, a string of at most size bytes, with names added. */
void symbols_annotate(int fd, uint64_t file_size, const char *text, char *out, size_t size);

/* "name+0x12" for an address, or "" where no function holds it. */
void symbols_name(int fd, uint64_t file_size, uint64_t address, char *out, size_t size);

#endif
