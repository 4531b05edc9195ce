/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks, processes and scheduling of the guest kernel on the coroutine machine (host.c): each
 * test is a program that boots as PID 1 in a host process of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernel-core/run.h"
#include "tests/unit/kernel-core/user.h"
#include "tests/unit/cunit_run.h"

int check_failures;
int order[64], norder;

void note(int n)
{
	order[norder++] = n;
}

void let_others_sleep(void)
{
	struct ktimespec ts = {0, 1000000};

	SYS(sys_nanosleep(&ts, NULL));
}

static int boot(void (*program)(void))
{
	int status = machine_run(program);

	if (status != 0)
		fprintf(stderr, "PID 1 ended with %#x\n", status);
	return check_failures != 0 || status != 0;
}

void machine_test_run(void (*program)(void))
{
	CU_ASSERT_EQUAL(run_in_child(boot, program), 0);
}

int main(void)
{
	CU_pSuite suite = cunit_suite("kernel core", NULL, NULL);

	for (const struct machine_test *t = process_tests; t->name != NULL; t++)
		CU_add_test(suite, t->name, t->fn);
	for (const struct machine_test *t = sched_tests; t->name != NULL; t++)
		CU_add_test(suite, t->name, t->fn);
	for (const struct machine_test *t = rules_tests; t->name != NULL; t++)
		CU_add_test(suite, t->name, t->fn);
	for (const struct machine_test *t = restore_tests; t->name != NULL; t++)
		CU_add_test(suite, t->name, t->fn);
	return cunit_run();
}
