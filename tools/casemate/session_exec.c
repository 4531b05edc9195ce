/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command in a VM of the daemon's, with our own streams, signals and exit status: the same
 * to a user as `casemate run`. Or a connection into the VM, which is a command, too.
 *
 * A poll(2) loop between stdin, signals and the connection. The connection is always read: a
 * window bounds what the command may send ahead, and is granted again as bytes are written. A
 * slow stdout stalls only the command. The command is bound to the connection: whatever ends
 * us ends it.
 */
#include "tools/casemate/session.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/terminal.h"

#define WINDOW		524288u
#define WINDOW_TEXT	"window=524288"
#define CREDIT_STEP	(WINDOW / 4)
#define STDIN_FIRST	262144u		/* bytes that may be sent at once (docs/PROTOCOL.md) */
#define STDIN_CHUNK	32768u
#define GRACE_NS	(2 * NS_PER_SEC)
#define OPTIONS_MAX	2048u

struct session {
	struct casemate *c;
	unsigned long long exec;
	const char *name;
	const char *target;		/* of a connection; NULL: a command */
	int signals;
	bool tty, stdin_open, done;
	struct output {
		int fd;			/* to write to */
		size_t most;		/* that a write takes without waiting, or in no time */
		bool broken;		/* nobody reads our output any more */
	} out[2];
	size_t owed;			/* written, and not granted again yet */
	uint64_t stdin_credit;
	int status, signal_seen;
	uint64_t deadline_ns;
	struct terminal terminal;
};

static void session_end(struct session *s, int status)
{
	if (!s->done)
		s->status = status;
	s->done = true;
}

static void exec_signal(struct session *s, int number)
{
	char id[24], text[16];

	snprintf(id, sizeof(id), "%llu", s->exec);
	snprintf(text, sizeof(text), "%d", number);
	if (casemate_call(s->c, "signal", id, text, NULL) < 0) {
		session_fail(s->c);
		session_end(s, EXIT_CASEMATE);
	}
}

static void on_resize(struct session *s)
{
	struct winsize size;
	char id[24], text[16];

	if (!s->tty || ioctl(0, TIOCGWINSZ, &size) < 0)
		return;
	snprintf(id, sizeof(id), "%llu", s->exec);
	snprintf(text, sizeof(text), "%ux%u", size.ws_row, size.ws_col);
	casemate_call(s->c, "resize", id, text, NULL);
}

static void on_signal(struct session *s)
{
	struct signalfd_siginfo info;
	int number;

	if (read(s->signals, &info, sizeof(info)) != sizeof(info))
		return;
	number = (int)info.ssi_signo;
	if (number == SIGWINCH) {
		on_resize(s);
	} else if (s->signal_seen) {
		/* The second one: the connection's end kills the command. */
		session_end(s, 128 + number);
	} else {
		s->signal_seen = number;
		s->deadline_ns = time_monotonic_ns() + GRACE_NS;
		exec_signal(s, number);
	}
}

static int time_left_ms(const struct session *s)
{
	uint64_t now = time_monotonic_ns();

	if (!s->deadline_ns)
		return -1;
	return now >= s->deadline_ns ? 0 : (int)((s->deadline_ns - now) / 1000000 + 1);
}

/*
 * Output is written without missing signals. What we write to is shared with others, so it
 * cannot be made non-blocking, but a pipe can be opened a second time. Where that does not go,
 * and for terminals, PIPE_BUF bytes are written at a time, which do not block where poll(2)
 * says that there is room.
 */
static void output_init(struct output *out, int fd)
{
	char path[32];
	struct stat st;

	*out = (struct output){ .fd = fd, .most = PIPE_BUF };
	if (fstat(fd, &st) < 0)
		return;
	if (S_ISREG(st.st_mode) || (S_ISCHR(st.st_mode) && !isatty(fd)))
		out->most = SIZE_MAX;
	if (!S_ISFIFO(st.st_mode))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return;
	out->fd = fd;
	out->most = SIZE_MAX;
}

