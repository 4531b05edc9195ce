/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzer of system calls: `sysfuzz SEED CALLS [WORKERS]` in a guest (tools/sysfuzz.sh) or, as a
 * check of the fuzzer, on the host. Workers make random calls of the table in calls.c; a
 * worker is one generation of GENERATION calls, with its own directory and a pool of
 * descriptors of every kind. A timer interrupts calls that wait. The supervisor starts the
 * next generation, kills workers that stand still, and adopts and reaps their orphans; when
 * CALLS calls were made all must end, and free memory must be about what it was.
 *
 * Success is the line "sysfuzz: ok". A process that SIGKILL does not end, or memory that is
 * gone, is a failure; a kernel that panics or stands still shows by the VM's end or by no
 * progress. What a worker does depends on the seed alone, but for the order in which workers
 * run and the results of calls.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/sysfuzz/sysfuzz.h"

#define WORKERS_MAX	4u
#define GENERATION	1500u		/* calls of one worker */
#define TICK_US		20000		/* a waiting call is interrupted after this */
#define STUCK_MS	2000		/* a worker without a call for so long is killed */
#define END_MS		20000		/* all processes must be gone by then */
#define LEAK_KB		4096		/* free memory may vary by this much */
#define THREAD_STACK	16384

struct slot {			/* shared between the supervisor and a worker's processes */
	volatile uint64_t calls;
	volatile uint32_t pids;
	volatile int pid[SLOT_PIDS];
};

static struct slot *slots;
static uint64_t goal;
static uint64_t seed;
static char top[64];
static unsigned total_weight;

void *fuzz_handler, *fuzz_restorer;
static struct fuzzer main_fuzzer;

/* ---- a worker ---- */

