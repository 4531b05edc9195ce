/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of forwards; see forward.h. A connection is worked on in its turn, at the end of
 * the loop's turn in which its socket or its command had news: bytes are taken from the peer as
 * far as the command's stdin has room, given to it as far as it takes them. So nothing here is
 * freed under its caller.
 *
 * A peer that reads no more, but has sent something, is no error: SIGPIPE tells the guest's
 * end, which goes on with what was sent. A peer that was reset ends the command.
 */
#include "pool/forward.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"
#include "base/value.h"

#define PIECE		65536u
#define ACCEPTS		16		/* in one turn of the loop */
#define RETRY_NS	(NS_PER_SEC / 2)

struct connection {
	struct exec_reader reader;
	struct list link;		/* of its forward */
	struct forward *forward;
	struct exec *exec;
	int fd;
	struct watch watch;		/* only while there is something to wait for: a hung-up
					 * socket would be told of again and again */
	struct deferred turn;
	bool in_end;			/* the peer has ended its way */
	bool out_end;			/* we have ended ours */
	bool unwanted;			/* the peer takes nothing more */
	char said[128];			/* the start of what the guest's end said on stderr */
};

static void connection_turn(struct deferred *deferred);

/* ---- Targets ---- */

static int target_check(const char *text, struct err *err)
{
	uint64_t port;

	if (!strncmp(text, "unix:/", 6) || !strncmp(text, "unix:@", 6)) {
		if (strlen(text + 5) < sizeof(((struct sockaddr_un *)NULL)->sun_path))
			return 0;
		return err_set(err, EINVAL, "a socket's path has at most %zu bytes",
			       sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1);
	}
	if (!strncmp(text, "tcp:", 4) && value_number(text + 4, UINT16_MAX, &port) == 0 &&
	    port > 0)
		return 0;
	return err_set(err, EINVAL, "a target in the VM is unix:PATH (absolute), unix:@NAME or "
		       "tcp:PORT, not %.60s", text);
}

int forward_exec_options(const char *target, const char *argv[2], struct exec_options *o,
			 struct err *err)
{
	int r = target_check(target, err);

	argv[0] = "connect";
	argv[1] = target;
	if (r == 0)
		*o = (struct exec_options){ .argv = argv, .argc = 2, .builtin = true,
					    .connection = true, .has_stdin = true };
	return r;
}

static int connect_exec(struct forward *f, struct exec **ret_exec, struct err *err)
{
	const char *argv[2];
	struct exec_options o;
	int r = forward_exec_options(f->target, argv, &o, err);

	if (r < 0)
		return r;
	o.uid = f->uid;
	o.gid = f->gid;
	return exec_new(f->vm, &o, ret_exec, err);
}

/* ---- The end of a connection ---- */

static void forward_trouble(struct forward *f, const char *reason)
{
	f->failed++;
	snprintf(f->trouble, sizeof(f->trouble), "%s", reason);
	if (f->watcher)
		f->watcher->tell(f->watcher, f, FORWARD_FAILED, f->trouble);
}

