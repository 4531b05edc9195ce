/* SPDX-License-Identifier: Apache-2.0 */
/* The engine as a whole: limits, events, counters, its start and its end; see pool.h. */
#include "pool/vm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"
#include "pool/forward.h"

#define MS	UINT64_C(1000000)

const uint64_t pool_bucket_ns[POOL_BUCKETS] = {
	MS / 2, MS, 2 * MS, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 1000 * MS,
	5000 * MS, 30000 * MS,
};

static void on_ended_timer(struct timer *timer)
{
	struct pool *pool = list_entry(timer, struct pool, ended_timer);
	uint64_t now = time_monotonic_ns();
	struct exec *exec;

	list_for_each(exec, &pool->ended, struct exec, link) {
		if (now >= exec->ended_ns + POOL_ENDED_NS)
			exec_forget(exec);
	}
	if (!list_empty(&pool->ended))
		timer_set(pool->loop, timer, now + NS_PER_SEC);
}

void waiters_tell(struct list *waiters, void *what, const struct err *err)
{
	while (!list_empty(waiters)) {
		struct waiter *w = list_entry(waiters->next, struct waiter, link);

		list_remove(&w->link);
		w->done(w, what, err);
	}
}

int pool_init(struct pool *pool, struct evloop *loop, const struct pool_limits *limits,
	      int parent, int store, struct err *err)
{
	int r;

	*pool = (struct pool){ .loop = loop, .limits = *limits, .self = getuid(),
			       .store = store };
	list_init(&pool->vms);
	for (size_t i = 0; i < POOL_NAME_HASHES; i++)
		list_init(&pool->names[i]);
	list_init(&pool->ended);
	list_init(&pool->templates);
	list_init(&pool->observers);
	list_init(&pool->opening);
	timer_init(&pool->ended_timer, on_ended_timer);
	listener_clean(store);
	suspend_store_clean(store);
	r = openings_init(&pool->openings, loop, err);
	if (r == 0)
		r = savings_init(&pool->savings, loop, err);
	if (r < 0)
		return r;
	r = link_open(pool, parent);
	return r < 0 ? err_set_errno(err, r, "cannot speak to the parent") : 0;
}

bool pool_empty(const struct pool *pool)
{
	return list_empty(&pool->vms) && pool->savings.finishing == 0;
}

void pool_done(struct pool *pool)
{
	struct exec *exec;

	pool_templates_drop(pool);
	openings_done(&pool->openings);
	savings_done(&pool->savings);
	list_for_each(exec, &pool->ended, struct exec, link)
		exec_free(exec);
	timer_set(pool->loop, &pool->ended_timer, 0);
	boundary_done(&pool->parent);
	pool->store = fd_close(pool->store);
}

void pool_drain(struct pool *pool)
{
	pool->draining = true;
	pool_templates_drop(pool);
}

void pool_kill_all(struct pool *pool, const char *cause, const char *reason)
{
	struct vm *vm;

	list_for_each(vm, &pool->vms, struct vm, link)
		vm_kill(vm, cause, NULL, "%s", reason);
}

void pool_unbind(struct pool *pool, const void *bound)
{
	struct forward *f;
	struct vm *vm;

	list_for_each(vm, &pool->vms, struct vm, link) {
		list_for_each(f, &vm->forwards, struct forward, link) {
			if (f->bound == bound)
				forward_end(f, "the connection it was bound to is gone");
		}
		if (vm->bound == bound) {
			vm->bound = NULL;
			vm_kill(vm, "unbound", NULL, "the connection it was bound to is gone");
		}
	}
}

uint32_t pool_leased(const struct pool *pool)
{
	uint32_t count = 0;
	struct vm *vm;

	list_for_each(vm, &pool->vms, struct vm, link)
		count += vm->role == VM_LEASED;
	return count;
}

uint64_t pool_stored(const struct pool *pool)
{
	uint64_t bytes = 0;
	struct vm *vm;

	list_for_each(vm, &pool->vms, struct vm, link)
		bytes += vm_stored(vm);
	return bytes;
}

/* ---- Limits ---- */

struct owned {
	uint64_t vms, memory, stored;
};

static struct owned owned_by(const struct pool *pool, uid_t owner)
{
	struct owned has = { 0 };
	struct vm *vm;

	list_for_each(vm, &pool->vms, struct vm, link) {
		if (vm->owner != owner || vm->role != VM_LEASED)
			continue;
		has.vms++;
		has.memory += vm->counted ? vm->memory : 0;
		has.stored += vm_stored(vm);
	}
	return has;
}

