/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshots that a VM is restored from; see chain.h. */
#include "pool/chain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/time.h"
#include "snapshot/file.h"
#include "snapshot/mark.h"

/* ---- One file ---- */

static int identity_read(int fd, const struct snapshot_id *id, struct chain_identity *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (struct chain_identity){ .device = st.st_dev, .inode = st.st_ino,
					.size = (uint64_t)st.st_size, .modified = st.st_mtim,
					.changed = st.st_ctim, .id = *id };
	return 0;
}

static bool time_equal(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool content_equal(const struct chain_identity *a, const struct chain_identity *b)
{
	return a->device == b->device && a->inode == b->inode && a->size == b->size &&
	       time_equal(a->modified, b->modified) &&
	       !memcmp(a->id.digest, b->id.digest, sizeof(a->id.digest));
}

bool chain_identity_equal(const struct chain_identity *a, const struct chain_identity *b)
{
	return content_equal(a, b) && time_equal(a->changed, b->changed);
}

static int unchanged_check(int fd, const struct snapshot_id *id, const struct chain_identity *was,
			   struct chain_identity *ret_is, struct err *err)
{
	int r = identity_read(fd, id, ret_is);

	if (r < 0)
		return err_set_errno(err, r, "cannot look at the file");
	if (!content_equal(ret_is, was))
		return err_set(err, EAGAIN, "the file was changed while it was read; try again "
			       "when it is whole");
	return 0;
}

/* What is changed right after another change may bear the same time. */
static bool is_settled(const struct chain_identity *is)
{
	uint64_t now = time_ns(CLOCK_REALTIME);

	return is->changed.tv_sec >= 0 &&
	       (uint64_t)is->changed.tv_sec + 2 < now / NS_PER_SEC;
}

int chain_verify(int fd, const struct chain_file *file,
		 const struct snapshot_progress *progress, struct chain_identity *ret_is,
		 bool *ret_settled, struct err *err)
{
	bool settled = is_settled(&file->is);
	struct err why = ERR_INIT;
	struct chain_identity is;
	struct snapshot s = { .fd = -1 };
	int r = snapshot_open(&s, fd, &why);

	if (r == 0) {
		s.progress = progress;
		r = unchanged_check(fd, &s.id, &file->is, &is, &why);
	}
	if (r == 0)
		r = snapshot_verify(&s, &why);
	if (r == 0)
		r = unchanged_check(fd, &s.id, &file->is, &is, &why);
	if (r == 0) {
		*ret_settled = settled && chain_identity_equal(&is, &file->is);
		*ret_is = is;
		snapshot_mark_verified(fd, &s.id);
		/* What it looks like now that the mark has changed it. */
		if (identity_read(fd, &s.id, &is) == 0 && content_equal(&is, ret_is))
			*ret_is = is;
	}
	snapshot_close(&s);
	return r < 0 ? err_set(err, -r, "snapshot %s: %s", file->path, why.text) : 0;
}

/* All but the memory's content. */
static int file_check(int fd, struct chain_file *file, struct snapshot *ret, struct err *err)
{
	struct err why = ERR_INIT;
	int r = snapshot_open(ret, fd, &why);

	if (r == 0) {
		r = identity_read(fd, &ret->id, &file->is);
		if (r < 0) {
			err_set_errno(&why, r, "cannot look at the file");
			snapshot_close(ret);
		}
	}
	if (r == 0)
		file->verified = snapshot_is_verified(fd, &ret->id);
	return r < 0 ? err_set(err, -r, "snapshot %s: %s", file->path, why.text) : 0;
}

/* ---- A chain ---- */

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
		       const struct snapshot_progress *progress, struct err *err)
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
		if (progress && !progress->step(progress->arg, 0, 0)) {
			fd = err_set(err, ECANCELED, "it is not wanted any more");
			break;
		}
		fd = candidate_open(dirfd(dir), entry->d_name, id);
		/* Only for messages: it is open. */
		if (fd >= 0)
			snprintf(ret_path, PATH_MAX, "%.2000s/%s", directory, entry->d_name);
	}
	if (dir)
		closedir(dir);
	if (fd < 0 && fd != -ECANCELED)
		return err_set(err, ENOENT, "the snapshot %s builds on another one "
			       "(%02x%02x%02x%02x...), which is not beside it", path,
			       id->digest[0], id->digest[1], id->digest[2], id->digest[3]);
	return fd;
}

static void chain_reverse(struct chain *chain)
{
	for (unsigned int i = 0; i < chain->count / 2; i++) {
		unsigned int other = chain->count - 1 - i;
		struct chain_file file = chain->files[i];
		int fd = chain->fds[i];

		chain->fds[i] = chain->fds[other];
		chain->files[i] = chain->files[other];
		chain->fds[other] = fd;
		chain->files[other] = file;
	}
}

/* fd is taken. */
static int chain_add(struct chain *chain, int fd, const char *path, struct snapshot *ret,
		     struct err *err)
{
	struct chain_file *file = &chain->files[chain->count];

	chain->fds[chain->count++] = fd;
	file->path = strdup(path);
	if (!file->path)
		return err_set(err, ENOMEM, "no memory for a file's name");
	return file_check(fd, file, ret, err);
}

static void machine_note(struct chain *chain, const struct saved_machine *m)
{
	chain->image_size = m->image_size;
	chain->memory = m->memory_size;
	snprintf(chain->image, sizeof(chain->image), "%.*s", (int)m->image_path.size,
		 (const char *)m->image_path.data);
}

int chain_find(struct chain *chain, const char *path, const struct snapshot_progress *progress,
	       struct err *err)
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

		r = chain_add(chain, fd, at, &s, err);
		fd = -1;
		if (r < 0)
			break;
		if (chain->count == 1)
			machine_note(chain, &s.state.machine);
		if (s.incremental && chain->count == SNAPSHOT_CHAIN_MAX)
			r = err_set(err, E2BIG, "the snapshot %s builds on more than %u others; "
				    "casemate snapshot compact makes one of them", path,
				    SNAPSHOT_CHAIN_MAX - 1);
		else if (s.incremental)
			r = fd = parent_find(path, &s.parent, at, progress, err);
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

int chain_open(struct chain *chain, const char *path, struct err *err)
{
	struct chain_identity ignored;
	bool settled;
	int r = chain_find(chain, path, NULL, err);

	/* The one that was named first. */
	for (unsigned int i = chain->count; i > 0 && r == 0; i--) {
		if (!chain->files[i - 1].verified)
			r = chain_verify(chain->fds[i - 1], &chain->files[i - 1], NULL, &ignored,
					 &settled, err);
	}
	if (r < 0)
		chain_close(chain);
	return r;
}

void chain_close(struct chain *chain)
{
	while (chain->count > 0) {
		chain->count--;
		chain->fds[chain->count] = fd_close(chain->fds[chain->count]);
		free(chain->files[chain->count].path);
	}
}
