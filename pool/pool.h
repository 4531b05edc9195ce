/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of the host daemon: VMs, the commands in them, templates and their ready VMs,
 * limits, events and counters. It knows nothing of clients or of the line protocol.
 *
 * One thread owns all of it and serves the loop (evloop.h); files that clients name are opened
 * and verified beside it (opening.h). Each VM is one casemate-vmm process, spoken to over its
 * socket with the frames of abi/channel.h. The privileged parent (parent.h) starts and ends it
 * when asked (link.c).
 *
 * A VM's states:
 *
 *   STARTING   the process was started or forked; waits for VM_BOOTED
 *   READY      takes commands, unless it is paused
 *   SUSPENDED  is a file and has no process; STARTING again when it is wanted (suspend.c)
 *   ENDING     the process was killed or said VM_END; waits for its end, then it is freed
 *
 * and its roles: HELD (a template's zygote, never runs), WARM (ready and nobody's yet), LEASED
 * (somebody's, and nobody else's ever after).
 *
 * What takes time is told by callbacks: struct waiter, at the end of the request, exactly
 * once. Names and owners: a VM belongs to the uid that asked for it.
 */
#ifndef CASEMATE_POOL_POOL_H
#define CASEMATE_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/frame.h"
#include "base/list.h"
#include "pool/boundary.h"
#include "pool/evloop.h"
#include "pool/opening.h"
#include "pool/saving.h"
#include "pool/spawn.h"
#include "pool/usage.h"
#include "snapshot/file.h"

#define POOL_NAME_MAX		63u	/* of VMs, templates */
#define POOL_NAME_HASHES	256u
#define POOL_LABEL_MAX		127u
#define POOL_REASON_MAX		ERR_TEXT_MAX
#define POOL_EVENTS		512u	/* kept for late readers */
#define POOL_VM_EXECS		60u	/* at once; initd takes 64 */
#define POOL_ENDED_EXECS	256u	/* that can still be asked about */
#define POOL_ENDED_SHARE	64u	/* of them, that are nobody else's to push out */
#define POOL_ENDED_NS		(30 * NS_PER_SEC)
#define POOL_TEMPLATES		64u
#define POOL_READY_MAX		10000u	/* VMs wanted of a template */
#define POOL_VM_REQUESTS	64u	/* snapshots and forks that wait for one VM */
#define EXEC_REPLAY		(2 * CM_CREDIT_INITIAL)	/* bytes kept behind the reader */
/* Of a stream. What the guest may still send is twice its credit where the VM was suspended or
 * saved with as much unread: it has fresh credit when it goes on. */
#define EXEC_RING		(EXEC_REPLAY + 2 * CM_CREDIT_INITIAL)

struct pool;
struct template;

/* Told once. err is NULL when it went well; `what` is the waiter's subject: see the request. */
struct waiter {
	struct list link;
	void (*done)(struct waiter *waiter, void *what, const struct err *err);
};

/* Tells all of them; more may come meanwhile. */
void waiters_tell(struct list *waiters, void *what, const struct err *err);

struct pool_limits {
	uint32_t owner_vms, owner_execs, total_vms;	/* 0: none */
	uint64_t owner_memory, total_memory;		/* bytes of guest RAM */
	uint64_t owner_stored;				/* bytes of suspended VMs on disk */
	uint64_t ready_memory;				/* of VMs that wait in pools */
};

/* ---- Commands ---- */

enum exec_state {
	EXEC_QUEUED,		/* the frame is not sent yet */
	EXEC_SENT,
	EXEC_STARTED,
	EXEC_ENDED,		/* `end` says how */
};

enum exec_end {
	EXEC_END_NONE,
	EXEC_END_EXIT,		/* status is the guest's wait status */
	EXEC_END_FAILED,	/* it did not start: error, step */
	EXEC_END_LOST,		/* the VM is gone, or no longer answers: reason */
};

struct exec_stream {
	uint8_t *ring;		/* EXEC_RING bytes, made with the first one */
	uint64_t end;		/* bytes that came and were kept */
	uint64_t sent;		/* the reader's place */
	uint64_t acked;		/* the furthest the reader has been */
	uint32_t credit;	/* the guest may still send that many */
	uint32_t owed;		/* taken from the guest's credit and not yet granted again */
	bool eof;
};

struct exec_reader {
	void (*ready)(struct exec_reader *reader);	/* more bytes, or the end */
};

