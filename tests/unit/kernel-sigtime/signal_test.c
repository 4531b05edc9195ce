/* SPDX-License-Identifier: Apache-2.0 */
/* Signals: sending rules, queues, delivery, restart, stops, frames. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>

#include "world.h"

#include "abi/layout.h"

long sys_rt_sigaction(int, const struct ksigaction *, struct ksigaction *, size_t);
long sys_rt_sigprocmask(int, const uint64_t *, uint64_t *, size_t);
long sys_rt_sigpending(uint64_t *, size_t);
long sys_rt_sigtimedwait(const uint64_t *, void *, const struct ktimespec *, size_t);
long sys_rt_sigqueueinfo(int, int, const void *);
long sys_rt_sigsuspend(const uint64_t *, size_t);
long sys_sigaltstack(const void *, void *);
long sys_kill(int, int);
long sys_tgkill(int, int, int);
long sys_tkill(int, int);
long sys_pause(void);

static void handle(int sig, uint64_t flags, uint64_t mask)
{
	struct ksigaction sa = {
		.handler = 0x10000,
		.flags = flags | KSA_RESTORER,
		.restorer = 0x20000,
		.mask = mask,
	};

	CU_ASSERT_EQUAL(sys_rt_sigaction(sig, &sa, NULL, 8), 0);
}

static void ignore(struct process *p, int sig)
{
	p->sighand->action[sig - 1].handler = KSIG_IGN;
}

static void block(uint64_t mask)
{
	CU_ASSERT_EQUAL(sys_rt_sigprocmask(2, &mask, NULL, 8), 0);
}

static void queue_value(struct process *p, int sig, uint64_t value, int expect)
{
	struct ksiginfo info = { .code = KSI_QUEUE, .pid = 7, .value = value };

	CU_ASSERT_EQUAL(signal_send_process(p, sig, &info), expect);
}

static uint8_t *ustack;
#define USTACK_SIZE 65536

/* mov $17, %eax; syscall: and the same after patching. */
static const uint8_t code_syscall[8] = { 0x90, 0xb8, 17, 0, 0, 0, 0x0f, 0x05 };
static const uint8_t code_patched[8] = { 0x90, 0xff, 0x24, 0x25, 0x50, 0, 0x0f, 0x05 };

static struct trapframe frame_in_syscall(long nr, long result)
{
	struct trapframe tf = {
		.orig_rax = (uint64_t)nr,
		.rax = (uint64_t)result,
		.rip = (uint64_t)(uintptr_t)(code_syscall + 8),
		.rsp = (uint64_t)(uintptr_t)ustack + USTACK_SIZE - 4096,
		.rflags = 0x602,
		.cs = CM_SEL_UCS,
		.ss = CM_SEL_USS,
	};

	return tf;
}

/* What happens to a signal: blocked or not, by action and default. */
static void test_send_rules(void)
{
	static const struct {
		int sig;
		bool blocked;
		int action;		/* 0 default, 1 ignore, 2 handler */
		bool pending, dies;
	} rules[] = {
		{ KSIGTERM, false, 0, false, true },
		{ KSIGTERM, true, 0, true, false },
		{ KSIGTERM, false, 1, false, false },
		{ KSIGTERM, true, 1, true, false },	/* blocked: kept */
		{ KSIGTERM, false, 2, true, false },
		{ KSIGCHLD, false, 0, false, false },
		{ KSIGCHLD, true, 0, true, false },
		{ KSIGCHLD, false, 2, true, false },
		{ KSIGWINCH, false, 0, false, false },
		{ KSIGURG, false, 0, false, false },
		{ KSIGCONT, false, 0, false, false },
		{ KSIGQUIT, false, 0, true, false },	/* dumps in the thread itself */
		{ KSIGKILL, false, 0, false, true },
		{ KSIGSTOP, false, 0, true, false },
		{ KSIGTSTP, false, 0, true, false },
		{ KSIGRTMIN + 3, false, 0, false, true },
		{ KSIGRTMIN + 3, false, 2, true, false },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rules); i++) {
		struct process *p;

		world_reset();
		p = current->proc;
		if (rules[i].blocked)
			block(SIG_BIT(rules[i].sig));
		if (rules[i].action == 1)
			ignore(p, rules[i].sig);
		else if (rules[i].action == 2)
			handle(rules[i].sig, 0, 0);
		CU_ASSERT_EQUAL(signal_send_process(p, rules[i].sig, NULL), 0);
		CU_ASSERT_EQUAL(p->group_exit, rules[i].dies);
		if (rules[i].dies)
			CU_ASSERT_EQUAL(p->exit_code, rules[i].sig)
		else
			CU_ASSERT_EQUAL((p->pending.set & SIG_BIT(rules[i].sig)) != 0,
					rules[i].pending);
		CU_ASSERT_EQUAL(signal_fatal_pending(current), rules[i].dies);
		CU_ASSERT_EQUAL(signal_pending(current),
				rules[i].dies || (rules[i].pending && !rules[i].blocked));
	}
	world_reset();
	CU_ASSERT_EQUAL(signal_send_process(current->proc, 65, NULL), -EINVAL);
	CU_ASSERT_EQUAL(signal_send_process(current->proc, 0, NULL), 0);
	CU_ASSERT_FALSE(signal_pending(current));
}

