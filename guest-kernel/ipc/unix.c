/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AF_UNIX: sockets, addresses, connections. Data is in unix_msg.c, descriptors under way in
 * unix_scm.c.
 *
 * States: CLOSE (new), LISTEN, CONNECTED. A stream or seqpacket connection is two sockets that
 * point at each other; when one is closed the other keeps its (dead) peer, with both
 * directions shut down. connect() makes the server's socket at once and queues it on the
 * listener as an embryo; accept() takes it from there. A datagram socket's peer is only where
 * it sends to.
 *
 * A path address is an inode of type socket whose inode->sock is the bound socket (borrowed,
 * cleared at close); an abstract one is an entry of a hash table. Addresses are counted, since
 * messages keep their sender's.
 */
#include "guest-kernel/ipc/unix.h"

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/page.h"

#include <asm/socket.h>

#define ADDR_HEAD	2	/* bytes before sun_path */
#define HASH_SIZE	64u
#define KIN_CREATE_	0x100u

LIST_HEAD(abstract_list, unix_sock);
static struct abstract_list abstract_hash[HASH_SIZE];
static uint32_t autobind_next;

static const struct sock_ops unix_ops;

/* ---- addresses ---- */

void unix_addr_put(struct unix_addr *a)
{
	if (a == NULL || --a->refs != 0)
		return;
	if (a->node != NULL)
		dentry_put(a->node);
	kfree(a);
}

void unix_current_cred(struct ucred_k *c)
{
	c->pid = current->proc->pid;
	c->uid = current->proc->cred->euid;
	c->gid = current->proc->cred->egid;
}

static void set_groups(struct cred **at, struct cred *c)
{
	struct cred *old = *at;

	*at = c != NULL ? cred_get(c) : NULL;
	if (old != NULL)
		cred_put(old);
}

/* From now on the peer's SO_PEERCRED and SO_PEERGROUPS will say who current is. */
static void take_cred(struct unix_sock *u)
{
	unix_current_cred(&u->cred);
	set_groups(&u->groups, current->proc->cred);
}

/* Checks an address from a program; for a path, the length that counts (with its zero). */
static int addr_check(const struct ksockaddr *a, int len)
{
	if (len <= ADDR_HEAD || len > UNIX_ADDR_MAX || a->family != KAF_UNIX)
		return -EINVAL;
	if (a->data[0] != 0)
		return ADDR_HEAD + (int)strnlen(a->data, (size_t)(len - ADDR_HEAD)) + 1;
	return len;
}

static unsigned abstract_bucket(const struct ksockaddr *a, int len)
{
	uint32_t h = 2166136261u;

	for (int i = 0; i < len - ADDR_HEAD; i++)
		h = (h ^ (uint8_t)a->data[i]) * 16777619u;
	return h % HASH_SIZE;
}

/* Types share a name space each, as on Linux. */
static struct unix_sock *abstract_find(const struct ksockaddr *a, int len, int type)
{
	struct unix_sock *u;

	LIST_FOREACH(u, &abstract_hash[abstract_bucket(a, len)], abstract_link) {
		if (u->s.type == type && u->addr->len == len &&
		    memcmp(u->addr->name.data, a->data, (size_t)(len - ADDR_HEAD)) == 0)
			return u;
	}
	return NULL;
}

/* The socket at an address, with a reference. NULL: see *ret_err. */
struct unix_sock *unix_find(const struct ksockaddr *a, int len, int type, int *ret_err)
{
	char path[UNIX_PATH_MAX + 1];
	struct unix_sock *u;
	struct dentry *d;

