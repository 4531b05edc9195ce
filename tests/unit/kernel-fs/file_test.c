/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of files against a model that is a plain array: random writes, appends, truncation,
 * allocation and holes, copies, mappings. Run on a new file and on files of an image (whole
 * blocks, and with an inline tail), whose image bytes must never change.
 */
#include <stdio.h>
#include <stdlib.h>

#include "support.h"

#include <linux/falloc.h>

#define MODEL_MAX (600u << 10)

static uint8_t model[MODEL_MAX];
static uint64_t size;
static uint8_t buf[MODEL_MAX];
static unsigned fd;
static struct inode *inode;
static unsigned failures;

#define EXPECT(cond) \
	do { \
		if (!(cond) && failures++ < 20) \
			printf("  %s:%d: %s\n", __func__, __LINE__, #cond); \
	} while (0)

static void fill(size_t n)
{
	for (size_t k = 0; k < n; k += 4) {
		uint32_t r = rnd();

		memcpy(buf + k, &r, MIN(n - k, (size_t)4));
	}
}

static void do_write(uint64_t pos, size_t n)
{
	fill(n);
	EXPECT(sys_pwrite64(fd, buf, n, (int64_t)pos) == (long)n);
	if (n == 0)
		return;
	if (pos > size)
		memset(model + size, 0, pos - size);
	memcpy(model + pos, buf, n);
	size = MAX(size, pos + n);
}

static void do_read(uint64_t pos, size_t n)
{
	size_t want = pos >= size ? 0 : MIN(n, size - pos);

	memset(buf, 0xee, n);
	EXPECT(sys_pread64(fd, buf, n, (int64_t)pos) == (long)want);
	EXPECT(memcmp(buf, model + pos, want) == 0);
}

static void do_truncate(uint64_t to)
{
	EXPECT(sys_ftruncate(fd, (int64_t)to) == 0);
	if (to > size)
		memset(model + size, 0, to - size);
	size = to;
}

static void do_fallocate(int mode, uint64_t pos, uint64_t n)
{
	EXPECT(sys_fallocate(fd, mode, (int64_t)pos, (int64_t)n) == 0);
	if (mode == 0 && pos + n > size) {
		memset(model + size, 0, pos + n - size);
		size = pos + n;
	}
	if ((mode & FALLOC_FL_PUNCH_HOLE) != 0 && pos < size)
		memset(model + pos, 0, MIN(n, size - pos));
}

static void do_copy(void)
{
	int64_t from = rnd_below((unsigned)MAX(size, 1u)), to = rnd_below(MODEL_MAX / 2);
	size_t n = rnd_below(40000);
	long r;

	n = MIN(n, size - (uint64_t)MIN((uint64_t)from, size));
	if (n == 0 || (from < to + (int64_t)n && to < from + (int64_t)n))
		return;
	memcpy(buf, model + from, n);
	r = sys_copy_file_range((int)fd, &from, (int)fd, &to, n, 0);
	EXPECT(r == (long)n);
	to -= r;
	if ((uint64_t)to > size)
		memset(model + size, 0, (uint64_t)to - size);
	memcpy(model + to, buf, n);
	size = MAX(size, (uint64_t)to + n);
}

/* A page as a mapping shows it, and stores through a shared mapping. */
static void do_map(bool write)
{
	uint64_t index = rnd_below(MODEL_MAX >> PAGE_SHIFT), off = index << PAGE_SHIFT;
	paddr_t pa;
	int r = inode->ops->get_page(inode, index, write, &pa);
	uint8_t *p;
	size_t n;

	if (off >= size) {
		EXPECT(r == -EFAULT);
		return;
	}
	EXPECT(r == 0);
	if (r != 0)
		return;
	p = phys_to_virt(pa);
	n = MIN(size - off, PAGE_SIZE);
	EXPECT(memcmp(p, model + off, n) == 0);
	if (write) {
		size_t at = rnd_below(PAGE_SIZE - 8);

		memset(p + at, 0x77, 8);	/* may lie behind the end: must not show */
		if (at < n)
			memset(model + off + at, 0x77, MIN((size_t)8, n - at));
	}
	phys_put(pa);
}

static void do_seek(void)
{
	uint64_t off = rnd_below((unsigned)size + 5000);
	long d = sys_lseek(fd, (int64_t)off, 3), h = sys_lseek(fd, (int64_t)off, 4);

	if (off >= size) {
		EXPECT(d == -ENXIO && h == -ENXIO);
		return;
	}
	/* What SEEK_DATA skips is zeros; a hole is one. */
	EXPECT(d == -ENXIO || (d >= (long)off && d < (long)size));
	for (uint64_t k = off; k < (d < 0 ? size : (uint64_t)d); k++)
		EXPECT(model[k] == 0);
	EXPECT(h >= (long)off && h <= (long)size);
	if (h < (long)size)
		EXPECT(model[h] == 0);
}

static void step(void)
{
	uint64_t pos = rnd_below(MODEL_MAX / 2);
	size_t n = rnd_below(10) == 0 ? rnd_below(MODEL_MAX / 2) : rnd_below(9000);

	if (rnd_below(3) == 0)
		pos = ALIGN_DOWN(pos, PAGE_SIZE);
	if (rnd_below(6) == 0)
		pos = MIN(size, (uint64_t)MODEL_MAX / 2);
	if (rnd_below(4) == 0)
		n = ALIGN_UP(n, PAGE_SIZE);
	switch (rnd_below(14)) {
	case 0: case 1: case 2:
		do_write(pos, n);
		break;
	case 3: case 4: case 5:
		do_read(pos, n);
		break;
	case 6:
		do_truncate(rnd_below(3) ? pos : (uint64_t)rnd_below((unsigned)size + 1));
		break;
	case 7:
		do_fallocate(rnd_below(2) ? 0 : FALLOC_FL_KEEP_SIZE, pos, n + 1);
		break;
	case 8:
		do_fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, pos, n + 1);
		break;
	case 9:
		do_copy();
		break;
	case 10: case 11:
		do_map(rnd_below(2));
		break;
	case 12:
		do_seek();
		break;
	case 13:
		support_bad(buf + 5000, 1);
		n = rnd_below(3) * 5000;
		if (n > 5000) {	/* half of it, then a fault */
			fill(n);
			EXPECT(sys_pwrite64(fd, buf, n, (int64_t)pos) == 5000);
			support_bad(NULL, 0);
			if (pos > size)
				memset(model + size, 0, pos - size);
			memcpy(model + pos, buf, 5000);
			size = MAX(size, pos + 5000);
		}
		support_bad(NULL, 0);
		break;
	}
}

