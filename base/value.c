/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options; see value.h. */
#include "base/value.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"

struct unit {
	const char *suffix;
	uint64_t factor;
};

static const struct unit size_units[] = {
	{ "", 1 }, { "K", 1ull << 10 }, { "M", 1ull << 20 }, { "G", 1ull << 30 }, { NULL, 0 },
};
static const struct unit time_units[] = {
	{ "ms", NS_PER_SEC / 1000 }, { "s", NS_PER_SEC }, { "", NS_PER_SEC },
	{ "m", 60 * NS_PER_SEC }, { "h", 3600 * NS_PER_SEC }, { NULL, 0 },
};

static int digits(const char *text, const char **ret_end, uint64_t *ret)
{
	unsigned long long number;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	*ret_end = end;
	*ret = number;
	return 0;
}

int value_number(const char *text, uint64_t max, uint64_t *ret)
{
	const char *end;
	uint64_t number;

	if (digits(text, &end, &number) < 0 || *end || number > max)
		return -EINVAL;
	*ret = number;
	return 0;
}

static int with_unit(const char *text, const struct unit *units, uint64_t *ret)
{
	const char *end;
	uint64_t number;

	if (digits(text, &end, &number) < 0)
		return -EINVAL;
	for (; units->suffix; units++) {
		if (!strcmp(end, units->suffix))
			return __builtin_mul_overflow(number, units->factor, ret) ? -EINVAL : 0;
	}
	return -EINVAL;
}

int value_size(const char *text, uint64_t *ret_bytes)
{
	return with_unit(text, size_units, ret_bytes);
}

int value_time(const char *text, uint64_t max_ns, uint64_t *ret_ns)
{
	uint64_t ns;

	if (with_unit(text, time_units, &ns) < 0 || ns > max_ns)
		return -EINVAL;
	*ret_ns = ns;
	return 0;
}

int value_bool(const char *text, bool *ret)
{
	if (strcmp(text, "yes") && strcmp(text, "no"))
		return -EINVAL;
	*ret = text[0] == 'y';
	return 0;
}

int value_signal(const char *text, uint32_t *ret_number)
{
	uint64_t number;

	if (value_number(text, 64, &number) == 0 && number > 0) {
		*ret_number = (uint32_t)number;
		return 0;
	}
	if (!strncmp(text, "SIG", 3))
		text += 3;
	for (int i = 1; i < NSIG; i++) {
		const char *name = sigabbrev_np(i);

		if (name && !strcmp(name, text)) {
			*ret_number = (uint32_t)i;
			return 0;
		}
	}
	return -EINVAL;
}
