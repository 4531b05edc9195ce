/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A workload that checks itself, to be stopped, saved, restored and forked at any moment:
 *
 *   selfcheck SECONDS    runs that long
 *   selfcheck            runs until something comes, or ends, on its standard input
 *
 * The first process forks workers and prints `ok N` each second while all of them get on. Each
 * worker repeats one thing whose outcome is known and counts its rounds in shared memory: memory
 * and a file rewritten with the next numbers of a generator after the old ones were checked,
 * numbers sent round a ring of processes, a stream of bytes through a pipe, interval timers,
 * timers on the realtime clock, two threads that wake each other by a futex, this program
 * executed again and again. All of them check that the monotonic clock never goes back, in any
 * of them, and that CPU time is no more than the time there was.
 *
 * At its start, and each time it finds itself in another VM (boot_id differs), it prints
 * `vm BOOT_ID RANDOM`, 16 bytes of getrandom(2): they differ in all children of one snapshot.
 * The last line is `selfcheck: passed`, or what broke first, with status 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS		1000000ull
#define SEC		1000000000ull
#define MEMORY_WORDS	(4u << 20 >> 3)
#define FILE_BYTES	(192u << 10)
#define STANDSTILL	(60 * SEC)	/* a worker without a round for so long hangs */
#define LATE		(20 * SEC)	/* busy and emulated is slow; a lost timer never comes */

enum worker { MEMORY, FILES, RING, STREAM, TIMERS, REALTIME, FUTEX, EXEC, WORKERS };
static const char *const names[WORKERS] = {
	"memory", "file", "ring", "stream", "timers", "realtime timers", "futex", "exec",
};

static struct shared {
	atomic_bool stop, failed;
	char why[256];
	_Atomic uint64_t monotonic;	/* the latest reading of anybody */
	_Atomic uint64_t rounds[WORKERS];
	uint32_t ball, turns;		/* FUTEX */
} *shared;

static enum worker self;
static uint64_t cpu0, mono0;

/* The first failure is told; everybody ends. */
static _Noreturn __attribute__((format(printf, 1, 2))) void broken(const char *format, ...)
{
	va_list args;

	if (!atomic_exchange(&shared->failed, true)) {
		int n = snprintf(shared->why, 64, "%s: ", names[self]);

		va_start(args, format);
		vsnprintf(shared->why + n, sizeof(shared->why) - (size_t)n, format, args);
		va_end(args);
	}
	atomic_store(&shared->stop, true);
	_exit(1);
}