static void check_state(void)
{
	struct kstat st;

	EXPECT(sys_fstat(fd, &st) == 0);
	EXPECT((uint64_t)st.size == size);
	EXPECT(st.blocks >= 0 && st.blocks <= (MODEL_MAX / 512) * 2);
	do_read(0, MODEL_MAX);
}

static void exercise(const char *path, uint64_t seed)
{
	struct file *f;
	long r = sys_open(path, KO_RDWR | KO_CREAT, 0644);

	EXPECT(r >= 0);
	if (r < 0)
		return;
	fd = (unsigned)r;
	rnd_seed(seed);
	f = fd_get((int)fd);
	inode = f->inode;
	file_put(f);
	for (unsigned k = 0; k < 400 && failures == 0; k++) {
		step();
		if (k % 20 == 0)
			check_state();
	}
	if (failures != 0)
		printf("  %s, seed %lu\n", path, seed);
	sys_close(fd);
}

static uint8_t *read_host_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	uint8_t *p = NULL;

	if (f == NULL)
		return NULL;
	fseek(f, 0, SEEK_END);
	*n = (size_t)ftell(f);
	rewind(f);
	p = aligned_alloc(PAGE_SIZE, ALIGN_UP(*n, PAGE_SIZE));
	if (fread(p, 1, *n, f) != *n)
		abort();
	fclose(f);
	return p;
}

static void on_new_files(unsigned rounds)
{
	uint64_t free_before;
	long alloc_before;

	support_init(NULL, 0);
	free_before = 0;
	alloc_before = 0;
	for (uint64_t seed = 1; seed <= rounds && failures == 0; seed++) {
		size = 0;
		exercise("/f", seed);
		EXPECT(sys_unlink("/f") == 0);
		if (seed == 1) {
			free_before = support_free_pages();
			alloc_before = allocations;
		}
		/* Nothing stays behind. */
		EXPECT(support_free_pages() == free_before);
		EXPECT(allocations == alloc_before);
	}
}

