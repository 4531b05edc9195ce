/* SPDX-License-Identifier: Apache-2.0 */
/*
 * initd's builtins, in a directory of this test's own, which each case finds empty.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/initd/suites.h"

static char dir[64];
static struct peer peer;

static void begin(void)
{
	strcpy(dir, "/tmp/initd-builtin.XXXXXX");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	CU_ASSERT_EQUAL_FATAL(chdir(dir), 0);
	peer_start(&peer, initd_path, true);
}

/* Removes what is left, too. */
static void end(void)
{
	char command[96];

	CU_ASSERT_EQUAL(peer_stop(&peer), 0);
	CU_ASSERT_EQUAL(chdir("/"), 0);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	CU_ASSERT_EQUAL(system(command), 0);
}

/* Starts one: its words up to NULL, in the test's directory. */
static void start(struct peer_exec *e, uint16_t flags, const char *word, ...)
{
	const char *argv[16] = {word};
	size_t n = 1;
	va_list args;

	va_start(args, word);
	while (n < 15 && (argv[n] = va_arg(args, const char *)))
		n++;
	va_end(args);
	argv[n] = NULL;
	peer_exec_as(&peer, e, CM_EXEC_BUILTIN | flags, dir, getuid(), argv, NULL);
}

/* Its exit code; -1 when it did not exit as it must. */
static int finish(struct peer_exec *e)
{
	int code;

	if (!peer_finish(&peer, e) || !e->exited || e->after_end || e->overrun || e->errors ||
	    !WIFEXITED(e->exit.status))
		return -1;
	code = WEXITSTATUS(e->exit.status);
	/* One line for a person, or none. */
	CU_ASSERT_EQUAL(code != 0, e->err_size > 0);
	if (e->err_size)
		CU_ASSERT_PTR_EQUAL(strchr(e->err, '\n'), e->err + e->err_size - 1);
	return code;
}

#define run(flags, ...)                                                                 \
	({                                                                              \
		struct peer_exec run_exec;                                              \
		int run_code;                                                           \
		start(&run_exec, flags, __VA_ARGS__, NULL);                             \
		run_code = finish(&run_exec);                                           \
		peer_exec_done(&run_exec);                                              \
		run_code;                                                               \
	})

static mode_t mode_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? 0 : st.st_mode & 07777;
}

static void test_dispatch(void)
{
	static const char *const missing[] = {"no-such", NULL};
	struct peer_exec e;

	begin();
	start(&e, 0, "no-such", NULL);
	CU_ASSERT_TRUE(peer_finish(&peer, &e));
	CU_ASSERT_TRUE(e.failed && e.failure.error == ENOENT);
	CU_ASSERT_EQUAL(e.failure.step, CM_FAILED_EXEC);
	peer_exec_as(&peer, &e, CM_EXEC_BUILTIN, "/no/such", getuid(), missing, NULL);
	CU_ASSERT_TRUE(peer_finish(&peer, &e));
	CU_ASSERT_TRUE(e.failed);
	CU_ASSERT_EQUAL(run(0, "mkdir"), EINVAL);
	CU_ASSERT_EQUAL(run(0, "mkdir", "a", "what=1"), EINVAL);
	CU_ASSERT_EQUAL(run(0, "mkdir", "a", "mode"), EINVAL);
	CU_ASSERT_EQUAL(run(0, "mkdir", "a", "mode=9"), EINVAL);
	CU_ASSERT_EQUAL(run(0, "mkdir", "a", "mode=17777"), EINVAL);
	CU_ASSERT_EQUAL(run(0, "mkdir", "a", "parents=maybe"), EINVAL);
	CU_ASSERT_EQUAL(access("a", F_OK), -1);
	peer_check_alive(&peer);
	end();
}

