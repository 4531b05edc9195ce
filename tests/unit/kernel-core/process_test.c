/* SPDX-License-Identifier: Apache-2.0 */
/* Processes, threads, futexes, exec and pidfds on the coroutine machine. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "tests/unit/kernel-core/user.h"

static void nothing(void)
{
}

static void exit_7(void)
{
	sys_exit_group(7);
}

/* ---- fork, exit, wait ---- */

MACHINE_TEST(fork_and_wait)
{
	unsigned allocs = machine_live_allocs, mms = machine_live_mms;
	int st = -1;
	long pid;

	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), -ECHILD);
	pid = user_fork(exit_7);
	CHECK_EQ(pid, 2);
	CHECK_EQ(SYS(sys_wait4(-1, &st, KWNOHANG, NULL)), 0);
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 0, NULL)), pid);
	CHECK_EQ(st, 7 << 8);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), -ECHILD);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0x80, NULL)), -EINVAL);
	CHECK_EQ(SYS(sys_wait4(INT32_MIN, &st, 0, NULL)), -ESRCH);
	CHECK_EQ(machine_live_allocs, allocs);
	CHECK_EQ(machine_live_mms, mms);
	CHECK_EQ(machine_live_files, 1);
	CHECK_EQ(task_counts.tasks, 1);
	sys_exit_group(0);
}

static void sleep_then_exit(void)
{
	struct ktimespec ts = {1, 0};

	CHECK_EQ(SYS(sys_nanosleep(&ts, NULL)), 0);
	sys_exit_group(9);
}

MACHINE_TEST(wait_sleeps)
{
	uint64_t before = machine_now_ns;
	int st;
	long pid = user_fork(sleep_then_exit);

	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid);
	CHECK_EQ(st, 9 << 8);
	CHECK(machine_now_ns - before >= NSEC_PER_SEC);
	sys_exit_group(0);
}

MACHINE_TEST(waitid_forms)
{
	int32_t info[32] = {-1, -1, -1, -1, -1, -1, -1};
	long pid = user_fork(exit_7);

	CHECK_EQ(SYS(sys_waitid(0, 0, NULL, 0, NULL)), -EINVAL);
	CHECK_EQ(SYS(sys_waitid(1, 0, NULL, KWEXITED, NULL)), -EINVAL);
	CHECK_EQ(SYS(sys_waitid(9, 0, NULL, KWEXITED, NULL)), -EINVAL);
	CHECK_EQ(SYS(sys_waitid(0, 0, (uint8_t *)info, KWEXITED | KWNOHANG, NULL)), 0);
	CHECK_EQ(info[0], 0);
	CHECK_EQ(info[4], 0);
	CHECK_EQ(SYS(sys_waitid(1, (int)pid, (uint8_t *)info, KWEXITED | KWNOWAIT, NULL)), 0);
	CHECK_EQ(info[0], KSIGCHLD);
	CHECK_EQ(info[2], KCLD_EXITED);
	CHECK_EQ(info[3], -1);
	CHECK_EQ(info[4], pid);
	CHECK_EQ(info[6], 7);
	CHECK_EQ(SYS(sys_waitid(2, 0, (uint8_t *)info, KWEXITED, NULL)), 0);
	CHECK_EQ(info[4], pid);
	CHECK_EQ(SYS(sys_waitid(0, 0, NULL, KWEXITED, NULL)), -ECHILD);
	sys_exit_group(0);
}

static void fork_orphan(void)
{
	user_fork(sleep_then_exit);
	sys_exit_group(1);
}

MACHINE_TEST(orphans_go_to_init)
{
	long pid = user_fork(fork_orphan);
	int st;

	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 0, NULL)), pid);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid + 1);
	CHECK_EQ(st, 9 << 8);
	sys_exit_group(0);
}

static void sleep_on(void)
{
	struct ktimespec ts = {1000, 0};

	SYS(sys_nanosleep(&ts, NULL));
	sys_exit_group(1);
}

static void leave_behind(void)
{
	CHECK(SYS(sys_setsid()) > 0);
	user_fork(sleep_on);
	sys_exit_group(0);
}

static void job(void)
{
	user_fork(leave_behind);
	sleep_on();
}

/* What init made dies with all that came of it, those too that left; another lives. */
MACHINE_TEST(jobs_die_whole)
{
	struct ktimespec ts = {0, 1000000};
	int st, killed = 0, ended = 0;
	long first = user_fork(job), other = user_fork(sleep_then_exit);

	CHECK_EQ(SYS(sys_nanosleep(&ts, NULL)), 0);
	CHECK_EQ(signal_kill_job((int)first), 0);
	for (int i = 0; i < 4; i++) {
		long pid = SYS(sys_wait4(-1, &st, 0, NULL));

		CHECK_EQ(st, pid == other ? 9 << 8 : st == 0 ? 0 : KSIGKILL);
		killed += st == KSIGKILL;
		ended += st == 0;
	}
	CHECK(killed == 2 && ended == 1);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), -ECHILD);
	CHECK_EQ(signal_kill_job((int)first), -ESRCH);
	sys_exit_group(0);
}

