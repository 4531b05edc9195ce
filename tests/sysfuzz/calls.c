/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that are fuzzed: number, weight, and the type of each argument. Left out: reboot
 * and chroot, what changes the clock or the scheduling class under the supervisor, and
 * setting the thread pointer. Calls that need care of their own (fork, clone, sigreturn, exit)
 * are the special operations of sysfuzz.c.
 */
#include <asm/prctl.h>
#include <linux/close_range.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/random.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdio.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "tests/sysfuzz/sysfuzz.h"

static const long v_open[] = {
	O_RDONLY, O_WRONLY, O_RDWR, O_CREAT | O_RDWR, O_EXCL, O_TRUNC, O_APPEND,
	O_NONBLOCK, O_DIRECTORY, O_NOFOLLOW, O_CLOEXEC, O_PATH, O_TMPFILE | O_RDWR,
	O_NOCTTY, O_SYNC, O_DIRECT, O_NOATIME, -1
};

static const long v_mode[] = {
	0, 0600, 0644, 0755, 07777, S_IFIFO | 0600, S_IFREG | 0600, S_IFSOCK | 0600,
	S_IFCHR | 0600, S_IFDIR, -1
};

static const long v_whence[] = {
	SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE, -1
};

static const long v_ioctl[] = {
	TCGETS, TCSETS, TCSETSW, TCSETSF, TIOCGWINSZ, TIOCSWINSZ, FIONREAD, FIONBIO,
	FIOASYNC, TIOCSPTLCK, TIOCGPTN, TIOCSCTTY, TIOCNOTTY, TIOCGPGRP, TIOCSPGRP,
	TIOCGSID, TIOCSTI, FIOCLEX, FIONCLEX, TCFLSH, TCXONC, TCSBRK, TIOCGPTPEER,
	TIOCOUTQ, TIOCEXCL, TIOCNXCL, TIOCPKT, TIOCSETD, TIOCGETD, TIOCMGET,
	FS_IOC_GETFLAGS, FICLONE, BLKGETSIZE64, RNDGETENTCNT, -1
};

static const long v_fcntl[] = {
	F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW,
	F_SETOWN, F_GETOWN, F_SETSIG, F_GETSIG, F_OFD_GETLK, F_OFD_SETLK,
	F_OFD_SETLKW, F_SETPIPE_SZ, F_GETPIPE_SZ, F_DUPFD_CLOEXEC, F_ADD_SEALS,
	F_GET_SEALS, F_SETLEASE, F_NOTIFY, F_SETOWN_EX, F_GETOWN_EX, -1
};

static const long v_at[] = {
	0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_REMOVEDIR,
	AT_NO_AUTOMOUNT, AT_EACCESS, -1
};

static const long v_flock[] = {
	LOCK_SH, LOCK_EX, LOCK_UN, LOCK_NB | LOCK_EX, LOCK_NB | LOCK_SH, -1
};

static const long v_rename[] = {
	0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT, -1
};

static const long v_falloc[] = {
	0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	FALLOC_FL_ZERO_RANGE, FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, -1
};

static const long v_splice[] = {
	0, SPLICE_F_NONBLOCK, SPLICE_F_MOVE, SPLICE_F_MORE, -1
};

static const long v_memfd[] = {
	0, MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_HUGETLB, -1
};

static const long v_xattr[] = {
	0, XATTR_CREATE, XATTR_REPLACE, -1
};

static const long v_mount[] = {
	0, MS_RDONLY, MS_REMOUNT, MS_BIND, MS_NOSUID, MS_MOVE, MS_REC, MS_PRIVATE,
	-1
};

static const long v_umount[] = {
	0, MNT_DETACH, MNT_FORCE, MNT_EXPIRE, -1
};

static const long v_prot[] = {
	PROT_NONE, PROT_READ, PROT_WRITE, PROT_READ | PROT_WRITE, PROT_EXEC,
	PROT_READ | PROT_WRITE, PROT_GROWSDOWN, -1
};

