/* SPDX-License-Identifier: Apache-2.0 */
/* The programs the host has started and their streams. See exec.c. */
#ifndef CASEMATE_INITD_EXEC_H
#define CASEMATE_INITD_EXEC_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include "initd/frame.h"

#define EXEC_MAX      64  /* at one time */
#define EXEC_LINGER   32  /* pipes of ended execs that someone still writes to */
#define EXEC_PAST     256 /* ids of ended execs that are remembered */
#define EXEC_POLL_MAX (3 * EXEC_MAX + EXEC_LINGER)

struct channel;

struct exec_output {
	int fd;          /* -1: ended */
	uint32_t credit; /* bytes the host will still take */
	uint32_t left;   /* after the exit: bytes to read at most */
	bool end_due;    /* end of file is still to be said */
};

struct exec {
	uint32_t id; /* 0: slot is free */
	pid_t pid;
	bool tty, builtin;
	bool exited; /* status and usage are valid; the pid is no longer ours */
	int status;
	struct rusage usage;

	int in_fd; /* -1: closed, what comes is dropped */
	int slave_fd;
	bool in_open;       /* the host may send more */
	uint8_t last_in;    /* last byte written to a terminal */
	uint32_t in_credit; /* bytes the host may send */
	uint32_t in_grant;  /* bytes passed on, not yet granted again */
	uint8_t *in_queue;  /* CM_CREDIT_INITIAL bytes, made when first needed */
	size_t in_start, in_end;

	struct exec_output out, err;
};

struct exec_table {
	struct channel *channel;
	int null_fd;
	size_t count;
	struct exec execs[EXEC_MAX];
	int linger[EXEC_LINGER]; /* -1: free */
	size_t linger_next;      /* slot that is given up next */
	uint32_t past[EXEC_PAST];
	size_t past_next;
	struct frame_exec request; /* the EXEC at hand: too large for the stack */
};

void exec_table_init(struct exec_table *t, struct channel *channel, int null_fd);

/* Handlers of checked frames. NULL, or why the frame is refused. */
const char *exec_frame_exec(struct exec_table *t, const struct frame *f);
const char *exec_frame_stdin(struct exec_table *t, const struct frame *f);
const char *exec_frame_signal(struct exec_table *t, const struct frame *f);
const char *exec_frame_resize(struct exec_table *t, const struct frame *f);
const char *exec_frame_credit(struct exec_table *t, const struct frame *f);

/* A new client stands behind the host: says RUNNING for every exec that has not ended yet,
 * and all credits start anew. The caller has checked for CHANNEL_ANSWER bytes of room. */
void exec_announce(struct exec_table *t);

/* A child was reaped; it need not be one of ours. */
void exec_reaped(struct exec_table *t, pid_t pid, int status, const struct rusage *usage);

/* What exec_poll_handle() needs to know about an entry. */
struct exec_poll {
	uint16_t kind;
	uint16_t index;
};
/* Adds what is to be waited for: at most EXEC_POLL_MAX entries. Their number. */
size_t exec_poll_add(struct exec_table *t, struct pollfd *fds, struct exec_poll *refs);
void exec_poll_handle(struct exec_table *t, const struct pollfd *fd,
		      struct exec_poll ref);

/* Says what is due and frees execs that are finished. Call once a turn of the loop. */
void exec_settle(struct exec_table *t);

/* Kills the process group of every exec (tests only: PID 1 kills everyone). */
void exec_kill_all(struct exec_table *t);

#endif
