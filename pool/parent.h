/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The privileged half of the daemon: keeps an engine running, and starts and ends VMMs for it.
 * It parses nothing that a client, a guest or a file says; from the engine it takes the
 * messages of boundary.h, and what is wrong in them ends the engine.
 *
 *   SERVING   an engine runs
 *   CLEARING  it is gone, or was told to go: all VMs are ended, until no child is left
 *   WAITING   before the next engine starts, when the last ones lived short
 *
 * From CLEARING the way leads to a new engine, or, when the engine ended by itself in order, we
 * were told to stop, or engines died too often, out of the loop. The socket that clients
 * connect to stays open all the while: a new engine finds them waiting.
 *
 * Nothing blocks. One thread.
 */
#ifndef CASEMATE_POOL_PARENT_H
#define CASEMATE_POOL_PARENT_H

#include "pool/boundary.h"
#include "pool/process.h"

enum parent_state { PARENT_SERVING, PARENT_CLEARING, PARENT_WAITING };

struct parent {
	/* Given. */
	struct evloop *loop;
	struct processes processes;	/* its own given part, too */
	struct launch engine;		/* fds is filled in: the boundary, listener, store */
	int listener;
	int store;			/* the engine's directory */
	void (*ready)(struct parent *parent);		/* an engine serves; perhaps again */
	void (*say)(struct parent *parent, const char *text);
	/* Its own. */
	enum parent_state state;
	struct boundary boundary;
	pid_t engine_pid;		/* 0: none */
	uint64_t engine_began_ns, clearing_ns;
	bool served;			/* one has been READY */
	bool stopping;
	unsigned int short_lives;	/* of engines, in a row */
	char reason[BOUNDARY_TEXT];	/* why the last one ended */
	struct watch children;
	int children_fd;
	struct timer timer;
	int result;			/* when the loop ends: 0 or -errno */
};

/* SIGCHLD must be blocked. Starts the first engine. Returns 0 or -errno with err set. */
int parent_init(struct parent *parent, struct err *err);
/* All VMs end, then the loop. */
void parent_stop(struct parent *parent);
void parent_done(struct parent *parent);

#endif
