#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""casemated's units, run by systemd: an installation in a container of its own (container.py).
TAP; names of cases may be given. With CASEMATE_SYSTEMD_VMS=real its VMs are real ones, else
VMMs have none (tests/daemon/fake_vmm.c). Each case begins with socket and service as they are
after an installation and leaves no process and no control group of the service."""
import os
import shutil
import signal
import stat
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests/daemon'))

from client import (BUILD, SCALE, Client, Refused, Skip, cases_run,    # noqa: the path is above
                    eventually)
from container import Container, Unable                         # noqa: likewise

REAL = os.environ.get('CASEMATE_SYSTEMD_VMS') == 'real'
LIBEXEC = 'libexec/casemate/'
FAKE = f'/usr/local/{LIBEXEC}fake-vmm'
SOCKET = '/run/casemate/casemate.sock'
STORE = '/var/lib/casemate'
DROPIN = '/etc/systemd/system/casemated.%s.d/test.conf'
EXPOSURE = 45           # of systemd-analyze security, in tenths
UID_BASE = 0x70000000


class Service:
    """casemated in the container."""
    def __init__(self, container):
        self.container = container
        self.run = container.run
        self.edited = False
        self.group = os.path.join(container.group, 'system.slice/casemated.service')

    def options(self, text='', socket=''):
        """What an administrator adds with systemctl edit."""
        fake = '' if REAL else f' --vmm {FAKE}'
        self.container.write(DROPIN % 'service', '[Service]\n'
                             f'Environment="CASEMATED_OPTIONS=--verbose{fake} {text}"\n')
        self.container.write(DROPIN % 'socket', f'[Socket]\n{socket}\n')
        self.run('systemctl', 'daemon-reload')
        self.edited = True

    def begin(self):
        self.run('systemctl', 'start', 'casemated.socket')

    def end(self):
        self.run('systemctl', 'stop', 'casemated.socket', 'casemated.service')
        self.run('systemctl', 'reset-failed')
        if self.edited:
            self.options()
            self.edited = False

    def show(self, name, unit='service'):
        return self.run('systemctl', 'show', '-P', name, f'casemated.{unit}')

    def client(self):
        return Client(self.container.path(SOCKET))

    def journal(self):
        return self.run('journalctl', '-u', 'casemated.service', '-o', 'cat', '--no-pager')

    def processes(self, below=''):
        """The PIDs, as we see them, of a control group of the service's and all in it. Threads
        of KVM's have no program."""
        found = []
        for top, _, _ in os.walk(os.path.join(self.group, below)):
            with open(os.path.join(top, 'cgroup.procs')) as f:
                found += [int(pid) for pid in f if os.path.exists(f'/proc/{pid.strip()}/exe')]
        return found

    def engine(self):
        for pid in self.processes('daemon'):
            with open(f'/proc/{pid}/cmdline', 'rb') as f:
                if b'--engine' in f.read().split(b'\0'):
                    return pid
        return 0

    def parent(self):
        return next(pid for pid in self.processes('daemon') if pid != self.engine())

    def vm_groups(self):
        top = os.path.join(self.group, 'vms')
        return [os.path.join(top, name) for name in os.listdir(top)
                if os.path.isdir(os.path.join(top, name))]

    def has_limits(self):
        with open(os.path.join(self.container.group, 'cgroup.controllers')) as f:
            return {'memory', 'pids'} <= set(f.read().split())

    def is_gone(self):
        return not os.path.exists(self.group)


def status(pid, name):
    with open(f'/proc/{pid}/status') as f:
        return next(line.split(':', 1)[1].strip() for line in f if line.startswith(name + ':'))


def text_of(*path):
    with open(os.path.join(*path)) as f:
        return f.read().strip()


