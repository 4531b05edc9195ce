#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Forwards and connections of casemated, with fake VMMs: see fake_connect.c for what their
guests' servers do. TAP; names of cases may be given."""
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import client
import daemon_test
from client import (CASEMATE, LIMIT, SCALE, Refused, Skip, as_another, eventually,
                    together)

PIECE = 4096


def dial(address, rcvbuf=None):
    kind, rest = address.split(':', 1)
    if kind == 'unix':
        s = socket.socket(socket.AF_UNIX)
        to = rest
    else:
        host, port = rest.rsplit(':', 1)
        s = socket.socket(socket.AF_INET6 if host[0] == '[' else socket.AF_INET)
        to = (host.strip('[]'), int(port))
    if rcvbuf:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    s.settimeout(LIMIT)
    s.connect(to)
    return s


def read_all(s):
    got = bytearray()
    while data := s.recv(1 << 16):
        got += data
    return bytes(got)


def talk(address, data=b''):
    """Sends data, ends, and gives back what came until the other end ended, too."""
    with dial(address) as s:
        sender = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        sender.start()
        got = read_all(s)
        sender.join()
        return got


def begin(d, target='unix:/echo', listen='tcp:0', options=''):
    c = d.client()
    c.ask('create name=a')
    return c, c.ask(f'forward a {listen} {target} {options}')['listen']


def resident(d):
    with open(f'/proc/{d.engine()}/statm', encoding='ascii') as f:
        return int(f.read().split()[1]) * 4096


def forwards(c):
    return c.ask('forwards').items


def sum_of(data):
    return b'%d' % len(data)


def case_connect(d):
    c = d.client()
    c.ask('create name=a')
    exec_id = c.ask('connect a unix:/echo')['exec']
    c.send(f'stdin {exec_id} #5\nhello')
    line = c.next()
    assert line.words[1] == 'stdout' and line.chunk == b'hello', line
    c.ask(f'close-stdin {exec_id}')
    line = c.next()
    assert line.words[1] == 'stdout-end' and line['at'] == '5', line
    line = c.next()
    assert line.words[1] == 'exit' and line['code'] == '0', line
    # The guest's way ends first: that is said while ours goes on.
    exec_id = c.ask('connect a unix:/banner user=1000:1000 window=1000')['exec']
    assert c.next().chunk == b'banner'
    assert c.next().words[1] == 'stdout-end'
    c.send(f'stdin {exec_id} #5\nlater')
    c.ask(f'close-stdin {exec_id}')
    assert c.next()['code'] == '0'
    # Refused: why is on stderr, and the errno the code.
    exec_id = c.ask('connect a unix:/nobody')['exec']
    out, err, end = c.drain(exec_id)
    assert b'cannot connect' in err and end['code'] == '111', (err, end)
    # It ends with the client.
    exec_id = c.ask('connect a unix:/deaf')['exec']
    c.close()
    c = d.client()
    assert c.ask(f'wait {exec_id}')['signal'] == '9'


