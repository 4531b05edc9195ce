/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals, timers and polling as a program sees them. Every check holds on Linux: the program
 * runs on the host too, which is the judge of its checks, and then in the guest. It prints one
 * TAP line a test and needs nothing but itself (static).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include "tests/conformance/check.h"

const char *failure;
char failure_text[200];

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void nap(int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&ts, &ts) != 0 && errno == EINTR)
		;
}

static void set_handler(int sig, void (*fn)(int, siginfo_t *, void *), int flags)
{
	struct sigaction sa = { .sa_sigaction = fn, .sa_flags = SA_SIGINFO | flags };

	CHECK(sigaction(sig, &sa, NULL) == 0);
}

static volatile int count, last_signo, last_code, last_pid, last_value;
static void *volatile last_addr;
static int order[32], norder;

static void note(int sig, siginfo_t *si, void *uc)
{
	count++;
	last_signo = sig;
	last_code = si->si_code;
	last_pid = si->si_pid;
	last_value = si->si_value.sival_int;
	last_addr = si->si_addr;
	if (norder < 32)
		order[norder++] = sig * 1000 + si->si_value.sival_int;
}

static void reset(void)
{
	count = last_signo = last_code = last_pid = last_value = norder = 0;
	last_addr = NULL;
}

static void block(int sig)
{
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, sig);
	sigprocmask(SIG_BLOCK, &s, NULL);
}

static void unblock(int sig)
{
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, sig);
	sigprocmask(SIG_UNBLOCK, &s, NULL);
}

/* Sends sig to the parent after ms, in a child; reaps nothing. */
static pid_t signal_after(int ms, int sig)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		nap(ms);
		kill(parent, sig);
		_exit(0);
	}
	return pid;
}

static void reap(pid_t pid)
{
	int st;

	while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
}

/* ---- handlers, context ---- */

static void test_basic(void)
{
	reset();
	set_handler(SIGUSR1, note, 0);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK(count == 1 && last_signo == SIGUSR1 && last_code == SI_USER);
	CHECK(last_pid == getpid());
	CHECK(raise(SIGUSR1) == 0);
	CHECK(count == 2 && last_code == SI_TKILL);
	block(SIGUSR1);
	kill(getpid(), SIGUSR1);
	kill(getpid(), SIGUSR1);
	CHECK(count == 2);
	unblock(SIGUSR1);
	CHECK(count == 3);
}

static void test_queue(void)
{
	union sigval v;

	reset();
	set_handler(SIGRTMIN + 1, note, 0);
	set_handler(SIGRTMIN + 5, note, 0);
	block(SIGRTMIN + 1);
	block(SIGRTMIN + 5);
	for (int i = 1; i <= 3; i++) {
		v.sival_int = i;
		CHECK(sigqueue(getpid(), SIGRTMIN + 5, v) == 0);
		CHECK(sigqueue(getpid(), SIGRTMIN + 1, v) == 0);
	}
	sigset_t both;

	sigemptyset(&both);
	sigaddset(&both, SIGRTMIN + 1);
	sigaddset(&both, SIGRTMIN + 5);
	sigprocmask(SIG_UNBLOCK, &both, NULL);
	CHECK(count == 6);
	/* Frames nest: the lowest number is taken first, so its handler runs last of all that
	 * were pending together; each handler blocks its own number only. */
	int lows = 0, highs = 0;

	for (int i = 0; i < norder; i++) {
		if (order[i] / 1000 == SIGRTMIN + 1)
			CHECK(order[i] % 1000 == ++lows);
		else
			CHECK(order[i] % 1000 == ++highs);
	}
	CHECK(lows == 3 && highs == 3);
}

static void change_context(int sig, siginfo_t *si, void *p)
{
	ucontext_t *uc = p;

	uc->uc_mcontext.gregs[REG_RIP] += 2;	/* over ud2 */
	uc->uc_mcontext.gregs[REG_RBX] = 0x1234567;
	count++;
	last_addr = si->si_addr;
	last_code = si->si_code;
}

