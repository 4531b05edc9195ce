/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs about connections into VMs: connect, forward, forwards, unforward. */
#include <stdio.h>
#include <string.h>

#include "tools/casemate/casemate.h"
#include "tools/casemate/listing.h"
#include "tools/casemate/words.h"

#define OPTION_USER	{ "--user", "user=", 'v', "UID[:GID]", "connect as this user of the guest" }

int cmd_connect(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		OPTION_USER,
		{ "--timeout", "timeout=", 'v', "TIME", "it ends after TIME, status 124" },
		OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 2, 2, false, "connect [options] NAME "
			 "unix:PATH|tcp:PORT", &c, &status))
		return status;
	return session_close(c, session_connect(c, w.rest[0], w.rest[1], w.words));
}

/* A path of ours from here on, not from where the daemon is. */
static int listen_absolute(const char *listen, char *ret, size_t size)
{
	char path[PATH_MAX];

	if (strncmp(listen, "unix:", 5)) {
		snprintf(ret, size, "%s", listen);
		return 0;
	}
	if (session_path(listen + 5, path))
		return EXIT_CASEMATE;
	if (snprintf(ret, size, "unix:%s", path) >= (int)size)
		return casemate_fail("%s is too long a path", path);
	return 0;
}

int cmd_forward(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		OPTION_USER,
		{ "--detach", "", 'y', NULL, "say its number and leave it to the daemon" },
		OPTION_SOCKET, OPTIONS_END,
	};
	static struct words w;
	unsigned long long id;
	struct casemate *c;
	char listen[PATH_MAX];
	int status;

	if (!words_begin(&w, rules, argc, argv, 3, 3, false, "forward [options] NAME "
			 "unix:PATH|tcp:[ADDRESS:]PORT unix:PATH|tcp:PORT", &c, &status))
		return status;
	status = listen_absolute(w.rest[1], listen, sizeof(listen));
	if (status == 0 && !words_own(&w, "--detach"))
		status = words_add(&w, "bound=", "yes");
	if (status == 0 &&
	    casemate_forward(c, w.rest[0], listen, w.rest[2], w.words, &id) != 0)
		status = session_fail(c);
	if (status)
		return session_close(c, status);
	if (!words_own(&w, "--detach"))
		return session_close(c, session_forward(c));
	printf("%llu %s\n", id, casemate_value(c, "listen"));
	return session_close(c, 0);
}

int cmd_forwards(int argc, char **argv)
{
	static const struct option_rule rules[] = { OPTION_JSON, OPTION_SOCKET, OPTIONS_END };
	static const struct listing_column columns[] = {
		{ "FORWARD", "forward", 7, 't' }, { "VM", "vm", 16, 't' },
		{ "LISTEN", "listen", 26, 't' }, { "TARGET", "target", 26, 't' },
		{ "OPEN", "connections", 4, 't' }, { "ACCEPTED", "accepted", 8, 't' },
		{ "FAILED", "failed", 6, 't' }, { "TROUBLE", "trouble", 0, 't' }, LISTING_END,
	};
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 0, 1, false, "forwards [options] [NAME]", &c,
			 &status))
		return status;
	status = words_ask(c, &w, "forwards", w.rest_count ? w.rest[0] : NULL, NULL);
	if (status == 0 && words_own(&w, "--json"))
		listing_json(c);
	else if (status == 0)
		listing_table(c, columns);
	return session_close(c, status);
}

int cmd_unforward(int argc, char **argv)
{
	static const struct option_rule rules[] = { OPTION_SOCKET, OPTIONS_END };
	static struct words w;
	struct casemate *c;
	int status;

	if (!words_begin(&w, rules, argc, argv, 1, 1, false, "unforward [options] FORWARD", &c,
			 &status))
		return status;
	return session_close(c, words_ask(c, &w, "unforward", w.rest[0], NULL));
}
