/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A casemate-vmm without a VM: it speaks the channel's frames, takes VM_SAVE and VM_FORK, and
 * has a "guest" that knows a few commands, so that the daemon can be tested where there is no
 * KVM, by the hundred, and in ways that a real guest would not do. It is started with the
 * VMM's own options. Commands (argv[0]):
 *
 *   echo WORDS      to stdout                    cat          stdin to stdout, to its end
 *   exit N          ends with that code          sleep        until a signal
 *   stubborn        ends by nothing              flood N      N bytes to stdout, credits kept
 *   greedy          ignores credits              crash        the VMM dies
 *   panic           VM_END with a reason         missing      does not start (ENOENT)
 *   deaf            the VMM reads nothing more
 *   err WORDS       to stderr                    tick         a number each 20 ms while it is
 *                                                            not paused, until a signal
 *
 * and of initd's own ls, stat and get, as a hostile guest would answer: see file_verb(). A
 * snapshot has the tasks in it, as bytes on their way to the guest: what is restored goes on
 * with them.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/frame.h"
#include "snapshot/file.h"
#include "tests/daemon/fake_connect.h"

#define TASKS	64

struct task {
	uint32_t id;
	char name[16];
	bool has_stdin, builtin;
	uint64_t left;		/* of flood */
	uint32_t credit;
	uint32_t waits;		/* bytes of cat that have no credit yet */
	bool stdin_ended;
	uint32_t number;	/* of tick */
};

static int channel;
static bool hold, running, paused, based;
static struct task tasks[TASKS];
static uint8_t waiting[TASKS][CM_CREDIT_INITIAL];
static int passed[CM_VM_FORK_MAX];
static unsigned int passed_count;
static struct frame_decoder decoder;

void put_flags(uint16_t type, uint16_t flags, uint32_t id, const void *payload, size_t len)
{
	static uint8_t frame[FRAME_BYTES_MAX];
	struct cm_frame head = frame_head(type, flags, id, (uint32_t)len);

	/* In one piece, as a VMM sends it. */
	memcpy(frame, &head, sizeof(head));
	if (len > 0)
		memcpy(frame + sizeof(head), payload, len);
	if (fd_write_all(channel, frame, sizeof(head) + len) < 0)
		_exit(0);
}

void put(uint16_t type, uint32_t id, const void *payload, size_t len)
{
	put_flags(type, 0, id, payload, len);
}

static void task_exit(struct task *t, uint32_t status)
{
	struct cm_exit ended = { .status = status, .max_rss = 4096 };

	put(CM_F_STDOUT, t->id, NULL, 0);
	put(CM_F_STDERR, t->id, NULL, 0);
	put(CM_F_EXIT, t->id, &ended, sizeof(ended));
	t->id = 0;
}

static struct task *task_find(uint32_t id)
{
	for (int i = 0; i < TASKS; i++) {
		if (tasks[i].id == id)
			return &tasks[i];
	}
	return NULL;
}

static void flood_step(struct task *t)
{
	static const char bytes[16384] = { [0 ... 16383] = 'x' };

	while (t->left > 0 && t->credit > 0) {
		size_t n = t->left < sizeof(bytes) ? t->left : sizeof(bytes);

		if (n > t->credit)
			n = t->credit;
		put(CM_F_STDOUT, t->id, bytes, n);
		t->left -= n;
		t->credit -= (uint32_t)n;
	}
	if (t->left == 0)
		task_exit(t, 0);
}

static void words_put(struct task *t, uint16_t type, char **words, uint32_t count)
{
	char line[4096];
	size_t n = 0;

	for (uint32_t i = 0; i < count; i++)
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%s", i ? " " : "",
				      words[i]);
	line[n++] = '\n';
	put(type, t->id, line, n);
}

