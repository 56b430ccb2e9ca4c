"""shim_auto - TFI_STAGES=auto: makes stages of the parts of diffusers' pipelines, and of transformers' generate().

    FluxPipeline, ...                   a call of a pipeline, by its class      generate    a call of generate()
    transformer, text_encoder_2, ...    a call of a component, by its name      prefill     the model's first call in it
                                        in the pipeline                         decode      each later one
    scheduler                           a step of the scheduler
    vae.encode, vae.decode, image_processor.preprocess, video_processor.postprocess_video, ...

Stages inside a pipeline carry as payload the number of scheduler steps done, `decode` its own number. A method of a
component's class is replaced, once: Python looks special methods up there, and an instance, which may be copied,
pickled or compiled, has nothing of ours in it. The method acts for instances that are parts of a pipeline, and passes
all other calls on.
"""

import _thread

_AUTO = 0x1000  # TFI_RANGE_AUTO of include/tfi_trace.h
_AUTO_PROCESSING = ('preprocess', 'postprocess', 'preprocess_video', 'postprocess_video')

_auto_parts = _Weak()  # component -> its name
_auto_patched = set()  # (class, method) that are ours


class _AutoLocal(_thread._local):
    """State of a thread, innermost last: the scheduler steps done in each open pipeline; the models of open
    generate() calls, with the number of calls; the ids of components at work."""

    def __init__(self):
        self.pipelines = []
        self.generations = []
        self.parts = []


_auto_local = _AutoLocal()


def _auto_stage(name, number, original, args, kwargs, said=None):
    """Calls the original as a stage; `said` has the names of the arguments, if the original has not."""
    text = describe_call(said or original, args[1:] if said else args, kwargs, name)
    with _stage(name, _AUTO, number) as stage:
        if text:
            _signature(stage.id, 0, text)
        result = original(*args, **kwargs)
        text = describe_result(name, result)
        if text:
            _signature(stage.id, 1, text)
    return result


def _auto_patch(kind, method, make):
    """Replaces a class's method by make(the original), unless a class above it has ours already."""
    if any((base, method) in _auto_patched for base in kind.__mro__):
        return
    original = getattr(kind, method)
    staged = make(original)

    def wrapper(*args, **kwargs):
        if _is_compiling():
            return original(*args, **kwargs)
        try:
            return staged(*args, **kwargs)
        except BaseException as error:
            if type(error) is not TypeError or error.__traceback__.tb_next is not None:
                _hide(error)
                raise
        try:  # the arguments do not fit: the original says so, in its words
            return original(*args, **kwargs)
        except BaseException as error:
            _hide(error)
            raise
    for name in ('__module__', '__name__', '__qualname__', '__doc__', '__annotations__'):
        setattr(wrapper, name, getattr(original, name))
    wrapper.__wrapped__ = original  # for inspect.signature, which pipelines ask for their own arguments
    setattr(kind, method, wrapper)
    _auto_patched.add((kind, method))


def _auto_owner(kind, method):
    """The class that defines a method."""
    return next(base for base in kind.__mro__ if method in base.__dict__)


# ---- components ----

def _auto_part(suffix, after=None):
    """Returns make() for a method of a component; a component's call of itself opens no stage."""
    def make(original):
        def wrapper(self, *args, **kwargs):
            part, busy = _auto_parts.get(self), _auto_local.parts
            if part is None or id(self) in busy:
                return original(self, *args, **kwargs)
            steps = _auto_local.pipelines
            busy.append(id(self))
            try:
                return _auto_stage(part + suffix, steps[-1] if steps else None, original, (self, *args), kwargs,
                                   None if suffix or after else self.forward)
            finally:
                busy.remove(id(self))
                if after:
                    after()
        return wrapper
    return make


def _auto_module(original):
    """Wraps __call__ of torch modules: of models that generate (the first call in it reads the prompt), and of
    components."""
    component = _auto_part('')(original)

    def wrapper(self, *args, **kwargs):
        generations = _auto_local.generations
        if not generations or generations[-1][0] != id(self):
            return component(self, *args, **kwargs)
        number = generations[-1][1]
        generations[-1][1] += 1
        return _auto_stage('decode' if number else 'prefill', number, original, (self, *args), kwargs, self.forward)
    return wrapper


def _auto_step_done():
    if _auto_local.pipelines:
        _auto_local.pipelines[-1] += 1


def _auto_pipeline(original):
    def wrapper(self, *args, **kwargs):
        _auto_local.pipelines.append(0)
        try:
            return _auto_stage(type(self).__name__, None, original, (self, *args), kwargs)
        finally:
            _auto_local.pipelines.pop()
    return wrapper


@_guarded
def _auto_register(pipeline, name, value):
    """Registers a component of a pipeline by its name, and replaces methods of its class and of the pipeline's."""
    kind = type(value)
    names = {base.__name__ for base in kind.__mro__}
    methods = []
    if 'Module' in names and hasattr(value, 'forward'):
        if hasattr(kind, 'encode') and hasattr(kind, 'decode'):
            methods = [('encode', _auto_part('.encode')), ('decode', _auto_part('.decode'))]
        else:
            _auto_patch(kind, '__call__', _auto_module)
    elif 'SchedulerMixin' in names and hasattr(kind, 'step'):
        methods = [('step', _auto_part('', _auto_step_done))]
    elif 'VaeImageProcessor' in names or name.endswith('_processor'):
        methods = [(m, _auto_part('.' + m)) for m in _AUTO_PROCESSING if hasattr(kind, m)]
    else:
        return
    for method, make in methods:
        _auto_patch(_auto_owner(kind, method), method, make)
    if _auto_parts.get(value) is None:
        _auto_parts.set(value, name)
    _auto_patch(_auto_owner(type(pipeline), '__call__'), '__call__', _auto_pipeline)


def _auto_diffusers(module):
    if 'auto' not in _config['stages'] or not _load('signature'):
        return
    Pipeline = module.DiffusionPipeline
    original = Pipeline.__setattr__

    def __setattr__(self, name, value):
        try:
            original(self, name, value)
        except BaseException as error:
            _hide(error)
            raise
        _auto_register(self, name, value)

    for name in ('__module__', '__qualname__', '__doc__', '__annotations__'):
        setattr(__setattr__, name, getattr(original, name, None))
    __setattr__.__wrapped__ = original  # for inspect: signature and source
    Pipeline.__setattr__ = __setattr__


# ---- transformers ----

def _auto_generate(original):
    def wrapper(self, *args, **kwargs):
        generations = _auto_local.generations
        generations.append([id(self), 0])
        try:
            _auto_patch(type(self), '__call__', _auto_module)
            return _auto_stage('generate', None, original, (self, *args), kwargs)
        finally:
            generations.pop()
    return wrapper


def _auto_transformers(module):
    if 'auto' in _config['stages'] and _load('signature'):
        _auto_patch(module.GenerationMixin, 'generate', _auto_generate)
