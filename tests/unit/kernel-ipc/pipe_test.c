/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipes against a model (a plain queue of bytes) under random operations; blocking through the
 * sleep hook; FIFO opening rules; packet mode; failing allocations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#include "guest-kernel/ipc/pipe.h"
#include "tests/unit/kernel-ipc/env.h"
#include "tests/unit/kernel-ipc/suites.h"

long sys_pipe2(int *fds, unsigned flags);

#define FIONREAD_ 0x541b

static uint8_t model[PIPE_MAX_SIZE + 65536], data[PIPE_MAX_SIZE + 65536],
	out[PIPE_MAX_SIZE + 65536];
static size_t model_len;

static unsigned rnd(unsigned n)
{
	static uint64_t s = 88172645463325252ULL;

	s ^= s << 13;
	s ^= s >> 7;
	s ^= s << 17;
	return (unsigned)(s % n);
}

static void check_read(int fd, size_t want)
{
	long n = env_read(fd, out, want);

	if (model_len == 0) {
		CU_ASSERT_EQUAL(n, want == 0 ? 0 : -EAGAIN);
		return;
	}
	CU_ASSERT_EQUAL(n, (long)(want < model_len ? want : model_len));
	if (n < 0)
		return;
	CU_ASSERT_EQUAL(memcmp(out, model, (size_t)n), 0);
	model_len -= (size_t)n;
	memmove(model, model + n, model_len);
}

static void check_write(int fd, size_t want)
{
	unsigned before = env_poll(fd);
	long n;

	for (size_t k = 0; k < want; k++)
		data[k] = (uint8_t)rnd(256);
	n = env_write(fd, data, want);
	if (want == 0) {
		CU_ASSERT_EQUAL(n, 0);
		return;
	}
	if (before & KPOLLOUT)
		CU_ASSERT(n > 0);
	if (want <= PIPE_BUF_SIZE)
		CU_ASSERT(n == (long)want || n == -EAGAIN);
	if (n < 0) {
		CU_ASSERT_EQUAL(n, -EAGAIN);
		return;
	}
	memcpy(model + model_len, data, (size_t)n);
	model_len += (size_t)n;
}

static void test_model(void)
{
	int fds[2], n;

	env_reset();
	CU_ASSERT_EQUAL(sys_pipe2(fds, KO_NONBLOCK), 0);
	model_len = 0;
	for (int step = 0; step < 20000; step++) {
		unsigned size = rnd(4) == 0 ? rnd(100000) : rnd(5000);

		if (rnd(2))
			check_read(fds[0], size);
		else
			check_write(fds[1], size);
		CU_ASSERT_EQUAL((env_poll(fds[0]) & KPOLLIN) != 0, model_len != 0);
		CU_ASSERT_EQUAL(env_ioctl(fds[0], FIONREAD_, (unsigned long)&n), 0);
		CU_ASSERT_EQUAL((size_t)n, model_len);
		if (rnd(200) == 0) {
			struct file *f = fd_get(fds[1]);
			long want = 1l << (12 + rnd(9)), got;

			got = pipe_fcntl(f, KF_SETPIPE_SZ, (unsigned long)want);
			CU_ASSERT(got == want || got == -EBUSY);
			if (got == want)
				CU_ASSERT_EQUAL(pipe_fcntl(f, KF_GETPIPE_SZ, 0), want);
			file_put(f);
		}
	}
	env_close_all();
	CU_ASSERT_EQUAL(env_live, 0);
}

static int hook_fd;
static size_t hook_done;

static bool hook_reader(void)
{
	long n = env_read(hook_fd, out + hook_done, 70000);

	if (n > 0)
		hook_done += (size_t)n;
	return n > 0;
}

