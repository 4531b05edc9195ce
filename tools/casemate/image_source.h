/* SPDX-License-Identifier: Apache-2.0 */
/* Where an image's files come from. See image_source.c. */
#ifndef CASEMATE_TOOLS_IMAGE_SOURCE_H
#define CASEMATE_TOOLS_IMAGE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

struct source_summary {
	uint64_t entries;
	uint64_t bytes;       /* of regular files, rounded up to blocks */
	int64_t newest;       /* latest modification time, seconds since 1970 */
	uint64_t with_xattrs; /* entries whose extended attributes are left out */
	char longest[4096];   /* a path whose last name has all 255 bytes, "" for none */
	bool all_root;        /* owners are to be replaced by root */
};

/* Looks at every file of the tree and refuses what an image cannot hold, naming it. 0 or
 * -errno, with the reason printed. */
int source_scan(const char *dir, struct source_summary *ret);

/* Unpacks a tar archive into the empty directory `dir`. 0 or -errno, reason printed. */
int source_extract_tar(const char *tar, const char *dir);

/* Installs Debian packages into `dir`, which must not exist. `work` is a directory for
 * temporary files. 0 or -errno, reason printed. */
int source_install_debian(const char *packages, const char *dir, const char *work);

/* Removes a tree of ours, whatever it holds. */
void source_remove_tree(const char *dir);

/* One line on stderr, "casemate: image build: ..." Returns -errno of `error`. */
int image_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Shows what a child does, arg, with the last line it said. */
void image_progress_child(void *arg, const char *last);

#endif
