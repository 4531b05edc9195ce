#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""casemated with fake VMMs, and root images and places of snapshots on file systems that do not
answer, or late: nobody but who named them waits. As daemon_test.py; verify_test.py has snapshots
that are read."""
import os
import signal
import sys
import time

import fuse_stuck
from client import SCALE, eventually
from daemon_test import main, snapshot
from fuse_stuck import stuck
from verify_test import answers, threads

EROFS = bytes(1024) + bytes.fromhex('e2e1f5e0')


def image(d):
    return stuck(d, 1 << 20, content=EROFS)


def others_go_on(d, name):
    began = time.monotonic()
    c = d.client()
    c.ask(f'create name={name}')
    assert c.run(name, 'echo', 'x')[0] == b'x\n'
    c.ask('list usage=yes')
    c.ask(f'kill {name}')
    c.close()
    assert time.monotonic() - began < 5 * SCALE, 'others wait'


def case_image(d):
    """Late, and good all the same; the places of its kind are taken meanwhile, no others."""
    slow, c = image(d), d.client()
    try:
        c.send(''.join(f'@{i} create name=a{i} image={slow.path}\n' for i in range(9)))
        eventually(lambda: slow.held > 0, 'nobody reads')
        others_go_on(d, 'b')
        assert not d.client().ask('list').items
        slow.go()
        got = answers(c, '012345678')
        assert all(line.sign == '+' for line in got.values()), got
        assert len(c.ask('list').items) == 9
        # Both are let in; one comes to have the name.
        slow.hang = (fuse_stuck.OPEN,)
        c.send(f'@x create name=x image={slow.path}\n@y create name=x image={slow.path}\n'
               '@z create name=a0\n')
        assert answers(c, 'z')['z'].sign == '-EXISTS'
        eventually(lambda: slow.held == 2, 'nobody opens')
        slow.go()
        assert sorted(line.sign for line in answers(c, 'xy').values()) == ['+', '-EXISTS']
        for vm in c.ask('list').items:
            c.ask(f'kill {vm["vm"]}')
    finally:
        slow.end()


def case_image_of_one_who_leaves(d):
    """What is given up makes no VM, and its place is another's at once."""
    slow, c = image(d), d.client()
    try:
        for text in 'create name=a', '@x create name=a', '@x create name=a bound=yes':
            others = [d.client() for _ in range(6)]
            for other in others:
                other.send(f'{text} image={slow.path}\n')
            eventually(lambda: slow.held > 0, 'nobody reads')
            for other in others:
                other.close()
        c.send(f'@c create name=c image={slow.path}\n')
        time.sleep(0.3)
        slow.go()
        assert answers(c, 'c')['c'].sign == '+'
        time.sleep(0.3)
        assert [vm['vm'] for vm in c.ask('list').items] == ['c'] and len(d.vmms()) == 1
    finally:
        slow.end()


def case_image_that_dies(d):
    dead, c = image(d), d.client()
    try:
        c.send(f'@a create image={dead.path}\n@b create image={dead.path}\n')
        eventually(lambda: dead.held > 0, 'nobody reads')
    finally:
        dead.end()
    got = answers(c, 'ab')
    assert all(line.sign[0] == '-' for line in got.values()), got
    others_go_on(d, 'b')


def case_default_image(d):
    """All but plain VMs go on; and those with an image of their own."""
    c = d.client()
    c.ask(f'template add t file={snapshot(d, c)} hold=no target=1')
    dead = image(d)
    try:
        good, default = os.path.join(d.dir, 'good'), os.path.join(d.dir, 'image')
        os.rename(default, good)
        os.symlink(dead.path, default)
        c.send(''.join(f'@{i} create\n' for i in range(6)))
        eventually(lambda: dead.held > 0, 'nobody reads')
        other = d.client()
        other.ask(f'create name=a image={good}')
        other.ask('create name=b template=t')
        assert other.run('a', 'echo', 'x')[0] == b'x\n'
        other.close()
        dead.go()
        got = answers(c, '012345')
        assert all(line.sign == '+' for line in got.values()), got
    finally:
        dead.end()


