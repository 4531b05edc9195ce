/* SPDX-License-Identifier: Apache-2.0 */
/*
 * setsockopt and getsockopt. SOL_SOCKET options that only set or show a field are a table of
 * their own; what remains needs a few lines each. Other levels go to the family.
 */
#include <asm/socket.h>
#include <linux/capability.h>

#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/ipc/socket.h"

#define OPT_MAX		256	/* longest value a family may take or give */
#define SNDBUF_MIN	4608u
#define RCVBUF_MIN	2304u

static const struct {
	int opt;
	size_t field;
} bool_opts[] = {
	{ SO_DEBUG, offsetof(struct socket, debug) },
	{ SO_REUSEADDR, offsetof(struct socket, reuseaddr) },
	{ SO_REUSEPORT, offsetof(struct socket, reuseport) },
	{ SO_KEEPALIVE, offsetof(struct socket, keepalive) },
	{ SO_BROADCAST, offsetof(struct socket, broadcast) },
	{ SO_OOBINLINE, offsetof(struct socket, oobinline) },
	{ SO_DONTROUTE, offsetof(struct socket, dontroute) },
	{ SO_PASSCRED, offsetof(struct socket, passcred) },
	{ SO_PASSSEC, offsetof(struct socket, passsec) },
	{ SO_TIMESTAMP_OLD, offsetof(struct socket, timestamp) },
	{ SO_TIMESTAMPNS_OLD, offsetof(struct socket, timestampns) },
};

static bool *bool_opt(struct socket *s, int opt)
{
	for (unsigned i = 0; i < ARRAY_SIZE(bool_opts); i++) {
		if (bool_opts[i].opt == opt)
			return (bool *)((char *)s + bool_opts[i].field);
	}
	return NULL;
}

static int set_bufsize(uint32_t *buf, int val, uint32_t min, bool force)
{
	uint32_t v = (uint32_t)val;

	if (force && val < 0)
		v = 0;
	v = MIN(v, SOCK_BUF_MAX / 2);
	*buf = MAX(v * 2, min);
	return 0;
}

static int set_timeout(uint64_t *ret, const void *val, int len)
{
	int64_t tv[2];
	uint64_t ns, usec;

	if (len < (int)sizeof(tv))
		return -EINVAL;
	memcpy(tv, val, sizeof(tv));
	if (tv[1] < 0 || tv[1] >= 1000000)
		return -EDOM;
	if (tv[0] < 0) {
		*ret = 1;	/* a negative timeout is over at once */
		return 0;
	}
	usec = (uint64_t)tv[1] * NSEC_PER_USEC;
	if (__builtin_mul_overflow((uint64_t)tv[0], NSEC_PER_SEC, &ns) ||
	    __builtin_add_overflow(ns, usec, &ns))
		ns = 0;		/* longer than time */
	*ret = ns;
	return 0;
}

static int set_socket_opt(struct socket *s, int opt, const void *val, int len)
{
	bool *flag = bool_opt(s, opt);
	int v, pair[2];

	if (len < (int)sizeof(v))
		return -EINVAL;
	memcpy(&v, val, sizeof(v));
	if (flag != NULL) {
		if (opt == SO_DEBUG && v != 0 && !capable(CAP_NET_ADMIN))
			return -EACCES;
		*flag = v != 0;
		return 0;
	}
	switch (opt) {
	case SO_TYPE:
	case SO_PROTOCOL:
	case SO_DOMAIN:
	case SO_ERROR:
	case SO_ACCEPTCONN:
	case SO_PEERCRED:
	case SO_PEERGROUPS:
	case SO_COOKIE:
		return -ENOPROTOOPT;
	case SO_SNDBUF:
		return set_bufsize(&s->sndbuf, v, SNDBUF_MIN, false);
	case SO_RCVBUF:
		return set_bufsize(&s->rcvbuf, v, RCVBUF_MIN, false);
	case SO_SNDBUFFORCE:
		return capable(CAP_NET_ADMIN) ? set_bufsize(&s->sndbuf, v, SNDBUF_MIN, true)
					      : -EPERM;
	case SO_RCVBUFFORCE:
		return capable(CAP_NET_ADMIN) ? set_bufsize(&s->rcvbuf, v, RCVBUF_MIN, true)
					      : -EPERM;
	case SO_PRIORITY:
		if ((v < 0 || v > 6) && !capable(CAP_NET_ADMIN))
			return -EPERM;
		s->priority = v;
		return 0;
	case SO_MARK:
		if (!capable(CAP_NET_ADMIN))
			return -EPERM;
		s->mark = v;
		return 0;
	case SO_LINGER:
		if (len < (int)sizeof(pair))
			return -EINVAL;
		memcpy(pair, val, sizeof(pair));
		s->linger_on = pair[0] != 0;
		s->linger_s = pair[1];
		return 0;
	case SO_RCVLOWAT:
		s->rcvlowat = v < 0 ? 0x7fffffff : MAX(v, 1);
		return 0;
	case SO_RCVTIMEO_OLD:
	case SO_RCVTIMEO_NEW:
		return set_timeout(&s->rcvtimeo_ns, val, len);
	case SO_SNDTIMEO_OLD:
	case SO_SNDTIMEO_NEW:
		return set_timeout(&s->sndtimeo_ns, val, len);
	case SO_BUSY_POLL:
		if (v < 0)
			return -EINVAL;
		s->busy_poll = v;
		return 0;
	case SO_BINDTODEVICE:
		return -ENODEV;
	}
	if (s->ops->setsockopt != NULL)
		return s->ops->setsockopt(s, KSOL_SOCKET, opt, val, len);
	return -ENOPROTOOPT;
}

