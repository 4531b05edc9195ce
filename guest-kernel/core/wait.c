/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wait queues and the sleeping mutex.
 *
 * Non-exclusive waiters are kept before the exclusive ones, so that a wake-up walks all of the
 * former and then as many of the latter as it may. An exclusive waiter of the usual kind is
 * taken off its queue by the wake-up that it used up, so that the next one goes to the next
 * waiter; a task that is awake already (a signal was faster) does not use one up, or a wake-up
 * would be lost when it gives up.
 */
#include "guest-kernel/core/wait.h"

#include "guest-kernel/core/task.h"

void waitq_init(struct waitq *wq)
{
	TAILQ_INIT(&wq->list);
}

void waitq_add(struct waitq *wq, struct waiter *w)
{
	ASSERT(w->wq == NULL);
	w->wq = wq;
	if (w->exclusive)
		TAILQ_INSERT_TAIL(&wq->list, w, link);
	else
		TAILQ_INSERT_HEAD(&wq->list, w, link);
}

void waitq_del(struct waiter *w)
{
	if (w->wq == NULL)
		return;
	TAILQ_REMOVE(&w->wq->list, w, link);
	w->wq = NULL;
}

/* A waiter's function may remove its own waiter, but no other one of this queue. */
void waitq_wake_n(struct waitq *wq, unsigned key, int n)
{
	struct waiter *w, *next;

	for (w = TAILQ_FIRST(&wq->list); w != NULL; w = next) {
		bool exclusive = w->exclusive;

		next = TAILQ_NEXT(w, link);
		if (exclusive && n <= 0)
			break;
		if (w->func(w, key) && exclusive)
			n--;
	}
}

static bool wake_task(struct waiter *w, unsigned key)
{
	struct task *t = w->task;

	if (t->state != TASK_SLEEPING && t->state != TASK_UNINTERRUPTIBLE)
		return false;
	if (w->exclusive)
		waitq_del(w);
	sched_wake(t);
	return true;
}

void waiter_init(struct waiter *w)
{
	w->wq = NULL;
	w->func = wake_task;
	w->task = current;
	w->exclusive = false;
}

void mutex_init(struct mutex *m)
{
	m->owner = NULL;
	waitq_init(&m->wq);
}

void mutex_lock(struct mutex *m)
{
	ASSERT(m->owner == NULL || m->owner != current);
	if (m->owner != NULL)
		(void)WAIT_EVENT_FULL(&m->wq, m->owner == NULL, NO_DEADLINE, false, true);
	m->owner = current;
}

void mutex_unlock(struct mutex *m)
{
	ASSERT(m->owner == current);
	m->owner = NULL;
	waitq_wake_n(&m->wq, 0, 1);
}