static void subreaper(void)
{
	int st;
	long pid;

	CHECK_EQ(SYS(sys_prctl(36, 1, 0, 0, 0)), 0);
	pid = user_fork(fork_orphan);
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 0, NULL)), pid);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid + 1);
	CHECK_EQ(st, 9 << 8);
	sys_exit_group(3);
}

MACHINE_TEST(orphans_go_to_subreaper)
{
	int st;
	long pid = user_fork(subreaper);

	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid);
	CHECK_EQ(st, 3 << 8);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), -ECHILD);
	sys_exit_group(0);
}

MACHINE_TEST(ignored_children_vanish)
{
	int st;

	ACTION_IGNORE(KSIGCHLD);
	user_fork(exit_7);
	user_fork(exit_7);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), -ECHILD);
	CHECK_EQ(process_count(), 1);
	CHECK_EQ(task_counts.tasks, 1);
	sys_exit_group(0);
}

static void suicide(void)
{
	SYS(sys_kill((int)sys_getpid(), KSIGTERM));
	note(99);
}

MACHINE_TEST(killed_child)
{
	int st;
	long pid = user_fork(suicide);

	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid);
	CHECK_EQ(st, KSIGTERM);
	CHECK_EQ(norder, 0);
	sys_exit_group(0);
}

MACHINE_TEST(stop_and_continue)
{
	int32_t info[32];
	long pid = user_fork(sleep_then_exit);
	int st;

	CHECK_EQ(SYS(sys_sched_yield()), 0);
	CHECK_EQ(SYS(sys_kill((int)pid, KSIGSTOP)), 0);
	CHECK_EQ(SYS(sys_wait4(-1, &st, KWUNTRACED, NULL)), pid);
	CHECK_EQ(st, KSIGSTOP << 8 | 0x7f);
	CHECK_EQ(SYS(sys_wait4(-1, &st, KWUNTRACED | KWNOHANG, NULL)), 0);
	CHECK_EQ(SYS(sys_kill((int)pid, KSIGCONT)), 0);
	CHECK_EQ(SYS(sys_waitid(0, 0, (uint8_t *)info, KWCONTINUED | KWNOWAIT, NULL)), 0);
	CHECK_EQ(info[2], KCLD_CONTINUED);
	CHECK_EQ(SYS(sys_wait4(-1, &st, KWCONTINUED, NULL)), pid);
	CHECK_EQ(st, 0xffff);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid);
	CHECK_EQ(st, 9 << 8);
	sys_exit_group(0);
}

static volatile int shared_word;

static void set_word_and_exit(void)
{
	machine_spend(10 * NSEC_PER_MSEC);
	shared_word = 1;
	sys_exit_group(4);
}

MACHINE_TEST(vfork_waits)
{
	int st;
	long pid = user_vfork(set_word_and_exit);

	CHECK_EQ(shared_word, 1);
	CHECK(current->vfork_child == NULL);
	CHECK_EQ(SYS(sys_wait4(-1, &st, KWNOHANG, NULL)), pid);
	sys_exit_group(0);
}

static void vfork_and_die(void)
{
	user_vfork(sleep_then_exit);
	note(1);	/* never: killed while the child sleeps */
}

MACHINE_TEST(vfork_parent_killed)
{
	int st;
	long pid = user_fork(vfork_and_die);
	struct ktimespec ts = {0, 1000000};

	SYS(sys_nanosleep(&ts, NULL));
	SYS(sys_kill((int)pid, KSIGKILL));
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 0, NULL)), pid);
	CHECK_EQ(st, KSIGKILL);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid + 1);
	CHECK_EQ(st, 9 << 8);
	CHECK_EQ(norder, 0);
	sys_exit_group(0);
}

MACHINE_TEST(fork_survives_failing_allocations)
{
	unsigned allocs = machine_live_allocs, files = machine_live_files;
	int st;

	for (int n = 1; n < 40; n++) {
		long pid;

		machine_fail_alloc = n;
		pid = user_fork(nothing);
		if (pid > 0) {
			CHECK(machine_fail_alloc > 0);
			machine_fail_alloc = 0;
			CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid);
			CHECK(n > 8);
			CHECK_EQ(machine_live_allocs, allocs);
			sys_exit_group(0);
		}
		CHECK_EQ(pid, -ENOMEM);
		CHECK_EQ(machine_live_allocs, allocs);
		CHECK_EQ(machine_live_files, files);
		CHECK_EQ(task_counts.tasks, 1);
	}
	CHECK(false);
	sys_exit_group(0);
}

MACHINE_TEST(numbers_wrap_and_are_held)
{
	int st;
	long pid = user_fork(sleep_then_exit), last = pid;

	for (int i = 0; i < PID_MAX + 100; i++) {
		last = user_fork(nothing);
		if (last == pid || last <= 0) {
			CHECK(false);
			break;
		}
		if (SYS(sys_wait4((int)last, &st, 0, NULL)) != last)
			CHECK(false);
	}
	CHECK(last >= 300 && last < 1000);
	sys_exit_group(0);
}

/* ---- groups and sessions ---- */

