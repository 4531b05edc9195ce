/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256; see digest.h. These functions of libcrypto's cannot fail. */
#include "snapshot/digest.h"

_Static_assert(SNAPSHOT_DIGEST == SHA256_DIGEST_LENGTH, "digest size");

void digest_begin(struct digest *digest)
{
	SHA256_Init(&digest->context);
}

void digest_add(struct digest *digest, const void *data, size_t size)
{
	SHA256_Update(&digest->context, data, size);
}

void digest_end(struct digest *digest, uint8_t ret_digest[SNAPSHOT_DIGEST])
{
	SHA256_Final(ret_digest, &digest->context);
}

void snapshot_digest(const void *data, size_t size, uint8_t ret_digest[SNAPSHOT_DIGEST])
{
	struct digest digest;

	digest_begin(&digest);
	digest_add(&digest, data, size);
	digest_end(&digest, ret_digest);
}
