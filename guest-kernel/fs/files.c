/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptor tables. A table is shared by threads (CLONE_FILES) and copied by fork. Two
 * bitmaps, used and close-on-exec, lie behind the pointers; the lowest free number is found by
 * words from a hint below which everything is known to be taken.
 *
 * A table is also the owner of POSIX locks: each close of any descriptor of a file drops the
 * locks that this table holds on its inode.
 */
#include <asm-generic/resource.h>
#include <linux/close_range.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/page.h"

#define FILES_FIRST	64u
#define FILES_HARD_MAX	(1u << 20)	/* as fs.nr_open */

struct files {
	uint32_t refs;
	unsigned cap;			/* a multiple of 64 */
	unsigned hint;			/* no free number below */
	struct file **fd;
	uint64_t *used, *cloexec;
};

static bool bit_test(const uint64_t *map, unsigned n)
{
	return (map[n / 64] >> (n % 64)) & 1;
}

static void bit_set(uint64_t *map, unsigned n, bool on)
{
	if (on)
		map[n / 64] |= 1ULL << (n % 64);
	else
		map[n / 64] &= ~(1ULL << (n % 64));
}

/* Pointers and both maps in one block; beyond kmalloc's reach in a page block. */
static size_t table_bytes(unsigned cap)
{
	return (size_t)cap * sizeof(struct file *) + 2 * (size_t)cap / 8;
}

static void *table_alloc(unsigned cap)
{
	size_t n = table_bytes(cap);
	unsigned order = 0;
	struct page *pg;

	if (n <= HUGE_SIZE)
		return kzalloc(n);
	while ((PAGE_SIZE << order) < n)
		order++;
	if (order > PAGE_MAX_ORDER)
		return NULL;
	pg = page_alloc(order, PA_ZERO);
	return pg != NULL ? page_to_virt(pg) : NULL;
}

static void table_free(void *p, unsigned cap)
{
	if (p == NULL)
		return;
	if (table_bytes(cap) <= HUGE_SIZE)
		kfree(p);
	else
		page_put(phys_to_page(virt_to_phys(p)));
}

static bool files_resize(struct files *fs, unsigned cap)
{
	struct file **fd = table_alloc(cap);
	uint64_t *used, *cloexec;

	if (fd == NULL)
		return false;
	used = (uint64_t *)(fd + cap);
	cloexec = used + cap / 64;
	if (fs->fd != NULL) {
		memcpy(fd, fs->fd, fs->cap * sizeof(*fd));
		memcpy(used, fs->used, fs->cap / 8);
		memcpy(cloexec, fs->cloexec, fs->cap / 8);
		table_free(fs->fd, fs->cap);
	}
	fs->fd = fd;
	fs->used = used;
	fs->cloexec = cloexec;
	fs->cap = cap;
	return true;
}

struct files *files_new(void)
{
	struct files *fs = kzalloc(sizeof(*fs));

	if (fs == NULL)
		return NULL;
	fs->refs = 1;
	if (!files_resize(fs, FILES_FIRST)) {
		kfree(fs);
		return NULL;
	}
	return fs;
}

int files_next(struct files *fs, int from)
{
	if (fs == NULL || from < 0 || (unsigned)from >= fs->cap)
		return -1;
	for (unsigned w = (unsigned)from / 64; w < fs->cap / 64; w++) {
		uint64_t bits = fs->used[w];

		if (w == (unsigned)from / 64)
			bits &= ~0ULL << ((unsigned)from % 64);
		while (bits != 0) {
			unsigned n = w * 64 + (unsigned)__builtin_ctzll(bits);

			if (fs->fd[n] != NULL)
				return (int)n;
			bits &= bits - 1;
		}
	}
	return -1;
}

struct files *files_copy(struct files *old)
{
	struct files *fs = kzalloc(sizeof(*fs));
	unsigned cap = FILES_FIRST;

