/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader for uncompressed EROFS images, as mkfs.erofs 1.5 writes them.
 *
 * On-disk format: Linux's Documentation/filesystems/erofs.rst and fs/erofs/erofs_fs.h, little
 * endian, 4 KiB blocks. An inode number ("nid") is a place: meta area + nid * 32. Data is
 * either plain (contiguous blocks) or plain with its last part inline behind the inode and
 * its extended attributes. Compressed and chunked inodes are refused one by one.
 *
 * Nothing here trusts the image: every read goes through at(), which checks the range; nothing
 * is followed twice, so loops among directories are the caller's (who loads one directory at
 * a time) and cost nothing here.
 */
#include "guest-kernel/fs/erofs.h"

#define BLOCK		4096u
#define SUPER_OFF	1024u
#define SUPER_SIZE	128u
#define MAGIC		0xe0f5e1e2u
#define COMPAT_CHKSUM	0x1u
/* Those that change nothing for uncompressed inodes. Others are refused. */
#define INCOMPAT_KNOWN	(0x1u /* lz4 0padding */ | 0x2u /* compr cfgs */ | 0x4u /* chunks */ | \
			 0x10u /* ztailpacking */ | 0x20u /* fragments */)
#define INCOMPAT_CFGS	0x2u

#define S_FMT		0170000u
#define S_REG		0100000u
#define S_DIR		0040000u
#define S_LNK		0120000u
#define S_CHR		0020000u
#define S_BLK		0060000u
#define S_FIFO		0010000u
#define S_SOCK		0140000u

enum layout { FLAT_PLAIN = 0, COMPRESSED_FULL = 1, FLAT_INLINE = 2, COMPRESSED = 3, CHUNK = 4 };

static uint16_t le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t le32(const uint8_t *p)
{
	return (uint32_t)le16(p) | (uint32_t)le16(p + 2) << 16;
}

