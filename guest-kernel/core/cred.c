/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User and group ids, capabilities, groups: one struct cred per process, immutable once shared,
 * replaced as a whole (cred_copy, change, cred_commit). The rules are those of credentials(7)
 * and capabilities(7).
 *
 * Linux keeps credentials per thread and lets the C library change them in all threads one by
 * one; here the first of these calls changes all, and the others, being repetitions, succeed.
 */
#include <linux/capability.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define NGROUPS_MAX	65536u
#define KEEP		0xffffffffu	/* (uid_t)-1: leave as it is */
#define BIT(cap)	(1ULL << (cap))

/* Capabilities that the filesystem ids, not the effective ones, bring. */
#define CAP_FS_MASK \
	(BIT(CAP_CHOWN) | BIT(CAP_MKNOD) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_DAC_READ_SEARCH) | \
	 BIT(CAP_FOWNER) | BIT(CAP_FSETID) | BIT(CAP_LINUX_IMMUTABLE) | BIT(CAP_MAC_OVERRIDE))

static struct cred *me(void)
{
	return current->proc->cred;
}

struct cred *cred_new(unsigned ngroups)
{
	struct cred *c = kzalloc(sizeof(*c) + ngroups * sizeof(c->groups[0]));

	if (c == NULL)
		return NULL;
	c->refs = 1;
	c->ngroups = ngroups;
	return c;
}

struct cred *cred_copy(const struct cred *old)
{
	size_t size = sizeof(*old) + old->ngroups * sizeof(old->groups[0]);
	struct cred *c = kmemdup(old, size);

	if (c != NULL)
		c->refs = 1;
	return c;
}

struct cred *cred_get(struct cred *c)
{
	c->refs++;
	return c;
}

void cred_put(struct cred *c)
{
	ASSERT(c->refs > 0);
	if (--c->refs == 0)
		kfree(c);
}

void cred_commit(struct cred *c)
{
	struct cred *old = me();

	current->proc->cred = c;
	cred_put(old);
}

/* The same for changes while a program runs: it may no longer be looked into. */
static int commit_ids(struct cred *c)
{
	struct cred *old = me();

	if (c->euid != old->euid || c->egid != old->egid || c->fsuid != old->fsuid ||
	    c->fsgid != old->fsgid || (c->cap_perm & ~old->cap_perm) != 0) {
		current->proc->dumpable = false;
		current->pdeath_signal = 0;
	}
	cred_commit(c);
	return 0;
}

bool capable(int cap)
{
	return (me()->cap_eff & BIT(cap)) != 0;
}

