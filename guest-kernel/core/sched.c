/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: one vCPU, fair by virtual runtime. The run queue is a tree of the runnable
 * tasks but the running one, ordered by vruntime, the CPU time they had divided by their
 * weight (nice). schedule() runs the first; a task that slept is placed a little before the
 * others so that it runs soon, and may preempt at once (need_resched).
 *
 * Tickless. The timer is armed for the earliest ktimer and, only when a task waits for the
 * processor, for the end of the running one's slice. Arming costs tens of microseconds on
 * some hosts, so an armed deadline is never moved later: an early interrupt arms again.
 *
 * With nothing to run, schedule() waits for interrupts on the stack of the task that called
 * it: there is no idle task. A dead task's stack is freed by sched_finish_switch(), on the
 * stack of whoever runs next.
 */
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/mm/mm.h"

#define SLICE_NS	(4 * NSEC_PER_MSEC)
#define WAKE_BONUS_NS	(3 * NSEC_PER_MSEC)	/* how far before the others a sleeper starts */
#define WAKE_GRAN_NS	(1 * NSEC_PER_MSEC)	/* how far behind current must be to be preempted */
#define WEIGHT_ONE	1024u

/* 1024 / 1.25^nice for nice -20..19. */
static const uint32_t nice_weight[40] = {
	88818, 71054, 56843, 45475, 36380, 29104, 23283, 18626, 14901, 11921,
	9537,  7629,  6104,  4883,  3906,  3125,  2500,  2000,  1600,  1280,
	1024,  819,   655,   524,   419,   336,   268,   215,   172,   137,
	110,   88,    70,    56,    45,    36,    29,    23,    18,    15,
};

RB_HEAD(run_tree, task);

static int run_cmp(struct task *a, struct task *b)
{
	int64_t d = (int64_t)(a->vruntime - b->vruntime);

	if (d != 0)
		return d < 0 ? -1 : 1;
	/* Equal ones in order of their numbers, so that each key is unique. */
	return a->tid < b->tid ? -1 : a->tid > b->tid;
}

RB_GENERATE_INTERNAL(run_tree, task, run_node, run_cmp, static __attribute__((unused)))

static struct run_tree runq;
static unsigned nqueued;
static uint64_t min_vruntime;
/* Cycles of current since the last flush, by side; `since` in ns. The stamp is the raw TSC,
 * which says nothing outside the generation it was read in. */
static struct {
	uint64_t stamp, generation, user, kernel, since;
} account;
static uint64_t armed = NO_DEADLINE;
static struct task *dead_task;
static bool idling;
static uint64_t idle_ns, nswitches;

/* Load average: the integral of the number of runnable tasks, taken every five seconds. */
#define LOAD_PERIOD	(5 * NSEC_PER_SEC)
static const uint64_t load_exp[3] = {60296, 64453, 65173};	/* e^(-5/60), /300, /900 << 16 */
static uint64_t load_avg[3], load_since, load_last, load_integral;

unsigned sched_nr_runnable(void)
{
	return nqueued + (current->state == TASK_RUNNABLE && !current->on_runq && !idling);
}

uint64_t sched_idle_ns(void)
{
	return idle_ns;
}

uint64_t sched_switches(void)
{
	return nswitches;
}

/* Before each change of the number of runnable tasks. */
static void load_update(uint64_t now)
{
	uint64_t n = sched_nr_runnable(), span, active;

	if (now <= load_last)
		return;
	load_integral += n * ((now - load_last) / NSEC_PER_USEC);
	load_last = now;
	span = now - load_since;
	if (span < LOAD_PERIOD)
		return;
	active = (load_integral << 16) / (span / NSEC_PER_USEC);
	for (unsigned k = 0; span >= LOAD_PERIOD && k < 1000; k++, span -= LOAD_PERIOD)
		for (unsigned i = 0; i < 3; i++)
			load_avg[i] = (load_avg[i] * load_exp[i] +
				       active * (65536 - load_exp[i])) >> 16;
	load_since = now;
	load_integral = 0;
}

void sched_loadavg(uint64_t ret_fixed[3])
{
	load_update(clock_monotonic_ns());
	for (unsigned i = 0; i < 3; i++)
		ret_fixed[i] = load_avg[i];
}

