/* SPDX-License-Identifier: Apache-2.0 */
/*
 * casemate cp: files between the host and a VM.
 *
 * Both ways a file appears whole or not at all, with its permissions. What comes from a guest
 * is hostile: names of a listing must lie below the directory that was asked for, directories
 * on the host are entered without following links, links are made last, and no file becomes
 * set-uid. One that fails is told of, and the rest is copied.
 */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <libgen.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/newfile.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/files.h"

struct copy {
	struct casemate *c;
	const struct words *w;
	struct place place;	/* in the VM */
	int worst;
};

struct entry {			/* of a guest's listing */
	char *name, *target;
	char type;		/* see type_letter() */
	mode_t mode;
	bool made;		/* a directory that was not there */
};

static int failed(struct copy *k, int status)
{
	k->worst = status > k->worst ? status : k->worst;
	return status;
}

static int host_failed(struct copy *k, const char *what, const char *name, int error)
{
	return failed(k, casemate_fail("%s %s: %s", what, name, strerror(error)));
}

/* What a call to the VM came to: 0, or a status after saying why. */
static int guest_result(struct copy *k, int r)
{
	return r ? failed(k, files_fail(k->c, &k->place)) : 0;
}

/* Whether there is no use in going on: the connection is lost. */
static bool is_over(const struct copy *k)
{
	return k->worst == EXIT_CASEMATE && !casemate_code(k->c)[0] &&
	       casemate_message(k->c)[0];
}

/* f: file, d: directory, l: link; else '?'. */
static char type_letter(const char *type)
{
	return !type ? '?' : !strcmp(type, "file") ? 'f' : !strcmp(type, "dir") ? 'd' :
	       !strcmp(type, "link") ? 'l' : '?';
}

static int path_join(struct copy *k, char *ret, const char *dir, const char *name)
{
	size_t n = strlen(dir);

	if (snprintf(ret, PATH_MAX, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name) >=
	    PATH_MAX)
		return host_failed(k, "cannot copy", name, ENAMETOOLONG);
	return 0;
}

/* The last part of a path, "" where it has none that could be a name. */
static const char *base_of(char *copy, const char *path)
{
	const char *base;

	snprintf(copy, PATH_MAX, "%s", path);
	base = basename(copy);
	return !strcmp(base, "/") || !strcmp(base, ".") || !strcmp(base, "..") ? "" : base;
}

/* ---- To the VM ---- */

static int file_put(struct copy *k, int fd, const struct stat *st, const char *to)
{
	const char *words[16] = { NULL };
	char mode[24], size[40];
	size_t n = 0;

	for (unsigned int i = 0; i < k->w->count && n < 12; i++)
		words[n++] = k->w->words[i];
	snprintf(mode, sizeof(mode), "mode=%o", S_ISREG(st->st_mode) ? st->st_mode & 07777 :
		 0644);
	words[n++] = mode;
	/* A file that changes under our hands is not copied. */
	if (S_ISREG(st->st_mode)) {
		snprintf(size, sizeof(size), "size=%lld", (long long)st->st_size);
		words[n++] = size;
	}
	return guest_result(k, casemate_put(k->c, k->place.vm, to, words, fd));
}

static int path_put(struct copy *k, const char *from, int flags, const char *to)
{
	FD_CLEANUP int fd = open(from, O_RDONLY | O_CLOEXEC | flags);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return host_failed(k, "cannot read", from, errno);
	return file_put(k, fd, &st, to);
}

static void link_put(struct copy *k, const char *from, const char *to)
{
	char target[PATH_MAX], word[PATH_MAX + 8];
	ssize_t n = readlink(from, target, sizeof(target) - 1);

	if (n < 0) {
		host_failed(k, "cannot read", from, errno);
		return;
	}
	target[n] = '\0';
	snprintf(word, sizeof(word), "target=%s", target);
	guest_result(k, files_call(k->c, k->w, "symlink", k->place.vm, to, word, NULL));
}

