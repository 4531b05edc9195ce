/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll(2), ppoll, select, pselect6.
 *
 * A struct poll_wait_set collects one waiter for each queue that the files polled name in the
 * first pass; each holds its file, since queues live in files. The passes after a wake-up only
 * ask. The first few waiters are on the stack, the rest in chunks.
 */
#include <linux/resource.h>

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time_internal.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

/* ---- waiting for many ---- */

struct poll_entry {
	struct waiter w;
	struct poll_wait_set *set;
	struct file *file;
};
#define ENTRIES_INLINE	4u
#define ENTRIES_CHUNK	42u
struct poll_chunk {
	struct poll_chunk *next;
	unsigned used;
	struct poll_entry entries[ENTRIES_CHUNK];
};

struct poll_wait_set {
	struct poll_table pt;
	struct file *file;		/* being polled */
	bool woken;
	int error;
	unsigned used;
	struct poll_chunk *chunks;
	struct poll_entry entries[ENTRIES_INLINE];
};

static bool poll_woken(struct waiter *w, unsigned key)
{
	struct poll_entry *e = CONTAINER_OF(w, struct poll_entry, w);

	e->set->woken = true;
	sched_wake(w->task);
	return true;
}

static struct poll_entry *entry_new(struct poll_wait_set *set)
{
	struct poll_chunk *c = set->chunks;

	if (set->used < ENTRIES_INLINE)
		return &set->entries[set->used++];
	if (c == NULL || c->used == ENTRIES_CHUNK) {
		c = kmalloc(sizeof(*c));
		if (c == NULL)
			return NULL;
		c->used = 0;
		c->next = set->chunks;
		set->chunks = c;
	}
	return &c->entries[c->used++];
}

static void poll_queue(struct poll_table *pt, struct waitq *wq)
{
	struct poll_wait_set *set = CONTAINER_OF(pt, struct poll_wait_set, pt);
	struct poll_entry *e = entry_new(set);

	if (e == NULL) {
		set->error = -ENOMEM;
		return;
	}
	waiter_init(&e->w);
	e->w.func = poll_woken;
	e->w.exclusive = false;
	e->set = set;
	e->file = set->file;
	file_get(e->file);
	waitq_add(wq, &e->w);
}

static void poll_set_init(struct poll_wait_set *set)
{
	set->pt.queue = poll_queue;
	set->file = NULL;
	set->woken = false;
	set->error = 0;
	set->used = 0;
	set->chunks = NULL;
}

static void entries_done(struct poll_entry *e, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		waitq_del(&e[i].w);
		file_put(e[i].file);
	}
}

static void poll_set_done(struct poll_wait_set *set)
{
	struct poll_chunk *c;

	entries_done(set->entries, set->used);
	while ((c = set->chunks) != NULL) {
		set->chunks = c->next;
		entries_done(c->entries, c->used);
		kfree(c);
	}
}

/* Once: until woken, a signal, or the deadline. A wake-up since the last pass counts. */
static int poll_set_sleep(struct poll_wait_set *set, uint64_t deadline)
{
	int r = 0;

	if (!set->woken)
		r = sleep_once(deadline, true);
	set->woken = false;
	return r;
}

/* Events of f; registers with set while `registering`. */
static unsigned poll_one(struct poll_wait_set *set, struct file *f, bool registering)
{
	set->file = f;
	return file_poll(f, registering ? &set->pt : NULL);
}

/* ---- poll ---- */

struct kpollfd {
	int32_t fd;
	int16_t events, revents;
};
#define POLL_FDS_INLINE 16u

static unsigned poll_fds_pass(struct poll_wait_set *set, struct kpollfd *fds, unsigned n,
			      bool registering)
{
	unsigned count = 0;

	for (unsigned i = 0; i < n; i++) {
		unsigned want = (uint16_t)fds[i].events | KPOLLERR | KPOLLHUP, got = 0;

		if (fds[i].fd >= 0) {
			struct file *f = fd_get(fds[i].fd);

			if (f == NULL) {
				got = KPOLLNVAL;
			} else {
				/* Once something is ready nobody will sleep. */
				got = poll_one(set, f, registering && count == 0) & want;
				file_put(f);
			}
		}
		fds[i].revents = (int16_t)got;
		if (got != 0)
			count++;
	}
	return count;
}

/* Ready descriptors; 0 on timeout; -ERESTARTNOHAND, -ENOMEM. Deadline 0: no waiting. */
static long poll_fds(struct kpollfd *fds, unsigned n, uint64_t deadline)
{
	struct poll_wait_set set;
	bool first = true;
	long ret;
	int r = 0;

	poll_set_init(&set);
	for (;;) {
		ret = poll_fds_pass(&set, fds, n, first && deadline != 0);
		first = false;
		if (ret != 0 || deadline == 0 || r == -ETIMEDOUT)
			break;
		ret = set.error;
		if (ret != 0)
			break;
		if (signal_pending(current)) {
			ret = -ERESTARTNOHAND;
			break;
		}
		r = poll_set_sleep(&set, deadline);
	}
	poll_set_done(&set);
	return ret;
}

