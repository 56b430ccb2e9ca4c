"""inputs - makes the inputs of a stage from their descriptions in a signature."""

import builtins
import collections.abc
import dataclasses
import enum
import importlib
import inspect
from types import SimpleNamespace

from tfharness_parts.trust import LIBRARIES, Problem, bases_of, is_here, top, walk

SEED = 0  # of every random value


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
