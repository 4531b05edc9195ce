/* SPDX-License-Identifier: Apache-2.0 */
/* Host clocks in nanoseconds. */
#ifndef CASEMATE_BASE_TIME_H
#define CASEMATE_BASE_TIME_H

#include <stdint.h>
#include <time.h>

#define NS_PER_SEC	UINT64_C(1000000000)

static inline uint64_t time_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static inline uint64_t time_monotonic_ns(void)
{
	return time_ns(CLOCK_MONOTONIC);
}

#endif
