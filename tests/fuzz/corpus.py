#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpora of frame_fuzz, virtqueue_fuzz, elf_fuzz and boundary_fuzz: corpus.py
DIRECTORY."""
import os
import struct
import sys

BASE = 0x100000


def frame(kind, payload=b'', ident=0, flags=0):
    return struct.pack('<IHHII', len(payload), kind, flags, ident, 0) + payload


def frames():
    execute = struct.pack('<IIIIHHI', 2, 1, 0, 0, 0, 0, 0) + b'sh\0-c\0A=b\0/\0'
    up = frame(1, struct.pack('<II', 1, 0)) + frame(2, struct.pack('<QQ', 1, 2))
    up += frame(3, struct.pack('<I', 2), 1) + frame(5, b'out', 1) + frame(6, b'', 1)
    up += frame(64, struct.pack('<II', 34, 5), 1) + frame(8, b'log')
    up += frame(7, struct.pack('<IIQQQ', 0, 0, 1, 2, 3), 1) + frame(10, b'r', 0, 1)
    down = frame(33, execute, 1, 2) + frame(34, b'in', 1) + frame(34, b'', 1)
    down += frame(35, struct.pack('<I', 2), 1) + frame(36, b'\1\0\2\0', 1)
    down += frame(64, struct.pack('<II', 5, 77), 1) + frame(38) + frame(37)
    client = frame(128, bytes(64)) + frame(130, b'text') + frame(131, b'log')
    client += frame(5, b'x' * 300, 1) + frame(129, struct.pack('<II', 1, 1) + b'why')
    yield 'guest', b'\x04' + up
    yield 'to-guest', b'\x09' + frame(32, bytes(8)) + down
    yield 'client', b'\x1e' + down
    yield 'to-client', b'\x43' + client
    yield 'long', b'\x00' + frame(5, b'y' * 5000, 1)
    yield 'bad-length', b'\x00' + struct.pack('<IHHII', 0x7fffffff, 5, 0, 1, 0)


def ring(descs, avail, size=8):
    """Settings, then memory: descriptors at 0, available at 0x400, used at 0x600."""
    settings = struct.pack('<QQQQ', size.bit_length() - 1, 0, 0x400, 0x600)
    memory = bytearray(0x1000)
    for i, d in enumerate(descs):
        struct.pack_into('<QIHH', memory, 16 * i, *d)
    struct.pack_into('<HH', memory, 0x400, 0, len(avail))
    for i, index in enumerate(avail):
        struct.pack_into('<H', memory, 0x404 + 2 * (i % size), index)
    body = frame(1, struct.pack('<II', 1, 0)) + frame(5, b'out', 1)
    memory[0x800:0x800 + len(body)] = body
    return settings + bytes(memory)


def rings():
    one = (BASE + 0x800, 24, 0, 0)
    write = (BASE + 0x900, 64, 2, 0)
    yield 'readable', ring([one], [0])
    yield 'writable', ring([write], [0])
    yield 'chain', ring([(BASE + 0x800, 8, 1, 1), (BASE + 0x808, 16, 1, 2), write], [0])
    yield 'several', ring([one, one, write], [0, 1, 2, 0])
    yield 'loop', ring([(BASE + 0x800, 8, 1, 0)], [0])
    yield 'backwards', ring([(BASE + 0x900, 8, 3, 1), one], [0])
    yield 'indirect', ring([(BASE + 0x800, 32, 4, 0)], [0])
    yield 'outside', ring([(1 << 40, 8, 0, 0)], [0])
    yield 'large', ring([(BASE, 0xfffff, 1, 1), (BASE, 0xfffff, 0, 0)], [0])
    yield 'empty-buffer', ring([(BASE + 0x800, 0, 0, 0), (BASE + 0x800, 0, 2, 0)], [0, 1])
    yield 'index', ring([one], [0xffff])
    yield 'ahead', ring([one], [0] * 9)


def elf(segments, note=None, kind=2, machine=62):
    va = 0x7fffc0000000
    if note is None:
        note = struct.pack('<IIQQQQQQQQQ', 1, 0, va, va + 0x2000, va + 0x1000, 0x37, va + 0x1100,
                           15, va + 0x1200, 0x67, va)
    body = struct.pack('<III', 9, len(note), 1) + b'Casemate\0\0\0\0' + note
    count = len(segments) + 1
    at = 64 + 56 * count
    out = b'\x7fELF\2\1\1' + bytes(9)
    out += struct.pack('<HHIQQQIHHHHHH', kind, machine, 1, va, 64, 0, 0, 64, 56, count, 64, 0, 0)
    out += struct.pack('<IIQQQQQQ', 4, 4, at, 0, 0, len(body), len(body), 4)
    for flags, offset, address, file_size, size in segments:
        out += struct.pack('<IIQQQQQQ', 1, flags, offset, va + address, 0, file_size, size, 4096)
    return out + body + bytes(300)


def elves():
    good = [(5, 0, 0, 64, 64), (6, 0, 0x1000, 64, 0x1000)]
    yield 'good', elf(good)
    yield 'order', elf(good[::-1])
    yield 'beyond', elf([(5, 1 << 40, 0, 64, 64)] + good[1:])
    yield 'huge', elf([(5, 0, 0, 64, 1 << 63)] + good[1:])
    yield 'note', elf(good, bytes(80))
    yield 'short-note', elf(good, bytes(8))
    yield 'machine', elf(good, machine=3)


def boundary(engine, fds, kind, flags=0, ident=0, of=0, memory=0, count=0, pid=0, error=0,
             status=0, text=b''):
    return bytes([engine, fds]) + struct.pack('<IIQQQIIii200s', kind, flags, ident, of, memory,
                                              count, pid, error, status, text)


def boundaries():
    yield 'start', boundary(0, 0, 1, text=b'signal 9 (Killed)')
    yield 'ready', boundary(1, 0, 2)
    yield 'spawn', boundary(1, 2, 3, flags=1, ident=1, memory=1 << 28)
    yield 'spawn-held', boundary(1, 4, 3, flags=3, ident=1, memory=1 << 28, count=2)
    yield 'child', boundary(1, 0, 4, ident=2, of=1, memory=1 << 28, pid=4711)
    yield 'spawned', boundary(0, 0, 5, ident=1, pid=4711)
    yield 'spawned-not', boundary(0, 0, 5, ident=1, error=24, text=b'too many open files')
    yield 'kill', boundary(1, 0, 6, ident=1)
    yield 'exited', boundary(0, 0, 7, ident=1, status=9)
    yield 'stop', boundary(0, 0, 8)


def main():
    for name, seeds in (('frame', frames()), ('virtqueue', rings()), ('elf', elves()),
                        ('boundary', boundaries())):
        directory = os.path.join(sys.argv[1], name)
        os.makedirs(directory, exist_ok=True)
        for seed, data in seeds:
            with open(os.path.join(directory, seed), 'wb') as f:
                f.write(data)


main()