static void test_queues(void)
{
	struct ksiginfo info;
	struct process *p;

	world_reset();
	p = current->proc;
	block(~0ULL);
	/* Standard: one. Real time: each, in order, lower numbers first. */
	queue_value(p, KSIGUSR1, 1, 0);
	queue_value(p, KSIGUSR1, 2, 0);
	queue_value(p, 40, 3, 0);
	queue_value(p, 40, 4, 0);
	queue_value(p, 35, 5, 0);
	CU_ASSERT_EQUAL(p->sigqueued, 4);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), KSIGUSR1);
	CU_ASSERT_EQUAL(info.value, 1);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), 35);
	CU_ASSERT_EQUAL(info.value, 5);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), 40);
	CU_ASSERT_EQUAL(info.value, 3);
	CU_ASSERT_TRUE((p->pending.set & SIG_BIT(40)) != 0);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), 40);
	CU_ASSERT_EQUAL(info.value, 4);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), 0);
	CU_ASSERT_EQUAL(p->sigqueued, 0);

	/* Full queue: EAGAIN for the real-time one, the standard one arrives without value. */
	p->rlim[11].cur = 1;	/* RLIMIT_SIGPENDING */
	queue_value(p, 40, 1, 0);
	queue_value(p, 40, 2, -EAGAIN);
	queue_value(p, KSIGUSR2, 9, 0);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), KSIGUSR2);
	CU_ASSERT_EQUAL(info.code, KSI_USER);
	CU_ASSERT_EQUAL(info.value, 0);

	/* Out of memory is the same. */
	p->rlim[11].cur = KRLIM_INFINITY;
	world_fail_alloc = 1;
	queue_value(p, 41, 1, -EAGAIN);
	world_fail_alloc = 1;
	CU_ASSERT_EQUAL(signal_send_process(p, KSIGHUP, NULL), 0);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), KSIGHUP);

	/* A fault comes before lower numbers. */
	signal_send_process(p, KSIGHUP, NULL);
	signal_send_task(current, KSIGHUP, NULL);
	signal_send_task(current, KSIGSEGV, NULL);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), KSIGSEGV);
	sigpending_flush(&p->pending);
	sigpending_flush(&current->pending);
	CU_ASSERT_EQUAL(p->sigqueued, 0);
}

static void test_sigaction(void)
{
	struct ksigaction sa = { .handler = 5, .flags = ~0ULL, .mask = ~0ULL }, old;
	uint64_t set;

	world_reset();
	CU_ASSERT_EQUAL(sys_rt_sigaction(KSIGUSR1, &sa, NULL, 4), -EINVAL);
	CU_ASSERT_EQUAL(sys_rt_sigaction(0, &sa, NULL, 8), -EINVAL);
	CU_ASSERT_EQUAL(sys_rt_sigaction(65, &sa, NULL, 8), -EINVAL);
	CU_ASSERT_EQUAL(sys_rt_sigaction(KSIGKILL, &sa, NULL, 8), -EINVAL);
	CU_ASSERT_EQUAL(sys_rt_sigaction(KSIGSTOP, NULL, &old, 8), 0);
	CU_ASSERT_EQUAL(sys_rt_sigaction(KSIGUSR1, (void *)8, NULL, 8), -EFAULT);
	CU_ASSERT_EQUAL(sys_rt_sigaction(KSIGUSR1, &sa, NULL, 8), 0);
	CU_ASSERT_EQUAL(sys_rt_sigaction(KSIGUSR1, NULL, &old, 8), 0);
	CU_ASSERT_EQUAL(old.mask, ~SIG_KERNEL_ONLY);
	CU_ASSERT_EQUAL(old.flags, KSA_KNOWN);

	/* Ignoring drops what is pending, also when it is blocked. */
	block(SIG_BIT(KSIGUSR1) | SIG_BIT(KSIGCHLD));
	signal_send_process(current->proc, KSIGUSR1, NULL);
	signal_send_task(current, KSIGUSR1, NULL);
	sys_rt_sigpending(&set, 8);
	CU_ASSERT_EQUAL(set, SIG_BIT(KSIGUSR1));
	sa.handler = KSIG_IGN;
	sys_rt_sigaction(KSIGUSR1, &sa, NULL, 8);
	sys_rt_sigpending(&set, 8);
	CU_ASSERT_EQUAL(set, 0);
	CU_ASSERT_EQUAL(sys_rt_sigpending(&set, 16), -EINVAL);

	CU_ASSERT_EQUAL(sys_rt_sigprocmask(7, &set, NULL, 8), -EINVAL);
	CU_ASSERT_EQUAL(sys_rt_sigprocmask(7, NULL, &set, 8), 0);
	block(~0ULL);
	CU_ASSERT_EQUAL(current->sig_mask, ~SIG_KERNEL_ONLY);
	sighand_reset_on_exec(current->proc->sighand);
	CU_ASSERT_EQUAL(current->proc->sighand->action[KSIGUSR1 - 1].handler, KSIG_IGN);
	CU_ASSERT_EQUAL(current->proc->sighand->action[KSIGUSR1 - 1].flags, 0);
}

