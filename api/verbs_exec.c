/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs about commands, and the moving of their streams to clients.
 *
 * A command's output goes to the one client that is attached to it, as far as its window (if
 * it asked for one) and STREAM_HIGH bytes of waiting output allow. What is not moved stays in
 * the command's ring, and the guest waits. After the last byte comes the line that tells the
 * end, and the attachment is over.
 */
#include "api/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/value.h"

/* What is lost with a connection can be had again by the next. A socket takes twice the room that
 * was asked for, and half of that again with the last message. */
_Static_assert(STREAM_HIGH + STREAM_PIECE + 3 * SOCKET_ROOM <= EXEC_REPLAY, "bytes on their way");

static const char *const env_default[] = {
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root",
	"TERM=dumb",
};

/* ---- Streams ---- */

static void reader_ready(struct exec_reader *reader)
{
	struct attachment *at = list_entry(reader, struct attachment, reader);

	client_turn_later(at->client);
}

void attachment_free(struct attachment *at)
{
	at->exec->reader = NULL;
	list_remove(&at->link);
	at->client->attached_count--;
	free(at);
}

void attachments_drop(struct client *c)
{
	while (!list_empty(&c->attached)) {
		struct attachment *at = list_entry(c->attached.next, struct attachment, link);
		struct exec *exec = at->bound ? at->exec : NULL;

		attachment_free(at);
		if (exec)
			exec_kill(exec);
	}
}

void exec_end_describe(struct answer *a, const struct exec *exec)
{
	int status = (int)exec->status;

	switch (exec->end) {
	case EXEC_END_EXIT:
		answer_word(a, "exit");
		if (WIFSIGNALED(status))
			answer_pair(a, "signal", "%d", WTERMSIG(status));
		else
			answer_pair(a, "code", "%d", WEXITSTATUS(status));
		answer_pair(a, "user", "%.6f", (double)exec->usage.user_ns / 1e9);
		answer_pair(a, "system", "%.6f", (double)exec->usage.system_ns / 1e9);
		answer_pair(a, "rss", "%" PRIu64, exec->usage.max_rss);
		break;
	case EXEC_END_FAILED:
		answer_word(a, "failed");
		answer_pair(a, "errno", "%u", exec->error);
		answer_pair(a, "step", "%s", exec->step == CM_FAILED_EXEC ? "exec" :
			    exec->step == CM_FAILED_CHDIR ? "chdir" :
			    exec->step == CM_FAILED_CRED ? "user" : "spawn");
		answer_pair(a, "reason", "%s", strerror((int)exec->error));
		break;
	default:
		answer_word(a, "lost");
		answer_pair(a, "reason", "%s", exec->reason);
		break;
	}
	if (exec->timed_out)
		answer_pair(a, "timeout", "yes");
	if (exec->truncated)
		answer_pair(a, "truncated", "yes");
}

static void stream_line(struct answer *a, const struct attachment *at)
{
	answer_begin(a, "!", at->tag);
	answer_pair(a, "exec", "%" PRIu64, at->exec->id);
}

static bool stream_move(struct attachment *at, int stream)
{
	struct client *c = at->client;
	struct answer a;
	size_t len;
	const uint8_t *from = exec_front(at->exec, stream, &len);

	if (at->windowed && len > at->window)
		len = (size_t)at->window;
	if (len > STREAM_PIECE)
		len = STREAM_PIECE;
	if (len == 0 || c->out.len >= STREAM_HIGH || c->cut)
		return false;
	stream_line(&a, at);
	answer_word(&a, stream ? "stderr" : "stdout");
	answer_pair(&a, "at", "%" PRIu64, at->exec->out[stream].sent);
	answer_send_chunk(&a, c, len);
	client_put(c, from, len);
	exec_consume(at->exec, stream, len);
	if (at->windowed)
		at->window -= len;
	return true;
}

static void stdin_credit_tell(struct attachment *at)
{
	struct answer a;

	if (at->exec->in_freed < CM_CREDIT_INITIAL / 4)
		return;
	stream_line(&a, at);
	answer_word(&a, "stdin-credit");
	answer_pair(&a, "bytes", "%u", at->exec->in_freed);
	answer_send(&a, at->client);
	at->exec->in_freed = 0;
}

/* Of a connection only: its two ways end by themselves, and a command's end tells all. */
static void stdout_end_tell(struct attachment *at)
{
	const struct exec_stream *s = &at->exec->out[0];
	struct answer a;

	if (!at->exec->connection || at->end_told || !s->eof || s->sent != s->end)
		return;
	at->end_told = true;
	stream_line(&a, at);
	answer_word(&a, "stdout-end");
	answer_pair(&a, "at", "%" PRIu64, s->end);
	answer_send(&a, at->client);
}

