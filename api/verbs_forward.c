/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs about connections into VMs: connect, forward, forwards, unforward.
 *
 * Who may: whoever may use a VM may connect to what listens in it. Something that listens on
 * the host is more. A path in the file system is the daemon's own user's and root's affair, as
 * for all files: with the daemon's rights an operator could put sockets where he himself may
 * not. TCP is for operators too, on loopback addresses and ports that any user may listen at;
 * but every user of the host can connect there, which `connect` does not have. Other addresses
 * are opened to the network, so only where the daemon was started with --forward-any, and by
 * admins.
 */
#include "api/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/value.h"
#include "pool/forward.h"

#define PORT_UNPRIVILEGED	1024

/* ---- connect ---- */

static int verb_connect(const struct request *q)
{
	struct err err = ERR_INIT;
	struct exec_options o;
	const char *argv[2];
	struct vm *vm;
	int r = forward_exec_options(q->line->words[2], argv, &o, &err);

	if (r < 0) {
		reply_err(q->client, q->line->tag, &err);
		return r;
	}
	r = options_known(q, 3, "user timeout window");
	if (r == 0)
		r = option_user(q, &o);
	if (r == 0)
		r = option_time(q, "timeout", &o.timeout_ns);
	if (r < 0)
		return r;
	vm = request_vm(q, q->line->words[1]);
	/* A connection is nothing without the two that it connects: it is bound. */
	return vm ? exec_start(q, vm, &o, false, true) : -ENOENT;
}

/* ---- forward ---- */

/* Tells the client whose connection the forward is bound to. */
struct watching {
	struct forward_watcher watcher;
	struct client *client;
	char tag[LINE_TAG_MAX + 1];
};

static void tell(struct forward_watcher *watcher, const struct forward *f,
		 enum forward_news news, const char *reason)
{
	struct watching *w = list_entry(watcher, struct watching, watcher);
	struct answer a;

	/* Whoever can connect can make failures, as many as he likes. */
	if (news == FORWARD_ENDED || w->client->out.len < STREAM_HIGH) {
		answer_begin(&a, "!", w->tag);
		answer_pair(&a, "forward", "%" PRIu64, f->id);
		answer_word(&a, news == FORWARD_ENDED ? "ended" : "failed");
		answer_pair(&a, "reason", "%s", reason);
		answer_send(&a, w->client);
	}
	if (news == FORWARD_ENDED)
		free(w);
}

static int listen_check(const struct request *q, const char *text)
{
	const struct client *c = q->client;
	struct err err = ERR_INIT;
	uint16_t port;
	int kind = listener_parse(text, &port, &err);

	if (kind < 0) {
		reply_err(q->client, q->line->tag, &err);
		return kind;
	}
	if (kind == LISTEN_UNIX && !c->admin)
		return fail(q, EACCES, "operators name no files: listen at tcp:0, or use "
			    "connect");
	if (kind == LISTEN_ANY && !(c->admin && c->server->forward_any))
		return fail(q, EACCES, "forwards listen on loopback addresses (casemated "
			    "--forward-any lets admins name others)");
	if (port > 0 && port < PORT_UNPRIVILEGED && !c->admin)
		return fail(q, EACCES, "operators listen at ports from %u on, or at port 0 for "
			    "any", PORT_UNPRIVILEGED);
	return 0;
}

static int watching_new(const struct request *q, struct forward_options *o)
{
	struct watching *w = calloc(1, sizeof(*w));

	if (!w)
		return fail(q, ENOMEM, "no memory for a forward");
	w->watcher.tell = tell;
	w->client = q->client;
	strcpy(w->tag, q->line->tag);
	o->bound = q->client;
	o->watcher = &w->watcher;
	return 0;
}

static int verb_forward(const struct request *q)
{
	struct forward_options o = { .listen = q->line->words[2],
				     .target = q->line->words[3] };
	struct exec_options user = { .uid = 0 };
	struct err err = ERR_INIT;
	struct forward *f;
	struct answer a;
	struct vm *vm;
	bool bound = false;
	int r = options_known(q, 4, "user bound");

	if (r == 0)
		r = option_user(q, &user);
	if (r == 0)
		r = option_bool(q, "bound", &bound);
	if (r < 0)
		return r;
	vm = request_vm(q, q->line->words[1]);
	if (!vm)
		return -ENOENT;
	o.uid = user.uid;
	o.gid = user.gid;
	r = listen_check(q, o.listen);
	if (r == 0 && bound)
		r = watching_new(q, &o);
	if (r < 0)
		return r;
	r = forward_new(vm, &o, &f, &err);
	if (r < 0) {
		if (o.watcher)
			free(list_entry(o.watcher, struct watching, watcher));
		reply_err(q->client, q->line->tag, &err);
		return r;
	}
	answer_begin(&a, "+", q->line->tag);
	answer_pair(&a, "forward", "%" PRIu64, f->id);
	answer_pair(&a, "listen", "%s", f->listener.address);
	answer_send(&a, q->client);
	return 0;
}

/* ---- Those that there are ---- */

static void describe(const struct request *q, const struct forward *f)
{
	struct answer a;

	answer_begin(&a, "*", q->line->tag);
	answer_pair(&a, "forward", "%" PRIu64, f->id);
	answer_pair(&a, "vm", "%s", f->vm->name);
	answer_pair(&a, "listen", "%s", f->listener.address);
	answer_pair(&a, "target", "%s", f->target);
	answer_pair(&a, "owner", "%u", f->vm->owner);
	answer_pair(&a, "connections", "%u", f->connection_count);
	answer_pair(&a, "accepted", "%" PRIu64, f->accepted);
	answer_pair(&a, "failed", "%" PRIu64, f->failed);
	if (f->trouble[0])
		answer_pair(&a, "trouble", "%s", f->trouble);
	answer_send(&a, q->client);
}

static int verb_forwards(const struct request *q)
{
	bool all = q->line->count < 2;
	struct vm *only = all ? NULL : request_vm(q, q->line->words[1]), *vm;
	struct forward *f;

	if (!all && !only)
		return -ENOENT;
	if (options_known(q, 2, "") < 0)
		return -EINVAL;
	list_for_each(vm, &q->client->server->pool->vms, struct vm, link) {
		if (all ? !client_may_see(q->client, vm->owner) : vm != only)
			continue;
		list_for_each(f, &vm->forwards, struct forward, link)
			describe(q, f);
	}
	reply_ok(q);
	return 0;
}

static int verb_unforward(const struct request *q)
{
	struct forward *f = NULL;
	uint64_t id;

	if (value_number(q->line->words[1], UINT64_MAX, &id) == 0)
		f = pool_forward_find(q->client->server->pool, id);
	if (!f || !client_may_see(q->client, f->vm->owner))
		return fail(q, ENOENT, "there is no forward %.24s", q->line->words[1]);
	forward_end(f, "a client asked for it");
	reply_ok(q);
	return 0;
}

const struct verb verbs_forward[] = {
	{ "connect", verb_connect, 3, "connect VM TARGET [user=UID[:GID]] [timeout=TIME] "
	  "[window=BYTES]", false },
	{ "forward", verb_forward, 4, "forward VM LISTEN TARGET [user=UID[:GID]] [bound=yes]",
	  false },
	{ "forwards", verb_forwards, 1, "forwards [VM]", false },
	{ "unforward", verb_unforward, 2, "unforward FORWARD", false },
	{ NULL, NULL, 0, NULL, false },
};