static const long v_map[] = {
	MAP_PRIVATE, MAP_SHARED, MAP_PRIVATE | MAP_ANONYMOUS, MAP_SHARED |
	MAP_ANONYMOUS, MAP_FIXED | MAP_PRIVATE, MAP_FIXED | MAP_SHARED, MAP_FIXED |
	MAP_PRIVATE | MAP_ANONYMOUS, MAP_NORESERVE, MAP_POPULATE, MAP_GROWSDOWN,
	MAP_FIXED_NOREPLACE, MAP_STACK, MAP_HUGETLB, MAP_32BIT, MAP_LOCKED, -1
};

static const long v_mremap[] = {
	0, MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED, MREMAP_DONTUNMAP |
	MREMAP_MAYMOVE, -1
};

static const long v_msync[] = {
	MS_ASYNC, MS_SYNC, MS_INVALIDATE, -1
};

static const long v_madv[] = {
	MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED,
	MADV_FREE, MADV_REMOVE, MADV_DONTFORK, MADV_DOFORK, MADV_HUGEPAGE,
	MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_COLD,
	MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE, -1
};

static const long v_wait[] = {
	0, WNOHANG, WUNTRACED, WCONTINUED, WEXITED, WSTOPPED, WNOWAIT, __WALL,
	__WCLONE, -1
};

static const long v_idtype[] = {
	P_ALL, P_PID, P_PGID, P_PIDFD, -1
};

static const long v_rlimit[] = {
	RLIMIT_CORE, RLIMIT_DATA, RLIMIT_MEMLOCK, RLIMIT_RSS, RLIMIT_SIGPENDING,
	RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_NPROC, RLIMIT_RTPRIO, RLIMIT_STACK, -1
};

static const long v_prctl[] = {
	PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE,
	PR_SET_NAME, PR_GET_NAME, PR_SET_KEEPCAPS, PR_CAPBSET_READ,
	PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS,
	PR_GET_TID_ADDRESS, PR_SET_TIMERSLACK, PR_SET_VMA, PR_CAP_AMBIENT,
	PR_SET_THP_DISABLE, PR_GET_SECCOMP, PR_SET_MM, -1
};

static const long v_arch[] = {
	ARCH_GET_FS, ARCH_GET_GS, ARCH_SET_GS, 0x1011, 0x1012, 0x3001, -1
};

static const long v_futex[] = {
	FUTEX_WAIT, FUTEX_WAKE, FUTEX_FD, FUTEX_REQUEUE, FUTEX_CMP_REQUEUE,
	FUTEX_WAKE_OP, FUTEX_LOCK_PI, FUTEX_UNLOCK_PI, FUTEX_TRYLOCK_PI,
	FUTEX_WAIT_BITSET, FUTEX_WAKE_BITSET, FUTEX_WAIT_REQUEUE_PI,
	FUTEX_CMP_REQUEUE_PI, 13 /* FUTEX_LOCK_PI2 */, FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME, -1
};

/* A segment's ID is its index and 32768 times how many there were before, on Linux too. */
static const long v_shmid[] = {
	0, 32769, 65538, 98307, 131076, 163845, 32768, 65536, 98304, 65537, 98305, -1
};

static const long v_shmget[] = {
	IPC_CREAT | 0600, IPC_CREAT | 0400, IPC_CREAT | IPC_EXCL | 0777, 0, SHM_HUGETLB, -1
};

static const long v_shmat[] = {
	SHM_RDONLY, SHM_RND, SHM_REMAP, SHM_EXEC, -1
};

static const long v_shmctl[] = {
	IPC_RMID, IPC_SET, IPC_STAT, IPC_INFO, SHM_STAT, SHM_INFO, SHM_LOCK, SHM_UNLOCK, 15, -1
};

static const long v_random[] = {
	0, GRND_NONBLOCK, GRND_RANDOM, 4, -1
};

static const long v_membarrier[] = {
	0, 1, 2, 8, 16, 32, 64, -1
};

