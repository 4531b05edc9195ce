/* SPDX-License-Identifier: Apache-2.0 */
/* See support.h. Everything that mm/ needs of the other parts of the kernel is here. */
#include <stdio.h>
#include <stdlib.h>

#include "support.h"

#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/mm/patch.h"

void *arena_new(size_t size);

struct task *current;
struct proc_list all_processes = TAILQ_HEAD_INITIALIZER(all_processes);
static struct task test_task;
struct process test_process;
static struct cred test_cred;
int last_killed;
struct obj *open_result;
bool test_capable = true;
unsigned objs_alive;

/* ---- the kernel's other parts ---- */

void printk(const char *fmt, ...)
{
}

void panic(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "panic: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	abort();
}

bool capable(int cap)
{
	return test_capable;
}

bool signal_fatal_pending(const struct task *t)
{
	return t->proc->group_exit;
}

void process_kill(struct process *p, int status)
{
	last_killed = p->pid;
	p->group_exit = true;
}

struct task *task_find(int tid)
{
	return tid == test_task.tid ? &test_task : NULL;
}

void mutex_init(struct mutex *m)
{
}

long syscall_partial(const char *call, const char *what, int err)
{
	return err;
}

size_t sigframe_min_size(void)
{
	return 2048;
}

void random_bytes(void *buf, size_t n)
{
	memset(buf, 0x5a, n);
}

/* ---- patched system calls: none here ---- */

void patch_activate(struct mm *mm)
{
}

void patch_invalidate(struct mm *mm)
{
}

void patch_release(struct mm *mm)
{
}

void patch_forget(struct inode *inode, uint64_t first, uint64_t last)
{
}

void patch_map_table(struct mm *mm)
{
}

paddr_t patch_frame(struct inode *inode, uint64_t index, paddr_t frame)
{
	return frame;
}

/* ---- files ---- */

struct obj *inode_obj(struct inode *i)
{
	return CONTAINER_OF(i, struct obj, inode);
}

void inode_get(struct inode *i)
{
	i->refs++;
}

void inode_put(struct inode *i)
{
	struct obj *o = inode_obj(i);

	if (--i->refs != 0)
		return;
	if (!TAILQ_EMPTY(&i->mappings))
		panic("inode freed while mapped");
	for (unsigned n = 0; n < o->npages; n++) {
		if (o->kind != OBJ_IMAGE && o->frames[n] != 0)
			phys_put(o->frames[n]);
	}
	objs_alive--;
	free(o);
}

void file_get(struct file *f)
{
	f->refs++;
	inode_get(f->inode);
}

void file_put(struct file *f)
{
	f->refs--;
	inode_put(f->inode);
}

struct file *fd_get(int fd)
{
	if (open_result == NULL)
		return NULL;
	file_get(&open_result->file);
	return &open_result->file;
}

struct file *file_open(int dirfd, const char *path, uint32_t flags, uint32_t mode,
		       unsigned lookup)
{
	if (open_result == NULL)
		return ERR_PTR(-ENOENT);
	file_get(&open_result->file);
	return &open_result->file;
}

int inode_permission(struct inode *i, unsigned mask)
{
	return 0;
}

long file_read_kernel(struct file *f, void *buf, size_t n, uint64_t pos)
{
	struct obj *o = inode_obj(f->inode);
	size_t done = 0;

	if (pos >= o->inode.size)
		return 0;
	n = MIN(n, o->inode.size - pos);
	while (done < n) {
		size_t off = (pos + done) % PAGE_SIZE, part = MIN(n - done, PAGE_SIZE - off);

		memcpy((char *)buf + done,
		       (char *)phys_to_virt(o->frames[(pos + done) / PAGE_SIZE]) + off, part);
		done += part;
	}
	return (long)done;
}

char *dentry_path(struct dentry *d, struct dentry *root, char *buf, size_t size)
{
	strcpy(buf, "/some/file");
	return buf;
}

static int obj_get_page(struct inode *i, uint64_t index, bool write, paddr_t *ret)
{
	struct obj *o = inode_obj(i);
	struct page *p;

	if (index >= o->npages)
		return -EFAULT;
	if (o->frames[index] == 0) {
		if (!write) {
			*ret = zero_page_pa();
			phys_get(*ret);
			return 0;
		}
		p = page_alloc(0, PA_ZERO | PA_NOWAIT);
		if (p == NULL)
			return -ENOMEM;
		o->frames[index] = page_to_phys(p);
		mm_zap_inode(i, index, index + 1, false);
	}
	*ret = o->frames[index];
	phys_get(*ret);
	return 0;
}

static uint64_t obj_get_run(struct inode *i, uint64_t index, uint64_t n, paddr_t *ret)
{
	struct obj *o = inode_obj(i);

	if (index >= o->npages)
		return 0;
	*ret = o->frames[index];
	return MIN(n, o->npages - index);
}

static const struct inode_ops obj_ops = { .get_page = obj_get_page };
static const struct inode_ops image_ops = { .get_page = obj_get_page, .get_run = obj_get_run };
static const struct file_ops obj_file_ops;

struct obj *obj_new(enum obj_kind kind, unsigned npages)
{
	static unsigned image_next;
	struct obj *o = calloc(1, sizeof(*o));

	o->kind = kind;
	o->npages = npages;
	o->inode.refs = 1;
	o->inode.mode = KS_IFREG | 0755;
	o->inode.size = npages * PAGE_SIZE;
	o->inode.ops = kind == OBJ_IMAGE ? &image_ops : &obj_ops;
	TAILQ_INIT(&o->inode.mappings);
	o->file.inode = &o->inode;
	o->file.ops = &obj_file_ops;
	o->file.can_read = o->file.can_write = true;
	o->file.dentry = o->dentry;
	objs_alive++;
	if ((image_next + npages) * PAGE_SIZE > IMAGE_SIZE)
		image_next = 0;
	for (unsigned i = 0; i < npages && kind != OBJ_SHMEM; i++) {
		if (kind == OBJ_IMAGE)
			o->frames[i] = IMAGE_PA + (image_next++) * PAGE_SIZE;
		else
			o->frames[i] = page_to_phys(page_alloc(0, PA_ZERO));
	}
	return o;
}

