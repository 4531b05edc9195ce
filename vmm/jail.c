/* SPDX-License-Identifier: Apache-2.0 */
/* The VMM's confinement; see jail.h. */
#include "vmm/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/kvm.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESCRIPTORS_MAX	64
#define SNAPSHOT_REST	(32u << 20)	/* of a file, besides memory; amply */

void jail_close_others(const int *keep, size_t count)
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

int jail_begin(const int *keep, size_t count, uint64_t file_max, struct err *err)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_set_errno(err, errno, "cannot confine the process");
	jail_close_others(keep, count);
	if (limit(RLIMIT_CORE, 0) < 0 || limit(RLIMIT_NOFILE, DESCRIPTORS_MAX) < 0 ||
	    limit(RLIMIT_FSIZE, file_max) < 0)
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
	SCMP_SYS(timer_settime),	/* vcpu_kick(): no call that signals another process */
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

/* What saving and forking take besides (request.c): a child that writes memory to the file it
 * was given, or that makes a VM of its own. */
static const int snapshot_calls[] = {
	SCMP_SYS(pwrite64),		/* snapshot/file.c */
	SCMP_SYS(pipe2),		/* request.c: the children's reports */
	SCMP_SYS(close_range),
	SCMP_SYS(set_robust_list),	/* fork(), pthread_create() */
	SCMP_SYS(rseq),
	SCMP_SYS(rt_sigaction),		/* vcpu_start() */
	SCMP_SYS(timer_create),
	SCMP_SYS(gettid),
	SCMP_SYS(eventfd2),		/* vm.c */
	SCMP_SYS(ppoll),		/* loop.c: a child's. No io_uring_setup: what a ring */
	SCMP_SYS(read),			/* without restrictions is asked for is not seen here */
	SCMP_SYS(recvmsg),
	SCMP_SYS(sendto),
};

static const unsigned long snapshot_ioctls[] = {
	/* cpu_save() */
	KVM_GET_CPUID2, KVM_GET_XCRS, KVM_GET_MP_STATE, KVM_GET_DEBUGREGS, KVM_GET_LAPIC,
	KVM_GET_XSAVE, KVM_GET_VCPU_EVENTS, KVM_GET_DIRTY_LOG,
	/* kvm_create() */
	KVM_CREATE_VM, KVM_ENABLE_CAP, KVM_CHECK_EXTENSION, KVM_SET_USER_MEMORY_REGION,
	KVM_GET_VCPU_MMAP_SIZE, KVM_CREATE_VCPU, KVM_GET_TSC_KHZ, KVM_IOEVENTFD,
	/* cpu_load() */
	KVM_GET_SUPPORTED_CPUID, KVM_SET_CPUID2, KVM_SET_SREGS, KVM_SET_XCRS, KVM_SET_XSAVE,
	KVM_SET_MSRS, KVM_GET_DEVICE_ATTR, KVM_SET_DEVICE_ATTR, KVM_SET_LAPIC,
	KVM_SET_DEBUGREGS, KVM_SET_VCPU_EVENTS, KVM_SET_MP_STATE, KVM_SET_REGS,
};

#define CLONE_REFUSED	(CLONE_PARENT | CLONE_NEWTIME | CLONE_NEWNS | CLONE_NEWCGROUP |	\
			 CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |	\
			 CLONE_NEWNET)

static int calls_allow(scmp_filter_ctx filter, const int *calls, size_t count)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
	return r;
}

static int ioctls_allow(scmp_filter_ctx filter, const unsigned long *requests, size_t count)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
				     SCMP_A1(SCMP_CMP_EQ, requests[i]));
	return r;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int snapshot_rules_add(scmp_filter_ctx filter)
{
	int r = calls_allow(filter, snapshot_calls, COUNT(snapshot_calls));

	if (r == 0)
		r = ioctls_allow(filter, snapshot_ioctls, COUNT(snapshot_ioctls));
	/* Children of its own and threads, no namespaces. clone3 hides its flags: the C library
	 * falls back to clone when it is not there. */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				     SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_REFUSED, 0));
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	/* The child's vCPU's page. */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
				     SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_SHARED, MAP_SHARED));
	return r;
}

static int rules_add(scmp_filter_ctx filter, bool snapshots)
{
	int r = calls_allow(filter, plain_calls, COUNT(plain_calls));

	if (r == 0)
		r = ioctls_allow(filter, ioctls, COUNT(ioctls));
	if (r == 0 && snapshots)
		r = snapshot_rules_add(filter);
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

/* In its place is something that takes nothing. An empty root has no /dev/null. */
static int stderr_drop(void)
{
	int ends[2], r;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	r = dup2(ends[1], STDERR_FILENO) < 0 ? -errno : 0;
	close(ends[0]);
	close(ends[1]);
	return r;
}

int jail_enter(bool snapshots, uint64_t memory, struct err *err)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r = filter ? 0 : -ENOMEM;

	if (r == 0 && snapshots)
		r = limit(RLIMIT_FSIZE, memory + memory / 1024 + SNAPSHOT_REST);

	if (r == 0)
		r = stderr_drop();
	/* All threads: the vCPU's exists already. */
	if (r == 0)
		r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r == 0)
		r = rules_add(filter, snapshots);
	if (r == 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r < 0 ? err_set_errno(err, r, "cannot install the seccomp filter") : 0;
}
