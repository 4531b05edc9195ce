#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""docs/ABI.md, made from the source: abi.py [--check] [ROOT].

The calls and their numbers come from guest-kernel/core/syscalls.def and syscalls_none.def;
where each is implemented from SYSCALL(); what is partial from syscall_partial() and
tools/abi-notes.txt; the tests from the C sources under tests/ that make the call. --check
changes nothing and fails if docs/ABI.md is not what would be written.
"""
import collections
import os
import re
import sys

DOC = 'docs/ABI.md'
NOTES = 'tools/abi-notes.txt'
LAST = 460
# Numbers of <asm/unistd_64.h>, so that the result is the same whatever header is installed:
# names in order from 0, and from 424 (334 is followed by a gap).
NAMES = """
read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction
rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield
mremap msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm
setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg recvmsg shutdown bind
listen getsockname getpeername socketpair setsockopt getsockopt clone fork vfork execve exit
wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync
fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink
symlink readlink chmod fchmod chown fchown lchown umask gettimeofday getrlimit getrusage sysinfo
times ptrace getuid syslog getgid setuid setgid geteuid getegid setpgid getppid getpgrp setsid
setreuid setregid getgroups setgroups setresuid getresuid setresgid getresgid getpgid setfsuid
setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend
sigaltstack utime mknod uselib personality ustat statfs fstatfs sysfs getpriority setpriority
sched_setparam sched_getparam sched_setscheduler sched_getscheduler sched_get_priority_max
sched_get_priority_min sched_rr_get_interval mlock munlock mlockall munlockall vhangup modify_ldt
pivot_root _sysctl prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday mount umount2
swapon swapoff reboot sethostname setdomainname iopl ioperm create_module init_module
delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall tuxcall
security gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr
llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex sched_setaffinity
sched_getaffinity set_thread_area io_setup io_destroy io_getevents io_submit io_cancel
get_thread_area lookup_dcookie epoll_create epoll_ctl_old epoll_wait_old remap_file_pages
getdents64 set_tid_address restart_syscall semtimedop fadvise64 timer_create timer_settime
timer_gettime timer_getoverrun timer_delete clock_settime clock_gettime clock_getres
clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes vserver mbind set_mempolicy
get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load
waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init inotify_add_watch
inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat futimesat newfstatat unlinkat
renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll unshare set_robust_list
get_robust_list splice tee sync_file_range vmsplice move_pages utimensat epoll_pwait signalfd
timerfd_create eventfd fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2
epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg
fanotify_init fanotify_mark prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs
sendmmsg setns getcpu process_vm_readv process_vm_writev kcmp finit_module sched_setattr
sched_getattr renameat2 seccomp getrandom memfd_create kexec_file_load bpf execveat userfaultfd
membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx
io_pgetevents rseq
@424 pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen
fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2
process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule
landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat
fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount
lsm_get_self_attr lsm_set_self_attr
"""
# What the C library calls them, where a test in the guest uses its name.
LIBC = {
    'rt_sigaction': 'sigaction', 'rt_sigprocmask': 'sigprocmask', 'pread64': 'pread',
    'pwrite64': 'pwrite', 'rt_sigpending': 'sigpending', 'rt_sigsuspend': 'sigsuspend',
    'rt_sigtimedwait': 'sigtimedwait', 'rt_sigqueueinfo': 'sigqueue', 'umount2': 'umount',
    'exit_group': '_exit', 'newfstatat': 'fstatat', 'wait4': 'waitpid', 'prlimit64': 'prlimit',
    'pselect6': 'pselect', 'clone': 'pthread_create', 'futex': 'pthread_mutex_lock',
    'eventfd2': 'eventfd', 'signalfd4': 'signalfd',
}
# Not of the guest kernel.
HOST_TESTS = ('daemon', 'image', 'initd', 'kvm', 'lint', 'rehearsal', 'fuzz', 'snapshot')

Call = collections.namedtuple('Call', 'number name state where notes words tests')


class Mistake(Exception):
    pass


def read(root, name):
    with open(os.path.join(root, name), encoding='utf-8') as f:
        return f.read()


def numbers():
    result, at = {}, 0
    for word in NAMES.split():
        if word[0] == '@':
            at = int(word[1:])
        else:
            result[word] = at
            at += 1
    return result


def c_files(root, top):
    for path, dirs, names in os.walk(os.path.join(root, top)):
        dirs.sort()
        for name in sorted(names):
            if name.endswith('.c'):
                yield os.path.relpath(os.path.join(path, name), root)


def code(text):
    """The text without comments."""
    return re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)


def find_implementations(root):
    """{name: file}, and the calls whose whole body is an answer of ENOSYS."""
    where, empty = {}, set()
    for name in c_files(root, 'guest-kernel'):
        text = code(read(root, name))
        for m in re.finditer(r'^SYSCALL\((\w+)', text, re.M):
            where[m[1]] = name
        for m in re.finditer(r'^SYSCALL\((\w+),[^{}]*\)\s*\{\s*return -ENOSYS;\s*\}', text, re.M):
            empty.add(m[1])
    return where, empty


def find_partial(root):
    """{call: [what]} of syscall_partial("call", "what", ...)."""
    result = collections.defaultdict(list)
    for name in c_files(root, 'guest-kernel'):
        for m in re.finditer(r'syscall_partial\(\s*"(\w+)",\s*"([^"]*)"', code(read(root, name))):
            if m[2] not in result[m[1]]:
                result[m[1]].append(m[2])
    return result


def read_notes(root):
    """{call: (text, [words])}"""
    result = {}
    for i, line in enumerate(read(root, NOTES).splitlines(), 1):
        line = line.strip()
        if not line or line[0] == '#':
            continue
        m = re.fullmatch(r'(\w+): ([^\[\]]+?)(?: \[([^\[\]]+)\])?', line)
        if not m or m[1] in result:
            raise Mistake(f'{NOTES}:{i}: not "name: what differs [WORDS]", or a second line')
        result[m[1]] = (m[2], (m[3] or '').split())
    return result


def find_tests(root, names):
    """{call: [test sources]}. Unit tests call sys_name(), programs in the guest name()."""
    result = collections.defaultdict(list)
    for path in c_files(root, 'tests'):
        parts = path.split('/')
        if parts[1] in HOST_TESTS or (parts[1] == 'unit' and not parts[2].startswith('kernel-')):
            continue
        text = code(read(root, path))
        if parts[1] == 'unit':
            used = set(re.findall(r'\bsys_(\w+)\(', re.sub(r'^\w[^;{=]*;', '', text, flags=re.M)))
        else:
            called = set(re.findall(r'(?<![\w.>])(\w+)\(', text))
            used = set(re.findall(r'\b(?:SYS_|__NR_)(\w+)', text))
            used |= {n for n in names if n in called or LIBC.get(n) in called}
        label = os.path.splitext('/'.join(parts[2 if parts[1] == 'unit' else 1:]))[0]
        for name in used:
            result[name].append(label)
    return result


def words_of(text):
    """What looks like a constant in the text of a syscall_partial()."""
    return re.findall(r'\b[A-Z][A-Z0-9]+_[A-Z0-9_]*[A-Z0-9]\b', text)


def load(root):
    """All calls by number. Raises Mistake if the sources contradict each other."""
    nr = numbers()
    have = re.findall(r'^X\((\w+)\)', read(root, 'guest-kernel/core/syscalls.def'), re.M)
    none = re.findall(r'^Y\((\w+), (\d+)\)',
                      read(root, 'guest-kernel/core/syscalls_none.def'), re.M)
    for name, number in none:
        if nr.get(name) != int(number):
            raise Mistake(f'syscalls_none.def: {name} is not number {number}')
    absent = [name for name, _ in none]
    for name, count in collections.Counter(have + absent).items():
        if count > 1:
            raise Mistake(f'{name} is more than once in syscalls.def and syscalls_none.def')
        if name not in nr:
            raise Mistake(f'{name} is not a call of Linux that tools/abi.py knows')
    for name in sorted(set(nr) - set(have) - set(absent)):
        raise Mistake(f'{name} is neither in syscalls.def nor in syscalls_none.def')

    where, empty = find_implementations(root)
    partial, notes = find_partial(root), read_notes(root)
    tests = find_tests(root, have)
    for name in sorted(set(partial) - set(have)):
        raise Mistake(f'syscall_partial() of {name}, which is not in syscalls.def')
    for name in sorted(set(notes) - set(nr)):
        raise Mistake(f'{NOTES}: there is no call {name}')
    calls = []
    for name, number in sorted(nr.items(), key=lambda item: item[1]):
        if name in absent:
            calls.append(Call(number, name, 'none', '', notes.get(name, ('',))[0], [], []))
            continue
        if name not in where:
            raise Mistake(f'{name}: no SYSCALL({name}, …) in guest-kernel/')
        text, words = notes.get(name, ('', []))
        words = words + [w for p in partial[name] for w in words_of(p) if w not in words]
        # What the source reports and the note does not say already.
        extra = [p for p in partial[name]
                 if not text or any(w not in notes[name][1] for w in words_of(p))]
        state = 'none' if name in empty else 'partial' if text or partial[name] else 'full'
        what = '; '.join(([text] if text else []) + ['not done: ' + p for p in extra])
        calls.append(Call(number, name, state, where[name], what, words, tests[name]))
    return calls


def document(calls):
    count = collections.Counter(c.state for c in calls)
    out = [
        '# The Linux ABI of the guest kernel',
        '',
        f'Made by `tools/abi.py`; do not edit. x86-64 system calls up to number {LAST}:'
        f' {count["full"]} full, {count["partial"]} partial, {count["none"]} not there.',
        '',
        '- **full**: nothing is known to differ from Linux 6.1 for a program in this VM.',
        '- **partial**: something differs, as said. Flags and commands that are not understood'
        ' answer what Linux answers for them, or what a Linux built without them does.',
        '- **none**: ENOSYS. The number is counted, and `casemate run --verbose` names it.',
        '',
        'Limits that are not of one call (one CPU, no network, memory-only files) are in'
        ' [CAVEATS.md](CAVEATS.md). Tests are the sources under `tests/` (`kernel-…`: under'
        ' `tests/unit/`) that make the call themselves; what the programs of the end-to-end'
        ' suites call is not counted. `tools/abi-trace` says what a given program would miss.',
        '',
        '| nr | call | | what differs | in `guest-kernel/` | tests |',
        '|---|---|---|---|---|---|',
    ]
    for c in calls:
        if c.where:
            what = c.notes if c.state != 'none' else 'answers ENOSYS' + (
                ': ' + c.notes if c.notes else '')
            out.append(f'| {c.number} | {c.name} | {c.state} | {what.replace("|", "/")} |'
                       f' {c.where[len("guest-kernel/"):]} | {", ".join(c.tests)} |')
    out += ['', '## Not there', '', 'These answer ENOSYS: '
            + ', '.join(f'{c.name} ({c.number})' for c in calls if not c.where)
            + '. Numbers between and beyond them answer the same.', '',
            'What is known about programs that ask for them:', '']
    out += [f'- {c.name}: {c.notes}' for c in calls if not c.where and c.notes] + ['']
    return '\n'.join(out)


def main(args):
    check = '--check' in args
    args = [a for a in args if a != '--check']
    root = args[0] if args else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        text = document(load(root))
    except Mistake as e:
        print(f'abi.py: {e}', file=sys.stderr)
        return 1
    if not check:
        with open(os.path.join(root, DOC), 'w', encoding='utf-8') as f:
            f.write(text)
        return 0
    if not os.path.exists(os.path.join(root, DOC)) or read(root, DOC) != text:
        print(f'{DOC} is not up to date: run tools/abi.py and commit it', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
