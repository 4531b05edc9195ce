/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of execs. initd's only thread owns it. A slot goes through these states:
 *
 *   free      id == 0
 *   running   the program runs; stdin is fed, output is read as credit and room allow
 *   exited    its status is known. Output is read until the pipes are empty, since all
 * that the task wrote must come before EXIT finished  both outputs have ended and their
 * ends were said: EXIT is sent, the slot freed
 *
 * Every frame that must be said is a flag or a counter in the slot until the channel has
 * room for it (exec_settle), so nothing is lost when the host stalls and nothing blocks.
 *
 * "Empty" after the exit: a background process may hold a pipe open and may write without
 * end. So a pipe is empty at end of file, when there is nothing to read, or after as many
 * bytes as it held when the status was taken (at least 64 KiB, what a pipe holds by
 * default). Such a pipe then lingers: it stays open and what comes is read and dropped,
 * so that a server which was started in the background is not killed by SIGPIPE for
 * logging a line. The number of lingering pipes is bounded; the oldest is closed. A
 * terminal is closed at once: its processes are hung up, as when a terminal window
 * closes.
 *
 * Frames that cross an exit on their way (STDIN, SIGNAL, CREDIT ... for an id that has
 * just ended) are no mistake of the host: the last EXEC_PAST ids are remembered and such
 * frames are dropped without an answer.
 *
 * A further RESUME (exec_announce) puts a new client in the place of the old one, at any
 * moment. What was queued for the old one stays in front and is sent to its end: a frame may be
 * half written. Everything counted in frames starts anew for each exec: credits, ends of file
 * (the new client has not seen those already said) and the memory of ended ids, of which the
 * new client knows nothing. Only stdin that has come and is not passed on yet is carried over,
 * as credit that is missing.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "abi/guestctl.h"
#include "initd/channel.h"
#include "initd/exec.h"
#include "initd/spawn.h"

#define PIPE_BYTES   65536u     /* what a pipe holds, and a pty at most */
#define LEFT_UNKNOWN (1u << 20) /* largest size a pipe can be given */
#define GRANT_STEP   (CM_CREDIT_INITIAL / 4)

enum wait_kind { WAIT_IN, WAIT_OUT, WAIT_ERR, WAIT_LINGER };

void exec_table_init(struct exec_table *t, struct channel *channel, int null_fd)
{
	size_t i;

	t->channel = channel;
	t->null_fd = null_fd;
	for (i = 0; i < EXEC_LINGER; i++)
		t->linger[i] = -1;
}

static struct exec *exec_find(struct exec_table *t, uint32_t id)
{
	size_t i;

	for (i = 0; i < EXEC_MAX; i++)
		if (t->execs[i].id == id)
			return &t->execs[i];
	return NULL;
}

static bool exec_is_past(const struct exec_table *t, uint32_t id)
{
	size_t i;

	for (i = 0; i < EXEC_PAST; i++)
		if (t->past[i] == id)
			return true;
	return false;
}

static void past_add(struct exec_table *t, uint32_t id)
{
	t->past[t->past_next] = id;
	t->past_next = (t->past_next + 1) % EXEC_PAST;
}

/* The exec of a frame. NULL: *ret_why is the refusal, or NULL when it is to be dropped.
 */
static struct exec *exec_of(struct exec_table *t, uint32_t id, const char **ret_why)
{
	struct exec *e = exec_find(t, id);

	*ret_why = e || exec_is_past(t, id) ? NULL : "no exec has this id";
	return e;
}

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* ---- Start ---- */

static void exec_failed(struct exec_table *t, uint32_t id, int error, uint32_t step)
{
	struct cm_failed failed = {.error = (uint32_t)error, .step = step};

	past_add(t, id);
	channel_send(t->channel, CM_F_FAILED, 0, id, &failed, sizeof(failed));
}

/* At the start, and for each new client. */
static void output_count_anew(struct exec_output *o, bool has_end)
{
	o->credit = CM_CREDIT_INITIAL;
	o->end_due = has_end;
}