static void test_context(void)
{
	uint64_t rbx, at;

	reset();
	set_handler(SIGILL, change_context, 0);
	__asm__ volatile("lea 1f(%%rip), %1\n\txor %%ebx, %%ebx\n1:\tud2\n\tmov %%rbx, %0"
			 : "=r"(rbx), "=&r"(at) : : "rbx", "memory");
	CHECK(count == 1);
	CHECK(rbx == 0x1234567);
	CHECK((uint64_t)last_addr == at);
	CHECK(last_code == ILL_ILLOPN);
	signal(SIGILL, SIG_DFL);
}

static void spoil_fp(int sig, siginfo_t *si, void *p)
{
	volatile double d = 3.0;
	ucontext_t *uc = p;

	count++;
	__asm__ volatile("pcmpeqd %%xmm6, %%xmm6\n\tpcmpeqd %%xmm7, %%xmm7" : : : "xmm6", "xmm7");
	d *= 2;
	CHECK(uc->uc_mcontext.fpregs != NULL);
	CHECK(((uintptr_t)uc->uc_mcontext.fpregs & 63) == 0);
	/* The interrupted xmm6 is to be seen in the frame, and xmm7 may be changed there. */
	CHECK(uc->uc_mcontext.fpregs->_xmm[6].element[0] == 42);
	uc->uc_mcontext.fpregs->_xmm[7].element[0] = 77;
	uint32_t magic = *(uint32_t *)((char *)uc->uc_mcontext.fpregs + 464);

	CHECK(magic == 0x46505853);
	uint32_t size = *(uint32_t *)((char *)uc->uc_mcontext.fpregs + 480);

	CHECK(*(uint32_t *)((char *)uc->uc_mcontext.fpregs + size) == 0x46505845);
}

static void test_fp(void)
{
	uint64_t six, seven;
	long r;

	reset();
	set_handler(SIGUSR1, spoil_fp, 0);
	__asm__ volatile("mov $42, %%ecx\n\tmovq %%rcx, %%xmm6\n\tpxor %%xmm7, %%xmm7\n\t"
			 "syscall\n\tmovq %%xmm6, %0\n\tmovq %%xmm7, %1"
			 : "=r"(six), "=r"(seven), "=a"(r)
			 : "a"((long)SYS_kill), "D"((long)getpid()), "S"((long)SIGUSR1)
			 : "rcx", "r11", "xmm6", "xmm7", "memory");
	CHECK(r == 0 && count == 1);
	CHECK(six == 42);
	CHECK(seven == 77);
}

static sigjmp_buf jump;

static void jump_out(int sig, siginfo_t *si, void *p)
{
	last_addr = si->si_addr;
	last_code = si->si_code;
	siglongjmp(jump, sig);
}

static void test_faults(void)
{
	char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile int zero = 0;

	set_handler(SIGSEGV, jump_out, 0);
	set_handler(SIGFPE, jump_out, 0);
	set_handler(SIGTRAP, jump_out, 0);
	if (sigsetjmp(jump, 1) == 0) {
		*(volatile char *)(page + 5) = 1;
		CHECK(!"written");
	}
	CHECK(last_addr == page + 5 && last_code == SEGV_ACCERR);
	munmap(page, 4096);
	if (sigsetjmp(jump, 1) == 0) {
		(void)*(volatile char *)(page + 9);
		CHECK(!"read");
	}
	CHECK(last_addr == page + 9 && last_code == SEGV_MAPERR);
	if (sigsetjmp(jump, 1) == 0) {
		__asm__ volatile("idivl %2" : : "a"(1), "d"(0), "r"(zero));
		CHECK(!"divided");
	}
	CHECK(last_code == FPE_INTDIV);
	if (sigsetjmp(jump, 1) == 0) {
		__asm__ volatile("int3");
		CHECK(!"int3");
	}
	CHECK(last_code == SI_KERNEL);
	if (sigsetjmp(jump, 1) == 0) {
		__asm__ volatile("hlt");
		CHECK(!"hlt");
	}
	CHECK(last_code == SI_KERNEL && last_addr == NULL);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGFPE, SIG_DFL);
	signal(SIGTRAP, SIG_DFL);
}

