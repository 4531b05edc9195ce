/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Futexes: sleepers on an address of a program, in hashed buckets, first come first woken.
 *
 * A key says when two addresses are the same futex: of a shared mapping the inode and the
 * offset in it (anonymous shared memory has an inode too), otherwise the address space and the
 * address. A waiter on a shared mapping holds a reference to the inode, so that the key cannot
 * come to mean another one.
 *
 * Nothing runs between the look at the program's word and the sleep, so the promise of
 * FUTEX_WAIT is free.
 *
 * The locks with priority inheritance are kept as Linux keeps them: the word holds the owner's
 * thread ID, and unlocking with waiters hands it to the first of them. Nobody's priority is
 * inherited: real-time policies run as ordinary ones here, so there is none. A waiter remembers
 * the owner, for an owner's death to find those who wait for it.
 */
#include <linux/futex.h>

#include "abi/layout.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/uaccess.h"

#define FUTEX_BUCKETS	256u
#define ROBUST_LIMIT	2048	/* entries of a robust list that are looked at */
#define MAP_SHARED_BIT	0x01u

struct futex_key {
	const void *object;	/* struct inode or struct mm */
	uint64_t offset;
};

struct futex_waiter {
	TAILQ_ENTRY(futex_waiter) link;
	struct futex_key key;
	struct inode *inode;	/* reference, or NULL */
	struct task *task;
	uint32_t bitset;
	bool queued;		/* false: woken; of a PI lock: owns it */
	/* of a PI lock only */
	bool pi;
	uint32_t __user *uaddr;
	int owner;		/* thread ID; 0: it has died, look at the word again */
};
TAILQ_HEAD(futex_bucket, futex_waiter);

static struct futex_bucket buckets[FUTEX_BUCKETS];
static bool buckets_ready;
static unsigned pi_waiters;	/* queued ones: an exit looks for its own only if there are any */

static struct futex_bucket *bucket_of(const struct futex_key *k)
{
	uint64_t h = ((uintptr_t)k->object >> 4) * 0x9e3779b97f4a7c15ULL ^
		     (k->offset >> 2) * 0xc2b2ae3d27d4eb4fULL;

	if (!buckets_ready) {
		for (unsigned i = 0; i < FUTEX_BUCKETS; i++)
			TAILQ_INIT(&buckets[i]);
		buckets_ready = true;
	}
	return &buckets[h >> 56];
}

static bool key_equal(const struct futex_key *a, const struct futex_key *b)
{
	return a->object == b->object && a->offset == b->offset;
}

/* *ret_inode: borrowed, of a shared mapping. */
static int futex_key_get(uint32_t __user *uaddr, bool shared, struct futex_key *ret,
			 struct inode **ret_inode)
{
	uintptr_t addr = (uintptr_t)uaddr;
	struct vma *v;

	*ret_inode = NULL;
	if (addr % sizeof(uint32_t) != 0)
		return -EINVAL;
	if (addr >= CM_USER_TOP)
		return -EFAULT;
	*ret = (struct futex_key){.object = current->mm, .offset = addr};
	if (!shared)
		return 0;
	v = mm_find(current->mm, addr);
	if (v == NULL || v->start > addr)
		return -EFAULT;
	if ((v->flags & MAP_SHARED_BIT) != 0 && v->inode != NULL) {
		ret->object = v->inode;
		ret->offset = (v->pgoff << PAGE_SHIFT) + (addr - v->start);
		*ret_inode = v->inode;
	}
	return 0;
}

static void waiter_queue(struct futex_waiter *w, struct inode *inode)
{
	if (inode != NULL)
		inode_get(inode);
	w->inode = inode;
	w->queued = true;
	TAILQ_INSERT_TAIL(bucket_of(&w->key), w, link);
}

static void waiter_unqueue(struct futex_waiter *w)
{
	struct inode *inode = w->inode;

	TAILQ_REMOVE(bucket_of(&w->key), w, link);
	w->queued = false;
	w->inode = NULL;
	if (inode != NULL)
		inode_put(inode);
}

