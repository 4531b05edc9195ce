# SPDX-License-Identifier: Apache-2.0
"""The daemon: exec in a running VM, lease of a ready VM with its first command, 32 clients at
once, bytes through a command's stdout, files put and got, memory with idle VMs.
CASEMATE_BENCH_FAKE=1 measures the daemon alone, with VMMs that have no VM (for files: whose
guest is initd on the host, which takes root)."""
import os
import subprocess
import sys
import threading
import time

import common

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))),
                                'tests/daemon'))
import client  # noqa: E402 (needs the path)

FAKE = os.environ.get('CASEMATE_BENCH_FAKE') == '1'
TRUE = 'echo' if FAKE else '/bin/true'
RUNS = 200
CLIENTS = 32
IDLE_VMS = 50
BYTES = 64 << 20
FILE_BYTES = 48 << 20     # fits into half of a VM's memory


def timed(function):
    began = time.monotonic_ns()
    function()
    return (time.monotonic_ns() - began) / 1e6


def want_exit(end):
    assert end[2].words[1] == 'exit' and end[2]['code'] == '0', end[2]


def execs(c, vm, count):
    values = [timed(lambda: want_exit(c.run(vm, TRUE))) for _ in range(count + 3)]
    return values[3:]


def lease(c):
    def one():
        name = c.ask('create template=bench')['vm']
        want_exit(c.run(name, TRUE))
        made.append(name)
    made = []
    values = []
    for _ in range(30):
        client.eventually(lambda: int(c.ask('template list').items[0]['ready']) >= 2,
                          'the pool stays empty')
        values.append(timed(one))
        c.ask(f'kill {made.pop()}')
    return values


def many(d, vm):
    values, lock = [], threading.Lock()

    def one():
        c = d.client()
        mine = execs(c, vm, 20)
        with lock:
            values.extend(mine)
        c.close()
    threads = [threading.Thread(target=one) for _ in range(CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return values


def stdout_rate(d, vm):
    command = ('flood', str(BYTES)) if FAKE else ('head', '-c', str(BYTES), '/dev/zero')
    began = time.monotonic()
    subprocess.run([common.CASEMATE, 'exec', '--socket', d.path, vm, '--', *command],
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return BYTES / (time.monotonic() - began) / (1 << 20)


def file_rates(d, vm, directory):
    """MiB/s of put and of get, whole: command, daemon, VMM, initd."""
    here, there = os.path.join(directory, 'bytes'), f'{vm}:/tmp/bytes'
    with open(here, 'wb') as f:
        f.write(os.urandom(1 << 20) * (FILE_BYTES >> 20))

    def copied(source, target):
        began = time.monotonic()
        subprocess.run([common.CASEMATE, 'cp', '--socket', d.path, source, target],
                       stdin=subprocess.DEVNULL, check=True)
        return FILE_BYTES / (time.monotonic() - began) / (1 << 20)
    rates = []
    for _ in range(5):
        rates.append((copied(here, there), copied(there, '/dev/null')))
        subprocess.run([common.CASEMATE, 'rm', '--socket', d.path, there], check=True)
    return [r[0] for r in rates], [r[1] for r in rates]


def daemon_resident(d):
    with open(f'/proc/{d.process.pid}/statm') as f:
        return int(f.read().split()[1]) * 4096 / (1 << 20)


def measure_files(d, vm, fields):
    put, get = file_rates(d, vm, d.dir)
    common.emit_values('daemon_put', 'MiB/s', put, **fields)
    common.emit_values('daemon_get', 'MiB/s', get, **fields)


def measure(d):
    fields = {'fake': True} if FAKE else {}
    c = d.client()
    path = os.path.join(d.dir, 'snapshot')
    c.ask('create name=vm')
    common.emit_values('daemon_exec', 'ms', execs(c, 'vm', RUNS), **fields)
    common.emit_values('daemon_exec_32_clients', 'ms', many(d, 'vm'), **fields)
    common.emit_values('daemon_stdout', 'MiB/s', [stdout_rate(d, 'vm') for _ in range(3)],
                       **fields)
    if not FAKE:
        measure_files(d, 'vm', fields)
    c.ask(f'snapshot vm file={path}')
    c.ask(f'template add bench file={path} target=4')
    common.emit_values('daemon_lease_exec', 'ms', lease(c), **fields)
    began = time.monotonic()
    for _ in range(IDLE_VMS):
        c.ask('create template=bench')
    common.emit_values('daemon_creates', '1/s', [IDLE_VMS / (time.monotonic() - began)],
                       **fields)
    common.emit_values('daemon_memory', 'MiB', [daemon_resident(d)], vms=IDLE_VMS, **fields)


def main():
    why = None if FAKE else common.casemate_trouble()
    if why:
        common.emit('daemon', skipped=why)
        return
    if not FAKE:
        os.environ.setdefault('CASEMATE_TEST_IMAGE', common.IMAGE)
    client.BUILD = common.BUILD
    d = client.Daemon(real=not FAKE)
    try:
        measure(d)
    finally:
        d.stop()
    if FAKE:
        # All but the VM: initd is a program of the host.
        d = client.Daemon(guest='initd')
        try:
            d.client().ask('create name=vm')
            measure_files(d, 'vm', {'fake': True})
        finally:
            d.stop()


common.main(main)