/* Where the socket has such a thing, the peer sees that this is no orderly end. */
static void socket_reset(int fd)
{
	static const struct linger none = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

static void accept_go_on(struct forward *f)
{
	if (f->connection_count < FORWARD_CONNECTIONS)
		watch_set(f->vm->pool->loop, &f->watch, EPOLLIN);
}

static void connection_free(struct connection *c)
{
	struct forward *f = c->forward;
	struct evloop *loop = f->vm->pool->loop;

	c->exec->reader = NULL;
	exec_drop(c->exec);
	watch_remove(loop, &c->watch);
	deferred_cancel(&c->turn);
	fd_close(c->fd);
	list_remove(&c->link);
	f->connection_count--;
	accept_go_on(f);
	free(c);
}

static void connection_abort(struct connection *c)
{
	socket_reset(c->fd);
	connection_free(c);
}

/* Why it did not end as it should, or NULL. */
static const char *failure(const struct connection *c, char *text, size_t size)
{
	const struct exec *exec = c->exec;
	int status = (int)exec->status;

	switch (exec->end) {
	case EXEC_END_EXIT:
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			return NULL;
		if (c->said[0])
			return c->said;
		snprintf(text, size, "the guest's end of the connection was killed");
		return text;
	case EXEC_END_FAILED:
		snprintf(text, size, "the guest cannot make connections: %s",
			 strerror((int)exec->error));
		return text;
	default:
		return exec->reason;
	}
}

/* All that the guest sent has been passed on. */
static void connection_finish(struct connection *c)
{
	char text[POOL_REASON_MAX];
	const char *why = failure(c, text, sizeof(text));

	if (why) {
		forward_trouble(c->forward, why);
		connection_abort(c);
		return;
	}
	/* Bytes that nobody wants would make a reset of this end. */
	while (recv(c->fd, text, sizeof(text), MSG_DONTWAIT) > 0)
		;
	connection_free(c);
}

/* ---- The two ways ---- */

static size_t stdin_room(const struct connection *c)
{
	return c->in_end ? 0 : exec_stdin_room(c->exec);
}

/* Returns false when the connection is gone. */
static bool peer_read(struct connection *c)
{
	static uint8_t bytes[PIECE];
	size_t want = stdin_room(c);
	ssize_t n;

	if (want > sizeof(bytes))
		want = sizeof(bytes);
	if (want == 0)
		return true;
	n = recv(c->fd, bytes, want, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n > 0 && exec_stdin(c->exec, bytes, (size_t)n) == 0)
		return true;
	/* All of it came, and the peer left bytes of ours unread: no more than that. */
	if (n < 0 && errno == ECONNRESET && c->forward->listener.ino != 0)
		n = 0;
	if (n != 0) {
		connection_abort(c);
		return false;
	}
	c->in_end = true;
	exec_stdin_close(c->exec);
	return true;
}

static void output_unwanted(struct connection *c)
{
	c->unwanted = true;
	exec_signal_due(c->exec, SIGPIPE);
}

/* Returns false when the connection is gone. */
static bool peer_write(struct connection *c)
{
	size_t len;
	const uint8_t *from = exec_front(c->exec, 0, &len);
	ssize_t n;

	while (len > 0) {
		n = c->unwanted ? (ssize_t)len :
		    send(c->fd, from, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EPIPE) {
			output_unwanted(c);
			continue;
		}
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n < 0) {
			connection_abort(c);
			return false;
		}
		exec_consume(c->exec, 0, (size_t)n);
		from = exec_front(c->exec, 0, &len);
	}
	/* What complains is about to fail: the peer is to see that, and no orderly end. */
	if (!c->out_end && c->exec->out[0].eof && !c->said[0]) {
		c->out_end = true;
		shutdown(c->fd, SHUT_WR);
	}
	return true;
}

/* One line, for whoever asks what went wrong. */
static void stderr_take(struct connection *c)
{
	size_t len, have;
	const uint8_t *from;

	while ((from = exec_front(c->exec, 1, &len)), len > 0) {
		have = strlen(c->said);
		if (have < sizeof(c->said) - 1)
			snprintf(c->said + have, sizeof(c->said) - have, "%.*s", (int)
				 (len < sizeof(c->said) ? len : sizeof(c->said)), from);
		exec_consume(c->exec, 1, len);
	}
	c->said[strcspn(c->said, "\n")] = '\0';
	frame_text_clean(c->said, strlen(c->said));
}

/* Returns 0 or -errno. */
static int interest_update(struct connection *c)
{
	struct evloop *loop = c->forward->vm->pool->loop;
	size_t waiting;
	uint32_t events = stdin_room(c) > 0 ? EPOLLIN : 0;

	exec_front(c->exec, 0, &waiting);
	if (waiting > 0)
		events |= EPOLLOUT;
	if (events == 0)
		watch_remove(loop, &c->watch);
	else if (c->watch.fd < 0)
		return watch_add(loop, &c->watch, c->fd, events);
	else
		watch_set(loop, &c->watch, events);
	return 0;
}

static void connection_turn(struct deferred *deferred)
{
	struct connection *c = list_entry(deferred, struct connection, turn);

	c->exec->in_freed = 0;
	stderr_take(c);
	if (!peer_read(c) || !peer_write(c))
		return;
	if (exec_finished(c->exec))
		connection_finish(c);
	else if (interest_update(c) < 0)
		connection_abort(c);
}

static void connection_later(struct connection *c)
{
	evloop_defer(c->forward->vm->pool->loop, &c->turn);
}

static void reader_ready(struct exec_reader *reader)
{
	connection_later(list_entry(reader, struct connection, reader));
}

static void on_peer(struct watch *watch, uint32_t events)
{
	connection_later(list_entry(watch, struct connection, watch));
}

/* ---- Accepting ---- */

