# SPDX-License-Identifier: Apache-2.0
"""One test's result from its exit status and its output.

A test that prints a TAP plan ("1..N") or CUnit's list counts case by case; any other counts
as one, by its exit status: 0 passed, 77 skipped, else failed.
"""
import re

LINE = re.compile(r'(not )?ok\b\s*\d*\s*(?:-\s*)?([^#]*)(?:#\s*(skip|todo)\b\s*(.*))?$', re.I)


CUNIT = re.compile(r'^\s*Test: (.*?) \.\.\.\s*(passed|FAILED)', re.M)


def cases(name, status, output):
    """A list of (case name, 'pass' | 'fail' | 'skip', remark)."""
    listed = CUNIT.findall(output) if 'Run Summary:' in output else []
    if listed and status != 77:
        found = [(f'{name}: {case}', 'pass' if word == 'passed' else 'fail', '')
                 for case, word in listed]
        if status and not any(f[1] == 'fail' for f in found):
            found.append((name, 'fail', f'status {status}'))
        return found
    plan = re.search(r'^1\.\.(\d+)(?:\s*#\s*skip\b\s*(.*))?\s*$', output, re.M | re.I)
    if not plan:
        if status == 0:
            return [(name, 'pass', '')]
        last = (output.strip().splitlines() or [''])[-1]
        if status == 77:
            return [(name, 'skip', last)]
        return [(name, 'fail', f'status {status}: {last}')]
    if plan[1] == '0':
        return [(name, 'skip', plan[2] or '')]
    found = []
    for line in output.splitlines():
        m = LINE.match(line)
        if not m:
            continue
        label = f'{name}: {m[2].strip()}'
        if m[3] and m[3].lower() == 'skip':
            found.append((label, 'skip', m[4] or ''))
        else:
            found.append((label, 'fail' if m[1] else 'pass', ''))
    missing = int(plan[1]) - len(found)
    if missing > 0:
        found.append((name, 'fail', f'{missing} planned cases did not run'))
    if status not in (0, 77) and not any(f[1] == 'fail' for f in found):
        found.append((name, 'fail', f'status {status}'))
    return found
