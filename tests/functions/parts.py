"""parts - functions of every kind, most of which are stages; each marks the stage it expects to be in."""
import asyncio
import contextlib
import functools
import math

from probe import at

sqrt = math.sqrt  # no Python function
COUNT = 0


def traced(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        at("-")
        return function(*args, **kwargs)
    return wrapper


def anonymous(function):
    def wrapper(*args):
        return function(*args)
    return wrapper


def plain(x, y=2, *rest, k=1, **more):
    "documented"
    global COUNT
    COUNT += 1
    at("plain")

    def inner(z):
        at("plain")
        return x + z
    return inner(y), rest, k, more


@traced
def decorated(a):
    at("decorated")
    return a


@anonymous
def hidden(a):
    at("hidden")
    return a


if COUNT == 0:
    def twice():
        at("twice")
        return "first"
else:
    def twice():
        return "second"


class Base:
    def method(self, z):
        at("Base.method")
        return "base", z

    @property
    def size(self):
        at("-")
        return 3


class Part(Base):
    def __init__(self):
        self.__secret = 5

    def method(self, z):
        at("Part.method")
        found = super().method(z)
        at("Part.method")
        return found, self.__secret

    @classmethod
    def made(cls, z):
        at("Part.made")
        return cls.__name__, z

    @staticmethod
    def free(z):
        at("Part.free")
        return z


def fails(x):
    at("fails")
    try:
        raise ValueError(x)
    finally:
        at("fails")


def numbers(n):
    total = 0
    for i in range(n):
        at("numbers")
        try:
            got = yield i
        except KeyError:
            at("numbers")
            got = 100
        at("numbers")
        total += got or 0
    return total


def chain(n):
    at("chain")
    total = yield from numbers(n)
    at("chain")
    yield "total"
    return total


def countdown(n):
    at("countdown")
    if n:
        yield n
        at("countdown")
        yield from countdown(n - 1)
        at("countdown")


@contextlib.contextmanager
def section(name):
    at("section")
    yield name
    at("section")


async def waits(n, then):
    at("waits")
    await asyncio.sleep(n)
    at("waits")
    return await then() if then else n


async def inner():
    at("inner")
    await asyncio.sleep(0)
    at("inner")
    return "inner"


async def items(n):
    for i in range(n):
        at("items")
        await asyncio.sleep(0)
        at("items")
        yield i
    at("items")


def deep(n):
    return deep(n - 1) + 1 if n else 0


def used(function, *args):
    at("used")
    result = function(*args)
    at("used")
    return result
