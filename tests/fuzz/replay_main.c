/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over files, for builds without a fuzzer:
 *   target CORPUS-DIRECTORY-OR-FILE...
 * Each file is also given cut short and with single bytes changed, by a fixed rule, so that a
 * corpus is worth more than its files.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_MAX	(1u << 20)
#define CHANGES		400u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned int runs;

static void give(const uint8_t *data, size_t size)
{
	/* Its own allocation of the exact size: a sanitizer sees every byte beyond. */
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	runs++;
}

static void file_run(const char *path)
{
	uint8_t *data = malloc(INPUT_MAX);
	FILE *file = fopen(path, "rb");
	uint32_t random = 2463534242u;
	size_t size;

	if (!file || !data) {
		perror(path);
		exit(2);
	}
	size = fread(data, 1, INPUT_MAX, file);
	fclose(file);
	give(data, size);
	for (unsigned int i = 0; i < CHANGES && size > 0; i++) {
		uint8_t before;
		size_t at;

		random ^= random << 13;
		random ^= random >> 17;
		random ^= random << 5;
		at = random % size;
		before = data[at];
		data[at] = (uint8_t)(random >> 24);
		give(data, size);
		give(data, at);
		data[at] = before;
	}
	free(data);
}

static void path_run(const char *path)
{
	struct stat st;
	struct dirent *entry;
	DIR *dir;

	if (stat(path, &st) < 0) {
		perror(path);
		exit(2);
	}
	if (!S_ISDIR(st.st_mode)) {
		file_run(path);
		return;
	}
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		char name[4096];

		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (entry->d_name[0] != '.')
			file_run(name);
	}
	if (dir)
		closedir(dir);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		path_run(argv[i]);
	printf("%u runs\n", runs);
	return runs ? 0 : 2;
}