static void test_mkdir(void)
{
	struct peer_exec e;

	begin();
	CU_ASSERT_EQUAL(run(0, "mkdir", "a"), 0);
	CU_ASSERT_EQUAL(mode_of("a"), 0755);
	CU_ASSERT_EQUAL(run(0, "mkdir", "a"), EEXIST);
	CU_ASSERT_EQUAL(run(0, "mkdir", "a", "parents=yes"), 0);
	CU_ASSERT_EQUAL(run(0, "mkdir", "b/c/d"), ENOENT);
	CU_ASSERT_EQUAL(run(0, "mkdir", "b/c/d", "parents=yes", "mode=01777"), 0);
	CU_ASSERT_EQUAL(mode_of("b/c/d"), 01777);
	CU_ASSERT_EQUAL(mode_of("b/c"), 0755);
	CU_ASSERT_EQUAL(run(0, "mkdir", "", "parents=yes"), ENOENT);
	CU_ASSERT_EQUAL(close(open("file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	CU_ASSERT_EQUAL(run(0, "mkdir", "file/x", "parents=yes"), ENOTDIR);
	CU_ASSERT_EQUAL(run(0, "mkdir", "file", "parents=yes"), EEXIST);
	/* A name cannot make two lines of one. */
	start(&e, 0, "mkdir", "no/line\nand\x1b[31m", NULL);
	CU_ASSERT_EQUAL(finish(&e), ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.err, "no/line?and?[31m: No such file"));
	peer_exec_done(&e);
	end();
}

/* A user who may not. */
static void test_user(void)
{
	const char *const argv[] = {"mkdir", "a", NULL};
	struct peer_exec e;

	if (getuid())
		return;
	begin();
	peer_exec_as(&peer, &e, CM_EXEC_BUILTIN, "/usr", 65534, argv, NULL);
	CU_ASSERT_EQUAL(finish(&e), EACCES);
	peer_exec_done(&e);
	end();
}

/* ---- put and get ---- */

static char *bytes_make(size_t size)
{
	char *bytes = malloc(size + 1);
	size_t i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
	for (i = 0; i < size; i++)
		bytes[i] = (char)(i * 7 + i / 251);
	return bytes;
}

/* A put that is begun by start(); its exit code. */
static int put_finish(struct peer_exec *e, const char *bytes, size_t size)
{
	int code;

	CU_ASSERT_TRUE(peer_stdin(&peer, e, bytes, size));
	peer_send(&peer, CM_F_STDIN, 0, e->id, NULL, 0);
	code = finish(e);
	peer_exec_done(e);
	return code;
}

#define put(bytes, size, ...)                                                           \
	({                                                                              \
		struct peer_exec put_exec;                                              \
		start(&put_exec, CM_EXEC_STDIN, "put", __VA_ARGS__, NULL);              \
		put_finish(&put_exec, bytes, size);                                     \
	})

static void file_check(const char *path, const char *bytes, size_t size)
{
	char *found = malloc(size + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CU_ASSERT_TRUE(fd >= 0 && found && read(fd, found, size + 1) == (ssize_t)size);
	CU_ASSERT_EQUAL(memcmp(found, bytes, size), 0);
	free(found);
	close(fd);
}

static void file_make(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static size_t entries(const char *path)
{
	DIR *d = opendir(path);
	size_t n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n - 2;
}

static void test_put(void)
{
	size_t size = 5000000;
	char *bytes = bytes_make(size);

	begin();
	CU_ASSERT_EQUAL(put(bytes, size, "file"), 0);
	file_check("file", bytes, size);
	CU_ASSERT_EQUAL(mode_of("file"), 0644);
	CU_ASSERT_EQUAL(put(bytes, 0, "empty", "mode=0"), 0);
	file_check("/dev/null", "", 0);
	CU_ASSERT_EQUAL(mode_of("empty"), 0);
	/* In the place of another: its mode stays, unless one is given. */
	CU_ASSERT_EQUAL(chmod("file", 0751), 0);
	CU_ASSERT_EQUAL(put("short", 5, "file", "size=5"), 0);
	file_check("file", "short", 5);
	CU_ASSERT_EQUAL(mode_of("file"), 0751);
	CU_ASSERT_EQUAL(put("new", 3, "file", "mode=4711"), 0);
	CU_ASSERT_EQUAL(mode_of("file"), 04711);
	/* A symbolic link is replaced, not followed. */
	CU_ASSERT_EQUAL(symlink("file", "link"), 0);
	CU_ASSERT_EQUAL(put("linked", 6, "link"), 0);
	file_check("link", "linked", 6);
	file_check("file", "new", 3);
	CU_ASSERT_EQUAL(entries("."), 3);
	end();
	free(bytes);
}

static void test_put_refused(void)
{
	char *bytes = bytes_make(300000);

	begin();
	file_make("file", "old");
	CU_ASSERT_EQUAL(mkdir("dir", 0755), 0);
	CU_ASSERT_EQUAL(mkfifo("fifo", 0600), 0);
	CU_ASSERT_EQUAL(put(bytes, 1000, "dir"), EISDIR);
	CU_ASSERT_EQUAL(put(bytes, 1000, "new/"), ENOENT);
	CU_ASSERT_EQUAL(put(bytes, 1000, "dir/"), EISDIR);
	CU_ASSERT_EQUAL(put(bytes, 1000, "dir/.."), EISDIR);
	CU_ASSERT_EQUAL(put(bytes, 1000, ""), ENOENT);
	CU_ASSERT_EQUAL(put(bytes, 1000, "fifo"), EEXIST);
	CU_ASSERT_EQUAL(put(bytes, 1000, "no/file"), ENOENT);
	CU_ASSERT_EQUAL(put(bytes, 1000, "file/x"), ENOTDIR);
	CU_ASSERT_EQUAL(put(bytes, 300000, "file", "size=300001"), ENODATA);
	CU_ASSERT_EQUAL(put(bytes, 300000, "file", "size=299999"), EFBIG);
	CU_ASSERT_EQUAL(put(bytes, 1, "file", "size=0"), EFBIG);
	CU_ASSERT_EQUAL(put(bytes, 1, "file", "size=-1"), EINVAL);
	CU_ASSERT_EQUAL(put(bytes, 1, "file", "size=99999999999999999999"), EINVAL);
	file_check("file", "old", 3);
	CU_ASSERT_EQUAL(entries("."), 3);
	CU_ASSERT_EQUAL(entries("dir"), 0);
	end();
	free(bytes);
}

/* Whatever ends a put before its end of stdin, there is no new file and no trace. */
static void test_put_killed(void)
{
	char *bytes = bytes_make(200000);
	uint32_t number = SIGKILL;
	struct peer_exec e;

	begin();
	file_make("file", "old");
	start(&e, CM_EXEC_STDIN, "put", "file", NULL);
	CU_ASSERT_TRUE(peer_stdin(&peer, &e, bytes, 200000));
	while (!e.started || e.in_credit <= CM_CREDIT_INITIAL - 200000)
		CU_ASSERT_TRUE_FATAL(peer_pump(&peer, &e, 1, 5000));
	peer_send(&peer, CM_F_SIGNAL, 0, e.id, &number, sizeof(number));
	CU_ASSERT_TRUE(peer_finish(&peer, &e));
	CU_ASSERT_TRUE(WIFSIGNALED(e.exit.status) && WTERMSIG(e.exit.status) == SIGKILL);
	peer_exec_done(&e);
	file_check("file", "old", 3);
	CU_ASSERT_EQUAL(entries("."), 1);
	end();
	free(bytes);
}

/* A put goes on when another client has come. */
static void test_put_resumed(void)
{
	char *bytes = bytes_make(400000);
	struct peer_exec e;

	begin();
	start(&e, CM_EXEC_STDIN, "put", "file", "size=400000", NULL);
	CU_ASSERT_TRUE(peer_stdin(&peer, &e, bytes, 100000));
	CU_ASSERT_TRUE(peer_resume(&peer, &e, 1, 8));
	CU_ASSERT_EQUAL(e.running_flags, CM_EXEC_STDIN | CM_EXEC_BUILTIN);
	CU_ASSERT_EQUAL(put_finish(&e, bytes + 100000, 300000), 0);
	file_check("file", bytes, 400000);
	end();
	free(bytes);
}

static void test_full(void)
{
	char *bytes = bytes_make(2000000);
	struct peer_exec e;

	/* Mounts of a namespace of our own. */
	if (unshare(CLONE_NEWNS) == 0)
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	begin();
	CU_ASSERT_EQUAL(mkdir("small", 0755), 0);
	if (mount("none", "small", "tmpfs", 0, "size=1m") < 0) {
		printf("(no tmpfs: %s) ", strerror(errno));
		end();
		return;
	}
	CU_ASSERT_EQUAL(put("old", 3, "small/file"), 0);
	start(&e, CM_EXEC_STDIN, "put", "small/file", NULL);
	peer_stdin(&peer, &e, bytes, 2000000);
	peer_send(&peer, CM_F_STDIN, 0, e.id, NULL, 0);
	CU_ASSERT_EQUAL(finish(&e), ENOSPC);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.err, "cannot write small/file: No space left"));
	peer_exec_done(&e);
	file_check("small/file", "old", 3);
	CU_ASSERT_EQUAL(entries("small"), 1);
	/* Nothing holds the space. */
	CU_ASSERT_EQUAL(put(bytes, 900000, "small/file"), 0);
	/* Moved where there is no room, and where there is. */
	CU_ASSERT_EQUAL(put(bytes, 2000000, "big", "mode=0700"), 0);
	CU_ASSERT_EQUAL(run(0, "mv", "big", "small/big"), ENOSPC);
	file_check("big", bytes, 2000000);
	CU_ASSERT_EQUAL(entries("small"), 1);
	CU_ASSERT_EQUAL(run(0, "mv", "small/file", "moved"), 0);
	file_check("moved", bytes, 900000);
	CU_ASSERT_EQUAL(entries("small"), 0);
	CU_ASSERT_EQUAL(mkdir("small/dir", 0755), 0);
	CU_ASSERT_EQUAL(run(0, "mv", "small/dir", "dir"), EXDEV);
	/* rm does not go down into another file system. */
	CU_ASSERT_EQUAL(mkdir("top", 0755) | mkdir("top/small", 0755), 0);
	CU_ASSERT_EQUAL(mount("small", "top/small", NULL, MS_BIND, NULL), 0);
	CU_ASSERT_EQUAL(run(0, "rm", "top", "recursive=yes"), EBUSY);
	CU_ASSERT_EQUAL(access("small/dir", F_OK), 0);
	CU_ASSERT_EQUAL(umount("top/small"), 0);
	CU_ASSERT_EQUAL(umount("small"), 0);
	end();
	free(bytes);
}

static void get_check(struct peer_exec *e, const char *bytes, size_t size)
{
	CU_ASSERT_EQUAL(finish(e), 0);
	CU_ASSERT_EQUAL_FATAL(e->out_size, size);
	CU_ASSERT_TRUE(size == 0 || !memcmp(e->out, bytes, size));
	peer_exec_done(e);
}

static void test_get(void)
{
	size_t size = 3000000;
	char *bytes = bytes_make(size);
	struct peer_exec e;
	int fd;

	begin();
	CU_ASSERT_EQUAL(put(bytes, size, "file"), 0);
	start(&e, 0, "get", "file", NULL);
	get_check(&e, bytes, size);
	start(&e, 0, "get", "file", "offset=1000001", NULL);
	get_check(&e, bytes + 1000001, size - 1000001);
	start(&e, 0, "get", "file", "offset=77", "length=200000", NULL);
	get_check(&e, bytes + 77, 200000);
	start(&e, 0, "get", "file", "length=0", NULL);
	get_check(&e, bytes, 0);
	start(&e, 0, "get", "file", "offset=9000000", NULL);
	get_check(&e, bytes, 0);
	start(&e, 0, "get", "/proc/self/comm", NULL);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_TRUE(e.out_size > 0);
	peer_exec_done(&e);
	/* Beyond what 32 bits can say. */
	fd = open("huge", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	CU_ASSERT_EQUAL(pwrite(fd, "end", 3, 5000000000), 3);
	close(fd);
	start(&e, 0, "get", "huge", "offset=5000000000", NULL);
	get_check(&e, "end", 3);
	start(&e, 0, "stat", "huge", NULL);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, " size=5000000003 "));
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(put("x", 1, "huge", "size=5000000000"), ENODATA);
	CU_ASSERT_EQUAL(run(0, "get", "."), EISDIR);
	CU_ASSERT_EQUAL(run(0, "get", "none"), ENOENT);
	CU_ASSERT_EQUAL(run(0, "get", "file", "offset=x"), EINVAL);
	CU_ASSERT_EQUAL(run(0, "get", "/proc/self/fd/1", "offset=1", "length=1"), ESPIPE);
	end();
	free(bytes);
}

/* ---- The others ---- */

static void test_list(void)
{
	static const char *const odd[] = {"a b", "\n", "\"q'\\", "@tag", "#5", "\x80\xff",
					  "n=v", "-"};
	struct peer_exec e;
	size_t i;

	begin();
	for (i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		CU_ASSERT_EQUAL(put("x", 1, odd[i]), 0);
	start(&e, 0, "ls", ".", NULL);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "name=\"a b\" type=file mode=0644 uid="));
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "name=\"\\n\" "));
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "name=\"\\\"q'\\\\\" "));
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "name=\"@tag\" "));
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "name=\"#5\" "));
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "name=\"\x80\xff\" "));
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "name=n=v "));
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(mkdir("d", 0755) | mkdir("d/e", 0700), 0);
	CU_ASSERT_EQUAL(symlink("../to where", "d/e/l"), 0);
	start(&e, 0, "ls", "d", "recursive=yes", NULL);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "name=e type=dir mode=0700 "));
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "\nname=e/l type=link "));
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, " target=\"../to where\"\n"));
	peer_exec_done(&e);
	start(&e, 0, "stat", "d/e/l", "follow=no", NULL);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_EQUAL(strncmp(e.out, "name=d/e/l type=link ", 21), 0);
	peer_exec_done(&e);
	start(&e, 0, "stat", "/dev/null", NULL);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, " type=char mode=0"));
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, " device=1:3\n"));
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(run(0, "stat", "d/e/l"), ENOENT);
	CU_ASSERT_EQUAL(run(0, "ls", "-"), ENOTDIR);
	CU_ASSERT_EQUAL(run(0, "ls", "none"), ENOENT);
	end();
}

