/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the memory filesystem: rootfs.c (trees), rfile.c (contents), rxattr.c (extended
 * attributes).
 */
#ifndef FS_MEMFS_H
#define FS_MEMFS_H

#include "guest-kernel/fs/erofs.h"
#include "guest-kernel/fs/fs_internal.h"

/* Contents of a regular file: its own frames, and below them what the image gives. */
struct rdata {
	uint64_t root;			/* height 0: the frame of page 0 (or 0); else a node */
	uint32_t height;		/* a node has 64 entries; the tree holds 64^height */
	bool base_ram;			/* the base is counted RAM (memfile), not the image */
	uint64_t npages;		/* own frames */
	const uint8_t *base;		/* page 0 of the base, contiguous; NULL: none */
	paddr_t base_pa;
	uint64_t base_size;		/* bytes [0, base_size) come from the base */
	const uint8_t *tail;		/* the base's last, partial page when it lies elsewhere */
};

/* Names of a directory: by hash for lookup, by cookie for readdir. */
RB_HEAD(cookie_tree, dentry);
struct rdir {
	struct dentry **hash;
	struct cookie_tree order;
	uint32_t nbuckets, count;
	uint64_t next_cookie;
	bool pending;			/* an image directory not read yet */
};

struct rxattr {
	struct rxattr *next;
	char *name;			/* behind the value */
	size_t size;
	uint8_t value[];
};

struct rnode {
	union {
		struct rdata data;
		struct rdir dir;
		char *link;
	};
	struct rxattr *xattrs;
	uint64_t nid;
	bool image;			/* comes from the image: nid is valid */
	bool made;			/* by a program: counted */
	bool xattr_pending;		/* the image's not read yet */
	struct rnode *nid_next;		/* files with several names, by nid */
	struct inode *inode;
};

static inline struct rnode *rnode(const struct inode *i)
{
	return i->priv;
}

/* A mounted memory filesystem. */
struct memfs {
	struct superblock *sb;
	const struct erofs *image;	/* NULL but for the root */
	paddr_t image_pa;
	uint64_t max_pages, pages;	/* size=; own frames and a share for names */
	uint64_t max_inodes, inodes;
	struct rnode **nids;		/* hash of image files with several names */
};
#define MEMFS_NIDS 1024u

static inline struct memfs *memfs(const struct superblock *sb)
{
	return sb->priv;
}

/* rootfs.c */
struct inode *memfs_new_inode(struct superblock *sb, uint32_t mode);	/* or ERR_PTR */
uint64_t memfs_made(void);	/* files that programs made and that are still there */
struct inode *memfs_image_root(struct superblock *sb, uint64_t nid);	/* or ERR_PTR */

/* rfile.c */
extern const struct file_ops rfile_fops;
int rfile_get_page(struct inode *i, uint64_t index, bool write, paddr_t *ret);
uint64_t rfile_get_run(struct inode *i, uint64_t index, uint64_t n, paddr_t *ret);
int rfile_truncate(struct inode *i, uint64_t size);
void rfile_free(struct inode *i);

/* rxattr.c */
long rxattr_get(struct inode *i, const char *name, void *buf, size_t size);
int rxattr_set(struct inode *i, const char *name, const void *buf, size_t size, int flags);
long rxattr_list(struct inode *i, char *buf, size_t size);
int rxattr_remove(struct inode *i, const char *name);
void rxattr_free(struct inode *i);

#endif
