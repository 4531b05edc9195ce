/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of everything that reads the kernel file: check, load, page tables, symbols. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/boot.h"
#include "vmm/elf.h"
#include "vmm/symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct memory memory;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;
	struct elf_kernel kernel;
	char out[512];
	int fd = memfd_create("elf", 0);

	if (!memory.ram.addr && memory_init(&memory, MEMORY_RAM_MIN, &err) < 0)
		abort();
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (elf_check(fd, size, &kernel, &err) == 0) {
		err.code = 0;
		if (elf_load(fd, &kernel, &memory, &err) == 0)
			boot_page_tables(&memory, &kernel, &err);
	} else if (!err.code || !err.text[0]) {
		abort();
	}
	symbols_annotate(fd, size, "panic\nbt: 0x7fffc0000010\nbt: 0xzz\nend", out,
			 sizeof(out));
	if (strlen(out) >= sizeof(out))
		abort();
	close(fd);
	return 0;
}
