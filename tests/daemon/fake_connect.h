/* SPDX-License-Identifier: Apache-2.0 */
/* The fake VMM's builtin `connect`: see fake_connect.c. */
#ifndef CASEMATE_TESTS_FAKE_CONNECT_H
#define CASEMATE_TESTS_FAKE_CONNECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/frame.h"

/* Takes the frame if it is of a connection, or begins one. */
bool fake_connect_frame(const struct frame *frame);
/* In a forked VMM: RUNNING of each. */
void fake_connect_announce(void);

/* fake_vmm.c */
void put_flags(uint16_t type, uint16_t flags, uint32_t id, const void *payload, size_t len);
void put(uint16_t type, uint32_t id, const void *payload, size_t len);

#endif