static void new_session(void)
{
	int me = (int)sys_getpid();

	CHECK_EQ(SYS(sys_setsid()), me);
	CHECK_EQ(sys_getsid(0), me);
	CHECK_EQ(sys_getpgid(0), me);
	CHECK_EQ(SYS(sys_setsid()), -EPERM);
	CHECK_EQ(SYS(sys_setpgid(0, 0)), -EPERM);
	sys_exit_group(0);
}

MACHINE_TEST(process_groups)
{
	long a, b;
	int st;

	CHECK_EQ(SYS(sys_setsid()), 1);
	a = user_fork(sleep_then_exit);
	b = user_fork(sleep_then_exit);
	CHECK_EQ(SYS(sys_setpgid((int)a, -1)), -EINVAL);
	CHECK_EQ(SYS(sys_setpgid(12345, 0)), -ESRCH);
	CHECK_EQ(SYS(sys_setpgid((int)a, (int)b)), -EPERM);
	CHECK_EQ(SYS(sys_setpgid((int)a, 0)), 0);
	CHECK_EQ(SYS(sys_setpgid((int)b, (int)a)), 0);
	CHECK_EQ(sys_getpgid((int)b), a);
	process_find((int)b)->did_exec = true;
	CHECK_EQ(SYS(sys_setpgid((int)b, 0)), -EACCES);
	CHECK_EQ(SYS(sys_wait4((int)-a, &st, 0, NULL)), a);
	CHECK_EQ(SYS(sys_wait4((int)-a, &st, 0, NULL)), b);
	CHECK_EQ(SYS(sys_wait4((int)-a, &st, 0, NULL)), -ECHILD);
	user_fork(new_session);
	SYS(sys_wait4(-1, &st, 0, NULL));
	CHECK_EQ(st, 0);
	sys_exit_group(0);
}

/* A stopped grandchild in a group of its own: when its parent goes, nobody can continue it. */
static void leave_stopped_child(void)
{
	long pid = user_fork(sleep_then_exit);
	int st;

	SYS(sys_setpgid((int)pid, 0));
	SYS(sys_kill((int)pid, KSIGSTOP));
	CHECK_EQ(SYS(sys_wait4(-1, &st, KWUNTRACED, NULL)), pid);
	sys_exit_group(0);
}

MACHINE_TEST(orphaned_group_gets_hup)
{
	int st;
	long pid;

	pid = user_fork(leave_stopped_child);
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 0, NULL)), pid);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid + 1);
	CHECK_EQ(st, KSIGHUP);
	sys_exit_group(0);
}

/* ---- threads and futexes ---- */

#define F_WAIT 0
#define F_WAKE 1
#define F_REQUEUE 3
#define F_CMP_REQUEUE 4
#define F_WAKE_OP 5
#define F_LOCK_PI 6
#define F_UNLOCK_PI 7
#define F_TRYLOCK_PI 8
#define F_WAIT_BITSET 9
#define F_WAKE_BITSET 10
#define F_LOCK_PI2 13
#define F_REALTIME 256

static uint32_t word, word2, tid_word;
static int next_id;

static void futex_waiter(void)
{
	int id = next_id++;

	CHECK_EQ(SYS(sys_futex(&word, F_WAIT, 0, NULL, NULL, 0)), 0);
	note(id);
	sys_exit(0);
}

MACHINE_TEST(futex_wakes_in_order)
{
	for (int i = 0; i < 5; i++) {
		CHECK(user_thread(futex_waiter) > 0);
		let_others_sleep();
	}
	CHECK_EQ(SYS(sys_futex(&word, F_WAIT, 1, NULL, NULL, 0)), -EAGAIN);
	CHECK_EQ(SYS(sys_futex(&word, F_WAKE, 2, NULL, NULL, 0)), 2);
	let_others_sleep();
	CHECK_EQ(norder, 2);
	CHECK_EQ(SYS(sys_futex(&word, F_WAKE, 100, NULL, NULL, 0)), 3);
	let_others_sleep();
	CHECK_EQ(norder, 5);
	for (int i = 0; i < 5; i++)
		CHECK_EQ(order[i], i);
	CHECK_EQ(SYS(sys_futex(&word, F_WAKE, 1, NULL, NULL, 0)), 0);
	CHECK_EQ(task_counts.tasks, 1);
	sys_exit_group(0);
}

MACHINE_TEST(futex_requeue)
{
	for (int i = 0; i < 4; i++)
		user_thread(futex_waiter);
	let_others_sleep();
	CHECK_EQ(SYS(sys_futex(&word, F_CMP_REQUEUE, 1, (void *)100, &word2, 5)), -EAGAIN);
	CHECK_EQ(SYS(sys_futex(&word, F_CMP_REQUEUE, -1, (void *)1, &word2, 0)), -EINVAL);
	CHECK_EQ(SYS(sys_futex(&word, F_CMP_REQUEUE, 1, (void *)2, &word2, 0)), 3);
	let_others_sleep();
	CHECK_EQ(norder, 1);
	CHECK_EQ(SYS(sys_futex(&word, F_WAKE, 100, NULL, NULL, 0)), 1);
	CHECK_EQ(SYS(sys_futex(&word2, F_WAKE, 100, NULL, NULL, 0)), 2);
	let_others_sleep();
	CHECK_EQ(norder, 4);
	sys_exit_group(0);
}

