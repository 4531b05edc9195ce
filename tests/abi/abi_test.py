#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/abi.py and tools/abi-trace, on the source as it is and on a recorded strace."""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRACE = os.path.join(ROOT, 'tools/abi-trace')
SAMPLE = os.path.join(ROOT, 'tests/abi/sample.strace')
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, 'tools'))
import abi  # noqa: E402


def load_trace():
    loader = importlib.machinery.SourceFileLoader('abi_trace', TRACE)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('abi_trace', loader))
    loader.exec_module(module)
    return module


def run(*args):
    return subprocess.run([sys.executable, '-B', TRACE, *args], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)


class Table(unittest.TestCase):
    def setUp(self):
        self.calls = {c.name: c for c in abi.load(ROOT)}

    def test_numbers(self):
        numbers = {'read': 0, 'getpid': 39, 'tkill': 200, 'rseq': 334,
                   'pidfd_send_signal': 424, 'fchmodat2': 452, 'lsm_set_self_attr': 460}
        for name, number in numbers.items():
            self.assertEqual(self.calls[name].number, number)

    def test_states(self):
        states = {'read': 'full', 'fcntl': 'partial', 'ptrace': 'none', 'rseq': 'none'}
        for name, state in states.items():
            self.assertEqual(self.calls[name].state, state)
        self.assertEqual(self.calls['read'].where, 'guest-kernel/fs/file.c')
        self.assertIn('kernel-core/process_test', self.calls['kcmp'].tests)
        self.assertNotIn('kernel-core/host', self.calls['kcmp'].tests)

    def test_source_speaks(self):
        """A syscall_partial() makes a call partial, and its constants are looked for."""
        self.assertIn('RENAME_WHITEOUT', self.calls['renameat2'].words)
        self.assertIn('utilization clamping', self.calls['sched_setattr'].notes)

    def test_notes_are_checked(self):
        for text in ('read it', 'read: one\nread: two\n', 'read: a [b'):
            with tempfile.TemporaryDirectory() as d:
                os.mkdir(os.path.join(d, 'tools'))
                with open(os.path.join(d, abi.NOTES), 'w', encoding='utf-8') as f:
                    f.write(text)
                self.assertRaises(abi.Mistake, abi.read_notes, d)


class Trace(unittest.TestCase):
    def test_parse(self):
        with open(SAMPLE, encoding='utf-8') as f:
            calls = list(load_trace().parse(f))
        names = [name for name, _, _ in calls]
        self.assertEqual(names.count('exit_group'), 2)
        self.assertEqual(names.count('ptrace'), 1)      # not the one inside a string
        self.assertEqual(names.count('read'), 1)
        self.assertIn(('openat', 'ENOENT'), [(n, e) for n, _, e in calls])
        self.assertTrue(any(n == 'clone3' and 'CLONE_VFORK' in a for n, a, _ in calls))

    def test_prefixes(self):
        lines = ['[pid   12] getpid() = 12\n', '12 10:00:00.000001 getpid() = 12\n',
                 '12 1700000000.000001 getpid() = 12\n', 'getpid() = 12\n', 'garbage\n', '\n']
        self.assertEqual(len(list(load_trace().parse(lines))), 4)

    def test_report(self):
        r = run('--file', SAMPLE)
        self.assertEqual((r.returncode, r.stderr), (1, ''))
        lines = [line.strip() for line in r.stdout.splitlines()]
        for want in ('semget: 2 (here: 1 × ENOSPC)', 'ptrace: 1',
                     'number 511: 1 (here: 1 × ENOSYS)',
                     'openat O_DIRECT: 1', 'unshare CLONE_NEWNS: 1 (here: 1 × EPERM)'):
            self.assertIn(want, lines)
        self.assertTrue(any(line.startswith('rseq: 1: ') for line in lines))
        self.assertNotIn('read: 1', lines)
        self.assertIn('read: 1', [x.strip() for x in run('--all', '--file', SAMPLE)
                                  .stdout.splitlines()])

    def test_nothing_missing(self):
        with tempfile.NamedTemporaryFile('w', suffix='.strace') as f:
            f.write('getpid() = 12\nrseq(0x7f0a, 0x20, 0, 0x53053053) = 0\n')
            f.flush()
            self.assertEqual(run('--file', f.name).returncode, 0)

    def test_refusals(self):
        self.assertEqual(run().returncode, 2)
        self.assertEqual(run('--file', os.path.join(ROOT, 'no-such-file')).returncode, 2)
        with tempfile.NamedTemporaryFile('w') as f:
            f.write('no calls here\n')
            f.flush()
            r = run('--file', f.name)
            self.assertEqual(r.returncode, 2)
            self.assertIn('strace', r.stderr)


if __name__ == '__main__':
    unittest.main()
