/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 by libcrypto; see digest.h. The algorithm is fetched once and kept for good. */
#include "snapshot/digest.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>

static EVP_MD *sha256;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void prepare(void)
{
	uint8_t digest[SNAPSHOT_DIGEST];

	OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
	sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	/* What libcrypto sets up at the first use is set up now. */
	if (sha256)
		EVP_Digest("", 0, digest, NULL, sha256, NULL);
}

int snapshot_prepare(void)
{
	pthread_once(&once, prepare);
	return sha256 ? 0 : -ENOMEM;
}

int snapshot_digest(const void *data, size_t size, uint8_t ret_digest[SNAPSHOT_DIGEST])
{
	if (snapshot_prepare() < 0)
		return -ENOMEM;
	return EVP_Digest(data, size, ret_digest, NULL, sha256, NULL) == 1 ? 0 : -ENOMEM;
}

int digest_init(struct digest *digest)
{
	digest->context = snapshot_prepare() == 0 ? EVP_MD_CTX_new() : NULL;
	return digest->context ? 0 : -ENOMEM;
}

void digest_done(struct digest *digest)
{
	EVP_MD_CTX_free(digest->context);
	digest->context = NULL;
}

int digest_begin(struct digest *digest)
{
	return EVP_DigestInit_ex2(digest->context, sha256, NULL) == 1 ? 0 : -ENOMEM;
}

int digest_add(struct digest *digest, const void *data, size_t size)
{
	return EVP_DigestUpdate(digest->context, data, size) == 1 ? 0 : -ENOMEM;
}

int digest_end(struct digest *digest, uint8_t ret_digest[SNAPSHOT_DIGEST])
{
	return EVP_DigestFinal_ex(digest->context, ret_digest, NULL) == 1 ? 0 : -ENOMEM;
}
