/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine that is stopped and restored: CPU time does not count the pause and does not follow
 * a TSC that is another one's; sleepers on the realtime clock wake when their time has passed,
 * also in an idle machine, and the others at theirs.
 */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-kernel/core/time.h"
#include "guest-kernel/core/time_internal.h"
#include "tests/unit/kernel-core/user.h"

#define MS NSEC_PER_MSEC
#define HOUR (3600 * NSEC_PER_SEC)
#define REAL0 (1000 * NSEC_PER_SEC)	/* machine_run(): realtime at monotonic 0 */

long sys_clock_nanosleep(int, int, const struct ktimespec *, struct ktimespec *);
long sys_setitimer(int, const void *, void *);

static const uint64_t tscs[] = {1ULL << 62, 1000, 5 * HOUR, 3};

static void cpu_check(uint64_t user_ns, uint64_t sys_ns)
{
	uint64_t user, sys;

	process_times(current->proc, &user, &sys);
	CHECK(user + 1 * MS >= user_ns && user <= user_ns + 1 * MS);
	CHECK(sys + 1 * MS >= sys_ns && sys <= sys_ns + 1 * MS);
}

/* A system call that takes that long, accounted as core/syscall.c does. */
static void kernel_spend(uint64_t ns)
{
	current->is_syscall = true;
	sched_account(false);
	machine_now_ns += ns / 2;
	if (arch_irq_pending())
		irq_process();
	machine_now_ns += ns - ns / 2;
	sched_account(true);
	current->is_syscall = false;
}

MACHINE_TEST(cpu_time_of_programs)
{
	struct {
		int64_t isec, iusec, sec, usec;
	} prof = {0, 0, 10, 0};

	CHECK_EQ(SYS(sys_setitimer(2, &prof, NULL)), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(tscs); i++) {
		machine_spend(20 * MS);
		kernel_spend(10 * MS);
		machine_restore(24 * HOUR, tscs[i]);
		machine_spend(20 * MS);
		kernel_spend(10 * MS);
		cpu_check((i + 1) * 40 * MS, (i + 1) * 20 * MS);
	}
	/* Only what was computed is off the profiling timer. */
	CHECK(current->proc->itimer_prof <= 9760 * MS + 1 * MS);
	CHECK(current->proc->itimer_prof >= 9760 * MS - 1 * MS);
	CHECK_EQ(current->proc->pending.set, 0);
	CHECK(sched_idle_ns() < 1 * MS);
	sys_exit_group(0);
}

static unsigned hook_at, hook_which, stops;

static void stop_here(void)
{
	if (hook_at != 0 && --hook_at == 0) {
		machine_restore(24 * HOUR, tscs[hook_which++ % ARRAY_SIZE(tscs)]);
		stops++;
	}
}

/* Right behind the n-th reading of the TSC, wherever that is. */
MACHINE_TEST(cpu_time_stopped_anywhere)
{
	uint64_t spent = 0;	/* on each side */

	machine_tsc_hook = stop_here;
	for (unsigned n = 0; n < 500; n++) {
		if (hook_at == 0)
			hook_at = 1 + n % 23;
		machine_spend(3 * MS);
		kernel_spend(5 * MS);
		SYS(sys_sched_yield());
		machine_spend(3 * MS);
		kernel_spend(1 * MS);
		spent += 6 * MS;
		cpu_check(spent, spent);
	}
	CHECK(stops > 100);
	sys_exit_group(0);
}

static void halted(void)
{
	machine_halt_hook = NULL;
	machine_restore(24 * HOUR, 1000);
}

static uint32_t word;
static uint64_t began, allowed = 1 * MS;

static void futex_real(void)
{
	struct ktimespec ts = ns_to_timespec(REAL0 + HOUR);

	/* FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME */
	CHECK_EQ(SYS(sys_futex(&word, 9 | 256, 0, &ts, NULL, ~0u)), -ETIMEDOUT);
	note(1);
	CHECK(machine_now_ns - began < allowed);
	sys_exit(0);
}

static void futex_mono(void)
{
	struct ktimespec ts = {5, 0};

	CHECK_EQ(SYS(sys_futex(&word, 0, 0, &ts, NULL, 0)), -ETIMEDOUT);
	note(2);
	CHECK_EQ(machine_now_ns - began, 5 * NSEC_PER_SEC);
	sys_exit(0);
}

static void sleep_real(void)
{
	struct ktimespec ts = ns_to_timespec(REAL0 + 2 * HOUR);

	CHECK_EQ(SYS(sys_clock_nanosleep(0, 1, &ts, NULL)), 0);
	note(3);
	CHECK(machine_now_ns - began < allowed);
	sys_exit(0);
}

static void sleep_later(void)
{
	struct ktimespec ts = ns_to_timespec(REAL0 + 25 * HOUR);

	CHECK_EQ(SYS(sys_clock_nanosleep(0, 1, &ts, NULL)), 0);
	note(4);
	CHECK_EQ(clock_realtime_ns(), REAL0 + 25 * HOUR);
	sys_exit(0);
}

MACHINE_TEST(sleepers_of_an_idle_machine)
{
	struct ktimespec ts = {2 * 3600, 0};
	uint64_t idle = sched_idle_ns();

	began = machine_now_ns;
	user_thread(futex_real);
	user_thread(futex_mono);
	user_thread(sleep_real);
	user_thread(sleep_later);
	machine_halt_hook = halted;
	CHECK_EQ(SYS(sys_nanosleep(&ts, NULL)), 0);
	CHECK_EQ(machine_now_ns - began, 2 * HOUR);
	CHECK(machine_halt_hook == NULL);
	CHECK_EQ(norder, 4);
	CHECK(order[0] == 1 || order[0] == 3);
	CHECK_EQ(order[0] + order[1], 4);
	CHECK_EQ(order[2], 2);
	CHECK_EQ(order[3], 4);
	CHECK(sched_idle_ns() - idle <= 2 * HOUR);
	cpu_check(0, 0);
	sys_exit_group(0);
}

/* The same while a program computes: the interrupt finds it. */
MACHINE_TEST(sleepers_of_a_busy_machine)
{
	began = machine_now_ns;
	user_thread(futex_real);
	user_thread(sleep_real);
	let_others_sleep();
	began = machine_now_ns;
	allowed = 10 * MS;	/* who computes has a slice */
	machine_restore(24 * HOUR, 1ULL << 50);
	machine_spend(20 * MS);
	CHECK_EQ(norder, 2);
	sys_exit_group(0);
}

const struct machine_test restore_tests[] = {
	{"restored: cpu_time_of_programs", cpu_time_of_programs},
	{"restored: cpu_time_stopped_anywhere", cpu_time_stopped_anywhere},
	{"restored: sleepers_of_an_idle_machine", sleepers_of_an_idle_machine},
	{"restored: sleepers_of_a_busy_machine", sleepers_of_a_busy_machine},
	{NULL, NULL},
};
