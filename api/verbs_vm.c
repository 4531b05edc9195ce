/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about VMs: create, list, info, kill, snapshot, fork. See verbs_pause.c for more. */
#include "api/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "abi/layout.h"
#include "base/value.h"
#include "base/time.h"

#define MEMORY_DEFAULT	(256ull << 20)
#define MEMORY_STEP	(2ull << 20)
#define FORK_MAX	CM_VM_FORK_MAX

static const char *state_name(const struct vm *vm)
{
	static const char *const names[VM_STATES] = {
		[VM_STARTING] = "starting", [VM_READY] = "ready",
		[VM_SUSPENDED] = "suspended", [VM_ENDING] = "ending",
	};

	return vm->state == VM_READY && vm->paused ? "paused" : names[vm->state];
}

/* ---- create ---- */

struct create {
	struct pending pending;
	bool bound;
	struct vm_options options;	/* while a snapshot or image is opened for it */
	struct template *template;
	struct pool *pool;
	char name[POOL_NAME_MAX + 1], label[POOL_LABEL_MAX + 1];
};

static void vm_reply(struct client *c, const char *tag, const struct vm *vm)
{
	struct answer a;

	answer_begin(&a, "+", tag);
	answer_pair(&a, "vm", "%s", vm->name);
	answer_send(&a, c);
}

static void created(struct waiter *waiter, void *what, const struct err *err)
{
	struct create *w = (struct create *)list_entry(waiter, struct pending, waiter);
	struct client *c = w->pending.client;
	struct vm *vm = what;

	if (c && err) {
		reply_err(c, w->pending.tag, err);
	} else if (c && !client_is_gone(c)) {
		vm->bound = w->bound ? c : NULL;
		vm_reply(c, w->pending.tag, vm);
	} else if (!err) {
		/* Nobody was told its name. */
		vm_kill(vm, "unbound", NULL, "the client that asked for it is gone");
	}
	pending_end(&w->pending);
}

/* The snapshot or image is open, or cannot be used. */
static void create_opened(struct waiter *waiter, void *what, const struct err *failed)
{
	struct create *w = (struct create *)list_entry(waiter, struct pending, waiter);
	struct err err = failed ? *failed : (struct err)ERR_INIT;
	struct template *t = what;
	struct vm *vm;

	w->pending.lost = NULL;
	w->options.image_fd = t ? t->image_fd : -1;
	w->options.template = t && t->fd_count > 0 ? t : NULL;
	waiter->done = created;
	if (!failed && vm_new(w->pool, &w->options, &vm, &err) == 0)
		vm_wait_ready(vm, waiter);
	if (t)
		template_put(t);
	if (err.code)
		created(waiter, NULL, &err);
}

static void create_lost(struct pending *pending)
{
	struct create *w = (struct create *)pending;

	template_forget(w->template);
	pending_end(pending);
}

/* Of a snapshot, or booted: that or the image is opened first, and the line is gone by then. */
static int create_open(struct create *w, const struct vm_options *o, const char *from,
		       const char *image, struct err *err)
{
	int r = pool_vm_admit(w->pool, o, from ? 0 : o->memory, 1, true, err);

	if (r == 0 && o->name)
		r = pool_vm_name_admit(w->pool, o->name, err);
	if (r < 0)
		return r;
	w->options = *o;
	if (o->name)
		w->options.name = strcpy(w->name, o->name);
	if (o->label)
		w->options.label = strcpy(w->label, o->label);
	w->pending.waiter.done = create_opened;
	w->pending.lost = create_lost;
	return template_once(w->pool, from, image, &w->pending.waiter, &w->template, err);
}

/* idle and what is done when it is over. */
static int option_idle(const struct request *q, struct vm_options *o)
{
	const char *action = option(q, "idle-action");
	int r = option_time(q, "idle", &o->idle_ns);

	if (r < 0 || !action)
		return r;
	o->idle_suspends = !strcmp(action, "suspend");
	if (!o->idle_suspends && strcmp(action, "end"))
		return fail(q, EINVAL, "idle-action is end or suspend, not %.40s", action);
	return o->idle_ns ? 0 : fail(q, EINVAL, "idle-action goes with idle=TIME");
}