static int wake_key(const struct futex_key *key, int n, uint32_t bitset)
{
	struct futex_bucket *b = bucket_of(key);
	struct futex_waiter *w, *next;
	int woken = 0;

	for (w = TAILQ_FIRST(b); w != NULL; w = next) {
		next = TAILQ_NEXT(w, link);
		if (!key_equal(&w->key, key))
			continue;
		if (w->pi)		/* two uses of one word that do not go together */
			return -EINVAL;
		if ((w->bitset & bitset) == 0)
			continue;
		waiter_unqueue(w);
		sched_wake(w->task);
		if (++woken >= n)	/* at least one, as on Linux */
			break;
	}
	return woken;
}

/* ---- waiting ---- */

/* Sleeps once, to an absolute deadline of the clock that realtime says; NO_DEADLINE: none. */
static int waiter_sleep(uint64_t deadline, bool realtime)
{
	if (realtime && deadline != NO_DEADLINE)
		return sleep_once_realtime(deadline);
	return sleep_once(deadline, true);
}

/* deadline and realtime as for waiter_sleep(). */
static long wait_until(uint32_t __user *uaddr, bool shared, uint32_t val, uint64_t deadline,
		       bool realtime, uint32_t bitset)
{
	struct futex_waiter w = {.task = current, .bitset = bitset};
	struct inode *inode;
	uint32_t now;
	int r;

	if (bitset == 0)
		return -EINVAL;
	r = futex_key_get(uaddr, shared, &w.key, &inode);
	if (r != 0)
		return r;
	if (GET_USER(now, uaddr) != 0)
		return -EFAULT;
	if (now != val)
		return -EAGAIN;
	waiter_queue(&w, inode);
	r = 0;
	while (w.queued && r == 0)
		r = waiter_sleep(deadline, realtime);
	if (!w.queued)
		return 0;
	waiter_unqueue(&w);
	return r;
}

static long wait_restart(struct task *t)
{
	long *a = t->restart_arg;
	long r = wait_until((uint32_t __user *)a[0], (a[1] & 1) != 0, (uint32_t)a[2],
			    (uint64_t)a[3], (a[1] & 2) != 0, (uint32_t)a[4]);

	return r == -ERESTARTSYS ? -ERESTART_RESTARTBLOCK : r;
}

static long futex_wait(uint32_t __user *uaddr, bool shared, uint32_t val, uint64_t deadline,
		       bool realtime, uint32_t bitset)
{
	long r = wait_until(uaddr, shared, val, deadline, realtime, bitset);

	if (r != -ERESTARTSYS || deadline == NO_DEADLINE)
		return r;
	/* A restarted call must keep the deadline that the first one had. */
	current->restart_arg[0] = (long)uaddr;
	current->restart_arg[1] = (shared ? 1 : 0) | (realtime ? 2 : 0);
	current->restart_arg[2] = (long)val;
	current->restart_arg[3] = (long)deadline;
	current->restart_arg[4] = (long)bitset;
	current->restart_fn = wait_restart;
	return -ERESTART_RESTARTBLOCK;
}

/* ---- waking ---- */

static long do_wake(uint32_t __user *uaddr, bool shared, int n, uint32_t bitset)
{
	struct futex_key key;
	struct inode *inode;
	int r;

	if (bitset == 0)
		return -EINVAL;
	r = futex_key_get(uaddr, shared, &key, &inode);
	return r != 0 ? r : wake_key(&key, n, bitset);
}

int futex_wake(uint32_t __user *uaddr, int n)
{
	return (int)do_wake(uaddr, true, n, FUTEX_BITSET_MATCH_ANY);
}

