/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors and credentials that travel with AF_UNIX messages.
 *
 * A file in a message is held by that message. Two things must not happen: dropping a message
 * that holds a socket whose queue holds a socket ... must not recurse (the kernel stack is
 * 16 KiB), so files to drop are put on a list that the outermost call empties; and sockets that
 * only messages in their own queues keep alive must not stay for ever. For the latter each
 * socket counts how often it is in flight, and the collector looks for sockets whose file has
 * no other holder and that no reachable socket's queue leads to. It runs when a socket is
 * closed and when the number in flight has doubled since it last ran.
 */
#include <linux/capability.h>

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/unix.h"
#include "guest-kernel/mm/page.h"

#define SCM_MAX_FD	253u
#define INFLIGHT_MAX	65536u	/* files in messages, in all */
#define RLIM_NOFILE	7

static LIST_HEAD(, unix_sock) inflight_list = LIST_HEAD_INITIALIZER(inflight_list);
static unsigned inflight_socks, inflight_files;
static unsigned collect_at = 64;
static bool collecting;
static struct scm_fds *drop_list;
static bool dropping;

unsigned unix_inflight_total(void)
{
	return inflight_socks;
}

/* ---- counting ---- */

static struct unix_sock *file_unix(struct file *f)
{
	return unix_file_is_unix(f) ? unix_of(socket_of(f)) : NULL;
}

int scm_send_begin(struct scm_fds *fds)
{
	unsigned total;

	if (inflight_socks >= collect_at) {
		unix_collect();
		collect_at = MAX(2 * inflight_socks, 64u);
	}
	total = inflight_files + fds->n;
	if (total > INFLIGHT_MAX)
		return -ETOOMANYREFS;
	if (total > rlimit_cur(RLIM_NOFILE) && !capable(CAP_SYS_RESOURCE) &&
	    !capable(CAP_SYS_ADMIN))
		return -ETOOMANYREFS;
	inflight_files = total;
	for (unsigned i = 0; i < fds->n; i++) {
		struct unix_sock *u = file_unix(fds->files[i]);

		if (u == NULL)
			continue;
		if (u->inflight++ == 0)
			LIST_INSERT_HEAD(&inflight_list, u, inflight_link);
		inflight_socks++;
	}
	return 0;
}

void scm_send_end(struct scm_fds *fds)
{
	inflight_files -= fds->n;
	for (unsigned i = 0; i < fds->n; i++) {
		struct unix_sock *u = file_unix(fds->files[i]);

		if (u == NULL)
			continue;
		if (--u->inflight == 0)
			LIST_REMOVE(u, inflight_link);
		inflight_socks--;
	}
}

void scm_drop(struct scm_fds *fds)
{
	if (fds == NULL)
		return;
	fds->next = drop_list;
	drop_list = fds;
	if (dropping)
		return;
	dropping = true;
	while ((fds = drop_list) != NULL) {
		drop_list = fds->next;
		for (unsigned i = 0; i < fds->n; i++)
			file_put(fds->files[i]);
		kfree(fds);
	}
	dropping = false;
}

struct scm_fds *scm_copy(const struct scm_fds *fds)
{
	struct scm_fds *n = kmemdup(fds, sizeof(*fds) + fds->n * sizeof(fds->files[0]));

	if (n == NULL)
		return NULL;
	for (unsigned i = 0; i < n->n; i++)
		file_get(n->files[i]);
	return n;
}

/* ---- control messages ---- */

struct cmsg_head {
	uint64_t len;
	int32_t level, type;
};

