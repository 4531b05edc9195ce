/* SPDX-License-Identifier: Apache-2.0 */
/* The VMM's loop, with a ring and, as in a forked VM, without one; and what the jail of a VM
 * that can be forked lets through. Each jail is a child of its own. */
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"
#include "vmm/jail.h"
#include "vmm/loop.h"
#include "tests/unit/cunit_run.h"

#define MS	1000000u

static struct loop loop;

struct heard {
	struct loop_op op;
	int result;
	unsigned int times;
	bool stops;		/* the loop, when it is done */
};

static void on_done(struct loop_op *op, int result)
{
	struct heard *h = op->owner;

	h->result = result;
	h->times++;
	loop.stop = h->stops;
}

static struct heard heard(bool stops)
{
	return (struct heard){ .op.done = on_done, .stops = stops };
}

static int begin(bool ring)
{
	struct err err = ERR_INIT;

	if (!ring)
		loop_init_jailed(&loop);
	return ring ? loop_init(&loop, &err) : 0;
}

static void run(void)
{
	loop.stop = false;
	CU_ASSERT_EQUAL(loop_run(&loop), 0);
}

static void timers_and_events(bool ring)
{
	struct heard early = heard(false), late = heard(true), event = heard(false),
		     never = heard(true);
	int fd = eventfd(0, EFD_CLOEXEC);
	uint64_t three = 3;

	if (begin(ring) < 0)
		return;
	early.op.owner = &early;
	late.op.owner = &late;
	event.op.owner = &event;
	never.op.owner = &never;
	CU_ASSERT_EQUAL(loop_timeout(&loop, &early.op, 5 * MS), 0);
	CU_ASSERT_EQUAL(loop_timeout(&loop, &late.op, 30 * MS), 0);
	CU_ASSERT_EQUAL(loop_timeout(&loop, &never.op, 3600ull * NS_PER_SEC), 0);
	CU_ASSERT_EQUAL(loop_read_event(&loop, &event.op, fd), 0);
	CU_ASSERT_EQUAL(write(fd, &three, sizeof(three)), 8);
	run();
	CU_ASSERT_EQUAL(early.result, -ETIME);
	CU_ASSERT_EQUAL(late.result, -ETIME);
	CU_ASSERT_EQUAL(event.result, 8);
	CU_ASSERT_EQUAL(event.op.count, 3);
	CU_ASSERT_EQUAL(never.times, 0);
	/* One that is cancelled is told of; what is busy at the end is not. */
	CU_ASSERT_EQUAL(loop_read_event(&loop, &event.op, fd), 0);
	loop_cancel(&loop, &never.op);
	run();
	CU_ASSERT_EQUAL(never.result, -ECANCELED);
	CU_ASSERT(event.op.busy);
	loop_done(&loop);
	CU_ASSERT_FALSE(event.op.busy);
	CU_ASSERT_EQUAL(event.times, 1);
	close(fd);
}

static void sockets(bool ring)
{
	static char sent[1 << 20], got[1 << 16];
	struct heard send_op = heard(true), receive = heard(true), hangup = heard(true);
	struct iovec iov = { got, sizeof(got) };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	int pair[2];
	size_t all;

	if (begin(ring) < 0)
		return;
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	send_op.op.owner = &send_op;
	receive.op.owner = &receive;
	hangup.op.owner = &hangup;
	CU_ASSERT_EQUAL(loop_poll(&loop, &hangup.op, pair[0], POLLRDHUP | POLLHUP), 0);
	/* More than the socket takes: a part goes, and that is said. */
	CU_ASSERT_EQUAL(loop_send(&loop, &send_op.op, pair[0], sent, sizeof(sent)), 0);
	if (!ring) {
		run();
		CU_ASSERT(send_op.result > 0 && send_op.result < (int)sizeof(sent));
		for (all = 0; all < (size_t)send_op.result; all += (size_t)receive.result) {
			CU_ASSERT_EQUAL(loop_recvmsg(&loop, &receive.op, pair[1], &message), 0);
			run();
			CU_ASSERT_FATAL(receive.result > 0);
		}
		CU_ASSERT_EQUAL(all, (size_t)send_op.result);
	}
	CU_ASSERT_EQUAL(hangup.times, 0);
	close(pair[1]);
	run();
	while (hangup.times == 0)
		run();
	CU_ASSERT(hangup.result & (POLLRDHUP | POLLHUP));
	loop_done(&loop);
	close(pair[0]);
}