static void test_list_long(void)
{
	struct peer_exec e;
	char name[256];
	size_t i, lines = 0;

	begin();
	CU_ASSERT_EQUAL(mkdir("d", 0755), 0);
	for (i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "d/%0200zu", i);
		file_make(name, "");
	}
	start(&e, 0, "ls", "d", NULL);
	CU_ASSERT_EQUAL(finish(&e), 0);
	for (i = 0; i < e.out_size; i++)
		lines += e.out[i] == '\n';
	CU_ASSERT_EQUAL(lines, 3000);
	CU_ASSERT_EQUAL(e.out[e.out_size - 1], '\n');
	peer_exec_done(&e);
	end();
}

static void test_names(void)
{
	begin();
	file_make("a", "one");
	file_make("b", "two");
	CU_ASSERT_EQUAL(run(0, "mv", "a", "b"), 0);
	file_check("b", "one", 3);
	CU_ASSERT_EQUAL(run(0, "mv", "a", "b"), ENOENT);
	CU_ASSERT_EQUAL(mkdir("d", 0755), 0);
	CU_ASSERT_EQUAL(run(0, "mv", "b", "d"), EISDIR);
	CU_ASSERT_EQUAL(run(0, "mv", "b"), EINVAL);
	CU_ASSERT_EQUAL(run(0, "symlink", "l", "target=some where"), 0);
	CU_ASSERT_EQUAL(run(0, "symlink", "l", "target=b"), 0);
	file_check("l", "one", 3);
	CU_ASSERT_EQUAL(run(0, "symlink", "d", "target=b"), EISDIR);
	CU_ASSERT_EQUAL(run(0, "symlink", "l"), EINVAL);
	CU_ASSERT_EQUAL(run(0, "symlink", "l", "target="), ENOENT);
	CU_ASSERT_EQUAL(entries("."), 3);
	CU_ASSERT_EQUAL(run(0, "chmod", "b", "mode=0400"), 0);
	CU_ASSERT_EQUAL(mode_of("b"), 0400);
	CU_ASSERT_EQUAL(run(0, "chmod", "b"), EINVAL);
	CU_ASSERT_EQUAL(run(0, "chmod", "a", "mode=0400"), ENOENT);
	end();
}

