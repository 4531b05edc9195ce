/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What initd asks of the guest kernel beyond Linux's system calls. Never seen by the host.
 *
 * CM_CHANNEL_DEV is the virtio-console port as a raw byte stream: open, read, write, poll,
 * O_NONBLOCK; a write may be partial; a read of 0 bytes means that the host has gone. Only
 * PID 1 may open it (EPERM for others), once (EBUSY).
 *
 * CM_IOC_RESUMED, on that device: the kernel reads the clock page, mixes its entropy if the
 * generation is new, and fills in struct cm_resumed. Its number is
 * _IOR('C', 1, struct cm_resumed).
 *
 * CM_REPORT_PATH is a text file of counters and missing system calls, sent for REPORT_GET.
 *
 * CM_KILL_PATH: the PID, in decimal, of a process that PID 1 itself has made; SIGKILL goes to it
 * and to all that come from it, whatever group, session and parent they have now, at once.
 * ESRCH: there are none.
 */
#ifndef CASEMATE_ABI_GUESTCTL_H
#define CASEMATE_ABI_GUESTCTL_H

#include "abi/channel.h"

#define CM_CHANNEL_DEV	"/dev/casemate-channel"
#define CM_REPORT_PATH	"/proc/casemate/report"
#define CM_KILL_PATH	"/proc/casemate/kill"
#define CM_IOC_RESUMED	0x80104301u
_Static_assert(CM_IOC_RESUMED == (2u << 30 | sizeof(struct cm_resumed) << 16 | 'C' << 8 | 1),
	       "_IOR('C', 1, struct cm_resumed)");

#endif
