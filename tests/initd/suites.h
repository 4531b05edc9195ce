/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of initd-test. */
#ifndef CASEMATE_TESTS_INITD_SUITES_H
#define CASEMATE_TESTS_INITD_SUITES_H

#include <CUnit/CUnit.h>
#include "tests/initd/peer.h"

extern const char *initd_path;
extern const CU_TestInfo resume_tests[], builtin_tests[], connect_tests[];

/* Sends a frame and expects an ERROR that names its id. */
void frame_check_refused(struct peer *p, uint16_t type, uint16_t flags, uint32_t id,
			 const void *payload, size_t length);
/* Whether initd still works. */
void peer_check_alive(struct peer *p);

#endif