static void tree_entry_put(struct copy *k, FTS *tree, FTSENT *e, const char *to)
{
	char mode[24];

	/* Writable while it is filled. */
	snprintf(mode, sizeof(mode), "mode=%o", e->fts_statp ?
		 (e->fts_statp->st_mode & 07777) | (e->fts_info == FTS_D ? 0700 : 0) : 0);
	switch (e->fts_info) {
	case FTS_D:
		if (guest_result(k, files_call(k->c, k->w, "mkdir", k->place.vm, to, mode,
					       "parents=yes", NULL)))
			fts_set(tree, e, FTS_SKIP);
		break;
	case FTS_DP:
		if ((e->fts_statp->st_mode & 0700) != 0700)
			guest_result(k, files_call(k->c, k->w, "chmod", k->place.vm, to, mode,
						   NULL));
		break;
	case FTS_F:
		path_put(k, e->fts_accpath, O_NOFOLLOW, to);
		break;
	case FTS_SL:
	case FTS_SLNONE:
		link_put(k, e->fts_accpath, to);
		break;
	case FTS_DEFAULT:
		failed(k, casemate_fail("%s is left out: neither file, directory nor link",
					e->fts_path));
		break;
	default:
		host_failed(k, "cannot read", e->fts_path, e->fts_errno);
		break;
	}
}

