/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests of base/: queues, mappings, errors, the frame codec. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/frame.h"
#include "base/map.h"
#include "tests/unit/cunit_run.h"

static void test_err_keeps_first(void)
{
	struct err err = ERR_INIT;

	CU_ASSERT_EQUAL(err_set(&err, EINVAL, "first %d", 1), -EINVAL);
	CU_ASSERT_EQUAL(err_set_errno(&err, -ENOENT, "second"), -ENOENT);
	CU_ASSERT_STRING_EQUAL(err.text, "first 1");
	CU_ASSERT_EQUAL(err.code, -EINVAL);
}

static void test_buf_wraps(void)
{
	uint8_t in[7], out[64];
	struct buf buf;
	uint8_t next_in = 0, next_out = 0;
	size_t len;

	CU_ASSERT_EQUAL_FATAL(buf_init(&buf, 16), 0);
	for (int round = 0; round < 100; round++) {
		size_t n = 1 + (size_t)round % sizeof(in);

		for (size_t i = 0; i < n; i++)
			in[i] = next_in++;
		CU_ASSERT_EQUAL(buf_append(&buf, in, n), 0);
		if (round % 2) {
			n = buf_take(&buf, out, sizeof(out));
			for (size_t i = 0; i < n; i++)
				CU_ASSERT_EQUAL(out[i], next_out++);
			CU_ASSERT_EQUAL(buf.len, 0);
		}
	}
	CU_ASSERT_EQUAL(buf_append(&buf, out, 17), -ENOBUFS);
	CU_ASSERT_EQUAL(buf_append(&buf, out, 16), 0);
	CU_ASSERT_EQUAL(buf_space(&buf), 0);
	buf_front(&buf, &len);
	CU_ASSERT_EQUAL(len, 16);
	buf_done(&buf);
}

static void test_map_counts(void)
{
	unsigned int before = map_live();
	struct map map = MAP_INIT;

	CU_ASSERT_EQUAL_FATAL(map_anonymous(&map, 3 << 20, 2 << 20), 0);
	CU_ASSERT_EQUAL((uintptr_t)map.addr % (2 << 20), 0);
	map.addr[0] = map.addr[map.size - 1] = 1;
	CU_ASSERT_EQUAL(map_live(), before + 1);
	map_done(&map);
	map_done(&map);
	CU_ASSERT_EQUAL(map_live(), before);
	CU_ASSERT_EQUAL(map_anonymous(&map, 0, 4096), -EINVAL);
	CU_ASSERT_EQUAL(map_anonymous(&map, SIZE_MAX - 10, 4096), -EINVAL);
}

/* Feeds bytes in pieces of `step`. Returns the last result; *ret_frames: frames given out. */
static int feed(enum frame_dir dir, const void *data, size_t len, size_t step,
		unsigned int *ret_frames, struct frame *ret_frame)
{
	const uint8_t *at = data;
	struct frame_decoder d;
	struct frame frame;
	int r = 0;

	CU_ASSERT_EQUAL_FATAL(frame_decoder_init(&d, dir), 0);
	*ret_frames = 0;
	while (len > 0 && r >= 0) {
		size_t n = len < step ? len : step, used;

		r = frame_decoder_feed(&d, at, n, &used, &frame);
		CU_ASSERT(used <= n);
		if (r > 0) {
			++*ret_frames;
			*ret_frame = frame;
		}
		at += used;
		len -= used;
	}
	ret_frame->payload = NULL;
	frame_decoder_done(&d);
	return r;
}

static size_t put(uint8_t *to, struct cm_frame head, const void *payload)
{
	memcpy(to, &head, sizeof(head));
	memcpy(to + sizeof(head), payload, head.length);
	return sizeof(head) + head.length;
}

static void test_frame_pieces(void)
{
	uint8_t bytes[512];
	struct cm_credit credit = { CM_F_STDIN, 100 };
	size_t len = 0;
	struct frame frame;
	unsigned int frames;

	len += put(bytes + len, frame_head(CM_F_STDOUT, 0, 7, 11), "hello world");
	len += put(bytes + len, frame_head(CM_F_STDOUT, 0, 7, 0), "");
	len += put(bytes + len, frame_head(CM_F_CREDIT, 0, 7, sizeof(credit)), &credit);
	for (size_t step = 1; step < len; step++) {
		CU_ASSERT(feed(FRAME_GUEST_TO_VMM, bytes, len, step, &frames, &frame) >= 0);
		CU_ASSERT_EQUAL(frames, 3);
		CU_ASSERT_EQUAL(frame.head.type, CM_F_CREDIT);
	}
}

static void refused(enum frame_dir dir, struct cm_frame head, const void *payload)
{
	static uint8_t bytes[FRAME_BYTES_MAX];
	struct frame frame;
	unsigned int frames;
	size_t len = head.length <= CM_FRAME_MAX ? put(bytes, head, payload) : 16;

	memcpy(bytes, &head, sizeof(head));
	CU_ASSERT_EQUAL(feed(dir, bytes, len, len, &frames, &frame), -EPROTO);
}

