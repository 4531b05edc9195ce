/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a VM's process takes of the host, from /proc. Two small files that cost the same
 * whatever the VM's size (smaps would not), read at most ten times a second however many ask.
 * Memory that a fork shares with its source counts as private to both: only the kernel knows
 * better, at a price.
 */
#include "pool/usage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"
#include "pool/pool.h"

#define FRESH_NS	(NS_PER_SEC / 10)

static int file_read(pid_t pid, const char *name, char *text, size_t size)
{
	char path[64];
	FD_CLEANUP int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, size - 1);
	if (n <= 0)
		return n < 0 ? -errno : -ESRCH;
	text[n] = '\0';
	return 0;
}

static int read_now(const struct vm *vm, struct vm_usage *ret)
{
	uint64_t user, system, resident, shared;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), hz = (uint64_t)sysconf(_SC_CLK_TCK);
	char text[1024], *at;
	int r = vm->pid > 0 && vm->pidfd >= 0 ? file_read(vm->pid, "stat", text, sizeof(text)) :
		-ESRCH;

	if (r < 0)
		return r;
	/* The name may hold anything; what follows the last parenthesis is numbers. */
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64
			  " %" SCNu64, &user, &system) != 2)
		return -EPROTO;
	r = file_read(vm->pid, "statm", text, sizeof(text));
	if (r < 0)
		return r;
	if (sscanf(text, "%*u %" SCNu64 " %" SCNu64, &resident, &shared) != 2)
		return -EPROTO;
	/* It is there still, so its PID was nobody else's meanwhile. */
	if (syscall(SYS_pidfd_send_signal, vm->pidfd, 0, NULL, 0) < 0)
		return -errno;
	*ret = (struct vm_usage){ .cpu_ns = (user + system) * (NS_PER_SEC / hz),
				  .rss = resident * page,
				  .private = resident > shared ? (resident - shared) * page : 0 };
	return 0;
}

int vm_usage_read(struct vm *vm, struct vm_usage *ret)
{
	uint64_t now = time_monotonic_ns();
	struct vm_usage usage;

	if (!vm->usage.at_ns || now - vm->usage.at_ns > FRESH_NS) {
		int r = read_now(vm, &usage);

		if (r < 0)
			return r;
		usage.at_ns = now;
		vm->usage = usage;
	}
	*ret = vm->usage;
	return 0;
}
