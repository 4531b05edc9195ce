#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The soak test, outside CI: soak.py CYCLES [real]. So many create, exec, kill cycles by eight
clients, while VMMs, clients, the daemon and its engine are killed at random; then what is left
is counted. With real VMs where KVM works, else with fake VMMs."""
import os
import random
import signal
import socket
import sys
import threading
import time

from client import Client, Daemon, Refused, eventually, together
from privsep_test import cgroups_left

CLIENTS = 8
LOST = (Refused, EOFError, OSError, TimeoutError)


class Soak:
    def __init__(self, cycles, real):
        self.left = cycles
        self.lock = threading.Lock()
        self.daemon = Daemon(real=real)
        self.command = '/bin/echo' if real else 'echo'
        self.done = self.lost = self.daemons = self.engines = self.vmms = 0

    def take(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def cycle(self, rng):
        c = Client(self.daemon.path)
        name = c.ask('create')['vm']
        if rng.random() < 0.2:
            c.ask(f'fork {name} count=2 bound=yes')
        for _ in range(rng.randint(0, 3)):
            out, _, end = c.run(name, self.command, 'soak')
            if end.words[1] == 'exit':
                assert out == b'soak\n', out
        if rng.random() < 0.1:
            c.send(f'exec {name} -- {self.command} x\nkill {name}\n')     # and away
        else:
            c.ask(f'kill {name}')
        c.close()

    def worker(self, seed):
        rng = random.Random(seed)
        while self.take():
            try:
                self.cycle(rng)
                self.done += 1
            except LOST:
                self.lost += 1
                time.sleep(0.05)

    def killer(self):
        rng = random.Random(1)
        while self.left > 0:
            time.sleep(rng.random() / 5)
            if rng.random() < 0.03:
                self.daemon.kill()
                self.daemon.start()
                self.daemons += 1
                continue
            try:
                if rng.random() < 0.1:
                    engine = self.daemon.engine()
                    if engine:
                        os.kill(engine, signal.SIGKILL)
                        self.engines += 1
                        # Its parent does not put up with a row of short lives.
                        time.sleep(1.1)
                    continue
                os.kill(rng.choice(self.daemon.vmms()), signal.SIGKILL)
                self.vmms += 1
            except (IndexError, ProcessLookupError):
                pass

    def run(self):
        before = self.daemon.fds()
        with together(self.worker, range(CLIENTS)):
            self.killer()
        c = self.daemon.client()
        for item in c.ask('list').items:
            c.ask(f'kill {item["vm"]}')
        c.close()
        d = self.daemon
        eventually(lambda: not cgroups_left(d), f'groups are left: {cgroups_left(d)}')
        eventually(lambda: not d.vmms(), f'processes are left: {d.vmms()}')
        eventually(lambda: d.fds() <= before, f'descriptors are left: {d.fds() - before}')
        records = [f for _, _, files in os.walk(d.path + '.state') for f in files]
        assert records == ['lock'], records
        d.stop()
        print(f'{self.done} cycles done, {self.lost} lost to {self.vmms} killed VMMs, '
              f'{self.engines} engines and {self.daemons} daemons; nothing is left')


if __name__ == '__main__':
    socket.setdefaulttimeout(60)
    Soak(int(sys.argv[1]) if len(sys.argv) > 1 else 10000, 'real' in sys.argv[2:]).run()
