/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks and the timer tree.
 *
 * The host writes the clock page (abi/clock.h) before every start and restart, under a
 * sequence lock; a reading multiplies the TSC's advance, in 128 bits. Monotonic readings never
 * go back, also not across a restore. The host owns the realtime clock: programs cannot set it
 * (the vDSO reads the same page), so it jumps only when the generation changes; then timers
 * on the realtime clock are placed anew. A VM may be stopped and restored between any two
 * instructions. So nothing computed from a reading of the realtime clock or the raw TSC may be
 * kept without the generation it belongs to; the interrupt that the host raises at each restart
 * comes here (timers_run) and finds the difference.
 *
 * Timers are a tree by deadline. timers_run() runs what is due; a callback may arm its timer
 * again, and a timer that is again due at once waits for the next interrupt.
 */
#include "guest-kernel/core/time.h"

#include "abi/clock.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/time_internal.h"
#include "guest-kernel/core/wait.h"
#include "guest-kernel/mm/uaccess.h"

#define TIMERS_RUN_MAX	4096u

struct cm_clock *clock_page;
struct waitq clock_jump_wait = { TAILQ_HEAD_INITIALIZER(clock_jump_wait.list) };

/* ---- the page ---- */

struct reading {
	uint64_t mono, real, generation;
};

static void clock_read(struct reading *r)
{
	const volatile struct cm_clock *c = clock_page;
	uint32_t seq;

	if (c == NULL) {
		*r = (struct reading){ 0, 0, 0 };
		return;
	}
	do {
		uint64_t tsc, delta;

		seq = c->seq;
		__asm__ volatile("" : : : "memory");
		tsc = arch_tsc();
		delta = tsc > c->tsc_base ? tsc - c->tsc_base : 0;
		delta = (uint64_t)(((unsigned __int128)delta * c->mult) >> c->shift);
		r->mono = c->monotonic_ns + delta;
		r->real = c->realtime_ns + delta;
		r->generation = c->generation;
		__asm__ volatile("" : : : "memory");
	} while ((seq & 1) != 0 || seq != c->seq);
}

uint64_t clock_monotonic_ns(void)
{
	static uint64_t last;
	struct reading r;

	clock_read(&r);
	if (r.mono > last)
		last = r.mono;
	return last;
}

uint64_t clock_realtime_ns(void)
{
	struct reading r;

	clock_read(&r);
	return r.real;
}

/* The guest knows no suspend: the VM is stopped together with its monotonic clock. */
uint64_t clock_boot_ns(void)
{
	return clock_monotonic_ns();
}

int64_t clock_realtime_offset(void)
{
	struct reading r;

	clock_read(&r);
	return (int64_t)(r.real - r.mono);
}

uint64_t clock_generation(void)
{
	const volatile struct cm_clock *c = clock_page;

	return c != NULL ? c->generation : 0;
}

uint64_t deadline_after(uint64_t ns)
{
	uint64_t end;

	if (__builtin_add_overflow(clock_monotonic_ns(), ns, &end) || end > INT64_MAX)
		end = INT64_MAX;
	return end;
}

/* ---- timers ---- */

