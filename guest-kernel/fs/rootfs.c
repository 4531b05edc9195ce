/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory filesystem: the root (over the image), tmpfs mounts, and nameless files.
 *
 * A directory has its names in a hash table and in a tree by cookie, the position readdir
 * tells. Cookies only grow; a rename inside a directory keeps its cookie, so that reading a
 * directory while renaming in it ends. A directory of the image is read whole at the first
 * look into it; each name then holds only the image's inode number (DENTRY_LAZY), and its
 * inode is made when the name is first looked up. From then on nothing distinguishes it from
 * any other: image inodes keep their numbers when they are written, since they are never
 * replaced.
 *
 * Numbers: an image inode's st_ino is its nid + 1, new ones count from 2^32.
 */
#include <linux/magic.h>

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/memfs.h"
#include "guest-kernel/mm/page.h"

#define DENTRY_LAZY	0x100u		/* inode NULL, priv: nid, type in the bits below */
#define LAZY_TYPE_SHIFT	16
#define DIRENT_SIZE	20		/* what Linux's tmpfs adds to a directory per name */
#define NEW_INO_BASE	(1ULL << 32)

static const struct inode_ops dir_iops, file_iops, link_iops, special_iops;
static const struct file_ops dir_fops;

static int cookie_cmp(const struct dentry *a, const struct dentry *b)
{
	return a->cookie < b->cookie ? -1 : a->cookie > b->cookie;
}

RB_GENERATE_INTERNAL(cookie_tree, dentry, by_cookie, cookie_cmp,
		     __attribute__((unused)) static)

/* ---- inodes ---- */

static const struct inode_ops *ops_for(uint32_t mode)
{
	switch (mode & KS_IFMT) {
	case KS_IFDIR:
		return &dir_iops;
	case KS_IFREG:
		return &file_iops;
	case KS_IFLNK:
		return &link_iops;
	}
	return &special_iops;
}

/* Files that programs made, in all filesystems: what has no page costs memory, too. */
static uint64_t made;

uint64_t memfs_made(void)
{
	return made;
}

static struct inode *mem_inode(struct superblock *sb, uint32_t mode, struct inode *dir)
{
	struct memfs *m = memfs(sb);
	struct inode *i;

	if (m->max_inodes != 0 && m->inodes >= m->max_inodes)
		return ERR_PTR(-ENOSPC);
	if (dir != NULL && made >= mem_stats.total_pages)
		return ERR_PTR(-ENOSPC);
	i = inode_new_priv(sb, mode, sizeof(struct rnode));
	if (i == NULL)
		return ERR_PTR(-ENOMEM);
	m->inodes++;
	made += dir != NULL;
	i->ops = ops_for(mode);
	rnode(i)->inode = i;
	rnode(i)->made = dir != NULL;
	inode_init_owner(i, dir);
	if (KS_ISDIR(i->mode)) {
		i->nlink = 2;
		i->size = 2 * DIRENT_SIZE;
		RB_INIT(&rnode(i)->dir.order);
		rnode(i)->dir.next_cookie = 2;
	}
	return i;
}

static struct rnode **nid_bucket(struct memfs *m, uint64_t nid)
{
	return &m->nids[(nid * 0x9e3779b97f4a7c15ULL) >> 54];
}

static void mem_free(struct inode *i)
{
	struct memfs *m = memfs(i->sb);
	struct rnode *rn = rnode(i), **p;

	rxattr_free(i);
	if (KS_ISREG(i->mode))
		rfile_free(i);
	else if (KS_ISDIR(i->mode))
		kfree(rn->dir.hash);
	else if (KS_ISLNK(i->mode))
		kfree(rn->link);
	if (rn->image && m->nids != NULL) {
		for (p = nid_bucket(m, rn->nid); *p != NULL; p = &(*p)->nid_next) {
			if (*p == rn) {
				*p = rn->nid_next;
				break;
			}
		}
	}
	m->inodes--;
	made -= rn->made;
}

