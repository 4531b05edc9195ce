/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AF_UNIX data: messages queued at the receiver, charged to the sender until they are consumed
 * or dropped. A sender sleeps while what it is charged for reaches its SO_SNDBUF and is woken
 * when a quarter is left. Streams cut what they send into messages of up to 32 KiB and read
 * across message borders, but not past descriptors or a change of credentials.
 */
#include <asm/ioctls.h>
#include <asm/socket.h>
#include <linux/sockios.h>

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/unix.h"
#include "guest-kernel/mm/page.h"

#define STREAM_CHUNK	(32768u - sizeof(struct unix_msg))

static void msg_free(struct unix_msg *m)
{
	struct unix_sock *from = m->from;

	if (m->fds != NULL) {
		scm_send_end(m->fds);
		scm_drop(m->fds);
	}
	from->wmem -= m->charge;
	if (unix_writable(from) && !waitq_empty(&from->s.wq))
		waitq_wake(&from->s.wq, KPOLLOUT | KPOLLWRNORM);
	unix_put(from);
	unix_addr_put(m->addr);
	kfree(m);
}

/* u stops being full: datagram senders connected to it may go on. */
static void wake_senders(struct unix_sock *u)
{
	struct unix_sock *e;

	waitq_wake_all(&u->s.wq, KPOLLOUT | KPOLLWRNORM);
	LIST_FOREACH(e, &u->senders, peer_link)
		waitq_wake_all(&e->s.wq, KPOLLOUT | KPOLLWRNORM);
}

static void msg_dequeue(struct unix_sock *u, struct unix_msg *m)
{
	bool was_full = unix_rqueue_full(u);

	TAILQ_REMOVE(&u->queue, m, link);
	u->qlen--;
	u->qbytes -= m->len - m->off;
	if (was_full && u->s.type != KSOCK_STREAM)
		wake_senders(u);
}

void unix_purge(struct unix_sock *u)
{
	struct unix_msg *m;

	while ((m = TAILQ_FIRST(&u->queue)) != NULL) {
		msg_dequeue(u, m);
		msg_free(m);
	}
}

static void msg_queue(struct unix_sock *to, struct unix_msg *m)
{
	if (to->s.timestamp || to->s.timestampns)
		m->stamp_ns = clock_realtime_ns();
	TAILQ_INSERT_TAIL(&to->queue, m, link);
	to->qlen++;
	to->qbytes += m->len;
	waitq_wake(&to->s.wq, KPOLLIN | KPOLLRDNORM);
}

/* A message with n bytes of m's data, charged to u. */
static int msg_new(struct unix_sock *u, struct ksockmsg *m, size_t n, struct unix_msg **ret)
{
	struct unix_msg *msg = kmalloc(sizeof(*msg) + n);

	if (msg == NULL)
		return -ENOBUFS;
	memset(msg, 0, sizeof(*msg));
	if (uio_get(m->uio, msg->data, n) < n) {
		kfree(msg);
		return -EFAULT;
	}
	msg->len = (uint32_t)n;
	msg->charge = (uint32_t)(sizeof(*msg) + n);
	msg->from = u;
	unix_get(u);
	u->wmem += msg->charge;
	msg->addr = u->addr;
	if (msg->addr != NULL)
		msg->addr->refs++;
	*ret = msg;
	return 0;
}

/* Attaches descriptors; on failure they are still the caller's. */
static int msg_attach(struct unix_msg *msg, struct scm_fds **fds)
{
	int ret;

	if (*fds == NULL)
		return 0;
	ret = scm_send_begin(*fds);
	if (ret == 0) {
		msg->fds = *fds;
		*fds = NULL;
	}
	return ret;
}

static void pipe_signal(const struct ksockmsg *m)
{
	struct ksiginfo si = {
		.signo = KSIGPIPE, .code = KSI_USER,
		.pid = current->proc->pid, .uid = current->proc->cred->uid,
	};

	if ((m->flags & KMSG_NOSIGNAL) == 0)
		signal_send_task(current, KSIGPIPE, &si);
}

/* Room for u to send: 0, -EPIPE, -EAGAIN, a pending error, or the interruption. `peer`'s end
 * also ends the wait. */
static int wait_wmem(struct unix_sock *u, struct unix_sock *peer, bool nonblock,
		     uint64_t deadline)
{
	int ret;

	for (;;) {
		if (u->s.error != 0)
			return socket_take_error(&u->s);
		if (u->s.shutdown & KSHUT_WR)
			return -EPIPE;
		if (u->wmem < u->s.sndbuf || (peer != NULL && peer->dead))
			return 0;
		if (nonblock)
			return -EAGAIN;
		ret = WAIT_EVENT_DEADLINE(&u->s.wq, u->wmem < u->s.sndbuf || u->s.error != 0 ||
					  (u->s.shutdown & KSHUT_WR) ||
					  (peer != NULL && peer->dead), deadline);
		if (ret != 0)
			return socket_wait_error(ret, u->s.sndtimeo_ns);
	}
}

