#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""VMs that stand still by VM_PAUSE, and go on. As fork_test.py."""
import os
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from fork_test import COUNTER, boot, count, finish, main, restore, resumed  # noqa: E402
from vmm_client import (CREDIT, EXIT, RUNNING, STDIN, STDOUT, VM_CONTINUE,  # noqa: E402
                        VM_PAUSE)

SCALE = float(os.environ.get('CASEMATE_TIME_SCALE', '1'))
CLOCKS = ('sh', '-c', 'while read x; do cut -d" " -f1 /proc/uptime; date +%s; done; exit 9')


def is_silent(vm, seconds):
    try:
        frame = vm.step(time.monotonic() + seconds)
        raise AssertionError(f'a paused VM says {frame}')
    except TimeoutError:
        pass


def clocks(vm):
    """(monotonic, time of day, the host's monotonic before and after)"""
    vm.out[1] = b''
    before = time.monotonic()
    vm.send(STDIN, 1, b'\n')
    while vm.out[1].count(b'\n') < 2:
        vm.step()
    uptime, date = vm.out[1].split()
    return float(uptime), int(date), before, time.monotonic()


def test_clocks():
    """The monotonic clock is where it stopped, the time of day is right."""
    vm = boot()
    vm.exec(1, *CLOCKS)
    for pause in 3, 0:
        uptime, _, before, _ = clocks(vm)
        vm.stand(VM_PAUSE)
        time.sleep(pause)
        stood = vm.stand(VM_CONTINUE) / 1e9
        assert stood >= pause, stood
        again, date, _, after = clocks(vm)
        assert 0 <= again - uptime <= after - before - stood + 0.02, \
            f'{again - uptime} s went by in {after - before}, of which it stood {stood}'
        assert abs(date - time.time()) <= 1 + 2 * SCALE, f'{date}, and it is {time.time()}'
    finish(vm)


def test_timers():
    """One that would have been due in the pause, one after it, and a counting process."""
    vm = boot()
    vm.exec(1, 'sh', '-c', 'echo; sleep 2; echo woken; exit 9')
    vm.exec(2, 'sh', '-c', 'n=0; while :; do echo $((n += 1)); sleep 0.2; done', flags=0)
    vm.wait_out(1, b'\n')
    vm.wait_out(2, b'3\n')
    vm.stand(VM_PAUSE)
    vm.frames.clear()
    before = dict(vm.out)
    is_silent(vm, 3)
    went = time.monotonic()
    vm.stand(VM_CONTINUE)
    vm.wait_out(1, b'woken\n')
    vm.wait(EXIT, 1)
    took = time.monotonic() - went
    assert took <= 2 + 2 * SCALE, f'the sleep took {took} s more'
    assert vm.out[1] == before[1] + b'woken\n'
    while len(vm.out[2]) < len(before[2]) + 6:
        vm.step()
    lines = vm.out[2].split()
    assert lines == [b'%d' % n for n in range(1, len(lines) + 1)], lines
    vm.close()


def test_input_waits():
    vm = boot()
    vm.exec(1, *COUNTER)
    count(vm, 1, b'x')
    vm.stand(VM_PAUSE)
    vm.stand(VM_PAUSE)
    vm.out.clear()
    for n in range(1000):
        vm.send(STDIN, 1, b'%d\n' % n)
    is_silent(vm, 1)
    vm.stand(VM_CONTINUE)
    vm.stand(VM_CONTINUE)
    vm.wait_out(1, b'1001 999\n')
    assert vm.out[1] == b''.join(b'%d %d\n' % (n + 2, n) for n in range(1000))
    finish(vm)


def test_saved_and_forked_while_paused():
    vm = boot('--snapshots')
    vm.exec(1, *COUNTER)
    count(vm, 1, b'x')
    vm.stand(VM_PAUSE)
    (child,), _ = vm.fork(1)
    count(resumed(child), 2, b'child')
    with tempfile.TemporaryFile() as file:
        vm.save(file.fileno())
        again = resumed(restore([file.fileno()]))
        count(again, 2, b'restored')
        # What came of a pause may be paused.
        for one in again, child:
            one.stand(VM_PAUSE)
            one.stand(VM_CONTINUE)
        finish(again)
    is_silent(vm, 1)
    vm.stand(VM_CONTINUE)
    count(vm, 2, b'source')
    finish(child)
    finish(vm)


def test_moved_in_the_middle_of_output():
    """Paused, saved, ended and restored: each byte comes once, wherever it was."""
    vm = boot('--snapshots')
    vm.exec(1, 'sh', '-c', 'seq 1 60000; read x; exit 9')
    whole = b''.join(b'%d\n' % n for n in range(1, 60001))
    got = b''
    for stop in 100000, 200000, 280000:
        while len(got) + len(vm.out.get(1, b'')) < stop:
            kind, ident, payload, _ = vm.step()
            counted = not got or any(f[0] == RUNNING for f in vm.frames)
            if kind == STDOUT and payload and counted:
                vm.send(CREDIT, ident, struct.pack('<II', kind, len(payload)))
        vm.stand(VM_PAUSE)
        with tempfile.TemporaryFile() as file:
            vm.save(file.fileno())
            got += vm.out[1]
            is_silent(vm, 0.2)
            vm.close()
            vm = restore([file.fileno()], '--snapshots')
            vm.out[1] = b''
    while not vm.out[1].endswith(b'\n60000\n'):
        kind, ident, payload, _ = vm.step()
        if kind == STDOUT and payload and any(f[0] == RUNNING for f in vm.frames):
            vm.send(CREDIT, ident, struct.pack('<II', kind, len(payload)))
    got += vm.out[1]
    assert got == whole, f'{len(got)} bytes of {len(whole)}'
    finish(vm)


def test_ends():
    """A paused VM ends with its client."""
    for _ in range(2):
        vm = boot()
        vm.exec(1, 'sh', '-c', 'while :; do :; done')
        vm.stand(VM_PAUSE)
        vm.close()
    # A busy one that is told to pause when its client leaves.
    vm = boot()
    vm.exec(1, 'sh', '-c', 'while :; do :; done')
    vm.send(VM_PAUSE)
    vm.close()


if __name__ == '__main__':
    sys.exit(main(globals()))
