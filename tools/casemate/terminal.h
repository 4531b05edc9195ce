/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own terminal and signals, while a command in a VM has our streams: what `casemate run`
 * and `casemate exec` share.
 */
#ifndef CASEMATE_TOOLS_TERMINAL_H
#define CASEMATE_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <termios.h>

struct terminal {
	bool raw;
	struct termios before;
};

/* Stdin's terminal raw, where it is one, and as it was before; the latter at any time. */
void terminal_raw(struct terminal *terminal);
void terminal_restore(struct terminal *terminal);

/* From now on SIGINT, SIGTERM, SIGHUP and SIGWINCH are read from the descriptor that is
 * returned (non-blocking; -1: errno says why), and SIGPIPE is ignored. */
int terminal_signals(void);
/* They end us again, but for SIGPIPE. */
void terminal_signals_end(void);

#endif
