/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pending signals and handler tables as objects: queue entries and their limits, taking a
 * signal off a queue, sharing and copying handlers. The rules of sending and delivery are in
 * signal.c.
 */
#include <linux/resource.h>

#include "guest-kernel/core/signal_internal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/mm/page.h"

/* A bound beside RLIMIT_SIGPENDING, which root may lift. */
#define SIGQUEUE_MAX	65536u

/* ---- entries ---- */

struct sigqueue *sigqueue_new(struct process *p, int sig, const struct ksiginfo *info)
{
	/* Signals of the kernel and plain kill(2) of the standard ones are not limited. */
	bool free_of_limit = sig < KSIGRTMIN && (info == NULL || info->code >= 0);
	struct sigqueue *q;

	if (p->sigqueued >= SIGQUEUE_MAX ||
	    (!free_of_limit && p->sigqueued >= p->rlim[RLIMIT_SIGPENDING].cur))
		return NULL;
	q = kzalloc(sizeof(*q));
	if (q == NULL)
		return NULL;
	q->charge = &p->sigqueued;
	p->sigqueued++;
	return q;
}

void sigqueue_add(struct sigpending *pending, struct sigqueue *q)
{
	TAILQ_INSERT_TAIL(&pending->queue, q, link);
	q->queued = true;
}

/* ---- taking ---- */

void sigpending_init(struct sigpending *p)
{
	p->set = 0;
	TAILQ_INIT(&p->queue);
}

void sigqueue_unlink(struct sigpending *p, struct sigqueue *q)
{
	TAILQ_REMOVE(&p->queue, q, link);
	q->queued = false;
	if (q->charge != NULL) {
		(*q->charge)--;
		q->charge = NULL;
	}
}

static bool sigpending_discard(struct sigpending *p, uint64_t mask)
{
	struct sigqueue *q, *next;

	if ((p->set & mask) == 0)
		return false;
	p->set &= ~mask;
	for (q = TAILQ_FIRST(&p->queue); q != NULL; q = next) {
		next = TAILQ_NEXT(q, link);
		if ((SIG_BIT(q->info.signo) & mask) == 0)
			continue;
		sigqueue_unlink(p, q);
		if (q->timer == NULL)
			kfree(q);
		else
			posix_timer_dequeued(q, NULL);
	}
	return true;
}

void sigpending_flush(struct sigpending *p)
{
	sigpending_discard(p, ~0ULL);
}

void signal_discard(struct process *p, uint64_t mask)
{
	struct task *t;

	if (sigpending_discard(&p->pending, mask) && (mask & SIG_BIT(KSIGALRM)) != 0)
		itimer_real_dequeued(p);
	TAILQ_FOREACH(t, &p->threads, thread_link)
		sigpending_discard(&t->pending, mask);
}

static int sigpending_next(const struct sigpending *p, uint64_t blocked)
{
	uint64_t ready = p->set & ~blocked;

	if (ready == 0)
		return 0;
	if ((ready & SIG_SYNC_MASK) != 0)
		ready &= SIG_SYNC_MASK;
	return __builtin_ctzll(ready) + 1;
}

static int sigpending_take(struct sigpending *p, uint64_t blocked, struct ksiginfo *ret)
{
	int sig = sigpending_next(p, blocked);
	struct sigqueue *q, *found = NULL;
	bool more = false;

	if (sig == 0)
		return 0;
	TAILQ_FOREACH(q, &p->queue, link) {
		if (q->info.signo != sig)
			continue;
		if (found != NULL) {
			more = true;
			break;
		}
		found = q;
	}
	if (!more)
		p->set &= ~SIG_BIT(sig);
	if (found == NULL) {		/* its entry could not be allocated */
		*ret = (struct ksiginfo){ .signo = sig, .code = KSI_USER };
		return sig;
	}
	*ret = found->info;
	sigqueue_unlink(p, found);
	if (found->timer == NULL)
		kfree(found);
	else
		posix_timer_dequeued(found, ret);
	return sig;
}

int signal_dequeue(uint64_t mask, struct ksiginfo *ret)
{
	struct process *p = current->proc;
	int sig = sigpending_take(&current->pending, mask, ret);

	if (sig == 0) {
		sig = sigpending_take(&p->pending, mask, ret);
		if (sig == KSIGALRM)
			itimer_real_dequeued(p);
	}
	/* Nothing taken: sig_check stays, a caller may be about to return -ERESTARTSYS. */
	if (sig != 0)
		signal_recalc(current);
	return sig;
}

/* ---- handlers ---- */

struct sighand *sighand_new(void)
{
	struct sighand *s = kzalloc(sizeof(*s));

	if (s == NULL)
		return NULL;
	s->refs = 1;
	return s;
}

struct sighand *sighand_copy(struct sighand *s)
{
	struct sighand *copy = sighand_new();

	if (copy != NULL)
		memcpy(copy->action, s->action, sizeof(copy->action));
	return copy;
}

void sighand_get(struct sighand *s)
{
	s->refs++;
}

void sighand_put(struct sighand *s)
{
	if (s != NULL && --s->refs == 0)
		kfree(s);
}

void sighand_reset_on_exec(struct sighand *s)
{
	for (unsigned i = 0; i < ARRAY_SIZE(s->action); i++) {
		struct ksigaction *sa = &s->action[i];
		uint64_t handler = sa->handler == KSIG_IGN ? KSIG_IGN : KSIG_DFL;

		*sa = (struct ksigaction){ .handler = handler };
	}
}
