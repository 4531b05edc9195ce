/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The random number generator: ChaCha20 (RFC 8439) with fast key erasure. Each request makes
 * one block whose first half becomes the next key before the output leaves, so that a later
 * look at memory says nothing about numbers given out before.
 *
 * The clock page carries a generation and 64 bytes that are fresh in every VM restored or
 * forked from another. They are mixed in before the first use in a new generation: the check
 * is part of each request. A VM may be stopped at any instruction, also in the middle of a
 * request, and go on more than once; so the generation is looked at again when the output is
 * there, and output of an older one is made anew.
 */
#include "guest-kernel/core/random_internal.h"

#include "abi/clock.h"
#include "guest-kernel/core/time.h"

#define KEY_SIZE 32u

static uint8_t key[KEY_SIZE];
static uint64_t seen_generation;

static uint32_t rotl(uint32_t v, unsigned n)
{
	return v << n | v >> (32 - n);
}

static void quarter(uint32_t *x, unsigned a, unsigned b, unsigned c, unsigned d)
{
	x[a] += x[b];
	x[d] = rotl(x[d] ^ x[a], 16);
	x[c] += x[d];
	x[b] = rotl(x[b] ^ x[c], 12);
	x[a] += x[b];
	x[d] = rotl(x[d] ^ x[a], 8);
	x[c] += x[d];
	x[b] = rotl(x[b] ^ x[c], 7);
}

void chacha20_block(const uint8_t k[32], uint32_t counter, const uint8_t nonce[12],
		    uint8_t out[64])
{
	uint32_t s[16] = { 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 }, x[16];

	memcpy(s + 4, k, 32);
	s[12] = counter;
	memcpy(s + 13, nonce, 12);
	memcpy(x, s, sizeof(x));
	for (unsigned i = 0; i < 10; i++) {
		quarter(x, 0, 4, 8, 12);
		quarter(x, 1, 5, 9, 13);
		quarter(x, 2, 6, 10, 14);
		quarter(x, 3, 7, 11, 15);
		quarter(x, 0, 5, 10, 15);
		quarter(x, 1, 6, 11, 12);
		quarter(x, 2, 7, 8, 13);
		quarter(x, 3, 4, 9, 14);
	}
	for (unsigned i = 0; i < 16; i++)
		x[i] += s[i];
	memcpy(out, x, sizeof(x));
}

static void wipe(void *p, size_t n)
{
	memset(p, 0, n);
	__asm__ volatile("" : : "r"(p) : "memory");
}

static const uint8_t zero_nonce[12];

/* key = first half of ChaCha20(key ^ data), for each 32 bytes of data. */
void random_mix(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint8_t block[64];

	while (n > 0) {
		size_t part = MIN(n, (size_t)KEY_SIZE);

		for (size_t i = 0; i < part; i++)
			key[i] ^= p[i];
		chacha20_block(key, 0, zero_nonce, block);
		memcpy(key, block, KEY_SIZE);
		p += part;
		n -= part;
	}
	wipe(block, sizeof(block));
}

/* Mixes a new generation's entropy in. Returns whether there was one. */
static bool check_generation(void)
{
	const volatile struct cm_clock *c = clock_page;
	uint8_t entropy[CM_CLOCK_ENTROPY];
	uint64_t generation;
	uint32_t seq;

	if (c == NULL || likely(c->generation == seen_generation))
		return false;
	do {
		seq = c->seq;
		__asm__ volatile("" : : : "memory");
		generation = c->generation;
		for (unsigned i = 0; i < sizeof(entropy); i++)
			entropy[i] = c->entropy[i];
		__asm__ volatile("" : : : "memory");
	} while ((seq & 1) != 0 || seq != c->seq);
	random_mix(entropy, sizeof(entropy));
	wipe(entropy, sizeof(entropy));
	seen_generation = generation;
	return true;
}

void random_init(const void *seed, size_t n)
{
	uint64_t t[2] = { clock_realtime_ns(), clock_monotonic_ns() };

	random_mix(seed, n);
	random_mix(t, sizeof(t));
	check_generation();
}

static void output_make(uint8_t *p, size_t n)
{
	uint8_t block[64], stream[KEY_SIZE];
	uint32_t counter = 0;
	size_t part;

	/* Block 0: next key, and the key of this request's stream or the output itself. */
	chacha20_block(key, 0, zero_nonce, block);
	memcpy(key, block, KEY_SIZE);
	if (n <= KEY_SIZE) {
		memcpy(p, block + KEY_SIZE, n);
		goto out;
	}
	memcpy(stream, block + KEY_SIZE, KEY_SIZE);
	for (; n > 0; n -= part, p += part) {
		chacha20_block(stream, counter++, zero_nonce, block);
		part = MIN(n, sizeof(block));
		memcpy(p, block, part);
	}
	wipe(stream, sizeof(stream));
out:
	wipe(block, sizeof(block));
}

void random_bytes(void *buf, size_t n)
{
	check_generation();
	do {
		output_make(buf, n);
	} while (unlikely(check_generation()));
}
