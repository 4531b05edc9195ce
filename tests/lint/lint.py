#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks on the source text: lint.py CHECK [ROOT].

  layers   who may include whom (docs/ARCHITECTURE.md)
  cycles   no header includes itself by way of others
  spdx     each source file names its licence first
  words    no marks for work left undone, no names of one machine or one network
  style    tabs, line length, blanks at ends of lines, a newline at the end of the file
  length   files are short enough to be read
  format   what clang-format would change: a report, not a test
"""
import os
import re
import subprocess
import sys

C_KINDS = ('.c', '.h', '.S')
SOURCE_KINDS = C_KINDS + ('.py', '.sh', '.lds', '.ld', '.build')
LINE_MAX = 100          # we aim at 90; beyond this it fails
FILE_MAX = 1000

# Folder: the folders it may include from, besides itself and include/abi. None: any.
LAYERS = {
    'include': (), 'base': (), 'guest-kernel': (), 'initd': (),
    'snapshot': ('base',), 'net': ('base',),
    'vmm': ('base', 'snapshot', 'net'),
    'pool': ('base', 'snapshot'), 'api': ('base', 'pool'),
    'tools': None, 'tests': None, 'bench': None,
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)
# Built from pieces, so that this file passes its own check.
UNDONE = re.compile(r'\b(' + '|'.join(['TO' + 'DO', 'FIX' + 'ME', 'X' * 3]) + r')\b')
PLACES = re.compile('|'.join([
    '/wo' + r'rk/\w', r'/ho' + r'me/[a-z]', '/Us' + 'ers/', r'/ro' + r'ot/\.?\w',
    r'\b(deb|security|snapshot)\.deb' + 'ian' + r'\.org', r'\bpy' + r'pi\.org',
    r'\b\w+\.int' + r'ernal\b', r'\b\w+\.co' + r'rp\b']))


def files(root):
    """What belongs to the project: git's list, or all files where there is no git."""
    try:
        out = subprocess.run(['git', '-c', 'safe.directory=*', '-C', root, 'ls-files', '-z',
                              '--cached', '--others', '--exclude-standard'], check=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        names = out.decode().split('\0')
    except (OSError, subprocess.CalledProcessError):
        names = []
        for top, dirs, found in os.walk(root):
            dirs[:] = [d for d in dirs if d[0] != '.' and not d.startswith('build')]
            names += [os.path.relpath(os.path.join(top, f), root) for f in found]
    return sorted({n for n in names if n and os.path.isfile(os.path.join(root, n))})


def text(root, name):
    with open(os.path.join(root, name), 'rb') as f:
        data = f.read()
    return None if b'\0' in data[:4096] else data.decode(errors='replace')


def is_source(root, name):
    if name.endswith(SOURCE_KINDS):
        return True
    if os.path.splitext(name)[1]:
        return False
    with open(os.path.join(root, name), 'rb') as f:
        return f.read(2) == b'#!'


def resolve(root, name, include, angle):
    """The project's file that an #include means; None for a system header."""
    top = name.split('/')[0]
    bases = ('', 'include', os.path.dirname(name), top, os.path.join(top, 'include'))
    for base in bases[1:2] if angle else bases:
        path = os.path.normpath(os.path.join(base, include))
        if not path.startswith('..') and os.path.isfile(os.path.join(root, path)):
            return path
    return None


def includes(root, name):
    for m in INCLUDE.finditer(text(root, name) or ''):
        target = resolve(root, name, m[2], m[1] == '<')
        if target:
            yield m[2], target


def check_layers(root, names):
    for name in names:
        if not name.endswith(C_KINDS):
            continue
        top = name.split('/')[0]
        if top not in LAYERS:
            yield f'{name}: C source outside the known folders'
            continue
        allowed = LAYERS[top]
        for include, target in includes(root, name):
            other = target.split('/')[0]
            if allowed is None or other in (top, 'include') or other in allowed:
                continue
            yield f'{name}: {top} may not include from {other} ("{include}")'


def check_cycles(root, names):
    graph = {n: [t for _, t in includes(root, n)] for n in names if n.endswith(C_KINDS)}
    state = {}

    def visit(name, trail):
        state[name] = 'open'
        for target in graph.get(name, ()):
            if state.get(target) == 'open':
                yield 'include cycle: ' + ' -> '.join(
                    trail[trail.index(target):] + [target])
            elif target not in state:
                yield from visit(target, trail + [target])
        state[name] = 'done'

    for name in graph:
        if name not in state:
            yield from visit(name, [name])


def check_spdx(root, names):
    for name in names:
        if not is_source(root, name):
            continue
        lines = (text(root, name) or '').splitlines()[:2]
        if lines and lines[0].startswith('#!'):
            lines = lines[1:]
        if not lines or 'SPDX-License-Identifier: Apache-2.0' not in lines[0]:
            yield f'{name}: no SPDX line at its head'


def check_words(root, names):
    for name in names:
        for number, line in enumerate((text(root, name) or '').splitlines(), 1):
            for what, pattern in (('work left undone', UNDONE), ('a place', PLACES)):
                m = pattern.search(line)
                if m and name != 'LICENSE':
                    yield f'{name}:{number}: {what}: {m[0]}'


def check_style(root, names):
    for name in names:
        if not is_source(root, name):
            continue
        body = text(root, name) or ''
        if body and not body.endswith('\n'):
            yield f'{name}: no newline at the end'
        for number, line in enumerate(body.splitlines(), 1):
            where = f'{name}:{number}'
            if len(line.expandtabs(8)) > LINE_MAX:
                yield f'{where}: longer than {LINE_MAX} columns'
            if line != line.rstrip():
                yield f'{where}: blanks at the end'
            if re.match(r'(<{7}|>{7}) ', line):
                yield f'{where}: left by a merge'
            if name.endswith(C_KINDS) and re.match(r' {8}', line):
                yield f'{where}: indented with blanks, not tabs'


def check_length(root, names):
    for name in names:
        if is_source(root, name):
            count = (text(root, name) or '').count('\n')
            if count > FILE_MAX:
                yield f'{name}: {count} lines; at most {FILE_MAX}'


def check_format(root, names):
    for name in names:
        if not name.endswith(('.c', '.h')):
            continue
        path = os.path.join(root, name)
        want = subprocess.run(['clang-format', path], check=True, cwd=root,
                              stdout=subprocess.PIPE).stdout.decode(errors='replace')
        have = text(root, name) or ''
        if want != have:
            a, b = want.splitlines(), have.splitlines()
            changed = sum(x != y for x, y in zip(a, b)) + abs(len(a) - len(b))
            yield f'{name}: up to {changed} lines differ'


def main():
    if len(sys.argv) < 2 or 'check_' + sys.argv[1] not in globals():
        sys.exit(__doc__)
    here = os.path.dirname(os.path.realpath(__file__))
    root = os.path.realpath(sys.argv[2] if len(sys.argv) > 2 else here + '/../..')
    bad = list(globals()['check_' + sys.argv[1]](root, files(root)))
    for line in bad:
        print(line)
    if sys.argv[1] == 'format':
        return 0
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