static int image_content(struct memfs *m, struct inode *i, const struct erofs_inode *ei)
{
	struct rnode *rn = rnode(i);

	if (KS_ISREG(i->mode)) {
		rn->data.base_size = ei->size;
		if (ei->data_len != 0) {
			rn->data.base = m->image->image + ei->data_off;
			rn->data.base_pa = m->image_pa + ei->data_off;
		}
		if (ei->data_len < ei->size)
			rn->data.tail = m->image->image + ei->tail_off;
	} else if (KS_ISDIR(i->mode)) {
		rn->dir.pending = true;
	} else if (KS_ISLNK(i->mode)) {
		if (ei->size == 0 || ei->size >= PATH_MAX_LEN)
			return -EUCLEAN;
		rn->link = kmalloc(ei->size + 1);
		if (rn->link == NULL)
			return -ENOMEM;
		for (uint64_t off = 0; off < ei->size;) {
			size_t n = MIN(ei->size - off, PAGE_SIZE - off % PAGE_SIZE);
			const uint8_t *p = erofs_data(m->image, ei, off, n);

			if (p == NULL)
				return -EUCLEAN;
			memcpy(rn->link + off, p, n);
			off += n;
		}
		rn->link[ei->size] = 0;
		if (strlen(rn->link) != ei->size)
			return -EUCLEAN;
	}
	return 0;
}

/* The inode of an image number, with a reference; names of one file share it. */
static struct inode *image_inode(struct superblock *sb, uint64_t nid)
{
	struct memfs *m = memfs(sb);
	struct erofs_inode ei;
	struct rnode **p = NULL;
	struct inode *i;
	int r = erofs_inode_read(m->image, nid, &ei);

	if (r != 0) {
		printk("image: inode %lu is %s\n", nid,
		       r == -EOPNOTSUPP ? "compressed or chunked: rebuild the image with "
					  "mkfs.erofs -Enoinline_data and no -z" : "damaged");
		return ERR_PTR(r);
	}
	if (ei.nlink > 1 && !KS_ISDIR(ei.mode)) {
		p = nid_bucket(m, nid);
		for (struct rnode *rn = *p; rn != NULL; rn = rn->nid_next) {
			if (rn->nid == nid) {
				inode_get(rn->inode);
				return rn->inode;
			}
		}
	}
	i = mem_inode(sb, ei.mode, NULL);
	if (IS_ERR(i))
		return i;
	i->uid = ei.uid;
	i->gid = ei.gid;
	i->mode = ei.mode;
	i->nlink = MAX(ei.nlink, KS_ISDIR(ei.mode) ? 2u : 1u);
	i->ino = nid + 1;
	i->size = ei.size;
	i->rdev = ei.rdev;
	i->blocks = ALIGN_UP(ei.size, PAGE_SIZE) / 512;
	i->atime_ns = i->mtime_ns = i->ctime_ns = i->btime_ns = ei.mtime_ns;
	r = image_content(m, i, &ei);
	if (r != 0) {
		inode_put(i);
		return ERR_PTR(r);
	}
	rnode(i)->nid = nid;
	rnode(i)->image = true;
	rnode(i)->xattr_pending = ei.xattr_len != 0;
	if (p != NULL) {
		rnode(i)->nid_next = *p;
		*p = rnode(i);
	}
	return i;
}

/* ---- directories ---- */

static uint32_t name_hash(const char *name, size_t len)
{
	uint64_t h = len * 0x9e3779b97f4a7c15ULL, v;

	while (len >= 8) {
		memcpy(&v, name, 8);
		h = (h ^ v) * 0xff51afd7ed558ccdULL;
		h ^= h >> 32;
		name += 8;
		len -= 8;
	}
	if (len > 0) {
		v = 0;
		memcpy(&v, name, len);
		h = (h ^ v) * 0xff51afd7ed558ccdULL;
		h ^= h >> 32;
	}
	return (uint32_t)(h ^ (h >> 15));
}

