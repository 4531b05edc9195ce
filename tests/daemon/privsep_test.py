#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The two processes of casemated, with fake VMMs: the engine's death, what it may say to the
parent, what rights engine and VMMs have. Cases and what they must leave are as in
daemon_test.py."""
import ctypes
import os
import random
import signal
import socket
import struct
import sys
import time

import daemon_test
from client import BUILD, SCALE, Refused, Skip, eventually, together

SPAWN, CHILD, KILL, STOP = 3, 4, 6, 8
PIDFD_GETFD = 438
ENGINE_FDS = 3          # the boundary is the first of them
LOST = (Refused, EOFError, OSError, TimeoutError)


def message(kind, flags=0, ident=0, of=0, memory=0, count=0, pid=0, error=0, status=0, text=b''):
    return struct.pack('<IIQQQIIii200s', kind, flags, ident, of, memory, count, pid, error,
                       status, text)


def boundary(d):
    """The engine's end of the boundary, to speak in its name."""
    pidfd = os.pidfd_open(d.engine())
    fd = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, pidfd, ENGINE_FDS, 0)
    os.close(pidfd)
    if fd < 0:
        raise Skip('cannot have another process\'s descriptor: '
                   + os.strerror(ctypes.get_errno()))
    return socket.socket(fileno=fd)


def status(pid):
    with open(f'/proc/{pid}/status') as f:
        return dict(line.rstrip('\n').split(':\t', 1) for line in f if ':\t' in line)


def need_root():
    if os.getuid() != 0:
        raise Skip('needs root, who may give users to others')


def cgroup(pid):
    with open(f'/proc/{pid}/cgroup') as f:
        for line in f:
            if line.startswith('0::'):
                return line[3:].strip()
    return '/'


def cgroups_left(d):
    """Groups of VMs of this daemon."""
    found = []
    state = os.stat(d.path + '.state')
    name = f'casemate-{state.st_dev:x}-{state.st_ino:x}'
    for mount in '/sys/fs/cgroup', '/sys/fs/cgroup/unified':
        top = os.path.join(mount, name, 'vms')
        if os.path.isdir(top):
            found += [x for x in os.listdir(top) if os.path.isdir(os.path.join(top, x))]
    return found


def engine_kill(d, how=signal.SIGKILL):
    """Returns when another one serves."""
    old = d.engine()
    os.kill(old, how)
    eventually(lambda: d.engine() not in (0, old), 'no new engine')


def restart_reason(d):
    c = d.client()
    c.ask('events since=0')
    event = c.next()
    assert event.words[1] == 'engine-restart' and event.words[0] == 'event=1', event
    return event['reason']


def case_engine_killed(d):
    """All VMs end, clients can connect again at once, and the event is there."""
    c = d.client()
    path = daemon_test.snapshot(d, c)
    c.ask(f'template add t file={path} target=3')
    c.ask('create name=a')
    c.ask('fork a count=3')
    c.ask('exec a -- flood 100000000')
    eventually(lambda: len(d.vmms()) >= 8, 'not all there')
    frozen = d.vmms()[-1]
    os.kill(frozen, signal.SIGSTOP)         # would not see its socket end
    before = set(d.vmms())
    os.kill(d.engine(), signal.SIGKILL)
    again = d.client()                      # waits for the next engine
    assert not before & set(d.vmms()), 'VMs of the dead engine go on'
    assert not again.ask('list').items
    assert 'signal 9' in restart_reason(d)
    assert again.ask('create name=a')['vm'] == 'a'
    assert again.run('a', 'echo', 'x')[0] == b'x\n'
    assert not cgroups_left(d) or len(cgroups_left(d)) == 1, cgroups_left(d)
    try:
        while True:
            c.next()
    except EOFError:
        pass


