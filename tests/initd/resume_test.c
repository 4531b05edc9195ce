/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A further RESUME, as after a restore or a fork: what initd announces, and that every exec
 * goes on under its new client without a byte lost, said twice or beyond its credit.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/initd/suites.h"

#define PIPE_BYTES 65536u

/* Until the shell of `e` has said `word`. */
static void output_await(struct peer *p, struct peer_exec *e, const char *word)
{
	while (!e->out || !strstr(e->out, word))
		CU_ASSERT_TRUE_FATAL(peer_pump(p, e, 1, 5000));
}

/* Sends zero bytes of stdin, in frames, without waiting for credit. */
static void zeros_send(struct peer *p, struct peer_exec *e, size_t size)
{
	static const char zeros[CM_FRAME_MAX];
	size_t n;

	for (; size; size -= n) {
		n = size < CM_FRAME_MAX ? size : CM_FRAME_MAX;
		peer_send(p, CM_F_STDIN, 0, e->id, zeros, n);
		e->in_credit -= (uint32_t)n;
	}
}

static void running_check(const struct peer_exec *e, uint16_t flags, uint32_t credit)
{
	CU_ASSERT_EQUAL(e->running, 1);
	CU_ASSERT_EQUAL(e->running_flags, flags);
	CU_ASSERT_EQUAL(e->running_credit, credit);
	CU_ASSERT_FALSE(e->after_end || e->overrun);
}

static void finish_check(struct peer *p, struct peer_exec *e, const char *out, int status)
{
	CU_ASSERT_TRUE(peer_finish(p, e));
	CU_ASSERT_TRUE(e->exited && e->out_end && !e->after_end && !e->overrun);
	CU_ASSERT_EQUAL(e->errors, 0);
	CU_ASSERT_STRING_EQUAL(e->out ? e->out : "", out);
	CU_ASSERT_EQUAL(WEXITSTATUS(e->exit.status), status);
	peer_exec_done(e);
}

