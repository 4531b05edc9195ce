/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks, the timer tree, timers of processes, the random number generator. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>

/* <unistd.h> and <sys/wait.h> would collide with the kernel's headers. */
int fork(void);
int waitpid(int pid, int *status, int options);
void _exit(int status);

#include "world.h"

#include "guest-kernel/core/random_internal.h"
#include "guest-kernel/core/time_internal.h"

#define SEC NSEC_PER_SEC
#define MS NSEC_PER_MSEC

struct ksigevent_t {
	uint64_t value;
	int32_t signo, notify, tid, pad[11];
};
struct kitimerval_t {
	int64_t isec, iusec, sec, usec;
};

long sys_clock_gettime(int, struct ktimespec *);
long sys_clock_getres(int, struct ktimespec *);
long sys_clock_settime(int, const struct ktimespec *);
long sys_clock_nanosleep(int, int, const struct ktimespec *, struct ktimespec *);
long sys_nanosleep(const struct ktimespec *, struct ktimespec *);
long sys_restart_syscall(void);
long sys_setitimer(int, const void *, void *);
long sys_getitimer(int, void *);
long sys_alarm(unsigned);
long sys_timer_create(int, const void *, int32_t *);
long sys_timer_settime(int, int, const struct kitimerspec *, struct kitimerspec *);
long sys_timer_gettime(int, struct kitimerspec *);
long sys_timer_getoverrun(int);
long sys_timer_delete(int);

/* ---- the tree against a list ---- */

#define NTIMERS 64
static struct model {
	struct ktimer t;
	bool armed;
	uint64_t deadline, seq;
} model[NTIMERS];
static uint64_t model_seq;
static unsigned fired;

static void model_fired(struct ktimer *t)
{
	struct model *m = CONTAINER_OF(t, struct model, t);

	CU_ASSERT_TRUE(m->armed);
	for (unsigned i = 0; i < NTIMERS; i++) {
		struct model *o = &model[i];

		if (o == m || !o->armed)
			continue;
		CU_ASSERT_TRUE(o->deadline > m->deadline ||
			       (o->deadline == m->deadline && o->seq > m->seq));
	}
	m->armed = false;
	fired++;
}

static uint64_t model_next(void)
{
	uint64_t next = NO_DEADLINE;

	for (unsigned i = 0; i < NTIMERS; i++) {
		if (model[i].armed && model[i].deadline < next)
			next = model[i].deadline;
	}
	return next;
}

static void test_tree(void)
{
	world_reset();
	srand(1);
	memset(model, 0, sizeof(model));
	for (unsigned i = 0; i < NTIMERS; i++)
		ktimer_init(&model[i].t, model_fired);
	for (unsigned step = 0; step < 20000; step++) {
		struct model *m = &model[rand() % NTIMERS];

		switch (rand() % 4) {
		case 0:
		case 1:
			m->deadline = clock_monotonic_ns() + (uint64_t)(rand() % 50);
			m->armed = true;
			m->seq = ++model_seq;
			ktimer_set(&m->t, m->deadline);
			break;
		case 2:
			ktimer_cancel(&m->t);
			m->armed = false;
			break;
		default:
			world_advance((uint64_t)(rand() % 20));
			CU_ASSERT_TRUE(model_next() > clock_monotonic_ns());
			break;
		}
		CU_ASSERT_EQUAL(timers_next(), model_next());
	}
	CU_ASSERT_TRUE(fired > 1000);
	for (unsigned i = 0; i < NTIMERS; i++)
		ktimer_cancel(&model[i].t);
}

static int cpu_id(int pid, int low)
{
	return (int)((unsigned)~pid << 3) | low;
}

static unsigned rearmed;

static void rearm_now(struct ktimer *t)
{
	rearmed++;
	ktimer_set(t, 0);
}

