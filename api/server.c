/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of the line protocol; see server.h. */
#include "api/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"

#define READ_SIZE	65536u
#define TICK_NS		NS_PER_SEC
#define TICK_STOPPING_NS	(NS_PER_SEC / 50)
#define PARTIAL_NS	(60 * NS_PER_SEC)	/* for the rest of a line or chunk */
#define STALL_NS	(60 * NS_PER_SEC)	/* for taking some of what is to be sent */
#define IDLE_NS		(3600 * NS_PER_SEC)	/* without a request or anything under way */
#define GROUPS_MAX	1024u

static void on_client(struct watch *watch, uint32_t events);
static void client_turn(struct deferred *deferred);

void client_turn_later(struct client *client)
{
	evloop_defer(client->server->loop, &client->turn);
}

void client_cut(struct client *client)
{
	client->cut = true;
	client_turn_later(client);
}

bool client_is_gone(const struct client *client)
{
	struct pollfd p = { client->fd, 0, 0 };

	/* Closed in both directions: one that was shut down for writing takes answers still. */
	return client->cut || (poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR)));
}

void client_put(struct client *client, const void *data, size_t len)
{
	if (client->cut)
		return;
	if (client->out.len == 0)
		client->moved_ns = time_monotonic_ns();
	if (buf_append(&client->out, data, len) < 0) {
		client->server->clients_cut++;
		client_cut(client);
		return;
	}
	client_turn_later(client);
}

/* ---- Answers ---- */

void answer_begin(struct answer *answer, const char *sign, const char *tag)
{
	answer->len = 0;
	answer->len = (size_t)snprintf(answer->text, sizeof(answer->text), "%s%s%s", sign,
				       tag[0] ? " @" : "", tag);
}

/* What does not fit is left out; only texts of many kilobytes do not. */
void answer_word(struct answer *answer, const char *word)
{
	line_word_add(answer->text, sizeof(answer->text) - 32, &answer->len, word);
}

void answer_pair(struct answer *answer, const char *name, const char *format, ...)
{
	char value[PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(value, sizeof(value), format, args);
	va_end(args);
	line_pair_add(answer->text, sizeof(answer->text) - 32, &answer->len, name, value);
}

void answer_send_chunk(struct answer *answer, struct client *client, size_t chunk)
{
	answer->len += (size_t)snprintf(answer->text + answer->len, 32, " #%zu\n", chunk);
	client_put(client, answer->text, answer->len);
}

void answer_send(struct answer *answer, struct client *client)
{
	answer->text[answer->len++] = '\n';
	client_put(client, answer->text, answer->len);
}

void reply_ok(const struct request *q)
{
	struct answer a;

	answer_begin(&a, "+", q->line->tag);
	answer_send(&a, q->client);
}

static const struct {
	int error;
	const char *code, *hint;
} codes[] = {
	{ EBADMSG, "SYNTAX", "words are quoted as in \"a b\"; see docs/PROTOCOL.md" },
	{ EOPNOTSUPP, "UNKNOWN", "hello lists the verbs" },
	{ EINVAL, "ARGUMENT", "see docs/PROTOCOL.md" },
	{ ENAMETOOLONG, "ARGUMENT", "see docs/PROTOCOL.md" },
	{ ENOENT, "NOTFOUND", NULL },
	{ ESRCH, "NOTFOUND", "list shows what there is" },
	{ EEXIST, "EXISTS", "choose another name" },
	{ EACCES, "DENIED", "the daemon's own user and root may do this" },
	{ EPERM, "DENIED", "the daemon's own user and root may do this" },
	{ EDQUOT, "LIMIT", "end something first" },
	{ EBUSY, "BUSY", "try again soon" },
	{ ESHUTDOWN, "DRAINING", "start another daemon" },
	{ ESTALE, "STATE", "info shows its state" },
	{ EHOSTDOWN, "STATE", "resume it first" },
	{ ENODATA, "STATE", "save it whole with track=yes first" },
	{ E2BIG, "TOOBIG", "send less at a time" },
	{ EPIPE, "FLOW", "the command takes no more input" },
	{ ENOBUFS, "FLOW", "wait for stdin-credit" },
	{ ECONNRESET, "LOST", "events shows what happened" },
};

/* NOTFOUND is said of what has a name here, and of files. */
static const char *missing_hint(const char *text)
{
	if (!strncmp(text, "there is no template", 20))
		return "template list shows what there is";
	if (!strncmp(text, "there is no ", 12))
		return "list shows what there is";
	return "paths are as the daemon sees them";
}

void reply_err(struct client *client, const char *tag, const struct err *err)
{
	reply_err_retry(client, tag, err, 0);
}

void reply_err_retry(struct client *client, const char *tag, const struct err *err,
		     uint64_t after_ns)
{
	const char *code = "FAILED", *hint = "events shows what happened";
	char sign[32], whose[160];
	struct answer a;

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		if (codes[i].error == -err->code) {
			code = codes[i].code;
			hint = codes[i].hint ? codes[i].hint : missing_hint(err->text);
			break;
		}
	}
	/* Somebody who may do everything was refused by a file's permissions. */
	if (client->admin && (err->code == -EACCES || err->code == -EPERM)) {
		snprintf(whose, sizeof(whose), "files are opened by the user %s, whose right to "
			 "the file and its directories counts", client->server->user);
		hint = whose;
	}
	snprintf(sign, sizeof(sign), "-%s", code);
	answer_begin(&a, sign, tag);
	/* Quoted always, so that it reads as the message that it is. */
	answer_word(&a, err->text[0] ? err->text : strerror(-err->code));
	if (after_ns)
		answer_pair(&a, "retry-after", "%.3f", (double)after_ns / 1e9);
	answer_pair(&a, "hint", "%s", hint);
	answer_send(&a, client);
}

