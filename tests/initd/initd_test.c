/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End-to-end tests of initd on the host: each test starts one initd over a socketpair,
 * drives it with frames and stops it. The first argument is the initd to test.
 */
#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/initd/suites.h"

const char *initd_path;

/* ---- Helpers ---- */

/* Runs a script to its end in an initd of its own and checks what must always hold. */
static void shell_run(struct peer_exec *e, const char *script)
{
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_shell(&p, e, 0, script);
	CU_ASSERT_TRUE(peer_finish(&p, e));
	CU_ASSERT_TRUE(e->exited);
	CU_ASSERT_TRUE(e->out_end && e->err_end);
	CU_ASSERT_FALSE(e->after_end || e->overrun);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

static void exec_check_failure(struct peer *p, const char *const *argv, const char *cwd,
			       uint32_t error, uint32_t step)
{
	static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
	struct peer_exec e;

	peer_exec_as(p, &e, 0, cwd, getuid(), argv, env);
	CU_ASSERT_TRUE(peer_finish(p, &e));
	CU_ASSERT_TRUE(e.failed && !e.started);
	CU_ASSERT_EQUAL(e.failure.error, error);
	CU_ASSERT_EQUAL(e.failure.step, step);
	peer_exec_done(&e);
}

void frame_check_refused(struct peer *p, uint16_t type, uint16_t flags, uint32_t id,
			 const void *payload, size_t length)
{
	static struct peer_frame f;

	peer_send(p, type, flags, id, payload, length);
	CU_ASSERT_TRUE_FATAL(peer_receive(p, &f, 5000));
	CU_ASSERT_EQUAL(f.head.type, CM_F_ERROR);
	CU_ASSERT_EQUAL(f.head.id, id);
	CU_ASSERT_TRUE(f.head.length > 0);
}

void peer_check_alive(struct peer *p)
{
	struct peer_exec e;

	peer_shell(p, &e, 0, "echo alive");
	CU_ASSERT_TRUE(peer_finish(p, &e));
	CU_ASSERT_TRUE(e.exited && e.out && !strcmp(e.out, "alive\n"));
	peer_exec_done(&e);
}

/* Whether the process is gone or a zombie: who reaps it then is not initd's affair. */
static bool process_is_dead(uint32_t pid)
{
	char name[64], state = 0;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%u/stat", pid);
	f = fopen(name, "r");
	if (!f)
		return true;
	if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 'X';
	fclose(f);
	return state == 'Z' || state == 'X';
}

/* A killed process needs a moment to die. */
static bool process_dies(uint32_t pid)
{
	int i;

	for (i = 0; i < 500 && !process_is_dead(pid); i++)
		usleep(10000);
	return process_is_dead(pid);
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- Output and exit ---- */

static void test_echo(void)
{
	struct peer_exec e;

	shell_run(&e, "echo out; echo err >&2");
	CU_ASSERT_STRING_EQUAL(e.out, "out\n");
	CU_ASSERT_STRING_EQUAL(e.err, "err\n");
	CU_ASSERT_EQUAL(e.exit.status, 0);
	CU_ASSERT_TRUE(e.exit.max_rss > 0);
	peer_exec_done(&e);
}

static void test_exit_codes(void)
{
	struct peer_exec e;

	shell_run(&e, "exit 3");
	CU_ASSERT_TRUE(WIFEXITED(e.exit.status) && WEXITSTATUS(e.exit.status) == 3);
	shell_run(&e, "exit 255");
	CU_ASSERT_EQUAL(WEXITSTATUS(e.exit.status), 255);
	shell_run(&e, "kill -9 $$");
	CU_ASSERT_TRUE(WIFSIGNALED(e.exit.status) && WTERMSIG(e.exit.status) == 9);
	/* SIGPIPE is ignored by initd, not by what it starts. */
	shell_run(&e, "kill -PIPE $$; echo no");
	CU_ASSERT_TRUE(WIFSIGNALED(e.exit.status) && WTERMSIG(e.exit.status) == SIGPIPE);
}

static void test_surroundings(void)
{
	static const char *const argv[] = {"env", NULL};
	static const char *const pwd[] = {"pwd", NULL};
	static const char *const env[] = {"A=1", "PATH=/usr/bin:/bin", "B=", NULL};
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_exec_as(&p, &e, 0, "", getuid(), argv, env);
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_STRING_EQUAL(e.out, "A=1\nPATH=/usr/bin:/bin\nB=\n");
	peer_exec_done(&e);
	peer_exec_as(&p, &e, 0, "/usr/share", getuid(), pwd, env);
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_STRING_EQUAL(e.out, "/usr/share\n");
	peer_exec_done(&e);
	peer_exec_as(&p, &e, 0, "", getuid(), pwd, NULL); /* no PATH at all */
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_STRING_EQUAL(e.out, "/\n");
	peer_exec_done(&e);
	/* Three descriptors (and the one ls opens), stdin at its end, own session. */
	peer_shell(&p, &e, 0,
		   "ls /proc/self/fd | wc -l; cat; "
		   "test $(ps -o sid= -p $$) = $$ && echo leader; grep SigBlk "
		   "/proc/self/status");
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_STRING_EQUAL(e.out ? e.out : "",
			       "4\nleader\nSigBlk:\t0000000000000000\n");
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

static void test_big_output(void)
{
	struct peer_exec e;
	size_t i, bad = 0;

	shell_run(&e, "head -c 20000000 /dev/zero; head -c 3000000 /dev/zero >&2");
	CU_ASSERT_EQUAL(e.out_size, 20000000);
	CU_ASSERT_EQUAL(e.err_size, 3000000);
	for (i = 0; i < e.out_size; i++)
		bad += e.out[i] != 0;
	CU_ASSERT_EQUAL(bad, 0);
	peer_exec_done(&e);
}

/* Without grants initd sends what it may and waits, exit or not, and goes on afterwards.
 */
static void test_no_credit(void)
{
	struct cm_credit credit = {.stream = CM_F_STDOUT, .bytes = CM_CREDIT_INITIAL};
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, 0, "head -c 300000 /dev/zero");
	e.no_grants = true;
	while (peer_pump(&p, &e, 1, 300))
		;
	CU_ASSERT_EQUAL(e.out_size, CM_CREDIT_INITIAL);
	CU_ASSERT_FALSE(e.exited);
	peer_check_alive(&p);
	peer_send(&p, CM_F_CREDIT, 0, e.id, &credit, sizeof(credit));
	e.out_credit += credit.bytes;
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_EQUAL(e.out_size, 300000);
	CU_ASSERT_FALSE(e.after_end || e.overrun);
	peer_exec_done(&e);

	/* Exactly the credit: the end must not wait for more of it. */
	peer_shell(&p, &e, 0, "head -c 262144 /dev/zero");
	e.no_grants = true;
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_EQUAL(e.out_size, CM_CREDIT_INITIAL);
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* The same, while the last of it is still in the pipe when the program is gone: initd's own
 * buffer is full, since nobody reads it. */
static void test_no_credit_late(void)
{
	struct peer_exec e;
	struct peer p;

	peer_send_buffer = 4096;
	peer_start(&p, initd_path, true);
	peer_send_buffer = 0;
	peer_shell(&p, &e, 0, "exec head -c 262144 /dev/zero");
	e.no_grants = true;
	usleep(500000);
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_EQUAL(e.out_size, CM_CREDIT_INITIAL);
	peer_exec_done(&e);
	peer_stop(&p);
}

/* A host that reads nothing for a while: initd stands still and loses nothing. */
static void test_stalled_host(void)
{
	struct peer_exec e[8];
	struct peer p;
	size_t i;
	bool more = true;

	peer_start(&p, initd_path, true);
	for (i = 0; i < 8; i++)
		peer_shell(&p, &e[i], 0, "head -c 250000 /dev/zero; exit 5");
	sleep(1);
	while (more) {
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, e, 8, 5000));
		for (more = false, i = 0; i < 8; i++)
			more |= !e[i].exited;
	}
	for (i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL(e[i].out_size, 250000);
		CU_ASSERT_EQUAL(WEXITSTATUS(e[i].exit.status), 5);
		CU_ASSERT_FALSE(e[i].after_end || e[i].overrun);
		peer_exec_done(&e[i]);
	}
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* The race between SIGCHLD and what is still in the pipe. */
static void test_output_before_exit(void)
{
	static const char *const argv[] = {"echo", "some output", NULL};
	struct peer_exec e;
	struct peer p;
	int i, bad = 0;

	peer_start(&p, initd_path, true);
	for (i = 0; i < 1000; i++) {
		peer_exec(&p, &e, 0, argv);
		if (!peer_finish(&p, &e) || !e.exited || e.exit.status || !e.out ||
		    strcmp(e.out, "some output\n") || e.after_end || !e.out_end)
			bad++;
		peer_exec_done(&e);
	}
	CU_ASSERT_EQUAL(bad, 0);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* A background process that holds the pipe does not delay EXIT and is not killed by it.
 */
static void test_background(void)
{
	struct peer_exec e;
	struct peer p;
	double start = now_s();
	char name[64], script[512];
	struct stat st;
	int i;

	snprintf(name, sizeof(name), "/tmp/initd-test.%d", (int)getpid());
	snprintf(script, sizeof(script),
		 "(sleep 0.3; for i in 1 2 3; do echo late || exit; done; "
		 "echo ok > %s) & echo early",
		 name);
	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, 0, script);
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_TRUE(now_s() - start < 0.25);
	CU_ASSERT_STRING_EQUAL(e.out, "early\n");
	peer_exec_done(&e);
	for (i = 0; i < 200 && (stat(name, &st) < 0 || !st.st_size); i++)
		usleep(10000);
	CU_ASSERT_TRUE(i < 200);
	unlink(name);
	/* A flood from the background neither. */
	peer_shell(&p, &e, 0, "yes & echo $! >&2; sleep 0.1");
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_TRUE(e.exited && e.err);
	kill(atoi(e.err), SIGKILL);
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

static void test_orphans(void)
{
	char name[64], text[256] = "";
	struct peer_exec e;
	struct peer p;
	int i;
	FILE *f;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, 0, "for i in 1 2 3 4 5; do (sleep 0.1 >&- 2>&- &) ; done");
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	peer_exec_done(&e);
	snprintf(name, sizeof(name), "/proc/%d/task/%d/children", (int)p.pid, (int)p.pid);
	for (i = 0; i < 100; i++) {
		text[0] = 0;
		f = fopen(name, "r");
		if (!f)
			break;
		if (!fgets(text, sizeof(text), f))
			text[0] = 0;
		fclose(f);
		if (!text[0])
			break;
		usleep(20000);
	}
	CU_ASSERT_STRING_EQUAL(text, "");
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* ---- Stdin ---- */

static void test_stdin(void)
{
	size_t size = 5000000, i;
	struct peer_exec e;
	struct peer p;
	char *data = malloc(size);

	CU_ASSERT_PTR_NOT_NULL_FATAL(data);
	for (i = 0; i < size; i++)
		data[i] = (char)(i * 7 + i / 251);
	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, CM_EXEC_STDIN, "cat");
	CU_ASSERT_TRUE(peer_stdin(&p, &e, data, size));
	peer_send(&p, CM_F_STDIN, 0, e.id, NULL, 0);
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_EQUAL(e.out_size, size);
	CU_ASSERT_TRUE(e.out_size == size && !memcmp(e.out, data, size));
	CU_ASSERT_EQUAL(e.errors, 0);
	peer_exec_done(&e);
	/* Nobody reads: bytes are dropped, credit goes on, the exit is not delayed. */
	peer_shell(&p, &e, CM_EXEC_STDIN, "exec <&-; sleep 0.3; exit 4");
	usleep(100000);
	CU_ASSERT_TRUE(peer_stdin(&p, &e, data, 1000000));
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_EQUAL(WEXITSTATUS(e.exit.status), 4);
	/* Frames that crossed the exit are dropped in silence. */
	peer_send(&p, CM_F_STDIN, 0, e.id, "x", 1);
	peer_check_alive(&p);
	CU_ASSERT_EQUAL(e.errors, 0);
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
	free(data);
}

static void test_stdin_refused(void)
{
	static char data[CM_FRAME_MAX];
	struct peer_exec e;
	struct peer p;
	int i;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, 0, "sleep 10");
	CU_ASSERT_TRUE(peer_pump(&p, &e, 1, 5000));
	frame_check_refused(&p, CM_F_STDIN, 0, e.id, "x", 1);
	frame_check_refused(&p, CM_F_RESIZE, 0, e.id, "xxxx", 4);
	peer_shell(&p, &e, CM_EXEC_STDIN, "sleep 10");
	CU_ASSERT_TRUE(peer_pump(&p, &e, 1, 5000));
	for (i = 0; i < 4; i++)
		peer_send(&p, CM_F_STDIN, 0, e.id, data, sizeof(data));
	/* The pipe took 64 KiB, which was granted again at once. */
	CU_ASSERT_TRUE(peer_pump(&p, &e, 1, 5000));
	peer_send(&p, CM_F_STDIN, 0, e.id, data, sizeof(data));
	frame_check_refused(&p, CM_F_STDIN, 0, e.id, "x", 1);
	peer_send(&p, CM_F_STDIN, 0, e.id, NULL, 0);
	frame_check_refused(&p, CM_F_STDIN, 0, e.id, NULL, 0);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* ---- Failures to start ---- */

static void test_failures(void)
{
	static const char *const missing[] = {"no-such-program", NULL};
	static const char *const missing_path[] = {"/no/such/program", NULL};
	static const char *const directory[] = {"/usr", NULL};
	static const char *const not_executable[] = {"/etc/passwd", NULL};
	static const char *const empty[] = {"", NULL};
	static const char *const fine[] = {"true", NULL};
	static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	exec_check_failure(&p, missing, "", ENOENT, CM_FAILED_EXEC);
	exec_check_failure(&p, missing_path, "", ENOENT, CM_FAILED_EXEC);
	exec_check_failure(&p, empty, "", ENOENT, CM_FAILED_EXEC);
	exec_check_failure(&p, directory, "", EACCES, CM_FAILED_EXEC);
	exec_check_failure(&p, not_executable, "", EACCES, CM_FAILED_EXEC);
	exec_check_failure(&p, fine, "/no/such", ENOENT, CM_FAILED_CHDIR);
	exec_check_failure(&p, fine, "/etc/passwd", ENOTDIR, CM_FAILED_CHDIR);
	if (getuid()) {
		peer_exec_as(&p, &e, 0, "", 0, fine, env);
		CU_ASSERT_TRUE(peer_finish(&p, &e));
		CU_ASSERT_EQUAL(e.failure.step, CM_FAILED_CRED);
	} else {
		static const char *const id[] = {"sh", "-c", "id -u; id -g; id -G", NULL};

		peer_exec_as(&p, &e, 0, "", 65534, id, env);
		CU_ASSERT_TRUE(peer_finish(&p, &e));
		CU_ASSERT_STRING_EQUAL(e.out, "65534\n65534\n65534\n");
	}
	peer_exec_done(&e);
	peer_check_alive(&p);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* A file without a header is a script, as shells and execvp have it. */
static void test_headless_script(void)
{
	char name[64];
	const char *const argv[] = {name, "one", "two", NULL};
	struct peer_exec e;
	struct peer p;
	int fd;

	snprintf(name, sizeof(name), "/tmp/initd-script.%d", (int)getpid());
	fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	CU_ASSERT_TRUE_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, "echo $# $2\n", 11), 11);
	close(fd);
	peer_start(&p, initd_path, true);
	peer_exec(&p, &e, 0, argv);
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_TRUE(e.out && !strcmp(e.out, "2 two\n"));
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
	unlink(name);
}

static void test_many(void)
{
	struct peer_exec e[70];
	struct peer p;
	uint32_t number = SIGKILL;
	size_t i, started = 0, failed = 0;

	peer_start(&p, initd_path, true);
	for (i = 0; i < 70; i++)
		peer_shell(&p, &e[i], 0, "sleep 30");
	while (started + failed < 70) {
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, e, 70, 5000));
		for (started = failed = 0, i = 0; i < 70; i++) {
			started += e[i].started;
			failed += e[i].failed;
		}
	}
	CU_ASSERT_EQUAL(started, 64);
	CU_ASSERT_EQUAL(e[69].failure.error, EAGAIN);
	for (i = 0; i < 64; i++)
		peer_send(&p, CM_F_SIGNAL, 0, e[i].id, &number, sizeof(number));
	for (i = 0; i < 64; i++) {
		while (!e[i].exited)
			CU_ASSERT_TRUE_FATAL(peer_pump(&p, e, 70, 5000));
		CU_ASSERT_EQUAL(WTERMSIG(e[i].exit.status), SIGKILL);
	}
	peer_check_alive(&p);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* ---- Signals ---- */