/* Everything is a directory of mode 06777; what a listing says depends on the path. */
static bool file_verb(struct task *t, const char *path)
{
	static const struct {
		const char *path, *says;
	} lists[] = {
		{ "/up", "name=../escaped type=file mode=0644\n" },
		{ "/up-later", "name=a/../../escaped type=file mode=0644\n" },
		{ "/absolute", "name=/tmp/escaped type=file mode=0644\n" },
		{ "/empty", "name=\"\" type=dir mode=0755\n" },
		{ "/nameless", "type=file mode=0644\n" },
		{ "/link", "name=l type=link mode=0777 target=..\n"
			   "name=l/escaped type=file mode=0644\n" },
		{ "/twice", "name=x type=link mode=0777 target=../escaped\n"
			    "name=x type=file mode=0644\n" },
		{ "/setuid", "name=x type=file mode=06777\nname=d type=dir mode=07777\n" },
		{ "/quote", "name=\"x\n" },
		{ "/chunk", "name=x type=file mode=0644 #5\nabcde" },
		{ "/half", "name=x type=file mode=0644" },
		{ "/blank", "\n" },
		{ "/control", "name=\"\\x1b[31m\" type=\"\\x1b\" mode=x\n" },
	};
	bool known = !strcmp(t->name, "ls") || !strcmp(t->name, "get") ||
		     !strcmp(t->name, "stat");

	if (!strcmp(t->name, "stat"))
		put(CM_F_STDOUT, t->id, "name=x type=dir mode=06777\n", 27);
	if (!strcmp(t->name, "get"))
		put(CM_F_STDOUT, t->id, "data", 4);
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		if (!strcmp(t->name, "ls") && !strcmp(path, lists[i].path))
			put(CM_F_STDOUT, t->id, lists[i].says, strlen(lists[i].says));
	}
	if (known)
		task_exit(t, 0);
	return known;
}

static void end_put(uint32_t reason, const char *text)
{
	struct {
		struct cm_vm_end end;
		char text[64];
	} frame = { .end.reason = reason };

	strcpy(frame.text, text);
	put(CM_F_VM_END, 0, &frame, sizeof(frame.end) + strlen(text));
	_exit(0);
}

static void on_exec(const struct frame *f)
{
	struct task *t = task_find(0);
	struct cm_exec exec;
	char *words[256], *at = (char *)f->payload + sizeof(exec);
	uint32_t pid = 42;
	struct cm_failed failed = { ENOENT, CM_FAILED_EXEC };

	memcpy(&exec, f->payload, sizeof(exec));
	for (uint32_t i = 0; i < exec.argc && i < 256; i++) {
		words[i] = at;
		at += strlen(at) + 1;
	}
	if (!t)
		_exit(1);
	if (!strcmp(words[0], "missing")) {
		put(CM_F_FAILED, f->head.id, &failed, sizeof(failed));
		return;
	}
	*t = (struct task){ .id = f->head.id, .credit = CM_CREDIT_INITIAL,
			    .has_stdin = f->head.flags & CM_EXEC_STDIN,
			    .builtin = f->head.flags & CM_EXEC_BUILTIN };
	snprintf(t->name, sizeof(t->name), "%s", words[0]);
	put(CM_F_STARTED, t->id, &pid, sizeof(pid));
	if (f->head.flags & CM_EXEC_BUILTIN && exec.argc > 1 && file_verb(t, words[1]))
		return;
	if (!strcmp(t->name, "echo") || !strcmp(t->name, "err")) {
		words_put(t, t->name[1] == 'c' ? CM_F_STDOUT : CM_F_STDERR, words + 1,
			  exec.argc - 1);
		task_exit(t, 0);
	} else if (!strcmp(t->name, "exit")) {
		task_exit(t, exec.argc > 1 ? (uint32_t)atoi(words[1]) << 8 : 0);
	} else if (!strcmp(t->name, "flood")) {
		t->left = exec.argc > 1 ? strtoull(words[1], NULL, 10) : 0;
		flood_step(t);
	} else if (!strcmp(t->name, "greedy")) {
		static const char bytes[CM_FRAME_MAX] = { 0 };

		for (int i = 0; i < 5; i++)
			put(CM_F_STDOUT, t->id, bytes, sizeof(bytes));
	} else if (!strcmp(t->name, "crash")) {
		_exit(1);
	} else if (!strcmp(t->name, "deaf")) {
		for (;;)
			pause();
	} else if (!strcmp(t->name, "panic")) {
		end_put(CM_VM_GUEST_PANIC, "as asked\nand more\x1b[31m");
	} else if (!strcmp(t->name, "cat") && !t->has_stdin) {
		task_exit(t, 0);
	}
}

static void cat_step(struct task *t)
{
	uint8_t *bytes = waiting[t - tasks];

	while (t->waits > 0 && t->credit > 0) {
		uint32_t n = t->waits < CM_FRAME_MAX ? t->waits : CM_FRAME_MAX;
		struct cm_credit credit = { .stream = CM_F_STDIN };

		if (n > t->credit)
			n = t->credit;
		put(CM_F_STDOUT, t->id, bytes, n);
		credit.bytes = n;
		put(CM_F_CREDIT, t->id, &credit, sizeof(credit));
		t->waits -= n;
		t->credit -= n;
		memmove(bytes, bytes + n, t->waits);
	}
	if (t->stdin_ended && t->waits == 0)
		task_exit(t, 0);
}