/* Room for one more name. */
static int dir_reserve(struct rdir *rd)
{
	uint32_t n = rd->nbuckets == 0 ? 8 : rd->nbuckets * 2;
	struct dentry **hash;

	if (rd->count < rd->nbuckets || rd->nbuckets >= 1u << 17)
		return 0;
	hash = kcalloc(n, sizeof(*hash));
	if (hash == NULL)
		return rd->nbuckets != 0 ? 0 : -ENOMEM;
	for (uint32_t k = 0; k < rd->nbuckets; k++) {
		struct dentry *d, *next;

		for (d = rd->hash[k]; d != NULL; d = next) {
			next = d->hash_next;
			d->hash_next = hash[d->hash & (n - 1)];
			hash[d->hash & (n - 1)] = d;
		}
	}
	kfree(rd->hash);
	rd->hash = hash;
	rd->nbuckets = n;
	return 0;
}

/* Puts d (its name set) into the directory, at cookie or (0) at the end. Room is reserved. */
static void dir_insert(struct inode *dir, struct dentry *d, uint64_t cookie)
{
	struct rdir *rd = &rnode(dir)->dir;

	d->hash = name_hash(d->name, d->len);
	d->hash_next = rd->hash[d->hash & (rd->nbuckets - 1)];
	rd->hash[d->hash & (rd->nbuckets - 1)] = d;
	d->cookie = cookie != 0 ? cookie : rd->next_cookie++;
	RB_INSERT(cookie_tree, &rd->order, d);
	rd->count++;
	dir->size += DIRENT_SIZE;
}

static void dir_remove(struct inode *dir, struct dentry *d)
{
	struct rdir *rd = &rnode(dir)->dir;
	struct dentry **p = &rd->hash[d->hash & (rd->nbuckets - 1)];

	while (*p != d)
		p = &(*p)->hash_next;
	*p = d->hash_next;
	RB_REMOVE(cookie_tree, &rd->order, d);
	rd->count--;
	if (dir->size >= 3 * DIRENT_SIZE)
		dir->size -= DIRENT_SIZE;
}

static int load_name(void *ctx, const char *name, size_t len, uint64_t nid, unsigned type)
{
	struct dentry *dir = ctx, *d;
	int r = dir_reserve(&rnode(dir->inode)->dir);

	if (r != 0)
		return r;
	d = dentry_new(dir, name, len, NULL);
	if (d == NULL)
		return -ENOMEM;
	d->flags |= DENTRY_LAZY | type << LAZY_TYPE_SHIFT;
	d->priv = (void *)(uintptr_t)nid;
	dir_insert(dir->inode, d, 0);
	return 0;
}

static void dir_empty(struct inode *dir)
{
	struct rdir *rd = &rnode(dir)->dir;
	struct dentry *d;

	while ((d = RB_MIN(cookie_tree, &rd->order)) != NULL) {
		dir_remove(dir, d);
		dentry_put(d);
	}
}

static int dir_load_image(struct dentry *d)
{
	struct inode *dir = d->inode;
	const struct erofs *image = memfs(dir->sb)->image;
	uint64_t size = dir->size;
	struct erofs_inode ei;
	int r = erofs_inode_read(image, rnode(dir)->nid, &ei);

	if (r == 0)
		r = erofs_dir_each(image, &ei, load_name, d);
	if (r != 0) {
		dir_empty(dir);
		printk("image: directory %lu is damaged\n", rnode(dir)->nid);
	} else {
		rnode(dir)->dir.pending = false;
	}
	dir->size = size;
	return r;
}

static inline int dir_load(struct dentry *d)
{
	return likely(!rnode(d->inode)->dir.pending) ? 0 : dir_load_image(d);
}

