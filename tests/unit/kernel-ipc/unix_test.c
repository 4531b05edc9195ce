/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AF_UNIX: sequences of calls with the answers Linux gives; descriptors under way, cycles of
 * them, and failing allocations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#include "guest-kernel/ipc/socket.h"
#include "guest-kernel/ipc/unix.h"
#include "tests/unit/kernel-ipc/env.h"
#include "tests/unit/kernel-ipc/suites.h"

struct msghdr_k {
	void *name;
	int namelen, pad1;
	struct uiovec *iov;
	uint64_t iovlen;
	void *control;
	uint64_t controllen;
	uint32_t flags, pad2;
};

long sys_socket(int family, int type, int protocol);
long sys_socketpair(int family, int type, int protocol, int *fds);
long sys_bind(int fd, const void *addr, int len);
long sys_connect(int fd, const void *addr, int len);
long sys_listen(int fd, int backlog);
long sys_accept4(int fd, void *addr, int *len, unsigned flags);
long sys_getsockname(int fd, void *addr, int *len);
long sys_getpeername(int fd, void *addr, int *len);
long sys_shutdown(int fd, int how);
long sys_sendto(int fd, const void *buf, size_t n, unsigned flags, const void *addr, int len);
long sys_recvfrom(int fd, void *buf, size_t n, unsigned flags, void *addr, int *len);
long sys_sendmsg(int fd, struct msghdr_k *m, unsigned flags);
long sys_recvmsg(int fd, struct msghdr_k *m, unsigned flags);
long sys_setsockopt(int fd, int level, int opt, const void *val, int len);
long sys_getsockopt(int fd, int level, int opt, void *val, int *len);

#define NB KO_NONBLOCK
#define STREAM KSOCK_STREAM
#define DGRAM KSOCK_DGRAM
#define SEQ KSOCK_SEQPACKET
#define HUP_ALL (KPOLLIN | KPOLLRDNORM | KPOLLRDHUP | KPOLLHUP)

static void pair(int type, int fds[2])
{
	CU_ASSERT_EQUAL_FATAL(sys_socketpair(KAF_UNIX, type | (int)NB, 0, fds), 0);
}

static void done(void)
{
	env_reset();
	CU_ASSERT_EQUAL(env_live, 0);
	CU_ASSERT_EQUAL(env_files, 0);
	CU_ASSERT_EQUAL(env_inodes, 0);
	CU_ASSERT_EQUAL(unix_inflight_total(), 0);
}

static int addr(struct ksockaddr *a, const char *name)
{
	size_t n = name[0] == '@' ? strlen(name) : strlen(name) + 1;

	memset(a, 0, sizeof(*a));
	a->family = KAF_UNIX;
	memcpy(a->data, name, strlen(name));
	if (name[0] == '@')
		a->data[0] = 0;
	return (int)n + 2;
}