static void make_arena(void)
{
	raw6(SYS_mmap, ARENA, ARENA_PAGES * 4096, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

__attribute__((naked)) static void restorer(void)
{
	__asm__("mov $15, %eax; syscall");
}

/* The arena is the only memory the fuzzer stores to that calls may take away: put back. */
static void handler(int signo, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;

	if (signo != SIGSEGV && signo != SIGBUS)
		return;
	if (at < ARENA || at >= ARENA + ARENA_PAGES * 4096)
		RAW1(SYS_exit_group, 99);
	make_arena();
}

static void arm(void)
{
	struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		uint64_t mask;
	} sa = { fuzz_handler, SA_SIGINFO | 0x04000000, fuzz_restorer, 0 };
	struct itimerval tick = { { 0, TICK_US }, { 0, TICK_US } };
	static const int caught[] = { SIGALRM, SIGSEGV, SIGBUS, SIGUSR1, SIGUSR2, SIGPIPE,
				      SIGXFSZ, SIGVTALRM, SIGPROF, SIGIO };
	uint64_t none = 0;

	for (unsigned i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
		RAW4(SYS_rt_sigaction, caught[i], &sa, 0, 8);
	for (int i = 34; i < 65; i++)
		RAW4(SYS_rt_sigaction, i, &sa, 0, 8);
	RAW4(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, 8);
	RAW3(SYS_setitimer, ITIMER_REAL, &tick, 0);
}

static void rearm(void)
{
	struct itimerval tick = { { 0, TICK_US }, { 0, TICK_US } };
	uint64_t alarm = 1ul << (SIGALRM - 1);

	RAW4(SYS_rt_sigprocmask, SIG_UNBLOCK, &alarm, 0, 8);
	RAW3(SYS_setitimer, ITIMER_REAL, &tick, 0);
}

static void fuzz(struct fuzzer *f, unsigned calls_left);

/* Where a new process or thread begins; never returns. */
static void begin(struct fuzzer *parent, unsigned calls_left, unsigned kind)
{
	struct fuzzer f = *parent;

	f.pid = RAW0(SYS_getpid);
	f.tid = RAW0(SYS_gettid);
	f.child = 0;
	f.depth++;
	f.random ^= 0x9e3779b97f4a7c15ul * (kind + 1);
	f.cursor = fuzz_below(&f, 64);
	rearm();
	fuzz(&f, calls_left);
	RAW1(SYS_exit, 0);
	__builtin_unreachable();
}

static void note_child(struct fuzzer *f, long pid)
{
	struct slot *s = &slots[f->worker];

	if (pid <= 0)
		return;
	f->child = pid;
	s->pid[__atomic_fetch_add(&s->pids, 1, __ATOMIC_RELAXED) % SLOT_PIDS] = (int)pid;
}

static void do_fork(struct fuzzer *f, long flags)
{
	long pid = raw6(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0, 0);

	if (pid == 0)
		begin(f, 20 + fuzz_below(f, 60), 1);
	note_child(f, pid);
	if (fuzz_chance(f, 3))
		RAW4(SYS_wait4, pid, 0, fuzz_chance(f, 2) ? 0 : WNOHANG, 0);
}

static void do_vfork(struct fuzzer *f)
{
	long pid = raw6(SYS_clone, 0x4100 | SIGCHLD, 0, 0, 0, 0, 0);

	if (pid == 0) {
		RAW3(SYS_execve, "/nowhere", 0, 0);
		RAW1(SYS_exit, 3);
	}
	note_child(f, pid);
}

struct birth {			/* at the top of a new thread's stack */
	struct fuzzer *f;
	unsigned calls;
};

__attribute__((used)) static void thread_main(struct birth *b)
{
	begin(b->f, b->calls, 2);
}

/* clone() with a stack of its own, for flags with CLONE_VM. */
__attribute__((naked)) static long clone_thread(long flags, void *stack, struct birth *b)
{
	__asm__("push %rbx\n\t"
		"mov %rdx, %rbx\n\t"
		"xor %edx, %edx\n\t"
		"xor %r10d, %r10d\n\t"
		"xor %r8d, %r8d\n\t"
		"mov $56, %eax\n\t"
		"syscall\n\t"
		"test %eax, %eax\n\t"
		"jz 1f\n\t"
		"pop %rbx\n\t"
		"ret\n"
		"1:\n\t"
		"mov %rbx, %rdi\n\t"
		"call thread_main");
}

static void do_thread(struct fuzzer *f, long flags)
{
	long at = raw6(SYS_mmap, 0, THREAD_STACK, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct fuzzer *copy = (struct fuzzer *)at;
	struct birth *b = (struct birth *)(at + 256);
	long tid;

	if (at < 0 && at > -4096)
		return;
	*copy = *f;
	b->f = copy;
	b->calls = 20 + fuzz_below(f, 60);
	tid = clone_thread(flags | 0x100, (void *)(at + THREAD_STACK - 64), b);
	if (!(flags & 0x10000))
		note_child(f, tid);
}

/* A child restores a signal frame from noise: it dies, and nothing else happens. */
static void do_sigreturn(struct fuzzer *f)
{
	static const struct argument noise = { A_OUT, NULL };
	long sp = fuzz_argument(f, &noise);
	long pid = raw6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);

	if (pid == 0) {
		if (sp >= 0x7f0000000000 || sp < (long)ARENA || fuzz_chance(f, 2)) {
			sp = sp < (long)ARENA ? sp : (long)(ARENA + ARENA_PAGES * 4096 - 100);
		} else {
			/* No wild program counter: at worst it would run kernel text. */
			memset((void *)(sp & ~0xfful), 0, 256);
			sp &= ~0xffl;
		}
		__asm__ volatile("mov %0, %%rsp; mov $15, %%eax; syscall; ud2" : : "r"(sp));
	}
	note_child(f, pid);
}

static void do_special(struct fuzzer *f, enum special what)
{
	static const long share[] = { 0x200, 0x400, 0x10000000, 0x20000000, 0x4000000,
				      0x1000, 0x01000000, 0x8000, 0x80000000 };
	long flags = 0;

	if (what == S_EXIT) {
		if (fuzz_chance(f, 4))
			RAW1(fuzz_chance(f, 2) ? SYS_exit : SYS_exit_group, 5);
		return;
	}
	if (what == S_FILL) {
		make_arena();
		return;
	}
	if (f->depth >= 3)
		return;
	for (unsigned i = fuzz_below(f, 3); i > 0; i--)
		flags |= share[fuzz_below(f, sizeof(share) / sizeof(share[0]))];
	switch (what) {
	case S_FORK:
		do_fork(f, 0);
		break;
	case S_VFORK:
		do_vfork(f);
		break;
	case S_THREAD:
		do_thread(f, 0x10f00);
		break;
	case S_SIGRETURN:
		do_sigreturn(f);
		break;
	default:
		/* CLONE_SIGHAND and CLONE_THREAD by the rules, and not. */
		if (fuzz_chance(f, 2))
			do_thread(f, flags | (fuzz_chance(f, 2) ? 0x800 : 0));
		else
			do_fork(f, flags);
	}
}

static const struct call *choose(struct fuzzer *f)
{
	unsigned at = fuzz_below(f, total_weight);
	const struct call *c = calls;

	while (at >= c->weight)
		at -= (c++)->weight;
	return c;
}

static void fuzz(struct fuzzer *f, unsigned calls_left)
{
	struct slot *s = &slots[f->worker];

	for (; calls_left > 0; calls_left--) {
		const struct call *c = choose(f);
		long a[6];

		if (calls_left % 64 == 0)
			arm();
		else if (calls_left % 8 == 0)
			rearm();
		__atomic_fetch_add(&s->calls, 1, __ATOMIC_RELAXED);
		if (c->nr < 0) {
			do_special(f, (enum special)c->nr);
			continue;
		}
		for (unsigned i = 0; i < 6; i++)
			a[i] = fuzz_argument(f, &c->args[i]);
		raw6(c->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
}

/* Descriptors from 3 on, some of every kind. A failure leaves the pool smaller, no more. */
static void make_descriptors(void)
{
	sigset_t set;
	int p[2], ep;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	(void)!open("f0", O_RDWR | O_CREAT, 0600);
	(void)!open("f1", O_RDWR | O_CREAT | O_APPEND, 0600);
	(void)!open(".", O_RDONLY | O_DIRECTORY);
	(void)!open("f0", O_PATH);
	(void)!pipe(p);
	(void)!pipe2(p, O_NONBLOCK);
	socketpair(AF_UNIX, SOCK_STREAM, 0, p);
	socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, p);
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p);
	socket(AF_UNIX, SOCK_STREAM, 0);
	socket(AF_INET, SOCK_STREAM, 0);
	eventfd(0, EFD_NONBLOCK);
	eventfd(1, EFD_SEMAPHORE);
	timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	signalfd(-1, &set, SFD_NONBLOCK);
	ep = epoll_create1(0);
	epoll_ctl(ep, EPOLL_CTL_ADD, 7, &(struct epoll_event){ .events = EPOLLIN });
	epoll_create1(0);
	inotify_init1(IN_NONBLOCK);
	memfd_create("m", MFD_ALLOW_SEALING);
	p[0] = posix_openpt(O_RDWR | O_NOCTTY);
	if (p[0] >= 0) {
		grantpt(p[0]);
		unlockpt(p[0]);
		(void)!open(ptsname(p[0]), O_RDWR | O_NOCTTY);
	}
	(void)!open("/dev/null", O_RDWR);
	(void)!open("/dev/zero", O_RDWR);
	(void)!open("/proc/self/maps", O_RDONLY);
	(void)!open("/proc/self/mem", O_RDONLY);
	(void)!open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
	(void)!open("/proc/meminfo", O_RDONLY);
	syscall(SYS_pidfd_open, getpid(), 0);
}

static void set_limit(int which, rlim_t n)
{
	struct rlimit r = { n, n };

	setrlimit(which, &r);
}

static void worker(unsigned number, unsigned generation)
{
	struct fuzzer *f = &main_fuzzer;
	char dir[96];
	int null;

	setsid();
	snprintf(dir, sizeof(dir), "%s/%u", top, number);
	mkdir(dir, 0700);
	if (chdir(dir) != 0)
		_exit(98);
	mkdir("d0", 0700);
	mkdir("d1", 0700);
	(void)!symlink("f0", "link");
	(void)!symlink("loop", "loop");
	mkfifo("fifo", 0600);
	null = open("/dev/null", O_RDWR);
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	close_range(3, ~0u, 0);
	set_limit(RLIMIT_NOFILE, FD_LIMIT);
	set_limit(RLIMIT_FSIZE, 8u << 20);
	set_limit(RLIMIT_AS, 64u << 20);
	set_limit(RLIMIT_CORE, 0);
	make_descriptors();
	make_arena();
	*f = (struct fuzzer){
		.random = seed * 0x9e3779b97f4a7c15ul + number * 7919 + generation * 104729 + 1,
		.pid = getpid(), .tid = getpid(), .worker = number,
	};
	arm();
	fuzz(f, GENERATION);
	_exit(0);
}

/* ---- the supervisor ---- */

struct watched {
	int pid;
	uint64_t calls;
	int64_t since;		/* ms: when calls last changed */
};

static struct watched watched[WORKERS_MAX];
static unsigned generations, killed;

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static long free_kb(void)
{
	char line[128];
	FILE *f = fopen("/proc/meminfo", "r");
	long kb = -1;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "MemFree: %ld", &kb) == 1)
			break;
	if (f != NULL)
		fclose(f);
	return kb;
}

