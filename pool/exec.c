/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands in VMs and their streams.
 *
 * Output goes into a ring for each stream and from there to the command's reader. The guest
 * was granted CM_CREDIT_INITIAL bytes beyond the furthest place a reader has been, so the ring
 * always holds those and EXEC_REPLAY bytes behind that place, which a reader that lost its
 * connection can have again. Without a reader the guest waits when its credit is used up.
 * Beyond `limit` bytes, output is counted and dropped.
 *
 * stdin waits in a buffer of CM_CREDIT_INITIAL bytes for the guest's credit.
 *
 * A status comes from the guest's EXIT only. A command whose deadline is over is killed by
 * SIGKILL to its process group and still ends by EXIT; where none comes in time, the VM is
 * killed, which ends every process that the command started. Deadlines go on while a VM is
 * paused or on disk: then SIGKILL is the first that the command gets when its VM goes on.
 */
#include "pool/pool.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"

#define CREDIT_STEP	(CM_CREDIT_INITIAL / 4)
#define KILL_GRACE_NS	(5 * NS_PER_SEC)
#define STDIN_CHUNK	32768u

static void reader_call(struct exec *exec)
{
	if (exec->reader)
		exec->reader->ready(exec->reader);
}

/* ---- Making and ending ---- */

/* Whether the guest stands still and takes no frames. */
static bool is_at_rest(const struct vm *vm)
{
	return vm->still || vm->paused || vm->state != VM_READY;
}

static void on_deadline(struct timer *timer)
{
	struct exec *exec = list_entry(timer, struct exec, deadline);

	if (!exec->vm)
		return;
	if (exec->timed_out && !is_at_rest(exec->vm)) {
		vm_kill(exec->vm, "timeout", NULL, "a command did not end when its time was "
			"over");
		return;
	}
	exec->timed_out = true;
	if (exec->state == EXEC_QUEUED) {
		exec_lost(exec, "its time was over before it could begin");
		return;
	}
	exec->kill_due = true;
	vm_pump_later(exec->vm);
}

/* The guest cannot answer before it goes on; until then nothing of the command runs. A VM that
 * has no room for the frame has had its time: that is on_deadline()'s to say, since to end it
 * here would move the commands that vm_pump() goes through. */
static void deadline_kill(struct exec *exec)
{
	uint32_t number = SIGKILL;
	int r = vm_send(exec->vm, CM_F_SIGNAL, 0, exec->channel_id, &number, sizeof(number));

	exec->kill_due = false;
	timer_set(exec->pool->loop, &exec->deadline,
		  time_monotonic_ns() + (r < 0 ? 0 : KILL_GRACE_NS));
}

static struct exec *exec_make(struct vm *vm)
{
	struct exec *exec = calloc(1, sizeof(*exec));

	if (!exec)
		return NULL;
	exec->pool = vm->pool;
	exec->vm = vm;
	exec->owner = vm->owner;
	exec->id = ++vm->pool->exec_ids;
	exec->began_ns = time_monotonic_ns();
	strcpy(exec->vm_name, vm->name);
	list_init(&exec->waiters);
	timer_init(&exec->deadline, on_deadline);
	for (int i = 0; i < 2; i++)
		exec->out[i].credit = CM_CREDIT_INITIAL;
	exec->in_credit = CM_CREDIT_INITIAL;
	list_add_tail(&vm->execs, &exec->link);
	vm->exec_count++;
	vm->pool->stats.execs++;
	vm_timer_update(vm);
	return exec;
}

/* The payload of EXEC in *ret, malloc'd. Returns its length or -errno. */
static int payload_make(const struct exec_options *o, uint8_t **ret, struct err *err)
{
	struct cm_exec head = { .argc = o->argc, .envc = o->envc, .uid = o->uid, .gid = o->gid,
				.rows = o->tty ? o->rows : 0,
				.columns = o->tty ? o->columns : 0 };
	uint8_t *payload = malloc(CM_FRAME_MAX);
	int r;

	if (!payload)
		return err_set_errno(err, ENOMEM, "no memory for a command");
	r = frame_exec(payload, &head, o->argv, o->env, o->cwd ? o->cwd : "", err);
	if (r < 0)
		free(payload);
	else
		*ret = payload;
	return r;
}

