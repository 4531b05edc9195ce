/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pseudo-terminals: the master side and the devpts filesystem.
 *
 * Opening /dev/ptmx makes a struct tty with the lowest free number and its inode /dev/pts/N,
 * which is there as long as the master is open. What the slave writes (after output
 * processing) and what is echoed goes into one ring that the master reads; what the master
 * writes goes through the line discipline. Closing the master hangs the terminal up.
 *
 * f->priv of a master is the tty. Every mount of devpts shows the same terminals.
 */
#include <asm/ioctls.h>

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/ipc.h"
#include "guest-kernel/ipc/tty.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"
#include "guest-kernel/proc/pseudo.h"

#define PTY_MAX		1024
#define CHUNK		512u
#define DEVPTS_MAGIC	0x1cd1
#define IOC_TIOCGPTLCK	0x80045439u
#define IOC_TIOCGPKT	0x80045438u

static struct tty *ptys[PTY_MAX];
/* The first mount's; superblocks and their roots are never freed. Before there is one: */
static struct superblock *devpts_sb;
static struct superblock no_sb = {
	.type = "devpts", .dev = KMKDEV(0, 11), .magic = DEVPTS_MAGIC,
};
static struct {
	uint32_t mode, ptmxmode, gid;
	bool gid_set;
} options = { .mode = 0600, .ptmxmode = 0 };

static const struct file_ops master_ops;

/* ---- life ---- */

void tty_get(struct tty *t)
{
	t->refs++;
}

void tty_put(struct tty *t)
{
	if (t == NULL || --t->refs != 0)
		return;
	ptys[t->index] = NULL;
	if (t->inode != NULL) {
		t->inode->priv = NULL;
		inode_put(t->inode);
	}
	ntty_done(t);
	kfree(t->out.buf);
	kfree(t);
}

static const struct inode_ops pts_inode_ops = {
	.open = pty_slave_open,
	.setattr = ipc_setattr,
};

static struct inode *pts_inode(struct tty *t)
{
	struct inode *i = inode_new(devpts_sb != NULL ? devpts_sb : &no_sb,
				    KS_IFCHR | options.mode);

	if (i == NULL)
		return NULL;
	i->ino = (uint64_t)t->index + 3;
	i->rdev = tty_device(t);
	i->uid = current->proc->cred->fsuid;
	i->gid = options.gid_set ? options.gid : current->proc->cred->fsgid;
	i->ops = &pts_inode_ops;
	i->priv = t;
	return i;
}

static struct tty *tty_new(void)
{
	struct tty *t = kzalloc(sizeof(*t));
	int index = 0;

	if (t == NULL)
		return ERR_PTR(-ENOMEM);
	while (index < PTY_MAX && ptys[index] != NULL)
		index++;
	if (index == PTY_MAX) {
		kfree(t);
		return ERR_PTR(-ENOSPC);
	}
	t->refs = 1;
	t->index = index;
	t->locked = true;
	waitq_init(&t->wq);
	waitq_init(&t->master_wq);
	ntty_init(t);
	t->inode = pts_inode(t);
	if (t->inode == NULL) {
		kfree(t);
		return ERR_PTR(-ENOMEM);
	}
	ptys[index] = t;
	return t;
}

/* ---- the output ring ---- */

size_t pty_out_room(const struct tty *t)
{
	return t->master_open ? TTY_OUT_SIZE - t->out.len : TTY_OUT_SIZE;
}

size_t pty_out_put(struct tty *t, const uint8_t *buf, size_t n)
{
	struct tty_ring *r = &t->out;
	size_t at, first;

	if (!t->master_open)
		return n;
	if (r->buf == NULL) {
		r->buf = kmalloc(TTY_OUT_SIZE);
		if (r->buf == NULL)
			return n;	/* lost, as line noise would have it */
	}
	n = MIN(n, (size_t)(TTY_OUT_SIZE - r->len));
	at = (r->head + r->len) % TTY_OUT_SIZE;
	first = MIN(n, TTY_OUT_SIZE - at);
	memcpy(r->buf + at, buf, first);
	memcpy(r->buf, buf + first, n - first);
	r->len += (unsigned)n;
	if (n != 0 && !waitq_empty(&t->master_wq))
		waitq_wake(&t->master_wq, KPOLLIN | KPOLLRDNORM);
	return n;
}