static char alt[65536];
static volatile int on_alt;

static void overflowed(int sig, siginfo_t *si, void *p)
{
	char here;

	on_alt = &here > alt && &here < alt + sizeof(alt);
	siglongjmp(jump, 1);
}

static int __attribute__((noinline)) recurse(volatile char *p)
{
	volatile char big[4096];

	big[0] = *p;
	if (big[0] != 0)		/* never */
		return 0;
	return recurse(big) + big[1];
}

static void test_altstack(void)
{
	stack_t ss = { .ss_sp = alt, .ss_size = sizeof(alt) }, old;
	struct rlimit rl = { 1 << 20, RLIM_INFINITY };
	pid_t pid;
	int st;

	CHECK(sigaltstack(&ss, NULL) == 0);
	CHECK(sigaltstack(NULL, &old) == 0 && old.ss_sp == alt && old.ss_flags == 0);
	pid = fork();
	if (pid == 0) {
		volatile char c = 0;

		getrlimit(RLIMIT_STACK, &rl);
		rl.rlim_cur = 1 << 20;
		setrlimit(RLIMIT_STACK, &rl);
		set_handler(SIGSEGV, overflowed, SA_ONSTACK);
		if (sigsetjmp(jump, 1) == 0)
			recurse(&c);
		_exit(on_alt && failure == NULL ? 0 : 1);
	}
	waitpid(pid, &st, 0);
	CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 0);
	ss.ss_flags = SS_DISABLE;
	CHECK(sigaltstack(&ss, NULL) == 0);
}

/* ---- interrupted calls ---- */

static void test_restart_read(void)
{
	int p[2];
	char c;
	pid_t pid;

	reset();
	CHECK(pipe(p) == 0);
	set_handler(SIGUSR1, note, 0);
	pid = signal_after(100, SIGUSR1);
	errno = 0;
	CHECK(read(p[0], &c, 1) == -1 && errno == EINTR);
	CHECK(count == 1);
	reap(pid);
	set_handler(SIGUSR1, note, SA_RESTART);
	/* Twice: the second time by a call site that may have become a jump. */
	for (int i = 0; i < 2; i++) {
		pid = fork();
		if (pid == 0) {
			nap(100);
			kill(getppid(), SIGUSR1);
			nap(200);
			_exit(write(p[1], "x", 1) == 1 ? 0 : 1);
		}
		c = 0;
		CHECK(read(p[0], &c, 1) == 1 && c == 'x');
		reap(pid);
	}
	CHECK(count == 3);
	close(p[0]);
	close(p[1]);
}

/* A call that is stopped and continued goes on: nanosleep for its rest, poll for its end. */
static void test_stop_goes_on(void)
{
	for (int which = 0; which < 3; which++) {
		double start = now();
		int st;
		pid_t pid = fork();

		if (pid == 0) {
			double t = now();
			struct timespec ts = { 0, 600000000 };
			struct pollfd none = { -1, 0, 0 };
			int r;

			if (which == 0)
				r = nanosleep(&ts, NULL);
			else if (which == 1)
				r = poll(&none, 1, 600);
			else
				r = select(0, NULL, NULL, NULL,
					   &(struct timeval){ 0, 600000 });
			t = now() - t;
			_exit(r == 0 && t > 0.59 && t < 3 ? 0 : 1);
		}
		nap(150);
		CHECK(kill(pid, SIGSTOP) == 0);
		CHECK(waitpid(pid, &st, WUNTRACED) == pid && WIFSTOPPED(st) &&
		      WSTOPSIG(st) == SIGSTOP);
		nap(100);
		CHECK(waitpid(pid, &st, WUNTRACED | WNOHANG) == 0);
		CHECK(kill(pid, SIGCONT) == 0);
		CHECK(waitpid(pid, &st, WCONTINUED) == pid && WIFCONTINUED(st));
		CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 0);
		CHECK(now() - start > 0.59);
	}
}

