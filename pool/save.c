/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a VM to a file; see save.h. */
#include "pool/save.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/frame.h"
#include "snapshot/mark.h"

#define MODE	0600	/* it holds all of a guest's memory */

static int temporary_make(struct save *save)
{
	int n = snprintf(save->temporary, sizeof(save->temporary), "%s.XXXXXX", save->path);

	return n >= (int)sizeof(save->temporary) ? -ENAMETOOLONG : 0;
}

int save_begin(struct save *save, const char *path, bool sync, struct err *err)
{
	char directory[PATH_MAX];
	int r;

	*save = (struct save){ .path = path, .sync = sync, .fd = -1 };
	if (strlen(path) >= sizeof(directory))
		return err_set(err, ENAMETOOLONG, "the name of the snapshot is too long");
	strcpy(directory, path);
	save->fd = open(dirname(directory), O_TMPFILE | O_RDWR | O_CLOEXEC, MODE);
	if (save->fd >= 0)
		return 0;
	r = temporary_make(save);
	if (r == 0) {
		save->fd = mkostemp(save->temporary, O_CLOEXEC);
		r = save->fd < 0 ? -errno : 0;
	}
	if (r < 0) {
		save->temporary[0] = '\0';
		return err_set_errno(err, r, "cannot make the snapshot %s", path);
	}
	return 0;
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
	int r = temporary_make(save);

	snprintf(from, sizeof(from), "/proc/self/fd/%d", save->fd);
	for (int i = 0; r == 0 && i < 100; i++) {
		int fd;

		temporary_make(save);
		/* Finds a free name; the file that comes with it makes room for ours. */
		fd = mkostemp(save->temporary, O_CLOEXEC);
		if (fd < 0)
			return -errno;
		close(fd);
		unlink(save->temporary);
		if (linkat(AT_FDCWD, from, AT_FDCWD, save->temporary, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		r = errno == EEXIST ? 0 : -errno;
	}
	save->temporary[0] = '\0';
	return r < 0 ? r : -EEXIST;
}

int save_finish(struct save *save, const struct cm_vm_saved *saved, const char *text,
		size_t len, struct err *err)
{
	struct snapshot_id id;
	int r = 0;

	if (saved->error)
		return err_set(err, (int)saved->error, "the snapshot was not saved: %.*s",
			       (int)len, text);
	memcpy(id.digest, saved->id, sizeof(id.digest));
	if (save->sync && fsync(save->fd) < 0)
		return err_set_errno(err, errno, "cannot sync the snapshot %s", save->path);
	/* A help, not a promise: without it the file is verified again when it is used. */
	snapshot_mark_verified(save->fd, &id);
	if (!save->temporary[0])
		r = name_give(save);
	if (r == 0 && rename(save->temporary, save->path) < 0)
		r = -errno;
	if (r < 0)
		return err_set_errno(err, r, "cannot give the snapshot its name %s", save->path);
	save->temporary[0] = '\0';
	save->fd = fd_close(save->fd);
	return 0;
}

void save_abandon(struct save *save)
{
	if (save->temporary[0])
		unlink(save->temporary);
	save->temporary[0] = '\0';
	save->fd = fd_close(save->fd);
}
