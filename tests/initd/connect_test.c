/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builtin `connect` against servers that behave in ways of their own: each is a child of
 * the test, takes one connection on a listening socket and exits with 0 when it saw what it
 * wants.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/initd/suites.h"

#define BULK (8u << 20)

static char path[64];
static char target[80];
static struct peer peer;
static pid_t server;

/* ---- Servers ---- */

static size_t read_to_end(int fd, uint8_t *bytes, size_t size)
{
	size_t have = 0;
	ssize_t n;

	while ((n = read(fd, bytes + have, size - have)) > 0)
		have += (size_t)n;
	return have;
}

/* Sends back what came, once all of it has come. */
static int serve_echo(int fd)
{
	uint8_t *bytes = malloc(BULK);
	size_t n = read_to_end(fd, bytes, BULK);

	return send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : 1;
}

/* Ends its own way first and wants to hear to the end. */
static int serve_half(int fd)
{
	char bytes[64];

	if (write(fd, "banner", 6) != 6 || shutdown(fd, SHUT_WR) < 0)
		return 1;
	return read_to_end(fd, (uint8_t *)bytes, sizeof(bytes)) == 5 &&
	       !memcmp(bytes, "later", 5) ? 0 : 1;
}

static int serve_close(int fd)
{
	return write(fd, "bye", 3) == 3 ? 0 : 1;
}

/* Reads nothing more and goes on to speak. */
static int serve_deaf(int fd)
{
	struct timespec pause = {.tv_nsec = 300000000};

	shutdown(fd, SHUT_RD);
	nanosleep(&pause, NULL);
	return write(fd, "spoken", 6) == 6 ? 0 : 1;
}

/* Speaks until nobody listens, then listens to the end. */
static int serve_flood(int fd)
{
	static const char bytes[4096];
	char got[64];

	while (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0)
		;
	if (errno != EPIPE)
		return 1;
	return read_to_end(fd, (uint8_t *)got, sizeof(got)) == 5 ? 0 : 1;
}

static int serve_never(int fd)
{
	char byte;

	return read(fd, &byte, 1) == 0 ? 0 : 1;
}

static void server_fork(int listener, int (*serve)(int))
{
	server = fork();
	if (server == 0) {
		alarm(60);
		_exit(serve(accept(listener, NULL, NULL)));
	}
	close(listener);
}

static void unix_serve(int (*serve)(int))
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(a.sun_path, path);
	CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	CU_ASSERT_EQUAL_FATAL(listen(fd, 4), 0);
	server_fork(fd, serve);
}

static void server_check(void)
{
	int status = -1;

	CU_ASSERT_EQUAL(waitpid(server, &status, 0), server);
	CU_ASSERT_EQUAL(status, 0);
}

/* ---- The host's side ---- */

static void begin(void)
{
	snprintf(path, sizeof(path), "/tmp/initd-connect.%d", (int)getpid());
	snprintf(target, sizeof(target), "unix:%s", path);
	unlink(path);
	peer_start(&peer, initd_path, true);
}

static void end(void)
{
	CU_ASSERT_EQUAL(peer_stop(&peer), 0);
	unlink(path);
}

static void start(struct peer_exec *e, const char *to)
{
	const char *const argv[] = {"connect", to, NULL};

	peer_exec_as(&peer, e, CM_EXEC_BUILTIN | CM_EXEC_STDIN, "", getuid(), argv, NULL);
}

static void send_some(struct peer_exec *e, const void *data, size_t size)
{
	while (size) {
		uint32_t n = (uint32_t)(size < 32768 ? size : 32768);

		if (n > e->in_credit)
			n = e->in_credit;
		if (!n) {
			CU_ASSERT_TRUE_FATAL(peer_pump(&peer, e, 1, 20000));
			continue;
		}
		peer_send(&peer, CM_F_STDIN, 0, e->id, data, n);
		e->in_credit -= n;
		data = (const char *)data + n;
		size -= n;
	}
}

static void send_end(struct peer_exec *e)
{
	peer_send(&peer, CM_F_STDIN, 0, e->id, NULL, 0);
}

