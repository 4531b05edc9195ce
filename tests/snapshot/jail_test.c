/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots can be written in a jail, with no system calls allowed but pwrite64 and what malloc
 * and a second thread need, full, incremental, and failing. Another call ends the child.
 * Not built with sanitizers, which make calls of their own.
 */
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/snapshot/sample.h"

#define SIZE	(8ull * SNAPSHOT_CHUNK)

static int jail_enter(void)
{
	static const int calls[] = {
		SCMP_SYS(pwrite64), SCMP_SYS(brk), SCMP_SYS(mmap), SCMP_SYS(munmap),
		SCMP_SYS(madvise), SCMP_SYS(futex), SCMP_SYS(exit_group),
		/* a thread's */
		SCMP_SYS(clone), SCMP_SYS(mprotect), SCMP_SYS(rseq), SCMP_SYS(exit),
		SCMP_SYS(set_robust_list), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigaction),
	};
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);

	/* As in the VMM's: the C library then takes clone. */
	if (!filter || seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0) < 0)
			return -1;
	}
	return seccomp_load(filter);
}

static int child(int fd, int full, const struct snapshot_source *source,
		 const struct snapshot_state *state)
{
	struct snapshot_source next = *source;
	uint64_t dirty[SIZE / SNAPSHOT_PAGE / 64] = { 5 };
	struct err err = ERR_INIT;
	struct snapshot_id id;

	if (jail_enter() < 0)
		return 77;
	if (snapshot_write(fd, state, source, &id, &err) < 0)
		return 1;
	next.dirty = dirty;
	next.parent = &id;
	if (snapshot_write(fd, state, &next, &id, &err) < 0)
		return 2;
	return snapshot_write(full, state, source, &id, &err) == -ENOSPC ? 0 : 3;
}

int main(void)
{
	struct snapshot_source source = { .size = SIZE };
	int fd = memfd_create("snapshot", MFD_CLOEXEC), full = open("/dev/full", O_WRONLY);
	struct snapshot_state state;
	uint8_t *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid;

	if (fd < 0 || full < 0 || memory == MAP_FAILED)
		return 2;
	sample_memory(memory, SIZE, 1, 500, NULL);
	sample_state(&state, SIZE, 1, 20000);
	source.memory = memory;
	pid = fork();
	if (pid == 0)
		_exit(child(fd, full, &source, &state));
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 2;
	if (WIFSIGNALED(status)) {
		printf("ended by signal %d: a system call that the jail does not allow\n",
		       WTERMSIG(status));
		return 1;
	}
	if (WEXITSTATUS(status) == 77)
		printf("skipped: no seccomp filter can be installed here\n");
	else if (WEXITSTATUS(status))
		printf("step %d failed\n", WEXITSTATUS(status));
	return WEXITSTATUS(status);
}