static void test_rm(void)
{
	char name[64];
	int i, at;

	begin();
	file_make("keep", "this");
	file_make("a", "");
	CU_ASSERT_EQUAL(run(0, "rm", "a"), 0);
	CU_ASSERT_EQUAL(run(0, "rm", "a"), ENOENT);
	CU_ASSERT_EQUAL(mkdir("d", 0755) | mkdir("d/e", 0755) | mkdir("d/f", 0755), 0);
	CU_ASSERT_EQUAL(mkdir("out", 0755), 0);
	file_make("out/side", "this");
	CU_ASSERT_EQUAL(symlink("../out", "d/link") | symlink("../../keep", "d/e/link"), 0);
	for (i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "d/e/file-%d", i);
		file_make(name, "");
	}
	CU_ASSERT_EQUAL(run(0, "rm", "d"), EISDIR);
	CU_ASSERT_EQUAL(run(0, "rm", "d/."), EBUSY);
	CU_ASSERT_EQUAL(run(0, "rm", "/", "recursive=yes"), EBUSY);
	CU_ASSERT_EQUAL(run(0, "rm", "d//", "recursive=yes"), 0);
	/* A link is removed, not what it names. */
	CU_ASSERT_EQUAL(symlink("out", "link"), 0);
	CU_ASSERT_EQUAL(run(0, "rm", "link", "recursive=yes"), 0);
	file_check("out/side", "this", 4);
	file_check("keep", "this", 4);
	CU_ASSERT_EQUAL(entries("."), 2);
	/* Deeper than any path can say. */
	CU_ASSERT_EQUAL(mkdir("deep", 0755), 0);
	at = open("deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (i = 0; i < 3000; i++) {
		int next;

		CU_ASSERT_EQUAL_FATAL(mkdirat(at, "abcdef", 0755), 0);
		next = openat(at, "abcdef", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
	}
	close(at);
	CU_ASSERT_EQUAL(run(0, "rm", "deep", "recursive=yes"), 0);
	CU_ASSERT_EQUAL(entries("."), 2);
	end();
}

