/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that may take long, off the loop's thread: each job has a thread of its own while it
 * runs, and comes back to the loop when it is through.
 *
 * While a job runs it is its thread's, but for `cancelled` and `beats`, which are both's. Going
 * there and back (by pthread_create and a pipe) hands over all the rest, so that there are no
 * locks. What others must see at once (tables, lists, clients) is only touched in done().
 *
 * At most `limit` jobs run that somebody wants, and `queue` more wait. One that was cancelled
 * counts no more: it ends at its next beat, unless a file system keeps it; so that dead file
 * systems do not take all places, up to THREADS_MAX threads may be there in all.
 */
#ifndef CASEMATE_POOL_WORKER_H
#define CASEMATE_POOL_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "pool/evloop.h"

#define WORKER_STUCK_NS	(60 * NS_PER_SEC)	/* without a beat */
#define WORKERS_RETRY_NS	NS_PER_SEC	/* a guess for who was refused: -EBUSY */

struct job {
	struct list link;		/* of those that wait, or run */
	struct workers *workers;
	void (*run)(struct job *job);	/* in the job's thread */
	void (*done)(struct job *job);	/* in the loop's; the job may be freed there */
	void (*stuck)(struct job *job);	/* in the loop's: no beat for long; it is cancelled.
					 * done() comes later, or never */
	bool running;
	atomic_bool cancelled;
	atomic_uint beats;
	unsigned int seen;		/* of the beats, at that time */
	uint64_t seen_ns;
};

struct workers {
	struct evloop *loop;
	unsigned int limit, queue;
	int nice;			/* of the threads: who waits for a VM goes first */
	int in, out;			/* the pipe: pointers to jobs that are through */
	struct watch watch;
	struct timer timer;
	struct list waiting, running;
	unsigned int waiting_count, wanted_count, thread_count;
};

int workers_init(struct workers *workers, struct evloop *loop, unsigned int limit,
		 unsigned int queue, int nice, struct err *err);
/* Cancels all, and waits a moment for those that run. Their done() is called; that of one
 * which does not end, never. */
void workers_done(struct workers *workers);

void job_init(struct job *job, void (*run)(struct job *), void (*done)(struct job *),
	      void (*stuck)(struct job *));
/* Returns 0: done() will be called, later; or -EBUSY, or -EAGAIN (no thread), with err set. */
int job_begin(struct workers *workers, struct job *job, struct err *err);
/* Asks a job that was begun to end. Returns whether it is the caller's again at once; else
 * done() comes, later. */
bool job_cancel(struct job *job);

/* For stuck(): what to tell who wanted something of this file. */
void job_stuck_set(struct err *err, const char *path);

/* In its thread, now and then: whether it is still wanted. */
bool job_beat(struct job *job);

#endif
