#!/usr/bin/env python3
"""tfharness - runs one stage of a pipeline alone, with inputs like the recorded ones, and profiles it.

    tfharness.py --signature DIR/timing_io_signature.json --stage denoise --target pipelines.dit:stage

    import tfharness
    harness = tfharness.from_signature_file('timing_io_signature.json', 'denoise', stage_instance=stage)
    harness.setup()
    harness.profile(warmup=2, profile_steps=5)

The stage's signature gives the shapes, dtypes, strides and devices of the inputs; a fixed seed gives the values. The
harness writes {stage}_trace.json.gz, {stage}_breakdown.json, and profile_{stage}.py unless it exists, as after `tfanalyze
report`. The harness, and these scripts, which import it, need torch and the modules of the stage.
"""

import argparse
import asyncio
import builtins
import collections.abc
import contextlib
import dataclasses
import enum
import importlib
import importlib.machinery
import importlib.util
import inspect
import json
import math
import os
import pprint
import statistics
import sys
import time
from types import SimpleNamespace

SEED = 0  # of every random value
ALLOWED = frozenset('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._ #*()-')


class Problem(ValueError):
    """An error that names the fault and the remedy, for the user."""


def plain(text):
    """Returns the text with its control characters escaped, which could move a terminal's cursor."""
    return ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def say(text):
    print(f'[Harness] {plain(text)}', flush=True)


def file_name(stage):
    """Returns the stage's name as a part of a file name."""
    name = ''.join(c if c in ALLOWED else '_' for c in stage)[:120] or '_'
    return '_' + name[1:] if name[0] == '.' else name


# ---- limits on a trace ----
#
# A signature comes from a trace, and a trace may be hostile. It can therefore name only the user's own code (modules under
# the current directory) and library classes that are made from numbers and names. --trust lifts the limit; --target names
# the stage without the trace.

LIBRARIES = ('diffusers', 'transformers')
METHODS = frozenset(('__call__', 'decode', 'encode', 'forward', 'generate', 'postprocess', 'postprocess_video', 'preprocess',
                     'preprocess_video', 'step'))
MADE = frozenset(('ConfigMixin', 'DiffusionPipeline', 'PreTrainedModel', 'PreTrainedTokenizerFast'))
LOADS_CODE = frozenset(('trust_remote_code', 'custom_generate', 'custom_pipeline', 'code_revision'))


def lies_here(path):
    """True for a file or directory under the current one, unless it is this file or an installer has put it there."""
    here, path = os.path.realpath(os.getcwd()), os.path.realpath(path)
    inside = here != os.sep and path.startswith(here + os.sep) and path != os.path.realpath(__file__)
    return inside and not {'site-packages', 'dist-packages'} & set(path[len(here):].split(os.sep))


def places_of(name, within):
    """Returns the files and directories that an import of the module would run, and its search path; imports nothing."""
    module = sys.modules.get(name)
    if module is not None:
        file, inside = getattr(module, '__file__', None), list(getattr(module, '__path__', ()))
    else:
        spec = importlib.util.find_spec(name) if within is None else importlib.machinery.PathFinder.find_spec(name, within)
        file = spec.origin if spec is not None and spec.has_location else None
        inside = list(spec.submodule_search_locations or ()) if spec is not None else []
    return [file] if file else inside, inside


def is_here(module):
    """True if a module and its packages are under the current directory; imports none of them."""
    parts, within = module.split('.'), None
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # at the end, so that installed modules win
    if parts[0] == '__main__' or not all(part.isidentifier() for part in parts):
        return False
    for i in range(len(parts)):
        try:
            run, within = places_of('.'.join(parts[:i + 1]), within)
        except (ImportError, ValueError, AttributeError):
            return False
        if not run or not all(lies_here(path) for path in run):
            return False
    return True


def top(module):
    return str(module).partition('.')[0]


def bases_of(kind):
    return {base.__name__ for base in kind.__mro__ if top(base.__module__) in LIBRARIES} if inspect.isclass(kind) else set()


def walk(found, names):
    """Returns an attribute of an attribute; None if it is missing or is a module."""
    for name in names:
        found = None if name.startswith('__') else getattr(found, name, None)
        if found is None or inspect.ismodule(found):
            return None
    return found


def members(described):
    """Yields each key and value of the objects in a signature."""
    if isinstance(described, dict):
        yield from described.items()
    for inner in described.values() if isinstance(described, dict) else described if isinstance(described, list) else ():
        yield from members(inner)


def types_in(described):
    return {value for key, value in members(described) if key in ('type', 'class') and isinstance(value, str)}


def loads_code(described):
    """Returns the first setting that makes a library fetch code or weights, or None."""
    for key, value in members(described):
        is_kernel = (key == 'attention' or 'implementation' in key or 'kernel' in key) and '/' in str(value)
        if value not in (None, False) and (key in LOADS_CODE or 'use_pretrained' in key or is_kernel):
            return key
    return None


def distrust(what):
    raise Problem(plain(f'{what}; a trace can only run code under the current directory: give --trust if the trace is your '
                        'own, or name the stage by --target module:obj'))


def check_object(d):
    """Raises Problem unless the object's class is the user's own or one of a library."""
    text = str(d.get('class', ''))
    module, _, name = text.rpartition(':')
    if 'left_out' not in d and not is_here(module):
        if top(module) not in LIBRARIES or 'modular_pipelines' in module:
            distrust(f'the stage is a method of {text!r}')
        kind = walk(import_module(module), name.split('.'))
        if not MADE & bases_of(kind) or top(kind.__module__) not in LIBRARIES:
            distrust(f'the stage is a method of {text!r}')
    for part in (d.get('components') or {}).values():
        if part:
            check_object(part)


