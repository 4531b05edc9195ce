/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inodes: birth, references, death; permission checks against the caller's credentials.
 *
 * An inode of a memory filesystem is kept by the dentries that name it and by open files; with
 * the last reference it is gone, content included. Its filesystem's private part usually lies
 * behind it in the same allocation (inode_new_priv).
 */
#include <linux/capability.h>

#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

/* Of a file without a filesystem (eventfd, epoll): nobody has to look for null before an
 * operation. */
static const struct inode_ops no_ops;

struct inode *inode_new_priv(struct superblock *sb, uint32_t mode, size_t extra)
{
	size_t head = ALIGN_UP(sizeof(struct inode), 16);
	struct inode *i = kzalloc(head + extra);

	if (i == NULL)
		return NULL;
	i->refs = 1;
	i->mode = mode;
	i->nlink = 1;
	i->sb = sb;
	i->ops = &no_ops;
	if (sb != NULL)
		i->ino = ++sb->next_ino;
	i->atime_ns = i->mtime_ns = i->ctime_ns = i->btime_ns = clock_realtime_ns();
	TAILQ_INIT(&i->mappings);
	TAILQ_INIT(&i->locks);
	waitq_init(&i->lock_wait);
	if (extra != 0)
		i->priv = (char *)i + head;
	return i;
}

struct inode *inode_new(struct superblock *sb, uint32_t mode)
{
	return inode_new_priv(sb, mode, 0);
}

void inode_get(struct inode *i)
{
	i->refs++;
}

void inode_put(struct inode *i)
{
	if (i == NULL)
		return;
	ASSERT(i->refs > 0);
	if (--i->refs > 0)
		return;
	if (i->watches.first != NULL)
		inotify_inode_gone(i);
	if (i->ops != NULL && i->ops->free != NULL)
		i->ops->free(i);
	kfree(i);
}

bool fs_capable(int cap)
{
	return fs_cred() == NULL || capable(cap);
}

bool fs_in_group(uint32_t gid)
{
	const struct cred *c = fs_cred();

	return c == NULL || c->fsgid == gid || in_group(c, gid);
}

static int permission_as(const struct inode *i, unsigned mask, uint32_t uid, bool in_grp,
			 bool dac_override, bool dac_read)
{
	uint32_t bits = i->mode;

	if (uid == i->uid)
		bits >>= 6;
	else if (in_grp)
		bits >>= 3;
	if ((mask & ~bits & 7) == 0)
		return 0;
	if (KS_ISDIR(i->mode)) {
		if (dac_override || (dac_read && (mask & 2) == 0))
			return 0;
		return -EACCES;
	}
	if (dac_read && mask == 4)
		return 0;
	if (dac_override && ((mask & 1) == 0 || (i->mode & 0111) != 0))
		return 0;
	return -EACCES;
}

int inode_permission(struct inode *i, unsigned mask)
{
	bool grp;

	if ((mask & 2) != 0 && sb_readonly(i->sb) &&
	    (KS_ISREG(i->mode) || KS_ISDIR(i->mode) || KS_ISLNK(i->mode)))
		return -EROFS;
	/* Everybody's bits suffice: the common case, whoever asks. */
	if ((mask & ~(i->mode & (i->mode >> 3) & (i->mode >> 6)) & 7) == 0)
		return 0;
	grp = fs_in_group(i->gid);
	return permission_as(i, mask, fs_uid(), grp, fs_capable(CAP_DAC_OVERRIDE),
			     fs_capable(CAP_DAC_READ_SEARCH));
}

int inode_permission_real(struct inode *i, unsigned mask)
{
	const struct cred *c = fs_cred();
	uint64_t caps;
	bool grp;

	if ((mask & 2) != 0 && sb_readonly(i->sb) &&
	    (KS_ISREG(i->mode) || KS_ISDIR(i->mode) || KS_ISLNK(i->mode)))
		return -EROFS;
	if (c == NULL)
		return permission_as(i, mask, 0, true, true, true);
	caps = c->uid == 0 ? c->cap_perm : 0;
	grp = c->gid == i->gid;
	if (!grp) {
		for (unsigned n = 0; n < c->ngroups && !grp; n++)
			grp = c->groups[n] == i->gid;
	}
	return permission_as(i, mask, c->uid, grp, (caps >> CAP_DAC_OVERRIDE) & 1,
			     (caps >> CAP_DAC_READ_SEARCH) & 1);
}

int inode_owner_or_capable(const struct inode *i)
{
	return fs_uid() == i->uid || fs_capable(CAP_FOWNER) ? 0 : -EPERM;
}

void inode_init_owner(struct inode *i, struct inode *dir)
{
	i->uid = fs_uid();
	if (dir != NULL && (dir->mode & KS_ISGID) != 0) {
		i->gid = dir->gid;
		if (KS_ISDIR(i->mode))
			i->mode |= KS_ISGID;
		else if ((i->mode & (KS_ISGID | 010)) == (KS_ISGID | 010) &&
			 !fs_in_group(i->gid) && !fs_capable(CAP_FSETID))
			i->mode &= ~KS_ISGID;
	} else {
		i->gid = fs_gid();
	}
}

/* relatime: only when it tells something new. */
void inode_touch_atime(struct file *f)
{
	struct inode *i = f->inode;
	uint64_t now;

	if ((f->flags & KO_NOATIME) != 0 || sb_readonly(i->sb))
		return;
	if (i->atime_ns > i->mtime_ns && i->atime_ns > i->ctime_ns) {
		now = clock_realtime_ns();
		if (now - i->atime_ns < 86400 * NSEC_PER_SEC)
			return;
	} else {
		now = clock_realtime_ns();
	}
	i->atime_ns = now;
}

void inode_touch_mtime(struct inode *i)
{
	i->mtime_ns = i->ctime_ns = clock_realtime_ns();
}
