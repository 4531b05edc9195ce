/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel: frames between host and initd over one virtio-console port, and, unchanged,
 * over the stream socket between casemate-vmm and its client. Both directions, little-endian.
 *
 *   frame = struct cm_frame (16 bytes), then `length` bytes of payload, length <= CM_FRAME_MAX
 *
 * A receiver decodes the whole frame, checks it, then acts. A frame of unknown type, of a
 * length that its type does not allow, or out of turn is a protocol error: the host ends the
 * VM; initd answers CM_F_ERROR and ignores the frame, whatever it was.
 *
 * `id` names an exec (or later a file transfer, a forwarded connection). The host chooses
 * ids, never 0, and does not use one again in a VM's life; a new client (see RESUME) goes on
 * with the ids that RUNNING tells it, and all others are free to it. 0 is the VM itself.
 *
 * Order: guest HELLO first; host RESUME; guest RESUMED. Only then EXEC. After a restore or
 * fork the host sends RESUME again and waits for RESUMED with the new generation. That is a
 * barrier, since a new client stands behind the host: when initd reads such a RESUME it
 * announces each exec that it still has with RUNNING and answers RESUMED. What an exec's
 * streams had sent or granted before RUNNING counts no more: STDOUT and STDERR start again
 * with CM_CREDIT_INITIAL, and STDIN with what RUNNING grants; an end of file is said again.
 * Frames of execs that come between RESUME and RESUMED but before RUNNING are what was under
 * way; they are valid, EXIT included, and are not to be answered with CREDIT. RUNNING, RESUMED
 * and REPORT among them were the answers to an older client. A report under way ends unsaid.
 *
 * Credits bound every buffer: a stream's sender starts with CM_CREDIT_INITIAL bytes and may
 * send no more than it was granted; the receiver grants more with CREDIT as it passes bytes
 * on. STDIN (host to guest), STDOUT and STDERR (guest to host) are streams of an exec.
 */
#ifndef CASEMATE_ABI_CHANNEL_H
#define CASEMATE_ABI_CHANNEL_H

#include <stdint.h>

#define CM_CHANNEL_VERSION	1
#define CM_FRAME_MAX		65536u	/* payload bytes */
#define CM_CREDIT_INITIAL	262144u	/* bytes, each stream */

struct cm_frame {
	uint32_t length;	/* payload bytes that follow */
	uint16_t type;		/* enum cm_frame_type */
	uint16_t flags;		/* per type, otherwise 0 */
	uint32_t id;
	uint32_t reserved;	/* 0 */
};
_Static_assert(sizeof(struct cm_frame) == 16, "frame layout");

enum cm_frame_type {
	/* guest to host */
	CM_F_HELLO = 1,		/* payload: struct cm_hello */
	CM_F_RESUMED = 2,	/* struct cm_resumed */
	CM_F_STARTED = 3,	/* id; u32 pid: the program is running (execve succeeded) */
	CM_F_FAILED = 4,	/* id; struct cm_failed: the exec did not start; final */
	CM_F_STDOUT = 5,	/* id; bytes; length 0 is end of file */
	CM_F_STDERR = 6,	/* id; bytes; length 0 is end of file */
	CM_F_EXIT = 7,		/* id; struct cm_exit: final, after all output */
	CM_F_LOG = 8,		/* id 0; text of initd or the kernel for the host's log */
	CM_F_ERROR = 9,		/* id of the frame refused; text saying why */
	CM_F_REPORT = 10,	/* id 0; text: answer to REPORT_GET, may be split; flags bit 0
				 * set on the last one */
	CM_F_RUNNING = 11,	/* id; struct cm_running; flags as EXEC had them, without
				 * CM_EXEC_STDIN once stdin has ended. Only after a further
				 * RESUME, before its RESUMED */

