/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine for core/ on the host: tasks are coroutines, time is virtual (it jumps to the next
 * armed deadline when everybody sleeps), the program's memory is the host's, and a "program"
 * is a C function whose address is in the trapframe. See host.c.
 */
#ifndef TEST_KERNEL_CORE_HOST_H
#define TEST_KERNEL_CORE_HOST_H

#include "guest-kernel/core/task_internal.h"

/* Boots: PID 1 runs `program` as its thread; returns when PID 1 has exited, its status. */
int machine_run(void (*program)(void));

/* Inside a program: fork, thread, vfork with the child running fn(); the child's number. */
long user_fork(void (*fn)(void));
long user_vfork(void (*fn)(void));
long user_thread(void (*fn)(void));
long user_clone(uint64_t flags, void (*fn)(void), int *parent_tid, int *child_tid);

extern uint64_t machine_now_ns;		/* the virtual clock */
void machine_spend(uint64_t ns);	/* the running task computes for that long */
/* The VM is stopped here and restored after pause_ns with its TSC at `tsc`. */
void machine_restore(uint64_t pause_ns, uint64_t tsc);
/* Called right after each reading of the TSC, and when the processor is halted. */
extern void (*machine_tsc_hook)(void), (*machine_halt_hook)(void);
extern unsigned machine_timer_arms;
extern int machine_fail_alloc;		/* n > 0: the n-th allocation from now fails */
extern struct process *machine_dying;	/* what oom_dying() says until it is dead */
extern unsigned machine_live_allocs;
extern unsigned machine_live_mms, machine_live_files, machine_live_fs;

/* What elf_load() would start: the program that "files" of this path hold. */
struct machine_file {
	const char *path;
	uint32_t mode, uid, gid;
	const char *text;		/* contents: a script, or "ELF" */
	void (*program)(void);
};
void machine_files(const struct machine_file *files, unsigned n);
/* The arguments of the last successful elf_load. */
extern char machine_argv[16][256];
extern unsigned machine_argc, machine_envc;
extern bool machine_secure;
extern char machine_execfn[256];

#endif
