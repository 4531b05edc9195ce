/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 by libcrypto: its plain functions, which need no set-up, no memory and no system
 * call, and so work in the VMM's jail and bring little into a static program.
 */
#ifndef CASEMATE_SNAPSHOT_DIGEST_H
#define CASEMATE_SNAPSHOT_DIGEST_H

#define OPENSSL_SUPPRESS_DEPRECATED	/* they are, in favour of what needs all that */
#include <openssl/sha.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/state.h"

/* Digest of one run of bytes. */
void snapshot_digest(const void *data, size_t size, uint8_t ret_digest[SNAPSHOT_DIGEST]);

/* One made of several runs; begin again for the next. */
struct digest {
	SHA256_CTX context;
};

void digest_begin(struct digest *digest);
void digest_add(struct digest *digest, const void *data, size_t size);
void digest_end(struct digest *digest, uint8_t ret_digest[SNAPSHOT_DIGEST]);

#endif
