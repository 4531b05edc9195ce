/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile task: it attacks its own guest kernel and, through it, the devices. The kernel is
 * mapped in every process and runs in ring 3 (docs/GUEST-KERNEL.md), so all of this is a plain
 * store; what it must not do is hurt the host. `hostile NAME [SEED]`; NAME is one of the table
 * at the end. Where an attack leaves the guest alive the program ends with status 9.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/layout.h"
#include "abi/platform.h"

static uint64_t seed = 88172645463325252u;

static uint64_t noise(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static volatile uint32_t *phys(uint64_t gpa)
{
	return (volatile uint32_t *)(CM_PHYSMAP_VA + gpa);
}

static void end_panic(void)
{
	const char *text = "hostile: not a real panic\nbt: 0xnonsense\n\x1b[31m\x07\xff";

	for (; *text; text++)
		*phys(CM_PLATFORM_GPA + CM_PLAT_SERIAL) = (uint8_t)*text;
	*phys(CM_PLATFORM_GPA + CM_PLAT_END) = CM_END_PANIC;
}

static void end_poweroff(void)
{
	*phys(CM_PLATFORM_GPA + CM_PLAT_END) = CM_END_POWEROFF;
}

static void end_unknown(void)
{
	*phys(CM_PLATFORM_GPA + CM_PLAT_END) = 0xdeadbeef;
}

static void serial_flood(void)
{
	for (;;)
		*phys(CM_PLATFORM_GPA + CM_PLAT_SERIAL) = 'x';
}

static void stage_noise(void)
{
	for (int i = 0; i < 2000; i++)
		*phys(CM_PLATFORM_GPA + CM_PLAT_STAGE) = (uint32_t)noise();
}

static void platform_noise(void)
{
	for (int i = 0; i < 2000; i++) {
		uint64_t at = CM_PLATFORM_GPA + (noise() & 0xffc);

		if (noise() & 1)
			*phys(at) = (uint32_t)noise();
		else
			(void)*phys(at);
	}
}

static void platform_odd_sizes(void)
{
	*(volatile uint8_t *)phys(CM_PLATFORM_GPA + 3) = 1;
	*(volatile uint64_t *)phys(CM_PLATFORM_GPA + CM_PLAT_SERIAL) = 1;
	*(volatile uint16_t *)phys(CM_PLATFORM_GPA + 0xffe) = 1;
}

/* Every register of the console's transport, in any order: queue addresses, sizes, notify. */
static void virtio_noise(void)
{
	for (int i = 0; i < 5000; i++) {
		uint64_t reg = (noise() % 64) * 4;
		uint32_t value = (uint32_t)noise();

		if (noise() & 1)
			value &= 0xff;
		if (noise() & 3)
			*phys(CM_VIRTIO_GPA(0) + reg) = value;
		else
			(void)*phys(CM_VIRTIO_GPA(0) + reg);
	}
}

static void virtio_notify_flood(void)
{
	for (int i = 0; i < 100000; i++)
		*phys(CM_VIRTIO_GPA(0) + 0x50) = (uint32_t)(i & 1);
}

/* Registers from the virtio specification, 4.2.2: 0x30 queue select, 0x80 to 0xa4 addresses. */
static void rings_at_odd_places(void)
{
	static const uint64_t places[] = {
		0, 1, 0xfffffffffffff000u, 0xfffffffffffffff0u, CM_PLATFORM_GPA,
		CM_VIRTIO_GPA(0), CM_LAPIC_GPA, CM_RAM_LOW_MAX - 16, CM_RAM_HIGH_GPA,
		CM_RAM_MAX, CM_CLOCK_GPA,
	};
	volatile uint32_t *dev = phys(CM_VIRTIO_GPA(0));

	for (size_t i = 0; i < 3 * sizeof(places) / sizeof(places[0]); i++) {
		uint64_t at = places[i / 3];

		dev[0x30 / 4] = (uint32_t)(noise() & 1);
		dev[0x38 / 4] = (uint32_t)noise() & 0xffff;
		for (uint32_t reg = 0x80; reg <= 0xa0; reg += 0x10) {
			dev[reg / 4] = (uint32_t)at;
			dev[reg / 4 + 1] = (uint32_t)(at >> 32);
		}
		dev[0x44 / 4] = 1;
		dev[0x50 / 4] = 0;
		dev[0x50 / 4] = 1;
	}
}

/* The rings lie somewhere in kernel memory: noise over all of it finds them. */
static void memory_noise(void)
{
	for (int i = 0; i < 2000000; i++)
		*phys(0x1000 + (noise() % (48u << 20) & ~3u)) = (uint32_t)noise();
}

static void kernel_noise(void)
{
	for (uint64_t i = 0; i < (4u << 20); i += 4)
		*phys(CM_KERNEL_GPA + i) = (uint32_t)noise();
}

static void page_table_noise(void)
{
	for (uint64_t i = 0; i < CM_BOOT_PT_MAX - CM_BOOT_PT_GPA; i += 4)
		*phys(CM_BOOT_PT_GPA + i) = (uint32_t)noise();
}

static void lapic_noise(void)
{
	for (int i = 0; i < 5000; i++)
		*phys(CM_LAPIC_GPA + (noise() & 0xff0)) = (uint32_t)noise();
}

static void image_write(void)
{
	for (uint64_t gpa = CM_RAM_HIGH_GPA; gpa < CM_RAM_HIGH_GPA + 4 * CM_IMAGE_ALIGN;
	     gpa += CM_IMAGE_ALIGN)
		*phys(gpa) = 0;
}

static void privileged(void)
{
	__asm__ volatile("hlt");
}

static void port_write(void)
{
	__asm__ volatile("outb %%al, %%dx" : : "a"(0), "d"(0x60));
}

static void interrupts_off(void)
{
	__asm__ volatile("cli; 1: jmp 1b");
}

static void any_interrupt(void)
{
	__asm__ volatile("int $0x40; int $0x50; int $2; int $8");
}

static void stack_nowhere(void)
{
	__asm__ volatile("mov $0, %%rsp; push %%rax; syscall" : : "a"(1) : "memory");
}

static void system_call_noise(void)
{
	for (int i = 0; i < 20000; i++) {
		long nr = (long)(noise() % 460);

		/* Not the ones that only stop us: pause, exits, kill of ourselves, waits. */
		if (nr == 34 || nr == 60 || nr == 231 || nr == 62 || nr == 200 || nr == 234 ||
		    nr == 15 || nr == 130 || nr == 128 || nr == 0 || nr == 7 || nr == 23 ||
		    nr == 35 || nr == 61 || nr == 57 || nr == 58 || nr == 56 || nr == 202 ||
		    nr == 230 || nr == 247 || nr == 270 || nr == 271 || nr == 281 || nr == 232)
			continue;
		syscall(nr, noise() & 0xf, noise(), noise() & 0xffff, noise(), noise(), noise());
	}
}

static void system_call_pointers(void)
{
	static const uint64_t bad[] = {
		0, 1, CM_USER_TOP - 1, CM_PHYSMAP_VA, CM_KERNEL_VA, 0x7fffffffffffu,
		0x800000000000u, 0xffff800000000000u, ~0ul,
	};

	for (long nr = 0; nr < 335; nr++) {
		if (nr == 34 || nr == 60 || nr == 231 || nr == 15 || nr == 61 || nr == 57 ||
		    nr == 58 || nr == 247 || nr == 0 || nr == 7 || nr == 130 || nr == 62 ||
		    nr == 200 || nr == 234 || nr == 56 || nr == 11 || nr == 12 || nr == 9)
			continue;
		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
			syscall(nr, 1, bad[i], bad[i], bad[i], 0, 0);
	}
}

static void eat_memory(void)
{
	for (;;) {
		size_t size = 1u << 20;
		char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			exit(8);
		memset(p, 1, size);
	}
}

static void fork_bomb(void)
{
	for (;;)
		if (fork() == 0)
			memset(malloc(65536), 1, 65536);
}

/* Memory that is not counted to whoever holds it; its own is that of a usual program. */
static void eat_in_sockets(void)
{
	static char buf[1 << 20];
	struct rlimit all = { 100000, 100000 };
	int s[2];

	memset(buf, 1, sizeof(buf));
	setrlimit(RLIMIT_NOFILE, &all);
	while (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s) == 0)
		while (write(s[0], buf, 32768) > 0)
			;
}