MACHINE_TEST(futex_timeouts)
{
	struct ktimespec rel = {2, 0}, bad = {0, 1000000000}, abs, past = {0, 5};
	uint64_t before = machine_now_ns;

	CHECK_EQ(SYS(sys_futex(&word, F_WAIT, 0, &bad, NULL, 0)), -EINVAL);
	CHECK_EQ(SYS(sys_futex(&word, F_WAIT, 0, &rel, NULL, 0)), -ETIMEDOUT);
	CHECK(machine_now_ns - before >= 2 * NSEC_PER_SEC);
	CHECK(machine_now_ns - before < 3 * NSEC_PER_SEC);
	abs = (struct ktimespec){(int64_t)(machine_now_ns / NSEC_PER_SEC) + 1, 0};
	CHECK_EQ(SYS(sys_futex(&word, F_WAIT_BITSET, 0, &abs, NULL, ~0u)), -ETIMEDOUT);
	CHECK(machine_now_ns >= (uint64_t)abs.sec * NSEC_PER_SEC);
	CHECK_EQ(SYS(sys_futex(&word, F_WAIT_BITSET, 0, &past, NULL, ~0u)), -ETIMEDOUT);
	abs.sec += 1000 + 1;
	CHECK_EQ(SYS(sys_futex(&word, F_WAIT_BITSET | F_REALTIME, 0, &abs, NULL, ~0u)),
		 -ETIMEDOUT);
	CHECK(clock_realtime_ns() >= (uint64_t)abs.sec * NSEC_PER_SEC);
	CHECK(clock_realtime_ns() < (uint64_t)(abs.sec + 1) * NSEC_PER_SEC);
	CHECK_EQ(SYS(sys_futex(&word, F_WAIT | F_REALTIME, 0, &rel, NULL, 0)), -ENOSYS);
	CHECK_EQ(SYS(sys_futex(&word, F_WAIT_BITSET, 0, NULL, NULL, 0)), -EINVAL);
	CHECK_EQ(SYS(sys_futex((uint32_t *)((char *)&word + 1), F_WAKE, 1, NULL, NULL, 0)),
		 -EINVAL);
	CHECK_EQ(SYS(sys_futex((uint32_t *)8, F_WAIT, 0, NULL, NULL, 0)), -EFAULT);
	CHECK_EQ(SYS(sys_futex(&word, 11 /* WAIT_REQUEUE_PI */, 0, NULL, &word2, 0)), -ENOSYS);
	sys_exit_group(0);
}

static void sleeper_thread(void)
{
	struct ktimespec ts = {100, 0};

	SYS(sys_nanosleep(&ts, NULL));
	CHECK(false);
}

static void pi_locker(void)
{
	int id = next_id++;

	CHECK_EQ(SYS(sys_futex(&word, F_LOCK_PI, 0, NULL, NULL, 0)), 0);
	CHECK_EQ(word & 0x3fffffff, (uint32_t)current->tid);
	note(id);
	if (id == 0)
		CHECK_EQ(SYS(sys_futex(&word, F_UNLOCK_PI, 0, NULL, NULL, 0)), 0);
	sys_exit(0);		/* the second dies with the lock */
}

MACHINE_TEST(futex_pi_locks)
{
	struct ktimespec abs = {(int64_t)(clock_realtime_ns() / NSEC_PER_SEC) + 2, 0};
	struct ktimespec mono = {(int64_t)(machine_now_ns / NSEC_PER_SEC) + 5, 0};

	CHECK_EQ(SYS(sys_futex(&word, F_UNLOCK_PI, 0, NULL, NULL, 0)), -EPERM);
	CHECK_EQ(SYS(sys_futex(&word, F_LOCK_PI, 0, NULL, NULL, 0)), 0);
	CHECK_EQ(word, (uint32_t)current->tid);
	CHECK_EQ(SYS(sys_futex(&word, F_LOCK_PI, 0, NULL, NULL, 0)), -EDEADLK);
	CHECK_EQ(SYS(sys_futex(&word, F_TRYLOCK_PI, 0, NULL, NULL, 0)), -EDEADLK);
	for (int i = 0; i < 3; i++) {
		user_thread(pi_locker);
		let_others_sleep();
	}
	CHECK_EQ(word, 0x80000000 | (uint32_t)current->tid);
	CHECK_EQ(SYS(sys_futex(&word, F_WAKE, 1, NULL, NULL, 0)), -EINVAL);
	CHECK_EQ(norder, 0);
	CHECK_EQ(SYS(sys_futex(&word, F_UNLOCK_PI, 0, NULL, NULL, 0)), 0);
	CHECK((word & 0x3fffffff) != (uint32_t)current->tid);
	let_others_sleep();
	CHECK_EQ(norder, 3);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(order[i], i);
	/* The third died, too; nobody waited: only a robust list would have told. */
	CHECK((word & 0x3fffffff) != 0);
	CHECK_EQ(SYS(sys_futex(&word, F_LOCK_PI, 0, NULL, NULL, 0)), -ESRCH);

	word = 0x40000000;	/* what a robust list's walk leaves */
	CHECK_EQ(SYS(sys_futex(&word, F_TRYLOCK_PI, 0, NULL, NULL, 0)), 0);
	CHECK_EQ(word, 0x40000000 | (uint32_t)current->tid);

	word = (uint32_t)user_thread(sleeper_thread);
	CHECK_EQ(SYS(sys_futex(&word, F_TRYLOCK_PI, 0, NULL, NULL, 0)), -EAGAIN);
	CHECK_EQ(SYS(sys_futex(&word, F_LOCK_PI, 0, &abs, NULL, 0)), -ETIMEDOUT);
	CHECK(clock_realtime_ns() >= (uint64_t)abs.sec * NSEC_PER_SEC);
	CHECK_EQ(SYS(sys_futex(&word, F_LOCK_PI2, 0, &mono, NULL, 0)), -ETIMEDOUT);
	CHECK(machine_now_ns >= (uint64_t)mono.sec * NSEC_PER_SEC);
	CHECK_EQ(SYS(sys_futex((uint32_t *)8, F_LOCK_PI, 0, NULL, NULL, 0)), -EFAULT);
	sys_exit_group(0);
}