def check_target(text):
    """Raises Problem unless the target is the user's own code."""
    module, _, name = str(text).rpartition(':')
    if any(part.startswith('__') and part != '__call__' for part in name.split('.')) or not (lies_here(module) if module.endswith('.py') else is_here(module)):
        distrust(f'the stage is {text!r}')


def check_found(found, text):
    """Checks the found object in the same way, because a module can contain functions of other modules."""
    code = inspect.unwrap(getattr(found, '__func__', found)) if callable(found) else found
    if inspect.isroutine(code) or inspect.isclass(code) or hasattr(code, 'func'):
        module = getattr(code, '__module__', None) or ''
        own = sys.modules.get(module)
        if not is_here(module) and not lies_here(getattr(own, '__file__', None) or os.sep):
            distrust(f'the stage is {text!r}, an alias of {getattr(code, "__qualname__", "")!r} of {module or "no module"!r}')


# ---- inputs ----

def tensor(shape, dtype, device='cpu', requires_grad=False, stride=None, **more):
    """Describes a tensor, as a signature does. Without strides it is contiguous."""
    return {**more, 'shape': shape, 'dtype': dtype, 'device': device, 'requires_grad': requires_grad, 'stride': stride}


CACHES = ('Cache', 'DynamicCache', 'EncoderDecoderCache')
SETTINGS = ('GenerationConfig', 'PretrainedConfig', 'PreTrainedConfig')
VALUES = frozenset((*CACHES, 'CacheLayerMixin', *SETTINGS))


def holds_values(kind):
    """True for a class whose objects only store their arguments: a dataclass, a namedtuple, an enumeration."""
    if not inspect.isclass(kind):
        return False
    if issubclass(kind, (tuple, enum.Enum)):
        return hasattr(kind, '_fields') or issubclass(kind, enum.Enum)
    own = is_here(kind.__module__) or bases_of(kind) & {'ModelOutput', 'BaseOutput'}
    return dataclasses.is_dataclass(kind) and bool(own or not hasattr(kind, '__post_init__'))


