#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""casemated with fake VMMs: VMs that stand still (paused, or on disk), the pools' memory, and
snapshots that build on others. As daemon_test.py."""
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time

from client import BUILD, SCALE, Refused, eventually, together
from daemon_test import main, snapshot, vmms_kill


def state(c, name):
    return {i['vm']: i['state'] for i in c.ask('list').items}.get(name)


def becomes(c, name, want):
    eventually(lambda: state(c, name) == want, f'{name} does not become {want}')


def numbers(c, exec_id, count, got=b''):
    """Takes output of `tick` until there are so many lines; nothing may be missing."""
    while got.count(b'\n') < count:
        line = c.next()
        assert line.fields.get('exec') == exec_id and line.words[1] == 'stdout', line
        assert int(line['at']) == len(got), line
        got += line.chunk
    assert got.split() == [b'%d' % i for i in range(len(got.split()))], got
    return got


def is_quiet(c, got=b''):
    """What comes until nothing does."""
    while True:
        try:
            got += c.next(0.3 * SCALE).chunk
        except TimeoutError:
            return got


def case_pause(d):
    c = d.client()
    c.ask('create name=a')
    exec_id = c.ask('exec a -- tick')['exec']
    got = numbers(c, exec_id, 3)
    c.ask('pause a')
    assert state(c, 'a') == 'paused'
    got = is_quiet(c, got)
    assert 'resume it first' in c.refused('exec a -- echo x', 'STATE')
    assert 'resume it first' in c.refused(f'signal {exec_id} TERM', 'STATE')
    c.ask('pause a')
    # Children of a paused VM run, and what is saved of it does.
    child = c.ask('fork a').items[0]['vm']
    assert state(c, child) == 'ready' and c.run(child, 'echo', 'x')[0] == b'x\n'
    path = os.path.join(d.dir, 'snap')
    c.ask(f'snapshot a file={path}')
    c.ask(f'create name=r from={path}')
    assert c.run('r', 'echo', 'x')[0] == b'x\n'
    assert is_quiet(c) == b'', 'it goes on'
    c.ask('resume a')
    assert state(c, 'a') == 'ready'
    numbers(c, exec_id, got.count(b'\n') + 3, got)
    c.ask('resume a')
    c.ask('pause a')
    c.ask('kill a')
    c.refused('pause a', 'NOTFOUND')
    c.refused('pause r what=1', 'ARGUMENT')


def case_pause_in_a_row(d):
    """Many at once on one connection, in their order."""
    c = d.client()
    c.ask('create name=a')
    c.send(''.join(f'@p{i} pause a\n@r{i} resume a\n' for i in range(20)))
    tags = [c.line().tag for _ in range(40)]
    assert tags == [f'{x}{i}' for i in range(20) for x in 'pr'], tags
    assert c.run('a', 'echo', 'x')[0] == b'x\n'


def case_input_while_paused(d):
    c = d.client()
    c.ask('create name=a')
    exec_id = c.ask('exec a stdin=yes -- cat')['exec']
    c.ask('pause a')
    data = random.randbytes(200000)
    for i in range(0, len(data), 50000):
        c.send(b'stdin %s #50000\n' % exec_id.encode() + data[i:i + 50000])
    c.ask(f'close-stdin {exec_id}')
    assert is_quiet(c) == b''
    c.ask('resume a')
    assert c.drain(exec_id)[0] == data


def case_deadline_while_paused(d):
    """Deadlines go on; SIGKILL is the first that the command gets."""
    c = d.client()
    c.ask('create name=a')
    for how in 'pause', 'suspend':
        exec_id = c.ask('exec a timeout=200ms -- sleep')['exec']
        c.ask(f'{how} a')
        time.sleep(0.5)
        assert c.ask('info a').items, 'it ended in a VM that stands still'
        c.ask('resume a')
        end = c.drain(exec_id)[2]
        assert end['timeout'] == 'yes' and end['signal'] == '9', end
    assert c.run('a', 'echo', 'x')[0] == b'x\n'


def case_idle_while_paused(d):
    c = d.client()
    c.ask('create name=a idle=300ms')
    c.ask('pause a')
    time.sleep(0.8)
    assert state(c, 'a') == 'paused'
    c.ask('resume a')
    becomes(c, 'a', None)


def store(d):
    """Descriptors of the daemon that are suspended VMs."""
    base = f'/proc/{d.engine()}/fd'
    return [f'{base}/{n}' for n in os.listdir(base)
            if d.path + '.state/engine/' in os.readlink(f'{base}/{n}')]


def case_suspend(d):
    """Commands go on where they were, and no byte of theirs is lost or comes twice."""
    c = d.client()
    c.ask('create name=a mem=64M')
    tick = c.ask('exec a -- tick')['exec']
    got = numbers(c, tick, 3)
    for times in range(1, 4):
        c.ask('suspend a')
        assert not d.vmms(), 'its process is there'
        assert not os.listdir(d.path + '.state/engine'), 'a file has a name'
        assert len(store(d)) == 1
        item = c.ask('list').items[0]
        assert item['state'] == 'suspended' and int(item['stored']) > 0, item
        assert c.ask('pool status')['mem'] == '0'
        c.ask('suspend a')
        got = is_quiet(c, got)
        for text in 'fork a', f'snapshot a file={d.dir}/x', 'pause a', f'signal {tick} TERM':
            assert 'resume it first' in c.refused(text, 'STATE')
        c.ask('resume a')
        assert state(c, 'a') == 'ready' and not store(d)
        got = numbers(c, tick, got.count(b'\n') + 3, got)
    assert c.ask('pool status')['mem'] == str(64 << 20)
    assert [i['exec'] for i in c.ask('info a').items] == [tick]
    c.ask(f'signal {tick} TERM')
    c.drain(tick)
    # Killed while it is on the disk.
    c.ask('suspend a')
    c.ask('kill a')
    assert not store(d) and not c.ask('list').items
    assert c.ask('pool status')['stored'] == '0'


def case_suspend_wakes_for_a_command(d):
    c = d.client()
    c.ask('events')
    c.ask('create name=a idle=200ms idle-action=suspend ttl=1m')
    becomes(c, 'a', 'suspended')
    assert c.run('a', 'echo', 'x')[0] == b'x\n'
    # Not while something runs.
    exec_id = c.ask('exec a -- sleep')['exec']
    time.sleep(0.6)
    assert state(c, 'a') == 'ready'
    c.ask(f'signal {exec_id} 9')
    becomes(c, 'a', 'suspended')
    # Many at once bring it back once.
    ids = [c.ask('exec a -- echo x')['exec'] for _ in range(5)]
    for exec_id in ids:
        assert c.drain(exec_id)[0] == b'x\n'
    becomes(c, 'a', 'suspended')
    kinds = [e.words[1] for e in c.later if e.fields.get('vm') == 'a']
    assert kinds.count('vm-suspended') == 3 and kinds.count('vm-resumed') == 2, kinds
    c.refused('create idle-action=suspend', 'ARGUMENT')
    c.refused('create idle=1s idle-action=sleep', 'ARGUMENT')
    c.ask('create name=b idle=100ms idle-action=suspend ttl=1s')
    becomes(c, 'b', 'suspended')
    becomes(c, 'b', None)
    # One that is on its way back is not running yet.
    becomes(c, 'a', 'suspended')
    x = d.client()
    x.send('@r resume a\n@s suspend a\n')
    answers = {line.tag: line.sign for line in (x.line(), x.line())}
    assert answers == {'r': '+', 's': '-STATE'}, answers
    assert c.run('a', 'echo', 'x')[0] == b'x\n'


def case_suspend_with_unread_output(d):
    """What a command had sent is bounded by the ring, also over the disk."""
    c = d.client()
    c.ask('create name=a')
    exec_id = c.ask('exec a detach=yes -- flood 3000000')['exec']
    eventually(lambda: c.ask('info a').items[0]['stdout'] == '262144', 'it does not fill')
    c.ask('suspend a')
    c.ask('resume a')
    eventually(lambda: c.ask('info a').items[0]['stdout'] == '524288', 'it does not go on')
    assert 'was not read' in c.refused('suspend a', 'BUSY')
    assert state(c, 'a') == 'ready'
    c.ask(f'attach {exec_id}')
    out, _, end = c.drain(exec_id)
    assert len(out) == 3000000 and end['code'] == '0', (len(out), end)


def case_going_back_after_a_suspend(d):
    """A reader that goes back in what is kept, in a VM that came back with output unread and has
    fresh credit: what comes then does not take the place of what is still to be read."""
    c = d.client()
    c.ask('create name=a')
    piece = 65536
    data = b''.join(b'%08x' % i for i in range(16 * piece // 8))
    exec_id = c.ask('exec a stdin=yes window=0 -- cat')['exec']
    have = {'sent': 0, 'got': 0}

    def feed(upto):
        while have['sent'] < upto:
            at = have['sent']
            c.send(b'stdin %s #%d\n' % (exec_id.encode(), piece) + data[at:at + piece])
            have['sent'] += piece
            eventually(lambda: out() >= min(have['sent'], upto), 'cat does not')

    def out():
        return int(c.ask('info a').items[0]['stdout'])

    def read(upto):
        c.send(f'credit {exec_id} {upto - have["got"]}\n')
        while have['got'] < upto:
            line = c.next()
            if line.words[1] == 'stdin-credit':
                continue
            at = int(line['at'])
            assert at == have['got'], line
            assert line.chunk == data[at:at + len(line.chunk)], f'wrong bytes at {at}'
            have['got'] += len(line.chunk)

    for step in range(1, 9):
        feed(step * piece)
        read(step * piece)
    feed(12 * piece)                    # 512 KiB were read, 256 KiB are not
    c.ask('detach ' + exec_id)
    c.ask('suspend a')
    c.ask('resume a')
    answer = c.ask(f'attach {exec_id} stdout=0 window=0')
    have['got'] = int(answer['stdout'])
    c.ask('info a')
    feed(16 * piece)
    read(16 * piece)


def case_suspend_while_a_file_is_put(d):
    """What initd does itself goes on, too: the VM that comes back is no copy."""
    c = d.client()
    c.ask('create name=a')
    put = c.ask('put a /x')['exec']
    c.ask('suspend a')
    c.ask('resume a')
    assert c.run('a', 'echo', 'x')[0] == b'x\n'
    assert c.ask('list').items[0]['execs'] == '1', 'the put is gone'
    c.ask(f'signal {put} KILL')
    assert c.drain(put)[2]['signal'] == '9'


def case_suspend_on_a_full_disk(d):
    c = d.client()
    c.ask('create name=a')
    tick = c.ask('exec a -- tick')['exec']
    got = numbers(c, tick, 2)
    resource.prlimit(d.vmms()[0], resource.RLIMIT_FSIZE, (4096, 4096))
    c.refused('suspend a', 'FAILED')
    assert state(c, 'a') == 'ready' and not store(d)
    numbers(c, tick, got.count(b'\n') + 20, got)


# Limits of another user's process are not ours to set.
case_suspend_on_a_full_disk.options = ('--vm-uids', 'none')


def case_stored_limit(d):
    c = d.client()
    c.ask('create name=a')
    assert 'on disk' in c.refused('suspend a', 'LIMIT')
    assert c.run('a', 'echo', 'x')[0] == b'x\n'
    assert c.ask('pool status')['stored'] == '0' and not store(d)


case_stored_limit.options = ('--max-stored', '1K')


def case_stored_limit_and_forks(d):
    """A fork of a VM that came back has its memory from the file, whatever becomes of the VM."""
    c = d.client()
    c.ask('create name=a')
    c.ask('suspend a')
    c.ask('resume a')
    size = int(c.ask('info a')['stored'])
    assert size > 0
    child = c.ask('fork a').items[0]['vm']
    assert sum(int(i['stored']) for i in c.ask('list').items) == size
    c.ask('kill a')
    assert int(c.ask('info ' + child)['stored']) == size
    # All is used: nothing more goes there, but what takes its place.
    c.ask('create name=b')
    c.refused('suspend b', 'LIMIT')
    c.ask('suspend ' + child)
    c.ask('resume ' + child)
    c.ask('kill ' + child)
    c.ask('suspend b')
    c.ask('kill b')
    assert c.ask('pool status')['stored'] == '0' and not store(d)


case_stored_limit_and_forks.options = ('--max-stored', '16K')


def case_memory_of_suspended(d):
    """It is others' meanwhile, and is asked for again."""
    c = d.client()
    c.ask('create name=a mem=128M')
    c.ask('suspend a')
    c.ask('create name=b mem=256M')
    c.refused('exec a -- echo x', 'LIMIT')
    c.refused('resume a', 'LIMIT')
    assert state(c, 'a') == 'suspended'
    c.ask('suspend b')
    assert c.run('a', 'echo', 'x')[0] == b'x\n'
    c.refused('resume b', 'LIMIT')
    c.ask('kill a')
    assert c.run('b', 'echo', 'x')[0] == b'x\n'


