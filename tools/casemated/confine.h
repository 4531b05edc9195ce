/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What engine and VMs are confined by, as far as our rights and the host allow: for root, the
 * engine's user, and for VMs users of their own, an empty root and no network; control groups
 * for everybody who has a part of the tree. Each is tried before it is relied on; what is
 * missing is said.
 */
#ifndef CASEMATE_TOOLS_CASEMATED_CONFINE_H
#define CASEMATE_TOOLS_CASEMATED_CONFINE_H

#include "pool/parent.h"
#include "tools/casemated/casemated.h"

/* Fills in parent->engine.jail and what parent->processes has of it. Returns 0 or -errno. */
int confine_choose(const struct options *options, const char *state, struct parent *parent,
		   struct err *err);

#endif
