/* SPDX-License-Identifier: Apache-2.0 */
/* Files without a place in the tree: eventfd, timerfd, signalfd, epoll, pidfd. */
#include <linux/magic.h>

#include "guest-kernel/fs/vfs.h"

static struct superblock anon_sb = {
	.type = "anon_inodefs",
	.dev = 14,
	.magic = ANON_INODE_FS_MAGIC,
};

static struct dentry *anon_dentry(const char *name)
{
	static struct inode *shared;	/* one for all, as on Linux; never freed */

	if (shared == NULL) {
		shared = inode_new(&anon_sb, 0600);
		if (shared == NULL)
			return NULL;
	}
	inode_get(shared);
	return dentry_anon(shared, name);
}

struct file *anon_file_new(const char *name, const struct file_ops *ops, void *priv,
			   uint32_t flags)
{
	struct dentry *d = anon_dentry(name);
	struct file *f;

	if (d == NULL || IS_ERR(d))
		return ERR_PTR(-ENOMEM);
	if ((flags & KO_ACCMODE) == 0)
		flags |= KO_RDWR;
	f = file_new(d, ops, flags);
	if (f == NULL || IS_ERR(f))
		return ERR_PTR(-ENOMEM);
	f->priv = priv;
	return f;
}

long anon_lseek(struct file *f, int64_t off, int whence)
{
	return (long)f->pos;
}