/* What the frame's check would refuse is refused here, with words. */
static int options_check(const struct exec_options *o, struct err *err)
{
	if (o->argc < 1)
		return err_set(err, EINVAL, "no command was given");
	if (o->builtin && o->tty)
		return err_set(err, EINVAL, "such a command has no terminal");
	if (o->argc > CM_EXEC_STRINGS || o->envc > CM_EXEC_STRINGS)
		return err_set(err, E2BIG, "more than %u arguments or variables",
			       CM_EXEC_STRINGS);
	for (uint32_t i = 0; i < o->envc; i++) {
		if (o->env[i][0] == '=' || !strchr(o->env[i], '='))
			return err_set(err, EINVAL, "a variable is NAME=VALUE, not %.60s",
				       o->env[i]);
	}
	return 0;
}

int exec_new(struct vm *vm, const struct exec_options *o, struct exec **ret_exec,
	     struct err *err)
{
	struct exec *exec;
	uint8_t *payload = NULL;
	int r = options_check(o, err);

	if (r < 0)
		return r;
	if (vm->role != VM_LEASED || vm->state == VM_ENDING ||
	    (vm->state == VM_STARTING && !vm->woken))
		return err_set(err, ESTALE, "the VM %s is not running", vm->name);
	if (vm->paused)
		return err_set(err, EHOSTDOWN, "the VM %s is paused", vm->name);
	if (vm->exec_count >= POOL_VM_EXECS)
		return err_set(err, EDQUOT, "%u commands run in this VM already",
			       vm->exec_count);
	if (vm->channel_ids == UINT32_MAX)
		return err_set(err, ESTALE, "no number is left for a command in this VM");
	r = pool_exec_admit(vm->pool, vm->owner, err);
	if (r == 0)
		r = payload_make(o, &payload, err);
	if (r < 0)
		return r;
	if (vm->state == VM_SUSPENDED && vm_wake(vm, err) < 0) {
		free(payload);
		return err->code;
	}
	exec = exec_make(vm);
	if (!exec) {
		free(payload);
		return err_set(err, ENOMEM, "no memory for a command");
	}
	exec->channel_id = ++vm->channel_ids;
	exec->frame = payload;
	exec->frame_len = (size_t)r;
	exec->tty = o->tty;
	exec->builtin = o->builtin;
	exec->connection = o->connection;
	exec->has_stdin = o->has_stdin;
	exec->limit = o->limit;
	snprintf(exec->command, sizeof(exec->command), "%s", o->argv[0]);
	if (o->timeout_ns)
		timer_set(vm->pool->loop, &exec->deadline,
			  time_monotonic_ns() + o->timeout_ns);
	exec_pump(exec);
	*ret_exec = exec;
	return 0;
}

void exec_free(struct exec *exec)
{
	timer_set(exec->pool->loop, &exec->deadline, 0);
	list_remove(&exec->link);
	free(exec->frame);
	free(exec->out[0].ring);
	free(exec->out[1].ring);
	buf_done(&exec->in);
	free(exec);
}

static bool is_unwanted(const struct exec *exec)
{
	return exec->state == EXEC_ENDED && !exec->reader && list_empty(&exec->waiters);
}

void exec_forget(struct exec *exec)
{
	if (!is_unwanted(exec))
		return;
	exec->pool->ended_count--;
	exec_free(exec);
}

/* The oldest that nobody looks at, of the owner if he has more than a share, else of another:
 * who ends many does so at his own expense. NULL: all are looked at. */
static struct exec *ended_oldest(struct pool *pool, uid_t owner)
{
	struct exec *exec, *own = NULL, *other = NULL;
	unsigned int count = 0;

	list_for_each(exec, &pool->ended, struct exec, link) {
		count += exec->owner == owner;
		if (exec->owner == owner && !own && is_unwanted(exec))
			own = exec;
		if (exec->owner != owner && !other && is_unwanted(exec))
			other = exec;
		if (own && count > POOL_ENDED_SHARE)
			return own;
	}
	return other ? other : own;
}

/* Makes room among the ended ones, one more of which is this owner's. */
static void ended_trim(struct pool *pool, uid_t owner)
{
	while (pool->ended_count > POOL_ENDED_EXECS) {
		struct exec *exec = ended_oldest(pool, owner);

		if (!exec)
			return;
		exec_forget(exec);
	}
}

