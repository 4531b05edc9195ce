/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcasemate by example: a VM, a command in it, its output and its status.
 *	cc example.c $(pkg-config --cflags --libs casemate) && ./a.out uname -a
 */
#include <stdio.h>

#include <casemate.h>

static int fail(const struct casemate *c)
{
	fprintf(stderr, "example: %s (%s)\n", c ? casemate_message(c) : "no memory",
		c ? casemate_hint(c) : "");
	return 125;
}

int main(int argc, char **argv)
{
	const char *const options[] = { "timeout=60s", "limit=1M", NULL };
	struct casemate_event e = { .kind = CASEMATE_EVENT };
	struct casemate *c;
	unsigned long long id;
	char vm[64];
	int r;

	if (argc < 2) {
		fprintf(stderr, "usage: example COMMAND [ARGUMENT]...\n");
		return 125;
	}
	if (casemate_open(&c, NULL) != 0)
		return fail(c);
	/* bound: the VM goes with the connection, whatever ends that. */
	if (casemate_call(c, "create", "bound=yes", NULL) != 0)
		return fail(c);
	snprintf(vm, sizeof(vm), "%s", casemate_value(c, "vm"));
	if (casemate_exec(c, vm, (const char *const *)argv + 1, options, &id) != 0)
		return fail(c);
	while ((r = casemate_next(c, &e, -1)) == 1 && e.kind != CASEMATE_END) {
		if (e.kind == CASEMATE_STDOUT || e.kind == CASEMATE_STDERR)
			fwrite(e.data, 1, e.len, e.kind == CASEMATE_STDOUT ? stdout : stderr);
	}
	if (r < 0)
		return fail(c);
	if (e.end != CASEMATE_EXIT)
		fprintf(stderr, "example: %s\n", e.text);
	r = e.end != CASEMATE_EXIT ? 125 : e.signal ? 128 + e.signal : e.code;
	casemate_close(c);
	return r;
}
