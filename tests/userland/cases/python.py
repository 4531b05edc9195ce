# SPDX-License-Identifier: Apache-2.0
"""The interpreter itself: compression, hashes, locale, random, recursion, gc, faulthandler."""
import bz2
import datetime
import decimal
import gc
import gzip
import hashlib
import json
import locale
import lzma
import os
import pathlib
import pickle
import platform
import random
import shelve
import statistics
import subprocess
import sys
import time
import unicodedata
import urllib.parse
import xml.etree.ElementTree as ET
import zlib

data = b''.join(str(i).encode() for i in range(20000))
for m in bz2, gzip, lzma, zlib:
    c = m.compress(data)
    print(m.__name__, m.decompress(c) == data, len(c) < len(data))
for name in sorted(hashlib.algorithms_guaranteed):
    if not name.startswith('shake'):
        print(name, hashlib.new(name, data).hexdigest()[:16])
random.seed(1)
print(random.random(), random.sample(range(100), 5), statistics.mean(range(10)))
print(decimal.Decimal(2).sqrt(), datetime.datetime.fromtimestamp(0, datetime.timezone.utc))
print(sys.version_info[:2], platform.system(), platform.machine())
print(sys.getfilesystemencoding(), locale.getlocale())
print(json.dumps({'b': [1, 2.5, None]}, sort_keys=True), pickle.loads(pickle.dumps({1: (2, 3)})))
print(ET.fromstring('<a><b x="1"/></a>')[0].attrib, urllib.parse.quote('a b/ü'))
print(unicodedata.name('é'))


def deep(n):
    return 0 if not n else 1 + deep(n - 1)


print(deep(900))
try:
    deep(10 ** 6)
except RecursionError as e:
    print('RecursionError')
try:
    bytearray(1 << 60)
except MemoryError:
    print('MemoryError')
with shelve.open('s') as s:
    s['k'] = list(range(10))
with shelve.open('s') as s:
    print(s['k'])
x = [bytearray(100000) for _ in range(300)]
del x
gc.collect()
print(sum(i * i for i in range(100000)))
r = subprocess.run([sys.executable, '-X', 'faulthandler', '-c',
                    'import ctypes; ctypes.string_at(0)'],
                   capture_output=True)
print(r.returncode, b'Segmentation fault' in r.stderr)
r = subprocess.run([sys.executable, '-c', 'import sys; sys.setrecursionlimit(10**5)\n'
                    'f = lambda: f()\nf()'], stderr=subprocess.DEVNULL)
print(r.returncode)
print(pathlib.Path('/usr/lib').is_dir())
print(sorted(p.name for p in pathlib.Path('/usr/lib/python3.11').glob('ab*')))
print(time.strftime('%Y', time.gmtime()) > '2020', time.get_clock_info('monotonic').resolution)
print(os.cpu_count() > 0, os.uname().sysname)
print(os.sched_getaffinity(0) != set(), os.getpgid(0) > 0)
print(os.getloadavg()[0] >= 0, os.times().user >= 0, os.sysconf('SC_PAGESIZE'))
