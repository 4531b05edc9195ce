/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builtins that make what a name stands for: put, symlink; and get; and mv, which does between
 * file systems.
 *
 * A file is written beside its name and gets the name when it is whole. Until then it has none
 * at all (O_TMPFILE), so that whatever ends us, the kernel frees it. Where the file system
 * cannot do that, it has a name of its own meanwhile, which only a SIGKILL leaves behind. To
 * replace a name takes such a name, too, for the time between two system calls.
 *
 * End of stdin is said by the client (close-stdin) and by nothing else: one that is lost has
 * its command killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "initd/builtin.h"

#define COPY_BYTES 131072

static char copy_bytes[COPY_BYTES];

struct new_file {
	const char *path, *base; /* base: the last part of the path */
	int dir, fd;
	char name[32]; /* the temporary name, "": none */
	bool replaces; /* a regular file or a symbolic link, which `old` describes */
	struct stat old;
};

static int temporary_name(struct new_file *f)
{
	uint64_t number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return errno;
	snprintf(f->name, sizeof(f->name), ".put-%016llx", (unsigned long long)number);
	return 0;
}

static int temporary_open(struct new_file *f)
{
	int r;

	f->fd = openat(f->dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (f->fd >= 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT)
		return errno;
	r = temporary_name(f);
	if (r)
		return r;
	f->fd = openat(f->dir, f->name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (f->fd < 0) {
		r = errno;
		f->name[0] = 0;
		return r;
	}
	return 0;
}

/* Looks at what has the name now. */
static int name_check(struct new_file *f)
{
	if (!*f->base || !strcmp(f->base, ".") || !strcmp(f->base, ".."))
		return EISDIR;
	if (fstatat(f->dir, f->base, &f->old, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : errno;
	if (S_ISDIR(f->old.st_mode))
		return EISDIR;
	/* Devices and sockets are somebody's, and replaced by mistake. */
	if (!S_ISREG(f->old.st_mode) && !S_ISLNK(f->old.st_mode))
		return EEXIST;
	f->replaces = true;
	return 0;
}

/* Looks at the name; the file is made by temporary_open(). */
static int new_file_begin(struct new_file *f, const char *path)
{
	char dir[PATH_MAX];
	int r;

	memset(f, 0, sizeof(*f));
	f->path = path;
	f->fd = -1;
	r = builtin_split(path, dir, &f->base);
	if (r)
		return r;
	f->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (f->dir < 0)
		return errno;
	return name_check(f);
}

/* Gives the file its name. */
static int new_file_place(struct new_file *f)
{
	char from[32];
	int r;

	if (!f->name[0]) {
		snprintf(from, sizeof(from), "/proc/self/fd/%d", f->fd);
		if (linkat(AT_FDCWD, from, f->dir, f->base, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		if (errno != EEXIST)
			return errno;
		r = temporary_name(f);
		if (r)
			return r;
		if (linkat(AT_FDCWD, from, f->dir, f->name, AT_SYMLINK_FOLLOW) < 0) {
			r = errno;
			f->name[0] = 0;
			return r;
		}
	}
	if (renameat(f->dir, f->name, f->dir, f->base) < 0)
		return errno;
	f->name[0] = 0;
	return 0;
}

/* After a failure: leaves nothing. */
static void new_file_drop(struct new_file *f)
{
	if (f->name[0])
		unlinkat(f->dir, f->name, 0);
}

/* Copies to the end of `in`, or `length` bytes. */
static int copy(int in, int out, uint64_t length, uint64_t *ret_copied)
{
	ssize_t n;
	size_t want;
	int r;

	for (*ret_copied = 0; *ret_copied < length; *ret_copied += (uint64_t)n) {
		want = length - *ret_copied < COPY_BYTES ? (size_t)(length - *ret_copied) :
							   COPY_BYTES;
		n = read(in, copy_bytes, want);
		if (n < 0 && errno == EINTR) {
			n = 0;
			continue;
		}
		if (n < 0)
			return errno;
		if (n == 0)
			break;
		r = builtin_write(out, copy_bytes, (size_t)n);
		if (r)
			return r;
	}
	return 0;
}

/* The rights: those asked for, of the file replaced, or usual ones. Its owner stays as far as
 * we may give files away. */
static int rights_set(const struct new_file *f, bool given, mode_t mode)
{
	if (f->replaces && S_ISREG(f->old.st_mode)) {
		if (!given)
			mode = f->old.st_mode & 0777;
		(void)!fchown(f->fd, f->old.st_uid, f->old.st_gid);
	}
	return fchmod(f->fd, mode) < 0 ? errno : 0;
}

static int put_bytes(struct new_file *f, bool sized, uint64_t size)
{
	uint64_t copied;
	char more;
	int r = copy(0, f->fd, size, &copied);

	if (r)
		return builtin_fail(r, "cannot write", f->path);
	if (sized && copied < size)
		return builtin_fail(ENODATA, "fewer bytes came than size= says for", f->path);
	if (sized && read(0, &more, 1) != 0)
		return builtin_fail(EFBIG, "more bytes came than size= says for", f->path);
	return 0;
}

int builtin_put(char *const *args, char *const *options)
{
	uint64_t mode = 0644, size = INT64_MAX;
	bool given = builtin_option(options, "mode");
	struct new_file f;
	int r;

	if (builtin_option_number(options, "mode", 8, 07777, &mode) ||
	    builtin_option_number(options, "size", 10, INT64_MAX, &size))
		return EINVAL;
	r = new_file_begin(&f, args[0]);
	if (!r)
		r = temporary_open(&f);
	if (r)
		return builtin_fail(r, "cannot write", f.path);
	r = put_bytes(&f, builtin_option(options, "size"), size);
	if (!r) {
		r = rights_set(&f, given, (mode_t)mode);
		if (!r)
			r = new_file_place(&f);
		if (r)
			builtin_fail(r, "cannot make", f.path);
	}
	if (r)
		new_file_drop(&f);
	return r;
}

int builtin_get(char *const *args, char *const *options)
{
	uint64_t offset = 0, length = UINT64_MAX, copied;
	struct stat st;
	int fd, r;

	if (builtin_option_number(options, "offset", 10, INT64_MAX, &offset) ||
	    builtin_option_number(options, "length", 10, UINT64_MAX, &length))
		return EINVAL;
	fd = open(args[0], O_RDONLY | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return builtin_fail(errno, "cannot read", args[0]);
	if (S_ISDIR(st.st_mode))
		return builtin_fail(EISDIR, "cannot read", args[0]);
	if (offset && lseek(fd, (off_t)offset, SEEK_SET) < 0)
		return builtin_fail(errno, "cannot read from an offset:", args[0]);
	r = copy(fd, 1, length, &copied);
	return r ? builtin_fail(r, "cannot read", args[0]) : 0;
}

int builtin_symlink(char *const *args, char *const *options)
{
	const char *target = builtin_option(options, "target");
	struct new_file f;
	int r;

	if (!target)
		return builtin_fail(EINVAL, "target= is wanted for", args[0]);
	r = new_file_begin(&f, args[0]);
	if (!r)
		r = temporary_name(&f);
	if (!r && symlinkat(target, f.dir, f.name) < 0)
		r = errno;
	else if (!r && (r = new_file_place(&f)))
		new_file_drop(&f);
	return r ? builtin_fail(r, "cannot make", args[0]) : 0;
}

/* To another file system: only a regular file, copied whole before the old name goes. */
static int move_across(const char *from, const char *to)
{
	struct new_file f;
	struct stat st;
	uint64_t copied;
	int r, fd = open(from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return EXDEV;
	r = new_file_begin(&f, to);
	if (!r)
		r = temporary_open(&f);
	if (r)
		return r;
	r = copy(fd, f.fd, UINT64_MAX, &copied);
	if (!r && fchown(f.fd, st.st_uid, st.st_gid) < 0 &&
	    (st.st_uid != geteuid() || st.st_gid != getegid()))
		st.st_mode &= 0777; /* never anybody else's set-uid program */
	if (!r && (fchmod(f.fd, st.st_mode & 07777) < 0 ||
		   futimens(f.fd, (struct timespec[2]){st.st_atim, st.st_mtim}) < 0))
		r = errno;
	if (!r)
		r = new_file_place(&f);
	if (r)
		new_file_drop(&f);
	else if (unlink(from) < 0)
		r = errno;
	return r;
}

int builtin_mv(char *const *args, char *const *options)
{
	int r;

	(void)options;
	if (rename(args[0], args[1]) == 0)
		return 0;
	r = errno;
	if (r == EXDEV)
		r = move_across(args[0], args[1]);
	return r ? builtin_fail(r, "cannot move", args[0]) : 0;
}
