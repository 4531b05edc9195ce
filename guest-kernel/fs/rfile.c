/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of regular files in memory.
 *
 * A page of a file is, in this order: an own frame, in a radix tree by page index; a page of
 * the base (the image's bytes, contiguous and never copied until written; its last part may
 * lie inline elsewhere); a hole. Writing puts an own frame over the base or the hole and takes
 * away mappings of what was there before.
 *
 * Invariants: the base ends at or below the file's size; if the file is longer than the base,
 * the base's last partial page has an own frame over it, so that a page of the base never
 * needs zeros behind it. Own frames may lie beyond the end (fallocate with KEEP_SIZE).
 *
 * Speed: long writes to new pages take frames in blocks of up to 2 MiB and copy straight into
 * them, unzeroed; reads and rewrites copy runs of frames that happen to be contiguous.
 */
#include <linux/falloc.h>
#include <linux/fcntl.h>
#include <linux/fs.h>
#include <linux/mman.h>

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/memfs.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"

#define NODE_BITS	6
#define NODE_SLOTS	64u
#define BATCH_ORDER	9		/* 2 MiB */
#define NO_INDEX	UINT64_MAX

/* ---- the tree of own frames ---- */

static uint64_t *tree_slot(struct rdata *rd, uint64_t index, bool create)
{
	uint64_t *p = &rd->root;

	while (rd->height * NODE_BITS < 64 && index >> (rd->height * NODE_BITS) != 0) {
		uint64_t *node;

		if (!create)
			return NULL;
		node = kzalloc(NODE_SLOTS * sizeof(*node));
		if (node == NULL)
			return NULL;
		node[0] = rd->root;
		rd->root = (uint64_t)(uintptr_t)node;
		rd->height++;
	}
	for (unsigned h = rd->height; h > 0; h--) {
		uint64_t *node = (uint64_t *)(uintptr_t)*p;

		if (node == NULL) {
			if (!create)
				return NULL;
			node = kzalloc(NODE_SLOTS * sizeof(*node));
			if (node == NULL)
				return NULL;
			*p = (uint64_t)(uintptr_t)node;
		}
		p = &node[(index >> ((h - 1) * NODE_BITS)) % NODE_SLOTS];
	}
	return p;
}

static paddr_t tree_get(struct rdata *rd, uint64_t index)
{
	uint64_t *p = tree_slot(rd, index, false);

	return p != NULL ? *p : 0;
}

/* First index >= from that has a frame, in the subtree of height h that starts at `start`. */
static uint64_t next_in(uint64_t entry, unsigned h, uint64_t start, uint64_t from)
{
	const uint64_t *node = (const uint64_t *)(uintptr_t)entry;
	unsigned shift = (h - 1) * NODE_BITS;
	unsigned k = 0;

	if (entry == 0)
		return NO_INDEX;
	if (h == 0)
		return start >= from ? start : NO_INDEX;
	if (from > start)
		k = (unsigned)((from - start) >> shift);
	for (; k < NODE_SLOTS; k++) {
		uint64_t found = node[k] == 0 ? NO_INDEX :
				 next_in(node[k], h - 1, start + ((uint64_t)k << shift), from);

		if (found != NO_INDEX)
			return found;
	}
	return NO_INDEX;
}

static uint64_t tree_next(struct rdata *rd, uint64_t from)
{
	if (rd->npages == 0 ||
	    (rd->height * NODE_BITS < 64 && from >> (rd->height * NODE_BITS) != 0))
		return NO_INDEX;
	return next_in(rd->root, rd->height, 0, from);
}

static void free_nodes(uint64_t entry, unsigned h)
{
	uint64_t *node = (uint64_t *)(uintptr_t)entry;

	if (h == 0 || node == NULL)
		return;
	for (unsigned k = 0; h > 1 && k < NODE_SLOTS; k++)
		free_nodes(node[k], h - 1);
	kfree(node);
}

/* ---- accounting ---- */

static bool charge(struct inode *i, uint64_t n)
{
	struct memfs *m = memfs(i->sb);

	if (n > INT32_MAX || (m->max_pages != 0 && n > m->max_pages - m->pages))
		return false;
	if (!shmem_charge((long)n))
		return false;
	m->pages += n;
	return true;
}

