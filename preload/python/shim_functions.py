"""shim_functions - makes stages of the functions in TFI_STAGES: functions, methods, coroutines, generators.

Nothing stands between a function and its callers: no frame, no other object. If Python has sys.monitoring (3.12), the
function's code is watched with it. Before that the function gets code of its own source with two additions: it runs
inside `with`, and reports its yields. A function of a module is found when the module has been imported, one of the
script when its code is about to run. An object that is no Python function (a builtin, a callable object, the result
of a decorator without functools.wraps) is replaced by a function that calls it.

A stage is identified by the frame it runs in. The stage of a generator or asynchronous generator leaves its thread at
each yield, together with the stages opened in it. The stage of a coroutine leaves at each await, unless it runs in a
task that shim_stages.py watches, which takes all of the task's stages away.

torch.compile, when it traces a function, sees the code as it was written: the added code is behind a test that is a
constant to it.
"""

import sys

_FUNCTION = 0x800  # TFI_RANGE_* of include/tfi_trace.h
_PAUSES = 0x10000
_CO_VARARGS, _CO_VARKEYWORDS, _CO_GENERATOR, _CO_COROUTINE, _CO_ITERABLE, _CO_ASYNC = 4, 8, 0x20, 0x80, 0x100, 0x200

_Code = type(_begin.__code__)
_Function = type(_begin)
_Cell = type((lambda x: lambda: x)(0).__closure__[0])

_running = {}  # id of a frame -> its stage
_parked = {}  # id of a frame that has yielded -> the stages it took with it


class _Target:
    """An entry of TFI_STAGES."""

    def __init__(self, entry):
        self.entry = entry
        self.module, _, name = entry.partition(":")
        self.path = name.split(".")
        self.name = name  # the stage's name
        self.found = False

    def describe_call(self, stage, function, args, kwargs):
        text = describe_call(function, args, kwargs, self.name)
        if text:
            _signature(stage.id, 0, text)

    def describe_result(self, stage, value):
        text = None if value is None else describe_result(self.name, value)
        if text:
            _signature(stage.id, 1, text)


class _Watched:
    """Code of a target. In versions without monitoring, `with` of it is a call."""

    def __init__(self, target, code):
        self.target = target
        self.code = code
        self.pauses = code.co_flags & (_CO_GENERATOR | _CO_COROUTINE | _CO_ASYNC)
        # Gives the names of the parameters; it is never called.
        self.function = _Function(code, {}, closure=tuple(_Cell(None) for _ in code.co_freevars) or None)
        self.function.__module__, self.function.__qualname__ = target.module, target.name

    def begin(self, frame):
        stage = _stage(self.target.name, _FUNCTION | (_PAUSES if self.pauses else 0))
        stage.__enter__()
        if stage.id:
            key = id(frame)
            if key in _running:  # its frame has gone without an end, and this one has its address
                _leave_frame(key)
            _running[key] = stage
            self.target.describe_call(stage, self.function, *_arguments(self.code, frame))

    def __enter__(self):
        if _FRAGILE:
            _need(_ROOM)
        frame = _frame()
        try:
            _quiet(self.begin, frame)
        except BaseException:  # raised by a signal handler
            _leave_frame(id(frame))
            raise

    def __exit__(self, kind, error, traceback):
        key = id(_frame())
        try:
            _quiet(_leave_frame, key)
        except BaseException:
            _leave_frame(key)
            raise

    def result(self, value):
        stage = _running.get(id(_frame()))
        if stage is not None:
            _quiet(self.target.describe_result, stage, value)
        return value

    def out(self, value):
        _quiet(_park, id(_frame()))
        return value

    def back(self, value):
        _quiet(_unpark, id(_frame()))
        return value

    def each(self, iterable):
        """Does `yield from`, with pauses."""
        key = id(_frame())
        iterator = iterable.__await__() if type(iterable).__name__ == "coroutine" else iter(iterable)
        step, args = _next, (iterator,)
        while True:
            try:
                value = step(*args)
            except StopIteration as stop:
                return stop.value
            _quiet(_park, key)
            try:
                sent = yield value
            except GeneratorExit:
                _quiet(_unpark, key)
                close = getattr(iterator, "close", None)
                if close is not None:
                    close()
                raise
            except BaseException as error:
                _quiet(_unpark, key)
                step = getattr(iterator, "throw", None)
                if step is None:
                    raise
                args = (error,)
            else:
                _quiet(_unpark, key)
                step, args = (_next, (iterator,)) if sent is None else (iterator.send, (sent,))


