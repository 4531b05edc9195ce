/* SPDX-License-Identifier: Apache-2.0 */
/*
 * casemated: reads its options, finds or makes its socket, takes the state directory (a lock
 * in it keeps a second daemon out), ends what an earlier one left there, and serves
 * (api/server.h) until it is told to stop.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <libgen.h>
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
#include <unistd.h>

#include "api/path.h"
#include "api/server.h"
#include "base/value.h"
#include "base/fd.h"
#include "base/time.h"

#define FIRST_PASSED_FD	3
#define SESSION_IDLE_NS	(10 * NS_PER_SEC)
#define LOCK_WAIT_NS	1000000000
#define LOCK_TRIES	50

struct options {
	const char *socket, *state, *store, *group;
	const char *vmm, *kernel, *initd, *image;
	struct pool_limits limits;
	bool session, verbose, help;
	uint64_t session_idle_ns;
	int ready_fd;
};

struct daemon {
	struct options options;
	struct evloop loop;
	struct pool pool;
	struct server server;
	struct spawn_programs programs;
	char socket[PATH_MAX], state[PATH_MAX];
	int lock, signals, listener;
	bool made_socket;
	struct watch signal_watch;
	struct pool_observer log;
};

static const struct option known[] = {
	{ "socket", required_argument, NULL, 's' },
	{ "state", required_argument, NULL, 'S' },
	{ "store", required_argument, NULL, 'T' },
	{ "group", required_argument, NULL, 'g' },
	{ "session", no_argument, NULL, 'x' },
	{ "session-idle", required_argument, NULL, 'X' },
	{ "ready-fd", required_argument, NULL, 'r' },
	{ "vmm", required_argument, NULL, 'V' },
	{ "kernel", required_argument, NULL, 'k' },
	{ "initd", required_argument, NULL, 'I' },
	{ "image", required_argument, NULL, 'i' },
	{ "max-vms", required_argument, NULL, 'n' },
	{ "max-mem", required_argument, NULL, 'm' },
	{ "max-execs", required_argument, NULL, 'e' },
	{ "max-stored", required_argument, NULL, 'd' },
	{ "pool-memory", required_argument, NULL, 'p' },
	{ "total-vms", required_argument, NULL, 'N' },
	{ "total-mem", required_argument, NULL, 'M' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static void usage(void)
{
	puts("usage: casemated [options]\n"
	     "  --socket PATH     where to serve; $XDG_RUNTIME_DIR/casemate/casemate.sock, or\n"
	     "                    /run/casemate/casemate.sock. systemd's sockets come first\n"
	     "  --group NAME      members of this group may use the daemon as operators\n"
	     "  --state DIR       record of processes; default: PATH.state\n"
	     "  --store DIR       for suspended VMs, on a disk; default: the state directory\n"
	     "  --image FILE      the default root image\n"
	     "  --max-vms N, --max-mem SIZE, --max-execs N     limits for each user\n"
	     "  --max-stored SIZE                              of suspended VMs, likewise\n"
	     "  --pool-memory SIZE                             guest memory of all ready VMs\n"
	     "  --total-vms N, --total-mem SIZE                limits for all together\n"
	     "  --session         end when there was no VM and no client for a while\n"
	     "  --session-idle TIME   that while; default 10s\n"
	     "  --ready-fd FD     write \"ok\" and a newline there when it serves\n"
	     "  --verbose         say events on stderr\n"
	     "  --vmm, --kernel, --initd FILE   use these instead of those beside casemated\n"
	     "  --help            say this\n"
	     "docs/PROTOCOL.md describes what it speaks; casemate doctor looks for trouble.");
}

static int number_option(const char *text, uint32_t *ret)
{
	uint64_t number;

	if (value_number(text, UINT32_MAX, &number) < 0)
		return -EINVAL;
	*ret = (uint32_t)number;
	return 0;
}

static int parse_one(struct options *o, int option, char **argv, struct err *err)
{
	uint64_t fd = 0;
	int r = 0;

	switch (option) {
	case 's': o->socket = optarg; break;
	case 'S': o->state = optarg; break;
	case 'T': o->store = optarg; break;
	case 'g': o->group = optarg; break;
	case 'x': o->session = true; break;
	case 'X': r = value_time(optarg, VALUE_TIME_MAX, &o->session_idle_ns); break;
	case 'r': r = value_number(optarg, 1023, &fd); o->ready_fd = (int)fd; break;
	case 'V': o->vmm = optarg; break;
	case 'k': o->kernel = optarg; break;
	case 'I': o->initd = optarg; break;
	case 'i': o->image = optarg; break;
	case 'n': r = number_option(optarg, &o->limits.owner_vms); break;
	case 'm': r = value_size(optarg, &o->limits.owner_memory); break;
	case 'e': r = number_option(optarg, &o->limits.owner_execs); break;
	case 'd': r = value_size(optarg, &o->limits.owner_stored); break;
	case 'p': r = value_size(optarg, &o->limits.ready_memory); break;
	case 'N': r = number_option(optarg, &o->limits.total_vms); break;
	case 'M': r = value_size(optarg, &o->limits.total_memory); break;
	case 'v': o->verbose = true; break;
	case 'h': o->help = true; break;
	default:
		return err_set(err, EINVAL, "%s is no option, or wants a value; see casemated "
			       "--help", argv[optind - 1]);
	}
	return r < 0 ? err_set(err, EINVAL, "bad value %s; see casemated --help", optarg) : 0;
}

static int parse(struct options *o, int argc, char **argv, struct err *err)
{
	int option, r = 0;

	*o = (struct options){ .ready_fd = -1, .session_idle_ns = SESSION_IDLE_NS };
	opterr = 0;
	while (r == 0 && (option = getopt_long(argc, argv, ":", known, NULL)) >= 0)
		r = parse_one(o, option, argv, err);
	if (r == 0 && optind < argc)
		r = err_set(err, EINVAL, "%s is no option; see casemated --help", argv[optind]);
	return r;
}

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
	return err_set_errno(err, errno, "cannot make the directory %s", path);
}

static int paths_choose(struct daemon *d, struct err *err)
{
	int r = api_socket_path(d->options.socket, d->socket, sizeof(d->socket), err);

	if (r < 0)
		return r;
	if (strlen(d->socket) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return err_set(err, ENAMETOOLONG, "the socket's path %s is too long: choose "
			       "another with --socket", d->socket);
	if (snprintf(d->state, sizeof(d->state), "%s%s", d->options.state ? d->options.state :
		     d->socket, d->options.state ? "" : ".state") >= (int)sizeof(d->state))
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

static int state_take(struct daemon *d, struct err *err)
{
	char copy[PATH_MAX], lock[PATH_MAX];
	int r;

	strcpy(copy, d->socket);
	r = directory_make(dirname(copy), d->options.group ? 0711 : 0700, err);
	if (r == 0)
		r = directory_make(d->state, 0700, err);
	if (r < 0)
		return r;
	if (snprintf(lock, sizeof(lock), "%s/lock", d->state) >= (int)sizeof(lock))
		return err_set(err, ENAMETOOLONG, "the state directory's path is too long");
	d->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock < 0)
		return err_set_errno(err, errno, "cannot open %s", lock);
	if (lock_wait(d->lock) < 0)
		return err_set(err, EADDRINUSE, "another casemated serves here already: "
			       "casemate ls asks it, casemated --socket PATH starts one more");
	if (d->options.store)
		r = directory_make(d->options.store, 0700, err);
	if (r == 0)
		r = state_store_clean(d->options.store ? d->options.store : d->state, err);
	return r < 0 ? r : state_clean(d->state, err);
}

/* Sockets from systemd: the first of LISTEN_FDS, if they are meant for us. */
static int socket_passed(void)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	uint64_t is_pid, fds;

	if (!pid || !count || value_number(pid, INT32_MAX, &is_pid) < 0 ||
	    value_number(count, 1, &fds) < 0 || is_pid != (uint64_t)getpid() || fds != 1)
		return -1;
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	fcntl(FIRST_PASSED_FD, F_SETFD, FD_CLOEXEC);
	return FIRST_PASSED_FD;
}