case_memory_of_suspended.options = ('--max-mem', '256M')


def case_damaged_on_disk(d):
    """One that does not come back stays; who waited is told."""
    c = d.client()
    c.ask('create name=a')
    tick = c.ask('exec a -- tick')['exec']
    c.ask('suspend a')
    is_quiet(c)
    os.truncate(store(d)[0], 100)
    for _ in range(2):
        assert 'no snapshot' in c.refused('resume a', 'LOST')
        exec_id = c.ask('exec a -- echo x')['exec']
        assert c.drain(exec_id)[2].words[1] == 'lost'
        assert state(c, 'a') == 'suspended'
    c.ask('kill a')
    assert c.drain(tick)[2].words[1] == 'lost'


def case_command_while_suspending(d):
    """It is run, whichever comes first."""
    c = d.client()
    for i in range(20):
        c.ask(f'create name=a{i}')
        c.send(f'@s suspend a{i}\n' + '@x help\n' * (i % 4) +
               f'@e exec a{i} -- echo x\n@f fork a{i}\n')
        got, signs = b'', {}
        while len(got) < 2 or len(signs) < 3:
            line = c.next()
            if line.sign == '!':
                got += line.chunk or b''
            elif line.tag in 'sef' and line.sign != '*':
                signs[line.tag] = line.sign
        assert signs['e'] == '+' and got == b'x\n', (signs, got)
        assert signs['s'] in ('+', '-BUSY') and signs['f'] in ('+', '-STATE', '-LOST'), signs
        c.ask(f'kill a{i}')


