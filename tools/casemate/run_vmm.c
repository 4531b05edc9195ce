/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds casemate-vmm, kernel, initd and image, checks the image's beginning, and starts the
 * VMM: in a session of its own (the terminal's ^C is for us), with no environment, its stdin
 * and stdout on /dev/null, and of our descriptors only the channel and the image.
 */
#include "tools/casemate/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

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

static int paths_find(const struct run_options *o, struct paths *paths, struct err *err)
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
	if (r == 0)
		r = o->image ? given(o->image, "image", paths->image, err) :
			       find(directory, "images/default.erofs",
				    "the default root image (tools/try.sh makes it, --image "
				    "names another)", paths->image, err);
	return r;
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

static int vmm_spawn(const struct run_options *o, const struct paths *paths, int channel,
		     int image, pid_t *ret_pid)
{
	char memory[32];
	const char *argv[] = { paths->vmm, "--kernel", paths->kernel, "--initd", paths->initd,
			       "--channel-fd", "3", "--image-fd", "4", "--mem", memory,
			       o->verbose ? "--verbose" : NULL, "--bootargs",
			       o->trace ? "trace" : "verbose",
			       NULL };
	char *no_env[] = { NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, pipe_only;
	int r;

	snprintf(memory, sizeof(memory), "%" PRIu64, o->memory);
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
	posix_spawn_file_actions_adddup2(&files, channel, CHANNEL_FD);
	posix_spawn_file_actions_adddup2(&files, image, IMAGE_FD);
	r = posix_spawn(ret_pid, paths->vmm, &files, &attr, (char *const *)argv,
			no_env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return -r;
}

int run_vmm_start(const struct run_options *o, pid_t *ret_pid, int *ret_channel,
		  struct err *err)
{
	struct paths paths;
	FD_CLEANUP int image = -1, ours = -1, theirs = -1, image_high = -1, theirs_high = -1;
	int pair[2];
	int r = paths_find(o, &paths, err);

	if (r == 0)
		r = image_open(paths.image, &image, err);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set_errno(err, errno, "cannot make a socket");
	ours = pair[0];
	theirs = pair[1];
	fcntl(ours, F_SETFL, O_NONBLOCK);
	/* Neither may sit where the other one goes in the child. */
	image_high = fcntl(image, F_DUPFD_CLOEXEC, 16);
	theirs_high = fcntl(theirs, F_DUPFD_CLOEXEC, 16);
	if (image_high < 0 || theirs_high < 0)
		return err_set_errno(err, errno, "cannot duplicate a descriptor");
	r = vmm_spawn(o, &paths, theirs_high, image_high, ret_pid);
	if (r < 0)
		return err_set_errno(err, r, "cannot start %s", paths.vmm);
	*ret_channel = fd_take(&ours);
	return 0;
}
