/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec for the channel's frames (abi/channel.h), one for every host program. A decoder
 * is fed bytes as they come, in pieces of any size, and gives out whole frames that were
 * checked against the rules of their type and direction: which way they may go, their id,
 * flags and length, and what their payload must look like. Turn-taking (HELLO first, one
 * EXIT) is the caller's business. A decoder holds one frame at most: FRAME_BYTES_MAX, taken
 * once at its start.
 */
#ifndef CASEMATE_BASE_FRAME_H
#define CASEMATE_BASE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/channel.h"
#include "base/err.h"

#define FRAME_BYTES_MAX	(sizeof(struct cm_frame) + CM_FRAME_MAX)

/* Who sent it to whom. A set of bits in the rule table, one bit in a decoder. */
enum frame_dir {
	FRAME_GUEST_TO_VMM = 1,
	FRAME_VMM_TO_GUEST = 2,
	FRAME_CLIENT_TO_VMM = 4,
	FRAME_VMM_TO_CLIENT = 8,
};

struct frame {
	struct cm_frame head;
	const uint8_t *bytes;	/* header and payload, together; the decoder's until the
				 * next feed */
	size_t size;		/* of both */
	const uint8_t *payload;	/* head.length bytes */
};

struct frame_decoder {
	enum frame_dir dir;
	const char *why;	/* after -EPROTO: what was wrong, static text */
	uint8_t *bytes;
	size_t have;
	bool whole;		/* the last feed gave a frame out */
};

/* Returns 0 or -ENOMEM. */
int frame_decoder_init(struct frame_decoder *decoder, enum frame_dir dir);
void frame_decoder_done(struct frame_decoder *decoder);

/*
 * Takes bytes up to the end of one frame. Returns 1 with *ret_frame set, 0 when all bytes were
 * taken and the frame is not whole yet, -EPROTO when the bytes are no valid frame (the decoder
 * is then of no more use). *ret_used: bytes taken, set in every case.
 */
int frame_decoder_feed(struct frame_decoder *decoder, const uint8_t *data, size_t len,
		       size_t *ret_used, struct frame *ret_frame);

/* Checks a header, then a payload, as the decoder does. NULL or what is wrong. */
const char *frame_check_head(enum frame_dir dir, const struct cm_frame *head);
const char *frame_check_payload(const struct cm_frame *head, const uint8_t *payload);

/* Makes the payload of EXEC: head, whose argc and envc say how many strings there are, and the
 * strings. `payload` has CM_FRAME_MAX bytes. Returns its length, or -E2BIG with err set. */
int frame_exec(uint8_t *payload, const struct cm_exec *head, const char *const *argv,
	       const char *const *env, const char *cwd, struct err *err);

/* A header with its reserved field zero. */
struct cm_frame frame_head(uint16_t type, uint16_t flags, uint32_t id, uint32_t length);

/* Replaces what could steer a terminal (control characters but tab and newline, and bytes
 * above 126) by '.': for text of a guest that is shown to a person. */
void frame_text_clean(char *text, size_t len);

const char *frame_type_name(uint16_t type);

#endif