static void test_thread_choice(void)
{
	struct task *leader, *second;
	struct process *p;

	world_reset();
	leader = current;
	p = leader->proc;
	second = world_thread(p, 101);
	handle(KSIGUSR1, 0, 0);
	signal_send_process(p, KSIGUSR1, NULL);
	CU_ASSERT_TRUE(leader->sig_check);
	CU_ASSERT_FALSE(second->sig_check);

	/* The leader blocks it now: the sibling is told. */
	second->state = TASK_SLEEPING;
	block(SIG_BIT(KSIGUSR1));
	CU_ASSERT_FALSE(leader->sig_check);
	CU_ASSERT_TRUE(second->sig_check);
	CU_ASSERT_EQUAL(second->state, TASK_RUNNABLE);

	/* Blocked in all: nobody is woken, it stays. */
	second->sig_check = false;
	second->sig_mask = SIG_BIT(KSIGUSR2);
	handle(KSIGUSR2, 0, 0);
	block(SIG_BIT(KSIGUSR1) | SIG_BIT(KSIGUSR2));
	signal_send_process(p, KSIGUSR2, NULL);
	CU_ASSERT_FALSE(second->sig_check);
	CU_ASSERT_TRUE((p->pending.set & SIG_BIT(KSIGUSR2)) != 0);

	/* An exiting thread hands over. */
	second->sig_mask = 0;
	block(0);
	second->sig_check = false;
	signal_task_exiting(leader);
	CU_ASSERT_TRUE(second->sig_check);

	/* tgkill is for one thread. */
	second->sig_check = false;
	block(0);
	handle(40, 0, 0);
	CU_ASSERT_EQUAL(sys_tgkill(100, 101, 40), 0);
	CU_ASSERT_TRUE((second->pending.set & SIG_BIT(40)) != 0);
	CU_ASSERT_EQUAL(sys_tgkill(1, 101, 40), -ESRCH);
	CU_ASSERT_EQUAL(sys_tgkill(100, 555, 40), -ESRCH);
	CU_ASSERT_EQUAL(sys_tgkill(0, 101, 40), -EINVAL);
	CU_ASSERT_EQUAL(sys_tkill(-1, 40), -EINVAL);
	CU_ASSERT_EQUAL(sys_tkill(101, 65), -EINVAL);
	CU_ASSERT_EQUAL(sys_tkill(101, 0), 0);

	/* Death of the process reaches a thread in an uninterruptible sleep. */
	second->state = TASK_UNINTERRUPTIBLE;
	signal_send_process(p, KSIGKILL, NULL);
	CU_ASSERT_EQUAL(second->state, TASK_RUNNABLE);
	CU_ASSERT_TRUE(signal_fatal_pending(second));
}

static void test_kill(void)
{
	struct process *other, *init, *self;
	uint8_t raw[128] = { 0 };
	int code;

	world_reset();
	self = current->proc;
	init = process_find(1);
	other = world_process(200, init);
	CU_ASSERT_EQUAL(sys_kill(4711, 0), -ESRCH);
	CU_ASSERT_EQUAL(sys_kill(200, 65), -EINVAL);
	CU_ASSERT_EQUAL(sys_kill(200, 0), 0);
	CU_ASSERT_EQUAL(sys_kill(-4711, 0), -ESRCH);
	CU_ASSERT_EQUAL(sys_kill(-200, KSIGWINCH), 0);
	CU_ASSERT_EQUAL(sys_kill(0, KSIGWINCH), 0);

	/* Init gets nothing that it has no handler for. */
	CU_ASSERT_EQUAL(sys_kill(1, KSIGKILL), 0);
	CU_ASSERT_EQUAL(sys_kill(1, KSIGTERM), 0);
	CU_ASSERT_EQUAL(sys_kill(1, KSIGSTOP), 0);
	CU_ASSERT_FALSE(init->group_exit);
	CU_ASSERT_EQUAL(init->pending.set, 0);
	init->sighand->action[KSIGTERM - 1].handler = 0x1000;
	sys_kill(1, KSIGTERM);
	CU_ASSERT_EQUAL(init->pending.set, SIG_BIT(KSIGTERM));

	/* Permission: ids, SIGCONT inside the session, CAP_KILL. */
	self->cred->uid = self->cred->euid = 1000;
	CU_ASSERT_EQUAL(sys_kill(200, KSIGUSR1), -EPERM);
	CU_ASSERT_EQUAL(sys_kill(200, KSIGCONT), -EPERM);
	other->sid = self->sid;
	CU_ASSERT_EQUAL(sys_kill(200, KSIGCONT), 0);
	other->cred->suid = 1000;
	CU_ASSERT_EQUAL(sys_kill(200, 0), 0);
	other->cred->suid = 0;
	world_capable = true;
	CU_ASSERT_EQUAL(sys_kill(200, 0), 0);
	world_capable = false;
	CU_ASSERT_EQUAL(sys_kill(-1, 0), 0);	/* Linux: EPERM alone is no failure here */

	/* Forging a kernel's or kill's siginfo is for oneself only. */
	world_capable = true;
	CU_ASSERT_EQUAL(sys_rt_sigqueueinfo(200, KSIGUSR1, raw), -EPERM);
	code = KSI_QUEUE;
	memcpy(raw + 8, &code, 4);
	block(SIG_BIT(KSIGUSR1));
	CU_ASSERT_EQUAL(sys_rt_sigqueueinfo(100, KSIGUSR1, raw), 0);
	CU_ASSERT_EQUAL(sys_rt_sigqueueinfo(4711, KSIGUSR1, raw), -ESRCH);

	CU_ASSERT_EQUAL(sys_kill(-1, KSIGKILL), 0);
	CU_ASSERT_TRUE(other->group_exit);
	CU_ASSERT_FALSE(self->group_exit);
}

