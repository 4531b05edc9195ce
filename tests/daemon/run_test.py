#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`casemate run` in VMs of the daemon's templates: what the command gets, and that the VM's life is
the command's unless it is kept, whatever ends it. Fake VMMs, as daemon_test.py."""
import os
import signal
import subprocess
import sys
import time

import daemon_test
from client import CASEMATE, SCALE, casemate, eventually


def template(d, c, more=''):
    c.ask(f'template add work file={daemon_test.snapshot(d, c)} {more}')


def start(d, *argv):
    """The command, with a line on its way to it."""
    p = subprocess.Popen([CASEMATE, 'run', '--socket', d.path, '--template', 'work', *argv],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(b'up\n')
    p.stdin.flush()
    return p


def leased(c):
    return [item['vm'] for item in c.ask('list').items]


def end(p, status):
    out, err = p.communicate(timeout=30 * SCALE)
    assert p.returncode == status, f'{p.returncode}, {out} {err}'


def case_run(d):
    """Streams and status are the command's, and its VM is gone when it returns."""
    c = d.client()
    template(d, c, 'target=1')
    eventually(lambda: c.ask('template list').items[0]['ready'] == '1', 'the pool is empty')
    run = ('run', '--template', 'work', '--')
    assert casemate(d, *run, 'echo', 'x') == (b'x\n', b'') and not leased(c)
    assert c.ask('template list').items[0]['hits'] == '1', 'a ready VM was not used'
    assert casemate(d, *run, 'err', 'y') == (b'', b'y\n')
    data = bytes(range(256)) * 4000
    assert casemate(d, *run, 'cat', stdin=data)[0] == data
    for argv, status in (('exit', '9'), 9), (('missing',), 127), (('crash',), 125), \
            (('panic',), 125):
        casemate(d, *run, *argv, status=status)
        assert not leased(c)
    casemate(d, 'run', '--template', 'work', '--timeout', '100ms', '--', 'sleep', status=124)
    assert not leased(c)
    # Without a ready one, one is made; of a template whose VMs are not forked, too.
    c.ask('pool set work target=0 max=0')
    assert casemate(d, *run, 'echo', 'z')[0] == b'z\n' and not leased(c)
    c.ask(f'template add work file={d.dir}/snap hold=no replace=yes')
    assert casemate(d, *run, 'echo', 'z')[0] == b'z\n' and not leased(c)


def case_kept(d):
    c = d.client()
    template(d, c)
    assert casemate(d, 'run', '--template', 'work', '--keep', 'a', '--', 'echo', 'x')[0] == b'x\n'
    assert leased(c) == ['a'] and c.ask('info a')['template'] == 'work'
    casemate(d, 'run', '--template', 'work', '--keep', 'b', '--', 'exit', '3', status=3)
    assert casemate(d, 'exec', 'b', '--', 'echo', 'y')[0] == b'y\n'
    # Nor does its end end it.
    p = start(d, '--keep', 'k', '--', 'cat')
    assert p.stdout.readline() == b'up\n'
    p.kill()
    end(p, -signal.SIGKILL)
    eventually(lambda: c.ask('info k')['execs'] == '0', 'the command goes on')
    assert sorted(leased(c)) == ['a', 'b', 'k']


def case_ended_by_signals(d):
    c = d.client()
    template(d, c, 'target=2')
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        p = start(d, '--', 'cat')
        assert p.stdout.readline() == b'up\n' and len(leased(c)) == 1
        p.send_signal(number)
        end(p, 128 + number)
        assert not leased(c)
    # One that no signal ends; the second is for us.
    p = start(d, '--', 'stubborn')
    eventually(lambda: leased(c) and c.ask(f'info {leased(c)[0]}')['execs'] == '1', 'no command')
    p.send_signal(signal.SIGINT)
    time.sleep(0.1)
    p.send_signal(signal.SIGINT)
    end(p, 130)
    assert not leased(c)
    p = start(d, '--', 'cat')
    assert p.stdout.readline() == b'up\n' and len(leased(c)) == 1
    p.kill()
    end(p, -signal.SIGKILL)
    eventually(lambda: not leased(c), 'its VM goes on')
    # The VM's process does not end, since who is to end it stands still: we can be ended.
    p = start(d, '--', 'cat')
    assert p.stdout.readline() == b'up\n'
    os.kill(d.process.pid, signal.SIGSTOP)
    try:
        p.stdin.close()
        eventually(lambda: not leased(c), 'the command does not end')
        assert p.poll() is None, 'its VM is there, and it has returned'
        p.send_signal(signal.SIGINT)
        assert p.wait(30 * SCALE) == -signal.SIGINT
    finally:
        os.kill(d.process.pid, signal.SIGCONT)
    p.stdout.close()
    p.stderr.close()


def case_ended_while_it_starts(d):
    """The VM comes up when nobody is there any more."""
    c = d.client()
    template(d, c, 'hold=no')
    for number in signal.SIGINT, signal.SIGKILL:
        p = start(d, '--', 'cat')
        eventually(lambda: leased(c), 'no VM is made')
        assert c.ask('list').items[0]['state'] == 'starting'
        p.send_signal(number)
        end(p, -number)
        eventually(lambda: not leased(c) and not d.vmms(), 'its VM goes on')


case_ended_while_it_starts.kernel = '700'


def case_refusals(d):
    """One line each, which says what to do next."""
    c = d.client()

    def says(text, *argv):
        err = casemate(d, 'run', *argv, '--', 'echo', 'x', status=125)[1].decode()
        assert err.count('\n') == 1 and text in err, err
        assert not leased(c)
    says('there is no template none; casemate template list shows what there is, '
         'casemate template add makes one', '--template', 'none')
    template(d, c, 'hold=no')
    ready = 'no VM of work is ready; '
    says(ready + 'without --no-wait one is made, casemate pool set work N keeps N ready',
         '--template', 'work', '--no-wait')
    c.ask('pool set work target=1 max=1')
    says(ready + 'try again in 0.', '--template', 'work', '--no-wait')
    eventually(lambda: c.ask('template list').items[0]['ready'] == '1', 'the pool is empty')
    assert casemate(d, 'run', '--template', 'work', '--no-wait', '--', 'echo', 'x')[0] == b'x\n'
    says('--from, --image and --mem do not go with --template', '--template', 'work', '--mem',
         '64M')
    says('do not go with --template: the daemon starts the VM', '--template', 'work',
         '--verbose')
    says('--no-wait wants --template', '--no-wait')
    says('--socket wants --keep or --template', '--socket', d.path)
    says('casemate template add, or casemated', '--socket', d.dir + '/none', '--template', 'work')
    assert not os.path.exists(d.dir + '/none'), 'a daemon without templates was started'
    err = casemate(d, 'run', '--template', 'work', status=125)[1]
    assert b'no command; see casemate run --help' in err, err
    # Of two VMs at most the second is refused.
    c.ask('create name=a')
    c.ask('create name=b')
    err = casemate(d, 'run', '--template', 'work', '--', 'echo', status=125)[1]
    assert b'your limit is 2 VMs' in err and b'end something first' in err, err


case_refusals.options = ('--max-vms', '2')
case_refusals.kernel = '300'


if __name__ == '__main__':
    sys.exit(daemon_test.main(globals()))