int fail(const struct request *q, int code, const char *format, ...)
{
	struct err err = { .code = -code };
	va_list args;

	va_start(args, format);
	vsnprintf(err.text, sizeof(err.text), format, args);
	va_end(args);
	reply_err(q->client, q->line->tag, &err);
	return -code;
}

/* ---- Requests under way ---- */

void *pending_new(const struct request *q, size_t size,
		  void (*done)(struct waiter *, void *, const struct err *))
{
	struct client *c = q->client;
	struct pending *p = calloc(1, size);

	if (!p) {
		fail(q, ENOMEM, "no memory for a request");
		return NULL;
	}
	p->waiter.done = done;
	list_init(&p->waiter.link);
	p->client = c;
	strcpy(p->tag, q->line->tag);
	p->untagged = !p->tag[0];
	list_add_tail(&c->pending, &p->link);
	c->pending_count++;
	c->blocked |= p->untagged;
	return p;
}

void pending_end(struct pending *p)
{
	list_remove(&p->waiter.link);
	list_remove(&p->link);
	if (p->client) {
		p->client->pending_count--;
		if (p->untagged)
			p->client->blocked = false;
		client_turn_later(p->client);
	}
	free(p);
}

void pending_done(struct waiter *waiter, void *what, const struct err *err)
{
	struct pending *p = list_entry(waiter, struct pending, waiter);
	struct answer a;

	if (p->client && err) {
		reply_err(p->client, p->tag, err);
	} else if (p->client) {
		answer_begin(&a, "+", p->tag);
		answer_send(&a, p->client);
	}
	pending_end(p);
}

/* ---- Clients ---- */

static void client_free(struct client *c)
{
	struct server *s = c->server;

	attachments_drop(c);
	while (!list_empty(&c->pending)) {
		struct pending *p = list_entry(c->pending.next, struct pending, link);

		list_remove(&p->link);
		p->client = NULL;
		if (p->lost)
			p->lost(p);
	}
	if (c->events)
		list_remove(&c->observer.link);
	pool_unbind(s->pool, c);
	watch_remove(s->loop, &c->watch);
	deferred_cancel(&c->turn);
	fd_close(c->fd);
	line_reader_done(&c->reader);
	buf_done(&c->out);
	list_remove(&c->link);
	s->client_count--;
	s->busy_ns = time_monotonic_ns();
	free(c);
}

static bool in_group(int fd, gid_t primary, gid_t group)
{
	gid_t groups[GROUPS_MAX];
	socklen_t size = sizeof(groups);

	if (primary == group)
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0)
		return false;
	for (size_t i = 0; i < size / sizeof(groups[0]); i++) {
		if (groups[i] == group)
			return true;
	}
	return false;
}

