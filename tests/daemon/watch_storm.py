#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""watch_storm.py DIRECTORY SECONDS SEED PROCESSES: processes that make, rename, exchange, fill
and remove trees at random there, with links that lead outside."""
import ctypes
import os
import random
import shutil
import sys
import time

NAMES = ['a', 'b', 'c', 'two words', 'n\n"\udc80']
EXCHANGE, AT_FDCWD = 2, -100
libc = ctypes.CDLL(None)


def exchange(a, b):
    libc.renameat2(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), EXCHANGE)


def somewhere(rng, top):
    return os.path.join(top, *(rng.choice(NAMES) for _ in range(rng.randint(1, 4))))


def fill(rng, path, depth=3):
    os.mkdir(path)
    for name in rng.sample(NAMES, 3):
        if depth and rng.random() < .5:
            fill(rng, os.path.join(path, name), depth - 1)
        else:
            open(os.path.join(path, name), 'w').close()


def step(rng, top, outside):
    what, path = rng.random(), somewhere(rng, top)
    if what < .2:
        os.mkdir(path)
    elif what < .35:
        fill(rng, path)
    elif what < .45:
        with open(path, 'w') as f:
            f.write('x')
    elif what < .7:
        os.rename(path, somewhere(rng, top))
    elif what < .75:
        exchange(path, somewhere(rng, top))
    elif what < .8:
        os.rename(path, os.path.join(outside, str(rng.random())))
    elif what < .85:
        os.rename(os.path.join(outside, rng.choice(os.listdir(outside))), path)
    elif what < .88:
        os.symlink(rng.choice([outside, '..', 'a']), path)
    elif what < .92:
        os.remove(path)
    elif what < .95:
        os.rmdir(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def storm(rng, top, outside, end):
    while time.monotonic() < end:
        try:
            step(rng, top, outside)
        except (OSError, IndexError):
            pass


def main(top, seconds, seed, processes):
    outside = top + '-outside'
    os.makedirs(outside, exist_ok=True)
    end = time.monotonic() + float(seconds)
    for i in range(int(processes)):
        if os.fork() == 0:
            storm(random.Random(int(seed) * 100 + i), top, outside, end)
            os._exit(0)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == '__main__':
    main(*sys.argv[1:])
