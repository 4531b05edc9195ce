/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line discipline: what Linux calls n_tty.
 *
 * Input is a ring of 16-bit entries: a character and whether it ends a line. In canonical mode
 * in_canon entries from the tail belong to finished lines; what follows is being edited. In
 * raw mode everything is readable. The ring starts with 4096 entries and grows to 65536 while
 * a program is slow to read; a line being edited is cut at 4095 characters as on Linux.
 *
 * Echo and output share the output ring and the column count, which erasing tabs needs.
 */
#include <asm/termbits.h>

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/tty.h"
#include "guest-kernel/mm/page.h"

#define PKT_FLUSHREAD	1u
#define PKT_FLUSHWRITE	2u
#define PKT_STOP	4u
#define PKT_START	8u
#define PKT_NOSTOP	16u
#define PKT_DOSTOP	32u
#define PKT_IOCTL	64u

#define IN_EVENTS	(KPOLLIN | KPOLLRDNORM)

static inline bool lflag(const struct tty *t, uint32_t f)
{
	return (t->tio.lflag & f) != 0;
}
static inline bool iflag(const struct tty *t, uint32_t f)
{
	return (t->tio.iflag & f) != 0;
}
static inline bool oflag(const struct tty *t, uint32_t f)
{
	return (t->tio.oflag & f) != 0;
}
static inline bool is_cc(const struct tty *t, unsigned which, uint8_t c)
{
	return t->tio.cc[which] == c && c != 0;
}
static inline bool is_control(uint8_t c)
{
	return c < 0x20 || c == 0x7f;
}
static inline bool is_continuation(const struct tty *t, uint8_t c)
{
	return iflag(t, IUTF8) && (c & 0xc0) == 0x80;
}

void ntty_init(struct tty *t)
{
	static const uint8_t cc[TTY_NCC] = {
		[VINTR] = 3, [VQUIT] = 28, [VERASE] = 0x7f, [VKILL] = 21, [VEOF] = 4,
		[VTIME] = 0, [VMIN] = 1, [VSTART] = 17, [VSTOP] = 19, [VSUSP] = 26,
		[VREPRINT] = 18, [VDISCARD] = 15, [VWERASE] = 23, [VLNEXT] = 22,
	};

	t->tio.iflag = ICRNL | IXON;
	t->tio.oflag = OPOST | ONLCR;
	t->tio.cflag = B38400 | CS8 | CREAD;
	t->tio.lflag = ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN;
	t->tio.ispeed = t->tio.ospeed = 38400;
	memcpy(t->tio.cc, cc, sizeof(cc));
}

void ntty_done(struct tty *t)
{
	kfree(t->in);
	t->in = NULL;
	t->in_cap = t->in_len = t->in_canon = 0;
}

/* ---- the input ring ---- */

static inline uint16_t *in_at(const struct tty *t, unsigned n)
{
	return &t->in[(t->in_tail + n) & (t->in_cap - 1)];
}

static bool in_grow(struct tty *t)
{
	unsigned cap = t->in_cap != 0 ? t->in_cap * 2 : TTY_IN_MIN;
	uint16_t *n;

	if (cap > TTY_IN_MAX)
		return false;
	n = kmalloc(cap * sizeof(*n));
	if (n == NULL)
		return false;
	for (unsigned k = 0; k < t->in_len; k++)
		n[k] = *in_at(t, k);
	kfree(t->in);
	t->in = n;
	t->in_cap = cap;
	t->in_tail = 0;
	return true;
}

/* Room for one more entry (two with PARMRK). */
static bool in_room(struct tty *t)
{
	return t->in_len + 2 <= t->in_cap || in_grow(t);
}

static void in_put(struct tty *t, unsigned entry)
{
	bool editing = lflag(t, ICANON) && (entry & IN_DELIM) == 0;

	if (editing && t->in_len - t->in_canon >= TTY_LINE_MAX)
		return;
	if (t->in_len >= t->in_cap)
		return;
	*in_at(t, t->in_len++) = (uint16_t)entry;
	if (!editing)
		t->in_canon = t->in_len;
}

static void in_drop(struct tty *t)
{
	t->in_tail = (t->in_tail + 1) & (t->in_cap - 1);
	t->in_len--;
	if (t->in_canon != 0)
		t->in_canon--;
}

