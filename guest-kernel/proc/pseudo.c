/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filesystems whose files are functions. Each lookup makes a fresh inode and dentry for the
 * table entry found (they go with the last reference); numbers are a hash of what the inode
 * stands for, so that they are the same each time.
 *
 * A regular file's text is made at the first read and again whenever a read starts at offset
 * 0, as programs that keep /proc files open expect; reads further on come from that text.
 *
 * A node of a process stays valid after the process is gone: looking things up in it then
 * answers ENOENT, reading ESRCH.
 */
#include "guest-kernel/proc/pseudo.h"

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define STORE_MAX	4096u

static const struct inode_ops dir_iops, file_iops, link_iops, magic_iops;
static const struct file_ops dir_fops, file_fops;

const struct pseudo_node *pseudo_node_of(const struct inode *i)
{
	return i->priv;
}

/* Is what the node stands for still there? */
static bool node_alive(const struct pseudo_node *n)
{
	struct task *t;

	if (n->proc == NULL)
		return true;
	if (n->tid != 0) {
		t = task_find(n->tid);
		return t != NULL && t->proc == n->proc;
	}
	return process_find(n->proc->pid) == n->proc;
}

uint64_t pseudo_ino(const struct pseudo_node *n)
{
	uint64_t h = (uintptr_t)n->e;

	if (n->proc != NULL)
		h ^= (uint64_t)n->proc->pid << 40;
	h ^= (uint64_t)n->tid << 20 ^ (uint64_t)(n->fd + 1) << 4;
	h *= 0x9e3779b97f4a7c15ULL;
	h ^= h >> 29;
	return (h & 0xffffffffULL) | 0x100000000ULL;
}

/* ---- inodes ---- */

static void node_owner(struct inode *i)
{
	const struct pseudo_node *n = i->priv;

	if (!n->e->owned || n->proc == NULL || n->proc->cred == NULL)
		return;
	if (!n->proc->dumpable && !(KS_ISDIR(i->mode) && (i->mode & 0777) == 0555)) {
		i->uid = i->gid = 0;
		return;
	}
	i->uid = n->proc->cred->euid;
	i->gid = n->proc->cred->egid;
}

static struct inode *node_inode(struct superblock *sb, const struct pseudo_node *n)
{
	const struct pseudo_entry *e = n->e;
	struct pseudo_node *copy = kmemdup(n, sizeof(*n));
	struct inode *i;

	if (copy == NULL)
		return NULL;
	i = inode_new(sb, e->mode);
	if (i == NULL) {
		kfree(copy);
		return NULL;
	}
	if (copy->proc != NULL)
		process_get(copy->proc);
	i->priv = copy;
	i->ino = pseudo_ino(n);
	if (KS_ISDIR(e->mode)) {
		i->ops = &dir_iops;
		i->nlink = 2;
	} else if (KS_ISLNK(e->mode)) {
		i->ops = e->follow != NULL ? &magic_iops : &link_iops;
		if (e->name[0] == 0)
			i->size = 64;	/* fd/N, of all links, shows a size */
	} else {
		i->ops = &file_iops;
	}
	node_owner(i);
	return i;
}

static void node_free(struct inode *i)
{
	struct pseudo_node *n = i->priv;

	if (n->proc != NULL)
		process_put(n->proc);
	kfree(n);
}

struct dentry *pseudo_make(struct dentry *dir, const char *name, size_t len,
			   const struct pseudo_node *n)
{
	struct inode *i = node_inode(dir->inode->sb, n);
	struct dentry *d;

	if (i == NULL)
		return ERR_PTR(-ENOMEM);
	d = dentry_new(dir, name, len, i);
	return d != NULL ? d : ERR_PTR(-ENOMEM);
}

int pseudo_mount(struct superblock *sb, const struct pseudo_entry *root)
{
	struct pseudo_node n = { .e = root };
	struct inode *i = node_inode(sb, &n);

	if (i == NULL)
		return -ENOMEM;
	i->ino = 1;
	sb->root = dentry_new(NULL, "", 0, i);
	return sb->root != NULL ? 0 : -ENOMEM;
}

