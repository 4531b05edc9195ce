/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates: a snapshot that VMs are made from, and the ready ones kept of it.
 *
 * A template is opened beside the loop (opening.h) and is in no list but pool->opening until
 * that is done. The snapshot's files stay open, so that a file replaced on disk changes nothing
 * here; adding a template again with `replace` does (what is leased goes on, what is ready
 * ends). A zygote (a held VMM) is forked for each VM; without one each VM is restored from the
 * files.
 *
 * Refilling waits while a lease waits for a VM, makes at most REFILL_AT_ONCE at a time, and
 * after a failure pauses for a while that doubles. While half of the target is there it also
 * waits for CALM_NS after a lease: the VM's first command is what the processors are for then,
 * and forks that are asked for together cost less.
 *
 * All ready VMs together stay within limits.ready_memory, counted by their guest RAM: what
 * one has of its own is far less while it waits, but on the day of its lease it may have all
 * of it. A template that has none takes the place of a VM that another has besides others.
 */
#include "pool/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/time.h"

#define REFILL_AT_ONCE	4u
#define CALM_NS		(5 * NS_PER_SEC / 1000)
#define RETRY_FIRST_NS	(NS_PER_SEC / 2)
#define RETRY_DOUBLES	6u
#define START_GUESS_NS	(NS_PER_SEC / 2)	/* before one was seen to start */
#define RETRY_LEAST_NS	(NS_PER_SEC / 100)

static void refill_run(struct deferred *deferred);
static void template_remove(struct template *t);

static struct template *list_find(const struct list *templates, const char *name)
{
	struct template *t;

	list_for_each(t, templates, struct template, link) {
		if (!strcmp(t->name, name))
			return t;
	}
	return NULL;
}

struct template *pool_template_find(struct pool *pool, const char *name)
{
	return list_find(&pool->templates, name);
}

static void on_retry(struct timer *timer)
{
	struct template *t = list_entry(timer, struct template, retry);

	evloop_defer(t->pool->loop, &t->refill);
}

static void on_calm(struct timer *timer)
{
	struct template *t = list_entry(timer, struct template, calm);

	evloop_defer(t->pool->loop, &t->refill);
}

static void timers_end(struct template *t)
{
	timer_set(t->pool->loop, &t->retry, 0);
	timer_set(t->pool->loop, &t->calm, 0);
	deferred_cancel(&t->refill);
}

static void template_free(struct template *t)
{
	timers_end(t);
	for (unsigned int i = 0; i < t->fd_count; i++)
		fd_close(t->fds[i]);
	fd_close(t->image_fd);
	list_remove(&t->link);
	free(t);
}

void template_put(struct template *t)
{
	t->users--;
	if (t->removed && t->users == 0)
		template_free(t);
}

static void zygote_start(struct template *t)
{
	struct vm_options o = { .role = VM_HELD, .owner = t->pool->self, .template = t };
	struct err err = ERR_INIT;

	if (!t->hold || t->zygote || t->removed)
		return;
	if (vm_new(t->pool, &o, &t->zygote, &err) < 0)
		template_vm_failed(t, err.text);
}

/* ---- Coming ---- */

/* Takes the place of the one before. */
static void template_enter(struct template *t)
{
	struct pool *pool = t->pool;
	struct template *old = pool_template_find(pool, t->name);

	if (old && t->inherits_target)
		t->target = old->target;
	if (old && t->inherits_max)
		t->max = old->max;
	if (t->max < t->target)
		t->max = t->target;
	if (old)
		template_remove(old);
	list_add_tail(&pool->templates, &t->link);
	pool->template_count++;
	pool_event(pool, old ? "template-replaced" : "template-added", NULL, "%s", t->name);
	zygote_start(t);
	evloop_defer(pool->loop, &t->refill);
}

static void on_opened(struct opening *o, const struct err *err)
{
	struct template *t = o->owner;
	struct waiter *waiter = t->waiter;

	t->opening = NULL;
	t->waiter = NULL;
	list_remove(&t->link);
	if (err) {
		template_free(t);
		waiter->done(waiter, NULL, err);
		return;
	}
	t->memory = o->chain.memory;
	opening_take(o, t->fds, &t->fd_count, &t->image_fd);
	if (t->name[0]) {
		template_enter(t);
	} else {
		t->removed = true;
		t->users = 1;
	}
	waiter->done(waiter, t, NULL);
}

