/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an EXEC frame to a running program. The parent makes pipes or a pty, then vforks:
 * the child borrows our memory and we stand still until it has called execve or _exit, so
 * no page tables are copied and the child may use the frame's strings where they lie.
 * What the child may touch is therefore little: system calls and its own stack. A builtin
 * (builtin.h) is forked instead and runs on its own copy, without any of our descriptors.
 *
 * Whether execve succeeded is told by a close-on-exec pipe: end of file is success, eight
 * bytes are an errno and a step. (Borrowed memory would do with a true vfork, but a
 * kernel is free to implement vfork as fork.)
 *
 * All descriptors of initd are close-on-exec and 0, 1 and 2 are always open in initd, so
 * that none of the ones made here can be a target of the child's dup2.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "initd/builtin.h"
#include "initd/frame.h"
#include "initd/spawn.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct report {
	int32_t error;
	uint32_t step;
};

/* Ends that the child gets; -1 is none. */
struct child_ends {
	int in, out, err;
};

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int fd_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return errno;
	return 0;
}

static int pipe_open(int *ret_read, int *ret_write, int *ours)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return errno;
	*ret_read = fds[0];
	*ret_write = fds[1];
	return fd_nonblock(*ours);
}

static int pty_open(const struct frame_exec *exec, bool with_stdin, struct spawn *s)
{
	struct winsize size = {.ws_row = exec->head.rows, .ws_col = exec->head.columns};
	char name[32];
	int unlock = 0;
	unsigned int number;

	s->out = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (s->out < 0)
		return errno;
	if (ioctl(s->out, TIOCSPTLCK, &unlock) < 0 ||
	    ioctl(s->out, TIOCGPTN, &number) < 0)
		return errno;
	snprintf(name, sizeof(name), "/dev/pts/%u", number);
	s->slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (s->slave < 0)
		return errno;
	if (ioctl(s->out, TIOCSWINSZ, &size) < 0)
		return errno;
	/* A task that is not root may want to open its terminal by name. A devpts that
	 * cannot change owners is no reason to refuse. */
	(void)!fchown(s->slave, exec->head.uid, (gid_t)-1);
	if (with_stdin) {
		s->in = fcntl(s->out, F_DUPFD_CLOEXEC, 3);
		if (s->in < 0)
			return errno;
	}
	return 0;
}

static int streams_open(const struct frame_exec *exec, uint16_t flags, int null_fd,
			struct spawn *s, struct child_ends *child)
{
	bool with_stdin = flags & CM_EXEC_STDIN;
	int error;

	if (flags & CM_EXEC_TTY) {
		error = pty_open(exec, with_stdin, s);
		child->in = with_stdin ? s->slave : null_fd;
		child->out = child->err = s->slave;
		return error;
	}
	child->in = null_fd;
	if (with_stdin && (error = pipe_open(&child->in, &s->in, &s->in)))
		return error;
	if ((error = pipe_open(&s->out, &child->out, &s->out)))
		return error;
	return pipe_open(&s->err, &child->err, &s->err);
}

/* ---- In the child, on borrowed memory (but of a builtin) ---- */

/* A file that the kernel cannot execute but the user may is a script for sh, as execvp
 * and shells have it. */
static int exec_script(const char *path, char *const *argv, char *const *envp)
{
	char *script[CM_EXEC_STRINGS + 2];
	size_t i;

	script[0] = (char *)(uintptr_t) "sh";
	script[1] = (char *)(uintptr_t)path;
	for (i = 1; argv[i]; i++)
		script[i + 1] = argv[i];
	script[i + 1] = NULL;
	execve("/bin/sh", script, envp);
	return errno;
}

static int exec_path(const char *path, char *const *argv, char *const *envp)
{
	execve(path, argv, envp);
	return errno == ENOEXEC ? exec_script(path, argv, envp) : errno;
}

static const char *env_path(char *const *envp)
{
	for (; *envp; envp++)
		if (!strncmp(*envp, "PATH=", 5))
			return *envp + 5;
	return DEFAULT_PATH;
}

/* Only returns when nothing could be executed, with the errno a shell would report. */
static int exec_search(char *const *argv, char *const *envp)
{
	const char *name = argv[0];
	size_t name_size = strlen(name) + 1;
	char path[PATH_MAX];
	const char *dir, *end;
	size_t length;
	int error, seen = ENOENT;

	if (!*name)
		return ENOENT;
	if (strchr(name, '/'))
		return exec_path(name, argv, envp);
	for (dir = env_path(envp);; dir = end + 1) {
		end = strchrnul(dir, ':');
		length = (size_t)(end - dir);
		if (length + 1 + name_size <= sizeof(path)) {
			memcpy(path, dir, length);
			if (length) /* an empty element is the working directory */
				path[length++] = '/';
			memcpy(path + length, name, name_size);
			error = exec_path(path, argv, envp);
			if (error == EACCES)
				seen = EACCES;
			else if (error != ENOENT && error != ENOTDIR)
				return error;
		}
		if (!*end)
			return seen;
	}
}

