/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules that are tables: flags of clone, #! lines, user and group ids, capabilities, limits.
 * The expectations are those of clone(2), execve(2), setreuid(2), setresuid(2) and
 * capabilities(7).
 */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernel-core/run.h"
#include "tests/unit/kernel-core/user.h"

int kernel_core_rules_suite(void);

#define VM 0x100ULL
#define FS 0x200ULL
#define FILES 0x400ULL
#define SIGHAND 0x800ULL
#define PIDFD 0x1000ULL
#define VFORK 0x4000ULL
#define PARENT 0x8000ULL
#define THREAD 0x10000ULL
#define NEWNS 0x20000ULL
#define PSETTID 0x100000ULL
#define DETACHED 0x400000ULL
#define NEWUSER 0x10000000ULL
#define NEWPID 0x20000000ULL
#define CLEAR 0x100000000ULL

static void clone_flags(void)
{
	static const struct {
		uint64_t flags;
		int exit_signal;
		bool clone3;
		int result;
	} t[] = {
		{0, 17, false, 0},
		{VM | VFORK, 17, false, 0},
		{VM | FS | FILES | SIGHAND | THREAD, 0, false, 0},
		{VM | FS | FILES | SIGHAND | THREAD, 0, true, 0},
		{THREAD, 0, false, -EINVAL},
		{THREAD | VM, 0, false, -EINVAL},
		{THREAD | SIGHAND, 0, false, -EINVAL},
		{SIGHAND, 17, false, -EINVAL},
		{SIGHAND | VM, 17, false, 0},
		{NEWNS | FS, 17, false, -EINVAL},
		{NEWUSER | FS, 17, false, -EINVAL},
		{THREAD | SIGHAND | VM | NEWPID, 0, false, -EINVAL},
		{PIDFD, 17, false, 0},
		{PIDFD | PSETTID, 17, false, -EINVAL},
		{PIDFD | PSETTID, 17, true, 0},
		{PIDFD | THREAD | SIGHAND | VM, 0, true, -EINVAL},
		{PIDFD | DETACHED, 17, false, -EINVAL},
		{DETACHED, 17, false, 0},
		{DETACHED, 17, true, -EINVAL},
		{17, 0, true, -EINVAL},
		{PARENT, 17, true, -EINVAL},
		{PARENT, 0, true, 0},
		{THREAD | SIGHAND | VM, 17, true, -EINVAL},
		{CLEAR, 17, true, 0},
		{CLEAR | SIGHAND | VM, 17, true, -EINVAL},
		{1ULL << 40, 17, true, -EINVAL},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		struct clone_args_k a = {
			.flags = t[i].flags, .exit_signal = t[i].exit_signal, .clone3 = t[i].clone3,
		};

		CU_ASSERT_EQUAL(clone_check(&a), t[i].result);
	}
}

static void script_lines(void)
{
	static const struct {
		const char *text, *interp, *arg;
	} t[] = {
		{"#!/bin/sh\n", "/bin/sh", NULL},
		{"#!/bin/sh", "/bin/sh", NULL},
		{"#! \t/bin/sh \t \n", "/bin/sh", NULL},
		{"#!/bin/sh -e\nx", "/bin/sh", "-e"},
		{"#!/usr/bin/env python3 -u \t\n", "/usr/bin/env", "python3 -u"},
		{"#!/bin/sh\t\t-a  b\n", "/bin/sh", "-a  b"},
		{"#!\n", NULL, NULL},
		{"#!   \n/bin/sh\n", NULL, NULL},
		{"#!", NULL, NULL},
		{"#", NULL, NULL},
		{"hello", NULL, NULL},
		{"", NULL, NULL},
	};
	char buf[SCRIPT_BUF + 1], *interp, *arg;

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		size_t n = strlen(t[i].text);
		int r;

		memset(buf, 'z', sizeof(buf));
		memcpy(buf, t[i].text, n);
		interp = arg = NULL;
		r = script_parse(buf, n, &interp, &arg);
		if (t[i].interp == NULL) {
			CU_ASSERT_EQUAL(r, -ENOEXEC);
			continue;
		}
		CU_ASSERT_EQUAL_FATAL(r, 0);
		CU_ASSERT_STRING_EQUAL(interp, t[i].interp);
		if (t[i].arg == NULL)
			CU_ASSERT_PTR_NULL(arg);
		if (t[i].arg != NULL) {
			CU_ASSERT_PTR_NOT_NULL_FATAL(arg);
			CU_ASSERT_STRING_EQUAL(arg, t[i].arg);
		}
	}
	/* Longer than the buffer: the name must be whole, the argument may be cut. */
	memset(buf, 'a', SCRIPT_BUF);
	memcpy(buf, "#!/", 3);
	CU_ASSERT_EQUAL(script_parse(buf, SCRIPT_BUF, &interp, &arg), -ENOEXEC);
	memset(buf, 'a', SCRIPT_BUF);
	memcpy(buf, "#!/b ", 5);
	CU_ASSERT_EQUAL(script_parse(buf, SCRIPT_BUF, &interp, &arg), 0);
	CU_ASSERT_STRING_EQUAL(interp, "/b");
	CU_ASSERT_EQUAL(strlen(arg), SCRIPT_BUF - 5);
}

