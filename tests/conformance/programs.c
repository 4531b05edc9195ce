/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What foreign test suites have found: the smallest program for each of their failures. Every
 * check holds on Linux: the program runs on the host too, which is the judge of its checks,
 * and then in the guest. It prints one TAP line a test and needs nothing but itself (static).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include "tests/conformance/check.h"
#include "tests/conformance/inotify.h"

const char *failure;
char failure_text[200];

/* CPython test_signal: /proc/PID itself is taken for a pidfd, by this call and no other. */
static void test_proc_directory_as_pidfd(void)
{
	char path[40];
	int status, fd, other;
	pid_t pid = fork();

	if (pid == 0) {
		for (;;)
			pause();
	}
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	other = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0 && other >= 0);
	CHECK(syscall(SYS_pidfd_send_signal, other, SIGTERM, NULL, 0) == -1 && errno == EBADF);
	CHECK(syscall(SYS_pidfd_send_signal, 0, SIGTERM, NULL, 0) == -1 && errno == EBADF);
	CHECK(syscall(SYS_pidfd_getfd, fd, 0, 0) == -1 && errno == EBADF);
	CHECK(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) == 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	CHECK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == -1 && errno == ESRCH);
	close(fd);
	close(other);
}

static pthread_mutex_t *pi_lock;
static int pi_count;

static void pi_init(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	CHECK(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT) == 0);
	CHECK(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST) == 0);
	CHECK(pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED) == 0);
	CHECK(pthread_mutex_init(m, &a) == 0);
	pthread_mutexattr_destroy(&a);
}

static void *pi_adder(void *arg)
{
	for (int i = 0; i < 300; i++) {
		pthread_mutex_lock(pi_lock);
		int n = pi_count;

		if (i % 30 == 0)
			usleep(100);
		pi_count = n + 1;
		pthread_mutex_unlock(pi_lock);
	}
	return arg;
}

