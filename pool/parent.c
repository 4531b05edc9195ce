/* SPDX-License-Identifier: Apache-2.0 */
/* The privileged half of the daemon; see parent.h. */
#include "pool/parent.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"

#define SHORT_LIFE_NS	NS_PER_SEC
#define SHORT_LIVES	6u		/* in a row, and we give up */
#define BACKOFF_NS	(NS_PER_SEC / 10)	/* doubles */
#define CLEAR_NS	(NS_PER_SEC / 50)
#define GONE_NS		(2 * NS_PER_SEC)	/* from its socket's end to its own */
#define STOP_NS		(15 * NS_PER_SEC)	/* for the engine to end in order */
#define HANG_NS		(5 * NS_PER_SEC)	/* for a killed one to be gone */

static void parent_say(struct parent *p, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void parent_say(struct parent *p, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	p->say(p, text);
}

static void later(struct parent *p, uint64_t ns)
{
	timer_set(p->loop, &p->timer, time_monotonic_ns() + ns);
}

/* ---- The engine ---- */

static void on_message(struct boundary *b, const struct boundary_message *m, int *fds);
static void on_lost(struct boundary *b, const char *why);

static uint32_t confinement(const struct processes *all)
{
	return (all->uid_count > 0 ? BOUNDARY_USERS : 0) |
	       (all->jail.root >= 0 ? BOUNDARY_ROOTS : 0) |
	       (all->jail.network >= 0 ? BOUNDARY_NO_NET : 0) |
	       (all->cgroups.memory && all->cgroups.pids ? BOUNDARY_GROUPS : 0);
}

static int engine_launch(struct parent *p, struct err *err)
{
	struct boundary_message start = { .kind = BOUNDARY_START,
					  .flags = confinement(&p->processes) };
	FD_CLEANUP int ours = -1, theirs = -1;
	const char *step;
	int pair[2], fds[3], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return err_set_errno(err, errno, "cannot make a socket");
	ours = pair[0];
	theirs = pair[1];
	fds[0] = theirs;
	fds[1] = p->listener;
	fds[2] = p->store;
	p->engine.fds = fds;
	p->engine.fd_count = 3;
	r = launch(&p->engine, &p->engine_pid, &step);
	if (r < 0)
		return err_set_errno(err, r, "cannot start the engine: %s", step);
	p->boundary.message = on_message;
	p->boundary.lost = on_lost;
	r = boundary_init(&p->boundary, p->loop, fd_take(&ours), true);
	boundary_text_set(&start, p->reason);
	p->reason[0] = '\0';
	if (r == 0)
		r = boundary_send(&p->boundary, &start, NULL, 0);
	return r < 0 ? err_set_errno(err, r, "cannot speak to the engine") : 0;
}

static int engine_start(struct parent *p, struct err *err)
{
	int r;

	processes_renew(&p->processes);
	timer_set(p->loop, &p->timer, 0);
	p->engine_began_ns = time_monotonic_ns();
	p->state = PARENT_SERVING;
	r = engine_launch(p, err);
	if (r < 0 && p->engine_pid > 0)
		kill(p->engine_pid, SIGKILL);
	return r;
}

static void leave(struct parent *p, int result)
{
	p->result = result;
	p->loop->stop = true;
}

static void clear_begin(struct parent *p)
{
	boundary_done(&p->boundary);
	p->state = PARENT_CLEARING;
	p->clearing_ns = time_monotonic_ns();
	processes_kill_all(&p->processes);
	later(p, CLEAR_NS);
}

/* Ends an engine that is not to be trusted any further. */
static void engine_end(struct parent *p, const char *why)
{
	snprintf(p->reason, sizeof(p->reason), "%s", why);
	if (p->engine_pid > 0)
		kill(p->engine_pid, SIGKILL);
	clear_begin(p);
}

static void next_engine(struct parent *p)
{
	struct err err = ERR_INIT;

	if (engine_start(p, &err) < 0) {
		parent_say(p, "%s", err.text);
		engine_end(p, err.text);
		p->short_lives++;
	}
}

/* No engine and no VM is left. */
static void cleared(struct parent *p)
{
	bool orderly = !p->reason[0];

	timer_set(p->loop, &p->timer, 0);
	if (p->stopping || orderly) {
		leave(p, orderly ? 0 : -EIO);
	} else if (!p->served) {
		/* It said why. */
		leave(p, -EIO);
	} else if (p->short_lives >= SHORT_LIVES) {
		parent_say(p, "the engine ended %u times at once, the last time by this: %s; "
			   "giving up", p->short_lives, p->reason);
		leave(p, -EIO);
	} else if (p->short_lives > 1) {
		p->state = PARENT_WAITING;
		later(p, BACKOFF_NS << (p->short_lives - 2));
	} else {
		next_engine(p);
	}
}

static void engine_gone(struct parent *p, int status)
{
	uint64_t lived = time_monotonic_ns() - p->engine_began_ns;

	p->engine_pid = 0;
	p->short_lives = lived < SHORT_LIFE_NS ? p->short_lives + 1 : 0;
	/* A reason that is there already is why we ended it. */
	if (p->state == PARENT_SERVING) {
		if (WIFSIGNALED(status))
			snprintf(p->reason, sizeof(p->reason), "signal %d (%s)",
				 WTERMSIG(status), strsignal(WTERMSIG(status)));
		else if (WEXITSTATUS(status) != 0)
			snprintf(p->reason, sizeof(p->reason), "exit code %d",
				 WEXITSTATUS(status));
	}
	if (p->reason[0] && p->served)
		parent_say(p, "the engine is gone, and all VMs with it: %s", p->reason);
	clear_begin(p);
}

/* All that are ours to wait for. */
static void children_reap(struct parent *p)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == p->engine_pid)
			engine_gone(p, status);
		else
			processes_reaped(&p->processes, pid, status);
	}
	if (pid < 0 && errno == ECHILD && p->state == PARENT_CLEARING &&
	    p->engine_pid == 0 && processes_empty(&p->processes))
		cleared(p);
}

