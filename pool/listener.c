/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets that listen on the host for a forward; see forward.h.
 *
 * One in the file system is removed by whoever made it, and only while it is the same: by
 * device and inode. For a daemon that was killed, the record `forward-N` in a directory of notes
 * says where that was; the next one removes a socket that is the recorded one and at which
 * nobody listens any more.
 */
#include "pool/forward.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/value.h"

#define BACKLOG		64
#define RECORD_PREFIX	"forward-"

struct address {
	union {
		struct sockaddr any;
		struct sockaddr_un local;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} to;
	socklen_t len;
};

/* ---- Reading addresses ---- */

static int local_parse(const char *path, struct address *ret, struct err *err)
{
	if (path[0] != '/')
		return err_set(err, EINVAL, "unix: wants an absolute path, not %.60s", path);
	if (strlen(path) >= sizeof(ret->to.local.sun_path))
		return err_set(err, EINVAL, "a socket's path has at most %zu bytes",
			       sizeof(ret->to.local.sun_path) - 1);
	*ret = (struct address){ .to.local.sun_family = AF_UNIX,
				 .len = sizeof(ret->to.local) };
	strcpy(ret->to.local.sun_path, path);
	return LISTEN_UNIX;
}

/* PORT, ADDRESS:PORT or [ADDRESS]:PORT */
static int internet_parse(const char *text, struct address *ret, struct err *err)
{
	const char *colon = strrchr(text, ':');
	const char *port_text = colon ? colon + 1 : text;
	size_t n = colon ? (size_t)(colon - text) : 0;
	bool v6 = n >= 2 && text[0] == '[' && text[n - 1] == ']';
	char host[64] = "127.0.0.1";
	struct in6_addr a6;
	struct in_addr a4;
	uint64_t port;

	*ret = (struct address){ .len = 0 };
	if (value_number(port_text, UINT16_MAX, &port) < 0 || n >= sizeof(host))
		goto bad;
	if (colon)
		snprintf(host, sizeof(host), "%.*s", (int)(v6 ? n - 2 : n), text + v6);
	if (v6 && inet_pton(AF_INET6, host, &a6) == 1) {
		ret->to.v6 = (struct sockaddr_in6){ .sin6_family = AF_INET6,
						    .sin6_port = htons((uint16_t)port),
						    .sin6_addr = a6 };
		ret->len = sizeof(ret->to.v6);
		return IN6_IS_ADDR_LOOPBACK(&a6) ? LISTEN_LOOPBACK : LISTEN_ANY;
	}
	if (!v6 && inet_pton(AF_INET, host, &a4) == 1) {
		ret->to.v4 = (struct sockaddr_in){ .sin_family = AF_INET,
						   .sin_port = htons((uint16_t)port),
						   .sin_addr = a4 };
		ret->len = sizeof(ret->to.v4);
		return ntohl(a4.s_addr) >> 24 == IN_LOOPBACKNET ? LISTEN_LOOPBACK : LISTEN_ANY;
	}
bad:
	return err_set(err, EINVAL, "tcp: wants PORT or ADDRESS:PORT with a number for each, "
		       "such as tcp:127.0.0.1:8080, not %.60s", text);
}

static int address_parse(const char *text, struct address *ret, struct err *err)
{
	if (!strncmp(text, "unix:", 5))
		return local_parse(text + 5, ret, err);
	if (!strncmp(text, "tcp:", 4))
		return internet_parse(text + 4, ret, err);
	return err_set(err, EINVAL, "what is listened at is unix:PATH or tcp:ADDRESS:PORT, not "
		       "%.60s", text);
}

int listener_parse(const char *text, uint16_t *ret_port, struct err *err)
{
	struct address a;
	int kind = address_parse(text, &a, err);

	if (kind >= 0)
		*ret_port = kind == LISTEN_UNIX ? 0 : ntohs(a.to.any.sa_family == AF_INET6 ?
			    a.to.v6.sin6_port : a.to.v4.sin_port);
	return kind;
}

/* ---- Records ---- */

static void record_name(char *name, size_t size, uint64_t number)
{
	snprintf(name, size, RECORD_PREFIX "%" PRIu64, number);
}

static void record_drop(struct listener *l)
{
	char name[48];

	if (!l->record)
		return;
	record_name(name, sizeof(name), l->record);
	unlinkat(l->notes, name, 0);
	l->record = 0;
}

/* A record that cannot be written is a loss for the next daemon, not for this one. */
static void record_make(struct listener *l, const char *path, uint64_t number)
{
	FD_CLEANUP int fd = -1;
	char name[48], text[FORWARD_TEXT_MAX + 64];
	int n;

	record_name(name, sizeof(name), number);
	fd = l->notes < 0 ? -1 : openat(l->notes, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
					0600);
	if (fd < 0)
		return;
	n = snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 " %s", (uint64_t)l->dev,
		     (uint64_t)l->ino, path);
	l->record = number;
	if (fd_write_all(fd, text, (size_t)n) < 0)
		record_drop(l);
}