def case_verify(s):
    """The units as systemd's own checks see them."""
    units = 'casemated.service', 'casemated.socket'
    said = s.run('systemd-analyze', 'verify', '--man=no', *units)
    assert not said, said
    s.run('systemd-analyze', 'security', '--no-pager', f'--threshold={EXPOSURE}', units[0])
    s.run('systemctl', 'enable', units[0])
    assert s.run('systemctl', 'is-enabled', *units) == 'enabled\nenabled'
    s.run('systemctl', 'disable', *units)


def case_socket(s):
    """The first client starts it; who may be one."""
    st = os.stat(s.container.path(SOCKET))
    assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (0, 0, 0o600), st
    st = os.stat(os.path.dirname(s.container.path(SOCKET)))
    assert (st.st_uid, stat.S_IMODE(st.st_mode)) == (0, 0o711), st
    assert s.show('ActiveState') == 'inactive'
    c = s.client()
    assert s.show('ActiveState') == 'active'
    assert c.ask('hello')['role'] == 'admin'
    stranger = ['setpriv', '--reuid=1234', '--regid=1234', '--clear-groups', 'casemate', 'ls']
    assert 'ermission denied' in s.run(*stranger, status=125)
    st = os.stat(s.container.path(STORE))
    assert (st.st_uid, stat.S_IMODE(st.st_mode)) == (int(status(s.engine(), 'Uid').split()[0]),
                                                     0o750), st


def case_start(s):
    """Started by name it takes the socket, makes its directory where that is missing, and is up
    when systemctl says so."""
    shutil.rmtree(s.container.path(STORE))
    s.run('systemctl', 'start', 'casemated.service')
    assert s.show('ActiveState') == 'active'
    main = s.show('MainPID')
    assert s.client().ask('hello')
    assert s.show('MainPID') == main
    assert os.stat(s.container.path(STORE)).st_uid != 0


def case_confined(s):
    """Nothing that the unit forbids is what engine or VMs need."""
    c = s.client()
    wanted = {'jail', 'users', 'roots', 'no-network'} | ({'cgroups'} if s.has_limits() else set())
    hello = c.ask('hello')
    assert set(hello['confined'].split(',')) == wanted and hello['engine'] == 'casemate', hello
    c.ask('create name=a mem=64M')
    assert c.run('a', 'echo', 'x')[0] == b'x\n'
    c.ask('fork a count=2')
    groups = s.vm_groups()
    assert len(groups) == 3, groups
    for group in groups:
        pid, = s.processes(group)
        uid = int(status(pid, 'Uid').split()[0])
        assert UID_BASE <= uid < UID_BASE + 65536, uid
        assert status(pid, 'NoNewPrivs') == '1' and int(status(pid, 'CapEff'), 16) == 0
        assert os.readlink(f'/proc/{pid}/root').endswith('/run/casemate/state/root')
        assert os.readlink(f'/proc/{pid}/ns/net') != os.readlink(f'/proc/{s.parent()}/ns/net')
        if s.has_limits():
            assert text_of(group, 'memory.max') == str((2 * 64 + 64) << 20)
            assert text_of(group, 'pids.max') == '256'
    engine = s.engine()
    assert int(status(engine, 'CapEff'), 16) == 0
    assert int(status(engine, 'Uid').split()[0]) not in (0, 1234)
    if s.has_limits():
        assert text_of(s.group, 'pids.max') == 'max'
    # KVM's threads for a fork are in its source's group, and stay as long as the fork.
    for vm in c.ask('list').items:
        c.ask('kill ' + vm['vm'])
    eventually(lambda: not s.vm_groups(), 'control groups are left')


def case_limit_reached(s):
    """The kernel ends a VM that is over its limit: that VM alone."""
    if not s.has_limits():
        raise Skip('control groups of version 2 have no memory controller here')
    c = s.client()
    c.ask('create name=a mem=64M')
    first, = s.vm_groups()
    c.ask('create name=b mem=64M')
    with open(os.path.join(first, 'memory.max'), 'w') as f:
        f.write('64K')
    try:
        c.run('a', 'sh', '-c', '"head -c 20000000 /dev/zero | tail -c 1"')
    except Refused:
        pass
    eventually(lambda: len(s.vm_groups()) == 1, 'both VMs go on')
    assert c.run('b', 'echo', 'x')[0] == b'x\n'
    assert s.show('ActiveState') == 'active'