static void tree_put(struct copy *k, char *from, const char *to)
{
	size_t skip = strlen(from);
	FTS *tree = fts_open((char *const[]){ from, NULL }, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	char path[PATH_MAX];
	FTSENT *e;

	if (!tree) {
		host_failed(k, "cannot read", from, errno);
		return;
	}
	while (!is_over(k) && (errno = 0, e = fts_read(tree))) {
		const char *below = e->fts_path + skip;

		while (*below == '/')
			below++;
		if (!*below)
			tree_entry_put(k, tree, e, to);
		else if (path_join(k, path, to, below) == 0)
			tree_entry_put(k, tree, e, path);
	}
	if (!is_over(k) && errno)
		host_failed(k, "cannot read", from, errno);
	fts_close(tree);
}

/* What is at the place: a type_letter(), 0 where nothing is, -1 after saying why. */
static int guest_type(struct copy *k, const char *path)
{
	int r = files_call(k->c, k->w, "stat", k->place.vm, path, NULL);

	if (r && casemate_error(k->c) == ENOENT)
		return 0;
	if (guest_result(k, r))
		return -1;
	return type_letter(casemate_item_value(k->c, 0, "type"));
}

static void to_guest(struct copy *k, char *from, bool recursive)
{
	char path[PATH_MAX], copy[PATH_MAX];
	const char *to = k->place.path, *base = base_of(copy, from);
	bool is_stdin = !strcmp(from, "-");
	struct stat st = { .st_mode = 0 };
	int type;

	if (!is_stdin && stat(from, &st) < 0) {
		host_failed(k, "cannot read", from, errno);
		return;
	}
	if (S_ISDIR(st.st_mode) && !recursive) {
		failed(k, casemate_fail("%s is a directory: -r copies it", from));
		return;
	}
	type = guest_type(k, to);
	if (type < 0)
		return;
	if (type == 'd' && base[0] && !is_stdin) {
		if (path_join(k, path, to, base))
			return;
		to = path;
	}
	if (is_stdin)
		file_put(k, 0, &st, to);
	else if (S_ISDIR(st.st_mode))
		tree_put(k, from, to);
	else
		path_put(k, from, 0, to);
}

/* ---- From the VM ---- */

/* dir: where `name` lies. */
static int file_get(struct copy *k, const char *from, int dir, const char *name, mode_t mode)
{
	struct newfile file = NEWFILE_INIT;
	int r = newfile_begin(&file, dir, name), status;

	if (r < 0)
		return host_failed(k, "cannot make", name, -r);
	status = guest_result(k, casemate_get(k->c, k->place.vm, from, k->w->words, file.fd));
	if (status == 0) {
		r = newfile_commit(&file, name, mode & 0777);
		if (r < 0)
			status = host_failed(k, "cannot make", name, -r);
	}
	newfile_abandon(&file);
	return status;
}

/* Only names that lie below. */
static bool name_is_good(const char *name)
{
	for (;;) {
		size_t n = strcspn(name, "/");

		if (n == 0 || (n == 1 && name[0] == '.') || (n == 2 && !strncmp(name, "..", 2)))
			return false;
		if (!name[n])
			return true;
		name += n + 1;
	}
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void entries_free(struct entry *entries, size_t count)
{
	for (size_t i = 0; entries && i < count; i++) {
		free(entries[i].name);
		free(entries[i].target);
	}
	free(entries);
}

/* Copies the listing out of the answer, sorted: directories before what is in them. NULL after
 * saying why. */
static struct entry *entries_take(struct copy *k, size_t *ret_count)
{
	size_t count = casemate_items(k->c);
	struct entry *entries = calloc(count + 1, sizeof(*entries));

	for (size_t i = 0; entries && i < count; i++) {
		const char *name = casemate_item_value(k->c, i, "name");
		const char *type = casemate_item_value(k->c, i, "type");
		const char *mode = casemate_item_value(k->c, i, "mode");
		const char *target = casemate_item_value(k->c, i, "target");

		if (!name || !type || !mode || !name_is_good(name)) {
			failed(k, casemate_fail("%s lists names that cannot be: nothing is "
						"copied", k->place.vm));
			entries_free(entries, i);
			return NULL;
		}
		entries[i] = (struct entry){ strdup(name), target ? strdup(target) : NULL,
					     type_letter(type),
					     (mode_t)strtoul(mode, NULL, 8) & 0777,
					     false };
		if (!entries[i].name || (target && !entries[i].target)) {
			entries_free(entries, i + 1);
			entries = NULL;
		}
	}
	if (!entries) {
		host_failed(k, "cannot list", k->place.path, ENOMEM);
		return NULL;
	}
	qsort(entries, count, sizeof(*entries), by_name);
	*ret_count = count;
	return entries;
}

/* Opens a directory below root, by a way without links. "": root itself. */
static int below_open(int root, const char *name, int flags)
{
	struct open_how how = { .flags = (uint64_t)(O_DIRECTORY | O_CLOEXEC | flags),
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };

	return (int)syscall(SYS_openat2, root, name[0] ? name : ".", &how, sizeof(how));
}

static int parent_open(int root, const char *name, const char **ret_base)
{
	const char *slash = strrchr(name, '/');
	char parent[PATH_MAX] = "";

	if (strlen(name) >= sizeof(parent)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (slash)
		memcpy(parent, name, (size_t)(slash - name));
	*ret_base = slash ? slash + 1 : name;
	return below_open(root, parent, O_PATH);
}

static void link_make(struct copy *k, int dir, const char *base, const struct entry *e)
{
	struct stat st;

	/* A link in the place of an older one: it is not worth a temporary name. */
	if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
		unlinkat(dir, base, 0);
	if (symlinkat(e->target ? e->target : "", dir, base) < 0)
		host_failed(k, "cannot make the link", e->name, errno);
}

static void entry_get(struct copy *k, int root, struct entry *e)
{
	char from[PATH_MAX];
	const char *base;
	FD_CLEANUP int dir = parent_open(root, e->name, &base);

	if (dir < 0) {
		host_failed(k, "cannot make", e->name, errno);
	} else if (e->type == 'd') {
		e->made = mkdirat(dir, base, 0700) == 0;
		if (!e->made && errno != EEXIST)
			host_failed(k, "cannot make", e->name, errno);
	} else if (e->type == 'f') {
		if (path_join(k, from, k->place.path, e->name) == 0)
			file_get(k, from, dir, base, e->mode);
	} else if (e->type == 'l') {
		link_make(k, dir, base, e);
	} else {
		failed(k, casemate_fail("%s is left out: neither file, directory nor link",
					e->name));
	}
}

static void entries_get(struct copy *k, int root, struct entry *entries, size_t count)
{
	for (int links = 0; links < 2; links++) {
		for (size_t i = 0; i < count && !is_over(k); i++) {
			if ((entries[i].type == 'l') == links)
				entry_get(k, root, &entries[i]);
		}
	}
	/* From the deepest: a directory that may not be written to is full by now. */
	for (size_t i = count; i-- > 0;) {
		FD_CLEANUP int fd = -1;

		if (!entries[i].made)
			continue;
		fd = below_open(root, entries[i].name, O_RDONLY);
		if (fd < 0 || fchmod(fd, entries[i].mode) < 0)
			host_failed(k, "cannot set the mode of", entries[i].name, errno);
	}
}

static void tree_get(struct copy *k, const char *to, mode_t mode)
{
	struct entry *entries;
	size_t count;
	FD_CLEANUP int root = -1;
	bool made;

	if (guest_result(k, files_call(k->c, k->w, "ls", k->place.vm, k->place.path,
				       "recursive=yes", NULL)))
		return;
	entries = entries_take(k, &count);
	if (!entries)
		return;
	made = mkdir(to, 0700) == 0;
	root = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		host_failed(k, "cannot make", to, errno);
	else
		entries_get(k, root, entries, count);
	if (made && root >= 0 && fchmod(root, mode & 0777) < 0)
		host_failed(k, "cannot set the mode of", to, errno);
	entries_free(entries, count);
}

/* To what is no file to be replaced: a terminal, a pipe, /dev/null. */
static void stream_get(struct copy *k, const char *to)
{
	FD_CLEANUP int fd = !strcmp(to, "-") ? fcntl(1, F_DUPFD_CLOEXEC, 3) :
						open(to, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		host_failed(k, "cannot write to", to, errno);
	else
		guest_result(k, casemate_get(k->c, k->place.vm, k->place.path, k->w->words,
					     fd));
}

static void from_guest(struct copy *k, const char *to, bool recursive)
{
	char path[PATH_MAX], copy[PATH_MAX], real[PATH_MAX];
	const char *base = base_of(copy, k->place.path), *text;
	struct stat st = { .st_mode = 0 };
	int type = guest_type(k, k->place.path);
	mode_t mode;

	if (type < 0)
		return;
	if (type == 0) {
		failed(k, files_fail(k->c, &k->place));
		return;
	}
	text = casemate_item_value(k->c, 0, "mode");
	mode = text ? (mode_t)strtoul(text, NULL, 8) : 0644;
	if (type == 'd' && !recursive) {
		failed(k, casemate_fail("%s is a directory: -r copies it", k->place.path));
		return;
	}
	if (strcmp(to, "-") && stat(to, &st) == 0 && S_ISDIR(st.st_mode) && base[0]) {
		if (path_join(k, path, to, base))
			return;
		to = path;
		if (stat(to, &st) < 0)
			st.st_mode = 0;
	}
	if (type == 'd')
		tree_get(k, to, mode);
	else if (!strcmp(to, "-") || (st.st_mode && !S_ISREG(st.st_mode) &&
				      !S_ISDIR(st.st_mode)))
		stream_get(k, to);
	else
		/* A link's file is replaced, not the link. */
		file_get(k, k->place.path, AT_FDCWD, realpath(to, real) ? real : to, mode);
}

int cmd_cp(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "-r", "", 'y', NULL, "directories with what is in them" },
		OPTION_USER, OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct copy k = { .w = &w };
	bool recursive, to_vm;
	int status;

	if (!words_begin(&w, rules, argc, argv, 2, 2, false, "cp [options] FILE VM:PATH | cp "
			 "[options] VM:PATH FILE", &k.c, &status))
		return status;
	recursive = words_own(&w, "-r") != NULL;
	to_vm = place_is(w.rest[1]);
	if (to_vm == place_is(w.rest[0]))
		status = casemate_fail("one of the two is a file in a VM, VM:PATH, and one of "
				       "the host (./NAME, if it has a colon)");
	else
		status = place_read(w.rest[to_vm], &k.place);
	if (status == 0 && to_vm)
		to_guest(&k, w.rest[0], recursive);
	else if (status == 0)
		from_guest(&k, w.rest[1], recursive);
	return session_close(k.c, status ? status : k.worst);
}
