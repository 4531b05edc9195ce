/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of `casemate image build`, run as a program (first argument). What it makes is
 * read back with the tree's own EROFS reader and compared with the source file by file,
 * and erofs-utils' fsck has its say; what cannot be represented must be refused with a
 * line that names it, and nothing may be left behind.
 */
#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tools/casemate/image_erofs.h"

static const char *tool;
static char top[PATH_MAX]; /* everything of this run; the current directory */
static char output[8192];  /* stdout and stderr of the last command */

/* ---- Helpers ---- */

/* Runs a shell command, keeps its output. Exit status; -N when signal N ended it. */
static int sh(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int sh(const char *format, ...)
{
	char command[4096];
	va_list args;
	size_t used;
	FILE *f;
	int status;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	strncat(command, " ) 2>&1", sizeof(command) - strlen(command) - 1);
	memmove(command + 2, command, strlen(command) + 1);
	memcpy(command, "( ", 2);
	f = popen(command, "r");
	if (!f)
		return 999;
	used = fread(output, 1, sizeof(output) - 1, f);
	output[used] = 0;
	status = pclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* The build fails with one line that contains `text`, and leaves nothing behind. */
static void build_check_refused(const char *arguments, const char *text)
{
	int status = sh("%s build -o out.erofs %s", tool, arguments);

	CU_ASSERT_EQUAL(status, 125);
	if (!strstr(output, text) || strncmp(output, "casemate: image build: ", 23) ||
	    strchr(output, '\n') != output + strlen(output) - 1) {
		printf("\n    got: %s    not: %s\n", output, text);
		CU_FAIL("wrong message");
	}
	CU_ASSERT_EQUAL(sh("ls -A . tmp | grep -e casemate-image -e out.erofs"), 1);
}

struct compare {
	const char *source;
	const uint8_t *map;
	size_t entries, files;
	uint8_t *used;   /* one byte a block */
	uint64_t *owner; /* nid of the file a block belongs to */
};

static const char *file_compare(struct compare *c, const struct erofs_entry *e,
				const char *path)
{
	const char *why = NULL;
	uint64_t block;
	void *data;
	int fd;

	c->files++;
	if (e->layout != 0)
		return "not flat";
	if (!e->size)
		return NULL;
	if (e->start % 4096)
		return "not on a page boundary";
	for (block = e->start / 4096; block * 4096 < e->start + e->size; block++) {
		if (c->used[block] && c->owner[block] != e->nid)
			return "shares a block";
		c->used[block] = 1;
		c->owner[block] = e->nid;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	data = mmap(NULL, e->size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd < 0 || data == MAP_FAILED)
		return "source cannot be mapped";
	if (memcmp(data, c->map + e->start, e->size))
		why = "contents differ";
	munmap(data, e->size);
	close(fd);
	return why;
}

static const char *entry_compare(void *arg, const struct erofs_entry *e)
{
	struct compare *c = arg;
	char path[PATH_MAX];
	struct stat st;

	c->entries++;
	snprintf(path, sizeof(path), "%s%s", c->source, e->path);
	if (lstat(path, &st) < 0)
		return "not in the source";
	if (st.st_mode != e->mode)
		return "mode differs";
	if (st.st_uid != e->uid || st.st_gid != e->gid)
		return "owner differs";
	if ((uint64_t)st.st_mtim.tv_sec != e->mtime || st.st_mtim.tv_nsec != e->mtime_ns)
		return "time differs";
	if (!S_ISDIR(e->mode) && st.st_nlink != e->links)
		return "number of links differs";
	if (S_ISLNK(e->mode) && (uint64_t)st.st_size != e->size)
		return "length of link differs";
	if (!S_ISREG(e->mode))
		return NULL;
	if ((uint64_t)st.st_size != e->size)
		return "size differs";
	return file_compare(c, e, path);
}

/* Reads the whole image back and compares it with `source`. */
static void image_compare(const char *image, const char *source)
{
	struct compare c = {.source = source};
	int fd = open(image, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char why[512] = "";
	void *map;

	CU_ASSERT_TRUE_FATAL(fd >= 0 && !fstat(fd, &st));
	CU_ASSERT_TRUE(st.st_size > 0 && st.st_size % (2 << 20) == 0);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	CU_ASSERT_TRUE_FATAL(map != MAP_FAILED);
	c.map = map;
	c.used = calloc((size_t)st.st_size / 4096, 1);
	c.owner = calloc((size_t)st.st_size / 4096, sizeof(*c.owner));
	CU_ASSERT_TRUE_FATAL(c.used && c.owner);
	if (erofs_walk(map, (size_t)st.st_size, entry_compare, &c, why, sizeof(why))) {
		printf("\n    %s\n", why);
		CU_FAIL("image differs from its source");
	}
	CU_ASSERT_EQUAL(
		sh("find %s | tr -d '\\n' | wc -c >/dev/null; find %s -printf x | wc -c",
		   source, source),
		0);
	CU_ASSERT_EQUAL(strtoul(output, NULL, 10), c.entries);
	CU_ASSERT_TRUE(c.files > 0);
	free(c.used);
	free(c.owner);
	munmap(map, (size_t)st.st_size);
	close(fd);
	CU_ASSERT_EQUAL(sh("fsck.erofs %s", image), 0);
}

static void file_make(const char *path, size_t size, unsigned int seed)
{
	FILE *f = fopen(path, "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	while (size--)
		fputc(rand_r(&seed) >> 7 & 255, f);
	fclose(f);
}

static void tree_make(const char *dir)
{
	static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 8192, 12345, 3000000};
	char path[PATH_MAX], name[256];
	size_t i;

	CU_ASSERT_EQUAL(
		sh("rm -rf %s && mkdir -p %s/many %s/a/b/c/d/e/f/g", dir, dir, dir), 0);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(path, sizeof(path), "%s/size %zu", dir, sizes[i]);
		file_make(path, sizes[i], (unsigned int)i);
	}
	for (i = 0; i < 700; i++) {
		snprintf(path, sizeof(path), "%s/many/file-with-a-name-%zu", dir, i);
		file_make(path, i % 3 ? 10 : 0, (unsigned int)i);
	}
	memset(name, 'n', 254);
	name[254] = 0;
	snprintf(path, sizeof(path), "%s/a/%s", dir, name);
	file_make(path, 5, 1);
	snprintf(path, sizeof(path), "%s/a/new\nline \xff\xfe", dir);
	file_make(path, 5, 2);
	CU_ASSERT_EQUAL(sh("cd %s && ln 'size 4097' a/b/hard && ln 'size 4097' hard2 && "
			   "ln -s ../x a/b/link && ln -s /abs/olute dangling && "
			   "ln -s \"$(head -c 4000 /dev/zero | tr '\\0' x)\" long && "
			   "mkfifo fifo && truncate -s 1M sparse && "
			   "chmod 4755 'size 1' && chmod 1777 a && chmod 600 hard2 && "
			   "touch -d '1999-01-02 03:04:05.678901234 UTC' 'size 0' && "
			   "touch -h -d '1970-01-01 UTC' dangling",
			   dir),
			0);
	if (!getuid())
		CU_ASSERT_EQUAL(sh("cd %s && chown 12:34 'size 8192' && "
				   "chown 100000:100001 a/b/c && chmod 0 'size 12345'",
				   dir),
				0);
}

/* ---- Tests ---- */

static void test_dir(void)
{
	tree_make("tree");
	CU_ASSERT_EQUAL(sh("%s build -o out.erofs --from-dir tree", tool), 0);
	image_compare("out.erofs", "tree");
	CU_ASSERT_EQUAL(sh("stat -c %%a out.erofs"), 0);
	CU_ASSERT_STRING_EQUAL(output, "644\n");
	CU_ASSERT_EQUAL(sh("ls -A . tmp | grep casemate-image"), 1);
	/* Over an image that is there, in another directory, by another path. */
	CU_ASSERT_EQUAL(sh("mkdir -p other && cp out.erofs other/o && "
			   "%s build --from-dir ./tree/../tree/ --output=other/o",
			   tool),
			0);
	CU_ASSERT_EQUAL(sh("cmp out.erofs other/o"), 0);
	CU_ASSERT_EQUAL(sh("rm -rf other out.erofs"), 0);
}

static void test_same_again(void)
{
	tree_make("tree");
	/* Copied in another order, so that directories list it in another. */
	CU_ASSERT_EQUAL(
		sh("rm -rf copy && mkdir copy && cd tree && find . -print0 | "
		   "sort -rz | tar --null --no-recursion --format=posix -T - -cf - | "
		   "tar -C ../copy -xpf -"),
		0);
	CU_ASSERT_EQUAL(sh("%s build -o 1.erofs --from-dir tree", tool), 0);
	CU_ASSERT_EQUAL(sh("%s build -o 2.erofs --from-dir copy", tool), 0);
	image_compare("2.erofs", "copy");
	CU_ASSERT_EQUAL(sh("cmp 1.erofs 2.erofs"), 0);
	CU_ASSERT_EQUAL(sh("rm -rf copy 1.erofs 2.erofs"), 0);
}

static void test_tar(void)
{
	tree_make("tree");
	CU_ASSERT_EQUAL(sh("tar -C tree --format=posix -cf t.tar . && gzip -k t.tar && "
			   "cp t.tar host:t.tar"),
			0);
	CU_ASSERT_EQUAL(sh("%s build -o out.erofs --from-tar t.tar", tool), 0);
	if (!getuid())
		image_compare("out.erofs", "tree");
	CU_ASSERT_EQUAL(sh("%s build -o gz.erofs --from-tar t.tar.gz", tool), 0);
	CU_ASSERT_EQUAL(sh("cmp out.erofs gz.erofs"), 0);
	/* A colon is a host for tar unless it is told otherwise. */
	CU_ASSERT_EQUAL(sh("%s build -o gz.erofs --from-tar host:t.tar", tool), 0);
	CU_ASSERT_EQUAL(sh("ls -A tmp | grep casemate"), 1);
	CU_ASSERT_EQUAL(sh("rm -rf *.erofs *.tar *.gz"), 0);
}

static void test_tar_hostile(void)
{
	CU_ASSERT_EQUAL(sh("rm -rf w victim && mkdir w victim && cd w && echo bad > f && "
			   "tar -cPf ../dots.tar --transform 's,^f,../victim/f,' f && "
			   "ln -s %s/victim l && mkdir d && echo bad > d/f && "
			   "tar -cf ../link.tar l && "
			   "tar -rf ../link.tar --transform 's,^d/f,l/f,' d/f && "
			   "tar -cPf ../abs.tar --transform 's,^f,%s/victim/f,' f && "
			   "head -c 700 ../abs.tar > ../cut.tar && "
			   "head -c 5000 /dev/urandom > ../noise.tar",
			   top, top),
			0);
	build_check_refused("--from-tar dots.tar", "tar failed: ");
	build_check_refused("--from-tar link.tar", "tar failed: ");
	build_check_refused("--from-tar cut.tar", "tar failed: ");
	build_check_refused("--from-tar noise.tar", "tar failed: ");
	build_check_refused("--from-tar missing.tar",
			    "missing.tar: cannot be read: No such");
	build_check_refused("--from-tar w", "tar failed: ");
	/* An absolute name lands inside the image. */
	CU_ASSERT_EQUAL(sh("%s build -o out.erofs --from-tar abs.tar", tool), 0);
	CU_ASSERT_EQUAL(sh("ls -A victim"), 0);
	CU_ASSERT_STRING_EQUAL(output, "");
	CU_ASSERT_EQUAL(sh("rm -rf w victim *.tar out.erofs"), 0);
}

static void test_refusals(void)
{
	CU_ASSERT_EQUAL(sh("rm -rf r && mkdir -p r/d && echo x > r/d/f"), 0);
	CU_ASSERT_EQUAL(sh("python3 -c 'import socket; "
			   "socket.socket(socket.AF_UNIX).bind(\"r/d/sock\")'"),
			0);
	build_check_refused("--from-dir r",
			    "/r/d/sock: a socket cannot be part of an image");
	CU_ASSERT_EQUAL(sh("rm r/d/sock"), 0);
	/* Debian 12's mkfs.erofs cannot hold the longest names. */
	CU_ASSERT_EQUAL(
		sh("cp -r r r2 && cd r2 && touch $(head -c 255 /dev/zero | tr '\\0' n)"),
		0);
	if (sh("%s build -o out.erofs --from-dir r2", tool))
		CU_ASSERT_PTR_NOT_NULL(
			strstr(output, "nnn: this mkfs.erofs cannot hold names"));
	CU_ASSERT_EQUAL(sh("rm -rf r2 out.erofs"), 0);
	build_check_refused("--from-dir missing", "missing: No such file or directory");
	build_check_refused("--from-dir r/d/f", "/r/d/f: not a directory");
	build_check_refused("--from-dir r -o r/out.erofs",
			    "r/out.erofs: lies in the directory");
	build_check_refused("--from-dir r -o r/d/out.erofs", "lies in the directory");
	build_check_refused("--from-dir r -o nowhere/out.erofs",
			    "nowhere/: No such file");
	build_check_refused("--from-dir r -o tmp", "tmp: exists and is no regular file");
	build_check_refused("--debian 'bash;ls'", "';' cannot be part of a package name");
	/* A path that mkfs.erofs could not hold. */
	CU_ASSERT_EQUAL(sh("cd r && n=$(head -c 200 /dev/zero | tr '\\0' n) && "
			   "for i in $(seq 30); do mkdir $n && cd -P $n; done; true"),
			0);
	CU_ASSERT_EQUAL(sh("%s build -o out.erofs --from-dir r", tool), 125);
	CU_ASSERT_PTR_NOT_NULL(strstr(output, "casemate: image build: "));
	CU_ASSERT_EQUAL(sh("rm -rf r"), 0);
	CU_ASSERT_EQUAL(sh("ls -A . tmp | grep -e casemate-image -e out.erofs"), 1);
}

static void test_usage(void)
{
	static const char *const wrong[] = {
		"",
		"make",
		"build",
		"build -o x",
		"build --from-dir tmp",
		"build -o x --from-dir tmp --from-tar y",
		"build -o x --from-dir tmp more",
		"build -o x --from-dir",
		"build -o '' --from-dir tmp",
		"build --what",
	};
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CU_ASSERT_EQUAL(sh("%s %s", tool, wrong[i]), 125);
		CU_ASSERT_PTR_NOT_NULL(strstr(output, "casemate: image: "));
	}
	CU_ASSERT_EQUAL(sh("%s build --help", tool), 0);
}

/* As root: a mount in the tree, files of others and unreadable files seen by a user. */
static void test_as_user(void)
{
	if (getuid()) {
		printf("(needs root) ");
		return;
	}
	CU_ASSERT_EQUAL(
		sh("rm -rf r && mkdir -p r/d/m && echo x > r/d/f && chmod 0 r/d/f && "
		   "cp %s user-tool && chmod 755 . user-tool && chmod 1777 tmp",
		   tool),
		0);
	CU_ASSERT_EQUAL(sh("unshare -m sh -c 'mount -t tmpfs none r/d/m && "
			   "%s build -o out.erofs --from-dir r'",
			   tool),
			125);
	CU_ASSERT_PTR_NOT_NULL(strstr(output, "/r/d/m: another filesystem is mounted"));
#define AS_USER                                                                          \
	"setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all "            \
	"./user-tool build -o tmp/out.erofs "
	CU_ASSERT_EQUAL(sh(AS_USER "--from-dir r"), 125);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(output, "/r/d/f: cannot be read: Permission denied"));
	CU_ASSERT_EQUAL(sh("chmod 644 r/d/f && chown 7 r/d/f"), 0);
	CU_ASSERT_EQUAL(sh(AS_USER "--from-dir r"), 125);
	CU_ASSERT_PTR_NOT_NULL(strstr(output, "/r/d/f: belongs to user 7"));
	CU_ASSERT_EQUAL(sh("tar -cf t.tar r"), 0);
	CU_ASSERT_EQUAL(sh(AS_USER "--from-tar t.tar"), 125);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(output, "only root can keep the owner of this member"));
	CU_ASSERT_PTR_NOT_NULL(strstr(output, "r/d/f"));
	/* The user's own files and root's become root's; a directory nobody may write to
	 * is removed all the same. */
	CU_ASSERT_EQUAL(sh("chown 65534 r/d/f && " AS_USER "--from-dir r"), 0);
	CU_ASSERT_EQUAL(sh("dump.erofs --path=/d/f tmp/out.erofs | grep 'Uid: 0 '"), 0);
	CU_ASSERT_EQUAL(sh("chown 0 r/d/f && chmod 555 r/d && tar -cf t.tar r && " AS_USER
			   "--from-tar t.tar"),
			0);
	CU_ASSERT_EQUAL(sh("dump.erofs --path=/r/d/f tmp/out.erofs | grep 'Uid: 0 '"), 0);
	CU_ASSERT_EQUAL(sh("ls -A . tmp | grep casemate-image"), 1);
	CU_ASSERT_EQUAL(sh("rm -rf r t.tar tmp/out.erofs user-tool"), 0);
}

