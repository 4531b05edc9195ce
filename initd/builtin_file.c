/* SPDX-License-Identifier: Apache-2.0 */
/* Builtins that make, change and remove names: mkdir, chmod, rm. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "initd/builtin.h"

/* What is missing of the directories above. */
static int parents_make(char *path)
{
	struct stat st;
	char *slash;
	int r;

	for (slash = path + 1; *slash; slash++) {
		if (*slash != '/')
			continue;
		*slash = 0;
		r = mkdir(path, 0777) < 0 && errno != EEXIST && stat(path, &st) < 0 ? errno :
										      0;
		*slash = '/';
		if (r)
			return r;
	}
	return 0;
}

int builtin_mkdir(char *const *args, char *const *options)
{
	uint64_t mode = 0777;
	int parents = 0, r;
	struct stat st;
	char *path = args[0];

	r = builtin_option_number(options, "mode", 8, 07777, &mode);
	if (!r)
		r = builtin_option_yes(options, "parents", &parents);
	if (r)
		return r;
	if (parents && *path && (r = parents_make(path)))
		return builtin_fail(r, "cannot make the directories above", path);
	if (mkdir(path, 0777) < 0) {
		r = errno;
		if (parents && r == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			return 0;
		return builtin_fail(r, "cannot make", path);
	}
	/* As asked, whatever the mask. */
	if (builtin_option(options, "mode") && chmod(path, (mode_t)mode) < 0)
		return builtin_fail(errno, "cannot set the mode of", path);
	return 0;
}

int builtin_chmod(char *const *args, char *const *options)
{
	uint64_t mode = 0;

	if (!builtin_option(options, "mode"))
		return builtin_fail(EINVAL, "mode= is wanted for", args[0]);
	if (builtin_option_number(options, "mode", 8, 07777, &mode))
		return EINVAL;
	return chmod(args[0], (mode_t)mode) < 0 ?
		       builtin_fail(errno, "cannot set the mode of", args[0]) :
		       0;
}

/* ---- rm ---- */

/*
 * A tree is removed by descriptor, in any depth with one of them: down by a name that is no
 * symbolic link, up by "..", which must then be the directory we came from. So somebody who
 * moves directories about meanwhile cannot lead us anywhere else.
 */
struct level {
	dev_t device;
	ino_t inode; /* of the directory above */
	char name[NAME_MAX + 1];
};

struct removal {
	int fd; /* the directory at hand */
	struct level *levels;
	size_t depth, cap;
	struct stat top;
};

struct entry { /* of getdents64 */
	uint64_t inode;
	int64_t next;
	unsigned short size;
	unsigned char type;
	char name[];
};

static int level_push(struct removal *m, const char *name)
{
	struct level *levels = m->levels;
	struct stat st;

	if (m->depth == m->cap) {
		levels = realloc(levels, (m->cap * 2 + 16) * sizeof(*levels));
		if (!levels)
			return ENOMEM;
		m->levels = levels;
		m->cap = m->cap * 2 + 16;
	}
	if (fstat(m->fd, &st) < 0)
		return errno;
	levels[m->depth].device = st.st_dev;
	levels[m->depth].inode = st.st_ino;
	snprintf(levels[m->depth].name, sizeof(levels[0].name), "%s", name);
	m->depth++;
	return 0;
}

static int level_down(struct removal *m, const char *name)
{
	int fd = openat(m->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0)
		return errno;
	if (fstat(fd, &st) < 0)
		r = errno;
	else if (m->depth > 0 && st.st_dev != m->top.st_dev)
		r = EBUSY; /* another file system is mounted there */
	else
		r = level_push(m, name);
	if (r) {
		close(fd);
		return r;
	}
	if (m->depth == 1)
		m->top = st;
	close(m->fd);
	m->fd = fd;
	return 0;
}

/* The directory at hand is empty: removes it from the one above, where we are then. */
static int level_up(struct removal *m)
{
	const struct level *level = &m->levels[m->depth - 1];
	int fd = openat(m->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return errno;
	close(m->fd);
	m->fd = fd;
	if (fstat(fd, &st) < 0)
		return errno;
	if (st.st_dev != level->device || st.st_ino != level->inode)
		return ESTALE;
	if (unlinkat(fd, level->name, AT_REMOVEDIR) < 0)
		return errno;
	m->depth--;
	return 0;
}

/* Removes one entry, or goes down into it: *ret_down. */
static int entry_remove(struct removal *m, const struct entry *e, bool *ret_down)
{
	int r;

	if (!strcmp(e->name, ".") || !strcmp(e->name, ".."))
		return 0;
	if (e->type != DT_DIR) {
		if (unlinkat(m->fd, e->name, 0) == 0 || errno == ENOENT)
			return 0;
		if (errno != EISDIR && errno != EPERM)
			return errno;
	}
	r = level_down(m, e->name);
	*ret_down = !r;
	return r == ENOENT ? 0 : r;
}

/* Removes what is in the directory at hand. Ends without an error when it is empty, or when a
 * directory in it is now the one at hand: *ret_down. */
static int dir_clear(struct removal *m, bool *ret_down)
{
	static _Alignas(struct entry) char bytes[32768];
	const struct entry *e;
	bool found;
	long n, at;
	int r;

	*ret_down = false;
	do {
		found = false;
		if (lseek(m->fd, 0, SEEK_SET) < 0)
			return errno;
		while ((n = syscall(SYS_getdents64, m->fd, bytes, sizeof(bytes))) > 0) {
			for (at = 0; at < n; at += e->size) {
				e = (const struct entry *)(bytes + at);
				found |= strcmp(e->name, ".") && strcmp(e->name, "..");
				r = entry_remove(m, e, ret_down);
				if (r || *ret_down)
					return r;
			}
		}
		if (n < 0)
			return errno;
	} while (found); /* removing moves what a directory says about itself */
	return 0;
}

static int tree_remove(const char *dir, const char *base)
{
	struct removal m = {.fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	bool down;
	int r;

	if (m.fd < 0)
		return errno;
	r = level_down(&m, base);
	while (!r && m.depth) {
		r = dir_clear(&m, &down);
		if (!r && !down)
			r = level_up(&m);
	}
	return r;
}

int builtin_rm(char *const *args, char *const *options)
{
	char path[PATH_MAX], dir[PATH_MAX];
	const char *base;
	int recursive = 0, r;
	struct stat st;
	size_t n = strlen(args[0]);

	if (builtin_option_yes(options, "recursive", &recursive))
		return EINVAL;
	if (n >= sizeof(path))
		return builtin_fail(ENAMETOOLONG, "cannot remove", args[0]);
	strcpy(path, args[0]);
	while (n > 1 && path[n - 1] == '/')
		path[--n] = 0;
	r = builtin_split(path, dir, &base);
	if (!r && (!*base || !strcmp(base, ".") || !strcmp(base, "..")))
		r = EBUSY;
	if (!r && lstat(path, &st) < 0)
		r = errno;
	if (r)
		return builtin_fail(r, "cannot remove", args[0]);
	if (S_ISDIR(st.st_mode) && !recursive)
		return builtin_fail(EISDIR, "recursive=yes is wanted to remove", args[0]);
	if (S_ISDIR(st.st_mode))
		r = tree_remove(dir, base);
	else if (unlink(path) < 0)
		r = errno;
	return r ? builtin_fail(r, "cannot remove", args[0]) : 0;
}