void pty_out_flush(struct tty *t)
{
	t->out.head = t->out.len = 0;
	waitq_wake_all(&t->wq, KPOLLOUT | KPOLLWRNORM);
}

void pty_packet_event(struct tty *t, uint8_t status)
{
	if (!t->packet)
		return;
	t->packet_status |= status;
	waitq_wake_all(&t->master_wq, KPOLLIN | KPOLLPRI | KPOLLRDNORM);
}

/* ---- the master as a file ---- */

static long out_take(struct tty *t, struct uio *u)
{
	struct tty_ring *r = &t->out;
	long done = 0;

	while (r->len != 0 && u->resid != 0) {
		size_t n = MIN(MIN((size_t)r->len, u->resid), (size_t)(TTY_OUT_SIZE - r->head));

		if (uio_put(u, r->buf + r->head, n) < n)
			return done != 0 ? done : -EFAULT;
		r->head = (r->head + (unsigned)n) % TTY_OUT_SIZE;
		r->len -= (unsigned)n;
		done += (long)n;
	}
	if (r->len < TTY_OUT_SIZE / 2 && !waitq_empty(&t->wq))
		waitq_wake(&t->wq, KPOLLOUT | KPOLLWRNORM);
	return done;
}

static long master_read(struct file *f, struct uio *u, uint64_t *pos)
{
	struct tty *t = f->priv;
	uint8_t c = 0;
	long n;
	int ret;

	if (u->resid == 0)
		return 0;
	while (t->out.len == 0 && !(t->packet && t->packet_status != 0)) {
		if (t->slave_gone)
			return -EIO;
		if (f->flags & KO_NONBLOCK)
			return -EAGAIN;
		ret = WAIT_EVENT(&t->master_wq, t->out.len != 0 || t->slave_gone ||
				 (t->packet && t->packet_status != 0));
		if (ret != 0)
			return ret;
	}
	if (!t->packet)
		return out_take(t, u);
	if (t->packet_status != 0)
		c = t->packet_status;
	if (uio_put(u, &c, 1) != 1)
		return -EFAULT;
	t->packet_status = 0;
	if (c != 0)
		return 1;
	n = out_take(t, u);
	return n < 0 ? 1 : n + 1;
}

static bool input_room(const struct tty *t)
{
	return t->in_len + 2 <= TTY_IN_MAX;
}

static long master_write(struct file *f, struct uio *u, uint64_t *pos)
{
	struct tty *t = f->priv;
	uint8_t buf[CHUNK];
	long done = 0;
	int ret = 0;

	while (u->resid != 0 && ret == 0) {
		size_t want = MIN(u->resid, sizeof(buf)), k = 0;
		size_t got = uio_get(u, buf, want);

		if (got == 0)
			return done != 0 ? done : -EFAULT;
		while (k < got && ret == 0) {
			k += ntty_receive(t, buf + k, got - k);
			if (k == got)
				break;
			if (f->flags & KO_NONBLOCK)
				ret = -EAGAIN;
			else if (!input_room(t))
				ret = WAIT_EVENT(&t->master_wq, input_room(t));
			else
				ret = -ENOMEM;	/* the ring could not grow */
		}
		done += (long)k;
		if (got < want)
			break;
	}
	return done != 0 ? done : ret;
}

static unsigned master_poll(struct file *f, struct poll_table *pt)
{
	struct tty *t = f->priv;
	unsigned ev = 0;

	poll_wait(pt, &t->master_wq);
	if (t->out.len != 0)
		ev |= KPOLLIN | KPOLLRDNORM;
	if (t->packet && t->packet_status != 0)
		ev |= KPOLLIN | KPOLLRDNORM | KPOLLPRI;
	if (t->slave_gone)
		ev |= KPOLLHUP;
	if (input_room(t))
		ev |= KPOLLOUT | KPOLLWRNORM;
	return ev;
}

