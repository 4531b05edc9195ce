#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a person at a terminal, or a script of theirs, gets from the command: listings, JSON,
what is said when something is wrong. Fake VMMs, as daemon_test.py, whose frame this uses."""
import json
import os
import subprocess
import sys
import time

import daemon_test
from client import SCALE

CASEMATE = daemon_test.CASEMATE
HOSTILE = b'\xff\x1b]0;x\x07"\\\xe2\x82\xac\xc2\x9b\xef\xbf\xbd \xe2\x80\xae'


def casemate(d, *argv, status=0, stdin=b'', more=None):
    """Its stdout; stderr in casemate.err."""
    env = dict(os.environ, CASEMATE_SOCKET=d.path, LC_ALL='C', **(more or {}))
    p = subprocess.run([CASEMATE, *argv], input=stdin, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, env=env, timeout=30 * SCALE)
    assert p.returncode == status, f'{argv}: {p.returncode}, {p.stdout} {p.stderr}'
    casemate.err = p.stderr.decode(errors='replace')
    return p.stdout


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
    path = os.path.join(d.dir, 'snap')
    casemate(d, 'snapshot', 'a', '-o', path)
    casemate(d, 'template', 'add', '12', path)
    t, = strictly(casemate(d, 'template', 'list', '--json'))
    assert t['template'] == '12' and t['target'] == 0 and t['held'] in (True, False)
    assert strictly(casemate(d, 'snapshot', 'inspect', path, '--json'))['kind'] == 'full'
    p = subprocess.Popen([CASEMATE, 'events', '--json', '--since', '0', '--socket', d.path],
                         stdout=subprocess.PIPE)
    events = [strictly(p.stdout.readline()) for _ in range(2)]
    p.terminate()
    p.wait()
    p.stdout.close()
    assert [e['event'] for e in events] == [1, 2] and events[0]['type'] == 'vm-ready', events
    c.close()


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


if __name__ == '__main__':
    sys.exit(daemon_test.main(globals()))