def case_images_that_are_too_many(d):
    dead, c = image(d), d.client()
    try:
        others = [d.client() for _ in range(2)]
        for other in others:
            other.send(''.join(f'@{i} create image={dead.path}\n' for i in range(200)))
        busy = 0
        while busy < 400 - 256:
            line = others[1].line()
            assert line.sign == '-BUSY' and float(line['retry-after']) > 0, line
            busy += 1
        others_go_on(d, 'b')
        for other in others:
            other.close()
        eventually(lambda: c.ask('pool status')['clients'] == '1', 'clients are left')
        c.send(f'@a create image={dead.path}\n')
        dead.go()
        assert answers(c, 'a')['a'].sign == '+'
    finally:
        dead.end()


def case_stop_while_an_image_hangs(d):
    dead = image(d)
    try:
        c = d.client()
        c.send(f'@a create image={dead.path}\n')
        eventually(lambda: dead.held > 0, 'nobody reads')
        c.send('@s stop\n')
        assert answers(c, 'as')['a'].sign == '-DRAINING'
    finally:
        dead.end()
    assert d.process.wait(20 * SCALE) == 0


def saving(d, *hang):
    """A file system that hangs at these requests, and a VM to be saved to it. The host's kernel
    asks for one change of a directory at a time; others wait for that."""
    c = d.client()
    c.ask('create name=a')
    return stuck(d, 4096, hang=hang), c


def save_begin(c, slow, why):
    """A snapshot that hangs there, which c will be told of with the tag a."""
    c.send(f'@a snapshot a file={slow.directory}/snap\n')
    eventually(lambda: slow.held == 1, why)


def left(slow):
    """Names there but for the first."""
    return [name for name in slow.names if name != b'file']


def case_place(d):
    """Making the file takes long; then it is saved, and is good."""
    slow, c = saving(d, fuse_stuck.CREATE)
    try:
        path = os.path.join(slow.directory, 'snap')
        save_begin(c, slow, 'nobody makes a file')
        other = d.client()
        assert other.run('a', 'echo', 'x')[0] == b'x\n'
        assert 'saving' not in other.ask('info a').fields
        other.ask(f'snapshot a file={d.dir}/snap track=yes')
        other.close()
        others_go_on(d, 'b')
        slow.go()
        got = answers(c, 'a')
        assert got['a'].sign == '+' and got['a']['file'] == path, got
        assert left(slow) == [b'snap'], slow.names
        c.ask(f'create name=c from={path}')
        assert c.run('c', 'echo', 'x')[0] == b'x\n'
        assert 'an increment never' in c.refused(f'snapshot a file={path} incremental=yes',
                                                 'EXISTS')
        for vm in 'ac':
            c.ask(f'kill {vm}')
    finally:
        slow.end()


def case_place_of_one_who_leaves(d):
    """Nothing is saved, and no file is left."""
    slow, c = saving(d, fuse_stuck.CREATE)
    try:
        before = threads(d)
        others = [d.client() for _ in range(6)]
        for i, other in enumerate(others):
            other.send(f'{"@x " * (i % 2)}snapshot a file={slow.directory}/{i}\n')
        eventually(lambda: slow.held == 1 and threads(d) >= before + 4, 'nobody makes a file')
        for other in others:
            other.close()
        eventually(lambda: c.ask('pool status')['clients'] == '1', 'clients are left')
        # Its place is another's.
        c.send(f'@a snapshot a file={slow.directory}/snap\n')
        eventually(lambda: threads(d) > before + 4, 'nobody makes a file')
        slow.go()
        assert answers(c, 'a')['a'].sign == '+'
        eventually(lambda: left(slow) == [b'snap'], f'{slow.names}')
        text = c.ask('metrics').chunk.decode()
        assert '\ncasemate_snapshots_total 1\n' in text, 'it was saved for nobody'
    finally:
        slow.end()


