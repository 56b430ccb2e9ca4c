"""shim_stages - defines a stage in Python, and watches the stages of asyncio's tasks.

It is loaded by the other parts that open stages, and by the import of asyncio.
"""

import _thread
import sys

# ---- stages ----
#
# The open stages of a thread are in a list, outermost first; a stage knows its list. A suspended task or generator
# takes its stages out of the thread's list and brings them back: asyncio's tasks here, generators in
# shim_functions.py.

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
            if home and home[-1] is self:  # nothing here needs more stack than __enter__ did
                del home[-1]
            elif self in home:
                home.remove(self)


def _suspend(home, first):
    """Takes the stages from `first` on off this thread; returns them."""
    taken = home[first:]
    del home[first:]
    for stage in reversed(taken):
        _pause(stage.id)
        stage.home = taken
    return taken


def _restore(taken):
    """Puts suspended stages back, on this thread."""
    home = _local.open
    for stage in list(taken):
        stage.home = home
        home.append(stage)
        _resume(stage.id)
    taken.clear()


# ---- replaced functions ----

def _replace(holder, name, make):
    """Puts make(the original) in the place of a class's method or a module's function. It looks like the original, and
    shows no frame of ours in a traceback."""
    found = holder.__dict__[name]
    theirs = getattr(found, "__func__", found)
    function = make(theirs)

    def made_now(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            if type(error) is not TypeError or error.__traceback__.tb_next is not None:
                _hide(error)
                raise
        try:  # the arguments do not fit: the original says so, in its words
            return theirs(*args, **kwargs)
        except BaseException as error:
            _hide(error)
            raise

    async def made_later(*args, **kwargs):
        try:
            return await function(*args, **kwargs)
        except BaseException as error:
            _hide(error)
            raise
    made = made_later if theirs.__code__.co_flags & 0x80 else made_now  # CO_COROUTINE: a script may ask for it
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__defaults__", "__kwdefaults__"):
        setattr(made, attribute, getattr(theirs, attribute))
    made.__wrapped__ = theirs  # for inspect: signature and source
    setattr(holder, name, made if found is theirs else type(found)(made))  # a static method, or one of the class


# ---- asyncio ----
#
# A task runs in steps, each a callback of its event loop. Stages that a step leaves open belong to the task. They are
# taken off the thread until its next step, together with libtorch's ranges (record_function). Callbacks outside tasks
# leave theirs open. asyncio's loops run a step in Handle._run. uvloop has handles of its own, so a step is wrapped
# there when it is given to the loop. The first step of an eager task runs where the task is created.

_suspended = _Weak()  # task -> (its stages, ids of all its ranges)
_watched_loops = []  # classes of event loops whose tasks' steps are watched


def _task_of(callback):
    return _if_task(getattr(callback, "__self__", None))


def _if_task(task):
    return task if hasattr(type(task), "_asyncio_future_blocking") else None


@_guarded
def _resume_task(task):
    entry = _suspended.pop(task)
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
    _suspended.set(task, (stages, ids))


def _looks_like(function, original):
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(function, attribute, getattr(original, attribute, None))
    return function


def _before_step(handle):
    """Called before a handle's _callback is: it runs with the stages of the task that this is a step of."""
    home = _local.open
    task = _task_of(handle._callback)  # a handle that is cancelled meanwhile forgets its callback
    state = task, home, len(home), _ranges()
    if _suspended.entries:
        _resume_task(task)
    return state


def _after_step(state):
    if _ranges() != state[3]:
        _suspend_task(*state)


def _watch_asyncio(module):
    _debug("shim: asyncio")
    module.Handle._run = _around(module.Handle._run, _before_step, _after_step)


def _watch_base_loop(module):
    _watch_loop(module.BaseEventLoop)


def _watch_loop(loop):
    """Watches the steps of a loop's tasks; those of eager tasks (3.12) begin in create_task."""
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
    __slots__ = ("_callback", "__self__")  # uvloop's messages name the task

    def __init__(self, callback):
        self._callback = callback
        self.__self__ = callback.__self__

    def __repr__(self):
        return repr(self._callback)

    __call__ = _around(None, _before_step, _after_step)


def _watch_uvloop(module):
    Loop = module.Loop
    _debug("shim: uvloop")
    # No frame of ours: in debug mode uvloop shows who called.
    Loop.call_soon = _changing(Loop.call_soon, lambda callback: callback if _task_of(callback) is None else _Step(callback))
    _watch_loop(Loop)
