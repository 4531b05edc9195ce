/* SPDX-License-Identifier: Apache-2.0 */
/* `casemate run --ready-when LINE`: looks for the line in the command's output. */
#ifndef CASEMATE_TOOLS_RUN_READY_H
#define CASEMATE_TOOLS_RUN_READY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct line_match {
	const char *line;	/* without a newline; NULL: none is looked for */
	size_t matched;		/* characters of the present line that fit, SIZE_MAX: not ours */
};

/* Looks at more output. Returns whether the line was in it, ended by a newline. */
bool line_match_feed(struct line_match *match, const uint8_t *bytes, size_t len);

#endif
