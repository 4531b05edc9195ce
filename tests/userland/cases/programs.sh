# SPDX-License-Identifier: Apache-2.0
# C programs that use the C library's less common parts, and the sanitizers' address spaces.
cat >posix.c <<'E'
#define _GNU_SOURCE
#include <aio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <iconv.h>
#include <mqueue.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <wordexp.h>

#define T(x) do { long r_ = (long)(x); printf("%s: %ld\n", #x, r_); } while (0)

static void *sleeper(void *p)
{
	pthread_cleanup_push((void (*)(void *))puts, "cleaned up");
	sem_post(p);
	sleep(100);
	pthread_cleanup_pop(0);
	return NULL;
}

static ucontext_t home, away;
static void visit(void)
{
	for (int i = 0; i < 3; i++) {
		printf("away %d\n", i);
		swapcontext(&away, &home);
	}
}

static int deep(int n)
{
	volatile char pad[4096];

	pad[0] = (char)n;
	return n ? deep(n - 1) + (pad[0] == (char)n) : 0;
}

static volatile sig_atomic_t fired;
static void fire(int s) { (void)s; fired++; }

static void *robust(void *m)
{
	pthread_mutex_lock(m);
	return NULL;
}

static void *other(void *p)
{
	(void)p;
	execl("/bin/echo", "echo", "from a thread", (char *)NULL);
	return NULL;
}

static void threads(void)
{
	pthread_t t;
	void *r;
	sem_t s;
	pthread_mutexattr_t a;
	pthread_mutex_t m;

	sem_init(&s, 0, 0);
	pthread_create(&t, NULL, sleeper, &s);
	sem_wait(&s);
	int cancelled = pthread_cancel(t);	/* said after what the thread says */
	pthread_join(t, &r);
	T(cancelled);
	T(r == PTHREAD_CANCELED);
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&m, &a);
	pthread_create(&t, NULL, robust, &m);
	pthread_join(t, NULL);
	T(pthread_mutex_lock(&m) == EOWNERDEAD);
	T(pthread_mutex_consistent(&m));
	T(pthread_mutex_unlock(&m));
	sem_t *n = sem_open("/named", O_CREAT, 0600, 0);
	T(n != SEM_FAILED);
	if (!fork()) {
		sem_post(n);
		_exit(0);
	}
	T(sem_wait(n));
	wait(NULL);
	T(sem_unlink("/named"));
	struct timespec soon;
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 1000;
	T(sem_timedwait(n, &soon) == -1 && errno == ETIMEDOUT);
	cpu_set_t set;
	T(sched_getaffinity(0, sizeof set, &set));
	T(sched_getscheduler(0));
	T(sched_yield());
}

static void ipc(void)
{
	int id = shmget(IPC_PRIVATE, 100000, IPC_CREAT | 0600), fd, st;
	pid_t pid;

	if (id >= 0) {
		char *p = shmat(id, NULL, 0);
		if (!fork()) {
			strcpy(p, "shared");
			_exit(0);
		}
		wait(NULL);
		printf("sysv %s\n", p);
		shmdt(p);
		shmctl(id, IPC_RMID, NULL);
	} else {
		printf("shmget errno %d\n", errno);
	}
	fd = shm_open("/obj", O_CREAT | O_RDWR, 0600);
	T(ftruncate(fd, 8192));
	T(shm_unlink("/obj"));
	fd = inotify_init1(IN_NONBLOCK);
	T(inotify_add_watch(fd, ".", IN_CREATE | IN_DELETE | IN_MOVED_TO));
	close(creat("watched", 0600));
	rename("watched", "moved");
	unlink("moved");
	char b[1000] __attribute__((aligned(8)));
	long len = read(fd, b, sizeof b);
	for (char *p = b; p < b + len;) {
		struct inotify_event *e = (void *)p;
		printf("event %x %s\n", e->mask, e->name);
		p += sizeof *e + e->len;
	}
	char *argv[] = {"sh", "-c", "exit 4", NULL};
	T(posix_spawnp(&pid, "sh", NULL, NULL, argv, environ));
	waitpid(pid, &st, 0);
	T(WEXITSTATUS(st));
	argv[0] = "nowhere";
	T(posix_spawnp(&pid, "nowhere", NULL, NULL, argv, environ));
	if (!vfork())
		_exit(6);
	wait(&st);
	T(WEXITSTATUS(st));
	FILE *f = popen("wc -c", "w");
	fputs("12345", f);
	fflush(stdout);
	T(pclose(f));
}