static int template_open(struct pool *pool, const struct template_options *o,
			 struct waiter *waiter, struct template **ret, struct err *err)
{
	struct template *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return err_set(err, ENOMEM, "no memory for a template");
	t->pool = pool;
	t->hold = o->hold;
	t->image_fd = -1;
	t->waiter = waiter;
	t->target = o->target;
	t->max = o->max;
	t->inherits_target = !o->has_target;
	t->inherits_max = !o->has_max;
	snprintf(t->name, sizeof(t->name), "%s", o->name);
	snprintf(t->path, sizeof(t->path), "%s", o->path ? o->path : "");
	list_init(&t->link);
	timer_init(&t->retry, on_retry);
	timer_init(&t->calm, on_calm);
	deferred_init(&t->refill, refill_run);
	r = opening_new(&pool->openings, o->path, o->image, on_opened, t, &t->opening, err);
	if (r < 0) {
		template_free(t);
		return r;
	}
	list_add_tail(&pool->opening, &t->link);
	*ret = t;
	return 0;
}

static struct template *opening_find(struct pool *pool, const char *name)
{
	return list_find(&pool->opening, name);
}

static uint32_t opening_count(struct pool *pool)
{
	uint32_t count = 0;
	struct template *t;

	list_for_each(t, &pool->opening, struct template, link)
		count += t->name[0] && !pool_template_find(pool, t->name);
	return count;
}

void template_forget(struct template *t)
{
	opening_cancel(t->opening);
	template_free(t);
}

/* It comes to nothing, for this reason. */
static void opening_end(struct template *t, int code, const char *why)
{
	struct waiter *waiter = t->waiter;
	struct err err = ERR_INIT;

	err_set(&err, code, "%s", why);
	template_forget(t);
	waiter->done(waiter, NULL, &err);
}

/* Whether the name may be had, and another template. */
static int template_admit(struct pool *pool, const struct template_options *o, struct err *err)
{
	const struct template *old = pool_template_find(pool, o->name);
	uint32_t target = o->has_target ? o->target : old ? old->target : 0;
	int r = pool_name_check(o->name, "template", err);

	if (r < 0)
		return r;
	if (o->has_max && o->max < target)
		return err_set(err, EINVAL, "max is less than target");
	if (old && !o->replace)
		return err_set(err, EEXIST, "there is a template %s already: replace=yes rolls "
			       "it over", o->name);
	if (opening_find(pool, o->name) && !o->replace)
		return err_set(err, EEXIST, "a template %s is being added already", o->name);
	if (!old && !opening_find(pool, o->name) &&
	    pool->template_count + opening_count(pool) >= POOL_TEMPLATES)
		return err_set(err, EDQUOT, "there are %u templates already", POOL_TEMPLATES);
	if (pool->draining)
		return err_set(err, ESHUTDOWN, "the daemon is stopping");
	return 0;
}

int template_add(struct pool *pool, const struct template_options *options,
		 struct waiter *waiter, struct template **ret, struct err *err)
{
	int r = template_admit(pool, options, err);
	struct template *earlier;

	if (r < 0)
		return r;
	earlier = opening_find(pool, options->name);
	r = template_open(pool, options, waiter, ret, err);
	if (r == 0 && earlier)
		opening_end(earlier, ESTALE, "a later request replaces this template");
	return r;
}

int template_once(struct pool *pool, const char *path, const char *image,
		  struct waiter *waiter, struct template **ret, struct err *err)
{
	const struct template_options o = { .name = "", .path = path, .image = image };

	if (pool->draining)
		return err_set(err, ESHUTDOWN, "the daemon is stopping");
	return template_open(pool, &o, waiter, ret, err);
}

/* ---- Going ---- */

int template_remove_named(struct pool *pool, const char *name)
{
	struct template *there = pool_template_find(pool, name);
	struct template *coming = opening_find(pool, name);

	/* Those for one VM have no name. */
	if (!name[0] || (!there && !coming))
		return -ENOENT;
	if (there)
		template_remove(there);
	if (coming)
		opening_end(coming, ESTALE, "the template was removed meanwhile");
	return 0;
}

