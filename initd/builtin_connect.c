/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect TARGET: a connection inside the guest, as a command. TARGET is unix:PATH (PATH from
 * the working directory on; unix:@NAME is an abstract socket) or tcp:PORT of the loopback
 * address. stdin goes to the socket and the socket to stdout, until both have ended.
 *
 * An end of file is passed on by itself: that of stdin as shutdown(SHUT_WR), that of the
 * socket by closing stdout. SIGPIPE says that nobody wants the socket's bytes any more, as a
 * closed stdout would: shutdown(SHUT_RD) lets the peer know, and the other way goes on. A peer
 * that is gone altogether ends the command.
 *
 * Each way holds one buffer: it is read when it is empty and written until it is. Whichever
 * of the two it waits for is the one thing poll(2) is asked about, since an end that is
 * asked about for nothing would be told again and again.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "initd/builtin.h"

#define WAY_BYTES 65536u

struct way {
	int from, to;
	size_t start, end; /* of what is in `bytes` */
	bool done;
	int error; /* errno of what ended it, 0: end of file */
	uint8_t bytes[WAY_BYTES];
};

static volatile sig_atomic_t unwanted; /* by whoever has the other end of stdout */

/* ---- The two ways ---- */

static void way_end(struct way *w, int error)
{
	w->done = true;
	w->error = error;
}

/* Reads or writes once. */
static void way_step(struct way *w)
{
	ssize_t n;

	if (w->start == w->end) {
		w->start = w->end = 0;
		n = read(w->from, w->bytes, sizeof(w->bytes));
		if (n > 0)
			w->end = (size_t)n;
		else if (n == 0)
			way_end(w, 0);
		else if (errno != EAGAIN && errno != EINTR)
			way_end(w, errno);
		return;
	}
	if (w->to == 1)
		n = write(1, w->bytes + w->start, w->end - w->start);
	else
		n = send(w->to, w->bytes + w->start, w->end - w->start, MSG_NOSIGNAL);
	if (n >= 0)
		w->start += (size_t)n;
	else if (errno != EAGAIN && errno != EINTR)
		way_end(w, errno);
}

static void poll_set(struct pollfd *p, const struct way *w)
{
	bool reads = w->start == w->end;

	*p = (struct pollfd){.fd = w->done ? -1 : reads ? w->from : w->to,
			     .events = reads ? POLLIN : POLLOUT};
}

/* The other side of a way that has just ended is told. */
static void way_close(const struct way *w, int fd)
{
	if (w->to == fd) {
		shutdown(fd, SHUT_WR);
		/* Whoever feeds stdin need not any more. */
		close(0);
	} else {
		shutdown(fd, SHUT_RD);
		close(1);
	}
}

static void on_pipe(int number)
{
	(void)number;
	unwanted = 1;
}

/* Returns 0 or the errno that ended it. */
static int relay(int fd)
{
	static struct way ways[2];
	struct pollfd p[3];
	sigset_t none;
	int i;

	sigemptyset(&none);
	ways[0] = (struct way){.from = 0, .to = fd};
	ways[1] = (struct way){.from = fd, .to = 1};
	while (!ways[0].done || !ways[1].done) {
		poll_set(&p[0], &ways[0]);
		poll_set(&p[1], &ways[1]);
		/* Nothing more comes from the peer: is it there still? */
		p[2] = (struct pollfd){.fd = ways[1].done ? fd : -1};
		if (ppoll(p, 3, NULL, &none) < 0 && errno != EINTR)
			return errno;
		if (unwanted && !ways[1].done) {
			way_end(&ways[1], 0);
			way_close(&ways[1], fd);
			continue;
		}
		for (i = 0; i < 2; i++) {
			if (ways[i].done || !p[i].revents)
				continue;
			way_step(&ways[i]);
			if (ways[i].done)
				way_close(&ways[i], fd);
		}
		if (p[2].revents & (POLLHUP | POLLERR))
			break;
	}
	/* Who takes no more than he wants is in his right. */
	for (i = 0; i < 2; i++)
		if (ways[i].error && ways[i].error != EPIPE)
			return ways[i].error;
	return 0;
}

/* ---- The connection ---- */

static int unix_connect(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	size_t length = strlen(path);
	int fd, error;

	if (!length)
		return -EINVAL;
	if (length >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	memcpy(a.sun_path, path, length);
	if (path[0] == '@')
		a.sun_path[0] = '\0';
	else
		length++;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	length += offsetof(struct sockaddr_un, sun_path);
	if (connect(fd, (struct sockaddr *)&a, (socklen_t)length) == 0)
		return fd;
	error = errno;
	close(fd);
	return -error;
}

static int tcp_connect(const char *text)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char *end;
	unsigned long port = strtoul(text, &end, 10);
	int fd, error;

	if (*text < '0' || *text > '9' || *end || port < 1 || port > 65535)
		return -EINVAL;
	a.sin_port = htons((uint16_t)port);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	error = errno;
	close(fd);
	return -error;
}

static int target_connect(const char *target)
{
	if (!strncmp(target, "unix:", 5))
		return unix_connect(target + 5);
	if (!strncmp(target, "tcp:", 4))
		return tcp_connect(target + 4);
	return -EINVAL;
}

static void fd_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags >= 0)
		fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* It comes only while the relay waits. */
static void pipe_signal_catch(void)
{
	struct sigaction action = {.sa_handler = on_pipe};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigaction(SIGPIPE, &action, NULL);
}

int builtin_connect(char *const *args, char *const *options)
{
	int fd, error;

	(void)options;
	pipe_signal_catch();
	fd = target_connect(args[0]);
	if (fd < 0)
		return builtin_fail(-fd, fd == -EAFNOSUPPORT ? "the guest has no internet "
							       "sockets to connect to" :
							       "cannot connect to", args[0]);
	fd_nonblock(fd);
	fd_nonblock(0);
	fd_nonblock(1);
	error = relay(fd);
	return error ? builtin_fail(error, "the connection broke to", args[0]) : 0;
}
