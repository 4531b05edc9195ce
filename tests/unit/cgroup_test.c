/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups of VMs: who came into one by mistake is let go and outlives it. Needs root and
 * version 2 of the control groups. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/cgroup.h"

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

static bool is_there(pid_t pid)
{
	for (int i = 0; i < 100; i++) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return false;
		usleep(5000);
	}
	return true;
}

static int check(const struct cgroups *groups)
{
	pid_t stranger = sleeper(), vm = sleeper();
	int fd = cgroup_make(groups, "1-1-1", 64 << 20, 0), r = 0;

	if (fd < 0 || cgroup_move(groups, "1-1-1", stranger) < 0) {
		fprintf(stderr, "no process can be moved: %s\n", strerror(errno));
		r = 1;
	}
	cgroup_let_go(groups, "1-1-1");
	if (cgroup_move(groups, "1-1-1", vm) < 0)
		r = 1;
	cgroup_kill(groups, "1-1-1");
	if (is_there(vm)) {
		fprintf(stderr, "the VM is there still\n");
		r = 1;
	}
	if (!is_there(stranger)) {
		fprintf(stderr, "the stranger was killed\n");
		r = 1;
	}
	if (cgroup_remove(groups, "1-1-1") < 0) {
		fprintf(stderr, "the group is not empty\n");
		r = 1;
	}
	kill(stranger, SIGKILL);
	close(fd);
	return r;
}

int main(void)
{
	struct cgroups groups = CGROUPS_NONE;
	struct err err = ERR_INIT;
	char name[40];
	int r;

	snprintf(name, sizeof(name), "casemate-test-%d", (int)getpid());
	if (geteuid() != 0 || cgroups_open(&groups, name, &err) < 0) {
		printf("skipped: no control groups (%s)\n", err.code ? err.text : "not root");
		return 77;
	}
	r = check(&groups);
	cgroups_close(&groups);
	return r;
}
