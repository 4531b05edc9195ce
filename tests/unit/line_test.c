/* SPDX-License-Identifier: Apache-2.0 */
/* The line protocol's words and values. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>

#include "api/line.h"
#include "base/value.h"

/* Reads `text` in pieces of `step` bytes and gives the first line. Returns next()'s result. */
static int read_line(struct line_reader *reader, const char *text, size_t len, size_t step,
		     const struct line **ret)
{
	int r = 0;

	line_reader_init(reader);
	while (len > 0 && r == 0) {
		size_t n = len < step ? len : step;

		CU_ASSERT_EQUAL_FATAL(line_reader_give(reader, (const uint8_t *)text, n), 0);
		text += n;
		len -= n;
		r = line_reader_next(reader, ret);
	}
	return r;
}

struct example {
	const char *text;
	const char *words;	/* joined by | */
	const char *tag;
};

static void test_words(void)
{
	static const struct example examples[] = {
		{ "list\n", "list", "" },
		{ "  a \t b\r\n", "a|b", "" },
		{ "@t1 exec a -- b\n", "exec|a|--|b", "t1" },
		{ "\"@t1\" a\n", "@t1|a", "" },
		{ "env=\"A=b c\" 'x \\n' \"\\n\\t\\x41\\\\\\\"\"\n",
		  "env=A=b c|x \\n|\n\tA\\\"", "" },
		{ "'' a''b \"\"\n", "|ab|", "" },
		{ "\n", "", "" },
		{ "a @b\n", "a|@b", "" },
		{ "a '#5'\n", "a|#5", "" },
		{ "a x#5\n", "a|x#5", "" },
		{ "a #5x\n", "a|#5x", "" },
	};

	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
		for (size_t step = 1; step < 40; step += 13) {
			struct line_reader reader;
			const struct line *line;
			char joined[256] = "";

			CU_ASSERT_EQUAL_FATAL(read_line(&reader, examples[i].text,
							strlen(examples[i].text), step,
							&line), 1);
			CU_ASSERT_PTR_NULL(line->why);
			CU_ASSERT_FALSE(line->has_chunk);
			for (size_t w = 0; w < line->count; w++) {
				if (w)
					strcat(joined, "|");
				strcat(joined, line->words[w]);
			}
			CU_ASSERT_STRING_EQUAL(joined, examples[i].words);
			CU_ASSERT_STRING_EQUAL(line->tag, examples[i].tag);
			CU_ASSERT_PTR_NULL(line->words[line->count]);
			CU_ASSERT_FALSE(line_reader_partial(&reader));
			line_reader_done(&reader);
		}
	}
}

static void test_bad_words(void)
{
	static const char *const bad[] = { "a \"b\n", "'\n", "\"\\q\"\n", "\"\\x1\"\n",
		"\"\\xg0\"\n", "\"\\x00\"\n", "@ a\n", "@a/b c\n", "\"\\\n",
		"@aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b\n" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct line_reader reader;
		const struct line *line;

		CU_ASSERT_EQUAL_FATAL(read_line(&reader, bad[i], strlen(bad[i]), 7, &line), 1);
		CU_ASSERT_PTR_NOT_NULL(line->why);
		CU_ASSERT_EQUAL(line->count, 0);
		/* And the next one is read as if nothing had been. */
		CU_ASSERT_EQUAL(line_reader_give(&reader, (const uint8_t *)"ok\n", 3), 0);
		CU_ASSERT_EQUAL(line_reader_next(&reader, &line), 1);
		CU_ASSERT_PTR_NULL(line->why);
		CU_ASSERT_STRING_EQUAL(line->words[0], "ok");
		line_reader_done(&reader);
	}
}

static void test_chunks(void)
{
	static const char text[] = "stdin 1 #6\nab\n\0cdnext #0\nbad \" #2\nxyz\n";

	for (size_t step = 1; step < sizeof(text); step += 5) {
		struct line_reader reader;
		const struct line *line;
		size_t left = sizeof(text) - 1, seen = 0;
		const char *at = text;

		line_reader_init(&reader);
		while (left > 0) {
			size_t n = left < step ? left : step;

			line_reader_give(&reader, (const uint8_t *)at, n);
			at += n;
			left -= n;
			while (line_reader_next(&reader, &line) == 1) {
				static const size_t lengths[] = { 6, 0, 2, 0 };

				CU_ASSERT_EQUAL(line->chunk_len, lengths[seen]);
				CU_ASSERT_EQUAL(line->has_chunk, seen < 3);
				if (seen == 0)
					CU_ASSERT_EQUAL(memcmp(line->chunk, "ab\n\0cd", 6), 0);
				if (seen == 3)
					CU_ASSERT_STRING_EQUAL(line->words[0], "z");
				seen++;
			}
		}
		CU_ASSERT_EQUAL(seen, 4);
		line_reader_done(&reader);
	}
}

