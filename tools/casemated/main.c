/* SPDX-License-Identifier: Apache-2.0 */
/* casemated: its options, and which of its two processes this is; see casemated.h. */
#include "tools/casemated/casemated.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"
#include "base/value.h"
#include "pool/process.h"

#define SESSION_IDLE_NS	(10 * NS_PER_SEC)

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
	{ "user", required_argument, NULL, 'u' },
	{ "vm-uids", required_argument, NULL, 'U' },
	{ "forward-any", no_argument, NULL, 'a' },
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
	     "  --user NAME       of the engine, which speaks with clients and VMs, when started\n"
	     "                    by root; default: casemate, if there is one\n"
	     "  --vm-uids BASE:COUNT   users of VMs, likewise; default: 1879048192:65536;\n"
	     "                    none: the daemon's own, and its root and network\n"
	     "  --max-vms N, --max-mem SIZE, --max-execs N     limits for each user\n"
	     "  --max-stored SIZE                              of suspended VMs, likewise\n"
	     "  --pool-memory SIZE                             guest memory of all ready VMs\n"
	     "  --total-vms N, --total-mem SIZE                limits for all together\n"
	     "  --forward-any     let admins forward from other than loopback addresses\n"
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

/* BASE:COUNT, none of them root or "no user"; or none at all. */
static int range_option(const char *text, uint32_t *ret_base, uint32_t *ret_count)
{
	const char *colon = strchr(text, ':');
	uint64_t base, count;
	char copy[16];

	if (!strcmp(text, "none")) {
		*ret_base = *ret_count = 0;
		return 0;
	}
	if (!colon || colon - text >= (long)sizeof(copy))
		return -EINVAL;
	memcpy(copy, text, (size_t)(colon - text));
	copy[colon - text] = '\0';
	if (value_number(copy, UINT32_MAX - 1, &base) < 0 ||
	    value_number(colon + 1, UINT32_MAX - 1, &count) < 0 || base == 0 || count == 0 ||
	    base + count > UINT32_MAX)
		return -EINVAL;
	*ret_base = (uint32_t)base;
	*ret_count = (uint32_t)count;
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
	case 'u': o->user = optarg; break;
	case 'U': r = range_option(optarg, &o->uid_base, &o->uid_count); break;
	case 'a': o->forward_any = true; break;
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

	*o = (struct options){ .ready_fd = -1, .session_idle_ns = SESSION_IDLE_NS,
			       .uid_base = PROCESS_UID_BASE, .uid_count = PROCESS_UID_COUNT };
	opterr = 0;
	while (r == 0 && (option = getopt_long(argc, argv, ":", known, NULL)) >= 0)
		r = parse_one(o, option, argv, err);
	if (r == 0 && optind < argc)
		r = err_set(err, EINVAL, "%s is no option; see casemated --help", argv[optind]);
	return r;
}

int group_find(const struct options *o, bool *ret_has, gid_t *ret_group, struct err *err)
{
	const struct group *g;

	*ret_has = false;
	if (!o->group)
		return 0;
	g = getgrnam(o->group);
	if (!g)
		return err_set(err, ENOENT, "there is no group %s", o->group);
	*ret_has = true;
	*ret_group = g->gr_gid;
	return 0;
}

void streams_drop(const struct options *o)
{
	int null;

	if (!o->session || o->verbose)
		return;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
	fd_close(null);
	if (chdir("/") < 0)
		errno = 0;
}

int main(int argc, char **argv)
{
	/* The parent's word, not a person's, so no option: see keeper.c. */
	bool engine = argc > 1 && !strcmp(argv[1], ENGINE_WORD);
	static struct options o;
	struct err err = ERR_INIT;

	argc -= engine;
	argv += engine;
	if (parse(&o, argc, argv, &err) < 0) {
		fprintf(stderr, "casemated: %s\n", err.text);
		if (!engine)
			keeper_refuse();
		return 2;
	}
	if (o.help) {
		usage();
		return 0;
	}
	return engine ? engine_main(&o) : keeper_main(&o, argc, argv);
}
