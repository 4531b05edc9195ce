/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main() for fuzz targets that are not built with a fuzzing engine: runs the target once
 * on every file of the directories given, so that a corpus is replayed as an ordinary
 * test.
 */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int file_replay(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint8_t *data;
	size_t size;

	if (!f || fstat(fileno(f), &st) < 0) {
		perror(path);
		return 1;
	}
	/* Exactly the size, so that a sanitizer sees reads beyond it. */
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	if (!data)
		return 1;
	size = fread(data, 1, (size_t)st.st_size, f);
	fclose(f);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	return 0;
}

static int dir_replay(const char *dir, unsigned int *count)
{
	char path[PATH_MAX];
	struct dirent *e;
	DIR *d = opendir(dir);
	int failed = 0;

	if (!d) {
		perror(dir);
		return 1;
	}
	while (!failed && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		failed = file_replay(path);
		++*count;
	}
	closedir(d);
	return failed;
}

int main(int argc, char **argv)
{
	unsigned int count = 0;
	int i;

	for (i = 1; i < argc; i++)
		if (dir_replay(argv[i], &count))
			return 1;
	printf("%u inputs\n", count);
	return count ? 0 : 1;
}
