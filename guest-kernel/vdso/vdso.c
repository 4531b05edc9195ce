/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vDSO: clocks without entering the kernel. A shared object of one segment, embedded in
 * the kernel and mapped into every program (AT_SYSINFO_EHDR). The clock page is readable at
 * its kernel address by every program, so no second mapping is needed.
 */
#include <stddef.h>
#include <stdint.h>
#include <asm/unistd_64.h>

#include "abi/clock.h"
#include "abi/layout.h"

#define EXPORT __attribute__((visibility("default")))

struct vdso_timespec {
	int64_t sec, nsec;
};
struct vdso_timeval {
	int64_t sec, usec;
};

EXPORT int __vdso_clock_gettime(int clock, struct vdso_timespec *ts);
EXPORT int __vdso_gettimeofday(struct vdso_timeval *tv, void *tz);
EXPORT int64_t __vdso_time(int64_t *t);
EXPORT int __vdso_getcpu(unsigned *cpu, unsigned *node, void *unused);
EXPORT int __vdso_clock_getres(int clock, struct vdso_timespec *ts);

static long syscall2(long nr, long a, long b)
{
	long r;

	__asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(a), "S"(b)
			 : "rcx", "r11", "memory");
	return r;
}

/* Monotonic and real time of one consistent reading. */
static void read_clock(uint64_t *mono, uint64_t *real)
{
	const volatile struct cm_clock *c = (void *)(CM_PHYSMAP_VA + CM_CLOCK_GPA);
	uint32_t seq, lo, hi;
	uint64_t tsc, delta;

	do {
		do {
			seq = c->seq;
		} while ((seq & 1) != 0);
		__asm__ volatile("lfence; rdtsc" : "=a"(lo), "=d"(hi) : : "memory");
		tsc = (uint64_t)hi << 32 | lo;
		delta = tsc > c->tsc_base ? tsc - c->tsc_base : 0;
		delta = (uint64_t)((unsigned __int128)delta * c->mult >> c->shift);
		*mono = c->monotonic_ns + delta;
		*real = c->realtime_ns + delta;
		__asm__ volatile("" : : : "memory");
	} while (c->seq != seq);
}

int __vdso_clock_gettime(int clock, struct vdso_timespec *ts)
{
	uint64_t mono, real, ns;

	switch (clock) {
	case 0:		/* CLOCK_REALTIME */
	case 5:		/* _COARSE */
		read_clock(&mono, &real);
		ns = real;
		break;
	case 1:		/* CLOCK_MONOTONIC */
	case 4:		/* _RAW */
	case 6:		/* _COARSE */
	case 7:		/* CLOCK_BOOTTIME */
		read_clock(&mono, &real);
		ns = mono;
		break;
	default:
		return (int)syscall2(__NR_clock_gettime, clock, (long)ts);
	}
	ts->sec = (int64_t)(ns / 1000000000);
	ts->nsec = (int64_t)(ns % 1000000000);
	return 0;
}

int __vdso_gettimeofday(struct vdso_timeval *tv, void *tz)
{
	uint64_t mono, real;

	if (tz != NULL)
		return (int)syscall2(__NR_gettimeofday, (long)tv, (long)tz);
	if (tv == NULL)
		return 0;
	read_clock(&mono, &real);
	tv->sec = (int64_t)(real / 1000000000);
	tv->usec = (int64_t)(real % 1000000000 / 1000);
	return 0;
}

int64_t __vdso_time(int64_t *t)
{
	uint64_t mono, real;

	read_clock(&mono, &real);
	if (t != NULL)
		*t = (int64_t)(real / 1000000000);
	return (int64_t)(real / 1000000000);
}

int __vdso_getcpu(unsigned *cpu, unsigned *node, void *unused)
{
	(void)unused;
	if (cpu != NULL)
		*cpu = 0;
	if (node != NULL)
		*node = 0;
	return 0;
}

int __vdso_clock_getres(int clock, struct vdso_timespec *ts)
{
	return (int)syscall2(__NR_clock_getres, clock, (long)ts);
}
