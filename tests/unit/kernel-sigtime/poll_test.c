/* SPDX-License-Identifier: Apache-2.0 */
/* poll, select, epoll, eventfd, timerfd, signalfd; epoll also against a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#include "world.h"

#include "guest-kernel/core/time_internal.h"
#include "tests/unit/cunit_run.h"

#define MS NSEC_PER_MSEC
#define ET (1u << 31)
#define ONESHOT (1u << 30)
#define EXCLUSIVE (1u << 28)

struct pollfd_t {
	int32_t fd;
	int16_t events, revents;
};
struct event_t {
	uint32_t events;
	uint64_t data;
} __attribute__((packed));

long sys_poll(struct pollfd_t *, unsigned, int);
long sys_ppoll(struct pollfd_t *, unsigned, struct ktimespec *, const uint64_t *, size_t);
long sys_select(int, uint64_t *, uint64_t *, uint64_t *, struct ktimeval *);
long sys_pselect6(int, uint64_t *, uint64_t *, uint64_t *, struct ktimespec *, const void *);
long sys_epoll_create(int);
long sys_epoll_create1(int);
long sys_epoll_ctl(int, int, int, const struct event_t *);
long sys_epoll_wait(int, struct event_t *, int, int);
long sys_epoll_pwait(int, struct event_t *, int, int, const uint64_t *, size_t);
long sys_epoll_pwait2(int, struct event_t *, int, const struct ktimespec *, const uint64_t *,
		      size_t);
long sys_eventfd2(unsigned, unsigned);
long sys_timerfd_create(int, int);
long sys_timerfd_settime(int, int, const struct kitimerspec *, struct kitimerspec *);
long sys_timerfd_gettime(int, struct kitimerspec *);
long sys_signalfd4(int, const uint64_t *, size_t, uint32_t);
long sys_restart_syscall(void);

static struct fake_file *later;

static int becomes_ready(uint64_t deadline, bool interruptible)
{
	world_advance(10 * MS);
	fake_set(later, KPOLLIN);
	return 0;
}

static int interrupted(uint64_t deadline, bool interruptible)
{
	world_advance(10 * MS);
	current->sig_check = true;
	return -ERESTARTSYS;
}

static void test_poll(void)
{
	struct fake_file *a, *b;
	struct pollfd_t fds[3];
	struct ktimespec ts = { 1, 0 };
	uint64_t mask = 0;
	int fa, fb;
	long live;

	world_reset();
	fa = world_fake_fd(&a);
	fb = world_fake_fd(&b);
	live = world_live_allocs;
	fds[0] = (struct pollfd_t){ fa, KPOLLIN, 77 };
	fds[1] = (struct pollfd_t){ -1, KPOLLIN, 77 };
	fds[2] = (struct pollfd_t){ fb, KPOLLOUT, 77 };
	CU_ASSERT_EQUAL(sys_poll(fds, 3, 0), 0);
	CU_ASSERT_EQUAL(fds[0].revents | fds[1].revents | fds[2].revents, 0);
	a->ready = KPOLLIN | KPOLLOUT | KPOLLHUP;
	CU_ASSERT_EQUAL(sys_poll(fds, 3, -1), 1);
	CU_ASSERT_EQUAL(fds[0].revents, KPOLLIN | KPOLLHUP);
	a->ready = 0;
	fds[1].fd = 55;
	CU_ASSERT_EQUAL(sys_poll(fds, 3, -1), 1);
	CU_ASSERT_EQUAL(fds[1].revents, KPOLLNVAL);
	fds[1].fd = -1;

	/* Wakes up, times out, is interrupted and restarted with the same end. */
	later = a;
	world_sleep = becomes_ready;
	CU_ASSERT_EQUAL(sys_poll(fds, 3, -1), 1);
	CU_ASSERT_TRUE(waitq_empty(&a->wq) && waitq_empty(&b->wq));
	a->ready = 0;
	world_sleep = NULL;
	uint64_t start = clock_monotonic_ns();

	CU_ASSERT_EQUAL(sys_poll(fds, 3, 100), 0);
	CU_ASSERT_EQUAL(clock_monotonic_ns() - start, 100 * MS);
	start = clock_monotonic_ns();
	world_sleep = interrupted;
	CU_ASSERT_EQUAL(sys_poll(fds, 3, 100), -ERESTART_RESTARTBLOCK);
	current->sig_check = false;
	world_sleep = NULL;
	CU_ASSERT_EQUAL(sys_restart_syscall(), 0);
	CU_ASSERT_EQUAL(clock_monotonic_ns() - start, 100 * MS);

	/* ppoll writes back what is left. */
	world_sleep = interrupted;
	CU_ASSERT_EQUAL(sys_ppoll(fds, 3, &ts, &mask, 8), -ERESTARTNOHAND);
	CU_ASSERT_EQUAL(ts.sec, 0);
	CU_ASSERT_EQUAL(ts.nsec, 990 * (int64_t)MS);
	CU_ASSERT_TRUE(current->restore_mask);
	current->restore_mask = false;
	current->sig_check = false;
	CU_ASSERT_EQUAL(sys_ppoll(fds, 3, &ts, &mask, 4), -EINVAL);
	ts.nsec = -1;
	CU_ASSERT_EQUAL(sys_ppoll(fds, 3, &ts, NULL, 0), -EINVAL);

	/* Limits, bad memory, no memory. */
	current->proc->rlim[7].cur = 2;
	CU_ASSERT_EQUAL(sys_poll(fds, 3, 0), -EINVAL);
	current->proc->rlim[7].cur = KRLIM_INFINITY;
	CU_ASSERT_EQUAL(sys_poll((void *)16, 3, 0), -EFAULT);
	struct pollfd_t many[100];

	for (unsigned i = 0; i < 100; i++)
		many[i] = (struct pollfd_t){ fa, KPOLLIN, 0 };
	for (long n = 1; n < 4; n++) {
		world_fail_alloc = n;
		CU_ASSERT_EQUAL(sys_poll(many, 100, 10), -ENOMEM);
		CU_ASSERT_TRUE(waitq_empty(&a->wq));
	}
	world_fail_alloc = 0;
	world_sleep = becomes_ready;
	CU_ASSERT_EQUAL(sys_poll(many, 100, -1), 100);
	CU_ASSERT_TRUE(waitq_empty(&a->wq));
	CU_ASSERT_EQUAL(world_live_allocs, live);
}

