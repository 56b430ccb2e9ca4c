"""shim.py - what the library does inside a Python process: it waits for imports, and knows what a stage is in Python.

Run once, before the program, in a namespace that no module holds; preload/python.c gives it the builtins of
preload/builtins.def and `_config`. Parts with a topic of their own (preload/shim_*.py) run in the same namespace when
they are first needed: `_PARTS` says at which import.

Rules for all of it. Nothing is imported that the interpreter has not imported already, unless the program does. The
program's modules, their __spec__ and __loader__, sys.modules and tracebacks look as they do without us. An exception of
ours never reaches the program: what can fail is `_guarded`, one warning, and from there on that part is off.
"""

import _thread
import sys

# (module, part, function): once the module has been imported, the part is loaded and its function called with it.
_PARTS = (
    ("torch", "torch", "_watch_torch"),
    ("torch.distributed.distributed_c10d", "torch", "_watch_distributed"),
    ("telefuser.utils.profiler", "markers", "_mark_telefuser"),
    ("cache_dit.profiler", "markers", "_mark_cache_dit"),
    ("cache_dit._utils.utils", "markers", "_mark_cache_dit_arguments"),
    ("diffusers.pipelines.pipeline_utils", "auto", "_auto_diffusers"),
    ("transformers.generation.utils", "auto", "_auto_transformers"),
) + tuple((name, "torch", "_watch_native") for name in _config["native"])


def _guarded(function):
    """The function; if it raises, that is one warning, and it does nothing from then on."""
    broken = False

    def guarded(*args):
        nonlocal broken
        if broken:
            return None
        try:
            return function(*args)
        except Exception as error:
            broken = True
            _warn("%s is off: %s: %s" % (function.__name__.strip("_"), type(error).__name__, error))
            return None
    return guarded


# ---- imports ----
#
# A finder stands first in sys.meta_path while there is something to wait for. It lets the others find the module, and
# gives the spec it gets a class whose `_initializing` says when the import is over: nothing of ours is on the stack while
# the module runs, and the class is the old one again before anybody else can ask.

_ModuleSpec = sys.modules["_frozen_importlib"].ModuleSpec
_awaited = {}  # module's name -> functions


class _Spec(_ModuleSpec):
    __slots__ = ()
    __module__ = _ModuleSpec.__module__
    __qualname__ = _ModuleSpec.__qualname__

    @property
    def _initializing(self):
        return self.__dict__.get("_initializing", False)

    @_initializing.setter
    def _initializing(self, value):
        self.__dict__["_initializing"] = value
        if not value:
            self.__class__ = _ModuleSpec
            _imported(self.name)


_Spec.__name__ = _ModuleSpec.__name__


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in _awaited or not _is_import(sys._getframe(1)):
            return None
        for finder in list(sys.meta_path):
            find = None if finder is _Finder else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if type(spec) is _ModuleSpec:
                    spec.__class__ = _Spec
                return spec
        return None


def _is_import(frame):
    """Not importlib.util.find_spec(), which imports nothing."""
    return frame.f_back is not None and frame.f_back.f_code.co_name == "_find_and_load_unlocked"


def _imported(name):
    module = sys.modules.get(name)
    if module is None:
        return  # it raised: the next attempt is another one
    for function in _awaited.pop(name, ()):
        function(module)
    if not _awaited and _Finder in sys.meta_path:
        sys.meta_path.remove(_Finder)


def _when_imported(name, function):
    """Calls function(module) right after the module's first import, or now if it is there."""
    function = _guarded(function)
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        function(module)
        return
    _awaited.setdefault(name, []).append(function)
    if module is not None and type(spec) is _ModuleSpec:
        spec.__class__ = _Spec
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


# ---- stages ----
#
# The stages a thread has open stand in a list, outermost first; a stage knows the list it is in. What is suspended takes
# its stages out of the thread's list and brings them back: asyncio's tasks here, generators in shim_functions.py.

class _Local(_thread._local):
    def __init__(self):
        self.open = []


_local = _Local()


class _stage:
    """A stage, for `with`; may be left in another thread than it was entered in. The number is its payload."""
    __slots__ = ("name", "flags", "number", "id", "home")

    def __init__(self, name, flags, number=None):
        self.name = name
        self.flags = flags
        self.number = number
        self.id = 0
        self.home = None

    def __enter__(self):
        self.id = _enter(self.name, self.flags, self.number)
        if self.id:
            self.home = _local.open
            self.home.append(self)
        return self

    def __exit__(self, kind=None, error=None, traceback=None):
        id, home = self.id, self.home
        if id:
            self.id = 0
            self.home = None
            _leave(id)
            if home and home[-1] is self:  # nothing here needs more of the stack than __enter__ did
                del home[-1]
            elif self in home:
                home.remove(self)


def _suspend(home, first):
    """Takes the stages from the first one on off this thread; returns them."""
    taken = home[first:]
    del home[first:]
    for stage in reversed(taken):
        _pause(stage.id)
        stage.home = taken
    return taken


def _restore(taken):
    """Puts them back, on this thread."""
    home = _local.open
    for stage in list(taken):
        stage.home = home
        home.append(stage)
        _resume(stage.id)
    taken.clear()


# ---- asyncio ----
#
# A task runs in steps, each a call of its event loop's Handle._run. What a step leaves open is the task's, and is taken
# off the thread until its next step, libtorch's ranges (record_function) with it. Handles that are no task's leave theirs
# open. Event loops with handles of their own (uvloop) are not seen.

_suspended = {}  # id of a task -> (its stages, ids of all its ranges, a weak reference that removes them with it)


def _keep(task, stages, ids, ref):
    key = id(task)
    _suspended[key] = (stages, ids, ref(task, lambda _: _suspended.pop(key, None)))


def _watch_asyncio(module):
    import _weakref  # built in
    Handle = module.Handle
    run, local, suspended = Handle._run, _local, _suspended
    _debug("shim: asyncio")

    def task_of(handle):
        task = getattr(handle._callback, "__self__", None)
        return task if hasattr(type(task), "_asyncio_future_blocking") else None

    @_guarded
    def resume(handle):
        entry = suspended.pop(id(task_of(handle)), None)
        if entry:
            home = local.open
            for stage in entry[0]:
                stage.home = home
                home.append(stage)
            for range_id in entry[1]:
                _resume(range_id)

    @_guarded
    def suspend(task, home, depth, before):
        ids = [range_id for range_id in _ranges() if range_id not in before]
        if task is None or not ids:
            return
        stages = home[depth:]
        del home[depth:]
        for stage in stages:
            stage.home = stages
        for range_id in reversed(ids):
            _pause(range_id)
        _keep(task, stages, ids, _weakref.ref)

    def _run(self):
        home = local.open
        depth = len(home)
        before = _ranges()
        if suspended:
            resume(self)
        task = task_of(self)  # a handle that is cancelled meanwhile forgets its callback
        try:
            return run(self)
        finally:
            if _ranges() != before:
                suspend(task, home, depth, before)

    _run.__qualname__ = run.__qualname__
    _run.__module__ = run.__module__
    _run.__doc__ = run.__doc__
    Handle._run = _run


def _begin():
    _debug("shim: begin")
    _when_imported("asyncio.events", _watch_asyncio)
    for module, part, function in _PARTS:
        def act(found, part=part, function=function):
            if _load(part):
                _debug("shim: " + function.strip("_"))
                globals()[function](found)
        act.__name__ = part
        _when_imported(module, act)
    if any(entry != "auto" for entry in _config["stages"]):
        _load("functions")
    _debug("shim: ready")


_guarded(_begin)()
