#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A second reader of snapshot files, which has all its tables from docs/SNAPSHOT-FORMAT.md:

  reader.py DOCUMENT FILE	reads FILE and compares with the JSON of `casemate snapshot
				inspect --json FILE` on standard input
"""
import hashlib
import json
import re
import sys

PAGE = 4096
CHUNK = 2 << 20


def tables(document):
    """{name: [(field, type, notes)]} of all tables of fields in the document. A table is
    called as the heading over it, or as the line before it that begins with An, A or Each."""
    found, name = {}, None
    for line in document.splitlines():
        heading = re.match(r'#+ (\w+)$|(?:An?|Each) (\w+)\b.*:$', line)
        row = re.match(r'\| `(\w+)` \| ([^|]+) \|([^|]*)\|$', line)
        if heading:
            name = (heading[1] or heading[2]).lower()
        elif row:
            found.setdefault(name, []).append((row[1], row[2], row[3].strip()))
    return found


class Reader:
    def __init__(self, every, data, version=1):
        self.every, self.data, self.at, self.version = every, data, 0, version

    def take(self, size):
        assert self.at + size <= len(self.data), 'beyond the end'
        self.at += size
        return self.data[self.at - size:self.at]

    def number(self, size, notes=''):
        value = int.from_bytes(self.take(size), 'little')
        limit = re.search(r'at most (\d+)( GiB)?', notes)
        mask = re.search(r'no bits but (0x\w+)', notes)
        assert not limit or value <= int(limit[1]) << (30 if limit[2] else 0), notes
        assert not mask or not value & ~int(mask[1], 16), notes
        return value

    def value(self, kind, notes, before):
        many = re.match(r'(.+) × (\w+)$', kind)
        sized = re.match(r'(bytes|varying) (\d+)$', kind)
        if many:
            count = int(many[2]) if many[2].isdigit() else before[many[2]]
            return [self.value(many[1], notes, before) for _ in range(count)]
        if sized and sized[1] == 'bytes':
            return self.take(int(sized[2]))
        if sized:
            size = self.number(4)
            assert size <= int(sized[2]), 'too long'
            return self.take(size)
        if kind == 'bool':
            return bool(self.number(1, 'at most 1'))
        if re.match(r'u\d+$', kind):
            return self.number(int(kind[1:]) // 8, notes)
        return self.table(kind)

    def table(self, name):
        fields = {}
        for field, kind, notes in self.every[name]:
            since = re.match(r'version (\d+); (\d+) in older files', notes)
            if since and self.version < int(since[1]):
                fields[field] = int(since[2])
            else:
                fields[field] = self.value(kind, notes, fields)
        return fields


def versions(document):
    """{name of a section: its newest version}"""
    rows = re.findall(r'^\| \d+ \| (\w+) \| (\d+) \|', document, re.M)
    return {name: int(version) for name, version in rows}


def read(every, newest, data):
    """(header, {name: table or bytes}), all checked as the document says."""
    page = Reader(every, data[:PAGE])
    header = page.table('header')
    assert header['magic'] == bytes.fromhex('8c434d534e0d0a00')
    assert (header['version'], header['architecture']) == (1, 62)
    assert not any(data[page.at:PAGE])
    assert data[88:120] == header['id']
    assert hashlib.sha256(data[:88] + bytes(32) + data[120:PAGE]).digest() == header['id']
    size, offset = header['memory_size'], header['data_offset']
    assert size and size % CHUNK == 0 and len(data) == header['file_size'] == offset + size
    names = {1: 'machine', 2: 'cpuid', 3: 'vcpu', 4: 'console', 64: 'held', 65: 'digests'}
    end, last, parts = PAGE, 0, {}
    for section in header['sections']:
        content = data[end:end + section['length']]
        assert section['offset'] == end and section['type'] > last
        assert hashlib.sha256(content).digest() == section['digest']
        end, last = end + section['length'], section['type']
        name = names[section['type']]
        if section['type'] < 64:
            assert 1 <= section['version'] <= newest[name], f'version of {name}'
            reader = Reader(every, content, section['version'])
            content = reader.table(name)
            assert reader.at == section['length'], 'bytes are left over'
        parts[name] = content
    assert list(parts) == list(names.values())
    assert offset == (end + CHUNK - 1) // CHUNK * CHUNK and not any(data[end:offset])
    memory_check(header, parts, data[offset:])
    return header, parts


def memory_check(header, parts, memory):
    held = parts['held']
    pages = [n for n in range(len(memory) // PAGE) if held[n // 8] >> n % 8 & 1]
    assert len(held) == len(memory) // 32768 and len(pages) == header['pages_held']
    digests = [hashlib.sha256() for _ in range(len(memory) // CHUNK)]
    zero = bytearray(memory)
    for n in pages:
        page = memory[n * PAGE:(n + 1) * PAGE]
        digests[n * PAGE // CHUNK].update(page)
        zero[n * PAGE:(n + 1) * PAGE] = bytes(PAGE)
    used = {n * PAGE // CHUNK for n in pages}
    assert parts['digests'] == b''.join(d.digest() if i in used else bytes(32)
                                        for i, d in enumerate(digests))
    assert not any(zero)


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for v in value:
            yield from leaves(v)
    else:
        yield value


def original(text):
    """The bytes that a string of our JSON stands for: base/json.h."""
    return re.sub('\ufffd(..)', lambda m: chr(0xdc00 + int(m[1], 16)), text).encode(
        'utf-8', 'surrogateescape')


def same(ours, theirs):
    if isinstance(ours, bytes):
        return theirs == ours.hex() or original(theirs) == ours
    if isinstance(theirs, str):
        return int(theirs, 16) == ours
    return theirs == ours


def main():
    with open(sys.argv[1], encoding='utf-8') as f:
        document = f.read()
    every, newest = tables(document), versions(document)
    with open(sys.argv[2], 'rb') as f:
        header, parts = read(every, newest, f.read())
    told = json.load(sys.stdin)
    assert told['id'] == header['id'].hex()
    for name in 'machine', 'cpuid', 'vcpu', 'console':
        ours, theirs = list(leaves(parts[name])), list(told[name].values())
        assert len(ours) == len(theirs), name
        for value, key in zip(ours, told[name]):
            assert same(value, told[name][key]), f'{name}.{key}: {value} {told[name][key]}'
        # The names are those of the document, in its order.
        top = list(dict.fromkeys(re.split(r'[.\[]', key)[0] for key in told[name]))
        want = [f for f, _, _ in every[name] if parts[name][f] != []]
        assert top == want, f'{name}: {top} {want}'
    print(f'{sys.argv[2]}: read, {sum(len(told[n]) for n in parts if n in told)} fields')


main()
