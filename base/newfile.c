/* SPDX-License-Identifier: Apache-2.0 */
/* Files that get their name when they are whole; see newfile.h. */
#include "base/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

/* A name in the same directory that nobody else has. */
static int temporary_name(struct newfile *file, const char *name)
{
	const char *slash = strrchr(name, '/');
	int head = slash ? (int)(slash - name) + 1 : 0, n;
	unsigned long long number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -errno;
	n = snprintf(file->temporary, sizeof(file->temporary), "%.*s.new-%016llx", head, name,
		     number);
	return n < (int)sizeof(file->temporary) ? 0 : -ENAMETOOLONG;
}

int newfile_begin(struct newfile *file, int dir, const char *name)
{
	const char *slash = strrchr(name, '/');
	char parent[PATH_MAX] = ".";
	int r;

	*file = (struct newfile){ .dir = dir, .fd = -1 };
	if (strlen(name) >= sizeof(parent))
		return -ENAMETOOLONG;
	if (slash)
		snprintf(parent, sizeof(parent), "%.*s", (int)(slash - name) + 1, name);
	file->fd = openat(dir, parent, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (file->fd >= 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
		return -errno;
	r = temporary_name(file, name);
	if (r < 0)
		return r;
	file->fd = openat(dir, file->temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	r = file->fd < 0 ? -errno : 0;
	if (r < 0)
		file->temporary[0] = '\0';
	return r;
}

int newfile_commit(struct newfile *file, const char *name, mode_t mode)
{
	char from[32];
	int r;

	if (fchmod(file->fd, mode) < 0)
		return -errno;
	if (!file->temporary[0]) {
		snprintf(from, sizeof(from), "/proc/self/fd/%d", file->fd);
		r = temporary_name(file, name);
		if (r == 0 && linkat(AT_FDCWD, from, file->dir, file->temporary,
				     AT_SYMLINK_FOLLOW) < 0)
			r = -errno;
		if (r < 0) {
			file->temporary[0] = '\0';
			return r;
		}
	}
	if (renameat(file->dir, file->temporary, file->dir, name) < 0)
		return -errno;
	file->temporary[0] = '\0';
	file->fd = fd_close(file->fd);
	return 0;
}

void newfile_abandon(struct newfile *file)
{
	if (file->temporary[0])
		unlinkat(file->dir, file->temporary, 0);
	file->temporary[0] = '\0';
	file->fd = fd_close(file->fd);
}
