/* SPDX-License-Identifier: Apache-2.0 */
/* What the main() of every CUnit test with one suite does around its list of tests. */
#ifndef CASEMATE_TESTS_CUNIT_RUN_H
#define CASEMATE_TESTS_CUNIT_RUN_H

#include <CUnit/Basic.h>
#include <stdlib.h>

/* The suite that tests are added to; setup and teardown as CU_add_suite() has them. Ends with
 * status 2 when there can be none. */
static inline CU_pSuite cunit_suite(const char *name, CU_InitializeFunc setup,
				    CU_CleanupFunc teardown)
{
	CU_pSuite suite = NULL;

	if (CU_initialize_registry() == CUE_SUCCESS)
		suite = CU_add_suite(name, setup, teardown);
	if (!suite)
		exit(2);
	return suite;
}

/* Runs what was added. Returns main()'s status: 0, or 1 when anything failed, setup included. */
static inline int cunit_run(void)
{
	unsigned int failures;

	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failures = CU_get_number_of_failures() + CU_get_number_of_suites_failed();
	CU_cleanup_registry();
	return failures ? 1 : 0;
}

#endif
