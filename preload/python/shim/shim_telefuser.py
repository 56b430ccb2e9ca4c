"""shim_telefuser - replaces TeleFuser's profiler by stages of ours right after its module's import.

The results that a pipeline requests from TeleFuser later (timing report, summary, memory analysis) are measured here
and equal TeleFuser's: wall time and, with a device, TeleFuser's own view of its memory, whose peak a context resets
unless it is told not to. A context waits for the device where TeleFuser's does, by the same call: its time contains
the work it launched. TFI_SYNC_STAGES=0 leaves the waits out, and its line then says `launch`.

The trace records the same, so that files written from it contain the values of TeleFuser's: the requests to the
registry (`telefuser.*` facts), and the memory at the end of each stage. A context logs its lines as TeleFuser does; it
names the two files of TeleFuser's profiler, and `tfanalyze report` writes ours. Output places and the selected stages
follow TeleFuser's setters. TeleFuser writes its own files at exit.
"""

import sys

_MARK_TELEFUSER = 0x4000  # TFI_RANGE_TELEFUSER of include/tfi_trace.h
_MARK_WAITS = 0x80000  # TFI_RANGE_WAITS of it
_MIB = 1024.0 * 1024.0
_telefuser_names = _Weak()  # of contexts that do nothing; torch.compile follows globals, and no variables of ours
_TELEFUSER_MEMORY = ('allocated_mb', 'reserved_mb', 'peak_allocated_mb', 'peak_reserved_mb')


def _telefuser_json(value):
    return sys.modules['json'].dumps(value, default=str)  # in ASCII: texts may have halves of surrogate pairs


def _telefuser_logger(module, function, text):
    """Returns TeleFuser's logger; its lines show the function and the line of TeleFuser's that would have written them."""
    lines, line = _functions('getsourcelines')(function)
    line += next((i for i, code in enumerate(lines) if text in code), 0)
    shown = {'name': module.__name__, 'function': function.__name__, 'line': line}
    return module.logger.patch(lambda record: record.update(shown))


def _telefuser_registry(module):
    """Records the parts of TeleFuser's report besides stages: request, metadata, checkpoints of memory. The trace
    gets them when they change."""
    registry, told = module.GlobalTimingRegistry, {}
    memory = sys.modules['telefuser.utils.memory_snapshot']._MemorySnapshotRegistry

    def tell(key, text):
        if told.get(key) != text:
            told[key] = text
            _metadata('telefuser.' + key, text, 'telefuser')

    @_guarded
    def began(instance):
        _timing_reset()
        tell('ended', '')
        tell('began', str(module.time.time_ns()))
        tell('request_id', _telefuser_json(instance._request_id))
        described(instance)
        analysed()

    @_guarded
    def ended():
        tell('ended', str(module.time.time_ns()))

    @_guarded
    def described(instance):
        tell('metadata', _telefuser_json(instance._metadata))

    @_guarded
    def analysed():
        tell('memory', _telefuser_json(memory.get_instance().get_analysis()))

    def make_reset(theirs):
        def reset(cls, *args, **kwargs):
            instance = theirs(cls, *args, **kwargs)
            began(instance)
            return instance
        return reset

    def make_finalize(theirs):
        def finalize(self):
            fresh = self._end_time == 0.0
            theirs(self)
            if fresh:
                ended()
        return finalize

    def make_set_metadata(theirs):
        def set_metadata(self, *args, **kwargs):
            theirs(self, *args, **kwargs)
            described(self)
        return set_metadata

    def make_checkpoint(theirs):
        def checkpoint(self, *args, **kwargs):
            result = theirs(self, *args, **kwargs)
            if self._snapshots:
                analysed()
            return result
        return checkpoint

    for holder, name, make in ((registry, 'reset', make_reset), (registry, 'finalize', make_finalize), (registry, 'set_metadata', make_set_metadata),
                               (memory, 'record', make_checkpoint), (memory, 'set_baseline', make_checkpoint)):
        _replace(holder, name, make)

    export = module._auto_export_timing_report

    def write(dump, path):
        """Lets TeleFuser write a file, and marks it: `tfanalyze report` replaces it by the file of all ranks. Ranks that
        end at once write whole files."""
        unfinished, logger = '%s.tmp%d' % (path, module.os.getpid()), module.logger
        module.logger = logger.patch(lambda record: record.update(message=record['message'].replace(unfinished, path)))
        try:
            dump(unfinished)
        finally:
            module.logger = logger
        with open(unfinished, 'r+', encoding='utf-8') as file:
            text = file.read()
            file.seek(0)
            file.write('{\n  "writer": "tfinject",' + text[1:])
        module.os.replace(unfinished, path)

    @_guarded
    def at_exit():
        """Writes the files that TeleFuser writes at its exit, to the place where it would."""
        if module._IS_WORKER_PROCESS:
            return
        instance = registry.get_instance()
        if instance._records:
            described(instance)
            if module._get_timing_report_path():
                export()
            else:
                path = str(module._get_profiler_output_dir() / 'timing.json')
                write(instance.dump, path)
                if instance._io_signatures:
                    write(instance.dump_io_signatures, path.replace('.json', '_io_signature.json'))
        if '_TELEFUSER_WORKER_TIMING_DIR' in module.os.environ:
            module._clean_worker_timing_dir()

    module.atexit.unregister(export)
    module.atexit.register(at_exit)


