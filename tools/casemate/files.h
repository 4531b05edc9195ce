/* SPDX-License-Identifier: Apache-2.0 */
/* Files in VMs on the command line: what the verbs of files.c and copy.c share. */
#ifndef CASEMATE_TOOLS_FILES_H
#define CASEMATE_TOOLS_FILES_H

#include <limits.h>
#include <stdbool.h>

#include "tools/casemate/words.h"

#define EXIT_GUEST	1	/* the guest refused it */

#define OPTION_USER	{ "--user", "user=", 'v', "UID[:GID]", "as this user of the guest" }

/* VM:PATH */
struct place {
	char vm[64];
	const char *path;
};

/* Whether a word is VM:PATH: it has a colon, and no slash before it. */
bool place_is(const char *word);
/* Returns 0, or EXIT_CASEMATE after saying why. */
int place_read(const char *word, struct place *ret);

/* casemate_file() of verb, VM, path, more (up to a NULL), and the options read. */
int files_call(struct casemate *c, const struct words *w, const char *verb, const char *vm,
	       const char *path, ...) __attribute__((sentinel));
/* Says what was refused; negative or CASEMATE_REFUSED: the result of a call. Returns
 * EXIT_GUEST where the guest refused it, else EXIT_CASEMATE. */
int files_fail(const struct casemate *c, const struct place *place);

/* ls VM:DIR */
int files_list(struct casemate *c, const struct words *w, const char *word);

#endif
