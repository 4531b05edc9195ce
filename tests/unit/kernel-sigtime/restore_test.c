/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a restore does to clocks, timers, sleepers and random numbers: the clock page is written
 * anew as the VMM does it, with another generation, a TSC that stands higher or lower and a
 * realtime that has moved on, and the timer's interrupt comes once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>

#include "world.h"

#include "guest-kernel/core/time_internal.h"

#define SEC NSEC_PER_SEC
#define MS NSEC_PER_MSEC
#define HOUR (3600 * SEC)

#define ABSTIME 1
#define CANCEL_ON_SET 2

long sys_clock_nanosleep(int, int, const struct ktimespec *, struct ktimespec *);
long sys_nanosleep(const struct ktimespec *, struct ktimespec *);
long sys_setitimer(int, const void *, void *);
long sys_alarm(unsigned);
long sys_timer_create(int, const void *, int32_t *);
long sys_timer_settime(int, int, const struct kitimerspec *, struct kitimerspec *);
long sys_timer_gettime(int, struct kitimerspec *);
long sys_timer_delete(int);
long sys_timerfd_create(int, int);
long sys_timerfd_settime(int, int, const struct kitimerspec *, struct kitimerspec *);
long sys_timerfd_gettime(int, struct kitimerspec *);

/* A TSC far ahead of the old one, one that has just begun, and one that goes on. */
static const uint64_t tscs[] = { 1ULL << 62, 3, 0 };

static void restored(uint64_t pause, unsigned which)
{
	world_restore(pause, tscs[which] != 0 ? tscs[which] : host_now_ns + pause);
	world_interrupt();
}

static void test_clocks(void)
{
	uint64_t mono, real, boot;

	for (unsigned i = 0; i < ARRAY_SIZE(tscs); i++) {
		world_reset();
		world_advance(10 * SEC + 1);
		mono = clock_monotonic_ns();
		real = clock_realtime_ns();
		boot = clock_boot_ns();
		restored(24 * HOUR, i);
		CU_ASSERT_EQUAL(clock_monotonic_ns(), mono);
		CU_ASSERT_EQUAL(clock_boot_ns(), boot);
		CU_ASSERT_EQUAL(clock_realtime_ns(), real + 24 * HOUR);
		world_advance(SEC);
		CU_ASSERT_EQUAL(clock_monotonic_ns(), mono + SEC);
		CU_ASSERT_EQUAL(clock_realtime_ns(), real + 24 * HOUR + SEC);
	}
}

/* ---- stopped right behind the n-th reading of the TSC ---- */

static unsigned hook_at, hook_which;

static void hook(void)
{
	if (hook_at == 0 || --hook_at != 0)
		return;
	world_restore(24 * HOUR, tscs[hook_which] != 0 ? tscs[hook_which] :
							 host_now_ns + 24 * HOUR);
}

static void stop_at(unsigned n, unsigned which)
{
	hook_at = n;
	hook_which = which;
	host_tsc_hook = hook;
}

/* A reader in the middle of the page reads it again. */
static void test_torn_reading(void)
{
	uint64_t mono;

	for (unsigned i = 0; i < ARRAY_SIZE(tscs); i++) {
		world_reset();
		world_advance(7 * SEC);
		mono = clock_monotonic_ns();
		stop_at(1, i);
		CU_ASSERT_EQUAL(clock_monotonic_ns(), mono);
		CU_ASSERT_EQUAL(hook_at, 0);
		stop_at(1, i);
		CU_ASSERT_EQUAL(clock_realtime_ns(), WORLD_REAL0 + 7 * SEC + 48 * HOUR);
	}
}

/* ---- timers ---- */

static struct kitimerspec every(uint64_t first, uint64_t interval)
{
	return (struct kitimerspec){ ns_to_timespec(interval), ns_to_timespec(first) };
}

static int tfd(int clock, int flags, uint64_t value, uint64_t interval)
{
	struct kitimerspec spec = every(value, interval);
	int fd = (int)sys_timerfd_create(clock, 04000 /* TFD_NONBLOCK */);

	CU_ASSERT_EQUAL(sys_timerfd_settime(fd, flags, &spec, NULL), 0);
	return fd;
}

