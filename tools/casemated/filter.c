/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's list of system calls; see filter.h. */
#include "tools/casemated/filter.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef CASEMATE_SANITIZED

static const int allowed[] = {
	/* Files that clients name: images, snapshots, what beside them */
	SCMP_SYS(openat), SCMP_SYS(open), SCMP_SYS(close), SCMP_SYS(close_range),
	SCMP_SYS(read), SCMP_SYS(readv), SCMP_SYS(pread64), SCMP_SYS(preadv),
	SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(pwrite64), SCMP_SYS(pwritev),
	SCMP_SYS(lseek), SCMP_SYS(fstat), SCMP_SYS(stat), SCMP_SYS(lstat),
	SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(statfs), SCMP_SYS(fstatfs),
	SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(getdents64),
	SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getcwd), SCMP_SYS(chdir),
	SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir), SCMP_SYS(unlink),
	SCMP_SYS(unlinkat), SCMP_SYS(link), SCMP_SYS(linkat), SCMP_SYS(rename),
	SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(fchmod), SCMP_SYS(fchmodat),
	SCMP_SYS(umask), SCMP_SYS(ftruncate), SCMP_SYS(fallocate), SCMP_SYS(fsync),
	SCMP_SYS(fdatasync), SCMP_SYS(syncfs), SCMP_SYS(sync_file_range), SCMP_SYS(flock),
	SCMP_SYS(fadvise64), SCMP_SYS(fgetxattr), SCMP_SYS(fsetxattr), SCMP_SYS(getxattr),
	SCMP_SYS(copy_file_range), SCMP_SYS(sendfile), SCMP_SYS(memfd_create),
	SCMP_SYS(fcntl), SCMP_SYS(dup), SCMP_SYS(dup2), SCMP_SYS(dup3),
	/* Clients, VMs, the parent */
	SCMP_SYS(socket), SCMP_SYS(socketpair), SCMP_SYS(bind), SCMP_SYS(listen),
	SCMP_SYS(accept), SCMP_SYS(accept4), SCMP_SYS(connect), SCMP_SYS(shutdown),
	SCMP_SYS(sendto), SCMP_SYS(sendmsg), SCMP_SYS(recvfrom), SCMP_SYS(recvmsg),
	SCMP_SYS(getsockopt), SCMP_SYS(setsockopt), SCMP_SYS(getsockname),
	SCMP_SYS(getpeername), SCMP_SYS(pipe2),
	/* The loop */
	SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(eventfd2),
	SCMP_SYS(timerfd_create), SCMP_SYS(timerfd_settime),
	SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(gettimeofday),
	SCMP_SYS(time), SCMP_SYS(nanosleep), SCMP_SYS(clock_nanosleep),
	/* Memory, threads that read and verify, signals, itself */
	SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
	SCMP_SYS(msync), SCMP_SYS(futex), SCMP_SYS(set_robust_list), SCMP_SYS(rseq),
	SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_yield), SCMP_SYS(exit),
	SCMP_SYS(exit_group), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall), SCMP_SYS(sigaltstack),
	SCMP_SYS(getrandom), SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(gettid),
	SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid), SCMP_SYS(getegid),
	SCMP_SYS(getrlimit), SCMP_SYS(getrusage), SCMP_SYS(sysinfo), SCMP_SYS(uname),
	SCMP_SYS(tgkill),		/* abort() */
};

static int rules_add(scmp_filter_ctx filter)
{
	int r = 0;

	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]) && r == 0; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
	/* Nothing that was written becomes a program. */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	/* Threads, no processes. clone3 hides its flags: the C library falls back to clone. */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				     SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	/* A thread's own priority. */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(setpriority), 2,
				     SCMP_A0(SCMP_CMP_EQ, PRIO_PROCESS),
				     SCMP_A1(SCMP_CMP_EQ, 0));
	/* Limits of its own only. */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1,
				     SCMP_A0(SCMP_CMP_EQ, 0));
	return r;
}

int filter_enter(struct err *err)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = filter ? rules_add(filter) : -ENOMEM;

	if (r == 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r < 0 ? err_set_errno(err, r, "cannot install the engine's seccomp filter") : 0;
}

#else

/* A sanitizer's runtime wants calls of its own. */
int filter_enter(struct err *err)
{
	return 0;
}

#endif
