"""shim_torch.py - acts on torch from its import on: libtorch's callbacks, modules as stages, facts about the job.

Runs in the namespace of shim.py when torch has been imported. Ranges and operators come from libtorch itself
(preload/torch/torch.c). Before they are recorded, a few operators on tensors without memory test whether libtorch's
structures match. If they do not, only the functions that libtorch exports are used; if those fail too,
record_function of Python.
"""

import _thread
import sys

_DIRECT, _EXPORTED, _OFF = 1, 2, 3
_RANGE_TORCH, _RANGE_MODULE = 0x400, 0x2000


# ---- libtorch's callbacks ----

def _seen(act, *args):
    """Returns the description of the first operator or range that this call began: name, shapes, types, values,
    strides."""
    _torch_seen()
    act(*args)
    return _torch_seen().split("\n")


def _range_works(torch):
    def mark():
        with torch.autograd.profiler.record_function("tfinject"):
            pass
    return _seen(mark)[0] == "tfinject"


def _operators_work(torch, how):
    """Runs operators with known inputs; neither memory nor random numbers nor a device are touched."""
    if not _torch_try(how):
        return False
    a = torch.empty((2, 3), dtype=torch.float32, device="meta")
    b = torch.empty((1, 2, 1, 3, 1, 2), dtype=torch.int64, device="meta")
    t = a.t()
    trials = (
        (a.view, (3, 2), ["aten::view", "[[2, 3], []]", '["float", "ScalarList"]', '["", "[3, 2]"]', "[[3, 1], []]"]),
        (b.unsqueeze, (0,), ["aten::unsqueeze", "[[1, 2, 1, 3, 1, 2], []]", '["long int", "Scalar"]', '["", "0"]',
                             "[[12, 6, 6, 2, 2, 1], []]"]),
        (torch.result_type, (t, 2.5), ["aten::result_type", "[[3, 2], []]", '["float", "Scalar"]', '["", "2.5"]',
                                       "[[1, 3], []]"]),
        (torch.broadcast_tensors, (t, t), ["aten::broadcast_tensors", "[[[3, 2], [3, 2]]]", '["TensorList"]', '[""]',
                                           "[[[1, 3], [1, 3]]]"]),
    )
    names_only = not _config["record_shapes"]
    for act, args, expected in trials[:3 if how == _EXPORTED else 4]:
        found = _seen(act, *args)
        if found[3:4] == [""]:  # libtorch 2.0 has no function for the text of values
            expected[3] = ""
        parts = 1 if names_only else 2 if how == _EXPORTED else 5
        if found[:parts] != expected[:parts]:
            _debug("shim: torch: %r is not %r" % (found, expected))
            return False
    return True


def _patch_record_function(torch):
    """Patches record_function of Python as a fall-back; ranges from C++ bypass it."""
    cls = torch.autograd.profiler.record_function
    enter, leave = cls.__enter__, cls.__exit__
    ids = {}

    def __enter__(self):
        stage = _stage(self.name, _RANGE_TORCH)
        stage.__enter__()
        ids.setdefault(id(self), []).append(stage)
        return enter(self)

    def __exit__(self, exc_type, exc_value, traceback):
        stages = ids.get(id(self))
        try:
            return leave(self, exc_type, exc_value, traceback)
        finally:
            if stages:
                stages.pop().__exit__()
                if not stages:
                    ids.pop(id(self), None)
    for made, of in ((__enter__, enter), (__exit__, leave)):
        made.__qualname__, made.__module__, made.__doc__ = of.__qualname__, of.__module__, of.__doc__
    cls.__enter__, cls.__exit__ = __enter__, __exit__