static void test_fatal_delivery(void)
{
	struct trapframe tf;
	struct task *init;

	world_reset();
	tf = frame_in_syscall(0, 0);
	signal_send_process(current->proc, KSIGQUIT, NULL);
	if (setjmp(world_exit) == 0) {
		signal_deliver(&tf);
		CU_FAIL("survived SIGQUIT");
	}
	CU_ASSERT_EQUAL(world_exit_status, KSIGQUIT);

	/* A fault cannot be blocked or ignored, and init is not spared. */
	world_reset();
	ignore(current->proc, KSIGSEGV);
	block(SIG_BIT(KSIGSEGV));
	signal_force(KSIGSEGV, 1, 0xdead, 14);
	CU_ASSERT_EQUAL(current->proc->exit_code, KSIGSEGV);
	CU_ASSERT_TRUE(current->proc->group_exit);
	CU_ASSERT_EQUAL(current->trap_cr2, 0xdead);
	init = process_find(1)->leader;
	current = init;
	signal_force(KSIGILL, 1, 0, 6);
	CU_ASSERT_TRUE(init->proc->group_exit);

	/* One thread of several leaves alone. */
	world_reset();
	signal_zap_task(current);
	if (setjmp(world_exit) == 0) {
		signal_deliver(&tf);
		CU_FAIL("survived exec of a sibling");
	}
	CU_ASSERT_EQUAL(world_exit_status, 0);
}

static long goes_on(struct task *t)
{
	return 4242;
}

/* Linux's table of what an interrupted call becomes. */
static void test_restart(void)
{
	static const struct {
		long result;
		int handler;	/* 0 none ran, 1 without, 2 with SA_RESTART */
		long expect;	/* rax; moved back when it is a number */
		bool back;
	} table[] = {
		{ -ERESTARTSYS, 0, 17, true },
		{ -ERESTARTSYS, 1, -EINTR, false },
		{ -ERESTARTSYS, 2, 17, true },
		{ -ERESTARTNOINTR, 0, 17, true },
		{ -ERESTARTNOINTR, 1, 17, true },
		{ -ERESTARTNOHAND, 0, 17, true },
		{ -ERESTARTNOHAND, 2, -EINTR, false },
		{ -ERESTART_RESTARTBLOCK, 0, 4242, false },	/* goes on in the kernel */
		{ -ERESTART_RESTARTBLOCK, 2, -EINTR, false },
		{ -EIO, 1, -EIO, false },
		{ 5, 0, 5, false },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		struct trapframe tf;
		uint64_t rax, rip;

		world_reset();
		tf = frame_in_syscall(17, table[i].result);
		current->sig_check = true;
		current->restart_fn = goes_on;
		if (table[i].handler != 0) {
			handle(KSIGUSR1, table[i].handler == 2 ? KSA_RESTART : 0, 0);
			signal_send_process(current->proc, KSIGUSR1, NULL);
		}
		signal_deliver(&tf);
		if (table[i].handler != 0) {	/* what sigreturn will bring back */
			memcpy(&rax, (uint8_t *)(uintptr_t)tf.rsp + 8 + 40 + 13 * 8, 8);
			memcpy(&rip, (uint8_t *)(uintptr_t)tf.rsp + 8 + 40 + 16 * 8, 8);
		} else {
			rax = tf.rax;
			rip = tf.rip;
		}
		CU_ASSERT_EQUAL((long)rax, table[i].expect);
		CU_ASSERT_EQUAL(rip, (uintptr_t)code_syscall + (table[i].back ? 6 : 8));
		CU_ASSERT_FALSE(signal_pending(current));
	}

	/* Not in a call: rax is the program's. */
	world_reset();
	struct trapframe tf = frame_in_syscall(-1, -ERESTARTSYS);

	current->sig_check = true;
	signal_deliver(&tf);
	CU_ASSERT_EQUAL((long)tf.rax, -ERESTARTSYS);
	CU_ASSERT_EQUAL(tf.rip, (uintptr_t)(code_syscall + 8));

	/* A site that was patched meanwhile: its last bytes are SYSCALL (mm/patch.h). */
	tf = frame_in_syscall(17, -ERESTARTSYS);
	tf.rip = (uintptr_t)(code_patched + 8);
	current->sig_check = true;
	signal_deliver(&tf);
	CU_ASSERT_EQUAL(tf.rip, (uintptr_t)(code_patched + 6));
	CU_ASSERT_EQUAL(tf.rax, 17);
}

static uint64_t u64_at(uint64_t base, unsigned off)
{
	uint64_t v;

	memcpy(&v, (uint8_t *)(uintptr_t)base + off, 8);
	return v;
}

static uint32_t u32_at(uint64_t base, unsigned off)
{
	uint32_t v;

	memcpy(&v, (uint8_t *)(uintptr_t)base + off, 4);
	return v;
}