static void test_clock(void)
{
	struct ktimer t;
	struct ktimespec ts;
	uint64_t before;

	world_reset();
	CU_ASSERT_EQUAL(clock_realtime_ns(), WORLD_REAL0);
	before = clock_monotonic_ns();
	/* 128 bits: a long run does not overflow. */
	world_clock.mult = 1ULL << 32;
	world_clock.shift = 32;
	host_now_ns += 1ULL << 60;
	CU_ASSERT_EQUAL(clock_monotonic_ns() - before, 1ULL << 60);
	/* A restore whose page says less: monotonic stands, it does not go back. */
	before = clock_monotonic_ns();
	world_clock.tsc_base = host_now_ns;
	world_clock.monotonic_ns = 5;
	world_clock.generation++;
	CU_ASSERT_EQUAL(clock_monotonic_ns(), before);
	/* A TSC slightly behind its base is the base. */
	world_clock.tsc_base = host_now_ns + 1000;
	CU_ASSERT_EQUAL(clock_monotonic_ns(), before);

	/* Re-arming for the past inside the callback does not hang. */
	ktimer_init(&t, rearm_now);
	ktimer_set(&t, 0);
	timers_run();
	CU_ASSERT_TRUE(rearmed >= 1 && rearmed < 100000);
	ktimer_cancel(&t);

	CU_ASSERT_EQUAL(sys_clock_gettime(0, &ts), 0);
	CU_ASSERT_EQUAL(sys_clock_gettime(8, &ts), -EINVAL);
	CU_ASSERT_EQUAL(sys_clock_gettime(10, &ts), -EINVAL);
	CU_ASSERT_EQUAL(sys_clock_gettime(0, NULL), -EFAULT);
	CU_ASSERT_EQUAL(sys_clock_getres(6, &ts), 0);
	CU_ASSERT_EQUAL(ts.nsec, 4000000);
	CU_ASSERT_EQUAL(sys_clock_getres(1, NULL), 0);
	CU_ASSERT_EQUAL(sys_clock_getres(99, NULL), -EINVAL);
	ts.nsec = -1;
	CU_ASSERT_EQUAL(sys_clock_settime(0, &ts), -EINVAL);
	ts.nsec = 0;
	CU_ASSERT_EQUAL(sys_clock_settime(0, &ts), -EPERM);
	CU_ASSERT_EQUAL(sys_clock_settime(1, &ts), -EINVAL);

	/* CPU clocks: mine, by pid, of a thread, of nobody. */
	current->utime_ns = 3 * SEC;
	current->stime_ns = 1 * SEC;
	CU_ASSERT_EQUAL(sys_clock_gettime(2, &ts), 0);
	CU_ASSERT_EQUAL(ts.sec, 4);
	CU_ASSERT_EQUAL(sys_clock_gettime(cpu_id(100, 2), &ts), 0);
	CU_ASSERT_EQUAL(ts.sec, 4);
	CU_ASSERT_EQUAL(sys_clock_gettime(cpu_id(100, 5), &ts), 0);
	CU_ASSERT_EQUAL(ts.sec, 3);
	CU_ASSERT_EQUAL(sys_clock_gettime(cpu_id(4711, 2), &ts), -EINVAL);
	CU_ASSERT_EQUAL(sys_clock_gettime(cpu_id(100, 3), &ts), -EINVAL);
}

static unsigned real_fired;

static void real_fn(struct ktimer *t)
{
	real_fired++;
}

/* A VM restored a day later: realtime timers are due, monotonic ones are not. */
static void test_jump(void)
{
	struct ktimer real, mono, later;

	world_reset();
	real_fired = 0;
	ktimer_init(&real, real_fn);
	ktimer_init(&mono, real_fn);
	ktimer_init(&later, real_fn);
	ktimer_set_realtime(&real, clock_realtime_ns() + 3600 * SEC);
	ktimer_set_realtime(&later, clock_realtime_ns() + 48 * 3600 * SEC);
	ktimer_set(&mono, clock_monotonic_ns() + 3600 * SEC);
	world_advance(SEC);
	CU_ASSERT_EQUAL(real_fired, 0);
	world_clock.realtime_ns += 24 * 3600 * SEC;
	world_clock.generation++;
	timers_run();
	CU_ASSERT_EQUAL(real_fired, 1);
	CU_ASSERT_TRUE(mono.armed);
	CU_ASSERT_TRUE(later.armed);
	world_advance(24 * 3600 * SEC);
	CU_ASSERT_EQUAL(real_fired, 3);
}