def _telefuser_setters(module):
    """Lets TeleFuser's setters decide the place of files and the stages that are recorded."""
    environ = module.os.environ

    @_guarded
    def place(call):
        wanted = ''
        if not environ.get('TFI_OUTPUT_DIR'):
            wanted = environ.get('TELEFUSER_PROFILER_OUTPUT_DIR', '')
        used = _run_dir(wanted, environ.get('TFI_PIPELINE_NAME') or environ.get('TELEFUSER_PIPELINE_NAME', ''))
        later[:] = [used[1:]] if used.startswith('!') else []
        if later:
            _warn("TeleFuser's %s: recording has begun, and its traces stay in %s; TeleFuser's own files go to %s"
                  % (call, _run_dir(None, None), later[0]))
        elif 'TFI_RUN_DIR' in environ:
            environ['TFI_RUN_DIR'] = used

    def placing(theirs):
        def set_place(*args, **kwargs):
            theirs(*args, **kwargs)
            place('%s(%r)' % (theirs.__name__, str((*args, *kwargs.values())[0])))
        return set_place

    def enabling(theirs):
        def enable_profiler_for_names(*args, **kwargs):
            theirs(*args, **kwargs)
            knew = _torch_operators()
            _select((*args, *kwargs.values())[0])
            if _torch_operators() and not knew and '_attach' in globals():
                _attach(sys.modules['torch'])
        return enable_profiler_for_names

    later = []  # where TeleFuser's own files go, if that was said after the first trace was begun
    for name, make in (('set_profiler_output_dir', placing), ('set_pipeline_name', placing), ('enable_profiler_for_names', enabling),
                       ('_get_profiler_output_dir', lambda theirs: lambda: _telefuser_place(module, theirs, later))):
        _replace(module, name, make)


def _telefuser_place(module, theirs, later=()):
    """Returns the run directory, or the one that was named later; relative where TeleFuser's would be."""
    place, plain = module.Path(later[0] if later else _run_dir(None, None)), theirs()
    try:
        return place if plain.is_absolute() or module.os.environ.get('TFI_OUTPUT_DIR') else place.relative_to(module.Path.cwd())
    except (ValueError, OSError):  # it does not lie below the working directory, or that is gone
        return place


def _mark_telefuser(module):
    if not _load('markers') or not _load('signature'):
        return
    if _config['keep_originals']:
        _telefuser_beside(module)
    else:
        _telefuser_registry(module)
        _telefuser_setters(module)
        _telefuser_contexts(module)
    _telefuser_quiet(module)


def _telefuser_beside(module):
    """Opens a stage inside each context of TeleFuser's, which runs its own code."""
    def make_enter(theirs):
        def __enter__(self):
            entered = theirs(self)
            if not _is_compiling():
                _mark_enter(self, self.name, _MARK_TELEFUSER)
            return entered
        return __enter__

    def make_exit(theirs):
        def __exit__(self, exc_type, exc_val, exc_tb):
            stage = None if _is_compiling() else _mark_take(self)
            if stage:
                stage.__exit__()
            return theirs(self, exc_type, exc_val, exc_tb)
        return __exit__

    _replace(module._ProfilingContext, '__enter__', make_enter)
    _replace(module._ProfilingContext, '__exit__', make_exit)


