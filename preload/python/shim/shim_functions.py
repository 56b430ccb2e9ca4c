"""shim_functions - makes stages of the functions in TFI_STAGES: functions, methods, coroutines, generators.

Only code is watched: by sys.monitoring (3.12), before that by preload/python/evaluate.c. The function, its code, its frames
and its callers stay as they are. Nothing stands between them, and nothing that pickles, compares, inspects or compiles a
function can tell. So only a Python function can be a stage. Anything else (a builtin, a callable object, a class) is left
alone, and one line says so. A function of a module is found when the module has been imported, one of the script when
its code is about to run, and one that comes by value (cloudpickle) when it is made of its code.

A stage is identified by the frame it runs in. The stage of a generator or asynchronous generator leaves its thread at
each yield, together with the stages opened in it. The stage of a coroutine leaves at each await, unless it runs in a
task that shim_stages.py watches, which takes all of the task's stages away.

Code that torch.compile has compiled is other code, and no stage.
"""

import sys

_FUNCTION = 0x800  # TFI_RANGE_* of include/tfi_trace.h
_PAUSES = 0x10000
_CO_VARARGS, _CO_VARKEYWORDS, _CO_GENERATOR, _CO_COROUTINE, _CO_ITERABLE, _CO_ASYNC = 4, 8, 0x20, 0x80, 0x100, 0x200

_Code = type(_begin.__code__)
_Function = type(_begin)
_Method = type(_stage("", 0).__enter__)
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
    """Code of a target. Functions that a decorator makes share one code; `function` tells which of them is meant."""

    def __init__(self, target, code, function=None):
        self.target = target
        self.code = code
        self.pauses = code.co_flags & (_CO_GENERATOR | _CO_COROUTINE | _CO_ASYNC)
        self.function = function
        count = code.co_argcount + code.co_kwonlyargcount
        self.names = code.co_varnames[:count + bool(code.co_flags & _CO_VARARGS) + bool(code.co_flags & _CO_VARKEYWORDS)]
        # Gives the names of the parameters; it is never called.
        self.described = _Function(code, {}, closure=tuple(_Cell(None) for _ in code.co_freevars) or None)
        self.described.__module__, self.described.__qualname__ = target.module, target.name

    def begin(self, key, values):
        if self.function is not None and not _is_of(self.function, values):
            return
        stage = _stage(self.target.name, _FUNCTION | (_PAUSES if self.pauses else 0))
        stage.__enter__()
        if stage.id:
            if key in _running:  # its frame has gone without an end, and this one has its address
                _leave_frame(key)
            _running[key] = stage
            self.target.describe_call(stage, self.described, *_arguments(self.code, values))

    def end(self, key, value):
        stage = _running.get(key)
        if stage is not None:
            self.target.describe_result(stage, value)
            _leave_frame(key)


_MOST_NAMES = 2000  # names that a misspelt one is compared with

_broken = False


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


def _arguments(code, values):
    """Returns positional and named arguments, from the values of a function's variables at its entry."""
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


def _is_of(function, values):
    """True if the values at the entry of code are those of this function: it has its cells."""
    if "" in values:  # 3.11
        return values[""] is function.__closure__
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            if values.get(name, cell) is not cell.cell_contents:
                return False
        except ValueError:  # an empty cell
            return False
    return True


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


def _yields(watched, value):
    """True if this is the function's own yield, or if only this event shows that it waits."""
    if watched.code.co_flags & (_CO_COROUTINE | _CO_ITERABLE) or (
            watched.code.co_flags & _CO_ASYNC and type(value).__name__ != "async_generator_wrapped_value"):
        return not _in_watched_task()
    return True


# ---- Python 3.9 to 3.11: preload/python/evaluate.c ----

def _on_event_of_code(event, watched, key, value):
    if event == 0:
        _quiet(watched.begin, key, value)
    elif event == 1:
        _quiet(_unpark, key)
    elif event == 2:
        if _yields(watched, value):
            _quiet(_park, key)
    elif event == 3:
        _quiet(watched.end, key, value)
    else:
        _quiet(_leave_frame, key)


# ---- Python 3.12 and newer: sys.monitoring ----

_watched = {}  # id of a code object -> its _Watched, which keeps it alive


def _on_start(code, offset):
    watched = _watched.get(id(code))
    if watched is not None:
        frame = _frame()
        _quiet(watched.begin, id(frame), frame.f_locals)


def _on_resume(code, offset, error=None):
    if id(code) in _watched:
        _quiet(_unpark, id(_frame()))


def _on_yield(code, offset, value):
    watched = _watched.get(id(code))
    if watched is not None and _yields(watched, value):
        _quiet(_park, id(_frame()))