def case_vmm_killed_while_it_stands(d):
    c = d.client()
    for how in 'pause', 'suspend':
        c.ask('create name=a')
        pid = d.vmms()[0]
        c.send(f'@x {how} a\n')
        os.kill(pid, signal.SIGKILL)
        assert c.next().tag == 'x'
        if how == 'pause':
            becomes(c, 'a', None)
        else:
            eventually(lambda: state(c, 'a') in (None, 'suspended'), 'neither')
            if state(c, 'a'):
                c.ask('kill a')


def case_daemon_killed_with_suspended(d):
    c = d.client()
    for name in 'ab':
        c.ask(f'create name={name}')
        c.ask(f'suspend {name}')
    left = d.path + '.state/engine/suspend-XyZ123'
    with open(left, 'w', encoding='ascii') as f:
        f.write('of an instant')
    d.kill()
    assert len(os.listdir(d.path + '.state/engine')) == 1
    d.start()
    assert not os.listdir(d.path + '.state/engine')
    assert not d.client().ask('list').items


case_daemon_killed_with_suspended.restarts = True


def case_templates_are_suspended_too(d):
    c = d.client()
    path = snapshot(d, c)
    c.ask(f'template add t file={path} target=1')
    name = c.ask('create template=t')['vm']
    c.ask(f'suspend {name}')
    c.ask('template remove t')
    assert c.run(name, 'echo', 'x')[0] == b'x\n'


