/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First page tables and device tree; see boot.h.
 *
 * Table pages are taken one after another from [CM_BOOT_PT_GPA, + CM_BOOT_PT_MAX). Only PML4
 * slot CM_KERNEL_SLOT is filled: one PDPT holds the physmap (2 MiB pages) in its lower half
 * and the kernel (4 KiB pages) in its last entry. Accessed and Dirty are set everywhere:
 * a shadow-paging host otherwise has to write them on first use, which costs an exit.
 */
#include "vmm/boot.h"

#include <errno.h>
#include <inttypes.h>
#include <libfdt.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "abi/clock.h"
#include "abi/devicetree.h"
#include "base/fd.h"

#define PAGE		4096ull
#define PAGE_2M		(2ull << 20)
#define ENTRIES		512u

#define PTE_P		(1ull << 0)
#define PTE_W		(1ull << 1)
#define PTE_U		(1ull << 2)
#define PTE_PWT		(1ull << 3)
#define PTE_PCD		(1ull << 4)
#define PTE_A		(1ull << 5)
#define PTE_D		(1ull << 6)
#define PTE_PS		(1ull << 7)
#define PTE_NX		(1ull << 63)
#define PTE_ADDR	0x000ffffffffff000ull
#define PTE_TABLE	(PTE_P | PTE_W | PTE_U | PTE_A | PTE_D)

#define INITD_MAX	(64ull << 20)

struct tables {
	const struct memory *memory;
	uint64_t next;		/* gpa of the next free table page */
	uint64_t *pml4;
};

static uint64_t *table_at(const struct tables *t, uint64_t gpa)
{
	return memory_ram(t->memory, GPA(gpa), PAGE);
}

/* The table below an entry, made when it is not there. NULL: no room. */
static uint64_t *table_below(struct tables *t, uint64_t *entry)
{
	if (!(*entry & PTE_P)) {
		if (t->next >= CM_BOOT_PT_GPA + CM_BOOT_PT_MAX)
			return NULL;
		memset(table_at(t, t->next), 0, PAGE);
		*entry = t->next | PTE_TABLE;
		t->next += PAGE;
	}
	return table_at(t, *entry & PTE_ADDR);
}

static uint64_t *table_pd(struct tables *t, uint64_t va)
{
	uint64_t *pdpt = table_below(t, &t->pml4[va >> 39 & (ENTRIES - 1)]);

	return pdpt ? table_below(t, &pdpt[va >> 30 & (ENTRIES - 1)]) : NULL;
}

static int physmap_add(struct tables *t, uint64_t gpa, uint64_t size, uint64_t rights)
{
	for (uint64_t at = gpa; at < gpa + size; at += PAGE_2M) {
		uint64_t va = CM_PHYSMAP_VA + at;
		uint64_t *pd = table_pd(t, va);

		if (!pd)
			return -ENOSPC;
		pd[va >> 21 & (ENTRIES - 1)] =
			at | rights | PTE_P | PTE_U | PTE_PS | PTE_A | PTE_D | PTE_NX;
	}
	return 0;
}

static int kernel_add(struct tables *t, const struct elf_segment *s)
{
	uint64_t rights = PTE_P | PTE_A | PTE_D | (s->write ? PTE_W : 0) |
			  (s->execute ? 0 : PTE_NX) | (s->supervisor ? 0 : PTE_U);

	for (uint64_t va = s->va & ~(PAGE - 1); va < s->va + s->mem_size; va += PAGE) {
		uint64_t *pd = table_pd(t, va);
		uint64_t *pt = pd ? table_below(t, &pd[va >> 21 & (ENTRIES - 1)]) : NULL;

		if (!pt)
			return -ENOSPC;
		pt[va >> 12 & (ENTRIES - 1)] = elf_va_to_gpa(va).v | rights;
	}
	return 0;
}