static struct dentry *dir_find(struct rdir *rd, const char *name, size_t len)
{
	uint32_t h = name_hash(name, len);
	struct dentry *d;

	if (rd->nbuckets == 0)
		return NULL;
	for (d = rd->hash[h & (rd->nbuckets - 1)]; d != NULL; d = d->hash_next) {
		if (d->hash == h && d->len == len && memcmp(d->name, name, len) == 0)
			return d;
	}
	return NULL;
}

static struct dentry *mem_lookup(struct dentry *dir, const char *name, size_t len)
{
	struct dentry *d;
	int r = dir_load(dir);

	if (unlikely(r != 0))
		return ERR_PTR(r);
	d = dir_find(&rnode(dir->inode)->dir, name, len);
	if (d == NULL)
		return ERR_PTR(-ENOENT);
	if (unlikely((d->flags & DENTRY_LAZY) != 0)) {
		struct inode *i = image_inode(dir->inode->sb, (uint64_t)(uintptr_t)d->priv);

		if (IS_ERR(i))
			return (struct dentry *)i;
		d->inode = i;
		d->priv = NULL;
		d->flags &= ~(DENTRY_LAZY | 0xfu << LAZY_TYPE_SHIFT);
	}
	dentry_get(d);
	return d;
}

/* A new name in dir for the inode, whose reference is taken over. */
static struct dentry *add_name(struct dentry *dir, const char *name, size_t len,
			       struct inode *i)
{
	struct dentry *d;
	int r = dir_load(dir);

	if (r == 0)
		r = dir_reserve(&rnode(dir->inode)->dir);
	if (r != 0) {
		inode_put(i);
		return ERR_PTR(r);
	}
	d = dentry_new(dir, name, len, i);
	if (d == NULL)
		return ERR_PTR(-ENOMEM);
	dir_insert(dir->inode, d, 0);
	dentry_get(d);
	inode_touch_mtime(dir->inode);
	return d;
}

static struct dentry *mem_create(struct dentry *dir, const char *name, size_t len,
				 uint32_t mode, uint64_t rdev)
{
	struct inode *i = mem_inode(dir->inode->sb, mode, dir->inode);

	if (IS_ERR(i))
		return (struct dentry *)i;
	i->rdev = rdev;
	return add_name(dir, name, len, i);
}

static struct dentry *mem_mkdir(struct dentry *dir, const char *name, size_t len, uint32_t mode)
{
	struct inode *i = mem_inode(dir->inode->sb, KS_IFDIR | mode, dir->inode);
	struct dentry *d;

	if (IS_ERR(i))
		return (struct dentry *)i;
	d = add_name(dir, name, len, i);
	if (!IS_ERR(d))
		dir->inode->nlink++;
	return d;
}

static struct dentry *mem_symlink(struct dentry *dir, const char *name, size_t len,
				  const char *target)
{
	struct inode *i = mem_inode(dir->inode->sb, KS_IFLNK | 0777, dir->inode);

	if (IS_ERR(i))
		return (struct dentry *)i;
	i->size = strlen(target);
	rnode(i)->link = kstrdup(target);
	if (rnode(i)->link == NULL) {
		inode_put(i);
		return ERR_PTR(-ENOMEM);
	}
	return add_name(dir, name, len, i);
}

static struct dentry *mem_link(struct dentry *dir, const char *name, size_t len,
			       struct inode *target)
{
	struct dentry *d;

	inode_get(target);
	d = add_name(dir, name, len, target);
	if (!IS_ERR(d)) {
		target->nlink++;
		target->ctime_ns = dir->inode->mtime_ns;
	}
	return d;
}

/* Takes the name away; the dentry lives on while somebody holds it. */
static void drop_name(struct inode *dir, struct dentry *d)
{
	struct inode *i = d->inode;

	dir_remove(dir, d);
	d->flags |= DENTRY_DELETED;
	inode_touch_mtime(dir);
	i->ctime_ns = dir->mtime_ns;
	if (KS_ISDIR(i->mode)) {
		i->nlink = 0;
		if (dir->nlink > 2)
			dir->nlink--;
	} else if (i->nlink > 0) {
		i->nlink--;
	}
	dentry_put(d);
}

