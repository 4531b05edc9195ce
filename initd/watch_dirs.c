/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of a tree that is watched; see watch_dirs.h. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "initd/watch_dirs.h"

#define BUCKETS 4096u

static struct watch_dir *by_wd[BUCKETS], *by_name[BUCKETS];
static size_t count;

static struct watch_dir **wd_bucket(int wd)
{
	return &by_wd[(unsigned int)wd % BUCKETS];
}

static struct watch_dir **name_bucket(const struct watch_dir *parent, const char *name)
{
	uint64_t hash = (uintptr_t)parent;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
	return &by_name[(hash ^ hash >> 32) % BUCKETS];
}

struct watch_dir *dirs_add(int wd, ino_t ino)
{
	struct watch_dir *dir = calloc(1, sizeof(*dir)), **bucket = wd_bucket(wd);

	if (!dir)
		return NULL;
	dir->wd = wd;
	dir->ino = ino;
	dir->same_wd = *bucket;
	*bucket = dir;
	count++;
	return dir;
}

static void queue_leave(struct watch_dir *dir)
{
	if (!dir->queue_link)
		return;
	*dir->queue_link = dir->queue_next;
	if (dir->queue_next)
		dir->queue_next->queue_link = dir->queue_link;
	dir->queue_link = NULL;
}

void dirs_remove(struct watch_dir *dir)
{
	struct watch_dir **at = wd_bucket(dir->wd);

	while (*at != dir)
		at = &(*at)->same_wd;
	*at = dir->same_wd;
	queue_leave(dir);
	count--;
	free(dir);
}

int dirs_attach(struct watch_dir *dir, struct watch_dir *parent, const char *name)
{
	struct watch_dir **bucket = name_bucket(parent, name);

	dir->name = strdup(name);
	if (!dir->name)
		return ENOMEM;
	dir->parent = parent;
	dir->next = parent->children;
	dir->link = &parent->children;
	if (dir->next)
		dir->next->link = &dir->next;
	parent->children = dir;
	dir->same_name = *bucket;
	*bucket = dir;
	return 0;
}

void dirs_detach(struct watch_dir *dir)
{
	struct watch_dir **at;

	if (!dir->parent)
		return;
	at = name_bucket(dir->parent, dir->name);
	while (*at != dir)
		at = &(*at)->same_name;
	*at = dir->same_name;
	*dir->link = dir->next;
	if (dir->next)
		dir->next->link = dir->link;
	free(dir->name);
	dir->name = NULL;
	dir->parent = NULL;
}

size_t dirs_count(void)
{
	return count;
}

struct watch_dir *dirs_find_wd(int wd)
{
	struct watch_dir *dir = *wd_bucket(wd);

	while (dir && dir->wd != wd)
		dir = dir->same_wd;
	return dir;
}

struct watch_dir *dirs_find(const struct watch_dir *parent, const char *name)
{
	struct watch_dir *dir = *name_bucket(parent, name);

	while (dir && (dir->parent != parent || strcmp(dir->name, name)))
		dir = dir->same_name;
	return dir;
}

bool dirs_is_below(const struct watch_dir *dir, const struct watch_dir *top)
{
	while (dir && dir != top)
		dir = dir->parent;
	return dir;
}

bool dirs_path(const struct watch_dir *dir, const char *name, char path[PATH_MAX])
{
	size_t left = PATH_MAX - 1, n = strlen(name);

	path[left] = 0;
	for (;;) {
		if (n > left)
			return false;
		left -= n;
		memcpy(path + left, name, n);
		if (!dir->parent)
			break;
		name = dir->name;
		n = strlen(name);
		dir = dir->parent;
		if (path[left]) {
			if (!left)
				return false;
			path[--left] = '/';
		}
	}
	memmove(path, path + left, PATH_MAX - left);
	return true;
}

void dirs_enqueue(struct watch_dir *dir, struct dir_queue *queue)
{
	queue_leave(dir);
	dir->queue_next = queue->first;
	dir->queue_link = &queue->first;
	if (dir->queue_next)
		dir->queue_next->queue_link = &dir->queue_next;
	queue->first = dir;
}

struct watch_dir *dirs_dequeue(struct dir_queue *queue)
{
	struct watch_dir *dir = queue->first;

	if (dir)
		queue_leave(dir);
	return dir;
}