static void test_make(void)
{
	int fds[2];

	env_reset();
	CU_ASSERT_EQUAL(sys_socket(2, STREAM, 0), -EAFNOSUPPORT);
	CU_ASSERT_EQUAL(sys_socket(16, KSOCK_RAW, 0), -EAFNOSUPPORT);
	CU_ASSERT_EQUAL(sys_socket(-1, STREAM, 0), -EAFNOSUPPORT);
	CU_ASSERT_EQUAL(sys_socket(1, 0, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_socket(1, 11, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_socket(1, 4, 0), -ESOCKTNOSUPPORT);
	CU_ASSERT_EQUAL(sys_socket(1, STREAM, 5), -EPROTONOSUPPORT);
	CU_ASSERT_EQUAL(sys_socket(1, STREAM | 0x10, 0), -EINVAL);
	CU_ASSERT_EQUAL(sys_socketpair(1, STREAM, 0, NULL), -EFAULT);
	CU_ASSERT_EQUAL(sys_listen(0, 1), -EBADF);
	pair(STREAM, fds);
	env_open_chr(KMKDEV(1, 3), KO_RDWR);
	CU_ASSERT_EQUAL(sys_listen(2, 1), -ENOTSOCK);
	done();
}

static void test_names(void)
{
	struct ksockaddr a, got;
	int s, len, n;

	env_reset();
	s = (int)sys_socket(1, STREAM, 0);
	len = sizeof(got);
	CU_ASSERT_EQUAL(sys_getsockname(s, &got, &len), 0);
	CU_ASSERT_EQUAL(len, 2);
	CU_ASSERT_EQUAL(sys_getpeername(s, &got, &len), -ENOTCONN);
	n = addr(&a, "path");
	CU_ASSERT_EQUAL(sys_bind(s, &a, 111), -EINVAL);
	CU_ASSERT_EQUAL(sys_bind(s, &a, 1), -EINVAL);
	CU_ASSERT_EQUAL(sys_bind(s, &a, n), 0);
	CU_ASSERT_EQUAL(sys_bind(s, &a, n), -EINVAL);
	len = sizeof(got);
	CU_ASSERT_EQUAL(sys_getsockname(s, &got, &len), 0);
	CU_ASSERT_EQUAL(len, n);
	CU_ASSERT_STRING_EQUAL(got.data, "path");
	/* Cut, with the whole length told. */
	len = 4;
	memset(&got, 'x', sizeof(got));
	CU_ASSERT_EQUAL(sys_getsockname(s, &got, &len), 0);
	CU_ASSERT_EQUAL(len, n);
	CU_ASSERT_EQUAL(memcmp(got.data, "paxx", 4), 0);
	len = -1;
	CU_ASSERT_EQUAL(sys_getsockname(s, &got, &len), -EINVAL);
	s = (int)sys_socket(1, STREAM, 0);
	CU_ASSERT_EQUAL(sys_bind(s, &a, n), -EADDRINUSE);
	CU_ASSERT_EQUAL(sys_bind(s, &a, 2), 0);	/* autobind */
	len = sizeof(got);
	sys_getsockname(s, &got, &len);
	CU_ASSERT_EQUAL(len, 8);
	CU_ASSERT_EQUAL(got.data[0], 0);
	s = (int)sys_socket(1, STREAM, 0);
	n = addr(&a, "@abs");
	CU_ASSERT_EQUAL(sys_bind(s, &a, n), 0);
	s = (int)sys_socket(1, STREAM, 0);
	CU_ASSERT_EQUAL(sys_bind(s, &a, n), -EADDRINUSE);
	CU_ASSERT_EQUAL(sys_bind(s, &a, n + 1), 0);	/* one zero more: another name */
	/* The longest path has no room for its zero. */
	s = (int)sys_socket(1, STREAM, 0);
	memset(a.data, 'p', 108);
	CU_ASSERT_EQUAL(sys_bind(s, &a, 110), 0);
	len = sizeof(got);
	sys_getsockname(s, &got, &len);
	CU_ASSERT_EQUAL(len, 111);
	done();
}

static void test_connect(void)
{
	struct ksockaddr a, got;
	int l, c, d, s, n, len, cred[3];

	env_reset();
	n = addr(&a, "srv");
	c = (int)sys_socket(1, STREAM | (int)NB, 0);
	CU_ASSERT_EQUAL(env_poll(c) & (KPOLLHUP | KPOLLOUT), KPOLLHUP | KPOLLOUT);
	CU_ASSERT_EQUAL(sys_connect(c, &a, n), -ENOENT);
	l = (int)sys_socket(1, STREAM | (int)NB, 0);
	CU_ASSERT_EQUAL(sys_listen(l, 1), -EINVAL);	/* no name */
	CU_ASSERT_EQUAL(sys_accept4(l, NULL, NULL, 0), -EINVAL);
	sys_bind(l, &a, n);
	CU_ASSERT_EQUAL(sys_connect(c, &a, n), -ECONNREFUSED);
	CU_ASSERT_EQUAL(sys_listen(l, 1), 0);
	d = (int)sys_socket(1, DGRAM, 0);
	CU_ASSERT_EQUAL(sys_connect(d, &a, n), -EPROTOTYPE);
	CU_ASSERT_EQUAL(sys_listen(d, 1), -EOPNOTSUPP);
	CU_ASSERT_EQUAL(sys_accept4(d, NULL, NULL, 0), -EOPNOTSUPP);
	CU_ASSERT_EQUAL(sys_accept4(l, NULL, NULL, 0), -EAGAIN);
	CU_ASSERT_EQUAL(env_poll(l), 0);
	CU_ASSERT_EQUAL(sys_connect(c, &a, n), 0);
	CU_ASSERT_EQUAL(sys_connect(c, &a, n), -EISCONN);
	CU_ASSERT_EQUAL(sys_listen(c, 1), -EINVAL);
	CU_ASSERT_EQUAL(env_poll(l), KPOLLIN | KPOLLRDNORM);
	/* The backlog is one more than its number. */
	s = (int)sys_socket(1, STREAM | (int)NB, 0);
	CU_ASSERT_EQUAL(sys_connect(s, &a, n), 0);
	s = (int)sys_socket(1, STREAM | (int)NB, 0);
	CU_ASSERT_EQUAL(sys_connect(s, &a, n), -EAGAIN);
	/* Data before accept. */
	CU_ASSERT_EQUAL(env_write(c, "early", 5), 5);
	len = sizeof(got);
	s = (int)sys_accept4(l, &got, &len, NB);
	CU_ASSERT(s >= 0);
	CU_ASSERT_EQUAL(len, 2);
	CU_ASSERT_EQUAL(env_read(s, &got, 99), 5);
	len = sizeof(got);
	CU_ASSERT_EQUAL(sys_getpeername(c, &got, &len), 0);
	CU_ASSERT_STRING_EQUAL(got.data, "srv");
	len = sizeof(cred);
	CU_ASSERT_EQUAL(sys_getsockopt(s, 1, 17, cred, &len), 0);
	CU_ASSERT_EQUAL(cred[0], 1);
	len = 0;		/* no groups: no room is needed for them */
	CU_ASSERT_EQUAL(sys_getsockopt(s, 1, 59 /* SO_PEERGROUPS */, NULL, &len), 0);
	CU_ASSERT_EQUAL(len, 0);
	CU_ASSERT_EQUAL(sys_setsockopt(s, 1, 59, &len, sizeof(len)), -ENOPROTOOPT);
	/* A connection that nobody accepted is reset. */
	fd_close(l);
	done();
}

static void test_stream(void)
{
	static char big[300000], in[300000];
	int fds[2], v, len;
	long n;

	env_reset();
	pair(STREAM, fds);
	CU_ASSERT_EQUAL(env_read(fds[0], in, 10), -EAGAIN);
	env_write(fds[0], "one", 3);
	env_write(fds[0], "two", 3);
	CU_ASSERT_EQUAL(env_ioctl(fds[1], 0x541b, (unsigned long)&v), 0);
	CU_ASSERT_EQUAL(v, 6);
	CU_ASSERT_EQUAL(sys_recvfrom(fds[1], in, 4, KMSG_PEEK, NULL, NULL), 4);
	CU_ASSERT_EQUAL(sys_recvfrom(fds[1], in, 99, 0, NULL, NULL), 6);
	CU_ASSERT_EQUAL(memcmp(in, "onetwo", 6), 0);
	CU_ASSERT_EQUAL(sys_sendto(fds[0], "x", 1, KMSG_OOB, NULL, 0), -EOPNOTSUPP);
	CU_ASSERT_EQUAL(sys_sendto(fds[0], "x", 1, 0, big, 4), -EISCONN);
	CU_ASSERT_EQUAL(sys_sendto(fds[0], NULL, 1, 0, NULL, 0), -EFAULT);
	for (unsigned k = 0; k < sizeof(big); k++)
		big[k] = (char)(k * 7 + k / 256);
	n = env_write(fds[0], big, sizeof(big));
	CU_ASSERT(n > 150000 && n < 260000);
	CU_ASSERT_EQUAL(env_write(fds[0], big, 1), -EAGAIN);
	CU_ASSERT_EQUAL(env_poll(fds[0]) & KPOLLOUT, 0);
	CU_ASSERT_EQUAL(env_read(fds[1], in, sizeof(in)), n);
	CU_ASSERT_EQUAL(memcmp(in, big, (size_t)n), 0);
	CU_ASSERT_EQUAL(env_poll(fds[0]) & KPOLLOUT, KPOLLOUT);
	/* Half-closed, then closed. */
	env_write(fds[0], "end", 3);
	CU_ASSERT_EQUAL(sys_shutdown(fds[0], 1), 0);
	CU_ASSERT_EQUAL(env_write(fds[0], "x", 1), -EPIPE);
	CU_ASSERT_STRING_EQUAL(env_signals, "13>1 ");
	CU_ASSERT_EQUAL(sys_sendto(fds[0], "x", 1, KMSG_NOSIGNAL, NULL, 0), -EPIPE);
	CU_ASSERT_STRING_EQUAL(env_signals, "13>1 ");
	CU_ASSERT_EQUAL(env_poll(fds[1]) & HUP_ALL, KPOLLIN | KPOLLRDNORM | KPOLLRDHUP);
	CU_ASSERT_EQUAL(env_read(fds[1], in, 99), 3);
	CU_ASSERT_EQUAL(env_read(fds[1], in, 99), 0);
	CU_ASSERT_EQUAL(env_write(fds[1], "back", 4), 4);
	/* fds[0] goes with data unread: the other end is reset. */
	fd_close(fds[0]);
	CU_ASSERT_EQUAL(env_poll(fds[1]) & (HUP_ALL | KPOLLERR), HUP_ALL | KPOLLERR);
	len = sizeof(v);
	CU_ASSERT_EQUAL(sys_getsockopt(fds[1], 1, 4, &v, &len), 0);
	CU_ASSERT_EQUAL(v, ECONNRESET);
	CU_ASSERT_EQUAL(env_read(fds[1], in, 99), 0);
	CU_ASSERT_EQUAL(sys_shutdown(fds[1], 3), -EINVAL);
	v = (int)sys_socket(1, STREAM, 0);
	CU_ASSERT_EQUAL(env_read(v, in, 9), -EINVAL);
	CU_ASSERT_EQUAL(env_write(v, in, 9), -ENOTCONN);
	done();
}

static void test_dgram(void)
{
	struct ksockaddr a, b, got;
	int s, c, d, na, nb, len, k;
	char in[64];

	env_reset();
	na = addr(&a, "a");
	nb = addr(&b, "@b");
	s = (int)sys_socket(1, DGRAM | (int)NB, 0);
	c = (int)sys_socket(1, DGRAM | (int)NB, 0);
	sys_bind(s, &a, na);
	sys_bind(c, &b, nb);
	CU_ASSERT_EQUAL(env_write(c, "x", 1), -ENOTCONN);
	CU_ASSERT_EQUAL(sys_sendto(c, "hello", 5, 0, &a, na), 5);
	CU_ASSERT_EQUAL(sys_sendto(c, "", 0, 0, &a, na), 0);
	len = sizeof(got);
	CU_ASSERT_EQUAL(sys_recvfrom(s, in, 2, KMSG_TRUNC | KMSG_PEEK, &got, &len), 5);
	CU_ASSERT_EQUAL(len, nb);
	CU_ASSERT_EQUAL(memcmp(got.data, "\0b", 2), 0);
	CU_ASSERT_EQUAL(sys_recvfrom(s, in, 2, 0, NULL, NULL), 2);
	CU_ASSERT_EQUAL(sys_recvfrom(s, in, 2, 0, NULL, NULL), 0);
	CU_ASSERT_EQUAL(sys_recvfrom(s, in, 2, 0, NULL, NULL), -EAGAIN);
	CU_ASSERT_EQUAL(sys_connect(c, &a, na), 0);
	/* s connected elsewhere takes from nobody else. */
	d = (int)sys_socket(1, DGRAM | (int)NB, 0);
	CU_ASSERT_EQUAL(sys_connect(s, &b, nb), 0);
	CU_ASSERT_EQUAL(sys_sendto(d, "x", 1, 0, &a, na), -EPERM);
	CU_ASSERT_EQUAL(sys_connect(d, &a, na), -EPERM);
	len = 2;
	memset(&got, 0, sizeof(got));
	CU_ASSERT_EQUAL(sys_connect(s, &got, 2), 0);	/* AF_UNSPEC */
	/* Queue full. */
	for (k = 0; k < 2000 && sys_sendto(d, "x", 1, 0, &a, na) == 1; k++)
		;
	CU_ASSERT_EQUAL(k, (int)UNIX_QLEN_MAX);
	CU_ASSERT_EQUAL(sys_sendto(d, "x", 1, 0, &a, na), -EAGAIN);
	fd_close(s);
	CU_ASSERT_EQUAL(env_write(c, "x", 1), -ECONNRESET);	/* s had left it */
	CU_ASSERT_EQUAL(env_write(c, "x", 1), -ECONNREFUSED);
	CU_ASSERT_EQUAL(env_write(c, "x", 1), -ENOTCONN);
	CU_ASSERT_EQUAL(sys_sendto(c, "x", 1, 0, &a, na), -ECONNREFUSED);
	done();
}

static void test_seqpacket(void)
{
	int fds[2];
	char in[16];

	env_reset();
	pair(SEQ, fds);
	env_write(fds[0], "abc", 3);
	env_write(fds[0], "de", 2);
	CU_ASSERT_EQUAL(env_read(fds[1], in, 2), 2);
	CU_ASSERT_EQUAL(env_read(fds[1], in, 16), 2);
	CU_ASSERT_EQUAL(memcmp(in, "de", 2), 0);
	fd_close(fds[0]);
	CU_ASSERT_EQUAL(env_read(fds[1], in, 16), 0);
	CU_ASSERT_EQUAL(env_write(fds[1], "x", 1), -EPIPE);
	done();
}

/* ---- descriptors ---- */

struct fd_msg {
	struct msghdr_k m;
	struct uiovec iov;
	char byte;
	struct {
		uint64_t len;
		int level, type;
		int fd[256];
	} c __attribute__((aligned(8)));
};

static long send_fds(int s, const int *fd, unsigned n)
{
	static struct fd_msg f;

	memset(&f, 0, sizeof(f));
	f.iov = (struct uiovec){ &f.byte, 1 };
	f.m.iov = &f.iov;
	f.m.iovlen = 1;
	f.c.len = 16 + 4ul * n;
	f.c.level = 1;
	f.c.type = 1;
	memcpy(f.c.fd, fd, 4ul * n);
	f.m.control = &f.c;
	f.m.controllen = ALIGN_UP(f.c.len, 8ul);
	return sys_sendmsg(s, &f.m, 0);
}

static struct fd_msg in;

static long recv_fds(int s, size_t room, unsigned flags)
{
	memset(&in, 0, sizeof(in));
	in.iov = (struct uiovec){ &in.byte, 1 };
	in.m.iov = &in.iov;
	in.m.iovlen = 1;
	in.m.control = &in.c;
	in.m.controllen = room;
	return sys_recvmsg(s, &in.m, flags);
}

static void test_rights(void)
{
	int fds[2], p[3], bad = 99, many[254];

	env_reset();
	pair(STREAM, fds);
	p[0] = env_open_chr(KMKDEV(1, 3), KO_RDWR);
	p[1] = env_open_chr(KMKDEV(1, 5), KO_RDWR);
	CU_ASSERT_EQUAL(send_fds(fds[0], &bad, 1), -EBADF);
	for (unsigned k = 0; k < 254; k++)
		many[k] = p[0];
	CU_ASSERT_EQUAL(send_fds(fds[0], many, 254), -EINVAL);
	CU_ASSERT_EQUAL(send_fds(fds[0], many, 253), 1);
	CU_ASSERT_EQUAL(recv_fds(fds[1], 16 + 4 * 256, 0), 1);
	CU_ASSERT_EQUAL(in.c.len, 16 + 4 * 253);
	env_reset();
	pair(STREAM, fds);
	p[0] = env_open_chr(KMKDEV(1, 3), KO_RDWR);
	p[1] = env_open_chr(KMKDEV(1, 5), KO_RDWR);
	CU_ASSERT_EQUAL(send_fds(fds[0], p, 2), 1);
	env_write(fds[0], "more", 4);
	fd_close(p[0]);
	fd_close(p[1]);
	/* Peeked descriptors are copies; the message keeps its own. */
	CU_ASSERT_EQUAL(recv_fds(fds[1], 1000, KMSG_PEEK), 1);
	CU_ASSERT_EQUAL(in.c.len, 24);
	CU_ASSERT_EQUAL(in.m.controllen, 24);
	fd_close(in.c.fd[0]);
	fd_close(in.c.fd[1]);
	/* Room for one: the other is gone, and the flag says so. */
	CU_ASSERT_EQUAL(recv_fds(fds[1], 20, 0), 1);
	CU_ASSERT_EQUAL(in.m.flags, KMSG_CTRUNC);
	CU_ASSERT_EQUAL(in.c.len, 20);
	CU_ASSERT_EQUAL(env_write(in.c.fd[0], "x", 1), 1);
	CU_ASSERT_EQUAL(env_files, 3);
	CU_ASSERT_EQUAL(env_read(fds[1], &in, 9), 4);
	/* A plain read drops them. */
	p[0] = env_open_chr(KMKDEV(1, 3), KO_RDWR);
	send_fds(fds[0], p, 1);
	fd_close(p[0]);
	CU_ASSERT_EQUAL(env_read(fds[1], &in, 9), 1);
	CU_ASSERT_EQUAL(env_files, 3);
	/* So does closing the receiver. */
	p[0] = env_open_chr(KMKDEV(1, 3), KO_RDWR);
	send_fds(fds[0], p, 1);
	fd_close(p[0]);
	fd_close(fds[1]);
	CU_ASSERT_EQUAL(env_files, 2);
	done();
}

static void test_cycles(void)
{
	int a[2], b[2], l, c, n;
	struct ksockaddr ad;

	env_reset();
	/* A socket in its own queue. */
	pair(STREAM, a);
	CU_ASSERT_EQUAL(send_fds(a[1], &a[0], 1), 1);
	fd_close(a[0]);
	fd_close(a[1]);
	CU_ASSERT_EQUAL(env_files, 0);
	/* Each in the other's queue: found when the next socket is closed. */
	pair(STREAM, a);
	send_fds(a[0], &a[0], 1);
	send_fds(a[1], &a[1], 1);
	fd_close(a[0]);
	fd_close(a[1]);
	CU_ASSERT_EQUAL(env_files, 2);
	pair(STREAM, b);
	fd_close(b[0]);
	CU_ASSERT_EQUAL(env_files, 1);
	fd_close(b[1]);
	/* Held by a live queue: not garbage. */
	pair(STREAM, a);
	pair(STREAM, b);
	send_fds(a[0], &b[0], 1);
	send_fds(b[1], &b[1], 1);	/* into b[0]'s queue */
	fd_close(b[0]);
	fd_close(b[1]);
	unix_collect();
	CU_ASSERT_EQUAL(env_files, 4);
	CU_ASSERT_EQUAL(recv_fds(a[1], 100, 0), 1);
	b[0] = in.c.fd[0];
	CU_ASSERT_EQUAL(recv_fds(b[0], 100, 0), 1);
	CU_ASSERT_EQUAL(env_write(in.c.fd[0], "alive", 5), 5);
	CU_ASSERT_EQUAL(env_read(b[0], &in, 9), 5);
	env_close_all();
	/* In the queue of a connection that waits at a listener which is itself in flight. */
	l = (int)sys_socket(1, STREAM | (int)NB, 0);
	n = addr(&ad, "@l");
	sys_bind(l, &ad, n);
	sys_listen(l, 5);
	c = (int)sys_socket(1, STREAM | (int)NB, 0);
	sys_connect(c, &ad, n);
	send_fds(c, &l, 1);
	fd_close(l);
	CU_ASSERT_EQUAL(env_files, 2);
	fd_close(c);
	CU_ASSERT_EQUAL(env_files, 0);
	done();
}

/* A long chain of sockets, each only in the queue of the next: dropped without recursion. */
static void test_chain(void)
{
	int prev[2], next[2];

	env_reset();
	pair(STREAM, prev);
	for (unsigned k = 0; k < 30000; k++) {
		pair(STREAM, next);
		if (send_fds(next[0], &prev[1], 1) != 1) {
			CU_FAIL("send");
			break;
		}
		fd_close(prev[0]);
		fd_close(prev[1]);
		prev[0] = next[0];
		prev[1] = next[1];
		if (k == 1000)
			break;
	}
	CU_ASSERT(env_files > 900);
	fd_close(prev[0]);
	fd_close(prev[1]);
	CU_ASSERT_EQUAL(env_files, 0);
	done();
}

static void test_limits(void)
{
	struct process *p = process_find(1);
	int fds[2], d, v = 1, len = sizeof(int), sent = 0, cred[3] = { 1, 0, 0 };
	struct {
		uint64_t len;
		int level, type, cred[3], pad;
	} c = { 28, 1, 2, { 1, 0, 0 }, 0 };
	struct fd_msg f = { .byte = 'x' };

	env_reset();
	pair(STREAM, fds);
	d = env_open_chr(KMKDEV(1, 3), KO_RDWR);
	p->cred->cap_eff = 0;
	p->rlim[7].cur = 20;
	while (sent < 100 && send_fds(fds[0], &d, 1) == 1)
		sent++;
	CU_ASSERT_EQUAL(sent, 20);
	CU_ASSERT_EQUAL(send_fds(fds[0], &d, 1), -ETOOMANYREFS);
	p->rlim[7].cur = 1024;
	fd_close(fds[1]);
	/* Credentials. */
	pair(STREAM, fds);
	CU_ASSERT_EQUAL(sys_setsockopt(fds[1], 1, 16, &v, len), 0);
	f.iov = (struct uiovec){ &f.byte, 1 };
	f.m.iov = &f.iov;
	f.m.iovlen = 1;
	f.m.control = &c;
	f.m.controllen = 32;
	CU_ASSERT_EQUAL(sys_sendmsg(fds[0], &f.m, 0), 1);
	CU_ASSERT_EQUAL(recv_fds(fds[1], 100, 0), 1);
	CU_ASSERT_EQUAL(in.c.type, 2);
	CU_ASSERT_EQUAL(memcmp(in.c.fd, cred, 12), 0);
	/* A stream has no times, a datagram has; the credentials follow. */
	v = 1;
	len = sizeof(int);
	pair(DGRAM, fds);
	sys_setsockopt(fds[1], 1, 16, &v, len);
	sys_setsockopt(fds[1], 1, 29, &v, len);
	CU_ASSERT_EQUAL(env_write(fds[0], "x", 1), 1);
	CU_ASSERT_EQUAL(recv_fds(fds[1], 100, 0), 1);
	CU_ASSERT_EQUAL(in.c.type, 29);
	CU_ASSERT_EQUAL(in.c.len, 32);
	CU_ASSERT_EQUAL(in.m.controllen, 64);
	c.cred[1] = 1000;
	CU_ASSERT_EQUAL(sys_sendmsg(fds[0], &f.m, 0), -EPERM);
	c.len = 27;
	CU_ASSERT_EQUAL(sys_sendmsg(fds[0], &f.m, 0), -EINVAL);
	c.len = 100;
	CU_ASSERT_EQUAL(sys_sendmsg(fds[0], &f.m, 0), -EINVAL);
	p->cred->cap_eff = ~0ULL;
	done();
}

static void test_options(void)
{
	int fds[2], v, len = sizeof(int);
	int64_t tv[2] = { 1, 500000 };
	char small[2];

	env_reset();
	pair(STREAM, fds);
	v = 10000;
	CU_ASSERT_EQUAL(sys_setsockopt(fds[0], 1, 7, &v, 4), 0);
	CU_ASSERT_EQUAL(sys_getsockopt(fds[0], 1, 7, &v, &len), 0);
	CU_ASSERT_EQUAL(v, 20000);
	v = 1;
	CU_ASSERT_EQUAL(sys_setsockopt(fds[0], 1, 7, &v, 3), -EINVAL);
	CU_ASSERT_EQUAL(sys_setsockopt(fds[0], 1, 3, &v, 4), -ENOPROTOOPT);
	CU_ASSERT_EQUAL(sys_setsockopt(fds[0], 6, 1, &v, 4), -EOPNOTSUPP);
	CU_ASSERT_EQUAL(sys_setsockopt(fds[0], 1, 999, &v, 4), -ENOPROTOOPT);
	CU_ASSERT_EQUAL(sys_getsockopt(fds[0], 1, 39, &v, &len), 0);
	CU_ASSERT_EQUAL(v, KAF_UNIX);
	len = 2;
	CU_ASSERT_EQUAL(sys_getsockopt(fds[0], 1, 3, small, &len), 0);
	CU_ASSERT_EQUAL(len, 2);
	/* A timeout ends a read; without one a signal restarts it. */
	fd_close(fds[0]);
	fd_close(fds[1]);
	sys_socketpair(1, STREAM, 0, fds);
	CU_ASSERT_EQUAL(env_read(fds[0], small, 1), -ERESTARTSYS);
	CU_ASSERT_EQUAL(sys_setsockopt(fds[0], 1, 20, tv, 16), 0);
	CU_ASSERT_EQUAL(env_read(fds[0], small, 1), -EAGAIN);
	done();
}

static int hook_to;
static unsigned hook_n;

static bool hook_send(void)
{
	return hook_n-- != 0 && env_write(hook_to, "abcd", 4) == 4;
}

static bool hook_drain(void)
{
	static char sink[100000];

	return env_read(hook_to, sink, sizeof(sink)) > 0;
}

static void test_blocking(void)
{
	static char big[1000000];
	int fds[2];

	env_reset();
	sys_socketpair(1, STREAM, 0, fds);
	hook_to = fds[1];
	hook_n = 5;
	env_sleep = hook_send;
	CU_ASSERT_EQUAL(sys_recvfrom(fds[0], big, 18, KMSG_WAITALL, NULL, NULL), 18);
	CU_ASSERT_EQUAL(sys_recvfrom(fds[0], big, 18, 0, NULL, NULL), 2);
	hook_n = 1;
	CU_ASSERT_EQUAL(sys_recvfrom(fds[0], big, 18, KMSG_WAITALL, NULL, NULL), 4);
	env_sleep = hook_drain;
	env_sleeps = 0;
	CU_ASSERT_EQUAL(env_write(fds[0], big, sizeof(big)), (long)sizeof(big));
	CU_ASSERT(env_sleeps < 20);
	done();
}

static void test_no_memory(void)
{
	struct ksockaddr a;
	int n = addr(&a, "@x"), s, c, fds[2];

	env_reset();
	for (unsigned k = 1; k < 60; k++) {
		env_fail_at = k;
		s = (int)sys_socket(1, STREAM | (int)NB, 0);
		c = (int)sys_socket(1, STREAM | (int)NB, 0);
		sys_bind(s, &a, n);
		sys_listen(s, 5);
		sys_connect(c, &a, n);
		send_fds(c, &s, 1);
		s = (int)sys_accept4(s, NULL, NULL, NB);
		if (s >= 0)
			recv_fds(s, 100, 0);
		if (sys_socketpair(1, DGRAM | (int)NB, 0, fds) == 0)
			env_write(fds[0], "x", 1);
		done();
	}
}

void suite_unix(void)
{
	CU_pSuite s = CU_add_suite("unix", NULL, NULL);

	CU_add_test(s, "making", test_make);
	CU_add_test(s, "names", test_names);
	CU_add_test(s, "connections", test_connect);
	CU_add_test(s, "streams", test_stream);
	CU_add_test(s, "datagrams", test_dgram);
	CU_add_test(s, "seqpackets", test_seqpacket);
	CU_add_test(s, "descriptors", test_rights);
	CU_add_test(s, "cycles", test_cycles);
	CU_add_test(s, "chain", test_chain);
	CU_add_test(s, "limits and credentials", test_limits);
	CU_add_test(s, "options", test_options);
	CU_add_test(s, "blocking", test_blocking);
	CU_add_test(s, "no memory", test_no_memory);
}