static void test_sleep_eintr(void)
{
	struct timespec ts = { 1, 0 }, rem = { 0, 0 };
	pid_t pid;

	set_handler(SIGUSR1, note, SA_RESTART);
	pid = signal_after(200, SIGUSR1);
	CHECK(nanosleep(&ts, &rem) == -1 && errno == EINTR);
	CHECK(rem.tv_sec == 0 && rem.tv_nsec > 100000000 && rem.tv_nsec < 900000000);
	reap(pid);
	ts = (struct timespec){ 1, 1000000000 };
	CHECK(nanosleep(&ts, NULL) == -1 && errno == EINVAL);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += 50000000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_sec++;
		ts.tv_nsec -= 1000000000;
	}
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == 0);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec -= 5;
	CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &ts, NULL) == 0);
}

static void test_suspend(void)
{
	sigset_t none, all, pending;
	pid_t pid;

	reset();
	sigemptyset(&none);
	set_handler(SIGUSR1, note, 0);
	block(SIGUSR1);
	pid = signal_after(50, SIGUSR1);
	CHECK(sigsuspend(&none) == -1 && errno == EINTR);
	CHECK(count == 1);
	sigprocmask(SIG_SETMASK, NULL, &all);
	CHECK(sigismember(&all, SIGUSR1) == 1);
	reap(pid);
	raise(SIGUSR1);
	sigpending(&pending);
	CHECK(sigismember(&pending, SIGUSR1) == 1 && count == 1);
	unblock(SIGUSR1);
	CHECK(count == 2);

	/* pselect and ppoll see the signal that their mask lets in, and put the mask back. */
	block(SIGUSR1);
	raise(SIGUSR1);
	CHECK(pselect(0, NULL, NULL, NULL, NULL, &none) == -1 && errno == EINTR);
	CHECK(count == 3);
	raise(SIGUSR1);
	CHECK(ppoll(NULL, 0, NULL, &none) == -1 && errno == EINTR);
	CHECK(count == 4);
	int ep = epoll_create1(0);
	struct epoll_event ev;

	raise(SIGUSR1);
	CHECK(epoll_pwait(ep, &ev, 1, -1, &none) == -1 && errno == EINTR);
	CHECK(count == 5);
	close(ep);
	sigprocmask(SIG_SETMASK, NULL, &all);
	CHECK(sigismember(&all, SIGUSR1) == 1);
	unblock(SIGUSR1);
	CHECK(count == 5);
}

static void test_sigwait(void)
{
	struct timespec ts = { 0, 50000000 };
	siginfo_t si;
	sigset_t s;
	pid_t pid;
	int sig;

	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	sigaddset(&s, SIGCHLD);
	sigprocmask(SIG_BLOCK, &s, NULL);
	CHECK(sigtimedwait(&s, &si, &ts) == -1 && errno == EAGAIN);
	pid = fork();
	if (pid == 0)
		_exit(7);
	CHECK(sigwaitinfo(&s, &si) == SIGCHLD);
	CHECK(si.si_pid == pid && si.si_status == 7 && si.si_code == CLD_EXITED);
	reap(pid);
	pid = signal_after(50, SIGUSR2);
	CHECK(sigwait(&s, &sig) == 0 && sig == SIGUSR2);
	reap(pid);
	while (sigtimedwait(&s, &si, &(struct timespec){ 0, 0 }) > 0)
		;
	sigprocmask(SIG_UNBLOCK, &s, NULL);
}

/* ---- processes ---- */