#define MUST(x) \
	do { \
		if (!(x)) \
			broken("line %d: %s (%s)", __LINE__, #x, strerror(errno)); \
	} while (0)

static uint64_t clock_ns(clockid_t id, bool by_call)
{
	struct timespec ts;
	long r = by_call ? syscall(SYS_clock_gettime, id, &ts) : clock_gettime(id, &ts);

	MUST(r == 0);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

/* Now, checked against the latest reading there was in any process. */
static uint64_t monotonic(void)
{
	static unsigned calls;
	uint64_t before = atomic_load(&shared->monotonic);
	uint64_t now = clock_ns(CLOCK_MONOTONIC, ++calls & 1), latest = before;

	if (now < before)
		broken("the monotonic clock went back by %llu ns, read %s",
		       (unsigned long long)(before - now), calls & 1 ? "by a call" : "in the vDSO");
	while (latest < now && !atomic_compare_exchange_weak(&shared->monotonic, &latest, now))
		;
	return now;
}

static bool going_on(void)
{
	return !atomic_load(&shared->stop);
}

static uint64_t cpu_time(void)
{
	struct rusage u;

	MUST(getrusage(RUSAGE_SELF, &u) == 0);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * SEC +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

/* A round is done. */
static void round_done(void)
{
	/* In this order: CPU time is read first, so it can only be less. Two threads may have
	 * two processors. */
	uint64_t cpu = cpu_time(), now = monotonic();

	if (cpu - cpu0 > (now - mono0) * (self == FUTEX ? 2 : 1) + 20 * MS)
		broken("%llu ns of CPU time in %llu ns", (unsigned long long)(cpu - cpu0),
		       (unsigned long long)(now - mono0));
	atomic_fetch_add(&shared->rounds[self], 1);
}

static uint64_t next(uint64_t x)
{
	return x * 6364136223846793005ull + 1442695040888963407ull;
}

static void nap(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / SEC), (long)(ns % SEC) };

	while (nanosleep(&ts, &ts) != 0 && errno == EINTR)
		;
}

/* ---- memory, files ---- */

static void memory_worker(void)
{
	uint64_t *words = mmap(NULL, MEMORY_WORDS * 8, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t old = 1, new, pass;

	MUST(words != MAP_FAILED);
	for (pass = 0; going_on(); pass++) {
		uint64_t expected = old;

		new = old ^ (pass + 1) << 32;
		for (uint64_t i = 0, x = new; i < MEMORY_WORDS; i++) {
			if (words[i] != (pass == 0 ? 0 : expected))
				broken("word %llu of pass %llu is %llx, not %llx",
				       (unsigned long long)i, (unsigned long long)pass,
				       (unsigned long long)words[i],
				       (unsigned long long)expected);
			expected = next(expected);
			words[i] = x;
			x = next(x);
		}
		old = new;
		round_done();
	}
}

static void buffer_fill(uint64_t *buf, uint64_t x)
{
	for (size_t i = 0; i < FILE_BYTES / 8; i++, x = next(x))
		buf[i] = x;
}

static void file_worker(void)
{
	static uint64_t buf[FILE_BYTES / 8], back[FILE_BYTES / 8];
	char name[2][64];
	struct stat st;
	uint64_t *map;
	int fd;

	for (unsigned i = 0; i < 2; i++)
		snprintf(name[i], sizeof(name[i]), "/tmp/selfcheck.%d.%u", (int)getpid(), i);
	for (uint64_t n = 0; going_on(); n++) {
		size_t at, part;

		buffer_fill(buf, n);
		fd = open(name[0], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		MUST(fd >= 0);
		for (at = 0; at < FILE_BYTES; at += part) {
			part = (n * 7919 + at) % 30000 + 1;
			if (part > FILE_BYTES - at)
				part = FILE_BYTES - at;
			MUST(write(fd, (char *)buf + at, part) == (ssize_t)part);
		}
		MUST(rename(name[0], name[1]) == 0);
		MUST(stat(name[1], &st) == 0 && st.st_size == FILE_BYTES);
		MUST(pread(fd, back, FILE_BYTES, 0) == FILE_BYTES);
		MUST(memcmp(buf, back, FILE_BYTES) == 0);
		map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		MUST(map != MAP_FAILED);
		map[n % (FILE_BYTES / 8)] ^= n;
		buf[n % (FILE_BYTES / 8)] ^= n;
		MUST(pread(fd, back, FILE_BYTES, 0) == FILE_BYTES);
		MUST(memcmp(buf, back, FILE_BYTES) == 0 && memcmp(buf, map, FILE_BYTES) == 0);
		MUST(munmap(map, FILE_BYTES) == 0 && close(fd) == 0);
		MUST(unlink(name[1]) == 0 && stat(name[1], &st) < 0 && errno == ENOENT);
		round_done();
	}
}

/* ---- pipes ---- */

static bool read_all(int fd, void *buf, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = read(fd, (char *)buf + at, size - at);

		if (n == 0 && at == 0)
			return false;
		MUST(n > 0);
		at += (size_t)n;
	}
	return true;
}

/* Each hands on the number plus one; who began finds three more. */
static void ring_worker(void)
{
	int p[3][2];
	pid_t pids[2];
	uint64_t seq = 0, back;

	for (unsigned i = 0; i < 3; i++)
		MUST(pipe(p[i]) == 0);
	for (unsigned i = 0; i < 2; i++) {
		pids[i] = fork();
		MUST(pids[i] >= 0);
		if (pids[i] != 0)
			continue;
		for (unsigned k = 0; k < 3; k++) {
			if (k != i)
				close(p[k][0]);
			if (k != i + 1)
				close(p[k][1]);
		}
		for (uint64_t expected = i; read_all(p[i][0], &seq, 8); expected += 3) {
			if (seq != expected)
				broken("%llu came instead of %llu", (unsigned long long)seq,
				       (unsigned long long)expected);
			monotonic();
			seq++;
			MUST(write(p[i + 1][1], &seq, 8) == 8);
		}
		_exit(0);
	}
	close(p[0][0]);
	close(p[1][0]);
	close(p[1][1]);
	close(p[2][1]);
	for (; going_on(); seq += 3) {
		MUST(write(p[0][1], &seq, 8) == 8);
		MUST(read_all(p[2][0], &back, 8) && back == seq + 2);
		round_done();
	}
	close(p[0][1]);
	for (unsigned i = 0; i < 2; i++)
		MUST(waitpid(pids[i], NULL, 0) == pids[i]);
}

/* Written in pieces of one length, read in pieces of another: the pipe is mostly full. */
static void stream_worker(void)
{
	uint8_t buf[9000];
	uint64_t x = 1, y = 1;
	int p[2];
	pid_t pid;

	MUST(pipe(p) == 0);
	pid = fork();
	MUST(pid >= 0);
	if (pid == 0) {
		close(p[0]);
		while (going_on()) {
			size_t n = x >> 40 & 8191;

			for (size_t i = 0; i <= n; i++, x = next(x))
				buf[i] = (uint8_t)(x >> 33);
			MUST(write(p[1], buf, n + 1) == (ssize_t)n + 1);
		}
		_exit(0);
	}
	close(p[1]);
	for (;;) {
		ssize_t n = read(p[0], buf, (y >> 41) % sizeof(buf) + 1);

		MUST(n >= 0);
		if (n == 0)
			break;
		for (ssize_t i = 0; i < n; i++, y = next(y)) {
			if (buf[i] != (uint8_t)(y >> 33))
				broken("byte %lld of a piece is wrong", (long long)i);
		}
		round_done();
	}
	MUST(waitpid(pid, NULL, 0) == pid);
}

/* ---- timers ---- */

static volatile sig_atomic_t alarms;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

/* Every expiration is counted, and none comes early. */
static void timers_worker(void)
{
	struct itimerspec every = { { 0, 10 * MS }, { 0, 10 * MS } };
	struct itimerval often = { { 0, 20000 }, { 0, 20000 } };
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	uint64_t start, armed, before, now, total = 0, n, alarm_at;
	sig_atomic_t seen = 0, got;

	MUST(fd >= 0);
	signal(SIGALRM, on_alarm);
	start = alarm_at = monotonic();
	MUST(timerfd_settime(fd, 0, &every, NULL) == 0);
	armed = monotonic();
	MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
	while (going_on()) {
		before = monotonic();
		while (read(fd, &n, 8) != 8)
			MUST(errno == EINTR);
		got = alarms;
		now = monotonic();
		total += n;
		if (total > (now - start) / (10 * MS))
			broken("%llu expirations of 10 ms in %llu ns", (unsigned long long)total,
			       (unsigned long long)(now - start));
		if (total < (before - armed) / (10 * MS))
			broken("only %llu expirations of 10 ms in %llu ns",
			       (unsigned long long)total, (unsigned long long)(before - armed));
		if ((uint64_t)got > (now - start) / (20 * MS))
			broken("%d alarms of 20 ms in %llu ns", (int)got,
			       (unsigned long long)(now - start));
		if (got != seen) {
			seen = got;
			alarm_at = now;
		} else if (now - alarm_at > LATE) {
			broken("no alarm of 20 ms for %llu ns",
			       (unsigned long long)(now - alarm_at));
		}
		round_done();
	}
}

/* Deadlines on the realtime clock, which may jump ahead: never early, never lost, by timerfd
 * and by clock_nanosleep in turn. A monotonic sleep is as long as it was told to be. */
static void realtime_worker(void)
{
	int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC);
	struct itimerspec spec = { .it_interval = { 0, 0 } };
	uint64_t due, began, n;

	MUST(fd >= 0);
	for (unsigned turn = 0; going_on(); turn++) {
		began = monotonic();
		due = clock_ns(CLOCK_REALTIME, turn & 2) + 100 * MS;
		spec.it_value = (struct timespec){ (time_t)(due / SEC), (long)(due % SEC) };
		if (turn & 1) {
			MUST(timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0);
			MUST(read(fd, &n, 8) == 8 && n == 1);
		} else {
			MUST(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &spec.it_value,
					     NULL) == 0);
		}
		if (clock_ns(CLOCK_REALTIME, turn & 4) < due)
			broken("a timer of the realtime clock was early");
		if (monotonic() - began > LATE)
			broken("100 ms of the realtime clock took %llu ns",
			       (unsigned long long)(monotonic() - began));
		began = monotonic();
		nap(50 * MS);
		n = monotonic() - began;
		if (n < 50 * MS || n > LATE)
			broken("50 ms of the monotonic clock took %llu ns",
			       (unsigned long long)n);
		round_done();
	}
}

