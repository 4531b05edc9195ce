/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The note on a snapshot file that its memory was verified (an extended attribute with the
 * file's id, size and time of last change), so that it is verified once and not at each start.
 * Whoever may write the file may write the note: it guards against damage, as the digests do.
 * Where the filesystem keeps no such attributes, files are verified each time.
 */
#ifndef CASEMATE_SNAPSHOT_MARK_H
#define CASEMATE_SNAPSHOT_MARK_H

#include <stdbool.h>

#include "snapshot/file.h"

/* Returns 0, or -errno: the filesystem does not keep it. */
int snapshot_mark_verified(int fd, const struct snapshot_id *id);
bool snapshot_is_verified(int fd, const struct snapshot_id *id);

#endif
