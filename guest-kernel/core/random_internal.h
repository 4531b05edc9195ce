/* SPDX-License-Identifier: Apache-2.0 */
/* The cipher under random.c, for its test vectors. */
#ifndef CORE_RANDOM_INTERNAL_H
#define CORE_RANDOM_INTERNAL_H

#include "guest-kernel/lib/kernel.h"

/* One 64-byte block of RFC 8439, section 2.3. */
void chacha20_block(const uint8_t k[32], uint32_t counter, const uint8_t nonce[12],
		    uint8_t out[64]);

#endif
