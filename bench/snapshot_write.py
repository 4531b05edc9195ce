# SPDX-License-Identifier: Apache-2.0
"""Snapshot files in tmpfs: writing full and incremental ones, verifying, opening, mapping.
Rates are of guest memory dealt with; "all_used" has no zero page, "third_used" mostly.
"by": the clock on the wall, or CPU time, which a busy host spoils less: that of both threads.
sha256sum and cp of the same amount are there to compare with."""
import os
import subprocess
import tempfile
import time

import common

MEM = 512               # MiB
TMPFS = '/dev/shm'
PROGRAM = os.path.join(common.BUILD, 'bench/snapshot-write')
RUNS = min(common.RUNS, 10)


def once(work):
    out = subprocess.run([PROGRAM, work, str(MEM)], check=True, stdout=subprocess.PIPE,
                         timeout=common.LIMIT).stdout
    for line in out.decode().splitlines():
        name, size, wall, cpu = line.split()
        yield name, 'wall', int(size), int(wall)
        yield name, 'cpu', int(size), int(cpu)
    noise = os.path.join(work, 'noise')
    if not os.path.exists(noise):
        with open(noise, 'wb') as f:
            for _ in range(MEM):
                f.write(os.urandom(1 << 20))
    for name, argv in (('cp', ['cp', noise, noise + '.copy']),
                       ('openssl_sha256', ['openssl', 'dgst', '-sha256', noise])):
        began = time.monotonic_ns()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=common.LIMIT)
        yield name, 'wall', MEM << 20, time.monotonic_ns() - began
    os.unlink(noise + '.copy')


def main():
    if not os.path.exists(PROGRAM) or not os.path.isdir(TMPFS):
        common.emit('snapshot_write', skipped='not built, or no ' + TMPFS)
        return
    values = {}
    with tempfile.TemporaryDirectory(dir=TMPFS) as work:
        for turn in range(RUNS + 1):
            for name, by, size, took in once(work):
                if turn:        # the first one warms up
                    values.setdefault((name, by), []).append((size, took))
    for (name, by), runs in values.items():
        peer = {} if name.startswith('snapshot') else {'peer': True}
        if name in ('snapshot_open', 'snapshot_map'):
            common.emit_values(name, 'ms', [took / 1e6 for _, took in runs], mib=MEM,
                               by=by)
        else:
            rates = [size / took * 1e9 / (1 << 30) for size, took in runs]
            common.emit_values(name, 'GiB/s', rates, mib=MEM, by=by, **peer)


common.main(main)
