/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to casemated; see session.h. */
#include "tools/casemate/session.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/path.h"
#include "base/err.h"
#include "base/fd.h"
#include "pool/spawn.h"
#include "tools/casemate/casemate.h"

#define READY_FD	3
#define TRIES		100		/* of 20 ms, while another starts the daemon */

/* The daemon's hints are for those who speak its protocol. NULL: the verb's help. */
static const struct {
	const char *daemons, *ours;
} hints[] = {
	{ "see docs/PROTOCOL.md", NULL },
	{ "list shows what there is", "casemate ls shows what there is" },
	{ "template list shows what there is", "casemate template list shows what there is, "
	  "casemate template add makes one" },
	{ "info shows its state", "casemate info shows its state" },
	{ "events shows what happened", "casemate events --since 0 shows what happened" },
	{ "paths are as the daemon sees them", "is the path right, and may the daemon read it?" },
	{ "hello lists the verbs", "the daemon is older than this command: restart it" },
};

int session_close(struct casemate *c, int status)
{
	casemate_close(c);
	return status;
}

int session_fail(const struct casemate *c)
{
	const char *hint = c ? casemate_hint(c) : "", *text = c ? casemate_message(c) : "";
	const char *after = c ? casemate_value(c, "retry-after") : NULL;
	char see[64];

	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
		if (!strcmp(hint, hints[i].daemons)) {
			hint = hints[i].ours;
			break;
		}
	}
	if (!hint) {
		snprintf(see, sizeof(see), "see casemate help %s", casemate_verb);
		hint = see;
	} else if (after && !strcmp(casemate_code(c), "BUSY")) {
		snprintf(see, sizeof(see), "try again in %.16s s", after);
		hint = see;
	}
	/* A message that says itself what to do needs no more. */
	if (strstr(text, "; "))
		hint = "";
	return casemate_fail("%s%s%s", c ? text : "out of memory", hint[0] ? "; " : "", hint);
}

int session_path(const char *path, char *ret)
{
	char copy[PATH_MAX], name[PATH_MAX], directory[PATH_MAX];

	if (strlen(path) >= PATH_MAX || !path[0])
		return casemate_fail("%.60s is no usable path", path);
	if (realpath(path, ret))
		return 0;
	strcpy(copy, path);
	strcpy(name, basename(copy));
	strcpy(copy, path);
	if (!realpath(dirname(copy), directory))
		return casemate_fail("%s: %s", path, strerror(errno));
	if (snprintf(ret, PATH_MAX, "%s/%s", directory, name) >= PATH_MAX)
		return casemate_fail("%s is too long a path", path);
	return 0;
}

static int daemon_spawn(const char *path, const char *socket, int told)
{
	const char *argv[] = { path, "--session", "--ready-fd", "3", "--socket", socket, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	pid_t pid;
	int r;

	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&files, told, 2);
	posix_spawn_file_actions_adddup2(&files, told, READY_FD);
	r = posix_spawn(&pid, path, &files, &attr, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return -r;
}

/* Returns 0 when one serves or somebody else is starting one, else says why not. */
static int daemon_start(const char *socket)
{
	FD_CLEANUP int ready = -1, told = -1;
	char path[PATH_MAX], text[512];
	struct err err = ERR_INIT;
	size_t have = 0;
	ssize_t n;
	int pair[2], r;

	if (spawn_own_directory(path, sizeof(path) - sizeof("/casemated"), &err) < 0)
		return casemate_fail("%s", err.text);
	strcat(path, "/casemated");
	if (access(path, X_OK) < 0)
		return casemate_fail("casemated is not beside casemate: %s", strerror(errno));
	if (pipe2(pair, O_CLOEXEC) < 0)
		return casemate_fail("cannot make a pipe: %s", strerror(errno));
	ready = pair[0];
	/* Above what it becomes in the child. */
	told = fcntl(pair[1], F_DUPFD_CLOEXEC, READY_FD + 1);
	close(pair[1]);
	r = told < 0 ? -errno : daemon_spawn(path, socket, told);
	if (r < 0)
		return casemate_fail("cannot start %s: %s", path, strerror(-r));
	told = fd_close(told);
	while (have < sizeof(text) - 1 &&
	       (n = read(ready, text + have, sizeof(text) - 1 - have)) > 0) {
		have += (size_t)n;
		text[have] = '\0';
		if (strstr(text, "ok\n"))
			return 0;
	}
	text[have] = '\0';
	if (strstr(text, "another casemated"))
		return 0;
	text[strcspn(text, "\n")] = '\0';
	return casemate_fail("%s", have ? text : "casemated died while it started");
}

int session_open(struct casemate **ret, const char *socket, bool start)
{
	const struct timespec pause = { .tv_nsec = 20000000 };
	struct err err = ERR_INIT;
	char path[PATH_MAX];
	int r;

	if (api_socket_path(socket, path, sizeof(path), &err) < 0)
		return casemate_fail("%s", err.text);
	r = casemate_open(ret, path);
	if ((r == -ENOENT || r == -ECONNREFUSED) && start) {
		int status = daemon_start(path);

		if (status)
			return status;
		for (int i = 0; r < 0 && i < TRIES; i++) {
			casemate_close(*ret);
			r = casemate_open(ret, path);
			if (r < 0)
				nanosleep(&pause, NULL);
		}
	} else if (r == -ENOENT || r == -ECONNREFUSED) {
		casemate_close(*ret);
		return casemate_fail("no daemon serves at %s; casemate run --keep NAME starts "
				     "one, or casemate template add, or casemated", path);
	}
	if (r == 0)
		return 0;
	session_fail(*ret);
	casemate_close(*ret);
	return EXIT_CASEMATE;
}