static void bitset_waiter(void)
{
	int id = next_id++;

	CHECK_EQ(SYS(sys_futex(&word, F_WAIT_BITSET, 0, NULL, NULL, 1u << id)), 0);
	note(id);
	sys_exit(0);
}

MACHINE_TEST(futex_bitsets_and_ops)
{
	for (int i = 0; i < 3; i++) {
		user_thread(bitset_waiter);
		let_others_sleep();
	}
	CHECK_EQ(SYS(sys_futex(&word, F_WAKE_BITSET, 9, NULL, NULL, 1u << 2)), 1);
	let_others_sleep();
	CHECK_EQ(order[0], 2);
	CHECK_EQ(SYS(sys_futex(&word, F_WAKE_BITSET, 9, NULL, NULL, 0)), -EINVAL);
	/* *word2 += 5, wake on it if it was greater than 2: add 1<<28, oparg<<12, cmp 5<<24 */
	word2 = 3;
	CHECK_EQ(SYS(sys_futex(&word2, F_WAKE_OP, 1, (void *)9, &word,
			       1u << 28 | 0u << 24 | 7u << 12 | 0)), 2);
	CHECK_EQ(word, 7);
	CHECK_EQ(SYS(sys_futex(&word2, F_WAKE_OP, 1, (void *)9, &word2,
			       0u << 28 | 5u << 24 | 0xfffu << 12 | 2)), 0);
	CHECK_EQ(word2, 0xffffffff);
	sys_exit_group(0);
}

static void futex_forever(void)
{
	SYS(sys_futex(&word, F_WAIT, 0, NULL, NULL, 0));
	CHECK(false);
}

MACHINE_TEST(join_by_clear_child_tid)
{
	uint64_t before;
	long tid = user_clone(0x10f00 | 0x100000 | 0x200000, nothing, (int *)&tid_word,
			      (int *)&tid_word);

	CHECK(tid > 1);
	CHECK_EQ(tid_word, tid);
	before = machine_now_ns;
	CHECK_EQ(SYS(sys_futex(&tid_word, F_WAIT, (uint32_t)tid, NULL, NULL, 0)), 0);
	CHECK_EQ(tid_word, 0);
	CHECK(machine_now_ns - before < NSEC_PER_SEC);
	sys_exit_group(0);
}

static struct robust {
	struct {
		uint64_t next;
		int64_t offset;
		uint64_t pending;
	} head;
	struct {
		uint64_t next;
		uint32_t lock;
	} m[3];
} robust;

static void robust_owner(void)
{
	uint32_t tid = (uint32_t)sys_gettid();

	robust.head.next = (uint64_t)&robust.m[0];
	robust.head.offset = 8;
	robust.m[0].next = (uint64_t)&robust.m[1];
	robust.m[1].next = (uint64_t)&robust.m[1];	/* a circle: bounded */
	robust.m[0].lock = tid | 0x80000000u;
	robust.m[1].lock = tid + 1;			/* somebody else's */
	robust.head.pending = (uint64_t)&robust.m[2];
	robust.m[2].lock = tid;
	CHECK_EQ(SYS(sys_set_robust_list(&robust.head, 20)), -EINVAL);
	CHECK_EQ(SYS(sys_set_robust_list(&robust.head, 24)), 0);
	sys_exit(0);
}

MACHINE_TEST(robust_lists)
{
	user_thread(robust_owner);
	let_others_sleep();
	CHECK_EQ(robust.m[0].lock, 0xc0000000u);
	CHECK((robust.m[1].lock & 0x40000000) == 0);
	CHECK_EQ(robust.m[2].lock, 0x40000000u);
	sys_exit_group(0);
}

static void group_exit_with_threads(void)
{
	user_thread(sleeper_thread);
	user_thread(futex_forever);
	let_others_sleep();
	sys_exit_group(11);
}

static void leader_exits_first(void)
{
	user_thread(sleep_then_exit);
	sys_exit(5);
}