static void end_tell(struct attachment *at)
{
	struct answer a;

	stream_line(&a, at);
	exec_end_describe(&a, at->exec);
	answer_send(&a, at->client);
	attachment_free(at);
}

void streams_pump(struct client *c)
{
	struct attachment *at;
	bool moved = true;

	while (moved && c->out.len < STREAM_HIGH && !c->cut) {
		moved = false;
		list_for_each(at, &c->attached, struct attachment, link) {
			moved |= stream_move(at, 0);
			moved |= stream_move(at, 1);
		}
	}
	list_for_each(at, &c->attached, struct attachment, link) {
		if (c->out.len >= OUT_HIGH || c->cut)
			return;
		stdin_credit_tell(at);
		stdout_end_tell(at);
		if (exec_finished(at->exec))
			end_tell(at);
	}
}

/* Returns NULL when the request was answered. */
static struct attachment *attach(const struct request *q, struct exec *exec)
{
	struct client *c = q->client;
	struct attachment *at;
	uint64_t window = 0;

	if (option_number(q, "window", UINT32_MAX, &window) < 0)
		return NULL;
	if (exec && exec->reader) {
		fail(q, EBUSY, "somebody is attached to this command already");
		return NULL;
	}
	if (c->attached_count >= CLIENT_ATTACHED) {
		fail(q, EDQUOT, "%u commands are attached to this connection already",
		     CLIENT_ATTACHED);
		return NULL;
	}
	at = calloc(1, sizeof(*at));
	if (!at) {
		fail(q, ENOMEM, "no memory to attach");
		return NULL;
	}
	at->client = c;
	at->reader.ready = reader_ready;
	at->windowed = option(q, "window") != NULL;
	at->window = window;
	strcpy(at->tag, q->line->tag);
	list_init(&at->link);
	return at;
}

static void attach_to(struct attachment *at, struct exec *exec)
{
	at->exec = exec;
	exec->reader = &at->reader;
	list_add_tail(&at->client->attached, &at->link);
	at->client->attached_count++;
	client_turn_later(at->client);
}

/* ---- exec ---- */

struct exec_words {
	const char *env[LINE_WORDS_MAX];
	uint32_t envc;
	size_t command;		/* index of the first word of it */
};

static bool env_has(const struct exec_words *w, const char *assignment)
{
	size_t n = strcspn(assignment, "=") + 1;

	for (uint32_t i = 0; i < w->envc; i++) {
		if (!strncmp(w->env[i], assignment, n))
			return true;
	}
	return false;
}

static int words_sort(const struct request *q, struct exec_words *w)
{
	const struct line *line = q->line;
	size_t i;

	w->envc = 0;
	for (i = 2; i < line->count && strcmp(line->words[i], "--"); i++) {
		if (!strncmp(line->words[i], "env=", 4))
			w->env[w->envc++] = line->words[i] + 4;
	}
	if (i + 1 >= line->count)
		return fail(q, EINVAL, "a command is wanted behind --");
	w->command = i + 1;
	for (i = 0; i < sizeof(env_default) / sizeof(env_default[0]); i++) {
		if (!env_has(w, env_default[i]) && w->envc < LINE_WORDS_MAX)
			w->env[w->envc++] = env_default[i];
	}
	return 0;
}

int option_user(const struct request *q, struct exec_options *o)
{
	const char *text = option(q, "user");
	unsigned int uid, gid;
	int used = 0;

	if (!text)
		return 0;
	if (sscanf(text, "%9u%n", &uid, &used) == 1 && !text[used])
		gid = uid;
	else if (sscanf(text, "%9u:%9u%n", &uid, &gid, &used) != 2 || text[used])
		return fail(q, EINVAL, "user wants UID or UID:GID, not %.40s", text);
	o->uid = uid;
	o->gid = gid;
	return 0;
}

static int size_read(const struct request *q, const char *text, uint16_t *ret_rows,
		     uint16_t *ret_columns)
{
	unsigned int rows, columns;
	int used = 0;

	if (sscanf(text, "%5ux%5u%n", &rows, &columns, &used) != 2 || text[used] ||
	    rows > UINT16_MAX || columns > UINT16_MAX)
		return fail(q, EINVAL, "a terminal's size is ROWSxCOLUMNS, not %.40s", text);
	*ret_rows = (uint16_t)rows;
	*ret_columns = (uint16_t)columns;
	return 0;
}

