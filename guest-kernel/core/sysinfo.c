/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the system says about itself, and small calls: uname, sysinfo, host names, membarrier,
 * getrandom, syslog, personality, reboot.
 */
#include <linux/capability.h>
#include <linux/membarrier.h>
#include <linux/reboot.h>

#include "abi/platform.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define UTS_LEN		64
#define PER_UNAME26	0x0020000u
#define GRND_NONBLOCK_	1u
#define GRND_RANDOM_	2u
#define GRND_INSECURE_	4u

char sys_hostname[UTS_LEN + 1] = "casemate";
char sys_domainname[UTS_LEN + 1] = "(none)";

SYSCALL(uname, char __user *ubuf)
{
	const char *const fields[6] = {
		"Linux", sys_hostname,
		(current->proc->personality & PER_UNAME26) != 0 ? "2.6.61-casemate" : SYS_RELEASE,
		SYS_VERSION, "x86_64", sys_domainname,
	};
	char out[UTS_LEN + 1];

	for (unsigned i = 0; i < ARRAY_SIZE(fields); i++) {
		memset(out, 0, sizeof(out));
		memcpy(out, fields[i], strlen(fields[i]));
		if (copy_to_user(ubuf + i * sizeof(out), out, sizeof(out)) != 0)
			return -EFAULT;
	}
	return 0;
}

static long set_uts_name(char *field, const char __user *uname, int len)
{
	char name[UTS_LEN + 1] = {0};

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (len < 0 || len > UTS_LEN)
		return -EINVAL;
	if (copy_from_user(name, uname, (size_t)len) != 0)
		return -EFAULT;
	memcpy(field, name, sizeof(name));
	return 0;
}

SYSCALL(sethostname, const char __user *uname, int len)
{
	return set_uts_name(sys_hostname, uname, len);
}

SYSCALL(setdomainname, const char __user *uname, int len)
{
	return set_uts_name(sys_domainname, uname, len);
}

struct sysinfo_user {		/* struct sysinfo of <linux/sysinfo.h> */
	int64_t uptime;
	uint64_t loads[3];
	uint64_t totalram, freeram, sharedram, bufferram, totalswap, freeswap;
	uint16_t procs, pad;
	uint64_t totalhigh, freehigh;
	uint32_t mem_unit;
};
_Static_assert(sizeof(struct sysinfo_user) == 112, "struct sysinfo");

SYSCALL(sysinfo, struct sysinfo_user __user *uinfo)
{
	struct sysinfo_user s = {.mem_unit = 1};

	s.uptime = (int64_t)((clock_boot_ns() + NSEC_PER_SEC - 1) / NSEC_PER_SEC);
	sched_loadavg(s.loads);
	s.totalram = mem_stats.total_pages * PAGE_SIZE;
	s.freeram = mem_available() * PAGE_SIZE;
	s.sharedram = mem_stats.shmem_pages * PAGE_SIZE;
	s.procs = (uint16_t)task_counts.tasks;
	return PUT_USER(s, uinfo);
}

/* ---- membarrier: one vCPU orders everything; only the registration rules are left ---- */

#define MEMBARRIER_KNOWN \
	(MEMBARRIER_CMD_GLOBAL | MEMBARRIER_CMD_GLOBAL_EXPEDITED | \
	 MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED | MEMBARRIER_CMD_PRIVATE_EXPEDITED | \
	 MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)

SYSCALL(membarrier, int cmd, unsigned flags, int cpu)
{
	struct process *p = current->proc;

	if (flags != 0)
		return -EINVAL;
	switch (cmd) {
	case MEMBARRIER_CMD_QUERY:
		return MEMBARRIER_KNOWN;
	case MEMBARRIER_CMD_GLOBAL:
	case MEMBARRIER_CMD_GLOBAL_EXPEDITED:
		return 0;
	case MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED:
	case MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED:
		p->membarrier |= (uint32_t)cmd;
		return 0;
	case MEMBARRIER_CMD_PRIVATE_EXPEDITED:
		return (p->membarrier & MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0 ? 0
											 : -EPERM;
	default:
		return -EINVAL;
	}
}

/* ---- randomness ---- */

SYSCALL(getrandom, uint8_t __user *buf, size_t n, unsigned flags)
{
	uint8_t chunk[256];
	size_t done = 0;

	if ((flags & ~(GRND_NONBLOCK_ | GRND_RANDOM_ | GRND_INSECURE_)) != 0 ||
	    (flags & (GRND_RANDOM_ | GRND_INSECURE_)) == (GRND_RANDOM_ | GRND_INSECURE_))
		return -EINVAL;
	n = MIN(n, 0x7ffff000ul);
	while (done < n) {
		size_t part = MIN(n - done, sizeof(chunk));

		random_bytes(chunk, part);
		if (copy_to_user(buf + done, chunk, part) != 0) {
			memset(chunk, 0, sizeof(chunk));
			return done != 0 ? (long)done : -EFAULT;
		}
		done += part;
		if (done % PAGE_SIZE != 0)
			continue;
		if (signal_pending(current))
			break;
		if (current->need_resched)
			schedule();
	}
	/* What a program took for a key must not stay on this stack. */
	memset(chunk, 0, sizeof(chunk));
	__asm__ volatile("" : : "r"(chunk) : "memory");
	return (long)done;
}

/* ---- the rest ---- */

/* There is no log inside the guest: messages go to the host. The buffer is always empty. */
SYSCALL(syslog, int type, char __user *buf, int len)
{
	if (type < 0 || type > 10)
		return -EINVAL;
	if (type != 3 && type != 10 && !capable(CAP_SYSLOG) && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	switch (type) {
	case 2:			/* read */
	case 3:			/* read all */
	case 4:			/* read and clear */
		if (buf == NULL || len < 0)
			return -EINVAL;
		return 0;
	case 8:			/* console level */
		return len >= 1 && len <= 8 ? 0 : -EINVAL;
	default:
		return 0;
	}
}

SYSCALL(personality, unsigned persona)
{
	unsigned old = current->proc->personality;

	if (persona != 0xffffffffu)
		current->proc->personality = persona;
	return old;
}

SYSCALL(reboot, unsigned magic1, unsigned magic2, unsigned cmd, void __user *arg)
{
	if (!capable(CAP_SYS_BOOT))
		return -EPERM;
	if (magic1 != LINUX_REBOOT_MAGIC1 ||
	    (magic2 != LINUX_REBOOT_MAGIC2 && magic2 != LINUX_REBOOT_MAGIC2A &&
	     magic2 != LINUX_REBOOT_MAGIC2B && magic2 != LINUX_REBOOT_MAGIC2C))
		return -EINVAL;
	switch (cmd) {
	case LINUX_REBOOT_CMD_CAD_ON:
	case LINUX_REBOOT_CMD_CAD_OFF:
		return 0;
	case LINUX_REBOOT_CMD_RESTART:
	case LINUX_REBOOT_CMD_HALT:
	case LINUX_REBOOT_CMD_POWER_OFF:
		/* A task ends by ending; only initd ends the machine. */
		if (current->proc->pid != 1)
			return -EPERM;
		arch_end(CM_END_POWEROFF);
	default:
		return -EINVAL;
	}
}

/* Restartable sequences need every preemption and signal to look at the program's descriptor.
 * Not offered: the C library does without. */
SYSCALL(rseq, void __user *area, uint32_t len, int flags, uint32_t sig)
{
	return -ENOSYS;
}