def case_engine_killed_at_random(d):
    """Whatever was under way: nothing is left, and the next engine serves."""
    stop = time.monotonic() + 8 * SCALE
    done = [0]

    def churn(seed):
        rng = random.Random(seed)
        while time.monotonic() < stop:
            try:
                c = d.client()
                name = c.ask('create')['vm']
                c.send(f'@f fork {name} count={rng.randint(1, 3)}\n'
                       f'exec {name} detach=yes -- flood 1000000\n'
                       f'@s snapshot {name} file={d.dir}/snap-{seed}\n')
                if rng.random() < 0.5:
                    c.run(name, 'echo', 'x')
                    c.ask('kill ' + name)
                c.close()
                done[0] += 1
            except LOST:
                time.sleep(0.01)
    rng = random.Random(3)
    kills = 0
    with together(churn, range(4)):
        while time.monotonic() < stop:
            # Long enough to be no row of short lives.
            time.sleep(1.1 + rng.random())
            engine_kill(d)
            kills += 1
    assert done[0] > 5 and kills > 2, (done, kills)
    engine_kill(d)
    c = d.client()
    assert not c.ask('list').items
    assert not d.vmms(), f'{d.vmms()} are left'
    eventually(lambda: not cgroups_left(d), f'groups are left: {cgroups_left(d)}')
    left = [f for f in os.listdir(d.dir) if f.startswith('.')]
    assert not left, left
    for f in os.listdir(d.dir):
        if f.startswith('snap-'):
            os.unlink(os.path.join(d.dir, f))


