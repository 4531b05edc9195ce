/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of the rehearsal machine (tools/rehearsal). It runs commands for the host.
 *
 * One virtio-serial port carries frames both ways: a 12-byte little-endian header (job, type,
 * length) and a payload of at most FRAME_MAX bytes. The host numbers the jobs. For each job:
 *
 *	host:	EXEC, then STDIN (within the credit), EOF, SIGNAL, CREDIT; CLOSE forgets it
 *	agent:	STDOUT and STDERR (within the credit), CREDIT, and EXIT as the last frame
 *
 * While there are jobs, the host also sends BEAT: see beat().
 *
 * A job is its process group. EXIT follows when the first process has been reaped and what it
 * left in its pipes has been sent; a background process that keeps a pipe open does not hold
 * EXIT back. One thread, one poll loop; the port is written with blocking writes (the host
 * side always reads), everything else is non-blocking.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAME_MAX	(64u << 10)
#define WINDOW		(256u << 10)	/* first credit in each direction */
#define ARGS_MAX	1024
#define JOBS_MAX	64

enum frame_type {
	F_READY = 1, F_EXEC, F_STDIN, F_EOF, F_SIGNAL, F_CREDIT, F_CLOSE,
	F_STDOUT, F_STDERR, F_EXIT, F_POWEROFF, F_BEAT,
};

struct header {
	uint32_t job;
	uint32_t type;
	uint32_t len;
};

struct job {
	int used;
	uint32_t id;
	pid_t pid;
	int reaped;
	int status;		/* as the host reports it: 0..255 */
	int closed;		/* the host forgot it: send nothing */
	int in, out, err;	/* our pipe ends, -1 when closed */
	int64_t credit;		/* output bytes the host still takes */
	int eof;		/* close `in` when the buffer is empty */
	size_t in_pos, in_len;
	char in_buf[WINDOW];
};

static int port;
static cpu_set_t all_cpus;	/* for the commands; the agent itself moves about */
static struct job jobs[JOBS_MAX];

static void die(const char *what)
{
	fprintf(stderr, "rehearsal-agent: %s: %s\n", what, strerror(errno));
	sync();
	reboot(RB_POWER_OFF);
	_exit(1);
}

static void port_write(const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(port, p, len);

		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			die("port write");
		p += n;
		len -= (size_t)n;
	}
}

static void port_read(void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = read(port, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die("port read");
		p += n;
		len -= (size_t)n;
	}
}

static void frame_send(uint32_t job, uint32_t type, const void *data, uint32_t len)
{
	static char buf[sizeof(struct header) + FRAME_MAX];
	struct header h = { job, type, len };

	memcpy(buf, &h, sizeof(h));
	if (len)
		memcpy(buf + sizeof(h), data, len);
	port_write(buf, sizeof(h) + len);
}

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static struct job *job_find(uint32_t id)
{
	for (int i = 0; i < JOBS_MAX; i++)
		if (jobs[i].used && jobs[i].id == id)
			return &jobs[i];
	return NULL;
}

static void job_end(struct job *j)
{
	uint32_t status = (uint32_t)j->status;

	fd_close(&j->in);
	fd_close(&j->out);
	fd_close(&j->err);
	if (!j->closed)
		frame_send(j->id, F_EXIT, &status, sizeof(status));
	j->used = 0;
}

/* Refuse a job before it has a process. */
static void job_refuse(uint32_t id, uint32_t status, const char *text)
{
	frame_send(id, F_STDERR, text, (uint32_t)strlen(text));
	frame_send(id, F_EXIT, &status, sizeof(status));
}