static int status_of(void (*fn)(void))
{
	int st;
	pid_t pid = fork();

	if (pid == 0) {
		fn();
		_exit(99);
	}
	waitpid(pid, &st, 0);
	return st;
}

static void die_term(void)
{
	raise(SIGTERM);
}

static void die_abort(void)
{
	struct rlimit rl = { 0, 0 };

	setrlimit(RLIMIT_CORE, &rl);
	abort();
}

static void die_ignored_segv(void)
{
	struct rlimit rl = { 0, 0 };

	setrlimit(RLIMIT_CORE, &rl);
	signal(SIGSEGV, SIG_IGN);
	*(volatile char *)8 = 1;
}

static void die_pipe(void)
{
	int p[2];

	if (pipe(p) != 0)
		_exit(98);
	close(p[0]);
	if (write(p[1], "x", 1) == 1)
		_exit(97);
}

static void die_rt(void)
{
	raise(SIGRTMIN);
}

static void live_ignored(void)
{
	signal(SIGTERM, SIG_IGN);
	raise(SIGTERM);
	raise(SIGCHLD);
	raise(SIGURG);
	raise(SIGWINCH);
	raise(SIGCONT);
	_exit(3);
}

static void die_xcpu(void)
{
	struct rlimit rl = { 1, 3 }, core = { 0, 0 };

	setrlimit(RLIMIT_CORE, &core);
	setrlimit(RLIMIT_CPU, &rl);
	for (volatile unsigned long i = 0;; i++)
		;
}

static void *spin(void *arg)
{
	for (;;)
		pause();
	return NULL;
}

static void die_threaded(void)
{
	pthread_t t;

	for (int i = 0; i < 4; i++)
		pthread_create(&t, NULL, spin, NULL);
	nap(20);
	pthread_kill(t, SIGKILL);
	pause();
}

static void test_deaths(void)
{
	int st = status_of(die_term);

	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGTERM && !WCOREDUMP(st));
	st = status_of(die_abort);
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
	st = status_of(die_ignored_segv);
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV);
	st = status_of(die_pipe);
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGPIPE);
	st = status_of(die_rt);
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGRTMIN);
	st = status_of(live_ignored);
	CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 3);
	st = status_of(die_threaded);
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	st = status_of(die_xcpu);
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGXCPU);
}

static void test_job_control(void)
{
	siginfo_t si;
	int st;
	pid_t pid;

	reset();
	set_handler(SIGCHLD, note, 0);
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		for (;;)
			pause();
	}
	nap(50);
	CHECK(kill(-pid, SIGTSTP) == 0);
	CHECK(waitid(P_PID, (id_t)pid, &si, WSTOPPED) == 0);
	CHECK(si.si_code == CLD_STOPPED && si.si_status == SIGTSTP && si.si_pid == pid);
	CHECK(count == 1 && last_code == CLD_STOPPED);
	/* Fatal but for KILL waits for the continuation. */
	CHECK(kill(pid, SIGTERM) == 0);
	nap(50);
	CHECK(waitpid(pid, &st, WNOHANG) == 0);
	CHECK(kill(pid, SIGCONT) == 0);
	while (waitpid(pid, &st, 0) != pid)
		;
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGTERM);

	pid = fork();
	if (pid == 0) {
		for (;;)
			pause();
	}
	kill(pid, SIGSTOP);
	while (waitpid(pid, &st, WUNTRACED) != pid)
		;
	CHECK(WIFSTOPPED(st));
	kill(pid, SIGKILL);
	while (waitpid(pid, &st, 0) != pid)
		;
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);

	/* SA_NOCLDSTOP and ignoring children. */
	reset();
	set_handler(SIGCHLD, note, SA_NOCLDSTOP);
	pid = fork();
	if (pid == 0) {
		raise(SIGSTOP);
		_exit(0);
	}
	CHECK(waitpid(pid, &st, WUNTRACED) == pid && WIFSTOPPED(st));
	CHECK(count == 0);
	kill(pid, SIGCONT);
	while (waitpid(pid, &st, 0) != pid)
		;
	CHECK(count == 1);
	signal(SIGCHLD, SIG_IGN);
	pid = fork();
	if (pid == 0)
		_exit(0);
	CHECK(waitpid(pid, &st, 0) == -1 && errno == ECHILD);
	signal(SIGCHLD, SIG_DFL);
	CHECK(kill(pid, 0) == -1 && errno == ESRCH);
	CHECK(kill(getpid(), 65) == -1 && errno == EINVAL);
}

