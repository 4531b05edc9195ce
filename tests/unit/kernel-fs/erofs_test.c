/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images that mkfs.erofs makes of a real tree, seen through the guest's system calls and
 * compared with the host's view of the tree: types, modes, owners, links, times, contents byte
 * for byte. Then the same images with bytes changed at random, walked whole: errors are fine,
 * anything that the sanitizers or the reader's own checks object to is not.
 */
#include <stdio.h>
#include <stdlib.h>

#include "support.h"

extern char *mkdtemp(char *);
extern int chdir(const char *);

static unsigned failures, compared;

#define EXPECT(cond) \
	do { \
		if (!(cond) && failures++ < 20) \
			printf("  %s:%d: %s (%s)\n", __func__, __LINE__, #cond, subject); \
	} while (0)
static const char *subject = "";

static const char make_tree[] =
	"rm -rf src && mkdir -p src/many src/deep/1/2/3/4/5 src/empty && cd src && "
	"for i in $(seq 1 700); do echo $i > many/file-number-$i; done && "
	"head -c 1 /dev/urandom > one && head -c 4095 /dev/urandom > b4095 && "
	"head -c 4096 /dev/urandom > b4096 && head -c 4097 /dev/urandom > b4097 && "
	"head -c 1300001 /dev/urandom > big && : > zero && "
	"truncate -s 3000000 sparse && printf x >> sparse && "
	"ln -s one link && ln -s /nowhere/at/all dangling && "
	"ln -s $(printf 'n/%.0s' $(seq 1 1500)) longlink && ln big deep/1/hard && "
	"ln big hard2 && mkfifo fifo && chmod 4755 one && chmod 1777 empty && "
	"chmod 2750 deep && echo odd > 'a name  with spaces' && "
	"echo odd > $(printf '%0200d' 7) && (mknod node c 5 1 || true) && "
	"(chown 70000:80000 b4096 || true) && (chown 12:34 -h link || true) && "
	"touch -d '2001-02-03 04:05:06.789' b4095 && cp -r /usr/include/linux include && "
	"(python3 -c 'import os; os.setxattr(\"one\", \"user.k\", b\"value\");"
	" os.setxattr(\"many\", \"user.k\", b\"value\"); os.setxattr(\"big\", \"user.q\", b\"\")'"
	" && touch ../have-xattr || true)";

static uint8_t *read_host_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	uint8_t *p;

	if (f == NULL)
		return NULL;
	fseek(f, 0, SEEK_END);
	*n = (size_t)ftell(f);
	rewind(f);
	p = aligned_alloc(PAGE_SIZE, MAX(ALIGN_UP(*n, PAGE_SIZE), PAGE_SIZE));
	if (fread(p, 1, *n, f) != *n)
		abort();
	fclose(f);
	return p;
}

static void compare_content(const char *path, uint64_t size)
{
	static uint8_t buf[1 << 16];
	size_t n = 0;
	uint8_t *real = read_host_file(path, &n);
	long fd = sys_open(path + 3, 0, 0), r;
	uint64_t at = 0;
	struct file *f;

	subject = path;
	EXPECT(fd >= 0 && real != NULL && n == size);
	if (fd < 0 || real == NULL)
		return;
	while ((r = sys_read((unsigned)fd, buf, 1 + rnd_below(sizeof(buf)))) > 0) {
		EXPECT(at + (uint64_t)r <= n && memcmp(real + at, buf, (size_t)r) == 0);
		at += (uint64_t)r;
	}
	EXPECT(r == 0 && at == n);
	/* As mappings see it. */
	f = fd_get((int)fd);
	for (uint64_t k = 0; k << PAGE_SHIFT < n; k += 1 + rnd_below(20)) {
		paddr_t pa, run_pa;
		uint64_t run = f->inode->ops->get_run(f->inode, k, 1000, &run_pa);

		EXPECT(f->inode->ops->get_page(f->inode, k, false, &pa) == 0);
		EXPECT(memcmp(phys_to_virt(pa), real + (k << PAGE_SHIFT),
			      MIN(PAGE_SIZE, n - (k << PAGE_SHIFT))) == 0);
		EXPECT(run == 0 || run_pa == pa);
		EXPECT(run <= (n + PAGE_SIZE - 1) / PAGE_SIZE - k);
		phys_put(pa);
	}
	file_put(f);
	sys_close((unsigned)fd);
	free(real);
}

static uint64_t inos[1 << 14][2];

