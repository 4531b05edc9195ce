/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets as open files, and the system calls on them. Arguments are brought into kernel
 * memory here (addresses, control messages, vectors), then the family's operation runs, then
 * results go out. Options of SOL_SOCKET that mean the same in every family are kept here
 * (sockopt.c); the rest is the family's.
 */
#include "guest-kernel/ipc/socket.h"

#include <asm/ioctls.h>

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/ipc.h"
#include "guest-kernel/mm/page.h"

#define CONTROL_MAX	131072u
#define IOV_MAX		1024u

static const struct sock_family *const families[] = {
	&unix_family, &inet_family, &inet6_family, &netlink_family,
};

static struct superblock sock_sb = {
	.type = "sockfs", .dev = KMKDEV(0, 9), .magic = 0x534f434b, .next_ino = 1,
};
static const struct inode_ops sock_inode_ops = { .setattr = ipc_setattr };
static const struct file_ops sock_file_ops;
static uint64_t next_cookie;

void socket_init(struct socket *s, int family, int type, int protocol,
		 const struct sock_ops *ops)
{
	s->refs = 1;
	s->family = (uint16_t)family;
	s->type = (uint16_t)type;
	s->protocol = protocol;
	s->ops = ops;
	s->sndbuf = SOCK_BUF_DEFAULT;
	s->rcvbuf = SOCK_BUF_DEFAULT;
	s->rcvlowat = 1;
	s->peek_off = -1;
	s->cookie = ++next_cookie;
	waitq_init(&s->wq);
}

void socket_get(struct socket *s)
{
	s->refs++;
}

void socket_put(struct socket *s)
{
	if (s != NULL && --s->refs == 0)
		s->ops->free(s);
}

struct socket *socket_of(const struct file *f)
{
	return f->ops == &sock_file_ops ? f->priv : NULL;
}

int socket_take_error(struct socket *s)
{
	int e = s->error;

	s->error = 0;
	return -e;
}

uint64_t socket_deadline(uint64_t timeo_ns)
{
	uint64_t t;

	if (timeo_ns == 0 || __builtin_add_overflow(clock_monotonic_ns(), timeo_ns, &t))
		return NO_DEADLINE;
	return t;
}

int socket_wait_error(int ret, uint64_t timeo_ns)
{
	if (ret == -ETIMEDOUT)
		return -EAGAIN;
	return ret == -ERESTARTSYS && timeo_ns != 0 ? -EINTR : ret;
}

int socket_put_cmsg(struct ksockmsg *m, int level, int type, const void *data, size_t len)
{
	struct {
		uint64_t len;
		int32_t level, type;
	} h = { sizeof(h) + len, level, type };
	size_t room = m->ucontrol_room, space;

	if (m->ucontrol == NULL || room < sizeof(h)) {
		m->out_flags |= KMSG_CTRUNC;
		return 0;
	}
	if (room < h.len) {
		m->out_flags |= KMSG_CTRUNC;
		h.len = room;
	}
	if (copy_to_user(m->ucontrol, &h, sizeof(h)) != 0 ||
	    copy_to_user(m->ucontrol + sizeof(h), data, h.len - sizeof(h)) != 0)
		return -EFAULT;
	space = MIN(ALIGN_UP(sizeof(h) + len, 8UL), room);
	m->ucontrol += space;
	m->ucontrol_room -= space;
	return 0;
}

/* ---- as files ---- */

static long sock_read(struct file *f, struct uio *u, uint64_t *pos)
{
	struct socket *s = f->priv;
	struct ksockmsg m = { .uio = u };

	if (u->resid == 0)
		return 0;
	return s->ops->recvmsg(s, &m, (f->flags & KO_NONBLOCK) != 0);
}

static long sock_write(struct file *f, struct uio *u, uint64_t *pos)
{
	struct socket *s = f->priv;
	struct ksockmsg m = { .uio = u };

	return s->ops->sendmsg(s, &m, (f->flags & KO_NONBLOCK) != 0);
}

static unsigned sock_poll(struct file *f, struct poll_table *pt)
{
	struct socket *s = f->priv;

	return s->ops->poll(s, pt);
}

static long sock_ioctl(struct file *f, unsigned cmd, unsigned long arg)
{
	struct socket *s = f->priv;

	return s->ops->ioctl != NULL ? s->ops->ioctl(s, cmd, arg) : -ENOTTY;
}