/* ---- streams ---- */

static bool stream_peer_gone(const struct unix_sock *u, const struct unix_sock *other)
{
	return (u->s.shutdown & KSHUT_WR) || other->dead || (other->s.shutdown & KSHUT_RD);
}

static long stream_send(struct unix_sock *u, struct ksockmsg *m, bool nonblock,
			struct scm_fds **fds, const struct ucred_k *cred)
{
	struct unix_sock *other = u->peer;
	uint64_t deadline = socket_deadline(u->s.sndtimeo_ns);
	size_t half = (u->s.sndbuf >> 1) - 64;
	struct unix_msg *msg;
	long sent = 0;
	int ret = 0;

	if (m->namelen != 0)
		return u->state == UNIX_CONNECTED ? -EISCONN : -EOPNOTSUPP;
	if (other == NULL)
		return -ENOTCONN;
	unix_get(other);
	if (stream_peer_gone(u, other))
		ret = -EPIPE;
	while (ret == 0 && m->uio->resid != 0) {
		size_t n = MIN(MIN(m->uio->resid, (size_t)STREAM_CHUNK), half);

		ret = wait_wmem(u, other, nonblock, deadline);
		if (ret != 0)
			break;
		if (stream_peer_gone(u, other)) {
			ret = -EPIPE;
			break;
		}
		ret = msg_new(u, m, n, &msg);
		if (ret != 0)
			break;
		msg->cred = *cred;
		ret = msg_attach(msg, fds);
		if (ret != 0) {
			msg_free(msg);
			break;
		}
		msg_queue(other, msg);
		sent += (long)n;
	}
	unix_put(other);
	if (ret == -EPIPE && sent == 0)
		pipe_signal(m);
	return sent != 0 ? sent : ret;
}

static bool same_cred(const struct ucred_k *a, const struct ucred_k *b)
{
	return a->pid == b->pid && a->uid == b->uid && a->gid == b->gid;
}

static void put_name(struct ksockmsg *m, const struct unix_addr *a)
{
	m->namelen = 0;
	if (m->name == NULL || a == NULL)
		return;
	*m->name = a->name;
	m->namelen = a->len;
}

/* SO_TIMESTAMP, SO_TIMESTAMPNS: struct timeval or timespec, before all else. */
static int put_stamp(struct unix_sock *u, struct ksockmsg *m, uint64_t ns)
{
	bool nano = u->s.timestampns;
	int64_t t[2];

	if (!nano && !u->s.timestamp)
		return 0;
	if (ns == 0)
		ns = clock_realtime_ns();
	t[0] = (int64_t)(ns / NSEC_PER_SEC);
	t[1] = (int64_t)(ns % NSEC_PER_SEC / (nano ? 1 : NSEC_PER_USEC));
	return socket_put_cmsg(m, KSOL_SOCKET, nano ? SO_TIMESTAMPNS_OLD : SO_TIMESTAMP_OLD, t,
			       sizeof(t));
}

/* Control messages of what was received; takes over fds. */
static int put_control(struct unix_sock *u, struct ksockmsg *m, const struct ucred_k *cred,
		       struct scm_fds *fds)
{
	int ret = 0;

	if (u->s.passcred)
		ret = socket_put_cmsg(m, KSOL_SOCKET, KSCM_CREDENTIALS, cred, sizeof(*cred));
	if (fds == NULL)
		return ret;
	if (ret != 0) {
		scm_drop(fds);
		return ret;
	}
	return scm_receive(m, fds);
}

/* Sleeps until a stream has something to say. 0: look again; 1: end of stream. */
static int stream_wait(struct unix_sock *u, bool nonblock, uint64_t deadline)
{
	int ret = socket_take_error(&u->s);

	if (ret != 0)
		return ret;
	if (u->s.shutdown & KSHUT_RD)
		return 1;
	if (nonblock)
		return -EAGAIN;
	ret = WAIT_EVENT_DEADLINE(&u->s.wq, u->qlen != 0 || u->s.error != 0 ||
				  (u->s.shutdown & KSHUT_RD), deadline);
	return socket_wait_error(ret, u->s.rcvtimeo_ns);
}

struct stream_state {
	struct ucred_k cred;
	struct scm_fds *fds;
	bool started;
	long copied;
};