static void uncharge(struct inode *i, uint64_t n)
{
	if (n == 0)
		return;
	memfs(i->sb)->pages -= n;
	shmem_charge(-(long)n);
}

/* Mappings show something else from now on; so do patched copies of program text. */
static void zap(struct inode *i, uint64_t first, uint64_t last, bool even_private)
{
	if (!TAILQ_EMPTY(&i->mappings) || i->patched)
		mm_zap_inode(i, first, last, even_private);
}

/* ---- the base ---- */

static uint64_t base_pages(const struct rdata *rd)
{
	return (rd->base_size + PAGE_SIZE - 1) >> PAGE_SHIFT;
}

/* Bytes of page `index` in the base and how many follow contiguously; NULL: none. */
static const uint8_t *base_at(const struct rdata *rd, uint64_t index, uint64_t *ret_n)
{
	uint64_t off = index << PAGE_SHIFT;

	if (index >= base_pages(rd))
		return NULL;
	if (rd->tail != NULL) {
		if (index == rd->base_size >> PAGE_SHIFT) {
			*ret_n = rd->base_size - off;
			return rd->tail;
		}
		*ret_n = ALIGN_DOWN(rd->base_size, PAGE_SIZE) - off;
	} else {
		*ret_n = rd->base_size - off;
	}
	return rd->base + off;
}

/*
 * Makes page `index` an own frame. overwrite: the caller will fill it whole, so a fresh frame
 * that covers no base is left as it is. *ret_fresh: it was made now.
 */
static int own_page(struct inode *i, uint64_t index, bool overwrite, paddr_t *ret,
		    bool *ret_fresh)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t *slot = tree_slot(rd, index, true);
	const uint8_t *base;
	struct page *pg;
	uint64_t n = 0;

	*ret_fresh = false;
	if (slot == NULL)
		return -ENOMEM;
	if (*slot != 0) {
		*ret = *slot;
		return 0;
	}
	if (!charge(i, 1))
		return -ENOSPC;
	base = base_at(rd, index, &n);
	pg = page_alloc(0, base == NULL && !overwrite ? PA_ZERO : 0);
	if (pg == NULL) {
		uncharge(i, 1);
		return -ENOMEM;
	}
	/* Reclaim may have run meanwhile, but nothing else touches this file's tree. */
	if (base != NULL) {
		n = MIN(n, PAGE_SIZE);
		memcpy(page_to_virt(pg), base, n);
		memset((uint8_t *)page_to_virt(pg) + n, 0, PAGE_SIZE - n);
	} else {
		i->blocks += 8;
	}
	*slot = *ret = page_to_phys(pg);
	rd->npages++;
	*ret_fresh = true;
	zap(i, index, index + 1, false);
	return 0;
}

static void drop_frame(struct inode *i, uint64_t index)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t *slot = tree_slot(rd, index, false);

	phys_put(*slot);
	*slot = 0;
	rd->npages--;
	if (index >= base_pages(rd) && i->blocks >= 8)
		i->blocks -= 8;
	uncharge(i, 1);
}

static void drop_range(struct inode *i, uint64_t first, uint64_t last)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t index;

	for (index = tree_next(rd, first); index < last; index = tree_next(rd, index + 1))
		drop_frame(i, index);
}

/* Before the file grows: what lies behind its end in its last page becomes zeros. */
static int clear_tail(struct inode *i)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t index = i->size >> PAGE_SHIFT;
	unsigned off = i->size % PAGE_SIZE;
	paddr_t pa;
	bool fresh;

	if (off == 0)
		return 0;
	pa = tree_get(rd, index);
	if (pa == 0) {
		if (index >= base_pages(rd))
			return 0;
		return own_page(i, index, false, &pa, &fresh);
	}
	memset((uint8_t *)phys_to_virt(pa) + off, 0, PAGE_SIZE - off);
	return 0;
}

/* ---- read ---- */

