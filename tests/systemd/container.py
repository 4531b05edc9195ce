# SPDX-License-Identifier: Apache-2.0
"""systemd as PID 1 of a container, with what `meson install` would install.

The container is a process in namespaces of its own (PIDs, mounts, control groups, network,
IPC, host name) and a control group of its own; boot.sh makes its root. All of it ends with
the process that made it: PID 1 of the namespace is killed, and takes everybody along.
Programs are run in it by nsenter(1); its files are below /proc/PID/root.
"""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from client import BUILD, SCALE

HERE = os.path.dirname(os.path.realpath(__file__))
SYSTEMD = '/lib/systemd/systemd'
BOOT_LIMIT = 60 * SCALE
NAMESPACES = ['--pid', '--mount', '--net', '--ipc', '--uts']


class Unable(Exception):
    """Why there can be no container here."""


def group_mount():
    """Where version 2 of control groups is mounted, whole."""
    with open('/proc/self/mountinfo') as f:
        for line in f:
            fields = line.split()
            if fields[fields.index('-') + 1] == 'cgroup2' and fields[3] == '/':
                return fields[4]
    raise Unable('version 2 of control groups is not mounted')


def check():
    """Raises Unable."""
    if os.getuid() != 0:
        raise Unable('needs root, who may make a container')
    for program in (SYSTEMD, '/usr/bin/systemd-analyze', '/usr/bin/journalctl'):
        if not os.path.exists(program):
            raise Unable(f'there is no {program}: apt-get install systemd')
    p = subprocess.run(['unshare', *NAMESPACES, '--fork', 'true'], stdin=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, check=False)
    if p.returncode:
        raise Unable('no namespaces of its own: ' + p.stderr.decode().strip())


class Container:
    """more: {path below /usr/local: file to be copied there}"""
    def __init__(self, more):
        check()
        self.group = os.path.join(group_mount(), f'casemate-systemd-{os.getpid()}')
        self.dir = tempfile.mkdtemp(prefix='casemate-systemd-')
        self.local = os.path.join(self.dir, 'local')
        self.process = self.pid = None
        try:
            self.install(more)
            self.group_make()
            self.boot()
        except BaseException:
            self.stop()
            raise

    def install(self, more):
        """By meson's list: the build directory may be read-only here."""
        with open(os.path.join(BUILD, 'meson-info/intro-installed.json')) as f:
            files = json.load(f)
        if '/usr/local/bin/casemated' not in files.values():
            raise Unable('this build is to be installed elsewhere than in /usr/local')
        for source, target in files.items():
            if target.startswith('/usr/local/') and os.path.isabs(source):
                self.copy(source, os.path.relpath(target, '/usr/local'))
        for target, source in more.items():
            self.copy(source, target)

    def copy(self, source, target):
        path = os.path.join(self.local, target)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(source, path)
        os.chmod(path, 0o755 if os.access(source, os.X_OK) else 0o644)

    def group_make(self):
        try:
            with open(os.path.join(os.path.dirname(self.group), 'cgroup.controllers')) as f:
                for name in f.read().split():
                    group_write(os.path.dirname(self.group), 'cgroup.subtree_control',
                                '+' + name)
            os.mkdir(self.group)
        except OSError as e:
            raise Unable(f'no control group of its own: {e.strerror}') from e

    def boot(self):
        root = os.path.join(self.dir, 'root')
        os.mkdir(root)
        self.log = open(os.path.join(self.dir, 'log'), 'wb')

        def begin():
            # Ends with us, and the container with it.
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
        self.process = subprocess.Popen(
            ['unshare', *NAMESPACES, '--fork', '--kill-child', '--', 'sh',
             os.path.join(HERE, 'boot.sh'), self.group, root, self.local],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=begin)
        deadline = time.monotonic() + BOOT_LIMIT
        while not self.is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError('systemd did not come up: ' + self.said())
            time.sleep(0.05)

    def is_up(self):
        self.pid = self.pid or child_of(self.process.pid)
        if not self.pid or not os.path.exists(self.path('/run/systemd/private')):
            return False
        return self.run('systemctl', 'is-active', 'container.target', status=None) == 'active'

    def said(self):
        with open(os.path.join(self.dir, 'log'), errors='replace') as f:
            return f.read()[-3000:]

    def path(self, name):
        return f'/proc/{self.pid}/root{name}'

    def run(self, *argv, status=0, stdin=None):
        """What it says, without the last newline. status: wanted, or None for any."""
        p = subprocess.run(['nsenter', '-t', str(self.pid), '-a', '--', *argv], input=stdin or b'',
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                           timeout=60 * SCALE, env={'PATH': '/usr/local/bin:/usr/bin:/bin:/sbin',
                                                    'LANG': 'C.UTF-8', 'SYSTEMD_PAGER': ''})
        text = p.stdout.decode(errors='replace').rstrip('\n')
        assert status in (None, p.returncode), f'{argv}: {p.returncode}, {text}'
        return text

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), 'w') as f:
            f.write(text)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.log.close()
        for top, _, _ in os.walk(self.group, topdown=False):
            for _ in range(100):
                try:
                    os.rmdir(top)
                    break
                except OSError:
                    time.sleep(0.05)
        shutil.rmtree(self.dir, ignore_errors=True)


def child_of(pid):
    try:
        with open(f'/proc/{pid}/task/{pid}/children') as f:
            children = f.read().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def group_write(group, name, text):
    with open(os.path.join(group, name), 'w') as f:
        f.write(text)