/* ---- ids: each row runs in a fresh process ---- */

#define N 0xffffffffu

enum id_call { RESUID, REUID, UID, RESGID, REGID, GID };
struct id_row {
	uint32_t before[3];	/* real, effective, saved */
	bool cap;		/* CAP_SETUID, CAP_SETGID */
	enum id_call call;
	uint32_t arg[3];
	int result;
	uint32_t after[3];
};

static const struct id_row id_rows[] = {
	/* setresuid: any of the three each, unless capable */
	{{1, 2, 3}, false, RESUID, {3, 1, 2}, 0, {3, 1, 2}},
	{{1, 2, 3}, false, RESUID, {N, 3, N}, 0, {1, 3, 3}},
	{{1, 2, 3}, false, RESUID, {N, N, 9}, -EPERM, {1, 2, 3}},
	{{1, 2, 3}, true, RESUID, {9, N, 8}, 0, {9, 2, 8}},
	/* setreuid: real from real or effective; effective from all; saved follows */
	{{1, 2, 3}, false, REUID, {2, N}, 0, {2, 2, 2}},
	{{1, 2, 3}, false, REUID, {3, N}, -EPERM, {1, 2, 3}},
	{{1, 2, 3}, false, REUID, {N, 3}, 0, {1, 3, 3}},
	{{1, 2, 3}, false, REUID, {N, 1}, 0, {1, 1, 3}},
	{{1, 2, 3}, false, REUID, {N, 9}, -EPERM, {1, 2, 3}},
	{{1, 2, 3}, false, REUID, {2, 1}, 0, {2, 1, 1}},
	{{1, 2, 3}, true, REUID, {7, 8}, 0, {7, 8, 8}},
	/* setuid: all three if capable, else effective from real or saved */
	{{0, 0, 0}, true, UID, {5}, 0, {5, 5, 5}},
	{{1, 2, 3}, false, UID, {3}, 0, {1, 3, 3}},
	{{1, 2, 3}, false, UID, {2}, -EPERM, {1, 2, 3}},
	{{1, 2, 3}, false, UID, {N}, -EINVAL, {1, 2, 3}},
	{{1, 2, 3}, false, RESGID, {3, 1, 2}, 0, {3, 1, 2}},
	{{1, 2, 3}, false, RESGID, {N, N, 9}, -EPERM, {1, 2, 3}},
	{{1, 2, 3}, false, REGID, {3, N}, -EPERM, {1, 2, 3}},
	{{1, 2, 3}, false, REGID, {N, 3}, 0, {1, 3, 3}},
	{{1, 2, 3}, true, GID, {5}, 0, {5, 5, 5}},
	{{1, 2, 3}, false, GID, {3}, 0, {1, 3, 3}},
	{{1, 2, 3}, false, GID, {2}, -EPERM, {1, 2, 3}},
};
static unsigned row;

static long id_call(const struct id_row *t)
{
	switch (t->call) {
	case RESUID:
		return sys_setresuid(t->arg[0], t->arg[1], t->arg[2]);
	case REUID:
		return sys_setreuid(t->arg[0], t->arg[1]);
	case UID:
		return sys_setuid(t->arg[0]);
	case RESGID:
		return sys_setresgid(t->arg[0], t->arg[1], t->arg[2]);
	case REGID:
		return sys_setregid(t->arg[0], t->arg[1]);
	default:
		return sys_setgid(t->arg[0]);
	}
}