/* Suite userland, programs.sh: mutexes with priority inheritance, contended, and robust. */
static void test_pi_mutex(void)
{
	struct timespec soon;
	pthread_t t[4];
	pid_t pid;

	pi_lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(pi_lock != MAP_FAILED);
	pi_init(pi_lock);
	if (failure != NULL)
		return;
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, pi_adder, NULL) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	CHECK(pi_count == 1200);

	/* Its owner, another process, dies while this one waits. */
	CHECK(pthread_mutex_lock(pi_lock) == 0);
	pid = fork();
	if (pid == 0) {
		if (pthread_mutex_lock(pi_lock) != 0)
			_exit(1);
		usleep(100000);
		_exit(0);
	}
	usleep(50000);
	CHECK(pthread_mutex_unlock(pi_lock) == 0);
	usleep(50000);
	CHECK(pthread_mutex_lock(pi_lock) == EOWNERDEAD);
	CHECK(pthread_mutex_consistent(pi_lock) == 0);
	CHECK(waitpid(pid, NULL, 0) == pid);

	/* The same without a robust list, which cannot be seen from here. */
	uint32_t *word = (uint32_t *)(pi_lock + 2);

	pid = fork();
	if (pid == 0) {
		*word = (uint32_t)getpid();
		usleep(100000);
		_exit(0);
	}
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0)
		usleep(1000);
	CHECK(syscall(SYS_futex, word, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
	CHECK((*word & FUTEX_TID_MASK) == (uint32_t)getpid());
	CHECK((*word & FUTEX_OWNER_DIED) != 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(syscall(SYS_futex, word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
	CHECK((*word & FUTEX_TID_MASK) == 0);

	pid = fork();
	if (pid == 0) {
		clock_gettime(CLOCK_REALTIME, &soon);
		soon.tv_sec++;
		_exit(pthread_mutex_timedlock(pi_lock, &soon) != ETIMEDOUT);
	}
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(pthread_mutex_unlock(pi_lock) == 0);
	CHECK(pthread_mutex_destroy(pi_lock) == 0);
	munmap(pi_lock, 4096);
}

/* Suite userland, programs.sh: System V shared memory. */
static void test_sysv_shm(void)
{
	int id = shmget(IPC_PRIVATE, 10000, IPC_CREAT | 0600), status;
	struct shmid_ds ds;
	key_t key = 0x5eed0000 ^ getpid();
	char *p, *q, *at;
	pid_t pid;

	CHECK(id >= 0);
	p = shmat(id, NULL, 0);
	CHECK(p != (char *)-1);
	if (failure != NULL)
		return;
	pid = fork();
	if (pid == 0) {
		strcpy(p + 9000, "shared");
		_exit(shmdt(p) != 0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(strcmp(p + 9000, "shared") == 0);
	q = shmat(id, NULL, SHM_RDONLY);
	CHECK(q != (char *)-1 && q != p && strcmp(q + 9000, "shared") == 0);
	CHECK(mprotect(q, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
	CHECK(shmctl(id, IPC_STAT, &ds) == 0);
	CHECK(ds.shm_nattch == 2 && ds.shm_segsz == 10000 && ds.shm_cpid == getpid());
	CHECK((ds.shm_perm.mode & 0777) == 0600 && ds.shm_atime != 0 && ds.shm_dtime != 0);
	/* Where something is, at odd addresses, twice over. */
	CHECK(shmat(id, p, 0) == (void *)-1 && errno == EINVAL);
	CHECK(shmat(id, q + 100, SHM_REMAP) == (void *)-1 && errno == EINVAL);
	CHECK(shmat(id, q + 100, SHM_REMAP | SHM_RND) == q);
	q[5] = 'q';
	CHECK(p[5] == 'q');
	CHECK(shmdt(q + 4096) == -1 && errno == EINVAL);
	CHECK(shmdt(q) == 0);
	CHECK(shmdt(q) == -1 && errno == EINVAL);
	/* Removed, but there until the last one has left it. */
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	CHECK(shmctl(id, IPC_STAT, &ds) == 0 && (ds.shm_perm.mode & 01000) != 0);
	q = shmat(id, NULL, 0);
	CHECK(q != (char *)-1 && strcmp(q + 9000, "shared") == 0);
	/* Half of it unmapped, the rest is found all the same. */
	CHECK(munmap(q, 4096) == 0 && shmdt(q) == 0);
	CHECK(shmdt(p) == 0);
	CHECK(shmctl(id, IPC_STAT, &ds) == -1 && errno == EINVAL);
	CHECK(shmat(id, NULL, 0) == (void *)-1 && errno == EINVAL);

	CHECK(shmget(key, 4096, 0) == -1 && errno == ENOENT);
	CHECK(shmget(key, 0, IPC_CREAT | 0600) == -1 && errno == EINVAL);
	id = shmget(key, 4096, IPC_CREAT | 0640);
	CHECK(id >= 0);
	CHECK(shmget(key, 100, 0) == id && shmget(key, 0, IPC_CREAT) == id);
	CHECK(shmget(key, 4097, 0) == -1 && errno == EINVAL);
	CHECK(shmget(key, 100, IPC_CREAT | IPC_EXCL) == -1 && errno == EEXIST);
	pid = getuid() == 0 ? fork() : -1;
	if (pid == 0) {
		at = setgid(54321) == 0 && setuid(54321) == 0 ? shmat(id, NULL, 0) : NULL;
		if (at != (char *)-1 || errno != EACCES)
			_exit(1);
		if (shmget(key, 100, 0400) != -1 || errno != EACCES)
			_exit(2);
		_exit(shmctl(id, IPC_RMID, NULL) != -1 || errno != EPERM ? 3 : 0);
	}
	CHECK(pid == -1 || (waitpid(pid, &status, 0) == pid && status == 0));
	CHECK(shmctl(id, IPC_STAT, &ds) == 0);
	ds.shm_perm.mode = 0604;
	CHECK(shmctl(id, IPC_SET, &ds) == 0);
	CHECK(shmctl(id, IPC_STAT, &ds) == 0 && (ds.shm_perm.mode & 0777) == 0604);
	CHECK(shmctl(id, 4711, &ds) == -1 && errno == EINVAL);
	/* Exit and exec let go of it. */
	pid = fork();
	if (pid == 0)
		_exit(shmat(id, NULL, 0) == (void *)-1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch == 0 && ds.shm_lpid == pid);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	CHECK(shmget(key, 4096, 0) == -1 && errno == ENOENT);
}

/* The groups of a socket's peer, as they were when it connected. */
static void test_peer_groups(void)
{
	gid_t groups[3] = { 5, 70000, 42 }, got[8];
	socklen_t len = sizeof(got);
	int fds[2], status;
	pid_t pid = fork();

	if (pid == 0) {
		bool root = setgroups(3, groups) == 0;

		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
			_exit(1);
		if (root)
			setgroups(0, NULL);
		if (getsockopt(fds[0], SOL_SOCKET, SO_PEERGROUPS, got, &len) != 0)
			_exit(2);
		/* Linux sorts them when they are set. */
		if (root && (len != 12 || got[0] != 5 || got[1] != 42 || got[2] != 70000))
			_exit(3);
		len = 0;
		if (root && (getsockopt(fds[0], SOL_SOCKET, SO_PEERGROUPS, got, &len) != -1 ||
			     errno != ERANGE || len != 12))
			_exit(4);
		close(fds[0]);
		fds[0] = socket(AF_UNIX, SOCK_STREAM, 0);
		if (getsockopt(fds[0], SOL_SOCKET, SO_PEERGROUPS, got, &len) != -1 ||
		    errno != ENODATA)
			_exit(5);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	CHECK(WEXITSTATUS(status) == 0);
	if (failure != NULL)
		printf("# the child ended with %d\n", status >> 8);
}

/* ---- Registers that a program has no right to, or that nobody expects ---- */

#define FLAG_NT	0x4000L
#define FLAG_AC	0x40000L
#define NOWHERE	0x93ee041544cb982bUL	/* not canonical */

/* One call with a flag set; *ret_flags are those behind it. The loops below take the same site
 * again and again: it may be patched after the first time. */
static long call_flagged(long flag, long nr, long a, long b, long c, long *ret_flags)
{
	register long r10 __asm__("r10") = 0;
	long ret = nr, flags;

	__asm__ volatile("lea -128(%%rsp), %%rsp\n\t"
			 "pushfq\n\t"
			 "orq %2, (%%rsp)\n\t"
			 "popfq\n\t"
			 "syscall\n\t"
			 "pushfq\n\t"
			 "movq (%%rsp), %1\n\t"
			 "andq $~0x44000, (%%rsp)\n\t"
			 "popfq\n\t"
			 "lea 128(%%rsp), %%rsp"
			 : "+a"(ret), "=&r"(flags)
			 : "r"(flag), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory", "cc");
	*ret_flags = flags;
	return ret;
}

/* getppid by a site that can be patched. */
static long getppid_flagged(long flag, long *ret_flags)
{
	long ret, flags;

	__asm__ volatile("lea -128(%%rsp), %%rsp\n\t"
			 "pushfq\n\t"
			 "orq %2, (%%rsp)\n\t"
			 "popfq\n\t"
			 "movl $110, %%eax\n\t"
			 "syscall\n\t"
			 "pushfq\n\t"
			 "movq (%%rsp), %1\n\t"
			 "andq $~0x44000, (%%rsp)\n\t"
			 "popfq\n\t"
			 "lea 128(%%rsp), %%rsp"
			 : "=&a"(ret), "=&r"(flags)
			 : "r"(flag)
			 : "rcx", "r11", "memory", "cc");
	*ret_flags = flags;
	return ret;
}

/* As above: write(fd, buf, 3), to a pipe of which a thread of the test may be asleep. */
static long write_flagged(long flag, int fd, const void *buf)
{
	long ret;

	__asm__ volatile("lea -128(%%rsp), %%rsp\n\t"
			 "pushfq\n\t"
			 "orq %1, (%%rsp)\n\t"
			 "popfq\n\t"
			 "movl $1, %%eax\n\t"
			 "syscall\n\t"
			 "pushfq\n\t"
			 "andq $~0x44000, (%%rsp)\n\t"
			 "popfq\n\t"
			 "lea 128(%%rsp), %%rsp"
			 : "=&a"(ret)
			 : "r"(flag), "D"((long)fd), "S"(buf), "d"(3L)
			 : "rcx", "r11", "memory", "cc");
	return ret;
}

static volatile sig_atomic_t handled;

static void on_signal(int sig)
{
	handled = handled + 1;
}

/* The alignment and nested-task flags are a program's own: calls work, signals come. The second
 * is not asked for afterwards, since Linux does not always bring it back. */
static void test_flags(void)
{
	static char area[64] __attribute__((aligned(16)));
	const long kinds[] = { FLAG_AC, FLAG_NT, FLAG_AC | FLAG_NT };
	long flags;
	int fds[2];

	signal(SIGUSR1, on_signal);
	CHECK(pipe(fds) == 0);
	for (unsigned i = 0; i < 30; i++) {
		long flag = kinds[i % 3];

		CHECK(getppid_flagged(flag, &flags) == getppid());
		CHECK((flags & FLAG_AC) == (flag & FLAG_AC));
		CHECK(call_flagged(flag, SYS_clock_gettime, CLOCK_MONOTONIC, (long)area + 3, 0,
				   &flags) == 0);
		CHECK((flags & FLAG_AC) == (flag & FLAG_AC));
		CHECK(write_flagged(flag, fds[1], area + 5) == 3);
		CHECK(call_flagged(flag, SYS_read, fds[0], (long)area + 9, 3, &flags) == 3);
		CHECK(call_flagged(flag, SYS_kill, getpid(), SIGUSR1, 0, &flags) == 0);
		CHECK((flags & FLAG_AC) == (flag & FLAG_AC));
		CHECK(handled == (int)i + 1);
	}
	close(fds[0]);
	close(fds[1]);
	signal(SIGUSR1, SIG_DFL);
}

static uintptr_t wild_ip, wild_sp, wild_cx;

static void on_signal_wild(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	if (wild_ip != 0)
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)wild_ip;
	if (wild_cx != 0)
		uc->uc_mcontext.gregs[REG_RCX] = (greg_t)wild_cx;
	if (wild_sp != 0)
		uc->uc_mcontext.gregs[REG_RSP] = (greg_t)wild_sp;
}

static void wild_handler(uintptr_t handler, int sig, int flags)
{
	struct sigaction sa = { .sa_flags = flags };

	sa.sa_handler = (void (*)(int))handler;
	sigaction(sig, &sa, NULL);
	kill(getpid(), sig);
}

/* 0: it came back. */
static void wild_child(unsigned number)
{
	/* Not the guest kernel's own addresses: it is the program's to crash. */
	static const uintptr_t places[] = { NOWHERE, 0xffff800000000000UL, 0x800000000000UL };
	uintptr_t place = places[number % 3];
	struct sigaction sa = { .sa_flags = SA_SIGINFO, .sa_sigaction = on_signal_wild };

	alarm(20);
	switch (number / 3) {
	case 0:
		((void (*)(void))place)();
		break;
	case 1:
		wild_handler(place, SIGUSR1, 0);
		break;
	case 2:
		wild_handler(place, SIGSEGV, SA_NODEFER);
		break;
	case 3:
	case 4:
		wild_ip = place;
		wild_cx = number / 3 == 4 ? place : 0;
		sigaction(SIGUSR1, &sa, NULL);
		kill(getpid(), SIGUSR1);
		break;
	}
}

/* Whoever goes where nothing is dies of it, alone. */
static void test_wild_jumps(void)
{
	for (unsigned i = 0; i < 15; i++) {
		int status;
		pid_t pid;

		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			wild_child(i);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
			printf("# way %u to place %u: status 0x%x\n", i / 3, i % 3, status);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
	/* A stack pointer is found out when it is used. */
	for (unsigned i = 0; i < 2; i++) {
		struct sigaction sa = { .sa_flags = SA_SIGINFO, .sa_sigaction = on_signal_wild };
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			alarm(20);
			wild_sp = i == 0 ? NOWHERE : 0xffff800000000000UL;
			sigaction(SIGUSR1, &sa, NULL);
			kill(getpid(), SIGUSR1);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
		CHECK(WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
	}
}

/* What a pipe takes of memory that ends: whole pages, and nothing of the one that it ends in. */
static void test_pipe_bad_memory(void)
{
	char *p = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec parts[2] = { { p, 3 }, { p + 2 * 4096, 3 } };
	int fds[2], n = -1;

	CHECK(p != MAP_FAILED && munmap(p + 2 * 4096, 4096) == 0 && pipe(fds) == 0);
	CHECK(writev(fds[1], parts, 2) == -1 && errno == EFAULT);
	CHECK(write(fds[1], p + 4096 + 100, 4096) == -1 && errno == EFAULT);
	CHECK(ioctl(fds[0], FIONREAD, &n) == 0 && n == 0);
	CHECK(write(fds[1], p + 100, 2 * 4096) == 4096);
	CHECK(ioctl(fds[0], FIONREAD, &n) == 0 && n == 4096);
	close(fds[0]);
	close(fds[1]);
	munmap(p, 4 * 4096);
}

/* vmsplice: as much as there is room for, and back into memory. */
static void test_vmsplice(void)
{
	static char big[200000] __attribute__((aligned(4096))), back[100];
	struct iovec parts[2] = { { "hello ", 6 }, { "world", 5 } }, all = { big, sizeof(big) };
	struct iovec two[2] = { { back, 4 }, { back + 10, 90 } };
	int fds[2], null = open("/dev/null", O_WRONLY);

	CHECK(pipe(fds) == 0 && fcntl(fds[1], F_SETPIPE_SZ, 8192) == 8192);
	CHECK(vmsplice(null, parts, 2, 0) == -1 && errno == EBADF);
	CHECK(vmsplice(-1, parts, 2, 0) == -1 && errno == EBADF);
	CHECK(vmsplice(fds[1], parts, 2, 64) == -1 && errno == EINVAL);
	CHECK(vmsplice(fds[1], parts, 0, 0) == 0);
	CHECK(vmsplice(fds[0], two, 2, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
	CHECK(vmsplice(fds[1], parts, 2, 0) == 11);
	CHECK(vmsplice(fds[0], two, 2, 0) == 11);
	CHECK(memcmp(back, "hell", 4) == 0 && memcmp(back + 10, "o world", 7) == 0);
	CHECK(vmsplice(fds[1], &all, 1, 0) == 8192);
	CHECK(vmsplice(fds[1], &all, 1, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
	close(fds[0]);
	signal(SIGPIPE, SIG_IGN);
	CHECK(vmsplice(fds[1], parts, 2, 0) == -1 && errno == EPIPE);
	signal(SIGPIPE, SIG_DFL);
	close(fds[1]);
	close(null);
}

static const struct {
	const char *name;
	void (*fn)(void);
} tests[] = {
	{ "/proc/PID as a pidfd", test_proc_directory_as_pidfd },
	{ "System V shared memory", test_sysv_shm },
	{ "groups of a socket's peer", test_peer_groups },
	{ "mutexes with priority inheritance", test_pi_mutex },
	{ "flags that nobody expects", test_flags },
	{ "wild jumps", test_wild_jumps },
	{ "pipes and bad memory", test_pipe_bad_memory },
	{ "vmsplice", test_vmsplice },
	{ "inotify: removal", test_inotify_removal },
	{ "inotify: moves", test_inotify_moves },
	{ "inotify: paths and masks", test_inotify_paths },
	{ "inotify: files without a name", test_inotify_unlinked },
	{ "inotify: the queue", test_inotify_queue },
	{ "inotify: unmounting", test_inotify_unmount },
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
