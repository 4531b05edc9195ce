# SPDX-License-Identifier: Apache-2.0
"""Many small files, written, walked, read, renamed and removed."""
import hashlib
import os
import shutil

n = int(os.environ.get('US_FILES', 100000))
for i in range(n):
    d = f'tree/{i % 97}/{i % 13}'
    if i < 97 * 13:
        os.makedirs(d, exist_ok=True)
    with open(f'{d}/file-{i}', 'w') as f:
        f.write(f'content of {i}\n' * (i % 5))
count = size = 0
h = hashlib.sha256()
for path, dirs, files in os.walk('tree'):
    dirs.sort()
    for f in sorted(files):
        p = os.path.join(path, f)
        count += 1
        size += os.stat(p).st_size
        with open(p, 'rb') as g:
            h.update(g.read())
print(count, size, h.hexdigest())
os.makedirs('flat')
for i in range(n // 10):
    open(f'flat/{i}', 'w').close()
print(len(os.listdir('flat')), sorted(os.listdir('flat'))[:3])
for i in range(0, n // 10, 2):
    os.rename(f'flat/{i}', f'flat/r{i}')
print(sum(1 for e in os.scandir('flat') if e.name.startswith('r')))
# Removal while the directory is read: no name may be missed or come twice.
seen = set()
for e in os.scandir('flat'):
    assert e.name not in seen
    seen.add(e.name)
    os.unlink(e.path)
print(len(seen), os.listdir('flat'))
shutil.rmtree('tree')
print(os.listdir('.'))