static void test_signal(void)
{
	uint32_t number = SIGTERM;
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	/* The whole group: the shell's child too, which says itself that it is there. */
	peer_shell(&p, &e, 0,
		   "trap 'echo caught; exit 9' TERM; sh -c 'echo ready; exec sleep 20'; echo no");
	while (!e.out_size)
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, &e, 1, 5000));
	peer_send(&p, CM_F_SIGNAL, 0, e.id, &number, sizeof(number));
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_STRING_EQUAL(e.out, "ready\ncaught\n");
	CU_ASSERT_EQUAL(WEXITSTATUS(e.exit.status), 9);
	/* Late: dropped. */
	peer_send(&p, CM_F_SIGNAL, 0, e.id, &number, sizeof(number));
	peer_check_alive(&p);
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

static void test_shutdown_kills(void)
{
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, 0, "sleep 100");
	CU_ASSERT_TRUE(peer_pump(&p, &e, 1, 5000));
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
	CU_ASSERT_TRUE(process_dies(e.pid));
}

/* ---- Terminal ---- */

static void test_terminal(void)
{
	uint16_t size[2] = {50, 120};
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, CM_EXEC_TTY | CM_EXEC_STDIN,
		   "tty >/dev/null && echo tty; stty size; read x; stty size; "
		   "read y || echo end; echo err >&2; exit 6");
	while (!e.out || !strstr(e.out, "33 77\r\n"))
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, &e, 1, 5000));
	CU_ASSERT_TRUE(!strncmp(e.out, "tty\r\n", 5));
	peer_send(&p, CM_F_RESIZE, 0, e.id, size, sizeof(size));
	peer_send(&p, CM_F_STDIN, 0, e.id, "hello\n", 6);
	while (!strstr(e.out, "50 120\r\n"))
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, &e, 1, 5000));
	peer_send(&p, CM_F_STDIN, 0, e.id, NULL, 0);
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_TRUE(strstr(e.out, "end\r\nerr\r\n") != NULL);
	CU_ASSERT_EQUAL(WEXITSTATUS(e.exit.status), 6);
	CU_ASSERT_TRUE(e.out_end && !e.err_size);
	peer_exec_done(&e);
	/* ^C reaches the foreground group through the line discipline. The shell waits in a
	 * read of its own: dash loses a SIGINT that comes while it is about to exec.
	 */
	peer_shell(&p, &e, CM_EXEC_TTY | CM_EXEC_STDIN, "echo ready; read x");
	while (!e.out || !strstr(e.out, "ready"))
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, &e, 1, 5000));
	peer_send(&p, CM_F_STDIN, 0, e.id, "\003", 1);
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_TRUE(WIFSIGNALED(e.exit.status) && WTERMSIG(e.exit.status) == SIGINT);
	peer_exec_done(&e);
	/* All of a terminal's output comes before the exit, many lines included. */
	peer_shell(&p, &e, CM_EXEC_TTY, "seq 1 20000");
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_EQUAL(e.out_size, 108894 + 20000);
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* ---- Hostile frames ---- */