def _telefuser_contexts(module):
    timer = module.time.perf_counter
    wraps = module.wraps
    full = module._ProfilingContext
    snapshots = sys.modules['telefuser.utils.memory_snapshot']
    opening, timed, tracing, breaking = (_telefuser_logger(module, *of) for of in (
        (full.__enter__, '[Profiler] Started'), (full.__exit__, '[Timing]'), (full.__exit__, '[Profiler] Chrome trace'),
        (full._export_kernel_breakdown, '[Profiler] Kernel breakdown')))
    has_device = module.torch.get_device_module().is_available()
    waits = has_device and _config['sync_stages'] is not False
    flags, unit = _MARK_TELEFUSER | (_MARK_WAITS if waits else 0), 'ms launch' if has_device and not waits else 'ms'

    def wait():
        if waits:
            module.current_platform.synchronize()

    def memory(stage):
        """Returns a snapshot of TeleFuser's from the stage's memory values; TeleFuser's own if nothing is known of any."""
        seen = _memory(stage.id) if stage.id else None
        if not seen:
            return module.capture_memory_snapshot()
        return snapshots.MemorySnapshot(*(b / _MIB for b in seen))

    def checkpoint(name, snapshot):
        snapshots._MemorySnapshotRegistry.get_instance().record(name, snapshot)

    def enter(self):
        if _is_compiling():
            return self
        wait()
        if has_device:
            begin(self, None)
        stage = _mark_enter(self, self.name, flags)
        if not has_device:
            begin(self, stage)
        self._start_time = timer()
        profiling(self)
        return self

    def leave(self, exc_type, exc_val, exc_tb):
        stage = None if _is_compiling() else _mark_take(self)
        if stage:
            id, seen = stage.id, None if has_device else memory(stage)
            try:
                wait()
            finally:
                ended = timer()
                stage.__exit__()
            self._duration_ms = (ended - self._start_time) * 1000
            end(self, id, seen)
        return False

    def decorate(self, func):
        again = self._ctx_kwargs
        names = list(_functions('signature')(func).parameters)
        return _mark_decorate(func, self.name, lambda: full(self.name, **again), wraps,
                              lambda args, kwargs, result: told(self.name, names, args, kwargs, result))

    for name, ours in (('__enter__', enter), ('__exit__', leave), ('__call__', decorate)):
        _replace(full, name, lambda theirs, ours=ours: ours)

    @_guarded
    def begin(context, stage):
        if context.capture_memory:
            checkpoint('before_' + context.name, memory(stage) if stage else module.capture_memory_snapshot())
        if has_device and context.reset_peak_memory:
            module.reset_peak_memory_stats()

    @_guarded
    def end(context, id, seen):
        """Gives TeleFuser's report its numbers. A worker's times reach the report of the process that asks through
        the file."""
        context._memory_snapshot = seen
        if has_device:
            context._memory_snapshot = seen = module.capture_memory_snapshot()
            _snapshot(id, context.name, *(int(getattr(seen, key) * _MIB) for key in _TELEFUSER_MEMORY))
        if context.capture_memory:
            checkpoint('after_' + context.name, context._memory_snapshot)
        registry = module.GlobalTimingRegistry.get_instance()
        registry.record(context.name, context._duration_ms, context._memory_snapshot)
        if module._IS_WORKER_PROCESS:
            module._write_worker_timing_file(context.name, context._rank, context._duration_ms, context._memory_snapshot)
        timed.info(f'{context._rank_info} [Timing] {context.name}: {context._duration_ms:.2f} {unit}{context._format_memory_info()}')
        if context._enable_profiler:
            for log, file, suffix in ((tracing, 'Chrome trace', '.trace.json.gz'), (breaking, 'Kernel breakdown', '.breakdown.json')):
                path = _telefuser_place(module, module._get_profiler_output_dir.__wrapped__) / f'{_mark_file_name(context.name)}_rank{context._rank}{suffix}'
                log.info(f'{context._rank_info} [Profiler] {file}: {path}')

    @_guarded
    def profiling(context):
        if context._enable_profiler:
            opening.info(f"{context._rank_info} [Profiler] Started torch.profiler for '{context.name}'")

    @_guarded
    def told(name, names, args, kwargs, result):
        if not any(type(a) in (list, tuple) and not a for a in (*args, *kwargs.values())):  # theirs looks at the first item
            module._record_stage_signature(name, module._capture_input_signatures(args, kwargs, names), result, kwargs)


def _telefuser_quiet(module):
    """Makes stages of the contexts that do nothing."""
    null, wraps = module._NullContext, module.wraps

    def make_init(theirs):
        def __init__(self, *args, **kwargs):
            theirs(self, *args, **kwargs)
            if not _is_compiling():
                _telefuser_names.set(self, args[0] if args else kwargs['name'])
        return __init__

    def enter(self):
        if not _is_compiling():
            name = _telefuser_names.get(self)
            if name is not None:
                _mark_enter(self, name, _MARK_TELEFUSER)
        return self

    def leave(self, exc_type, exc_val, exc_tb):
        if not _is_compiling():
            stage = _mark_take(self)
            if stage:
                stage.__exit__()
        return False

    async def enter_later(self):
        return self.__enter__()

    async def leave_later(self, exc_type, exc_val, exc_tb):
        return self.__exit__(exc_type, exc_val, exc_tb)

    def decorate(self, func):
        """Returns the function as a stage. What it decorates else stays what it was, as with theirs: a class, a module, a
        property, a function whose body runs later."""
        name = _telefuser_names.get(self)
        is_plain = type(func) is type(decorate) and not func.__code__.co_flags & 0x220  # CO_GENERATOR, CO_ASYNC_GENERATOR
        return _mark_decorate(func, name, lambda: null(name), wraps) if name is not None and is_plain else func

    _replace(null, '__init__', make_init)
    for name, ours in (('__enter__', enter), ('__exit__', leave), ('__aenter__', enter_later), ('__aexit__', leave_later), ('__call__', decorate)):
        _replace(null, name, lambda theirs, ours=ours: ours)
