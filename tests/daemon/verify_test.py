#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""casemated with fake VMMs: big, damaged, changing and unreachable snapshot files are opened and
verified beside everything else. As daemon_test.py."""
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

from client import BUILD, SCALE, Skip, eventually, together
from daemon_test import main, snapshot
from fuse_stuck import stuck

MIB = 256       # of a file that takes long enough to be caught at it


def threads(d):
    return len(os.listdir(f'/proc/{d.engine()}/task'))


def big(d, name='big', mib=MIB):
    d.calm = threads(d)
    path = os.path.join(d.dir, name)
    subprocess.run([os.path.join(BUILD, 'tests/snapshot/snapshot-gen'), 'noise', path, str(mib),
                    '7'], check=True)
    return path


def metric(c, name):
    text = c.ask('metrics').chunk.decode()
    return int(next(line for line in text.splitlines()
                    if line.startswith(f'casemate_snapshots_{name} ')).split()[1])


def quiet(d, c):
    """Nothing is being verified, and no thread more than before is left."""
    eventually(lambda: metric(c, 'verifying') == 0 and threads(d) <= d.calm,
               'work goes on')


def answers(c, tags):
    """The last line for each of the tags."""
    got = {}
    while set(got) != set(tags):
        line = c.line()
        if line.sign[0] in '+-':
            got[line.tag] = line
    return got


def case_others_go_on(d):
    """200 clients are answered and VMs leased while files are verified."""
    c, adder = d.client(), d.client()
    c.ask(f'template add small file={snapshot(d, c)} target=4')
    paths = [big(d, 'one', 2 * MIB), big(d, 'two', 2 * MIB)]
    gaps, stop = [], threading.Event()
    others = [d.client() for _ in range(200)]

    def ask(some):
        while not stop.is_set():
            for other in some:
                began = time.monotonic()
                other.ask('list')
                gaps.append(time.monotonic() - began)
            time.sleep(0.01)
    with together(ask, [others[:100], others[100:]]):
        try:
            time.sleep(0.3)
            gaps.clear()
            began = time.monotonic()
            adder.send(f'@0 template add a file={paths[0]} hold=no\n'
                       f'@1 template add b file={paths[1]} hold=no\n')
            leases = 0
            while leases < 5:
                c.ask(f'kill {c.ask("create template=small")["vm"]}')
                leases += 1
            verifying = metric(c, 'verifying')
            assert all(a.sign == '+' for a in answers(adder, '01').values())
            took = time.monotonic() - began
        finally:
            stop.set()
    gaps.sort()
    print(f'# {took:.3f} s, {leases} leases in it (verifying {verifying}), {len(gaps)} answers: '
          f'median {gaps[len(gaps) // 2]:.4f} s, longest {gaps[-1]:.4f} s')
    assert metric(c, 'verified_total') == 2
    # One that waited for a file would have waited for all of it.
    assert gaps[len(gaps) // 2] < 0.05 * SCALE and gaps[len(gaps) * 99 // 100] < 0.2 * SCALE
    for other in others:
        other.close()


def case_verified_once(d):
    c, path = d.client(), big(d)
    c.ask(f'template add t file={path} hold=no')
    for i in range(3):
        c.ask(f'create name=v{i} from={path}')
        c.ask(f'template add t{i} file={path} hold=no')
    assert metric(c, 'verified_total') == 1
    # One byte of memory, and the file's times with it.
    with open(path, 'r+b') as f:
        f.seek(-1, os.SEEK_END)
        byte = f.read(1)[0]
        f.seek(-1, os.SEEK_END)
        f.write(bytes([byte ^ 1]))
    assert 'memory from 0x' in c.refused(f'create from={path}', 'ARGUMENT')
    assert 'damaged' in c.refused(f'template add t file={path} replace=yes', 'ARGUMENT')
    assert len(c.ask('template list').items) == 4, 'what was there is gone'
    assert metric(c, 'verified_total') == 1


def case_verified_once_without_marks(d):
    """Where no mark can be put on the file, the daemon remembers."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = os.path.join(d.dir, 'plain')
    os.mkdir(place)
    if libc.mount(b'plain', place.encode(), b'ramfs', 0, None) < 0:
        raise Skip('cannot mount a ramfs: ' + os.strerror(ctypes.get_errno()))
    try:
        c, path = d.client(), big(d, 'plain/big', 32)
        time.sleep(3.2)         # a file that was just written is not remembered
        for i in range(3):
            c.ask(f'template add t{i} file={path} hold=no')
        assert metric(c, 'verified_total') == 1
        os.chmod(path, 0o644)   # may be any change
        c.ask(f'template add t3 file={path} hold=no')
        assert metric(c, 'verified_total') == 2
        for i in range(4):
            c.ask(f'template remove t{i}')
        quiet(d, c)
    finally:
        libc.umount2(place.encode(), 2)


def case_200_of_one_file(d):
    """Who wants the same file waits for the same verification."""
    path = big(d)
    clients = [d.client() for _ in range(200)]
    names = []

    def one(client):
        names.append(client.ask(f'create from={path}')['vm'])
    with together(one, clients):
        pass
    assert len(set(names)) == 200
    assert metric(clients[0], 'verified_total') == 1
    for client in clients:
        client.close()


