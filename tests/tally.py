# SPDX-License-Identifier: Apache-2.0
"""Counts the results of all test runs: meson's logs and the rehearsal machine's.

  tally.py LOG...

machine.json and shadow.json are machine.py's, the others are meson's, in the same format: one
JSON object a line; a log that is absent was not wanted. Prints what failed and what was skipped,
why, and the sum as the last line; the exit status is 1 when anything failed or nothing ran.
"""
import json
import os
import sys

import tap


def entries(path):
    try:
        with open(path) as f:
            return [json.loads(line) for line in f if line.strip()]
    except FileNotFoundError:
        return []


def main():
    required = os.environ.get('CASEMATE_REQUIRE_KVM') == '1'
    count = {'pass': 0, 'fail': 0, 'skip': 0}
    remarks = []
    for path in sys.argv[1:]:
        log = os.path.basename(path)
        for e in entries(path):
            status = e.get('returncode', 1)
            if e['result'] in ('TIMEOUT', 'ERROR', 'FAIL', 'INTERRUPT', 'UNEXPECTEDPASS'):
                status = status or 1
            where = {'machine.json': ' (rehearsal machine)', 'asan.json': ' (sanitizers)',
                     'shadow.json': ' (rehearsal machine, shadow paging)'}.get(log, '')
            for name, result, remark in tap.cases(e['name'], status, e.get('stdout') or ''):
                if result == 'skip' and (log in ('machine.json', 'shadow.json') or
                                         log == 'kvm.json' and required):
                    result, remark = 'fail', 'skipped where KVM is required: ' + remark
                if e['result'] == 'TIMEOUT' and result == 'fail':
                    remark = 'timed out ' + remark
                count[result] += 1
                if result != 'pass':
                    remarks.append(f'{result.upper()} {name}{where} {remark}'.rstrip())
    for line in remarks:
        print(line)
    print('{pass} passed, {fail} failed, {skip} skipped'.format(**count))
    return 1 if count['fail'] or not count['pass'] else 0


if __name__ == '__main__':
    sys.exit(main())
