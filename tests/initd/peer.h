/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of the channel, for tests of initd. See peer.c. */
#ifndef CASEMATE_TESTS_INITD_PEER_H
#define CASEMATE_TESTS_INITD_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "abi/channel.h"

struct peer {
	int fd;
	pid_t pid;
	uint32_t next_id;
};

/* Bytes that the channel of the next peer_start() holds on initd's side; 0: as the host has it. */
extern int peer_send_buffer;

struct peer_frame {
	struct cm_frame head;
	uint8_t payload[CM_FRAME_MAX + 1]; /* a zero byte follows the payload */
};

/* What became of an exec. Streams are collected whole. */
struct peer_exec {
	uint32_t id;
	bool started, failed, exited;
	bool out_end, err_end;
	bool after_end; /* something came after EXIT or FAILED, or after an end */
	bool overrun;   /* more was sent than granted */
	uint32_t pid;
	struct cm_failed failure;
	struct cm_exit exit;
	char *out, *err; /* zero byte behind */
	size_t out_size, err_size;
	uint32_t out_credit, err_credit;
	uint32_t in_credit;
	bool no_grants; /* keep what is read; grant nothing */
	bool joining;   /* RESUME was sent, RUNNING has not come: what comes is the old
			 * client's and is not granted again */
	unsigned int running; /* RUNNING frames */
	uint16_t running_flags;
	uint32_t running_credit;
	unsigned int errors;
	char error[256]; /* text of the last ERROR frame with this id */
};

/* Starts initd; hello and resume are done when `resume`. Exits the test run on failure.
 */
void peer_start(struct peer *p, const char *initd, bool resume);
/* Sends SHUTDOWN, returns the exit status of initd, -1 when it does not end. */
int peer_stop(struct peer *p);
/* Waits for the end of initd. Its exit status, -1 when it does not end. */
int peer_wait(struct peer *p);

void peer_send(struct peer *p, uint16_t type, uint16_t flags, uint32_t id,
	       const void *payload, size_t length);
void peer_send_raw(struct peer *p, const void *bytes, size_t size);
/* False after `timeout_ms` without a whole frame or at the end of the channel. */
bool peer_receive(struct peer *p, struct peer_frame *ret, int timeout_ms);

/* Builds and sends EXEC. argv and envp end with NULL; envp may be NULL. */
void peer_exec_as(struct peer *p, struct peer_exec *e, uint16_t flags, const char *cwd,
		  uint32_t uid, const char *const *argv, const char *const *envp);
/* The usual: no environment but PATH, directory "". */
void peer_exec(struct peer *p, struct peer_exec *e, uint16_t flags,
	       const char *const *argv);
/* Same for `sh -c script`. */
void peer_shell(struct peer *p, struct peer_exec *e, uint16_t flags, const char *script);

/* Plays a new client: sends RESUME and books what comes until RESUMED. `execs` is what the
 * old client knew; those without RUNNING afterwards have ended before. False on a timeout
 * or a RESUMED that is not right. */
bool peer_resume(struct peer *p, struct peer_exec *execs, size_t count,
		 uint64_t generation);

/* Takes one frame and books it in the exec of its id. False on a timeout. */
bool peer_pump(struct peer *p, struct peer_exec *execs, size_t count, int timeout_ms);
/* Until EXIT or FAILED. False on a timeout. */
bool peer_finish(struct peer *p, struct peer_exec *e);
void peer_exec_done(struct peer_exec *e);

/* Sends stdin as its credit allows. False on a timeout. */
bool peer_stdin(struct peer *p, struct peer_exec *e, const char *data, size_t size);

#endif
