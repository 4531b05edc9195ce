/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds casemate-vmm, kernel, initd and image, checks the image's beginning, and starts the
 * VMM: in a session of its own (the terminal's ^C is for us), with no environment, its stdin
 * and stdout on /dev/null, and of our descriptors only the channel, the image and snapshots.
 */
#include "tools/casemate/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/casemate/run_from.h"

#define CHANNEL_FD	3
#define IMAGE_FD	4

#define EROFS_OFFSET	1024u
#define EROFS_MAGIC	0xe0f5e1e2u

struct paths {
	char vmm[PATH_MAX], kernel[PATH_MAX], initd[PATH_MAX], image[PATH_MAX];
};

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

/* Beside this program, then where an installation puts it. */
static int find(const char *directory, const char *name, const char *what, char *path,
		struct err *err)
{
	snprintf(path, PATH_MAX, "%.3000s/%s", directory, name);
	if (access(path, R_OK) == 0)
		return 0;
	snprintf(path, PATH_MAX, "%s/%s", CASEMATE_LIBEXECDIR, name);
	if (access(path, R_OK) == 0)
		return 0;
	return err_set(err, ENOENT, "%s is missing: there is no %s beside casemate or in %s",
		       what, name, CASEMATE_LIBEXECDIR);
}

static int given(const char *from, const char *what, char *path, struct err *err)
{
	if (strlen(from) >= PATH_MAX)
		return err_set(err, ENAMETOOLONG, "the path of the %s is too long", what);
	strcpy(path, from);
	return 0;
}

/* The image: the one named, the saved VM's, or the default one. A saved VM may have none. */
static int image_find(const struct run_options *o, const struct from *from,
		      const char *directory, char *path, struct err *err)
{
	if (o->image)
		return given(o->image, "image", path, err);
	if (!o->from)
		return find(directory, "images/default.erofs",
			    "the default root image (tools/try.sh makes it, --image names "
			    "another)", path, err);
	if (from->image_size > 0 && !from->image[0])
		return err_set(err, EINVAL, "the snapshot does not say where its root image "
			       "is: name it with --image");
	return given(from->image, "image", path, err);
}

static int paths_find(const struct run_options *o, const struct from *from,
		      struct paths *paths, struct err *err)
{
	char directory[PATH_MAX];
	int r = own_directory(directory, sizeof(directory), err);

	if (r == 0)
		r = find(directory, "casemate-vmm", "the VMM", paths->vmm, err);
	if (r == 0)
		r = o->kernel ? given(o->kernel, "kernel", paths->kernel, err) :
				find(directory, "casemate-kernel", "the guest kernel",
				     paths->kernel, err);
	if (r == 0)
		r = o->initd ? given(o->initd, "initd", paths->initd, err) :
			       find(directory, "casemate-initd", "the guest's init",
				    paths->initd, err);
	return r == 0 ? image_find(o, from, directory, paths->image, err) : r;
}

static int image_open(const char *path, int *ret_fd, struct err *err)
{
	uint64_t size;
	FD_CLEANUP int fd = fd_open_file(path, &size);
	uint32_t magic;

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
	const char *argv[32 + 2 * FROM_MAX];
	unsigned int argc;
	char memory[32], image_path[PATH_MAX], numbers[FROM_MAX][12];
	int fds[2 + FROM_MAX];		/* become CHANNEL_FD, and those after it */
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

static void command_make(struct command *c, const struct run_options *o,
			 const struct paths *paths, const struct from *from, int channel,
			 int image)
{
	*c = (struct command){ .fds = { channel, image }, .fd_count = 2 };
	words(c, paths->vmm, "--kernel");
	words(c, paths->kernel, "--initd");
	word(c, paths->initd);
	words(c, "--channel-fd", "3");
	if (image >= 0)
		words(c, "--image-fd", "4");
	words(c, "--bootargs", o->trace ? "trace" : "verbose");
	if (o->verbose)
		word(c, "--verbose");
	if (o->save)
		word(c, o->incremental ? "--track" : "--snapshots");
	if (o->save && image >= 0 && realpath(paths->image, c->image_path))
		words(c, "--image-path", c->image_path);
	for (unsigned int i = 0; i < from->count; i++) {
		snprintf(c->numbers[i], sizeof(c->numbers[i]), "%u", IMAGE_FD + 1 + i);
		words(c, "--restore-fd", c->numbers[i]);
		c->fds[c->fd_count++] = from->fds[i];
	}
	if (from->count == 0) {
		snprintf(c->memory, sizeof(c->memory), "%" PRIu64, o->memory);
		words(c, "--mem", c->memory);
	}
}

static int command_spawn(const struct command *c, pid_t *ret_pid)
{
	char *no_env[] = { NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, pipe_only;
	int r;

	sigemptyset(&none);
	sigemptyset(&pipe_only);
	sigaddset(&pipe_only, SIGPIPE);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
				 POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &pipe_only);
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
		c->fds[i] = fcntl(c->fds[i], F_DUPFD_CLOEXEC, CHANNEL_FD + 2 + FROM_MAX);
		if (c->fds[i] < 0) {
			int error = errno;

			c->fd_count = i;
			return -error;
		}
	}
	return 0;
}

int run_vmm_start(const struct run_options *o, pid_t *ret_pid, int *ret_channel,
		  struct err *err)
{
	static struct command command;
	static struct paths paths;
	struct from from = { .count = 0 };
	FD_CLEANUP int image = -1, ours = -1, theirs = -1;
	int pair[2];
	int r = o->from ? from_open(&from, o->from, err) : 0;

	if (r == 0)
		r = paths_find(o, &from, &paths, err);
	if (r == 0 && paths.image[0])
		r = image_open(paths.image, &image, err);
	if (r == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		r = err_set_errno(err, errno, "cannot make a socket");
	if (r < 0) {
		from_close(&from);
		return r;
	}
	ours = pair[0];
	theirs = pair[1];
	fcntl(ours, F_SETFL, O_NONBLOCK);
	command_make(&command, o, &paths, &from, theirs, image);
	r = fds_raise(&command);
	if (r == 0)
		r = command_spawn(&command, ret_pid);
	for (unsigned int i = 0; i < command.fd_count; i++)
		fd_close(command.fds[i]);
	from_close(&from);
	if (r < 0)
		return err_set_errno(err, r, "cannot start %s", paths.vmm);
	*ret_channel = fd_take(&ours);
	return 0;
}