static int exec_options_read(const struct request *q, struct exec_options *o,
			     bool *ret_detach, bool *ret_bound)
{
	const char *pty = option(q, "pty");
	int r = options_known(q, 2, "env cwd user stdin pty timeout limit window detach bound");

	o->cwd = option(q, "cwd");
	o->tty = pty != NULL;
	if (r == 0)
		r = option_user(q, o);
	if (r == 0)
		r = option_bool(q, "stdin", &o->has_stdin);
	if (r == 0 && pty)
		r = size_read(q, pty, &o->rows, &o->columns);
	if (r == 0)
		r = option_time(q, "timeout", &o->timeout_ns);
	if (r == 0)
		r = option_size(q, "limit", &o->limit);
	if (r == 0)
		r = option_bool(q, "detach", ret_detach);
	if (r == 0)
		r = option_bool(q, "bound", ret_bound);
	return r;
}

int exec_start(const struct request *q, struct vm *vm, const struct exec_options *o,
	       bool detach, bool bound)
{
	struct attachment *at = NULL;
	struct err err = ERR_INIT;
	struct exec *exec;
	struct answer a;
	int r;

	if (!detach) {
		at = attach(q, NULL);
		if (!at)
			return -EBUSY;
		at->bound = bound;
	}
	r = exec_new(vm, o, &exec, &err);
	if (r < 0) {
		free(at);
		reply_err(q->client, q->line->tag, &err);
		return r;
	}
	answer_begin(&a, "+", q->line->tag);
	answer_pair(&a, "exec", "%" PRIu64, exec->id);
	answer_send(&a, q->client);
	if (at)
		attach_to(at, exec);
	return 0;
}

static int verb_exec(const struct request *q)
{
	static struct exec_words words;
	struct exec_options o = { .uid = 0 };
	bool detach = false, bound = false;
	struct vm *vm;
	int r = words_sort(q, &words);

	if (r == 0)
		r = exec_options_read(q, &o, &detach, &bound);
	if (r < 0)
		return r;
	vm = request_vm(q, q->line->words[1]);
	if (!vm)
		return -ENOENT;
	o.argv = (const char *const *)q->line->words + words.command;
	o.argc = (uint32_t)(q->line->count - words.command);
	o.env = words.env;
	o.envc = words.envc;
	return exec_start(q, vm, &o, detach, bound);
}

/* ---- Those about one that runs ---- */

static int verb_attach(const struct request *q)
{
	struct exec *exec = request_exec(q, q->line->words[1]);
	struct attachment *at;
	uint64_t from[2] = { 0, 0 };
	struct answer a;

	if (!exec)
		return -ENOENT;
	if (options_known(q, 2, "stdout stderr window bound") < 0 ||
	    option_number(q, "stdout", UINT64_MAX, &from[0]) < 0 ||
	    option_number(q, "stderr", UINT64_MAX, &from[1]) < 0)
		return -EINVAL;
	at = attach(q, exec);
	if (!at)
		return -EBUSY;
	if (option_bool(q, "bound", &at->bound) < 0) {
		free(at);
		return -EINVAL;
	}
	exec_rewind(exec, 0, from[0]);
	exec_rewind(exec, 1, from[1]);
	answer_begin(&a, "+", q->line->tag);
	answer_pair(&a, "exec", "%" PRIu64, exec->id);
	answer_pair(&a, "stdout", "%" PRIu64, exec->out[0].sent);
	answer_pair(&a, "stderr", "%" PRIu64, exec->out[1].sent);
	/* Of the bytes of stdin that there is room for, those on their way are not known. */
	answer_pair(&a, "stdin-credit", "%zu", exec->has_stdin && exec->vm ?
		    CM_CREDIT_INITIAL - exec->in.len : 0);
	answer_send(&a, q->client);
	exec->in_freed = 0;
	attach_to(at, exec);
	return 0;
}

static struct attachment *attachment_find(const struct request *q, const struct exec *exec)
{
	struct attachment *at;

	list_for_each(at, &q->client->attached, struct attachment, link) {
		if (at->exec == exec)
			return at;
	}
	fail(q, ESTALE, "this connection is not attached to the command");
	return NULL;
}

static int verb_detach(const struct request *q)
{
	struct exec *exec = request_exec(q, q->line->words[1]);
	struct attachment *at = exec ? attachment_find(q, exec) : NULL;

	if (!at)
		return -ENOENT;
	attachment_free(at);
	reply_ok(q);
	return 0;
}