/* The exit code; -1 when it ended otherwise. */
static int finish(struct peer_exec *e)
{
	if (!peer_finish(&peer, e) || !e->exited || e->after_end || e->overrun ||
	    !WIFEXITED(e->exit.status))
		return -1;
	CU_ASSERT_EQUAL(WEXITSTATUS(e->exit.status) != 0, e->err_size > 0);
	return WEXITSTATUS(e->exit.status);
}

/* Waits for the end of stdout, or for `size` bytes of it. */
static void wait_out(struct peer_exec *e, size_t size)
{
	while (!e->out_end && !e->exited && e->out_size < size)
		CU_ASSERT_TRUE_FATAL(peer_pump(&peer, e, 1, 20000));
}

static void test_echo(void)
{
	struct peer_exec e;

	begin();
	unix_serve(serve_echo);
	start(&e, target);
	send_some(&e, "hello", 5);
	send_end(&e);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_TRUE(e.out_size == 5 && !memcmp(e.out, "hello", 5));
	server_check();
	peer_exec_done(&e);
	end();
}

static void test_bulk(void)
{
	uint8_t *data = malloc(BULK);
	struct peer_exec e;
	size_t i;

	for (i = 0; i < BULK; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	begin();
	unix_serve(serve_echo);
	start(&e, target);
	send_some(&e, data, BULK);
	send_end(&e);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_TRUE(e.out_size == BULK && !memcmp(e.out, data, BULK));
	server_check();
	peer_exec_done(&e);
	free(data);
	end();
}

static void test_half_close(void)
{
	struct peer_exec e;

	begin();
	unix_serve(serve_half);
	start(&e, target);
	wait_out(&e, 1000);
	CU_ASSERT_TRUE(e.out_end && !e.exited);
	CU_ASSERT_TRUE(e.out_size == 6 && !memcmp(e.out, "banner", 6));
	send_some(&e, "later", 5);
	send_end(&e);
	CU_ASSERT_EQUAL(finish(&e), 0);
	server_check();
	peer_exec_done(&e);
	end();
}

/* The peer is gone: nobody waits for an end of stdin. */
static void test_peer_closes(void)
{
	struct peer_exec e;

	begin();
	unix_serve(serve_close);
	start(&e, target);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_TRUE(e.out_size == 3 && !memcmp(e.out, "bye", 3));
	server_check();
	peer_exec_done(&e);
	end();
}

/* What the peer does not read is dropped, and what it says still comes. Its end is a reset for
 * bytes that it had and never read. */
static void test_peer_is_deaf(void)
{
	static const char bytes[600000];
	struct peer_exec e;
	int code;

	begin();
	unix_serve(serve_deaf);
	start(&e, target);
	send_some(&e, bytes, sizeof(bytes));
	send_end(&e);
	code = finish(&e);
	CU_ASSERT_TRUE(code == 0 || code == ECONNRESET);
	CU_ASSERT_TRUE(e.out_size == 6 && !memcmp(e.out, "spoken", 6));
	server_check();
	peer_exec_done(&e);
	end();
}

static void test_output_unwanted(void)
{
	uint32_t number = SIGPIPE;
	struct peer_exec e;

	begin();
	unix_serve(serve_flood);
	start(&e, target);
	wait_out(&e, 100000);
	peer_send(&peer, CM_F_SIGNAL, 0, e.id, &number, sizeof(number));
	wait_out(&e, SIZE_MAX);
	send_some(&e, "after", 5);
	send_end(&e);
	CU_ASSERT_EQUAL(finish(&e), 0);
	server_check();
	peer_exec_done(&e);
	end();
}

/* It waits, and burns no processor time; a signal ends it. */
static void test_idle(void)
{
	struct timespec pause = {.tv_sec = 1};
	uint32_t number = SIGTERM;
	struct peer_exec e;

	begin();
	unix_serve(serve_never);
	start(&e, target);
	while (!e.started)
		CU_ASSERT_TRUE_FATAL(peer_pump(&peer, &e, 1, 20000));
	nanosleep(&pause, NULL);
	peer_send(&peer, CM_F_SIGNAL, 0, e.id, &number, sizeof(number));
	CU_ASSERT_TRUE(peer_finish(&peer, &e));
	CU_ASSERT_TRUE(WIFSIGNALED(e.exit.status));
	CU_ASSERT_TRUE(e.exit.user_ns + e.exit.system_ns < 300000000);
	server_check();
	peer_exec_done(&e);
	end();
}

static void check_refused(const char *to, int error, const char *text)
{
	struct peer_exec e;

	start(&e, to);
	CU_ASSERT_EQUAL(finish(&e), error);
	CU_ASSERT_PTR_NOT_NULL(e.err ? strstr(e.err, text) : NULL);
	peer_exec_done(&e);
}

static void test_refused(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char longer[200] = "unix:/";
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	begin();
	memset(longer + 6, 'x', 150);
	check_refused("unix:/no/such/socket", ENOENT, "cannot connect to unix:/no/such/socket");
	check_refused(longer, ENAMETOOLONG, "too long");
	check_refused("unix:", EINVAL, "cannot");
	check_refused("tcp:", EINVAL, "cannot");
	check_refused("tcp:0", EINVAL, "cannot");
	check_refused("tcp:65536", EINVAL, "cannot");
	check_refused("tcp:-1", EINVAL, "cannot");
	check_refused("udp:1", EINVAL, "cannot");
	/* One that nobody listens at. */
	strcpy(a.sun_path, path);
	CU_ASSERT_EQUAL(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	check_refused(target, ECONNREFUSED, "refused");
	close(fd);
	peer_check_alive(&peer);
	end();
}

static void test_abstract(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct peer_exec e;
	char name[128];
	int n;

	begin();
	n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "initd-%d", (int)getpid());
	snprintf(name, sizeof(name), "unix:@%s", a.sun_path + 1);
	CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&a,
				   (socklen_t)(sizeof(a.sun_family) + 1 + (size_t)n)), 0);
	CU_ASSERT_EQUAL_FATAL(listen(fd, 4), 0);
	server_fork(fd, serve_close);
	start(&e, name);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_EQUAL(e.out_size, 3);
	server_check();
	peer_exec_done(&e);
	end();
}

