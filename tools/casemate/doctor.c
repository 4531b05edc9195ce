/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate doctor`: looks at what Casemate needs of this host, one line each: ok, what could
 * be better, or what is wrong, and what to do about it. Ends with 0 when nothing is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/kvm.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/casemate.h"
#include "base/fd.h"
#include "pool/spawn.h"
#include "tools/casemate/casemate.h"

enum verdict { GOOD, BETTER, WRONG };

static enum verdict say(enum verdict verdict, const char *what, const char *text,
			const char *todo)
{
	static const char *const words[] = { "ok", "note", "WRONG" };

	printf("%-6s %-9s %s%s%s\n", words[verdict], what, text, todo ? ": " : "",
	       todo ? todo : "");
	return verdict;
}

static enum verdict check_kvm(void)
{
	FD_CLEANUP int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm = -1;

	if (fd < 0 && errno == ENOENT)
		return say(WRONG, "kvm", "/dev/kvm is not there", "load kvm_intel or kvm_amd, and "
			   "allow nested virtualisation if this host is a VM itself");
	if (fd < 0)
		return say(WRONG, "kvm", strerror(errno), "join the group that owns /dev/kvm");
	if (ioctl(fd, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
		return say(WRONG, "kvm", "/dev/kvm speaks another version", "use Linux 5.15 or "
			   "newer");
	vm = ioctl(fd, KVM_CREATE_VM, 0);
	if (vm < 0)
		return say(WRONG, "kvm", strerror(errno), "no VM can be made; dmesg may say why");
	if (ioctl(vm, KVM_CHECK_EXTENSION, KVM_CAP_SPLIT_IRQCHIP) <= 0)
		return say(WRONG, "kvm", "there is no split interrupt controller",
			   "use a newer kernel");
	return say(GOOD, "kvm", "VMs can be made", NULL);
}

static enum verdict check_uring(void)
{
	struct io_uring_params params = { .flags = 0 };
	FD_CLEANUP int fd = (int)syscall(SYS_io_uring_setup, 4, &params);

	if (fd < 0)
		return say(WRONG, "io_uring", strerror(errno), "set the sysctl "
			   "kernel.io_uring_disabled to 0, and let no container filter it out");
	return say(GOOD, "io_uring", "rings can be made", NULL);
}

static enum verdict check_cgroups(void)
{
	char text[256] = "";
	FD_CLEANUP int fd = open("/sys/fs/cgroup/cgroup.controllers", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		return say(BETTER, "cgroups", "version 2 is not mounted at /sys/fs/cgroup",
			   "limits by cgroup are not possible; boot with "
			   "systemd.unified_cgroup_hierarchy=1");
	if (!strstr(text, "memory") || !strstr(text, "pids") || !strstr(text, "cpu"))
		return say(BETTER, "cgroups", "cpu, memory or pids is not in version 2",
			   "unbind them from version 1");
	return say(GOOD, "cgroups", "version 2 has cpu, memory, pids", NULL);
}

static enum verdict check_limits(void)
{
	struct rlimit files;
	char text[128];

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return say(BETTER, "limits", strerror(errno), NULL);
	snprintf(text, sizeof(text), "%llu descriptors, enough for %llu VMs",
		 (unsigned long long)files.rlim_max, (unsigned long long)files.rlim_max / 4);
	if (files.rlim_max < 4096)
		return say(BETTER, "limits", text, "raise the hard limit of nofile");
	return say(GOOD, "limits", text, NULL);
}

static enum verdict check_huge(void)
{
	char text[128] = "";
	FD_CLEANUP int fd = open("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
				 O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0 || strstr(text, "[never]"))
		return say(BETTER, "hugepages", "none for shared memory",
			   "echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled makes "
			   "starts faster");
	return say(GOOD, "hugepages", "possible for shared memory", NULL);
}

static enum verdict check_disk(void)
{
	const char *directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	struct statvfs st;
	char text[PATH_MAX];
	unsigned long long free_mib;

	if (statvfs(directory, &st) < 0)
		return say(BETTER, "disk", strerror(errno), directory);
	free_mib = (unsigned long long)st.f_bavail * st.f_frsize >> 20;
	snprintf(text, sizeof(text), "%llu MiB free in %s", free_mib, directory);
	if (free_mib < 1024)
		return say(BETTER, "disk", text, "a snapshot takes as much as its VM's memory");
	return say(GOOD, "disk", text, NULL);
}

static enum verdict check_programs(void)
{
	static struct spawn_programs programs;
	struct err err = ERR_INIT;
	enum verdict verdict;
	int fd;

	if (spawn_programs_find(&programs, NULL, NULL, NULL, NULL, CASEMATE_LIBEXECDIR,
				&err) < 0)
		return say(WRONG, "programs", err.text, "install Casemate again");
	verdict = say(GOOD, "programs", programs.vmm, NULL);
	if (!programs.image[0])
		return say(BETTER, "image", "there is no default root image",
			   "casemate image build makes one; --image names it");
	if (spawn_image_open(programs.image, &fd, &err) < 0)
		return say(WRONG, "image", err.text, NULL);
	fd_close(fd);
	say(GOOD, "image", programs.image, NULL);
	return verdict;
}

static enum verdict check_daemon(void)
{
	struct casemate *c;
	int r = casemate_open(&c, NULL);
	enum verdict verdict;

	if (r == 0)
		verdict = say(GOOD, "daemon", "casemated answers", NULL);
	else if (r == -ENOENT || r == -ECONNREFUSED)
		verdict = say(GOOD, "daemon", "none serves; casemate run --keep starts one", NULL);
	else
		verdict = say(WRONG, "daemon", c ? casemate_message(c) : "no memory", NULL);
	casemate_close(c);
	return verdict;
}

int cmd_doctor(int argc, char **argv)
{
	enum verdict (*const checks[])(void) = {
		check_kvm, check_uring, check_cgroups, check_limits, check_huge, check_disk,
		check_programs, check_daemon,
	};
	int status = 0;

	if (argc > 1) {
		puts("usage: casemate doctor\nLooks for what keeps Casemate from working here.");
		return strcmp(argv[1], "--help") ? EXIT_CASEMATE : 0;
	}
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		if (checks[i]() == WRONG)
			status = 1;
	}
	return status;
}
