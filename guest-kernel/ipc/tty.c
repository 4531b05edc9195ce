/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slave side of a terminal as an open file, controlling terminals and job control.
 *
 * A terminal belongs to at most one session; proc->ctty of its processes points here, each
 * with a reference. A hang-up (the master closed) bumps t->generation: files opened before
 * it read end-of-file and fail to write, as f->readdir_pos, the generation at open, tells.
 */
#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <linux/capability.h>

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/tty.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define CHUNK		512u
#define PTS_MAJOR	136u
#define IOC_TIOCGDEV	0x80045432u
#define IOC_TIOCGEXCL	0x80045440u

static const struct file_ops tty_slave_ops;

struct tty *tty_of(const struct file *f)
{
	return f->ops == &tty_slave_ops ? f->priv : NULL;
}

static bool file_dead(const struct file *f, const struct tty *t)
{
	return f->readdir_pos != t->generation;
}

uint32_t tty_device(const struct tty *t)
{
	return (uint32_t)KMKDEV(PTS_MAJOR + (unsigned)t->index / 256, (unsigned)t->index % 256);
}

int tty_foreground(const struct tty *t)
{
	return t->pgrp != 0 ? t->pgrp : -1;
}

/* ---- job control ---- */

static bool pgrp_orphaned(int pgid)
{
	struct process *p;

	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (p->pgid == pgid && !p->zombie && p->parent != NULL && p->parent->pid != 1 &&
		    p->parent->pgid != pgid && p->parent->sid == p->sid)
			return false;
	}
	return true;
}

void tty_signal(struct tty *t, int sig)
{
	if (t->pgrp != 0)
		signal_send_pgrp(t->pgrp, sig, NULL);
}

/* Background processes are stopped. 0, -EIO, -ERESTARTSYS. */
static int job_control(struct tty *t, int sig)
{
	struct process *p = current->proc;

	if (p->ctty != t || t->pgrp == 0 || p->pgid == t->pgrp)
		return 0;
	if (signal_is_ignored(p, sig) || signal_is_blocked(current, sig))
		return sig == KSIGTTIN ? -EIO : 0;
	if (pgrp_orphaned(p->pgid))
		return -EIO;
	signal_send_pgrp(p->pgid, sig, NULL);
	return -ERESTARTSYS;
}

int tty_job_control_read(struct tty *t)
{
	return job_control(t, KSIGTTIN);
}

int tty_job_control_write(struct tty *t)
{
	return job_control(t, KSIGTTOU);
}

/* ---- controlling terminal ---- */

static void ctty_set(struct process *p, struct tty *t)
{
	struct tty *old = p->ctty;

	if (t != NULL)
		tty_get(t);
	p->ctty = t;
	tty_put(old);
}

void tty_forget(struct process *p)
{
	ctty_set(p, NULL);
}

static void session_clear(struct tty *t, int sid)
{
	struct process *p;

	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (p->sid == sid && p->ctty == t)
			ctty_set(p, NULL);
	}
}

static void session_take(struct tty *t)
{
	struct process *p = current->proc;

	t->session = p->sid;
	t->pgrp = p->pgid;
	ctty_set(p, t);
}

/* The session leader gives the terminal up, or exits. */
static void session_leave(struct process *p, bool exits)
{
	struct tty *t = p->ctty;

	if (p->pid != p->sid || t == NULL)
		return;
	tty_get(t);
	if (t->pgrp != 0) {
		signal_send_pgrp(t->pgrp, KSIGHUP, NULL);
		if (!exits)
			signal_send_pgrp(t->pgrp, KSIGCONT, NULL);
	}
	if (t->session == p->sid)
		t->session = t->pgrp = 0;
	session_clear(t, p->sid);
	tty_put(t);
}

void tty_session_exit(struct process *p)
{
	session_leave(p, true);
	ctty_set(p, NULL);
}

void tty_hangup(struct tty *t)
{
	int sid = t->session;
	struct process *p;

	t->hung_up = true;
	t->generation++;
	t->stopped = false;
	t->session = t->pgrp = 0;
	if (sid != 0) {
		p = process_find(sid);
		session_clear(t, sid);
		if (p != NULL && !p->zombie) {
			signal_send_process(p, KSIGHUP, NULL);
			signal_send_process(p, KSIGCONT, NULL);
		}
	}
	waitq_wake_all(&t->wq, KPOLLIN | KPOLLOUT | KPOLLHUP | KPOLLERR);
}