/* Waits for a line to have come. */
static void watch_check(struct peer_exec *e, const char *text)
{
	while (!e->out || !strstr(e->out, text))
		if (e->exited || !peer_pump(&peer, e, 1, 5000)) {
			printf("(no %s in %s) ", text, e->out ? e->out : "nothing");
			CU_FAIL("the event did not come");
			return;
		}
}

static void test_watch(void)
{
	struct peer_exec e;

	begin();
	CU_ASSERT_EQUAL(mkdir("d", 0755), 0);
	start(&e, 0, "watch", "d", NULL);
	watch_check(&e, "watching\n");
	file_make("d/a b", "x");
	watch_check(&e, "created name=\"a b\"\n");
	watch_check(&e, "modified name=\"a b\"\n");
	watch_check(&e, "written name=\"a b\"\n");
	CU_ASSERT_EQUAL(mkdir("d/sub", 0755), 0);
	watch_check(&e, "created name=sub dir=yes\n");
	CU_ASSERT_EQUAL(rename("d/a b", "d/c"), 0);
	watch_check(&e, "moved-from name=\"a b\" cookie=");
	watch_check(&e, "moved-to name=c cookie=");
	CU_ASSERT_EQUAL(unlink("d/c"), 0);
	watch_check(&e, "deleted name=c\n");
	CU_ASSERT_EQUAL(rmdir("d/sub") | rmdir("d"), 0);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "\ngone\n"));
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(run(0, "watch", "none"), ENOENT);
	end();
}