static void test_order(void)
{
	uint8_t exec[sizeof(struct cm_exec) + 6] = {1};
	struct cm_resume resume = {.generation = 9};
	static struct peer_frame f;
	struct peer p;

	peer_start(&p, initd_path, false);
	memcpy(exec + sizeof(struct cm_exec), "true\0", 6);
	frame_check_refused(&p, CM_F_EXEC, 0, 5, exec, sizeof(exec));
	frame_check_refused(&p, CM_F_STDIN, 0, 5, "x", 1);
	peer_send(&p, CM_F_RESUME, 0, 0, &resume, sizeof(resume));
	CU_ASSERT_TRUE(peer_receive(&p, &f, 5000) && f.head.type == CM_F_RESUMED);
	/* A second one, as after a restore. */
	resume.generation = 10;
	peer_send(&p, CM_F_RESUME, 0, 0, &resume, sizeof(resume));
	CU_ASSERT_TRUE(peer_receive(&p, &f, 5000) && f.head.type == CM_F_RESUMED);
	CU_ASSERT_EQUAL(f.payload[0], 10);
	peer_send(&p, CM_F_REPORT_GET, 0, 0, NULL, 0);
	CU_ASSERT_TRUE(peer_receive(&p, &f, 5000) && f.head.type == CM_F_REPORT);
	CU_ASSERT_EQUAL(f.head.flags, 1);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

static void test_malformed(void)
{
	uint8_t bytes[64] = {0};
	struct cm_frame head = {.type = CM_F_SHUTDOWN, .reserved = 1};
	static uint8_t big[CM_FRAME_MAX];
	static struct peer_frame f;
	struct peer_exec e;
	struct peer p;
	uint32_t type;

	peer_start(&p, initd_path, true);
	/* Every type that is not the host's. */
	for (type = 0; type < 256; type++)
		if ((type < CM_F_RESUME || type > CM_F_REPORT_GET) && type != CM_F_CREDIT)
			frame_check_refused(&p, (uint16_t)type, 0, 0, NULL, 0);
	frame_check_refused(&p, 0xffff, 0xffff, 0xffffffff, big, sizeof(big));
	peer_send_raw(&p, &head, sizeof(head));
	CU_ASSERT_TRUE(peer_receive(&p, &f, 5000) && f.head.type == CM_F_ERROR);
	/* Lengths, ids and flags. */
	frame_check_refused(&p, CM_F_RESUME, 0, 0, bytes, 7);
	frame_check_refused(&p, CM_F_RESUME, 0, 0, bytes, 9);
	frame_check_refused(&p, CM_F_RESUME, 0, 1, bytes, 8);
	frame_check_refused(&p, CM_F_RESUME, 1, 0, bytes, 8);
	frame_check_refused(&p, CM_F_SHUTDOWN, 0, 0, bytes, 1);
	frame_check_refused(&p, CM_F_SHUTDOWN, 0, 3, NULL, 0);
	frame_check_refused(&p, CM_F_REPORT_GET, 0, 0, bytes, 1);
	frame_check_refused(&p, CM_F_EXEC, 0, 0, bytes, sizeof(bytes));
	frame_check_refused(&p, CM_F_EXEC, 8, 1000, bytes, sizeof(bytes));
	frame_check_refused(&p, CM_F_EXEC, 0, 1000, bytes, 5);
	frame_check_refused(&p, CM_F_EXEC, 0, 1000, bytes, sizeof(bytes));
	frame_check_refused(&p, CM_F_STDIN, 0, 0, bytes, 1);
	frame_check_refused(&p, CM_F_STDIN, 0, 1000, bytes, 1);
	frame_check_refused(&p, CM_F_SIGNAL, 0, 1000, bytes, 4);
	frame_check_refused(&p, CM_F_SIGNAL, 0, 1000, bytes, 3);
	frame_check_refused(&p, CM_F_RESIZE, 0, 1000, bytes, 4);
	frame_check_refused(&p, CM_F_CREDIT, 0, 1000, bytes, 8);

	peer_shell(&p, &e, 0, "sleep 10");
	CU_ASSERT_TRUE(peer_pump(&p, &e, 1, 5000));
	frame_check_refused(&p, CM_F_EXEC, 0, e.id, bytes, sizeof(bytes));
	frame_check_refused(&p, CM_F_SIGNAL, 0, e.id, bytes, 4);
	bytes[0] = 65;
	frame_check_refused(&p, CM_F_SIGNAL, 0, e.id, bytes, 4);
	bytes[0] = CM_F_STDIN;
	bytes[4] = 1;
	frame_check_refused(&p, CM_F_CREDIT, 0, e.id, bytes, 8);
	bytes[0] = CM_F_STDOUT;
	frame_check_refused(&p, CM_F_CREDIT, 0, e.id, bytes, 8);
	bytes[4] = 0;
	frame_check_refused(&p, CM_F_CREDIT, 0, e.id, bytes, 8);
	peer_check_alive(&p);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

static void exec_check_refused(struct peer *p, const struct cm_exec *head,
			       const char *tail, size_t tail_size)
{
	uint8_t bytes[256];

	memcpy(bytes, head, sizeof(*head));
	memcpy(bytes + sizeof(*head), tail, tail_size);
	frame_check_refused(p, CM_F_EXEC, 0, 1000, bytes, sizeof(*head) + tail_size);
}

static void test_malformed_exec(void)
{
	struct cm_exec head = {.argc = 1};
	struct peer p;

	peer_start(&p, initd_path, true);
	exec_check_refused(&p, &head, "true", 5);       /* no directory */
	exec_check_refused(&p, &head, "true\0/x", 6);   /* not ended */
	exec_check_refused(&p, &head, "true\0/\0x", 8); /* too much */
	head.argc = 3;
	exec_check_refused(&p, &head, "true\0", 6);
	head.argc = CM_EXEC_STRINGS + 1;
	exec_check_refused(&p, &head, "true\0", 6);
	head.argc = 0xffffffff;
	exec_check_refused(&p, &head, "true\0", 6);
	head.argc = 1;
	head.envc = 1;
	exec_check_refused(&p, &head, "true\0NAME\0", 11);
	exec_check_refused(&p, &head, "true\0=x\0", 9);
	exec_check_refused(&p, &head, "true\0A=x", 9);
	head.envc = 0xffffffff;
	exec_check_refused(&p, &head, "true\0A=x\0", 10);
	head.envc = 0;
	head.reserved = 1;
	exec_check_refused(&p, &head, "true\0", 6);
	head.reserved = 0;
	head.rows = 1;
	exec_check_refused(&p, &head, "true\0", 6);
	peer_check_alive(&p);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

static void test_framing_lost(void)
{
	struct cm_frame head = {.type = CM_F_STDIN, .id = 1, .length = CM_FRAME_MAX + 1};
	static struct peer_frame f;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_send_raw(&p, &head, sizeof(head));
	CU_ASSERT_TRUE(peer_receive(&p, &f, 5000) && f.head.type == CM_F_ERROR);
	CU_ASSERT_EQUAL(peer_wait(&p), 2);
}

/* A flood of bad frames by a host that does not read, then does. */
static void test_error_flood(void)
{
	struct cm_frame head = {.type = 200};
	static struct peer_frame f;
	struct peer p;
	pid_t writer;
	int i;

	peer_start(&p, initd_path, true);
	writer = fork();
	if (writer == 0) {
		for (i = 0; i < 50000; i++)
			peer_send_raw(&p, &head, sizeof(head));
		_exit(0);
	}
	usleep(300000);
	for (i = 0; i < 50000; i++) {
		if (!peer_receive(&p, &f, 5000) || f.head.type != CM_F_ERROR)
			break;
	}
	CU_ASSERT_EQUAL(i, 50000);
	waitpid(writer, NULL, 0);
	peer_check_alive(&p);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* Bytes without sense, many times: initd ends by lost framing or goes on, and never
 * crashes or hangs. */
static void test_noise(void)
{
	uint8_t bytes[4096];
	unsigned int seed = 1;
	static struct peer_frame f;
	struct peer p;
	size_t i;
	int round, status;

	for (round = 0; round < 40; round++) {
		peer_start(&p, initd_path, round & 1);
		for (i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)(rand_r(&seed) >> 8);
		for (i = 0; i + 16 <= sizeof(bytes); i += 16) {
			bytes[i] &= 0x0f; /* lengths that lead on */
			bytes[i + 1] = bytes[i + 2] = bytes[i + 3] = 0;
			bytes[i + 4] = (uint8_t)(32 + bytes[i + 4] % 40);
			bytes[i + 5] = 0;
		}
		peer_send_raw(&p, bytes, sizeof(bytes));
		shutdown(p.fd, 1);
		while (peer_receive(&p, &f, 5000))
			;
		status = peer_wait(&p);
		CU_ASSERT_TRUE(status == 0 || status == 1 || status == 2);
	}
}

static void test_host_gone(void)
{
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, 0, "sleep 100");
	CU_ASSERT_TRUE(peer_pump(&p, &e, 1, 5000));
	shutdown(p.fd, 2);
	CU_ASSERT_EQUAL(peer_wait(&p), 1);
	CU_ASSERT_TRUE(process_dies(e.pid));
}

static const CU_TestInfo tests[] = {
	{"echo", test_echo},
	{"exit codes", test_exit_codes},
	{"environment, directory, descriptors, session", test_surroundings},
	{"big output", test_big_output},
	{"output waits for credit", test_no_credit},
	{"output to the last credit", test_no_credit_late},
	{"host stalls", test_stalled_host},
	{"1000 times: output before exit", test_output_before_exit},
	{"background process holds the pipe", test_background},
	{"orphans are reaped", test_orphans},
	{"stdin", test_stdin},
	{"stdin refused", test_stdin_refused},
	{"failures to start", test_failures},
	{"script without a header", test_headless_script},
	{"more execs than fit", test_many},
	{"signal", test_signal},
	{"shutdown kills", test_shutdown_kills},
	{"terminal", test_terminal},
	{"order of frames", test_order},
	{"malformed frames", test_malformed},
	{"malformed exec", test_malformed_exec},
	{"framing lost", test_framing_lost},
	{"flood of bad frames", test_error_flood},
	{"noise", test_noise},
	{"host gone", test_host_gone},
	CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
	CU_SuiteInfo suites[] = {
		{.pName = "initd", .pTests = (CU_TestInfo *)(uintptr_t)tests},
		{.pName = "resume", .pTests = (CU_TestInfo *)(uintptr_t)resume_tests},
		{.pName = "builtins", .pTests = (CU_TestInfo *)(uintptr_t)builtin_tests},
		{.pName = "connect", .pTests = (CU_TestInfo *)(uintptr_t)connect_tests},
		CU_SUITE_INFO_NULL};
	unsigned int failed;

	if (argc != 2) {
		fprintf(stderr, "usage: %s INITD\n", argv[0]);
		return 2;
	}
	initd_path = realpath(argv[1], NULL); /* tests change directories */
	if (!initd_path) {
		perror(argv[1]);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (CU_initialize_registry() || CU_register_suites(suites))
		return 2;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failed = CU_get_number_of_failures() + CU_get_number_of_tests_failed();
	CU_cleanup_registry();
	return failed != 0;
}