static int owner_memory_admit(const struct pool *pool, const struct owned *has, uint64_t memory,
			      uint32_t count, struct err *err)
{
	const struct pool_limits *l = &pool->limits;
	uint64_t bytes = has->memory, more;

	if (l->owner_memory && (__builtin_mul_overflow(memory, count, &more) ||
				__builtin_add_overflow(more, bytes, &more) ||
				more > l->owner_memory))
		return err_set(err, EDQUOT, "your limit is %" PRIu64 " MiB of memory, and your "
			       "VMs have %" PRIu64, l->owner_memory >> 20, bytes >> 20);
	return 0;
}

static int owner_admit(const struct pool *pool, uid_t owner, uint64_t memory, uint32_t count,
		       struct err *err)
{
	const struct pool_limits *l = &pool->limits;
	struct owned has = owned_by(pool, owner);

	if (l->owner_vms && has.vms + count > l->owner_vms)
		return err_set(err, EDQUOT, "your limit is %u VMs, and you have %" PRIu64,
			       l->owner_vms, has.vms);
	return owner_memory_admit(pool, &has, memory, count, err);
}

static int total_memory_admit(const struct pool *pool, uint64_t memory, uint32_t count,
			      struct err *err)
{
	const struct pool_limits *l = &pool->limits;
	uint64_t more;

	if (l->total_memory &&
	    (__builtin_mul_overflow(memory, count, &more) ||
	     __builtin_add_overflow(more, pool->vm_memory, &more) || more > l->total_memory))
		return err_set(err, EDQUOT, "the daemon's limit is %" PRIu64 " MiB of memory "
			       "for all VMs, of which %" PRIu64 " are taken",
			       l->total_memory >> 20, pool->vm_memory >> 20);
	return 0;
}

int pool_vm_admit(struct pool *pool, const struct vm_options *o, uint64_t memory,
		  uint32_t count, bool fresh, struct err *err)
{
	const struct pool_limits *l = &pool->limits;

	if (pool->draining)
		return err_set(err, ESHUTDOWN, "the daemon is stopping");
	if (fresh && l->total_vms && pool->vm_count + count > l->total_vms)
		return err_set(err, EDQUOT, "the daemon's limit is %u VMs", l->total_vms);
	if (fresh && o->role != VM_HELD &&
	    total_memory_admit(pool, memory, count, err) < 0)
		return err->code;
	return o->role == VM_LEASED ? owner_admit(pool, o->owner, memory, count, err) : 0;
}

int pool_wake_admit(const struct vm *vm, struct err *err)
{
	struct owned has = owned_by(vm->pool, vm->owner);
	int r;

	if (vm->pool->draining)
		return err_set(err, ESHUTDOWN, "the daemon is stopping");
	r = total_memory_admit(vm->pool, vm->memory, 1, err);
	return r == 0 ? owner_memory_admit(vm->pool, &has, vm->memory, 1, err) : r;
}

int pool_store_admit(const struct vm *vm, uint64_t bytes, struct err *err)
{
	uint64_t limit = vm->pool->limits.owner_stored;
	uint64_t others = owned_by(vm->pool, vm->owner).stored - vm_stored(vm);

	/* Nothing yet (0 bytes) is too much for who has used all. */
	if (!limit || (others < limit && bytes <= limit - others))
		return 0;
	return err_set(err, EDQUOT, "your limit is %" PRIu64 " MiB of suspended VMs on disk, of "
		       "which %" PRIu64 " are taken; this one has %" PRIu64, limit >> 20,
		       others >> 20, bytes >> 20);
}

int pool_exec_admit(struct pool *pool, uid_t owner, struct err *err)
{
	uint64_t count = 0;
	struct vm *vm;

	if (!pool->limits.owner_execs)
		return 0;
	list_for_each(vm, &pool->vms, struct vm, link) {
		if (vm->owner == owner)
			count += vm->exec_count;
	}
	if (count >= pool->limits.owner_execs)
		return err_set(err, EDQUOT, "your limit is %u commands at once",
			       pool->limits.owner_execs);
	return 0;
}

/* ---- Events ---- */

void pool_event(struct pool *pool, const char *type, const struct vm *vm, const char *format,
		...)
{
	struct pool_event *e = &pool->events[pool->event_seq % POOL_EVENTS];
	struct pool_observer *o;
	va_list args;

	*e = (struct pool_event){ .seq = ++pool->event_seq, .type = type,
				  .realtime_ns = time_ns(CLOCK_REALTIME),
				  .owner = vm ? vm->owner : pool->self };
	if (vm)
		strcpy(e->vm, vm->name);
	va_start(args, format);
	vsnprintf(e->text, sizeof(e->text), format, args);
	va_end(args);
	list_for_each(o, &pool->observers, struct pool_observer, link)
		o->event(o, e);
}

/* ---- Metrics ---- */