static void connection_new(struct forward *f, int fd)
{
	struct connection *c = calloc(1, sizeof(*c));
	struct err err = ERR_INIT;

	if (!c)
		err_set(&err, ENOMEM, "no memory for a connection");
	else
		connect_exec(f, &c->exec, &err);
	if (err.code < 0) {
		forward_trouble(f, err.text);
		socket_reset(fd);
		fd_close(fd);
		free(c);
		return;
	}
	c->forward = f;
	c->fd = fd;
	c->reader.ready = reader_ready;
	c->exec->reader = &c->reader;
	watch_init(&c->watch, on_peer);
	deferred_init(&c->turn, connection_turn);
	list_add_tail(&f->connections, &c->link);
	f->connection_count++;
	f->accepted++;
	f->vm->pool->stats.connections++;
	connection_later(c);
}

static void on_listener(struct watch *watch, uint32_t events)
{
	struct forward *f = list_entry(watch, struct forward, watch);
	struct evloop *loop = f->vm->pool->loop;

	for (int i = 0; i < ACCEPTS && f->connection_count < FORWARD_CONNECTIONS; i++) {
		int fd = accept4(f->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			connection_new(f, fd);
			continue;
		}
		/* The connection stays where it is, and would wake us for ever. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			watch_set(loop, watch, 0);
			timer_set(loop, &f->retry, time_monotonic_ns() + RETRY_NS);
		}
		return;
	}
	if (f->connection_count >= FORWARD_CONNECTIONS)
		watch_set(loop, watch, 0);
}

static void on_retry(struct timer *timer)
{
	accept_go_on(list_entry(timer, struct forward, retry));
}

/* ---- Forwards ---- */

static int forward_begin(struct forward *f, const struct forward_options *o, struct err *err)
{
	struct pool *pool = f->vm->pool;
	int r = listener_open(&f->listener, o->listen, pool->store, f->id, err);

	if (r < 0)
		return r;
	r = watch_add(pool->loop, &f->watch, f->listener.fd, EPOLLIN);
	if (r < 0) {
		listener_close(&f->listener);
		return err_set_errno(err, r, "cannot watch a socket");
	}
	return 0;
}

int forward_new(struct vm *vm, const struct forward_options *o, struct forward **ret_forward,
		struct err *err)
{
	struct forward *f;
	int r = target_check(o->target, err);

	if (r < 0)
		return r;
	if (vm->state == VM_ENDING || vm->role != VM_LEASED)
		return err_set(err, ESTALE, "the VM %s is not running", vm->name);
	if (vm->forward_count >= POOL_VM_FORWARDS)
		return err_set(err, EDQUOT, "%u forwards go to this VM already",
			       POOL_VM_FORWARDS);
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_set(err, ENOMEM, "no memory for a forward");
	f->vm = vm;
	f->id = vm->pool->forward_ids + 1;
	f->uid = o->uid;
	f->gid = o->gid;
	snprintf(f->target, sizeof(f->target), "%s", o->target);
	list_init(&f->connections);
	watch_init(&f->watch, on_listener);
	timer_init(&f->retry, on_retry);
	r = forward_begin(f, o, err);
	if (r < 0) {
		free(f);
		return r;
	}
	f->bound = o->bound;
	f->watcher = o->watcher;
	list_add_tail(&vm->forwards, &f->link);
	vm->forward_count++;
	vm->pool->forward_ids = f->id;
	pool_event(vm->pool, "forward", vm, "%" PRIu64 ": %s to %s", f->id,
		   f->listener.address, f->target);
	*ret_forward = f;
	return 0;
}

void forward_end(struct forward *f, const char *reason)
{
	struct evloop *loop = f->vm->pool->loop;

	watch_remove(loop, &f->watch);
	while (!list_empty(&f->connections))
		connection_abort(list_entry(f->connections.next, struct connection, link));
	listener_close(&f->listener);
	timer_set(loop, &f->retry, 0);
	list_remove(&f->link);
	f->vm->forward_count--;
	pool_event(f->vm->pool, "forward-ended", f->vm, "%" PRIu64 ": %s", f->id, reason);
	if (f->watcher)
		f->watcher->tell(f->watcher, f, FORWARD_ENDED, reason);
	free(f);
}

void forward_end_all(struct vm *vm, const char *reason)
{
	while (!list_empty(&vm->forwards))
		forward_end(list_entry(vm->forwards.next, struct forward, link), reason);
}

struct forward *pool_forward_find(struct pool *pool, uint64_t id)
{
	struct forward *f;
	struct vm *vm;

	list_for_each(vm, &pool->vms, struct vm, link) {
		list_for_each(f, &vm->forwards, struct forward, link) {
			if (f->id == id)
				return f;
		}
	}
	return NULL;
}