bool ntty_readable(const struct tty *t, bool poll)
{
	unsigned want = 1;

	if (lflag(t, ICANON))
		return t->in_canon != 0;
	if (poll && t->tio.cc[VTIME] == 0 && t->tio.cc[VMIN] != 0)
		want = t->tio.cc[VMIN];
	return t->in_len >= want;
}

size_t ntty_input_size(const struct tty *t)
{
	size_t n = 0;

	if (!lflag(t, ICANON))
		return t->in_len;
	for (unsigned k = 0; k < t->in_canon; k++)
		n += (*in_at(t, k) & IN_EOF) == 0;
	return n;
}

void ntty_flush_input(struct tty *t)
{
	t->in_len = t->in_canon = t->in_tail = 0;
	t->lnext = t->erasing = false;
	waitq_wake_all(&t->master_wq, KPOLLOUT | KPOLLWRNORM);
}

/* ---- output ---- */

/* One character of output processing into at most 8 bytes; updates the column. */
static unsigned output_char(struct tty *t, uint8_t c, uint8_t out[8])
{
	unsigned n = 0;

	switch (c) {
	case '\n':
		if (oflag(t, ONLRET))
			t->column = 0;
		if (oflag(t, ONLCR)) {
			out[n++] = '\r';
			t->column = 0;
		}
		t->canon_column = t->column;
		break;
	case '\r':
		if (oflag(t, ONOCR) && t->column == 0)
			return 0;
		if (oflag(t, OCRNL)) {
			c = '\n';
			if (oflag(t, ONLRET))
				t->canon_column = t->column = 0;
			break;
		}
		t->canon_column = t->column = 0;
		break;
	case '\t': {
		unsigned spaces = 8 - (t->column & 7);

		t->column += spaces;
		if ((t->tio.oflag & TABDLY) == XTABS) {
			memset(out, ' ', spaces);
			return spaces;
		}
		break;
	}
	case '\b':
		if (t->column > 0)
			t->column--;
		break;
	default:
		if (!is_control(c)) {
			if (oflag(t, OLCUC) && c >= 'a' && c <= 'z')
				c = (uint8_t)(c - 'a' + 'A');
			if (!is_continuation(t, c))
				t->column++;
		}
	}
	out[n++] = c;
	return n;
}

size_t ntty_output(struct tty *t, const uint8_t *buf, size_t n)
{
	size_t done = 0;
	uint8_t out[8];

	if (!oflag(t, OPOST))
		return pty_out_put(t, buf, n);
	for (; done < n; done++) {
		if (pty_out_room(t) < sizeof(out))
			break;
		pty_out_put(t, out, output_char(t, buf[done], out));
	}
	return done;
}

/* ---- echo: what does not fit is lost, as when Linux's echo buffer is full ---- */

static void echo_raw(struct tty *t, uint8_t c)
{
	uint8_t out[8] = { c };
	unsigned n = 1;

	if (pty_out_room(t) < sizeof(out))
		return;
	if (oflag(t, OPOST))
		n = output_char(t, c, out);
	pty_out_put(t, out, n);
}

static void echo_char(struct tty *t, uint8_t c)
{
	uint8_t out[2] = { '^', c ^ 0x40 };

	if (!lflag(t, ECHOCTL) || !is_control(c) || c == '\t') {
		echo_raw(t, c);
		return;
	}
	if (pty_out_put(t, out, 2) == 2)
		t->column += 2;
}

static void echo_back(struct tty *t)		/* "\b \b" */
{
	pty_out_put(t, (const uint8_t *)"\b \b", 3);
	if (t->column > 0)
		t->column--;
}

static void finish_erasing(struct tty *t)
{
	if (!t->erasing)
		return;
	echo_raw(t, '/');
	t->erasing = false;
}

/* Takes the last character of the line off; the entry is already gone. */
static void echo_erase_tab(struct tty *t)
{
	unsigned n = 0, back;
	bool after_tab = false;

	for (unsigned k = t->in_len; k > t->in_canon; k--) {
		uint8_t c = (uint8_t)*in_at(t, k - 1);

		if (c == '\t') {
			after_tab = true;
			break;
		}
		if (is_control(c)) {
			if (lflag(t, ECHOCTL))
				n += 2;
		} else if (!is_continuation(t, c)) {
			n++;
		}
	}
	if (!after_tab)
		n += t->canon_column;
	for (back = 8 - (n & 7); back > 0; back--) {
		pty_out_put(t, (const uint8_t *)"\b", 1);
		if (t->column > 0)
			t->column--;
	}
}

