# SPDX-License-Identifier: Apache-2.0
"""A file system with one file that opens and whose bytes never come, until it is told to end:
what a dead server's looks like. Speaks FUSE's own protocol (linux/fuse.h); takes root."""
import ctypes
import os
import struct
import threading

LOOKUP, GETATTR, INIT, OPEN, READ, OPENDIR, RELEASE = 1, 3, 26, 14, 15, 27, 18
ENOSYS, ENOENT = 38, 2
HEAD = struct.Struct('<IIQQIIII')


class Stuck:
    """The path of the file; reads: how many wait for ever."""
    def __init__(self, directory, size):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.directory, self.size, self.reads = directory, size, 0
        self.path = os.path.join(directory, 'file')
        os.makedirs(directory, exist_ok=True)
        self.fd = os.open('/dev/fuse', os.O_RDWR)
        options = f'fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other'
        if self.libc.mount(b'stuck', directory.encode(), b'fuse', 0, options.encode()) < 0:
            e = ctypes.get_errno()
            os.close(self.fd)
            raise OSError(e, 'cannot mount: ' + os.strerror(e))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def attributes(self, node):
        mode = 0o40755 if node == 1 else 0o100644
        return struct.pack('<QQQQQQIIIIIIIIII', node, self.size, self.size // 512, 0, 0, 0,
                           0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def answer(self, op, node, body):
        if op == INIT:
            major, _, ahead = struct.unpack_from('<III', body)
            return struct.pack('<IIIIHHIIHHI28x', major, 31, ahead, 0, 8, 6, 4096, 1, 1, 0, 0)
        if op == LOOKUP:
            if body.rstrip(b'\0') != b'file':
                return -ENOENT
            return struct.pack('<QQQQII', 2, 0, 60, 60, 0, 0) + self.attributes(2)
        if op == GETATTR:
            return struct.pack('<QII', 60, 0, 0) + self.attributes(node)
        if op in (OPEN, OPENDIR):
            return struct.pack('<QII', 1, 0, 0)
        return b'' if op == RELEASE else -ENOSYS

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, 1 << 17)
            except OSError:
                return
            _, op, unique, node, *_ = HEAD.unpack_from(request)
            if op == READ:
                self.reads += 1
                continue
            got = self.answer(op, node, request[HEAD.size:])
            error = got if isinstance(got, int) else 0
            body = b'' if error else got
            try:
                os.write(self.fd, struct.pack('<IiQ', 16 + len(body), error, unique) + body)
            except OSError:
                pass

    def end(self):
        """All who wait are told that it is gone."""
        for flag in 1, 2:       # MNT_FORCE for those who wait, MNT_DETACH for who has it open
            self.libc.umount2(self.directory.encode(), flag)
        self.thread.join(10)
        os.close(self.fd)
