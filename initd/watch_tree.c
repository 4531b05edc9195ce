/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching a whole tree: one inotify instance, a watch for each directory. What is said is what
 * keeps a reader's picture of the tree right, whatever the task does meanwhile.
 *
 * What is on the disk is ahead of the events that are still to be read, so a name may lead
 * somewhere else by the time it is looked at. Three rules make up for it:
 *
 * - A directory is known by its watch descriptor, which stands for the inode. Where it is, the
 *   model of watch_dirs.h says: it has a place only after an event, or a look into the one
 *   above, has told of it, and loses it by any line that tells a reader that it has gone.
 * - One that gets a place is watched first and looked through then, and all that is in it is
 *   said as created. What comes in later is an event. So things may be said twice, never not.
 *   Only one whose move both ways has been seen keeps what is below it.
 * - Letting go of a directory is always safe: where it appears there is an event to come, and
 *   there it is looked through anew.
 *
 * A directory that cannot be reached under its path has been moved, or one above it has: the
 * event is to come, and until then it waits in `late`. Paths are walked one name at a time, no
 * link is followed, and the inode reached must be the one that is meant. No descriptor is kept
 * open, nor a working directory: that would hold removed directories and mounts.
 *
 * When the kernel's queue ran over, all begins anew: a new instance, a look at all that is
 * there, and then the line that says so. Other file systems are not entered.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "initd/builtin.h"
#include "initd/watch.h"
#include "initd/watch_dirs.h"
#include "initd/words.h"

#define DIRS_MAX 32768u /* half of the watches that the guest's kernel has for all */
#define OPEN_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

static struct tree {
	const char *path;
	struct words *words;
	int in;
	dev_t device;
	struct watch_dir *root;
	struct dir_queue work, late; /* to be looked through; when something has moved */
	struct watch_dir *moving;    /* has left its place, by the last event */
	uint32_t cookie;             /* of its move */
	bool quiet;                  /* what is found is not said */
	bool again;                  /* begin anew */
	bool gone;                   /* the path leads to it no more */
} tree;

/* ---- What is said ---- */

static void say(uint32_t mask, const struct watch_dir *dir, const char *name, uint32_t cookie)
{
	char path[PATH_MAX];

	/* Something was moved to where its names are too long. */
	if (dirs_path(dir, name, path))
		watch_say(tree.words, mask, path, cookie);
	else
		tree.again = true;
}

static void say_unwatched(const struct watch_dir *dir, const char *name, int error)
{
	char path[PATH_MAX];

	if (!dirs_path(dir, name, path)) {
		tree.again = true;
		return;
	}
	words_add(tree.words, "unwatched");
	words_pair(tree.words, "name", path);
	words_pair_format(tree.words, "errno", "%d", error);
	words_end(tree.words);
}

/* ---- Reaching directories ---- */

static bool is_absence(int error)
{
	return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ESTALE;
}

/* The descriptor or -errno. Takes fd. */
static int fd_check(int fd, const struct watch_dir *dir)
{
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : fd;

	if (r >= 0 && (st.st_dev != tree.device || st.st_ino != dir->ino))
		r = -ESTALE;
	if (r < 0)
		close(fd);
	return r;
}

static int root_open(void)
{
	int fd = open(tree.path, OPEN_FLAGS);

	fd = fd < 0 ? -errno : fd_check(fd, tree.root);
	if (fd < 0 && is_absence(-fd))
		tree.gone = true;
	return fd;
}

/* The directory at its place. The descriptor or -errno. */
static int dir_open(const struct watch_dir *dir)
{
	char path[PATH_MAX], *name = path, *next;
	int fd = root_open(), inner;

	if (fd < 0 || dir == tree.root)
		return fd;
	if (!dirs_path(dir, "", path)) {
		tree.again = true;
		close(fd);
		return -ESTALE;
	}
	for (; name; name = next) {
		next = strchr(name, '/');
		if (next)
			*next++ = 0;
		inner = openat(fd, name, (next ? O_PATH : O_RDONLY) | O_DIRECTORY | O_NOFOLLOW |
				       O_CLOEXEC);
		inner = inner < 0 ? -errno : inner;
		close(fd);
		fd = inner;
		if (fd < 0)
			return fd;
	}
	return fd_check(fd, dir);
}