def case_engine_dies_again_and_again(d):
    """The parent gives up, says why, and leaves nothing."""
    d.client().ask('create name=a')
    stop = time.monotonic() + 30 * SCALE
    while d.process.poll() is None:
        assert time.monotonic() < stop, 'it never gives up'
        engine = d.engine()
        if engine:
            try:
                os.kill(engine, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
    assert d.process.returncode == 1
    assert 'giving up' in d.logged() and 'signal 9' in d.logged(), d.logged()


def case_stop_without_engine(d):
    """SIGTERM while an engine is being replaced."""
    for _ in range(3):
        engine_kill(d)
    os.kill(d.engine(), signal.SIGKILL)
    d.process.send_signal(signal.SIGTERM)
    d.process.wait(20 * SCALE)


case_engine_dies_again_and_again.ends = case_stop_without_engine.restarts = True


def case_parent_killed(d):
    """The engine does not outlive it."""
    c = d.client()
    c.ask('create name=a')
    engine = d.engine()
    d.kill()
    eventually(lambda: engine not in d.processes(), 'the engine goes on')
    eventually(lambda: not d.vmms(), 'a VM goes on')
    d.start()


def case_malformed_messages(d):
    """The parent ends an engine that breaks the rules, and says which."""
    good = dict(ident=7, memory=1 << 28)
    for n, (bad, fds, why) in enumerate((
            (b'x' * 10, 0, 'size'), (message(KILL, ident=1) + b'x', 0, 'size'),
            (message(0), 0, 'kind'), (message(99), 0, 'kind'), (message(STOP), 0, 'side'),
            (message(KILL), 0, 'no VM'), (message(KILL, ident=1, pid=5), 0, 'field'),
            (message(KILL, ident=1), 1, 'descriptors'),
            (message(SPAWN, **good), 0, 'descriptors'),
            (message(SPAWN, **good), 39, 'descriptors'),
            (message(SPAWN, count=33, **good), 34, 'snapshots'),
            (message(SPAWN, flags=8, **good), 1, 'flag'),
            (message(SPAWN, flags=2, **good), 1, 'held'),
            (message(SPAWN, ident=7, memory=1 << 60), 1, 'memory'),
            (message(SPAWN, text=b'/etc/passwd', **good), 1, 'field'),
            (message(CHILD, ident=7, of=7, pid=5, memory=1), 0, 'source'),
            (message(CHILD, ident=7, of=8, pid=1, memory=1), 0, 'process'))):
        # No row of short lives.
        if n % 4 == 0:
            time.sleep(1.1)
        old = d.engine()
        s = boundary(d)
        null = os.open('/dev/null', os.O_RDONLY)
        socket.send_fds(s, [bad], [null] * fds)
        os.close(null)
        s.close()
        eventually(lambda: d.engine() not in (0, old), f'{bad[:60]}: the engine goes on')
        reason = restart_reason(d)
        assert 'boundary' in reason and why in reason, (bad[:60], reason)


def case_false_claims(d):
    """What an engine in enemy hands could ask for, in well-formed messages."""
    c = d.client()
    c.ask('create name=a')
    c.ask('create name=b')
    numbers = [int(x['number']) for x in c.ask('list').items if 'number' in x.fields] or [1, 2]
    victim = d.vmms()[1]
    s = boundary(d)
    for pid in os.getpid(), victim, d.process.pid, d.engine(), 1 << 30:
        s.send(message(CHILD, ident=1000, of=numbers[0], memory=1 << 28, pid=pid))
        s.send(message(CHILD, ident=1001, of=999, memory=1 << 28, pid=pid))
        s.send(message(KILL, ident=1000))
        s.send(message(KILL, ident=1001))
    # A channel that is none, an image that is a directory.
    null, top = os.open('/dev/null', os.O_RDONLY), os.open('/', os.O_RDONLY)
    socket.send_fds(s, [message(SPAWN, ident=1002, memory=1 << 28)], [null])
    ours, theirs = socket.socketpair()
    socket.send_fds(s, [message(SPAWN, flags=1, ident=1003, memory=1 << 28)],
                    [theirs.fileno(), top])
    for fd in null, top:
        os.close(fd)
    theirs.close()
    s.close()
    # The engine hears of VMs that it does not know, and goes on.
    assert c.run('a', 'echo', 'x')[0] == b'x\n' and c.run('b', 'echo', 'x')[0] == b'x\n'
    assert len(d.vmms()) == 2 and not ours.recv(1)
    ours.close()


def case_engine_is_nobody(d):
    """Rights of the engine when root starts the daemon."""
    need_root()
    s = status(d.engine())
    assert s['Uid'].split() == ['65534'] * 4 and s['Gid'].split() == ['65534'] * 4, s
    for name in 'CapInh', 'CapPrm', 'CapEff', 'CapAmb':
        assert int(s[name], 16) == 0, (name, s[name])
    assert s['NoNewPrivs'] == '1', s['NoNewPrivs']
    with open(os.path.join(BUILD, 'casemated'), 'rb') as f:
        sanitized = b'__asan_init' in f.read()
    assert s['Seccomp'] == '2' or sanitized, s['Seccomp']
    assert set(s['Groups'].split()) <= {'65534'}, s['Groups']
    c = d.client()
    c.ask('create name=a')
    assert c.run('a', 'echo', 'x')[0] == b'x\n'
    # Files are opened with its rights, and the refusal says whose they are.
    secret = os.path.join(d.dir, 'secret')
    with open(secret, 'wb') as f:
        f.write(bytes(8192))
    os.chmod(secret, 0o600)
    assert 'nobody' in c.refused(f'create image={secret}', 'DENIED')
    assert 'nobody' in c.refused(f'snapshot a file={d.dir}/snap', 'DENIED')
    os.chmod(d.dir, 0o777)
    c.ask(f'snapshot a file={d.dir}/snap')
    assert os.stat(os.path.join(d.dir, 'snap')).st_uid == 65534
    c.ask(f'create name=b from={d.dir}/snap')
    assert c.run('b', 'echo', 'x')[0] == b'x\n'
    hello = c.ask('hello')
    assert hello['engine'] == 'nobody' and hello['confined'].startswith('jail,users'), hello
    # The parent keeps its rights.
    assert status(d.process.pid)['Uid'].split()[0] == '0'


case_engine_is_nobody.options = ('--user', 'nobody')


def case_vmms_are_apart(d):
    """User, root, network and control group of VMMs when root starts the daemon."""
    need_root()
    c = d.client()
    for name in 'abc':
        c.ask(f'create name={name}')
    uids = set()
    for pid in d.vmms():
        s = status(pid)
        uid = s['Uid'].split()
        assert uid == [uid[0]] * 4 == s['Gid'].split(), s
        assert 700000 <= int(uid[0]) < 700004, uid
        uids.add(uid[0])
        assert not s['Groups'].strip() and int(s['CapEff'], 16) == 0, s
        assert s['NoNewPrivs'] == '1'
        if 'dynamically' not in d.logged():
            assert os.readlink(f'/proc/{pid}/root') == d.path + '.state/root'
            assert not os.listdir(f'/proc/{pid}/root')
        if 'network namespace' not in d.logged():
            assert os.readlink(f'/proc/{pid}/ns/net') != os.readlink('/proc/self/ns/net')
    assert len(uids) == 3, uids
    # A family has one user, and it is not given away while one of them lives.
    c.ask('fork a count=2')
    c.ask('kill a')
    c.ask('create name=d')
    c.refused('create name=e', 'FAILED')
    by_uid = {}
    for pid in d.vmms():
        by_uid.setdefault(status(pid)['Uid'].split()[0], []).append(pid)
    assert sorted(map(len, by_uid.values())) == [1, 1, 1, 2], by_uid
    c.ask('kill d')
    c.ask('create name=e')
    if 'no control groups' not in d.logged():
        groups = {cgroup(pid) for pid in d.vmms()}
        assert len(groups) == len(d.vmms()) and all('/vms/' in g for g in groups), groups


case_vmms_are_apart.options = ('--vm-uids', '700000:4')


if __name__ == '__main__':
    sys.exit(daemon_test.main(globals()))