	/* host to guest */
	CM_F_RESUME = 32,	/* id 0; struct cm_resume */
	CM_F_EXEC = 33,		/* id; struct cm_exec, then its strings */
	CM_F_STDIN = 34,	/* id; bytes; length 0 is end of file */
	CM_F_SIGNAL = 35,	/* id; u32 signal number, to the exec's process group; SIGKILL to
				 * all that came of it */
	CM_F_RESIZE = 36,	/* id; u16 rows, u16 columns: of the exec's terminal */
	CM_F_SHUTDOWN = 37,	/* id 0; kill every task, power off */
	CM_F_REPORT_GET = 38,	/* id 0; ask for /proc/casemate: missing calls, counters */

	/* both ways */
	CM_F_CREDIT = 64,	/* id; struct cm_credit */

	/* casemate-vmm to its client only, never on the virtio port; id 0 */
	CM_F_VM_BOOTED = 128,	/* struct cm_vm_booted: RESUMED was seen, EXEC is accepted */
	CM_F_VM_END = 129,	/* struct cm_vm_end, then text: the VM is gone; last frame */
	CM_F_VM_CONSOLE = 130,	/* text the guest wrote to its serial port */
	CM_F_VM_LOG = 131,	/* text: the VMM's own, one line a frame */
	CM_F_VM_SAVED = 132,	/* struct cm_vm_saved, then text when it failed: answer to
				 * VM_SAVE */
	CM_F_VM_FORKED = 133,	/* struct cm_vm_forked, then text when it failed: answer to
				 * VM_FORK */
	CM_F_VM_PAUSED = 134,	/* struct cm_vm_paused, then text when it failed: answer to
				 * VM_PAUSE */
	CM_F_VM_CONTINUED = 135, /* likewise, to VM_CONTINUE */

	/* the client to casemate-vmm only; id 0. Answered in order, one at a time */
	CM_F_VM_SAVE = 160,	/* with one descriptor: an empty file to write a snapshot to;
				 * flags CM_SAVE_... */
	CM_F_VM_FORK = 161,	/* struct cm_vm_fork; with `count` descriptors: the stream
				 * sockets of the children, each then spoken as this one */
	CM_F_VM_PAUSE = 162,	/* stand still; see below */
	CM_F_VM_CONTINUE = 163,	/* and go on */
};

/*
 * A paused VM's vCPU stands between two instructions, and its memory does not change. Output
 * that had left the guest comes before VM_PAUSED; what it had only queued comes after it goes
 * on. It can be saved and forked; children run. When it goes on, its monotonic clock is where
 * it stopped, the time of day is right and timers are looked at once; the generation stays,
 * since there is still one of it. To pause one that is paused, or to let one go on that runs,
 * changes nothing and is no error.
 *
 * Frames for the guest wait in order, VM_CONTINUE among them: behind more of them than the VMM
 * holds (one of full size is always taken) it would wait for ever. So send none.
 */

struct cm_hello {
	uint32_t version;	/* CM_CHANNEL_VERSION */
	uint32_t reserved;
};

struct cm_resume {
	uint64_t generation;	/* must equal the clock page's */
};

struct cm_resumed {
	uint64_t generation;	/* read by the guest from its clock page after mixing entropy */
	uint64_t realtime_ns;	/* the guest's clock at that moment */
};

/* Strings follow, each ended by a zero byte: argc arguments, then envc "NAME=value", then
 * the working directory ("" is "/"). Exactly to the end of the payload. */
struct cm_exec {
	uint32_t argc;		/* 1 to CM_EXEC_STRINGS */
	uint32_t envc;		/* 0 to CM_EXEC_STRINGS */
	uint32_t uid;
	uint32_t gid;
	uint16_t rows;		/* of the terminal, with CM_EXEC_TTY; else 0 */
	uint16_t columns;
	uint32_t reserved;	/* 0 */
};
#define CM_EXEC_STRINGS		4096u
/* cm_frame.flags of EXEC */
#define CM_EXEC_TTY		0x0001	/* a new session on a new pty; STDERR stays empty */
#define CM_EXEC_STDIN		0x0002	/* STDIN frames will come; else stdin is /dev/null */
#define CM_EXEC_BUILTIN		0x0004	/* argv[0] names a command that initd has in itself; not
					 * with CM_EXEC_TTY. It exits with 0 or a Linux errno,
					 * and has then said why in one line on stderr */

