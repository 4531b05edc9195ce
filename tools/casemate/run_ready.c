/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for a line in a command's output; see run_ready.h. */
#include "tools/casemate/run_ready.h"

#include <string.h>

bool line_match_feed(struct line_match *match, const uint8_t *bytes, size_t len)
{
	size_t want = match->line ? strlen(match->line) : 0;

	for (size_t i = 0; match->line && i < len; i++) {
		bool whole = match->matched == want;

		if (bytes[i] == '\n') {
			match->matched = 0;
			if (whole)
				return true;
		} else if (bytes[i] == '\r' && whole) {
			continue;	/* a terminal's line end */
		} else if (match->matched < want &&
			   bytes[i] == (uint8_t)match->line[match->matched]) {
			match->matched++;
		} else {
			match->matched = SIZE_MAX;
		}
	}
	return false;
}
