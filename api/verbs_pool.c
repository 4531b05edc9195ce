/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about the daemon as a whole: template, pool, events, metrics, stop. */
#include "api/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/value.h"
#include "base/time.h"

#define DRAIN_DEFAULT_NS	0

static int want_admin(const struct request *q)
{
	if (q->client->admin)
		return 0;
	return fail(q, EACCES, "%s is not for operators", q->line->words[0]);
}

/* ---- template ---- */

static void template_describe(struct answer *a, const struct template *t)
{
	answer_pair(a, "template", "%s", t->name);
	answer_pair(a, "mem", "%" PRIu64, t->memory);
	answer_pair(a, "target", "%u", t->target);
	answer_pair(a, "max", "%u", t->max);
	answer_pair(a, "ready", "%u", t->ready);
	answer_pair(a, "starting", "%u", t->starting);
	answer_pair(a, "leases", "%" PRIu64, t->leases);
	answer_pair(a, "hits", "%" PRIu64, t->hits);
	answer_pair(a, "held", "%s", t->zygote ? "yes" : "no");
	if (t->waits)
		answer_pair(a, "waits", "memory");
	if (t->failures > 0)
		answer_pair(a, "trouble", "%s", t->trouble);
}

static int template_list(const struct request *q)
{
	struct template *t;
	struct answer a;

	list_for_each(t, &q->client->server->pool->templates, struct template, link) {
		answer_begin(&a, "*", q->line->tag);
		template_describe(&a, t);
		if (q->client->admin)
			answer_pair(&a, "file", "%s", t->path);
		answer_send(&a, q->client);
	}
	reply_ok(q);
	return 0;
}

static int pool_numbers(const struct request *q, struct template *t)
{
	uint64_t target = t->target, max;
	struct err err = ERR_INIT;

	if (option_number(q, "target", POOL_READY_MAX, &target) < 0)
		return -EINVAL;
	max = target > t->max ? target : t->max;
	if (option_number(q, "max", POOL_READY_MAX, &max) < 0)
		return -EINVAL;
	if (template_pool_set(t, (uint32_t)target, (uint32_t)max, &err) < 0) {
		reply_err(q->client, q->line->tag, &err);
		return err.code;
	}
	return 0;
}

struct adding {
	struct pending pending;
	struct template *template;
};

/* What nobody was told of is not there. */
static void adding_lost(struct pending *pending)
{
	struct adding *w = (struct adding *)pending;

	template_forget(w->template);
	pending_end(pending);
}

static int template_options_read(const struct request *q, struct template_options *o)
{
	uint64_t target = 0, max = 0;
	int r = options_known(q, 3, "file image hold replace target max");

	*o = (struct template_options){ .name = q->line->words[2], .hold = true,
					.has_target = option(q, "target"),
					.has_max = option(q, "max") };
	if (r == 0)
		r = option_path(q, "file", &o->path);
	if (r == 0)
		r = option_path(q, "image", &o->image);
	if (r == 0)
		r = option_bool(q, "hold", &o->hold);
	if (r == 0)
		r = option_bool(q, "replace", &o->replace);
	if (r == 0)
		r = option_number(q, "target", POOL_READY_MAX, &target);
	if (r == 0)
		r = option_number(q, "max", POOL_READY_MAX, &max);
	if (r < 0)
		return r;
	o->target = (uint32_t)target;
	o->max = (uint32_t)max;
	return o->path ? 0 : fail(q, EINVAL, "template add wants file=PATH");
}

static int template_new(const struct request *q)
{
	struct template_options o;
	struct err err = ERR_INIT;
	struct adding *w;
	int r = template_options_read(q, &o);

	if (r < 0)
		return r;
	w = pending_new(q, sizeof(*w), pending_done);
	if (!w)
		return -ENOMEM;
	w->pending.lost = adding_lost;
	r = template_add(q->client->server->pool, &o, &w->pending.waiter, &w->template, &err);
	if (r < 0) {
		reply_err_retry(q->client, q->line->tag, &err,
				r == -EBUSY ? WORKERS_RETRY_NS : 0);
		pending_end(&w->pending);
	}
	return r;
}

/* The template that the word names; NULL: the request was answered. */
static struct template *request_template(const struct request *q, size_t word)
{
	const char *name = q->line->count > word ? q->line->words[word] : "";
	struct template *t = pool_template_find(q->client->server->pool, name);

	if (!t)
		fail(q, ENOENT, "there is no template %.64s", name);
	return t;
}

static int template_drop(const struct request *q)
{
	const char *name = q->line->count > 2 ? q->line->words[2] : "";

	if (template_remove_named(q->client->server->pool, name) < 0)
		return fail(q, ENOENT, "there is no template %.64s", name);
	reply_ok(q);
	return 0;
}

static int verb_template(const struct request *q)
{
	const char *what = q->line->words[1];

	if (!strcmp(what, "list"))
		return template_list(q);
	if (want_admin(q) < 0)
		return -EACCES;
	if (q->line->count >= 3 && !strcmp(what, "add"))
		return template_new(q);
	if (!strcmp(what, "remove"))
		return template_drop(q);
	return fail(q, EINVAL, "usage: template list, template add NAME file=PATH, "
		    "template remove NAME");
}

/* ---- pool ---- */