/* Takes from the first messages without sleeping. 0: queue empty; 1: stop here; -EFAULT. */
static int stream_take(struct unix_sock *u, struct ksockmsg *m, struct stream_state *st)
{
	bool peek = (m->flags & KMSG_PEEK) != 0;
	struct unix_msg *msg, *next;

	for (msg = TAILQ_FIRST(&u->queue); msg != NULL; msg = next) {
		size_t n = MIN((size_t)(msg->len - msg->off), m->uio->resid);

		if (st->started && u->s.passcred && !same_cred(&st->cred, &msg->cred))
			return 1;
		if (!st->started) {
			st->cred = msg->cred;
			put_name(m, msg->addr);
			st->started = true;
		}
		if (uio_put(m->uio, msg->data + msg->off, n) < n)
			return -EFAULT;
		st->copied += (long)n;
		next = TAILQ_NEXT(msg, link);
		if (peek) {
			if (msg->fds != NULL) {
				st->fds = scm_copy(msg->fds);
				return 1;
			}
		} else {
			msg->off += (uint32_t)n;
			u->qbytes -= n;
			if (msg->fds != NULL) {
				scm_send_end(msg->fds);
				st->fds = msg->fds;
				msg->fds = NULL;
			}
			if (msg->off != msg->len)
				return 1;
			msg_dequeue(u, msg);
			msg_free(msg);
			if (st->fds != NULL)
				return 1;
		}
		if (m->uio->resid == 0)
			return 1;
	}
	return peek && st->copied != 0 ? 1 : 0;
}

static long stream_recv(struct unix_sock *u, struct ksockmsg *m, bool nonblock)
{
	uint64_t deadline = socket_deadline(u->s.rcvtimeo_ns);
	size_t target = m->flags & KMSG_WAITALL ? m->uio->resid
						: MIN((size_t)u->s.rcvlowat, m->uio->resid);
	struct stream_state st = { .fds = NULL };
	int ret;

	if (u->state != UNIX_CONNECTED)
		return -EINVAL;
	m->namelen = 0;
	target = MAX(target, 1UL);
	for (;;) {
		ret = stream_take(u, m, &st);
		if (ret != 0 || (size_t)st.copied >= target)
			break;
		ret = stream_wait(u, nonblock, deadline);
		if (ret != 0)
			break;
	}
	if (ret < 0 && st.copied == 0 && st.fds == NULL)
		return ret;
	ret = put_control(u, m, &st.cred, st.fds);
	return ret != 0 ? ret : st.copied;
}

/* ---- datagrams and seqpackets ---- */

/* The receiver of one datagram, with a reference. */
static struct unix_sock *dgram_target(struct unix_sock *u, const struct ksockmsg *m,
				      int *ret_err)
{
	struct unix_sock *other;

	if (m->namelen != 0 && u->s.type == KSOCK_DGRAM)
		return unix_find(m->name, m->namelen, u->s.type, ret_err);
	other = u->peer;
	*ret_err = -ENOTCONN;
	if (other != NULL)
		unix_get(other);
	return other;
}

/* May u's datagram go to other now? 0; 1: wait for room; negative errno. */
static int dgram_may_send(struct unix_sock *u, struct unix_sock *other)
{
	if (other->dead) {
		if (u->s.type == KSOCK_SEQPACKET)
			return -EPIPE;
		if (u->peer == other) {
			u->state = UNIX_CLOSE;
			unix_set_peer(u, NULL);
			unix_disconnected(u, other);
		}
		return -ECONNREFUSED;
	}
	if (u->s.type == KSOCK_DGRAM && other->peer != NULL && other->peer != u)
		return -EPERM;
	if (other->s.shutdown & KSHUT_RD)
		return -EPIPE;
	return other != u && other->peer != u && unix_rqueue_full(other) ? 1 : 0;
}

static int dgram_wait(struct unix_sock *u, struct unix_sock *other, bool nonblock,
		      uint64_t deadline)
{
	int ret;

	for (;;) {
		ret = dgram_may_send(u, other);
		if (ret <= 0)
			return ret;
		if (nonblock)
			return -EAGAIN;
		ret = WAIT_EVENT_DEADLINE(&other->s.wq, other->dead ||
					  (other->s.shutdown & KSHUT_RD) ||
					  !unix_rqueue_full(other), deadline);
		if (ret != 0)
			return socket_wait_error(ret, u->s.sndtimeo_ns);
	}
}

static long dgram_send(struct unix_sock *u, struct ksockmsg *m, bool nonblock,
		       struct scm_fds **fds, const struct ucred_k *cred)
{
	uint64_t deadline = socket_deadline(u->s.sndtimeo_ns);
	size_t n = m->uio->resid;
	struct unix_sock *other;
	struct unix_msg *msg;
	int ret;

