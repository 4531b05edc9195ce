/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest's builtin `connect` may do, by the name of its target:
 *
 *   unix:/echo       sends back what comes, within its credits; ends when it is ended
 *   unix:/upper      reads to the end, then sends back how many bytes it was and their sum
 *   unix:/banner     ends its own way at once, then as upper, without an answer
 *   unix:/bye        sends "bye" and ends
 *   unix:/flood-N    sends N bytes, then ends; reads nothing
 *   unix:/deaf       takes nothing and sends nothing
 *   unix:/talker     answers each piece with a byte, and fails at the end: its complaint says how
 *                    many bytes it heard and which signal came
 *   others           are refused
 */
#include "tests/daemon/fake_connect.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS	64

struct connection {
	uint32_t id;
	char target[32];
	uint32_t credit;		/* of stdout */
	uint8_t *bytes;			/* that were read and not yet sent back */
	size_t len;
	bool in_end, out_end;
	uint64_t left, read, sum;
	uint32_t signal;
};

static struct connection connections[CONNECTIONS];

static struct connection *find(uint32_t id)
{
	for (int i = 0; i < CONNECTIONS; i++) {
		if (connections[i].id == id)
			return &connections[i];
	}
	return NULL;
}

static bool is(const struct connection *c, const char *name)
{
	return !strcmp(c->target, name);
}

static void out_end(struct connection *c)
{
	if (!c->out_end)
		put(CM_F_STDOUT, c->id, NULL, 0);
	c->out_end = true;
}

static void end(struct connection *c, uint32_t status)
{
	struct cm_exit ended = { .status = status };

	out_end(c);
	put(CM_F_STDERR, c->id, NULL, 0);
	put(CM_F_EXIT, c->id, &ended, sizeof(ended));
	free(c->bytes);
	*c = (struct connection){ .id = 0 };
}

static void say(struct connection *c, const char *text)
{
	c->credit -= (uint32_t)strlen(text);
	put(CM_F_STDOUT, c->id, text, strlen(text));
}

static void grant(struct connection *c, uint32_t bytes)
{
	struct cm_credit credit = { .stream = CM_F_STDIN, .bytes = bytes };

	if (bytes > 0)
		put(CM_F_CREDIT, c->id, &credit, sizeof(credit));
}

/* What may be sent now. */
static void step(struct connection *c)
{
	static const uint8_t zeros[16384];

	while (is(c, "unix:/echo") && c->len > 0 && c->credit > 0) {
		size_t n = c->len < c->credit ? c->len : c->credit;

		n = n < CM_FRAME_MAX ? n : CM_FRAME_MAX;
		put(CM_F_STDOUT, c->id, c->bytes, n);
		memmove(c->bytes, c->bytes + n, c->len - n);
		c->len -= n;
		c->credit -= (uint32_t)n;
		grant(c, (uint32_t)n);
	}
	while (c->left > 0 && c->credit > 0) {
		size_t n = c->left < sizeof(zeros) ? (size_t)c->left : sizeof(zeros);

		n = n < c->credit ? n : c->credit;
		put(CM_F_STDOUT, c->id, zeros, n);
		c->left -= n;
		c->credit -= (uint32_t)n;
	}
	if ((is(c, "unix:/echo") && c->in_end && c->len == 0) ||
	    (!strncmp(c->target, "unix:/flood-", 12) && c->left == 0))
		end(c, 0);
}

static void refuse(struct connection *c)
{
	static const char text[] = "cannot connect: \x1b[31mno\nsecond line\n";

	put(CM_F_STDERR, c->id, text, sizeof(text) - 1);
	end(c, ECONNREFUSED << 8);
}

