/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers of processes: setitimer(2), alarm(2), timer_create(2) and RLIMIT_CPU.
 *
 * Timers on wall clocks are ktimers. A periodic one sends its signal and then rests until the
 * signal is taken; only then it is armed for the next whole interval, and what was skipped is
 * its overrun. So an interval of a nanosecond costs no more than the program's own handling.
 *
 * Timers on CPU clocks have no ktimer: itimer_account() is called with the time a process
 * spent and looks what is due. While such a timer is armed and its process runs, a common tick
 * makes sure that the kernel is entered soon enough.
 */
#include <linux/resource.h>

#include "guest-kernel/core/signal_internal.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time_internal.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define IGNORED_MIN_NS	(4 * NSEC_PER_MSEC)	/* pace of a timer whose signal is ignored */
#define TICK_MIN_NS	NSEC_PER_MSEC
#define POSIX_TIMERS_MAX 65536u

#define KSIGEV_SIGNAL	0
#define KSIGEV_NONE	1
#define KSIGEV_THREAD	2
#define KSIGEV_THREAD_ID 4

struct posix_timer {
	RB_ENTRY(posix_timer) node;	/* in its process's tree, by id */
	int id, clock;
	struct process *proc;
	int notify;
	int tid;			/* KSIGEV_THREAD_ID */
	bool cpu;			/* on a CPU clock of proc, or of its thread */
	int cpu_tid;			/* 0: the process's */
	bool armed;
	bool real;			/* deadline is the realtime clock's */
	bool rearm;			/* periodic, waits for its signal to be taken */
	uint64_t interval, deadline;
	uint64_t extra, overrun_last;
	struct ktimer kt;
	struct sigqueue sq;
};
RB_HEAD(posix_timer_tree, posix_timer);
struct posix_timers {
	struct posix_timer_tree tree;
	unsigned count;
};

static int posix_timer_cmp(const struct posix_timer *a, const struct posix_timer *b)
{
	return a->id < b->id ? -1 : a->id > b->id;
}
RB_GENERATE_INTERNAL(posix_timer_tree, posix_timer, node, posix_timer_cmp,
		     __attribute__((unused)) static)

/* ---- struct itimerspec ---- */

int itimerspec_get_user(const struct kitimerspec __user *u, uint64_t *ret_interval,
			uint64_t *ret_value)
{
	struct kitimerspec spec;
	int r;

	if (GET_USER(spec, u) != 0)
		return -EFAULT;
	r = timespec_to_ns(&spec.interval, ret_interval);
	return r != 0 ? r : timespec_to_ns(&spec.value, ret_value);
}

int itimerspec_put_user(struct kitimerspec __user *u, uint64_t interval, uint64_t value)
{
	struct kitimerspec spec = {
		.interval = ns_to_timespec(interval),
		.value = ns_to_timespec(value),
	};

	return PUT_USER(spec, u);
}

/* ---- the tick that CPU-clock timers need ---- */

static struct ktimer cpu_tick;

static void cpu_tick_fn(struct ktimer *t)
{
	/* The interrupt itself is the point: entering the kernel accounts the time. */
}

static void cpu_tick_within(uint64_t ns)
{
	uint64_t at = deadline_after(MAX(ns, TICK_MIN_NS));

	if (cpu_tick.fn == NULL)
		ktimer_init(&cpu_tick, cpu_tick_fn);
	if (!cpu_tick.armed || cpu_tick.deadline > at)
		ktimer_set(&cpu_tick, at);
}

/* ---- posix timers ---- */

static uint64_t timer_now(const struct posix_timer *t)
{
	struct task *task;

	if (!t->cpu)
		return t->real ? clock_realtime_ns() : clock_monotonic_ns();
	if (t->cpu_tid == 0)
		return cpu_clock_read(t->proc, NULL, cpu_clock_which(t->clock));
	task = task_find(t->cpu_tid);
	if (task == NULL || task->proc != t->proc)
		return t->deadline;	/* its clock stands still for ever */
	return cpu_clock_read(t->proc, task, cpu_clock_which(t->clock));
}

