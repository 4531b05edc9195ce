/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate snapshot NAME -o FILE`. The daemon answers when the file is whole; meanwhile, on a
 * terminal, a thread with a connection of its own asks it how far it is.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/time.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/progress.h"
#include "tools/casemate/words.h"

#define LOOK_NS		(NS_PER_SEC / 5)

struct watch {
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	const char *socket, *vm;
	bool running, over;
};

/* Returns whether it is over. */
static bool wait_a_moment(struct watch *w)
{
	uint64_t until = time_ns(CLOCK_REALTIME) + LOOK_NS;
	const struct timespec at = { .tv_sec = (time_t)(until / NS_PER_SEC),
				     .tv_nsec = (long)(until % NS_PER_SEC) };
	bool over;

	pthread_mutex_lock(&w->mutex);
	if (!w->over)
		pthread_cond_timedwait(&w->cond, &w->mutex, &at);
	over = w->over;
	pthread_mutex_unlock(&w->mutex);
	return over;
}

static void *watch(void *arg)
{
	struct watch *w = arg;
	struct casemate *c;
	char what[96];

	snprintf(what, sizeof(what), "saving %.60s", w->vm);
	if (casemate_open(&c, w->socket) == 0) {
		while (!wait_a_moment(w) && casemate_call(c, "info", w->vm, NULL) == 0) {
			const char *saving = casemate_value(c, "saving");

			if (saving)
				progress_bytes(what, strtoull(saving, NULL, 10), 0);
		}
	}
	casemate_close(c);
	return NULL;
}

static void watch_begin(struct watch *w)
{
	pthread_mutex_init(&w->mutex, NULL);
	pthread_cond_init(&w->cond, NULL);
	if (progress_wanted())
		w->running = pthread_create(&w->thread, NULL, watch, w) == 0;
}

static void watch_end(struct watch *w)
{
	if (!w->running)
		return;
	pthread_mutex_lock(&w->mutex);
	w->over = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->mutex);
	pthread_join(w->thread, NULL);
	progress_show(NULL);
}

static bool has_file(const struct words *w)
{
	for (unsigned int i = 0; i < w->count; i++) {
		if (!strncmp(w->words[i], "file=", 5))
			return true;
	}
	return false;
}

int cmd_vm_snapshot(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "-o", "file=", 'p', "FILE", "where to save it" },
		{ "--track", "track=", 'y', NULL, "note what changes from here on" },
		{ "--incremental", "incremental=", 'y', NULL, "only what changed since" },
		{ "--quiet", "", 'y', NULL, "no progress on a terminal" },
		OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct watch watcher = { .running = false };
	struct casemate *c;
	int status, answer;

	if (!words_begin(&w, rules, argc, argv, 1, 1, false, "snapshot [options] NAME -o FILE", &c,
			 &status))
		return status;
	if (!has_file(&w))
		return session_close(c, casemate_fail("no -o FILE to save it to; see casemate "
						    "help snapshot"));
	if (words_own(&w, "--quiet"))
		progress_quiet();
	watcher.socket = words_own(&w, "--socket");
	watcher.vm = w.rest[0];
	watch_begin(&watcher);
	answer = words_call(c, &w, "snapshot", w.rest[0], NULL);
	watch_end(&watcher);
	return session_close(c, answer ? session_fail(c) : 0);
}
