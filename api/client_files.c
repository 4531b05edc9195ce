/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcasemate: files in VMs. A job is one command of the guest's initd under way: its stdout
 * goes to `take`, its stderr becomes the message of a refusal, its exit code an errno. When
 * something fails on our side the command is killed, and its end awaited all the same, so that
 * the connection stays in step.
 */
#include "api/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define STDIN_FIRST	262144u		/* bytes that may be sent at once */
#define GET_WINDOW	"window=1048576"
#define GET_STEP	262144u		/* bytes of it that are granted again at a time */
#define OPTIONS_MAX	16u

struct job {
	struct casemate *c;
	unsigned long long exec;
	int (*take)(struct job *job, const void *data, size_t len);	/* 0 or -errno */
	int fd;
	struct line_reader lines;
	uint64_t credit;		/* bytes of stdin that may be sent */
	size_t owed, step;		/* of stdout: taken and not granted again; granted at */
	int error;			/* ours, -errno; the command was killed for it */
	bool ended;
	struct casemate_event end;	/* but its text */
	char text[512];			/* what it said on stderr, or the end's text */
	size_t text_len;
};

static int refuse(struct casemate *c, const char *code, const char *text)
{
	snprintf(c->code, sizeof(c->code), "%s", code);
	snprintf(c->message, sizeof(c->message), "%s", text);
	c->hint[0] = '\0';
	return CASEMATE_REFUSED;
}

/* The first line that the guest said, without what could steer a terminal. */
static void text_clean(char *text)
{
	text[strcspn(text, "\n")] = '\0';
	for (; *text; text++) {
		if ((unsigned char)*text < 32 || *text == 127)
			*text = '?';
	}
}

static int guest_refused(struct casemate *c, int error, const char *text)
{
	const char *name = strerrorname_np(error);

	c->error = error;
	return refuse(c, name ? name : "FAILED", text[0] ? text : strerror(error));
}

/* What the end of the command means to the caller. */
static int job_result(struct job *job)
{
	const struct casemate_event *e = &job->end;
	struct casemate *c = job->c;
	char text[600];

	if (job->error) {
		snprintf(text, sizeof(text), "%s: %s", job->error == -E2BIG ?
			 "the guest says more than is taken from it" :
			 job->error == -EPROTO ? "the guest does not speak the protocol" :
			 "cannot read or write the file here", strerror(-job->error));
		return refuse(c, "LOCAL", text);
	}
	if (e->timed_out)
		return refuse(c, "TIMEOUT", "its time was over");
	if (e->end == CASEMATE_LOST)
		return refuse(c, "LOST", job->text);
	if (e->end == CASEMATE_FAILED) {
		snprintf(text, sizeof(text), "the guest cannot begin (%s)%s", job->text,
			 strcmp(job->text, "exec") ? "" : ": its initd is of an older release");
		return guest_refused(c, e->error, text);
	}
	if (e->signal) {
		snprintf(text, sizeof(text), "it was ended by signal %d", e->signal);
		return refuse(c, "KILLED", text);
	}
	return e->code ? guest_refused(c, e->code, job->text) : 0;
}

static void job_fail(struct job *job, int error)
{
	char id[24];

	if (job->error)
		return;
	job->error = error;
	snprintf(id, sizeof(id), "%llu", job->exec);
	client_say(job->c, (const char *const[]){ "signal", id, "KILL" }, 3, NULL, 0);
}

static void job_end(struct job *job, const struct casemate_event *e)
{
	job->ended = true;
	job->end = *e;
	if (e->end != CASEMATE_EXIT)
		snprintf(job->text, sizeof(job->text), "%s", e->text);
	text_clean(job->text);
}

/* Takes one event. Returns 1, 0 when the time is over, or -errno. */
static int job_step(struct job *job, int timeout_ms)
{
	struct casemate_event e;
	size_t n;
	int r = client_next_of(job->c, job->exec, &e, timeout_ms);

	if (r <= 0)
		return r;
	switch (e.kind) {
	case CASEMATE_STDOUT:
		r = job->error ? 0 : job->take(job, e.data, e.len);
		if (r < 0)
			job_fail(job, r);
		return 1;
	case CASEMATE_STDERR:
		n = sizeof(job->text) - 1 - job->text_len;
		n = e.len < n ? e.len : n;
		memcpy(job->text + job->text_len, e.data, n);
		job->text_len += n;
		return 1;
	case CASEMATE_STDIN_CREDIT:
		job->credit += e.len;
		return 1;
	case CASEMATE_END:
		job_end(job, &e);
		return 1;
	default:
		return 1;
	}
}

static int job_begin(struct job *job, const char *const *words)
{
	int r = casemate_call_words(job->c, words, client_words_count(words));
	const char *id = r == 0 ? casemate_value(job->c, "exec") : NULL;

	if (r)
		return r;
	job->exec = id ? strtoull(id, NULL, 10) : 0;
	return job->exec ? 0 : client_broken(job->c, 0, "casemated does not speak the protocol");
}

static int job_finish(struct job *job)
{
	int r = 1;

	while (r >= 0 && !job->ended)
		r = job_step(job, -1);
	return r < 0 ? r : job_result(job);
}

/* The next whole line of a guest becomes an item. Returns 1, 0 when there is none, -errno. */
static int line_take(struct casemate *c, struct line_reader *lines)
{
	const struct line *line;
	struct kept *k;
	int r = line_reader_next(lines, &line);

	if (r <= 0)
		return r;
	if (line->why || line->has_chunk || line->count == 0)
		return -EPROTO;
	k = client_line_keep(line, "*");
	r = k ? client_item_add(c, k) : -ENOMEM;
	if (r < 0)
		free(k);
	return r < 0 ? r : 1;
}

