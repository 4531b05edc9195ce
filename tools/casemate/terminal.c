/* SPDX-License-Identifier: Apache-2.0 */
/* Terminal and signals; see terminal.h. */
#include "tools/casemate/terminal.h"

#include <signal.h>
#include <sys/signalfd.h>

void terminal_raw(struct terminal *terminal)
{
	struct termios raw;

	if (tcgetattr(0, &terminal->before) < 0)
		return;
	raw = terminal->before;
	cfmakeraw(&raw);
	terminal->raw = tcsetattr(0, TCSADRAIN, &raw) == 0;
}

void terminal_restore(struct terminal *terminal)
{
	if (terminal->raw)
		tcsetattr(0, TCSADRAIN, &terminal->before);
	terminal->raw = false;
}

static void signals_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGWINCH);
}

int terminal_signals(void)
{
	sigset_t set;

	signals_set(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

void terminal_signals_end(void)
{
	sigset_t set;

	signals_set(&set);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}