static struct task *timer_target(const struct posix_timer *t)
{
	struct task *task;

	if (t->notify != KSIGEV_THREAD_ID)
		return NULL;
	task = task_find(t->tid);
	return task != NULL && task->proc == t->proc ? task : NULL;
}

static void timer_arm(struct posix_timer *t)
{
	t->rearm = false;
	if (!t->armed) {
		t->armed = true;
		if (t->cpu)
			t->proc->cpu_timers++;
	}
	if (t->cpu)
		cpu_tick_within(0);
	else if (t->real)
		ktimer_set_realtime(&t->kt, t->deadline);
	else
		ktimer_set(&t->kt, t->deadline);
}

static void timer_disarm(struct posix_timer *t)
{
	if (t->armed && t->cpu)
		t->proc->cpu_timers--;
	t->armed = false;
	t->rearm = false;
	if (!t->cpu)
		ktimer_cancel(&t->kt);
}

/* The deadline has passed. */
static void timer_expire(struct posix_timer *t)
{
	struct task *target = timer_target(t);
	uint64_t interval = t->interval, now;

	timer_disarm(t);
	if (t->notify == KSIGEV_NONE)
		return;
	if (t->notify == KSIGEV_THREAD_ID && target == NULL)
		return;
	if (t->sq.queued) {
		/* From before the last timer_settime: counts as an overrun of that one. */
		t->extra++;
		t->rearm = interval != 0;
		return;
	}
	t->extra = 0;
	t->rearm = interval != 0;
	t->sq.info.overrun = 0;
	if (signal_send_timer(t->proc, target, &t->sq) == 0)
		return;
	/* Ignored: go on, but not faster than makes sense. */
	t->rearm = false;
	if (interval == 0)
		return;
	now = timer_now(t);
	forward(&t->deadline, interval, now + (t->cpu ? 0 : IGNORED_MIN_NS));
	timer_arm(t);
}

static void timer_fn(struct ktimer *kt)
{
	timer_expire(CONTAINER_OF(kt, struct posix_timer, kt));
}

void posix_timer_dequeued(struct sigqueue *q, struct ksiginfo *info)
{
	struct posix_timer *t = q->timer;
	uint64_t overrun = t->extra;

	t->extra = 0;
	if (t->rearm) {
		uint64_t n = forward(&t->deadline, t->interval, timer_now(t));

		if (n > 0)
			overrun += n - 1;
		timer_arm(t);
	}
	t->overrun_last = MIN(overrun, (uint64_t)INT32_MAX);
	if (info != NULL)
		info->overrun = (int)t->overrun_last;
}

static void timer_free(struct posix_timers *ts, struct posix_timer *t)
{
	timer_disarm(t);
	signal_cancel_timer(t->proc, timer_target(t), &t->sq);
	RB_REMOVE(posix_timer_tree, &ts->tree, t);
	ts->count--;
	kfree(t);
}

static void posix_timers_free(struct process *p)
{
	struct posix_timers *ts = p->posix_timers;
	struct posix_timer *t;

	if (ts == NULL)
		return;
	while ((t = RB_MIN(posix_timer_tree, &ts->tree)) != NULL)
		timer_free(ts, t);
	kfree(ts);
	p->posix_timers = NULL;
}

static struct posix_timer *timer_find(int id)
{
	struct posix_timers *ts = current->proc->posix_timers;
	struct posix_timer key = { .id = id };

	return ts != NULL ? RB_FIND(posix_timer_tree, &ts->tree, &key) : NULL;
}

struct ksigevent {
	uint64_t value;
	int32_t signo, notify, tid;
	int32_t pad[11];
};
_Static_assert(sizeof(struct ksigevent) == 64, "Linux ABI");

