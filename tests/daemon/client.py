# SPDX-License-Identifier: Apache-2.0
"""A plain client of the line protocol, for tests: no library of ours in between."""
import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.environ.get('CASEMATE_BUILD', os.path.join(ROOT, 'build'))
CASEMATE = os.path.join(BUILD, 'casemate')
SCALE = int(os.environ.get('CASEMATE_TIME_SCALE', '1'))
LIMIT = 50 * SCALE
WORD = re.compile(rb'''(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'])+''')
ESCAPES = {b'n': b'\n', b't': b'\t', b'r': b'\r', b'\\': b'\\', b'"': b'"'}


def unquote(word):
    def one(m):
        text = m[0]
        if text[:1] == b"'":
            return text[1:-1]
        return re.sub(rb'\\(x..|.)', lambda e: bytes([int(e[1][1:], 16)])
                      if e[1][:1] == b'x' else ESCAPES[e[1]], text[1:-1])
    return re.sub(rb'''"(?:[^"\\]|\\.)*"|'[^']*\'''', one, word)


class Line:
    """sign: +, *, ! or -CODE; words; fields (NAME=VALUE); chunk."""
    def __init__(self, raw, chunk):
        raws = WORD.findall(raw)
        first = raws.pop(0).decode()
        if chunk is not None:
            raws.pop()
        self.sign, self.tag, self.chunk = first, '', chunk
        if raws and raws[0][:1] == b'@':
            self.tag = raws.pop(0)[1:].decode()
        self.words = [unquote(w).decode(errors='surrogateescape') for w in raws]
        self.fields = dict(w.split('=', 1) for w in self.words if '=' in w)
        self.raw = raw

    def __repr__(self):
        return self.raw.decode(errors='replace')

    def __getitem__(self, name):
        return self.fields[name]


class Refused(Exception):
    def __init__(self, line):
        super().__init__(repr(line))
        self.code = line.sign[1:]


class Client:
    def __init__(self, path, greet=True):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.data = bytearray()
        self.later = []
        if greet and (line := self.line()).sign != '+':
            raise Refused(line)

    def close(self):
        self.socket.close()

    def send(self, text):
        self.socket.sendall(text if isinstance(text, bytes) else text.encode())

    def more(self, limit=None):
        limit = LIMIT if limit is None else limit
        if not select.select([self.socket], [], [], limit)[0]:
            raise TimeoutError('the daemon says nothing')
        got = self.socket.recv(1 << 18)
        if not got:
            raise EOFError('the daemon closed the connection')
        self.data += got

    def line(self, limit=None):
        while (end := self.data.find(b'\n')) < 0:
            self.more(limit)
        raw = bytes(self.data[:end])
        del self.data[:end + 1]
        m = re.search(rb'(?:^| )#(\d+)$', raw)
        chunk = None
        if m:
            while len(self.data) < int(m[1]):
                self.more(limit)
            chunk = bytes(self.data[:int(m[1])])
            del self.data[:int(m[1])]
        return Line(raw, chunk)

    def ask(self, text, chunk=b''):
        """The last line of the answer; the * lines before it are in .items. Lines of streams
        and events that come meanwhile are kept for next()."""
        self.send(text.encode() + b'\n' + chunk)
        items = []
        while True:
            line = self.line()
            if line.sign == '!':
                self.later.append(line)
            elif line.sign == '*':
                items.append(line)
            elif line.sign == '+':
                line.items = items
                return line
            else:
                raise Refused(line)

    def next(self, limit=None):
        return self.later.pop(0) if self.later else self.line(limit)

    def refused(self, text, code, chunk=b''):
        try:
            line = self.ask(text, chunk)
        except Refused as e:
            assert e.code == code, f'{text}: {e}, want {code}'
            return str(e)
        raise AssertionError(f'{text}: {line}, want -{code}')

    def run(self, vm, *argv, options=''):
        """(stdout, stderr, the end's line)"""
        exec_id = self.ask(f'exec {vm} {options} -- ' + ' '.join(argv))['exec']
        return self.drain(exec_id)

    def drain(self, exec_id):
        out = {'stdout': bytearray(), 'stderr': bytearray()}
        kept = []
        while True:
            line = self.next()
            if line.fields.get('exec') != exec_id:
                kept.append(line)
                continue
            kind = line.words[1]
            if kind in out:
                out[kind] += line.chunk
            elif kind not in ('stdin-credit', 'stdout-end'):
                self.later = kept + self.later
                return bytes(out['stdout']), bytes(out['stderr']), line


