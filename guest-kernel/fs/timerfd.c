/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timerfd: a timer whose expirations are counted and read through a descriptor. A periodic
 * timer rests after it has expired until it is read or looked at; the expirations missed are
 * then counted by arithmetic, so a short interval costs nothing while nobody reads.
 *
 * The realtime clock jumps when the VM is restored, and only then. A timer on it is placed
 * anew (core/time.c); one with CANCEL_ON_SET hangs on clock_jump_wait too, to wake whoever
 * sleeps on it.
 */
#include <linux/capability.h>
#include <linux/timerfd.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time_internal.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/page.h"

struct timerfd {
	struct ktimer kt;
	struct waitq wq;
	int clock;
	bool real;		/* deadline is the realtime clock's */
	bool expired;		/* kt fired since it was set or read */
	bool cancel_on_set;
	uint64_t cancel_generation;	/* clock generation when set: a new one cancels */
	struct waiter jump;		/* on clock_jump_wait, with cancel_on_set */
	uint32_t settime_flags;
	uint64_t interval, deadline;
	uint64_t ticks;		/* not yet read */
};

static uint64_t timerfd_now(const struct timerfd *t)
{
	return t->real ? clock_realtime_ns() : clock_monotonic_ns();
}

static void timerfd_arm(struct timerfd *t)
{
	if (t->real)
		ktimer_set_realtime(&t->kt, t->deadline);
	else
		ktimer_set(&t->kt, t->deadline);
}

static void timerfd_fn(struct ktimer *kt)
{
	struct timerfd *t = CONTAINER_OF(kt, struct timerfd, kt);

	t->expired = true;
	t->ticks++;
	waitq_wake_all(&t->wq, KPOLLIN);
}

/* Counts the intervals that passed since the timer fired, and arms it for the next. */
static void timerfd_catch_up(struct timerfd *t)
{
	uint64_t n;

	if (!t->expired || t->interval == 0)
		return;
	n = forward(&t->deadline, t->interval, timerfd_now(t));
	if (n > 1)
		t->ticks += n - 1;	/* the first was counted when it fired */
	t->expired = false;
	timerfd_arm(t);
}

static bool timerfd_canceled(struct timerfd *t)
{
	return t->cancel_on_set && clock_generation() != t->cancel_generation;
}

static bool timerfd_jumped(struct waiter *w, unsigned key)
{
	waitq_wake_all(&CONTAINER_OF(w, struct timerfd, jump)->wq, KPOLLIN);
	return false;
}

static long timerfd_read(struct file *f, struct uio *u, uint64_t *pos)
{
	struct timerfd *t = f->priv;
	uint64_t ticks;
	int r = 0;

	if (u->resid < sizeof(ticks))
		return -EINVAL;
	if (t->ticks == 0 && !timerfd_canceled(t)) {
		if ((f->flags & KO_NONBLOCK) != 0)
			return -EAGAIN;
		r = WAIT_EVENT(&t->wq, t->ticks != 0 || timerfd_canceled(t));
		if (r != 0)
			return r;
	}
	if (timerfd_canceled(t)) {
		t->cancel_generation = clock_generation();
		t->ticks = 0;
		t->expired = false;
		return -ECANCELED;
	}
	timerfd_catch_up(t);
	ticks = t->ticks;
	t->ticks = 0;
	return uio_put(u, &ticks, sizeof(ticks)) == sizeof(ticks) ? (long)sizeof(ticks) :
								     -EFAULT;
}

static unsigned timerfd_poll(struct file *f, struct poll_table *pt)
{
	struct timerfd *t = f->priv;

	poll_wait(pt, &t->wq);
	return t->ticks != 0 || timerfd_canceled(t) ? KPOLLIN : 0;
}

static void timerfd_release(struct file *f)
{
	struct timerfd *t = f->priv;

	ktimer_cancel(&t->kt);
	waitq_del(&t->jump);
	kfree(t);
}

static uint64_t timerfd_left(struct timerfd *t)
{
	uint64_t now;

	timerfd_catch_up(t);
	if (!t->kt.armed)
		return 0;
	now = timerfd_now(t);
	return t->deadline > now ? t->deadline - now : 1;
}