SYSCALL(setsockopt, int fd, int level, int opt, const void __user *uval, int len)
{
	uint8_t val[OPT_MAX] __attribute__((aligned(8))) = { 0 };
	struct file *f;
	struct socket *s;
	int ret;

	f = fd_get(fd);
	if (f == NULL)
		return -EBADF;
	s = socket_of(f);
	if (s == NULL) {
		ret = -ENOTSOCK;
	} else if (len < 0) {
		ret = -EINVAL;
	} else {
		len = MIN(len, OPT_MAX);
		ret = copy_from_user(val, uval, (size_t)len);
		if (ret == 0 && level == KSOL_SOCKET)
			ret = set_socket_opt(s, opt, val, len);
		else if (ret == 0 && s->ops->setsockopt != NULL)
			ret = s->ops->setsockopt(s, level, opt, val, len);
		else if (ret == 0)
			ret = -EOPNOTSUPP;
	}
	file_put(f);
	return ret;
}

static void put_timeout(uint64_t ns, int64_t tv[2])
{
	tv[0] = (int64_t)(ns / NSEC_PER_SEC);
	tv[1] = (int64_t)(ns % NSEC_PER_SEC / NSEC_PER_USEC);
}

/* Value into val; *len is how long it is. */
static int get_socket_opt(struct socket *s, int opt, uint8_t *val, int *len)
{
	bool *flag = bool_opt(s, opt);
	int v[2] = { 0, 0 };
	int64_t tv[2];

	*len = sizeof(int);
	if (flag != NULL) {
		v[0] = *flag;
		memcpy(val, v, sizeof(int));
		return 0;
	}
	switch (opt) {
	case SO_TYPE:
		v[0] = s->type;
		break;
	case SO_PROTOCOL:
		v[0] = s->protocol;
		break;
	case SO_DOMAIN:
		v[0] = s->family;
		break;
	case SO_ERROR:
		v[0] = -socket_take_error(s);
		break;
	case SO_ACCEPTCONN:
		v[0] = s->listening;
		break;
	case SO_SNDBUF:
		v[0] = (int)s->sndbuf;
		break;
	case SO_RCVBUF:
		v[0] = (int)s->rcvbuf;
		break;
	case SO_PRIORITY:
		v[0] = s->priority;
		break;
	case SO_MARK:
		v[0] = s->mark;
		break;
	case SO_RCVLOWAT:
		v[0] = s->rcvlowat;
		break;
	case SO_SNDLOWAT:
		v[0] = 1;
		break;
	case SO_BUSY_POLL:
		v[0] = s->busy_poll;
		break;
	case SO_INCOMING_CPU:
		v[0] = -1;
		break;
	case SO_NO_CHECK:
	case SO_ZEROCOPY:
	case SO_BINDTOIFINDEX:
		break;
	case SO_LINGER:
		v[0] = s->linger_on;
		v[1] = s->linger_s;
		*len = sizeof(v);
		break;
	case SO_RCVTIMEO_OLD:
	case SO_RCVTIMEO_NEW:
	case SO_SNDTIMEO_OLD:
	case SO_SNDTIMEO_NEW:
		put_timeout(opt == SO_RCVTIMEO_OLD || opt == SO_RCVTIMEO_NEW ? s->rcvtimeo_ns
									   : s->sndtimeo_ns,
			    tv);
		memcpy(val, tv, sizeof(tv));
		*len = sizeof(tv);
		return 0;
	case SO_COOKIE:
		memcpy(val, &s->cookie, sizeof(s->cookie));
		*len = sizeof(s->cookie);
		return 0;
	case SO_BINDTODEVICE:
		*len = 0;
		return 0;
	default:
		if (s->ops->getsockopt == NULL)
			return -ENOPROTOOPT;
		*len = OPT_MAX;
		return s->ops->getsockopt(s, KSOL_SOCKET, opt, val, len);
	}
	memcpy(val, v, (size_t)*len);
	return 0;
}

/* Of any length, so it goes straight to the program. */
static int put_peergroups(struct socket *s, void __user *uval, int room, int __user *ulen)
{
	const struct cred *c = s->ops->peergroups != NULL ? s->ops->peergroups(s) : NULL;
	int len;

	if (c == NULL)
		return -ENODATA;
	len = (int)(c->ngroups * sizeof(c->groups[0]));
	if (PUT_USER(len, ulen) != 0)
		return -EFAULT;
	if (room < len)
		return -ERANGE;		/* *ulen says how much it takes */
	return copy_to_user(uval, c->groups, (size_t)len);
}

SYSCALL(getsockopt, int fd, int level, int opt, void __user *uval, int __user *ulen)
{
	uint8_t val[OPT_MAX] __attribute__((aligned(8))) = { 0 };
	struct file *f;
	struct socket *s;
	int ret, len, room;

	f = fd_get(fd);
	if (f == NULL)
		return -EBADF;
	s = socket_of(f);
	ret = s == NULL ? -ENOTSOCK : GET_USER(room, ulen);
	if (ret == 0 && room < 0)
		ret = -EINVAL;
	if (ret != 0)
		goto out;
	if (level == KSOL_SOCKET && opt == SO_PEERGROUPS) {
		ret = put_peergroups(s, uval, room, ulen);
		goto out;
	}
	len = MIN(room, OPT_MAX);
	if (level == KSOL_SOCKET)
		ret = get_socket_opt(s, opt, val, &len);
	else if (s->ops->getsockopt != NULL)
		ret = s->ops->getsockopt(s, level, opt, val, &len);
	else
		ret = -EOPNOTSUPP;
	if (ret != 0)
		goto out;
	len = MIN(len, room);
	if (copy_to_user(uval, val, (size_t)len) != 0 || PUT_USER(len, ulen) != 0)
		ret = -EFAULT;
out:
	file_put(f);
	return ret;
}
