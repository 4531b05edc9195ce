/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of programs that Linux is the judge of: one that fails is told of, the first one of each
 * test. The program has the two variables. */
#ifndef CASEMATE_TESTS_CONFORMANCE_CHECK_H
#define CASEMATE_TESTS_CONFORMANCE_CHECK_H

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

extern const char *failure;
extern char failure_text[200];

#define CHECK(x) \
	do { \
		if (!(x) && failure == NULL) { \
			snprintf(failure_text, sizeof(failure_text), "line %d: %s (errno %d)", \
				 __LINE__, #x, errno); \
			failure = failure_text; \
		} \
	} while (0)

#endif
