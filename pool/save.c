/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot file on its way to its name; see save.h. */
#include "pool/save.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/frame.h"
#include "snapshot/mark.h"

#define MODE		0600	/* it holds all of a guest's memory */
#define NAME_TRIES	100

/* The directory that the file is to lie in. `copy` has PATH_MAX bytes and is written to. */
static const char *directory_of(const char *path, char *copy)
{
	strcpy(copy, path);
	return dirname(copy);
}

int save_begin(struct save *save, const char *path, bool sync, struct err *err)
{
	char copy[PATH_MAX];
	struct stat st;
	int r;

	*save = (struct save){ .path = path, .sync = sync, .fd = -1 };
	if (strlen(path) + sizeof(".XXXXXXXX") > sizeof(copy))
		return err_set(err, ENAMETOOLONG, "the name of the snapshot is too long");
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "cannot make the snapshot %s: not a regular file",
			       path);
	save->fd = open(directory_of(path, copy), O_TMPFILE | O_RDWR | O_CLOEXEC, MODE);
	if (save->fd >= 0)
		return 0;
	/* The filesystem has no files without a name. */
	sprintf(save->temporary, "%s.XXXXXX", path);
	save->fd = mkostemp(save->temporary, O_CLOEXEC);
	if (save->fd >= 0)
		return 0;
	r = -errno;
	save->temporary[0] = '\0';
	return err_set_errno(err, r, "cannot make the snapshot %s", path);
}

int save_request(const struct save *save, int channel, bool incremental, struct err *err)
{
	struct cm_frame head = frame_head(CM_F_VM_SAVE,
					  incremental ? CM_SAVE_INCREMENTAL : 0, 0, 0);
	ssize_t n = fd_send(channel, &head, sizeof(head), &save->fd, 1);

	/* 16 bytes into a socket that was empty: whole or not at all. */
	if (n != (ssize_t)sizeof(head))
		return err_set_errno(err, (int)n, "cannot ask the VMM for a snapshot");
	return 0;
}

/* Gives a file without a name the temporary one, from which it can replace an old file. */
static int name_give(struct save *save)
{
	char from[64];

	snprintf(from, sizeof(from), "/proc/self/fd/%d", save->fd);
	for (int i = 0; i < NAME_TRIES; i++) {
		unsigned int number;

		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			return -errno;
		sprintf(save->temporary, "%s.%08x", save->path, number);
		if (linkat(AT_FDCWD, from, AT_FDCWD, save->temporary, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		save->temporary[0] = '\0';
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

static int directory_sync(const char *path)
{
	char copy[PATH_MAX];
	FD_CLEANUP int fd = open(directory_of(path, copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int save_commit(struct save *save, const struct snapshot_id *id, struct err *err)
{
	int r = 0;

	if (save->sync && fsync(save->fd) < 0)
		return err_set_errno(err, errno, "cannot sync the snapshot %s", save->path);
	/* A help, not a promise: without it the file is verified again when it is used. */
	snapshot_mark_verified(save->fd, id);
	if (!save->temporary[0])
		r = name_give(save);
	if (r == 0 && rename(save->temporary, save->path) < 0)
		r = -errno;
	if (r < 0)
		return err_set_errno(err, r, "cannot give the snapshot its name %s", save->path);
	save->temporary[0] = '\0';
	save->fd = fd_close(save->fd);
	r = save->sync ? directory_sync(save->path) : 0;
	if (r < 0)
		return err_set_errno(err, r, "the snapshot %s is there, but its folder cannot "
				     "be synced", save->path);
	return 0;
}

void save_abandon(struct save *save)
{
	if (save->temporary[0])
		unlink(save->temporary);
	save->temporary[0] = '\0';
	save->fd = fd_close(save->fd);
}
