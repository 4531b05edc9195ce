# SPDX-License-Identifier: Apache-2.0
"""Programs of Debian in a running VM, beside the same programs of the same image on this host
(a chroot of its files): milliseconds of each, and how often each entered ring 0 in the guest.

The image is the suite userland's. CASEMATE_BENCH_SIZE=small is for emulation."""
import os
import subprocess

import common

CACHE = os.environ.get('CASEMATE_CACHE') or os.path.expanduser('~/.cache/casemate')
IMAGE = os.path.realpath(os.environ.get('CASEMATE_USERLAND_IMAGE') or CACHE + '/userland.erofs')
ROOT = IMAGE[:-len('.erofs')] + '.root'
SIZE = os.environ.get('CASEMATE_BENCH_SIZE', 'full')
RUNS = int(os.environ.get('CASEMATE_BENCH_RUNS', '10'))
PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'


def trouble(side):
    if not os.path.exists(IMAGE):
        return 'no userland image: tools/mkimage-userland.sh makes it'
    if side == 'guest':
        return common.kvm_trouble()
    if not os.path.isdir(ROOT):
        return 'the image is not extracted: the suite userland does that'
    return None if os.getuid() == 0 else 'a chroot wants root'


def argv(side):
    if side == 'guest':
        return [common.CASEMATE, 'run', '--image', IMAGE, '--mem', '4G' if SIZE == 'full' else
                '512M', '--']
    mounts = [word for d in ('/tmp', '/var/tmp', '/dev/shm') for word in ('--tmpfs', d)]
    return ['bwrap', '--ro-bind', ROOT, '/', '--proc', '/proc', '--dev', '/dev', *mounts,
            '--unshare-pid', '--unshare-net', '--clearenv', '--setenv', 'PATH', PATH,
            '--setenv', 'HOME', '/tmp']


def side(name):
    with open(os.path.join(os.path.dirname(os.path.realpath(__file__)), 'userland.sh'),
              encoding='ascii') as file:
        script = file.read()
    done = subprocess.run([*argv(name), 'bash', '-c', script, '-', str(RUNS), SIZE],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    found = {}
    for line in done.stdout.decode().splitlines():
        words = line.split()
        if words[0] == 'ring0':
            common.emit(f'userland_{words[1]}_ring0_entries', n=1, value=int(words[2]))
        else:
            found.setdefault(words[0], []).append(float(words[1]))
    for item, values in found.items():
        unit, scale = ('ns', 1) if item == 'getppid' else ('ms', 1000)
        common.emit_values(f'userland_{item}_{name}', unit, [v / scale for v in values],
                           **({'peer': True} if name == 'host' else {}))
    if done.returncode:
        err = done.stderr.decode(errors='replace').strip().splitlines()
        common.emit(f'userland_{name}', skipped=f'status {done.returncode} after '
                    f'{len(found)} items: {err[-1] if err else "no message"}')


def main():
    for name in 'host', 'guest':
        why = trouble(name)
        if why:
            common.emit(f'userland_{name}', skipped=why)
        else:
            side(name)


if __name__ == '__main__':
    common.main(main)