/* One file of an image made with these options. false: no mkfs.erofs. */
static bool on_image(const char *options, unsigned rounds)
{
	char command[300];
	uint8_t *image, *copy;
	size_t n = 0, content_size = 300000 + 123;
	FILE *f;

	if (system("rm -rf kfs-src && mkdir kfs-src") != 0)
		return false;
	f = fopen("kfs-src/data", "wb");
	rnd_seed(77);
	fill(content_size);
	fwrite(buf, 1, content_size, f);
	fclose(f);
	snprintf(command, sizeof(command), "mkfs.erofs %s kfs.erofs kfs-src >/dev/null 2>&1",
		 options);
	if (system(command) != 0)
		return false;
	image = read_host_file("kfs.erofs", &n);
	copy = malloc(n);
	memcpy(copy, image, n);
	for (uint64_t seed = 1; seed <= rounds && failures == 0; seed++) {
		EXPECT(support_init(image, n) == 0);
		rnd_seed(77);
		fill(content_size);
		memcpy(model, buf, content_size);
		size = content_size;
		exercise("/data", seed);
	}
	EXPECT(memcmp(copy, image, n) == 0);
	free(copy);
	free(image);
	return true;
}

/* tmpfs's share: ENOSPC, a part written, and all given back. */
static void on_full_memory(void)
{
	static uint8_t big[8u << 20];
	uint64_t total = 0;
	long r;

	support_init(NULL, 0);
	fd = (unsigned)sys_open("/big", KO_RDWR | KO_CREAT, 0644);
	while ((r = sys_write(fd, big, sizeof(big))) > 0)
		total += (uint64_t)r;
	EXPECT(r == -ENOSPC);
	EXPECT(total / PAGE_SIZE == mem_stats.total_pages / 2);
	EXPECT(sys_fallocate(fd, 0, 0, 1LL << 40) == -ENOSPC);
	EXPECT(sys_ftruncate(fd, 0) == 0);
	EXPECT(mem_stats.shmem_pages == 0);
	EXPECT(sys_ftruncate(fd, INT64_MAX) == 0);
	EXPECT(sys_pwrite64(fd, "x", 1, INT64_MAX - 1) == 1);
	EXPECT(sys_pwrite64(fd, "x", 1, INT64_MAX) == -EFBIG);
	EXPECT(sys_lseek(fd, 0, 3) == (INT64_MAX & ~4095L));
	sys_close(fd);
}

/* Each allocation in turn fails: errors, no crash, no leak. */
static void on_failing_memory(void)
{
	long left = 0, before;
	bool done = false;

	support_init(NULL, 0);
	before = allocations;
	for (long n = 0; !done && n < 200; n++) {
		fail_after = n;
		fd = (unsigned)sys_open("/f", KO_RDWR | KO_CREAT, 0644);
		if ((int)fd >= 0) {
			sys_pwrite64(fd, buf, 300000, 4096 * 70);
			sys_pwrite64(fd, "x", 1, 1LL << 40);
			sys_mkdir("/d", 0755);
			sys_rename("/f", "/d/a-name-that-is-longer-than-the-one-it-had");
			sys_link("/d/a-name-that-is-longer-than-the-one-it-had", "/g");
			sys_symlink("abc", "/s");
		}
		done = fail_after >= 0;
		fail_after = -1;
		sys_close(fd);
		sys_unlink("/f");
		sys_unlink("/d/a-name-that-is-longer-than-the-one-it-had");
		sys_unlink("/g");
		sys_unlink("/s");
		sys_rmdir("/d");
		left = allocations - before;
		EXPECT(left <= 1);	/* the root's table of names */
	}
	EXPECT(done);
	EXPECT(mem_stats.shmem_pages == 0);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 20;
	char dir[] = "/tmp/kernel-fs-file-XXXXXX";
	char command[100];
	bool images;
	extern char *mkdtemp(char *);
	extern int chdir(const char *);

	on_new_files(rounds);
	on_full_memory();
	on_failing_memory();
	if (mkdtemp(dir) == NULL || chdir(dir) != 0)
		return 1;
	images = on_image("-Enoinline_data", rounds) && on_image("", rounds);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command) != 0)
		return 1;
	printf("%u failures%s\n", failures, images ? "" : ", images skipped: no mkfs.erofs");
	if (failures == 0 && !images)
		return 77;
	return failures != 0;
}