case_limit_reached.wants_memory = True


def case_store(s):
    """What is kept in /var/lib/casemate is the engine's, also for the next daemon."""
    c = s.client()
    c.ask('create name=a')
    c.ask('suspend a')
    assert c.run('a', 'echo', 'x')[0] == b'x\n'
    path = STORE + '/snap'
    c.ask(f'snapshot a file={path}')
    owner = os.stat(s.container.path(path)).st_uid
    assert owner == os.stat(s.container.path(STORE)).st_uid != 0
    c.refused('snapshot a file=/usr/snap', 'FAILED')
    forward = c.ask(f'forward a unix:{STORE}/port unix:/echo')
    assert forward['listen'] == f'unix:{STORE}/port'
    s.run('systemctl', 'restart', 'casemated.service')
    assert os.stat(s.container.path(path)).st_uid == owner
    assert not os.path.exists(s.container.path(STORE + '/port'))
    c = s.client()
    c.ask(f'template add t file={path} target=1')
    eventually(lambda: c.ask('template list').items[0]['ready'] == '1', 'none gets ready')
    c.ask('create name=b template=t')
    assert c.run('b', 'echo', 'x')[0] == b'x\n'
    os.unlink(s.container.path(path))


def case_engine_killed(s):
    c = s.client()
    c.ask('create name=a')
    main = s.show('MainPID')
    os.kill(s.engine(), signal.SIGKILL)
    assert not s.client().ask('list').items
    assert s.show('MainPID') == main and s.show('NRestarts') == '0'
    assert not s.vm_groups()
    eventually(lambda: 'the engine is gone, and all VMs with it: signal 9' in s.journal(),
               'the journal has nothing of it')


def case_parent_killed(s):
    """Clients that come meanwhile wait, however often; nothing is left of the VMs."""
    for _ in range(1 if REAL else 3):
        c = s.client()
        assert not c.ask('list').items
        c.ask('create name=a')
        c.ask('fork a')
        frozen = s.processes('vms')[0]
        os.kill(frozen, signal.SIGSTOP)
        main, engine = s.parent(), s.engine()
        os.kill(main, signal.SIGKILL)
        eventually(lambda: not os.path.exists(f'/proc/{engine}'), 'the engine goes on')
        again = s.client()
        assert again.ask('create name=a')['vm'] == 'a'
        assert again.run('a', 'echo', 'x')[0] == b'x\n'
        assert not os.path.exists(f'/proc/{frozen}'), 'a VM outlived its daemon'
        assert len(s.vm_groups()) == 1 and s.parent() != main
        again.ask('kill a')
        again.close()
    assert s.show('SubState', 'socket') == 'running'


def is_draining(s):
    try:
        s.client().ask('create name=late')
    except Refused as e:
        return e.code == 'DRAINING'
    return False


def case_stop(s):
    """Ends VMs, frozen ones too, in order; the socket goes on and starts the next one."""
    c = s.client()
    c.ask('create name=a')
    c.ask('exec a detach=yes -- sleep 1000')
    c.ask('create name=b')
    os.kill(s.processes('vms')[0], signal.SIGSTOP)
    c.send('@s stop drain=1h\n')            # which the service manager does not wait for
    eventually(lambda: is_draining(s), 'it does not drain')
    began = time.monotonic()
    s.run('systemctl', 'stop', 'casemated.service')
    assert time.monotonic() - began < 10 * SCALE, 'it took its time'
    assert s.is_gone() and s.show('Result') == 'success'
    assert s.show('ActiveState', 'socket') == 'active'
    assert not s.client().ask('list').items
    s.run('systemctl', 'stop', 'casemated.socket')
    assert s.show('ActiveState') == 'inactive', 'it serves without its socket'
    assert not os.path.exists(s.container.path(SOCKET))


