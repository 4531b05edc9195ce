/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load for casemated: clients of the line protocol, each in a closed loop, all in one thread,
 * so that what is measured is the daemon. A cycle of a client is an exec in the VM it was given
 * (the --vm's in turn), or `create template=`, exec and `kill`. Its time is that from the first
 * request to the exec's end line; killing is not in it. Prints a line a cycle, in milliseconds,
 * those of the first --warm cycles of each client left out, and then "total CYCLES SECONDS", in
 * which all are counted and from which waiting for ready VMs (--ready) is left out.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "api/line.h"
#include "base/fd.h"
#include "base/time.h"

#define CLIENTS_MAX	1024
#define READY_POLL_NS	2000000
#define STALL_MS	60000

enum stage { STAGE_GREETING, STAGE_READY, STAGE_CREATE, STAGE_EXEC, STAGE_KILL };

struct client {
	int fd;
	struct line_reader reader;
	enum stage stage;
	char vm[64];
	unsigned int ready;		/* VMs, of the template */
	uint64_t cycles, began_ns;
	double ms;
};

static const char *path, *template, *vms[CLIENTS_MAX];
static size_t vm_count, client_count = 1;
static uint64_t cycles_each = UINT64_MAX, warm, end_ns = UINT64_MAX;
static uint64_t ready_wanted, cycles, waited_ns;
static char command[4096];		/* its words as the protocol has them */
static size_t command_len;
static size_t running;

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "clients: %s: %s\n", what, why);
	exit(1);
}

static void say(struct client *c, const char *verb, const char *words)
{
	char line[sizeof(command) + 128];
	int n = snprintf(line, sizeof(line), "%s %s\n", verb, words);

	if (fd_write_all(c->fd, line, (size_t)n) < 0)
		die(verb, strerror(errno));
}

static void exec_begin(struct client *c)
{
	char words[sizeof(command) + 80];

	c->stage = STAGE_EXEC;
	snprintf(words, sizeof(words), "%s -- %.*s", c->vm, (int)command_len, command);
	say(c, "exec", words);
}

static void cycle_begin(struct client *c)
{
	char words[80];

	c->began_ns = time_monotonic_ns();
	if (!template) {
		exec_begin(c);
		return;
	}
	c->stage = STAGE_CREATE;
	snprintf(words, sizeof(words), "template=%.63s", template);
	say(c, "create", words);
}

static void cycle_next(struct client *c)
{
	if (c->cycles >= cycles_each || time_monotonic_ns() >= end_ns) {
		running--;
	} else if (ready_wanted) {
		c->stage = STAGE_READY;
		c->ready = 0;
		c->began_ns = time_monotonic_ns();
		say(c, "template", "list");
	} else {
		cycle_begin(c);
	}
}

static void cycle_done(struct client *c)
{
	if (c->cycles++ >= warm)
		printf("%.6f\n", c->ms);
	cycles++;
	cycle_next(c);
}

static void ready_heard(struct client *c, const struct line *line)
{
	const struct timespec pause = { .tv_nsec = READY_POLL_NS };
	const char *ready = line_value(line, 1, "ready");

	if (line->words[0][0] == '*') {
		if (ready && line_value(line, 1, "template") &&
		    !strcmp(line_value(line, 1, "template"), template))
			c->ready = (unsigned int)atoi(ready);
		return;
	}
	if (c->ready >= ready_wanted) {
		waited_ns += time_monotonic_ns() - c->began_ns;
		cycle_begin(c);
		return;
	}
	nanosleep(&pause, NULL);
	say(c, "template", "list");
}

/* A command's output and the number it was given pass by; its end does not. */
static void exec_heard(struct client *c, const struct line *line)
{
	const char *code;

	if (line->words[0][0] != '!' || line->count < 3 || line->has_chunk)
		return;
	code = line_value(line, 3, "code");
	if (strcmp(line->words[2], "exit") || !code || strcmp(code, "0"))
		die("the command did not end well", line->words[2]);
	c->ms = (double)(time_monotonic_ns() - c->began_ns) / 1e6;
	if (template) {
		c->stage = STAGE_KILL;
		say(c, "kill", c->vm);
	} else {
		cycle_done(c);
	}
}