static void test_caps(void)
{
	struct line_reader reader;
	const struct line *line;
	uint8_t *many = malloc(LINE_BYTES_MAX);

	memset(many, 'x', LINE_BYTES_MAX);
	line_reader_init(&reader);
	line_reader_give(&reader, many, LINE_BYTES_MAX - 1);
	CU_ASSERT_EQUAL(line_reader_next(&reader, &line), 0);
	line_reader_give(&reader, (const uint8_t *)"\n", 1);
	CU_ASSERT_EQUAL(line_reader_next(&reader, &line), 1);
	CU_ASSERT_EQUAL(line_reader_next(&reader, &line), 0);
	CU_ASSERT_EQUAL(line_reader_give(&reader, many, LINE_BYTES_MAX), 0);
	CU_ASSERT_EQUAL(line_reader_next(&reader, &line), -EPROTO);
	CU_ASSERT_PTR_NOT_NULL(reader.broken);
	line_reader_done(&reader);
	CU_ASSERT_EQUAL(read_line(&reader, "a #65537\n", 9, 9, &line), -EPROTO);
	line_reader_done(&reader);
	CU_ASSERT_EQUAL(read_line(&reader, "a #99999999999999999999999\n", 27, 27, &line),
			-EPROTO);
	line_reader_done(&reader);
	for (size_t i = 0; i < LINE_BYTES_MAX; i++)
		many[i] = i % 2 ? ' ' : 'x';
	many[LINE_BYTES_MAX - 1] = '\n';
	line_reader_init(&reader);
	line_reader_give(&reader, many, LINE_BYTES_MAX);
	CU_ASSERT_EQUAL(line_reader_next(&reader, &line), 1);
	CU_ASSERT_STRING_EQUAL(line->why, "too many words");
	line_reader_done(&reader);
	free(many);
}

/* Every byte but zero comes back as it was. */
static void test_writing(void)
{
	char all[256], text[2048];
	struct line_reader reader;
	const struct line *line;
	size_t len = 0;

	for (int i = 1; i < 256; i++)
		all[i - 1] = (char)i;
	all[255] = '\0';
	CU_ASSERT_EQUAL(line_word_add(text, sizeof(text), &len, "plain"), 0);
	CU_ASSERT_EQUAL(line_word_add(text, sizeof(text), &len, all), 0);
	CU_ASSERT_EQUAL(line_word_add(text, sizeof(text), &len, ""), 0);
	CU_ASSERT_EQUAL(line_pair_add(text, sizeof(text), &len, "n", "v w"), 0);
	CU_ASSERT_EQUAL(line_word_add(text, sizeof(text), &len, "#5"), 0);
	text[len++] = '\n';
	CU_ASSERT_EQUAL_FATAL(read_line(&reader, text, len, 100, &line), 1);
	CU_ASSERT_EQUAL_FATAL(line->count, 5);
	CU_ASSERT_STRING_EQUAL(line->words[1], all);
	CU_ASSERT_STRING_EQUAL(line->words[2], "");
	CU_ASSERT_STRING_EQUAL(line_value(line, 0, "n"), "v w");
	CU_ASSERT_STRING_EQUAL(line->words[4], "#5");
	line_reader_done(&reader);
	len = 0;
	CU_ASSERT_EQUAL(line_word_add(text, 10, &len, "0123456789"), -ENOBUFS);
	CU_ASSERT_EQUAL(line_word_add(text, 10, &len, " "), 0);
	CU_ASSERT_EQUAL(line_word_add(text, 10, &len, "  "), -ENOBUFS);
	CU_ASSERT_EQUAL(len, 3);
}

static void test_values(void)
{
	uint64_t v;
	uint32_t s;
	bool b;

	CU_ASSERT(value_size("256M", &v) == 0 && v == 256ull << 20);
	CU_ASSERT(value_time("10ms", VALUE_TIME_MAX, &v) == 0 && v == 10000000);
	CU_ASSERT(value_time("2m", VALUE_TIME_MAX, &v) == 0 && v == 120000000000ull);
	CU_ASSERT(value_size("99999999999999999999", &v) < 0);
	CU_ASSERT(value_size("18446744073709551615G", &v) < 0);
	CU_ASSERT(value_size("-1", &v) < 0 && value_size("", &v) < 0 && value_size("1T", &v) < 0);
	CU_ASSERT(value_time("1001h0", VALUE_TIME_MAX, &v) < 0 &&
		  value_time("24001h", VALUE_TIME_MAX, &v) < 0);
	CU_ASSERT(value_number("11", 10, &v) < 0 && value_number("10", 10, &v) == 0);
	CU_ASSERT(value_bool("yes", &b) == 0 && b && value_bool("true", &b) < 0);
	CU_ASSERT(value_signal("TERM", &s) == 0 && s == 15);
	CU_ASSERT(value_signal("SIGKILL", &s) == 0 && s == 9);
	CU_ASSERT(value_signal("0", &s) < 0 && value_signal("65", &s) < 0 &&
		  value_signal("x", &s) < 0);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{ "words", test_words }, { "bad words", test_bad_words },
		{ "chunks", test_chunks }, { "caps", test_caps }, { "writing", test_writing },
		{ "values", test_values }, CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = { { "line", NULL, NULL, NULL, NULL, tests },
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
