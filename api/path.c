/* SPDX-License-Identifier: Apache-2.0 */
/* The socket's place; see path.h. */
#include "api/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int api_socket_path(const char *given, char *ret, size_t size, struct err *err)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int n;

	if (!given)
		given = getenv("CASEMATE_SOCKET");
	if (given && given[0])
		n = snprintf(ret, size, "%s", given);
	else if (runtime && runtime[0])
		n = snprintf(ret, size, "%s/casemate/casemate.sock", runtime);
	else
		n = snprintf(ret, size, "/run/casemate/casemate.sock");
	if (n < 0 || (size_t)n >= size)
		return err_set(err, ENAMETOOLONG, "the path of the daemon's socket is too long");
	return 0;
}
