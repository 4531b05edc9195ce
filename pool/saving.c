/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots to files that clients name; see saving.h. */
#include "pool/saving.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "pool/vm.h"

#define PLACERS		4u
#define FINISHERS	4u

struct saving {
	struct list link;		/* of its VM, while in PLACE */
	struct savings *all;
	struct vm *vm;			/* in PLACE */
	struct job job;
	struct waiter saved;		/* of the VM's request */
	bool placed;			/* asked of the VM */
	struct waiter *waiter;		/* NULL: nobody is to be told any more */
	uint16_t flags;
	char path[PATH_MAX];
	struct save save;
	struct snapshot_id id;
	struct saving_result result;
	struct err err;
};

static void saving_free(struct saving *s)
{
	s->all->count--;
	list_remove(&s->link);
	free(s);
}

static void saving_tell(struct saving *s, const struct err *err)
{
	struct waiter *waiter = s->waiter;

	s->waiter = NULL;
	list_remove(&s->link);
	if (waiter)
		waiter->done(waiter, err ? NULL : &s->result, err);
}

/* The thread may never come back, and the object is its until then. */
static void saving_leave(struct saving *s)
{
	struct err err = ERR_INIT;

	job_stuck_set(&err, s->path);
	saving_tell(s, &err);
}

/* ---- NAME, UNDO ---- */

static void name_run(struct job *job)
{
	struct saving *s = list_entry(job, struct saving, job);

	fd_disk_bytes(s->save.file.fd, &s->result.bytes);
	if (save_commit(&s->save, &s->id, &s->err) < 0)
		save_abandon(&s->save);
}

static void undo_run(struct job *job)
{
	struct saving *s = list_entry(job, struct saving, job);

	save_abandon(&s->save);
}

static void finish_done(struct job *job)
{
	struct saving *s = list_entry(job, struct saving, job);

	if (s->waiter)
		s->all->finishing--;
	saving_tell(s, s->err.code ? &s->err : NULL);
	saving_free(s);
}

static void finish_stuck(struct job *job)
{
	struct saving *s = list_entry(job, struct saving, job);

	if (s->waiter)
		s->all->finishing--;
	saving_leave(s);
}

/* After this s may be gone. */
static void finish_begin(struct saving *s)
{
	struct err err = ERR_INIT;

	job_init(&s->job, s->err.code ? undo_run : name_run, finish_done, finish_stuck);
	if (job_begin(&s->all->finishers, &s->job, &err) == 0) {
		s->all->finishing += s->waiter != NULL;
		return;
	}
	/* There is no thread, nor one that ends. */
	save_abandon(&s->save);
	saving_tell(s, s->err.code ? &s->err : &err);
	saving_free(s);
}

/* ---- VM ---- */

static void on_saved(struct waiter *waiter, void *what, const struct err *failed)
{
	struct saving *s = list_entry(waiter, struct saving, saved);
	struct vm_request *q = what;

	s->save.file.fd = fd_take(&q->fds[0]);
	memcpy(s->id.digest, q->saved.id, sizeof(s->id.digest));
	s->result.pause_ns = q->saved.pause_ns;
	if (failed)
		s->err = *failed;
	finish_begin(s);
}

/* ---- PLACE ---- */

static void place_run(struct job *job)
{
	struct saving *s = list_entry(job, struct saving, job);

	/* It might be what the new one builds on. */
	if (s->flags & CM_SAVE_INCREMENTAL && access(s->path, F_OK) == 0) {
		err_set(&s->err, EEXIST, "there is a file %.200s already, and an increment never "
			"replaces one", s->path);
		return;
	}
	if (job_beat(job) && save_begin(&s->save, s->path, false, &s->err) == 0 &&
	    !job_beat(job))
		save_abandon(&s->save);
}

static void place_done(struct job *job)
{
	struct saving *s = list_entry(job, struct saving, job);
	struct vm *vm = s->vm;
	bool made = s->save.file.fd >= 0;

	list_remove(&s->link);
	if (!s->waiter || !made) {
		if (!s->err.code)
			err_set(&s->err, ECANCELED, "given up");
		if (made) {
			finish_begin(s);
			return;
		}
		saving_tell(s, &s->err);
		saving_free(s);
		return;
	}
	s->placed = true;
	if (vm_save(vm, s->save.file.fd, s->flags, &s->saved, &s->err) < 0)
		finish_begin(s);
	else
		s->save.file.fd = -1;
}

static void place_stuck(struct job *job)
{
	saving_leave(list_entry(job, struct saving, job));
}

int vm_snapshot(struct vm *vm, const char *path, uint16_t flags, struct waiter *waiter,
		struct saving **ret, struct err *err)
{
	struct savings *all = &vm->pool->savings;
	struct saving *s;
	int r;

	if (strlen(path) >= PATH_MAX)
		return err_set(err, ENAMETOOLONG, "the name of the snapshot is too long");
	if (all->count >= SAVINGS_MAX)
		return err_set(err, EBUSY, "%u snapshots are being saved already", all->count);
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(err, ENOMEM, "no memory to save a snapshot");
	*s = (struct saving){ .all = all, .vm = vm, .waiter = waiter, .flags = flags,
			      .save = SAVE_INIT, .saved.done = on_saved };
	all->count++;
	list_init(&s->link);
	list_init(&s->saved.link);
	snprintf(s->path, sizeof(s->path), "%s", path);
	s->result.path = s->path;
	job_init(&s->job, place_run, place_done, place_stuck);
	r = job_begin(&all->placers, &s->job, err);
	if (r < 0) {
		saving_free(s);
		return r;
	}
	list_add_tail(&vm->savings, &s->link);
	*ret = s;
	return 0;
}

bool saving_cancel(struct saving *s)
{
	if (s->placed)
		return false;
	s->waiter = NULL;
	list_remove(&s->link);
	if (job_cancel(&s->job))
		saving_free(s);
	return true;
}

void saving_drop_all(struct vm *vm, const struct err *err)
{
	while (!list_empty(&vm->savings)) {
		struct saving *s = list_entry(vm->savings.next, struct saving, link);
		struct waiter *waiter = s->waiter;

		saving_cancel(s);
		waiter->done(waiter, NULL, err);
	}
}

/* ---- All of them ---- */

int savings_init(struct savings *all, struct evloop *loop, struct err *err)
{
	int r = workers_init(&all->placers, loop, PLACERS, SAVINGS_MAX, 0, err);

	return r < 0 ? r : workers_init(&all->finishers, loop, FINISHERS, SAVINGS_MAX, 0, err);
}

void savings_done(struct savings *all)
{
	workers_done(&all->placers);
	workers_done(&all->finishers);
}
