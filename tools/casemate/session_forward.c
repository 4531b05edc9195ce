/* SPDX-License-Identifier: Apache-2.0 */
/* A forward in the foreground: it is bound to our connection, so whatever ends us ends it. */
#include "tools/casemate/session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/terminal.h"

/* Returns the exit status, or -1 while it goes on. */
static int news_take(struct casemate *c)
{
	struct casemate_event e;
	int r;

	while ((r = casemate_next(c, &e, 0)) == 1) {
		if (e.kind == CASEMATE_FORWARD_FAILED)
			fprintf(stderr, "casemate: a connection failed: %s\n", e.text);
		else if (e.kind == CASEMATE_FORWARD_ENDED)
			return casemate_fail("the forward ended: %s", e.text);
	}
	return r < 0 ? session_fail(c) : -1;
}

static int signal_take(int signals)
{
	struct signalfd_siginfo info;

	if (read(signals, &info, sizeof(info)) != sizeof(info) || info.ssi_signo == SIGWINCH)
		return -1;
	return 128 + (int)info.ssi_signo;
}

int session_forward(struct casemate *c)
{
	int signals = terminal_signals(), status = -1;

	if (signals < 0)
		return casemate_fail("cannot wait for signals: %s", strerror(errno));
	/* Whoever reads this may send signals. */
	printf("%s\n", casemate_value(c, "listen"));
	fflush(stdout);
	while (status < 0) {
		struct pollfd p[2] = { { signals, POLLIN, 0 }, { casemate_fd(c), POLLIN, 0 } };

		status = news_take(c);
		if (status < 0 && poll(p, 2, -1) > 0 && p[0].revents)
			status = signal_take(signals);
	}
	fd_close(signals);
	return status;
}