static int create_options(const struct request *q, struct vm_options *o,
			  const char **ret_template, const char **ret_from,
			  const char **ret_image, bool *ret_bound, bool *ret_wait)
{
	int r = options_known(q, 1, "name image template from mem label ttl idle idle-action "
			      "bound wait track");

	*o = (struct vm_options){ .owner = q->client->uid, .role = VM_LEASED,
				  .memory = MEMORY_DEFAULT, .name = option(q, "name"),
				  .label = option(q, "label") };
	*ret_template = option(q, "template");
	*ret_wait = true;
	if (r == 0)
		r = option_path(q, "from", ret_from);
	if (r == 0)
		r = option_path(q, "image", ret_image);
	if (r == 0)
		r = option_size(q, "mem", &o->memory);
	if (r == 0)
		r = option_time(q, "ttl", &o->ttl_ns);
	if (r == 0)
		r = option_idle(q, o);
	if (r == 0)
		r = option_bool(q, "bound", ret_bound);
	if (r == 0)
		r = option_bool(q, "wait", ret_wait);
	if (r == 0)
		r = option_bool(q, "track", &o->track);
	if (r < 0)
		return r;
	if (o->memory == 0 || o->memory % MEMORY_STEP || o->memory > CM_RAM_MAX)
		return fail(q, EINVAL, "mem is a multiple of 2M, at most 64G");
	if (o->label && strlen(o->label) > POOL_LABEL_MAX)
		return fail(q, EINVAL, "a label has at most %u bytes", POOL_LABEL_MAX);
	if (*ret_template && (*ret_image || option(q, "mem") || *ret_from))
		return fail(q, EINVAL, "image, mem and from do not go with template: it has its "
			    "own");
	if (o->track && !*ret_from)
		return fail(q, EINVAL, "track goes with from: others are tracked from their "
			    "first snapshot with track=yes on");
	if (*ret_from && option(q, "mem"))
		return fail(q, EINVAL, "mem does not go with from: a saved VM has the memory it "
			    "was saved with");
	return 0;
}

static int verb_create(const struct request *q)
{
	struct pool *pool = q->client->server->pool;
	struct template *t = NULL;
	struct err err = ERR_INIT;
	struct vm_options o;
	struct vm *vm;
	const char *name, *from = NULL, *image = NULL;
	struct create *w;
	bool bound = false, wait;
	int r = create_options(q, &o, &name, &from, &image, &bound, &wait);

	if (r < 0)
		return r;
	if (name) {
		t = pool_template_find(pool, name);
		if (!t)
			return fail(q, ENOENT, "there is no template %.64s", name);
	}
	w = pending_new(q, sizeof(*w), created);
	if (!w)
		return -ENOMEM;
	w->bound = bound;
	w->pool = pool;
	if (t)
		r = template_lease(t, &o, !wait, &w->pending.waiter, &vm, &err);
	else
		r = create_open(w, &o, from, image, &err);
	if (r < 0) {
		reply_err_retry(q->client, q->line->tag, &err, r != -EBUSY ? 0 :
				t ? template_retry_ns(t) : WORKERS_RETRY_NS);
		pending_end(&w->pending);
	}
	return r;
}

/* ---- list, info ---- */

static void vm_describe(struct answer *a, const struct vm *vm)
{
	uint64_t now = time_monotonic_ns();

	answer_pair(a, "vm", "%s", vm->name);
	answer_pair(a, "state", "%s", state_name(vm));
	answer_pair(a, "owner", "%u", vm->owner);
	answer_pair(a, "mem", "%" PRIu64, vm->memory);
	answer_pair(a, "execs", "%u", vm->exec_count);
	answer_pair(a, "age", "%.3f", (double)(now - vm->created_ns) / 1e9);
	if (vm->template && vm->template->name[0])
		answer_pair(a, "template", "%s", vm->template->name);
	if (vm->label[0])
		answer_pair(a, "label", "%s", vm->label);
	if (vm_stored(vm))
		answer_pair(a, "stored", "%" PRIu64, vm_stored(vm));
	if (vm->ttl_at_ns)
		answer_pair(a, "ttl-left", "%.3f", vm->ttl_at_ns > now ?
			    (double)(vm->ttl_at_ns - now) / 1e9 : 0);
}

static void usage_describe(struct answer *a, struct vm *vm)
{
	struct vm_usage usage;

	if (vm->exec_count == 0 && vm->state == VM_READY)
		answer_pair(a, "idle", "%.3f",
			    (double)(time_monotonic_ns() - vm->idle_since_ns) / 1e9);
	if (vm_usage_read(vm, &usage) < 0)
		return;
	answer_pair(a, "rss", "%" PRIu64, usage.rss);
	answer_pair(a, "private", "%" PRIu64, usage.private);
	answer_pair(a, "cpu", "%.3f", (double)usage.cpu_ns / 1e9);
	answer_pair(a, "cpu-at", "%.3f", usage.at_ns > vm->created_ns ?
		    (double)(usage.at_ns - vm->created_ns) / 1e9 : 0);
}

static bool is_listed(const struct client *c, const struct vm *vm)
{
	return vm->role == VM_LEASED && vm->state != VM_ENDING &&
	       (c->admin || vm->owner == c->uid);
}

