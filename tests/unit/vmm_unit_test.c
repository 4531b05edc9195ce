/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests of the parts of vmm/ that need no KVM. */
#include <elf.h>
#include <cpuid.h>
#include <errno.h>
#include <libfdt.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/clock.h"
#include "abi/devicetree.h"
#include "abi/layout.h"
#include "vmm/boot.h"
#include "vmm/clock.h"
#include "vmm/cpu.h"
#include "vmm/platform.h"
#include "vmm/symbols.h"
#include "vmm/virtio_mmio.h"
#include "tests/unit/cunit_run.h"

#define MIB	(1ull << 20)

static struct memory memory;

static int memory_setup(void)
{
	struct err err = ERR_INIT;

	return memory_init(&memory, 32 * MIB, &err);
}

static int memory_teardown(void)
{
	memory_done(&memory);
	return map_live() != 0;
}

/* ---- memory ---- */

static int size_checked(uint64_t size)
{
	struct err err = ERR_INIT;
	int r = memory_check_size(size, &err);

	CU_ASSERT_EQUAL(r < 0, err.text[0] != '\0');
	return r;
}

static void test_memory_sizes(void)
{
	CU_ASSERT_EQUAL(size_checked(16 * MIB), 0);
	CU_ASSERT(size_checked(0) < 0);
	CU_ASSERT(size_checked(1) < 0);
	CU_ASSERT(size_checked(14 * MIB) < 0);
	CU_ASSERT(size_checked(32 * MIB + 1) < 0);
	CU_ASSERT(size_checked(33 * MIB) < 0);
	CU_ASSERT(size_checked(UINT64_MAX) < 0);
	CU_ASSERT(size_checked(1ull << 50) < 0);
}

static void test_memory_bounds(void)
{
	CU_ASSERT_PTR_EQUAL(memory_ram(&memory, GPA(0), 1), memory.ram.addr);
	CU_ASSERT_PTR_NOT_NULL(memory_ram(&memory, GPA(0), 32 * MIB));
	CU_ASSERT_PTR_NULL(memory_ram(&memory, GPA(0), 32 * MIB + 1));
	CU_ASSERT_PTR_NOT_NULL(memory_ram(&memory, GPA(32 * MIB - 1), 1));
	CU_ASSERT_PTR_NULL(memory_ram(&memory, GPA(32 * MIB - 1), 2));
	CU_ASSERT_PTR_NULL(memory_ram(&memory, GPA(32 * MIB), 0));
	CU_ASSERT_PTR_NULL(memory_ram(&memory, GPA(UINT64_MAX), 2));
	CU_ASSERT_PTR_NULL(memory_ram(&memory, GPA(4096), UINT64_MAX));
	CU_ASSERT_PTR_NULL(memory_ram(&memory, GPA(CM_RAM_HIGH_GPA), 1));
	CU_ASSERT_PTR_NULL(memory_ram(&memory, GPA(CM_PLATFORM_GPA), 4));
}

static void test_memory_hole(void)
{
	struct err err = ERR_INIT;
	struct memory large;

	if (memory_init(&large, 4096 * MIB, &err) < 0)
		return;		/* this host is too small */
	CU_ASSERT_PTR_NOT_NULL(memory_ram(&large, GPA(CM_RAM_LOW_MAX - 1), 1));
	CU_ASSERT_PTR_NULL(memory_ram(&large, GPA(CM_RAM_LOW_MAX - 1), 2));
	CU_ASSERT_PTR_EQUAL(memory_ram(&large, GPA(CM_RAM_HIGH_GPA), 1),
			    large.ram.addr + CM_RAM_LOW_MAX);
	CU_ASSERT_PTR_NOT_NULL(memory_ram(&large, GPA(CM_RAM_HIGH_GPA), 1024 * MIB));
	CU_ASSERT_PTR_NULL(memory_ram(&large, GPA(CM_RAM_HIGH_GPA), 1024 * MIB + 1));
	memory_done(&large);
}