static int sleep_signal(uint64_t deadline, bool interruptible)
{
	host_now_ns += 300 * MS;
	return -ERESTARTSYS;
}

static void test_sleep(void)
{
	struct ktimespec ts = { 1, 0 }, rem = { 9, 9 };
	uint64_t start;

	world_reset();
	start = host_now_ns;
	CU_ASSERT_EQUAL(sys_nanosleep(&ts, NULL), 0);
	CU_ASSERT_EQUAL(host_now_ns - start, SEC);
	world_sleep = sleep_signal;
	CU_ASSERT_EQUAL(sys_nanosleep(&ts, &rem), -ERESTART_RESTARTBLOCK);
	CU_ASSERT_EQUAL(rem.nsec, 700000000);
	/* The restart sleeps what is left of the first deadline. */
	world_sleep = NULL;
	start = host_now_ns;
	CU_ASSERT_EQUAL(sys_restart_syscall(), 0);
	CU_ASSERT_EQUAL(host_now_ns - start, 700 * MS);
	CU_ASSERT_EQUAL(sys_clock_nanosleep(0, 0, &ts, NULL), 0);
	CU_ASSERT_EQUAL(sys_clock_nanosleep(4, 0, &ts, NULL), -EOPNOTSUPP);
	CU_ASSERT_EQUAL(sys_clock_nanosleep(3, 0, &ts, NULL), -EOPNOTSUPP);
	CU_ASSERT_EQUAL(sys_clock_nanosleep(99, 0, &ts, NULL), -EINVAL);
	ts.nsec = 1000000000;
	CU_ASSERT_EQUAL(sys_clock_nanosleep(1, 0, &ts, NULL), -EINVAL);
	ts = (struct ktimespec){ 0, 5 };
	CU_ASSERT_EQUAL(sys_clock_nanosleep(1, 1, &ts, NULL), 0);	/* long past */
	ts = (struct ktimespec){ INT64_MAX, 0 };
	world_sleep = sleep_signal;
	CU_ASSERT_EQUAL(sys_clock_nanosleep(1, 1, &ts, &rem), -ERESTARTNOHAND);
	CU_ASSERT_EQUAL(sys_clock_nanosleep(0, 1, &ts, &rem), -ERESTARTNOHAND);
	world_sleep = NULL;
	ts = (struct ktimespec){ (int64_t)(clock_realtime_ns() / SEC) + 10, 0 };
	CU_ASSERT_EQUAL(sys_clock_nanosleep(0, 1, &ts, NULL), 0);
	CU_ASSERT_TRUE(clock_realtime_ns() / SEC >= (uint64_t)ts.sec);
}

static void test_itimer_real(void)
{
	struct kitimerval_t it = { 1, 0, 2, 0 }, old;
	struct ksiginfo info;
	uint64_t all = ~0ULL;
	extern long sys_rt_sigprocmask(int, const uint64_t *, uint64_t *, size_t);

	world_reset();
	sys_rt_sigprocmask(2, &all, NULL, 8);
	CU_ASSERT_EQUAL(sys_setitimer(0, &it, NULL), 0);
	world_advance(500 * MS);
	CU_ASSERT_EQUAL(sys_getitimer(0, &old), 0);
	CU_ASSERT_EQUAL(old.sec, 1);
	CU_ASSERT_EQUAL(old.usec, 500000);
	world_advance(1500 * MS);
	CU_ASSERT_TRUE((current->proc->pending.set & SIG_BIT(KSIGALRM)) != 0);
	/* Rests until the signal is taken, then goes on in step. */
	world_advance(3200 * MS);
	CU_ASSERT_FALSE(current->proc->itimer_real.armed);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), KSIGALRM);
	CU_ASSERT_EQUAL(info.code, KSI_KERNEL);
	CU_ASSERT_TRUE(current->proc->itimer_real.armed);
	sys_getitimer(0, &old);
	CU_ASSERT_EQUAL(old.usec, 800000);
	/* Ignored: it stays alive. */
	current->sig_mask = 0;
	current->proc->sighand->action[KSIGALRM - 1].handler = KSIG_IGN;
	world_advance(10 * SEC);
	CU_ASSERT_TRUE(current->proc->itimer_real.armed);
	it = (struct kitimerval_t){ 0, 1000000, 1, 0 };
	CU_ASSERT_EQUAL(sys_setitimer(0, &it, NULL), -EINVAL);
	CU_ASSERT_EQUAL(sys_setitimer(3, NULL, NULL), -EINVAL);
	CU_ASSERT_EQUAL(sys_alarm(0), 1);
	CU_ASSERT_EQUAL(sys_alarm(10), 0);
	world_advance(3600 * MS);
	CU_ASSERT_EQUAL(sys_alarm(0), 6);
	CU_ASSERT_FALSE(current->proc->itimer_real.armed);
}