static void test_select(void)
{
	struct fake_file *a, *b;
	uint64_t in[2] = { 0 }, out[2] = { 0 }, ex[2] = { 0 };
	struct ktimeval tv = { 0, 2500000 };
	int fa, fb;

	world_reset();
	world_plain_fd();
	fa = world_fake_fd(&a);
	fb = world_fake_fd(&b);
	in[0] = 1u << fa | 1u << fb;
	out[0] = 1u << fb;
	ex[0] = 1u << fa;
	a->ready = KPOLLIN | KPOLLPRI;
	b->ready = KPOLLHUP;
	CU_ASSERT_EQUAL(sys_select(10, in, out, ex, NULL), 3);
	CU_ASSERT_EQUAL(in[0], (1u << fa | 1u << fb));
	CU_ASSERT_EQUAL(out[0], 0);
	CU_ASSERT_EQUAL(ex[0], 1u << fa);
	a->ready = b->ready = 0;
	CU_ASSERT_EQUAL(sys_select(10, in, NULL, NULL, &tv), 0);
	CU_ASSERT_EQUAL(in[0], 0);
	CU_ASSERT_EQUAL(tv.sec + tv.usec, 0);
	in[0] = 1u << 20;
	CU_ASSERT_EQUAL(sys_select(21, in, NULL, NULL, NULL), -EBADF);
	tv = (struct ktimeval){ 0, 0 };
	CU_ASSERT_EQUAL(sys_select(20, in, NULL, NULL, &tv), 0);	/* bit 20 is not < 20 */
	CU_ASSERT_EQUAL(sys_select(-1, in, NULL, NULL, &tv), -EINVAL);
	tv.usec = -1;
	CU_ASSERT_EQUAL(sys_select(1, NULL, NULL, NULL, &tv), -EINVAL);
	CU_ASSERT_EQUAL(sys_select(1, (void *)8, NULL, NULL, NULL), -EFAULT);
	/* A huge n reads no more than the table is large: 256 bits here. */
	uint64_t four[4] = { 1u << fa };

	later = a;
	world_sleep = becomes_ready;
	CU_ASSERT_EQUAL(sys_select(0x7fffffff, four, NULL, NULL, NULL), 1);
	CU_ASSERT_EQUAL(four[0], 1u << fa);
	/* Sleeping alone. */
	world_sleep = NULL;
	tv = (struct ktimeval){ 1, 0 };
	CU_ASSERT_EQUAL(sys_select(0, NULL, NULL, NULL, &tv), 0);
	world_sleep = interrupted;
	tv = (struct ktimeval){ 1, 0 };
	CU_ASSERT_EQUAL(sys_select(0, NULL, NULL, NULL, &tv), -ERESTARTNOHAND);
	CU_ASSERT_EQUAL(tv.usec, 990000);
	current->sig_check = false;
	struct {
		const uint64_t *mask;
		size_t size;
	} sig = { &four[1], 8 };

	CU_ASSERT_EQUAL(sys_pselect6(0, NULL, NULL, NULL, NULL, &sig), -ERESTARTNOHAND);
	current->restore_mask = false;
	current->sig_check = false;
	sig.size = 9;
	CU_ASSERT_EQUAL(sys_pselect6(0, NULL, NULL, NULL, NULL, &sig), -EINVAL);
}

