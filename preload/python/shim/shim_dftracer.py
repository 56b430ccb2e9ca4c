"""shim_dftracer - makes stages of dftracer's Python interface after its import; dftracer's own code runs beside them.

All generations: dftracer.logger (1.0), dftracer.python (2.0) with its `ai` namespaces, and their dbg twins. Classes and
variables stay what they are: methods are replaced in place, and each runs dftracer's own first, which writes dftracer's
files where it is switched on and its native module is installed. Where it would do nothing, a copy of its code runs that
takes dftracer for switched on (`_dft_on`), because that code collects the arguments of an event: they equal dftracer's,
oddities included.

A method that knows the name of its event beforehand opens a stage. At the end dftracer's code logs the event under that
name; the stage then gets its arguments and is closed. Every other logged event becomes a range that is over already
(`_past`): its two times are in the call. Within `with`, reset() begins a new stage and flush() ends it.
"""

import _thread
import sys

_DFT = 0x40000  # TFI_RANGE_DFTRACER of include/tfi_trace.h
_DFT_STAGE = 2  # TFI_RANGE_STAGE
_DFT_NO_STAGES = ('PP', 'dynamo')  # categories of single operators, which libtorch reports itself
_DFT_UNITS = {'NS': 1, 'US': 1000, 'MS': 1000000, 'SEC': 1000000000}


class _DftLocal(_thread._local):
    def __init__(self):
        self.expected = []  # [name, stage, closes]: the events that dftracer's code is going to log
        self.making = 0     # constructors of dft_fn that run: dftracer's reset() in them begins no stage


_dft_local = _DftLocal()
_dft_open = {}  # id of a dft_fn -> (the object, its open stages, depth of `with`)


# ---- what dftracer's code logs ----

def _dft_value(value):
    """A value as JSON. dftracer's code gives numbers and texts, in newer versions in a pair with a tag."""
    if isinstance(value, tuple) and len(value) == 2:
        value = value[1]
    if isinstance(value, int) and value.bit_length() > 1024:
        value = 'int'
    kind = int if isinstance(value, int) else float if isinstance(value, float) else str
    if not _config['record_values']:
        return _sig_string(kind.__name__)
    if kind is str or value - value != 0:  # not finite
        return _sig_string(_without_secrets(str(value)))
    return repr(kind(value))


def _dft_json(cat, args, relations):
    items = ['%s: %s' % (_sig_string(str(key)), _sig_string('***') if _is_secret(str(key)) else _dft_value(value)) for key, value in args.items()]
    text = '{"cat": %s, "args": {%s}' % (_sig_string(str(cat)), ', '.join(items))
    if relations:
        related = ('"%d": [%s]' % (int(kind), ', '.join('%d' % i for i in ids)) for kind, ids in relations.items())
        text += ', "relations": {%s}' % ', '.join(related)
    return text + '}'


def _dft_unit(module):
    """Nanoseconds of a unit of dftracer's time."""
    has_units = hasattr(module, 'DFTRACER_TIME_METRIC_ENV')
    return _DFT_UNITS.get(has_units and module.os.environ.get('DFTRACER_TIME_METRIC'), 1000)


@_guarded
def _dft_log(unit, name, cat, start_time, duration, args, relations):
    name, text = str(name), _dft_json(cat, args, relations)
    expected = _dft_local.expected
    if expected and expected[-1][0] == name and expected[-1][1]:
        _, stage, closes = expected[-1]
        expected[-1][1] = None
        if stage.id:
            _details(stage.id, name, text)
            if closes:
                stage.__exit__()
        return
    if not start_time:
        return  # before initialize_log dftracer has no clock
    flags = _DFT if cat in _DFT_NO_STAGES else _DFT | _DFT_STAGE
    id = _past(name, flags, *_ticks_of(int(start_time) * unit, int(duration) * unit), None)
    if id:
        _details(id, name, text)


@_guarded
def _dft_fact(key, value):
    _metadata('dftracer.' + str(key), str(value) if _config['record_values'] else type(value).__name__, 'dftracer')


# ---- dftracer where it is off ----

def _dft_runs(module):
    """True where dftracer is switched on and has its native module."""
    common = sys.modules.get('dftracer.python.common', module)
    return module.DFTRACER_ENABLE and type(getattr(common, 'profiler', None)).__name__ != 'NoOpProfiler'


class _DftClock:
    """dftracer's instance, with a clock."""

    def __init__(self, theirs, module):
        self._theirs, self._now, self._unit = theirs, module.logging.time.time_ns, _dft_unit(module)

    def __getattr__(self, name):
        return getattr(self._theirs, name)

    def get_time(self):
        return self._now() // self._unit


