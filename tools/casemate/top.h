/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate top`: top.c asks the daemon and makes lines of text of the answers, top_screen.c
 * shows them on a terminal, again and again. Lines are plain ASCII, whatever names there are.
 */
#ifndef CASEMATE_TOOLS_TOP_H
#define CASEMATE_TOOLS_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/casemate.h"

#define TOP_HEAD	3u	/* lines before the VMs, the last with the columns' titles */
#define TOP_COLUMNS	384u

/* Sort keys, in the order of the table in top.c. */
struct top_key {
	char key;
	const char *name;
};
#define TOP_KEYS	8u
extern const struct top_key top_keys[TOP_KEYS];

struct top_row;

struct top {
	struct casemate *c;
	unsigned int sort;	/* index of top_keys */
	bool reverse;
	uint64_t interval_ns;
	struct top_row *rows;	/* one a VM */
	size_t row_count;
	char (*line)[TOP_COLUMNS];	/* TOP_HEAD of them, then one a VM */
};

/* Asks again. CPU is of the time since the last call, of the VM's life the first time.
 * Returns 0, or what top_fail() makes a message and an exit status of. */
int top_ask(struct top *top);
int top_fail(const struct top *top, int r);
/* Sorts and writes the VMs' lines once more. */
void top_lines(struct top *top);
void top_done(struct top *top);

/* Shows until the person has enough. Returns the exit status. -1: this terminal cannot. */
int top_screen(struct top *top);

#endif