	len = addr_check(a, len);
	if (len < 0) {
		*ret_err = len;
		return NULL;
	}
	*ret_err = -ECONNREFUSED;
	if (a->data[0] == 0) {
		u = abstract_find(a, len, type);
		if (u != NULL)
			unix_get(u);
		return u;
	}
	memcpy(path, a->data, (size_t)(len - ADDR_HEAD - 1));
	path[len - ADDR_HEAD - 1] = 0;
	d = path_lookup(KAT_FDCWD, path, LOOKUP_FOLLOW);
	if (IS_ERR(d)) {
		*ret_err = PTR_ERR(d);
		return NULL;
	}
	u = NULL;
	if (inode_permission(d->inode, 2) != 0) {
		*ret_err = -EACCES;
	} else if (KS_ISSOCK(d->inode->mode) && d->inode->sock != NULL) {
		u = d->inode->sock;
		if (u->s.type == type)
			unix_get(u);
		else
			*ret_err = -EPROTOTYPE;
		if (u->s.type != type)
			u = NULL;
	}
	dentry_put(d);
	return u;
}

static struct unix_addr *addr_new(const struct ksockaddr *a, int len)
{
	struct unix_addr *n = kzalloc(sizeof(*n));

	if (n == NULL)
		return NULL;
	n->refs = 1;
	n->len = len;
	n->name.family = KAF_UNIX;
	memcpy(n->name.data, a->data, (size_t)(len - ADDR_HEAD));
	return n;
}

static void abstract_insert(struct unix_sock *u, struct unix_addr *a)
{
	u->addr = a;
	u->in_abstract = true;
	LIST_INSERT_HEAD(&abstract_hash[abstract_bucket(&a->name, a->len)], u, abstract_link);
}

int unix_autobind(struct unix_sock *u)
{
	struct ksockaddr a = { .family = KAF_UNIX };
	struct unix_addr *n;
	char name[8];
	const int len = ADDR_HEAD + 6;

	if (u->addr != NULL)
		return 0;
	for (uint32_t tries = 0; tries <= 0xfffff; tries++) {
		ksnprintf(name, sizeof(name), "%05x", autobind_next++ & 0xfffff);
		memcpy(a.data + 1, name, 5);
		if (abstract_find(&a, len, u->s.type) != NULL)
			continue;
		n = addr_new(&a, len);
		if (n == NULL)
			return -ENOMEM;
		abstract_insert(u, n);
		return 0;
	}
	return -ENOSPC;
}

/* Makes the socket inode. *ret_node has a reference. */
static int bind_path(const char *path, struct dentry **ret_node)
{
	const char *name = strrchr(path, '/');
	char dirname[UNIX_PATH_MAX + 1];
	struct dentry *dir, *d;
	struct inode *i;
	size_t len;
	int ret;

	if (name == NULL) {
		name = path;
		strcpy(dirname, ".");
	} else {
		name++;
		memcpy(dirname, path, (size_t)(name - path));
		dirname[name - path] = 0;
	}
	len = strlen(name);
	if (len == 0)
		return -EADDRINUSE;	/* "/" and "dir/" exist, or cannot */
	dir = path_lookup(KAT_FDCWD, dirname, LOOKUP_FOLLOW | LOOKUP_DIRECTORY);
	if (IS_ERR(dir))
		return PTR_ERR(dir);
	i = dir->inode;
	ret = inode_permission(i, 1);
	if (ret != 0)
		goto out;
	ret = -EADDRINUSE;
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		goto out;
	d = i->ops->lookup != NULL ? i->ops->lookup(dir, name, len) : ERR_PTR(-ENOTDIR);
	if (!IS_ERR(d)) {
		dentry_put(d);
		goto out;
	}
	ret = PTR_ERR(d);
	if (ret != -ENOENT || (dir->flags & DENTRY_DELETED))
		goto out;
	ret = inode_permission(i, 3);
	if (ret != 0)
		goto out;
	ret = -EPERM;
	if (i->ops->create == NULL)
		goto out;
	d = i->ops->create(dir, name, len, KS_IFSOCK | (0777 & ~current->proc->fs->umask), 0);
	ret = IS_ERR(d) ? PTR_ERR(d) : 0;
	if (ret == 0) {
		fsnotify_dir(i, name, len, KIN_CREATE_, 0);
		*ret_node = d;
	}
out:
	dentry_put(dir);
	return ret;
}

int unix_bind_node(struct dentry *d, void *sock)
{
	d->inode->sock = sock;
	return 0;
}