static const long v_how[] = {
	SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK, -1
};

static const long v_itimer[] = {
	ITIMER_VIRTUAL, ITIMER_PROF, 3, -1
};

static const long v_clock[] = {
	CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID,
	CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME,
	CLOCK_REALTIME_ALARM, CLOCK_TAI, -2, -6, -13, -1
};

static const long v_abstime[] = {
	0, 1, 2, 3, -1
};

static const long v_epop[] = {
	EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, -1
};

static const long v_nonblock[] = {
	0, O_NONBLOCK, O_CLOEXEC, O_DIRECT, EFD_SEMAPHORE, -1
};

static const long v_domain[] = {
	AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, -1
};

static const long v_type[] = {
	SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_RAW, SOCK_NONBLOCK,
	SOCK_CLOEXEC, -1
};

static const long v_msgf[] = {
	0, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, MSG_NOSIGNAL, MSG_OOB,
	MSG_CTRUNC, MSG_CMSG_CLOEXEC, MSG_EOR, MSG_WAITFORONE, -1
};

static const long v_level[] = {
	SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6, SOL_UDP, -1
};

static const long v_sockopt[] = {
	SO_REUSEADDR, SO_SNDBUF, SO_RCVBUF, SO_PASSCRED, SO_PEERCRED, SO_LINGER,
	SO_RCVTIMEO, SO_SNDTIMEO, SO_ERROR, SO_TYPE, SO_DOMAIN, SO_ACCEPTCONN,
	SO_PEEK_OFF, SO_KEEPALIVE, SO_RCVLOWAT, SO_PEERGROUPS, 77,
	SO_ATTACH_FILTER, SO_BINDTODEVICE, -1
};

static const long v_inotify[] = {
	IN_ALL_EVENTS, IN_MODIFY, IN_CREATE, IN_DELETE, IN_ONESHOT, IN_ONLYDIR,
	IN_MASK_ADD, IN_MASK_CREATE, IN_EXCL_UNLINK, -1
};

static const long v_close_range[] = {
	0, CLOSE_RANGE_UNSHARE, CLOSE_RANGE_CLOEXEC, -1
};

static const long v_who[] = {
	PRIO_PROCESS, PRIO_PGRP, -1
};

static const long v_mlock[] = {
	0, MLOCK_ONFAULT, -1
};

static const long v_mlockall[] = {
	MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, -1
};

static const long v_rw[] = {
	0, 1, 2, 4, 8, 16, -1
};

static const long v_fadv[] = {
	0, 1, 2, 3, 4, 5, -1
};

static const long v_shut[] = {
	0, 1, 2, -1
};

static const long v_rusage[] = {
	0, 1, -2, -3, -1
};

static const long v_kcmp[] = {
	0, -1
};

#define CALL(nr, weight, ...)	{ #nr, __NR_##nr, weight, { __VA_ARGS__ } }
#define SPECIAL(nr, weight)	{ #nr, nr, weight, { { A_END, NULL } } }
#define T(type)			{ A_##type, NULL }
#define V(name)			{ A_VALUES, v_##name }

