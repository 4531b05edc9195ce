/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What foreign test suites have found: the smallest program for each of their failures. Every
 * check holds on Linux: the program runs on the host too, which is the judge of its checks,
 * and then in the guest. It prints one TAP line a test and needs nothing but itself (static).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *failure;
static char failure_text[200];

#define CHECK(x) \
	do { \
		if (!(x) && failure == NULL) { \
			snprintf(failure_text, sizeof(failure_text), "line %d: %s (errno %d)", \
				 __LINE__, #x, errno); \
			failure = failure_text; \
		} \
	} while (0)

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

static const struct {
	const char *name;
	void (*fn)(void);
} tests[] = {
	{ "/proc/PID as a pidfd", test_proc_directory_as_pidfd },
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
