/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks (threads) and processes (thread groups). A process owns its threads, children, pending
 * shared signals and identity; mm, files, fs and sighand are counted objects that clone(2) may
 * share between processes (vfork, CLONE_FILES ...).
 *
 * Life: task_new -> RUNNABLE <-> SLEEPING/STOPPED -> DEAD. The last thread of a process to die
 * makes the process a zombie; wait(2) of the parent (or of PID 1 for orphans) frees it. A dead
 * task's stack is freed by the next task to run.
 */
#ifndef CORE_TASK_H
#define CORE_TASK_H

#include <sys/queue.h>
#include "guest-kernel/arch/trapframe.h"
#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/core/wait.h"
#include "guest-kernel/lib/kernel.h"

struct dentry;
struct file;
struct files;
struct mm;
struct tty;

struct cred {
	uint32_t refs;			/* immutable once shared: copy to change */
	uint32_t uid, euid, suid, fsuid;
	uint32_t gid, egid, sgid, fsgid;
	uint64_t cap_eff, cap_perm, cap_inh, cap_bset, cap_ambient;
	uint32_t securebits;
	unsigned ngroups;
	uint32_t groups[];
};

struct fs_context {			/* CLONE_FS */
	uint32_t refs;
	struct dentry *root, *cwd;	/* references held */
	uint32_t umask;
};

enum task_state {
	TASK_RUNNABLE,
	TASK_SLEEPING,			/* a signal wakes it */
	TASK_UNINTERRUPTIBLE,
	TASK_STOPPED,
	TASK_DEAD,
};

struct task {
	/* arch: offsets known to arch/context.S through the asserts there */
	uint64_t ksp;			/* saved kernel stack pointer */
	uint8_t *kstack;		/* lowest address */
	uint64_t fsbase, gsbase;	/* saved while not current */
	uint8_t *xstate;		/* fpu_size() bytes, 64-byte aligned */

	struct process *proc;
	struct mm *mm;			/* = proc->mm; NULL for kernel threads */
	int tid;
	enum task_state state;
	bool need_resched;		/* checked on the way out to the program */
	bool on_runq;
	TAILQ_ENTRY(task) run_link;	/* run queue */
	TAILQ_ENTRY(task) thread_link;	/* proc->threads */
	TAILQ_ENTRY(task) hash_link;	/* by tid */
	char comm[16];

	/* scheduling and accounting: sched.c */
	int nice;
	uint64_t vruntime, slice_end;
	uint64_t run_since;		/* monotonic ns when last switched in */
	uint64_t utime_ns, stime_ns;
	uint64_t nvcsw, nivcsw, minflt, majflt;
	uint64_t start_ns;
	struct ktimer sleep_timer;
	bool timed_out;

	/* signals: signal.c */
	uint64_t sig_mask, saved_mask;
	bool restore_mask;		/* rt_sigsuspend, ppoll: saved_mask comes back */
	struct sigpending pending;
	uint64_t altstack_sp, altstack_size;
	uint32_t altstack_flags;
	bool sig_check;			/* something may be deliverable; a new thread starts
					 * with true, so that it joins a group stop */
	bool must_exit;			/* signal_zap_task */
	uint64_t sig_real_blocked;	/* mask proper while rt_sigtimedwait lowers sig_mask */
	uint64_t trap_nr, trap_err, trap_cr2;	/* last fault, for the signal frame: set by the
						 * fault entry before signal_force */
	long restart_arg[6];		/* restart_syscall */
	long (*restart_fn)(struct task *t);

	/* threads */
	uint32_t __user *set_child_tid, *clear_child_tid;
	void __user *robust_list;
	size_t robust_len;
	void __user *rseq;
	uint32_t rseq_len, rseq_sig;
	struct process *vfork_parent;	/* child side: whom to release at exec or exit */
	bool vfork_done;		/* parent side */
	struct waitq vfork_wait;
	int exit_code;			/* wait status of this thread */
	uint32_t pdeath_signal;
	struct task *joiner;
	bool is_syscall;		/* trapframe is of a system call (restart logic) */
};
TAILQ_HEAD(task_list, task);
extern struct task *current;
static inline struct trapframe *task_frame(const struct task *t)
{
	return (struct trapframe *)(t->kstack + 16384 - TF_SIZE);
}

