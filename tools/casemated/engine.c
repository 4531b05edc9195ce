/* SPDX-License-Identifier: Apache-2.0 */
/*
 * casemated's engine: clients, VMs, templates, events (api/server.h, pool/pool.h). It begins to
 * serve when the parent has said why it was started, so that this is its first event.
 */
#include <errno.h>
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/server.h"
#include "tools/casemated/casemated.h"
#include "tools/casemated/filter.h"

struct engine {
	const struct options *options;
	struct evloop loop;
	struct pool pool;
	struct server server;
	struct pool_observer log;
	bool serves, orphaned;
	int result;
};

static void on_event(struct pool_observer *observer, const struct pool_event *e)
{
	fprintf(stderr, "casemated: %s%s%s: %s\n", e->type, e->vm[0] ? " " : "", e->vm,
		e->text);
}

static void on_start(struct pool *pool, const char *reason)
{
	struct engine *e = list_entry(pool, struct engine, pool);
	struct err err = ERR_INIT;

	if (e->serves)
		return;
	if (reason[0])
		pool_event(pool, "engine-restart", NULL, "%s", reason);
	e->result = server_init(&e->server, &e->loop, pool, ENGINE_LISTENER_FD, &err);
	if (e->result == 0)
		e->result = pool_ready(pool);
	if (e->result < 0) {
		fprintf(stderr, "casemated: %s\n", err.text);
		e->loop.stop = true;
		return;
	}
	e->serves = true;
	streams_drop(e->options);
}

static void on_stop(struct pool *pool)
{
	struct engine *e = list_entry(pool, struct engine, pool);

	if (e->serves)
		server_stop(&e->server, 0);
	else
		e->loop.stop = true;
}

static void on_orphaned(struct pool *pool, const char *why)
{
	struct engine *e = list_entry(pool, struct engine, pool);

	fprintf(stderr, "casemated: the engine ends: %s\n", why);
	e->orphaned = true;
	e->loop.stop = true;
}

static int engine_begin(struct engine *e, struct err *err)
{
	const struct passwd *user = getpwuid(getuid());
	const struct options *o = e->options;
	int r;

	signal(SIGPIPE, SIG_IGN);
	/* It has many large queues of which little is used: huge pages would take all of each.
	 * VMMs, which want huge pages, are the parent's children. */
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	/* A command's ring is of the heap, where the next one finds it again; a mapping of its own
	 * costs three system calls. */
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	mallopt(M_TRIM_THRESHOLD, 4 << 20);
	e->server.user = user ? user->pw_name : "casemated runs as";
	r = group_find(o, &e->server.has_group, &e->server.group, err);
	if (r == 0 && evloop_init(&e->loop) < 0)
		r = err_set(err, EMFILE, "cannot make a loop");
	if (r == 0)
		r = filter_enter(err);
	if (r == 0)
		r = pool_init(&e->pool, &e->loop, &o->limits, ENGINE_BOUNDARY_FD,
			      ENGINE_STORE_FD, err);
	if (r < 0)
		return r;
	e->pool.openings.image = o->image;
	e->pool.start = on_start;
	e->pool.stop = on_stop;
	e->pool.orphaned = on_orphaned;
	e->server.session = o->session;
	e->server.forward_any = o->forward_any;
	e->server.session_idle_ns = o->session_idle_ns;
	if (o->verbose) {
		e->log.event = on_event;
		list_add_tail(&e->pool.observers, &e->log.link);
	}
	return 0;
}

int engine_main(const struct options *options)
{
	static struct engine e;
	struct err err = ERR_INIT;
	struct stat st;
	int r;

	e.options = options;
	if (fstat(ENGINE_BOUNDARY_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		fprintf(stderr, "casemated: --engine is for casemated itself\n");
		return 2;
	}
	if (engine_begin(&e, &err) < 0) {
		fprintf(stderr, "casemated: %s\n", err.text);
		return 1;
	}
	r = evloop_run(&e.loop);
	/* The process ends with all that it has; without its parent, at once. */
	if (e.orphaned)
		return 1;
	if (e.serves)
		server_done(&e.server);
	pool_done(&e.pool);
	return r < 0 || e.result < 0 ? 1 : 0;
}
