/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a program; see launch.h. The child is a copy of us that runs while we wait
 * (CLONE_VFORK without shared memory): it may use its own stack and descriptors freely, and
 * says by a pipe what failed. It calls nothing that takes a lock.
 */
#include "pool/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

#define FDS_MAX		64

enum step { STEP_FORK, STEP_FILES, STEP_NETWORK, STEP_ROOT, STEP_USER, STEP_LIMIT, STEP_PROGRAM };

static const char *const step_names[] = {
	[STEP_FORK] = "making a process", [STEP_FILES] = "passing descriptors",
	[STEP_NETWORK] = "entering the network namespace",
	[STEP_ROOT] = "entering the empty root", [STEP_USER] = "becoming another user",
	[STEP_LIMIT] = "giving up privileges", [STEP_PROGRAM] = "starting the program",
};

struct failure {
	int step, error;
};

/* Out of the way of the numbers that descriptors get in the end. */
static int raise_fd(int fd, const struct launch *l)
{
	return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, LAUNCH_FDS + (int)l->fd_count);
}

static int signals_reset(void)
{
	const int ignored[] = { SIGPIPE, SIGCHLD, SIGINT, SIGTERM };
	sigset_t none;

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_DFL);
	sigemptyset(&none);
	return sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Raw calls: the C library's would tell the threads of a process that is not this one. */
static int user_become(const struct launch_jail *j)
{
	if (syscall(SYS_setgroups, j->group_count, j->groups) < 0 ||
	    syscall(SYS_setresgid, j->gid, j->gid, j->gid) < 0 ||
	    syscall(SYS_setresuid, j->uid, j->uid, j->uid) < 0)
		return -1;
	return 0;
}

static enum step child_confine(const struct launch_jail *j, pid_t parent)
{
	if (j->network >= 0 && setns(j->network, CLONE_NEWNET) < 0)
		return STEP_NETWORK;
	if (j->root >= 0 && (fchdir(j->root) < 0 || chroot(".") < 0))
		return STEP_ROOT;
	if (j->has_user && user_become(j) < 0)
		return STEP_USER;
	errno = ESRCH;
	/* After the user: changing that undoes it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return STEP_LIMIT;
	return STEP_PROGRAM;
}

static enum step child_run(const struct launch *l, int program, const int *fds, pid_t parent)
{
	enum step step = child_confine(&l->jail, parent);

	if (step != STEP_PROGRAM || !l->argv)
		return step;
	for (unsigned int i = 0; i < l->fd_count; i++) {
		if (fds[i] >= 0 && dup2(fds[i], LAUNCH_FDS + (int)i) < 0)
			return STEP_FILES;
	}
	syscall(SYS_execveat, program, "", l->argv, l->env, AT_EMPTY_PATH);
	return STEP_PROGRAM;
}

static _Noreturn void child_main(const struct launch *l, int told, pid_t parent)
{
	int fds[FDS_MAX], program = raise_fd(l->program, l), tell = raise_fd(told, l), null;
	struct failure f = { .step = STEP_FILES };
	bool good = tell >= 0 && (!l->argv || program >= 0);

	for (unsigned int i = 0; i < l->fd_count && good; i++) {
		fds[i] = raise_fd(l->fds[i], l);
		good = (l->fds[i] < 0) == (fds[i] < 0);
	}
	if (l->quiet) {
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		good = good && dup2(null, 0) == 0 && dup2(null, 1) == 1;
	}
	setsid();
	if (good && signals_reset() == 0)
		f.step = child_run(l, program, fds, parent);
	f.error = errno;
	/* One that was only tried is through when it came to the program. */
	if (l->argv || f.step != STEP_PROGRAM)
		(void)!write(tell >= 0 ? tell : told, &f, sizeof(f));
	_exit(127);
}

static pid_t child_clone(const struct launch_jail *j)
{
	struct clone_args args = { .flags = CLONE_VFORK, .exit_signal = SIGCHLD };

	if (j->cgroup < 0)
		return (pid_t)syscall(SYS_clone, CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, 0);
	args.flags |= CLONE_INTO_CGROUP;
	args.cgroup = (uint64_t)j->cgroup;
	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

int launch(const struct launch *l, pid_t *ret_pid, const char **ret_step)
{
	FD_CLEANUP int told = -1, tell = -1;
	struct failure f = { STEP_FORK, 0 };
	pid_t parent = getpid(), pid;
	int pair[2];

	*ret_step = step_names[STEP_FORK];
	if (l->fd_count > FDS_MAX)
		return -EINVAL;
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	told = pair[0];
	tell = pair[1];
	pid = child_clone(&l->jail);
	if (pid < 0)
		return -errno;
	if (pid == 0)
		child_main(l, tell, parent);
	tell = fd_close(tell);
	if (read(told, &f, sizeof(f)) == sizeof(f) || !l->argv) {
		waitpid(pid, NULL, 0);
		*ret_step = step_names[f.step];
		return -f.error;
	}
	*ret_pid = pid;
	return 0;
}
