/* SPDX-License-Identifier: Apache-2.0 */
/* One `casemate run` under way: what run.c and run_save.c share. See run.c for its states. */
#ifndef CASEMATE_TOOLS_RUN_STATE_H
#define CASEMATE_TOOLS_RUN_STATE_H

#include "base/buf.h"
#include "base/frame.h"
#include "pool/save.h"
#include "tools/casemate/run.h"
#include "tools/casemate/run_ready.h"
#include "tools/casemate/terminal.h"

/* stdout or stderr of the task. */
struct output {
	int fd;
	uint16_t type;		/* CM_F_STDOUT or CM_F_STDERR */
	struct buf pending;
	uint32_t credit;	/* bytes the guest may still send */
	uint32_t early;		/* bytes pending that came before RUNNING: they cost no credit */
	uint32_t owed;		/* bytes written since the last grant */
	bool chunked;		/* a pipe or socket: PIPE_BUF at a time */
	bool midline;		/* what was written ends within a line */
	bool broken;		/* nobody reads it any more: drop */
};

struct run {
	const struct run_options *options;
	uint32_t exec_id;	/* of our command; 0: not known yet */
	uint32_t ids_used;	/* the highest that the guest has */
	bool resumed;		/* our command's streams count: it is ours, or said RUNNING */
	struct save save;
	struct line_match ready;
	bool save_due, save_asked, save_done;
	pid_t vmm;
	int channel;
	int signals;
	struct buf to_vmm;
	struct frame_decoder decoder;
	struct output out[2];
	uint32_t stdin_credit;
	bool stdin_open;
	bool started;
	bool exited;		/* status is the task's */
	bool farewell_sent, report_done;
	bool vm_gone, end_seen;
	bool stop;		/* status is set */
	int status;
	int signal_seen;	/* the first SIGINT, SIGTERM or SIGHUP */
	uint64_t start_ns;
	uint64_t deadline_ns;	/* when to stop next, 0: never */
	struct err err;		/* says why when status is EXIT_CASEMATE */
	struct terminal terminal;
};

/* The end with this status; the first one counts. */
void run_stop(struct run *run, int status);
/* The end because of run->err. */
void run_failed(struct run *run);
void run_protocol_error(struct run *run, const char *what);

/* ---- run_save.c: --save ---- */

bool run_saving(const struct run *run);
/* The command has ended: now is the time, unless a line was to be waited for. */
void run_save_on_exit(struct run *run);
/* Asks for it when it is due and nothing else is on its way. */
void run_save_step(struct run *run);
void run_save_answered(struct run *run, const struct frame *frame);
/* How far it is, on a terminal. */
void run_save_show(const struct run *run);

#endif