_MOST_NAMES = 2000  # names that a misspelt one is compared with

_next = next
_broken = False

# If a RecursionError was caught near the limit, these versions abort instead of raising the next one. An error must
# therefore come before ours, which may not reach the program.
_FRAGILE = sys.version_info < (3, 10)
_ROOM = 40


def _need(frames):
    if frames:
        _need(frames - 1)


def _quiet(function, *args):
    """Calls the function; the program never sees an exception of ours. At the limit of recursion a stage is left
    out."""
    if _broken:
        return
    try:
        function(*args)
    except RecursionError:
        pass
    except Exception as error:
        if _is_handlers(error):
            raise
        _fail(error)


def _fail(error):
    global _broken
    _broken = True
    _warn("TFI_STAGES has failed and is off: %s: %s" % (type(error).__name__, error))


def _arguments(code, frame):
    """Returns positional and named arguments at the entry of a function."""
    values = frame.f_locals
    names, count = code.co_varnames, code.co_argcount
    named = count + code.co_kwonlyargcount
    args = [values[name] for name in names[:count] if name in values]
    kwargs = {name: values[name] for name in names[count:named] if name in values}
    if code.co_flags & _CO_VARARGS:
        args.extend(values[names[named]])
        named += 1
    if code.co_flags & _CO_VARKEYWORDS:
        kwargs.update(values[names[named]])
    if type(values) is dict:  # before 3.13 a copy, kept by the frame: objects that the function deletes must go
        values.clear()
    return args, kwargs


def _leave_frame(key):
    stage = _running.get(key)
    if stage is not None:
        taken = _parked.pop(key, None) if _parked else None
        stage.__exit__()  # no deeper than in begin(): at the limit of recursion an open stage can be closed
        _running.pop(key, None)
        if taken:  # stages it had opened itself go on in the thread that saw the end
            _restore(taken)


def _park(key):
    stage = _running.get(key)
    if stage is not None and key not in _parked:
        home = stage.home
        if home is _local.open:
            _parked[key] = _suspend(home, home.index(stage))


def _unpark(key):
    taken = _parked.pop(key, None)
    if taken:
        _restore(taken)


def _in_watched_task():
    """True in a task that shim_stages.py watches: its stages are taken off the thread when it awaits."""
    events = sys.modules.get("asyncio.events")
    loop = events._get_running_loop() if events else None
    return loop is not None and isinstance(loop, tuple(_watched_loops))


# ---- Python 3.12 and newer: sys.monitoring ----

_watched = {}  # id of a code object -> its _Watched, which keeps it alive


def _yields(watched, value):
    """True if this is the function's own yield, or if only this event shows that it waits."""
    if watched.code.co_flags & (_CO_COROUTINE | _CO_ITERABLE) or (
            watched.code.co_flags & _CO_ASYNC and type(value).__name__ != "async_generator_wrapped_value"):
        return not _in_watched_task()
    return True


def _on_start(code, offset):
    watched = _watched.get(id(code))
    if watched is not None:
        _quiet(watched.begin, _frame())


def _on_resume(code, offset, error=None):
    if id(code) in _watched:
        _quiet(_unpark, id(_frame()))


def _on_yield(code, offset, value):
    watched = _watched.get(id(code))
    if watched is not None and _yields(watched, value):
        _quiet(_park, id(_frame()))


def _on_return(code, offset, value):
    key = id(_frame())
    stage = _running.get(key)
    if stage is not None and id(code) in _watched:
        _quiet(_watched[id(code)].target.describe_result, stage, value)
        _quiet(_leave_frame, key)


def _on_unwind(code, offset, error):
    if id(code) in _watched:
        _quiet(_leave_frame, id(_frame()))


