# SPDX-License-Identifier: Apache-2.0
"""signal, mmap, select, poll, epoll, sqlite3, tempfile, fcntl, files."""
import ctypes
import fcntl
import mmap
import os
import pty
import resource
import select
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import sys
import tempfile
import termios
import threading
import time


def signals():
    got = []
    signal.signal(signal.SIGUSR1, lambda s, f: got.append(s))
    os.kill(os.getpid(), signal.SIGUSR1)
    print(got)
    ticks = []
    signal.signal(signal.SIGALRM, lambda s, f: ticks.append(s))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    while len(ticks) < 3:
        signal.pause()
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(len(ticks) >= 3)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    os.kill(os.getpid(), signal.SIGUSR2)
    print(signal.sigpending(), signal.sigwait([signal.SIGUSR2]))
    print(signal.sigtimedwait([signal.SIGUSR2], 0.05))
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR2)
    i = signal.sigwaitinfo([signal.SIGUSR2])
    print(i.si_signo, i.si_code, i.si_pid == os.getpid(), i.si_uid)
    r, w = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(w)
    os.kill(os.getpid(), signal.SIGUSR1)
    print(os.read(r, 10))
    signal.set_wakeup_fd(-1)
    t = time.time()
    signal.signal(signal.SIGALRM, lambda s, f: 1 / 0)
    signal.alarm(1)
    try:
        time.sleep(20)
    except ZeroDivisionError:
        print('interrupted', time.time() - t < 15)
    r, w = os.pipe()
    signal.signal(signal.SIGALRM, lambda s, f: os.write(w, b'restarted'))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    print(os.read(r, 100))
    signal.signal(signal.SIGVTALRM, lambda s, f: got.append(s))
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.05)
    while signal.SIGVTALRM not in got:
        pass
    print(got[-1])
    for s in signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGQUIT:
        pid = os.fork()
        if not pid:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(s, signal.SIG_DFL) if s != signal.SIGKILL else None
            os.kill(os.getpid(), s)
            time.sleep(5)
            os._exit(0)
        st = os.waitpid(pid, 0)[1]
        print(s, os.WTERMSIG(st))
    hold, go = os.pipe()
    pid = os.fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGSTOP)
        os.read(hold, 1)
        os._exit(7)
    st = os.waitpid(pid, os.WUNTRACED)[1]
    print(os.WIFSTOPPED(st), os.WSTOPSIG(st))
    os.kill(pid, signal.SIGCONT)
    print(os.WIFCONTINUED(os.waitpid(pid, os.WCONTINUED)[1]))
    os.write(go, b'.')
    print(os.waitid(os.P_PID, pid, os.WEXITED).si_status)
    fd = os.pidfd_open(os.getpid())
    signal.pidfd_send_signal(fd, signal.SIGUSR1)
    print(got[-1])


def maps():
    m = mmap.mmap(-1, 100000)
    m[:5] = b'hello'
    pid = os.fork()
    if not pid:
        m[5:11] = b' child'
        os._exit(0)
    os.waitpid(pid, 0)
    print(m[:11], m.find(b'child'), m.rfind(b'h'))
    m.resize(300000)
    print(len(m), m[:11])
    m.close()
    with open('m', 'w+b') as f:
        f.write(b'0123456789' * 1000)
        f.flush()
        m = mmap.mmap(f.fileno(), 0)
        m[0:3] = b'abc'
        m.flush()
        f.seek(0)
        print(f.read(5))
        f.seek(5)
        f.write(b'ZZ')
        f.flush()
        print(m[3:9])
        p = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE)
        p[0:1] = b'P'
        print(m[0:1], p[0:1])
        m.move(100, 0, 10)
        print(m[100:110])
        m.madvise(mmap.MADV_DONTNEED)
        p.madvise(mmap.MADV_DONTNEED)
        print(m[0:1], p[0:1])
        ro = mmap.mmap(f.fileno(), 4096, prot=mmap.PROT_READ, offset=4096)
        print(ro[:5])
        try:
            mmap.mmap(f.fileno(), 1000000)
        except ValueError as e:
            print(e)
        os.unlink('m')
        print(m[100:103])


