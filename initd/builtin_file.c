/* SPDX-License-Identifier: Apache-2.0 */
/* Builtins that act on names: each is a system call or a few. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "initd/builtin.h"

/* What is missing of the directories above. */
static int parents_make(char *path)
{
	struct stat st;
	char *slash;
	int r;

	for (slash = path + 1; *slash; slash++) {
		if (*slash != '/')
			continue;
		*slash = 0;
		r = mkdir(path, 0777) < 0 && errno != EEXIST && stat(path, &st) < 0 ? errno :
										      0;
		*slash = '/';
		if (r)
			return r;
	}
	return 0;
}

int builtin_mkdir(char *const *args, char *const *options)
{
	uint64_t mode = 0777;
	int parents = 0, r;
	struct stat st;
	char *path = args[0];

	r = builtin_option_number(options, "mode", 8, 07777, &mode);
	if (!r)
		r = builtin_option_yes(options, "parents", &parents);
	if (r)
		return r;
	if (parents && *path && (r = parents_make(path)))
		return builtin_fail(r, "cannot make the directories above", path);
	if (mkdir(path, 0777) < 0) {
		r = errno;
		if (parents && r == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			return 0;
		return builtin_fail(r, "cannot make", path);
	}
	/* As asked, whatever the mask. */
	if (builtin_option(options, "mode") && chmod(path, (mode_t)mode) < 0)
		return builtin_fail(errno, "cannot set the mode of", path);
	return 0;
}