/*
 * Contiguous bytes from page `index` on, up to max pages: *ret_n of them; NULL: that many
 * zeros (whole pages).
 */
static const uint8_t *data_run(struct rdata *rd, uint64_t index, uint64_t max, uint64_t *ret_n)
{
	uint64_t *slot = tree_slot(rd, index, false);
	uint64_t n = 1, next;
	const uint8_t *base;

	if (slot != NULL && *slot != 0) {
		uint64_t in_leaf = rd->height == 0 ? 1 : NODE_SLOTS - index % NODE_SLOTS;

		max = MIN(max, in_leaf);
		while (n < max && slot[n] == slot[0] + (n << PAGE_SHIFT))
			n++;
		*ret_n = n << PAGE_SHIFT;
		return phys_to_virt(slot[0]);
	}
	next = tree_next(rd, index);
	max = MIN(max, next - index);
	base = base_at(rd, index, ret_n);
	if (base != NULL) {
		*ret_n = MIN(*ret_n, max << PAGE_SHIFT);
		return base;
	}
	*ret_n = max << PAGE_SHIFT;
	return NULL;
}

static long rfile_read(struct file *f, struct uio *u, uint64_t *pos)
{
	struct inode *i = f->inode;
	struct rdata *rd = &rnode(i)->data;
	uint64_t at = *pos;
	long done = 0;

	while (u->resid > 0 && at < i->size) {
		uint64_t n = MIN((uint64_t)u->resid, i->size - at);
		unsigned off = at % PAGE_SIZE;
		uint64_t run;
		const uint8_t *p;
		size_t got;

		p = data_run(rd, at >> PAGE_SHIFT, (off + n + PAGE_SIZE - 1) >> PAGE_SHIFT,
			     &run);
		if (run <= off) {	/* behind the base's end, in its last page */
			p = NULL;
			run = PAGE_SIZE;
		}
		n = MIN(n, run - off);
		got = p != NULL ? uio_put(u, p + off, n) : uio_zero(u, n);
		at += got;
		done += (long)got;
		if (got < n) {
			if (done == 0)
				return -EFAULT;
			break;
		}
	}
	*pos = at;
	inode_touch_atime(f);
	return done;
}

/* ---- write ---- */

static void grow_to(struct inode *i, uint64_t end)
{
	if (end > i->size)
		i->size = end;
}

/*
 * Copies into a block of new frames, when the pages from index on are all new. Bytes, or 0
 * when this way is not open (the caller goes page by page, which also finds the error).
 */
static size_t write_batch(struct inode *i, uint64_t index, struct uio *u)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t n = MIN((uint64_t)u->resid >> PAGE_SHIFT, 1ULL << BATCH_ORDER);
	uint64_t next = tree_next(rd, index);
	struct page *pg = NULL;
	unsigned order;
	paddr_t pa;
	size_t got;
	uint64_t keep;

	if (index < base_pages(rd))
		return 0;
	n = MIN(n, next - index);
	if (n < 2)
		return 0;
	for (order = 63 - (unsigned)__builtin_clzll(n); order > 0 && pg == NULL; order--)
		pg = page_alloc(order, PA_NOWAIT);
	if (pg == NULL)
		return 0;
	order++;
	n = 1ULL << order;
	for (uint64_t k = 0; k < n; k += NODE_SLOTS) {
		if (tree_slot(rd, index + k, true) == NULL)
			goto fail;
	}
	if (tree_slot(rd, index + n - 1, true) == NULL || !charge(i, n))
		goto fail;
	page_split(pg);
	pa = page_to_phys(pg);
	got = uio_get(u, phys_to_virt(pa), n << PAGE_SHIFT);
	keep = (got + PAGE_SIZE - 1) >> PAGE_SHIFT;
	memset((uint8_t *)phys_to_virt(pa) + got, 0, (keep << PAGE_SHIFT) - got);
	for (uint64_t k = 0; k < n; k++) {
		if (k < keep)
			*tree_slot(rd, index + k, true) = pa + (k << PAGE_SHIFT);
		else
			phys_put(pa + (k << PAGE_SHIFT));
	}
	uncharge(i, n - keep);
	rd->npages += keep;
	i->blocks += keep * 8;
	zap(i, index, index + keep, false);
	return got;