bool in_group(const struct cred *c, uint32_t gid)
{
	unsigned lo = 0, hi = c->ngroups;

	if (gid == c->fsgid)
		return true;
	while (lo < hi) {	/* sorted by setgroups */
		unsigned mid = (lo + hi) / 2;

		if (c->groups[mid] == gid)
			return true;
		if (c->groups[mid] < gid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

void cred_fixup_uids(struct cred *c, const struct cred *old)
{
	bool had_root = old->uid == 0 || old->euid == 0 || old->suid == 0;
	bool has_root = c->uid == 0 || c->euid == 0 || c->suid == 0;

	if ((c->securebits & SECBIT_NO_SETUID_FIXUP) != 0)
		return;
	if (had_root && !has_root) {
		if ((c->securebits & SECBIT_KEEP_CAPS) == 0)
			c->cap_perm = c->cap_eff = 0;
		c->cap_ambient = 0;
	}
	if (old->euid == 0 && c->euid != 0)
		c->cap_eff = 0;
	if (old->euid != 0 && c->euid == 0)
		c->cap_eff = c->cap_perm;
}

static void fixup_fsuid(struct cred *c, uint32_t old_fsuid)
{
	if ((c->securebits & SECBIT_NO_SETUID_FIXUP) != 0)
		return;
	if (old_fsuid == 0 && c->fsuid != 0)
		c->cap_eff &= ~CAP_FS_MASK;
	if (old_fsuid != 0 && c->fsuid == 0)
		c->cap_eff |= c->cap_perm & CAP_FS_MASK;
}

/* ---- reading ---- */

SYSCALL(getuid, void)
{
	return me()->uid;
}

SYSCALL(geteuid, void)
{
	return me()->euid;
}

SYSCALL(getgid, void)
{
	return me()->gid;
}

SYSCALL(getegid, void)
{
	return me()->egid;
}

SYSCALL(getresuid, uint32_t __user *r, uint32_t __user *e, uint32_t __user *s)
{
	const struct cred *c = me();

	if (PUT_USER(c->uid, r) != 0 || PUT_USER(c->euid, e) != 0 || PUT_USER(c->suid, s) != 0)
		return -EFAULT;
	return 0;
}

SYSCALL(getresgid, uint32_t __user *r, uint32_t __user *e, uint32_t __user *s)
{
	const struct cred *c = me();

	if (PUT_USER(c->gid, r) != 0 || PUT_USER(c->egid, e) != 0 || PUT_USER(c->sgid, s) != 0)
		return -EFAULT;
	return 0;
}

/* ---- user ids ---- */

SYSCALL(setuid, uint32_t uid)
{
	const struct cred *old = me();
	struct cred *c;

	if (uid == KEEP)
		return -EINVAL;
	if (!capable(CAP_SETUID) && uid != old->uid && uid != old->suid)
		return -EPERM;
	c = cred_copy(old);
	if (c == NULL)
		return -ENOMEM;
	if (capable(CAP_SETUID))
		c->uid = c->suid = uid;
	c->euid = c->fsuid = uid;
	cred_fixup_uids(c, old);
	return commit_ids(c);
}

SYSCALL(setreuid, uint32_t ruid, uint32_t euid)
{
	const struct cred *old = me();
	struct cred *c;

	if (!capable(CAP_SETUID)) {
		if (ruid != KEEP && ruid != old->uid && ruid != old->euid)
			return -EPERM;
		if (euid != KEEP && euid != old->uid && euid != old->euid && euid != old->suid)
			return -EPERM;
	}
	c = cred_copy(old);
	if (c == NULL)
		return -ENOMEM;
	if (ruid != KEEP)
		c->uid = ruid;
	if (euid != KEEP)
		c->euid = euid;
	if (ruid != KEEP || (euid != KEEP && euid != old->uid))
		c->suid = c->euid;
	c->fsuid = c->euid;
	cred_fixup_uids(c, old);
	return commit_ids(c);
}

static bool one_of(uint32_t id, uint32_t a, uint32_t b, uint32_t c)
{
	return id == KEEP || id == a || id == b || id == c;
}

SYSCALL(setresuid, uint32_t ruid, uint32_t euid, uint32_t suid)
{
	const struct cred *old = me();
	struct cred *c;

	if (!capable(CAP_SETUID) && (!one_of(ruid, old->uid, old->euid, old->suid) ||
				     !one_of(euid, old->uid, old->euid, old->suid) ||
				     !one_of(suid, old->uid, old->euid, old->suid)))
		return -EPERM;
	c = cred_copy(old);
	if (c == NULL)
		return -ENOMEM;
	if (ruid != KEEP)
		c->uid = ruid;
	if (euid != KEEP)
		c->euid = euid;
	if (suid != KEEP)
		c->suid = suid;
	c->fsuid = c->euid;
	cred_fixup_uids(c, old);
	return commit_ids(c);
}

/* Returns the old id, whether it was changed or not. */
SYSCALL(setfsuid, uint32_t uid)
{
	const struct cred *old = me();
	uint32_t was = old->fsuid;
	struct cred *c;

	if (uid == KEEP || uid == was)
		return was;
	if (!one_of(uid, old->uid, old->euid, old->suid) && !capable(CAP_SETUID))
		return was;
	c = cred_copy(old);
	if (c == NULL)
		return was;
	c->fsuid = uid;
	fixup_fsuid(c, was);
	commit_ids(c);
	return was;
}

/* ---- group ids ---- */

SYSCALL(setgid, uint32_t gid)
{
	const struct cred *old = me();
	struct cred *c;

	if (gid == KEEP)
		return -EINVAL;
	if (!capable(CAP_SETGID) && gid != old->gid && gid != old->sgid)
		return -EPERM;
	c = cred_copy(old);
	if (c == NULL)
		return -ENOMEM;
	if (capable(CAP_SETGID))
		c->gid = c->sgid = gid;
	c->egid = c->fsgid = gid;
	return commit_ids(c);
}

SYSCALL(setregid, uint32_t rgid, uint32_t egid)
{
	const struct cred *old = me();
	struct cred *c;

	if (!capable(CAP_SETGID)) {
		if (rgid != KEEP && rgid != old->gid && rgid != old->egid)
			return -EPERM;
		if (egid != KEEP && egid != old->gid && egid != old->egid && egid != old->sgid)
			return -EPERM;
	}
	c = cred_copy(old);
	if (c == NULL)
		return -ENOMEM;
	if (rgid != KEEP)
		c->gid = rgid;
	if (egid != KEEP)
		c->egid = egid;
	if (rgid != KEEP || (egid != KEEP && egid != old->gid))
		c->sgid = c->egid;
	c->fsgid = c->egid;
	return commit_ids(c);
}

SYSCALL(setresgid, uint32_t rgid, uint32_t egid, uint32_t sgid)
{
	const struct cred *old = me();
	struct cred *c;

	if (!capable(CAP_SETGID) && (!one_of(rgid, old->gid, old->egid, old->sgid) ||
				     !one_of(egid, old->gid, old->egid, old->sgid) ||
				     !one_of(sgid, old->gid, old->egid, old->sgid)))
		return -EPERM;
	c = cred_copy(old);
	if (c == NULL)
		return -ENOMEM;
	if (rgid != KEEP)
		c->gid = rgid;
	if (egid != KEEP)
		c->egid = egid;
	if (sgid != KEEP)
		c->sgid = sgid;
	c->fsgid = c->egid;
	return commit_ids(c);
}

SYSCALL(setfsgid, uint32_t gid)
{
	const struct cred *old = me();
	uint32_t was = old->fsgid;
	struct cred *c;

	if (gid == KEEP || gid == was)
		return was;
	if (!one_of(gid, old->gid, old->egid, old->sgid) && !capable(CAP_SETGID))
		return was;
	c = cred_copy(old);
	if (c == NULL)
		return was;
	c->fsgid = gid;
	commit_ids(c);
	return was;
}

SYSCALL(getgroups, int size, uint32_t __user *list)
{
	const struct cred *c = me();

	if (size < 0)
		return -EINVAL;
	if (size != 0) {
		if ((unsigned)size < c->ngroups)
			return -EINVAL;
		if (copy_to_user(list, c->groups, c->ngroups * sizeof(c->groups[0])) != 0)
			return -EFAULT;
	}
	return c->ngroups;
}

/* Shell sort: the list is small, or its owner is root. */
static void sort_groups(uint32_t *g, unsigned n)
{
	for (unsigned gap = n / 2; gap > 0; gap /= 2)
		for (unsigned i = gap; i < n; i++) {
			uint32_t v = g[i];
			unsigned j = i;

			for (; j >= gap && g[j - gap] > v; j -= gap)
				g[j] = g[j - gap];
			g[j] = v;
		}
}

SYSCALL(setgroups, int size, const uint32_t __user *list)
{
	const struct cred *old = me();
	unsigned n = (unsigned)size;
	struct cred *c;

	if (!capable(CAP_SETGID))
		return -EPERM;
	if (n > NGROUPS_MAX)
		return -EINVAL;
	c = cred_new(n);
	if (c == NULL)
		return -ENOMEM;
	memcpy(c, old, sizeof(*c));
	c->refs = 1;
	c->ngroups = n;
	if (copy_from_user(c->groups, list, n * sizeof(c->groups[0])) != 0) {
		cred_put(c);
		return -EFAULT;
	}
	sort_groups(c->groups, n);
	return commit_ids(c);
}

/* ---- capabilities ---- */

struct cap_header {
	uint32_t version;
	int32_t pid;
};
struct cap_data {
	uint32_t eff, perm, inh;
};

/* Number of cap_data elements that the caller's version has, or -EINVAL after telling ours. */
static int cap_version(struct cap_header __user *uh, struct cap_header *h)
{
	static const uint32_t ours = _LINUX_CAPABILITY_VERSION_3;

	if (GET_USER(*h, uh) != 0)
		return -EFAULT;
	switch (h->version) {
	case _LINUX_CAPABILITY_VERSION_1:
		return 1;
	case _LINUX_CAPABILITY_VERSION_2:
	case _LINUX_CAPABILITY_VERSION_3:
		return 2;
	default:
		return PUT_USER(ours, &uh->version) != 0 ? -EFAULT : -EINVAL;
	}
}

SYSCALL(capget, struct cap_header __user *uh, struct cap_data __user *ud)
{
	struct cap_data d[2];
	struct cap_header h;
	const struct cred *c;
	struct task *t;
	int n = cap_version(uh, &h);

	if (n < 0)	/* asking for the version only */
		return n == -EINVAL && ud == NULL ? 0 : n;
	if (h.pid < 0)
		return -EINVAL;
	t = h.pid == 0 ? current : task_find(h.pid);
	if (t == NULL)
		return -ESRCH;
	c = t->proc->cred;
	for (int i = 0; i < 2; i++)
		d[i] = (struct cap_data){
			.eff = (uint32_t)(c->cap_eff >> (32 * i)),
			.perm = (uint32_t)(c->cap_perm >> (32 * i)),
			.inh = (uint32_t)(c->cap_inh >> (32 * i)),
		};
	if (ud == NULL)
		return -EFAULT;
	return copy_to_user(ud, d, (size_t)n * sizeof(d[0]));
}

SYSCALL(capset, struct cap_header __user *uh, const struct cap_data __user *ud)
{
	struct cap_data d[2] = {{0}};
	struct cap_header h;
	const struct cred *old = me();
	uint64_t eff, perm, inh;
	struct cred *c;
	int n = cap_version(uh, &h);

	if (n < 0)
		return n;
	if (h.pid != 0 && h.pid != current->tid)
		return -EPERM;
	if (copy_from_user(d, ud, (size_t)n * sizeof(d[0])) != 0)
		return -EFAULT;
	eff = (d[0].eff | (uint64_t)d[1].eff << 32) & CAP_ALL_MASK;
	perm = (d[0].perm | (uint64_t)d[1].perm << 32) & CAP_ALL_MASK;
	inh = (d[0].inh | (uint64_t)d[1].inh << 32) & CAP_ALL_MASK;
	if ((inh & ~(old->cap_inh | old->cap_perm)) != 0 && !capable(CAP_SETPCAP))
		return -EPERM;
	if ((inh & ~(old->cap_inh | old->cap_bset)) != 0 || (perm & ~old->cap_perm) != 0 ||
	    (eff & ~perm) != 0)
		return -EPERM;
	c = cred_copy(old);
	if (c == NULL)
		return -ENOMEM;
	c->cap_eff = eff;
	c->cap_perm = perm;
	c->cap_inh = inh;
	c->cap_ambient &= perm & inh;
	return commit_ids(c);
}