static uint32_t task_weight(const struct task *t)
{
	if (t->policy == SCHED_IDLE_)
		return 3;
	return nice_weight[t->nice + 20];
}

/* Charges the running stint to t. */
static void update_run(struct task *t, uint64_t now)
{
	uint64_t delta = now > t->run_since ? now - t->run_since : 0;
	uint64_t low;
	struct task *first;

	t->run_since = now;
	/* A stint of some hours does not overflow: ns * 1024. */
	t->vruntime += delta * WEIGHT_ONE / task_weight(t);
	low = t->vruntime;
	first = RB_MIN(run_tree, &runq);
	if (first != NULL && (int64_t)(first->vruntime - low) < 0)
		low = first->vruntime;
	if ((int64_t)(low - min_vruntime) > 0)
		min_vruntime = low;
}

/* Where a task that slept comes in: with its own vruntime, but at most a bonus ahead. */
static void place_sleeper(struct task *t)
{
	uint64_t floor = min_vruntime - WAKE_BONUS_NS;

	if ((int64_t)(t->vruntime - floor) < 0)
		t->vruntime = floor;
}

static void enqueue(struct task *t)
{
	ASSERT(!t->on_runq);
	if (RB_INSERT(run_tree, &runq, t) != NULL)
		panic("task %d is on the run queue twice", t->tid);
	t->on_runq = true;
	nqueued++;
}

static void dequeue(struct task *t)
{
	RB_REMOVE(run_tree, &runq, t);
	t->on_runq = false;
	nqueued--;
}

/* Does current's CPU time have to be watched, though nobody else wants the processor? */
static bool cpu_time_watched(const struct process *p)
{
	return p->rlim[RLIM_CPU].cur != KRLIM_INFINITY || p->itimer_virt != 0 ||
	       p->itimer_prof != 0 || p->cpu_timers != 0;
}

void sched_arm_timer(void)
{
	uint64_t want = timers_next();
	uint64_t now = 0;

	if (!idling && nqueued > 0 && !current->need_resched)
		want = MIN(want, current->slice_end);
	if (!idling && unlikely(cpu_time_watched(current->proc))) {
		now = clock_monotonic_ns();
		want = MIN(want, now + SLICE_NS);
	}
	if (want >= armed) {
		/* What it is armed for may have been taken unseen: then arm anew. */
		if (armed == NO_DEADLINE || armed > (now != 0 ? now : clock_monotonic_ns()))
			return;
	}
	armed = want;
	if (want != NO_DEADLINE)
		arch_timer_set(want);
}

void sched_task_init(struct task *t, const struct task *parent)
{
	t->nice = parent->nice;
	t->policy = parent->policy;
	t->rt_priority = parent->rt_priority;
	t->ioprio = parent->ioprio;
	if (parent->reset_on_fork) {
		if (t->policy == SCHED_FIFO_ || t->policy == SCHED_RR_) {
			t->policy = SCHED_OTHER_;
			t->rt_priority = 0;
		}
		if (t->nice < 0)
			t->nice = 0;
	}
	t->vruntime = parent->vruntime;
}

void sched_set_nice(struct task *t, int nice, int policy)
{
	uint64_t now = clock_monotonic_ns();

	if (t == current && !t->on_runq)
		update_run(t, now);
	t->nice = nice;
	t->policy = policy;
}

/* Should current give way to t, which has just become runnable? */
static void preempt_check(struct task *t, uint64_t now)
{
	uint64_t gran = WAKE_GRAN_NS * WEIGHT_ONE / task_weight(t);

	if (current->state != TASK_RUNNABLE || idling)
		return;
	update_run(current, now);
	if (current->policy == SCHED_IDLE_ && t->policy != SCHED_IDLE_)
		current->need_resched = true;
	else if (t->policy != SCHED_BATCH_ && t->policy != SCHED_IDLE_ &&
		 (int64_t)(current->vruntime - t->vruntime) > (int64_t)gran)
		current->need_resched = true;
}

static void made_runnable(struct task *t, bool may_preempt)
{
	uint64_t now = clock_monotonic_ns();

	load_update(now);
	enqueue(t);
	if (idling)
		return;
	if (nqueued == 1)	/* nobody had to wait until now: the slice begins */
		current->slice_end = now + SLICE_NS;
	if (may_preempt)
		preempt_check(t, now);
	sched_arm_timer();
}