struct exec {
	struct list link;	/* of its VM, or of pool->ended */
	struct pool *pool;
	struct vm *vm;		/* NULL once it has ended */
	char vm_name[POOL_NAME_MAX + 1];
	uint64_t id;		/* never used again */
	uint32_t channel_id;
	uid_t owner;
	enum exec_state state;
	char command[64];	/* for listings */
	uint32_t pid;		/* in the guest */
	bool tty, has_stdin, builtin, connection;
	bool early;		/* of a snapshot, RUNNING has not come yet */
	bool kill_due;		/* its time was over while its VM stood still */
	uint8_t *frame;		/* EXEC, while queued */
	size_t frame_len;

	struct exec_stream out[2];	/* stdout, stderr */
	uint64_t limit, total;	/* bytes of both streams; limit 0: none */
	bool truncated;
	struct buf in;		/* what waits for the guest's credit */
	uint32_t in_credit;
	uint32_t in_freed;	/* bytes that left `in` since the reader was told */
	bool in_eof, in_eof_sent;
	uint32_t signal_due;	/* to be sent as soon as the VM takes it */
	bool dropped;		/* forgotten when it ends */
	struct exec_reader *reader;	/* one at a time */

	enum exec_end end;
	uint32_t status, error, step;
	struct cm_exit usage;
	bool timed_out;
	char reason[POOL_REASON_MAX];
	struct timer deadline;
	struct list waiters;	/* what: the exec */
	uint64_t ended_ns, began_ns;
};

struct exec_options {
	const char *const *argv;
	uint32_t argc;
	const char *const *env;
	uint32_t envc;
	const char *cwd;
	uint32_t uid, gid;
	bool tty, has_stdin;
	bool builtin;			/* argv[0] is initd's own: put, get, ... */
	bool connection;		/* and its stdout ends by itself */
	uint16_t rows, columns;
	uint64_t timeout_ns, limit;
};

/* Queues a command. Returns 0 with *ret_exec, or -errno with err set. */
int exec_new(struct vm *vm, const struct exec_options *options, struct exec **ret_exec,
	     struct err *err);
struct exec *pool_exec_find(struct pool *pool, uint64_t id);

/* The next bytes of a stream that lie together, from its reader's place on. */
const uint8_t *exec_front(const struct exec *exec, int stream, size_t *ret_len);
void exec_consume(struct exec *exec, int stream, size_t len);
/* Moves the reader to an offset, or as near as is kept. */
void exec_rewind(struct exec *exec, int stream, uint64_t offset);
/* Whether all was read and there is an end to tell. */
bool exec_finished(const struct exec *exec);

/* -ENOBUFS: more than there is room for, and nothing taken; -EPIPE: no stdin any more. */
int exec_stdin(struct exec *exec, const uint8_t *data, size_t len);
size_t exec_stdin_room(const struct exec *exec);
int exec_stdin_close(struct exec *exec);
int exec_signal(struct exec *exec, uint32_t number, struct err *err);
/* A signal, as soon as the VM takes it. exec_kill(): SIGKILL, and what has not begun never
 * does. */
void exec_signal_due(struct exec *exec, uint32_t number);
void exec_kill(struct exec *exec);
/* By its reader, who leaves it: kills it if it runs, and forgets it. */
void exec_drop(struct exec *exec);
int exec_resize(struct exec *exec, uint16_t rows, uint16_t columns, struct err *err);
/* Forgets an ended command before its time. */
void exec_forget(struct exec *exec);

/* ---- For vm.c ---- */

/* Moves what is due into the VM's queue. */
void exec_pump(struct exec *exec);
/* A frame with an id. Returns NULL or why the guest is wrong. */
const char *exec_frame(struct vm *vm, const struct frame *frame);
/* Its VM leaves for the disk. NULL, or why the command cannot go on after that. */
const char *exec_may_sleep(const struct exec *exec);
void exec_sleep(struct exec *exec);
/* The VM is going: its commands are lost. */
void exec_lost(struct exec *exec, const char *reason);
void exec_free(struct exec *exec);

/* ---- VMs ---- */

enum vm_state { VM_STARTING, VM_READY, VM_SUSPENDED, VM_ENDING, VM_STATES };
enum vm_process {
	VM_PROCESS_NONE,		/* not asked for, or gone */
	VM_PROCESS_ASKED,		/* the parent has not answered */
	VM_PROCESS_RUNS,
};
enum vm_role { VM_HELD, VM_WARM, VM_LEASED };

