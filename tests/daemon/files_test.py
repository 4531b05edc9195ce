#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The file verbs: casemated, and initd as a program of the host in the place of a VM
(initd_vmm.c). TAP; names of cases may be given."""
import os
import random
import sys
import time

import daemon_test
from client import Refused, eventually

WINDOW = 262144


def guest(function):
    """A case whose VM is initd on the host."""
    def case(d):
        if os.geteuid():
            raise daemon_test.Skip('a guest on the host takes root')
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
        if line.words[1:2] != ['stdin-credit']:
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
    c.ask('create name=a')
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
    assert code(put(c, 'a', '/tmp/big', bytes(70 << 20))) == 28
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


if __name__ == '__main__':
    sys.exit(daemon_test.main(globals()))