static int unix_bind(struct socket *s, const struct ksockaddr *a, int len)
{
	struct unix_sock *u = unix_of(s);
	char path[UNIX_PATH_MAX + 1];
	struct unix_addr *n;
	int ret;

	if (len == ADDR_HEAD && a->family == KAF_UNIX)
		return unix_autobind(u);
	len = addr_check(a, len);
	if (len < 0)
		return len;
	if (u->addr != NULL)
		return -EINVAL;
	n = addr_new(a, len);
	if (n == NULL)
		return -ENOMEM;
	if (a->data[0] == 0) {
		if (abstract_find(a, len, s->type) != NULL) {
			unix_addr_put(n);
			return -EADDRINUSE;
		}
		abstract_insert(u, n);
		return 0;
	}
	memcpy(path, a->data, (size_t)(len - ADDR_HEAD - 1));
	path[len - ADDR_HEAD - 1] = 0;
	ret = bind_path(path, &n->node);
	if (ret != 0) {
		unix_addr_put(n);
		return ret;
	}
	u->addr = n;
	return unix_bind_node(n->node, u);
}

static int unix_getname(struct socket *s, struct ksockaddr *ret, bool peer)
{
	struct unix_sock *u = unix_of(s);

	if (peer) {
		u = u->peer;
		if (u == NULL)
			return -ENOTCONN;
	}
	if (u->addr == NULL) {
		ret->family = KAF_UNIX;
		return ADDR_HEAD;
	}
	*ret = u->addr->name;
	return u->addr->len;
}

/* ---- connections ---- */

void unix_set_peer(struct unix_sock *u, struct unix_sock *peer)
{
	struct unix_sock *old = u->peer;

	if (old != NULL)
		LIST_REMOVE(u, peer_link);
	u->peer = peer;
	if (peer != NULL) {
		unix_get(peer);
		LIST_INSERT_HEAD(&peer->senders, u, peer_link);
	}
	unix_put(old);
}

/* A datagram socket left its peer `old`: what was queued is void, and a peer that is
 * connected back hears of it. */
void unix_disconnected(struct unix_sock *u, struct unix_sock *old)
{
	unix_purge(u);
	waitq_wake_all(&u->s.wq, KPOLLOUT);
	if (!old->dead && old->peer == u) {
		old->s.error = ECONNRESET;
		waitq_wake_all(&old->s.wq, KPOLLERR | KPOLLIN);
	}
}

static int dgram_connect(struct unix_sock *u, const struct ksockaddr *a, int len)
{
	struct unix_sock *other = NULL, *old = u->peer;
	int ret;

	if (len < ADDR_HEAD)
		return -EINVAL;
	if (a->family != KAF_UNSPEC) {
		ret = addr_check(a, len);
		if (ret < 0)
			return ret;
		if (u->s.passcred) {
			ret = unix_autobind(u);
			if (ret != 0)
				return ret;
		}
		other = unix_find(a, len, u->s.type, &ret);
		if (other == NULL)
			return ret;
		if (other->peer != NULL && other->peer != u) {
			unix_put(other);
			return -EPERM;
		}
	}
	if (old != NULL)
		unix_get(old);
	unix_set_peer(u, other);
	u->state = other != NULL ? UNIX_CONNECTED : UNIX_CLOSE;
	if (old != NULL && old != other)
		unix_disconnected(u, old);
	unix_put(old);
	unix_put(other);
	waitq_wake_all(&u->s.wq, KPOLLOUT);
	return 0;
}

static struct unix_sock *unix_new(int type, int protocol)
{
	struct unix_sock *u = kzalloc(sizeof(*u));

	if (u == NULL)
		return NULL;
	socket_init(&u->s, KAF_UNIX, type, protocol, &unix_ops);
	TAILQ_INIT(&u->queue);
	TAILQ_INIT(&u->embryos);
	LIST_INIT(&u->senders);
	u->peercred = (struct ucred_k){ 0, ~0u, ~0u };
	take_cred(u);
	return u;
}