def _dft_on(module, theirs):
    """Returns dftracer's function; where dftracer is off, a copy that takes it for switched on runs instead."""
    copies = []

    def on(*args, **kwargs):
        if _dft_runs(module):
            return theirs(*args, **kwargs)
        if not copies:
            singleton = module.dftracer
            instance = type('dftracer', (), {'get_instance': staticmethod(lambda: _DftClock(singleton.get_instance(), module))})
            names = {**module.__dict__, 'DFTRACER_ENABLE': True, 'dftracer': instance}
            copies.append(type(theirs)(theirs.__code__, names, theirs.__name__, theirs.__defaults__, theirs.__closure__))
            copies[0].__kwdefaults__ = theirs.__kwdefaults__
        return copies[0](*args, **kwargs)
    on.__wrapped__ = theirs
    return on


# ---- stages ----

class _dft_expecting:
    """For `with`: dftracer's code logs the event of this stage meanwhile; closes the stage in the end."""
    __slots__ = ('entry', 'stage')

    def __init__(self, name, stage, closes=True):
        self.entry = [name, stage, closes]
        self.stage = stage

    def __enter__(self):
        _dft_local.expected.append(self.entry)

    def __exit__(self, kind=None, error=None, traceback=None):
        expected = _dft_local.expected
        if self.entry in expected:
            expected.remove(self.entry)
        if self.entry[2] and self.stage:
            self.stage.__exit__()


def _dft_enabled(event):
    """False for a dft_fn that was made with enable=False; versions before 1.0.8 lack the argument."""
    return getattr(event, '_enable', True)


def _dft_begin(event):
    """Opens a stage for a dft_fn that may have others open, in other threads."""
    _, stages, _ = _dft_open.setdefault(id(event), [event, [], 0])
    stages.append(_stage(str(event._name), _DFT).__enter__())


def _dft_take(event):
    """Takes the stage to be left now: the last one of this thread, else the last one; None if there is none."""
    entry = _dft_open.get(id(event))
    if not entry or not entry[1]:
        return None
    stages, home = entry[1], _local.open
    stage = next((s for s in reversed(stages) if s.home is home), stages[-1])
    stages.remove(stage)
    return stage


def _dft_decorated(module, event, function, inner, name):
    """`inner` is the function as dftracer's code wrapped it."""
    plain = getattr(function, '__func__', function)
    name = str(name or plain.__qualname__)
    if module.inspect.iscoroutinefunction(plain):
        @module.wraps(plain)
        async def wrapper(*args, **kwargs):
            stage = _stage(name, _DFT) if _dft_enabled(event) else None
            try:
                if not stage:
                    return await inner(*args, **kwargs)
                with stage:
                    with _dft_expecting(name, stage, False):
                        made = inner(*args, **kwargs)
                    return await made
            except BaseException as error:
                _hide(error)
                raise
    else:
        @module.wraps(plain)
        def wrapper(*args, **kwargs):
            if _is_compiling():
                return plain(*args, **kwargs)
            try:
                if not _dft_enabled(event):
                    return inner(*args, **kwargs)
                with _dft_expecting(name, _stage(name, _DFT).__enter__()):
                    return inner(*args, **kwargs)
            except BaseException as error:
                _hide(error)
                raise
    return wrapper


def _dft_iterated(generator, name, is_enabled):
    """Passes the items on; the time that the loop's body takes is the stage `name`."""
    stage = None
    try:
        while True:
            with _dft_expecting(name, stage):
                item = next(generator, _dft_open)
            if item is _dft_open:
                return
            stage = _stage(name, _DFT).__enter__() if name and is_enabled() else None
            yield item
    except BaseException as error:
        _hide(error)
        raise
    finally:
        if stage:
            stage.__exit__()
        generator.close()


# ---- dftracer's classes ----

def _dft_singleton(module):
    """The class dftracer: what it is told goes into the trace too."""
    def telling(tell):
        def make(theirs):
            signature = module.inspect.signature(theirs)

            def told(*args, **kwargs):
                result = theirs(*args, **kwargs)
                given = signature.bind(*args, **kwargs)
                given.apply_defaults()
                tell(given.arguments)
                return result
            return told
        return make

    def event(given):
        args = {**(given['string_args'] or {}), **(given.get('float_args') or {}), **(given.get('int_args') or {})}
        _dft_log(unit, given['name'], given['cat'], given['start_time'], given['duration'], args, given.get('relations'))

    def began(given):
        for key, value in given.items():
            if value is not None:
                _dft_fact(key, value)
        _dft_files(module.os, given['data_dir'])

    unit = _dft_unit(module)
    fact = telling(lambda given: _dft_fact(given['key'], given['value']))
    for name, make in (('log_event', telling(event)), ('initialize_log', telling(began)), ('log_metadata_event', fact),
                       ('set_app_metadata_int', fact), ('set_app_metadata_string', fact)):
        if name in module.dftracer.__dict__:
            _replace(module.dftracer, name, make)


