"""shim_markers - makes stages of cache-dit's contexts after its import; shared by all profilers that become stages.

cache-dit's own code runs: its torch.profiler, its files, its lines. Our stage is open between the end of its entry and
the beginning of its exit, which waits for the device and writes. Without a device cache-dit refuses to make a context:
it is then a stage alone, the library records what its arguments ask for, and `tfanalyze report` writes its files.
Inside a region that torch.compile traces nothing is a stage, so that no graph breaks. shim_telefuser.py has TeleFuser's.
"""

import sys

_MARK_CACHE_DIT = 0x8000  # TFI_RANGE_CACHE_DIT of include/tfi_trace.h
_MARK_SCHEDULE = ('wait', 'warmup', 'active', 'repeat')  # cache-dit's arguments; their defaults are TFI_SCHEDULE's
_MARK_ASKED = ('activities', 'with_stack', 'record_shapes', *_MARK_SCHEDULE)
_MARK_ANY = 0x80000000  # bits of tfi_recording_now; below, cache-dit's words in bits of TFI_ACTIVITIES
_MARK_SHAPES = 0x40000000
_MARK_BITS = _config['bits']
_MARK_STACK = _MARK_BITS['stack']
_MARK_CPU = _MARK_BITS['cpu'] | _MARK_BITS['nccl'] | _MARK_BITS['ops']
_MARK_GPU = _MARK_BITS['cpu'] | _MARK_BITS['gpu']  # calls belong to both, as in torch.profiler
_MARK_MEM = _MARK_BITS['mem'] | _MARK_STACK  # a snapshot has no use for a block without its origin
_MARK_WORDS = {'CPU': _MARK_CPU, 'GPU': _MARK_GPU, 'CUDA': _MARK_GPU, 'NPU': _MARK_GPU, 'MEM': _MARK_MEM}
_MARK_HOLDS = {'cpu': _MARK_BITS['ops'], 'gpu': _MARK_BITS['gpu'], 'mem': _MARK_BITS['mem']}

_mark_entered = {}  # id of a context object -> its open stages; the objects themselves stay unchanged
_mark_asking = {}  # id of a stage of cache-dit -> the word that was requested when it was entered
_mark_said = {}  # name -> the facts last recorded for contexts of cache-dit with that name
_mark_inside = []  # cache-dit's contexts that are open, in any thread
_mark_planned = []  # cache-dit's context whose schedule runs, and the stages that are its steps


def _mark_enter(context, name, flags):
    """Opens a stage for a context object, which may have others open: it may be entered twice, or by several
    threads."""
    stage = _stage(name, flags)
    stage.__enter__()
    _mark_entered.setdefault(id(context), []).append(stage)
    return stage


def _mark_take(context):
    """Takes the stage to be left now: the last one that this thread has open, else the last one; None if there is
    none."""
    stages = _mark_entered.get(id(context))
    if not stages:
        return None
    home = _local.open
    stage = next((s for s in reversed(stages) if s.home is home), stages[-1])
    stages.remove(stage)
    if not stages:
        del _mark_entered[id(context)]
    return stage


def _mark_signature(context, direction, text):
    stages = _mark_entered.get(id(context))
    if text and stages:
        _signature(stages[-1].id, direction, text)


def _mark_decorate(function, name, fresh, wraps, notice=None):
    """Returns the function as a stage. fresh() makes the context of a call; notice(args, kwargs, result) is called
    at its end."""
    if _functions('iscoroutinefunction')(function):
        @wraps(function)
        async def wrapper(*args, **kwargs):
            text = describe_call(function, args, kwargs, name)
            try:
                with fresh() as context:
                    _mark_signature(context, 0, text)
                    result = await function(*args, **kwargs)
                    _mark_signature(context, 1, describe_result(name, result))
            except BaseException as error:
                _hide(error)
                raise
            if notice:
                notice(args, kwargs, result)
            return result
    else:
        @wraps(function)
        def wrapper(*args, **kwargs):
            if _is_compiling():
                return function(*args, **kwargs)
            text = describe_call(function, args, kwargs, name)
            try:
                with fresh() as context:
                    _mark_signature(context, 0, text)
                    result = function(*args, **kwargs)
                    _mark_signature(context, 1, describe_result(name, result))
            except BaseException as error:
                _hide(error)
                raise
            if notice:
                notice(args, kwargs, result)
            return result
    return wrapper