/* Execs in every state of stdin, one with a terminal, one that is over. */
static void test_several(void)
{
	enum { IDLE, NONE, TTY, ENDED, DEAF, OVER, COUNT };
	static const struct {
		uint16_t flags;
		const char *script;
	} is[COUNT] = {
		[IDLE] = {CM_EXEC_STDIN, "echo ready; wc -c"},
		[NONE] = {0, "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"},
		[TTY] = {CM_EXEC_TTY | CM_EXEC_STDIN, "echo ready; read x; stty size; exit 4"},
		[ENDED] = {CM_EXEC_STDIN, "cat; echo ready; while :; do sleep 0.01; done"},
		[DEAF] = {CM_EXEC_STDIN, "exec <&-; echo ready; while :; do sleep 0.01; done"},
		[OVER] = {0, "echo ready"},
	};
	uint32_t term = SIGTERM, kill = SIGKILL;
	uint16_t size[2] = {50, 120};
	struct peer_exec e[COUNT];
	struct peer p;
	size_t i;

	peer_start(&p, initd_path, true);
	for (i = 0; i < COUNT; i++) {
		peer_shell(&p, &e[i], is[i].flags, is[i].script);
		if (i == ENDED)
			peer_send(&p, CM_F_STDIN, 0, e[i].id, NULL, 0);
		output_await(&p, &e[i], "ready");
	}
	CU_ASSERT_TRUE(peer_finish(&p, &e[OVER]));
	zeros_send(&p, &e[DEAF], 1000);
	zeros_send(&p, &e[IDLE], 5000);
	CU_ASSERT_TRUE_FATAL(peer_resume(&p, e, COUNT, 8));

	running_check(&e[IDLE], CM_EXEC_STDIN, CM_CREDIT_INITIAL);
	running_check(&e[NONE], 0, 0);
	running_check(&e[TTY], CM_EXEC_TTY | CM_EXEC_STDIN, CM_CREDIT_INITIAL);
	running_check(&e[ENDED], 0, 0);
	running_check(&e[DEAF], CM_EXEC_STDIN, CM_CREDIT_INITIAL);
	CU_ASSERT_EQUAL(e[OVER].running, 0);

	/* Each answers to its id as before. */
	/* What was passed on before RUNNING is in its credit and is not granted once more: so
	 * this is just not enough for a grant. */
	zeros_send(&p, &e[IDLE], CM_CREDIT_INITIAL / 4 - 1);
	CU_ASSERT_FALSE(peer_pump(&p, &e[IDLE], 1, 100));
	peer_send(&p, CM_F_STDIN, 0, e[IDLE].id, NULL, 0);
	finish_check(&p, &e[IDLE], "ready\n70535\n", 0);
	peer_send(&p, CM_F_SIGNAL, 0, e[NONE].id, &term, sizeof(term));
	finish_check(&p, &e[NONE], "ready\n", 3);
	peer_send(&p, CM_F_RESIZE, 0, e[TTY].id, size, sizeof(size));
	peer_send(&p, CM_F_STDIN, 0, e[TTY].id, "x\n", 2);
	finish_check(&p, &e[TTY], "ready\r\nx\r\n50 120\r\n", 4);
	frame_check_refused(&p, CM_F_STDIN, 0, e[ENDED].id, "x", 1);
	for (i = ENDED; i <= DEAF; i++) {
		peer_send(&p, CM_F_SIGNAL, 0, e[i].id, &kill, sizeof(kill));
		CU_ASSERT_TRUE(peer_finish(&p, &e[i]));
		CU_ASSERT_EQUAL(WTERMSIG(e[i].exit.status), SIGKILL);
		peer_exec_done(&e[i]);
	}
	peer_exec_done(&e[OVER]);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* Stdin that initd holds is missing in the credit, is not lost, and is granted in the end:
 * the exec reads nothing until told to by a signal. */
static void test_stdin_pending(void)
{
	uint32_t number = SIGUSR1;
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, CM_EXEC_STDIN,
		   "go=; trap go=1 USR1; echo ready; "
		   "while [ ! $go ]; do sleep 0.01; done; wc -c");
	output_await(&p, &e, "ready");
	zeros_send(&p, &e, 200000);
	/* In one go with what comes before it. */
	CU_ASSERT_TRUE_FATAL(peer_resume(&p, &e, 1, 8));
	running_check(&e, CM_EXEC_STDIN, CM_CREDIT_INITIAL - (200000 - PIPE_BYTES));
	/* To the last byte, and not one more. */
	zeros_send(&p, &e, e.in_credit);
	frame_check_refused(&p, CM_F_STDIN, 0, e.id, "x", 1);
	CU_ASSERT_TRUE_FATAL(peer_resume(&p, &e, 1, 9));
	CU_ASSERT_EQUAL(e.running_credit, 0);
	frame_check_refused(&p, CM_F_STDIN, 0, e.id, "x", 1);
	peer_send(&p, CM_F_SIGNAL, 0, e.id, &number, sizeof(number));
	/* All of it is granted again, up to initd's step, and never more than all. */
	while (e.in_credit < CM_CREDIT_INITIAL - CM_CREDIT_INITIAL / 4)
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, &e, 1, 5000));
	CU_ASSERT_FALSE(e.overrun);
	zeros_send(&p, &e, e.in_credit);
	while (e.in_credit < CM_CREDIT_INITIAL / 2)
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, &e, 1, 5000));
	CU_ASSERT_FALSE(e.overrun);
	peer_send(&p, CM_F_STDIN, 0, e.id, NULL, 0);
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_EQUAL(e.errors, 0);
	CU_ASSERT_EQUAL(WEXITSTATUS(e.exit.status), 0);
	CU_ASSERT_TRUE(atoi(e.out + strlen("ready\n")) >=
		       (int)(CM_CREDIT_INITIAL + PIPE_BYTES + CM_CREDIT_INITIAL / 2));
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* End of stdin came while bytes were held: no STDIN in the flags, all bytes and the end
 * arrive. */
static void test_stdin_pending_end(void)
{
	uint32_t number = SIGUSR1;
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, CM_EXEC_STDIN,
		   "go=; trap go=1 USR1; echo ready; "
		   "while [ ! $go ]; do sleep 0.01; done; wc -c");
	output_await(&p, &e, "ready");
	zeros_send(&p, &e, 200000);
	peer_send(&p, CM_F_STDIN, 0, e.id, NULL, 0);
	CU_ASSERT_TRUE_FATAL(peer_resume(&p, &e, 1, 8));
	running_check(&e, 0, 0);
	peer_send(&p, CM_F_SIGNAL, 0, e.id, &number, sizeof(number));
	finish_check(&p, &e, "ready\n200000\n", 0);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

static size_t numbers_check(const char *text, size_t size)
{
	char line[16];
	size_t at, n, i;

	for (at = 0, i = 1; at < size; at += n, i++) {
		n = (size_t)snprintf(line, sizeof(line), "%zu\n", i);
		if (at + n > size || memcmp(text + at, line, n))
			break;
	}
	return at;
}