static long add(int ep, int fd, uint32_t events, uint64_t data)
{
	struct event_t ev = { events, data };

	return sys_epoll_ctl(ep, 1, fd, &ev);
}

static long mod(int ep, int fd, uint32_t events, uint64_t data)
{
	struct event_t ev = { events, data };

	return sys_epoll_ctl(ep, 3, fd, &ev);
}

static void test_epoll_errors(void)
{
	struct fake_file *a;
	struct event_t evs[4];
	int ep, fa, plain;

	world_reset();
	CU_ASSERT_EQUAL(sys_epoll_create(0), -EINVAL);
	CU_ASSERT_EQUAL(sys_epoll_create1(1), -EINVAL);
	world_fail_alloc = 1;
	CU_ASSERT_EQUAL(sys_epoll_create1(0), -ENOMEM);
	world_fail_alloc = 2;
	CU_ASSERT_EQUAL(sys_epoll_create1(0), -ENOMEM);
	world_fail_alloc = 0;
	ep = (int)sys_epoll_create1(KO_CLOEXEC);
	fa = world_fake_fd(&a);
	plain = world_plain_fd();
	CU_ASSERT_EQUAL(add(60, fa, KPOLLIN, 0), -EBADF);
	CU_ASSERT_EQUAL(add(ep, 60, KPOLLIN, 0), -EBADF);
	CU_ASSERT_EQUAL(add(ep, plain, KPOLLIN, 0), -EPERM);
	CU_ASSERT_EQUAL(add(ep, ep, KPOLLIN, 0), -EINVAL);
	CU_ASSERT_EQUAL(add(fa, ep, KPOLLIN, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_epoll_ctl(ep, 1, fa, (void *)8), -EFAULT);
	CU_ASSERT_EQUAL(sys_epoll_ctl(ep, 9, fa, evs), -EINVAL);
	CU_ASSERT_EQUAL(mod(ep, fa, KPOLLIN, 0), -ENOENT);
	CU_ASSERT_EQUAL(sys_epoll_ctl(ep, 2, fa, NULL), -ENOENT);
	world_fail_alloc = 1;
	CU_ASSERT_EQUAL(add(ep, fa, KPOLLIN, 0), -ENOMEM);
	world_fail_alloc = 0;
	CU_ASSERT_EQUAL(add(ep, fa, KPOLLIN, 0), 0);
	CU_ASSERT_EQUAL(add(ep, fa, KPOLLIN, 0), -EEXIST);
	CU_ASSERT_EQUAL(mod(ep, fa, KPOLLIN | EXCLUSIVE, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_epoll_ctl(ep, 2, fa, NULL), 0);
	CU_ASSERT_EQUAL(add(ep, fa, KPOLLIN | KPOLLRDHUP | EXCLUSIVE, 0), -EINVAL);
	CU_ASSERT_EQUAL(add(ep, fa, KPOLLIN | EXCLUSIVE, 0), 0);
	CU_ASSERT_EQUAL(mod(ep, fa, KPOLLIN, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 0, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 0x7fffffff, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_epoll_wait(fa, evs, 4, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_epoll_wait(60, evs, 4, 0), -EBADF);
	a->ready = KPOLLIN;
	fake_set(a, KPOLLIN);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, (void *)8, 4, 0), -EFAULT);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 4, 0), 1);	/* not lost */
}

