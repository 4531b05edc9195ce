/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How memory filesystems come to be: the root over its image, tmpfs mounts with their options,
 * and the nameless files of memfd_create, shared anonymous memory and initd, which live in an
 * internal superblock that is mounted nowhere.
 */
#include <linux/fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <linux/mman.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/memfs.h"
#include "guest-kernel/mm/page.h"

static struct memfs *memfs_new(struct superblock *sb)
{
	struct memfs *m = kzalloc(sizeof(*m));

	if (m != NULL) {
		m->sb = sb;
		sb->priv = m;
		sb->next_ino = 1ULL << 32;
	}
	return m;
}

/* ---- the root ---- */

const struct fs_type rootfs_type = {.name = "rootfs", .magic = TMPFS_MAGIC, .nodev = true};

int rootfs_mount(paddr_t image_pa, const void *image, uint64_t image_size)
{
	struct superblock *sb = sb_new(&rootfs_type, 0);
	struct memfs *m = sb != NULL ? memfs_new(sb) : NULL;
	struct erofs *fs;
	struct inode *i;
	const char *why;
	int r;

	if (m == NULL)
		return -ENOMEM;
	if (image != NULL) {
		fs = kzalloc(sizeof(*fs));
		m->nids = kcalloc(MEMFS_NIDS, sizeof(*m->nids));
		if (fs == NULL || m->nids == NULL)
			return -ENOMEM;
		r = erofs_open(fs, image, image_size, &why);
		if (r != 0) {
			printk("root image: %s\n", why);
			return r;
		}
		m->image = fs;
		m->image_pa = image_pa;
		i = memfs_image_root(sb, fs->root_nid);
	} else {
		i = memfs_new_inode(sb, KS_IFDIR | 0755);
	}
	if (IS_ERR(i))
		return PTR_ERR(i);
	sb->root = dentry_new(NULL, "", 0, i);
	if (sb->root == NULL)
		return -ENOMEM;
	TAILQ_INSERT_TAIL(&superblocks, sb, link);
	fs_root = sb->root;
	if (current != NULL && current->proc != NULL && current->proc->fs != NULL &&
	    current->proc->fs->root == NULL) {
		current->proc->fs->root = fs_get_root();
		current->proc->fs->cwd = fs_get_cwd();
	}
	return 0;
}

/* ---- tmpfs ---- */

static bool parse_number(const char **p, unsigned base, uint64_t *ret)
{
	const char *s = *p;
	uint64_t n = 0;

	while (*s >= '0' && *s < (char)('0' + MIN(base, 10u))) {
		if (__builtin_mul_overflow(n, (uint64_t)base, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n))
			return false;
		s++;
	}
	if (s == *p)
		return false;
	*p = s;
	*ret = n;
	return true;
}

/* A number with k, m, g or % behind it. */
static bool parse_size(const char **p, uint64_t *ret)
{
	unsigned shift = 0;

	if (!parse_number(p, 10, ret))
		return false;
	switch (**p) {
	case 'k': case 'K':
		shift = 10;
		break;
	case 'm': case 'M':
		shift = 20;
		break;
	case 'g': case 'G':
		shift = 30;
		break;
	case '%':
		*ret = mem_stats.total_pages * MIN(*ret, (uint64_t)100) / 100 * PAGE_SIZE;
		break;
	default:
		return true;
	}
	(*p)++;
	if (*ret > UINT64_MAX >> shift)
		return false;
	*ret <<= shift;
	return true;
}

static bool take(const char **p, const char *key)
{
	size_t n = strlen(key);

	if (strncmp(*p, key, n) != 0)
		return false;
	*p += n;
	return true;
}

static int parse_options(struct memfs *m, struct inode *root, const char *p)
{
	uint64_t v;

	while (p != NULL && *p != 0) {
		bool ok = true;

		if (take(&p, "size=")) {
			ok = parse_size(&p, &v);
			m->max_pages = v / PAGE_SIZE + (v % PAGE_SIZE != 0);
		} else if (take(&p, "nr_blocks=")) {
			ok = parse_size(&p, &m->max_pages);
		} else if (take(&p, "nr_inodes=")) {
			ok = parse_size(&p, &m->max_inodes);
		} else if (take(&p, "mode=")) {
			ok = parse_number(&p, 8, &v) && v <= 07777;
			root->mode = KS_IFDIR | (uint32_t)v;
		} else if (take(&p, "uid=")) {
			ok = parse_number(&p, 10, &v) && v <= UINT32_MAX;
			root->uid = (uint32_t)v;
		} else if (take(&p, "gid=")) {
			ok = parse_number(&p, 10, &v) && v <= UINT32_MAX;
			root->gid = (uint32_t)v;
		} else if (!take(&p, "inode64") && !take(&p, "inode32")) {
			ok = false;
		}
		if (!ok || (*p != 0 && *p != ','))
			return -EINVAL;
		while (*p == ',')
			p++;
	}
	return 0;
}