const struct call calls[] = {
	CALL(read, 4, T(FD), T(BUF), T(LEN)),
	CALL(write, 4, T(FD), T(BUF), T(LEN)),
	CALL(open, 4, T(PATH), V(open), V(mode)),
	CALL(close, 2, T(FD)),
	CALL(stat, 1, T(PATH), T(OUT)),
	CALL(fstat, 1, T(FD), T(OUT)),
	CALL(lstat, 1, T(PATH), T(OUT)),
	CALL(lseek, 1, T(FD), T(OFF), V(whence)),
	CALL(ioctl, 8, T(FD), V(ioctl), T(BUF)),
	CALL(pread64, 1, T(FD), T(OUT), T(LEN), T(OFF)),
	CALL(pwrite64, 1, T(FD), T(BUF), T(LEN), T(OFF)),
	CALL(readv, 2, T(FD), T(IOV), T(COUNT)),
	CALL(writev, 2, T(FD), T(IOV), T(COUNT)),
	CALL(access, 1, T(PATH), T(SMALL)),
	CALL(dup, 1, T(FD)),
	CALL(dup2, 1, T(FD), T(FD)),
	CALL(sendfile, 2, T(FD), T(FD), T(OFFP), T(LEN)),
	CALL(fcntl, 4, T(FD), V(fcntl), T(BUF)),
	CALL(fcntl, 2, T(FD), V(fcntl), T(INT)),
	CALL(flock, 1, T(FD), V(flock)),
	CALL(fsync, 1, T(FD)),
	CALL(fdatasync, 1, T(FD)),
	CALL(truncate, 1, T(PATH), T(OFF)),
	CALL(ftruncate, 2, T(FD), T(OFF)),
	CALL(getdents, 1, T(FD), T(OUT), T(LEN)),
	CALL(getcwd, 1, T(OUT), T(LEN)),
	CALL(chdir, 1, T(PATH)),
	CALL(fchdir, 1, T(FD)),
	CALL(rename, 2, T(PATH), T(PATH)),
	CALL(mkdir, 2, T(PATH), V(mode)),
	CALL(rmdir, 1, T(PATH)),
	CALL(creat, 1, T(PATH), V(mode)),
	CALL(link, 2, T(PATH), T(PATH)),
	CALL(unlink, 2, T(PATH)),
	CALL(symlink, 2, T(PATH), T(PATH)),
	CALL(readlink, 1, T(PATH), T(OUT), T(LEN)),
	CALL(chmod, 1, T(PATH), V(mode)),
	CALL(fchmod, 1, T(FD), V(mode)),
	CALL(chown, 1, T(PATH), T(UID), T(UID)),
	CALL(fchown, 1, T(FD), T(UID), T(UID)),
	CALL(lchown, 1, T(PATH), T(UID), T(UID)),
	CALL(umask, 1, V(mode)),
	CALL(utime, 1, T(PATH), T(BUF)),
	CALL(mknod, 1, T(PATH), V(mode), T(INT)),
	CALL(statfs, 1, T(PATH), T(OUT)),
	CALL(fstatfs, 1, T(FD), T(OUT)),
	CALL(sync, 1, T(END)),
	CALL(mount, 1, T(PATH), T(PATH), T(PATH), V(mount), T(BUF)),
	CALL(umount2, 1, T(PATH), V(umount)),
	CALL(readahead, 1, T(FD), T(OFF), T(LEN)),
	CALL(setxattr, 1, T(PATH), T(PATH), T(BUF), T(LEN), V(xattr)),
	CALL(lsetxattr, 1, T(PATH), T(PATH), T(BUF), T(LEN), V(xattr)),
	CALL(fsetxattr, 1, T(FD), T(PATH), T(BUF), T(LEN), V(xattr)),
	CALL(getxattr, 1, T(PATH), T(PATH), T(OUT), T(LEN)),
	CALL(lgetxattr, 1, T(PATH), T(PATH), T(OUT), T(LEN)),
	CALL(fgetxattr, 1, T(FD), T(PATH), T(OUT), T(LEN)),
	CALL(listxattr, 1, T(PATH), T(OUT), T(LEN)),
	CALL(llistxattr, 1, T(PATH), T(OUT), T(LEN)),
	CALL(flistxattr, 1, T(FD), T(OUT), T(LEN)),
	CALL(removexattr, 1, T(PATH), T(PATH)),
	CALL(lremovexattr, 1, T(PATH), T(PATH)),
	CALL(fremovexattr, 1, T(FD), T(PATH)),
	CALL(getdents64, 2, T(FD), T(OUT), T(LEN)),
	CALL(fadvise64, 1, T(FD), T(OFF), T(LEN), V(fadv)),
	CALL(utimes, 1, T(PATH), T(TIME)),
	CALL(openat, 3, T(ATFD), T(PATH), V(open), V(mode)),
	CALL(mkdirat, 1, T(ATFD), T(PATH), V(mode)),
	CALL(mknodat, 1, T(ATFD), T(PATH), V(mode), T(INT)),
	CALL(fchownat, 1, T(ATFD), T(PATH), T(UID), T(UID), V(at)),
	CALL(futimesat, 1, T(ATFD), T(PATH), T(TIME)),
	CALL(newfstatat, 1, T(ATFD), T(PATH), T(OUT), V(at)),
	CALL(unlinkat, 1, T(ATFD), T(PATH), V(at)),
	CALL(renameat, 1, T(ATFD), T(PATH), T(ATFD), T(PATH)),
	CALL(linkat, 2, T(ATFD), T(PATH), T(ATFD), T(PATH), V(at)),
	CALL(symlinkat, 1, T(PATH), T(ATFD), T(PATH)),
	CALL(readlinkat, 1, T(ATFD), T(PATH), T(OUT), T(LEN)),
	CALL(fchmodat, 1, T(ATFD), T(PATH), V(mode)),
	CALL(faccessat, 1, T(ATFD), T(PATH), T(SMALL)),
	CALL(splice, 4, T(FD), T(OFFP), T(FD), T(OFFP), T(LEN), V(splice)),
	CALL(tee, 2, T(FD), T(FD), T(LEN), V(splice)),
	CALL(sync_file_range, 1, T(FD), T(OFF), T(LEN), V(fadv)),
	CALL(utimensat, 1, T(ATFD), T(PATH), T(ITIMER), V(at)),
	CALL(fallocate, 2, T(FD), V(falloc), T(OFF), T(OFF)),
	CALL(dup3, 1, T(FD), T(FD), V(open)),
	CALL(preadv, 1, T(FD), T(IOV), T(COUNT), T(OFF), T(INT)),
	CALL(pwritev, 1, T(FD), T(IOV), T(COUNT), T(OFF), T(INT)),
	CALL(syncfs, 1, T(FD)),
	CALL(renameat2, 2, T(ATFD), T(PATH), T(ATFD), T(PATH), V(rename)),
	CALL(memfd_create, 1, T(PATH), V(memfd)),
	CALL(copy_file_range, 2, T(FD), T(OFFP), T(FD), T(OFFP), T(LEN), V(kcmp)),
	CALL(preadv2, 1, T(FD), T(IOV), T(COUNT), T(OFF), T(INT), V(rw)),
	CALL(pwritev2, 1, T(FD), T(IOV), T(COUNT), T(OFF), T(INT), V(rw)),
	CALL(statx, 1, T(ATFD), T(PATH), V(at), T(INT), T(OUT)),
	CALL(close_range, 1, T(FD), T(FD), V(close_range)),
	CALL(openat2, 2, T(ATFD), T(PATH), T(HOW), T(LEN)),
	CALL(faccessat2, 1, T(ATFD), T(PATH), T(SMALL), V(at)),
	CALL(mmap, 8, T(PAGE), T(PAGES), V(prot), V(map), T(FD), T(PAGES)),
	CALL(mmap, 2, T(PAGE), T(PAGES), V(prot), V(map), T(FD), T(OFF)),
	CALL(mprotect, 3, T(PAGE), T(PAGES), V(prot)),
	CALL(munmap, 3, T(PAGE), T(PAGES)),
	CALL(brk, 1, T(PAGE)),
	CALL(mremap, 4, T(PAGE), T(PAGES), T(PAGES), V(mremap), T(PAGE)),
	CALL(shmget, 1, T(SMALL), T(PAGES), V(shmget)),
	CALL(shmat, 3, V(shmid), T(PAGE), V(shmat)),
	CALL(shmdt, 2, T(PAGE)),
	CALL(shmctl, 1, V(shmid), V(shmctl), T(OUT)),
	CALL(msync, 1, T(PAGE), T(PAGES), V(msync)),
	CALL(mincore, 1, T(PAGE), T(PAGES), T(OUT)),
	CALL(madvise, 4, T(PAGE), T(PAGES), V(madv)),
	CALL(mlock, 1, T(PAGE), T(PAGES)),
	CALL(munlock, 1, T(PAGE), T(PAGES)),
	CALL(mlockall, 1, V(mlockall)),
	CALL(munlockall, 1, T(END)),
	CALL(mlock2, 1, T(PAGE), T(PAGES), V(mlock)),
	CALL(process_vm_readv, 2, T(PID), T(IOV), T(COUNT), T(IOV), T(COUNT), T(SMALL)),
	CALL(process_vm_writev, 2, T(PID), T(IOV), T(COUNT), T(IOV), T(COUNT), T(SMALL)),
	CALL(sched_yield, 1, T(END)),
	CALL(execve, 1, T(PATH), T(STRINGS), T(STRINGS)),
	CALL(execveat, 1, T(ATFD), T(PATH), T(STRINGS), T(STRINGS), V(at)),
	CALL(wait4, 2, T(PID), T(OUT), V(wait), T(OUT)),
	CALL(waitid, 2, V(idtype), T(PID), T(OUT), V(wait), T(OUT)),
	CALL(uname, 1, T(OUT)),
	CALL(getrlimit, 1, T(SMALL), T(OUT)),
	CALL(getrusage, 1, V(rusage), T(OUT)),
	CALL(sysinfo, 1, T(OUT)),
	CALL(times, 1, T(OUT)),
	CALL(syslog, 1, T(SMALL), T(OUT), T(LEN)),
	CALL(setuid, 1, T(UID)),
	CALL(setgid, 1, T(UID)),
	CALL(setpgid, 1, T(PID), T(PID)),
	CALL(getppid, 1, T(END)),
	CALL(setsid, 1, T(END)),
	CALL(setreuid, 1, T(UID), T(UID)),
	CALL(setregid, 1, T(UID), T(UID)),
	CALL(getgroups, 1, T(COUNT), T(OUT)),
	CALL(setgroups, 1, T(COUNT), T(IDS)),
	CALL(setresuid, 1, T(UID), T(UID), T(UID)),
	CALL(getresuid, 1, T(OUT), T(OUT), T(OUT)),
	CALL(setresgid, 1, T(UID), T(UID), T(UID)),
	CALL(getresgid, 1, T(OUT), T(OUT), T(OUT)),
	CALL(getpgid, 1, T(PID)),
	CALL(setfsuid, 1, T(UID)),
	CALL(setfsgid, 1, T(UID)),
	CALL(getsid, 1, T(PID)),
	CALL(capget, 1, T(BUF), T(OUT)),
	CALL(capset, 1, T(BUF), T(BUF)),
	CALL(personality, 1, T(INT)),
	CALL(getpriority, 1, V(who), T(PID)),
	CALL(setpriority, 1, V(who), T(PID), T(SMALL)),
	CALL(sched_getparam, 1, T(PID), T(OUT)),
	CALL(sched_setparam, 1, T(PID), T(BUF)),
	CALL(sched_getscheduler, 1, T(PID)),
	CALL(sched_get_priority_max, 1, T(SMALL)),
	CALL(sched_get_priority_min, 1, T(SMALL)),
	CALL(sched_rr_get_interval, 1, T(PID), T(OUT)),
	CALL(prctl, 2, V(prctl), T(BUF), T(BUF), T(BUF), T(BUF)),
	CALL(prctl, 1, V(prctl), T(INT), T(INT), T(INT), T(INT)),
	CALL(arch_prctl, 1, V(arch), T(BUF)),
	CALL(setrlimit, 1, V(rlimit), T(RLIMIT)),
	CALL(sethostname, 1, T(PATH), T(LEN)),
	CALL(setdomainname, 1, T(PATH), T(LEN)),
	CALL(gettid, 1, T(END)),
	CALL(futex, 6, T(FUTEX), V(futex), T(INT), T(TIME), T(FUTEX), T(INT)),
	CALL(sched_setaffinity, 1, T(PID), T(LEN), T(BUF)),
	CALL(sched_getaffinity, 1, T(PID), T(LEN), T(OUT)),
	CALL(set_tid_address, 1, T(BUF)),
	CALL(set_robust_list, 1, T(ROBUST), T(LEN)),
	CALL(get_robust_list, 1, T(PID), T(OUT), T(OUT)),
	CALL(getcpu, 1, T(OUT), T(OUT), T(BUF)),
	CALL(prlimit64, 1, T(PID), V(rlimit), T(RLIMIT), T(OUT)),
	CALL(getrandom, 1, T(OUT), T(LEN), V(random)),
	CALL(membarrier, 1, V(membarrier), T(SMALL), T(SMALL)),
	CALL(rseq, 1, T(BUF), T(LEN), T(INT), T(INT)),
	CALL(pidfd_open, 2, T(PID), V(nonblock)),
	CALL(pidfd_send_signal, 1, T(FD), T(SIG), T(SIGINFO), T(SMALL)),
	CALL(pidfd_getfd, 1, T(FD), T(FD), T(SMALL)),
	CALL(sched_setattr, 1, T(PID), T(BUF), T(SMALL)),
	CALL(sched_getattr, 1, T(PID), T(OUT), T(LEN), T(SMALL)),
	CALL(poll, 3, T(POLL), T(COUNT), T(SMALL)),
	CALL(rt_sigaction, 2, T(SIG), T(ACTION), T(OUT), T(LEN)),
	CALL(rt_sigprocmask, 2, V(how), T(SIGSET), T(OUT), T(LEN)),
	CALL(select, 3, T(COUNT), T(FDSET), T(FDSET), T(FDSET), T(TIME)),
	CALL(pause, 1, T(END)),
	CALL(nanosleep, 1, T(TIME), T(OUT)),
	CALL(getitimer, 1, T(SMALL), T(OUT)),
	CALL(setitimer, 1, V(itimer), T(ITIMER), T(OUT)),
	CALL(kill, 2, T(PID), T(SIG)),
	CALL(gettimeofday, 1, T(OUT), T(OUT)),
	CALL(rt_sigpending, 1, T(OUT), T(LEN)),
	CALL(rt_sigtimedwait, 2, T(SIGSET), T(OUT), T(TIME), T(LEN)),
	CALL(rt_sigqueueinfo, 2, T(PID), T(SIG), T(SIGINFO)),
	CALL(rt_sigsuspend, 1, T(SIGSET), T(LEN)),
	CALL(sigaltstack, 1, T(STACK), T(OUT)),
	CALL(tkill, 1, T(TID), T(SIG)),
	CALL(time, 1, T(OUT)),
	CALL(epoll_create, 1, T(SMALL)),
	CALL(epoll_wait, 2, T(FD), T(OUT), T(COUNT), T(SMALL)),
	CALL(epoll_ctl, 6, T(FD), V(epop), T(FD), T(EPOLL)),
	CALL(restart_syscall, 1, T(END)),
	CALL(timer_create, 2, V(clock), T(SIGEVENT), T(OUT)),
	CALL(timer_settime, 2, T(SMALL), V(abstime), T(ITIMER), T(OUT)),
	CALL(timer_gettime, 1, T(SMALL), T(OUT)),
	CALL(timer_getoverrun, 1, T(SMALL)),
	CALL(timer_delete, 1, T(SMALL)),
	CALL(clock_gettime, 1, V(clock), T(OUT)),
	CALL(clock_getres, 1, V(clock), T(OUT)),
	CALL(clock_nanosleep, 1, V(clock), V(abstime), T(TIME), T(OUT)),
	CALL(tgkill, 1, T(PID), T(TID), T(SIG)),
	CALL(adjtimex, 1, T(OUT)),
	CALL(clock_adjtime, 1, V(clock), T(OUT)),
	CALL(pselect6, 2, T(COUNT), T(FDSET), T(FDSET), T(FDSET), T(TIME), T(BUF)),
	CALL(ppoll, 2, T(POLL), T(COUNT), T(TIME), T(SIGSET), T(LEN)),
	CALL(epoll_pwait, 1, T(FD), T(OUT), T(COUNT), T(SMALL), T(SIGSET), T(LEN)),
	CALL(signalfd, 1, T(FD), T(SIGSET), T(LEN)),
	CALL(timerfd_create, 1, V(clock), V(nonblock)),
	CALL(eventfd, 1, T(INT)),
	CALL(timerfd_settime, 2, T(FD), V(abstime), T(ITIMER), T(OUT)),
	CALL(timerfd_gettime, 1, T(FD), T(OUT)),
	CALL(signalfd4, 1, T(FD), T(SIGSET), T(LEN), V(nonblock)),
	CALL(eventfd2, 1, T(INT), V(nonblock)),
	CALL(epoll_create1, 1, V(nonblock)),
	CALL(rt_tgsigqueueinfo, 1, T(PID), T(TID), T(SIG), T(SIGINFO)),
	CALL(epoll_pwait2, 1, T(FD), T(OUT), T(COUNT), T(TIME), T(SIGSET), T(LEN)),
	CALL(pipe, 1, T(PIPE)),
	CALL(pipe2, 2, T(PIPE), V(nonblock)),
	CALL(socket, 2, V(domain), V(type), T(SMALL)),
	CALL(connect, 3, T(FD), T(SOCKADDR), T(LEN)),
	CALL(accept, 2, T(FD), T(SOCKADDR), T(SOCKLEN)),
	CALL(sendto, 2, T(FD), T(BUF), T(LEN), V(msgf), T(SOCKADDR), T(LEN)),
	CALL(recvfrom, 2, T(FD), T(OUT), T(LEN), V(msgf), T(SOCKADDR), T(SOCKLEN)),
	CALL(sendmsg, 5, T(FD), T(MSG), V(msgf)),
	CALL(recvmsg, 5, T(FD), T(MSG), V(msgf)),
	CALL(shutdown, 1, T(FD), V(shut)),
	CALL(bind, 2, T(FD), T(SOCKADDR), T(LEN)),
	CALL(listen, 2, T(FD), T(SMALL)),
	CALL(getsockname, 1, T(FD), T(OUT), T(SOCKLEN)),
	CALL(getpeername, 1, T(FD), T(OUT), T(SOCKLEN)),
	CALL(socketpair, 2, V(domain), V(type), T(SMALL), T(PIPE)),
	CALL(setsockopt, 2, T(FD), V(level), V(sockopt), T(BUF), T(LEN)),
	CALL(getsockopt, 2, T(FD), V(level), V(sockopt), T(OUT), T(SOCKLEN)),
	CALL(accept4, 1, T(FD), T(SOCKADDR), T(SOCKLEN), V(nonblock)),
	CALL(recvmmsg, 2, T(FD), T(MMSG), T(COUNT), V(msgf), T(TIME)),
	CALL(sendmmsg, 2, T(FD), T(MMSG), T(COUNT), V(msgf)),
	CALL(inotify_init, 1, T(END)),
	CALL(inotify_add_watch, 3, T(FD), T(PATH), V(inotify)),
	CALL(inotify_rm_watch, 1, T(FD), T(SMALL)),
	CALL(inotify_init1, 1, V(nonblock)),
	SPECIAL(S_FORK, 3),
	SPECIAL(S_VFORK, 1),
	SPECIAL(S_THREAD, 2),
	SPECIAL(S_SIGRETURN, 1),
	SPECIAL(S_EXIT, 1),
	SPECIAL(S_CLONE, 2),
	SPECIAL(S_FILL, 3),
};

const unsigned calls_count = sizeof(calls) / sizeof(calls[0]);
