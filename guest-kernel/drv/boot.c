/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's first C code. The VMM started us in ring 3 with the first page tables in place
 * (abi/layout.h); everything here runs once, on the boot stack, and ends in PID 1.
 */
#include "abi/clock.h"
#include "abi/platform.h"
#include "guest-kernel/arch/cpu.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/drv/drv.h"
#include "guest-kernel/fs/vfs.h"

extern uint8_t kernel_image_start[], kernel_image_end[];
extern struct cm_clock *clock_page;
extern bool printk_enabled;
void kernel_main(paddr_t fdt);

/* libfdt comes from Debian's static library, which was built with stack protection: it reads
 * its canary at %fs:0x28. FS belongs to programs; until the first one runs it points here. */
static uint64_t boot_tls[8];

void __stack_chk_fail(void) NORETURN;
void __stack_chk_fail(void)
{
	panic("stack smashed in libfdt");
}

static void memory_start(void)
{
	struct phys_range reserved[4];
	unsigned n = 0;

	/* page 0 to the end of the boot page tables, the kernel, initd */
	reserved[n].start = 0;
	reserved[n++].end = CM_BOOT_PT_GPA + CM_BOOT_PT_MAX;
	reserved[n].start = CM_KERNEL_GPA;
	reserved[n++].end = CM_KERNEL_GPA + (paddr_t)(kernel_image_end - kernel_image_start);
	if (machine.initrd_end > machine.initrd_start) {
		reserved[n].start = ALIGN_DOWN(machine.initrd_start, PAGE_SIZE);
		reserved[n++].end = ALIGN_UP(machine.initrd_end, PAGE_SIZE);
	}
	page_init(machine.ram, machine.nram, reserved, n);
	arch_free_map(page_free_map());
}

void kernel_main(paddr_t fdt)
{
	struct file *initd;
	int r;

	arch_stage(CM_STAGE_KERNEL);
	arch_set_fsbase((uint64_t)boot_tls);
	r = machine_parse(phys_to_virt(fdt));
	if (r != 0)
		arch_end(CM_END_UNSUPPORTED);
	syscall_trace = machine_bootarg("trace");
	printk_enabled = syscall_trace || machine_bootarg("verbose");
	clock_page = phys_to_virt(CM_CLOCK_GPA);
	memory_start();
	cpu_fpu_init();
	cpu_apic_init(machine.apic_hz);
	random_init(machine.seed, machine.seed_len);
	memset(machine.seed, 0, sizeof(machine.seed));
	task_init();
	sched_init();
	for (unsigned i = 0; i < machine.nvirtio; i++) {
		if (machine.virtio[i] != 0 && virtio_console_probe(i) == 0)
			break;
	}
	arch_stage(CM_STAGE_DEVICES);

	r = rootfs_mount(machine.image,
			 machine.image != 0 ? phys_to_virt(machine.image) : NULL,
			 machine.image_size);
	if (r != 0)
		panic("cannot mount the root image: error %d", r);
	arch_stage(CM_STAGE_ROOT);

	initd = memfile_open("initd", machine.initrd_start,
			     machine.initrd_end - machine.initrd_start);
	if (IS_ERR(initd))
		panic("no initd: error %d", PTR_ERR(initd));
	r = init_start(initd);
	panic("cannot start initd: error %d", r);
}
