# SPDX-License-Identifier: Apache-2.0
"""Cold `casemate run -- /bin/true` from exec to exit, time to the first byte of output, a
tiny guest that exits at once, and the peers in the same run."""
import os
import tempfile

import common
import peers


def one_page_guest():
    """The smallest kernel for the VMM (a page of code, one of data): it powers off at once,
    which is no orderly end for a task that was asked for, hence status 125."""
    guest = os.path.join(common.BUILD, 'tests/guests/guest-hello')
    why = common.casemate_trouble()
    if not why and not os.path.exists(guest):
        why = 'the one-page guest is not built'
    argv = common.casemate_run('/bin/true', options=['--kernel', guest])
    return why, argv


def main():
    why = common.casemate_trouble()
    true = common.casemate_run('/bin/true')
    echo = common.casemate_run('/bin/echo', 'x')
    page_why, page = one_page_guest()
    with tempfile.TemporaryDirectory() as work:
        subjects = [
            ('run_cold', {}, why, lambda: common.time_run(true)),
            ('run_first_output', {}, why, lambda: common.time_first_byte(echo)),
            ('one_page_guest', {}, page_why, lambda: common.time_run(page, want=125)),
        ]
        for name, peer in (('qemu_microvm_one_page_guest', peers.qemu),
                           ('runc_run_true', peers.runc), ('bwrap_true', peers.bwrap)):
            trouble, argv, status = peer(work)
            subjects.append((name, {'peer': True}, trouble,
                             lambda argv=argv, status=status: common.time_run(argv, status)))
        common.interleave(subjects)


common.main(main)