static void remove_tree(const char *path, unsigned depth)
{
	char sub[4096];
	struct dirent *e;
	DIR *d;

	if (unlink(path) == 0)
		return;
	d = depth < 8 ? opendir(path) : NULL;
	while (d != NULL && (e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (snprintf(sub, sizeof(sub), "%s/%s", path, e->d_name) < (int)sizeof(sub))
			remove_tree(sub, depth + 1);
	}
	if (d != NULL)
		closedir(d);
	rmdir(path);
}

/* System V segments outlive those who made them. */
static void remove_segments(void)
{
	struct shmid_ds ds;

	for (int i = 0; i < 4096; i++) {
		int id = shmctl(i, SHM_STAT, &ds);

		if (id >= 0)
			shmctl(id, IPC_RMID, NULL);
	}
}

static void kill_family(unsigned number)
{
	struct slot *s = &slots[number];

	if (watched[number].pid > 0)
		kill(watched[number].pid, SIGKILL);
	for (unsigned i = 0; i < SLOT_PIDS; i++)
		if (s->pid[i] > 0)
			kill(s->pid[i], SIGKILL);
}

static void start_worker(unsigned number)
{
	char dir[96];
	int pid;

	kill_family(number);
	memset((void *)slots[number].pid, 0, sizeof(slots[number].pid));
	snprintf(dir, sizeof(dir), "%s/%u", top, number);
	remove_tree(dir, 0);
	pid = fork();
	if (pid == 0)
		worker(number, generations);
	generations++;
	watched[number] = (struct watched){ pid, slots[number].calls, now_ms() };
}

static void reap(unsigned workers)
{
	int pid, status;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
		for (unsigned i = 0; i < workers; i++)
			if (watched[i].pid == pid)
				watched[i].pid = 0;
}

/* Orphans that no table names: children of ours by now. Returns how many; with `say`, which. */
static unsigned kill_children(bool say)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	unsigned n = 0;

	while (d != NULL && (e = readdir(d)) != NULL) {
		char name[300], text[512] = "", state = 0;
		int fd, parent = 0, pid = atoi(e->d_name);
		char *p;

		snprintf(name, sizeof(name), "/proc/%s/stat", e->d_name);
		fd = pid > 0 ? open(name, O_RDONLY) : -1;
		if (fd < 0)
			continue;
		(void)!read(fd, text, sizeof(text) - 1);
		close(fd);
		p = strrchr(text, ')');
		if (p == NULL || sscanf(p, ") %c %d", &state, &parent) != 2 || parent != getpid())
			continue;
		kill(pid, SIGKILL);
		n++;
		if (!say)
			continue;
		printf("sysfuzz: left: %s", text);
		snprintf(name, sizeof(name), "cat /proc/%d/status /proc/%d/wchan", pid, pid);
		fflush(stdout);
		(void)!system(name);
	}
	if (d != NULL)
		closedir(d);
	return n;
}

