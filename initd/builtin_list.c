/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builtins that tell about files: ls and stat, one line each. Those of other file systems that
 * are mounted below are told about, not looked into.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "initd/builtin.h"
#include "initd/words.h"

struct listing {
	bool recursive;
	dev_t device;
	char path[PATH_MAX]; /* below the directory asked for */
	int error;           /* the first; the rest is told all the same */
};

static struct words words;

static const char *type_name(mode_t mode)
{
	return S_ISREG(mode)  ? "file" :
	       S_ISDIR(mode)  ? "dir" :
	       S_ISLNK(mode)  ? "link" :
	       S_ISFIFO(mode) ? "fifo" :
	       S_ISSOCK(mode) ? "socket" :
	       S_ISCHR(mode)  ? "char" :
				"block";
}

/* `name` of the directory is told about as `shown`. */
static void line_say(int dir, const char *name, const char *shown, const struct stat *st)
{
	char target[PATH_MAX];
	ssize_t n;

	words_pair(&words, "name", shown);
	words_pair(&words, "type", type_name(st->st_mode));
	words_pair_format(&words, "mode", "%04o", st->st_mode & 07777);
	words_pair_format(&words, "uid", "%u", st->st_uid);
	words_pair_format(&words, "gid", "%u", st->st_gid);
	words_pair_format(&words, "size", "%lld", (long long)st->st_size);
	words_pair_format(&words, "links", "%llu", (unsigned long long)st->st_nlink);
	words_pair_format(&words, "mtime", "%lld.%09ld", (long long)st->st_mtim.tv_sec,
			  st->st_mtim.tv_nsec);
	if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
		words_pair_format(&words, "device", "%u:%u", major(st->st_rdev),
				  minor(st->st_rdev));
	if (S_ISLNK(st->st_mode) &&
	    (n = readlinkat(dir, name, target, sizeof(target) - 1)) >= 0) {
		target[n] = 0;
		words_pair(&words, "target", target);
	}
	words_end(&words);
}

static void error_keep(struct listing *l, int error)
{
	if (!l->error)
		l->error = builtin_fail(error, "cannot list", l->path);
}

static void dir_list(struct listing *l, int fd, size_t length);

static void entry_list(struct listing *l, int dir, const char *name, size_t length)
{
	size_t added = strlen(name);
	struct stat st;
	int fd;

	if (length + added + 2 > sizeof(l->path)) {
		error_keep(l, ENAMETOOLONG);
		return;
	}
	memcpy(l->path + length, name, added + 1);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT) /* it went meanwhile */
			error_keep(l, errno);
		return;
	}
	line_say(dir, name, l->path, &st);
	if (!l->recursive || !S_ISDIR(st.st_mode) || st.st_dev != l->device)
		return;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			error_keep(l, errno);
		return;
	}
	l->path[length + added] = '/';
	l->path[length + added + 1] = 0;
	dir_list(l, fd, length + added + 1);
}

/* Takes fd. l->path has `length` bytes. */
static void dir_list(struct listing *l, int fd, size_t length)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		error_keep(l, errno);
		close(fd);
		return;
	}
	while (!words.error && (errno = 0, entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			entry_list(l, fd, entry->d_name, length);
	l->path[length] = 0;
	if (errno && !words.error)
		error_keep(l, errno);
	closedir(dir);
}

int builtin_ls(char *const *args, char *const *options)
{
	static struct listing l;
	struct rlimit files;
	struct stat st;
	int fd, recursive = 0, r;

	if (builtin_option_yes(options, "recursive", &recursive))
		return EINVAL;
	l.recursive = recursive;
	/* One descriptor is open for each level. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	fd = open(args[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return builtin_fail(errno, "cannot list", args[0]);
	l.device = st.st_dev;
	dir_list(&l, fd, 0);
	r = words_flush(&words);
	return r ? r : l.error;
}

int builtin_stat(char *const *args, char *const *options)
{
	struct stat st;
	int follow = 1;

	if (builtin_option_yes(options, "follow", &follow))
		return EINVAL;
	if (strlen(args[0]) >= PATH_MAX)
		return builtin_fail(ENAMETOOLONG, "cannot look at", args[0]);
	if (fstatat(AT_FDCWD, args[0], &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
		return builtin_fail(errno, "cannot look at", args[0]);
	line_say(AT_FDCWD, args[0], args[0], &st);
	return words_flush(&words);
}
