#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Forks and saves running VMs by the VMM's own frames, and looks at source and children.
   fork_test.py BUILD-DIRECTORY [CASE...]
The root image is $CASEMATE_TEST_IMAGE, or the build's own.
"""
import os
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from vmm_client import (CREDIT, EXEC_STDIN, EXIT, RUNNING, SAVE_INCREMENTAL,  # noqa: E402
                        SAVE_TRACK, STDIN, VM_BOOTED, Gone, Programs)

programs = Programs(sys.argv[1])
restore = programs.restore
COUNTER = ('sh', '-c', 'n=0; while read line; do n=$((n + 1)); echo "$n $line"; done; exit 9')


def boot(*options):
    return programs.boot(64 << 20, *options)


def resumed(vm, ident=1):
    """The exec that goes on, as a new client sees it."""
    _, _, payload, flags = vm.wait(RUNNING, ident)
    vm.wait(VM_BOOTED)
    vm.out.clear()
    assert flags == EXEC_STDIN, flags
    pid, credit = struct.unpack('<II', payload)
    assert pid > 1 and 0 < credit <= 262144, (pid, credit)
    return vm


def count(vm, number, word, ident=1):
    vm.send(STDIN, ident, word + b'\n')
    vm.wait_out(ident, b'%d %s\n' % (number, word))


def finish(vm, ident=1):
    vm.send(STDIN, ident)
    _, _, payload, _ = vm.wait(EXIT, ident)
    assert struct.unpack_from('<I', payload)[0] == 9 << 8
    vm.close()


def test_children_go_their_own_ways():
    source = boot('--snapshots')
    source.exec(1, *COUNTER)
    count(source, 1, b'both')
    children, _ = source.fork(3)
    for i, child in enumerate(children):
        resumed(child)
        for n in range(i + 1):
            count(child, 2 + n, b'child')
    count(source, 2, b'source')
    # A child of a child, while the source goes on.
    grandchildren, _ = children[2].fork(1)
    count(resumed(grandchildren[0]), 5, b'grandchild')
    count(children[2], 5, b'child')
    for vm in (*grandchildren, *children, source):
        finish(vm)


def test_source_may_end_first():
    source = boot('--snapshots')
    source.exec(1, *COUNTER)
    count(source, 1, b'x')
    (child,), _ = source.fork(1)
    resumed(child)
    source.close()
    count(child, 2, b'y')
    # A new exec besides, with another id.
    child.exec(2, 'sh', '-c', 'echo new; exit 4', flags=0)
    child.wait_out(2, b'new\n')
    _, _, payload, _ = child.wait(EXIT, 2)
    assert struct.unpack_from('<I', payload)[0] == 4 << 8
    finish(child)


def test_random_numbers_differ():
    source = boot('--snapshots')
    children, _ = source.fork(3)
    seen = set()
    for vm in (source, *children):
        if vm is not source:
            vm.wait(VM_BOOTED)
        vm.exec(1, 'sh', '-c', 'cat /proc/sys/kernel/random/boot_id; '
                'head -c 16 /dev/urandom | od -An -tx1; echo end', flags=0)
        vm.wait_out(1, b'end\n')
        seen.update(vm.out[1].splitlines()[:2])
        vm.close()
    assert len(seen) == 8, seen


def test_output_under_way():
    """Forked in the middle of a flood: each child's output goes on without a gap."""
    source = boot('--snapshots')
    source.exec(1, 'sh', '-c', 'seq 1 60000; read x; exit 9')
    while len(source.out.get(1, b'')) < 100000:
        source.step()
    (child,), _ = source.fork(1)
    whole = b''.join(b'%d\n' % n for n in range(1, 60001))
    for vm in (source, child):
        while not vm.out.get(1, b'').endswith(b'\n60000\n'):
            kind, ident, payload, _ = vm.step()
            # What came before RUNNING costs no credit.
            counted = vm is source or any(f[0] == RUNNING for f in vm.frames)
            if kind == 5 and payload and counted:
                vm.send(CREDIT, ident, struct.pack('<II', kind, len(payload)))
        assert whole.endswith(vm.out[1]), 'a gap, or something twice'
        finish(vm)
    assert source.out[1] == whole