static int mem_unlink(struct dentry *victim)
{
	drop_name(victim->parent->inode, victim);
	return 0;
}

static int check_empty(struct dentry *d)
{
	int r = dir_load(d);

	if (r != 0)
		return r;
	return rnode(d->inode)->dir.count != 0 ? -ENOTEMPTY : 0;
}

static int mem_rmdir(struct dentry *victim)
{
	int r = check_empty(victim);

	if (r == 0)
		drop_name(victim->parent->inode, victim);
	return r;
}

static void set_parent(struct dentry *d, struct dentry *dir)
{
	struct dentry *old = d->parent;

	if (old == dir)
		return;
	dentry_get(dir);
	d->parent = dir;
	if (KS_ISDIR(d->inode->mode)) {
		old->inode->nlink--;
		dir->inode->nlink++;
	}
	dentry_put(old);
}

static int exchange(struct dentry *a, struct dentry *b)
{
	struct dentry *pa = a->parent, *pb = b->parent;
	uint64_t ca = a->cookie, cb = b->cookie;
	char *name = kmemdup(a->name, a->len + 1u);
	size_t len = a->len;
	int r;

	if (name == NULL)
		return -ENOMEM;
	/* Both names have room in both dentries before anything is changed. */
	r = dentry_reserve_name(a, b->len);
	if (r == 0)
		r = dentry_reserve_name(b, len);
	if (r == 0) {
		dir_remove(pa->inode, a);
		dir_remove(pb->inode, b);
		dentry_set_name(a, b->name, b->len);
		dentry_set_name(b, name, len);
		dentry_get(pa);
		set_parent(a, pb);
		set_parent(b, pa);
		dentry_put(pa);
		dir_insert(pb->inode, a, cb);
		dir_insert(pa->inode, b, ca);
		inode_touch_mtime(pa->inode);
		inode_touch_mtime(pb->inode);
		a->inode->ctime_ns = b->inode->ctime_ns = pa->inode->mtime_ns;
	}
	kfree(name);
	return r;
}

static int mem_rename(struct dentry *old, struct dentry *newdir, const char *name, size_t len,
		      struct dentry *existing, unsigned flags)
{
	struct dentry *olddir = old->parent;
	uint64_t cookie = olddir == newdir ? old->cookie : 0;
	int r = dir_load(newdir);

	if (r == 0 && (flags & 2 /* RENAME_EXCHANGE */) != 0)
		return exchange(old, existing);
	if (r == 0 && existing != NULL && KS_ISDIR(existing->inode->mode))
		r = check_empty(existing);
	if (r == 0)
		r = dir_reserve(&rnode(newdir->inode)->dir);
	if (r == 0)
		r = dentry_set_name(old, name, len);
	if (r != 0)
		return r;
	if (existing != NULL)
		drop_name(newdir->inode, existing);
	dir_remove(olddir->inode, old);
	dentry_get(olddir);
	set_parent(old, newdir);
	dir_insert(newdir->inode, old, cookie);
	inode_touch_mtime(olddir->inode);
	inode_touch_mtime(newdir->inode);
	old->inode->ctime_ns = newdir->inode->mtime_ns;
	dentry_put(olddir);
	return 0;
}

static uint64_t parent_ino(const struct dentry *d)
{
	while (d->parent == d && d->covers != NULL)
		d = d->covers;
	return d->parent->inode->ino;
}

