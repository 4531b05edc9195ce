/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terminals. tty.c: the object, its calls and job control; ntty.c: the line discipline; pty.c:
 * the two ends of a pseudo-terminal and devpts.
 */
#ifndef IPC_TTY_H
#define IPC_TTY_H

#include "guest-kernel/core/wait.h"
#include "guest-kernel/lib/kernel.h"

struct dentry;
struct file;
struct inode;
struct process;
struct tty;
struct uio;

/* ---- for core/ ---- */
void tty_get(struct tty *t);
void tty_put(struct tty *t);			/* NULL-safe */
/* The process is a session leader and exits: its terminal's foreground group gets SIGHUP and
 * the session loses the terminal. Harmless for others. */
void tty_session_exit(struct process *p);
/* setsid(2): the new leader has no terminal. */
void tty_forget(struct process *p);
/* For /proc/PID/stat: device number (major << 8 | minor), foreground group or -1. */
uint32_t tty_device(const struct tty *t);
int tty_foreground(const struct tty *t);

/* ---- inside ipc/ ---- */
#define TTY_NCC		19

struct tty_termios {			/* struct termios2 */
	uint32_t iflag, oflag, cflag, lflag;
	uint8_t line;
	uint8_t cc[TTY_NCC];
	uint32_t ispeed, ospeed;
};

struct kwinsize {
	uint16_t row, col, xpixel, ypixel;
};

struct tty_ring {			/* bytes on their way to the master */
	uint8_t *buf;
	unsigned head, len;
};
#define TTY_OUT_SIZE	16384u
#define TTY_IN_MIN	4096u
#define TTY_IN_MAX	65536u
#define TTY_LINE_MAX	4095u		/* longest canonical line, newline apart */

#define IN_DELIM	0x100u		/* flags of input entries: ends a line */
#define IN_EOF		0x200u		/* ... and is not itself read */

struct tty {
	uint32_t refs;
	int index;			/* N of /dev/pts/N */
	struct tty_termios tio;
	struct kwinsize win;
	int pgrp, session;		/* 0: none */
	struct waitq wq;		/* the slave's readers, writers, pollers */
	/* line discipline */
	uint16_t *in;			/* ring of in_cap entries */
	unsigned in_cap, in_tail, in_len;
	unsigned in_canon;		/* entries from the tail on that lines have completed */
	unsigned column, canon_column;
	bool lnext, erasing, stopped, echo_overflow;
	/* pseudo-terminal */
	struct tty_ring out;
	struct waitq master_wq;
	struct inode *inode;		/* of /dev/pts/N; reference held while the master lives */
	bool master_open, slave_gone, hung_up, locked, exclusive, packet;
	uint8_t packet_status;
	unsigned slaves;		/* open files */
	unsigned generation;		/* counts hang-ups: older files are dead */
};

/* ntty.c */
void ntty_init(struct tty *t);
void ntty_done(struct tty *t);
/* Input from the master; bytes taken, fewer when there is no room. */
size_t ntty_receive(struct tty *t, const uint8_t *buf, size_t n);
/* Output of a program through OPOST into the ring; bytes taken. */
size_t ntty_output(struct tty *t, const uint8_t *buf, size_t n);
bool ntty_readable(const struct tty *t, bool poll);
size_t ntty_input_size(const struct tty *t);	/* TIOCINQ */
long ntty_read(struct tty *t, struct file *f, struct uio *u);
void ntty_flush_input(struct tty *t);
void ntty_termios_changed(struct tty *t, const struct tty_termios *old);
void ntty_start(struct tty *t);
void ntty_stop(struct tty *t);

/* pty.c */
size_t pty_out_room(const struct tty *t);
size_t pty_out_put(struct tty *t, const uint8_t *buf, size_t n);	/* and wakes the master */
void pty_out_flush(struct tty *t);
void pty_packet_event(struct tty *t, uint8_t status);
struct dentry *pty_slave_dentry(struct tty *t);		/* or ERR_PTR */
int pty_master_open(struct inode *i, struct file *f);	/* /dev/ptmx */
int pty_slave_open(struct inode *i, struct file *f);
int pty_open_number(struct inode *i, struct file *f);	/* a node of major 136 elsewhere */

/* tty.c */
int tty_slave_attach(struct tty *t, struct file *f);	/* open of the slave side */
int tty_controlling_open(struct inode *i, struct file *f);	/* /dev/tty */
int tty_job_control_read(struct tty *t);
int tty_job_control_write(struct tty *t);
void tty_signal(struct tty *t, int sig);		/* to the foreground group */
void tty_hangup(struct tty *t);
/* Calls common to both ends; -ENOTTY when it is none of them. */
long tty_ioctl_common(struct tty *t, struct file *f, bool master, unsigned cmd,
		      unsigned long arg);
struct tty *tty_of(const struct file *f);		/* slave side, or NULL */

#endif
