# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share. Each prints one JSON object a line and asserts nothing:

  {"metric": "...", "unit": "ms", "n": 50, "median": ..., "p99": ..., "min": ..., "max": ...}
  {"metric": "...", "skipped": "why"}

Peers (other ways to run a task on the same host) carry "peer": true. All of one file's
measurements are interleaved, so that a noisy minute falls on all of them alike.
"""
import fcntl
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import time

BUILD = os.path.realpath(os.environ.get('CASEMATE_BUILD', 'build'))
CASEMATE = os.path.join(BUILD, 'casemate')
IMAGE = os.environ.get('CASEMATE_TEST_IMAGE') or os.path.join(BUILD, 'images/busybox.erofs')
RUNS = int(os.environ.get('CASEMATE_BENCH_RUNS', '50'))
LIMIT = 60              # seconds, after which a run counts as broken


class Broken(Exception):
    """A run did not do what it was measured for."""


def emit(metric, **fields):
    print(json.dumps({'metric': metric, **fields}), flush=True)


def emit_values(metric, unit, values, **fields):
    values = sorted(values)
    emit(metric, unit=unit, n=len(values), median=round(statistics.median(values), 3),
         p99=round(values[min(len(values) - 1, int(len(values) * 0.99))], 3),
         min=round(values[0], 3), max=round(values[-1], 3), **fields)


def kvm_trouble():
    """Why /dev/kvm cannot be used; None when it can."""
    try:
        kvm = os.open('/dev/kvm', os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(kvm, 0xae01, 0)
        os.close(kvm)
        return None
    except OSError as e:
        return f'/dev/kvm: {e.strerror}'


def casemate_trouble():
    for path in (CASEMATE, IMAGE):
        if not os.path.exists(path):
            return f'{os.path.basename(path)} is not built'
    return kvm_trouble()


def casemate_run(*argv, options=()):
    return [CASEMATE, 'run', '--image', IMAGE, *options, '--', *argv]


def time_run(argv, want=0):
    """Milliseconds from exec to exit."""
    began = time.monotonic_ns()
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE)
    try:
        err = p.communicate(timeout=LIMIT)[1]
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
        raise Broken(f'no end after {LIMIT} s') from None
    took = (time.monotonic_ns() - began) / 1e6
    if p.returncode != want:
        text = err.decode(errors='replace').strip().splitlines()
        raise Broken(f'status {p.returncode}: {text[-1] if text else "no message"}')
    return took


def time_first_byte(argv):
    """Milliseconds from exec to the first byte of standard output."""
    began = time.monotonic_ns()
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as p:
        ready = select.select([p.stdout], [], [], LIMIT)[0]
        took = (time.monotonic_ns() - began) / 1e6
        if not ready or not os.read(p.stdout.fileno(), 1):
            p.kill()
            raise Broken('no output')
        p.stdout.read()
    return took


def children(pid):
    with open(f'/proc/{pid}/task/{pid}/children') as f:
        return [int(c) for c in f.read().split()]


def end(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def interleave(subjects, runs=None):
    """subjects: [(metric, fields, why it cannot be measured or None, function giving one
    value)]. Measures them in turn and prints a line for each."""
    live = []
    for metric, fields, trouble, function in subjects:
        if trouble:
            emit(metric, skipped=trouble, **fields)
        else:
            live.append((metric, fields, function, []))
    for turn in range((runs or RUNS) + 1):
        for entry in list(live):
            metric, fields, function, values = entry
            try:
                value = function()
            except (Broken, OSError) as e:
                emit(metric, skipped=f'run {turn}: {e}', **fields)
                live.remove(entry)
                continue
            if turn:            # the first one warms the caches
                values.append(value)
    for metric, fields, function, values in live:
        emit_values(metric, 'ms', values, **fields)


def main(function):
    if len(sys.argv) > 1 and sys.argv[1] == '--help':
        print(sys.modules['__main__'].__doc__)
        return
    function()
