/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduling, CPU time, mutexes and wait queues on the coroutine machine. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <asm/unistd.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/time.h"
#include "tests/unit/kernel-core/user.h"

static int next_id;

/* ---- scheduling ---- */

long sys_setitimer(int which, const void *val, void *old);

static void sleepy(void)
{
	const int64_t val[4] = {0, 0, 0, 5000};
	struct ktimespec ts = {100, 0};

	SYS(sys_setitimer(2, val, NULL));
	/* Time that nobody has looked at yet when the call goes to sleep. */
	SYS((machine_now_ns += 6 * NSEC_PER_MSEC, sys_nanosleep(&ts, NULL)));
	CHECK(false);
}

/* SIGPROF comes from the very accounting that schedule() begins with: it must still wake. */
MACHINE_TEST(prof_timer_on_the_way_to_sleep)
{
	uint64_t before = machine_now_ns;
	int st;

	user_fork(sleepy);
	CHECK(SYS(sys_wait4(-1, &st, 0, NULL)) > 0);
	CHECK_EQ(st, KSIGPROF);
	CHECK(machine_now_ns - before < NSEC_PER_SEC);
	sys_exit_group(0);
}

static uint64_t ran[4];
static uint64_t run_until;

static void spinner(void)
{
	int me = next_id++;

	if (me == 2)
		SYS(sys_setpriority(0, 0, 5));
	while (machine_now_ns < run_until) {
		machine_spend(NSEC_PER_MSEC);
		ran[me] += 1;
	}
	sys_exit_group(0);
}

MACHINE_TEST(fair_shares)
{
	unsigned arms;
	int st;

	run_until = machine_now_ns + 4 * NSEC_PER_SEC;
	for (int i = 0; i < 3; i++)
		user_fork(spinner);
	arms = machine_timer_arms;
	for (int i = 0; i < 3; i++)
		SYS(sys_wait4(-1, &st, 0, NULL));
	/* Weights 1024, 1024 and 336: 43 %, 43 %, 14 % of four seconds. */
	CHECK(ran[0] > 1600 && ran[0] < 1850);
	CHECK(ran[1] > 1600 && ran[1] < 1850);
	CHECK(ran[2] > 480 && ran[2] < 650);
	/* One arming a slice. */
	CHECK(machine_timer_arms - arms < 1200);
	CHECK_EQ(sys_getpriority(0, 0), 20);
	sys_exit_group(0);
}

static void interactive(void)
{
	struct ktimespec ts = {0, 20000000};
	uint64_t worst = 0;

	for (int i = 0; i < 50; i++) {
		uint64_t due = machine_now_ns + 20 * NSEC_PER_MSEC;

		SYS(sys_nanosleep(&ts, NULL));
		worst = MAX(worst, machine_now_ns - due);
		machine_spend(100 * NSEC_PER_USEC);
	}
	CHECK(worst <= NSEC_PER_MSEC);
	sys_exit_group(0);
}

MACHINE_TEST(sleepers_run_soon)
{
	int st;

	run_until = machine_now_ns + 3 * NSEC_PER_SEC;
	user_fork(spinner);
	user_fork(spinner);
	user_fork(interactive);
	for (int i = 0; i < 3; i++)
		SYS(sys_wait4(-1, &st, 0, NULL));
	sys_exit_group(0);
}

static void burn_50ms(void)
{
	machine_spend(50 * NSEC_PER_MSEC);
	sys_exit_group(0);
}

MACHINE_TEST(times_add_up)
{
	struct krusage u;
	int st;

	user_fork(burn_50ms);
	CHECK(SYS(sys_wait4(-1, &st, 0, &u)) > 0);
	CHECK(u.utime_sec == 0 && u.utime_usec >= 49000 && u.utime_usec <= 51000);
	CHECK_EQ(u.maxrss, 400);
	CHECK_EQ(SYS(sys_getrusage(-1, &u)), 0);
	CHECK(u.utime_usec >= 49000 && u.utime_usec <= 51000);
	CHECK_EQ(SYS(sys_getrusage(0, &u)), 0);
	CHECK(u.utime_usec < 1000);
	CHECK_EQ(SYS(sys_getrusage(5, &u)), -EINVAL);
	sys_exit_group(0);
}