static uint64_t ticks_of(int fd)
{
	uint64_t ticks = 0;
	long r = world_read(fd, &ticks, sizeof(ticks));

	if (r == -EAGAIN)
		return 0;
	CU_ASSERT_EQUAL(r, sizeof(ticks));
	return ticks;
}

static unsigned ready(int fd)
{
	struct file *f = fd_get(fd);
	unsigned r = file_poll(f, NULL);

	file_put(f);
	return r;
}

static void test_timerfd(void)
{
	struct kitimerspec left;
	int once, later, periodic, mono, relative;

	for (unsigned i = 0; i < ARRAY_SIZE(tscs); i++) {
		world_reset();
		once = tfd(KCLOCK_REALTIME, ABSTIME, WORLD_REAL0 + HOUR, 0);
		later = tfd(KCLOCK_REALTIME, ABSTIME, WORLD_REAL0 + 48 * HOUR, 0);
		periodic = tfd(KCLOCK_REALTIME, ABSTIME, WORLD_REAL0 + HOUR, HOUR);
		mono = tfd(KCLOCK_MONOTONIC, 0, HOUR, HOUR);
		relative = tfd(KCLOCK_REALTIME, 0, HOUR, 0);
		world_advance(10 * SEC);
		restored(24 * HOUR, i);
		CU_ASSERT_EQUAL(ready(once), KPOLLIN);
		CU_ASSERT_EQUAL(ready(later), 0);
		CU_ASSERT_EQUAL(ready(mono), 0);
		CU_ASSERT_EQUAL(ticks_of(once), 1);
		CU_ASSERT_EQUAL(ticks_of(once), 0);
		/* Due at hour 1, 2, … 24: it is 24:00:10. */
		CU_ASSERT_EQUAL(ticks_of(periodic), 24);
		sys_timerfd_gettime(periodic, &left);
		CU_ASSERT_EQUAL(left.value.sec, 3590);
		sys_timerfd_gettime(mono, &left);
		CU_ASSERT_EQUAL(left.value.sec, 3590);
		world_advance(3590 * SEC - 1);
		CU_ASSERT_EQUAL(ready(periodic) | ready(mono) | ready(relative), 0);
		world_advance(1);
		CU_ASSERT_EQUAL(ticks_of(periodic), 1);
		CU_ASSERT_EQUAL(ticks_of(mono), 1);
		CU_ASSERT_EQUAL(ticks_of(relative), 1);
		CU_ASSERT_EQUAL(ticks_of(once), 0);
		world_advance(23 * HOUR - 1);
		CU_ASSERT_EQUAL(ready(later), 0);
		world_advance(1);
		CU_ASSERT_EQUAL(ticks_of(later), 1);
	}
}

static int sleep_restored(uint64_t deadline, bool interruptible)
{
	CU_ASSERT_EQUAL(deadline, NO_DEADLINE);
	current->state = TASK_SLEEPING;
	restored(24 * HOUR, 1);
	/* Somebody must have woken us. */
	CU_ASSERT_EQUAL(current->state, TASK_RUNNABLE);
	current->state = TASK_RUNNABLE;
	return 0;
}

/* Readers are told, whether they poll, sleep or come later; once. */
static void test_timerfd_cancel(void)
{
	int fd, due, other;
	struct file *f;
	uint64_t ticks;

	world_reset();
	fd = tfd(KCLOCK_REALTIME, ABSTIME | CANCEL_ON_SET, WORLD_REAL0 + 480 * HOUR, 0);
	due = tfd(KCLOCK_REALTIME, ABSTIME | CANCEL_ON_SET, WORLD_REAL0 + HOUR, HOUR);
	other = tfd(KCLOCK_MONOTONIC, CANCEL_ON_SET, HOUR, 0);
	restored(24 * HOUR, 0);
	CU_ASSERT_EQUAL(ready(fd), KPOLLIN);
	CU_ASSERT_EQUAL(ready(other), 0);
	CU_ASSERT_EQUAL(world_read(fd, &ticks, 8), -ECANCELED);
	CU_ASSERT_EQUAL(ready(fd), 0);
	CU_ASSERT_EQUAL(world_read(fd, &ticks, 8), -EAGAIN);
	CU_ASSERT_EQUAL(world_read(due, &ticks, 8), -ECANCELED);
	CU_ASSERT_EQUAL(ready(due), 0);

	f = fd_get(fd);
	f->flags = 0;
	file_put(f);
	world_sleep = sleep_restored;
	CU_ASSERT_EQUAL(world_read(fd, &ticks, 8), -ECANCELED);
	/* Not cancelled: the one that is due ends the sleep. */
	CU_ASSERT_EQUAL(world_close(fd), 0);
	fd = tfd(KCLOCK_REALTIME, ABSTIME, clock_realtime_ns() + HOUR, HOUR);
	f = fd_get(fd);
	f->flags = 0;
	file_put(f);
	CU_ASSERT_EQUAL(world_read(fd, &ticks, 8), 8);
	CU_ASSERT_EQUAL(ticks, 24);
}