static void echo_erased(struct tty *t, uint8_t c, bool one)
{
	if (lflag(t, ECHOPRT)) {
		if (!t->erasing) {
			echo_raw(t, '\\');
			t->erasing = true;
		}
		echo_char(t, c);
	} else if (one && !lflag(t, ECHOE)) {
		echo_char(t, t->tio.cc[VERASE]);
	} else if (c == '\t') {
		echo_erase_tab(t);
	} else {
		if (is_control(c) && lflag(t, ECHOCTL))
			echo_back(t);
		if (!is_control(c) || lflag(t, ECHOCTL))
			echo_back(t);
	}
}

static bool is_word(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '_';
}

/* ERASE, WERASE, KILL. */
static void erase(struct tty *t, unsigned which)
{
	bool seen = false;
	unsigned k;

	if (t->in_len == t->in_canon)
		return;
	if (which == VKILL) {
		if (!lflag(t, ECHO)) {
			t->in_len = t->in_canon;
			return;
		}
		if (!lflag(t, ECHOK) || !lflag(t, ECHOKE) || !lflag(t, ECHOE)) {
			t->in_len = t->in_canon;
			finish_erasing(t);
			echo_char(t, t->tio.cc[VKILL]);
			if (lflag(t, ECHOK))
				echo_raw(t, '\n');
			return;
		}
	}
	while (t->in_len != t->in_canon) {
		uint8_t c;

		k = t->in_len;
		do {
			k--;
			c = (uint8_t)*in_at(t, k);
		} while (is_continuation(t, c) && k != t->in_canon);
		if (is_continuation(t, c))
			break;
		if (which == VWERASE) {
			if (is_word(c))
				seen = true;
			else if (seen)
				break;
		}
		t->in_len = k;
		if (lflag(t, ECHO))
			echo_erased(t, c, which == VERASE);
		if (which == VERASE)
			break;
	}
	if (t->in_len == t->in_canon && lflag(t, ECHO))
		finish_erasing(t);
}

/* ---- input ---- */

void ntty_start(struct tty *t)
{
	if (!t->stopped)
		return;
	t->stopped = false;
	pty_packet_event(t, PKT_START);
	waitq_wake_all(&t->wq, KPOLLOUT | KPOLLWRNORM);
}

void ntty_stop(struct tty *t)
{
	if (t->stopped)
		return;
	t->stopped = true;
	pty_packet_event(t, PKT_STOP);
}

static void receive_signal(struct tty *t, int sig, uint8_t c)
{
	if (!lflag(t, NOFLSH)) {
		pty_out_flush(t);
		ntty_flush_input(t);
		pty_packet_event(t, PKT_FLUSHREAD | PKT_FLUSHWRITE);
	}
	tty_signal(t, sig);
	if (iflag(t, IXON))
		ntty_start(t);
	if (lflag(t, ECHO)) {
		finish_erasing(t);
		echo_char(t, c);
	}
}

static void end_line(struct tty *t, unsigned entry)
{
	in_put(t, entry | IN_DELIM);
	waitq_wake(&t->wq, IN_EVENTS);
}

/* Editing and line ends of canonical mode; false: an ordinary character. */
static bool receive_canon(struct tty *t, uint8_t c)
{
	bool ext = lflag(t, IEXTEN);

	if (is_cc(t, VERASE, c)) {
		erase(t, VERASE);
	} else if (is_cc(t, VKILL, c)) {
		erase(t, VKILL);
	} else if (is_cc(t, VWERASE, c) && ext) {
		erase(t, VWERASE);
	} else if (is_cc(t, VLNEXT, c) && ext) {
		t->lnext = true;
		if (lflag(t, ECHO)) {
			finish_erasing(t);
			if (lflag(t, ECHOCTL))
				pty_out_put(t, (const uint8_t *)"^\b", 2);
		}
	} else if (is_cc(t, VREPRINT, c) && lflag(t, ECHO) && ext) {
		finish_erasing(t);
		echo_char(t, c);
		echo_raw(t, '\n');
		for (unsigned k = t->in_canon; k < t->in_len; k++)
			echo_char(t, (uint8_t)*in_at(t, k));
	} else if (c == '\n') {
		if (lflag(t, ECHO | ECHONL))
			echo_raw(t, '\n');
		end_line(t, c);
	} else if (is_cc(t, VEOF, c)) {
		end_line(t, IN_EOF);
	} else if (is_cc(t, VEOL, c) || (is_cc(t, VEOL2, c) && ext)) {
		if (lflag(t, ECHO)) {
			if (t->in_len == t->in_canon)
				t->canon_column = t->column;
			echo_char(t, c);
		}
		if (iflag(t, PARMRK) && c == 0xff)
			in_put(t, c);
		end_line(t, c);
	} else {
		return false;
	}
	return true;
}