/* Moves keep what is below; what comes whole is told of. tests/daemon/watch_test.py has more. */
static void test_watch_tree(void)
{
	struct peer_exec e;
	char path[80];

	begin();
	snprintf(path, sizeof(path), "%s/d", dir);
	CU_ASSERT_EQUAL(mkdir("d", 0755) | mkdir("d/a", 0755) | mkdir("d/a/b", 0755), 0);
	CU_ASSERT_EQUAL(mkdir("in", 0755) | mkdir("in/c", 0755), 0);
	file_make("in/c/f", "");
	start(&e, 0, "watch", path, "tree=yes", NULL);
	watch_check(&e, "watching\n");
	file_make("d/a/b/f", "");
	watch_check(&e, "created name=a/b/f\n");
	CU_ASSERT_EQUAL(rename("d/a", "d/x"), 0);
	CU_ASSERT_EQUAL(mkdir("d/x/b/new", 0755), 0);
	watch_check(&e, "created name=x/b/new dir=yes\n");
	CU_ASSERT_EQUAL(rename("in", "d/x/b/in"), 0);
	watch_check(&e, "created name=x/b/in/c/f\n");
	CU_ASSERT_EQUAL(rename("d/x/b", "out"), 0);
	file_make("out/in/c/g", "");
	file_make("d/last", "");
	watch_check(&e, "created name=last\n");
	CU_ASSERT_PTR_NULL(strstr(e.out, "c/g"));
	CU_ASSERT_PTR_NULL(strstr(e.out, "created name=x/b/f"));
	CU_ASSERT_EQUAL(rename("d", "moved"), 0);
	CU_ASSERT_EQUAL(finish(&e), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.out, "\ngone\n"));
	peer_exec_done(&e);
	CU_ASSERT_EQUAL(run(0, "watch", "relative", "tree=yes"), ENOENT);
	end();
}