class _Monitor:
    """Tool of sys.monitoring, taken when the first function is found."""

    def __init__(self):
        self.tool = None

    def take(self):
        monitoring = sys.monitoring
        # Id 5 comes first: it is meant for optimisers, of which there are none. A program would choose 3 or 4.
        free = [tool for tool in (5, 4, 3, 2, 1, 0) if monitoring.get_tool(tool) is None]
        if not free:
            return False
        self.tool = free[0]
        monitoring.use_tool_id(self.tool, "tfinject")
        events = monitoring.events
        for event, function in ((events.PY_START, _on_start), (events.PY_RESUME, _on_resume),
                                (events.PY_THROW, _on_resume), (events.PY_YIELD, _on_yield),
                                (events.PY_RETURN, _on_return), (events.PY_UNWIND, _on_unwind)):
            monitoring.register_callback(self.tool, event, function)
        return True

    def watch(self, watched):
        """False if the program has taken all tool ids."""
        if self.tool is None and not self.take():
            return False
        events = sys.monitoring.events
        local = events.PY_START | events.PY_RETURN
        everywhere = events.PY_UNWIND  # these cannot be enabled for one code object alone
        if watched.pauses:
            local |= events.PY_YIELD | events.PY_RESUME
            everywhere |= events.PY_THROW
        _watched[id(watched.code)] = watched
        sys.monitoring.set_local_events(self.tool, watched.code, local)
        sys.monitoring.set_events(self.tool, sys.monitoring.get_events(self.tool) | everywhere)
        return True


_monitor = _Monitor() if hasattr(sys, "monitoring") else None


# ---- finding functions ----

def _codes_in(code, path):
    """Yields (code that holds it, place among its constants, code) for a path of names below a code object."""
    for place, constant in enumerate(code.co_consts):
        if type(constant) is _Code and constant.co_name == path[0]:
            if len(path) == 1:
                yield code, place, constant
            else:
                yield from _codes_in(constant, path[1:])


def _paths_in(code, place=""):
    """Yields the paths of the functions and classes below a code object."""
    for constant in code.co_consts:
        if type(constant) is _Code and not constant.co_name.startswith("<"):
            yield place + constant.co_name
            yield from _paths_in(constant, place + constant.co_name + ".")


def _attribute(target, module):
    """Returns (owner, name, value as it is stored) of a target in its module; the value is None if there is none."""
    owner = module
    for name in target.path[:-1]:
        owner = getattr(owner, name, None)
    name = target.path[-1]
    for holder in getattr(owner, "__mro__", ()) if isinstance(owner, type) else ():
        if name in holder.__dict__:
            return holder, name, holder.__dict__[name]
    return owner, name, getattr(owner, name, None)


def _function_of(value, name):
    """Returns the Python function whose code is to be watched, or None."""
    value = getattr(value, "__func__", value)  # staticmethod, classmethod, bound method
    found = value if type(value) is _Function and "<locals>" not in value.__qualname__ else None
    for _ in range(32):  # decorators with functools.wraps
        value = getattr(value, "__wrapped__", None)
        value = getattr(value, "__func__", value)
        if value is None:
            return found
        if type(value) is _Function and value.__code__.co_name == name:
            found = value
    return found


def _names_beside(target, module):
    """Returns the callables beside a missing target, as paths below the module."""
    owner, place = module, ""
    for name in target.path[:-1]:
        found = getattr(owner, name, None)
        if found is None:
            break
        owner, place = found, place + name + "."
    members = getattr(owner, "__dict__", {})  # an object with slots has none
    names = [place + name for name, value in members.items() if callable(value) or isinstance(value, (staticmethod, classmethod))]
    return tuple(names[:_MOST_NAMES])


def _find_in(target, module):
    owner, name, value = _attribute(target, module)
    if value is None or isinstance(value, (property, type)):
        if value is None:
            _note(target.entry, _names_beside(target, module))  # reported at exit, with the nearest name
            return
        _note(target.entry, None)
        kind = "a property" if isinstance(value, property) else "a class"
        _warn("TFI_STAGES: %s is %s, not a function" % (target.entry, kind))
        return
    target.found = True
    _note(target.entry, None)
    function = _function_of(value, name)
    if function is not None and _monitor and _monitor.watch(_Watched(target, function.__code__)):
        return
    code = not _monitor and function is not None and _load("rewrite") and _rewritten(target, function.__code__)
    if code:
        function.__code__ = code
    else:
        setattr(owner, name, _replacement(target, value))