static void only_thread_exits(void)
{
	user_thread(nothing);
	let_others_sleep();
	sys_exit(6);
}

MACHINE_TEST(threads_and_exit)
{
	long pid;
	int st;

	pid = user_fork(group_exit_with_threads);
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 0, NULL)), pid);
	CHECK_EQ(st, 11 << 8);
	/* The leader is gone, a thread ends the group later: its code counts. */
	pid = user_fork(leader_exits_first);
	let_others_sleep();
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, KWNOHANG, NULL)), 0);
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 0, NULL)), pid);
	CHECK_EQ(st, 9 << 8);
	pid = user_fork(only_thread_exits);
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 0, NULL)), pid);
	CHECK_EQ(st, 6 << 8);
	CHECK_EQ(task_counts.tasks, 1);
	CHECK_EQ(process_count(), 1);
	sys_exit_group(0);
}

static void killed_with_threads(void)
{
	user_thread(sleeper_thread);
	user_thread(futex_forever);
	let_others_sleep();
	SYS(sys_kill((int)sys_getpid(), KSIGKILL));
}

MACHINE_TEST(kill_ends_all_threads)
{
	int st;
	long pid = user_fork(killed_with_threads);

	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid);
	CHECK_EQ(st, KSIGKILL);
	CHECK_EQ(task_counts.tasks, 1);
	sys_exit_group(0);
}

/* ---- exec ---- */

static void new_program(void)
{
	note((int)sys_getpid() == (int)sys_gettid() ? 1 : 2);
	CHECK_EQ(current->proc->nthreads, 1);
	CHECK(strcmp(current->comm, "prog") == 0 || strcmp(current->comm, "script") == 0);
	sys_exit_group(21);
}

static void make_root(void)
{
	sys_exit_group((int)(current->proc->cred->euid == 0 && current->proc->cred->uid == 7));
}

static const struct machine_file files[] = {
	{"/bin/prog", KS_IFREG | 0755, 0, 0, "ELF", new_program},
	{"/bin/sh", KS_IFREG | 0755, 0, 0, "ELF", new_program},
	{"/script", KS_IFREG | 0755, 0, 0, "#! /bin/sh  -x y \nrest", NULL},
	{"/nest1", KS_IFREG | 0755, 0, 0, "#!/script\n", NULL},
	{"/noexec", KS_IFREG | 0644, 0, 0, "ELF", NULL},
	{"/dir", KS_IFDIR | 0755, 0, 0, "", NULL},
	{"/text", KS_IFREG | 0755, 0, 0, "hello", NULL},
	{"/loop", KS_IFREG | 0755, 0, 0, "#!/loop\n", NULL},
	{"/setuid", KS_IFREG | 04755, 0, 0, "ELF", make_root},
	{"/sleeper", KS_IFREG | 0755, 0, 0, "ELF", sleep_then_exit},
	{"/lost", KS_IFREG | 0755, 0, 0, "#!/bin/none\n", NULL},
};

static void exec_errors(void)
{
	const char *argv[] = {"a", NULL};
	static char big[140000];
	const char *bigv[] = {"a", big, NULL};

	memset(big, 'x', sizeof(big) - 1);
	CHECK_EQ(EXEC(sys_execve("/none", argv, NULL)), -ENOENT);
	CHECK_EQ(EXEC(sys_execve("/noexec", argv, NULL)), -EACCES);
	CHECK_EQ(EXEC(sys_execve("/dir", argv, NULL)), -EACCES);
	CHECK_EQ(EXEC(sys_execve("/text", argv, NULL)), -ENOEXEC);
	CHECK_EQ(EXEC(sys_execve("/loop", argv, NULL)), -ELOOP);
	CHECK_EQ(EXEC(sys_execve("/lost", argv, NULL)), -ENOENT);
	CHECK_EQ(EXEC(sys_execve("/bin/prog", bigv, NULL)), -E2BIG);
	CHECK_EQ(EXEC(sys_execve("/bin/prog", (void *)16, NULL)), -EFAULT);
}

static void run_prog(void)
{
	const char *argv[] = {"prog", "one", "", NULL}, *envp[] = {"A=b", NULL};

	exec_errors();
	EXEC(sys_execve("/bin/prog", argv, envp));
}

static void run_nested_script(void)
{
	const char *argv[] = {"zero", "one", NULL};

	EXEC(sys_execve("/script", argv, NULL));
}

static void exec_from_thread(void)
{
	const char *argv[] = {NULL};

	EXEC(sys_execve("/bin/prog", argv, NULL));
}

static void threaded_exec(void)
{
	user_thread(sleeper_thread);
	user_thread(exec_from_thread);
	user_thread(futex_forever);
	futex_forever();
}

static void run_setuid(void)
{
	const char *argv[] = {"s", NULL};

	CHECK_EQ(SYS(sys_setresuid(7, 7, 7)), 0);
	EXEC(sys_execve("/setuid", argv, NULL));
}

static void run_setuid_nnp(void)
{
	CHECK_EQ(SYS(sys_prctl(38, 1, 0, 0, 0)), 0);
	run_setuid();
}