	if (u->s.type == KSOCK_SEQPACKET && u->state != UNIX_CONNECTED)
		return -ENOTCONN;
	if (u->s.passcred) {
		ret = unix_autobind(u);
		if (ret != 0)
			return ret;
	}
	if (n > u->s.sndbuf - 32)
		return -EMSGSIZE;
	other = dgram_target(u, m, &ret);
	if (other == NULL)
		return ret;
	ret = wait_wmem(u, NULL, nonblock, deadline);
	if (ret == 0)
		ret = dgram_wait(u, other, nonblock, deadline);
	if (ret == 0)
		ret = msg_new(u, m, n, &msg);
	if (ret == 0) {
		msg->cred = *cred;
		ret = msg_attach(msg, fds);
		if (ret == 0)
			msg_queue(other, msg);
		else
			msg_free(msg);
	}
	unix_put(other);
	return ret != 0 ? ret : (long)n;
}

static long dgram_recv(struct unix_sock *u, struct ksockmsg *m, bool nonblock)
{
	uint64_t deadline = socket_deadline(u->s.rcvtimeo_ns);
	struct scm_fds *fds = NULL;
	struct unix_msg *msg;
	struct ucred_k cred;
	uint64_t stamp;
	size_t n, full;
	int ret;

	if (u->s.type == KSOCK_SEQPACKET && u->state != UNIX_CONNECTED)
		return -ENOTCONN;
	m->namelen = 0;
	for (;;) {
		ret = socket_take_error(&u->s);
		if (ret != 0)
			return ret;
		msg = TAILQ_FIRST(&u->queue);
		if (msg != NULL)
			break;
		if ((u->s.shutdown & KSHUT_RD) && (u->s.type == KSOCK_SEQPACKET || !nonblock))
			return 0;
		if (nonblock)
			return -EAGAIN;
		ret = WAIT_EVENT_DEADLINE(&u->s.wq, u->qlen != 0 || u->s.error != 0 ||
					  (u->s.shutdown & KSHUT_RD), deadline);
		if (ret != 0)
			return socket_wait_error(ret, u->s.rcvtimeo_ns);
	}
	full = msg->len;
	n = MIN(full, m->uio->resid);
	if (n < full)
		m->out_flags |= KMSG_TRUNC;
	if (uio_put(m->uio, msg->data, n) < n)
		return -EFAULT;
	put_name(m, msg->addr);
	cred = msg->cred;
	stamp = msg->stamp_ns;
	if (m->flags & KMSG_PEEK) {
		if (msg->fds != NULL)
			fds = scm_copy(msg->fds);
	} else {
		if (msg->fds != NULL) {
			scm_send_end(msg->fds);
			fds = msg->fds;
			msg->fds = NULL;
		}
		msg_dequeue(u, msg);
		msg_free(msg);
	}
	ret = put_stamp(u, m, stamp);
	if (ret != 0)
		scm_drop(fds);
	else
		ret = put_control(u, m, &cred, fds);
	if (ret != 0)
		return ret;
	return (long)(m->flags & KMSG_TRUNC ? full : n);
}

/* ---- entry points ---- */

long unix_sendmsg(struct socket *s, struct ksockmsg *m, bool nonblock)
{
	struct unix_sock *u = unix_of(s);
	struct scm_fds *fds;
	struct ucred_k cred;
	long ret;

	if (m->flags & KMSG_OOB)
		return -EOPNOTSUPP;
	ret = scm_decode(m->control, m->controllen, &fds, &cred);
	if (ret != 0)
		return ret;
	if (s->type == KSOCK_STREAM)
		ret = stream_send(u, m, nonblock, &fds, &cred);
	else
		ret = dgram_send(u, m, nonblock, &fds, &cred);
	scm_drop(fds);
	return ret;
}

long unix_recvmsg(struct socket *s, struct ksockmsg *m, bool nonblock)
{
	if (m->flags & KMSG_OOB)
		return -EOPNOTSUPP;
	if (m->flags & KMSG_ERRQUEUE)
		return -EAGAIN;
	if (s->type == KSOCK_STREAM)
		return stream_recv(unix_of(s), m, nonblock);
	return dgram_recv(unix_of(s), m, nonblock);
}

long unix_ioctl(struct socket *s, unsigned cmd, unsigned long arg)
{
	struct unix_sock *u = unix_of(s);
	int n;

	switch (cmd) {
	case SIOCINQ:	/* = FIONREAD */
		if (u->state == UNIX_LISTEN)
			return -EINVAL;
		if (s->type == KSOCK_DGRAM)
			n = u->qlen != 0 ? (int)TAILQ_FIRST(&u->queue)->len : 0;
		else
			n = (int)u->qbytes;
		return PUT_USER(n, (int __user *)arg);
	case SIOCOUTQ:	/* = TIOCOUTQ */
		n = (int)u->wmem;
		return PUT_USER(n, (int __user *)arg);
	}
	return -ENOTTY;
}
