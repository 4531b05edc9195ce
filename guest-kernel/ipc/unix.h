/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by unix.c (sockets and addresses), unix_msg.c (data) and unix_scm.c (descriptors). */
#ifndef IPC_UNIX_H
#define IPC_UNIX_H

#include <sys/queue.h>
#include "guest-kernel/ipc/socket.h"

struct dentry;
struct file;

#define UNIX_PATH_MAX	108
#define UNIX_ADDR_MAX	110	/* sizeof(struct sockaddr_un) */
#define UNIX_QLEN_MAX	512u	/* datagrams in one receiver's queue, as systemd sets it */

struct unix_addr {
	uint32_t refs;
	int len;			/* with the family, as getsockname tells it */
	struct ksockaddr name;
	struct dentry *node;		/* of a path; reference held */
};

/* Descriptors under way. In a list while they wait to be dropped. */
struct scm_fds {
	struct scm_fds *next;
	unsigned n;
	struct file *files[];
};

struct unix_msg {
	TAILQ_ENTRY(unix_msg) link;
	struct unix_sock *from;		/* charged for it; reference held */
	struct unix_addr *addr;		/* the sender's, or NULL; reference held */
	struct ucred_k cred;
	struct scm_fds *fds;
	uint32_t charge;
	uint32_t len, off;
	uint64_t stamp_ns;		/* when it was queued, if the receiver wanted to know */
	uint8_t data[];
};

enum unix_state { UNIX_CLOSE, UNIX_CONNECTED, UNIX_LISTEN };
enum unix_gc { GC_NONE, GC_CANDIDATE, GC_LIVE };

struct unix_sock {
	struct socket s;		/* first */
	enum unix_state state;
	bool dead;			/* its file is closed */
	struct unix_addr *addr;
	struct unix_sock *peer;		/* reference held; may be dead */
	LIST_ENTRY(unix_sock) peer_link;	/* in peer->senders, when peer is set */
	LIST_HEAD(, unix_sock) senders;	/* datagram sockets connected to this one */
	LIST_ENTRY(unix_sock) abstract_link;
	bool in_abstract;
	TAILQ_HEAD(unix_queue, unix_msg) queue;
	unsigned qlen;
	size_t qbytes;
	uint32_t wmem;			/* of ours, in queues of others */
	/* listeners: connections not accepted yet, a reference each */
	TAILQ_HEAD(unix_embryos, unix_sock) embryos;
	TAILQ_ENTRY(unix_sock) embryo_link;
	unsigned nembryos, backlog;
	bool embryo;
	struct ucred_k cred, peercred;
	struct cred *groups, *peergroups;	/* references: their groups; peer's may be NULL */
	/* garbage collection: unix_scm.c */
	unsigned inflight, gc_count;
	enum unix_gc gc_state;
	LIST_ENTRY(unix_sock) inflight_link;
	struct unix_sock *gc_next;
};

static inline struct unix_sock *unix_of(struct socket *s)
{
	return CONTAINER_OF(s, struct unix_sock, s);
}
static inline void unix_get(struct unix_sock *u)
{
	socket_get(&u->s);
}
static inline void unix_put(struct unix_sock *u)
{
	if (u != NULL)
		socket_put(&u->s);
}
static inline bool unix_writable(const struct unix_sock *u)
{
	return u->state != UNIX_LISTEN && (uint64_t)u->wmem * 4 <= u->s.sndbuf;
}
static inline bool unix_rqueue_full(const struct unix_sock *u)
{
	return u->qlen >= UNIX_QLEN_MAX;
}

/* unix.c */
void unix_addr_put(struct unix_addr *a);
struct unix_sock *unix_find(const struct ksockaddr *a, int len, int type, int *ret_err);
int unix_autobind(struct unix_sock *u);
void unix_set_peer(struct unix_sock *u, struct unix_sock *peer);	/* NULL: none */
void unix_disconnected(struct unix_sock *u, struct unix_sock *old);
void unix_current_cred(struct ucred_k *c);
bool unix_file_is_unix(const struct file *f);

/* unix_msg.c */
long unix_sendmsg(struct socket *s, struct ksockmsg *m, bool nonblock);
long unix_recvmsg(struct socket *s, struct ksockmsg *m, bool nonblock);
void unix_purge(struct unix_sock *u);
long unix_ioctl(struct socket *s, unsigned cmd, unsigned long arg);

/* unix_scm.c */
/* Decodes control messages: descriptors (NULL if none) and credentials (caller's if none). */
int scm_decode(const uint8_t *control, size_t len, struct scm_fds **ret_fds,
	       struct ucred_k *ret_cred);
int scm_send_begin(struct scm_fds *fds);	/* counts them in flight, or -ETOOMANYREFS */
void scm_send_end(struct scm_fds *fds);		/* not in flight any more */
void scm_drop(struct scm_fds *fds);		/* gives the files back; NULL-safe */
struct scm_fds *scm_copy(const struct scm_fds *fds);	/* for MSG_PEEK */
int scm_receive(struct ksockmsg *m, struct scm_fds *fds);	/* installs; takes over fds */
void unix_collect(void);			/* finds cycles that nobody can reach */
unsigned unix_inflight_total(void);

#endif
