/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unit tests of snapshot files: what is written reads back, chains give the exact memory,
 * and what could not be written is not taken for a snapshot. The golden file's folder is the
 * program's argument.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapshot/file.h"
#include "snapshot/pages.h"
#include "snapshot/sections.h"
#include "tests/snapshot/made.h"
#include "tests/unit/cunit_run.h"

static const char *golden_dir;

/* ---- What is written ---- */

static void test_full(void)
{
	struct err err = ERR_INIT;
	struct snapshot *s;
	struct made made;
	uint8_t *target;
	struct stat st;

	made_init(&made, 1);
	s = &made.snapshots[0];
	CU_ASSERT(!s->incremental);
	CU_ASSERT_EQUAL(s->page_count, MADE_SIZE / SNAPSHOT_PAGE);
	CU_ASSERT_EQUAL(s->data_offset % SNAPSHOT_CHUNK, 0);
	CU_ASSERT_EQUAL(s->file_size, s->data_offset + MADE_SIZE);
	/* Zero pages are holes: a fifth of it is held. */
	CU_ASSERT(s->pages_held > 100 && s->pages_held < s->page_count / 2);
	CU_ASSERT_EQUAL(fstat(s->fd, &st), 0);
	CU_ASSERT((uint64_t)st.st_blocks * 512 <= (s->pages_held + 20) * SNAPSHOT_PAGE);
	for (unsigned int i = 0; i < MADE_CHAIN; i++)
		CU_ASSERT_EQUAL(snapshot_verify(&made.snapshots[i], &err), 0);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	/* Copy-on-write: what is written to the mapping is not in the file. */
	target = made_memory();
	CU_ASSERT_EQUAL(snapshot_map(made.chain, 1, target, &err), 0);
	memset(target, 0xee, MADE_SIZE);
	CU_ASSERT_EQUAL(snapshot_verify(s, &err), 0);
	munmap(target, MADE_SIZE);
	made_done(&made);
}

/* Any state comes back as it was: compared by what it encodes to. */
static void test_state(void)
{
	struct made made;

	made_init(&made, 2);
	for (size_t i = 0; i < SNAPSHOT_PARTS; i++) {
		const struct snapshot_part *part = &snapshot_parts[i];
		uint8_t *a = (uint8_t *)&made.last + part->offset, *x, *y;
		uint8_t *b = (uint8_t *)&made.snapshots[MADE_CHAIN - 1].state + part->offset;
		struct err err = ERR_INIT;
		size_t m, n;

		CU_ASSERT_EQUAL_FATAL(field_encode(part->table, a, &x, &m, &err), 0);
		CU_ASSERT_EQUAL_FATAL(field_encode(part->table, b, &y, &n, &err), 0);
		CU_ASSERT(m == n && memcmp(x, y, n) == 0);
		free(x);
		free(y);
	}
	made_done(&made);
}

static void test_no_pages(void)
{
	struct snapshot_source source = { .memory = made_memory(), .size = MADE_SIZE };
	const struct snapshot *chain[1];
	struct snapshot_state state;
	struct err err = ERR_INIT;
	struct snapshot snapshot;
	struct snapshot_id id;
	uint8_t *target = made_memory();
	int fd = made_fd();

	made_state(&state, 3);
	CU_ASSERT_EQUAL(snapshot_write(fd, &state, &source, &id, &err), 0);
	CU_ASSERT_EQUAL_FATAL(made_open(fd, &snapshot), 0);
	CU_ASSERT_EQUAL(snapshot.pages_held, 0);
	CU_ASSERT_EQUAL(snapshot_verify(&snapshot, &err), 0);
	chain[0] = &snapshot;
	memset(target, 1, MADE_SIZE);
	CU_ASSERT_EQUAL(snapshot_map(chain, 1, target, &err), 0);
	CU_ASSERT_EQUAL(memcmp(target, source.memory, MADE_SIZE), 0);
	snapshot_close(&snapshot);
	snapshot_state_done(&state);
	munmap(target, MADE_SIZE);
	munmap((void *)(uintptr_t)source.memory, MADE_SIZE);
	close(fd);
}

/* ---- Chains ---- */

static void files_equal(int a, int b)
{
	struct stat x, y;
	uint8_t *m, *n;

	fstat(a, &x);
	fstat(b, &y);
	CU_ASSERT_EQUAL_FATAL(x.st_size, y.st_size);
	m = mmap(NULL, (size_t)x.st_size, PROT_READ, MAP_SHARED, a, 0);
	n = mmap(NULL, (size_t)y.st_size, PROT_READ, MAP_SHARED, b, 0);
	CU_ASSERT_EQUAL(memcmp(m, n, (size_t)x.st_size), 0);
	munmap(m, (size_t)x.st_size);
	munmap(n, (size_t)y.st_size);
}