static int child_credentials(const struct cm_exec *head)
{
	/* Direct system calls: a C library's wrappers take locks of the borrowed memory.
	 * When nothing is to change nothing is asked for, so that tests run as any user.
	 */
	if (head->uid == geteuid() && head->gid == getegid())
		return 0;
	if (syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, head->gid, head->gid, head->gid) < 0 ||
	    syscall(SYS_setresuid, head->uid, head->uid, head->uid) < 0)
		return errno;
	return 0;
}

/* Only returns when it could not begin. The report's pipe is closed with all others, which
 * says that the program runs. */
static int builtin_start(const struct builtin *builtin, const struct frame_exec *exec)
{
	signal(SIGCHLD, SIG_DFL);
	if (syscall(SYS_close_range, 3, ~0u, 0) < 0)
		return errno;
	_exit(builtin_run(builtin, exec->head.argc, exec->argv));
}

static void child_run(const struct frame_exec *exec, const struct builtin *builtin,
		      const struct child_ends *ends, bool tty, int report_fd)
{
	struct report report = {.step = CM_FAILED_SPAWN};
	sigset_t none;

	if (setsid() < 0 || dup2(ends->in, 0) < 0 || dup2(ends->out, 1) < 0 ||
	    dup2(ends->err, 2) < 0 || (tty && ioctl(1, TIOCSCTTY, 0) < 0)) {
		report.error = errno;
		goto fail;
	}
	report.step = CM_FAILED_CRED;
	if ((report.error = child_credentials(&exec->head)))
		goto fail;
	/* After the credentials: the task, not root, must be allowed to go there. */
	report.step = CM_FAILED_CHDIR;
	if (chdir(exec->cwd) < 0) {
		report.error = errno;
		goto fail;
	}
	if (!builtin) /* which would rather see EPIPE */
		signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	report.step = CM_FAILED_EXEC;
	report.error = builtin ? builtin_start(builtin, exec) :
				 exec_search(exec->argv, exec->envp);
fail:
	(void)!write(report_fd, &report, sizeof(report));
	_exit(127);
}

/* ---- In the parent ---- */

static int report_read(int fd, struct report *ret)
{
	ssize_t n;

	do
		n = read(fd, ret, sizeof(*ret));
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return 0;
	if (n == sizeof(*ret))
		return ret->error ? ret->error : EIO;
	ret->step = CM_FAILED_SPAWN;
	return n < 0 ? errno : EIO;
}

static int child_start(const struct frame_exec *exec, const struct builtin *builtin,
		       const struct child_ends *ends, bool tty, pid_t *ret_pid,
		       uint32_t *ret_step)
{
	struct report report = {.step = CM_FAILED_SPAWN};
	sigset_t all, old;
	int fds[2], error;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return errno;
	/* No handler of ours may run in the child. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	pid = builtin ? fork() : vfork();
	if (pid == 0)
		child_run(exec, builtin, ends, tty, fds[1]);
	error = pid < 0 ? errno : 0;
	sigprocmask(SIG_SETMASK, &old, NULL);
	close(fds[1]);
	if (!error) {
		error = report_read(fds[0], &report);
		if (error)
			while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
				;
	}
	close(fds[0]);
	*ret_step = report.step;
	*ret_pid = pid;
	return error;
}

int spawn_start(const struct frame_exec *exec, uint16_t flags, int null_fd,
		struct spawn *ret, uint32_t *ret_step)
{
	struct child_ends child = {-1, -1, -1};
	const struct builtin *builtin = NULL;
	bool tty = flags & CM_EXEC_TTY;
	int error;

	*ret_step = CM_FAILED_EXEC;
	if (flags & CM_EXEC_BUILTIN && !(builtin = builtin_find(exec->argv[0])))
		return ENOENT;
	*ret = (struct spawn){.pid = -1, .in = -1, .out = -1, .err = -1, .slave = -1};
	*ret_step = CM_FAILED_SPAWN;
	error = streams_open(exec, flags, null_fd, ret, &child);
	if (!error)
		error = child_start(exec, builtin, &child, tty, &ret->pid, ret_step);
	if (!tty) {
		if (child.in != null_fd)
			fd_close(&child.in);
		fd_close(&child.out);
		fd_close(&child.err);
	}
	if (error) {
		fd_close(&ret->in);
		fd_close(&ret->out);
		fd_close(&ret->err);
		fd_close(&ret->slave);
	}
	return error;
}