def case_still_churn(d):
    """All of it at random, with VMMs that are killed: nothing is left, nothing hangs."""
    stop = time.monotonic() + 4 * SCALE
    verbs = ('pause {}', 'resume {}', 'suspend {}', 'resume {}', 'fork {} ttl=2s',
             'exec {} detach=yes timeout=1s -- tick', 'exec {} -- echo x', 'kill {}')

    def churn(seed):
        rng = random.Random(seed)
        while time.monotonic() < stop:
            x = d.client()
            try:
                name = x.ask('create idle=100ms idle-action=suspend ttl=5s')['vm']
                for i in range(rng.randint(1, 12)):
                    text = rng.choice(verbs).format(name)
                    if rng.random() < 0.5:
                        x.send(f'@t{i} {text}\n')
                    else:
                        try:
                            x.ask(text)
                        except Refused:
                            pass
                x.ask(f'kill {name}')
            except (Refused, EOFError, BrokenPipeError):
                pass
            x.close()
    with together(churn, range(6)):
        vmms_kill(d, stop, 0.1)


# ---- Pools ----

def pools(c):
    return {t['template']: int(t['ready']) for t in c.ask('template list').items}


def case_pool_memory(d):
    c = d.client()
    path = snapshot(d, c)       # of 2 MiB of memory
    c.ask('pool set memory=8M')
    c.ask(f'template add one file={path} target=10')
    eventually(lambda: pools(c)['one'] == 4, 'not filled up to the budget')
    assert c.ask('template list').items[0]['waits'] == 'memory'
    status = c.ask('pool status')
    assert status['ready-mem'] == status['ready-mem-max'] == str(8 << 20), status
    # What one has several of, another that has none may have.
    c.ask(f'template add two file={path} target=10 hold=no')
    eventually(lambda: pools(c) == {'one': 3, 'two': 1}, 'the second gets none')
    # What is leased is no longer the pool's.
    for _ in range(3):
        c.ask('create template=one')
        c.ask('create template=two')
    eventually(lambda: sum(pools(c).values()) == 4, 'not filled again')
    assert min(pools(c).values()) > 0, pools(c)
    c.ask('pool set memory=4M')
    eventually(lambda: sum(pools(c).values()) == 2, 'a smaller budget is not kept')
    c.ask('pool set memory=0')
    eventually(lambda: set(pools(c).values()) == {10}, 'no budget, and not filled')
    c.refused('pool set memory=x', 'ARGUMENT')