/* Bits of the guest's page frames become bits of RAM's pages, around the hole. */
static void test_memory_free_map(void)
{
	static const uint64_t low = CM_RAM_LOW_MAX / MEMORY_PAGE;
	const uint64_t high = CM_RAM_HIGH_GPA / MEMORY_PAGE;
	uint32_t frame = 512, last = 32 * MIB / MEMORY_PAGE - 1;
	struct err err = ERR_INIT;
	struct memory large;
	uint64_t *map, *pages;

	CU_ASSERT_PTR_NULL(memory_free_map(&memory, 0));
	CU_ASSERT_PTR_NULL(memory_free_map(&memory, last + 1));
	CU_ASSERT_PTR_NULL(memory_free_map(&memory, UINT32_MAX));
	map = memory_ram(&memory, GPA((uint64_t)last * MEMORY_PAGE), MEMORY_PAGE);
	map[last / 64] = 1ull << 63 | 1;
	pages = memory_free_map(&memory, last);
	CU_ASSERT_PTR_NOT_NULL_FATAL(pages);
	CU_ASSERT(pages[last / 64] == (1ull << 63 | 1) && pages[0] == 0);
	free(pages);
	map[last / 64] = 0;
	/* All of it must lie in RAM: 128 KiB for 4 GiB. */
	if (memory_init(&large, 4096 * MIB, &err) < 0)
		return;
	CU_ASSERT_PTR_NULL(memory_free_map(&large, (uint32_t)low - 1));
	map = memory_ram(&large, GPA((uint64_t)frame * MEMORY_PAGE), MEMORY_PAGE);
	map[low / 64 - 1] = 2;
	map[low / 64] = UINT64_MAX;		/* no RAM */
	map[high / 64] = 4;
	map[(high + 1024 * MIB / MEMORY_PAGE) / 64 - 1] = 8;
	pages = memory_free_map(&large, frame);
	CU_ASSERT_PTR_NOT_NULL_FATAL(pages);
	CU_ASSERT(pages[low / 64 - 1] == 2 && pages[low / 64] == 4 &&
		  pages[memory_bitmap_words(&large) - 1] == 8);
	free(pages);
	memory_done(&large);
}

static void test_memory_image(void)
{
	struct err err = ERR_INIT;
	struct memory m;
	int fd = memfd_create("image", 0);

	CU_ASSERT_EQUAL_FATAL(memory_init(&m, 16 * MIB, &err), 0);
	CU_ASSERT(memory_add_image(&m, fd, &err) < 0);	/* empty */
	err.code = 0;
	CU_ASSERT_EQUAL(ftruncate(fd, 3 * MIB + 5), 0);
	CU_ASSERT_EQUAL(pwrite(fd, "x", 1, 3 * MIB + 4), 1);
	CU_ASSERT_EQUAL_FATAL(memory_add_image(&m, fd, &err), 0);
	CU_ASSERT_EQUAL(m.regions[MEMORY_IMAGE].size, 4 * MIB);
	CU_ASSERT_EQUAL(m.regions[MEMORY_IMAGE].gpa.v, CM_RAM_HIGH_GPA);
	CU_ASSERT_EQUAL(m.image.addr[3 * MIB + 4], 'x');
	CU_ASSERT_EQUAL(m.image.addr[4 * MIB - 1], 0);
	CU_ASSERT(memory_is_image(&m, GPA(CM_RAM_HIGH_GPA + 4 * MIB - 1)));
	CU_ASSERT_FALSE(memory_is_image(&m, GPA(CM_RAM_HIGH_GPA + 4 * MIB)));
	CU_ASSERT_PTR_NULL(memory_ram(&m, GPA(CM_RAM_HIGH_GPA), 1));
	/* The same in huge pages, or where there are none as before. */
	memory_copy_image(&m, fd);
	CU_ASSERT_PTR_EQUAL(m.regions[MEMORY_IMAGE].host, m.image.addr);
	CU_ASSERT_EQUAL((uintptr_t)m.image.addr % (2 * MIB), 0);
	CU_ASSERT_EQUAL(m.image.addr[3 * MIB + 4], 'x');
	CU_ASSERT_EQUAL(m.image.addr[4 * MIB - 1], 0);
	CU_ASSERT_EQUAL(pread(fd, m.image.addr, 1, 0), -1);	/* read-only */
	memory_done(&m);
	close(fd);
}

/* ---- kernel file ---- */

/* Two segments and a note, all in one page of file. */
struct kernel_file {
	Elf64_Ehdr eh;
	Elf64_Phdr ph[3];
	Elf64_Nhdr nh;
	char name[12];
	struct cm_kernel_note note;
	uint8_t rest[256];
};

