#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the logs of tools/conformance.sh.

    report.py lost LOG                 the test at which a log breaks off, if it does
    report.py table DIRECTORY MODULE...
    report.py busybox DIRECTORY        busybox.log of both sides

A log is what `python3 -m test -v MODULE` writes, once or, after a hang, several times. The
verbose format is meant for people: a test's identity ("name (module.Class.name)"), perhaps its
first doc line, " ... " and its result, with whatever the test itself prints in between. So a
result belongs to the identity before it, wherever in a line it stands. The summaries at the end
("FAIL: name (module.Class.name)") name failures again, among them those of subtests, and
have the last word. Reading a log that is still being written is fine.
"""
import os
import re
import sys

# At a line's beginning as a rule, but what a test has printed may be in front of it.
IDENTITY = re.compile(r'(?:^|\s)(test\w*) \((test\.[\w.]+)\)(?: [\[(].*[\])])?(?: \.\.\.|$)')
RESULT = re.compile(r'(?:^|\.\.\. |[^\w])'
                    r'(ok|FAIL|ERROR|expected failure|unexpected success|skipped [\'"].*)$')
SUMMARY = re.compile(r'^(FAIL|ERROR): ([A-Za-z_]\w*) \(([\w.]+)\)')
PASSED = ('ok', 'expected failure')


def name_of(name, where):
    return where if where.endswith('.' + name) else f'{where}.{name}'


def results(path):
    """{test: result} of one log; the result of a test that was started only is 'lost'."""
    found, test = {}, None
    with open(path, encoding='utf-8', errors='replace') as lines:
        for line in lines:
            line = line.rstrip('\r\n')
            if match := SUMMARY.match(line):
                found[name_of(match[2], match[3])] = match[1]
                test = None
                continue
            if line.startswith('Ran ') or line.startswith('conformance: exit'):
                test = None
            if match := IDENTITY.search(line):
                test = name_of(match[1], match[2])
                found.setdefault(test, 'lost')
            if test and (match := RESULT.search(line)):
                # A subtest's failure comes before the line of the test that has passed on.
                if found[test] not in ('FAIL', 'ERROR'):
                    found[test] = match[1].split(' ')[0] if match[1].startswith('skip') \
                        else match[1]
    return found


def lost(path):
    """The last test that was started when a log's last run broke off."""
    test, ended = None, True
    with open(path, encoding='utf-8', errors='replace') as lines:
        for line in lines:
            line = line.rstrip('\r\n')
            if match := IDENTITY.search(line):
                test, ended = name_of(match[1], match[2]), False
            elif line.startswith('Ran '):
                test, ended = None, True
    if test and not ended:
        print('*.' + '.'.join(test.split('.')[-2:]))


def table(directory, modules):
    total_good = total = 0
    missing = []
    print('| module | pass on the host | of them in the guest |')
    print('|---|---:|---:|')
    for module in modules:
        paths = [os.path.join(directory, side, module + '.log') for side in ('host', 'guest')]
        if not all(map(os.path.exists, paths)):
            print(f'| {module} | not run | |')
            continue
        host, guest = map(results, paths)
        wanted = [test for test, result in host.items() if result in PASSED]
        bad = [(test, guest.get(test, 'not run')) for test in wanted
               if guest.get(test) not in PASSED]
        print(f'| {module} | {len(wanted)} | {len(wanted) - len(bad)} |')
        missing += [(test, result) for test, result in bad if result != 'not run']
        absent = sum(result == 'not run' for _, result in bad)
        if absent:
            missing.append((f'{absent} tests of {module}, which broke off', 'not run'))
        total += len(wanted)
        total_good += len(wanted) - len(bad)
    if missing:
        print()
        for test, result in missing:
            print(f'- {result}: {test}')
    print(f'\nCPython: {total_good} of {total}, {100 * total_good / max(total, 1):.1f} %')


def busybox_results(path):
    """{(part, test, how many-th of that name): passed} of a log of busybox.sh. Names of tests
    are not unique, their order is always the same."""
    found, seen, part = {}, {}, None
    with open(path, encoding='utf-8', errors='replace') as lines:
        for line in lines:
            line = line.rstrip('\r\n')
            if match := re.match(r'busybox: part (\w+)$', line):
                part = match[1]
            elif match := re.match(r'(PASS|FAIL): (.*)$', line):
                key = part, match[2]
            elif match := re.match(r'(ash-[\w.-]+/[\w.-]+):.* (ok|fail)$', line):
                key = part, match[1]
            if part and match and match.lastindex == 2:
                seen[key] = seen.get(key, 0) + 1
                found[key + (seen[key],)] = 'PASS' in match.groups() or 'ok' in match.groups()
    return found


def busybox(directory):
    host, guest = (busybox_results(os.path.join(directory, side, 'busybox.log'))
                   for side in ('host', 'guest'))
    print('| part | pass on the host | of them in the guest |')
    print('|---|---:|---:|')
    wanted = [key for key, passed in host.items() if passed]
    bad = [key for key in wanted if not guest.get(key)]
    for part in dict.fromkeys(key[0] for key in host):
        all_of = sum(key[0] == part for key in wanted)
        print(f'| {part} | {all_of} | {all_of - sum(key[0] == part for key in bad)} |')
    print()
    for key in bad:
        print(f'- {"FAIL" if key in guest else "not run"}: {key[0]}: {key[1]} ({key[2]})')
    for key, passed in host.items():
        if not passed and guest.get(key):
            print(f'- fails on the host only: {key[0]}: {key[1]} ({key[2]})')
    good = len(wanted) - len(bad)
    print(f'\nBusybox: {good} of {len(wanted)}, {100 * good / max(len(wanted), 1):.1f} %')


def main():
    if len(sys.argv) == 3 and sys.argv[1] == 'lost':
        lost(sys.argv[2])
    elif len(sys.argv) > 3 and sys.argv[1] == 'table':
        table(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) == 3 and sys.argv[1] == 'busybox':
        busybox(sys.argv[2])
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()