def polling():
    a, b = socket.socketpair()
    r, w = os.pipe()
    print([len(x) for x in select.select([a, r], [a, w], [], 0)])
    b.send(b'x')
    print([len(x) for x in select.select([a, r], [], [], 5)])
    p = select.poll()
    p.register(a, select.POLLIN)
    p.register(r, select.POLLIN)
    p.register(w, select.POLLOUT)
    print([(fd == a.fileno(), ev) for fd, ev in p.poll(0)])
    os.close(w)
    p.unregister(w)
    print([ev for fd, ev in p.poll(0)])
    e = select.epoll()
    e.register(a, select.EPOLLIN | select.EPOLLET)
    print([ev for fd, ev in e.poll(1)], e.poll(0.01))
    b.send(b'y')
    print([ev for fd, ev in e.poll(1)])
    e.modify(a, select.EPOLLIN | select.EPOLLONESHOT)
    print([ev for fd, ev in e.poll(1)], e.poll(0.01))
    b.close()
    e.modify(a, select.EPOLLIN | select.EPOLLRDHUP)
    print([ev for fd, ev in e.poll(1)])
    print(a.recv(10), a.recv(10))
    t = time.time()
    print(select.select([], [], [], 0.1), 0.09 < time.time() - t < 30)
    efd = os.eventfd(3)
    print(os.eventfd_read(efd))
    os.eventfd_write(efd, 5)
    print(select.select([efd], [], [], 0)[0] == [efd], os.eventfd_read(efd))
    many = [os.pipe() for _ in range(200)]
    e = select.epoll()
    for rr, ww in many:
        e.register(rr, select.EPOLLIN)
    for rr, ww in many[::3]:
        os.write(ww, b'.')
    print(len(e.poll(0, 500)))