static void test_cpu_timers(void)
{
	struct kitimerval_t it = { 0, 100000, 0, 250000 };
	struct kitimerspec spec = { { 0, 0 }, { 5, 0 } };
	struct process *p;
	int32_t id;

	world_reset();
	p = current->proc;
	current->sig_mask = ~SIG_KERNEL_ONLY;
	sys_setitimer(1, &it, NULL);
	itimer_account(p, 200 * MS, 500 * MS);
	CU_ASSERT_EQUAL(p->pending.set, 0);
	itimer_account(p, 100 * MS, 0);
	CU_ASSERT_EQUAL(p->pending.set, SIG_BIT(KSIGVTALRM));
	CU_ASSERT_EQUAL(p->itimer_virt, 50 * MS);
	sys_setitimer(2, &it, NULL);
	itimer_account(p, 0, 250 * MS);
	CU_ASSERT_TRUE((p->pending.set & SIG_BIT(KSIGPROF)) != 0);

	current->utime_ns = SEC;
	CU_ASSERT_EQUAL(sys_timer_create(2, NULL, &id), 0);
	CU_ASSERT_EQUAL(sys_timer_settime(id, 0, &spec, NULL), 0);
	CU_ASSERT_EQUAL(p->cpu_timers, 1);
	current->utime_ns = 5 * SEC;
	itimer_account(p, 4 * SEC, 0);
	CU_ASSERT_FALSE((p->pending.set & SIG_BIT(KSIGALRM)) != 0);
	current->utime_ns = 6 * SEC;
	itimer_account(p, SEC, 0);
	CU_ASSERT_TRUE((p->pending.set & SIG_BIT(KSIGALRM)) != 0);
	CU_ASSERT_EQUAL(p->cpu_timers, 0);

	/* RLIMIT_CPU: SIGXCPU each second, SIGKILL at the hard limit. */
	p->rlim[0] = (struct krlimit){ 7, 9 };
	current->utime_ns = 7 * SEC;
	itimer_account(p, SEC, 0);
	CU_ASSERT_TRUE((p->pending.set & SIG_BIT(KSIGXCPU)) != 0);
	CU_ASSERT_EQUAL(p->rlim[0].cur, 8);
	CU_ASSERT_FALSE(p->group_exit);
	current->utime_ns = 9 * SEC;
	itimer_account(p, 2 * SEC, 0);
	CU_ASSERT_TRUE(p->group_exit);
}

