/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups of VMs; see cgroup.h. */
#include "pool/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

#define CLEAN_TRIES	250		/* of 20 ms */

/* One write: the kernel takes it whole or says what is wrong. */
static int text_write(int at, const char *directory, const char *name, const char *text)
{
	char path[CGROUP_NAME + 64];
	FD_CLEANUP int fd = -1;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = openat(at, path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return -errno;
	return 0;
}

static int number_write(int at, const char *directory, const char *name, uint64_t number)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	return text_write(at, directory, name, text);
}

static int directory_at(int at, const char *name)
{
	if (mkdirat(at, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	at = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return at < 0 ? -errno : at;
}

/* ---- Where ours is ---- */

/* Our path in the hierarchy of version 2: the line "0::PATH". */
static int own_path(char *path, size_t size)
{
	char text[8192], *at;
	ssize_t n = fd_read_text(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text));

	if (n < 0)
		return (int)n;
	at = !strncmp(text, "0::", 3) ? text : strstr(text, "\n0::");
	if (!at)
		return -ENOENT;
	at = strchr(at, '/');
	if (!at)
		return -ENOENT;
	at[strcspn(at, "\n")] = '\0';
	return snprintf(path, size, "%s", at) < (int)size ? 0 : -ENAMETOOLONG;
}

/* Where version 2 is mounted as a whole. */
static int mount_find(char *path, size_t size)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[8192], root[4096], point[4096];
	int r = -ENOENT;

	while (file && r < 0 && fgets(line, sizeof(line), file)) {
		if (strstr(line, " - cgroup2 ") &&
		    sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) == 2 &&
		    !strcmp(root, "/"))
			r = snprintf(path, size, "%s", point) < (int)size ? 0 : -ENAMETOOLONG;
	}
	if (file)
		fclose(file);
	return r;
}

static bool is_alone(int own)
{
	char text[256], want[32];

	snprintf(want, sizeof(want), "%d\n", (int)getpid());
	return fd_read_text(own, "cgroup.procs", text, sizeof(text)) > 0 && !strcmp(text, want);
}

/* A group with groups in it that have limits may have no process itself. */
static void controllers_enable(int group)
{
	text_write(group, ".", "cgroup.subtree_control", "+memory");
	text_write(group, ".", "cgroup.subtree_control", "+pids");
}

/* *ret_base: the group that has `vms`; *ret_home: the one that we are in. */
static int base_make(int own, const char *path, const char *name, int *ret_base,
		     int *ret_home, struct err *err)
{
	FD_CLEANUP int daemon = -1;
	int r;

	if (!strcmp(path, "/")) {
		*ret_home = fcntl(own, F_DUPFD_CLOEXEC, 0);
		*ret_base = directory_at(own, name);
		controllers_enable(own);
		return *ret_base < 0 ? err_set_errno(err, *ret_base, "cannot make a group in "
						     "the root group") : 0;
	}
	if (!is_alone(own))
		return err_set(err, EBUSY, "others are in the group %s, too", path);
	daemon = directory_at(own, "daemon");
	r = daemon < 0 ? daemon : number_write(daemon, ".", "cgroup.procs", (uint64_t)getpid());
	if (r < 0)
		return err_set_errno(err, r, "the group %s is not ours", path);
	*ret_home = fd_take(&daemon);
	*ret_base = fcntl(own, F_DUPFD_CLOEXEC, 0);
	return *ret_base < 0 ? err_set_errno(err, errno, "no descriptor") : 0;
}

/* Those of an earlier daemon. Blocks: nobody is served yet. */
static void clean(const struct cgroups *c)
{
	const struct timespec pause = { .tv_nsec = 20000000 };
	DIR *d = fd_directory(c->vms);
	const struct dirent *entry;

	if (!d)
		return;
	cgroup_kill(c, ".");
	while ((entry = readdir(d))) {
		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		for (int i = 0; i < CLEAN_TRIES && cgroup_remove(c, entry->d_name) == -EBUSY;
		     i++)
			nanosleep(&pause, NULL);
	}
	closedir(d);
}

int cgroups_open(struct cgroups *ret, const char *name, struct err *err)
{
	char mount[PATH_MAX], path[PATH_MAX], text[512] = "";
	FD_CLEANUP int own = -1, base = -1, home = -1;
	struct cgroups c = CGROUPS_NONE;
	int r;

	if (mount_find(mount, sizeof(mount)) < 0 || own_path(path, sizeof(path)) < 0)
		return err_set(err, ENOENT, "version 2 is not mounted");
	if (strlen(mount) + strlen(path) >= sizeof(mount))
		return err_set(err, ENAMETOOLONG, "the group's path is too long");
	strcat(mount, path);
	own = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (own < 0)
		return err_set_errno(err, errno, "cannot open %s", mount);
	r = base_make(own, path, name, &base, &home, err);
	if (r < 0)
		return r;
	controllers_enable(base);
	c.vms = directory_at(base, "vms");
	if (c.vms < 0)
		return err_set_errno(err, c.vms, "cannot make a group");
	controllers_enable(c.vms);
	fd_read_text(c.vms, "cgroup.subtree_control", text, sizeof(text));
	c.memory = strstr(text, "memory");
	c.pids = strstr(text, "pids");
	clean(&c);
	c.home = fd_take(&home);
	*ret = c;
	return 0;
}

void cgroups_close(struct cgroups *c)
{
	if (c->vms >= 0) {
		FD_CLEANUP int base = openat(c->vms, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		char path[64], own[PATH_MAX];
		ssize_t n;

		unlinkat(base, "vms", AT_REMOVEDIR);
		/* The one made in the root group; another is not empty, and stays. */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", base);
		n = readlink(path, own, sizeof(own) - 1);
		if (n > 0) {
			own[n] = '\0';
			rmdir(own);
		}
	}
	c->vms = fd_close(c->vms);
	c->home = fd_close(c->home);
}

/* ---- One VM's ---- */

int cgroup_make(const struct cgroups *c, const char *name, uint64_t memory, uint64_t more)
{
	int fd = directory_at(c->vms, name), r = 0;

	if (fd < 0)
		return fd;
	/* No overflow: a VM's RAM is bounded. */
	if (c->memory)
		r = number_write(fd, ".", "memory.max", 2 * memory + more +
				 CGROUP_OVERHEAD);
	if (r == 0 && c->pids)
		r = number_write(fd, ".", "pids.max", CGROUP_PIDS);
	if (r == 0)
		return fd;
	fd_close(fd);
	cgroup_remove(c, name);
	return r;
}

int cgroup_move(const struct cgroups *c, const char *name, pid_t pid)
{
	return number_write(c->vms, name, "cgroup.procs", (uint64_t)pid);
}

void cgroup_let_go(const struct cgroups *c, const char *name)
{
	char path[CGROUP_NAME + 64], text[4096], *save = NULL;

	snprintf(path, sizeof(path), "%s/cgroup.procs", name);
	if (fd_read_text(c->vms, path, text, sizeof(text)) <= 0)
		return;
	for (char *pid = strtok_r(text, "\n", &save); pid; pid = strtok_r(NULL, "\n", &save))
		text_write(c->home, ".", "cgroup.procs", pid);
}

void cgroup_kill(const struct cgroups *c, const char *name)
{
	if (c->vms >= 0)
		text_write(c->vms, name, "cgroup.kill", "1");
}

int cgroup_remove(const struct cgroups *c, const char *name)
{
	if (c->vms < 0 || unlinkat(c->vms, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	return -errno;
}