def _attach(torch):
    _debug("shim: attach")
    why = _torch(str(torch.__version__))
    if why is None and not (_torch_try(0) and _range_works(torch)):
        why = "its callbacks do not behave as expected"
    if why is not None:
        _torch_use(_OFF)
        _patch_record_function(torch)
        _warn("libtorch %s: %s; operators are not recorded, and the only ranges recorded are those of record_function" % (torch.__version__, why))
        _metadata("torch.operators", "off: " + why, "tfinject")
        return
    if not _torch_operators():
        _torch_use(0)
        _metadata("torch.operators", "off: " + ("no stage is selected" if _config["activities"] & _config["bits"]["ops"] else "ops is not in TFI_ACTIVITIES"), "tfinject")
        return
    known = _torch_try(_DIRECT)
    how = _DIRECT if known and _operators_work(torch, _DIRECT) else _EXPORTED
    if how == _EXPORTED:
        if known:
            _warn("libtorch %s has an unknown memory layout: its exported functions give the shapes of operators" % torch.__version__)
        if not _operators_work(torch, _EXPORTED):
            how = 0
            _warn("libtorch %s: shapes of operators cannot be read; operators are recorded without them" % torch.__version__)
    _torch_use(how)
    _metadata("torch.operators", ("names", "direct", "exported")[how], "tfinject")


# ---- modules ----

def _name_modules(names, root):
    top = type(root).__name__
    for path, module in root.named_modules():
        if names.get(module) is None:
            names.set(module, top + "." + path if path else top)


def _watch_modules(torch, most):
    """Makes stages of calls of modules while fewer than `most` are open; compiled code sees the original only."""
    _debug("shim: modules")
    if not _load("signature"):
        return
    Module, is_compiling = torch.nn.Module, _is_compiling
    call = Module.__call__
    names = _Weak()

    class Local(_thread._local):
        depth, root = 0, None
    local = Local()

    @_guarded
    def enter(module):
        if not local.depth:
            local.root = module
        if names.get(module) is None:
            _name_modules(names, local.root)
        name = names.get(module) or type(module).__name__
        stage = _stage(name, _RANGE_MODULE)
        stage.__enter__()
        return stage

    def __call__(self, *args, **kwargs):
        if is_compiling() or local.depth >= most:
            return call(self, *args, **kwargs)
        stage = enter(self)
        local.depth += 1
        try:
            return call(self, *args, **kwargs)
        except BaseException as error:
            _hide(error)
            raise
        finally:
            local.depth -= 1
            if not local.depth:
                local.root = None  # drop it, so that nothing of ours keeps a model alive
            if stage is not None:
                stage.__exit__()
    __call__.__name__, __call__.__qualname__ = call.__name__, call.__qualname__
    __call__.__module__, __call__.__doc__ = call.__module__, call.__doc__
    Module.__call__ = __call__


# ---- native functions ----

def _watch_native(module):
    """Replaces the builtin functions of an extension module by recorded ones; see torch_builtins.c."""
    last = module.__name__.rpartition(".")[2]
    for name, function in list(vars(module).items()):
        if type(function) is not type(len) or function.__module__ not in (module.__name__, last):
            continue
        doc, signature = function.__doc__ or "", function.__text_signature__
        if signature:
            doc = "%s%s\n--\n\n%s" % (name, signature, doc)
        made = _native(module.__name__ + "." + name, function.__name__, doc, function, function.__module__)
        if made is not None:
            setattr(module, name, made)


# ---- facts about the run ----

def _watch_metadata(torch):
    _debug("shim: metadata")
    import json
    cls = torch.profiler.profiler._KinetoProfile

    def wrap(name, text_of):
        method = getattr(cls, name, None)
        if method is None:
            return

        @_guarded
        def keep(key, value):
            _metadata(str(key), text_of(value), "torch.profiler")

        def add(self, key, value):
            if not str(_frame().f_globals.get("__name__")).startswith("torch.profiler."):  # its own entries
                keep(key, value)
            try:
                return method(self, key, value)
            except BaseException as error:
                _hide(error)
                raise
        add.__name__, add.__qualname__ = method.__name__, method.__qualname__
        add.__module__, add.__doc__, add.__annotations__ = method.__module__, method.__doc__, method.__annotations__
        add.__wrapped__ = method  # for inspect: source
        setattr(cls, name, add)

    def of_json(value):
        try:
            parsed = json.loads(value)
        except (TypeError, ValueError):
            return str(value)
        return parsed if isinstance(parsed, str) else str(value)
    wrap("add_metadata", str)
    wrap("add_metadata_json", of_json)