def files():
    with tempfile.TemporaryDirectory() as d:
        os.chdir(d)
        with tempfile.NamedTemporaryFile(dir=d) as f:
            f.write(b'x' * 10)
            f.flush()
            print(os.stat(f.name).st_size)
        with tempfile.TemporaryFile(dir=d) as f:
            print(f.name if isinstance(f.name, str) else 'anonymous', os.listdir(d))
        with tempfile.SpooledTemporaryFile(10) as f:
            f.write(b'y' * 100)
            f.seek(0)
            print(len(f.read()))
        fd = os.open('f', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        print(os.pwrite(fd, b'abc', 100), os.pread(fd, 10, 98), oct(os.fstat(fd).st_mode))
        print(os.lseek(fd, 0, os.SEEK_END), os.lseek(fd, 5, os.SEEK_CUR))
        os.ftruncate(fd, 1 << 20)
        os.pwrite(fd, b'end', (1 << 20) - 3)
        os.posix_fallocate(fd, 0, 5000)
        print(os.writev(fd, [b'a', b'bc']), os.preadv(fd, [bytearray(2), bytearray(3)], 0))
        fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            f2 = os.open('f', os.O_RDWR)
            try:
                fcntl.lockf(f2, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 2)
            except OSError as e:
                print(e, flush=True)
            print(fcntl.lockf(f2, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 20), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        os.link('f', 'h')
        os.symlink('f', 's')
        os.mkfifo('p')
        os.mkdir('d')
        print(sorted((e.name, e.is_symlink(), e.is_dir(), e.is_file(),
                      stat.S_IFMT(e.stat(follow_symlinks=False).st_mode))
                     for e in os.scandir('.')))
        for call in (
                lambda: os.mkdir('d'),
                lambda: os.rmdir('.'),
                lambda: os.unlink('d'),
                lambda: os.open('s', os.O_NOFOLLOW),
                lambda: os.rename('d', 'f'),
                lambda: os.rename('f', 'd'),
                lambda: os.open('f/x', 0),
                lambda: os.open('x' * 300, 0),
                lambda: os.link('d', 'dd'),
                lambda: os.open('p', os.O_WRONLY | os.O_NONBLOCK),
                lambda: os.read(999, 1),
                lambda: os.chdir('f'),
                lambda: os.readlink('f'),
                lambda: os.rename('d', 'd/e'),
                lambda: os.open('d', os.O_RDWR),
                lambda: os.listdir('f'),
                lambda: os.lseek(0x7fff, 0, 0),
                lambda: os.kill(999999, 0),
                lambda: os.setxattr('s', 'bad', b''),
                lambda: os.truncate('f', -1),
                lambda: os.symlink('x', 'f'),
                lambda: os.dup2(0, 10 ** 6),
        ):
            try:
                print('no error', call())
            except (OSError, ValueError) as e:
                print(e)
        os.setxattr('f', 'user.k', b'v')
        print(os.getxattr('f', 'user.k'), os.listxattr('f'))
        src = os.open('/etc/passwd', os.O_RDONLY)
        dst = os.open('copy', os.O_RDWR | os.O_CREAT)
        other = os.open('other', os.O_RDWR | os.O_CREAT)
        n = os.fstat(src).st_size
        print(os.sendfile(dst, src, 0, n) == n, os.copy_file_range(dst, other, n, 0, n) == n)
        r, w = os.pipe()
        print(os.splice(src, w, 100, offset_src=0), len(os.read(r, 1000)))
        shutil.copytree('/etc/default', 't')
        print(sorted(os.listdir('t')) == sorted(os.listdir('/etc/default')))
        shutil.rmtree('t')
        print(shutil.which('sh'), shutil.disk_usage('.').total > 0)
        os.utime('f', ns=(1, 2))
        st = os.stat('f')
        print(st.st_atime_ns, st.st_mtime_ns, st.st_nlink, st.st_size)
        os.chdir('/')
    fd = os.memfd_create('m', os.MFD_ALLOW_SEALING)
    os.write(fd, b'mem')
    fcntl.fcntl(fd, 1033, 2)
    print(os.readlink(f'/proc/self/fd/{fd}'), os.path.getsize(f'/proc/self/fd/{fd}'))
    try:
        os.ftruncate(fd, 0)
    except OSError as e:
        print(e)


def misc():
    pid, fd = pty.fork()
    if not pid:
        print('on tty', os.isatty(0), os.ttyname(0).startswith('/dev/pts/'), input('? '))
        sys.stdout.flush()
        os._exit(3)
    os.write(fd, b'typed\n')
    out = b''
    try:
        while c := os.read(fd, 1000):
            out += c
    except OSError as e:
        print(e)
    print(out, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    m, s = pty.openpty()
    a = termios.tcgetattr(s)
    a[3] &= ~termios.ECHO
    termios.tcsetattr(s, termios.TCSANOW, a)
    fcntl.ioctl(m, termios.TIOCSWINSZ, struct.pack('4H', 33, 99, 0, 0))
    print(os.get_terminal_size(s))
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    socket.send_fds(a, [b'fds'], [0, 1])
    data, fds, flags, _ = socket.recv_fds(b, 100, 5)
    print(data, len(fds), flags)
    cred = b.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    print(struct.unpack('3i', cred)[0] == os.getpid())
    print(ctypes.CDLL(None).getpid() == os.getpid(), len(os.urandom(100)))
    print(os.getpriority(os.PRIO_PROCESS, 0))
    pointer = ctypes.POINTER(ctypes.c_int)
    compare = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)
    arr = (ctypes.c_int * 5)(5, 1, 4, 2, 3)
    ctypes.CDLL(None).qsort(arr, 5, 4, compare(lambda a, b: a[0] - b[0]))
    print(list(arr))
    c = sqlite3.connect('t.db')
    c.execute('create table t(x)')
    with c:
        c.executemany('insert into t values(?)', ((i,) for i in range(1000)))
    print(c.execute('select sum(x) from t').fetchone())
    c2 = sqlite3.connect('t.db', timeout=0.1)
    c.execute('begin exclusive')
    try:
        c2.execute('insert into t values(1)')
    except sqlite3.OperationalError as e:
        print(e)
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, 4096))
    try:
        x = [open('/dev/null') for _ in range(100)]
    except OSError as e:
        print(e)
    for k in time.CLOCK_MONOTONIC, time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID:
        print(time.clock_gettime(k) > 0)
    for big in 1 << 40, 1 << 46:
        try:
            mmap.mmap(-1, big, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=0)
            print('mapped')
        except (OSError, ValueError) as e:
            print(e)


here = os.getcwd()
for f in signals, maps, polling, files, misc:
    print('==', f.__name__, flush=True)
    os.chdir(here)
    f()
