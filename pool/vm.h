/* SPDX-License-Identifier: Apache-2.0 */
/* What vm.c and request.c have of each other; the rest of pool/ uses pool.h. */
#ifndef CASEMATE_POOL_VM_H
#define CASEMATE_POOL_VM_H

#include "pool/pool.h"

/* Ends it. cause: static. Harmless on one that is ending. */
void vm_end(struct vm *vm, const char *cause, const char *reason);
/* Frees an ended one when nothing is left to wait for. */
void vm_reap_later(struct vm *vm);

/* Its process is to be waited for, and its socket read. Takes the socket. */
int vm_process_begin(struct vm *vm, int socket, pid_t pid, struct err *err);
/* Without a process: the socket is closed, and what there is of it killed. */
void vm_process_drop(struct vm *vm);
void vm_memory_count(struct vm *vm, bool counted);
/* Its root image, for another VM of the kind; -1, NULL: none. */
int vm_image(const struct vm *vm);
const char *vm_image_path(const struct vm *vm);
int request_pause(struct vm *vm, bool pause, struct waiter *waiter, struct err *err);

/* A VM that a fork is about to make; socket is taken in every case. NULL with err set. */
struct vm *vm_child_new(struct vm *parent, const struct vm_options *options, int socket,
			struct err *err);
/* Its process, as the VMM named it; 0: there is none. */
void vm_child_known(struct vm *vm, pid_t parent, pid_t pid);

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
/* A start out of the disk came to nothing. Returns whether the VM stays there. */
bool suspend_wake_failed(struct vm *vm, const char *reason);
/* The process of a suspended one is gone. */
void suspend_process_gone(struct vm *vm);
/* It is READY again. */
void suspend_woken(struct vm *vm);
/* It ends: those who wait are told. */
void suspend_drop(struct vm *vm, const struct err *err);

#endif
