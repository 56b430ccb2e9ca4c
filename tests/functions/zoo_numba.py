"""zoo_numba - uses, compiles, pickles and inspects each of numba_animals; its output is the same with the library and without."""
import copy
import importlib
import inspect
import pickle
import re
import sys

import numba
import numba_animals as n
import numpy as np


def said(function):
    try:
        return re.sub(r"0x[0-9a-f]+", "0x", repr(function()))
    except BaseException as error:
        return re.sub(r"0x[0-9a-f]+", "0x", "%s %s" % (type(error).__name__, str(error)[:200]))


a = np.arange(4.0)
for _ in range(2):
    print("use", said(lambda: (n.helper(1), n.compiled(1), n.inlined(1), n.caller(1), n.in_object_mode(1), n.calls_helper(2), n.later(1))))
    print("arrays", said(lambda: (n.vectorized(a, a), n.vectorized.reduce(a), n.generalized(a), n.stencil(a), n.callback.ctypes(2.0), list(n.numbers(3)))))
    print("class", said(lambda: (n.Counter(1).add(2), n.Counter(1).n)))
print("python", said(lambda: (n.compiled.py_func(1), n.caller.py_func(1), len(n.caller.signatures), n.caller.inspect_types is not None)))
print("later", said(lambda: numba.njit(n.later)(1)), said(lambda: numba.njit(n.helper)(1)), said(lambda: numba.njit(lambda x: n.compiled(x))(1)))
for name, value in sorted(vars(n).items()):
    if name.startswith("__") or inspect.ismodule(value):
        continue
    print("look", name, type(value).__name__, callable(value), inspect.isfunction(value), said(lambda: inspect.signature(value)), said(lambda: value.__name__))
    print("same", name, said(lambda: (value == value, {value: 1}[value], value is copy.copy(value))))
    for pickler in [pickle, *map(importlib.import_module, sys.argv[1:])]:
        print(pickler.__name__, name, said(lambda: type(pickler.loads(pickler.dumps(value))).__name__))
        print(pickler.__name__, name, said(lambda: pickler.loads(pickler.dumps(value))(3)) if name in ("helper", "compiled", "caller", "later", "in_object_mode") else "")
