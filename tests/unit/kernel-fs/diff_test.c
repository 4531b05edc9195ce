/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's filesystem against the host's: the same random calls, with the same odd paths,
 * are made on both, and results, error numbers and what stat and readdir show must agree. The
 * host's side runs chrooted in a fresh directory on a tmpfs; where that cannot be had, the
 * test is skipped.
 */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

#include <asm/unistd_64.h>

extern long syscall(long nr, ...);
extern int *__errno_location(void);
extern char *mkdtemp(char *template);

static long host(long r)
{
	return r == -1 ? -*__errno_location() : r;
}
#define H(nr, ...) host(syscall(__NR_##nr, __VA_ARGS__))

static unsigned failures, calls;
static bool as_user;
static char trace[2400];

static void check(long guest, long real)
{
	calls++;
	if (guest == real)
		return;
	if (failures++ < 20)
		printf("  %s: guest %ld, host %ld\n", trace, guest, real);
}

/* ---- random paths ---- */

static const char *const names[] = {"a", "b", "c", "d", "l1", "l2", "s"};
static const char *const targets[] = {
	"a", "b", "a/b", "c/d", "l1", "l2", ".", "..", "nowhere", "a/", "/", "/w", "/w/a/b",
	"../w/c", "b/../a", "l2/a",
};
static char longname[257];

static void random_path(char *buf)
{
	unsigned n = 1 + rnd_below(3), len = 0;

	if (rnd_below(12) == 0)
		len += (unsigned)sprintf(buf + len, "/w/");
	if (rnd_below(150) == 0) {
		static const char *const odd[] = {"", "/", ".", "..", "//", "./.", "/w/"};

		strcpy(buf, odd[rnd_below(ARRAY_SIZE(odd))]);
		return;
	}
	for (unsigned k = 0; k < n; k++) {
		const char *c = names[rnd_below(ARRAY_SIZE(names))];

		if (rnd_below(25) == 0)
			c = rnd_below(2) ? "." : "..";
		else if (rnd_below(200) == 0)
			c = longname + rnd_below(3);
		len += (unsigned)sprintf(buf + len, "%s%s", c,
					 k + 1 < n ? (rnd_below(20) ? "/" : "//") : "");
	}
	if (rnd_below(20) == 0)
		strcpy(buf + len, "/");
}

/* ---- comparison of inodes ---- */

#define MAPPED 4096
static struct {
	uint64_t real, guest;
} inos[MAPPED];

/* Names of one file on one side must be names of one file on the other. */
static void check_ino(uint64_t guest, uint64_t real)
{
	unsigned k = (unsigned)(real % MAPPED);

	if (inos[k].real != real) {
		inos[k].real = real;
		inos[k].guest = guest;
	} else {
		check((long)guest, (long)inos[k].guest);
	}
}

static void check_stat(const struct kstat *g, const struct kstat *r)
{
	check(g->mode, r->mode);
	check((long)g->nlink, (long)r->nlink);
	check(g->uid, r->uid);
	check(g->gid, r->gid);
	if ((r->mode & KS_IFMT) != KS_IFDIR)
		check(g->size, r->size);
	check_ino(g->ino, r->ino);
}

static void op_stat(const char *p)
{
	unsigned flags = rnd_below(2) ? KAT_SYMLINK_NOFOLLOW : 0;
	struct kstat g, r;
	long x = H(newfstatat, KAT_FDCWD, p, &r, flags);

	sprintf(trace, "stat %s %x", p, flags);
	check(sys_newfstatat(KAT_FDCWD, p, &g, flags), x);
	if (x == 0)
		check_stat(&g, &r);
}

