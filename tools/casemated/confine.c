/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing what engine and VMs are confined by; see confine.h. */
#include "tools/casemated/confine.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define DEFAULT_USER	"casemate"
#define PROGRAM_HEADERS	32u

/* A session's daemon has no one to say it to: casemate doctor does. */
static void say(const struct options *o, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(const struct options *o, const char *format, ...)
{
	char text[512];
	va_list args;

	if (o->session && !o->verbose)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "casemated: %s\n", text);
}

/* Whether a process can be made that is confined so. */
static int jail_try(const struct launch_jail *jail, const char **ret_step)
{
	const struct launch l = { .program = -1, .jail = *jail };
	pid_t pid;

	return launch(&l, &pid, ret_step);
}

/* ---- The engine ---- */

static int user_take(const struct passwd *user, struct launch_jail *jail, struct err *err)
{
	int count = LAUNCH_GROUPS;

	if (getgrouplist(user->pw_name, user->pw_gid, jail->groups, &count) < 0)
		return err_set(err, E2BIG, "the user %s is in more than %d groups",
			       user->pw_name, LAUNCH_GROUPS);
	jail->group_count = (size_t)count;
	jail->has_user = true;
	jail->uid = user->pw_uid;
	jail->gid = user->pw_gid;
	return 0;
}

static int engine_choose(const struct options *o, struct launch_jail *jail, struct err *err)
{
	const char *name = o->user ? o->user : DEFAULT_USER, *step;
	const struct passwd *user;
	int r;

	*jail = (struct launch_jail)LAUNCH_JAIL_NONE;
	if (geteuid() != 0 && o->user)
		return err_set(err, EPERM, "only root can give the engine a user");
	/* A session's daemon opens the files of whoever started it. */
	if (geteuid() != 0 || (o->session && !o->user))
		return 0;
	user = getpwnam(name);
	if (!user && o->user)
		return err_set(err, ENOENT, "there is no user %s", name);
	if (!user) {
		say(o, "there is no user %s: the engine keeps root's rights; make that user, "
		    "or name another with --user", name);
		return 0;
	}
	r = user_take(user, jail, err);
	if (r < 0)
		return r;
	r = jail_try(jail, &step);
	return r < 0 ? err_set_errno(err, r, "cannot run the engine as %s: %s", name, step) : 0;
}

/* ---- VMs ---- */

/* A namespace with nothing in it, for all VMs together: none of them may make a socket. */
static int network_make(void)
{
	FD_CLEANUP int ours = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), empty = -1;

	if (ours < 0 || unshare(CLONE_NEWNET) < 0)
		return -errno;
	empty = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (setns(ours, CLONE_NEWNET) < 0 || empty < 0)
		return -errno;
	return fd_take(&empty);
}

static int root_make(const char *state)
{
	char path[PATH_MAX];
	struct stat st;
	int fd;

	if (snprintf(path, sizeof(path), "%s/root", state) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (mkdir(path, 0555) < 0 && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	/* Nobody can put anything in there but we. */
	if (fstat(fd, &st) < 0 || st.st_uid != 0 || (st.st_mode & 0222)) {
		fd_close(fd);
		return -EPERM;
	}
	return fd;
}

/* An empty root has no dynamic linker. */
static bool is_static(int program)
{
	Elf64_Ehdr head;
	Elf64_Phdr table[PROGRAM_HEADERS];

	if (fd_pread_exact(program, &head, sizeof(head), 0) < 0 ||
	    head.e_phnum > PROGRAM_HEADERS || head.e_phentsize != sizeof(table[0]) ||
	    fd_pread_exact(program, table, head.e_phnum * sizeof(table[0]), head.e_phoff) < 0)
		return false;
	for (unsigned int i = 0; i < head.e_phnum; i++) {
		if (table[i].p_type == PT_INTERP)
			return false;
	}
	return true;
}

static void vms_choose_network(const struct options *o, struct launch_jail *jail)
{
	struct launch_jail only = LAUNCH_JAIL_NONE;
	const char *step = "making a network namespace";
	int r = network_make();

	only.network = r;
	if (r >= 0)
		r = jail_try(&only, &step);
	if (r == 0)
		jail->network = only.network;
	else
		say(o, "VMs keep the host's network namespace: %s: %s", step, strerror(-r));
}

static void vms_choose_root(const struct options *o, const char *state, int program,
			    struct launch_jail *jail)
{
	struct launch_jail only = LAUNCH_JAIL_NONE;
	const char *step = "making an empty directory";
	int r;

	if (!is_static(program)) {
		say(o, "VMs keep the host's root: casemate-vmm is linked dynamically");
		return;
	}
	r = root_make(state);
	only.root = r;
	if (r >= 0)
		r = jail_try(&only, &step);
	if (r == 0)
		jail->root = only.root;
	else
		say(o, "VMs keep the host's root: %s: %s", step, strerror(-r));
}

static void vms_choose_users(const struct options *o, struct processes *processes)
{
	struct launch_jail only = LAUNCH_JAIL_NONE;
	const char *step;
	int r;

	only.has_user = true;
	/* The last one: who has that has them all. */
	only.uid = o->uid_base + o->uid_count - 1;
	only.gid = only.uid;
	r = jail_try(&only, &step);
	if (r < 0) {
		say(o, "VMs have no users of their own: %s: %s", step, strerror(-r));
		return;
	}
	processes->uid_base = o->uid_base;
	processes->uid_count = o->uid_count;
}

static void vms_choose_groups(const struct options *o, const char *state,
			      struct cgroups *cgroups)
{
	struct err err = ERR_INIT;
	char name[64] = "";
	struct stat st;

	*cgroups = (struct cgroups)CGROUPS_NONE;
	if (stat(state, &st) == 0)
		snprintf(name, sizeof(name), "casemate-%llx-%llx",
			 (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	if (cgroups_open(cgroups, name, &err) < 0)
		say(o, "VMs have no control groups: %s", err.text);
	else if (!cgroups->memory || !cgroups->pids)
		say(o, "VMs have control groups without%s%s limits",
		    cgroups->memory ? "" : " memory", cgroups->pids ? "" : " process");
}

int confine_choose(const struct options *o, const char *state, struct parent *parent,
		   struct err *err)
{
	struct processes *p = &parent->processes;
	int r = engine_choose(o, &parent->engine.jail, err);

	p->jail = (struct launch_jail)LAUNCH_JAIL_NONE;
	p->uid_count = 0;
	if (r < 0)
		return r;
	vms_choose_groups(o, state, &p->cgroups);
	if (geteuid() != 0 || o->uid_count == 0)
		return 0;
	vms_choose_network(o, &p->jail);
	vms_choose_root(o, state, p->files->vmm, &p->jail);
	vms_choose_users(o, p);
	return 0;
}
