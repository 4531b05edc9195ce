/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket layer: system calls decode their arguments into kernel memory and call the
 * family's operations. AF_UNIX is here; another family joins with a struct sock_family in the
 * table of socket.c.
 *
 * A struct socket lives as long as somebody holds a reference: its file, a peer, a message
 * under way, a listener's queue. Families embed it as the first member.
 */
#ifndef IPC_SOCKET_H
#define IPC_SOCKET_H

#include "guest-kernel/core/wait.h"
#include "guest-kernel/lib/kernel.h"
#include "guest-kernel/mm/uaccess.h"

struct file;
struct socket;

#define KAF_UNSPEC	0
#define KAF_UNIX	1
#define KAF_INET	2
#define KAF_INET6	10
#define KAF_NETLINK	16
#define KAF_MAX		46

#define KSOCK_STREAM	1
#define KSOCK_DGRAM	2
#define KSOCK_RAW	3
#define KSOCK_SEQPACKET	5
#define KSOCK_TYPE_MASK	0xf

#define KMSG_OOB	0x1u
#define KMSG_PEEK	0x2u
#define KMSG_CTRUNC	0x8u
#define KMSG_TRUNC	0x20u
#define KMSG_DONTWAIT	0x40u
#define KMSG_EOR	0x80u
#define KMSG_WAITALL	0x100u
#define KMSG_ERRQUEUE	0x2000u
#define KMSG_NOSIGNAL	0x4000u
#define KMSG_WAITFORONE	0x10000u
#define KMSG_CMSG_CLOEXEC 0x40000000u

#define KSOL_SOCKET	1
#define KSCM_RIGHTS	1
#define KSCM_CREDENTIALS 2

#define KSHUT_RD	1u	/* bits, how + 1 */
#define KSHUT_WR	2u

#define SOCK_BUF_DEFAULT 212992u
#define SOCK_BUF_MAX	(2 * 212992u)
#define SOMAXCONN_DEFAULT 4096

struct ksockaddr {			/* struct sockaddr_storage */
	uint16_t family;
	char data[126];
};

/* A message being sent or received. */
struct ksockmsg {
	struct uio *uio;
	struct ksockaddr *name;		/* send: where to; receive: room for the sender's */
	int namelen;			/* send: bytes, 0 none; receive: out */
	const uint8_t *control;		/* send: kernel copy */
	size_t controllen;
	uint8_t __user *ucontrol;	/* receive: where control messages go ... */
	size_t ucontrol_room;		/* ... and how much is left; both move on */
	unsigned flags;			/* call's flags in; receive: MSG_* out in out_flags */
	unsigned out_flags;
};

struct sock_ops {
	int (*bind)(struct socket *s, const struct ksockaddr *a, int len);
	int (*connect)(struct socket *s, const struct ksockaddr *a, int len, bool nonblock);
	int (*listen)(struct socket *s, int backlog);
	/* A connected socket with a reference for the caller. */
	int (*accept)(struct socket *s, struct socket **ret, bool nonblock);
	/* Length, or negative errno. */
	int (*getname)(struct socket *s, struct ksockaddr *ret, bool peer);
	long (*sendmsg)(struct socket *s, struct ksockmsg *m, bool nonblock);
	long (*recvmsg)(struct socket *s, struct ksockmsg *m, bool nonblock);
	unsigned (*poll)(struct socket *s, struct poll_table *pt);
	long (*ioctl)(struct socket *s, unsigned cmd, unsigned long arg);
	int (*shutdown)(struct socket *s, unsigned how_bits);
	/* Levels other than SOL_SOCKET, and what SOL_SOCKET leaves (-ENOPROTOOPT); kernel value. */
	int (*setsockopt)(struct socket *s, int level, int opt, const void *val, int len);
	int (*getsockopt)(struct socket *s, int level, int opt, void *val, int *len);
	/* Of the peer, for SO_PEERGROUPS; NULL: it is not known. */
	const struct cred *(*peergroups)(struct socket *s);
	/* The file is closed: let go of peers and queues. The last reference frees. */
	void (*release)(struct socket *s);
	void (*free)(struct socket *s);
};

struct sock_family {
	int family;
	int (*create)(int type, int protocol, struct socket **ret);
	int (*pair)(int type, int protocol, struct socket *ret[2]);	/* NULL: EOPNOTSUPP */
};

struct socket {
	uint32_t refs;
	uint16_t family, type;
	int protocol;
	const struct sock_ops *ops;
	struct file *file;		/* borrowed; NULL before accept and after close */
	struct waitq wq;		/* everything that changes what poll would say */
	int error;			/* positive errno, taken by SO_ERROR or the next call */
	unsigned shutdown;		/* KSHUT_* */
	bool listening;
	bool reuseaddr, reuseport, keepalive, broadcast, oobinline, dontroute, debug;
	bool passcred, passsec, timestamp, timestampns;
	bool linger_on;
	int linger_s;
	int priority, mark, rcvlowat, peek_off, busy_poll;
	uint32_t sndbuf, rcvbuf;
	uint64_t rcvtimeo_ns, sndtimeo_ns;	/* 0: for ever */
	uint64_t cookie;
};

void socket_init(struct socket *s, int family, int type, int protocol,
		 const struct sock_ops *ops);
void socket_get(struct socket *s);
void socket_put(struct socket *s);
struct socket *socket_of(const struct file *f);		/* NULL: ENOTSOCK; borrowed */
int socket_take_error(struct socket *s);		/* 0 or negative errno, cleared */
/* Deadline for a wait under this timeout; what a wait that failed should answer. */
uint64_t socket_deadline(uint64_t timeo_ns);
int socket_wait_error(int ret, uint64_t timeo_ns);
/* One control message to the receiver; sets MSG_CTRUNC in m->out_flags when it does not fit. */
int socket_put_cmsg(struct ksockmsg *m, int level, int type, const void *data, size_t len);

struct ucred_k {			/* struct ucred */
	int32_t pid;
	uint32_t uid, gid;
};

extern const struct sock_family unix_family;
extern const struct sock_family inet_family __attribute__((weak));
extern const struct sock_family inet6_family __attribute__((weak));
extern const struct sock_family netlink_family __attribute__((weak));

#endif
