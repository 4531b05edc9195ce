/* SPDX-License-Identifier: Apache-2.0 */
/* The note that a snapshot was verified; see mark.h. */
#include "snapshot/mark.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define ATTRIBUTE	"user.casemate.verified"

struct mark {
	uint8_t id[SNAPSHOT_DIGEST];
	uint64_t size;
	int64_t seconds, nanoseconds;	/* st_mtim */
	uint64_t inode;			/* a copy carries the attribute along */
};

static int mark_make(int fd, const struct snapshot_id *id, struct mark *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->id, id->digest, sizeof(ret->id));
	ret->size = (uint64_t)st.st_size;
	ret->seconds = st.st_mtim.tv_sec;
	ret->nanoseconds = st.st_mtim.tv_nsec;
	ret->inode = st.st_ino;
	return 0;
}

int snapshot_mark_verified(int fd, const struct snapshot_id *id)
{
	struct mark mark;
	int r = mark_make(fd, id, &mark);

	if (r == 0 && fsetxattr(fd, ATTRIBUTE, &mark, sizeof(mark), 0) < 0)
		r = -errno;
	return r;
}

bool snapshot_is_verified(int fd, const struct snapshot_id *id)
{
	struct mark want, have;

	return mark_make(fd, id, &want) == 0 &&
	       fgetxattr(fd, ATTRIBUTE, &have, sizeof(have)) == (ssize_t)sizeof(have) &&
	       !memcmp(&have, &want, sizeof(have));
}