static volatile pthread_t handled_by;

static void note_thread(int sig, siginfo_t *si, void *p)
{
	handled_by = pthread_self();
	count++;
}

static void *waiter_thread(void *arg)
{
	sigset_t s;

	sigfillset(&s);
	if (arg == NULL)
		sigdelset(&s, SIGUSR1);
	pthread_sigmask(SIG_SETMASK, &s, NULL);
	while (count == 0)
		nap(10);
	return NULL;
}

static void test_threads(void)
{
	pthread_t open, closed;
	sigset_t s;

	reset();
	set_handler(SIGUSR1, note_thread, 0);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &s, NULL);
	pthread_create(&closed, NULL, waiter_thread, &s);
	pthread_create(&open, NULL, waiter_thread, NULL);
	nap(50);
	kill(getpid(), SIGUSR1);
	pthread_join(open, NULL);
	pthread_join(closed, NULL);
	CHECK(count == 1 && pthread_equal(handled_by, open));
	pthread_sigmask(SIG_UNBLOCK, &s, NULL);
	CHECK(syscall(SYS_tgkill, getpid(), getpid(), 0) == 0);
	CHECK(syscall(SYS_tgkill, getpid() + 1000, getpid(), 0) == -1 && errno == ESRCH);
}

/* ---- timers ---- */

static void test_itimers(void)
{
	struct itimerval it = { { 0, 20000 }, { 0, 20000 } }, old;
	double start;

	reset();
	set_handler(SIGALRM, note, SA_RESTART);
	set_handler(SIGVTALRM, note, 0);
	CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
	while (count < 5)
		pause();
	memset(&it, 0, sizeof(it));
	CHECK(setitimer(ITIMER_REAL, &it, &old) == 0);
	CHECK(old.it_interval.tv_usec == 20000);
	/* A program that never enters the kernel. */
	reset();
	it.it_value.tv_usec = 50000;
	CHECK(setitimer(ITIMER_VIRTUAL, &it, NULL) == 0);
	while (count == 0)
		;
	CHECK(last_signo == SIGVTALRM);
	reset();
	alarm(1);
	CHECK(alarm(1) == 1);
	start = now();
	pause();
	CHECK(count == 1 && last_signo == SIGALRM && now() - start > 0.9);
}

static void test_posix_timers(void)
{
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2 };
	struct itimerspec spec = { { 0, 10000000 }, { 0, 10000000 } };
	timer_t id;

	reset();
	ev.sigev_value.sival_int = 1234;
	set_handler(SIGRTMIN + 2, note, 0);
	block(SIGRTMIN + 2);
	CHECK(timer_create(CLOCK_MONOTONIC, &ev, &id) == 0);
	CHECK(timer_settime(id, 0, &spec, NULL) == 0);
	nap(105);
	CHECK(count == 0);
	unblock(SIGRTMIN + 2);
	CHECK(count >= 1 && last_code == SI_TIMER && last_value == 1234);
	CHECK(timer_getoverrun(id) >= 0);
	CHECK(timer_delete(id) == 0);
	CHECK(timer_delete(id) == -1 && errno == EINVAL);
	signal(SIGRTMIN + 2, SIG_IGN);
}

