/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VMMs' processes, in the parent: those it started and those that these have forked.
 *
 * Each is known by a pidfd and its start time, and has, where the host and our rights allow it,
 * a control group, a user and a group of its own, an empty root and no network. A forked VM
 * has its source's user: a family shares its memory anyway. A user is given away again only
 * when nobody has it any more.
 *
 * An entry lives until its process and its control group are gone; `gone` is called when the
 * process is.
 */
#ifndef CASEMATE_POOL_PROCESS_H
#define CASEMATE_POOL_PROCESS_H

#include "base/list.h"
#include "pool/boundary.h"
#include "pool/cgroup.h"
#include "pool/evloop.h"
#include "pool/spawn.h"

/*
 * Users of VMs, when none are named: above those that systemd gives to containers (524288 to
 * 1879048191), below those whose numbers are negative to old programs, in a part of the range
 * that neither Debian's policy nor systemd gives to anybody.
 */
#define PROCESS_UID_BASE	1879048192u
#define PROCESS_UID_COUNT	65536u

struct processes {
	/* Given. */
	struct evloop *loop;
	const struct spawn_files *files;
	const char *state_dir;
	struct cgroups cgroups;
	struct launch_jail jail;	/* of each VM; cgroup and user are filled in */
	uint32_t uid_base, uid_count;	/* count 0: VMs have our user */
	void (*gone)(struct processes *processes, uint64_t id, int status);
	/* Its own. */
	struct list list;
	uint32_t count;
	uint32_t uid_next;
	bool uid_again;			/* all have been used once */
	unsigned int generation;	/* of engines: ids begin anew with each */
	uint64_t serial;		/* of processes, for their groups' names */
	struct timer timer;		/* groups that are not empty yet */
	uint64_t retry_ns;
};

void processes_init(struct processes *processes);
void processes_done(struct processes *processes);
/* For a new engine; no process is left of the last one's. */
void processes_renew(struct processes *processes);

/* SPAWN and CHILD. Return the PID, or -errno with err set. */
pid_t process_start(struct processes *processes, const struct boundary_message *message,
		    const int *fds, struct err *err);
pid_t process_adopt(struct processes *processes, const struct boundary_message *message,
		    pid_t engine, struct err *err);
void process_kill(struct processes *processes, uint64_t id);

/* A child of ours was waited for. */
void processes_reaped(struct processes *processes, pid_t pid, int status);
/* Everything that is a VM's, known or not. */
void processes_kill_all(struct processes *processes);
/* Whether no process is left; there may be groups to be removed. */
bool processes_empty(const struct processes *processes);

#endif