/* Clock and event checked; fills in what the timer needs of them. */
static int timer_setup(struct posix_timer *t, int clock, const struct ksigevent *ev)
{
	struct process *p;
	struct task *task;

	t->clock = clock;
	t->proc = current->proc;
	switch (clock) {
	case KCLOCK_REALTIME:
	case KCLOCK_MONOTONIC:
	case KCLOCK_BOOTTIME:
	case KCLOCK_TAI:
		break;
	case KCLOCK_MONOTONIC_RAW:
	case KCLOCK_REALTIME_COARSE:
	case KCLOCK_MONOTONIC_COARSE:
	case KCLOCK_REALTIME_ALARM:
	case KCLOCK_BOOTTIME_ALARM:
		return -EOPNOTSUPP;
	default:
		if (cpu_clock_find(clock, &p, &task) != 0)
			return -EINVAL;
		if (p != current->proc)
			return syscall_partial("timer_create", "CPU clock of another process",
					       -EINVAL);
		t->cpu = true;
		t->cpu_tid = task != NULL ? task->tid : 0;
		break;
	}
	t->notify = ev->notify;
	t->tid = ev->tid;
	switch (ev->notify) {
	case KSIGEV_NONE:
		break;
	case KSIGEV_THREAD_ID:
		if (timer_target(t) == NULL)
			return -EINVAL;
		/* fall through */
	case KSIGEV_SIGNAL:
	case KSIGEV_THREAD:
		if (ev->signo <= 0 || ev->signo > KSIGMAX)
			return -EINVAL;
		break;
	default:
		return -EINVAL;
	}
	t->sq.info = (struct ksiginfo){
		.signo = ev->signo,
		.code = KSI_TIMER,
		.value = ev->value,
	};
	t->sq.timer = t;
	ktimer_init(&t->kt, timer_fn);
	return 0;
}

static struct posix_timers *timers_of_current(void)
{
	struct process *p = current->proc;
	struct posix_timers *ts = p->posix_timers;

	if (ts == NULL) {
		ts = kzalloc(sizeof(*ts));
		if (ts == NULL)
			return NULL;
		RB_INIT(&ts->tree);
		p->posix_timers = ts;
	}
	return ts;
}

static void timer_give_id(struct posix_timers *ts, struct posix_timer *t)
{
	struct process *p = current->proc;

	do {
		t->id = p->posix_timer_next;
		p->posix_timer_next = t->id == INT32_MAX ? 0 : t->id + 1;
	} while (RB_INSERT(posix_timer_tree, &ts->tree, t) != NULL);
	ts->count++;
	t->sq.info.timer_id = t->id;
}

SYSCALL(timer_create, int clock, const struct ksigevent __user *uev, int32_t __user *uid)
{
	struct ksigevent ev = { .signo = KSIGALRM, .notify = KSIGEV_SIGNAL };
	struct posix_timers *ts;
	struct posix_timer *t;
	int r;

	if (uev != NULL && GET_USER(ev, uev) != 0)
		return -EFAULT;
	ts = timers_of_current();
	if (ts == NULL || ts->count >= POSIX_TIMERS_MAX ||
	    ts->count >= rlimit_cur(RLIMIT_SIGPENDING))
		return -EAGAIN;
	t = kzalloc(sizeof(*t));
	if (t == NULL)
		return -EAGAIN;
	r = timer_setup(t, clock, &ev);
	if (r != 0) {
		kfree(t);
		return r;
	}
	timer_give_id(ts, t);
	if (uev == NULL)
		t->sq.info.value = (uint64_t)t->id;
	if (PUT_USER(t->id, uid) != 0) {
		timer_free(ts, t);
		return -EFAULT;
	}
	return 0;
}

static uint64_t timer_remaining(struct posix_timer *t)
{
	bool silent = t->notify == KSIGEV_NONE;
	uint64_t now;

	if (!t->armed && !t->rearm && !(silent && t->interval != 0 && t->deadline != 0))
		return 0;
	now = timer_now(t);
	if (t->interval != 0 && (silent || t->rearm)) {
		uint64_t next = t->deadline;

		forward(&next, t->interval, now);
		return next - now;
	}
	if (t->deadline > now)
		return t->deadline - now;
	return silent ? 0 : 1;		/* about to fire */
}

