#!/usr/bin/env python3
"""tfharness - runs one stage of a pipeline alone, with inputs like those it was given, and profiles it.

    tfharness.py --signature DIR/timing_io_signature.json --stage denoise --target pipelines.dit:stage

    import tfharness
    harness = tfharness.from_signature_file('timing_io_signature.json', 'denoise', stage_instance=stage)
    harness.setup()
    harness.profile(warmup=2, profile_steps=5)

Inputs are made from the stage's signature: shapes, dtypes, strides and devices as they were, values at random from a
fixed seed. It leaves {stage}_trace.json.gz, {stage}_breakdown.json and profile_{stage}.py, which does the same without
this file. Needs torch, and what the stage itself needs.
"""

# ---- stand-alone: this part is also that of profile_{stage}.py ----
import argparse
import asyncio
import builtins
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
import statistics
import sys
import time
from types import SimpleNamespace

SEED = 0  # of every random value
ALLOWED = frozenset('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._ #*()-')


class Problem(ValueError):
    """What is wrong and what to do about it, for people."""


def plain(text):
    """The text with what would move a terminal's cursor made visible."""
    return ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def say(text):
    print(f'[Harness] {plain(text)}', flush=True)


def file_name(stage):
    """The stage's name as a part of a file's name."""
    name = ''.join(c if c in ALLOWED else '_' for c in stage)[:120] or '_'
    return '_' + name[1:] if name[0] == '.' else name


# ---- what a trace may choose ----
#
# A signature comes from a trace, and a trace may come from anybody. So it chooses only among code that is the user's own -
# modules under the current directory - and among classes of libraries that are made from numbers and names. For anything
# else the user says --trust, or names the stage by --target.

LIBRARIES = ('diffusers', 'transformers')
METHODS = frozenset(('__call__', 'decode', 'encode', 'forward', 'generate', 'postprocess', 'postprocess_video', 'preprocess',
                     'preprocess_video', 'step'))
MADE = frozenset(('ConfigMixin', 'DiffusionPipeline', 'PreTrainedModel', 'PreTrainedTokenizerFast'))
LOADS_CODE = frozenset(('trust_remote_code', 'custom_generate', 'custom_pipeline', 'code_revision'))


def lies_here(path):
    """A file or directory under the current one, which no installer has put there."""
    here, path = os.path.realpath(os.getcwd()), os.path.realpath(path)
    inside = here != os.sep and path.startswith(here + os.sep)
    return inside and not {'site-packages', 'dist-packages'} & set(path[len(here):].split(os.sep))


def places_of(name, within):
    """The files and directories that importing a module would run, by its finder's word alone."""
    module = sys.modules.get(name)
    if module is not None:
        file, inside = getattr(module, '__file__', None), list(getattr(module, '__path__', ()))
    else:
        spec = importlib.util.find_spec(name) if within is None else importlib.machinery.PathFinder.find_spec(name, within)
        file = spec.origin if spec is not None and spec.has_location else None
        inside = list(spec.submodule_search_locations or ()) if spec is not None else []
    return [file] if file else inside, inside


def is_here(module):
    """Whether a module and the packages it is in lie under the current directory. None of them is imported for it."""
    parts, within = module.split('.'), None
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: what is installed is not replaced by what lies here
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
    """An attribute of an attribute; None where that is missing, or leads into another module."""
    for name in names:
        found = None if name.startswith('__') else getattr(found, name, None)
        if found is None or inspect.ismodule(found):
            return None
    return found


def types_in(described):
    """The types that a signature wants made or looked up."""
    if isinstance(described, list):
        return {name for d in described for name in types_in(d)}
    if not isinstance(described, dict):
        return set()
    own = {described[key] for key in ('type', 'class') if isinstance(described.get(key), str)}
    return own.union(*(types_in(d) for d in described.values()))


def loads_code(described):
    """The first setting by which a library would fetch code or weights from somewhere, or None."""
    if isinstance(described, list):
        return next(filter(None, map(loads_code, described)), None)
    for key, value in described.items() if isinstance(described, dict) else ():
        word = str(key)
        chosen = any('/' in text for text in texts_in(value))
        if value not in (None, False) and (word in LOADS_CODE or 'use_pretrained' in word or chosen and (
                word == 'attention' or 'implementation' in word or 'kernel' in word)):
            return word
        found = loads_code(value)
        if found:
            return found
    return None


def texts_in(value):
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in texts_in(item)]


def distrust(what):
    raise Problem(plain(f'{what}; what a trace says is run only if it lies under the current directory: say --trust if the '
                        'trace is your own, or name the stage by --target module:obj'))