@_guarded
def _dft_files(os, data_dir):
    """dftracer records the calls on files of its data_dir; so does the library, unless the user has said which."""
    dirs = [d for d in (data_dir, os.environ.get('DFTRACER_DATA_DIR')) if d]
    if dirs and 'all' not in dirs:
        _io_paths(','.join(os.path.abspath(d) for part in dirs for d in part.split(':') if d))


def _dft_events(module):
    """The class dft_fn: constructor, `with`, reset and flush."""
    def on(make):
        return lambda theirs: make(_dft_on(module, theirs))

    def make_init(theirs):
        signature = module.inspect.signature(theirs)

        def __init__(self, *args, **kwargs):
            given = signature.bind(self, *args, **kwargs).arguments
            caller = None if given.get('name') else _frame()
            while caller is not None and caller.f_code.co_filename == '<tfinject>':
                caller = caller.f_back
            if caller is not None:  # theirs takes the name of its caller, which would be ours
                given['name'] = caller.f_code.co_name
            _dft_local.making += 1
            try:
                theirs(**given)
            finally:
                _dft_local.making -= 1
        return __init__

    def make_enter(theirs):
        def __enter__(self):
            if _is_compiling():
                return self
            theirs(self)
            if _dft_enabled(self):
                _dft_begin(self)
                _dft_open[id(self)][2] += 1
            return self
        return __enter__

    def make_exit(theirs):
        def __exit__(self, exc_type, exc_val, exc_tb):
            if _is_compiling():
                return
            theirs(self, exc_type, exc_val, exc_tb)
            entry = _dft_open.get(id(self))
            if not entry:
                return
            entry[2] -= 1
            if len(entry[1]) > entry[2]:  # theirs has not flushed: an object that is entered twice flushes once
                _dft_take(self).__exit__()
            if not entry[2] and not entry[1]:
                _dft_open.pop(id(self), None)
        return __exit__

    def make_reset(theirs):
        def reset(self):
            if _is_compiling():
                return self
            result = theirs(self)
            entry = _dft_open.get(id(self))
            if _dft_enabled(self) and entry and not _dft_local.making:
                stage = _dft_take(self)
                if stage:
                    stage.__exit__()
                _dft_begin(self)
            return result
        return reset

    def make_flush(theirs):
        def flush(self):
            if _is_compiling():
                return self
            stage = _dft_take(self) if _dft_enabled(self) else None
            with _dft_expecting(stage and str(self._name), stage):
                return theirs(self)
        return flush

    def make_update(theirs):
        def update(self, *args, **kwargs):
            return self if _is_compiling() else theirs(self, *args, **kwargs)
        return update

    for name, make in (('__init__', make_init), ('__enter__', make_enter), ('__exit__', make_exit), ('reset', make_reset),
                       ('flush', make_flush), ('update', make_update), ('log_metadata', lambda theirs: theirs)):
        if name in module.dft_fn.__dict__:
            _replace(module.dft_fn, name, on(make))


def _dft_decorators(module):
    """The class dft_fn: its decorators and its iterator."""
    def decorator(theirs):
        signature = module.inspect.signature(theirs)

        def log(self, *args, **kwargs):
            given = list(signature.bind(self, *args, **kwargs).arguments.items())
            name = dict(given).get('name')
            made = theirs(self, *args, **kwargs)
            function = next((value for key, value in given[1:] if key != 'name'), None)
            if callable(function):
                return _dft_decorated(module, self, function, made, name)
            return lambda function: _dft_decorated(module, self, function, made(function), name)
        return log

    def iterator(theirs):
        signature = module.inspect.signature(theirs)

        def iter(self, *args, **kwargs):
            generator = theirs(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            name = '%s.yield' % given.arguments.get('name', self._name)  # older versions take the object's own name
            return _dft_iterated(generator, name if given.arguments.get('include_yield', True) else None, lambda: _dft_enabled(self))
        return iter

    for name, make in (('log', decorator), ('log_init', decorator), ('log_static', decorator), ('iter', iterator)):
        _replace(module.dft_fn, name, lambda theirs, make=make: make(_dft_on(module, theirs)))


def _watch_dftracer(module):
    """dftracer.logger, or dftracer.python.common and their dbg twins."""
    if not _load('signature'):
        return
    _dft_singleton(module)
    _dft_events(module)
    _dft_decorators(module)


def _watch_dftracer_ai(module):
    """dftracer.python.ai_common: its contexts use dft_fn's; its iterator is its own."""
    if not _load('signature'):
        return

    def make_iter(theirs):
        def iter(self, *args, **kwargs):
            generator = theirs(self, *args, **kwargs)
            name = str(kwargs.get('block_name') or module.get_iter_block_name(self.profiler._name))
            return _dft_iterated(generator, name if kwargs.get('include_block', True) else None, lambda: _dft_enabled(self.profiler))
        return iter

    for name, make in (('iter', make_iter), ('update', None), ('start', None), ('stop', None)):
        _replace(module._DFTracerAI, name, lambda theirs, make=make: (make or (lambda on: on))(_dft_on(module, theirs)))