def test_saved_while_running():
    source = boot('--snapshots')
    source.exec(1, *COUNTER)
    count(source, 1, b'x')
    with tempfile.TemporaryFile() as file:
        source.save(file.fileno())
        count(source, 2, b'source')
        finish(source)
        for _ in range(2):
            vm = resumed(restore([file.fileno()]))
            count(vm, 2, b'restored')
            finish(vm)
        # Held: it does not run, and its children start from the same state.
        held = restore([file.fileno()], '--hold')
        for _ in range(2):
            children, _ = held.fork(2)
            for child in children:
                count(resumed(child), 2, b'lease')
                finish(child)
        held.close()


def test_increments():
    """A chain saved from one running VM: each link restores to what it was then."""
    source = boot('--snapshots')
    source.exec(1, *COUNTER)
    files = [tempfile.TemporaryFile() for _ in range(4)]
    fds = [f.fileno() for f in files]
    for number, fd in enumerate(fds):
        count(source, 1 + number, b'x')
        source.save(fd, SAVE_INCREMENTAL if number else SAVE_TRACK)
    sizes = [os.fstat(fd).st_blocks for fd in fds]
    assert max(sizes[1:]) < sizes[0], sizes
    # One that fails in between loses nothing.
    with open('/dev/full', 'wb') as full:
        count(source, 5, b'y')
        try:
            source.save(full.fileno(), SAVE_INCREMENTAL)
            raise AssertionError('saved to a full disk')
        except OSError:
            pass
    files.append(tempfile.TemporaryFile())
    fds.append(files[-1].fileno())
    source.save(fds[-1], SAVE_INCREMENTAL)
    source.close()
    for number in range(len(fds)):
        vm = resumed(restore(fds[:number + 1], '--track'))
        count(vm, 2 + number, b'z')
        if number == 2:
            # A branch: what builds on what was restored.
            with tempfile.TemporaryFile() as branch:
                vm.save(branch.fileno(), SAVE_INCREMENTAL)
                again = resumed(restore([*fds[:number + 1], branch.fileno()]))
                count(again, 3 + number, b'branch')
                finish(again)
        finish(vm)
    try:
        restore([fds[0], fds[2]]).wait(VM_BOOTED)
        raise AssertionError('a chain with a link missing was taken')
    except Gone as gone:
        assert 'follow' in str(gone) or 'parent' in str(gone), gone
    for file in files:
        file.close()


def test_refused():
    vm = boot()
    try:
        vm.fork(1)
        raise AssertionError('forked without --snapshots')
    except OSError as error:
        assert '--snapshots' in str(error), error
    vm.exec(1, 'true', flags=0)
    vm.wait(EXIT, 1)
    vm.close()
    vm = boot('--snapshots')
    vm.send(160)        # VM_SAVE without a descriptor
    try:
        vm.wait(EXIT)
        raise AssertionError('a request without its descriptor was taken')
    except Gone:
        pass
    vm.close()


def test_full_disk():
    vm = boot('--snapshots')
    with open('/dev/full', 'wb') as full:
        try:
            vm.save(full.fileno())
            raise AssertionError('saved to a full disk')
        except OSError as error:
            assert 'full' in str(error).lower() or 'space' in str(error).lower(), error
    # The VM is none the worse, and may be asked again.
    vm.exec(1, 'echo', 'alive', flags=0)
    vm.wait_out(1, b'alive\n')
    with tempfile.TemporaryFile() as file:
        vm.save(file.fileno())
    vm.close()


def main(names):
    tests = [(k, v) for k, v in names.items() if k.startswith('test_') and
             (len(sys.argv) < 3 or k[5:] in sys.argv[2:])]
    failed = 0
    print(f'1..{len(tests)}')
    for number, (name, test) in enumerate(tests, 1):
        began = time.monotonic()
        try:
            test()
            word = 'ok'
        except (AssertionError, Gone, OSError, TimeoutError) as error:
            word, failed = 'not ok', failed + 1
            print(f'# {type(error).__name__}: {error}')
        print(f'{word} {number} - {name[5:].replace("_", " ")}', flush=True)
        print(f'# {time.monotonic() - began:.1f} s')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(globals()))