static long open_peer(struct tty *t, uint32_t flags)
{
	struct dentry *d;
	struct file *f;

	if (flags & ~(KO_ACCMODE | KO_NOCTTY | KO_NONBLOCK | KO_CLOEXEC | KO_LARGEFILE))
		return -EINVAL;
	d = pty_slave_dentry(t);
	if (IS_ERR(d))
		return PTR_ERR(d);
	f = file_open_dentry(d, flags);
	dentry_put(d);
	if (IS_ERR(f))
		return PTR_ERR(f);
	return fd_install(f, 0, (flags & KO_CLOEXEC) != 0);
}

static long master_ioctl(struct file *f, unsigned cmd, unsigned long arg)
{
	struct tty *t = f->priv;
	int __user *p = (int __user *)arg;
	int v;

	switch (cmd) {
	case TIOCGPTN:
		v = t->index;
		return PUT_USER(v, p);
	case TIOCSPTLCK:
		if (GET_USER(v, p) != 0)
			return -EFAULT;
		t->locked = v != 0;
		return 0;
	case IOC_TIOCGPTLCK:
		v = t->locked;
		return PUT_USER(v, p);
	case TIOCGPTPEER:
		return open_peer(t, (uint32_t)arg);
	case TIOCPKT:
		if (GET_USER(v, p) != 0)
			return -EFAULT;
		if (v != 0 && !t->packet)
			t->packet_status = 0;
		t->packet = v != 0;
		return 0;
	case IOC_TIOCGPKT:
		v = t->packet;
		return PUT_USER(v, p);
	case TIOCSIG:
		if (arg < 1 || arg > 64 ||
		    (arg != KSIGINT && arg != KSIGQUIT && arg != KSIGTSTP))
			return -EINVAL;
		tty_signal(t, (int)arg);
		return 0;
	case TIOCINQ:
		v = (int)t->out.len;
		return PUT_USER(v, p);
	case TIOCOUTQ:
		v = 0;
		return PUT_USER(v, p);
	}
	return tty_ioctl_common(t, f, true, cmd, arg);
}

static void master_release(struct file *f)
{
	struct tty *t = f->priv;

	t->master_open = false;
	tty_hangup(t);
	tty_put(t);
}

static const struct file_ops master_ops = {
	.read = master_read,
	.write = master_write,
	.poll = master_poll,
	.ioctl = master_ioctl,
	.release = master_release,
};

int pty_master_open(struct inode *i, struct file *f)
{
	struct tty *t = tty_new();

	if (IS_ERR(t))
		return PTR_ERR(t);
	t->master_open = true;
	f->ops = &master_ops;
	f->priv = t;
	return 0;
}

int pty_open_number(struct inode *i, struct file *f)
{
	uint64_t n = i->rdev - KMKDEV(136, 0);

	if (i->rdev < KMKDEV(136, 0) || n >= PTY_MAX || ptys[n] == NULL)
		return -EIO;
	return pty_slave_open(ptys[n]->inode, f);
}

/* ---- devpts ---- */

static int name_index(const char *name, size_t len)
{
	int n = 0;

	if (len == 0 || len > 4 || (len > 1 && name[0] == '0'))
		return -1;
	for (size_t k = 0; k < len; k++) {
		if (name[k] < '0' || name[k] > '9')
			return -1;
		n = n * 10 + (name[k] - '0');
	}
	return n < PTY_MAX ? n : -1;
}

static const struct inode_ops ptmx_inode_ops = {
	.open = pty_master_open,
	.setattr = ipc_setattr,
};

static struct dentry *devpts_lookup(struct dentry *dir, const char *name, size_t len)
{
	int n = name_index(name, len);
	struct inode *i = NULL;
	struct dentry *d;