/* Nothing is added to it any more: what was never filled goes back. */
static void ring_trim(struct exec_stream *s)
{
	uint8_t *less = s->ring && s->end < EXEC_RING ? realloc(s->ring, (size_t)s->end) : NULL;

	if (less)
		s->ring = less;
}

/* The end is known: the command leaves its VM and waits to be read. */
static void exec_settle(struct exec *exec, enum exec_end end)
{
	struct vm *vm = exec->vm;
	struct pool *pool = exec->pool;
	uid_t owner = exec->owner;

	exec->end = end;
	exec->state = EXEC_ENDED;
	exec->ended_ns = time_monotonic_ns();
	exec->vm = NULL;
	list_remove(&exec->link);
	list_add_tail(&pool->ended, &exec->link);
	pool->ended_count++;
	vm->exec_count--;
	vm->idle_since_ns = exec->ended_ns;
	timer_set(pool->loop, &exec->deadline, 0);
	if (pool->ended_timer.at_ns == 0)
		timer_set(pool->loop, &pool->ended_timer, exec->ended_ns + POOL_ENDED_NS);
	free(exec->frame);
	exec->frame = NULL;
	buf_done(&exec->in);
	ring_trim(&exec->out[0]);
	ring_trim(&exec->out[1]);
	pool->stats.execs_ended++;
	vm_timer_update(vm);
	waiters_tell(&exec->waiters, exec, NULL);
	reader_call(exec);
	if (exec->dropped)
		exec_forget(exec);
	ended_trim(pool, owner);
}

void exec_lost(struct exec *exec, const char *reason)
{
	snprintf(exec->reason, sizeof(exec->reason), "%s", reason);
	exec_settle(exec, EXEC_END_LOST);
}

/* After RUNNING the guest may send CM_CREDIT_INITIAL bytes more of each stream, whatever was
 * granted before, and before it what it was granted: the ring must have room for both. */
const char *exec_may_sleep(const struct exec *exec)
{
	for (int i = 0; i < 2; i++) {
		const struct exec_stream *s = &exec->out[i];

		if (s->end - s->acked + s->credit > CM_CREDIT_INITIAL)
			return "output that it had before it was last suspended was not read";
	}
	return NULL;
}

void exec_sleep(struct exec *exec)
{
	if (exec->state == EXEC_QUEUED)
		return;
	exec->early = true;
	for (int i = 0; i < 2; i++) {
		exec->out[i].credit = CM_CREDIT_INITIAL;
		exec->out[i].owed = 0;
		exec->out[i].eof = false;	/* is said again */
	}
}

struct exec *pool_exec_find(struct pool *pool, uint64_t id)
{
	struct exec *exec;
	struct vm *vm;

	list_for_each(vm, &pool->vms, struct vm, link) {
		list_for_each(exec, &vm->execs, struct exec, link) {
			if (exec->id == id)
				return exec;
		}
	}
	list_for_each(exec, &pool->ended, struct exec, link) {
		if (exec->id == id)
			return exec;
	}
	return NULL;
}

/* ---- Output ---- */

static uint64_t stream_base(const struct exec_stream *s)
{
	return s->end > EXEC_RING ? s->end - EXEC_RING : 0;
}

const uint8_t *exec_front(const struct exec *exec, int stream, size_t *ret_len)
{
	const struct exec_stream *s = &exec->out[stream];
	size_t at = (size_t)(s->sent % EXEC_RING), len = (size_t)(s->end - s->sent);

	if (len > EXEC_RING - at)
		len = EXEC_RING - at;
	*ret_len = len;
	return s->ring + at;
}

void exec_consume(struct exec *exec, int stream, size_t len)
{
	struct exec_stream *s = &exec->out[stream];

	s->sent += len;
	if (s->sent > s->acked) {
		uint64_t n = s->sent - s->acked;

		s->acked = s->sent;
		/* Bytes from before RUNNING took no credit: a grant never exceeds the start. */
		if (n > CM_CREDIT_INITIAL - s->credit - s->owed)
			n = CM_CREDIT_INITIAL - s->credit - s->owed;
		s->owed += (uint32_t)n;
	}
	if (exec->vm && s->owed >= CREDIT_STEP)
		vm_pump_later(exec->vm);
}

