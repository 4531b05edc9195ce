/* SPDX-License-Identifier: Apache-2.0 */
/* Starting casemate-vmm; see spawn.h. */
#include "pool/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapshot/file.h"
#include "snapshot/state.h"

#define SNAPSHOT_FDS	5	/* before them: channel, kernel, initd, KVM, image */

#define EROFS_OFFSET	1024u
#define EROFS_MAGIC	0xe0f5e1e2u

/* The directory of this very program, without the slash. */
int spawn_own_directory(char *path, size_t size, struct err *err)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);
	char *slash;

	if (n <= 0)
		return err_set_errno(err, errno, "cannot read /proc/self/exe");
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (slash)
		*slash = '\0';
	return 0;
}

static int given(const char *from, const char *what, char *path, struct err *err)
{
	if (strlen(from) >= PATH_MAX)
		return err_set(err, ENAMETOOLONG, "the path of the %s is too long", what);
	strcpy(path, from);
	return 0;
}

static int find(const char *directory, const char *libexec, const char *name,
		const char *what, const char *named, char *path, struct err *err)
{
	if (named)
		return given(named, what, path, err);
	snprintf(path, PATH_MAX, "%.3000s/%s", directory, name);
	if (access(path, R_OK) == 0)
		return 0;
	snprintf(path, PATH_MAX, "%s/%s", libexec, name);
	if (access(path, R_OK) == 0)
		return 0;
	return err_set(err, ENOENT, "the %s is missing: there is no %s beside casemate or in "
		       "%s", what, name, libexec);
}

int spawn_programs_find(struct spawn_programs *ret, const char *vmm, const char *kernel,
			const char *initd, const char *image, const char *libexec,
			struct err *err)
{
	static char directory[PATH_MAX];
	struct err ignored = ERR_INIT;
	int r = spawn_own_directory(directory, sizeof(directory), err);

	if (r == 0)
		r = find(directory, libexec, "casemate-vmm", "VMM", vmm, ret->vmm, err);
	if (r == 0)
		r = find(directory, libexec, "casemate-kernel", "guest kernel", kernel,
			 ret->kernel, err);
	if (r == 0)
		r = find(directory, libexec, "casemate-initd", "guest's init", initd,
			 ret->initd, err);
	if (r == 0 && find(directory, libexec, "images/default.erofs", "image", image,
			   ret->image, &ignored) < 0)
		ret->image[0] = '\0';
	return r;
}

int spawn_image_open(const char *path, int *ret_fd, struct err *err)
{
	uint64_t size;
	FD_CLEANUP int fd = fd_open_file(path, &size);
	uint32_t magic;

	if (fd == -ENOENT)
		return err_set(err, ENOENT, "there is no file %s to be the root image; casemate "
			       "image build makes one", path);
	if (fd < 0)
		return err_set_errno(err, fd, "cannot open the image %s", path);
	if (size < EROFS_OFFSET + sizeof(magic) ||
	    fd_pread_exact(fd, &magic, sizeof(magic), EROFS_OFFSET) < 0 || magic != EROFS_MAGIC)
		return err_set(err, EINVAL, "%s is not an EROFS image; casemate image build "
			       "makes one", path);
	*ret_fd = fd_take(&fd);
	return 0;
}

int spawn_files_open(struct spawn_files *ret, const struct spawn_programs *programs,
		     struct err *err)
{
	const struct {
		const char *path, *what;
		int *fd;
	} wanted[] = {
		{ programs->vmm, "VMM", &ret->vmm },
		{ programs->kernel, "guest kernel", &ret->kernel },
		{ programs->initd, "guest's init", &ret->initd },
	};
	uint64_t size;

	*ret = (struct spawn_files)SPAWN_FILES_INIT;
	ret->name = programs->vmm;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		int fd = fd_open_file(wanted[i].path, &size);

		if (fd < 0) {
			spawn_files_close(ret);
			return err_set_errno(err, fd, "cannot open the %s %s", wanted[i].what,
					     wanted[i].path);
		}
		*wanted[i].fd = fd;
	}
	ret->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	return 0;
}