static void test_epoll_modes(void)
{
	struct fake_file *lt, *et, *one;
	struct event_t evs[8];
	int ep, flt, fet, fone, dup;

	world_reset();
	ep = (int)sys_epoll_create1(0);
	flt = world_fake_fd(&lt);
	fet = world_fake_fd(&et);
	fone = world_fake_fd(&one);
	add(ep, flt, KPOLLIN, 1);
	add(ep, fet, KPOLLIN | KPOLLOUT | ET, 2);
	add(ep, fone, KPOLLIN | ONESHOT, 3);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 8, 0), 0);
	fake_set(lt, KPOLLIN);
	fake_set(et, KPOLLOUT);
	fake_set(one, KPOLLIN | KPOLLHUP);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 8, 0), 3);
	CU_ASSERT_EQUAL(evs[1].data, 2);
	CU_ASSERT_EQUAL(evs[1].events, KPOLLOUT);
	CU_ASSERT_EQUAL(evs[2].events, KPOLLIN | KPOLLHUP);
	/* Again: only the level-triggered one. */
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 8, 0), 1);
	CU_ASSERT_EQUAL(evs[0].data, 1);
	/* A new edge; the one-shot stays silent until it is armed again. */
	fake_set(et, KPOLLOUT);
	fake_set(one, KPOLLIN | KPOLLHUP);
	lt->ready = 0;
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 8, 0), 1);
	CU_ASSERT_EQUAL(evs[0].data, 2);
	CU_ASSERT_EQUAL(mod(ep, fone, KPOLLIN | ONESHOT, 33), 0);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 8, 0), 1);
	CU_ASSERT_EQUAL(evs[0].data, 33);
	/* MOD of an edge-triggered one reports what holds now, once. */
	mod(ep, fet, KPOLLOUT | ET, 22);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 8, 0), 1);
	CU_ASSERT_EQUAL(evs[0].data, 22);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 8, 0), 0);
	/* A wake-up for something else is not looked at. */
	unsigned polls = et->polls;

	waitq_wake_all(&et->wq, KPOLLPRI);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 8, 0), 0);
	CU_ASSERT_EQUAL(et->polls, polls);

	/* The item goes with the file, not with the descriptor. */
	dup = world_dup(flt);
	CU_ASSERT_EQUAL(add(ep, dup, KPOLLIN, 11), 0);
	world_close(flt);
	fake_set(lt, KPOLLIN);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 8, 0), 2);
	CU_ASSERT_EQUAL(sys_epoll_ctl(ep, 2, flt, NULL), -EBADF);
	world_close(dup);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 8, 0), 0);
	/* Closing the epoll leaves the files alone. */
	world_close(ep);
	CU_ASSERT_TRUE(waitq_empty(&et->wq));
	world_close(fet);
	world_close(fone);
}

static void test_epoll_fair(void)
{
	struct fake_file *f[6];
	struct event_t evs[2];
	unsigned seen[6] = { 0 };
	int ep;

	world_reset();
	ep = (int)sys_epoll_create1(0);
	for (unsigned i = 0; i < 6; i++) {
		int fd = world_fake_fd(&f[i]);

		f[i]->ready = KPOLLIN;
		add(ep, fd, KPOLLIN, i);
	}
	for (unsigned round = 0; round < 6; round++) {
		CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 2, 0), 2);
		seen[evs[0].data]++;
		seen[evs[1].data]++;
	}
	for (unsigned i = 0; i < 6; i++)
		CU_ASSERT_EQUAL(seen[i], 2);
}

