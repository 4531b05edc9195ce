/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vDSO's reader of the clock page against a writer that never rests, as a restore may come
 * between any two of its instructions. Two ways to write the same clock, one with a TSC base
 * of now and one with a base of long ago: a mixture of both would be far off.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "abi/clock.h"
#include "abi/layout.h"

static struct cm_clock page;

#undef CM_PHYSMAP_VA
#define CM_PHYSMAP_VA ((uintptr_t)&page - CM_CLOCK_GPA)
#include "guest-kernel/vdso/vdso.c"
#include "tests/unit/cunit_run.h"

#define MONO0	(1ULL << 61)
#define REAL_A	(1ULL << 40)	/* realtime - monotonic, by state */
#define REAL_B	(1ULL << 50)

static uint64_t tsc0;
static atomic_bool done;

static uint64_t tsc_now(void)
{
	return __builtin_ia32_rdtsc();
}

static void page_write(bool a)
{
	volatile struct cm_clock *c = &page;

	c->seq |= 1;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	c->tsc_base = a ? tsc0 : 1;
	c->monotonic_ns = a ? MONO0 : MONO0 - (tsc0 - 1);
	c->realtime_ns = c->monotonic_ns + (a ? REAL_A : REAL_B);
	c->generation++;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	c->seq++;
}

static void *writer(void *arg)
{
	for (unsigned long n = 0; !atomic_load(&done); n++) {
		page_write(n & 1);
		for (unsigned i = 0; i < n % 50; i++)
			__builtin_ia32_pause();
	}
	return arg;
}

static void test_reader(void)
{
	uint64_t mono, real, last = 0, before, after;
	unsigned long bad = 0, seen_a = 0, seen_b = 0;
	pthread_t thread;

	page.mult = 1;
	tsc0 = tsc_now();
	page_write(true);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, writer, NULL), 0);
	for (unsigned long n = 0; n < 1000000; n++) {
		before = MONO0 + (tsc_now() - tsc0);
		read_clock(&mono, &real);
		after = MONO0 + (tsc_now() - tsc0);
		bad += mono < last || mono < before || mono > after;
		bad += real - mono != REAL_A && real - mono != REAL_B;
		seen_a += real - mono == REAL_A;
		seen_b += real - mono == REAL_B;
		last = mono;
	}
	atomic_store(&done, true);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(bad, 0);
	CU_ASSERT_TRUE(seen_a > 0 && seen_b > 0);
}

/* A base that is ahead of the TSC counts as now; seconds and nanoseconds come out right. */
static void test_values(void)
{
	struct vdso_timespec ts;
	struct vdso_timeval tv;

	page = (struct cm_clock){
		.mult = 1,
		.tsc_base = ~0ULL,
		.monotonic_ns = 5000000007,
		.realtime_ns = 1700000000123456789,
		.generation = 2,
	};
	CU_ASSERT_EQUAL(__vdso_clock_gettime(1, &ts), 0);
	CU_ASSERT_TRUE(ts.sec == 5 && ts.nsec == 7);
	CU_ASSERT_EQUAL(__vdso_clock_gettime(0, &ts), 0);
	CU_ASSERT_TRUE(ts.sec == 1700000000 && ts.nsec == 123456789);
	CU_ASSERT_EQUAL(__vdso_gettimeofday(&tv, NULL), 0);
	CU_ASSERT_TRUE(tv.sec == 1700000000 && tv.usec == 123456);
	CU_ASSERT_EQUAL(__vdso_time(NULL), 1700000000);
}

int main(void)
{
	CU_pSuite s = cunit_suite("vdso", NULL, NULL);

	CU_add_test(s, "reader against writer", test_reader);
	CU_add_test(s, "values", test_values);
	return cunit_run();
}