/* Kills and reaps whatever is left. False: something does not die. */
static bool end_all(unsigned workers)
{
	int64_t until = now_ms() + END_MS;
	int pid;

	for (;;) {
		for (unsigned i = 0; i < workers; i++)
			kill_family(i);
		while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) > 0)
			;
		if (pid < 0 && errno == ECHILD) {
			remove_segments();
			return true;
		}
		kill_children(false);
		if (now_ms() > until) {
			kill_children(true);
			return false;
		}
		sleep_ms(10);
	}
}

static bool run_until(uint64_t target, unsigned workers)
{
	uint64_t total, shown = 0;

	for (unsigned i = 0; i < workers; i++)
		start_worker(i);
	for (;;) {
		int64_t now = now_ms();

		total = 0;
		reap(workers);
		for (unsigned i = 0; i < workers; i++) {
			struct watched *w = &watched[i];

			total += slots[i].calls;
			if (w->pid <= 0) {
				start_worker(i);
			} else if (w->calls != slots[i].calls) {
				w->calls = slots[i].calls;
				w->since = now;
			} else if (now - w->since > STUCK_MS) {
				killed++;
				kill_family(i);
				w->since = now;
			}
		}
		if (total / 2000 != shown) {
			shown = total / 2000;
			printf("sysfuzz: %lu calls\n", total);
			fflush(stdout);
		}
		if (total >= target)
			break;
		sleep_ms(20);
	}
	return end_all(workers);
}