MACHINE_TEST(exec_programs)
{
	unsigned allocs;
	int st;
	long pid;

	machine_files(files, ARRAY_SIZE(files));
	allocs = machine_live_allocs;
	pid = user_fork(run_prog);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid);
	CHECK_EQ(st, 21 << 8);
	CHECK_EQ(machine_argc, 3);
	CHECK_EQ(machine_envc, 1);
	CHECK(strcmp(machine_argv[1], "one") == 0 && machine_argv[2][0] == '\0');
	CHECK(!machine_secure);
	CHECK_EQ(machine_live_allocs, allocs);

	user_fork(run_nested_script);
	SYS(sys_wait4(-1, &st, 0, NULL));
	CHECK_EQ(machine_argc, 4);
	CHECK(strcmp(machine_argv[0], "/bin/sh") == 0);
	CHECK(strcmp(machine_argv[1], "-x y") == 0);
	CHECK(strcmp(machine_argv[2], "/script") == 0);
	CHECK(strcmp(machine_argv[3], "one") == 0);
	CHECK(strcmp(machine_execfn, "/script") == 0);

	pid = user_fork(threaded_exec);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid);
	CHECK_EQ(st, 21 << 8);
	CHECK_EQ(order[norder - 1], 1);
	CHECK_EQ(machine_argc, 1);
	CHECK_EQ(machine_argv[0][0], 0);

	user_fork(run_setuid);
	SYS(sys_wait4(-1, &st, 0, NULL));
	CHECK_EQ(st, 1 << 8);
	CHECK(machine_secure);
	user_fork(run_setuid_nnp);
	SYS(sys_wait4(-1, &st, 0, NULL));
	CHECK_EQ(st, 0);
	CHECK(!machine_secure);
	CHECK_EQ(machine_live_allocs, allocs);
	CHECK_EQ(machine_live_mms, 1);
	sys_exit_group(0);
}

static void run_sleeper(void)
{
	const char *argv[] = {"s", NULL};

	EXEC(sys_execve("/sleeper", argv, NULL));
}

MACHINE_TEST(vfork_exec_releases_parent)
{
	uint64_t before = machine_now_ns;
	int st;
	long pid;

	machine_files(files, ARRAY_SIZE(files));
	pid = user_vfork(run_sleeper);
	CHECK(machine_now_ns - before < NSEC_PER_SEC);
	CHECK_EQ(SYS(sys_wait4(-1, &st, KWNOHANG, NULL)), 0);
	CHECK_EQ(SYS(sys_wait4(-1, &st, 0, NULL)), pid);
	CHECK_EQ(st, 9 << 8);
	CHECK(machine_now_ns - before >= NSEC_PER_SEC);
	sys_exit_group(0);
}

/* ---- pidfds ---- */

MACHINE_TEST(pidfds)
{
	long pid = user_fork(sleep_then_exit);
	long fd = SYS(sys_pidfd_open((int)pid, 0));
	int32_t info[32];
	struct file *f;

	CHECK(fd >= 0);
	CHECK_EQ(SYS(sys_pidfd_open(12345, 0)), -ESRCH);
	CHECK_EQ(SYS(sys_pidfd_open(0, 0)), -EINVAL);
	CHECK_EQ(SYS(sys_pidfd_open((int)pid, 1)), -EINVAL);
	f = fd_get((int)fd);
	CHECK_EQ(f->ops->poll(f, NULL), 0);
	CHECK_EQ(SYS(sys_pidfd_send_signal((int)fd, 0, NULL, 0)), 0);
	CHECK_EQ(SYS(sys_pidfd_send_signal((int)fd, 65, NULL, 0)), -EINVAL);
	CHECK_EQ(SYS(sys_pidfd_send_signal(7, 0, NULL, 0)), -EBADF);
	CHECK_EQ(SYS(sys_pidfd_getfd((int)fd, 5, 0)), -EBADF);
	CHECK_EQ(SYS(sys_pidfd_send_signal((int)fd, KSIGTERM, NULL, 0)), 0);
	CHECK_EQ(SYS(sys_waitid(3, (int)fd, (uint8_t *)info, KWEXITED | KWNOWAIT, NULL)), 0);
	CHECK_EQ(info[2], KCLD_KILLED);
	CHECK_EQ(info[6], KSIGTERM);
	CHECK((f->ops->poll(f, NULL) & KPOLLIN) != 0);
	CHECK_EQ(SYS(sys_waitid(3, (int)fd, NULL, KWEXITED, NULL)), 0);
	CHECK_EQ(SYS(sys_pidfd_send_signal((int)fd, 0, NULL, 0)), -ESRCH);
	CHECK_EQ(SYS(sys_waitid(3, (int)fd, NULL, KWEXITED, NULL)), -ECHILD);
	file_put(f);
	CHECK_EQ(fd_close((int)fd), 0);
	sys_exit_group(0);
}

/* ---- what processes share ---- */

#define SHARE_FS	0x200ul
#define SHARE_FILES	0x400ul
#define SHARE_VM	0x100ul
#define NEW_NS		0x20000ul

