#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An installation by DESTDIR is complete, and a program is built and runs with nothing but it
and pkg-config: api/example.c. TAP; BUILD and SOURCE are the directories."""
import glob
import os
import re
import shutil
import subprocess
import sys

BUILD, SOURCE = os.environ['BUILD'], os.environ['SOURCE']
ROOT = os.path.join(BUILD, 'tmp/install')
sys.path.insert(0, os.path.join(SOURCE, 'tests/daemon'))
os.environ['CASEMATE_BUILD'] = BUILD


def run(*argv, **more):
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, check=False, **more)
    assert p.returncode == 0, f'{argv}: {p.returncode} {p.stdout.decode()}'
    return p.stdout.decode()


def installed(pattern):
    found = glob.glob(os.path.join(ROOT, '**', pattern), recursive=True)
    assert found, f'{pattern} is not installed'
    return found[0]


def case_install():
    shutil.rmtree(ROOT, ignore_errors=True)
    run('meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', '--destdir', ROOT)
    for name in ('bin/casemate', 'bin/casemated', 'libexec/casemate/casemate-vmm',
                 'libexec/casemate/casemate-kernel', 'libexec/casemate/casemate-initd',
                 'include/casemate.h', 'casemate.pc', 'libcasemate.so', 'man1/casemate.1',
                 'man3/libcasemate.3', 'man8/casemated.8', 'casemated.service',
                 'casemated.socket'):
        installed(name)


def pkg_config(*options):
    # The compiler and its libraries are the host's; only ours come from the tree.
    env = dict(os.environ, PKG_CONFIG_SYSROOT_DIR=ROOT,
               PKG_CONFIG_PATH=os.path.dirname(installed('casemate.pc')))
    return run('pkg-config', *options, 'casemate', env=env).split()


def case_pkg_config():
    flags = pkg_config('--cflags', '--libs')
    assert '-lcasemate' in flags, flags
    # Nothing but the one header is seen by users.
    headers = glob.glob(os.path.join(ROOT, '**/*.h'), recursive=True)
    assert [os.path.basename(h) for h in headers] == ['casemate.h'], headers
    assert os.path.realpath(installed('libcasemate.so')) == \
        os.path.realpath(installed('libcasemate.so.0')), 'names of the library'


def case_example():
    from client import Daemon       # noqa: only here, with BUILD set
    program = os.path.join(ROOT, 'example')
    run('cc', '-Wall', '-Wextra', '-Werror', '-std=c99', '-o', program,
        os.path.join(SOURCE, 'api/example.c'), *pkg_config('--cflags', '--libs'))
    d = Daemon()
    try:
        env = dict(os.environ, CASEMATE_SOCKET=d.path,
                   LD_LIBRARY_PATH=os.path.dirname(installed('libcasemate.so')))
        assert run(program, 'echo', 'installed', env=env) == 'installed\n'
    finally:
        d.stop()


def case_symbols():
    """The library gives out the header's functions and nothing else."""
    with open(os.path.join(SOURCE, 'api/casemate.h'), encoding='utf-8') as f:
        text = f.read()
    wanted = set(re.findall(r'^[a-z].*?\b(casemate_[a-z_]+)\(', text, re.M))
    out = run('nm', '-D', '--defined-only', installed('libcasemate.so'))
    given = {line.split()[-1] for line in out.splitlines()}
    assert given == wanted, given ^ wanted


def main():
    cases = {k[5:]: v for k, v in globals().items() if k.startswith('case_')}
    if not shutil.which('meson') or not shutil.which('pkg-config'):
        print('1..0 # SKIP meson or pkg-config is not installed')
        return 77
    print(f'1..{len(cases)}')
    bad = 0
    for n, (name, case) in enumerate(cases.items(), 1):
        try:
            case()
            print(f'ok {n} - {name}')
        except AssertionError as e:
            bad = 1
            print(f'not ok {n} - {name}\n# ' + str(e).replace('\n', '\n# '))
    shutil.rmtree(ROOT, ignore_errors=True)
    return bad


if __name__ == '__main__':
    sys.exit(main())