static int tables_fill(struct tables *t, const struct elf_kernel *kernel)
{
	int r = 0;

	for (int i = 0; i < MEMORY_REGIONS && r == 0; i++) {
		const struct memory_region *region = &t->memory->regions[i];

		if (region->size > 0 && region->gpa.v + region->size > CM_PHYSMAP_SIZE)
			return -ENOSPC;
		r = physmap_add(t, region->gpa.v, region->size,
				region->read_only ? 0 : PTE_W);
	}
	if (r == 0)
		r = physmap_add(t, CM_PLATFORM_GPA & ~(PAGE_2M - 1), PAGE_2M,
				PTE_W | PTE_PCD | PTE_PWT);
	if (r == 0)
		r = physmap_add(t, CM_LAPIC_GPA & ~(PAGE_2M - 1), PAGE_2M,
				PTE_W | PTE_PCD | PTE_PWT);
	for (unsigned int i = 0; i < kernel->count && r == 0; i++)
		r = kernel_add(t, &kernel->segments[i]);
	return r;
}

int boot_page_tables(const struct memory *memory, const struct elf_kernel *kernel,
		     struct err *err)
{
	struct tables t = { .memory = memory, .next = CM_BOOT_PT_GPA + PAGE };

	/* RAM is at least MEMORY_RAM_MIN: the whole table area is there. */
	t.pml4 = table_at(&t, CM_BOOT_PT_GPA);
	memset(t.pml4, 0, PAGE);
	if (tables_fill(&t, kernel) < 0)
		return err_set(err, ENOSPC, "memory and root image together are too large "
			       "for the first page tables (about 100 GiB)");
	return 0;
}

int boot_load_initd(const struct memory *memory, const struct elf_kernel *kernel, int fd,
		    uint64_t size, struct boot_info *info, struct err *err)
{
	gpa_t at = elf_va_to_gpa(kernel->end_va);
	static const uint8_t magic[4] = { 0x7f, 'E', 'L', 'F' };
	uint8_t *to;
	int r;

	if (size < 64 || size > INITD_MAX)
		return err_set(err, EINVAL, "initd of %" PRIu64 " bytes: not possible", size);
	to = memory_ram(memory, at, size);
	/* Leave as much again: a guest that cannot even copy initd cannot run it. */
	if (!to || size > memory_ram_size(memory) / 4)
		return err_set(err, ENOMEM, "initd does not fit into the guest's memory; "
			       "give it more with --mem");
	r = fd_pread_exact(fd, to, size, 0);
	if (r < 0)
		return err_set_errno(err, r, "cannot read initd");
	if (memcmp(to, magic, sizeof(magic)))
		return err_set(err, ENOEXEC, "initd is not an ELF file");
	info->initd = at;
	info->initd_size = size;
	return 0;
}

static int prop_reg(void *fdt, uint64_t addr, uint64_t size)
{
	fdt64_t reg[2] = { cpu_to_fdt64(addr), cpu_to_fdt64(size) };

	return fdt_property(fdt, "reg", reg, sizeof(reg));
}

/* A node with a compatible string and one reg. The caller ends it. */
static int node_begin(void *fdt, const char *name, uint64_t gpa, const char *compatible,
		      uint64_t size)
{
	char path[64];
	int r;

	snprintf(path, sizeof(path), "%s@%" PRIx64, name, gpa);
	r = fdt_begin_node(fdt, path);
	r |= fdt_property_string(fdt, "compatible", compatible);
	r |= prop_reg(fdt, gpa, size);
	return r;
}

static int put_memory(void *fdt, const struct memory *memory)
{
	fdt64_t reg[4];
	int n = 0, r;

	for (int i = MEMORY_LOW; i <= MEMORY_HIGH; i++) {
		if (memory->regions[i].size == 0)
			continue;
		reg[n++] = cpu_to_fdt64(memory->regions[i].gpa.v);
		reg[n++] = cpu_to_fdt64(memory->regions[i].size);
	}
	r = fdt_begin_node(fdt, "memory@0");
	r |= fdt_property_string(fdt, "device_type", "memory");
	r |= fdt_property(fdt, "reg", reg, n * (int)sizeof(reg[0]));
	r |= fdt_end_node(fdt);
	return r;
}