void pool_templates_drop(struct pool *pool)
{
	struct template *t;

	while (!list_empty(&pool->opening))
		opening_end(list_entry(pool->opening.next, struct template, link), ESHUTDOWN,
			    "the daemon is stopping");
	list_for_each(t, &pool->templates, struct template, link)
		template_remove(t);
}

static void recount(struct template *t)
{
	struct vm *vm;

	t->ready = t->starting = t->waiting = 0;
	list_for_each(vm, &t->pool->vms, struct vm, link) {
		if (vm->template != t || vm->state == VM_ENDING)
			continue;
		if (vm->role == VM_WARM && vm->state == VM_READY)
			t->ready++;
		else if (vm->role == VM_WARM)
			t->starting++;
		else if (vm->role == VM_LEASED && vm->state == VM_STARTING && !vm->woken)
			t->waiting++;
	}
}

static bool is_unleased(const struct vm *vm, const struct template *t)
{
	return vm->template == t && vm->state != VM_ENDING && vm->role != VM_LEASED;
}

static void template_remove(struct template *t)
{
	struct pool *pool = t->pool;
	struct vm *vm;

	t->removed = true;
	list_remove(&t->link);
	pool->template_count--;
	timers_end(t);
	pool_event(pool, "template-removed", NULL, "%s", t->name);
	t->users++;
	recount(t);
	list_for_each(vm, &pool->vms, struct vm, link) {
		/* A zygote that is just being forked for a lease ends after that. */
		if (is_unleased(vm, t) && !(vm == t->zygote && t->waiting > 0))
			vm_kill(vm, "template", NULL, "its template %s is gone", t->name);
	}
	template_put(t);
}

int template_pool_set(struct template *t, uint32_t target, uint32_t max, struct err *err)
{
	if (max < target)
		return err_set(err, EINVAL, "max is less than target");
	t->target = target;
	t->max = max;
	t->failures = 0;
	evloop_defer(t->pool->loop, &t->refill);
	return 0;
}

/* ---- The budget ---- */

uint64_t pool_ready_memory(const struct pool *pool)
{
	uint64_t bytes = 0;
	struct vm *vm;

	list_for_each(vm, &pool->vms, struct vm, link) {
		if (vm->role == VM_WARM && vm->state != VM_ENDING)
			bytes += vm->memory;
	}
	return bytes;
}

static bool budget_has(const struct pool *pool, uint64_t more)
{
	uint64_t limit = pool->limits.ready_memory;

	return !limit || (more <= limit && pool_ready_memory(pool) <= limit - more);
}

static struct vm *ready_find(const struct template *t)
{
	struct vm *vm;

	list_for_each(vm, &t->pool->vms, struct vm, link) {
		if (vm->template == t && vm->role == VM_WARM && vm->state == VM_READY)
			return vm;
	}
	return NULL;
}

/* Makes room for the first VM of a template. */
static void budget_take(struct template *t)
{
	struct pool *pool = t->pool;

	while (t->memory <= pool->limits.ready_memory && !budget_has(pool, t->memory)) {
		struct template *from = NULL, *other;
		struct vm *vm;

		list_for_each(other, &pool->templates, struct template, link) {
			if (other != t && other->ready > 1 &&
			    (!from || other->ready * other->memory > from->ready * from->memory))
				from = other;
		}
		vm = from ? ready_find(from) : NULL;
		if (!vm)
			return;
		vm_kill(vm, "pool", NULL, "its place in the pools' memory goes to "
			"%s", t->name);
	}
}

void pool_refill_all(struct pool *pool)
{
	struct template *t;

	list_for_each(t, &pool->templates, struct template, link)
		evloop_defer(pool->loop, &t->refill);
}

/* ---- Refilling ---- */

static int vm_make(struct template *t, const struct vm_options *o, struct vm **ret,
		   struct err *err)
{
	zygote_start(t);
	return t->zygote ? vm_fork(t->zygote, o, 1, ret, err) : vm_new(t->pool, o, ret, err);
}