int main(int argc, char **argv)
{
	unsigned workers = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 3;
	long before, after;
	bool ended;

	/* A worker that executes this program gives it arguments of any kind. */
	if (argc < 3 || strcmp(argv[0], "exit") == 0 || argv[1][0] < '0' ||
	    argv[1][0] > '9' || workers < 1 || workers > WORKERS_MAX) {
		fprintf(stderr, "usage: sysfuzz SEED CALLS [WORKERS 1-%u]\n", WORKERS_MAX);
		return 2;
	}
	seed = strtoul(argv[1], NULL, 0);
	goal = strtoul(argv[2], NULL, 0);
	fuzz_handler = (void *)(uintptr_t)handler;
	fuzz_restorer = (void *)(uintptr_t)restorer;
	for (unsigned i = 0; i < calls_count; i++)
		total_weight += calls[i].weight;
	/* The guest has no namespaces (EINVAL); elsewhere others' segments are not ours. */
	if (unshare(CLONE_NEWIPC) != 0 && errno != EINVAL) {
		perror("sysfuzz: a namespace of its own for System V memory");
		return 2;
	}
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	slots = mmap(NULL, sizeof(*slots) * WORKERS_MAX, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(top, sizeof(top), "/tmp/sysfuzz.%d", getpid());
	if (slots == MAP_FAILED || mkdir(top, 0700) != 0) {
		perror("sysfuzz");
		return 2;
	}
	/* The first part fills caches and tables; what is gone after the second is lost. */
	ended = run_until(goal / 3, workers);
	before = free_kb();
	ended = ended && run_until(goal, workers);
	remove_tree(top, 0);
	after = free_kb();
	printf("sysfuzz: seed %lu: %u workers, %u generations, %u killed, free %ld -> %ld kB\n",
	       seed, workers, generations, killed, before, after);
	if (!ended) {
		printf("sysfuzz: failed: a process does not end\n");
		return 1;
	}
	if (getenv("SYSFUZZ_NO_LEAK") == NULL && before - after > LEAK_KB) {
		printf("sysfuzz: failed: memory is lost\n");
		return 1;
	}
	printf("sysfuzz: ok\n");
	return 0;
}