static void test_tcp(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct peer_exec e;
	char name[32];

	if (fd < 0)
		return; /* a host without internet sockets */
	begin();
	CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	CU_ASSERT_EQUAL_FATAL(getsockname(fd, (struct sockaddr *)&a, &size), 0);
	snprintf(name, sizeof(name), "tcp:%u", ntohs(a.sin_port));
	check_refused(name, ECONNREFUSED, "refused");
	CU_ASSERT_EQUAL_FATAL(listen(fd, 4), 0);
	server_fork(fd, serve_echo);
	start(&e, name);
	send_some(&e, "hello", 5);
	send_end(&e);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_TRUE(e.out_size == 5 && !memcmp(e.out, "hello", 5));
	server_check();
	peer_exec_done(&e);
	end();
}

/* It connects as the user it is run as. */
static void test_user(void)
{
	const char *const argv[] = {"connect", target, NULL};
	struct peer_exec e;

	if (getuid())
		return;
	begin();
	unix_serve(serve_never);
	chmod(path, 0600);
	peer_exec_as(&peer, &e, CM_EXEC_BUILTIN, "", 65534, argv, NULL);
	CU_ASSERT_EQUAL(finish(&e), EACCES);
	peer_exec_done(&e);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	end();
}

const CU_TestInfo connect_tests[] = {
	{"echo", test_echo},
	{"bulk", test_bulk},
	{"half-close by the peer", test_half_close},
	{"the peer closes", test_peer_closes},
	{"the peer reads nothing", test_peer_is_deaf},
	{"output is unwanted", test_output_unwanted},
	{"idle", test_idle},
	{"refused", test_refused},
	{"abstract socket", test_abstract},
	{"TCP", test_tcp},
	{"another user", test_user},
	CU_TEST_INFO_NULL,
};