struct cm_running {
	uint32_t pid;
	uint32_t stdin_credit;	/* bytes of STDIN that may be sent; 0 to CM_CREDIT_INITIAL */
};

struct cm_failed {
	uint32_t error;		/* Linux errno of the step that failed */
	uint32_t step;		/* enum cm_failed_step */
};
enum cm_failed_step {
	CM_FAILED_SPAWN = 1,	/* fork, pipes, pty */
	CM_FAILED_CHDIR = 2,
	CM_FAILED_EXEC = 3,	/* 127 for ENOENT, else 126, as a shell has them */
	CM_FAILED_CRED = 4,
};

struct cm_exit {
	uint32_t status;	/* as wait(2) gives it */
	uint32_t reserved;
	uint64_t user_ns;	/* processor time of the child and its reaped children */
	uint64_t system_ns;
	uint64_t max_rss;	/* bytes */
};

struct cm_credit {
	uint32_t stream;	/* CM_F_STDIN, CM_F_STDOUT or CM_F_STDERR */
	uint32_t bytes;		/* 1 to CM_CREDIT_INITIAL */
};

struct cm_vm_booted {
	uint64_t stage_ns[8];	/* by enum cm_stage: monotonic host time since the VMM's main();
				 * [0] is RESUMED, 0 where a stage was not reached */
};

/* cm_frame.flags of VM_SAVE. A VM that is tracked notes which pages change; that costs the
 * guest a fault for each of them. */
#define CM_SAVE_TRACK		0x0001	/* note what changes from this snapshot on */
#define CM_SAVE_INCREMENTAL	0x0002	/* only what changed since the one before that was
					 * tracked, or since that which the VM started from */

/* Descriptors travel as SCM_RIGHTS with the first byte of their frame. */
#define CM_VM_FORK_MAX	16u

struct cm_vm_fork {
	uint32_t count;		/* 1 to CM_VM_FORK_MAX */
	uint32_t reserved;	/* 0 */
};

struct cm_vm_saved {
	uint32_t error;		/* errno; 0: the file is whole */
	uint32_t reserved;
	uint64_t pause_ns;	/* for how long the vCPU stood still */
	uint8_t id[32];		/* the snapshot's */
};

struct cm_vm_forked {
	uint32_t error;		/* errno; 0: all children run */
	uint32_t count;		/* pids that follow are valid */
	uint64_t pause_ns;
	uint32_t pid[CM_VM_FORK_MAX];	/* in the VMM's PID namespace */
};

struct cm_vm_paused {
	uint32_t error;		/* errno */
	uint32_t reserved;
	uint64_t pause_ns;	/* VM_PAUSED: until it stood; VM_CONTINUED: since then */
};

enum cm_vm_end_reason {
	CM_VM_POWEROFF = 0,	/* asked for: the only orderly end */
	CM_VM_GUEST_PANIC = 1,	/* the kernel stopped itself; text is its message */
	CM_VM_GUEST_CRASH = 2,	/* triple fault, bad MMIO, write to the image, nonsense in a ring */
	CM_VM_GUEST_PROTOCOL = 3, /* a malformed frame from the guest */
	CM_VM_TIMEOUT = 4,	/* no RESUMED in time */
	CM_VM_HOST_ERROR = 5,	/* KVM or the host failed; text says what to do */
	CM_VM_CLIENT_GONE = 6,
};

struct cm_vm_end {
	uint32_t reason;
	uint32_t detail;	/* enum cm_end, KVM exit reason or errno, by reason */
};

#endif
