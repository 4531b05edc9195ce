#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a person at a terminal, or a script of theirs, gets from the command: listings, JSON,
what is said when something is wrong. Fake VMMs, as daemon_test.py, whose frame this uses."""
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import client
import daemon_test
from client import CASEMATE, SCALE

HOSTILE = b'\xff\x1b]0;x\x07"\\\xe2\x82\xac\xc2\x9b\xef\xbf\xbd \xe2\x80\xae'


def casemate(d, *argv, **how):
    """Its stdout; stderr in casemate.err."""
    out, err = client.casemate(d, *argv, LC_ALL='C', **how)
    casemate.err = err.decode(errors='replace')
    return out


def no_duplicates(pairs):
    names = [k for k, _ in pairs]
    assert len(names) == len(set(names)), f'a name is there twice: {names}'
    return dict(pairs)


def strictly(data):
    """Parses JSON as RFC 8259 has it, no more."""
    def never(text):
        raise AssertionError(f'{text} is no JSON')
    return json.loads(data.decode('utf-8', 'strict'), parse_constant=never,
                      object_pairs_hook=no_duplicates)


def original(text):
    """The bytes that a string of our JSON stands for (base/json.h)."""
    out, at = bytearray(), 0
    while at < len(text):
        if text[at] == '\ufffd':
            out.append(int(text[at + 1:at + 3], 16))
            at += 3
        else:
            out += text[at].encode('utf-8')
            at += 1
    return bytes(out)


def make(d):
    """Two VMs, one with a label that is hostile and a command that runs."""
    c = d.client()
    c.ask('create name=a')
    c.send(b"create name=b label='" + HOSTILE + b"'\n")
    assert c.line()['vm'] == 'b'
    c.ask('exec b detach=yes -- sleep')
    return c


def case_json(d):
    c = make(d)
    a, b = strictly(casemate(d, 'ls', '--json'))
    assert (a['vm'], a['state'], a['owner'], a['mem']) == ('a', 'ready', os.getuid(), 256 << 20)
    assert original(b['label']) == HOSTILE, b
    for vm in a, b:
        assert 0 < vm['private'] <= vm['rss'] < vm['mem'], vm
        assert vm['cpu'] >= 0 and 0 < vm['cpu-at'] <= vm['age'], vm
    assert 'idle' in a and 'idle' not in b and b['execs'] == 1
    assert strictly(casemate(d, 'ls', '--json', '--label', 'none')) == []
    info = strictly(casemate(d, 'info', 'b', '--json'))
    assert original(info['label']) == HOSTILE and info['commands'][0]['command'] == 'sleep'
    assert info['commands'][0]['attached'] is False
    status = strictly(casemate(d, 'pool', 'status', '--json'))
    assert status['vms'] == status['leased'] == 2 and status['draining'] is False
    assert status['ready-mem'] == status['stored'] == 0
    path = os.path.join(d.dir, 'snap')
    casemate(d, 'snapshot', 'a', '-o', path)
    casemate(d, 'template', 'add', '12', path)
    t, = strictly(casemate(d, 'template', 'list', '--json'))
    assert t['template'] == '12' and t['target'] == 0 and t['held'] in (True, False)
    assert strictly(casemate(d, 'snapshot', 'inspect', path, '--json'))['kind'] == 'full'
    c.ask('forward a tcp:127.0.0.1:0 tcp:80')
    f, = strictly(casemate(d, 'forwards', '--json'))
    assert (f['forward'], f['vm'], f['target'], f['accepted']) == (1, 'a', 'tcp:80', 0), f
    p = subprocess.Popen([CASEMATE, 'events', '--json', '--since', '0', '--socket', d.path],
                         stdout=subprocess.PIPE)
    events = [strictly(p.stdout.readline()) for _ in range(2)]
    p.terminate()
    p.wait()
    p.stdout.close()
    assert [e['event'] for e in events] == [1, 2] and events[0]['type'] == 'vm-ready', events
    c.close()


def waiting(fd):
    return struct.unpack('i', fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]


def case_output_nobody_reads(d):
    """The command waits for its reader, hears signals meanwhile, and leaves the pipe, which is
    not its own, as it was. A slow reader gets all."""
    d.client().ask('create name=a')
    ours, theirs = os.pipe()

    def flood(size):
        return subprocess.Popen([CASEMATE, 'exec', '--socket', d.path, 'a', '--', 'flood',
                                 str(size)], stdin=subprocess.DEVNULL, stdout=theirs)
    p = flood(1 << 30)
    client.eventually(lambda: waiting(ours) > 60000, 'no output')
    assert p.poll() is None and not fcntl.fcntl(theirs, fcntl.F_GETFL) & os.O_NONBLOCK
    p.terminate()
    assert p.wait(10 * SCALE) == 128 + signal.SIGTERM
    while waiting(ours):
        os.read(ours, 1 << 20)
    p = flood(5_000_001)
    os.close(theirs)
    seen = 0
    while got := os.read(ours, 3001):
        assert got == b'x' * len(got)
        seen += len(got)
    os.close(ours)
    assert p.wait() == 0 and seen == 5_000_001, seen



def case_hostile_text(d):
    c = make(d)
    for argv in ('ls',), ('info', 'b'):
        out = casemate(d, *argv).decode('utf-8', 'strict')
        assert '\u20ac' in out, 'a good character is gone'
        assert not [x for x in out if x != '\n' and (ord(x) < 32 or 127 <= ord(x) < 160 or
                                                     ord(x) == 0x202e)], repr(out)
    casemate(d, 'info', b'no\x1b[31m', status=125)
    assert '\x1b' not in casemate.err, casemate.err
    c.close()


def case_idle_counts_from_the_end(d):
    """A VM whose command took longer than its idle time is not idle when that ends."""
    c = d.client()
    c.ask('create name=a idle=2s')
    exec_id = c.ask('exec a detach=yes -- sleep')['exec']
    time.sleep(3)
    c.ask(f'signal {exec_id} TERM')
    c.ask(f'wait {exec_id}')
    vm, = strictly(casemate(d, 'ls', '--json'))
    assert vm['idle'] < 2, vm
    c.close()


def case_top_once(d):
    c = make(d)
    out = casemate(d, 'top', '--once').decode('ascii').splitlines()
    assert out[0].startswith('2 VMs, 2 of them leased, 512M of guest memory') and \
        out[1] == 'templates: none' and out[2].split()[0] == 'NAME', out
    assert sorted(line.split()[0] for line in out[3:]) == ['a', 'b'] and \
        all(' ' <= x < '\x7f' for line in out for x in line), out
    assert casemate(d, 'top').decode('ascii').splitlines()[2] == out[2]
    names = [line.split()[0] for line in casemate(d, 'top', '--sort', 'name').decode()
             .splitlines()[3:]]
    assert names == ['a', 'b'], names
    by = [line.split()[0] for line in casemate(d, 'top', '--sort', 'execs').decode()
          .splitlines()[3:]]
    assert by == ['b', 'a'], by
    casemate(d, 'top', '--sort', 'colour', status=125)
    casemate(d, 'top', '--interval', '1us', status=125)
    c.close()


class Terminal:
    """A command on a terminal of its own."""
    def __init__(self, d, *argv, term='xterm', rows=24, columns=120):
        self.master, self.slave = pty.openpty()
        self.size(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b''
        self.process = subprocess.Popen(
            [CASEMATE, *argv], stdin=self.slave, stdout=self.slave, stderr=self.slave,
            env=dict(os.environ, CASEMATE_SOCKET=d.path, TERM=term), start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def size(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

    def type(self, keys):
        self.seen = b''
        os.write(self.master, keys)

    def wait_for(self, text):
        end = time.monotonic() + 20 * SCALE
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.master], [], [], left)[0], \
                f'no {text} came: {self.seen}'
            self.seen += os.read(self.master, 65536)

    def end(self, status):
        """It ends, and the terminal is as it was."""
        self.wait_for(b'\x1b[?1049l')
        assert self.process.wait(20 * SCALE) == status, self.process.returncode
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        assert b'\x1b[?25h' in self.seen, 'the cursor is not back'
        assert termios.tcgetattr(self.slave) == self.before, 'the terminal is not as it was'
        os.close(self.master)
        os.close(self.slave)


def case_top_on_a_terminal(d):
    c = make(d)
    t = Terminal(d, 'top', '--interval', '200ms')
    t.wait_for(b'by cpu')
    assert b'\x1b[?1049h' in t.seen and b'2 VMs, 2 of them leased' in t.seen
    assert b'\x07' not in t.seen and b']0;' not in t.seen.replace(b'.]0;', b''), t.seen
    # ^L has all of it written anew; otherwise only what changed comes.
    t.type(b'n\x0c')
    t.wait_for(b'by name')
    t.type(b'n\x0c')
    t.wait_for(b'by name, turned round')
    t.type(b'h\x0c')
    t.wait_for(b'sort:')
    t.type(b'h')
    c.ask('create name=third')
    t.wait_for(b'third')
    t.seen = b''
    t.size(8, 60)
    t.wait_for(b'\x1b[H\x1b[2J3 VMs')
    t.type(b'q')
    t.end(0)
    c.close()


def case_top_interrupted(d):
    c = make(d)
    t = Terminal(d, 'top')
    t.wait_for(b'by cpu')
    t.type(b'\x03')
    t.end(130)
    # The daemon does not answer: ^C ends it all the same.
    t = Terminal(d, 'top', '--interval', '100ms')
    t.wait_for(b'by cpu')
    engine = d.engine()
    os.kill(engine, signal.SIGSTOP)
    try:
        time.sleep(0.5)
        t.type(b'q\x03')
        t.end(130)
    finally:
        os.kill(engine, signal.SIGCONT)
    # The daemon is gone: it is said, on a terminal that is as it was.
    t = Terminal(d, 'top', '--interval', '100ms')
    t.wait_for(b'by cpu')
    c.ask('stop')
    t.end(125)
    assert b'connection' in t.seen, t.seen
    c.close()
    d.process.wait(20 * SCALE)


def case_top_on_a_poor_terminal(d):
    c = make(d)
    t = Terminal(d, 'top', term='dumb')
    assert t.process.wait(20 * SCALE) == 0
    t.wait_for(b'NAME')
    assert b'\x1b' not in t.seen, t.seen
    c.close()


def on_terminal(d, *argv, quiet):
    """What it says on stderr, a terminal, while stdout is none."""
    master, slave = pty.openpty()
    p = subprocess.Popen([CASEMATE, *argv] + quiet * ['--quiet'], stdout=subprocess.DEVNULL,
                         stderr=slave, env=dict(os.environ, CASEMATE_SOCKET=d.path))
    assert p.wait(60 * SCALE) == 0, os.read(master, 65536)
    os.close(slave)
    seen = b''
    try:
        while True:
            data = os.read(master, 65536)
            seen += data
            if not data:
                break
    except OSError:
        pass
    os.close(master)
    return seen


def case_progress(d):
    c = d.client()
    c.ask('create name=a')
    path = os.path.join(d.dir, 'snap')
    casemate(d, 'snapshot', 'a', '-o', path)
    tree = os.path.join(d.dir, 'tree')
    os.mkdir(tree)
    open(os.path.join(tree, 'file'), 'w').close()
    verify = ('snapshot', 'verify', path)
    compact = ('snapshot', 'compact', '-o', path + '.full', path)
    for argv, text in (verify, b'verifying'), (compact, b'folding'):
        seen = on_terminal(d, *argv, quiet=False)
        assert text in seen and b' of 2 MiB' in seen and seen.endswith(b'\r\x1b[K'), seen
        assert on_terminal(d, *argv, quiet=True) == b''
        casemate(d, *argv)
        assert not casemate.err
        assert casemate(d, *argv, '--quiet') == b''
    # So short a save is over before it is looked at.
    assert on_terminal(d, 'snapshot', 'a', '-o', path, quiet=True) == b''
    assert on_terminal(d, 'snapshot', 'a', '-o', path, quiet=False) in (b'', b'\r\x1b[K')
    # One whose VMM stands still is watched.
    pid = int(c.ask('info a')['pid'])
    os.kill(pid, signal.SIGSTOP)
    t = Terminal(d, 'snapshot', 'a', '-o', path)
    t.wait_for(b'saving a: 0 MiB')
    assert c.ask('info a')['saving'] == '0'
    os.kill(pid, signal.SIGCONT)
    assert t.process.wait(20 * SCALE) == 0
    assert 'saving' not in c.ask('info a').fields
    if shutil.which('mkfs.erofs'):
        build = ('image', 'build', '-o', os.path.join(d.dir, 'made'), '--from-dir', tree)
        assert b'checking the image' in on_terminal(d, *build, quiet=False)
        assert on_terminal(d, *build, quiet=True) == b''
    c.close()


def doctor(d, *argv):
    """(exit status, the checks by name)"""
    p = subprocess.run([CASEMATE, 'doctor', '--json', *argv], stdout=subprocess.PIPE,
                       env=dict(os.environ, CASEMATE_SOCKET=d.path), timeout=30 * SCALE)
    checks = {c['check']: c for c in strictly(p.stdout)}
    for c in checks.values():
        assert c['verdict'] in ('ok', 'note', 'wrong') and c['text'], c
        assert ('todo' in c) == (c['verdict'] != 'ok'), c
    assert p.returncode == any(c['verdict'] == 'wrong' for c in checks.values())
    return p.returncode, checks


def case_doctor(d):
    status, checks = doctor(d)
    assert {'kvm', 'io_uring', 'cgroups', 'nofile', 'memlock', 'thp', 'shmem', 'state', 'tmp',
            'programs', 'image', 'daemon', 'confined'} == set(checks), checks
    assert checks['daemon']['verdict'] == checks['programs']['verdict'] == 'ok', checks
    assert checks['state']['text'].endswith(f'free in {d.path}.state, for the daemon\'s state')
    text = casemate(d, 'doctor', status=status).decode()
    assert [line.split()[1] for line in text.splitlines()] == list(checks), text
    for name, why in (('/nowhere', 'there is no file'), ('/etc/passwd', 'not an EROFS image'),
                      (os.path.join(d.dir, 'image'), 'image:')):
        status, checks = doctor(d, '--image', name)
        assert status == 1 and checks['image']['verdict'] == 'wrong', checks
        assert why in checks['image']['text'], checks
    status, checks = doctor(d, '--socket', os.path.join(d.dir, 'none'))
    assert checks['daemon']['verdict'] == 'ok' and 'none serves' in checks['daemon']['text']
    casemate(d, 'doctor', 'now', status=125)


def case_doctor_of_a_full_disk(d):
    small = os.path.join(d.dir, 'small')
    os.mkdir(small)
    p = subprocess.run(['unshare', '-rm', 'sh', '-c', f'mount -t tmpfs -o size=1m small {small}'
                        f' && {CASEMATE} doctor --json --socket {small}/s'],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if p.returncode != 1 or not p.stdout:
        raise client.Skip('no mount namespace to have a small disk in')
    checks = {c['check']: c for c in strictly(p.stdout)}
    assert checks['state']['verdict'] == 'wrong' and '1M free' in \
        checks['state']['text'].replace('1020K', '1M').replace('1024K', '1M'), checks['state']


def case_errors(d):
    """One line each, which says what to do next."""
    def says(text, *argv, more=None):
        casemate(d, *argv, status=125, **(more or {}))
        assert casemate.err.count('\n') == 1 and text in casemate.err, casemate.err
    none = os.path.join(d.dir, 'none')
    text = os.path.join(d.dir, 'text')
    with open(text, 'w', encoding='ascii') as f:
        f.write('not what is wanted' * 1000)
    says('casemate image build makes one', 'run', '--image', none, '--', 'true')
    says('casemate image build makes one', 'run', '--image', text, '--', 'true')
    says('casemate image build makes one', 'run', '--keep', 'x', '--image', none, '--', 'true')
    says('a multiple of 2M', 'run', '--mem', '3M', '--', 'true')
    says('a size such as 256M', 'run', '--mem', '3x', '--', 'true')
    says('see casemate help run', 'run', '--keep', 'bad name', '--', 'true')
    for argv in ('exec', 'nobody', '--', 'x'), ('kill', 'nobody'), ('info', 'nobody'), \
            ('fork', '2', 'nobody'), ('snapshot', 'nobody', '-o', none):
        says('there is no VM nobody; casemate ls shows what there is', *argv)
    says('casemate template list shows what there is', 'pool', 'set', 'nothing', '1')
    says('may the daemon read it?', 'restore', none)
    says('see casemate help events', 'events', '--since', 'x')
    says('see casemate run --help', 'run')
    says('casemate run --keep NAME starts one', 'ls', '--socket', none)
    says('at most 107 bytes', 'ls', '--socket', '/' + 'x' * 200)
    says('--interval wants', 'top', '--interval', 'soon')
    d.client().ask('create name=x')
    says('choose another name', 'run', '--keep', 'x', '--', 'true')


def case_no_permission(d):
    if os.getuid():
        raise client.Skip('only root can become somebody else')
    copy = os.path.join(d.dir, 'casemate')
    shutil.copy(CASEMATE, copy)
    os.chmod(d.dir, 0o755)

    def ask():
        p = subprocess.run([copy, 'ls', '--socket', d.path], stderr=subprocess.PIPE,
                           preexec_fn=lambda: os.setuid(65534))
        assert p.returncode == 125 and p.stderr.count(b'\n') == 1, p.stderr
        return p.stderr
    assert b'Permission denied; be its user or root, or a member of its --group' in ask()
    os.chmod(os.path.dirname(d.path), 0o755)
    os.chmod(d.path, 0o666)
    assert b'this daemon serves its own user, root and the members of its --group' in ask()


def case_full_disk(d):
    small = os.path.join(d.dir, 'small')
    tree = os.path.join(d.dir, 'tree')
    for name in small, tree:
        os.mkdir(name)
    with open(os.path.join(tree, 'file'), 'wb') as f:
        f.write(os.urandom(2000000))
    if not shutil.which('mkfs.erofs'):
        raise client.Skip('mkfs.erofs is not installed')
    p = subprocess.run(['unshare', '-rm', 'sh', '-c', f'mount -t tmpfs -o size=1m small {small}'
                        f' || exit 77; {CASEMATE} image build -o {small}/i --from-dir {tree}; '
                        f'echo $? $(ls -A {small})'], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE)
    if p.returncode:
        raise client.Skip('no mount namespace to have a small disk in')
    assert p.stdout == b'125\n', p.stdout
    assert p.stderr.count(b'\n') == 1 and b'the disk is full: make room there' in p.stderr, \
        p.stderr


if __name__ == '__main__':
    sys.exit(daemon_test.main(globals()))