static bool is_socket(const char *path, uint64_t dev, uint64_t ino)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_dev == dev &&
	       st.st_ino == ino;
}

/* An inode's number may be somebody else's by now: but then he listens, or has no use of it. */
static bool is_deserted(const char *path)
{
	FD_CLEANUP int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct err ignored = ERR_INIT;
	struct address a;

	return fd >= 0 && local_parse(path, &a, &ignored) >= 0 &&
	       connect(fd, &a.to.any, a.len) < 0 && errno == ECONNREFUSED;
}

/* Returns 1 when there was a socket and it is removed, else 0. */
static int leftover_remove(int dir, const char *name)
{
	FD_CLEANUP int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char text[FORWARD_TEXT_MAX + 64];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	uint64_t dev, ino;
	int at = 0;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	if (sscanf(text, "%" SCNu64 " %" SCNu64 " %n", &dev, &ino, &at) != 2 || at == 0 ||
	    !is_socket(text + at, dev, ino) || !is_deserted(text + at))
		return 0;
	return unlink(text + at) == 0;
}

int listener_clean(int notes)
{
	DIR *d = notes < 0 ? NULL : fd_directory(notes);
	const struct dirent *entry;
	int count = 0;

	while (d && (entry = readdir(d))) {
		if (strncmp(entry->d_name, RECORD_PREFIX, strlen(RECORD_PREFIX)))
			continue;
		count += leftover_remove(dirfd(d), entry->d_name);
		unlinkat(dirfd(d), entry->d_name, 0);
	}
	if (d)
		closedir(d);
	return count;
}

/* ---- Opening and closing ---- */

/* The name that came to be: port 0 was any. */
static void address_name(int fd, const struct address *asked, const char *text, char *ret)
{
	struct address a = { .len = sizeof(a.to) };
	char host[INET6_ADDRSTRLEN];

	if (asked->to.any.sa_family == AF_UNIX || getsockname(fd, &a.to.any, &a.len) < 0) {
		snprintf(ret, FORWARD_TEXT_MAX, "%s", text);
	} else if (a.to.any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a.to.v6.sin6_addr, host, sizeof(host));
		snprintf(ret, FORWARD_TEXT_MAX, "tcp:[%s]:%u", host, ntohs(a.to.v6.sin6_port));
	} else {
		inet_ntop(AF_INET, &a.to.v4.sin_addr, host, sizeof(host));
		snprintf(ret, FORWARD_TEXT_MAX, "tcp:%s:%u", host, ntohs(a.to.v4.sin_port));
	}
}

/* bind(2) makes a new name or fails: nothing is replaced. */
static int address_bind(int fd, const struct address *a, const char *text, struct err *err)
{
	static const int on = 1;
	bool local = a->to.any.sa_family == AF_UNIX;
	mode_t mask;
	int r;

	if (!local)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	mask = umask(0177);
	r = bind(fd, &a->to.any, a->len) < 0 ? -errno : 0;
	umask(mask);
	if (r == -EADDRINUSE)
		return err_set(err, EEXIST, local ? "there is something at %s already" :
			       "something listens at %s already", text);
	return r < 0 ? err_set_errno(err, r, "cannot listen at %s", text) : 0;
}

int listener_open(struct listener *l, const char *text, int notes, uint64_t record,
		  struct err *err)
{
	struct address a;
	int kind = address_parse(text, &a, err), r;
	struct stat st;

	*l = (struct listener){ .fd = -1, .notes = notes };
	if (kind < 0)
		return kind;
	l->fd = socket(a.to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return err_set_errno(err, errno, "cannot make a socket");
	r = address_bind(l->fd, &a, text, err);
	if (r == 0) {
		address_name(l->fd, &a, text, l->address);
		if (kind == LISTEN_UNIX && lstat(a.to.local.sun_path, &st) == 0) {
			l->dev = st.st_dev;
			l->ino = st.st_ino;
			record_make(l, a.to.local.sun_path, record);
		}
		if (listen(l->fd, BACKLOG) < 0)
			r = err_set_errno(err, errno, "cannot listen at %s", text);
	}
	if (r < 0)
		listener_close(l);
	return r;
}

void listener_close(struct listener *l)
{
	const char *path = l->address + strlen("unix:");

	if (l->ino && is_socket(path, l->dev, l->ino))
		unlink(path);
	record_drop(l);
	l->fd = fd_close(l->fd);
}