/* Offsets from Linux's struct rt_sigframe, written out by hand. */
static void test_frame_layout(void)
{
	struct trapframe tf, before;
	struct ksiginfo info = { .code = KSI_QUEUE, .pid = 77, .uid = 88, .value = 0x1234 };
	uint64_t sp, fp;

	world_reset();
	handle(KSIGUSR1, KSA_SIGINFO, SIG_BIT(KSIGHUP));
	tf = frame_in_syscall(-1, 3);
	tf.r8 = 8;
	tf.r15 = 15;
	tf.rdi = 101;
	tf.rsi = 102;
	tf.rbp = 103;
	tf.rbx = 104;
	tf.rdx = 105;
	tf.rcx = 106;
	before = tf;
	current->trap_nr = 14;
	current->trap_err = 6;
	current->trap_cr2 = 0xabc;
	block(SIG_BIT(KSIGUSR2));
	signal_send_process(current->proc, KSIGUSR1, &info);
	signal_deliver(&tf);
	sp = tf.rsp;

	CU_ASSERT_EQUAL((sp + 8) % 16, 0);
	CU_ASSERT_TRUE(sp + 440 <= before.rsp - 128);
	CU_ASSERT_EQUAL(tf.rip, 0x10000);
	CU_ASSERT_EQUAL(tf.rdi, KSIGUSR1);
	CU_ASSERT_EQUAL(tf.rsi, sp + 8 + 304);
	CU_ASSERT_EQUAL(tf.rdx, sp + 8);
	CU_ASSERT_EQUAL(tf.rax, 0);
	CU_ASSERT_EQUAL(tf.rflags & 0x400, 0);
	CU_ASSERT_EQUAL(current->sig_mask,
			SIG_BIT(KSIGUSR1) | SIG_BIT(KSIGUSR2) | SIG_BIT(KSIGHUP));

	CU_ASSERT_EQUAL(u64_at(sp, 0), 0x20000);		/* pretcode */
	CU_ASSERT_EQUAL(u64_at(sp, 8), 7);			/* uc_flags */
	CU_ASSERT_EQUAL(u64_at(sp, 16), 0);			/* uc_link */
	CU_ASSERT_EQUAL(u32_at(sp, 8 + 24), KSS_DISABLE);	/* uc_stack.ss_flags */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40), 8);			/* r8 */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 56), 15);		/* r15 */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 64), 101);		/* rdi */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 72), 102);		/* rsi */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 80), 103);		/* rbp */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 88), 104);		/* rbx */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 96), 105);		/* rdx */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 104), 3);		/* rax */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 112), 106);		/* rcx */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 120), before.rsp);
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 128), before.rip);
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 136), before.rflags);
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 144), 0x33ULL | 0x2bULL << 48);	/* cs gs fs ss */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 152), 6);		/* err */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 160), 14);		/* trapno */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 168), SIG_BIT(KSIGUSR2));	/* oldmask */
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 40 + 176), 0xabc);	/* cr2 */
	fp = u64_at(sp, 8 + 40 + 184);
	CU_ASSERT_EQUAL(u64_at(sp, 8 + 296), SIG_BIT(KSIGUSR2));	/* uc_sigmask */
	CU_ASSERT_EQUAL(u32_at(sp, 312), KSIGUSR1);
	CU_ASSERT_EQUAL(u32_at(sp, 312 + 8), (uint32_t)KSI_QUEUE);
	CU_ASSERT_EQUAL(u32_at(sp, 312 + 16), 77);
	CU_ASSERT_EQUAL(u32_at(sp, 312 + 20), 88);
	CU_ASSERT_EQUAL(u64_at(sp, 312 + 24), 0x1234);

	CU_ASSERT_EQUAL(fp % 64, 0);
	CU_ASSERT_TRUE(fp >= sp + 440 && fp + 836 <= before.rsp - 128);
	CU_ASSERT_EQUAL(u32_at(fp, 464), 0x46505853);		/* FP_XSTATE_MAGIC1 */
	CU_ASSERT_EQUAL(u32_at(fp, 468), 836);			/* extended_size */
	CU_ASSERT_EQUAL(u64_at(fp, 472), 7);			/* xfeatures */
	CU_ASSERT_EQUAL(u32_at(fp, 480), 832);			/* xstate_size */
	CU_ASSERT_EQUAL(u32_at(fp, 832), 0x46505845);		/* FP_XSTATE_MAGIC2 */
	CU_ASSERT_TRUE(before.rsp - 128 - sp <= sigframe_min_size());

	/* And back. */
	tf.rsp += 8;
	memset(&tf, 0x55, offsetof(struct trapframe, rip));
	CU_ASSERT_EQUAL(sigframe_restore(&tf), 3);
	CU_ASSERT_EQUAL(current->sig_mask, SIG_BIT(KSIGUSR2));
	CU_ASSERT_EQUAL(tf.orig_rax, (uint64_t)-1);
	before.orig_rax = tf.orig_rax;
	/* IF and such are not the program's to change: it had what the frame had. */
	CU_ASSERT_EQUAL(tf.rflags & 0x50dd5, before.rflags & 0x50dd5);
	before.rflags = tf.rflags;
	CU_ASSERT_EQUAL(memcmp(&tf, &before, sizeof(tf)), 0);
}

static void deliver_usr1(struct trapframe *tf, uint64_t flags)
{
	handle(KSIGUSR1, flags, 0);
	signal_send_process(current->proc, KSIGUSR1, NULL);
	signal_deliver(tf);
}

