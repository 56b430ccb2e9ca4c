"""shim_markers - replaces cache-dit's profiler by stages of ours after its import; shared by all replaced profilers.

Their classes and functions keep their names, arguments, attributes and results, so that a pipeline does not notice.
No torch.profiler is started, and cache-dit writes no trace at the end. They work without a device too. Inside a region
that torch.compile traces they do nothing, so that no graph breaks. shim_telefuser.py has TeleFuser's.
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


def _mark_disguise(ours, theirs):
    """Copies name, place and documentation of the replaced object."""
    for name in ('__module__', '__name__', '__qualname__', '__doc__'):
        setattr(ours, name, getattr(theirs, name))
    return ours


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
    return 'transformer,unet' if 'auto' in _config['stages'] and 'diffusers' in sys.modules else ''


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


def _mark_cache_dit(module):
    if _config['keep_originals'] or not _load('signature'):
        return
    theirs = module.ProfilerContext
    parameters = _functions('signature')(theirs.__init__)

    class Context(theirs):
        def __init__(self, *args, **kwargs):
            given = parameters.bind(self, *args, **kwargs)  # the parameters differ between versions
            given.apply_defaults()
            self.__dict__.update(list(given.arguments.items())[1:])
            self.activities = self.activities or ['CPU', 'GPU']
            self.output_dir = module.Path(self.output_dir or module.PROFILER_DIR).expanduser()
            self.profile_name = self.profile_name or 'profile_%d' % module.time.time()
            self._is_npu = False
            self._track_memory = 'MEM' in self.activities
            self._npu_worker = None
            self.profiler = None
            self.trace_path = None
            self.memory_snapshot_path = None

        def __enter__(self):
            if self.enabled and not _is_compiling():
                _mark_begin(self, module)
                _mark_inside.append(self)
                _mark_schedule(self)
                word = _mark_wanted(self)
                asks = word and _ask(word, True)
                stage = _mark_enter(self, self.profile_name, _MARK_CACHE_DIT)
                if asks:
                    _mark_asking[id(stage)] = word
            return self

        def __exit__(self, exc_type, exc_val, exc_tb):
            if self.enabled and not _is_compiling():
                stage = _mark_take(self)
                if stage:
                    _mark_inside.remove(self)
                    _mark_unschedule(self)
                    word = _mark_asking.pop(id(stage), 0)
                    stage.__exit__()
                    if word:
                        _ask(word, False)

    decorators = _functions('signature')(module.profile_function)

    def profile_function(*args, **kwargs):
        given = decorators.bind(*args, **kwargs)
        given.apply_defaults()
        options = given.arguments

        def plain(function):  # theirs does not copy the name of the function it wraps
            return lambda wrapper: wrapper

        def decorator(func):
            name = options['profile_name'] or func.__name__
            return _mark_decorate(func, name, lambda: Context(**{**options, 'profile_name': name}), plain)
        return decorator

    Context.__init__.__signature__ = parameters
    profile_function.__signature__ = decorators
    module.ProfilerContext = _mark_disguise(Context, theirs)
    module.profile_function = _mark_disguise(profile_function, module.profile_function)


def _mark_cache_dit_arguments(module):
    """cache_dit._utils.utils: its create_profiler_from_args knows no schedule; the pipeline's arguments may have one."""
    theirs = module.create_profiler_from_args
    if _config['keep_originals']:
        return

    def create_profiler_from_args(args, profile_name=None):
        context = theirs(args, profile_name=profile_name)
        for name in _MARK_SCHEDULE:
            if getattr(args, 'profile_' + name, None) is not None:
                setattr(context, name, getattr(args, 'profile_' + name))
        return context

    module.create_profiler_from_args = _mark_disguise(create_profiler_from_args, theirs)
