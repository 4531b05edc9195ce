/* SPDX-License-Identifier: Apache-2.0 */
/*
 * initd: PID 1 of a guest. It speaks the frames of abi/channel.h with the host, starts
 * the programs the host asks for and reaps every process that nobody else waits for.
 *
 * One thread, one loop: poll; read the channel and act on whole frames; reap; pass
 * streams; say what is due; write the channel. Nothing in it blocks but poll (and vfork,
 * until the child has called execve). SIGCHLD writes to a pipe of our own, so that poll
 * sees it.
 *
 * States: before RESUMED only RESUME, SHUTDOWN and REPORT_GET are accepted. A further
 * RESUME may come at any time, after a restore or a fork, and with it a new client: it is
 * told which execs there are, then gets RESUMED, and a report that the old one has asked for
 * ends unsaid. A RESUME whose generation is not the clock page's was still on its way when
 * the VM was saved; the one that counts follows. A frame that is refused is answered with
 * ERROR and has no effect. Lost framing and a lost host end the guest.
 *
 * For tests on a host: --channel-fd N uses a socket that is already open and answers
 * RESUME without the kernel's help, --no-mounts leaves the machine alone. Neither powers
 * anything off: the process kills its execs and exits, with 0 after SHUTDOWN.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "abi/guestctl.h"
#include "initd/channel.h"
#include "initd/exec.h"
#include "initd/frame.h"
#include "initd/system.h"

struct initd {
	struct channel channel;
	struct exec_table execs;
	bool hosted; /* a test on the host, not PID 1 of a guest */
	bool resumed;
	bool again;    /* there is work that no descriptor announces */
	int report_fd; /* -1: no report is under way */
};

enum { POLL_CHANNEL, POLL_CHILD, POLL_EXECS };

static struct initd initd;
static int child_pipe[2];

static void child_signal(int number)
{
	int error = errno;

	(void)number;
	(void)!write(child_pipe[1], "", 1); /* full: a wake-up is already due */
	errno = error;
}

static _Noreturn void initd_end(int status)
{
	if (!initd.hosted)
		system_power_off();
	exec_kill_all(&initd.execs);
	_exit(status);
}

/* The host must learn why, but may not be listening. */
static _Noreturn void initd_end_after_flush(int status)
{
	struct pollfd fd = {.fd = initd.channel.fd, .events = POLLOUT};

	while (!channel_flush(&initd.channel) && channel_pending(&initd.channel))
		if (poll(&fd, 1, 1000) <= 0)
			break;
	initd_end(status);
}

/* ---- Frames ---- */

static void report_close(void)
{
	if (initd.report_fd >= 0)
		close(initd.report_fd);
	initd.report_fd = -1;
}