static int node_setattr(struct inode *i, const struct attr *a)
{
	return a->mask & ~(ATTR_SIZE | ATTR_ATIME | ATTR_MTIME) ? -EPERM : 0;
}

/* ---- directories ---- */

static struct dentry *dir_lookup(struct dentry *dir, const char *name, size_t len)
{
	const struct pseudo_node *n = dir->inode->priv;
	const struct pseudo_entry *c;
	struct pseudo_node child;

	if (!node_alive(n))
		return ERR_PTR(-ENOENT);
	for (c = n->e->children; c != NULL && c->name != NULL; c++) {
		if (strlen(c->name) != len || memcmp(c->name, name, len) != 0)
			continue;
		child = *n;
		child.e = c;
		return pseudo_make(dir, name, len, &child);
	}
	return n->e->lookup != NULL ? n->e->lookup(dir, name, len) : ERR_PTR(-ENOENT);
}

bool pseudo_emit_dots(struct file *f, struct readdir_ctx *ctx)
{
	struct dentry *d = f->dentry, *up = d->parent;

	if (up == d && d->covers != NULL)
		up = d->covers->parent;
	if (ctx->pos == 0) {
		if (!ctx->emit(ctx, ".", 1, d->inode->ino, KS_IFDIR, 1))
			return false;
		ctx->pos = 1;
	}
	if (ctx->pos == 1) {
		if (!ctx->emit(ctx, "..", 2, up->inode->ino, KS_IFDIR, 2))
			return false;
		ctx->pos = 2;
	}
	return true;
}

static int dir_readdir(struct file *f, struct readdir_ctx *ctx)
{
	const struct pseudo_node *n = f->inode->priv;
	const struct pseudo_entry *c = n->e->children;
	uint64_t k = 2;

	if (!node_alive(n))
		return -ENOENT;
	if (!pseudo_emit_dots(f, ctx))
		return 0;
	for (; c != NULL && c->name != NULL; c++, k++) {
		struct pseudo_node child = *n;
		const char *name = c->name;

		if (ctx->pos > k)
			continue;
		child.e = c;
		if (!ctx->emit(ctx, name, strlen(name), pseudo_ino(&child), c->mode, k + 1))
			return 0;
		ctx->pos = k + 1;
	}
	if (n->e->readdir == NULL)
		return 0;
	if (ctx->pos < PSEUDO_DYNAMIC)
		ctx->pos = PSEUDO_DYNAMIC;
	return n->e->readdir(f, ctx);
}

long pseudo_dir_lseek(struct file *f, int64_t off, int whence)
{
	if (whence == 1)
		off += (int64_t)f->pos;
	else if (whence != 0)
		return -EINVAL;
	if (off < 0)
		return -EINVAL;
	f->pos = (uint64_t)off;
	return (long)off;
}

static int dir_open(struct inode *i, struct file *f)
{
	const struct pseudo_node *n = i->priv;

	f->ops = &dir_fops;
	return n->e->allow != NULL ? n->e->allow(n) : 0;
}

/* ---- links ---- */

static int link_check(const struct pseudo_node *n)
{
	if (!node_alive(n))
		return -ENOENT;
	return n->e->allow != NULL ? n->e->allow(n) : 0;
}

static long link_readlink(struct dentry *d, char *buf, size_t size)
{
	const struct pseudo_node *n = d->inode->priv;
	int ret = link_check(n);

	return ret != 0 ? ret : n->e->readlink(n, buf, size);
}

static struct dentry *link_follow(struct dentry *d)
{
	const struct pseudo_node *n = d->inode->priv;
	int ret = link_check(n);

	return ret != 0 ? ERR_PTR(ret) : n->e->follow(n);
}

/* ---- files ---- */