/* cmp NULL: FUTEX_REQUEUE. Returns how many were woken or moved. */
static long futex_requeue(uint32_t __user *uaddr, uint32_t __user *uaddr2, bool shared,
			  int nwake, int nmove, const uint32_t *cmp)
{
	struct futex_key from, to;
	struct inode *inode, *inode2;
	struct futex_waiter *w, *next, *last;
	struct futex_bucket *b;
	int n = 0, r;

	if (nwake < 0 || nmove < 0)
		return -EINVAL;
	r = futex_key_get(uaddr, shared, &from, &inode);
	if (r == 0)
		r = futex_key_get(uaddr2, shared, &to, &inode2);
	if (r != 0)
		return r;
	if (cmp != NULL) {
		uint32_t now;

		if (GET_USER(now, uaddr) != 0)
			return -EFAULT;
		if (now != *cmp)
			return -EAGAIN;
	}
	/* Moved waiters go to the tail of a list, of this one if the keys share a bucket: the
	 * walk ends where it ended before the first was moved. */
	b = bucket_of(&from);
	last = TAILQ_LAST(b, futex_bucket);
	for (w = TAILQ_FIRST(b); w != NULL; w = next) {
		bool end = w == last;

		next = end ? NULL : TAILQ_NEXT(w, link);
		if (!key_equal(&w->key, &from))
			continue;
		if (w->pi)
			return -EINVAL;
		if (n >= nwake && n - nwake >= nmove)
			break;
		n++;
		if (n <= nwake) {
			waiter_unqueue(w);
			sched_wake(w->task);
		} else if (!key_equal(&from, &to)) {
			struct inode *old = w->inode;

			TAILQ_REMOVE(b, w, link);
			w->key = to;
			w->inode = NULL;
			waiter_queue(w, inode2);
			if (old != NULL)
				inode_put(old);
		}
	}
	return n;
}

/* FUTEX_WAKE_OP: changes *uaddr2 as encoded; *ret says whether its old value passes. */
static int wake_op_apply(uint32_t __user *uaddr2, uint32_t enc, bool *ret)
{
	unsigned op = enc >> 28 & 7, cmp = enc >> 24 & 15;
	int32_t oparg = (int32_t)(enc << 8) >> 20, cmparg = (int32_t)(enc << 20) >> 20;
	uint32_t val, new, arg;
	int32_t old;

	if ((enc & ((uint32_t)FUTEX_OP_OPARG_SHIFT << 28)) != 0)
		oparg = (int32_t)(1u << (oparg & 31));
	if (GET_USER(val, uaddr2) != 0)
		return -EFAULT;
	arg = (uint32_t)oparg;
	switch (op) {
	case FUTEX_OP_SET:
		new = arg;
		break;
	case FUTEX_OP_ADD:
		new = val + arg;
		break;
	case FUTEX_OP_OR:
		new = val | arg;
		break;
	case FUTEX_OP_ANDN:
		new = val & ~arg;
		break;
	case FUTEX_OP_XOR:
		new = val ^ arg;
		break;
	default:
		return -ENOSYS;
	}
	if (PUT_USER(new, uaddr2) != 0)
		return -EFAULT;
	old = (int32_t)val;
	switch (cmp) {
	case FUTEX_OP_CMP_EQ:
		*ret = old == cmparg;
		break;
	case FUTEX_OP_CMP_NE:
		*ret = old != cmparg;
		break;
	case FUTEX_OP_CMP_LT:
		*ret = old < cmparg;
		break;
	case FUTEX_OP_CMP_GE:
		*ret = old >= cmparg;
		break;
	case FUTEX_OP_CMP_LE:
		*ret = old <= cmparg;
		break;
	case FUTEX_OP_CMP_GT:
		*ret = old > cmparg;
		break;
	default:
		return -ENOSYS;
	}
	return 0;
}

