# SPDX-License-Identifier: Apache-2.0
"""threading, concurrent.futures, queue, multiprocessing with fork, spawn and forkserver."""
import concurrent.futures as cf
import multiprocessing as mp
import os
import queue
import signal
import threading
import time


def square(x):
    return x * x


def talk(conn):
    while (m := conn.recv()) is not None:
        conn.send((m, m * 2))
    conn.close()


def count(v, lock, n):
    for _ in range(n):
        with lock:
            v.value += 1


def put(q, k):
    for i in range(20):
        q.put((k, i))


def shared(name):
    from multiprocessing import shared_memory
    s = shared_memory.SharedMemory(name)
    s.buf[:5] = b'child'
    s.close()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def threads():
    total, lock = [0], threading.Lock()

    def work():
        for _ in range(500):
            with lock:
                total[0] += 1
    ts = [threading.Thread(target=work) for _ in range(16)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    print(total)
    e, c = threading.Event(), threading.Condition()
    s, b = threading.Semaphore(3), threading.Barrier(4)
    print(e.wait(0.05))
    threading.Timer(0.05, e.set).start()
    print(e.wait(10))
    out = queue.Queue()

    def meet(i):
        with s:
            out.put(i)
        b.wait()
    ts = [threading.Thread(target=meet, args=(i,)) for i in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    print(sorted(out.get() for _ in range(4)))
    items = []

    def consume():
        with c:
            c.wait_for(lambda: len(items) == 3)
            print('condition', items)
    t = threading.Thread(target=consume)
    t.start()
    for i in range(3):
        with c:
            items.append(i)
            c.notify_all()
    t.join()
    print(lock.acquire(timeout=0.05), lock.acquire(timeout=0.05))
    local = threading.local()
    local.x = 1
    r = []
    t = threading.Thread(target=lambda: r.append(hasattr(local, 'x')))
    t.start()
    t.join()
    print(r)
    with cf.ThreadPoolExecutor(8) as pool:
        print(sum(pool.map(square, range(200))))
        done, _ = cf.wait([pool.submit(time.sleep, 0.01) for _ in range(10)])
        print(len(done))
    ids = []
    ts = [threading.Thread(target=lambda: ids.append(threading.get_native_id())) for _ in range(5)]
    [(t.start(), t.join()) for t in ts]
    print(len(ids), threading.active_count())
    pid = os.fork()
    if not pid:
        os._exit(threading.active_count() + 40)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def processes(method):
    ctx = mp.get_context(method)
    print('==', method)
    with ctx.Pool(3) as pool:
        print(pool.map(square, range(10)), pool.apply(square, (12,)))
        print(sorted(pool.imap_unordered(square, range(5))))
    mine, theirs = ctx.Pipe()
    p = ctx.Process(target=talk, args=(theirs,))
    p.start()
    for m in 1, 'x', [1, 2], b'b' * 100000:
        mine.send(m)
        r = mine.recv()
        print(len(r[1]) if hasattr(r[1], '__len__') else r)
    mine.send(None)
    p.join()
    print(p.exitcode)
    v, lock = ctx.Value('i', 0, lock=False), ctx.Lock()
    ps = [ctx.Process(target=count, args=(v, lock, 100)) for _ in range(3)]
    [p.start() for p in ps]
    [p.join() for p in ps]
    print(v.value)
    q = ctx.Queue()
    ps = [ctx.Process(target=put, args=(q, k)) for k in range(2)]
    [p.start() for p in ps]
    print(sorted(q.get(timeout=120) for _ in range(40))[-1])
    [p.join() for p in ps]
    from multiprocessing import shared_memory
    s = shared_memory.SharedMemory(create=True, size=100)
    p = ctx.Process(target=shared, args=(s.name,))
    p.start()
    p.join()
    print(bytes(s.buf[:5]))
    s.close()
    s.unlink()
    p = ctx.Process(target=die)
    p.start()
    p.join()
    print(p.exitcode)
    with cf.ProcessPoolExecutor(2, mp_context=ctx) as pool:
        print(list(pool.map(square, range(5))))


if __name__ == '__main__':
    threads()
    for method in 'fork', 'spawn', 'forkserver':
        processes(method)
    with mp.Manager() as m:
        d, l = m.dict(), m.list()
        d['a'] = 1
        l.append(2)
        print(dict(d), list(l))
