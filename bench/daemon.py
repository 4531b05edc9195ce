# SPDX-License-Identifier: Apache-2.0
"""The daemon: exec in a running VM, 32 clients at once (in one VM, and each in its own; see
clients.c), lease of a ready VM with its first command beside bwrap and runc with the same
`true`, create, exec and kill for some seconds by 4 clients, 10 GiB through a command's stdout
with the memory it takes meanwhile, a file of 1 GiB put and got, memory with 500 idle VMs.

CASEMATE_BENCH_FAKE=1 measures the daemon alone, with VMMs that have no VM (for files: whose
guest is initd on the host, which takes root). Smaller hosts: CASEMATE_BENCH_STDOUT and
CASEMATE_BENCH_FILE are the sizes in MiB (a VM of three times the file is made),
CASEMATE_BENCH_IDLE the VMs, CASEMATE_BENCH_SECONDS how long clients go on; what was measured
is in the lines. engine_us is the engine's processor time for each exec, cycle or MiB: it says
more than the rest where others use the same processors (load1: how many did)."""
import os
import subprocess
import sys
import tempfile
import threading
import time

import common
import peers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))),
                                'tests/daemon'))
import client  # noqa: E402 (needs the path)

FAKE = os.environ.get('CASEMATE_BENCH_FAKE') == '1'
TRUE = 'echo' if FAKE else '/bin/true'
CLIENTS = os.path.join(common.BUILD, 'bench/clients')
MANY = 32
READY = 4
STDOUT_MIB = int(os.environ.get('CASEMATE_BENCH_STDOUT', '10240'))
FILE_MIB = int(os.environ.get('CASEMATE_BENCH_FILE', '1024'))
IDLE_VMS = int(os.environ.get('CASEMATE_BENCH_IDLE', '500'))
SECONDS = os.environ.get('CASEMATE_BENCH_SECONDS', '5')
FIELDS = {'fake': True} if FAKE else {}


def load(d, *options):
    """(milliseconds of each cycle, cycles, seconds, engine's microseconds a cycle)"""
    with Engine(d) as engine:
        p = subprocess.run([CLIENTS, *options, d.path, TRUE], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, check=False)
    if p.returncode:
        raise common.Broken(p.stderr.strip() or f'clients: status {p.returncode}')
    *values, total = p.stdout.splitlines()
    if not values:
        raise common.Broken('no cycle was over in time')
    count = int(total.split()[1])
    return [float(v) for v in values], count, float(total.split()[2]), engine.us(count)


class Engine:
    """Processor time of the engine while the body runs."""
    def __init__(self, d):
        self.path = f'/proc/{d.engine()}/schedstat'

    def read(self):
        with open(self.path) as f:
            return int(f.read().split()[0])

    def __enter__(self):
        self.ns = self.read()
        return self

    def __exit__(self, *unused):
        self.ns = self.read() - self.ns

    def us(self, count):
        return round(self.ns / count / 1000, 1)


# ---- Memory ----

def rollup(pid, *names):
    """MiB of what the kernel accounts to a process under these names; 0 if it is gone."""
    try:
        with open(f'/proc/{pid}/smaps_rollup') as f:
            lines = [line.split() for line in f]
    except OSError:
        return 0
    return sum(int(w[1]) for w in lines if w[0].rstrip(':') in names) / 1024


def daemon_memory(d):
    """Parent and engine; what they share with each other and others by its share."""
    return sum(rollup(pid, 'Pss') for pid in (d.process.pid, d.engine()))


def private(pid):
    return rollup(pid, 'Private_Clean', 'Private_Dirty', 'Private_Hugetlb')


class Peak:
    """The most memory that parent and engine, and one VMM, have while the body runs."""
    def __init__(self, d, vmm):
        self.pids, self.vmm = (d.process.pid, d.engine()), vmm
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.daemon = self.vmm_private = 0

    def look(self):
        self.daemon = max(self.daemon, sum(rollup(p, 'Pss') for p in self.pids))
        self.vmm_private = max(self.vmm_private, private(self.vmm))

    def run(self):
        while not self.done.wait(0.1):
            self.look()

    def __enter__(self):
        self.look()
        self.fields = {'daemon_mib_before': round(self.daemon, 3),
                       'vmm_mib_before': round(self.vmm_private, 3)}
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.done.set()
        self.thread.join()
        self.look()
        self.fields.update(daemon_mib_peak=round(self.daemon, 3),
                           vmm_mib_peak=round(self.vmm_private, 3))


# ---- What is measured ----

def measure_execs(d, own):
    values, _, _, us = load(d, '--count', '500', '--warm', '3', '--vm', own[0])
    common.emit_values('daemon_exec', 'ms', values, engine_us=us, **FIELDS)
    for vms in (own[:1], own):
        options = [word for vm in vms for word in ('--vm', vm)]
        values, count, seconds, us = load(d, '--clients', str(MANY), '--seconds', SECONDS,
                                          '--warm', '1', *options)
        common.emit_values(f'daemon_exec_{MANY}_clients', 'ms', values, vms=len(vms),
                           per_second=round(count / seconds), engine_us=us, **FIELDS)


