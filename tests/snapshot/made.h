/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of snapshots in memory, and what the unit tests of snapshot files want of files. */
#ifndef CASEMATE_TESTS_SNAPSHOT_MADE_H
#define CASEMATE_TESTS_SNAPSHOT_MADE_H

#include <stdint.h>

#include "snapshot/file.h"

#define MADE_SIZE	(3ull * SNAPSHOT_CHUNK)	/* of memory */
#define MADE_WORDS	(MADE_SIZE / SNAPSHOT_PAGE / 64)
#define MADE_CHAIN	4u

/* A chain, and the memory and state as they were at the end. */
struct made {
	uint8_t *memory;
	int fds[MADE_CHAIN];
	struct snapshot_state last;
	struct snapshot snapshots[MADE_CHAIN];
	const struct snapshot *chain[MADE_CHAIN];
};

void made_init(struct made *made, uint64_t seed);
void made_done(struct made *made);

int made_fd(void);		/* an empty file */
uint8_t *made_memory(void);	/* MADE_SIZE zero bytes */
/* One machine all along, another state for each seed. */
void made_state(struct snapshot_state *state, uint64_t seed);

/* Opens what must open without a word. */
int made_open(int fd, struct snapshot *ret);
/* Wants the file refused when it is opened, with this in the line. */
void made_refused(int fd, const char *part);
/* Wants it to open, but its memory not to be right. */
void made_unverified(int fd, const char *part);
/* Wants one line with this in it. */
void made_text_has(const char *text, const char *part);

uint8_t made_byte_flip(int fd, uint64_t at, uint8_t bits);

#endif