def case_pool_memory_option(d):
    c = d.client()
    path = snapshot(d, c)
    c.ask(f'template add t file={path} target=5')
    eventually(lambda: pools(c)['t'] == 2, 'not filled')
    time.sleep(0.2)
    assert pools(c)['t'] == 2


case_pool_memory_option.options = ('--pool-memory', '4M')


def case_retry_after(d):
    c = d.client()
    path = snapshot(d, c)
    c.ask(f'template add t file={path}')
    # Nothing will ever be ready: there is no time to name.
    assert 'retry-after' not in c.refused('create template=t wait=no', 'BUSY')
    c.ask(f'template add t file={path} replace=yes hold=no target=1')
    times = []
    while len(times) < 3:
        try:
            c.ask('create template=t wait=no')
        except Refused as e:
            text = str(e)
            assert e.code == 'BUSY' and ' retry-after=' in text, text
            times.append(float(text.split('retry-after=')[1].split()[0]))
            time.sleep(times[-1])
    assert all(0 < t < 5 * SCALE for t in times), times


case_retry_after.kernel = 'kernel-100'


def case_roll_under_load(d):
    """A template is replaced again and again while it is leased from: every lease is of a VM
    of its own that works, and at the end all that is ready is of the last one."""
    c = d.client()
    path = snapshot(d, c)
    c.ask(f'template add t file={path} target=4')
    stop = time.monotonic() + 3 * SCALE
    names, lock = [], threading.Lock()

    def lease(_):
        x = d.client()
        try:
            while time.monotonic() < stop:
                name = x.ask('create template=t')['vm']
                assert x.run(name, 'echo', name)[0] == name.encode() + b'\n'
                with lock:
                    names.append(name)
                x.ask(f'kill {name}')
        finally:
            x.close()
    rolled = 0
    with together(lease, range(8)):
        while time.monotonic() < stop:
            c.ask(f'template add t file={path} replace=yes hold={"yes" if rolled % 2 else "no"}')
            rolled += 1
            time.sleep(0.1)
    assert len(set(names)) == len(names) > rolled > 3, (len(names), rolled)
    eventually(lambda: pools(c) == {'t': 4}, f'{pools(c)}')


