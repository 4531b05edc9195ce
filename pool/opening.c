/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and verifying beside the loop; see opening.h. */
#include "pool/opening.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/time.h"
#include "pool/spawn.h"

#define FINDERS		4u
#define CHECKERS	2u
#define NICE		10

struct check {
	struct list link;		/* of openings.checks, while it can be joined */
	struct openings *all;
	struct job job;
	struct list openings;		/* that wait for it */
	int fd;
	struct chain_file file;
	struct snapshot_progress progress;
	struct chain_identity is;	/* after it */
	bool settled;
	bool over;			/* those who wait are being told */
	struct err err;
};

static void opening_next(struct opening *o);

/* Of a job in its thread: where work is told of, whether to go on is asked. */
static bool on_step(void *arg, uint64_t done, uint64_t total)
{
	return job_beat(arg);
}

/* ---- What was verified ---- */

static bool is_seen(const struct openings *all, const struct chain_identity *is)
{
	for (unsigned int i = 0; i < OPENINGS_SEEN; i++) {
		if (all->seen[i].size && chain_identity_equal(&all->seen[i], is))
			return true;
	}
	return false;
}

static void seen_add(struct openings *all, const struct chain_identity *is)
{
	all->seen[all->seen_next++ % OPENINGS_SEEN] = *is;
}

/* ---- Openings ---- */

static uint32_t *opening_count(struct opening *o)
{
	return o->is_default ? &o->all->default_count : &o->all->count;
}

static void opening_free(struct opening *o)
{
	(*opening_count(o))--;
	chain_close(&o->chain);
	fd_close(o->image_fd);
	free(o);
}

static void opening_finish(struct opening *o, const struct err *err)
{
	o->done(o, err);
	opening_free(o);
}

static void find_run(struct job *job)
{
	struct opening *o = list_entry(job, struct opening, job);
	const struct snapshot_progress progress = { .step = on_step, .arg = job };
	const char *image = o->image;

	if (o->path[0] && chain_find(&o->chain, o->path, &progress, &o->err) < 0)
		return;
	if (!image[0])
		image = o->chain.image;
	if (o->chain.image_size > 0 && !image[0])
		err_set(&o->err, EINVAL, "the snapshot does not say where its root image is: "
			"name it with image=");
	else if (image[0] && job_beat(job))
		spawn_image_open(image, &o->image_fd, &o->err);
}

static void find_done(struct job *job)
{
	struct opening *o = list_entry(job, struct opening, job);

	if (o->dropped) {
		opening_free(o);
	} else if (o->err.code) {
		opening_finish(o, &o->err);
	} else {
		o->left = o->chain.count;
		opening_next(o);
	}
}

/* The thread may never come back, and the object is its. */
static void find_stuck(struct job *job)
{
	struct opening *o = list_entry(job, struct opening, job);
	struct err err = ERR_INIT;

	job_stuck_set(&err, o->path[0] ? o->path : o->image);
	o->dropped = true;
	o->done(o, &err);
}

/* ---- Checks ---- */

static void check_free(struct check *c)
{
	fd_close(c->fd);
	free(c->file.path);
	free(c);
}

/* Nobody joins it any more. */
static void check_close(struct check *c)
{
	if (!list_empty(&c->link))
		c->all->check_count--;
	list_remove(&c->link);
}

static void check_run(struct job *job)
{
	struct check *c = list_entry(job, struct check, job);

	chain_verify(c->fd, &c->file, &c->progress, &c->is, &c->settled, &c->err);
}

/* All who wait for it are told, or go on. They may cancel each other. */
static void check_tell(struct check *c, const struct err *err)
{
	c->over = true;
	while (!list_empty(&c->openings)) {
		struct opening *o = list_entry(c->openings.next, struct opening, check_link);

		list_remove(&o->check_link);
		o->check = NULL;
		if (err) {
			opening_finish(o, err);
		} else {
			o->left--;
			opening_next(o);
		}
	}
}

static void check_done(struct job *job)
{
	struct check *c = list_entry(job, struct check, job);

	check_close(c);
	if (!c->err.code)
		c->all->verified++;
	if (!c->err.code && c->settled) {
		seen_add(c->all, &c->file.is);
		seen_add(c->all, &c->is);
	}
	check_tell(c, c->err.code ? &c->err : NULL);
	check_free(c);
}

static void check_stuck(struct job *job)
{
	struct check *c = list_entry(job, struct check, job);
	struct err err = ERR_INIT;

	job_stuck_set(&err, c->file.path);
	check_close(c);
	check_tell(c, &err);
}

