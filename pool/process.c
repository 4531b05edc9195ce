/* SPDX-License-Identifier: Apache-2.0 */
/* The VMMs' processes; see process.h. */
#include "pool/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"
#include "pool/state.h"

#define COUNT_MAX	65536u
#define RETRY_NS	(NS_PER_SEC / 50)	/* doubles */
#define RETRY_MAX_NS	NS_PER_SEC

struct process {
	struct list link;
	struct processes *all;
	uint64_t id;
	pid_t pid;
	uint64_t start;
	uid_t uid;
	int pidfd;			/* -1: it is gone, its group is not */
	struct watch watch;
	char group[CGROUP_NAME];
};

static void on_ended(struct watch *watch, uint32_t events);
static void on_timer(struct timer *timer);

void processes_init(struct processes *all)
{
	list_init(&all->list);
	all->count = all->uid_next = all->generation = 0;
	all->uid_again = false;
	all->retry_ns = RETRY_NS;
	timer_init(&all->timer, on_timer);
}

static void process_free(struct process *p)
{
	watch_remove(p->all->loop, &p->watch);
	fd_close(p->pidfd);
	list_remove(&p->link);
	p->all->count--;
	free(p);
}

void processes_done(struct processes *all)
{
	struct process *p;

	list_for_each(p, &all->list, struct process, link)
		process_free(p);
	timer_set(all->loop, &all->timer, 0);
	cgroups_close(&all->cgroups);
}

void processes_renew(struct processes *all)
{
	all->generation++;
}

bool processes_empty(const struct processes *all)
{
	for (const struct list *l = all->list.next; l != &all->list; l = l->next) {
		if (list_entry(l, struct process, link)->pidfd >= 0)
			return false;
	}
	return true;
}

static struct process *find(const struct processes *all, uint64_t id)
{
	struct process *p;

	list_for_each(p, &all->list, struct process, link) {
		if (p->id == id && p->pidfd >= 0)
			return p;
	}
	return NULL;
}

static struct process *find_pid(const struct processes *all, pid_t pid)
{
	struct process *p;

	list_for_each(p, &all->list, struct process, link) {
		if (p->pid == pid && p->pidfd >= 0)
			return p;
	}
	return NULL;
}

/* ---- The end ---- */

static void group_remove_or_wait(struct process *p)
{
	uint64_t at;

	if (cgroup_remove(&p->all->cgroups, p->group) != -EBUSY) {
		process_free(p);
		return;
	}
	/* What the VMM had forked and nobody knew of. (KVM's own threads for a forked VM are in
	 * its source's group, too, and stay as long as that VM: hence no hurry.) */
	cgroup_kill(&p->all->cgroups, p->group);
	at = time_monotonic_ns() + p->all->retry_ns;
	if (!p->all->timer.at_ns || p->all->timer.at_ns > at)
		timer_set(p->all->loop, &p->all->timer, at);
}

static void on_timer(struct timer *timer)
{
	struct processes *all = list_entry(timer, struct processes, timer);
	struct process *p;

	timer_set(all->loop, timer, 0);
	if (all->retry_ns < RETRY_MAX_NS)
		all->retry_ns *= 2;
	list_for_each(p, &all->list, struct process, link) {
		if (p->pidfd < 0)
			group_remove_or_wait(p);
	}
}

static void process_gone(struct process *p, int status)
{
	struct processes *all = p->all;
	uint64_t id = p->id;

	watch_remove(all->loop, &p->watch);
	p->pidfd = fd_close(p->pidfd);
	state_forget(all->state_dir, p->pid);
	all->retry_ns = RETRY_NS;
	group_remove_or_wait(p);
	all->gone(all, id, status);
}

/* It is a child of ours, or was one of a VMM's that is gone: then it is ours now, too. Or its
 * parent has taken its status. */
static void on_ended(struct watch *watch, uint32_t events)
{
	struct process *p = list_entry(watch, struct process, watch);
	int status;

	process_gone(p, waitpid(p->pid, &status, WNOHANG) == p->pid ? status : -1);
}

void processes_reaped(struct processes *all, pid_t pid, int status)
{
	struct process *p = find_pid(all, pid);

	if (p)
		process_gone(p, status);
}

