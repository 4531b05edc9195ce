/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small, blocking host end of the channel. It checks on the way what every exec must
 * keep to: credits, order, nothing after the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/initd/peer.h"

#define LIMIT_MS 20000

static _Noreturn void peer_die(const char *what)
{
	fprintf(stderr, "peer: %s\n", what);
	exit(1);
}

int peer_send_buffer;

void peer_start(struct peer *p, const char *initd, bool resume)
{
	struct cm_resume generation = {.generation = 7};
	struct peer_frame f;
	struct cm_resumed resumed;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		peer_die("socketpair");
	if (peer_send_buffer && setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &peer_send_buffer,
					   sizeof(peer_send_buffer)) < 0)
		peer_die("setsockopt");
	p->next_id = 1;
	p->fd = fds[0];
	p->pid = fork();
	if (p->pid < 0)
		peer_die("fork");
	if (p->pid == 0) {
		/* Whatever runs the tests may have left descriptors open: not for initd.
		 */
		if (fds[1] == 3 ? fcntl(3, F_SETFD, 0) < 0 : dup2(fds[1], 3) < 0)
			_exit(98);
		if (close_range(4, ~0u, 0) < 0)
			_exit(98);
		execl(initd, initd, "--no-mounts", "--channel-fd", "3", (char *)NULL);
		_exit(99);
	}
	close(fds[1]);
	if (!peer_receive(p, &f, LIMIT_MS) || f.head.type != CM_F_HELLO ||
	    f.head.length != sizeof(struct cm_hello))
		peer_die("no HELLO");
	if (!resume)
		return;
	peer_send(p, CM_F_RESUME, 0, 0, &generation, sizeof(generation));
	if (!peer_receive(p, &f, LIMIT_MS) || f.head.type != CM_F_RESUMED ||
	    f.head.length != sizeof(resumed))
		peer_die("no RESUMED");
	memcpy(&resumed, f.payload, sizeof(resumed));
	if (resumed.generation != 7 || !resumed.realtime_ns)
		peer_die("wrong RESUMED");
}

int peer_wait(struct peer *p)
{
	int status, i;

	for (i = 0; i < LIMIT_MS / 10; i++) {
		if (waitpid(p->pid, &status, WNOHANG) == p->pid) {
			close(p->fd);
			return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		}
		usleep(10000);
	}
	kill(p->pid, SIGKILL);
	waitpid(p->pid, &status, 0);
	close(p->fd);
	return -1;
}

int peer_stop(struct peer *p)
{
	peer_send(p, CM_F_SHUTDOWN, 0, 0, NULL, 0);
	return peer_wait(p);
}

void peer_send_raw(struct peer *p, const void *bytes, size_t size)
{
	const char *at = bytes;
	ssize_t n;

	while (size) {
		n = send(p->fd, at, size, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return; /* the test sees it by what does not come back */
		at += n;
		size -= (size_t)n;
	}
}

void peer_send(struct peer *p, uint16_t type, uint16_t flags, uint32_t id,
	       const void *payload, size_t length)
{
	struct cm_frame head = {
		.length = (uint32_t)length, .type = type, .flags = flags, .id = id};

	peer_send_raw(p, &head, sizeof(head));
	peer_send_raw(p, payload, length);
}

static bool bytes_receive(struct peer *p, void *place, size_t size, int timeout_ms)
{
	struct pollfd fd = {.fd = p->fd, .events = POLLIN};
	char *at = place;
	ssize_t n;

	while (size) {
		if (poll(&fd, 1, timeout_ms) <= 0)
			return false;
		n = read(p->fd, at, size);
		if (n <= 0)
			return false;
		at += n;
		size -= (size_t)n;
	}
	return true;
}

bool peer_receive(struct peer *p, struct peer_frame *ret, int timeout_ms)
{
	if (!bytes_receive(p, &ret->head, sizeof(ret->head), timeout_ms))
		return false;
	if (ret->head.length > CM_FRAME_MAX || ret->head.reserved)
		peer_die("malformed frame from initd");
	ret->payload[ret->head.length] = 0;
	return bytes_receive(p, ret->payload, ret->head.length, LIMIT_MS);
}

static void string_put(uint8_t *buf, size_t *at, const char *s)
{
	size_t size = strlen(s) + 1;

	if (*at + size > CM_FRAME_MAX)
		peer_die("exec too large");
	memcpy(buf + *at, s, size);
	*at += size;
}

void peer_exec_as(struct peer *p, struct peer_exec *e, uint16_t flags, const char *cwd,
		  uint32_t uid, const char *const *argv, const char *const *envp)
{
	static uint8_t payload[CM_FRAME_MAX];
	struct cm_exec head = {.uid = uid, .gid = uid == getuid() ? getgid() : uid};
	size_t at = sizeof(head);

	for (; argv[head.argc]; head.argc++)
		string_put(payload, &at, argv[head.argc]);
	for (; envp && envp[head.envc]; head.envc++)
		string_put(payload, &at, envp[head.envc]);
	string_put(payload, &at, cwd);
	if (flags & CM_EXEC_TTY) {
		head.rows = 33;
		head.columns = 77;
	}
	memcpy(payload, &head, sizeof(head));
	memset(e, 0, sizeof(*e));
	e->id = p->next_id++;
	e->out_credit = e->err_credit = e->in_credit = CM_CREDIT_INITIAL;
	peer_send(p, CM_F_EXEC, flags, e->id, payload, at);
}

void peer_exec(struct peer *p, struct peer_exec *e, uint16_t flags,
	       const char *const *argv)
{
	static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};

	peer_exec_as(p, e, flags, "", getuid(), argv, env);
}