static void receive_plain(struct tty *t, uint8_t c)
{
	if (lflag(t, ECHO)) {
		finish_erasing(t);
		if (c == '\n') {
			echo_raw(t, '\n');
		} else {
			if (t->in_len == t->in_canon)
				t->canon_column = t->column;
			echo_char(t, c);
		}
	}
	if (iflag(t, PARMRK) && c == 0xff)
		in_put(t, c);
	in_put(t, c);
}

static void receive_char(struct tty *t, uint8_t c)
{
	if (iflag(t, ISTRIP))
		c &= 0x7f;
	if (iflag(t, IUCLC) && lflag(t, IEXTEN) && c >= 'A' && c <= 'Z')
		c = (uint8_t)(c - 'A' + 'a');
	if (lflag(t, EXTPROC)) {
		in_put(t, c);
		return;
	}
	if (t->lnext) {
		t->lnext = false;
		receive_plain(t, c);
		return;
	}
	if (iflag(t, IXON)) {
		if (is_cc(t, VSTART, c)) {
			ntty_start(t);
			return;
		}
		if (is_cc(t, VSTOP, c)) {
			ntty_stop(t);
			return;
		}
	}
	if (lflag(t, ISIG)) {
		int sig = is_cc(t, VINTR, c) ? KSIGINT : is_cc(t, VQUIT, c) ? KSIGQUIT :
			  is_cc(t, VSUSP, c) ? KSIGTSTP : 0;

		if (sig != 0) {
			receive_signal(t, sig, c);
			return;
		}
	}
	if (t->stopped && iflag(t, IXON) && iflag(t, IXANY))
		ntty_start(t);
	if (c == '\r') {
		if (iflag(t, IGNCR))
			return;
		if (iflag(t, ICRNL))
			c = '\n';
	} else if (c == '\n' && iflag(t, INLCR)) {
		c = '\r';
	}
	if (lflag(t, ICANON) && receive_canon(t, c))
		return;
	receive_plain(t, c);
}

size_t ntty_receive(struct tty *t, const uint8_t *buf, size_t n)
{
	size_t done = 0;

	for (; done < n; done++) {
		if (!in_room(t)) {
			/* With no line to read, what overflows is lost: newlines must get in. */
			if (!lflag(t, ICANON) || t->in_canon != 0)
				break;
		}
		receive_char(t, buf[done]);
	}
	if (ntty_readable(t, true))
		waitq_wake(&t->wq, IN_EVENTS);
	return done;
}

void ntty_termios_changed(struct tty *t, const struct tty_termios *old)
{
	bool was = (old->iflag & IXON) != 0, is = iflag(t, IXON);

	if ((old->lflag ^ t->tio.lflag) & ICANON) {
		/* What was typed so far can be read, as one line. */
		t->in_canon = t->in_len;
		t->erasing = t->lnext = false;
		waitq_wake_all(&t->wq, IN_EVENTS);
	}
	if (was && !is)
		ntty_start(t);
	if (t->packet) {
		bool old_flow = was && old->cc[VSTOP] == 19 && old->cc[VSTART] == 17;
		bool new_flow = is && t->tio.cc[VSTOP] == 19 && t->tio.cc[VSTART] == 17;

		if (old_flow != new_flow) {
			t->packet_status &= (uint8_t)~(PKT_DOSTOP | PKT_NOSTOP);
			pty_packet_event(t, new_flow ? PKT_DOSTOP : PKT_NOSTOP);
		}
		if ((old->lflag | t->tio.lflag) & EXTPROC)
			pty_packet_event(t, PKT_IOCTL);
	}
}

/* ---- reading ---- */