static int socket_make(struct daemon *d, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	bool group = d->server.has_group;
	FD_CLEANUP int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t mask;
	int r;

	if (fd < 0)
		return err_set_errno(err, errno, "cannot make a socket");
	strcpy(address.sun_path, d->socket);
	/* The lock is ours, so whoever made it is gone. */
	unlink(d->socket);
	mask = umask(0177);
	r = bind(fd, (struct sockaddr *)&address, sizeof(address));
	umask(mask);
	if (r < 0)
		return err_set_errno(err, errno, "cannot make the socket %s", d->socket);
	d->made_socket = true;
	if (group && (chown(d->socket, (uid_t)-1, d->server.group) < 0 ||
		      chmod(d->socket, 0660) < 0))
		return err_set_errno(err, errno, "cannot give the socket to group %s",
				     d->options.group);
	if (listen(fd, 1024) < 0)
		return err_set_errno(err, errno, "cannot listen at %s", d->socket);
	d->listener = fd_take(&fd);
	return 0;
}

static int group_find(struct daemon *d, struct err *err)
{
	const struct group *g;

	if (!d->options.group)
		return 0;
	g = getgrnam(d->options.group);
	if (!g)
		return err_set(err, ENOENT, "there is no group %s", d->options.group);
	d->server.has_group = true;
	d->server.group = g->gr_gid;
	return 0;
}