def case_drained(s):
    """A daemon that was told to stop is not started again, but by the next client."""
    c = s.client()
    c.ask('create name=a')
    s.run('casemate', 'stop', '--drain', '1s')
    eventually(s.is_gone, 'its control group is there')
    assert s.show('ActiveState') == 'inactive' and s.show('Result') == 'success'
    time.sleep(1.5)
    assert s.show('ActiveState') == 'inactive'
    assert s.run('casemate', 'ls').count('\n') == 0


def case_options(s):
    """As casemated(8) says: operators, by a group of daemon and socket."""
    s.run('systemctl', 'stop', 'casemated.socket')
    for name, line in (('passwd', 'op:x:1234:1234::/:/bin/sh\n'), ('group', 'ops:x:999:op\n')):
        with open(s.container.path('/etc/' + name), 'a') as f:
            f.write(line)
    s.options('--group ops --max-vms 1', socket='SocketGroup=ops\nSocketMode=0660')
    s.run('systemctl', 'start', 'casemated.socket')
    op = ['setpriv', '--reuid=1234', '--regid=1234', '--init-groups']
    s.run(*op, 'casemate', 'run', '--keep', 'mine', '--', 'echo', 'x')
    said = s.run(*op, 'casemate', 'run', '--keep', 'more', '--', 'echo', 'x', status=125)
    assert 'at most 1' in said or 'limit' in said.lower(), said
    owner, = s.client().ask('list').items
    assert owner['owner'] == '1234', owner


def case_broken_start(s):
    """What does not start says why, at once, and starts when that is mended."""
    for options in '--group nobodys', '--bogus':
        s.options(options)
        assert 'could not start' in s.run('casemate', 'ls', status=125)
        eventually(lambda: s.show('ActiveState') == 'failed', 'it is tried again and again')
    assert 'there is no group nobodys' in s.journal()
    s.options()
    s.run('casemate', 'ls')


def case_doctor(s):
    s.client()
    said = s.run('casemate', 'doctor', status=None)
    line = next(x for x in said.splitlines() if 'confined' in x)
    assert 'casemate' in line and 'users' in line, said


def files(image):
    """What the container has besides what is installed. image: a file to be written."""
    if REAL:
        return {LIBEXEC + 'images/default.erofs': os.environ.get(
            'CASEMATE_TEST_IMAGE', os.path.join(BUILD, 'images/default.erofs'))}
    image.write(bytes(1024) + bytes.fromhex('e2e1f5e0') + bytes(3072))
    image.flush()
    return {LIBEXEC + 'fake-vmm': os.path.join(BUILD, 'tests/daemon/fake-vmm'),
            LIBEXEC + 'images/default.erofs': image.name}


def run_one(service, function):
    service.begin()
    try:
        function(service)
    except Exception:
        if sys.exc_info()[0] is not Skip:
            sys.stderr.write(service.run('systemctl', 'status', '--no-pager', '-n', '30',
                                         'casemated.service', status=None) + '\n')
        raise
    finally:
        service.end()
    eventually(service.is_gone, 'processes are left')


def main():
    cases = {k[5:]: v for k, v in globals().items() if k.startswith('case_')}
    chosen = sys.argv[1:] or [name for name, case in cases.items()
                              if REAL or not hasattr(case, 'wants_memory')]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with tempfile.NamedTemporaryFile() as image:
            container = Container(files(image))
    except Unable as e:
        print(e)
        return 77
    try:
        service = Service(container)
        service.options()
        service.edited = False
        return cases_run(chosen, lambda name: run_one(service, cases[name]))
    finally:
        container.stop()


if __name__ == '__main__':
    sys.exit(main())