static void output_done(struct output *out, int fd)
{
	if (out->fd != fd)
		fd_close(out->fd);
	out->fd = fd;
}

static void output(struct session *s, int fd, const uint8_t *data, size_t len)
{
	struct output *out = &s->out[fd - 1];

	while (len > 0 && !s->done && !out->broken) {
		struct pollfd p[2] = { { out->fd, POLLOUT, 0 }, { s->signals, POLLIN, 0 } };
		ssize_t n;

		if (poll(p, 2, time_left_ms(s)) == 0 && time_left_ms(s) == 0)
			session_end(s, 128 + s->signal_seen);
		if (p[1].revents)
			on_signal(s);
		if (!p[0].revents)
			continue;
		n = write(out->fd, data, len < out->most ? len : out->most);
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		} else if (errno != EAGAIN && errno != EINTR) {
			out->broken = true;
			/* As if the command had written to the closed pipe itself. */
			if (fd == 1 && errno == EPIPE) {
				exec_signal(s, SIGPIPE);
			} else if (fd == 1) {
				casemate_fail("cannot write the command's output: %s",
					      strerror(errno));
				session_end(s, EXIT_CASEMATE);
			}
		}
	}
}

/* Whoever reads our stdout sees its end, and the descriptor stays taken. */
static void output_end(struct session *s)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	output_done(&s->out[0], 1);
	if (null >= 0)
		dup2(null, 1);
	fd_close(null);
}

static void on_end(struct session *s, const struct casemate_event *e)
{
	int status = e->signal ? 128 + e->signal : e->code;

	if (e->truncated)
		fprintf(stderr, "casemate: the output was cut at its limit\n");
	if (e->end == CASEMATE_EXIT && e->timed_out) {
		fprintf(stderr, "casemate: timeout\n");
		status = EXIT_TIMEOUT;
	} else if (e->end == CASEMATE_FAILED && !strcmp(e->text, "exec")) {
		status = e->error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
		casemate_fail("%s: %s", s->name, e->error == ENOENT ? "not found in the guest" :
			      strerror(e->error));
	} else if (e->end == CASEMATE_FAILED) {
		status = !strcmp(e->text, "chdir") ? EXIT_CANNOT_RUN : EXIT_CASEMATE;
		casemate_fail("the guest cannot start %s (%s): %s", s->name, e->text,
			      strerror(e->error));
	} else if (e->end == CASEMATE_LOST) {
		status = e->timed_out ? EXIT_TIMEOUT : EXIT_CASEMATE;
		casemate_fail("the command was lost: %s", e->text);
	}
	session_end(s, status);
}

static void on_event(struct session *s, const struct casemate_event *e)
{
	if (e->exec != s->exec)
		return;
	switch (e->kind) {
	case CASEMATE_STDOUT:
	case CASEMATE_STDERR:
		s->owed += e->len;
		output(s, e->kind == CASEMATE_STDOUT ? 1 : 2, e->data, e->len);
		if (s->done || s->owed < CREDIT_STEP)
			break;
		casemate_credit(s->c, s->exec, s->owed);
		s->owed = 0;
		break;
	case CASEMATE_STDOUT_END:
		output_end(s);
		break;
	case CASEMATE_STDIN_CREDIT:
		s->stdin_credit += e->len;
		break;
	case CASEMATE_END:
		on_end(s, e);
		break;
	default:
		break;
	}
}

static void on_stdin(struct session *s)
{
	static uint8_t bytes[STDIN_CHUNK];
	size_t want = s->stdin_credit < sizeof(bytes) ? (size_t)s->stdin_credit : sizeof(bytes);
	ssize_t n = read(0, bytes, want);
	char id[24];

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		s->stdin_credit -= (size_t)n;
		casemate_stdin(s->c, s->exec, bytes, (size_t)n);
		return;
	}
	/* An unreadable stdin ends like an empty one. */
	s->stdin_open = false;
	snprintf(id, sizeof(id), "%llu", s->exec);
	casemate_call(s->c, "close-stdin", id, NULL);
}

