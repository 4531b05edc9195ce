/* SPDX-License-Identifier: Apache-2.0 */
/* What `casemate run` says to a person about the VM; see run.h. The guest's words are hostile:
 * what could steer a terminal is taken out. */
#include "tools/casemate/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"

void run_text_show(const char *prefix, const struct frame *frame, size_t skip)
{
	size_t n = frame->head.length - skip;
	char *text = malloc(n + 1);

	if (!text)
		return;
	memcpy(text, frame->payload + skip, n);
	frame_text_clean(text, n);
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	fprintf(stderr, "%s%s\n", prefix, text);
	free(text);
}

void run_booted_show(const struct frame *frame, uint64_t start_ns)
{
	static const char *const names[8] = { "guest ready", "kernel", "devices", "root",
					      "init" };
	struct cm_vm_booted booted;

	memcpy(&booted, frame->payload, sizeof(booted));
	fprintf(stderr, "casemate: boot, milliseconds since the VMM's start:");
	for (int i = 1; i <= 8; i++) {
		uint64_t ns = booted.stage_ns[i % 8];

		if (ns && names[i % 8])
			fprintf(stderr, " %s %.1f", names[i % 8], (double)ns / 1e6);
	}
	fprintf(stderr, "; since ours: %.1f\n",
		(double)(time_monotonic_ns() - start_ns) / 1e6);
}

/* Why the VM is gone. Under --verbose all of it; else in one line, which has the first two of
 * the text: what happened, and the panic's message. */
void run_end_show(bool verbose, const char *prefix, const struct frame *frame)
{
	const char *text = (const char *)frame->payload + sizeof(struct cm_vm_end);
	int len = (int)(frame->head.length - sizeof(struct cm_vm_end));
	int first = (int)strnlen(text, (size_t)len), second = 0;
	const char *newline = memchr(text, '\n', (size_t)first);
	char line[640];

	if (verbose) {
		run_text_show(prefix, frame, sizeof(struct cm_vm_end));
		return;
	}
	if (newline) {
		const char *rest = newline + 1;

		newline = memchr(rest, '\n', (size_t)(text + first - rest));
		second = (int)((newline ? newline : text + first) - rest);
		first = (int)(rest - 1 - text);
		snprintf(line, sizeof(line), "%s%.*s %.*s%s", prefix, first, text, second, rest,
			 newline ? " (--verbose shows where)" : "");
	} else {
		snprintf(line, sizeof(line), "%s%.*s", prefix, first, text);
	}
	frame_text_clean(line, strlen(line));
	fprintf(stderr, "%s\n", line);
}