def _distributed_info(torch, dist):
    """Describes the job as torch.profiler does."""
    backend = dist.get_backend()
    info = {"backend": backend, "rank": dist.get_rank(), "world_size": dist.get_world_size()}
    for key, name in ("pg_count", "get_pg_count"), ("pg_config", "_get_all_pg_configs"):
        if hasattr(dist, name):  # torch 2.3 and newer
            info[key] = getattr(dist, name)()
    if backend == "nccl":
        info["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()))
    return info


def _watch_distributed(dist):
    import json
    torch = sys.modules["torch"]
    said = []

    @_guarded
    def distributed():
        if not dist.is_initialized():
            return
        if not said:
            _rank(dist.get_rank(), dist.get_world_size(), "c10d")
        text = json.dumps(_distributed_info(torch, dist), default=lambda value: getattr(value, "item", value.__str__)())
        if text not in said:
            said[:] = [text]
            _metadata("distributedInfo", text, "c10d")

    def wrap(name):
        function = getattr(dist, name)

        def wrapper(*args, **kwargs):
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                _hide(error)
                raise
            distributed()
            return result
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__wrapped__"):
            if hasattr(function, attribute):
                setattr(wrapper, attribute, getattr(function, attribute))
        if not hasattr(function, "__wrapped__"):
            wrapper.__wrapped__ = function
        setattr(dist, name, wrapper)
    wrap("init_process_group")
    wrap("new_group")


# ---- modules of TorchScript ----

def _keep_units(torch):
    """Keeps the functions of each TorchScript file that is loaded, for libtorch's function that names the modules around an
    operator: it asks inlined calls for their functions, which torch frees with the file. The weights are not kept."""
    kept = []

    def wrap(name):
        function = getattr(torch._C, name, None)
        if function is None:
            return

        def loaded(unit, *args, **kwargs):
            kept.append(unit)
            try:
                return function(unit, *args, **kwargs)
            except BaseException as error:
                _hide(error)
                raise
        setattr(torch._C, name, loaded)
    for name in ("import_ir_module", "import_ir_module_from_buffer", "_import_ir_module_from_package"):
        wrap(name)


# ---- memory of the framework's own tensors ----

def _watch_optimizers(torch):
    PARAMETER, GRADIENT, STATE = 3, 4, 5

    def storages(tensor):
        """A wrapper such as DTensor has no memory, but its parts do."""
        if not isinstance(tensor, torch.Tensor):
            return
        if hasattr(tensor, "__tensor_flatten__"):
            for name in tensor.__tensor_flatten__()[0]:
                yield from storages(getattr(tensor, name))
        elif tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            if storage.device.type != "meta":  # that of a FakeTensor, too
                yield storage

    def pairs(tensors):
        """Tensors of other kinds may have no storage, or one without an address."""
        found = []
        for tensor in tensors:
            try:
                found += [n for s in storages(tensor) for n in (s.data_ptr(), s.nbytes())]
            except Exception as error:
                if _is_handlers(error):
                    raise
        return tuple(found)

    @_guarded
    def optimizers(optimizer, args, kwargs):
        if _is_compiling():
            return
        with torch._C.DisableTorchFunction():  # the program's modes see none of this
            write(optimizer)

    def write(optimizer):
        name = type(optimizer).__name__
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        _tensors(name, PARAMETER, pairs(parameters))
        _tensors(name, GRADIENT, pairs(p.grad for p in parameters if p.grad is not None))
        states = {}
        for p in parameters:
            state = optimizer.state.get(p)
            for key, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor):
                    states.setdefault(str(key), []).append(value)
        for key, tensors in states.items():
            _tensors(key, STATE, pairs(tensors))
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(optimizers)


def _watch_torch(torch):
    _guarded(_attach)(torch)
    _guarded(_watch_metadata)(torch)
    if _config["module_depth"]:
        _guarded(_watch_modules)(torch, _config["module_depth"])
    if _config["with_modules"]:
        _guarded(_keep_units)(torch)
    if _config["tensor_addresses"] and _load("signature"):
        _guarded(_watch_optimizers)(torch)
