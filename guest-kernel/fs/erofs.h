/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader for uncompressed EROFS images: see erofs.c. Needs nothing of the kernel, so that it
 * can be fuzzed alone. The image is hostile: whatever is returned lies inside it.
 */
#ifndef FS_EROFS_H
#define FS_EROFS_H

#include "guest-kernel/lib/kernel.h"

struct erofs {
	const uint8_t *image;
	uint64_t size;
	uint64_t meta_off, xattr_off;	/* bytes */
	uint64_t root_nid, inos;
	uint64_t build_ns;
};

struct erofs_inode {
	uint64_t nid, size, rdev, mtime_ns;
	uint32_t mode, uid, gid, nlink;
	uint64_t data_off;		/* of the blocks, 4 KiB aligned; bytes into the image */
	uint64_t data_len;		/* bytes of the file that lie there */
	uint64_t tail_off;		/* the rest, behind the inode: size - data_len bytes */
	uint64_t xattr_off;		/* of the xattr area, and its length */
	uint32_t xattr_len;
};

#define EROFS_ROOT_MAX_NAME 255

/* 0, or negative errno with one line in *why. */
int erofs_open(struct erofs *fs, const void *image, uint64_t size, const char **why);
/* -EUCLEAN for nonsense, -EOPNOTSUPP for compressed or chunked data. */
int erofs_inode_read(const struct erofs *fs, uint64_t nid, struct erofs_inode *ret);
/* Bytes [off, off + n) of a file, n inside one 4 KiB block; NULL outside. */
const uint8_t *erofs_data(const struct erofs *fs, const struct erofs_inode *ei, uint64_t off,
			  size_t n);

/* Each entry but "." and ".." with a legal name; type: DT_*. Nonzero stops and is returned. */
typedef int (*erofs_dir_fn)(void *ctx, const char *name, size_t len, uint64_t nid,
			    unsigned type);
int erofs_dir_each(const struct erofs *fs, const struct erofs_inode *ei, erofs_dir_fn fn,
		   void *ctx);

/* Each extended attribute. prefix: "user." ... */
typedef int (*erofs_xattr_fn)(void *ctx, const char *prefix, const char *name, size_t len,
			      const void *value, size_t value_len);
int erofs_xattr_each(const struct erofs *fs, const struct erofs_inode *ei, erofs_xattr_fn fn,
		     void *ctx);

#endif