/* One line of find: "path<TAB>type<TAB>mode..." */
static void compare_line(char *line)
{
	char path[5000], target[4096] = "", buf[4096];
	unsigned mode, uid, gid, nlink;
	unsigned long size, ino, mtime;
	char type;
	struct kstat st;
	uint64_t *slot;
	static const uint32_t types[256] = {['f'] = KS_IFREG, ['d'] = KS_IFDIR, ['l'] = KS_IFLNK,
					    ['p'] = KS_IFIFO, ['c'] = KS_IFCHR};

	if (sscanf(line, "%c\t%o\t%u\t%u\t%u\t%lu\t%lu\t%lu.%*u\t%[^\t\n]\t%[^\n]", &type, &mode,
		   &uid, &gid, &nlink, &size, &ino, &mtime, path, target) < 9) {
		subject = line;
		EXPECT(!"a line of find that can be read");
		return;
	}
	subject = path;
	EXPECT(sys_newfstatat(KAT_FDCWD, path + 3, &st, KAT_SYMLINK_NOFOLLOW) == 0);
	EXPECT(st.mode == (types[(unsigned char)type] | mode));
	EXPECT(st.uid == uid && st.gid == gid);
	if (type != 'd')
		EXPECT(st.nlink == nlink);
	if (type == 'f')
		EXPECT((unsigned long)st.size == size);
	if (type == 'c')
		EXPECT(st.rdev == 0x501);
	slot = inos[ino % (1 << 14)];
	if (slot[0] == ino)
		EXPECT(slot[1] == st.ino);
	slot[0] = ino;
	slot[1] = st.ino;
	if (type == 'l') {
		long n = sys_readlink(path + 3, buf, sizeof(buf));

		EXPECT(n == (long)strlen(target) && memcmp(buf, target, (size_t)n) == 0);
	}
	if (type == 'f')
		compare_content(path, size);
	compared++;
}

/* How many names there are below a directory of the guest, "." and ".." left out. */
static unsigned count_names(const char *path, unsigned depth)
{
	static uint8_t bufs[24][4096];
	uint8_t *buf = bufs[depth];
	long fd = sys_open(path, KO_DIRECTORY, 0), n;
	unsigned total = 0;

	if (fd < 0 || depth >= 20)
		return 0;
	while ((n = sys_getdents64((unsigned)fd, buf, 700)) > 0 && total < 5000) {
		for (long off = 0; off < n;) {
			const char *name = (const char *)buf + off + 19;
			uint16_t reclen;
			char sub[5000];

			memcpy(&reclen, buf + off + 16, 2);
			if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
				total++;
				snprintf(sub, sizeof(sub), "%s%s/", path, name);
				if (buf[off + 18] == 4)
					total += count_names(sub, depth + 1);
			}
			off += reclen;
		}
	}
	sys_close((unsigned)fd);
	return total;
}

static void check_xattrs(void)
{
	char value[16], list[100];
	FILE *f = fopen("have-xattr", "r");

	if (f == NULL)
		return;
	fclose(f);
	subject = "xattrs";
	EXPECT(sys_getxattr("/one", "user.k", value, sizeof(value)) == 5);
	EXPECT(memcmp(value, "value", 5) == 0);
	EXPECT(sys_getxattr("/many", "user.k", value, 3) == -ERANGE);
	EXPECT(sys_getxattr("/many", "user.k", NULL, 0) == 5);
	EXPECT(sys_getxattr("/big", "user.q", value, sizeof(value)) == 0);
	EXPECT(sys_getxattr("/big", "user.k", value, sizeof(value)) == -ENODATA);
	EXPECT(sys_listxattr("/one", list, sizeof(list)) == 7);
	EXPECT(memcmp(list, "user.k", 7) == 0);
	EXPECT(sys_setxattr("/one", "user.k", "new", 3, 1) == -EEXIST);
	EXPECT(sys_setxattr("/one", "user.k", "new", 3, 0) == 0);
	EXPECT(sys_getxattr("/one", "user.k", value, sizeof(value)) == 3);
	EXPECT(sys_removexattr("/one", "user.k") == 0);
	EXPECT(sys_listxattr("/one", list, sizeof(list)) == 0);
}

/* Image files are written, linked, moved: numbers stay, names agree. */
static void check_copy_up(void)
{
	struct kstat before, after;
	char buf[8];
	long fd;

	subject = "copy-up";
	EXPECT(sys_newfstatat(KAT_FDCWD, "/big", &before, 0) == 0);
	fd = sys_open("/hard2", KO_RDWR, 0);
	EXPECT(sys_pwrite64((unsigned)fd, "changed", 7, 5000) == 7);
	sys_close((unsigned)fd);
	EXPECT(sys_newfstatat(KAT_FDCWD, "/deep/1/hard", &after, 0) == 0);
	EXPECT(before.ino == after.ino && before.dev == after.dev && after.nlink == 3);
	EXPECT(sys_rename("/deep", "/moved") == 0);
	EXPECT(sys_unlink("/big") == 0);
	fd = sys_open("/moved/1/hard", 0, 0);
	EXPECT(sys_pread64((unsigned)fd, buf, 7, 5000) == 7 && memcmp(buf, "changed", 7) == 0);
	EXPECT(sys_fstat((unsigned)fd, &after) == 0 && after.nlink == 2);
	sys_close((unsigned)fd);
	EXPECT(sys_rmdir("/many") == -ENOTEMPTY);
	EXPECT(sys_rename("/empty", "/many") == -ENOTEMPTY);
	EXPECT(sys_rename("/many", "/empty") == 0);
	EXPECT(sys_newfstatat(KAT_FDCWD, "/empty/file-number-700", &after, 0) == 0);
}