static void id_rows_program(void)
{
	for (row = 0; row < ARRAY_SIZE(id_rows); row++) {
		const struct id_row *t = &id_rows[row];
		struct cred *c = cred_new(0);

		c->uid = c->gid = t->before[0];
		c->euid = c->fsuid = c->egid = c->fsgid = t->before[1];
		c->suid = c->sgid = t->before[2];
		c->cap_bset = CAP_ALL_MASK;
		c->cap_perm = c->cap_eff = t->cap ? CAP_ALL_MASK : 0;
		cred_commit(c);
		CHECK_EQ(id_call(t), t->result);
		c = current->proc->cred;
		if (t->call <= UID) {
			CHECK_EQ(c->uid, t->after[0]);
			CHECK_EQ(c->euid, t->after[1]);
			CHECK_EQ(c->suid, t->after[2]);
			CHECK_EQ(c->fsuid, t->after[1]);
		} else {
			CHECK_EQ(c->gid, t->after[0]);
			CHECK_EQ(c->egid, t->after[1]);
			CHECK_EQ(c->sgid, t->after[2]);
			CHECK_EQ(c->fsgid, t->after[1]);
		}
		if (check_failures != 0) {
			fprintf(stderr, "in row %u\n", row);
			break;
		}
	}
	sys_exit_group(0);
}

static void caps_program(void)
{
	struct {
		uint32_t version;
		int32_t pid;
	} h = {0x20080522, 0};
	uint32_t d[6], groups[3] = {30, 10, 20}, back[3];
	struct cred *c;

	/* Losing root loses capabilities; a root kept in saved gives them back. */
	CHECK_EQ(sys_setgroups(3, groups), 0);
	CHECK_EQ(sys_getgroups(0, NULL), 3);
	CHECK_EQ(sys_getgroups(2, back), -EINVAL);
	CHECK_EQ(sys_getgroups(3, back), 3);
	CHECK(back[0] == 10 && back[1] == 20 && back[2] == 30);
	CHECK(in_group(current->proc->cred, 20) && !in_group(current->proc->cred, 21));
	CHECK_EQ(sys_setresuid(N, 5, 0), 0);
	c = current->proc->cred;
	CHECK_EQ(c->cap_eff, 0);
	CHECK_EQ(c->cap_perm, CAP_ALL_MASK);
	CHECK_EQ(sys_setgroups(0, NULL), -EPERM);
	CHECK_EQ(sys_setresuid(N, 0, N), 0);
	CHECK_EQ(current->proc->cred->cap_eff, CAP_ALL_MASK);
	/* Filesystem capabilities follow fsuid alone. */
	CHECK_EQ(sys_setfsuid(5), 0);
	CHECK(!capable(0 /* CHOWN */) && capable(7 /* SETUID */));
	CHECK_EQ(sys_setfsuid(0), 5);
	CHECK(capable(0));
	/* capget and capset */
	CHECK_EQ(sys_capget(&h, d), 0);
	CHECK_EQ(d[0], 0xffffffff);
	CHECK_EQ(d[3], 0x1ff);
	h.version = 1;
	CHECK_EQ(sys_capget(&h, NULL), 0);
	CHECK_EQ(h.version, 0x20080522);
	d[0] = d[3] = 0;		/* drop effective */
	CHECK_EQ(sys_capset(&h, d), 0);
	CHECK(!capable(7));
	d[1] = 1;			/* permitted: CHOWN alone */
	d[4] = 0;
	CHECK_EQ(sys_capset(&h, d), 0);
	d[1] = 3;
	CHECK_EQ(sys_capset(&h, d), -EPERM);
	d[0] = 2;			/* effective beyond permitted */
	d[1] = 1;
	CHECK_EQ(sys_capset(&h, d), -EPERM);
	CHECK_EQ(sys_prctl(24, 0, 0, 0, 0), -EPERM);	/* CAPBSET_DROP */
	CHECK_EQ(sys_prctl(23, 40, 0, 0, 0), 1);	/* CAPBSET_READ */
	CHECK_EQ(sys_prctl(23, 41, 0, 0, 0), -EINVAL);
	sys_exit_group(0);
}

