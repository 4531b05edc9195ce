#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the sessions of docs/PROTOCOL.md as they stand there: protocol_test.py FILE. Lines "> "
are sent, others must come; … stands for anything. Those of `session guest` have initd, on
the host, for a guest."""
import os
import re
import socket
import sys

from client import LIMIT, Daemon, Skip, cases_run


def sessions(path):
    with open(path) as f:
        return re.findall(r'^```session( guest)?\n(.*?)^```$', f.read(), re.M | re.S)


def pattern(line):
    return re.compile('.*'.join(re.escape(part) for part in line.split('…')) + r'\Z')


def run(text, guest):
    d = Daemon(guest='initd' if guest else None)
    try:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(LIMIT)
        s.connect(d.path)
        stream = s.makefile('rwb', buffering=0)
        for want in text.splitlines():
            if want.startswith('> '):
                # "abc" after "#3" is a chunk without a newline of its own.
                line = want[2:]
                stream.write(line.encode() + (b'' if line == 'abc' else b'\n'))
                continue
            got = b''
            while not got.endswith(b'\n'):
                byte = stream.read(1)
                if not byte:
                    break
                got += byte
            got = got.decode().rstrip('\n')
            assert pattern(want).match(got), f'"{got}" came, not "{want}"'
    finally:
        d.stop()


def main():
    found = {f'session {n}': x for n, x in enumerate(sessions(sys.argv[1]), 1)}

    def one(name):
        guest, text = found[name]
        if guest and os.geteuid():
            raise Skip('a guest on the host takes root')
        run(text, guest)
    return cases_run(list(found), one) if found else 1


if __name__ == '__main__':
    sys.exit(main())
