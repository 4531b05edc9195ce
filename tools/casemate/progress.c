/* SPDX-License-Identifier: Apache-2.0 */
/* The line about long work; see progress.h. What tools say is in it: it is cleaned. */
#include "tools/casemate/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/time.h"
#include "base/utf8.h"

#define STEP_NS	(NS_PER_SEC / 10)

static bool quiet, shown;

void progress_quiet(void)
{
	quiet = true;
}

bool progress_wanted(void)
{
	static int terminal = -1;

	if (terminal < 0)
		terminal = isatty(2);
	return terminal > 0 && !quiet;
}

void progress_show(const char *format, ...)
{
	char line[80];
	va_list args;

	if (!progress_wanted() || (!format && !shown))
		return;
	line[0] = '\0';
	if (format) {
		va_start(args, format);
		vsnprintf(line, sizeof(line), format, args);
		va_end(args);
	}
	shown = format != NULL;
	fputs("\r\033[K", stderr);
	utf8_print_clean(stderr, line, strlen(line));
	fflush(stderr);
}

void progress_bytes(const char *what, uint64_t done, uint64_t total)
{
	static uint64_t last_ns;
	uint64_t now = time_monotonic_ns();

	if (now - last_ns < STEP_NS)
		return;
	last_ns = now;
	if (total)
		progress_show("%.50s: %llu of %llu MiB", what, (unsigned long long)done >> 20,
			      (unsigned long long)total >> 20);
	else
		progress_show("%.50s: %llu MiB", what, (unsigned long long)done >> 20);
}