static long futex_wake_op(uint32_t __user *uaddr, uint32_t __user *uaddr2, bool shared,
			  int n, int n2, uint32_t enc)
{
	struct futex_key key, key2;
	struct inode *inode;
	bool passes = false;
	int r;

	r = futex_key_get(uaddr, shared, &key, &inode);
	if (r == 0)
		r = futex_key_get(uaddr2, shared, &key2, &inode);
	if (r == 0)
		r = wake_op_apply(uaddr2, enc, &passes);
	if (r != 0)
		return r;
	r = wake_key(&key, n, FUTEX_BITSET_MATCH_ANY);
	if (passes && r >= 0) {
		int r2 = wake_key(&key2, n2, FUTEX_BITSET_MATCH_ANY);

		r = r2 < 0 ? r2 : r + r2;
	}
	return r;
}

/* ---- locks with priority inheritance ---- */

static struct futex_waiter *pi_first(const struct futex_key *key)
{
	struct futex_waiter *w;

	TAILQ_FOREACH(w, bucket_of(key), link)
		if (key_equal(&w->key, key))
			return w;
	return NULL;
}

/* The first waiter gets the lock; the word is written through uaddr, of the current mm. */
static int pi_hand_over(uint32_t __user *uaddr, struct futex_waiter *first, uint32_t bits)
{
	struct futex_key key = first->key;
	int owner = first->task->tid;
	struct futex_waiter *w;

	/* As on Linux the mark stays with the last waiter: it costs one call to unlock. */
	if (PUT_USER((uint32_t){(uint32_t)owner | FUTEX_WAITERS | bits}, uaddr) != 0)
		return -EFAULT;
	waiter_unqueue(first);
	pi_waiters--;
	sched_wake(first->task);
	TAILQ_FOREACH(w, bucket_of(&key), link)
		if (key_equal(&w->key, &key))
			w->owner = owner;
	return 0;
}

/*
 * One look at the word. 1: it is ours now; 0: it has a living owner, *ret_owner, and the mark
 * that somebody waits. dead: an owner that is known to have died, or 0.
 */
static int pi_try(uint32_t __user *uaddr, const struct futex_key *key, bool try, int dead,
		  int *ret_owner)
{
	struct futex_waiter *first = pi_first(key);
	uint32_t val, new;
	struct task *owner;

	if (GET_USER(val, uaddr) != 0)
		return -EFAULT;
	if ((val & FUTEX_TID_MASK) == (uint32_t)current->tid)
		return -EDEADLK;
	if (first != NULL && !first->pi)
		return -EINVAL;
	if (dead != 0 && (val & FUTEX_TID_MASK) == (uint32_t)dead)
		val = (val & ~(uint32_t)FUTEX_TID_MASK) | FUTEX_OWNER_DIED;
	if ((val & FUTEX_TID_MASK) == 0) {
		new = (uint32_t)current->tid | (val & FUTEX_OWNER_DIED);
		if (first != NULL)
			new |= FUTEX_WAITERS;
		return PUT_USER(new, uaddr) != 0 ? -EFAULT : 1;
	}
	if (try)
		return -EAGAIN;
	owner = task_find((int)(val & FUTEX_TID_MASK));
	if (owner == NULL || owner->state == TASK_DEAD || owner->mm == NULL)
		return -ESRCH;
	*ret_owner = owner->tid;
	new = val | FUTEX_WAITERS;
	return PUT_USER(new, uaddr) != 0 ? -EFAULT : 0;
}

static long futex_lock_pi(uint32_t __user *uaddr, bool shared, uint64_t deadline,
			  bool realtime, bool try)
{
	struct futex_waiter w = {.task = current, .pi = true, .uaddr = uaddr};
	struct inode *inode;
	int r, dead = 0;

	for (;;) {
		r = futex_key_get(uaddr, shared, &w.key, &inode);
		if (r == 0)
			r = pi_try(uaddr, &w.key, try, dead, &w.owner);
		if (r != 0)
			break;
		dead = w.owner;		/* if it is to be looked at again, then for this */
		waiter_queue(&w, inode);
		pi_waiters++;
		while (w.queued && w.owner != 0 && r == 0)
			r = waiter_sleep(deadline, realtime);
		if (!w.queued)
			return 0;
		waiter_unqueue(&w);
		pi_waiters--;
		if (r != 0)
			break;
	}
	if (r == -ERESTARTSYS)		/* the deadline is absolute: always the same call again */
		r = -ERESTARTNOINTR;
	return r == 1 ? 0 : r;
}

