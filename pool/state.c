/* SPDX-License-Identifier: Apache-2.0 */
/* The state directory, and what the host says of processes; see state.h. */
#include "pool/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define END_MS	5000

int state_text(pid_t pid, const char *name, char *text, size_t size)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	n = fd_read_text(AT_FDCWD, path, text, size);
	return n > 0 ? 0 : n < 0 ? (int)n : -ESRCH;
}

const char *state_fields(const char *stat)
{
	const char *end = strrchr(stat, ')');

	return end ? end + 1 : NULL;
}

int state_process(pid_t pid, uint64_t *ret_start, pid_t *ret_parent)
{
	const char *fields;
	char text[1024];
	uint64_t start;
	int parent, r = state_text(pid, "stat", text, sizeof(text));

	if (r < 0)
		return r;
	fields = state_fields(text);
	if (!fields || sscanf(fields, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d "
			      "%*d %*d %*d %*d %*d %" SCNu64, &parent, &start) != 2)
		return -EPROTO;
	*ret_start = start;
	*ret_parent = parent;
	return 0;
}

int state_user(pid_t pid, uid_t *ret_uid)
{
	char text[2048], *at;
	unsigned int uid;
	int r = state_text(pid, "status", text, sizeof(text));

	if (r < 0)
		return r;
	/* The name comes first, and has its newlines escaped. */
	at = strstr(text, "\nUid:");
	if (!at || sscanf(at, "\nUid: %u", &uid) != 1)
		return -EPROTO;
	*ret_uid = uid;
	return 0;
}

void state_each(void (*each)(void *arg, pid_t pid), void *arg)
{
	DIR *d = opendir("/proc");
	const struct dirent *entry;

	while (d && (entry = readdir(d))) {
		char *end;
		long pid = strtol(entry->d_name, &end, 10);

		if (pid > 1 && !*end)
			each(arg, (pid_t)pid);
	}
	if (d)
		closedir(d);
}

static int directory_open(const char *dir)
{
	return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int state_record(const char *dir, pid_t pid, uint64_t start)
{
	FD_CLEANUP int at = -1, fd = -1;
	char name[32], text[32];
	int n;

	if (!dir)
		return 0;
	at = directory_open(dir);
	snprintf(name, sizeof(name), "%d", (int)pid);
	fd = at < 0 ? -1 : openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	n = snprintf(text, sizeof(text), "%" PRIu64 "\n", start);
	return fd_write_all(fd, text, (size_t)n);
}

void state_forget(const char *dir, pid_t pid)
{
	FD_CLEANUP int at = dir ? directory_open(dir) : -1;
	char name[32];

	snprintf(name, sizeof(name), "%d", (int)pid);
	if (at >= 0)
		unlinkat(at, name, 0);
}

/* Returns 1 when the recorded process was there and was killed, else 0. */
static int leftover_kill(int dir, const char *name)
{
	FD_CLEANUP int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), pidfd = -1;
	char text[32] = "", *end;
	long pid = strtol(name, &end, 10);
	uint64_t want, start;
	struct pollfd p;
	pid_t parent;

	if (fd < 0 || *end || pid <= 1 || read(fd, text, sizeof(text) - 1) <= 0)
		return 0;
	want = strtoull(text, NULL, 10);
	pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	if (pidfd < 0 || state_process((pid_t)pid, &start, &parent) < 0 || start != want)
		return 0;
	if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0)
		return 0;
	p = (struct pollfd){ pidfd, POLLIN, 0 };
	poll(&p, 1, END_MS);
	return 1;
}

int state_clean(const char *dir, struct err *err)
{
	DIR *d = opendir(dir);
	const struct dirent *entry;
	int count = 0;

	if (!d)
		return err_set_errno(err, errno, "cannot read the state directory %s", dir);
	while ((entry = readdir(d))) {
		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		count += leftover_kill(dirfd(d), entry->d_name);
		unlinkat(dirfd(d), entry->d_name, 0);
	}
	closedir(d);
	return count;
}