const char *exec_frame_exec(struct exec_table *t, const struct frame *f)
{
	struct spawn spawn;
	struct exec *e;
	const char *why;
	uint32_t step, pid;
	int error;

	if (exec_find(t, f->id) || exec_is_past(t, f->id))
		return "id was used before";
	why = frame_parse_exec(f, &t->request);
	if (why)
		return why;
	e = exec_find(t, 0);
	if (!e) {
		exec_failed(t, f->id, EAGAIN, CM_FAILED_SPAWN);
		return NULL;
	}
	error = spawn_start(&t->request, f->flags, t->null_fd, &spawn, &step);
	if (error) {
		exec_failed(t, f->id, error, step);
		return NULL;
	}
	memset(e, 0, sizeof(*e));
	e->id = f->id;
	e->pid = spawn.pid;
	e->tty = f->flags & CM_EXEC_TTY;
	e->builtin = f->flags & CM_EXEC_BUILTIN;
	e->in_fd = spawn.in;
	e->slave_fd = spawn.slave;
	e->in_open = f->flags & CM_EXEC_STDIN;
	e->last_in = '\n';
	e->in_credit = CM_CREDIT_INITIAL;
	e->out.fd = spawn.out;
	e->err.fd = spawn.err;
	output_count_anew(&e->out, true);
	output_count_anew(&e->err, !e->tty);
	t->count++;
	pid = (uint32_t)e->pid;
	channel_send(t->channel, CM_F_STARTED, 0, e->id, &pid, sizeof(pid));
	return NULL;
}

/* ---- Stdin ---- */

static void in_drop(struct exec *e)
{
	e->in_grant += (uint32_t)(e->in_end - e->in_start);
	e->in_start = e->in_end = 0;
	fd_close(&e->in_fd);
}

/* A terminal has no end of file of its own: the line discipline makes one of VEOF at the
 * start of a line. In the middle of one the first VEOF only hands the line on. */
static void in_end_terminal(struct exec *e)
{
	struct termios mode;
	uint8_t ends[2];

	if (tcgetattr(e->in_fd, &mode) < 0 || !(mode.c_lflag & ICANON))
		return;
	ends[0] = ends[1] = mode.c_cc[VEOF];
	(void)!write(e->in_fd, ends, e->last_in == '\n' ? 1 : 2);
}

static void in_feed(struct exec *e)
{
	ssize_t n;

	while (e->in_fd >= 0 && e->in_start < e->in_end) {
		n = write(e->in_fd, e->in_queue + e->in_start, e->in_end - e->in_start);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			/* Nobody reads it any more; the host need not know. */
			in_drop(e);
			return;
		}
		e->in_start += (size_t)n;
		e->in_grant += (uint32_t)n;
		e->last_in = e->in_queue[e->in_start - 1];
	}
	e->in_start = e->in_end = 0;
	if (!e->in_open && e->in_fd >= 0) {
		if (e->tty)
			in_end_terminal(e);
		fd_close(&e->in_fd);
	}
}

static const char *in_append(struct exec *e, const uint8_t *data, uint32_t length)
{
	if (!e->in_queue)
		e->in_queue = malloc(CM_CREDIT_INITIAL);
	if (!e->in_queue)
		return "no memory for stdin";
	if (e->in_end + length > CM_CREDIT_INITIAL) {
		memmove(e->in_queue, e->in_queue + e->in_start, e->in_end - e->in_start);
		e->in_end -= e->in_start;
		e->in_start = 0;
	}
	/* Fits: what is queued plus what may still come is never more than the credit. */
	memcpy(e->in_queue + e->in_end, data, length);
	e->in_end += length;
	return NULL;
}

const char *exec_frame_stdin(struct exec_table *t, const struct frame *f)
{
	const char *why;
	struct exec *e = exec_of(t, f->id, &why);

	if (!e)
		return why;
	if (!e->in_open)
		return "stdin of this exec is closed";
	if (f->length > e->in_credit)
		return "stdin beyond its credit";
	if (f->length == 0) {
		e->in_open = false;
	} else if (e->in_fd < 0) {
		e->in_credit -= f->length;
		e->in_grant += f->length;
	} else {
		why = in_append(e, f->payload, f->length);
		if (why)
			return why;
		e->in_credit -= f->length;
	}
	in_feed(e);
	return NULL;
}