static int file_open_node(struct inode *i, struct file *f)
{
	const struct pseudo_node *n = i->priv;
	int ret = 0;

	if (!node_alive(n))
		return -ENOENT;
	if (n->e->allow != NULL)
		ret = n->e->allow(n);
	if (ret != 0)
		return ret;
	f->priv = kzalloc(sizeof(struct strbuf));
	if (f->priv == NULL)
		return -ENOMEM;
	f->ops = &file_fops;
	return 0;
}

static int file_fill(struct file *f, struct strbuf *sb)
{
	const struct pseudo_node *n = f->inode->priv;
	int ret;

	strbuf_done(sb);
	if (!node_alive(n))
		return -ESRCH;
	ret = n->e->show != NULL ? n->e->show(sb, n) : -EINVAL;
	if (ret == 0)
		ret = sb->error;
	if (ret != 0)
		strbuf_done(sb);
	return ret;
}

static long file_read_node(struct file *f, struct uio *u, uint64_t *pos)
{
	struct strbuf *sb = f->priv;
	uint64_t at = *pos;
	size_t n, got;
	int ret;

	if (u->resid == 0)
		return 0;
	if (at == 0 || sb->data == NULL) {
		ret = file_fill(f, sb);
		if (ret != 0)
			return ret;
	}
	if (at >= sb->len)
		return 0;
	n = MIN(sb->len - (size_t)at, u->resid);
	got = uio_put(u, sb->data + at, n);
	if (got == 0)
		return -EFAULT;
	*pos = at + got;
	return (long)got;
}

static long file_write_node(struct file *f, struct uio *u, uint64_t *pos)
{
	const struct pseudo_node *n = f->inode->priv;
	size_t len = u->resid;
	char *buf;
	long ret;

	if (n->e->store == NULL)
		return -EIO;
	if (!node_alive(n))
		return -ESRCH;
	if (len >= STORE_MAX)
		return -EINVAL;
	buf = kmalloc(len + 1);
	if (buf == NULL)
		return -ENOMEM;
	ret = -EFAULT;
	if (uio_get(u, buf, len) == len) {
		buf[len] = 0;
		ret = n->e->store(n, buf, len);
	}
	kfree(buf);
	if (ret > 0)
		*pos += (uint64_t)ret;
	return ret;
}

static long file_lseek_node(struct file *f, int64_t off, int whence)
{
	return pseudo_dir_lseek(f, off, whence);
}

static void file_release_node(struct file *f)
{
	if (f->priv != NULL)
		strbuf_done(f->priv);
	kfree(f->priv);
}

/* Names that do not exist cannot be made: the answer is the lookup's, as on Linux. */
static struct dentry *dir_create(struct dentry *dir, const char *name, size_t len,
				 uint32_t mode, uint64_t rdev)
{
	return ERR_PTR(-ENOENT);
}

static struct dentry *dir_mkdir(struct dentry *dir, const char *name, size_t len, uint32_t mode)
{
	return ERR_PTR(-ENOENT);
}

static const struct inode_ops dir_iops = {
	.lookup = dir_lookup,
	.create = dir_create,
	.mkdir = dir_mkdir,
	.open = dir_open,
	.setattr = node_setattr,
	.getattr = node_owner,
	.free = node_free,
};
static const struct inode_ops file_iops = {
	.open = file_open_node,
	.setattr = node_setattr,
	.getattr = node_owner,
	.free = node_free,
};
static const struct inode_ops link_iops = {
	.readlink = link_readlink,
	.setattr = node_setattr,
	.getattr = node_owner,
	.free = node_free,
};
static const struct inode_ops magic_iops = {
	.readlink = link_readlink,
	.follow = link_follow,
	.setattr = node_setattr,
	.getattr = node_owner,
	.free = node_free,
};

static const struct file_ops dir_fops = {
	.readdir = dir_readdir,
	.lseek = pseudo_dir_lseek,
};
static const struct file_ops file_fops = {
	.read = file_read_node,
	.write = file_write_node,
	.lseek = file_lseek_node,
	.release = file_release_node,
};
