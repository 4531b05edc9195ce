/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builtin watch: what inotify says about one directory (not those below it) or file, a line an
 * event; or about a whole tree (watch_tree.c). The first line says that it has begun. When the
 * reader is slow the kernel's queue runs over, which is said, too: then it is time to look for
 * oneself. It ends when what is watched has gone.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "initd/builtin.h"
#include "initd/watch.h"
#include "initd/words.h"

static const struct {
	uint32_t mask;
	const char *name;
} events[] = {
	{IN_CREATE, "created"},	       {IN_MODIFY, "modified"},
	{IN_CLOSE_WRITE, "written"},   {IN_ATTRIB, "attributes"},
	{IN_DELETE, "deleted"},	       {IN_MOVED_FROM, "moved-from"},
	{IN_MOVED_TO, "moved-to"},     {WATCH_LAST, "gone"},
	{IN_Q_OVERFLOW, "overflow"},
};

static struct words words;

void watch_say(struct words *w, uint32_t mask, const char *name, uint32_t cookie)
{
	size_t i;

	for (i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (mask & events[i].mask)
			break;
	if (i == sizeof(events) / sizeof(events[0]))
		return;
	words_add(w, events[i].name);
	if (name)
		words_pair(w, "name", name);
	if (mask & IN_ISDIR && name)
		words_pair(w, "dir", "yes");
	if (cookie)
		words_pair_format(w, "cookie", "%u", cookie);
	words_end(w);
}

static int watch_one(const char *path)
{
	static _Alignas(struct inotify_event) char bytes[WATCH_READ];
	const struct inotify_event *e;
	int fd = inotify_init1(IN_CLOEXEC), r;
	bool last = false;
	ssize_t n, at;

	if (fd < 0 || inotify_add_watch(fd, path, WATCH_MASK) < 0)
		return builtin_fail(errno, "cannot watch", path);
	words_add(&words, "watching");
	words_end(&words);
	while (!(r = words_flush(&words)) && !last) {
		n = read(fd, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return builtin_fail(n ? errno : EIO, "cannot watch", path);
		for (at = 0; at < n && !last; at += (ssize_t)(sizeof(*e) + e->len)) {
			e = (const struct inotify_event *)(bytes + at);
			watch_say(&words, e->mask, e->len ? e->name : NULL, e->cookie);
			last = e->mask & (WATCH_LAST | IN_IGNORED);
		}
	}
	return r;
}

int builtin_watch(char *const *args, char *const *options)
{
	struct stat st;
	int tree = 0;

	if (builtin_option_yes(options, "tree", &tree))
		return EINVAL;
	if (tree && stat(args[0], &st) == 0 && S_ISDIR(st.st_mode))
		return watch_tree(args[0], &words);
	return watch_one(args[0]);
}
