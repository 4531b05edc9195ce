#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""casemated with fake VMMs: what does not take a VM to be tested. TAP; names of cases may be
given. Each case has a daemon of its own, which must leave no process, descriptor or file."""
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import client
from client import (BUILD, SCALE, Client, Daemon, Refused, Skip, as_another, cases_run,
                    eventually, together)

WINDOW = 262144


def case_create_exec_kill(d):
    c = d.client()
    assert c.ask('create name=a label="x y"')['vm'] == 'a'
    assert c.run('a', 'echo', '"b  c"')[0] == b'b  c\n'
    assert c.run('a', 'err', 'x')[1] == b'x\n'
    assert c.run('a', 'exit', '7')[2]['code'] == '7'
    end = c.run('a', 'missing')[2]
    assert end.words[1] == 'failed' and end['errno'] == '2', end
    items = c.ask('list').items
    assert [i['vm'] for i in items] == ['a'] and items[0]['label'] == 'x y', items
    assert not c.ask('list label=other').items
    c.ask('kill a')
    assert not d.vmms(), 'killed, and still there'
    c.refused('info a', 'NOTFOUND')


def case_refusals(d):
    c = d.client()
    c.ask('create name=a')
    for text, code in (
            ('bogus', 'UNKNOWN'), ('create name=a', 'EXISTS'), ('create name=-x', 'ARGUMENT'),
            ('create name=vm-9', 'ARGUMENT'), ('create mem=1', 'ARGUMENT'),
            ('create mem=65G', 'ARGUMENT'), ('create what=1', 'ARGUMENT'),
            ('create mem=4M mem=4M', 'ARGUMENT'), ('create template=no', 'NOTFOUND'),
            ('create image=relative', 'ARGUMENT'), ('create image=/nowhere', 'NOTFOUND'),
            ('create image=/etc/passwd', 'ARGUMENT'), ('create "', 'SYNTAX'),
            ('create \\x', 'ARGUMENT'), ('create "\\x00"', 'SYNTAX'), ('info', 'ARGUMENT'),
            ('exec a -- ', 'ARGUMENT'), ('exec a', 'ARGUMENT'), ('exec b -- x', 'NOTFOUND'),
            ('exec a env=x -- y', 'ARGUMENT'), ('exec a user=x -- y', 'ARGUMENT'),
            ('exec a pty=1 -- y', 'ARGUMENT'), ('exec a timeout=1y -- y', 'ARGUMENT'),
            ('attach 99', 'NOTFOUND'), ('wait x', 'NOTFOUND'), ('signal 1 KILL', 'NOTFOUND'),
            ('fork a count=17', 'ARGUMENT'), ('fork a count=0', 'ARGUMENT'),
            ('snapshot a', 'ARGUMENT'), ('snapshot a file=/nowhere/x', 'NOTFOUND'),
            ('template add t', 'ARGUMENT'), ('template add t file=/etc/passwd', None),
            ('pool set x target=1', 'NOTFOUND'), ('@bad/tag list', 'SYNTAX')):
        try:
            line = c.ask(text)
            raise AssertionError(f'{text}: {line}')
        except Refused as e:
            assert code in (None, e.code), f'{text}: {e}'
    c.refused('list #3', 'ARGUMENT', b'abc')
    c.refused('bogus #3', 'UNKNOWN', b'abc')
    c.refused('stdin 1', 'ARGUMENT')
    assert c.ask('list').items, 'the connection is out of step'


def case_tags_in_flight(d):
    """Several requests at once, answered as they are done."""
    c = d.client()
    c.ask('create name=a')
    c.send('@w wait 1\n@e exec a -- sleep\n@x exec a -- sleep\n@w wait 1\n@l list\n'
           '@k signal 1 TERM\n')
    seen = {}
    while 'w' not in seen or 'k' not in seen:
        line = c.line()
        seen.setdefault(line.tag, line)
        if line.tag == 'w' and line.sign == '+':
            seen['w'] = line
            break
        if line.tag == 'w':
            assert line.sign == '-NOTFOUND'     # the first came before the exec
            del seen['w']
    assert seen['w']['signal'] == '15', seen


def case_untagged_in_order(d):
    c = d.client()
    c.send('create name=a\ncreate name=b\nexec a detach=yes -- echo x\nlist\n')
    assert [c.line().fields.get(k) for k in ('vm', 'vm', 'exec')] == ['a', 'b', '1']


def case_half_close(d):
    """printf ... | nc -U: answers come although nothing more is sent."""
    c = d.client()
    c.send('create name=a\nexec a -- echo hello\n')
    c.socket.shutdown(socket.SHUT_WR)
    assert c.line()['vm'] == 'a'
    exec_id = c.line()['exec']
    assert c.drain(exec_id)[0] == b'hello\n'
    try:
        c.line()
        raise AssertionError('the connection goes on')
    except EOFError:
        pass


def case_stdin(d):
    c = d.client()
    c.ask('create name=a')
    data = random.randbytes(3000000)
    exec_id = c.ask('exec a stdin=yes -- cat')['exec']
    sent, credit, got, done = 0, WINDOW, b'', False
    while not done:
        while sent < len(data) and credit > 0:
            n = min(credit, 65536, len(data) - sent)
            c.send(b'stdin %s #%d\n' % (exec_id.encode(), n) + data[sent:sent + n])
            sent, credit = sent + n, credit - n
            if sent == len(data):
                c.send(f'@end close-stdin {exec_id}\n')
        line = c.next()
        if line.tag == 'end':
            continue
        if line.words[1] == 'stdin-credit':
            credit += int(line['bytes'])
        elif line.words[1] == 'stdout':
            assert int(line['at']) == len(got)
            got += line.chunk
        else:
            done = True
    assert got == data, f'{len(got)} of {len(data)} bytes, {sent} sent: {line}'


def case_stdin_without_credit(d):
    c = d.client()
    c.ask('create name=a')
    exec_id = c.ask('exec a stdin=yes -- sleep')['exec']
    # It reads nothing: what is held is bounded, and the rest refused.
    c.send((b'stdin %s #65536\n' % exec_id.encode() + bytes(65536)) * 9)
    while True:
        line = c.line()
        if line.sign == '-FLOW':
            break
        assert line.words[1] == 'stdin-credit', line
    assert c.ask('list').items


def case_window(d):
    c = d.client()
    c.ask('create name=a')
    exec_id = c.ask('exec a window=1000 -- flood 5000')['exec']
    got = 0
    while got < 1000:
        got += len(c.next().chunk)
    assert got == 1000
    try:
        raise AssertionError(f'more than the window: {c.next(0.3)}')
    except TimeoutError:
        pass
    c.send(f'credit {exec_id} 10000\n')
    out, _, end = c.drain(exec_id)
    assert len(out) == 4000 and end['code'] == '0'


def case_limit(d):
    c = d.client()
    c.ask('create name=a')
    out, _, end = c.run('a', 'flood', '3000000', options='limit=1000')
    assert len(out) == 1000 and end['truncated'] == 'yes', (len(out), end)


def case_attach_again(d):
    """A lost connection: what was lost can be had again, nothing comes twice or not."""
    c = d.client()
    c.ask('create name=a')
    exec_id = c.ask('exec a -- flood 4000000')['exec']
    seen = 0
    while seen < 100000:
        seen += len(c.next().chunk)
    time.sleep(0.5)  # all that may be on its way is, and is lost with the connection
    c.close()
    c = d.client()
    eventually(lambda: 'attached=no' in str(c.ask('info a').items), 'still attached')
    c.refused('detach ' + exec_id, 'STATE')
    line = c.ask(f'attach {exec_id} stdout={seen}')
    assert int(line['stdout']) == seen, line
    out, _, end = c.drain(exec_id)
    assert seen + len(out) == 4000000 and end['code'] == '0'
    # And after its end.
    line = c.ask(f'attach {exec_id}')
    assert len(c.drain(exec_id)[0]) >= WINDOW
    assert c.ask(f'wait {exec_id}')['code'] == '0'


def case_one_reader(d):
    c, other = d.client(), d.client()
    c.ask('create name=a')
    exec_id = c.ask('exec a -- sleep')['exec']
    other.refused('attach ' + exec_id, 'BUSY')
    other.ask(f'signal {exec_id} 9')
    assert c.drain(exec_id)[2]['signal'] == '9'


def case_timeout(d):
    c = d.client()
    c.ask('create name=a')
    end = c.run('a', 'sleep', options='timeout=100ms')[2]
    assert end['timeout'] == 'yes' and end['signal'] == '9', end


def case_timeout_of_a_stubborn_one(d):
    """A guest that does not end a command when told: its VM goes."""
    c = d.client()
    c.ask('create name=a')
    end = c.run('a', 'stubborn', options='timeout=100ms')[2]
    assert end.words[1] == 'lost' and end['timeout'] == 'yes', end
    eventually(lambda: not d.vmms(), 'the VM goes on')


def case_bound(d):
    c = d.client()
    c.ask('create name=a')
    c.ask('create name=b bound=yes')
    c.ask('exec a bound=yes -- sleep')
    c.close()
    c = d.client()
    eventually(lambda: [i['vm'] for i in c.ask('list').items] == ['a'], 'b goes on')
    eventually(lambda: not c.ask('info a').items, 'the command goes on')


def case_ttl_and_idle(d):
    c = d.client()
    c.ask('events')
    c.ask('create name=a ttl=300ms')
    c.ask('create name=b idle=300ms')
    c.ask('create name=c idle=300ms')
    c.ask('exec c -- sleep')
    eventually(lambda: [i['vm'] for i in c.ask('list').items] == ['c'], 'they go on')
    reasons = [e.fields.get('reason', '') for e in c.later if 'vm-ended' in e.words]
    assert any('ttl' in r for r in reasons) and any('idle' in r for r in reasons), reasons


def case_lost_vms(d):
    c = d.client()
    for name, how in (('a', 'crash'), ('b', 'panic')):
        c.ask(f'create name={name}')
        other = c.ask(f'exec {name} -- sleep')['exec']
        end = c.run(name, how)[2]
        assert end.words[1] == 'lost', end
        assert c.drain(other)[2].words[1] == 'lost'
        assert '\x1b' not in end['reason']
    # More output than was granted, while nobody reads.
    c.ask('create name=g')
    exec_id = c.ask('exec g detach=yes -- greedy')['exec']
    assert 'protocol' in c.ask('wait ' + exec_id)['reason']
    assert not c.ask('list').items


def case_vmm_killed(d):
    c = d.client()
    c.ask('create name=a')
    exec_id = c.ask('exec a -- sleep')['exec']
    os.kill(d.vmms()[0], signal.SIGKILL)
    assert c.drain(exec_id)[2].words[1] == 'lost'
    c.refused('info a', 'NOTFOUND')


def case_fork(d):
    c = d.client()
    c.ask('create name=a')
    exec_id = c.ask('exec a stdin=yes detach=yes -- cat')['exec']
    line = c.ask('fork a count=5')
    names = [i['vm'] for i in line.items]
    assert len(set(names)) == 5
    for name in names:
        execs = c.ask(f'info {name}').items
        assert len(execs) == 1 and execs[0]['exec'] != exec_id
    c.ask('kill a')
    for name in names:
        # What the source ran goes on in the child, and takes input.
        run = c.ask(f'info {name}').items[0]['exec']
        c.ask('attach ' + run)
        c.send(f'stdin {run} #3\nabc')
        c.ask('close-stdin ' + run)
        assert c.drain(run)[0] == b'abc'
        assert c.run(name, 'echo', 'x')[0] == b'x\n'
        c.ask('kill ' + name)
    eventually(lambda: not d.vmms(), f'left: {d.vmms()}')


def case_fork_of_a_dying_one(d):
    c = d.client()
    c.ask('create name=a')
    os.kill(d.vmms()[0], signal.SIGSTOP)
    c.send('@f fork a count=4\n@k kill a\n')
    answers = {}
    while len(answers) < 2:
        line = c.line()
        answers[line.tag] = line.sign
    assert answers == {'f': '-LOST', 'k': '+'}, answers
    eventually(lambda: not d.vmms() and not c.ask('list').items, 'children are left')


def snapshot(d, c):
    c.ask('create name=source')
    path = os.path.join(d.dir, 'snap')
    c.ask(f'snapshot source file={path}')
    c.ask('kill source')
    return path


def case_snapshot(d):
    c = d.client()
    path = snapshot(d, c)
    before = os.listdir(d.dir)
    assert c.ask(f'create name=r from={path}')['vm'] == 'r'
    assert c.run('r', 'echo', 'x')[0] == b'x\n'
    assert os.listdir(d.dir) == before, 'files are left'
    c.ask('kill r')


def case_template_pool(d):
    c = d.client()
    path = snapshot(d, c)
    c.ask(f'template add t file={path} target=3 max=4')
    eventually(lambda: c.ask('template list').items[0]['ready'] == '3', 'the pool stays empty')
    first = c.ask('create template=t')['vm']
    assert c.ask('template list').items[0]['hits'] == '1'
    eventually(lambda: c.ask('template list').items[0]['ready'] == '3', 'not filled again')
    c.ask('pool set t target=0 max=0')
    eventually(lambda: c.ask('template list').items[0]['ready'] == '0', 'surplus goes on')
    c.refused('create template=t wait=no', 'BUSY')
    second = c.ask('create template=t')['vm']
    assert first != second
    c.ask(f'template add t file={path} target=1 replace=yes')
    c.ask('template remove t')
    assert len(c.ask('list').items) == 2
    eventually(lambda: len(d.vmms()) == 2, f'{d.vmms()} are left')


def case_200_claims(d):
    """200 clients at once get 200 different VMs, some warm, some made for them."""
    c = d.client()
    path = snapshot(d, c)
    c.ask(f'template add t file={path} target=20')
    eventually(lambda: c.ask('template list').items[0]['ready'] == '20', 'the pool is empty')
    names, lock = [], threading.Lock()
    clients = [d.client() for _ in range(200)]

    def claim(x):
        name = x.ask('create template=t')['vm']
        out = x.run(name, 'echo', name)[0]
        assert out == name.encode() + b'\n'
        with lock:
            names.append(name)
    with together(claim, clients):
        pass
    assert len(set(names)) == 200
    for x in clients:
        x.close()


def case_slow_client(d):
    """One that reads nothing harms nobody, and holds no more than its cap."""
    slow, c = d.client(), d.client()
    c.ask('create name=a')
    slow.send('exec a -- flood 100000000\n')
    slow.send('@x help\n' * 20000)
    for _ in range(20):
        assert c.run('a', 'echo', 'x')[0] == b'x\n'
    with open(f'/proc/{d.engine()}/statm') as f:
        resident = int(f.read().split()[1]) * 4096
    assert resident < 64 << 20, f'{resident >> 20} MiB'


def case_long_lines(d):
    c = d.client()
    c.send('x' * 200000)
    while c.line().words[:1] != ['closing']:
        pass
    c = d.client()
    c.send('stdin 1 #65537\n')
    assert c.line().sign == '-SYNTAX'
    c = d.client()
    c.ask('create name=a')
    c.refused('exec a -- echo ' + 'y' * 70000, 'TOOBIG')
    assert len(c.run('a', 'echo', 'y' * 3000)[0]) == 3001


def case_limits(d):
    c = d.client()
    c.ask('create name=a mem=64M')
    c.ask('create name=b mem=64M')
    c.refused('create mem=64M', 'LIMIT')
    c.refused('fork a', 'LIMIT')
    c.ask('kill b')
    c.refused('create mem=256M', 'LIMIT')
    for _ in range(3):
        c.ask('exec a -- sleep')
    c.refused('exec a -- sleep', 'LIMIT')


case_limits.options = ('--max-vms', '2', '--max-mem', '256M', '--max-execs', '3')


def case_strangers(d):
    """Another user is refused, or, in the group, an operator who sees only his own."""
    greeting = 'c = Client(path, False)\nprint(c.line().sign)\n'
    c = d.client()
    c.ask('create name=a')
    os.chmod(d.path, 0o666)
    assert as_another(d, [], greeting) == ['-DENIED']
    assert as_another(d, [12], greeting + '''
print(c.ask("create name=mine")["vm"], len(c.ask("list").items))
c.refused("kill a", "NOTFOUND")
c.refused("create image=/x", "DENIED")
c.refused("snapshot mine file=/x", "DENIED")
c.refused("stop", "DENIED")
''') == ['+', 'mine', '1']
    assert len(c.ask('list').items) == 2


case_strangers.options = ('--group', 'man')


def case_daemon_killed(d):
    """kill -9 of the daemon: its VMs end, and the next one starts clean."""
    c = d.client()
    path = snapshot(d, c)
    c.ask(f'template add t file={path} target=4')
    c.ask('create name=a')
    c.ask('fork a count=3')
    eventually(lambda: len(d.vmms()) >= 9, 'not all there')
    frozen = d.vmms()[-1]
    os.kill(frozen, signal.SIGSTOP)         # would not see its socket end
    d.kill()
    eventually(lambda: set(d.vmms()) <= {frozen}, f'{d.vmms()} are left')
    d.start()
    eventually(lambda: not d.vmms(), f'{d.vmms()} is left')
    c = d.client()
    assert not c.ask('list').items
    c.ask('create name=a')


case_daemon_killed.restarts = True


def case_second_daemon(d):
    p = subprocess.run(d.argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert p.returncode == 1 and b'another casemated' in p.stderr, p
    assert d.client().ask('list')


def activate(d, listener, *options):
    """As systemd starts it, with a socket that is not the daemon's to keep."""
    code = ('import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ["LISTEN_FDS"] = "1";'
            'os.environ["LISTEN_PID"] = str(os.getpid()); os.execv(sys.argv[2], sys.argv[2:])')
    argv = [a.replace('/run/', '/other/') for a in d.argv]
    return subprocess.Popen([sys.executable, '-c', code, str(listener.fileno()), *argv, *options],
                            pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def case_socket_activation(d):
    """A socket that systemd made and keeps."""
    path = os.path.join(d.dir, 'passed.sock')
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    # One that does not start says so to those who wait, or it would be started again for them.
    for status, *options in (1, '--group', 'nobodys'), (1, '--vmm', '/nowhere'), (2, '--bogus'):
        waiting = [Client(path, greet=False) for _ in range(3)]
        assert activate(d, listener, *options).wait(10 * SCALE) == status
        for c in waiting:
            line = c.line()
            assert line.sign == '-FAILED' and 'could not start' in repr(line), line
    p = activate(d, listener)
    c = Client(path)
    c.ask('create name=a')
    assert c.run('a', 'echo', 'x')[0] == b'x\n'
    c.ask('stop')
    assert p.wait(10 * SCALE) == 0
    assert os.path.exists(path), 'the socket is not the daemon\'s to remove'


def case_client_dies_in_create(d):
    clients = [d.client() for _ in range(10)]
    for c in clients:
        c.send('create\n')
    for c in clients:
        c.close()
    c = d.client()
    eventually(lambda: not c.ask('list').items and not d.vmms(), 'VMs of nobody')


case_client_dies_in_create.kernel = '200'


def case_broken_start(d):
    c = d.client()
    message = c.refused('create', 'LOST')
    assert 'this kernel never starts' in message, message
    assert not c.ask('list').items


case_broken_start.kernel = 'never'


def vmms_kill(d, stop, pause):
    """One at random after each pause, until stop."""
    rng = random.Random(0)
    while time.monotonic() < stop:
        time.sleep(pause)
        pids = d.vmms()
        if pids:
            try:
                os.kill(rng.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                pass


def case_churn(d):
    """kill -9 of VMMs and clients at random in many create, exec, kill cycles."""
    c = d.client()
    path = snapshot(d, c)
    c.ask(f'template add t file={path} target=5')
    stop = time.monotonic() + 4 * SCALE

    def churn(seed):
        rng = random.Random(seed)
        while time.monotonic() < stop:
            x = d.client()
            try:
                name = x.ask(rng.choice(['create template=t', 'create']))['vm']
                if rng.random() < 0.3:
                    x.ask(f'fork {name} count={rng.randint(1, 3)} ttl=1s')
                for _ in range(rng.randint(0, 3)):
                    if rng.random() < 0.2:
                        x.send(f'exec {name} -- flood 10000000\n')
                    else:
                        x.run(name, 'echo', 'x')
                if rng.random() < 0.7:
                    x.send(f'kill {name}\n')
                else:
                    x.ask(f'kill {name}')
            except (Refused, EOFError, BrokenPipeError):
                pass
            x.close()
    with together(churn, range(6)):
        vmms_kill(d, stop, 0.05)
    for item in c.ask('list').items:
        try:
            c.ask('kill ' + item['vm'])
        except Refused:
            pass
    c.ask('template remove t')
    eventually(lambda: not d.vmms(), f'{d.vmms()} are left')


def out_of_descriptors(d, pid):
    c = d.client()
    before = d.fds()
    limit = len(os.listdir(f'/proc/{pid}/fd')) + 30
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
    made, refused = [], 0
    for _ in range(40):
        try:
            made.append(c.ask('create')['vm'])
        except Refused:
            refused += 1
    assert made and refused, (made, refused)
    assert c.run(made[0], 'echo', 'x')[0] == b'x\n'
    try:
        c.ask(f'fork {made[0]} count=16')
        raise AssertionError('16 children without descriptors')
    except Refused:
        pass
    for name in made:
        c.ask('kill ' + name)
    eventually(lambda: d.fds() == before, f'{d.fds() - before} descriptors are left')
    c.ask('create')


def case_out_of_descriptors(d):
    """Errors for those who ask, service for the rest, and nothing lost."""
    out_of_descriptors(d, d.engine())


def case_parent_out_of_descriptors(d):
    out_of_descriptors(d, d.process.pid)


def case_full_disk(d):
    """A snapshot that does not fit: an error, nothing left, and the VM goes on."""
    c = d.client()
    # Inherited by the VMM.
    resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
    c.ask('create name=a')
    before = os.listdir(d.dir)
    c.refused(f'snapshot a file={d.dir}/snap', 'FAILED')
    assert os.listdir(d.dir) == before
    assert c.run('a', 'echo', 'x')[0] == b'x\n'


def case_drain(d):
    c = d.client()
    c.ask('create name=a')
    other = d.client()
    other.send('stop drain=10s\n')
    eventually(lambda: c.ask('pool status')['draining'] == 'yes', 'does not drain')
    c.refused('create', 'DRAINING')
    assert c.run('a', 'echo', 'x')[0] == b'x\n'
    c.ask('kill a')
    assert other.line().sign == '+'
    assert d.process.wait(10) == 0


def case_command(d):
    """The command: streams, statuses, what it says."""
    def casemate(*argv, **how):
        return client.casemate(d, *argv, **how)[0]
    assert casemate('run', '--keep', 'a', '--', 'echo', 'x') == b'x\n'
    data = random.randbytes(2000000)
    assert casemate('exec', 'a', '--', 'cat', stdin=data) == data
    casemate('exec', 'a', '--', 'exit', '9', status=9)
    casemate('exec', 'a', '--', 'missing', status=127)
    casemate('exec', 'a', '--timeout', '100ms', '--', 'sleep', status=124)
    casemate('exec', 'a', '--', 'crash', status=125)
    casemate('run', '--keep', 'a', '--', 'echo', 'x')
    casemate('run', '--keep', 'a', '--', 'echo', 'x', status=125)
    assert len(casemate('fork', '2', 'a').split()) == 2
    assert b'"vm": "a"' in casemate('ls', '--json')
    path = os.path.join(d.dir, 'snap')
    casemate('snapshot', 'a', '-o', path)
    casemate('restore', '--keep', 'b', path)
    assert casemate('run', '--from', path, '--keep', 'c', '--', 'echo', 'y') == b'y\n'
    casemate('template', 'add', 't', path, '--target', '1')
    casemate('template', 'list')
    casemate('pool', 'set', 't', '2')
    casemate('pool', 'status')
    assert b'casemate_vms_created_total' in casemate('metrics')
    casemate('template', 'remove', 't')
    casemate('kill', 'a', 'b', 'c')
    casemate('kill', 'a', status=125)
    p = subprocess.run([os.path.join(BUILD, 'api/casemate-example'), 'echo', 'z'],
                       stdout=subprocess.PIPE, env=dict(os.environ, CASEMATE_SOCKET=d.path))
    assert (p.returncode, p.stdout) == (0, b'z\n')
    casemate('stop')
    assert d.process.wait(10) == 0


def files_left(d):
    state = d.path + '.state'
    return [f for place in (state, os.path.join(state, 'engine')) if os.path.isdir(place)
            for f in os.listdir(place) if f not in ('lock', 'root', 'engine')]


def what_they_do(d):
    """Where the daemon and its VMMs are, for a failure that is about waiting."""
    text = ''
    for pid in [d.process.pid, d.engine(), *d.vmms()]:
        try:
            found = []
            for name in 'wchan', 'syscall', 'stat':
                with open(f'/proc/{pid}/{name}', encoding='ascii') as file:
                    found.append(file.read().strip())
            text += f'{pid}: {" | ".join(found)} | {len(os.listdir(f"/proc/{pid}/fd"))} fds\n'
        except OSError as e:
            text += f'{pid}: {e}\n'
    return text


def run(function):
    d = Daemon(*getattr(function, 'options', ()), kernel=getattr(function, 'kernel', ''),
               guest=getattr(function, 'guest', None))
    try:
        before = d.fds()
        function(d)
        if d.process.poll() is None and not getattr(function, 'restarts', False):
            c = d.client()
            for t in c.ask('template list').items:
                c.ask(f'template remove {t["template"]}')
            for item in c.ask('list').items:
                try:
                    c.ask(f'kill {item["vm"]}')
                except Refused:
                    pass
            c.close()
            # The clients of the case are gone with their objects.
            function = None
            eventually(lambda: not d.vmms(), f'processes are left: {d.vmms()}')
            eventually(lambda: not files_left(d), f'records are left: {files_left(d)}')
            eventually(lambda: d.fds() <= before, f'{d.fds() - before} descriptors are left')
        if d.process.poll() is None:
            d.process.send_signal(signal.SIGTERM)
            assert d.process.wait(20 * SCALE) == 0, 'a bad end'
        assert not d.vmms() and not files_left(d) and not os.path.exists(d.path)
        assert 'runtime error' not in d.logged() and 'Sanitizer' not in d.logged(), d.logged()
    finally:
        autopsy = '' if sys.exc_info()[0] in (None, Skip) else what_they_do(d)
        if d.process.poll() is None:
            d.kill()
        for pid in d.vmms():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if sys.exc_info()[0] not in (None, Skip):
            sys.stderr.write(d.logged()[-3000:] + autopsy)
        d.stop()


def main(names=None):
    cases = {k[5:]: v for k, v in (names or globals()).items() if k.startswith('case_')}
    return cases_run(sys.argv[1:] or list(cases), lambda name: run(cases[name]))


if __name__ == '__main__':
    sys.exit(main(globals()))
