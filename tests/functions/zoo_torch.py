"""zoo_torch - compiles, traces and scripts functions and modules of torch_animals; its output is the same with the library and without."""
import copy
import importlib
import inspect
import io
import pickle
import re
import sys

import torch
import torch_animals as t
from torch._dynamo.utils import counters


def said(function):
    try:
        return re.sub(r"0x[0-9a-f]+", "0x", repr(function()))
    except BaseException as error:
        return re.sub(r"0x[0-9a-f]+", "0x", "%s %s" % (type(error).__name__, str(error)[:200]))


def compiled(function, *args):
    torch._dynamo.reset()
    counters.clear()
    made = torch.compile(function, fullgraph=True, backend="eager")
    found = said(lambda: (made(*args), made(*args)))
    return found, {k: dict(v) for k, v in counters.items() if k in ("stats", "graph_break", "unimplemented")}


def picklers():
    yield "pickle", pickle.dumps, pickle.loads
    for name in sys.argv[1:]:
        module = importlib.import_module(name)
        if name == "joblib":
            def dumps(value):
                file = io.BytesIO()
                module.dump(value, file)
                return file.getvalue()
            yield name, dumps, lambda data: module.load(io.BytesIO(data))
        else:
            yield name, module.dumps, module.loads


def members():
    """Yields (name, object) of all that the module and its classes hold."""
    for holder in (t, t.Model, t.Op):
        for name, value in sorted(vars(holder).items()):
            if not name.startswith("__") and not inspect.ismodule(value):
                yield "%s.%s" % (holder.__name__, name), value


x = torch.arange(4.0)
print("use", said(lambda: (t.function(x), t.caller(x), t.nothing(x), t.inference(x).is_inference(), t.decorated(x))))
print("objects", said(lambda: (t.model(x).shape, len(list(t.model.parameters())), t.model.train().training, t.compiled(x), t.scripted(x), t.ufunc(1, 2))))
print("more", said(lambda: (t.Op.apply(x), t.op(x), t.Model()(x), t.ufunc.reduce([1, 2]), len(str(t.scripted.graph)) > 10)))
if hasattr(t, "kernel"):
    print("kernel", said(lambda: (type(t.kernel[(1,)]).__name__, t.kernel.fn.__name__, type(t.kernel).__name__)))
for name in ("function", "caller", "helper", "decorated", "nothing", "Model"):
    value = getattr(t, name)
    print("compile", name, compiled(value() if name == "Model" else value, x))
    print("fx", name, said(lambda: torch.fx.symbolic_trace(value() if name == "Model" else value).code))
    print("script", name, said(lambda: torch.jit.script(value() if name == "Model" else value).code))
    print("pickle", name, said(lambda: pickle.loads(pickle.dumps(value)) is value), inspect.isfunction(value), said(lambda: inspect.signature(value)))
for name, value in members():
    print("look", name, type(value).__name__, callable(value), inspect.isfunction(value), said(lambda: inspect.signature(value)), said(lambda: sorted(vars(value))))
    print("same", name, said(lambda: (value == value, {value: 1}[value], value is copy.copy(value), type(copy.deepcopy(value)).__name__)))
    for pickler, dumps, loads in picklers():
        print(pickler, name, said(lambda: type(loads(dumps(value))).__name__), said(lambda: len(dumps(value))))
for pickler, dumps, loads in picklers():
    print(pickler, "used", said(lambda: loads(dumps(t.caller))(x)), said(lambda: loads(dumps(t.Model()))(x)), said(lambda: loads(dumps(t.decorated))(x)))


def backward():
    y = torch.ones(1, requires_grad=True)
    t.Op.apply(y).sum().backward()
    return y.grad


file = io.BytesIO()
torch.save(t.model, file)
print("save", len(file.getvalue()) > 0, said(backward), said(lambda: torch.func.vmap(t.helper)(x)), said(lambda: torch.func.grad(lambda v: t.helper(v).sum())(x)))
print("export", said(lambda: torch.export.export(t.Model(), (x,)).graph_module.code))