/* Stopped in the middle: nothing is left, and the status says by what. */
static void test_stopped(void)
{
	/* A pipe that never ends keeps tar waiting; mkfs.erofs gets no turn. */
	CU_ASSERT_EQUAL(
		sh("mkfifo pipe.tar; (sleep 20 > pipe.tar) & "
		   "%s build -o out.erofs --from-tar pipe.tar & pid=$!; sleep 0.5; "
		   "ls tmp | grep -q casemate-image || echo no directory; "
		   "kill -TERM $pid; wait $pid; echo status $?; kill %%1 2>/dev/null; "
		   "true",
		   tool),
		0);
	if (strcmp(output, "status 143\n"))
		printf("\n    got: %s", output);
	CU_ASSERT_STRING_EQUAL(output, "status 143\n");
	CU_ASSERT_EQUAL(sh("ls -A . tmp | grep -e casemate-image -e out.erofs"), 1);
	CU_ASSERT_EQUAL(sh("rm pipe.tar"), 0);
}

static void test_missing_tools(void)
{
	CU_ASSERT_EQUAL(sh("mkdir -p empty r && PATH=$PWD/empty %s build -o out.erofs "
			   "--from-dir r",
			   tool),
			125);
	CU_ASSERT_PTR_NOT_NULL(strstr(output, "install the package erofs-utils\n"));
	CU_ASSERT_EQUAL(sh("rm -rf empty r"), 0);
	CU_ASSERT_EQUAL(sh("ls -A . tmp | grep -e casemate-image -e out.erofs"), 1);
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {
		{"directory", test_dir},
		{"same tree, same image", test_same_again},
		{"tar", test_tar},
		{"hostile tar", test_tar_hostile},
		{"refusals", test_refusals},
		{"usage", test_usage},
		{"mounts, owners, users", test_as_user},
		{"stopped", test_stopped},
		{"missing tools", test_missing_tools},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {{.pName = "image build", .pTests = tests},
				 CU_SUITE_INFO_NULL};
	char path[] = "/tmp/casemate-image-test.XXXXXX", command[2 * PATH_MAX];
	unsigned int failed;

	if (argc != 2 || !(tool = realpath(argv[1], NULL))) {
		fprintf(stderr, "usage: %s CASEMATE-IMAGE\n", argv[0]);
		return 2;
	}
	if (system("command -v mkfs.erofs >/dev/null && command -v fsck.erofs "
		   ">/dev/null")) {
		printf("skipped: erofs-utils is not installed\n");
		return 77;
	}
	umask(022);
	if (!mkdtemp(path) || chdir(path) < 0 || !getcwd(top, sizeof(top)) ||
	    mkdir("tmp", 0755) < 0)
		return 2;
	snprintf(command, sizeof(command), "%s/tmp", top);
	setenv("TMPDIR", command, 1);
	if (CU_initialize_registry() || CU_register_suites(suites))
		return 2;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failed = CU_get_number_of_failures() + CU_get_number_of_tests_failed();
	CU_cleanup_registry();
	snprintf(command, sizeof(command), "rm -rf '%s'", top);
	if (chdir("/") < 0 || system(command))
		return 2;
	return failed != 0;
}