class Daemon:
    """One casemated with fake VMMs (real: the ones of the build; guest='initd': those whose
    guest is initd on the host, which takes root), in a directory of its own."""
    def __init__(self, *options, real=False, kernel='', directory=None, guest=None):
        self.dir = directory or tempfile.mkdtemp(prefix='casemated-')
        os.chmod(self.dir, 0o755)
        self.path = os.path.join(self.dir, 'run', 'd.sock')
        argv = [os.path.join(BUILD, 'casemated'), '--socket', self.path, '--verbose']
        image = os.environ.get('CASEMATE_TEST_IMAGE')
        if not real:
            image = os.path.join(self.dir, 'image')
            with open(image, 'wb') as f:
                f.write(bytes(1024) + bytes.fromhex('e2e1f5e0') + bytes(3072))
            for name, text in (('kernel', kernel), ('initd', '')):
                with open(os.path.join(self.dir, name), 'w') as f:
                    f.write(text)
            argv += ['--kernel', os.path.join(self.dir, 'kernel'),
                     '--initd', os.path.join(self.dir, 'initd')]
        # A name of its own, by which this daemon's VMMs are found.
        self.vmm = os.path.join(self.dir, 'vmm')
        if not os.path.lexists(self.vmm):
            os.symlink(os.path.join(BUILD, 'casemate-vmm' if real else
                                    'tests/daemon/initd-vmm' if guest == 'initd' else
                                    'tests/daemon/fake-vmm'), self.vmm)
        argv += ['--vmm', self.vmm]
        # Of an option that is given twice the last counts. Its VMs want to be root.
        if guest == 'initd':
            argv += ['--initd', os.path.join(BUILD, 'initd/initd-host'), '--vm-uids', 'none']
        if image:
            argv += ['--image', image]
        self.argv = argv + list(options)
        self.start()

    def start(self):
        self.log = open(os.path.join(self.dir, 'log'), 'a')
        ready, told = os.pipe()
        self.process = subprocess.Popen(self.argv + ['--ready-fd', str(told)],
                                        stdin=subprocess.DEVNULL, stderr=self.log,
                                        pass_fds=[told])
        os.close(told)
        if os.read(ready, 16) != b'ok\n':
            raise RuntimeError('casemated did not start: ' + self.logged())
        os.close(ready)

    def logged(self):
        with open(os.path.join(self.dir, 'log')) as f:
            return f.read()

    def client(self):
        return Client(self.path)

    def processes(self):
        """PID: (parent, command line) of all that are there."""
        found = {}
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open(f'/proc/{pid}/cmdline', 'rb') as f:
                    argv = f.read().split(b'\0')
                with open(f'/proc/{pid}/stat') as f:
                    state = f.read().rsplit(')', 1)[1].split()
            except OSError:
                continue
            if state[0] != 'Z':
                found[int(pid)] = int(state[1]), argv
        return found

    def engine(self):
        """The PID of the engine, or 0."""
        for pid, (parent, argv) in self.processes().items():
            if parent == self.process.pid and b'--engine' in argv:
                return pid
        return 0

    def fds(self):
        """Descriptors of parent and engine."""
        return sum(len(os.listdir(f'/proc/{pid}/fd'))
                   for pid in (self.process.pid, self.engine()))

    def vmms(self):
        """PIDs of VMMs of this daemon."""
        return [pid for pid, (_, argv) in self.processes().items()
                if argv[0] == self.vmm.encode()]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(LIMIT)
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        return self.process.returncode


def eventually(what, text, limit=LIMIT):
    end = time.monotonic() + limit
    while not what():
        if time.monotonic() > end:
            raise AssertionError(text)
        time.sleep(0.02)


class Skip(Exception):
    """Why a case cannot be run here."""


def cases_run(names, run):
    """TAP of run(name) for each. What the program is to end with."""
    print(f'1..{len(names)}', flush=True)
    bad = 0
    for n, name in enumerate(names, 1):
        try:
            run(name)
            print(f'ok {n} - {name}', flush=True)
        except Skip as e:
            print(f'ok {n} - {name} # SKIP {e}', flush=True)
        except Exception:       # noqa: every failure of a case is a line
            bad += 1
            traceback.print_exc()
            print(f'not ok {n} - {name}', flush=True)
    return 1 if bad else 0


def as_another(d, groups, code):
    """Runs code as a user without rights, in these groups, with what is here and the socket's
    `path`. Returns the words it printed."""
    if os.getuid() != 0:
        raise Skip('needs root, to be other users')
    # All is read before: the directory of the tests may be closed to others.
    code = ('import os, sys; sys.path.insert(0, sys.argv[1]); from client import *\n'
            'path = sys.argv[2]\n'
            f'os.setgroups({groups}); os.setgid(65534); os.setuid(65534)\n' + code)
    for directory in (d.dir, os.path.dirname(d.path)):
        os.chmod(directory, 0o755)
    p = subprocess.run([sys.executable, '-c', code, os.path.join(ROOT, 'tests/daemon'), d.path],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env=dict(os.environ, PYTHONDONTWRITEBYTECODE='1'))
    assert p.returncode == 0, p.stderr.decode()
    return p.stdout.decode().split()


@contextlib.contextmanager
def together(function, items):
    """function(item) in a thread each, while the body runs; then the first error of any."""
    errors = []

    def one(item):
        try:
            function(item)
        except Exception as e:      # noqa: to be told by the main thread
            errors.append(e)
    threads = [threading.Thread(target=one, args=(item,)) for item in items]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        for t in threads:
            t.join()
    if errors:
        raise errors[0]


def casemate(d, *argv, status=0, stdin=b'', limit=30, **env):
    """The command at the daemon d, which is to end with that status: (stdout, stderr)."""
    p = subprocess.run([CASEMATE, *argv], input=stdin, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=limit * SCALE,
                       env=dict(os.environ, CASEMATE_SOCKET=d.path, **env))
    assert p.returncode == status, f'{argv}: {p.returncode}, {p.stdout} {p.stderr}'
    return p.stdout, p.stderr