static int items_take(struct job *job, const void *data, size_t len)
{
	int r = line_reader_give(&job->lines, data, len);

	while (r == 0 && (r = line_take(job->c, &job->lines)) > 0)
		r = 0;
	return r;
}

API int casemate_error(const struct casemate *c)
{
	return c->error;
}

API int casemate_file(struct casemate *c, const char *const *words)
{
	struct job job = { .c = c, .take = items_take };
	int r;

	line_reader_init(&job.lines);
	r = job_begin(&job, words);
	if (r == 0)
		r = job_finish(&job);
	if (r == 0 && line_reader_partial(&job.lines))
		r = refuse(c, "LOCAL", "the guest does not speak the protocol");
	line_reader_done(&job.lines);
	return r;
}

/* A verb with a path and options; `more` unless an option of its name is there. */
static int words_make(const char **words, const char *verb, const char *vm, const char *path,
		      const char *const *options, const char *more)
{
	size_t n = 3, name = more ? strcspn(more, "=") + 1 : 0;

	words[0] = verb;
	words[1] = vm;
	words[2] = path;
	for (; options && *options; options++) {
		if (n == 3 + OPTIONS_MAX)
			return -E2BIG;
		if (more && !strncmp(*options, more, name))
			more = NULL;
		words[n++] = *options;
	}
	if (more)
		words[n++] = more;
	words[n] = NULL;
	return 0;
}

/* ---- put ---- */

static int nothing_take(struct job *job, const void *data, size_t len)
{
	return 0;
}

/* Sends the next bytes. Returns whether there may be more. */
static bool put_some(struct job *job, int *ret)
{
	static _Thread_local uint8_t bytes[LINE_CHUNK_MAX];
	size_t want = job->credit < sizeof(bytes) ? (size_t)job->credit : sizeof(bytes);
	ssize_t n;

	do {
		n = read(job->fd, bytes, want);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		job_fail(job, -errno);
	if (n <= 0)
		return false;
	job->credit -= (uint64_t)n;
	*ret = casemate_stdin(job->c, job->exec, bytes, (size_t)n);
	return *ret == 0;
}

API int casemate_put(struct casemate *c, const char *vm, const char *path,
		     const char *const *options, int fd)
{
	struct job job = { .c = c, .take = nothing_take, .fd = fd, .credit = STDIN_FIRST };
	const char *words[OPTIONS_MAX + 5];
	char id[24];
	bool more = true;
	int r = words_make(words, "put", vm, path, options, NULL);

	if (r == 0)
		r = job_begin(&job, words);
	if (r)
		return r;
	while (more && !job.ended) {
		r = job_step(&job, job.credit > 0 ? 0 : -1);
		if (r == 0)
			more = put_some(&job, &r);
		if (r < 0)
			return r;
	}
	snprintf(id, sizeof(id), "%llu", job.exec);
	/* Only what was read to its end may become a file. */
	if (!job.ended && !job.error)
		r = client_say(c, (const char *const[]){ "close-stdin", id }, 2, NULL, 0);
	return r < 0 ? r : job_finish(&job);
}

/* ---- get ---- */

static int fd_take_bytes(struct job *job, const void *data, size_t len)
{
	int r = fd_write_all(job->fd, data, len);

	job->owed += len;
	if (r == 0 && job->owed >= job->step) {
		casemate_credit(job->c, job->exec, job->owed);
		job->owed = 0;
	}
	return r;
}

API int casemate_get(struct casemate *c, const char *vm, const char *path,
		     const char *const *options, int fd)
{
	struct job job = { .c = c, .take = fd_take_bytes, .fd = fd, .step = GET_STEP };
	const char *words[OPTIONS_MAX + 5];
	int r = words_make(words, "get", vm, path, options, GET_WINDOW);

	/* A window of the caller's may be smaller than that. */
	for (size_t i = 0; options && options[i]; i++) {
		if (!strncmp(options[i], "window=", 7))
			job.step = 1;
	}
	if (r == 0)
		r = job_begin(&job, words);
	return r ? r : job_finish(&job);
}

/* ---- watch ---- */

API int casemate_watch(struct casemate *c, const char *vm, const char *path,
		       const char *const *options, unsigned long long *ret_exec)
{
	struct job job = { .c = c };
	const char *words[OPTIONS_MAX + 5];
	int r = words_make(words, "watch", vm, path, options, NULL);

	line_reader_done(&c->watch);
	if (r == 0)
		r = job_begin(&job, words);
	if (r == 0)
		*ret_exec = job.exec;
	return r;
}

static int watch_take(struct job *job, const void *data, size_t len)
{
	return line_reader_give(&job->c->watch, data, len);
}

API int casemate_watch_next(struct casemate *c, unsigned long long exec, int timeout_ms)
{
	struct job job = { .c = c, .exec = exec, .take = watch_take };
	int r;

	client_answer_drop(c);
	while ((r = line_take(c, &c->watch)) == 0 && !job.ended) {
		r = job_step(&job, timeout_ms);
		if (r <= 0)
			return r;
	}
	if (r < 0)
		job_fail(&job, r);
	while (job.error && !job.ended) {
		r = job_step(&job, -1);
		if (r < 0)
			return r;
	}
	if (job.ended)
		job_result(&job);
	return 1;
}