void peer_shell(struct peer *p, struct peer_exec *e, uint16_t flags, const char *script)
{
	const char *const argv[] = {"sh", "-c", script, NULL};

	peer_exec(p, e, flags, argv);
}

static void output_book(struct peer *p, struct peer_exec *e, const struct peer_frame *f)
{
	bool is_out = f->head.type == CM_F_STDOUT;
	char **text = is_out ? &e->out : &e->err;
	size_t *size = is_out ? &e->out_size : &e->err_size;
	uint32_t *left = is_out ? &e->out_credit : &e->err_credit;
	bool *end = is_out ? &e->out_end : &e->err_end;
	struct cm_credit credit = {.stream = f->head.type, .bytes = f->head.length};

	if (*end)
		e->after_end = true;
	if (!f->head.length) {
		*end = true;
		return;
	}
	if (f->head.length > *left) {
		e->overrun = true;
		return;
	}
	*left -= f->head.length;
	*text = realloc(*text, *size + f->head.length + 1);
	if (!*text)
		peer_die("no memory");
	memcpy(*text + *size, f->payload, f->head.length + 1);
	*size += f->head.length;
	if (e->no_grants || e->joining)
		return;
	peer_send(p, CM_F_CREDIT, 0, e->id, &credit, sizeof(credit));
	*left += credit.bytes;
}

/* The streams start again, ends of file included. */
static void running_book(struct peer_exec *e, const struct peer_frame *f)
{
	struct cm_running running;

	e->after_end |= !e->joining || f->head.length != sizeof(running);
	memcpy(&running, f->payload, sizeof(running));
	e->after_end |= running.pid != e->pid;
	e->joining = false;
	e->started = true;
	e->running++;
	e->running_flags = f->head.flags;
	e->running_credit = running.stdin_credit;
	e->out_credit = e->err_credit = CM_CREDIT_INITIAL;
	e->in_credit = running.stdin_credit;
	e->out_end = e->err_end = false;
}

static void exec_book(struct peer *p, struct peer_exec *e, const struct peer_frame *f)
{
	struct cm_credit credit;

	if (f->head.type == CM_F_ERROR) {
		e->errors++;
		snprintf(e->error, sizeof(e->error), "%.255s", (const char *)f->payload);
		return;
	}
	if (e->exited || e->failed)
		e->after_end = true;
	switch (f->head.type) {
	case CM_F_STARTED:
		e->after_end |= e->started || f->head.length != 4;
		memcpy(&e->pid, f->payload, 4);
		e->started = true;
		break;
	case CM_F_FAILED:
		e->after_end |= e->started || f->head.length != sizeof(e->failure);
		memcpy(&e->failure, f->payload, sizeof(e->failure));
		e->failed = true;
		break;
	case CM_F_STDOUT:
	case CM_F_STDERR:
		e->after_end |= !e->started;
		output_book(p, e, f);
		break;
	case CM_F_EXIT:
		e->after_end |= !e->started || f->head.length != sizeof(e->exit);
		memcpy(&e->exit, f->payload, sizeof(e->exit));
		e->exited = true;
		break;
	case CM_F_RUNNING:
		running_book(e, f);
		break;
	case CM_F_CREDIT:
		memcpy(&credit, f->payload, sizeof(credit));
		if (credit.stream != CM_F_STDIN || !credit.bytes ||
		    credit.bytes > CM_CREDIT_INITIAL - e->in_credit)
			e->overrun = true;
		e->in_credit += credit.bytes;
		break;
	default:
		peer_die("frame type that no exec has");
	}
}

static void frame_book(struct peer *p, struct peer_exec *execs, size_t count,
		       const struct peer_frame *f)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (execs[i].id == f->head.id)
			exec_book(p, &execs[i], f);
}

bool peer_resume(struct peer *p, struct peer_exec *execs, size_t count,
		 uint64_t generation)
{
	struct cm_resume resume = {.generation = generation};
	static struct peer_frame f;
	struct cm_resumed resumed;
	size_t i;

	for (i = 0; i < count; i++)
		execs[i].joining = true;
	peer_send(p, CM_F_RESUME, 0, 0, &resume, sizeof(resume));
	do {
		if (!peer_receive(p, &f, LIMIT_MS))
			return false;
		frame_book(p, execs, count, &f);
	} while (f.head.type != CM_F_RESUMED);
	for (i = 0; i < count; i++)
		execs[i].joining = false;
	memcpy(&resumed, f.payload, sizeof(resumed));
	return f.head.length == sizeof(resumed) && resumed.generation == generation;
}

bool peer_pump(struct peer *p, struct peer_exec *execs, size_t count, int timeout_ms)
{
	static struct peer_frame f;

	if (!peer_receive(p, &f, timeout_ms))
		return false;
	frame_book(p, execs, count, &f);
	return true;
}

bool peer_finish(struct peer *p, struct peer_exec *e)
{
	while (!e->exited && !e->failed)
		if (!peer_pump(p, e, 1, LIMIT_MS))
			return false;
	return true;
}

void peer_exec_done(struct peer_exec *e)
{
	free(e->out);
	free(e->err);
	e->out = e->err = NULL;
}

bool peer_stdin(struct peer *p, struct peer_exec *e, const char *data, size_t size)
{
	size_t n;

	while (size) {
		n = size < CM_FRAME_MAX ? size : CM_FRAME_MAX;
		while (n > e->in_credit)
			if (!peer_pump(p, e, 1, LIMIT_MS))
				return false;
		peer_send(p, CM_F_STDIN, 0, e->id, data, n);
		e->in_credit -= (uint32_t)n;
		data += n;
		size -= n;
	}
	return true;
}