/* The listener at the address, with room in its backlog; a reference. */
static struct unix_sock *connect_find(struct unix_sock *u, const struct ksockaddr *a, int len,
				      bool nonblock, int *ret_err)
{
	uint64_t timeo = u->s.sndtimeo_ns, deadline = socket_deadline(timeo);
	struct unix_sock *l;
	int ret;

	for (;;) {
		l = unix_find(a, len, u->s.type, ret_err);
		if (l == NULL)
			return NULL;
		*ret_err = -ECONNREFUSED;
		if (l->state != UNIX_LISTEN || l->dead || (l->s.shutdown & KSHUT_RD))
			break;
		if (l->nembryos <= l->backlog)
			return l;
		*ret_err = -EAGAIN;
		if (nonblock)
			break;
		ret = WAIT_EVENT_DEADLINE(&l->s.wq, l->nembryos <= l->backlog || l->dead ||
					  (l->s.shutdown & KSHUT_RD), deadline);
		unix_put(l);
		if (ret != 0) {
			*ret_err = socket_wait_error(ret, timeo);
			return NULL;
		}
	}
	unix_put(l);
	return NULL;
}

static int stream_connect(struct unix_sock *u, const struct ksockaddr *a, int len,
			  bool nonblock)
{
	struct unix_sock *l, *e;
	int ret;

	ret = addr_check(a, len);
	if (ret < 0)
		return ret;
	if (u->s.passcred) {
		ret = unix_autobind(u);
		if (ret != 0)
			return ret;
	}
	e = unix_new(u->s.type, u->s.protocol);
	if (e == NULL)
		return -ENOMEM;
	l = connect_find(u, a, len, nonblock, &ret);
	if (l == NULL) {
		unix_put(e);
		return ret;
	}
	if (u->state != UNIX_CLOSE) {
		ret = u->state == UNIX_CONNECTED ? -EISCONN : -EINVAL;
		unix_put(l);
		unix_put(e);
		return ret;
	}
	unix_current_cred(&e->peercred);
	set_groups(&e->peergroups, current->proc->cred);
	u->peercred = l->cred;
	set_groups(&u->peergroups, l->groups);
	e->addr = l->addr;
	if (e->addr != NULL)
		e->addr->refs++;
	e->s.passcred = l->s.passcred;
	e->state = u->state = UNIX_CONNECTED;
	unix_set_peer(e, u);
	unix_set_peer(u, e);
	e->embryo = true;
	TAILQ_INSERT_TAIL(&l->embryos, e, embryo_link);
	l->nembryos++;
	waitq_wake(&l->s.wq, KPOLLIN | KPOLLRDNORM);
	unix_put(l);
	return 0;
}

static int unix_connect(struct socket *s, const struct ksockaddr *a, int len, bool nonblock)
{
	struct unix_sock *u = unix_of(s);

	if (s->type == KSOCK_DGRAM)
		return dgram_connect(u, a, len);
	return stream_connect(u, a, len, nonblock);
}

static int unix_listen(struct socket *s, int backlog)
{
	struct unix_sock *u = unix_of(s);

	if (s->type == KSOCK_DGRAM)
		return -EOPNOTSUPP;
	if (u->addr == NULL || u->state == UNIX_CONNECTED)
		return -EINVAL;
	if ((unsigned)backlog > u->backlog)
		waitq_wake_all(&s->wq, KPOLLOUT);
	u->backlog = (unsigned)backlog;
	u->state = UNIX_LISTEN;
	s->listening = true;
	take_cred(u);
	return 0;
}