static void make_files(void)
{
	char name[40];

	for (unsigned i = 0;; i++) {
		snprintf(name, sizeof(name), "/tmp/made-%u", i);
		if (mknod(name, S_IFREG | 0600, 0) != 0) {
			printf("%s\n", strerror(errno));
			return;
		}
	}
}

static void spin(void)
{
	for (;;)
		;
}

static void output_flood(void)
{
	static char buf[65536];

	for (;;)
		if (write(1, buf, sizeof(buf)) < 0)
			exit(7);
}

static const struct {
	const char *name;
	void (*run)(void);
} attacks[] = {
	{ "end-panic", end_panic },
	{ "end-poweroff", end_poweroff },
	{ "end-unknown", end_unknown },
	{ "serial-flood", serial_flood },
	{ "stage-noise", stage_noise },
	{ "platform-noise", platform_noise },
	{ "platform-odd-sizes", platform_odd_sizes },
	{ "virtio-noise", virtio_noise },
	{ "virtio-notify-flood", virtio_notify_flood },
	{ "rings-at-odd-places", rings_at_odd_places },
	{ "memory-noise", memory_noise },
	{ "kernel-noise", kernel_noise },
	{ "page-table-noise", page_table_noise },
	{ "lapic-noise", lapic_noise },
	{ "image-write", image_write },
	{ "privileged", privileged },
	{ "port-write", port_write },
	{ "interrupts-off", interrupts_off },
	{ "any-interrupt", any_interrupt },
	{ "stack-nowhere", stack_nowhere },
	{ "system-call-noise", system_call_noise },
	{ "system-call-pointers", system_call_pointers },
	{ "eat-memory", eat_memory },
	{ "fork-bomb", fork_bomb },
	{ "eat-in-sockets", eat_in_sockets },
	{ "make-files", make_files },
	{ "spin", spin },
	{ "output-flood", output_flood },
};

int main(int argc, char **argv)
{
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 0) | 1;
	for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]) && argc > 1; i++) {
		if (strcmp(argv[1], attacks[i].name))
			continue;
		attacks[i].run();
		return 9;
	}
	fprintf(stderr, "hostile: no attack of that name\n");
	return 2;
}