static void surplus_end(struct template *t)
{
	struct vm *vm;

	list_for_each(vm, &t->pool->vms, struct vm, link) {
		if (t->ready <= t->max && budget_has(t->pool, 0))
			return;
		if (vm->template != t || vm->role != VM_WARM || vm->state != VM_READY)
			continue;
		vm_kill(vm, "pool", NULL, "the pool holds more than its maximum");
	}
}

static void refill_run(struct deferred *deferred)
{
	struct template *t = list_entry(deferred, struct template, refill);
	struct vm_options o = { .role = VM_WARM, .owner = t->pool->self, .template = t };
	struct err err = ERR_INIT;
	struct vm *vm;

	if (t->removed || t->pool->draining || t->retry.at_ns)
		return;
	zygote_start(t);
	recount(t);
	surplus_end(t);
	if (t->target > 0 && t->ready + t->starting == 0)
		budget_take(t);
	t->waits = false;
	if (t->calm.at_ns && t->ready + t->starting >= (t->target + 1) / 2)
		return;
	while (t->waiting == 0 && t->starting < REFILL_AT_ONCE &&
	       t->ready + t->starting < t->target) {
		int r;

		t->waits = !budget_has(t->pool, t->memory);
		if (t->waits)
			return;
		r = t->retry.at_ns ? -EAGAIN : vm_make(t, &o, &vm, &err);
		if (r < 0) {
			if (r != -EAGAIN)
				template_vm_failed(t, err.text);
			return;
		}
		t->starting++;
	}
}

void template_vm_changed(struct template *t)
{
	recount(t);
	if (t->removed && t->zygote && t->waiting == 0)
		vm_kill(t->zygote, "template", NULL, "its template %s is gone", t->name);
	/* Within a budget what one does not have is another's to take. */
	if (t->pool->limits.ready_memory)
		pool_refill_all(t->pool);
	else if (!t->removed)
		evloop_defer(t->pool->loop, &t->refill);
}

void template_vm_started(struct template *t, uint64_t ns)
{
	t->start_ns = t->start_ns ? (3 * t->start_ns + ns) / 4 : ns;
}

uint64_t template_retry_ns(const struct template *t)
{
	uint64_t now = time_monotonic_ns(), ns = t->start_ns ? t->start_ns : START_GUESS_NS;

	if (t->target == 0)
		return 0;
	if (t->retry.at_ns > now)
		ns += t->retry.at_ns - now;
	return ns < RETRY_LEAST_NS ? RETRY_LEAST_NS : ns;
}

void template_vm_failed(struct template *t, const char *reason)
{
	unsigned int doubles = t->failures < RETRY_DOUBLES ? t->failures : RETRY_DOUBLES;

	snprintf(t->trouble, sizeof(t->trouble), "%s", reason);
	t->failures++;
	if (t->removed || t->pool->draining)
		return;
	if (t->failures == 1)
		pool_event(t->pool, "template-trouble", NULL, "%s: %s", t->name, reason);
	timer_set(t->pool->loop, &t->retry,
		  time_monotonic_ns() + (RETRY_FIRST_NS << doubles));
}

/* ---- Leasing ---- */

int template_lease(struct template *t, const struct vm_options *options, bool only_ready,
		   struct waiter *waiter, struct vm **ret_vm, struct err *err)
{
	struct vm_options o = *options;
	struct vm *vm, *ready = ready_find(t);
	int r;

	o.template = t;
	o.role = VM_LEASED;
	t->leases++;
	t->pool->stats.leases++;
	if (ready) {
		r = vm_lease(ready, &o, err);
		if (r < 0)
			return r;
		t->hits++;
		t->pool->stats.lease_hits++;
		pool_event(t->pool, "vm-leased", ready, "from %s", t->name);
		timer_set(t->pool->loop, &t->calm, time_monotonic_ns() + CALM_NS);
		template_vm_changed(t);
		*ret_vm = ready;
		waiter->done(waiter, ready, NULL);
		return 0;
	}
	if (only_ready)
		return err_set(err, EBUSY, "no VM of %s is ready", t->name);
	if (t->failures > 0 && t->hold && !t->zygote)
		return err_set(err, EIO, "the template %s does not start: %s", t->name,
			       t->trouble);
	r = vm_make(t, &o, &vm, err);
	if (r < 0)
		return r;
	recount(t);
	*ret_vm = vm;
	vm_wait_ready(vm, waiter);
	return 0;
}