static int decode_fds(const uint8_t *data, size_t len, struct scm_fds **pfds)
{
	size_t n = len / sizeof(int32_t);
	struct scm_fds *fds = *pfds;

	if (n == 0)
		return 0;
	if (n > SCM_MAX_FD || (fds != NULL && fds->n + n > SCM_MAX_FD))
		return -EINVAL;
	if (fds == NULL) {
		fds = kzalloc(sizeof(*fds) + SCM_MAX_FD * sizeof(fds->files[0]));
		if (fds == NULL)
			return -ENOMEM;
		*pfds = fds;
	}
	for (size_t i = 0; i < n; i++) {
		struct file *f;
		int32_t fd;

		memcpy(&fd, data + i * sizeof(fd), sizeof(fd));
		f = fd_get_path(fd);
		if (f == NULL)
			return -EBADF;
		fds->files[fds->n++] = f;
	}
	return 0;
}

static int decode_cred(const uint8_t *data, size_t len, struct ucred_k *c)
{
	const struct cred *me = current->proc->cred;

	if (len != sizeof(*c))
		return -EINVAL;
	memcpy(c, data, sizeof(*c));
	if (c->uid == ~0u || c->gid == ~0u)
		return -EINVAL;
	if (c->pid != current->proc->pid && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (c->uid != me->uid && c->uid != me->euid && c->uid != me->suid &&
	    !capable(CAP_SETUID))
		return -EPERM;
	if (c->gid != me->gid && c->gid != me->egid && c->gid != me->sgid &&
	    !capable(CAP_SETGID))
		return -EPERM;
	if (c->pid != current->proc->pid && process_find(c->pid) == NULL)
		return -ESRCH;
	return 0;
}

int scm_decode(const uint8_t *control, size_t len, struct scm_fds **ret_fds,
	       struct ucred_k *ret_cred)
{
	size_t off = 0, left;
	struct cmsg_head h;
	int ret = 0;

	*ret_fds = NULL;
	ret_cred->pid = current->proc->pid;
	ret_cred->uid = current->proc->cred->uid;
	ret_cred->gid = current->proc->cred->gid;
	while (ret == 0 && len - off >= sizeof(h)) {
		memcpy(&h, control + off, sizeof(h));
		left = len - off;
		if (h.len < sizeof(h) || h.len > left) {
			ret = -EINVAL;
			break;
		}
		if (h.level == KSOL_SOCKET && h.type == KSCM_RIGHTS)
			ret = decode_fds(control + off + sizeof(h), h.len - sizeof(h), ret_fds);
		else if (h.level == KSOL_SOCKET && h.type == KSCM_CREDENTIALS)
			ret = decode_cred(control + off + sizeof(h), h.len - sizeof(h),
					  ret_cred);
		else if (h.level == KSOL_SOCKET)
			ret = -EINVAL;
		if (ALIGN_UP(h.len, 8UL) > left)
			break;
		off += ALIGN_UP(h.len, 8UL);
	}
	if (ret != 0) {
		scm_drop(*ret_fds);
		*ret_fds = NULL;
	}
	return ret;
}

int scm_receive(struct ksockmsg *m, struct scm_fds *fds)
{
	size_t room = m->ucontrol_room, max = 0;
	int32_t __user *out = (int32_t __user *)(m->ucontrol + sizeof(struct cmsg_head));
	bool cloexec = (m->flags & KMSG_CMSG_CLOEXEC) != 0;
	struct cmsg_head h = { .level = KSOL_SOCKET, .type = KSCM_RIGHTS };
	unsigned n = 0;
	int ret = 0;

	if (m->ucontrol != NULL && room >= sizeof(h))
		max = (room - sizeof(h)) / sizeof(int32_t);
	while (n < fds->n && n < max) {
		int32_t fd;

		file_get(fds->files[n]);
		fd = fd_install(fds->files[n], 0, cloexec);
		if (fd < 0)
			break;
		if (copy_to_user(&out[n], &fd, sizeof(fd)) != 0) {
			fd_close(fd);
			break;
		}
		n++;
	}
	if (n < fds->n)
		m->out_flags |= KMSG_CTRUNC;
	if (n != 0) {
		h.len = sizeof(h) + n * sizeof(int32_t);
		if (copy_to_user(m->ucontrol, &h, sizeof(h)) != 0) {
			ret = -EFAULT;
		} else {
			size_t space = MIN(ALIGN_UP(h.len, 8UL), room);

			m->ucontrol += space;
			m->ucontrol_room -= space;
		}
	}
	scm_drop(fds);
	return ret;
}

/* ---- the collector ---- */

static void queue_children(struct unix_sock *u,
			   void (*fn)(struct unix_sock *child, struct unix_sock **stack),
			   struct unix_sock **stack)
{
	struct unix_msg *m;

	TAILQ_FOREACH(m, &u->queue, link) {
		for (unsigned i = 0; m->fds != NULL && i < m->fds->n; i++) {
			struct unix_sock *c = file_unix(m->fds->files[i]);

			if (c != NULL && c->gc_state != GC_NONE)
				fn(c, stack);
		}
	}
}

/* Sockets in the messages of u's queue, and of the connections that wait at u. */
static void for_children(struct unix_sock *u,
			 void (*fn)(struct unix_sock *child, struct unix_sock **stack),
			 struct unix_sock **stack)
{
	struct unix_sock *e;

	queue_children(u, fn, stack);
	TAILQ_FOREACH(e, &u->embryos, embryo_link)
		queue_children(e, fn, stack);
}

static void child_uncount(struct unix_sock *c, struct unix_sock **stack)
{
	c->gc_count--;
}

static void child_live(struct unix_sock *c, struct unix_sock **stack)
{
	if (c->gc_state != GC_CANDIDATE)
		return;
	c->gc_state = GC_LIVE;
	c->gc_next = *stack;
	*stack = c;
}

static void take_fds(struct unix_sock *u, struct scm_fds **hits)
{
	struct unix_msg *m;

	TAILQ_FOREACH(m, &u->queue, link) {
		if (m->fds == NULL)
			continue;
		scm_send_end(m->fds);
		m->fds->next = *hits;
		*hits = m->fds;
		m->fds = NULL;
	}
}

/* Descriptors out of the queues of all garbage, onto one list. */
static struct scm_fds *collect_hits(void)
{
	struct unix_sock *u, *e, *garbage = NULL;
	struct scm_fds *hits = NULL;

	LIST_FOREACH(u, &inflight_list, inflight_link) {
		if (u->gc_state != GC_CANDIDATE)
			continue;
		u->gc_next = garbage;
		garbage = u;
	}
	for (u = garbage; u != NULL; u = u->gc_next) {
		take_fds(u, &hits);
		TAILQ_FOREACH(e, &u->embryos, embryo_link)
			take_fds(e, &hits);
		u->gc_state = GC_NONE;
	}
	return hits;
}

void unix_collect(void)
{
	struct unix_sock *u, *stack = NULL;
	struct scm_fds *hits, *next;

	if (collecting)
		return;
	collecting = true;
	LIST_FOREACH(u, &inflight_list, inflight_link) {
		bool held = u->s.file == NULL || u->s.file->refs != u->inflight;

		u->gc_state = held ? GC_NONE : GC_CANDIDATE;
		u->gc_count = u->inflight;
	}
	LIST_FOREACH(u, &inflight_list, inflight_link) {
		if (u->gc_state == GC_CANDIDATE)
			for_children(u, child_uncount, NULL);
	}
	LIST_FOREACH(u, &inflight_list, inflight_link) {
		if (u->gc_state == GC_CANDIDATE && u->gc_count > 0)
			child_live(u, &stack);
	}
	while ((u = stack) != NULL) {
		stack = u->gc_next;
		for_children(u, child_live, &stack);
	}
	hits = collect_hits();
	LIST_FOREACH(u, &inflight_list, inflight_link)
		u->gc_state = GC_NONE;
	for (; hits != NULL; hits = next) {
		next = hits->next;
		scm_drop(hits);
	}
	collecting = false;
}
