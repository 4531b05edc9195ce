/* SPDX-License-Identifier: Apache-2.0 */
/*
 * casemated's parent: finds or makes the socket, takes the state directory (a lock in it keeps
 * a second daemon out), ends what an earlier one left there, finds out what VMs can be confined
 * by on this host, and keeps an engine (pool/parent.h) until that ends or it is told to stop.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "api/path.h"
#include "base/fd.h"
#include "base/value.h"
#include "pool/parent.h"
#include "pool/state.h"
#include "tools/casemated/casemated.h"
#include "tools/casemated/confine.h"

#define FIRST_PASSED_FD	3
#define LISTEN_BACKLOG	1024
#define LOCK_WAIT_NS	1000000000
#define LOCK_TRIES	50

struct keeper {
	const struct options *options;
	struct evloop loop;
	struct parent parent;
	struct spawn_programs programs;
	struct spawn_files files;
	char socket[PATH_MAX], state[PATH_MAX];
	int lock, signals, ready_fd;
	bool made_socket, was_ready;
	struct watch signal_watch;
	const char **engine_argv;
};

/* ---- The state directory and the socket ---- */

static int directory_make(const char *path, mode_t mode, struct err *err)
{
	struct stat st;

	if (mkdir(path, mode) == 0 || errno == EEXIST) {
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == getuid() &&
		    !(st.st_mode & S_IWOTH))
			return 0;
		return err_set(err, EPERM, "%s is no directory of this user's, or others may "
			       "write to it: choose another with --socket and --state", path);
	}
	return err_set_errno(err, errno, "cannot make the directory %s (choose another place with "
			     "--socket and --state, or set XDG_RUNTIME_DIR)", path);
}

static int paths_choose(struct keeper *k, struct err *err)
{
	int r = api_socket_path(k->options->socket, k->socket, sizeof(k->socket), err);

	if (r < 0)
		return r;
	if (strlen(k->socket) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return err_set(err, ENAMETOOLONG, "the socket's path %s is too long: choose "
			       "another with --socket", k->socket);
	if (snprintf(k->state, sizeof(k->state), "%s%s", k->options->state ? k->options->state :
		     k->socket, k->options->state ? "" : ".state") >= (int)sizeof(k->state))
		return err_set(err, ENAMETOOLONG, "the state directory's path is too long");
	return 0;
}

/* A process that a killed daemon was just starting has the lock until its execve. */
static int lock_wait(int fd)
{
	const struct timespec pause = { .tv_nsec = LOCK_WAIT_NS / LOCK_TRIES };
	int r = -1;

	for (int i = 0; i < LOCK_TRIES && r < 0; i++) {
		if (i > 0)
			nanosleep(&pause, NULL);
		r = flock(fd, LOCK_EX | LOCK_NB);
	}
	return r;
}

static int state_take(struct keeper *k, struct err *err)
{
	char copy[PATH_MAX], lock[PATH_MAX];
	int r;

	strcpy(copy, k->socket);
	r = directory_make(dirname(copy), k->options->group ? 0711 : 0700, err);
	if (r == 0)
		r = directory_make(k->state, 0700, err);
	if (r < 0)
		return r;
	if (snprintf(lock, sizeof(lock), "%s/lock", k->state) >= (int)sizeof(lock))
		return err_set(err, ENAMETOOLONG, "the state directory's path is too long");
	k->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (k->lock < 0)
		return err_set_errno(err, errno, "cannot open %s", lock);
	if (lock_wait(k->lock) < 0)
		return err_set(err, EADDRINUSE, "another casemated serves here already: "
			       "casemate ls asks it, casemated --socket PATH starts one more");
	return state_clean(k->state, err);
}

/* The socket from systemd: the first of LISTEN_FDS, if they are meant for us. Children are not
 * told of them. */
static int socket_passed(void)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	uint64_t is_pid, fds;
	bool ours = pid && count && value_number(pid, INT32_MAX, &is_pid) == 0 &&
		    value_number(count, 1, &fds) == 0 && is_pid == (uint64_t)getpid() &&
		    fds == 1;

	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	if (!ours)
		return -1;
	fcntl(FIRST_PASSED_FD, F_SETFD, FD_CLOEXEC);
	return FIRST_PASSED_FD;
}

