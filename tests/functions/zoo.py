"""zoo - uses, pickles, compares, inspects and traces each of the animals; its output is the same with the library and without."""
import asyncio
import copy
import dis
import importlib
import inspect
import io
import marshal
import pickle
import re
import subprocess
import sys
import types

import animals
from animals import Animal

for name in sys.argv[1:]:
    globals()[name] = importlib.import_module(name)


def here(x, scale=2):
    """a function of the script"""
    return x * scale


def here_numbers(n):
    for i in range(n):
        yield i


class Here:
    def method(self, x):
        return "here", x


def enters(x):
    with animals.managed(x) as value:
        return value


async def of_all(n):
    async with animals.managed_too(n) as m:
        return [i async for i in animals.asynchronous(m)]


a = Animal(4)
USES = {
    "plain": lambda: (animals.plain(1), animals.plain(1, 2, 3, k=4, z=5), animals.alias(1)),
    "annotated": lambda: (animals.annotated(1), animals.annotated(1, "abc")),
    "positional": lambda: animals.positional(1, y=2), "positional wrong": lambda: animals.positional(x=1, y=2),
    "defaults": lambda: animals.defaults(), "recursive": lambda: animals.recursive(5), "celled": lambda: animals.celled(3),
    "with_class": lambda: animals.with_class(3), "raises": lambda: animals.raises(3), "attributed": lambda: animals.attributed(1),
    "wrapped": lambda: animals.wrapped(1), "twice": lambda: animals.twice(1), "hidden": lambda: (animals.hidden(1), animals.hidden_too(1)),
    "numbers": lambda: list(animals.numbers(3)), "delegating": lambda: list(animals.delegating(2)),
    "coroutine": lambda: asyncio.run(animals.coroutine(3)), "asynchronous": lambda: asyncio.run(of_all(3)), "managed": lambda: enters(3),
    "cached": lambda: (animals.cached(1), animals.cached(1), animals.cached.cache_info()), "bounded": lambda: animals.bounded(1),
    "single": lambda: (animals.single(1), animals.single("a"), len(animals.single.registry)), "overloaded": lambda: animals.overloaded(2),
    "unchecked": lambda: animals.unchecked(1), "added": lambda: (animals.added(1), animals.added_too(1)), "lam": lambda: animals.lam(1),
    "partial": lambda: (animals.partial(2), animals.partial.args, animals.partial_of_lambda(3)),
    "builtin": lambda: (animals.builtin([1]), animals.of_c(4), animals.bound_builtin(3), animals.getter([1, 2]), animals.method_of_c({1: 2}, 1)),
    "method": lambda: (a.method(1), animals.bound(1), a.inherited(), Animal.method(a, 2)), "made": lambda: (Animal.made(3), animals.OfMeta.made(4)),
    "free": lambda: (Animal.free(1), a.free(2)), "size": lambda: (a.size, setattr(a, "size", 9), a.size), "costly": lambda: (a.costly, a.costly, sorted(vars(a))),
    "remembered": lambda: (a.remembered(1), Animal.remembered.cache_info()), "half": lambda: a.half(2),
    "singlemethod": lambda: (a.single(1), a.single("a")), "of a class": lambda: (a.wrapped(1), list(a.numbers()), a.described(1), Animal.Inner().deep(1)),
    "of a coroutine": lambda: asyncio.run(a.coroutine(1)), "special": lambda: (len(a), a == Animal(9), hash(a), a(3), a.dynamic, list(a), a[5], repr(a)),
    "shared": lambda: a.shared(3), "slotted": lambda: animals.Slotted().method(), "color": lambda: animals.Color.RED.describe(),
    "exec": lambda: animals.made(1), "here": lambda: (here(1), list(here_numbers(2)), Here().method(1)),
}


def said(function):
    try:
        return re.sub(r"0x[0-9a-f]+", "0x", repr(function()))
    except BaseException as error:
        lines, trace = [], error.__traceback__.tb_next
        while trace:
            lines.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
            trace = trace.tb_next
        return re.sub(r"0x[0-9a-f]+", "0x", "%s %s %s" % (type(error).__name__, error, lines[:4]))


def targets():
    """Yields (name, object) of each animal."""
    for holder in (animals, Animal, animals.OfMeta, animals.Slotted):
        for name, value in sorted(vars(holder).items()):
            if not name.startswith("__") and not isinstance(value, types.ModuleType):
                yield "%s.%s" % (holder.__name__, name), value
    for name in ("here", "here_numbers"):
        yield name, globals()[name]