static int ioctl_sctty(struct tty *t, struct file *f, unsigned long arg)
{
	struct process *p = current->proc;

	if (p->pid == p->sid && p->ctty == t && t->session == p->sid)
		return 0;
	if (p->pid != p->sid || p->ctty != NULL)
		return -EPERM;
	if (t->session != 0) {
		if (arg != 1 || !capable(CAP_SYS_ADMIN))
			return -EPERM;
		session_clear(t, t->session);
	}
	if (!f->can_read && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	session_take(t);
	return 0;
}

static int ioctl_notty(struct tty *t)
{
	struct process *p = current->proc;

	if (p->ctty != t)
		return -ENOTTY;
	session_leave(p, false);
	ctty_set(p, NULL);
	return 0;
}

static int ioctl_spgrp(struct tty *t, const int __user *arg)
{
	struct process *me = current->proc, *p;
	int pgrp, ret = tty_job_control_write(t);
	bool found = false;

	if (ret != 0)
		return ret == -EIO ? -ENOTTY : ret;
	if (me->ctty != t || t->session != me->sid)
		return -ENOTTY;
	if (GET_USER(pgrp, arg) != 0)
		return -EFAULT;
	if (pgrp < 0)
		return -EINVAL;
	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (p->pgid != pgrp)
			continue;
		if (p->sid != me->sid)
			return -EPERM;
		found = true;
	}
	if (!found)
		return process_find(pgrp) != NULL ? -EPERM : -ESRCH;
	t->pgrp = pgrp;
	return 0;
}

/* ---- termios ---- */

static const uint32_t speeds[] = {
	0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400,
	0, 57600, 115200, 230400, 460800, 500000, 576000, 921600, 1000000, 1152000, 1500000,
	2000000, 2500000, 3000000, 3500000, 4000000,
};

static void termios_speed(struct tty_termios *n, const struct tty_termios *old, bool two)
{
	uint32_t b = n->cflag & CBAUD;

	if (two && b == BOTHER)
		return;
	if (b == BOTHER) {
		n->ispeed = old->ispeed;
		n->ospeed = old->ospeed;
		return;
	}
	b = (b & CBAUDEX ? 16 : 0) + (b & 15);
	n->ispeed = n->ospeed = speeds[b];
}

static int set_termios(struct tty *t, const void __user *arg, bool two, bool flush)
{
	struct tty_termios old = t->tio, n = t->tio;
	int ret = tty_job_control_write(t);

	if (ret != 0)
		return ret;
	if (copy_from_user(&n, arg, two ? sizeof(n) : offsetof(struct tty_termios, ispeed)) != 0)
		return -EFAULT;
	if (flush)
		ntty_flush_input(t);
	termios_speed(&n, &old, two);
	n.cflag = (n.cflag & ~(uint32_t)(CSIZE | PARENB)) | CS8 | CREAD;
	t->tio = n;
	ntty_termios_changed(t, &old);
	return 0;
}

static int flush_queues(struct tty *t, bool master, unsigned long which)
{
	if (which > TCIOFLUSH)
		return -EINVAL;
	/* Seen from the master, input is what the slave writes. */
	if (which == TCIOFLUSH || (which == TCIFLUSH) != master) {
		ntty_flush_input(t);
		pty_packet_event(t, 1);
	}
	if (which == TCIOFLUSH || (which == TCOFLUSH) != master) {
		pty_out_flush(t);
		pty_packet_event(t, 2);
	}
	return 0;
}

static int flow_control(struct tty *t, unsigned long what)
{
	switch (what) {
	case TCOOFF:
		ntty_stop(t);
		return 0;
	case TCOON:
		ntty_start(t);
		return 0;
	case TCIOFF:
	case TCION:
		return 0;	/* a pseudo-terminal has no line to send START and STOP on */
	}
	return -EINVAL;
}

static int set_winsize(struct tty *t, const void __user *arg)
{
	struct kwinsize w;

	if (copy_from_user(&w, arg, sizeof(w)) != 0)
		return -EFAULT;
	if (memcmp(&w, &t->win, sizeof(w)) == 0)
		return 0;
	t->win = w;
	tty_signal(t, KSIGWINCH);
	return 0;
}

