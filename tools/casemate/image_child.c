/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the tools that image building needs (mkfs.erofs, tar, mmdebstrap, rm), one at a
 * time, without a shell. Their stderr is read line by line, so that the one line we print
 * can say why they failed; their stdout is dropped or handed out line by line.
 *
 * Signals: SIGINT, SIGTERM and SIGHUP only set a variable. The child of the moment is
 * sent SIGTERM, waited for, and child_run() returns -EINTR; its callers then clean up.
 * Children that clean up ignore these signals. Should we be killed outright the kernel
 * ends the child (PR_SET_PDEATHSIG).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tools/casemate/image_child.h"

struct lines {
	int fd;
	size_t used;
	char text[4096];
};

static volatile sig_atomic_t signal_seen;

static void signal_note(int number)
{
	signal_seen = number;
}

void child_signals_catch(void)
{
	/* No SA_RESTART: poll() must come back. */
	struct sigaction action = {.sa_handler = signal_note};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int child_signal_caught(void)
{
	return signal_seen;
}

bool child_succeeded(const struct child_result *r)
{
	return WIFEXITED(r->status) && WEXITSTATUS(r->status) == 0;
}

static _Noreturn void child_exec(const char *const *argv, const struct child_options *o,
				 int in, int out, int err, pid_t parent, int report)
{
	static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
	size_t i;
	int error;

	for (i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
		signal(caught[i], o->cleanup ? SIG_IGN : SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	if (!o->cleanup) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(127);
	}
	setenv("LC_ALL", "C", 1);
	for (i = 0; o->env[i]; i++)
		putenv((char *)(uintptr_t)o->env[i]);
	if (dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0)
		execvp(argv[0], (char *const *)(uintptr_t)argv);
	error = errno;
	(void)!write(report, &error, sizeof(error));
	_exit(127);
}

/* Whole lines go to `take`; a line longer than the buffer is handed on in pieces. */
static bool lines_read(struct lines *l, void (*take)(void *, const char *), void *arg)
{
	char *start = l->text, *end;
	ssize_t n = read(l->fd, l->text + l->used, sizeof(l->text) - 1 - l->used);

	if (n < 0 && errno == EINTR)
		return true;
	if (n <= 0) {
		l->text[l->used] = 0;
		if (l->used)
			take(arg, l->text);
		return false;
	}
	l->used += (size_t)n;
	l->text[l->used] = 0;
	while ((end = strpbrk(start, "\r\n"))) {
		*end = 0;
		take(arg, start);
		start = end + 1;
	}
	l->used -= (size_t)(start - l->text);
	memmove(l->text, start, l->used);
	if (l->used == sizeof(l->text) - 1) {
		take(arg, l->text);
		l->used = 0;
	}
	return true;
}

struct run {
	const struct child_options *options;
	struct child_result *result;
	bool refused;
};

static void take_error(void *arg, const char *line)
{
	struct run *run = arg;
	size_t n;

	/* tar's closing remark says nothing; what came before it does. */
	if (!*line || strstr(line, "Exiting with failure status"))
		return;
	n = strlen(line);
	if (n >= sizeof(run->result->last))
		n = sizeof(run->result->last) - 1;
	memcpy(run->result->last, line, n);
	run->result->last[n] = 0;
}

static void take_output(void *arg, const char *line)
{
	struct run *run = arg;

	if (run->options->line && !run->refused && *line)
		run->refused = !run->options->line(run->options->arg, line);
}

/* Reads both pipes until both have ended. */
static void run_watch(struct run *run, pid_t pid, int out, int err)
{
	static struct lines output, errors;
	const struct child_options *o = run->options;
	struct pollfd fds[2];
	bool told = false;

	output = (struct lines){.fd = out};
	errors = (struct lines){.fd = err};
	fds[0] = (struct pollfd){.fd = out, .events = POLLIN};
	fds[1] = (struct pollfd){.fd = err, .events = POLLIN};
	while (fds[0].fd >= 0 || fds[1].fd >= 0) {
		if (((signal_seen && !o->cleanup) || run->refused) && !told) {
			kill(pid, SIGTERM);
			told = true;
		}
		/* The timeout also covers a signal just before poll(). */
		if (poll(fds, 2, 200) < 0 && errno != EINTR)
			break;
		if (fds[0].revents && !lines_read(&output, take_output, run))
			fds[0].fd = -1;
		if (fds[1].revents && !lines_read(&errors, take_error, run))
			fds[1].fd = -1;
		fds[0].revents = fds[1].revents = 0;
		if (o->progress)
			o->progress(o->arg, run->result->last);
	}
}

static int run_fork(const char *const *argv, const struct child_options *o,
		    pid_t *ret_pid, int *ret_out, int *ret_err)
{
	int out[2] = {-1, -1}, err[2] = {-1, -1}, report[2] = {-1, -1}, in, error = 0;
	pid_t parent = getpid(), pid = -1;

	in = open(o->input ? o->input : "/dev/null", O_RDONLY | O_CLOEXEC);
	if (in < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 ||
	    pipe2(report, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		error = errno;
	if (pid == 0)
		child_exec(argv, o, in, out[1], err[1], parent, report[1]);
	if (in >= 0)
		close(in);
	if (out[1] >= 0)
		close(out[1]);
	if (err[1] >= 0)
		close(err[1]);
	if (report[1] >= 0)
		close(report[1]);
	if (!error) {
		while (read(report[0], &error, sizeof(error)) < 0 && errno == EINTR)
			;
		if (error)
			waitpid(pid, NULL, 0);
	}
	if (report[0] >= 0)
		close(report[0]);
	if (error) {
		if (out[0] >= 0)
			close(out[0]);
		if (err[0] >= 0)
			close(err[0]);
		return -error;
	}
	*ret_pid = pid;
	*ret_out = out[0];
	*ret_err = err[0];
	return 0;
}

int child_run(const char *const *argv, const struct child_options *options,
	      struct child_result *ret)
{
	struct run run = {.options = options, .result = ret};
	int out = -1, err = -1, error;
	pid_t pid = -1;

	memset(ret, 0, sizeof(*ret));
	if (signal_seen && !options->cleanup)
		return -EINTR;
	error = run_fork(argv, options, &pid, &out, &err);
	if (error)
		return error;
	run_watch(&run, pid, out, err);
	close(out);
	close(err);
	while (waitpid(pid, &ret->status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return signal_seen && !options->cleanup ? -EINTR : 0;
}
