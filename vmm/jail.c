/* SPDX-License-Identifier: Apache-2.0 */
/* The VMM's confinement; see jail.h. */
#include "vmm/jail.h"

#include <errno.h>
#include <linux/close_range.h>
#include <linux/kvm.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESCRIPTORS_MAX	64

static void close_others(const int *keep, size_t count)
{
	unsigned int from = 3;

	for (;;) {
		unsigned int next = ~0u;

		for (size_t i = 0; i < count; i++) {
			if (keep[i] >= (int)from && (unsigned int)keep[i] < next)
				next = (unsigned int)keep[i];
		}
		if (next > from)
			syscall(SYS_close_range, from, next == ~0u ? next : next - 1, 0);
		if (next == ~0u)
			return;
		from = next + 1;
	}
}

static int limit(int resource, rlim_t value)
{
	struct rlimit l = { value, value };

	return setrlimit(resource, &l) < 0 ? -errno : 0;
}

int jail_begin(const int *keep, size_t count, struct err *err)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_set_errno(err, errno, "cannot confine the process");
	close_others(keep, count);
	if (limit(RLIMIT_CORE, 0) < 0 || limit(RLIMIT_NOFILE, DESCRIPTORS_MAX) < 0 ||
	    limit(RLIMIT_FSIZE, 0) < 0)
		return err_set(err, EPERM, "cannot set the process's limits");
	return 0;
}

/* What the running VMM calls, and where. */
static const int plain_calls[] = {
	SCMP_SYS(io_uring_enter),	/* loop.c: all socket, eventfd and timer I/O */
	SCMP_SYS(write),		/* vm_wake() */
	SCMP_SYS(pread64),		/* symbols.c, usage.c */
	SCMP_SYS(futex),		/* locks, semaphore, join */
	SCMP_SYS(clock_gettime),	/* stage times, where there is no vDSO */
	SCMP_SYS(getrandom),		/* clock.c; malloc */
	SCMP_SYS(close),		/* teardown, with munmap */
	SCMP_SYS(munmap),
	SCMP_SYS(madvise),		/* malloc, thread stacks */
	SCMP_SYS(brk),			/* malloc */
	SCMP_SYS(rt_sigprocmask),	/* thread end */
	SCMP_SYS(rt_sigreturn),		/* the kick's handler */
	SCMP_SYS(restart_syscall),
	SCMP_SYS(getpid),		/* pthread_kill() */
	SCMP_SYS(gettid),
	SCMP_SYS(tgkill),		/* vcpu_kick() */
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

static const unsigned long ioctls[] = {
	KVM_RUN,		/* vcpu.c */
	KVM_GET_REGS,		/* vcpu.c, registers of a crash */
	KVM_GET_SREGS,
	KVM_SIGNAL_MSI,		/* kvm_signal_vector() */
	KVM_GET_MSRS,		/* kvm_read_tsc() */
};

static int rules_add(scmp_filter_ctx filter)
{
	int r = 0;

	for (size_t i = 0; i < sizeof(plain_calls) / sizeof(plain_calls[0]) && r == 0; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, plain_calls[i], 0);
	for (size_t i = 0; i < sizeof(ioctls) / sizeof(ioctls[0]) && r == 0; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
				     SCMP_A1(SCMP_CMP_EQ, ioctls[i]));
	/* malloc: anonymous memory, nothing executable. */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
				     SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS,
					     MAP_ANONYMOUS));
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	return r;
}

int jail_enter(struct err *err)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r = filter ? 0 : -ENOMEM;

	/* All threads: the vCPU's exists already. */
	if (r == 0)
		r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r == 0)
		r = rules_add(filter);
	if (r == 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r < 0 ? err_set_errno(err, r, "cannot install the seccomp filter") : 0;
}
