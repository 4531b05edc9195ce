/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs about files in VMs. Each is a command that the guest's initd has in itself, by the same
 * name and with the same words, and from its answer `+ exec=N` on it is like any other: its
 * streams, its end. What the guest says is passed on as bytes and never looked at.
 *
 * All of them are bound: a client that is lost takes them with it. So a put whose close-stdin
 * was not said never makes a file appear.
 */
#include "api/server.h"

#include <errno.h>
#include <string.h>

#define ENGINE_OPTIONS	"user timeout window"
#define WORDS		12u	/* verb, paths, options */

static const struct file_verb {
	const char *name;
	size_t paths;
	const char *options;	/* the guest's, then ours */
	bool has_stdin;
} file_verbs[] = {
	{ "put", 1, "mode size " ENGINE_OPTIONS, true },
	{ "get", 1, "offset length " ENGINE_OPTIONS, false },
	{ "ls", 1, "recursive " ENGINE_OPTIONS, false },
	{ "stat", 1, "follow " ENGINE_OPTIONS, false },
	{ "mkdir", 1, "mode parents " ENGINE_OPTIONS, false },
	{ "mv", 2, ENGINE_OPTIONS, false },
	{ "rm", 1, "recursive " ENGINE_OPTIONS, false },
	{ "symlink", 1, "target " ENGINE_OPTIONS, false },
	{ "chmod", 1, "mode " ENGINE_OPTIONS, false },
	{ "watch", 1, "tree " ENGINE_OPTIONS, false },
};

static const struct file_verb *file_verb_find(const char *name)
{
	const struct file_verb *v = file_verbs;

	while (strcmp(v->name, name))
		v++;
	return v;
}

/* Absolute ones cannot be taken for options either. */
static int paths_check(const struct request *q, size_t count)
{
	for (size_t i = 2; i < 2 + count; i++) {
		const char *path = q->line->words[i];

		if (path[0] != '/')
			return fail(q, EINVAL, "a path in a VM is absolute, not %.60s", path);
		if (strlen(path) >= PATH_MAX)
			return fail(q, ENAMETOOLONG, "a path has up to %d bytes", PATH_MAX - 1);
	}
	return 0;
}

static bool is_engine_option(const char *word)
{
	return !strncmp(word, "user=", 5) || !strncmp(word, "timeout=", 8) ||
	       !strncmp(word, "window=", 7);
}

static int verb_file(const struct request *q)
{
	const struct line *line = q->line;
	const struct file_verb *v = file_verb_find(line->words[0]);
	const char *argv[WORDS] = { v->name };
	struct exec_options o = { .argv = argv, .argc = 1, .builtin = true,
				  .has_stdin = v->has_stdin };
	struct vm *vm;
	int r = paths_check(q, v->paths);

	if (r == 0)
		r = options_known(q, 2 + v->paths, v->options);
	if (r == 0)
		r = option_user(q, &o);
	if (r == 0)
		r = option_time(q, "timeout", &o.timeout_ns);
	if (r < 0)
		return r;
	/* Options are known and none is there twice, so that all fit. */
	for (size_t i = 2; i < line->count && o.argc < WORDS; i++) {
		if (i < 2 + v->paths || !is_engine_option(line->words[i]))
			argv[o.argc++] = line->words[i];
	}
	vm = request_vm(q, line->words[1]);
	return vm ? exec_start(q, vm, &o, false, true) : -ENOENT;
}

const struct verb verbs_file[] = {
	{ "put", verb_file, 3, "put VM PATH [mode=OCTAL] [size=BYTES] [user=UID[:GID]] "
	  "[timeout=TIME] [window=BYTES]", false },
	{ "get", verb_file, 3, "get VM PATH [offset=BYTES] [length=BYTES] [user=] [timeout=] "
	  "[window=]", false },
	{ "ls", verb_file, 3, "ls VM PATH [recursive=yes] [user=] [timeout=] [window=]", false },
	{ "stat", verb_file, 3, "stat VM PATH [follow=no] [user=] [timeout=] [window=]", false },
	{ "mkdir", verb_file, 3, "mkdir VM PATH [mode=OCTAL] [parents=yes] [user=] [timeout=]",
	  false },
	{ "mv", verb_file, 4, "mv VM FROM TO [user=] [timeout=]", false },
	{ "rm", verb_file, 3, "rm VM PATH [recursive=yes] [user=] [timeout=]", false },
	{ "symlink", verb_file, 4, "symlink VM PATH target=TEXT [user=] [timeout=]", false },
	{ "chmod", verb_file, 4, "chmod VM PATH mode=OCTAL [user=] [timeout=]", false },
	{ "watch", verb_file, 3, "watch VM PATH [tree=yes] [user=] [timeout=] [window=]", false },
	{ NULL, NULL, 0, NULL, false },
};