static long futex_unlock_pi(uint32_t __user *uaddr, bool shared)
{
	static const uint32_t zero;
	struct futex_waiter *first;
	struct futex_key key;
	struct inode *inode;
	uint32_t val;
	int r;

	if (GET_USER(val, uaddr) != 0)
		return -EFAULT;
	if ((val & FUTEX_TID_MASK) != (uint32_t)current->tid)
		return -EPERM;
	r = futex_key_get(uaddr, shared, &key, &inode);
	if (r != 0)
		return r;
	first = pi_first(&key);
	if (first == NULL)
		return PUT_USER(zero, uaddr) != 0 ? -EFAULT : 0;
	return first->pi ? pi_hand_over(uaddr, first, 0) : -EINVAL;
}

/*
 * What t owned goes to those who wait for it, as a dead owner's. The word is written here if
 * it is in this address space; elsewhere its waiters look again, and find what the robust
 * list's walk has left in it.
 */
static void pi_exit(struct task *t)
{
	for (unsigned i = 0; i < FUTEX_BUCKETS && pi_waiters != 0; i++) {
		struct futex_waiter *w, *next;

		for (w = TAILQ_FIRST(&buckets[i]); w != NULL; w = next) {
			next = TAILQ_NEXT(w, link);
			if (!w->pi || w->owner != t->tid)
				continue;
			if (w->task->mm == t->mm &&
			    pi_hand_over(w->uaddr, w, FUTEX_OWNER_DIED) == 0)
				continue;
			w->owner = 0;
			sched_wake(w->task);
		}
	}
}

SYSCALL(futex, uint32_t __user *uaddr, int op, uint32_t val,
	const struct ktimespec __user *utime, uint32_t __user *uaddr2, uint32_t val3)
{
	int cmd = op & FUTEX_CMD_MASK, val2 = (int)(uintptr_t)utime;
	bool shared = (op & FUTEX_PRIVATE_FLAG) == 0;
	bool realtime = (op & FUTEX_CLOCK_REALTIME) != 0;
	uint64_t deadline = NO_DEADLINE;
	int r;

	if (realtime && cmd != FUTEX_WAIT_BITSET && cmd != FUTEX_LOCK_PI2)
		return -ENOSYS;
	if (cmd == FUTEX_LOCK_PI)	/* by history its deadline is of that clock */
		realtime = true;
	if ((cmd == FUTEX_WAIT || cmd == FUTEX_WAIT_BITSET || cmd == FUTEX_LOCK_PI ||
	     cmd == FUTEX_LOCK_PI2) && utime != NULL) {
		r = timespec_get_user(utime, &deadline);
		if (r != 0)
			return r;
		if (cmd == FUTEX_WAIT)
			deadline = deadline_after(deadline);
	}
	switch (cmd) {
	case FUTEX_WAIT:
		val3 = FUTEX_BITSET_MATCH_ANY;
		/* fall through */
	case FUTEX_WAIT_BITSET:
		return futex_wait(uaddr, shared, val, deadline, realtime, val3);
	case FUTEX_WAKE:
		val3 = FUTEX_BITSET_MATCH_ANY;
		/* fall through */
	case FUTEX_WAKE_BITSET:
		return do_wake(uaddr, shared, (int)val, val3);
	case FUTEX_REQUEUE:
		return futex_requeue(uaddr, uaddr2, shared, (int)val, val2, NULL);
	case FUTEX_CMP_REQUEUE:
		return futex_requeue(uaddr, uaddr2, shared, (int)val, val2, &val3);
	case FUTEX_WAKE_OP:
		return futex_wake_op(uaddr, uaddr2, shared, (int)val, val2, val3);
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2:
		return futex_lock_pi(uaddr, shared, deadline, realtime, false);
	case FUTEX_TRYLOCK_PI:
		return futex_lock_pi(uaddr, shared, NO_DEADLINE, false, true);
	case FUTEX_UNLOCK_PI:
		return futex_unlock_pi(uaddr, shared);
	case FUTEX_WAIT_REQUEUE_PI:
	case FUTEX_CMP_REQUEUE_PI:
		return syscall_partial("futex", "requeueing to a PI lock", -ENOSYS);
	default:
		return -ENOSYS;
	}
}

