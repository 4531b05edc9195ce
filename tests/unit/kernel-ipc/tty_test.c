/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terminals: tables of what is typed, what the program then reads and what is echoed; job
 * control; hang-up; modes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#include "guest-kernel/ipc/tty.h"
#include "tests/unit/kernel-ipc/env.h"
#include "tests/unit/kernel-ipc/suites.h"

#include <asm/ioctls.h>
#include <asm/termbits.h>

static int master, slave;

static void term_open(void)
{
	int unlock = 0;

	env_reset();
	master = env_open_chr(KMKDEV(5, 2), KO_RDWR | KO_NONBLOCK);
	CU_ASSERT_FATAL(master >= 0);
	CU_ASSERT_EQUAL(env_open_chr(KMKDEV(136, 0), KO_RDWR), -EIO);	/* locked */
	CU_ASSERT_EQUAL(env_ioctl(master, TIOCSPTLCK, (unsigned long)&unlock), 0);
	slave = env_open_chr(KMKDEV(136, 0), KO_RDWR | KO_NONBLOCK | KO_NOCTTY);
	CU_ASSERT_FATAL(slave >= 0);
}

static void term_close(void)
{
	env_close_all();
	tty_forget(process_find(1));
	CU_ASSERT_EQUAL(env_live, 0);
}

static void modes(uint32_t iset, uint32_t iclear, uint32_t oset, uint32_t oclear,
		  uint32_t lset, uint32_t lclear)
{
	struct tty_termios t;

	env_ioctl(slave, TCGETS, (unsigned long)&t);
	t.iflag = (t.iflag | iset) & ~iclear;
	t.oflag = (t.oflag | oset) & ~oclear;
	t.lflag = (t.lflag | lset) & ~lclear;
	CU_ASSERT_EQUAL(env_ioctl(slave, TCSETS, (unsigned long)&t), 0);
}

static void set_cc(unsigned which, uint8_t v)
{
	struct tty_termios t;

	env_ioctl(slave, TCGETS, (unsigned long)&t);
	t.cc[which] = v;
	env_ioctl(slave, TCSETS, (unsigned long)&t);
}

static void expect(int fd, const char *want)
{
	char buf[512];
	long n = env_read(fd, buf, sizeof(buf) - 1);

	if (want == NULL) {
		CU_ASSERT_EQUAL(n, -EAGAIN);
		return;
	}
	buf[n < 0 ? 0 : n] = 0;
	if (n != (long)strlen(want) || memcmp(buf, want, (size_t)n) != 0) {
		printf("\nwant \"%s\" got %ld \"%s\"\n", want, n, buf);
		CU_FAIL("terminal text");
	}
}

static const struct line {
	const char *typed;
	const char *reads[3];	/* what reads give, in order; "" is end of file */
	const char *echo;
	uint32_t iset, iclear, lset, lclear;
} lines[] = {
	{ "hello\n", { "hello\n" }, "hello\r\n", 0, 0, 0, 0 },
	{ "hello\r", { "hello\n" }, "hello\r\n", 0, 0, 0, 0 },
	{ "abc", { NULL }, "abc", 0, 0, 0, 0 },
	{ "abX\177c\n", { "abc\n" }, "abX\b \bc\r\n", 0, 0, 0, 0 },
	{ "a\177\177\177b\n", { "b\n" }, "a\b \bb\r\n", 0, 0, 0, 0 },
	{ "one two\027x\n", { "one x\n" }, "one two\b \b\b \b\b \bx\r\n", 0, 0, 0, 0 },
	{ "abc\025d\n", { "d\n" }, "abc\b \b\b \b\b \bd\r\n", 0, 0, 0, 0 },
	{ "abc\025d\n", { "d\n" }, "abc^U\r\nd\r\n", 0, 0, 0, ECHOKE },
	{ "abc\025d\n", { "d\n" }, "abc^Ud\r\n", 0, 0, 0, ECHOK },
	{ "a\001b\n", { "a\001b\n" }, "a^Ab\r\n", 0, 0, 0, 0 },
	{ "a\001\177b\n", { "ab\n" }, "a^A\b \b\b \bb\r\n", 0, 0, 0, 0 },
	{ "a\001b\n", { "a\001b\n" }, "a\001b\r\n", 0, 0, 0, ECHOCTL },
	{ "a\tb\177\177c\n", { "ac\n" }, "a\tb\b \b\b\b\b\b\b\b\bc\r\n", 0, 0, 0, 0 },
	{ "ab\004cd\n", { "ab", "cd\n" }, "abcd\r\n", 0, 0, 0, 0 },
	{ "\004", { "" }, "", 0, 0, 0, 0 },
	{ "a\n\004b\n", { "a\n", "", "b\n" }, "a\r\nb\r\n", 0, 0, 0, 0 },
	{ "a\026\003b\n", { "a\003b\n" }, "a^\b^Cb\r\n", 0, 0, 0, 0 },
	{ "ab\022c\n", { "abc\n" }, "ab^R\r\nabc\r\n", 0, 0, 0, 0 },
	{ "pw\n", { "pw\n" }, "", 0, 0, 0, ECHO },
	{ "pw\n", { "pw\n" }, "\r\n", 0, 0, ECHONL, ECHO },
	{ "a\rb\n", { "ab\n" }, "ab\r\n", IGNCR, 0, 0, 0 },
	{ "a\rb\n", { "a\rb\n" }, "a^Mb\r\n", 0, ICRNL, 0, 0 },
	{ "A\303\251\177b\n", { "Ab\n" }, "A\303\251\b \bb\r\n", IUTF8, 0, 0, 0 },
	{ "abc\177\177d\n", { "ad\n" }, "abc\\cb/d\r\n", 0, 0, ECHOPRT, 0 },
	{ "AB\n", { "ab\n" }, "ab\r\n", IUCLC, 0, 0, 0 },
	{ "\301\n", { "A\n" }, "A\r\n", ISTRIP, 0, 0, 0 },
};

