/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals. Pending ones are queued on the task or its process; return_to_user_work() calls
 * signal_deliver() when current->sig_check is set, which takes the next deliverable signal and
 * runs its default action or builds the handler's frame (arch/sigframe.c).
 *
 * A system call that was interrupted returns -ERESTART*; signal_deliver() turns that into
 * -EINTR or moves the program back onto its syscall instruction.
 */
#ifndef CORE_SIGNAL_H
#define CORE_SIGNAL_H

#include <sys/queue.h>
#include "guest-kernel/arch/trapframe.h"
#include "guest-kernel/lib/kernel.h"

struct task;
struct process;
struct file;

#define KSIGHUP 1
#define KSIGINT 2
#define KSIGQUIT 3
#define KSIGILL 4
#define KSIGTRAP 5
#define KSIGABRT 6
#define KSIGBUS 7
#define KSIGFPE 8
#define KSIGKILL 9
#define KSIGUSR1 10
#define KSIGSEGV 11
#define KSIGUSR2 12
#define KSIGPIPE 13
#define KSIGALRM 14
#define KSIGTERM 15
#define KSIGSTKFLT 16
#define KSIGCHLD 17
#define KSIGCONT 18
#define KSIGSTOP 19
#define KSIGTSTP 20
#define KSIGTTIN 21
#define KSIGTTOU 22
#define KSIGURG 23
#define KSIGXCPU 24
#define KSIGXFSZ 25
#define KSIGVTALRM 26
#define KSIGPROF 27
#define KSIGWINCH 28
#define KSIGIO 29
#define KSIGPWR 30
#define KSIGSYS 31
#define KSIGRTMIN 32
#define KSIGMAX 64
#define SIG_BIT(s) (1ULL << ((s) - 1))

/* si_code values used here (asm-generic/siginfo.h). */
#define KSI_USER	0
#define KSI_KERNEL	0x80
#define KSI_QUEUE	(-1)
#define KSI_TIMER	(-2)
#define KSI_TKILL	(-6)
#define KILL_CODE_SEGV_MAPERR 1
#define KILL_CODE_SEGV_ACCERR 2
#define KILL_CODE_BUS_ADRALN 1
#define KILL_CODE_BUS_ADRERR 2
#define KCLD_EXITED	1
#define KCLD_KILLED	2
#define KCLD_DUMPED	3
#define KCLD_STOPPED	5
#define KCLD_CONTINUED	6

/* In-kernel siginfo; signal.c writes it out in Linux's 128-byte layout by code and signal. */
struct ksiginfo {
	int signo, error, code;
	int pid;
	uint32_t uid;
	int status;			/* SIGCHLD */
	uint64_t utime, stime;		/* clock ticks, SIGCHLD */
	uint64_t value;			/* sigval */
	int timer_id, overrun;
	uint64_t addr;			/* faults */
	int trapno;
	int fd;				/* SIGIO */
	long band;
	int syscall;			/* SIGSYS */
};

struct sigqueue {
	TAILQ_ENTRY(sigqueue) link;
	struct ksiginfo info;
	void *timer;			/* posix timer owning it, or NULL: then kfree it */
	bool queued;
	unsigned *charge;		/* the process's count of queued entries */
};
struct sigpending {
	uint64_t set;
	TAILQ_HEAD(sigqueue_list, sigqueue) queue;
};

struct ksigaction {			/* in-kernel struct sigaction, x86-64 order */
	uint64_t handler;		/* 0 SIG_DFL, 1 SIG_IGN */
	uint64_t flags;
	uint64_t restorer;
	uint64_t mask;
};
struct sighand {
	uint32_t refs;
	struct ksigaction action[64];
};

void sigpending_init(struct sigpending *p);
void sigpending_flush(struct sigpending *p);
struct sighand *sighand_new(void);
struct sighand *sighand_copy(struct sighand *s);
void sighand_get(struct sighand *s);
void sighand_put(struct sighand *s);
void sighand_reset_on_exec(struct sighand *s);	/* handlers to default, ignored stay */

/* Send. info NULL: SI_KERNEL. 0, or -EAGAIN when a real-time queue is full. Permission is the
 * caller's business (kill_allowed). */
int signal_send_task(struct task *t, int sig, const struct ksiginfo *info);
int signal_send_process(struct process *p, int sig, const struct ksiginfo *info);
int signal_send_pgrp(int pgid, int sig, const struct ksiginfo *info);	/* -ESRCH if empty */
/* SIGKILL to a process that init made and to all that come from it, whatever they did since. */
int signal_kill_job(int job);	/* -ESRCH if there are none */
/* A fault of current: cannot be ignored or blocked. */
void signal_force(int sig, int code, uint64_t addr, int trapno);
bool signal_pending(const struct task *t);	/* deliverable to t now (also: t must die) */
bool signal_fatal_pending(const struct task *t);
void signal_recalc(struct task *t);		/* sets t->sig_check after a mask change */
bool signal_is_ignored(struct process *p, int sig);
bool signal_is_blocked(const struct task *t, int sig);
int kill_allowed(struct process *target, int sig);	/* 0 or -EPERM */
/* Ends a process as a fatal signal does: group_exit with this wait status, all threads woken
 * (stopped ones too). The threads end when they are next on their way to the program. */
void signal_zap_process(struct process *p, int status);
/* Ends one thread only (exec in a sibling): it runs task_exit(0) on its way out. */
void signal_zap_task(struct task *t);
/* task_exit() calls this before t leaves proc->threads: hands shared signals that were meant
 * for t to its siblings, completes a group stop that waited for t, drops t's own queue. */
void signal_task_exiting(struct task *t);
/* No member has a parent outside the group but in its session; `ignoring` (may be NULL) is
 * about to exit and does not count. */
bool signal_pgrp_orphaned(int pgid, int sid, const struct process *ignoring);
/* Takes the next pending signal of current that is in ~mask (signalfd, sigtimedwait); 0 if
 * there is none. */
int signal_dequeue(uint64_t mask, struct ksiginfo *ret);
/* Woken with KPOLLIN whenever any signal becomes pending: signalfd. */
extern struct waitq signalfd_waitq;

/* From return_to_user_work, while sig_check: may not return (fatal signal). */
void signal_deliver(struct trapframe *tf);
/* Sets/restores current's mask. SIGKILL and SIGSTOP are removed. */
void signal_set_mask(uint64_t mask);
/* For ppoll, pselect, epoll_pwait: use mask until the call is over; the old one comes back
 * after a handler ran or at once. */
int signal_use_temp_mask(const uint64_t __user *umask, size_t size);
void signal_restore_temp_mask(bool interrupted);

/* arch/sigframe.c: builds the rt_sigframe and points tf at the handler; -EFAULT. */
int sigframe_build(struct trapframe *tf, const struct ksigaction *sa, const struct ksiginfo *si,
		   uint64_t old_mask);
/* Shared with sigsys.c: sets current's alternative stack as sigaltstack(2) does. */
int signal_set_altstack(uint64_t ss_sp, uint32_t ss_flags, uint64_t ss_size, uint64_t user_sp);
bool signal_on_altstack(const struct task *t, uint64_t user_sp);
long sigframe_restore(struct trapframe *tf);	/* rt_sigreturn; returns rax */
size_t sigframe_min_size(void);			/* AT_MINSIGSTKSZ */
void siginfo_to_user(const struct ksiginfo *si, uint8_t out[128]);

#endif
