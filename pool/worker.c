/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs in threads; see worker.h. */
#include "pool/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"

#define THREADS_MAX	16u
#define TICK_NS		NS_PER_SEC
#define END_NS		NS_PER_SEC

/* ---- In the job's thread ---- */

static void *thread_main(void *arg)
{
	struct job *job = arg;
	int out = job->workers->out;

	/* That of this thread and those that it makes. */
	if (job->workers->nice)
		setpriority(PRIO_PROCESS, 0, job->workers->nice);
	job->run(job);
	/* There is room for all there are, and a pointer goes whole. From here on it is the
	 * loop's. */
	while (write(out, &job, sizeof(job)) < 0 && errno == EINTR)
		;
	return NULL;
}

bool job_beat(struct job *job)
{
	atomic_fetch_add(&job->beats, 1);
	return !atomic_load(&job->cancelled);
}

/* ---- In the loop's ---- */

static int thread_start(struct job *job)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r = pthread_attr_init(&attr);

	if (r != 0)
		return -r;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&thread, &attr, thread_main, job);
	pthread_attr_destroy(&attr);
	return -r;
}

static int job_start(struct workers *w, struct job *job)
{
	int r;

	job->seen = 0;
	job->seen_ns = time_monotonic_ns();
	job->running = true;
	list_remove(&job->link);
	list_add_tail(&w->running, &job->link);
	r = thread_start(job);
	if (r < 0) {
		list_remove(&job->link);
		list_add_tail(w->waiting.next, &job->link);	/* the first again */
		job->running = false;
		return r;
	}
	w->waiting_count--;
	w->wanted_count++;
	w->thread_count++;
	if (!w->timer.at_ns)
		timer_set(w->loop, &w->timer, job->seen_ns + TICK_NS);
	return 0;
}

static bool has_place(const struct workers *w)
{
	return w->wanted_count < w->limit && w->thread_count < THREADS_MAX;
}

static void jobs_start(struct workers *w)
{
	while (has_place(w) && !list_empty(&w->waiting)) {
		struct job *job = list_entry(w->waiting.next, struct job, link);

		/* No thread is to be had: perhaps when one has ended, or later. */
		if (job_start(w, job) < 0) {
			timer_set(w->loop, &w->timer, time_monotonic_ns() + TICK_NS);
			return;
		}
	}
}

static void job_finish(struct job *job)
{
	struct workers *w = job->workers;

	list_remove(&job->link);
	job->running = false;
	w->thread_count--;
	if (!atomic_load(&job->cancelled))
		w->wanted_count--;
	job->done(job);
}

static void on_pipe(struct watch *watch, uint32_t events)
{
	struct workers *w = list_entry(watch, struct workers, watch);
	struct job *job;

	while (read(w->in, &job, sizeof(job)) == sizeof(job))
		job_finish(job);
	jobs_start(w);
}

void job_stuck_set(struct err *err, const char *path)
{
	err_set(err, ETIMEDOUT, "the file system of %s does not answer", path);
}

static void on_tick(struct timer *timer)
{
	struct workers *w = list_entry(timer, struct workers, timer);
	uint64_t now = time_monotonic_ns();
	struct job *job;

	list_for_each(job, &w->running, struct job, link) {
		unsigned int beats = atomic_load(&job->beats);

		if (beats != job->seen) {
			job->seen = beats;
			job->seen_ns = now;
		} else if (now > job->seen_ns + WORKER_STUCK_NS &&
			   !atomic_load(&job->cancelled)) {
			job_cancel(job);
			job->stuck(job);
		}
	}
	jobs_start(w);
	if (!list_empty(&w->running) || !list_empty(&w->waiting))
		timer_set(w->loop, timer, now + TICK_NS);
}

void job_init(struct job *job, void (*run)(struct job *), void (*done)(struct job *),
	      void (*stuck)(struct job *))
{
	*job = (struct job){ .run = run, .done = done, .stuck = stuck };
	list_init(&job->link);
}

int job_begin(struct workers *w, struct job *job, struct err *err)
{
	if (w->waiting_count >= w->queue && !has_place(w))
		return err_set(err, EBUSY, "%u files wait to be opened and checked already",
			       w->queue);
	job->workers = w;
	atomic_store(&job->cancelled, false);
	atomic_store(&job->beats, 0);
	list_add_tail(&w->waiting, &job->link);
	w->waiting_count++;
	jobs_start(w);
	if (job->running || w->thread_count > 0)
		return 0;
	/* None that ends would make room. */
	list_remove(&job->link);
	w->waiting_count--;
	return err_set(err, EAGAIN, "no thread is to be had to open files; raise the limit on "
		       "processes (ulimit -u, TasksMax=)");
}

bool job_cancel(struct job *job)
{
	struct workers *w = job->workers;

	if (!job->running) {
		list_remove(&job->link);
		w->waiting_count--;
		return true;
	}
	if (!atomic_exchange(&job->cancelled, true))
		w->wanted_count--;
	jobs_start(w);
	return false;
}

int workers_init(struct workers *w, struct evloop *loop, unsigned int limit,
		 unsigned int queue, int nice, struct err *err)
{
	int ends[2], r;

	*w = (struct workers){ .loop = loop, .limit = limit, .queue = queue,
			       .nice = nice, .in = -1, .out = -1 };
	list_init(&w->waiting);
	list_init(&w->running);
	watch_init(&w->watch, on_pipe);
	timer_init(&w->timer, on_tick);
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_set_errno(err, errno, "cannot make a pipe for the daemon's threads");
	w->in = ends[0];
	w->out = ends[1];
	fcntl(w->in, F_SETFL, O_NONBLOCK);
	r = watch_add(loop, &w->watch, w->in, EPOLLIN);
	if (r == 0)
		return 0;
	workers_done(w);
	return err_set_errno(err, r, "cannot watch the daemon's threads");
}

void workers_done(struct workers *w)
{
	uint64_t end = time_monotonic_ns() + END_NS, now;
	struct pollfd p = { .fd = w->in, .events = POLLIN };
	struct job *job;

	w->limit = 0;
	list_for_each(job, &w->running, struct job, link)
		job_cancel(job);
	while (w->thread_count > 0 && (now = time_monotonic_ns()) < end) {
		poll(&p, 1, (int)((end - now) / 1000000) + 1);
		on_pipe(&w->watch, 0);
	}
	timer_set(w->loop, &w->timer, 0);
	watch_remove(w->loop, &w->watch);
	/* A thread that is still there may write to it: the process is about to end. */
	if (w->thread_count > 0)
		return;
	w->in = fd_close(w->in);
	w->out = fd_close(w->out);
}
