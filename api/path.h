/* SPDX-License-Identifier: Apache-2.0 */
/* Where the daemon's socket is, for both sides. */
#ifndef CASEMATE_API_PATH_H
#define CASEMATE_API_PATH_H

#include <stddef.h>

#include "base/err.h"

/* The one given, $CASEMATE_SOCKET, or the default. Returns 0 or -ENAMETOOLONG. */
int api_socket_path(const char *given, char *ret, size_t size, struct err *err);

#endif
