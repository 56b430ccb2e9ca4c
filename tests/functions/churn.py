"""churn.py - makes threads, greenlets, interpreters, generators, coroutines and code objects, and ends them, as fast as it can.

    python churn.py SECONDS [LOOKS TRACE_DIRECTORY]

Each line that calls a function of this file says which: `#> name name`. A name without a caller here is a root: `#> root`.
"""

import asyncio
import sys
import threading
import time

try:
    from greenlet import greenlet
except ImportError:
    greenlet = None
try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        interpreters = None

END = time.monotonic() + float(sys.argv[1])
INNER = '''
def inner_low(n):
    for i in range(n): pass
def inner_high(n):
    inner_low(n) #> inner_low
for i in range(20): inner_high(50) #> inner_high
'''


def leaf(n):
    x = 1
    for i in range(n): x = x * 3 & 255
    return x


def other(n, a=0, b=0, c=0):
    return leaf(n) + a  #> leaf


def numbers(n):
    for i in range(n):
        yield leaf(3)  #> leaf


def short(n):
    yield n


def nested(n):
    yield from numbers(n)  #> numbers
    yield from short(n)  #> short


def deep(n):
    if n:
        return deep(n - 1)  #> deep
    return other(5)  #> other


def mixed(r):
    for x in nested(4): r += x  #> nested
    for x in short(r): r += x  #> short
    made = (leaf(1) for i in short(2))  #> leaf short <genexpr>
    for x in made: r += x  #> <genexpr>
    key = (lambda x:
           other(x))  #> other
    r += max([2], key=key)  #> <lambda>
    return deep(r % 9)  #> deep


async def inner(r):
    for x in short(r): r += x  #> short
    await asyncio.sleep(0)
    return other(r % 5)  #> other


async def outer(r):
    return await inner(r) + await inner(r + 1)  #> inner


async def gathered():
    await asyncio.gather(outer(1), outer(2), outer(3))  #> outer


def calls():  #> root
    while time.monotonic() < END:
        mixed(7)  #> mixed


def coroutines():  #> root
    while time.monotonic() < END:
        asyncio.run(gathered())  #> gathered


def codes():  #> root
    n = 0
    while time.monotonic() < END:
        n = n % 3000 + 1
        space = {}
        exec(compile('\n' * n + f'def churn_{n}(n):\n x = 1\n for i in range(n): x += i\n return x', f'churn_{n}.py', 'exec'), space)  #> <module>
        space[f'churn_{n}'](30)  #> churn_


def threads():  #> root
    while time.monotonic() < END:
        made = list(map(lambda i: threading.Thread(target=mixed, args=(i,)), range(3)))  #> <lambda>
        for thread in made: thread.start()
        for thread in made: thread.join()


def switch(n):
    for x in short(n): n += x  #> short
    greenlet.getcurrent().parent.switch(n)
    return other(3)  #> other


def green(n):  #> root
    return switch(n) + leaf(2)  #> switch leaf


def greenlets():  #> root
    while time.monotonic() < END:
        made = list(map(greenlet, [green] * 20))
        for one in made: one.switch(1)
        for one in made[::2]: one.switch(2)  # the others are destroyed


def machines():  #> root
    while time.monotonic() < END:
        one = interpreters.create()
        (getattr(interpreters, 'exec', None) or interpreters.run_string)(one, INNER)
        interpreters.destroy(one)


if __name__ == '__main__':
    sys.setswitchinterval(0.0005)
    roots = [calls, calls, coroutines, codes, threads] + [greenlets] * bool(greenlet) + [machines] * bool(interpreters and 'alone' not in sys.argv)
    made = list(map(lambda root: threading.Thread(target=root), roots))  #> <lambda>
    for thread in made: thread.start()
    for thread in made: thread.join()
    print(len(roots))
