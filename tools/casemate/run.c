/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate run`: one task in one VM, from here to its exit status.
 *
 * A poll(2) loop between stdin, stdout, stderr, signals and the channel to casemate-vmm. The
 * EXEC frame is queued at once; the VMM holds it until the guest is ready. Output waits in
 * one queue a stream; credits bound what can be in it, so that the channel is always read
 * and a slow stdout stalls only the task. Output descriptors are not set non-blocking (they
 * belong to others too): pipes and sockets get at most PIPE_BUF bytes once poll says there is
 * room, which cannot block.
 *
 * With --from the guest has a past. Frames of commands that were under way come before
 * VM_BOOTED (abi/channel.h); our own EXEC goes out after it, with an id that is free. Without
 * a COMMAND of ours we take the place of the client of the command that RUNNING names.
 *
 * The ends, in struct run: `exited` (EXIT or FAILED came: flush, then go), `vm_gone` (VM_END
 * or the socket's end) and `stop` (timeout, signal, failure of ours). Whatever the end, the
 * VMM is killed and reaped; the VM dies with it. casemate killed itself: the VMM sees its
 * socket end, and the kernel sends it SIGKILL for its parent's death.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/time.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/progress.h"
#include "tools/casemate/run_state.h"

#define TO_VMM_CAP	(4 * FRAME_BYTES_MAX)
#define STDIN_CHUNK	32768u
#define CREDIT_STEP	(CM_CREDIT_INITIAL / 4)	/* grant again from this many bytes on */
#define SAVE_LOOK_MS	200
#define GRACE_NS	(2 * NS_PER_SEC)	/* from the first signal to the VM's end */
#define FAREWELL_NS	(3 * NS_PER_SEC)	/* for the report and an orderly end */
#define LAST_WORDS_NS	(1 * NS_PER_SEC)	/* for output when the VM is gone already */

void run_stop(struct run *run, int status)
{
	if (run->stop || run->exited)
		return;
	run->stop = true;
	run->status = status;
}

void run_failed(struct run *run)
{
	run_stop(run, EXIT_CASEMATE);
}

static void frame_queue(struct run *run, uint16_t type, uint32_t id, const void *payload,
			size_t len)
{
	struct cm_frame head = frame_head(type, 0, id, (uint32_t)len);

	/* The small frames always fit: stdin is only read while there is room to spare. */
	if (buf_space(&run->to_vmm) < sizeof(head) + len) {
		err_set(&run->err, ENOBUFS, "the VMM does not take what it is sent");
		run_failed(run);
		return;
	}
	buf_append(&run->to_vmm, &head, sizeof(head));
	buf_append(&run->to_vmm, payload, len);
}

/* ---- EXEC ---- */

static int exec_queue(struct run *run)
{
	const struct run_options *o = run->options;
	static uint8_t payload[CM_FRAME_MAX];
	struct cm_exec exec = { .argc = o->argc, .envc = o->envc };
	struct cm_frame head;
	struct winsize size;
	int used;

	if (o->tty && ioctl(0, TIOCGWINSZ, &size) == 0) {
		exec.rows = size.ws_row;
		exec.columns = size.ws_col;
	}
	used = frame_exec(payload, &exec, (const char *const *)o->argv, o->env, o->workdir,
			  &run->err);
	if (used < 0)
		return used;
	head = frame_head(CM_F_EXEC, (uint16_t)((o->tty ? CM_EXEC_TTY : 0) |
			  (run->stdin_open ? CM_EXEC_STDIN : 0)), run->exec_id, (uint32_t)used);
	buf_append(&run->to_vmm, &head, sizeof(head));
	return buf_append(&run->to_vmm, payload, (size_t)used);
}

/* ---- Frames from the VMM ---- */

void run_protocol_error(struct run *run, const char *what)
{
	err_set(&run->err, EPROTO, "the guest broke the channel's protocol: %s", what);
	run_failed(run);
}

static void on_output(struct run *run, struct output *out, const struct frame *frame)
{
	uint32_t n = frame->head.length;

	if (run->resumed ? n > out->credit : n > buf_space(&out->pending)) {
		run_protocol_error(run, "more output than it was granted");
		return;
	}
	if (run->resumed)
		out->credit -= n;
	else
		out->early += n;
	if (out->broken)
		out->owed += n;
	else
		buf_append(&out->pending, frame->payload, n);
}

static void on_task_exit(struct run *run, const struct frame *frame)
{
	struct cm_exit ended;

	memcpy(&ended, frame->payload, sizeof(ended));
	if (run->stop)
		return;
	run->exited = true;
	if (WIFSIGNALED((int)ended.status))
		run->status = 128 + WTERMSIG((int)ended.status);
	else
		run->status = WEXITSTATUS((int)ended.status);
	run_save_on_exit(run);
}

static void on_failed(struct run *run, const struct frame *frame)
{
	struct cm_failed failed;
	const char *name = run->options->argc ? run->options->argv[0] : "the command";
	int status = EXIT_CASEMATE;

	memcpy(&failed, frame->payload, sizeof(failed));
	if (run->stop)
		return;
	if (failed.step == CM_FAILED_EXEC) {
		status = failed.error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
		casemate_fail("%s: %s", name, status == EXIT_NOT_FOUND ?
			      "not found in the guest" : strerror((int)failed.error));
	} else if (failed.step == CM_FAILED_CHDIR) {
		status = EXIT_CANNOT_RUN;
		casemate_fail("cannot change to %s in the guest: %s", run->options->workdir,
			      strerror((int)failed.error));
	} else {
		casemate_fail("the guest cannot start %s: %s", name,
			      strerror((int)failed.error));
	}
	run->exited = true;
	run->status = status;
}

static void on_credit(struct run *run, const struct frame *frame)
{
	struct cm_credit credit;

	memcpy(&credit, frame->payload, sizeof(credit));
	if (credit.bytes > CM_CREDIT_INITIAL - run->stdin_credit)
		run_protocol_error(run, "more credit than was used");
	else
		run->stdin_credit += credit.bytes;
}

static void on_vm_end(struct run *run, const struct frame *frame)
{
	struct cm_vm_end end;

	run->end_seen = true;
	memcpy(&end, frame->payload, sizeof(end));
	if (run->exited || run->stop)
		return;
	if (end.reason == CM_VM_POWEROFF)
		err_set(&run->err, EIO, "the guest powered off before the command was over");
	else if (end.reason == CM_VM_HOST_ERROR)
		run_end_show(run->options->verbose, "casemate: ", frame);
	else
		run_end_show(run->options->verbose, "casemate: the VM was lost: ", frame);
	run_failed(run);
}

static void on_resize(struct run *run)
{
	struct winsize size;
	uint16_t payload[2];

	if (!run->options->tty || ioctl(0, TIOCGWINSZ, &size) < 0)
		return;
	payload[0] = size.ws_row;
	payload[1] = size.ws_col;
	frame_queue(run, CM_F_RESIZE, run->exec_id, payload, sizeof(payload));
}

static void on_running(struct run *run, const struct frame *frame)
{
	struct cm_running running;

	memcpy(&running, frame->payload, sizeof(running));
	run->resumed = run->started = true;
	for (int i = 0; i < 2; i++)
		run->out[i].credit = CM_CREDIT_INITIAL;
	run->stdin_credit = running.stdin_credit;
	run->stdin_open &= (frame->head.flags & CM_EXEC_STDIN) != 0;
	if (run->options->tty && !(frame->head.flags & CM_EXEC_TTY)) {
		err_set(&run->err, ENOTTY, "the snapshot's command has no terminal: leave out "
			"--tty");
		run_failed(run);
	}
	on_resize(run);
}

static void on_booted(struct run *run, const struct frame *frame)
{
	const struct run_options *o = run->options;

	if (o->verbose)
		run_booted_show(frame, run->start_ns);
	if (!o->from)
		return;
	if (o->argc == 0 && run->exec_id == 0) {
		err_set(&run->err, ESRCH, "no command goes on in the snapshot: give one "
			"behind --");
		run_failed(run);
	} else if (o->argc > 0) {
		run->exec_id = run->ids_used + 1;
		run->resumed = true;
		if (run->exec_id == 0)
			run_protocol_error(run, "no number is left for a command");
		else if (exec_queue(run) < 0)
			run_failed(run);
	}
}

/* Whether a frame with an id is of our command. Others' go on without us. */
static bool frame_is_ours(struct run *run, const struct frame *frame)
{
	uint32_t id = frame->head.id;

	if (!run->options->from) {
		if (id != run->exec_id)
			run_protocol_error(run, "a frame for a command that does not exist");
		return id == run->exec_id;
	}
	if (id > run->ids_used)
		run->ids_used = id;
	if (run->options->argc == 0 && run->exec_id == 0)
		run->exec_id = id;
	return id == run->exec_id;
}

static void frame_dispatch(struct run *run, const struct frame *frame)
{
	bool verbose = run->options->verbose;

	if (frame->head.id != 0 && (!frame_is_ours(run, frame) || run->exited))
		return;
	switch (frame->head.type) {
	case CM_F_VM_BOOTED:
		on_booted(run, frame);
		break;
	case CM_F_RUNNING:
		on_running(run, frame);
		break;
	case CM_F_STARTED:
		run->started = true;
		break;
	case CM_F_STDOUT:
		on_output(run, &run->out[0], frame);
		if (line_match_feed(&run->ready, frame->payload, frame->head.length))
			run->save_due = true;
		break;
	case CM_F_STDERR:
		on_output(run, &run->out[1], frame);
		break;
	case CM_F_EXIT:
		on_task_exit(run, frame);
		break;
	case CM_F_FAILED:
		on_failed(run, frame);
		break;
	case CM_F_CREDIT:
		on_credit(run, frame);
		break;
	case CM_F_REPORT:
		if (verbose)
			run_text_show("", frame, 0);
		/* initd does not finish its report once it is told to stop */
		if ((frame->head.flags & 1) && run->farewell_sent && !run->report_done)
			frame_queue(run, CM_F_SHUTDOWN, 0, NULL, 0);
		run->report_done |= frame->head.flags & 1;
		break;
	case CM_F_ERROR:
		if (!run->exited) {
			run_text_show("casemate: the guest refused a request: ", frame, 0);
			run_failed(run);
		}
		break;
	case CM_F_VM_SAVED:
		run_save_answered(run, frame);
		break;
	case CM_F_VM_END:
		on_vm_end(run, frame);
		break;
	case CM_F_VM_CONSOLE:
		if (verbose)
			run_text_show("guest: ", frame, 0);
		break;
	case CM_F_LOG:
	case CM_F_VM_LOG:
		if (verbose)
			run_text_show(frame->head.type == CM_F_LOG ? "initd: " : "vmm: ", frame, 0);
		break;
	default:
		break;
	}
}

static void channel_lost(struct run *run)
{
	run->vm_gone = true;
	if (run->exited || run->stop || run->end_seen)
		return;
	err_set(&run->err, EPIPE, "the VMM died without a word; dmesg may say why");
	run_failed(run);
}

static void channel_read(struct run *run)
{
	static uint8_t bytes[CM_FRAME_MAX];
	ssize_t n = recv(run->channel, bytes, sizeof(bytes), 0);
	size_t at = 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		channel_lost(run);
		return;
	}
	while (at < (size_t)n) {
		struct frame frame;
		size_t used;
		int r = frame_decoder_feed(&run->decoder, bytes + at, (size_t)n - at, &used,
					   &frame);

		at += used;
		if (r < 0) {
			run_protocol_error(run, run->decoder.why);
			run->vm_gone = true;
			return;
		}
		if (r > 0)
			frame_dispatch(run, &frame);
	}
}

static void channel_write(struct run *run)
{
	size_t len;
	const uint8_t *from = buf_front(&run->to_vmm, &len);
	ssize_t n = send(run->channel, from, len, MSG_NOSIGNAL);

	if (n > 0)
		buf_consume(&run->to_vmm, (size_t)n);
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		/* The reason is still to be read. */
		buf_consume(&run->to_vmm, run->to_vmm.len);
}

/* ---- Streams ---- */

static void output_init(struct output *out, int fd, uint16_t type)
{
	struct stat st;

	out->fd = fd;
	out->type = type;
	out->credit = CM_CREDIT_INITIAL;
	out->chunked = fstat(fd, &st) < 0 || !S_ISREG(st.st_mode);
}

static void output_credit(struct run *run, struct output *out)
{
	struct cm_credit credit = { .stream = out->type, .bytes = out->owed };

	if (out->owed < CREDIT_STEP || run->exited || run->stop)
		return;
	frame_queue(run, CM_F_CREDIT, run->exec_id, &credit, sizeof(credit));
	out->credit += out->owed;
	out->owed = 0;
}

static void output_broken(struct run *run, struct output *out, int error)
{
	uint32_t sigpipe = SIGPIPE;

	out->broken = true;
	out->owed += (uint32_t)out->pending.len - out->early;
	out->early = 0;
	buf_consume(&out->pending, out->pending.len);
	if (error != EPIPE && !run->exited && out->type == CM_F_STDOUT) {
		err_set_errno(&run->err, error, "cannot write the command's output");
		run_failed(run);
	} else if (!run->exited && out->type == CM_F_STDOUT) {
		/* As if the task had written to the closed pipe itself. */
		frame_queue(run, CM_F_SIGNAL, run->exec_id, &sigpipe, sizeof(sigpipe));
	}
}

static void output_write(struct run *run, struct output *out)
{
	size_t len;
	const uint8_t *from = buf_front(&out->pending, &len);
	ssize_t n;

	if (out->chunked && len > PIPE_BUF)
		len = PIPE_BUF;
	n = write(out->fd, from, len);
	if (n > 0) {
		uint32_t early = (uint32_t)n < out->early ? (uint32_t)n : out->early;

		out->midline = from[n - 1] != '\n';
		buf_consume(&out->pending, (size_t)n);
		out->early -= early;
		out->owed += (uint32_t)n - early;
	} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
		output_broken(run, out, errno);
	}
}

static void stdin_read(struct run *run)
{
	static uint8_t bytes[STDIN_CHUNK];
	size_t want = run->stdin_credit < sizeof(bytes) ? run->stdin_credit : sizeof(bytes);
	ssize_t n = read(0, bytes, want);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		/* An unreadable stdin ends like an empty one. */
		run->stdin_open = false;
		n = 0;
	}
	run->stdin_credit -= (uint32_t)n;
	frame_queue(run, CM_F_STDIN, run->exec_id, bytes, (size_t)n);
}

/* ---- Signals and time ---- */

static void deadline_set(struct run *run, uint64_t from_now)
{
	uint64_t at = time_monotonic_ns() + from_now;

	if (run->deadline_ns == 0 || at < run->deadline_ns)
		run->deadline_ns = at;
}

static void signal_read(struct run *run)
{
	struct signalfd_siginfo info;
	uint32_t number;

	if (read(run->signals, &info, sizeof(info)) != sizeof(info))
		return;
	number = info.ssi_signo;
	if (number == SIGWINCH) {
		on_resize(run);
		return;
	}
	/* The second one, or one that there is no task for yet: the VM goes at once. */
	if (run->signal_seen || !run->started || run->exited) {
		run->exited = false;
		run_stop(run, 128 + (int)number);
		return;
	}
	run->signal_seen = (int)number;
	frame_queue(run, CM_F_SIGNAL, run->exec_id, &number, sizeof(number));
	deadline_set(run, GRACE_NS);
}

static void on_deadline(struct run *run)
{
	run->deadline_ns = 0;
	if (run->exited) {
		/* The farewell took too long. */
		run->vm_gone = true;
		return;
	}
	if (run->signal_seen) {
		run_stop(run, 128 + run->signal_seen);
		return;
	}
	casemate_fail("timeout after %.3g s", (double)run->options->timeout_ns / 1e9);
	run_stop(run, EXIT_TIMEOUT);
}

/* ---- The loop ---- */

/* With --verbose the guest is asked for its report and to power off, which is slower than
 * killing it; the last frames bring the VMM's own figures. */
static void farewell(struct run *run)
{
	if (!run->options->verbose) {
		run->vm_gone = true;
		return;
	}
	if (run->farewell_sent)
		return;
	run->farewell_sent = true;
	frame_queue(run, CM_F_REPORT_GET, 0, NULL, 0);
	run->deadline_ns = 0;
	deadline_set(run, FAREWELL_NS);
}

static int poll_timeout(const struct run *run)
{
	uint64_t now = time_monotonic_ns();
	int most = run->save_asked && !run->save_done && progress_wanted() ? SAVE_LOOK_MS : -1;

	if (run->deadline_ns == 0)
		return most;
	if (run->deadline_ns <= now)
		return 0;
	if (most > 0 && run->deadline_ns - now > (uint64_t)most * 1000000)
		return most;
	return (int)((run->deadline_ns - now) / 1000000 + 1);
}

enum { P_CHANNEL, P_SIGNALS, P_STDOUT, P_STDERR, P_STDIN, P_COUNT };

static bool stdin_wanted(const struct run *run)
{
	/* With --ready-when it is for those that start from the snapshot. */
	return run->stdin_open && run->started && !run->exited && run->stdin_credit > 0 &&
	       !run->options->ready_line &&
	       buf_space(&run->to_vmm) > 2 * FRAME_BYTES_MAX;
}

static void run_poll(struct run *run)
{
	struct pollfd p[P_COUNT] = {
		[P_CHANNEL] = { run->vm_gone ? -1 : run->channel,
				(short)(POLLIN | (run->to_vmm.len ? POLLOUT : 0)), 0 },
		[P_SIGNALS] = { run->signals, POLLIN, 0 },
		[P_STDOUT] = { run->out[0].pending.len ? run->out[0].fd : -1, POLLOUT, 0 },
		[P_STDERR] = { run->out[1].pending.len ? run->out[1].fd : -1, POLLOUT, 0 },
		[P_STDIN] = { stdin_wanted(run) ? 0 : -1, POLLIN, 0 },
	};
	int n = poll(p, P_COUNT, poll_timeout(run));

	run_save_show(run);
	if (n == 0 && poll_timeout(run) == 0)
		on_deadline(run);
	if (n <= 0)
		return;
	if (p[P_SIGNALS].revents)
		signal_read(run);
	for (int i = 0; i < 2; i++) {
		if (p[P_STDOUT + i].revents & (POLLOUT | POLLERR | POLLHUP | POLLNVAL))
			output_write(run, &run->out[i]);
		output_credit(run, &run->out[i]);
	}
	if (p[P_STDIN].revents)
		stdin_read(run);
	if (p[P_CHANNEL].revents & POLLOUT)
		channel_write(run);
	if (p[P_CHANNEL].revents & (POLLIN | POLLHUP | POLLERR))
		channel_read(run);
}

static bool output_waits(const struct run *run)
{
	return run->out[0].pending.len > 0 || run->out[1].pending.len > 0;
}

static void run_loop(struct run *run)
{
	if (run->options->timeout_ns)
		deadline_set(run, run->options->timeout_ns);
	while (!run->stop && !(run->exited && !output_waits(run) && run->vm_gone)) {
		run_save_step(run);
		if (run->exited && !output_waits(run) && !run->vm_gone && !run_saving(run)) {
			farewell(run);
			if (run->vm_gone)
				break;
		}
		run_poll(run);
	}
}

/* The VM is lost or was stopped: what had come before still goes out, if it goes soon. */
static void last_words(struct run *run)
{
	uint64_t until = time_monotonic_ns() + LAST_WORDS_NS;

	while (output_waits(run) && time_monotonic_ns() < until) {
		struct pollfd p[2] = {
			{ run->out[0].pending.len ? run->out[0].fd : -1, POLLOUT, 0 },
			{ run->out[1].pending.len ? run->out[1].fd : -1, POLLOUT, 0 },
		};

		if (poll(p, 2, 100) <= 0)
			continue;
		for (int i = 0; i < 2; i++) {
			if (p[i].revents)
				output_write(run, &run->out[i]);
		}
	}
}

static void vmm_end(struct run *run)
{
	int status;

	if (run->vmm <= 0)
		return;
	/* After its last frame, too: it has nothing more to say and may not hold us up. */
	kill(run->vmm, SIGKILL);
	fd_close(run->channel);
	while (waitpid(run->vmm, &status, 0) < 0 && errno == EINTR)
		;
	run->vmm = -1;
}

static int run_init(struct run *run, const struct run_options *options)
{
	int r;

	*run = (struct run){ .options = options, .channel = -1, .signals = -1, .vmm = -1,
			     .stdin_credit = CM_CREDIT_INITIAL, .err = ERR_INIT,
			     .save = SAVE_INIT, .ready.line = options->ready_line,
			     .start_ns = time_monotonic_ns() };
	run->stdin_open = fcntl(0, F_GETFD) >= 0 || options->ready_line;
	/* Closed standard descriptors would be given to something else. */
	for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = dup(fd)) {
		if (fd > 2) {
			close(fd);
			break;
		}
	}
	if (options->tty && !isatty(0))
		return err_set(&run->err, ENOTTY, "--tty needs a terminal as stdin");
	output_init(&run->out[0], 1, CM_F_STDOUT);
	output_init(&run->out[1], 2, CM_F_STDERR);
	/* What an earlier client had granted may come besides what we do. */
	r = buf_init(&run->out[0].pending, 2 * CM_CREDIT_INITIAL);
	if (r == 0)
		r = buf_init(&run->out[1].pending, 2 * CM_CREDIT_INITIAL);
	if (r == 0)
		r = buf_init(&run->to_vmm, TO_VMM_CAP);
	if (r == 0)
		r = frame_decoder_init(&run->decoder, FRAME_VMM_TO_CLIENT);
	if (r < 0)
		return err_set_errno(&run->err, r, "cannot start");
	run->signals = terminal_signals();
	if (run->signals < 0)
		return err_set_errno(&run->err, errno, "cannot wait for signals");
	if (options->save &&
	    save_begin(&run->save, options->save, options->sync, &run->err) < 0)
		return run->err.code;
	if (options->from)
		return 0;
	run->exec_id = 1;
	run->resumed = true;
	return exec_queue(run);
}

static void run_done(struct run *run)
{
	buf_done(&run->out[0].pending);
	buf_done(&run->out[1].pending);
	buf_done(&run->to_vmm);
	frame_decoder_done(&run->decoder);
	run->signals = fd_close(run->signals);
	save_abandon(&run->save);
}

int cmd_run(int argc, char **argv)
{
	static struct run_options options;
	static struct run run;
	struct err err = ERR_INIT;

	if (run_parse(&options, argc, argv, &err) < 0)
		return casemate_fail("%s", err.text);
	if (options.help) {
		run_usage();
		return 0;
	}
	if (options.keep || options.template)
		return run_by_daemon(&options);
	if (run_init(&run, &options) < 0 ||
	    run_vmm_start(&options, &run.vmm, &run.channel, &run.err) < 0) {
		run_done(&run);
		return casemate_fail("%s", run.err.text);
	}
	if (options.tty)
		terminal_raw(&run.terminal);
	run_loop(&run);
	last_words(&run);
	terminal_restore(&run.terminal);
	vmm_end(&run);
	if (options.save && !run.save_done && run.status == 0)
		run.status = EXIT_CASEMATE;
	if (options.save && !run.save_done)
		err_set(&run.err, ECANCELED, "nothing was saved: the VM ended before that");
	if (run.err.code)
		casemate_fail("%s", run.err.text);
	run_done(&run);
	return run.status;
}
