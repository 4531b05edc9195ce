#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The file verbs: casemated, and initd as a program of the host in the place of a VM
(initd_vmm.c). TAP; names of cases may be given."""
import json
import os
import random
import shutil
import stat
import sys
import time

import client
import daemon_test
from client import Refused, eventually

WINDOW = 262144


def guest(function):
    """A case whose VM is initd on the host."""
    def case(d):
        if os.geteuid():
            raise client.Skip('a guest on the host takes root')
        function(d)
    case.guest = 'initd'
    return case


def put(c, vm, path, data, options='', close=True):
    """The exec's number; with `close`, (stdout, stderr, end)."""
    exec_id = c.ask(f'put {vm} {path} {options}')['exec']
    sent, credit = 0, WINDOW
    while sent < len(data):
        n = min(credit, 65536, len(data) - sent)
        if n:
            c.send(b'stdin %s #%d\n' % (exec_id.encode(), n) + data[sent:sent + n])
            sent, credit = sent + n, credit - n
            continue
        line = c.next()
        if line.fields.get('exec') != exec_id:      # of an earlier command, which had ended
            continue
        if line.words[1] != 'stdin-credit':
            c.later.insert(0, line)
            break
        credit += int(line['bytes'])
    if not close:
        return exec_id
    c.send(f'@close close-stdin {exec_id}\n')
    kept = []
    while (line := c.line()).tag != 'close':
        kept.append(line)
    c.later += kept
    return c.drain(exec_id)


def ended(c, text):
    """A file verb's (stdout, stderr, end)."""
    return c.drain(c.ask(text)['exec'])


def code(result):
    out, err, end = result
    assert end.words[1] == 'exit', end
    assert (end['code'] != '0') == bool(err), (end, err)
    return int(end['code'])


@guest
def case_put_get(d):
    c = d.client()
    c.ask('create name=a mem=128M')
    data = random.randbytes(9_000_001)
    assert code(put(c, 'a', '/tmp/file', data, f'mode=0640 size={len(data)}')) == 0
    out, err, end = ended(c, 'get a /tmp/file')
    assert out == data and end['code'] == '0', (len(out), err, end)
    assert ended(c, 'get a /tmp/file offset=5000000 length=77')[0] == data[5000000:5000077]
    out = ended(c, 'stat a /tmp/file')[0]
    assert out.startswith(b'name=/tmp/file type=file mode=0640 uid=0 gid=0 size=9000001 ')
    assert code(put(c, 'a', '/tmp/file', b'x', 'size=2')) == 61
    assert code(put(c, 'a', '/tmp', b'x')) == 21
    assert code(ended(c, 'get a /tmp/none')) == 2
    assert code(ended(c, 'get a /etc/shadow user=65534')) == 13
    assert ended(c, 'get a /tmp/file')[0] == data
    # 64 MiB of /tmp and no more.
    full = put(c, 'a', '/tmp/big', bytes(70 << 20))
    assert code(full) == 28, full
    assert ended(c, 'ls a /tmp')[0].count(b'\n') == 1


@guest
def case_names(d):
    c = d.client()
    c.ask('create name=a')
    assert code(ended(c, 'mkdir a /tmp/d/e parents=yes mode=0700')) == 0
    assert code(put(c, 'a', r'"/tmp/d/\n\x80 \"x"', b'odd')) == 0
    assert ended(c, 'ls a /tmp/d/ recursive=yes')[0].count(b'\n') == 2
    assert code(ended(c, r'mv a "/tmp/d/\n\x80 \"x" /tmp/d/e/user=5')) == 0
    assert code(ended(c, 'chmod a /tmp/d/e/user=5 mode=0600')) == 0
    assert ended(c, 'get a /tmp/d/e/user=5')[0] == b'odd'
    assert code(ended(c, 'rm a /tmp/d')) == 21
    assert code(ended(c, 'rm a /tmp/d recursive=yes')) == 0
    assert code(ended(c, 'ls a /tmp/d')) == 2
    assert ended(c, 'ls a /tmp')[0] == b''