/* ---- threads ---- */

static void futex(uint32_t *word, int op, uint32_t value)
{
	struct timespec limit = { LATE / SEC, 0 };

	if (syscall(SYS_futex, word, op, value, &limit, NULL, 0) < 0 && errno == ETIMEDOUT)
		broken("nobody woke a futex for %llu ns", (unsigned long long)LATE);
}

/* The ball is an even number for one, an odd one for the other; at the end it is not caught. */
static void *player(void *arg)
{
	uint32_t mine = (uint32_t)(uintptr_t)arg, ball;

	for (;;) {
		while ((ball = __atomic_load_n(&shared->ball, __ATOMIC_SEQ_CST)) % 2 != mine)
			futex(&shared->ball, FUTEX_WAIT, ball);
		if (ball != shared->turns)
			broken("turn %u with ball %u", shared->turns, ball);
		if (mine == 0)
			round_done();
		shared->turns = ball + 1;
		__atomic_store_n(&shared->ball, ball + 1, __ATOMIC_SEQ_CST);
		futex(&shared->ball, FUTEX_WAKE, 1);
		if (!going_on() && mine == 1)
			_exit(0);
	}
}

static void futex_worker(void)
{
	pthread_t thread;

	MUST(pthread_create(&thread, NULL, player, (void *)1) == 0);
	player(NULL);
}