static struct kernel_file kernel_make(void)
{
	struct kernel_file f = {
		.eh = { .e_ident = ELFMAG "\2\1\1", .e_type = ET_EXEC, .e_machine = EM_X86_64,
			.e_phoff = offsetof(struct kernel_file, ph), .e_phnum = 3,
			.e_phentsize = sizeof(Elf64_Phdr), .e_version = 1 },
		.ph = {
			{ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = CM_KERNEL_VA,
			  .p_filesz = 64, .p_memsz = 64 },
			{ .p_type = PT_LOAD, .p_flags = PF_R | PF_W | CM_PF_SUPERVISOR,
			  .p_vaddr = CM_KERNEL_VA + 0x1000, .p_filesz = 16, .p_memsz = 0x1800 },
			{ .p_type = PT_NOTE, .p_offset = offsetof(struct kernel_file, nh),
			  .p_filesz = 12 + 12 + 80, .p_memsz = 12 + 12 + 80 },
		},
		.nh = { 9, 80, CM_NOTE_BOOT },
		.name = CM_NOTE_NAME,
		.note = { .version = CM_NOTE_VERSION, .entry = CM_KERNEL_VA,
			  .stack = CM_KERNEL_VA + 0x2000, .gdt = CM_KERNEL_VA + 0x1000,
			  .gdt_limit = 0x37, .idt = CM_KERNEL_VA + 0x1100, .idt_limit = 15,
			  .tss = CM_KERNEL_VA + 0x1200, .tss_limit = 0x67,
			  .lstar = CM_KERNEL_VA },
	};

	return f;
}

static int kernel_check(const struct kernel_file *f, struct elf_kernel *kernel)
{
	struct err err = ERR_INIT;
	int fd = memfd_create("kernel", 0), r;

	if (write(fd, f, sizeof(*f)) != sizeof(*f))
		return 1;
	r = elf_check(fd, sizeof(*f), kernel, &err);
	if (r == 0)
		r = elf_load(fd, kernel, &memory, &err);
	close(fd);
	CU_ASSERT_EQUAL(r < 0, err.text[0] != '\0');
	return r;
}

#define REFUSED(change) do {						\
		struct kernel_file f = kernel_make();			\
		struct elf_kernel k;					\
									\
		change;							\
		CU_ASSERT(kernel_check(&f, &k) < 0);			\
	} while (0)

static void test_elf_refusals(void)
{
	REFUSED(f.eh.e_ident[0] = 0);
	REFUSED(f.eh.e_machine = EM_386);
	REFUSED(f.eh.e_type = ET_DYN);
	REFUSED(f.eh.e_phnum = 0);
	REFUSED(f.eh.e_phnum = 65);
	REFUSED(f.eh.e_phoff = UINT64_MAX - 10);
	REFUSED(f.eh.e_phoff = sizeof(f) - 8);
	REFUSED(f.ph[0].p_filesz = 65);
	REFUSED(f.ph[0].p_offset = UINT64_MAX);
	REFUSED(f.ph[1].p_filesz = 0x1800);
	REFUSED(f.ph[0].p_vaddr = 0);
	REFUSED(f.ph[0].p_vaddr = CM_KERNEL_VA - 1);
	REFUSED(f.ph[1].p_memsz = CM_KERNEL_MAX);
	REFUSED(f.ph[1].p_memsz = UINT64_MAX);
	REFUSED(f.ph[1].p_vaddr = CM_KERNEL_VA + 0x800);
	REFUSED(f.ph[1].p_vaddr = CM_KERNEL_VA);
	REFUSED(f.ph[2].p_type = PT_INTERP);
	REFUSED(f.ph[2].p_type = PT_NULL);
	REFUSED(f.ph[2].p_filesz = UINT64_MAX);
	REFUSED(f.nh.n_namesz = UINT32_MAX);
	REFUSED(f.nh.n_descsz = UINT32_MAX);
	REFUSED(f.nh.n_descsz = 79);
	REFUSED(f.nh.n_type = 2);
	REFUSED(f.note.version = 2);
	REFUSED(f.note.entry = CM_KERNEL_VA + 64);
	REFUSED(f.note.stack = CM_KERNEL_VA + 0x2008);
	REFUSED(f.note.stack = 0);
	REFUSED(f.note.gdt_limit = 0x10000);
	REFUSED(f.note.idt_limit = 0xffff);
	REFUSED(f.note.tss = UINT64_MAX);
	REFUSED(f.note.tss_limit = 0x66);
}

