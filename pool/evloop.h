/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's one loop: epoll for descriptors, a list for timers. Owned by one thread.
 *
 * A handler may remove any watch, its own too: what epoll had already reported for a removed
 * one is dropped. Timers are few thousands at most and rarely fire, so they are only looked
 * through when the earliest may be due. evloop_defer() lets work wait until the handlers of
 * this turn are through, so that objects are not freed under their callers.
 */
#ifndef CASEMATE_POOL_EVLOOP_H
#define CASEMATE_POOL_EVLOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/list.h"

#define EVLOOP_BATCH	64

struct evloop {
	int epoll;
	struct list timers;
	uint64_t next_ns;		/* no timer is due before; UINT64_MAX: none is set */
	struct epoll_event batch[EVLOOP_BATCH];
	int batch_len;
	struct list deferred;
	bool stop;
};

struct watch {
	int fd;				/* not owned; -1: not watched */
	uint32_t events;
	void (*ready)(struct watch *watch, uint32_t events);
};

struct timer {
	struct list link;
	uint64_t at_ns;			/* 0: not set */
	void (*due)(struct timer *timer);
};

/* Work for the end of the turn; deferring twice is once. */
struct deferred {
	struct list link;
	void (*run)(struct deferred *deferred);
};

int evloop_init(struct evloop *loop);
void evloop_done(struct evloop *loop);
/* Serves until loop->stop. Returns 0 or -errno. */
int evloop_run(struct evloop *loop);

void watch_init(struct watch *watch, void (*ready)(struct watch *, uint32_t));
/* Returns 0 or -errno. */
int watch_add(struct evloop *loop, struct watch *watch, int fd, uint32_t events);
void watch_set(struct evloop *loop, struct watch *watch, uint32_t events);
void watch_remove(struct evloop *loop, struct watch *watch);

void timer_init(struct timer *timer, void (*due)(struct timer *));
/* Sets or moves it; at_ns is monotonic, 0 cancels. */
void timer_set(struct evloop *loop, struct timer *timer, uint64_t at_ns);

void deferred_init(struct deferred *deferred, void (*run)(struct deferred *));
void evloop_defer(struct evloop *loop, struct deferred *deferred);
void deferred_cancel(struct deferred *deferred);

#endif
