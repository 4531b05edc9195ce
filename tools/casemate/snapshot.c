/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate snapshot inspect|verify|compact`: what can be done to snapshot files without
 * starting anything. Files are given parent first. What is wrong is one line on standard
 * error with the file's name, and exit status 125.
 */
#include "tools/casemate/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/progress.h"

static const char usage[] =
	"usage: casemate snapshot inspect [--json] FILE\n"
	"       casemate snapshot verify [--quiet] FILE...\n"
	"       casemate snapshot compact -o OUT [--sync] [--quiet] FILE...\n"
	"  inspect    print header, sections, saved state and memory map\n"
	"  verify     check everything; several files are a chain, parent first\n"
	"  compact    fold a chain, parent first, into one full snapshot\n"
	"  --json     one JSON object\n"
	"  -o OUT     the new file; one of that name is replaced when the new one is whole\n"
	"  --sync     have it on the disk before saying so\n"
	"  --quiet    no progress on a terminal, and no line about what is good or was made\n";

struct options {
	const char *output;
	bool json, sync, quiet, help;
};

/* ---- Files ---- */

static int file_open(struct snapshot_file *file)
{
	struct err err = ERR_INIT;
	uint64_t size;

	file->fd = fd_open_file(file->path, &size);
	if (file->fd == -ENODEV)
		return casemate_fail("%s: not a regular file", file->path);
	if (file->fd < 0)
		return casemate_fail("%s: %s", file->path, strerror(-file->fd));
	if (snapshot_open(&file->snapshot, file->fd, &err) < 0)
		return casemate_fail("%s: %s", file->path, err.text);
	file->open = true;
	return 0;
}

int snapshot_files_open(struct snapshot_files *files, char **paths, size_t count)
{
	*files = (struct snapshot_files){
		.file = calloc(count, sizeof(*files->file)),
		.chain = calloc(count, sizeof(*files->chain)),
		.count = count,
	};
	if (!files->file || !files->chain)
		return casemate_fail("out of memory");
	for (size_t i = 0; i < count; i++) {
		files->file[i].path = paths[i];
		files->file[i].fd = -1;
		files->chain[i] = &files->file[i].snapshot;
	}
	for (size_t i = 0; i < count; i++) {
		int status = file_open(&files->file[i]);

		if (status)
			return status;
	}
	return 0;
}

void snapshot_files_close(struct snapshot_files *files)
{
	for (size_t i = 0; files->file && i < files->count; i++) {
		if (files->file[i].open)
			snapshot_close(&files->file[i].snapshot);
		fd_close(files->file[i].fd);
	}
	free(files->file);
	free(files->chain);
	*files = (struct snapshot_files){ .count = 0 };
}

int snapshot_files_check(const struct snapshot_files *files)
{
	struct err err = ERR_INIT;

	/* Ever longer chains: the first bad one ends with the culprit. */
	for (size_t i = 1; i <= files->count; i++) {
		if (snapshot_check_chain(files->chain, i, &err) < 0)
			return casemate_fail("%s: %s", files->file[i - 1].path, err.text);
	}
	return 0;
}

static bool on_step(void *arg, uint64_t done, uint64_t total)
{
	const struct snapshot_file *file = arg;
	char what[64];

	snprintf(what, sizeof(what), "%s %.40s", file->doing, file->path);
	progress_bytes(what, done, total);
	return true;
}

void snapshot_progress_say(struct snapshot_file *file, const char *doing)
{
	file->doing = doing;
	file->progress = (struct snapshot_progress){ .step = on_step, .arg = file };
	file->snapshot.progress = progress_wanted() ? &file->progress : NULL;
}

/* ---- Verbs ---- */

static int inspect(const struct snapshot_files *files, const struct options *options)
{
	if (options->json)
		snapshot_print_json(files->chain[0], stdout);
	else
		snapshot_print(files->chain[0], stdout);
	if (fflush(stdout) || ferror(stdout))
		return casemate_fail("cannot write to standard output: %s", strerror(errno));
	return 0;
}

static int verify(const struct snapshot_files *files, const struct options *options)
{
	/* One incremental file by itself can be checked, if not restored. */
	int status = files->count > 1 ? snapshot_files_check(files) : 0;

	for (size_t i = 0; i < files->count && !status; i++) {
		const struct snapshot *snapshot = files->chain[i];
		char id[2 * SNAPSHOT_DIGEST + 1];
		struct err err = ERR_INIT;

		snapshot_progress_say(&files->file[i], "verifying");
		if (snapshot_verify(snapshot, &err) < 0) {
			status = casemate_fail("%s: %s", files->file[i].path, err.text);
			break;
		}
		progress_show(NULL);
		if (options->quiet)
			continue;
		snapshot_id_text(&snapshot->id, id);
		printf("%s: good: %s, %llu MiB of memory, %llu pages held, id %s\n",
		       files->file[i].path, snapshot->incremental ? "incremental" : "full",
		       (unsigned long long)(snapshot->page_count * SNAPSHOT_PAGE >> 20),
		       (unsigned long long)snapshot->pages_held, id);
	}
	return status;
}

static int compact(const struct snapshot_files *files, const struct options *options)
{
	int status = snapshot_files_check(files);

	return status ? status : snapshot_compact_files(files, options->output, options->sync,
							options->quiet);
}

/* ---- Command line ---- */

enum { OPTION_JSON = 256, OPTION_SYNC, OPTION_QUIET };

static const struct verb {
	const char *name;
	int (*run)(const struct snapshot_files *files, const struct options *options);
	bool one;	/* file, not several */
	bool json, output;	/* options that it has */
} verbs[] = {
	{ "inspect", inspect, true, true, false },
	{ "verify", verify, false, false, false },
	{ "compact", compact, false, false, true },
};

static int usage_fail(const char *verb, const char *why)
{
	return casemate_fail("snapshot%s%s: %s; see casemate snapshot --help",
			     verb ? " " : "", verb ? verb : "", why);
}

static int options_read(const struct verb *verb, int argc, char **argv,
			struct options *options)
{
	static const struct option list[] = {
		{ "json", no_argument, NULL, OPTION_JSON },
		{ "output", required_argument, NULL, 'o' },
		{ "sync", no_argument, NULL, OPTION_SYNC },
		{ "quiet", no_argument, NULL, OPTION_QUIET },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	optind = 0;	/* the caller may have used getopt before */
	/* Options may come after files, as in `inspect F --json`. */
	while ((c = getopt_long(argc, argv, ":o:h", list, NULL)) != -1) {
		if (c == 'h')
			options->help = true;
		else if (c == OPTION_JSON && verb->json)
			options->json = true;
		else if (c == OPTION_SYNC && verb->output)
			options->sync = true;
		else if (c == OPTION_QUIET && !verb->json)
			options->quiet = true;
		else if (c == 'o' && verb->output)
			options->output = optarg;
		else if (c == ':')
			return usage_fail(verb->name, "an option lacks its value");
		else
			return usage_fail(verb->name, "unknown option");
	}
	if (options->help)
		return 0;
	if (options->quiet)
		progress_quiet();
	if (optind == argc)
		return usage_fail(verb->name, "no file is given");
	if (verb->one && argc - optind > 1)
		return usage_fail(verb->name, "takes one file");
	if (verb->output && (!options->output || !*options->output))
		return usage_fail(verb->name, "no -o OUT is given");
	return 0;
}

int cmd_snapshot(int argc, char **argv)
{
	struct options options = { .output = NULL };
	struct snapshot_files files;
	const struct verb *verb = NULL;
	int status;

	if (argc < 2)
		return usage_fail(NULL, "inspect, verify or compact?");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		fputs(usage, stdout);
		return 0;
	}
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (!strcmp(argv[1], verbs[i].name))
			verb = &verbs[i];
	}
	if (!verb)
		return usage_fail(argv[1], "there is no such verb (a VM is saved by snapshot "
				  "NAME -o FILE)");
	status = options_read(verb, argc - 1, argv + 1, &options);
	if (status)
		return status;
	if (options.help) {
		fputs(usage, stdout);
		return 0;
	}
	status = snapshot_files_open(&files, argv + 1 + optind, (size_t)(argc - 1 - optind));
	if (!status)
		status = verb->run(&files, &options);
	snapshot_files_close(&files);
	return status;
}