/* ---- page tables ---- */

/* The leaf entry for va, rights of all levels joined; 0: not mapped. */
static uint64_t leaf(uint64_t va, uint64_t *ret_size)
{
	uint64_t table = CM_BOOT_PT_GPA, entry = 0;

	for (int shift = 39; shift >= 12; shift -= 9) {
		uint64_t *t = memory_ram(&memory, GPA(table), 4096);

		entry = t[va >> shift & 511];
		if (!(entry & 1))
			return 0;
		/* Accessed and Dirty everywhere. */
		CU_ASSERT_EQUAL(entry & 0x60, 0x60);
		*ret_size = 1ull << shift;
		if (shift == 12 || (entry & 0x80))
			break;
		table = entry & 0x000ffffffffff000;
	}
	return entry;
}

static void test_page_tables(void)
{
	struct kernel_file f = kernel_make();
	struct err err = ERR_INIT;
	struct elf_kernel kernel;
	uint64_t size, nx = 1ull << 63;

	CU_ASSERT_EQUAL_FATAL(kernel_check(&f, &kernel), 0);
	CU_ASSERT_EQUAL_FATAL(boot_page_tables(&memory, &kernel, &err), 0);
	CU_ASSERT_EQUAL(leaf(CM_KERNEL_VA, &size), CM_KERNEL_GPA | 0x65);
	CU_ASSERT_EQUAL(size, 4096);
	CU_ASSERT_EQUAL(leaf(CM_KERNEL_VA + 0x1000, &size),
			(CM_KERNEL_GPA + 0x1000) | 0x63 | nx);
	CU_ASSERT_EQUAL(leaf(CM_KERNEL_VA + 0x2000, &size),
			(CM_KERNEL_GPA + 0x2000) | 0x63 | nx);
	CU_ASSERT_EQUAL(leaf(CM_KERNEL_VA + 0x3000, &size), 0);
	CU_ASSERT_EQUAL(leaf(CM_PHYSMAP_VA, &size), 0xe7 | nx);
	CU_ASSERT_EQUAL(size, 2 * MIB);
	CU_ASSERT_EQUAL(leaf(CM_PHYSMAP_VA + 30 * MIB, &size), (30 * MIB) | 0xe7 | nx);
	CU_ASSERT_EQUAL(leaf(CM_PHYSMAP_VA + 32 * MIB, &size), 0);
	CU_ASSERT_EQUAL(leaf(CM_PHYSMAP_VA + CM_PLATFORM_GPA, &size),
			CM_PLATFORM_GPA | 0xff | nx);
	CU_ASSERT_EQUAL(leaf(CM_PHYSMAP_VA + CM_LAPIC_GPA, &size), CM_LAPIC_GPA | 0xff | nx);
	CU_ASSERT_EQUAL(leaf(0, &size), 0);
	CU_ASSERT_EQUAL(leaf(CM_KERNEL_GPA, &size), 0);
}

/* ---- device tree ---- */

static uint64_t prop_u64(const void *fdt, const char *path, const char *name, int index)
{
	int len, node = fdt_path_offset(fdt, path);
	const fdt64_t *p = fdt_getprop(fdt, node, name, &len);

	return p && len >= 8 * (index + 1) ? fdt64_ld(p + index) : UINT64_MAX;
}

