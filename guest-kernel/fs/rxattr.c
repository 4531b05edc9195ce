/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes of the memory filesystem: a list per inode, which for an inode of the
 * image starts with the image's, read at the first use. Which names a caller may use is
 * xattr.c's business.
 */
#include <linux/xattr.h>

#include "guest-kernel/fs/memfs.h"
#include "guest-kernel/mm/page.h"

#define XATTR_BYTES_MAX	(128u << 10)	/* of one inode, names included */

static struct rxattr *xattr_new(const char *prefix, const char *name, size_t len,
				const void *value, size_t size)
{
	size_t plen = strlen(prefix);
	struct rxattr *x = kmalloc(sizeof(*x) + size + plen + len + 1);

	if (x == NULL)
		return NULL;
	x->next = NULL;
	x->size = size;
	x->name = (char *)x->value + size;
	if (size != 0)
		memcpy(x->value, value, size);
	memcpy(x->name, prefix, plen);
	memcpy(x->name + plen, name, len);
	x->name[plen + len] = 0;
	return x;
}

static int load_one(void *ctx, const char *prefix, const char *name, size_t len,
		    const void *value, size_t size)
{
	struct rxattr ***end = ctx;
	struct rxattr *x;

	if (strlen(prefix) + len > 255)
		return 0;
	x = xattr_new(prefix, name, len, value, size);
	if (x == NULL)
		return -ENOMEM;
	**end = x;
	*end = &x->next;
	return 0;
}

static int load(struct inode *i)
{
	struct rnode *rn = rnode(i);
	const struct erofs *image = memfs(i->sb)->image;
	struct rxattr **end = &rn->xattrs;
	struct erofs_inode ei;
	int r;

	if (!rn->xattr_pending)
		return 0;
	r = erofs_inode_read(image, rn->nid, &ei);
	if (r == 0)
		r = erofs_xattr_each(image, &ei, load_one, &end);
	if (r != 0) {
		rxattr_free(i);
		return r;
	}
	rn->xattr_pending = false;
	return 0;
}

void rxattr_free(struct inode *i)
{
	struct rxattr *x = rnode(i)->xattrs, *next;

	for (; x != NULL; x = next) {
		next = x->next;
		kfree(x);
	}
	rnode(i)->xattrs = NULL;
}

/* The pointer that leads to name, or to the end of the list. */
static struct rxattr **find(struct inode *i, const char *name)
{
	struct rxattr **p = &rnode(i)->xattrs;

	while (*p != NULL && strcmp((*p)->name, name) != 0)
		p = &(*p)->next;
	return p;
}

long rxattr_get(struct inode *i, const char *name, void *buf, size_t size)
{
	struct rxattr *x;
	int r = load(i);

	if (r != 0)
		return r;
	x = *find(i, name);
	if (x == NULL)
		return -ENODATA;
	if (size == 0)
		return (long)x->size;
	if (size < x->size)
		return -ERANGE;
	memcpy(buf, x->value, x->size);
	return (long)x->size;
}

int rxattr_set(struct inode *i, const char *name, const void *buf, size_t size, int flags)
{
	size_t total = size + strlen(name);
	struct rxattr **p, *x;
	int r = load(i);

	if (r != 0)
		return r;
	p = find(i, name);
	if (*p == NULL && (flags & XATTR_REPLACE) != 0)
		return -ENODATA;
	if (*p != NULL && (flags & XATTR_CREATE) != 0)
		return -EEXIST;
	for (x = rnode(i)->xattrs; x != NULL; x = x->next) {
		if (x != *p)
			total += x->size + strlen(x->name);
	}
	if (total > XATTR_BYTES_MAX)
		return -ENOSPC;
	x = xattr_new("", name, strlen(name), buf, size);
	if (x == NULL)
		return -ENOMEM;
	if (*p != NULL) {
		x->next = (*p)->next;
		kfree(*p);
	}
	*p = x;
	return 0;
}

int rxattr_remove(struct inode *i, const char *name)
{
	struct rxattr **p, *x;
	int r = load(i);

	if (r != 0)
		return r;
	p = find(i, name);
	x = *p;
	if (x == NULL)
		return -ENODATA;
	*p = x->next;
	kfree(x);
	return 0;
}

/* Names with their zeros. size 0: only how long that is. */
long rxattr_list(struct inode *i, char *buf, size_t size)
{
	size_t n = 0;
	int r = load(i);

	if (r != 0)
		return r;
	for (const struct rxattr *x = rnode(i)->xattrs; x != NULL; x = x->next) {
		size_t len = strlen(x->name) + 1;

		if (size != 0) {
			if (size - n < len)
				return -ERANGE;
			memcpy(buf + n, x->name, len);
		}
		n += len;
	}
	return (long)n;
}
