/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The platform page (abi/platform.h): console text, boot stages, the guest's end. Accessed by
 * the vCPU thread, read by the loop thread, both under the loop's lock.
 *
 * The last PLATFORM_TAIL bytes of text are kept always: they are the message when the kernel
 * panics. With `verbose` text is also queued for the client; where the client does not keep
 * up, text is dropped and counted. It is a debugging aid and must not stall the guest.
 */
#ifndef CASEMATE_VMM_PLATFORM_H
#define CASEMATE_VMM_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/platform.h"
#include "base/buf.h"

#define PLATFORM_TAIL	4096u
#define PLATFORM_STAGES	8u

struct platform {
	bool verbose;
	uint64_t start_ns;		/* of the VMM: stages count from here */
	uint64_t stage_ns[PLATFORM_STAGES];
	struct buf tail;
	struct buf console;
	uint64_t dropped;		/* bytes of console text */
	bool flush;			/* there is console text to be sent soon */
	bool ended;
	uint32_t end;			/* enum cm_end, as the guest wrote it */
	uint32_t free_map;		/* page frame of the map of free pages, or 0 */
};

/* Returns 0 or -ENOMEM. */
int platform_init(struct platform *platform, bool verbose, uint64_t start_ns);
void platform_done(struct platform *platform);

/* One access at offset in the page. Returns 0, or -EPROTO where the page does not know it. */
int platform_access(struct platform *platform, uint64_t offset, unsigned int len, bool write,
		    uint32_t *value);

/* The text's tail as a string without control characters, size bytes at most with its end. */
void platform_tail(const struct platform *platform, char *text, size_t size);

const char *platform_end_name(uint32_t end);

#endif