/* Lets go of it and all below. */
static void dir_drop(struct watch_dir *top)
{
	struct watch_dir *dir = top, *above;

	dirs_detach(top);
	while (dir) {
		while (dir->children)
			dir = dir->children;
		above = dir == top ? NULL : dir->parent;
		dirs_detach(dir);
		inotify_rm_watch(tree.in, dir->wd);
		dirs_remove(dir);
		dir = above;
	}
}

static void moving_drop(void)
{
	if (tree.moving)
		dir_drop(tree.moving);
	tree.moving = NULL;
}

/* Watches an open directory; it may be known. NULL with an errno. */
static struct watch_dir *dir_watch(int fd, int *ret_error)
{
	struct watch_dir *dir = NULL;
	struct stat st;
	int wd;

	*ret_error = 0;
	if (fstat(fd, &st) < 0 || fchdir(fd) < 0) {
		*ret_error = errno;
		return NULL;
	}
	if (st.st_dev != tree.device) {
		*ret_error = EXDEV;
	} else {
		wd = inotify_add_watch(tree.in, ".",
				       WATCH_MASK | IN_ONLYDIR | IN_EXCL_UNLINK);
		*ret_error = wd < 0 ? errno : 0;
		dir = wd < 0 ? NULL : dirs_find_wd(wd);
		if (wd >= 0 && !dir) {
			dir = dirs_count() < DIRS_MAX ? dirs_add(wd, st.st_ino) : NULL;
			*ret_error = dir ? 0 : dirs_count() < DIRS_MAX ? ENOMEM : ENOSPC;
			if (!dir)
				inotify_rm_watch(tree.in, wd);
		}
	}
	(void)!chdir("/");
	return dir;
}

static struct watch_dir *name_watch(int at, const char *name, int *ret_error)
{
	int fd = openat(at, name, OPEN_FLAGS | O_NOFOLLOW);
	struct watch_dir *dir;

	if (fd < 0) {
		*ret_error = errno;
		return NULL;
	}
	dir = dir_watch(fd, ret_error);
	close(fd);
	return dir;
}

/* ---- Directories that appear ---- */

static bool name_fits(const struct watch_dir *dir, const char *name)
{
	char path[PATH_MAX];

	/* And what may be in it. */
	return dirs_path(dir, name, path) && strlen(path) + 1 + NAME_MAX < PATH_MAX;
}

/* A new one gets its place, and is looked through later. 0 or an errno. */
static int dir_place(struct watch_dir *found, struct watch_dir *dir, const char *name)
{
	int r = name_fits(dir, name) ? dirs_attach(found, dir, name) : ENAMETOOLONG;

	if (r)
		dir_drop(found);
	else
		dirs_enqueue(found, &tree.work);
	return r;
}

/* There is a directory `name` in `dir`, which is open: one that has no place there yet. */
static void dir_appears(struct watch_dir *dir, int at, const char *name)
{
	struct watch_dir *found;
	int error;

	/* One that has another place is here by now; the event from there is to come. Each look
	 * may find another. */
	while ((found = name_watch(at, name, &error)) && found->parent &&
	       !dirs_is_below(dir, found)) {
		say(IN_DELETE | IN_ISDIR, found, "", 0);
		dir_drop(found);
	}
	if (found && dirs_is_below(dir, found)) {
		/* This one was in it, and is not: that is an event to come, too. */
		dirs_enqueue(dir, &tree.late);
		return;
	}
	if (found)
		error = dir_place(found, dir, name);
	if (error && !is_absence(error))
		say_unwatched(dir, name, error);
}

