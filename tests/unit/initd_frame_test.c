/* SPDX-License-Identifier: Apache-2.0 */
/* initd's frame decoder. */
#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>
#include <string.h>
#include "initd/frame.h"

static uint8_t bytes[sizeof(struct cm_frame) + CM_FRAME_MAX];

static size_t frame_make(uint16_t type, uint16_t flags, uint32_t id, uint32_t length)
{
	struct cm_frame head = {.length = length, .type = type, .flags = flags, .id = id};

	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes, &head, sizeof(head));
	return sizeof(head) + length;
}

static enum frame_result decode(size_t size, struct frame *ret)
{
	const char *why = NULL;
	size_t used = 0;
	enum frame_result result = frame_decode(bytes, size, ret, &used, &why);

	if (result == FRAME_OK || result == FRAME_BAD)
		CU_ASSERT_EQUAL(used, sizeof(struct cm_frame) + ret->length);
	return result;
}

static void test_table(void)
{
	static const struct {
		uint16_t type, flags;
		uint32_t id, length;
		enum frame_result result;
	} cases[] = {
		{CM_F_RESUME, 0, 0, 8, FRAME_OK},
		{CM_F_RESUME, 0, 0, 0, FRAME_BAD},
		{CM_F_RESUME, 0, 1, 8, FRAME_BAD},
		{CM_F_RESUME, 1, 0, 8, FRAME_BAD},
		{CM_F_EXEC, 3, 1, 26, FRAME_OK},
		{CM_F_EXEC, 0, 1, 25, FRAME_BAD},
		{CM_F_EXEC, 6, 1, 26, FRAME_OK},
		{CM_F_EXEC, 8, 1, 26, FRAME_BAD},
		{CM_F_EXEC, 0, 0, 26, FRAME_BAD},
		{CM_F_EXEC, 0, 1, CM_FRAME_MAX, FRAME_OK},
		{CM_F_STDIN, 0, 1, 0, FRAME_OK},
		{CM_F_STDIN, 0, 1, CM_FRAME_MAX, FRAME_OK},
		{CM_F_STDIN, 0, 0, 1, FRAME_BAD},
		{CM_F_SIGNAL, 0, 1, 4, FRAME_OK},
		{CM_F_SIGNAL, 0, 1, 8, FRAME_BAD},
		{CM_F_RESIZE, 0, 1, 4, FRAME_OK},
		{CM_F_RESIZE, 0, 1, 0, FRAME_BAD},
		{CM_F_SHUTDOWN, 0, 0, 0, FRAME_OK},
		{CM_F_SHUTDOWN, 0, 0, 1, FRAME_BAD},
		{CM_F_REPORT_GET, 0, 0, 0, FRAME_OK},
		{CM_F_CREDIT, 0, 1, 8, FRAME_OK},
		{CM_F_CREDIT, 0, 0, 8, FRAME_BAD},
		{CM_F_HELLO, 0, 0, 8, FRAME_BAD},
		{CM_F_STDOUT, 0, 1, 1, FRAME_BAD},
		{CM_F_VM_END, 0, 0, 8, FRAME_BAD},
		{0, 0, 0, 0, FRAME_BAD},
		{0xffff, 0, 0, 0, FRAME_BAD},
	};
	struct frame f;
	size_t i, size;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size = frame_make(cases[i].type, cases[i].flags, cases[i].id,
				  cases[i].length);
		CU_ASSERT_EQUAL(decode(size, &f), cases[i].result);
		CU_ASSERT_EQUAL(decode(size - 1, &f), FRAME_MORE);
		CU_ASSERT_EQUAL(f.type, cases[i].type);
	}
	size = frame_make(CM_F_SHUTDOWN, 0, 0, 0);
	bytes[12] = 1;
	CU_ASSERT_EQUAL(decode(size, &f), FRAME_BAD);
}

static void test_lost(void)
{
	struct frame f;
	size_t i;

	frame_make(CM_F_STDIN, 0, 1, 0);
	bytes[0] = 1;
	bytes[2] = 1; /* 65537 */
	for (i = 0; i < sizeof(struct cm_frame); i++)
		CU_ASSERT_EQUAL(decode(i, &f), FRAME_MORE);
	/* Known before the payload is there. */
	CU_ASSERT_EQUAL(decode(sizeof(struct cm_frame), &f), FRAME_LOST);
}

static void test_exec(void)
{
	static const char strings[] = "a\0b c\0\0X=\0Y=1=2\0/tmp";
	static struct frame_exec exec;
	struct cm_exec head = {.argc = 3, .envc = 2, .uid = 5, .gid = 6};
	struct frame f;
	size_t size;

	size = frame_make(CM_F_EXEC, 0, 1, sizeof(head) + sizeof(strings));
	memcpy(bytes + sizeof(struct cm_frame), &head, sizeof(head));
	memcpy(bytes + sizeof(struct cm_frame) + sizeof(head), strings, sizeof(strings));
	CU_ASSERT_EQUAL(decode(size, &f), FRAME_OK);
	CU_ASSERT_PTR_NULL(frame_parse_exec(&f, &exec));
	CU_ASSERT_STRING_EQUAL(exec.argv[1], "b c");
	CU_ASSERT_STRING_EQUAL(exec.argv[2], "");
	CU_ASSERT_PTR_NULL(exec.argv[3]);
	CU_ASSERT_STRING_EQUAL(exec.envp[1], "Y=1=2");
	CU_ASSERT_PTR_NULL(exec.envp[2]);
	CU_ASSERT_STRING_EQUAL(exec.cwd, "/tmp");
	CU_ASSERT_EQUAL(exec.head.uid, 5);
	f.flags = CM_EXEC_BUILTIN;
	CU_ASSERT_PTR_NULL(frame_parse_exec(&f, &exec));
	f.flags = CM_EXEC_BUILTIN | CM_EXEC_TTY;
	CU_ASSERT_PTR_NOT_NULL(frame_parse_exec(&f, &exec));
	f.flags = 0;
	/* Every shorter one is malformed. */
	for (; f.length > sizeof(head); f.length--)
		if (f.length < sizeof(head) + sizeof(strings))
			CU_ASSERT_PTR_NOT_NULL(frame_parse_exec(&f, &exec));
}

/* As many arguments as can be: 4096 empty ones. */
static void test_exec_most(void)
{
	static struct frame_exec exec;
	struct cm_exec head = {.argc = CM_EXEC_STRINGS};
	struct frame f;
	size_t size;

	size = frame_make(CM_F_EXEC, 0, 1, sizeof(head) + CM_EXEC_STRINGS + 1);
	memcpy(bytes + sizeof(struct cm_frame), &head, sizeof(head));
	CU_ASSERT_EQUAL(decode(size, &f), FRAME_OK);
	CU_ASSERT_PTR_NULL(frame_parse_exec(&f, &exec));
	CU_ASSERT_PTR_NULL(exec.argv[CM_EXEC_STRINGS]);
	CU_ASSERT_STRING_EQUAL(exec.cwd, "/");
}

int main(void)
{
	CU_TestInfo tests[] = {{"what each type allows", test_table},
			       {"lost framing", test_lost},
			       {"exec", test_exec},
			       {"exec with most strings", test_exec_most},
			       CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{.pName = "initd frames", .pTests = tests},
				 CU_SUITE_INFO_NULL};
	unsigned int failed;

	if (CU_initialize_registry() || CU_register_suites(suites))
		return 2;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failed = CU_get_number_of_failures();
	CU_cleanup_registry();
	return failed != 0;
}