static void test_frame_refusals(void)
{
	struct cm_credit credit = { CM_F_STDOUT, 100 };
	struct cm_credit huge = { CM_F_STDIN, CM_CREDIT_INITIAL + 1 };
	struct cm_hello hello = { 1, 1 };
	struct cm_frame head = frame_head(CM_F_STDOUT, 0, 1, 0);
	uint32_t signal_number = 65;

	refused(FRAME_GUEST_TO_VMM, frame_head(999, 0, 0, 0), "");
	refused(FRAME_GUEST_TO_VMM, frame_head(CM_F_STDOUT, 0, 0, 0), "");
	refused(FRAME_GUEST_TO_VMM, frame_head(CM_F_STDOUT, 1, 1, 0), "");
	refused(FRAME_GUEST_TO_VMM, frame_head(CM_F_STDOUT, 0, 1, CM_FRAME_MAX + 1), "");
	refused(FRAME_GUEST_TO_VMM, frame_head(CM_F_EXEC, 0, 1, 0), "");
	refused(FRAME_GUEST_TO_VMM, frame_head(CM_F_VM_END, 0, 0, 8), "12345678");
	refused(FRAME_CLIENT_TO_VMM, frame_head(CM_F_RESUME, 0, 0, 8), "12345678");
	refused(FRAME_VMM_TO_CLIENT, frame_head(CM_F_HELLO, 0, 0, 8), "12345678");
	refused(FRAME_GUEST_TO_VMM, frame_head(CM_F_HELLO, 0, 0, 8), &hello);
	refused(FRAME_GUEST_TO_VMM, frame_head(CM_F_CREDIT, 0, 1, 8), &credit);
	refused(FRAME_GUEST_TO_VMM, frame_head(CM_F_CREDIT, 0, 1, 8), &huge);
	credit.stream = CM_F_STDIN;
	refused(FRAME_CLIENT_TO_VMM, frame_head(CM_F_CREDIT, 0, 1, 8), &credit);
	refused(FRAME_CLIENT_TO_VMM, frame_head(CM_F_SIGNAL, 0, 1, 4), &signal_number);
	head.reserved = 1;
	refused(FRAME_GUEST_TO_VMM, head, "");
}

/* An EXEC with these strings; whether it is taken. */
static bool exec_taken(uint32_t argc, uint32_t envc, const void *strings, size_t len)
{
	struct cm_exec exec = { .argc = argc, .envc = envc };
	uint8_t payload[256], bytes[300];
	struct frame frame;
	unsigned int frames;
	size_t all = sizeof(exec) + len;

	memcpy(payload, &exec, sizeof(exec));
	memcpy(payload + sizeof(exec), strings, len);
	put(bytes, frame_head(CM_F_EXEC, CM_EXEC_STDIN, 1, (uint32_t)all), payload);
	return feed(FRAME_CLIENT_TO_VMM, bytes, 16 + all, 1000, &frames, &frame) == 1;
}

static void test_frame_exec(void)
{
	CU_ASSERT(exec_taken(1, 0, "sh\0", 4));
	CU_ASSERT(exec_taken(2, 1, "sh\0-c\0A=b\0/tmp", 15));
	CU_ASSERT(exec_taken(1, 1, "sh\0A=\0", 7));
	CU_ASSERT_FALSE(exec_taken(0, 0, "sh\0", 4));
	CU_ASSERT_FALSE(exec_taken(1, 0, "sh", 3));
	CU_ASSERT_FALSE(exec_taken(1, 0, "sh\0x", 4));
	CU_ASSERT_FALSE(exec_taken(1, 0, "sh\0\0x", 6));
	CU_ASSERT_FALSE(exec_taken(1, 1, "sh\0A\0", 6));
	CU_ASSERT_FALSE(exec_taken(1, 1, "sh\0=b\0", 7));
	CU_ASSERT_FALSE(exec_taken(0xffffffff, 2, "a\0b\0", 5));
	CU_ASSERT_FALSE(exec_taken(2, 0xffffffff, "a\0b\0", 5));
}

static void test_text_clean(void)
{
	char text[] = "a\x1b[2Jb\tc\n\x7f\xff";

	frame_text_clean(text, strlen(text));
	CU_ASSERT_STRING_EQUAL(text, "a.[2Jb\tc\n..");
}

int main(void)
{
	CU_pSuite suite = cunit_suite("base", NULL, NULL);

	CU_add_test(suite, "err keeps the first reason", test_err_keeps_first);
	CU_add_test(suite, "buf wraps", test_buf_wraps);
	CU_add_test(suite, "map counts", test_map_counts);
	CU_add_test(suite, "frames in pieces", test_frame_pieces);
	CU_add_test(suite, "frames refused", test_frame_refusals);
	CU_add_test(suite, "EXEC", test_frame_exec);
	CU_add_test(suite, "text cleaned", test_text_clean);
	return cunit_run();
}