static void pidfd_kill(int pidfd)
{
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

void process_kill(struct processes *all, uint64_t id)
{
	struct process *p = find(all, id);

	if (!p)
		return;
	pidfd_kill(p->pidfd);
	cgroup_kill(&all->cgroups, p->group);
}

static void orphan_kill(void *arg, pid_t pid)
{
	uint64_t start;
	pid_t parent;

	/* A child of ours that we have not waited for: its PID is its own. */
	if (state_process(pid, &start, &parent) == 0 && parent == getpid())
		kill(pid, SIGKILL);
}

void processes_kill_all(struct processes *all)
{
	struct process *p;

	cgroup_kill(&all->cgroups, ".");
	list_for_each(p, &all->list, struct process, link) {
		if (p->pidfd >= 0)
			pidfd_kill(p->pidfd);
	}
	/* Forked ones that nobody named come to us when their parents are gone. */
	state_each(orphan_kill, NULL);
}

/* ---- The beginning ---- */

struct user_search {
	uid_t uid;
	bool found;
};

static void user_look(void *arg, pid_t pid)
{
	struct user_search *search = arg;
	uid_t uid;

	search->found = search->found ||
			(state_user(pid, &uid) == 0 && uid == search->uid);
}

/* In turn, so that one is used again as late as can be. */
static int user_take(struct processes *all, uid_t *ret_uid)
{
	for (uint32_t i = 0; i < all->uid_count; i++) {
		struct user_search search = { .uid = all->uid_base + all->uid_next };
		const struct process *p;

		all->uid_next = (all->uid_next + 1) % all->uid_count;
		list_for_each(p, &all->list, const struct process, link)
			search.found = search.found || p->uid == search.uid;
		if (!search.found && all->uid_again)
			state_each(user_look, &search);
		all->uid_again = all->uid_again || all->uid_next == 0;
		if (!search.found) {
			*ret_uid = search.uid;
			return 0;
		}
	}
	return -EUSERS;
}

static struct process *process_new(struct processes *all, uint64_t id, struct err *err)
{
	struct process *p;

	if (find(all, id)) {
		err_set(err, EEXIST, "there is this VM already");
		return NULL;
	}
	p = all->count < COUNT_MAX ? calloc(1, sizeof(*p)) : NULL;
	if (!p) {
		err_set(err, ENOMEM, "no memory for a VM's process");
		return NULL;
	}
	p->all = all;
	p->id = id;
	p->pidfd = -1;
	watch_init(&p->watch, on_ended);
	/* A VM that comes back from the disk has its number again: its last group may be there
	 * still, and is ended when it can be. */
	snprintf(p->group, sizeof(p->group), "%u-%" PRIu64 "-%" PRIu64, all->generation, id,
		 all->serial++);
	list_add_tail(&all->list, &p->link);
	all->count++;
	return p;
}

static int process_watch(struct process *p, struct err *err)
{
	int r = watch_add(p->all->loop, &p->watch, p->pidfd, EPOLLIN);

	if (r < 0)
		return err_set_errno(err, r, "cannot watch a VM's process");
	/* A record that cannot be written is a loss for the next daemon, not for this one. */
	state_record(p->all->state_dir, p->pid, p->start);
	return 0;
}

/* What the engine passed is what it said. */
static int descriptors_check(const struct boundary_message *m, const int *fds, struct err *err)
{
	unsigned int files = (m->flags & BOUNDARY_IMAGE) + m->count;
	struct stat st;
	int flags;

	if (fstat(fds[0], &st) < 0 || !S_ISSOCK(st.st_mode))
		return err_set(err, EBADF, "a VM's channel is no socket");
	for (unsigned int i = 1; i <= files; i++) {
		flags = fcntl(fds[i], F_GETFL);
		if (fstat(fds[i], &st) < 0 || !S_ISREG(st.st_mode) || flags < 0 ||
		    (flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH))
			return err_set(err, EBADF, "an image or snapshot is no readable file");
	}
	return 0;
}

static int vmm_launch(struct process *p, const struct boundary_message *m, const int *fds,
		      struct err *err)
{
	struct processes *all = p->all;
	unsigned int image = m->flags & BOUNDARY_IMAGE;
	FD_CLEANUP int group = -1;
	struct stat st = { .st_size = 0 };
	struct launch_jail jail = all->jail;
	struct spawn_options o = {
		.files = all->files, .image_fd = image ? fds[1] : -1, .memory = m->memory,
		.snapshot_fds = fds + 1 + image, .snapshot_count = m->count,
		.snapshots = true, .hold = m->flags & BOUNDARY_HOLD,
		.track = m->flags & BOUNDARY_TRACK, .jail = &jail,
	};

	if (all->uid_count > 0) {
		if (user_take(all, &p->uid) < 0)
			return err_set(err, EUSERS, "all %u users for VMs are taken (--vm-uids)",
				       all->uid_count);
		jail.has_user = true;
		jail.uid = p->uid;
		jail.gid = p->uid;
	}
	if (all->cgroups.vms >= 0) {
		if (o.hold && image)
			fstat(fds[1], &st);
		group = cgroup_make(&all->cgroups, p->group, m->memory, (uint64_t)st.st_size);
		if (group < 0)
			return err_set_errno(err, group, "cannot make a VM's control group");
		jail.cgroup = group;
	}
	return spawn_vmm(&o, fds[0], &p->pid, err);
}

/* What making it came to: p may be NULL then. */
static pid_t process_made(struct process *p, int r)
{
	if (r == 0)
		return p->pid;
	if (p) {
		p->pidfd = fd_close(p->pidfd);
		group_remove_or_wait(p);
	}
	return r;
}

pid_t process_start(struct processes *all, const struct boundary_message *m, const int *fds,
		    struct err *err)
{
	struct process *p = process_new(all, m->id, err);
	pid_t parent;
	int r = p ? descriptors_check(m, fds, err) : err->code;

	if (r == 0)
		r = vmm_launch(p, m, fds, err);
	if (r == 0) {
		/* A child that is ours and not yet waited for: its PID is its own. */
		p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
		if (p->pidfd < 0 || state_process(p->pid, &p->start, &parent) < 0)
			r = err_set_errno(err, errno, "cannot watch a VM's process");
		else
			r = process_watch(p, err);
		if (r < 0)
			kill(p->pid, SIGKILL);
	}
	return process_made(p, r);
}

static bool is_gone(int pidfd)
{
	struct pollfd poll_for = { pidfd, POLLIN, 0 };

	return poll(&poll_for, 1, 0) != 0;
}

/*
 * Whether a process is the one that a VMM claims to have forked: its parent is that VMM, which
 * is one of ours, or, if that is gone already, we are. It has the VMM's user. All of this is
 * read after the pidfd was opened, and holds if that says afterwards that the process is
 * there still: a PID that became somebody else's in between is noticed.
 */
static int claim_check(struct process *p, const struct process *source, pid_t engine,
		       struct err *err)
{
	struct processes *all = p->all;
	pid_t parent;
	bool is_ours, is_in_range;

	if (state_process(p->pid, &p->start, &parent) < 0 || state_user(p->pid, &p->uid) < 0 ||
	    is_gone(p->pidfd))
		return err_set(err, ESRCH, "a forked VM died before it ran");
	is_ours = source && parent == source->pid ? p->start >= source->start :
		  parent == getpid() && p->pid != engine;
	is_in_range = all->uid_count == 0 ||
		      (p->uid >= all->uid_base && p->uid - all->uid_base < all->uid_count);
	if (!is_ours || !is_in_range || (source && all->uid_count > 0 && p->uid != source->uid))
		return err_set(err, ESRCH, "a VM claimed a process that it did not fork");
	return 0;
}

/*
 * A group of its own. It is moved there by its number, which may be somebody else's when it
 * dies just then: a VMM that a guest has taken over can have that happen, and the kernel takes
 * milliseconds to move. Whoever came into the group is then none of ours to end.
 */
static int claim_group(struct process *p, uint64_t memory, struct err *err)
{
	const struct cgroups *groups = &p->all->cgroups;
	FD_CLEANUP int group = -1;
	int r;

	if (groups->vms < 0)
		return 0;
	group = cgroup_make(groups, p->group, memory, 0);
	r = group < 0 ? group : cgroup_move(groups, p->group, p->pid);
	if (is_gone(p->pidfd)) {
		cgroup_let_go(groups, p->group);
		return err_set(err, ESRCH, "a forked VM died before it ran");
	}
	return r < 0 ? err_set_errno(err, r, "cannot make a forked VM's control group") : 0;
}

static int child_take(struct process *p, const struct boundary_message *m, pid_t engine,
		      struct err *err)
{
	struct processes *all = p->all;
	int r;

	if (find_pid(all, (pid_t)m->pid))
		return err_set(err, ESRCH, "a VM claimed another VM's process");
	p->pid = (pid_t)m->pid;
	p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (p->pidfd < 0)
		return err_set(err, ESRCH, "a forked VM died before it ran");
	r = claim_check(p, find(all, m->of), engine, err);
	if (r < 0)
		return r;
	r = claim_group(p, m->memory, err);
	if (r == 0)
		r = process_watch(p, err);
	if (r < 0)
		pidfd_kill(p->pidfd);
	return r;
}

pid_t process_adopt(struct processes *all, const struct boundary_message *m, pid_t engine,
		    struct err *err)
{
	struct process *p = process_new(all, m->id, err);
	int r = p ? child_take(p, m, engine, err) : err->code;

	return process_made(p, r);
}