/* An exec that waits for credit gets the initial one again from each client. */
static void test_output_blocked(void)
{
	size_t size = 588895; /* seq 1 100000 */
	struct peer_exec e;
	struct peer p;
	uint64_t generation = 8;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, 0, "seq 1 100000; exit 5");
	e.no_grants = true;
	while (peer_pump(&p, &e, 1, 300))
		;
	CU_ASSERT_EQUAL(e.out_size, CM_CREDIT_INITIAL);
	/* A grant of the old client that arrives before RESUME is an ordinary one. */
	peer_send(&p, CM_F_CREDIT, 0, e.id,
		  &(struct cm_credit){.stream = CM_F_STDOUT, .bytes = 1000},
		  sizeof(struct cm_credit));
	e.out_credit += 1000;
	while (!e.exited) {
		CU_ASSERT_TRUE_FATAL(peer_resume(&p, &e, 1, generation++));
		while (!e.exited && peer_pump(&p, &e, 1, 300))
			;
		CU_ASSERT_TRUE_FATAL(generation < 12);
	}
	CU_ASSERT_EQUAL(e.running, 2);
	CU_ASSERT_EQUAL(e.out_size, size);
	CU_ASSERT_EQUAL(numbers_check(e.out, e.out_size), size);
	CU_ASSERT_TRUE(e.out_end && e.err_end && !e.after_end && !e.overrun);
	CU_ASSERT_EQUAL(WEXITSTATUS(e.exit.status), 5);
	CU_ASSERT_EQUAL(e.errors, 0);
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* It has exited, but its output and so its EXIT are held up. Its stderr has ended, and the
 * old client knows; the new one has to be told. */
static void test_exited(void)
{
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, CM_EXEC_STDIN, "head -c 300000 /dev/zero; exit 7");
	e.no_grants = true;
	while (peer_pump(&p, &e, 1, 300))
		;
	CU_ASSERT_EQUAL(e.out_size, CM_CREDIT_INITIAL);
	CU_ASSERT_TRUE(e.err_end && !e.exited);
	CU_ASSERT_TRUE_FATAL(peer_resume(&p, &e, 1, 8));
	CU_ASSERT_EQUAL(e.running, 1);
	CU_ASSERT_TRUE(peer_finish(&p, &e));
	CU_ASSERT_EQUAL(e.out_size, 300000);
	CU_ASSERT_TRUE(e.out_end && e.err_end && !e.after_end && !e.overrun);
	CU_ASSERT_EQUAL(WEXITSTATUS(e.exit.status), 7);
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* A stream that a running exec has closed itself. */
static void test_stream_closed(void)
{
	struct peer_exec e;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, CM_EXEC_STDIN, "exec 2>&-; echo ready; cat");
	output_await(&p, &e, "ready");
	while (!e.err_end)
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, &e, 1, 5000));
	CU_ASSERT_TRUE_FATAL(peer_resume(&p, &e, 1, 8));
	while (!e.err_end)
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, &e, 1, 5000));
	CU_ASSERT_FALSE(e.out_end);
	peer_send(&p, CM_F_STDIN, 0, e.id, "go on", 5);
	peer_send(&p, CM_F_STDIN, 0, e.id, NULL, 0);
	finish_check(&p, &e, "ready\ngo on", 0);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* RESUME while initd's queue is full and a frame half written, again and again: whoever
 * ended before it says so before it, the others are announced, and the sums are right. */