static void timers(void)
{
	timer_t t;
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec i = {{0, 2000000}, {0, 2000000}}, got;
	struct timespec ts = {0, 5000000};
	unsigned long long n;

	signal(SIGUSR1, fire);
	T(timer_create(CLOCK_MONOTONIC, &e, &t));
	T(timer_settime(t, 0, &i, NULL));
	while (fired < 3)
		pause();
	T(timer_delete(t));
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	T(timerfd_settime(fd, 0, &i, NULL));
	nanosleep(&ts, NULL);
	T(read(fd, &n, 8));
	T(n >= 1);
	T(timerfd_gettime(fd, &got));
	T(clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL));
	signal(SIGPROF, fire);
	fired = 0;
	struct itimerval p = {{0, 10000}, {0, 10000}};
	setitimer(ITIMER_PROF, &p, NULL);
	while (fired < 3)
		;
	memset(&p, 0, sizeof p);
	setitimer(ITIMER_PROF, &p, NULL);
	struct rusage u;
	T(getrusage(RUSAGE_SELF, &u));
	T(u.ru_maxrss > 500);
	T(clock_getres(CLOCK_MONOTONIC, &ts) == 0 && ts.tv_nsec == 1);
}

static void memory(void)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *p = mmap(NULL, 1ul << 42, PROT_NONE, flags | MAP_NORESERVE, -1, 0);

	T(p != MAP_FAILED);
	T(mprotect(p + (1ul << 41), 4096, PROT_READ | PROT_WRITE));
	p[1ul << 41] = 1;
	T(munmap(p, 1ul << 42));
	p = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
	memset(p, 'x', 3 * 4096);
	munmap(p + 4096, 4096);
	T(msync(p, 3 * 4096, MS_SYNC) == -1 && errno == ENOMEM);
	unsigned char vec[3];
	T(mincore(p, 3 * 4096, vec) == -1 && errno == ENOMEM);
	char *q = mremap(p, 4096, 1 << 20, MREMAP_MAYMOVE);
	T(q != MAP_FAILED && q[0] == 'x' && q[5000] == 0);
	T(madvise(q, 4096, MADV_DONTNEED));
	T(q[0]);
	T(mlock(q, 4096));
	T(deep(1700) == 1700);
	T(mmap((void *)65536, 4096, PROT_READ, MAP_FIXED | flags, -1, 0) == (void *)65536);
	void *brk0 = sbrk(0);
	T(sbrk(1 << 20) == brk0);
	memset(brk0, 1, 1 << 20);
	T(brk(brk0));
	for (int i = 0; i < 3; i++) {
		void *big = malloc(200u << 20);
		memset(big, i, 10 << 20);
		free(big);
	}
	puts("done");
}