/* ---- Signals, terminal size, credit ---- */

/* All that the program has started, detached or not. False where the kernel has no such thing,
 * or nothing is left. */
static bool kill_tree(pid_t pid)
{
	char text[16];
	int fd = open(CM_KILL_PATH, O_WRONLY | O_CLOEXEC), n = snprintf(text, sizeof(text), "%d",
									(int)pid);
	bool done;

	if (fd < 0)
		return false;
	done = write(fd, text, (size_t)n) == n;
	close(fd);
	return done;
}

const char *exec_frame_signal(struct exec_table *t, const struct frame *f)
{
	uint32_t number = frame_u32(f->payload);
	const char *why;
	struct exec *e = exec_of(t, f->id, &why);

	if (number < 1 || number > 64)
		return "signal number out of range";
	if (!e)
		return why;
	if (number == SIGKILL && kill_tree(e->pid))
		return NULL;
	/* After the exit the group may live on, and its number is not given away while it
	 * does. ESRCH: it has just ended. */
	kill(-e->pid, (int)number);
	return NULL;
}

const char *exec_frame_resize(struct exec_table *t, const struct frame *f)
{
	struct winsize size = {.ws_row = frame_u16(f->payload),
			       .ws_col = frame_u16(f->payload + 2)};
	const char *why;
	struct exec *e = exec_of(t, f->id, &why);

	if (!e)
		return why;
	if (!e->tty)
		return "exec has no terminal";
	if (e->out.fd >= 0)
		ioctl(e->out.fd, TIOCSWINSZ, &size);
	return NULL;
}

const char *exec_frame_credit(struct exec_table *t, const struct frame *f)
{
	uint32_t stream = frame_u32(f->payload);
	uint32_t bytes = frame_u32(f->payload + 4);
	const char *why;
	struct exec *e = exec_of(t, f->id, &why);
	struct exec_output *o;

	if (stream != CM_F_STDOUT && stream != CM_F_STDERR)
		return "credit for a stream that is not the guest's to send";
	if (bytes < 1 || bytes > CM_CREDIT_INITIAL)
		return "credit out of range";
	if (!e)
		return why;
	o = stream == CM_F_STDOUT ? &e->out : &e->err;
	if (bytes > CM_CREDIT_INITIAL - o->credit)
		return "more credit than was used";
	o->credit += bytes;
	return NULL;
}

/* ---- A new client ---- */

static void exec_announce_one(struct exec_table *t, struct exec *e)
{
	uint32_t held = (uint32_t)(e->in_end - e->in_start);
	uint16_t flags = (uint16_t)((e->tty ? CM_EXEC_TTY : 0) |
				    (e->builtin ? CM_EXEC_BUILTIN : 0) |
				    (e->in_open ? CM_EXEC_STDIN : 0));
	struct cm_running running = {.pid = (uint32_t)e->pid};

	if (e->in_open) {
		e->in_credit = CM_CREDIT_INITIAL - held;
		e->in_grant = 0;
		running.stdin_credit = e->in_credit;
	}
	output_count_anew(&e->out, true);
	output_count_anew(&e->err, !e->tty);
	channel_send(t->channel, CM_F_RUNNING, flags, e->id, &running, sizeof(running));
}

void exec_announce(struct exec_table *t)
{
	size_t i;

	_Static_assert(EXEC_MAX * (CHANNEL_HEAD + sizeof(struct cm_running)) + CHANNEL_HEAD +
			       sizeof(struct cm_resumed) <= CHANNEL_ANSWER,
		       "RUNNING of every exec, and RESUMED");
	memset(t->past, 0, sizeof(t->past));
	for (i = 0; i < EXEC_MAX && t->count; i++)
		if (t->execs[i].id)
			exec_announce_one(t, &t->execs[i]);
}