fail:
	page_put(pg);
	return 0;
}

/* A run of own frames that exist and are contiguous: at least one page, made if need be. */
static long write_pages(struct inode *i, uint64_t at, struct uio *u)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t index = at >> PAGE_SHIFT;
	unsigned off = at % PAGE_SIZE;
	uint64_t want = (off + (uint64_t)u->resid + PAGE_SIZE - 1) >> PAGE_SHIFT;
	uint64_t run, n;
	const uint8_t *p;
	paddr_t pa;
	bool fresh;
	size_t got;
	int r;

	n = MIN((uint64_t)u->resid, PAGE_SIZE - off);
	r = own_page(i, index, n == PAGE_SIZE, &pa, &fresh);
	if (r != 0)
		return r;
	if (fresh) {
		got = uio_get(u, (uint8_t *)phys_to_virt(pa) + off, n);
		if (got < n && n == PAGE_SIZE && index >= base_pages(rd))
			memset((uint8_t *)phys_to_virt(pa) + got, 0, PAGE_SIZE - got);
		return (long)got;
	}
	p = data_run(rd, index, want, &run);
	n = MIN((uint64_t)u->resid, run - off);
	got = uio_get(u, (uint8_t *)(uintptr_t)p + off, n);
	if (unlikely(i->patched))
		zap(i, index, index + (run >> PAGE_SHIFT), false);
	return (long)got;
}

static int write_sealed(struct inode *i, uint64_t pos, struct uio *u)
{
	uint64_t room;

	if (likely(i->seals == 0))
		return 0;
	if ((i->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0)
		return -EPERM;
	if ((i->seals & F_SEAL_GROW) != 0 && pos + u->resid > i->size) {
		room = ALIGN_DOWN(i->size, PAGE_SIZE);
		if (pos >= room)
			return -EPERM;
		u->resid = room - pos;
	}
	return 0;
}

static long rfile_write(struct file *f, struct uio *u, uint64_t *pos)
{
	struct inode *i = f->inode;
	uint64_t at = *pos;
	long done = 0;
	int r = write_sealed(i, at, u);

	if (r == 0 && at > i->size)
		r = clear_tail(i);
	if (r != 0)
		return r;
	while (u->resid > 0) {
		size_t before = u->resid;
		long got = 0;

		if (at % PAGE_SIZE == 0 && before >= 2 * PAGE_SIZE)
			got = (long)write_batch(i, at >> PAGE_SHIFT, u);
		if (got == 0 && u->resid == before)
			got = write_pages(i, at, u);
		if (got <= 0) {
			if (done == 0)
				done = got < 0 ? got : -EFAULT;
			break;
		}
		at += (uint64_t)got;
		done += got;
		grow_to(i, at);
	}
	if (done > 0) {
		*pos = at;
		inode_touch_mtime(i);
	}
	return done;
}

/* ---- seek ---- */

static long seek_data_hole(struct inode *i, uint64_t off, bool data)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t index = off >> PAGE_SHIFT, found;

	if (off >= i->size)
		return -ENXIO;
	if (data) {
		if (index < base_pages(rd))
			return (long)off;
		found = tree_next(rd, index);
		if (found == NO_INDEX || found << PAGE_SHIFT >= i->size)
			return -ENXIO;
		return (long)MAX(off, found << PAGE_SHIFT);
	}
	if (index < base_pages(rd)) {
		index = base_pages(rd);
		off = index << PAGE_SHIFT;
	}
	while (tree_get(rd, index) != 0) {
		index++;
		off = index << PAGE_SHIFT;
	}
	return (long)MIN(off, i->size);
}

