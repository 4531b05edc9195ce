/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's loop; see evloop.h. */
#include "pool/evloop.h"

#include <errno.h>
#include <stddef.h>

#include "base/fd.h"
#include "base/time.h"

int evloop_init(struct evloop *loop)
{
	*loop = (struct evloop){ .next_ns = UINT64_MAX };
	list_init(&loop->timers);
	list_init(&loop->deferred);
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	return loop->epoll < 0 ? -errno : 0;
}

void evloop_done(struct evloop *loop)
{
	loop->epoll = fd_close(loop->epoll);
}

void watch_init(struct watch *watch, void (*ready)(struct watch *, uint32_t))
{
	*watch = (struct watch){ .fd = -1, .ready = ready };
}

int watch_add(struct evloop *loop, struct watch *watch, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;
	watch->fd = fd;
	watch->events = events;
	return 0;
}

void watch_set(struct evloop *loop, struct watch *watch, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	if (watch->fd < 0 || watch->events == events)
		return;
	/* Changing one that is there takes no memory and does not fail. */
	epoll_ctl(loop->epoll, EPOLL_CTL_MOD, watch->fd, &event);
	watch->events = events;
}

void watch_remove(struct evloop *loop, struct watch *watch)
{
	if (watch->fd < 0)
		return;
	epoll_ctl(loop->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
	watch->fd = -1;
	for (int i = 0; i < loop->batch_len; i++) {
		if (loop->batch[i].data.ptr == watch)
			loop->batch[i].data.ptr = NULL;
	}
}

void timer_init(struct timer *timer, void (*due)(struct timer *))
{
	*timer = (struct timer){ .due = due };
	list_init(&timer->link);
}

void timer_set(struct evloop *loop, struct timer *timer, uint64_t at_ns)
{
	timer->at_ns = at_ns;
	if (at_ns == 0) {
		list_remove(&timer->link);
		return;
	}
	if (list_empty(&timer->link))
		list_add_tail(&loop->timers, &timer->link);
	if (at_ns < loop->next_ns)
		loop->next_ns = at_ns;
}

void deferred_init(struct deferred *deferred, void (*run)(struct deferred *))
{
	*deferred = (struct deferred){ .run = run };
	list_init(&deferred->link);
}

void evloop_defer(struct evloop *loop, struct deferred *deferred)
{
	if (list_empty(&deferred->link))
		list_add_tail(&loop->deferred, &deferred->link);
}

void deferred_cancel(struct deferred *deferred)
{
	list_remove(&deferred->link);
}

/* One at a time from the start, since a handler may set and cancel any of them. */
static void timers_run(struct evloop *loop)
{
	uint64_t now = time_monotonic_ns(), next = UINT64_MAX;
	struct timer *t;
	bool fired = true;

	while (fired) {
		fired = false;
		next = UINT64_MAX;
		list_for_each(t, &loop->timers, struct timer, link) {
			if (t->at_ns <= now) {
				timer_set(loop, t, 0);
				t->due(t);
				fired = true;
				break;
			}
			if (t->at_ns < next)
				next = t->at_ns;
		}
	}
	loop->next_ns = next;
}

static void deferred_run(struct evloop *loop)
{
	while (!list_empty(&loop->deferred)) {
		struct deferred *d = list_entry(loop->deferred.next, struct deferred, link);

		list_remove(&d->link);
		d->run(d);
	}
}

static int wait_ms(const struct evloop *loop)
{
	uint64_t now = time_monotonic_ns(), ms;

	if (loop->next_ns == UINT64_MAX)
		return -1;
	if (loop->next_ns <= now)
		return 0;
	ms = (loop->next_ns - now + 999999) / 1000000;
	return ms > 3600000 ? 3600000 : (int)ms;
}

int evloop_run(struct evloop *loop)
{
	while (!loop->stop) {
		int n = epoll_wait(loop->epoll, loop->batch, EVLOOP_BATCH, wait_ms(loop));

		if (n < 0 && errno != EINTR)
			return -errno;
		loop->batch_len = n < 0 ? 0 : n;
		for (int i = 0; i < loop->batch_len; i++) {
			struct watch *w = loop->batch[i].data.ptr;

			if (w)
				w->ready(w, loop->batch[i].events);
		}
		loop->batch_len = 0;
		if (loop->next_ns <= time_monotonic_ns())
			timers_run(loop);
		deferred_run(loop);
	}
	return 0;
}