	if (len == 4 && memcmp(name, "ptmx", 4) == 0) {
		i = dir->inode->priv;
		inode_get(i);
	} else if (n >= 0 && ptys[n] != NULL && ptys[n]->master_open) {
		i = ptys[n]->inode;
		inode_get(i);
	}
	if (i == NULL)
		return ERR_PTR(-ENOENT);
	d = dentry_new(dir, name, len, i);
	return d != NULL ? d : ERR_PTR(-ENOMEM);
}

static int devpts_readdir(struct file *f, struct readdir_ctx *ctx)
{
	struct inode *ptmx = f->inode->priv;
	char name[12];

	if (!pseudo_emit_dots(f, ctx))
		return 0;
	if (ctx->pos == 2) {
		if (!ctx->emit(ctx, "ptmx", 4, ptmx->ino, ptmx->mode, 3))
			return 0;
		ctx->pos = 3;
	}
	while (ctx->pos < 3 + PTY_MAX) {
		struct tty *t = ptys[ctx->pos - 3];

		if (t != NULL && t->master_open) {
			int len = ksnprintf(name, sizeof(name), "%d", t->index);

			if (!ctx->emit(ctx, name, (size_t)len, t->inode->ino, t->inode->mode,
				       ctx->pos + 1))
				return 0;
		}
		ctx->pos++;
	}
	return 0;
}

static const struct file_ops devpts_dir_ops = {
	.readdir = devpts_readdir,
	.lseek = pseudo_dir_lseek,
};

static int devpts_dir_open(struct inode *i, struct file *f)
{
	f->ops = &devpts_dir_ops;
	return 0;
}

static void devpts_root_free(struct inode *i)
{
	inode_put(i->priv);
}

static const struct inode_ops devpts_root_ops = {
	.lookup = devpts_lookup,
	.open = devpts_dir_open,
	.setattr = ipc_setattr,
	.free = devpts_root_free,
};

struct dentry *pty_slave_dentry(struct tty *t)
{
	char name[12];
	int len = ksnprintf(name, sizeof(name), "%d", t->index);

	if (devpts_sb == NULL)
		return ERR_PTR(-ENOENT);
	return devpts_lookup(devpts_sb->root, name, (size_t)len);
}

static uint32_t parse_number(const char *s, unsigned base)
{
	uint32_t n = 0;

	while (*s >= '0' && (unsigned)(*s - '0') < base)
		n = n * base + (uint32_t)(*s++ - '0');
	return n;
}

static void parse_options(const char *data)
{
	while (data != NULL && *data != 0) {
		if (strncmp(data, "mode=", 5) == 0)
			options.mode = parse_number(data + 5, 8) & 0777;
		else if (strncmp(data, "ptmxmode=", 9) == 0)
			options.ptmxmode = parse_number(data + 9, 8) & 0777;
		else if (strncmp(data, "gid=", 4) == 0) {
			options.gid = parse_number(data + 4, 10);
			options.gid_set = true;
		}
		data = strchr(data, ',');
		if (data != NULL)
			data++;
	}
}

static int devpts_mount(struct superblock *sb, const char *data)
{
	struct inode *root, *ptmx;

	parse_options(data);
	ptmx = inode_new(sb, KS_IFCHR | options.ptmxmode);
	if (ptmx == NULL)
		return -ENOMEM;
	ptmx->ino = 2;
	ptmx->rdev = KMKDEV(5, 2);
	ptmx->ops = &ptmx_inode_ops;
	root = inode_new(sb, KS_IFDIR | 0755);
	if (root == NULL) {
		inode_put(ptmx);
		return -ENOMEM;
	}
	root->ino = 1;
	root->nlink = 2;
	root->priv = ptmx;
	root->ops = &devpts_root_ops;
	sb->root = dentry_new(NULL, "", 0, root);
	if (sb->root == NULL)
		return -ENOMEM;
	if (devpts_sb == NULL)
		devpts_sb = sb;
	return 0;
}

const struct fs_type devpts_type = {
	.name = "devpts", .magic = DEVPTS_MAGIC, .nodev = true, .mount = devpts_mount,
};