	if (fs == NULL)
		return NULL;
	for (int n = files_next(old, 0); n >= 0; n = files_next(old, n + 1)) {
		while (cap <= (unsigned)n)
			cap *= 2;
	}
	fs->refs = 1;
	if (!files_resize(fs, cap)) {
		kfree(fs);
		return NULL;
	}
	for (int n = files_next(old, 0); n >= 0; n = files_next(old, n + 1)) {
		fs->fd[n] = old->fd[n];
		file_get(fs->fd[n]);
		bit_set(fs->used, (unsigned)n, true);
		bit_set(fs->cloexec, (unsigned)n, bit_test(old->cloexec, (unsigned)n));
	}
	return fs;
}

void files_get(struct files *fs)
{
	fs->refs++;
}

bool files_is_shared(const struct files *fs)
{
	return fs->refs > 1;
}

/* What close(2) does to the file, after the number is free again. */
static int file_close(struct file *f, struct files *owner)
{
	int r = 0;

	if (f->ops->flush != NULL)
		r = f->ops->flush(f);
	if ((f->flags & KO_PATH) == 0)
		locks_release_posix(f, owner);
	file_put(f);
	return r;
}

void files_put(struct files *fs)
{
	if (fs == NULL)
		return;
	ASSERT(fs->refs > 0);
	if (--fs->refs > 0)
		return;
	for (int n = files_next(fs, 0); n >= 0; n = files_next(fs, n + 1)) {
		struct file *f = fs->fd[n];

		fs->fd[n] = NULL;
		file_close(f, fs);
	}
	table_free(fs->fd, fs->cap);
	kfree(fs);
}

static struct file *files_take(struct files *fs, unsigned n)
{
	struct file *f = n < fs->cap ? fs->fd[n] : NULL;

	if (f == NULL)
		return NULL;
	fs->fd[n] = NULL;
	bit_set(fs->used, n, false);
	bit_set(fs->cloexec, n, false);
	if (n < fs->hint)
		fs->hint = n;
	return f;
}

void files_close_on_exec(struct files *fs)
{
	for (int n = files_next(fs, 0); n >= 0; n = files_next(fs, n + 1)) {
		if (bit_test(fs->cloexec, (unsigned)n))
			file_close(files_take(fs, (unsigned)n), fs);
	}
}

struct file *files_file(struct files *fs, int fd)
{
	if (fs == NULL || fd < 0 || (unsigned)fd >= fs->cap || fs->fd[fd] == NULL)
		return NULL;
	file_get(fs->fd[fd]);
	return fs->fd[fd];
}

bool files_cloexec(struct files *fs, int fd)
{
	return fs != NULL && fd >= 0 && (unsigned)fd < fs->cap &&
	       bit_test(fs->cloexec, (unsigned)fd);
}

struct file *fd_get_path(int fd)
{
	return files_file(current->proc->files, fd);
}

struct file *fd_get(int fd)
{
	struct files *fs = current->proc->files;
	struct file *f;

	if (unlikely(fd < 0 || (unsigned)fd >= fs->cap || (f = fs->fd[fd]) == NULL ||
		     (f->flags & KO_PATH) != 0))
		return NULL;
	f->refs++;
	return f;
}

static unsigned nofile_limit(void)
{
	return (unsigned)MIN(fs_rlimit(RLIMIT_NOFILE), (uint64_t)FILES_HARD_MAX);
}

/* Room for number n; -EMFILE, -ENOMEM. */
static int files_fit(struct files *fs, unsigned n)
{
	unsigned cap = fs->cap;

	if (n < cap)
		return 0;
	if (n >= FILES_HARD_MAX)
		return -EMFILE;
	while (cap <= n)
		cap *= 2;
	return files_resize(fs, cap) ? 0 : -ENOMEM;
}

static unsigned files_lowest(const struct files *fs, unsigned min)
{
	for (unsigned w = min / 64; w < fs->cap / 64; w++) {
		uint64_t bits = ~fs->used[w];

		if (w == min / 64)
			bits &= ~0ULL << (min % 64);
		if (bits != 0)
			return w * 64 + (unsigned)__builtin_ctzll(bits);
	}
	return MAX(min, fs->cap);
}

/* Is there a number for one more? Asked before an open that may create or truncate. */
int fd_available(void)
{
	struct files *fs = current->proc->files;

	return files_lowest(fs, fs->hint) < nofile_limit() ? 0 : -EMFILE;
}