static struct mutex mutex;
static int inside;

static void mutex_user(void)
{
	int id = next_id++;

	mutex_lock(&mutex);
	CHECK_EQ(inside, 0);
	inside = 1;
	note(id);
	let_others_sleep();
	inside = 0;
	mutex_unlock(&mutex);
	sys_exit(0);
}

MACHINE_TEST(mutex_excludes)
{
	mutex_init(&mutex);
	for (int i = 0; i < 4; i++)
		user_thread(mutex_user);
	for (int i = 0; i < 10; i++)
		let_others_sleep();
	CHECK_EQ(norder, 4);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(order[i], i);
	sys_exit_group(0);
}

static struct waitq wq;
static int tokens;

static void token_taker(void)
{
	int id = next_id++;

	WAIT_EVENT_FULL(&wq, tokens > 0, NO_DEADLINE, true, true);
	tokens--;
	note(id);
	sys_exit(0);
}

MACHINE_TEST(exclusive_waiters)
{
	waitq_init(&wq);
	for (int i = 0; i < 4; i++)
		user_thread(token_taker);
	let_others_sleep();
	tokens = 1;
	waitq_wake(&wq, 0);
	let_others_sleep();
	CHECK_EQ(norder, 1);
	tokens = 2;
	waitq_wake_n(&wq, 0, 2);
	let_others_sleep();
	CHECK_EQ(norder, 3);
	tokens = 1;
	waitq_wake_all(&wq, 0);
	let_others_sleep();
	CHECK_EQ(norder, 4);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(order[i], i);
	sys_exit_group(0);
}

/* ---- memory that somebody else is about to give back ---- */

static void end_at_once(void)
{
	sys_exit_group(0);
}

static void sleep_half(void)
{
	struct ktimespec ts = {0, 500000000};

	SYS(sys_nanosleep(&ts, NULL));
	sys_exit_group(9);
}

static long dispatch_fork(void (*fn)(void))
{
	struct trapframe *tf = task_frame(current);
	long r;

	tf->rip = (uintptr_t)fn;
	tf->orig_rax = __NR_fork;
	current->is_syscall = true;
	r = syscall_dispatch(tf);
	tf->rip = 0;
	return r;
}

/* A call that finds no memory while somebody is dying waits for that end, and no longer. */
MACHINE_TEST(calls_wait_for_the_dying)
{
	uint64_t before = machine_now_ns;
	int st;
	long pid = user_fork(sleep_half), next;

	machine_dying = process_find((int)pid);
	machine_fail_alloc = 1;
	next = dispatch_fork(end_at_once);
	CHECK(next > 0);
	CHECK(machine_now_ns - before >= NSEC_PER_SEC / 2);
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 1, NULL)), pid);
	CHECK_EQ(SYS(sys_wait4((int)next, &st, 0, NULL)), next);

	/* Nobody is dying, or it takes too long. */
	machine_dying = NULL;
	machine_fail_alloc = 1;
	CHECK_EQ(dispatch_fork(end_at_once), -ENOMEM);
	machine_dying = current->proc;
	machine_fail_alloc = 1;
	before = machine_now_ns;
	CHECK_EQ(dispatch_fork(end_at_once), -ENOMEM);
	CHECK(machine_now_ns - before >= NSEC_PER_SEC);
	sys_exit_group(0);
}

const struct machine_test sched_tests[] = {
	{"prof_timer_on_the_way_to_sleep", prof_timer_on_the_way_to_sleep},
	{"fair_shares", fair_shares},
	{"sleepers_run_soon", sleepers_run_soon},
	{"times_add_up", times_add_up},
	{"mutex_excludes", mutex_excludes},
	{"exclusive_waiters", exclusive_waiters},
	{"calls_wait_for_the_dying", calls_wait_for_the_dying},
	{NULL, NULL},
};
