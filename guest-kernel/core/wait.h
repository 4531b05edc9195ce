/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping and waking. A waitq is a list of waiters; a waiter has a function that is called at
 * each wake-up: for a sleeping task it makes the task runnable, for epoll it queues the item.
 *
 * The pattern is WAIT_EVENT(): the condition is tested again after each wake-up, so wake-ups
 * may be spurious. Nothing can happen between the test and the sleep: one vCPU, no preemption.
 */
#ifndef CORE_WAIT_H
#define CORE_WAIT_H

#include <sys/queue.h>
#include "guest-kernel/lib/kernel.h"

struct task;
struct waiter;

TAILQ_HEAD(waiter_list, waiter);
struct waitq {
	struct waiter_list list;
};
struct waiter {
	TAILQ_ENTRY(waiter) link;
	struct waitq *wq;	/* NULL when not queued */
	/* key: EPOLL* bits of what happened, 0 for unspecified. Returns true if it used up an
	 * exclusive wake-up. May remove itself. */
	bool (*func)(struct waiter *w, unsigned key);
	struct task *task;
	bool exclusive;		/* queued at the tail; woken one at a time */
};

void waitq_init(struct waitq *wq);
void waitq_add(struct waitq *wq, struct waiter *w);
void waitq_del(struct waiter *w);			/* harmless when not queued */
/* Wakes all non-exclusive waiters and up to n exclusive ones. */
void waitq_wake_n(struct waitq *wq, unsigned key, int n);
static inline void waitq_wake(struct waitq *wq, unsigned key)
{
	waitq_wake_n(wq, key, 1);
}
static inline void waitq_wake_all(struct waitq *wq, unsigned key)
{
	waitq_wake_n(wq, key, 0x7fffffff);
}
static inline bool waitq_empty(const struct waitq *wq)
{
	return TAILQ_EMPTY(&wq->list);
}
void waiter_init(struct waiter *w);			/* wakes current */

#define NO_DEADLINE	(~0ULL)
/* Sleeps once until woken, a signal (unless uninterruptible), or the monotonic deadline.
 * 0, -ERESTARTSYS, -ETIMEDOUT. sched.c. */
int sleep_once(uint64_t deadline_ns, bool interruptible);

/* 0 when cond is true, else -ERESTARTSYS or -ETIMEDOUT. */
#define WAIT_EVENT_FULL(wqp, cond, deadline, intr, excl) \
	({ \
		struct waiter _w; \
		int _r = 0; \
		waiter_init(&_w); \
		_w.exclusive = (excl); \
		waitq_add((wqp), &_w); \
		while (!(cond)) { \
			_r = sleep_once((deadline), (intr)); \
			if (_r != 0) { \
				if (cond) \
					_r = 0; \
				break; \
			} \
			if (_w.wq == NULL) /* an exclusive wake-up took us off */ \
				waitq_add((wqp), &_w); \
		} \
		waitq_del(&_w); \
		_r; \
	})
#define WAIT_EVENT(wqp, cond) WAIT_EVENT_FULL(wqp, cond, NO_DEADLINE, true, false)
#define WAIT_EVENT_DEADLINE(wqp, cond, ns) WAIT_EVENT_FULL(wqp, cond, ns, true, false)
#define WAIT_EVENT_UNINTR(wqp, cond) \
	((void)WAIT_EVENT_FULL(wqp, cond, NO_DEADLINE, false, false))

/* Sleeping lock, not recursive; for state that must hold across a sleep. */
struct mutex {
	struct task *owner;
	struct waitq wq;
};
void mutex_init(struct mutex *m);
void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);

/* poll(2), select(2), epoll: file_ops.poll calls poll_wait for each queue that a change of
 * its answer will wake, then returns the EPOLL* bits that hold now. pt NULL: only the answer. */
struct poll_table {
	void (*queue)(struct poll_table *pt, struct waitq *wq);
};
static inline void poll_wait(struct poll_table *pt, struct waitq *wq)
{
	if (pt != NULL)
		pt->queue(pt, wq);
}

#endif