/* sigreturn must survive whatever a program writes into the frame. */
static void test_frame_hostile(void)
{
	struct trapframe tf;
	uint64_t fp, v;

	/* rip in the kernel. */
	world_reset();
	tf = frame_in_syscall(-1, 0);
	deliver_usr1(&tf, 0);
	v = CM_KERNEL_VA;
	memcpy((uint8_t *)(uintptr_t)tf.rsp + 8 + 40 + 128, &v, 8);
	tf.rsp += 8;
	sigframe_restore(&tf);
	CU_ASSERT_TRUE(current->proc->group_exit);
	CU_ASSERT_EQUAL(current->proc->exit_code, KSIGSEGV);

	/* Selectors and flags are not taken from the frame. */
	world_reset();
	tf = frame_in_syscall(-1, 0);
	deliver_usr1(&tf, 0);
	v = ~0ULL;
	memcpy((uint8_t *)(uintptr_t)tf.rsp + 8 + 40 + 136, &v, 8);
	memcpy((uint8_t *)(uintptr_t)tf.rsp + 8 + 40 + 144, &v, 8);
	tf.rsp += 8;
	tf.rflags = 0x202;
	sigframe_restore(&tf);
	CU_ASSERT_FALSE(current->proc->group_exit);
	CU_ASSERT_EQUAL(tf.cs, CM_SEL_UCS);
	CU_ASSERT_EQUAL(tf.ss, CM_SEL_USS);
	CU_ASSERT_EQUAL(tf.rflags, 0x202 | 0x50dd5);

	/* Reserved header bits; features that do not exist are masked; bad MXCSR; bad size. */
	static const struct {
		unsigned off;
		uint64_t value;
		bool dies;
	} fpu[] = {
		{ 520, 1, true }, { 570, 1, true }, { 512, ~0ULL, false },
		{ 24, 0xffffffff, true }, { 480, 0xffffffff, false }, { 480, 0, false },
		{ 464, 0, false }, { 832, 0, false }, { 472, ~0ULL, false },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(fpu); i++) {
		world_reset();
		tf = frame_in_syscall(-1, 0);
		deliver_usr1(&tf, 0);
		fp = u64_at(tf.rsp, 8 + 40 + 184);
		memcpy((uint8_t *)(uintptr_t)fp + fpu[i].off, &fpu[i].value,
		       fpu[i].off == 512 || fpu[i].off == 472 ? 8 : 4);
		tf.rsp += 8;
		sigframe_restore(&tf);
		CU_ASSERT_EQUAL(current->proc->group_exit, fpu[i].dies);
	}

	/* A frame that is not there; a stack that is not there. */
	world_reset();
	tf = frame_in_syscall(-1, 0);
	tf.rsp = 64;
	sigframe_restore(&tf);
	CU_ASSERT_TRUE(current->proc->group_exit);
	world_reset();
	tf = frame_in_syscall(-1, 0);
	tf.rsp = 64;
	handle(KSIGUSR1, 0, 0);
	signal_send_process(current->proc, KSIGUSR1, NULL);
	if (setjmp(world_exit) == 0) {
		signal_deliver(&tf);
		signal_deliver(&tf);
		CU_FAIL("lived on without a stack");
	}
	CU_ASSERT_EQUAL(world_exit_status, KSIGSEGV);
}

struct ustack_t {
	uint64_t sp;
	uint32_t flags, pad;
	uint64_t size;
};

static void test_altstack(void)
{
	static uint8_t alt[16384];
	struct ustack_t ss = { (uintptr_t)alt, 0, 0, sizeof(alt) }, old;
	struct trapframe *tf, before;

	world_reset();
	tf = task_frame(current);
	*tf = frame_in_syscall(-1, 0);
	ss.size = 2047;
	CU_ASSERT_EQUAL(sys_sigaltstack(&ss, NULL), -ENOMEM);
	ss.size = sizeof(alt);
	ss.flags = 4;
	CU_ASSERT_EQUAL(sys_sigaltstack(&ss, NULL), -EINVAL);
	ss.flags = 0;
	CU_ASSERT_EQUAL(sys_sigaltstack(&ss, &old), 0);
	CU_ASSERT_EQUAL(old.flags, KSS_DISABLE);
	before = *tf;
	deliver_usr1(tf, KSA_ONSTACK | KSA_NODEFER);
	CU_ASSERT_TRUE(tf->rsp > (uintptr_t)alt && tf->rsp < (uintptr_t)alt + sizeof(alt));
	CU_ASSERT_EQUAL(sys_sigaltstack(NULL, &old), 0);
	CU_ASSERT_EQUAL(old.flags, KSS_ONSTACK);
	CU_ASSERT_EQUAL(sys_sigaltstack(&ss, NULL), -EPERM);
	/* A second one nests below the first. */
	uint64_t first = tf->rsp;

	deliver_usr1(tf, KSA_ONSTACK | KSA_NODEFER);
	CU_ASSERT_TRUE(tf->rsp < first && tf->rsp > (uintptr_t)alt);

	/* Without SA_ONSTACK it stays on the normal one. */
	*tf = before;
	deliver_usr1(tf, 0);
	CU_ASSERT_TRUE(tf->rsp < before.rsp && tf->rsp > before.rsp - 4096);

	/* AUTODISARM: gone inside the handler, back after it. */
	world_reset();
	tf = task_frame(current);
	*tf = frame_in_syscall(-1, 0);
	ss.flags = KSS_AUTODISARM;
	CU_ASSERT_EQUAL(sys_sigaltstack(&ss, NULL), 0);
	deliver_usr1(tf, KSA_ONSTACK);
	CU_ASSERT_EQUAL(sys_sigaltstack(NULL, &old), 0);
	CU_ASSERT_EQUAL(old.flags, KSS_DISABLE);
	tf->rsp += 8;
	sigframe_restore(tf);
	CU_ASSERT_EQUAL(sys_sigaltstack(NULL, &old), 0);
	CU_ASSERT_EQUAL(old.flags, KSS_AUTODISARM);
	CU_ASSERT_EQUAL(old.sp, (uintptr_t)alt);

	/* Too small for the frame: SIGSEGV. */
	world_reset();
	tf = task_frame(current);
	*tf = frame_in_syscall(-1, 0);
	ss.flags = 0;
	ss.size = 2048;
	current->altstack_sp = (uintptr_t)alt;
	current->altstack_size = 600;
	current->altstack_flags = 0;
	handle(KSIGUSR1, KSA_ONSTACK, 0);
	signal_send_process(current->proc, KSIGUSR1, NULL);
	if (setjmp(world_exit) == 0) {
		signal_deliver(tf);
		signal_deliver(tf);
		CU_FAIL("overran the alternative stack");
	}
	CU_ASSERT_EQUAL(world_exit_status, KSIGSEGV);
}