SYSCALL(timer_gettime, int id, struct kitimerspec __user *uspec)
{
	struct posix_timer *t = timer_find(id);

	if (t == NULL)
		return -EINVAL;
	return itimerspec_put_user(uspec, t->interval, timer_remaining(t));
}

SYSCALL(timer_getoverrun, int id)
{
	struct posix_timer *t = timer_find(id);

	return t == NULL ? -EINVAL : (long)t->overrun_last;
}

SYSCALL(timer_settime, int id, int flags, const struct kitimerspec __user *unew,
	struct kitimerspec __user *uold)
{
	bool absolute = (flags & 1) != 0;
	uint64_t interval, value, old_interval, old_value;
	struct posix_timer *t;
	int r;

	if (unew == NULL)
		return -EINVAL;
	r = itimerspec_get_user(unew, &interval, &value);
	if (r != 0)
		return r;
	t = timer_find(id);
	if (t == NULL)
		return -EINVAL;
	old_interval = t->interval;
	old_value = timer_remaining(t);

	timer_disarm(t);
	t->extra = t->overrun_last = 0;
	t->interval = value != 0 ? interval : 0;
	t->deadline = 0;
	if (value != 0) {
		t->real = absolute && (t->clock == KCLOCK_REALTIME || t->clock == KCLOCK_TAI);
		t->deadline = value;
		if (!absolute &&
		    (__builtin_add_overflow(timer_now(t), value, &t->deadline) ||
		     t->deadline > INT64_MAX))
			t->deadline = INT64_MAX;
		timer_arm(t);
	}
	if (uold != NULL)
		return itimerspec_put_user(uold, old_interval, old_value);
	return 0;
}

SYSCALL(timer_delete, int id)
{
	struct posix_timer *t = timer_find(id);

	if (t == NULL)
		return -EINVAL;
	timer_free(current->proc->posix_timers, t);
	return 0;
}

/* ---- accounting: CPU clocks ---- */

/* Due CPU timers fire; returns the least time left to one that is armed, ~0 if none. */
static uint64_t cpu_timers_check(struct process *p)
{
	struct posix_timers *ts = p->posix_timers;
	uint64_t least = ~0ULL;
	struct posix_timer *t;

	if (ts == NULL || p->cpu_timers == 0)
		return least;
	RB_FOREACH(t, posix_timer_tree, &ts->tree) {
		uint64_t now;
		struct task *task = NULL;

		if (!t->cpu || !t->armed)
			continue;
		if (t->cpu_tid != 0) {
			task = task_find(t->cpu_tid);
			if (task == NULL || task->proc != p)
				continue;
		}
		/* Not cpu_clock_read(): we are inside the accounting it would do. */
		if (task == NULL)
			now = process_cpu_ns(p, cpu_clock_which(t->clock));
		else
			now = cpu_clock_which(t->clock) == CPUCLOCK_VIRT ?
				      task->utime_ns : task->utime_ns + task->stime_ns;
		if (now >= t->deadline) {
			timer_expire(t);
			least = 0;
		} else {
			least = MIN(least, t->deadline - now);
		}
	}
	return least;
}

/* A countdown of CPU time; returns what is left, ~0 when it is not running. */
static uint64_t countdown(struct process *p, uint64_t *left, uint64_t interval, uint64_t spent,
			  int sig)
{
	if (*left == 0)
		return ~0ULL;
	if (*left > spent) {
		*left -= spent;
		return *left;
	}
	spent -= *left;
	*left = interval != 0 ? interval - spent % interval : 0;
	signal_send_process(p, sig, NULL);
	return 0;
}