static void test_epoll_wait(void)
{
	struct fake_file *a;
	struct event_t evs[2];
	struct ktimespec ts = { 0, 50000000 };
	uint64_t mask = SIG_BIT(KSIGUSR1), start;
	int ep, fa;

	world_reset();
	ep = (int)sys_epoll_create1(0);
	fa = world_fake_fd(&a);
	add(ep, fa, KPOLLIN, 1);
	later = a;
	world_sleep = becomes_ready;
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 2, -1), 1);
	a->ready = 0;
	world_sleep = NULL;
	start = clock_monotonic_ns();
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 2, 20), 0);
	CU_ASSERT_EQUAL(clock_monotonic_ns() - start, 20 * MS);
	CU_ASSERT_EQUAL(sys_epoll_pwait2(ep, evs, 2, &ts, NULL, 8), 0);
	CU_ASSERT_EQUAL(clock_monotonic_ns() - start, 70 * MS);
	ts.nsec = -1;
	CU_ASSERT_EQUAL(sys_epoll_pwait2(ep, evs, 2, &ts, NULL, 8), -EINVAL);
	world_sleep = interrupted;
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, evs, 2, -1), -EINTR);
	CU_ASSERT_EQUAL(sys_epoll_pwait(ep, evs, 2, -1, &mask, 4), -EINVAL);
	current->sig_check = false;
	CU_ASSERT_EQUAL(sys_epoll_pwait(ep, evs, 2, -1, &mask, 8), -EINTR);
	CU_ASSERT_TRUE(current->restore_mask);
	current->restore_mask = false;
	current->sig_mask = 0;
	current->sig_check = false;
	a->ready = KPOLLIN;
	fake_set(a, KPOLLIN);
	CU_ASSERT_EQUAL(sys_epoll_pwait(ep, evs, 2, -1, &mask, 8), 1);
	CU_ASSERT_EQUAL(current->sig_mask, 0);
}

static void test_epoll_nested(void)
{
	struct fake_file *a;
	struct event_t evs[2];
	struct pollfd_t p;
	int ep[7], fa;

	world_reset();
	fa = world_fake_fd(&a);
	for (unsigned i = 0; i < 7; i++)
		ep[i] = (int)sys_epoll_create1(0);
	CU_ASSERT_EQUAL(add(ep[0], fa, KPOLLIN, 1), 0);
	for (unsigned i = 1; i < 5; i++)
		CU_ASSERT_EQUAL(add(ep[i], ep[i - 1], KPOLLIN, i), 0);
	CU_ASSERT_EQUAL(add(ep[5], ep[4], KPOLLIN, 5), -ELOOP);
	CU_ASSERT_EQUAL(add(ep[0], ep[4], KPOLLIN, 5), -ELOOP);
	CU_ASSERT_EQUAL(add(ep[0], ep[1], KPOLLIN, 5), -ELOOP);
	CU_ASSERT_EQUAL(add(ep[0], ep[6], KPOLLIN, 5), -ELOOP);	/* six from below */
	CU_ASSERT_EQUAL(add(ep[6], ep[0], KPOLLIN | EXCLUSIVE, 5), -EINVAL);

	fake_set(a, KPOLLIN);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep[4], evs, 2, 0), 1);
	CU_ASSERT_EQUAL(evs[0].data, 4);
	p = (struct pollfd_t){ ep[4], KPOLLIN, 0 };
	CU_ASSERT_EQUAL(sys_poll(&p, 1, 0), 1);
	a->ready = 0;
	CU_ASSERT_EQUAL(sys_poll(&p, 1, 0), 0);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep[4], evs, 2, 0), 0);
	/* The inner instance dies: it leaves the outer one. */
	fake_set(a, KPOLLIN);
	world_close(ep[3]);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep[4], evs, 2, 0), 0);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep[2], evs, 2, 0), 1);
}

/* Random operations; after each the events reported must be those a plain reading of the
 * manual gives. */
