/* SPDX-License-Identifier: Apache-2.0 */
/* What initd does to the machine around it: mounts, power, the kernel's answers. */
#ifndef CASEMATE_INITD_SYSTEM_H
#define CASEMATE_INITD_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>
#include "abi/channel.h"

struct channel;

/* Mounts what Linux programs expect, names the host. Failures become LOG frames: a task
 * that needs none of it still runs. */
void system_mount_all(struct channel *c);

/* Makes sure that descriptors 0, 1 and 2 are taken and returns one for /dev/null, -1 with
 * errno when there is none. */
int system_open_null(void);

/* Kills every other process, writes back, powers off. Does not return. */
_Noreturn void system_power_off(void);

/* The kernel's answer to a RESUME. 0 or errno. */
int system_resumed(int channel_fd, struct cm_resumed *ret);

#endif