static void heard(struct client *c, const struct line *line)
{
	const char *vm = line->count > 1 ? line_value(line, 1, "vm") : NULL;

	if (line->count < 1 || line->why)
		die("a line", line->why ? line->why : "it is empty");
	if (line->words[0][0] == '-')
		die(line->words[0], line->count > 1 ? line->words[1] : "");
	switch (c->stage) {
	case STAGE_GREETING:
		cycle_next(c);
		break;
	case STAGE_KILL:
		cycle_done(c);
		break;
	case STAGE_READY:
		ready_heard(c, line);
		break;
	case STAGE_CREATE:
		if (!vm)
			die("create", "no vm= in the answer");
		snprintf(c->vm, sizeof(c->vm), "%s", vm);
		exec_begin(c);
		break;
	case STAGE_EXEC:
		exec_heard(c, line);
		break;
	}
}

static void client_read(struct client *c)
{
	static uint8_t bytes[65536];
	const struct line *line;
	ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	int r;

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0)
		die("the daemon", n < 0 ? strerror(errno) : "closed a connection");
	if (line_reader_give(&c->reader, bytes, (size_t)n) < 0)
		die("a line", "no memory");
	while ((r = line_reader_next(&c->reader, &line)) > 0)
		heard(c, line);
	if (r < 0)
		die("a line", "it cannot be read");
}

static void client_open(struct client *c, size_t number, int epoll)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };

	snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&name, sizeof(name)) < 0 ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event) < 0)
		die(path, strerror(errno));
	line_reader_init(&c->reader);
	if (vm_count)
		snprintf(c->vm, sizeof(c->vm), "%s", vms[number % vm_count]);
}

static void options_read(int argc, char **argv)
{
	static const struct option known[] = {
		{ "clients", required_argument, NULL, 'c' },
		{ "count", required_argument, NULL, 'n' },
		{ "seconds", required_argument, NULL, 's' },
		{ "warm", required_argument, NULL, 'w' },
		{ "vm", required_argument, NULL, 'v' },
		{ "template", required_argument, NULL, 't' },
		{ "ready", required_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "+", known, NULL)) >= 0) {
		uint64_t number = optarg ? strtoull(optarg, NULL, 10) : 0;

		switch (option) {
		case 'c': client_count = number; break;
		case 'n': cycles_each = number; break;
		case 's': end_ns = time_monotonic_ns() + number * NS_PER_SEC; break;
		case 'w': warm = number; break;
		case 'v': vms[vm_count++ % CLIENTS_MAX] = optarg; break;
		case 't': template = optarg; break;
		case 'r': ready_wanted = number; break;
		default: exit(2);
		}
	}
	if (argc - optind < 2 || !template == !vm_count || vm_count > CLIENTS_MAX ||
	    client_count < 1 || client_count > CLIENTS_MAX)
		die("usage", "clients [--clients N] [--count N] [--seconds N] [--warm N] "
		    "--vm VM... | --template NAME [--ready N], SOCKET COMMAND...");
	path = argv[optind++];
	for (; optind < argc; optind++) {
		if (line_word_add(command, sizeof(command), &command_len, argv[optind]) < 0)
			die("the command", "it is too long");
	}
}

int main(int argc, char **argv)
{
	static struct client clients[CLIENTS_MAX];
	struct epoll_event events[64];
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	uint64_t began;

	options_read(argc, argv);
	began = time_monotonic_ns();
	running = client_count;
	for (size_t i = 0; i < client_count; i++)
		client_open(&clients[i], i, epoll);
	while (running > 0) {
		int n = epoll_wait(epoll, events, 64, STALL_MS);

		if (n == 0 || (n < 0 && errno != EINTR))
			die("the daemon", "says nothing");
		for (int i = 0; i < n; i++)
			client_read(events[i].data.ptr);
	}
	printf("total %" PRIu64 " %.6f\n", cycles,
	       (double)(time_monotonic_ns() - began - waited_ns) / 1e9);
	return 0;
}