static void test_ring(void)
{
	timers_and_events(true);
	sockets(true);
}

static void test_jailed(void)
{
	timers_and_events(false);
	sockets(false);
}

/* ---- The jail ---- */

static void quietly(void)
{
}

static void loop_in_jail(void)
{
	loop_init_jailed(&loop);
	timers_and_events(false);
	if (CU_get_number_of_failures() != 0)
		_exit(1);
}

static void ring_make(void)
{
	struct io_uring_params params = { .flags = 0 };

	syscall(SYS_io_uring_setup, 4, &params);
}

static pid_t parent;

/* The signal is that of the vCPU's kick. */
static void parent_kill(void)
{
	syscall(SYS_tgkill, parent, parent, SIGUSR1);
}

static void sibling_make(void)
{
	if (syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) == 0)
		_exit(0);
}

static void namespace_make(void)
{
	if (syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0) == 0)
		_exit(0);
}

static void file_open(void)
{
	syscall(SYS_openat, -100, "/etc/passwd", 0);
}

static void socket_make(void)
{
	syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
}

static bool is_killed(void (*what)(void), bool snapshots)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		struct err err = ERR_INIT;

		if (jail_begin(NULL, 0, 1 << 30, &err) < 0 ||
		    jail_enter(snapshots, 2 << 20, &err) < 0)
			_exit(2);
		what();
		_exit(0);
	}
	CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
	CU_ASSERT(!WIFEXITED(status) || WEXITSTATUS(status) == 0);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
}

static void test_jail(void)
{
	void (*const refused[])(void) = {
		ring_make, parent_kill, sibling_make, namespace_make, file_open, socket_make,
	};

	parent = getpid();
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		CU_ASSERT(is_killed(refused[i], false));
		CU_ASSERT(is_killed(refused[i], true));
	}
	CU_ASSERT_FALSE(is_killed(quietly, false));
}

/* A file for a snapshot is no room for anything more. */
static void test_file_size(void)
{
	char name[] = "vmm-loop-test-XXXXXX";
	int fd = mkstemp(name), status = 0;
	pid_t pid = fork();

	unlink(name);
	if (pid == 0) {
		struct err err = ERR_INIT;

		if (jail_begin(&fd, 1, 1 << 30, &err) < 0 ||
		    jail_enter(true, 2 << 20, &err) < 0 || pwrite(fd, "", 1, 33 << 20) != 1)
			_exit(2);
		if (pwrite(fd, "", 1, 40 << 20) == 1)
			_exit(3);
		_exit(0);
	}
	CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
	CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
	close(fd);
}

/* Nothing more is said in the daemon's log, or to a terminal. */
static void test_stderr(void)
{
	int ends[2], status = 0;
	char byte;
	pid_t pid;

	CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		struct err err = ERR_INIT;

		dup2(ends[1], STDERR_FILENO);
		signal(SIGPIPE, SIG_IGN);
		if (jail_begin(NULL, 0, 0, &err) < 0 || jail_enter(false, 2 << 20, &err) < 0)
			_exit(2);
		_exit(write(STDERR_FILENO, "x", 1) == -1 && errno == EPIPE ? 0 : 3);
	}
	close(ends[1]);
	CU_ASSERT_EQUAL(read(ends[0], &byte, 1), 0);
	CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
	CU_ASSERT_EQUAL(status, 0);
	close(ends[0]);
}

/* eventfd(2) is of those that a fork takes. */
static void test_loop_in_jail(void)
{
	CU_ASSERT_FALSE(is_killed(loop_in_jail, true));
}

int main(void)
{
	CU_pSuite suite = cunit_suite("loop", NULL, NULL);

	CU_add_test(suite, "with a ring", test_ring);
	CU_add_test(suite, "without one", test_jailed);
	CU_add_test(suite, "what the jail refuses", test_jail);
	CU_add_test(suite, "the size of files", test_file_size);
	CU_add_test(suite, "no stderr", test_stderr);
	CU_add_test(suite, "the loop in the jail", test_loop_in_jail);
	return cunit_run();
}
