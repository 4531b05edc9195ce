/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshots that a VM is restored from; see chain.h. */
#include "pool/chain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "snapshot/file.h"
#include "snapshot/mark.h"

/* Whether a snapshot's content is right, as far as that was not seen before. */
static int snapshot_check(int fd, const char *path, struct snapshot *ret, struct err *err)
{
	struct err why = ERR_INIT;
	int r = snapshot_open(ret, fd, &why);

	if (r == 0 && !snapshot_is_verified(fd, &ret->id)) {
		r = snapshot_verify(ret, &why);
		if (r == 0)
			snapshot_mark_verified(fd, &ret->id);
		else
			snapshot_close(ret);
	}
	return r < 0 ? err_set(err, -r, "snapshot %s: %s", path, why.text) : 0;
}

/* The file of that name, if its first page is that of the snapshot; else -1. */
static int candidate_open(int directory, const char *name, const struct snapshot_id *id)
{
	/* What is no regular file must not keep us. */
	FD_CLEANUP int fd = openat(directory, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct err ignored = ERR_INIT;
	struct snapshot_id is;

	if (fd < 0 || snapshot_peek(fd, &is, &ignored) < 0 ||
	    memcmp(is.digest, id->digest, sizeof(id->digest)) != 0)
		return -1;
	return fd_take(&fd);
}

/* Looks through the directory of `path` for the snapshot with this id. Returns its descriptor
 * with *ret_path, or -errno. */
static int parent_find(const char *path, const struct snapshot_id *id, char *ret_path,
		       struct err *err)
{
	char copy[PATH_MAX];
	const struct dirent *entry;
	const char *directory;
	int fd = -1;
	DIR *dir;

	snprintf(copy, sizeof(copy), "%s", path);
	directory = dirname(copy);
	dir = opendir(directory);
	while (dir && fd < 0 && (entry = readdir(dir))) {
		fd = candidate_open(dirfd(dir), entry->d_name, id);
		/* Only for messages: it is open. */
		if (fd >= 0)
			snprintf(ret_path, PATH_MAX, "%.2000s/%s", directory, entry->d_name);
	}
	if (dir)
		closedir(dir);
	if (fd < 0)
		return err_set(err, ENOENT, "the snapshot %s builds on another one "
			       "(%02x%02x%02x%02x...), which is not beside it", path,
			       id->digest[0], id->digest[1], id->digest[2], id->digest[3]);
	return fd;
}

static void chain_reverse(struct chain *chain)
{
	for (unsigned int i = 0; i < chain->count / 2; i++) {
		int fd = chain->fds[i];

		chain->fds[i] = chain->fds[chain->count - 1 - i];
		chain->fds[chain->count - 1 - i] = fd;
	}
}

static void machine_note(struct chain *chain, const struct saved_machine *m)
{
	chain->image_size = m->image_size;
	chain->memory = m->memory_size;
	snprintf(chain->image, sizeof(chain->image), "%.*s", (int)m->image_path.size,
		 (const char *)m->image_path.data);
}

int chain_open(struct chain *chain, const char *path, struct err *err)
{
	char at[PATH_MAX];
	uint64_t size;
	int fd, r = 0;

	*chain = (struct chain){ .count = 0 };
	if (strlen(path) >= sizeof(at))
		return err_set(err, ENAMETOOLONG, "the name of the snapshot is too long");
	strcpy(at, path);
	fd = fd_open_file(path, &size);
	if (fd < 0)
		return err_set_errno(err, fd, "cannot open the snapshot %s", path);
	while (fd >= 0 && r == 0) {
		struct snapshot s;

		chain->fds[chain->count++] = fd;
		fd = -1;
		r = snapshot_check(chain->fds[chain->count - 1], at, &s, err);
		if (r < 0)
			break;
		if (chain->count == 1)
			machine_note(chain, &s.state.machine);
		if (s.incremental && chain->count == SNAPSHOT_CHAIN_MAX)
			r = err_set(err, E2BIG, "the snapshot %s builds on more than %u others; "
				    "casemate snapshot compact makes one of them", path,
				    SNAPSHOT_CHAIN_MAX - 1);
		else if (s.incremental)
			r = fd = parent_find(path, &s.parent, at, err);
		snapshot_close(&s);
		if (r > 0)
			r = 0;
	}
	if (r < 0)
		chain_close(chain);
	else
		chain_reverse(chain);
	return r;
}

void chain_close(struct chain *chain)
{
	while (chain->count > 0)
		fd_close(chain->fds[--chain->count]);
}