/* A reader that takes nothing: the kernel's queue runs over, and that is said. */
static void test_watch_overflow(void)
{
	struct cm_credit credit = {.stream = CM_F_STDOUT, .bytes = CM_CREDIT_INITIAL};
	struct peer_exec e;
	char name[64];
	int i;

	begin();
	CU_ASSERT_EQUAL(mkdir("d", 0755), 0);
	start(&e, 0, "watch", "d", NULL);
	watch_check(&e, "watching\n");
	e.no_grants = true;
	for (i = 0; i < 40000; i++) {
		snprintf(name, sizeof(name), "d/a-name-of-some-length-%d", i % 100);
		file_make(name, "");
		unlink(name);
	}
	while (e.out_credit && peer_pump(&peer, &e, 1, 1000))
		;
	e.no_grants = false;
	credit.bytes -= e.out_credit;
	peer_send(&peer, CM_F_CREDIT, 0, e.id, &credit, sizeof(credit));
	e.out_credit = CM_CREDIT_INITIAL;
	watch_check(&e, "\noverflow\n");
	peer_exec_done(&e);
	end();
}

const CU_TestInfo builtin_tests[] = {
	{"dispatch", test_dispatch},
	{"mkdir", test_mkdir},
	{"another user", test_user},
	{"put", test_put},
	{"put refused", test_put_refused},
	{"put killed", test_put_killed},
	{"put, another client", test_put_resumed},
	{"full file system", test_full},
	{"get", test_get},
	{"ls and stat", test_list},
	{"ls of many", test_list_long},
	{"mv and chmod", test_names},
	{"rm", test_rm},
	{"watch", test_watch},
	{"watch of a tree", test_watch_tree},
	{"watch, slow reader", test_watch_overflow},
	CU_TEST_INFO_NULL,
};