static void test_device_tree(void)
{
	struct boot_info info = { .bootargs = "verbose", .initd = GPA(0x400000),
				  .initd_size = 777, .apic_timer_hz = 1000000000,
				  .tsc_hz = 2100000000, .virtio_count = 1 };
	struct err err = ERR_INIT;
	const void *fdt = memory_ram(&memory, GPA(CM_FDT_GPA), CM_FDT_MAX);
	static char long_args[CM_FDT_MAX + 1];
	int len;

	CU_ASSERT_EQUAL_FATAL(boot_device_tree(&memory, &info, &err), 0);
	CU_ASSERT_EQUAL_FATAL(fdt_check_header(fdt), 0);
	CU_ASSERT_EQUAL(prop_u64(fdt, "/memory@0", "reg", 1), 32 * MIB);
	CU_ASSERT_EQUAL(prop_u64(fdt, "/chosen", CM_DT_INITRD_END, 0), 0x400000 + 777);
	CU_ASSERT_EQUAL(prop_u64(fdt, "/cpus/cpu@0", CM_DT_TSC_HZ, 0), 2100000000);
	CU_ASSERT_EQUAL(prop_u64(fdt, "/virtio_mmio@d0001000", "reg", 0), CM_VIRTIO_GPA(0));
	CU_ASSERT(fdt_node_offset_by_compatible(fdt, -1, CM_DT_PLATFORM) > 0);
	CU_ASSERT_EQUAL(fdt_path_offset(fdt, "/pmem@100000000"), -FDT_ERR_NOTFOUND);
	fdt_getprop(fdt, fdt_path_offset(fdt, "/chosen"), "rng-seed", &len);
	CU_ASSERT_EQUAL(len, 64);
	memset(long_args, 'x', sizeof(long_args) - 1);
	info.bootargs = long_args;
	CU_ASSERT(boot_device_tree(&memory, &info, &err) < 0);
}

/* ---- clock ---- */

static void test_clock(void)
{
	static const uint64_t khz[] = { 1000, 24000, 999999, 1000000, 2100000, 5000000 };
	struct clock_params params = { .tsc = 5, .tsc_khz = 2100000, .generation = 9 };
	const struct cm_clock *page = memory_ram(&memory, GPA(CM_CLOCK_GPA), sizeof(*page));
	struct err err = ERR_INIT;
	uint8_t entropy[CM_CLOCK_ENTROPY];

	for (size_t i = 0; i < sizeof(khz) / sizeof(khz[0]); i++) {
		uint64_t mult, ns, day = khz[i] * 1000 * 86400;
		uint32_t shift;

		clock_scale(khz[i], &mult, &shift);
		ns = (uint64_t)((unsigned __int128)day * mult >> shift);
		/* Within 100 us a day. */
		CU_ASSERT(ns <= 86400000000000 && ns > 86400000000000 - 100000);
	}
	CU_ASSERT_EQUAL_FATAL(clock_write(&memory, &params, &err), 0);
	CU_ASSERT_EQUAL(page->seq % 2, 0);
	CU_ASSERT_EQUAL(page->generation, 9);
	memcpy(entropy, page->entropy, sizeof(entropy));
	CU_ASSERT_EQUAL_FATAL(clock_write(&memory, &params, &err), 0);
	CU_ASSERT(memcmp(entropy, page->entropy, sizeof(entropy)) != 0);
}

/* ---- virtio-mmio ---- */

static unsigned int interrupts;

static void count(void *arg)
{
	interrupts++;
}

static int reg_write(struct virtio_mmio *dev, uint64_t offset, uint32_t value)
{
	return virtio_mmio_access(dev, offset, 4, true, &value);
}

static uint32_t reg_read(struct virtio_mmio *dev, uint64_t offset)
{
	uint32_t value = 0xdeadbeef;

	CU_ASSERT_EQUAL(virtio_mmio_access(dev, offset, 4, false, &value), 0);
	return value;
}

static struct virtio_mmio device(void)
{
	return (struct virtio_mmio){ .device_id = 3, .queue_count = 2, .config_size = 12,
				     .memory = &memory, .interrupt = count };
}

static void test_virtio_registers(void)
{
	struct virtio_mmio dev = device();
	uint32_t value;

	CU_ASSERT_EQUAL(reg_read(&dev, 0), 0x74726976);
	CU_ASSERT_EQUAL(reg_read(&dev, 4), 2);
	CU_ASSERT_EQUAL(reg_read(&dev, 8), 3);
	CU_ASSERT_EQUAL(reg_read(&dev, 0x10), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x14, 1), 0);
	CU_ASSERT_EQUAL(reg_read(&dev, 0x10), 1);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x30, 7), 0);
	CU_ASSERT_EQUAL(reg_read(&dev, 0x34), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x38, 8), -EPROTO);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x50, 0), -EPROTO);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x54, 0), -EPROTO);
	CU_ASSERT_EQUAL(virtio_mmio_access(&dev, 0, 2, false, &value), -EPROTO);
	CU_ASSERT_EQUAL(virtio_mmio_access(&dev, 2, 4, false, &value), -EPROTO);
	CU_ASSERT_EQUAL(virtio_mmio_access(&dev, 0x104, 1, false, &value), 0);
	CU_ASSERT_EQUAL(virtio_mmio_access(&dev, 0x10c, 1, false, &value), -EPROTO);
	CU_ASSERT_EQUAL(virtio_mmio_access(&dev, 0x10a, 4, false, &value), -EPROTO);
	CU_ASSERT_EQUAL(virtio_mmio_access(&dev, 0x100, 4, true, &value), -EPROTO);
	/* Without VERSION_1 the features do not stick. */
	CU_ASSERT_EQUAL(reg_write(&dev, 0x70, 3), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x70, 11), 0);
	CU_ASSERT_EQUAL(reg_read(&dev, 0x70), 3);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x70, 7), -EPROTO);
}

