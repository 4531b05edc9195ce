/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See support.h. What is defined here takes the place of the kernel's own: the tests are linked
 * so that the first definition wins and what is never called may be missing.
 */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

#include <asm-generic/resource.h>
#include <linux/capability.h>

#include "guest-kernel/core/time.h"
#include "guest-kernel/host/shim.h"
#include "guest-kernel/mm/mm.h"

extern uintptr_t kernel_physmap;
uint64_t page_check(void);
size_t mm_poke(struct mm *mm, uintptr_t addr, const void *buf, size_t len);
void *mm_user_page(struct mm *mm, uintptr_t va, bool write);

long fail_after = -1, allocations;
unsigned zaps;
int last_signal;
static uintptr_t bad_start, bad_end;
static uint64_t now = 1700000000ULL * 1000000000ULL;

void printk(const char *fmt, ...)
{
}

/* ---- memory that the sanitizers see ---- */

static bool must_fail(void)
{
	return fail_after >= 0 && fail_after-- == 0;
}

void *kmalloc(size_t size)
{
	void *p = must_fail() ? NULL : malloc(size);

	allocations += p != NULL;
	return p;
}

void *kzalloc(size_t size)
{
	void *p = must_fail() ? NULL : calloc(1, size);

	allocations += p != NULL;
	return p;
}

void *kcalloc(size_t n, size_t size)
{
	void *p = must_fail() ? NULL : calloc(n, size);

	allocations += p != NULL;
	return p;
}

void *krealloc(void *p, size_t size)
{
	void *q = must_fail() ? NULL : realloc(p, size);

	allocations += q != NULL && p == NULL;
	return q;
}

void *kmemdup(const void *p, size_t n)
{
	void *q = kmalloc(n);

	if (q != NULL)
		memcpy(q, p, n);
	return q;
}

char *kstrdup(const char *s)
{
	return kmemdup(s, strlen(s) + 1);
}

void kfree(const void *p)
{
	allocations -= p != NULL;
	free((void *)(uintptr_t)p);
}

/* ---- the program's memory is the test's ---- */

static size_t reach(uintptr_t va, size_t n)
{
	if (va < 4096 || (va >= bad_start && va < bad_end))
		return 0;
	if (va < bad_start && n > bad_start - va)
		return bad_start - va;
	return n;
}

size_t mm_peek(struct mm *mm, uintptr_t addr, void *buf, size_t len)
{
	size_t n = reach(addr, len);

	memcpy(buf, (const void *)addr, n);
	return n;
}

size_t mm_poke(struct mm *mm, uintptr_t addr, const void *buf, size_t len)
{
	size_t n = reach(addr, len);

	memcpy((void *)addr, buf, n);
	return n;
}

/* Byte by byte, or a string at the end of an object would be read beyond it. */
long strncpy_from_user(char *dst, const char *src, size_t size)
{
	for (size_t k = 0; k < size; k++) {
		if (reach((uintptr_t)src + k, 1) == 0)
			return -EFAULT;
		dst[k] = src[k];
		if (src[k] == 0)
			return (long)k;
	}
	return -ENAMETOOLONG;
}

void *mm_user_page(struct mm *mm, uintptr_t va, bool write)
{
	return reach(va, 1) != 0 ? (void *)va : NULL;
}

void support_bad(const void *start, size_t n)
{
	bad_start = (uintptr_t)start;
	bad_end = bad_start + n;
}

void mm_zap_inode(struct inode *inode, uint64_t first, uint64_t last, bool even_private)
{
	zaps++;
}

void pt_init(void);
void pt_init(void)
{
}

/* ---- time, signals, sleep ---- */

uint64_t clock_realtime_ns(void)
{
	return now += 1000;
}

uint64_t clock_monotonic_ns(void)
{
	return now += 1000;
}

int signal_send_task(struct task *t, int sig, const struct ksiginfo *info)
{
	last_signal = sig;
	return 0;
}

bool signal_pending(const struct task *t)
{
	return false;
}

bool signal_fatal_pending(const struct task *t)
{
	return false;
}

/* Nobody would wake the only task. */
int sleep_once(uint64_t deadline_ns, bool interruptible)
{
	return -ERESTARTSYS;
}

void sched_wake(struct task *t)
{
}

/* ---- set-up ---- */

static struct task task;
struct process process;
static struct fs_context fs;
static uint64_t credmem[64];

void support_user(uint32_t uid, uint32_t gid)
{
	struct cred *c = (struct cred *)credmem;

	c->refs = 1;
	c->uid = c->euid = c->suid = c->fsuid = uid;
	c->gid = c->egid = c->sgid = c->fsgid = gid;
	c->cap_eff = c->cap_perm = uid == 0 ? (1ULL << (CAP_LAST_CAP + 1)) - 1 : 0;
	process.cred = c;
}

int support_init(const void *image, uint64_t size)
{
	static void *arena;
	struct phys_range ram = {PAGE_SIZE, RAM_SIZE};
	int r;

	if (arena == NULL)
		arena = host_memory_init(RAM_SIZE);
	kernel_physmap = (uintptr_t)arena;
	memset(arena, 0, RAM_SIZE / 16);
	page_init(&ram, 1, NULL, 0);
	memset(&task, 0, sizeof(task));
	memset(&process, 0, sizeof(process));
	memset(&fs, 0, sizeof(fs));
	TAILQ_INIT(&superblocks);
	fs_root = NULL;
	current = &task;
	task.proc = &process;
	task.tid = process.pid = 1;
	process.fs = &fs;
	process.files = files_new();
	fs.refs = 1;
	fs.umask = 022;
	for (unsigned k = 0; k < KRLIM_NLIMITS; k++)
		process.rlim[k].cur = process.rlim[k].max = KRLIM_INFINITY;
	process.rlim[RLIMIT_NOFILE].cur = 1024;
	support_user(0, 0);
	support_bad(NULL, 0);
	fail_after = -1;
	r = rootfs_mount(image != NULL ? (uintptr_t)image - kernel_physmap : 0, image, size);
	return r;
}

uint64_t support_free_pages(void)
{
	return page_check();
}

/* ---- random numbers: splitmix64 ---- */

static uint64_t state;

void rnd_seed(uint64_t seed)
{
	state = seed;
}

uint32_t rnd(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (uint32_t)(z >> 32);
}