void pool_histogram_add(struct pool_histogram *h, uint64_t ns)
{
	unsigned int i = 0;

	while (i < POOL_BUCKETS && ns > pool_bucket_ns[i])
		i++;
	h->count[i]++;
	h->total++;
	h->sum_ns += ns;
}

static void metric(FILE *to, const char *name, const char *type, const char *help,
		   uint64_t value)
{
	fprintf(to, "# HELP casemate_%s %s\n# TYPE casemate_%s %s\ncasemate_%s %" PRIu64 "\n",
		name, help, name, type, name, value);
}

static void metric_histogram(FILE *to, const char *name, const char *help,
			     const struct pool_histogram *h)
{
	uint64_t below = 0;

	fprintf(to, "# HELP casemate_%s %s\n# TYPE casemate_%s histogram\n", name, help, name);
	for (unsigned int i = 0; i < POOL_BUCKETS; i++) {
		below += h->count[i];
		fprintf(to, "casemate_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
			(double)pool_bucket_ns[i] / 1e9, below);
	}
	fprintf(to, "casemate_%s_bucket{le=\"+Inf\"} %" PRIu64 "\ncasemate_%s_sum %.9f\n"
		"casemate_%s_count %" PRIu64 "\n", name, h->total, name,
		(double)h->sum_ns / 1e9, name, h->total);
}

static void metrics_write(struct pool *pool, FILE *to)
{
	const struct pool_stats *s = &pool->stats;
	uint64_t states[VM_STATES] = { 0 }, roles[3] = { 0 }, execs = 0, forwards = 0;
	struct template *t;
	struct vm *vm;

	list_for_each(vm, &pool->vms, struct vm, link) {
		states[vm->state]++;
		roles[vm->role]++;
		execs += vm->exec_count;
		forwards += vm->forward_count;
	}
	metric(to, "vms_starting", "gauge", "VMs that are starting", states[VM_STARTING]);
	metric(to, "vms_ready", "gauge", "VMs that take commands", states[VM_READY]);
	metric(to, "vms_suspended", "gauge", "VMs that are on disk", states[VM_SUSPENDED]);
	metric(to, "stored_bytes", "gauge", "suspended VMs on disk", pool_stored(pool));
	metric(to, "vms_leased", "gauge", "VMs that are somebody's", roles[VM_LEASED]);
	metric(to, "vms_warm", "gauge", "VMs that wait in pools", roles[VM_WARM]);
	metric(to, "vm_memory_bytes", "gauge", "guest memory of all VMs", pool->vm_memory);
	metric(to, "execs_running", "gauge", "commands that run", execs);
	metric(to, "vms_created_total", "counter", "VMs started", s->vms_created);
	metric(to, "vms_ended_total", "counter", "VMs ended", s->vms_ended);
	metric(to, "vms_failed_total", "counter", "VMs that never got ready", s->vms_failed);
	metric(to, "execs_total", "counter", "commands begun", s->execs);
	metric(to, "execs_ended_total", "counter", "commands ended", s->execs_ended);
	metric(to, "forwards", "gauge", "forwards of ports", forwards);
	metric(to, "forward_connections_total", "counter", "connections of forwards",
	       s->connections);
	metric(to, "forks_total", "counter", "VMs made by fork", s->forks);
	metric(to, "snapshots_total", "counter", "snapshots saved", s->snapshots);
	metric(to, "suspends_total", "counter", "VMs put on disk", s->suspends);
	metric(to, "wakes_total", "counter", "VMs come back from there", s->wakes);
	metric(to, "leases_total", "counter", "VMs asked of templates", s->leases);
	metric(to, "lease_hits_total", "counter", "of which one was ready", s->lease_hits);
	metric(to, "snapshots_verifying", "gauge", "snapshot files that are being verified",
	       pool->openings.check_count);
	metric(to, "snapshots_verified_total", "counter", "snapshot files verified",
	       pool->openings.verified);
	metric(to, "events_total", "counter", "events", pool->event_seq);
	metric(to, "ready_memory_bytes", "gauge", "guest memory of VMs that wait in pools",
	       pool_ready_memory(pool));
	metric_histogram(to, "vm_start_seconds", "from request to ready", &s->create);
	metric_histogram(to, "exec_start_seconds", "from request to running", &s->exec_start);
	fprintf(to, "# HELP casemate_template_ready ready VMs of a template\n"
		"# TYPE casemate_template_ready gauge\n");
	list_for_each(t, &pool->templates, struct template, link)
		fprintf(to, "casemate_template_ready{template=\"%s\"} %u\n", t->name, t->ready);
}

char *pool_metrics(struct pool *pool, size_t *ret_len)
{
	char *text = NULL;
	FILE *to = open_memstream(&text, ret_len);

	if (!to)
		return NULL;
	metrics_write(pool, to);
	if (fclose(to) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