static long rfile_lseek(struct file *f, int64_t off, int whence)
{
	struct inode *i = f->inode;
	long r;

	switch (whence) {
	case SEEK_SET:
		break;
	case SEEK_CUR:
		if (__builtin_add_overflow(off, (int64_t)f->pos, &off))
			return -EOVERFLOW;
		break;
	case SEEK_END:
		if (__builtin_add_overflow(off, (int64_t)i->size, &off))
			return -EOVERFLOW;
		break;
	case SEEK_DATA:
	case SEEK_HOLE:
		if (off < 0)
			return -ENXIO;
		r = seek_data_hole(i, (uint64_t)off, whence == SEEK_DATA);
		if (r < 0)
			return r;
		off = r;
		break;
	default:
		return -EINVAL;
	}
	if (off < 0)
		return -EINVAL;
	f->pos = (uint64_t)off;
	return off;
}

/* ---- size changes ---- */

int rfile_truncate(struct inode *i, uint64_t size)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t first = (size + PAGE_SIZE - 1) >> PAGE_SHIFT;
	unsigned off = size % PAGE_SIZE;
	paddr_t pa = 0;
	bool fresh;
	int r;

	if ((size < i->size && (i->seals & F_SEAL_SHRINK) != 0) ||
	    (size > i->size && (i->seals & F_SEAL_GROW) != 0))
		return -EPERM;
	if (size >= i->size) {
		r = size > i->size ? clear_tail(i) : 0;
		if (r != 0)
			return r;
		i->size = size;
		return 0;
	}
	if (off != 0) {
		/* The new last page must show zeros behind the end. */
		pa = tree_get(rd, size >> PAGE_SHIFT);
		if (pa == 0 && size >> PAGE_SHIFT < base_pages(rd)) {
			r = own_page(i, size >> PAGE_SHIFT, false, &pa, &fresh);
			if (r != 0)
				return r;
		}
	}
	i->size = size;
	zap(i, first, NO_INDEX, true);
	/* Pages of the base that no own frame covered go from the block count too. */
	drop_range(i, first, NO_INDEX);
	if (rd->base_size > size) {
		if (off == 0 || size >> PAGE_SHIFT < rd->base_size >> PAGE_SHIFT)
			rd->tail = NULL;
		rd->base_size = size;
		i->blocks = 8 * base_pages(rd);
		for (uint64_t k = tree_next(rd, base_pages(rd)); k != NO_INDEX;
		     k = tree_next(rd, k + 1))
			i->blocks += 8;
	}
	if (pa != 0)
		memset((uint8_t *)phys_to_virt(pa) + off, 0, PAGE_SIZE - off);
	if (rd->npages == 0) {
		free_nodes(rd->root, rd->height);
		rd->root = 0;
		rd->height = 0;
	}
	return 0;
}

static int zero_part(struct inode *i, uint64_t from, uint64_t to)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t index = from >> PAGE_SHIFT;
	paddr_t pa = tree_get(rd, index);
	bool fresh;
	int r;

	if (from == to || (pa == 0 && index >= base_pages(rd)))
		return 0;
	r = own_page(i, index, false, &pa, &fresh);
	if (r == 0)
		memset((uint8_t *)phys_to_virt(pa) + from % PAGE_SIZE, 0, to - from);
	return r;
}

static int punch_hole(struct inode *i, uint64_t from, uint64_t to)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t first = (from + PAGE_SIZE - 1) >> PAGE_SHIFT, last = to >> PAGE_SHIFT;
	int r = 0;

	if ((i->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0)
		return -EPERM;
	if (first > last)
		return zero_part(i, from, to);
	r = zero_part(i, from, first << PAGE_SHIFT);
	if (r == 0)
		r = zero_part(i, last << PAGE_SHIFT, to);
	if (r != 0 || first == last)
		return r;
	zap(i, first, last, false);
	drop_range(i, MAX(first, base_pages(rd)), last);
	/* Over the base a hole is a frame of zeros. */
	for (uint64_t k = first; k < MIN(last, base_pages(rd)); k++) {
		r = zero_part(i, k << PAGE_SHIFT, (k + 1) << PAGE_SHIFT);
		if (r != 0)
			return r;
	}
	return 0;
}

/* Pages in [first, last) that have neither frame nor base. */
static uint64_t missing_pages(struct rdata *rd, uint64_t first, uint64_t last)
{
	uint64_t n;

	first = MAX(first, base_pages(rd));
	if (first >= last)
		return 0;
	n = last - first;
	for (uint64_t k = tree_next(rd, first); k < last; k = tree_next(rd, k + 1))
		n--;
	return n;
}