def _replacement(target, value):
    """Returns a function that calls an object that is no Python function, or has no source."""
    function = getattr(value, "__func__", None) if isinstance(value, (staticmethod, classmethod)) else value

    def call(*args, **kwargs):
        if _is_compiling():
            return function(*args, **kwargs)
        try:
            with _stage(target.name, _FUNCTION) as stage:
                target.describe_call(stage, function, args, kwargs)
                result = function(*args, **kwargs)
                target.describe_result(stage, result)
                return result
        except BaseException as error:
            _hide(error)
            raise

    async def wait(*args, **kwargs):
        try:
            with _stage(target.name, _FUNCTION | _PAUSES) as stage:
                target.describe_call(stage, function, args, kwargs)
                result = await function(*args, **kwargs)
                target.describe_result(stage, result)
                return result
        except BaseException as error:
            _hide(error)
            raise

    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    made = wait if flags & _CO_COROUTINE else call
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        if hasattr(function, attribute):
            setattr(made, attribute, getattr(function, attribute))
    made.__wrapped__ = function
    return type(value)(made) if isinstance(value, (staticmethod, classmethod)) else made


# ---- the script ----

def _same_file(path, argv):
    """True for the script that a profiler, debugger or tracer runs: it has been given the script's arguments."""
    script = argv[0] if argv else ""
    if type(script) is not str or path.rpartition("/")[2] != script.rpartition("/")[2]:
        return False
    try:
        stat = sys.modules["posix"].stat
        return path == script or stat(path)[1:3] == stat(script)[1:3]  # inode and device
    except OSError:
        return False


def _is_script(code):
    """True for the code of __main__, run by C or by runpy (-m, and the children of multiprocessing)."""
    if code.co_name != "<module>":
        return False
    frame = _frame()
    for _ in range(3):  # look, _quiet, its caller, the caller of exec
        frame = frame.f_back
    if frame is None or _same_file(code.co_filename, getattr(sys, "argv", None)):
        return True
    return frame.f_code.co_name == "_run_code" and frame.f_globals.get("__name__") == "runpy"


def _find_in_script(targets):
    def look(code):
        if type(code) is not _Code or not _is_script(code):  # a program may send the event itself, with any argument
            return
        for target in targets:
            for holder, place, found in list(_codes_in(code, target.path)):
                target.found = True
                _note(target.entry, None)
                if _monitor:
                    if not _monitor.watch(_Watched(target, found)):
                        _warn("TFI_STAGES: %s cannot become a stage: sys.monitoring has no free tool id" % target.entry)
                    continue
                new = _load("rewrite") and _rewritten(target, found)
                if not new or not _replace_constant(holder.co_consts, place, new):
                    _warn("TFI_STAGES: %s cannot become a stage: its source was not found" % target.entry)
        if all(target.found for target in targets):
            _on_exec(None)
        for target in targets:
            if not target.found:  # as in a launcher, which is a script too
                _note(target.entry, tuple(_paths_in(code))[:_MOST_NAMES])
                _debug("TFI_STAGES: %s is not in %s" % (target.entry, code.co_filename))

    _on_exec(lambda code: _quiet(look, code))


def _begin_functions():
    _debug("shim: functions")
    targets = [_Target(entry) for entry in _config["stages"] if entry != "auto"]
    for target in list(targets):
        if not target.module or not all(target.path):
            _warn("TFI_STAGES: %s is ignored: it does not have the form module:Qual.name" % target.entry)
            targets.remove(target)
    _note("", None)
    names = [target.name for target in targets]
    for target in targets:
        if names.count(target.name) > 1:
            target.name = target.entry
    script = [target for target in targets if target.module == "__main__"]
    if script:
        _find_in_script(script)
    for target in targets:
        if target not in script:
            def find(module, target=target):
                _find_in(target, module)
            find.__name__ = "TFI_STAGES=" + target.entry
            _when_imported(target.module, find)


if _load("signature"):
    _guarded(_begin_functions)()
