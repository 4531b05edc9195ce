/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptor helpers; see fd.h. */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
	return -1;
}

int fd_take(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

int fd_pread_exact(int fd, void *data, size_t len, uint64_t offset)
{
	uint8_t *at = data;

	while (len > 0) {
		ssize_t n = pread(fd, at, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		at += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int fd_write_all(int fd, const void *data, size_t len)
{
	const uint8_t *at = data;

	while (len > 0) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

ssize_t fd_read_text(int dir, const char *path, char *text, size_t size)
{
	FD_CLEANUP int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (n < 0)
		return -errno;
	text[n] = '\0';
	return n;
}

DIR *fd_directory(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);

	if (!entries)
		fd_close(fd);
	return entries;
}

int fd_disk_bytes(int fd, uint64_t *ret_bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret_bytes = (uint64_t)st.st_blocks * 512;	/* whatever the filesystem's unit is */
	return 0;
}

int fd_disk_bytes_known(int fd, uint64_t *ret_bytes)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BLOCKS, &st) < 0)
		return -errno;
	*ret_bytes = st.stx_blocks * 512;
	return 0;
}

int fd_open_file(const char *path, uint64_t *ret_size)
{
	/* O_NONBLOCK: opening a FIFO by mistake must not hang. */
	FD_CLEANUP int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode))
		return -ENODEV;
	*ret_size = (uint64_t)st.st_size;
	return fd_take(&fd);
}

union fd_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * FD_SEND_MAX)];
};

ssize_t fd_send(int socket, const void *data, size_t len, const int *fds, unsigned int count)
{
	struct iovec iov = { (void *)(uintptr_t)data, len };
	union fd_control control = { .bytes = { 0 } };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c = &control.align;
	ssize_t n;

	if (count > FD_SEND_MAX)
		return -EINVAL;
	if (count > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * count);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
	}
	n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

ssize_t fd_receive(int socket, void *data, size_t len, int fds[FD_SEND_MAX],
		   unsigned int *ret_count)
{
	struct iovec iov = { data, len };
	union fd_control control;
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };
	ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	unsigned int count = 0;

	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		size_t more = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(fds + count, CMSG_DATA(c), more * sizeof(int));
		count += (unsigned int)more;
	}
	if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		while (count > 0)
			fd_close(fds[--count]);
		return -EMSGSIZE;
	}
	*ret_count = count;
	return n;
}
