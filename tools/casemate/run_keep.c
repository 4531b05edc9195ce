/* SPDX-License-Identifier: Apache-2.0 */
/* `casemate run --keep NAME`: makes the VM in the daemon and runs the command in it. */
#include "tools/casemate/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/casemate/casemate.h"
#include "tools/casemate/session.h"

#define TEXT_MAX	(PATH_MAX + 16)

static int vm_create(struct casemate *c, const struct run_options *o)
{
	char name[TEXT_MAX], image[TEXT_MAX], memory[48], from[TEXT_MAX], path[PATH_MAX];
	const char *words[6] = { "create", name };
	size_t n = 2;

	snprintf(name, sizeof(name), "name=%.*s", PATH_MAX, o->keep);
	if (o->image) {
		if (session_path(o->image, path))
			return EXIT_CASEMATE;
		snprintf(image, sizeof(image), "image=%s", path);
		words[n++] = image;
	}
	if (o->from) {
		if (session_path(o->from, path))
			return EXIT_CASEMATE;
		snprintf(from, sizeof(from), "from=%s", path);
		words[n++] = from;
	} else {
		snprintf(memory, sizeof(memory), "mem=%" PRIu64, o->memory);
		words[n++] = memory;
	}
	return casemate_call_words(c, words, n) ? session_fail(c) : 0;
}

static const char *word(char *text, size_t size, const char *name, const char *value)
{
	snprintf(text, size, "%s%s", name, value);
	return text;
}

int run_kept(const struct run_options *o)
{
	static char cwd[TEXT_MAX], timeout[48];
	static const char *words[RUN_ENV_MAX + 3];
	struct casemate *c;
	size_t n = 0;
	int status = session_open(&c, o->socket, true);

	if (status)
		return status;
	for (unsigned int i = 0; i < o->envc; i++) {
		size_t size = strlen(o->env[i]) + 5;

		char *text = malloc(size);

		/* Until the process ends, which is soon. */
		if (text)
			words[n++] = word(text, size, "env=", o->env[i]);
	}
	if (o->workdir[0])
		words[n++] = word(cwd, sizeof(cwd), "cwd=", o->workdir);
	if (o->timeout_ns) {
		snprintf(timeout, sizeof(timeout), "timeout=%" PRIu64 "ms",
			 (o->timeout_ns + 999999) / 1000000);
		words[n++] = timeout;
	}
	status = vm_create(c, o);
	if (status == 0)
		status = session_exec(c, o->keep, o->argv, words, o->tty);
	return session_close(c, status);
}