static void sock_release(struct file *f)
{
	struct socket *s = f->priv;

	s->file = NULL;
	s->ops->release(s);
	socket_put(s);
}

static const struct file_ops sock_file_ops = {
	.read = sock_read,
	.write = sock_write,
	.poll = sock_poll,
	.ioctl = sock_ioctl,
	.release = sock_release,
};

/* A file for s; takes over the reference, also on failure. */
static struct file *sock_file(struct socket *s, uint32_t flags)
{
	struct inode *i = inode_new(&sock_sb, KS_IFSOCK | 0777);
	struct dentry *d = NULL;
	struct file *f = NULL;
	char name[32];

	if (i != NULL) {
		i->ops = &sock_inode_ops;
		if (current->proc != NULL && current->proc->cred != NULL) {
			i->uid = current->proc->cred->fsuid;
			i->gid = current->proc->cred->fsgid;
		}
		ksnprintf(name, sizeof(name), "socket:[%lu]", i->ino);
		d = dentry_anon(i, name);
	}
	if (d != NULL)
		f = file_new(d, &sock_file_ops, KO_RDWR | (flags & KO_NONBLOCK));
	if (f == NULL) {
		s->ops->release(s);
		socket_put(s);
		return NULL;
	}
	f->priv = s;
	s->file = f;
	return f;
}

static int sock_install(struct socket *s, uint32_t flags)
{
	struct file *f = sock_file(s, flags);

	if (f == NULL)
		return -ENOMEM;
	return fd_install(f, 0, (flags & KO_CLOEXEC) != 0);
}

/* ret_f holds a reference on success. */
static struct socket *sock_get(int fd, struct file **ret_f, int *ret_err)
{
	struct file *f = fd_get(fd);
	struct socket *s;

	if (f == NULL) {
		*ret_err = -EBADF;
		return NULL;
	}
	s = socket_of(f);
	if (s == NULL) {
		file_put(f);
		*ret_err = -ENOTSOCK;
		return NULL;
	}
	*ret_f = f;
	return s;
}

/* ---- addresses ---- */

static int addr_in(struct ksockaddr *a, const void __user *uaddr, int len)
{
	memset(a, 0, sizeof(*a));
	if (len < 0 || (size_t)len > sizeof(*a))
		return -EINVAL;
	return len == 0 ? 0 : copy_from_user(a, uaddr, (size_t)len);
}

static int addr_out(const struct ksockaddr *a, int klen, void __user *uaddr,
		    int __user *ulen)
{
	int len, n;

	if (GET_USER(len, ulen) != 0)
		return -EFAULT;
	if (len < 0)
		return -EINVAL;
	n = MIN(len, klen);
	if (n > 0 && copy_to_user(uaddr, a, (size_t)n) != 0)
		return -EFAULT;
	return PUT_USER(klen, ulen);
}

/* ---- making sockets ---- */

static const struct sock_family *family_find(int family)
{
	for (unsigned i = 0; i < ARRAY_SIZE(families); i++) {
		if (families[i] != NULL && families[i]->family == family)
			return families[i];
	}
	return NULL;
}

static int socket_args(int family, int *type, uint32_t *ret_flags,
		       const struct sock_family **ret)
{
	*ret_flags = (uint32_t)*type & ~(uint32_t)KSOCK_TYPE_MASK;
	*type &= KSOCK_TYPE_MASK;
	if (*ret_flags & ~(KO_CLOEXEC | KO_NONBLOCK))
		return -EINVAL;
	if (family < 0 || family >= KAF_MAX)
		return -EAFNOSUPPORT;
	if (*type == 0 || *type > 10)
		return -EINVAL;
	*ret = family_find(family);
	return *ret != NULL ? 0 : -EAFNOSUPPORT;
}

SYSCALL(socket, int family, int type, int protocol)
{
	const struct sock_family *fam;
	struct socket *s;
	uint32_t flags;
	int ret;

	ret = socket_args(family, &type, &flags, &fam);
	if (ret == 0)
		ret = fam->create(type, protocol, &s);
	if (ret != 0)
		return ret;
	return sock_install(s, flags);
}