struct krlimit {
	uint64_t cur, max;
};
#define KRLIM_NLIMITS	16
#define KRLIM_INFINITY	(~0ULL)

struct process {
	uint32_t refs;			/* pidfds, /proc files, children's parent pointer ... */
	int pid, pgid, sid;
	struct process *parent;
	TAILQ_HEAD(proc_list, process) children;
	TAILQ_ENTRY(process) sibling;
	TAILQ_ENTRY(process) all_link;	/* all_processes, by creation */
	TAILQ_ENTRY(process) hash_link;
	struct task_list threads;
	unsigned nthreads;		/* living ones */
	struct task *leader;		/* NULL once dead and others live */
	struct mm *mm;
	struct files *files;
	struct fs_context *fs;
	struct sighand *sighand;
	struct cred *cred;
	struct sigpending pending;	/* shared */
	struct tty *ctty;		/* reference held; session leader's */
	struct krlimit rlim[KRLIM_NLIMITS];
	char comm[16];			/* leader's */

	bool zombie, exiting, did_exec;
	bool group_exit;		/* exit_group or fatal signal under way */
	int exit_code;			/* wait status */
	int exit_signal;		/* to the parent: SIGCHLD, or clone's, or 0 */
	/* job control */
	bool stopped, stop_reported, continued;
	bool stopping;			/* group stop under way: some threads still run */
	int stop_sig;
	struct waitq wait_child;	/* woken when a child changes state */
	struct waitq wait_exit;		/* pidfd poll: woken when this process exits */
	uint64_t utime_ns, stime_ns, minflt, majflt, nvcsw, nivcsw;	/* of dead threads */
	uint64_t cutime_ns, cstime_ns, cminflt, cmajflt, cmaxrss, maxrss;	/* of reaped children */
	uint64_t start_ns;
	bool no_new_privs, dumpable, subreaper;
	uint32_t personality;
	/* timers: setitimer, timer_create (timer.c) */
	struct ktimer itimer_real;
	uint64_t itimer_real_interval;
	uint64_t itimer_virt, itimer_virt_interval, itimer_prof, itimer_prof_interval;
	void *posix_timers;
	int posix_timer_next;		/* id to try next */
	unsigned cpu_timers;		/* armed posix timers on CPU clocks of this process */
	unsigned sigqueued;		/* entries queued: RLIMIT_SIGPENDING */
	int oom_score_adj;
	struct exec_stats {		/* /proc/casemate/report */
		uint64_t syscalls, faults;
	} stats;
};
extern struct proc_list all_processes;

/* ---- task.c ---- */
void task_init(void);				/* makes the boot task: current, no program */
struct task *task_find(int tid);
struct process *process_find(int pid);
void process_get(struct process *p);
void process_put(struct process *p);
/* Number of tasks is bounded by memory and TASK_MAX. */
#define TASK_MAX	32768
#define PID_MAX		32768
/* PID 1: loads `file` as the program, with args; never returns on success. */
int init_start(struct file *file);

/* Ends the calling thread / whole process. status: as wait(2) gives it. */
void task_exit(int status) NORETURN;
void process_exit_group(int status) NORETURN;
/* Marks another process for death by SIGKILL-like exit with this status. */
void process_kill(struct process *p, int status);

struct cred *cred_get(struct cred *c);
void cred_put(struct cred *c);
bool capable(int cap);				/* of current; CAP_* of <linux/capability.h> */
bool in_group(const struct cred *c, uint32_t gid);
static inline uint64_t rlimit_cur(int which)
{
	return current->proc->rlim[which].cur;
}

/* ---- sched.c ---- */
void sched_init(void);
void sched_wake(struct task *t);		/* make runnable, if asleep */
void sched_add(struct task *t);			/* a new task */
void schedule(void);				/* switch to the next runnable task, or idle */
void sched_yield_now(void);
void sched_tick(void);				/* from irq_process: slice accounting */
void sched_account(bool to_user);		/* at entry and exit, for utime/stime */
unsigned sched_nr_runnable(void);
void sched_loadavg(uint64_t ret_fixed[3]);	/* 16.16 */

/* ---- entry.c ---- */
void irq_process(void);				/* take noted interrupts: timers, devices */
long syscall_dispatch(struct trapframe *tf);

#endif
