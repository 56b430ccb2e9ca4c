"""shim.py - acts inside a Python process when the program imports a module of interest.

It runs once, before the program, in a namespace that no module holds; preload/python/python.c gives it the builtins
of preload/python/builtins.def and `_config`. Parts with a topic of their own (preload/python/shim/shim_*.py) run in the
same namespace when they are first needed: `_PARTS` maps imports to parts. Compiling the parts takes most of the time
that the library adds to the start of an interpreter, and most interpreters need none.

Rules for all of it. Nothing is imported that the interpreter has not imported already, unless the program does. The
program's modules, their __spec__ and __loader__, sys.modules and tracebacks look as they do without us. An exception
of ours never reaches the program: code that can fail is `_guarded`, which gives one warning and switches that part
off. An exception of the program's own always reaches it: its signal handlers run inside any Python code, ours too. So
C code that forgets exceptions (getters, callbacks of weak references, os.register_at_fork, __del__) is given no Python
function of ours.
"""

import sys

# (module, part, function): once the module has been imported, the part is loaded and its function called with it.
_PARTS = (
    ("asyncio.events", "stages", "_watch_asyncio"),
    ("asyncio.base_events", "stages", "_watch_base_loop"),
    ("uvloop", "stages", "_watch_uvloop"),
    ("torch", "torch", "_watch_torch"),
    ("torch.distributed.distributed_c10d", "torch", "_watch_distributed"),
    ("torch.utils.data._utils.worker", "loader", "_watch_workers"),
    ("torch.utils.data.dataloader", "loader", "_watch_loaders"),
    ("telefuser.utils.profiler", "telefuser", "_mark_telefuser"),
    ("cache_dit.profiler", "markers", "_mark_cache_dit"),
    ("cache_dit._utils.utils", "markers", "_mark_cache_dit_arguments"),
    ("dftracer.logger", "dftracer", "_watch_dftracer"),
    ("dftracer.dbg.logger", "dftracer", "_watch_dftracer"),
    ("dftracer_dbg.logger", "dftracer", "_watch_dftracer"),
    ("dftracer.python.common", "dftracer", "_watch_dftracer"),
    ("dftracer.python.ai_common", "dftracer", "_watch_dftracer_ai"),
    ("diffusers.pipelines.pipeline_utils", "auto", "_auto_diffusers"),
    ("transformers.generation.utils", "auto", "_auto_transformers"),
    ("torch._dynamo.utils", "compile", "_watch_dynamo"),
) + tuple((name, "torch", "_watch_native") for name in _config["native"])


def _guarded(function):
    """Wraps a function of ours: if it raises, it warns once and does nothing from then on."""
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
            _warn("%s has failed and is off: %s: %s" % (function.__name__.strip("_"), type(error).__name__, error))
            return None
    return guarded


def _is_handlers(error):
    """True for an exception from a signal handler of the program that ran during code of ours: it is the
    program's. Such a handler is recognised by its arguments: they contain a frame of ours."""
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
    """Removes our frames from the beginning of a traceback that reaches the program: the program's own code raised
    it. If an exception is raised again (`raise`), versions before 3.11 have another copy of the traceback, and
    show our frames."""
    try:
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == "<tfinject>":
            traceback = traceback.tb_next
        error.__traceback__ = traceback
    except Exception:  # an audit hook may refuse to show frames
        pass


def _load(part):
    """Runs preload/python/shim/shim_PART.py once; False if it failed, now or earlier."""
    if part in _failed:
        return False
    try:
        _load_part(part)
        return True
    except Exception as error:
        if _is_handlers(error):
            raise
        _failed.add(part)
        _warn("shim_%s has failed and is off: %s: %s" % (part, type(error).__name__, error))
        return False


_failed = set()


class _Weak:
    """Values for objects, by identity, as long as these live. When one goes only C code runs."""
    __slots__ = ("entries",)

    def __init__(self):
        self.entries = {}

    def get(self, thing, default=None):
        entry = self.entries.get(id(thing))
        return default if entry is None else entry[1]

    def set(self, thing, value):
        key, partial = id(thing), sys.modules["_functools"].partial
        self.entries[key] = (sys.modules["_weakref"].ref(thing, partial(self.entries.pop, key)), value)

    def pop(self, thing):
        entry = self.entries.pop(id(thing), None)
        return entry and entry[1]


# ---- imports ----
#
# A finder is first in sys.meta_path while some import is awaited. It lets the other finders find the module, and
# gives the resulting spec a class whose `_initializing` notices the end of the import. Nothing of ours is on the
# stack while the module runs, and the class is the old one again before other code can read it.

_ModuleSpec = sys.modules["_frozen_importlib"].ModuleSpec
_awaited = {}  # module's name -> functions


def _set_initializing(spec, value):
    spec.__dict__["_initializing"] = value
    if not value:
        spec.__class__ = _ModuleSpec
        _imported(spec.name)


class _Initializing:
    """Notices that the import machinery sets the attribute. It is read from C, which forgets exceptions: so there is no
    __get__, and the value is found in the spec's own dictionary."""
    __slots__ = ()
    __set__ = _hidden(_set_initializing)


class _Spec(_ModuleSpec):
    __slots__ = ()
    __module__ = _ModuleSpec.__module__
    __qualname__ = _ModuleSpec.__qualname__
    _initializing = _Initializing()