def case_refusals(d):
    c = d.client()
    c.ask('create name=a')
    path = os.path.join(d.dir, 'file')
    open(path, 'w').close()
    for text, code in (
            ('connect a', 'ARGUMENT'), ('connect b unix:/x', 'NOTFOUND'),
            ('connect a unix:x', 'ARGUMENT'), ('connect a tcp:0', 'ARGUMENT'),
            ('connect a tcp:65536', 'ARGUMENT'), ('connect a tcp:1.2.3.4:5', 'ARGUMENT'),
            ('connect a unix:/' + 'x' * 120, 'ARGUMENT'), ('connect a udp:1', 'ARGUMENT'),
            ('connect a unix:/x pty=1x1', 'ARGUMENT'), ('connect a unix:/x user=y', 'ARGUMENT'),
            ('forward a tcp:0', 'ARGUMENT'), ('forward b tcp:0 unix:/x', 'NOTFOUND'),
            ('forward a tcp:0 unix:x', 'ARGUMENT'), ('forward a tcp:x unix:/x', 'ARGUMENT'),
            ('forward a tcp:70000 unix:/x', 'ARGUMENT'), ('forward a 80 unix:/x', 'ARGUMENT'),
            ('forward a tcp:localhost:1 unix:/x', 'ARGUMENT'),
            ('forward a tcp:[::1:1 unix:/x', 'ARGUMENT'),
            ('forward a unix:rel unix:/x', 'ARGUMENT'),
            ('forward a unix:/' + 'x' * 120 + ' unix:/x', 'ARGUMENT'),
            ('forward a unix:/no/dir/s unix:/x', 'NOTFOUND'),
            (f'forward a unix:{path} unix:/x', 'EXISTS'),
            ('forward a tcp:0.0.0.0:0 unix:/x', 'DENIED'),
            ('forward a tcp:[::]:0 unix:/x', 'DENIED'),
            ('forward a tcp:0 unix:/x what=1', 'ARGUMENT'),
            ('forwards b', 'NOTFOUND'), ('unforward 1', 'NOTFOUND'),
            ('unforward x', 'NOTFOUND')):
        c.refused(text, code)
    assert os.path.getsize(path) == 0
    listen = c.ask('forward a tcp:0 unix:/echo')['listen']
    c.refused(f'forward a {listen} unix:/echo', 'EXISTS')
    for _ in range(15):
        c.ask('forward a tcp:0 unix:/echo')
    c.refused('forward a tcp:0 unix:/echo', 'LIMIT')
    c.ask('unforward 1')
    try:
        dial(listen)
        raise AssertionError('it still listens')
    except ConnectionRefusedError:
        pass


def case_tcp(d):
    c, address = begin(d)
    assert address.startswith('tcp:127.0.0.1:') and not address.endswith(':0'), address
    assert talk(address, b'hello') == b'hello'
    data = random.randbytes(5000000)
    assert talk(address, data) == data
    line = forwards(c)[0]
    assert (line['accepted'], line['failed'], line['target']) == ('2', '0', 'unix:/echo'), line
    eventually(lambda: forwards(c)[0]['connections'] == '0', 'connections stay')
    assert not c.ask('info a').items
    # They leave nothing behind to be asked about.
    c.refused('wait 1', 'NOTFOUND')
    if os.path.exists('/proc/net/if_inet6'):
        try:
            address = c.ask('forward a tcp:[::1]:0 unix:/echo')['listen']
            assert talk(address, b'six') == b'six'
        except Refused:
            pass    # a host without it on its loopback


def case_unix(d):
    path = os.path.join(d.dir, 's')
    c, address = begin(d, listen=f'unix:{path}')
    assert address == f'unix:{path}'
    st = os.stat(path)
    assert st.st_mode & 0o777 == 0o600 and st.st_uid == os.getuid(), oct(st.st_mode)
    data = random.randbytes(5000000)
    assert talk(address, data) == data
    c.refused(f'forward a {address} unix:/echo', 'EXISTS')
    c.ask('unforward 1')
    assert not os.path.exists(path)
    # One that somebody else has put there meanwhile is not ours to remove.
    c.ask(f'forward a unix:{path} unix:/echo')
    os.unlink(path)
    open(path, 'w').close()
    c.ask('kill a')
    assert os.path.exists(path)


def case_half_close(d):
    c, address = begin(d, 'unix:/banner')
    with dial(address) as s:
        assert read_all(s) == b'banner'     # to the end of the guest's way
        s.sendall(b'more')
        time.sleep(0.1)
        assert forwards(c)[0]['connections'] == '1'
    eventually(lambda: forwards(c)[0]['connections'] == '0', 'it goes on')
    c.ask('forward a tcp:0 unix:/bye')
    with dial(forwards(c)[1]['listen']) as s:
        assert read_all(s) == b'bye'
    assert [f['failed'] for f in forwards(c)] == ['0', '0'], forwards(c)