/* ---- Output ---- */

static void linger_add(struct exec_table *t, int fd)
{
	size_t slot = t->linger_next, i;

	for (i = 0; i < EXEC_LINGER; i++)
		if (t->linger[i] < 0)
			slot = i;
	if (t->linger[slot] >= 0) {
		fd_close(&t->linger[slot]);
		t->linger_next = (slot + 1) % EXEC_LINGER;
	}
	t->linger[slot] = fd;
}

static void linger_read(int *fd)
{
	static uint8_t sink[65536];
	ssize_t n = read(*fd, sink, sizeof(sink));

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		fd_close(fd);
}

/* Reads once. False when there is no point in trying again in this turn. */
static bool output_read(struct exec_table *t, struct exec *e, struct exec_output *o)
{
	uint16_t type = o == &e->out ? CM_F_STDOUT : CM_F_STDERR;
	size_t want = channel_data_room(t->channel);
	uint8_t *place;
	ssize_t n;

	if (want > o->credit)
		want = o->credit;
	if (e->exited && want > o->left)
		want = o->left;
	if (o->fd < 0 || !want)
		return false;
	place = channel_reserve(t->channel, want);
	n = read(o->fd, place, want);
	if (n > 0) {
		channel_commit(t->channel, type, 0, e->id, (size_t)n);
		o->credit -= (uint32_t)n;
		if (e->exited)
			o->left -= (uint32_t)n;
		return true;
	}
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN) {
		if (e->exited)
			o->left = 0;
		return false;
	}
	/* End of file; EIO is how a pty's master says it. */
	fd_close(&o->fd);
	return false;
}

/* How much a finished task can have left in its pipe. */
static uint32_t output_left(const struct exec *e, const struct exec_output *o)
{
	int bytes;

	if (o->fd < 0)
		return 0;
	/* A pty may hold bytes on their way that FIONREAD does not count. */
	if (e->tty)
		return PIPE_BYTES;
	if (ioctl(o->fd, FIONREAD, &bytes) < 0 || bytes < 0)
		return LEFT_UNKNOWN;
	/* Without credit the end could not be looked for, and here it is known. */
	if (bytes == 0 && o->credit == 0)
		return 0;
	return (uint32_t)bytes > PIPE_BYTES ? (uint32_t)bytes : PIPE_BYTES;
}

/* After the exit: reads what is left, then lets go of the descriptor. */
static void output_drain(struct exec_table *t, struct exec *e, struct exec_output *o)
{
	while (output_read(t, e, o))
		;
	/* The last byte may have taken the last credit. */
	if (o->left && o->credit == 0)
		o->left = output_left(e, o) > 0 ? o->left : 0;
	if (o->fd < 0 || o->left)
		return;
	if (e->tty)
		fd_close(&o->fd);
	else
		linger_add(t, o->fd);
	o->fd = -1;
}

void exec_reaped(struct exec_table *t, pid_t pid, int status, const struct rusage *usage)
{
	struct exec *e;

	for (e = t->execs; e < t->execs + EXEC_MAX; e++)
		if (e->id && !e->exited && e->pid == pid)
			break;
	if (e == t->execs + EXEC_MAX)
		return; /* an orphan */
	e->exited = true;
	e->status = status;
	e->usage = *usage;
	in_drop(e);
	fd_close(&e->slave_fd);
	e->out.left = output_left(e, &e->out);
	e->err.left = output_left(e, &e->err);
}

/* ---- The loop's side ---- */

static void poll_put(struct pollfd **fds, struct exec_poll **refs, int fd, short events,
		     enum wait_kind kind, size_t index)
{
	*(*fds)++ = (struct pollfd){.fd = fd, .events = events};
	*(*refs)++ = (struct exec_poll){.kind = (uint16_t)kind, .index = (uint16_t)index};
}