# ---- Increments ----

def case_incremental(d):
    c = d.client()
    c.ask('create name=a')
    c.refused(f'snapshot a file={d.dir}/c1 incremental=yes', 'STATE')
    assert 'track=yes' in c.refused(f'snapshot a file={d.dir}/c1 incremental=yes', 'STATE')
    c.ask(f'snapshot a file={d.dir}/c0 track=yes')
    for i in 1, 2:
        assert int(c.ask(f'snapshot a file={d.dir}/c{i} incremental=yes')['bytes']) > 0
    # It never replaces what it may build on.
    c.refused(f'snapshot a file={d.dir}/c2 incremental=yes', 'EXISTS')
    c.ask(f'create name=r from={d.dir}/c2')
    assert c.run('r', 'echo', 'x')[0] == b'x\n'
    c.refused(f'snapshot r file={d.dir}/c3 incremental=yes', 'STATE')
    c.ask(f'create name=t from={d.dir}/c1 track=yes')
    c.refused('create track=yes', 'ARGUMENT')
    os.rename(f'{d.dir}/c1', f'{d.dir}/run/c1')
    assert 'builds on another one' in c.refused(f'create from={d.dir}/c2', 'NOTFOUND')
    os.unlink(f'{d.dir}/run/c1')


def case_command(d):
    env = dict(os.environ, CASEMATE_SOCKET=d.path)

    def casemate(*argv, status=0):
        p = subprocess.run([os.path.join(BUILD, 'casemate'), *argv], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                           timeout=30 * SCALE)
        assert p.returncode == status, f'{argv}: {p.returncode}, {p.stderr}'
        return p.stdout + p.stderr
    casemate('run', '--keep', 'a', '--', 'echo', 'x')
    casemate('pause', 'a')
    assert b'paused' in casemate('ls')
    assert b'resume it first' in casemate('exec', 'a', '--', 'echo', 'x', status=125)
    casemate('resume', 'a')
    casemate('suspend', 'a')
    assert b'suspended' in casemate('ls')
    assert casemate('exec', 'a', '--', 'echo', 'x') == b'x\n'
    casemate('snapshot', 'a', '-o', f'{d.dir}/c0', '--track')
    casemate('snapshot', 'a', '-o', f'{d.dir}/c1', '--incremental')
    casemate('restore', '--keep', 'b', '--idle', '1h', '--idle-action', 'suspend',
             f'{d.dir}/c1')
    casemate('pool', 'memory', '64M')
    assert b'67108864' in casemate('pool', 'status')


if __name__ == '__main__':
    sys.exit(main(globals()))