static int ktimer_cmp(const struct ktimer *a, const struct ktimer *b)
{
	if (a->deadline != b->deadline)
		return a->deadline < b->deadline ? -1 : 1;
	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

RB_HEAD(ktimer_tree, ktimer);
RB_GENERATE_INTERNAL(ktimer_tree, ktimer, node, ktimer_cmp, __attribute__((unused)) static)

static struct ktimer_tree timers = RB_INITIALIZER(&timers);
static uint64_t timer_seq;
static uint64_t timers_generation;

void ktimer_init(struct ktimer *t, void (*fn)(struct ktimer *t))
{
	memset(t, 0, sizeof(*t));
	t->fn = fn;
}

static void insert(struct ktimer *t, uint64_t deadline)
{
	if (t->armed)
		RB_REMOVE(ktimer_tree, &timers, t);
	t->deadline = deadline;
	t->seq = ++timer_seq;
	t->armed = true;
	RB_INSERT(ktimer_tree, &timers, t);
	if (RB_MIN(ktimer_tree, &timers) == t)
		sched_arm_timer();
}

void ktimer_set(struct ktimer *t, uint64_t deadline_ns)
{
	t->realtime = false;
	insert(t, deadline_ns);
}

static uint64_t realtime_to_monotonic(uint64_t real_ns)
{
	int64_t off = clock_realtime_offset();
	int64_t mono;

	if (real_ns > INT64_MAX)
		real_ns = INT64_MAX;
	if (__builtin_sub_overflow((int64_t)real_ns, off, &mono))
		mono = off < 0 ? INT64_MAX : 0;
	return mono < 0 ? 0 : (uint64_t)mono;
}

void ktimer_set_realtime(struct ktimer *t, uint64_t real_ns)
{
	t->realtime = true;
	t->real_deadline = real_ns;
	insert(t, realtime_to_monotonic(real_ns));
}

void ktimer_cancel(struct ktimer *t)
{
	if (!t->armed)
		return;
	RB_REMOVE(ktimer_tree, &timers, t);
	t->armed = false;
}

/* After a restore: realtime timers move with their clock. The walk collects them first, since
 * inserting moves them about in the tree that is walked. */
static void follow_clock_jump(void)
{
	struct ktimer *t, *next, *list = NULL;
	uint64_t generation = clock_generation();

	if (generation == timers_generation)
		return;
	timers_generation = generation;
	for (t = RB_MIN(ktimer_tree, &timers); t != NULL; t = next) {
		next = RB_NEXT(ktimer_tree, &timers, t);
		if (!t->realtime)
			continue;
		RB_REMOVE(ktimer_tree, &timers, t);
		t->armed = false;
		RB_LEFT(t, node) = list;
		list = t;
	}
	while (list != NULL) {
		t = list;
		list = RB_LEFT(t, node);
		insert(t, realtime_to_monotonic(t->real_deadline));
	}
	waitq_wake_all(&clock_jump_wait, 0);
}

/* Asked before each sleep, so a restored VM that was idle notices here too. */
uint64_t timers_next(void)
{
	struct ktimer *t;

	follow_clock_jump();
	t = RB_MIN(ktimer_tree, &timers);
	return t != NULL ? t->deadline : NO_DEADLINE;
}

void timers_run(void)
{
	uint64_t now;

	follow_clock_jump();
	now = clock_monotonic_ns();
	for (unsigned i = 0; i < TIMERS_RUN_MAX; i++) {
		struct ktimer *t = RB_MIN(ktimer_tree, &timers);

		if (t == NULL || t->deadline > now)
			break;
		ktimer_cancel(t);
		t->fn(t);
	}
}

/* ---- user's struct timespec ---- */

int timespec_to_ns(const struct ktimespec *ts, uint64_t *ret_ns)
{
	if (ts->sec < 0 || ts->nsec < 0 || ts->nsec >= (int64_t)NSEC_PER_SEC)
		return -EINVAL;
	if (ts->sec > INT64_MAX / (int64_t)NSEC_PER_SEC - 1)
		*ret_ns = INT64_MAX;
	else
		*ret_ns = (uint64_t)ts->sec * NSEC_PER_SEC + (uint64_t)ts->nsec;
	return 0;
}

int timespec_get_user(const struct ktimespec *uts, uint64_t *ret_ns)
{
	struct ktimespec ts;

	if (copy_from_user(&ts, uts, sizeof(ts)) != 0)
		return -EFAULT;
	return timespec_to_ns(&ts, ret_ns);
}

int timespec_put_user(struct ktimespec *uts, uint64_t ns)
{
	struct ktimespec ts = ns_to_timespec(ns);

	return copy_to_user(uts, &ts, sizeof(ts));
}