size_t exec_poll_add(struct exec_table *t, struct pollfd *fds, struct exec_poll *refs)
{
	struct pollfd *first = fds;
	bool room = channel_data_room(t->channel) > 0;
	struct exec *e;
	size_t i;

	for (i = 0; i < EXEC_MAX && t->count; i++) {
		e = &t->execs[i];
		if (!e->id)
			continue;
		if (e->in_fd >= 0 && e->in_start < e->in_end)
			poll_put(&fds, &refs, e->in_fd, POLLOUT, WAIT_IN, i);
		/* Never without interest: a hang-up is reported whether asked for or not.
		 */
		if (e->out.fd >= 0 && e->out.credit && room)
			poll_put(&fds, &refs, e->out.fd, POLLIN, WAIT_OUT, i);
		if (e->err.fd >= 0 && e->err.credit && room)
			poll_put(&fds, &refs, e->err.fd, POLLIN, WAIT_ERR, i);
	}
	for (i = 0; i < EXEC_LINGER; i++)
		if (t->linger[i] >= 0)
			poll_put(&fds, &refs, t->linger[i], POLLIN, WAIT_LINGER, i);
	return (size_t)(fds - first);
}

void exec_poll_handle(struct exec_table *t, const struct pollfd *fd, struct exec_poll ref)
{
	struct exec *e = &t->execs[ref.index];

	if (!fd->revents)
		return;
	/* Between poll and now a frame may have ended an exec or closed a descriptor; a
	 * slot that has changed hands only costs a read that finds nothing. */
	switch (ref.kind) {
	case WAIT_LINGER:
		if (t->linger[ref.index] == fd->fd)
			linger_read(&t->linger[ref.index]);
		break;
	case WAIT_IN:
		if (e->id)
			in_feed(e);
		break;
	case WAIT_OUT:
		if (e->id)
			output_read(t, e, &e->out);
		break;
	case WAIT_ERR:
		if (e->id)
			output_read(t, e, &e->err);
		break;
	}
}

static bool output_settle(struct exec_table *t, struct exec *e, struct exec_output *o)
{
	uint16_t type = o == &e->out ? CM_F_STDOUT : CM_F_STDERR;

	if (e->exited && o->fd >= 0)
		output_drain(t, e, o);
	if (o->fd >= 0)
		return false;
	if (o->end_due && channel_send(t->channel, type, 0, e->id, NULL, 0))
		o->end_due = false;
	return !o->end_due;
}

static uint64_t time_ns(struct timeval tv)
{
	return (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
}

static void exec_settle_one(struct exec_table *t, struct exec *e)
{
	struct cm_credit credit = {.stream = CM_F_STDIN, .bytes = e->in_grant};
	struct cm_exit end = {
		.status = (uint32_t)e->status,
		.user_ns = time_ns(e->usage.ru_utime),
		.system_ns = time_ns(e->usage.ru_stime),
		.max_rss = (uint64_t)e->usage.ru_maxrss * 1024,
	};
	bool done;

	if (e->in_open && !e->exited && e->in_grant >= GRANT_STEP &&
	    channel_send(t->channel, CM_F_CREDIT, 0, e->id, &credit, sizeof(credit))) {
		e->in_credit += e->in_grant;
		e->in_grant = 0;
	}
	done = output_settle(t, e, &e->out);
	done = output_settle(t, e, &e->err) && done;
	if (!done || !e->exited ||
	    !channel_send(t->channel, CM_F_EXIT, 0, e->id, &end, sizeof(end)))
		return;
	past_add(t, e->id);
	free(e->in_queue);
	e->in_queue = NULL;
	e->id = 0;
	t->count--;
}

void exec_settle(struct exec_table *t)
{
	size_t i;

	for (i = 0; i < EXEC_MAX && t->count; i++)
		if (t->execs[i].id)
			exec_settle_one(t, &t->execs[i]);
}

void exec_kill_all(struct exec_table *t)
{
	size_t i;

	for (i = 0; i < EXEC_MAX; i++)
		if (t->execs[i].id)
			kill(-t->execs[i].pid, SIGKILL);
}