static int mem_readdir(struct file *f, struct readdir_ctx *ctx)
{
	struct dentry *dir = f->dentry, *d;
	struct rdir *rd = &rnode(dir->inode)->dir;
	struct dentry key;
	int r;

	if (dir->inode->nlink == 0)
		return -ENOENT;
	r = dir_load(dir);
	if (r != 0)
		return r;
	/* Names made after the reading began do not prolong it. */
	if (ctx->pos == 0 || f->readdir_pos == 0)
		f->readdir_pos = rd->next_cookie;
	if (ctx->pos == 0 && !ctx->emit(ctx, ".", 1, dir->inode->ino, KS_IFDIR, 1))
		return 0;
	if (ctx->pos <= 1 && !ctx->emit(ctx, "..", 2, parent_ino(dir), KS_IFDIR, 2))
		return 0;
	key.cookie = MAX(ctx->pos, 2u);
	for (d = RB_NFIND(cookie_tree, &rd->order, &key);
	     d != NULL && d->cookie < f->readdir_pos; d = RB_NEXT(cookie_tree, &rd->order, d)) {
		bool lazy = (d->flags & DENTRY_LAZY) != 0;
		uint64_t ino = lazy ? (uint64_t)(uintptr_t)d->priv + 1 : d->inode->ino;
		uint32_t mode = lazy ? ((d->flags >> LAZY_TYPE_SHIFT) & 0xf) << 12 :
				       d->inode->mode;

		if (!ctx->emit(ctx, d->name, d->len, ino, mode, d->cookie + 1))
			break;
	}
	inode_touch_atime(f);
	return 0;
}

static long mem_dir_lseek(struct file *f, int64_t off, int whence)
{
	if (whence == 1 && __builtin_add_overflow(off, (int64_t)f->pos, &off))
		return -EOVERFLOW;
	if (whence > 1 || off < 0)
		return -EINVAL;
	f->pos = (uint64_t)off;
	f->readdir_pos = 0;
	return off;
}

static int mem_dir_fsync(struct file *f)
{
	return 0;
}

/* ---- operations on single inodes ---- */

static long mem_readlink(struct dentry *d, char *buf, size_t size)
{
	size_t n = MIN((size_t)d->inode->size, size);

	memcpy(buf, rnode(d->inode)->link, n);
	return (long)n;
}

static int mem_setattr(struct inode *i, const struct attr *a)
{
	if ((a->mask & ATTR_SIZE) != 0) {
		int r = KS_ISREG(i->mode) ? rfile_truncate(i, a->size) : -EINVAL;

		if (r != 0)
			return r;
	}
	if ((a->mask & ATTR_MODE) != 0)
		i->mode = (i->mode & KS_IFMT) | (a->mode & 07777);
	if ((a->mask & ATTR_UID) != 0)
		i->uid = a->uid;
	if ((a->mask & ATTR_GID) != 0)
		i->gid = a->gid;
	if ((a->mask & ATTR_ATIME) != 0)
		i->atime_ns = a->atime_ns;
	if ((a->mask & ATTR_MTIME) != 0)
		i->mtime_ns = a->mtime_ns;
	return 0;
}

static int mem_open_file(struct inode *i, struct file *f)
{
	f->ops = &rfile_fops;
	return 0;
}

static int mem_open_dir(struct inode *i, struct file *f)
{
	f->ops = &dir_fops;
	return 0;
}

#define XATTR_OPS \
	.setattr = mem_setattr, .getxattr = rxattr_get, .setxattr = rxattr_set, \
	.listxattr = rxattr_list, .removexattr = rxattr_remove, .free = mem_free

static const struct inode_ops dir_iops = {
	.lookup = mem_lookup,
	.create = mem_create,
	.mkdir = mem_mkdir,
	.symlink = mem_symlink,
	.link = mem_link,
	.unlink = mem_unlink,
	.rmdir = mem_rmdir,
	.rename = mem_rename,
	.open = mem_open_dir,
	XATTR_OPS,
};
static const struct inode_ops file_iops = {
	.open = mem_open_file,
	.get_page = rfile_get_page,
	.get_run = rfile_get_run,
	XATTR_OPS,
};
static const struct inode_ops link_iops = {
	.readlink = mem_readlink,
	XATTR_OPS,
};
static const struct inode_ops special_iops = {
	XATTR_OPS,
};
static const struct file_ops dir_fops = {
	.readdir = mem_readdir,
	.lseek = mem_dir_lseek,
	.fsync = mem_dir_fsync,
};