static void child_run(char **argv, char **env, const char *cwd, int in, int out, int err)
{
	sigset_t none;

	setpgid(0, 0);
	dup2(in, 0);
	dup2(out, 1);
	dup2(err, 2);
	close_range(3, ~0u, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	if (chdir(cwd) < 0 && chdir("/") < 0)
		_exit(126);
	environ = env;
	sched_setaffinity(0, sizeof(all_cpus), &all_cpus);
	execvp(argv[0], argv);
	dprintf(2, "rehearsal: %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

/* EXEC's payload: strings, each ended by NUL: directory, number of environment strings,
 * those, the arguments. */
static void job_start(uint32_t id, char *p, uint32_t len)
{
	char *strs[ARGS_MAX + 2], *env[ARGS_MAX + 1];
	int in[2], out[2], err[2];
	size_t n = 0, nenv;
	struct job *j = NULL;

	if (!len || p[len - 1])
		return job_refuse(id, 125, "rehearsal: bad EXEC frame\n");
	for (char *s = p; s < p + len && n < ARGS_MAX; s += strlen(s) + 1)
		strs[n++] = s;
	strs[n] = NULL;
	nenv = n >= 3 ? strtoul(strs[1], NULL, 10) : ARGS_MAX;
	if (n == ARGS_MAX || nenv >= n - 2)
		return job_refuse(id, 125, "rehearsal: too many arguments\n");
	memcpy(env, strs + 2, nenv * sizeof(env[0]));
	env[nenv] = NULL;
	for (int i = 0; i < JOBS_MAX && !j; i++)
		if (!jobs[i].used)
			j = &jobs[i];
	if (!j)
		return job_refuse(id, 125, "rehearsal: too many commands at once\n");
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		die("pipe");
	j->pid = fork();
	if (j->pid < 0)
		die("fork");
	if (!j->pid)
		child_run(strs + 2 + nenv, env, strs[0], in[0], out[1], err[1]);
	setpgid(j->pid, j->pid);
	close(in[0]);
	close(out[1]);
	close(err[1]);
	fcntl(in[1], F_SETFL, O_NONBLOCK);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	j->used = 1;
	j->id = id;
	j->reaped = j->closed = j->eof = 0;
	j->status = 0;
	j->in = in[1];
	j->out = out[0];
	j->err = err[0];
	j->credit = WINDOW;
	j->in_pos = j->in_len = 0;
}

/* Move buffered input into the pipe and give the host its credit back. */
static void job_feed(struct job *j)
{
	while (j->in >= 0 && j->in_len) {
		size_t n = j->in_len < WINDOW - j->in_pos ? j->in_len : WINDOW - j->in_pos;
		ssize_t w = write(j->in, j->in_buf + j->in_pos, n);
		uint32_t back;

		if (w < 0 && errno == EAGAIN)
			return;
		if (w < 0) {			/* nobody reads: drop it, keep the credit */
			fd_close(&j->in);
			break;
		}
		j->in_pos = (j->in_pos + (size_t)w) % WINDOW;
		j->in_len -= (size_t)w;
		back = (uint32_t)w;
		if (!j->closed)
			frame_send(j->id, F_CREDIT, &back, sizeof(back));
	}
	if (j->eof)
		fd_close(&j->in);
}

static void job_stdin(struct job *j, const char *p, uint32_t len)
{
	if (j->in < 0 || len > WINDOW - j->in_len)
		return;
	for (uint32_t i = 0; i < len; i++)
		j->in_buf[(j->in_pos + j->in_len + i) % WINDOW] = p[i];
	j->in_len += len;
	job_feed(j);
}

/* Send output. Returns 0 when there is none at the moment, or no credit for it. */
static int job_output(struct job *j, int *fd, uint32_t type)
{
	static char buf[FRAME_MAX];
	size_t max = sizeof(buf);
	ssize_t n;

	if (*fd < 0 || (!j->closed && j->credit <= 0))
		return 0;
	if (!j->closed && (int64_t)max > j->credit)
		max = (size_t)j->credit;
	n = read(*fd, buf, max);
	if (n < 0)
		return 0;
	if (!n) {
		fd_close(fd);
		return 0;
	}
	if (!j->closed) {
		frame_send(j->id, type, buf, (uint32_t)n);
		j->credit -= n;
	}
	return 1;
}

/* After the process has gone: send what is left; done when both pipes are empty. */
static void job_drain(struct job *j)
{
	if (!j->reaped)
		return;
	while (job_output(j, &j->out, F_STDOUT) || job_output(j, &j->err, F_STDERR))
		;
	if (j->closed || j->credit > 0)
		job_end(j);
}

static void children_reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (int i = 0; i < JOBS_MAX; i++) {
			struct job *j = &jobs[i];

			if (!j->used || j->reaped || j->pid != pid)
				continue;
			j->reaped = 1;
			j->status = WIFEXITED(status) ? WEXITSTATUS(status) :
							128 + WTERMSIG(status);
			job_drain(j);
		}
	}
}

/*
 * QEMU's emulation of SVM can lose an interrupt that comes while a nested guest is entered or
 * left; a processor whose timer interrupt was lost then stands in its guest for ever. The next
 * interrupt of any kind brings the lost one back, so each processor is sent one every few
 * beats: by moving there. The answer tells the host that the machine goes on: sometimes all
 * of its processors stand still at once.
 */
static void beat(void)
{
	static long turn;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)(turn++ % sysconf(_SC_NPROCESSORS_ONLN)), &set);
	sched_setaffinity(0, sizeof(set), &set);
	frame_send(0, F_BEAT, NULL, 0);
}