static void test_posix_timer(void)
{
	struct kitimerspec spec = every(WORLD_REAL0 + HOUR, HOUR), left;
	struct ksiginfo info;
	int32_t real, mono;

	for (unsigned i = 0; i < ARRAY_SIZE(tscs); i++) {
		world_reset();
		current->sig_mask = ~SIG_KERNEL_ONLY;
		CU_ASSERT_EQUAL(sys_timer_create(KCLOCK_REALTIME, NULL, &real), 0);
		CU_ASSERT_EQUAL(sys_timer_create(KCLOCK_MONOTONIC, NULL, &mono), 0);
		spec = every(WORLD_REAL0 + HOUR, HOUR);
		CU_ASSERT_EQUAL(sys_timer_settime(real, ABSTIME, &spec, NULL), 0);
		spec = every(HOUR, 0);
		CU_ASSERT_EQUAL(sys_timer_settime(mono, 0, &spec, NULL), 0);
		world_advance(10 * SEC);
		restored(24 * HOUR, i);
		CU_ASSERT_EQUAL(signal_dequeue(0, &info), KSIGALRM);
		CU_ASSERT_EQUAL(info.timer_id, real);
		CU_ASSERT_EQUAL(info.overrun, 23);
		CU_ASSERT_EQUAL(signal_dequeue(0, &info), 0);
		sys_timer_gettime(real, &left);
		CU_ASSERT_EQUAL(left.value.sec, 3590);
		sys_timer_gettime(mono, &left);
		CU_ASSERT_EQUAL(left.value.sec, 3590);
		CU_ASSERT_EQUAL(sys_timer_delete(real), 0);
		world_advance(3590 * SEC - 1);
		CU_ASSERT_EQUAL(signal_dequeue(0, &info), 0);
		world_advance(1);
		CU_ASSERT_EQUAL(signal_dequeue(0, &info), KSIGALRM);
		CU_ASSERT_EQUAL(info.timer_id, mono);
	}
}

struct kitimerval_t {
	int64_t isec, iusec, sec, usec;
};

static void test_itimer(void)
{
	struct kitimerval_t it = { 60, 0, 60, 0 };
	struct ksiginfo info;

	world_reset();
	current->sig_mask = ~SIG_KERNEL_ONLY;
	sys_setitimer(0, &it, NULL);
	world_advance(10 * SEC);
	restored(24 * HOUR, 0);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), 0);
	world_advance(50 * SEC - 1);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), 0);
	world_advance(1);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), KSIGALRM);
	restored(24 * HOUR, 1);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), 0);
	CU_ASSERT_EQUAL(sys_alarm(100), 60);
	restored(24 * HOUR, 2);
	CU_ASSERT_EQUAL(sys_alarm(0), 100);
}

/* ---- sleepers ---- */

static uint64_t slept_for;

static int sleep_then_restored(uint64_t deadline, bool interruptible)
{
	slept_for = deadline - clock_monotonic_ns();
	restored(24 * HOUR, 0);
	world_sleep = NULL;
	return 0;
}