static long poll_user(struct kpollfd __user *ufds, unsigned n, uint64_t deadline)
{
	struct kpollfd few[POLL_FDS_INLINE], *fds = few;
	long ret;

	if (n > rlimit_cur(RLIMIT_NOFILE))
		return -EINVAL;
	if (n > POLL_FDS_INLINE) {
		fds = kmalloc(n * sizeof(*fds));
		if (fds == NULL)
			return -ENOMEM;
	}
	if (copy_from_user(fds, ufds, n * sizeof(*fds)) != 0) {
		ret = -EFAULT;
		goto out;
	}
	ret = poll_fds(fds, n, deadline);
	/* Only revents is the kernel's to write. */
	for (unsigned i = 0; ret >= 0 && i < n; i++) {
		if (PUT_USER(fds[i].revents, &ufds[i].revents) != 0)
			ret = -EFAULT;
	}
out:
	if (fds != few)
		kfree(fds);
	return ret;
}

static long poll_restart(struct task *t)
{
	long r = poll_user((struct kpollfd __user *)t->restart_arg[0],
			   (unsigned)t->restart_arg[1], (uint64_t)t->restart_arg[2]);

	return r == -ERESTARTNOHAND ? -ERESTART_RESTARTBLOCK : r;
}

SYSCALL(poll, struct kpollfd __user *ufds, unsigned n, int timeout_ms)
{
	uint64_t deadline = NO_DEADLINE;
	long r;

	if (timeout_ms == 0)
		deadline = 0;
	else if (timeout_ms > 0)
		deadline = deadline_after((uint64_t)timeout_ms * NSEC_PER_MSEC);
	r = poll_user(ufds, n, deadline);
	if (r != -ERESTARTNOHAND)
		return r;
	current->restart_fn = poll_restart;
	current->restart_arg[0] = (long)ufds;
	current->restart_arg[1] = (long)n;
	current->restart_arg[2] = (long)deadline;
	return -ERESTART_RESTARTBLOCK;
}

/* ---- time left, written back as Linux does ---- */

/* ns to a deadline; 0 stays "do not wait". */
static uint64_t deadline_from(uint64_t ns)
{
	return ns == 0 ? 0 : deadline_after(ns);
}

static uint64_t time_left(uint64_t deadline)
{
	uint64_t now = clock_monotonic_ns();

	return deadline > now ? deadline - now : 0;
}

/* The call cannot be restarted with a time that was not written back. */
static long finish_timespec(long ret, struct ktimespec __user *uts, uint64_t deadline)
{
	signal_restore_temp_mask(ret == -ERESTARTNOHAND);
	if (uts == NULL || deadline == 0)
		return ret;
	if (timespec_put_user(uts, time_left(deadline)) != 0 && ret == -ERESTARTNOHAND)
		return -EINTR;
	return ret;
}

SYSCALL(ppoll, struct kpollfd __user *ufds, unsigned n, struct ktimespec __user *uts,
	const uint64_t __user *umask, size_t size)
{
	uint64_t deadline = NO_DEADLINE, ns;
	int r;

	if (uts != NULL) {
		r = timespec_get_user(uts, &ns);
		if (r != 0)
			return r;
		deadline = deadline_from(ns);
	}
	r = signal_use_temp_mask(umask, size);
	if (r != 0)
		return r;
	return finish_timespec(poll_user(ufds, n, deadline), uts, deadline);
}

/* ---- select ---- */

#define SELECT_INLINE_WORDS 4u		/* 256 descriptors */
#define SELECT_IN	(KPOLLRDNORM | KPOLLRDBAND | KPOLLIN | KPOLLHUP | KPOLLERR)
#define SELECT_OUT	(0x200u /* WRBAND */ | KPOLLWRNORM | KPOLLOUT | KPOLLERR)
#define SELECT_EX	KPOLLPRI

struct select_sets {
	uint64_t *in[3], *out[3];	/* read, write, except */
	unsigned n, words;
};

static const unsigned select_events[3] = { SELECT_IN, SELECT_OUT, SELECT_EX };

/* Linux cuts n at the size of the descriptor table, so that a caller who passes a huge n with
 * small sets is served. Our table's size: past the last open descriptor, at least 256. */
static unsigned select_clamp(int n)
{
	struct files *files = current->proc->files;
	unsigned low = 0, high = 1u << 20;

	if (n <= 256)
		return (unsigned)n;
	while (low < high) {		/* smallest x with nothing open at or above it */
		unsigned mid = low + (high - low) / 2;

		if (files_next(files, (int)mid) >= 0)
			low = mid + 1;
		else
			high = mid;
	}
	low = MAX(ALIGN_UP(low, 64u), 256u);
	return MIN((unsigned)n, low);
}