static unsigned stops;
static struct process *stopped_proc;

static void continue_later(void)
{
	if (++stops > 3) {
		CU_FAIL("stopped again and again");
		signal_send_process(stopped_proc, KSIGKILL, NULL);
		return;
	}
	CU_ASSERT_EQUAL(current->state, TASK_STOPPED);
	CU_ASSERT_TRUE(stopped_proc->stopped);
	CU_ASSERT_FALSE(stopped_proc->stop_reported);
	CU_ASSERT_EQUAL(stopped_proc->stop_sig, KSIGTSTP);
	signal_send_process(stopped_proc, KSIGCONT, NULL);
}

static void test_stop(void)
{
	struct process *parent, *p;
	struct trapframe tf;
	struct ksiginfo info;
	struct task *second;

	world_reset();
	parent = current->proc;
	parent->sighand->action[KSIGCHLD - 1].handler = 0x1000;
	p = world_process(200, parent);
	p->pgid = 200;
	p->sid = parent->sid;
	current = p->leader;
	stopped_proc = p;
	stops = 0;
	world_schedule = continue_later;
	tf = frame_in_syscall(7, -ERESTARTNOHAND);
	signal_send_process(p, KSIGTSTP, NULL);
	signal_deliver(&tf);
	CU_ASSERT_EQUAL(stops, 1);
	CU_ASSERT_TRUE(p->continued);
	CU_ASSERT_EQUAL(tf.rax, 7);
	/* The parent heard of it: one SIGCHLD, they collapse; the first says stopped. */
	current = parent->leader;
	block(~0ULL);
	CU_ASSERT_EQUAL(signal_dequeue(0, &info), KSIGCHLD);
	CU_ASSERT_EQUAL(info.code, KCLD_STOPPED);
	CU_ASSERT_EQUAL(info.status, KSIGTSTP);
	CU_ASSERT_EQUAL(info.pid, 200);

	/* SA_NOCLDSTOP: not told. */
	parent->sighand->action[KSIGCHLD - 1].flags = KSA_NOCLDSTOP;
	current = p->leader;
	stops = 0;
	signal_send_process(p, KSIGTSTP, NULL);
	signal_deliver(&tf);
	CU_ASSERT_EQUAL(parent->pending.set, 0);

	/* SIGCONT and stop signals cancel each other. */
	current = parent->leader;
	p->leader->sig_mask = SIG_STOP_MASK | SIG_BIT(KSIGCONT);
	signal_send_process(p, KSIGTSTP, NULL);
	signal_send_task(p->leader, KSIGTTIN, NULL);
	signal_send_process(p, KSIGCONT, NULL);
	CU_ASSERT_EQUAL(p->pending.set, SIG_BIT(KSIGCONT));
	CU_ASSERT_EQUAL(p->leader->pending.set, 0);
	signal_send_process(p, KSIGTTOU, NULL);
	CU_ASSERT_EQUAL(p->pending.set, SIG_BIT(KSIGTTOU));
	sigpending_flush(&p->pending);
	p->leader->sig_mask = 0;

	/* Two threads: stopped when both are. */
	second = world_thread(p, 201);
	second->state = TASK_SLEEPING;
	current = p->leader;
	world_schedule = NULL;
	signal_send_process(p, KSIGSTOP, NULL);
	/* The leader's schedule() returns at once: it would stop again and again, so end it. */
	p->stopping = false;
	CU_ASSERT_TRUE(p->leader->sig_check);
	p->stopping = true;
	p->leader->state = TASK_STOPPED;
	second->state = TASK_RUNNABLE;
	signal_task_exiting(second);	/* the last that ran leaves: the stop is complete */
	CU_ASSERT_TRUE(p->stopped);
	CU_ASSERT_FALSE(p->stopping);
	signal_send_process(p, KSIGKILL, NULL);
	CU_ASSERT_EQUAL(p->leader->state, TASK_RUNNABLE);
	CU_ASSERT_TRUE(signal_fatal_pending(p->leader));

	/* An orphaned group does not stop at the terminal's signals. */
	world_reset();
	p = world_process(300, process_find(1));
	current = p->leader;
	tf = frame_in_syscall(-1, 0);
	world_schedule = continue_later;
	stops = 0;
	signal_send_process(p, KSIGTSTP, NULL);
	signal_deliver(&tf);
	CU_ASSERT_EQUAL(stops, 0);
}

static int wake_with_usr1(uint64_t deadline, bool interruptible)
{
	signal_send_process(current->proc, KSIGUSR1, NULL);
	return signal_pending(current) ? -ERESTARTSYS : 0;
}

static int wake_with_usr2(uint64_t deadline, bool interruptible)
{
	signal_send_process(current->proc, KSIGUSR2, NULL);
	return signal_pending(current) ? -ERESTARTSYS : 0;
}