static void test_lines(void)
{
	for (unsigned k = 0; k < ARRAY_SIZE(lines); k++) {
		const struct line *l = &lines[k];

		term_open();
		modes(l->iset, l->iclear, 0, 0, l->lset, l->lclear);
		CU_ASSERT_EQUAL(env_write(master, l->typed, strlen(l->typed)),
				(long)strlen(l->typed));
		for (unsigned r = 0; r < 3 && l->reads[r] != NULL; r++)
			expect(slave, l->reads[r]);
		expect(slave, NULL);
		expect(master, l->echo[0] != 0 ? l->echo : NULL);
		term_close();
	}
}

static void test_signals(void)
{
	struct process *p = process_find(1);
	static const struct {
		const char *typed, *signals, *echo;
	} keys[] = {
		{ "x\003", "2>g1 ", "^C" }, { "x\034", "3>g1 ", "^\\" },
		{ "x\032", "20>g1 ", "^Z" },
	};

	for (unsigned k = 0; k < ARRAY_SIZE(keys); k++) {
		term_open();
		CU_ASSERT_EQUAL(env_ioctl(slave, TIOCSCTTY, 0), 0);
		CU_ASSERT_PTR_NOT_NULL(p->ctty);
		env_write(master, keys[k].typed, strlen(keys[k].typed));
		CU_ASSERT_STRING_EQUAL(env_signals, keys[k].signals);
		/* What was typed before is flushed, from both queues. */
		expect(slave, NULL);
		expect(master, keys[k].echo);
		term_close();
	}
	term_open();
	modes(0, 0, 0, 0, 0, ISIG);
	env_write(master, "\003\n", 2);
	expect(slave, "\003\n");
	term_close();
}

static void test_partial(void)
{
	char buf[8];

	term_open();
	env_write(master, "abcdef\n", 7);
	CU_ASSERT_EQUAL(env_read(slave, buf, 3), 3);
	CU_ASSERT_EQUAL(env_read(slave, buf, 8), 4);
	env_write(master, "abc\004", 4);
	CU_ASSERT_EQUAL(env_read(slave, buf, 3), 3);
	expect(slave, NULL);	/* the mark went with the text */
	CU_ASSERT_EQUAL(env_read(slave, buf, 0), 0);
	term_close();
}

static bool no_input(void)
{
	return false;
}

static bool type_one(void)
{
	static int n;

	env_write(master, n++ % 2 ? "b" : "a", 1);
	return true;
}

static void test_raw(void)
{
	char buf[16];
	struct file *f;

	term_open();
	modes(0, ICRNL | IXON, 0, OPOST, 0, ICANON | ECHO | ISIG | IEXTEN);
	env_write(master, "a\rb\003\004", 5);
	expect(slave, "a\rb\003\004");
	expect(master, NULL);
	set_cc(VMIN, 0);
	CU_ASSERT_EQUAL(env_read(slave, buf, 16), 0);
	f = fd_get(slave);
	f->flags &= ~KO_NONBLOCK;
	file_put(f);
	set_cc(VTIME, 2);
	env_sleep = no_input;
	CU_ASSERT_EQUAL(env_read(slave, buf, 16), 0);
	set_cc(VMIN, 3);
	set_cc(VTIME, 0);
	env_sleep = type_one;
	CU_ASSERT_EQUAL(env_read(slave, buf, 16), 3);
	set_cc(VTIME, 1);
	env_sleep = NULL;
	env_write(master, "zz", 2);
	CU_ASSERT_EQUAL(env_read(slave, buf, 16), 2);	/* time ran out between characters */
	term_close();
}