def measure_leases(d):
    """Beside the peers; a VM is ready, as is what runc and bwrap start from."""
    def lease():
        return load(d, '--count', '1', '--template', 'bench', '--ready', str(READY))[0][0]
    subjects = [('daemon_lease_exec', FIELDS, None, lease)]
    with tempfile.TemporaryDirectory() as work:
        for name, peer in (('runc_run_true', peers.runc), ('bwrap_true', peers.bwrap)):
            trouble, argv, status = peer(work)
            subjects.append((name, {'peer': True}, trouble,
                             lambda argv=argv, status=status: common.time_run(argv, status)))
        common.interleave(subjects)


def measure_creates(d):
    values, count, seconds, us = load(d, '--clients', '4', '--seconds', SECONDS,
                                      '--template', 'bench')
    common.emit('daemon_creates', unit='1/s', n=count, mean=round(count / seconds, 1),
                seconds=round(seconds, 1), clients=4, engine_us=us, **FIELDS)
    common.emit_values('daemon_create_exec_4_clients', 'ms', values, **FIELDS)


def measure_stdout(d, vm, vmm):
    size = STDOUT_MIB << 20
    command = ('flood', str(size)) if FAKE else ('head', '-c', str(size), '/dev/zero')
    with Peak(d, vmm) as peak, Engine(d) as engine:
        began = time.monotonic()
        subprocess.run([common.CASEMATE, 'exec', '--socket', d.path, vm, '--', *command],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        took = time.monotonic() - began
    common.emit_values('daemon_stdout', 'MiB/s', [STDOUT_MIB / took], mib=STDOUT_MIB,
                       engine_us=engine.us(STDOUT_MIB), **peak.fields, **FIELDS)


def measure_files(d, c):
    """Whole: command, daemon, VMM, initd, and the file in the VM's memory."""
    vm = c.ask(f'create mem={3 * FILE_MIB}M')['vm']
    here, there = os.path.join(d.dir, 'bytes'), f'{vm}:/tmp/bytes'
    with open(here, 'wb') as f:
        part = os.urandom(1 << 20)
        for _ in range(FILE_MIB):
            f.write(part)

    def copied(source, target):
        began = time.monotonic()
        subprocess.run([common.CASEMATE, 'cp', '--socket', d.path, source, target],
                       stdin=subprocess.DEVNULL, check=True)
        return FILE_MIB / (time.monotonic() - began)
    put, get = [], []
    for _ in range(3):
        put.append(copied(here, there))
        get.append(copied(there, '/dev/null'))
        subprocess.run([common.CASEMATE, 'rm', '--socket', d.path, there], check=True)
    os.unlink(here)
    c.ask(f'kill {vm}')
    common.emit_values('daemon_put', 'MiB/s', put, mib=FILE_MIB, **FIELDS)
    common.emit_values('daemon_get', 'MiB/s', get, mib=FILE_MIB, **FIELDS)


def measure_idle(d, c):
    """As many VMs as fit, up to IDLE_VMS, on top of those that are there."""
    c.ask('pool set bench target=0 max=0')
    client.eventually(lambda: len(d.vmms()) <= 1, 'ready VMs do not end')
    before, others = daemon_memory(d), set(d.vmms())
    made, why = [], {}
    try:
        while len(made) < IDLE_VMS:
            made.append(c.ask('create template=bench')['vm'])
    except (client.Refused, TimeoutError) as e:
        why['stopped_by'] = str(e)
    vmms = [private(pid) for pid in set(d.vmms()) - others]
    common.emit('daemon_memory', unit='MiB', n=1, value=round(daemon_memory(d), 3),
                before=round(before, 3), vms=len(made), wanted=IDLE_VMS, **why, **FIELDS)
    if vmms:
        common.emit_values('daemon_idle_vmm_private', 'MiB', vmms, **FIELDS)


def tried(metric, function, *arguments):
    """What fails is said, and the rest is measured all the same."""
    try:
        function(*arguments)
    except (common.Broken, OSError, subprocess.SubprocessError, client.Refused,
            AssertionError) as e:
        common.emit(metric, skipped=f'{type(e).__name__}: {e}', **FIELDS)


def measure(d):
    common.emit('daemon_host', cpus=os.cpu_count(), load1=round(os.getloadavg()[0], 2))
    c = d.client()
    own = [f'own-{i}' for i in range(MANY)]
    c.ask(f'create name={own[0]}')
    vmm = d.vmms()[0]
    path = os.path.join(d.dir, 'snapshot')
    c.ask(f'snapshot {own[0]} file={path}')
    c.ask(f'template add bench file={path}')
    for vm in own[1:]:
        c.ask(f'create name={vm} template=bench')
    tried('daemon_exec', measure_execs, d, own)
    tried('daemon_stdout', measure_stdout, d, own[0], vmm)
    for vm in own:
        c.ask(f'kill {vm}')
    if not FAKE:
        tried('daemon_put', measure_files, d, c)
    c.ask(f'pool set bench target={READY}')
    tried('daemon_lease_exec', measure_leases, d)
    tried('daemon_creates', measure_creates, d)
    tried('daemon_memory', measure_idle, d, c)


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
    if FAKE and os.geteuid():
        common.emit('daemon_put', skipped='initd on the host needs root', **FIELDS)
    elif FAKE:
        # All but the VM: initd is a program of the host.
        d = client.Daemon(guest='initd')
        try:
            tried('daemon_put', measure_files, d, d.client())
        finally:
            d.stop()


common.main(main)
