/* SPDX-License-Identifier: Apache-2.0 */
/* prctl and arch_prctl. What is not here answers EINVAL, as a kernel built without it does. */
#include <linux/capability.h>
#include <linux/prctl.h>
#include <asm/prctl.h>

#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/mm/uaccess.h"

#define CAP_VALID(c)	((c) <= CAP_LAST_CAP)

static long set_name(const char __user *uname)
{
	char name[16];
	long n = strncpy_from_user(name, uname, sizeof(name) - 1);

	if (n == -ENAMETOOLONG) {
		if (copy_from_user(name, uname, sizeof(name) - 1) != 0)
			return -EFAULT;
		n = sizeof(name) - 1;
	}
	if (n < 0)
		return n;
	memset(name + n, 0, sizeof(name) - (size_t)n);
	memcpy(current->comm, name, sizeof(name));
	if (current == current->proc->leader)
		memcpy(current->proc->comm, name, sizeof(name));
	return 0;
}

/* Applies a change to a copy of the credentials. */
static long change_cred(void (*fn)(struct cred *c, unsigned long arg), unsigned long arg)
{
	struct cred *c = cred_copy(current->proc->cred);

	if (c == NULL)
		return -ENOMEM;
	fn(c, arg);
	cred_commit(c);
	return 0;
}

static void do_bset_drop(struct cred *c, unsigned long cap)
{
	c->cap_bset &= ~(1ULL << cap);
}

static void do_securebits(struct cred *c, unsigned long bits)
{
	c->securebits = (uint32_t)bits;
}

static void do_ambient_set(struct cred *c, unsigned long mask)
{
	c->cap_ambient = mask;
}

static long bset_drop(unsigned long cap)
{
	if (!capable(CAP_SETPCAP))
		return -EPERM;
	if (!CAP_VALID(cap))
		return -EINVAL;
	return change_cred(do_bset_drop, cap);
}

static long set_keepcaps(unsigned long on)
{
	uint32_t bits = current->proc->cred->securebits;

	if (on > 1)
		return -EINVAL;
	if ((bits & SECBIT_KEEP_CAPS_LOCKED) != 0)
		return -EPERM;
	bits = on != 0 ? bits | SECBIT_KEEP_CAPS : bits & ~SECBIT_KEEP_CAPS;
	return change_cred(do_securebits, bits);
}

static long set_securebits(unsigned long bits)
{
	uint32_t old = current->proc->cred->securebits;
	unsigned long locks = old & SECBITS_LOCKS;

	if (((locks >> 1) & (old ^ bits)) != 0 || (locks & ~bits) != 0 ||
	    (bits & ~(unsigned long)SECBITS_ALL) != 0 || !capable(CAP_SETPCAP))
		return -EPERM;
	return change_cred(do_securebits, bits);
}

static long cap_ambient(unsigned long op, unsigned long cap, unsigned long a4, unsigned long a5)
{
	const struct cred *c = current->proc->cred;
	uint64_t bit;

	if (op == PR_CAP_AMBIENT_CLEAR_ALL) {
		if ((cap | a4 | a5) != 0)
			return -EINVAL;
		return change_cred(do_ambient_set, 0);
	}
	if (!CAP_VALID(cap) || (a4 | a5) != 0)
		return -EINVAL;
	bit = 1ULL << cap;
	switch (op) {
	case PR_CAP_AMBIENT_IS_SET:
		return (c->cap_ambient & bit) != 0;
	case PR_CAP_AMBIENT_RAISE:
		if ((c->cap_perm & bit) == 0 || (c->cap_inh & bit) == 0 ||
		    (c->securebits & SECBIT_NO_CAP_AMBIENT_RAISE) != 0)
			return -EPERM;
		return change_cred(do_ambient_set, c->cap_ambient | bit);
	case PR_CAP_AMBIENT_LOWER:
		return change_cred(do_ambient_set, c->cap_ambient & ~bit);
	default:
		return -EINVAL;
	}
}

static long prctl_cred(int op, unsigned long a2, unsigned long a3, unsigned long a4,
		       unsigned long a5)
{
	const struct cred *c = current->proc->cred;

	switch (op) {
	case PR_GET_KEEPCAPS:
		return (c->securebits & SECBIT_KEEP_CAPS) != 0;
	case PR_SET_KEEPCAPS:
		return set_keepcaps(a2);
	case PR_CAPBSET_READ:
		return CAP_VALID(a2) ? (long)(c->cap_bset >> a2 & 1) : -EINVAL;
	case PR_CAPBSET_DROP:
		return bset_drop(a2);
	case PR_GET_SECUREBITS:
		return c->securebits;
	case PR_SET_SECUREBITS:
		return set_securebits(a2);
	default:
		return cap_ambient(a2, a3, a4, a5);
	}
}