static void on_stdin(struct task *t, const struct frame *f)
{
	if (strcmp(t->name, "cat"))
		return;
	if (f->head.length > CM_CREDIT_INITIAL - t->waits)
		_exit(1);
	memcpy(waiting[t - tasks] + t->waits, f->payload, f->head.length);
	t->waits += f->head.length;
	t->stdin_ended = f->head.length == 0;
	cat_step(t);
}

static void booted(void)
{
	struct cm_vm_booted b = { .stage_ns = { 1 } };

	running = true;
	for (int i = 0; i < TASKS; i++) {
		struct cm_running r = { .pid = 42,
					.stdin_credit = CM_CREDIT_INITIAL - tasks[i].waits };
		uint16_t flags = (uint16_t)((tasks[i].has_stdin ? CM_EXEC_STDIN : 0) |
					    (tasks[i].builtin ? CM_EXEC_BUILTIN : 0));

		if (!tasks[i].id)
			continue;
		tasks[i].credit = CM_CREDIT_INITIAL;
		put_flags(CM_F_RUNNING, flags, tasks[i].id, &r, sizeof(r));
	}
	fake_connect_announce();
	put(CM_F_VM_BOOTED, 0, &b, sizeof(b));
	for (int i = 0; i < TASKS; i++) {
		if (tasks[i].id && tasks[i].left)
			flood_step(&tasks[i]);
		if (tasks[i].id && tasks[i].waits)
			cat_step(&tasks[i]);
	}
}

static void on_fork(const struct frame *f)
{
	struct cm_vm_forked forked = { .error = 0 };
	struct cm_vm_fork asked;

	memcpy(&asked, f->payload, sizeof(asked));
	if (passed_count < asked.count)
		_exit(1);
	for (uint32_t i = 0; i < asked.count; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			close(channel);
			channel = passed[i];
			for (unsigned int j = 0; j < passed_count; j++) {
				if (j != i)
					close(passed[j]);
			}
			passed_count = 0;
			hold = paused = false;
			frame_decoder_done(&decoder);
			if (frame_decoder_init(&decoder, FRAME_CLIENT_TO_VMM) < 0)
				_exit(1);
			booted();
			return;
		}
		forked.pid[i] = (uint32_t)pid;
	}
	for (uint32_t i = 0; i < asked.count; i++)
		close(passed[i]);
	passed_count -= asked.count;
	forked.count = asked.count;
	put(CM_F_VM_FORKED, 0, &forked, sizeof(forked));
}

/* A true snapshot file, of a machine that never was: the daemon opens and verifies it. */
static void on_save(uint16_t flags)
{
	static struct snapshot_id base;
	static uint8_t memory[SNAPSHOT_CHUNK];
	struct snapshot_source source = { .memory = memory, .size = sizeof(memory) };
	struct snapshot_state state = { .machine.memory_size = sizeof(memory) };
	struct cm_vm_saved saved = { .error = 0 };
	struct snapshot_id id;
	struct err err = ERR_INIT;

	if (passed_count < 1)
		_exit(1);
	for (int i = 0; i < TASKS; i++) {
		if (tasks[i].id && tasks[i].waits)
			err_set(&err, EBUSY, "what waits for credit is not saved");
	}
	snapshot_bytes_set(&state.console.to_guest, tasks, sizeof(tasks));
	if (err.code == 0 && flags & CM_SAVE_INCREMENTAL && !based)
		err_set(&err, ENODATA, "nothing was tracked");
	else if (err.code == 0 && flags & CM_SAVE_INCREMENTAL) {
		static uint64_t dirty[SNAPSHOT_CHUNK / SNAPSHOT_PAGE / 64];

		source.dirty = dirty;
		source.parent = &base;
	}
	if (err.code == 0)
		snapshot_write(passed[0], &state, &source, &id, &err);
	if (err.code == 0 && flags) {
		base = id;
		based = true;
	}
	snapshot_state_done(&state);
	if (err.code)
		saved.error = (uint32_t)-err.code;
	memcpy(saved.id, id.digest, sizeof(saved.id));
	close(passed[0]);
	passed_count--;
	put(CM_F_VM_SAVED, 0, &saved, sizeof(saved));
}

