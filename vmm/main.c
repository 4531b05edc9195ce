/* SPDX-License-Identifier: Apache-2.0 */
/*
 * casemate-vmm: one process, one VM. Started by casemate (or casemated) with a stream socket
 * on which frames of abi/channel.h are spoken; ends when the VM does or the client goes away.
 * What keeps a VM from being made is said in the last frame, VM_END, or, where the channel is
 * not usable, on stderr.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "abi/layout.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/time.h"
#include "base/value.h"
#include "vmm/jail.h"
#include "vmm/vm.h"

#define BOOT_TIMEOUT_S	30u
#define BOOTARGS_MAX	2048u
#define SNAPSHOT_FILE_MAX (CM_RAM_MAX + (1ull << 30))	/* memory, and amply for the rest */

struct arguments {
	const char *kernel, *initd, *image, *image_path;
	int kernel_fd, initd_fd, image_fd, kvm_fd, channel_fd;
	int snapshot_fds[SNAPSHOT_CHAIN_MAX];
	unsigned int snapshot_count;
	uint64_t memory, boot_timeout;
	const char *bootargs;
	bool verbose, snapshots, hold, cold, track;
};

static const struct option options[] = {
	{ "kernel", required_argument, NULL, 'k' },
	{ "kernel-fd", required_argument, NULL, 'K' },
	{ "initd", required_argument, NULL, 'i' },
	{ "initd-fd", required_argument, NULL, 'I' },
	{ "kvm-fd", required_argument, NULL, 'V' },
	{ "image", required_argument, NULL, 'm' },
	{ "image-fd", required_argument, NULL, 'M' },
	{ "mem", required_argument, NULL, 's' },
	{ "channel-fd", required_argument, NULL, 'c' },
	{ "boot-timeout", required_argument, NULL, 't' },
	{ "bootargs", required_argument, NULL, 'b' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "snapshots", no_argument, NULL, 'S' },
	{ "restore-fd", required_argument, NULL, 'R' },
	{ "hold", no_argument, NULL, 'H' },
	{ "cold", no_argument, NULL, 'C' },
	{ "track", no_argument, NULL, 'D' },
	{ "image-path", required_argument, NULL, 'p' },
	{ NULL, 0, NULL, 0 },
};

static int parse_fd(const char *text, int *ret_fd)
{
	uint64_t number;

	if (value_number(text, 1023, &number) < 0)
		return -EINVAL;
	*ret_fd = (int)number;
	return 0;
}

static int parse_one(struct arguments *a, int option, struct err *err)
{
	int r = 0;

	switch (option) {
	case 'k':
		a->kernel = optarg;
		break;
	case 'K':
		r = parse_fd(optarg, &a->kernel_fd);
		break;
	case 'i':
		a->initd = optarg;
		break;
	case 'I':
		r = parse_fd(optarg, &a->initd_fd);
		break;
	case 'V':
		r = parse_fd(optarg, &a->kvm_fd);
		break;
	case 'm':
		a->image = optarg;
		break;
	case 'M':
		r = parse_fd(optarg, &a->image_fd);
		break;
	case 's':
		r = value_number(optarg, UINT64_MAX, &a->memory);
		break;
	case 'c':
		r = parse_fd(optarg, &a->channel_fd);
		break;
	case 't':
		r = value_number(optarg, 3600, &a->boot_timeout);
		break;
	case 'b':
		a->bootargs = optarg;
		r = strlen(optarg) > BOOTARGS_MAX ? -EINVAL : 0;
		break;
	case 'v':
		a->verbose = true;
		break;
	case 'S':
		a->snapshots = true;
		break;
	case 'R':
		if (a->snapshot_count == SNAPSHOT_CHAIN_MAX)
			return err_set(err, E2BIG, "a chain of more than %u snapshots: casemate "
				       "snapshot compact makes one of them", SNAPSHOT_CHAIN_MAX);
		r = parse_fd(optarg, &a->snapshot_fds[a->snapshot_count++]);
		break;
	case 'H':
		a->hold = a->snapshots = true;
		break;
	case 'C':
		a->cold = true;
		break;
	case 'D':
		a->track = a->snapshots = true;
		break;
	case 'p':
		a->image_path = optarg;
		r = strlen(optarg) > SNAPSHOT_PATH_MAX ? -ENAMETOOLONG : 0;
		break;
	default:
		return err_set(err, EINVAL, "unknown option");
	}
	return r < 0 ? err_set(err, r, "bad value: %s", optarg) : 0;
}

static int parse(struct arguments *a, int argc, char **argv, struct err *err)
{
	int option;

	*a = (struct arguments){ .kernel_fd = -1, .initd_fd = -1, .image_fd = -1, .kvm_fd = -1,
				 .channel_fd = -1, .bootargs = "",
				 .boot_timeout = BOOT_TIMEOUT_S };
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		int r = parse_one(a, option, err);

		if (r < 0)
			return r;
	}
	if (optind != argc || !a->kernel == (a->kernel_fd < 0) ||
	    (a->initd && a->initd_fd >= 0) || (a->memory == 0) != (a->snapshot_count > 0) ||
	    a->channel_fd < 0 || (a->image && a->image_fd >= 0) ||
	    (a->hold && a->snapshot_count == 0))
		return err_set(err, EINVAL, "usage: casemate-vmm (--kernel FILE | --kernel-fd N) "
			       "--channel-fd N "
			       "(--mem BYTES | --restore-fd N... [--hold [--cold] | --track]) "
			       "[--initd FILE | --initd-fd N] [--kvm-fd N] "
			       "[--image FILE | --image-fd N] [--image-path TEXT] "
			       "[--bootargs WORDS] [--boot-timeout SECONDS] [--snapshots] "
			       "[--verbose]");
	return 0;
}