static uint64_t rlimit_cpu_check(struct process *p)
{
	struct krlimit *rl = &p->rlim[RLIMIT_CPU];
	uint64_t used, seconds;

	if (rl->cur == KRLIM_INFINITY || rl->cur > INT64_MAX / NSEC_PER_SEC)
		return ~0ULL;
	used = process_cpu_ns(p, CPUCLOCK_SCHED);
	seconds = used / NSEC_PER_SEC;
	if (rl->max != KRLIM_INFINITY && seconds >= rl->max) {
		signal_send_process(p, KSIGKILL, NULL);
		return 0;
	}
	if (seconds >= rl->cur) {
		signal_send_process(p, KSIGXCPU, NULL);
		rl->cur = seconds + 1;	/* again each second, as Linux */
		return 0;
	}
	return rl->cur * NSEC_PER_SEC - used;
}

void itimer_account(struct process *p, uint64_t user_ns, uint64_t sys_ns)
{
	static bool inside;
	uint64_t least, other;

	if (likely(p->itimer_virt == 0 && p->itimer_prof == 0 && p->cpu_timers == 0 &&
		   p->rlim[RLIMIT_CPU].cur == KRLIM_INFINITY))
		return;
	if (inside || p->zombie || p->group_exit)
		return;
	inside = true;
	least = countdown(p, &p->itimer_virt, p->itimer_virt_interval, user_ns, KSIGVTALRM);
	other = countdown(p, &p->itimer_prof, p->itimer_prof_interval, user_ns + sys_ns,
			  KSIGPROF);
	least = MIN(least, other);
	other = cpu_timers_check(p);
	least = MIN(least, other);
	other = rlimit_cpu_check(p);
	least = MIN(least, other);
	if (least != ~0ULL)
		cpu_tick_within(least);
	inside = false;
}

/* ---- setitimer ---- */

#define ITIMER_REAL	0
#define ITIMER_VIRTUAL	1
#define ITIMER_PROF	2

struct kitimerval {
	struct ktimeval interval, value;
};

static void itimer_real_fn(struct ktimer *kt)
{
	struct process *p = CONTAINER_OF(kt, struct process, itimer_real);
	uint64_t next = kt->deadline;

	signal_send_process(p, KSIGALRM, NULL);
	if (p->itimer_real_interval == 0 || p->zombie ||
	    (p->pending.set & SIG_BIT(KSIGALRM)) != 0)
		return;		/* armed again when the signal is taken */
	forward(&next, p->itimer_real_interval, clock_monotonic_ns() + IGNORED_MIN_NS);
	ktimer_set(kt, next);
}

void itimer_real_dequeued(struct process *p)
{
	uint64_t next = p->itimer_real.deadline;

	if (p->itimer_real_interval == 0 || p->itimer_real.armed)
		return;
	forward(&next, p->itimer_real_interval, clock_monotonic_ns());
	ktimer_set(&p->itimer_real, next);
}

static uint64_t itimer_real_left(const struct process *p)
{
	uint64_t now = clock_monotonic_ns(), next = p->itimer_real.deadline;

	if (!p->itimer_real.armed) {
		if (p->itimer_real_interval == 0)
			return 0;
		forward(&next, p->itimer_real_interval, now);
	}
	return next > now + NSEC_PER_USEC ? next - now : NSEC_PER_USEC;
}

static void itimer_real_set(struct process *p, uint64_t interval, uint64_t value)
{
	if (p->itimer_real.fn == NULL)
		ktimer_init(&p->itimer_real, itimer_real_fn);
	ktimer_cancel(&p->itimer_real);
	p->itimer_real_interval = value != 0 ? interval : 0;
	if (value != 0)
		ktimer_set(&p->itimer_real, deadline_after(value));
}

/* Returns the interval and time left, in ns. */
static int itimer_get(int which, uint64_t *interval, uint64_t *value)
{
	struct process *p = current->proc;

	switch (which) {
	case ITIMER_REAL:
		*interval = p->itimer_real_interval;
		*value = itimer_real_left(p);
		return 0;
	case ITIMER_VIRTUAL:
		*interval = p->itimer_virt_interval;
		*value = p->itimer_virt;
		return 0;
	case ITIMER_PROF:
		*interval = p->itimer_prof_interval;
		*value = p->itimer_prof;
		return 0;
	default:
		return -EINVAL;
	}
}