def case_refused_in_the_guest(d):
    c, address = begin(d, 'unix:/nobody')
    with dial(address) as s:
        try:
            assert not s.recv(10), 'bytes from nowhere'
            raise AssertionError('an orderly end')
        except ConnectionResetError:
            pass
    line = forwards(c)[0]
    assert line['failed'] == '1' and 'cannot connect' in line['trouble'], line
    assert '\x1b' not in line['trouble'] and 'second' not in line['trouble'], line


def case_bound(d):
    """The client of a bound forward is told what happens, and its end is the forward's."""
    c, address = begin(d, 'unix:/nobody', options='bound=yes')
    try:
        read_all(dial(address))
    except ConnectionResetError:
        pass
    line = c.next()
    assert line['forward'] == '1' and line.words[1] == 'failed' and line['reason'], line
    other = d.client()
    other.ask('kill a')
    line = c.next()
    assert line.words[1] == 'ended' and line['reason'], line
    other.ask('create name=a')
    c.ask('forward a tcp:0 unix:/echo bound=yes')
    c.ask('forward a tcp:0 unix:/echo')
    assert len(forwards(other)) == 2
    c.close()
    eventually(lambda: len(forwards(other)) == 1, 'it outlives its client')


def case_many(d):
    """More connections at once than are served at once: the rest waits."""
    c, address = begin(d, 'unix:/upper')
    held = [dial(address) for _ in range(70)]
    eventually(lambda: forwards(c)[0]['connections'] == '32', 'not served')
    time.sleep(0.1)
    assert forwards(c)[0]['connections'] == '32'
    assert c.run('a', 'echo', 'x')[0] == b'x\n', 'connections keep commands out'
    for i, s in enumerate(held):
        s.sendall(bytes(i))
        s.shutdown(socket.SHUT_WR)
        assert read_all(s).split()[0] == b'%d' % i
        s.close()
    assert forwards(c)[0]['accepted'] == '70'

    def one(n):
        assert talk(address, bytes([n]) * 100000).split()[0] == b'100000'
    with together(one, range(200)):
        pass


def case_quota(d):
    """Connections count as the owner's commands."""
    c, address = begin(d, 'unix:/upper')
    held = [dial(address) for _ in range(3)]
    eventually(lambda: forwards(c)[0]['connections'] == '3', 'not served')
    c.refused('exec a -- sleep', 'LIMIT')
    try:
        dial(address).recv(1)
        raise AssertionError('it goes on')
    except ConnectionResetError:
        pass
    assert 'limit' in forwards(c)[0]['trouble'], forwards(c)
    for s in held:
        s.close()
    eventually(lambda: forwards(c)[0]['connections'] == '0', 'they go on')
    c.run('a', 'echo', 'x')


case_quota.options = ('--max-execs', '3')


def case_slow_reader(d):
    """One that takes nothing stalls its own connection only."""
    c, address = begin(d, 'unix:/flood-300000000')
    c.ask('forward a tcp:0 unix:/echo')
    before = resident(d)
    slow = dial(address, 4096)
    slow.recv(10)
    other = forwards(c)[1]['listen']
    data = random.randbytes(3000000)
    assert talk(other, data) == data
    assert resident(d) - before < 16 << 20, f'{resident(d) - before} bytes more'
    slow.close()
    eventually(lambda: forwards(c)[0]['connections'] == '0', 'it goes on')
    # And one that is not read from.
    c.ask('forward a tcp:0 unix:/deaf')
    s = dial(forwards(c)[2]['listen'])
    s.settimeout(1)
    sent = 0
    try:
        while True:
            sent += s.send(bytes(65536))
    except TimeoutError:
        pass
    assert talk(other, data) == data
    assert resident(d) - before < 24 << 20
    s.close()
    c.ask('kill a')