static void test_sleepers(void)
{
	struct ktimespec ts = ns_to_timespec(WORLD_REAL0 + HOUR);
	uint64_t start;

	/* Due in the pause: at once, without a nanosecond of the monotonic clock. */
	world_reset();
	start = clock_monotonic_ns();
	world_sleep = sleep_then_restored;
	CU_ASSERT_EQUAL(sys_clock_nanosleep(KCLOCK_REALTIME, ABSTIME, &ts, NULL), 0);
	CU_ASSERT_EQUAL(slept_for, HOUR);
	CU_ASSERT_EQUAL(clock_monotonic_ns(), start);
	/* Due later: at its time. */
	ts = ns_to_timespec(WORLD_REAL0 + 25 * HOUR);
	world_sleep = sleep_then_restored;
	world_reset();
	world_sleep = sleep_then_restored;
	start = clock_monotonic_ns();
	CU_ASSERT_EQUAL(sys_clock_nanosleep(KCLOCK_REALTIME, ABSTIME, &ts, NULL), 0);
	CU_ASSERT_EQUAL(clock_monotonic_ns(), start + HOUR);
	/* Monotonic ones sleep the rest. */
	world_sleep = sleep_then_restored;
	start = clock_monotonic_ns();
	ts = ns_to_timespec(start + HOUR);
	CU_ASSERT_EQUAL(sys_clock_nanosleep(KCLOCK_MONOTONIC, ABSTIME, &ts, NULL), 0);
	CU_ASSERT_EQUAL(clock_monotonic_ns(), start + HOUR);
	world_sleep = sleep_then_restored;
	start = clock_monotonic_ns();
	ts = ns_to_timespec(HOUR);
	CU_ASSERT_EQUAL(sys_nanosleep(&ts, NULL), 0);
	CU_ASSERT_EQUAL(clock_monotonic_ns(), start + HOUR);
}

/* On the way to sleep, behind any reading of the clock. */
static void test_on_the_way(void)
{
	struct ktimespec ts;
	uint64_t start;
	unsigned stops = 0;

	for (unsigned n = 1; n < 40; n++) {
		for (unsigned i = 0; i < ARRAY_SIZE(tscs); i++) {
			world_reset();
			start = clock_monotonic_ns();
			ts = ns_to_timespec(WORLD_REAL0 + HOUR);
			stop_at(n, i);
			sys_clock_nanosleep(KCLOCK_REALTIME, ABSTIME, &ts, NULL);
			stops += hook_at == 0;
			/* It slept its hour before the stop, or was due by it. */
			CU_ASSERT_TRUE(clock_monotonic_ns() == start ||
				       clock_monotonic_ns() == start + HOUR);
			CU_ASSERT_TRUE(hook_at != 0 ||
				       clock_realtime_ns() < WORLD_REAL0 + 26 * HOUR);
			CU_ASSERT_TRUE(n > 3 || clock_monotonic_ns() == start);
			world_reset();
			start = clock_monotonic_ns();
			ts = ns_to_timespec(HOUR);
			stop_at(n, i);
			sys_nanosleep(&ts, NULL);
			CU_ASSERT_EQUAL(clock_monotonic_ns(), start + HOUR);
		}
	}
	CU_ASSERT_TRUE(stops > 9);
}

/* ---- random numbers ---- */

static void test_random(void)
{
	uint8_t before[32], after[32];

	world_reset();
	random_init("seed", 4);
	random_bytes(before, sizeof(before));
	restored(HOUR, 1);
	random_bytes(after, sizeof(after));
	CU_ASSERT_NOT_EQUAL(memcmp(before, after, sizeof(after)), 0);
}

int main(void)
{
	CU_pSuite s;

	CU_initialize_registry();
	s = CU_add_suite("kernel restore", NULL, NULL);
	CU_add_test(s, "clocks", test_clocks);
	CU_add_test(s, "torn reading", test_torn_reading);
	CU_add_test(s, "timerfd", test_timerfd);
	CU_add_test(s, "timerfd, cancel on set", test_timerfd_cancel);
	CU_add_test(s, "timer_settime", test_posix_timer);
	CU_add_test(s, "setitimer, alarm", test_itimer);
	CU_add_test(s, "sleepers", test_sleepers);
	CU_add_test(s, "on the way to sleep", test_on_the_way);
	CU_add_test(s, "random numbers", test_random);
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	world_reset();
	int failed = (int)CU_get_number_of_failures();

	CU_cleanup_registry();
	return failed != 0;
}