def _on_return(code, offset, value):
    watched = _watched.get(id(code))
    if watched is not None:
        _quiet(watched.end, id(_frame()), value)


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
        """None, or why the code cannot be watched."""
        if self.tool is None and not self.take():
            return "sys.monitoring has no free tool id"
        events = sys.monitoring.events
        local = events.PY_START | events.PY_RETURN
        everywhere = events.PY_UNWIND  # these cannot be enabled for one code object alone
        if watched.pauses:
            local |= events.PY_YIELD | events.PY_RESUME
            everywhere |= events.PY_THROW
        sys.monitoring.set_local_events(self.tool, watched.code, local)
        sys.monitoring.set_events(self.tool, sys.monitoring.get_events(self.tool) | everywhere)


_monitor = _Monitor() if hasattr(sys, "monitoring") else None


def _watch_code(target, code, function=None):
    """Makes a stage of code; says so if that cannot be."""
    target.found = True
    _note(target.entry, None)
    if id(code) in _watched:
        return
    _watched[id(code)] = None  # making the next object makes a function of the code
    watched = _watched[id(code)] = _Watched(target, code, function)
    if _monitor:
        why = _monitor.watch(watched)
    else:
        why = None if _watch(code, watched, watched.names, bool(watched.pauses), _on_event_of_code) else "this Python is not known"
    if why:
        _warn("TFI_STAGES: %s cannot become a stage: %s" % (target.entry, why))


# ---- finding functions ----

def _codes_in(code, path):
    """Yields the code for a path of names below a code object."""
    for constant in code.co_consts:
        if type(constant) is _Code and constant.co_name == path[0]:
            if len(path) == 1:
                yield constant
            else:
                yield from _codes_in(constant, path[1:])


def _paths_in(code, place=""):
    """Yields the paths of the functions and classes below a code object."""
    for constant in code.co_consts:
        if type(constant) is _Code and not constant.co_name.startswith("<"):
            yield place + constant.co_name
            yield from _paths_in(constant, place + constant.co_name + ".")


def _attribute(owner, path):
    """Returns the value of a target as it is stored in its module or class; None if there is none. No code of the
    program runs, unless a module or a metaclass makes its attributes itself."""
    for name in path[:-1]:
        owner = getattr(owner, name, None)
    for holder in type.__dict__["__mro__"].__get__(owner) if isinstance(owner, type) else ():
        if path[-1] in holder.__dict__:
            return holder.__dict__[path[-1]]
    return getattr(owner, path[-1], None)


def _behind(value):
    """Returns the function that a wrapper of the standard library, or a function of functools.wraps, passes its calls to."""
    kind = type(value)
    if kind is _Function:
        return None if "registry" in value.__dict__ else value.__dict__.get("__wrapped__")  # singledispatch passes some calls
    if kind is staticmethod or kind is classmethod or kind is _Method:
        return value.__func__
    if kind.__module__ == "functools" and kind.__qualname__ in ("_lru_cache_wrapper", "cached_property"):
        return value.__dict__.get("__wrapped__") or value.__dict__.get("func")
    return None


def _function_of(value, name):
    """Returns the Python function whose code is to be watched, or None: of functions that wrap each other, the innermost
    one with this name, else the outermost one."""
    first = found = None
    for _ in range(32):
        if type(value) is _Function:
            first = first or value
            if value.__code__.co_name == name:
                found = value
        value = _behind(value)
        if value is None:
            break
    return found or first


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
    value = _attribute(module, target.path)
    if value is None:
        _note(target.entry, _names_beside(target, module))  # reported at exit, with the nearest name
        return
    function = _function_of(value, target.path[-1])
    if function is not None:
        shared = function.__closure__ is not None and "<locals>" in function.__qualname__
        _watch_code(target, function.__code__, function if shared else None)
        return
    _note(target.entry, None)
    kind = "a class" if isinstance(value, type) else "a " + type(value).__name__
    _warn("TFI_STAGES: %s is %s, not a Python function, and is left alone" % (target.entry, kind))


# ---- functions that come by value ----

def _find_by_value(targets, code):
    """Looks at code of which a function is being made: a copy of a function that another process has sent, or that this
    one has sent and got back."""
    for target in targets:
        if code.co_name != target.path[-1] or id(code) in _watched:
            continue
        if getattr(code, "co_qualname", code.co_name) not in (".".join(target.path), code.co_name):
            continue
        file = target.module.replace(".", "/")
        if target.module == "__main__" or code.co_filename.endswith((file + ".py", file + "/__init__.py")):
            _watch_code(target, code)


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
            for found in list(_codes_in(code, target.path)):
                _watch_code(target, found)
        if all(target.found for target in targets):
            _on_event("exec", None)
        for target in targets:
            if not target.found:  # as in a launcher, which is a script too
                _note(target.entry, tuple(_paths_in(code))[:_MOST_NAMES])
                _debug("TFI_STAGES: %s is not in %s" % (target.entry, code.co_filename))

    _on_event("exec", lambda code: _quiet(look, code))


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
    _on_event("function.__new__", lambda code: _quiet(_find_by_value, targets, code))
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