static void test_switch(void)
{
	term_open();
	env_write(master, "abc", 3);
	expect(slave, NULL);
	modes(0, 0, 0, 0, 0, ICANON);
	expect(slave, "abc");
	env_write(master, "xyz", 3);
	modes(0, 0, 0, 0, ICANON, 0);
	expect(slave, "xyz");
	env_write(master, "q\n", 2);
	expect(slave, "q\n");
	term_close();
}

static void test_output(void)
{
	static char big[40000];
	long n;

	term_open();
	env_write(slave, "a\nb\tc\r\n", 7);
	expect(master, "a\r\nb\tc\r\r\n");
	modes(0, 0, XTABS, 0, 0, 0);
	env_write(slave, "ab\tc", 4);
	expect(master, "ab      c");
	memset(big, 'x', sizeof(big));
	n = env_write(slave, big, sizeof(big));
	CU_ASSERT(n > 16000 && n < 16400);
	CU_ASSERT_EQUAL(env_write(slave, big, 1), -EAGAIN);
	CU_ASSERT_EQUAL(env_poll(slave) & KPOLLOUT, 0);
	while (env_read(master, big, sizeof(big)) > 0)
		;
	CU_ASSERT_EQUAL(env_poll(slave) & KPOLLOUT, KPOLLOUT);
	/* Flow control. */
	env_write(master, "\023", 1);
	CU_ASSERT_EQUAL(env_write(slave, "a", 1), -EAGAIN);
	env_write(master, "\021", 1);
	CU_ASSERT_EQUAL(env_write(slave, "a", 1), 1);
	term_close();
}

static void test_job_control(void)
{
	struct process *leader = process_find(1), *bg = process_find(7);
	char c;
	int pgrp = 7;

	if (bg == NULL) {
		struct process *shell = env_process(5, 5, 1, leader);

		bg = env_process(7, 7, 1, shell);
	}
	bg->sid = 1;
	term_open();
	env_ioctl(slave, TIOCSCTTY, 0);
	bg->ctty = leader->ctty;
	tty_get(bg->ctty);
	env_switch(bg);
	CU_ASSERT_EQUAL(env_read(slave, &c, 1), -ERESTARTSYS);
	CU_ASSERT_STRING_EQUAL(env_signals, "21>g7 ");
	env_signals[0] = 0;
	CU_ASSERT_EQUAL(env_write(slave, "x", 1), 1);
	env_signals[0] = 0;
	env_switch(leader);
	modes(0, 0, 0, 0, TOSTOP, 0);
	env_switch(bg);
	CU_ASSERT_EQUAL(env_write(slave, "x", 1), -ERESTARTSYS);
	CU_ASSERT_STRING_EQUAL(env_signals, "22>g7 ");
	env_signal_ignored = SIG_BIT(KSIGTTOU) | SIG_BIT(KSIGTTIN);
	CU_ASSERT_EQUAL(env_write(slave, "x", 1), 1);
	CU_ASSERT_EQUAL(env_read(slave, &c, 1), -EIO);
	CU_ASSERT_EQUAL(env_ioctl(slave, TIOCSPGRP, (unsigned long)&pgrp), 0);
	env_signal_ignored = 0;
	CU_ASSERT_EQUAL(env_read(slave, &c, 1), -EAGAIN);
	pgrp = 12345;
	CU_ASSERT_EQUAL(env_ioctl(slave, TIOCSPGRP, (unsigned long)&pgrp), -ESRCH);
	CU_ASSERT_EQUAL(env_ioctl(slave, TIOCGSID, (unsigned long)&pgrp), 0);
	CU_ASSERT_EQUAL(pgrp, 1);
	env_signals[0] = 0;
	env_switch(leader);
	tty_session_exit(leader);
	CU_ASSERT_STRING_EQUAL(env_signals, "1>g7 ");
	CU_ASSERT_PTR_NULL(bg->ctty);
	CU_ASSERT_EQUAL(env_open_chr(KMKDEV(5, 0), KO_RDWR), -ENXIO);
	term_close();
}

