/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between casemated's processes: bounds, order under pressure, descriptors. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/Basic.h>

#include "pool/boundary.h"

#define MANY	3000u

static unsigned int came, wrong;
static bool gone;
static const char *lost_why;

static bool decodes(const struct boundary_message *m, bool from_engine, unsigned int fds)
{
	struct boundary_message ret;
	const char *why;

	return boundary_decode(from_engine, m, sizeof(*m), fds, &ret, &why) == 0;
}

static void test_decode(void)
{
	struct boundary_message spawn = { .kind = BOUNDARY_SPAWN, .id = 1, .memory = 1 << 28 };
	struct boundary_message child = { .kind = BOUNDARY_CHILD, .id = 2, .of = 1, .pid = 99,
					  .memory = 1 << 28 };
	struct boundary_message answer = { .kind = BOUNDARY_SPAWNED, .id = 1, .pid = 99 }, m;

	CU_ASSERT(decodes(&spawn, true, 1) && !decodes(&spawn, false, 1));
	CU_ASSERT(!decodes(&spawn, true, 0) && !decodes(&spawn, true, 2));
	CU_ASSERT(decodes(&child, true, 0) && !decodes(&child, true, 1));
	CU_ASSERT(decodes(&answer, false, 0) && !decodes(&answer, true, 0));
	m = spawn;
	m.flags = BOUNDARY_IMAGE | BOUNDARY_HOLD;
	m.count = 32;
	CU_ASSERT(decodes(&m, true, 34));
	m.count = 33;
	CU_ASSERT(!decodes(&m, true, 35));
	m = answer;
	m.error = EMFILE;
	CU_ASSERT(!decodes(&m, false, 0));
	m.pid = 0;
	CU_ASSERT(decodes(&m, false, 0));
	boundary_text_set(&m, "one\ntwo\x7f");
	CU_ASSERT(decodes(&m, false, 0) && !strcmp(m.text, "one?two?"));
	m.text[100] = 'x';
	CU_ASSERT(!decodes(&m, false, 0));
	memset(m.text, 'x', sizeof(m.text));
	CU_ASSERT(!decodes(&m, false, 0));
}

static void test_size(void)
{
	struct boundary_message m = { .kind = BOUNDARY_READY }, ret;
	const char *why;

	CU_ASSERT(boundary_decode(true, &m, sizeof(m), 0, &ret, &why) == 0);
	for (size_t n = 0; n < sizeof(m); n++)
		CU_ASSERT(boundary_decode(true, &m, n, 0, &ret, &why) == -EBADMSG);
}

static unsigned int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

static void on_message(struct boundary *b, const struct boundary_message *m, int *fds)
{
	struct stat st;

	came++;
	if (m->id != came)
		wrong++;
	/* Every third brings one. */
	if (m->kind == BOUNDARY_SPAWN && (fstat(fds[0], &st) < 0 || !S_ISCHR(st.st_mode)))
		wrong++;
	if (came == MANY)
		b->loop->stop = true;
}

static void on_lost(struct boundary *b, const char *why)
{
	gone = true;
	lost_why = why;
	b->loop->stop = true;
}

static void open_both(struct evloop *loop, struct boundary *engine, struct boundary *parent)
{
	int pair[2], small = 4096;

	came = wrong = 0;
	gone = false;
	CU_ASSERT_EQUAL_FATAL(evloop_init(loop), 0);
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
					 0, pair), 0);
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	engine->message = parent->message = on_message;
	engine->lost = parent->lost = on_lost;
	CU_ASSERT_EQUAL_FATAL(boundary_init(engine, loop, pair[0], false), 0);
	CU_ASSERT_EQUAL_FATAL(boundary_init(parent, loop, pair[1], true), 0);
}

/* More than the socket takes: nothing is lost, nothing changes places, nothing stays open. */
static void test_pressure(void)
{
	unsigned int before = descriptors();
	struct boundary engine, parent;
	struct evloop loop;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	open_both(&loop, &engine, &parent);
	for (unsigned int i = 1; i <= MANY; i++) {
		struct boundary_message m = { .kind = BOUNDARY_KILL, .id = i };

		if (i % 3 == 0 && i < 600) {
			m.kind = BOUNDARY_SPAWN;
			m.memory = 1 << 28;
		}
		CU_ASSERT_EQUAL(boundary_send(&engine, &m, &null,
					      m.kind == BOUNDARY_SPAWN), 0);
	}
	CU_ASSERT(engine.queued > 0);
	CU_ASSERT_EQUAL(evloop_run(&loop), 0);
	CU_ASSERT(came == MANY && wrong == 0 && !gone);
	boundary_done(&engine);
	boundary_done(&parent);
	evloop_done(&loop);
	close(null);
	CU_ASSERT_EQUAL(descriptors(), before);
}

/* The queue has an end, and what waits in it is closed with it. */
static void test_full(void)
{
	unsigned int before = descriptors(), sent = 0;
	struct boundary engine, parent;
	struct boundary_message m = { .kind = BOUNDARY_KILL, .id = 1 };
	struct evloop loop;

	open_both(&loop, &engine, &parent);
	while (boundary_send(&engine, &m, NULL, 0) == 0)
		sent++;
	CU_ASSERT(sent >= BOUNDARY_QUEUE && engine.queued == BOUNDARY_QUEUE);
	boundary_done(&engine);
	CU_ASSERT_EQUAL(boundary_send(&engine, &m, NULL, 0), -EPIPE);
	boundary_done(&parent);
	evloop_done(&loop);
	CU_ASSERT_EQUAL(descriptors(), before);
}

static void test_lost(void)
{
	unsigned int before = descriptors();
	struct boundary engine, parent;
	struct boundary_message m = { .kind = BOUNDARY_STOP };
	struct evloop loop;

	/* The other side's end, and a message that is not the other side's to say. */
	open_both(&loop, &engine, &parent);
	boundary_done(&engine);
	CU_ASSERT_EQUAL(evloop_run(&loop), 0);
	CU_ASSERT(gone && !lost_why && came == 0);
	evloop_done(&loop);
	open_both(&loop, &engine, &parent);
	CU_ASSERT_EQUAL(boundary_send(&engine, &m, NULL, 0), 0);
	CU_ASSERT_EQUAL(evloop_run(&loop), 0);
	CU_ASSERT(gone && lost_why && came == 0);
	boundary_done(&engine);
	evloop_done(&loop);
	CU_ASSERT_EQUAL(descriptors(), before);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{ "decode", test_decode }, { "size", test_size }, { "pressure", test_pressure },
		{ "full", test_full }, { "lost", test_lost }, CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = { { "boundary", NULL, NULL, NULL, NULL, tests },
				  CU_SUITE_INFO_NULL };
	unsigned int failures;

	if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
		return 2;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failures = CU_get_number_of_failures();
	CU_cleanup_registry();
	return failures ? 1 : 0;
}