static int put_chosen(void *fdt, const struct boot_info *info)
{
	uint8_t seed[64];
	int r;

	if (getrandom(seed, sizeof(seed), 0) != sizeof(seed))
		return -1;
	r = fdt_begin_node(fdt, "chosen");
	r |= fdt_property_string(fdt, "bootargs", info->bootargs);
	r |= fdt_property(fdt, "rng-seed", seed, sizeof(seed));
	if (info->initd_size > 0) {
		r |= fdt_property_u64(fdt, CM_DT_INITRD_START, info->initd.v);
		r |= fdt_property_u64(fdt, CM_DT_INITRD_END,
				      info->initd.v + info->initd_size);
	}
	r |= fdt_end_node(fdt);
	explicit_bzero(seed, sizeof(seed));
	return r;
}

static int put_cpus(void *fdt, const struct boot_info *info)
{
	int r = fdt_begin_node(fdt, "cpus");

	r |= fdt_property_u32(fdt, "#address-cells", 1);
	r |= fdt_property_u32(fdt, "#size-cells", 0);
	r |= fdt_begin_node(fdt, "cpu@0");
	r |= fdt_property_string(fdt, "device_type", "cpu");
	r |= fdt_property_u32(fdt, "reg", 0);
	r |= fdt_property_u64(fdt, CM_DT_APIC_HZ, info->apic_timer_hz);
	r |= fdt_property_u64(fdt, CM_DT_TSC_HZ, info->tsc_hz);
	r |= fdt_end_node(fdt);
	r |= fdt_end_node(fdt);
	return r;
}

static int put_devices(void *fdt, const struct memory *memory, const struct boot_info *info)
{
	const struct memory_region *image = &memory->regions[MEMORY_IMAGE];
	int r = 0;

	if (image->size > 0) {
		r |= node_begin(fdt, "pmem", image->gpa.v, CM_DT_PMEM, image->size);
		r |= fdt_property_u64(fdt, CM_DT_IMAGE_SIZE, memory->image_size);
		r |= fdt_end_node(fdt);
	}
	for (unsigned int i = 0; i < info->virtio_count; i++) {
		r |= node_begin(fdt, "virtio_mmio", CM_VIRTIO_GPA(i), CM_DT_VIRTIO_MMIO, PAGE);
		r |= fdt_property_u32(fdt, "interrupts", CM_VEC_VIRTIO(i));
		r |= fdt_end_node(fdt);
	}
	r |= node_begin(fdt, "clock", CM_CLOCK_GPA, CM_DT_CLOCK, PAGE);
	r |= fdt_end_node(fdt);
	r |= node_begin(fdt, "platform", CM_PLATFORM_GPA, CM_DT_PLATFORM, PAGE);
	r |= fdt_end_node(fdt);
	return r;
}

int boot_device_tree(const struct memory *memory, const struct boot_info *info,
		     struct err *err)
{
	void *fdt = memory_ram(memory, GPA(CM_FDT_GPA), CM_FDT_MAX);
	int r = fdt_create(fdt, CM_FDT_MAX);

	r |= fdt_finish_reservemap(fdt);
	r |= fdt_begin_node(fdt, "");
	r |= fdt_property_string(fdt, "compatible", CM_DT_COMPATIBLE);
	r |= fdt_property_u32(fdt, "#address-cells", 2);
	r |= fdt_property_u32(fdt, "#size-cells", 2);
	r |= put_memory(fdt, memory);
	r |= put_chosen(fdt, info);
	r |= put_cpus(fdt, info);
	r |= put_devices(fdt, memory, info);
	r |= fdt_end_node(fdt);
	r |= fdt_finish(fdt);
	/* libfdt's errors are negative, so any of them shows in the OR. */
	if (r != 0)
		return err_set(err, ENOSPC, "cannot build the device tree; are the boot "
			       "arguments too long?");
	return 0;
}