static void test_chain(void)
{
	for (uint64_t seed = 10; seed < 16; seed++) {
		uint8_t *target = made_memory();
		struct err err = ERR_INIT;
		struct snapshot_source source = { .size = MADE_SIZE };
		struct snapshot_id folded, full;
		struct made made;
		int a = made_fd(), b = made_fd();

		made_init(&made, seed);
		memset(target, 0x77, MADE_SIZE);
		CU_ASSERT_EQUAL(snapshot_map(made.chain, MADE_CHAIN, target, &err), 0);
		CU_ASSERT_EQUAL(memcmp(target, made.memory, MADE_SIZE), 0);
		/* Folding gives the very file that a full snapshot would have been. */
		source.memory = made.memory;
		CU_ASSERT_EQUAL(snapshot_compact(made.chain, MADE_CHAIN, a, &folded, &err), 0);
		CU_ASSERT_EQUAL(snapshot_write(b, &made.last, &source, &full, &err), 0);
		CU_ASSERT_EQUAL(memcmp(&folded, &full, sizeof(full)), 0);
		files_equal(a, b);
		CU_ASSERT_STRING_EQUAL(err.text, "");
		made_done(&made);
		munmap(target, MADE_SIZE);
		close(a);
		close(b);
	}
}

/* A file of that memory, opened. */
static void made_write(const struct snapshot_source *source, uint64_t seed,
		       struct snapshot *ret)
{
	struct snapshot_state state;
	struct err err = ERR_INIT;
	struct snapshot_id id;
	int fd = made_fd();

	made_state(&state, seed);
	CU_ASSERT_EQUAL(snapshot_write(fd, &state, source, &id, &err), 0);
	CU_ASSERT_EQUAL_FATAL(made_open(fd, ret), 0);
	CU_ASSERT_EQUAL(snapshot_verify(ret, &err), 0);
	snapshot_state_done(&state);
}

/* Pages that are of no use are not in the file: zeros, or what the parent has. */
static void test_unused(void)
{
	uint8_t *memory = made_memory(), *target = made_memory();
	uint64_t dirty[MADE_WORDS] = { 0 }, unused[MADE_WORDS] = { 0 };
	struct snapshot_source source = { .memory = memory, .size = MADE_SIZE };
	struct snapshot files[2];
	const struct snapshot *chain[] = { &files[0], &files[1] };
	struct err err = ERR_INIT;

	memset(memory, 1, MADE_SIZE);
	unused[0] = 2;				/* page 1 */
	for (size_t i = 0; i < CHUNK_BLOCKS; i++)
		unused[CHUNK_BLOCKS + i] = UINT64_MAX;	/* the second chunk */
	source.unused = unused;
	made_write(&source, 1, &files[0]);
	CU_ASSERT_EQUAL(files[0].pages_held, 2 * SNAPSHOT_CHUNK / SNAPSHOT_PAGE - 1);
	memset(target, 7, MADE_SIZE);
	CU_ASSERT_EQUAL(snapshot_map(chain, 1, target, &err), 0);
	CU_ASSERT(target[0] == 1 && target[2 * SNAPSHOT_PAGE] == 1);
	CU_ASSERT(page_is_zero(target + SNAPSHOT_PAGE));
	CU_ASSERT(target[SNAPSHOT_CHUNK - 1] == 1 && target[2 * SNAPSHOT_CHUNK] == 1);
	for (size_t at = 0; at < SNAPSHOT_CHUNK; at += SNAPSHOT_PAGE)
		CU_ASSERT(page_is_zero(target + SNAPSHOT_CHUNK + at));

	/* Page 1 is in use again, page 2 no longer; both have changed. */
	memset(memory, 2, 3 * SNAPSHOT_PAGE);
	dirty[0] = 7;
	unused[0] = 4;
	source.dirty = dirty;
	source.parent = &files[0].id;
	made_write(&source, 1, &files[1]);
	CU_ASSERT_EQUAL(files[1].pages_held, 2);
	CU_ASSERT_EQUAL(snapshot_map(chain, 2, target, &err), 0);
	CU_ASSERT(target[0] == 2 && target[SNAPSHOT_PAGE] == 2);
	CU_ASSERT(target[2 * SNAPSHOT_PAGE] == 1 && target[3 * SNAPSHOT_PAGE] == 1);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	for (size_t i = 0; i < 2; i++) {
		close(files[i].fd);
		snapshot_close(&files[i]);
	}
	munmap(memory, MADE_SIZE);
	munmap(target, MADE_SIZE);
}