static int verb_list(const struct request *q)
{
	const char *label = option(q, "label");
	bool usage = false;
	struct vm *vm;
	struct answer a;
	int r = options_known(q, 1, "label usage");

	if (r == 0)
		r = option_bool(q, "usage", &usage);
	if (r < 0)
		return r;
	list_for_each(vm, &q->client->server->pool->vms, struct vm, link) {
		if (!is_listed(q->client, vm) || (label && strcmp(label, vm->label)))
			continue;
		answer_begin(&a, "*", q->line->tag);
		vm_describe(&a, vm);
		if (usage)
			usage_describe(&a, vm);
		answer_send(&a, q->client);
	}
	reply_ok(q);
	return 0;
}

static const char *exec_state_name(const struct exec *exec)
{
	static const char *const names[] = {
		[EXEC_QUEUED] = "queued", [EXEC_SENT] = "starting",
		[EXEC_STARTED] = "running", [EXEC_ENDED] = "ended",
	};

	return names[exec->state];
}

static void exec_describe(const struct request *q, const struct exec *exec)
{
	struct answer a;

	answer_begin(&a, "*", q->line->tag);
	answer_pair(&a, "exec", "%" PRIu64, exec->id);
	answer_pair(&a, "state", "%s", exec_state_name(exec));
	answer_pair(&a, "command", "%s", exec->command);
	answer_pair(&a, "pid", "%u", exec->pid);
	answer_pair(&a, "age", "%.3f", (double)(time_monotonic_ns() - exec->began_ns) / 1e9);
	answer_pair(&a, "attached", "%s", exec->reader ? "yes" : "no");
	answer_pair(&a, "stdout", "%" PRIu64, exec->out[0].end);
	answer_pair(&a, "stderr", "%" PRIu64, exec->out[1].end);
	answer_send(&a, q->client);
}

static int verb_info(const struct request *q)
{
	struct vm *vm = request_vm(q, q->line->words[1]);
	struct exec *exec;
	struct answer a;
	uint64_t bytes;

	if (!vm)
		return -ENOENT;
	list_for_each(exec, &vm->execs, struct exec, link)
		exec_describe(q, exec);
	answer_begin(&a, "+", q->line->tag);
	vm_describe(&a, vm);
	usage_describe(&a, vm);
	if (vm_saving(vm, &bytes))
		answer_pair(&a, "saving", "%" PRIu64, bytes);
	if (q->client->admin)
		answer_pair(&a, "pid", "%d", (int)vm->pid);
	answer_send(&a, q->client);
	return 0;
}

/* ---- kill ---- */

static int verb_kill(const struct request *q)
{
	struct vm *vm = request_vm(q, q->line->words[1]);
	struct pending *p;

	if (!vm)
		return -ENOENT;
	p = pending_new(q, sizeof(*p), pending_done);
	if (!p)
		return -ENOMEM;
	vm_kill(vm, "killed", &p->waiter, "a client asked for it");
	return 0;
}

/* ---- snapshot ---- */

struct snapshot_wait {
	struct pending pending;
	struct saving *saving;
};

static void saved(struct waiter *waiter, void *what, const struct err *failed)
{
	struct pending *p = list_entry(waiter, struct pending, waiter);
	const struct saving_result *result = what;
	struct answer a;

	if (p->client && failed) {
		reply_err(p->client, p->tag, failed);
	} else if (p->client) {
		answer_begin(&a, "+", p->tag);
		answer_pair(&a, "file", "%s", result->path);
		answer_pair(&a, "pause", "%.6f", (double)result->pause_ns / 1e9);
		answer_pair(&a, "bytes", "%" PRIu64, result->bytes);
		answer_send(&a, p->client);
	}
	pending_end(p);
}

static void snapshot_lost(struct pending *pending)
{
	struct snapshot_wait *w = (struct snapshot_wait *)pending;

	if (saving_cancel(w->saving))
		pending_end(pending);
}

static int verb_snapshot(const struct request *q)
{
	struct vm *vm = request_vm(q, q->line->words[1]);
	struct err err = ERR_INIT;
	struct snapshot_wait *w;
	bool incremental = false, track = false;
	const char *path = NULL;
	int r;

	if (!vm)
		return -ENOENT;
	r = options_known(q, 2, "file incremental track");
	if (r == 0)
		r = option_path(q, "file", &path);
	if (r == 0)
		r = option_bool(q, "incremental", &incremental);
	if (r == 0)
		r = option_bool(q, "track", &track);
	if (r < 0)
		return r;
	if (!path)
		return fail(q, EINVAL, "snapshot wants file=PATH");
	w = pending_new(q, sizeof(*w), saved);
	if (!w)
		return -ENOMEM;
	w->pending.lost = snapshot_lost;
	r = vm_snapshot(vm, path, (uint16_t)((track ? CM_SAVE_TRACK : 0) |
					     (incremental ? CM_SAVE_INCREMENTAL : 0)),
			&w->pending.waiter, &w->saving, &err);
	if (r < 0) {
		reply_err_retry(q->client, q->line->tag, &err,
				r == -EBUSY ? WORKERS_RETRY_NS : 0);
		pending_end(&w->pending);
	}
	return r;
}

