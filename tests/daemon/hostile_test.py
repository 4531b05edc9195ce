#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""casemated against clients, guests and VMMs that mean it harm: what is somebody else's must
not suffer. TAP; names of cases may be given."""
import os
import sys

import daemon_test
from client import as_another, eventually


def signals_until_full(c, exec_id):
    """Fills what waits for a VMM that reads nothing: frames, then none is taken any more."""
    for _ in range(100):
        c.send(f'signal {exec_id} USR1\n' * 500)
        refused = 0
        for _ in range(500):
            refused += c.line().sign == '-BUSY'
        if refused == 500:
            return
    raise AssertionError('the VM takes frames for ever')


def case_deadline_that_finds_no_room(d):
    """SIGKILL for a command whose time is over, in a VM whose VMM reads nothing and whose client
    has filled all room with signals: the VM ends, and the engine does not."""
    c = d.client()
    pid = d.engine()
    c.ask('create name=other')
    c.ask('create name=a')
    first = c.ask('exec a detach=yes timeout=3s stdin=yes -- sleep')['exec']
    others = [c.ask('exec a detach=yes stdin=yes -- sleep')['exec'] for _ in range(3)]
    c.ask('exec a detach=yes -- deaf')
    signals_until_full(c, first)
    # An end of file that is still to be sent when the VM goes.
    for exec_id in [first] + others:
        c.ask('close-stdin ' + exec_id)
    end = c.ask('wait ' + first)
    assert end.words[1] == 'lost' and end['timeout'] == 'yes', end
    for exec_id in others:
        assert c.ask('wait ' + exec_id).words[1] == 'lost'
    eventually(lambda: [i['vm'] for i in c.ask('list').items] == ['other'], 'a goes on')
    assert d.engine() == pid, 'the engine died of it'
    assert c.run('other', 'echo', 'x')[0] == b'x\n'


def as_operator(d, code):
    os.chmod(d.path, 0o666)
    return as_another(d, [12], 'c = Client(path)\n' + code)


def case_ended_commands_of_others(d):
    """An operator who runs command after command does not make others' be forgotten."""
    c = d.client()
    c.ask('create name=a')
    kept = [c.ask(f'exec a detach=yes -- exit {i}')['exec'] for i in range(3)]
    assert as_operator(d, """
c.ask('create name=mine')
for i in range(600):
    last = c.ask('exec mine detach=yes -- exit 9')['exec']
    c.ask('wait ' + last)
print(c.ask('wait ' + last)['code'])
""") == ['9']
    assert [c.ask('wait ' + n)['code'] for n in kept] == ['0', '1', '2']


case_ended_commands_of_others.options = ('--group', 'man')


def case_all_connections(d):
    """Nor does one who opens connections shut others out."""
    assert as_operator(d, """
held = []
try:
    while len(held) < 1100:
        held.append(Client(path))
except Refused as e:
    print(e.code, len(held))
""") == ['LIMIT', '255']
    assert d.client().ask('list')


case_all_connections.options = ('--group', 'man')


if __name__ == '__main__':
    sys.exit(daemon_test.main(globals()))