static void library(void)
{
	wordexp_t w;
	glob_t g;
	regex_t r;
	char in[] = "\xc3\xa9", out[8] = "", *ip = in, *op = out;
	size_t il = 2, ol = 8;

	T(wordexp("$HOME `echo sub` x", &w, 0));
	printf("%zu %s\n", w.we_wordc, w.we_wordv[1]);
	T(glob("/etc/pass*", 0, NULL, &g));
	T(regcomp(&r, "^(a+)b$", REG_EXTENDED));
	T(regexec(&r, "aaab", 0, NULL, 0));
	iconv_t c = iconv_open("UTF-16LE", "UTF-8");
	T(c != (iconv_t)-1 && iconv(c, &ip, &il, &op, &ol) == 0);
	printf("%02x\n", (unsigned char)out[0]);
	printf("%s\n", getpwuid(0)->pw_dir);
	void *h = dlopen("libm.so.6", RTLD_NOW);
	T(h && ((double (*)(double))dlsym(h, "cbrt"))(27) == 3);
	int fd = open("aio", O_CREAT | O_RDWR, 0600);
	struct aiocb a = {.aio_fildes = fd, .aio_buf = "async", .aio_nbytes = 5};
	const struct aiocb *l[] = {&a};
	T(aio_write(&a));
	while (aio_error(&a) == EINPROGRESS)
		aio_suspend(l, 1, NULL);
	T(aio_return(&a));
	static char stack[65536];
	getcontext(&away);
	away.uc_stack.ss_sp = stack;
	away.uc_stack.ss_size = sizeof stack;
	makecontext(&away, visit, 0);
	for (int i = 0; i < 3; i++)
		swapcontext(&home, &away);
	struct statvfs v;
	T(statvfs(".", &v));
	T(system("exit 2") >> 8);
	T(access("/etc/shadow", W_OK));
	T(sysconf(_SC_NPROCESSORS_ONLN) > 0);
	T(pathconf(".", _PC_NAME_MAX));
	T(nice(3));
	T(isatty(1));
}

int main(void)
{
	pthread_t t;

	setvbuf(stdout, NULL, _IOLBF, 0);
	threads();
	ipc();
	timers();
	memory();
	library();
	pthread_create(&t, NULL, other, NULL);
	pause();
}
E
gcc -O1 -w -pthread -o posix posix.c -lrt && ./posix
echo $?
echo "== sanitizers"
cat >bug.c <<'E'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int shared;
static void *touch(void *p)
{
	shared++;
	return p;
}
int main(int c, char **v)
{
	char *p = malloc(10);
	pthread_t t;

	memset(p, 0, 10);
	switch (v[1][0]) {
	case 'o':
		p[c + 8]++;
		break;
	case 't':
		pthread_create(&t, NULL, touch, NULL);
		shared++;
		pthread_join(t, NULL);
		break;
	case 's': return 2147483647 + c;
	}
	free(p);
	puts("clean");
	return 0;
}
E
for s in address undefined thread; do
	gcc -g -w -pthread -fsanitize=$s -o bug bug.c
	for bug in none over thread sum; do
		ASAN_OPTIONS=detect_leaks=0 ./bug $bug >out 2>err
		echo $s $bug $? $(cat out)
		grep -oE '(heap-[a-z-]*|data race|signed integer overflow)' err | head -1
	done
done
echo "== an executable stack, a huge bss, many sections"
cat >big.c <<'E'
#include <stdio.h>
static char zero[1 << 28];
int main(void)
{
	for (unsigned i = 0; i < sizeof zero; i += 1 << 24)
		zero[i] = 1;
	puts("bss");
	return zero[5];
}
E
gcc -z execstack -o big big.c && ./big
echo $?
gcc -static-pie -o big big.c && ./big
echo $?
gcc -no-pie -Wl,-z,norelro -o big big.c && ./big
echo $?
printf '#!/bin/sh -e\necho script $0 $1\n' >script
chmod +x script
./script arg
printf '#!./script\n' >nested
chmod +x nested
./nested x
printf 'echo no shebang\n' >bare
chmod +x bare
./bare
printf '\177ELFgarbage' >junk
chmod +x junk
./junk 2>/dev/null
echo $?
cp /bin/true t
chmod 644 t
./t 2>/dev/null
echo $?
cp big busy
exec 9>>busy
./busy 2>/dev/null
echo $?
exec 9>&-
(cp big running; ./running >/dev/null; echo $?; rm running)