static void test_posix_timers(void)
{
	struct ksigevent_t ev = { .value = 42, .signo = 40, .notify = 0 };
	struct kitimerspec spec = { { 0, 100 * MS }, { 1, 0 } }, old;
	struct ksiginfo info;
	int32_t id, id2;

	world_reset();
	current->sig_mask = ~SIG_KERNEL_ONLY;
	CU_ASSERT_EQUAL(sys_timer_create(99, NULL, &id), -EINVAL);
	CU_ASSERT_EQUAL(sys_timer_create(4, NULL, &id), -EOPNOTSUPP);
	ev.signo = 65;
	CU_ASSERT_EQUAL(sys_timer_create(1, &ev, &id), -EINVAL);
	ev.signo = 40;
	ev.notify = 4;
	ev.tid = 4711;
	CU_ASSERT_EQUAL(sys_timer_create(1, &ev, &id), -EINVAL);
	ev.notify = 7;
	CU_ASSERT_EQUAL(sys_timer_create(1, &ev, &id), -EINVAL);
	ev.notify = 0;
	CU_ASSERT_EQUAL(sys_timer_create(1, &ev, NULL), -EFAULT);
	world_fail_alloc = 1;
	CU_ASSERT_EQUAL(sys_timer_create(1, &ev, &id), -EAGAIN);
	CU_ASSERT_EQUAL(sys_timer_create(1, &ev, &id), 0);
	CU_ASSERT_EQUAL(sys_timer_settime(id, 0, &spec, NULL), 0);
	CU_ASSERT_EQUAL(sys_timer_settime(id + 1, 0, &spec, NULL), -EINVAL);
	world_advance(400 * MS);
	CU_ASSERT_EQUAL(sys_timer_gettime(id, &old), 0);
	CU_ASSERT_EQUAL(old.value.nsec, 600 * (int64_t)MS);
	CU_ASSERT_EQUAL(old.interval.nsec, 100 * (int64_t)MS);

	/* Expires at 1.0; taken at 1.35: three more were missed, the next is at 1.4. */
	world_advance(600 * MS);
	world_advance(350 * MS);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), 40);
	CU_ASSERT_EQUAL(info.code, KSI_TIMER);
	CU_ASSERT_EQUAL(info.value, 42);
	CU_ASSERT_EQUAL(info.timer_id, id);
	CU_ASSERT_EQUAL(info.overrun, 3);
	CU_ASSERT_EQUAL(sys_timer_getoverrun(id), 3);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), 0);
	sys_timer_gettime(id, &old);
	CU_ASSERT_EQUAL(old.value.nsec, 50 * (int64_t)MS);
	world_advance(50 * MS);
	/* Deleting takes the pending signal along. */
	CU_ASSERT_TRUE((current->proc->pending.set & SIG_BIT(40)) != 0);
	CU_ASSERT_EQUAL(sys_timer_delete(id), 0);
	CU_ASSERT_EQUAL(current->proc->pending.set, 0);
	CU_ASSERT_EQUAL(sys_timer_delete(id), -EINVAL);

	/* To one thread; a nanosecond interval costs nothing while nobody takes it. */
	ev.notify = 4;
	ev.tid = 100;
	CU_ASSERT_EQUAL(sys_timer_create(1, &ev, &id), 0);
	spec = (struct kitimerspec){ { 0, 1 }, { 0, 1 } };
	sys_timer_settime(id, 0, &spec, NULL);
	world_advance(SEC);
	CU_ASSERT_EQUAL(current->pending.set, SIG_BIT(40));
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), 40);
	CU_ASSERT_TRUE(info.overrun > 900000000);
	/* Silent timer. */
	ev.notify = 1;
	CU_ASSERT_EQUAL(sys_timer_create(1, &ev, &id2), 0);
	spec = (struct kitimerspec){ { 10, 0 }, { 1, 0 } };
	sys_timer_settime(id2, 0, &spec, NULL);
	world_advance(5 * SEC);
	sys_timer_gettime(id2, &old);
	CU_ASSERT_EQUAL(old.value.sec, 6);
	spec.value = (struct ktimespec){ 0, 0 };
	sys_timer_settime(id2, 0, &spec, &old);
	sys_timer_gettime(id2, &old);
	CU_ASSERT_EQUAL(old.value.sec + old.value.nsec, 0);
	timers_process_exec(current->proc);
	CU_ASSERT_EQUAL(sys_timer_delete(id2), -EINVAL);
	CU_ASSERT_EQUAL(timers_next(), NO_DEADLINE);
	sigpending_flush(&current->pending);
}

