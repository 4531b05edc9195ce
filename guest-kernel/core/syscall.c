/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call table and its report: what was missing or partial, counted by name.
 */
#include "guest-kernel/core/syscall.h"

#include <asm/unistd_64.h>

#include "guest-kernel/core/task.h"

typedef long (*syscall_fn)(long, long, long, long, long, long);

/* A call whose folder does not define it yet is a null entry: ENOSYS. */
#define X(name) __attribute__((weak)) long sys_##name(long, long, long, long, long, long);
#include "guest-kernel/core/syscalls.def"
#undef X

#define SYSCALL_MAX 460

static const syscall_fn syscall_table[SYSCALL_MAX] = {
#define X(name) [__NR_##name] = sys_##name,
#include "guest-kernel/core/syscalls.def"
#undef X
};

static const char *const syscall_names[SYSCALL_MAX] = {
#define X(name) [__NR_##name] = #name,
#include "guest-kernel/core/syscalls.def"
#undef X
};

static uint32_t missing[SYSCALL_MAX + 1];	/* last: numbers beyond the table */

#define PARTIAL_MAX 64
static struct {
	const char *call, *what;
	uint32_t count;
} partial[PARTIAL_MAX];

/* Over before a clock could be read: their time is the program's. */
#define QUICK(name) [__NR_##name] = true
static const bool syscall_quick[SYSCALL_MAX] = {
	QUICK(getpid), QUICK(gettid), QUICK(getppid), QUICK(getuid), QUICK(geteuid),
	QUICK(getgid), QUICK(getegid), QUICK(getpgrp), QUICK(getpgid), QUICK(getsid),
	QUICK(umask), QUICK(time), QUICK(gettimeofday), QUICK(clock_gettime), QUICK(getcpu),
	QUICK(sched_yield), QUICK(rt_sigprocmask), QUICK(set_tid_address),
	QUICK(set_robust_list),
};

uint64_t syscall_count;
bool syscall_trace;

static long dispatch(struct trapframe *tf, uint64_t nr)
{
	long r;

	if (unlikely(nr >= SYSCALL_MAX || syscall_table[nr] == NULL)) {
		missing[nr < SYSCALL_MAX ? nr : SYSCALL_MAX]++;
		return -ENOSYS;
	}
	if (syscall_quick[nr])
		return syscall_table[nr]((long)tf->rdi, (long)tf->rsi, (long)tf->rdx,
					 (long)tf->r10, (long)tf->r8, (long)tf->r9);
	sched_account(false);
	current->proc->stats.syscalls++;
	r = syscall_table[nr]((long)tf->rdi, (long)tf->rsi, (long)tf->rdx, (long)tf->r10,
			      (long)tf->r8, (long)tf->r9);
	sched_account(true);
	return r;
}

/* Before the call as well as after it: some never return, or much later. */
static long dispatch_traced(struct trapframe *tf, uint64_t nr)
{
	const char *name = nr < SYSCALL_MAX ? syscall_names[nr] : NULL;
	int tid = current->tid;
	long r;

	printk("%d %s(%lx, %lx, %lx, %lx)%s\n", tid, name != NULL ? name : "unknown", tf->rdi,
	       tf->rsi, tf->rdx, tf->r10, name != NULL ? "" : " ?");
	r = dispatch(tf, nr);
	printk("%d %s = %ld\n", tid, name != NULL ? name : "unknown", r);
	return r;
}

long syscall_dispatch(struct trapframe *tf)
{
	syscall_count++;
	return unlikely(syscall_trace) ? dispatch_traced(tf, tf->orig_rax) :
					 dispatch(tf, tf->orig_rax);
}

long syscall_partial(const char *call, const char *what, int err)
{
	for (unsigned i = 0; i < PARTIAL_MAX; i++) {
		if (partial[i].call == NULL) {
			partial[i].call = call;
			partial[i].what = what;
		} else if (strcmp(partial[i].call, call) != 0 ||
			   strcmp(partial[i].what, what) != 0) {
			continue;
		}
		partial[i].count++;
		break;
	}
	return err;
}

void syscall_report(struct strbuf *sb)
{
	for (unsigned i = 0; i < SYSCALL_MAX; i++) {
		if (missing[i] == 0)
			continue;
		if (syscall_names[i] != NULL)
			strbuf_printf(sb, "missing %s %u\n", syscall_names[i], missing[i]);
		else
			strbuf_printf(sb, "missing call %u %u\n", i, missing[i]);
	}
	if (missing[SYSCALL_MAX] != 0)
		strbuf_printf(sb, "missing calls above %d %u\n", SYSCALL_MAX - 1,
			      missing[SYSCALL_MAX]);
	for (unsigned i = 0; i < PARTIAL_MAX && partial[i].call != NULL; i++)
		strbuf_printf(sb, "partial %s: %s %u\n", partial[i].call, partial[i].what,
			      partial[i].count);
	strbuf_printf(sb, "system calls %lu\n", syscall_count);
}
