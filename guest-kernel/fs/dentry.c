/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dentries: names, and the way from a name back to the root.
 *
 * A dentry holds its parent, so a path can be told for as long as somebody holds the dentry,
 * removed or not. Releasing walks upwards in a loop, never by recursion: trees may be deep.
 */
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

struct dentry *fs_root;

struct dentry *dentry_new(struct dentry *parent, const char *name, size_t len,
			  struct inode *inode)
{
	size_t room = ALIGN_UP(sizeof(struct dentry) + len + 1, 16) - sizeof(struct dentry);
	struct dentry *d = kmalloc(sizeof(*d) + room);

	if (d == NULL) {
		inode_put(inode);
		return NULL;
	}
	memset(d, 0, sizeof(*d));
	d->refs = 1;
	d->inode = inode;
	d->len = (uint16_t)len;
	d->room = (uint16_t)room;
	d->name = d->store;
	memcpy(d->name, name, len);
	d->name[len] = 0;
	if (parent != NULL) {
		dentry_get(parent);
		d->parent = parent;
	} else {
		d->parent = d;
	}
	return d;
}

int dentry_reserve_name(struct dentry *d, size_t len)
{
	char *p;

	if (len + 1 <= d->room)
		return 0;
	p = kmalloc(len + 1);
	if (p == NULL)
		return -ENOMEM;
	memcpy(p, d->name, d->len + 1u);
	if (d->name != d->store)
		kfree(d->name);
	d->name = p;
	d->room = (uint16_t)(len + 1);
	return 0;
}

int dentry_set_name(struct dentry *d, const char *name, size_t len)
{
	int r = dentry_reserve_name(d, len);

	if (r != 0)
		return r;
	memmove(d->name, name, len);
	d->name[len] = 0;
	d->len = (uint16_t)len;
	return 0;
}

struct dentry *dentry_anon(struct inode *inode, const char *name)
{
	struct dentry *d = dentry_new(NULL, name, strlen(name), inode);

	if (d != NULL)
		d->flags |= DENTRY_ANON;
	return d;
}

void dentry_get(struct dentry *d)
{
	d->refs++;
}

void dentry_put(struct dentry *d)
{
	while (d != NULL) {
		struct dentry *parent = d->parent != d ? d->parent : NULL;

		ASSERT(d->refs > 0);
		if (--d->refs > 0)
			return;
		inode_put(d->inode);
		if (d->name != d->store)
			kfree(d->name);
		kfree(d);
		d = parent;
	}
}

bool dentry_is_below(const struct dentry *d, const struct dentry *ancestor)
{
	for (;;) {
		if (d == ancestor)
			return true;
		if (d->parent != d)
			d = d->parent;
		else if (d->covers != NULL)
			d = d->covers;
		else
			return false;
	}
}

static bool prepend(char **p, const char *buf, const char *s, size_t n)
{
	if ((size_t)(*p - buf) < n)
		return false;
	*p -= n;
	memcpy(*p, s, n);
	return true;
}

static char *anon_path(struct dentry *d, char *p, const char *buf)
{
	/* Memory files, of memfd_create and of shmget, look like files that were removed. */
	bool file = strncmp(d->name, "memfd:", 6) == 0 || strncmp(d->name, "SYSV", 4) == 0;

	if ((file && !prepend(&p, buf, " (deleted)", 10)) ||
	    !prepend(&p, buf, d->name, d->len) || (file && !prepend(&p, buf, "/", 1)))
		return ERR_PTR(-ENAMETOOLONG);
	return p;
}

char *dentry_path(struct dentry *d, struct dentry *root, char *buf, size_t size)
{
	char *p = buf + size;
	bool empty = true;

	if (root == NULL)
		root = fs_root;
	if (size == 0)
		return ERR_PTR(-ENAMETOOLONG);
	*--p = 0;
	if ((d->flags & DENTRY_ANON) != 0)
		return anon_path(d, p, buf);
	if ((d->flags & DENTRY_DELETED) != 0 && !prepend(&p, buf, " (deleted)", 10))
		return ERR_PTR(-ENAMETOOLONG);
	while (d != root) {
		if (d->parent == d) {
			if (d->covers == NULL)
				break;
			d = d->covers;
			continue;
		}
		if (!prepend(&p, buf, d->name, d->len) || !prepend(&p, buf, "/", 1))
			return ERR_PTR(-ENAMETOOLONG);
		empty = false;
		d = d->parent;
	}
	if (empty && !prepend(&p, buf, "/", 1))
		return ERR_PTR(-ENAMETOOLONG);
	if (d != root && root != NULL && !prepend(&p, buf, "(unreachable)", 13))
		return ERR_PTR(-ENAMETOOLONG);
	return p;
}
