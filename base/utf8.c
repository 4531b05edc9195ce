/* SPDX-License-Identifier: Apache-2.0 */
/* Reading UTF-8; see utf8.h. */
#include "base/utf8.h"

#include <stdbool.h>

size_t utf8_decode(const uint8_t *bytes, size_t len, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint8_t first = bytes[0];
	size_t n = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 :
		   first >> 3 == 30 ? 4 : 0;
	uint32_t c = n == 1 ? first : first & (0x7fu >> n);

	if (n == 0 || n > len)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if (bytes[i] >> 6 != 2)
			return 0;
		c = c << 6 | (bytes[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*ret = c;
	return n;
}

static bool is_harmless(uint32_t c)
{
	if (c < 32 || (c >= 127 && c < 160))
		return false;
	return !(c >= 0x200b && c <= 0x200f) && !(c >= 0x2028 && c <= 0x202e) &&
	       !(c >= 0x2060 && c <= 0x206f) && c != 0xfeff;
}

void utf8_print_clean(FILE *to, const char *text, size_t len)
{
	const uint8_t *bytes = (const uint8_t *)text;

	for (size_t at = 0, n; at < len; at += n) {
		uint32_t c;

		n = utf8_decode(bytes + at, len - at, &c);
		if (n > 0 && is_harmless(c)) {
			fwrite(bytes + at, 1, n, to);
		} else {
			fputc('.', to);
			n = n ? n : 1;
		}
	}
}
