/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the parts of the system call fuzzer: calls.c says which calls there are and of
 * what type their arguments are, args.c makes a value of a type, sysfuzz.c runs it all.
 * The fuzzing processes use no libc beyond string functions: their thread pointer, heap and
 * standard streams are not to be relied on.
 */
#ifndef SYSFUZZ_H
#define SYSFUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA		0x100000000000ul	/* where valid buffers lie */
#define ARENA_PAGES	64u
#define FD_LIMIT	64			/* RLIMIT_NOFILE of a fuzzing process */
#define SLOT_PIDS	64

enum arg {
	A_END,
	A_INT, A_SMALL, A_LEN, A_OFF, A_FD, A_ATFD, A_PID, A_TID, A_SIG, A_UID,
	A_BUF, A_OUT, A_PATH, A_IOV, A_COUNT, A_MSG, A_MMSG, A_SOCKADDR, A_SOCKLEN, A_TIME,
	A_ITIMER, A_OFFP, A_EPOLL, A_POLL, A_FDSET, A_SIGSET, A_SIGINFO, A_SIGEVENT,
	A_PAGE, A_PAGES, A_STRINGS, A_FUTEX, A_PIPE, A_HOW, A_STACK, A_ROBUST, A_RLIMIT,
	A_IDS, A_ACTION,
	A_VALUES,	/* one of, or of a few together */
};

struct argument {
	enum arg type;
	const long *values;	/* A_VALUES: ends with -1, which is itself never a value */
};

struct call {
	const char *name;
	short nr;		/* negative: a special operation, see sysfuzz.c */
	unsigned char weight;
	struct argument args[6];
};

enum special {
	S_FORK = -1, S_VFORK = -2, S_THREAD = -3, S_SIGRETURN = -4, S_EXIT = -5, S_CLONE = -6,
	S_FILL = -7,
};

extern const struct call calls[];
extern const unsigned calls_count;

struct fuzzer {			/* one thread of execution */
	uint64_t random;
	long pid, tid, child;
	unsigned depth;		/* forks and threads above it */
	unsigned cursor;	/* in the arena: where the next buffer is taken */
	unsigned worker;
};

uint64_t fuzz_random(struct fuzzer *f);
unsigned fuzz_below(struct fuzzer *f, unsigned n);
bool fuzz_chance(struct fuzzer *f, unsigned one_in);
long fuzz_argument(struct fuzzer *f, const struct argument *a);
extern void *fuzz_handler, *fuzz_restorer;

static inline long raw6(long nr, long a, long b, long c, long d, long e, long g)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = g;
	long r;

	__asm__ volatile("syscall" : "=a"(r)
			 : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
}

#define RAW0(nr)		raw6((nr), 0, 0, 0, 0, 0, 0)
#define RAW1(nr, a)		raw6((nr), (long)(a), 0, 0, 0, 0, 0)
#define RAW2(nr, a, b)		raw6((nr), (long)(a), (long)(b), 0, 0, 0, 0)
#define RAW3(nr, a, b, c)	raw6((nr), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RAW4(nr, a, b, c, d) \
	raw6((nr), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

#endif