/* The same, where it is not open yet. */
static void name_appears(struct watch_dir *dir, const char *name)
{
	int at = dir_open(dir);

	if (at >= 0) {
		dir_appears(dir, at, name);
		close(at);
	} else if (is_absence(-at)) {
		dirs_enqueue(dir, &tree.late);
	} else {
		say_unwatched(dir, name, -at);
	}
}

static bool is_directory(int at, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type == DT_DIR;
	return fstatat(at, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISDIR(st.st_mode);
}

static bool is_over(void)
{
	return tree.gone || tree.again || tree.words->error;
}

static void entry_found(struct watch_dir *dir, int at, const struct dirent *entry)
{
	bool inner = is_directory(at, entry);

	if (!tree.quiet)
		say(IN_CREATE | (inner ? IN_ISDIR : 0), dir, entry->d_name, 0);
	if (inner && !dirs_find(dir, entry->d_name))
		dir_appears(dir, at, entry->d_name);
}

static void dir_look(struct watch_dir *dir)
{
	int fd = dir_open(dir);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!stream) {
		if (fd < 0 && is_absence(-fd))
			dirs_enqueue(dir, &tree.late);
		else
			say_unwatched(dir, "", fd < 0 ? -fd : errno);
		if (fd >= 0)
			close(fd);
		return;
	}
	while (!is_over() && (errno = 0, entry = readdir(stream)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			entry_found(dir, fd, entry);
	if (!is_over() && errno)
		say_unwatched(dir, "", errno);
	closedir(stream);
}

static void work_do(void)
{
	struct watch_dir *dir;

	while (!is_over() && (dir = dirs_dequeue(&tree.work)))
		dir_look(dir);
}

/* ---- Events ---- */

/* What an event says has come to `name` is the directory whose leaving was the event before. */
static bool move_complete(struct watch_dir *dir, const char *name)
{
	int at = dir_open(dir), error;
	struct watch_dir *found, *moving = tree.moving;

	if (at < 0)
		return false;
	found = name_watch(at, name, &error);
	close(at);
	if (found == moving && name_fits(dir, name) && dirs_attach(moving, dir, name) == 0) {
		tree.moving = NULL;
		return true;
	}
	if (found && found != moving && !found->parent && found != tree.root)
		dir_drop(found);
	return false;
}

static void event_moved_to(struct watch_dir *dir, const struct inotify_event *e)
{
	struct watch_dir *late;
	bool pair = tree.moving && e->mask & IN_ISDIR && move_complete(dir, e->name);

	moving_drop();
	say(e->mask, dir, e->name, e->mask & IN_ISDIR && !pair ? 0 : e->cookie);
	if (!(e->mask & IN_ISDIR))
		return;
	if (!pair) {
		name_appears(dir, e->name);
		return;
	}
	while ((late = dirs_dequeue(&tree.late)))
		dirs_enqueue(late, &tree.work);
}

/*
 * Something has left `name`. Two names that are exchanged look like two moves of which the
 * second begins at the first one's end: nothing but a look tells that the name is still there.
 */
static void name_left(struct watch_dir *dir, const char *name)
{
	int at = dir_open(dir);
	struct stat st;

	if (at < 0) {
		dirs_enqueue(dir, &tree.late);
		return;
	}
	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		moving_drop();
		say(IN_CREATE | (S_ISDIR(st.st_mode) ? IN_ISDIR : 0), dir, name, 0);
		if (S_ISDIR(st.st_mode))
			dir_appears(dir, at, name);
	}
	close(at);
}

static void event_named(struct watch_dir *dir, const struct inotify_event *e)
{
	struct watch_dir *inner = dirs_find(dir, e->name);

	if (e->mask & IN_MOVED_TO) {
		if (inner)
			dir_drop(inner);
		event_moved_to(dir, e);
		return;
	}
	say(e->mask, dir, e->name, e->cookie);
	if (inner && e->mask & IN_MOVED_FROM && e->mask & IN_ISDIR) {
		dirs_detach(inner);
		tree.moving = inner;
		tree.cookie = e->cookie;
	} else if (inner && e->mask & (IN_MOVED_FROM | IN_DELETE)) {
		dir_drop(inner);
	}
	if (e->mask & IN_MOVED_FROM) {
		name_left(dir, e->name);
	} else if (!inner && e->mask & IN_ISDIR && e->mask & (IN_CREATE | IN_ATTRIB)) {
		/* With other permissions it may be one that can be looked into now. */
		name_appears(dir, e->name);
	}
}

static void event_take(const struct inotify_event *e)
{
	struct watch_dir *dir = dirs_find_wd(e->wd);

	if (!dir || !(e->mask & IN_MOVED_TO) || e->cookie != tree.cookie ||
	    dirs_is_below(dir, tree.moving)) {
		moving_drop();
		dir = dirs_find_wd(e->wd);
	}
	if (e->mask & IN_Q_OVERFLOW)
		tree.again = true;
	if (!dir)
		return;
	if (e->len)
		event_named(dir, e);
	else if (dir == tree.root && e->mask & (WATCH_LAST | IN_IGNORED))
		tree.gone = true;
	else if (dir == tree.root)
		watch_say(tree.words, e->mask, NULL, 0);
	else if (e->mask & IN_IGNORED)
		dir_drop(dir);
	work_do();
}

static void events_take(const char *bytes, ssize_t size)
{
	const struct inotify_event *e;

	for (; size > 0 && !is_over(); bytes += sizeof(*e) + e->len) {
		e = (const struct inotify_event *)bytes;
		size -= (ssize_t)(sizeof(*e) + e->len);
		event_take(e);
	}
}

/* ---- The whole ---- */

/* Watches all that is there, and says what of it cannot be watched. 0 or an errno. */
static int tree_begin(void)
{
	struct stat st;
	int fd = open(tree.path, OPEN_FLAGS), error = 0;

	tree.again = false;
	tree.in = inotify_init1(IN_CLOEXEC);
	if (fd < 0 || tree.in < 0 || fstat(fd, &st) < 0) {
		error = errno;
	} else {
		tree.device = st.st_dev;
		tree.root = dir_watch(fd, &error);
	}
	if (fd >= 0)
		close(fd);
	if (error)
		return error;
	tree.quiet = true;
	dirs_enqueue(tree.root, &tree.work);
	work_do();
	tree.quiet = false;
	return 0;
}

static void tree_end(void)
{
	moving_drop();
	if (tree.root)
		dir_drop(tree.root);
	tree.root = NULL;
	close(tree.in);
}

/* Begins anew, since something was lost. */
static int tree_again(void)
{
	ino_t ino = tree.root->ino;
	dev_t device = tree.device;
	int error;

	tree_end();
	error = tree_begin();
	if (is_absence(error) || (!error && (tree.root->ino != ino || tree.device != device)))
		tree.gone = true;
	else if (!error)
		watch_say(tree.words, IN_Q_OVERFLOW, NULL, 0);
	return tree.gone ? 0 : error;
}

int watch_tree(const char *path, struct words *words)
{
	static _Alignas(struct inotify_event) char bytes[WATCH_READ];
	int error;
	ssize_t n;

	tree.path = path;
	tree.words = words;
	error = *path == '/' ? tree_begin() : EINVAL;
	if (error)
		return builtin_fail(error, "cannot watch", path);
	words_add(words, "watching");
	words_end(words);
	while (!words_flush(words) && !tree.gone) {
		n = read(tree.in, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		error = n < 0 ? errno : n == 0 ? EIO : 0;
		if (!error)
			events_take(bytes, n);
		if (!error && tree.again && !tree.gone)
			error = tree_again();
		if (error)
			return builtin_fail(error, "cannot watch", path);
	}
	if (!words->error) {
		watch_say(words, IN_DELETE_SELF, NULL, 0);
		words_flush(words);
	}
	return words->error;
}
