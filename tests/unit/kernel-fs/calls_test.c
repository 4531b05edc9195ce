/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls of fs/ whose rules are not a matter of names and contents: descriptors, locks,
 * seals, watches, mounts, limits, pipes. Expected values are those of the Linux man pages.
 */
#include <stdio.h>
#include <stdlib.h>

#include "support.h"
#include "tests/unit/cunit_run.h"

#include <asm-generic/resource.h>
#include <asm/ioctls.h>
#include <linux/fcntl.h>
#include <linux/inotify.h>
#include <linux/openat2.h>

#define EQ(a, b) \
	do { \
		long _x = (long)(a), _y = (long)(b); \
		if (_x != _y) \
			printf("\n  %s:%d: %s: %ld, not %ld", __func__, __LINE__, #a, _x, _y); \
		CU_ASSERT(_x == _y); \
	} while (0)

long sys_eventfd2(unsigned count, int flags);

static unsigned make(const char *path)
{
	return (unsigned)sys_open(path, KO_RDWR | KO_CREAT, 0644);
}

static void start(void)
{
	EQ(support_init(NULL, 0), 0);
}

/* ---- descriptors ---- */

static void test_descriptors(void)
{
	int pair[2];
	unsigned fd;

	start();
	fd = make("/f");
	EQ(fd, 0);
	/* open() adds O_LARGEFILE, and memfd_create; what makes other descriptors does not. */
	EQ(sys_fcntl(fd, F_GETFL, 0) & KO_LARGEFILE, KO_LARGEFILE);
	EQ(sys_memfd_create("m", 0), 1);
	EQ(sys_fcntl(1, F_GETFL, 0), KO_RDWR | KO_LARGEFILE);
	EQ(sys_pipe2(pair, KO_NONBLOCK), 0);
	EQ(sys_fcntl((unsigned)pair[0], F_GETFL, 0), KO_RDONLY | KO_NONBLOCK);
	EQ(sys_fcntl((unsigned)pair[1], F_GETFL, 0), KO_WRONLY | KO_NONBLOCK);
	EQ(sys_eventfd2(0, 0), 4);
	EQ(sys_fcntl(4, F_GETFL, 0), KO_RDWR);
	/* No filesystem, but operations: mmap looks whether it has pages. */
	CU_ASSERT(files_file(process.files, 4)->inode->ops != NULL &&
		  files_file(process.files, 4)->inode->ops->get_page == NULL);
	EQ(sys_close_range(1, 4, 0), 0);
	EQ(sys_dup(fd), 1);
	EQ(sys_dup2(fd, 63), 63);
	EQ(sys_dup2(fd, 64), 64);
	EQ(sys_dup2(fd, 1023), 1023);
	EQ(sys_dup2(fd, 1024), -EBADF);
	EQ(sys_dup2(fd, fd), fd);
	EQ(sys_dup2(9, 9), -EBADF);
	EQ(sys_dup3(fd, fd, 0), -EINVAL);
	EQ(sys_dup3(fd, 5, KO_APPEND), -EINVAL);
	EQ(sys_dup3(fd, 5, KO_CLOEXEC), 5);
	EQ(sys_fcntl(5, F_GETFD, 0), 1);
	EQ(sys_fcntl(5, F_SETFD, 0), 0);
	EQ(sys_fcntl(5, F_GETFD, 0), 0);
	EQ(sys_fcntl(fd, F_DUPFD, 63), 65);
	EQ(sys_fcntl(fd, F_DUPFD_CLOEXEC, 3), 3);
	EQ(sys_fcntl(3, F_GETFD, 0), 1);
	EQ(sys_fcntl(fd, F_DUPFD, 1024), -EINVAL);
	EQ(sys_close_range(60, 64, 4), 0);
	EQ(sys_fcntl(63, F_GETFD, 0), 1);
	EQ(sys_close_range(2, UINT32_MAX, 0), 0);
	EQ(sys_close(3), -EBADF);
	EQ(sys_close_range(5, 4, 0), -EINVAL);
	EQ(sys_close_range(0, 1, 8), -EINVAL);
	EQ(sys_dup(fd), 2);
	process.rlim[RLIMIT_NOFILE].cur = 3;
	EQ(sys_dup(fd), -EMFILE);
	EQ(sys_open("/g", KO_CREAT, 0600), -EMFILE);
	EQ(sys_access("/g", 0), -ENOENT);
	EQ(sys_close(1), 0);
	EQ(sys_open("/f", 0, 0), 1);
	EQ(sys_ioctl(1, FIOCLEX, 0), 0);
	files_close_on_exec(process.files);
	EQ(sys_fcntl(1, F_GETFD, 0), -EBADF);
	EQ(sys_fcntl(2, F_GETFD, 0), 0);
	EQ(sys_close((unsigned)-1), -EBADF);
}

static void test_shared_position(void)
{
	char buf[8];
	unsigned fd, twin;

	start();
	fd = make("/f");
	twin = (unsigned)sys_dup(fd);
	EQ(sys_write(fd, "abcdef", 6), 6);
	EQ(sys_lseek(twin, 0, 1), 6);
	EQ(sys_lseek(twin, -2, 2), 4);
	EQ(sys_read(fd, buf, 8), 2);
	EQ(sys_lseek(fd, -7, 2), -EINVAL);
	EQ(sys_lseek(fd, 0, 9), -EINVAL);
	EQ(sys_fcntl(fd, F_SETFL, KO_APPEND), 0);
	EQ(sys_fcntl(twin, F_GETFL, 0), KO_RDWR | KO_APPEND | KO_LARGEFILE);
	EQ(sys_pwrite64(twin, "Z", 1, 0), 1);
	EQ(sys_pread64(fd, buf, 8, 5), 2);
	EQ(buf[1], 'Z');
	EQ(sys_pread64(fd, buf, 8, -1), -EINVAL);
	EQ(sys_lseek(fd, 0, 2), 7);
	EQ(sys_read(fd, (void *)1, 8), 0);
	EQ(sys_pread64(fd, (void *)1, 8, 0), -EFAULT);
	EQ(sys_write(fd, (void *)1, 8), -EFAULT);
}

static void test_limits(void)
{
	unsigned fd;

	start();
	fd = make("/f");
	process.rlim[RLIMIT_FSIZE].cur = 10;
	EQ(sys_write(fd, "0123456789abcdef", 16), 10);
	last_signal = 0;
	EQ(sys_write(fd, "x", 1), -EFBIG);
	EQ(last_signal, KSIGXFSZ);
	last_signal = 0;
	EQ(sys_ftruncate(fd, 11), -EFBIG);
	EQ(last_signal, KSIGXFSZ);
	EQ(sys_fallocate(fd, 0, 0, 11), -EFBIG);
	EQ(sys_ftruncate(fd, 9), 0);
	EQ(sys_fallocate(fd, 0, 0, 0), -EINVAL);
	EQ(sys_fallocate(fd, 2, 0, 5), -EOPNOTSUPP);
	EQ(sys_fallocate(fd, 0, INT64_MAX, 5), -EFBIG);
}

static void test_busy_text(void)
{
	struct file *f;
	unsigned fd;

	start();
	fd = make("/f");
	f = fd_get((int)fd);
	EQ(f->inode->writers, 1);
	sys_close(fd);
	EQ(f->inode->writers, 1);
	f->inode->exec_count = 1;
	EQ(sys_open("/f", KO_WRONLY, 0), -ETXTBSY);
	EQ(sys_open("/f", KO_TRUNC, 0), -ETXTBSY);
	EQ(sys_truncate("/f", 1), -ETXTBSY);
	EQ(f->inode->writers, 1);
	f->inode->exec_count = 0;
	file_put(f);
	EQ(sys_open("/f", KO_WRONLY, 0), 0);
}

/* ---- locks ---- */

static struct files *other;

static void swap_process(void)
{
	struct files *mine = process.files;

	process.files = other;
	other = mine;
	process.pid = process.pid == 1 ? 2 : 1;
}

static long lock(unsigned fd, int cmd, int type, int64_t start_at, int64_t len)
{
	struct flock fl = {.l_type = (short)type, .l_start = start_at, .l_len = len};

	return sys_fcntl(fd, (unsigned)cmd, (unsigned long)&fl);
}

/* What GETLK says: "free", or "type start len pid". */
static const char *getlk(unsigned fd, int cmd, int64_t start_at, int64_t len)
{
	struct flock fl = {.l_type = F_WRLCK, .l_start = start_at, .l_len = len};
	static char text[80];

	if (sys_fcntl(fd, (unsigned)cmd, (unsigned long)&fl) != 0)
		return "error";
	if (fl.l_type == F_UNLCK)
		return "free";
	snprintf(text, sizeof(text), "%c %ld %ld %d", fl.l_type == F_WRLCK ? 'w' : 'r',
		 (long)fl.l_start, (long)fl.l_len, fl.l_pid);
	return text;
}
#define GETLK(fd, cmd, s, l, want) CU_ASSERT_STRING_EQUAL(getlk(fd, cmd, s, l), want)

static void test_record_locks(void)
{
	unsigned fd, again;

	start();
	fd = make("/f");
	other = files_copy(process.files);
	EQ(lock(fd, F_SETLK, F_WRLCK, 10, 10), 0);
	EQ(lock(fd, F_SETLK, F_WRLCK, 20, 10), 0);
	swap_process();
	GETLK(fd, F_GETLK, 0, 0, "w 10 20 1");
	EQ(lock(fd, F_SETLK, F_RDLCK, 15, 1), -EAGAIN);
	EQ(lock(fd, F_SETLK, F_RDLCK, 30, 0), 0);
	GETLK(fd, F_GETLK, 30, 0, "free");
	swap_process();
	GETLK(fd, F_GETLK, 40, 1, "r 30 0 2");
	/* A hole, then another type in the middle. */
	EQ(lock(fd, F_SETLK, F_UNLCK, 14, 2), 0);
	EQ(lock(fd, F_SETLK, F_RDLCK, 22, 3), 0);
	swap_process();
	GETLK(fd, F_GETLK, 10, 4, "w 10 4 1");
	GETLK(fd, F_GETLK, 14, 2, "free");
	GETLK(fd, F_GETLK, 16, 1, "w 16 6 1");
	GETLK(fd, F_GETLK, 22, 1, "r 22 3 1");
	GETLK(fd, F_GETLK, 25, 5, "w 25 5 1");
	EQ(lock(fd, F_SETLKW, F_WRLCK, 25, 5), -ERESTARTSYS);
	swap_process();
	/* Any close drops them all. */
	again = (unsigned)sys_open("/f", 0, 0);
	sys_close(again);
	swap_process();
	GETLK(fd, F_GETLK, 0, 30, "free");
	files_put(process.files);
	swap_process();
	/* Arguments. */
	EQ(lock(fd, F_SETLK, F_WRLCK, -1, 0), -EINVAL);
	EQ(lock(fd, F_SETLK, 7, 0, 0), -EINVAL);
	EQ(lock(fd, F_GETLK, F_UNLCK, 0, 0), -EINVAL);
	EQ(lock(fd, F_SETLK, F_WRLCK, 5, -5), 0);
	EQ(lock(fd, F_SETLK, F_WRLCK, 5, -6), -EINVAL);
	EQ(lock(fd, F_SETLK, F_WRLCK, INT64_MAX, 2), -EOVERFLOW);
	again = (unsigned)sys_open("/f", KO_RDONLY, 0);
	EQ(lock(again, F_SETLK, F_WRLCK, 0, 0), -EBADF);
	EQ(sys_fcntl(fd, F_SETLK, 1), -EFAULT);
}

static void test_ofd_locks_and_flock(void)
{
	unsigned a, b, c;

	start();
	a = make("/f");
	b = make("/f");
	c = (unsigned)sys_dup(a);
	EQ(lock(a, F_OFD_SETLK, F_WRLCK, 0, 0), 0);
	EQ(lock(b, F_OFD_SETLK, F_WRLCK, 0, 0), -EAGAIN);
	EQ(lock(b, F_SETLK, F_WRLCK, 0, 0), -EAGAIN);
	EQ(lock(c, F_OFD_SETLK, F_RDLCK, 0, 10), 0);
	GETLK(b, F_OFD_GETLK, 0, 1, "r 0 10 -1");
	sys_close(a);
	EQ(lock(b, F_OFD_SETLK, F_WRLCK, 0, 0), -EAGAIN);
	sys_close(c);
	EQ(lock(b, F_OFD_SETLK, F_WRLCK, 0, 0), 0);
	a = make("/f");
	EQ(sys_flock(a, 2), 0);
	EQ(sys_flock(b, 1 | 4), -EAGAIN);
	EQ(sys_flock(a, 1), 0);
	EQ(sys_flock(b, 1 | 4), 0);
	EQ(sys_flock(b, 2 | 4), -EAGAIN);
	EQ(sys_flock(a, 8), 0);
	EQ(sys_flock(b, 2 | 4), 0);
	EQ(sys_flock(b, 3), -EINVAL);
	sys_close(b);
	EQ(sys_flock(a, 2 | 4), 0);
}

/* ---- memfd ---- */

static void test_memfd(void)
{
	char path[64], buf[4];
	struct dentry *d;
	unsigned fd;

	start();
	fd = (unsigned)sys_memfd_create("name", 1 | 2);
	EQ(fd, 0);
	EQ(sys_fcntl(fd, F_GETFD, 0), 1);
	d = fd_get((int)fd)->dentry;
	CU_ASSERT_STRING_EQUAL(dentry_path(d, NULL, path, sizeof(path)), "/memfd:name (deleted)");
	EQ(sys_write(fd, "abcd", 4), 4);
	EQ(sys_fcntl(fd, F_GET_SEALS, 0), 0);
	EQ(sys_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	EQ(sys_ftruncate(fd, 3), -EPERM);
	EQ(sys_ftruncate(fd, 5), 0);
	EQ(sys_fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
	EQ(sys_ftruncate(fd, 6), -EPERM);
	EQ(sys_pwrite64(fd, "0123456", 7, 0), -EPERM);
	EQ(sys_pwrite64(fd, "01", 2, 3), 2);
	EQ(sys_fallocate(fd, 0, 0, 100), -EPERM);
	EQ(sys_fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL), 0);
	EQ(sys_pwrite64(fd, "x", 1, 0), -EPERM);
	EQ(sys_pread64(fd, buf, 4, 0), 4);
	EQ(sys_fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -EPERM);
	EQ(sys_fcntl(fd, F_ADD_SEALS, 0x100), -EINVAL);
	EQ(sys_fcntl(make("/f"), F_GET_SEALS, 0), -EINVAL);
	fd = (unsigned)sys_memfd_create("", 0);
	EQ(sys_fcntl(fd, F_GET_SEALS, 0), F_SEAL_SEAL);
	EQ(sys_memfd_create("x", 0x80), -EINVAL);
	EQ(sys_memfd_create((char *)1, 0), -EFAULT);
}

/* ---- inotify ---- */

static const char *events(unsigned fd)
{
	static char text[2000];
	static uint8_t buf[4096];
	long n = sys_read(fd, buf, sizeof(buf));
	size_t len = 0;

	text[0] = 0;
	for (long off = 0; off < n;) {
		struct inotify_event e;

		memcpy(&e, buf + off, sizeof(e));
		len += (size_t)sprintf(text + len, "%d:%x:%s%s ", e.wd, e.mask & 0xfffffff,
				       e.len != 0 ? (char *)buf + off + sizeof(e) : "",
				       (e.mask & IN_ISDIR) != 0 ? "/" : "");
		off += (long)(sizeof(e) + e.len);
	}
	return text;
}
#define EVENTS(fd, want) CU_ASSERT_STRING_EQUAL(events(fd), want)

static void test_inotify(void)
{
	unsigned in, fd;

	start();
	sys_mkdir("/d", 0755);
	sys_mkdir("/e", 0755);
	in = (unsigned)sys_inotify_init1(KO_NONBLOCK);
	EQ(sys_read(in, NULL, 100), -EAGAIN);
	EQ(sys_inotify_add_watch((int)in, "/d", IN_ALL_EVENTS), 1);
	EQ(sys_inotify_add_watch((int)in, "/e", IN_ALL_EVENTS), 2);
	EQ(sys_inotify_add_watch((int)in, "/none", IN_ALL_EVENTS), -ENOENT);
	EQ(sys_inotify_add_watch((int)in, "/d", 0), -EINVAL);
	EQ(sys_inotify_add_watch((int)in, "/d", IN_CREATE | IN_MASK_CREATE), -EEXIST);
	fd = make("/d/f");
	sys_write(fd, "x", 1);
	sys_write(fd, "x", 1);
	sys_close(fd);
	EVENTS(in, "1:100:f 1:20:f 1:2:f 1:8:f ");
	sys_mkdir("/d/s", 0755);
	sys_rename("/d/f", "/e/g");
	EVENTS(in, "1:100:s/ 1:40:f 2:80:g ");
	EQ(sys_inotify_add_watch((int)in, "/e/g", IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF), 3);
	sys_chmod("/e/g", 0600);
	EVENTS(in, "2:4:g 3:4: ");
	sys_rename("/e/g", "/e/h");
	EVENTS(in, "2:40:g 2:80:h 3:800: ");
	fd = (unsigned)sys_open("/e/h", 0, 0);
	sys_unlink("/e/h");
	EVENTS(in, "2:20:h 3:4: 2:200:h ");
	sys_close(fd);
	EVENTS(in, "2:10:h 3:400: 3:8000: ");
	EQ(sys_inotify_rm_watch((int)in, 3), -EINVAL);
	EQ(sys_inotify_rm_watch((int)in, 2), 0);
	EVENTS(in, "2:8000: ");
	sys_rmdir("/d/s");
	EVENTS(in, "1:200:s/ ");
	sys_rmdir("/d");
	EVENTS(in, "1:400: 1:8000: ");
	EQ(inotify_watch_count, 0);
	/* One event, then no more; overflow. */
	EQ(sys_inotify_add_watch((int)in, "/e", IN_CREATE | IN_ONESHOT | IN_ONLYDIR), 4);
	sys_close(make("/e/1"));
	sys_close(make("/e/2"));
	EVENTS(in, "4:100:1 4:8000: ");
	EQ(sys_inotify_add_watch((int)in, "/e/1", IN_CREATE | IN_ONLYDIR), -ENOTDIR);
	EQ(sys_inotify_add_watch((int)in, "/e", IN_OPEN | IN_CLOSE), 5);
	for (unsigned k = 0; k < 9000; k++)
		sys_close(make("/e/1"));
	{
		static uint8_t buf[1 << 20];
		struct inotify_event e;
		int pending;

		EQ(sys_ioctl(in, FIONREAD, (unsigned long)&pending), 0);
		EQ(pending, 16384 * 32 + 16);
		EQ(sys_read(in, buf, 20), -EINVAL);
		EQ(sys_read(in, buf, sizeof(buf)), pending);
		memcpy(&e, buf + 16384 * 32, sizeof(e));
		EQ(e.mask, IN_Q_OVERFLOW);
		EQ(e.wd, -1);
	}
	sys_close(in);
	EQ(inotify_watch_count, 0);
}

/* The order that tests/conformance/inotify.c has from Linux. */
static void test_inotify_order(void)
{
	unsigned in, fd;

	start();
	sys_mkdir("/d", 0755);
	sys_mkdir("/d/s", 0755);
	in = (unsigned)sys_inotify_init1(KO_NONBLOCK);
	EQ(sys_inotify_add_watch((int)in, "/d", IN_ALL_EVENTS & ~(IN_OPEN | IN_CLOSE)), 1);
	EQ(sys_inotify_add_watch((int)in, "/d/s", IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB), 2);
	EQ(sys_inotify_add_watch((int)in, "/d", IN_CREATE | 0x40000), -EINVAL);
	sys_rmdir("/d/s");
	EVENTS(in, "2:400: 2:8000: 1:200:s/ ");
	sys_mkdir("/d/a", 0755);
	sys_mkdir("/d/b", 0755);
	EQ(sys_inotify_add_watch((int)in, "/d/a", IN_MOVE_SELF | IN_DELETE_SELF), 3);
	EQ(sys_inotify_add_watch((int)in, "/d/b", IN_ATTRIB | IN_DELETE_SELF), 4);
	events(in);
	sys_rename("/d/a", "/d/b");
	EVENTS(in, "1:40:a/ 1:80:b/ 4:4:/ 3:800: 4:400: 4:8000: ");
	fd = make("/d/f");
	EQ(sys_inotify_add_watch((int)in, "/d/f", IN_MODIFY | IN_ATTRIB | IN_EXCL_UNLINK), 5);
	sys_unlink("/d/f");
	events(in);
	sys_write(fd, "x", 1);
	EVENTS(in, "1:2:f ");
	sys_ftruncate(fd, 0);
	EVENTS(in, "1:2:f 5:2: ");
	sys_close(fd);
	EVENTS(in, "5:8000: ");
	/* Cookies do not make a difference. */
	EQ(sys_inotify_add_watch((int)in, "/d", IN_MOVED_FROM), 1);
	for (unsigned k = 0; k < 3; k++) {
		sys_close(make("/d/f"));
		sys_rename("/d/f", "/g");
	}
	EVENTS(in, "1:40:f ");
	sys_close(in);
	EQ(inotify_watch_count, 0);
}

static void test_inotify_unmount(void)
{
	unsigned in;

	start();
	sys_mkdir("/t", 0755);
	EQ(sys_mount("x", "/t", "tmpfs", 0, NULL), 0);
	sys_mkdir("/t/s", 0755);
	sys_close(make("/t/f"));
	in = (unsigned)sys_inotify_init1(KO_NONBLOCK);
	EQ(sys_inotify_add_watch((int)in, "/t", IN_CREATE), 1);
	EQ(sys_inotify_add_watch((int)in, "/t/s", IN_CREATE | IN_DELETE_SELF), 2);
	EQ(sys_inotify_add_watch((int)in, "/t/f", IN_MODIFY), 3);
	EQ(sys_umount2("/t", 0), 0);
	EVENTS(in, "3:2000: 3:8000: 2:2000:/ 2:8000: 1:2000:/ 1:8000: ");
	EQ(inotify_watch_count, 0);
	sys_close(in);
}

/* A queue that is full, for want of memory or otherwise, says so once, and goes on. */
static void test_inotify_overflow(void)
{
	unsigned in, n = 0, lost = 0;
	uint8_t buf[32];

	start();
	sys_mkdir("/e", 0755);
	sys_close(make("/e/1"));
	sys_close(make("/e/2"));
	in = (unsigned)sys_inotify_init1(KO_NONBLOCK);
	EQ(sys_inotify_add_watch((int)in, "/e", IN_OPEN), 1);
	for (unsigned k = 0; k < 16384 + 9; k++)
		sys_close((unsigned)sys_open(k % 2 ? "/e/1" : "/e/2", 0, 0));
	for (unsigned k = 0; k < 5; k++)
		EQ(sys_read(in, buf, sizeof(buf)), 32);
	for (unsigned k = 0; k < 9; k++)
		sys_close((unsigned)sys_open(k % 2 ? "/e/1" : "/e/2", 0, 0));
	while (sys_read(in, buf, sizeof(buf)) > 0) {
		struct inotify_event e;

		n++;
		memcpy(&e, buf, sizeof(e));
		EQ(e.mask, n == 16380 ? IN_Q_OVERFLOW : IN_OPEN);
	}
	EQ(n, 16384);
	sys_close((unsigned)sys_open("/e/1", 0, 0));
	EVENTS(in, "1:20:1 ");
	/* What finds no memory is not lost in silence either. */
	EQ(sys_inotify_add_watch((int)in, "/e", IN_ATTRIB), 1);
	for (n = 0; n < 9; n++) {
		bool failed;
		long r;

		fail_after = n;
		r = sys_chmod("/e/1", 0600);
		failed = fail_after < 0;
		fail_after = -1;
		if (r == 0 && !failed)
			break;
		EVENTS(in, r != 0 ? "" : "-1:4000: ");
		lost += r == 0;
	}
	EVENTS(in, "1:4:1 ");
	EQ(lost, 1);
	sys_close(in);
}

/* ---- paths ---- */

static void test_openat2(void)
{
	struct open_how how = {.flags = KO_RDONLY};
	long root;

#define TRY(path, res) (how.resolve = (res), sys_openat2((int)root, path, &how, sizeof(how)))
	start();
	sys_mkdir("/jail", 0755);
	sys_mkdir("/jail/d", 0755);
	sys_close(make("/jail/f"));
	sys_close(make("/f"));
	sys_symlink("f", "/jail/good");
	sys_symlink("/f", "/jail/abs");
	sys_symlink("../f", "/jail/up");
	sys_symlink("../../jail/f", "/jail/d/in-root");
	root = sys_open("/jail", KO_PATH, 0);
	CU_ASSERT(TRY("f", RESOLVE_BENEATH) >= 0);
	CU_ASSERT(TRY("d/../f", RESOLVE_BENEATH) >= 0);
	CU_ASSERT(TRY("good", RESOLVE_BENEATH) >= 0);
	EQ(TRY("../f", RESOLVE_BENEATH), -EXDEV);
	EQ(TRY("/f", RESOLVE_BENEATH), -EXDEV);
	EQ(TRY("abs", RESOLVE_BENEATH), -EXDEV);
	EQ(TRY("up", RESOLVE_BENEATH), -EXDEV);
	EQ(TRY("d/../../f", RESOLVE_BENEATH), -EXDEV);
	CU_ASSERT(TRY("/f", RESOLVE_IN_ROOT) >= 0);
	CU_ASSERT(TRY("abs", RESOLVE_IN_ROOT) >= 0);
	CU_ASSERT(TRY("up", RESOLVE_IN_ROOT) >= 0);
	EQ(TRY("d/in-root", RESOLVE_IN_ROOT), -ENOENT);
	EQ(TRY("good", RESOLVE_NO_SYMLINKS), -ELOOP);
	CU_ASSERT(TRY("f", RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV) >= 0);
	EQ(TRY("f", 0x100), -EINVAL);
	EQ(TRY("f", RESOLVE_BENEATH | RESOLVE_IN_ROOT), -EINVAL);
	how.resolve = 0;
	how.mode = 0600;
	EQ(sys_openat2((int)root, "f", &how, sizeof(how)), -EINVAL);
	how.mode = 0;
	how.flags = 1ULL << 40;
	EQ(sys_openat2((int)root, "f", &how, sizeof(how)), -EINVAL);
	EQ(sys_openat2((int)root, "f", &how, 8), -EINVAL);
#undef TRY
}

static void test_tmpfile(void)
{
	char path[64];
	struct kstat st;
	long fd;

	start();
	sys_mkdir("/d", 0755);
	fd = sys_open("/d", KO_TMPFILE | KO_RDWR, 0600);
	CU_ASSERT(fd >= 0);
	EQ(sys_write((unsigned)fd, "text", 4), 4);
	EQ(sys_fstat((unsigned)fd, &st), 0);
	EQ(st.nlink, 0);
	sprintf(path, "/d/#%lu (deleted)", st.ino);
	{
		char buf[64];
		struct file *f = fd_get((int)fd);

		CU_ASSERT_STRING_EQUAL(dentry_path(f->dentry, NULL, buf, 64), path);
		file_put(f);
	}
	EQ(sys_linkat((int)fd, "", KAT_FDCWD, "/d/named", KAT_EMPTY_PATH), 0);
	EQ(sys_newfstatat(KAT_FDCWD, "/d/named", &st, 0), 0);
	EQ(st.nlink, 1);
	EQ(st.size, 4);
	sys_unlink("/d/named");
	EQ(sys_linkat((int)fd, "", KAT_FDCWD, "/d/named", KAT_EMPTY_PATH), -ENOENT);
	sys_close((unsigned)fd);
	fd = sys_open("/d", KO_TMPFILE | KO_RDWR | KO_EXCL, 0600);
	EQ(sys_linkat((int)fd, "", KAT_FDCWD, "/d/named", KAT_EMPTY_PATH), -ENOENT);
	EQ(sys_open("/d", KO_TMPFILE, 0600), -EINVAL);
	EQ(sys_open("/d/none", KO_TMPFILE | KO_RDWR, 0600), -ENOENT);
}

static void test_cwd(void)
{
	char buf[100];

	start();
	sys_mkdir("/a", 0755);
	sys_mkdir("/a/b", 0755);
	sys_chdir("/a/b");
	EQ(sys_getcwd(buf, sizeof(buf)), 5);
	EQ(sys_getcwd(buf, 4), -ERANGE);
	EQ(sys_rename("/a", "/renamed"), 0);
	sys_getcwd(buf, sizeof(buf));
	CU_ASSERT_STRING_EQUAL(buf, "/renamed/b");
	EQ(sys_rmdir("/renamed/b"), 0);
	EQ(sys_getcwd(buf, sizeof(buf)), -ENOENT);
	EQ(sys_open("f", KO_CREAT | KO_RDWR, 0600), -ENOENT);
	EQ(sys_mkdir("x", 0755), -ENOENT);
	EQ(sys_chdir(".."), 0);
	sys_mkdir("/jail", 0755);
	EQ(sys_chroot("/jail"), 0);
	sys_getcwd(buf, sizeof(buf));
	CU_ASSERT_STRING_EQUAL(buf, "(unreachable)/renamed");
	EQ(sys_chdir("/../.."), 0);
	sys_getcwd(buf, sizeof(buf));
	CU_ASSERT_STRING_EQUAL(buf, "/");
}

static void test_mounts(void)
{
	struct strbuf text = {0};
	struct kstat st, below;
	unsigned fd;

	start();
	sys_mkdir("/t", 0755);
	sys_mkdir("/t/hidden", 0755);
	EQ(sys_newfstatat(KAT_FDCWD, "/t", &below, 0), 0);
	EQ(sys_mount("x", "/t", "tmpfs", 2, "size=1m,mode=1700"), 0);
	EQ(sys_newfstatat(KAT_FDCWD, "/t", &st, 0), 0);
	CU_ASSERT(st.dev != below.dev);
	EQ(st.mode, KS_IFDIR | 01700);
	EQ(sys_newfstatat(KAT_FDCWD, "/t/hidden", &st, 0), -ENOENT);
	EQ(sys_newfstatat(KAT_FDCWD, "/t/..", &st, 0), 0);
	EQ(st.dev, below.dev);
	EQ(sys_rmdir("/t"), -EBUSY);
	EQ(sys_rename("/t", "/u"), -EBUSY);
	fd = make("/t/f");
	EQ(sys_fallocate(fd, 0, 0, 1 << 20), 0);
	EQ(sys_fallocate(fd, 0, 1 << 20, 1), -ENOSPC);
	EQ(sys_pwrite64(fd, "x", 1, 1 << 20), -ENOSPC);
	EQ(sys_rename("/t/f", "/f"), -EXDEV);
	EQ(sys_link("/t/f", "/f"), -EXDEV);
	mounts_show(&text);
	CU_ASSERT_STRING_EQUAL(text.data, "root / rootfs rw 0 0\n"
					  "tmpfs /t tmpfs rw,nosuid 0 0\n");
	strbuf_done(&text);
	EQ(sys_umount2("/t", 0), -EBUSY);
	sys_close(fd);
	sys_mkdir("/t/d", 0755);
	sys_close(make("/t/d/f"));
	EQ(sys_umount2("/t/d", 0), -EINVAL);
	EQ(sys_umount2("/t", 0), 0);
	EQ(sys_newfstatat(KAT_FDCWD, "/t/hidden", &st, 0), 0);
	EQ(mem_stats.shmem_pages, 0);
	EQ(sys_mount("x", "/t", "ext4", 0, NULL), -ENODEV);
	EQ(sys_mount("x", "/t", "tmpfs", 0, "size=nonsense"), -EINVAL);
	EQ(sys_mount("x", "/none", "tmpfs", 0, NULL), -ENOENT);
	process.pid = 5;
	EQ(sys_mount("x", "/t", "tmpfs", 0, NULL), -EPERM);
	EQ(sys_umount2("/t", 0), -EPERM);
}

/* Names come and go while a directory is read: what stays is seen once. */
static void test_readdir(void)
{
	static uint8_t buf[4096], seen[3000];
	unsigned fd, extra = 0;
	char path[64], to[64];
	long n;

	start();
	sys_mkdir("/d", 0755);
	for (unsigned k = 0; k < 3000; k++) {
		sprintf(path, "/d/%u", k);
		sys_close(make(path));
	}
	fd = (unsigned)sys_open("/d", KO_DIRECTORY, 0);
	while ((n = sys_getdents64(fd, buf, 500)) > 0) {
		for (long off = 0; off < n;) {
			unsigned k;
			uint16_t reclen;

			memcpy(&reclen, buf + off + 16, 2);
			if (sscanf((char *)buf + off + 19, "%u", &k) == 1 && k < 3000) {
				seen[k]++;
				sprintf(path, "/d/%u", k);
				sprintf(to, "/d/%u-moved", k);
				if (k % 3 == 0)
					EQ(sys_unlink(path), 0);
				else if (k % 3 == 1)
					EQ(sys_rename(path, to), 0);
			}
			off += reclen;
		}
		sprintf(path, "/d/extra%u", extra++);
		sys_close(make(path));
	}
	EQ(n, 0);
	for (unsigned k = 0; k < 3000; k++)
		CU_ASSERT(seen[k] == 1);
	/* From the start again it shows what is new. */
	EQ(sys_lseek(fd, 0, 0), 0);
	for (n = 0, extra = 0; (n = sys_getdents64(fd, buf, sizeof(buf))) > 0;) {
		for (long off = 0; off < n;) {
			uint16_t reclen;

			memcpy(&reclen, buf + off + 16, 2);
			extra += strncmp((char *)buf + off + 19, "extra", 5) == 0;
			off += reclen;
		}
	}
	CU_ASSERT(extra > 50);
	EQ(sys_getdents64(fd, buf, 10), 0);
	EQ(sys_lseek(fd, 0, 0), 0);
	EQ(sys_getdents64(fd, buf, 10), -EINVAL);
	EQ(sys_getdents64(fd, (void *)1, 500), -EFAULT);
	EQ(sys_read(fd, buf, 10), -EISDIR);
	EQ(sys_getdents64(make("/f"), buf, 500), -ENOTDIR);
}

static void test_fchmodat2(void)
{
	struct kstat st;
	unsigned fd;

	start();
	fd = make("/f");
	EQ(sys_symlink("f", "/l"), 0);
	EQ(sys_fchmodat2(KAT_FDCWD, "/l", 0640, 0), 0);
	EQ(sys_newfstatat(KAT_FDCWD, "/f", &st, 0), 0);
	EQ(st.mode & 07777, 0640);
	EQ(sys_fchmodat2(KAT_FDCWD, "/l", 0600, KAT_SYMLINK_NOFOLLOW), -EOPNOTSUPP);
	EQ(sys_fchmodat2(KAT_FDCWD, "/f", 0600, KAT_SYMLINK_NOFOLLOW), 0);
	EQ(sys_fchmodat2((int)fd, "", 0604, 0), -ENOENT);
	EQ(sys_fchmodat2((int)fd, "", 0604, KAT_EMPTY_PATH), 0);
	EQ(sys_newfstatat(KAT_FDCWD, "/f", &st, 0), 0);
	EQ(st.mode & 07777, 0604);
	EQ(sys_fchmodat2(KAT_FDCWD, "/f", 0600, 1), -EINVAL);
}

static void test_times(void)
{
	int64_t ts[4] = {1000000000, 5, 0, (1l << 30) - 2};
	struct kstat a, b;

	start();
	sys_close(make("/f"));
	sys_newfstatat(KAT_FDCWD, "/f", &a, 0);
	EQ(sys_utimensat(KAT_FDCWD, "/f", ts, 0), 0);
	sys_newfstatat(KAT_FDCWD, "/f", &b, 0);
	EQ(b.times[0], 1000000000);
	EQ(b.times[1], 5);
	EQ(b.times[3], a.times[3]);
	CU_ASSERT(b.times[5] != a.times[5]);
	ts[3] = (1l << 30) - 1;
	EQ(sys_utimensat(KAT_FDCWD, "/f", ts, 0), 0);
	ts[0] = -2;
	ts[1] = 250;
	EQ(sys_utimensat(KAT_FDCWD, "/f", ts, 0), 0);
	sys_newfstatat(KAT_FDCWD, "/f", &b, 0);
	EQ(b.times[0], -2);
	EQ(b.times[1], 250);
	ts[1] = 1000000000;
	EQ(sys_utimensat(KAT_FDCWD, "/f", ts, 0), -EINVAL);
	EQ(sys_utimensat(KAT_FDCWD, "/f", NULL, 0x10), -EINVAL);
	support_user(7, 7);
	ts[1] = 0;
	EQ(sys_utimensat(KAT_FDCWD, "/f", ts, 0), -EPERM);
	EQ(sys_utimensat(KAT_FDCWD, "/f", NULL, 0), -EACCES);
	support_user(0, 0);
	sys_chmod("/f", 0666);
	support_user(7, 7);
	EQ(sys_utimensat(KAT_FDCWD, "/f", NULL, 0), 0);
	EQ(sys_chmod("/f", 0600), -EPERM);
	EQ(sys_chown("/f", 7, 7), -EPERM);
	EQ(sys_fchmodat2(KAT_FDCWD, "/f", 0600, 0), -EPERM);
	EQ(sys_setxattr("/f", "user.a", "1", 1, 0), 0);
	EQ(sys_setxattr("/f", "trusted.a", "1", 1, 0), -EPERM);
	EQ(sys_setxattr("/f", "nonsense", "1", 1, 0), -EOPNOTSUPP);
	EQ(sys_setxattr("/f", "system.posix_acl_access", "1", 1, 0), -EOPNOTSUPP);
	EQ(sys_setxattr("/f", "", "1", 1, 0), -ERANGE);
}

static void test_pipes(void)
{
	static char big[200000], back[200000];
	int fds[2];
	unsigned f, g;
	int64_t off = 0;

	start();
	f = make("/f");
	g = make("/g");
	for (size_t k = 0; k < sizeof(big); k++)
		big[k] = (char)(k * 7);
	EQ(sys_write(f, big, sizeof(big)), sizeof(big));
	EQ(sys_pipe2(fds, 0), 0);
	EQ(sys_lseek((unsigned)fds[0], 0, 0), -ESPIPE);
	EQ(sys_pread64((unsigned)fds[0], back, 1, 0), -ESPIPE);
	EQ(sys_splice((int)f, &off, fds[1], NULL, sizeof(big), 0), 65536);
	EQ(off, 65536);
	EQ(sys_splice((int)f, &off, fds[1], NULL, 10, 2), -EAGAIN);
	EQ(sys_splice(fds[0], NULL, (int)g, NULL, sizeof(big), 0), 65536);
	EQ(sys_splice(fds[0], NULL, (int)g, NULL, 10, 2), -EAGAIN);
	EQ(sys_splice((int)f, NULL, (int)g, NULL, 10, 0), -EINVAL);
	EQ(sys_splice(fds[0], &off, (int)g, NULL, 10, 0), -ESPIPE);
	EQ(sys_sendfile((int)g, (int)f, &off, sizeof(big)), sizeof(big) - 65536);
	EQ(off, sizeof(big));
	EQ(sys_pread64(g, back, sizeof(back), 0), sizeof(back));
	EQ(memcmp(big, back, sizeof(big)), 0);
	EQ(sys_sendfile((int)g, fds[0], NULL, 10), -EINVAL);
	off = 100;
	EQ(sys_copy_file_range((int)f, &off, (int)f, NULL, 200, 1), -EINVAL);
	EQ(sys_copy_file_range(fds[0], NULL, (int)f, NULL, 200, 0), -EINVAL);
}

/* Not judged: shows what the host spends on it. */
static void test_many_files(void)
{
	char path[64];
	struct kstat st;

	start();
	for (unsigned d = 0; d < 100; d++) {
		sprintf(path, "/%u", d);
		EQ(sys_mkdir(path, 0755), 0);
		for (unsigned k = 0; k < 300; k++) {
			unsigned fd;

			sprintf(path, "/%u/file%u", d, k);
			fd = make(path);
			if (fd != 0 || sys_write(fd, path, 20) != 20 || sys_close(fd) != 0)
				CU_FAIL("a file");
		}
	}
	for (unsigned d = 0; d < 100; d++) {
		for (unsigned k = 0; k < 300; k++) {
			sprintf(path, "/%u/file%u", d, k);
			if (sys_newfstatat(KAT_FDCWD, path, &st, 0) != 0 || st.size != 20)
				CU_FAIL("a file");
		}
	}
	EQ(mem_stats.shmem_pages, 30000);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} tests[] = {
		{"descriptors", test_descriptors},
		{"shared position", test_shared_position},
		{"limits", test_limits},
		{"busy text", test_busy_text},
		{"record locks", test_record_locks},
		{"ofd locks, flock", test_ofd_locks_and_flock},
		{"memfd", test_memfd},
		{"inotify", test_inotify},
		{"inotify: order", test_inotify_order},
		{"inotify: unmount", test_inotify_unmount},
		{"inotify: overflow", test_inotify_overflow},
		{"openat2", test_openat2},
		{"tmpfile", test_tmpfile},
		{"cwd", test_cwd},
		{"mounts", test_mounts},
		{"readdir", test_readdir},
		{"fchmodat2", test_fchmodat2},
		{"times, owners, xattrs", test_times},
		{"pipes", test_pipes},
		{"many files", test_many_files},
	};
	CU_pSuite suite = cunit_suite("kernel-fs", NULL, NULL);

	for (unsigned k = 0; k < ARRAY_SIZE(tests); k++)
		CU_add_test(suite, tests[k].name, tests[k].fn);
	return cunit_run();
}