@guest
def case_refusals(d):
    c = d.client()
    c.ask('create name=a')
    for text, want in (
            ('put a', 'ARGUMENT'), ('put a x', 'ARGUMENT'), ('put b /x', 'NOTFOUND'),
            ('put a "" ', 'ARGUMENT'), ('put a -- /x', 'ARGUMENT'), ('mv a /x', 'ARGUMENT'),
            ('put a /x mode=1 mode=1', 'ARGUMENT'), ('get a /x mode=1', 'ARGUMENT'),
            ('get a /x user=root', 'ARGUMENT'), ('get a /x timeout=1y', 'ARGUMENT'),
            ('get a /x detach=yes', 'ARGUMENT'), ('get a /' + 'x' * 5000, 'ARGUMENT'),
            ('mv a /x y=z', 'ARGUMENT'), ('chmod a /x', 'ARGUMENT')):
        try:
            raise AssertionError(f'{text}: {c.ask(text)}')
        except Refused as e:
            assert e.code == want, f'{text}: {e}'
    assert code(ended(c, 'chmod a /tmp mode=9')) == 22
    assert code(ended(c, 'get a /tmp offset=x')) == 22
    assert ended(c, 'ls a /tmp')[0] == b''


@guest
def case_client_lost(d):
    """A put whose client is gone makes no file, whatever it had sent."""
    c, other = d.client(), d.client()
    c.ask('create name=a')
    put(other, 'a', '/tmp/half', bytes(100000), close=False)
    put(other, 'a', '/tmp/none', b'', close=False)
    other.ask('watch a /tmp')
    eventually(lambda: c.ask('list').items[0]['execs'] == '3', 'they do not run')
    other.close()
    eventually(lambda: c.ask('list').items[0]['execs'] == '0', 'they go on')
    assert ended(c, 'ls a /tmp')[0] == b''


@guest
def case_client_lost_at_once(d):
    """Before its command has begun, too."""
    c = d.client()
    c.ask('create name=a')
    for _ in range(30):
        other = d.client()
        other.send('put a /tmp/x\n' * 3 + 'ls a /\n')
        other.close()
    eventually(lambda: c.ask('list').items[0]['execs'] == '0', 'they go on')
    assert ended(c, 'ls a /tmp')[0] == b''


@guest
def case_timeout_and_kill(d):
    c = d.client()
    c.ask('create name=a')
    end = ended(c, 'put a /tmp/x timeout=200ms')[2]
    assert end['signal'] == '9' and end['timeout'] == 'yes', end
    exec_id = c.ask('put a /tmp/x')['exec']
    c.ask(f'signal {exec_id} TERM')
    assert c.drain(exec_id)[2]['signal'] == '15'
    assert ended(c, 'ls a /tmp')[0] == b''


@guest
def case_window(d):
    """A get stands still when its window is used up, and harms nobody."""
    c = d.client()
    c.ask('create name=a')
    assert code(put(c, 'a', '/tmp/f', bytes(2000000))) == 0
    exec_id = c.ask('get a /tmp/f window=1000')['exec']
    assert len(c.next().chunk) == 1000
    assert ended(c, 'stat a /tmp/f')[2]['code'] == '0'
    c.send(f'credit {exec_id} 3000000\n')
    assert len(c.drain(exec_id)[0]) == 1999000


@guest
def case_watch(d):
    c, w = d.client(), d.client()
    c.ask('create name=a')
    exec_id = w.ask('watch a /tmp')['exec']
    seen = b''

    def wait(text):
        nonlocal seen
        end = time.monotonic() + 20
        while text not in seen:
            assert time.monotonic() < end, seen
            seen += w.next().chunk
    wait(b'watching\n')
    assert code(put(c, 'a', '/tmp/x', b'1')) == 0
    # It comes into being whole: under its own name at once.
    wait(b'created name=x\n')
    assert code(ended(c, 'mv a /tmp/x "/tmp/y z"')) == 0
    wait(b'moved-to name="y z" cookie=')
    assert code(ended(c, 'rm a "/tmp/y z"')) == 0
    wait(b'deleted name="y z"\n')
    w.ask(f'signal {exec_id} TERM')
    assert w.drain(exec_id)[2]['signal'] == '15'


