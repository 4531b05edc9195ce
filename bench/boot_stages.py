# SPDX-License-Identifier: Apache-2.0
"""Time to each stage of a boot, milliseconds since the VMM's start, as --verbose tells."""
import re
import subprocess

import common


def main():
    why = common.casemate_trouble()
    if why:
        common.emit('boot_stages', skipped=why)
        return
    stages = {}
    argv = common.casemate_run('/bin/true', options=['--verbose'])
    for _ in range(common.RUNS):
        p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, timeout=common.LIMIT)
        line = re.search(r'boot, milliseconds[^:]*:(.*)', p.stderr.decode(errors='replace'))
        if p.returncode or not line:
            common.emit('boot_stages', skipped=f'status {p.returncode}, no stages told')
            return
        for name, value in re.findall(r'([a-z ]+?):? ([0-9.]+)', line[1]):
            stages.setdefault(name.strip(), []).append(float(value))
    for name, values in stages.items():
        common.emit_values('boot_' + name.replace(' ', '_'), 'ms', values)


common.main(main)
