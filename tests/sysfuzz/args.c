/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values for arguments. A valid buffer is a piece of the arena, filled with what a kernel
 * might take for something: small numbers, descriptors, pointers, noise. A few pointers in a
 * hundred are bad: null, unmapped, at the end of the arena, in the kernel's slice of the
 * address space, not canonical. Nothing here stores through a bad pointer: only the kernel
 * gets them.
 */
#include <linux/futex.h>
#include <linux/time_types.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>

#include "tests/sysfuzz/sysfuzz.h"

#define CHUNK	256u	/* of the arena: one argument */

uint64_t fuzz_random(struct fuzzer *f)
{
	f->random ^= f->random << 13;
	f->random ^= f->random >> 7;
	f->random ^= f->random << 17;
	return f->random * 0x2545f4914f6cdd1dul;
}

unsigned fuzz_below(struct fuzzer *f, unsigned n)
{
	return (unsigned)((fuzz_random(f) >> 32) % n);
}

bool fuzz_chance(struct fuzzer *f, unsigned one_in)
{
	return fuzz_below(f, one_in) == 0;
}

static const uint64_t numbers[] = {
	0, 1, 2, 7, 8, 16, 63, 64, 127, 128, 255, 256, 4095, 4096, 4097, 65535, 65536, 1 << 20,
	INT_MAX, 0x80000000ul, UINT_MAX, 1ul << 32, LONG_MAX, 1ul << 63, ULONG_MAX,
	ULONG_MAX - 4095, 0x7ffff000, (uint64_t)-2, (uint64_t)-100, 0x7f8000000000ul,
};

static const uint64_t bad_pointers[] = {
	0, 1, 8, 0xfff, 0x10000, ARENA - 1, ARENA - 8, ARENA + ARENA_PAGES * 4096ul - 1,
	ARENA + ARENA_PAGES * 4096ul - 4, ARENA + ARENA_PAGES * 4096ul - 17,
	ARENA + ARENA_PAGES * 4096ul, 0x7f7fffffffff, 0x7f7ffffffff8, 0x7f7ffffff000,
	0x7f8000000000, 0x7f8000000008, 0x7f8000100000, 0x7f8000200000, 0x7fffc0000000,
	0x7fffc0001000, 0x7fffc0020000, 0x7fffffffe000, 0x7fffffffffff, 0x800000000000,
	0xffff800000000000, 0xffffffffff600000, 0xffffffffffffffff, 0xfffffffffffff000,
	0x7f7fffffe000, 0x7f8000000000 - 100,
};

static uint64_t number(struct fuzzer *f)
{
	switch (fuzz_below(f, 4)) {
	case 0:
		return numbers[fuzz_below(f, sizeof(numbers) / sizeof(numbers[0]))];
	case 1:
		return fuzz_below(f, 16);
	case 2:
		return fuzz_below(f, 10000);
	default:
		return fuzz_random(f) >> fuzz_below(f, 64);
	}
}

static long descriptor(struct fuzzer *f)
{
	static const int odd[] = { -1, -2, FD_LIMIT - 1, FD_LIMIT, 1024, 1 << 20, INT_MAX,
				   INT_MIN, AT_FDCWD };

	if (fuzz_chance(f, 20))
		return odd[fuzz_below(f, sizeof(odd) / sizeof(odd[0]))];
	return (long)fuzz_below(f, 42);
}

static uint64_t bad_pointer(struct fuzzer *f)
{
	if (fuzz_chance(f, 4))
		return 0x7f8000000000ul + fuzz_random(f) % 0x8000000000ul;
	return bad_pointers[fuzz_below(f, sizeof(bad_pointers) / sizeof(bad_pointers[0]))];
}

/* A piece of the arena nobody else uses for a while. */
static void *room(struct fuzzer *f)
{
	/* Threads and forks have their own halves, the last pages are left to mmap's games. */
	unsigned chunks = 16 * 4096 / CHUNK;

	f->cursor = (f->cursor + 1) % chunks;
	return (void *)(ARENA + (f->depth & 1) * 16 * 4096 + f->cursor * CHUNK);
}

