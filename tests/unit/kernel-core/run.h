/* SPDX-License-Identifier: Apache-2.0 */
/* Runs fn in a process of its own, so that each test boots a fresh machine; its result. */
#ifndef TEST_KERNEL_CORE_RUN_H
#define TEST_KERNEL_CORE_RUN_H

int run_in_child(int (*fn)(void (*program)(void)), void (*program)(void));

#endif
