/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate run`, in three parts: run_args.c reads the command line, run_vmm.c finds and checks
 * files and starts casemate-vmm, run.c talks to it until the task is over.
 */
#ifndef CASEMATE_TOOLS_RUN_H
#define CASEMATE_TOOLS_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define RUN_ENV_MAX	1024u

struct run_options {
	const char *image;		/* NULL: the default one */
	const char *kernel, *initd;	/* NULL: those beside this program */
	uint64_t memory;		/* bytes */
	uint64_t timeout_ns;		/* 0: none */
	const char *workdir;
	bool verbose, trace, tty, help;
	const char *env[RUN_ENV_MAX];	/* "NAME=value", each name once */
	unsigned int envc;
	char **argv;			/* the task's; NULL-terminated */
	unsigned int argc;
};

/* Returns 0 or -EINVAL with err set. */
int run_parse(struct run_options *options, int argc, char **argv, struct err *err);
void run_usage(void);

/* Starts casemate-vmm. *ret_channel: our end of its socket, non-blocking, close-on-exec.
 * Returns 0, or -errno with err set and nothing left behind. */
int run_vmm_start(const struct run_options *options, pid_t *ret_pid, int *ret_channel,
		  struct err *err);

#endif