/* What was read ahead is there already, so poll comes after it, and after what it changed:
 * credit may have come for a stdin that was waiting for it. */
static void session_step(struct session *s)
{
	struct pollfd p[3];
	struct casemate_event e;
	int r;

	while ((r = casemate_next(s->c, &e, 0)) == 1 && !s->done)
		on_event(s, &e);
	if (r < 0 && !s->done) {
		session_fail(s->c);
		session_end(s, EXIT_CASEMATE);
	}
	if (s->done)
		return;
	p[0] = (struct pollfd){ casemate_fd(s->c), POLLIN, 0 };
	p[1] = (struct pollfd){ s->signals, POLLIN, 0 };
	p[2] = (struct pollfd){ s->stdin_open && s->stdin_credit > 0 ? 0 : -1, POLLIN, 0 };
	if (poll(p, 3, time_left_ms(s)) == 0 && time_left_ms(s) == 0)
		session_end(s, 128 + s->signal_seen);
	if (p[1].revents)
		on_signal(s);
	if (p[2].revents)
		on_stdin(s);
}

static int session_begin(struct session *s, const char *vm, char **argv,
			 const char *const *options)
{
	static const char *words[OPTIONS_MAX + 8];
	char pty[32];
	struct winsize size = { .ws_row = 24, .ws_col = 80 };
	size_t n = 0;
	int r;

	while (options && options[n] && n < OPTIONS_MAX) {
		words[n] = options[n];
		n++;
	}
	words[n++] = WINDOW_TEXT;
	if (s->target) {
		words[n] = NULL;
		r = casemate_connect(s->c, vm, s->target, words, &s->exec);
		return r == 0 ? 0 : session_fail(s->c);
	}
	words[n++] = "bound=yes";
	if (s->stdin_open)
		words[n++] = "stdin=yes";
	if (s->tty) {
		ioctl(0, TIOCGWINSZ, &size);
		snprintf(pty, sizeof(pty), "pty=%ux%u", size.ws_row, size.ws_col);
		words[n++] = pty;
	}
	words[n] = NULL;
	r = casemate_exec(s->c, vm, (const char *const *)argv, words, &s->exec);
	return r == 0 ? 0 : session_fail(s->c);
}

static int session_run(struct session *s, const char *vm, char **argv,
		       const char *const *options)
{
	int status;

	s->stdin_credit = STDIN_FIRST;
	s->stdin_open = fcntl(0, F_GETFD) >= 0;
	s->signals = terminal_signals();
	if (s->signals < 0)
		return casemate_fail("cannot wait for signals: %s", strerror(errno));
	for (int i = 0; i < 2; i++)
		output_init(&s->out[i], i + 1);
	status = session_begin(s, vm, argv, options);
	if (status == 0) {
		if (s->tty)
			terminal_raw(&s->terminal);
		while (!s->done)
			session_step(s);
		terminal_restore(&s->terminal);
		status = s->status;
	}
	for (int i = 0; i < 2; i++)
		output_done(&s->out[i], i + 1);
	fd_close(s->signals);
	return status;
}

int session_exec(struct casemate *c, const char *vm, char **argv, const char *const *options,
		 bool tty)
{
	struct session s = { .c = c, .name = argv[0], .tty = tty };

	if (tty && !isatty(0))
		return casemate_fail("--tty needs a terminal as stdin");
	return session_run(&s, vm, argv, options);
}

int session_connect(struct casemate *c, const char *vm, const char *target,
		    const char *const *options)
{
	struct session s = { .c = c, .name = "the connection", .target = target };

	return session_run(&s, vm, NULL, options);
}
