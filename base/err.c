/* SPDX-License-Identifier: Apache-2.0 */
/* Reasons for failures as text; see err.h for the doctrine. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int err_set(struct err *err, int code, const char *format, ...)
{
	va_list args;

	code = code ? -abs(code) : -EIO;
	if (err->code)
		return code;
	err->code = code;
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	return code;
}

int err_set_errno(struct err *err, int code, const char *format, ...)
{
	va_list args;
	size_t used;

	code = code ? -abs(code) : -EIO;
	if (err->code)
		return code;
	err->code = code;
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	used = strlen(err->text);
	snprintf(err->text + used, sizeof(err->text) - used, ": %s", strerror(-code));
	return code;
}