/* ---- fork and exec ---- */

/* What an executed child says: its number, and random bytes of two kinds. */
struct hello {
	uint64_t number;
	uint8_t at_random[16], random[16];
};

static int exec_child(const char *number)
{
	struct hello hello = { .number = strtoull(number, NULL, 10) };

	memcpy(hello.at_random, (void *)getauxval(AT_RANDOM), 16);
	if (getrandom(hello.random, 16, 0) != 16 ||
	    write(3, &hello, sizeof(hello)) != (ssize_t)sizeof(hello))
		return 255;
	return (int)(hello.number % 251);
}

static void exec_worker(void)
{
	static uint8_t past[64][16];
	struct hello hello;
	char number[24];
	unsigned npast = 0;
	int p[2], status;
	pid_t pid;

	for (uint64_t n = 0; going_on(); n++) {
		snprintf(number, sizeof(number), "%llu", (unsigned long long)n);
		MUST(pipe2(p, O_CLOEXEC) == 0);
		pid = fork();
		MUST(pid >= 0);
		if (pid == 0) {
			if (p[1] == 3 ? fcntl(3, F_SETFD, 0) < 0 : dup2(p[1], 3) < 0)
				_exit(254);
			execl("/proc/self/exe", "selfcheck", "--child", number, (char *)NULL);
			_exit(253);
		}
		close(p[1]);
		MUST(read_all(p[0], &hello, sizeof(hello)) && hello.number == n);
		MUST(waitpid(pid, &status, 0) == pid);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != (int)(n % 251))
			broken("child %llu ended with status %x", (unsigned long long)n, status);
		close(p[0]);
		for (unsigned i = 0; i < 64; i++) {
			if (memcmp(past[i], hello.at_random, 16) == 0 ||
			    memcmp(past[i], hello.random, 16) == 0)
				broken("child %llu got random bytes that were given out before",
				       (unsigned long long)n);
		}
		memcpy(past[npast++ % 64], hello.at_random, 16);
		memcpy(past[npast++ % 64], hello.random, 16);
		round_done();
	}
}