static long ioctl_termios(struct tty *t, bool master, unsigned cmd, unsigned long arg)
{
	void __user *p = (void __user *)arg;
	int ret;

	switch (cmd) {
	case TCGETS:
		return copy_to_user(p, &t->tio, offsetof(struct tty_termios, ispeed));
	case TCGETS2:
		return copy_to_user(p, &t->tio, sizeof(t->tio));
	case TCSETS:
	case TCSETSW:
	case TCSETSF:
		return set_termios(t, p, false, cmd == TCSETSF);
	case TCSETS2:
	case TCSETSW2:
	case TCSETSF2:
		return set_termios(t, p, true, cmd == TCSETSF2);
	case TCSBRK:
	case TCSBRKP:
	case TIOCSBRK:
	case TIOCCBRK:
		return tty_job_control_write(t);
	case TCXONC:
		ret = tty_job_control_write(t);
		return ret != 0 ? ret : flow_control(t, arg);
	case TCFLSH:
		ret = tty_job_control_write(t);
		return ret != 0 ? ret : flush_queues(t, master, arg);
	}
	return -ENOTTY;
}

static long ioctl_session(struct tty *t, struct file *f, bool master, unsigned cmd,
			  unsigned long arg)
{
	int v;

	switch (cmd) {
	case TIOCGPGRP:
		if (!master && current->proc->ctty != t)
			return -ENOTTY;
		v = t->pgrp;
		return PUT_USER(v, (int __user *)arg);
	case TIOCSPGRP:
		return ioctl_spgrp(t, (const int __user *)arg);
	case TIOCGSID:
		if ((!master && current->proc->ctty != t) || t->session == 0)
			return -ENOTTY;
		v = t->session;
		return PUT_USER(v, (int __user *)arg);
	case TIOCSCTTY:
		return ioctl_sctty(t, f, arg);
	case TIOCNOTTY:
		return ioctl_notty(t);
	}
	return -ENOTTY;
}

long tty_ioctl_common(struct tty *t, struct file *f, bool master, unsigned cmd,
		      unsigned long arg)
{
	void __user *p = (void __user *)arg;
	int v;

	switch (cmd) {
	case TIOCGPGRP:
	case TIOCSPGRP:
	case TIOCGSID:
	case TIOCSCTTY:
	case TIOCNOTTY:
		return ioctl_session(t, f, master, cmd, arg);
	case TIOCGWINSZ:
		return copy_to_user(p, &t->win, sizeof(t->win));
	case TIOCSWINSZ:
		return set_winsize(t, p);
	case TIOCSTI:
	case TIOCCONS:
		return -EPERM;
	case TIOCEXCL:
	case TIOCNXCL:
		t->exclusive = cmd == TIOCEXCL;
		return 0;
	case IOC_TIOCGEXCL:
		v = t->exclusive;
		return PUT_USER(v, (int __user *)p);
	case TIOCGETD:
		v = 0;
		return PUT_USER(v, (int __user *)p);
	case TIOCSETD:
		if (GET_USER(v, (int __user *)p) != 0)
			return -EFAULT;
		return v == 0 ? 0 : -EINVAL;
	case TIOCVHANGUP:
		if (!capable(CAP_SYS_ADMIN))
			return -EPERM;
		tty_hangup(t);
		return 0;
	case IOC_TIOCGDEV:
		v = (int)tty_device(t);
		return PUT_USER(v, (int __user *)p);
	}
	return ioctl_termios(t, master, cmd, arg);
}

/* ---- the slave as a file ---- */

static long slave_read(struct file *f, struct uio *u, uint64_t *pos)
{
	struct tty *t = f->priv;

	return file_dead(f, t) ? 0 : ntty_read(t, f, u);
}

static bool may_write(const struct tty *t)
{
	return !t->stopped && pty_out_room(t) >= 8;
}