static long prctl_process(int op, unsigned long a2, unsigned long a3, unsigned long a4,
			  unsigned long a5)
{
	struct process *p = current->proc;
	int value;

	switch (op) {
	case PR_GET_DUMPABLE:
		return p->dumpable;
	case PR_SET_DUMPABLE:
		if (a2 > 1)
			return -EINVAL;
		p->dumpable = a2 != 0;
		return 0;
	case PR_SET_NO_NEW_PRIVS:
		if (a2 != 1 || (a3 | a4 | a5) != 0)
			return -EINVAL;
		p->no_new_privs = true;
		return 0;
	case PR_GET_NO_NEW_PRIVS:
		if ((a2 | a3 | a4 | a5) != 0)
			return -EINVAL;
		return p->no_new_privs;
	case PR_SET_CHILD_SUBREAPER:
		p->subreaper = a2 != 0;
		return 0;
	case PR_GET_CHILD_SUBREAPER:
		value = p->subreaper;
		return PUT_USER(value, (int __user *)a2);
	case PR_SET_THP_DISABLE:
		if ((a3 | a4 | a5) != 0)
			return -EINVAL;
		p->thp_disable = a2 != 0;
		return 0;
	default: /* PR_GET_THP_DISABLE */
		if ((a2 | a3 | a4 | a5) != 0)
			return -EINVAL;
		return p->thp_disable;
	}
}

SYSCALL(prctl, int op, unsigned long a2, unsigned long a3, unsigned long a4, unsigned long a5)
{
	struct task *t = current;
	int value;

	switch (op) {
	case PR_SET_NAME:
		return set_name((const char __user *)a2);
	case PR_GET_NAME:
		return copy_to_user((void __user *)a2, t->comm, sizeof(t->comm));
	case PR_SET_PDEATHSIG:
		if (a2 > KSIGMAX)
			return -EINVAL;
		t->pdeath_signal = (uint32_t)a2;
		return 0;
	case PR_GET_PDEATHSIG:
		value = (int)t->pdeath_signal;
		return PUT_USER(value, (int __user *)a2);
	case PR_GET_TIMERSLACK:
		return (long)t->timer_slack_ns;
	case PR_SET_TIMERSLACK:
		t->timer_slack_ns = (long)a2 > 0 ? a2 : t->default_timer_slack_ns;
		return 0;
	case PR_GET_TIMING:
		return PR_TIMING_STATISTICAL;
	case PR_SET_TIMING:
		return a2 == PR_TIMING_STATISTICAL ? 0 : -EINVAL;
	case PR_GET_TID_ADDRESS:
		return PUT_USER(t->clear_child_tid, (void __user *__user *)a2);
	case PR_GET_KEEPCAPS:
	case PR_SET_KEEPCAPS:
	case PR_CAPBSET_READ:
	case PR_CAPBSET_DROP:
	case PR_GET_SECUREBITS:
	case PR_SET_SECUREBITS:
	case PR_CAP_AMBIENT:
		return prctl_cred(op, a2, a3, a4, a5);
	case PR_GET_DUMPABLE:
	case PR_SET_DUMPABLE:
	case PR_SET_NO_NEW_PRIVS:
	case PR_GET_NO_NEW_PRIVS:
	case PR_SET_CHILD_SUBREAPER:
	case PR_GET_CHILD_SUBREAPER:
	case PR_SET_THP_DISABLE:
	case PR_GET_THP_DISABLE:
		return prctl_process(op, a2, a3, a4, a5);
	case PR_SET_VMA:
		/* A name for a mapping: taken, but /proc/PID/maps does not show it. */
		if (a2 != PR_SET_VMA_ANON_NAME)
			return -EINVAL;
		return syscall_partial("prctl", "PR_SET_VMA names are not shown", 0);
	case PR_GET_SECCOMP:
	case PR_SET_SECCOMP:
		return syscall_partial("prctl", "seccomp", -EINVAL);
	case PR_SET_MM:
		return syscall_partial("prctl", "PR_SET_MM", -EINVAL);
	default:
		return -EINVAL;
	}
}

SYSCALL(arch_prctl, int op, unsigned long addr)
{
	uint64_t value;

	switch (op) {
	case ARCH_SET_FS:
		if (addr >= CM_USER_TOP)
			return -EPERM;
		arch_set_fsbase(addr);
		return 0;
	case ARCH_SET_GS:
		if (addr >= CM_USER_TOP)
			return -EPERM;
		arch_set_gsbase(addr);
		return 0;
	case ARCH_GET_FS:
		value = arch_get_fsbase();
		return PUT_USER(value, (uint64_t __user *)addr);
	case ARCH_GET_GS:
		value = arch_get_gsbase();
		return PUT_USER(value, (uint64_t __user *)addr);
	case ARCH_GET_CPUID:
		return 1;
	case ARCH_SET_CPUID:
		return -ENODEV;
	default:	/* among them the probes for shadow stacks (0x3001 ...) */
		return -EINVAL;
	}
}
