/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel tells the vDSO beyond the clock page. It lies in the second half of that
 * page, which the VMM never writes (abi/clock.h) and which travels with the VM's memory.
 */
#ifndef VDSO_VDSO_H
#define VDSO_VDSO_H

#include "abi/clock.h"
#include "abi/layout.h"

struct vdso_data {
	int64_t realtime_offset;	/* clock_settime: added to CLOCK_REALTIME, ns */
};

#define VDSO_DATA_OFFSET 2048
#define VDSO_CLOCK ((const volatile struct cm_clock *)(CM_PHYSMAP_VA + CM_CLOCK_GPA))
#define VDSO_DATA \
	((volatile struct vdso_data *)(CM_PHYSMAP_VA + CM_CLOCK_GPA + VDSO_DATA_OFFSET))

#endif
