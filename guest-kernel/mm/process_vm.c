/* SPDX-License-Identifier: Apache-2.0 */
/* process_vm_readv and process_vm_writev: copies through a kernel buffer, a page at a time. */
#include <linux/capability.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/mm/mm_internal.h"
#include "guest-kernel/mm/uaccess.h"

static bool may_access(const struct process *p)
{
	const struct cred *me = current->proc->cred, *it = p->cred;

	if (p == current->proc || capable(CAP_SYS_PTRACE))
		return true;
	return p->dumpable && me->uid == it->euid && me->uid == it->suid && me->uid == it->uid &&
	       me->gid == it->egid && me->gid == it->sgid && me->gid == it->gid;
}

/* Moves bytes until one side ends or a bad address. */
static long transfer(struct mm *mm, struct uio *local, const struct uiovec *remote,
		     unsigned long nremote, bool write, char *buf)
{
	long total = 0;

	for (unsigned long i = 0; i < nremote && local->resid != 0; i++) {
		uintptr_t va = (uintptr_t)remote[i].base;
		size_t left = remote[i].len;

		while (left != 0 && local->resid != 0) {
			size_t n = MIN(MIN(left, local->resid),
				       PAGE_SIZE - (va & (PAGE_SIZE - 1)));
			size_t got, put;

			if (write) {
				got = uio_get(local, buf, n);
				put = mm_poke(mm, va, buf, got);
			} else {
				got = mm_peek(mm, va, buf, n);
				put = uio_put(local, buf, got);
			}
			total += (long)put;
			if (put < n)
				return total != 0 ? total : -EFAULT;
			va += n;
			left -= n;
			if (signal_fatal_pending(current))
				return total;
		}
	}
	return total;
}

static long process_vm(int pid, const struct uiovec __user *ulocal, unsigned long nlocal,
		       const struct uiovec __user *uremote, unsigned long nremote,
		       unsigned long flags, bool write)
{
	struct uiovec *liov = NULL, *riov = NULL;
	struct uio local, remote;
	struct mm *mm = NULL;
	struct task *t;
	char *buf = NULL;
	long r;

	if (flags != 0)
		return -EINVAL;
	r = uio_import(&local, ulocal, nlocal, &liov);
	if (r != 0 || local.resid == 0)
		goto out;
	r = uio_import(&remote, uremote, nremote, &riov);
	if (r != 0 || remote.resid == 0)
		goto out;
	t = task_find(pid);
	r = -ESRCH;
	if (t == NULL || t->mm == NULL)
		goto out;
	r = -EPERM;
	if (!may_access(t->proc))
		goto out;
	r = -ENOMEM;
	buf = kmalloc(PAGE_SIZE);
	if (buf == NULL)
		goto out;
	mm = t->mm;
	mm_get(mm);
	r = transfer(mm, &local, riov, nremote, write, buf);
out:
	if (mm != NULL)
		mm_put(mm);
	kfree(buf);
	kfree(riov);
	kfree(liov);
	return r;
}

SYSCALL(process_vm_readv, int pid, const struct uiovec __user *local, unsigned long nlocal,
	const struct uiovec __user *remote, unsigned long nremote, unsigned long flags)
{
	return process_vm(pid, local, nlocal, remote, nremote, flags, false);
}

SYSCALL(process_vm_writev, int pid, const struct uiovec __user *local, unsigned long nlocal,
	const struct uiovec __user *remote, unsigned long nremote, unsigned long flags)
{
	return process_vm(pid, local, nlocal, remote, nremote, flags, true);
}