static void op_open(const char *p)
{
	static const unsigned extra[] = {KO_CREAT, KO_EXCL, KO_TRUNC, KO_APPEND, KO_DIRECTORY,
					 KO_NOFOLLOW, KO_PATH, KO_NOATIME};
	unsigned flags = rnd_below(3) | KO_NONBLOCK, mode = rnd_below(01000);
	struct kstat g, r;
	char data[40];
	long x, y, n;

	for (unsigned k = 0; k < ARRAY_SIZE(extra); k++)
		flags |= rnd_below(4) == 0 ? extra[k] : 0;
	if (rnd_below(30) == 0)
		flags = (flags & 3) | KO_TMPFILE | (rnd_below(3) == 0 ? KO_EXCL : 0);
	/* Changed between kernel versions. */
	if ((flags & KO_CREAT) != 0 && (flags & KO_PATH) == 0)
		flags &= ~KO_DIRECTORY;
	sprintf(trace, "open %s %o mode %o", p, flags, mode);
	x = H(open, p, flags, mode);
	y = sys_open(p, flags, mode);
	check(y < 0 ? y : 0, x < 0 ? x : 0);
	if (x >= 0 && y >= 0) {
		n = H(fstat, x, &r);
		check(sys_fstat((unsigned)y, &g), n);
		check_stat(&g, &r);
		check(sys_fcntl((unsigned)y, 3, 0) & 0x3fffff, H(fcntl, x, 3, 0) & 0x3fffff);
		memset(data, 'x', sizeof(data));
		if ((r.mode & KS_IFMT) == KS_IFREG) {
			n = rnd_below(40);
			check(sys_write((unsigned)y, data, (size_t)n), H(write, x, data, n));
		}
		if ((flags & KO_TMPFILE) == KO_TMPFILE) {
			char fd[64];

			sprintf(fd, "/proc/self/fd/%ld", x);
		}
	}
	if (x >= 0)
		H(close, x);
	if (y >= 0)
		sys_close((unsigned)y);
}

static void op_readlink(const char *p)
{
	char g[300], r[300];
	long x = H(readlink, p, r, sizeof(r)), y;

	sprintf(trace, "readlink %s", p);
	y = sys_readlink(p, g, sizeof(g));
	check(y, x);
	if (x > 0 && x == y)
		check(memcmp(g, r, (size_t)x), 0);
}

static void op_getcwd(void)
{
	char g[4200], r[4200];
	long x = H(getcwd, r, sizeof(r));

	sprintf(trace, "getcwd");
	check(sys_getcwd(g, sizeof(g)), x);
	if (x > 0)
		check(strcmp(g, r), 0);
}

