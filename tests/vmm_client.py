# SPDX-License-Identifier: Apache-2.0
"""A client of casemate-vmm for tests and benchmarks: frames of include/abi/channel.h."""
import array
import os
import select
import signal
import socket
import struct
import subprocess
import time

HEAD = struct.Struct('<IHHII')
(STARTED, FAILED, STDOUT, STDERR, EXIT, LOG, ERROR, REPORT, RUNNING) = range(3, 12)
(RESUME, EXEC, STDIN, SIGNAL, RESIZE, SHUTDOWN, REPORT_GET) = range(32, 39)
CREDIT = 64
(VM_BOOTED, VM_END, VM_CONSOLE, VM_LOG, VM_SAVED, VM_FORKED, VM_PAUSED,
 VM_CONTINUED) = range(128, 136)
VM_SAVE, VM_FORK, VM_PAUSE, VM_CONTINUE = range(160, 164)
EXEC_TTY, EXEC_STDIN = 1, 2
SAVE_TRACK, SAVE_INCREMENTAL = 1, 2
PATIENCE = 60 * float(os.environ.get('CASEMATE_TIME_SCALE', '1'))


class Gone(Exception):
    """The VMM closed the socket; says what VM_END said."""


class Programs:
    """A build's programs and the root image: starts VMs."""

    def __init__(self, build, image=None):
        self.build = build
        self.image = image or os.environ.get('CASEMATE_TEST_IMAGE') or \
            os.path.join(build, 'images/default.erofs')

    def _start(self, *args, fds=()):
        files = ['--kernel', os.path.join(self.build, 'casemate-kernel'),
                 '--initd', os.path.join(self.build, 'casemate-initd')]
        return Vm.start(os.path.join(self.build, 'casemate-vmm'), *files, *args, fds=fds)

    def boot(self, mem, *options):
        """A VM of mem bytes that takes commands."""
        vm = self._start('--image', self.image, '--mem', str(mem), *options)
        vm.wait(VM_BOOTED)
        return vm

    def restore(self, fds, *options):
        """From a chain of snapshots, the full one first; not waited for."""
        image = os.open(self.image, os.O_RDONLY)
        restored = [word for fd in fds for word in ('--restore-fd', str(fd))]
        vm = self._start('--image-fd', str(image), *restored, *options, fds=[*fds, image])
        os.close(image)
        return vm


class Vm:
    """One VM's socket. Output of each exec is collected; everything else waits in `frames`."""

    def __init__(self, sock, process=None, pid=None):
        self.sock, self.process, self.pid = sock, process, pid
        self.bytes, self.frames, self.out, self.end = b'', [], {}, None

    @classmethod
    def start(cls, vmm, *args, fds=()):
        ours, theirs = socket.socketpair()
        keep = [theirs.fileno(), *fds]
        process = subprocess.Popen([vmm, '--channel-fd', str(theirs.fileno()), *args],
                                   pass_fds=keep, stdin=subprocess.DEVNULL, env={})
        theirs.close()
        return cls(ours, process)

    def send(self, kind, ident=0, payload=b'', flags=0, fds=()):
        data = HEAD.pack(len(payload), kind, flags, ident, 0) + payload
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else []
        sent = self.sock.sendmsg([data], control)
        self.sock.sendall(data[sent:])

    def exec(self, ident, *argv, flags=EXEC_STDIN, env=('PATH=/bin:/usr/bin',)):
        strings = b''.join(s.encode() + b'\0' for s in (*argv, *env, ''))
        self.send(EXEC, ident, struct.pack('<IIIIHHI', len(argv), len(env), 0, 0, 0, 0, 0) +
                  strings, flags)

    def _receive(self, until):
        while True:
            if len(self.bytes) >= HEAD.size:
                length, kind, flags, ident, _ = HEAD.unpack_from(self.bytes)
                if len(self.bytes) >= HEAD.size + length:
                    payload = self.bytes[HEAD.size:HEAD.size + length]
                    self.bytes = self.bytes[HEAD.size + length:]
                    return kind, ident, payload, flags
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.sock], [], [], left)[0]:
                raise TimeoutError('the VMM says nothing')
            more = self.sock.recv(1 << 20)
            if not more:
                raise Gone(self.end)
            self.bytes += more

    def step(self, until=None):
        frame = self._receive(until or time.monotonic() + PATIENCE)
        kind, ident, payload, _ = frame
        if kind == STDOUT:
            self.out[ident] = self.out.get(ident, b'') + payload
        elif kind == VM_END:
            self.end = payload[8:].decode(errors='replace')
        self.frames.append(frame)
        return frame

    def wait(self, kind, ident=0):
        """Takes the first frame of this kind out of those that came, or that come."""
        while True:
            for i, frame in enumerate(self.frames):
                if frame[0] == kind and frame[1] == ident:
                    return self.frames.pop(i)
            self.step()

    def wait_out(self, ident, text):
        """Waits until the exec's output ends with this."""
        while not self.out.get(ident, b'').endswith(text):
            self.step()

    def fork(self, count):
        """Returns (children, which know their pid; pause in nanoseconds)."""
        pairs = [socket.socketpair() for _ in range(count)]
        self.send(VM_FORK, 0, struct.pack('<II', count, 0), fds=[p[1].fileno() for p in pairs])
        for pair in pairs:
            pair[1].close()
        _, _, answer, _ = self.wait(VM_FORKED)
        error, made, pause = struct.unpack_from('<IIQ', answer)
        if error:
            raise OSError(error, answer[80:].decode())
        assert made == count
        pids = struct.unpack_from(f'<{count}I', answer, 16)
        return [Vm(pair[0], pid=pid) for pair, pid in zip(pairs, pids)], pause

    def save(self, fd, flags=0):
        """Returns (the snapshot's id, pause in nanoseconds)."""
        self.send(VM_SAVE, flags=flags, fds=[fd])
        _, _, answer, _ = self.wait(VM_SAVED)
        error, _, pause = struct.unpack_from('<IIQ', answer)
        if error:
            raise OSError(error, answer[48:].decode())
        return answer[16:48], pause

    def stand(self, kind):
        """VM_PAUSE or VM_CONTINUE. Returns nanoseconds: until it stood, or since then."""
        self.send(kind)
        _, _, answer, _ = self.wait(VM_PAUSED if kind == VM_PAUSE else VM_CONTINUED)
        error, _, pause = struct.unpack_from('<IIQ', answer)
        if error:
            raise OSError(error, answer[16:].decode())
        return pause

    def close(self):
        self.sock.close()
        if self.process:
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
                raise
