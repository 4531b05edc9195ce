/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of the guest: what the device tree said, and the virtio console's channel. */
#ifndef DRV_DRV_H
#define DRV_DRV_H

#include "abi/layout.h"
#include "guest-kernel/lib/kernel.h"
#include "guest-kernel/mm/page.h"

struct inode;
struct file;

/* Parsed from the device tree: drv/fdt.c. */
struct machine {
	struct phys_range ram[2];
	unsigned nram;
	paddr_t initrd_start, initrd_end;
	paddr_t image;			/* 0: no root image */
	uint64_t image_size;
	uint64_t apic_hz, tsc_hz;
	uint8_t seed[64];
	size_t seed_len;
	paddr_t virtio[CM_VIRTIO_MAX];
	unsigned nvirtio;
	char bootargs[256];
};
extern struct machine machine;
int machine_parse(const void *fdt);	/* -EINVAL: printk says what is missing */
bool machine_bootarg(const char *word);

/* One driver: the console. n is the device's place in machine.virtio. */
int virtio_console_probe(unsigned n);	/* 0, -ENODEV if it is another device */
void virtio_interrupt(unsigned n);
int channel_open(struct inode *i, struct file *f);

#endif
