/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate snapshot compact`: writes to a temporary file beside the output and renames it
 * when it is whole, so that an older output is there until then and a failure leaves nothing.
 * The output may be one of the inputs: those are open already. A signal that ends us removes
 * the temporary file first.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/snapshot.h"

/* For the signal handler: "" when there is no file to remove. */
static char temporary[PATH_MAX];

static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

static void on_signal(int number)
{
	if (temporary[0])
		unlink(temporary);
	/* SA_RESETHAND: the second time it ends us. */
	raise(number);
}

static void signals_watch(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
	struct sigaction old;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	}
	/* A limit on file sizes is an error to be told, not a signal. */
	signal(SIGXFSZ, SIG_IGN);
}

static void signals_hold(bool hold)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(&set, signals[i]);
	sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* The temporary file's descriptor, or -1 with the line said. */
static int temporary_make(const char *output)
{
	char path[PATH_MAX];
	struct stat st;
	int fd;

	if (stat(output, &st) == 0 && !S_ISREG(st.st_mode)) {
		casemate_fail("%s: not a regular file", output);
		return -1;
	}
	if (snprintf(path, sizeof(path), "%s.XXXXXX", output) >= (int)sizeof(path)) {
		casemate_fail("%s: the path is too long", output);
		return -1;
	}
	/* Nobody can end us between the file and the note of its name. Mode 0600: what a task
	 * had in memory is nobody else's. */
	signals_hold(true);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		memcpy(temporary, path, sizeof(path));
	signals_hold(false);
	if (fd < 0)
		casemate_fail("%s: cannot write there: %s", output, strerror(errno));
	return fd;
}

static int directory_sync(const char *output)
{
	const char *slash = strrchr(output, '/');
	FD_CLEANUP int fd = -1;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s",
		 slash ? (int)(slash - output) + 1 : 1, slash ? output : ".");
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int output_finish(int fd, const char *output, bool sync)
{
	int renamed;

	if (sync && fsync(fd) < 0)
		return casemate_fail("%s: cannot sync: %s", output, strerror(errno));
	signals_hold(true);
	renamed = rename(temporary, output);
	if (renamed == 0)
		temporary[0] = '\0';
	signals_hold(false);
	if (renamed < 0)
		return casemate_fail("%s: cannot put the snapshot there: %s", output,
				     strerror(errno));
	if (sync && directory_sync(output) < 0)
		return casemate_fail("%s: the snapshot is there, but its folder cannot be "
				     "synced: %s", output, strerror(errno));
	return 0;
}

int snapshot_compact_files(const struct snapshot_files *files, const char *output, bool sync)
{
	struct err err = ERR_INIT;
	struct snapshot_id id;
	char text[2 * SNAPSHOT_DIGEST + 1];
	int status;
	FD_CLEANUP int fd = -1;

	signals_watch();
	fd = temporary_make(output);
	if (fd < 0)
		return EXIT_CASEMATE;
	if (snapshot_compact(files->chain, files->count, fd, &id, &err) < 0)
		status = casemate_fail("%s: %s", output, err.text);
	else
		status = output_finish(fd, output, sync);
	if (temporary[0])
		unlink(temporary);
	temporary[0] = '\0';
	if (status)
		return status;
	snapshot_id_text(&id, text);
	printf("%s: full, id %s\n", output, text);
	return 0;
}
