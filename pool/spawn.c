/* SPDX-License-Identifier: Apache-2.0 */
/* Starting casemate-vmm; see spawn.h. */
#include "pool/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapshot/file.h"

#define CHANNEL_FD	3
#define IMAGE_FD	4

#define EROFS_OFFSET	1024u
#define EROFS_MAGIC	0xe0f5e1e2u

/* The directory of this very program, without the slash. */
static int own_directory(char *path, size_t size, struct err *err)
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
	int r = own_directory(directory, sizeof(directory), err);

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

/* The VMM's command line and what its descriptors are to be. */
struct command {
	const char *argv[32 + 2 * SNAPSHOT_CHAIN_MAX];
	unsigned int argc;
	char memory[32], numbers[SNAPSHOT_CHAIN_MAX][12];
	int fds[2 + SNAPSHOT_CHAIN_MAX];	/* become CHANNEL_FD, and those after it */
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

static void command_make(struct command *c, const struct spawn_options *o, int channel)
{
	*c = (struct command){ .fds = { channel, o->image_fd }, .fd_count = 2 };
	words(c, o->programs->vmm, "--kernel");
	words(c, o->programs->kernel, "--initd");
	word(c, o->programs->initd);
	words(c, "--channel-fd", "3");
	if (o->image_fd >= 0)
		words(c, "--image-fd", "4");
	if (o->bootargs)
		words(c, "--bootargs", o->bootargs);
	if (o->verbose)
		word(c, "--verbose");
	if (o->snapshots)
		word(c, o->track ? "--track" : "--snapshots");
	if (o->hold)
		word(c, "--hold");
	if (o->snapshots && o->image_fd >= 0 && o->image_path)
		words(c, "--image-path", o->image_path);
	for (unsigned int i = 0; i < o->snapshot_count; i++) {
		snprintf(c->numbers[i], sizeof(c->numbers[i]), "%u", IMAGE_FD + 1 + i);
		words(c, "--restore-fd", c->numbers[i]);
		c->fds[c->fd_count++] = o->snapshot_fds[i];
	}
	if (o->snapshot_count == 0) {
		snprintf(c->memory, sizeof(c->memory), "%" PRIu64, o->memory);
		words(c, "--mem", c->memory);
	}
}

static int command_spawn(const struct command *c, pid_t *ret_pid)
{
	char *no_env[] = { NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, defaults;
	int r;

	sigemptyset(&none);
	sigemptyset(&defaults);
	sigaddset(&defaults, SIGPIPE);
	sigaddset(&defaults, SIGCHLD);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
				 POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &defaults);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
	for (unsigned int i = 0; i < c->fd_count; i++) {
		if (c->fds[i] >= 0)
			posix_spawn_file_actions_adddup2(&files, c->fds[i],
							 CHANNEL_FD + (int)i);
	}
	r = posix_spawn(ret_pid, c->argv[0], &files, &attr, (char *const *)c->argv, no_env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return -r;
}

/* Duplicates that sit where none of them goes in the child. */
static int fds_raise(struct command *c)
{
	for (unsigned int i = 0; i < c->fd_count; i++) {
		if (c->fds[i] < 0)
			continue;
		c->fds[i] = fcntl(c->fds[i], F_DUPFD_CLOEXEC, CHANNEL_FD + 2 +
				  (int)SNAPSHOT_CHAIN_MAX);
		if (c->fds[i] < 0) {
			int error = errno;

			c->fd_count = i;
			return -error;
		}
	}
	return 0;
}

int spawn_vmm(const struct spawn_options *options, pid_t *ret_pid, int *ret_channel,
	      struct err *err)
{
	static struct command command;
	FD_CLEANUP int ours = -1, theirs = -1;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set_errno(err, errno, "cannot make a socket");
	ours = pair[0];
	theirs = pair[1];
	fcntl(ours, F_SETFL, O_NONBLOCK);
	command_make(&command, options, theirs);
	r = fds_raise(&command);
	if (r == 0)
		r = command_spawn(&command, ret_pid);
	for (unsigned int i = 0; i < command.fd_count; i++)
		fd_close(command.fds[i]);
	if (r < 0)
		return err_set_errno(err, r, "cannot start %s", options->programs->vmm);
	*ret_channel = fd_take(&ours);
	return 0;
}