class Inputs:
    """Makes values from their descriptions. `notes` lists the values that differ from their description."""

    def __init__(self, device=None, trust=False):
        import torch
        self.torch, self.device, self.trust, self.notes = torch, device, trust, []
        torch.manual_seed(SEED)

    def all_of(self, signature):
        made = {name: self.value(d, name) for name, d in signature.get('input_signatures', {}).items()}
        if 'cache_position' in made or 'past_key_values' in made or str(signature.get('target')).endswith('.generate'):
            self.settle(made)
        return made

    def settle(self, made):
        """Makes the inputs of a transformers decoder consistent: the new tokens follow those of the cache, or are the last
        ones of a full cache; the mask of a single prompt hides nothing."""
        torch, cache, mask, places = self.torch, made.get('past_key_values'), made.get('attention_mask'), made.get('cache_position')
        if isinstance(places, torch.Tensor) and places.dim() == 1:
            first = int(cache.get_seq_length()) if hasattr(cache, 'get_seq_length') else 0
            layers = getattr(getattr(cache, 'self_attention_cache', cache), 'layers', ())
            rooms = [layer.max_cache_len for layer in layers if hasattr(layer, 'max_cache_len')]
            first = max(min([first, *(room - len(places) for room in rooms)]), 0)
            made['cache_position'] = torch.arange(first, first + len(places), device=places.device, dtype=places.dtype)
        if isinstance(mask, torch.Tensor) and mask.dim() == 2 and len(mask) == 1 and not mask.is_floating_point():
            made['attention_mask'] = torch.ones_like(mask)

    def note(self, name, text):
        self.notes.append(f'{name}: {text}')

    def value(self, d, name):
        if isinstance(d, list):
            return self.items(d, name)
        if not isinstance(d, dict):
            return d
        if 'shape' in d and 'dtype' in d and 'device' in d:
            return self.tensor(d, name)
        make = next((make for key, make in MAKERS.items() if key in d), None)
        try:
            if make:
                return make(self, d, name)
            if d.get('type') == 'torch._C.Generator':
                return self.torch.Generator().manual_seed(SEED)
            self.note(name, f'the trace has no value of this {d["type"]}; the value is None: set it in values()'
                      if d.get('type') in ('bool', 'int', 'float', 'str') else
                      f'a {d.get("type", "value")} cannot be made from a signature; the value is None')
        except Problem:
            raise
        except Exception as e:
            self.note(name, f'a {d.get("type", "value")} cannot be made ({e}); the value is None')
        return None

    def items(self, described, name):
        """Makes the items of a list. Items that the signature cut off are copies of the last one."""
        more = described[-1].get('more') if described and isinstance(described[-1], dict) else None
        made = [self.value(d, f'{name}[{i}]') for i, d in enumerate(described[:-1] if more else described)]
        return made + [made[-1] if made else None] * (more or 0)

    def set_of(self, d, name):
        return {item for item in self.items(d['set'], name) if isinstance(item, collections.abc.Hashable)}

    def mapping(self, described, name):
        return {k: self.value(d, f'{name}[{k!r}]') for k, d in described.items() if k != 'more...'}

    def pairs(self, d, name):
        return {self.value(p[0], name): self.value(p[1], f'{name}[…]') for p in d['items'] if isinstance(p, list)}

    def text(self, d, name):
        text, length = d['text'], d.get('length', len(d['text']))
        return (text * (length // max(len(text), 1) + 1))[:length]

    def named(self, dotted):
        """Returns the object named `package.module.Qual.name`, or None; without --trust only an object that is `allowed`."""
        parts = str(dotted).split('.')
        for cut in range(len(parts) - 1, 0, -1):
            module = '.'.join(parts[:cut])
            if not all(part.isidentifier() for part in parts) or not (
                    self.trust or top(module) in ('torch', *LIBRARIES) or is_here(module)):
                continue
            try:
                found = walk(importlib.import_module(module), parts[cut:])
            except Exception:  # raised by a module that cannot be imported here
                continue
            if found is not None:
                return found if self.trust or self.allowed(found) else None
        found = getattr(builtins, str(dotted), None)
        return found if self.trust or found in (bool, bytes, complex, dict, float, int, list, set, str, tuple) else None

    def allowed(self, found):
        """True for the user's own code, and for library code that only stores or computes values."""
        module, torch = getattr(found, '__module__', None) or '', self.torch
        if isinstance(found, (torch.dtype, torch.layout, torch.memory_format)):
            return True
        if is_here(module):
            return True
        is_class = inspect.isclass(found)
        if top(module) == 'torch' and (is_class or inspect.isroutine(found)):
            return module.startswith(('torch.nn.modules.', 'torch.nn.functional')) or is_class and holds_values(found)
        return top(module) in LIBRARIES and is_class and (holds_values(found) or bool(bases_of(found) & VALUES))

    def object(self, d, name):
        fields = self.mapping(d['fields'], name)
        kind = self.named(d.get('type', ''))
        try:
            if not self.trust and not holds_values(kind):
                raise TypeError('it is not a dataclass')
            return kind(**fields)
        except Exception:
            self.note(name, f'a {d.get("type")} cannot be made from its fields alone; the value is a namespace with these fields')
            return SimpleNamespace(**fields)

    def constant(self, d, name):
        kind, text = str(d.get('type', '')), str(d['value'])
        if kind in ('float', 'complex'):
            return {'float': float, 'complex': complex}[kind](text)
        if kind == 'torch.device':
            return self.usable(text, name)
        if kind.startswith('torch'):
            found = getattr(self.torch, text.rpartition('.')[2], None)
            if isinstance(found, (self.torch.dtype, self.torch.layout, self.torch.memory_format)):
                return found
        found = self.named(kind)
        if inspect.isclass(found) and issubclass(found, enum.Enum):
            found = found.__members__.get(text.rpartition('.')[2])
        else:
            found = self.named(text)
        if found is None:
            self.note(name, f'a {kind} ({text}) cannot be made from a signature; the value is None')
        return found

    def of_transformers(self, dotted, *bases):
        """Returns a class of transformers that is derived from one of `bases`."""
        kind = self.named(dotted)
        if not self.trust and not bases_of(kind) & set(bases):
            raise TypeError(f'a trace cannot choose the class {dotted}')
        return kind

    def cache(self, d, name):
        """Makes the cache of a transformers decoder: keys and values by layer, or two such caches."""
        kind = self.of_transformers(d['type'], *CACHES)
        if 'caches' in d:
            return kind(*self.items(d['caches'], name))
        if 'rooms' in d:
            return self.static_cache(kind, d, name)
        made = kind()
        for i, (keys, values) in enumerate(self.items(d['layers'], name)):
            if keys is not None:
                made.update(keys, values, i)
        return made

    def static_cache(self, kind, d, name):
        """Makes a cache whose layers have a fixed size and contain zeros until they are used."""
        made, layers = kind.__new__(kind), []
        for (layer, room, *window), (keys, values) in zip(self.items(d['rooms'], name), self.items(d['layers'], name)):
            layers.append(self.of_transformers(layer, 'CacheLayerMixin')(room, *window))
            if keys is not None:
                layers[-1].update(keys, values)
        next(base for base in kind.__mro__ if base.__name__ == 'Cache').__init__(made, layers=layers)
        return made

    def settings(self, d, name):
        return self.of_transformers(d['type'], *SETTINGS).from_dict(d['config'])

    def array(self, d, name):
        import numpy
        generator = numpy.random.default_rng(SEED)
        return (generator.random(d['shape']) * (10 if 'int' in d['dtype'] else 1)).astype(d['dtype'])

    def image(self, d, name):
        from PIL import Image
        return Image.new(d.get('mode', 'RGB'), tuple(d['size']))

    def odd_tensor(self, d, name):
        self.note(name, f'a {d["tensor"].get("type", "tensor")} without a shape cannot be made; the value is None')

    # ---- tensors ----

    def usable(self, device, name):
        """Returns the device, or the nearest one that exists."""
        device, torch = self.device or device, self.torch
        kind, _, index = device.partition(':')
        module = getattr(torch, kind, None)
        if kind in ('cpu', 'meta'):
            return torch.device(device)
        if module is None or not hasattr(module, 'is_available') or not module.is_available():
            self.note(name, f'this machine has no {device}; the tensor is on the cpu')
            return torch.device('cpu')
        if index and hasattr(module, 'device_count') and int(index) >= module.device_count():
            self.note(name, f'this machine has no {device}; the tensor is on {kind}:0')
            return torch.device(kind, 0)
        return torch.device(device)

    def numbers(self, shape, dtype, device, below=10):
        """Returns random values that suit most stages: normal floats, integers from 0 to 9, bytes from 0 to 255."""
        torch = self.torch
        if dtype == torch.bool:
            return torch.rand(shape, device=device) < 0.5
        if str(dtype).startswith('torch.q'):
            return torch.quantize_per_tensor(torch.randn(shape, device=device), 0.1, 0, dtype)
        if dtype.is_complex:
            return torch.randn(shape, dtype=torch.complex64, device=device).to(dtype)
        if not dtype.is_floating_point:
            return torch.randint(0, 256 if dtype == torch.uint8 else below, shape, device=device).to(dtype)
        if dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            return torch.randn(shape, dtype=dtype, device=device)
        values = torch.randn(shape, device=device)
        try:
            return (values.abs() + 0.5 if 'e8m0' in str(dtype) else values).to(dtype)
        except (RuntimeError, NotImplementedError):  # a packed type, to which torch converts nothing
            return torch.randint(0, 256, shape, dtype=torch.uint8, device=device).view(dtype)

    def tensor(self, d, name):
        torch = self.torch
        dtype = getattr(torch, d['dtype'], None)
        if not isinstance(dtype, torch.dtype):
            raise Problem(f'{name}: torch {torch.__version__} has no dtype {d["dtype"]}; use the torch of the pipeline')
        shape = [n if isinstance(n, int) else 1 for n in d['shape']]
        if shape != d['shape']:
            self.note(name, f'the sizes in {d["shape"]} that are not numbers become 1')
        device, stride = self.usable(d['device'], name), d.get('stride')
        below = 2 if 'mask' in name else 10  # some models use the sum of a mask as a length
        if device.type == 'meta':
            made = torch.empty(shape, dtype=dtype, device=device)
        elif stride is None or 0 in shape or list(torch.empty(shape, device='meta').stride()) == stride:
            made = self.numbers(shape, dtype, device, below)
        else:
            size = 1 + sum((n - 1) * s for n, s in zip(shape, stride))
            made = self.numbers([size], dtype, device, below).as_strided(shape, stride)
        if d.get('requires_grad') and (dtype.is_floating_point or dtype.is_complex):
            made = made.detach().requires_grad_(True)
        kind = d.get('type')
        if kind in ('torch.nn.parameter.Parameter', 'torch.nn.Parameter'):
            return torch.nn.Parameter(made.detach(), requires_grad=bool(d.get('requires_grad')))
        if kind:
            self.note(name, f'the value was a {kind}; it is a plain tensor here')
        return made


# How to make a value whose description has a key. The first key that it has decides.
MAKERS = {
    'tuple': lambda self, d, name: tuple(self.items(d['tuple'], name)), 'set': Inputs.set_of,
    'dict': lambda self, d, name: self.mapping(d['dict'], name), 'items': Inputs.pairs, 'text': Inputs.text,
    'array': lambda self, d, name: self.value(d['array'], name), 'tensor': Inputs.odd_tensor, 'fields': Inputs.object,
    'value': Inputs.constant, 'size': Inputs.image, 'layers': Inputs.cache, 'caches': Inputs.cache, 'config': Inputs.settings,
    'dtype': Inputs.array}


# ---- the target ----

def import_module(module):
    """Imports a module by its name, or by the path of its file."""
    try:
        if not module.endswith('.py'):
            return importlib.import_module(module)
        spec = importlib.util.spec_from_file_location(os.path.basename(module)[:-3], module)
        found = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(spec.name, found)
        spec.loader.exec_module(found)
        return found
    except (ImportError, OSError, ValueError) as e:
        raise Problem(plain(f'{module} cannot be imported ({e}); run this where the pipeline runs, or set PYTHONPATH')) from e


def find_target(text, trust=True):
    """Returns the object named `module:Qual.name` or `path/to/file.py:Qual.name`; `make().part` is a part of what make()
    returns. Without trust the name is from a trace, and nothing is called."""
    if not text:
        raise Problem('the trace does not name the object of the stage; name it by --target module:obj, or edit build()')
    module, _, name = text.rpartition(':')
    if not module or not name:
        raise Problem(f'--target {text}: the form is module:obj or file.py:obj')
    if not trust:
        check_target(text)
    where = 0 if trust else len(sys.path)
    sys.path.insert(where, os.getcwd())
    if module.endswith('.py'):
        sys.path.insert(where, os.path.dirname(os.path.abspath(module)))
    found = import_module(module)
    owner = None
    for part in name.split('.'):
        called = trust and part.endswith('()')
        part = part[:-2] if called else part
        owner, found = found, getattr(found, part, None)
        if found is None:
            raise Problem(plain(f'{text}: {getattr(owner, "__name__", owner)} has no {part}; name an existing object by --target'))
        found = found() if called else found
        if not trust and inspect.ismodule(found):
            distrust(f'the stage is {text!r}, which leads into another module')
    if not trust:
        check_found(found, text)
    if inspect.isfunction(found) and inspect.isclass(owner) and not isinstance(owner.__dict__.get(part), staticmethod):
        return getattr(only_object_of(owner, text), part)
    return found


def only_object_of(kind, text):
    """Returns the object of a class that is a variable of the class's module, if there is exactly one."""
    found = {id(value): (name, value) for name, value in vars(sys.modules.get(kind.__module__)).items() if isinstance(value, kind)}
    if len(found) == 1:
        (name, value), = found.values()
        say(f'The object of {text} is {kind.__module__}:{name}')
        return value
    several = '; it has ' + ', '.join(f'{kind.__module__}:{name}' for name, _ in found.values()) if found else ''
    raise Problem(plain(f'{text} is a method and needs its object: name the object by --target module:obj, or edit build(){several}'))


def object_from(d, device=None):
    """Makes an object of diffusers or transformers from its configuration. Its weights are random, from the fixed seed."""
    import torch
    if 'left_out' in d:
        raise Problem(f'the trace lacks a part of the stage, {d["class"]}: {d["left_out"]}; name the stage by --target')
    kind, config = find_target(d['class']), d.get('config', {})
    if 'components' in d:
        parts = {name: object_from(part, device) if part else None for name, part in d['components'].items()}
        return kind(**parts, **config)
    if 'tokenizer' in d:
        from tokenizers import Tokenizer
        return kind(tokenizer_object=Tokenizer.from_str(d['tokenizer']), **config)
    torch.manual_seed(SEED)
    settings = getattr(kind, 'config_class', None)
    if settings:
        config = settings.from_dict(config)
        if 'attention' in d:
            config._attn_implementation = d['attention']
    made = kind(config) if settings else kind.from_config(config)
    if 'dtype' in d:
        made = made.to(device=Inputs(device).usable(d['device'], d['class']))
        if str(made.dtype) != f'torch.{d["dtype"]}':  # diffusers warns about each conversion
            made = made.to(dtype=getattr(torch, d['dtype']))
        made.train(d['training'])
    if 'steps' in d:
        shifted = getattr(made.config, 'use_dynamic_shifting', False)
        made.set_timesteps(d['steps'], **({'mu': 1.0} if shifted else {}))
    if 'begin' in d:
        made.set_begin_index(0)  # the harness runs the first step
    if 'index' in d:
        made._step_index = 0  # scale_model_input sets it before the step
    return made


def target_of(signature, device=None, trust=False):
    """Returns the stage: a function by its name, or a method of an object that can be made again."""
    described, target = signature.get('object'), signature.get('target')
    say(f'The trace says that the stage is {target!r}' + (f' of {described.get("class")!r}' if described else ''))
    say('The trace names these types: ' + (', '.join(sorted(types_in(signature))) or 'none'))
    chosen = loads_code([signature.get('input_signatures'), described])
    if chosen and not trust:
        distrust(f'the input or setting {chosen!r} makes a library load code or weights')
    if not described or not target:
        return find_target(target, trust)
    if not trust:
        check_object(described)
        if target.rpartition('.')[2] not in METHODS and not is_here(str(described['class']).rpartition(':')[0]):
            distrust(f'the stage is {target!r}')
    made, name = object_from(described, device), target.rpartition('.')[2]
    return made if name == '__call__' else method_of(made, target)


def method_of(made, target):
    """Returns the object's method named `module:Qual.name`: the one of this class, even if a subclass overrides it."""
    owner, _, name = target.rpartition('.')
    for kind in type(made).__mro__:
        if f'{kind.__module__}:{kind.__qualname__}' == owner and inspect.isfunction(kind.__dict__.get(name)):
            return kind.__dict__[name].__get__(made)
    return getattr(made, name)


def parameters_of(function):
    """Returns the parameters of a call by name; {} if the object is not callable or has no signature."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def needed(function, inputs):
    """Returns the inputs that a function takes."""
    parameters = parameters_of(function)
    takes_all = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
    return {k: v for k, v in inputs.items() if takes_all or k in parameters}


def set_timesteps(stage, inputs):
    """Sets two timesteps, of which the first one is run."""
    wanted = {'shift': inputs.get('sigma_shift', 8.0)} if 'sigma_shift' in inputs or hasattr(stage, 'dit') else {}
    stage.scheduler.set_timesteps(2, **needed(stage.scheduler.set_timesteps, wanted))
    return stage.scheduler.timesteps


def dit_step(stage, inputs):
    """Runs one denoising step of a stage with a dit and a scheduler, as TeleFuser's stages do."""
    import torch
    steps = set_timesteps(stage, inputs)
    timestep = steps[0:1].to(dtype=stage.torch_dtype, device=stage.device)
    latents, reference, state = inputs.get('latents'), inputs.get('ref_latent'), None
    model_input = latents if reference is None else torch.cat([latents, reference], dim=1)
    if hasattr(stage.dit, 'sparse_attention_state'):
        state = stage.dit.create_sparse_state(numeral_timestep=1, layer_idx=0)
    with torch.autocast(device_type=stage.device_type, dtype=stage.torch_dtype):
        noise = stage.predict_noise_with_cfg(
            latents=model_input.to(stage.torch_dtype), timestep=timestep, prompt_emb_posi=inputs.get('prompt_emb_posi'),
            prompt_emb_nega=inputs.get('prompt_emb_nega'), clip_feature=inputs.get('clip_feature'),
            cfg_scale=inputs.get('cfg_scale', 5.0), sparse_state=state)
        return latents if noise is None else stage.scheduler.step(noise, steps[0], latents)


def lacks_for_dit_step(stage, signature):
    """Returns what dit_step() would miss; None if it has all."""
    if not hasattr(stage, 'predict_noise_with_cfg'):
        return 'predict_noise_with_cfg()'
    return 'latents' if signature and 'latents' not in signature.get('input_signatures', {}) else None


def scheduler_step(scheduler):
    """Returns a function that runs the scheduler's step at the first timestep, because a scheduler refuses any other."""
    if getattr(scheduler, 'num_inference_steps', None) is None:
        scheduler.set_timesteps(2)
    first = scheduler.timesteps[0]
    start = None if getattr(scheduler, '_step_index', None) is None else 0
    if hasattr(scheduler, 'is_scale_input_called'):
        scheduler.is_scale_input_called = True  # as the pipeline does; otherwise the scheduler warns

    def step(inputs):
        if hasattr(scheduler, '_step_index'):  # counts the steps, and would reach the last one
            scheduler._step_index = start
        return call(scheduler.step, {**inputs, 'timestep': first})
    return step


def pipeline_step(stage, inputs):
    """Calls a diffusers pipeline with one step. With a strength, as many steps are set as leave one."""
    strength = inputs.get('strength') or getattr(parameters_of(stage).get('strength'), 'default', None)
    count = math.ceil(1 / strength) if isinstance(strength, (int, float)) and 0 < strength <= 1 else 1
    first = {name: inputs[name][:count] for name in ('timesteps', 'sigmas') if inputs.get(name) is not None}
    return call(stage, {**inputs, **first, 'num_inference_steps': count})


def recorded_method(target, signature):
    """Returns the method that was the stage, of an object of its class; the object itself if it has no such method."""
    text = signature.get('target') or ''
    owner, _, name = text.rpartition('.')
    of_class = not inspect.isroutine(target) and not inspect.isclass(target) and any(
        f'{kind.__module__}:{kind.__qualname__}' == owner or kind.__qualname__ == owner.rpartition(':')[2] for kind in type(target).__mro__)
    return method_of(target, text) if of_class and name != '__call__' and hasattr(target, name) else target


def step_of(target, tell=say, signature=None):
    """Returns a function that runs the stage once with a dict of its inputs: by its own process() or call, as TeleFuser does.
    Only a stage with a dit and a scheduler runs a single step, which TeleFuser has for it."""
    if signature and not (hasattr(target, 'scheduler') and hasattr(target, 'dit')):
        target = recorded_method(target, signature)
    if inspect.isclass(target) or not (callable(target) or any(hasattr(target, n) for n in ('process', 'scheduler', 'set_timesteps'))):
        raise Problem(f'{target!r} cannot be called; name a function, or an object with process() or __call__')
    if hasattr(target, 'scheduler') and hasattr(target, 'dit'):
        lacks = lacks_for_dit_step(target, signature)
        if not (lacks and hasattr(target, 'process')):
            tell('Created DiT single-step function')
            return lambda inputs: dit_step(target, inputs)
        tell(f'A single step would need {lacks}, so all of process() runs')
    if hasattr(target, 'scheduler') and not hasattr(target, 'process') and 'num_inference_steps' in parameters_of(target):
        tell('Created pipeline single-step function')
        return lambda inputs: pipeline_step(target, inputs)
    owner = target if hasattr(target, 'set_timesteps') else getattr(target, '__self__', None)
    if hasattr(owner, 'set_timesteps') and getattr(target, '__name__', 'step') == 'step':
        tell('Created scheduler single-step function')
        return scheduler_step(owner)
    if hasattr(target, 'process') and not inspect.isroutine(target):
        tell('Using stage.process() as single-step function')
        return lambda inputs: call(target.process, inputs)
    return lambda inputs: call(target, inputs)


def check_takes(target, inputs):
    """A function that takes none of the inputs is no stage; perhaps it makes one."""
    if inspect.isfunction(target) and inputs and not needed(target, inputs) and not any(
            p.kind == p.VAR_POSITIONAL for p in parameters_of(target).values()):
        name = target.__name__
        raise Problem(f'{name} takes none of the inputs {list(inputs)}; if it returns the pipeline, name the stage as {name}().stage')


def call(function, inputs):
    """Calls a function with its arguments by name, and runs a coroutine or generator to its end."""
    given, positional, parameters = dict(inputs), [], parameters_of(function).values()
    star = next((p for p in parameters if p.kind == p.VAR_POSITIONAL and p.name in given), None)
    for p in parameters:
        if p.name in given and (p.kind == p.POSITIONAL_ONLY or (star and p.kind == p.POSITIONAL_OR_KEYWORD)):
            positional.append(given.pop(p.name))
    if star:
        positional += given.pop(star.name)
    result = function(*positional, **given)
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    if inspect.isasyncgen(result):
        return asyncio.run(last_of(result))
    if inspect.isgenerator(result):
        for result in result:
            pass
    return result


async def last_of(generator):
    item = None
    async for item in generator:
        pass
    return item


# ---- the profile ----

def device_module():
    """Returns the module of the device in use, such as torch.cuda, else None."""
    import torch
    for name in ('cuda', 'xpu', 'npu', 'mps'):
        module = getattr(torch, name, None)
        if hasattr(module, 'is_available') and module.is_available():
            return module
    return None


def breakdown_of(profiler, stage):
    """Returns the device's kernels by name; without a device the operators by self time. The total is the sum of the rows."""
    from torch.autograd import DeviceType
    rows, events = {}, profiler.events()
    kernels = [e for e in events if e.device_type != DeviceType.CPU and not getattr(e, 'is_user_annotation', False)
               and not e.name.startswith(('Memcpy', 'Memset'))]
    operators = [e for e in events if e.device_type == DeviceType.CPU and e.name != '[memory]'
                 and not getattr(e, 'is_python_function', False)]
    launches = {e.id: e.time_range.elapsed_us() / 1000 for e in events if e.device_type == DeviceType.CPU
                and e.name.startswith(('cuda', 'cu', 'hip')) and hasattr(e, 'id')}
    for e in kernels or operators:
        row = rows.setdefault(e.name, {'name': e.name, 'ms': 0.0, 'cuda_ms': 0.0, 'cpu_ms': None if kernels else 0.0, 'calls': 0})
        ms = (e.time_range.elapsed_us() if kernels else e.self_cpu_time_total) / 1000
        row['ms'] += ms
        row['cuda_ms' if kernels else 'cpu_ms'] += ms
        row['calls'] += 1
        launch = launches.get(getattr(e, 'id', None)) if kernels else None  # a kernel has the id of its launch
        if launch is not None:
            row['cpu_ms'] = (row['cpu_ms'] or 0.0) + launch
    top = sorted(rows.values(), key=lambda r: -r['ms'])
    return {'name': stage, 'of': 'device kernels' if kernels else 'operators',
            'total_kernel_time_ms': sum(r['ms'] for r in top), 'num_kernels': len(top),
            'launches': sum(r['calls'] for r in top), 'top_kernels': top[:50]}


def options(parser):
    """Parses the command line into a HarnessConfig, which has the defaults."""
    parser.add_argument('--target', help='the stage: module:obj, file.py:obj, or module:make().obj')
    parser.add_argument('--warmup', type=int, help='iterations before the profile, 0 for none (default: 1)')
    parser.add_argument('--profile-steps', '--profile_steps', type=int, help='profiled iterations (default: 1)')
    parser.add_argument('--output-dir', '--output_dir', help='directory of the files (default: the current one)')
    parser.add_argument('--device', help='device of all inputs, instead of the recorded ones')
    parser.add_argument('--no-grad', action='store_true', help='run the stage under torch.no_grad()')
    parser.add_argument('--trust', action='store_true', help='the trace is your own: run and make everything that it names')
    return parser.parse_args(namespace=HarnessConfig(output_dir='.'))


SCRIPT = '''#!/usr/bin/env python3
"""profile_{name}.py - runs the stage {name} of a pipeline alone and profiles it; --help lists the options."""
import sys

sys.path[:__name__ == '__main__'] = [{folder!r}]  # no file beside the script is imported
import tfharness

SIGNATURE = {signature}


def build(device=None, trust=False):
    return tfharness.target_of(SIGNATURE, device, trust)


def values(inputs):
    return inputs


script = tfharness.Script(SIGNATURE, build, values)
create_inputs, run_single_step, profile_stage = script.create_inputs, script.run_single_step, script.profile_stage

if __name__ == '__main__':
    script.main()
'''


@dataclasses.dataclass
class HarnessConfig:
    """Settings of a run. output_dir None becomes the run directory, as TeleFuser and tfinject choose it."""

    warmup: int = 1
    profile_steps: int = 1
    output_dir: str = None
    device: str = None
    no_grad: bool = False
    trust: bool = False  # run and make everything that the signature names
    capture_output: bool = False  # keep the result of the last step in `output`

    def __post_init__(self):
        if self.output_dir is None:
            set_one = [os.environ[n] for n in ('TFI_OUTPUT_DIR', 'TELEFUSER_PROFILER_OUTPUT_DIR') if os.environ.get(n)]
            pipeline = os.environ.get('TFI_PIPELINE_NAME') or os.environ.get('TELEFUSER_PIPELINE_NAME') or 'default'
            self.output_dir = set_one[0] if set_one else os.path.join('work_dirs', 'profiler_output', pipeline, time.strftime('%Y%m%d_%H%M'))


class StageBenchHarness:
    """A stage, the signature of its inputs, and the object that runs it."""

    def __init__(self, stage_name, io_signature, stage_instance=None, config=None, values=None):
        """`values`, a function of a script, may change the inputs."""
        self.stage_name, self.io_signature, self.values = stage_name, io_signature, values
        self.stage_instance, self.config = stage_instance, config or HarnessConfig()
        self.inputs, self.notes, self.output, self._step = None, [], None, None

    @classmethod
    def from_signature_file(cls, signature_path, stage_name, stage_instance=None, config=None):
        """Raises Problem, a ValueError, if the file or the stage does not exist."""
        stages = read_signatures(signature_path)
        if stage_name not in stages:
            raise Problem(f"{signature_path}: Stage '{stage_name}' not found in signature file. Available: {list(stages)}")
        return cls(stage_name, stages[stage_name], stage_instance, config)

    def make_inputs(self):
        maker = Inputs(self.config.device, self.config.trust)
        made = maker.all_of(self.io_signature)
        self.inputs, self.notes = self.values(made) if self.values else made, maker.notes
        return self.inputs

    def setup(self):
        """Makes the inputs and chooses the step function. Without an instance, the signature names the target."""
        self.make_inputs()
        target = self.stage_instance
        if target is None:
            target = target_of(self.io_signature, self.config.device, self.config.trust)
        self._step = step_of(target, signature=self.io_signature)
        check_takes(target, self.inputs)
        say(f"Setup complete for stage '{self.stage_name}'")
        say(f'Mock inputs: {list(self.inputs)}')
        for note in self.notes:
            say(note)

    def run_single_step(self, inputs=None):
        if self._step is None:
            raise RuntimeError('No single-step function available. Call setup() first.')
        result = self._step(self.inputs if inputs is None else inputs)
        if self.config.capture_output:
            self.output = result
        return result

    def profile(self, warmup=None, profile_steps=None, output_suffix=''):
        """Returns stage_name, warmup, profile_steps, timing_ms, median_ms, spread_ms, kernel_breakdown."""
        if self._step is None:
            self.setup()
        import torch
        had_none = (self.io_signature.get('object') or {}).get('grad') is False  # the pipeline had no gradients
        try:
            with torch.no_grad() if self.config.no_grad or had_none else contextlib.nullcontext():
                results = self.measure(self.config.warmup if warmup is None else warmup,
                                       self.config.profile_steps if profile_steps is None else profile_steps, output_suffix)
        except Problem:
            raise
        except Exception:
            say('The stage failed. The values of its inputs are random: if the values matter, edit values() in the script')
            raise
        if not self.values:
            self.save_test_script(self.config.output_dir)
        return results

    def inputs_of_steps(self, count):
        """Returns the inputs of each step: the same ones, unless a step adds to its inputs, as decoders do."""
        first = self.make_inputs()
        grows = any(hasattr(value, 'get_seq_length') for value in first.values())
        return [first if i == 0 or not grows else self.make_inputs() for i in range(count)]

    def measure(self, warmup, profile_steps, suffix):
        """Runs the steps with warm-up and under torch.profiler, and writes {stage}{suffix}_trace.json.gz and the breakdown."""
        import torch
        recorded = self.io_signature.get('recorded') or {}
        if warmup < 0 or profile_steps < 1:
            raise Problem(f'warmup={warmup}, profile_steps={profile_steps}: warmup must be at least 0, profile_steps at least 1')
        os.makedirs(self.config.output_dir, exist_ok=True)
        stem = os.path.join(self.config.output_dir, file_name(self.stage_name) + suffix)
        module, activities = device_module(), torch.profiler.ProfilerActivity
        name = module.__name__.rpartition('.')[2].upper() if module else 'CPU'
        activities = {activities.CPU, getattr(activities, name, activities.CPU)}
        synchronize = module.synchronize if module else lambda: None
        threads = recorded.get('threads')
        if type(threads) is int and 0 < threads <= (os.cpu_count() or 1) and threads != torch.get_num_threads():
            say(f'torch uses {threads} thread(s), as in the pipeline')
            torch.set_num_threads(threads)
        say(f'Running {warmup} warmup iteration(s)...')
        for inputs in self.inputs_of_steps(warmup):
            self.run_single_step(inputs)
            synchronize()
        given = self.inputs_of_steps(profile_steps)
        if hasattr(module, 'empty_cache'):
            module.empty_cache()
        say(f'Running {profile_steps} profile iteration(s)...')
        times = []
        with torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True, with_stack=True) as profiler:
            for inputs in given:
                start = time.perf_counter()
                self.run_single_step(inputs)
                synchronize()
                times.append((time.perf_counter() - start) * 1000)
        profiler.export_chrome_trace(f'{stem}_trace.json.gz')
        say(f'Chrome trace saved to: {stem}_trace.json.gz')
        breakdown = breakdown_of(profiler, self.stage_name)
        with open(f'{stem}_breakdown.json', 'w', encoding='utf-8') as f:
            json.dump(breakdown, f, indent=2)
        say(f'Kernel breakdown saved to: {stem}_breakdown.json')
        median, least, most = statistics.median(times), min(times), max(times)
        say(f'Average iteration time: {statistics.fmean(times):.2f} ms')
        say(f'Median iteration time: {median:.2f} ms (from {least:.2f} to {most:.2f})')
        if recorded.get('median_ms') is not None:
            done = recorded.get('done_ms')
            say(f'In the pipeline: median {recorded["median_ms"]:.2f} ms of {recorded["calls"]} call(s)' +
                ('' if done is None else f', on average {done:.2f} ms until the device was done'))
        return {'stage_name': self.stage_name, 'warmup': warmup, 'profile_steps': profile_steps, 'timing_ms': times,
                'median_ms': median, 'spread_ms': [least, most], 'kernel_breakdown': breakdown}

    def save_test_script(self, directory):
        path = os.path.join(directory, f'profile_{file_name(self.stage_name)}.py')
        if os.path.exists(path):
            say(f'Test script {path} exists, so it is not overwritten')
            return
        signature = pprint.pformat({**self.io_signature, 'stage_name': self.stage_name}, width=120, sort_dicts=False)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(SCRIPT.format(name=file_name(self.stage_name), folder=os.path.dirname(os.path.abspath(__file__)), signature=signature))
        say(f'Test script saved to: {path}')


from_signature_file = StageBenchHarness.from_signature_file


def read_signatures(path):
    """Returns {stage: signature} from a timing_io_signature.json."""
    try:
        with open(path, encoding='utf-8') as f:
            stages = json.load(f)['stages']
        if all(isinstance(s, dict) and isinstance(s.get('input_signatures', {}), dict) for s in stages.values()):
            return stages
        raise KeyError('input_signatures')
    except OSError as e:
        raise Problem(f'{path}: {e.strerror}; `tfanalyze report DIR` writes DIR/timing_io_signature.json') from e
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise Problem(f'{path}: the file contains no signatures of stages ({type(e).__name__}: {e}); '
                      '`tfanalyze report DIR` writes DIR/timing_io_signature.json') from e


class Script:
    """What profile_{stage}.py does with the signature that it holds, and with its functions build() and values()."""

    def __init__(self, signature, build, values):
        self.signature, self.build, self.values = signature, build, values

    def create_inputs(self, device=None):
        """Makes the stage's inputs by name."""
        return self.values(Inputs(device).all_of(self.signature))

    def run_single_step(self, stage, inputs):
        """Runs the stage once, or one step of it, and returns the result."""
        return step_of(stage, lambda line: None, self.signature)(inputs)

    def profile_stage(self, stage, warmup=1, profile_steps=1, output_dir='.'):
        """Runs the stage with warm-up and under torch.profiler; returns times in milliseconds and the breakdown."""
        return self.profile(stage, HarnessConfig(warmup, profile_steps, output_dir))

    def profile(self, stage, config):
        return StageBenchHarness(self.signature['stage_name'], self.signature, stage, config, self.values).profile()

    def main(self):
        parser = argparse.ArgumentParser(description=f'Runs the stage {self.signature["stage_name"]!r} alone and profiles it.')
        config = options(parser)
        sys.path.append(os.getcwd())
        try:
            self.profile(find_target(config.target) if config.target else self.build(config.device, config.trust), config)
        except Problem as e:
            sys.exit(f'{os.path.basename(sys.argv[0])}: {e}')


def main():
    parser = argparse.ArgumentParser(
        prog='tfharness.py', description=__doc__.split('\n\n')[0].partition(' - ')[2],
        epilog='Exit status: 0 done, 1 the file, the stage or the target cannot be used, 2 wrong options.')
    parser.add_argument('--signature', required=True, help='timing_io_signature.json of a run')
    parser.add_argument('--stage', help='the stage to run')
    parser.add_argument('--list-stages', '--list_stages', action='store_true', help='list the stages of the file and exit')
    config = options(parser)
    if not config.list_stages and not config.stage:
        parser.error('--stage is missing; --list-stages lists the stages of the file')
    if config.warmup < 0 or config.profile_steps < 1:
        parser.error('--warmup must be at least 0, --profile-steps at least 1')
    try:
        if config.list_stages:
            print(f'Available stages in {config.signature}:')
            for stage in read_signatures(config.signature):
                print(f'  - {plain(stage)}')
            return
        harness = from_signature_file(config.signature, config.stage, config=config)
        if config.target:
            harness.stage_instance = find_target(config.target)
        harness.profile()
    except Problem as e:
        sys.exit(f'tfharness: {e}')


if __name__ == '__main__':
    main()
