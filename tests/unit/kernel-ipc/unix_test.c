/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernel-ipc/suites.h"
void suite_unix(void)
{
}
