/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See parallel.h. Chunks are handed out in order by a counter. One that was handed out is
 * finished even when another failed meanwhile; so the lowest failure is the same each time.
 */
#include "snapshot/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct job {
	parallel_work *work;
	uint64_t count;
	atomic_uint_fast64_t next;
	atomic_bool failed;
};

struct thread {
	struct job *job;
	void *worker;
	uint64_t chunk;			/* the one that failed */
	struct err err;
};

static void *thread_run(void *arg)
{
	struct thread *t = arg;
	struct job *job = t->job;

	while (!atomic_load(&job->failed)) {
		t->chunk = atomic_fetch_add(&job->next, 1);
		if (t->chunk >= job->count)
			break;
		if (job->work(t->worker, t->chunk, &t->err) < 0) {
			atomic_store(&job->failed, true);
			break;
		}
	}
	return NULL;
}

int parallel_chunks(uint64_t count, parallel_work *work, void *workers, size_t size,
		    struct err *err)
{
	struct job job = { .work = work, .count = count };
	struct thread threads[PARALLEL_WORKERS];
	pthread_t ids[PARALLEL_WORKERS];
	const struct thread *first = NULL;
	unsigned int started = 1;

	for (unsigned int i = 0; i < PARALLEL_WORKERS; i++)
		threads[i] = (struct thread){ .job = &job,
					      .worker = (char *)workers + i * size };
	while (started < PARALLEL_WORKERS && started < count &&
	       pthread_create(&ids[started], NULL, thread_run, &threads[started]) == 0)
		started++;
	thread_run(&threads[0]);
	for (unsigned int i = 1; i < started; i++)
		pthread_join(ids[i], NULL);
	for (unsigned int i = 0; i < started; i++) {
		if (threads[i].err.code && (!first || threads[i].chunk < first->chunk))
			first = &threads[i];
	}
	return first ? err_set(err, first->err.code, "%s", first->err.text) : 0;
}
