# SPDX-License-Identifier: Apache-2.0
"""Snapshots: leases from a held template, restores from a file, the pause of a fork, what an
idle child costs, a thousand children, and how fast a snapshot is written.

Guests are of 256 MiB with busybox, unless the name says otherwise. `started` is the VMM's
word that the vCPU runs; `ready` is the guest's own: it has seen the new generation, mixed its
entropy and read its clock. /dev/shm holds the files."""
import os
import subprocess
import sys
import tempfile
import time

import common

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), '../tests'))
from vmm_client import (SAVE_INCREMENTAL, SAVE_TRACK, VM_BOOTED, Gone,  # noqa: E402
                        Programs)

PROGRAMS = Programs(common.BUILD, common.IMAGE)
CHILDREN = int(os.environ.get('CASEMATE_BENCH_CHILDREN', '1000'))
MIB = 1 << 20


def ms(began):
    return (time.monotonic_ns() - began) / 1e6


def template(mem):
    """A saved VM that has run a shell once."""
    vm = PROGRAMS.boot(mem, '--snapshots')
    vm.exec(1, 'sh', '-c', 'echo warm', flags=0)
    vm.wait_out(1, b'warm\n')
    file = tempfile.TemporaryFile(dir='/dev/shm')
    vm.save(file.fileno())
    vm.close()
    return file


def one(held):
    """(milliseconds until started, until ready, the child)."""
    began = time.monotonic_ns()
    (child,), _ = held.fork(1)
    started = ms(began)
    child.wait(VM_BOOTED)
    return started, ms(began), child


def first_output(vm, began):
    vm.exec(9, 'echo', 'x', flags=0)
    vm.wait_out(9, b'x\n')
    return ms(began)


def leases(name, held):
    started, ready, output = [], [], []
    for turn in range(common.RUNS + 1):
        began = time.monotonic_ns()
        s, r, child = one(held)
        o = first_output(child, began)
        child.close()
        if turn:
            started.append(s)
            ready.append(r)
            output.append(o)
    common.emit_values(f'snapshot_lease_started{name}', 'ms', started)
    common.emit_values(f'snapshot_lease_ready{name}', 'ms', ready)
    common.emit_values(f'snapshot_lease_first_output{name}', 'ms', output)


def restores(name, file):
    ready, output = [], []
    for turn in range(common.RUNS + 1):
        began = time.monotonic_ns()
        vm = PROGRAMS.restore([file.fileno()])
        vm.wait(VM_BOOTED)
        r = ms(began)
        o = first_output(vm, began)
        vm.close()
        if turn:
            ready.append(r)
            output.append(o)
    common.emit_values(f'snapshot_restore_ready{name}', 'ms', ready)
    common.emit_values(f'snapshot_restore_first_output{name}', 'ms', output)


def pauses(mem):
    """Forks of a running VM, half of whose memory its task has filled."""
    vm = PROGRAMS.boot(mem, '--snapshots')
    vm.exec(1, 'sh', '-c', f'yes | head -c {mem // 2} >/tmp/f; echo full', flags=0)
    vm.wait_out(1, b'full\n')
    values = []
    for _ in range(common.RUNS):
        (child,), pause = vm.fork(1)
        values.append(pause / 1e6)
        child.close()
    vm.close()
    common.emit_values(f'snapshot_fork_pause_{mem // MIB}m', 'ms', values)


def smaps(pid, *names):
    total = 0
    with open(f'/proc/{pid}/smaps_rollup', encoding='ascii') as file:
        for line in file:
            if line.split(':')[0] in names:
                total += int(line.split()[1])
    with open(f'/proc/{pid}/status', encoding='ascii') as file:
        for line in file:
            if line.startswith('VmPTE:'):
                total += int(line.split()[1])
    return total


def touched(held):
    """Pages that a child has of its own when its first command's output has come."""
    values = []
    for _ in range(5):
        (child,), _ = held.fork(1)
        child.wait(VM_BOOTED)
        first_output(child, 0)
        values.append(smaps(child.pid, 'Private_Dirty') // 4)
        child.close()
    common.emit_values('snapshot_touched_at_first_output', 'pages', values)


def idle_child(held):
    children, _ = held.fork(4)
    for child in children:
        child.wait(VM_BOOTED)
    time.sleep(1)
    values = [smaps(child.pid, 'Private_Dirty', 'Private_Clean') / 1024 for child in children]
    for child in children:
        child.close()
    common.emit_values('snapshot_idle_child_private', 'MiB', values, note='with page tables; '
                       'without what the kernel keeps for KVM')


def many(held):
    began, children = time.monotonic_ns(), []
    while len(children) < CHILDREN:
        children += held.fork(min(16, CHILDREN - len(children)))[0]
    started = ms(began)
    for child in children:
        child.wait(VM_BOOTED)
    common.emit('snapshot_many_children', unit='ms', children=len(children),
                started=round(started, 1), ready=round(ms(began), 1))
    for child in children:
        child.close()


def writing(mem):
    vm = PROGRAMS.boot(mem, '--snapshots')
    vm.exec(1, 'sh', '-c', f'head -c {mem // 2} /dev/urandom >/tmp/f; echo full', flags=0)
    vm.wait_out(1, b'full\n')
    rates, small = [], []
    for _ in range(5):
        with tempfile.TemporaryFile(dir='/dev/shm') as full, \
             tempfile.TemporaryFile(dir='/dev/shm') as more:
            began = time.monotonic_ns()
            vm.save(full.fileno(), SAVE_TRACK)
            took = ms(began)
            rates.append(os.fstat(full.fileno()).st_blocks * 512 / (1 << 30) / (took / 1e3))
            began = time.monotonic_ns()
            vm.save(more.fileno(), SAVE_INCREMENTAL)
            small.append(ms(began))
    vm.close()
    common.emit_values(f'snapshot_write_full_{mem // MIB}m', 'GiB/s', rates)
    common.emit_values(f'snapshot_write_unchanged_{mem // MIB}m', 'ms', small)


def main():
    trouble = common.casemate_trouble()
    if trouble:
        common.emit('snapshot', skipped=trouble)
        return
    steps = []
    for name, mem in (('', 256 * MIB), ('_4g', 4096 * MIB)):
        file = template(mem)
        held = PROGRAMS.restore([file.fileno()], '--hold')
        time.sleep(1)       # for the probe to find what children write (vmm/warm.h)
        steps += [(leases, name, held), (restores, name, file)]
        cold = PROGRAMS.restore([file.fileno()], '--hold', '--cold')
        steps += [(leases, name + '_cold', cold)]
        if not name:
            steps += [(touched, held), (idle_child, held), (many, held)]
    steps += [(pauses, 256 * MIB), (pauses, 2048 * MIB), (writing, 1024 * MIB)]
    for function, *arguments in steps:
        try:
            function(*arguments)
        except (common.Broken, Gone, OSError, TimeoutError, subprocess.SubprocessError) as e:
            common.emit(f'snapshot_{function.__name__}', skipped=str(e))


if __name__ == '__main__':
    common.main(main)
