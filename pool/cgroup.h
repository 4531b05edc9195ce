/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A control group (version 2) for each VM, where there is a part of the tree that is ours: the
 * daemon's own group when nobody else is in it (systemd's Delegate=yes), or, for root in the
 * root group, one made for it. There the daemon is in `daemon` or stays where it was, and VMs
 * are in `vms/NAME`, with as many limits as the host's version 2 has controllers for. Killing
 * a group takes no knowledge of who is in it.
 */
#ifndef CASEMATE_POOL_CGROUP_H
#define CASEMATE_POOL_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define CGROUP_NAME	48

/* A VM's memory.max is twice its RAM and this: while a snapshot is written, pages that change
 * are there twice; the rest is the VMM's own, and the kernel's for it. A held VM may have a
 * copy of its image besides. */
#define CGROUP_OVERHEAD		(UINT64_C(64) << 20)
/* Threads of the VMM, processes that write snapshots, children of a fork not yet moved. */
#define CGROUP_PIDS		256

struct cgroups {
	int vms;			/* the directory; -1: there are none */
	int home;			/* of the group that this process is in */
	bool memory, pids;		/* controllers */
};

#define CGROUPS_NONE	{ .vms = -1, .home = -1 }

/* name: of the group to be made in the root group. What an earlier daemon left there is ended.
 * Returns 0, or -errno with err set: why there are none. */
int cgroups_open(struct cgroups *ret, const char *name, struct err *err);
void cgroups_close(struct cgroups *cgroups);

/* memory: bytes of RAM; more: what is there beside it. Returns the new group's directory, or
 * -errno. */
int cgroup_make(const struct cgroups *cgroups, const char *name, uint64_t memory,
		uint64_t more);
int cgroup_move(const struct cgroups *cgroups, const char *name, pid_t pid);
/* Moves whoever is in it to this process's own group: they were not those that were meant. */
void cgroup_let_go(const struct cgroups *cgroups, const char *name);
/* name ".": all VMs. */
void cgroup_kill(const struct cgroups *cgroups, const char *name);
/* Returns 0, or -EBUSY while somebody is in it. */
int cgroup_remove(const struct cgroups *cgroups, const char *name);

#endif
