/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks an EROFS image (the format is in Linux's Documentation/filesystems/erofs.rst and
 * fs/erofs/erofs_fs.h). `casemate image build` checks with it what mkfs.erofs has made
 * before it gives the file its name: the guest maps files in place, so every regular file
 * must be one run of whole blocks, and the image must use no feature the guest does not
 * know. Only uncompressed, flat images are understood; everything else is an error, never
 * a guess.
 *
 * The image is not trusted: each offset is checked against the size, directories are
 * walked with a stack of our own, and the number of entries visited is bounded by what
 * the image can hold, so that a directory that contains itself ends the walk.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tools/casemate/image_erofs.h"

#define SUPER_OFFSET 1024u
#define SUPER_MAGIC  0xe0f5e1e2u
#define DIRENT_SIZE  12u
#define PATH_LIMIT   4096u

enum { LAYOUT_PLAIN = 0, LAYOUT_INLINE = 2 };

struct walk {
	const uint8_t *map;
	size_t size;
	uint64_t meta; /* byte offset that nids count from */
	erofs_visit_fn *visit;
	void *arg;
	char *why;
	size_t why_size;
	uint64_t budget; /* entries that may still be visited */
	char path[PATH_LIMIT];
};

/* A directory being read. */
struct level {
	struct erofs_entry dir;
	uint64_t inode_end; /* where an inline tail starts */
	uint64_t block;     /* byte offset of the block at hand within the directory */
	uint32_t entry;     /* next entry in it */
	size_t path_length;
};

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const uint8_t *p)
{
	return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static uint64_t get64(const uint8_t *p)
{
	return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static int walk_fail(struct walk *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int walk_fail(struct walk *w, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(w->why, w->why_size, format, args);
	va_end(args);
	return -EINVAL;
}

static bool range_ok(const struct walk *w, uint64_t at, uint64_t length)
{
	return at <= w->size && length <= w->size - at;
}

static int inode_read(struct walk *w, uint64_t nid, struct erofs_entry *ret,
		      uint64_t *ret_inode_end)
{
	uint64_t at, xattrs;
	const uint8_t *p;
	uint16_t format;
	bool extended;

	if (nid > w->size / 32 || __builtin_add_overflow(w->meta, nid * 32, &at) ||
	    !range_ok(w, at, 32))
		return walk_fail(w, "%s: inode outside the image", w->path);
	p = w->map + at;
	format = get16(p);
	extended = format & 1;
	if (!range_ok(w, at, extended ? 64 : 32))
		return walk_fail(w, "%s: inode outside the image", w->path);
	*ret = (struct erofs_entry){
		.path = w->path,
		.nid = nid,
		.mode = get16(p + 4),
		.layout = format >> 1 & 7,
		.size = extended ? get64(p + 8) : get32(p + 8),
		.start = (uint64_t)get32(p + 16) * EROFS_BLOCK,
		.uid = extended ? get32(p + 24) : get16(p + 24),
		.gid = extended ? get32(p + 28) : get16(p + 26),
		.mtime = extended ? get64(p + 32) : 0,
		.mtime_ns = extended ? get32(p + 40) : 0,
		.links = extended ? get32(p + 44) : get16(p + 6),
	};
	xattrs = get16(p + 2);
	xattrs = xattrs ? 12 + (xattrs - 1) * 4 : 0;
	*ret_inode_end = at + (extended ? 64 : 32) + xattrs;
	return 0;
}

/* Where the block at `offset` of a flat file lies. */
static int block_find(struct walk *w, const struct erofs_entry *e, uint64_t inode_end,
		      uint64_t offset, uint64_t *ret_at, uint32_t *ret_length)
{
	uint64_t left = e->size - offset, at;
	uint32_t length = left < EROFS_BLOCK ? (uint32_t)left : EROFS_BLOCK;

	if (e->layout == LAYOUT_INLINE && left <= EROFS_BLOCK && e->size % EROFS_BLOCK)
		at = inode_end;
	else if (e->layout == LAYOUT_PLAIN || e->layout == LAYOUT_INLINE)
		at = e->start + offset;
	else
		return walk_fail(w, "%s: data layout %u", w->path, e->layout);
	if (!range_ok(w, at, length))
		return walk_fail(w, "%s: data outside the image", w->path);
	*ret_at = at;
	*ret_length = length;
	return 0;
}

/* Visits the entry whose path is in w->path; directories are opened in *ret. */
static int entry_visit(struct walk *w, uint64_t nid, struct level *ret, bool *ret_is_dir)
{
	struct erofs_entry e;
	uint64_t inode_end = 0, at;
	uint32_t length;
	const char *why;
	int error;

	if (!w->budget--)
		return walk_fail(w, "%s: more entries than the image can hold", w->path);
	error = inode_read(w, nid, &e, &inode_end);
	if (error)
		return error;
	if (S_ISREG(e.mode) && e.layout == LAYOUT_PLAIN && !range_ok(w, e.start, e.size))
		return walk_fail(w, "%s: data outside the image", w->path);
	/* All of what the guest reads as text must be there too. */
	if (S_ISLNK(e.mode) && e.size) {
		error = block_find(w, &e, inode_end, 0, &at, &length);
		if (error)
			return error;
	}
	why = w->visit(w->arg, &e);
	if (why)
		return walk_fail(w, "%s: %s", w->path, why);
	*ret_is_dir = S_ISDIR(e.mode);
	*ret = (struct level){
		.dir = e, .inode_end = inode_end, .path_length = strlen(w->path)};
	return 0;
}

/* Puts the next name of the directory behind its path. 1: *ret_nid; 0: end. */
static int dir_next(struct walk *w, struct level *l, uint64_t *ret_nid)
{
	uint32_t length, count, name, end;
	size_t slash = l->path_length > 1, name_length;
	const uint8_t *block;
	uint64_t at;
	int error;

	for (; l->block < l->dir.size; l->block += EROFS_BLOCK, l->entry = 0) {
		w->path[l->path_length] = 0;
		error = block_find(w, &l->dir, l->inode_end, l->block, &at, &length);
		if (error)
			return error;
		block = w->map + at;
		count = length < DIRENT_SIZE ? 0 : get16(block + 8) / DIRENT_SIZE;
		if (!count || count * DIRENT_SIZE > length)
			return walk_fail(w, "%s: malformed directory", w->path);
		while (l->entry < count) {
			const uint8_t *d = block + l->entry * DIRENT_SIZE;

			name = get16(d + 8);
			end = l->entry + 1 < count ? get16(d + DIRENT_SIZE + 8) : length;
			l->entry++;
			if (name >= end || end > length)
				return walk_fail(w, "%s: malformed directory", w->path);
			/* The last name of a block may be padded with zero bytes. */
			name_length = strnlen((const char *)block + name, end - name);
			if (!name_length || name_length > 255 ||
			    l->path_length + slash + name_length >= PATH_LIMIT)
				return walk_fail(w, "%s: malformed name", w->path);
			if (block[name] == '.' &&
			    (name_length == 1 ||
			     (name_length == 2 && block[name + 1] == '.')))
				continue;
			if (slash)
				w->path[l->path_length] = '/';
			memcpy(w->path + l->path_length + slash, block + name,
			       name_length);
			w->path[l->path_length + slash + name_length] = 0;
			*ret_nid = get64(d);
			return 1;
		}
	}
	return 0;
}

static int walk_tree(struct walk *w, uint64_t root)
{
	size_t depth = 0, size = 64;
	struct level *levels = calloc(size, sizeof(*levels)), *more, next;
	uint64_t nid = 0;
	bool is_dir;
	int error;

	if (!levels)
		return -ENOMEM;
	strcpy(w->path, "/");
	error = entry_visit(w, root, &levels[0], &is_dir);
	if (!error && !is_dir)
		error = walk_fail(w, "/: not a directory");
	for (depth = 1; !error && depth;) {
		error = dir_next(w, &levels[depth - 1], &nid);
		if (error == 0)
			depth--;
		if (error <= 0)
			continue;
		error = entry_visit(w, nid, &next, &is_dir);
		if (error || !is_dir)
			continue;
		if (depth == size) { /* bounded by the length of paths */
			more = realloc(levels, 2 * size * sizeof(*levels));
			if (!more) {
				error = -ENOMEM;
				break;
			}
			levels = more;
			size *= 2;
		}
		levels[depth++] = next;
	}
	free(levels);
	return error;
}

int erofs_walk(const uint8_t *map, size_t size, erofs_visit_fn *visit, void *arg,
	       char *ret_why, size_t why_size)
{
	const uint8_t *super = map + SUPER_OFFSET;
	struct walk *w = calloc(1, sizeof(*w));
	int error;

	if (!w)
		return -ENOMEM;
	*w = (struct walk){.map = map,
			   .size = size,
			   .visit = visit,
			   .arg = arg,
			   .why = ret_why,
			   .why_size = why_size,
			   .budget = size / DIRENT_SIZE + 1};
	if (size < EROFS_BLOCK)
		error = walk_fail(w, "smaller than one block");
	else if (get32(super) != SUPER_MAGIC)
		error = walk_fail(w, "no EROFS superblock");
	else if (super[12] != 12)
		error = walk_fail(w, "block size is not 4096");
	else if (get32(super + 80))
		error = walk_fail(w, "unknown features 0x%x", get32(super + 80));
	else if ((uint64_t)get32(super + 36) * EROFS_BLOCK > size)
		error = walk_fail(w, "shorter than its superblock says");
	else {
		w->meta = (uint64_t)get32(super + 40) * EROFS_BLOCK;
		error = walk_tree(w, get16(super + 14));
	}
	free(w);
	return error;
}