static uint64_t pointer(struct fuzzer *f)
{
	if (fuzz_chance(f, 8))
		return bad_pointer(f);
	if (fuzz_chance(f, 8))
		return ARENA + fuzz_below(f, ARENA_PAGES * 4096);
	return (uint64_t)room(f);
}

static uint64_t word(struct fuzzer *f)
{
	switch (fuzz_below(f, 6)) {
	case 0:
		return 0;
	case 1:
		return (uint64_t)descriptor(f);
	case 2:
		return fuzz_chance(f, 2) ? ARENA + fuzz_below(f, ARENA_PAGES * 4096) :
					   bad_pointer(f);
	default:
		return number(f);
	}
}

static void *filled(struct fuzzer *f)
{
	uint64_t *p = room(f);

	for (unsigned i = 0; i < CHUNK / 8; i += 1 + fuzz_below(f, 4))
		p[i] = word(f);
	return p;
}

static uint64_t length(struct fuzzer *f)
{
	static const uint32_t usual[] = { 0, 1, 4, 8, 16, 64, 100, 256, 1000, 4096, 4097, 8192,
					  20000, 65536, 70000 };

	if (fuzz_chance(f, 10))
		return number(f);
	return usual[fuzz_below(f, sizeof(usual) / sizeof(usual[0]))];
}

static const char *const paths[] = {
	"f0", "f1", "f2", "f3", "d0", "d0/x", "d0/y", "d1", "d1/x", "d0/d1", "link", "loop",
	"fifo", "sock", "", ".", "..", "/", "d0/", "f0/", "f0/x", "//./d0/../f1", "d0/..",
	"/tmp", "/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/ptmx", "/dev/tty",
	"/dev/pts", "/dev/pts/0", "/dev/fd/3", "/dev/shm/x", "/proc/self/exe", "/proc/self",
	"/proc/self/maps", "/proc/self/smaps", "/proc/self/mem", "/proc/self/fd",
	"/proc/self/fd/3", "/proc/self/fd/9", "/proc/self/fdinfo/5", "/proc/self/cwd",
	"/proc/self/status", "/proc/self/stat", "/proc/self/statm", "/proc/self/task",
	"/proc/self/environ", "/proc/self/cmdline", "/proc/self/comm", "/proc/self/limits",
	"/proc/self/mountinfo", "/proc/self/oom_score_adj", "/proc/self/auxv",
	"/proc/self/pagemap", "/proc/self/wchan", "/proc/self/io", "/proc/self/ns",
	"/proc/thread-self/stat", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat",
	"/proc/uptime", "/proc/loadavg", "/proc/mounts", "/proc/filesystems", "/proc/sys",
	"/proc/sys/kernel/hostname", "/proc/sys/kernel/pid_max", "/proc/sys/vm/overcommit_memory",
	"/proc/sys/fs/file-max", "/proc/sys/kernel/random/uuid", "/proc/net", "/proc/net/unix",
	"/proc", "/sys", "/sys/devices/system/cpu", "/sys/devices/system/cpu/online",
	"/bin/sh", "/bin", "/bin/busybox", "/etc/passwd", "/nowhere", "/proc/self/root",
	"user.x", "user.name", "security.capability", "trusted.y", "system.posix_acl_access",
	"tmpfs", "proc",
};

static const char *path(struct fuzzer *f)
{
	char *p;
	unsigned n;

	switch (fuzz_below(f, 40)) {
	case 0:			/* too long, or a page of it without an end */
		p = (char *)ARENA + 40 * 4096;
		n = 4000 + fuzz_below(f, 200);
		for (unsigned i = 0; i < n; i++)
			p[i] = i % 64 == 63 ? '/' : 'a';
		p[n] = '\0';
		return p;
	case 1:			/* a long name */
		p = room(f);
		n = 253 + fuzz_below(f, 3);
		memset(p, 'n', n);
		p[n] = '\0';
		return p;
	case 2:			/* ends with the arena */
		p = (char *)ARENA + ARENA_PAGES * 4096 - 3;
		memcpy(p, "f00", 3);
		return p;
	case 3:
		return (const char *)pointer(f);
	default:
		/* The first ones are the ones to make and remove. */
		n = fuzz_chance(f, 2) ? 14 : sizeof(paths) / sizeof(paths[0]);
		p = room(f);
		strcpy(p, paths[fuzz_below(f, n)]);
		return p;
	}
}

