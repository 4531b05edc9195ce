/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every kernel file may use: types, macros, messages. The same code is compiled for the
 * host's unit tests, so only freestanding headers, <string.h> (mem*, str*: implemented in
 * lib/string.c), <sys/queue.h>, <bsd/sys/tree.h> and Linux's UAPI headers (<linux/...>,
 * <asm/...>) may be included; never libc's own <sys/stat.h>, <signal.h>, <fcntl.h> and such,
 * which collide with the UAPI ones.
 *
 * One vCPU, no preemption inside the kernel: between two points that may sleep, a function
 * has the whole kernel for itself, so there are no locks but sleeping ones (struct mutex in
 * core/wait.h) for state that must hold across a sleep. Interrupt handlers only set pending
 * bits; timers and device work run from irq_process() with the same guarantee.
 *
 * Errors are negative errno, handed up; one `goto out` per function.
 */
#ifndef KERNEL_H
#define KERNEL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <linux/errno.h>

/* One link, no other object: addresses are RIP-relative, never through a GOT. Tests on the
 * host link with libc, whose headers may come after this one. */
#ifdef CM_KERNEL
#pragma GCC visibility push(hidden)
#endif

/* In-kernel only, never seen by a program. Restart codes as in Linux: see core/signal.h. */
#define ERESTARTSYS	512	/* restart if SA_RESTART, else EINTR */
#define ERESTARTNOINTR	513	/* restart always */
#define ERESTARTNOHAND	514	/* EINTR if a handler ran, else restart */
#define ERESTART_RESTARTBLOCK 516	/* through restart_syscall */

#define PAGE_SHIFT	12
#define PAGE_SIZE	4096UL
#define PAGE_MASK	(~(PAGE_SIZE - 1))
#define HUGE_SHIFT	21
#define HUGE_SIZE	(1UL << HUGE_SHIFT)

#define ALIGN_DOWN(x, a)	((x) & ~((__typeof__(x))(a) - 1))
#define ALIGN_UP(x, a)		ALIGN_DOWN((x) + ((__typeof__(x))(a) - 1), a)
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) \
	({ __typeof__(a) _a = (a); __typeof__(b) _b = (b); _a < _b ? _a : _b; })
#define MAX(a, b) \
	({ __typeof__(a) _a = (a); __typeof__(b) _b = (b); _a > _b ? _a : _b; })
#define CONTAINER_OF(p, type, member) \
	((type *)((char *)(p) - offsetof(type, member)))
#define likely(x)		__builtin_expect(!!(x), 1)
#define unlikely(x)		__builtin_expect(!!(x), 0)
#define PRINTF(f, a)		__attribute__((format(printf, f, a)))
#define NORETURN		__attribute__((noreturn))
#define NSEC_PER_SEC		1000000000ULL
#define NSEC_PER_MSEC		1000000ULL
#define NSEC_PER_USEC		1000ULL

/* Pointers that may carry an error (as ERR_PTR in Linux). */
#define ERR_PTR(e)		((void *)(intptr_t)(e))
#define PTR_ERR(p)		((int)(intptr_t)(p))
#define IS_ERR(p)		((uintptr_t)(p) >= (uintptr_t)-4095)

typedef uint64_t paddr_t;	/* guest-physical address */

/* A pointer into the running program's memory. Only mm/uaccess.h dereferences it. */
#define __user

/* Messages go to the serial register when the VM is verbose; panic always does. */
void printk(const char *fmt, ...) PRINTF(1, 2);
void panic(const char *fmt, ...) NORETURN PRINTF(1, 2);
#define ASSERT(x) \
	do { \
		if (unlikely(!(x))) \
			panic("%s:%d: %s", __FILE__, __LINE__, #x); \
	} while (0)

/* lib/printf.c: d i u x X o c s p %, h/hh/l/ll/z/j, width, precision, 0 - + # space.
 * Return the length without truncation, as snprintf does. */
int kvsnprintf(char *buf, size_t size, const char *fmt, va_list ap);
int ksnprintf(char *buf, size_t size, const char *fmt, ...) PRINTF(3, 4);

/* Growing text buffer: /proc files and reports. Errors stick: check .error at the end. */
struct strbuf {
	char *data;
	size_t len, cap;
	int error;
};
void strbuf_printf(struct strbuf *sb, const char *fmt, ...) PRINTF(2, 3);
void strbuf_write(struct strbuf *sb, const void *data, size_t len);
void strbuf_done(struct strbuf *sb);

#endif
