/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of the frame decoder. The first byte chooses direction and piece size. What is
 * given out must pass the checks again, and the pieces must not matter.
 */
#include <stdlib.h>
#include <string.h>

#include "base/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Number of frames, and 1000 more when the end was an error. */
static unsigned int frames(enum frame_dir dir, const uint8_t *data, size_t size, size_t step)
{
	struct frame_decoder d;
	unsigned int count = 0;

	if (frame_decoder_init(&d, dir) < 0)
		abort();
	while (size > 0) {
		size_t n = size < step ? size : step, used;
		struct frame frame;
		int r = frame_decoder_feed(&d, data, n, &used, &frame);

		if (used > n)
			abort();
		if (r < 0) {
			if (!d.why)
				abort();
			count += 1000;
			break;
		}
		if (r == 0 && used != n)
			abort();
		if (r > 0) {
			if (frame.size != sizeof(frame.head) + frame.head.length ||
			    frame_check_head(dir, &frame.head) ||
			    frame_check_payload(&frame.head, frame.payload))
				abort();
			count++;
		}
		data += used;
		size -= used;
	}
	frame_decoder_done(&d);
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum frame_dir dir;

	if (size < 1)
		return 0;
	dir = (enum frame_dir)(1u << (data[0] & 3));
	if (frames(dir, data + 1, size - 1, size) !=
	    frames(dir, data + 1, size - 1, 1 + (data[0] >> 2)))
		abort();
	return 0;
}
