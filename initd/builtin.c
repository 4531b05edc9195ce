/* SPDX-License-Identifier: Apache-2.0 */
/* The table of builtins and what they share; see builtin.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "initd/builtin.h"

#define LINE_MAX_BYTES 1024

static const struct builtin builtins[] = {
	{"chmod", 1, "mode", builtin_chmod},
	{"connect", 1, "", builtin_connect},
	{"get", 1, "offset length", builtin_get},
	{"ls", 1, "recursive", builtin_ls},
	{"mkdir", 1, "mode parents", builtin_mkdir},
	{"mv", 2, "", builtin_mv},
	{"put", 1, "mode size", builtin_put},
	{"rm", 1, "recursive", builtin_rm},
	{"stat", 1, "follow", builtin_stat},
	{"symlink", 1, "target", builtin_symlink},
	{"watch", 1, "tree", builtin_watch},
};

const struct builtin *builtin_find(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(builtins) / sizeof(builtins[0]); i++)
		if (!strcmp(builtins[i].name, name))
			return &builtins[i];
	return NULL;
}

/* Names are the task's: what could steer a terminal or make a second line is left out. */
static void line_clean(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 32 || *text == 127)
			*text = '?';
}

int builtin_fail(int error, const char *what, const char *name)
{
	char line[LINE_MAX_BYTES];
	size_t n;

	/* The end of a long name is cut off, never the reason. */
	snprintf(line, sizeof(line) - 128, "%s%s%s", what, *name ? " " : "", name);
	n = strlen(line);
	snprintf(line + n, sizeof(line) - n - 1, ": %s", strerror(error));
	line_clean(line);
	n = strlen(line);
	line[n++] = '\n';
	(void)!write(2, line, n);
	return error;
}

static int name_in(const char *names, const char *word, size_t length)
{
	size_t n;

	for (; *names; names += n + (names[n] == ' ')) {
		n = strcspn(names, " ");
		if (n == length && !strncmp(names, word, length))
			return 1;
	}
	return 0;
}

int builtin_run(const struct builtin *builtin, size_t argc, char *const *argv)
{
	size_t i, length;

	if (argc < 1 + builtin->args)
		return builtin_fail(EINVAL, "too few words for", builtin->name);
	for (i = 1 + builtin->args; i < argc; i++) {
		length = strcspn(argv[i], "=");
		if (!argv[i][length] || !name_in(builtin->options, argv[i], length))
			return builtin_fail(EINVAL, "no such option:", argv[i]);
	}
	return builtin->run(argv + 1, argv + 1 + builtin->args);
}

const char *builtin_option(char *const *options, const char *name)
{
	size_t length = strlen(name);

	for (; *options; options++)
		if (!strncmp(*options, name, length) && (*options)[length] == '=')
			return *options + length + 1;
	return NULL;
}

int builtin_option_number(char *const *options, const char *name, unsigned int base, uint64_t max,
			  uint64_t *ret)
{
	const char *text = builtin_option(options, name);
	unsigned long long value;
	char *end;

	if (!text)
		return 0;
	errno = 0;
	value = strtoull(text, &end, (int)base);
	if (*text < '0' || *text > '9' || *end || errno || value > max)
		return builtin_fail(EINVAL, name, text);
	*ret = value;
	return 0;
}

int builtin_option_yes(char *const *options, const char *name, int *ret)
{
	const char *text = builtin_option(options, name);

	if (!text)
		return 0;
	if (strcmp(text, "yes") && strcmp(text, "no"))
		return builtin_fail(EINVAL, name, text);
	*ret = *text == 'y';
	return 0;
}

int builtin_write(int fd, const void *bytes, size_t size)
{
	const char *at = bytes;
	ssize_t n;

	for (; size; size -= (size_t)n, at += n) {
		n = write(fd, at, size);
		if (n < 0 && errno != EINTR)
			return errno;
		if (n < 0)
			n = 0;
	}
	return 0;
}

int builtin_split(const char *path, char *dir, const char **ret_base)
{
	const char *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) + 1 : 0;

	if (!*path)
		return ENOENT;
	if (length >= PATH_MAX)
		return ENAMETOOLONG;
	memcpy(dir, path, length);
	dir[length] = 0;
	if (!slash)
		strcpy(dir, ".");
	*ret_base = path + length;
	return 0;
}