static void *vectors(struct fuzzer *f)
{
	struct iovec *v = room(f);

	for (unsigned i = 0; i < CHUNK / sizeof(*v); i++) {
		v[i].iov_base = (void *)pointer(f);
		v[i].iov_len = length(f);
	}
	return v;
}

static void *address(struct fuzzer *f)
{
	union {
		struct sockaddr_un un;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		unsigned short family;
	} *a = room(f);

	memset(a, 0, sizeof(*a));
	switch (fuzz_below(f, 6)) {
	case 0:
		a->un.sun_family = AF_UNIX;
		strcpy(a->un.sun_path, fuzz_chance(f, 2) ? "sock" : "d0/sock");
		break;
	case 1:
		a->un.sun_family = AF_UNIX;
		strcpy(a->un.sun_path + 1, "abstract");
		break;
	case 2:
		a->un.sun_family = AF_UNIX;
		memset(a->un.sun_path, 's', sizeof(a->un.sun_path));
		break;
	case 3:
		a->in.sin_family = AF_INET;
		a->in.sin_port = (unsigned short)fuzz_random(f);
		a->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		break;
	case 4:
		a->in6.sin6_family = AF_INET6;
		a->in6.sin6_addr.s6_addr[15] = 1;
		break;
	default:
		a->family = (unsigned short)number(f);
	}
	return a;
}

static void *message(struct fuzzer *f)
{
	struct msghdr *m = room(f);
	char *room_c = room(f);
	struct cmsghdr *c = (struct cmsghdr *)room_c;
	unsigned fds = fuzz_below(f, 4);

	memset(m, 0, sizeof(*m));
	m->msg_iov = vectors(f);
	m->msg_iovlen = fuzz_chance(f, 20) ? number(f) : fuzz_below(f, 5);
	if (fuzz_chance(f, 3)) {
		m->msg_name = fuzz_chance(f, 10) ? (void *)pointer(f) : address(f);
		m->msg_namelen = fuzz_chance(f, 10) ? (socklen_t)number(f) : 110;
	}
	if (fuzz_chance(f, 2)) {
		memset(room_c, 0, 64);
		c->cmsg_level = fuzz_chance(f, 20) ? (int)number(f) : SOL_SOCKET;
		c->cmsg_type = fuzz_chance(f, 4) ? SCM_CREDENTIALS : SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fds * sizeof(int));
		for (unsigned i = 0; i < fds; i++)
			((int *)CMSG_DATA(c))[i] = (int)descriptor(f);
		m->msg_control = c;
		m->msg_controllen = CMSG_SPACE(fds * sizeof(int));
		if (fuzz_chance(f, 8))
			c->cmsg_len = number(f);
		if (fuzz_chance(f, 8))
			m->msg_controllen = number(f);
	}
	if (fuzz_chance(f, 40))
		m->msg_control = (void *)bad_pointer(f);
	return m;
}

static void *messages(struct fuzzer *f)
{
	struct mmsghdr *m = room(f);

	for (unsigned i = 0; i < CHUNK / sizeof(*m); i++)
		memcpy(&m[i].msg_hdr, message(f), sizeof(m[i].msg_hdr));
	return m;
}

/* Short, that a call ends by itself now and then; or odd. */
static void set_time(struct fuzzer *f, struct __kernel_timespec *t)
{
	t->tv_sec = fuzz_chance(f, 10) ? (long)number(f) : 0;
	t->tv_nsec = fuzz_chance(f, 10) ? (long)number(f) : fuzz_below(f, 2000000);
}

static void *times(struct fuzzer *f, unsigned n)
{
	struct __kernel_timespec *t = room(f);

	for (unsigned i = 0; i < n; i++)
		set_time(f, &t[i]);
	return t;
}

