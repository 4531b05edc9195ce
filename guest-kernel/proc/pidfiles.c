/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID/fd and fdinfo: one entry for each open descriptor of the process. fd/N is a magic
 * link: its text is the path, following it reaches the open file itself.
 */
#include "guest-kernel/mm/page.h"
#include "guest-kernel/proc/proc.h"

#define FD_MAX	(1 << 20)

/* With a reference. */
static struct file *node_file(const struct pseudo_node *n)
{
	return n->proc->files != NULL ? files_file(n->proc->files, n->fd) : NULL;
}

static int fd_link_text(const struct pseudo_node *n, char *buf, size_t size)
{
	struct file *f = node_file(n);
	char *page, *path;
	int ret = -ENOMEM;

	if (f == NULL)
		return -ENOENT;
	page = kmalloc(PATH_MAX_LEN);
	if (page != NULL) {
		path = dentry_path(f->dentry, current->proc->fs->root, page, PATH_MAX_LEN);
		ret = IS_ERR(path) ? PTR_ERR(path) : (int)MIN(strlen(path), size);
		if (ret > 0)
			memcpy(buf, path, (size_t)ret);
	}
	kfree(page);
	file_put(f);
	return ret;
}

static struct dentry *fd_link_target(const struct pseudo_node *n)
{
	struct file *f = node_file(n);
	struct dentry *d;

	if (f == NULL)
		return ERR_PTR(-ENOENT);
	d = f->dentry;
	dentry_get(d);
	file_put(f);
	return d;
}

static int fdinfo_show(struct strbuf *sb, const struct pseudo_node *n)
{
	struct file *f = node_file(n);
	uint32_t flags;

	if (f == NULL)
		return -ENOENT;
	flags = file_flags_shown(f);
	if (files_cloexec(n->proc->files, n->fd))
		flags |= KO_CLOEXEC;
	strbuf_printf(sb, "pos:\t%lu\nflags:\t0%o\nmnt_id:\t%u\nino:\t%lu\n", f->pos, flags,
		      f->inode->sb != NULL ? 20 + (f->inode->sb->dev & 0xff) : 20,
		      f->inode->ino);
	if (f->ops != NULL && f->ops->show_fdinfo != NULL)
		f->ops->show_fdinfo(f, sb);
	file_put(f);
	return 0;
}

/* Links differ in their permissions, which tell how the file was opened. */
#define FD_LINK(m) { .name = "", .mode = KS_IFLNK | (m), .readlink = fd_link_text, \
		     .follow = fd_link_target, .allow = proc_allow_ptrace, .owned = true }
static const struct pseudo_entry fd_links[4] = {
	FD_LINK(0), FD_LINK(0500), FD_LINK(0300), FD_LINK(0700),
};
static const struct pseudo_entry fdinfo_file = {
	.name = "", .mode = KS_IFREG | 0444, .show = fdinfo_show, .allow = proc_allow_ptrace,
	.owned = true,
};

static const struct pseudo_entry *fd_entry(const struct pseudo_node *dir, const struct file *f)
{
	if (strcmp(dir->e->name, "fdinfo") == 0)
		return &fdinfo_file;
	return &fd_links[(f->can_read ? 1 : 0) + (f->can_write ? 2 : 0)];
}

static int parse_fd(const char *name, size_t len)
{
	int n = 0;

	if (len == 0 || len > 7 || (len > 1 && name[0] == '0'))
		return -1;
	for (size_t k = 0; k < len; k++) {
		if (name[k] < '0' || name[k] > '9')
			return -1;
		n = n * 10 + (name[k] - '0');
	}
	return n;
}

struct dentry *proc_fd_lookup(struct dentry *dir, const char *name, size_t len)
{
	struct pseudo_node child = *pseudo_node_of(dir->inode);
	int ret = proc_allow_ptrace(&child);
	struct file *f;

	if (ret != 0)
		return ERR_PTR(ret);
	child.fd = parse_fd(name, len);
	f = child.fd >= 0 ? node_file(&child) : NULL;
	if (f == NULL)
		return ERR_PTR(-ENOENT);
	child.e = fd_entry(pseudo_node_of(dir->inode), f);
	file_put(f);
	return pseudo_make(dir, name, len, &child);
}

int proc_fd_readdir(struct file *f, struct readdir_ctx *ctx)
{
	const struct pseudo_node *n = pseudo_node_of(f->inode);
	struct pseudo_node child = *n;
	struct file *open;
	char name[12];
	int fd;

	if (n->proc->files == NULL || ctx->pos > PSEUDO_DYNAMIC + FD_MAX)
		return 0;
	fd = (int)(ctx->pos - PSEUDO_DYNAMIC);
	while ((fd = files_next(n->proc->files, fd)) >= 0) {
		int len = ksnprintf(name, sizeof(name), "%d", fd);

		child.fd = fd;
		open = node_file(&child);
		child.e = fd_entry(n, open);
		file_put(open);
		fd++;
		if (!ctx->emit(ctx, name, (size_t)len, pseudo_ino(&child), child.e->mode,
			       PSEUDO_DYNAMIC + (uint64_t)fd))
			return 0;
		ctx->pos = PSEUDO_DYNAMIC + (uint64_t)fd;
	}
	return 0;
}