static void chain_refused(const struct snapshot *const *chain, size_t count, const char *part)
{
	uint8_t *target = made_memory();
	struct err err = ERR_INIT;
	struct snapshot_id id;
	struct stat st;
	int fd = made_fd();

	CU_ASSERT(snapshot_map(chain, count, target, &err) < 0);
	made_text_has(err.text, part);
	err = (struct err)ERR_INIT;
	CU_ASSERT(snapshot_compact(chain, count, fd, &id, &err) < 0);
	made_text_has(err.text, part);
	CU_ASSERT(fstat(fd, &st) == 0 && st.st_size == 0);
	close(fd);
	munmap(target, MADE_SIZE);
}

static void test_chain_refusals(void)
{
	const struct snapshot *chain[3];
	struct made made, other;

	made_init(&made, 20);
	made_init(&other, 21);
	chain_refused(made.chain, 0, "no snapshot");
	chain_refused(made.chain + 1, 2, "the first snapshot is incremental");
	chain[0] = made.chain[0];
	chain[1] = made.chain[2];
	chain_refused(chain, 2, "continues");
	chain[1] = made.chain[0];
	chain_refused(chain, 2, "full snapshot continues no other");
	chain[1] = other.chain[1];
	chain_refused(chain, 2, "continues");
	chain[1] = made.chain[1];
	chain[2] = made.chain[1];
	chain_refused(chain, 3, "continues");
	/* A link that fits, between machines that do not. */
	made.snapshots[1].state.machine.kernel_digest[0] ^= 1;
	chain_refused(made.chain, 2, "different machines");
	made_done(&made);
	made_done(&other);
}

/* ---- Writing fails ---- */

static void test_disk_full(void)
{
	struct snapshot_source source = { .size = MADE_SIZE };
	struct err err = ERR_INIT;
	struct snapshot_id id;
	struct made made;
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	made_init(&made, 40);
	source.memory = made.memory;
	CU_ASSERT_EQUAL(snapshot_write(fd, &made.last, &source, &id, &err), -ENOSPC);
	made_text_has(err.text, "disk is full");
	err = (struct err)ERR_INIT;
	CU_ASSERT_EQUAL(snapshot_compact(made.chain, MADE_CHAIN, fd, &id, &err), -ENOSPC);
	made_text_has(err.text, "disk is full");
	close(fd);
	made_done(&made);
}

/* Whatever is the last byte that could be written, the file is not taken for a snapshot. */
static void test_unfinished(void)
{
	struct snapshot_source source = { .size = MADE_SIZE };
	struct rlimit before, limit;
	struct snapshot_id id;
	struct made made;
	char path[] = "/tmp/casemate-snapshot.XXXXXX";

	made_init(&made, 41);
	source.memory = made.memory;
	signal(SIGXFSZ, SIG_IGN);
	CU_ASSERT_EQUAL(getrlimit(RLIMIT_FSIZE, &before), 0);
	for (uint64_t size = 0; size < made.snapshots[0].file_size; size += 333333) {
		struct err err = ERR_INIT;
		int fd = mkostemp(path, O_CLOEXEC);

		unlink(path);
		strcpy(path + sizeof(path) - 7, "XXXXXX");
		limit = before;
		limit.rlim_cur = size;
		setrlimit(RLIMIT_FSIZE, &limit);
		CU_ASSERT_EQUAL(snapshot_write(fd, &made.last, &source, &id, &err), -EFBIG);
		setrlimit(RLIMIT_FSIZE, &before);
		made_text_has(err.text, "ulimit");
		made_refused(fd, "not finished");
		close(fd);
	}
	made_done(&made);
}

static void test_write_refusals(void)
{
	struct snapshot_source source = { .memory = made_memory(), .size = MADE_SIZE };
	uint64_t dirty[MADE_WORDS] = { 0 };
	struct snapshot_state state;
	struct err err = ERR_INIT;
	struct snapshot_id id;
	int fd = made_fd();

	made_state(&state, 42);
	source.dirty = dirty;
	CU_ASSERT_EQUAL(snapshot_write(fd, &state, &source, &id, &err), -EINVAL);
	made_text_has(err.text, "parent");
	source.dirty = NULL;
	source.size = MADE_SIZE - SNAPSHOT_PAGE;
	err = (struct err)ERR_INIT;
	CU_ASSERT_EQUAL(snapshot_write(fd, &state, &source, &id, &err), -EINVAL);
	made_text_has(err.text, "2 MiB");
	source.size = SNAPSHOT_CHUNK;
	err = (struct err)ERR_INIT;
	CU_ASSERT_EQUAL(snapshot_write(fd, &state, &source, &id, &err), -EINVAL);
	made_text_has(err.text, "memory_size");
	source.size = MADE_SIZE;
	state.vcpu.segments[0].dpl = 4;
	err = (struct err)ERR_INIT;
	CU_ASSERT_EQUAL(snapshot_write(fd, &state, &source, &id, &err), -EINVAL);
	made_text_has(err.text, "vcpu.segments.cs.dpl");
	made_refused(fd, "empty");
	snapshot_state_done(&state);
	munmap((void *)(uintptr_t)source.memory, MADE_SIZE);
	close(fd);
}