static void test_virtio_setup(void)
{
	struct virtio_mmio dev = device();
	uint16_t *avail = memory_ram(&memory, GPA(0x801000), 64);

	CU_ASSERT_EQUAL(reg_write(&dev, 0x70, 3), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x24, 1), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x20, 1), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x44, 1), -EPROTO);	/* before FEATURES_OK */
	CU_ASSERT_EQUAL(reg_write(&dev, 0x70, 11), 0);
	CU_ASSERT_EQUAL(reg_read(&dev, 0x70), 11);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x20, 0), -EPROTO);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x38, 3), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x44, 1), -EPROTO);	/* no power of two */
	CU_ASSERT_EQUAL(reg_write(&dev, 0x38, 256), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x44, 1), -EPROTO);	/* too large */
	CU_ASSERT_EQUAL(reg_write(&dev, 0x38, 8), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x80, 0x800008), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x44, 1), -EPROTO);	/* not aligned */
	CU_ASSERT_EQUAL(reg_write(&dev, 0x80, 0x800000), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x90, 0x801000), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0xa0, 32 * MIB - 4), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x44, 1), -EPROTO);	/* across RAM's end */
	CU_ASSERT_EQUAL(reg_write(&dev, 0xa0, 0x802000), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x44, 1), 0);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x44, 1), -EPROTO);	/* twice */
	CU_ASSERT_EQUAL(reg_write(&dev, 0x38, 4), -EPROTO);	/* while ready */
	CU_ASSERT_EQUAL(reg_write(&dev, 0x70, 15), 0);
	CU_ASSERT(virtio_mmio_running(&dev));
	CU_ASSERT_EQUAL(reg_write(&dev, 0x70, 11), -EPROTO);	/* taken back */
	interrupts = 0;
	avail[0] = 0;
	virtio_mmio_used(&dev, 0);
	CU_ASSERT_EQUAL(interrupts, 1);
	CU_ASSERT_EQUAL(reg_read(&dev, 0x60), 1);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x64, 1), 0);
	CU_ASSERT_EQUAL(reg_read(&dev, 0x60), 0);
	avail[0] = 1;
	virtio_mmio_used(&dev, 0);
	CU_ASSERT_EQUAL(interrupts, 1);
	CU_ASSERT_EQUAL(reg_write(&dev, 0x70, 0), 0);
	CU_ASSERT_FALSE(dev.queues[0].ready);
	CU_ASSERT_FALSE(virtio_mmio_running(&dev));
}

/* ---- platform, CPUID, symbols ---- */

static void test_platform(void)
{
	struct platform p;
	char text[64];
	uint32_t value;

	CU_ASSERT_EQUAL_FATAL(platform_init(&p, true, 0), 0);
	for (int i = 0; i < 100000; i++) {
		value = i % 64 == 63 ? '\n' : 'a' + (uint32_t)i % 26;
		CU_ASSERT_EQUAL(platform_access(&p, CM_PLAT_SERIAL, 4, true, &value), 0);
	}
	CU_ASSERT(p.dropped > 0);
	CU_ASSERT_EQUAL(p.tail.len, PLATFORM_TAIL);
	platform_tail(&p, text, sizeof(text));
	CU_ASSERT_EQUAL(strlen(text), sizeof(text) - 1);
	value = 8;
	CU_ASSERT_EQUAL(platform_access(&p, CM_PLAT_STAGE, 4, true, &value), -EPROTO);
	CU_ASSERT_EQUAL(platform_access(&p, CM_PLAT_SERIAL, 1, true, &value), -EPROTO);
	CU_ASSERT_EQUAL(platform_access(&p, CM_PLAT_SERIAL, 4, false, &value), -EPROTO);
	CU_ASSERT_EQUAL(platform_access(&p, 0x14, 4, true, &value), -EPROTO);
	value = 77;
	CU_ASSERT_EQUAL(platform_access(&p, CM_PLAT_FREE_MAP, 4, true, &value), 0);
	CU_ASSERT_EQUAL(p.free_map, 77);
	CU_ASSERT_EQUAL(platform_access(&p, CM_PLAT_FREE_MAP, 4, false, &value), -EPROTO);
	CU_ASSERT_PTR_NULL(platform_end_name(99));
	platform_done(&p);
}