/* Clients that wait at a socket which is not ours to close would have us started again, for
 * ever. Strangers among them are told no more than that there is nothing. */
static void clients_refuse(int listener)
{
	static const char text[] = "-FAILED \"casemated could not start\" "
				   "hint=\"its log says why (journalctl -u casemated)\"\n";

	if (listener < 0)
		return;
	fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
	for (int i = 0; i < LISTEN_BACKLOG; i++) {
		FD_CLEANUP int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return;
		(void)!send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
}

void keeper_refuse(void)
{
	clients_refuse(socket_passed());
}

static int socket_make(struct keeper *k, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	bool group;
	gid_t gid;
	FD_CLEANUP int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t mask;
	int r;

	r = group_find(k->options, &group, &gid, err);
	if (r < 0)
		return r;
	if (fd < 0)
		return err_set_errno(err, errno, "cannot make a socket");
	strcpy(address.sun_path, k->socket);
	/* The lock is ours, so whoever made it is gone. */
	unlink(k->socket);
	mask = umask(0177);
	r = bind(fd, (struct sockaddr *)&address, sizeof(address));
	umask(mask);
	if (r < 0)
		return err_set_errno(err, errno, "cannot make the socket %s", k->socket);
	k->made_socket = true;
	if (group && (chown(k->socket, (uid_t)-1, gid) < 0 ||
		      chmod(k->socket, 0660) < 0))
		return err_set_errno(err, errno, "cannot give the socket to group %s",
				     k->options->group);
	if (listen(fd, LISTEN_BACKLOG) < 0)
		return err_set_errno(err, errno, "cannot listen at %s", k->socket);
	k->parent.listener = fd_take(&fd);
	return 0;
}

/* ---- Signals, words to whoever started us ---- */

static void on_signal(struct watch *watch, uint32_t events)
{
	struct keeper *k = list_entry(watch, struct keeper, signal_watch);
	struct signalfd_siginfo info;

	if (read(watch->fd, &info, sizeof(info)) == sizeof(info))
		parent_stop(&k->parent);
}

static int signals_open(struct keeper *k, struct err *err)
{
	sigset_t set;
	int r;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	watch_init(&k->signal_watch, on_signal);
	r = k->signals < 0 ? -errno : watch_add(&k->loop, &k->signal_watch, k->signals, EPOLLIN);
	return r < 0 ? err_set_errno(err, r, "cannot wait for signals") : 0;
}

/* To the service manager, if there is one: sd_notify(3). */
static void notify(const char *text)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	FD_CLEANUP int fd = -1;
	socklen_t size;

	if (!path || strlen(path) >= sizeof(address.sun_path) || strlen(path) < 2)
		return;
	strcpy(address.sun_path, path);
	size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	/* Nobody there to hear it is no error. */
	if (fd >= 0)
		(void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
			      (struct sockaddr *)&address, size);
}

static void on_ready(struct parent *parent)
{
	struct keeper *k = list_entry(parent, struct keeper, parent);

	if (k->was_ready)
		return;
	k->was_ready = true;
	notify("READY=1");
	if (k->ready_fd >= 0 && fd_write_all(k->ready_fd, "ok\n", 3) == 0)
		k->ready_fd = fd_close(k->ready_fd);
	streams_drop(k->options);
}

static void on_say(struct parent *parent, const char *text)
{
	fprintf(stderr, "casemated: %s\n", text);
}

/* ---- The whole ---- */

/* Each VM takes a descriptor in both processes, each client one in the engine. */
static void descriptors_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* What whoever started a session's daemon had open is not for it to keep open. */
static void descriptors_drop(const struct options *o)
{
	unsigned int keep = o->ready_fd > 2 ? (unsigned int)o->ready_fd : 2;

	if (o->ready_fd > 2)
		fcntl(o->ready_fd, F_SETFD, FD_CLOEXEC);
	if (!o->session)
		return;
	if (keep > 3)
		close_range(3, keep - 1, 0);
	close_range(keep + 1, ~0u, 0);
}