/* Two processes with one table of descriptors and one directory, until one has its own. */
MACHINE_TEST(unshare_and_kcmp)
{
	int me = (int)sys_getpid(), st;
	struct files *files = current->proc->files;
	long pid;

	CHECK_EQ(SYS(sys_unshare(0)), 0);
	CHECK_EQ(SYS(sys_unshare(1ul << 40)), -EINVAL);
	CHECK_EQ(SYS(sys_unshare(NEW_NS)), -EINVAL);
	/* Nobody shares: the table (and its record locks) stays the same. */
	CHECK_EQ(SYS(sys_unshare(SHARE_FS | SHARE_FILES | SHARE_VM)), 0);
	CHECK(current->proc->files == files);

	pid = user_clone(SHARE_FS | SHARE_FILES | KSIGCHLD, sleep_then_exit, NULL, NULL);
	CHECK(pid > 0);
	CHECK_EQ(SYS(sys_kcmp(me, (int)pid, 2 /* files */, 0, 0)), 0);
	CHECK_EQ(SYS(sys_kcmp(me, (int)pid, 3 /* fs */, 0, 0)), 0);
	CHECK(SYS(sys_kcmp(me, (int)pid, 1 /* vm */, 0, 0)) > 0);
	CHECK_EQ(SYS(sys_kcmp(me, (int)pid, 1, 0, 0)) + SYS(sys_kcmp((int)pid, me, 1, 0, 0)), 3);
	CHECK_EQ(SYS(sys_kcmp(me, 12345, 1, 0, 0)), -ESRCH);
	CHECK_EQ(SYS(sys_kcmp(me, me, 0 /* file */, 7, 7)), -EBADF);
	CHECK_EQ(SYS(sys_kcmp(me, me, 9, 0, 0)), -EINVAL);
	CHECK_EQ(SYS(sys_unshare(SHARE_FS | SHARE_FILES)), 0);
	CHECK(current->proc->files != files);
	CHECK(SYS(sys_kcmp(me, (int)pid, 2, 0, 0)) > 0);
	CHECK(SYS(sys_kcmp(me, (int)pid, 3, 0, 0)) > 0);
	CHECK_EQ(SYS(sys_kill((int)pid, KSIGKILL)), 0);
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 0, NULL)), pid);
	sys_exit_group(0);
}

static void check_io_priority(void)
{
	sys_exit_group((int)sys_ioprio_get(1, 0) == (2 << 13 | 7) ? 0 : 1);
}

MACHINE_TEST(io_priorities)
{
	long pid;
	int st;

	CHECK_EQ(sys_ioprio_get(1, 0), 0);
	CHECK_EQ(sys_ioprio_get(0, 0), -EINVAL);
	CHECK_EQ(sys_ioprio_get(1, 12345), -ESRCH);
	CHECK_EQ(sys_ioprio_set(1, 0, 2 << 13 | 8), -EINVAL);
	CHECK_EQ(sys_ioprio_set(1, 0, 1), -EINVAL);
	CHECK_EQ(sys_ioprio_set(1, 0, 4 << 13), -EINVAL);
	CHECK_EQ(sys_ioprio_set(1, 0, 2 << 13 | 7), 0);
	CHECK_EQ(sys_ioprio_get(1, 0), 2 << 13 | 7);
	pid = user_fork(check_io_priority);
	CHECK_EQ(SYS(sys_wait4((int)pid, &st, 0, NULL)), pid);
	CHECK_EQ(st, 0);
	CHECK_EQ(sys_vhangup(), 0);
	sys_exit_group(0);
}

const struct machine_test process_tests[] = {
	{"fork_and_wait", fork_and_wait},
	{"wait_sleeps", wait_sleeps},
	{"waitid_forms", waitid_forms},
	{"orphans_go_to_init", orphans_go_to_init},
	{"jobs_die_whole", jobs_die_whole},
	{"orphans_go_to_subreaper", orphans_go_to_subreaper},
	{"ignored_children_vanish", ignored_children_vanish},
	{"killed_child", killed_child},
	{"stop_and_continue", stop_and_continue},
	{"vfork_waits", vfork_waits},
	{"vfork_parent_killed", vfork_parent_killed},
	{"fork_survives_failing_allocations", fork_survives_failing_allocations},
	{"numbers_wrap_and_are_held", numbers_wrap_and_are_held},
	{"process_groups", process_groups},
	{"orphaned_group_gets_hup", orphaned_group_gets_hup},
	{"futex_wakes_in_order", futex_wakes_in_order},
	{"futex_requeue", futex_requeue},
	{"futex_pi_locks", futex_pi_locks},
	{"futex_timeouts", futex_timeouts},
	{"futex_bitsets_and_ops", futex_bitsets_and_ops},
	{"join_by_clear_child_tid", join_by_clear_child_tid},
	{"robust_lists", robust_lists},
	{"threads_and_exit", threads_and_exit},
	{"kill_ends_all_threads", kill_ends_all_threads},
	{"exec_programs", exec_programs},
	{"vfork_exec_releases_parent", vfork_exec_releases_parent},
	{"pidfds", pidfds},
	{"unshare_and_kcmp", unshare_and_kcmp},
	{"io_priorities", io_priorities},
	{NULL, NULL},
};
