/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Empty versions of what core/ calls in folders that a build may lack (host tests). The real
 * ones, being strong symbols, win.
 */
#include "guest-kernel/core/task.h"

__attribute__((weak)) void tty_session_exit(struct process *p)
{
}