static void test_timerfd(void)
{
	struct itimerspec spec = { { 0, 10000000 }, { 0, 10000000 } };
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), ep = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	uint64_t v = 0;

	CHECK(fd >= 0);
	CHECK(read(fd, &v, 8) == -1 && errno == EAGAIN);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	CHECK(timerfd_settime(fd, 0, &spec, NULL) == 0);
	CHECK(epoll_wait(ep, &ev, 1, 2000) == 1);
	nap(50);
	CHECK(read(fd, &v, 8) == 8 && v >= 5);
	CHECK(epoll_wait(ep, &ev, 1, 2000) == 1);
	CHECK(pread(fd, &v, 4, 0) == -1 && (errno == EINVAL || errno == ESPIPE));
	close(fd);
	CHECK(epoll_wait(ep, &ev, 1, 0) == 0);
	close(ep);
}

static void test_clocks(void)
{
	struct timespec a, b;
	struct timeval tv;
	clockid_t id;

	for (int i = 0; i < 1000; i++) {
		clock_gettime(CLOCK_MONOTONIC, &a);
		syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &b);
		CHECK(b.tv_sec > a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec >= a.tv_nsec));
	}
	gettimeofday(&tv, NULL);
	CHECK(tv.tv_sec > 1600000000);
	CHECK(labs(time(NULL) - tv.tv_sec) <= 1);
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &a);
	CHECK(labs(a.tv_sec - tv.tv_sec) <= 1);
	CHECK(clock_getcpuclockid(0, &id) == 0 && clock_gettime(id, &a) == 0);
	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a) == 0);
	for (volatile int i = 0; i < 3000000; i++)
		;
	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b) == 0);
	CHECK(b.tv_sec > a.tv_sec || b.tv_nsec > a.tv_nsec);
	CHECK(clock_gettime(99, &a) == -1 && errno == EINVAL);
	CHECK(clock_getres(CLOCK_MONOTONIC, &a) == 0 && a.tv_sec == 0);
}

/* ---- descriptors ---- */

static void test_epoll(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET | EPOLLRDHUP }, out[4];
	int p[2], ep = epoll_create1(EPOLL_CLOEXEC), d;
	char c;

	CHECK(pipe(p) == 0);
	ev.data.u64 = 0x123456789abcdefULL;
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == -1 && errno == EEXIST);
	CHECK(epoll_wait(ep, out, 4, 0) == 0);
	CHECK(write(p[1], "ab", 2) == 2);
	CHECK(epoll_wait(ep, out, 4, 0) == 1 && out[0].data.u64 == ev.data.u64 &&
	      out[0].events == EPOLLIN);
	CHECK(epoll_wait(ep, out, 4, 0) == 0);
	CHECK(write(p[1], "c", 1) == 1);
	CHECK(epoll_wait(ep, out, 4, 0) == 1);
	ev.events = EPOLLIN | EPOLLONESHOT;
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &ev) == 0);
	CHECK(epoll_wait(ep, out, 4, 0) == 1);
	CHECK(epoll_wait(ep, out, 4, 0) == 0);
	ev.events = EPOLLIN;
	epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &ev);
	for (int i = 0; i < 3; i++)
		CHECK(read(p[0], &c, 1) == 1);
	CHECK(epoll_wait(ep, out, 4, 10) == 0);
	close(p[1]);
	CHECK(epoll_wait(ep, out, 4, 0) == 1 && out[0].events == EPOLLHUP);
	d = dup(p[0]);
	close(p[0]);
	CHECK(epoll_wait(ep, out, 4, 0) == 1);
	close(d);
	CHECK(epoll_wait(ep, out, 4, 0) == 0);

	d = open("/", O_RDONLY);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, d, &ev) == -1 && errno == EPERM);
	close(d);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, 500, &ev) == -1 && errno == EBADF);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, ep, &ev) == -1 && errno == EINVAL);
	CHECK(epoll_wait(ep, out, 0, 0) == -1 && errno == EINVAL);
	close(ep);
}

static void *write_later(void *arg)
{
	uint64_t one = 1;

	nap(50);
	if (write(*(int *)arg, &one, 8) != 8)
		abort();
	return NULL;
}