static bool begin(const struct frame *f)
{
	const char *name = (const char *)f->payload + sizeof(struct cm_exec);
	struct connection *c = find(0);
	uint32_t pid = 43;

	if (strcmp(name, "connect"))
		return false;
	if (!c)
		_Exit(1);
	*c = (struct connection){ .id = f->head.id, .credit = CM_CREDIT_INITIAL };
	snprintf(c->target, sizeof(c->target), "%s", name + strlen(name) + 1);
	put(CM_F_STARTED, c->id, &pid, sizeof(pid));
	if (!strncmp(c->target, "unix:/flood-", 12)) {
		c->left = strtoull(c->target + 12, NULL, 10);
		step(c);
	} else if (is(c, "unix:/bye")) {
		say(c, "bye");
		end(c, 0);
	} else if (is(c, "unix:/banner")) {
		say(c, "banner");
		out_end(c);
	} else if (!is(c, "unix:/echo") && !is(c, "unix:/upper") && !is(c, "unix:/deaf") &&
		   !is(c, "unix:/talker")) {
		refuse(c);
	}
	return true;
}

static void on_end(struct connection *c)
{
	char text[64];

	c->in_end = true;
	if (is(c, "unix:/echo")) {
		step(c);
	} else if (is(c, "unix:/banner")) {
		end(c, 0);
	} else if (is(c, "unix:/talker")) {
		snprintf(text, sizeof(text), "heard %llu, signal %u\n",
			 (unsigned long long)c->read, c->signal);
		put(CM_F_STDERR, c->id, text, strlen(text));
		end(c, 1 << 8);
	} else if (!is(c, "unix:/deaf")) {
		snprintf(text, sizeof(text), "%llu %llu", (unsigned long long)c->read,
			 (unsigned long long)c->sum);
		say(c, text);
		end(c, 0);
	}
}

static void on_stdin(struct connection *c, const struct frame *f)
{
	if (f->head.length == 0) {
		on_end(c);
		return;
	}
	if (is(c, "unix:/deaf") || !strncmp(c->target, "unix:/flood-", 12))
		return;
	c->read += f->head.length;
	for (uint32_t i = 0; i < f->head.length; i += 4096)
		c->sum += f->payload[i];
	if (is(c, "unix:/talker") && !c->out_end)
		say(c, "x");
	if (!is(c, "unix:/echo")) {
		grant(c, f->head.length);
		return;
	}
	if (!c->bytes)
		c->bytes = malloc(CM_CREDIT_INITIAL);
	if (!c->bytes || f->head.length > CM_CREDIT_INITIAL - c->len)
		_Exit(1);
	memcpy(c->bytes + c->len, f->payload, f->head.length);
	c->len += f->head.length;
	step(c);
}

static void on_signal(struct connection *c, uint32_t number)
{
	c->signal = number;
	if (number != SIGPIPE || is(c, "unix:/deaf")) {
		end(c, number);
	} else if (is(c, "unix:/talker")) {
		out_end(c);
	} else {
		c->left = 0;
		step(c);
	}
}

void fake_connect_announce(void)
{
	for (int i = 0; i < CONNECTIONS; i++) {
		struct connection *c = &connections[i];
		struct cm_running r = { .pid = 43, .stdin_credit = CM_CREDIT_INITIAL };

		if (!c->id)
			continue;
		c->credit = CM_CREDIT_INITIAL;
		c->out_end = false;
		put_flags(CM_F_RUNNING, CM_EXEC_BUILTIN | CM_EXEC_STDIN, c->id, &r, sizeof(r));
	}
}

bool fake_connect_frame(const struct frame *f)
{
	struct connection *c = f->head.id ? find(f->head.id) : NULL;
	struct cm_credit credit;
	uint32_t number;

	if (f->head.type == CM_F_EXEC && (f->head.flags & CM_EXEC_BUILTIN))
		return begin(f);
	if (!c)
		return false;
	switch (f->head.type) {
	case CM_F_STDIN:
		on_stdin(c, f);
		break;
	case CM_F_SIGNAL:
		memcpy(&number, f->payload, sizeof(number));
		on_signal(c, number);
		break;
	case CM_F_CREDIT:
		memcpy(&credit, f->payload, sizeof(credit));
		if (credit.stream == CM_F_STDOUT) {
			c->credit += credit.bytes;
			step(c);
		}
		break;
	default:
		break;
	}
	return true;
}