/* ---- Memory runs out ---- */

/* Our own allocations are counted down (the linker's --wrap); the one at 0 fails. */
static long allocations_left = -1;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_malloc(size_t size)
{
	return allocations_left >= 0 && allocations_left-- == 0 ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return allocations_left >= 0 && allocations_left-- == 0 ? NULL
								  : __real_calloc(count, size);
}

/* Does one thing with the allocation n failing. Returns what came of it. */
static int starved(const struct made *made, unsigned int what, long n, struct err *err)
{
	struct snapshot_source source = { .memory = made->memory, .size = MADE_SIZE };
	struct snapshot snapshot;
	struct snapshot_id id;
	int fd = made_fd(), r;

	*err = (struct err)ERR_INIT;
	allocations_left = n;
	switch (what) {
	case 0:
		r = snapshot_open(&snapshot, made->fds[1], err);
		if (r == 0)
			snapshot_close(&snapshot);
		break;
	case 1:
		r = snapshot_write(fd, &made->last, &source, &id, err);
		break;
	case 2:
		r = snapshot_verify(&made->snapshots[1], err);
		break;
	default:
		r = snapshot_compact(made->chain, MADE_CHAIN, fd, &id, err);
		break;
	}
	allocations_left = -1;
	close(fd);
	return r;
}

static void test_starved(void)
{
	struct made made;

	made_init(&made, 50);
	for (unsigned int what = 0; what < 4; what++) {
		struct err err;
		long n = 0;

		while (starved(&made, what, n, &err) < 0) {
			CU_ASSERT_EQUAL(err.code, -ENOMEM);
			made_text_has(err.text, "memory");
			CU_ASSERT_FATAL(n++ < 100);
		}
		CU_ASSERT(n > 0);
		CU_ASSERT_STRING_EQUAL(err.text, "");
	}
	made_done(&made);
}

/* ---- Golden files ---- */

static void line_wanted(const char *line, const char *text)
{
	const char *at = text;
	size_t size = strlen(line);

	/* A whole line of the output. */
	while (at && strncmp(at, line, size) != 0) {
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	if (!at)
		fprintf(stderr, "the golden file lacks: %s", line);
	CU_ASSERT_PTR_NOT_NULL(at);
}

/* A file of each version goes on loading, with the values that it was made with. Later
 * versions may print more fields, so each line that there was is looked for. */
static void golden_check(const char *name)
{
	char command[4096], line[4096], *text = NULL;
	struct err err = ERR_INIT;
	struct snapshot snapshot;
	unsigned int lines = 0;
	FILE *packed, *to, *want;
	size_t size = 0;
	int fd = made_fd();

	snprintf(command, sizeof(command), "gzip -dc '%s/%s.gz'", golden_dir, name);
	packed = popen(command, "r");
	CU_ASSERT_PTR_NOT_NULL_FATAL(packed);
	while ((size = fread(line, 1, sizeof(line), packed)) > 0)
		CU_ASSERT_EQUAL(fd_write_all(fd, line, size), 0);
	CU_ASSERT_EQUAL(pclose(packed), 0);
	CU_ASSERT_EQUAL_FATAL(made_open(fd, &snapshot), 0);
	CU_ASSERT_EQUAL(snapshot_verify(&snapshot, &err), 0);
	to = open_memstream(&text, &size);
	snapshot_print(&snapshot, to);
	fclose(to);
	snprintf(command, sizeof(command), "%s/%s.txt", golden_dir, name);
	want = fopen(command, "r");
	CU_ASSERT_PTR_NOT_NULL_FATAL(want);
	while (fgets(line, sizeof(line), want)) {
		line_wanted(line, text);
		lines++;
	}
	CU_ASSERT(lines > 100);
	fclose(want);
	free(text);
	snapshot_close(&snapshot);
	close(fd);
}

static void test_golden(void)
{
	golden_check("v1");
	golden_check("v2");
}

int main(int argc, char **argv)
{
	CU_pSuite suite;

	if (argc != 2)
		return 2;
	golden_dir = argv[1];
	suite = cunit_suite("snapshot files", NULL, NULL);
	CU_add_test(suite, "full", test_full);
	CU_add_test(suite, "state", test_state);
	CU_add_test(suite, "no pages", test_no_pages);
	CU_add_test(suite, "chain", test_chain);
	CU_add_test(suite, "unused pages", test_unused);
	CU_add_test(suite, "chains refused", test_chain_refusals);
	CU_add_test(suite, "disk full", test_disk_full);
	CU_add_test(suite, "unfinished", test_unfinished);
	CU_add_test(suite, "writing refused", test_write_refusals);
	CU_add_test(suite, "memory runs out", test_starved);
	CU_add_test(suite, "golden files", test_golden);
	return cunit_run();
}