static int pool_status(const struct request *q)
{
	struct pool *pool = q->client->server->pool;
	struct answer a;

	answer_begin(&a, "+", q->line->tag);
	answer_pair(&a, "vms", "%u", pool->vm_count);
	answer_pair(&a, "leased", "%u", pool_leased(pool));
	answer_pair(&a, "mem", "%" PRIu64, pool->vm_memory);
	answer_pair(&a, "templates", "%u", pool->template_count);
	answer_pair(&a, "ready-mem", "%" PRIu64, pool_ready_memory(pool));
	if (pool->limits.ready_memory)
		answer_pair(&a, "ready-mem-max", "%" PRIu64, pool->limits.ready_memory);
	answer_pair(&a, "stored", "%" PRIu64, pool_stored(pool));
	answer_pair(&a, "clients", "%u", q->client->server->client_count);
	answer_pair(&a, "draining", "%s", pool->draining ? "yes" : "no");
	answer_send(&a, q->client);
	return 0;
}

/* What all ready VMs together may have. */
static int pool_memory(const struct request *q)
{
	struct pool *pool = q->client->server->pool;

	if (options_known(q, 2, "memory") < 0 ||
	    option_size(q, "memory", &pool->limits.ready_memory) < 0)
		return -EINVAL;
	pool_refill_all(pool);
	reply_ok(q);
	return 0;
}

static int verb_pool(const struct request *q)
{
	const char *what = q->line->words[1];
	struct template *t;

	if (!strcmp(what, "status"))
		return pool_status(q);
	if (strcmp(what, "set"))
		return fail(q, EINVAL, "usage: pool status, pool set TEMPLATE target=N [max=N], "
			    "pool set memory=SIZE");
	if (want_admin(q) < 0)
		return -EACCES;
	if (option(q, "memory"))
		return pool_memory(q);
	t = request_template(q, 2);
	if (!t)
		return -ENOENT;
	if (options_known(q, 3, "target max") < 0 || pool_numbers(q, t) < 0)
		return -EINVAL;
	reply_ok(q);
	return 0;
}

/* ---- events ---- */

static void event_put(struct client *c, const struct pool_event *e)
{
	struct answer a;

	if (!c->admin && e->owner != c->uid)
		return;
	/* Events are not worth a connection: one that is slow misses some, and is told. */
	if (c->out.len >= OUT_HIGH) {
		c->events_lost++;
		return;
	}
	answer_begin(&a, "!", c->events_tag);
	answer_pair(&a, "event", "%" PRIu64, e->seq);
	answer_word(&a, e->type);
	answer_pair(&a, "time", "%" PRIu64 ".%03u", e->realtime_ns / NS_PER_SEC,
		    (unsigned int)(e->realtime_ns % NS_PER_SEC / 1000000));
	if (e->vm[0])
		answer_pair(&a, "vm", "%s", e->vm);
	answer_pair(&a, "reason", "%s", e->text);
	if (c->events_lost)
		answer_pair(&a, "missed", "%" PRIu64, c->events_lost);
	c->events_lost = 0;
	answer_send(&a, c);
}

static void on_event(struct pool_observer *observer, const struct pool_event *event)
{
	event_put(list_entry(observer, struct client, observer), event);
}

static int verb_events(const struct request *q)
{
	struct pool *pool = q->client->server->pool;
	struct client *c = q->client;
	uint64_t since = pool->event_seq, oldest;
	struct answer a;

	if (options_known(q, 1, "since") < 0 ||
	    option_number(q, "since", UINT64_MAX, &since) < 0)
		return -EINVAL;
	if (c->events)
		return fail(q, ESTALE, "this connection gets events already");
	oldest = pool->event_seq > POOL_EVENTS ? pool->event_seq - POOL_EVENTS : 0;
	c->events = true;
	strcpy(c->events_tag, q->line->tag);
	c->observer.event = on_event;
	list_add_tail(&pool->observers, &c->observer.link);
	answer_begin(&a, "+", q->line->tag);
	answer_pair(&a, "seq", "%" PRIu64, pool->event_seq);
	answer_send(&a, c);
	for (uint64_t i = since > oldest ? since : oldest; i < pool->event_seq; i++)
		event_put(c, &pool->events[i % POOL_EVENTS]);
	return 0;
}

/* ---- metrics, stop ---- */

static int verb_metrics(const struct request *q)
{
	struct answer a;
	size_t len;
	char *text;

	if (want_admin(q) < 0)
		return -EACCES;
	text = pool_metrics(q->client->server->pool, &len);
	if (!text)
		return fail(q, ENOMEM, "no memory for the metrics");
	answer_begin(&a, "+", q->line->tag);
	answer_send_chunk(&a, q->client, len);
	client_put(q->client, text, len);
	free(text);
	return 0;
}

static int verb_stop(const struct request *q)
{
	struct server *s = q->client->server;
	uint64_t drain = DRAIN_DEFAULT_NS;
	struct pending *p;

	if (want_admin(q) < 0)
		return -EACCES;
	if (options_known(q, 1, "drain") < 0 || option_time(q, "drain", &drain) < 0)
		return -EINVAL;
	p = pending_new(q, sizeof(*p), pending_done);
	if (!p)
		return -ENOMEM;
	list_add_tail(&s->stops, &p->waiter.link);
	server_stop(s, drain);
	return 0;
}

const struct verb verbs_pool[] = {
	{ "template", verb_template, 2, "template list | template add NAME file=PATH "
	  "[image=PATH] [hold=no] [replace=yes] [target=N] [max=N] | template remove NAME",
	  false },
	{ "pool", verb_pool, 2, "pool status | pool set TEMPLATE target=N [max=N] | "
	  "pool set memory=SIZE", false },
	{ "events", verb_events, 1, "events [since=SEQ]", false },
	{ "metrics", verb_metrics, 1, "metrics", false },
	{ "stop", verb_stop, 1, "stop [drain=TIME]", false },
	{ NULL, NULL, 0, NULL, false },
};
