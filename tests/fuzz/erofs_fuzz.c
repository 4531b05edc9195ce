/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest kernel's EROFS reader on hostile images: everything reachable is read, up to a
 * bound. The superblock's checksum is not asked for, or no mutation would get past it.
 */
#include <stdlib.h>

#include "guest-kernel/fs/erofs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NODES_MAX 200u

struct walk {
	struct erofs fs;
	uint64_t queue[NODES_MAX];
	unsigned count;
	uint64_t sum;
};

static int take_name(void *ctx, const char *name, size_t len, uint64_t nid, unsigned type)
{
	struct walk *w = ctx;

	for (size_t k = 0; k < len; k++)
		w->sum += (uint8_t)name[k];
	if (len == 0 || len > EROFS_ROOT_MAX_NAME || type > 15)
		abort();
	if (w->count < NODES_MAX)
		w->queue[w->count++] = nid;
	return 0;
}

static int take_xattr(void *ctx, const char *prefix, const char *name, size_t len,
		      const void *value, size_t value_len)
{
	struct walk *w = ctx;

	w->sum += strlen(prefix);
	for (size_t k = 0; k < len; k++)
		w->sum += (uint8_t)name[k];
	for (size_t k = 0; k < value_len; k++)
		w->sum += ((const uint8_t *)value)[k];
	return 0;
}

static void read_all(struct walk *w, const struct erofs_inode *ei)
{
	for (uint64_t off = 0; off < ei->size;) {
		size_t n = MIN(ei->size - off, 4096 - off % 4096);
		const uint8_t *p = erofs_data(&w->fs, ei, off, n);

		/* What was accepted lies inside. */
		if (p == NULL)
			abort();
		for (size_t k = 0; k < n; k += 97)
			w->sum += p[k];
		w->sum += p[n - 1];
		off += n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct walk *w = calloc(1, sizeof(*w));
	uint8_t *image = malloc(size != 0 ? size : 1);
	const char *why;

	memcpy(image, data, size);
	if (size > 1036)
		image[1024 + 8] &= 0xfe;
	if (erofs_open(&w->fs, image, size, &why) == 0) {
		w->queue[w->count++] = w->fs.root_nid;
		for (unsigned k = 0; k < w->count; k++) {
			struct erofs_inode ei;

			if (erofs_inode_read(&w->fs, w->queue[k], &ei) != 0)
				continue;
			if ((ei.mode & 0170000) == 0040000)
				erofs_dir_each(&w->fs, &ei, take_name, w);
			erofs_xattr_each(&w->fs, &ei, take_xattr, w);
			read_all(w, &ei);
		}
	} else if (why == NULL) {
		abort();
	}
	free(image);
	free(w);
	return 0;
}