void sched_wake(struct task *t)
{
	if (t->state != TASK_SLEEPING && t->state != TASK_UNINTERRUPTIBLE &&
	    t->state != TASK_STOPPED)
		return;
	if (t == current) {	/* not switched away yet, or idling on its stack */
		load_update(clock_monotonic_ns());
		t->state = TASK_RUNNABLE;
		return;
	}
	t->state = TASK_RUNNABLE;
	place_sleeper(t);
	made_runnable(t, true);
}

void sched_add(struct task *t)
{
	t->state = TASK_RUNNABLE;
	if ((int64_t)(t->vruntime - min_vruntime) < 0)
		t->vruntime = min_vruntime;
	made_runnable(t, false);
}

/* Cycles since the last call. A restored VM's TSC may be anything, so the first step in a new
 * generation is what the sums lack of the time since the last flush. The order of the readings
 * matters: a generation may begin between them. */
static uint64_t account_step(void)
{
	uint64_t tsc = arch_tsc(), step = tsc - account.stamp;
	uint64_t generation = clock_generation(), counted = account.user + account.kernel;

	account.stamp = tsc;
	if (likely(generation == account.generation))
		return step;
	account.generation = generation;
	account.stamp = arch_tsc();
	step = (clock_monotonic_ns() - account.since) * (arch_tsc_khz() / 1000) / 1000;
	return step > counted ? step - counted : 0;
}

void sched_account(bool to_user)
{
	uint64_t step = account_step();

	if (to_user)
		account.kernel += step;
	else
		account.user += step;
}

/* total * part / whole to 31 bits of precision, without a 128-bit division. */
static uint64_t share(uint64_t total, uint64_t part, uint64_t whole)
{
	unsigned shift = 0;

	for (; whole >> 31 != 0; whole >>= 1)
		part >>= 1;
	for (; total >> 31 != 0; total >>= 1)
		shift++;
	return whole != 0 ? (total * part / whole) << shift : 0;
}

/* Turns the cycles counted since the last flush into current's nanoseconds. */
void sched_account_flush(void)
{
	uint64_t now = clock_monotonic_ns(), total, user;

	/* Outside a system call (an interrupt, a fault) it was the program that ran. */
	sched_account(current->is_syscall);
	total = now > account.since ? now - account.since : 0;
	user = share(total, account.user, account.user + account.kernel);
	account.user = account.kernel = 0;
	account.since = now;
	current->utime_ns += user;
	current->stime_ns += total - user;
	itimer_account(current->proc, user, total - user);
}

/* Time from here on is another task's. */
static void account_restart(uint64_t now)
{
	account_step();
	account.user = account.kernel = 0;
	account.since = now;
}

void sched_init(void)
{
	RB_INIT(&runq);
	nqueued = 0;
	min_vruntime = NSEC_PER_SEC;
	load_since = load_last = clock_monotonic_ns();
	account_restart(load_since);
	armed = NO_DEADLINE;
}

void task_times(const struct task *t, uint64_t *ret_utime, uint64_t *ret_stime)
{
	if (t == current)
		sched_account_flush();
	*ret_utime = t->utime_ns;
	*ret_stime = t->stime_ns;
}

void process_times(const struct process *p, uint64_t *ret_utime, uint64_t *ret_stime)
{
	uint64_t u = p->utime_ns, s = p->stime_ns, tu, ts;
	struct task *t;

	TAILQ_FOREACH(t, &p->threads, thread_link) {
		task_times(t, &tu, &ts);
		u += tu;
		s += ts;
	}
	*ret_utime = u;
	*ret_stime = s;
}

void sched_tick(void)
{
	uint64_t now = clock_monotonic_ns();

	/* It fired, maybe early: far deadlines are armed in steps. */
	armed = NO_DEADLINE;
	if (!idling && current->state == TASK_RUNNABLE) {
		sched_account_flush();
		update_run(current, now);
		if (nqueued > 0 && now >= current->slice_end)
			current->need_resched = true;
	}
	sched_arm_timer();
}

