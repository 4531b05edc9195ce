/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests of guest-kernel/ipc and guest-kernel/proc. */
#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#include "tests/unit/kernel-ipc/env.h"
#include "tests/unit/kernel-ipc/suites.h"

int main(void)
{
	unsigned failed;

	env_process(1, 1, 1, NULL);
	CU_initialize_registry();
	suite_pipe();
	suite_tty();
	suite_unix();
	suite_proc();
	CU_basic_set_mode(CU_BRM_NORMAL);
	CU_basic_run_tests();
	failed = CU_get_number_of_failures();
	CU_cleanup_registry();
	return failed != 0;
}