/* Descriptors ready in all three sets together, or -EBADF. */
static long select_pass(struct poll_wait_set *set, struct select_sets *s, bool registering)
{
	long count = 0;

	for (unsigned w = 0; w < s->words; w++) {
		uint64_t all = s->in[0][w] | s->in[1][w] | s->in[2][w];

		s->out[0][w] = s->out[1][w] = s->out[2][w] = 0;
		for (; all != 0; all &= all - 1) {
			unsigned b = (unsigned)__builtin_ctzll(all), fd = w * 64 + b, got;
			struct file *f;

			if (fd >= s->n)
				break;
			f = fd_get((int)fd);
			if (f == NULL)
				return -EBADF;
			got = poll_one(set, f, registering && count == 0);
			file_put(f);
			for (unsigned k = 0; k < 3; k++) {
				if ((s->in[k][w] >> b & 1) != 0 &&
				    (got & select_events[k]) != 0) {
					s->out[k][w] |= 1ULL << b;
					count++;
				}
			}
		}
	}
	return count;
}

static long select_wait(struct select_sets *s, uint64_t deadline)
{
	struct poll_wait_set set;
	bool first = true;
	long ret;
	int r = 0;

	poll_set_init(&set);
	for (;;) {
		ret = select_pass(&set, s, first && deadline != 0);
		first = false;
		if (ret != 0 || deadline == 0 || r == -ETIMEDOUT)
			break;
		ret = set.error;
		if (ret != 0)
			break;
		if (signal_pending(current)) {
			ret = -ERESTARTNOHAND;
			break;
		}
		r = poll_set_sleep(&set, deadline);
	}
	poll_set_done(&set);
	return ret;
}

/* Linux's sets are arrays of unsigned long: whole words are read and written. */
static long select_user(int n, uint64_t __user *const user[3], uint64_t deadline)
{
	uint64_t few[6 * SELECT_INLINE_WORDS], *bits = few;
	struct select_sets s;
	size_t bytes;
	long ret;

	if (n < 0)
		return -EINVAL;
	s.n = select_clamp(n);
	s.words = (s.n + 63) / 64;
	bytes = s.words * sizeof(uint64_t);
	if (s.words > SELECT_INLINE_WORDS) {
		bits = kmalloc(6 * bytes);
		if (bits == NULL)
			return -ENOMEM;
	}
	ret = -EFAULT;
	for (unsigned k = 0; k < 3; k++) {
		s.in[k] = bits + k * s.words;
		s.out[k] = bits + (3 + k) * s.words;
		if (user[k] == NULL)
			memset(s.in[k], 0, bytes);
		else if (copy_from_user(s.in[k], user[k], bytes) != 0)
			goto out;
	}
	ret = select_wait(&s, deadline);
	for (unsigned k = 0; ret >= 0 && k < 3; k++) {
		if (user[k] != NULL && copy_to_user(user[k], s.out[k], bytes) != 0)
			ret = -EFAULT;
	}
out:
	if (bits != few)
		kfree(bits);
	return ret;
}

SYSCALL(select, int n, uint64_t __user *in, uint64_t __user *out, uint64_t __user *ex,
	struct ktimeval __user *utv)
{
	uint64_t __user *const user[3] = { in, out, ex };
	uint64_t deadline = NO_DEADLINE, ns;
	struct ktimeval tv;
	long ret;

	if (utv != NULL) {
		if (GET_USER(tv, utv) != 0)
			return -EFAULT;
		/* Microseconds beyond a second are carried, as Linux does here alone. */
		if (tv.sec < 0 || tv.usec < 0)
			return -EINVAL;
		ns = INT64_MAX;
		if (tv.sec < INT64_MAX / (int64_t)NSEC_PER_SEC / 2 &&
		    tv.usec / 1000000 < INT64_MAX / (int64_t)NSEC_PER_SEC / 2)
			ns = (uint64_t)(tv.sec + tv.usec / 1000000) * NSEC_PER_SEC +
			     (uint64_t)(tv.usec % 1000000) * NSEC_PER_USEC;
		deadline = deadline_from(ns);
	}
	ret = select_user(n, user, deadline);
	if (utv != NULL && deadline != 0) {
		ns = time_left(deadline);
		tv.sec = (int64_t)(ns / NSEC_PER_SEC);
		tv.usec = (int64_t)(ns % NSEC_PER_SEC / NSEC_PER_USEC);
		if (PUT_USER(tv, utv) != 0 && ret == -ERESTARTNOHAND)
			ret = -EINTR;
	}
	return ret;
}

struct sigset_arg {
	const uint64_t __user *mask;
	size_t size;
};

SYSCALL(pselect6, int n, uint64_t __user *in, uint64_t __user *out, uint64_t __user *ex,
	struct ktimespec __user *uts, const struct sigset_arg __user *usig)
{
	uint64_t __user *const user[3] = { in, out, ex };
	uint64_t deadline = NO_DEADLINE, ns;
	struct sigset_arg sig = { NULL, 0 };
	int r;

	if (usig != NULL && GET_USER(sig, usig) != 0)
		return -EFAULT;
	if (uts != NULL) {
		r = timespec_get_user(uts, &ns);
		if (r != 0)
			return r;
		deadline = deadline_from(ns);
	}
	r = signal_use_temp_mask(sig.mask, sig.size);
	if (r != 0)
		return r;
	return finish_timespec(select_user(n, user, deadline), uts, deadline);
}