def check_object(d):
    """Raises Problem where an object is to be made of anything but a library's or the user's own classes."""
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
    """Raises Problem where a target is not code of the user's own."""
    module, _, name = str(text).rpartition(':')
    if any(part.startswith('__') and part != '__call__' for part in name.split('.')) or not (lies_here(module) if module.endswith('.py') else is_here(module)):
        distrust(f'the stage is {text!r}')


def check_found(found, text):
    """The same of what was found by that name: modules hold names of other modules' functions, too."""
    code = inspect.unwrap(getattr(found, '__func__', found)) if callable(found) else found
    if inspect.isroutine(code) or inspect.isclass(code) or hasattr(code, 'func'):
        module = getattr(code, '__module__', None) or ''
        own = sys.modules.get(module)
        if not is_here(module) and not lies_here(getattr(own, '__file__', None) or os.sep):
            distrust(f'the stage is {text!r}, which is {getattr(code, "__qualname__", "")!r} of {module or "no module"!r}')


# ---- inputs ----

def or_none(what):
    """For a method of Inputs that may fail: then its value is None, and a note says what."""
    def decorate(make):
        def tried(self, d, name):
            try:
                return make(self, d, name)
            except Exception as e:
                self.note(name, f'{what(d)} can not be made ({e}); it is None')
                return None
        return tried
    return decorate


CACHES = ('Cache', 'DynamicCache', 'EncoderDecoderCache')
SETTINGS = ('GenerationConfig', 'PretrainedConfig', 'PreTrainedConfig')
VALUES = frozenset((*CACHES, 'CacheLayerMixin', *SETTINGS))


def holds_values(kind):
    """A class whose objects are made by storing what they are given: a dataclass, a namedtuple, an enumeration."""
    if not inspect.isclass(kind):
        return False
    if issubclass(kind, (tuple, enum.Enum)):
        return hasattr(kind, '_fields') or issubclass(kind, enum.Enum)
    own = is_here(kind.__module__) or bases_of(kind) & {'ModelOutput', 'BaseOutput'}
    return dataclasses.is_dataclass(kind) and bool(own or not hasattr(kind, '__post_init__'))


