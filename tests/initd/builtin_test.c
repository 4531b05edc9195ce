/* SPDX-License-Identifier: Apache-2.0 */
/*
 * initd's builtins, in a directory of this test's own, which each case finds empty.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

const CU_TestInfo builtin_tests[] = {
	{"dispatch", test_dispatch},
	{"mkdir", test_mkdir},
	{"another user", test_user},
	CU_TEST_INFO_NULL,
};
