/* SPDX-License-Identifier: Apache-2.0 */
/* Between signal.c, sigsys.c, timers.c and the files that show signals through descriptors. */
#ifndef CORE_SIGNAL_INTERNAL_H
#define CORE_SIGNAL_INTERNAL_H

#include "guest-kernel/core/task.h"

#define KSA_NOCLDSTOP	0x1u
#define KSA_NOCLDWAIT	0x2u
#define KSA_SIGINFO	0x4u
#define KSA_RESTORER	0x04000000u
#define KSA_ONSTACK	0x08000000u
#define KSA_RESTART	0x10000000u
#define KSA_NODEFER	0x40000000u
#define KSA_RESETHAND	0x80000000u
/* What is kept of sa_flags; the rest reads back as zero, as on Linux. */
#define KSA_EXPOSE_TAGBITS 0x800u
#define KSA_KNOWN	(KSA_NOCLDSTOP | KSA_NOCLDWAIT | KSA_SIGINFO | KSA_EXPOSE_TAGBITS | \
			 KSA_RESTORER | KSA_ONSTACK | KSA_RESTART | KSA_NODEFER | KSA_RESETHAND)

#define KSIG_DFL	0UL
#define KSIG_IGN	1UL

#define KSS_ONSTACK	1u
#define KSS_DISABLE	2u
#define KSS_AUTODISARM	(1u << 31)
#define KMINSIGSTKSZ	2048u

#define SIG_KERNEL_ONLY	(SIG_BIT(KSIGKILL) | SIG_BIT(KSIGSTOP))
#define SIG_STOP_MASK	(SIG_BIT(KSIGSTOP) | SIG_BIT(KSIGTSTP) | SIG_BIT(KSIGTTIN) | \
			 SIG_BIT(KSIGTTOU))
#define SIG_IGNORE_MASK	(SIG_BIT(KSIGCONT) | SIG_BIT(KSIGCHLD) | SIG_BIT(KSIGWINCH) | \
			 SIG_BIT(KSIGURG))

#define SIG_SYNC_MASK	(SIG_BIT(KSIGSEGV) | SIG_BIT(KSIGBUS) | SIG_BIT(KSIGILL) | \
			 SIG_BIT(KSIGTRAP) | SIG_BIT(KSIGFPE) | SIG_BIT(KSIGSYS))

/* sigqueue.c. An entry charged to p, or NULL: over its limit or out of memory. */
struct sigqueue *sigqueue_new(struct process *p, int sig, const struct ksiginfo *info);
void sigqueue_add(struct sigpending *pending, struct sigqueue *q);
void sigqueue_unlink(struct sigpending *p, struct sigqueue *q);

/* Queues a posix timer's own entry on the process (t NULL) or thread. 0 when queued, 1 when
 * the signal is ignored now. q must not be queued. */
int signal_send_timer(struct process *p, struct task *t, struct sigqueue *q);
/* Takes q off the queue it is on, if any. */
void signal_cancel_timer(struct process *p, struct task *t, struct sigqueue *q);
/* Forgets pending signals of the mask in the process and all its threads. */
void signal_discard(struct process *p, uint64_t mask);
/* timers.c: the timer's signal is being taken off a queue; fills in overrun, arms the next. */
void posix_timer_dequeued(struct sigqueue *q, struct ksiginfo *info);
void itimer_real_dequeued(struct process *p);

long sys_restart_syscall(void);		/* sigsys.c */

#endif