struct vm_request {		/* VM_SAVE, VM_FORK, VM_PAUSE or VM_CONTINUE, queued */
	struct list link;
	uint16_t type, flags;	/* of the frame */
	bool sent;
	int fds[CM_VM_FORK_MAX];
	unsigned int count;
	struct vm *children[CM_VM_FORK_MAX];
	struct waiter *waiter;	/* but of a fork; what: the request. Or NULL */
	struct cm_vm_saved saved;
};

struct vm {
	struct list link;		/* of pool->vms */
	struct list named;		/* of the others in pool->names with this hash */
	struct pool *pool;
	char name[POOL_NAME_MAX + 1];
	char label[POOL_LABEL_MAX + 1];
	uint64_t number;
	uid_t owner;
	enum vm_state state;
	enum vm_role role;
	struct template *template;	/* it was made from, or NULL */
	struct vm_request *birth;	/* the fork that makes it, while that is under way */
	bool restored;			/* the guest has a past */
	bool booted;			/* VM_BOOTED came */
	uint64_t memory;
	bool counted;			/* in pool->vm_memory, and in its owner's */
	int image_fd;			/* without a template: the root image, -1: none */
	enum vm_process process;
	pid_t pid;			/* 0: not known yet */
	int socket;
	struct vm_usage usage;		/* the last that was read */
	const void *bound;		/* ends with this (a client), or NULL */

	struct watch channel;
	struct buf to_vmm;
	struct frame_decoder decoder;
	struct list execs;
	struct list savings;		/* that wait for their file's place */
	uint32_t exec_count, channel_ids;
	struct list forwards;		/* forward.h */
	uint32_t forward_count;
	struct list requests;

	bool paused;			/* as was last asked for: takes no commands */
	bool still;			/* the VMM was told so: no frame is for the guest */
	bool idle_suspends;		/* at the end of idle_ns; else that ends it */
	struct vm_suspend *suspend;	/* on its way to the disk, there, or back from it */
	struct stored_file *stored;	/* there, or that its memory is read from; forks have a
					 * share in it */
	bool woken;			/* from there; RUNNING is what it had before */
	bool heard;			/* since then: frames of commands */

	uint64_t created_ns, idle_since_ns;
	uint64_t ttl_at_ns, idle_ns;	/* 0: none */
	struct timer timer;		/* boot, TTL, idle; or the wait for the end */
	struct deferred pump, reap;
	struct list waiters;		/* for READY; what: the vm */
	struct list end_waiters;	/* for its end; what: NULL */
	char reason[POOL_REASON_MAX];	/* why it ended */
	const char *cause;		/* static, one word */
	int error;			/* what those who wait are told; 0: ECONNRESET */
};

struct vm_options {
	const char *name;		/* NULL: a number */
	const char *label;
	uid_t owner;
	enum vm_role role;
	struct template *template;
	int image_fd;			/* without a template: the root image. Not taken */
	uint64_t memory;
	uint64_t ttl_ns, idle_ns;
	bool idle_suspends;
	bool track;			/* with a template: note what changes from the start */
	uint64_t boot_ns;		/* how long booting may take; 0: the default */
};

/* Starts one, from its template or cold. Returns 0 with *ret_vm, or -errno with err set. */
int vm_new(struct pool *pool, const struct vm_options *options, struct vm **ret_vm,
	   struct err *err);