static void greet(struct client *c)
{
	struct answer a;

	answer_begin(&a, "+", "");
	answer_pair(&a, "casemate", "%d", PROTOCOL_VERSION);
	answer_pair(&a, "release", "%s", CASEMATE_VERSION);
	answer_send(&a, c);
}

/* One line that says why, as far as the socket takes it, and the end. */
static void refuse(int fd, const char *code, const char *text)
{
	char line[256];
	int n = snprintf(line, sizeof(line), "-%s \"%s\"\n", code, text);

	if (send(fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		errno = 0;
	close(fd);
}

/* Whether one more connection leaves room for others. */
static bool has_place(const struct server *s, uid_t uid, bool admin)
{
	uint32_t count = 0;
	struct client *c;

	list_for_each(c, &s->clients, struct client, link)
		count += c->uid == uid;
	return s->client_count < CLIENTS_MAX && (admin || count < CLIENTS_OPERATOR);
}

static void client_new(struct server *s, int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	struct client *c;
	bool admin;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
		close(fd);
		return;
	}
	admin = peer.uid == s->pool->self || peer.uid == 0;
	if (!admin && !(s->has_group && in_group(fd, peer.gid, s->group))) {
		refuse(fd, "DENIED", "this daemon serves its own user, root and the members of "
		       "its --group");
		return;
	}
	c = has_place(s, peer.uid, admin) ? calloc(1, sizeof(*c)) : NULL;
	if (!c || buf_init(&c->out, OUT_CAP) < 0) {
		free(c);
		refuse(fd, "LIMIT", "too many connections; close some");
		return;
	}
	c->server = s;
	c->fd = fd;
	c->uid = peer.uid;
	c->admin = admin;
	c->heard_ns = time_monotonic_ns();
	line_reader_init(&c->reader);
	list_init(&c->pending);
	list_init(&c->attached);
	list_init(&c->observer.link);
	deferred_init(&c->turn, client_turn);
	watch_init(&c->watch, on_client);
	list_add_tail(&s->clients, &c->link);
	s->client_count++;
	s->clients_total++;
	if (watch_add(s->loop, &c->watch, fd, EPOLLIN) < 0) {
		client_free(c);
		return;
	}
	greet(c);
}

static void on_listener(struct watch *watch, uint32_t events)
{
	struct server *s = list_entry(watch, struct server, listener);
	const int room = SOCKET_ROOM;

	for (int i = 0; i < 64; i++) {
		int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			/* Without a descriptor for it the connection would wake us for ever:
			 * the tick looks again. */
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			    errno == ENOMEM)
				watch_set(s->loop, watch, 0);
			return;
		}
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
		client_new(s, fd);
	}
}

static bool may_read(const struct client *c)
{
	return !c->cut && !c->blocked && c->out.len < OUT_HIGH &&
	       c->pending_count < CLIENT_PENDING;
}

static void lines_run(struct client *c)
{
	const struct line *line;

	while (may_read(c)) {
		int r = line_reader_next(&c->reader, &line);

		if (r == 0)
			return;
		if (r < 0) {
			struct err err = ERR_INIT;
			struct answer a;

			err_set(&err, EBADMSG, "%s", c->reader.broken ? c->reader.broken :
				"no memory for a line");
			reply_err(c, "", &err);
			answer_begin(&a, "!", "");
			answer_word(&a, "closing");
			answer_send(&a, c);
			c->eof = true;
			return;
		}
		verb_dispatch(c, line);
	}
}

static void client_read(struct client *c)
{
	static uint8_t bytes[READ_SIZE];
	ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		c->cut = true;
		return;
	}
	if (n == 0) {
		c->eof = true;
		return;
	}
	c->heard_ns = time_monotonic_ns();
	if (line_reader_give(&c->reader, bytes, (size_t)n) < 0)
		c->cut = true;
}