static void test_waiting(void)
{
	uint64_t usr1 = SIG_BIT(KSIGUSR1), empty = 0;
	struct ktimespec ts = { 1, 0 };
	struct trapframe tf;
	uint8_t raw[128];

	/* Already pending, arriving, timeout, another one. The default action does not kill. */
	world_reset();
	block(usr1);
	signal_send_process(current->proc, KSIGUSR1, NULL);
	CU_ASSERT_EQUAL(sys_rt_sigtimedwait(&usr1, raw, NULL, 8), KSIGUSR1);
	CU_ASSERT_EQUAL(u32_at((uintptr_t)raw, 0), KSIGUSR1);
	world_sleep = wake_with_usr1;
	CU_ASSERT_EQUAL(sys_rt_sigtimedwait(&usr1, NULL, NULL, 8), KSIGUSR1);
	CU_ASSERT_FALSE(current->proc->group_exit);
	CU_ASSERT_EQUAL(current->sig_mask, usr1);
	world_sleep = NULL;
	CU_ASSERT_EQUAL(sys_rt_sigtimedwait(&usr1, NULL, &ts, 8), -EAGAIN);
	ts.sec = 0;
	CU_ASSERT_EQUAL(sys_rt_sigtimedwait(&usr1, NULL, &ts, 8), -EAGAIN);
	ts.nsec = 1000000000;
	CU_ASSERT_EQUAL(sys_rt_sigtimedwait(&usr1, NULL, &ts, 8), -EINVAL);
	CU_ASSERT_EQUAL(sys_rt_sigtimedwait(&usr1, NULL, NULL, 4), -EINVAL);
	handle(KSIGUSR2, 0, 0);
	world_sleep = wake_with_usr2;
	CU_ASSERT_EQUAL(sys_rt_sigtimedwait(&usr1, NULL, NULL, 8), -EINTR);

	/* sigsuspend: the handler runs with the temporary mask's rules, the old one returns. */
	world_reset();
	block(usr1 | SIG_BIT(KSIGHUP));
	handle(KSIGUSR1, 0, 0);
	signal_send_process(current->proc, KSIGUSR1, NULL);
	CU_ASSERT_EQUAL(sys_rt_sigsuspend(&empty, 8), -ERESTARTNOHAND);
	tf = frame_in_syscall(130, -ERESTARTNOHAND);
	signal_deliver(&tf);
	CU_ASSERT_EQUAL(current->sig_mask, usr1);
	CU_ASSERT_EQUAL(u64_at(tf.rsp, 8 + 296), usr1 | SIG_BIT(KSIGHUP));
	CU_ASSERT_FALSE(current->restore_mask);

	/* Nothing to handle after all: the mask comes back and the call goes on. */
	world_reset();
	block(usr1);
	CU_ASSERT_EQUAL(signal_use_temp_mask(&empty, 8), 0);
	CU_ASSERT_EQUAL(current->sig_mask, 0);
	signal_restore_temp_mask(true);
	tf = frame_in_syscall(270, -ERESTARTNOHAND);
	CU_ASSERT_TRUE(current->sig_check);
	signal_deliver(&tf);
	CU_ASSERT_EQUAL(current->sig_mask, usr1);
	CU_ASSERT_EQUAL(tf.rax, 270);
	CU_ASSERT_EQUAL(signal_use_temp_mask(&empty, 4), -EINVAL);
	CU_ASSERT_EQUAL(signal_use_temp_mask(NULL, 4), 0);

	handle(KSIGUSR1, 0, 0);
	block(0);
	world_sleep = wake_with_usr1;
	CU_ASSERT_EQUAL(sys_pause(), -ERESTARTNOHAND);
}

static void test_resethand(void)
{
	struct trapframe tf;

	world_reset();
	handle(KSIGUSR1, KSA_RESETHAND | KSA_NODEFER, 0);
	signal_send_process(current->proc, KSIGUSR1, NULL);
	tf = frame_in_syscall(-1, 0);
	signal_deliver(&tf);
	CU_ASSERT_EQUAL(current->proc->sighand->action[KSIGUSR1 - 1].handler, KSIG_DFL);
	CU_ASSERT_EQUAL(current->sig_mask, 0);
}

int main(void)
{
	CU_pSuite s;

	ustack = malloc(USTACK_SIZE);
	CU_initialize_registry();
	s = CU_add_suite("kernel signals", NULL, NULL);
	CU_add_test(s, "what a sent signal does", test_send_rules);
	CU_add_test(s, "queues and limits", test_queues);
	CU_add_test(s, "actions and masks", test_sigaction);
	CU_add_test(s, "choice of the thread", test_thread_choice);
	CU_add_test(s, "kill and permission", test_kill);
	CU_add_test(s, "fatal signals", test_fatal_delivery);
	CU_add_test(s, "restart of calls", test_restart);
	CU_add_test(s, "frame layout", test_frame_layout);
	CU_add_test(s, "hostile frames", test_frame_hostile);
	CU_add_test(s, "alternative stack", test_altstack);
	CU_add_test(s, "stop and continue", test_stop);
	CU_add_test(s, "waiting for signals", test_waiting);
	CU_add_test(s, "one-shot handlers", test_resethand);
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	world_reset();
	int failed = (int)CU_get_number_of_failures();

	CU_cleanup_registry();
	free(ustack);
	return failed != 0;
}
