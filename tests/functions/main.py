"""main - one scenario of stages in a script; its output is the same with and without the library."""
import asyncio
import os
import sys
import threading
import time

import parts
from probe import at


def local(x):
    at("local")
    return x + 1


class Local:
    def method(self, x):
        at("Local.method")
        return super().__repr__()[:10], x


def kinds():
    print(parts.plain(1), parts.plain(1, 2, 3, k=4, z=5), parts.plain.__doc__, parts.COUNT, parts.decorated(1))
    print(parts.hidden(2), parts.twice(), parts.sqrt(4), parts.Base().method(1), parts.Base().size)
    print(parts.Part().method(2), parts.Part.made(3), parts.Part().made(3), parts.Part.free(4), parts.Part().free(4))
    print(parts.used(parts.plain, 5), local(1), Local().method(2), parts.plain.__name__, parts.plain.__module__)
    try:
        parts.plain()
    except TypeError as error:
        print(error)
    at("-")


def raising():
    for i in range(3):
        try:
            parts.used(parts.fails, i)
        except ValueError as error:
            lines, frame = [], error.__traceback__
            while frame:
                lines.append((frame.tb_frame.f_code.co_name, frame.tb_lineno))
                frame = frame.tb_next
            print(repr(error), lines)
        at("-")
    parts.fails("uncaught")


def generators():
    for i in parts.numbers(3):
        at("-")
        print(i)
    g = parts.numbers(3)
    print(next(g), g.send(5), g.throw(KeyError()), list(g))
    at("-")
    for i in parts.chain(2):
        at("-")
        print(i)
    print(list(parts.countdown(5)), parts.used(list, parts.numbers(2)))
    with parts.section("here") as name:
        at("-")
        print(name)
    a, b = parts.numbers(2), parts.countdown(2)
    for pair in zip(a, b):
        at("-")
        print(pair)
    at("-")


def unfinished():
    kept = []
    for i in range(3):
        for _ in parts.numbers(5):
            break
        at("-")
        g = parts.numbers(5)
        next(g)
        kept.append(g)
        at("-")
    parts.plain(1)
    parts.used(next, kept[0])
    kept[1].close()
    try:
        kept[2].throw(ValueError("thrown"))
    except ValueError as error:
        print(error)
    at("-")


async def consume():
    at("-")
    async for i in parts.items(3):
        at("-")
        await asyncio.sleep(0)
        at("-")
        print(i)
    async for _ in parts.items(3):
        break
    at("-")


async def tasks():
    at("-")
    print(await asyncio.gather(*(parts.waits(0.001 * (i % 3), parts.inner) for i in range(6))))
    print(await asyncio.gather(consume(), parts.waits(0.002, None)))
    task = asyncio.ensure_future(parts.waits(60, None))
    await asyncio.sleep(0.01)
    at("-")
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print("cancelled")
    at("-")
    try:
        await asyncio.wait_for(parts.waits(60, None), 0.01)
    except asyncio.TimeoutError:
        print("timed out")
    at("-")
    loop = asyncio.get_running_loop()
    print(await loop.run_in_executor(None, parts.plain, 1))
    at("-")


def asynchronous(run=asyncio.run):
    parts.used(run, quiet_tasks())
    run(tasks())
    at("-")


def on_uvloop():
    import uvloop
    asynchronous(uvloop.run)


async def no_wait():
    return parts.plain(1)


async def eager_tasks():
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    first = asyncio.ensure_future(parts.waits(0.01, parts.inner))
    at("-")
    done = asyncio.ensure_future(no_wait())
    at("-")
    print(done.done(), first.done(), await first)
    await tasks()


def eager():
    """Eager tasks run their first step at the place that creates them."""
    parts.used(asyncio.run, quiet_tasks())
    asyncio.run(eager_tasks())
    at("-")


async def quiet_tasks():
    at("used")
    await parts.inner()
    at("used")


def by_hand():
    """Coroutines without an event loop: the caller drives them."""
    class Wait:
        def __await__(self):
            at("waiting")
            yield "waiting"
            at("waiting")

    parts.asyncio = type("asyncio", (), {"sleep": staticmethod(lambda n: Wait())})
    coroutine = parts.waits(0, parts.inner)
    try:
        while True:
            print(coroutine.send(None))
    except StopIteration as stop:
        print(stop.value)


def threads():
    started = threading.Event()

    def work(n):
        parts.used(started.wait)
        print_later.append(parts.plain(n)[0])
    print_later = []
    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    started.set()
    for worker in workers:
        worker.join()
    print(sorted(print_later))
    g = parts.numbers(3)
    print(next(g))
    other = threading.Thread(target=lambda: print(next(g)))
    other.start()
    other.join()
    at("-")
    print(next(g), list(g))
    daemon = threading.Thread(target=parts.used, args=(time.sleep, 600), daemon=True)
    daemon.start()
    at("-")


def recursion():
    sys.setrecursionlimit(20000)
    threading.stack_size(512 << 20)
    thread = threading.Thread(target=lambda: print(parts.deep(10000)))
    thread.start()
    thread.join()
    sys.setrecursionlimit(1000)
    print(parts.deep(900))
    try:
        parts.deep(5000)
    except RecursionError:
        print("too deep")
    parts.plain(1)
    at("-")


def interrupt():
    def hit(n):
        os.kill(os.getpid(), 2)
        time.sleep(10)
    parts.used(hit, 1)


def os_exit():
    parts.plain(1)
    parts.used(os._exit, 7)


def thread_exit():
    thread = threading.Thread(target=parts.used, args=(sys.exit, 3))
    thread.start()
    thread.join()
    parts.plain(1)
    parts.used(sys.exit, 4)


def forks():
    sys.stdout.flush()
    generator = parts.numbers(3)
    next(generator)

    def child():
        pid = os.fork()
        if pid == 0:
            parts.plain(1)
            next(generator)
        return pid
    pid = parts.used(child)
    if pid:
        print(os.waitpid(pid, 0)[1])
    at("-")
    sys.stdout.flush()
    if not pid:
        os._exit(0)


if __name__ == "__main__":
    print(locals().keys() - {"__cached__"} == globals().keys() - {"__cached__"})
    globals()[sys.argv[1]]()