def command(d):
    def casemate(*argv, status=0, stdin=b''):
        return client.casemate(d, *argv, status=status, stdin=stdin, limit=60,
                               TZ='UTC')[status != 0]
    d.client().ask('create name=a')
    return casemate


@guest
def case_command(d):
    casemate = command(d)
    assert casemate('mkdir', '-p', 'a:/tmp/x/y', 'a:/tmp/z') == b''
    data = random.randbytes(3_000_000)
    path = os.path.join(d.dir, 'file')
    with open(path, 'wb') as f:
        f.write(data)
    os.chmod(path, 0o751)
    casemate('cp', path, 'a:/tmp/x/y')
    assert casemate('cat', 'a:/tmp/x/y/file') == data
    assert casemate('cat', '--offset', '7', '--length', '3', 'a:/tmp/x/y/file') == data[7:10]
    assert casemate('cat', 'a:/tmp/x/y/file', 'a:/tmp/x/y/file') == data + data
    casemate('cp', 'a:/tmp/x/y/file', path + '2')
    with open(path + '2', 'rb') as f:
        assert f.read() == data
    assert os.stat(path + '2').st_mode & 0o7777 == 0o751
    casemate('cp', '-', 'a:/tmp/in', stdin=data)
    assert casemate('cp', 'a:/tmp/in', '-') == data
    assert casemate('cp', 'a:/tmp/in', '/dev/null') == b''
    listed = json.loads(casemate('ls', '-r', '--json', 'a:/tmp'))
    assert [e['name'] for e in listed] == ['in', 'x', 'x/y', 'x/y/file', 'z'], listed
    assert listed[3]['size'] == 3_000_000 and listed[3]['mode'] == '0751'
    assert casemate('ls', 'a:/tmp').splitlines()[0].startswith(b'-rw-r--r--     0     0  ')
    casemate('chmod', '600', 'a:/tmp/in')
    assert json.loads(casemate('stat', '--json', 'a:/tmp/in'))[0]['mode'] == '0600'
    casemate('mv', 'a:/tmp/in', 'a:/tmp/out')
    assert b'a: recursive=yes' in casemate('rm', 'a:/tmp/x', status=1)
    casemate('rm', '-r', 'a:/tmp/x', 'a:/tmp/out', 'a:/tmp/z')
    assert casemate('ls', 'a:/tmp') == b''
    assert b'No such file' in casemate('cat', 'a:/tmp/none', status=1)
    assert b'No such file' in casemate('ls', 'a:/tmp/none', status=1)
    assert b'No such file' in casemate('watch', 'a:/tmp/none', status=1)
    assert b'Permission denied' in casemate('cp', path, 'a:/file', '--user', '65534', status=1)
    for argv in (('cp', path, path), ('cp', 'a:/x', 'a:/y'), ('cat', 'x'), ('cat', 'a:x'),
                 ('mv', 'a:/x', 'b:/y'), ('cat', 'b:/x'), ('cp', d.dir, 'a:/tmp'),
                 ('cp', 'a:/tmp', d.dir), ('cp', path + '9', 'a:/tmp')):
        casemate(*argv, status=125)
    assert casemate('watch', '--timeout', '300ms', 'a:/tmp', status=124) == b''


def tree(top):
    found = {}
    for at, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(at, name)
            mode = os.lstat(path).st_mode
            what = os.readlink(path) if os.path.islink(path) else None
            if stat.S_ISREG(mode):
                with open(path, 'rb') as f:
                    what = f.read()
            found[os.path.relpath(path, top)] = (mode, what)
    return found


