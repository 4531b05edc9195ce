/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builtin watch: what inotify says about one directory (not those below it) or file, a line an
 * event. The first line says that it has begun. When the reader is slow the kernel's queue runs
 * over, which is said, too: then it is time to look for oneself. It ends when what is watched
 * has gone.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>
#include "initd/builtin.h"
#include "initd/words.h"

static const struct {
	uint32_t mask;
	const char *name;
} events[] = {
	{IN_CREATE, "created"},	       {IN_MODIFY, "modified"},
	{IN_CLOSE_WRITE, "written"},   {IN_ATTRIB, "attributes"},
	{IN_DELETE, "deleted"},	       {IN_MOVED_FROM, "moved-from"},
	{IN_MOVED_TO, "moved-to"},     {IN_DELETE_SELF, "gone"},
	{IN_MOVE_SELF, "gone"},	       {IN_UNMOUNT, "gone"},
	{IN_Q_OVERFLOW, "overflow"},
};

static struct words words;

/* Whether it is the last. */
static bool event_say(const struct inotify_event *e)
{
	size_t i;

	for (i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (e->mask & events[i].mask)
			break;
	if (i == sizeof(events) / sizeof(events[0]))
		return e->mask & IN_IGNORED;
	words_add(&words, events[i].name);
	if (e->len)
		words_pair(&words, "name", e->name);
	if (e->mask & IN_ISDIR && e->len)
		words_pair(&words, "dir", "yes");
	if (e->cookie)
		words_pair_format(&words, "cookie", "%u", e->cookie);
	words_end(&words);
	return e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT);
}

int builtin_watch(char *const *args, char *const *options)
{
	static _Alignas(struct inotify_event) char bytes[32768];
	const uint32_t mask = IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE |
			      IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF;
	const struct inotify_event *e;
	int fd = inotify_init1(IN_CLOEXEC), r;
	bool last = false;
	ssize_t n, at;

	(void)options;
	if (fd < 0 || inotify_add_watch(fd, args[0], mask) < 0)
		return builtin_fail(errno, "cannot watch", args[0]);
	words_add(&words, "watching");
	words_end(&words);
	while (!(r = words_flush(&words)) && !last) {
		n = read(fd, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return builtin_fail(n ? errno : EIO, "cannot watch", args[0]);
		for (at = 0; at < n && !last; at += (ssize_t)(sizeof(*e) + e->len)) {
			e = (const struct inotify_event *)(bytes + at);
			last = event_say(e);
		}
	}
	return r;
}