SYSCALL(socketpair, int family, int type, int protocol, int __user *ufds)
{
	const struct sock_family *fam;
	struct socket *s[2];
	uint32_t flags;
	int fds[2], ret;

	ret = socket_args(family, &type, &flags, &fam);
	if (ret != 0)
		return ret;
	if (fam->pair == NULL)
		return -EOPNOTSUPP;
	ret = fam->pair(type, protocol, s);
	if (ret != 0)
		return ret;
	fds[0] = sock_install(s[0], flags);
	if (fds[0] < 0) {
		s[1]->ops->release(s[1]);
		socket_put(s[1]);
		return fds[0];
	}
	fds[1] = sock_install(s[1], flags);
	if (fds[1] < 0) {
		fd_close(fds[0]);
		return fds[1];
	}
	if (copy_to_user(ufds, fds, sizeof(fds)) != 0) {
		fd_close(fds[0]);
		fd_close(fds[1]);
		return -EFAULT;
	}
	return 0;
}

SYSCALL(bind, int fd, const void __user *uaddr, int len)
{
	struct ksockaddr a;
	struct file *f;
	struct socket *s;
	int ret;

	s = sock_get(fd, &f, &ret);
	if (s == NULL)
		return ret;
	ret = addr_in(&a, uaddr, len);
	if (ret == 0)
		ret = s->ops->bind(s, &a, len);
	file_put(f);
	return ret;
}

SYSCALL(connect, int fd, const void __user *uaddr, int len)
{
	struct ksockaddr a;
	struct file *f;
	struct socket *s;
	int ret;

	s = sock_get(fd, &f, &ret);
	if (s == NULL)
		return ret;
	ret = addr_in(&a, uaddr, len);
	if (ret == 0)
		ret = s->ops->connect(s, &a, len, (f->flags & KO_NONBLOCK) != 0);
	file_put(f);
	return ret;
}

SYSCALL(listen, int fd, int backlog)
{
	struct file *f;
	struct socket *s;
	int ret;

	s = sock_get(fd, &f, &ret);
	if (s == NULL)
		return ret;
	if (backlog < 0 || backlog > SOMAXCONN_DEFAULT)
		backlog = SOMAXCONN_DEFAULT;
	ret = s->ops->listen != NULL ? s->ops->listen(s, backlog) : -EOPNOTSUPP;
	file_put(f);
	return ret;
}

static long accept_call(int fd, void __user *uaddr, int __user *ulen, uint32_t flags)
{
	struct ksockaddr a;
	struct socket *s, *peer;
	struct file *f;
	int ret, newfd;

	if (flags & ~(KO_CLOEXEC | KO_NONBLOCK))
		return -EINVAL;
	s = sock_get(fd, &f, &ret);
	if (s == NULL)
		return ret;
	ret = -EOPNOTSUPP;
	if (s->ops->accept != NULL)
		ret = s->ops->accept(s, &peer, (f->flags & KO_NONBLOCK) != 0);
	file_put(f);
	if (ret != 0)
		return ret;
	if (uaddr != NULL) {
		memset(&a, 0, sizeof(a));
		ret = peer->ops->getname(peer, &a, true);
		if (ret < 0)
			ret = -ECONNABORTED;
		else
			ret = addr_out(&a, ret, uaddr, ulen);
		if (ret < 0) {
			peer->ops->release(peer);
			socket_put(peer);
			return ret;
		}
	}
	newfd = sock_install(peer, flags);
	return newfd;
}

SYSCALL(accept, int fd, void __user *uaddr, int __user *ulen)
{
	return accept_call(fd, uaddr, ulen, 0);
}

SYSCALL(accept4, int fd, void __user *uaddr, int __user *ulen, unsigned flags)
{
	return accept_call(fd, uaddr, ulen, flags);
}

static long name_call(int fd, void __user *uaddr, int __user *ulen, bool peer)
{
	struct ksockaddr a;
	struct file *f;
	struct socket *s;
	int ret;

	s = sock_get(fd, &f, &ret);
	if (s == NULL)
		return ret;
	memset(&a, 0, sizeof(a));
	ret = s->ops->getname(s, &a, peer);
	if (ret >= 0)
		ret = addr_out(&a, ret, uaddr, ulen);
	file_put(f);
	return ret;
}

SYSCALL(getsockname, int fd, void __user *uaddr, int __user *ulen)
{
	return name_call(fd, uaddr, ulen, false);
}

SYSCALL(getpeername, int fd, void __user *uaddr, int __user *ulen)
{
	return name_call(fd, uaddr, ulen, true);
}