static int allocate(struct inode *i, uint64_t first, uint64_t last)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t n = missing_pages(rd, first, last);
	paddr_t pa;
	bool fresh;
	int r;

	/* All or nothing as far as the share of memory goes. */
	if (n == 0)
		return 0;
	if (!charge(i, n))
		return -ENOSPC;
	uncharge(i, n);
	for (uint64_t k = MAX(first, base_pages(rd)); k < last; k++) {
		r = own_page(i, k, false, &pa, &fresh);
		if (r != 0)
			return r;
		if (k % 1024 == 0 && current != NULL && signal_fatal_pending(current))
			return -EINTR;
	}
	return 0;
}

static int rfile_fallocate(struct file *f, int mode, uint64_t off, uint64_t len)
{
	struct inode *i = f->inode;
	uint64_t end = off + len;	/* checked by the caller */
	int r;

	switch (mode) {
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
		r = punch_hole(i, off, end);
		break;
	case 0:
		if (end > i->size) {
			if ((i->seals & F_SEAL_GROW) != 0)
				return -EPERM;
			r = inode_size_allowed(end);
			if (r != 0)
				return r;
		}
		/* fallthrough */
	case FALLOC_FL_KEEP_SIZE:
		r = end > i->size && mode == 0 ? clear_tail(i) : 0;
		if (r == 0)
			r = allocate(i, off >> PAGE_SHIFT,
				     (end + PAGE_SIZE - 1) >> PAGE_SHIFT);
		if (r == 0 && mode == 0)
			grow_to(i, end);
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (r == 0)
		inode_touch_mtime(i);
	return r;
}

/* ---- mapping ---- */

static paddr_t zero_frame;	/* what holes show; never given back */

int rfile_get_page(struct inode *i, uint64_t index, bool write, paddr_t *ret)
{
	struct rdata *rd = &rnode(i)->data;
	const uint8_t *base;
	struct page *pg;
	uint64_t n;
	bool fresh;
	int r;

	if (index >= (i->size + PAGE_SIZE - 1) >> PAGE_SHIFT)
		return -EFAULT;
	*ret = tree_get(rd, index);
	base = *ret == 0 ? base_at(rd, index, &n) : NULL;
	if (*ret == 0 && (write || (base != NULL && base == rd->tail))) {
		r = own_page(i, index, false, ret, &fresh);
		if (r != 0)
			return r;
	} else if (base != NULL) {
		*ret = rd->base_pa + (index << PAGE_SHIFT);
	} else if (*ret == 0) {
		if (zero_frame == 0) {
			pg = page_alloc(0, PA_ZERO);
			if (pg == NULL)
				return -ENOMEM;
			zero_frame = page_to_phys(pg);
		}
		*ret = zero_frame;
	}
	phys_get(*ret);
	return 0;
}

uint64_t rfile_get_run(struct inode *i, uint64_t index, uint64_t n, paddr_t *ret)
{
	struct rdata *rd = &rnode(i)->data;
	uint64_t end = base_pages(rd), next;

	if (rd->base_ram || rd->base == NULL)
		return 0;
	if (rd->tail != NULL)
		end = rd->base_size >> PAGE_SHIFT;
	if (index >= end)
		return 0;
	next = tree_next(rd, index);
	*ret = rd->base_pa + (index << PAGE_SHIFT);
	return MIN(MIN(n, end - index), next - index);
}

void rfile_free(struct inode *i)
{
	struct rdata *rd = &rnode(i)->data;

	drop_range(i, 0, NO_INDEX);
	free_nodes(rd->root, rd->height);
	rd->root = 0;
	rd->height = 0;
}

static int rfile_fsync(struct file *f)
{
	return 0;
}

const struct file_ops rfile_fops = {
	.read = rfile_read,
	.write = rfile_write,
	.lseek = rfile_lseek,
	.fsync = rfile_fsync,
	.fallocate = rfile_fallocate,
};
