# SPDX-License-Identifier: Apache-2.0
"""Other ways to run a task on the same host, for comparison: QEMU's microvm machine with a
one-page guest, runc and bwrap with the same busybox. Each gives (why not or None, command,
status)."""
import json
import os
import shutil
import struct
import subprocess

import common

BUSYBOX = '/bin/busybox'


def pvh_guest(path):
    """A one-page 32-bit ELF with a PVH note, whose code exits through isa-debug-exit."""
    # mov $0x10,%al; out %al,$0xf4; hlt; jmp to the hlt
    code = b'\xb0\x10\xe6\xf4\xf4\xeb\xfd'
    base, head = 0x100000, 52 + 2 * 32
    entry = base + head
    note = struct.pack('<III4sI', 4, 4, 18, b'Xen\0', entry)    # XEN_ELFNOTE_PHYS32_ENTRY
    at = head + 16
    size = at + len(note)
    header = struct.pack('<16sHHIIIIIHHHHHH', b'\x7fELF\x01\x01\x01', 2, 3, 1, entry, 52, 0,
                         0, 52, 32, 2, 0, 0, 0)
    load = struct.pack('<8I', 1, 0, base, base, size, size, 7, 4096)
    notes = struct.pack('<8I', 4, at, base + at, base + at, len(note), len(note), 4, 4)
    with open(path, 'wb') as f:
        f.write(header + load + notes + code.ljust(16, b'\xf4') + note)


def qemu(work):
    program = shutil.which('qemu-system-x86_64')
    guest = os.path.join(work, 'pvh.elf')
    pvh_guest(guest)
    argv = [program, '-M', 'microvm,rtc=off,pit=off,pic=off,isa-serial=off', '-accel', 'kvm',
            '-cpu', 'host', '-m', '256M', '-nodefaults', '-no-user-config', '-nographic',
            '-no-reboot', '-kernel', guest, '-device', 'isa-debug-exit,iobase=0xf4,iosize=1']
    why = None if program else 'qemu-system-x86_64 is not installed'
    return why or common.kvm_trouble(), argv, 33        # 0x10 << 1 | 1


def runc(work):
    program = shutil.which('runc')
    if not program:
        return 'runc is not installed', [], 0
    if os.geteuid():
        return 'runc needs root', [], 0
    bundle = os.path.join(work, 'bundle')
    root = os.path.join(bundle, 'rootfs')
    os.makedirs(os.path.join(root, 'bin'))
    for name in ('proc', 'dev', 'sys'):
        os.mkdir(os.path.join(root, name))
    shutil.copy(BUSYBOX, os.path.join(root, 'bin/busybox'))
    for name in ('true', 'echo', 'sh'):
        os.symlink('busybox', os.path.join(root, 'bin', name))
    subprocess.run([program, 'spec'], cwd=bundle, check=True)
    path = os.path.join(bundle, 'config.json')
    with open(path) as f:
        config = json.load(f)
    config['process'].update(terminal=False, args=['/bin/true'])
    with open(path, 'w') as f:
        json.dump(config, f)
    argv = [program, '--root', os.path.join(work, 'state'), 'run', '--bundle', bundle,
            f'bench-{os.getpid()}']
    try:
        common.time_run(argv)
    except common.Broken as e:
        return f'runc does not work here: {e}', [], 0
    return None, argv, 0


def bwrap(work):
    program = shutil.which('bwrap')
    if not program:
        return 'bwrap is not installed', [], 0
    argv = [program, '--unshare-all', '--ro-bind', BUSYBOX, '/bin/true', '--proc', '/proc',
            '--dev', '/dev', '/bin/true']
    try:
        common.time_run(argv)
    except common.Broken as e:
        return f'bwrap does not work here: {e}', [], 0
    return None, argv, 0
