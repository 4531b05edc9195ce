/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inotify, as whoever watches a whole tree relies on it: in which order events come, which
 * watch follows what, and that nothing is lost in silence. Each test works in an empty
 * directory of its own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/conformance/check.h"
#include "tests/conformance/inotify.h"

#define WANTED		(IN_ALL_EVENTS & ~(uint32_t)(IN_OPEN | IN_CLOSE | IN_ACCESS))
#define QUEUE_MAX	16384

static char place[32];
static int in;

static void begin(void)
{
	strcpy(place, "/tmp/inotify-XXXXXX");
	CHECK(mkdtemp(place) != NULL && chdir(place) == 0);
	in = inotify_init1(IN_NONBLOCK);
	CHECK(in >= 0);
}

static void end(void)
{
	char command[64];

	close(in);
	snprintf(command, sizeof(command), "rm -rf %s", place);
	CHECK(chdir("/") == 0 && system(command) == 0);
}

static int watch(const char *path, uint32_t mask)
{
	return inotify_add_watch(in, path, mask);
}

static void touch(const char *path)
{
	close(open(path, O_WRONLY | O_CREAT, 0600));
}

/* What has come: "WD:MASK:NAME ", with D behind the mask for IN_ISDIR, * for a cookie. */
static const char *events(void)
{
	static char bytes[4096] __attribute__((aligned(8))), text[2000];
	long n = read(in, bytes, sizeof(bytes));
	size_t at = 0;

	text[0] = 0;
	for (long off = 0; off < n;) {
		const struct inotify_event *e = (void *)(bytes + off);

		at += (size_t)snprintf(text + at, sizeof(text) - at, "%d:%x%s:%s%s ", e->wd,
				       e->mask & ~(uint32_t)IN_ISDIR,
				       e->mask & IN_ISDIR ? "D" : "", e->len ? e->name : "",
				       e->cookie ? "*" : "");
		off += (long)(sizeof(*e) + e->len);
	}
	return text;
}

static void expect_at(int line, const char *want)
{
	const char *got = events();

	if (strcmp(got, want) != 0 && failure == NULL) {
		snprintf(failure_text, sizeof(failure_text), "inotify.c, line %d: %s", line, got);
		failure = failure_text;
	}
}
#define EXPECT(want) expect_at(__LINE__, want)

/* A file says that it is gone before its directory does, unless somebody has it open. */
void test_inotify_removal(void)
{
	int fd;

	begin();
	mkdir("d", 0755);
	CHECK(watch("d", WANTED) == 1);
	mkdir("d/s", 0755);
	CHECK(watch("d/s", WANTED) == 2);
	EXPECT("1:100D:s ");
	rmdir("d/s");
	EXPECT("2:400: 2:8000: 1:200D:s ");
	mkdir("d/s", 0755);
	fd = open("d/s", O_RDONLY);
	/* A number is not given again. */
	CHECK(watch("d/s", WANTED) == 3);
	rmdir("d/s");
	EXPECT("1:100D:s 1:200D:s ");
	CHECK(fchdir(fd) == 0 && watch(".", WANTED) == 3 && chdir(place) == 0);
	close(fd);
	EXPECT("3:400: 3:8000: ");
	touch("d/f");
	CHECK(watch("d/f", WANTED) == 4);
	CHECK(link("d/f", "d/g") == 0);
	EXPECT("1:100:f 4:4: 1:100:g ");
	unlink("d/f");
	EXPECT("4:4: 1:200:f ");
	unlink("d/g");
	EXPECT("4:4: 4:400: 4:8000: 1:200:g ");
	CHECK(inotify_rm_watch(in, 4) == -1 && errno == EINVAL);
	touch("d/f");
	CHECK(inotify_rm_watch(in, 1) == 0);
	EXPECT("1:100:f 1:8000: ");
	CHECK(watch("d", WANTED) == 5);
	end();
}

void test_inotify_moves(void)
{
	begin();
	mkdir("d", 0755);
	mkdir("d/a", 0755);
	mkdir("d/b", 0755);
	mkdir("out", 0755);
	CHECK(watch("d", WANTED) == 1 && watch("d/a", WANTED) == 2 && watch("d/b", WANTED) == 3);
	/* Over an empty directory. */
	CHECK(rename("d/a", "d/b") == 0);
	EXPECT("1:40D:a* 1:80D:b* 3:4D: 2:800: 3:400: 3:8000: ");
	mkdir("d/c", 0755);
	CHECK(watch("d/c", WANTED) == 4);
	CHECK(rename("d/c", "d/b/c") == 0);
	EXPECT("1:100D:c 1:40D:c* 2:80D:c* 4:800: ");
	/* A watch goes along with what is above it, too, and outside. */
	CHECK(rename("d/b", "out/b") == 0);
	touch("out/b/c/f");
	EXPECT("1:40D:b* 2:800: 4:100:f ");
	CHECK(rename("out/b", "d/x") == 0);
	EXPECT("1:80D:x* 2:800: ");
	touch("d/y");
	CHECK(watch("d/y", WANTED) == 5);
	CHECK(syscall(SYS_renameat2, AT_FDCWD, "d/x", AT_FDCWD, "d/y", RENAME_EXCHANGE) == 0);
	EXPECT("1:100:y 1:40D:x* 1:80D:y* 2:800: 1:40:y* 1:80:x* 5:800: ");
	end();
}