def case_add_remove_add(d):
    c, path = d.client(), big(d)
    c.send(f'@a template add t file={path} hold=no\n@d template add t file={path}\n'
           f'@r template remove t\n@b template add t file={path} hold=no target=0 max=3\n')
    got = answers(c, 'adrb')
    assert [got[t].sign for t in 'adrb'] == ['-STATE', '-EXISTS', '+', '+'], got
    t, = c.ask('template list').items
    assert t['max'] == '3'
    # The last of those that replace is the one that is there.
    os.removexattr(path, 'user.casemate.verified')
    c.send(''.join(f'@{i} template add t file={path} hold=no replace=yes max={i}\n'
                   for i in range(1, 6)))
    got = answers(c, '12345')
    assert [got[t].sign for t in '12345'] == ['-STATE'] * 4 + ['+'], got
    assert c.ask('template list').items[0]['max'] == '5'
    c.ask('template remove t')
    c.refused('template remove t', 'NOTFOUND')
    c.refused('template remove', 'NOTFOUND')
    quiet(d, c)


def case_client_lost(d):
    c, path = d.client(), big(d)
    for text in (f'template add t file={path}', f'create from={path}',
                 f'@x template add t file={path}\n@y create from={path}'):
        other = d.client()
        other.send(text + '\n')
        eventually(lambda: metric(c, 'verifying') == 1, 'nothing is verified')
        other.close()
        quiet(d, c)
        assert not c.ask('template list').items and not c.ask('list').items
    assert metric(c, 'verified_total') == 0, 'it was verified to the end'
    # One that others wait for goes on without the one who left.
    other = d.client()
    other.send(f'create from={path}\n')
    c.send(f'@a template add t file={path} hold=no\n')
    time.sleep(0.02)
    other.close()
    assert answers(c, 'a')['a'].sign == '+'


def case_stop(d):
    c, path = d.client(), big(d, mib=2 * MIB)
    c.send(f'@a template add t file={path}\n@b create from={path}\n@s stop\n')
    got = answers(c, 'abs')
    assert [got[t].sign for t in 'abs'] == ['-DRAINING', '-DRAINING', '+'], got
    assert d.process.wait(20 * SCALE) == 0


def case_killed(d):
    """Engine and daemon die with work under way: nothing is left of it."""
    c, path = d.client(), big(d)
    c.send(f'@a template add t file={path}\n')
    os.kill(d.engine(), signal.SIGKILL)
    c = d.client()
    assert not c.ask('template list').items
    c.ask(f'template add t file={path} hold=no')


case_killed.restarts = True


def case_changed_meanwhile(d):
    c, other, path = d.client(), d.client(), big(d)
    c.send(f'@a template add t file={path}\n')
    eventually(lambda: metric(other, 'verifying') == 1, 'nothing is verified')
    os.utime(path)
    assert 'was changed while' in repr(answers(c, 'a')['a'])
    c.send(f'@a template add t file={path}\n')
    eventually(lambda: metric(other, 'verifying') == 1, 'nothing is verified')
    os.truncate(path, 4096)
    assert answers(c, 'a')['a'].sign[0] == '-'
    os.unlink(path)
    c.refused(f'template add t file={path}', 'NOTFOUND')
    # Replaced by name: what was opened is what is verified and used.
    path = big(d, mib=64)
    small = snapshot(d, c)
    c.send(f'@a template add t file={path} hold=no\n')
    eventually(lambda: metric(other, 'verifying') == 1 or
               other.ask('template list').items, 'nothing is verified')
    os.rename(small, path)
    assert answers(c, 'a')['a'].sign == '+'
    assert c.ask('template list').items[0]['mem'] == str(64 << 20)


def case_queue(d):
    """More than can wait are refused at once and told so; the others are served."""
    path = big(d)
    clients = [d.client() for _ in range(2)]
    for client in clients:
        client.send(''.join(f'@{i} template add t{i} file={path} hold=no replace=yes\n'
                            if i == 0 else f'@{i} create from={path}\n' for i in range(200)))
    signs = []
    for client in clients:
        got = answers(client, [str(i) for i in range(200)])
        for line in got.values():
            signs.append(line.sign)
            assert line.sign != '-BUSY' or float(line['retry-after']) > 0
    assert set(signs) <= {'+', '-BUSY', '-STATE'}, set(signs)
    assert signs.count('-BUSY') >= 400 - 256 - 1, signs.count('-BUSY')
    assert signs.count('+') >= 200, signs.count('+')
    clients[0].ask(f'create from={path}')


def case_file_system_hangs(d):
    c, path = d.client(), big(d, mib=32)
    dead = stuck(d, 1 << 20)
    try:
        waiting = [d.client() for _ in range(6)]
        for i, other in enumerate(waiting):
            other.send(f'template add x{i} file={dead.path}\n')
        eventually(lambda: dead.held > 0 and threads(d) >= d.calm + 4, 'nobody reads')
        began = time.monotonic()
        c.ask('create name=a')
        assert c.run('a', 'echo', 'x')[0] == b'x\n'
        # All places are taken, until somebody leaves.
        c.send(f'@t template add t file={path} hold=no\n')
        for other in waiting:
            other.close()
        assert answers(c, 't')['t'].sign == '+'
        assert time.monotonic() - began < 10 * SCALE
    finally:
        dead.end()
    quiet(d, c)


def case_stop_while_it_hangs(d):
    """A thread that the host's kernel does not let go of does not keep the daemon."""
    dead = stuck(d, 1 << 20)
    try:
        c = d.client()
        c.send(f'template add t file={dead.path}\n')
        eventually(lambda: dead.held > 0, 'nobody reads')
        d.process.send_signal(signal.SIGTERM)
        assert d.process.wait(40 * SCALE) == 1
        assert 'hangs in the host' in d.logged()
    finally:
        dead.end()


if __name__ == '__main__':
    sys.exit(main(globals()))