static int check_begin(struct openings *all, const struct opening *o, unsigned int file,
		       struct check **ret, struct err *err)
{
	struct check *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_set(err, ENOMEM, "no memory to check a file");
	c->all = all;
	c->file = o->chain.files[file];
	c->file.path = strdup(c->file.path);
	c->fd = fcntl(o->chain.fds[file], F_DUPFD_CLOEXEC, 3);
	c->progress = (struct snapshot_progress){ .step = on_step, .arg = &c->job };
	list_init(&c->openings);
	list_init(&c->link);
	job_init(&c->job, check_run, check_done, check_stuck);
	if (!c->file.path || c->fd < 0)
		r = err_set(err, c->fd < 0 ? EMFILE : ENOMEM, "cannot check one more file now");
	else
		r = job_begin(&all->checkers, &c->job, err);
	if (r < 0) {
		check_free(c);
		return r;
	}
	list_add_tail(&all->checks, &c->link);
	all->check_count++;
	*ret = c;
	return 0;
}

static struct check *check_find(struct openings *all, const struct chain_identity *is)
{
	struct check *c;

	list_for_each(c, &all->checks, struct check, link) {
		if (chain_identity_equal(&c->file.is, is))
			return c;
	}
	return NULL;
}

/* The one that was named comes first: it is the last of the chain. */
static void opening_next(struct opening *o)
{
	struct err err = ERR_INIT;

	while (o->left > 0) {
		const struct chain_file *file = &o->chain.files[o->left - 1];
		struct check *c;

		if (file->verified || is_seen(o->all, &file->is)) {
			o->left--;
			continue;
		}
		c = check_find(o->all, &file->is);
		if (!c && check_begin(o->all, o, o->left - 1, &c, &err) < 0) {
			opening_finish(o, &err);
			return;
		}
		o->check = c;
		list_add_tail(&c->openings, &o->check_link);
		return;
	}
	opening_finish(o, NULL);
}

/* ---- For those who want them ---- */

int opening_new(struct openings *all, const char *path, const char *image,
		void (*done)(struct opening *opening, const struct err *err), void *owner,
		struct opening **ret, struct err *err)
{
	bool is_default = !path && !image;
	uint32_t count = is_default ? all->default_count : all->count;
	uint32_t most = is_default ? OPENINGS_DEFAULT_MAX : OPENINGS_MAX;
	struct opening *o;
	int r;

	if (is_default)
		image = all->image;
	if (!path && !image)
		return err_set(err, ENOENT, "no root image is named, and no default one is "
			       "there; casemate image build makes one");
	if ((path && strlen(path) >= PATH_MAX) || (image && strlen(image) >= PATH_MAX))
		return err_set(err, ENAMETOOLONG, "the name of the snapshot or image is too long");
	/* Each takes descriptors. */
	if (count >= most)
		return err_set(err, EBUSY, "%u %s are being opened already", count,
			       path ? "snapshots" : "images");
	o = calloc(1, sizeof(*o));
	if (!o)
		return err_set(err, ENOMEM, "no memory to open a file");
	o->all = all;
	o->is_default = is_default;
	(*opening_count(o))++;
	o->image_fd = -1;
	o->done = done;
	o->owner = owner;
	list_init(&o->check_link);
	snprintf(o->path, sizeof(o->path), "%s", path ? path : "");
	snprintf(o->image, sizeof(o->image), "%s", image ? image : "");
	job_init(&o->job, find_run, find_done, find_stuck);
	r = job_begin(is_default ? &all->imagers : &all->finders, &o->job, err);
	if (r < 0)
		opening_free(o);
	else
		*ret = o;
	return r;
}

static void check_leave(struct opening *o)
{
	struct check *c = o->check;

	list_remove(&o->check_link);
	o->check = NULL;
	if (c->over || !list_empty(&c->openings))
		return;
	check_close(c);
	if (job_cancel(&c->job))
		check_free(c);
}

void opening_cancel(struct opening *o)
{
	if (o->check) {
		check_leave(o);
		opening_free(o);
	} else if (job_cancel(&o->job)) {
		opening_free(o);
	} else {
		o->dropped = true;
	}
}

void opening_take(struct opening *o, int *fds, unsigned int *ret_count, int *ret_image)
{
	for (unsigned int i = 0; i < o->chain.count; i++)
		fds[i] = fd_take(&o->chain.fds[i]);
	*ret_count = o->chain.count;
	*ret_image = fd_take(&o->image_fd);
}

int openings_init(struct openings *all, struct evloop *loop, struct err *err)
{
	int r;

	*all = (struct openings){ .check_count = 0 };
	list_init(&all->checks);
	r = workers_init(&all->finders, loop, FINDERS, OPENINGS_MAX, NICE, err);
	if (r == 0)
		r = workers_init(&all->checkers, loop, CHECKERS, OPENINGS_MAX, NICE, err);
	if (r == 0)
		r = workers_init(&all->imagers, loop, FINDERS, OPENINGS_DEFAULT_MAX, 0, err);
	return r;
}

void openings_done(struct openings *all)
{
	workers_done(&all->finders);
	workers_done(&all->checkers);
	workers_done(&all->imagers);
}
