# SPDX-License-Identifier: Apache-2.0
"""asyncio: tasks, subprocesses, Unix sockets, pipes, signals, threads; selectors under it."""
import asyncio
import os
import signal
import socket
import time


async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()


async def main():
    print(await asyncio.gather(*(asyncio.sleep(0.01 * (5 - i), i) for i in range(5))))
    try:
        await asyncio.wait_for(asyncio.sleep(10), 0.1)
    except asyncio.TimeoutError:
        print('timeout')
    server = await asyncio.start_unix_server(serve, 'sock')

    async def client(k):
        r, w = await asyncio.open_unix_connection('sock')
        for i in range(20):
            w.write(f'{k} line {i}\n'.encode())
            line = await r.readline()
        w.close()
        return line
    print(await asyncio.gather(*(client(k) for k in range(10))))
    server.close()
    p = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)
    out, _ = await p.communicate(b'x' * 500000)
    print(len(out), p.returncode)
    ps = [await asyncio.create_subprocess_shell(f'sleep 0.0{i}; exit {i}') for i in range(5)]
    print(await asyncio.gather(*(p.wait() for p in ps)))
    p = await asyncio.create_subprocess_exec('sleep', '100')
    p.terminate()
    print(await p.wait())
    loop = asyncio.get_running_loop()
    got = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, got.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(got.wait(), 10)
    print('signal')
    print(await asyncio.to_thread(lambda: time.sleep(0.05) or 'thread'))
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    await loop.sock_sendall(a, b'hello')
    print(await loop.sock_recv(b, 100))
    r, w = os.pipe()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(r, 'rb'))
    os.write(w, b'pipe\n')
    print(await reader.readline())
    os.close(w)
    print(await reader.read())
    q = asyncio.Queue(3)

    async def produce():
        for i in range(10):
            await q.put(i)
    t = asyncio.create_task(produce())
    print([await q.get() for _ in range(10)])
    await t
    t = asyncio.create_task(asyncio.sleep(100))
    await asyncio.sleep(0)
    t.cancel()
    try:
        await t
    except asyncio.CancelledError:
        print('cancelled')
    async with asyncio.TaskGroup() as g:
        ts = [g.create_task(asyncio.sleep(0.01, i)) for i in range(3)]
    print([t.result() for t in ts])

asyncio.run(main())
try:
    socket.socket(socket.AF_INET).bind(('127.0.0.1', 0))
except OSError as e:
    pass
