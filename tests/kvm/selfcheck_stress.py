#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Forks, saves and restores a VM at random moments while tests/e2e/selfcheck.c runs in it.
   selfcheck_stress.py BUILD-DIRECTORY ROUNDS [SEED]
The root image is $CASEMATE_TEST_IMAGE, or the build's own. Each round one line of descent goes
on, source or child. The other lives a moment longer, and now and then has to end well.
"""
import os
import random
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from vmm_client import CREDIT, EXEC_STDIN, EXIT, RUNNING, STDIN, VM_BOOTED, Vm  # noqa: E402

build, rounds = sys.argv[1], int(sys.argv[2])
seed = int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time())
image = os.environ.get('CASEMATE_TEST_IMAGE') or os.path.join(build, 'images/default.erofs')
dice = random.Random(seed)
VMM = os.path.join(build, 'casemate-vmm')
FILES = ['--kernel', os.path.join(build, 'casemate-kernel'),
         '--initd', os.path.join(build, 'casemate-initd')]
identities = set()


def put_program(vm, path):
    """By standard input, so that any image will do."""
    name = '/tmp/' + os.path.basename(path)
    vm.exec(9, 'sh', '-c', f'cat >{name} && chmod 755 {name}')
    credit = 262144
    with open(path, 'rb') as f:
        while piece := f.read(32768):
            while credit < len(piece):
                credit += struct.unpack('<II', vm.wait(CREDIT, 9)[2])[1]
            vm.send(STDIN, 9, piece)
            credit -= len(piece)
    vm.send(STDIN, 9)
    assert struct.unpack_from('<I', vm.wait(EXIT, 9)[2])[0] == 0
    return name


def run_for(vm, seconds):
    """Takes what comes for so long; a VM that says it is broken ends the test."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            vm.step(until)
        except TimeoutError:
            break
    check(vm)


def check(vm):
    for line in vm.out.get(1, b'').split(b'\n'):
        if line.startswith(b'selfcheck: ') and line != b'selfcheck: passed':
            sys.exit(f'seed {seed}: {line.decode()}')


def resumed(vm):
    _, _, _, flags = vm.wait(RUNNING, 1)
    assert flags == EXEC_STDIN, flags
    vm.wait(VM_BOOTED)
    vm.out.clear()
    return vm


def restored(vm):
    with tempfile.TemporaryFile() as file:
        vm.save(file.fileno())
        image_fd = os.open(image, os.O_RDONLY)
        time.sleep(dice.choice([0, 0, 0.7]))
        child = Vm.start(VMM, *FILES, '--image-fd', str(image_fd), '--restore-fd',
                         str(file.fileno()), '--snapshots', fds=[file.fileno(), image_fd])
        os.close(image_fd)
        return resumed(child)


def passes(vm):
    """Two more seconds of life, its own identity, and the right end."""
    while vm.out.get(1, b'').count(b'\nok ') + vm.out.get(1, b'').startswith(b'ok ') < 2:
        vm.step()
        check(vm)
    vm.send(STDIN, 1)
    _, _, payload, _ = vm.wait(EXIT, 1)
    check(vm)
    assert struct.unpack_from('<I', payload)[0] == 0, vm.out
    assert vm.out[1].endswith(b'selfcheck: passed\n'), vm.out
    for line in vm.out[1].split(b'\n'):
        if line.startswith(b'vm '):
            assert line not in identities and not identities & set(line.split()[1:]), line
            identities.update(line.split()[1:])
    vm.close()


vm = Vm.start(VMM, *FILES, '--image', image, '--mem', str(96 << 20), '--snapshots')
vm.wait(VM_BOOTED)
vm.exec(1, put_program(vm, os.path.join(build, 'tests/selfcheck')))
run_for(vm, 2)
for n in range(rounds):
    run_for(vm, dice.random() * dice.choice([0.05, 1]))
    how = dice.choice(['fork', 'save'])
    child = resumed(vm.fork(1)[0][0]) if how == 'fork' else restored(vm)
    vm, other = (vm, child) if dice.random() < 0.5 else (child, vm)
    if dice.random() < 0.3:
        passes(other)
    else:
        run_for(other, dice.random())
        other.close()
    print(f'round {n + 1}: {how}', flush=True)
passes(vm)
print(f'passed: {rounds} rounds of seed {seed}')