class Inputs:
    """Makes values from their descriptions. `notes` says what could not be made as it was."""

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
        """What the inputs of a decoder of transformers have to agree on: new tokens stand behind those of the cache, or at
        its end where it has no more room; the mask of a single prompt hides nothing."""
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
        for key, make in (('tuple', tuple), ('set', self.set_of), ('dict', self.mapping), ('items', self.pairs),
                          ('text', None), ('array', self.array), ('tensor', self.odd_tensor), ('fields', self.object),
                          ('value', self.constant), ('size', self.image), ('layers', self.cache),
                          ('caches', self.cache), ('config', self.settings)):
            if key in d:
                break
        else:
            if 'dtype' in d and 'shape' in d:
                return self.array(d, name)
            if d.get('type') == 'torch._C.Generator':
                return self.torch.Generator().manual_seed(SEED)
            if d.get('type') in ('bool', 'int', 'float', 'str'):
                self.note(name, f'a {d["type"]}, whose value was not recorded; it is None: give it in values()')
            else:
                self.note(name, f'a {d.get("type", "value")} can not be made from a signature; it is None')
            return None
        if key == 'text':
            return (d['text'] * (d.get('length', 0) // max(len(d['text']), 1) + 1))[:d.get('length', len(d['text']))]
        if key == 'tuple':
            return tuple(self.items(d['tuple'], name))
        return make(d[key] if key in ('set', 'dict', 'items', 'array', 'tensor') else d, name)

    def items(self, described, name):
        """What was cut off a long one is like its last item."""
        more = described[-1].get('more') if described and isinstance(described[-1], dict) else None
        made = [self.value(d, f'{name}[{i}]') for i, d in enumerate(described[:-1] if more else described)]
        return made + [made[-1] if made else None] * (more or 0)

    def set_of(self, described, name):
        made = set()
        for item in self.items(described, name):
            with contextlib.suppress(TypeError):
                made.add(item)
        return made

    def mapping(self, described, name):
        return {k: self.value(d, f'{name}[{k!r}]') for k, d in described.items() if k != 'more...'}

    def pairs(self, described, name):
        return {self.value(p[0], name): self.value(p[1], f'{name}[…]') for p in described if isinstance(p, list)}

    def named(self, dotted):
        """The object called `package.module.Qual.name`, or None; without --trust only one that `allowed` names."""
        parts = str(dotted).split('.')
        for cut in range(len(parts) - 1, 0, -1):
            module = '.'.join(parts[:cut])
            if not all(part.isidentifier() for part in parts) or not (
                    self.trust or top(module) in ('torch', *LIBRARIES) or is_here(module)):
                continue
            try:
                found = walk(importlib.import_module(module), parts[cut:])
            except Exception:  # of a module that can't be imported here
                continue
            if found is not None:
                return found if self.trust or self.allowed(found) else None
        found = getattr(builtins, str(dotted), None)
        return found if self.trust or found in (bool, bytes, complex, dict, float, int, list, set, str, tuple) else None

    def allowed(self, found):
        """Code of the user's own, and of the libraries what does nothing but hold or compute."""
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
                raise TypeError('it is no dataclass')
            return kind(**fields)
        except Exception:
            self.note(name, f'a {d.get("type")} can not be made from its fields alone; it is a namespace that has them')
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
            self.note(name, f'a {kind} ({text}) can not be made from a signature; it is None')
        return found

    def of_transformers(self, dotted, *bases):
        """A class of that library that is made from one of these."""
        kind = self.named(dotted)
        if not self.trust and not bases_of(kind) & set(bases):
            raise Problem(f'there is no {dotted} that a trace may choose')
        return kind

    @or_none(lambda d: f'a {d["type"]}')
    def cache(self, d, name):
        """What a decoder of transformers has kept: keys and values by layer, or two of these."""
        kind = self.of_transformers(d['type'], *CACHES)
        if 'caches' in d:
            return kind(*self.items(d['caches'], name))
        if 'rooms' in d:
            return self.static_cache(d, name)
        made = kind()
        for i, (keys, values) in enumerate(self.items(d['layers'], name)):
            if keys is not None:
                made.update(keys, values, i)
        return made

    def static_cache(self, d, name):
        """One whose layers have a fixed size, and zeros until they are used."""
        kind = self.of_transformers(d['type'], *CACHES)
        made = kind.__new__(kind)
        layers = []
        for (layer, room, *window), (keys, values) in zip(self.items(d['rooms'], name), self.items(d['layers'], name)):
            layers.append(self.of_transformers(layer, 'CacheLayerMixin')(room, *window))
            if keys is not None:
                layers[-1].update(keys, values)
        next(base for base in kind.__mro__ if base.__name__ == 'Cache').__init__(made, layers=layers)
        return made

    @or_none(lambda d: f'a {d["type"]}')
    def settings(self, d, name):
        return self.of_transformers(d['type'], *SETTINGS).from_dict(d['config'])

    @or_none(lambda d: f'an array of {d.get("dtype")}')
    def array(self, d, name):
        import numpy
        generator = numpy.random.default_rng(SEED)
        return (generator.random(d['shape']) * (10 if 'int' in d['dtype'] else 1)).astype(d['dtype'])

    @or_none(lambda d: 'an image')
    def image(self, d, name):
        from PIL import Image
        return Image.new(d.get('mode', 'RGB'), tuple(d['size']))

    def odd_tensor(self, d, name):
        self.note(name, f'a {d.get("type", "tensor")} without a shape can not be made; it is None')

    # ---- tensors ----

    def usable(self, device, name):
        """The device, or the nearest there is."""
        device, torch = self.device or device, self.torch
        kind, _, index = device.partition(':')
        module = getattr(torch, kind, None)
        if kind in ('cpu', 'meta'):
            return torch.device(device)
        if module is None or not hasattr(module, 'is_available') or not module.is_available():
            self.note(name, f'there is no {device} here; it is on the cpu')
            return torch.device('cpu')
        if index and hasattr(module, 'device_count') and int(index) >= module.device_count():
            self.note(name, f'there is no {device} here; it is on {kind}:0')
            return torch.device(kind, 0)
        return torch.device(device)

    def numbers(self, shape, dtype, device, below=10):
        """Random values that any stage can do with: normal ones, whole ones from 0 to 9, bytes from 0 to 255."""
        torch = self.torch
        if dtype == torch.bool:
            return torch.rand(shape, device=device) < 0.5
        if str(dtype).startswith('torch.q'):
            return torch.quantize_per_tensor(torch.randn(shape, device=device), 0.1, 0, dtype)
        if dtype.is_complex:
            return torch.randn(shape, dtype=torch.complex128 if dtype == torch.complex128 else torch.complex64,
                               device=device).to(dtype)
        if not dtype.is_floating_point:
            return torch.randint(0, 256 if dtype == torch.uint8 else below, shape, device=device).to(dtype)
        if dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            return torch.randn(shape, dtype=dtype, device=device)
        values = torch.randn(shape, device=device)
        try:
            return (values.abs() + 0.5 if 'e8m0' in str(dtype) else values).to(dtype)
        except (RuntimeError, NotImplementedError):  # a packed type, which nothing is converted to
            return torch.randint(0, 256, shape, dtype=torch.uint8, device=device).view(dtype)

    def tensor(self, d, name):
        torch = self.torch
        dtype = getattr(torch, d['dtype'], None)
        if not isinstance(dtype, torch.dtype):
            raise Problem(f'{name}: torch {torch.__version__} has no dtype {d["dtype"]}; use the one of the pipeline')
        shape = [n if isinstance(n, int) else 1 for n in d['shape']]
        if shape != d['shape']:
            self.note(name, f'sizes of {d["shape"]} that are no numbers are 1')
        device, stride = self.usable(d['device'], name), d.get('stride')
        below = 2 if 'mask' in name else 10  # some models take a mask's sum as a length
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
            self.note(name, f'it was a {kind}; it is a plain tensor')
        return made


# ---- what is run ----

def import_module(module):
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, ValueError) as e:
        raise Problem(plain(f'{module} can not be imported ({e}); run this where the pipeline runs, or set PYTHONPATH')) from e


def find_target(text, trust=True):
    """The object that `module:Qual.name` or `path/to/file.py:Qual.name` names. Without trust it is a trace that names it."""
    if not text:
        raise Problem('which object is the stage is not known; say so by --target module:obj, or edit build()')
    module, _, name = text.rpartition(':')
    if not module or not name:
        raise Problem(f'--target {text}: takes module:obj or file.py:obj')
    if not trust:
        check_target(text)
    where = 0 if trust else len(sys.path)
    sys.path.insert(where, os.getcwd())
    try:
        if module.endswith('.py'):
            sys.path.insert(where, os.path.dirname(os.path.abspath(module)))
            spec = importlib.util.spec_from_file_location(os.path.basename(module)[:-3], module)
            found = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(spec.name, found)
            spec.loader.exec_module(found)
        else:
            found = importlib.import_module(module)
    except (ImportError, OSError) as e:
        raise Problem(plain(f'{module} can not be imported ({e}); run this where the pipeline runs, or set PYTHONPATH')) from e
    owner = None
    for part in name.split('.'):
        owner, found = found, getattr(found, part, None)
        if found is None:
            raise Problem(plain(f'{text}: {getattr(owner, "__name__", owner)} has no {part}; name one that it has by --target'))
        if not trust and inspect.ismodule(found):
            distrust(f'the stage is {text!r}, which leads into another module')
    if inspect.isfunction(found) and inspect.isclass(owner) and not isinstance(owner.__dict__.get(part), staticmethod):
        raise Problem(plain(f'{text} is a method, which needs its object: name one by --target module:obj, or edit build()'))
    if not trust:
        check_found(found, text)
    return found


def object_from(d, device=None):
    """An object of diffusers or transformers, made from its configuration; its weights are random, from the fixed seed."""
    import torch
    if 'left_out' in d:
        raise Problem(f'a part of the stage, {d["class"]}, was not kept: {d["left_out"]}; name the stage by --target')
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
        if str(made.dtype) != f'torch.{d["dtype"]}':  # diffusers warns of each conversion
            made = made.to(dtype=getattr(torch, d['dtype']))
        made.train(d['training'])
    if 'steps' in d:
        shifted = getattr(made.config, 'use_dynamic_shifting', False)
        made.set_timesteps(d['steps'], **({'mu': 1.0} if shifted else {}))
    if 'begin' in d:
        made.set_begin_index(0)  # the step that is run is the first one
    if 'index' in d:
        made._step_index = 0  # found before the step, by scale_model_input
    return made


def target_of(signature, device=None, trust=False):
    """What a stage is: a function by its name, or a method of an object that can be made again."""
    described, target = signature.get('object'), signature.get('target')
    say(f'The trace says that the stage is {target!r}' + (f' of {described.get("class")!r}' if described else ''))
    say('Types it names: ' + (', '.join(sorted(types_in(signature))) or 'none'))
    chosen = loads_code([signature.get('input_signatures'), described])
    if chosen and not trust:
        distrust(f'an input or setting, {chosen!r}, makes a library load code or weights')
    if not described or not target:
        return find_target(target, trust)
    if not trust:
        check_object(described)
        if target.rpartition('.')[2] not in METHODS and not is_here(str(described['class']).rpartition(':')[0]):
            distrust(f'the stage is {target!r}')
    made, name = object_from(described, device), target.rpartition('.')[2]
    return made if name == '__call__' else method_of(made, target)


def method_of(made, target):
    """The object's method that `module:Qual.name` names: that of this class, where a class below it has one of its own."""
    owner, _, name = target.rpartition('.')
    for kind in type(made).__mro__:
        if f'{kind.__module__}:{kind.__qualname__}' == owner and inspect.isfunction(kind.__dict__.get(name)):
            return kind.__dict__[name].__get__(made)
    return getattr(made, name)


def gradients(signature, without=False):
    """The context a stage is run in: without gradients where the pipeline had none, or where that is asked for."""
    import torch
    without = without or (signature.get('object') or {}).get('grad') is False
    return torch.no_grad() if without else contextlib.nullcontext()


def needed(function, inputs):
    """Of the inputs those that a function takes."""
    parameters = inspect.signature(function).parameters
    if any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
        return dict(inputs)
    return {k: v for k, v in inputs.items() if k in parameters}


def set_timesteps(stage, inputs):
    """Two steps; the first one is run."""
    function = stage.scheduler.set_timesteps
    wanted = {'shift': inputs.get('sigma_shift', 8.0)} if 'sigma_shift' in inputs or hasattr(stage, 'dit') else {}
    function(2, **(wanted if 'shift' in inspect.signature(function).parameters else {}))
    return stage.scheduler.timesteps


def dit_step(stage, inputs):
    """One denoising step of a stage that has a dit and a scheduler, as TeleFuser's stages do it."""
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


def latents_of(inputs):
    return next((inputs[n] for n in ('latents', 'hidden_states', 'sample') if inputs.get(n) is not None), None)


def scheduler_step(scheduler):
    """Its step at the first timestep, each time: any other than its own a scheduler refuses."""
    if getattr(scheduler, 'num_inference_steps', None) is None:
        scheduler.set_timesteps(2)
    first = scheduler.timesteps[0]
    start = None if getattr(scheduler, '_step_index', None) is None else 0
    if hasattr(scheduler, 'is_scale_input_called'):
        scheduler.is_scale_input_called = True  # as the pipeline has done, or a warning says that it has not

    def step(inputs):
        if hasattr(scheduler, '_step_index'):  # it counts, and would come to its end
            scheduler._step_index = start
        return call(scheduler.step, {**inputs, 'timestep': first})
    return step


def own_arguments(stage):
    """Parameters of an object's call, by name; {} for one that can't be called, or does not say."""
    try:
        return inspect.signature(stage).parameters
    except (TypeError, ValueError):
        return {}


def pipeline_step(stage, inputs):
    """A call of a pipeline of diffusers with one step: of its strength, where it paints a picture over."""
    strength = inputs.get('strength') or getattr(own_arguments(stage).get('strength'), 'default', None)
    count = math.ceil(1 / strength) if isinstance(strength, (int, float)) and 0 < strength <= 1 else 1
    first = {name: inputs[name][:count] for name in ('timesteps', 'sigmas') if inputs.get(name) is not None}
    return call(stage, {**inputs, **first, 'num_inference_steps': count})


def transformer_step(stage, inputs):
    """One denoising step of a stage that has a transformer and a scheduler, as diffusers has them. What it is called with,
    or anything without latents, is a call of the stage itself."""
    own, latents = own_arguments(stage), latents_of(inputs)
    if 'num_inference_steps' in own and (latents is None or set(inputs) <= set(own)):
        return pipeline_step(stage, inputs)
    if latents is None:
        return call(stage, inputs)
    step = set_timesteps(stage, inputs)[0]
    given = {'timestep': step.to(latents.device).expand(latents.shape[0]), **inputs, 'hidden_states': latents}
    noise = stage.transformer(**needed(stage.transformer.forward, given))
    noise = noise[0] if isinstance(noise, (tuple, list)) else getattr(noise, 'sample', noise)
    if noise.dim() > 1 and noise.shape[1] > latents.shape[1]:  # it predicts a variance as well
        noise = noise[:, :latents.shape[1]]
    return stage.scheduler.step(noise, step, latents)


def step_of(target, tell=say):
    """The function that runs the stage once with its inputs as a dict."""
    if inspect.isclass(target) or not (callable(target) or any(hasattr(target, n) for n in ('process', 'scheduler', 'set_timesteps'))):
        raise Problem(f'{target!r} can not be called; the target is a function, or an object with process() or __call__')
    if hasattr(target, 'scheduler') and hasattr(target, 'dit'):
        tell('Created DiT single-step function')
        return lambda inputs: dit_step(target, inputs)
    if hasattr(target, 'scheduler') and hasattr(target, 'transformer'):
        tell('Created transformer single-step function')
        return lambda inputs: transformer_step(target, inputs)
    if hasattr(target, 'scheduler') and 'num_inference_steps' in own_arguments(target):
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


def call(function, inputs):
    """Calls it with its arguments by name; a coroutine or generator is run to its end."""
    given, positional = dict(inputs), []
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
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


# ---- running it ----

def device_module():
    """torch.cuda and the like where such a device is used, else None."""
    import torch
    for name in ('cuda', 'xpu', 'npu', 'mps'):
        module = getattr(torch, name, None)
        if module is not None and hasattr(module, 'is_available') and module.is_available():
            return module
    return None


def synchronize():
    module = device_module()
    if module is not None:
        module.synchronize()


def breakdown_of(profiler, stage):
    """Kernels of the device by name; without a device the operators, by their own time. The sum is a sum of parts."""
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
        launch = launches.get(getattr(e, 'id', None)) if kernels else None  # a kernel has the number of the call that launched it
        if launch is not None:
            row['cpu_ms'] = (row['cpu_ms'] or 0.0) + launch
    top = sorted(rows.values(), key=lambda r: -r['ms'])
    return {'name': stage, 'of': 'device kernels' if kernels else 'operators of the CPU',
            'total_kernel_time_ms': sum(r['ms'] for r in top), 'num_kernels': len(top),
            'launches': sum(r['calls'] for r in top), 'top_kernels': top[:50]}


def inputs_of_steps(make_inputs, count):
    """The inputs of each of some steps: the same ones, unless a step adds to what it is given, as decoders do."""
    first = make_inputs()
    grows = any(hasattr(value, 'get_seq_length') for value in first.values())
    return [first if i == 0 or not grows else make_inputs() for i in range(count)]


def measure(step, make_inputs, stage, warmup=1, profile_steps=1, output_dir='.', suffix='', tell=say):
    """Runs a step function with warm-up and under torch.profiler; returns times in milliseconds and the breakdown.

    step: function of a dict of inputs. make_inputs: function that makes them, once for the warm-up and once for the
    profile. Writes {stage}{suffix}_trace.json.gz and {stage}{suffix}_breakdown.json.
    """
    import torch
    if warmup < 0 or profile_steps < 1:
        raise Problem(f'warmup={warmup}, profile_steps={profile_steps}: takes 0 or more, and 1 or more')
    os.makedirs(output_dir, exist_ok=True)
    stem = os.path.join(output_dir, file_name(stage) + suffix)
    module, activities = device_module(), [torch.profiler.ProfilerActivity.CPU]
    if module is not None:
        name = module.__name__.rpartition('.')[2].upper()
        activities += [a for a in (getattr(torch.profiler.ProfilerActivity, name, None),) if a is not None]
    tell(f'Running {warmup} warmup iteration(s)...')
    for inputs in inputs_of_steps(make_inputs, warmup):
        step(inputs)
        synchronize()
    given = inputs_of_steps(make_inputs, profile_steps)
    if hasattr(module, 'empty_cache'):
        module.empty_cache()
    tell(f'Running {profile_steps} profile iteration(s)...')
    times = []
    with torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True, with_stack=True) as profiler:
        for inputs in given:
            start = time.perf_counter()
            step(inputs)
            synchronize()
            times.append((time.perf_counter() - start) * 1000)
    profiler.export_chrome_trace(f'{stem}_trace.json.gz')
    tell(f'Chrome trace saved to: {stem}_trace.json.gz')
    breakdown = breakdown_of(profiler, stage)
    with open(f'{stem}_breakdown.json', 'w', encoding='utf-8') as f:
        json.dump(breakdown, f, indent=2)
    tell(f'Kernel breakdown saved to: {stem}_breakdown.json')
    tell(f'Average iteration time: {statistics.fmean(times):.2f} ms')
    tell(f'Median iteration time: {statistics.median(times):.2f} ms (from {min(times):.2f} to {max(times):.2f})')
    return {'stage_name': stage, 'warmup': warmup, 'profile_steps': profile_steps, 'timing_ms': times,
            'median_ms': statistics.median(times), 'spread_ms': [min(times), max(times)], 'kernel_breakdown': breakdown}