static int unix_accept(struct socket *s, struct socket **ret_s, bool nonblock)
{
	struct unix_sock *u = unix_of(s), *e;
	uint64_t deadline = socket_deadline(s->rcvtimeo_ns);
	bool was_full;
	int ret;

	if (s->type == KSOCK_DGRAM)
		return -EOPNOTSUPP;
	if (u->state != UNIX_LISTEN)
		return -EINVAL;
	while (TAILQ_EMPTY(&u->embryos)) {
		if (s->shutdown & KSHUT_RD)
			return -EINVAL;
		if (nonblock)
			return -EAGAIN;
		ret = WAIT_EVENT_FULL(&s->wq, !TAILQ_EMPTY(&u->embryos) ||
				      (s->shutdown & KSHUT_RD), deadline, true, true);
		if (ret != 0)
			return socket_wait_error(ret, s->rcvtimeo_ns);
	}
	was_full = u->nembryos > u->backlog;
	e = TAILQ_FIRST(&u->embryos);
	TAILQ_REMOVE(&u->embryos, e, embryo_link);
	u->nembryos--;
	e->embryo = false;
	take_cred(e);
	if (was_full)
		waitq_wake_all(&s->wq, KPOLLOUT);
	else if (u->nembryos != 0)
		waitq_wake(&s->wq, KPOLLIN | KPOLLRDNORM);
	*ret_s = &e->s;
	return 0;
}

static int unix_shutdown(struct socket *s, unsigned how)
{
	struct unix_sock *u = unix_of(s), *other = u->peer;
	unsigned peer_how = (how & KSHUT_RD ? KSHUT_WR : 0) | (how & KSHUT_WR ? KSHUT_RD : 0);

	s->shutdown |= how;
	if (other != NULL && s->type != KSOCK_DGRAM) {
		other->s.shutdown |= peer_how;
		waitq_wake_all(&other->s.wq, KPOLLIN | KPOLLOUT | KPOLLRDHUP | KPOLLHUP);
	}
	waitq_wake_all(&s->wq, KPOLLIN | KPOLLOUT | KPOLLRDHUP | KPOLLHUP);
	return 0;
}

static unsigned unix_poll(struct socket *s, struct poll_table *pt)
{
	struct unix_sock *u = unix_of(s);
	unsigned ev = 0;

	poll_wait(pt, &s->wq);
	if (s->error != 0)
		ev |= KPOLLERR;
	if (s->shutdown == (KSHUT_RD | KSHUT_WR))
		ev |= KPOLLHUP;
	if (s->shutdown & KSHUT_RD)
		ev |= KPOLLRDHUP | KPOLLIN | KPOLLRDNORM;
	if (u->qlen != 0 || u->nembryos != 0)
		ev |= KPOLLIN | KPOLLRDNORM;
	if (s->type != KSOCK_DGRAM && u->state == UNIX_CLOSE)
		ev |= KPOLLHUP;
	if (unix_writable(u) && (s->type != KSOCK_DGRAM || u->peer == NULL ||
				 u->peer->peer == u || !unix_rqueue_full(u->peer)))
		ev |= KPOLLOUT | KPOLLWRNORM | 0x200u /* EPOLLWRBAND */;
	return ev;
}

/* ---- the end ---- */

static void unbind(struct unix_sock *u)
{
	if (u->in_abstract) {
		LIST_REMOVE(u, abstract_link);
		u->in_abstract = false;
	} else if (u->addr != NULL && u->addr->node != NULL &&
		   u->addr->node->inode->sock == u) {
		u->addr->node->inode->sock = NULL;
	}
}

static void unix_release(struct socket *s)
{
	struct unix_sock *u = unix_of(s), *other = u->peer, *e;

	if (u->dead)
		return;
	u->dead = true;
	s->shutdown = KSHUT_RD | KSHUT_WR;
	unbind(u);
	if (other != NULL && s->type != KSOCK_DGRAM && other->peer == u) {
		other->s.shutdown = KSHUT_RD | KSHUT_WR;
		if (u->qlen != 0 || u->embryo)
			other->s.error = ECONNRESET;
		waitq_wake_all(&other->s.wq,
			       KPOLLIN | KPOLLOUT | KPOLLRDHUP | KPOLLHUP | KPOLLERR);
	}
	unix_set_peer(u, NULL);
	unix_purge(u);
	while ((e = TAILQ_FIRST(&u->embryos)) != NULL) {
		TAILQ_REMOVE(&u->embryos, e, embryo_link);
		u->nembryos--;
		unix_release(&e->s);
		unix_put(e);
	}
	waitq_wake_all(&s->wq, KPOLLIN | KPOLLOUT | KPOLLHUP);
	/* Datagram senders to this socket find out at their next try. */
	LIST_FOREACH(e, &u->senders, peer_link)
		waitq_wake_all(&e->s.wq, KPOLLOUT | KPOLLWRNORM);
	if (unix_inflight_total() != 0)
		unix_collect();
}