static void test_eventfd_poll(void)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	struct pollfd p = { fd, POLLIN | POLLOUT, 0 };
	fd_set in, out;
	struct timeval tv = { 5, 0 };
	pthread_t t;
	uint64_t v;

	CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
	pthread_create(&t, NULL, write_later, &fd);
	p.events = POLLIN;
	CHECK(poll(&p, 1, 5000) == 1 && p.revents == POLLIN);
	pthread_join(t, NULL);
	CHECK(read(fd, &v, 8) == 8 && v == 1);
	CHECK(read(fd, &v, 8) == -1 && errno == EAGAIN);
	pthread_create(&t, NULL, write_later, &fd);
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd, &in);
	CHECK(select(fd + 1, &in, NULL, NULL, &tv) == 1 && FD_ISSET(fd, &in));
	CHECK(tv.tv_sec < 5 && tv.tv_sec >= 3);
	pthread_join(t, NULL);
	FD_SET(fd, &in);
	FD_SET(fd, &out);
	CHECK(select(fd + 1, &in, &out, NULL, NULL) == 2);
	close(fd);
	p.fd = fd;
	CHECK(poll(&p, 1, -1) == 1 && p.revents == POLLNVAL);
	CHECK(select(fd + 1, &in, NULL, NULL, NULL) == -1 && errno == EBADF);
}

static void test_signalfd(void)
{
	struct signalfd_siginfo si;
	struct epoll_event ev = { .events = EPOLLIN }, out;
	sigset_t s;
	int fd, ep = epoll_create1(0);
	pid_t pid;

	sigemptyset(&s);
	sigaddset(&s, SIGCHLD);
	sigprocmask(SIG_BLOCK, &s, NULL);
	fd = signalfd(-1, &s, SFD_CLOEXEC);
	CHECK(fd >= 0);
	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
	CHECK(epoll_wait(ep, &out, 1, 0) == 0);
	pid = fork();
	if (pid == 0) {
		nap(30);
		_exit(5);
	}
	CHECK(epoll_wait(ep, &out, 1, 5000) == 1);
	CHECK(read(fd, &si, sizeof(si)) == sizeof(si));
	CHECK(si.ssi_signo == SIGCHLD && si.ssi_pid == (uint32_t)pid && si.ssi_status == 5);
	reap(pid);
	sigprocmask(SIG_UNBLOCK, &s, NULL);
	close(fd);
	close(ep);
}

static const struct {
	const char *name;
	void (*fn)(void);
} tests[] = {
	{ "handlers and masks", test_basic },
	{ "queued signals", test_queue },
	{ "context changed by a handler", test_context },
	{ "floating point in frames", test_fp },
	{ "faults", test_faults },
	{ "alternative stack", test_altstack },
	{ "read restarts", test_restart_read },
	{ "stopped calls go on", test_stop_goes_on },
	{ "sleeping", test_sleep_eintr },
	{ "sigsuspend and its kind", test_suspend },
	{ "sigwait", test_sigwait },
	{ "deaths", test_deaths },
	{ "job control", test_job_control },
	{ "threads", test_threads },
	{ "interval timers", test_itimers },
	{ "posix timers", test_posix_timers },
	{ "timerfd", test_timerfd },
	{ "clocks", test_clocks },
	{ "epoll", test_epoll },
	{ "eventfd, poll, select", test_eventfd_poll },
	{ "signalfd", test_signalfd },
};

int main(void)
{
	unsigned n = sizeof(tests) / sizeof(tests[0]), failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("1..%u\n", n);
	for (unsigned i = 0; i < n; i++) {
		failure = NULL;
		fflush(NULL);
		tests[i].fn();
		printf("%sok %u - %s\n", failure != NULL ? "not " : "", i + 1, tests[i].name);
		if (failure != NULL) {
			printf("# %s\n", failure);
			failed++;
		}
	}
	return failed != 0;
}