def options(parser):
    parser.add_argument('--target', help='the stage: module:obj or file.py:obj')
    parser.add_argument('--warmup', type=int, default=1, help='iterations before the profile, 0 for none (default: 1)')
    parser.add_argument('--profile-steps', '--profile_steps', type=int, default=1, help='iterations in it (default: 1)')
    parser.add_argument('--output-dir', '--output_dir', default='.', help='where the files go (default: here)')
    parser.add_argument('--device', help='make all inputs there instead of where they were')
    parser.add_argument('--no-grad', action='store_true', help='run it under torch.no_grad()')
    parser.add_argument('--trust', action='store_true', help='the trace is your own: run and make whatever it names')
    return parser


def run(stage, signature, target, arguments, tell=say, values=lambda inputs: inputs):
    """The whole of it: inputs, target, profile. Returns what measure returns. `values` may change the inputs."""
    step, told = step_of(target, tell), []

    def make_inputs():
        inputs = Inputs(arguments.device, arguments.trust)
        made = inputs.all_of(signature)
        if not told:
            told.extend([f'Setup complete for stage {stage!r}', f'Mock inputs: {list(made)} (seed {SEED})', *inputs.notes])
            for line in told:
                tell(line)
        return values(made)

    try:
        with gradients(signature, arguments.no_grad):
            return measure(step, make_inputs, stage, arguments.warmup, arguments.profile_steps,
                                 arguments.output_dir, tell=tell)
    except Problem:
        raise
    except Exception:
        tell('It did not run to its end. What its inputs hold is made up: where that matters, edit values() in the script')
        raise