static void test_blocking(void)
{
	static uint8_t big[1 << 20];
	int fds[2];

	env_reset();
	sys_pipe2(fds, 0);
	for (size_t k = 0; k < sizeof(big); k++)
		big[k] = (uint8_t)rnd(256);
	hook_fd = fds[0];
	hook_done = 0;
	env_sleep = hook_reader;
	CU_ASSERT_EQUAL(env_write(fds[1], big, sizeof(big)), (long)sizeof(big));
	/* One sleep for each time the pipe was full, not one for each page. */
	CU_ASSERT(env_sleeps <= 16);
	env_sleep = NULL;
	while (hook_done < sizeof(big) && hook_reader())
		;
	CU_ASSERT_EQUAL(memcmp(out, big, sizeof(big)), 0);
	CU_ASSERT_EQUAL(env_read(fds[0], out, 1), -ERESTARTSYS);
	/* Interrupted with something written: short count. */
	CU_ASSERT_EQUAL(env_write(fds[1], big, 100000), 65536);
	CU_ASSERT_EQUAL(env_write(fds[1], big, 1), -ERESTARTSYS);
	fd_close(fds[0]);
	env_signals[0] = 0;
	CU_ASSERT_EQUAL(env_poll(fds[1]) & KPOLLERR, KPOLLERR);
	CU_ASSERT_EQUAL(env_write(fds[1], big, 1), -EPIPE);
	CU_ASSERT_STRING_EQUAL(env_signals, "13>1 ");
	env_close_all();
	CU_ASSERT_EQUAL(env_live, 0);
}

static void test_ends(void)
{
	int fds[2];
	char c;

	env_reset();
	CU_ASSERT_EQUAL(sys_pipe2(fds, 0x80), -EINVAL);
	CU_ASSERT_EQUAL(sys_pipe2(NULL, 0), -EFAULT);
	CU_ASSERT_PTR_NULL(fd_get(0));
	sys_pipe2(fds, 0);
	CU_ASSERT_EQUAL(env_write(fds[1], "ab", 2), 2);
	CU_ASSERT_EQUAL(env_read(fds[0], NULL, 2), -EFAULT);
	CU_ASSERT_EQUAL(env_write(fds[1], NULL, 2), -EFAULT);
	fd_close(fds[1]);
	CU_ASSERT_EQUAL(env_poll(fds[0]), KPOLLIN | KPOLLRDNORM | KPOLLHUP);
	CU_ASSERT_EQUAL(env_read(fds[0], &c, 1), 1);
	CU_ASSERT_EQUAL(env_read(fds[0], &c, 1), 1);
	CU_ASSERT_EQUAL(c, 'b');
	CU_ASSERT_EQUAL(env_poll(fds[0]), KPOLLHUP);
	CU_ASSERT_EQUAL(env_read(fds[0], &c, 1), 0);
	env_close_all();
	CU_ASSERT_EQUAL(env_live, 0);
}

static void test_packets(void)
{
	int fds[2];
	char buf[8192];

	env_reset();
	sys_pipe2(fds, KO_DIRECT | KO_NONBLOCK);
	env_write(fds[1], "hello", 5);
	env_write(fds[1], "you", 3);
	CU_ASSERT_EQUAL(env_read(fds[0], buf, 2), 2);
	CU_ASSERT_EQUAL(env_read(fds[0], buf, 100), 3);
	CU_ASSERT_EQUAL(memcmp(buf, "you", 3), 0);
	memset(buf, 'x', sizeof(buf));
	CU_ASSERT_EQUAL(env_write(fds[1], buf, 6000), 6000);
	CU_ASSERT_EQUAL(env_read(fds[0], buf, 8192), 4096);
	CU_ASSERT_EQUAL(env_read(fds[0], buf, 8192), 1904);
	CU_ASSERT_EQUAL(env_read(fds[0], buf, 8192), -EAGAIN);
	env_close_all();
	CU_ASSERT_EQUAL(env_live, 0);
}

static struct inode *fifo;
static int fifo_fd;

static bool hook_open_writer(void)
{
	fifo_fd = env_open_inode(fifo, KO_WRONLY, fifo_open);
	return fifo_fd >= 0;
}

