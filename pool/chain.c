/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshots that a VM is restored from; see chain.h. */
#include "pool/chain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "snapshot/file.h"
#include "snapshot/mark.h"

/* Opens a snapshot whose content is right. Returns its descriptor or -errno. */
static int snapshot_file(const char *path, struct snapshot *ret, struct err *err)
{
	uint64_t size;
	FD_CLEANUP int fd = fd_open_file(path, &size);
	struct err why = ERR_INIT;
	int r;

	if (fd < 0)
		return err_set_errno(err, fd, "cannot open the snapshot %s", path);
	r = snapshot_open(ret, fd, &why);
	if (r == 0 && !snapshot_is_verified(fd, &ret->id)) {
		r = snapshot_verify(ret, &why);
		if (r == 0)
			snapshot_mark_verified(fd, &ret->id);
		else
			snapshot_close(ret);
	}
	if (r < 0)
		return err_set(err, -r, "snapshot %s: %s", path, why.text);
	return fd_take(&fd);
}

/* Looks through the directory of `path` for the snapshot with this id. */
static int parent_find(const char *path, const struct snapshot_id *id, char *ret_path,
		       struct err *err)
{
	char copy[PATH_MAX], name[PATH_MAX];
	const struct dirent *entry;
	const char *directory;
	bool found = false;
	DIR *dir;

	snprintf(copy, sizeof(copy), "%s", path);
	directory = dirname(copy);
	dir = opendir(directory);
	while (dir && !found && (entry = readdir(dir))) {
		struct err ignored = ERR_INIT;
		struct snapshot s;
		struct stat st;
		int fd;

		if (snprintf(name, sizeof(name), "%s/%s", directory, entry->d_name) >=
		    (int)sizeof(name) || stat(name, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		fd = open(name, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && snapshot_open(&s, fd, &ignored) == 0) {
			found = !memcmp(s.id.digest, id->digest, sizeof(id->digest));
			snapshot_close(&s);
		}
		fd_close(fd);
	}
	if (dir)
		closedir(dir);
	if (!found)
		return err_set(err, ENOENT, "the snapshot %s builds on another one "
			       "(%02x%02x%02x%02x...), which is not beside it", path,
			       id->digest[0], id->digest[1], id->digest[2], id->digest[3]);
	strcpy(ret_path, name);
	return 0;
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
	bool more = true;
	int r = 0;

	*chain = (struct chain){ .count = 0 };
	if (strlen(path) >= sizeof(at))
		return err_set(err, ENAMETOOLONG, "the name of the snapshot is too long");
	strcpy(at, path);
	while (more && r == 0) {
		struct snapshot s;
		int fd;

		if (chain->count == SNAPSHOT_CHAIN_MAX) {
			r = err_set(err, E2BIG, "the snapshot %s builds on more than %u others; "
				    "casemate snapshot compact makes one of them", path,
				    SNAPSHOT_CHAIN_MAX - 1);
			break;
		}
		fd = snapshot_file(at, &s, err);
		if (fd < 0) {
			r = fd;
			break;
		}
		chain->fds[chain->count++] = fd;
		if (chain->count == 1)
			machine_note(chain, &s.state.machine);
		more = s.incremental;
		if (more)
			r = parent_find(path, &s.parent, at, err);
		snapshot_close(&s);
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
