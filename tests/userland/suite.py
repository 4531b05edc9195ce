# SPDX-License-Identifier: Apache-2.0
"""Runs cases on both sides and compares them, for run.sh. Prints TAP.

  suite.py --root DIR --image FILE --casemate 'COMMAND...' --scale small|full [CASE...]

Both sides get the cases as a tar on standard input, and drive.sh as an argument of bash. The
host's side is a chroot of the same image's files: what differs is the kernel under it. A guest
that ends too early, or never, costs the case it was in; the others are run by another one.
"""
import argparse
import difflib
import io
import os
import re
import shlex
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.realpath(__file__))
CASES = os.path.join(HERE, 'cases')
# What emulation can do. Without these, cases have the sizes that docs and goals speak of.
SMALL = {'US_LINES': 2000, 'US_TAR': 30, 'US_COMMITS': 60, 'US_REAL_COMMITS': 4,
         'US_OBJECTS': 5, 'US_ROWS': 25, 'US_MATRIX': 60, 'US_FILES': 1500}
PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'


def bundle(names):
    """A tar of the cases, with fixed times: the two sides' clocks may differ."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w') as tar:
        for name in sorted(os.listdir(CASES)):
            if os.path.splitext(name)[0] in names:
                tar.add(os.path.join(CASES, name), 'cases/' + name,
                        filter=lambda i: i.replace(mtime=0, uid=0, gid=0, deep=False))
    return out.getvalue()


def parse(data):
    """{case: (status, stdout, stderr, seconds)} of what drive.sh has written, complete or not."""
    found = {}
    at = 0
    while True:
        head = re.compile(rb'#case (\S+) (\d+) (\d+) (\d+) (\d+)\n').match(data, at)
        if not head:
            return found
        status, out, err, seconds = (int(x) for x in head.groups()[1:])
        at = head.end()
        if at + out + err > len(data):
            return found
        texts = (data[at:at + out], data[at + out:at + out + err])
        found[head[1].decode()] = (status, *(t.decode(errors='replace') for t in texts), seconds)
        at += out + err


def drive(argv, limit, names):
    with open(os.path.join(HERE, 'drive.sh')) as f:
        script = f.read()
    argv = argv + ['bash', '-c', script, 'drive.sh', str(limit)] + names
    try:
        p = subprocess.run(argv, input=bundle(names), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, timeout=limit * len(names) + 180)
    except subprocess.TimeoutExpired as e:
        return 'no end', parse(e.stdout or b''), (e.stderr or b'').decode(errors='replace')
    return p.returncode, parse(p.stdout), p.stderr.decode(errors='replace')


def host(args, names, sizes):
    argv = ['bwrap', '--ro-bind', args.root, '/', '--proc', '/proc', '--dev', '/dev',
            '--unshare-pid', '--unshare-net', '--unshare-ipc', '--die-with-parent', '--clearenv']
    for d in '/tmp', '/var/tmp', '/dev/shm':
        argv += ['--tmpfs', d]
    for key, value in dict(sizes, PATH=PATH).items():
        argv += ['--setenv', key, str(value)]
    status, found, err = drive(argv, args.limit, names)
    if not found:
        sys.exit(f'Bail out! the host\'s side ended with {status}: {err.strip()[-300:]}')
    return found


def guest(args, names, sizes):
    argv = shlex.split(args.casemate) + ['run', '--image', args.image, '--mem', args.mem]
    for key, value in dict(sizes, PATH=PATH).items():
        argv += ['--env', f'{key}={value}']
    found, why = {}, {}
    while left := [n for n in names if n not in found and n not in why]:
        limit = args.limit * args.factor
        status, new, err = drive(argv + ['--timeout', f'{limit * len(left) + 60}s', '--'],
                                 limit, left)
        found.update(new)
        stuck = [n for n in left if n not in found]
        if stuck:
            why[stuck[0]] = f'casemate run ended with {status}: {err.strip()[-1500:]}'
    return found, why


def difference(want, got):
    lines = []
    if want[0] != got[0]:
        lines.append(f'status {got[0]}, on the host {want[0]}')
    lines += list(difflib.unified_diff(want[1].splitlines(), got[1].splitlines(), 'host',
                                       'guest', lineterm='', n=1))[:40]
    return lines + ['guest\'s stderr: ' + s for s in got[2].splitlines()[-12:]]


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--root', required=True)
    p.add_argument('--image', required=True)
    p.add_argument('--casemate', required=True)
    p.add_argument('--scale', choices=('small', 'full'), default='full')
    p.add_argument('--mem', default='1G')
    p.add_argument('--limit', type=int, default=120, help='seconds for one case on the host')
    p.add_argument('--factor', type=int, default=1, help='times that in the guest')
    p.add_argument('names', nargs='*')
    args = p.parse_args()
    known = sorted(os.path.splitext(n)[0] for n in os.listdir(CASES))
    names = args.names or known
    for n in names:
        if n not in known:
            sys.exit(f'no case "{n}"; there are {" ".join(known)}')
    sizes = SMALL if args.scale == 'small' else {}
    print(f'1..{len(names)}', flush=True)
    want = host(args, names, sizes)
    got, why = guest(args, names, sizes)
    bad = 0
    for i, n in enumerate(names, 1):
        if n not in want:
            lines = ['the host\'s side did not get that far']
        elif want[n][0] == 124:
            lines = ['the host\'s side took too long']
        elif n in why:
            lines = why[n].splitlines()
        elif want[n][:2] != got[n][:2]:
            lines = difference(want[n], got[n])
        else:
            lines = []
        bad += bool(lines)
        print(f'{"not ok" if lines else "ok"} {i} - {n}')
        if n in got and n in want:
            print(f'# {want[n][3]} s on the host, {got[n][3]} s in the guest')
        for text in lines:
            print('# ' + text[:400])
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
