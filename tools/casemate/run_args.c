/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `casemate run`; see run.h. */
#include "tools/casemate/run.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/layout.h"
#include "base/value.h"
#include "tools/casemate/progress.h"

#define MEMORY_DEFAULT	(256ull << 20)
#define MEMORY_STEP	(2ull << 20)

static const struct option options_known[] = {
	{ "image", required_argument, NULL, 'i' },
	{ "mem", required_argument, NULL, 'm' },
	{ "timeout", required_argument, NULL, 't' },
	{ "env", required_argument, NULL, 'e' },
	{ "workdir", required_argument, NULL, 'w' },
	{ "kernel", required_argument, NULL, 'k' },
	{ "initd", required_argument, NULL, 'I' },
	{ "save", required_argument, NULL, 's' },
	{ "ready-when", required_argument, NULL, 'r' },
	{ "sync", no_argument, NULL, 'y' },
	{ "incremental", no_argument, NULL, 'n' },
	{ "from", required_argument, NULL, 'f' },
	{ "template", required_argument, NULL, 'p' },
	{ "no-wait", no_argument, NULL, 'W' },
	{ "keep", required_argument, NULL, 'K' },
	{ "socket", required_argument, NULL, 'o' },
	{ "quiet", no_argument, NULL, 'q' },
	{ "tty", no_argument, NULL, 'T' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "trace", no_argument, NULL, 'S' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* What every task gets; --env replaces by name. The host's own environment stays here. */
static const char *const env_default[] = {
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root",
	"TERM=dumb",
};

void run_usage(void)
{
	puts("usage: casemate run [options] -- COMMAND [ARGUMENT...]\n"
	     "  --image FILE     root image (EROFS); images/default.erofs beside casemate\n"
	     "  --mem SIZE       guest memory, a multiple of 2M (K, M, G); default 256M\n"
	     "  --timeout TIME   end the VM after TIME (ms, s, m, h) with status 124\n"
	     "  --env NAME=VALUE set a variable of the command; may be given again.\n"
	     "                   PATH, HOME=/root, TERM=dumb are set, nothing of the host's\n"
	     "  --workdir DIR    start in DIR of the guest; default /\n"
	     "  --save FILE      save the VM to FILE when the command has ended with status 0\n"
	     "  --ready-when LINE  save it when the command writes this line, and end. Its\n"
	     "                   stdin stays open for those that start from FILE\n"
	     "  --sync           the saved file is on the disk before casemate ends\n"
	     "  --incremental    save only what changed since the FILE of --from, which is then\n"
	     "                   needed beside the new one\n"
	     "  --from FILE      start from a saved VM; its image and memory size are given.\n"
	     "                   Without COMMAND the one that was saved running goes on\n"
	     "  --template NAME  a VM of this template of the daemon's (casemate template): a\n"
	     "                   ready one, or one made now. It ends with casemate, unless kept\n"
	     "  --no-wait        only a ready one, else fail at once\n"
	     "  --keep NAME      the VM stays and goes on under NAME, kept by the daemon; see\n"
	     "                   casemate exec, ls, kill, fork, snapshot\n"
	     "  --socket PATH    the daemon's socket, with --keep or --template\n"
	     "  --quiet          no progress while the VM is saved\n"
	     "  --tty            give the command a terminal; stdin must be one\n"
	     "  --verbose        show boot stages, guest console and a report on stderr\n"
	     "  --trace          --verbose, and each system call on stderr (slow)\n"
	     "  --kernel FILE, --initd FILE   use these instead of those beside casemate\n"
	     "Status: the command's; 128+N when it died of signal N; 124 timeout; 125 Casemate\n"
	     "failed; 126 not executable; 127 not found.");
}

static int env_add(struct run_options *o, const char *text, struct err *err)
{
	const char *equals = strchr(text, '=');
	size_t name;

	if (!equals || equals == text)
		return err_set(err, EINVAL, "--env wants NAME=VALUE, not %s", text);
	name = (size_t)(equals - text) + 1;
	for (unsigned int i = 0; i < o->envc; i++) {
		if (!strncmp(o->env[i], text, name)) {
			o->env[i] = text;
			return 0;
		}
	}
	if (o->envc == RUN_ENV_MAX)
		return err_set(err, EINVAL, "too many --env");
	o->env[o->envc++] = text;
	return 0;
}

static int parse_one(struct run_options *o, int option, char **argv, struct err *err)
{
	switch (option) {
	case 'i':
		o->image = optarg;
		return 0;
	case 'm':
		if (value_size(optarg, &o->memory) < 0 || o->memory == 0)
			return err_set(err, EINVAL, "--mem wants a size such as 256M, not %s",
				       optarg);
		if (o->memory % MEMORY_STEP || o->memory > CM_RAM_MAX)
			return err_set(err, EINVAL, "--mem wants a multiple of 2M, at most 64G, "
				       "such as 256M, not %s", optarg);
		return 0;
	case 't':
		if (value_time(optarg, UINT64_MAX, &o->timeout_ns) < 0 || o->timeout_ns == 0)
			return err_set(err, EINVAL, "--timeout wants a time such as 30s, not %s",
				       optarg);
		return 0;
	case 'e':
		return env_add(o, optarg, err);
	case 'S':
		o->trace = o->verbose = true;
		return 0;
	case 'w':
		o->workdir = optarg;
		return 0;
	case 'k':
		o->kernel = optarg;
		return 0;
	case 'I':
		o->initd = optarg;
		return 0;
	case 's':
		o->save = optarg;
		return 0;
	case 'r':
		o->ready_line = optarg;
		return 0;
	case 'y':
		o->sync = true;
		return 0;
	case 'n':
		o->incremental = true;
		return 0;
	case 'f':
		o->from = optarg;
		return 0;
	case 'p':
		o->template = optarg;
		return 0;
	case 'W':
		o->no_wait = true;
		return 0;
	case 'K':
		o->keep = optarg;
		return 0;
	case 'o':
		o->socket = optarg;
		return 0;
	case 'q':
		progress_quiet();
		return 0;
	case 'T':
		o->tty = true;
		return env_add(o, "TERM=xterm", err);
	case 'v':
		o->verbose = true;
		return 0;
	case 'h':
		o->help = true;
		return 0;
	case ':':
		return err_set(err, EINVAL, "%s wants a value; see casemate run --help",
			       argv[optind - 1]);
	default:
		return err_set(err, EINVAL, "unknown option %s; see casemate run --help",
			       argv[optind - 1]);
	}
}

static int check_kept(const struct run_options *o, struct err *err)
{
	bool kept = o->keep || o->template;

	if (o->socket && !kept)
		return err_set(err, EINVAL, "--socket wants --keep or --template");
	if (o->no_wait && !o->template)
		return err_set(err, EINVAL, "--no-wait wants --template");
	if (kept && (o->save || o->ready_line || o->verbose || o->kernel || o->initd))
		return err_set(err, EINVAL, "--save, --verbose, --trace, --kernel and --initd do "
			       "not go with %s: the daemon starts the VM",
			       o->template ? "--template" : "--keep");
	if (o->template && (o->from || o->image || o->memory))
		return err_set(err, EINVAL, "--from, --image and --mem do not go with "
			       "--template: it has its own");
	if (o->keep && o->from && o->argc == 0)
		return err_set(err, EINVAL, "no command; casemate restore --keep %s %s starts "
			       "the VM alone", o->keep, o->from);
	return 0;
}

static int check_together(struct run_options *o, struct err *err)
{
	if (check_kept(o, err) < 0)
		return err->code;
	if (o->argc == 0 && !o->from)
		return err_set(err, EINVAL, "no command; see casemate run --help");
	if (o->from && o->memory)
		return err_set(err, EINVAL, "--mem does not go with --from: a saved VM has the "
			       "memory it was saved with");
	if (o->from && o->trace)
		return err_set(err, EINVAL, "--trace does not go with --from: give it to the "
			       "run that saves");
	if (!o->save && (o->ready_line || o->sync))
		return err_set(err, EINVAL, "--ready-when and --sync want --save");
	if (o->incremental && (!o->save || !o->from))
		return err_set(err, EINVAL, "--incremental wants --from, which it builds on, "
			       "and --save");
	if (o->ready_line && (!o->ready_line[0] || strchr(o->ready_line, '\n')))
		return err_set(err, EINVAL, "--ready-when wants one line, without its newline");
	if (!o->memory)
		o->memory = MEMORY_DEFAULT;
	return 0;
}

int run_parse(struct run_options *o, int argc, char **argv, struct err *err)
{
	int option, r;

	*o = (struct run_options){ .workdir = "" };
	for (size_t i = 0; i < sizeof(env_default) / sizeof(env_default[0]); i++)
		env_add(o, env_default[i], err);
	opterr = 0;
	/* '+': the task's own options are not ours, also without "--". */
	while ((option = getopt_long(argc, argv, "+:h", options_known, NULL)) >= 0) {
		r = parse_one(o, option, argv, err);
		if (r < 0)
			return r;
	}
	o->argv = argv + optind;
	o->argc = (unsigned int)(argc - optind);
	return o->help ? 0 : check_together(o, err);
}
