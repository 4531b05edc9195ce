#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""casemated with fake VMMs, and root images and places of snapshots on file systems that do not
answer, or late: nobody but who named them waits. As daemon_test.py; verify_test.py has snapshots
that are read."""
import os
import sys
import time

import fuse_stuck
from client import SCALE, eventually
from daemon_test import main, snapshot
from fuse_stuck import stuck

EROFS = bytes(1024) + bytes.fromhex('e2e1f5e0')


def image(d):
    return stuck(d, 1 << 20, content=EROFS)


def answers(c, tags):
    """The last line for each of the tags."""
    got = {}
    while set(got) != set(tags):
        line = c.line()
        if line.sign[0] in '+-':
            got[line.tag] = line
    return got


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


if __name__ == '__main__':
    sys.exit(main(globals()))