SYSCALL(shutdown, int fd, int how)
{
	struct file *f;
	struct socket *s;
	int ret;

	s = sock_get(fd, &f, &ret);
	if (s == NULL)
		return ret;
	ret = how < 0 || how > 2 ? -EINVAL : s->ops->shutdown(s, (unsigned)how + 1);
	file_put(f);
	return ret;
}

/* ---- sending and receiving ---- */

static bool msg_nonblock(const struct file *f, unsigned flags)
{
	return (f->flags & KO_NONBLOCK) != 0 || (flags & KMSG_DONTWAIT) != 0;
}

SYSCALL(sendto, int fd, const void __user *buf, size_t len, unsigned flags,
	const void __user *uaddr, int alen)
{
	struct ksockaddr a;
	struct uiovec one;
	struct uio u;
	struct ksockmsg m = { .uio = &u, .flags = flags };
	struct file *f;
	struct socket *s;
	int err;
	long ret;

	s = sock_get(fd, &f, &err);
	if (s == NULL)
		return err;
	uio_init_user(&u, &one, (void __user *)buf, MIN(len, (size_t)0x7ffff000));
	ret = 0;
	if (uaddr != NULL) {
		ret = addr_in(&a, uaddr, alen);
		m.name = &a;
		m.namelen = alen;
	}
	if (ret == 0)
		ret = s->ops->sendmsg(s, &m, msg_nonblock(f, flags));
	file_put(f);
	return ret;
}

SYSCALL(recvfrom, int fd, void __user *buf, size_t len, unsigned flags, void __user *uaddr,
	int __user *ualen)
{
	struct ksockaddr a;
	struct uiovec one;
	struct uio u;
	struct ksockmsg m = { .uio = &u, .flags = flags };
	struct file *f;
	struct socket *s;
	int err;
	long ret;

	s = sock_get(fd, &f, &err);
	if (s == NULL)
		return err;
	uio_init_user(&u, &one, buf, MIN(len, (size_t)0x7ffff000));
	memset(&a, 0, sizeof(a));
	if (uaddr != NULL)
		m.name = &a;
	ret = s->ops->recvmsg(s, &m, msg_nonblock(f, flags));
	if (ret >= 0 && uaddr != NULL) {
		err = addr_out(&a, m.namelen, uaddr, ualen);
		if (err != 0)
			ret = err;
	}
	file_put(f);
	return ret;
}

struct user_msghdr {
	void __user *name;
	int32_t namelen;
	uint32_t pad1;
	struct uiovec __user *iov;
	uint64_t iovlen;
	void __user *control;
	uint64_t controllen;
	uint32_t flags;
	uint32_t pad2;
};

static int msghdr_in(struct user_msghdr *h, const struct user_msghdr __user *uh,
		     struct uio *u, struct uiovec **iov)
{
	if (copy_from_user(h, uh, sizeof(*h)) != 0)
		return -EFAULT;
	if (h->name == NULL)
		h->namelen = 0;
	if (h->namelen < 0)
		return -EINVAL;
	if ((size_t)h->namelen > sizeof(struct ksockaddr))
		h->namelen = sizeof(struct ksockaddr);
	if (h->iovlen > IOV_MAX)
		return -EMSGSIZE;
	return uio_import(u, h->iov, h->iovlen, iov);
}

static long send_one(struct file *f, struct socket *s, struct user_msghdr __user *uh,
		     unsigned flags)
{
	struct ksockaddr a;
	struct user_msghdr h;
	struct uiovec *iov = NULL;
	struct uio u;
	struct ksockmsg m = { .uio = &u, .flags = flags };
	uint8_t *control = NULL;
	long ret;

	ret = msghdr_in(&h, uh, &u, &iov);
	if (ret != 0)
		return ret;
	if (h.namelen != 0) {
		ret = addr_in(&a, h.name, h.namelen);
		m.name = &a;
		m.namelen = h.namelen;
	}
	if (ret == 0 && h.controllen != 0) {
		ret = -ENOBUFS;
		if (h.controllen <= CONTROL_MAX)
			control = kmalloc(h.controllen);
		if (control != NULL)
			ret = copy_from_user(control, h.control, h.controllen);
		m.control = control;
		m.controllen = h.controllen;
	}
	if (ret == 0)
		ret = s->ops->sendmsg(s, &m, msg_nonblock(f, flags));
	kfree(control);
	kfree(iov);
	return ret;
}