void exec_rewind(struct exec *exec, int stream, uint64_t offset)
{
	struct exec_stream *s = &exec->out[stream];
	uint64_t from = stream_base(s);

	/* Further back, bytes that the guest may still send would overtake the reader. */
	if (s->acked > EXEC_REPLAY && from < s->acked - EXEC_REPLAY)
		from = s->acked - EXEC_REPLAY;
	if (offset < from)
		offset = from;
	s->sent = offset < s->acked ? offset : s->acked;
	if (offset > s->end)
		offset = s->end;
	/* Bytes that nobody had are skipped as if they had been read. */
	if (offset > s->sent)
		exec_consume(exec, stream, (size_t)(offset - s->sent));
}

bool exec_finished(const struct exec *exec)
{
	return exec->state == EXEC_ENDED && exec->out[0].sent == exec->out[0].end &&
	       exec->out[1].sent == exec->out[1].end;
}

static void ring_put(struct exec_stream *s, const uint8_t *data, size_t len)
{
	size_t at = (size_t)(s->end % EXEC_RING), first = EXEC_RING - at;

	if (first > len)
		first = len;
	memcpy(s->ring + at, data, first);
	memcpy(s->ring, data + first, len - first);
	s->end += len;
}

static const char *on_output(struct exec *exec, const struct frame *frame)
{
	struct exec_stream *s = &exec->out[frame->head.type == CM_F_STDERR];
	uint32_t n = frame->head.length, kept = n;

	if (s->eof)
		return "output after its end";
	if (n == 0) {
		s->eof = true;
		reader_call(exec);
		return NULL;
	}
	if (exec->early ? s->end - s->acked + n > CM_CREDIT_INITIAL : n > s->credit)
		return "more output than it was granted";
	if (!exec->early)
		s->credit -= n;
	if (exec->limit && kept > exec->limit - exec->total) {
		kept = (uint32_t)(exec->limit - exec->total);
		exec->truncated = true;
	}
	if (kept > 0 && !s->ring) {
		s->ring = malloc(EXEC_RING);
		if (!s->ring)
			kept = 0;
		exec->truncated |= !s->ring;
	}
	exec->total += kept;
	if (kept > 0)
		ring_put(s, frame->payload, kept);
	if (!exec->early)
		s->owed += n - kept;
	vm_pump_later(exec->vm);
	if (kept > 0)
		reader_call(exec);
	return NULL;
}

/* ---- Frames of the guest ---- */

static const char *on_running(struct exec *exec, const struct frame *frame)
{
	struct cm_running running;

	if (!exec->early)
		return "RUNNING for a command that is known";
	memcpy(&running, frame->payload, sizeof(running));
	exec->early = false;
	exec->state = EXEC_STARTED;
	exec->pid = running.pid;
	exec->in_credit = running.stdin_credit;
	exec->tty = frame->head.flags & CM_EXEC_TTY;
	exec->has_stdin = frame->head.flags & CM_EXEC_STDIN;
	exec->builtin = frame->head.flags & CM_EXEC_BUILTIN;
	/* It served a connection to the VM that this one was made of. One that comes back from
	 * the disk is nobody's copy. */
	if (exec->builtin && !exec->vm->woken)
		exec_drop(exec);
	return NULL;
}

static const char *on_exit_frame(struct exec *exec, const struct frame *frame)
{
	memcpy(&exec->usage, frame->payload, sizeof(exec->usage));
	exec->status = exec->usage.status;
	exec_settle(exec, EXEC_END_EXIT);
	return NULL;
}

static const char *on_credit(struct exec *exec, const struct frame *frame)
{
	struct cm_credit credit;

	memcpy(&credit, frame->payload, sizeof(credit));
	if (exec->early)
		return NULL;
	if (credit.bytes > CM_CREDIT_INITIAL - exec->in_credit)
		return "more credit than was used";
	exec->in_credit += credit.bytes;
	vm_pump_later(exec->vm);
	return NULL;
}

static struct exec *by_channel_id(struct vm *vm, uint32_t id)
{
	struct exec *exec;

	list_for_each(exec, &vm->execs, struct exec, link) {
		if (exec->channel_id == id)
			return exec;
	}
	return NULL;
}

