/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What system calls were asked for that are missing or partial, counted by name. Apart from
 * the table, so that a test can link it without the whole kernel.
 */
#include "guest-kernel/core/syscall.h"

#include "guest-kernel/core/syscall_nr.h"

static const char *const syscall_names[SYSCALL_MAX + 1] = {
#define X(name) [__NR_##name] = #name,
#define Y(name, nr) [nr] = #name,
#include "guest-kernel/core/syscalls.def"
#include "guest-kernel/core/syscalls_none.def"
#undef X
#undef Y
	[SYSCALL_MAX] = "call of a later Linux",
};

static uint32_t missing[SYSCALL_MAX + 1];	/* last: numbers beyond the table */

#define PARTIAL_MAX 64
static struct {
	const char *call, *what;
	uint32_t count;
} partial[PARTIAL_MAX];

uint64_t syscall_count;

const char *syscall_name(uint64_t nr)
{
	return syscall_names[MIN(nr, (uint64_t)SYSCALL_MAX)];
}

long syscall_missing(uint64_t nr)
{
	missing[MIN(nr, (uint64_t)SYSCALL_MAX)]++;
	return -ENOSYS;
}

long syscall_partial(const char *call, const char *what, int err)
{
	for (unsigned i = 0; i < PARTIAL_MAX; i++) {
		if (partial[i].call == NULL) {
			partial[i].call = call;
			partial[i].what = what;
		} else if (strcmp(partial[i].call, call) != 0 ||
			   strcmp(partial[i].what, what) != 0) {
			continue;
		}
		partial[i].count++;
		break;
	}
	return err;
}

void syscall_report(struct strbuf *sb)
{
	for (unsigned i = 0; i <= SYSCALL_MAX; i++) {
		if (missing[i] == 0)
			continue;
		if (syscall_names[i] != NULL)
			strbuf_printf(sb, "missing %s %u\n", syscall_names[i], missing[i]);
		else
			strbuf_printf(sb, "missing call %u %u\n", i, missing[i]);
	}
	for (unsigned i = 0; i < PARTIAL_MAX && partial[i].call != NULL; i++)
		strbuf_printf(sb, "partial %s: %s %u\n", partial[i].call, partial[i].what,
			      partial[i].count);
	strbuf_printf(sb, "system calls %lu\n", syscall_count);
}
