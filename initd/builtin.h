/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that initd has in itself, for CM_EXEC_BUILTIN: file operations and the like, which
 * need no program in the image. Each runs in a process of its own that initd has forked, with
 * the user, directory, signals and pipes of any other exec; so it may block, and is killed like
 * one. It gives 0 or an errno, after one line on stderr (builtin_fail).
 */
#ifndef CASEMATE_INITD_BUILTIN_H
#define CASEMATE_INITD_BUILTIN_H

#include <stddef.h>
#include <stdint.h>

struct builtin {
	const char *name;
	size_t args;         /* how many come first */
	const char *options; /* names of those NAME=VALUE that may follow, between blanks */
	int (*run)(char *const *args, char *const *options);
};

/* NULL: there is none of this name. */
const struct builtin *builtin_find(const char *name);
/* Checks the words and runs it. The exit code. */
int builtin_run(const struct builtin *builtin, size_t argc, char *const *argv);

/* One line "WHAT NAME: REASON" on stderr. Returns the error. */
int builtin_fail(int error, const char *what, const char *name);
/* The value of an option, or NULL. */
const char *builtin_option(char *const *options, const char *name);
/* 0, or EINVAL after saying so. Untouched where the option is not given. */
int builtin_option_number(char *const *options, const char *name, unsigned int base, uint64_t max,
			  uint64_t *ret);
int builtin_option_yes(char *const *options, const char *name, int *ret);

/* Writes all of it. 0 or an errno. */
int builtin_write(int fd, const void *bytes, size_t size);
/* The directory (PATH_MAX bytes) and the last part of a path: "" after a slash. 0, or
 * ENAMETOOLONG, ENOENT for "". */
int builtin_split(const char *path, char *dir, const char **ret_base);

/* builtin_connect.c */
int builtin_connect(char *const *args, char *const *options);
/* builtin_data.c */
int builtin_put(char *const *args, char *const *options);
int builtin_get(char *const *args, char *const *options);
int builtin_symlink(char *const *args, char *const *options);
int builtin_mv(char *const *args, char *const *options);
/* builtin_file.c */
int builtin_mkdir(char *const *args, char *const *options);
int builtin_chmod(char *const *args, char *const *options);
int builtin_rm(char *const *args, char *const *options);
/* builtin_list.c */
int builtin_ls(char *const *args, char *const *options);
int builtin_stat(char *const *args, char *const *options);
/* builtin_watch.c */
int builtin_watch(char *const *args, char *const *options);

#endif