/* ---- Signals, log ---- */

static void on_signal(struct watch *watch, uint32_t events)
{
	struct daemon *d = list_entry(watch, struct daemon, signal_watch);
	struct signalfd_siginfo info;

	if (read(watch->fd, &info, sizeof(info)) == sizeof(info))
		server_stop(&d->server, 0);
}

static int signals_open(struct daemon *d, struct err *err)
{
	sigset_t set;
	int r;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	d->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	watch_init(&d->signal_watch, on_signal);
	r = d->signals < 0 ? -errno : watch_add(&d->loop, &d->signal_watch, d->signals, EPOLLIN);
	return r < 0 ? err_set_errno(err, r, "cannot wait for signals") : 0;
}

static void on_event(struct pool_observer *observer, const struct pool_event *e)
{
	fprintf(stderr, "casemated: %s%s%s: %s\n", e->type, e->vm[0] ? " " : "", e->vm,
		e->text);
}

/* Each VM takes three descriptors, each client one. */
static void descriptors_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void say_ready(struct daemon *d)
{
	int null;

	if (d->options.ready_fd >= 0 && fd_write_all(d->options.ready_fd, "ok\n", 3) == 0)
		d->options.ready_fd = fd_close(d->options.ready_fd);
	if (!d->options.session || d->options.verbose)
		return;
	/* Whoever started us does not wait for our end by its pipes. */
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
	fd_close(null);
	if (chdir("/") < 0)
		errno = 0;
}

/* What whoever started a session's daemon had open is not for it to keep open. */
static void descriptors_drop(const struct options *o)
{
	unsigned int keep = o->ready_fd > 2 ? (unsigned int)o->ready_fd : 2;

	if (!o->session)
		return;
	if (keep > 3)
		close_range(3, keep - 1, 0);
	close_range(keep + 1, ~0u, 0);
}

static int daemon_begin(struct daemon *d, struct err *err)
{
	const struct options *o = &d->options;
	int r;

	descriptors_drop(o);
	descriptors_raise();
	r = paths_choose(d, err);
	if (r == 0)
		r = spawn_programs_find(&d->programs, o->vmm, o->kernel, o->initd, o->image,
					CASEMATE_LIBEXECDIR, err);
	if (r == 0)
		r = group_find(d, err);
	if (r == 0) {
		int left = state_take(d, err);

		r = left < 0 ? left : 0;
		if (left > 0)
			fprintf(stderr, "casemated: %d VMs of an earlier daemon were ended\n",
				left);
	}
	if (r == 0)
		r = evloop_init(&d->loop) < 0 ? err_set(err, EMFILE, "cannot make a loop") : 0;
	if (r == 0)
		r = signals_open(d, err);
	if (r == 0)
		r = pool_init(&d->pool, &d->loop, &o->limits, d->state, err);
	if (r < 0)
		return r;
	d->pool.programs = d->programs;
	d->pool.store_dir = o->store ? o->store : d->state;
	d->listener = socket_passed();
	if (d->listener < 0)
		r = socket_make(d, err);
	d->server.session = o->session;
	d->server.session_idle_ns = o->session_idle_ns;
	if (r == 0)
		r = server_init(&d->server, &d->loop, &d->pool, d->listener, err);
	if (r == 0 && o->verbose) {
		d->log.event = on_event;
		list_add_tail(&d->pool.observers, &d->log.link);
	}
	return r;
}

int main(int argc, char **argv)
{
	static struct daemon d;
	struct err err = ERR_INIT;
	int r;

	d.lock = d.signals = d.listener = -1;
	if (parse(&d.options, argc, argv, &err) < 0) {
		fprintf(stderr, "casemated: %s\n", err.text);
		return 2;
	}
	if (d.options.help) {
		usage();
		return 0;
	}
	if (daemon_begin(&d, &err) < 0) {
		fprintf(stderr, "casemated: %s\n", err.text);
		if (d.made_socket)
			unlink(d.socket);
		return 1;
	}
	say_ready(&d);
	r = evloop_run(&d.loop);
	server_done(&d.server);
	if (d.made_socket)
		unlink(d.socket);
	pool_done(&d.pool);
	return r < 0 ? 1 : 0;
}
