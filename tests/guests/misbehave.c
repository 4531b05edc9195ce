/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One misdeed, chosen by the boot arguments in the device tree (looked for as plain text):
 * each must end this guest alone, with its reason.
 */
#include "guest.h"

static int word_is_there(const char *word)
{
	const char *fdt = guest_ram(CM_FDT_GPA);

	for (uint32_t at = 0; at < CM_FDT_MAX - 64; at++) {
		uint32_t n = 0;

		while (word[n] && fdt[at + n] == word[n])
			n++;
		if (!word[n])
			return 1;
	}
	return 0;
}

static uint64_t *table_below(const uint64_t *table, uint64_t index)
{
	return guest_ram(table[index] & 0x000ffffffffff000);
}

/* Makes the physmap's page of the image writable first: it is the slot that must hold. RAM of
 * the test ends below 3 GiB, so that the image is at 4 GiB. */
static void image_write(void)
{
	uint64_t *pdpt = table_below(guest_ram(CM_BOOT_PT_GPA), CM_KERNEL_SLOT);
	volatile uint64_t *pd = table_below(pdpt, CM_RAM_HIGH_GPA >> 30);

	pd[0] |= 2;
	*guest_reg(CM_RAM_HIGH_GPA) = 1;
}

#define VIRTIO(reg) (*guest_reg(CM_VIRTIO_GPA(0) + (reg)))

/* Sets the console's transmit queue up, with its rings at given places. */
static void queue_up(uint64_t desc, uint64_t avail, uint64_t used, uint32_t size)
{
	VIRTIO(0x070) = 0;
	VIRTIO(0x070) = 3;
	VIRTIO(0x024) = 1;
	VIRTIO(0x020) = 1;
	VIRTIO(0x070) = 11;
	VIRTIO(0x030) = 1;
	VIRTIO(0x038) = size;
	VIRTIO(0x080) = (uint32_t)desc;
	VIRTIO(0x084) = (uint32_t)(desc >> 32);
	VIRTIO(0x090) = (uint32_t)avail;
	VIRTIO(0x0a0) = (uint32_t)used;
	VIRTIO(0x044) = 1;
	VIRTIO(0x070) = 15;
}

static void ring_nonsense(void)
{
	volatile uint64_t *desc = guest_ram(0xa00000);
	volatile uint16_t *avail = guest_ram(0xa01000);

	queue_up(0xa00000, 0xa01000, 0xa02000, 128);
	/* Descriptor 0 points to itself for ever. */
	desc[0] = 0xa03000;
	desc[1] = 16ull | 1ull << 32;
	avail[2] = 0;
	avail[1] = 1;
	VIRTIO(0x050) = 1;
}

static void frame_nonsense(void)
{
	volatile uint64_t *desc = guest_ram(0xa00000);
	volatile uint16_t *avail = guest_ram(0xa01000);

	queue_up(0xa00000, 0xa01000, 0xa02000, 128);
	*(volatile uint32_t *)guest_ram(0xa03000) = 0x7fffffff;
	desc[0] = 0xa03000;
	desc[1] = 16;
	avail[2] = 0;
	avail[1] = 1;
	VIRTIO(0x050) = 1;
}

static void page_tables(void)
{
	/* The root of all page tables, from below. */
	*(volatile uint64_t *)((char *)guest_ram(CM_BOOT_PT_GPA) + 8 * CM_KERNEL_SLOT) = ~0ull;
}

static void console_flood(void)
{
	for (int i = 0; i < 2000000; i++)
		guest_puts("flood ");
}

void guest_main(const void *fdt)
{
	if (word_is_there("do=fault"))
		__asm__ volatile("ud2");
	if (word_is_there("do=mmio"))
		*guest_reg(CM_VIRTIO_GPA(5)) = 1;
	if (word_is_there("do=register"))
		VIRTIO(0x0f0) = 1;
	if (word_is_there("do=notify"))
		VIRTIO(0x050) = 77;
	if (word_is_there("do=queue"))
		queue_up(~0ull << 4, 0, 0, 128);
	if (word_is_there("do=platform"))
		*guest_reg(CM_PLATFORM_GPA + 0x40) = 1;
	if (word_is_there("do=image"))
		image_write();
	if (word_is_there("do=ring"))
		ring_nonsense();
	if (word_is_there("do=frame"))
		frame_nonsense();
	if (word_is_there("do=tables"))
		page_tables();
	if (word_is_there("do=port"))
		__asm__ volatile("outb %%al, $0x80" : : "a"(0));
	if (word_is_there("do=flood"))
		console_flood();
	if (word_is_there("do=endcode"))
		guest_end(99);
	for (;;)	/* do=spin, and after what is noticed later */
		;
}
