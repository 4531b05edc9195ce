#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""watch tree=yes: casemated, and initd as a program of the host in the place of a VM. TAP; names
of cases may be given. CASEMATE_STORM_SECONDS and CASEMATE_STORM_SEED: of the storms."""
import json
import os
import random
import sys
import time

import client
import daemon_test
from files_test import code, ended, guest, put

STORM = os.path.join(os.path.dirname(os.path.realpath(__file__)), 'watch_storm.py')
SECONDS = float(os.environ.get('CASEMATE_STORM_SECONDS', '4'))
SEED = int(os.environ.get('CASEMATE_STORM_SEED', random.randrange(1 << 30)))


FLOOD = """
import os
for name in 'FLOOD1', 'FLOOD2':
    open('/tmp/t/' + name, 'w').close()
for i in range(100000):
    os.chmod('/tmp/t/FLOOD%d' % (i % 2 + 1), 0o600)
"""


class Picture:
    """What a tree looks like to who reads its watch as docs/PROTOCOL.md says: path -> whether
    it is a directory."""
    def __init__(self):
        self.paths, self.left, self.seen = {}, {}, []

    def take_away(self, path):
        below = [p for p in self.paths if p == path or p.startswith(path + '/')]
        return {p[len(path):]: self.paths.pop(p) for p in below}

    def take(self, line):
        what, name = line.sign, line.fields.get('name')
        is_dir = line.fields.get('dir') == 'yes'
        self.seen.append(line)
        if what == 'created':
            self.paths[name] = is_dir
        elif what in ('deleted', 'moved-from'):
            self.left = {line.fields.get('cookie', 'none'): self.take_away(name)}
        elif what == 'moved-to':
            self.take_away(name)
            self.paths[name] = is_dir
            left = self.left.pop(line.fields.get('cookie'), {}) if is_dir else {}
            for path, was_dir in left.items():
                self.paths[name + path] = was_dir


class Watch:
    def __init__(self, d, path, options=''):
        self.client, self.path, self.d = d.client(), path, d
        self.exec = self.client.ask(f'watch a {path} tree=yes {options}')['exec']
        self.data = bytearray()
        self.picture = Picture()
        self.end = None

    def next(self):
        """The next line; None at the end."""
        while (end := self.data.find(b'\n')) < 0:
            line = self.client.next()
            if line.words[1] == 'exit':
                self.end = line
                return None
            assert line.words[1] == 'stdout', (line, line.chunk)
            self.data += line.chunk
        line = client.Line(bytes(self.data[:end]), None)
        del self.data[:end + 1]
        return line

    def until(self, *words):
        """Takes lines up to one with these words; returns those."""
        lines = []
        while True:
            line = self.next()
            assert line, ('it has ended', lines)
            lines.append(line)
            self.picture.take(line)
            if [line.sign, *line.words][:len(words)] == list(words):
                return lines

    def listing(self, below=''):
        path = self.path + ('/' + below if below else '')
        out = ended(self.d.client(), f'ls a {quote(path)} recursive=yes')[0]
        found = {}
        for raw in out.splitlines():
            line = client.Line(b'* ' + raw, None)
            name = line['name']
            found[f'{below}/{name}' if below else name] = line['type'] == 'dir'
        return found


def quote(text):
    raw = os.fsencode(text)
    return '"' + ''.join(f'\\x{b:02x}' for b in raw) + '"'


def begin(d, options=''):
    c = d.client()
    c.ask('create name=a')
    assert code(ended(c, 'mkdir a /tmp/t')) == 0
    w = Watch(d, '/tmp/t', options)
    w.until('watching')
    return c, w


def shell(c, text):
    out, err, end = c.run('a', 'sh', '-c', quote(text))
    assert end['code'] == '0', (text, err)
    return out


def brief(lines):
    return [' '.join([line.sign, *(w for w in line.words if w[:7] != 'cookie=')])
            for line in lines if line.sign not in ('modified', 'written', 'attributes')]


@guest
def case_grow_and_move(d):
    c, w = begin(d)
    shell(c, 'mkdir -p /tmp/t/x/y; echo 1 >/tmp/t/x/y/f')
    w.until('created', 'name=x/y/f')
    shell(c, 'echo 2 >>/tmp/t/x/y/f')
    w.until('written', 'name=x/y/f')
    # What is below goes along, without being told of again.
    shell(c, 'mv /tmp/t/x /tmp/t/z; echo 3 >/tmp/t/z/y/g')
    assert brief(w.until('created', 'name=z/y/g')) == [
        'moved-from name=x dir=yes', 'moved-to name=z dir=yes', 'created name=z/y/g']
    # Out: no more is heard of it. In: all that is there is told of.
    shell(c, 'mv /tmp/t/z /tmp/out; echo >/tmp/out/y/unheard; mkdir /tmp/t/n')
    assert brief(w.until('created', 'name=n', 'dir=yes')) == [
        'moved-from name=z dir=yes', 'created name=n dir=yes']
    shell(c, 'mv /tmp/out /tmp/t/n/in')
    lines = []
    while not {'n/in/y/f', 'n/in/y/g', 'n/in/y/unheard'} <= set(w.picture.paths):
        line = w.next()
        lines += brief([line])
        w.picture.take(line)
    assert lines[:2] == ['moved-to name=n/in dir=yes', 'created name=n/in/y dir=yes'], lines
    shell(c, 'rm -r /tmp/t/n')
    w.until('deleted', 'name=n', 'dir=yes')
    assert w.picture.paths == {}, w.picture.paths
    shell(c, 'mkdir /tmp/t/q; rm -r /tmp/t')
    lines = w.until('gone')
    assert w.next() is None and w.end['code'] == '0', lines


@guest
def case_begin_in_the_middle(d):
    """What was there before is watched, and not told of."""
    c = d.client()
    c.ask('create name=a')
    shell(c, 'mkdir -p /tmp/t/1/2/3 /tmp/t/old; touch /tmp/t/1/f; ln -s /tmp /tmp/t/1/link')
    w = Watch(d, '/tmp/t')
    assert brief(w.until('watching')) == ['watching']
    shell(c, 'touch /tmp/t/1/2/3/f /tmp/through; mv /tmp/t/1/2 /tmp/t/old/; touch /tmp/t/e')
    assert brief(w.until('created', 'name=e')) == [
        'created name=1/2/3/f', 'moved-from name=1/2 dir=yes', 'moved-to name=old/2 dir=yes',
        'created name=e']
    shell(c, 'mkdir -p /tmp/t/1/2/3; mv -T /tmp/t/old/2/3 /tmp/t/1/2/3; touch /tmp/t/1/2/3/f2')
    w.until('created', 'name=1/2/3/f2')


@guest
def case_names(d):
    c, w = begin(d)
    odd = '/tmp/t/' + 'n\n" \'\udcff\x1b/' * 3
    assert code(ended(c, f'mkdir a {quote(odd)} parents=yes')) == 0
    assert code(put(c, 'a', quote(odd + 'file name=x dir=yes'), b'x')) == 0
    w.until('created', 'name=' + odd[7:] + 'file name=x dir=yes')
    assert list(w.picture.paths.values()) == [True, True, True, False], w.picture.paths
    # Trees that reach beyond the longest path are watched as far as names go.
    text = ('import os\nos.chdir("/tmp/t")\nfor i in range(40):\n'
            ' os.mkdir("d" * 200)\n os.chdir("d" * 200)\nopen("f", "w")\n')
    out, err, end = c.run('a', 'python3', '-c', quote(text))
    assert end['code'] == '0', err
    lines = [line for line in w.until('unwatched') if line.sign == 'unwatched']
    assert lines[0]['errno'] == '36' and 3000 < len(lines[0]['name']) < 4096
    # By a move, too.
    shell(c, f'mkdir -p /tmp/t/s/{"s" * 150}/x/{"y" * 200}; touch /tmp/t/s/last')
    w.until('created', 'name=s/last')
    deep = '/'.join(['d' * 200] * 18)
    shell(c, f'cd /tmp/t; mv s/{"s" * 150} {deep}/; touch later')
    w.until('created', 'name=later')
    shell(c, f'cd /tmp/t/{deep}/{"s" * 150}; cd x/{"y" * 200}; touch {"f" * 200}; '
          'cd /tmp/t; touch last')
    while True:
        line = w.next()
        if line.sign in ('overflow', 'unwatched') or line.words[:1] == ['name=last']:
            break
    assert line.words[:1] != ['name=last'], 'nothing was said'


@guest
def case_permissions(d):
    c = d.client()
    c.ask('create name=a')
    shell(c, 'mkdir -p /tmp/t/closed/inner /tmp/t/open; chmod 700 /tmp/t/closed')
    w = Watch(d, '/tmp/t', 'user=65534')
    lines = w.until('watching')
    assert [repr(x) for x in lines] == ['unwatched name=closed errno=13', 'watching'], lines
    shell(c, 'touch /tmp/t/closed/f; chmod 755 /tmp/t/closed; touch /tmp/t/e')
    lines = brief(w.until('created', 'name=e'))
    assert sorted(lines) == ['created name=closed/f', 'created name=closed/inner dir=yes',
                             'created name=e'], lines
    shell(c, 'mount -t tmpfs x /tmp/t/open; mkdir /tmp/t/open/m /tmp/t/n; '
          'mount -t tmpfs x /tmp/t/n; mv /tmp/t/closed /tmp/t/c; mkdir /tmp/t/c/d; '
          'touch /tmp/t/last')
    lines = brief(w.until('created', 'name=last'))
    assert 'created name=c/d dir=yes' in lines and not any('open/' in x for x in lines), lines
    w2 = Watch(d, '/tmp/t')
    lines = [repr(x) for x in w2.until('watching')]
    assert sorted(lines) == ['unwatched name=n errno=18', 'unwatched name=open errno=18',
                             'watching'], lines


@guest
def case_too_many(d):
    """What is beyond the limit is said."""
    with open('/proc/sys/fs/inotify/max_user_watches') as f:
        if int(f.read()) < 40000:
            raise client.Skip('this host allows for few watches')
    c = d.client()
    c.ask('create name=a')
    out, err, end = c.run('a', 'python3', '-c', quote(
        'import os\nfor i in range(33000): os.makedirs(f"/tmp/t/{i % 180}/{i}")'))
    assert end['code'] == '0', err
    begun = time.monotonic()
    w = Watch(d, '/tmp/t')
    lines = w.until('watching')
    print(f'# {time.monotonic() - begun:.2f} s', flush=True)
    assert len(lines) == 33000 + 180 + 1 - 32768 + 1, len(lines)
    assert {line['errno'] for line in lines[:-1]} == {'28'}, lines[:3]
    # When there is room again, what comes is watched.
    shell(c, 'rm -r /tmp/t/7; mkdir /tmp/t/new; sleep 1; touch /tmp/t/new/f')
    w.until('created', 'name=new/f')


@guest
def case_file_and_errors(d):
    c = d.client()
    c.ask('create name=a')
    assert code(put(c, 'a', '/tmp/f', b'x')) == 0
    w = Watch(d, '/tmp/f')
    w.until('watching')
    shell(c, 'echo >>/tmp/f')
    w.until('written')
    assert code(ended(c, 'watch a /tmp/none tree=yes')) == 2
    assert code(ended(c, 'watch a /tmp tree=maybe')) == 22
    # What is watched is where its path leads.
    shell(c, 'mkdir -p /tmp/up/t')
    w = Watch(d, '/tmp/up/t')
    w.until('watching')
    shell(c, 'mv /tmp/up /tmp/else; mkdir /tmp/else/t/x')
    w.until('gone')
    assert w.next() is None and w.end['code'] == '0'


@guest
def case_command(d):
    """The same by `casemate watch -r`, whatever names are."""
    def casemate(*argv):
        return client.casemate(d, *argv, status=124, limit=60)[0]
    c = d.client()
    c.ask('create name=a')
    shell(c, 'mkdir -p /tmp/t/in; mkdir /tmp/t/m; mount -t tmpfs x /tmp/t/m')
    shell(c, "(sleep 1; mkdir -p /tmp/t/in/x/y; touch $(printf '/tmp/t/in/\\033[1m')) "
          '>/dev/null 2>&1 &')
    out = casemate('watch', '-r', '--timeout', '3s', 'a:/tmp/t')
    lines = out.decode().split('\n')
    assert lines[:2] == ['unwatched m: Invalid cross-device link', 'watching '], lines
    assert {'created in/x', 'created in/x/y'} <= set(lines) and '\x1b' not in out.decode(), lines
    assert any(line.startswith('created in/') and line.endswith('[1m') for line in lines), lines
    out = casemate('watch', '-r', '--timeout', '300ms', '--json', 'a:/tmp/t')
    assert [json.loads(x) for x in out.splitlines()] == [
        {'event': 'unwatched', 'name': 'm', 'errno': 18}, {'event': 'watching'}], out


def settle(w, c, again=False):
    """Reads until all is told; looks for itself where it is told to."""
    shell(c, 'mkdir -p /tmp/t; touch /tmp/t/END')
    overflows = 0
    while 'END' not in w.picture.paths:
        line = w.next()
        w.picture.take(line)
        if line.sign == 'overflow':
            overflows += 1
            w.picture.paths = w.listing()
        elif again and line.sign == 'moved-to' and line.fields.get('dir'):
            w.picture.paths.update(w.listing(line['name']))
    return overflows


def compare(w, want):
    got = w.picture.paths
    wrong = sorted(p for p in got.keys() | want.keys() if got.get(p) != want.get(p))
    assert not wrong, (f'seed {SEED}: {len(wrong)} of {len(want)} wrong', wrong[:5],
                       [repr(x) for x in w.picture.seen
                        if x.fields.get('name', '-').startswith(wrong[0].split('/')[0])][-20:])


def storm(c, seconds, processes, seed=SEED):
    # By its text: the guest's /tmp hides the host's, where all of this may be.
    with open(STORM, 'rb') as f:
        script = f.read()
    exec_id = c.ask(f'exec a stdin=yes -- python3 - /tmp/t {seconds} {seed} {processes}')['exec']
    c.send(b'stdin %s #%d\n' % (exec_id.encode(), len(script)) + script)
    c.ask(f'close-stdin {exec_id}')
    return exec_id


@guest
def case_storm(d):
    """Who only reads knows the tree."""
    c, w = begin(d)
    other = d.client()
    for i in range(3):
        exec_id = storm(other, SECONDS / 3, 1 + i, SEED + i)
        assert other.drain(exec_id)[2]['code'] == '0'
        overflows = settle(w, c)
        print(f'# seed {SEED + i}, {len(w.picture.seen)} lines, '
              f'{len(w.picture.paths)} names, {overflows} overflows', flush=True)
        compare(w, w.listing())
        shell(c, 'rm /tmp/t/END')
        w.until('deleted', 'name=END')


@guest
def case_storm_slow_reader(d):
    """Nor is one lost that has to look for itself now and then while all goes on."""
    c, w = begin(d)
    other = d.client()
    exec_id = storm(other, SECONDS, 2)
    overflows, end, flooded = 0, time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        # Twice the reader stops until the kernel's queue has run over.
        if end - time.monotonic() < SECONDS * (.7 - .4 * flooded) and flooded < 2:
            out, err, line = c.run('a', 'python3', '-c', quote(FLOOD))
            assert line['code'] == '0', err
            flooded += 1
        line = w.next()
        w.picture.take(line)
        if line.sign == 'overflow':
            overflows += 1
            w.picture.paths = w.listing()
        elif line.sign == 'moved-to' and line.fields.get('dir'):
            w.picture.paths.update(w.listing(line['name']))
    assert other.drain(exec_id)[2]['code'] == '0'
    overflows += settle(w, c, again=True)
    print(f'# seed {SEED}, {len(w.picture.seen)} lines, {len(w.picture.paths)} names, '
          f'{overflows} overflows', flush=True)
    compare(w, w.listing())
    assert overflows, 'the queue did not run over'


@guest
def case_begin_in_a_storm(d):
    c = d.client()
    c.ask('create name=a')
    shell(c, 'mkdir /tmp/t')
    other = d.client()
    exec_id = storm(other, SECONDS / 2, 2)
    time.sleep(SECONDS / 8)
    w = Watch(d, '/tmp/t')
    w.until('watching')
    w.picture.paths = w.listing()
    assert other.drain(exec_id)[2]['code'] == '0'
    settle(w, c, again=True)
    compare(w, w.listing())


if __name__ == '__main__':
    sys.exit(daemon_test.main(globals()))
