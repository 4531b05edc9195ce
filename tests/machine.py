# SPDX-License-Identifier: Apache-2.0
"""Runs meson's tests of some suites inside the rehearsal machine.

  machine.py --build DIR --machine NAME --suites kvm,e2e,rehearsal --log FILE [TEST...]

The tests are what `meson introspect --tests` lists: the same programs and scripts, at the
same paths, as on a host with /dev/kvm. Their time limits are multiplied, and they are told so
by CASEMATE_TIME_SCALE. In this machine KVM works, so a skip is a failure: tests are told by
CASEMATE_REQUIRE_KVM=1, and tally.py counts it as one. The log has the format of meson's
testlog.json.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import time

import tap

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
REHEARSAL = os.path.join(ROOT, 'tools/rehearsal')
starting = threading.Lock()
LIMIT_SCALE = 5         # on meson's limit of a whole test
MACHINES = 5            # tries of a test whose machine stood still
KEEP = ('CASEMATE_TEST_IMAGE',)


def machine_gone(p):
    """QEMU's emulation of SVM can stop a whole machine (tools/rehearsal-agent.c). That says
    nothing of the test: only what a machine lived to see is a result."""
    return p.returncode == 125 and any(text in p.stderr for text in (
        b'" went away', b'no machine "'))


def vm_stood_still(p):
    """The same fault one level further in: an interrupt that the emulated processor loses is a
    guest's, which then sleeps for ever. It shows where a guest answers nothing: at its start.
    A guest that really does not start fails each of the tries."""
    return p.returncode not in (0, 77) and \
        b'did not come up within 30 s (no RESUMED)' in p.stdout + p.stderr


def run(test, args):
    env = dict(test['env'], CASEMATE_REQUIRE_KVM='1', CASEMATE_TIME_SCALE=args.scale)
    for key in KEEP:
        if key in os.environ:
            env[key] = os.environ[key]
    limit = (test['timeout'] or 30) * LIMIT_SCALE
    argv = [REHEARSAL, 'exec', '--name', args.machine, '-n', '--timeout', str(limit), '--cwd',
            test['workdir'] or os.path.realpath(args.build)]
    for key, value in env.items():
        argv += ['--env', f'{key}={value}']
    for attempt in range(MACHINES):
        began = time.time()
        p = subprocess.run(argv + ['--'] + test['cmd'], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if attempt + 1 == MACHINES or not (machine_gone(p) or vm_stood_still(p)):
            break
        if not machine_gone(p):
            print(f'{test["name"]}: a VM stood still; once more', flush=True)
            continue
        print(f'{test["name"]}: the machine stood still; it is started again', flush=True)
        with starting:
            subprocess.run([REHEARSAL, 'start', '--name', args.machine] + args.start.split(),
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    results = {0: 'OK', 77: 'SKIP', 124: 'TIMEOUT'}
    return {'name': f'{test["suite"][0].split(":")[-1]} / {test["name"]}',
            'stdout': p.stdout.decode(errors='replace'),
            'stderr': p.stderr.decode(errors='replace'),
            'result': results.get(p.returncode, 'FAIL'), 'returncode': p.returncode,
            'starttime': began, 'duration': time.time() - began, 'command': test['cmd'],
            'env': env}


def report(entry):
    found = tap.cases(entry['name'], entry['returncode'], entry['stdout'])
    bad = [f for f in found if f[1] == 'fail']
    word = 'FAIL' if bad else 'SKIP' if all(f[1] == 'skip' for f in found) else 'OK'
    print(f'{entry["name"]:56} {word:6} {entry["duration"]:6.2f}s', flush=True)
    if bad:
        for text in (entry['stdout'], entry['stderr']):
            for line in text.splitlines()[-60:]:
                print('    ' + line)
    sys.stdout.flush()
    return not bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--build')
    p.add_argument('--machine')
    p.add_argument('--start', default='', help='options to start the machine again with')
    p.add_argument('--suites', default='')
    p.add_argument('--scale', default='10', help='factor on the limits inside tests')
    p.add_argument('--log', required=True)
    p.add_argument('--broken', action='store_true', help='record that the machine is not up')
    p.add_argument('names', nargs='*')
    args = p.parse_args()
    if args.broken:
        with open(args.log, 'w') as f:
            json.dump({'name': 'rehearsal / boot', 'result': 'FAIL', 'returncode': 1,
                       'stdout': 'the rehearsal machine did not start'}, f)
        return 1
    text = subprocess.run(['meson', 'introspect', '--tests', args.build], check=True,
                          stdout=subprocess.PIPE).stdout
    suites = args.suites.split(',')
    tests = [t for t in json.loads(text)
             if any(s.split(':')[-1] in suites for s in t['suite'])
             and (not args.names or t['name'] in args.names)]
    good = True
    with open(args.log, 'w') as log, concurrent.futures.ThreadPoolExecutor(2) as pool:
        groups = ([t for t in tests if t['is_parallel']],
                  [[t] for t in tests if not t['is_parallel']])
        for group in [groups[0]] + groups[1]:
            for entry in pool.map(lambda t: run(t, args), group):
                log.write(json.dumps(entry) + '\n')
                log.flush()
                good = report(entry) and good
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