static void test_cpuid(void)
{
	unsigned int a, b, c, d;
	struct cpuid_table t = {
		.head.nent = 8,
		.entries = {
			{ .function = 1, .ebx = 0xff040800, .ecx = 0xffffffff,
			  .edx = 0xffffffff },
			{ .function = 7, .ebx = 0xffffffff, .ecx = 0xffffffff,
			  .edx = 0xffffffff },
			{ .function = 0xd, .eax = 0x602e7, .ecx = 11008 },
			{ .function = 0xd, .index = 1, .eax = 0x1f, .ecx = 0x1800 },
			{ .function = 0xd, .index = 2, .eax = 256, .ebx = 576 },
			{ .function = 0xd, .index = 7, .eax = 1024, .ebx = 1664 },
			{ .function = 0xd, .index = 18, .eax = 8192, .ebx = 2816 },
			{ .function = 0x80000001, .ecx = 0xffffffff, .edx = 0xffffffff },
		},
	};
	struct err err = ERR_INIT;
	uint64_t xcr0 = 0;

	CU_ASSERT_EQUAL_FATAL(cpu_filter_cpuid(&t, true, &xcr0, &err), 0);
	CU_ASSERT_EQUAL(xcr0, 0xe7);
	CU_ASSERT_EQUAL(t.entries[0].ebx, 0x00010800);
	CU_ASSERT(t.entries[0].ecx & 1u << 24);
	CU_ASSERT_FALSE(t.entries[0].ecx & 1u << 5);
	CU_ASSERT_FALSE(t.entries[1].ecx & (1u << 3 | 1u << 7));
	CU_ASSERT_FALSE(t.entries[1].edx & (1u << 22 | 1u << 24 | 1u << 25 | 1u << 20));
	CU_ASSERT_EQUAL(t.entries[2].eax, 0xe7);
	CU_ASSERT_EQUAL(t.entries[2].ecx, 2688);
	CU_ASSERT_EQUAL(t.entries[3].eax, 7);
	CU_ASSERT_EQUAL(t.entries[6].eax, 0);
	CU_ASSERT_FALSE(t.entries[7].ecx & 1u << 2);
	/* FSGSBASE: given where this processor has it, whether KVM lists it or not. */
	t.entries[1].ebx = 0;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1)) {
		CU_ASSERT_EQUAL(cpu_filter_cpuid(&t, true, &xcr0, &err), 0);
		CU_ASSERT(t.entries[1].ebx & 1);
	} else {
		CU_ASSERT_EQUAL(cpu_filter_cpuid(&t, true, &xcr0, &err), -EOPNOTSUPP);
		CU_ASSERT(strstr(err.text, "FSGSBASE") != NULL);
	}
}

int main(void)
{
	CU_pSuite suite = cunit_suite("vmm", memory_setup, memory_teardown);

	CU_add_test(suite, "memory sizes", test_memory_sizes);
	CU_add_test(suite, "memory bounds", test_memory_bounds);
	CU_add_test(suite, "memory hole", test_memory_hole);
	CU_add_test(suite, "memory free map", test_memory_free_map);
	CU_add_test(suite, "memory image", test_memory_image);
	CU_add_test(suite, "kernel files refused", test_elf_refusals);
	CU_add_test(suite, "page tables", test_page_tables);
	CU_add_test(suite, "device tree", test_device_tree);
	CU_add_test(suite, "clock", test_clock);
	CU_add_test(suite, "virtio registers", test_virtio_registers);
	CU_add_test(suite, "virtio set-up", test_virtio_setup);
	CU_add_test(suite, "platform", test_platform);
	CU_add_test(suite, "CPUID", test_cpuid);
	return cunit_run();
}