#define MFILES 8
static void test_epoll_model(void)
{
	struct {
		struct fake_file *f;
		int fd;
		bool added, armed, edge, spent;
		uint32_t events;
	} m[MFILES];
	struct event_t evs[MFILES];
	int ep;

	world_reset();
	srand(7);
	memset(m, 0, sizeof(m));
	ep = (int)sys_epoll_create1(0);
	for (unsigned i = 0; i < MFILES; i++)
		m[i].fd = world_fake_fd(&m[i].f);
	for (unsigned step = 0; step < 20000; step++) {
		unsigned i = (unsigned)rand() % MFILES, bits = (unsigned)rand() % 8;
		uint32_t ev = (bits & 1 ? KPOLLIN : 0) | (bits & 2 ? KPOLLOUT : 0) |
			      (bits & 4 ? ET : 0) | (rand() % 4 == 0 ? ONESHOT : 0);
		unsigned ready = (bits & 1 ? KPOLLIN : 0) | (bits & 2 ? KPOLLOUT : 0) |
				 (rand() % 8 == 0 ? KPOLLHUP : 0);
		bool expected[MFILES] = { false };
		long n;

		switch (rand() % 5) {
		case 0:
			CU_ASSERT_EQUAL(m[i].added ? mod(ep, m[i].fd, ev, i) :
						     add(ep, m[i].fd, ev, i), 0);
			m[i].added = m[i].armed = true;
			m[i].spent = false;
			m[i].events = ev;
			break;
		case 1:
			CU_ASSERT_EQUAL(sys_epoll_ctl(ep, 2, m[i].fd, NULL),
					m[i].added ? 0 : -ENOENT);
			m[i].added = false;
			break;
		default:
			fake_set(m[i].f, ready);
			if ((ready & (m[i].events | KPOLLHUP)) != 0)
				m[i].armed = true;
			break;
		}
		if (rand() % 2)
			continue;
		for (unsigned k = 0; k < MFILES; k++) {
			uint32_t want = m[k].events | KPOLLHUP | KPOLLERR;

			expected[k] = m[k].added && !m[k].spent && m[k].armed &&
				      (m[k].f->ready & want) != 0;
		}
		n = sys_epoll_wait(ep, evs, MFILES, 0);
		for (long k = 0; k < n; k++) {
			uint64_t w = evs[k].data;
			uint32_t want = m[w].events | KPOLLHUP | KPOLLERR;

			CU_ASSERT_TRUE(expected[w]);
			expected[w] = false;
			CU_ASSERT_EQUAL(evs[k].events, m[w].f->ready & want);
			if ((m[w].events & ONESHOT) != 0)
				m[w].spent = true;
			else if ((m[w].events & ET) != 0)
				m[w].armed = false;
		}
		for (unsigned k = 0; k < MFILES; k++)
			CU_ASSERT_FALSE(expected[k]);
		/* An edge seen while not ready is used up by the look. */
		for (unsigned k = 0; k < MFILES; k++) {
			uint32_t want = m[k].events | KPOLLHUP | KPOLLERR;

			if (m[k].added && (m[k].f->ready & want) == 0)
				m[k].armed = false;
		}
	}
}

static int eventfd_reader(uint64_t deadline, bool interruptible)
{
	uint64_t v = 5;

	world_sleep = NULL;
	world_write(3, &v, 8);
	return 0;
}