@guest
def case_trees(d):
    casemate = command(d)
    top = os.path.join(d.dir, 'top')
    os.makedirs(top + '/a/b')
    os.makedirs(top + '/ro')
    for name in 'one', 'a/two words', 'a/b/\n', 'ro/x', 'a/b/\udc80':
        with open(os.path.join(top, name), 'wb') as f:
            f.write(random.randbytes(70000))
    os.chmod(top + '/one', 0o640)
    os.symlink('../nowhere', top + '/a/link')
    os.symlink('a', top + '/dirlink')
    os.chmod(top + '/ro', 0o555)
    want = tree(top)
    casemate('cp', '-r', top, 'a:/tmp/new')
    casemate('cp', '-r', top, 'a:/tmp/new')
    casemate('cp', '-r', 'a:/tmp/new', d.dir + '/got')
    assert tree(d.dir + '/got/top') == want
    casemate('rm', '-r', 'a:/tmp/new/top')
    casemate('cp', '-r', 'a:/tmp/new', d.dir + '/again')
    assert tree(d.dir + '/again') == want
    # Over what is there.
    casemate('cp', '-r', 'a:/tmp/new/', d.dir + '/again/..')
    casemate('cp', '-r', 'a:/tmp/new', d.dir + '/again')
    assert tree(d.dir + '/again/new') == want
    # What is neither file nor directory is left out, and the rest copied.
    os.mkfifo(top + '/fifo')
    assert b'left out' in casemate('cp', '-r', top, 'a:/tmp/second', status=125)
    casemate('cp', '-r', 'a:/tmp/second', d.dir + '/second')
    assert tree(d.dir + '/second') == want


def case_fork_meanwhile(d):
    """Copies have no use for a put: its connection is to the source, where it goes on."""
    c = d.client()
    c.ask('create name=a')
    exec_id = c.ask('put a /x')['exec']
    other = c.ask('exec a -- sleep')['exec']
    name = c.ask('fork a').items[0]['vm']
    eventually(lambda: [i['execs'] for i in c.ask('list').items] == ['2', '1'],
               'the put goes on in the copy')
    assert c.ask(f'info {name}').items[0]['command'] == '(restored)'
    c.ask(f'signal {other} KILL')
    c.ask(f'signal {exec_id} KILL')
    assert {c.drain(exec_id)[2]['signal'], c.drain(other)[2]['signal']} == {'9'}


def case_hostile_guest(d):
    """What a guest says cannot make `cp` write elsewhere, or anything set-uid."""
    casemate = command(d)
    out = os.path.join(d.dir, 'out')

    def copy(path, status):
        os.mkdir(out)
        said = casemate('cp', '-r', f'a:/{path}', out + '/to', status=status)
        assert not os.path.lexists(out + '/escaped') and not os.path.exists('/tmp/escaped')
        found = tree(out)
        shutil.rmtree(out)
        return said, found
    for path in 'up', 'up-later', 'absolute', 'empty', 'nameless':
        said, found = copy(path, 125)
        assert b'cannot be' in said and not found, (path, said, found)
    for path in 'quote', 'chunk', 'half', 'blank':
        said, found = copy(path, 125)
        assert b'does not speak' in said and not found, (path, said, found)
    # Links are made last, and nothing is written through one.
    said, found = copy('link', 125)
    assert sorted(found) == ['to', 'to/l'], found
    said, found = copy('twice', 125)
    assert found['to/x'][1] == b'data', found
    found = copy('setuid', 0)[1]
    assert [found[n][0] & 0o7777 for n in ('to/x', 'to/d', 'to')] == [0o777] * 3, found
    for argv in ('ls', 'a:/control'), ('ls', '-r', '--json', 'a:/control'):
        assert b'\x1b' not in casemate(*argv)


if __name__ == '__main__':
    sys.exit(daemon_test.main(globals()))