static bool compare_image(const char *options)
{
	char command[200], *line = NULL;
	size_t n, cap = 0;
	unsigned lines = 0;
	uint8_t *image;
	FILE *find;

	snprintf(command, sizeof(command), "mkfs.erofs %s image src >/dev/null 2>&1", options);
	if (system(command) != 0)
		return false;
	image = read_host_file("image", &n);
	subject = options;
	EXPECT(support_init(image, n) == 0);
	memset(inos, 0, sizeof(inos));
	find = popen("find src -mindepth 1 -printf "
		     "'%y\\t%m\\t%U\\t%G\\t%n\\t%s\\t%i\\t%T@\\t%p\\t%l\\n'", "r");
	while (find != NULL && getline(&line, &cap, find) > 0) {
		compare_line(line);
		lines++;
	}
	free(line);
	if (find != NULL)
		pclose(find);
	subject = options;
	EXPECT(lines > 700);
	EXPECT(count_names("/", 0) == lines);
	check_xattrs();
	check_copy_up();
	free(image);
	return true;
}

/* ---- damaged images ---- */

static void walk_damaged(const char *path, unsigned depth, unsigned *budget)
{
	static uint8_t bufs[8][4096], data[8192];
	uint8_t *buf = bufs[depth];
	char target[4096];
	long fd = sys_open(path, KO_NONBLOCK, 0), n;

	if (fd < 0)
		return;
	if (sys_read((unsigned)fd, data, sizeof(data)) >= 0) {
		sys_pread64((unsigned)fd, data, sizeof(data), 100000);
		sys_close((unsigned)fd);
		fd = sys_open(path, KO_RDWR | KO_NONBLOCK, 0);
		if (fd >= 0) {
			sys_pwrite64((unsigned)fd, "x", 1, rnd_below(9000));
			sys_ftruncate((unsigned)fd, rnd_below(9000));
			sys_ftruncate((unsigned)fd, 100000);
			sys_close((unsigned)fd);
		}
		return;
	}
	while (depth < 6 && *budget > 0 &&
	       (n = sys_getdents64((unsigned)fd, buf, 4096)) > 0) {
		for (long off = 0; off < n && *budget > 0;) {
			const char *name = (const char *)buf + off + 19;
			uint16_t reclen;
			char sub[2000];

			memcpy(&reclen, buf + off + 16, 2);
			snprintf(sub, sizeof(sub), "%s%s", path, name);
			(*budget)--;
			sys_readlink(sub, target, sizeof(target));
			sys_listxattr(sub, target, sizeof(target));
			strcat(sub, "/");
			if (name[0] != '.') {
				walk_damaged(sub, depth + 1, budget);
				sub[strlen(sub) - 1] = 0;
				walk_damaged(sub, depth + 1, budget);
			}
			off += reclen;
		}
	}
	sys_close((unsigned)fd);
}

static void damage(const char *path, unsigned rounds)
{
	size_t n;
	uint8_t *image = read_host_file(path, &n), *copy;

	if (image == NULL)
		return;
	for (unsigned k = 0; k < rounds; k++) {
		unsigned budget = 200, changes = 1 + rnd_below(6);

		/* Exactly as long as the image, for the sanitizer. */
		copy = aligned_alloc(PAGE_SIZE, n);
		memcpy(copy, image, n);
		copy[1024 + 8] &= 0xfe;
		while (changes-- > 0) {
			size_t at = rnd_below(3) == 0 ? 1024 + rnd_below(128) : rnd_below(n);

			copy[at] = rnd_below(3) == 0 ? 0xff : (uint8_t)rnd();
		}
		if (support_init(copy, n) == 0)
			walk_damaged("/", 0, &budget);
		free(copy);
	}
	free(image);
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/kernel-fs-erofs-XXXXXX", command[100];
	bool made = true;
	unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 300;

	rnd_seed(1);
	for (int k = 0; k < 2 && argc > 1; k++) {
		snprintf(command, sizeof(command), "%s/%s", argv[1],
			 k == 0 ? "plain.img" : "inline.img");
		damage(command, rounds);
	}
	if (mkdtemp(dir) == NULL || chdir(dir) != 0 || system(make_tree) != 0)
		return 1;
	made = compare_image("-Enoinline_data") && compare_image("") &&
	       compare_image("-x1 -Eforce-inode-extended");
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command) != 0)
		return 1;
	printf("%u names compared, %u failures\n", compared, failures);
	if (failures == 0 && !made) {
		printf("skipped: no mkfs.erofs that makes such an image\n");
		return 77;
	}
	return failures != 0;
}
