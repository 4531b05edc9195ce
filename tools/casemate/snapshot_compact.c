/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate snapshot compact`: a new file gets its name when it is whole (pool/save.h), so that
 * an older output is there until then and a failure leaves nothing. The output may be one of
 * the inputs: those are open already. A signal that ends us removes a temporary name first.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "pool/save.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/progress.h"
#include "tools/casemate/snapshot.h"

/* For the signal handler. */
static struct save save = SAVE_INIT;

static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

static void on_signal(int number)
{
	if (save.file.temporary[0])
		unlink(save.file.temporary);
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

int snapshot_compact_files(const struct snapshot_files *files, const char *output, bool sync,
			   bool quiet)
{
	struct err err = ERR_INIT, why = ERR_INIT;
	struct snapshot_id id;
	char text[2 * SNAPSHOT_DIGEST + 1];
	int r;

	signals_watch();
	/* Nobody can end us between the file's name and the note of it. */
	signals_hold(true);
	r = save_begin(&save, output, sync, &err);
	signals_hold(false);
	snapshot_progress_say(&files->file[files->count - 1], "folding up to");
	if (r == 0 && snapshot_compact(files->chain, files->count, save.file.fd, &id, &why) < 0)
		r = err_set(&err, -why.code, "%s: %s", output, why.text);
	signals_hold(true);
	if (r == 0)
		r = save_commit(&save, &id, &err);
	save_abandon(&save);
	signals_hold(false);
	progress_show(NULL);
	if (r < 0)
		return casemate_fail("%s", err.text);
	if (quiet)
		return 0;
	snapshot_id_text(&id, text);
	printf("%s: full, id %s\n", output, text);
	return 0;
}
