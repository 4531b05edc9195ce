#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whether manual pages, --help and the options that are read are the same: none may drift.
TAP; BUILD and SOURCE are the directories."""
import os
import re
import shutil
import subprocess
import sys

BUILD, SOURCE = os.environ['BUILD'], os.environ['SOURCE']
CASEMATE, CASEMATED = os.path.join(BUILD, 'casemate'), os.path.join(BUILD, 'casemated')
# Verbs whose options getopt reads; the others' --help is made of the very table.
TABLES = {
    'run': 'tools/casemate/run_args.c',
    'image': 'tools/casemate/image.c',
    'casemated': 'tools/casemated/main.c',
    'snapshot': 'tools/casemate/snapshot.c',
}


def said(*argv, status=0):
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE)
    assert p.returncode == status, f'{argv}: {p.returncode} {p.stderr}'
    return (p.stdout if status == 0 else p.stderr).decode()


def helped(text):
    """The options that a --help defines: at the beginning of indented lines."""
    found = set()
    for line in text.splitlines():
        if re.match(r' {2}-', line):
            found |= set(re.findall(r'(?<![\w-])--?[a-z][a-z-]*',
                                    re.split(r' {2,}', line.strip())[0]))
    return found - {'--help'}


def page(name):
    with open(os.path.join(SOURCE, 'dist', name), encoding='utf-8') as f:
        return f.read()


def defined(text):
    """The options that a part of a page defines: in the line behind .TP or .TQ."""
    found = set()
    for line in re.findall(r'^\.T[PQ]\n(.*)$', text, re.M):
        found |= set(re.findall(r'(?<![\w-])--?[a-z][a-z-]*', line.replace('\\-', '-')))
    return found - {'--help'}


def sections(text):
    """The parts of VERBS, by verb."""
    verbs = text.split('\n.SH VERBS\n')[1].split('\n.SH ')[0]
    parts = re.split(r'^\.SS (.*)$', verbs, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def verbs():
    return re.findall(r'^ {2}(\S+)', said(CASEMATE, '--help'), re.M)


def same(what, a, b):
    assert a == b, f'{what}: only in the first: {sorted(a - b)}, in the second: {sorted(b - a)}'


def case_verbs():
    same('casemate --help and the page', set(verbs()), set(sections(page('casemate.1'))))


def case_options():
    parts = sections(page('casemate.1'))
    for verb in verbs():
        text = said(CASEMATE, verb, '--help')
        assert said(CASEMATE, 'help', verb) == text == said(CASEMATE, verb, '-h'), verb
        assert text.startswith('usage: casemate ' + verb), text
        same(f'{verb} --help and the page', helped(text), defined(parts[verb]))


def case_options_of_casemated():
    same('casemated --help and the page', helped(said(CASEMATED, '--help')),
         defined(page('casemated.8').split('\n.SH OPTIONS\n')[1].split('\n.SH ')[0]))


def case_options_that_are_read():
    for verb, name in TABLES.items():
        with open(os.path.join(SOURCE, name), encoding='utf-8') as f:
            table = set(re.findall(r'\{\s*"([a-z-]+)",\s*(?:no|required)_argument', f.read()))
        assert len(table) >= 3, name
        text = said(CASEMATED, '--help') if verb == 'casemated' else \
            said(CASEMATE, verb, '--help')
        wanted = {o[2:] for o in helped(text) if o[:2] == '--'} | {'help'}
        if verb == 'snapshot':      # of files; those of a VM come from another table
            wanted &= table
        # -o has a long form of which nothing is said.
        same(f'{name} and --help', table - {'output'}, wanted)


def case_bad_options():
    """Each verb says where its options are told, in one line."""
    for verb in verbs():
        argv = [verb, 'build'] if verb == 'image' else [verb]
        text = said(CASEMATE, *argv, '--no-such', status=125)
        assert text.count('\n') == 1 and '--no-such' in text and \
            f'see casemate {verb} --help' in text, text
    text = said(CASEMATE, 'exce', status=125)
    assert 'did you mean exec?' in text, text
    assert 'did you mean' not in said(CASEMATE, 'zzzzz', status=125)
    assert 'did you mean' not in said(CASEMATE, 'x' * 5000, status=125)


def case_statuses_are_told():
    text = page('casemate.1').split('\n.SH EXIT STATUS\n')[1]
    for status in '124', '125', '126', '127', '128+N':
        assert status in text, status


def example(text):
    """The program in the library's page, as C."""
    text = text.split('\n.SH EXAMPLE\n')[1].split('.nf\n')[1].split('\n.fi')[0]
    return text.replace('\\&', '').replace('\\-', '-').replace('\\e', '\\')


def case_library():
    with open(os.path.join(SOURCE, 'api/casemate.h'), encoding='utf-8') as f:
        functions = set(re.findall(r'^[a-z].*?\b(casemate_[a-z_]+)\(', f.read(), re.M))
    text = page('libcasemate.3')
    synopsis, rest = text.split('\n.SH DESCRIPTION\n')
    same('casemate.h and the synopsis', functions,
         set(re.findall(r'\b(casemate_[a-z_]+)\(', synopsis)))
    same('casemate.h and the page', functions, set(re.findall(r'\b(casemate_[a-z_]+) ?"?\(',
         rest.split('\n.SH EXAMPLE\n')[0])))
    with open(os.path.join(SOURCE, 'api/example.c'), encoding='utf-8') as f:
        code = f.read()
    assert example(text).strip() == code[code.index('#include'):].strip(), 'the example'


def case_pages_are_good_roff():
    if not shutil.which('groff'):
        return 'groff is not installed'
    for name in 'casemate.1', 'libcasemate.3', 'casemated.8':
        p = subprocess.run(['groff', '-man', '-Tutf8', '-ww', '-z',
                            os.path.join(SOURCE, 'dist', name)], stderr=subprocess.PIPE)
        assert p.returncode == 0 and not p.stderr, p.stderr
    return None


def main():
    cases = {k[5:]: v for k, v in globals().items() if k.startswith('case_')}
    print(f'1..{len(cases)}')
    bad = 0
    for n, (name, case) in enumerate(cases.items(), 1):
        try:
            skip = case()
            print(f'ok {n} - {name}' + (f' # SKIP {skip}' if skip else ''))
        except (AssertionError, KeyError, IndexError) as e:
            bad = 1
            print(f'not ok {n} - {name}\n# {e!r}')
    return bad


if __name__ == '__main__':
    sys.exit(main())