static void frame_handle(void)
{
	static char buf[FRAME_MAX];
	struct header h;
	struct job *j;
	uint32_t word = 0;

	port_read(&h, sizeof(h));
	if (h.len > sizeof(buf)) {
		errno = EPROTO;
		die("frame");
	}
	port_read(buf, h.len);
	if (h.len >= sizeof(word))
		memcpy(&word, buf, sizeof(word));
	if (h.type == F_POWEROFF) {
		sync();
		reboot(RB_POWER_OFF);
	}
	if (h.type == F_BEAT)
		return beat();
	if (h.type == F_EXEC)
		return job_start(h.job, buf, h.len);
	j = job_find(h.job);
	if (!j)
		return;
	switch (h.type) {
	case F_STDIN:
		job_stdin(j, buf, h.len);
		break;
	case F_EOF:
		j->eof = 1;
		job_feed(j);
		break;
	case F_SIGNAL:
		if (!j->reaped)
			kill(-j->pid, (int)word);
		break;
	case F_CREDIT:
		j->credit += word;
		job_drain(j);
		break;
	case F_CLOSE:
		j->closed = 1;
		kill(-j->pid, SIGKILL);
		job_drain(j);
		break;
	}
}

int main(int argc, char **argv)
{
	static struct pollfd p[2 + 3 * JOBS_MAX];
	sigset_t chld;
	int sig;

	port = open(argc > 1 ? argv[1] : "", O_RDWR | O_CLOEXEC);
	if (port < 0)
		die("port");
	signal(SIGPIPE, SIG_IGN);
	sched_getaffinity(0, sizeof(all_cpus), &all_cpus);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	sig = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	frame_send(0, F_READY, NULL, 0);

	for (;;) {
		p[0] = (struct pollfd){ .fd = port, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = sig, .events = POLLIN };
		for (int i = 0; i < JOBS_MAX; i++) {
			struct job *j = &jobs[i];
			int in = j->used && j->in_len ? j->in : -1;
			int more = j->used && (j->closed || j->credit > 0);

			p[2 + 3 * i] = (struct pollfd){ in, POLLOUT, 0 };
			p[3 + 3 * i] = (struct pollfd){ more ? j->out : -1, POLLIN, 0 };
			p[4 + 3 * i] = (struct pollfd){ more ? j->err : -1, POLLIN, 0 };
		}
		if (poll(p, 2 + 3 * JOBS_MAX, -1) < 0 && errno != EINTR)
			die("poll");
		if (p[0].revents & POLLHUP)	/* the host side is gone */
			reboot(RB_POWER_OFF);
		for (int i = 0; i < JOBS_MAX; i++) {
			struct job *j = &jobs[i];

			if (!j->used)
				continue;
			if (p[2 + 3 * i].revents)
				job_feed(j);
			if (p[3 + 3 * i].revents)
				job_output(j, &j->out, F_STDOUT);
			if (p[4 + 3 * i].revents)
				job_output(j, &j->err, F_STDERR);
		}
		if (p[1].revents) {
			struct signalfd_siginfo si;

			while (read(sig, &si, sizeof(si)) > 0)
				;
			children_reap();
		}
		if (p[0].revents & POLLIN)
			frame_handle();
	}
}