static void timerfd_show(struct file *f, struct strbuf *sb)
{
	struct timerfd *t = f->priv;
	uint64_t left = timerfd_left(t);

	strbuf_printf(sb,
		      "clockid: %d\nticks: %lu\nsettime flags: 0%o\n"
		      "it_value: (%llu, %llu)\nit_interval: (%llu, %llu)\n",
		      t->clock, t->ticks, t->settime_flags, left / NSEC_PER_SEC,
		      left % NSEC_PER_SEC, t->interval / NSEC_PER_SEC,
		      t->interval % NSEC_PER_SEC);
}

static const struct file_ops timerfd_ops = {
	.read = timerfd_read,
	.lseek = anon_lseek,
	.poll = timerfd_poll,
	.release = timerfd_release,
	.show_fdinfo = timerfd_show,
};

SYSCALL(timerfd_create, int clock, int flags)
{
	struct timerfd *t;
	struct file *f;

	if ((flags & ~(TFD_CLOEXEC | TFD_NONBLOCK)) != 0)
		return -EINVAL;
	switch (clock) {
	case KCLOCK_REALTIME:
	case KCLOCK_MONOTONIC:
	case KCLOCK_BOOTTIME:
		break;
	case KCLOCK_REALTIME_ALARM:
	case KCLOCK_BOOTTIME_ALARM:
		if (!capable(CAP_WAKE_ALARM))
			return -EPERM;
		break;
	default:
		return -EINVAL;
	}
	t = kzalloc(sizeof(*t));
	if (t == NULL)
		return -ENOMEM;
	t->clock = clock;
	waitq_init(&t->wq);
	ktimer_init(&t->kt, timerfd_fn);
	t->jump.func = timerfd_jumped;
	f = anon_file_new("anon_inode:[timerfd]", &timerfd_ops, t,
			  (uint32_t)flags & KO_NONBLOCK);
	if (IS_ERR(f)) {
		kfree(t);
		return PTR_ERR(f);
	}
	return fd_install(f, 0, (flags & TFD_CLOEXEC) != 0);
}

static struct file *timerfd_get(int fd)
{
	struct file *f = fd_get(fd);

	if (f == NULL)
		return ERR_PTR(-EBADF);
	if (f->ops != &timerfd_ops) {
		file_put(f);
		return ERR_PTR(-EINVAL);
	}
	return f;
}

static void timerfd_set(struct timerfd *t, uint32_t flags, uint64_t interval, uint64_t value)
{
	bool absolute = (flags & TFD_TIMER_ABSTIME) != 0;
	bool real_clock = t->clock == KCLOCK_REALTIME || t->clock == KCLOCK_REALTIME_ALARM;

	ktimer_cancel(&t->kt);
	t->ticks = 0;
	t->expired = false;
	t->settime_flags = flags;
	t->interval = interval;
	t->real = absolute && real_clock;
	t->cancel_on_set = t->real && (flags & TFD_TIMER_CANCEL_ON_SET) != 0;
	t->cancel_generation = clock_generation();
	waitq_del(&t->jump);
	if (t->cancel_on_set)
		waitq_add(&clock_jump_wait, &t->jump);
	if (value == 0)
		return;
	t->deadline = absolute ? value : deadline_after(value);
	timerfd_arm(t);
}

SYSCALL(timerfd_settime, int fd, int flags, const struct kitimerspec __user *unew,
	struct kitimerspec __user *uold)
{
	uint64_t interval, value, old_interval, old_left;
	struct timerfd *t;
	struct file *f;
	int r;

	if ((flags & ~(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET)) != 0) {
		/* Linux copies first; a bad pointer wins over bad flags. */
		r = itimerspec_get_user(unew, &interval, &value);
		return r == -EFAULT ? r : -EINVAL;
	}
	r = itimerspec_get_user(unew, &interval, &value);
	if (r != 0)
		return r;
	f = timerfd_get(fd);
	if (IS_ERR(f))
		return PTR_ERR(f);
	t = f->priv;
	old_interval = t->interval;
	old_left = timerfd_left(t);
	timerfd_set(t, (uint32_t)flags, interval, value);
	r = 0;
	if (uold != NULL)
		r = itimerspec_put_user(uold, old_interval, old_left);
	file_put(f);
	return r;
}

SYSCALL(timerfd_gettime, int fd, struct kitimerspec __user *uold)
{
	struct file *f = timerfd_get(fd);
	struct timerfd *t;
	int r;

	if (IS_ERR(f))
		return PTR_ERR(f);
	t = f->priv;
	r = itimerspec_put_user(uold, t->interval, timerfd_left(t));
	file_put(f);
	return r;
}