static void test_eventfd(void)
{
	uint64_t v = 0;
	struct pollfd_t p;
	int fd, sem;

	world_reset();
	for (int i = 0; i < 3; i++)
		world_plain_fd();
	CU_ASSERT_EQUAL(sys_eventfd2(0, 8), -EINVAL);
	world_fail_alloc = 1;
	CU_ASSERT_EQUAL(sys_eventfd2(0, 0), -ENOMEM);
	world_fail_alloc = 2;
	CU_ASSERT_EQUAL(sys_eventfd2(0, 0), -ENOMEM);
	world_fail_alloc = 0;
	fd = (int)sys_eventfd2(3, 0);
	CU_ASSERT_EQUAL(fd, 3);
	CU_ASSERT_EQUAL(world_read(fd, &v, 7), -EINVAL);
	CU_ASSERT_EQUAL(world_read(fd, &v, 8), 8);
	CU_ASSERT_EQUAL(v, 3);
	world_sleep = eventfd_reader;
	CU_ASSERT_EQUAL(world_read(fd, &v, 8), 8);
	CU_ASSERT_EQUAL(v, 5);
	v = UINT64_MAX;
	CU_ASSERT_EQUAL(world_write(fd, &v, 8), -EINVAL);
	CU_ASSERT_EQUAL(world_write(fd, &v, 4), -EINVAL);
	p = (struct pollfd_t){ fd, KPOLLIN | KPOLLOUT, 0 };
	sys_poll(&p, 1, 0);
	CU_ASSERT_EQUAL(p.revents, KPOLLOUT);
	v = UINT64_MAX - 1;
	CU_ASSERT_EQUAL(world_write(fd, &v, 8), 8);
	sys_poll(&p, 1, 0);
	CU_ASSERT_EQUAL(p.revents, KPOLLIN);
	world_sleep = interrupted;
	v = 1;
	CU_ASSERT_EQUAL(world_write(fd, &v, 8), -ERESTARTSYS);
	current->sig_check = false;

	sem = (int)sys_eventfd2(2, 1 | KO_NONBLOCK);
	CU_ASSERT_EQUAL(world_read(sem, &v, 8), 8);
	CU_ASSERT_EQUAL(v, 1);
	CU_ASSERT_EQUAL(world_read(sem, &v, 8), 8);
	CU_ASSERT_EQUAL(world_read(sem, &v, 8), -EAGAIN);
	v = UINT64_MAX - 1;
	world_write(sem, &v, 8);
	v = 1;
	CU_ASSERT_EQUAL(world_write(sem, &v, 8), -EAGAIN);
	CU_ASSERT_EQUAL(world_read(sem, (void *)8, 8), -EFAULT);
}