/* Names in a directory, as a sorted string. */
static int name_cmp(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void gather(char (*out)[300], unsigned *n, const uint8_t *buf, long len)
{
	for (long off = 0; off < len && *n < 64;) {
		uint16_t reclen;

		memcpy(&reclen, buf + off + 16, 2);
		snprintf(out[*n], 300, "%s %u", (const char *)buf + off + 19, buf[off + 18]);
		(*n)++;
		off += reclen;
	}
}

static void op_readdir(const char *p)
{
	static char g[64][300], r[64][300];
	static uint8_t buf[8192];
	unsigned ng = 0, nr = 0, small = 300 + rnd_below(300);
	long x = H(open, p, KO_DIRECTORY, 0), y = sys_open(p, KO_DIRECTORY, 0), n;

	sprintf(trace, "readdir %s", p);
	check(y < 0 ? y : 0, x < 0 ? x : 0);
	if (x >= 0 && y >= 0) {
		while ((n = H(getdents64, x, buf, sizeof(buf))) > 0)
			gather(r, &nr, buf, n);
		check(0, n);
		while ((n = sys_getdents64((unsigned)y, buf, small)) > 0)
			gather(g, &ng, buf, n);
		check(n, 0);
		check(ng, nr);
		qsort(g, ng, 300, name_cmp);
		qsort(r, nr, 300, name_cmp);
		for (unsigned k = 0; k < ng && ng == nr; k++)
			check(strcmp(g[k], r[k]), 0);
	}
	if (x >= 0)
		H(close, x);
	if (y >= 0)
		sys_close((unsigned)y);
}

#define CALL2(name, p, expr) \
	do { \
		unsigned _a = (expr); \
		sprintf(trace, #name " %s %o", p, _a); \
		check(sys_##name(p, _a), H(name, p, _a)); \
	} while (0)
#define CALL1(name, expr) \
	do { \
		const char *_p = (expr); \
		sprintf(trace, #name " %s", _p); \
		check(sys_##name(_p), H(name, _p)); \
	} while (0)

static void two_paths(const char *p, const char *q)
{
	unsigned flags;

	switch (rnd_below(as_user ? 2 : 4)) {
	case 0:
		sprintf(trace, "rename %s %s", p, q);
		check(sys_rename(p, q), H(rename, p, q));
		break;
	case 1:
		flags = rnd_below(5);
		sprintf(trace, "renameat2 %s %s %u", p, q, flags);
		if ((flags & 4) == 0)
			check(sys_renameat2(KAT_FDCWD, p, KAT_FDCWD, q, flags),
			      H(renameat2, KAT_FDCWD, p, KAT_FDCWD, q, flags));
		break;
	case 2:
		sprintf(trace, "link %s %s", p, q);
		check(sys_link(p, q), H(link, p, q));
		break;
	case 3:
		sprintf(trace, "linkat %s %s follow", p, q);
		check(sys_linkat(KAT_FDCWD, p, KAT_FDCWD, q, KAT_SYMLINK_FOLLOW),
		      H(linkat, KAT_FDCWD, p, KAT_FDCWD, q, KAT_SYMLINK_FOLLOW));
		break;
	}
}

static void step(void)
{
	char p[1100], q[1100];
	const char *t = targets[rnd_below(ARRAY_SIZE(targets))];

	random_path(p);
	random_path(q);
	switch (rnd_below(22)) {
	case 0: case 1: case 2:
		op_open(p);
		break;
	case 3: case 4:
		CALL2(mkdir, p, rnd_below(8) ? 0755u : rnd_below(010000));
		break;
	case 5:
		CALL1(rmdir, p);
		break;
	case 6:
		CALL1(unlink, p);
		break;
	case 7: case 8: case 9:
		two_paths(p, q);
		break;
	case 10:
		sprintf(trace, "symlink %s %s", t, p);
		check(sys_symlink(t, p), H(symlink, t, p));
		break;
	case 11:
		op_readlink(p);
		break;
	case 12: case 13: case 14:
		op_stat(p);
		break;
	case 15:
		op_readdir(p);
		break;
	case 16:
		CALL2(truncate, p, rnd_below(9000));
		break;
	case 17:
		CALL2(chmod, p, rnd_below(4) ? 0755u : rnd_below(010000));
		break;
	case 18:
		if (!as_user)
			CALL2(access, p, rnd_below(9));
		break;
	case 19: {
		static const unsigned kinds[] = {KS_IFREG, KS_IFIFO, KS_IFSOCK, KS_IFDIR, 0,
						 KS_IFLNK};
		unsigned m = kinds[rnd_below(6)] | rnd_below(01000);

		sprintf(trace, "mknod %s %o", p, m);
		check(sys_mknod(p, m, 0), H(mknod, p, m, 0));
		break;
	}
	case 20:
		if (rnd_below(4) == 0)
			CALL1(chdir, rnd_below(2) ? "/w" : p);
		op_getcwd();
		break;
	case 21: {
		uint32_t u = rnd_below(4) ? UINT32_MAX : rnd_below(3) * 500;
		uint32_t g = rnd_below(4) ? UINT32_MAX : rnd_below(3) * 500;

		sprintf(trace, "chown %s %u %u", p, u, g);
		check(sys_chown(p, u, g), H(chown, p, u, g));
		break;
	}
	}
}

static void run(uint64_t seed, unsigned steps)
{
	char dir[] = "/dev/shm/kernel-fs-XXXXXX";
	char command[100];
	long top = H(open, "/", KO_PATH, 0), cwd = H(open, ".", KO_PATH, 0);

	rnd_seed(seed);
	memset(inos, 0, sizeof(inos));
	if (mkdtemp(dir) == NULL || H(chroot, dir) != 0) {
		printf("skipped: needs root and a tmpfs on /dev/shm\n");
		exit(77);
	}
	H(umask, 022);
	H(chmod, "/", 0755);
	if (support_init(NULL, 0) != 0)
		exit(1);
	H(mkdir, "/w", 0777);
	sys_mkdir("/w", 0777);
	if (as_user) {
		H(chmod, "/w", 0777);
		sys_chmod("/w", 0777);
		H(setfsgid, 500);
		H(setfsuid, 500);
		support_user(500, 500);
	}
	H(chdir, "/w");
	sys_chdir("/w");
	for (unsigned k = 0; k < steps && failures < 20; k++)
		step();
	H(setfsuid, 0);
	H(setfsgid, 0);
	syscall(__NR_fchdir, top);
	syscall(__NR_chroot, ".");
	syscall(__NR_fchdir, cwd);
	H(close, top);
	H(close, cwd);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	if (system(command) != 0)
		failures++;
}

int main(int argc, char **argv)
{
	uint64_t rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 40;
	uint64_t first = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;

	memset(longname, 'n', 256);
	H(setgroups, 0, NULL);
	for (uint64_t seed = first; seed < first + rounds && failures < 20; seed++) {
		unsigned before = failures;

		as_user = seed % 3 == 0;
		run(seed, 3000);
		if (failures != before)
			printf("seed %lu: %u differences\n", seed, failures - before);
	}
	printf("%u comparisons, %u differences\n", calls, failures);
	return failures != 0;
}