static void unix_free(struct socket *s)
{
	struct unix_sock *u = unix_of(s);

	unbind(u);
	unix_set_peer(u, NULL);
	unix_purge(u);
	unix_addr_put(u->addr);
	set_groups(&u->groups, NULL);
	set_groups(&u->peergroups, NULL);
	kfree(u);
}

/* ---- making ---- */

static int unix_type(int *type, int protocol)
{
	if (protocol != 0 && protocol != KAF_UNIX)
		return -EPROTONOSUPPORT;
	if (*type == KSOCK_RAW)
		*type = KSOCK_DGRAM;
	if (*type != KSOCK_STREAM && *type != KSOCK_DGRAM && *type != KSOCK_SEQPACKET)
		return -ESOCKTNOSUPPORT;
	return 0;
}

static int unix_create(int type, int protocol, struct socket **ret_s)
{
	struct unix_sock *u;
	int ret = unix_type(&type, protocol);

	if (ret != 0)
		return ret;
	u = unix_new(type, protocol);
	if (u == NULL)
		return -ENOMEM;
	*ret_s = &u->s;
	return 0;
}

static int unix_pair(int type, int protocol, struct socket *ret_s[2])
{
	struct unix_sock *a, *b;
	int ret = unix_type(&type, protocol);

	if (ret != 0)
		return ret;
	a = unix_new(type, protocol);
	b = unix_new(type, protocol);
	if (a == NULL || b == NULL) {
		unix_put(a);
		unix_put(b);
		return -ENOMEM;
	}
	unix_set_peer(a, b);
	unix_set_peer(b, a);
	a->peercred = b->cred;
	b->peercred = a->cred;
	set_groups(&a->peergroups, b->groups);
	set_groups(&b->peergroups, a->groups);
	a->state = b->state = UNIX_CONNECTED;
	ret_s[0] = &a->s;
	ret_s[1] = &b->s;
	return 0;
}

static int unix_getsockopt(struct socket *s, int level, int opt, void *val, int *len)
{
	struct unix_sock *u = unix_of(s);

	if (level != KSOL_SOCKET)
		return -EOPNOTSUPP;
	if (opt != SO_PEERCRED)
		return -ENOPROTOOPT;
	memcpy(val, &u->peercred, sizeof(u->peercred));
	*len = sizeof(u->peercred);
	return 0;
}

static const struct cred *unix_peergroups(struct socket *s)
{
	return unix_of(s)->peergroups;
}

static int unix_setsockopt(struct socket *s, int level, int opt, const void *val, int len)
{
	return level == KSOL_SOCKET ? -ENOPROTOOPT : -EOPNOTSUPP;
}

bool unix_file_is_unix(const struct file *f)
{
	struct socket *s = socket_of(f);

	return s != NULL && s->ops == &unix_ops;
}

static const struct sock_ops unix_ops = {
	.bind = unix_bind,
	.connect = unix_connect,
	.listen = unix_listen,
	.accept = unix_accept,
	.getname = unix_getname,
	.sendmsg = unix_sendmsg,
	.recvmsg = unix_recvmsg,
	.poll = unix_poll,
	.ioctl = unix_ioctl,
	.shutdown = unix_shutdown,
	.setsockopt = unix_setsockopt,
	.getsockopt = unix_getsockopt,
	.peergroups = unix_peergroups,
	.release = unix_release,
	.free = unix_free,
};

const struct sock_family unix_family = {
	.family = KAF_UNIX,
	.create = unix_create,
	.pair = unix_pair,
};