def case_idle_costs_nothing(d):
    """Connections in every state of waiting: none keeps the daemon awake."""
    path = os.path.join(d.dir, 's')
    c, address = begin(d, 'unix:/deaf')
    c.ask(f'forward a unix:{path} unix:/deaf')
    c.ask(f'forward a unix:{path}2 unix:/banner')
    held = []
    for a in (address, f'unix:{path}'):
        held += [dial(a) for _ in range(3)]
        held[-1].sendall(b'x')
        held[-2].shutdown(socket.SHUT_WR)
    gone = [dial(f'unix:{path}'), dial(f'unix:{path}2')]
    gone[1].recv(10)
    for s in gone:
        s.sendall(b'x')
        s.close()           # with the guest's end still there
    time.sleep(0.3)

    def cpu():
        with open(f'/proc/{d.engine()}/stat', encoding='ascii') as f:
            words = f.read().rsplit(')', 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')
    before = cpu()
    time.sleep(2)
    assert cpu() - before < 0.3 * SCALE, f'{cpu() - before} s in 2 s'


def case_reset(d):
    """A peer that is reset takes its command with it."""
    c, address = begin(d, 'unix:/deaf')
    s = dial(address)
    s.sendall(b'x')
    eventually(lambda: forwards(c)[0]['connections'] == '1', 'not served')
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.close()
    eventually(lambda: forwards(c)[0]['connections'] == '0', 'it goes on')
    eventually(lambda: not c.ask('info a').items, 'the command goes on')


def case_reader_leaves(d):
    """A peer that reads no more: the guest's end is told, and still hears all of it."""
    path = os.path.join(d.dir, 's')
    c, _ = begin(d, 'unix:/talker', f'unix:{path}')
    s = dial(f'unix:{path}')
    # At once, or the end of what it says may be heard before it is known that it reads no more.
    s.shutdown(socket.SHUT_RD)
    s.sendall(b'x' * 1000000)
    s.close()
    eventually(lambda: forwards(c)[0]['failed'] == '1', 'it goes on')
    assert forwards(c)[0]['trouble'] == 'heard 1000000, signal 13', forwards(c)
    c.ask(f'forward a unix:{path}2 unix:/flood-100000000')
    s = dial(f'unix:{path}2')
    assert s.recv(100)
    s.close()
    eventually(lambda: forwards(c)[1]['connections'] == '0', 'it goes on')
    assert forwards(c)[1]['failed'] == '0', forwards(c)


def case_vm_killed(d):
    c, address = begin(d, 'unix:/flood-300000000')
    path = os.path.join(d.dir, 's')
    c.ask(f'forward a unix:{path} unix:/echo')
    held = [dial(address) for _ in range(5)] + [dial(f'unix:{path}') for _ in range(5)]
    for s in held[:5]:
        s.recv(10)
    for s in held[5:]:
        s.sendall(bytes(100000))
    os.kill(d.vmms()[0], signal.SIGKILL)
    for s in held:
        try:
            read_all(s)
        except ConnectionResetError:
            pass
    assert not forwards(c) and not os.path.exists(path)


def case_fork(d):
    """A copy has no forwards, and the ends of the source's connections in it are ended."""
    c, address = begin(d)
    s = dial(address)
    s.sendall(b'one')
    assert s.recv(10) == b'one'
    child = c.ask('fork a').items[0]['vm']
    assert not c.ask(f'forwards {child}').items
    eventually(lambda: not c.ask(f'info {child}').items, 'a connection of nobody')
    s.sendall(b'two')
    assert s.recv(10) == b'two'
    s.close()
    c.ask(f'forward {child} tcp:0 unix:/echo')
    assert talk(forwards(c)[1]['listen'], b'x') == b'x'


def case_bulk(d):
    """1 GiB up and down, in bounded memory."""
    size = 1 << 30
    c, up = begin(d, 'unix:/upper')
    down = c.ask(f'forward a tcp:0 unix:/flood-{size}')['listen']
    before = resident(d)
    piece = bytes(1 << 20)
    began = time.monotonic()
    with dial(up) as s:
        for _ in range(size >> 20):
            s.sendall(piece)
        s.shutdown(socket.SHUT_WR)
        assert read_all(s) == b'%d 0' % size
    middle = time.monotonic()
    got = 0
    with dial(down) as s:
        while n := s.recv_into(bytearray(1 << 20)):
            got += n
    ended = time.monotonic()
    assert got == size, got
    assert resident(d) - before < 8 << 20, f'{resident(d) - before} bytes more'
    print(f'# {size / (middle - began) / 2**20:.0f} MiB/s up, '
          f'{size / (ended - middle) / 2**20:.0f} MiB/s down')


def case_daemon_killed(d):
    """kill -9 of the daemon: the next one clears its sockets, and no others."""
    c = d.client()
    c.ask('create name=a')
    mine, other, served = (os.path.join(d.dir, n) for n in ('s1', 's2', 's3'))
    for path in (mine, other, served):
        c.ask(f'forward a unix:{path} unix:/echo')
    d.kill()
    assert os.path.exists(mine)
    # Others have come in the place of two of them.
    os.unlink(other)
    open(other, 'w').close()
    os.unlink(served)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(served)
    listener.listen()
    d.start()
    assert not os.path.exists(mine), 'it is left'
    assert os.path.exists(other) and os.path.exists(served), 'what is not ours is gone'
    c = d.client()
    c.ask('create name=a')
    c.ask(f'forward a unix:{mine} unix:/echo')
    assert talk(f'unix:{mine}', b'x') == b'x'


case_daemon_killed.restarts = True


def case_engine_killed(d):
    """The same, of the engine alone."""
    c = d.client()
    c.ask('create name=a')
    path = os.path.join(d.dir, 's')
    c.ask(f'forward a unix:{path} unix:/echo')
    os.kill(d.engine(), signal.SIGKILL)
    c = d.client()
    assert not os.path.exists(path), 'it is left'
    c.ask('create name=a')
    c.ask(f'forward a unix:{path} unix:/echo')
    assert talk(f'unix:{path}', b'x') == b'x'


def case_operators(d):
    """Another user in the group: TCP on loopback, no files, no small ports, own VMs only."""
    c = d.client()
    c.ask('create name=a')
    c.ask('forward a tcp:0 unix:/echo')
    as_another(d, [0], '''
c = Client(path)
c.ask("create name=mine")
c.refused("forward mine unix:/tmp/x unix:/echo", "DENIED")
c.refused("forward mine tcp:0.0.0.0:0 unix:/echo", "DENIED")
c.refused("forward mine tcp:127.0.0.1:80 unix:/echo", "DENIED")
c.refused("forward a tcp:0 unix:/echo", "NOTFOUND")
c.refused("connect a unix:/echo", "NOTFOUND")
c.refused("unforward 1", "NOTFOUND")
c.refused("forwards a", "NOTFOUND")
assert not c.ask("forwards").items
c.ask("forward mine tcp:0 unix:/echo")
assert len(c.ask("forwards").items) == 1
c.ask("connect mine unix:/bye")
''')


case_operators.options = ('--group', 'root')


def case_any_address(d):
    _, address = begin(d, listen='tcp:0.0.0.0:0')
    assert talk(address.replace('0.0.0.0', '127.0.0.1'), b'x') == b'x'


case_any_address.options = ('--forward-any',)


def case_churn(d):
    """Connections of all kinds, VMs killed under them, forwards removed under them."""
    stop = time.monotonic() + 4 * SCALE
    path = os.path.join(d.dir, 's')

    def churn(seed):
        rng = random.Random(seed)
        while time.monotonic() < stop:
            x = d.client()
            try:
                vm = x.ask('create bound=yes')['vm']
                listen = rng.choice(['tcp:0', f'unix:{path}{seed}'])
                target = rng.choice(['echo', 'upper', 'flood-10000000', 'bye', 'nobody', 'deaf'])
                line = x.ask(f'forward {vm} {listen} unix:/{target}')
                held = []
                for _ in range(rng.randint(1, 10)):
                    s = dial(line['listen'])
                    s.settimeout(0.2)
                    held.append(s)
                    s.sendall(bytes(rng.randint(0, 100000)))
                    if rng.random() < 0.5:
                        s.shutdown(socket.SHUT_WR)
                    if rng.random() < 0.5:
                        s.recv(1000)
                    if rng.random() < 0.3:
                        s.close()
                if rng.random() < 0.3:
                    x.ask('unforward ' + line['forward'])
                if rng.random() < 0.3:
                    x.ask('kill ' + vm)
            except (Refused, EOFError, OSError):
                pass
            x.close()
    with together(churn, range(6)):
        pass
    c = d.client()
    eventually(lambda: not c.ask('list').items, 'VMs are left')
    assert not [n for n in os.listdir(d.dir) if n.startswith('s') and n != 'snap'], 'sockets'


def serve(name, function):
    """At an abstract socket: a guest on the host has a /tmp of its own."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind('\0' + name)
    listener.listen(64)

    def one(s):
        function(s)
        s.close()

    def loop():
        while True:
            threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()


def echo(s):
    while data := s.recv(65536):
        s.sendall(data)


def case_initd(d):
    """With the guest's true initd, as a program of the host in the place of a VM."""
    if os.geteuid():
        raise Skip('a guest on the host takes root')
    served, path = f'forward-test-{os.getpid()}', os.path.join(d.dir, 's')
    heard = []

    def hear(s):
        s.sendall(b'banner')
        s.shutdown(socket.SHUT_WR)
        heard.append(read_all(s))
    serve(served, echo)
    serve(served + '2', hear)
    c, address = begin(d, f'unix:@{served}')
    data = random.randbytes(20000000)
    assert talk(address, data) == data
    c.ask(f'forward a unix:{path} unix:@{served}')
    assert talk(f'unix:{path}', data) == data
    c.ask(f'forward a tcp:0 unix:@{served}2')
    with dial(forwards(c)[2]['listen']) as s:
        assert read_all(s) == b'banner'
        s.sendall(b'heard')
    eventually(lambda: heard == [b'heard'], heard)
    c.ask(f'forward a tcp:0 unix:/tmp/none')
    with dial(forwards(c)[3]['listen']) as s:
        try:
            assert not s.recv(10)
        except ConnectionResetError:
            pass
    assert 'No such file' in forwards(c)[3]['trouble'], forwards(c)[3]

    def one(n):
        assert talk(address, bytes([n]) * 300000) == bytes([n]) * 300000
    with together(one, range(60)):
        pass
    eventually(lambda: not c.ask('info a').items, 'commands go on')


case_initd.guest = 'initd'


def case_command(d):
    """casemate connect and casemate forward."""
    env = dict(os.environ, CASEMATE_SOCKET=d.path)

    def casemate(*argv, **how):
        return client.casemate(d, *argv, **how)
    casemate('run', '--keep', 'a', '--', 'echo', 'x')
    data = random.randbytes(2000000)
    assert casemate('connect', 'a', 'unix:/echo', stdin=data)[0] == data
    assert b'cannot connect' in casemate('connect', 'a', 'unix:/nobody', status=111)[1]
    casemate('connect', 'a', 'nonsense', status=125)
    # The guest's end of its way is seen while stdin is open.
    p = subprocess.Popen([CASEMATE, 'connect', 'a', 'unix:/banner'], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, env=env)
    assert p.stdout.read() == b'banner'
    assert p.poll() is None
    p.stdin.close()
    assert p.wait(LIMIT) == 0
    p.stdout.close()
    # In the foreground: says where, ends with ^C or the VM.
    for how in 'INT', 'kill', 'socket':
        path = os.path.join(d.dir, 's')
        listen = f'unix:{path}' if how == 'socket' else 'tcp:0'
        p = subprocess.Popen([CASEMATE, 'forward', 'a', listen, 'unix:/echo'],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        address = p.stdout.readline().decode().strip()
        assert talk(address, b'hello') == b'hello', address
        if how == 'kill':
            casemate('kill', 'a')
        else:
            p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=LIMIT)
        assert p.returncode == (125 if how == 'kill' else 130), (p.returncode, err)
        assert (b'asked for it' in err) == (how == 'kill'), err
        eventually(lambda: not os.path.exists(path), 'the socket is left')
        if how == 'kill':
            casemate('run', '--keep', 'a', '--', 'echo', 'x')
    eventually(lambda: not d.client().ask('forwards').items, 'forwards are left')


if __name__ == '__main__':
    sys.exit(daemon_test.main(globals()))