def inspected(value):
    yield type(value).__name__, callable(value), inspect.isfunction(value), inspect.iscoroutinefunction(value), inspect.isgeneratorfunction(value)
    yield said(lambda: inspect.signature(value))
    yield said(lambda: inspect.getsourcelines(value))
    yield said(lambda: (value.__name__, value.__qualname__, value.__module__, value.__doc__))
    yield said(lambda: sorted(vars(value)))
    yield said(lambda: inspect.getclosurevars(value))
    yield said(lambda: typing_hints(value))
    if isinstance(value, types.FunctionType):
        code = value.__code__
        yield [getattr(code, n) for n in sorted(dir(code)) if n.startswith("co_") and n not in ("co_consts", "co_lines", "co_positions", "co_lnotab", "co_branches")]
        yield re.sub(r"0x[0-9a-f]+", "0x", repr(code.co_consts))
        out = io.StringIO()
        dis.dis(value, file=out)
        yield re.sub(r"0x[0-9a-f]+", "0x", out.getvalue())
        yield said(lambda: types.FunctionType(code.replace(co_name="other"), value.__globals__, closure=value.__closure__).__name__)
        yield said(lambda: marshal.loads(marshal.dumps(code)) == code and hash(code) == hash(code))
        yield said(lambda: types.FunctionType(code, {"__builtins__": {}}, closure=value.__closure__).__code__ is code)


def typing_hints(value):
    import typing
    return typing.get_type_hints(value)


def same(value):
    yield said(lambda: (value == value, value != value, value in [value], value is copy.copy(value), copy.deepcopy(value) == value))
    yield said(lambda: {value: 1}[value])


def picklers():
    yield "pickle", pickle.dumps, pickle.loads
    for name in ("cloudpickle", "dill"):
        if name in globals():
            yield name, globals()[name].dumps, globals()[name].loads
    if "joblib" in globals():
        import joblib
        def dumps(value):
            file = io.BytesIO()
            joblib.dump(value, file)
            return file.getvalue()
        yield "joblib", dumps, lambda data: joblib.load(io.BytesIO(data))


def traced(function, install):
    events = []

    def note(frame, event, arg):
        code = frame.f_code
        if "animals" in code.co_filename or "zoo" in code.co_filename:
            events.append((event, code.co_name, frame.f_lineno, getattr(arg, "__name__", "") if event.startswith("c_") else ""))
        elif code.co_filename.startswith("<t"):
            events.append((event, code.co_filename, code.co_name))
        return note
    install(note)
    try:
        function()
    except BaseException:
        pass
    finally:
        install(None)
    return events


def profiled():
    import cProfile
    import pstats
    profile = cProfile.Profile()
    profile.enable()
    for use in ("plain", "numbers", "hidden", "cached"):
        USES[use]()
    profile.disable()
    found = pstats.Stats(profile).stats
    return sorted((re.sub("0x[0-9a-f]+", "", str(of[2])), of[1], counts[0]) for of, counts in found.items())


def abroad(data, argument):
    """What a process without the library makes of pickled data."""
    script = "import pickle, sys; f = pickle.loads(sys.stdin.buffer.read()); print(f(%r))" % (argument,)
    result = subprocess.run([sys.executable, "-B", "-c", "import sys; sys.path[:0] = %r; %s" % (sys.path, script)], input=data, capture_output=True,
                            env={"PATH": "/usr/bin"})
    return result.returncode, result.stdout, result.stderr[-200:]


def main():
    for name, use in USES.items():
        print("use", name, said(use), said(use))
    for name, value in targets():
        for line in (*inspected(value), *same(value)):
            print("look", name, line)
    for pickler, dumps, loads in picklers():
        for name, value in targets():
            print(pickler, name, said(lambda: type(loads(dumps(value))).__name__), said(lambda: len(dumps(value))))
        print(pickler, "bound", said(lambda: loads(dumps(a.method))(3)))
        for function in (here, animals.lam, animals.added):
            print(pickler, "used", said(lambda: loads(dumps(function))(3)))
    for pickler in ("cloudpickle", "dill"):
        if pickler in globals():
            print(pickler, "abroad", said(lambda: abroad(globals()[pickler].dumps(here), 21)), said(lambda: abroad(globals()[pickler].dumps(animals.added), 21)))
    if "joblib" in globals():
        print("hash", [said(lambda: globals()["joblib"].hash(function)) for function in (here, animals.plain, Animal.method, a)])
    for name, use in USES.items():
        if name not in ("coroutine", "asynchronous", "of a coroutine"):
            print("trace", name, traced(use, sys.settrace))
            print("profile", name, traced(use, sys.setprofile))
    print("cProfile", profiled())
    g = animals.numbers(3)
    print(next(g), g.gi_code is animals.numbers.__code__, g.gi_frame.f_code is g.gi_code, g.gi_frame.f_locals, g.gi_frame.f_lineno)
    c = animals.coroutine(1)
    print(c.cr_code is animals.coroutine.__code__, c.cr_frame.f_code is c.cr_code, c.close())


if __name__ == "__main__":
    main()
