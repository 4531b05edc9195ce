# SPDX-License-Identifier: Apache-2.0
"""The rehearsal machine with kvm-intel: what `rehearsal start --vtx` boots.

Bochs emulates VT-x, which QEMU's software emulation does not. It executes one instruction
after the other on one processor, at a fixed number of instructions for each second of the
machine's own time (IPS): slower than QEMU, and a run is the same each time. It has no
devices for sharing files, so the machine has CDs: one to boot from, an image of Debian
packages as root (tools/mkimage-userland.sh machine), and the project directory as it was at
the start, without what only compilers need. The agent's port is the second serial line.
"""
import os
import pty
import shutil
import time
import tty

# Instructions in a second of the machine's time. With fewer, timers fire before anything is
# done; with more, a guest that spins until a time limit spins for long.
IPS = 100_000_000
CPU = 'corei7_haswell_4770'         # VT-x with EPT and unrestricted guests; XSAVE, FSGSBASE
MEM_MAX = 2048                      # MiB, Bochs's own limit
MODULES = ['ata_piix', 'sr_mod', 'irqbypass', 'kvm', 'kvm-intel', 'erofs', 'loop', 'tun',
           'overlay']
LOADER = ['/usr/lib/ISOLINUX/isolinux.bin', '/usr/lib/syslinux/modules/bios/ldlinux.c32']
PROGRAMS = {'bochs': 'bochs', 'xorriso': 'xorriso', 'mkfs.erofs': 'erofs-utils',
            '/usr/share/bochs/BIOS-bochs-latest': 'bochsbios',
            '/usr/share/vgabios/vgabios.bin': 'vgabios',
            LOADER[0]: 'isolinux', LOADER[1]: 'syslinux-common'}
# Of the project's files: what only compilers and version control need.
EXCLUDE = r'(^|/)(\.git|\.ninja.*|meson-.*|build-asan|tmp|[^/]*\.[poa])$'

# @LOAD@ and @FILL@ are tools/rehearsal's.
INIT = r'''#!/bin/busybox sh
# First program in the machine: makes the root and hands over to the agent.
PATH=/bin; export PATH
/bin/busybox mkdir -p /bin /proc /sys /dev /root /mnt /new
/bin/busybox --install -s /bin
@LOAD@
while [ ! -b /dev/sr2 ]; do sleep 0.1; done
mount -t erofs -o ro /dev/sr1 /root
mount -t tmpfs -o size=75%,mode=755 rw /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay -o lowerdir=/root,upperdir=/mnt/upper,workdir=/mnt/work root /new
cd /new
mkdir -p ".@PROJECT@"
mount -t erofs -o ro /dev/sr2 ".@PROJECT@"
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
@FILL@
cp /bin/busybox usr/bin		# for what the image lacks: mount, ip
for f in $(busybox --list); do
	[ -e usr/bin/$f ] || [ -e usr/sbin/$f ] || ln -s busybox usr/bin/$f
done
cp /agent run/rehearsal-agent
exec 3<>dev/ttyS1
stty -F dev/ttyS1 raw -echo 115200
exec switch_root /new /run/rehearsal-agent /dev/ttyS1
'''

ISOLINUX = '''default linux
prompt 0
label linux
 kernel vmlinuz
 append initrd=initrd console=ttyS0 @APPEND@
'''

BOCHSRC = '''display_library: rfb, options="timeout=0"
megs: {mem}
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
cpu: model={cpu}, count=1, ips={ips}, reset_on_triple_fault=0
clock: sync=none, time0={now}
ata0-master: type=cdrom, path={dir}/boot.iso, status=inserted
ata0-slave: type=cdrom, path={root}, status=inserted
ata1-master: type=cdrom, path={dir}/project.erofs, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={dir}/console.log
com2: enabled=1, mode=term, dev={port}
log: {dir}/bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
'''


def init_text(project):
    return INIT.replace('@PROJECT@', project)


def disks_make(state, project, kernel, initrd, append, run):
    """The CDs in the directory `state` that hold `project` and boot `kernel` with the file
    `initrd`. `run` runs a program or raises."""
    def path(name):
        return os.path.join(state, name)

    boot = path('boot')
    shutil.rmtree(boot, ignore_errors=True)
    os.mkdir(boot)
    for source in LOADER:
        shutil.copy(source, boot)
    shutil.copy(kernel, os.path.join(boot, 'vmlinuz'))
    shutil.copy(initrd, os.path.join(boot, 'initrd'))
    with open(os.path.join(boot, 'isolinux.cfg'), 'w') as f:
        f.write(ISOLINUX.replace('@APPEND@', append))
    for name in ('project.erofs', 'boot.iso'):
        if os.path.exists(path(name)):
            os.unlink(path(name))
    run(['mkfs.erofs', '--all-root', f'--exclude-regex={EXCLUDE}', path('project.erofs'),
         project])
    run(['xorriso', '-as', 'mkisofs', '-quiet', '-o', path('boot.iso'), '-b', 'isolinux.bin',
         '-c', 'boot.cat', '-no-emul-boot', '-boot-load-size', '4', '-boot-info-table', boot])
    shutil.rmtree(boot)


def bochs_argv(state, root):
    """How to start Bochs, the terminal whose other end is the agent's port, and one that is
    to stay open. Bochs's display wants a TCP port: it gets a network of its own."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    with open(os.path.join(state, 'bochsrc'), 'w') as f:
        f.write(BOCHSRC.format(dir=state, root=root, port=os.ttyname(slave), mem=MEM_MAX,
                               cpu=CPU, ips=IPS, now=int(time.time())))
    with open(os.path.join(state, 'bochs.commands'), 'w') as f:
        f.write('continue\n')               # Debian's Bochs starts in its debugger
    argv = ['unshare', '--net'] + (['--user', '--map-current-user'] if os.getuid() else [])
    return argv + ['bochs', '-q', '-f', os.path.join(state, 'bochsrc'), '-rc',
                   os.path.join(state, 'bochs.commands')], master, slave