void obj_put(struct obj *o)
{
	inode_put(&o->inode);
}

struct inode *shmem_inode(uint64_t size)
{
	unsigned n = (unsigned)(size / PAGE_SIZE);

	return n > OBJ_PAGES ? NULL : &obj_new(OBJ_SHMEM, n)->inode;
}

struct obj *obj_from_bytes(const void *data, size_t size)
{
	struct obj *o = obj_new(OBJ_CACHE, (unsigned)((size + PAGE_SIZE - 1) / PAGE_SIZE));

	o->inode.size = size;
	for (size_t at = 0; at < size; at += PAGE_SIZE)
		memcpy(phys_to_virt(o->frames[at / PAGE_SIZE]), (const char *)data + at,
		       MIN(size - at, PAGE_SIZE));
	return o;
}

/* ---- the processor ---- */

#define TLB_SIZE 64u
static struct {
	uintptr_t va;
	pte_t e;		/* with the frame of this very 4 KiB page; 0: unused */
} cpu_tlb[TLB_SIZE];
unsigned cpu_faults, cpu_flushes;

static unsigned tlb_slot(uintptr_t va)
{
	return (unsigned)((va >> PAGE_SHIFT) * 7) % TLB_SIZE;
}

void arch_flush_tlb(void)
{
	memset(cpu_tlb, 0, sizeof(cpu_tlb));
	cpu_flushes++;
}

void arch_load_cr3(paddr_t pml4)
{
	memset(cpu_tlb, 0, sizeof(cpu_tlb));
}

/* Drops a whole 2 MiB translation with any address in it. */
void arch_invlpg(uintptr_t va)
{
	cpu_flushes++;
	for (unsigned i = 0; i < TLB_SIZE; i++) {
		if (cpu_tlb[i].va == (va & PAGE_MASK) ||
		    ((cpu_tlb[i].e & PTE_HUGE) &&
		     ALIGN_DOWN(cpu_tlb[i].va, HUGE_SIZE) == ALIGN_DOWN(va, HUGE_SIZE)))
			cpu_tlb[i].e = 0;
	}
}

static int cpu_access(uintptr_t va, bool write, uint64_t **ret)
{
	unsigned slot = tlb_slot(va);

	for (unsigned tries = 0; tries < 100; tries++) {
		struct fault_result r;
		bool huge;
		pte_t *pte;
		pte_t e = 0;

		if (cpu_tlb[slot].e != 0 && cpu_tlb[slot].va == (va & PAGE_MASK)) {
			e = cpu_tlb[slot].e;
		} else {
			pte = pt_leaf(current->mm, va, &huge);
			if (pte != NULL && (*pte & PTE_P)) {
				e = *pte;
				if (huge)
					e += va & (HUGE_SIZE - 1) & PAGE_MASK;
				cpu_tlb[slot].va = va & PAGE_MASK;
				cpu_tlb[slot].e = e;
			}
		}
		if ((e & PTE_P) && (!write || (e & PTE_W))) {
			*ret = phys_to_virt((e & PTE_ADDR) + (va & (PAGE_SIZE - 1)));
			return 0;
		}
		cpu_faults++;
		cpu_tlb[slot].e = 0;	/* a fault drops the translation */
		r = mm_fault(current->mm, va, FAULT_HW | FAULT_USER |
			     (write ? FAULT_WRITE : 0) | (e & PTE_P ? FAULT_PRESENT : 0));
		if (r.sig != 0)
			return r.sig;
	}
	panic("fault at %lx does not end", va);
}

int cpu_read(uintptr_t va, uint64_t *val)
{
	uint64_t *p;
	int r = cpu_access(va, false, &p);

	if (r == 0)
		*val = *p;
	return r;
}

int cpu_write(uintptr_t va, uint64_t val)
{
	uint64_t *p;
	int r = cpu_access(va, true, &p);

	if (r == 0)
		*p = val;
	return r;
}

/* ---- start ---- */

void support_set_mm(struct mm *mm)
{
	current->mm = mm;
	test_process.mm = mm;
	if (mm != NULL)
		mm_activate(mm);
}

void support_init(void)
{
	static void *arena;
	const struct phys_range ram = { 0, RAM_SIZE };
	const struct phys_range reserved[] = {
		{ 0, CM_BOOT_PT_GPA + CM_BOOT_PT_MAX }, { 0x200000, 0x345678 },
	};

	if (arena == NULL)
		arena = arena_new(IMAGE_PA + IMAGE_SIZE);
	else
		memset(arena, 0, RAM_SIZE);
	kernel_physmap = (uintptr_t)arena;
	page_init(&ram, 1, reserved, 2);
	memset(&test_process, 0, sizeof(test_process));
	test_process.pid = 2;
	test_process.cred = &test_cred;
	for (unsigned i = 0; i < KRLIM_NLIMITS; i++)
		test_process.rlim[i].cur = test_process.rlim[i].max = KRLIM_INFINITY;
	test_process.rlim[KRLIMIT_STACK].cur = 8 << 20;
	test_task.proc = &test_process;
	test_task.tid = 2;
	test_task.mm = NULL;
	current = &test_task;
	TAILQ_INIT(&all_processes);
	TAILQ_INSERT_TAIL(&all_processes, &test_process, all_link);
	last_killed = 0;
	open_result = NULL;
	test_capable = true;
}
