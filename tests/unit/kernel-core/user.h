/* SPDX-License-Identifier: Apache-2.0 */
/* What a test program does: system calls with restarts as a processor would do them. */
#ifndef TEST_KERNEL_CORE_USER_H
#define TEST_KERNEL_CORE_USER_H

#include <stdio.h>
#include <stdlib.h>

#include "guest-kernel/arch/arch.h"
#include "tests/unit/kernel-core/host.h"

extern int check_failures;
#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			check_failures++; \
		} \
	} while (0)
#define CHECK_EQ(a, b) \
	do { \
		long _a = (long)(a), _b = (long)(b); \
		if (_a != _b) { \
			fprintf(stderr, "%s:%d: %s is %ld, not %ld\n", __FILE__, __LINE__, #a, _a, \
				_b); \
			check_failures++; \
		} \
	} while (0)

/* A test: boots a machine whose PID 1 runs the body, in a host process of its own. */
#define MACHINE_TEST(name) \
	static void name##_program(void); \
	static void name(void) \
	{ \
		machine_test_run(name##_program); \
	} \
	static void name##_program(void)

struct machine_test {
	const char *name;
	void (*fn)(void);
};
extern const struct machine_test process_tests[], sched_tests[], rules_tests[], restore_tests[];
void machine_test_run(void (*program)(void));

/* What happened, in order. */
extern int order[64], norder;
void note(int n);
void let_others_sleep(void);

#define USER_RIP 100u
#define NR_RESTART 219u

#define SYS(call) \
	({ \
		struct trapframe *_tf = task_frame(current); \
		bool _block = false; \
		do { \
			_tf->rip = USER_RIP; \
			_tf->orig_rax = 1; \
			current->is_syscall = true; \
			_tf->rax = (uint64_t)(_block ? current->restart_fn(current) : (call)); \
			return_to_user_work(_tf); \
			_block = _tf->rip != USER_RIP && _tf->rax == NR_RESTART; \
		} while (_tf->rip != USER_RIP); \
		(long)_tf->rax; \
	})

/* execve: does not come back when it worked. */
#define EXEC(call) \
	({ \
		long _r = (call); \
		if (_r == 0) \
			arch_return_to_user(); \
		_r; \
	})

#define KWNOHANG 1
#define KWUNTRACED 2
#define KWEXITED 4
#define KWCONTINUED 8
#define KWNOWAIT 0x01000000
#define KWALL 0x40000000

struct krusage;
struct ktimespec;
long sys_wait4(int pid, int *st, int options, struct krusage *u);
long sys_waitid(int which, int id, uint8_t *info, int options, struct krusage *u);
long sys_exit(int code);
long sys_exit_group(int code);
long sys_getpid(void);
long sys_gettid(void);
long sys_getppid(void);
long sys_setpgid(int pid, int pgid);
long sys_setsid(void);
long sys_getsid(int pid);
long sys_getpgid(int pid);
long sys_futex(uint32_t *uaddr, int op, uint32_t val, const struct ktimespec *t, uint32_t *u2,
	       uint32_t val3);
long sys_set_robust_list(void *head, size_t len);
long sys_execve(const char *path, const void *argv, const void *envp);
long sys_kill(int pid, int sig);
long sys_prctl(int op, unsigned long a2, unsigned long a3, unsigned long a4, unsigned long a5);
long sys_pidfd_open(int pid, unsigned flags);
long sys_pidfd_send_signal(int fd, int sig, const uint8_t *info, unsigned flags);
long sys_pidfd_getfd(int pidfd, int fd, unsigned flags);
long sys_nanosleep(const struct ktimespec *ts, struct ktimespec *rem);
long sys_setpriority(int which, int who, int nice);
long sys_getpriority(int which, int who);
long sys_kcmp(int pid1, int pid2, int type, unsigned long fd1, unsigned long fd2);
long sys_unshare(unsigned long flags);
long sys_ioprio_set(int which, int who, int ioprio);
long sys_ioprio_get(int which, int who);
long sys_vhangup(void);
long sys_sched_yield(void);
long sys_getrusage(int who, struct krusage *u);
long sys_clone3(const void *args, size_t size);
long sys_setuid(uint32_t uid);
long sys_setresuid(uint32_t r, uint32_t e, uint32_t s);
long sys_setreuid(uint32_t r, uint32_t e);
long sys_setfsuid(uint32_t u);
long sys_setgid(uint32_t g);
long sys_setresgid(uint32_t r, uint32_t e, uint32_t s);
long sys_setregid(uint32_t r, uint32_t e);
long sys_setgroups(int n, const uint32_t *g);
long sys_getgroups(int n, uint32_t *g);
long sys_capset(void *h, const void *d);
long sys_capget(void *h, void *d);
long sys_prlimit64(int pid, unsigned which, const struct krlimit *n, struct krlimit *o);
long sys_sched_setscheduler(int pid, int policy, const int *prio);
long sys_sched_getaffinity(int pid, unsigned len, void *mask);
long sys_sched_setaffinity(int pid, unsigned len, const uint8_t *mask);
long sys_membarrier(int cmd, unsigned flags, int cpu);

#define ACTION_IGNORE(sig) (current->proc->sighand->action[(sig) - 1].handler = 1)

#endif