static void test_fifo(void)
{
	static struct superblock sb = { .type = "t" };
	int rd;
	char c;

	env_reset();
	fifo = inode_new(&sb, KS_IFIFO | 0600);
	CU_ASSERT_EQUAL(env_open_inode(fifo, KO_WRONLY | KO_NONBLOCK, fifo_open), -ENXIO);
	CU_ASSERT_EQUAL(env_open_inode(fifo, KO_RDONLY, fifo_open), -ERESTARTSYS);
	CU_ASSERT_EQUAL(env_open_inode(fifo, KO_WRONLY, fifo_open), -ERESTARTSYS);
	CU_ASSERT_PTR_NULL(fifo->pipe);
	env_sleep = hook_open_writer;
	rd = env_open_inode(fifo, KO_RDONLY, fifo_open);
	CU_ASSERT(rd >= 0);
	env_sleep = NULL;
	CU_ASSERT_EQUAL(env_write(fifo_fd, "x", 1), 1);
	fd_close(fifo_fd);
	CU_ASSERT_EQUAL(env_read(rd, &c, 1), 1);
	CU_ASSERT_EQUAL(env_poll(rd), KPOLLHUP);
	fd_close(rd);
	CU_ASSERT_PTR_NULL(fifo->pipe);
	/* A reader that does not wait sees no hang-up before the first writer. */
	rd = env_open_inode(fifo, KO_RDONLY | KO_NONBLOCK, fifo_open);
	CU_ASSERT_EQUAL(env_poll(rd), 0);
	CU_ASSERT_EQUAL(env_read(rd, &c, 1), 0);
	CU_ASSERT(hook_open_writer());
	CU_ASSERT_EQUAL(env_read(rd, &c, 1), -EAGAIN);
	fd_close(fifo_fd);
	CU_ASSERT_EQUAL(env_poll(rd), KPOLLHUP);
	env_close_all();
	rd = env_open_inode(fifo, KO_RDWR, fifo_open);
	CU_ASSERT(rd >= 0);
	env_close_all();
	inode_put(fifo);
	CU_ASSERT_EQUAL(env_live, 0);
}

static void test_tee(void)
{
	int a[2], b[2];
	struct file *in, *out_f;
	char buf[100];

	env_reset();
	sys_pipe2(a, KO_NONBLOCK);
	sys_pipe2(b, KO_NONBLOCK);
	in = fd_get(a[0]);
	out_f = fd_get(b[1]);
	CU_ASSERT_EQUAL(pipe_tee(in, out_f, 100, KSPLICE_F_NONBLOCK), -EAGAIN);
	env_write(a[1], "hello world", 11);
	CU_ASSERT_EQUAL(pipe_tee(in, out_f, 5, 0), 5);
	/* The shared page is not written through either pipe. */
	env_write(b[1], "XX", 2);
	env_write(a[1], "YY", 2);
	CU_ASSERT_EQUAL(env_read(b[0], buf, 100), 7);
	CU_ASSERT_EQUAL(memcmp(buf, "helloXX", 7), 0);
	CU_ASSERT_EQUAL(pipe_move(in, out_f, 6, 0), 6);
	CU_ASSERT_EQUAL(env_read(b[0], buf, 100), 6);
	CU_ASSERT_EQUAL(memcmp(buf, "hello ", 6), 0);
	CU_ASSERT_EQUAL(env_read(a[0], buf, 100), 7);
	CU_ASSERT_EQUAL(memcmp(buf, "worldYY", 7), 0);
	file_put(in);
	file_put(out_f);
	env_close_all();
	CU_ASSERT_EQUAL(env_live, 0);
}

static void test_no_memory(void)
{
	static uint8_t buf[10000];
	int fds[2];

	env_reset();
	for (unsigned k = 1; k < 40; k++) {
		env_fail_at = k;
		if (sys_pipe2(fds, KO_NONBLOCK) == 0) {
			env_write(fds[1], buf, sizeof(buf));
			env_read(fds[0], buf, sizeof(buf));
		}
		env_fail_at = 0;
		env_close_all();
		CU_ASSERT_EQUAL(env_live, 0);
	}
}

void suite_pipe(void)
{
	CU_pSuite s = CU_add_suite("pipe", NULL, NULL);

	CU_add_test(s, "model", test_model);
	CU_add_test(s, "blocking", test_blocking);
	CU_add_test(s, "ends", test_ends);
	CU_add_test(s, "packets", test_packets);
	CU_add_test(s, "fifo", test_fifo);
	CU_add_test(s, "tee", test_tee);
	CU_add_test(s, "no memory", test_no_memory);
}