int fd_install(struct file *f, int min, bool cloexec)
{
	struct files *fs = current->proc->files;
	unsigned n;
	int r;

	n = files_lowest(fs, MAX((unsigned)min, fs->hint));
	r = n < nofile_limit() ? files_fit(fs, n) : -EMFILE;
	if (r != 0) {
		file_put(f);
		return r;
	}
	fs->fd[n] = f;
	bit_set(fs->used, n, true);
	bit_set(fs->cloexec, n, cloexec);
	if ((unsigned)min <= fs->hint)
		fs->hint = n + 1;
	return (int)n;
}

int fd_close(int fd)
{
	struct files *fs = current->proc->files;
	struct file *f = fd >= 0 ? files_take(fs, (unsigned)fd) : NULL;

	return f != NULL ? file_close(f, fs) : -EBADF;
}

SYSCALL(close, unsigned fd)
{
	int r = fd_close((int)fd);

	/* The number is gone: there is nothing to restart. */
	if (r == -ERESTARTSYS || r == -ERESTARTNOINTR || r == -ERESTARTNOHAND)
		r = -EINTR;
	return r;
}

SYSCALL(dup, unsigned fd)
{
	struct file *f = fd_get_path((int)fd);

	return f != NULL ? fd_install(f, 0, false) : -EBADF;
}

static long dup_to(unsigned from, unsigned to, bool cloexec)
{
	struct files *fs = current->proc->files;
	struct file *f, *old;
	int r;

	if (to >= nofile_limit())
		return -EBADF;
	f = fd_get_path((int)from);
	if (f == NULL)
		return -EBADF;
	r = files_fit(fs, to);
	if (r != 0) {
		file_put(f);
		return r;
	}
	old = fs->fd[to];
	fs->fd[to] = f;
	bit_set(fs->used, to, true);
	bit_set(fs->cloexec, to, cloexec);
	if (old != NULL)
		file_close(old, fs);
	return (long)to;
}

SYSCALL(dup2, unsigned from, unsigned to)
{
	if (from == to) {
		struct file *f = fd_get_path((int)from);

		if (f == NULL)
			return -EBADF;
		file_put(f);
		return (long)to;
	}
	return dup_to(from, to, false);
}

SYSCALL(dup3, unsigned from, unsigned to, unsigned flags)
{
	if ((flags & ~KO_CLOEXEC) != 0 || from == to)
		return -EINVAL;
	return dup_to(from, to, (flags & KO_CLOEXEC) != 0);
}

SYSCALL(close_range, unsigned first, unsigned last, unsigned flags)
{
	struct files *fs = current->proc->files;

	if ((flags & ~(unsigned)(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)) != 0 ||
	    first > last)
		return -EINVAL;
	if ((flags & CLOSE_RANGE_UNSHARE) != 0 && fs->refs > 1) {
		struct files *own = files_copy(fs);

		if (own == NULL)
			return -ENOMEM;
		current->proc->files = own;
		files_put(fs);
		fs = own;
	}
	if (first > INT32_MAX)
		return 0;
	for (int n = files_next(fs, (int)first); n >= 0 && (unsigned)n <= last;
	     n = files_next(fs, n + 1)) {
		if ((flags & CLOSE_RANGE_CLOEXEC) != 0)
			bit_set(fs->cloexec, (unsigned)n, true);
		else
			file_close(files_take(fs, (unsigned)n), fs);
	}
	return 0;
}

/* F_DUPFD and F_DUPFD_CLOEXEC, F_GETFD, F_SETFD: called by fcntl.c. */
long fd_dup_min(int fd, unsigned long min, bool cloexec)
{
	struct file *f;

	if (min >= nofile_limit())
		return -EINVAL;
	f = fd_get_path(fd);
	return f != NULL ? fd_install(f, (int)min, cloexec) : -EBADF;
}

void fd_set_cloexec(int fd, bool on)
{
	struct files *fs = current->proc->files;

	if (fd >= 0 && (unsigned)fd < fs->cap && fs->fd[fd] != NULL)
		bit_set(fs->cloexec, (unsigned)fd, on);
}