static void test_chacha(void)
{
	/* RFC 8439, 2.3.2 and A.1 test vector 1. */
	static const uint8_t expect[64] = {
		0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15, 0x50, 0x0f, 0xdd, 0x1f, 0xa3,
		0x20, 0x71, 0xc4, 0xc7, 0xd1, 0xf4, 0xc7, 0x33, 0xc0, 0x68, 0x03, 0x04, 0x22,
		0xaa, 0x9a, 0xc3, 0xd4, 0x6c, 0x4e, 0xd2, 0x82, 0x64, 0x46, 0x07, 0x9f, 0xaa,
		0x09, 0x14, 0xc2, 0xd7, 0x05, 0xd9, 0x8b, 0x02, 0xa2, 0xb5, 0x12, 0x9c, 0xd1,
		0xde, 0x16, 0x4e, 0xb9, 0xcb, 0xd0, 0x83, 0xe8, 0xa2, 0x50, 0x3c, 0x4e,
	};
	static const uint8_t expect0[16] = {
		0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53,
		0x86, 0xbd, 0x28,
	};
	uint8_t key[32], nonce[12] = { 0, 0, 0, 9, 0, 0, 0, 0x4a }, out[64];

	for (unsigned i = 0; i < 32; i++)
		key[i] = (uint8_t)i;
	chacha20_block(key, 1, nonce, out);
	CU_ASSERT_EQUAL(memcmp(out, expect, 64), 0);
	memset(key, 0, 32);
	memset(nonce, 0, 12);
	chacha20_block(key, 0, nonce, out);
	CU_ASSERT_EQUAL(memcmp(out, expect0, 16), 0);
}

/* Two VMs from one snapshot: the same state until the generation differs. */
static void test_random(void)
{
	uint8_t a[100], b[100], big[1000];
	unsigned ones = 0;

	world_reset();
	random_init("seed", 4);
	random_bytes(a, sizeof(a));
	random_bytes(b, sizeof(b));
	CU_ASSERT_NOT_EQUAL(memcmp(a, b, sizeof(a)), 0);
	random_bytes(a, 32);
	random_bytes(b, 32);
	CU_ASSERT_NOT_EQUAL(memcmp(a, b, 32), 0);
	random_bytes(big, sizeof(big));
	for (unsigned i = 0; i < sizeof(big); i++)
		ones += (unsigned)__builtin_popcount(big[i]);
	CU_ASSERT_TRUE(ones > 3800 && ones < 4200);
	CU_ASSERT_NOT_EQUAL(memcmp(big, big + 64, 64), 0);
	random_bytes(a, 0);
}

/* The generation must matter to the very next request: same state before, one differs. */
static void test_random_generation(void)
{
	uint8_t child[2][16];

	for (unsigned i = 0; i < 2; i++) {
		FILE *p = tmpfile();

		fflush(NULL);
		/* A second process is the plainest way to have the state twice. */
		int pid = fork();

		if (pid == 0) {
			uint8_t out[16];

			world_clock.generation = 7;
			memset(world_clock.entropy, (int)i + 1, sizeof(world_clock.entropy));
			random_bytes(out, sizeof(out));
			fwrite(out, 1, sizeof(out), p);
			fflush(p);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
		rewind(p);
		CU_ASSERT_EQUAL(fread(child[i], 1, 16, p), 16);
		fclose(p);
	}
	CU_ASSERT_NOT_EQUAL(memcmp(child[0], child[1], 16), 0);
}

int main(void)
{
	CU_pSuite s;

	CU_initialize_registry();
	s = CU_add_suite("kernel time", NULL, NULL);
	CU_add_test(s, "timer tree against a model", test_tree);
	CU_add_test(s, "realtime jump", test_jump);
	CU_add_test(s, "sleeping", test_sleep);
	CU_add_test(s, "setitimer real, alarm", test_itimer_real);
	CU_add_test(s, "CPU timers and limit", test_cpu_timers);
	CU_add_test(s, "timer_create", test_posix_timers);
	CU_add_test(s, "ChaCha20 vectors", test_chacha);
	CU_add_test(s, "random bytes", test_random);
	CU_add_test(s, "random after a fork of the VM", test_random_generation);
	CU_add_test(s, "clocks", test_clock);	/* last: it moves time far ahead */
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	world_reset();
	int failed = (int)CU_get_number_of_failures();

	CU_cleanup_registry();
	return failed != 0;
}
