/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's fork: its headers and the kernel's do not go together. */
#include "tests/unit/kernel-core/run.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int run_in_child(int (*fn)(void (*program)(void)), void (*program)(void))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		int r = fn(program);

		fflush(NULL);
		_exit(r);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