static void keepcaps_program(void)
{
	CHECK_EQ(sys_prctl(8, 2, 0, 0, 0), -EINVAL);
	CHECK_EQ(sys_prctl(8, 1, 0, 0, 0), 0);
	CHECK_EQ(sys_prctl(7, 0, 0, 0, 0), 1);
	CHECK_EQ(sys_setresuid(5, 5, 5), 0);
	CHECK_EQ(current->proc->cred->cap_perm, CAP_ALL_MASK);
	CHECK_EQ(current->proc->cred->cap_eff, 0);
	sys_exit_group(0);
}

static void small_calls_program(void)
{
	struct krlimit lim = {10, 5}, old;
	int prio = 1;
	uint64_t mask = 0;
	uint8_t one = 1, two = 2;
	char name[16];
	uint64_t args[12] = {0};

	CHECK_EQ(sys_prlimit64(0, 16, NULL, &old), -EINVAL);
	CHECK_EQ(sys_prlimit64(0, 7, &lim, NULL), -EINVAL);
	lim = (struct krlimit){10, 2000000};
	CHECK_EQ(sys_prlimit64(0, 7, &lim, NULL), -EPERM);
	lim = (struct krlimit){10, 20};
	CHECK_EQ(sys_prlimit64(0, 7, &lim, &old), 0);
	CHECK_EQ(old.cur, 1024);
	CHECK_EQ(sys_sched_setscheduler(0, 1, &prio), 0);
	prio = 0;
	CHECK_EQ(sys_sched_setscheduler(0, 1, &prio), -EINVAL);
	CHECK_EQ(sys_sched_setscheduler(0, 0, &prio), 0);
	CHECK_EQ(sys_sched_setscheduler(0, 4, &prio), -EINVAL);
	CHECK_EQ(sys_sched_getaffinity(0, 8, &mask), 8);
	CHECK_EQ(mask, 1);
	CHECK_EQ(sys_sched_getaffinity(0, 4, &mask), -EINVAL);
	CHECK_EQ(sys_sched_setaffinity(0, 1, &one), 0);
	CHECK_EQ(sys_sched_setaffinity(0, 1, &two), -EINVAL);
	CHECK_EQ(sys_membarrier(8, 0, 0), -EPERM);
	CHECK_EQ(sys_membarrier(16, 0, 0), 0);
	CHECK_EQ(sys_membarrier(8, 0, 0), 0);
	CHECK_EQ(sys_prctl(15, (unsigned long)"a name of fifteen and more", 0, 0, 0), 0);
	CHECK_EQ(sys_prctl(16, (unsigned long)name, 0, 0, 0), 0);
	CHECK(strcmp(name, "a name of fifte") == 0);
	/* clone3: sizes and what must be zero */
	CHECK_EQ(sys_clone3(args, 63), -EINVAL);
	CHECK_EQ(sys_clone3(args, 5000), -E2BIG);
	args[11] = 1;
	CHECK_EQ(sys_clone3(args, 96), -E2BIG);
	args[11] = 0;
	args[4] = 65;
	CHECK_EQ(sys_clone3(args, 88), -EINVAL);
	args[4] = 0;
	args[6] = 100;		/* size of no stack */
	CHECK_EQ(sys_clone3(args, 88), -EINVAL);
	args[6] = 0;
	args[9] = 1;		/* set_tid_size of no array */
	CHECK_EQ(sys_clone3(args, 88), -EINVAL);
	sys_exit_group(0);
}

static int boot(void (*program)(void))
{
	return machine_run(program) != 0 || check_failures != 0;
}

static void id_rules(void)
{
	CU_ASSERT_EQUAL(run_in_child(boot, id_rows_program), 0);
}

static void capability_rules(void)
{
	CU_ASSERT_EQUAL(run_in_child(boot, caps_program), 0);
	CU_ASSERT_EQUAL(run_in_child(boot, keepcaps_program), 0);
}

static void small_calls(void)
{
	CU_ASSERT_EQUAL(run_in_child(boot, small_calls_program), 0);
}

int kernel_core_rules_suite(void)
{
	CU_pSuite suite = CU_add_suite("kernel core rules", NULL, NULL);

	return suite == NULL || CU_add_test(suite, "clone_flags", clone_flags) == NULL ||
	       CU_add_test(suite, "script_lines", script_lines) == NULL ||
	       CU_add_test(suite, "id_rules", id_rules) == NULL ||
	       CU_add_test(suite, "capability_rules", capability_rules) == NULL ||
	       CU_add_test(suite, "small_calls", small_calls) == NULL;
}
