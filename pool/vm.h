/* SPDX-License-Identifier: Apache-2.0 */
/* What vm.c and request.c have of each other; the rest of pool/ uses pool.h. */
#ifndef CASEMATE_POOL_VM_H
#define CASEMATE_POOL_VM_H

#include "pool/pool.h"

/* Ends it. cause: static. Harmless on one that is ending. */
void vm_end(struct vm *vm, const char *cause, const char *reason);
/* Frees an ended one when nothing is left to wait for. */
void vm_reap_later(struct vm *vm);

/* Asks for a process, from these snapshots if there are any; flags of SPAWN. */
int vm_process_begin(struct vm *vm, uint32_t flags, const int *snapshots, unsigned int count,
		     struct err *err);
/* Without a process: the socket is closed, and what there is of it killed. */
void vm_process_drop(struct vm *vm);
void vm_memory_count(struct vm *vm, bool counted);
/* The first line of what follows `skip` bytes of a frame: it may be the guest's, so it is
 * cleaned. */
void vm_text_take(const struct frame *frame, size_t skip, char *text, size_t size);
/* Its root image, for another VM of the kind; -1: none. */
int vm_image(const struct vm *vm);
int request_pause(struct vm *vm, bool pause, struct waiter *waiter, struct err *err);

/* A VM that a fork is about to make; socket is taken in every case. NULL with err set. */
struct vm *vm_child_new(struct vm *parent, const struct vm_options *options, int socket,
			struct err *err);
/* Its process, as the VMM that forked it named it; 0: there is none. */
void vm_child_named(struct vm *vm, const struct vm *source, pid_t pid);

/* ---- link.c: the parent, which has the processes ---- */

int link_open(struct pool *pool, int socket);
/* fds: of SPAWN. Return 0, or -errno when it was not asked. */
int link_spawn(struct vm *vm, uint32_t flags, uint32_t snapshots, const int *fds,
	       unsigned int fd_count);
int link_child(struct vm *vm, const struct vm *source, pid_t pid);
void link_kill(struct vm *vm);
/* Its answers: pid, or 0 with errno and a reason; and the process's end. */
void vm_process_known(struct vm *vm, pid_t pid, int error, const char *reason);
void vm_process_gone(struct vm *vm, int status);

/* Sends the next request when nothing is before it. */
void request_pump(struct vm *vm);
bool request_due(const struct vm *vm);
/* Answers. Return NULL or why they are wrong. */
const char *request_saved(struct vm *vm, const struct frame *frame);
const char *request_forked(struct vm *vm, const struct frame *frame);
const char *request_paused(struct vm *vm, const struct frame *frame);
void request_drop_all(struct vm *vm, const struct err *err);

/* ---- suspend.c ---- */

bool suspend_is_saving(const struct vm *vm);
/* A fork has its memory from where its source has it. */
void stored_share(struct vm *child, const struct vm *source);
void stored_put(struct vm *vm);
/* What a daemon that was killed in the wrong instant left in the store. */
void suspend_store_clean(int store);
/* A start out of the disk came to nothing. Returns whether the VM stays there. */
bool suspend_wake_failed(struct vm *vm, const char *reason);
/* The process of a suspended one is gone. */
void suspend_process_gone(struct vm *vm);
/* It is READY again. */
void suspend_woken(struct vm *vm);
/* It ends: those who wait are told. */
void suspend_drop(struct vm *vm, const struct err *err);

#endif