/* ---- what rootfs and tmpfs mounts share with the rest of fs/ ---- */

bool rootfs_owns(const struct superblock *sb)
{
	return sb != NULL && sb->root != NULL && sb->root->inode->ops == &dir_iops;
}

struct dentry *rootfs_tmpfile(struct dentry *dir, uint32_t mode, bool linkable)
{
	struct inode *i = mem_inode(dir->inode->sb, KS_IFREG | mode, dir->inode);
	struct dentry *d;
	char name[32];
	int n;

	if (IS_ERR(i))
		return (struct dentry *)i;
	i->nlink = 0;
	if (linkable)
		i->flags |= INODE_LINKABLE;
	n = ksnprintf(name, sizeof(name), "#%lu", i->ino);
	d = dentry_new(dir, name, (size_t)n, i);
	if (d == NULL)
		return ERR_PTR(-ENOMEM);
	d->flags |= DENTRY_DELETED;
	return d;
}

struct inode *memfs_new_inode(struct superblock *sb, uint32_t mode)
{
	return mem_inode(sb, mode, NULL);
}

struct inode *memfs_image_root(struct superblock *sb, uint64_t nid)
{
	return image_inode(sb, nid);
}

/* Walks the tree of a memory filesystem without recursion: the next dentry in pre-order, names
 * whose inode was never made left out. */
static struct dentry *tree_step(struct dentry *root, struct dentry *d)
{
	struct dentry *next = NULL;

	if (KS_ISDIR(d->inode->mode))
		next = RB_MIN(cookie_tree, &rnode(d->inode)->dir.order);
	for (;;) {
		while (next != NULL && (next->flags & DENTRY_LAZY) != 0)
			next = RB_NEXT(cookie_tree, &rnode(d->inode)->dir.order, next);
		if (next != NULL)
			return next;
		if (d == root)
			return NULL;
		next = RB_NEXT(cookie_tree, &rnode(d->parent->inode)->dir.order, d);
		d = d->parent;
	}
}

/* Somebody holds something in it: an open file, a directory, a mount. */
bool rootfs_busy(struct superblock *sb)
{
	struct dentry *d;

	for (d = sb->root; d != NULL; d = tree_step(sb->root, d)) {
		uint32_t own = 1;

		if (KS_ISDIR(d->inode->mode))
			own += rnode(d->inode)->dir.count;
		if (d->refs > own || d->mounted != NULL)
			return true;
	}
	return false;
}

/* Takes the tree of an unmounted filesystem apart, leaves first. What is open stays until it
 * is closed. */
void rootfs_teardown(struct superblock *sb)
{
	struct dentry *d = sb->root, *child;

	for (;;) {
		child = KS_ISDIR(d->inode->mode) ?
				RB_MAX(cookie_tree, &rnode(d->inode)->dir.order) : NULL;
		if (child == NULL)
			inotify_unmounted(d->inode);
		else if ((child->flags & DENTRY_LAZY) == 0)
			inotify_unmounted(child->inode);
		if (child != NULL && ((child->flags & DENTRY_LAZY) != 0 ||
				      !KS_ISDIR(child->inode->mode))) {
			dir_remove(d->inode, child);
			child->flags |= DENTRY_DELETED;
			dentry_put(child);
		} else if (child != NULL) {
			d = child;
		} else if (d == sb->root) {
			break;
		} else {
			child = d;
			d = d->parent;
			dir_remove(d->inode, child);
			child->flags |= DENTRY_DELETED;
			dentry_put(child);
		}
	}
}