def script_main(data, build, values):
    """main() of profile_{stage}.py."""
    arguments = options(argparse.ArgumentParser(description=f'Runs the stage {data["stage"]!r} alone and profiles it.')).parse_args()
    sys.path.append(os.getcwd())
    try:
        target = find_target(arguments.target) if arguments.target else build(arguments.device, arguments.trust)
        run(data['stage'], data['signature'], target, arguments, values=values)
    except Problem as e:
        sys.exit(f'{os.path.basename(sys.argv[0])}: {e}')
# ---- end of the stand-alone part ----


import zlib  # noqa: E402
from dataclasses import dataclass  # noqa: E402

FORM = '''#!/usr/bin/env python3
"""profile_{name}.py - runs the stage {name} of a pipeline alone, with inputs like those it was given, and profiles it.

    python profile_{name}.py [--target module:obj] [--warmup N] [--profile-steps N] [--output-dir DIR] [--device D] [--trust]

Stand-alone: it needs torch, and what the stage itself needs. What the stage was given stands in DATA.
"""
'''
BODY = '''import os
import sys

if __name__ == \'__main__\' and sys.path[:1] == [os.path.dirname(os.path.abspath(__file__))]:
    del sys.path[0]  # what else came with the trace is not imported
import json

DATA = json.loads(r\'\'\'{data}\'\'\')


def build(device=None, trust=False):
    """The function or object that is run. To be edited where its object has to be made first."""
    return target_of(DATA['signature'], device, trust)


def values(inputs):
    """The inputs by name, made up. To be edited where it matters what they hold: tokens that stand for a picture, sizes."""
    return inputs


{code}

def create_inputs(device=None):
    """The stage's inputs by name, made up."""
    return values(Inputs(device).all_of(DATA['signature']))


def run_single_step(stage, inputs):
    """Runs the stage once, or one step of it, and returns what that returned."""
    return step_of(stage, lambda line: None)(inputs)


def profile_stage(stage, warmup=1, profile_steps=1, output_dir='.'):
    """Runs it with warm-up and under torch.profiler; returns times in milliseconds and the breakdown of kernels."""
    with gradients(DATA['signature'], False):
        return measure(step_of(stage), create_inputs, DATA['stage'], warmup, profile_steps, output_dir)


if __name__ == '__main__':
    script_main(DATA, build, values)
'''
MARK = '# As long as it is not edited it may be written anew; checksum '


