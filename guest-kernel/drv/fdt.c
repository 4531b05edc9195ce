/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the device tree (abi/devicetree.h) with libfdt into struct machine. The host wrote it,
 * but a wrong one should say so rather than fault.
 */
#include <libfdt.h>

#include "abi/devicetree.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/drv/drv.h"

struct machine machine;
const char *kernel_cmdline = machine.bootargs;

static uint64_t be64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return __builtin_bswap64(v);
}

static bool prop_u64(const void *fdt, int node, const char *name, uint64_t *ret)
{
	int len;
	const void *p = fdt_getprop(fdt, node, name, &len);

	if (p == NULL || len != 8)
		return false;
	*ret = be64(p);
	return true;
}

/* Entry i of a two-cell, two-cell reg. */
static bool prop_reg(const void *fdt, int node, unsigned i, uint64_t *base, uint64_t *size)
{
	int len;
	const uint8_t *p = fdt_getprop(fdt, node, "reg", &len);

	if (p == NULL || (unsigned)len < (i + 1) * 16)
		return false;
	*base = be64(p + i * 16);
	*size = be64(p + i * 16 + 8);
	return true;
}

static void parse_memory(const void *fdt)
{
	int node = fdt_path_offset(fdt, "/memory@0");
	uint64_t base, size;

	for (unsigned i = 0; node >= 0 && i < 2 && prop_reg(fdt, node, i, &base, &size); i++) {
		if (size == 0)
			continue;
		machine.ram[machine.nram].start = base;
		machine.ram[machine.nram++].end = base + size;
	}
}

static void parse_chosen(const void *fdt)
{
	int node = fdt_path_offset(fdt, "/chosen"), len;
	const void *p;

	if (node < 0)
		return;
	prop_u64(fdt, node, CM_DT_INITRD_START, &machine.initrd_start);
	prop_u64(fdt, node, CM_DT_INITRD_END, &machine.initrd_end);
	p = fdt_getprop(fdt, node, "rng-seed", &len);
	if (p != NULL && len > 0) {
		machine.seed_len = MIN((size_t)len, sizeof(machine.seed));
		memcpy(machine.seed, p, machine.seed_len);
	}
	p = fdt_getprop(fdt, node, "bootargs", &len);
	if (p != NULL && len > 0) {
		size_t n = MIN((size_t)len, sizeof(machine.bootargs) - 1);

		memcpy(machine.bootargs, p, n);
		machine.bootargs[n] = '\0';
	}
}

static void parse_virtio(const void *fdt)
{
	int node;

	for (node = fdt_node_offset_by_compatible(fdt, -1, CM_DT_VIRTIO_MMIO); node >= 0;
	     node = fdt_node_offset_by_compatible(fdt, node, CM_DT_VIRTIO_MMIO)) {
		uint64_t base, size;
		int len;
		const uint8_t *p = fdt_getprop(fdt, node, "interrupts", &len);
		unsigned vector, n;

		if (p == NULL || len < 4 || !prop_reg(fdt, node, 0, &base, &size))
			continue;
		vector = (unsigned)p[2] << 8 | p[3];
		n = vector - CM_VEC_VIRTIO(0);
		if (n >= CM_VIRTIO_MAX)
			continue;
		machine.virtio[n] = base;
		machine.nvirtio = MAX(machine.nvirtio, n + 1);
	}
}

int machine_parse(const void *fdt)
{
	uint64_t size;
	int node;

	if (fdt_check_header(fdt) != 0 || fdt_totalsize(fdt) > CM_FDT_MAX) {
		printk("device tree: bad header\n");
		return -EINVAL;
	}
	parse_memory(fdt);
	parse_chosen(fdt);
	parse_virtio(fdt);
	node = fdt_path_offset(fdt, "/cpus/cpu@0");
	if (node >= 0) {
		prop_u64(fdt, node, CM_DT_APIC_HZ, &machine.apic_hz);
		prop_u64(fdt, node, CM_DT_TSC_HZ, &machine.tsc_hz);
	}
	node = fdt_node_offset_by_compatible(fdt, -1, CM_DT_PMEM);
	if (node >= 0 && prop_reg(fdt, node, 0, &machine.image, &size)) {
		if (!prop_u64(fdt, node, CM_DT_IMAGE_SIZE, &machine.image_size) ||
		    machine.image_size > size)
			machine.image_size = size;
	}
	if (machine.nram == 0 || machine.apic_hz == 0 || machine.apic_hz > 0xffffffff) {
		printk("device tree: no memory or no timer frequency\n");
		return -EINVAL;
	}
	return 0;
}

bool machine_bootarg(const char *word)
{
	const char *p = machine.bootargs;
	size_t n = strlen(word);

	while ((p = strstr(p, word)) != NULL) {
		if ((p == machine.bootargs || p[-1] == ' ') && (p[n] == '\0' || p[n] == ' '))
			return true;
		p += n;
	}
	return false;
}

uint64_t arch_tsc_khz(void)
{
	return machine.tsc_hz / 1000;
}
