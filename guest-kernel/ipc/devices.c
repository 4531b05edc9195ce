/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Character devices: one static table of numbers, names and open functions, and devtmpfs, which
 * is a tmpfs that starts with a node for each row, the usual symbolic links and the directories
 * for /dev/pts and /dev/shm.
 */
#include <linux/mman.h>

#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/ipc.h"
#include "guest-kernel/ipc/tty.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define RANDOM_READ_MAX	(32u * 1024 * 1024 - 1)
#define CHUNK		256u
#define IOC_RNDGETENTCNT 0x80045200u
#define DEVTMPFS_MAGIC	0x01021994	/* as tmpfs */

/* The channel's device is drv/'s; a build without it has no such node. */
int channel_open(struct inode *i, struct file *f);

int ipc_setattr(struct inode *i, const struct attr *a)
{
	if (a->mask & ATTR_SIZE)
		return -EINVAL;
	if (a->mask & ATTR_MODE)
		i->mode = (i->mode & KS_IFMT) | (a->mode & ~KS_IFMT);
	if (a->mask & ATTR_UID)
		i->uid = a->uid;
	if (a->mask & ATTR_GID)
		i->gid = a->gid;
	if (a->mask & ATTR_ATIME)
		i->atime_ns = a->atime_ns;
	if (a->mask & ATTR_MTIME)
		i->mtime_ns = a->mtime_ns;
	i->ctime_ns = clock_realtime_ns();
	return 0;
}

/* ---- null, zero, full ---- */

static long read_eof(struct file *f, struct uio *u, uint64_t *pos)
{
	return 0;
}

static long read_zero(struct file *f, struct uio *u, uint64_t *pos)
{
	size_t want = u->resid, n = uio_zero(u, want);

	return n != 0 || want == 0 ? (long)n : -EFAULT;
}

static long write_all(struct file *f, struct uio *u, uint64_t *pos)
{
	long n = (long)u->resid;

	u->resid = 0;
	return n;
}

static long write_full(struct file *f, struct uio *u, uint64_t *pos)
{
	return -ENOSPC;
}

static long seek_nowhere(struct file *f, int64_t off, int whence)
{
	f->pos = 0;
	return 0;
}

/* Zeros without a file behind them: anonymous memory, shared if the mapping is. */
static int mmap_zero(struct file *f, struct vma *v)
{
	struct inode *shared = NULL;

	if (v->flags & MAP_SHARED) {
		shared = shmem_inode(v->end - v->start);
		if (shared == NULL)
			return -ENOMEM;
	}
	if (v->inode != NULL)
		inode_put(v->inode);
	v->inode = shared;
	v->pgoff = 0;
	return 0;
}

static const struct file_ops null_ops = {
	.read = read_eof, .write = write_all, .lseek = seek_nowhere,
};
static const struct file_ops zero_ops = {
	.read = read_zero, .write = write_all, .lseek = seek_nowhere, .mmap = mmap_zero,
};
static const struct file_ops full_ops = {
	.read = read_zero, .write = write_full, .lseek = seek_nowhere,
};

/* ---- random ---- */

static long random_read(struct file *f, struct uio *u, uint64_t *pos)
{
	uint8_t buf[CHUNK];
	size_t left = MIN(u->resid, (size_t)RANDOM_READ_MAX);
	long done = 0;

	while (left != 0) {
		size_t n = MIN(left, sizeof(buf)), got;

		random_bytes(buf, n);
		got = uio_put(u, buf, n);
		done += (long)got;
		left -= n;
		if (got < n) {
			if (done == 0)
				done = -EFAULT;
			break;
		}
		if (done % 65536 == 0 && signal_pending(current))
			break;
	}
	memset(buf, 0, sizeof(buf));
	__asm__ volatile("" : : "r"(buf) : "memory");
	return done;
}

static long random_write(struct file *f, struct uio *u, uint64_t *pos)
{
	uint8_t buf[CHUNK];
	long done = 0;

	while (u->resid != 0) {
		size_t n = MIN(u->resid, sizeof(buf)), got = uio_get(u, buf, n);

		random_mix(buf, got);
		done += (long)got;
		if (got < n)
			return done != 0 ? done : -EFAULT;
	}
	return done;
}

static unsigned random_poll(struct file *f, struct poll_table *pt)
{
	return KPOLLIN | KPOLLRDNORM | KPOLLOUT | KPOLLWRNORM;
}

static long random_ioctl(struct file *f, unsigned cmd, unsigned long arg)
{
	int bits = 256;

	return cmd == IOC_RNDGETENTCNT ? PUT_USER(bits, (int __user *)arg) : -EINVAL;
}