static void dispatch(const struct frame *f)
{
	struct task *t = f->head.id ? task_find(f->head.id) : NULL;
	struct cm_vm_paused stood = { .error = 0 };
	struct cm_credit credit;
	uint32_t number;

	/* A paused guest takes nothing, and a daemon sends it nothing. */
	if (paused && f->head.type < CM_F_VM_SAVE)
		_exit(1);
	if (fake_connect_frame(f))
		return;
	switch (f->head.type) {
	case CM_F_EXEC:
		on_exec(f);
		break;
	case CM_F_STDIN:
		if (t)
			on_stdin(t, f);
		break;
	case CM_F_SIGNAL:
		memcpy(&number, f->payload, sizeof(number));
		if (t && strcmp(t->name, "stubborn"))
			task_exit(t, number);
		break;
	case CM_F_CREDIT:
		memcpy(&credit, f->payload, sizeof(credit));
		if (t && credit.stream == CM_F_STDOUT) {
			t->credit += credit.bytes;
			if (t->left)
				flood_step(t);
			if (t->waits)
				cat_step(t);
		}
		break;
	case CM_F_VM_FORK:
		on_fork(f);
		break;
	case CM_F_VM_SAVE:
		on_save(f->head.flags);
		break;
	case CM_F_VM_PAUSE:
	case CM_F_VM_CONTINUE:
		paused = f->head.type == CM_F_VM_PAUSE;
		put(paused ? CM_F_VM_PAUSED : CM_F_VM_CONTINUED, 0, &stood, sizeof(stood));
		break;
	case CM_F_SHUTDOWN:
		end_put(CM_VM_POWEROFF, "");
		break;
	default:
		break;
	}
}

/* The tasks of the last --restore-fd's snapshot. */
static void tasks_load(int fd)
{
	static struct snapshot s;
	struct err err = ERR_INIT;
	const struct snapshot_bytes *saved = &s.state.console.to_guest;

	if (snapshot_open(&s, fd, &err) < 0)
		end_put(CM_VM_HOST_ERROR, "no snapshot");
	if (saved->size == sizeof(tasks))
		memcpy(tasks, saved->data, sizeof(tasks));
	snapshot_close(&s);
}

static bool ticks(void)
{
	bool any = false;

	for (int i = 0; i < TASKS && running && !paused; i++) {
		char line[16];

		if (!tasks[i].id || strcmp(tasks[i].name, "tick"))
			continue;
		any = true;
		if (tasks[i].credit < sizeof(line))
			continue;
		snprintf(line, sizeof(line), "%u\n", tasks[i].number++);
		tasks[i].credit -= (uint32_t)strlen(line);
		put(CM_F_STDOUT, tasks[i].id, line, strlen(line));
	}
	return any;
}

/* Waits for frames, ticking meanwhile. */
static void wait_ticking(void)
{
	struct pollfd p = { channel, POLLIN, 0 };

	while (ticks() && poll(&p, 1, 20) == 0)
		;
}

static ssize_t receive(void *bytes, size_t size)
{
	struct iovec iov = { bytes, size };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * CM_VM_FORK_MAX)];
	} control;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes,
			    .msg_controllen = sizeof(control.bytes) };
	ssize_t n = recvmsg(channel, &m, 0);

	for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL; c; c = CMSG_NXTHDR(&m, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		memcpy(passed + passed_count, CMSG_DATA(c), count * sizeof(int));
		passed_count += (unsigned int)count;
	}
	return n;
}

int main(int argc, char **argv)
{
	static uint8_t bytes[65536];
	char kernel[32] = "";
	int restore = -1;

	channel = 3;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--hold"))
			hold = true;
		if (!strcmp(argv[i], "--kernel-fd") && i + 1 < argc &&
		    pread(atoi(argv[i + 1]), kernel, sizeof(kernel) - 1, 0) < 0)
			return 1;
		if (!strcmp(argv[i], "--track"))
			based = true;
		if (!strcmp(argv[i], "--restore-fd") && i + 1 < argc)
			restore = atoi(argv[i + 1]);
	}
	signal(SIGCHLD, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);	/* a file that does not fit is an error */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (frame_decoder_init(&decoder, FRAME_CLIENT_TO_VMM) < 0)
		return 1;
	/* A kernel that consists of a number boots for so many milliseconds; "never" does not
	 * at all. */
	if (!hold && !strcmp(kernel, "never"))
		end_put(CM_VM_HOST_ERROR, "this kernel never starts");
	if (!hold)
		usleep((useconds_t)atoi(kernel) * 1000);
	if (restore >= 0)
		tasks_load(restore);
	if (!hold)
		booted();
	for (;;) {
		size_t at = 0;
		ssize_t n;

		wait_ticking();
		n = receive(bytes, sizeof(bytes));

		if (n <= 0)
			return 0;
		while (at < (size_t)n) {
			struct frame f;
			size_t used;
			int before = channel;
			int r = frame_decoder_feed(&decoder, bytes + at, (size_t)n - at, &used,
						   &f);

			at += used;
			if (r < 0)
				return 1;
			if (r > 0)
				dispatch(&f);
			/* A forked child: what else was read is its parent's. */
			if (channel != before)
				break;
		}
	}
}