/* ---- the first process ---- */

static void (*const workers[WORKERS])(void) = {
	memory_worker, file_worker, ring_worker, stream_worker,
	timers_worker, realtime_worker, futex_worker, exec_worker,
};
static pid_t pids[WORKERS];

static void workers_start(void)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		pids[i] = fork();
		if (pids[i] != 0)
			continue;
		self = (enum worker)i;
		cpu0 = cpu_time();
		mono0 = monotonic();
		workers[i]();
		_exit(0);
	}
}

static const char *boot_id(void)
{
	static char id[40];
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, id, sizeof(id) - 1);

	close(fd);
	id[n < 36 ? 0 : 36] = 0;
	return id;
}

static void vm_tell(void)
{
	static char known[40];
	const char *id = boot_id();
	uint8_t bytes[16];

	if (*known && strcmp(known, id) == 0)
		return;
	strcpy(known, id);
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return;
	printf("vm %s ", id);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

/* Whether a worker has ended, though nobody told it to, or stands still. */
static bool workers_fail(void)
{
	static uint64_t seen[WORKERS], since[WORKERS];
	uint64_t now = clock_ns(CLOCK_MONOTONIC, false), rounds;
	int status;

	for (unsigned i = 0; i < WORKERS; i++) {
		if (waitpid(pids[i], &status, WNOHANG) != 0) {
			if (!atomic_exchange(&shared->failed, true))
				snprintf(shared->why, sizeof(shared->why),
					 "%s: ended with status %x", names[i], status);
			return true;
		}
		rounds = atomic_load(&shared->rounds[i]);
		if (rounds != seen[i] || since[i] == 0) {
			seen[i] = rounds;
			since[i] = now;
		} else if (now - since[i] > STANDSTILL) {
			if (!atomic_exchange(&shared->failed, true))
				snprintf(shared->why, sizeof(shared->why),
					 "%s: stands still after %llu rounds", names[i],
					 (unsigned long long)rounds);
			return true;
		}
	}
	return atomic_load(&shared->failed);
}

static void workers_stop(void)
{
	int status;

	atomic_store(&shared->stop, true);
	for (unsigned tries = 0, left = WORKERS; left > 0 && tries < 6000; tries++) {
		left = 0;
		for (unsigned i = 0; i < WORKERS; i++)
			left += waitpid(pids[i], &status, WNOHANG) == 0;
		if (left > 0)
			nap(10 * MS);
		if (left > 0 && tries == 5999 && !atomic_exchange(&shared->failed, true))
			snprintf(shared->why, sizeof(shared->why), "%u workers do not end", left);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		kill(pids[i], SIGKILL);
}

int main(int argc, char **argv)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	unsigned long limit, n;

	if (argc == 3 && strcmp(argv[1], "--child") == 0)
		return exec_child(argv[2]);
	limit = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	if (argc > 2 || (argc > 1 && limit == 0)) {
		fprintf(stderr, "usage: selfcheck [SECONDS]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED) {
		perror("selfcheck: mmap");
		return 2;
	}
	vm_tell();
	workers_start();
	for (n = 1; limit == 0 || n <= limit; n++) {
		if (limit != 0)
			nap(SEC);
		else if (poll(&in, 1, 1000) != 0)
			break;
		if (workers_fail())
			break;
		vm_tell();
		printf("ok %lu\n", n);
	}
	workers_stop();
	for (unsigned i = 0; i < WORKERS; i++)
		printf("# %s: %llu rounds\n", names[i],
		       (unsigned long long)atomic_load(&shared->rounds[i]));
	if (atomic_load(&shared->failed)) {
		printf("selfcheck: %s\n", shared->why);
		return 1;
	}
	printf("selfcheck: passed\n");
	return 0;
}