_Spec.__name__ = _ModuleSpec.__name__


def _find_spec(name, path=None, target=None):
    if name not in _awaited or not _is_import(_frame()):
        return None
    for finder in list(sys.meta_path):
        find = None if finder is _Finder else getattr(finder, "find_spec", None)
        spec = _shown(find, name, path, target) if find else None
        if spec is not None:
            if type(spec) is _ModuleSpec:
                spec.__class__ = _Spec
            return spec
    return None


class _Finder:
    find_spec = _hidden(_find_spec)


def _come_first(name):
    """Another finder may have come before ours since. An awaited module is about to be imported."""
    finders = sys.meta_path
    if type(finders) is list and finders[0] is not _Finder and any(finder is _Finder for finder in finders):
        finders.remove(_Finder)
        finders.insert(0, _Finder)


def _is_import(frame):
    """True if the caller imports; importlib.util.find_spec() imports nothing."""
    try:
        return frame.f_back is not None and frame.f_back.f_code.co_name == "_find_and_load_unlocked"
    except Exception as error:  # raised by an audit hook
        if _is_handlers(error):
            raise
        return False


def _imported(name):
    module = sys.modules.get(name)
    if module is None:
        return  # the import has raised: the next attempt starts anew
    for function in _awaited.pop(name, ()):
        function(module)
    if not _awaited and _Finder in sys.meta_path:
        sys.meta_path.remove(_Finder)


def _when_imported(name, function):
    """Calls function(module) right after the module's first import, or now if it is imported."""
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


# (module, function, kind of _on_calls, label): seen as part of the start of the process, or as a stage (kind 0) by
# TFI_STAGES=auto.
_SEEN = (
    ("torch.serialization", "load", 2, "torch.load"),
    ("safetensors.torch", "load_file", 2, "safetensors.torch.load_file"),
    ("transformers.modeling_utils", "PreTrainedModel.from_pretrained", 2, "transformers from_pretrained"),
    ("diffusers.models.modeling_utils", "ModelMixin.from_pretrained", 2, "diffusers model from_pretrained"),
    ("diffusers.pipelines.pipeline_utils", "DiffusionPipeline.from_pretrained", 2, "diffusers pipeline from_pretrained"),
    ("torch.cuda", "_lazy_init", 3, "torch.cuda"),
    ("torch.distributed.distributed_c10d", "init_process_group", 3, "torch.distributed"),
    ("transformers.trainer", "Trainer.training_step", 0, "training_step"),
    ("transformers.trainer", "Trainer.prediction_step", 0, "prediction_step"),
    ("torch.distributed.distributed_c10d", "barrier", 0, "barrier"),
    ("vllm.v1.engine.core", "EngineCore.step", 0, "step"),
    ("sglang.srt.managers.scheduler", "Scheduler.run_batch", 0, "run_batch"),
) + tuple((package + ".strategies.strategy", "Strategy." + step, 0, step)
          for package in ("lightning.pytorch", "pytorch_lightning")
          for step in ("training_step", "validation_step", "test_step", "predict_step"))


def _see(module, path, kind, label):
    owner = found = module
    for name in path.split("."):
        owner, found = found, getattr(found, "__dict__", {}).get(name)
    function = getattr(found, "__func__", found)
    if function is None or not _on_calls(function, _guarded, kind, label):
        _debug("shim: %s.%s is not seen" % (module.__name__, path))
    elif kind == 0 and sys.version_info[:2] == (3, 11):
        _pass_on(owner, name, function)


def _pass_on(owner, name, function):
    """Puts a function in the place of one whose calls are seen. Python 3.11 takes no notice of a function's pointer (calls.c)
    where Python code calls it, unless the arguments are `*args`."""
    def wrapper(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            _hide(error)
            raise
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__defaults__", "__kwdefaults__"):
        setattr(wrapper, attribute, getattr(function, attribute))
    wrapper.__wrapped__ = function  # for inspect: signature and source
    setattr(owner, name, wrapper)


def _load_functions(module):
    if _load("stages"):
        _load("functions")


def _begin():
    _debug("shim: begin")
    if (_config["hang_s"] or _config["sample_hz"]) and "posix" in sys.modules:
        sys.modules["posix"].register_at_fork(after_in_child=_forked)
    _on_import(_awaited, _come_first)
    _see(sys.modules["_frozen_importlib"], "_find_and_load", 1, "")
    for module, path, kind, label in _SEEN:
        if kind or "auto" in _config["stages"]:
            def see(found, path=path, kind=kind, label=label):
                _see(found, path, kind, label)
            see.__name__ = path
            _when_imported(module, see)
    for module, part, function in _PARTS:
        def act(found, part=part, function=function):
            if _load("stages") and _load(part):
                _debug("shim: " + function.strip("_"))
                globals()[function](found)
        act.__name__ = part
        _when_imported(module, act)
    for entry in _config["stages"]:
        module, _, path = entry.partition(":")
        if module and module != "__main__" and path:
            _when_imported(module, _load_functions)
        elif entry != "auto":  # an entry of the script, or one that names nothing, which is reported now
            _load_functions(None)
    _debug("shim: ready")


_guarded(_begin)()
