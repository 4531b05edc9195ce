/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of the frames that the host sends. See frame.c. */
#ifndef CASEMATE_INITD_FRAME_H
#define CASEMATE_INITD_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include "abi/channel.h"

struct frame {
	uint16_t type;
	uint16_t flags;
	uint32_t id;
	uint32_t length;
	const uint8_t *payload; /* inside the buffer given to frame_decode() */
};

enum frame_result {
	FRAME_MORE, /* not complete yet */
	FRAME_OK,
	FRAME_BAD,  /* complete and wrong: skip it, the next one starts behind it */
	FRAME_LOST, /* no frame can have this length: nothing after it can be trusted */
};

/* Looks at the `size` bytes at `buf`. OK and BAD: *ret_used is what to skip. BAD and
 * LOST: *ret_why is a constant text, and ret->type and ret->id are as received. */
enum frame_result frame_decode(const uint8_t *buf, size_t size, struct frame *ret,
			       size_t *ret_used, const char **ret_why);

/* An EXEC frame taken apart. The strings lie in the frame's buffer. */
struct frame_exec {
	struct cm_exec head;
	char *argv[CM_EXEC_STRINGS + 1];
	char *envp[CM_EXEC_STRINGS + 1];
	const char *cwd; /* never "" */
};

/* Takes apart an EXEC frame that frame_decode() accepted. NULL, or why it is malformed.
 */
const char *frame_parse_exec(const struct frame *frame, struct frame_exec *ret);

uint32_t frame_u32(const uint8_t *p);
uint16_t frame_u16(const uint8_t *p);

#endif
