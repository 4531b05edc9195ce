/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File descriptors: owned by one variable, closed once. FD_CLEANUP closes a local one at the
 * end of its scope; fd_take() moves it out.
 */
#ifndef CASEMATE_BASE_FD_H
#define CASEMATE_BASE_FD_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Closes fd if it is one, keeps errno. Returns -1, to be assigned to the variable. */
int fd_close(int fd);

/* Returns *fd and sets it to -1. */
int fd_take(int *fd);

static inline void fd_close_ptr(int *fd)
{
	*fd = fd_close(*fd);
}
#define FD_CLEANUP __attribute__((cleanup(fd_close_ptr)))

/* Reads exactly len bytes at offset. Returns 0, -ENODATA where the file ends first, -errno. */
int fd_pread_exact(int fd, void *data, size_t len, uint64_t offset);

/* Writes all of it, waiting where it must. Returns 0 or -errno. */
int fd_write_all(int fd, const void *data, size_t len);

/* Sends bytes with up to FD_SEND_MAX descriptors over a Unix socket; does not wait. Returns how
 * many bytes went, which is all of them for a few, or -errno. */
#define FD_SEND_MAX	40u
ssize_t fd_send(int socket, const void *data, size_t len, const int *fds, unsigned int count);

/* Receives one message (SOCK_SEQPACKET) with up to FD_SEND_MAX descriptors, close-on-exec and
 * the caller's; does not wait. Returns its length, 0 at the end, or -errno: -EMSGSIZE for one
 * that is longer, brings more, or whose descriptors there was no room for. */
ssize_t fd_receive(int socket, void *data, size_t len, int fds[FD_SEND_MAX],
		   unsigned int *ret_count);

/* Text of a small file, in one read: what there is more is not seen. Returns its length, or
 * -errno; text[size - 1] at most is the zero behind it. */
ssize_t fd_read_text(int dir, const char *path, char *text, size_t size);

/* The entries of a directory that the caller goes on having; NULL and errno. */
DIR *fd_directory(int dir);

/* Bytes that a file takes of its disk; holes take none. Returns 0 or -errno. */
int fd_disk_bytes(int fd, uint64_t *ret_bytes);
/* Likewise, as far as this host knows: a server of its file system is not asked. */
int fd_disk_bytes_known(int fd, uint64_t *ret_bytes);

/* Opens a regular file for reading and says its size. Returns fd or -errno (-EISDIR, -ENODEV
 * where it is no regular file). */
int fd_open_file(const char *path, uint64_t *ret_size);

#endif