void spawn_files_close(struct spawn_files *f)
{
	f->vmm = fd_close(f->vmm);
	f->kernel = fd_close(f->kernel);
	f->initd = fd_close(f->initd);
	f->kvm = fd_close(f->kvm);
}

int spawn_channel_make(int *ret_ours, int *ret_theirs, struct err *err)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set_errno(err, errno, "cannot make a socket");
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	*ret_ours = pair[0];
	*ret_theirs = pair[1];
	return 0;
}

/* The VMM's command line and what its descriptors are to be. */
struct command {
	const char *argv[40 + 2 * SNAPSHOT_CHAIN_MAX];
	unsigned int argc;
	char memory[32], image[SNAPSHOT_PATH_MAX + 1];
	char numbers[SNAPSHOT_FDS + SNAPSHOT_CHAIN_MAX][12];
	int fds[SNAPSHOT_FDS + SNAPSHOT_CHAIN_MAX];
	unsigned int fd_count;
};

static void word(struct command *c, const char *text)
{
	c->argv[c->argc++] = text;
	c->argv[c->argc] = NULL;
}

static void words(struct command *c, const char *first, const char *second)
{
	word(c, first);
	word(c, second);
}

/* The next descriptor, and the option that names it. */
static void descriptor(struct command *c, const char *option, int fd)
{
	char *number = c->numbers[c->fd_count];

	snprintf(number, sizeof(c->numbers[0]), "%u", LAUNCH_FDS + c->fd_count);
	c->fds[c->fd_count++] = fd;
	if (fd >= 0)
		words(c, option, number);
}

/* Where the image is, as the host's kernel says it. */
static void image_path_add(struct command *c, int fd)
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, c->image, sizeof(c->image));
	if (n <= 0 || n >= (ssize_t)sizeof(c->image) || c->image[0] != '/')
		return;
	c->image[n] = '\0';
	words(c, "--image-path", c->image);
}

static void command_make(struct command *c, const struct spawn_options *o, int channel)
{
	*c = (struct command){ .argc = 0 };
	word(c, o->files->name);
	descriptor(c, "--channel-fd", channel);
	descriptor(c, "--kernel-fd", o->files->kernel);
	descriptor(c, "--initd-fd", o->files->initd);
	descriptor(c, "--kvm-fd", o->files->kvm);
	descriptor(c, "--image-fd", o->image_fd);
	if (o->bootargs)
		words(c, "--bootargs", o->bootargs);
	if (o->verbose)
		word(c, "--verbose");
	if (o->snapshots)
		word(c, o->track ? "--track" : "--snapshots");
	if (o->hold)
		word(c, "--hold");
	if (o->snapshots && o->image_fd >= 0)
		image_path_add(c, o->image_fd);
	for (unsigned int i = 0; i < o->snapshot_count; i++)
		descriptor(c, "--restore-fd", o->snapshot_fds[i]);
	if (o->snapshot_count == 0) {
		snprintf(c->memory, sizeof(c->memory), "%" PRIu64, o->memory);
		words(c, "--mem", c->memory);
	}
}

int spawn_vmm(const struct spawn_options *o, int channel, pid_t *ret_pid, struct err *err)
{
	static struct command c;
	const char *no_env[] = { NULL }, *step;
	struct launch l = { .program = o->files->vmm, .argv = c.argv, .env = no_env,
			    .fds = c.fds, .quiet = true, .jail = LAUNCH_JAIL_NONE };
	int r;

	if (o->snapshot_count > SNAPSHOT_CHAIN_MAX)
		return err_set(err, E2BIG, "a chain of more than %u snapshots",
			       SNAPSHOT_CHAIN_MAX);
	command_make(&c, o, channel);
	l.fd_count = c.fd_count;
	if (o->jail)
		l.jail = *o->jail;
	r = launch(&l, ret_pid, &step);
	return r < 0 ? err_set_errno(err, r, "cannot start %s: %s", o->files->name, step) : 0;
}
