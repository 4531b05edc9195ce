/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot file on its way to its name; see save.h. */
#include "pool/save.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/frame.h"
#include "snapshot/mark.h"

#define MODE		0600	/* it holds all of a guest's memory */
#define NAME_ROOM	32u	/* what a temporary name may have more */

int save_begin(struct save *save, const char *path, bool sync, struct err *err)
{
	struct stat st;
	int r;

	*save = (struct save){ .path = path, .sync = sync, .file = NEWFILE_INIT };
	if (strlen(path) + NAME_ROOM > PATH_MAX)
		return err_set(err, ENAMETOOLONG, "the name of the snapshot is too long");
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "cannot make the snapshot %s: not a regular file",
			       path);
	r = newfile_begin(&save->file, AT_FDCWD, path);
	return r < 0 ? err_set_errno(err, r, "cannot make the snapshot %s", path) : 0;
}

int save_request(const struct save *save, int channel, bool incremental, struct err *err)
{
	struct cm_frame head = frame_head(CM_F_VM_SAVE,
					  incremental ? CM_SAVE_INCREMENTAL : 0, 0, 0);
	ssize_t n = fd_send(channel, &head, sizeof(head), &save->file.fd, 1);

	/* 16 bytes into a socket that was empty: whole or not at all. */
	if (n != (ssize_t)sizeof(head))
		return err_set_errno(err, (int)n, "cannot ask the VMM for a snapshot");
	return 0;
}

static int directory_sync(const char *path)
{
	char copy[PATH_MAX];
	FD_CLEANUP int fd = -1;

	strcpy(copy, path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int save_commit(struct save *save, const struct snapshot_id *id, struct err *err)
{
	int r;

	if (save->sync && fsync(save->file.fd) < 0)
		return err_set_errno(err, errno, "cannot sync the snapshot %s", save->path);
	/* A help, not a promise: without it the file is verified again when it is used. */
	snapshot_mark_verified(save->file.fd, id);
	r = newfile_commit(&save->file, save->path, MODE);
	if (r < 0)
		return err_set_errno(err, r, "cannot give the snapshot its name %s", save->path);
	r = save->sync ? directory_sync(save->path) : 0;
	if (r < 0)
		return err_set_errno(err, r, "the snapshot %s is there, but its folder cannot "
				     "be synced", save->path);
	return 0;
}

void save_abandon(struct save *save)
{
	newfile_abandon(&save->file);
}