static const char *frame_resume(const struct frame *f)
{
	struct cm_resume resume;
	struct cm_resumed answer = {0};
	struct timespec now;
	int error = 0;

	memcpy(&resume, f->payload, sizeof(resume));
	if (initd.hosted) {
		clock_gettime(CLOCK_REALTIME, &now);
		answer.generation = resume.generation;
		answer.realtime_ns =
			(uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	} else {
		error = system_resumed(initd.channel.fd, &answer);
	}
	/* Without fresh entropy nothing may run: no answer, and the host gives up on us.
	 */
	if (error)
		return "the kernel does not answer CM_IOC_RESUMED";
	if (answer.generation != resume.generation)
		return "RESUME of another generation than the clock page's";
	initd.resumed = true;
	report_close();
	exec_announce(&initd.execs);
	channel_send(&initd.channel, CM_F_RESUMED, 0, 0, &answer, sizeof(answer));
	return NULL;
}

static const char *frame_report_get(void)
{
	static const char none[] = "report: none, " CM_REPORT_PATH " cannot be opened\n";

	if (initd.report_fd >= 0)
		return "a report is already under way";
	initd.report_fd = open(CM_REPORT_PATH, O_RDONLY | O_CLOEXEC);
	if (initd.report_fd < 0)
		channel_send(&initd.channel, CM_F_REPORT, 1, 0, none, sizeof(none) - 1);
	return NULL;
}

static const char *frame_handle(const struct frame *f)
{
	switch (f->type) {
	case CM_F_RESUME:
		return frame_resume(f);
	case CM_F_SHUTDOWN:
		initd_end(0);
	case CM_F_REPORT_GET:
		return frame_report_get();
	default:
		break;
	}
	if (!initd.resumed)
		return "not accepted before RESUMED";
	switch (f->type) {
	case CM_F_EXEC:
		return exec_frame_exec(&initd.execs, f);
	case CM_F_STDIN:
		return exec_frame_stdin(&initd.execs, f);
	case CM_F_SIGNAL:
		return exec_frame_signal(&initd.execs, f);
	case CM_F_RESIZE:
		return exec_frame_resize(&initd.execs, f);
	case CM_F_CREDIT:
		return exec_frame_credit(&initd.execs, f);
	default:
		return "unknown frame type";
	}
}

/* Acts on every whole frame for which there is room to answer. */
static void frames_handle(void)
{
	struct channel *c = &initd.channel;
	size_t done = 0, used;
	enum frame_result result;
	struct frame f;
	const char *why;

	while (channel_room(c) >= CHANNEL_ANSWER) {
		result = frame_decode(c->in + done, c->in_size - done, &f, &used, &why);
		if (result == FRAME_MORE)
			break;
		if (result == FRAME_OK)
			why = frame_handle(&f);
		if (why)
			channel_text(c, CM_F_ERROR, f.id, "initd: frame type %u: %s",
				     f.type, why);
		if (result == FRAME_LOST)
			initd_end_after_flush(2);
		done += used;
	}
	channel_consume(c, done);
}

/* ---- The rest of a turn ---- */

static void report_send(void)
{
	struct channel *c = &initd.channel;
	size_t room, size = 0;
	uint8_t *place;
	ssize_t n = 1;

	if (initd.report_fd < 0 || !(room = channel_data_room(c)))
		return;
	place = channel_reserve(c, room);
	while (size < room) {
		n = read(initd.report_fd, place + size, room - size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		size += (size_t)n;
	}
	channel_commit(c, CM_F_REPORT, n <= 0, 0, size);
	if (n <= 0)
		report_close();
}

static void children_reap(void)
{
	struct rusage usage;
	char sink[64];
	int status;
	pid_t pid;

	/* First the pipe, then the children: the other way round loses a wake-up. */
	while (read(child_pipe[0], sink, sizeof(sink)) == (ssize_t)sizeof(sink))
		;
	while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0)
		exec_reaped(&initd.execs, pid, status, &usage);
}

static void initd_turn(void)
{
	static struct pollfd fds[POLL_EXECS + EXEC_POLL_MAX];
	static struct exec_poll refs[EXEC_POLL_MAX];
	struct channel *c = &initd.channel;
	size_t count, i;
	bool tight;

	fds[POLL_CHANNEL] = (struct pollfd){.fd = c->fd};
	if (channel_room(c) >= CHANNEL_ANSWER)
		fds[POLL_CHANNEL].events |= POLLIN;
	if (channel_pending(c))
		fds[POLL_CHANNEL].events |= POLLOUT;
	fds[POLL_CHILD] = (struct pollfd){.fd = child_pipe[0], .events = POLLIN};
	count = exec_poll_add(&initd.execs, fds + POLL_EXECS, refs);
	if (poll(fds, POLL_EXECS + count, initd.again ? 0 : -1) < 0) {
		if (errno == EINTR || errno == EAGAIN || errno == ENOMEM)
			return;
		initd_end(1);
	}
	if (fds[POLL_CHANNEL].revents & (POLLIN | POLLHUP | POLLERR) &&
	    channel_fill(c) < 0)
		initd_end(1);
	frames_handle();
	if (fds[POLL_CHILD].revents)
		children_reap();
	for (i = 0; i < count; i++)
		exec_poll_handle(&initd.execs, &fds[POLL_EXECS + i], refs[i]);
	report_send();
	exec_settle(&initd.execs);
	/* What waited for room will not wake poll once the queue has been written at
	 * once. */
	tight = !channel_data_room(c);
	if (channel_flush(c) < 0)
		initd_end(1);
	initd.again = channel_data_room(c) && (tight || initd.report_fd >= 0);
}

/* ---- Start ---- */

static _Noreturn void initd_fail(const char *what)
{
	const char *why = strerror(errno);
	const char *parts[] = {"initd: ", what, ": ", why, "\n"};
	size_t i;

	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		(void)!write(2, parts[i], strlen(parts[i]));
	_exit(1);
}

static void signals_set_up(void)
{
	struct sigaction action = {.sa_handler = child_signal, .sa_flags = SA_RESTART};

	if (pipe2(child_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		initd_fail("cannot make a pipe");
	signal(SIGPIPE, SIG_IGN);
	if (sigaction(SIGCHLD, &action, NULL) < 0)
		initd_fail("cannot handle SIGCHLD");
	child_signal(SIGCHLD); /* a child may have ended before the handler was there */
}

static void channel_open(int fd)
{
	int flags;

	if (fd < 0)
		fd = open(CM_CHANNEL_DEV, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		initd_fail("cannot open " CM_CHANNEL_DEV);
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		initd_fail("cannot use the channel");
	initd.channel.fd = fd;
}

int main(int argc, char **argv)
{
	struct cm_hello hello = {.version = CM_CHANNEL_VERSION};
	bool no_mounts = false;
	int fd = -1, null_fd, i;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--no-mounts"))
			no_mounts = true;
		else if (!strcmp(argv[i], "--channel-fd") && i + 1 < argc)
			fd = atoi(argv[++i]);
		/* What else a kernel passes to its init is not for us. */
	}
	initd.hosted = fd >= 0;
	initd.report_fd = -1;
	umask(022);
	/* Queued before the channel is open: it must be first, and mounting may have to
	 * log. */
	channel_send(&initd.channel, CM_F_HELLO, 0, 0, &hello, sizeof(hello));
	if (!no_mounts && !initd.hosted)
		system_mount_all(&initd.channel);
	null_fd = system_open_null();
	if (null_fd < 0)
		initd_fail("cannot open /dev/null");
	if (initd.hosted) /* orphans come to us as they do to PID 1 */
		prctl(PR_SET_CHILD_SUBREAPER, 1);
	signals_set_up();
	channel_open(fd);
	exec_table_init(&initd.execs, &initd.channel, null_fd);
	for (;;)
		initd_turn();
}