def case_place_and_the_vm_ends(d):
    slow, c = saving(d, fuse_stuck.CREATE)
    try:
        save_begin(c, slow, 'nobody makes a file')
        d.client().ask('kill a')
        assert answers(c, 'a')['a'].sign == '-LOST'
        slow.go()
        eventually(lambda: slow.names.keys() == {b'file'}, f'{slow.names}')
    finally:
        slow.end()


def case_name(d):
    """The file is whole, and its name takes long: it comes, whoever is there and whatever ends."""
    slow, c = saving(d, *fuse_stuck.RENAMES)
    before = threads(d)
    try:
        c.send(f'@a snapshot a file={slow.directory}/snap\n')
        other = d.client()
        other.send(f'snapshot a file={slow.directory}/other\n')
        eventually(lambda: slow.held == 1 and threads(d) >= before + 2, 'nobody gives it a name')
        other.close()
        others_go_on(d, 'b')
        c.send('@k kill a\n')
        assert answers(c, 'k')['k'].sign == '+'
        c.send('@s stop\n')
        time.sleep(1)
        assert d.process.poll() is None, 'it did not wait'
        slow.go()
        got = answers(c, 'as')
        assert got['a'].sign == got['s'].sign == '+', got
        assert d.process.wait(20 * SCALE) == 0
        assert sorted(left(slow)) == [b'other', b'snap'], slow.names
    finally:
        slow.end()


def case_name_that_never_comes(d):
    dead, c = saving(d, *fuse_stuck.RENAMES)
    try:
        save_begin(c, dead, 'nobody gives it a name')
        c.ask(f'snapshot a file={d.dir}/snap')
    finally:
        dead.end()
    assert answers(c, 'a')['a'].sign[0] == '-'
    others_go_on(d, 'b')


def case_undo(d):
    """The VM dies while it writes: what there is of the file is taken away, late."""
    slow, c = saving(d, fuse_stuck.UNLINK)
    try:
        pid = int(c.ask('info a')['pid'])
        os.kill(pid, signal.SIGSTOP)
        c.send(f'@a snapshot a file={slow.directory}/snap\n')
        other = d.client()
        eventually(lambda: 'saving' in other.ask('info a').fields, 'nothing is saved')
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: slow.held == 1, 'it is not taken away')
        others_go_on(d, 'b')
        slow.go()
        assert answers(c, 'a')['a'].sign == '-LOST' and not left(slow), slow.names
    finally:
        slow.end()


def case_places_that_are_too_many(d):
    dead, c = saving(d, fuse_stuck.CREATE)
    try:
        others = [d.client() for _ in range(2)]
        for other in others:
            other.send(''.join(f'@{i} snapshot a file={dead.directory}/{i}\n'
                               for i in range(200)))
        for _ in range(400 - 256):
            line = others[1].line()
            assert line.sign == '-BUSY' and float(line['retry-after']) > 0, line
        others_go_on(d, 'b')
        for other in others:
            other.close()
        eventually(lambda: c.ask('pool status')['clients'] == '1', 'clients are left')
        dead.go()
        c.ask(f'snapshot a file={dead.directory}/snap')
        eventually(lambda: left(dead) == [b'snap'], f'{dead.names}')
    finally:
        dead.end()


def case_stop_while_a_place_hangs(d):
    dead, c = saving(d, fuse_stuck.CREATE)
    try:
        save_begin(c, dead, 'nobody makes a file')
        c.send('@s stop\n')
        got = answers(c, 'as')
        assert got['a'].sign == '-LOST' and got['s'].sign == '+', got
    finally:
        dead.end()
    assert d.process.wait(20 * SCALE) == 0


if __name__ == '__main__':
    sys.exit(main(globals()))
