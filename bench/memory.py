# SPDX-License-Identifier: Apache-2.0
"""Host memory of one VM beyond its guest's RAM, while a task sleeps in it: the VMM's own
pages (proportional share, from smaps) and its page tables. What the kernel keeps for KVM
(shadow or nested page tables, the VM's structures) is not in a process's accounts; it is
estimated from the whole host with many VMs, where that is quiet enough to be told."""
import os
import re
import subprocess

import common

MEM = 256           # MiB of each guest
VMS = 8


def start():
    argv = common.casemate_run('sh', '-c', 'echo up; sleep 1000',
                               options=['--mem', f'{MEM}M'])
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL)
    if not p.stdout.readline():
        p.wait()
        raise common.Broken(f'status {p.returncode}')
    return p


def account(pid):
    """(kB of the process beyond guest RAM and image, kB resident in guest RAM)."""
    own = ram = 0
    with open(f'/proc/{pid}/smaps') as f:
        blocks = re.split(r'^(?=[0-9a-f]+-[0-9a-f]+ )', f.read(), flags=re.M)
    for block in filter(None, blocks):
        pss = int(re.search(r'^Pss:\s*(\d+)', block, re.M)[1])
        size = int(re.search(r'^Size:\s*(\d+)', block, re.M)[1])
        if size >= MEM * 1024 // 4 and ' rw-' in block.split('\n')[0]:
            ram += pss
        elif '.erofs' not in block.split('\n')[0]:
            own += pss
    with open(f'/proc/{pid}/status') as f:
        status = f.read()
    own += int(re.search(r'^VmPTE:\s*(\d+)', status, re.M)[1])
    return own, ram


def available():
    with open('/proc/meminfo') as f:
        return int(re.search(r'^MemAvailable:\s*(\d+)', f.read(), re.M)[1])


def main():
    why = common.casemate_trouble()
    if why:
        common.emit('vm_overhead', skipped=why)
        return
    running = []
    try:
        running.append(start())
        before = available()
        for _ in range(VMS):
            running.append(start())
        after = available()
        own, ram = [], []
        for p in running:
            vmms = [c for c in common.children(p.pid) if 'casemate-vmm' in
                    os.readlink(f'/proc/{c}/exe')]
            if not vmms:
                raise common.Broken('no casemate-vmm below casemate')
            o, r = account(vmms[0])
            client = account(p.pid)[0]
            own.append((o + client) / 1024)
            ram.append(r / 1024)
        common.emit_values('vm_overhead', 'MiB', own, mem_mib=MEM)
        common.emit_values('vm_guest_ram_touched', 'MiB', ram, mem_mib=MEM)
        common.emit('vm_whole_host_cost', unit='MiB', n=VMS,
                    mean=round((before - after) / 1024 / VMS, 3), guest_ram_included=True)
    except (common.Broken, OSError) as e:
        common.emit('vm_overhead', skipped=str(e))
    finally:
        for p in running:
            common.end(p)


common.main(main)
