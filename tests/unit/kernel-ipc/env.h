/* SPDX-License-Identifier: Apache-2.0 */
/* What ipc/ and proc/ stand on, for their unit tests. See env.c. */
#ifndef KERNEL_IPC_ENV_H
#define KERNEL_IPC_ENV_H

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/lib/kernel.h"
#include "guest-kernel/mm/uaccess.h"

/* A process with one thread; the first one made is current. */
struct process *env_process(int pid, int pgid, int sid, struct process *parent);
void env_switch(struct process *p);

/* Called when the code under test sleeps: does something and returns true, or false for "a
 * signal came" (with a deadline: time runs out). */
extern bool (*env_sleep)(void);
extern unsigned env_sleeps;

/* Signals sent, as text: "13>5 " a task or process (by pid), "2>g5 " a group. */
extern char env_signals[512];
extern uint64_t env_signal_ignored, env_signal_blocked;

/* The Nth allocation from now on fails (0: none). env_live: not freed yet. */
extern unsigned env_fail_at;
extern long env_live, env_files, env_inodes, env_dentries;

extern uint64_t env_now;
extern uint64_t env_generation;
extern bool env_restore_in_random;	/* once, when the next random bytes are made */
void env_reset(void);
void env_close_all(void);

long env_read(int fd, void *buf, size_t n);
long env_write(int fd, const void *buf, size_t n);
unsigned env_poll(int fd);
long env_ioctl(int fd, unsigned cmd, unsigned long arg);
int env_open_chr(uint64_t rdev, uint32_t flags);	/* through chrdev_open; fd */
int env_open_inode(struct inode *i, uint32_t flags, int (*open)(struct inode *, struct file *));

#endif