/* ---- robust lists and the end of a thread ---- */

/* The dead thread's lock at uaddr: marked, and a waiter woken. false: bad address. */
static bool robust_unlock(struct task *t, uint32_t __user *uaddr, bool pi, bool pending)
{
	uint32_t val, new;

	if ((uintptr_t)uaddr % sizeof(uint32_t) != 0 || GET_USER(val, uaddr) != 0)
		return false;
	/* Died between unlocking and waking: somebody else has to be woken. */
	if (pending && !pi && val == 0) {
		futex_wake(uaddr, 1);
		return true;
	}
	if ((val & FUTEX_TID_MASK) != (uint32_t)t->tid)
		return true;
	new = (val & FUTEX_WAITERS) | FUTEX_OWNER_DIED;
	if (PUT_USER(new, uaddr) != 0)
		return false;
	if (!pi && (val & FUTEX_WAITERS) != 0)
		futex_wake(uaddr, 1);
	return true;
}

static void robust_list_exit(struct task *t)
{
	struct {
		uint64_t next;
		int64_t futex_offset;
		uint64_t pending;
	} head;
	uint64_t at, next, self = (uint64_t)t->robust_list;
	bool pi, next_pi;

	if (copy_from_user(&head, t->robust_list, sizeof(head)) != 0)
		return;
	at = head.next & ~1ULL;
	pi = (head.next & 1) != 0;
	for (unsigned i = 0; at != self && i < ROBUST_LIMIT; i++) {
		/* The entry may be reused as soon as it is unlocked: read on first. */
		bool ok = GET_USER(next, (uint64_t __user *)at) == 0;

		if (at != (head.pending & ~1ULL) &&
		    !robust_unlock(t, (uint32_t __user *)(at + (uint64_t)head.futex_offset), pi,
				   false))
			return;
		if (!ok)
			return;
		next_pi = (next & 1) != 0;
		at = next & ~1ULL;
		pi = next_pi;
	}
	if ((head.pending & ~1ULL) != 0)
		robust_unlock(t,
			      (uint32_t __user *)((head.pending & ~1ULL) +
						  (uint64_t)head.futex_offset),
			      (head.pending & 1) != 0, true);
}

void futex_exit(struct task *t)
{
	static const uint32_t zero;

	if (t->robust_list != NULL)
		robust_list_exit(t);
	if (pi_waiters != 0)
		pi_exit(t);
	/* Only if somebody is left who could look. */
	if (t->clear_child_tid != NULL && t->mm->refs > 1) {
		if (PUT_USER(zero, t->clear_child_tid) == 0)
			futex_wake(t->clear_child_tid, 1);
	}
}

SYSCALL(set_robust_list, void __user *head, size_t len)
{
	if (len != 24)
		return -EINVAL;
	current->robust_list = head;
	current->robust_len = len;
	return 0;
}

SYSCALL(get_robust_list, int pid, void __user *__user *uhead, size_t __user *ulen)
{
	struct task *t = pid == 0 ? current : task_find(pid);
	const size_t len = 24;
	void __user *head;

	if (t == NULL)
		return -ESRCH;
	if (t->proc != current->proc && kill_allowed(t->proc, 0) != 0)
		return -EPERM;
	head = t->robust_list;
	if (PUT_USER(len, ulen) != 0)
		return -EFAULT;
	return PUT_USER(head, uhead);
}
