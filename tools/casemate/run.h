/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate run`: run_args.c reads the command line, run_vmm.c finds and checks files and
 * starts casemate-vmm, run.c talks to it until the task is over, run_save.c saves it; run_ready.c
 * looks for the line after which it is saved, run_text.c is about what people read.
 */
#ifndef CASEMATE_TOOLS_RUN_H
#define CASEMATE_TOOLS_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/frame.h"

#define RUN_ENV_MAX	1024u

struct run_options {
	const char *image;		/* NULL: the default one */
	const char *kernel, *initd;	/* NULL: those beside this program */
	const char *save;		/* file to save the VM to, or NULL */
	const char *ready_line;		/* when: the command says this line; NULL: it is over */
	bool incremental;		/* save what changed since `from` */
	bool sync;			/* the saved file is on the disk before we end */
	const char *from;		/* snapshot to start from, or NULL */
	const char *keep;		/* the VM stays, under this name, or NULL */
	const char *template;		/* of the daemon's, that the VM comes from, or NULL */
	bool no_wait;			/* only a ready one of these */
	const char *socket;		/* of the daemon, with these; NULL: the default */
	uint64_t memory;		/* bytes */
	uint64_t timeout_ns;		/* 0: none */
	const char *workdir;
	bool verbose, trace, tty, help;
	const char *env[RUN_ENV_MAX];	/* "NAME=value", each name once */
	unsigned int envc;
	char **argv;			/* the task's; NULL-terminated */
	unsigned int argc;		/* 0 only with `from`: its command goes on */
};

/* Returns 0 or -EINVAL with err set. */
int run_parse(struct run_options *options, int argc, char **argv, struct err *err);
void run_usage(void);

/* Starts casemate-vmm. *ret_channel: our end of its socket, non-blocking, close-on-exec.
 * Returns 0, or -errno with err set and nothing left behind. */
int run_vmm_start(const struct run_options *options, pid_t *ret_pid, int *ret_channel,
		  struct err *err);

/* --keep, --template: a VM of the daemon's. Returns the exit status. */
int run_by_daemon(const struct run_options *options);

/* ---- run_text.c: for a person, on stderr ---- */

/* A frame's text from byte `skip` of its payload on, made harmless. */
void run_text_show(const char *prefix, const struct frame *frame, size_t skip);
/* VM_BOOTED's stages. */
void run_booted_show(const struct frame *frame, uint64_t start_ns);
/* VM_END: all of its text under verbose, else what happened in one line. */
void run_end_show(bool verbose, const char *prefix, const struct frame *frame);

#endif
