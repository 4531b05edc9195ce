# SPDX-License-Identifier: Apache-2.0
"""A small file system in memory that stops answering some requests: what a dead or slow server's
looks like. Speaks FUSE's own protocol (linux/fuse.h); takes root."""
import ctypes
import os
import struct
import threading

from client import Skip

LOOKUP, GETATTR, SETATTR, INIT, OPEN, READ, WRITE, RELEASE = 1, 3, 4, 26, 14, 15, 16, 18
UNLINK, RENAME, OPENDIR, CREATE, RENAME2 = 10, 12, 27, 35, 45
ENOSYS, ENOENT = 38, 2
HEAD = struct.Struct('<IIQQIIII')
RENAMES = (RENAME, RENAME2)


class Stuck:
    """path: of a file that is there from the start. held: how many requests wait, all that are of
    a kind in `hang`, until end() or go()."""
    def __init__(self, directory, size, hang=(READ,), content=b''):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.directory, self.hang, self.waiting = directory, hang, []
        self.lock = threading.Lock()
        self.path = os.path.join(directory, 'file')
        self.names = {b'file': 2}
        self.files = {2: bytearray(content.ljust(size, b'\0'))}
        os.makedirs(directory, exist_ok=True)
        self.fd = os.open('/dev/fuse', os.O_RDWR)
        options = f'fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other'
        if self.libc.mount(b'stuck', directory.encode(), b'fuse', 0, options.encode()) < 0:
            e = ctypes.get_errno()
            os.close(self.fd)
            raise OSError(e, 'cannot mount: ' + os.strerror(e))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    @property
    def held(self):
        return len(self.waiting)

    def attributes(self, node):
        size = len(self.files.get(node, b''))
        return struct.pack('<QQQQQQIIIIIIIIII', node, size, size // 512, 0, 0, 0,
                           0, 0, 0, 0o40755 if node == 1 else 0o100644, 1, 0, 0, 0, 4096, 0)

    def entry(self, node):
        return struct.pack('<QQQQII', node, 0, 0, 0, 0, 0) + self.attributes(node)

    def created(self, body):
        """The name follows flags, mode, umask and more."""
        node = max(self.files) + 1
        self.names[body[16:].rstrip(b'\0')] = node
        self.files[node] = bytearray()
        return self.entry(node) + struct.pack('<QII', 1, 0, 0)

    def renamed(self, op, body):
        old, new = body[8 if op == RENAME else 16:].split(b'\0')[:2]
        if old not in self.names:
            return -ENOENT
        self.names[new] = self.names.pop(old)
        return b''

    def wrote(self, node, body):
        _, at, size = struct.unpack_from('<QQI', body)
        file = self.files[node]
        file.extend(bytes(max(0, at - len(file))))      # a hole
        file[at:at + size] = body[40:40 + size]
        return struct.pack('<II', size, 0)

    def set(self, node, body):
        valid, _, _, size = struct.unpack_from('<IIQQ', body)
        if valid & 8:
            self.files[node] = self.files[node][:size].ljust(size, b'\0')
        return struct.pack('<QII', 0, 0, 0) + self.attributes(node)

    def answer(self, op, node, body):
        if op == INIT:
            major, _, ahead = struct.unpack_from('<III', body)
            return struct.pack('<IIIIHHIIHHI28x', major, 31, ahead, 0, 8, 6, 65536, 1, 1, 0, 0)
        if op == LOOKUP:
            node = self.names.get(body.rstrip(b'\0'))
            return self.entry(node) if node else -ENOENT
        if op == GETATTR:
            return struct.pack('<QII', 0, 0, 0) + self.attributes(node)
        if op in (OPEN, OPENDIR):
            return struct.pack('<QII', 1, 0, 0)
        if op == READ:
            _, at, size = struct.unpack_from('<QQI', body)
            return bytes(self.files[node][at:at + size])
        if op == CREATE:
            return self.created(body)
        if op == WRITE:
            return self.wrote(node, body)
        if op == SETATTR:
            return self.set(node, body)
        if op in RENAMES:
            return self.renamed(op, body)
        if op == UNLINK:
            return b'' if self.names.pop(body.rstrip(b'\0'), None) else -ENOENT
        return b'' if op == RELEASE else -ENOSYS

    def reply(self, op, unique, node, body):
        got = self.answer(op, node, body)
        error = got if isinstance(got, int) else 0
        body = b'' if error else got
        try:
            os.write(self.fd, struct.pack('<IiQ', 16 + len(body), error, unique) + body)
        except OSError:
            pass

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, 1 << 18)
            except OSError:
                return
            _, op, unique, node, *_ = HEAD.unpack_from(request)
            with self.lock:
                if op in self.hang:
                    self.waiting.append((op, unique, node, request[HEAD.size:]))
                else:
                    self.reply(op, unique, node, request[HEAD.size:])

    def go(self):
        """All that waits is answered after all, and what comes from now on."""
        with self.lock:
            self.hang = ()
            for request in self.waiting:
                self.reply(*request)
            self.waiting = []

    def end(self):
        """All who wait are told that it is gone."""
        for flag in 1, 2:       # MNT_FORCE for those who wait, MNT_DETACH for who has it open
            self.libc.umount2(self.directory.encode(), flag)
        self.thread.join(10)
        os.close(self.fd)


def stuck(d, *argv, **how):
    """One in the directory of the daemon d."""
    if os.getuid() != 0:
        raise Skip('mounting takes root')
    try:
        return Stuck(os.path.join(d.dir, 'stuck'), *argv, **how)
    except OSError as e:
        raise Skip(f'no FUSE: {e}') from e