/* One line or what fits of it; 0 for an end-of-file mark. Bytes, or -EFAULT. */
static long take_line(struct tty *t, struct uio *u)
{
	uint8_t buf[128];
	size_t n = 0;
	long done = 0;
	bool end = false;

	while (!end && t->in_canon != 0 && n < u->resid) {
		uint16_t e = *in_at(t, 0);

		in_drop(t);
		if (e & IN_EOF)
			break;
		buf[n++] = (uint8_t)e;
		end = (e & IN_DELIM) != 0;
		if (n < sizeof(buf) && !end)
			continue;
		if (uio_put(u, buf, n) < n)
			return -EFAULT;
		done += (long)n;
		n = 0;
	}
	if (n != 0) {
		if (uio_put(u, buf, n) < n)
			return -EFAULT;
		done += (long)n;
	}
	/* What fits exactly takes the end-of-file mark behind it along. */
	if (u->resid == 0 && !end && t->in_canon != 0 && (*in_at(t, 0) & IN_EOF))
		in_drop(t);
	return done;
}

static long take_raw(struct tty *t, struct uio *u)
{
	uint8_t buf[128];
	size_t n = 0;
	long done = 0;

	while (t->in_len != 0 && u->resid > n) {
		uint16_t e = *in_at(t, 0);

		in_drop(t);
		buf[n++] = e & IN_EOF ? 0 : (uint8_t)e;
		if (n < sizeof(buf) && t->in_len != 0 && u->resid > n)
			continue;
		if (uio_put(u, buf, n) < n)
			return -EFAULT;
		done += (long)n;
		n = 0;
	}
	if (n != 0 && uio_put(u, buf, n) < n)
		return -EFAULT;
	return done + (long)n;
}

static int wait_input(struct tty *t, struct file *f, unsigned gen, uint64_t deadline)
{
	int ret;

	if (t->generation != gen)
		return -EIO;
	if (f->flags & KO_NONBLOCK)
		return -EAGAIN;
	ret = WAIT_EVENT_DEADLINE(&t->wq, ntty_readable(t, false) || t->generation != gen,
				  deadline);
	if (ret == 0 && t->generation != gen && !ntty_readable(t, false))
		return -EIO;
	return ret;
}

static uint64_t deciseconds(uint8_t n)
{
	return n != 0 ? clock_monotonic_ns() + n * (100 * NSEC_PER_MSEC) : NO_DEADLINE;
}

/* VMIN and VTIME as termios(3) tells it. */
static long read_raw(struct tty *t, struct file *f, struct uio *u, unsigned gen)
{
	uint8_t vtime = t->tio.cc[VTIME], vmin = t->tio.cc[VMIN];
	uint64_t deadline = NO_DEADLINE;
	long done = 0, n;
	int ret = 0;

	if (vmin == 0)
		deadline = vtime != 0 ? deciseconds(vtime) : 0;
	for (;;) {
		if (lflag(t, ICANON))
			return done;		/* changed while we slept */
		n = take_raw(t, u);
		if (n < 0)
			return done != 0 ? done : n;
		if (n > 0) {
			done += n;
			waitq_wake(&t->master_wq, KPOLLOUT | KPOLLWRNORM);
			if (vmin != 0)
				deadline = deciseconds(vtime);
		}
		if (u->resid == 0 || (done != 0 && done >= (long)vmin))
			break;
		if (done == 0 && vmin == 0 && vtime == 0) {
			if (t->generation != gen)
				return -EIO;
			return 0;
		}
		ret = tty_job_control_read(t);
		if (ret == 0)
			ret = wait_input(t, f, gen, deadline);
		if (ret != 0)
			break;
	}
	if (done != 0 || ret == -ETIMEDOUT)
		return done;
	return ret;
}

static long read_canon(struct tty *t, struct file *f, struct uio *u, unsigned gen)
{
	long n;
	int ret;

	while (t->in_canon == 0) {
		if (!lflag(t, ICANON))
			return read_raw(t, f, u, gen);
		ret = wait_input(t, f, gen, NO_DEADLINE);
		if (ret == 0)
			ret = tty_job_control_read(t);
		if (ret != 0)
			return ret;
	}
	n = take_line(t, u);
	waitq_wake(&t->master_wq, KPOLLOUT | KPOLLWRNORM);
	return n;
}

long ntty_read(struct tty *t, struct file *f, struct uio *u)
{
	unsigned gen = t->generation;
	long n;
	int ret = tty_job_control_read(t);

	if (ret != 0)
		return ret;
	if (u->resid == 0)
		return 0;
	n = lflag(t, ICANON) ? read_canon(t, f, u, gen) : read_raw(t, f, u, gen);
	/* Others may wait for what is left. */
	if (ntty_readable(t, false) && !waitq_empty(&t->wq))
		waitq_wake(&t->wq, IN_EVENTS);
	return n;
}
