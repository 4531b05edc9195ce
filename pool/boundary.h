/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What casemated's two processes say to each other: the privileged parent (pool/parent.h), and
 * the engine (pool.h), which speaks with clients and guests and may be theirs.
 *
 * Messages of one fixed size over a SOCK_SEQPACKET pair, descriptors beside them. Each is
 * decoded wholly before anything is done: the kind, who may say it, which fields it has (all
 * others are zero), their ranges, how many descriptors it brings. What does not decode ends the
 * engine and all VMs. No message holds a path, an argument or anything else that a client
 * wrote; text is only what the parent says.
 *
 * VMs are named by numbers of the engine's, never used twice by one engine:
 *
 *   START    parent  why an earlier engine ended, "" for the first; flags: what VMs are
 *                    confined by
 *   READY    engine  it serves
 *   SPAWN    engine  a VMM for VM `id`: flags, memory, `count` snapshots. Descriptors: the
 *                    VMM's end of its channel, the image if BOUNDARY_IMAGE, the snapshots
 *   CHILD    engine  the VMM of `of` says that it forked `pid`, which is to be VM `id`
 *                    with as much memory
 *   SPAWNED  parent  the answer to these two: `pid`, or `error` and text
 *   KILL     engine  ends a VM; nothing happens where there is none
 *   EXITED   parent  a VM that was SPAWNED is gone: the wait status, or -1
 *   STOP     parent  end all VMs, then yourself
 *
 * Neither side waits for the other: what the socket does not take is queued, in order, up to
 * BOUNDARY_QUEUE messages.
 */
#ifndef CASEMATE_POOL_BOUNDARY_H
#define CASEMATE_POOL_BOUNDARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fd.h"
#include "base/list.h"
#include "pool/evloop.h"

#define BOUNDARY_TEXT	200u
#define BOUNDARY_QUEUE	16384u

enum boundary_kind {
	BOUNDARY_START = 1, BOUNDARY_READY, BOUNDARY_SPAWN, BOUNDARY_CHILD, BOUNDARY_SPAWNED,
	BOUNDARY_KILL, BOUNDARY_EXITED, BOUNDARY_STOP,
};

/* Flags of START: each VM has its own, or, of a network, none. */
#define BOUNDARY_USERS	1u
#define BOUNDARY_ROOTS	2u
#define BOUNDARY_NO_NET	4u
#define BOUNDARY_GROUPS	8u		/* with limits of memory and processes */
#define BOUNDARY_START_FLAGS	15u

/* Flags of SPAWN. */
#define BOUNDARY_IMAGE	1u		/* an image comes along */
#define BOUNDARY_HOLD	2u		/* of snapshots, only to be forked */
#define BOUNDARY_TRACK	4u		/* what changes is noted from the start */

struct boundary_message {
	uint32_t kind;
	uint32_t flags;
	uint64_t id, of;
	uint64_t memory;		/* bytes of guest RAM */
	uint32_t count;			/* snapshots */
	uint32_t pid;
	int32_t error;			/* errno, positive */
	int32_t status;
	char text[BOUNDARY_TEXT];	/* ends with a zero, and all after it are */
};

/* from_engine: who said it. Returns 0 and copies the message, or -EBADMSG with *ret_why. */
int boundary_decode(bool from_engine, const void *bytes, size_t len, unsigned int fd_count,
		    struct boundary_message *ret, const char **ret_why);

/* Cut to what fits, cleaned of what is not printable. */
void boundary_text_set(struct boundary_message *message, const char *text);

struct boundary {
	struct evloop *loop;
	int socket;
	bool from_engine;		/* what comes here is the engine's */
	struct watch watch;
	struct list queue;
	unsigned int queued;
	/* fds are the boundary's again, and closed, after it returns: take with fd_take(). */
	void (*message)(struct boundary *boundary, const struct boundary_message *message,
			int *fds);
	/* The other side is gone (why NULL), or broke the rules. Told once; nothing after it. */
	void (*lost)(struct boundary *boundary, const char *why);
};

/* socket is taken. Returns 0 or -errno. */
int boundary_init(struct boundary *boundary, struct evloop *loop, int socket,
		  bool from_engine);
void boundary_done(struct boundary *boundary);
/* The descriptors stay the caller's. Returns 0, or -errno when the message will not arrive. */
int boundary_send(struct boundary *boundary, const struct boundary_message *message,
		  const int *fds, unsigned int fd_count);

#endif