/* On the stack of the task that runs now, after each switch. */
void sched_finish_switch(void)
{
	struct task *dead = dead_task;

	dead_task = NULL;
	if (dead != NULL)
		task_free(dead);
}

/* Nothing to run: wait for interrupts until there is. */
static void idle(struct task *prev)
{
	uint64_t start = clock_monotonic_ns(), now;

	sched_account_flush();
	idling = true;
	while (prev->state != TASK_RUNNABLE && nqueued == 0) {
		if (!arch_irq_pending()) {
			sched_arm_timer();
			if (!arch_irq_pending())
				arch_wait_for_interrupt();
		}
		irq_process();
	}
	now = clock_monotonic_ns();
	load_update(now);
	idling = false;
	idle_ns += now - start;
	account_restart(now);
	prev->run_since = now;
}

void schedule(void)
{
	struct task *prev = current, *next;
	uint64_t now;
	bool sleeps;

	if (arch_irq_pending())
		irq_process();
	/* May send SIGPROF or SIGVTALRM to prev: before it is decided whether prev runs on. */
	sched_account_flush();
	now = clock_monotonic_ns();
	load_update(now);
	update_run(prev, now);
	prev->need_resched = false;
	sleeps = prev->state != TASK_RUNNABLE;
	if (prev->state != TASK_RUNNABLE && nqueued == 0) {
		idle(prev);
		now = clock_monotonic_ns();
		if (prev->state == TASK_RUNNABLE)
			place_sleeper(prev);
	}
	if (prev->state == TASK_RUNNABLE)
		enqueue(prev);
	next = RB_MIN(run_tree, &runq);
	dequeue(next);
	next->need_resched = false;
	next->run_since = now;
	next->slice_end = now + SLICE_NS;
	if (sleeps)
		prev->nvcsw++;
	else if (next != prev)
		prev->nivcsw++;
	if (next != prev) {
		nswitches++;
		if (prev->state == TASK_DEAD)
			dead_task = prev;
		current = next;
	}
	sched_arm_timer();
	if (next != prev) {
		arch_switch(prev, next);
		sched_finish_switch();
	}
}

/* Behind all others that wait, but not so far that it starves. */
void sched_yield_now(void)
{
	struct task *last = RB_MAX(run_tree, &runq);

	if (last == NULL)
		return;
	update_run(current, clock_monotonic_ns());
	if ((int64_t)(last->vruntime - current->vruntime) >= 0)
		current->vruntime = MIN(last->vruntime + 1,
					current->vruntime + 10 * NSEC_PER_MSEC);
	schedule();
}

static void sleep_timer_fn(struct ktimer *k)
{
	struct task *t = CONTAINER_OF(k, struct task, sleep_timer);

	t->timed_out = true;
	if (t->state == TASK_SLEEPING || t->state == TASK_UNINTERRUPTIBLE)
		sched_wake(t);
}

static int sleep_timed(uint64_t deadline, bool realtime, bool interruptible)
{
	struct task *t = current;

	if (interruptible && signal_pending(t))
		return -ERESTARTSYS;
	if (deadline != NO_DEADLINE) {
		if ((realtime ? clock_realtime_ns() : clock_monotonic_ns()) >= deadline)
			return -ETIMEDOUT;
		t->timed_out = false;
		ktimer_init(&t->sleep_timer, sleep_timer_fn);
		if (realtime)
			ktimer_set_realtime(&t->sleep_timer, deadline);
		else
			ktimer_set(&t->sleep_timer, deadline);
	}
	t->state = interruptible ? TASK_SLEEPING : TASK_UNINTERRUPTIBLE;
	schedule();
	if (deadline != NO_DEADLINE) {
		ktimer_cancel(&t->sleep_timer);
		if (t->timed_out)
			return -ETIMEDOUT;
	}
	return 0;
}

int sleep_once(uint64_t deadline_ns, bool interruptible)
{
	return sleep_timed(deadline_ns, false, interruptible);
}

int sleep_once_realtime(uint64_t real_ns)
{
	return sleep_timed(real_ns, true, true);
}

int sleep_killable(void)
{
	if (signal_fatal_pending(current))
		return -ERESTARTSYS;
	current->state = TASK_SLEEPING;
	schedule();
	return 0;
}