static void *polled(struct fuzzer *f)
{
	struct pollfd *p = room(f);

	for (unsigned i = 0; i < CHUNK / sizeof(*p); i++) {
		p[i].fd = (int)descriptor(f);
		p[i].events = (short)fuzz_random(f);
	}
	return p;
}

static void *event(struct fuzzer *f)
{
	struct epoll_event *e = room(f);

	e->events = fuzz_chance(f, 4) ? (uint32_t)fuzz_random(f) : EPOLLIN | EPOLLOUT;
	e->events |= fuzz_chance(f, 3) ? (uint32_t)(EPOLLET | EPOLLONESHOT) : 0;
	e->data.u64 = fuzz_random(f);
	return e;
}

static int signal_number(struct fuzzer *f)
{
	static const int odd[] = { 0, -1, 65, 64, 63, INT_MAX, SIGKILL, SIGSTOP, SIGTSTP,
				   SIGTTIN };

	if (fuzz_chance(f, 30))
		return odd[fuzz_below(f, sizeof(odd) / sizeof(odd[0]))];
	return (int)fuzz_below(f, 10) < 7 ? SIGUSR1 + (int)fuzz_below(f, 3) :
		34 + (int)fuzz_below(f, 30);
}

static long process(struct fuzzer *f)
{
	static const int odd[] = { 999999, INT_MIN, INT_MAX, 0, 0, 300000 };

	switch (fuzz_below(f, 6)) {
	case 0:
		return odd[fuzz_below(f, sizeof(odd) / sizeof(odd[0]))];
	case 1:
	case 2:
		return f->child > 0 ? f->child : f->pid;
	default:
		return f->pid;
	}
}

struct action {			/* the kernel's struct sigaction */
	void *handler;
	unsigned long flags;
	void *restorer;
	uint64_t mask;
};

static void *action(struct fuzzer *f)
{
	struct action *a = room(f);

	/* A handler is run, so it is never a wild address. */
	a->handler = fuzz_chance(f, 3) ? (void *)(long)fuzz_below(f, 2) : fuzz_handler;
	a->flags = (fuzz_random(f) & 0xd8000003u) | 0x04000000u;
	a->restorer = fuzz_restorer;
	a->mask = fuzz_chance(f, 2) ? 0 : fuzz_random(f);
	return a;
}

static void *signal_event(struct fuzzer *f)
{
	struct {
		uint64_t value;
		int signo, notify, tid;
	} *e = room(f);

	e->value = fuzz_random(f);
	e->signo = signal_number(f);
	e->notify = fuzz_chance(f, 8) ? (int)number(f) : (int)fuzz_below(f, 5);
	e->tid = (int)f->tid;
	return e;
}

static void *strings(struct fuzzer *f)
{
	uint64_t *p = room(f);
	unsigned n = fuzz_below(f, 8);

	for (unsigned i = 0; i < n; i++)
		p[i] = fuzz_chance(f, 30) ? bad_pointer(f) : (uint64_t)path(f);
	p[n] = 0;
	if (n != 0 && fuzz_chance(f, 2))
		p[0] = (uint64_t)strcpy(room(f), "exit");
	return p;
}

static void *robust_list(struct fuzzer *f)
{
	uint64_t *p = room(f);
	/* A ring, a list of one, or noise. */
	p[0] = fuzz_chance(f, 4) ? bad_pointer(f) : (uint64_t)(p + fuzz_below(f, 4));
	p[1] = fuzz_chance(f, 4) ? fuzz_random(f) : 8;
	p[2] = fuzz_chance(f, 2) ? 0 : pointer(f);
	p[3] = (uint64_t)p;
	return p;
}

static long values(struct fuzzer *f, const long *v)
{
	unsigned n = 0;
	long r;

	if (fuzz_chance(f, 25))
		return (long)number(f);
	while (v[n] != -1)
		n++;
	r = v[fuzz_below(f, n)];
	while (fuzz_chance(f, 3))
		r |= v[fuzz_below(f, n)];
	return r;
}

