/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One VM: what it is made of, and its life.
 *
 * vm_init() builds everything up to the first guest instruction, from a kernel or from
 * snapshot files; vm_run() jails the process, lets the vCPU go and serves the loop until the
 * VM is gone. A held VM (options.hold) has a state and memory but no vCPU: it only waits to be
 * forked. request.c saves and forks. Phases, moved on by the loop thread in vm_step():
 *
 *   RUN       until vm->end is set, by either thread: the first reason stands
 *   STOPPING  the vCPU was kicked; wait until its thread is out of KVM_RUN for good
 *   DRAINING  what the guest had already sent goes to the client, then VM_END
 *   FLUSHING  until the client has all of it
 *
 * With the client gone, the last two are skipped.
 */
#ifndef CASEMATE_VMM_VM_H
#define CASEMATE_VMM_VM_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "abi/channel.h"
#include "base/err.h"
#include "snapshot/file.h"
#include "vmm/clock.h"
#include "vmm/console.h"
#include "vmm/elf.h"
#include "vmm/kvm.h"
#include "vmm/loop.h"
#include "vmm/memory.h"
#include "vmm/platform.h"
#include "vmm/relay.h"
#include "vmm/warm.h"

#define VM_TEXT_MAX	2048u

struct vm_options {
	int kernel_fd;			/* all owned by the caller, -1: none */
	uint64_t kernel_size;
	int initd_fd;
	uint64_t initd_size;
	int image_fd;
	int kvm_fd;			/* /dev/kvm; -1: opened by its name */
	int channel_fd;
	const int *snapshot_fds;	/* a chain, the full one first; then no kernel is loaded */
	unsigned int snapshot_count;	/* 0: boot */
	const char *image_path;		/* only to be noted in snapshots */
	uint64_t memory_size;		/* when booting */
	uint64_t boot_timeout_ns;
	const char *bootargs;
	bool verbose;
	bool snapshots;			/* VM_SAVE and VM_FORK are possible */
	bool track;			/* of a restored VM: note what changes from the start */
	bool hold;			/* do not run, only fork; implies a snapshot */
	bool cold;			/* with hold: no probe, for comparison (warm.h) */
	uint64_t start_ns;		/* of the process, monotonic */
};

enum vm_phase { VM_RUN, VM_STOPPING, VM_DRAINING, VM_FLUSHING };

struct vm_end {
	bool set;
	enum cm_vm_end_reason reason;
	uint32_t detail;
	char text[VM_TEXT_MAX];
	uint64_t rip;			/* where the guest was, 0: not known */
};

struct vcpu {
	pthread_t thread;
	timer_t kick;		/* ends its KVM_RUN */
	int error;		/* of making that */
	bool created;
	sem_t ready;		/* the thread is past what starting one calls */
	sem_t go;
	atomic_bool stop;	/* set by the loop thread, with run->immediate_exit */
	atomic_bool pause;	/* likewise */
	atomic_bool paused;	/* set by the vCPU thread: it waits for vcpu_resume() */
	atomic_bool exited;	/* set by the vCPU thread as its last act */
};

enum vm_request_kind { REQUEST_NONE, REQUEST_SAVE, REQUEST_FORK, REQUEST_PAUSE,
		       REQUEST_CONTINUE };

/* What a child tells its parent, in one write to the pipe. */
struct child_report {
	uint32_t index;
	uint32_t error;			/* errno; 0: saved, or running */
	uint8_t id[SNAPSHOT_DIGEST];	/* of what was saved */
	char text[ERR_TEXT_MAX];
};

/* VM_SAVE, VM_FORK or VM_PAUSE under way; one at a time. */
struct vm_request {
	enum vm_request_kind kind;
	uint16_t flags;			/* of VM_SAVE */
	bool stopping;			/* the vCPU was asked to pause */
	uint64_t *changed;		/* what is being saved; added to memory.dirty again
					 * should that fail. Not ours when NULL */
	int fds[CM_VM_FORK_MAX];
	unsigned int count;
	uint64_t stop_ns;		/* when it was asked */
	uint64_t pause_ns;		/* until it went on */
	int reports;			/* the pipe's reading end, -1: none */
	struct loop_op op;
	struct child_report report;	/* what op reads */
	unsigned int reported;
	uint32_t pids[CM_VM_FORK_MAX];
	uint8_t id[SNAPSHOT_DIGEST];
	struct err err;			/* of the first child that failed */
};