static void test_stalled(void)
{
	struct peer_exec e[16];
	struct peer p;
	size_t i;
	unsigned int round;
	bool more = true;

	peer_start(&p, initd_path, true);
	for (i = 0; i < 16; i++)
		peer_shell(&p, &e[i], 0, "seq 1 100000; exit 5");
	for (round = 0; more; round++) {
		usleep(100000);
		CU_ASSERT_TRUE_FATAL(peer_resume(&p, e, 16, 8 + round));
		for (i = 0; i < 16; i++)
			CU_ASSERT_TRUE(e[i].exited ? e[i].running <= round + 1
						   : e[i].running == round + 1);
		for (i = 0; i < 20 * (round + 1); i++)
			if (!peer_pump(&p, e, 16, 1000))
				break;
		for (more = false, i = 0; i < 16; i++)
			more |= !e[i].exited;
		CU_ASSERT_TRUE_FATAL(round < 100);
	}
	CU_ASSERT_TRUE(round > 1);
	for (i = 0; i < 16; i++) {
		CU_ASSERT_EQUAL(e[i].out_size, 588895);
		CU_ASSERT_EQUAL(numbers_check(e[i].out, e[i].out_size), 588895);
		CU_ASSERT_EQUAL(WEXITSTATUS(e[i].exit.status), 5);
		CU_ASSERT_FALSE(e[i].after_end || e[i].overrun);
		CU_ASSERT_EQUAL(e[i].errors, 0);
		peer_exec_done(&e[i]);
	}
	peer_check_alive(&p);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* As many as there can be: all announced in one answer. */
static void test_full_table(void)
{
	uint32_t number = SIGKILL;
	struct peer_exec e[64];
	struct peer p;
	size_t i;

	peer_start(&p, initd_path, true);
	for (i = 0; i < 64; i++)
		peer_shell(&p, &e[i], CM_EXEC_STDIN, "exec sleep 30");
	for (i = 0; i < 64; i++)
		while (!e[i].started)
			CU_ASSERT_TRUE_FATAL(peer_pump(&p, e, 64, 5000));
	CU_ASSERT_TRUE_FATAL(peer_resume(&p, e, 64, 8));
	CU_ASSERT_TRUE_FATAL(peer_resume(&p, e, 64, 9));
	for (i = 0; i < 64; i++)
		CU_ASSERT_EQUAL(e[i].running, 2);
	for (i = 0; i < 64; i++)
		peer_send(&p, CM_F_SIGNAL, 0, e[i].id, &number, sizeof(number));
	for (i = 0; i < 64; i++)
		while (!e[i].exited)
			CU_ASSERT_TRUE_FATAL(peer_pump(&p, e, 64, 5000));
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* A new client knows the ids of RUNNING and no others: those are taken, all else is free. */
static void test_ids(void)
{
	struct peer_exec live, over;
	struct peer p;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &over, 0, "true");
	CU_ASSERT_TRUE(peer_finish(&p, &over));
	peer_shell(&p, &live, CM_EXEC_STDIN, "cat");
	CU_ASSERT_TRUE(peer_pump(&p, &live, 1, 5000));
	CU_ASSERT_TRUE_FATAL(peer_resume(&p, &live, 1, 8));
	/* Nothing of the new client's can cross the end of an exec it was not told of. */
	frame_check_refused(&p, CM_F_STDIN, 0, over.id, "x", 1);
	p.next_id = live.id;
	peer_shell(&p, &over, 0, "true");
	while (!live.errors)
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, &live, 1, 5000));
	CU_ASSERT_STRING_EQUAL(live.error, "initd: frame type 33: id was used before");
	live.errors = 0;
	p.next_id = 1;
	peer_shell(&p, &over, 0, "echo again");
	CU_ASSERT_EQUAL(over.id, 1);
	finish_check(&p, &over, "again\n", 0);
	/* Within one client's time an id is used once, as ever. */
	p.next_id = 1;
	peer_shell(&p, &over, 0, "true");
	while (!over.errors)
		CU_ASSERT_TRUE_FATAL(peer_pump(&p, &over, 1, 5000));
	peer_send(&p, CM_F_STDIN, 0, live.id, "end", 3);
	peer_send(&p, CM_F_STDIN, 0, live.id, NULL, 0);
	finish_check(&p, &live, "end", 0);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

/* RESUME in pieces, behind half a frame of the old client that is completed first. */
static void test_pieces(void)
{
	uint8_t bytes[2 * sizeof(struct cm_frame) + 5 + sizeof(struct cm_resume)];
	struct cm_frame in = {.type = CM_F_STDIN, .length = 5};
	struct cm_frame head = {.type = CM_F_RESUME, .length = sizeof(struct cm_resume)};
	struct cm_resume resume = {.generation = 8};
	static struct peer_frame f;
	struct peer_exec e;
	struct peer p;
	size_t i;

	peer_start(&p, initd_path, true);
	peer_shell(&p, &e, CM_EXEC_STDIN, "cat");
	CU_ASSERT_TRUE(peer_pump(&p, &e, 1, 5000));
	in.id = e.id;
	memcpy(bytes, &in, sizeof(in));
	memcpy(bytes + sizeof(in), "hello", 5);
	memcpy(bytes + sizeof(in) + 5, &head, sizeof(head));
	memcpy(bytes + 2 * sizeof(in) + 5, &resume, sizeof(resume));
	for (i = 0; i < sizeof(bytes); i++) {
		peer_send_raw(&p, bytes + i, 1);
		usleep(2000);
	}
	do {
		CU_ASSERT_TRUE_FATAL(peer_receive(&p, &f, 5000));
	} while (f.head.type == CM_F_STDOUT);
	CU_ASSERT_EQUAL(f.head.type, CM_F_RUNNING);
	CU_ASSERT_EQUAL(f.head.id, e.id);
	CU_ASSERT_TRUE(peer_receive(&p, &f, 5000) && f.head.type == CM_F_RESUMED);
	peer_check_alive(&p);
	CU_ASSERT_EQUAL(peer_stop(&p), 0);
}

const CU_TestInfo resume_tests[] = {
	{"several execs", test_several},
	{"stdin held by initd", test_stdin_pending},
	{"stdin held by initd, ended", test_stdin_pending_end},
	{"output waits for credit", test_output_blocked},
	{"exited, not delivered", test_exited},
	{"stream closed by the exec", test_stream_closed},
	{"host stalls", test_stalled},
	{"all slots taken", test_full_table},
	{"ids", test_ids},
	{"in pieces", test_pieces},
	CU_TEST_INFO_NULL,
};