def script_of(data):
    """profile_{stage}.py for a stage: {'stage': name, 'signature': as in the file}."""
    with open(os.path.abspath(__file__), encoding='utf-8') as f:
        code = f.read().split('# ---- stand-alone', 1)[1].split('\n', 1)[1].split('# ---- end of the stand-alone part', 1)[0]
    text = json.dumps(data, indent=1).replace("'", '\\u0027')
    body = BODY.replace('{data}', text, 1).replace('{code}', code, 1)
    return FORM.replace('{name}', file_name(data['stage'])) + f'{MARK}{zlib.crc32(body.encode()):08x}\n' + body


def is_edited(path):
    """True for a script that somebody changed after it was written."""
    try:
        with open(path, encoding='utf-8') as f:
            text = f.read()
    except OSError:
        return False
    _, mark, rest = text.partition(MARK)
    checksum, _, body = rest.partition('\n')
    return not mark or checksum != f'{zlib.crc32(body.encode()):08x}'


@dataclass
class HarnessConfig:
    """How a stage is run; output_dir None becomes the run directory of TeleFuser's and of ours."""

    warmup: int = 1
    profile_steps: int = 1
    output_dir: str = None
    device: str = None
    no_grad: bool = False
    trust: bool = False  # run and make whatever the signature names
    capture_output: bool = False  # keep what the last step returned, in `output`

    def __post_init__(self):
        if self.output_dir is None:
            set_one = [os.environ[n] for n in ('TFI_OUTPUT_DIR', 'TELEFUSER_PROFILER_OUTPUT_DIR') if os.environ.get(n)]
            pipeline = os.environ.get('TFI_PIPELINE_NAME') or os.environ.get('TELEFUSER_PIPELINE_NAME') or 'default'
            self.output_dir = set_one[0] if set_one else os.path.join('work_dirs', 'profiler_output', pipeline, time.strftime('%Y%m%d_%H%M'))