/* All of one chunk, sleeping as needed; bytes taken, or negative errno if none. */
static long write_chunk(struct tty *t, struct file *f, const uint8_t *buf, size_t n)
{
	size_t done = 0;
	int ret = 0;

	while (done < n) {
		if (file_dead(f, t) || !t->master_open) {
			ret = -EIO;
			break;
		}
		if (may_write(t)) {
			done += ntty_output(t, buf + done, n - done);
			continue;
		}
		ret = -EAGAIN;
		if (f->flags & KO_NONBLOCK)
			break;
		ret = WAIT_EVENT(&t->wq, may_write(t) || file_dead(f, t) || !t->master_open);
		if (ret != 0)
			break;
	}
	return done != 0 ? (long)done : ret;
}

static long slave_write(struct file *f, struct uio *u, uint64_t *pos)
{
	struct tty *t = f->priv;
	uint8_t buf[CHUNK];
	long done = 0, n;
	int ret;

	if (file_dead(f, t))
		return -EIO;
	if (t->tio.lflag & TOSTOP) {
		ret = tty_job_control_write(t);
		if (ret != 0)
			return ret;
	}
	while (u->resid != 0) {
		size_t want = MIN(u->resid, sizeof(buf));
		size_t got = uio_get(u, buf, want);

		if (got == 0)
			return done != 0 ? done : -EFAULT;
		n = write_chunk(t, f, buf, got);
		if (n < 0)
			return done != 0 ? done : n;
		done += n;
		if ((size_t)n < want)
			break;
	}
	return done;
}

static unsigned slave_poll(struct file *f, struct poll_table *pt)
{
	struct tty *t = f->priv;
	unsigned ev = 0;

	if (file_dead(f, t))
		return KPOLLIN | KPOLLOUT | KPOLLERR | KPOLLHUP | KPOLLRDNORM | KPOLLWRNORM;
	poll_wait(pt, &t->wq);
	if (ntty_readable(t, true))
		ev |= KPOLLIN | KPOLLRDNORM;
	if (!t->master_open)
		ev |= KPOLLHUP;
	if (may_write(t))
		ev |= KPOLLOUT | KPOLLWRNORM;
	return ev;
}

static long slave_ioctl(struct file *f, unsigned cmd, unsigned long arg)
{
	struct tty *t = f->priv;
	int v;

	if (file_dead(f, t))
		return cmd == TIOCSPGRP ? -ENOTTY : -EIO;
	switch (cmd) {
	case TIOCINQ:	/* = FIONREAD */
		v = (int)ntty_input_size(t);
		return PUT_USER(v, (int __user *)arg);
	case TIOCOUTQ:
		v = 0;
		return PUT_USER(v, (int __user *)arg);
	}
	return tty_ioctl_common(t, f, false, cmd, arg);
}

static void slave_release(struct file *f)
{
	struct tty *t = f->priv;

	if (--t->slaves == 0) {
		t->slave_gone = true;
		t->exclusive = false;
		waitq_wake_all(&t->master_wq, KPOLLIN | KPOLLHUP);
	}
	tty_put(t);
}

static const struct file_ops tty_slave_ops = {
	.read = slave_read,
	.write = slave_write,
	.poll = slave_poll,
	.ioctl = slave_ioctl,
	.release = slave_release,
};

int tty_slave_attach(struct tty *t, struct file *f)
{
	if (t->exclusive && !capable(CAP_SYS_ADMIN))
		return -EBUSY;
	tty_get(t);
	t->slaves++;
	t->slave_gone = false;
	f->ops = &tty_slave_ops;
	f->priv = t;
	f->readdir_pos = t->generation;
	return 0;
}

/* An open without O_NOCTTY by a session leader that has no terminal. */
static void maybe_control(struct tty *t, struct file *f)
{
	struct process *p = current->proc;

	if ((f->flags & KO_NOCTTY) == 0 && f->can_read && p->pid == p->sid && p->ctty == NULL &&
	    t->session == 0)
		session_take(t);
}

int pty_slave_open(struct inode *i, struct file *f)
{
	struct tty *t = i->priv;
	int ret;

	if (t == NULL || !t->master_open || t->locked)
		return -EIO;
	ret = tty_slave_attach(t, f);
	if (ret == 0)
		maybe_control(t, f);
	return ret;
}

int tty_controlling_open(struct inode *i, struct file *f)
{
	struct tty *t = current->proc->ctty;

	if (t == NULL)
		return -ENXIO;
	return tty_slave_attach(t, f);
}
