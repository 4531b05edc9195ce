/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 by libcrypto. snapshot_prepare() does once what costs system calls (finding the
 * algorithm, libcrypto's own set-up; its configuration files are not read); after it, digests
 * take memory and nothing else, so a process calls it before it closes its jail. Whoever has
 * no jail need not call it.
 */
#ifndef CASEMATE_SNAPSHOT_DIGEST_H
#define CASEMATE_SNAPSHOT_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "snapshot/state.h"

/* Returns 0 or -ENOMEM. Any thread, any number of times. */
int snapshot_prepare(void);

/* Digest of one run of bytes. Returns 0 or -ENOMEM. */
int snapshot_digest(const void *data, size_t size, uint8_t ret_digest[SNAPSHOT_DIGEST]);

/* One made of several runs, for one thread; begin again for the next. */
struct digest {
	void *context;	/* libcrypto's */
};

int digest_init(struct digest *digest);		/* 0 or -ENOMEM */
void digest_done(struct digest *digest);	/* harmless on a zeroed one */
int digest_begin(struct digest *digest);
int digest_add(struct digest *digest, const void *data, size_t size);
int digest_end(struct digest *digest, uint8_t ret_digest[SNAPSHOT_DIGEST]);

#endif
