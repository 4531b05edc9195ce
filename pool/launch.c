/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a program; see launch.h. The child shares our memory and runs on a stack of its own
 * while we wait (CLONE_VM, CLONE_VFORK): copying page tables would cost several times the rest.
 * So it leaves in its struct what failed, has signals blocked until its handlers are gone, and
 * calls nothing that takes a lock. Descriptors, handlers, user and root are its own copies.
 * One launch at a time.
 */
#include "pool/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>


#define FDS_MAX		64
#define STACK_SIZE	65536
/* Nothing there returns, so a sanitizer's marks on the stack would stay for the next child. */
#define ON_CHILD_STACK	__attribute__((no_sanitize("address")))

enum step { STEP_FORK, STEP_FILES, STEP_NETWORK, STEP_ROOT, STEP_USER, STEP_LIMIT, STEP_PROGRAM };

static const char *const step_names[] = {
	[STEP_FORK] = "making a process", [STEP_FILES] = "passing descriptors",
	[STEP_NETWORK] = "entering the network namespace",
	[STEP_ROOT] = "entering the empty root", [STEP_USER] = "becoming another user",
	[STEP_LIMIT] = "giving up privileges", [STEP_PROGRAM] = "starting the program",
};

/* Out of the way of the numbers that descriptors get in the end. */
ON_CHILD_STACK static int raise_fd(int fd, const struct launch *l)
{
	return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, LAUNCH_FDS + (int)l->fd_count);
}

ON_CHILD_STACK static int signals_reset(void)
{
	const int ignored[] = { SIGPIPE, SIGCHLD, SIGINT, SIGTERM };
	sigset_t none;

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_DFL);
	sigemptyset(&none);
	return sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Raw calls: the C library's would tell the threads of a process that is not this one. */
ON_CHILD_STACK static int user_become(const struct launch_jail *j)
{
	if (syscall(SYS_setgroups, j->group_count, j->groups) < 0 ||
	    syscall(SYS_setresgid, j->gid, j->gid, j->gid) < 0 ||
	    syscall(SYS_setresuid, j->uid, j->uid, j->uid) < 0)
		return -1;
	return 0;
}

ON_CHILD_STACK static enum step child_confine(const struct launch_jail *j, pid_t parent)
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

/* What both have of each other. */
struct child {
	const struct launch *launch;
	pid_t parent;
	int fds[FDS_MAX];
	int program, null;
	enum step step;			/* that failed, with an errno */
	int error;
};

ON_CHILD_STACK static bool descriptors_raise(struct child *c)
{
	const struct launch *l = c->launch;
	bool good = true;

	c->null = -1;
	c->program = raise_fd(l->program, l);
	if (l->argv && c->program < 0)
		return false;
	for (unsigned int i = 0; i < l->fd_count && good; i++) {
		c->fds[i] = raise_fd(l->fds[i], l);
		good = (l->fds[i] < 0) == (c->fds[i] < 0);
	}
	if (good && l->quiet) {
		c->null = open("/dev/null", O_RDWR | O_CLOEXEC);
		good = dup2(c->null, 0) == 0 && dup2(c->null, 1) == 1;
	}
	return good;
}

/* Returns when it failed, or is through where there is no program. */
ON_CHILD_STACK static enum step child_steps(struct child *c)
{
	const struct launch *l = c->launch;
	enum step step;

	if (!descriptors_raise(c) || signals_reset() < 0)
		return STEP_FILES;
	setsid();
	step = child_confine(&l->jail, c->parent);
	if (step != STEP_PROGRAM || !l->argv)
		return step;
	for (unsigned int i = 0; i < l->fd_count; i++) {
		if (c->fds[i] >= 0 && dup2(c->fds[i], LAUNCH_FDS + (int)i) < 0)
			return STEP_FILES;
	}
	syscall(SYS_execveat, c->program, "", l->argv, l->env, AT_EMPTY_PATH);
	return STEP_PROGRAM;
}

ON_CHILD_STACK static void child_main(struct child *c)
{
	enum step step = child_steps(c);

	if (c->launch->argv || step != STEP_PROGRAM) {
		c->step = step;
		c->error = errno ? errno : EIO;
	}
	/* Raw: what the C library or a sanitizer does at an exit is for its own stacks. */
	for (;;)
		syscall(SYS_exit_group, 127);
}

/* clone3(2), whose child begins on another stack and must not return from here. */
static long child_clone(struct clone_args *args, struct child *c)
{
	register void (*run)(struct child *) __asm__("r8") = child_main;
	register struct child *arg __asm__("r9") = c;
	long ret;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %[arg], %%rdi\n\t"
			 "call *%[run]\n\t"
			 "ud2\n"
			 "1:"
			 : "=a" (ret)
			 : "0" (SYS_clone3), "D" (args), "S" (sizeof(*args)), [run] "r" (run),
			   [arg] "r" (arg)
			 : "rcx", "r11", "memory", "cc");
	return ret;
}

static pid_t child_make(struct child *c)
{
	static _Alignas(64) uint8_t stack[STACK_SIZE];
	const struct launch_jail *j = &c->launch->jail;
	struct clone_args args = { .flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD,
				   .stack = (uintptr_t)stack, .stack_size = sizeof(stack) };
	sigset_t all, before;
	long pid;

	if (j->cgroup >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)j->cgroup;
	}
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = child_clone(&args, c);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return (pid_t)pid;
}

int launch(const struct launch *l, pid_t *ret_pid, const char **ret_step)
{
	struct child c = { .launch = l, .parent = getpid(), .step = STEP_FORK };
	pid_t pid;

	*ret_step = step_names[STEP_FORK];
	if (l->fd_count > FDS_MAX)
		return -EINVAL;
	pid = child_make(&c);
	if (pid < 0)
		return pid;
	if (c.error || !l->argv) {
		waitpid(pid, NULL, 0);
		*ret_step = step_names[c.step];
		return -c.error;
	}
	*ret_pid = pid;
	return 0;
}
