/* SPDX-License-Identifier: Apache-2.0 */
/* initd's decoder on any bytes: it stays inside them, always moves on, and what it hands
 * to execve ends inside the frame. */
#include <stdlib.h>
#include <string.h>
#include "initd/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void string_check(const struct frame *f, const char *s)
{
	const char *start = (const char *)f->payload, *end = start + f->length;

	if (s < start || s >= end || !memchr(s, 0, (size_t)(end - s)))
		abort();
}

static void exec_check(const struct frame *f)
{
	static struct frame_exec exec;
	uint32_t i;

	if (frame_parse_exec(f, &exec))
		return;
	if (!exec.head.argc)
		abort();
	for (i = 0; i < exec.head.argc; i++)
		string_check(f, exec.argv[i]);
	for (i = 0; i < exec.head.envc; i++)
		string_check(f, exec.envp[i]);
	if (exec.argv[exec.head.argc] || exec.envp[exec.head.envc] || !*exec.cwd)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum frame_result result;
	struct frame f;
	const char *why;
	size_t used;

	for (;;) {
		why = NULL;
		used = 0;
		result = frame_decode(data, size, &f, &used, &why);
		if (result == FRAME_MORE)
			return 0;
		if ((result == FRAME_OK) == (why != NULL))
			abort();
		if (result == FRAME_LOST)
			return 0;
		if (used < sizeof(struct cm_frame) || used > size)
			abort();
		if (result == FRAME_OK && f.type == CM_F_EXEC)
			exec_check(&f);
		data += used;
		size -= used;
	}
}