static void itimer_set(int which, uint64_t interval, uint64_t value)
{
	struct process *p = current->proc;

	if (which == ITIMER_REAL) {
		itimer_real_set(p, interval, value);
		return;
	}
	if (which == ITIMER_VIRTUAL) {
		p->itimer_virt = value;
		p->itimer_virt_interval = interval;
	} else {
		p->itimer_prof = value;
		p->itimer_prof_interval = interval;
	}
	if (value != 0)
		cpu_tick_within(value);
}

static struct ktimeval ns_to_timeval(uint64_t ns)
{
	return (struct ktimeval){
		.sec = (int64_t)(ns / NSEC_PER_SEC),
		.usec = (int64_t)(ns % NSEC_PER_SEC / NSEC_PER_USEC),
	};
}

static int itimerval_put(struct kitimerval __user *u, uint64_t interval, uint64_t value)
{
	struct kitimerval v = {
		.interval = ns_to_timeval(interval),
		.value = ns_to_timeval(value),
	};

	return PUT_USER(v, u);
}

static int timeval_to_ns(const struct ktimeval *tv, uint64_t *ret)
{
	if (tv->sec < 0 || tv->usec < 0 || tv->usec >= 1000000)
		return -EINVAL;
	if (tv->sec > INT64_MAX / (int64_t)NSEC_PER_SEC - 1)
		*ret = INT64_MAX;
	else
		*ret = (uint64_t)tv->sec * NSEC_PER_SEC + (uint64_t)tv->usec * NSEC_PER_USEC;
	return 0;
}

SYSCALL(getitimer, int which, struct kitimerval __user *uval)
{
	uint64_t interval, value;
	int r = itimer_get(which, &interval, &value);

	return r != 0 ? r : itimerval_put(uval, interval, value);
}

SYSCALL(setitimer, int which, const struct kitimerval __user *unew,
	struct kitimerval __user *uold)
{
	uint64_t interval = 0, value = 0, old_interval, old_value;
	struct kitimerval v;
	int r;

	if (unew != NULL) {
		if (GET_USER(v, unew) != 0)
			return -EFAULT;
		r = timeval_to_ns(&v.interval, &interval);
		if (r == 0)
			r = timeval_to_ns(&v.value, &value);
		if (r != 0)
			return r;
	}
	r = itimer_get(which, &old_interval, &old_value);
	if (r != 0)
		return r;
	itimer_set(which, interval, value);
	return uold != NULL ? itimerval_put(uold, old_interval, old_value) : 0;
}

SYSCALL(alarm, unsigned seconds)
{
	uint64_t interval, left;

	itimer_get(ITIMER_REAL, &interval, &left);
	itimer_real_set(current->proc, 0,
			(uint64_t)MIN(seconds, (unsigned)INT32_MAX) * NSEC_PER_SEC);
	if (left != 0 && left < NSEC_PER_SEC)
		return 1;
	return (long)((left + NSEC_PER_SEC / 2) / NSEC_PER_SEC);
}

/* ---- life of a process ---- */

void timers_process_init(struct process *p)
{
	ktimer_init(&p->itimer_real, itimer_real_fn);
	p->itimer_real_interval = 0;
	p->itimer_virt = p->itimer_virt_interval = 0;
	p->itimer_prof = p->itimer_prof_interval = 0;
	p->posix_timers = NULL;
	p->posix_timer_next = 0;
	p->cpu_timers = 0;
}

void timers_process_exec(struct process *p)
{
	posix_timers_free(p);
}

void timers_process_exit(struct process *p)
{
	posix_timers_free(p);
	ktimer_cancel(&p->itimer_real);
	p->itimer_real_interval = 0;
	p->itimer_virt = p->itimer_prof = 0;
}