static void test_hangup(void)
{
	char c;

	term_open();
	fd_close(slave);
	CU_ASSERT_EQUAL(env_read(master, &c, 1), -EIO);
	CU_ASSERT_EQUAL(env_poll(master) & KPOLLHUP, KPOLLHUP);
	slave = env_open_chr(KMKDEV(136, 0), KO_RDWR | KO_NONBLOCK);
	CU_ASSERT_PTR_NOT_NULL(process_find(1)->ctty);	/* opened without O_NOCTTY */
	CU_ASSERT_EQUAL(env_read(master, &c, 1), -EAGAIN);
	fd_close(master);
	CU_ASSERT_STRING_EQUAL(env_signals, "1>1 18>1 ");
	CU_ASSERT_EQUAL(env_read(slave, &c, 1), 0);
	CU_ASSERT_EQUAL(env_write(slave, "x", 1), -EIO);
	CU_ASSERT_EQUAL(env_poll(slave) & (KPOLLHUP | KPOLLERR), KPOLLHUP | KPOLLERR);
	CU_ASSERT_PTR_NULL(process_find(1)->ctty);
	term_close();
}

static void test_misc(void)
{
	struct kwinsize w = { 24, 80, 0, 0 }, got;
	int v = 1;
	char buf[8];

	term_open();
	env_ioctl(slave, TIOCSCTTY, 0);
	CU_ASSERT_EQUAL(env_ioctl(master, TIOCSWINSZ, (unsigned long)&w), 0);
	CU_ASSERT_STRING_EQUAL(env_signals, "28>g1 ");
	env_ioctl(master, TIOCSWINSZ, (unsigned long)&w);
	CU_ASSERT_STRING_EQUAL(env_signals, "28>g1 ");
	CU_ASSERT_EQUAL(env_ioctl(slave, TIOCGWINSZ, (unsigned long)&got), 0);
	CU_ASSERT_EQUAL(memcmp(&w, &got, sizeof(w)), 0);
	CU_ASSERT_EQUAL(env_ioctl(slave, TIOCSTI, (unsigned long)"x"), -EPERM);
	CU_ASSERT_EQUAL(env_ioctl(slave, 0x12345, 0), -ENOTTY);
	CU_ASSERT_EQUAL(env_ioctl(master, TIOCGPTN, (unsigned long)&v), 0);
	CU_ASSERT_EQUAL(v, 0);
	env_write(master, "ab\nc", 4);
	env_ioctl(slave, FIONREAD, (unsigned long)&v);
	CU_ASSERT_EQUAL(v, 3);
	CU_ASSERT_EQUAL(env_ioctl(slave, TCFLSH, TCIFLUSH), 0);
	expect(slave, NULL);
	CU_ASSERT_EQUAL(env_ioctl(slave, TCFLSH, 7), -EINVAL);
	/* Packet mode. */
	env_ioctl(slave, TCFLSH, TCIOFLUSH);
	v = 1;
	CU_ASSERT_EQUAL(env_ioctl(master, TIOCPKT, (unsigned long)&v), 0);
	env_write(slave, "hi", 2);
	CU_ASSERT_EQUAL(env_read(master, buf, 8), 3);
	CU_ASSERT_EQUAL(memcmp(buf, "\0hi", 3), 0);
	env_write(master, "\023", 1);
	CU_ASSERT_EQUAL(env_poll(master) & KPOLLPRI, KPOLLPRI);
	CU_ASSERT_EQUAL(env_read(master, buf, 8), 1);
	CU_ASSERT_EQUAL(buf[0], 4);
	term_close();
}

static void test_flood(void)
{
	static char big[100000];
	long n, total = 0;

	term_open();
	modes(0, 0, 0, 0, 0, ECHO);
	/* A line is cut at 4095 characters; its end gets through. */
	memset(big, 'x', sizeof(big));
	CU_ASSERT_EQUAL(env_write(master, big, 5000), 5000);
	CU_ASSERT_EQUAL(env_write(master, "\n", 1), 1);
	CU_ASSERT_EQUAL(env_read(slave, big, sizeof(big)), 4096);
	modes(0, 0, 0, 0, 0, ICANON);
	while ((n = env_write(master, big, 1000)) > 0)
		total += n;
	CU_ASSERT_EQUAL(n, -EAGAIN);
	CU_ASSERT(total > 60000 && total <= 65536);
	CU_ASSERT_EQUAL(env_poll(master) & KPOLLOUT, 0);
	CU_ASSERT_EQUAL(env_read(slave, big, sizeof(big)), total);
	term_close();
}

void suite_tty(void)
{
	CU_pSuite s = CU_add_suite("tty", NULL, NULL);

	CU_add_test(s, "lines", test_lines);
	CU_add_test(s, "signals", test_signals);
	CU_add_test(s, "partial reads", test_partial);
	CU_add_test(s, "raw", test_raw);
	CU_add_test(s, "mode switch", test_switch);
	CU_add_test(s, "output", test_output);
	CU_add_test(s, "job control", test_job_control);
	CU_add_test(s, "hang-up", test_hangup);
	CU_add_test(s, "calls", test_misc);
	CU_add_test(s, "flood", test_flood);
}