int tmpfs_mount(struct superblock *sb, const char *data)
{
	struct memfs *m = memfs_new(sb);
	struct inode *i;
	int r;

	if (m == NULL)
		return -ENOMEM;
	i = memfs_new_inode(sb, KS_IFDIR | 01777);
	if (IS_ERR(i)) {
		r = PTR_ERR(i);
		goto fail;
	}
	r = parse_options(m, i, data);
	if (r != 0) {
		inode_put(i);
		goto fail;
	}
	sb->root = dentry_new(NULL, "", 0, i);
	if (sb->root != NULL)
		return 0;
	r = -ENOMEM;
fail:
	kfree(m);
	sb->priv = NULL;
	return r;
}

const struct fs_type tmpfs_type = {
	.name = "tmpfs", .magic = TMPFS_MAGIC, .nodev = true, .mount = tmpfs_mount,
};

/* In 4 KiB blocks. Without a limit of its own it shares half of memory with all others, and as
 * many files as memory has pages. */
void rootfs_statfs(struct superblock *sb, uint64_t *blocks, uint64_t *free, uint64_t *files,
		   uint64_t *ffree)
{
	struct memfs *m = memfs(sb);
	uint64_t share = mem_stats.total_pages / 2;
	uint64_t used = mem_stats.shmem_pages;

	*blocks = m->max_pages != 0 ? m->max_pages : share;
	*free = share > used ? share - used : 0;
	if (m->max_pages != 0)
		*free = MIN(*free, m->max_pages - m->pages);
	*free = MIN(*free, *blocks);
	used = m->max_inodes != 0 ? m->inodes : memfs_made();
	*files = m->max_inodes != 0 ? m->max_inodes : mem_stats.total_pages;
	*ffree = *files > used ? *files - used : 0;
}

/* ---- nameless files ---- */

static struct superblock *shmem_sb(void)
{
	static struct superblock *sb;

	if (sb == NULL) {
		struct superblock *new = sb_new(&tmpfs_type, 0);

		if (new == NULL || tmpfs_mount(new, NULL) != 0)
			kfree(new);
		else
			sb = new;
	}
	return sb;
}

struct inode *shmem_inode(uint64_t size)
{
	struct superblock *sb = shmem_sb();
	struct inode *i = sb != NULL ? memfs_new_inode(sb, KS_IFREG | 0777) : NULL;

	if (i == NULL || IS_ERR(i))
		return NULL;
	i->nlink = 0;
	i->size = size;
	return i;
}

struct file *memfile_open(const char *name, paddr_t pa, uint64_t size)
{
	struct inode *i = shmem_inode(size);
	struct rdata *rd;
	struct dentry *d;
	struct file *f;

	if (i == NULL)
		return ERR_PTR(-ENOMEM);
	i->mode = KS_IFREG | 0555;
	i->flags |= INODE_IMMUTABLE;
	i->blocks = ALIGN_UP(size, PAGE_SIZE) / 512;
	rd = &rnode(i)->data;
	rd->base = phys_to_virt(pa);
	rd->base_pa = pa;
	rd->base_size = size;
	rd->base_ram = true;
	d = dentry_anon(i, name);
	if (d == NULL)
		return ERR_PTR(-ENOMEM);
	f = file_new(d, &rfile_fops, KO_RDONLY);
	return f != NULL ? f : ERR_PTR(-ENOMEM);
}

#define MEMFD_NAME_MAX 249

SYSCALL(memfd_create, const char __user *uname, unsigned flags)
{
	char *name;
	struct inode *i;
	struct dentry *d;
	struct file *f;
	long n;

	if ((flags & ~(unsigned)(MFD_CLOEXEC | MFD_ALLOW_SEALING)) != 0)
		return (flags & MFD_HUGETLB) != 0 ?
			       syscall_partial("memfd_create", "MFD_HUGETLB", -ENODEV) : -EINVAL;
	name = kmalloc(6 + MEMFD_NAME_MAX + 1);
	if (name == NULL)
		return -ENOMEM;
	memcpy(name, "memfd:", 6);
	n = strncpy_from_user(name + 6, uname, MEMFD_NAME_MAX + 1);
	if (n < 0) {
		kfree(name);
		return n == -ENAMETOOLONG ? -EINVAL : n;
	}
	i = shmem_inode(0);
	d = i != NULL ? dentry_anon(i, name) : NULL;
	kfree(name);
	if (d == NULL)
		return -ENOMEM;
	i->uid = fs_uid();
	i->gid = fs_gid();
	i->flags |= INODE_MEMFD;
	i->seals = (flags & MFD_ALLOW_SEALING) != 0 ? 0 : F_SEAL_SEAL;
	f = file_new(d, &rfile_fops, KO_RDWR);
	/* Not counted as a writer, as in Linux: a program may run what it just wrote. */
	return f != NULL ? fd_install(f, 0, (flags & MFD_CLOEXEC) != 0) : -ENOMEM;
}