static void client_write(struct client *c)
{
	while (c->out.len > 0 && !c->cut && !c->full) {
		size_t len;
		const uint8_t *from = buf_front(&c->out, &len);
		ssize_t n = send(c->fd, from, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		c->full = n < 0 && errno == EAGAIN;
		if (c->full)
			return;
		if (n < 0) {
			c->cut = true;
			return;
		}
		c->moved_ns = time_monotonic_ns();
		buf_consume(&c->out, (size_t)n);
	}
}

static void client_turn(struct deferred *deferred)
{
	struct client *c = list_entry(deferred, struct client, turn);
	bool in;

	lines_run(c);
	streams_pump(c);
	client_write(c);
	/* Writing made room. */
	if (!c->cut && !list_empty(&c->attached) && c->out.len == 0)
		streams_pump(c);
	/* A connection that was shut down for writing gets its answers still. */
	if (c->cut || (c->eof && c->out.len == 0 && c->pending_count == 0 &&
		       c->attached_count == 0 && !c->events && !c->blocked)) {
		client_free(c);
		return;
	}
	in = may_read(c) && !c->eof;
	watch_set(c->server->loop, &c->watch,
		  (in ? EPOLLIN : 0) | (c->out.len > 0 ? EPOLLOUT : 0));
}

static void on_client(struct watch *watch, uint32_t events)
{
	struct client *c = list_entry(watch, struct client, watch);

	c->full &= !(events & (EPOLLOUT | EPOLLHUP | EPOLLERR));
	if (events & EPOLLIN)
		client_read(c);
	/* Closed by the peer, in both directions. What it sent last is done all the same. */
	else if (events & (EPOLLHUP | EPOLLERR))
		c->cut = true;
	client_turn_later(c);
}

/* ---- Time, and the end ---- */

static bool has_work(const struct client *c)
{
	return c->pending_count > 0 || c->attached_count > 0 || c->events;
}

static void clients_look(struct server *s, uint64_t now)
{
	struct client *c;

	list_for_each(c, &s->clients, struct client, link) {
		bool stalled = c->out.len > 0 && now > c->moved_ns + STALL_NS;
		bool partial = line_reader_partial(&c->reader) && may_read(c) &&
			       now > c->heard_ns + PARTIAL_NS;
		bool idle = !has_work(c) && now > c->heard_ns + IDLE_NS;

		if (stalled || partial || idle) {
			s->clients_cut++;
			client_cut(c);
		}
	}
}

static void stops_answer(struct server *s)
{
	while (!list_empty(&s->stops)) {
		struct pending *p = list_entry(s->stops.next, struct pending, waiter.link);

		list_remove(&p->waiter.link);
		p->waiter.done(&p->waiter, NULL, NULL);
	}
}

static void on_tick(struct timer *timer)
{
	struct server *s = list_entry(timer, struct server, tick);
	uint64_t now = time_monotonic_ns();

	clients_look(s, now);
	watch_set(s->loop, &s->listener, EPOLLIN);
	if (s->client_count > 0 || !pool_empty(s->pool) || s->pool->template_count > 0)
		s->busy_ns = now;
	if (s->session && !s->stopping && now > s->busy_ns + s->session_idle_ns)
		server_stop(s, 0);
	if (s->stopping && now >= s->drain_until_ns)
		pool_kill_all(s->pool, "stop", "the daemon is stopping");
	if (s->stopping && pool_empty(s->pool)) {
		struct client *c;

		stops_answer(s);
		list_for_each(c, &s->clients, struct client, link)
			client_write(c);
		s->loop->stop = true;
	}
	timer_set(s->loop, &s->tick, now + (s->stopping ? TICK_STOPPING_NS : TICK_NS));
}

void server_stop(struct server *s, uint64_t drain_ns)
{
	uint64_t now = time_monotonic_ns();

	if (!s->stopping || now + drain_ns < s->drain_until_ns)
		s->drain_until_ns = now + drain_ns;
	s->stopping = true;
	pool_drain(s->pool);
	timer_set(s->loop, &s->tick, now);
}

int server_init(struct server *s, struct evloop *loop, struct pool *pool, int fd,
		struct err *err)
{
	int r;

	s->loop = loop;
	s->pool = pool;
	s->fd = fd;
	list_init(&s->clients);
	list_init(&s->stops);
	watch_init(&s->listener, on_listener);
	timer_init(&s->tick, on_tick);
	s->busy_ns = time_monotonic_ns();
	timer_set(loop, &s->tick, s->busy_ns + TICK_NS);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	r = watch_add(loop, &s->listener, fd, EPOLLIN);
	return r < 0 ? err_set_errno(err, r, "cannot serve the socket") : 0;
}

void server_done(struct server *s)
{
	struct client *c;

	list_for_each(c, &s->clients, struct client, link)
		client_free(c);
	timer_set(s->loop, &s->tick, 0);
	watch_remove(s->loop, &s->listener);
	s->fd = fd_close(s->fd);
}