/* By its path, or, where there is none, *ret_fd as it was passed. */
static int open_file(const char *path, const char *what, int *ret_fd, uint64_t *ret_size,
		     struct err *err)
{
	struct stat st;
	int fd;

	if (!path && *ret_fd >= 0) {
		if (fstat(*ret_fd, &st) < 0 || !S_ISREG(st.st_mode))
			return err_set(err, EBADF, "the %s passed is no file", what);
		*ret_size = (uint64_t)st.st_size;
		return 0;
	}
	if (!path)
		return 0;
	fd = fd_open_file(path, ret_size);
	if (fd < 0)
		return err_set_errno(err, fd, "cannot open the %s %s", what, path);
	*ret_fd = fd;
	return 0;
}

static int run(const struct arguments *a, uint64_t start_ns, struct err *err)
{
	struct vm_options o = {
		.kernel_fd = a->kernel_fd,
		.initd_fd = a->initd_fd,
		.kvm_fd = a->kvm_fd,
		.image_fd = a->image_fd,
		.channel_fd = a->channel_fd,
		.snapshot_fds = a->snapshot_fds,
		.snapshot_count = a->snapshot_count,
		.image_path = a->image_path,
		.snapshots = a->snapshots,
		.hold = a->hold,
		.cold = a->cold,
		.track = a->track,
		.memory_size = a->memory,
		.boot_timeout_ns = a->boot_timeout * NS_PER_SEC,
		.bootargs = a->bootargs,
		.verbose = a->verbose,
		.start_ns = start_ns,
	};
	static struct vm vm;
	uint64_t ignored;
	int r;

	r = open_file(a->kernel, "kernel", &o.kernel_fd, &o.kernel_size, err);
	if (r == 0)
		r = open_file(a->initd, "initd", &o.initd_fd, &o.initd_size, err);
	if (r == 0)
		r = open_file(a->image, "image", &o.image_fd, &ignored, err);
	if (r < 0)
		return r;
	r = vm_init(&vm, &o, err);
	if (r == 0)
		r = vm_run(&vm, err);
	/* Whether it failed half way or not, the process ends here and the host takes
	 * everything back; what a vm_done() would add is time. Tests call it. */
	return r;
}

/* The failure as the channel's last frame. By write, which the jail has: there is no loop, or it
 * failed. */
static void report(int channel_fd, const struct err *err)
{
	struct {
		struct cm_frame head;
		struct cm_vm_end end;
		char text[ERR_TEXT_MAX];
	} __attribute__((packed)) frame;
	size_t len = strlen(err->text);

	memset(&frame, 0, sizeof(frame));
	frame.head = frame_head(CM_F_VM_END, 0, 0, (uint32_t)(sizeof(frame.end) + len));
	frame.end = (struct cm_vm_end){ CM_VM_HOST_ERROR, (uint32_t)-err->code };
	memcpy(frame.text, err->text, len);
	if (fd_write_all(channel_fd, &frame, sizeof(frame.head) + frame.head.length) < 0)
		fprintf(stderr, "casemate-vmm: %s\n", err->text);
}

static int begin(const struct arguments *a, struct err *err)
{
	int keep[SNAPSHOT_CHAIN_MAX + 5] = { a->channel_fd, a->image_fd, a->kernel_fd,
					     a->initd_fd, a->kvm_fd };

	memcpy(keep + 5, a->snapshot_fds, a->snapshot_count * sizeof(keep[0]));
	/* For report(), and what would be said on a stderr that is closed. */
	signal(SIGPIPE, SIG_IGN);
	/* Children that write snapshots or run forked VMs are nobody's to wait for. */
	if (a->snapshots)
		signal(SIGCHLD, SIG_IGN);
	return jail_begin(keep, 5 + a->snapshot_count, a->snapshots ? SNAPSHOT_FILE_MAX : 0,
			  err);
}

int main(int argc, char **argv)
{
	uint64_t start_ns = time_monotonic_ns();
	struct err err = ERR_INIT;
	struct arguments a;
	struct stat st;

	/* Started by descriptor it would be called by a number. */
	prctl(PR_SET_NAME, "casemate-vmm");
	if (parse(&a, argc, argv, &err) < 0) {
		fprintf(stderr, "casemate-vmm: %s\n", err.text);
		return 125;
	}
	if (fstat(a.channel_fd, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		fprintf(stderr, "casemate-vmm: descriptor %d is no socket\n", a.channel_fd);
		return 125;
	}
	if (begin(&a, &err) < 0 || run(&a, start_ns, &err) < 0) {
		report(a.channel_fd, &err);
		return 125;
	}
	return 0;
}
