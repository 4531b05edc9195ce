# SPDX-License-Identifier: Apache-2.0
"""Every module of the standard library, each in a process of its own (a fork)."""
import os
import sys
import warnings

warnings.simplefilter('ignore')
SKIP = {'antigravity', 'this', 'idlelib', 'turtledemo', '__main__'}
for name in sorted(sys.stdlib_module_names - SKIP):
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            __import__(name)
            print(name, 'imports')
        except BaseException as e:
            print(name, type(e).__name__, e)
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        print(name, 'status', status)
