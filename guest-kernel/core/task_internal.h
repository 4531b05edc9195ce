/* SPDX-License-Identifier: Apache-2.0 */
/* What only the files of core/ share about tasks and processes. */
#ifndef CORE_TASK_INTERNAL_H
#define CORE_TASK_INTERNAL_H

#include "guest-kernel/core/task.h"

/* <linux/sched.h> and friends would drag in colliding names; the values are the ABI's. */
#define SCHED_OTHER_	0
#define SCHED_FIFO_	1
#define SCHED_RR_	2
#define SCHED_BATCH_	3
#define SCHED_IDLE_	5
#define SCHED_DEADLINE_	6

enum {
	RLIM_CPU, RLIM_FSIZE, RLIM_DATA, RLIM_STACK, RLIM_CORE, RLIM_RSS, RLIM_NPROC,
	RLIM_NOFILE, RLIM_MEMLOCK, RLIM_AS, RLIM_LOCKS, RLIM_SIGPENDING, RLIM_MSGQUEUE,
	RLIM_NICE, RLIM_RTPRIO, RLIM_RTTIME,
};

/* struct cred securebits */
#define SECBIT_NOROOT			0x01u
#define SECBIT_NOROOT_LOCKED		0x02u
#define SECBIT_NO_SETUID_FIXUP		0x04u
#define SECBIT_NO_SETUID_FIXUP_LOCKED	0x08u
#define SECBIT_KEEP_CAPS		0x10u
#define SECBIT_KEEP_CAPS_LOCKED		0x20u
#define SECBIT_NO_CAP_AMBIENT_RAISE	0x40u
#define SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED 0x80u
#define SECBITS_ALL			0xffu
#define SECBITS_LOCKS			0xaau

/* ---- pid numbers: in use as long as a task, process, process group or session has them ---- */
int pid_alloc(void);			/* held once; -EAGAIN when all are in use */
void pid_hold(int pid);
void pid_drop(int pid);

/* ---- task.c ---- */
struct task_counts {
	uint64_t forks, vforks, threads, execs, exits;
	unsigned tasks;			/* alive now */
};
extern struct task_counts task_counts;

/* A task of p with stacks and a number, not yet hashed, linked or runnable. */
struct task *task_new(struct process *p, int tid);
void task_link(struct task *t);		/* into the hash and its process */
void task_unlink(struct task *t);
void task_rehash(struct task *t, int tid);	/* de-threading: takes over the leader's tid */
void task_free(struct task *t);
struct process *process_new(int pid);	/* refs 1, linked nowhere */
void process_link(struct process *p, struct process *parent);
/* A zombie was waited for: off every list, reference dropped. */
void process_unlink(struct process *p);
bool process_alive(const struct process *p);
unsigned process_count(void);

/* Registers of a fresh program. */
void task_frame_start(struct trapframe *tf, uintptr_t entry, uintptr_t sp);

struct fs_context *fs_context_copy(const struct fs_context *fs);
void fs_context_get(struct fs_context *fs);
void fs_context_put(struct fs_context *fs);

struct cred *cred_new(unsigned ngroups);
struct cred *cred_copy(const struct cred *c);
void cred_commit(struct cred *c);	/* current's process takes it over */
/* Capabilities after a change of the user ids by setuid and friends. */
void cred_fixup_uids(struct cred *c, const struct cred *old);
#define CAP_ALL_MASK ((1ULL << 41) - 1)

/* ---- sched.c ---- */
void sched_task_init(struct task *t, const struct task *parent);
void sched_set_nice(struct task *t, int nice, int policy);
void sched_account_flush(void);		/* current's times are exact after it */
void sched_finish_switch(void);		/* first thing in a new task */
/* sleep_once() until a time of the realtime clock, which may jump. */
int sleep_once_realtime(uint64_t real_ns);
/* Sleeps until woken; a signal wakes, but only a fatal one is reported: -ERESTARTSYS. */
int sleep_killable(void);

/* ---- exit.c ---- */
/* Hands the borrowed address space back to a vfork parent. */
void vfork_release(struct task *t);
/* Robust list, clear_child_tid, vfork: before a task leaves its mm (exit, exec). */
void task_leave_mm(struct task *t);
void process_notify_parent(struct process *p);

/* ---- futex.c ---- */
void futex_exit(struct task *t);	/* robust list and clear_child_tid */

/* ---- pidfd.c ---- */
struct file *pidfd_file_new(struct process *p, bool nonblock);

/* ---- waitsys.c, rlimit.c: struct rusage ---- */
struct krusage {
	int64_t utime_sec, utime_usec, stime_sec, stime_usec;
	int64_t maxrss, ixrss, idrss, isrss, minflt, majflt, nswap, inblock, oublock;
	int64_t msgsnd, msgrcv, nsignals, nvcsw, nivcsw;
};
_Static_assert(sizeof(struct krusage) == 144, "struct rusage");
/* Of one process that is a zombie: itself and the children it waited for (wait4). */
void rusage_of_zombie(const struct process *p, struct krusage *ret);
void process_account_mm(struct process *p);	/* maxrss from its mm */

/* ---- clone flag checks (fork.c), shared with the tests ---- */
struct clone_args_k {
	uint64_t flags;			/* without the exit signal */
	int __user *pidfd, *child_tid, *parent_tid;
	int exit_signal;
	uint64_t stack, tls;		/* stack: first stack pointer, 0: the parent's */
	bool clone3;
};
int clone_check(const struct clone_args_k *a);

/* ---- #! lines (exec.c), shared with the tests ---- */
#define SCRIPT_BUF 256
/* Splits the first bytes of a script, in place: interpreter and its one argument or NULL. */
int script_parse(char buf[SCRIPT_BUF + 1], size_t n, char **ret_interp, char **ret_arg);

#endif