/* A thread of a killed engine may wait for a file system whose server does not answer, and be
 * let go by the host's kernel when that ends. It does nothing any more. */
static void clearing_look(struct parent *p)
{
	if (p->state != PARENT_CLEARING || !p->stopping || p->engine_pid == 0 ||
	    !processes_empty(&p->processes) ||
	    time_monotonic_ns() < p->clearing_ns + HANG_NS)
		return;
	parent_say(p, "the engine (%d) hangs in the host's kernel, perhaps in a file system "
		   "that does not answer, and is left there", (int)p->engine_pid);
	leave(p, -EIO);
}

static void on_timer(struct timer *timer)
{
	struct parent *p = list_entry(timer, struct parent, timer);

	timer_set(p->loop, timer, 0);
	switch (p->state) {
	case PARENT_SERVING:
		engine_end(p, p->boundary.socket < 0 ? "it closed the boundary" :
			   "it did not stop in time");
		break;
	case PARENT_CLEARING:
		/* Those whose parents are gone only now. */
		processes_kill_all(&p->processes);
		later(p, CLEAR_NS);
		children_reap(p);
		clearing_look(p);
		break;
	case PARENT_WAITING:
		if (p->stopping)
			leave(p, 0);
		else
			next_engine(p);
		break;
	}
}

static void on_children(struct watch *watch, uint32_t events)
{
	struct parent *p = list_entry(watch, struct parent, children);
	struct signalfd_siginfo info;

	while (read(watch->fd, &info, sizeof(info)) == sizeof(info))
		;
	children_reap(p);
}

/* ---- Messages ---- */

static void answer(struct parent *p, const struct boundary_message *m)
{
	int r = p->state == PARENT_SERVING ? boundary_send(&p->boundary, m, NULL, 0) : 0;

	/* One that is gone is about to be waited for, and that says why it is. One that takes no
	 * answers is none. */
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		engine_end(p, "it takes no messages");
}

static void spawned(struct parent *p, const struct boundary_message *m, const int *fds)
{
	struct boundary_message a = { .kind = BOUNDARY_SPAWNED, .id = m->id };
	struct err err = ERR_INIT;
	pid_t pid = m->kind == BOUNDARY_SPAWN ? process_start(&p->processes, m, fds, &err) :
		    process_adopt(&p->processes, m, p->engine_pid, &err);

	if (pid > 0) {
		a.pid = (uint32_t)pid;
	} else {
		a.error = -err.code;
		boundary_text_set(&a, err.text);
	}
	answer(p, &a);
}

static void on_message(struct boundary *b, const struct boundary_message *m, int *fds)
{
	struct parent *p = list_entry(b, struct parent, boundary);

	switch (m->kind) {
	case BOUNDARY_READY:
		p->served = true;
		p->ready(p);
		break;
	case BOUNDARY_SPAWN:
	case BOUNDARY_CHILD:
		spawned(p, m, fds);
		break;
	case BOUNDARY_KILL:
		process_kill(&p->processes, m->id);
		break;
	default:
		break;
	}
}

static void on_lost(struct boundary *b, const char *why)
{
	struct parent *p = list_entry(b, struct parent, boundary);
	char text[BOUNDARY_TEXT];

	/* One that ends closes its socket before it can be waited for. */
	if (!why) {
		later(p, GONE_NS);
		return;
	}
	snprintf(text, sizeof(text), "it broke the rules of the boundary: %s", why);
	engine_end(p, text);
}

static void on_gone(struct processes *processes, uint64_t id, int status)
{
	struct parent *p = list_entry(processes, struct parent, processes);
	struct boundary_message m = { .kind = BOUNDARY_EXITED, .id = id, .status = status };

	answer(p, &m);
}

/* ---- The whole ---- */

int parent_init(struct parent *p, struct err *err)
{
	sigset_t set;
	int r;

	p->boundary.socket = -1;
	timer_init(&p->timer, on_timer);
	p->processes.loop = p->loop;
	p->processes.gone = on_gone;
	processes_init(&p->processes);
	/* Forked VMs whose VMM is gone become our children. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	p->children_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	watch_init(&p->children, on_children);
	r = p->children_fd < 0 ? -errno :
	    watch_add(p->loop, &p->children, p->children_fd, EPOLLIN);
	if (r < 0)
		return err_set_errno(err, r, "cannot wait for processes");
	return engine_start(p, err);
}

void parent_stop(struct parent *p)
{
	const struct boundary_message stop = { .kind = BOUNDARY_STOP };

	if (p->stopping)
		return;
	p->stopping = true;
	if (p->state == PARENT_SERVING) {
		later(p, STOP_NS);
		answer(p, &stop);
	} else if (p->state == PARENT_WAITING) {
		leave(p, 0);
	}
}

void parent_done(struct parent *p)
{
	boundary_done(&p->boundary);
	timer_set(p->loop, &p->timer, 0);
	processes_done(&p->processes);
	watch_remove(p->loop, &p->children);
	p->children_fd = fd_close(p->children_fd);
}
