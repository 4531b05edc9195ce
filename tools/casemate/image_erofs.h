/* SPDX-License-Identifier: Apache-2.0 */
/* A reader of EROFS images as `casemate image build` makes them. See image_erofs.c. */
#ifndef CASEMATE_TOOLS_IMAGE_EROFS_H
#define CASEMATE_TOOLS_IMAGE_EROFS_H

#include <stddef.h>
#include <stdint.h>

#define EROFS_BLOCK 4096u

struct erofs_entry {
	const char *path; /* "/" for the root */
	uint64_t nid;
	uint16_t mode;
	uint32_t uid, gid;
	uint32_t links;
	uint64_t size;
	uint64_t mtime;
	uint32_t mtime_ns;
	unsigned int layout; /* 0: flat plain, 2: flat with its tail after the inode */
	uint64_t start;      /* byte offset of the first block; size 0: meaningless */
};

/* Called for every name in the image, directories before what is in them. NULL to go on,
 * or why not. */
typedef const char *erofs_visit_fn(void *arg, const struct erofs_entry *e);

/* Walks the image in [map, map + size) without trusting it. 0, or -EINVAL with ret_why,
 * or -ENOMEM. */
int erofs_walk(const uint8_t *map, size_t size, erofs_visit_fn *visit, void *arg,
	       char *ret_why, size_t why_size);

#endif
