/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer and the reader of UTF-8 under it. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

static char *text;
static size_t size;
static struct json json;

static void open_json(bool lines)
{
	json = (struct json)JSON_INIT(open_memstream(&text, &size));
	json.lines = lines;
}

static void want(const char *wanted)
{
	fclose(json.to);
	CU_ASSERT_STRING_EQUAL(text, wanted);
	if (strcmp(text, wanted))
		fprintf(stderr, "%s", text);
	free(text);
}

static void test_shape(void)
{
	open_json(false);
	json_object(&json, NULL);
	json_number(&json, "n", UINT64_MAX);
	json_array(&json, "a");
	json_bool(&json, NULL, true);
	json_object(&json, NULL);
	json_end(&json);
	json_array(&json, NULL);
	json_end(&json);
	json_end(&json);
	json_hex(&json, "h", "\x01\xff", 2);
	json_format(&json, "f", "0x%x", 255u);
	json_end(&json);
	want("{\"n\": 18446744073709551615, \"a\": [true, {}, []], \"h\": \"01ff\", "
	     "\"f\": \"0xff\"}\n");
}

static void test_lines(void)
{
	open_json(true);
	json_array(&json, NULL);
	json_end(&json);
	json_array(&json, NULL);
	json_object(&json, NULL);
	json_bool(&json, "a", false);
	json_bool(&json, "b", false);
	json_end(&json);
	json_string(&json, NULL, "x");
	json_end(&json);
	want("[]\n[\n {\"a\": false, \"b\": false},\n \"x\"\n]\n");
}

static void text_is(const char *bytes, size_t len, const char *wanted)
{
	open_json(false);
	json_text(&json, NULL, bytes, len);
	want(wanted);
}

static void test_text(void)
{
	text_is("a\"b\\c/\n\x1b\0z", 10, "\"a\\\"b\\\\c/\\u000a\\u001b\\u0000z\"");
	text_is("\x7f", 1, "\"\\u007f\"");
	text_is("\xc2\x9b", 2, "\"\\u009b\"");
	/* Of two, three, four bytes, as they are. */
	text_is("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9,
		"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
	text_is("\xff", 1, "\"\xef\xbf\xbd" "ff\"");
	/* The sign for odd bytes is itself told apart. */
	text_is("\xef\xbf\xbd" "ff", 5,
		"\"\xef\xbf\xbd" "ef" "\xef\xbf\xbd" "bf" "\xef\xbf\xbd" "bdff\"");
	text_is("\xe2\x82", 2, "\"\xef\xbf\xbd" "e2" "\xef\xbf\xbd" "82\"");
}

static void test_utf8(void)
{
	static const char *const bad[] = {
		"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3\x28", "\xe0\x80\x80",
		"\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\x80",
		"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf8\x88\x80\x80\x80", "\xfe", "\xff",
	};
	uint8_t bytes[4];
	uint32_t c;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(utf8_decode((const uint8_t *)bad[i], strlen(bad[i]), &c), 0);
	/* Every character there is comes back. */
	for (uint32_t want_c = 0; want_c <= 0x10ffff; want_c++) {
		size_t n = want_c < 0x80 ? 1 : want_c < 0x800 ? 2 : want_c < 0x10000 ? 3 : 4;

		if (want_c >= 0xd800 && want_c <= 0xdfff)
			continue;
		for (size_t i = n; i > 1; i--)
			bytes[i - 1] = (uint8_t)(0x80 | (want_c >> 6 * (n - i) & 0x3f));
		bytes[0] = (uint8_t)(n == 1 ? want_c :
				     (0xf00u >> n & 0xff) | want_c >> 6 * (n - 1));
		if (utf8_decode(bytes, n, &c) != n || c != want_c) {
			CU_FAIL("a character was not read");
			break;
		}
	}
}

static void test_numbers(void)
{
	static const char *const good[] = { "0", "-0", "10", "1.5", "-1.25e+10", "1e5", "0.000" };
	static const char *const bad[] = { "", "-", "01", "1.", ".5", "1e", "+1", "0x1", "1 ",
					   "nan", "1.5.2", "1e+" };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CU_ASSERT(json_is_number(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT(!json_is_number(bad[i]));
	open_json(false);
	json_array(&json, NULL);
	json_number_text(&json, NULL, "1.50");
	json_number_text(&json, NULL, "1s");
	json_end(&json);
	want("[1.50, \"1s\"]\n");
}

static void test_clean(void)
{
	static const char bytes[] = "a\x1b[31m\xc3\xa9\xff\n\xe2\x80\xae\xc2\x9b";

	open_json(false);
	utf8_print_clean(json.to, bytes, sizeof(bytes) - 1);
	want("a.[31m\xc3\xa9....");
}

int main(void)
{
	CU_TestInfo tests[] = {
		{ "shape", test_shape }, { "lines", test_lines }, { "text", test_text },
		{ "UTF-8", test_utf8 }, { "numbers", test_numbers }, { "clean", test_clean },
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = { { .pName = "json", .pTests = tests }, CU_SUITE_INFO_NULL };

	if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
		return 1;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	return CU_get_number_of_failures() > 0;
}
