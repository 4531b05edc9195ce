/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate run --keep NAME` and `--template NAME`: the daemon makes the VM, and the command runs
 * in it. Without a name to be kept under the VM is bound to our connection: whatever ends us ends
 * it. When the command is over in good order it is killed, so that nothing of it is left when we
 * return.
 */
#include "tools/casemate/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/casemate/casemate.h"
#include "tools/casemate/session.h"
#include "tools/casemate/terminal.h"

#define TEXT_MAX	(PATH_MAX + 16)

static const char *word(char *text, size_t size, const char *name, const char *value)
{
	snprintf(text, size, "%s%s", name, value);
	return text;
}

static int template_fail(const struct casemate *c, const struct run_options *o)
{
	const char *after = casemate_value(c, "retry-after");

	if (!o->no_wait || strcmp(casemate_code(c), "BUSY"))
		return session_fail(c);
	return casemate_fail("%s; %s%s%swithout --no-wait one is made, casemate pool set %s N "
			     "keeps N ready", casemate_message(c), after ? "try again in " : "",
			     after ? after : "", after ? " s, " : "", o->template);
}

static int vm_create(struct casemate *c, const struct run_options *o)
{
	char name[TEXT_MAX], image[TEXT_MAX], memory[48], from[TEXT_MAX], path[PATH_MAX];
	char template[TEXT_MAX];
	const char *words[6] = { "create", "bound=yes" };
	size_t n = 2;

	if (o->keep)
		words[1] = word(name, sizeof(name), "name=", o->keep);
	if (o->template) {
		words[n++] = word(template, sizeof(template), "template=", o->template);
		if (o->no_wait)
			words[n++] = "wait=no";
		return casemate_call_words(c, words, n) ? template_fail(c, o) : 0;
	}
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

int run_by_daemon(const struct run_options *o)
{
	static char cwd[TEXT_MAX], timeout[48], vm[TEXT_MAX];
	static const char *words[RUN_ENV_MAX + 3];
	struct casemate *c;
	size_t n = 0;
	/* One that is started now has no templates. */
	int status = session_open(&c, o->socket, !o->template);

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
	if (status)
		return session_close(c, status);
	word(vm, sizeof(vm), "", casemate_value(c, "vm"));
	status = session_exec(c, vm, o->argv, words, o->tty);
	if (!o->keep) {
		/* It may be gone already; or take long, which is then ended by ^C. */
		terminal_signals_end();
		casemate_call(c, "kill", vm, NULL);
	}
	return session_close(c, status);
}