class StageBenchHarness:
    """One stage, what it is to be given, and the object that runs it."""

    def __init__(self, stage_name, io_signature, stage_instance=None, config=None):
        self.stage_name, self.io_signature = stage_name, io_signature
        self.stage_instance, self.config = stage_instance, config or HarnessConfig()
        self.inputs, self.output, self._step = None, None, None

    @classmethod
    def from_signature_file(cls, signature_path, stage_name, stage_instance=None, config=None):
        """Raises Problem, a ValueError, where the file or the stage is not there."""
        stages = read_signatures(signature_path)
        if stage_name not in stages:
            raise Problem(f"{signature_path}: Stage '{stage_name}' not found in signature file. Available: {list(stages)}")
        return cls(stage_name, stages[stage_name], stage_instance, config)

    def make_inputs(self):
        maker = Inputs(self.config.device, self.config.trust)
        self.inputs = maker.all_of(self.io_signature)
        return self.inputs, maker.notes

    def setup(self):
        """Makes the inputs, and finds out how the stage is run; without an instance its own target is taken."""
        _, notes = self.make_inputs()
        target = self.stage_instance
        if target is None:
            target = target_of(self.io_signature, self.config.device, self.config.trust)
        self._step = step_of(target)
        say(f"Setup complete for stage '{self.stage_name}'")
        say(f'Mock inputs: {list(self.inputs)}')
        for note in notes:
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
        directory = self.config.output_dir or '.'
        with gradients(self.io_signature, self.config.no_grad):
            results = measure(
                self.run_single_step, lambda: self.make_inputs()[0], self.stage_name,
                self.config.warmup if warmup is None else warmup,
                self.config.profile_steps if profile_steps is None else profile_steps, directory, output_suffix)
        self.save_test_script(directory)
        return results

    def generate_test_script(self):
        return script_of({'stage': self.stage_name, 'signature': self.io_signature})

    def save_test_script(self, directory):
        path = os.path.join(directory, f'profile_{file_name(self.stage_name)}.py')
        if is_edited(path):
            say(f'Test script {path} was edited and stays as it is')
            return
        with open(path, 'w', encoding='utf-8') as f:
            f.write(self.generate_test_script())
        say(f'Test script saved to: {path}')