static const struct file_ops random_ops = {
	.read = random_read, .write = random_write, .lseek = seek_nowhere,
	.poll = random_poll, .ioctl = random_ioctl,
};

/* ---- console and kmsg: output goes to the serial register ---- */

static long console_write(struct file *f, struct uio *u, uint64_t *pos)
{
	char buf[CHUNK];
	long done = 0;

	while (u->resid != 0) {
		size_t n = MIN(u->resid, sizeof(buf)), got = uio_get(u, buf, n);

		arch_serial_write(buf, got);
		done += (long)got;
		if (got < n)
			return done != 0 ? done : -EFAULT;
	}
	return done;
}

static const struct file_ops console_ops = {
	.read = read_eof, .write = console_write,
};

/* ---- the table ---- */

#define OPEN_OPS(dev) \
	static int dev##_open(struct inode *i, struct file *f) \
	{ \
		f->ops = &dev##_ops; \
		return 0; \
	}
OPEN_OPS(null)
OPEN_OPS(zero)
OPEN_OPS(full)
OPEN_OPS(random)
OPEN_OPS(console)

const struct chrdev chrdevs[] = {
	{ 1, 3, "null", 0666, null_open },
	{ 1, 5, "zero", 0666, zero_open },
	{ 1, 7, "full", 0666, full_open },
	{ 1, 8, "random", 0666, random_open },
	{ 1, 9, "urandom", 0666, random_open },
	{ 1, 11, "kmsg", 0600, console_open },
	{ 5, 0, "tty", 0666, tty_controlling_open },
	{ 5, 1, "console", 0600, console_open },
	{ 5, 2, "ptmx", 0666, pty_master_open },
	{ 240, 0, "casemate-channel", 0600, channel_open },
};
const unsigned nchrdevs = ARRAY_SIZE(chrdevs);

int chrdev_open(struct inode *i, struct file *f)
{
	for (unsigned n = 0; n < nchrdevs; n++) {
		if (KMKDEV(chrdevs[n].major, chrdevs[n].minor) == i->rdev &&
		    chrdevs[n].open != NULL)
			return chrdevs[n].open(i, f);
	}
	if (i->rdev >= KMKDEV(136, 0) && i->rdev < KMKDEV(144, 0))
		return pty_open_number(i, f);
	return -ENXIO;
}

/* ---- devtmpfs ---- */

static const struct {
	const char *name, *target;
} links[] = {
	{ "fd", "/proc/self/fd" },
	{ "stdin", "/proc/self/fd/0" },
	{ "stdout", "/proc/self/fd/1" },
	{ "stderr", "/proc/self/fd/2" },
};

static const struct {
	const char *name;
	uint32_t mode;
} dirs[] = {
	{ "pts", 0755 },
	{ "shm", 01777 },
};

static int made(struct dentry *d)
{
	if (IS_ERR(d))
		return PTR_ERR(d);
	dentry_put(d);
	return 0;
}

static int devtmpfs_fill(struct dentry *root)
{
	const struct inode_ops *ops = root->inode->ops;
	int ret = 0;

	for (unsigned n = 0; n < nchrdevs && ret == 0; n++) {
		const struct chrdev *c = &chrdevs[n];

		if (c->name != NULL && c->open != NULL)
			ret = made(ops->create(root, c->name, strlen(c->name),
					       KS_IFCHR | c->mode, KMKDEV(c->major, c->minor)));
	}
	for (unsigned n = 0; n < ARRAY_SIZE(links) && ret == 0; n++)
		ret = made(ops->symlink(root, links[n].name, strlen(links[n].name),
					links[n].target));
	for (unsigned n = 0; n < ARRAY_SIZE(dirs) && ret == 0; n++)
		ret = made(ops->mkdir(root, dirs[n].name, strlen(dirs[n].name),
				      KS_IFDIR | dirs[n].mode));
	return ret;
}

static int devtmpfs_mount(struct superblock *sb, const char *data)
{
	int ret;

	for (unsigned n = 0; fs_types[n] != NULL; n++) {
		if (strcmp(fs_types[n]->name, "tmpfs") != 0)
			continue;
		ret = fs_types[n]->mount(sb, "mode=755");
		return ret != 0 ? ret : devtmpfs_fill(sb->root);
	}
	return -ENODEV;
}

const struct fs_type devtmpfs_type = {
	.name = "devtmpfs", .magic = DEVTMPFS_MAGIC, .nodev = true, .mount = devtmpfs_mount,
};