void test_inotify_paths(void)
{
	begin();
	mkdir("d", 0755);
	touch("f");
	CHECK(symlink("d", "l") == 0);
	CHECK(watch("l", WANTED | IN_ONLYDIR | IN_DONT_FOLLOW) == -1 && errno == ENOTDIR);
	CHECK(watch("f", WANTED | IN_ONLYDIR) == -1 && errno == ENOTDIR);
	CHECK(watch("l", WANTED | IN_DONT_FOLLOW) == 1);
	CHECK(watch("l", WANTED | IN_ONLYDIR) == 2);
	CHECK(watch("d", WANTED | IN_ONLYDIR) == 2);
	CHECK(watch("d", 0) == -1 && errno == EINVAL);
	CHECK(watch("d", 0x40000 | WANTED) == -1 && errno == EINVAL);
	CHECK(watch("d", IN_CREATE | IN_MASK_CREATE) == -1 && errno == EEXIST);
	CHECK(watch("d", IN_CREATE | IN_MASK_ADD | IN_MASK_CREATE) == -1 && errno == EINVAL);
	CHECK(watch("d", IN_CREATE) == 2 && watch("d", IN_DELETE | IN_MASK_ADD) == 2);
	touch("d/f");
	chmod("d/f", 0644);
	unlink("d/f");
	EXPECT("2:100:f 2:200:f ");
	end();
}

/* What is done to a file without a name is told of, unless IN_EXCL_UNLINK says no. */
void test_inotify_unlinked(void)
{
	begin();
	mkdir("d", 0755);
	for (uint32_t excl = 0; excl <= IN_EXCL_UNLINK; excl += IN_EXCL_UNLINK) {
		int fd = open("d/f", O_RDWR | O_CREAT, 0600);

		CHECK(watch("d", WANTED | IN_CLOSE | excl) == 1);
		CHECK(watch("d/f", WANTED | IN_CLOSE | excl) == (excl ? 3 : 2));
		unlink("d/f");
		EXPECT(excl ? "3:4: 1:200:f " : "2:4: 1:200:f ");
		CHECK(write(fd, "x", 1) == 1);
		EXPECT(excl ? "" : "1:2:f 2:2: ");
		CHECK(fchmod(fd, 0644) == 0 && ftruncate(fd, 0) == 0);
		EXPECT(excl ? "1:4:f 3:4: 1:2:f 3:2: " : "1:4:f 2:4: 1:2:f 2:2: ");
		close(fd);
		EXPECT(excl ? "3:400: 3:8000: " : "1:8:f 2:8: 2:400: 2:8000: ");
		CHECK(watch("d", IN_MOVE) == 1);
	}
	end();
}

/* One event at a time, with a file's name or none. Its mask, 0 when there is none. */
static uint32_t one_event(void)
{
	char bytes[64] __attribute__((aligned(8)));

	return read(in, bytes, 32) <= 0 ? 0 : ((struct inotify_event *)bytes)->mask;
}

void test_inotify_queue(void)
{
	static const char *const names[2] = {"d/1", "d/2"};
	unsigned i, count = 0, overflows = 0, place_of_last = 0;
	uint32_t mask;

	begin();
	mkdir("d", 0755);
	mkdir("out", 0755);
	/* Equal ones that follow each other are one; cookies do not count. */
	CHECK(watch("d", IN_ATTRIB | IN_MOVED_FROM) == 1);
	for (i = 0; i < 3; i++) {
		touch("d/f");
		CHECK(rename("d/f", "out/f") == 0);
	}
	touch("d/f");
	touch("d/g");
	for (i = 0; i < 6; i++)
		chmod(i == 3 ? "d/g" : "d/f", 0600 + i);
	EXPECT("1:40:f* 1:4:f 1:4:g 1:4:f ");
	/* A full queue says so, once, and takes events again when there is room. */
	CHECK(watch("d", IN_OPEN) == 1);
	for (i = 0; i < QUEUE_MAX + 10; i++)
		touch(names[i & 1]);
	for (i = 0; i < 5; i++)
		CHECK(one_event() == IN_OPEN);
	for (i = 0; i < 10; i++)
		touch(names[i & 1]);
	while ((mask = one_event()) != 0) {
		count++;
		if (mask & IN_Q_OVERFLOW) {
			overflows++;
			place_of_last = count;
		}
	}
	CHECK(count == QUEUE_MAX && overflows == 1 && place_of_last == QUEUE_MAX - 4);
	for (i = 0; i < QUEUE_MAX + 10; i++)
		touch(names[i & 1]);
	for (count = 0; (mask = one_event()) == IN_OPEN; count++)
		;
	CHECK(count == QUEUE_MAX && (mask & IN_Q_OVERFLOW) && one_event() == 0);
	end();
}

void test_inotify_unmount(void)
{
	const char *got;

	begin();
	mkdir("m", 0755);
	/* Where there are no mount namespaces, there is nobody to hide it from. */
	if (unshare(CLONE_NEWNS) == 0)
		CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	if (mount("x", "m", "tmpfs", 0, NULL) != 0) {
		CHECK(errno == EPERM);
		/* As in the guest, where tests/unit/kernel-fs has it. */
		printf("# nobody but PID 1 mounts here, or not this user\n");
		end();
		return;
	}
	mkdir("m/s", 0755);
	CHECK(watch("m", WANTED) == 1 && watch("m/s", WANTED) == 2);
	CHECK(umount("m") == 0);
	got = events();
	CHECK(strstr(got, "1:2000D: 1:8000: ") && strstr(got, "2:2000D: 2:8000: "));
	CHECK(strlen(got) == 34);
	CHECK(inotify_rm_watch(in, 1) == -1 && errno == EINVAL);
	end();
}
