/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate doctor`: looks at what Casemate needs of this host, one line each: ok, what could
 * be better, or what is wrong, and what to do about it. Ends with 0 when nothing is wrong, with
 * 1 when something is.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <linux/kvm.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "api/path.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/utf8.h"
#include "pool/spawn.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/image_erofs.h"
#include "tools/casemate/listing.h"
#include "tools/casemate/words.h"

#define EXIT_WRONG	1
#define NOFILE_WANTED	4096u
#define MEMLOCK_WANTED	(1u << 20)
#define DISK_WANTED	(1ull << 30)
#define DISK_NEEDED	(16ull << 20)

enum verdict { GOOD, BETTER, WRONG };

struct doctor {
	const char *socket, *image;
	bool as_json;
	struct json json;
	bool wrong;
};

/* todo: what to do; NULL for GOOD. */
static void say(struct doctor *d, enum verdict verdict, const char *what, const char *todo,
		const char *format, ...) __attribute__((format(printf, 5, 6)));

static void say(struct doctor *d, enum verdict verdict, const char *what, const char *todo,
		const char *format, ...)
{
	static const char *const words[] = { "ok", "note", "WRONG" };
	static const char *const json_words[] = { "ok", "note", "wrong" };
	char text[2 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	d->wrong |= verdict == WRONG;
	if (d->as_json) {
		json_object(&d->json, NULL);
		json_string(&d->json, "check", what);
		json_string(&d->json, "verdict", json_words[verdict]);
		json_string(&d->json, "text", text);
		if (todo)
			json_string(&d->json, "todo", todo);
		json_end(&d->json);
		return;
	}
	printf("%-6s %-9s ", words[verdict], what);
	utf8_print_clean(stdout, text, strlen(text));
	printf("%s%s\n", todo ? ": " : "", todo ? todo : "");
}

/* ---- The kernel ---- */

static void check_kvm(struct doctor *d)
{
	FD_CLEANUP int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm = -1;

	if (fd < 0 && (errno == ENOENT || errno == ENODEV || errno == ENXIO))
		return say(d, WRONG, "kvm", "modprobe kvm_intel or kvm_amd; in the firmware, or at "
			   "the host of this host, allow (nested) virtualisation",
			   "/dev/kvm is not there");
	if (fd < 0)
		return say(d, WRONG, "kvm", "join the group that owns it (usermod -aG kvm USER), "
			   "and log in anew", "cannot open /dev/kvm: %s", strerror(errno));
	if (ioctl(fd, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
		return say(d, WRONG, "kvm", "use Linux 5.15 or newer",
			   "/dev/kvm speaks another version");
	vm = ioctl(fd, KVM_CREATE_VM, 0);
	if (vm < 0)
		return say(d, WRONG, "kvm", "see dmesg; another hypervisor may have the CPU",
			   "no VM can be made: %s", strerror(errno));
	if (ioctl(vm, KVM_CHECK_EXTENSION, KVM_CAP_SPLIT_IRQCHIP) <= 0)
		return say(d, WRONG, "kvm", "use Linux 5.15 or newer",
			   "there is no split interrupt controller");
	say(d, GOOD, "kvm", NULL, "VMs can be made");
}

static void check_uring(struct doctor *d)
{
	struct io_uring_params params = { .flags = 0 };
	FD_CLEANUP int fd = (int)syscall(SYS_io_uring_setup, 4, &params);

	if (fd >= 0)
		say(d, GOOD, "io_uring", NULL, "rings can be made");
	else if (errno == ENOSYS)
		say(d, WRONG, "io_uring", "use Linux 5.15 or newer, built with CONFIG_IO_URING",
		    "this kernel has none");
	else if (errno == ENOMEM)
		say(d, WRONG, "io_uring", "raise memlock (ulimit -l, LimitMEMLOCK=)",
		    "no ring can be made: %s", strerror(errno));
	else
		say(d, WRONG, "io_uring", "sysctl kernel.io_uring_disabled=0, and let no container "
		    "or seccomp filter refuse it", "no ring can be made: %s", strerror(errno));
}

static void check_cgroups(struct doctor *d)
{
	static const char *const wanted[] = { "cpu", "memory", "pids" };
	char text[256] = "", missing[64] = "";
	struct statfs st;
	FD_CLEANUP int fd = open("/sys/fs/cgroup/cgroup.controllers", O_RDONLY | O_CLOEXEC);

	if (statfs("/sys/fs/cgroup", &st) < 0 || st.f_type != CGROUP2_SUPER_MAGIC)
		return say(d, BETTER, "cgroups", "boot with systemd.unified_cgroup_hierarchy=1, or "
			   "without that option on a newer system", "version 2 is not at "
			   "/sys/fs/cgroup, so VMs cannot be limited by cgroup");
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		return say(d, BETTER, "cgroups", "mount cgroup2 there with its files readable",
			   "cannot read /sys/fs/cgroup/cgroup.controllers: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		const char *at = text;
		size_t n = strlen(wanted[i]);

		while ((at = strstr(at, wanted[i])) && ((at > text && at[-1] != ' ') ||
							(at[n] && !strchr(" \n", at[n]))))
			at += n;
		if (!at)
			snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing),
				 "%s%s", missing[0] ? ", " : "", wanted[i]);
	}
	if (missing[0])
		return say(d, BETTER, "cgroups", "unbind them from version 1 (cgroup_no_v1=all on "
			   "the kernel's command line), or have the container's host delegate "
			   "them", "version 2 lacks %s", missing);
	say(d, GOOD, "cgroups", NULL, "version 2 has cpu, memory, pids");
}

static void check_limits(struct doctor *d)
{
	struct rlimit files, locked;
	char text[LISTING_SHORT];

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || getrlimit(RLIMIT_MEMLOCK, &locked) < 0)
		return say(d, BETTER, "nofile", "see ulimit -a", "%s", strerror(errno));
	if (files.rlim_max < NOFILE_WANTED)
		say(d, BETTER, "nofile", "raise the hard limit (limits.conf, LimitNOFILE=)",
		    "%llu descriptors, enough for %llu VMs", (unsigned long long)files.rlim_max,
		    (unsigned long long)files.rlim_max / 4);
	else
		say(d, GOOD, "nofile", NULL, "%llu descriptors, enough for %llu VMs",
		    (unsigned long long)files.rlim_max, (unsigned long long)files.rlim_max / 4);
	if (locked.rlim_max == RLIM_INFINITY)
		say(d, GOOD, "memlock", NULL, "unlimited");
	else if (locked.rlim_max < MEMLOCK_WANTED)
		say(d, BETTER, "memlock", "raise the hard limit (limits.conf, LimitMEMLOCK=): "
		    "kernels before 5.12 charge io_uring's rings to it", "%s may be locked",
		    listing_bytes(text, locked.rlim_max));
	else
		say(d, GOOD, "memlock", NULL, "%s may be locked",
		    listing_bytes(text, locked.rlim_max));
}

/* Whether the choice made in a file of transparent_hugepage is one of never and deny. */
static bool huge_never(const char *name)
{
	char path[96], text[128] = "";
	FD_CLEANUP int fd = -1;

	snprintf(path, sizeof(path), "/sys/kernel/mm/transparent_hugepage/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 || read(fd, text, sizeof(text) - 1) < 0 || strstr(text, "[never]") ||
	       strstr(text, "[deny]");
}

static void check_huge(struct doctor *d)
{
	if (huge_never("enabled"))
		say(d, BETTER, "thp", "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
		    "no huge pages for guest memory: VMs start and fork more slowly");
	else
		say(d, GOOD, "thp", NULL, "huge pages are possible for guest memory");
	if (huge_never("shmem_enabled"))
		say(d, BETTER, "shmem", "echo advise >/sys/kernel/mm/transparent_hugepage/"
		    "shmem_enabled", "no huge pages for memory that VMs share");
	else
		say(d, GOOD, "shmem", NULL, "huge pages are possible for memory that VMs share");
}

/* ---- Files ---- */

static void disk_check(struct doctor *d, const char *what, const char *path, const char *use)
{
	char copy[PATH_MAX], room[LISTING_SHORT];
	const char *at = copy;
	struct statvfs st;
	uint64_t left;

	snprintf(copy, sizeof(copy), "%s", path);
	/* What is not there yet will be made where its nearest parent is. */
	while (statvfs(at, &st) < 0) {
		if (errno != ENOENT || !strcmp(at, "/") || !strcmp(at, "."))
			return say(d, WRONG, what, "make it a directory that you can use", "%s: %s",
				   path, strerror(errno));
		at = dirname(copy);
	}
	left = (uint64_t)st.f_bavail * st.f_frsize;
	listing_bytes(room, left);
	if (st.f_flag & ST_RDONLY)
		say(d, WRONG, what, "mount it writable, or choose another directory",
		    "%s is read-only; it is for %s", path, use);
	else if (left < DISK_NEEDED)
		say(d, WRONG, what, "make room", "%s free in %s, which is for %s", room, path, use);
	else if (left < DISK_WANTED)
		say(d, BETTER, what, "make room: a saved VM takes as much as its memory",
		    "%s free in %s, which is for %s", room, path, use);
	else
		say(d, GOOD, what, NULL, "%s free in %s, for %s", room, path, use);
}

static void check_disk(struct doctor *d)
{
	const char *temporary = getenv("TMPDIR");
	struct err err = ERR_INIT;
	char path[PATH_MAX - 8], state[PATH_MAX];

	if (api_socket_path(d->socket, path, sizeof(path), &err) < 0)
		return say(d, WRONG, "state", "choose another with --socket", "%s", err.text);
	snprintf(state, sizeof(state), "%s.state", path);
	disk_check(d, "state", state, "the daemon's state");
	disk_check(d, "tmp", temporary && *temporary ? temporary : "/var/tmp",
		   "building images (TMPDIR)");
}

static const char *entry_check(void *arg, const struct erofs_entry *e)
{
	++*(uint64_t *)arg;
	return S_ISREG(e->mode) && e->layout != 0 ? "not stored as one run of blocks" : NULL;
}

/* Read whole as far as names and places go, as a guest would. */
static void image_check(struct doctor *d, const char *path)
{
	struct err err = ERR_INIT;
	FD_CLEANUP int fd = -1;
	char why[512] = "";
	uint64_t count = 0;
	struct stat st;
	void *map;
	int r;

	if (spawn_image_open(path, &fd, &err) < 0)
		return say(d, WRONG, "image", "name another with --image FILE", "%s",
			   err.text);
	if (fstat(fd, &st) < 0 || (map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd,
					      0)) == MAP_FAILED)
		return say(d, WRONG, "image", "look at that file system", "cannot map %s: %s", path,
			   strerror(errno));
	r = erofs_walk(map, (size_t)st.st_size, entry_check, &count, why, sizeof(why));
	munmap(map, (size_t)st.st_size);
	if (r < 0)
		return say(d, WRONG, "image", "build it again with casemate image build",
			   "%s: %s", path, r == -ENOMEM ? "no memory to check it" : why);
	say(d, GOOD, "image", NULL, "%s: good, %llu entries", path, (unsigned long long)count);
}

static void check_programs(struct doctor *d)
{
	static struct spawn_programs programs;
	struct err err = ERR_INIT;

	if (spawn_programs_find(&programs, NULL, NULL, NULL, d->image, CASEMATE_LIBEXECDIR,
				&err) < 0)
		return say(d, WRONG, "programs", "install Casemate again", "%s", err.text);
	if (access(programs.vmm, X_OK) < 0)
		say(d, WRONG, "programs", "install Casemate again", "%s: %s", programs.vmm,
		    strerror(errno));
	else
		say(d, GOOD, "programs", NULL, "%s, %s, %s", programs.vmm, programs.kernel,
		    programs.initd);
	if (programs.image[0])
		image_check(d, programs.image);
	else
		say(d, BETTER, "image", "casemate image build -o FILE makes one; --image FILE "
		    "names it", "there is no default root image");
}

/* ---- The daemon ---- */

static void check_daemon(struct doctor *d)
{
	struct casemate *c;
	int r = casemate_open(&c, d->socket);
	const char *release = r == 0 ? casemate_value(c, "release") : NULL;

	if (r == 0 && release && strcmp(release, CASEMATE_VERSION))
		say(d, BETTER, "daemon", "restart it, when its VMs may end", "casemated %s "
		    "answers, and this is casemate %s", release, CASEMATE_VERSION);
	else if (r == 0)
		say(d, GOOD, "daemon", NULL, "casemated %s answers", release ? release : "");
	else if (r == -ENOENT)
		say(d, GOOD, "daemon", NULL, "none serves; casemate run --keep NAME starts one");
	else if (r == -ECONNREFUSED)
		say(d, BETTER, "daemon", "casemate run --keep NAME starts one in its place",
		    "a socket is there, but none serves");
	else if (r == -EACCES || r == CASEMATE_REFUSED)
		say(d, WRONG, "daemon", "be its user or root, or join the group of its --group",
		    "%s", casemate_message(c));
	else
		say(d, WRONG, "daemon", "systemctl status casemated, or its log, may say why",
		    "%s", c ? casemate_message(c) : "no memory");
	casemate_close(c);
}

int cmd_doctor(int argc, char **argv)
{
	static const struct option_rule rules[] = {
		{ "--image", "", 'v', "FILE", "the root image to look at" },
		OPTION_JSON, OPTION_SOCKET, OPTIONS_END,
	};
	void (*const checks[])(struct doctor *) = {
		check_kvm, check_uring, check_cgroups, check_limits, check_huge, check_disk,
		check_programs, check_daemon,
	};
	struct doctor d = { .json = JSON_INIT(stdout) };
	static struct words w;
	int status;

	if (!words_read(&w, rules, argc, argv, 0, 0, "doctor [options] (looks for what keeps "
			"Casemate from working here)", &status))
		return status;
	d.socket = words_own(&w, "--socket");
	d.image = words_own(&w, "--image");
	d.as_json = words_own(&w, "--json") != NULL;
	d.json.lines = true;
	if (d.as_json)
		json_array(&d.json, NULL);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		checks[i](&d);
	if (d.as_json)
		json_end(&d.json);
	return d.wrong ? EXIT_WRONG : 0;
}