/* ---- fork ---- */

/* One waiter for each child; the answer goes out with the last. */
struct forking {
	struct pending pending;
	struct fork_child {
		struct waiter waiter;
		struct forking *all;
		char name[POOL_NAME_MAX + 1];
	} children[FORK_MAX];
	struct pool *pool;
	unsigned int count, left;
	struct err err;
	bool bound;
};

static void fork_answer(struct forking *w)
{
	struct client *c = w->pending.client;
	bool gone = !c || client_is_gone(c);
	struct answer a;

	/* By name: one that was ready may have ended while others were waited for. */
	for (unsigned int i = 0; i < w->count; i++) {
		struct vm *vm = pool_vm_find(w->pool, w->children[i].name);

		if (!vm)
			continue;
		if (w->err.code || gone) {
			vm_kill(vm, "fork", NULL, "the fork failed, or nobody waits for it");
			continue;
		}
		vm->bound = w->bound ? c : NULL;
		answer_begin(&a, "*", w->pending.tag);
		answer_pair(&a, "vm", "%s", vm->name);
		answer_send(&a, c);
	}
	if (c && w->err.code) {
		reply_err(c, w->pending.tag, &w->err);
	} else if (c) {
		answer_begin(&a, "+", w->pending.tag);
		answer_pair(&a, "count", "%u", w->count);
		answer_send(&a, c);
	}
	pending_end(&w->pending);
}

static void child_done(struct waiter *waiter, void *what, const struct err *err)
{
	struct fork_child *child = list_entry(waiter, struct fork_child, waiter);
	struct forking *w = child->all;

	if (err)
		err_set(&w->err, err->code, "%s", err->text);
	if (--w->left == 0)
		fork_answer(w);
}

static int verb_fork(const struct request *q)
{
	struct vm *vm = request_vm(q, q->line->words[1]), *made[FORK_MAX];
	struct vm_options o = { .owner = q->client->uid, .role = VM_LEASED,
				.label = option(q, "label") };
	struct err err = ERR_INIT;
	struct forking *w;
	uint64_t count = 1;
	bool bound = false;
	int r;

	if (!vm)
		return -ENOENT;
	r = options_known(q, 2, "count label ttl idle idle-action bound");
	if (r == 0)
		r = option_number(q, "count", FORK_MAX, &count);
	if (r == 0)
		r = option_time(q, "ttl", &o.ttl_ns);
	if (r == 0)
		r = option_idle(q, &o);
	if (r == 0)
		r = option_bool(q, "bound", &bound);
	if (r < 0)
		return r;
	if (count < 1 || (o.label && strlen(o.label) > POOL_LABEL_MAX))
		return fail(q, EINVAL, "count is from 1 to %u, a label has at most %u bytes",
			    FORK_MAX, POOL_LABEL_MAX);
	w = pending_new(q, sizeof(*w), pending_done);
	if (!w)
		return -ENOMEM;
	w->bound = bound;
	w->pool = vm->pool;
	r = vm_fork(vm, &o, (unsigned int)count, made, &err);
	if (r < 0) {
		reply_err(q->client, q->line->tag, &err);
		pending_end(&w->pending);
		return r;
	}
	w->count = w->left = (unsigned int)count;
	for (unsigned int i = 0; i < count; i++) {
		w->children[i] = (struct fork_child){ .all = w, .waiter.done = child_done };
		strcpy(w->children[i].name, made[i]->name);
		list_init(&w->children[i].waiter.link);
		vm_wait_ready(made[i], &w->children[i].waiter);
	}
	return 0;
}

const struct verb verbs_vm[] = {
	{ "create", verb_create, 1, "create [name=NAME] [template=NAME | [from=PATH] [image=PATH] "
	  "[mem=SIZE]] "
	  "[label=TEXT] [ttl=TIME] [idle=TIME [idle-action=suspend]] [bound=yes] [wait=no] "
	  "[track=yes]", false },
	{ "list", verb_list, 1, "list [label=TEXT] [usage=yes]", false },
	{ "info", verb_info, 2, "info VM", false },
	{ "kill", verb_kill, 2, "kill VM", false },
	{ "snapshot", verb_snapshot, 2, "snapshot VM file=PATH [incremental=yes] [track=yes]",
	  false },
	{ "fork", verb_fork, 2, "fork VM [count=N] [label=TEXT] [ttl=TIME] "
	  "[idle=TIME [idle-action=suspend]] [bound=yes]", false },
	{ NULL, NULL, 0, NULL, false },
};