static uint64_t le64(const uint8_t *p)
{
	return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

static const uint8_t *at(const struct erofs *fs, uint64_t off, uint64_t n)
{
	if (off > fs->size || n > fs->size - off)
		return NULL;
	return fs->image + off;
}

/* CRC-32C as Linux's crc32c(): no final inversion. */
static uint32_t crc32c_byte(uint32_t crc, uint8_t b)
{
	crc ^= b;
	for (unsigned k = 0; k < 8; k++)
		crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
	return crc;
}

static bool checksum_ok(const uint8_t *super)
{
	uint32_t crc = ~0u;

	for (unsigned k = 0; k < BLOCK - SUPER_OFF; k++)
		crc = crc32c_byte(crc, k >= 4 && k < 8 ? 0 : super[k]);
	return crc == le32(super + 4);
}

static bool zeroed(const uint8_t *p, size_t n)
{
	while (n > 0 && p[n - 1] == 0)
		n--;
	return n == 0;
}

int erofs_open(struct erofs *fs, const void *image, uint64_t size, const char **why)
{
	const uint8_t *sb;
	struct erofs_inode root;
	uint32_t incompat;

	memset(fs, 0, sizeof(*fs));
	fs->image = image;
	fs->size = size;
	sb = at(fs, SUPER_OFF, BLOCK - SUPER_OFF);
	*why = "too small for an EROFS image";
	if (sb == NULL)
		return -EINVAL;
	*why = "no EROFS superblock";
	if (le32(sb) != MAGIC)
		return -EINVAL;
	*why = "EROFS block size is not 4096";
	if (sb[12] != 12)
		return -EOPNOTSUPP;
	*why = "EROFS superblock checksum is wrong";
	if ((le32(sb + 8) & COMPAT_CHKSUM) != 0 && !checksum_ok(sb))
		return -EUCLEAN;
	incompat = le32(sb + 80);
	*why = "EROFS image uses features that are not supported";
	if ((incompat & ~INCOMPAT_KNOWN) != 0 || sb[90] != 0)
		return -EOPNOTSUPP;
	*why = "EROFS image uses further devices";
	if (le16(sb + 86) != 0)
		return -EOPNOTSUPP;
	fs->meta_off = (uint64_t)le32(sb + 40) * BLOCK;
	fs->xattr_off = (uint64_t)le32(sb + 44) * BLOCK;
	fs->root_nid = le16(sb + 14);
	fs->inos = le64(sb + 16);
	fs->build_ns = le64(sb + 24) > INT64_MAX / 1000000000u ?
			       0 : le64(sb + 24) * 1000000000u + le32(sb + 32) % 1000000000u;
	*why = "EROFS root directory is damaged";
	if (erofs_inode_read(fs, fs->root_nid, &root) != 0 || (root.mode & S_FMT) != S_DIR)
		return -EUCLEAN;
	*why = NULL;
	return 0;
}

static int check_mode(uint32_t mode)
{
	switch (mode & S_FMT) {
	case S_REG:
	case S_DIR:
	case S_LNK:
	case S_CHR:
	case S_BLK:
	case S_FIFO:
	case S_SOCK:
		return 0;
	}
	return -EUCLEAN;
}

/* Where the data lies, checked whole: blocks inside the image, the tail inside its block. */
static int place_data(const struct erofs *fs, struct erofs_inode *ei, unsigned layout,
		      uint32_t blkaddr, uint64_t behind)
{
	uint64_t tail;

	if (ei->size == 0)
		return 0;
	switch (layout) {
	case FLAT_PLAIN:
		ei->data_len = ei->size;
		break;
	case FLAT_INLINE:
		tail = ei->size % BLOCK;
		ei->data_len = ei->size - tail;
		ei->tail_off = behind;
		if (tail != 0 && (behind % BLOCK + tail > BLOCK || at(fs, behind, tail) == NULL))
			return -EUCLEAN;
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (ei->data_len > fs->size)
		return -EUCLEAN;
	ei->data_off = (uint64_t)blkaddr * BLOCK;
	/* The last block must be there whole: it is mapped by the page. */
	if (ei->data_len != 0 && at(fs, ei->data_off, ALIGN_UP(ei->data_len, BLOCK)) == NULL)
		return -EUCLEAN;
	return 0;
}

int erofs_inode_read(const struct erofs *fs, uint64_t nid, struct erofs_inode *ret)
{
	struct erofs_inode ei = {.nid = nid};
	uint64_t off, head;
	unsigned format, layout, icount;
	uint32_t u;
	const uint8_t *p;
	int r;

	if (nid > UINT64_MAX / 64 ||
	    __builtin_add_overflow(fs->meta_off, nid * 32, &off))
		return -EUCLEAN;
	p = at(fs, off, 32);
	if (p == NULL)
		return -EUCLEAN;
	format = le16(p);
	layout = (format >> 1) & 7;
	icount = le16(p + 2);
	ei.mode = le16(p + 4);
	u = le32(p + 16);
	if ((format & 1) == 0) {
		head = 32;
		ei.nlink = le16(p + 6);
		ei.size = le32(p + 8);
		ei.uid = le16(p + 24);
		ei.gid = le16(p + 26);
		ei.mtime_ns = fs->build_ns;
	} else {
		head = 64;
		p = at(fs, off, 64);
		if (p == NULL)
			return -EUCLEAN;
		ei.size = le64(p + 8);
		ei.uid = le32(p + 24);
		ei.gid = le32(p + 28);
		ei.mtime_ns = le64(p + 32) > INT64_MAX / 1000000000u ?
				      0 : le64(p + 32) * 1000000000u +
						  le32(p + 40) % 1000000000u;
		ei.nlink = le32(p + 44);
	}
	if ((format & ~0xfu) != 0 || check_mode(ei.mode) != 0 || ei.size > INT64_MAX)
		return -EUCLEAN;
	if (icount != 0) {
		ei.xattr_off = off + head;
		ei.xattr_len = 12 + (icount - 1) * 4;
		if (at(fs, ei.xattr_off, ei.xattr_len) == NULL)
			return -EUCLEAN;
	}
	switch (ei.mode & S_FMT) {
	case S_REG:
	case S_DIR:
	case S_LNK:
		r = place_data(fs, &ei, layout, u, off + head + ei.xattr_len);
		if (r != 0)
			return r;
		break;
	default:
		ei.size = 0;
		ei.rdev = u;
	}
	*ret = ei;
	return 0;
}

const uint8_t *erofs_data(const struct erofs *fs, const struct erofs_inode *ei, uint64_t off,
			  size_t n)
{
	if (off > ei->size || n > ei->size - off || off % BLOCK + n > BLOCK)
		return NULL;
	if (off < ei->data_len)
		return at(fs, ei->data_off + off, n);
	return at(fs, ei->tail_off + (off - ei->data_len), n);
}

static bool name_ok(const uint8_t *name, size_t len)
{
	if (len == 0 || len > EROFS_ROOT_MAX_NAME)
		return false;
	for (size_t k = 0; k < len; k++) {
		if (name[k] == 0 || name[k] == '/')
			return false;
	}
	return true;
}

/* Types on disk (FT_*) are not DT_*. */
static unsigned dt_of(unsigned ft)
{
	static const uint8_t map[] = {0, 8, 4, 2, 6, 1, 12, 10};

	return ft < sizeof(map) ? map[ft] : 0;
}

static int dir_block(const uint8_t *b, unsigned size, erofs_dir_fn fn, void *ctx)
{
	unsigned first, count;

	if (size < 12)
		return -EUCLEAN;
	first = le16(b + 8);
	if (first < 12 || first % 12 != 0 || first > size)
		return -EUCLEAN;
	count = first / 12;
	for (unsigned k = 0; k < count; k++) {
		const uint8_t *e = b + k * 12;
		unsigned start = le16(e + 8);
		unsigned end = k + 1 < count ? le16(e + 12 + 8) : size;
		size_t len;
		int r;

		if (start < first || start >= end || end > size)
			return -EUCLEAN;
		len = end - start;
		if (k + 1 == count) {	/* the last name may end before the block does */
			const uint8_t *z = memchr(b + start, 0, len);

			if (z != NULL)
				len = (size_t)(z - (b + start));
		}
		if (!name_ok(b + start, len))
			return -EUCLEAN;
		if (b[start] == '.' && (len == 1 || (len == 2 && b[start + 1] == '.')))
			continue;
		r = fn(ctx, (const char *)b + start, len, le64(e), dt_of(e[10]));
		if (r != 0)
			return r;
	}
	return 0;
}

int erofs_dir_each(const struct erofs *fs, const struct erofs_inode *ei, erofs_dir_fn fn,
		   void *ctx)
{
	for (uint64_t off = 0; off < ei->size; off += BLOCK) {
		unsigned n = ei->size - off < BLOCK ? (unsigned)(ei->size - off) : BLOCK;
		const uint8_t *b = erofs_data(fs, ei, off, n);
		int r;

		if (b == NULL)
			return -EUCLEAN;
		r = dir_block(b, n, fn, ctx);
		if (r != 0)
			return r;
	}
	return 0;
}

/* One entry at p of at most `room` bytes: its size, or 0 when it does not fit. */
static size_t xattr_entry(const uint8_t *p, size_t room, erofs_xattr_fn fn, void *ctx, int *ret)
{
	static const char *const prefixes[] = {
		NULL, "user.", "system.posix_acl_access", "system.posix_acl_default",
		"trusted.", NULL, "security.",
	};
	size_t name_len, value_len, n;
	unsigned index;

	*ret = 0;
	if (room < 4)
		return 0;
	name_len = p[0];
	index = p[1];
	value_len = le16(p + 2);
	n = 4 + name_len + value_len;
	if (n > room)
		return 0;
	if (index < ARRAY_SIZE(prefixes) && prefixes[index] != NULL &&
	    memchr(p + 4, 0, name_len) == NULL)
		*ret = fn(ctx, prefixes[index], (const char *)p + 4, name_len,
			  p + 4 + name_len, value_len);
	return ALIGN_UP(n, 4);
}

int erofs_xattr_each(const struct erofs *fs, const struct erofs_inode *ei, erofs_xattr_fn fn,
		     void *ctx)
{
	const uint8_t *area = ei->xattr_len != 0 ? at(fs, ei->xattr_off, ei->xattr_len) : NULL;
	size_t off, n;
	unsigned shared;
	int r;

	if (area == NULL)
		return 0;
	shared = area[4];
	off = 12 + shared * 4;
	if (off > ei->xattr_len)
		return -EUCLEAN;
	for (unsigned k = 0; k < shared; k++) {
		uint64_t where = fs->xattr_off + (uint64_t)le32(area + 12 + k * 4) * 4;

		if (where >= fs->size)
			return -EUCLEAN;
		n = xattr_entry(fs->image + where, fs->size - where, fn, ctx, &r);
		if (n == 0 || r != 0)
			return n == 0 ? -EUCLEAN : r;
	}
	/* What is left holds entries; zeros pad it. */
	while (off + 4 <= ei->xattr_len && !zeroed(area + off, ei->xattr_len - off)) {
		n = xattr_entry(area + off, ei->xattr_len - off, fn, ctx, &r);
		if (n == 0 || r != 0)
			return n == 0 ? -EUCLEAN : r;
		off += n;
	}
	return 0;
}
