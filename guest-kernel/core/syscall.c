/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call table: every name of syscalls.def with the function that implements it. A
 * name without one does not link. Numbers that are not in the table answer ENOSYS.
 */
#include "guest-kernel/core/syscall.h"

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/syscall_nr.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/mm/mm.h"

#define RETRIES	16u	/* processes whose end a call waits for when it finds no memory */

typedef long (*syscall_fn)(long, long, long, long, long, long);

/* Each takes fewer arguments than it is called with, which the calling convention allows. */
#define X(name) long sys_##name(long, long, long, long, long, long);
#include "guest-kernel/core/syscalls.def"
#undef X

static const syscall_fn syscall_table[SYSCALL_MAX] = {
#define X(name) [__NR_##name] = sys_##name,
#include "guest-kernel/core/syscalls.def"
#undef X
};

/* Over before a clock could be read: their time is the program's. */
#define QUICK(name) [__NR_##name] = true
static const bool syscall_quick[SYSCALL_MAX] = {
	QUICK(getpid), QUICK(gettid), QUICK(getppid), QUICK(getuid), QUICK(geteuid),
	QUICK(getgid), QUICK(getegid), QUICK(getpgrp), QUICK(getpgid), QUICK(getsid),
	QUICK(umask), QUICK(time), QUICK(gettimeofday), QUICK(clock_gettime), QUICK(getcpu),
	QUICK(sched_yield), QUICK(rt_sigprocmask), QUICK(set_tid_address),
	QUICK(set_robust_list),
};

bool syscall_trace;

/* A call that found no memory has done nothing, but for mremap, which may have unmapped what
 * lay in its way. Who is dying gives some back: the call is made again after that. */
static bool may_retry(uint64_t nr, unsigned tries)
{
	struct process *p;
	int r;

	if (nr == __NR_mremap || tries >= RETRIES || signal_fatal_pending(current))
		return false;
	p = oom_dying();
	if (p == NULL)
		return false;
	process_get(p);
	r = WAIT_EVENT_FULL(&p->wait_exit, p->zombie, deadline_after(NSEC_PER_SEC), false, false);
	process_put(p);
	return r == 0;
}

static long dispatch(struct trapframe *tf, uint64_t nr)
{
	long r;

	if (unlikely(nr >= SYSCALL_MAX || syscall_table[nr] == NULL))
		return syscall_missing(nr);
	if (syscall_quick[nr])
		return syscall_table[nr]((long)tf->rdi, (long)tf->rsi, (long)tf->rdx,
					 (long)tf->r10, (long)tf->r8, (long)tf->r9);
	sched_account(false);
	current->proc->stats.syscalls++;
	for (unsigned tries = 0;; tries++) {
		r = syscall_table[nr]((long)tf->rdi, (long)tf->rsi, (long)tf->rdx,
				      (long)tf->r10, (long)tf->r8, (long)tf->r9);
		if (likely(r != -ENOMEM && r != -ENOBUFS) || !may_retry(nr, tries))
			break;
	}
	sched_account(true);
	return r;
}

/* Before the call as well as after it: some never return, or much later. */
static long dispatch_traced(struct trapframe *tf, uint64_t nr)
{
	const char *name = syscall_name(nr);
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