/* Answered only when it fails, so that a sender need not read an answer for each piece. */
static int verb_credit(const struct request *q)
{
	struct exec *exec = request_exec(q, q->line->words[1]);
	struct attachment *at = exec ? attachment_find(q, exec) : NULL;
	uint64_t bytes;

	if (!at)
		return -ENOENT;
	if (value_number(q->line->words[2], UINT32_MAX, &bytes) < 0)
		return fail(q, EINVAL, "credit wants a number of bytes");
	at->window += bytes;
	client_turn_later(q->client);
	return 0;
}

static int verb_stdin(const struct request *q)
{
	struct exec *exec = request_exec(q, q->line->words[1]);
	int r;

	if (!exec)
		return -ENOENT;
	r = exec_stdin(exec, q->line->chunk, q->line->chunk_len);
	if (r == -ENOBUFS)
		return fail(q, ENOBUFS, "more than there is room for, and nothing was taken");
	if (r == -EPIPE)
		return fail(q, EPIPE, "the command has ended or has no open stdin");
	return r < 0 ? fail(q, -r, "no memory for stdin") : 0;
}

static int verb_close_stdin(const struct request *q)
{
	struct exec *exec = request_exec(q, q->line->words[1]);

	if (!exec)
		return -ENOENT;
	if (exec_stdin_close(exec) < 0)
		return fail(q, EPIPE, "the command has ended or has no open stdin");
	reply_ok(q);
	return 0;
}

static int control_reply(const struct request *q, int r, const struct err *err)
{
	if (r < 0)
		reply_err(q->client, q->line->tag, err);
	else
		reply_ok(q);
	return r;
}

static int verb_signal(const struct request *q)
{
	struct exec *exec = request_exec(q, q->line->words[1]);
	struct err err = ERR_INIT;
	uint32_t number;

	if (!exec)
		return -ENOENT;
	if (value_signal(q->line->words[2], &number) < 0)
		return fail(q, EINVAL, "there is no signal %.20s", q->line->words[2]);
	return control_reply(q, exec_signal(exec, number, &err), &err);
}

static int verb_resize(const struct request *q)
{
	struct exec *exec = request_exec(q, q->line->words[1]);
	struct err err = ERR_INIT;
	uint16_t rows, columns;

	if (!exec)
		return -ENOENT;
	if (size_read(q, q->line->words[2], &rows, &columns) < 0)
		return -EINVAL;
	return control_reply(q, exec_resize(exec, rows, columns, &err), &err);
}

static void waited(struct waiter *waiter, void *what, const struct err *err)
{
	struct pending *p = list_entry(waiter, struct pending, waiter);
	const struct exec *exec = what;
	struct answer a;

	if (p->client) {
		answer_begin(&a, "+", p->tag);
		answer_pair(&a, "exec", "%" PRIu64, exec->id);
		exec_end_describe(&a, exec);
		answer_send(&a, p->client);
	}
	pending_end(p);
}

static int verb_wait(const struct request *q)
{
	struct exec *exec = request_exec(q, q->line->words[1]);
	struct pending *p;

	if (!exec)
		return -ENOENT;
	p = pending_new(q, sizeof(*p), waited);
	if (!p)
		return -ENOMEM;
	if (exec->state == EXEC_ENDED)
		waited(&p->waiter, exec, NULL);
	else
		list_add_tail(&exec->waiters, &p->waiter.link);
	return 0;
}

const struct verb verbs_exec[] = {
	{ "exec", verb_exec, 4, "exec VM [env=NAME=VALUE]... [cwd=DIR] [user=UID[:GID]] "
	  "[stdin=yes] [pty=ROWSxCOLUMNS] [timeout=TIME] [limit=SIZE] [window=BYTES] "
	  "[detach=yes] [bound=yes] -- COMMAND [ARGUMENT]...", false },
	{ "attach", verb_attach, 2, "attach EXEC [stdout=OFFSET] [stderr=OFFSET] "
	  "[window=BYTES] [bound=yes]", false },
	{ "detach", verb_detach, 2, "detach EXEC", false },
	{ "credit", verb_credit, 3, "credit EXEC BYTES", false },
	{ "stdin", verb_stdin, 2, "stdin EXEC #N", true },
	{ "close-stdin", verb_close_stdin, 2, "close-stdin EXEC", false },
	{ "signal", verb_signal, 3, "signal EXEC NAME", false },
	{ "resize", verb_resize, 3, "resize EXEC ROWSxCOLUMNS", false },
	{ "wait", verb_wait, 2, "wait EXEC", false },
	{ NULL, NULL, 0, NULL, false },
};