static void test_timerfd(void)
{
	struct kitimerspec spec = { { 0, 100 * (int64_t)MS }, { 1, 0 } }, old;
	struct pollfd_t p;
	uint64_t v;
	int fd, real;

	world_reset();
	CU_ASSERT_EQUAL(sys_timerfd_create(2, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_timerfd_create(1, 1), -EINVAL);
	CU_ASSERT_EQUAL(sys_timerfd_create(8, 0), -EPERM);
	fd = (int)sys_timerfd_create(1, KO_NONBLOCK);
	CU_ASSERT_EQUAL(sys_timerfd_settime(fd, 8, &spec, NULL), -EINVAL);
	CU_ASSERT_EQUAL(sys_timerfd_settime(fd, 0, NULL, NULL), -EFAULT);
	CU_ASSERT_EQUAL(sys_timerfd_settime(33, 0, &spec, NULL), -EBADF);
	CU_ASSERT_EQUAL(sys_timerfd_settime(fd, 0, &spec, &old), 0);
	CU_ASSERT_EQUAL(old.value.sec + old.value.nsec, 0);
	CU_ASSERT_EQUAL(world_read(fd, &v, 8), -EAGAIN);
	world_advance(999 * MS);
	p = (struct pollfd_t){ fd, KPOLLIN, 0 };
	CU_ASSERT_EQUAL(sys_poll(&p, 1, 0), 0);
	world_advance(MS);
	CU_ASSERT_EQUAL(sys_poll(&p, 1, 0), 1);
	world_advance(350 * MS);
	CU_ASSERT_EQUAL(world_read(fd, &v, 8), 8);
	CU_ASSERT_EQUAL(v, 4);			/* at 1.0, 1.1, 1.2, 1.3 */
	sys_timerfd_gettime(fd, &old);
	CU_ASSERT_EQUAL(old.value.nsec, 50 * (int64_t)MS);
	world_advance(50 * MS);
	CU_ASSERT_EQUAL(world_read(fd, &v, 8), 8);
	CU_ASSERT_EQUAL(v, 1);
	spec.value = (struct ktimespec){ 0, 0 };
	sys_timerfd_settime(fd, 0, &spec, NULL);
	world_advance(1000 * MS);
	CU_ASSERT_EQUAL(world_read(fd, &v, 8), -EAGAIN);
	CU_ASSERT_EQUAL(world_read(fd, &v, 4), -EINVAL);

	/* A clock that jumps: the absolute timer follows, CANCEL_ON_SET says so. */
	real = (int)sys_timerfd_create(0, KO_NONBLOCK);
	spec = (struct kitimerspec){ { 0, 0 },
				     { (int64_t)(clock_realtime_ns() / NSEC_PER_SEC) + 3600, 0 } };
	sys_timerfd_settime(real, 1, &spec, NULL);
	world_clock.realtime_ns += 7200 * NSEC_PER_SEC;
	world_clock.generation++;
	timers_run();
	CU_ASSERT_EQUAL(world_read(real, &v, 8), 8);
	CU_ASSERT_EQUAL(v, 1);
	spec.value.sec += 36000;
	sys_timerfd_settime(real, 3, &spec, NULL);
	CU_ASSERT_EQUAL(world_read(real, &v, 8), -EAGAIN);
	world_clock.generation++;
	timers_run();
	CU_ASSERT_EQUAL(world_read(real, &v, 8), -ECANCELED);
	CU_ASSERT_EQUAL(world_read(real, &v, 8), -EAGAIN);
}

static void test_signalfd(void)
{
	struct ksiginfo info = { .code = KSI_QUEUE, .pid = 9, .uid = 8, .value = 0x55 };
	uint64_t mask = SIG_BIT(40) | SIG_BIT(KSIGUSR1), kill = SIG_BIT(KSIGKILL) | mask;
	uint32_t out[64];
	struct pollfd_t p;
	struct event_t ev;
	int fd, ep;

	world_reset();
	current->sig_mask = mask;
	CU_ASSERT_EQUAL(sys_signalfd4(-1, &mask, 4, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_signalfd4(-1, &mask, 8, 1), -EINVAL);
	CU_ASSERT_EQUAL(sys_signalfd4(-1, NULL, 8, 0), -EFAULT);
	CU_ASSERT_EQUAL(sys_signalfd4(44, &mask, 8, 0), -EBADF);
	fd = (int)sys_signalfd4(-1, &kill, 8, KO_NONBLOCK);
	CU_ASSERT_EQUAL(sys_signalfd4(fd, &mask, 8, 0), fd);
	ep = (int)sys_epoll_create1(0);
	add(ep, fd, KPOLLIN, 6);
	CU_ASSERT_EQUAL(world_read(fd, out, 128), -EAGAIN);
	CU_ASSERT_EQUAL(world_read(fd, out, 127), -EINVAL);
	p = (struct pollfd_t){ fd, KPOLLIN, 0 };
	CU_ASSERT_EQUAL(sys_poll(&p, 1, 0), 0);
	signal_send_process(current->proc, 40, &info);
	signal_send_process(current->proc, 40, &info);
	CU_ASSERT_EQUAL(sys_poll(&p, 1, 0), 1);
	CU_ASSERT_EQUAL(sys_epoll_wait(ep, &ev, 1, 0), 1);
	CU_ASSERT_EQUAL(world_read(fd, out, 256), 256);
	CU_ASSERT_EQUAL(out[0], 40);
	CU_ASSERT_EQUAL(out[2], (uint32_t)KSI_QUEUE);
	CU_ASSERT_EQUAL(out[3], 9);
	CU_ASSERT_EQUAL(out[4], 8);
	CU_ASSERT_EQUAL(out[11], 0x55);		/* ssi_int */
	CU_ASSERT_EQUAL(out[32], 40);
	CU_ASSERT_EQUAL(world_read(fd, out, 256), -EAGAIN);
	CU_ASSERT_EQUAL(current->proc->sigqueued, 0);
}

static void test_no_leaks(void)
{
	world_reset();
	CU_ASSERT_EQUAL(world_live_allocs, 0);
}

int main(void)
{
	CU_pSuite s = cunit_suite("kernel polling", NULL, NULL);

	CU_add_test(s, "poll and ppoll", test_poll);
	CU_add_test(s, "select and pselect6", test_select);
	CU_add_test(s, "epoll: errors", test_epoll_errors);
	CU_add_test(s, "epoll: level, edge, one shot", test_epoll_modes);
	CU_add_test(s, "epoll: turns", test_epoll_fair);
	CU_add_test(s, "epoll: waiting", test_epoll_wait);
	CU_add_test(s, "epoll: nesting", test_epoll_nested);
	CU_add_test(s, "epoll: against a model", test_epoll_model);
	CU_add_test(s, "eventfd", test_eventfd);
	CU_add_test(s, "timerfd", test_timerfd);
	CU_add_test(s, "signalfd", test_signalfd);
	CU_add_test(s, "nothing is left", test_no_leaks);
	return cunit_run();
}