from_signature_file = StageBenchHarness.from_signature_file


def read_signatures(path):
    """{stage: signature} of a timing_io_signature.json."""
    try:
        with open(path, encoding='utf-8') as f:
            stages = json.load(f)['stages']
        if all(isinstance(s, dict) and isinstance(s.get('input_signatures', {}), dict) for s in stages.values()):
            return stages
        raise KeyError('input_signatures')
    except OSError as e:
        raise Problem(f'{path}: {e.strerror}; `tfanalyze report DIR` writes DIR/timing_io_signature.json') from e
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise Problem(f'{path}: no signatures of stages ({type(e).__name__}: {e}); '
                      '`tfanalyze report DIR` writes DIR/timing_io_signature.json') from e


def main():
    parser = argparse.ArgumentParser(
        prog='tfharness.py', description=__doc__.split('\n\n')[0].partition(' - ')[2],
        epilog='Exit status: 0 done, 1 the file, the stage or the target can not be used, 2 wrong options.')
    parser.add_argument('--signature', required=True, help='timing_io_signature.json of a run')
    parser.add_argument('--stage', help='the stage to run')
    parser.add_argument('--list-stages', '--list_stages', action='store_true', help='print the stages of the file and end')
    arguments = options(parser).parse_args()
    if not arguments.list_stages and not arguments.stage:
        parser.error('--stage is needed; --list-stages shows which there are')
    if arguments.warmup < 0 or arguments.profile_steps < 1:
        parser.error('--warmup takes 0 or more, --profile-steps 1 or more')
    try:
        if arguments.list_stages:
            print(f'Available stages in {arguments.signature}:')
            for stage in read_signatures(arguments.signature):
                print(f'  - {plain(stage)}')
            return
        config = HarnessConfig(arguments.warmup, arguments.profile_steps, arguments.output_dir, arguments.device, arguments.no_grad, arguments.trust)
        harness = from_signature_file(arguments.signature, arguments.stage, config=config)
        if arguments.target:
            harness.stage_instance = find_target(arguments.target)
        harness.profile()
    except Problem as e:
        sys.exit(f'tfharness: {e}')


if __name__ == '__main__':
    main()