/* Our own words, and what the engine cannot find as another user. */
static int engine_describe(struct keeper *k, int argc, char **argv, struct err *err)
{
	struct launch *l = &k->parent.engine;
	const char **words = calloc((size_t)argc + 4, sizeof(*words));
	int n = 0;

	if (!words)
		return err_set(err, ENOMEM, "no memory");
	words[n++] = argv[0];
	words[n++] = ENGINE_WORD;
	for (int i = 1; i < argc; i++)
		words[n++] = argv[i];
	if (k->programs.image[0]) {
		words[n++] = "--image";
		words[n++] = k->programs.image;
	}
	k->engine_argv = words;
	l->argv = words;
	l->env = (const char *const *)environ;
	l->program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	return l->program < 0 ? err_set_errno(err, errno, "cannot open this very program") : 0;
}

static int state_begin(struct keeper *k, struct err *err)
{
	int left = state_take(k, err);

	if (left > 0)
		fprintf(stderr, "casemated: %d VMs of an earlier daemon were ended\n", left);
	return left < 0 ? left : 0;
}

/* --store, or STATE/engine: what the engine keeps for the next one, and what it puts on the
 * disk. */
static int store_open(struct keeper *k, struct err *err)
{
	const struct launch_jail *jail = &k->parent.engine.jail;
	const char *store = k->options->store;
	char path[PATH_MAX];
	int r;

	if (snprintf(path, sizeof(path), "%s%s", store ? store : k->state,
		     store ? "" : "/engine") >= (int)sizeof(path))
		return err_set(err, ENAMETOOLONG, "the state directory's path is too long");
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_set_errno(err, errno, "cannot make the directory %s", path);
	/* It is the engine's user's, and root need not be one who may read everything. */
	r = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	k->parent.store = r;
	if (r < 0 || (jail->has_user && fchownat(r, "", jail->uid, jail->gid,
						 AT_EMPTY_PATH) < 0))
		return err_set_errno(err, errno, "cannot give the engine the directory %s", path);
	return 0;
}

static int keeper_begin(struct keeper *k, int argc, char **argv, struct err *err)
{
	const struct options *o = k->options;
	int r;

	k->parent.listener = socket_passed();
	descriptors_drop(o);
	descriptors_raise();
	r = paths_choose(k, err);
	if (r == 0)
		r = spawn_programs_find(&k->programs, o->vmm, o->kernel, o->initd, o->image,
					CASEMATE_LIBEXECDIR, err);
	if (r == 0)
		r = spawn_files_open(&k->files, &k->programs, err);
	if (r == 0)
		r = state_begin(k, err);
	if (r == 0)
		r = evloop_init(&k->loop) < 0 ? err_set(err, EMFILE, "cannot make a loop") : 0;
	if (r == 0)
		r = signals_open(k, err);
	if (r < 0)
		return r;
	k->parent.loop = &k->loop;
	k->parent.ready = on_ready;
	k->parent.say = on_say;
	k->parent.processes.files = &k->files;
	k->parent.processes.state_dir = k->state;
	if (k->parent.listener < 0)
		r = socket_make(k, err);
	if (r == 0)
		r = engine_describe(k, argc, argv, err);
	if (r == 0)
		r = confine_choose(o, k->state, &k->parent, err);
	if (r == 0)
		r = store_open(k, err);
	return r < 0 ? r : parent_init(&k->parent, err);
}

int keeper_main(const struct options *options, int argc, char **argv)
{
	static struct keeper k;
	struct err err = ERR_INIT;
	int r;

	k.options = options;
	k.ready_fd = options->ready_fd;
	k.lock = k.signals = k.parent.listener = k.parent.store = -1;
	k.parent.children_fd = -1;
	if (keeper_begin(&k, argc, argv, &err) < 0) {
		fprintf(stderr, "casemated: %s\n", err.text);
		clients_refuse(k.parent.listener);
		if (k.made_socket)
			unlink(k.socket);
		return 1;
	}
	r = evloop_run(&k.loop);
	if (r < 0 || k.parent.result < 0)
		clients_refuse(k.parent.listener);
	if (k.made_socket)
		unlink(k.socket);
	parent_done(&k.parent);
	free(k.engine_argv);
	return r < 0 || k.parent.result < 0 ? 1 : 0;
}