/* A restored guest speaks of a command that began before us. */
static struct exec *exec_adopt(struct vm *vm, uint32_t id)
{
	struct exec *exec = vm->exec_count < POOL_VM_EXECS + 4 ? exec_make(vm) : NULL;

	if (!exec)
		return NULL;
	exec->channel_id = id;
	exec->early = true;
	exec->state = EXEC_SENT;
	exec->has_stdin = true;
	strcpy(exec->command, "(restored)");
	if (id > vm->channel_ids)
		vm->channel_ids = id;
	return exec;
}

const char *exec_frame(struct vm *vm, const struct frame *frame)
{
	struct exec *exec = by_channel_id(vm, frame->head.id);
	uint32_t number;

	if (!exec && vm->restored && vm->state == VM_STARTING)
		exec = exec_adopt(vm, frame->head.id);
	if (!exec)
		return frame->head.type == CM_F_CREDIT || frame->head.type == CM_F_ERROR ?
			NULL : "a frame for a command that does not exist";
	switch (frame->head.type) {
	case CM_F_STARTED:
		memcpy(&number, frame->payload, sizeof(number));
		exec->pid = number;
		if (exec->state == EXEC_SENT && !exec->early) {
			exec->state = EXEC_STARTED;
			pool_histogram_add(&vm->pool->stats.exec_start,
					   time_monotonic_ns() - exec->began_ns);
		}
		vm_pump_later(vm);
		return NULL;
	case CM_F_FAILED:
		memcpy(&exec->error, frame->payload, sizeof(exec->error));
		memcpy(&exec->step, frame->payload + 4, sizeof(exec->step));
		exec_settle(exec, EXEC_END_FAILED);
		return NULL;
	case CM_F_STDOUT:
	case CM_F_STDERR:
		return on_output(exec, frame);
	case CM_F_RUNNING:
		return on_running(exec, frame);
	case CM_F_EXIT:
		return on_exit_frame(exec, frame);
	case CM_F_CREDIT:
		return on_credit(exec, frame);
	case CM_F_ERROR:
		snprintf(exec->reason, sizeof(exec->reason), "the guest refused a request: "
			 "%.*s", (int)(frame->head.length > 200 ? 200 : frame->head.length),
			 (const char *)frame->payload);
		frame_text_clean(exec->reason, strlen(exec->reason));
		if (exec->state != EXEC_STARTED)
			exec_settle(exec, EXEC_END_LOST);
		return NULL;
	default:
		return "an unexpected frame";
	}
}

/* ---- To the guest ---- */

int exec_stdin(struct exec *exec, const uint8_t *data, size_t len)
{
	if (!exec->vm || !exec->has_stdin || exec->in_eof)
		return -EPIPE;
	if (!exec->in.data && buf_init(&exec->in, CM_CREDIT_INITIAL) < 0)
		return -ENOMEM;
	if (buf_append(&exec->in, data, len) < 0)
		return -ENOBUFS;
	vm_pump_later(exec->vm);
	return 0;
}

size_t exec_stdin_room(const struct exec *exec)
{
	if (!exec->vm || !exec->has_stdin || exec->in_eof)
		return 0;
	return exec->in.data ? buf_space(&exec->in) : CM_CREDIT_INITIAL;
}

int exec_stdin_close(struct exec *exec)
{
	if (!exec->vm || !exec->has_stdin || exec->in_eof)
		return -EPIPE;
	exec->in_eof = true;
	vm_pump_later(exec->vm);
	return 0;
}

static int control_send(struct exec *exec, uint16_t type, const void *payload, size_t len,
			struct err *err)
{
	if (!exec->vm)
		return err_set(err, ESRCH, "the command %llu has ended",
			       (unsigned long long)exec->id);
	if (is_at_rest(exec->vm))
		return err_set(err, EHOSTDOWN, "the VM %s is %s", exec->vm->name,
			       exec->vm->state == VM_SUSPENDED ? "suspended" :
			       exec->vm->state == VM_STARTING ? "starting" : "paused");
	if (exec->state == EXEC_QUEUED ||
	    vm_send(exec->vm, type, 0, exec->channel_id, payload, len) < 0)
		return err_set(err, EBUSY, "the VM takes no frames at the moment");
	return 0;
}