SYSCALL(sendmsg, int fd, struct user_msghdr __user *uh, unsigned flags)
{
	struct file *f;
	struct socket *s;
	int err;
	long ret;

	s = sock_get(fd, &f, &err);
	if (s == NULL)
		return err;
	ret = send_one(f, s, uh, flags);
	file_put(f);
	return ret;
}

static long recv_one(struct file *f, struct socket *s, struct user_msghdr __user *uh,
		     unsigned flags)
{
	struct ksockaddr a;
	struct user_msghdr h;
	struct uiovec *iov = NULL;
	struct uio u;
	struct ksockmsg m = { .uio = &u, .flags = flags };
	uint64_t used;
	long ret;
	int err;

	ret = msghdr_in(&h, uh, &u, &iov);
	if (ret != 0)
		return ret;
	memset(&a, 0, sizeof(a));
	if (h.name != NULL)
		m.name = &a;
	m.ucontrol = h.control;
	m.ucontrol_room = h.control != NULL ? h.controllen : 0;
	m.out_flags = flags & KMSG_CMSG_CLOEXEC;
	ret = s->ops->recvmsg(s, &m, msg_nonblock(f, flags));
	kfree(iov);
	if (ret < 0)
		return ret;
	if (h.name != NULL) {
		err = addr_out(&a, m.namelen, h.name, (int __user *)&uh->namelen);
		if (err != 0)
			return err;
	}
	used = h.control != NULL ? (uint64_t)(m.ucontrol - (uint8_t *)h.control) : 0;
	if (PUT_USER(m.out_flags, &uh->flags) != 0 || PUT_USER(used, &uh->controllen) != 0)
		return -EFAULT;
	return ret;
}

SYSCALL(recvmsg, int fd, struct user_msghdr __user *uh, unsigned flags)
{
	struct file *f;
	struct socket *s;
	int err;
	long ret;

	s = sock_get(fd, &f, &err);
	if (s == NULL)
		return err;
	ret = recv_one(f, s, uh, flags);
	file_put(f);
	return ret;
}

struct user_mmsghdr {
	struct user_msghdr hdr;
	uint32_t len;
	uint32_t pad;
};

SYSCALL(sendmmsg, int fd, struct user_mmsghdr __user *um, unsigned n, unsigned flags)
{
	struct file *f;
	struct socket *s;
	unsigned done = 0;
	uint32_t len;
	long ret = 0;
	int err;

	s = sock_get(fd, &f, &err);
	if (s == NULL)
		return err;
	n = MIN(n, IOV_MAX);
	while (done < n) {
		ret = send_one(f, s, &um[done].hdr, flags);
		if (ret < 0)
			break;
		len = (uint32_t)ret;
		ret = PUT_USER(len, &um[done].len);
		if (ret < 0)
			break;
		done++;
		if (signal_pending(current))
			break;
	}
	file_put(f);
	return done != 0 ? (long)done : ret;
}

SYSCALL(recvmmsg, int fd, struct user_mmsghdr __user *um, unsigned n, unsigned flags,
	struct ktimespec __user *uts)
{
	struct file *f;
	struct socket *s;
	uint64_t timeout = 0, end = NO_DEADLINE, now;
	unsigned done = 0;
	uint32_t len;
	long ret = 0;
	int err;

	if (uts != NULL) {
		err = timespec_get_user(uts, &timeout);
		if (err != 0)
			return err;
		end = socket_deadline(timeout);
		if (timeout == 0)
			end = clock_monotonic_ns();
	}
	s = sock_get(fd, &f, &err);
	if (s == NULL)
		return err;
	ret = socket_take_error(s);
	n = MIN(n, IOV_MAX);
	while (ret == 0 && done < n) {
		ret = recv_one(f, s, &um[done].hdr, flags & ~KMSG_WAITFORONE);
		if (ret < 0)
			break;
		len = (uint32_t)ret;
		ret = PUT_USER(len, &um[done].len);
		if (ret < 0)
			break;
		done++;
		if (flags & KMSG_WAITFORONE)
			flags |= KMSG_DONTWAIT;
		if (uts != NULL && clock_monotonic_ns() >= end)
			break;
	}
	file_put(f);
	if (done != 0 && uts != NULL) {
		now = clock_monotonic_ns();
		if (timespec_put_user(uts, end > now ? end - now : 0) != 0)
			return -EFAULT;
	}
	return done != 0 ? (long)done : ret;
}