/* `waiter` is told when the VM is READY; at once if it is. */
void vm_wait_ready(struct vm *vm, struct waiter *waiter);
/* Ends it; all its commands are lost. cause: static, one word. waiter may be NULL. */
void vm_kill(struct vm *vm, const char *cause, struct waiter *waiter, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Writes a snapshot to fd, which is the request's from then on, but the waiter may take it out of
 * it. flags: CM_SAVE_... what: the request. Returns 0, or -errno with err set and nothing taken. */
int vm_save(struct vm *vm, int fd, uint16_t flags, struct waiter *waiter, struct err *err);
/* Whether a snapshot of it is being written, and how much there is of it. */
bool vm_saving(const struct vm *vm, uint64_t *ret_bytes);
/* Makes it stand still, or go on: also from the disk. Harmless where it does already. */
int vm_pause(struct vm *vm, struct waiter *waiter, struct err *err);
int vm_resume(struct vm *vm, struct waiter *waiter, struct err *err);
/* Puts it on the disk; the waiter (or NULL) is told when its process is gone. what: the vm. */
int vm_suspend(struct vm *vm, struct waiter *waiter, struct err *err);
/* Begins to bring one back that is on the disk. */
int vm_wake(struct vm *vm, struct err *err);
uint64_t vm_stored(const struct vm *vm);
/* Makes `count` children after the options (name: NULL), which are STARTING; if they come to
 * nothing, those who wait for them are told. count: up to CM_VM_FORK_MAX. */
int vm_fork(struct vm *vm, const struct vm_options *options, unsigned int count,
	    struct vm **ret_children, struct err *err);
/* A WARM one becomes somebody's. */
int vm_lease(struct vm *vm, const struct vm_options *options, struct err *err);
/* Queues a frame for the VMM. Returns 0 or -ENOBUFS. */
int vm_send(struct vm *vm, uint16_t type, uint16_t flags, uint32_t id, const void *payload,
	    size_t len);
/* Has vm->execs pumped at the end of this turn of the loop. */
void vm_pump_later(struct vm *vm);
/* After a command began or ended: when the VM is idle next. */
void vm_timer_update(struct vm *vm);
struct vm *pool_vm_find(struct pool *pool, const char *name);
/* Whether a VM may have that name. */
int pool_vm_name_admit(struct pool *pool, const char *name, struct err *err);
int pool_name_check(const char *name, const char *what, struct err *err);

/* ---- Templates ---- */

struct template {
	struct list link;
	struct pool *pool;
	char name[POOL_NAME_MAX + 1];
	char path[PATH_MAX];
	int fds[SNAPSHOT_CHAIN_MAX];
	unsigned int fd_count;
	int image_fd;
	uint64_t memory;
	bool hold;
	struct vm *zygote;
	uint32_t target, max;		/* ready VMs wanted; ready and starting at most */
	uint32_t ready, starting;
	uint32_t waiting;		/* leases that wait for a VM: refilling waits for them */
	uint64_t leases, hits;
	bool waits;			/* for room in the pools' memory */
	uint64_t start_ns;		/* that its VMs take to start, of late; 0: not known */
	uint32_t failures;		/* in a row */
	char trouble[POOL_REASON_MAX];	/* the last one's reason */
	struct timer retry;
	struct timer calm;		/* running: a lease was a moment ago */
	struct deferred refill;
	bool removed;			/* freed with its last VM */
	uint32_t users;			/* VMs that point here */
	bool inherits_target, inherits_max;	/* from one that it replaces */
	struct opening *opening;	/* while it is in pool->opening and nowhere else */
	struct waiter *waiter;		/* for that; what: the template */
};

struct template_options {
	const char *name;
	const char *path, *image;	/* image: NULL: the snapshot says it */
	bool hold;
	bool replace;			/* one of this name rolls over to the new file */
	bool has_target, has_max;	/* else what the old one had */
	uint32_t target, max;
};

/* Opens and checks the snapshot. Returns 0, and the waiter is told, later; *ret is there at
 * least until then. Or -errno with err set. One that is still being opened gives way to a
 * later one with `replace`, and to template_remove_named(). */
int template_add(struct pool *pool, const struct template_options *options,
		 struct waiter *waiter, struct template **ret, struct err *err);
/* Likewise one that is in no list, for one VM; template_put() once that is made or not. path:
 * NULL: no snapshot, only the root image (NULL: the default one) that a VM boots from. */
int template_once(struct pool *pool, const char *path, const char *image,
		  struct waiter *waiter, struct template **ret, struct err *err);
/* Forgets one of which the waiter was not told yet. */
void template_forget(struct template *template);
/* All of that name, being opened or there. Returns 0 or -ENOENT. */
int template_remove_named(struct pool *pool, const char *name);
/* Nothing that is being opened is waited for; there are no templates. */
void pool_templates_drop(struct pool *pool);
struct template *pool_template_find(struct pool *pool, const char *name);
int template_pool_set(struct template *template, uint32_t target, uint32_t max,
		      struct err *err);
/* A VM of the template for options->owner: a ready one at once, otherwise a new one, unless
 * only a ready one will do (-EBUSY). waiter's what: the vm. Either it is told (perhaps before
 * this returns 0), or -errno. *ret_vm: that may be STARTING still. */
int template_lease(struct template *template, const struct vm_options *options,
		   bool only_ready, struct waiter *waiter, struct vm **ret_vm,
		   struct err *err);
/* A VM of it changed its state or is gone. */
void template_vm_changed(struct template *template);
void template_vm_failed(struct template *template, const char *reason);
/* One got ready, for nobody yet. */
void template_vm_started(struct template *template, uint64_t ns);
/* After which time one may be ready, as far as can be known; 0: none is wanted. */
uint64_t template_retry_ns(const struct template *template);
/* Guest RAM of all VMs that wait in pools, or start for that. */
uint64_t pool_ready_memory(const struct pool *pool);
/* After the limit on it has changed. */
void pool_refill_all(struct pool *pool);
void template_put(struct template *template);

/* ---- The whole ---- */

struct pool_event {
	uint64_t seq;
	uint64_t realtime_ns;
	const char *type;		/* static */
	uid_t owner;
	char vm[POOL_NAME_MAX + 1];
	char text[POOL_REASON_MAX];
};

struct pool_observer {
	struct list link;
	void (*event)(struct pool_observer *observer, const struct pool_event *event);
};

#define POOL_BUCKETS	12u
struct pool_histogram {
	uint64_t count[POOL_BUCKETS + 1];	/* last: above all */
	uint64_t total, sum_ns;
};
extern const uint64_t pool_bucket_ns[POOL_BUCKETS];
void pool_histogram_add(struct pool_histogram *histogram, uint64_t ns);

struct pool_stats {
	uint64_t vms_created, vms_ended, vms_failed, execs, execs_ended, forks, snapshots,
		 leases, lease_hits, connections, suspends, wakes;
	struct pool_histogram create, exec_start;
};

struct pool {
	struct evloop *loop;
	struct boundary parent;
	uint32_t confined;		/* what VMs are confined by: flags of START */
	struct pool_limits limits;
	int store;			/* a directory for the engine's own files, or -1 */
	/* What the parent says: begin (reason: why an earlier engine ended, or ""), end, or
	 * nothing any more. */
	void (*start)(struct pool *pool, const char *reason);
	void (*stop)(struct pool *pool);
	void (*orphaned)(struct pool *pool, const char *why);
	uid_t self;
	struct list vms, ended, templates, observers;
	struct list names[POOL_NAME_HASHES];	/* the VMs of vms again */
	struct list opening;		/* templates that are being opened */
	struct openings openings;
	struct savings savings;
	uint32_t vm_count, ended_count, template_count;
	uint64_t vm_memory;		/* guest RAM of all but held and suspended ones */
	uint64_t vm_numbers, exec_ids, forward_ids;
	bool draining;
	struct pool_event events[POOL_EVENTS];
	uint64_t event_seq;
	struct pool_stats stats;
	struct timer ended_timer;
};

/* parent: our end of the boundary, taken. Returns 0 or -errno with err set. */
int pool_init(struct pool *pool, struct evloop *loop, const struct pool_limits *limits,
	      int parent, int store, struct err *err);
/* Tells the parent that clients are served. Returns 0 or -errno. */
int pool_ready(struct pool *pool);
/* After all VMs are gone (pool_empty). */
void pool_done(struct pool *pool);
/* No VM, and no snapshot of one on the way to its name. */
bool pool_empty(const struct pool *pool);
/* No new VMs; those that nobody has leased end. */
void pool_drain(struct pool *pool);
void pool_kill_all(struct pool *pool, const char *cause, const char *reason);
void pool_unbind(struct pool *pool, const void *bound);
uint32_t pool_leased(const struct pool *pool);
/* Bytes on disk of all VMs. */
uint64_t pool_stored(const struct pool *pool);

void pool_event(struct pool *pool, const char *type, const struct vm *vm, const char *format,
		...) __attribute__((format(printf, 4, 5)));

/* Whether `count` more VMs, or a command, may be had. fresh: they do not exist yet, so that
 * totals grow too. Returns 0, -EDQUOT or -ESHUTDOWN with err set. */
int pool_vm_admit(struct pool *pool, const struct vm_options *options, uint64_t memory,
		  uint32_t count, bool fresh, struct err *err);
int pool_exec_admit(struct pool *pool, uid_t owner, struct err *err);
/* Whether a suspended VM may have its memory again; whether it may hold so much on disk. */
int pool_wake_admit(const struct vm *vm, struct err *err);
int pool_store_admit(const struct vm *vm, uint64_t bytes, struct err *err);

/* Prometheus text. Returns a malloc'd string, or NULL. */
char *pool_metrics(struct pool *pool, size_t *ret_len);

#endif
