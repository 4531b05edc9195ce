#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Forks and saves a VM at random moments while a workload checks itself (e2e/selfcheck.c).
   snapshot_stress.py BUILD-DIRECTORY SELFCHECK [ROUNDS [SEED]]

Each round waits a random time, then forks the VM, saves it whole, or adds a link to a chain,
and starts a child from that. Either the child or the source goes on for a while and must end
with `selfcheck: passed`; the other one is the next round's source. So a VM's past can be a
long row of forks and restores. The random numbers that VMs print are all different.
"""
import os
import random
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from vmm_client import (CREDIT, EXIT, RUNNING, SAVE_INCREMENTAL, SAVE_TRACK,  # noqa: E402
                        STDIN, VM_BOOTED, Gone, Programs)

programs, program = Programs(sys.argv[1]), sys.argv[2]
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 6
seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 30)
CHAIN_MAX = 6
COPY, CHECK = 1, 2      # ids of execs
said = []               # what VMs printed about themselves


def put(vm, path, data):
    """Writes a file in the guest, within the credit of stdin."""
    vm.exec(COPY, 'sh', '-c', f'cat >{path} && chmod +x {path}')
    credit = 262144
    while data:
        while credit == 0:
            kind, _, payload, _ = vm.step()
            if kind == CREDIT:
                credit += struct.unpack('<II', payload)[1]
        piece = data[:min(credit, 65536)]
        vm.send(STDIN, COPY, piece)
        credit -= len(piece)
        data = data[len(piece):]
    vm.send(STDIN, COPY)
    vm.wait(EXIT, COPY)


def restore(fds):
    return programs.restore(fds, '--snapshots')


def watch(vm, seconds):
    """Lets it run, and takes what it says."""
    until = time.monotonic() + seconds
    while True:
        try:
            vm.step(until)
        except TimeoutError:
            return


def finish(vm):
    vm.send(STDIN, CHECK, b'x')
    while True:
        kind, ident, payload, _ = vm.step()
        if kind == EXIT and ident == CHECK:
            break
    text = vm.out[CHECK].decode()
    said.extend(line for line in text.splitlines() if line.startswith('vm '))
    assert payload[:4] == b'\0\0\0\0' and text.endswith('selfcheck: passed\n'), text[-300:]
    vm.close()


def resumed(vm):
    vm.wait(RUNNING, CHECK)
    vm.wait(VM_BOOTED)
    return vm


class Source:
    """The VM that is forked and saved, and the chain of snapshots that it made."""

    def __init__(self, vm):
        self.vm, self.files = vm, []

    def fork(self):
        return resumed(self.vm.fork(1)[0][0])

    def save(self):
        with tempfile.TemporaryFile() as file:
            self.vm.save(file.fileno())
            return resumed(restore([file.fileno()]))

    def link(self):
        if len(self.files) == CHAIN_MAX:
            self.drop()
        file = tempfile.TemporaryFile()
        self.vm.save(file.fileno(), SAVE_INCREMENTAL if self.files else SAVE_TRACK)
        self.files.append(file)
        return resumed(restore([f.fileno() for f in self.files]))

    def drop(self):
        for file in self.files:
            file.close()
        self.files = []


def main():
    rng = random.Random(seed)
    print(f'1..1\n# seed {seed}, {rounds} rounds', flush=True)
    vm = programs.boot(96 << 20, '--snapshots')
    with open(program, 'rb') as file:
        put(vm, '/tmp/selfcheck', file.read())
    vm.exec(CHECK, '/tmp/selfcheck')
    vm.wait_out(CHECK, b'\n')
    source, made = Source(vm), {'fork': 0, 'save': 0, 'link': 0}
    try:
        for number in range(rounds):
            watch(source.vm, rng.random() ** 3 * 2)
            how = rng.choice(list(made))
            child = getattr(source, how)()
            made[how] += 1
            if rng.random() < 0.5:
                old, source.vm = source.vm, child
                source.drop()
                child = old
            watch(child, rng.random())
            finish(child)
            if number % 50 == 49:
                print(f'# {number + 1} rounds: {made}', flush=True)
        finish(source.vm)
        numbers = [line.split()[2] for line in said]
        # A VM says `vm` once it looks, and not all lived that long. What a VM's past had said
        # is said again by each of its descendants.
        assert len(set(numbers)) > rounds / 2, f'{len(set(numbers))} random numbers'
        assert len({line.split()[1] for line in said}) == len(set(numbers)), said
    except (AssertionError, Gone, OSError, TimeoutError) as error:
        print(f'# round {number + 1}, {how}: {type(error).__name__}: {error}')
        print('not ok 1 - snapshots at random moments')
        return 1
    print(f'# {made}\nok 1 - snapshots at random moments')
    return 0


if __name__ == '__main__':
    sys.exit(main())