static void *structure(struct fuzzer *f, enum arg type)
{
	uint64_t *p;

	switch (type) {
	case A_IOV:
		return vectors(f);
	case A_MSG:
		return message(f);
	case A_MMSG:
		return messages(f);
	case A_SOCKADDR:
		return address(f);
	case A_TIME:
		return times(f, 1);
	case A_ITIMER:
		return times(f, 2);
	case A_EPOLL:
		return event(f);
	case A_POLL:
		return polled(f);
	case A_SIGEVENT:
		return signal_event(f);
	case A_STRINGS:
		return strings(f);
	case A_ROBUST:
		return robust_list(f);
	case A_ACTION:
		return action(f);
	case A_SOCKLEN:
		p = room(f);
		*p = fuzz_chance(f, 5) ? number(f) : 16u + fuzz_below(f, 100);
		return p;
	case A_OFFP:
	case A_FUTEX:
		/* The same few words, that processes meet at them. */
		p = (uint64_t *)(ARENA + 36 * 4096) + fuzz_below(f, 4);
		if (fuzz_chance(f, 2))
			*p = fuzz_chance(f, 2) ? number(f) : (uint64_t)f->tid;
		return p;
	case A_HOW:
		p = room(f);
		p[0] = fuzz_chance(f, 3) ? number(f) : (fuzz_chance(f, 2) ? O_CREAT | O_RDWR : 0);
		p[1] = p[0] & O_CREAT ? 0600 : 0;
		p[2] = fuzz_below(f, 64);
		return p;
	case A_STACK:
		p = room(f);
		p[0] = ARENA + 44 * 4096;
		p[1] = fuzz_chance(f, 8) ? number(f) : 0;
		p[2] = fuzz_chance(f, 8) ? number(f) : 16384;
		return p;
	case A_RLIMIT:
		p = room(f);
		p[0] = fuzz_chance(f, 3) ? number(f) : 1ul << 26;
		p[1] = fuzz_chance(f, 8) ? number(f) : ULONG_MAX;
		return p;
	case A_SIGSET:
		p = room(f);
		*p = fuzz_random(f) & (fuzz_chance(f, 2) ? ULONG_MAX : 0xe00);
		return p;
	default:
		return filled(f);
	}
}

long fuzz_argument(struct fuzzer *f, const struct argument *a)
{
	switch (a->type) {
	case A_END:
		return 0;
	case A_INT:
		return (long)number(f);
	case A_SMALL:
		return fuzz_below(f, 16);
	case A_LEN:
		return (long)length(f);
	case A_OFF:
		return fuzz_chance(f, 8) ? (long)number(f) : (long)fuzz_below(f, 100000);
	case A_FD:
		return descriptor(f);
	case A_ATFD:
		return fuzz_chance(f, 4) ? descriptor(f) : AT_FDCWD;
	case A_PID:
		return process(f);
	case A_TID:
		return fuzz_chance(f, 4) ? process(f) : f->tid;
	case A_SIG:
		return signal_number(f);
	case A_UID:
		return fuzz_chance(f, 4) ? (long)number(f) : fuzz_chance(f, 2) ? 0 : 1000;
	case A_PATH:
		return (long)path(f);
	case A_COUNT:
		return fuzz_chance(f, 20) ? (long)number(f) : (long)fuzz_below(f, 8);
	case A_PAGE:
		if (fuzz_chance(f, 8))
			return (long)(fuzz_chance(f, 2) ? bad_pointer(f) : number(f));
		return (long)(ARENA + fuzz_below(f, ARENA_PAGES) * 4096ul);
	case A_PAGES:
		return fuzz_chance(f, 10) ? (long)number(f) :
					    (long)(fuzz_below(f, 24) * 4096ul);
	case A_VALUES:
		return values(f, a->values);
	default:
		break;
	}
	if (fuzz_chance(f, 16))
		return (long)bad_pointer(f);
	if (fuzz_chance(f, 40))
		return 0;
	return (long)structure(f, a->type);
}