def _mark_json(value):
    if isinstance(value, dict):
        return '{%s}' % ', '.join('%s: %s' % (_sig_string(k), _mark_json(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return '[%s]' % ', '.join(map(_mark_json, value))
    return _sig_string(value) if isinstance(value, str) else repr(value).lower()  # true, false or a number


def _functions(name):
    return getattr(sys.modules['inspect'], name)  # torch has imported it


# ---- cache-dit ----

def _mark_file_name(name):
    """Returns a stage's name as analysis/write/stage_files.c puts it into a file's name: the program prints the names
    that `report` writes."""
    head, mark, number = name.rpartition('#')
    if head and number.isdigit() and number.isascii():
        name = head + '*'
    clean = ''.join(chr(b) if chr(b).isalnum() and b < 128 or chr(b) in '._ #*()-' else '_' for b in name.encode(errors='replace'))
    return (('_' if clean[:1] in ('.', '') else clean[0]) + clean[1:])[:120]


@_guarded
def _mark_wanted(context):
    """Returns the activities to record while the context is open, as one word."""
    word = _MARK_ANY
    for activity in context.activities:
        word |= _MARK_WORDS.get(activity, 0)
    if getattr(context, 'with_stack', False):
        word |= _MARK_STACK
    if getattr(context, 'record_shapes', False):
        word |= _MARK_SHAPES
    return word


def _mark_held(context):
    """Lists the content of the context's files: the activities it requested and those that the user's environment fixes."""
    fixed = _config['fixed']
    words = [_MARK_WORDS.get(activity, 0) for activity in context.activities]
    holds = [name for name, bit in _MARK_HOLDS.items() if fixed & bit or any(word & bit for word in words)]
    if fixed & _MARK_STACK or getattr(context, 'with_stack', False):
        holds.append('stack')
    if fixed & _MARK_SHAPES or getattr(context, 'record_shapes', False):
        holds.append('shapes')
    return holds


def _mark_steps():
    """Returns the stages whose entries are steps, as far as is known now; '' if there are none."""
    if _config['step']:
        return _config['step']
    parts = globals().get('_auto_parts')  # TFI_STAGES=auto: those of the pipelines that were made
    names = {entry[1] for entry in list(parts.entries.values())} if parts else ()
    return 'transformer,unet' if 'transformer' in names or 'unet' in names else ''


@_guarded
def _mark_schedule(context):
    """Begins the schedule of a context, and counts its steps. Without steps the whole context is recorded."""
    text = ','.join('%s=%d' % (key, getattr(context, key)) for key in _MARK_SCHEDULE if getattr(context, key, None) is not None)
    if not text:
        return
    name, step = context.profile_name, _mark_steps()
    if len(_mark_inside) > 1:
        _warn("cache-dit's context %s is inside another one: its %s is ignored" % (name, text))
    elif not step:
        _warn("cache-dit's context %s is recorded whole and its %s is ignored: no stage marks its steps. Name the step stage in "
              "TFI_STEP; for diffusers, TFI_STAGES=auto makes one" % (name, text))
    elif _schedule(text, step) == -1:
        _warn("cache-dit's %s is not a valid schedule and is ignored" % text)
    else:
        _mark_planned[:] = [context, step]


@_guarded
def _mark_unschedule(context):
    """Ends the schedule of a context."""
    if _mark_planned and _mark_planned[0] is context:
        _, step = _mark_planned
        _mark_planned.clear()
        if _schedule('', step) == 0:
            _warn("cache-dit's context %s recorded nothing: its schedule counts entries of stage %s, and none was entered in it"
                  % (context.profile_name, step.replace(',', ' or ')))


@_guarded
def _mark_begin(context, module):
    """Records the place and content of the trace that cache-dit would write: `tfanalyze report` writes it from
    ours."""
    distributed = module.torch.distributed
    ranked = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    name = _mark_file_name(context.profile_name) + ('-rank%d' % distributed.get_rank() if ranked else '')
    context.trace_path = context.output_dir / (name + '.trace.json.gz')
    asked = {key: getattr(context, key) for key in _MARK_ASKED if getattr(context, key, None) is not None}
    text = _mark_json({'name': context.profile_name, 'dir': str(context.output_dir.absolute()),
                       'ranked': ranked, **asked, 'holds': _mark_held(context)})
    if _mark_said.get(context.profile_name) != text:
        _mark_said[context.profile_name] = text
        _metadata('cache_dit.profile.' + context.profile_name, text, 'cache_dit.profiler')


def _mark_refused(context, module, given):
    """Fills in a context that cache-dit has refused to make, which it does without a device."""
    given.apply_defaults()
    context.__dict__.update(list(given.arguments.items())[1:])
    context.activities = context.activities or ['CPU', 'GPU']
    context.output_dir = module.Path(context.output_dir or module.PROFILER_DIR).expanduser()
    context.profile_name = context.profile_name or 'profile_%d' % module.time.time()
    context.profiler = context.trace_path = context.memory_snapshot_path = None
    context._alone = True


def _mark_opened(context, module):
    if not context.enabled:
        return
    alone = hasattr(context, '_alone')
    if alone:
        _mark_begin(context, module)
    _mark_inside.append(context)
    _mark_schedule(context)
    word = _mark_wanted(context) if alone else 0
    asks = word and _ask(word, True)
    stage = _mark_enter(context, context.profile_name, _MARK_CACHE_DIT if alone else 0)
    if asks:
        _mark_asking[id(stage)] = word


def _mark_closed(context):
    stage = _mark_take(context)
    if stage:
        _mark_inside.remove(context)
        _mark_unschedule(context)
        word = _mark_asking.pop(id(stage), 0)
        stage.__exit__()
        if word:
            _ask(word, False)


def _mark_cache_dit(module):
    if not _load('signature'):
        return

    def make_init(theirs):
        parameters = _functions('signature')(theirs)  # they differ between versions

        def __init__(self, *args, **kwargs):
            try:
                theirs(self, *args, **kwargs)
            except AssertionError:
                if _config['keep_originals']:
                    raise
                _mark_refused(self, module, parameters.bind(self, *args, **kwargs))
        return __init__

    def make_enter(theirs):
        def __enter__(self):
            if hasattr(self, '_alone'):
                if self.enabled and not _is_compiling():
                    _mark_opened(self, module)
                return self
            theirs(self)
            opened(self, module)
            return self
        return __enter__

    def make_exit(theirs):
        def __exit__(self, exc_type, exc_val, exc_tb):
            if hasattr(self, '_alone'):
                if self.enabled and not _is_compiling():
                    _mark_closed(self)
                return
            closed(self)
            theirs(self, exc_type, exc_val, exc_tb)
        return __exit__

    opened, closed = _hidden(_mark_opened), _hidden(_mark_closed)  # cache-dit's profiler runs and records Python functions

    for name, make in (('__init__', make_init), ('__enter__', make_enter), ('__exit__', make_exit)):
        _replace(module.ProfilerContext, name, make)
    _replace(module, 'profile_function', _mark_described)


def _mark_described(theirs):
    """cache-dit's decorator, which makes its own context; the stage gets the function's arguments and result."""
    parameters = _functions('signature')(theirs)

    def profile_function(*args, **kwargs):
        decorate, given = theirs(*args, **kwargs), parameters.bind(*args, **kwargs)
        given.apply_defaults()
        name, enabled = given.arguments['profile_name'], given.arguments['enabled']

        def decorator(func):
            called = name or getattr(func, '__name__', '')
            return decorate(_mark_describing(func, called) if enabled and called else func)
        return decorator
    return profile_function


def _mark_describing(function, name):
    """Returns the function; the stage around each call gets its arguments and its result."""
    def described(*args, **kwargs):
        if _is_compiling():
            return function(*args, **kwargs)
        id, text = _local.open[-1].id if _local.open else 0, describe_call(function, args, kwargs, name)
        if id and text:
            _signature(id, 0, text)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            _hide(error)
            raise
        text = id and describe_result(name, result)
        if text:
            _signature(id, 1, text)
        return result
    described.__name__ = name  # theirs names the stage by it
    return described


def _mark_cache_dit_arguments(module):
    """cache_dit._utils.utils: its create_profiler_from_args knows no schedule; the pipeline's arguments may have one."""
    def make(theirs):
        def create_profiler_from_args(args, *more, **named):
            context = theirs(args, *more, **named)
            for name in _MARK_SCHEDULE:
                if getattr(args, 'profile_' + name, None) is not None:
                    setattr(context, name, getattr(args, 'profile_' + name))
            return context
        return create_profiler_from_args
    _replace(module, 'create_profiler_from_args', make)
