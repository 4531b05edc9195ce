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

#include <bsd/sys/tree.h>
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
	struct mm *mm;			/* = proc->mm, a reference of its own */
	int tid;
	enum task_state state;
	bool need_resched;		/* checked on the way out to the program */
	bool on_runq;
	RB_ENTRY(task) run_node;	/* run queue, by vruntime */
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
	struct task *vfork_waiter;	/* child side: whom to release at exec or exit */
	struct task *vfork_child;	/* parent side: NULL once released */
	int exit_code;			/* wait status of this thread */
	uint32_t pdeath_signal;
	bool is_syscall;		/* trapframe is of a system call (restart logic) */
	void *xstate_alloc;		/* what kfree takes for xstate */
	int policy, rt_priority;	/* SCHED_*, as told; SCHED_IDLE changes the weight */
	bool reset_on_fork;
	uint16_t ioprio;		/* as ioprio_set(2) has it: class << 13 | level */
	uint64_t timer_slack_ns, default_timer_slack_ns;
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
	uint32_t refs;			/* the table, pidfds, /proc files ... */
	int pid, pgid, sid;
	int job;			/* the ancestor that init itself made; 0: init. For ever */
	struct process *parent;
	TAILQ_HEAD(proc_list, process) children;
	TAILQ_ENTRY(process) sibling;
	TAILQ_ENTRY(process) all_link;	/* all_processes, by creation */
	TAILQ_ENTRY(process) hash_link;
	struct task_list threads;
	unsigned nthreads;		/* living ones */
	struct task *leader;		/* NULL once dead and others live */
	struct mm *mm;			/* borrowed from its threads; NULL in a zombie, as are
					 * files and fs */
	struct files *files;
	struct fs_context *fs;
	struct sighand *sighand;	/* stays until the process is reaped */
	struct cred *cred;
	struct sigpending pending;	/* shared */
	struct tty *ctty;		/* reference held */
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
	uint64_t cutime_ns, cstime_ns, cminflt, cmajflt, cmaxrss;	/* of reaped children */
	uint64_t maxrss;		/* pages; of programs before the present one, or dead */
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
	uint64_t cnvcsw, cnivcsw;	/* of reaped children */
	bool reaped;			/* waited for: its pid may be somebody else's by now */
	int creator_tid;		/* the parent's thread that made it: pdeath, __WNOTHREAD */
	struct task *exec_task;		/* the thread that execs: the others must go */
	bool thp_disable, io_flusher;
	uint32_t membarrier;		/* commands registered */
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
/* Root and working directory of the boot task; takes a reference. For mounts before PID 1. */
int init_set_root(struct dentry *root);
/* PID 1: the boot task loads `file` as its program; never returns on success. */
int init_start(struct file *file);
/* Counts of forks, execs, exits and switches, for the report. */
void task_report(struct strbuf *sb);

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
/* At entry (false: what ran until now was the program) and exit (true: it was the kernel).
 * Cheap, and may be left out: then the time goes to the wrong side. */
void sched_account(bool to_user);
/* Arms the hardware timer if the earliest timer or the slice's end is before what it is armed
 * for: ktimer_set() calls it. Arming is dear on some hosts: it is never armed later. */
void sched_arm_timer(void);
unsigned sched_nr_runnable(void);
uint64_t sched_idle_ns(void);
uint64_t sched_switches(void);
void sched_loadavg(uint64_t ret_fixed[3]);	/* 16.16 */

/* CPU time so far, the calling task's running stint included. */
void task_times(const struct task *t, uint64_t *ret_utime, uint64_t *ret_stime);
void process_times(const struct process *p, uint64_t *ret_utime, uint64_t *ret_stime);

/* ---- futex.c ---- */
int futex_wake(uint32_t __user *uaddr, int n);	/* shared key; number woken or -errno */

/* ---- pidfd.c ---- */
/* The process of a pidfd (also one from /proc/PID, were it made), with a reference, or
 * ERR_PTR(-EBADF). */
struct process *pidfd_process(int fd, bool *ret_nonblock);

/* ---- sysinfo.c ---- */
extern char sys_hostname[65], sys_domainname[65];
#define SYS_RELEASE "6.1.0-casemate"
#define SYS_VERSION "#1 SMP Casemate"

/* ---- entry.c ---- */
void irq_process(void);				/* take noted interrupts: timers, devices */
long syscall_dispatch(struct trapframe *tf);

#endif