struct vm {
	const struct vm_options *options;
	struct memory memory;
	struct kvm kvm;
	struct elf_kernel kernel;
	struct loop loop;
	struct platform platform;
	struct console console;
	struct relay relay;
	struct vcpu vcpu;
	struct clock_params clock;	/* as the page was written, or when the VM was paused */
	bool paused;			/* by VM_PAUSE: its memory does not change */
	uint64_t paused_ns;		/* when; host's time */
	uint8_t image_digest[SNAPSHOT_DIGEST];
	uint8_t kernel_digest[SNAPSHOT_DIGEST];	/* of a restored VM; see vm_kernel_digest() */
	struct snapshot_state held;	/* of a held VM */
	struct warm warm;		/* likewise, and of its probe */
	bool tracked;			/* KVM notes changed pages ... */
	bool based;			/* ... since this snapshot: */
	struct snapshot_id base;
	struct vm_request request;

	enum vm_phase phase;
	struct vm_end end;		/* loop lock */
	int wake_fd;			/* eventfd: the vCPU thread wants the loop to look */
	int bell_fds[CONSOLE_QUEUES];
	struct loop_op wake, bells[CONSOLE_QUEUES], boot_timer;
	int smaps_fd;			/* for the memory report; -1 unless verbose */
};

int vm_init(struct vm *vm, const struct vm_options *options, struct err *err);

/* In a child of fork(2), with all of the parent's descriptors closed but KVM's device, the
 * kernel's file and the new client's socket: a VM over the memory that was inherited, with
 * vm_child_options(). `from` and state are the parent's. vm_start() follows. */
struct vm_options vm_child_options(const struct vm *from, int channel_fd);
int vm_init_child(struct vm *vm, const struct vm_options *options, const struct vm *from,
		  const struct snapshot_state *state, struct err *err);

/* Of the kernel's file, which is read whole: not for a start. Returns 0 or -errno. */
int vm_kernel_digest(const struct vm *vm, uint8_t digest[SNAPSHOT_DIGEST]);

/* Notes which pages change from now on; the vCPU is stopped. */
int vm_track(struct vm *vm, struct err *err);

/* The clocks of a stopped VM, written for it to go on at vm->clock.monotonic_ns, and an
 * interrupt that makes it look at them. */
int vm_clock_go_on(struct vm *vm, struct err *err);

/* The two halves of vm_run(): up to the first instruction, and from there. */
int vm_start(struct vm *vm, bool jailed, struct err *err);
int vm_serve(struct vm *vm, struct err *err);

/* Returns 0 when the VM came to an end that was reported to the client, or -errno. */
int vm_run(struct vm *vm, struct err *err);
void vm_done(struct vm *vm);

/* Notes the VM's end, unless one is noted already, and wakes the loop. Lock held. */
void vm_end(struct vm *vm, enum cm_vm_end_reason reason, uint32_t detail,
	    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* A line to the client under verbose; dropped where there is no room. Lock held. */
void vm_log(struct vm *vm, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Makes the loop thread run vm_step() soon. Any thread. */
void vm_wake(struct vm *vm);

/* ---- vcpu.c ---- */

/* Starts the thread, which waits for vcpu_go(). Returns 0 or -errno. */
int vcpu_start(struct vm *vm, struct err *err);
void vcpu_go(struct vm *vm);
/* Makes it leave KVM_RUN and end; vm->vcpu.exited tells when. */
void vcpu_kick(struct vm *vm);
/* Makes it leave KVM_RUN and wait; vm->vcpu.paused tells when (or exited, where it ended). */
void vcpu_pause(struct vm *vm);
void vcpu_resume(struct vm *vm);
void vcpu_join(struct vm *vm);

/* ---- pause.c ---- */

/* The vCPU has stopped, or owes no stop: makes the VM paused, or lets it go on. Returns 0 or
 * -errno with err, and then the VM runs as before (pause) or ends (go on). */
int vm_pause(struct vm *vm, struct err *err);
int vm_continue(struct vm *vm, struct err *err);

/* ---- request.c ---- */

/* For struct relay. */
void request_begin(void *arg, const struct frame *frame, const int *fds, unsigned int count);
/* Does what is due; part of vm_step(). */
void request_step(struct vm *vm);
void request_done(struct vm *vm);

/* ---- usage.c ---- */

/* Resident bytes of this process outside guest memory, or -errno. */
int64_t usage_beyond_guest(int smaps_fd, const struct memory *memory);

#endif
