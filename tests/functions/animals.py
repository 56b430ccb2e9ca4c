"""animals - every kind of object that a module or a class can hold; zoo.py uses each of them."""
import asyncio
import collections
import contextlib
import enum
import functools
import math
import operator
import time
import typing


def plain(x, y=2, *rest, k=1, **more):
    "documented"
    return x + y + k


def annotated(x: int, y: "typing.Optional[str]" = None) -> int:
    return x if y is None else len(y)


def positional(x, /, y, *, z=3):
    return x, y, z


def defaults(x=[], y={"a": 1}, z=frozenset({1})):
    return len(x), sorted(y), sorted(z)


def recursive(n):
    return n * recursive(n - 1) if n else 1


def celled(x):
    def inner():
        return x + 1
    return inner() + sum(x for _ in range(2))


def with_class(x):
    class Local:
        def method(self):
            return __class__.__name__, x
    return Local().method()


def raises(x):
    raise ValueError(x)


def marked(function):
    function.mark = "marked"
    return function


@marked
def attributed(x):
    return attributed.mark, x


def wraps(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper


def hides(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper


@wraps
def wrapped(x):
    return x + 10


@wraps
@wraps
def twice(x):
    return x + 20


@hides
def hidden(x):
    return x + 30


@hides
def hidden_too(x):
    return x + 40


def numbers(n):
    for i in range(n):
        got = yield i
        if got:
            yield got
    return n


def delegating(n):
    total = yield from numbers(n)
    yield total


async def coroutine(x):
    await asyncio.sleep(0)
    return x


async def asynchronous(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


@contextlib.contextmanager
def managed(x):
    yield x


@contextlib.asynccontextmanager
async def managed_too(x):
    yield x


@functools.lru_cache(None)
def cached(x):
    return x + 1


@functools.lru_cache(maxsize=2)
def bounded(x):
    return x + 2


@functools.singledispatch
def single(x):
    return "any", x


@single.register(int)
def _(x):
    return "int", x


@typing.overload
def overloaded(x: int) -> int: ...
@typing.overload
def overloaded(x: str) -> str: ...
def overloaded(x):
    return x * 2


@typing.no_type_check
def unchecked(x):
    return x


def closure_of(n):
    def add(x):
        return x + n
    return add


added = closure_of(5)
added_too = closure_of(6)
lam = lambda x: x + 1  # noqa: E731
partial = functools.partial(plain, 1, k=5)
partial_of_lambda = functools.partial(lambda a, b: a + b, 1)
builtin = len
of_c = math.sqrt
bound_builtin = [3, 1, 2].count
getter = operator.itemgetter(1)
slot = object.__repr__
method_of_c = dict.get
alias = plain


class Base:
    def __init__(self, x=1):
        self.x = x

    def method(self, y):
        return self.x + y

    def inherited(self):
        return "base", self.x


class Animal(Base):
    shared = functools.partial(pow, 2)
    now = time.sleep
    __secret = 3

    def __init__(self, x=1):
        super().__init__(x)

    def __repr__(self):
        return "Animal(%r)" % self.x

    def __eq__(self, other):
        return type(other) is Animal and self.x == other.x

    def __hash__(self):
        return hash(self.x)

    def __len__(self):
        return 3

    def __call__(self, y):
        return self.x * y

    def __getattr__(self, name):
        if name.startswith("dynamic"):
            return name
        raise AttributeError(name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def __iter__(self):
        yield self.x

    def __getitem__(self, i):
        return i

    def method(self, y):
        return super().method(y), self.__secret

    @classmethod
    def made(cls, x):
        return cls(x)

    @staticmethod
    def free(x):
        return x + 1

    @property
    def size(self):
        return self.x

    @size.setter
    def size(self, value):
        self.x = value

    @functools.cached_property
    def costly(self):
        return self.x + 100

    @functools.lru_cache(None)
    def remembered(self, y):
        return self.x, y

    def _two(self, a, b):
        return a, b
    half = functools.partialmethod(_two, 1)

    @functools.singledispatchmethod
    def single(self, x):
        return "any"

    @single.register
    def _(self, x: int):
        return "int"

    @wraps
    def wrapped(self, y):
        return self.x, y

    async def coroutine(self, y):
        return self.x + y

    def numbers(self):
        yield self.x

    class Descriptor:
        def __get__(self, instance, owner=None):
            return lambda x: x + 100
    described = Descriptor()

    class Inner:
        def deep(self, x):
            return x


class Meta(type):
    def made(cls, x):
        return cls.__name__, x

    def __call__(cls, *args):
        return super().__call__(*args)


class OfMeta(metaclass=Meta):
    def method(self, x):
        return x


class Slotted:
    __slots__ = ("x",)

    def method(self):
        return "slotted"


class Color(enum.Enum):
    RED = 1

    def describe(self):
        return self.name


Point = collections.namedtuple("Point", "x y")
animal = Animal(2)
bound = animal.method
SCRIPTED = """
def made(x):
    return x + 7
"""
exec(SCRIPTED)
