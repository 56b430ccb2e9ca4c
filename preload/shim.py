"""shim.py - what the library does inside a Python process: it waits for imports, and knows what a stage is in Python.

Run once, before the program, in a namespace that no module holds; preload/python.c gives it the builtins of
preload/builtins.def and `_config`. Parts with a topic of their own (preload/shim_*.py) run in the same namespace when
they are first needed: `_PARTS` says at which import.

Rules for all of it. Nothing is imported that the interpreter has not imported already, unless the program does. The
program's modules, their __spec__ and __loader__, sys.modules and tracebacks look as they do without us. An exception of
ours never reaches the program: what can fail is `_guarded`, one warning, and from there on that part is off.
"""

import _thread
import _weakref
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
            if _is_handlers(error):
                raise
            broken = True
            _warn("%s is off: %s: %s" % (function.__name__.strip("_"), type(error).__name__, error))
            return None
    return guarded


def _is_handlers(error):
    """True for what a signal handler of the program has raised, which ran while code of ours did: it is the program's.
    What such a handler is called with tells it: a frame of ours."""
    try:
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == "<tfinject>":
            traceback = traceback.tb_next
        found = list(traceback.tb_frame.f_locals.values()) if traceback else []
        for value in found:
            for item in value if type(value) is tuple else (value,):
                if type(item) is type(traceback.tb_frame) and item.f_code.co_filename == "<tfinject>":
                    return True
    except Exception:  # an audit hook may refuse to show frames
        pass
    return False


def _hide(error):
    """Takes our frames off the beginning of a traceback that goes on to the program; what raised it is in its own code.
    Where an exception is raised again (`raise`), versions before 3.11 have another copy of the traceback, and show them."""
    try:
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == "<tfinject>":
            traceback = traceback.tb_next
        error.__traceback__ = traceback
    except Exception:  # an audit hook may refuse to show frames
        pass


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
        if name not in _awaited or not _is_import(_frame()):
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
    try:
        return frame.f_back is not None and frame.f_back.f_code.co_name == "_find_and_load_unlocked"
    except Exception as error:  # of an audit hook
        if _is_handlers(error):
            raise
        return False


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
# A task runs in steps, each a callback of its event loop. What a step leaves open is the task's, and is taken off the
# thread until its next step, libtorch's ranges (record_function) with it. Callbacks that are no task's leave theirs open.
# asyncio's loops run a step in Handle._run; uvloop's handles are its own, so there a step is wrapped when it is given to
# the loop. The first step of an eager task runs where it is created.

_suspended = {}  # id of a task -> (its stages, ids of all its ranges, a weak reference that removes them with it)
_watched_loops = []  # classes of event loops whose tasks' steps are seen


def _task_of(callback):
    return _if_task(getattr(callback, "__self__", None))


def _if_task(task):
    return task if hasattr(type(task), "_asyncio_future_blocking") else None


@_guarded
def _resume_task(task):
    entry = _suspended.pop(id(task), None)
    if entry:
        home = _local.open
        for stage in entry[0]:
            stage.home = home
            home.append(stage)
        for range_id in entry[1]:
            _resume(range_id)


@_guarded
def _suspend_task(task, home, depth, before):
    ids = [range_id for range_id in _ranges() if range_id not in before]
    if task is None or not ids:
        return
    stages = home[depth:]
    del home[depth:]
    for stage in stages:
        stage.home = stages
    for range_id in reversed(ids):
        _pause(range_id)
    key = id(task)
    _suspended[key] = (stages, ids, _weakref.ref(task, lambda _: _suspended.pop(key, None)))


def _looks_like(function, original):
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(function, attribute, getattr(original, attribute, None))
    return function


def _stepping(run):
    """The function, which calls a handle's _callback, with the stages of the task that this is a step of."""
    local, suspended = _local, _suspended

    def _run(self, *args):
        home = local.open
        depth = len(home)
        before = _ranges()
        task = _task_of(self._callback)  # a handle that is cancelled meanwhile forgets its callback
        if suspended:
            _resume_task(task)
        try:
            return run(self, *args)
        except BaseException as error:
            _hide(error)
            raise
        finally:
            if _ranges() != before:
                _suspend_task(task, home, depth, before)
    return _looks_like(_run, run)


def _watch_asyncio(module):
    _debug("shim: asyncio")
    module.Handle._run = _stepping(module.Handle._run)


def _watch_base_loop(module):
    _watch_loop(module.BaseEventLoop)


def _watch_loop(loop):
    """Says that the steps of its tasks are seen; those of eager tasks (3.12) begin in create_task."""
    create, local = loop.create_task, _local
    _watched_loops.append(loop)
    if sys.version_info < (3, 12):
        return

    def create_task(self, *args, **kwargs):
        if self.get_task_factory() is None and not kwargs.get("eager_start"):
            return create(self, *args, **kwargs)
        home = local.open
        depth = len(home)
        before = _ranges()
        task = create(self, *args, **kwargs)
        if _ranges() != before:
            _suspend_task(_if_task(task), home, depth, before)
        return task

    loop.create_task = _looks_like(create_task, create)


class _Step:
    """A step of a task, as a callback."""
    __slots__ = ("_callback",)

    def __init__(self, callback):
        self._callback = callback

    def __repr__(self):
        return repr(self._callback)

    def _run(self, *args):
        return self._callback(*args)

    __call__ = _stepping(_run)


def _watch_uvloop(module):
    Loop = module.Loop
    soon = Loop.call_soon
    _debug("shim: uvloop")

    def call_soon(self, callback, *args, **kwargs):
        return soon(self, callback if _task_of(callback) is None else _Step(callback), *args, **kwargs)

    Loop.call_soon = _looks_like(call_soon, soon)
    _watch_loop(Loop)


def _begin():
    _debug("shim: begin")
    _when_imported("asyncio.events", _watch_asyncio)
    _when_imported("asyncio.base_events", _watch_base_loop)
    _when_imported("uvloop", _watch_uvloop)
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
