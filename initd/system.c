/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of initd that only make sense as PID 1 of a guest. Host tests run without
 * them
 * (--no-mounts, --channel-fd).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <unistd.h>
#include "abi/guestctl.h"
#include "initd/channel.h"
#include "initd/system.h"

/* In this order: later ones lie in earlier ones. */
static const struct mount_entry {
	const char *type;
	const char *dir;
	unsigned long flags;
	const char *options;
} mounts[] = {
	{"proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
	{"sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
	{"devtmpfs", "/dev", MS_NOSUID | MS_NOEXEC, "mode=0755"},
	{"devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
	{"tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777"},
	{"tmpfs", "/tmp", MS_NOSUID | MS_NODEV, "mode=1777"},
	{"tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=0755"},
};

void system_mount_all(struct channel *c)
{
	const struct mount_entry *m;

	for (m = mounts; m < mounts + sizeof(mounts) / sizeof(mounts[0]); m++) {
		if (mkdir(m->dir, 0755) < 0 && errno != EEXIST)
			channel_text(c, CM_F_LOG, 0, "initd: cannot make %s: %s\n",
				     m->dir, strerror(errno));
		/* EBUSY: the kernel has mounted it itself. */
		if (mount(m->type, m->dir, m->type, m->flags, m->options) < 0 &&
		    errno != EBUSY)
			channel_text(c, CM_F_LOG, 0, "initd: cannot mount %s on %s: %s\n",
				     m->type, m->dir, strerror(errno));
	}
	if (sethostname("casemate", 8) < 0)
		channel_text(c, CM_F_LOG, 0, "initd: cannot set the host name: %s\n",
			     strerror(errno));
}

int system_open_null(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd >= 0)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

void system_power_off(void)
{
	kill(-1, SIGKILL);
	sync();
	reboot(RB_POWER_OFF);
	_exit(1);
}

int system_resumed(int channel_fd, struct cm_resumed *ret)
{
	return ioctl(channel_fd, (int)CM_IOC_RESUMED, ret) < 0 ? errno : 0;
}