int exec_signal(struct exec *exec, uint32_t number, struct err *err)
{
	if (number < 1 || number > 64)
		return err_set(err, EINVAL, "a signal is a number from 1 to 64");
	return control_send(exec, CM_F_SIGNAL, &number, sizeof(number), err);
}

void exec_signal_due(struct exec *exec, uint32_t number)
{
	if (!exec->vm)
		return;
	if (exec->signal_due != SIGKILL)
		exec->signal_due = number;
	vm_pump_later(exec->vm);
}

void exec_kill(struct exec *exec)
{
	if (exec->vm && exec->state == EXEC_QUEUED)
		exec_lost(exec, "its client was gone before it could begin");
	else
		exec_signal_due(exec, SIGKILL);
}

void exec_drop(struct exec *exec)
{
	exec->dropped = true;
	if (exec->state == EXEC_ENDED)
		exec_forget(exec);
	else
		exec_kill(exec);
}

int exec_resize(struct exec *exec, uint16_t rows, uint16_t columns, struct err *err)
{
	uint16_t size[2] = { rows, columns };

	if (!exec->tty)
		return err_set(err, EINVAL, "the command has no terminal");
	return control_send(exec, CM_F_RESIZE, size, sizeof(size), err);
}

/* Bulk frames leave room for the small ones. */
static bool bulk_room(const struct vm *vm)
{
	return list_empty(&vm->requests) && buf_space(&vm->to_vmm) >= 2 * FRAME_BYTES_MAX;
}

static void stdin_pump(struct exec *exec)
{
	struct vm *vm = exec->vm;

	while (exec->in.len > 0 && exec->in_credit > 0 && bulk_room(vm)) {
		size_t len;
		const uint8_t *from = buf_front(&exec->in, &len);

		if (len > exec->in_credit)
			len = exec->in_credit;
		if (len > STDIN_CHUNK)
			len = STDIN_CHUNK;
		vm_send(vm, CM_F_STDIN, 0, exec->channel_id, from, len);
		buf_consume(&exec->in, len);
		exec->in_credit -= (uint32_t)len;
		exec->in_freed += (uint32_t)len;
	}
	if (exec->in_eof && !exec->in_eof_sent && exec->in.len == 0 && bulk_room(vm) &&
	    vm_send(vm, CM_F_STDIN, 0, exec->channel_id, NULL, 0) == 0)
		exec->in_eof_sent = true;
	if (exec->in_freed >= CREDIT_STEP)
		reader_call(exec);
}

static void credit_pump(struct exec *exec, int stream)
{
	struct exec_stream *s = &exec->out[stream];
	struct cm_credit credit = { .stream = stream ? CM_F_STDERR : CM_F_STDOUT,
				    .bytes = s->owed };

	if (s->owed < CREDIT_STEP || s->eof)
		return;
	if (vm_send(exec->vm, CM_F_CREDIT, 0, exec->channel_id, &credit, sizeof(credit)) < 0)
		return;
	s->credit += s->owed;
	s->owed = 0;
}

void exec_pump(struct exec *exec)
{
	struct vm *vm = exec->vm;
	uint16_t flags = (uint16_t)((exec->tty ? CM_EXEC_TTY : 0) |
				    (exec->builtin ? CM_EXEC_BUILTIN : 0) |
				    (exec->has_stdin ? CM_EXEC_STDIN : 0));

	if (!vm || vm->state != VM_READY || vm->still || exec->early)
		return;
	if (exec->state == EXEC_QUEUED && bulk_room(vm)) {
		vm_send(vm, CM_F_EXEC, flags, exec->channel_id, exec->frame, exec->frame_len);
		free(exec->frame);
		exec->frame = NULL;
		exec->state = EXEC_SENT;
	}
	if (exec->state == EXEC_QUEUED)
		return;
	if (exec->kill_due)
		deadline_kill(exec);
	if (exec->signal_due &&
	    vm_send(vm, CM_F_SIGNAL, 0, exec->channel_id, &exec->signal_due,
		    sizeof(exec->signal_due)) == 0)
		exec->signal_due = 0;
	stdin_pump(exec);
	credit_pump(exec, 0);
	credit_pump(exec, 1);
}
